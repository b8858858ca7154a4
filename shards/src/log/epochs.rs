//! Where each leader epoch begins (L-16, kafka.md 4.4).
//!
//! Epochs and start offsets both grow strictly. The owner writes the cache to `leader-epoch-checkpoint` when a method says that
//! it changed.

use smallvec::SmallVec;

/// An epoch and its first offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EpochStart {
    pub epoch: i32,
    pub start: i64,
}

/// All known epochs of one log, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Epochs {
    entries: SmallVec<[EpochStart; 1]>,
}

/// Whether the checkpoint file must be written anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Changed {
    Yes,
    No,
}

impl Epochs {
    /// From a checkpoint. Entries that do not grow are an error of the file.
    pub(super) fn from_entries(entries: Vec<EpochStart>) -> Option<Epochs> {
        let grows = entries
            .windows(2)
            .all(|pair| pair[0].epoch < pair[1].epoch && pair[0].start < pair[1].start);
        let positive = entries
            .iter()
            .all(|entry| entry.epoch >= 0 && entry.start >= 0);
        (grows && positive).then(|| Epochs {
            entries: entries.into(),
        })
    }

    pub(super) fn entries(&self) -> &[EpochStart] {
        &self.entries
    }

    pub(super) fn latest(&self) -> Option<i32> {
        self.entries.last().map(|entry| entry.epoch)
    }

    /// `epoch` begins at `start`. A newer epoch displaces entries that begin at or after `start` (they hold nothing); an older
    /// or known epoch changes nothing.
    pub(super) fn assign(&mut self, epoch: i32, start: i64) -> Changed {
        if epoch < 0 || self.latest().is_some_and(|latest| latest >= epoch) {
            return Changed::No;
        }
        self.entries.retain(|entry| entry.start < start);
        self.entries.push(EpochStart { epoch, start });
        Changed::Yes
    }

    /// The log now ends at `end`: epochs that begin there or later never were.
    pub(super) fn truncate_from_end(&mut self, end: i64) -> Changed {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.start < end);
        changed(before != self.entries.len())
    }

    /// The log now starts at `start`: the epoch that covers it begins there, earlier ones are forgotten.
    pub(super) fn truncate_from_start(&mut self, start: i64) -> Changed {
        let passed = self
            .entries
            .iter()
            .take_while(|entry| entry.start <= start)
            .count();
        let Some(covering) = passed.checked_sub(1) else {
            return Changed::No;
        };
        if covering == 0 && self.entries[0].start == start {
            return Changed::No;
        }
        self.entries.drain(..covering);
        self.entries[0].start = start;
        Changed::Yes
    }

    /// The epoch that the record at `offset` was written in; -1 if that is not known.
    pub(super) fn of(&self, offset: i64) -> i32 {
        let passed = self.entries.partition_point(|entry| entry.start <= offset);
        passed
            .checked_sub(1)
            .map_or(-1, |at| self.entries[at].epoch)
    }

    /// The answer of OffsetForLeaderEpoch (kafka.md 4.4): (epoch, end offset), (-1, -1) if there is none.
    pub(super) fn end_of(&self, epoch: i32, log_end: i64) -> (i32, i64) {
        if epoch < 0 {
            return (-1, -1);
        }
        if self.latest() == Some(epoch) {
            return (epoch, log_end);
        }
        let higher = self.entries.partition_point(|entry| entry.epoch <= epoch);
        match (higher.checked_sub(1), self.entries.get(higher)) {
            (_, None) => (-1, -1),
            (None, Some(next)) => (epoch, next.start),
            (Some(floor), Some(next)) => (self.entries[floor].epoch, next.start),
        }
    }
}

fn changed(did: bool) -> Changed {
    if did { Changed::Yes } else { Changed::No }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(entries: &[(i32, i64)]) -> Epochs {
        let entries = entries
            .iter()
            .map(|&(epoch, start)| EpochStart { epoch, start })
            .collect();
        Epochs::from_entries(entries).expect("entries grow")
    }

    #[test]
    fn the_end_of_an_epoch_is_the_start_of_the_next() {
        let epochs = cache(&[(2, 10), (4, 20), (7, 30)]);
        assert_eq!(epochs.end_of(7, 35), (7, 35));
        assert_eq!(epochs.end_of(8, 35), (-1, -1));
        assert_eq!(epochs.end_of(-1, 35), (-1, -1));
        assert_eq!(epochs.end_of(1, 35), (1, 10));
        assert_eq!(epochs.end_of(2, 35), (2, 20));
        assert_eq!(epochs.end_of(5, 35), (4, 30));
        assert_eq!(Epochs::default().end_of(0, 0), (-1, -1));
    }

    #[test]
    fn a_newer_epoch_at_the_same_offset_displaces_the_older() {
        let mut epochs = cache(&[(0, 0)]);
        assert_eq!(epochs.assign(1, 5), Changed::Yes);
        assert_eq!(epochs.assign(2, 5), Changed::Yes);
        assert_eq!(epochs.assign(2, 9), Changed::No);
        assert_eq!(epochs.assign(1, 9), Changed::No);
        assert_eq!(epochs, cache(&[(0, 0), (2, 5)]));
        assert_eq!(epochs.of(4), 0);
        assert_eq!(epochs.of(5), 2);
    }

    #[test]
    fn truncation_keeps_the_epoch_that_covers_the_log_start() {
        let mut epochs = cache(&[(0, 0), (1, 10), (2, 20)]);
        assert_eq!(epochs.truncate_from_start(15), Changed::Yes);
        assert_eq!(epochs, cache(&[(1, 15), (2, 20)]));
        assert_eq!(epochs.truncate_from_start(15), Changed::No);
        assert_eq!(epochs.truncate_from_end(20), Changed::Yes);
        assert_eq!(epochs, cache(&[(1, 15)]));
        assert_eq!(epochs.of(3), -1);
    }

    #[test]
    fn entries_that_do_not_grow_are_refused() {
        let entry = |epoch, start| EpochStart { epoch, start };
        assert!(Epochs::from_entries(vec![entry(1, 0), entry(1, 5)]).is_none());
        assert!(Epochs::from_entries(vec![entry(1, 5), entry(2, 5)]).is_none());
        assert!(Epochs::from_entries(vec![entry(-1, 5)]).is_none());
    }
}
