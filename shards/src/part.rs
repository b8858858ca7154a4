//! What one owner gets of a request, and what it answers. No RPC type is known here: `src/api` translates.
//!
//! `at` is the place of an entry in its request; an answer carries it back so that `join` can put things in request order.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::base::error_code::ErrorCode;
use crate::base::ids::{Text, TopicPartition};
use crate::effect::Chunks;
use crate::{controller, group, partition::fetch_session};

/// Most requests touch one partition per owner: no allocation for these.
pub type Entries<T> = SmallVec<[T; 1]>;

/// A partition, and the image version at which it was created or last changed hands: an owner whose image is older parks the part until it has
/// caught up; any other owner that does not have the partition refuses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionRef {
    pub id: TopicPartition,
    pub since: u64,
}

pub enum Part {
    Produce(Produce),
    FetchPeek(FetchPeek),
    FetchCollect(FetchCollect),
    SessionBegin(Box<fetch_session::Begin>),
    SessionEnd(Box<fetch_session::End>),
    ListOffsets(Box<Vec<ListOffset>>),
    EpochEnd(Box<Vec<EpochEnd>>),
    DeleteRecords(Box<DeleteRecords>),
    DescribeProducers(Box<Vec<(u32, PartitionRef)>>),
    /// Sizes of all partitions of this shard, or of the named ones.
    DescribeLogs(Option<Vec<TopicPartition>>),
    /// The request's answer comes when the group has one: a JoinGroup may wait for minutes.
    Group(Box<group::Request>),
    /// Only shard 0 has a controller.
    Controller(Box<controller::Request>),
}

pub enum Reply {
    Produce(Entries<Produced>),
    FetchPeek(Entries<FetchPeeked>),
    /// A watched partition has more (see [`FetchPeek::watch`]).
    FetchWake(FetchPeeked),
    FetchCollect(Entries<Fetched>),
    SessionBegin(Box<fetch_session::Begun>),
    SessionEnd(Box<fetch_session::Ended>),
    ListOffsets(Vec<ListedOffset>),
    EpochEnd(Vec<EpochEnded>),
    DeleteRecords(Vec<DeletedRecords>),
    DescribeProducers(Vec<DescribedProducers>),
    DescribeLogs(Vec<DescribedLog>),
    Group(Box<group::Reply>),
    Controller(Box<controller::Reply>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acks {
    /// The answer is not sent; the part is answered all the same, so that an error can close the connection (P-1).
    None,
    Leader,
    All,
}

pub struct Produce {
    pub acks: Acks,
    /// How long acks=all may wait, in milliseconds.
    pub timeout_ms: u32,
    /// zstd is allowed (Produce v7 and later, P-2).
    pub zstd: bool,
    pub entries: Entries<ProduceEntry>,
}

pub struct ProduceEntry {
    pub at: u32,
    pub partition: PartitionRef,
    /// The records field as it came; exactly one v2 batch if the client is right.
    pub records: Option<Bytes>,
}

pub struct Produced {
    pub at: u32,
    pub code: ErrorCode,
    /// -1 on errors.
    pub base_offset: i64,
    /// -1 unless the topic uses LogAppendTime.
    pub log_append_time_ms: i64,
    /// -1 on errors.
    pub log_start_offset: i64,
    /// Which records are wrong, and why.
    pub errors: Option<Box<ProduceErrors>>,
}

pub struct ProduceErrors {
    pub message: Option<Text>,
    /// (index in the batch, message)
    pub records: Vec<(i32, Option<Text>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    ReadUncommitted,
    ReadCommitted,
}

/// Round one of a fetch: how much is there?
pub struct FetchPeek {
    pub isolation: Isolation,
    pub entries: Entries<FetchEntry>,
    /// If set, the shard goes on watching after its answer and sends `Reply::FetchWake` to the same `to` each time that one of the partitions
    /// has at least `wake_bytes` more than nothing to offer, or an error. The watch ends with `Event::Cancelled` for the same `to`
    /// (engines send it as soon as the request goes on to its next round or is answered).
    pub watch: bool,
    /// At least 1.
    pub wake_bytes: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchEntry {
    pub at: u32,
    pub partition: PartitionRef,
    pub offset: i64,
    /// -1 = unchecked (F-7).
    pub current_leader_epoch: i32,
    /// -1 = unchecked (F-8).
    pub last_fetched_epoch: i32,
    /// The partition's own limit in the request.
    pub max_bytes: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchPeeked {
    pub at: u32,
    /// Readable bytes from the offset to the bound, at most `max_bytes` (but at least one whole batch counts as available).
    pub available: u32,
    /// Answer without waiting: an error, a diverging epoch, or data in an older segment (F-2).
    pub immediate: bool,
}

/// Round two: hand the data over.
pub struct FetchCollect {
    pub isolation: Isolation,
    pub entries: Entries<FetchGrant>,
}

/// What round one's join allows this partition to send.
pub struct FetchGrant {
    pub entry: FetchEntry,
    /// Bytes of the answer's budget that this partition may use.
    pub bytes: u32,
    /// Send at least one whole batch even if it is larger (F-3).
    pub at_least_one: bool,
}

pub struct Fetched {
    pub at: u32,
    pub code: ErrorCode,
    /// -1 on errors, as the next two.
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    pub log_start_offset: i64,
    /// (epoch, end offset): the client's log diverges here (F-8).
    pub diverging: Option<(i32, i64)>,
    /// (producer id, first offset); None for read_uncommitted (T-8).
    pub aborted: Option<Vec<(i64, i64)>>,
    /// Raw bytes of the log.
    pub records: Chunks,
}

impl Fetched {
    /// The answer for a partition that can't be read.
    pub fn error(at: u32, code: ErrorCode) -> Fetched {
        Fetched {
            at,
            code,
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: -1,
            diverging: None,
            aborted: None,
            records: Chunks::new(),
        }
    }
}

pub struct ListOffset {
    pub at: u32,
    pub partition: PartitionRef,
    pub current_leader_epoch: i32,
    pub isolation: Isolation,
    /// A time in milliseconds, or one of the special values of kafka.md 4.3 (versions are checked by the API).
    pub timestamp: i64,
}

pub struct ListedOffset {
    pub at: u32,
    pub code: ErrorCode,
    pub timestamp: i64,
    pub offset: i64,
    pub leader_epoch: i32,
}

pub struct EpochEnd {
    pub at: u32,
    pub partition: PartitionRef,
    pub current_leader_epoch: i32,
    pub epoch: i32,
}

pub struct EpochEnded {
    pub at: u32,
    pub code: ErrorCode,
    pub epoch: i32,
    pub end_offset: i64,
}

pub struct DeleteRecords {
    /// (place, partition, offset; -1 = high watermark)
    pub entries: Vec<(u32, PartitionRef, i64)>,
}

pub struct DeletedRecords {
    pub at: u32,
    pub code: ErrorCode,
    pub low_watermark: i64,
}

pub struct DescribedProducers {
    pub at: u32,
    pub code: ErrorCode,
    pub producers: Vec<DescribedProducer>,
}

pub struct DescribedProducer {
    pub producer_id: i64,
    pub epoch: i16,
    pub last_sequence: i32,
    pub last_timestamp: i64,
    pub coordinator_epoch: i32,
    /// -1 = no open transaction.
    pub current_txn_start_offset: i64,
}

pub struct DescribedLog {
    pub log: TopicPartition,
    pub size_bytes: u64,
    pub log_end: i64,
    pub log_start: i64,
    pub high_watermark: i64,
    pub segments: u32,
}
