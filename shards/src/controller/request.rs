//! What is asked of the controller, and what it answers. No RPC type is known here.

use crate::base::error_code::ErrorCode;
use crate::base::ids::{Text, Uuid};
use crate::metadata::configs::ResourceKind;

/// One request. It is answered when what it changed is durable and every shard has applied it, or with REQUEST_TIMED_OUT for each of
/// its entries when that takes longer than `timeout_ms`; the change itself goes on then.
#[derive(Debug, Clone)]
pub struct Request {
    pub timeout_ms: u32,
    pub ask: Ask,
}

#[derive(Debug, Clone)]
pub enum Ask {
    CreateTopics(CreateTopics),
    DeleteTopics(Vec<DeleteTopic>),
    CreatePartitions(CreatePartitions),
    /// Some settings of some resources (D-5).
    IncrementalAlterConfigs(AlterConfigs<ConfigOp>),
    /// All settings of some resources (D-6).
    AlterConfigs(AlterConfigs<Setting>),
    /// One producer id that nobody else has or will have.
    AllocateProducerId,
}

/// The answer to the [`Ask`] of the same name; entries in the order of the request.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    CreateTopics(Vec<Result<CreatedTopic, Refusal>>),
    DeleteTopics(Vec<Result<DeletedTopic, Refusal>>),
    CreatePartitions(Vec<Result<(), Refusal>>),
    AlterConfigs(Vec<Result<(), Refusal>>),
    ProducerId(Result<i64, Refusal>),
}

impl Reply {
    /// The same reply with `code` for every entry that was not refused anyway.
    pub(super) fn instead(self, code: ErrorCode) -> Reply {
        fn all<T>(entries: Vec<Result<T, Refusal>>, code: ErrorCode) -> Vec<Result<T, Refusal>> {
            entries
                .into_iter()
                .map(|entry| entry.and_then(|_| Err(Refusal::plain(code))))
                .collect()
        }
        match self {
            Reply::CreateTopics(entries) => Reply::CreateTopics(all(entries, code)),
            Reply::DeleteTopics(entries) => Reply::DeleteTopics(all(entries, code)),
            Reply::CreatePartitions(entries) => Reply::CreatePartitions(all(entries, code)),
            Reply::AlterConfigs(entries) => Reply::AlterConfigs(all(entries, code)),
            Reply::ProducerId(_) => Reply::ProducerId(Err(Refusal::plain(code))),
        }
    }
}

/// Why an entry was not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub code: ErrorCode,
    pub message: Option<Text>,
}

impl Refusal {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Refusal {
        Refusal {
            code,
            message: Some(Text::from(message.into())),
        }
    }

    pub fn plain(code: ErrorCode) -> Refusal {
        Refusal {
            code,
            message: None,
        }
    }
}

#[derive(Debug, Clone)]
pub struct CreateTopics {
    pub topics: Vec<NewTopic>,
    pub validate_only: bool,
}

#[derive(Debug, Clone, Default)]
pub struct NewTopic {
    pub name: Text,
    /// -1 = the broker's default.
    pub partitions: i32,
    /// -1 = the broker's default.
    pub replication_factor: i16,
    /// (partition, replicas); empty = the controller chooses.
    pub assignments: Vec<(i32, Vec<i32>)>,
    pub settings: Vec<Setting>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    pub name: Text,
    pub value: Option<Text>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedTopic {
    pub id: Uuid,
    pub partitions: i32,
    pub replication_factor: i16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeleteTopic {
    Name(Text),
    Id(Uuid),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedTopic {
    pub name: Text,
    pub id: Uuid,
}

#[derive(Debug, Clone)]
pub struct CreatePartitions {
    pub topics: Vec<MorePartitions>,
    pub validate_only: bool,
}

#[derive(Debug, Clone)]
pub struct MorePartitions {
    pub name: Text,
    /// The new number of all partitions.
    pub count: i32,
    /// Replicas of each new partition; `None` = the controller chooses.
    pub assignments: Option<Vec<Vec<i32>>>,
}

#[derive(Debug, Clone)]
pub struct AlterConfigs<T> {
    pub resources: Vec<AlterResource<T>>,
    pub validate_only: bool,
}

#[derive(Debug, Clone)]
pub struct AlterResource<T> {
    pub kind: ResourceKind,
    pub name: Text,
    pub changes: Vec<T>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigOp {
    pub name: Text,
    pub change: Change,
    pub value: Option<Text>,
    /// For broker properties that are lists: what the list is when no dynamic setting says it. The controller has no table of the
    /// broker's own properties; whoever asks has.
    pub broker_list: Option<Text>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Set,
    Delete,
    Append,
    Subtract,
}
