//! The shard: everything that one owner owns.
//!
//! An engine makes one with [`Shard::new`], delivers facts with [`Shard::on`], one at a time, carries out what stands in the outbox, and delivers
//! `Event::Tick` when [`Shard::next_deadline`] has come. Before the first image no partition is known and every part for one parks.
//!
//! Not here: bytes, files, other shards. A change of owner while the node runs is not supported: placement is computed at start.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::base::error_code::ErrorCode;
use crate::base::ids::{Op, ReplyTo, ShardId, TopicPartition};
use crate::base::time::{Mono, Now};
use crate::controller::Controller;
use crate::coordinator::Ask;
use crate::effect::{Effect, Message, Outbox};
use crate::event::Event;
use crate::group::Groups;
use crate::metadata::Image;
use crate::part::{Acks, Part, PartitionRef, Reply};
use crate::partition::fetch_session::FetchSessions;
use crate::partition::internal::InternalDone;
use crate::partition::{Partitions, PartitionsConfig, partitions_of, refuse};

/// What a shard is told once.
pub struct ShardConfig {
    pub id: ShardId,
    /// Shards of this node.
    pub shards: u16,
    pub node_id: i32,
    /// Budget of the recent batches that stay in memory.
    pub tail_cache_bytes: usize,
    /// Partitions whose directories were there at start: opened and recovered, not created.
    pub existing: FxHashSet<TopicPartition>,
    /// Parts that may wait for metadata or for a new log; one more is refused with NOT_LEADER_OR_FOLLOWER, which clients try again.
    pub parked_max: usize,
    /// `max.incremental.fetch.session.cache.slots` of the whole node.
    pub fetch_session_slots: usize,
    /// `log.retention.check.interval.ms`
    pub retention_check_interval_ms: u64,
    /// `log.initial.task.delay.ms`
    pub initial_task_delay_ms: u64,
    /// Makes the ids of fetch sessions and group members differ between runs.
    pub seed: u64,
    /// Shard 0 only.
    pub controller: Option<Box<Controller>>,
}

/// See the module. A plain `Send` value.
pub struct Shard {
    id: ShardId,
    image: Option<Arc<Image>>,
    partitions: Partitions,
    sessions: FetchSessions,
    groups: Groups,
    controller: Option<Box<Controller>>,
    /// First in, first out, as far as the same partition is concerned.
    parked: VecDeque<Parked>,
    parked_max: usize,
    stopping: Stopping,
}

struct Parked {
    to: ReplyTo,
    part: Part,
    /// When a produce is answered with REQUEST_TIMED_OUT; the others wait until they are cancelled.
    deadline: Option<Mono>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stopping {
    No,
    /// Logs are writing what a clean start needs.
    Asked,
    Stopped,
}

impl Shard {
    pub fn new(config: ShardConfig) -> Shard {
        let partitions = PartitionsConfig {
            shard: config.id,
            node_id: config.node_id,
            tail_cache_bytes: config.tail_cache_bytes,
            existing: config.existing,
            retention_check_interval_ms: config.retention_check_interval_ms,
            initial_task_delay_ms: config.initial_task_delay_ms,
        };
        Shard {
            id: config.id,
            image: None,
            partitions: Partitions::new(partitions),
            sessions: FetchSessions::new(
                config.id,
                config.shards,
                config.fetch_session_slots,
                config.seed,
            ),
            groups: Groups::new(config.id, config.seed),
            controller: config.controller,
            parked: VecDeque::new(),
            parked_max: config.parked_max,
            stopping: Stopping::No,
        }
    }

    pub fn id(&self) -> ShardId {
        self.id
    }

    /// The partitions, for tests and for what a tool wants to see.
    pub fn partitions(&self) -> &Partitions {
        &self.partitions
    }

    #[cfg(test)]
    pub(crate) fn partitions_mut(&mut self) -> &mut Partitions {
        &mut self.partitions
    }

    /// The groups, for the same.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Takes one fact, adds wishes to `out`. Never waits, never fails.
    pub fn on(&mut self, now: Now, event: Event, out: &mut Outbox) {
        match event {
            Event::Part { to, part } => self.on_part(now, to, part, out),
            Event::Cancelled { to } => {
                // Who asked for no answer may leave at once: what it sent is appended all the same.
                let is_unanswered = |part: &Part| matches!(part, Part::Produce(produce) if produce.acks == Acks::None);
                self.parked
                    .retain(|parked| parked.to != to || is_unanswered(&parked.part));
                self.partitions.cancel(to);
                self.groups.cancel(to);
                if let Some(controller) = &mut self.controller {
                    controller.on_cancelled(to);
                }
            }
            Event::Done { op, outcome } if op.slot >= Op::CONTROLLER_FILES => {
                if let Some(controller) = &mut self.controller {
                    controller.on_done(now, op, outcome, out);
                }
            }
            Event::Done { op, outcome } => self.partitions.done(now, op, outcome, out),
            Event::Message {
                from,
                message: Message::Applied { version },
            } => {
                if let Some(controller) = &mut self.controller {
                    controller.on_applied(now, from, version, out);
                }
            }
            Event::Image(image) => self.on_image(now, image, out),
            Event::Opened { log, opened } => self.partitions.opened(now, log, opened, out),
            Event::Offline { logs } => self.partitions.on_offline(&logs, out),
            Event::Tick => self.on_tick(now, out),
            Event::Stop => self.on_stop(now, out),
        }
        if self.partitions.take_came_online() {
            self.unpark(now, out);
            self.groups.on_online();
        }
        self.serve_coordinators(now, out);
        self.stop_if_ready(out);
    }

    /// Carries out what coordinators ask of partitions, and brings them what is finished, until both are quiet.
    fn serve_coordinators(&mut self, now: Now, out: &mut Outbox) {
        loop {
            let asks = self.groups.take_asks();
            for ask in asks {
                self.carry_out(now, ask, out);
            }
            let finished = self.partitions.take_internal();
            if finished.is_empty() {
                return;
            }
            for done in finished {
                match done {
                    InternalDone::Appended { ticket, result } => {
                        self.groups
                            .on_appended(now, ticket, result.map(|_| ()), out);
                    }
                    InternalDone::Read { ticket, result } => {
                        self.groups.on_read(now, ticket, result, out);
                    }
                }
            }
        }
    }

    fn carry_out(&mut self, now: Now, ask: Ask, out: &mut Outbox) {
        match ask {
            Ask::Append {
                partition,
                batch,
                ticket,
            } => {
                // One that is refused comes back among the finished ones, like any other.
                let _: Result<i64, ErrorCode> = self
                    .partitions
                    .append_internal(now, partition, batch, ticket, out);
            }
            Ask::Read {
                partition,
                offset,
                max_bytes,
                ticket,
            } => {
                self.partitions
                    .read_internal(now, partition, offset, max_bytes, ticket, out);
            }
        }
    }

    /// When `Event::Tick` is due; `None` = nothing waits for time.
    pub fn next_deadline(&self) -> Option<Mono> {
        let parked = self
            .parked
            .iter()
            .filter_map(|parked| parked.deadline)
            .min();
        let controller = self
            .controller
            .as_ref()
            .and_then(|controller| controller.next_deadline());
        let own = [self.partitions.next_deadline(), self.groups.next_deadline()];
        own.into_iter().chain([parked, controller]).flatten().min()
    }

    fn on_part(&mut self, now: Now, to: ReplyTo, part: Part, out: &mut Outbox) {
        if !self.must_park(&part) {
            self.execute(now, to, part, out);
            return;
        }
        if self.parked.len() < self.parked_max {
            let deadline = match &part {
                Part::Produce(produce) => Some(now.mono.after_ms(u64::from(produce.timeout_ms))),
                _ => None,
            };
            self.parked.push_back(Parked { to, part, deadline });
        } else if let Some(reply) = refuse(&part, ErrorCode::NOT_LEADER_OR_FOLLOWER) {
            out.reply(to, reply);
        }
    }

    /// Whether a part waits: for a newer image, for a log that is being made, or behind an earlier one that waits and has a partition in common
    /// (so that a producer's batches stay in order).
    fn must_park(&self, part: &Part) -> bool {
        let partitions = partitions_of(part);
        if partitions.iter().any(|partition| self.is_ahead(*partition)) {
            return true;
        }
        let shares = |earlier: &Parked| {
            partitions_of(&earlier.part)
                .iter()
                .any(|there| partitions.iter().any(|here| here.id == there.id))
        };
        !self.parked.is_empty()
            && matches!(part, Part::Produce(_))
            && self.parked.iter().any(shares)
    }

    fn is_ahead(&self, partition: PartitionRef) -> bool {
        let version = self.image.as_ref().map(|image| image.version);
        version.is_none_or(|version| partition.since > version)
            || self.partitions.is_creating(partition.id)
    }

    /// Tries everything that waits, in order; what still has to wait keeps its place.
    fn unpark(&mut self, now: Now, out: &mut Outbox) {
        let waiting = std::mem::take(&mut self.parked);
        for parked in waiting {
            if self.must_park(&parked.part) {
                self.parked.push_back(parked);
            } else {
                self.execute(now, parked.to, parked.part, out);
            }
        }
    }

    fn execute(&mut self, now: Now, to: ReplyTo, part: Part, out: &mut Outbox) {
        match part {
            Part::Produce(produce) => self.partitions.produce(now, to, produce, out),
            Part::FetchPeek(round) => self.partitions.fetch_peek(now, to, round, out),
            Part::FetchCollect(round) => self.partitions.fetch_collect(now, to, round, out),
            Part::SessionBegin(begin) => {
                let begun = self.sessions.begin(now.mono, *begin);
                out.reply(to, Reply::SessionBegin(Box::new(begun)));
            }
            Part::SessionEnd(end) => {
                out.reply(to, Reply::SessionEnd(Box::new(self.sessions.end(&end))));
            }
            Part::ListOffsets(entries) => self.partitions.list_offsets(now, to, *entries, out),
            Part::EpochEnd(entries) => self.partitions.epoch_ends(to, &entries, out),
            Part::DeleteRecords(request) => self.partitions.delete_records(now, to, *request, out),
            Part::DescribeProducers(entries) => {
                self.partitions.describe_producers(to, &entries, out);
            }
            Part::DescribeLogs(named) => self.partitions.describe_logs(to, named.as_deref(), out),
            Part::Group(request) => self.groups.on_request(now, to, &request, out),
            Part::Controller(request) => match &mut self.controller {
                Some(controller) => controller.on_request(now, to, &request, out),
                None => tracing::error!(
                    shard = self.id.0,
                    "a request for the controller came to a shard that has none"
                ),
            },
        }
    }

    /// Follows a newer image and tells the controller's shard that it has.
    fn on_image(&mut self, now: Now, image: Arc<Image>, out: &mut Outbox) {
        if self
            .image
            .as_ref()
            .is_some_and(|held| held.version >= image.version)
        {
            return;
        }
        let old = self.image.replace(Arc::clone(&image));
        self.partitions.on_image(now, old.as_deref(), &image, out);
        self.groups.on_image(now, old.as_deref(), &image, out);
        self.unpark(now, out);
        out.push(Effect::Send {
            to: ShardId(0),
            message: Message::Applied {
                version: image.version,
            },
        });
    }

    fn on_tick(&mut self, now: Now, out: &mut Outbox) {
        self.parked.retain(|parked| {
            let late = parked.deadline.is_some_and(|deadline| deadline <= now.mono);
            if let (true, Some(reply)) = (late, refuse(&parked.part, ErrorCode::REQUEST_TIMED_OUT))
            {
                out.reply(parked.to, reply);
            }
            !late
        });
        self.partitions.tick(now, out);
        self.groups.tick(now, out);
        if let Some(controller) = &mut self.controller {
            controller.on_tick(now, out);
        }
    }

    fn on_stop(&mut self, now: Now, out: &mut Outbox) {
        if self.stopping != Stopping::No {
            return;
        }
        self.stopping = Stopping::Asked;
        self.groups.stop(out);
        self.partitions.stop(now, out);
        if let Some(controller) = &mut self.controller {
            controller.stop(now, out);
        }
    }

    fn stop_if_ready(&mut self, out: &mut Outbox) {
        let controller_stopped = self
            .controller
            .as_ref()
            .is_none_or(|controller| controller.is_stopped());
        if self.stopping == Stopping::Asked && controller_stopped && self.partitions.is_stopped() {
            self.stopping = Stopping::Stopped;
            self.partitions.final_checkpoint(out);
            out.push(Effect::Stopped);
        }
    }
}
