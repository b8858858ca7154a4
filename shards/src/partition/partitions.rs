//! All partitions of a shard: they come and go with the metadata image, their effects finish here, their timers are kept here.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::fetch::Collects;
use super::internal::InternalDone;
use super::lookups::Lists;
use super::produce::Produces;
use super::state::{Leadership, Partition, State, WaitsFor};
use super::ticket::Ticket;
use super::watch::Watches;
use crate::base::error_code::ErrorCode;
use crate::base::ids::{Op, ReplyTo, ShardId, Text, TopicPartition};
use crate::base::time::{Mono, Now};
use crate::effect::{Effect, Outbox};
use crate::event::{DiskFailure, Done};
use crate::log::{Finished, Log, OpenFailure, ReadFailed, TailCache};
use crate::metadata::{Image, Topic};

/// Kafka has 5 s for high watermarks and 60 s for recovery points (L-5). Sooner here, because what lies above the recovery point has to be
/// scanned after a crash; less would only repeat the same lines.
const CHECKPOINT_INTERVAL_MS: u64 = 1_000;

/// Numbers of the effects that a partition itself asks for; its log counts up from 0.
const CREATE: u64 = u64::MAX;
const DELETE: u64 = u64::MAX - 1;

pub struct PartitionsConfig {
    pub shard: ShardId,
    pub node_id: i32,
    /// Budget of the recent batches that stay in memory.
    pub tail_cache_bytes: usize,
    /// Partitions whose directories were there at start: they are opened, all others are created.
    pub existing: FxHashSet<TopicPartition>,
    /// `log.retention.check.interval.ms`
    pub retention_check_interval_ms: u64,
    /// `log.initial.task.delay.ms` (L-5)
    pub initial_task_delay_ms: u64,
}

/// See the module.
pub struct Partitions {
    pub(super) config: PartitionsConfig,
    /// Never shrinks and no slot is used twice, so that a completion that comes late can't reach a stranger.
    pub(super) slots: Vec<Option<Box<Partition>>>,
    pub(super) by_id: FxHashMap<TopicPartition, u32>,
    pub(super) tail: TailCache,
    pub(super) produces: Produces,
    pub(super) collects: Collects,
    pub(super) lists: Lists,
    pub(super) watches: Watches,
    pub(super) internal: Vec<InternalDone>,
    /// When to look at a log again; entries that its partition no longer agrees with are skipped.
    timers: BinaryHeap<Reverse<(Mono, u32)>>,
    retention_at: Option<Mono>,
    /// Something that the checkpoint files say has changed.
    pub(super) checkpoint_at: Option<Mono>,
    came_online: bool,
    stopping: bool,
}

impl Partitions {
    pub fn new(config: PartitionsConfig) -> Partitions {
        Partitions {
            tail: TailCache::new(config.tail_cache_bytes),
            config,
            slots: Vec::new(),
            by_id: FxHashMap::default(),
            produces: Produces::default(),
            collects: Collects::default(),
            lists: Lists::default(),
            watches: Watches::default(),
            internal: Vec::new(),
            timers: BinaryHeap::new(),
            retention_at: None,
            checkpoint_at: None,
            came_online: false,
            stopping: false,
        }
    }

    pub fn get(&self, id: TopicPartition) -> Option<&Partition> {
        self.slots.get(*self.by_id.get(&id)? as usize)?.as_deref()
    }

    /// Its directory is being made: parts for it have to wait.
    pub fn is_creating(&self, id: TopicPartition) -> bool {
        self.get(id)
            .is_some_and(|partition| matches!(partition.state, State::Creating))
    }

    /// Whether a partition has become able to serve since this was last asked.
    pub fn take_came_online(&mut self) -> bool {
        std::mem::take(&mut self.came_online)
    }

    /// Follows the image: `old` is the one that was followed before.
    pub fn on_image(&mut self, now: Now, old: Option<&Image>, new: &Image, out: &mut Outbox) {
        for topic in new.topics() {
            let before = old.and_then(|old| old.topic_by_id(topic.id));
            if before.is_none_or(|before| !Arc::ptr_eq(before, topic)) {
                self.follow_topic(now, topic, out);
            }
        }
        let Some(old) = old else { return };
        for topic in old.topics() {
            if new.topic_by_id(topic.id).is_none() {
                self.delete_topic(topic, out);
            }
        }
    }

    fn follow_topic(&mut self, now: Now, topic: &Topic, out: &mut Outbox) {
        for (number, meta) in (0_i32..).zip(&topic.partitions) {
            if meta.owner != self.config.shard || !meta.replicas.contains(&self.config.node_id) {
                continue;
            }
            let id = TopicPartition {
                topic_id: topic.id,
                partition: number,
            };
            let leadership = Leadership {
                leader_epoch: meta.leader_epoch,
                replicas: meta.replicas.len() as u32,
                isr: meta.isr.len() as u32,
                config: Arc::clone(&topic.config),
            };
            match self.by_id.get(&id) {
                Some(&slot) => self.change(now, slot, leadership, out),
                None => self.add(id, &topic.name, leadership, out),
            }
        }
    }

    fn add(&mut self, id: TopicPartition, topic: &Text, leadership: Leadership, out: &mut Outbox) {
        let slot = self.slots.len() as u32;
        assert!(slot < Op::CONTROLLER_FILES, "a shard has run out of slots");
        let name = Text::from(format!("{}-{}", topic.as_str(), id.partition));
        let exists = self.config.existing.remove(&id);
        let state = if exists {
            out.push(Effect::OpenLog { log: id, name });
            State::Opening
        } else {
            out.push(Effect::CreateLog {
                op: Op { slot, seq: CREATE },
                log: id,
                name,
            });
            State::Creating
        };
        self.slots
            .push(Some(Box::new(Partition::new(id, leadership, state))));
        self.by_id.insert(id, slot);
    }

    fn change(&mut self, now: Now, slot: u32, leadership: Leadership, out: &mut Outbox) {
        let Some(partition) = self.slots[slot as usize].as_deref_mut() else {
            return;
        };
        let new_epoch = leadership.leader_epoch != partition.leadership.leader_epoch;
        partition.leadership = leadership;
        if let State::Online(log) = &mut partition.state {
            log.set_config(Arc::clone(&partition.leadership.config));
            if new_epoch {
                log.begin_epoch(partition.leadership.leader_epoch, out);
            }
        }
        if new_epoch {
            // What waits was promised under an epoch that is over; fetches look again and find the new one.
            self.release(slot, ErrorCode::NOT_LEADER_OR_FOLLOWER, out);
        }
        self.settle(now, slot, out);
    }

    fn delete_topic(&mut self, topic: &Topic, out: &mut Outbox) {
        for number in (0_i32..).take(topic.partitions.len()) {
            let id = TopicPartition {
                topic_id: topic.id,
                partition: number,
            };
            let Some(slot) = self.by_id.remove(&id) else {
                continue;
            };
            self.release(slot, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, out);
            out.push(Effect::DeleteLog {
                op: Op { slot, seq: DELETE },
                log: id,
                delay_ms: topic.config.file_delete_delay_ms,
            });
            self.tail.forget(slot);
            self.slots[slot as usize] = None;
        }
    }

    /// Nothing that waits at this partition will come: everybody is told so.
    fn release(&mut self, slot: u32, code: ErrorCode, out: &mut Outbox) {
        let Some(partition) = self.slots[slot as usize].as_deref_mut() else {
            return;
        };
        for waiter in std::mem::take(&mut partition.waiters) {
            match waiter.who {
                WaitsFor::Produce { key, index } => self.produces.finish(key, index, code, out),
                WaitsFor::Internal { ticket, .. } => self.internal.push(InternalDone::Appended {
                    ticket,
                    result: Err(code),
                }),
            }
        }
        let reads = std::mem::take(&mut partition.reads);
        self.watches.release(&mut partition.watchers, out);
        for ticket in reads {
            self.fail_read(ticket, code, out);
        }
    }

    /// A finished effect.
    pub fn done(&mut self, now: Now, op: Op, outcome: Result<Done, DiskFailure>, out: &mut Outbox) {
        let Some(Some(partition)) = self.slots.get_mut(op.slot as usize) else {
            return; // A partition that has been deleted since.
        };
        match &mut partition.state {
            State::Creating if op.seq == CREATE => match outcome {
                Ok(_) => self.created(now, op.slot, out),
                Err(DiskFailure) => self.fail(op.slot, out),
            },
            State::Online(log) => {
                let progress = log.done(now, op, outcome, &self.tail, out);
                for (ticket, result) in progress.reads {
                    self.finish_read(op.slot, ticket, result, out);
                }
                if progress.failed {
                    self.fail(op.slot, out);
                }
                self.settle(now, op.slot, out);
            }
            State::Creating | State::Opening | State::Offline => {}
        }
    }

    fn finish_read(&mut self, slot: u32, ticket: u64, done: Finished, out: &mut Outbox) {
        if let Some(Some(partition)) = self.slots.get_mut(slot as usize) {
            partition.reads.retain(|open| *open != ticket);
        }
        match done {
            Finished::Read(Ok(records)) => match Ticket::unpack(ticket) {
                Ticket::Collect { key, index } => {
                    self.collects.finish(key, index, Ok(records), out);
                }
                Ticket::Internal(ticket) => self.internal.push(InternalDone::Read {
                    ticket,
                    result: Ok(records),
                }),
                Ticket::List { .. } => {
                    unreachable!("ticket {ticket} searches for a time and got records")
                }
            },
            Finished::Time(Ok(found)) => match Ticket::unpack(ticket) {
                Ticket::List { key, index } => self.lists.finish(key, index, Ok(found), out),
                Ticket::Collect { .. } | Ticket::Internal(_) => {
                    unreachable!("ticket {ticket} reads records and got a time")
                }
            },
            Finished::Read(Err(failed)) | Finished::Time(Err(failed)) => {
                self.fail_read(ticket, code_of(failed), out);
            }
        }
    }

    fn fail_read(&mut self, ticket: u64, code: ErrorCode, out: &mut Outbox) {
        match Ticket::unpack(ticket) {
            Ticket::Collect { key, index } => self.collects.finish(key, index, Err(code), out),
            Ticket::List { key, index } => self.lists.finish(key, index, Err(code), out),
            Ticket::Internal(ticket) => self.internal.push(InternalDone::Read {
                ticket,
                result: Err(code),
            }),
        }
    }

    fn created(&mut self, now: Now, slot: u32, out: &mut Outbox) {
        let Some(partition) = self.slots[slot as usize].as_deref_mut() else {
            return;
        };
        let log = Log::create(
            partition.id,
            slot,
            Arc::clone(&partition.leadership.config),
            now,
        );
        self.online(now, slot, Box::new(log), out);
    }

    /// A log has been recovered, or can't be.
    pub fn opened(
        &mut self,
        now: Now,
        id: TopicPartition,
        opened: Result<Box<Log>, OpenFailure>,
        out: &mut Outbox,
    ) {
        let Some(&slot) = self.by_id.get(&id) else {
            return; // Deleted while it was being recovered.
        };
        match opened {
            Ok(mut log) => {
                let Some(partition) = self.slots[slot as usize].as_deref() else {
                    return;
                };
                log.set_slot(slot, &mut self.tail);
                log.set_config(Arc::clone(&partition.leadership.config));
                self.online(now, slot, log, out);
            }
            Err(failure) => {
                tracing::error!(log = ?id, reason = %failure.reason, "a partition cannot be opened; its log directory goes offline");
                self.fail(slot, out);
            }
        }
    }

    fn online(&mut self, now: Now, slot: u32, mut log: Box<Log>, out: &mut Outbox) {
        let Some(partition) = self.slots[slot as usize].as_deref_mut() else {
            return;
        };
        log.begin_epoch(partition.leadership.leader_epoch, out);
        // The only replica in sync: whatever its log holds is committed (3.3 step 11).
        partition.high_watermark = log.log_end();
        if self.stopping {
            log.stop(now, out);
        }
        partition.state = State::Online(log);
        self.came_online = true;
        self.checkpoint_at
            .get_or_insert(now.mono.after_ms(CHECKPOINT_INTERVAL_MS));
        self.settle(now, slot, out);
    }

    /// The device failed this partition (L-32).
    fn fail(&mut self, slot: u32, out: &mut Outbox) {
        if let Some(id) = self.set_offline(slot, out) {
            out.push(Effect::LogDirFailed { log: id });
        }
    }

    fn set_offline(&mut self, slot: u32, out: &mut Outbox) -> Option<TopicPartition> {
        self.release(slot, ErrorCode::KAFKA_STORAGE_ERROR, out);
        let partition = self.slots[slot as usize].as_deref_mut()?;
        let state = std::mem::replace(&mut partition.state, State::Offline);
        // Parts that wait for its creation are to be refused now.
        self.came_online = true;
        self.tail.forget(slot);
        match state {
            State::Offline => None,
            State::Online(_) | State::Creating | State::Opening => Some(partition.id),
        }
    }

    /// The log directory of these partitions is offline, whoever found out.
    pub fn on_offline(&mut self, logs: &[TopicPartition], out: &mut Outbox) {
        for id in logs {
            if let Some(&slot) = self.by_id.get(id) {
                self.set_offline(slot, out);
            }
        }
    }

    /// Draws the conclusions of whatever was done to a log: commits, answers, wakes, sets the timer.
    pub(super) fn settle(&mut self, now: Now, slot: u32, out: &mut Outbox) {
        let Some(partition) = self.slots[slot as usize].as_deref_mut() else {
            return;
        };
        let moved = partition.advance();
        while let Some(waiter) = partition.next_finished() {
            match waiter.who {
                WaitsFor::Produce { key, index } => {
                    self.produces.finish(key, index, ErrorCode::NONE, out);
                }
                WaitsFor::Internal {
                    ticket,
                    base_offset,
                } => {
                    self.internal.push(InternalDone::Appended {
                        ticket,
                        result: Ok((base_offset, waiter.end)),
                    });
                }
            }
        }
        if moved {
            self.watches.wake(partition, &self.tail, out);
            self.checkpoint_at
                .get_or_insert(now.mono.after_ms(CHECKPOINT_INTERVAL_MS));
        }
        let deadline = partition.online().and_then(Log::next_deadline);
        if let Some(at) = deadline
            && partition.timer.is_none_or(|timer| at < timer)
        {
            partition.timer = Some(at);
            self.timers.push(Reverse((at, slot)));
        }
    }

    /// Nobody waits for `to` any more.
    pub fn cancel(&mut self, to: ReplyTo) {
        if self.watches.cancel(to, &mut self.slots) {
            return;
        }
        self.produces.cancel(to);
        self.collects.cancel(to);
        self.lists.cancel(to);
    }

    pub fn next_deadline(&self) -> Option<Mono> {
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        [
            timer,
            self.produces.next_deadline(),
            // Due at once until the first tick has begun to count.
            Some(self.retention_at.unwrap_or(Mono(0))),
            self.checkpoint_at,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    pub fn tick(&mut self, now: Now, out: &mut Outbox) {
        self.produces.expire(now.mono, out);
        self.tick_logs(now, out);
        self.tick_retention(now, out);
        if self.checkpoint_at.is_some_and(|at| at <= now.mono) {
            self.checkpoint(out);
        }
    }

    fn tick_logs(&mut self, now: Now, out: &mut Outbox) {
        while let Some(&Reverse((at, slot))) = self.timers.peek() {
            if at > now.mono {
                break;
            }
            self.timers.pop();
            let Some(partition) = self.slots[slot as usize].as_deref_mut() else {
                continue;
            };
            if partition.timer != Some(at) {
                continue;
            }
            partition.timer = None;
            if let State::Online(log) = &mut partition.state {
                log.tick(now, out);
            }
            self.settle(now, slot, out);
        }
    }

    fn tick_retention(&mut self, now: Now, out: &mut Outbox) {
        match self.retention_at {
            None => {
                self.retention_at = Some(now.mono.after_ms(self.config.initial_task_delay_ms));
            }
            Some(at) if at <= now.mono => {
                self.retention_at =
                    Some(now.mono.after_ms(self.config.retention_check_interval_ms));
                self.apply_retention(now, out);
            }
            Some(_) => {}
        }
    }

    fn apply_retention(&mut self, now: Now, out: &mut Outbox) {
        for slot in 0..self.slots.len() as u32 {
            let Some(partition) = self.slots[slot as usize].as_deref_mut() else {
                continue;
            };
            let high_watermark = partition.high_watermark;
            if let State::Online(log) = &mut partition.state {
                let log_start = log.log_start();
                log.apply_retention(now, high_watermark, out);
                if log.log_start() != log_start {
                    self.log_start_moved(now, slot, out);
                }
            }
            self.settle(now, slot, out);
        }
    }

    /// Fetches that now stand below the log's start have to be told; the checkpoint file too.
    pub(super) fn log_start_moved(&mut self, now: Now, slot: u32, out: &mut Outbox) {
        let Some(partition) = self.slots[slot as usize].as_deref_mut() else {
            return;
        };
        self.watches.wake(partition, &self.tail, out);
        self.checkpoint_at = Some(now.mono);
    }

    /// Reports the lines that have changed since the last report.
    fn checkpoint(&mut self, out: &mut Outbox) {
        self.checkpoint_at = None;
        let mut lines = Vec::new();
        for partition in self.slots.iter_mut().flatten() {
            let high_watermark = partition.high_watermark;
            let Some(line) = partition.online().map(|log| log.checkpoint(high_watermark)) else {
                continue;
            };
            if partition.reported != Some(line) {
                partition.reported = Some(line);
                lines.push(line);
            }
        }
        if !lines.is_empty() {
            out.push(Effect::Checkpoint(lines));
        }
    }

    /// Begins a clean stop: no more appends, every log writes what a clean start needs.
    pub fn stop(&mut self, now: Now, out: &mut Outbox) {
        self.stopping = true;
        for partition in self.slots.iter_mut().flatten() {
            if let State::Online(log) = &mut partition.state {
                log.stop(now, out);
            }
        }
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Whether the clean stop is complete: nothing is being made or recovered, every log has stopped.
    pub fn is_stopped(&self) -> bool {
        self.stopping
            && self
                .slots
                .iter()
                .flatten()
                .all(|partition| match &partition.state {
                    State::Creating | State::Opening => false,
                    State::Online(log) => log.is_stopped(),
                    State::Offline => true,
                })
    }

    /// The last report of a clean stop.
    pub fn final_checkpoint(&mut self, out: &mut Outbox) {
        self.checkpoint(out);
    }

    /// What coordinators asked for and is finished, in order.
    pub fn take_internal(&mut self) -> Vec<InternalDone> {
        std::mem::take(&mut self.internal)
    }
}

fn code_of(failed: ReadFailed) -> ErrorCode {
    match failed {
        ReadFailed::OutOfRange => ErrorCode::OFFSET_OUT_OF_RANGE,
        ReadFailed::Storage => ErrorCode::KAFKA_STORAGE_ERROR,
    }
}
