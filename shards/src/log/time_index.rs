//! The bytes of a `.timeindex` file (kafka.md 5.2): the largest timestamp so far, and the offset that has it.
//!
//! An entry is twelve bytes: timestamp, and the last offset of the batch that holds it less the segment's base.

/// Size of an entry.
pub(super) const ENTRY: usize = 12;

/// One entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeEntry {
    pub timestamp: i64,
    pub relative_offset: u32,
}

/// Reads one entry; `bytes` must hold at least [`ENTRY`] bytes.
fn entry(bytes: &[u8], at: usize) -> TimeEntry {
    let start = at * ENTRY;
    let (mut time, mut offset) = ([0; 8], [0; 4]);
    time.copy_from_slice(&bytes[start..start + 8]);
    offset.copy_from_slice(&bytes[start + 8..start + ENTRY]);
    TimeEntry {
        timestamp: i64::from_be_bytes(time),
        relative_offset: u32::from_be_bytes(offset),
    }
}

/// The number of whole entries.
pub(super) fn len(bytes: &[u8]) -> usize {
    bytes.len() / ENTRY
}

/// The newest entry.
pub(super) fn last(bytes: &[u8]) -> Option<TimeEntry> {
    len(bytes).checked_sub(1).map(|at| entry(bytes, at))
}

/// Adds an entry if its timestamp is later than all before (an empty index stands at -1, so that batches without a
/// timestamp never get an entry).
pub(super) fn push_if_later(bytes: &mut Vec<u8>, new: TimeEntry) {
    if new.timestamp > last(bytes).map_or(-1, |entry| entry.timestamp) {
        bytes.extend_from_slice(&new.timestamp.to_be_bytes());
        bytes.extend_from_slice(&new.relative_offset.to_be_bytes());
    }
}

/// The first `count` entries for which `keep` holds; it must hold for a prefix only.
fn prefix(bytes: &[u8], keep: impl Fn(TimeEntry) -> bool) -> usize {
    let (mut low, mut high) = (0, len(bytes));
    while low < high {
        let middle = usize::midpoint(low, high);
        if keep(entry(bytes, middle)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// The greatest entry with a timestamp at or below `timestamp`.
pub(super) fn floor(bytes: &[u8], timestamp: i64) -> Option<TimeEntry> {
    prefix(bytes, |entry| entry.timestamp <= timestamp)
        .checked_sub(1)
        .map(|at| entry(bytes, at))
}

/// The length of the entries that can be believed: they grow, and speak of offsets up to `relative_offset`.
pub(super) fn valid(bytes: &[u8], relative_offset: u32) -> usize {
    let mut count = 0;
    let mut previous: Option<TimeEntry> = None;
    while count < len(bytes) {
        let next = entry(bytes, count);
        let grows = previous.is_none_or(|p| {
            next.timestamp > p.timestamp && next.relative_offset >= p.relative_offset
        });
        if !grows || next.relative_offset > relative_offset {
            break;
        }
        previous = Some(next);
        count += 1;
    }
    count * ENTRY
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(timestamp: i64, relative_offset: u32) -> TimeEntry {
        TimeEntry {
            timestamp,
            relative_offset,
        }
    }

    #[test]
    fn entries_lie_as_kafka_writes_them() {
        // kafka.md appendix A9.
        let mut bytes = Vec::new();
        push_if_later(&mut bytes, at(1_700_000_000_000, 97));
        assert_eq!(
            bytes,
            [0, 0, 0x01, 0x8b, 0xcf, 0xe5, 0x68, 0, 0, 0, 0, 0x61]
        );
    }

    #[test]
    fn only_later_timestamps_get_an_entry() {
        let mut bytes = Vec::new();
        push_if_later(&mut bytes, at(-1, 3));
        assert!(bytes.is_empty());
        push_if_later(&mut bytes, at(5, 4));
        push_if_later(&mut bytes, at(5, 9));
        push_if_later(&mut bytes, at(6, 10));
        assert_eq!(len(&bytes), 2);
        assert_eq!(last(&bytes), Some(at(6, 10)));
    }

    #[test]
    fn the_floor_of_a_time_is_the_greatest_entry_at_or_below_it() {
        let mut bytes = Vec::new();
        push_if_later(&mut bytes, at(10, 1));
        push_if_later(&mut bytes, at(20, 2));
        assert_eq!(floor(&bytes, 9), None);
        assert_eq!(floor(&bytes, 10), Some(at(10, 1)));
        assert_eq!(floor(&bytes, 99), Some(at(20, 2)));
        assert_eq!(valid(&bytes, 1), ENTRY);
        assert_eq!(valid(&bytes, 2), 2 * ENTRY);
    }
}
