//! What the leader checks of a client's batch before it appends it (kafka.md 3.3, steps 2 to 6).
//!
//! Records are walked once and never copied; compressed ones are decompressed piece by piece, so that a small batch that inflates without end costs
//! time but no memory.

use bytes::{Bytes, BytesMut};

use super::header::{BatchHeader, HEADER_LEN, TimestampType, set_max_timestamp, verify_crc};
use super::records::RecordIter;
use super::rewrite::{check_size, rewrite};
use super::stream::{RecordStream, StreamError};
use crate::compress::Codec;

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
    check_size(batch.len(), params.max_batch_bytes)?;
    if !verify_crc(batch) {
        return Err(InvalidBatch::Corrupt(
            "Record is corrupt (stored crc does not match)",
        ));
    }
    check_header(&header)?;
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
        let mut records = RecordStream::new(codec, records, header.record_count)?;
        while let Some(record) = records.next()? {
            walk.record(record.offset_delta, record.timestamp_delta, record.has_key);
        }
    }
    walk.finish()?;
    rewrite_if_needed(batch, header, codec, &walk, params)
}

fn check_header(header: &BatchHeader) -> Result<(), InvalidBatch> {
    if header.base_offset != 0 {
        return Err(invalid(
            "The baseOffset of the record batch in the append should be 0",
        ));
    }
    if header.record_count <= 0 {
        return Err(invalid("Invalid reported count for record batch"));
    }
    if header.last_offset_delta != header.record_count - 1 {
        return Err(invalid(
            "Inconsistent batch offset range and count of records",
        ));
    }
    if header.has_producer() && header.base_sequence < 0 {
        return Err(invalid(
            "Invalid sequence number in record batch with producerId",
        ));
    }
    if header.is_control() {
        return Err(invalid("Clients are not allowed to write control records"));
    }
    if header.timestamp_type() == TimestampType::LogAppendTime {
        return Err(InvalidBatch::Timestamp {
            message: "Invalid timestamp type in message. Producer should not set timestamp type to LogAppendTime.",
            records: Vec::new(),
        });
    }
    Ok(())
}

/// Wrong records that are reported one by one. Compressed batches can hold millions of them: more would let a small request
/// ask for a huge answer, fewer would hide records that a person wants to see.
const PROBLEMS_MAX: usize = 1000;

/// Checks record by record.
struct Walk<'a> {
    params: &'a ValidationParams,
    base_timestamp: i64,
    /// What timestamps are allowed, both included.
    earliest: i64,
    latest: i64,
    index: i32,
    max_timestamp: i64,
    /// Whether the offset deltas are 0, 1, 2 and so on.
    consecutive: bool,
    /// Whether a wrong timestamp is among the problems.
    timestamp: bool,
    problems: Vec<RecordProblem>,
}

impl<'a> Walk<'a> {
    fn new(header: &BatchHeader, params: &'a ValidationParams) -> Walk<'a> {
        let (earliest, latest) = match params.timestamp_type {
            TimestampType::CreateTime => (
                params.now_ms.saturating_sub(params.before_max_ms),
                params.now_ms.saturating_add(params.after_max_ms),
            ),
            TimestampType::LogAppendTime => (i64::MIN, i64::MAX),
        };
        Walk {
            params,
            base_timestamp: header.base_timestamp,
            earliest,
            latest,
            index: 0,
            max_timestamp: NO_TIMESTAMP,
            consecutive: true,
            timestamp: false,
            problems: Vec::new(),
        }
    }

    #[inline]
    fn record(&mut self, offset_delta: i32, timestamp_delta: i64, has_key: bool) {
        let timestamp = self.base_timestamp.wrapping_add(timestamp_delta);
        let in_time =
            (self.earliest..=self.latest).contains(&timestamp) || timestamp == NO_TIMESTAMP;
        let keyed = has_key || !self.params.compacted;
        if !(in_time && keyed) {
            self.refuse(keyed);
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.consecutive &= offset_delta == self.index;
        self.index += 1;
    }

    /// A record has one problem; Kafka looks at its key first.
    #[cold]
    fn refuse(&mut self, keyed: bool) {
        self.timestamp |= keyed;
        if self.problems.len() == PROBLEMS_MAX {
            return;
        }
        self.problems.push(RecordProblem {
            index: self.index,
            message: if keyed {
                "Timestamp of message is out of range"
            } else {
                "Compacted topic cannot accept message without key"
            },
        });
    }

    /// One wrong timestamp makes it 32, else it is 87. (The row of 3.3 step 6 says that all must be timestamps; Kafka 4.3.1's
    /// `LogValidator` asks for any.)
    fn finish(&mut self) -> Result<(), InvalidBatch> {
        if self.problems.is_empty() {
            return Ok(());
        }
        let records = std::mem::take(&mut self.problems);
        Err(if self.timestamp {
            let message = "One or more records have been rejected due to invalid timestamp";
            InvalidBatch::Timestamp { message, records }
        } else {
            let message = "One or more records have been rejected";
            InvalidBatch::Invalid { message, records }
        })
    }
}

/// The producer's own bytes are at fault, the checksum says so: sending them again would not help, so this is not
/// CORRUPT_MESSAGE, which makes clients retry.
impl From<StreamError> for InvalidBatch {
    fn from(error: StreamError) -> InvalidBatch {
        match error {
            StreamError::Record(_) => invalid("a record is malformed"),
            StreamError::Codec(_) => invalid("the compressed records cannot be read"),
        }
    }
}

/// Brings timestamps, codec and offset deltas to what they must be (3.3 steps 3 to 5). The checksum changes only if a
/// value does.
fn rewrite_if_needed(
    batch: &Bytes,
    mut header: BatchHeader,
    codec: Codec,
    walk: &Walk<'_>,
    params: &ValidationParams,
) -> Result<Validated, InvalidBatch> {
    let max_timestamp = match params.timestamp_type {
        TimestampType::CreateTime => walk.max_timestamp,
        TimestampType::LogAppendTime => params.now_ms,
    };
    let stamped =
        header.max_timestamp != max_timestamp || header.timestamp_type() != params.timestamp_type;
    header.max_timestamp = max_timestamp;
    header.set_timestamp_type(params.timestamp_type);
    let target = params.target.filter(|(target, _)| *target != codec);
    let bytes = if target.is_some() || !walk.consecutive {
        let target = target.unwrap_or((codec, codec.default_level()));
        rewrite(batch, &header, codec, target, params.max_batch_bytes)?
    } else if stamped {
        let mut copy = BytesMut::from(&batch[..]);
        set_max_timestamp(&mut copy, params.timestamp_type, max_timestamp);
        copy.freeze()
    } else {
        let action = Action::InPlace;
        return Ok(Validated { header, action });
    };
    Ok(Validated {
        header: BatchHeader::parse(&bytes).expect("a batch that was written here has a header"),
        action: Action::Rewritten(bytes),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::super::builder::{header_room, seal};
    use super::super::header::set_crc;
    use super::super::{BatchBuilder, NewRecord, decoded_records};
    use super::*;
    use crate::compress::Writer;

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

    /// The batch with other bytes at `at` and the checksum that fits.
    fn patched(batch: &Bytes, at: usize, bytes: &[u8]) -> Bytes {
        let mut batch = BytesMut::from(&batch[..]);
        batch[at..at + bytes.len()].copy_from_slice(bytes);
        set_crc(&mut batch);
        batch.freeze()
    }

    fn message(batch: &Bytes, params: &ValidationParams) -> &'static str {
        match validate_records(batch, params) {
            Err(InvalidBatch::Invalid { message, .. }) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_base_offset_from_a_client_is_0() {
        let batch = patched(&batch(Codec::None, &[NOW]), 7, &[1]);
        assert!(message(&batch, &params()).contains("baseOffset"));
    }

    #[test]
    fn offsets_and_count_of_a_batch_agree() {
        let two = batch(Codec::None, &[NOW, NOW]);
        for (at, value) in [(23, 2_i32), (23, 0), (23, -1), (57, 1), (57, 3)] {
            let batch = patched(&two, at, &value.to_be_bytes());
            assert!(message(&batch, &params()).starts_with("Inconsistent"));
        }
        for count in [0, -1, i32::MIN] {
            let batch = patched(&two, 57, &i32::to_be_bytes(count));
            assert!(message(&batch, &params()).contains("count"));
        }
    }

    #[test]
    fn fewer_or_more_records_than_promised_are_refused() {
        for codec in Codec::ALL {
            for promised in [1, 3_i32] {
                let batch = patched(&batch(codec, &[NOW, NOW]), 57, &promised.to_be_bytes());
                let batch = patched(&batch, 23, &(promised - 1).to_be_bytes());
                assert_eq!(message(&batch, &params()), "a record is malformed");
            }
        }
    }

    #[test]
    fn clients_do_not_write_control_records() {
        let batch = patched(&batch(Codec::None, &[NOW]), 22, &[0x20]);
        assert!(message(&batch, &params()).contains("control"));
    }

    #[test]
    fn a_producer_id_comes_with_a_sequence() {
        let idempotent = patched(&batch(Codec::None, &[NOW]), 43, &[0; 10]);
        assert!(message(&idempotent, &params()).contains("sequence"));
        let sequenced = patched(&idempotent, 53, &[0; 4]);
        let validated = validate_records(&sequenced, &params()).unwrap();
        assert_eq!(validated.action, Action::InPlace);
    }

    #[test]
    fn clients_do_not_set_append_time() {
        let batch = patched(&batch(Codec::None, &[NOW]), 22, &[0x08]);
        for timestamp_type in [TimestampType::CreateTime, TimestampType::LogAppendTime] {
            let params = ValidationParams {
                timestamp_type,
                ..params()
            };
            let refused = validate_records(&batch, &params);
            assert!(matches!(refused, Err(InvalidBatch::Timestamp { .. })));
        }
    }

    #[test]
    fn codecs_are_known_and_zstd_needs_a_new_enough_request() {
        let unknown = patched(&batch(Codec::None, &[NOW]), 22, &[5]);
        let old = ValidationParams {
            zstd_allowed: false,
            ..params()
        };
        for (batch, params) in [(unknown, params()), (batch(Codec::Zstd, &[NOW]), old)] {
            let refused = validate_records(&batch, &params);
            assert!(matches!(refused, Err(InvalidBatch::Compression(_))));
        }
        assert!(validate_records(&batch(Codec::Lz4, &[NOW]), &old).is_ok());
    }

    #[test]
    fn old_formats_are_refused_and_unknown_ones_are_corrupt() {
        for magic in [0, 1] {
            let old = patched(&batch(Codec::None, &[NOW]), 16, &[magic]);
            assert!(message(&old, &params()).contains("magic"));
        }
        for magic in [3, 0xff] {
            let unknown = patched(&batch(Codec::None, &[NOW]), 16, &[magic]);
            let refused = validate_records(&unknown, &params());
            assert!(matches!(refused, Err(InvalidBatch::Corrupt(_))));
        }
    }

    #[test]
    fn a_batch_may_have_as_many_bytes_as_the_topic_takes() {
        let batch = batch(Codec::None, &[NOW]);
        let with_max = |max_batch_bytes| ValidationParams {
            max_batch_bytes,
            ..params()
        };
        assert!(validate_records(&batch, &with_max(batch.len())).is_ok());
        let refused = validate_records(&batch, &with_max(batch.len() - 1));
        let (bytes, max) = (batch.len(), batch.len() - 1);
        assert_eq!(refused, Err(InvalidBatch::TooLarge { bytes, max }));
    }

    #[test]
    fn a_batch_that_grows_past_what_the_topic_takes_is_refused() {
        let timestamps = [NOW; 1000];
        let packed = batch(Codec::Zstd, &timestamps);
        let plain = ValidationParams {
            target: Some((Codec::None, 0)),
            max_batch_bytes: 20_000,
            ..params()
        };
        assert!(packed.len() < plain.max_batch_bytes);
        let refused = validate_records(&packed, &plain);
        assert!(matches!(
            refused,
            Err(InvalidBatch::TooLarge { max: 20_000, .. })
        ));
    }

    #[test]
    fn records_without_timestamps_are_accepted_and_stay_so() {
        let strict = ValidationParams {
            before_max_ms: 10,
            ..params()
        };
        let validated = validate_records(&batch(Codec::None, &[-1, -1]), &strict).unwrap();
        assert_eq!(
            (validated.action, validated.header.max_timestamp),
            (Action::InPlace, -1)
        );
    }

    #[test]
    fn timestamps_are_allowed_up_to_both_bounds() {
        let strict = ValidationParams {
            before_max_ms: 10,
            after_max_ms: 20,
            ..params()
        };
        for (timestamp, allowed) in [
            (NOW - 10, true),
            (NOW + 20, true),
            (NOW - 11, false),
            (NOW + 21, false),
            (i64::MIN, false),
            (i64::MAX, false),
        ] {
            let validated = validate_records(&batch(Codec::None, &[timestamp]), &strict);
            assert_eq!(validated.is_ok(), allowed, "{timestamp}");
        }
    }

    #[test]
    fn one_wrong_timestamp_outweighs_missing_keys() {
        let mut builder = BatchBuilder::new(Codec::Snappy);
        for (timestamp_ms, key) in [(NOW, None), (NOW + 4_000_000, Some(&b"k"[..]))] {
            builder.add(&NewRecord {
                timestamp_ms,
                key,
                value: None,
                headers: &[],
            });
        }
        let compacted = ValidationParams {
            compacted: true,
            ..params()
        };
        let refused = validate_records(&builder.build().unwrap(), &compacted);
        let Err(InvalidBatch::Timestamp { records, .. }) = refused else {
            panic!("{refused:?}");
        };
        let indexes: Vec<_> = records.iter().map(|problem| problem.index).collect();
        assert_eq!(indexes, [0, 1]);
    }

    #[test]
    fn the_problems_of_a_huge_batch_are_not_all_listed() {
        let timestamps = vec![NOW + 4_000_000; 5000];
        let refused = validate_records(&batch(Codec::Zstd, &timestamps), &params());
        let Err(InvalidBatch::Timestamp { records, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(records.len(), PROBLEMS_MAX);
    }

    #[test]
    fn a_wrong_maximum_timestamp_is_made_right() {
        for codec in Codec::ALL {
            let right = batch(codec, &[NOW, NOW + 9, NOW]);
            let wrong = patched(&right, 35, &NOW.to_be_bytes());
            let validated = validate_records(&wrong, &params()).unwrap();
            assert_eq!(validated.action, Action::Rewritten(right), "{codec:?}");
        }
    }

    /// Kafka writes such compressed batches again and appends plain ones as they are; here both are written again.
    #[test]
    fn offset_deltas_that_are_not_consecutive_are_made_so() {
        let right = batch(Codec::None, &[NOW, NOW]);
        // Of the second record: behind its length, attributes and timestamp delta.
        let second = HEADER_LEN + (right.len() - HEADER_LEN) / 2;
        assert_eq!(right[second + 3], 2);
        let wrong = patched(&right, second + 3, &[8]);
        for codec in Codec::ALL {
            let mut writer = Writer::new(codec, -1, header_room(BytesMut::new())).unwrap();
            writer.write(&wrong[HEADER_LEN..]).unwrap();
            let mut header = BatchHeader::parse(&wrong).unwrap();
            header.set_codec(codec);
            let wrong = seal(header, writer.finish().unwrap()).unwrap();
            let validated = validate_records(&wrong, &params()).unwrap();
            let Action::Rewritten(bytes) = validated.action else {
                panic!("appended as it is");
            };
            let records = decoded_records(&validated.header, &bytes, 1000).unwrap();
            assert_eq!(records, &right[HEADER_LEN..]);
        }
    }

    #[test]
    fn damaged_compression_under_a_right_checksum_is_not_worth_a_retry() {
        for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let batch = batch(codec, &[NOW; 50]);
            let damaged = patched(&batch, HEADER_LEN + 20, &[0xff; 20]);
            message(&damaged, &params());
        }
    }
}
