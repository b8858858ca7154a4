//! Moving the recovery point in the background, and the clean stop (L-1, L-3).
//!
//! One round: write the index entries that are only in memory, sync the log up to its end as of the round's beginning; when all that is
//! done, sync the index files; when that is done, write a snapshot of the producers from which a replay knows the last five batches of each
//! (it lies that far back, for a snapshot holds one); when that is done, the recovery point is that end. A crash finds everything below the
//! recovery point complete, so recovery begins to scan there. The last round, of a clean stop, also completes the active segment's files:
//! exact lengths, the largest timestamp in the time index, and a snapshot at the end, as Kafka does.
//!
//! An idle log has no round and no deadline.

use bytes::Bytes;
use smallvec::smallvec;

use super::limits::{RECOVERY_POINT_BYTES, RECOVERY_POINT_MS, REPLAY_BYTES_MAX};
use super::partition_log::{Log, Purpose, State};
use super::segment::Segment;
use crate::base::ids::FileKind;
use crate::base::time::{Mono, Now};
use crate::effect::{Chunks, Effect, Outbox};

/// How far a round goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    Background,
    Stop,
}

/// A sealed segment whose files are not known to be durable yet.
#[derive(Debug)]
struct Rolled {
    base: i64,
    /// Effects under way for its indexes and its snapshot.
    outstanding: u32,
    has_aborted: bool,
}

#[derive(Debug)]
struct Round {
    target: i64,
    /// Where its producer snapshot is, and what it says unless it is there already.
    snapshot: i64,
    content: Option<Bytes>,
    reach: Reach,
    /// Effects under way for this step.
    outstanding: u32,
    /// How many of the rolled segments it covers.
    rolled: usize,
    step: Step,
    /// The segment after the rolled ones: its file must be there before they may be deleted, for it says where the log ends.
    next: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Write,
    Sync,
    /// Only now, for the snapshot leaves out what a replay of the log up to the target tells.
    Snapshot,
}

/// What is not settled yet.
#[derive(Debug)]
pub(super) struct Settling {
    recovery_point: i64,
    /// Bytes appended since the last round began.
    bytes: u64,
    due: Option<Mono>,
    rolled: Vec<Rolled>,
    /// Bytes of the active segment's indexes that were given to the disk.
    offsets_written: usize,
    times_written: usize,
    /// Some of them since the last round.
    indexes_changed: bool,
    aborted_changed: bool,
    aborted_outstanding: u32,
    round: Option<Round>,
    /// The files are not as a clean stop leaves them.
    touched: bool,
    /// Segments wait for the recovery point to be deleted; the high watermark as of then.
    retention_waits: Option<i64>,
}

impl Settling {
    pub(super) fn new(recovery_point: i64, active: &Segment) -> Settling {
        Settling {
            recovery_point,
            bytes: 0,
            due: None,
            rolled: Vec::new(),
            offsets_written: active.offset_index.len(),
            times_written: active.time_index.len(),
            indexes_changed: false,
            aborted_changed: false,
            aborted_outstanding: 0,
            round: None,
            touched: false,
            retention_waits: None,
        }
    }

    pub(super) fn recovery_point(&self) -> i64 {
        self.recovery_point
    }

    /// No effect on the files of this sealed segment is under way or to come.
    pub(super) fn is_settled(&self, base: i64, next_base: i64) -> bool {
        next_base <= self.recovery_point
            && self.rolled.first().is_none_or(|first| base < first.base)
    }

    /// When a round is due; none while one is under way.
    pub(super) fn due(&self) -> Option<Mono> {
        self.due.filter(|_| self.round.is_none())
    }

    pub(super) fn appended(&mut self, now: Now, bytes: u64) {
        self.touched = true;
        self.bytes += bytes;
        let latest = now.mono.after_ms(RECOVERY_POINT_MS);
        let due = self.due.get_or_insert(latest);
        if self.bytes >= RECOVERY_POINT_BYTES {
            *due = now.mono;
        }
    }

    pub(super) fn aborted_issued(&mut self) {
        self.aborted_changed = true;
        self.aborted_outstanding += 1;
    }

    pub(super) fn aborted_written(&mut self) {
        self.aborted_outstanding -= 1;
    }

    pub(super) fn roll_step_done(&mut self, base: i64) {
        if let Some(rolled) = self.rolled.iter_mut().find(|rolled| rolled.base == base) {
            rolled.outstanding -= 1;
        }
    }

    pub(super) fn step_done(&mut self) {
        if let Some(round) = &mut self.round {
            round.outstanding -= 1;
        }
    }

    pub(super) fn wait_for_retention(&mut self, high_watermark: i64) {
        self.retention_waits = Some(high_watermark);
    }

    fn started(&mut self, purpose: Purpose) {
        if let Purpose::Roll { base } = purpose {
            if let Some(rolled) = self.rolled.iter_mut().find(|rolled| rolled.base == base) {
                rolled.outstanding += 1;
            }
        } else if let Some(round) = &mut self.round {
            round.outstanding += 1;
        }
    }

    /// The active segment is about to be sealed.
    fn begin_roll(&mut self, base: i64, has_aborted: bool) {
        self.touched = true;
        // What a round under way has still to sync of the active segment, it has to sync of the sealed one.
        if let Some(round) = &mut self.round
            && round.step == Step::Write
            && base < round.target
        {
            round.rolled += 1;
        }
        self.rolled.push(Rolled {
            base,
            outstanding: 0,
            has_aborted,
        });
    }

    fn next_active(&mut self) {
        self.offsets_written = 0;
        self.times_written = 0;
        self.indexes_changed = false;
        self.aborted_changed = false;
    }

    fn step_is_finished(&self) -> Option<Step> {
        let round = self.round.as_ref()?;
        let rolled = &self.rolled[..round.rolled];
        let quiet = round.outstanding == 0
            && self.aborted_outstanding == 0
            && rolled.iter().all(|rolled| rolled.outstanding == 0);
        quiet.then_some(round.step)
    }
}

impl Log {
    /// Completes the files of the active segment on its way to be sealed; its snapshot is as of the log's end.
    pub(super) fn complete_for_roll(&mut self, out: &mut Outbox) {
        let base = self.active.base;
        let purpose = Purpose::Roll { base };
        self.settling.begin_roll(base, self.active.aborted > 0);
        self.active.note_max_timestamp();
        self.write_index_tails(purpose, out);
        self.seal_files(purpose, out);
        self.write_end_snapshot(purpose, out);
        self.settling.next_active();
    }

    /// Stops cleanly: nothing more is appended; when [`Log::is_stopped`], the files are as Kafka leaves them, synced, and the recovery
    /// point is the log's end.
    pub fn stop(&mut self, now: Now, out: &mut Outbox) {
        if self.state != State::Open {
            return;
        }
        self.state = State::Stopping;
        self.go_on_settling(now, out);
    }

    /// Nothing is under way and nothing is left to be done; or the disk failed, and nothing can be done.
    pub fn is_stopped(&self) -> bool {
        let done = !self.settling.touched
            && self.settling.round.is_none()
            && self.purposes.is_empty()
            && self.ends.is_quiet();
        self.state == State::Failed || (self.state == State::Stopping && done)
    }

    /// Begins a round, unless one is under way or there is nothing to settle.
    pub(super) fn settle(&mut self, reach: Reach, out: &mut Outbox) {
        if self.settling.round.is_some() {
            return;
        }
        self.settling.due = None;
        self.settling.bytes = 0;
        let idle = self.log_end == self.settling.recovery_point && self.settling.rolled.is_empty();
        if idle && reach == Reach::Background {
            return;
        }
        let snapshot = self.replay_from();
        self.settling.round = Some(Round {
            target: self.log_end,
            snapshot,
            content: self
                .lacks_snapshot(snapshot)
                .then(|| self.producers.snapshot(snapshot)),
            reach,
            outstanding: 0,
            rolled: self.settling.rolled.len(),
            step: Step::Write,
            next: None,
        });
        self.make_next_file(out);
        if reach == Reach::Stop {
            self.active.note_max_timestamp();
        }
        self.write_index_tails(Purpose::Settle, out);
        if reach == Reach::Stop {
            self.seal_files(Purpose::Settle, out);
            self.write_end_snapshot(Purpose::Settle, out);
        }
        self.ends.want(self.log_end);
        self.issue_syncs(out);
    }

    /// Makes the active segment's file if segments were sealed: the first batch may be long in coming.
    fn make_next_file(&mut self, out: &mut Outbox) {
        let base = self.active.base;
        if let Some(round) = self
            .settling
            .round
            .as_mut()
            .filter(|round| round.rolled > 0)
        {
            round.next = Some(base);
            self.settling.started(Purpose::Settle);
            self.write(Purpose::Settle, FileKind::Log, base, 0, Chunks::new(), out);
        }
    }

    /// Takes the next step of the round, and the next round, if they can be taken now.
    pub(super) fn go_on_settling(&mut self, now: Now, out: &mut Outbox) {
        while let Some(step) = self.settling.step_is_finished() {
            match step {
                Step::Write => self.sync_indexes(out),
                Step::Sync if !self.write_round_snapshot(out) => return,
                Step::Sync => {}
                Step::Snapshot => self.finish_round(now, out),
            }
        }
        if self.settling.round.is_some() {
            return;
        }
        if self.state == State::Stopping {
            if self.settling.touched {
                self.settle(Reach::Stop, out);
                self.go_on_settling(now, out);
            }
        } else if !self.settling.rolled.is_empty() || self.settling.bytes >= RECOVERY_POINT_BYTES {
            self.settle(Reach::Background, out);
            self.go_on_settling(now, out);
        }
    }

    /// The last step of a round, when the log is synced up to its target too.
    fn write_round_snapshot(&mut self, out: &mut Outbox) -> bool {
        let synced_end = self.ends.synced_end();
        let synced = |round: &&mut Round| synced_end >= round.target;
        let Some(round) = self.settling.round.as_mut().filter(synced) else {
            return false;
        };
        round.step = Step::Snapshot;
        let (offset, content) = (round.snapshot, round.content.take());
        if let Some(content) = content.filter(|_| self.lacks_snapshot(offset)) {
            self.write_snapshot(offset, content, Purpose::Settle, out);
        }
        true
    }

    fn finish_round(&mut self, now: Now, out: &mut Outbox) {
        let Some(round) = self.settling.round.take() else {
            return;
        };
        self.settling.recovery_point = round.target;
        self.settling.rolled.drain(..round.rolled);
        if round.reach == Reach::Stop {
            self.settling.touched = false;
        }
        self.delete_old_snapshots(&round, out);
        if let Some(high_watermark) = self.settling.retention_waits.take() {
            self.apply_retention(now, high_watermark, out);
        }
    }

    /// Writes the index entries of the active segment that are only in memory.
    fn write_index_tails(&mut self, purpose: Purpose, out: &mut Outbox) {
        let base = self.active.base;
        let offsets = (FileKind::OffsetIndex, self.settling.offsets_written);
        let times = (FileKind::TimeIndex, self.settling.times_written);
        for (kind, written) in [offsets, times] {
            let bytes = if kind == FileKind::OffsetIndex {
                &self.active.offset_index
            } else {
                &self.active.time_index
            };
            if bytes.len() > written {
                let tail = Bytes::copy_from_slice(&bytes[written..]);
                self.settling.started(purpose);
                self.settling.indexes_changed = true;
                self.write(purpose, kind, base, written as u64, smallvec![tail], out);
            }
        }
        self.settling.offsets_written = self.active.offset_index.len();
        self.settling.times_written = self.active.time_index.len();
    }

    /// Gives the active segment's files their exact lengths (L-1).
    fn seal_files(&mut self, purpose: Purpose, out: &mut Outbox) {
        let lengths = [
            (FileKind::Log, self.active.size),
            (FileKind::OffsetIndex, self.active.offset_index.len() as u64),
            (FileKind::TimeIndex, self.active.time_index.len() as u64),
        ];
        self.settling.indexes_changed = true;
        for (kind, len) in lengths {
            self.settling.started(purpose);
            let file = self.file(kind, self.active.base);
            let op = self.begin(purpose);
            out.push(Effect::Seal { op, file, len });
        }
    }

    /// See [`super::limits::REPLAY_BYTES_MAX`].
    fn replay_from(&self) -> i64 {
        let sealed = self.sealed.iter().rev();
        let sealed = sealed.map(|segment| (segment.base, segment.size));
        let near_from = near_from(&self.active, sealed);
        self.producers
            .replay_from(near_from, self.log_end, &self.aborted)
    }

    fn lacks_snapshot(&self, offset: i64) -> bool {
        self.log_end > 0 && self.snapshots.binary_search(&offset).is_err()
    }

    /// Writes the producers as of the log's end, unless that was done already (I-9).
    fn write_end_snapshot(&mut self, purpose: Purpose, out: &mut Outbox) {
        let offset = self.log_end;
        if self.lacks_snapshot(offset) {
            self.write_snapshot(offset, self.producers.snapshot(offset), purpose, out);
        }
    }

    fn write_snapshot(&mut self, offset: i64, content: Bytes, purpose: Purpose, out: &mut Outbox) {
        let at = self.snapshots.partition_point(|other| *other < offset);
        self.snapshots.insert(at, offset);
        self.settling.started(purpose);
        let file = self.file(FileKind::ProducerSnapshot, offset);
        let op = self.begin(purpose);
        out.push(Effect::Replace { op, file, content });
    }

    fn sync_indexes(&mut self, out: &mut Outbox) {
        let Some(round) = &mut self.settling.round else {
            return;
        };
        round.step = Step::Sync;
        let mut files = Vec::new();
        if let Some(base) = round.next {
            files.push((FileKind::Log, base));
        }
        for rolled in &self.settling.rolled[..round.rolled] {
            files.push((FileKind::OffsetIndex, rolled.base));
            files.push((FileKind::TimeIndex, rolled.base));
            if rolled.has_aborted {
                files.push((FileKind::TxnIndex, rolled.base));
            }
        }
        if std::mem::take(&mut self.settling.indexes_changed) {
            files.push((FileKind::OffsetIndex, self.active.base));
            files.push((FileKind::TimeIndex, self.active.base));
        }
        if std::mem::take(&mut self.settling.aborted_changed) {
            files.push((FileKind::TxnIndex, self.active.base));
        }
        for (kind, base) in files {
            self.settling.started(Purpose::Settle);
            let file = self.file(kind, base);
            let op = self.begin(Purpose::Settle);
            out.push(Effect::Sync { op, file });
        }
    }

    /// Of the snapshots up to the round's target, its own stay, and those at segment bases, as in Kafka.
    fn delete_old_snapshots(&mut self, round: &Round, out: &mut Outbox) {
        let mut files = Vec::new();
        let (id, sealed, active) = (self.id, &self.sealed, self.active.base);
        self.snapshots.retain(|&offset| {
            let is_base = offset == active
                || sealed
                    .binary_search_by_key(&offset, |segment| segment.base)
                    .is_ok();
            let keep = is_base || offset == round.snapshot || offset >= round.target;
            if !keep {
                files.push(crate::base::ids::FileId {
                    log: id,
                    kind: FileKind::ProducerSnapshot,
                    base: offset,
                });
            }
            keep
        });
        self.delete(files, 0, out);
    }

    pub(super) fn delete(
        &mut self,
        files: Vec<crate::base::ids::FileId>,
        delay_ms: u64,
        out: &mut Outbox,
    ) {
        if !files.is_empty() {
            let op = self.begin(Purpose::Housekeeping);
            out.push(Effect::Delete {
                op,
                files,
                delay_ms,
            });
        }
    }
}

/// Batches that end at or above this offset are near the log's end ([`REPLAY_BYTES_MAX`]). `sealed` are base and size of the segments
/// before the active one, newest first.
pub(super) fn near_from(active: &Segment, sealed: impl Iterator<Item = (i64, u64)>) -> i64 {
    if let Some(offset) = active.near_from(REPLAY_BYTES_MAX) {
        return offset;
    }
    let mut bytes = active.size;
    let near = sealed.take_while(|(_, size)| {
        bytes += size;
        bytes <= REPLAY_BYTES_MAX
    });
    near.last().map_or(active.base, |(base, _)| base)
}
