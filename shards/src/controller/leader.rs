//! The controller at work: decide, append, sync, publish, answer.
//!
//! Decisions are made on the *working* image, which has everything that was appended. What is shown is the newest image whose records
//! are durable; a request is answered when its records are durable and every shard has applied its image. With one voter nothing that was
//! appended is ever taken back: a failed disk stops the broker.
//!
//! The owner calls [`Controller::on_done`] with every finished effect of the slots [`Op::CONTROLLER`] and [`Op::CONTROLLER_FILES`],
//! [`Controller::on_applied`] for every `Message::Applied` (and when shard 0 itself has applied an image), and
//! [`Controller::on_tick`] at [`Controller::next_deadline`]. Clients are served from the first `Effect::Publish` on.
//!
//! NoOpRecords are not written: they let observers of the log advance, there are none, and each would be an fsync.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use corelog_wire::records::control::ControlRecord;
use corelog_wire::records::data::{
    LeaderChangeMessage, LeaderChangeMessageGrantingVoters, LeaderChangeMessageVoters,
};
use corelog_wire::records::metadata::{MetadataRecord, ProducerIdsRecord};

use super::batch::{self, Stamp};
use super::decision::{Decider, Decision, decide};
use super::load::{LoadFailure, Loaded};
use super::request::{Ask, Refusal, Reply, Request};
use super::settings::Settings;
use super::snapshot_file::{self, Frame};
use super::snapshots::{SnapshotId, Snapshots};
use super::start;
use crate::base::error_code::ErrorCode;
use crate::base::ids::{METADATA_LOG, Op, ReplyTo, ShardId};
use crate::base::random::Random;
use crate::base::time::{Mono, Now};
use crate::effect::{Effect, Outbox};
use crate::event::{DiskFailure, Done};
use crate::log::{AppendBatch, Log, Origin, TailCache};
use crate::metadata::features::{METADATA_VERSION, METADATA_VERSION_MAX};
use crate::metadata::{Image, Replay, TopicConfig};
use crate::part;
use corelog_wire::batch::BatchHeader;

/// Producer ids that are taken out of the log at a time (kraft.md 6.3).
const PRODUCER_ID_BLOCK: i64 = 1000;
/// Records in one batch, where they need not be in the same one.
const BATCH_RECORDS_MAX: usize = 10_000;

pub struct Controller {
    settings: Settings,
    epoch: i32,
    log: Box<Log>,
    /// The log's batches need not stay in memory: nobody reads them.
    tail: TailCache,
    replay: Replay,
    raft: Vec<ControlRecord>,
    timestamp_ms: i64,
    random: Random,
    producer_ids: Range<i64>,
    /// Images in order, each with the log's end that has to be durable before it may be shown.
    unpublished: VecDeque<(i64, Arc<Image>)>,
    published: Option<Arc<Image>>,
    /// The newest version that each shard has applied.
    applied: Vec<u64>,
    waiting: VecDeque<Waiting>,
    snapshots: Snapshots,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Stopping,
    Failed,
}

/// A reply that is not out yet.
struct Waiting {
    to: ReplyTo,
    reply: Reply,
    /// The log's end that has to be durable.
    end: i64,
    /// The version that every shard has to have applied; 0 = none.
    version: u64,
    deadline: Mono,
}

/// The settings of the metadata log's files: every append is synced, nothing is deleted but below a snapshot.
pub fn log_config() -> TopicConfig {
    TopicConfig {
        flush_messages: 1,
        retention_ms: -1,
        ..TopicConfig::default()
    }
}

impl Controller {
    /// Takes the log over and writes what a new leader writes. `epoch` is the one that quorum-state has been given for this start, `bootstrap`
    /// the content of bootstrap.checkpoint, if there is one.
    pub fn start(
        now: Now,
        settings: Settings,
        epoch: i32,
        log: Box<Log>,
        loaded: Loaded,
        bootstrap: Option<Bytes>,
        out: &mut Outbox,
    ) -> Result<Controller, LoadFailure> {
        let expected = loaded.replay.working().offset + 1;
        if log.log_end() != expected {
            return Err(LoadFailure::Gap {
                expected,
                found: log.log_end(),
            });
        }
        let bootstrap = bootstrap_records(&loaded, bootstrap)?;
        let on_disk = loaded.older.iter().copied().chain(loaded.snapshot);
        let on_disk = on_disk.map(|(end_offset, epoch)| SnapshotId { end_offset, epoch });
        let mut controller = Controller {
            epoch,
            log,
            tail: TailCache::new(0),
            raft: loaded.raft,
            timestamp_ms: loaded.timestamp_ms,
            random: Random::new(settings.seed),
            producer_ids: 0..0,
            unpublished: VecDeque::new(),
            published: None,
            applied: vec![0; usize::from(settings.identity.shards)],
            waiting: VecDeque::new(),
            snapshots: Snapshots::new(
                settings.snapshot_bytes,
                settings.snapshot_interval_ms,
                on_disk.collect(),
            ),
            state: State::Open,
            replay: loaded.replay,
            settings,
        };
        controller.take_over(now, loaded.is_new, bootstrap, out);
        Ok(controller)
    }

    /// kraft.md 9.1 and 9.2.
    fn take_over(
        &mut self,
        now: Now,
        is_new: bool,
        bootstrap: Option<Vec<MetadataRecord>>,
        out: &mut Outbox,
    ) {
        self.replay.begin_version();
        self.append_leader_change(now, out);
        if is_new {
            self.append(now, &start::activation(bootstrap), out);
        } else if self.replay.in_transaction() {
            self.append(now, &[start::abort()], out);
        }
        let incarnation = self.random.uuid();
        let registration =
            start::register_controller(self.replay.working(), &self.settings, incarnation);
        self.append(now, registration.as_slice(), out);
        let incarnation = self.random.uuid();
        let registration = start::register_broker(&self.settings, incarnation, self.log.log_end());
        self.append(now, &registration, out);
        let elections = start::elect(self.replay.working(), &self.settings);
        for piece in elections.chunks(BATCH_RECORDS_MAX) {
            self.append(now, piece, out);
        }
        self.propose();
    }

    fn append_leader_change(&mut self, now: Now, out: &mut Outbox) {
        let voter_id = self.settings.identity.node_id;
        let change = ControlRecord::LeaderChange(LeaderChangeMessage {
            leader_id: voter_id,
            voters: vec![LeaderChangeMessageVoters {
                voter_id,
                ..LeaderChangeMessageVoters::default()
            }],
            granting_voters: vec![LeaderChangeMessageGrantingVoters {
                voter_id,
                ..LeaderChangeMessageGrantingVoters::default()
            }],
        });
        let bytes = batch::of_control(self.stamp(now), &[change]);
        self.replay.skip(self.log.log_end());
        self.append_batch(now, bytes, out);
    }

    /// A request from a connection's shard. Answered once, later.
    pub fn on_request(&mut self, now: Now, to: ReplyTo, request: &Request, out: &mut Outbox) {
        let unavailable = match self.state {
            State::Open => None,
            State::Stopping => Some(ErrorCode::NOT_CONTROLLER),
            State::Failed => Some(ErrorCode::KAFKA_STORAGE_ERROR),
        };
        if let Some(code) = unavailable {
            let decision = self.decide(&request.ask);
            reply(out, to, decision.reply.instead(code));
            return;
        }
        let (reply, version) = match &request.ask {
            Ask::AllocateProducerId => (Reply::ProducerId(self.producer_id(now, out)), 0),
            ask => {
                let decision = self.decide(ask);
                let version = self.carry_out(now, &decision.records, out);
                (decision.reply, version)
            }
        };
        // What was refused may have been refused because of something that is not durable yet.
        self.waiting.push_back(Waiting {
            to,
            reply,
            end: self.log.log_end(),
            version,
            deadline: now.mono.after_ms(u64::from(request.timeout_ms)),
        });
        self.settle(now, out);
    }

    /// Nobody waits for the answer any more; what was begun goes on.
    pub fn on_cancelled(&mut self, to: ReplyTo) {
        self.waiting.retain(|waiting| waiting.to != to);
    }

    fn decide(&mut self, ask: &Ask) -> Decision {
        let mut decider = Decider {
            image: self.replay.working(),
            settings: &self.settings,
            random: &mut self.random,
        };
        let refused = || Reply::ProducerId(Err(Refusal::plain(ErrorCode::UNKNOWN_SERVER_ERROR)));
        decide(&mut decider, ask).unwrap_or_else(|| Decision::refused(refused()))
    }

    /// The version under which the records will be shown; 0 if there are none.
    fn carry_out(&mut self, now: Now, records: &[MetadataRecord], out: &mut Outbox) -> u64 {
        if records.is_empty() {
            return 0;
        }
        self.replay.begin_version();
        self.append(now, records, out);
        self.propose();
        self.replay.working().version
    }

    /// The next id of the block, or the first one of a new block.
    fn producer_id(&mut self, now: Now, out: &mut Outbox) -> Result<i64, Refusal> {
        if let Some(id) = self.producer_ids.next() {
            return Ok(id);
        }
        let first = self.replay.working().next_producer_id;
        let end = first
            .checked_add(PRODUCER_ID_BLOCK)
            .ok_or_else(|| Refusal::plain(ErrorCode::UNKNOWN_SERVER_ERROR))?;
        let node_id = self.settings.identity.node_id;
        let broker = self.replay.working().brokers.get(&node_id);
        let record = MetadataRecord::ProducerIds(ProducerIdsRecord {
            broker_id: node_id,
            broker_epoch: broker.map_or(-1, |broker| broker.epoch),
            next_producer_id: end,
        });
        self.append(now, &[record], out);
        self.producer_ids = first + 1..end;
        Ok(first)
    }

    fn stamp(&self, now: Now) -> Stamp {
        Stamp {
            base_offset: self.log.log_end(),
            epoch: self.epoch,
            timestamp_ms: now.wall_ms,
        }
    }

    /// Applies records to the working image and appends them in one batch.
    fn append(&mut self, now: Now, records: &[MetadataRecord], out: &mut Outbox) {
        if records.is_empty() || self.state != State::Open {
            return;
        }
        let stamp = self.stamp(now);
        for (record, offset) in records.iter().zip(stamp.base_offset..) {
            if let Err(error) = self.replay.apply(offset, record) {
                panic!("the controller's own record {record:?} contradicts its image: {error}");
            }
        }
        // A directory of a newer release keeps its level; before activation there is none.
        let level = match self.replay.working().feature(METADATA_VERSION) {
            0 => METADATA_VERSION_MAX,
            level => level,
        };
        let bytes = batch::of_records(stamp, records, level);
        self.append_batch(now, bytes, out);
    }

    fn append_batch(&mut self, now: Now, bytes: Bytes, out: &mut Outbox) {
        let header = BatchHeader::parse(&bytes).expect("the batch was just built");
        let len = bytes.len();
        let batch = AppendBatch {
            bytes,
            header,
            leader_epoch: self.epoch,
            origin: Origin::Controller,
        };
        if self.log.append(now, &batch, &mut self.tail, out).is_err() {
            self.fail(out);
            return;
        }
        self.replay.set_epoch(self.epoch);
        self.timestamp_ms = now.wall_ms;
        self.snapshots.appended(now, len);
    }

    /// The working image may be shown when everything that it has is durable.
    fn propose(&mut self) {
        let image = Arc::new(self.replay.working().clone());
        self.unpublished.push_back((self.log.log_end(), image));
    }

    /// An effect of this controller's log or files is finished.
    pub fn on_done(
        &mut self,
        now: Now,
        op: Op,
        outcome: Result<Done, DiskFailure>,
        out: &mut Outbox,
    ) {
        if op.slot == Op::CONTROLLER {
            let progress = self.log.done(now, op, outcome, &self.tail, out);
            if progress.failed {
                self.fail(out);
            }
        } else if outcome.is_err() {
            self.fail(out);
        } else if let Some(snapshot) = self.snapshots.done(op, out) {
            // What the snapshot holds need not be in the log any more.
            self.log.advance_log_start(snapshot.end_offset, out);
            let durable = self.log.synced_end();
            self.log.apply_retention(now, durable, out);
        }
        self.settle(now, out);
    }

    /// A shard has applied the image of this version, and everything before.
    pub fn on_applied(&mut self, now: Now, from: ShardId, version: u64, out: &mut Outbox) {
        if let Some(applied) = self.applied.get_mut(usize::from(from.0)) {
            *applied = version.max(*applied);
        }
        self.settle(now, out);
    }

    /// Shows and answers what has become durable.
    fn settle(&mut self, now: Now, out: &mut Outbox) {
        if self.state == State::Failed {
            return;
        }
        let durable = self.log.synced_end();
        let mut newest = None;
        while let Some((_, image)) = self.unpublished.pop_front_if(|(end, _)| *end <= durable) {
            newest = Some(image);
        }
        if let Some(image) = newest {
            self.published = Some(image.clone());
            out.push(Effect::Publish(image));
        }
        let applied = self.applied.iter().copied().min().unwrap_or(0);
        let is_ready = |waiting: &Waiting| waiting.end <= durable && waiting.version <= applied;
        self.release(
            |waiting| is_ready(waiting).then_some(waiting.reply.clone()),
            out,
        );
        self.take_snapshot(now, out);
    }

    /// Sends what `answer` gives, in order; the others go on waiting.
    fn release(&mut self, answer: impl Fn(&Waiting) -> Option<Reply>, out: &mut Outbox) {
        self.waiting.retain(|waiting| match answer(waiting) {
            Some(answer) => {
                reply(out, waiting.to, answer);
                false
            }
            None => true,
        });
    }

    fn take_snapshot(&mut self, now: Now, out: &mut Outbox) {
        if self.state != State::Open || !self.snapshots.is_due(now) {
            return;
        }
        let Some(image) = &self.published else {
            return;
        };
        let id = SnapshotId {
            end_offset: image.offset + 1,
            epoch: image.epoch,
        };
        let frame = Frame {
            epoch: image.epoch,
            timestamp_ms: self.timestamp_ms,
            raft: self.raft.clone(),
        };
        let level = image.feature(METADATA_VERSION);
        let content = snapshot_file::write(&frame, &image.records(), level);
        let op = self.snapshots.begin(id);
        out.push(Effect::Replace {
            op,
            file: id.file(),
            content,
        });
    }

    /// When [`Controller::on_tick`] is due.
    pub fn next_deadline(&self) -> Option<Mono> {
        let waiting = self.waiting.iter().map(|waiting| waiting.deadline).min();
        // No snapshot is taken before there is something to show, or while the controller stops: its time would only come again and again.
        let takes_snapshots = self.state == State::Open && self.published.is_some();
        let snapshot = self.snapshots.deadline().filter(|_| takes_snapshots);
        [waiting, snapshot, self.log.next_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    pub fn on_tick(&mut self, now: Now, out: &mut Outbox) {
        self.log.tick(now, out);
        self.release(
            |waiting| {
                let late = waiting.deadline <= now.mono;
                late.then(|| waiting.reply.clone().instead(ErrorCode::REQUEST_TIMED_OUT))
            },
            out,
        );
        self.settle(now, out);
    }

    /// Stops cleanly: takes no more requests, writes what the log needs. Finished when [`Controller::is_stopped`].
    pub fn stop(&mut self, now: Now, out: &mut Outbox) {
        if self.state == State::Open {
            self.state = State::Stopping;
            self.log.stop(now, out);
        }
    }

    pub fn is_stopped(&self) -> bool {
        self.state == State::Failed || (self.state == State::Stopping && self.log.is_stopped())
    }

    /// The metadata log, for its checkpoint and its description.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The newest image that was shown.
    pub fn image(&self) -> Option<&Arc<Image>> {
        self.published.as_ref()
    }

    /// The metadata directory can't be written to: nothing that is decided from here on would last. The broker has to stop.
    fn fail(&mut self, out: &mut Outbox) {
        if self.state == State::Failed {
            return;
        }
        self.state = State::Failed;
        tracing::error!("the metadata log can't be written; the broker has to stop");
        self.release(
            |waiting| {
                Some(
                    waiting
                        .reply
                        .clone()
                        .instead(ErrorCode::KAFKA_STORAGE_ERROR),
                )
            },
            out,
        );
        out.push(Effect::LogDirFailed { log: METADATA_LOG });
    }
}

fn reply(out: &mut Outbox, to: ReplyTo, reply: Reply) {
    out.reply(to, part::Reply::Controller(Box::new(reply)));
}

/// The records that a new log is activated with, if the directory was formatted with any.
fn bootstrap_records(
    loaded: &Loaded,
    checkpoint: Option<Bytes>,
) -> Result<Option<Vec<MetadataRecord>>, LoadFailure> {
    let Some(checkpoint) = checkpoint.filter(|_| loaded.is_new) else {
        return Ok(None);
    };
    let content = snapshot_file::read(checkpoint).map_err(|reason| LoadFailure::Snapshot {
        end_offset: 0,
        reason,
    })?;
    Ok(Some(content.records))
}
