//! What may be deleted (L-11 to L-14).

use super::partition_log::{Log, State};
use crate::base::ids::{FileId, FileKind};
use crate::base::time::Now;
use crate::effect::Outbox;

impl Log {
    /// Records below `to` are gone for readers (DeleteRecords, or a leader's log start). Never goes back; the caller keeps it at or below
    /// the high watermark (L-14). Files go with the next [`Log::apply_retention`].
    pub fn advance_log_start(&mut self, to: i64, out: &mut Outbox) {
        if to <= self.log_start {
            return;
        }
        assert!(
            to <= self.log_end,
            "the start {to} of log {:?} would be past its end {}",
            self.id,
            self.log_end
        );
        self.log_start = to;
        let changed = self.epochs.truncate_from_start(to);
        self.write_epochs(changed, out);
    }

    /// Deletes segments that the configuration does not keep. Those that are not settled yet wait for the recovery point, which is then
    /// moved at once.
    pub fn apply_retention(&mut self, now: Now, high_watermark: i64, out: &mut Outbox) {
        if self.state != State::Open {
            return;
        }
        self.producers.forget_replicated(high_watermark);
        let count = self.below_log_start(high_watermark);
        self.delete_oldest(count, high_watermark, out);
        if !self.config.cleanup_policy.delete {
            return; // L-12
        }
        let count = self.over_size(now, high_watermark, out);
        self.delete_oldest(count, high_watermark, out);
        let count = self.too_old(now, high_watermark, out);
        self.delete_oldest(count, high_watermark, out);
    }

    /// Where the segment after the sealed segment `at` begins.
    fn next_base(&self, at: usize) -> i64 {
        self.sealed
            .get(at + 1)
            .map_or(self.active.base, |segment| segment.base)
    }

    /// How many of the oldest segments may be deleted at all: nobody needs them to replicate.
    fn deletable(&self, high_watermark: i64) -> usize {
        (0..self.sealed.len())
            .take_while(|&at| self.next_base(at) <= high_watermark)
            .count()
    }

    /// L-11 (a)
    fn below_log_start(&self, high_watermark: i64) -> usize {
        (0..self.deletable(high_watermark))
            .take_while(|&at| self.next_base(at) <= self.log_start)
            .count()
    }

    /// L-11 (b). With a limit of 0 the active segment goes too.
    fn over_size(&mut self, now: Now, high_watermark: i64, out: &mut Outbox) -> usize {
        let Ok(keep) = u64::try_from(self.config.retention_bytes) else {
            return 0;
        };
        let mut over = self.size_bytes().saturating_sub(keep);
        let count = self.sealed[..self.deletable(high_watermark)]
            .iter()
            .take_while(|segment| {
                let goes = over >= segment.size;
                over = over.saturating_sub(segment.size);
                goes
            })
            .count();
        let all = count == self.sealed.len() && over >= self.active.size;
        if all && self.roll_to_delete(now, high_watermark, out) {
            return self.sealed.len();
        }
        count
    }

    /// L-11 (c). An active segment that is too old as a whole is sealed first.
    fn too_old(&mut self, now: Now, high_watermark: i64, out: &mut Outbox) -> usize {
        let retention_ms = self.config.retention_ms;
        if retention_ms < 0 {
            return 0;
        }
        // A timestamp in the future never expires.
        let is_old = |timestamp: i64| now.wall_ms.saturating_sub(timestamp) > retention_ms;
        let old = |log: &Log| {
            log.sealed[..log.deletable(high_watermark)]
                .iter()
                .take_while(|segment| is_old(segment.largest_timestamp()))
                .count()
        };
        let all = old(self) == self.sealed.len();
        if all && is_old(self.active.sealed().largest_timestamp()) {
            self.roll_to_delete(now, high_watermark, out);
        }
        old(self)
    }

    /// A log keeps one segment, so the active one is sealed before it is deleted; unless it is empty, or somebody needs it to replicate.
    fn roll_to_delete(&mut self, now: Now, high_watermark: i64, out: &mut Outbox) -> bool {
        let may_go = self.active.size > 0 && self.log_end <= high_watermark;
        if may_go {
            self.roll(now, out);
        }
        may_go
    }

    fn delete_oldest(&mut self, count: usize, high_watermark: i64, out: &mut Outbox) {
        let settled = (0..count)
            .take_while(|&at| {
                self.settling
                    .is_settled(self.sealed[at].base, self.next_base(at))
            })
            .count();
        if settled < count {
            self.settling.wait_for_retention(high_watermark);
        }
        if settled == 0 {
            return;
        }
        let mut files = Vec::new();
        for segment in self.sealed.drain(..settled) {
            self.sealed_bytes -= segment.size;
            let kinds = [
                FileKind::Log,
                FileKind::OffsetIndex,
                FileKind::TimeIndex,
                FileKind::TxnIndex,
                FileKind::ProducerSnapshot,
            ];
            self.snapshots.retain(|&offset| offset != segment.base);
            files.extend(kinds.map(|kind| FileId {
                log: self.id,
                kind,
                base: segment.base,
            }));
        }
        let first_base = self.first_base();
        self.aborted.forget_below(first_base);
        self.delete(files, self.config.file_delete_delay_ms, out);
        self.advance_log_start(first_base, out);
    }
}
