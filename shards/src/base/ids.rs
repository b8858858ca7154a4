//! Identities. A file is an identity too, never a path: engines know directories, shards know partitions.

pub use corelog_wire::primitives::{Text, Uuid};

/// A shard of this node: the unit of ownership (a core owns it, a lock owns it, or a test owns it).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

/// A partition, by the identity that survives a topic's deletion and re-creation under the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    pub topic_id: Uuid,
    pub partition: i32,
}

/// The topic id of `__cluster_metadata` (`AAAAAAAAAAAAAAAAAAAAAQ`, kraft.md 3.1).
pub const METADATA_TOPIC_ID: Uuid = Uuid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);

/// The log of the metadata topic, which shard 0 owns.
pub const METADATA_LOG: TopicPartition = TopicPartition {
    topic_id: METADATA_TOPIC_ID,
    partition: 0,
};

/// What a file of a log directory holds (kafka.md 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// `<base>.log`
    Log,
    /// `<base>.index`
    OffsetIndex,
    /// `<base>.timeindex`
    TimeIndex,
    /// `<base>.txnindex`
    TxnIndex,
    /// `<offset>.snapshot`: producer state as of that offset, exclusive
    ProducerSnapshot,
    /// `leader-epoch-checkpoint`; the base is 0
    LeaderEpochs,
    /// `partition.metadata`; the base is 0
    PartitionMetadata,
    /// `<end offset>-<epoch>.checkpoint` of the metadata log: a metadata snapshot; the base is its end offset
    MetadataSnapshot { epoch: i32 },
}

/// A file of one partition: its kind and base offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    pub log: TopicPartition,
    pub kind: FileKind,
    pub base: i64,
}

/// The number of an effect that will be reported done. Numbers are given by the shard and never used twice in a run.
/// The slot leads back to the partition that asked, without a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Op {
    /// Index of the owner within its shard ([`Op::CONTROLLER`] for the controller's log).
    pub slot: u32,
    /// Counts up within the slot.
    pub seq: u64,
}

impl Op {
    /// The slot of the controller's metadata log.
    pub const CONTROLLER: u32 = u32::MAX;
    /// The slot of the controller's other files (metadata snapshots).
    pub const CONTROLLER_FILES: u32 = u32::MAX - 1;
}

/// Where the answer to a part goes. Only the engine that made it knows what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplyTo(pub u64);
