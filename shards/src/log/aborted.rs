//! Aborted transactions (T-7, T-8): what a reader of committed records must leave out, and the bytes of `.txnindex` files.

use bytes::{BufMut, BytesMut};

/// Size of an entry.
pub(super) const ENTRY: usize = 34;

/// One aborted transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AbortedTxn {
    pub producer_id: i64,
    pub first_offset: i64,
    /// The offset of the marker.
    pub last_offset: i64,
    /// The last stable offset right after this transaction.
    pub last_stable_offset: i64,
}

impl AbortedTxn {
    pub(super) fn encode(&self, out: &mut BytesMut) {
        out.put_i16(0);
        out.put_i64(self.producer_id);
        out.put_i64(self.first_offset);
        out.put_i64(self.last_offset);
        out.put_i64(self.last_stable_offset);
    }

    fn decode(entry: &[u8]) -> Option<AbortedTxn> {
        let word = |at: usize| -> Option<i64> {
            Some(i64::from_be_bytes(entry.get(at..at + 8)?.try_into().ok()?))
        };
        (entry.get(..2)? == [0, 0]).then_some(())?;
        Some(AbortedTxn {
            producer_id: word(2)?,
            first_offset: word(10)?,
            last_offset: word(18)?,
            last_stable_offset: word(26)?,
        })
    }
}

/// The aborted transactions of a log, in the order of their markers.
#[derive(Debug, Default)]
pub(super) struct Aborted {
    entries: Vec<AbortedTxn>,
}

impl Aborted {
    /// Reads the file of a segment that holds the offsets `base..end`: what can be believed, and whether that is all of it.
    pub(super) fn parse(bytes: &[u8], base: i64, end: i64) -> (Vec<AbortedTxn>, bool) {
        let mut entries = Vec::new();
        let mut next = base;
        for entry in bytes.chunks_exact(ENTRY).map_while(AbortedTxn::decode) {
            if !(next..end).contains(&entry.last_offset) {
                break;
            }
            next = entry.last_offset + 1;
            entries.push(entry);
        }
        let whole = entries.len() * ENTRY == bytes.len();
        (entries, whole)
    }

    pub(super) fn push(&mut self, entry: AbortedTxn) {
        self.entries.push(entry);
    }

    /// The entries whose markers are at or above `offset`.
    pub(super) fn from(&self, offset: i64) -> &[AbortedTxn] {
        let at = self
            .entries
            .partition_point(|entry| entry.last_offset < offset);
        &self.entries[at..]
    }

    /// The first offset of a transaction that began below `offset` and was aborted at or above it.
    pub(super) fn first_offset_across(&self, offset: i64) -> Option<i64> {
        let first_offsets = self.from(offset).iter().map(|entry| entry.first_offset);
        first_offsets.min().filter(|first| *first < offset)
    }

    /// The segments below `offset` are gone.
    pub(super) fn forget_below(&mut self, offset: i64) {
        let at = self
            .entries
            .partition_point(|entry| entry.last_offset < offset);
        self.entries.drain(..at);
    }

    /// (producer id, first offset) of what a reader of `from..to` must leave out (T-8).
    pub(super) fn within(&self, from: i64, to: i64) -> Vec<(i64, i64)> {
        let mut found = Vec::new();
        for entry in self.from(from) {
            if entry.first_offset < to {
                found.push((entry.producer_id, entry.first_offset));
            }
            if entry.last_stable_offset >= to {
                break;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(producer_id: i64, first: i64, last: i64, stable: i64) -> AbortedTxn {
        AbortedTxn {
            producer_id,
            first_offset: first,
            last_offset: last,
            last_stable_offset: stable,
        }
    }

    #[test]
    fn a_file_is_read_back() {
        let mut bytes = BytesMut::new();
        let entries = [entry(1, 2, 3, 4), entry(5, 6, 7, 8)];
        for entry in entries {
            entry.encode(&mut bytes);
        }
        assert_eq!(bytes.len(), 2 * ENTRY);
        assert_eq!(Aborted::parse(&bytes, 0, 10), (entries.to_vec(), true));
        assert_eq!(Aborted::parse(&bytes, 0, 7), (entries[..1].to_vec(), false));
        bytes.truncate(ENTRY + 3);
        assert_eq!(
            Aborted::parse(&bytes, 0, 10),
            (entries[..1].to_vec(), false)
        );
    }

    #[test]
    fn only_transactions_that_overlap_the_range_are_listed() {
        let mut aborted = Aborted::default();
        for it in [
            entry(1, 0, 10, 5),
            entry(2, 5, 20, 21),
            entry(3, 30, 40, 41),
        ] {
            aborted.push(it);
        }
        assert_eq!(aborted.within(0, 100), [(1, 0), (2, 5), (3, 30)]);
        assert_eq!(aborted.within(11, 15), [(2, 5)]);
        assert_eq!(aborted.within(21, 25), []);
        aborted.forget_below(21);
        assert_eq!(aborted.within(0, 100), [(3, 30)]);
    }
}
