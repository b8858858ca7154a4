//! CreateTopics (key 19), versions 2 to 7.
//!
//! v4 -1 for the defaults of partitions and replicas; v5 flexible, the topic's settings in the response; v7 topic ids. Rules: D-1.

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::ids::Text;
use corelog_shards::controller;
use corelog_shards::controller::request::{
    Ask, CreateTopics, CreatedTopic, NewTopic, Refusal, Setting,
};
use corelog_shards::metadata::configs::Overrides;
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::create_topics::{
    Request, RequestTopics, Response, ResponseTopics, ResponseTopicsConfigs,
};
use corelog_wire::primitives::{DecodeError, Reader};

use super::{Answer, Context, Parts, Split, asked, config_entries};

pub fn split(
    _cx: &Context<'_>,
    header: &RequestHeader,
    body: Bytes,
    parts: &mut Parts,
    answer: &mut Answer<'_>,
) -> Result<Split, DecodeError> {
    let request = Request::decode(&mut Reader::new(body), header.api_version)?;
    let topics: Vec<NewTopic> = request.topics.into_iter().map(new_topic).collect();
    if topics.is_empty() {
        respond(header, Vec::new(), answer);
        return Ok(Split::Ready);
    }
    let (header, kept) = (header.clone(), topics.clone());
    let create = CreateTopics {
        topics,
        validate_only: request.validate_only,
    };
    Ok(asked::ask(
        parts,
        request.timeout_ms,
        Ask::CreateTopics(create),
        move |cx, reply, answer| {
            let controller::Reply::CreateTopics(entries) = reply else {
                return;
            };
            let mut results: Vec<ResponseTopics> = Vec::with_capacity(entries.len());
            for (topic, entry) in kept.iter().zip(entries) {
                // A name that stands twice is refused once.
                if !results.iter().any(|result| result.name == topic.name) {
                    results.push(result(cx, topic, entry));
                }
            }
            respond(&header, results, answer);
        },
    ))
}

fn new_topic(topic: RequestTopics) -> NewTopic {
    NewTopic {
        name: topic.name,
        partitions: topic.num_partitions,
        replication_factor: topic.replication_factor,
        assignments: topic
            .assignments
            .into_iter()
            .map(|assignment| (assignment.partition_index, assignment.broker_ids))
            .collect(),
        settings: topic
            .configs
            .into_iter()
            .map(|config| Setting {
                name: config.name,
                value: config.value,
            })
            .collect(),
    }
}

fn result(
    cx: &Context<'_>,
    topic: &NewTopic,
    entry: Result<CreatedTopic, Refusal>,
) -> ResponseTopics {
    let name = topic.name.clone();
    match entry {
        Ok(created) => ResponseTopics {
            name,
            topic_id: created.id,
            error_code: ErrorCode::NONE.0,
            num_partitions: created.partitions,
            replication_factor: created.replication_factor,
            configs: Some(configs(cx, topic)),
            ..ResponseTopics::default()
        },
        Err(refusal) => ResponseTopics {
            name,
            error_code: refusal.code.0,
            error_message: refusal.message,
            configs: Some(Vec::new()),
            ..ResponseTopics::default()
        },
    }
}

/// What the topic runs with, whether it was made or only checked.
fn configs(cx: &Context<'_>, topic: &NewTopic) -> Vec<ResponseTopicsConfigs> {
    let overrides: Overrides = topic
        .settings
        .iter()
        .filter_map(|setting| Some((setting.name.clone(), setting.value.clone()?)))
        .collect();
    config_entries::of_topic(cx, Some(&overrides))
        .map(|entry| ResponseTopicsConfigs {
            name: Text::from(entry.name),
            value: entry.value.map(Text::from),
            read_only: false,
            config_source: entry.source.code(),
            is_sensitive: false,
        })
        .collect()
}

fn respond(header: &RequestHeader, topics: Vec<ResponseTopics>, answer: &mut Answer<'_>) {
    let response = Response {
        throttle_time_ms: 0,
        topics,
    };
    answer.write(header, |out| response.encode(out, header.api_version));
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, call};
    use super::*;

    fn create(
        bench: &Bench,
        version: i16,
        topics: &[(&'static str, i32)],
        setting: Option<&'static str>,
    ) -> Response {
        let request = Request {
            topics: topics
                .iter()
                .map(|(name, partitions)| RequestTopics {
                    name: Text::from_static(name),
                    num_partitions: *partitions,
                    replication_factor: 1,
                    configs: setting
                        .map(
                            |value| corelog_wire::messages::create_topics::RequestTopicsConfigs {
                                name: Text::from_static("retention.ms"),
                                value: Some(Text::from_static(value)),
                            },
                        )
                        .into_iter()
                        .collect(),
                    ..RequestTopics::default()
                })
                .collect(),
            timeout_ms: 1000,
            ..Request::default()
        };
        call(
            bench,
            19,
            version,
            |out| request.encode(out, version),
            |reader| Response::decode(reader, version),
        )
    }

    #[test]
    fn d1_every_version_creates() {
        for version in 2..=7 {
            let bench = Bench::new();
            let response = create(&bench, version, &[("t", 2)], Some("5"));
            assert_eq!(
                (&*response.topics[0].name, response.topics[0].error_code),
                ("t", 0)
            );
            let topic = bench.image().topic("t").expect("created").clone();
            assert_eq!((topic.partitions.len(), topic.config.retention_ms), (2, 5));
            if version >= 7 {
                assert_eq!(response.topics[0].topic_id, topic.id);
            }
        }
    }

    #[test]
    fn d1_the_response_names_the_topics_settings_from_version_5_on() {
        let response = create(&Bench::new(), 5, &[("t", 2)], Some("5"));
        assert_eq!(
            (
                response.topics[0].num_partitions,
                response.topics[0].replication_factor
            ),
            (2, 1)
        );
        let configs = response.topics[0].configs.as_ref().expect("settings");
        let entry = |name: &str| {
            let found = configs
                .iter()
                .find(|config| &*config.name == name)
                .expect("there");
            (
                found.value.as_ref().map(ToString::to_string),
                found.config_source,
            )
        };
        assert_eq!(entry("retention.ms"), (Some("5".to_owned()), 1));
        assert_eq!(entry("cleanup.policy"), (Some("delete".to_owned()), 5));
    }

    #[test]
    fn d1_a_name_that_stands_twice_is_refused_once() {
        let response = create(&Bench::new(), 7, &[("t", 1), ("t", 1), ("u", 1)], None);
        let codes: Vec<(&str, i16)> = response
            .topics
            .iter()
            .map(|topic| (&*topic.name, topic.error_code))
            .collect();
        assert_eq!(codes, [("t", ErrorCode::INVALID_REQUEST.0), ("u", 0)]);
        assert!(response.topics[0].error_message.is_some());
    }
}
