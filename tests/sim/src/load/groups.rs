//! The language of a group's members: see [`super`].

use bytes::{Bytes, BytesMut};
use corelog_shards::base::ids::{Text, TopicPartition};
use corelog_wire::messages::{
    delete_groups, find_coordinator, heartbeat, join_group, leave_group, offset_commit,
    offset_delete, offset_fetch, sync_group,
};
use corelog_wire::primitives::Reader;

use super::{bad, frame};
use crate::Checked;
use crate::oracle::{GroupAsk, GroupSaid};

/// The versions that one client library speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    pub find: i16,
    pub join: i16,
    pub sync: i16,
    pub heartbeat: i16,
    pub leave: i16,
    pub commit: i16,
    pub fetch: i16,
}

impl Versions {
    /// Before static members and member ids in two steps.
    pub const OLD: Versions = Versions {
        find: 1,
        join: 3,
        sync: 1,
        heartbeat: 1,
        leave: 1,
        commit: 3,
        fetch: 3,
    };
    pub const MIDDLE: Versions = Versions {
        find: 2,
        join: 5,
        sync: 3,
        heartbeat: 3,
        leave: 3,
        commit: 7,
        fetch: 5,
    };
    pub const NEW: Versions = Versions {
        find: 4,
        join: 9,
        sync: 5,
        heartbeat: 4,
        leave: 5,
        commit: 9,
        fetch: 9,
    };

    pub fn know_instances(self) -> bool {
        self.join >= 5
    }
}

/// Who asks.
#[derive(Debug, Clone)]
pub struct Who {
    pub group: Text,
    pub generation: i32,
    pub member: Text,
    pub instance: Option<Text>,
}

/// How a member joins.
#[derive(Debug, Clone)]
pub struct Joining {
    pub session_ms: i32,
    pub rebalance_ms: i32,
    pub protocols: Vec<(Text, Bytes)>,
}

/// The protocol type of all members.
const CONSUMER: &str = "consumer";

pub fn find(correlation: i32, version: i16, group: &Text) -> (i16, Bytes) {
    let request = find_coordinator::Request {
        key: group.clone(),
        key_type: 0,
        coordinator_keys: vec![group.clone()],
    };
    frame(10, version, correlation, |out| request.encode(out, version))
}

pub fn join(correlation: i32, version: i16, who: &Who, joining: &Joining) -> (i16, Bytes) {
    let protocol = |(name, metadata): &(Text, Bytes)| join_group::RequestProtocols {
        name: name.clone(),
        metadata: metadata.clone(),
    };
    let request = join_group::Request {
        group_id: who.group.clone(),
        session_timeout_ms: joining.session_ms,
        rebalance_timeout_ms: joining.rebalance_ms,
        member_id: who.member.clone(),
        group_instance_id: who.instance.clone(),
        protocol_type: Text::from_static(CONSUMER),
        protocols: joining.protocols.iter().map(protocol).collect(),
        ..join_group::Request::default()
    };
    frame(11, version, correlation, |out| request.encode(out, version))
}

pub fn sync(
    correlation: i32,
    version: i16,
    who: &Who,
    protocol: &Text,
    assignments: &[(Text, Bytes)],
) -> (i16, Bytes) {
    let assignment = |(member, assignment): &(Text, Bytes)| sync_group::RequestAssignments {
        member_id: member.clone(),
        assignment: assignment.clone(),
    };
    let request = sync_group::Request {
        group_id: who.group.clone(),
        generation_id: who.generation,
        member_id: who.member.clone(),
        group_instance_id: who.instance.clone(),
        protocol_type: Some(Text::from_static(CONSUMER)),
        protocol_name: Some(protocol.clone()),
        assignments: assignments.iter().map(assignment).collect(),
    };
    frame(14, version, correlation, |out| request.encode(out, version))
}

pub fn heartbeat(correlation: i32, version: i16, who: &Who) -> (i16, Bytes) {
    let request = heartbeat::Request {
        group_id: who.group.clone(),
        generation_id: who.generation,
        member_id: who.member.clone(),
        group_instance_id: who.instance.clone(),
    };
    frame(12, version, correlation, |out| request.encode(out, version))
}

pub fn leave(correlation: i32, version: i16, who: &Who) -> (i16, Bytes) {
    let request = leave_group::Request {
        group_id: who.group.clone(),
        member_id: who.member.clone(),
        members: vec![leave_group::RequestMembers {
            member_id: who.member.clone(),
            group_instance_id: who.instance.clone(),
            reason: None,
        }],
    };
    frame(13, version, correlation, |out| request.encode(out, version))
}

/// (topic, partition, offset); those of one topic stand together.
pub fn commit(
    correlation: i32,
    version: i16,
    who: &Who,
    offsets: &[(String, i32, i64)],
) -> (i16, Bytes) {
    let mut request = offset_commit::Request {
        group_id: who.group.clone(),
        generation_id_or_member_epoch: who.generation,
        member_id: who.member.clone(),
        group_instance_id: who.instance.clone(),
        ..offset_commit::Request::default()
    };
    for (topic, partition, offset) in offsets {
        let entry = offset_commit::RequestTopicsPartitions {
            partition_index: *partition,
            committed_offset: *offset,
            ..offset_commit::RequestTopicsPartitions::default()
        };
        match request.topics.last_mut() {
            Some(last) if *last.name == **topic => last.partitions.push(entry),
            _ => request.topics.push(offset_commit::RequestTopics {
                name: Text::from(topic.clone()),
                partitions: vec![entry],
                ..offset_commit::RequestTopics::default()
            }),
        }
    }
    frame(8, version, correlation, |out| request.encode(out, version))
}

/// Everything that the group has committed.
pub fn fetch(correlation: i32, version: i16, group: &Text) -> (i16, Bytes) {
    let request = offset_fetch::Request {
        group_id: group.clone(),
        topics: None,
        groups: vec![offset_fetch::RequestGroups {
            group_id: group.clone(),
            ..offset_fetch::RequestGroups::default()
        }],
        require_stable: false,
    };
    frame(9, version, correlation, |out| request.encode(out, version))
}

pub fn delete_group(correlation: i32, group: &Text) -> (i16, Bytes) {
    let request = delete_groups::Request {
        groups_names: vec![group.clone()],
    };
    frame(42, 2, correlation, |out| request.encode(out, 2))
}

pub fn delete_offset(
    correlation: i32,
    group: &Text,
    topic: &str,
    partition: TopicPartition,
) -> (i16, Bytes) {
    let request = offset_delete::Request {
        group_id: group.clone(),
        topics: vec![offset_delete::RequestTopics {
            name: Text::from(topic.to_owned()),
            partitions: vec![offset_delete::RequestTopicsPartitions {
                partition_index: partition.partition,
            }],
        }],
    };
    frame(47, 0, correlation, |out| request.encode(out, 0))
}

pub(super) fn key(ask: GroupAsk) -> i16 {
    match ask {
        GroupAsk::Commit => 8,
        GroupAsk::Offsets => 9,
        GroupAsk::Find => 10,
        GroupAsk::Join => 11,
        GroupAsk::Heartbeat => 12,
        GroupAsk::Leave => 13,
        GroupAsk::Sync => 14,
        GroupAsk::DeleteGroup => 42,
        GroupAsk::DeleteOffset => 47,
    }
}

pub(super) fn read(ask: GroupAsk, version: i16, reader: &mut Reader) -> Checked<GroupSaid> {
    Ok(match ask {
        GroupAsk::Find => {
            let response = find_coordinator::Response::decode(reader, version).map_err(bad)?;
            let of_first = response.coordinators.first();
            GroupSaid::Code(of_first.map_or(response.error_code, |first| first.error_code))
        }
        GroupAsk::Join => {
            let response = join_group::Response::decode(reader, version).map_err(bad)?;
            GroupSaid::Joined {
                code: response.error_code,
                generation: response.generation_id,
                protocol: response.protocol_name.unwrap_or_default(),
                leads: response.leader == response.member_id && !response.skip_assignment,
                member: response.member_id,
                members: response
                    .members
                    .into_iter()
                    .map(|member| member.member_id)
                    .collect(),
            }
        }
        GroupAsk::Sync => {
            let response = sync_group::Response::decode(reader, version).map_err(bad)?;
            GroupSaid::Synced(response.error_code, response.assignment)
        }
        GroupAsk::Heartbeat => {
            let response = heartbeat::Response::decode(reader, version).map_err(bad)?;
            GroupSaid::Code(response.error_code)
        }
        GroupAsk::Leave => {
            let response = leave_group::Response::decode(reader, version).map_err(bad)?;
            let of_first = response.members.first().map(|first| first.error_code);
            let code = of_first.filter(|_| response.error_code == 0);
            GroupSaid::Code(code.unwrap_or(response.error_code))
        }
        GroupAsk::Commit => {
            let response = offset_commit::Response::decode(reader, version).map_err(bad)?;
            let all = response.topics.iter().flat_map(|topic| &topic.partitions);
            GroupSaid::Committed(all.map(|partition| partition.error_code).collect())
        }
        GroupAsk::Offsets => {
            let response = offset_fetch::Response::decode(reader, version).map_err(bad)?;
            let of_first = response.groups.first().map(|group| group.error_code);
            GroupSaid::Code(of_first.unwrap_or(response.error_code))
        }
        GroupAsk::DeleteGroup => {
            let response = delete_groups::Response::decode(reader, version).map_err(bad)?;
            let first = response.results.first().ok_or_else(|| bad("no group"))?;
            GroupSaid::Code(first.error_code)
        }
        GroupAsk::DeleteOffset => {
            let response = offset_delete::Response::decode(reader, version).map_err(bad)?;
            GroupSaid::Code(response.error_code)
        }
    })
}

/// A consumer's subscription to one topic (version 0).
pub fn subscription(topic: &str, mood: u8) -> Bytes {
    use bytes::BufMut;
    let mut out = BytesMut::new();
    out.put_i16(0);
    out.put_i32(1);
    out.put_i16(topic.len() as i16);
    out.put_slice(topic.as_bytes());
    out.put_i32(1);
    out.put_u8(mood);
    out.freeze()
}
