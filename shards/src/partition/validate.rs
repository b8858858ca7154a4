//! What may be appended (kafka.md 3.2 P-2, 3.3 steps 2 to 6): the checks are [`corelog_wire::batch`]'s, the rules and Kafka's error codes are put together
//! here.

use bytes::Bytes;
use corelog_wire::batch::{
    self, Action, BatchHeader, InvalidBatch, RecordProblem, ValidationParams,
};
use corelog_wire::compress::Codec;

use crate::base::error_code::ErrorCode;
use crate::base::ids::Text;
use crate::base::time::Now;
use crate::metadata::{CompressionType, TimestampType, TopicConfig};
use crate::part::ProduceErrors;

/// A batch that may be appended.
pub(super) struct Checked {
    pub(super) bytes: Bytes,
    pub(super) header: BatchHeader,
}

/// Why a batch may not be appended.
pub(super) struct Invalid {
    pub(super) code: ErrorCode,
    pub(super) errors: Option<Box<ProduceErrors>>,
}

/// Checks the records field of a client: exactly one batch of the present format, unharmed, and such as a client may send; brought to what the topic's
/// configuration asks.
pub(super) fn client_batch(
    now: Now,
    config: &TopicConfig,
    records: Option<Bytes>,
    zstd: bool,
) -> Result<Checked, Invalid> {
    let bytes = records
        .filter(|bytes| !bytes.is_empty())
        .ok_or_else(no_records)?;
    let bytes = without_partial_batch(bytes);
    if BatchHeader::parse(&bytes).is_ok_and(|header| header.is_transactional()) {
        // Until transactions are built.
        return Err(Invalid {
            code: ErrorCode::UNSUPPORTED_VERSION,
            errors: None,
        });
    }
    let params = ValidationParams {
        now_ms: now.wall_ms,
        timestamp_type: match config.timestamp_type {
            TimestampType::CreateTime => batch::TimestampType::CreateTime,
            TimestampType::LogAppendTime => batch::TimestampType::LogAppendTime,
        },
        before_max_ms: config.timestamp_before_max_ms,
        after_max_ms: config.timestamp_after_max_ms,
        compacted: config.cleanup_policy.compact,
        target: target(config),
        max_batch_bytes: config.max_message_bytes as usize,
        zstd_allowed: zstd,
    };
    let validated = batch::validate_records(&bytes, &params).map_err(refusal)?;
    let bytes = match validated.action {
        Action::InPlace => bytes,
        Action::Rewritten(bytes) => bytes,
    };
    let corrupt = || Invalid {
        code: ErrorCode::CORRUPT_MESSAGE,
        errors: None,
    };
    checked(bytes).ok_or_else(corrupt)
}

/// Takes a batch that this broker has built itself.
pub(super) fn own_batch(config: &TopicConfig, bytes: Bytes) -> Result<Checked, ErrorCode> {
    if bytes.len() > config.max_message_bytes as usize {
        return Err(ErrorCode::MESSAGE_TOO_LARGE);
    }
    checked(bytes).ok_or(ErrorCode::CORRUPT_MESSAGE)
}

fn checked(bytes: Bytes) -> Option<Checked> {
    let header = BatchHeader::parse(&bytes).ok()?;
    Some(Checked { bytes, header })
}

/// Kafka trims a batch that is cut off behind a whole one (3.3 step 2).
fn without_partial_batch(bytes: Bytes) -> Bytes {
    match batch::peek_len(&bytes) {
        Some(first) if first < bytes.len() => {
            let rest = &bytes[first..];
            let is_whole = batch::peek_len(rest).is_some_and(|length| length <= rest.len());
            if is_whole {
                bytes
            } else {
                bytes.slice(..first)
            }
        }
        _ => bytes,
    }
}

/// The codec that the topic forces, with its level (3.3 step 5).
fn target(config: &TopicConfig) -> Option<(Codec, i32)> {
    match config.compression_type {
        CompressionType::Producer => None,
        CompressionType::Uncompressed => Some((Codec::None, 0)),
        CompressionType::Gzip => Some((Codec::Gzip, config.gzip_level)),
        CompressionType::Snappy => Some((Codec::Snappy, 0)),
        CompressionType::Lz4 => Some((Codec::Lz4, config.lz4_level)),
        CompressionType::Zstd => Some((Codec::Zstd, config.zstd_level)),
    }
}

fn no_records() -> Invalid {
    refused(ErrorCode::INVALID_RECORD, "there is no record batch", &[])
}

fn refusal(invalid: InvalidBatch) -> Invalid {
    match invalid {
        InvalidBatch::Corrupt(message) => refused(ErrorCode::CORRUPT_MESSAGE, message, &[]),
        InvalidBatch::Invalid { message, records } => {
            refused(ErrorCode::INVALID_RECORD, message, &records)
        }
        InvalidBatch::Timestamp { message, records } => {
            refused(ErrorCode::INVALID_TIMESTAMP, message, &records)
        }
        InvalidBatch::Compression(message) => {
            refused(ErrorCode::UNSUPPORTED_COMPRESSION_TYPE, message, &[])
        }
        InvalidBatch::TooLarge { .. } => Invalid {
            code: ErrorCode::MESSAGE_TOO_LARGE,
            errors: None,
        },
    }
}

fn refused(code: ErrorCode, message: &'static str, records: &[RecordProblem]) -> Invalid {
    let records = records
        .iter()
        .map(|problem| (problem.index, Some(Text::from_static(problem.message))))
        .collect();
    let errors = ProduceErrors {
        message: Some(Text::from_static(message)),
        records,
    };
    Invalid {
        code,
        errors: Some(Box::new(errors)),
    }
}
