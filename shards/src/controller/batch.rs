//! Batches of the metadata log: building and reading them (kraft.md 3.5). Never compressed, no producer.

use bytes::{Bytes, BytesMut};
use corelog_wire::batch::{
    BatchBuilder, BatchError, BatchHeader, HEADER_LEN, NewRecord, RecordError, RecordIter,
    verify_crc,
};
use corelog_wire::compress::Codec;
use corelog_wire::records::control::ControlRecord;
use corelog_wire::records::metadata::MetadataRecord;

/// What a batch is stamped with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stamp {
    pub(super) base_offset: i64,
    pub(super) epoch: i32,
    pub(super) timestamp_ms: i64,
}

impl Stamp {
    fn builder(self) -> BatchBuilder {
        BatchBuilder::new(Codec::None)
            .base_offset(self.base_offset)
            .leader_epoch(self.epoch)
    }

    fn record<'a>(self, key: Option<&'a [u8]>, value: &'a [u8]) -> NewRecord<'a> {
        NewRecord {
            timestamp_ms: self.timestamp_ms,
            key,
            value: Some(value),
            headers: &[],
        }
    }
}

/// One batch of metadata records, in the versions of `metadata_version`.
pub(super) fn of_records(stamp: Stamp, records: &[MetadataRecord], metadata_version: i16) -> Bytes {
    let mut builder = stamp.builder();
    for record in records {
        let mut value = BytesMut::new();
        record.encode(&mut value, record.version_at(metadata_version));
        builder.add(&stamp.record(None, &value));
    }
    build(builder)
}

/// One batch of control records.
pub(super) fn of_control(stamp: Stamp, records: &[ControlRecord]) -> Bytes {
    let mut builder = stamp.builder().control();
    for record in records {
        let (mut key, mut value) = (BytesMut::new(), BytesMut::new());
        record.encode_key(&mut key);
        record.encode_value(&mut value);
        builder.add(&stamp.record(Some(&key), &value));
    }
    build(builder)
}

fn build(builder: BatchBuilder) -> Bytes {
    assert!(!builder.is_empty(), "a batch has at least one record");
    builder
        .build()
        .expect("only compression can fail, and there is none")
}

/// Why bytes are no batch of a metadata log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadBatch {
    #[error(transparent)]
    Header(#[from] BatchError),
    #[error("the checksum of the batch at offset {offset} is wrong")]
    Checksum { offset: i64 },
    #[error("the batch at offset {offset} is compressed")]
    Compressed { offset: i64 },
    #[error("a record of the batch at offset {offset} can't be read: {reason}")]
    Record { offset: i64, reason: RecordError },
    #[error("the batch at offset {offset} has a record without a value")]
    NoValue { offset: i64 },
}

/// One batch, read.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) header: BatchHeader,
    /// (key, value)
    pub(super) records: Vec<(Option<Bytes>, Bytes)>,
}

/// Takes the first batch off `bytes`; `None` at the end. Bytes that are zero to the end are preallocated space.
pub(super) fn next(bytes: &mut Bytes) -> Result<Option<Batch>, BadBatch> {
    if bytes.iter().take(HEADER_LEN).all(|byte| *byte == 0) {
        return Ok(None);
    }
    let header = BatchHeader::parse(bytes)?;
    let (need, have) = (header.total_len(), bytes.len());
    if need > have {
        return Err(BatchError::Truncated { need, have }.into());
    }
    read(&bytes.split_to(need), header).map(Some)
}

fn read(whole: &Bytes, header: BatchHeader) -> Result<Batch, BadBatch> {
    let offset = header.base_offset;
    if !verify_crc(whole) {
        return Err(BadBatch::Checksum { offset });
    }
    if header.codec() != Some(Codec::None) {
        return Err(BadBatch::Compressed { offset });
    }
    let count = usize::try_from(header.record_count).unwrap_or(0);
    let mut records = Vec::new();
    for record in RecordIter::new(&whole[HEADER_LEN..], count) {
        let record = record.map_err(|reason| BadBatch::Record { offset, reason })?;
        let value = record.value.ok_or(BadBatch::NoValue { offset })?;
        let key = record.key.map(|key| whole.slice_ref(key));
        records.push((key, whole.slice_ref(value)));
    }
    Ok(Batch { header, records })
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        reason = "a failed conversion is the test's failure"
    )]

    use corelog_wire::records::data::{
        LeaderChangeMessage, LeaderChangeMessageGrantingVoters, LeaderChangeMessageVoters,
    };
    use corelog_wire::records::metadata::NoOpRecord;

    use super::*;

    /// kraft.md 15, K6.
    #[test]
    fn a_leader_change_has_kafkas_bytes() {
        let expected = [
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x4f, 0, 0, 0, 1, 2, 0x11, 0x54, 0xea, 0xf9, 0, 0x20,
            0, 0, 0, 0, 0, 0, 0x01, 0x8b, 0xcf, 0xe5, 0x68, 0, 0, 0, 0x01, 0x8b, 0xcf, 0xe5, 0x68,
            0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
            0, 0, 0, 1, 0x3a, 0, 0, 0, 8, 0, 0, 0, 2, 0x26, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 1, 0, 2,
            0, 0, 0, 1, 0, 0, 0,
        ];
        let record = ControlRecord::LeaderChange(LeaderChangeMessage {
            leader_id: 1,
            voters: vec![LeaderChangeMessageVoters {
                voter_id: 1,
                ..Default::default()
            }],
            granting_voters: vec![LeaderChangeMessageGrantingVoters {
                voter_id: 1,
                ..Default::default()
            }],
        });
        let stamp = Stamp {
            base_offset: 0,
            epoch: 1,
            timestamp_ms: 1_700_000_000_000,
        };
        let bytes = of_control(stamp, &[record]);
        assert_eq!(bytes[..], expected);
    }

    #[test]
    fn what_is_built_is_read_back() {
        let stamp = Stamp {
            base_offset: 7,
            epoch: 3,
            timestamp_ms: 5,
        };
        let no_op = MetadataRecord::NoOp(NoOpRecord {});
        let mut bytes = of_records(stamp, &[no_op.clone(), no_op.clone()], 30);
        let batch = next(&mut bytes).unwrap().unwrap();
        let header = &batch.header;
        assert_eq!(
            (
                header.base_offset,
                header.last_offset(),
                header.partition_leader_epoch
            ),
            (7, 8, 3)
        );
        assert_eq!((header.max_timestamp, header.is_control()), (5, false));
        let values: Vec<MetadataRecord> = batch
            .records
            .iter()
            .map(|(_, value)| MetadataRecord::decode(value).unwrap())
            .collect();
        assert_eq!(values, [no_op.clone(), no_op]);
        assert!(next(&mut bytes).unwrap().is_none());
    }

    #[test]
    fn damaged_batches_are_refused() {
        let stamp = Stamp {
            base_offset: 0,
            epoch: 0,
            timestamp_ms: 0,
        };
        let good = of_records(stamp, &[MetadataRecord::NoOp(NoOpRecord {})], 30);
        for at in 0..good.len() {
            let mut bad = BytesMut::from(&good[..]);
            bad[at] ^= 0x40;
            let read = next(&mut bad.freeze());
            // Offset and epoch lie outside of the checksum.
            assert!(
                read.is_err() || at < 8 || (12..16).contains(&at),
                "byte {at}"
            );
        }
        assert!(matches!(
            next(&mut good.slice(..40)),
            Err(BadBatch::Header(_))
        ));
        assert!(next(&mut Bytes::from_static(&[0; 100])).unwrap().is_none());
    }
}
