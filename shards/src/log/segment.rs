//! One segment: what is known of the active one while it grows, and what is kept of a sealed one.

use corelog_wire::batch::BatchHeader;

use super::offset_index;
use super::time_index::{self, TimeEntry};
use crate::metadata::TopicConfig;

/// A segment that gets no more batches. Its indexes are complete on disk, or on the way there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sealed {
    pub base: i64,
    pub size: u64,
    /// -1 if no batch has a timestamp.
    pub max_timestamp: i64,
    /// When it was written last; stands in for a missing timestamp (L-12).
    pub modified_ms: i64,
}

impl Sealed {
    /// What its age is counted from.
    pub(super) fn largest_timestamp(&self) -> i64 {
        if self.max_timestamp >= 0 {
            self.max_timestamp
        } else {
            self.modified_ms
        }
    }
}

/// The segment that batches are appended to. Its index entries are held in memory; nothing is allocated before the first.
#[derive(Debug)]
pub(super) struct Segment {
    pub base: i64,
    pub size: u64,
    pub created_ms: i64,
    pub modified_ms: i64,
    /// The max timestamp of the first batch, from which `segment.ms` is counted.
    pub first_timestamp: Option<i64>,
    /// -1 before the first timestamp.
    pub max_timestamp: i64,
    /// The last offset of the batch that has it.
    pub max_timestamp_offset: i64,
    /// Bytes appended since the last index entry.
    pub since_entry: u64,
    pub offset_index: Vec<u8>,
    pub time_index: Vec<u8>,
    /// Aborted transactions whose marker is in this segment.
    pub aborted: u64,
}

impl Segment {
    pub(super) fn new(base: i64, wall_ms: i64) -> Segment {
        Segment {
            base,
            size: 0,
            created_ms: wall_ms,
            modified_ms: wall_ms,
            first_timestamp: None,
            max_timestamp: -1,
            max_timestamp_offset: -1,
            since_entry: 0,
            offset_index: Vec::new(),
            time_index: Vec::new(),
            aborted: 0,
        }
    }

    /// Takes over a batch that lies at the end (kafka.md 5.2): an index entry is due when more than `interval_bytes` were appended
    /// since the last, and it is the new batch's.
    pub(super) fn add(&mut self, header: &BatchHeader, interval_bytes: u32) {
        self.note_timestamp(header);
        if self.since_entry > u64::from(interval_bytes) {
            let relative = self.relative(header.last_offset());
            offset_index::push(&mut self.offset_index, relative, self.size as u32);
            self.note_max_timestamp();
            self.since_entry = 0;
        }
        self.size += header.total_len() as u64;
        self.since_entry += header.total_len() as u64;
    }

    /// Takes over a batch whose index entry is there already.
    pub(super) fn add_indexed(&mut self, header: &BatchHeader) {
        self.note_timestamp(header);
        self.size += header.total_len() as u64;
        self.since_entry = header.total_len() as u64;
    }

    fn note_timestamp(&mut self, header: &BatchHeader) {
        if self.size == 0 {
            self.first_timestamp = Some(header.max_timestamp);
        }
        if header.max_timestamp > self.max_timestamp {
            self.max_timestamp = header.max_timestamp;
            self.max_timestamp_offset = header.last_offset();
        }
    }

    /// Adds the largest timestamp so far to the time index, as Kafka does with each offset entry and when a segment is closed.
    pub(super) fn note_max_timestamp(&mut self) {
        let entry = TimeEntry {
            timestamp: self.max_timestamp,
            relative_offset: self.relative(self.max_timestamp_offset),
        };
        time_index::push_if_later(&mut self.time_index, entry);
    }

    fn relative(&self, offset: i64) -> u32 {
        // A segment spans at most i32::MAX offsets (see `must_roll`); before the first timestamp the value is not used.
        (offset - self.base) as u32
    }

    /// L-2, all but the clock.
    pub(super) fn must_roll(&self, header: &BatchHeader, config: &TopicConfig) -> bool {
        let offsets_max = (config.segment_index_bytes as usize / offset_index::ENTRY).max(1);
        let times_max = (config.segment_index_bytes as usize / time_index::ENTRY).max(2);
        self.size + header.total_len() as u64 > u64::from(config.segment_bytes)
            || header.last_offset() - self.base > i64::from(i32::MAX)
            || offset_index::len(&self.offset_index) >= offsets_max
            // The last entry is kept free for the one that is written when the segment is closed.
            || time_index::len(&self.time_index) >= times_max - 1
    }

    /// L-2: has the segment been open for longer than `segment.ms`, less its jitter?
    pub(super) fn is_old(&self, header: &BatchHeader, wall_ms: i64, segment_ms: i64) -> bool {
        let age = match self.first_timestamp {
            Some(first) if first >= 0 => header.max_timestamp.saturating_sub(first),
            _ => wall_ms.saturating_sub(self.created_ms),
        };
        self.size > 0 && age > segment_ms
    }

    /// Batches that end at or above this offset begin within the last `bytes` of the segment; all of them, if it is not larger.
    pub(super) fn near_from(&self, bytes: u64) -> Option<i64> {
        let far = self.size.checked_sub(bytes).filter(|far| *far > 0)?;
        let relative = offset_index::first_from(&self.offset_index, far);
        Some(relative.map_or(i64::MAX, |relative| self.base + i64::from(relative)))
    }

    pub(super) fn sealed(&self) -> Sealed {
        Sealed {
            base: self.base,
            size: self.size,
            max_timestamp: self.max_timestamp,
            modified_ms: self.modified_ms,
        }
    }
}
