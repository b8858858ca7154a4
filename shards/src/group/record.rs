//! A group's records in `__consumer_offsets` (kafka.md 7.2), written and read again.
//!
//! Versions written: OffsetCommitValue 4 (1 with an explicit expiry), GroupMetadataValue 3, what Kafka 4.3 reads and writes.

use bytes::{Bytes, BytesMut};
use corelog_wire::records::offsets::{
    GroupMetadataKey, GroupMetadataValue, GroupMetadataValueMembers, LegacyOffsetCommitValue,
    OffsetCommitKey, OffsetCommitValue, OffsetsKey, OffsetsValue,
};

use super::classic::{Group, State};
use super::member::{Member, Parked, Settings};
use super::offsets::{Change, Committed, Offsets};
use super::request::Protocol;
use crate::base::ids::{Text, Uuid};
use crate::base::time::Mono;
use crate::coordinator::replay::Record;

const OFFSET_VALUE: i16 = 4;
const OFFSET_VALUE_WITH_EXPIRY: i16 = 1;
const GROUP_VALUE: i16 = 3;

/// The record of a change of a group's offsets.
pub(super) fn offset_record(group: &Text, change: &Change) -> Record {
    let key = OffsetsKey::OffsetCommit(OffsetCommitKey {
        group: group.clone(),
        topic: change.topic.clone(),
        partition: change.partition,
    });
    let value = change.to.as_ref().map(|to| {
        let version = if to.expire_ms == -1 {
            OFFSET_VALUE
        } else {
            OFFSET_VALUE_WITH_EXPIRY
        };
        let value = OffsetsValue::OffsetCommit(OffsetCommitValue {
            offset: to.offset,
            leader_epoch: to.leader_epoch,
            metadata: to.metadata.clone(),
            commit_timestamp: to.commit_ms,
            expire_timestamp: to.expire_ms,
            topic_id: to.topic_id,
        });
        encoded(&value, version)
    });
    Record {
        key: encoded_key(&key),
        value,
    }
}

/// The record that deletes a group.
pub(super) fn group_tombstone(group: &Text) -> Record {
    Record {
        key: group_key(group),
        value: None,
    }
}

fn group_key(group: &Text) -> Bytes {
    encoded_key(&OffsetsKey::GroupMetadata(GroupMetadataKey {
        group: group.clone(),
    }))
}

fn encoded_key(key: &OffsetsKey) -> Bytes {
    let mut out = BytesMut::new();
    key.encode(&mut out);
    out.freeze()
}

fn encoded(value: &OffsetsValue, version: i16) -> Bytes {
    let mut out = BytesMut::new();
    value.encode(&mut out, version);
    out.freeze()
}

impl Group {
    /// The group as it is, with the assignments that `assignment` gives.
    pub(super) fn record(&self, assignment: impl Fn(&Member) -> Bytes) -> Record {
        self.record_with(|_, member| assignment(member))
    }

    pub(super) fn record_with(&self, assignment: impl Fn(&Text, &Member) -> Bytes) -> Record {
        let protocol = self.protocol.as_deref().unwrap_or("");
        let members = self
            .members()
            .map(|(id, member)| GroupMetadataValueMembers {
                member_id: id.clone(),
                group_instance_id: member.instance_id.clone(),
                client_id: member.client_id.clone(),
                client_host: member.client_host.clone(),
                rebalance_timeout: member.settings.rebalance_timeout_ms as i32,
                session_timeout: member.settings.session_timeout_ms as i32,
                subscription: member.metadata(protocol),
                assignment: assignment(id, member),
            });
        let value = OffsetsValue::GroupMetadata(GroupMetadataValue {
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            generation: self.generation,
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            current_state_timestamp: self.state_since_ms.unwrap_or(-1),
            members: members.collect(),
        });
        Record {
            key: group_key(&self.id),
            value: Some(encoded(&value, GROUP_VALUE)),
        }
    }

    /// The group of a record, with the offsets that were there before. Sessions begin when the load is finished.
    fn loaded(id: Text, value: GroupMetadataValue, offsets: Offsets) -> Group {
        let mut group = Group::new(id);
        group.offsets = offsets;
        group.is_recorded = true;
        group.generation = value.generation;
        let protocol = value.protocol.as_ref().map(Text::detached);
        for member in value.members {
            let session_timeout_ms = member.session_timeout.max(0).unsigned_abs();
            let settings = Settings {
                rebalance_timeout_ms: u32::try_from(member.rebalance_timeout)
                    .unwrap_or(session_timeout_ms),
                session_timeout_ms,
                protocols: vec![Protocol {
                    name: protocol.clone().unwrap_or_default(),
                    metadata: Bytes::copy_from_slice(&member.subscription),
                }],
            };
            let instance_id = member.group_instance_id.as_ref().map(Text::detached);
            let is_twice = group.member(&member.member_id).is_some()
                || instance_id
                    .as_ref()
                    .is_some_and(|id| group.static_member(id).is_some());
            if is_twice {
                tracing::warn!(group = %group.id, member = %member.member_id, "a group's record names a member twice; the second is passed over");
                continue;
            }
            let loaded = Member {
                instance_id,
                client_id: member.client_id.detached(),
                client_host: member.client_host.detached(),
                settings,
                assignment: Bytes::copy_from_slice(&member.assignment),
                join: Parked::No,
                sync: Parked::No,
                is_new: false,
                session_end: Mono(u64::MAX),
            };
            group.add(member.member_id.detached(), &value.protocol_type, loaded);
        }
        group.state = if group.size() == 0 {
            State::Empty
        } else {
            State::Stable
        };
        group.protocol_type = Some(value.protocol_type.detached()).filter(|kind| !kind.is_empty());
        group.protocol = protocol;
        group.leader = value.leader.as_ref().map(Text::detached);
        group.state_since_ms = Some(value.current_state_timestamp).filter(|ms| *ms != -1);
        group.refresh_subscribed();
        group
    }
}

/// A record of the log, as far as it is understood.
#[derive(Debug)]
pub(super) enum Loaded {
    Offset {
        group: Text,
        change: Change,
    },
    Group {
        group: Text,
        value: Option<Box<GroupMetadataValue>>,
    },
    /// Another type, of another protocol or a newer broker: it stays in the log (G-5).
    Other,
}

/// Reads a record of the log.
pub(super) fn read(record: &Record) -> Loaded {
    let Ok(key) = OffsetsKey::decode(&record.key) else {
        return Loaded::Other;
    };
    let kind = key.key();
    let value = match &record.value {
        None => None,
        Some(bytes) => match OffsetsValue::decode(kind, bytes) {
            Ok(value) => Some(value),
            Err(error) => {
                tracing::warn!(kind, %error, "a record of __consumer_offsets can't be read by this release and is passed over");
                return Loaded::Other;
            }
        },
    };
    match (key, value) {
        (OffsetsKey::OffsetCommit(key), Some(OffsetsValue::OffsetCommit(value))) => {
            offset(key.group, key.topic, key.partition, Some(committed(&value)))
        }
        (OffsetsKey::LegacyOffsetCommit(key), Some(OffsetsValue::LegacyOffsetCommit(value))) => {
            offset(key.group, key.topic, key.partition, Some(legacy(&value)))
        }
        (OffsetsKey::OffsetCommit(key), None) => offset(key.group, key.topic, key.partition, None),
        (OffsetsKey::LegacyOffsetCommit(key), None) => {
            offset(key.group, key.topic, key.partition, None)
        }
        (OffsetsKey::GroupMetadata(key), Some(OffsetsValue::GroupMetadata(value))) => {
            Loaded::Group {
                group: key.group,
                value: Some(Box::new(value)),
            }
        }
        (OffsetsKey::GroupMetadata(key), None) => Loaded::Group {
            group: key.group,
            value: None,
        },
        _ => Loaded::Other,
    }
}

fn offset(group: Text, topic: Text, partition: i32, to: Option<Committed>) -> Loaded {
    Loaded::Offset {
        group,
        change: Change {
            topic,
            partition,
            to,
        },
    }
}

fn committed(value: &OffsetCommitValue) -> Committed {
    Committed {
        offset: value.offset,
        leader_epoch: value.leader_epoch,
        metadata: value.metadata.detached(),
        commit_ms: value.commit_timestamp,
        expire_ms: value.expire_timestamp,
        topic_id: value.topic_id,
    }
}

fn legacy(value: &LegacyOffsetCommitValue) -> Committed {
    Committed {
        offset: value.offset,
        leader_epoch: -1,
        metadata: value.metadata.detached(),
        commit_ms: value.commit_timestamp,
        expire_ms: -1,
        topic_id: Uuid::ZERO,
    }
}

/// Takes a record that was read into the groups of its partition.
pub(super) fn replay(groups: &mut std::collections::BTreeMap<Text, Group>, record: &Record) {
    match read(record) {
        Loaded::Offset { group: id, change } => {
            let group = groups
                .entry(id.detached())
                .or_insert_with_key(|id| Group::new(id.clone()));
            group.offsets.commit(change);
            if group.is_forgettable() {
                groups.remove(&id);
            }
        }
        Loaded::Group { group: id, value } => {
            let id = id.detached();
            let before = groups.remove(&id);
            let offsets = before.map(|group| group.offsets).unwrap_or_default();
            let group = match value {
                Some(value) => Group::loaded(id.clone(), *value, offsets),
                None if offsets.is_empty() => return,
                None => {
                    let mut group = Group::new(id.clone());
                    group.offsets = offsets;
                    group
                }
            };
            groups.insert(id, group);
        }
        Loaded::Other => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(expire_ms: i64) -> Change {
        Change {
            topic: Text::from_static("t"),
            partition: 1,
            to: Some(Committed {
                offset: 7,
                leader_epoch: 2,
                metadata: Text::from_static("m"),
                commit_ms: 3,
                expire_ms,
                topic_id: Uuid([9; 16]),
            }),
        }
    }

    #[test]
    fn an_offset_is_written_as_kafka_4_3_does() {
        let record = offset_record(&Text::from_static("g"), &change(-1));
        let mut value = vec![0, 4, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 2, 2, b'm'];
        value.extend([0, 0, 0, 0, 0, 0, 0, 3]);
        // One tagged field: number 0, of 16 bytes.
        value.extend([1, 0, 16]);
        value.extend([9; 16]);
        assert_eq!(record.value.as_deref(), Some(&value[..]));
    }

    #[test]
    fn an_offset_reads_back_as_it_was_but_one_with_an_expiry_names_no_topic_id() {
        for expire_ms in [-1, 50] {
            let Loaded::Offset { change: read, .. } =
                read(&offset_record(&Text::from_static("g"), &change(expire_ms)))
            else {
                panic!("an offset's record is read as another");
            };
            let mut expected = change(expire_ms);
            if let Some(to) = expected.to.as_mut().filter(|to| to.expire_ms != -1) {
                to.topic_id = Uuid::ZERO;
                to.leader_epoch = -1;
            }
            assert_eq!(read, expected);
        }
    }
}
