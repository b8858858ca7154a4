//! Wishes: what a shard asks of its engine.
//!
//! Rules that every engine keeps:
//! - Effects are carried out in the order in which they stand in the outbox as far as the *same file* is concerned; across files any order
//!   is allowed, so a shard that needs an order between files waits for `Done`.
//! - A `Sync` covers only writes that were reported done before it was issued.
//! - Every effect with an `op` is reported by exactly one `Event::Done`, unless the engine is stopping by force.

use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::base::ids::{FileId, Op, ReplyTo, ShardId, Text, TopicPartition};
use crate::metadata::Image;
use crate::part::Reply;

/// Pieces of bytes that belong together, in order.
pub type Chunks = SmallVec<[Bytes; 2]>;

pub enum Effect {
    /// Answer a part.
    Reply { to: ReplyTo, reply: Reply },
    /// A message to another shard of this node (possibly the sender itself: then it arrives as any other message does).
    Send { to: ShardId, message: Message },
    /// Write `chunks` one after the other at `position`. Creates the file if it is not there. Adjacent writes of a turn become one system call.
    Write {
        op: Op,
        file: FileId,
        position: u64,
        chunks: Chunks,
    },
    /// fdatasync; of a file that was made since its directory was synced last, the directory too.
    Sync { op: Op, file: FileId },
    /// Read at most `len` bytes at `position`.
    Read {
        op: Op,
        file: FileId,
        position: u64,
        len: u32,
    },
    /// The whole content of a sealed, small file (an index), mapped or read: a byte area that is valid as long as it is held.
    Map { op: Op, file: FileId },
    /// The file gets no more writes: its length becomes `len` (preallocated space goes; it is made if it is not there), then it may be closed.
    Seal { op: Op, file: FileId, len: u64 },
    /// Cut the file to `len`; it stays the active one.
    Truncate { op: Op, file: FileId, len: u64 },
    /// Replace the whole file atomically: write beside it, fsync, rename, fsync the directory.
    Replace {
        op: Op,
        file: FileId,
        content: Bytes,
    },
    /// Rename the files to `*.deleted` now, unlink them after `file.delete.delay.ms` (L-13). Files that are not there are fine.
    Delete {
        op: Op,
        files: Vec<FileId>,
        delay_ms: u64,
    },
    /// Make the directory `name` with `partition.metadata` and empty first segment files based at 0.
    CreateLog {
        op: Op,
        log: TopicPartition,
        name: Text,
    },
    /// Open and recover an existing directory in the background; the result comes as `Event::Opened`.
    OpenLog { log: TopicPartition, name: Text },
    /// Rename the directory to `*-delete` now, remove it after `delay_ms` (L-30).
    DeleteLog {
        op: Op,
        log: TopicPartition,
        delay_ms: u64,
    },
    /// The metadata image to hand to every shard, front end and tool of this node (controller only).
    Publish(Arc<Image>),
    /// Partitions of this shard whose lines in the checkpoint files of their log directories have changed. The engine keeps the lines of all others as
    /// they are, drops those of deleted logs, and writes the files of each directory.
    Checkpoint(Vec<PartitionCheckpoint>),
    /// The log directory of this partition can't be trusted any more: the engine takes it offline for all shards.
    LogDirFailed { log: TopicPartition },
    /// Everything that a clean stop needs is written and synced.
    Stopped,
}

/// One partition's lines in the checkpoint files (kafka.md 5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionCheckpoint {
    pub log: TopicPartition,
    /// Everything below survives a power cut.
    pub recovery_point: i64,
    pub high_watermark: i64,
    pub log_start_offset: i64,
    /// The first base offset on disk: the log start is recorded only when it is above it.
    pub first_segment_base: i64,
}

/// Shard to shard. A message does not know whether its receiver lives on another core.
pub enum Message {
    /// This shard has applied the image of this version (and everything before).
    Applied { version: u64 },
}

/// Where a shard puts its wishes. Reused from turn to turn, so that a wish costs no allocation.
#[derive(Default)]
pub struct Outbox {
    effects: Vec<Effect>,
}

impl Outbox {
    pub fn new() -> Outbox {
        Outbox::default()
    }

    pub fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub fn reply(&mut self, to: ReplyTo, reply: Reply) {
        self.push(Effect::Reply { to, reply });
    }

    pub fn is_empty(&self) -> bool {
        self.effects.is_empty()
    }

    /// Takes all wishes, in order. What carrying them out brings about goes into the same outbox again.
    pub fn drain(&mut self) -> std::vec::Drain<'_, Effect> {
        self.effects.drain(..)
    }

    /// Swaps the content with an empty vector that the engine keeps for reuse.
    pub fn swap(&mut self, spare: &mut Vec<Effect>) {
        std::mem::swap(&mut self.effects, spare);
    }
}
