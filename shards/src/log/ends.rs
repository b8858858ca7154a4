//! How far a log is written, and how far it is synced.
//!
//! `written_end` survives a kill of the process, `synced_end` a power cut. Writes complete in any order; what counts is the prefix. A sync
//! of a segment covers what had been written to it when the sync was issued, and counts only when all segments before it are synced
//! to their ends.

use std::collections::VecDeque;

/// A write under way.
#[derive(Debug)]
struct Write {
    seq: u64,
    /// The log's end with it.
    end: i64,
    base: i64,
    /// The segment's end with it.
    position: u64,
    done: bool,
}

/// A segment that may hold bytes above the synced end.
#[derive(Debug)]
struct Dirty {
    base: i64,
    /// The next segment's base, once there is one.
    sealed_at: Option<i64>,
    synced_to: i64,
    /// (number, what it covers) of a sync under way.
    syncing: Option<(u64, i64)>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Ends {
    writes: VecDeque<Write>,
    written_end: i64,
    /// The segment that holds the written end, and the end's position in it.
    written_at: (i64, u64),
    synced_end: i64,
    dirty: VecDeque<Dirty>,
    wanted: i64,
}

impl Ends {
    /// A log whose bytes up to `end` are on disk and synced; the end lies at `position` of segment `base`.
    pub(super) fn new(end: i64, base: i64, position: u64) -> Ends {
        Ends {
            writes: VecDeque::new(),
            written_end: end,
            written_at: (base, position),
            synced_end: end,
            dirty: VecDeque::new(),
            wanted: end,
        }
    }

    pub(super) fn written_end(&self) -> i64 {
        self.written_end
    }

    pub(super) fn synced_end(&self) -> i64 {
        self.synced_end
    }

    /// What has been asked to be synced, or is.
    pub(super) fn wanted(&self) -> i64 {
        self.wanted
    }

    /// The bytes of segment `base`, of `size` bytes with those under way, that can be read from disk.
    pub(super) fn readable(&self, base: i64, size: u64) -> u64 {
        match base.cmp(&self.written_at.0) {
            std::cmp::Ordering::Less => size,
            std::cmp::Ordering::Equal => self.written_at.1.min(size),
            std::cmp::Ordering::Greater => 0,
        }
    }

    /// Everything that was handed to the disk has been carried out.
    pub(super) fn is_quiet(&self) -> bool {
        self.writes.is_empty() && self.dirty.iter().all(|dirty| dirty.syncing.is_none())
    }

    /// Batches up to `end` are on the way into segment `base`, whose size becomes `position`.
    pub(super) fn write_issued(&mut self, seq: u64, end: i64, base: i64, position: u64) {
        if self.dirty.back().is_none_or(|dirty| dirty.base != base) {
            self.dirty.push_back(Dirty {
                base,
                sealed_at: None,
                synced_to: self
                    .writes
                    .back()
                    .map_or(self.written_end, |write| write.end),
                syncing: None,
            });
        }
        self.writes.push_back(Write {
            seq,
            end,
            base,
            position,
            done: false,
        });
    }

    /// The active segment ends here; the next begins at `next_base`.
    pub(super) fn sealed(&mut self, next_base: i64) {
        if let Some(active) = self.dirty.back_mut() {
            active.sealed_at.get_or_insert(next_base);
        }
    }

    /// Notes a finished write. `None` if the number is no write's, else whether the written end moved.
    pub(super) fn write_done(&mut self, seq: u64) -> Option<bool> {
        let at = self
            .writes
            .binary_search_by_key(&seq, |write| write.seq)
            .ok()?;
        self.writes[at].done = true;
        let before = self.written_end;
        while self.writes.front().is_some_and(|write| write.done) {
            if let Some(write) = self.writes.pop_front() {
                self.written_end = write.end;
                self.written_at = (write.base, write.position);
            }
        }
        Some(self.written_end != before)
    }

    /// Is this the number of a write or sync under way?
    pub(super) fn knows(&self, seq: u64) -> bool {
        let is_sync = |dirty: &Dirty| dirty.syncing.is_some_and(|(number, _)| number == seq);
        self.writes
            .binary_search_by_key(&seq, |write| write.seq)
            .is_ok()
            || self.dirty.iter().any(is_sync)
    }

    /// Everything below `end` shall be synced as soon as it is written.
    pub(super) fn want(&mut self, end: i64) {
        self.wanted = self.wanted.max(end);
    }

    /// Issues the syncs that are wanted and possible: `issue` is called with a segment's base and gives the sync's number.
    pub(super) fn sync(&mut self, mut issue: impl FnMut(i64) -> u64) {
        for dirty in &mut self.dirty {
            let end = dirty.sealed_at.unwrap_or(i64::MAX);
            let covers = self.written_end.min(end);
            let lacks = dirty.synced_to < self.wanted.min(end);
            // A sealed segment is synced once, when it is written as a whole.
            let whole = dirty.sealed_at.is_none() || covers == end;
            if lacks && whole && covers > dirty.synced_to && dirty.syncing.is_none() {
                dirty.syncing = Some((issue(dirty.base), covers));
            }
        }
    }

    /// Notes a finished sync. `None` if the number is no sync's of the log, else whether the synced end moved.
    pub(super) fn sync_done(&mut self, seq: u64) -> Option<bool> {
        let dirty = self
            .dirty
            .iter_mut()
            .find(|dirty| dirty.syncing.is_some_and(|(number, _)| number == seq))?;
        if let Some((_, covers)) = dirty.syncing.take() {
            dirty.synced_to = covers;
        }
        let before = self.synced_end;
        while let Some(front) = self.dirty.front() {
            self.synced_end = self.synced_end.max(front.synced_to);
            if front.sealed_at.is_none_or(|end| front.synced_to < end) {
                break;
            }
            self.dirty.pop_front();
        }
        Some(self.synced_end != before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sync(ends: &mut Ends, first_seq: u64) -> Vec<(u64, i64)> {
        let mut issued = Vec::new();
        ends.sync(|base| {
            let seq = first_seq + issued.len() as u64;
            issued.push((seq, base));
            seq
        });
        issued
    }

    #[test]
    fn the_written_end_is_the_end_of_the_finished_prefix() {
        let mut ends = Ends::new(0, 0, 0);
        ends.write_issued(1, 10, 0, 100);
        ends.write_issued(2, 20, 0, 200);
        ends.write_issued(5, 30, 0, 300);
        assert_eq!(ends.write_done(2), Some(false));
        assert_eq!(ends.written_end(), 0);
        assert_eq!(ends.write_done(1), Some(true));
        assert_eq!((ends.written_end(), ends.readable(0, 300)), (20, 200));
        assert_eq!(ends.write_done(3), None);
        assert_eq!(ends.write_done(5), Some(true));
        assert_eq!(ends.written_end(), 30);
    }

    #[test]
    fn a_sync_covers_only_what_was_written_when_it_was_issued() {
        let mut ends = Ends::new(0, 0, 0);
        ends.write_issued(1, 10, 0, 100);
        ends.want(10);
        assert_eq!(sync(&mut ends, 2), []);
        ends.write_done(1);
        assert_eq!(sync(&mut ends, 2), [(2, 0)]);
        ends.write_issued(3, 20, 0, 200);
        ends.write_done(3);
        ends.want(20);
        // One sync of a file at a time: those who come meanwhile share the next.
        assert_eq!(sync(&mut ends, 4), []);
        assert_eq!(ends.sync_done(2), Some(true));
        assert_eq!(ends.synced_end(), 10);
        assert_eq!(sync(&mut ends, 4), [(4, 0)]);
        assert_eq!(ends.sync_done(4), Some(true));
        assert_eq!(ends.synced_end(), 20);
        assert_eq!(sync(&mut ends, 5), []);
    }

    #[test]
    fn a_later_segment_counts_only_when_the_earlier_are_synced() {
        let mut ends = Ends::new(0, 0, 0);
        ends.write_issued(1, 10, 0, 100);
        ends.sealed(10);
        ends.write_issued(2, 20, 10, 100);
        ends.want(20);
        ends.write_done(1);
        assert_eq!(sync(&mut ends, 3), [(3, 0)]);
        ends.write_done(2);
        assert_eq!(sync(&mut ends, 4), [(4, 10)]);
        assert_eq!(ends.sync_done(4), Some(false));
        assert_eq!(ends.synced_end(), 0);
        assert_eq!(ends.sync_done(3), Some(true));
        assert_eq!(ends.synced_end(), 20);
    }

    #[test]
    fn a_write_that_finished_early_in_a_later_segment_does_not_count() {
        let mut ends = Ends::new(0, 0, 0);
        ends.write_issued(1, 10, 0, 100);
        ends.sealed(10);
        ends.write_issued(2, 20, 10, 100);
        ends.want(20);
        ends.write_done(2);
        assert_eq!((ends.written_end(), ends.readable(10, 100)), (0, 0));
        assert_eq!(sync(&mut ends, 3), []);
    }
}
