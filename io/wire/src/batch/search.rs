//! Finding a record in a batch by its time (ListOffsets, kafka.md 4.3).

use std::io;

use super::header::{BatchHeader, TimestampType};
use super::records::{RecordIter, decoded_records};

/// A record's place and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    pub offset: i64,
    pub timestamp_ms: i64,
}

/// A batch is inflated whole for a search by time; more than this is not a batch that a broker let in.
const INFLATED_BYTES_MAX: usize = 256 << 20;

/// The first record whose timestamp is at least `target_ms`.
pub fn offset_for_timestamp(batch: &[u8], target_ms: i64) -> io::Result<Option<Found>> {
    first_at(batch, target_ms)
}

/// The first record that has the batch's maximum timestamp.
pub fn max_timestamp_record(batch: &[u8]) -> io::Result<Option<Found>> {
    let header = parse(batch)?;
    first_at(batch, header.max_timestamp)
}

fn parse(batch: &[u8]) -> io::Result<BatchHeader> {
    BatchHeader::parse(batch).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn first_at(batch: &[u8], target_ms: i64) -> io::Result<Option<Found>> {
    let header = parse(batch)?;
    if header.max_timestamp < target_ms {
        return Ok(None);
    }
    let records = decoded_records(&header, batch, INFLATED_BYTES_MAX)?;
    for record in RecordIter::new(&records, usize::try_from(header.record_count).unwrap_or(0)) {
        let record = record.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let timestamp_ms = match header.timestamp_type() {
            TimestampType::LogAppendTime => header.max_timestamp,
            TimestampType::CreateTime => {
                header.base_timestamp.saturating_add(record.timestamp_delta)
            }
        };
        if timestamp_ms >= target_ms {
            return Ok(Some(Found {
                offset: header.base_offset + i64::from(record.offset_delta),
                timestamp_ms,
            }));
        }
    }
    Ok(None)
}
