//! Fetch sessions (KIP-227, kafka.md 4.2). A session belongs to one shard, which its id encodes.
//!
//! A session fetch has two more rounds than a plain one: `Begin` expands the request to the session's full list of partitions, and `End` says which
//! partitions the answer has to include.

use crate::base::error_code::ErrorCode;
use crate::base::ids::{Text, Uuid};

/// How the client names a topic: by name up to Fetch v12, by id from v13.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TopicKey {
    Name(Text),
    Id(Uuid),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionPartition {
    pub topic: TopicKey,
    pub partition: i32,
    pub fetch_offset: i64,
    pub current_leader_epoch: i32,
    pub last_fetched_epoch: i32,
    pub log_start_offset: i64,
    pub max_bytes: u32,
}

/// A fetch request that uses or wants a session.
pub struct Begin {
    pub session_id: i32,
    pub session_epoch: i32,
    pub partitions: Vec<SessionPartition>,
    pub forgotten: Vec<(TopicKey, i32)>,
}

pub struct Begun {
    /// NONE, FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or FETCH_SESSION_TOPIC_ID_ERROR: top level, no partitions.
    pub code: ErrorCode,
    /// 0 = no session could be had: the fetch goes on without.
    pub session_id: i32,
    /// What to fetch, in order; `at` of later parts is the index here.
    pub partitions: Vec<SessionPartition>,
}

/// What a fetch brought, per partition in the order of [`Begun::partitions`].
pub struct End {
    pub session_id: i32,
    pub results: Vec<SessionResult>,
}

pub struct SessionResult {
    pub code: ErrorCode,
    pub high_watermark: i64,
    pub log_start_offset: i64,
    /// Records, a diverging epoch or a preferred replica: must be in the answer whatever else.
    pub has_news: bool,
    pub has_records: bool,
}

pub struct Ended {
    /// Per partition of [`Begun::partitions`]: is it in the answer (S-5)?
    pub include: Vec<bool>,
}
