//! Facts: what an engine tells a shard. The shard draws the conclusions.

use std::sync::Arc;

use bytes::Bytes;

use crate::base::ids::{Op, ReplyTo, ShardId, TopicPartition};
use crate::effect::Message;
use crate::log::{Log, OpenFailure};
use crate::metadata::Image;
use crate::part::Part;

/// One fact. Delivered to [`crate::shard::Shard::on`], one at a time, in the order in which the engine learnt them.
pub enum Event {
    /// One shard's part of a request. Every part is answered exactly once by an [`crate::effect::Effect::Reply`] to `to`, except that
    /// a fetch watch may be answered several times (see [`crate::part::FetchPeek`]) and a cancelled part not at all.
    Part { to: ReplyTo, part: Part },
    /// Nobody waits for `to` any more (its connection closed, or its request timed out). Ends waits; never undoes an append.
    Cancelled { to: ReplyTo },
    /// The effect with this number has been carried out, or has failed. Completions arrive in any order.
    Done {
        op: Op,
        outcome: Result<Done, DiskFailure>,
    },
    /// A message of another shard of this node.
    Message { from: ShardId, message: Message },
    /// There is a newer metadata image. Versions only grow; one that was skipped is never needed.
    Image(Arc<Image>),
    /// A log that [`crate::effect::Effect::OpenLog`] asked for has been recovered (or can't be).
    Opened {
        log: TopicPartition,
        opened: Result<Box<Log>, OpenFailure>,
    },
    /// The log directory of these partitions is offline, whoever found out (also if this shard said so itself).
    Offline { logs: Vec<TopicPartition> },
    /// The moment named by [`crate::shard::Shard::next_deadline`] has come.
    Tick,
    /// Stop cleanly: finish what is written, then write what a clean start needs and emit
    /// [`crate::effect::Effect::Stopped`]. New appends are refused.
    Stop,
}

/// What came of an effect.
pub enum Done {
    /// Write, Truncate, Delete, Replace, CreateLog, DeleteLog, Seal: carried out. Survives a kill of the process.
    Written,
    /// Sync: what had been written to the file when the effect was issued survives a power cut.
    Synced,
    /// Read or Map: the bytes. Fewer than were asked for mean the end of the file.
    Bytes(Bytes),
}

/// The device said no. What failed is in the engine's log, once; the shard only needs to know that it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskFailure;
