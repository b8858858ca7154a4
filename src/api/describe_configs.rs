//! DescribeConfigs (key 32), versions 1 to 4. v1 synonyms; v3 types and texts; v4 flexible. Rules: D-4.
//!
//! Answered from the image: clients send broker resources to the broker that they ask about.

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::ids::Text;
use corelog_shards::controller::request::Refusal;
use corelog_shards::controller::topic_name;
use corelog_shards::metadata::configs::ResourceKind;
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::describe_configs::{
    Request, RequestResources, Response, ResponseResults, ResponseResultsConfigs,
    ResponseResultsConfigsSynonyms,
};
use corelog_wire::primitives::{DecodeError, Reader};

use super::config_entries::{self, Entry};
use super::{Answer, Context, Parts, Split};

pub fn split(
    cx: &Context<'_>,
    header: &RequestHeader,
    body: Bytes,
    _parts: &mut Parts,
    answer: &mut Answer<'_>,
) -> Result<Split, DecodeError> {
    let request = Request::decode(&mut Reader::new(body), header.api_version)?;
    let results = request
        .resources
        .iter()
        .map(|resource| describe(cx, &request, resource));
    let response = Response {
        throttle_time_ms: 0,
        results: results.collect(),
    };
    answer.write(header, |out| response.encode(out, header.api_version));
    Ok(Split::Ready)
}

fn describe(cx: &Context<'_>, request: &Request, resource: &RequestResources) -> ResponseResults {
    let mut result = ResponseResults {
        resource_type: resource.resource_type,
        resource_name: resource.resource_name.clone(),
        ..ResponseResults::default()
    };
    match entries(cx, resource) {
        Ok(entries) => {
            // No keys, or none named, mean all.
            let keys = resource
                .configuration_keys
                .as_deref()
                .filter(|keys| !keys.is_empty());
            let asked =
                |entry: &Entry| keys.is_none_or(|keys| keys.iter().any(|key| **key == *entry.name));
            let configs = entries.into_iter().filter(asked);
            result.configs = configs.map(|entry| config(request, entry)).collect();
        }
        Err(refusal) => {
            result.error_code = refusal.code.0;
            result.error_message = refusal.message;
        }
    }
    result
}

fn entries(cx: &Context<'_>, resource: &RequestResources) -> Result<Vec<Entry>, Refusal> {
    let name = &resource.resource_name;
    match ResourceKind::from_code(resource.resource_type) {
        Some(ResourceKind::Topic) => {
            topic_name::check(name)?;
            let unknown = || Refusal::plain(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
            let topic = cx.image.topic(name).ok_or_else(unknown)?;
            Ok(config_entries::of_topic(cx, topic.overrides.as_deref()).collect())
        }
        Some(ResourceKind::Broker) if name.is_empty() => {
            Ok(config_entries::of_all_brokers(cx).collect())
        }
        Some(ResourceKind::Broker) => {
            check_broker(cx, name, " or empty string")?;
            Ok(config_entries::of_broker(cx).collect())
        }
        Some(ResourceKind::BrokerLogger) => {
            check_broker(cx, name, "")?;
            Ok(vec![config_entries::of_loggers()])
        }
        Some(kind @ (ResourceKind::ClientMetrics | ResourceKind::Group)) => {
            if name.is_empty() {
                return Err(invalid(
                    "The name of a group or of a subscription must not be empty".to_owned(),
                ));
            }
            Ok(config_entries::of_resource(cx, kind, name))
        }
        None => Err(invalid(format!(
            "Unsupported resource type: {}",
            resource.resource_type
        ))),
    }
}

/// A broker describes itself.
fn check_broker(cx: &Context<'_>, name: &str, or: &str) -> Result<(), Refusal> {
    let own = cx.broker.node_id;
    match name.parse::<i32>() {
        Err(_) => Err(invalid(format!(
            "Broker id must be an integer, but it is: {name}"
        ))),
        Ok(id) if id != own => Err(invalid(format!(
            "Unexpected broker id, expected {own}{or}, but received {name}"
        ))),
        Ok(_) => Ok(()),
    }
}

fn invalid(message: String) -> Refusal {
    Refusal::new(ErrorCode::INVALID_REQUEST, message)
}

fn config(request: &Request, entry: Entry) -> ResponseResultsConfigs {
    let synonyms = entry
        .synonyms
        .into_iter()
        .filter(|_| request.include_synonyms);
    let doc = (request.include_documentation && !entry.doc.is_empty())
        .then(|| Text::from_static(entry.doc));
    ResponseResultsConfigs {
        name: Text::from(entry.name),
        value: entry.value.filter(|_| !entry.sensitive).map(Text::from),
        read_only: entry.read_only,
        config_source: entry.source.code(),
        is_sensitive: entry.sensitive,
        synonyms: synonyms
            .map(|(name, value, source)| ResponseResultsConfigsSynonyms {
                name: Text::from(name),
                value: value.map(Text::from),
                source: source.code(),
            })
            .collect(),
        config_type: entry.kind,
        documentation: doc,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, call};
    use super::*;

    fn ask(
        bench: &Bench,
        version: i16,
        kind: i8,
        name: &str,
        keys: Option<&[&'static str]>,
    ) -> ResponseResults {
        let request = Request {
            resources: vec![RequestResources {
                resource_type: kind,
                resource_name: Text::from(name.to_owned()),
                configuration_keys: keys
                    .map(|keys| keys.iter().map(|key| Text::from_static(key)).collect()),
            }],
            include_synonyms: true,
            include_documentation: true,
        };
        let response = call(
            bench,
            32,
            version,
            |out| request.encode(out, version),
            |reader| Response::decode(reader, version),
        );
        response.results.into_iter().next().expect("one resource")
    }

    fn synonyms(config: &ResponseResultsConfigs) -> Vec<(&str, Option<&str>, i8)> {
        let row = |synonym: &'_ ResponseResultsConfigsSynonyms| synonym.source;
        config
            .synonyms
            .iter()
            .map(|synonym| (&*synonym.name, synonym.value.as_deref(), row(synonym)))
            .collect()
    }

    #[test]
    fn d4_a_topics_setting_names_every_place_that_says_one() {
        let bench = Bench::new()
            .topic("t", 1)
            .set(2, "t", "segment.bytes", "2000000")
            .set(4, "1", "log.segment.bytes", "3000000")
            .set(4, "", "log.segment.bytes", "4000000");
        for version in 1..=4 {
            let result = ask(&bench, version, 2, "t", Some(&["segment.bytes"]));
            assert_eq!(result.configs.len(), 1);
            let config = &result.configs[0];
            assert_eq!(
                (config.value.as_deref(), config.config_source),
                (Some("2000000"), 1)
            );
            assert_eq!(
                synonyms(config),
                [
                    ("segment.bytes", Some("2000000"), 1),
                    ("log.segment.bytes", Some("3000000"), 2),
                    ("log.segment.bytes", Some("4000000"), 3),
                    ("log.segment.bytes", Some("1073741824"), 5),
                ]
            );
            if version >= 3 {
                assert_eq!(config.config_type, 3, "INT");
                assert!(config.documentation.is_some());
            }
        }
    }

    #[test]
    fn d4_without_keys_all_settings_are_described() {
        let bench = Bench::new().topic("t", 1);
        assert!(ask(&bench, 4, 2, "t", None).configs.len() > 30);
        assert!(ask(&bench, 4, 4, "1", Some(&[])).configs.len() > 350);
        assert!(
            ask(&bench, 4, 4, "", None).configs.is_empty(),
            "only what was set"
        );
        assert_eq!(ask(&bench, 4, 8, "1", None).configs.len(), 1);
        assert!(!ask(&bench, 4, 32, "g", None).configs.is_empty());
        assert_eq!(ask(&bench, 4, 16, "m", None).configs.len(), 3);
    }

    #[test]
    fn d4_a_brokers_file_is_a_source() {
        let bench = Bench::with_statics(&[("num.partitions", "4"), ("log.retention.hours", "2")]);
        let result = ask(
            &bench,
            4,
            4,
            "1",
            Some(&["num.partitions", "log.retention.ms", "node.id"]),
        );
        let of = |name: &str| {
            let config = result
                .configs
                .iter()
                .find(|config| &*config.name == name)
                .expect("described");
            (
                config.value.as_deref(),
                config.config_source,
                config.read_only,
            )
        };
        assert_eq!(of("num.partitions"), (Some("4"), 4, true));
        assert_eq!(
            of("log.retention.ms"),
            (None, 5, false),
            "the hours do not count"
        );
    }

    /// As Apache Kafka 4.3.1 shows them: places before the first with the property's own name are left out.
    #[test]
    fn d4_other_units_are_shown_only_after_the_property_itself() {
        let bench = Bench::with_statics(&[("log.retention.hours", "2"), ("log.roll.ms", "5000")])
            .topic("t", 1)
            .topic("kept", 1)
            .set(2, "kept", "retention.ms", "-1");
        let of = |kind, resource: &str, key| {
            let result = ask(&bench, 4, kind, resource, Some(&[key]));
            let config = &result.configs[0];
            let synonyms = synonyms(config)
                .into_iter()
                .map(|(name, value, source)| format!("{source} {name}={}", value.unwrap_or("-")));
            let value = config.value.clone().unwrap_or(Text::from_static("-"));
            format!("{value} {:?}", synonyms.collect::<Vec<_>>())
        };
        assert_eq!(of(2, "t", "retention.ms"), "7200000 []");
        assert_eq!(of(2, "kept", "retention.ms"), r#"-1 ["1 retention.ms=-1"]"#);
        assert_eq!(
            of(2, "t", "segment.ms"),
            r#"5000 ["4 log.roll.ms=5000", "5 log.roll.hours=168"]"#
        );
        for (key, value) in [
            ("flush.ms", "9223372036854775807"),
            ("segment.jitter.ms", "0"),
            ("remote.storage.enable", "false"),
        ] {
            assert_eq!(of(2, "t", key), format!("{value} []"));
        }
        assert_eq!(of(4, "1", "log.retention.ms"), "- []");
        assert_eq!(
            of(4, "1", "log.roll.ms"),
            r#"5000 ["4 log.roll.ms=5000", "5 log.roll.hours=168"]"#
        );
        assert_eq!(of(4, "1", "log.dirs"), "- []");
    }

    #[test]
    fn d4_internal_properties_are_shown_when_they_are_set() {
        let key = "group.consumer.regex.refresh.interval.ms";
        assert!(
            ask(&Bench::new(), 4, 4, "1", Some(&[key]))
                .configs
                .is_empty()
        );
        let bench = Bench::with_statics(&[(key, "20000")]);
        assert_eq!(ask(&bench, 4, 4, "1", Some(&[key])).configs.len(), 1);
    }

    #[test]
    fn d4_passwords_are_not_shown() {
        let bench = Bench::with_statics(&[("ssl.keystore.password", "secret")]);
        let result = ask(&bench, 4, 4, "1", Some(&["ssl.keystore.password"]));
        let config = &result.configs[0];
        assert!(config.is_sensitive && config.value.is_none());
        assert_eq!(config.synonyms[0].value, None);
    }

    #[test]
    fn d4_what_cannot_be_described_has_its_code() {
        let bench = Bench::new();
        let code = |kind, name| ErrorCode(ask(&bench, 4, kind, name, None).error_code);
        assert_eq!(code(2, "t"), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        assert_eq!(code(2, "a b"), ErrorCode::INVALID_TOPIC_EXCEPTION);
        assert_eq!(code(4, "2"), ErrorCode::INVALID_REQUEST);
        assert_eq!(code(4, "x"), ErrorCode::INVALID_REQUEST);
        assert_eq!(code(8, ""), ErrorCode::INVALID_REQUEST);
        assert_eq!(code(16, ""), ErrorCode::INVALID_REQUEST);
        assert_eq!(code(7, "x"), ErrorCode::INVALID_REQUEST);
    }
}
