//! What is asked of the groups of a shard, and what they answer. No RPC type is known here.
//!
//! `home` is the partition of `__consumer_offsets` that coordinates the group; `at` is the place of an entry in its request.

use bytes::Bytes;

use crate::base::error_code::ErrorCode;
use crate::base::ids::{Text, Uuid};
use crate::part::PartitionRef;

#[derive(Debug, Clone)]
pub enum Request {
    Join(Join),
    Sync(Sync),
    Heartbeat(Heartbeat),
    Leave(Leave),
    Commit(Commit),
    FetchOffsets(Vec<FetchOffsets>),
    Describe(Vec<Named>),
    Delete(Vec<Named>),
    DeleteOffsets(DeleteOffsets),
    /// All groups of the shard.
    List(List),
}

/// The answer to the request of the same name.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    Joined(Joined),
    Synced(Synced),
    Heartbeat(ErrorCode),
    Left(Left),
    /// (place, code)
    Committed(Vec<(u32, ErrorCode)>),
    Offsets(Vec<GroupOffsets>),
    Described(Vec<Described>),
    /// (place, code)
    Deleted(Vec<(u32, ErrorCode)>),
    OffsetsDeleted(OffsetsDeleted),
    Listed(Listed),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protocol {
    pub name: Text,
    pub metadata: Bytes,
}

#[derive(Debug, Clone)]
pub struct Join {
    pub home: PartitionRef,
    pub group: Text,
    /// Empty = a new member.
    pub member_id: Text,
    pub instance_id: Option<Text>,
    pub client_id: Text,
    pub client_host: Text,
    pub session_timeout_ms: i32,
    /// Negative = as the session timeout (J-2).
    pub rebalance_timeout_ms: i32,
    pub protocol_type: Text,
    pub protocols: Vec<Protocol>,
    /// A new dynamic member has to come back with the id that it is given (v4+, J-2).
    pub needs_known_id: bool,
    /// Knows SkipAssignment (v9+, J-9).
    pub may_skip_assignment: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Joined {
    pub code: ErrorCode,
    /// -1 on errors.
    pub generation: i32,
    pub protocol_type: Option<Text>,
    pub protocol: Option<Text>,
    pub leader: Text,
    pub skip_assignment: bool,
    pub member_id: Text,
    /// For the leader: everybody.
    pub members: Vec<JoinedMember>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct JoinedMember {
    pub member_id: Text,
    pub instance_id: Option<Text>,
    pub metadata: Bytes,
}

impl Joined {
    pub fn error(code: ErrorCode, member_id: Text) -> Joined {
        Joined {
            code,
            generation: -1,
            protocol_type: None,
            protocol: None,
            leader: Text::empty(),
            skip_assignment: false,
            member_id,
            members: Vec::new(),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Sync {
    pub home: PartitionRef,
    pub group: Text,
    pub generation: i32,
    pub member_id: Text,
    pub instance_id: Option<Text>,
    /// v5+
    pub protocol_type: Option<Text>,
    /// v5+
    pub protocol: Option<Text>,
    /// (member id, assignment); only the leader sends any.
    pub assignments: Vec<(Text, Bytes)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Synced {
    pub code: ErrorCode,
    pub protocol_type: Option<Text>,
    pub protocol: Option<Text>,
    pub assignment: Bytes,
}

impl Synced {
    pub fn error(code: ErrorCode) -> Synced {
        Synced {
            code,
            protocol_type: None,
            protocol: None,
            assignment: Bytes::new(),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Heartbeat {
    pub home: PartitionRef,
    pub group: Text,
    pub generation: i32,
    pub member_id: Text,
    pub instance_id: Option<Text>,
}

#[derive(Debug, Clone)]
pub struct Leave {
    pub home: PartitionRef,
    pub group: Text,
    /// (member id, instance id)
    pub members: Vec<(Text, Option<Text>)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Left {
    pub code: ErrorCode,
    /// In the order of the request.
    pub members: Vec<ErrorCode>,
}

#[derive(Debug, Clone)]
pub struct Commit {
    pub home: PartitionRef,
    pub group: Text,
    /// -1 = not a member's commit.
    pub generation: i32,
    pub member_id: Text,
    pub instance_id: Option<Text>,
    /// How long the offsets are kept whatever the broker's retention is (v2 to v4); -1 = as the broker says.
    pub retention_ms: i64,
    /// What a commit with a generation is told when there is no such group: GROUP_ID_NOT_FOUND from v9 on, before ILLEGAL_GENERATION.
    pub unknown_group: ErrorCode,
    pub entries: Vec<CommitEntry>,
}

#[derive(Debug, Clone)]
pub struct CommitEntry {
    pub at: u32,
    pub topic: Text,
    pub topic_id: Uuid,
    pub partition: i32,
    pub offset: i64,
    /// -1 = not said.
    pub leader_epoch: i32,
    pub metadata: Text,
}

#[derive(Debug, Clone)]
pub struct FetchOffsets {
    pub at: u32,
    pub home: PartitionRef,
    pub group: Text,
    /// (topic, partitions); `None` = all that there are.
    pub topics: Option<Vec<(Text, Vec<i32>)>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct GroupOffsets {
    pub at: u32,
    pub code: ErrorCode,
    /// In the order of the request, all partitions that were asked for.
    pub topics: Vec<(Text, Vec<OffsetOf>)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetOf {
    pub partition: i32,
    /// -1 = none was committed; then the epoch is -1 and the metadata empty.
    pub offset: i64,
    pub leader_epoch: i32,
    pub metadata: Text,
}

#[derive(Debug, Clone)]
pub struct Named {
    pub at: u32,
    pub home: PartitionRef,
    pub group: Text,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Described {
    pub at: u32,
    /// GROUP_ID_NOT_FOUND with the state "Dead" for a group that there is not (J-12).
    pub code: ErrorCode,
    pub state: &'static str,
    pub protocol_type: Text,
    pub protocol: Text,
    pub members: Vec<DescribedMember>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct DescribedMember {
    pub member_id: Text,
    pub instance_id: Option<Text>,
    pub client_id: Text,
    pub client_host: Text,
    /// Empty unless the group is stable, as the next.
    pub metadata: Bytes,
    pub assignment: Bytes,
}

#[derive(Debug, Clone)]
pub struct DeleteOffsets {
    pub home: PartitionRef,
    pub group: Text,
    /// (place, topic, partition)
    pub entries: Vec<(u32, Text, i32)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct OffsetsDeleted {
    pub code: ErrorCode,
    /// (place, code)
    pub entries: Vec<(u32, ErrorCode)>,
}

#[derive(Debug, Clone, Default)]
pub struct List {
    /// Empty = all states; any case.
    pub states: Vec<Text>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// COORDINATOR_LOAD_IN_PROGRESS when a partition of this shard is not loaded yet.
    pub code: ErrorCode,
    pub groups: Vec<ListedGroup>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ListedGroup {
    pub group: Text,
    pub protocol_type: Text,
    pub state: &'static str,
}

impl Request {
    /// The partitions that the request is about, with the image version from which they are here.
    pub fn homes(&self) -> smallvec::SmallVec<[PartitionRef; 4]> {
        match self {
            Request::Join(join) => smallvec::smallvec![join.home],
            Request::Sync(sync) => smallvec::smallvec![sync.home],
            Request::Heartbeat(heartbeat) => smallvec::smallvec![heartbeat.home],
            Request::Leave(leave) => smallvec::smallvec![leave.home],
            Request::Commit(commit) => smallvec::smallvec![commit.home],
            Request::DeleteOffsets(delete) => smallvec::smallvec![delete.home],
            Request::FetchOffsets(asked) => asked.iter().map(|asked| asked.home).collect(),
            Request::Describe(named) | Request::Delete(named) => {
                named.iter().map(|named| named.home).collect()
            }
            Request::List(_) => smallvec::SmallVec::new(),
        }
    }

    /// The answer when the partition gives `code` instead of its service.
    pub fn unserved(&self, code: ErrorCode) -> Reply {
        self.refused(crate::coordinator::failure::code_for_client(code))
    }

    /// `code` for everything that is asked; the request is not looked at any further.
    pub fn refused(&self, code: ErrorCode) -> Reply {
        match self {
            Request::Join(join) => Reply::Joined(Joined::error(code, join.member_id.clone())),
            Request::Sync(_) => Reply::Synced(Synced::error(code)),
            Request::Heartbeat(_) => Reply::Heartbeat(code),
            Request::Leave(leave) => Reply::Left(Left {
                code,
                members: vec![code; leave.members.len()],
            }),
            Request::Commit(commit) => Reply::Committed(
                commit
                    .entries
                    .iter()
                    .map(|entry| (entry.at, code))
                    .collect(),
            ),
            Request::FetchOffsets(asked) => Reply::Offsets(
                asked
                    .iter()
                    .map(|asked| GroupOffsets::error(asked.at, code))
                    .collect(),
            ),
            Request::Describe(named) => Reply::Described(
                named
                    .iter()
                    .map(|named| Described::error(named.at, code))
                    .collect(),
            ),
            Request::Delete(named) => {
                Reply::Deleted(named.iter().map(|named| (named.at, code)).collect())
            }
            Request::DeleteOffsets(_) => Reply::OffsetsDeleted(OffsetsDeleted {
                code,
                entries: Vec::new(),
            }),
            Request::List(_) => Reply::Listed(Listed {
                code,
                groups: Vec::new(),
            }),
        }
    }
}

impl GroupOffsets {
    pub(super) fn error(at: u32, code: ErrorCode) -> GroupOffsets {
        GroupOffsets {
            at,
            code,
            topics: Vec::new(),
        }
    }
}

impl Described {
    pub(super) fn error(at: u32, code: ErrorCode) -> Described {
        Described {
            at,
            code,
            state: if code == ErrorCode::GROUP_ID_NOT_FOUND {
                "Dead"
            } else {
                ""
            },
            protocol_type: Text::empty(),
            protocol: Text::empty(),
            members: Vec::new(),
        }
    }
}
