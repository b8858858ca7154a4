//! What the leader checks of a client's batch before it appends it (kafka.md 3.3, steps 2 to 6).
//!
//! Records are walked once and never copied; compressed ones are decompressed piece by piece, so that a small batch that inflates without end costs
//! time but no memory.

use std::io::{BufReader, Read};

use bytes::{Bytes, BytesMut};

use super::builder::{BatchBuilder, NewRecord};
use super::header::{BatchHeader, HEADER_LEN, TimestampType, set_max_timestamp, verify_crc};
use super::records::RecordIter;
use crate::compress::{self, Codec};

/// The topic's rules. Times in milliseconds since the epoch.
#[derive(Debug, Clone, Copy)]
pub struct ValidationParams {
    pub now_ms: i64,
    pub timestamp_type: TimestampType,
    pub before_max_ms: i64,
    pub after_max_ms: i64,
    /// Every record needs a key.
    pub compacted: bool,
    /// The codec the topic asks for, with its level; `None` keeps the producer's.
    pub target: Option<(Codec, i32)>,
    /// `max.message.bytes`, for the whole batch with its header.
    pub max_batch_bytes: usize,
    /// Produce v7 and later may bring zstd (P-2).
    pub zstd_allowed: bool,
}

/// A batch that may be appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validated {
    /// The header as it will be appended, but for base offset and leader epoch.
    pub header: BatchHeader,
    pub action: Action,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Append the bytes as they came.
    InPlace,
    /// Append these instead: timestamps or compression had to change.
    Rewritten(Bytes),
}

/// One wrong record: (index in the batch, what is wrong).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordProblem {
    pub index: i32,
    pub message: &'static str,
}

/// Why a batch is refused; each kind is one of Kafka's error codes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InvalidBatch {
    /// CORRUPT_MESSAGE
    Corrupt(&'static str),
    /// INVALID_RECORD
    Invalid {
        message: &'static str,
        records: Vec<RecordProblem>,
    },
    /// INVALID_TIMESTAMP
    Timestamp {
        message: &'static str,
        records: Vec<RecordProblem>,
    },
    /// UNSUPPORTED_COMPRESSION_TYPE
    Compression(&'static str),
    /// MESSAGE_TOO_LARGE
    TooLarge { bytes: usize, max: usize },
}

const NO_TIMESTAMP: i64 = -1;

fn invalid(message: &'static str) -> InvalidBatch {
    InvalidBatch::Invalid {
        message,
        records: Vec::new(),
    }
}

/// Checks the one batch that a client sent for a partition. `batch` is exactly that batch.
pub fn validate_records(
    batch: &Bytes,
    params: &ValidationParams,
) -> Result<Validated, InvalidBatch> {
    let header = BatchHeader::parse(batch).map_err(|error| match error {
        super::BatchError::OldMagic(_) => invalid("Produce requests with version 3 are only allowed to contain record batches with magic version 2"),
        _ => InvalidBatch::Corrupt("not a record batch"),
    })?;
    if header.total_len() != batch.len() {
        return Err(invalid(
            "Produce requests are only allowed to contain exactly one record batch per partition",
        ));
    }
    if batch.len() > params.max_batch_bytes {
        return Err(InvalidBatch::TooLarge {
            bytes: batch.len(),
            max: params.max_batch_bytes,
        });
    }
    if !verify_crc(batch) {
        return Err(InvalidBatch::Corrupt(
            "Record is corrupt (stored crc does not match)",
        ));
    }
    check_header(&header, params)?;
    let codec = header
        .codec()
        .ok_or(InvalidBatch::Compression("unknown compression codec"))?;
    if codec == Codec::Zstd && !params.zstd_allowed {
        return Err(InvalidBatch::Compression(
            "Produce requests with version lower than 7 may not use zstd",
        ));
    }
    let mut walk = Walk::new(&header, params);
    let records = &batch[HEADER_LEN..];
    if codec == Codec::None {
        for record in RecordIter::new(records, header.record_count as usize) {
            let record = record.map_err(|_| invalid("a record is malformed"))?;
            walk.record(
                record.offset_delta,
                record.timestamp_delta,
                record.key.is_some(),
            );
        }
    } else {
        walk_compressed(codec, records, &header, &mut walk)?;
    }
    walk.finish()?;
    rewrite_if_needed(batch, header, codec, walk.max_timestamp, params)
}

fn check_header(header: &BatchHeader, params: &ValidationParams) -> Result<(), InvalidBatch> {
    if header.base_offset != 0 {
        return Err(invalid(
            "the base offset of a record batch from a client must be 0",
        ));
    }
    if header.record_count <= 0 {
        return Err(invalid("a record batch must hold at least one record"));
    }
    if header.last_offset_delta != header.record_count - 1 {
        return Err(invalid(
            "the offsets of a record batch do not match its count of records",
        ));
    }
    if header.has_producer() && header.base_sequence < 0 {
        return Err(invalid(
            "an idempotent producer's record batch must have a sequence",
        ));
    }
    if header.is_control() {
        return Err(invalid("clients are not allowed to write control records"));
    }
    if header.timestamp_type() == TimestampType::LogAppendTime
        && params.timestamp_type == TimestampType::CreateTime
    {
        return Err(InvalidBatch::Timestamp {
            message: "clients are not allowed to set the timestamp type to LogAppendTime",
            records: Vec::new(),
        });
    }
    Ok(())
}

/// Checks record by record.
struct Walk<'a> {
    params: &'a ValidationParams,
    base_timestamp: i64,
    create_time: bool,
    index: i32,
    max_timestamp: i64,
    timestamps: Vec<RecordProblem>,
    others: Vec<RecordProblem>,
}

impl<'a> Walk<'a> {
    fn new(header: &BatchHeader, params: &'a ValidationParams) -> Walk<'a> {
        Walk {
            params,
            base_timestamp: header.base_timestamp,
            create_time: params.timestamp_type == TimestampType::CreateTime,
            index: 0,
            max_timestamp: NO_TIMESTAMP,
            timestamps: Vec::new(),
            others: Vec::new(),
        }
    }

    #[inline]
    fn record(&mut self, offset_delta: i32, timestamp_delta: i64, has_key: bool) {
        let index = self.index;
        self.index += 1;
        if offset_delta != index {
            self.others.push(RecordProblem {
                index,
                message: "the offsets of a record batch must be consecutive",
            });
        } else if self.params.compacted && !has_key {
            self.others.push(RecordProblem {
                index,
                message: "Compacted topic cannot accept message without key",
            });
        }
        let timestamp = self.base_timestamp.saturating_add(timestamp_delta);
        self.max_timestamp = self.max_timestamp.max(timestamp);
        if self.create_time && !self.timestamp_is_allowed(timestamp) {
            self.timestamps.push(RecordProblem {
                index,
                message: "Timestamp is out of range",
            });
        }
    }

    #[inline]
    fn timestamp_is_allowed(&self, timestamp: i64) -> bool {
        let now = self.params.now_ms;
        timestamp == NO_TIMESTAMP
            || (timestamp >= now.saturating_sub(self.params.before_max_ms)
                && timestamp <= now.saturating_add(self.params.after_max_ms))
    }

    /// All problems are timestamps: 32; else 87 (3.3 step 6).
    fn finish(&mut self) -> Result<(), InvalidBatch> {
        if self.others.is_empty() && self.timestamps.is_empty() {
            return Ok(());
        }
        let timestamps = std::mem::take(&mut self.timestamps);
        let message = "One or more records have been rejected";
        if self.others.is_empty() {
            return Err(InvalidBatch::Timestamp {
                message,
                records: timestamps,
            });
        }
        let mut records = std::mem::take(&mut self.others);
        records.extend(timestamps);
        records.sort_unstable_by_key(|problem| problem.index);
        Err(InvalidBatch::Invalid { message, records })
    }
}

/// Walks compressed records without keeping keys and values.
fn walk_compressed(
    codec: Codec,
    records: &[u8],
    header: &BatchHeader,
    walk: &mut Walk<'_>,
) -> Result<(), InvalidBatch> {
    let corrupt = |_| InvalidBatch::Corrupt("compressed records can't be read");
    let reader = compress::reader(codec, records).map_err(corrupt)?;
    let mut stream = Stream {
        reader: BufReader::with_capacity(STREAM_BYTES, reader),
    };
    for _ in 0..header.record_count {
        let (offset_delta, timestamp_delta, has_key) = stream.record()?;
        walk.record(offset_delta, timestamp_delta, has_key);
    }
    if stream.is_at_end()? {
        Ok(())
    } else {
        Err(invalid("bytes follow the last record"))
    }
}

/// Decompressed bytes held at a time.
const STREAM_BYTES: usize = 16 << 10;

struct Stream<R: Read> {
    reader: BufReader<R>,
}

impl<R: Read> Stream<R> {
    fn byte(&mut self) -> Result<u8, InvalidBatch> {
        let mut byte = [0];
        self.reader
            .read_exact(&mut byte)
            .map_err(|_| InvalidBatch::Corrupt("compressed records can't be read"))?;
        Ok(byte[0])
    }

    fn varlong(&mut self, left: &mut i64) -> Result<i64, InvalidBatch> {
        let mut value = 0u64;
        for index in 0..10 {
            let byte = self.byte()?;
            *left -= 1;
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        Err(invalid("a record is malformed"))
    }

    fn skip(&mut self, bytes: i64, left: &mut i64) -> Result<(), InvalidBatch> {
        *left -= bytes;
        if bytes < 0 || *left < 0 {
            return Err(invalid("a record is malformed"));
        }
        let skipped = std::io::copy(
            &mut self.reader.by_ref().take(bytes as u64),
            &mut std::io::sink(),
        );
        match skipped {
            Ok(skipped) if skipped == bytes as u64 => Ok(()),
            _ => Err(InvalidBatch::Corrupt("compressed records can't be read")),
        }
    }

    fn nullable(&mut self, left: &mut i64) -> Result<bool, InvalidBatch> {
        match self.varlong(left)? {
            -1 => Ok(false),
            length => self.skip(length, left).map(|()| true),
        }
    }

    /// Offset delta, timestamp delta, has a key.
    fn record(&mut self) -> Result<(i32, i64, bool), InvalidBatch> {
        let mut ignored = 0;
        let mut left = self.varlong(&mut ignored)?;
        if left <= 0 {
            return Err(invalid("a record is malformed"));
        }
        self.byte()?;
        left -= 1;
        let timestamp_delta = self.varlong(&mut left)?;
        let offset_delta = self.varlong(&mut left)?;
        let has_key = self.nullable(&mut left)?;
        self.nullable(&mut left)?;
        let headers = self.varlong(&mut left)?;
        if headers < 0 || headers > left {
            return Err(invalid("a record is malformed"));
        }
        for _ in 0..headers {
            if !self.nullable(&mut left)? {
                return Err(invalid("a header has no key"));
            }
            self.nullable(&mut left)?;
        }
        if left != 0 {
            return Err(invalid("a record is malformed"));
        }
        let offset_delta =
            i32::try_from(offset_delta).map_err(|_| invalid("a record is malformed"))?;
        Ok((offset_delta, timestamp_delta, has_key))
    }

    fn is_at_end(&mut self) -> Result<bool, InvalidBatch> {
        let mut byte = [0];
        match self.reader.read(&mut byte) {
            Ok(0) => Ok(true),
            Ok(_) => Ok(false),
            Err(_) => Err(InvalidBatch::Corrupt("compressed records can't be read")),
        }
    }
}

/// Brings timestamps and codec to what the topic asks (3.3 steps 4 and 5). The checksum changes only if a value does.
fn rewrite_if_needed(
    batch: &Bytes,
    mut header: BatchHeader,
    codec: Codec,
    true_max: i64,
    params: &ValidationParams,
) -> Result<Validated, InvalidBatch> {
    let max_timestamp = match params.timestamp_type {
        TimestampType::CreateTime => true_max,
        TimestampType::LogAppendTime => params.now_ms,
    };
    let stamped =
        header.max_timestamp != max_timestamp || header.timestamp_type() != params.timestamp_type;
    if let Some((target, level)) = params.target.filter(|(target, _)| *target != codec) {
        header.max_timestamp = max_timestamp;
        header.set_timestamp_type(params.timestamp_type);
        let bytes = recompress(batch, &header, codec, target, level, params)?;
        let header =
            BatchHeader::parse(&bytes).map_err(|_| InvalidBatch::Corrupt("not a record batch"))?;
        return Ok(Validated {
            header,
            action: Action::Rewritten(bytes),
        });
    }
    if !stamped {
        return Ok(Validated {
            header,
            action: Action::InPlace,
        });
    }
    let mut copy = BytesMut::from(&batch[..]);
    set_max_timestamp(&mut copy, params.timestamp_type, max_timestamp);
    let header =
        BatchHeader::parse(&copy).map_err(|_| InvalidBatch::Corrupt("not a record batch"))?;
    Ok(Validated {
        header,
        action: Action::Rewritten(copy.freeze()),
    })
}

/// Decompressed records of one batch are at most this many times `max.message.bytes`, when the topic's codec forces them to be held.
const INFLATION_MAX: usize = 64;

fn recompress(
    batch: &Bytes,
    header: &BatchHeader,
    codec: Codec,
    target: Codec,
    level: i32,
    params: &ValidationParams,
) -> Result<Bytes, InvalidBatch> {
    let limit = params.max_batch_bytes.saturating_mul(INFLATION_MAX);
    let records = compress::decompress(codec, &batch[HEADER_LEN..], limit)
        .map_err(|_| InvalidBatch::Corrupt("compressed records can't be read"))?;
    let mut header = *header;
    header.set_codec(target);
    let bytes = BatchBuilder::seal(header, &records, target, level).map_err(|_| {
        InvalidBatch::Compression("the records can't be compressed as compression.type asks")
    })?;
    if bytes.len() > params.max_batch_bytes {
        return Err(InvalidBatch::TooLarge {
            bytes: bytes.len(),
            max: params.max_batch_bytes,
        });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    const NOW: i64 = 1_700_000_000_000;

    fn params() -> ValidationParams {
        ValidationParams {
            now_ms: NOW,
            timestamp_type: TimestampType::CreateTime,
            before_max_ms: i64::MAX,
            after_max_ms: 3_600_000,
            compacted: false,
            target: None,
            max_batch_bytes: 1_048_588,
            zstd_allowed: true,
        }
    }

    fn batch(codec: Codec, timestamps: &[i64]) -> Bytes {
        let mut builder = BatchBuilder::new(codec);
        for (index, timestamp) in timestamps.iter().enumerate() {
            let value = [index as u8; 40];
            builder.add(&NewRecord {
                timestamp_ms: *timestamp,
                key: Some(b"key"),
                value: Some(&value),
                headers: &[("h", None)],
            });
        }
        builder.build().unwrap()
    }

    #[test]
    fn a_good_batch_is_appended_as_it_came() {
        for codec in Codec::ALL {
            let bytes = batch(codec, &[NOW, NOW + 5, NOW - 3]);
            let validated = validate_records(&bytes, &params()).unwrap();
            assert_eq!(validated.action, Action::InPlace, "{codec:?}");
            assert_eq!(validated.header.max_timestamp, NOW + 5);
        }
    }

    #[test]
    fn a_flipped_byte_makes_a_batch_corrupt() {
        let mut bytes = BytesMut::from(&batch(Codec::None, &[NOW])[..]);
        bytes[70] ^= 1;
        assert!(matches!(
            validate_records(&bytes.freeze(), &params()),
            Err(InvalidBatch::Corrupt(_))
        ));
    }

    #[test]
    fn two_batches_for_one_partition_are_refused() {
        let one = batch(Codec::None, &[NOW]);
        let two = [one.clone(), one].concat();
        assert!(matches!(
            validate_records(&two.into(), &params()),
            Err(InvalidBatch::Invalid { .. })
        ));
    }

    #[test]
    fn a_timestamp_too_far_ahead_names_its_record() {
        let bytes = batch(Codec::Gzip, &[NOW, NOW + 3_600_001]);
        let Err(InvalidBatch::Timestamp { records, .. }) = validate_records(&bytes, &params())
        else {
            panic!("accepted")
        };
        assert_eq!(
            records
                .iter()
                .map(|problem| problem.index)
                .collect::<Vec<_>>(),
            [1]
        );
    }

    #[test]
    fn a_compacted_topic_wants_keys() {
        let mut builder = BatchBuilder::new(Codec::None);
        builder.add(&NewRecord {
            timestamp_ms: NOW,
            key: None,
            value: Some(b"v"),
            headers: &[],
        });
        let strict = ValidationParams {
            compacted: true,
            ..params()
        };
        assert!(matches!(
            validate_records(&builder.build().unwrap(), &strict),
            Err(InvalidBatch::Invalid { .. })
        ));
    }

    #[test]
    fn append_time_is_stamped_and_the_checksum_is_right() {
        let stamp = ValidationParams {
            timestamp_type: TimestampType::LogAppendTime,
            ..params()
        };
        let validated = validate_records(&batch(Codec::Lz4, &[5]), &stamp).unwrap();
        let Action::Rewritten(bytes) = validated.action else {
            panic!("not stamped")
        };
        assert!(verify_crc(&bytes));
        assert_eq!(
            (
                validated.header.max_timestamp,
                validated.header.timestamp_type()
            ),
            (NOW, TimestampType::LogAppendTime)
        );
    }

    #[test]
    fn the_topics_codec_wins() {
        for from in Codec::ALL {
            for to in Codec::ALL {
                let wanted = ValidationParams {
                    target: Some((to, to.default_level())),
                    ..params()
                };
                let validated = validate_records(&batch(from, &[NOW, NOW + 1]), &wanted).unwrap();
                assert_eq!(validated.header.codec(), Some(to));
                if let Action::Rewritten(bytes) = validated.action {
                    assert_eq!(
                        validate_records(&bytes, &params()).unwrap().action,
                        Action::InPlace
                    );
                }
            }
        }
    }

    #[test]
    fn a_batch_that_inflates_without_end_is_walked_in_little_memory() {
        let value = vec![0u8; 50 << 20];
        let mut builder = BatchBuilder::new(Codec::Zstd);
        builder.add(&NewRecord {
            timestamp_ms: NOW,
            key: None,
            value: Some(&value),
            headers: &[],
        });
        let bytes = builder.build().unwrap();
        assert!(bytes.len() < 100_000);
        assert_eq!(
            validate_records(&bytes, &params()).unwrap().action,
            Action::InPlace
        );
    }
}
