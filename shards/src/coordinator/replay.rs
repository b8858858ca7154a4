//! From the bytes of a coordinator's log to its records, and back.
//!
//! Control records and batches of transactions are told apart for the machine; a record that can't be read is the machine's business too
//! (it may come from a newer broker: G-5).

use bytes::Bytes;
use corelog_wire::batch::{BatchBuilder, BatchIter, NewRecord, RecordIter, decoded_records};
use corelog_wire::compress::Codec;

/// A record to be appended, or one that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub key: Bytes,
    /// `None` = the key is deleted.
    pub value: Option<Bytes>,
}

/// Memory that a compressed batch may unfold to while it is replayed.
const BATCH_BYTES_MAX: usize = 64 << 20;

/// Why a log can't be replayed.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("batch at offset {offset}: {source}")]
    Records { offset: i64, source: std::io::Error },
    #[error("no whole batch after offset {offset}")]
    Batch { offset: i64 },
}

/// Hands every record of `bytes` (whole batches) from offset `from` on to `each`; gives the offset after the last one.
pub fn records_of(
    bytes: &[u8],
    from: i64,
    mut each: impl FnMut(Record),
) -> Result<i64, Unreadable> {
    let mut next = from;
    for walked in BatchIter::new(bytes) {
        let walked = walked.map_err(|_| Unreadable::Batch { offset: next })?;
        let header = &walked.header;
        if header.next_offset() <= from {
            continue;
        }
        next = header.next_offset();
        // Pending offsets of transactions come with the transaction coordinator (G-6); until then nothing writes them.
        if header.is_control() || header.is_transactional() {
            continue;
        }
        let unreadable = |source| Unreadable::Records {
            offset: header.base_offset,
            source,
        };
        let records = decoded_records(header, walked.bytes, BATCH_BYTES_MAX).map_err(unreadable)?;
        let count = usize::try_from(header.record_count).unwrap_or(0);
        for record in RecordIter::new(&records, count) {
            let record = record.map_err(|error| unreadable(std::io::Error::other(error)))?;
            let Some(key) = record.key else { continue };
            each(Record {
                key: Bytes::copy_from_slice(key),
                value: record.value.map(Bytes::copy_from_slice),
            });
        }
    }
    Ok(next)
}

/// One batch of `records`, all of them of the time `now_ms`.
pub fn batch_of(records: &[Record], now_ms: i64, codec: Codec) -> std::io::Result<Bytes> {
    let mut builder = BatchBuilder::new(codec);
    for record in records {
        builder.add(&NewRecord {
            timestamp_ms: now_ms,
            key: Some(&record.key),
            value: record.value.as_deref(),
            headers: &[],
        });
    }
    builder.build()
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        reason = "a failed conversion is the test's failure"
    )]

    use super::*;

    fn record(key: &'static str, value: Option<&'static str>) -> Record {
        Record {
            key: Bytes::from_static(key.as_bytes()),
            value: value.map(|value| Bytes::from_static(value.as_bytes())),
        }
    }

    #[test]
    fn what_was_written_is_read_again_compressed_or_not() {
        let records = [record("a", Some("1")), record("b", None)];
        for codec in [Codec::None, Codec::Gzip, Codec::Zstd] {
            let batch = batch_of(&records, 1_000, codec).unwrap();
            let mut read = Vec::new();
            let next = records_of(&batch, 0, |record| read.push(record)).unwrap();
            assert_eq!((next, read.as_slice()), (2, records.as_slice()));
        }
    }

    #[test]
    fn batches_before_the_start_and_control_batches_are_passed_over() {
        let first = batch_of(&[record("a", None)], 0, Codec::None).unwrap();
        let mut control = BatchBuilder::new(Codec::None).base_offset(1).control();
        control.add(&NewRecord {
            timestamp_ms: 0,
            key: Some(&[0, 0, 0, 1]),
            value: None,
            headers: &[],
        });
        let bytes = [first, control.build().unwrap()].concat();
        let mut seen = 0;
        assert_eq!(records_of(&bytes, 1, |_| seen += 1).unwrap(), 2);
        assert_eq!(seen, 0);
    }

    #[test]
    fn a_torn_batch_is_an_error_and_not_a_panic() {
        let batch = batch_of(&[record("a", None)], 0, Codec::None).unwrap();
        let torn = &batch[..batch.len() - 1];
        assert!(matches!(
            records_of(torn, 0, |_| ()),
            Err(Unreadable::Batch { offset: 0 })
        ));
    }
}
