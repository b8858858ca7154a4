//! The header of a record batch, until the wire crate's batch module is here: the same fields, and what the log needs of it.

use bytes::{Buf, Bytes};
use corelog_wire::primitives::{DecodeError, Reader};

/// Size of the header.
pub const HEADER: usize = 61;

/// The header of a batch (kafka.md 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    pub base_offset: i64,
    pub batch_length: i32,
    pub partition_leader_epoch: i32,
    pub magic: i8,
    pub crc: u32,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub record_count: i32,
}

impl BatchHeader {
    /// `None` if the bytes end before the header does.
    pub fn parse(mut bytes: &[u8]) -> Option<BatchHeader> {
        (bytes.len() >= HEADER).then(|| BatchHeader {
            base_offset: bytes.get_i64(),
            batch_length: bytes.get_i32(),
            partition_leader_epoch: bytes.get_i32(),
            magic: bytes.get_i8(),
            crc: bytes.get_u32(),
            attributes: bytes.get_i16(),
            last_offset_delta: bytes.get_i32(),
            base_timestamp: bytes.get_i64(),
            max_timestamp: bytes.get_i64(),
            producer_id: bytes.get_i64(),
            producer_epoch: bytes.get_i16(),
            base_sequence: bytes.get_i32(),
            record_count: bytes.get_i32(),
        })
    }

    /// Of the whole batch; only for headers whose length is not negative.
    pub fn size(&self) -> usize {
        self.batch_length as usize + 12
    }

    pub fn last_offset(&self) -> i64 {
        self.base_offset + i64::from(self.last_offset_delta)
    }

    pub fn is_transactional(&self) -> bool {
        self.attributes & (1 << 4) != 0
    }

    pub fn is_control(&self) -> bool {
        self.attributes & (1 << 5) != 0
    }

    /// Sequences wrap from i32::MAX to 0.
    pub fn last_sequence(&self) -> i32 {
        let last = i64::from(self.base_sequence) + i64::from(self.last_offset_delta);
        (last % (i64::from(i32::MAX) + 1)) as i32
    }
}

pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

pub(super) fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

/// (offset, timestamp) of the first record of an uncompressed batch with this timestamp or a later one, at or above `from`.
pub(super) fn offset_for_timestamp(batch: &Bytes, timestamp: i64, from: i64) -> Option<(i64, i64)> {
    let header = BatchHeader::parse(batch)?;
    let mut reader = Reader::new(batch.slice(HEADER..));
    for _ in 0..header.record_count {
        let (delta, offset_delta) = next_record(&mut reader).ok()?;
        let is_append_time = header.attributes & (1 << 3) != 0;
        let (offset, found) = (
            header.base_offset + i64::from(offset_delta),
            if is_append_time {
                header.max_timestamp
            } else {
                header.base_timestamp + delta
            },
        );
        if found >= timestamp && offset >= from {
            return Some((offset, found));
        }
    }
    None
}

fn next_record(reader: &mut Reader) -> Result<(i64, i32), DecodeError> {
    let len = usize::try_from(reader.varint()?).unwrap_or(0);
    let mut record = Reader::new(reader.raw(len)?);
    record.i8()?;
    Ok((record.varlong()?, record.varint()?))
}
