//! The log as a value: what it holds, its ends, and what a finished effect brings about.
//!
//! The owner calls [`Log::done`] with every finished effect whose `op` names this log's slot, and [`Log::tick`] at
//! [`Log::next_deadline`]. A log whose disk failed stays failed: it answers nothing but [`AppendRefused::Offline`] and
//! [`ReadFailed::Storage`], and the owner takes the directory offline.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;

use super::aborted::Aborted;
use super::append::AppendRefused;
use super::ends::Ends;
use super::epochs::{Changed, Epochs};
use super::limits::{CURSORS, FOLLOWED_MS};
use super::producers::Producers;
use super::read::{Cursor, Finished, Job, Mapped};
use super::segment::{Sealed, Segment};
use super::settle::Settling;
use super::tail_cache::TailCache;
use super::{checkpoint_format, settle};
use crate::base::ids::{FileId, FileKind, Op, TopicPartition};
use crate::base::time::{Mono, Now};
use crate::effect::{Chunks, Effect, Outbox, PartitionCheckpoint};
use crate::event::{DiskFailure, Done};
use crate::metadata::TopicConfig;
use crate::part::DescribedProducer;

#[cfg(doc)]
use super::read::ReadFailed;

/// A partition's log. A plain `Send` value.
#[derive(Debug)]
pub struct Log {
    pub(super) id: TopicPartition,
    pub(super) slot: u32,
    pub(super) config: Arc<TopicConfig>,
    pub(super) next_seq: u64,
    pub(super) log_start: i64,
    pub(super) log_end: i64,
    /// Bytes appended since the log was opened.
    pub(super) appended_bytes: u64,
    /// Oldest first.
    pub(super) sealed: Vec<Sealed>,
    pub(super) sealed_bytes: u64,
    pub(super) active: Segment,
    pub(super) ends: Ends,
    pub(super) epochs: Epochs,
    pub(super) producers: Producers,
    pub(super) aborted: Aborted,
    /// Offsets of the producer snapshots on disk or on the way, growing.
    pub(super) snapshots: Vec<i64>,
    pub(super) settling: Settling,
    /// What the effects under way are for, but for writes and syncs of the log itself; numbers grow.
    pub(super) purposes: VecDeque<(u64, Purpose)>,
    pub(super) jobs: Vec<Job>,
    pub(super) cursors: SmallVec<[Cursor; CURSORS]>,
    pub(super) maps: Vec<Mapped>,
    pub(super) state: State,
    pub(super) flush_due: Option<Mono>,
    pub(super) producer_check: Option<Mono>,
    /// Until then new batches are kept in the tail cache.
    pub(super) followed_until: Mono,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Open,
    Stopping,
    Failed,
}

/// What an effect is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The indexes and the snapshot of the segment that was sealed with this base.
    Roll { base: i64 },
    /// A step of moving the recovery point.
    Settle,
    /// Must succeed, nobody waits for it: epoch checkpoint, deletions.
    Housekeeping,
    /// An entry of the transaction index.
    Aborted,
    /// Bytes of a segment for a reader.
    Read { job: u64 },
    /// A sealed index for a reader.
    Map { job: u64, base: i64, kind: FileKind },
}

/// What a finished effect brought about.
#[derive(Debug, Default)]
pub struct Progress {
    pub written_moved: bool,
    pub synced_moved: bool,
    /// The disk failed: the log's directory can't be trusted any more. Said once.
    pub failed: bool,
    /// Reads and searches that are finished now, by ticket.
    pub reads: SmallVec<[(u64, Finished); 1]>,
}

/// What a log is made of when it is opened: by [`Log::create`], or by recovery.
#[derive(Debug)]
pub(super) struct Parts {
    pub id: TopicPartition,
    pub slot: u32,
    pub config: Arc<TopicConfig>,
    pub log_start: i64,
    pub log_end: i64,
    pub sealed: Vec<Sealed>,
    pub active: Segment,
    pub epochs: Epochs,
    pub producers: Producers,
    pub aborted: Aborted,
    pub snapshots: Vec<i64>,
    pub recovery_point: i64,
}

impl Log {
    /// A new log that begins at offset 0. Nothing is written: `Effect::CreateLog` makes its directory.
    pub fn create(id: TopicPartition, slot: u32, config: Arc<TopicConfig>, now: Now) -> Log {
        Log::from_parts(Parts {
            id,
            slot,
            config,
            log_start: 0,
            log_end: 0,
            sealed: Vec::new(),
            active: Segment::new(0, now.wall_ms),
            epochs: Epochs::default(),
            producers: Producers::default(),
            aborted: Aborted::default(),
            snapshots: Vec::new(),
            recovery_point: 0,
        })
    }

    pub(super) fn from_parts(parts: Parts) -> Log {
        Log {
            ends: Ends::new(parts.log_end, parts.active.base, parts.active.size),
            settling: Settling::new(parts.recovery_point, &parts.active),
            sealed_bytes: parts.sealed.iter().map(|segment| segment.size).sum(),
            id: parts.id,
            slot: parts.slot,
            config: parts.config,
            next_seq: 0,
            log_start: parts.log_start,
            log_end: parts.log_end,
            appended_bytes: 0,
            sealed: parts.sealed,
            active: parts.active,
            epochs: parts.epochs,
            producers: parts.producers,
            aborted: parts.aborted,
            snapshots: parts.snapshots,
            purposes: VecDeque::new(),
            jobs: Vec::new(),
            cursors: SmallVec::new(),
            maps: Vec::new(),
            state: State::Open,
            flush_due: None,
            producer_check: None,
            followed_until: Mono(0),
        }
    }

    /// Somebody fetches: new batches will be read soon.
    pub fn follow(&mut self, now: Now) {
        self.followed_until = now.mono.after_ms(FOLLOWED_MS);
    }

    pub fn id(&self) -> TopicPartition {
        self.id
    }

    pub fn log_start(&self) -> i64 {
        self.log_start
    }

    /// The next offset to be given.
    pub fn log_end(&self) -> i64 {
        self.log_end
    }

    /// Everything below survives a kill of the process.
    pub fn written_end(&self) -> i64 {
        self.ends.written_end()
    }

    /// Everything below survives a power cut.
    pub fn synced_end(&self) -> i64 {
        self.ends.synced_end()
    }

    pub fn size_bytes(&self) -> u64 {
        self.sealed_bytes + self.active.size
    }

    pub fn segment_count(&self) -> u32 {
        self.sealed.len() as u32 + 1
    }

    /// The newest epoch in the log, -1 if there is none.
    pub fn leader_epoch(&self) -> i32 {
        self.epochs.latest().unwrap_or(-1)
    }

    pub fn config(&self) -> &Arc<TopicConfig> {
        &self.config
    }

    pub fn set_config(&mut self, config: Arc<TopicConfig>) {
        self.config = config;
    }

    /// The log got another place in its shard. Only while no effect is under way; the tail cache forgets the old slot.
    pub fn set_slot(&mut self, slot: u32, tail: &mut TailCache) {
        assert!(
            self.ends.is_quiet() && self.purposes.is_empty(),
            "log {:?} gets slot {slot} while effects of slot {} are under way",
            self.id,
            self.slot
        );
        if self.slot != slot {
            tail.forget(self.slot);
            self.slot = slot;
        }
    }

    pub fn is_failed(&self) -> bool {
        self.state == State::Failed
    }

    /// (epoch, end offset) of an epoch, (-1, -1) if that is not known (kafka.md 4.4).
    pub fn epoch_end(&self, epoch: i32) -> (i32, i64) {
        self.epochs.end_of(epoch, self.log_end)
    }

    /// The epoch in which the record at `offset` was written, -1 if that is not known.
    pub fn epoch_of(&self, offset: i64) -> i32 {
        self.epochs.of(offset)
    }

    /// This broker became leader in `epoch`: what comes from here on is that epoch's (L-16).
    pub fn begin_epoch(&mut self, epoch: i32, out: &mut Outbox) {
        let changed = self.epochs.assign(epoch, self.log_end);
        self.write_epochs(changed, out);
    }

    pub(super) fn write_epochs(&mut self, changed: Changed, out: &mut Outbox) {
        if changed == Changed::No || self.state == State::Failed {
            return;
        }
        let content = checkpoint_format::format_epochs(&self.epochs).into();
        let file = self.file(FileKind::LeaderEpochs, 0);
        let op = self.begin(Purpose::Housekeeping);
        out.push(Effect::Replace { op, file, content });
    }

    /// The first offset that a reader of committed records may not see yet; at most `high_watermark` (T-1, T-10).
    pub fn last_stable_offset(&self, high_watermark: i64) -> i64 {
        self.producers.last_stable_offset(high_watermark)
    }

    /// (producer id, first offset) of the aborted transactions that a reader of `from..to` must leave out (T-8).
    pub fn aborted_transactions(&self, from: i64, to: i64) -> Vec<(i64, i64)> {
        self.aborted.within(from, to)
    }

    pub fn producers(&self) -> Vec<DescribedProducer> {
        self.producers.describe()
    }

    /// What the checkpoint files shall say.
    pub fn checkpoint(&self, high_watermark: i64) -> PartitionCheckpoint {
        PartitionCheckpoint {
            log: self.id,
            recovery_point: self.settling.recovery_point(),
            high_watermark,
            log_start_offset: self.log_start,
            first_segment_base: self.first_base(),
        }
    }

    pub(super) fn first_base(&self) -> i64 {
        self.sealed
            .first()
            .map_or(self.active.base, |segment| segment.base)
    }

    /// When [`Log::tick`] is due.
    pub fn next_deadline(&self) -> Option<Mono> {
        if self.state != State::Open {
            return None;
        }
        [self.flush_due, self.settling.due(), self.producer_check]
            .into_iter()
            .flatten()
            .min()
    }

    /// Does what is due: `flush.ms`, moving the recovery point, forgetting idle producers.
    pub fn tick(&mut self, now: Now, out: &mut Outbox) {
        if self.state != State::Open {
            return;
        }
        if self.flush_due.is_some_and(|due| due <= now.mono) {
            self.flush_due = None;
            self.ends.want(self.log_end);
            self.issue_syncs(out);
        }
        if self.producer_check.is_some_and(|due| due <= now.mono) {
            let config = &self.config;
            self.producers
                .expire(now.wall_ms, config.producer_expiration_ms);
            let more = !self.producers.is_empty();
            self.producer_check = more.then(|| now.mono.after_ms(config.producer_check_ms));
        }
        if self.settling.due().is_some_and(|due| due <= now.mono) {
            self.settle(settle::Reach::Background, out);
        }
    }

    /// A finished effect of this log.
    pub fn done(
        &mut self,
        now: Now,
        op: Op,
        outcome: Result<Done, DiskFailure>,
        tail: &TailCache,
        out: &mut Outbox,
    ) -> Progress {
        let mut progress = Progress::default();
        match outcome {
            Ok(done) => self.succeeded(op.seq, done, tail, out, &mut progress),
            Err(DiskFailure) => self.did_not(op.seq, tail, out, &mut progress),
        }
        if !self.is_failed() {
            self.issue_syncs(out);
            self.go_on_settling(now, out);
        }
        progress
    }

    fn succeeded(
        &mut self,
        seq: u64,
        done: Done,
        tail: &TailCache,
        out: &mut Outbox,
        progress: &mut Progress,
    ) {
        if let Some(moved) = self.ends.write_done(seq) {
            progress.written_moved = moved;
        } else if let Some(moved) = self.ends.sync_done(seq) {
            progress.synced_moved = moved;
        } else {
            let bytes = match done {
                Done::Bytes(bytes) => bytes,
                Done::Written | Done::Synced => bytes::Bytes::new(),
            };
            match self.purpose_of(seq) {
                Purpose::Roll { base } => self.settling.roll_step_done(base),
                Purpose::Settle => self.settling.step_done(),
                Purpose::Aborted => self.settling.aborted_written(),
                Purpose::Housekeeping => {}
                Purpose::Read { job } => self.read_done(job, bytes, tail, out, progress),
                Purpose::Map { job, base, kind } => {
                    self.keep_map(base, kind, bytes);
                    self.resume(job, tail, out, progress);
                }
            }
        }
    }

    fn did_not(&mut self, seq: u64, tail: &TailCache, out: &mut Outbox, progress: &mut Progress) {
        // A failed write stays at the head of the others, so that the written end never passes it.
        if !self.ends.knows(seq) {
            let purpose = self.purpose_of(seq);
            if let Purpose::Read { job } | Purpose::Map { job, .. } = purpose {
                // Retention may have taken the file away meanwhile: then nothing is wrong with the disk.
                if self.job_lost_its_segment(job) {
                    self.resume(job, tail, out, progress);
                    return;
                }
            }
        }
        progress.failed = self.state != State::Failed;
        self.state = State::Failed;
        self.fail_jobs(progress);
    }

    fn purpose_of(&mut self, seq: u64) -> Purpose {
        let at = self
            .purposes
            .binary_search_by_key(&seq, |(number, _)| *number);
        let found = at.ok().and_then(|at| self.purposes.remove(at));
        let Some((_, purpose)) = found else {
            panic!(
                "log {:?} never asked for effect {seq}, or it was reported twice",
                self.id
            );
        };
        purpose
    }

    /// The number of the next effect, whose purpose is noted elsewhere.
    pub(super) fn next_op(&mut self) -> Op {
        let seq = self.next_seq;
        self.next_seq += 1;
        Op {
            slot: self.slot,
            seq,
        }
    }

    pub(super) fn begin(&mut self, purpose: Purpose) -> Op {
        let op = self.next_op();
        self.purposes.push_back((op.seq, purpose));
        op
    }

    pub(super) fn file(&self, kind: FileKind, base: i64) -> FileId {
        FileId {
            log: self.id,
            kind,
            base,
        }
    }

    pub(super) fn issue_syncs(&mut self, out: &mut Outbox) {
        let (id, slot, next_seq) = (self.id, self.slot, &mut self.next_seq);
        self.ends.sync(|base| {
            let seq = *next_seq;
            *next_seq += 1;
            out.push(Effect::Sync {
                op: Op { slot, seq },
                file: FileId {
                    log: id,
                    kind: FileKind::Log,
                    base,
                },
            });
            seq
        });
    }

    pub(super) fn write(
        &mut self,
        purpose: Purpose,
        kind: FileKind,
        base: i64,
        position: u64,
        chunks: Chunks,
        out: &mut Outbox,
    ) {
        let file = self.file(kind, base);
        let op = self.begin(purpose);
        out.push(Effect::Write {
            op,
            file,
            position,
            chunks,
        });
    }

    pub(super) fn refuse_unless_open(&self) -> Result<(), AppendRefused> {
        if self.state == State::Open {
            Ok(())
        } else {
            Err(AppendRefused::Offline)
        }
    }
}
