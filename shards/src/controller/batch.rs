//! Batches of the metadata log: building and reading them (kafka.md 3.1, kraft.md 3.5). Never compressed, no producer.

use bytes::{BufMut, Bytes, BytesMut};
use corelog_wire::primitives::{DecodeError, Reader, put_varint, put_varlong};
use corelog_wire::records::control::ControlRecord;
use corelog_wire::records::metadata::MetadataRecord;

/// Bytes of a batch's header.
const HEADER: usize = 61;
/// Where the part begins that the checksum covers: the attributes.
const CHECKED_FROM: usize = 21;
/// Bytes in front of what `batch_length` counts.
const LENGTH_FROM: usize = 12;
const MAGIC: i8 = 2;
const CONTROL: i16 = 1 << 5;
const COMPRESSION: i16 = 7;

/// What a batch is stamped with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stamp {
    pub(super) base_offset: i64,
    pub(super) epoch: i32,
    pub(super) timestamp_ms: i64,
}

/// One batch of metadata records, in the versions of `metadata_version`.
pub(super) fn of_records(stamp: Stamp, records: &[MetadataRecord], metadata_version: i16) -> Bytes {
    let mut builder = Builder::new();
    for record in records {
        let mut value = BytesMut::new();
        record.encode(&mut value, record.version_at(metadata_version));
        builder.push(None, &value);
    }
    builder.finish(stamp, 0)
}

/// One batch of control records.
pub(super) fn of_control(stamp: Stamp, records: &[ControlRecord]) -> Bytes {
    let mut builder = Builder::new();
    for record in records {
        let (mut key, mut value) = (BytesMut::new(), BytesMut::new());
        record.encode_key(&mut key);
        record.encode_value(&mut value);
        builder.push(Some(&key), &value);
    }
    builder.finish(stamp, CONTROL)
}

struct Builder {
    out: BytesMut,
    count: i32,
}

impl Builder {
    fn new() -> Builder {
        let mut out = BytesMut::new();
        out.put_bytes(0, HEADER);
        Builder { out, count: 0 }
    }

    fn push(&mut self, key: Option<&[u8]>, value: &[u8]) {
        let mut body = BytesMut::new();
        body.put_i8(0); // attributes
        put_varlong(&mut body, 0); // timestamp, from the batch's
        put_varint(&mut body, self.count); // offset, from the batch's
        put_field(&mut body, key);
        put_field(&mut body, Some(value));
        put_varint(&mut body, 0); // headers
        put_varint(&mut self.out, body.len() as i32);
        self.out.extend_from_slice(&body);
        self.count += 1;
    }

    fn finish(mut self, stamp: Stamp, attributes: i16) -> Bytes {
        assert!(self.count > 0, "a batch has at least one record");
        let length = (self.out.len() - LENGTH_FROM) as i32;
        let mut header = BytesMut::with_capacity(HEADER);
        header.put_i64(stamp.base_offset);
        header.put_i32(length);
        header.put_i32(stamp.epoch);
        header.put_i8(MAGIC);
        header.put_u32(0); // checksum: below
        header.put_i16(attributes);
        header.put_i32(self.count - 1); // last offset, from the first
        header.put_i64(stamp.timestamp_ms);
        header.put_i64(stamp.timestamp_ms);
        header.put_i64(-1); // producer id, epoch, sequence
        header.put_i16(-1);
        header.put_i32(-1);
        header.put_i32(self.count);
        self.out[..HEADER].copy_from_slice(&header);
        let checksum = crc32c::crc32c(&self.out[CHECKED_FROM..]);
        self.out[CHECKED_FROM - 4..CHECKED_FROM].copy_from_slice(&checksum.to_be_bytes());
        self.out.freeze()
    }
}

fn put_field(out: &mut BytesMut, field: Option<&[u8]>) {
    match field {
        Some(bytes) => {
            put_varint(out, bytes.len() as i32);
            out.extend_from_slice(bytes);
        }
        None => put_varint(out, -1),
    }
}

/// Why bytes are no batch of a metadata log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadBatch {
    #[error("the batch ends in the middle")]
    Truncated,
    #[error("the batch at offset {offset} has magic {magic}")]
    Magic { offset: i64, magic: i8 },
    #[error("the checksum of the batch at offset {offset} is wrong")]
    Checksum { offset: i64 },
    #[error("the batch at offset {offset} is compressed")]
    Compressed { offset: i64 },
    #[error("a record of the batch at offset {offset} can't be read: {reason}")]
    Record { offset: i64, reason: DecodeError },
    #[error("the batch at offset {offset} has a record without a value")]
    NoValue { offset: i64 },
}

/// One batch, read.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) base_offset: i64,
    pub(super) last_offset: i64,
    pub(super) epoch: i32,
    pub(super) timestamp_ms: i64,
    pub(super) control: bool,
    /// (key, value)
    pub(super) records: Vec<(Option<Bytes>, Bytes)>,
}

/// Takes the first batch off `bytes`; `None` at the end. Bytes that are zero to the end are preallocated space.
pub(super) fn next(bytes: &mut Bytes) -> Result<Option<Batch>, BadBatch> {
    if bytes.iter().take(HEADER).all(|byte| *byte == 0) {
        return Ok(None);
    }
    let mut reader = Reader::new(bytes.clone());
    let truncated = |_| BadBatch::Truncated;
    let base_offset = reader.i64().map_err(truncated)?;
    let length =
        usize::try_from(reader.i32().map_err(truncated)?).map_err(|_| BadBatch::Truncated)?;
    if length > bytes.len() - LENGTH_FROM || length < HEADER - LENGTH_FROM {
        return Err(BadBatch::Truncated);
    }
    let whole = bytes.split_to(LENGTH_FROM + length);
    let batch = read(&whole, base_offset);
    batch.map(Some)
}

fn read(whole: &Bytes, offset: i64) -> Result<Batch, BadBatch> {
    let in_record = |reason| BadBatch::Record { offset, reason };
    let mut reader = Reader::new(whole.slice(LENGTH_FROM..));
    let epoch = reader.i32().map_err(in_record)?;
    let magic = reader.i8().map_err(in_record)?;
    if magic != MAGIC {
        return Err(BadBatch::Magic { offset, magic });
    }
    if reader.u32().map_err(in_record)? != crc32c::crc32c(&whole[CHECKED_FROM..]) {
        return Err(BadBatch::Checksum { offset });
    }
    let attributes = reader.i16().map_err(in_record)?;
    if attributes & COMPRESSION != 0 {
        return Err(BadBatch::Compressed { offset });
    }
    let last_offset_delta = reader.i32().map_err(in_record)?;
    reader.raw(8).map_err(in_record)?; // base timestamp
    let timestamp_ms = reader.i64().map_err(in_record)?;
    reader.raw(14).map_err(in_record)?; // producer
    let count = reader.i32().map_err(in_record)?;
    let mut records = Vec::new();
    for _ in 0..count {
        let (key, value) = record(&mut reader).map_err(in_record)?;
        records.push((key, value.ok_or(BadBatch::NoValue { offset })?));
    }
    Ok(Batch {
        base_offset: offset,
        last_offset: offset + i64::from(last_offset_delta),
        epoch,
        timestamp_ms,
        control: attributes & CONTROL != 0,
        records,
    })
}

type KeyAndValue = (Option<Bytes>, Option<Bytes>);

fn record(reader: &mut Reader) -> Result<KeyAndValue, DecodeError> {
    reader.varint()?; // length: the fields say it again
    reader.i8()?;
    reader.varlong()?;
    reader.varint()?;
    let key = field(reader)?;
    let value = field(reader)?;
    for _ in 0..reader.varint()? {
        field(reader)?;
        field(reader)?;
    }
    Ok((key, value))
}

fn field(reader: &mut Reader) -> Result<Option<Bytes>, DecodeError> {
    match usize::try_from(reader.varint()?) {
        Ok(length) => reader.raw(length).map(Some),
        Err(_) => Ok(None),
    }
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
        assert_eq!(
            (batch.base_offset, batch.last_offset, batch.epoch),
            (7, 8, 3)
        );
        assert_eq!((batch.timestamp_ms, batch.control), (5, false));
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
        assert_eq!(
            next(&mut good.slice(..40)).unwrap_err(),
            BadBatch::Truncated
        );
        assert!(next(&mut Bytes::from_static(&[0; 100])).unwrap().is_none());
    }
}
