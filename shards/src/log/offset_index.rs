//! The bytes of an `.index` file (kafka.md 5.2): where in the segment a batch lies, for some of the batches.
//!
//! An entry is eight bytes: the last offset of a batch less the segment's base, and the batch's position. The same bytes are
//! searched in memory (active segment) and in a mapped file (sealed segment), so these are functions over byte slices.

/// Size of an entry.
pub(super) const ENTRY: usize = 8;

fn entry(bytes: &[u8], at: usize) -> (u32, u32) {
    let start = at * ENTRY;
    let word = |from: usize| {
        let mut raw = [0; 4];
        raw.copy_from_slice(&bytes[from..from + 4]);
        u32::from_be_bytes(raw)
    };
    (word(start), word(start + 4))
}

/// Adds an entry: both must be larger than those of the entry before.
pub(super) fn push(bytes: &mut Vec<u8>, relative_offset: u32, position: u32) {
    bytes.extend_from_slice(&relative_offset.to_be_bytes());
    bytes.extend_from_slice(&position.to_be_bytes());
}

/// The number of whole entries.
pub(super) fn len(bytes: &[u8]) -> usize {
    bytes.len() / ENTRY
}

/// The newest entry: (relative offset, position).
pub(super) fn last(bytes: &[u8]) -> Option<(u32, u32)> {
    len(bytes).checked_sub(1).map(|at| entry(bytes, at))
}

/// How many entries have an offset at or below `relative_offset`.
pub(super) fn count_to(bytes: &[u8], relative_offset: i64) -> usize {
    let (mut low, mut high) = (0, len(bytes));
    while low < high {
        let middle = usize::midpoint(low, high);
        if i64::from(entry(bytes, middle).0) <= relative_offset {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Where to begin to look for an offset: the position of the greatest entry at or below it, else the start of the segment.
pub(super) fn floor(bytes: &[u8], relative_offset: i64) -> u32 {
    match count_to(bytes, relative_offset) {
        0 => 0,
        count => entry(bytes, count - 1).1,
    }
}

/// The offset of the first entry that lies at or above a position.
pub(super) fn first_from(bytes: &[u8], position: u64) -> Option<u32> {
    let entries = (0..len(bytes)).rev().map(|at| entry(bytes, at));
    let near = entries.take_while(|(_, at)| u64::from(*at) >= position);
    near.last().map(|(relative_offset, _)| relative_offset)
}

/// The position of the least entry above an offset.
pub(super) fn ceiling(bytes: &[u8], relative_offset: i64) -> Option<u32> {
    let at = count_to(bytes, relative_offset);
    (at < len(bytes)).then(|| entry(bytes, at).1)
}

/// The length of the entries that can be believed: both parts grow, offsets stay below `below`, positions below `size`.
pub(super) fn valid(bytes: &[u8], below: i64, size: u64) -> usize {
    let mut count = 0;
    let mut previous = None;
    while count < len(bytes) {
        let (offset, position) = entry(bytes, count);
        let grows = previous.is_none_or(|(o, p)| offset > o && position > p);
        if !grows || i64::from(offset) >= below || u64::from(position) >= size {
            break;
        }
        previous = Some((offset, position));
        count += 1;
    }
    count * ENTRY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_lie_as_kafka_writes_them() {
        // kafka.md appendix A8.
        let mut bytes = Vec::new();
        push(&mut bytes, 41, 0);
        push(&mut bytes, 97, 4200);
        assert_eq!(
            bytes,
            [0, 0, 0, 0x29, 0, 0, 0, 0, 0, 0, 0, 0x61, 0, 0, 0x10, 0x68]
        );
        assert_eq!(last(&bytes), Some((97, 4200)));
    }

    #[test]
    fn the_floor_of_an_offset_is_the_greatest_entry_at_or_below_it() {
        let mut bytes = Vec::new();
        for at in 1..=100u32 {
            push(&mut bytes, at * 10, at * 1000);
        }
        assert_eq!(floor(&bytes, 9), 0);
        assert_eq!(floor(&bytes, 10), 1000);
        assert_eq!(floor(&bytes, 19), 1000);
        assert_eq!(floor(&bytes, 1000), 100_000);
        assert_eq!(floor(&bytes, i64::MAX), 100_000);
        assert_eq!(floor(&[], 5), 0);
    }

    #[test]
    fn half_an_entry_at_the_end_is_not_there() {
        let mut bytes = Vec::new();
        push(&mut bytes, 1, 2);
        bytes.extend_from_slice(&[9; 7]);
        assert_eq!(last(&bytes), Some((1, 2)));
    }

    #[test]
    fn entries_are_believed_as_long_as_they_grow_and_stay_inside() {
        let mut bytes = Vec::new();
        for at in 1..=4u32 {
            push(&mut bytes, at * 10, at * 1000);
        }
        assert_eq!(valid(&bytes, 1000, 10_000), 4 * ENTRY);
        assert_eq!(valid(&bytes, 30, 10_000), 2 * ENTRY);
        assert_eq!(valid(&bytes, 1000, 3000), 2 * ENTRY);
        bytes.extend_from_slice(&[0; 3 * ENTRY]);
        assert_eq!(valid(&bytes, 1000, 10_000), 4 * ENTRY);
    }
}
