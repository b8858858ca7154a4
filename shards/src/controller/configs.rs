//! Changing settings (D-5, D-6).
//!
//! What the broker's own properties are is the business of whoever asks: values of broker resources come here checked, but for those
//! that topics share.

use std::collections::{BTreeMap, BTreeSet};

use corelog_wire::records::metadata::MetadataRecord;

use super::decision::{Decider, Decision};
use super::request::{AlterConfigs, AlterResource, Change, ConfigOp, Refusal, Reply, Setting};
use crate::base::error_code::ErrorCode;
use crate::base::ids::Text;
use crate::metadata::configs::{
    Overrides, ResourceKind, check_shared_broker_property, check_topic,
};
use crate::metadata::properties::{Kind, Property, split_list};
use crate::metadata::resource_config::{client_metrics_property, group_property};
use crate::metadata::snapshot::config_record;
use crate::metadata::topic_config::{by_server_name, topic_property};

impl Decider<'_> {
    pub(super) fn incremental_alter_configs(&self, request: &AlterConfigs<ConfigOp>) -> Decision {
        self.alter(request, |decider, resource, current| {
            decider.after_ops(resource, current)
        })
    }

    pub(super) fn alter_configs(&self, request: &AlterConfigs<Setting>) -> Decision {
        self.alter(request, |_, resource, _| after_replacement(resource))
    }

    fn alter<T>(
        &self,
        request: &AlterConfigs<T>,
        after: impl Fn(&Self, &AlterResource<T>, &Overrides) -> Result<Overrides, Refusal>,
    ) -> Decision {
        let mut times: BTreeMap<(ResourceKind, &Text), usize> = BTreeMap::new();
        for resource in &request.resources {
            *times.entry((resource.kind, &resource.name)).or_default() += 1;
        }
        let mut records = Vec::new();
        let mut entries = Vec::with_capacity(request.resources.len());
        for resource in &request.resources {
            let once = times[&(resource.kind, &resource.name)] == 1;
            entries.push(if once {
                self.alter_one(resource, &after, &mut records)
            } else {
                Err(Refusal::new(
                    ErrorCode::INVALID_REQUEST,
                    "Each resource must appear at most once.",
                ))
            });
        }
        Decision::unless_validated(records, Reply::AlterConfigs(entries), request.validate_only)
    }

    fn alter_one<T>(
        &self,
        resource: &AlterResource<T>,
        after: impl Fn(&Self, &AlterResource<T>, &Overrides) -> Result<Overrides, Refusal>,
        records: &mut Vec<MetadataRecord>,
    ) -> Result<(), Refusal> {
        self.check_resource(resource.kind, &resource.name)?;
        let current = self.current(resource.kind, &resource.name);
        let wanted = after(self, resource, &current)?;
        self.check_settings(resource.kind, &current, &wanted)?;
        let names: BTreeSet<&Text> = current.keys().chain(wanted.keys()).collect();
        for name in names {
            let value = wanted.get(name);
            if current.get(name) != value {
                records.push(config_record(
                    resource.kind,
                    resource.name.clone(),
                    name.clone(),
                    value.cloned(),
                ));
            }
        }
        Ok(())
    }

    fn current(&self, kind: ResourceKind, name: &Text) -> Overrides {
        let overrides = match kind {
            ResourceKind::Topic => self
                .image
                .topic(name)
                .and_then(|topic| topic.overrides.as_ref()),
            _ => self.image.configs.of(kind, name),
        };
        overrides
            .map(|overrides| Overrides::clone(overrides))
            .unwrap_or_default()
    }

    fn check_resource(&self, kind: ResourceKind, name: &Text) -> Result<(), Refusal> {
        let refuse = |code, message: String| Err(Refusal::new(code, message));
        match kind {
            ResourceKind::Topic if name.is_empty() => refuse(
                ErrorCode::INVALID_REQUEST,
                "Default topic resources are not allowed.".to_owned(),
            ),
            ResourceKind::Topic if self.image.topic(name).is_none() => refuse(
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                format!("The topic '{name}' does not exist."),
            ),
            ResourceKind::Broker if !name.is_empty() => match name.parse::<i32>() {
                Err(_) => refuse(
                    ErrorCode::INVALID_REQUEST,
                    format!("Unable to parse broker name '{name}' as a base 10 number."),
                ),
                Ok(id) if !self.image.brokers.contains_key(&id) => refuse(
                    ErrorCode::BROKER_ID_NOT_REGISTERED,
                    format!("No broker with id {id} found."),
                ),
                Ok(_) => Ok(()),
            },
            ResourceKind::BrokerLogger => refuse(
                ErrorCode::INVALID_REQUEST,
                "Loggers are changed at the broker, not at the controller.".to_owned(),
            ),
            ResourceKind::Group if name.is_empty() => refuse(
                ErrorCode::INVALID_REQUEST,
                "Default group resources are not allowed.".to_owned(),
            ),
            ResourceKind::ClientMetrics if name.is_empty() => refuse(
                ErrorCode::INVALID_REQUEST,
                "Subscription name can't be empty".to_owned(),
            ),
            _ => Ok(()),
        }
    }

    /// What stood there before and is left alone is not checked again: another release may have written it.
    fn check_settings(
        &self,
        kind: ResourceKind,
        current: &Overrides,
        wanted: &Overrides,
    ) -> Result<(), Refusal> {
        let new = wanted
            .iter()
            .filter(|(name, value)| current.get(*name) != Some(*value));
        match kind {
            ResourceKind::Topic => check_topic(&self.image.configs, wanted)
                .map_err(|invalid| Refusal::new(ErrorCode::INVALID_CONFIG, invalid.to_string())),
            ResourceKind::Broker => new
                .into_iter()
                .try_for_each(|(name, value)| check_shared_broker_property(name, value))
                .map_err(|invalid| Refusal::new(ErrorCode::INVALID_CONFIG, invalid.to_string())),
            ResourceKind::Group => check_all(new, group_property, |name| {
                Refusal::new(
                    ErrorCode::INVALID_CONFIG,
                    format!("Unknown group config name: {name}"),
                )
            }),
            ResourceKind::ClientMetrics => check_all(new, client_metrics_property, |name| {
                Refusal::new(
                    ErrorCode::INVALID_REQUEST,
                    format!("Unknown client metrics configuration: {name}"),
                )
            }),
            ResourceKind::BrokerLogger => Ok(()),
        }
    }

    /// The settings after all operations on a resource (D-5).
    fn after_ops(
        &self,
        resource: &AlterResource<ConfigOp>,
        current: &Overrides,
    ) -> Result<Overrides, Refusal> {
        check_ops(&resource.changes)?;
        let mut wanted = current.clone();
        for op in &resource.changes {
            match (op.change, &op.value) {
                (Change::Set, Some(value)) => {
                    wanted.insert(op.name.clone(), value.clone());
                }
                (Change::Append | Change::Subtract, Some(value)) => {
                    let list = self.changed_list(resource.kind, op, wanted.get(&op.name), value)?;
                    wanted.insert(op.name.clone(), list);
                }
                _ => {
                    wanted.remove(&op.name);
                }
            }
        }
        Ok(wanted)
    }

    fn changed_list(
        &self,
        kind: ResourceKind,
        op: &ConfigOp,
        current: Option<&Text>,
        value: &Text,
    ) -> Result<Text, Refusal> {
        let Some(base) = self.list_base(kind, op) else {
            let verb = if op.change == Change::Append {
                "APPEND"
            } else {
                "SUBTRACT"
            };
            return Err(Refusal::new(
                ErrorCode::INVALID_CONFIG,
                format!(
                    "Can't {verb} to key {} because its type is not LIST.",
                    op.name
                ),
            ));
        };
        let base = current.map_or(base, Text::to_string);
        let mut elements: Vec<&str> = split_list(&base).collect();
        for element in split_list(value) {
            match op.change {
                Change::Append if !elements.contains(&element) => elements.push(element),
                Change::Subtract => elements.retain(|kept| *kept != element),
                _ => {}
            }
        }
        Ok(Text::from(elements.join(",")))
    }

    /// What a list is without a setting of the resource's own; `None` if the property is no list.
    fn list_base(&self, kind: ResourceKind, op: &ConfigOp) -> Option<String> {
        let list = |property: &&Property| property.kind == Kind::List;
        match kind {
            ResourceKind::Topic => {
                let property = topic_property(&op.name).filter(list)?;
                let synonyms = self.image.configs.synonyms(property, None);
                synonyms.into_iter().next().map(|synonym| synonym.converted)
            }
            ResourceKind::Broker => {
                let shared = by_server_name(&op.name)
                    .map(|(property, _)| property)
                    .filter(list);
                op.broker_list
                    .as_ref()
                    .map(Text::to_string)
                    .or_else(|| shared.map(|property| property.default.to_owned()))
            }
            ResourceKind::Group => group_property(&op.name)
                .filter(list)
                .map(|property| property.default.to_owned()),
            ResourceKind::ClientMetrics => client_metrics_property(&op.name)
                .filter(list)
                .map(|property| property.default.to_owned()),
            ResourceKind::BrokerLogger => None,
        }
    }
}

fn check_all<'a>(
    settings: impl Iterator<Item = (&'a Text, &'a Text)>,
    property: impl Fn(&str) -> Option<&'static Property>,
    unknown: impl Fn(&str) -> Refusal,
) -> Result<(), Refusal> {
    for (name, value) in settings {
        let known = property(name).ok_or_else(|| unknown(name))?;
        known
            .parse(value)
            .map_err(|invalid| Refusal::new(unknown(name).code, invalid.to_string()))?;
    }
    Ok(())
}

/// One operation a key, and a value where one is needed.
fn check_ops(ops: &[ConfigOp]) -> Result<(), Refusal> {
    let names: BTreeSet<&Text> = ops.iter().map(|op| &op.name).collect();
    if names.len() < ops.len() {
        return Err(Refusal::new(
            ErrorCode::INVALID_REQUEST,
            "Error due to duplicate config keys",
        ));
    }
    let without_value = ops
        .iter()
        .filter(|op| op.value.is_none() && op.change != Change::Delete)
        .map(|op| &*op.name);
    refuse_null_values(without_value)
}

fn refuse_null_values<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), Refusal> {
    let names: Vec<&str> = names.collect();
    if names.is_empty() {
        return Ok(());
    }
    Err(Refusal::new(
        ErrorCode::INVALID_REQUEST,
        format!("Null value not supported for : {}", names.join(",")),
    ))
}

/// The settings after everything was replaced (D-6).
fn after_replacement(resource: &AlterResource<Setting>) -> Result<Overrides, Refusal> {
    let without_value = resource
        .changes
        .iter()
        .filter(|setting| setting.value.is_none())
        .map(|setting| &*setting.name);
    refuse_null_values(without_value)?;
    let wanted: Overrides = resource
        .changes
        .iter()
        .filter_map(|setting| Some((setting.name.clone(), setting.value.clone()?)))
        .collect();
    if wanted.len() < resource.changes.len() {
        return Err(Refusal::new(
            ErrorCode::INVALID_REQUEST,
            "Error due to duplicate config keys",
        ));
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::super::request::{Ask, CreateTopics, NewTopic};
    use super::super::testing::{ask, image_with_broker, settings};
    use super::*;
    use crate::metadata::Replay;

    fn with_topic() -> Replay {
        let mut replay = image_with_broker();
        let request = Ask::CreateTopics(CreateTopics {
            topics: vec![NewTopic {
                name: Text::from_static("t"),
                partitions: 1,
                replication_factor: 1,
                ..NewTopic::default()
            }],
            validate_only: false,
        });
        ask(&mut replay, &settings(), &request);
        replay
    }

    fn op(name: &'static str, change: Change, value: Option<&'static str>) -> ConfigOp {
        ConfigOp {
            name: Text::from_static(name),
            change,
            value: value.map(Text::from_static),
            broker_list: None,
        }
    }

    fn alter(
        replay: &mut Replay,
        kind: ResourceKind,
        name: &'static str,
        changes: Vec<ConfigOp>,
    ) -> ErrorCode {
        let request = Ask::IncrementalAlterConfigs(AlterConfigs {
            resources: vec![AlterResource {
                kind,
                name: Text::from_static(name),
                changes,
            }],
            validate_only: false,
        });
        match ask(replay, &settings(), &request).reply {
            Reply::AlterConfigs(entries) => entries[0]
                .as_ref()
                .map_or_else(|refusal| refusal.code, |()| ErrorCode::NONE),
            other => panic!("{other:?}"),
        }
    }

    fn own(replay: &Replay, name: &str) -> Option<String> {
        let topic = replay.working().topic("t")?;
        Some(topic.overrides.as_ref()?.get(name)?.to_string())
    }

    #[test]
    fn d5_settings_are_set_and_deleted() {
        let mut replay = with_topic();
        let set = vec![op("retention.ms", Change::Set, Some("5"))];
        assert_eq!(
            alter(&mut replay, ResourceKind::Topic, "t", set),
            ErrorCode::NONE
        );
        assert_eq!(
            replay
                .working()
                .topic("t")
                .expect("there")
                .config
                .retention_ms,
            5
        );
        let delete = vec![op("retention.ms", Change::Delete, None)];
        assert_eq!(
            alter(&mut replay, ResourceKind::Topic, "t", delete),
            ErrorCode::NONE
        );
        assert_eq!(own(&replay, "retention.ms"), None);
        let default = replay
            .working()
            .topic("t")
            .expect("there")
            .config
            .retention_ms;
        assert_eq!(default, 604_800_000);
    }

    #[test]
    fn d5_lists_grow_and_shrink() {
        let mut replay = with_topic();
        let mut change = |change, value| {
            let ops = vec![op("cleanup.policy", change, Some(value))];
            let code = alter(&mut replay, ResourceKind::Topic, "t", ops);
            (code, own(&replay, "cleanup.policy"))
        };
        let both = Some("delete,compact".to_owned());
        assert_eq!(
            change(Change::Append, "compact"),
            (ErrorCode::NONE, both.clone())
        );
        assert_eq!(change(Change::Append, "compact"), (ErrorCode::NONE, both));
        let compact = Some("compact".to_owned());
        assert_eq!(
            change(Change::Subtract, "delete"),
            (ErrorCode::NONE, compact.clone())
        );
        assert_eq!(
            change(Change::Append, "x"),
            (ErrorCode::INVALID_CONFIG, compact)
        );
        let not_a_list = vec![op("retention.ms", Change::Append, Some("5"))];
        let code = alter(&mut replay, ResourceKind::Topic, "t", not_a_list);
        assert_eq!(code, ErrorCode::INVALID_CONFIG);
    }

    #[test]
    fn d5_bad_operations_are_refused_with_kafkas_codes() {
        let mut replay = with_topic();
        let set = |name, value| op(name, Change::Set, Some(value));
        let cases = [
            (
                ResourceKind::Topic,
                "t",
                vec![set("retention.ms", "1"), set("retention.ms", "2")],
                ErrorCode::INVALID_REQUEST,
            ),
            (
                ResourceKind::Topic,
                "t",
                vec![op("retention.ms", Change::Set, None)],
                ErrorCode::INVALID_REQUEST,
            ),
            (
                ResourceKind::Topic,
                "t",
                vec![set("nonsense", "1")],
                ErrorCode::INVALID_CONFIG,
            ),
            (
                ResourceKind::Topic,
                "t",
                vec![set("retention.ms", "x")],
                ErrorCode::INVALID_CONFIG,
            ),
            (
                ResourceKind::Topic,
                "u",
                vec![set("retention.ms", "1")],
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            ),
            (
                ResourceKind::Topic,
                "",
                vec![set("retention.ms", "1")],
                ErrorCode::INVALID_REQUEST,
            ),
            (
                ResourceKind::Broker,
                "x",
                vec![set("log.retention.ms", "1")],
                ErrorCode::INVALID_REQUEST,
            ),
            (
                ResourceKind::Broker,
                "7",
                vec![set("log.retention.ms", "1")],
                ErrorCode::BROKER_ID_NOT_REGISTERED,
            ),
            (
                ResourceKind::Broker,
                "1",
                vec![set("log.retention.ms", "x")],
                ErrorCode::INVALID_CONFIG,
            ),
            (
                ResourceKind::Broker,
                "1",
                vec![set("log.retention.ms", "1")],
                ErrorCode::NONE,
            ),
            (
                ResourceKind::Group,
                "g",
                vec![set("consumer.session.timeout.ms", "46000")],
                ErrorCode::NONE,
            ),
            (
                ResourceKind::Group,
                "g",
                vec![set("nonsense", "1")],
                ErrorCode::INVALID_CONFIG,
            ),
            (
                ResourceKind::ClientMetrics,
                "m",
                vec![set("interval.ms", "1")],
                ErrorCode::INVALID_REQUEST,
            ),
            (
                ResourceKind::ClientMetrics,
                "m",
                vec![set("interval.ms", "1000")],
                ErrorCode::NONE,
            ),
        ];
        for (kind, name, ops, expected) in cases {
            assert_eq!(
                alter(&mut replay, kind, name, ops.clone()),
                expected,
                "{kind:?} {name} {ops:?}"
            );
        }
    }

    #[test]
    fn a_brokers_setting_is_the_default_of_its_topics() {
        let mut replay = with_topic();
        let retention = |replay: &Replay| {
            replay
                .working()
                .topic("t")
                .expect("there")
                .config
                .retention_ms
        };
        for (name, value) in [("", "7"), ("1", "6")] {
            let ops = vec![op("log.retention.ms", Change::Set, Some(value))];
            assert_eq!(
                alter(&mut replay, ResourceKind::Broker, name, ops),
                ErrorCode::NONE
            );
            assert_eq!(retention(&replay).to_string(), value);
        }
        let own = vec![op("retention.ms", Change::Set, Some("5"))];
        assert_eq!(
            alter(&mut replay, ResourceKind::Topic, "t", own),
            ErrorCode::NONE
        );
        assert_eq!(retention(&replay), 5);
    }

    #[test]
    fn d6_a_replacement_removes_what_it_does_not_name() {
        let mut replay = with_topic();
        let set = vec![op("retention.ms", Change::Set, Some("5"))];
        alter(&mut replay, ResourceKind::Topic, "t", set);
        let setting = |name, value: &'static str| Setting {
            name: Text::from_static(name),
            value: Some(Text::from_static(value)),
        };
        let request = Ask::AlterConfigs(AlterConfigs {
            resources: vec![AlterResource {
                kind: ResourceKind::Topic,
                name: Text::from_static("t"),
                changes: vec![setting("segment.bytes", "2000000")],
            }],
            validate_only: false,
        });
        assert_eq!(
            ask(&mut replay, &settings(), &request).reply,
            Reply::AlterConfigs(vec![Ok(())])
        );
        assert_eq!(own(&replay, "retention.ms"), None);
        assert_eq!(own(&replay, "segment.bytes"), Some("2000000".to_owned()));
    }
}
