//! Creating and deleting topics, adding partitions (D-1, D-2, D-3).

use std::collections::BTreeMap;

use corelog_wire::records::metadata::{MetadataRecord, RemoveTopicRecord, TopicRecord};

use super::assignment::{check_manual, choose, new_partition};
use super::decision::{Decider, Decision};
use super::request::{
    CreatePartitions, CreateTopics, CreatedTopic, DeleteTopic, DeletedTopic, MorePartitions,
    NewTopic, Refusal, Reply,
};
use super::topic_name;
use crate::base::error_code::ErrorCode;
use crate::base::ids::{Text, Uuid};
use crate::metadata::configs::{Overrides, ResourceKind, check_topic};
use crate::metadata::snapshot::config_record;
use crate::metadata::{Image, Topic};

/// Partitions that one request may create (D-1).
const NEW_PARTITIONS_MAX: u64 = 10_000;
/// The metadata log itself is no topic.
const METADATA_TOPIC: &str = "__cluster_metadata";

impl Decider<'_> {
    pub(super) fn create_topics(&mut self, request: &CreateTopics) -> Decision {
        let wanted = request
            .topics
            .iter()
            .map(|topic| match topic.assignments.len() {
                0 if topic.partitions == -1 => self.settings.num_partitions,
                0 => topic.partitions,
                assigned => i32::try_from(assigned).unwrap_or(i32::MAX),
            });
        if let Err(refusal) = check_total(wanted) {
            let refused = request
                .topics
                .iter()
                .map(|_| Err(refusal.clone()))
                .collect();
            return Decision::refused(Reply::CreateTopics(refused));
        }
        let mut records = Vec::new();
        let mut new_names = BTreeMap::new();
        let times = count(request.topics.iter().map(|topic| &topic.name));
        let entries = request
            .topics
            .iter()
            .map(|topic| match times[&topic.name] {
                1 => self.create_topic(topic, &mut new_names, &mut records),
                _ => Err(duplicate_name()),
            })
            .collect();
        Decision::unless_validated(records, Reply::CreateTopics(entries), request.validate_only)
    }

    /// Adds the records of one topic; none if it is refused.
    fn create_topic(
        &mut self,
        topic: &NewTopic,
        new_names: &mut BTreeMap<String, Text>,
        records: &mut Vec<MetadataRecord>,
    ) -> Result<CreatedTopic, Refusal> {
        self.check_new_name(&topic.name, new_names)?;
        let overrides = settings(topic)?;
        check_topic(&self.image.configs, &overrides)
            .map_err(|invalid| Refusal::new(ErrorCode::INVALID_CONFIG, invalid.to_string()))?;
        let assignments = self.assign(topic)?;
        let replication_factor = assignments.first().map_or(0, Vec::len) as i16;
        let id = self.new_topic_id();
        new_names.insert(topic_name::unified(&topic.name), topic.name.clone());
        records.push(MetadataRecord::Topic(TopicRecord {
            name: topic.name.clone(),
            topic_id: id,
        }));
        records.extend(overrides.into_iter().map(|(name, value)| {
            config_record(ResourceKind::Topic, topic.name.clone(), name, Some(value))
        }));
        let partitions = assignments.iter().zip(0..);
        records.extend(
            partitions
                .map(|(replicas, partition)| new_partition(self.image, id, partition, replicas)),
        );
        Ok(CreatedTopic {
            id,
            partitions: assignments.len() as i32,
            replication_factor,
        })
    }

    fn new_topic_id(&mut self) -> Uuid {
        loop {
            let id = self.random.uuid();
            if self.image.topic_by_id(id).is_none() {
                return id;
            }
        }
    }

    fn check_new_name(
        &self,
        name: &Text,
        new_names: &BTreeMap<String, Text>,
    ) -> Result<(), Refusal> {
        if **name == *METADATA_TOPIC {
            return Err(Refusal::new(
                ErrorCode::INVALID_REQUEST,
                format!("Creation of internal topic {METADATA_TOPIC} is prohibited."),
            ));
        }
        topic_name::check(name)?;
        if self.image.topic(name).is_some() {
            return Err(Refusal::new(
                ErrorCode::TOPIC_ALREADY_EXISTS,
                format!("Topic '{name}' already exists."),
            ));
        }
        if !topic_name::has_collision_chars(name) {
            return Ok(());
        }
        let existing = self
            .image
            .topics()
            .map(|topic| &topic.name)
            .find(|other| topic_name::collide(name, other));
        match existing.or_else(|| new_names.get(&topic_name::unified(name))) {
            Some(other) => Err(Refusal::new(
                ErrorCode::INVALID_TOPIC_EXCEPTION,
                format!("Topic '{name}' collides with existing topic: {other}"),
            )),
            None => Ok(()),
        }
    }

    /// The replicas of every partition, as the client or this controller chose them.
    fn assign(&mut self, topic: &NewTopic) -> Result<Vec<Vec<i32>>, Refusal> {
        if !topic.assignments.is_empty() {
            return self.manual(topic);
        }
        if topic.replication_factor < -1 || topic.replication_factor == 0 {
            return Err(Refusal::new(
                ErrorCode::INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            ));
        }
        if topic.partitions < -1 || topic.partitions == 0 {
            return Err(Refusal::new(
                ErrorCode::INVALID_PARTITIONS,
                "Number of partitions was set to an invalid non-positive value.",
            ));
        }
        let partitions = or_default(topic.partitions, self.settings.num_partitions);
        let replication_factor = or_default(
            topic.replication_factor,
            self.settings.default_replication_factor,
        );
        choose(self.image, self.random, partitions, replication_factor)
    }

    fn manual(&self, topic: &NewTopic) -> Result<Vec<Vec<i32>>, Refusal> {
        let set = match (topic.replication_factor, topic.partitions) {
            (-1, -1) => None,
            (-1, _) => Some("numPartitions"),
            _ => Some("replication factor"),
        };
        if let Some(set) = set {
            return Err(Refusal::new(
                ErrorCode::INVALID_REQUEST,
                format!(
                    "A manual partition assignment was specified, but {set} was not set to -1."
                ),
            ));
        }
        let mut sorted: Vec<&(i32, Vec<i32>)> = topic.assignments.iter().collect();
        sorted.sort_by_key(|(partition, _)| *partition);
        let mut expected = None;
        for (at, (partition, replicas)) in sorted.iter().enumerate() {
            if at > 0 && sorted[at - 1].0 == *partition {
                return Err(Refusal::new(
                    ErrorCode::INVALID_REPLICA_ASSIGNMENT,
                    format!(
                        "Found multiple manual partition assignments for partition {partition}"
                    ),
                ));
            }
            if usize::try_from(*partition) != Ok(at) {
                return Err(Refusal::new(
                    ErrorCode::INVALID_REPLICA_ASSIGNMENT,
                    "partitions should be a consecutive 0-based integer sequence",
                ));
            }
            check_manual(self.image, *partition, replicas, expected)?;
            expected = Some(replicas.len());
        }
        Ok(sorted
            .into_iter()
            .map(|(_, replicas)| replicas.clone())
            .collect())
    }

    pub(super) fn delete_topics(&self, topics: &[DeleteTopic]) -> Decision {
        if !self.settings.delete_topic_enable {
            let disabled = Refusal::new(
                ErrorCode::TOPIC_DELETION_DISABLED,
                "Topic deletion is disabled.",
            );
            let refused = topics.iter().map(|_| Err(disabled.clone())).collect();
            return Decision::refused(Reply::DeleteTopics(refused));
        }
        let found: Vec<Result<DeletedTopic, Refusal>> = topics
            .iter()
            .map(|key| find(self.image, key).map(deleted))
            .collect();
        let times = count(found.iter().flatten().map(|topic| topic.id));
        let entries: Vec<Result<DeletedTopic, Refusal>> = found
            .iter()
            .map(|entry| match entry {
                Ok(topic) if times[&topic.id] > 1 => Err(duplicate_name()),
                entry => entry.clone(),
            })
            .collect();
        let records = entries
            .iter()
            .flatten()
            .map(|topic| MetadataRecord::RemoveTopic(RemoveTopicRecord { topic_id: topic.id }))
            .collect();
        Decision::new(records, Reply::DeleteTopics(entries))
    }

    pub(super) fn create_partitions(&mut self, request: &CreatePartitions) -> Decision {
        let wanted = request.topics.iter().map(|topic| {
            let existing = self
                .image
                .topic(&topic.name)
                .map_or(0, |topic| topic.partitions.len());
            topic.count.saturating_sub(existing as i32)
        });
        if let Err(refusal) = check_total(wanted) {
            let refused = request
                .topics
                .iter()
                .map(|_| Err(refusal.clone()))
                .collect();
            return Decision::refused(Reply::CreatePartitions(refused));
        }
        let mut records = Vec::new();
        let times = count(request.topics.iter().map(|topic| &topic.name));
        let entries = request
            .topics
            .iter()
            .map(|topic| match times[&topic.name] {
                1 => self.add_partitions(topic, &mut records),
                _ => Err(duplicate_name()),
            })
            .collect();
        Decision::unless_validated(
            records,
            Reply::CreatePartitions(entries),
            request.validate_only,
        )
    }

    fn add_partitions(
        &mut self,
        wanted: &MorePartitions,
        records: &mut Vec<MetadataRecord>,
    ) -> Result<(), Refusal> {
        let topic = find(self.image, &DeleteTopic::Name(wanted.name.clone()))?;
        let existing = topic.partitions.len() as i32;
        let additional = wanted.count - existing;
        if additional <= 0 {
            let reason = if additional == 0 {
                format!("Topic already has {existing} partition(s).")
            } else {
                format!(
                    "The topic {} currently has {existing} partition(s); {} would not be an increase.",
                    topic.name, wanted.count
                )
            };
            return Err(Refusal::new(ErrorCode::INVALID_PARTITIONS, reason));
        }
        let replicas = topic
            .partitions
            .first()
            .map_or(1, |first| first.replicas.len());
        let assignments = match &wanted.assignments {
            None => choose(self.image, self.random, additional, replicas as i16)?,
            Some(manual) => {
                check_additional(self.image, manual, additional, existing, replicas)?;
                manual.clone()
            }
        };
        let new = assignments.iter().zip(existing..);
        records.extend(
            new.map(|(replicas, partition)| {
                new_partition(self.image, topic.id, partition, replicas)
            }),
        );
        Ok(())
    }
}

fn check_additional(
    image: &Image,
    manual: &[Vec<i32>],
    additional: i32,
    existing: i32,
    replicas: usize,
) -> Result<(), Refusal> {
    let given = manual.len();
    if usize::try_from(additional) != Ok(given) {
        return Err(Refusal::new(
            ErrorCode::INVALID_REPLICA_ASSIGNMENT,
            format!(
                "Attempted to add {additional} additional partition(s), but only {given} assignment(s) were specified."
            ),
        ));
    }
    for (list, partition) in manual.iter().zip(existing..) {
        check_manual(image, partition, list, Some(replicas))?;
    }
    Ok(())
}

fn find<'a>(image: &'a Image, key: &DeleteTopic) -> Result<&'a Topic, Refusal> {
    match key {
        DeleteTopic::Name(name) => image.topic(name).ok_or_else(|| {
            Refusal::new(
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                "This server does not host this topic-partition.",
            )
        }),
        DeleteTopic::Id(id) => image.topic_by_id(*id).ok_or_else(|| {
            Refusal::new(
                ErrorCode::UNKNOWN_TOPIC_ID,
                "This server does not host this topic ID.",
            )
        }),
    }
    .map(|topic| &**topic)
}

fn deleted(topic: &Topic) -> DeletedTopic {
    DeletedTopic {
        name: topic.name.clone(),
        id: topic.id,
    }
}

/// How often each of them occurs.
fn count<T: Ord>(items: impl Iterator<Item = T>) -> BTreeMap<T, usize> {
    let mut times = BTreeMap::new();
    for item in items {
        *times.entry(item).or_default() += 1;
    }
    times
}

fn duplicate_name() -> Refusal {
    Refusal::new(ErrorCode::INVALID_REQUEST, "Duplicate topic name.")
}

/// The settings that a new topic is given. Without a value there is nothing to set (D-5).
fn settings(topic: &NewTopic) -> Result<Overrides, Refusal> {
    let without_value: Vec<&str> = topic
        .settings
        .iter()
        .filter(|setting| setting.value.is_none())
        .map(|setting| &*setting.name)
        .collect();
    if !without_value.is_empty() {
        return Err(Refusal::new(
            ErrorCode::INVALID_CONFIG,
            format!(
                "Null value not supported for topic configs: {}",
                without_value.join(",")
            ),
        ));
    }
    Ok(topic
        .settings
        .iter()
        .filter_map(|setting| Some((setting.name.clone(), setting.value.clone()?)))
        .collect())
}

fn check_total(wanted: impl Iterator<Item = i32>) -> Result<(), Refusal> {
    let total: u64 = wanted.map(|count| count.max(0) as u64).sum();
    if total > NEW_PARTITIONS_MAX {
        return Err(Refusal::new(
            ErrorCode::POLICY_VIOLATION,
            "Excessively large number of partitions per request.",
        ));
    }
    Ok(())
}

fn or_default<T: PartialEq + From<i8>>(given: T, default: T) -> T {
    if given == T::from(-1) { default } else { given }
}

#[cfg(test)]
mod tests {
    use super::super::request::{Ask, Setting};
    use super::super::testing::{ask, image_with_broker, settings};
    use super::*;
    use crate::metadata::Replay;

    fn new(name: &'static str, partitions: i32, replication_factor: i16) -> NewTopic {
        NewTopic {
            name: Text::from_static(name),
            partitions,
            replication_factor,
            ..NewTopic::default()
        }
    }

    fn create(replay: &mut Replay, topics: Vec<NewTopic>) -> Vec<Result<CreatedTopic, Refusal>> {
        let request = Ask::CreateTopics(CreateTopics {
            topics,
            validate_only: false,
        });
        match ask(replay, &settings(), &request).reply {
            Reply::CreateTopics(entries) => entries,
            other => panic!("{other:?}"),
        }
    }

    fn code(replay: &mut Replay, topic: NewTopic) -> ErrorCode {
        match &create(replay, vec![topic])[..] {
            [Ok(_)] => ErrorCode::NONE,
            [Err(refusal)] => refusal.code,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn d1_a_topic_is_created_with_the_brokers_defaults() {
        let mut replay = image_with_broker();
        let created = create(&mut replay, vec![new("t", -1, -1)]);
        let created = created[0].as_ref().expect("valid");
        assert_eq!((created.partitions, created.replication_factor), (3, 1));
        let topic = replay
            .working()
            .topic_by_id(created.id)
            .expect("there")
            .clone();
        assert_eq!((&*topic.name, topic.partitions.len()), ("t", 3));
        for meta in &topic.partitions {
            assert_eq!(
                (meta.leader, meta.leader_epoch, &meta.isr[..]),
                (1, 0, &[1][..])
            );
            assert_eq!(meta.directories[..], [Uuid([9; 16])]);
        }
        assert_ne!(topic.partitions[0].owner, topic.partitions[1].owner);
    }

    #[test]
    fn d1_what_cannot_be_created_is_refused_with_kafkas_codes() {
        let mut replay = image_with_broker();
        assert_eq!(code(&mut replay, new("a.b", 1, 1)), ErrorCode::NONE);
        for (topic, expected) in [
            (new("a.b", 1, 1), ErrorCode::TOPIC_ALREADY_EXISTS),
            (new("a_b", 1, 1), ErrorCode::INVALID_TOPIC_EXCEPTION),
            (new("a b", 1, 1), ErrorCode::INVALID_TOPIC_EXCEPTION),
            (new("__cluster_metadata", 1, 1), ErrorCode::INVALID_REQUEST),
            (new("c", 0, 1), ErrorCode::INVALID_PARTITIONS),
            (new("c", -2, 1), ErrorCode::INVALID_PARTITIONS),
            (new("c", 1, 0), ErrorCode::INVALID_REPLICATION_FACTOR),
            (new("c", 1, 2), ErrorCode::INVALID_REPLICATION_FACTOR),
            (new("c", 10_001, 1), ErrorCode::POLICY_VIOLATION),
        ] {
            assert_eq!(code(&mut replay, topic.clone()), expected, "{topic:?}");
        }
        assert_eq!(replay.working().topic_count(), 1);
    }

    #[test]
    fn d1_names_are_compared_within_one_request_too() {
        let mut replay = image_with_broker();
        let topics = vec![
            new("t", 1, 1),
            new("t", 1, 1),
            new("x.y", 1, 1),
            new("x_y", 1, 1),
        ];
        let codes: Vec<ErrorCode> = create(&mut replay, topics)
            .iter()
            .map(|entry| {
                entry
                    .as_ref()
                    .map_or_else(|refusal| refusal.code, |_| ErrorCode::NONE)
            })
            .collect();
        assert_eq!(
            codes,
            [
                ErrorCode::INVALID_REQUEST,
                ErrorCode::INVALID_REQUEST,
                ErrorCode::NONE,
                ErrorCode::INVALID_TOPIC_EXCEPTION
            ]
        );
    }

    #[test]
    fn d1_manual_assignments_are_checked() {
        let manual = |assignments: &[(i32, &[i32])], partitions| NewTopic {
            assignments: assignments
                .iter()
                .map(|(partition, replicas)| (*partition, replicas.to_vec()))
                .collect(),
            ..new("m", partitions, -1)
        };
        for (topic, expected) in [
            (manual(&[(0, &[1])], 1), ErrorCode::INVALID_REQUEST),
            (
                manual(&[(1, &[1])], -1),
                ErrorCode::INVALID_REPLICA_ASSIGNMENT,
            ),
            (
                manual(&[(0, &[1]), (0, &[1])], -1),
                ErrorCode::INVALID_REPLICA_ASSIGNMENT,
            ),
            (
                manual(&[(0, &[])], -1),
                ErrorCode::INVALID_REPLICA_ASSIGNMENT,
            ),
            (
                manual(&[(0, &[7])], -1),
                ErrorCode::INVALID_REPLICA_ASSIGNMENT,
            ),
            (
                manual(&[(0, &[1, 1])], -1),
                ErrorCode::INVALID_REPLICA_ASSIGNMENT,
            ),
            (manual(&[(1, &[1]), (0, &[1])], -1), ErrorCode::NONE),
        ] {
            let mut replay = image_with_broker();
            assert_eq!(code(&mut replay, topic.clone()), expected, "{topic:?}");
        }
    }

    #[test]
    fn d1_settings_are_checked_and_kept() {
        let with = |name: &'static str, value: Option<&'static str>| NewTopic {
            settings: vec![Setting {
                name: Text::from_static(name),
                value: value.map(Text::from_static),
            }],
            ..new("t", 1, 1)
        };
        let mut replay = image_with_broker();
        for bad in [
            with("nonsense", Some("1")),
            with("segment.bytes", Some("1")),
            with("retention.ms", None),
        ] {
            assert_eq!(code(&mut replay, bad), ErrorCode::INVALID_CONFIG);
        }
        assert_eq!(
            code(&mut replay, with("retention.ms", Some("5"))),
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
    }

    #[test]
    fn validate_only_changes_nothing() {
        let mut replay = image_with_broker();
        let request = Ask::CreateTopics(CreateTopics {
            topics: vec![new("t", 1, 1)],
            validate_only: true,
        });
        let decision = ask(&mut replay, &settings(), &request);
        assert!(matches!(&decision.reply, Reply::CreateTopics(entries) if entries[0].is_ok()));
        assert!(decision.records.is_empty());
    }

    #[test]
    fn d2_topics_are_deleted_by_name_or_id() {
        let mut replay = image_with_broker();
        let created = create(&mut replay, vec![new("a", 1, 1), new("b", 1, 1)]);
        let id = created[1].as_ref().expect("valid").id;
        let request = Ask::DeleteTopics(vec![
            DeleteTopic::Name(Text::from_static("a")),
            DeleteTopic::Id(id),
            DeleteTopic::Name(Text::from_static("c")),
            DeleteTopic::Id(Uuid([3; 16])),
        ]);
        let Reply::DeleteTopics(entries) = ask(&mut replay, &settings(), &request).reply else {
            panic!("another reply");
        };
        let codes: Vec<Result<String, ErrorCode>> = entries
            .into_iter()
            .map(|entry| {
                entry
                    .map(|topic| topic.name.to_string())
                    .map_err(|refusal| refusal.code)
            })
            .collect();
        assert_eq!(
            codes,
            [
                Ok("a".to_owned()),
                Ok("b".to_owned()),
                Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
                Err(ErrorCode::UNKNOWN_TOPIC_ID)
            ]
        );
        assert_eq!(replay.working().topic_count(), 0);
        assert!(replay.working().topic_by_id(id).is_none());
    }

    #[test]
    fn d2_deletion_can_be_switched_off() {
        let mut replay = image_with_broker();
        create(&mut replay, vec![new("a", 1, 1)]);
        let mut settings = settings();
        settings.delete_topic_enable = false;
        let request = Ask::DeleteTopics(vec![DeleteTopic::Name(Text::from_static("a"))]);
        let Reply::DeleteTopics(entries) = ask(&mut replay, &settings, &request).reply else {
            panic!("another reply");
        };
        let code = entries[0].as_ref().map_err(|refusal| refusal.code).err();
        assert_eq!(code, Some(ErrorCode::TOPIC_DELETION_DISABLED));
        assert_eq!(replay.working().topic_count(), 1);
    }

    #[test]
    fn d3_partitions_are_only_added() {
        let mut replay = image_with_broker();
        create(&mut replay, vec![new("a", 2, 1)]);
        let mut grow = |count, assignments| {
            let request = Ask::CreatePartitions(CreatePartitions {
                topics: vec![MorePartitions {
                    name: Text::from_static("a"),
                    count,
                    assignments,
                }],
                validate_only: false,
            });
            let Reply::CreatePartitions(entries) = ask(&mut replay, &settings(), &request).reply
            else {
                panic!("another reply");
            };
            let code = entries[0]
                .as_ref()
                .map_or_else(|refusal| refusal.code, |()| ErrorCode::NONE);
            (
                code,
                replay.working().topic("a").expect("there").partitions.len(),
            )
        };
        assert_eq!(grow(2, None), (ErrorCode::INVALID_PARTITIONS, 2));
        assert_eq!(grow(1, None), (ErrorCode::INVALID_PARTITIONS, 2));
        assert_eq!(
            grow(4, Some(vec![vec![1]])),
            (ErrorCode::INVALID_REPLICA_ASSIGNMENT, 2)
        );
        assert_eq!(grow(3, Some(vec![vec![1]])), (ErrorCode::NONE, 3));
        assert_eq!(grow(5, None), (ErrorCode::NONE, 5));
    }
}
