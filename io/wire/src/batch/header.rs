//! The fixed part of a batch.

use crate::compress::Codec;

/// Bytes before the records.
pub const HEADER_LEN: usize = 61;
/// Bytes before what `batchLength` counts.
pub(super) const LENGTH_END: usize = 12;
const EPOCH_AT: usize = 12;
const MAGIC_AT: usize = 16;
const CRC_AT: usize = 17;
const ATTRIBUTES_AT: usize = 21;
const LAST_DELTA_AT: usize = 23;
const BASE_TIMESTAMP_AT: usize = 27;
const MAX_TIMESTAMP_AT: usize = 35;
const PRODUCER_ID_AT: usize = 43;
const PRODUCER_EPOCH_AT: usize = 51;
const BASE_SEQUENCE_AT: usize = 53;
const COUNT_AT: usize = 57;

const CODEC_BITS: i16 = 0x07;
const APPEND_TIME_BIT: i16 = 0x08;
const TRANSACTIONAL_BIT: i16 = 0x10;
const CONTROL_BIT: i16 = 0x20;
const DELETE_HORIZON_BIT: i16 = 0x40;

/// Why bytes are not a batch of magic 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    #[error("{have} bytes are less than a batch header")]
    TooShort { have: usize },
    #[error("the batch length {length} is not possible")]
    Length { length: i32 },
    #[error("the batch has {need} bytes, {have} are there")]
    Truncated { need: usize, have: usize },
    #[error("record format {0} is older than this broker reads")]
    OldMagic(i8),
    #[error("record format {0} is unknown")]
    UnknownMagic(i8),
}

/// `message.timestamp.type`, and bit 3 of the attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimestampType {
    CreateTime,
    LogAppendTime,
}

/// The header of a batch, by Kafka's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    pub base_offset: i64,
    /// Bytes after this field: the whole batch has 12 more.
    pub batch_length: i32,
    pub partition_leader_epoch: i32,
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

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk::<N>().copied()
}

impl BatchHeader {
    /// Reads the header of the batch at the start of `bytes`. The records need not be there; see [`BatchHeader::total_len`].
    pub fn parse(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
        let Some(fixed) = bytes.first_chunk::<HEADER_LEN>() else {
            return Err(BatchError::TooShort { have: bytes.len() });
        };
        match fixed[MAGIC_AT] as i8 {
            2 => {}
            magic @ (0 | 1) => return Err(BatchError::OldMagic(magic)),
            magic => return Err(BatchError::UnknownMagic(magic)),
        }
        let i16_at = |at: usize| i16::from_be_bytes([fixed[at], fixed[at + 1]]);
        let i32_at = |at: usize| {
            i32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]])
        };
        let i64_at = |at: usize| (i64::from(i32_at(at)) << 32) | i64::from(i32_at(at + 4) as u32);
        let batch_length = i32_at(8);
        if batch_length < (HEADER_LEN - LENGTH_END) as i32 {
            return Err(BatchError::Length {
                length: batch_length,
            });
        }
        Ok(BatchHeader {
            base_offset: i64_at(0),
            batch_length,
            partition_leader_epoch: i32_at(EPOCH_AT),
            crc: i32_at(CRC_AT) as u32,
            attributes: i16_at(ATTRIBUTES_AT),
            last_offset_delta: i32_at(LAST_DELTA_AT),
            base_timestamp: i64_at(BASE_TIMESTAMP_AT),
            max_timestamp: i64_at(MAX_TIMESTAMP_AT),
            producer_id: i64_at(PRODUCER_ID_AT),
            producer_epoch: i16_at(PRODUCER_EPOCH_AT),
            base_sequence: i32_at(BASE_SEQUENCE_AT),
            record_count: i32_at(COUNT_AT),
        })
    }

    /// Writes the header, magic included, in front of records that are `batch_length` - 49 bytes long.
    pub fn write(&self, out: &mut [u8; HEADER_LEN]) {
        out[..8].copy_from_slice(&self.base_offset.to_be_bytes());
        out[8..LENGTH_END].copy_from_slice(&self.batch_length.to_be_bytes());
        out[EPOCH_AT..MAGIC_AT].copy_from_slice(&self.partition_leader_epoch.to_be_bytes());
        out[MAGIC_AT] = 2;
        out[CRC_AT..ATTRIBUTES_AT].copy_from_slice(&self.crc.to_be_bytes());
        out[ATTRIBUTES_AT..LAST_DELTA_AT].copy_from_slice(&self.attributes.to_be_bytes());
        out[LAST_DELTA_AT..BASE_TIMESTAMP_AT]
            .copy_from_slice(&self.last_offset_delta.to_be_bytes());
        out[BASE_TIMESTAMP_AT..MAX_TIMESTAMP_AT]
            .copy_from_slice(&self.base_timestamp.to_be_bytes());
        out[MAX_TIMESTAMP_AT..PRODUCER_ID_AT].copy_from_slice(&self.max_timestamp.to_be_bytes());
        out[PRODUCER_ID_AT..PRODUCER_EPOCH_AT].copy_from_slice(&self.producer_id.to_be_bytes());
        out[PRODUCER_EPOCH_AT..BASE_SEQUENCE_AT]
            .copy_from_slice(&self.producer_epoch.to_be_bytes());
        out[BASE_SEQUENCE_AT..COUNT_AT].copy_from_slice(&self.base_sequence.to_be_bytes());
        out[COUNT_AT..].copy_from_slice(&self.record_count.to_be_bytes());
    }

    /// Writes the header over the first bytes of a batch.
    pub(super) fn write_to(&self, batch: &mut [u8]) {
        let room = batch.first_chunk_mut();
        self.write(room.expect("a batch is longer than its header"));
    }

    /// The timestamp of a record of this batch, in milliseconds.
    pub fn timestamp_of(&self, timestamp_delta: i64) -> i64 {
        match self.timestamp_type() {
            TimestampType::CreateTime => self.base_timestamp.wrapping_add(timestamp_delta),
            TimestampType::LogAppendTime => self.max_timestamp,
        }
    }

    /// The offset of a record of this batch.
    pub fn offset_of(&self, offset_delta: i32) -> i64 {
        self.base_offset.wrapping_add(i64::from(offset_delta))
    }

    /// Bytes of the whole batch.
    pub fn total_len(&self) -> usize {
        LENGTH_END + self.batch_length as usize
    }

    pub fn last_offset(&self) -> i64 {
        self.base_offset
            .saturating_add(i64::from(self.last_offset_delta))
    }

    pub fn next_offset(&self) -> i64 {
        self.last_offset().saturating_add(1)
    }

    /// `None` = a codec that does not exist.
    pub fn codec(&self) -> Option<Codec> {
        Codec::from_id((self.attributes & CODEC_BITS) as u8)
    }

    pub fn timestamp_type(&self) -> TimestampType {
        if self.attributes & APPEND_TIME_BIT == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL_BIT != 0
    }

    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL_BIT != 0
    }

    pub fn has_delete_horizon(&self) -> bool {
        self.attributes & DELETE_HORIZON_BIT != 0
    }

    pub fn has_producer(&self) -> bool {
        self.producer_id >= 0
    }

    /// The sequence of the last record, with the wrap at 2^31-1 (3.1); -1 without sequences.
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence < 0 {
            return -1;
        }
        let last = i64::from(self.base_sequence) + i64::from(self.last_offset_delta);
        if last > i64::from(i32::MAX) {
            (last - i64::from(i32::MAX) - 1) as i32
        } else {
            last as i32
        }
    }

    pub fn set_codec(&mut self, codec: Codec) {
        self.attributes = self.attributes & !CODEC_BITS | i16::from(codec.id());
    }

    pub fn set_timestamp_type(&mut self, timestamp_type: TimestampType) {
        match timestamp_type {
            TimestampType::CreateTime => self.attributes &= !APPEND_TIME_BIT,
            TimestampType::LogAppendTime => self.attributes |= APPEND_TIME_BIT,
        }
    }

    pub fn set_transactional(&mut self) {
        self.attributes |= TRANSACTIONAL_BIT;
    }

    pub fn set_control(&mut self) {
        self.attributes |= CONTROL_BIT;
    }
}

/// The length of the batch at the start of `bytes`, magic 0 and 1 included; `None` if its length field is not there or impossible.
pub fn peek_len(bytes: &[u8]) -> Option<usize> {
    let length = i32::from_be_bytes(array(bytes, 8)?);
    usize::try_from(length)
        .ok()
        .filter(|length| *length > 0)
        .map(|length| LENGTH_END + length)
}

pub fn peek_magic(bytes: &[u8]) -> Option<i8> {
    bytes.get(MAGIC_AT).map(|magic| *magic as i8)
}

pub fn peek_base_offset(bytes: &[u8]) -> Option<i64> {
    array(bytes, 0).map(i64::from_be_bytes)
}

/// Of a magic 2 batch.
pub fn peek_last_offset(bytes: &[u8]) -> Option<i64> {
    let delta = i32::from_be_bytes(array(bytes, LAST_DELTA_AT)?);
    Some(peek_base_offset(bytes)?.saturating_add(i64::from(delta)))
}

pub fn peek_leader_epoch(bytes: &[u8]) -> Option<i32> {
    array(bytes, EPOCH_AT).map(i32::from_be_bytes)
}

pub fn peek_max_timestamp(bytes: &[u8]) -> Option<i64> {
    array(bytes, MAX_TIMESTAMP_AT).map(i64::from_be_bytes)
}

/// CRC-32C, which Kafka uses for batches and for producer snapshots.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Is the checksum of this whole batch right?
pub fn verify_crc(batch: &[u8]) -> bool {
    match (array(batch, CRC_AT), batch.get(ATTRIBUTES_AT..)) {
        (Some(crc), Some(covered)) => u32::from_be_bytes(crc) == crc32c::crc32c(covered),
        _ => false,
    }
}

/// Stamps the base offset; the checksum does not cover it. `header` is at least the first 12 bytes.
pub fn set_base_offset(header: &mut [u8], base_offset: i64) {
    header[..8].copy_from_slice(&base_offset.to_be_bytes());
}

/// Stamps the leader epoch; the checksum does not cover it.
pub fn set_leader_epoch(header: &mut [u8], epoch: i32) {
    header[EPOCH_AT..MAGIC_AT].copy_from_slice(&epoch.to_be_bytes());
}

/// Sets timestamp type and maximum timestamp of a whole batch and makes its checksum right again.
pub fn set_max_timestamp(batch: &mut [u8], timestamp_type: TimestampType, max_timestamp: i64) {
    let attributes = i16::from_be_bytes([batch[ATTRIBUTES_AT], batch[ATTRIBUTES_AT + 1]]);
    let attributes = match timestamp_type {
        TimestampType::CreateTime => attributes & !APPEND_TIME_BIT,
        TimestampType::LogAppendTime => attributes | APPEND_TIME_BIT,
    };
    batch[ATTRIBUTES_AT..LAST_DELTA_AT].copy_from_slice(&attributes.to_be_bytes());
    batch[MAX_TIMESTAMP_AT..PRODUCER_ID_AT].copy_from_slice(&max_timestamp.to_be_bytes());
    set_crc(batch);
}

/// Sets the producer and the first sequence of a whole batch and makes its checksum right again.
pub fn set_producer(batch: &mut [u8], id: i64, epoch: i16, base_sequence: i32) {
    batch[PRODUCER_ID_AT..PRODUCER_EPOCH_AT].copy_from_slice(&id.to_be_bytes());
    batch[PRODUCER_EPOCH_AT..BASE_SEQUENCE_AT].copy_from_slice(&epoch.to_be_bytes());
    batch[BASE_SEQUENCE_AT..COUNT_AT].copy_from_slice(&base_sequence.to_be_bytes());
    set_crc(batch);
}

/// Makes the checksum of a whole batch right.
pub(super) fn set_crc(batch: &mut [u8]) {
    let crc = crc32c::crc32c(&batch[ATTRIBUTES_AT..]);
    batch[CRC_AT..ATTRIBUTES_AT].copy_from_slice(&crc.to_be_bytes());
}

/// One step of a [`BatchIter`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walked<'a> {
    /// Where the batch begins.
    pub position: usize,
    pub header: BatchHeader,
    /// The whole batch.
    pub bytes: &'a [u8],
}

/// Walks whole batches of magic 2, one after the other. A batch that is cut off at the end, or is none, ends the walk with an error;
/// [`BatchIter::position`] says where.
#[derive(Debug, Clone)]
pub struct BatchIter<'a> {
    bytes: &'a [u8],
    position: usize,
    failed: bool,
}

impl<'a> BatchIter<'a> {
    pub fn new(bytes: &'a [u8]) -> BatchIter<'a> {
        BatchIter {
            bytes,
            position: 0,
            failed: false,
        }
    }

    /// The end of the last whole batch.
    pub fn position(&self) -> usize {
        self.position
    }
}

impl<'a> Iterator for BatchIter<'a> {
    type Item = Result<Walked<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.position == self.bytes.len() {
            return None;
        }
        let rest = &self.bytes[self.position..];
        let walked =
            BatchHeader::parse(rest).and_then(|header| match rest.get(..header.total_len()) {
                Some(bytes) => Ok(Walked {
                    position: self.position,
                    header,
                    bytes,
                }),
                None => Err(BatchError::Truncated {
                    need: header.total_len(),
                    have: rest.len(),
                }),
            });
        match &walked {
            Ok(walked) => self.position += walked.bytes.len(),
            Err(_) => self.failed = true,
        }
        Some(walked)
    }
}
