//! What clients ask and what the broker says, as far as it has to be true.

use std::collections::BTreeMap;

use bytes::Bytes;
use corelog_shards::base::ids::{Text, TopicPartition, Uuid};

/// What kind of topic it is: its name begins with this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Defaults.
    Plain,
    /// `flush.messages=1`: acknowledged means synced.
    Durable,
    /// Short segments, short retention.
    Rolling,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Plain, Kind::Durable, Kind::Rolling];

    pub fn prefix(self) -> &'static str {
        match self {
            Kind::Plain => "plain",
            Kind::Durable => "durable",
            Kind::Rolling => "rolling",
        }
    }

    pub fn of(topic: &str) -> Kind {
        let is = |kind: &Kind| topic.starts_with(kind.prefix());
        Kind::ALL.into_iter().find(is).unwrap_or(Kind::Plain)
    }
}

/// How the broker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    Kill,
    PowerCut,
}

/// A request as its client remembers it.
#[derive(Debug, Clone)]
pub struct Asked {
    pub correlation: i32,
    pub version: i16,
    pub sent_us: u64,
    /// Of what a fetch asks for, when it was sent: a reader may have been ahead of it when it was looked at.
    pub watermarks: BTreeMap<TopicPartition, i64>,
    pub what: What,
}

#[derive(Debug, Clone)]
pub enum What {
    /// (partition, topic, identity of the batch)
    Produce {
        acks: i16,
        batches: Vec<(TopicPartition, String, u64)>,
    },
    /// (partition, topic, offset) of everything that the session or the request asks for.
    Fetch {
        positions: Vec<(TopicPartition, String, i64)>,
    },
    ListOffsets {
        partitions: Vec<(TopicPartition, String)>,
    },
    CreateTopic {
        name: String,
    },
    DeleteTopic {
        name: String,
        id: Uuid,
    },
    DeleteRecords {
        partition: TopicPartition,
        topic: String,
        offset: i64,
    },
    InitProducerId,
    Group(GroupAsk),
}

/// What a member of a group asks; it remembers the rest itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupAsk {
    Find,
    Join,
    Sync,
    Heartbeat,
    Leave,
    Commit,
    Offsets,
    DeleteGroup,
    DeleteOffset,
}

/// The answer, as far as clients need it.
#[derive(Debug, Clone)]
pub enum Said {
    /// (partition, error, base offset)
    Produced(Vec<(TopicPartition, i16, i64)>),
    Fetched {
        error: i16,
        session: i32,
        partitions: Vec<Got>,
    },
    /// (partition, error, offset)
    Offsets(Vec<(TopicPartition, i16, i64)>),
    /// (error, topic id)
    Created(i16, Uuid),
    Deleted(i16),
    /// (error, low watermark)
    DeletedRecords(i16, i64),
    ProducerId(i16, i64, i16),
    Group(GroupSaid),
}

#[derive(Debug, Clone)]
pub enum GroupSaid {
    /// Of the request as a whole.
    Code(i16),
    Joined {
        code: i16,
        generation: i32,
        protocol: Text,
        /// The member is to say who gets what.
        leads: bool,
        member: Text,
        members: Vec<Text>,
    },
    Synced(i16, Bytes),
    Committed(Vec<i16>),
}

#[derive(Debug, Clone)]
pub struct Got {
    pub partition: TopicPartition,
    pub error: i16,
    pub high_watermark: i64,
    pub records: Bytes,
}

#[derive(Debug, Clone)]
pub struct Answered {
    pub asked: Asked,
    pub said: Said,
}
