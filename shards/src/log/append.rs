//! Append (kafka.md 3.3, steps 7 to 10): offsets, producer state, roll, indexes, the write itself.

use bytes::{Bytes, BytesMut};
use corelog_wire::batch::{
    BatchHeader, HEADER_LEN, TimestampType, set_base_offset, set_leader_epoch,
};
use smallvec::smallvec;

use super::aborted;
use super::aborted::AbortedTxn;
use super::marker::end_marker;
use super::partition_log::{Log, Purpose};
use super::producers::{Completed, Origin, ProducerRefused};
use super::segment::Segment;
use super::settle;
use super::tail_cache::{Fresh, TailCache};
use crate::base::ids::FileKind;
use crate::base::time::Now;
use crate::effect::{Effect, Outbox};

/// A batch that has been validated, as it shall be appended but for its offset and its leader epoch.
#[derive(Debug)]
pub struct AppendBatch {
    /// The whole batch, nothing behind it.
    pub bytes: Bytes,
    /// What its first bytes say.
    pub header: BatchHeader,
    pub leader_epoch: i32,
    pub origin: Origin,
}

/// Which end an answer to a producer waits for (L-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckAfter {
    Written,
    /// `flush.messages` asks for a sync with this batch.
    Synced,
}

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    pub base_offset: i64,
    pub last_offset: i64,
    /// -1 unless the topic uses LogAppendTime.
    pub append_time_ms: i64,
    /// The log's end with this batch: the answer waits until `written_end` (or `synced_end`) is there.
    pub end: i64,
    pub ack_after: AckAfter,
}

/// Why a batch was not appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendRefused {
    /// It is in the log already, or on the way: success with the original offsets, once those are written (I-2).
    Duplicate {
        base_offset: i64,
        last_offset: i64,
        timestamp_ms: i64,
    },
    OutOfOrderSequence,
    InvalidProducerEpoch,
    InvalidTxnState,
    CoordinatorFenced,
    /// Larger than a segment.
    RecordListTooLarge,
    /// The disk failed, or the log is being closed.
    Offline,
}

impl From<ProducerRefused> for AppendRefused {
    fn from(refused: ProducerRefused) -> AppendRefused {
        match refused {
            ProducerRefused::Duplicate {
                base_offset,
                last_offset,
                timestamp_ms,
            } => AppendRefused::Duplicate {
                base_offset,
                last_offset,
                timestamp_ms,
            },
            ProducerRefused::OutOfOrderSequence => AppendRefused::OutOfOrderSequence,
            ProducerRefused::InvalidProducerEpoch => AppendRefused::InvalidProducerEpoch,
            ProducerRefused::InvalidTxnState => AppendRefused::InvalidTxnState,
            ProducerRefused::CoordinatorFenced => AppendRefused::CoordinatorFenced,
        }
    }
}

impl Log {
    /// Appends one batch. What it promises is kept when the end that `ack_after` names has reached [`Appended::end`].
    pub fn append(
        &mut self,
        now: Now,
        batch: &AppendBatch,
        tail: &mut TailCache,
        out: &mut Outbox,
    ) -> Result<Appended, AppendRefused> {
        self.refuse_unless_open()?;
        if batch.bytes.len() as u64 > u64::from(self.config.segment_bytes) {
            return Err(AppendRefused::RecordListTooLarge); // 3.3 (8)
        }
        let marker = end_marker(&batch.header, &batch.bytes);
        self.producers.check(batch.origin, &batch.header, marker)?;

        let (header, head) = self.stamp(batch);
        self.roll_if_due(now, &header, out);
        let changed = self.epochs.assign(batch.leader_epoch, header.base_offset);
        self.write_epochs(changed, out);
        self.write_batch(now, &header, &head, &batch.bytes, tail, out);
        if let Some(completed) = self.producers.apply(&header, marker) {
            self.note_completed(completed, out);
        }
        self.note_deadlines(now);
        let ack_after = self.flush_by_count();
        Ok(Appended {
            base_offset: header.base_offset,
            last_offset: header.last_offset(),
            append_time_ms: match header.timestamp_type() {
                TimestampType::LogAppendTime => header.max_timestamp,
                TimestampType::CreateTime => -1,
            },
            end: self.log_end,
            ack_after,
        })
    }

    /// The header as it goes to disk. Its checksum does not cover what is set here (3.1).
    fn stamp(&self, batch: &AppendBatch) -> (BatchHeader, [u8; HEADER_LEN]) {
        let mut header = batch.header;
        header.base_offset = self.log_end;
        header.partition_leader_epoch = batch.leader_epoch;
        let mut head = [0; HEADER_LEN];
        head.copy_from_slice(&batch.bytes[..HEADER_LEN]);
        set_base_offset(&mut head, header.base_offset);
        set_leader_epoch(&mut head, header.partition_leader_epoch);
        (header, head)
    }

    fn write_batch(
        &mut self,
        now: Now,
        header: &BatchHeader,
        head: &[u8; HEADER_LEN],
        bytes: &Bytes,
        tail: &mut TailCache,
        out: &mut Outbox,
    ) {
        let fresh = Fresh {
            slot: self.slot,
            base_offset: header.base_offset,
            last_offset: header.last_offset(),
            at: self.appended_bytes,
            header: head,
            batch: bytes,
        };
        let chunks = if now.mono < self.followed_until {
            tail.push(&fresh)
        } else {
            tail.pass(&fresh)
        };
        let position = self.active.size;
        self.active.add(header, self.config.index_interval_bytes);
        self.active.modified_ms = now.wall_ms;
        self.log_end = header.last_offset() + 1;
        self.appended_bytes += bytes.len() as u64;
        let op = self.next_op();
        self.ends
            .write_issued(op.seq, self.log_end, self.active.base, self.active.size);
        out.push(Effect::Write {
            op,
            file: self.file(FileKind::Log, self.active.base),
            position,
            chunks,
        });
        self.settling.appended(now, bytes.len() as u64);
    }

    /// T-7: an aborted transaction gets its entry in the index of the segment that holds the marker.
    fn note_completed(&mut self, completed: Completed, out: &mut Outbox) {
        if !completed.aborted {
            return;
        }
        let entry = AbortedTxn {
            producer_id: completed.producer_id,
            first_offset: completed.first_offset,
            last_offset: completed.last_offset,
            last_stable_offset: completed.last_stable_offset,
        };
        self.aborted.push(entry);
        let mut bytes = BytesMut::with_capacity(aborted::ENTRY);
        entry.encode(&mut bytes);
        let position = self.active.aborted * aborted::ENTRY as u64;
        self.active.aborted += 1;
        self.settling.aborted_issued();
        self.write(
            Purpose::Aborted,
            FileKind::TxnIndex,
            self.active.base,
            position,
            smallvec![bytes.freeze()],
            out,
        );
    }

    fn note_deadlines(&mut self, now: Now) {
        if self.config.flush_ms != i64::MAX && self.flush_due.is_none() {
            let flush_ms = u64::try_from(self.config.flush_ms).unwrap_or(0);
            self.flush_due = Some(now.mono.after_ms(flush_ms));
        }
        if self.producer_check.is_none() && !self.producers.is_empty() {
            self.producer_check = Some(now.mono.after_ms(self.config.producer_check_ms));
        }
    }

    /// `flush.messages` (L-4).
    fn flush_by_count(&mut self) -> AckAfter {
        let unflushed = self.log_end - self.ends.wanted();
        if unflushed < self.config.flush_messages {
            return AckAfter::Written;
        }
        self.ends.want(self.log_end);
        AckAfter::Synced
    }

    fn roll_if_due(&mut self, now: Now, header: &BatchHeader, out: &mut Outbox) {
        let segment_ms = self.config.segment_ms.saturating_sub(self.jitter_ms());
        if self.active.must_roll(header, &self.config)
            || self.active.is_old(header, now.wall_ms, segment_ms)
        {
            self.roll(now, out);
        }
    }

    /// L-2: in `0..segment.jitter.ms`, different for each segment and log, so that not all roll at once.
    fn jitter_ms(&self) -> i64 {
        if self.config.segment_jitter_ms <= 0 {
            return 0;
        }
        use std::hash::{Hash, Hasher};
        let mut hasher = rustc_hash::FxHasher::default();
        (self.id, self.active.base).hash(&mut hasher);
        (hasher.finish() % self.config.segment_jitter_ms as u64) as i64
    }

    /// Seals the active segment and begins a new one at the log's end (L-2, L-3). An empty one stays.
    pub(super) fn roll(&mut self, now: Now, out: &mut Outbox) {
        if self.active.size == 0 {
            return;
        }
        self.complete_for_roll(out);
        self.sealed.push(self.active.sealed());
        self.sealed_bytes += self.active.size;
        self.ends.sealed(self.log_end);
        self.active = Segment::new(self.log_end, now.wall_ms);
        self.settle(settle::Reach::Background, out);
    }
}
