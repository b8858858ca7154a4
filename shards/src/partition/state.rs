//! One partition: its log, how far it is committed, and who waits for that.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::error_code::ErrorCode;
use crate::base::ids::TopicPartition;
use crate::base::time::Mono;
use crate::effect::PartitionCheckpoint;
use crate::log::Log;
use crate::metadata::TopicConfig;
use crate::part::Isolation;

/// How a partition stands.
pub enum State {
    /// Its directory is being made: parts for it park.
    Creating,
    /// Its log is being recovered: NOT_LEADER_OR_FOLLOWER until that is done.
    Opening,
    Online(Box<Log>),
    /// Its log directory can't be trusted any more: KAFKA_STORAGE_ERROR.
    Offline,
}

/// What the metadata image says of a partition, as far as its leader needs it.
#[derive(Clone)]
pub(super) struct Leadership {
    pub(super) leader_epoch: i32,
    pub(super) replicas: u32,
    pub(super) isr: u32,
    pub(super) config: Arc<TopicConfig>,
}

impl Leadership {
    /// kafka.md 3.3 step 1: `min.insync.replicas`, but never more than there are replicas.
    pub(super) fn enough_in_sync(&self) -> bool {
        self.isr >= self.config.min_insync_replicas.min(self.replicas)
    }
}

/// Waits until everything below `end` is committed.
pub(super) struct Waiter {
    pub(super) end: i64,
    pub(super) who: WaitsFor,
}

pub(super) enum WaitsFor {
    /// Entry `index` of the produce request `key`.
    Produce { key: u32, index: u32 },
    /// An append of a coordinator of this shard.
    Internal { ticket: u64, base_offset: i64 },
}

/// Entry `entry` of the watch `key` looks at this partition.
#[derive(Clone, Copy)]
pub(super) struct Watcher {
    pub(super) key: u32,
    pub(super) entry: u32,
}

pub struct Partition {
    pub(super) id: TopicPartition,
    pub(super) leadership: Leadership,
    pub(super) state: State,
    /// Everything below is committed: a consumer may read it. With one replica that is what [`Partition::promised_end`] says.
    pub(super) high_watermark: i64,
    /// (base offset, end) of batches that `flush.messages` wants to see synced before they count, ascending.
    pub(super) to_sync: VecDeque<(i64, i64)>,
    /// By `end`, ascending.
    pub(super) waiters: VecDeque<Waiter>,
    pub(super) watchers: Vec<Watcher>,
    /// Tickets of reads and time searches that the log has not finished.
    pub(super) reads: Vec<u64>,
    /// When the shard's timer queue will look at the log again.
    pub(super) timer: Option<Mono>,
    /// What the engine was last told to write into the checkpoint files.
    pub(super) reported: Option<PartitionCheckpoint>,
}

impl Partition {
    pub(super) fn new(id: TopicPartition, leadership: Leadership, state: State) -> Partition {
        Partition {
            id,
            leadership,
            state,
            high_watermark: 0,
            to_sync: VecDeque::new(),
            waiters: VecDeque::new(),
            watchers: Vec::new(),
            reads: Vec::new(),
            timer: None,
            reported: None,
        }
    }

    pub fn id(&self) -> TopicPartition {
        self.id
    }

    pub fn leader_epoch(&self) -> i32 {
        self.leadership.leader_epoch
    }

    pub fn config(&self) -> &Arc<TopicConfig> {
        &self.leadership.config
    }

    pub fn high_watermark(&self) -> i64 {
        self.high_watermark
    }

    /// The log, or why there is none to serve from.
    pub(super) fn log(&mut self) -> Result<&mut Log, ErrorCode> {
        match &mut self.state {
            State::Online(log) => Ok(log),
            State::Creating | State::Opening => Err(ErrorCode::NOT_LEADER_OR_FOLLOWER),
            State::Offline => Err(ErrorCode::KAFKA_STORAGE_ERROR),
        }
    }

    /// The same for those who only look.
    pub(super) fn peek_log(&self) -> Result<&Log, ErrorCode> {
        match &self.state {
            State::Online(log) => Ok(log),
            State::Creating | State::Opening => Err(ErrorCode::NOT_LEADER_OR_FOLLOWER),
            State::Offline => Err(ErrorCode::KAFKA_STORAGE_ERROR),
        }
    }

    /// The log, while it serves.
    pub fn online(&self) -> Option<&Log> {
        match &self.state {
            State::Online(log) => Some(log),
            State::Creating | State::Opening | State::Offline => None,
        }
    }

    /// F-7: -1 is not checked, a lower epoch than ours is fenced, a higher one not known yet.
    pub(super) fn check_epoch(&self, current_leader_epoch: i32) -> Result<(), ErrorCode> {
        match current_leader_epoch {
            epoch if epoch < 0 || epoch == self.leadership.leader_epoch => Ok(()),
            epoch if epoch < self.leadership.leader_epoch => Err(ErrorCode::FENCED_LEADER_EPOCH),
            _ => Err(ErrorCode::UNKNOWN_LEADER_EPOCH),
        }
    }

    /// Moves the high watermark (never back) to the end of what may be acknowledged: what is written, up to the first batch that has to be synced and
    /// is not. Kafka flushes inside the append that makes `flush.messages` records unflushed, so nothing from there on is answered before. True if it
    /// moved.
    pub(super) fn advance(&mut self) -> bool {
        let Some((written_end, synced_end)) = self
            .online()
            .map(|log| (log.written_end(), log.synced_end()))
        else {
            return false;
        };
        while self
            .to_sync
            .front()
            .is_some_and(|(_, end)| *end <= synced_end)
        {
            self.to_sync.pop_front();
        }
        let promised = self
            .to_sync
            .front()
            .map_or(written_end, |(base, _)| written_end.min(*base));
        let moved = promised > self.high_watermark;
        self.high_watermark = self.high_watermark.max(promised);
        moved
    }

    /// The exclusive end of what a consumer may read (F-2, T-10).
    pub(super) fn bound(&self, log: &Log, isolation: Isolation) -> i64 {
        match isolation {
            Isolation::ReadUncommitted => self.high_watermark,
            Isolation::ReadCommitted => log.last_stable_offset(self.high_watermark),
        }
    }

    /// Adds a waiter. Its end is the highest so far unless it is a duplicate that waits for its original (I-2).
    pub(super) fn wait(&mut self, waiter: Waiter) {
        let place = self
            .waiters
            .iter()
            .rposition(|earlier| earlier.end <= waiter.end)
            .map_or(0, |at| at + 1);
        self.waiters.insert(place, waiter);
    }

    /// The next waiter whose end is committed.
    pub(super) fn next_finished(&mut self) -> Option<Waiter> {
        let first = self.waiters.front()?;
        if first.end <= self.high_watermark {
            self.waiters.pop_front()
        } else {
            None
        }
    }
}
