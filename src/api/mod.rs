//! Every API is split → decide → join.
//!
//! `split` (pure) decodes a request, resolves names in the metadata image and cuts the request into one [`Part`] per owning shard. Owners decide.
//! `join` (pure; the [`Joins`] of the pending request) puts their replies together into one response. Engines and the simulator only carry.
//! A new API is one file and one line in [`table`].
//!
//! RPC message types stop here: shards know [`Part`] and [`Reply`], engines know bytes.

pub mod context;
pub mod table;

#[cfg(test)]
mod documentation;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub mod alter_configs;
pub mod alter_partition_reassignments;
pub mod alter_replica_log_dirs;
pub mod api_versions;
pub mod create_partitions;
pub mod create_topics;
pub mod delete_groups;
pub mod delete_records;
pub mod delete_topics;
pub mod describe_cluster;
pub mod describe_configs;
pub mod describe_groups;
pub mod describe_log_dirs;
pub mod describe_producers;
pub mod describe_quorum;
pub mod describe_topic_partitions;
pub mod elect_leaders;
pub mod fetch;
pub mod find_coordinator;
pub mod heartbeat;
pub mod incremental_alter_configs;
pub mod init_producer_id;
pub mod join_group;
pub mod leave_group;
pub mod list_config_resources;
pub mod list_groups;
pub mod list_offsets;
pub mod list_partition_reassignments;
pub mod metadata;
pub mod offset_commit;
pub mod offset_delete;
pub mod offset_fetch;
pub mod offset_for_leader_epoch;
pub mod produce;
pub mod sync_group;
pub mod unregister_broker;
pub mod update_features;

mod altering;
mod asked;
mod config_entries;
mod coordinators;
mod internal_topics;
mod resolve;
mod topology;

use bytes::{Bytes, BytesMut};
use corelog_shards::base::ids::ShardId;
use corelog_shards::base::time::Mono;
use corelog_shards::part::{Part, Reply};
use corelog_wire::frame::RequestHeader;
use corelog_wire::primitives::DecodeError;

pub use context::{BrokerView, Context, Directories, DirectoryView};

/// Parts for their owners, in the order in which they were cut. The index of a part counts from 0 over all rounds of one request.
pub type Parts = Vec<(ShardId, Part)>;

/// Where a response goes: the whole frame (size prefix, header, body).
pub struct Answer<'a> {
    /// Append the frame here …
    pub head: &'a mut BytesMut,
    /// … or, for responses that carry record bytes, push the frame here as pieces and leave `head` alone.
    pub chunks: &'a mut Vec<Bytes>,
}

impl Answer<'_> {
    /// Writes one whole response frame; `body` encodes the body in the version of the request.
    pub fn write(&mut self, header: &RequestHeader, body: impl FnOnce(&mut BytesMut)) {
        header.response().put_frame(self.head, body);
    }
}

/// What split made of a request.
pub enum Split {
    /// The response is in the answer.
    Ready,
    /// No response at all (Produce with acks=0 that asked nothing of any shard).
    Silent,
    /// Parts were cut; their replies go to the pending request.
    Wait(Pending),
    /// Close the connection: what Kafka closes on (W-9).
    Close(&'static str),
}

/// What a pending request makes of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// More replies (or the deadline) are to come.
    Wait,
    /// Another round: new parts were pushed. Watches of earlier rounds are cancelled by the engine; a wake-up that was already on its way
    /// may still come and is ignored.
    Again,
    /// The response is in the answer.
    Done,
    /// Finished without a response (acks=0).
    Silent,
    /// Close the connection (acks=0 with an error, P-1).
    Close,
}

/// A request whose parts are out.
pub trait Joins: Send {
    /// The reply to part number `part`.
    fn on_reply(
        &mut self,
        cx: &Context<'_>,
        part: usize,
        reply: Reply,
        parts: &mut Parts,
        answer: &mut Answer<'_>,
    ) -> Step;

    /// When the request stops waiting; asked again after every step.
    fn deadline(&self) -> Option<Mono>;

    /// The deadline has come. What is still watched or waited for is cancelled by the engine after `Done`.
    fn on_deadline(&mut self, cx: &Context<'_>, parts: &mut Parts, answer: &mut Answer<'_>)
    -> Step;

    /// Waits for others now (a long poll, acks=all): holds no more than an entry in the class of parked requests.
    fn parked(&self) -> bool {
        false
    }
}

/// The data path's requests stand here by value, all others behind a box.
pub enum Pending {
    Produce(produce::Pending),
    Fetch(fetch::Pending),
    Other(Box<dyn Joins>),
}

impl Pending {
    pub fn other(joins: impl Joins + 'static) -> Pending {
        Pending::Other(Box::new(joins))
    }
}

impl Joins for Pending {
    fn on_reply(
        &mut self,
        cx: &Context<'_>,
        part: usize,
        reply: Reply,
        parts: &mut Parts,
        answer: &mut Answer<'_>,
    ) -> Step {
        match self {
            Pending::Produce(pending) => pending.on_reply(cx, part, reply, parts, answer),
            Pending::Fetch(pending) => pending.on_reply(cx, part, reply, parts, answer),
            Pending::Other(pending) => pending.on_reply(cx, part, reply, parts, answer),
        }
    }

    fn deadline(&self) -> Option<Mono> {
        match self {
            Pending::Produce(pending) => pending.deadline(),
            Pending::Fetch(pending) => pending.deadline(),
            Pending::Other(pending) => pending.deadline(),
        }
    }

    fn on_deadline(
        &mut self,
        cx: &Context<'_>,
        parts: &mut Parts,
        answer: &mut Answer<'_>,
    ) -> Step {
        match self {
            Pending::Produce(pending) => pending.on_deadline(cx, parts, answer),
            Pending::Fetch(pending) => pending.on_deadline(cx, parts, answer),
            Pending::Other(pending) => pending.on_deadline(cx, parts, answer),
        }
    }

    fn parked(&self) -> bool {
        match self {
            Pending::Produce(pending) => pending.parked(),
            Pending::Fetch(pending) => pending.parked(),
            Pending::Other(pending) => pending.parked(),
        }
    }
}

/// The signature of every API's `split`.
pub type SplitFn = fn(
    cx: &Context<'_>,
    header: &RequestHeader,
    body: Bytes,
    parts: &mut Parts,
    answer: &mut Answer<'_>,
) -> Result<Split, DecodeError>;

/// Splits one request frame (without its size prefix). An error or `Split::Close` closes the connection.
pub fn split(
    cx: &Context<'_>,
    frame: Bytes,
    parts: &mut Parts,
    answer: &mut Answer<'_>,
) -> (Option<RequestHeader>, Split) {
    let Ok((header, reader)) = RequestHeader::parse(frame) else {
        return (None, Split::Close("malformed request header"));
    };
    let Some(api) = table::api(header.api_key) else {
        return (Some(header), Split::Close("unknown api key"));
    };
    // ApiVersions answers any version; its file decides.
    let known =
        (api.min..=api.max).contains(&header.api_version) || header.api_key == table::API_VERSIONS;
    if !known {
        return (Some(header), Split::Close("unsupported version"));
    }
    let split = match (api.split)(cx, &header, reader.rest(), parts, answer) {
        Ok(split) => split,
        Err(_) => Split::Close("malformed request body"),
    };
    (Some(header), split)
}
