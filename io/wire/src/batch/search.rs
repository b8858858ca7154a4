//! Finding a record in a batch by its time (ListOffsets, kafka.md 4.3). A batch is decompressed as far as needed and never held.

use std::io;

use super::header::{BatchHeader, HEADER_LEN, TimestampType};
use super::records::RecordError;
use super::stream::RecordStream;

/// A record's place and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    pub offset: i64,
    pub timestamp_ms: i64,
}

const NO_TIMESTAMP: i64 = -1;

/// The first record at or after `from_offset` whose timestamp is at least `target_ms`.
pub fn offset_for_timestamp(
    batch: &[u8],
    target_ms: i64,
    from_offset: i64,
) -> io::Result<Option<Found>> {
    let header = parse(batch)?;
    if header.max_timestamp < target_ms || header.last_offset() < from_offset {
        return Ok(None);
    }
    first_record(batch, &header, |found| {
        found.offset >= from_offset && found.timestamp_ms >= target_ms
    })
}

/// The first record that has the batch's maximum timestamp; None if no record has a timestamp. Where the broker's clock made
/// the timestamps all records have it, and the batch's base offset stands for them, as in Kafka.
pub fn max_timestamp_record(batch: &[u8]) -> io::Result<Option<Found>> {
    let header = parse(batch)?;
    let max = header.max_timestamp;
    if max == NO_TIMESTAMP {
        return Ok(None);
    }
    match header.timestamp_type() {
        TimestampType::LogAppendTime => Ok(Some(Found {
            offset: header.base_offset,
            timestamp_ms: max,
        })),
        TimestampType::CreateTime => {
            first_record(batch, &header, |found| found.timestamp_ms == max)
        }
    }
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn parse(batch: &[u8]) -> io::Result<BatchHeader> {
    BatchHeader::parse(batch).map_err(invalid)
}

fn first_record(
    batch: &[u8],
    header: &BatchHeader,
    wanted: impl Fn(&Found) -> bool,
) -> io::Result<Option<Found>> {
    let stored = batch
        .get(HEADER_LEN..header.total_len())
        .ok_or_else(|| invalid(RecordError::Truncated))?;
    let codec = header.codec().ok_or_else(unknown_codec)?;
    let mut records = RecordStream::new(codec, stored, header.record_count)?;
    while let Some(record) = records.next()? {
        let found = Found {
            offset: header.offset_of(record.offset_delta),
            timestamp_ms: header.timestamp_of(record.timestamp_delta),
        };
        if wanted(&found) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn unknown_codec() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "unknown compression codec")
}
