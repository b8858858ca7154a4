//! Builds batches: for the metadata log, the internal topics, the command line's producer and tests. Uncompressed output is what Kafka's own
//! client writes, byte for byte.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};

use super::header::{BatchHeader, HEADER_LEN, LENGTH_END, set_crc};
use super::varint::{put_varint, varint_len};
use crate::compress::{Codec, Writer};

/// A record to be added.
#[derive(Debug, Clone, Copy)]
pub struct NewRecord<'a> {
    pub timestamp_ms: i64,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: &'a [(&'a str, Option<&'a [u8]>)],
}

/// Collects records; offsets count from 0, timestamps from the first record's.
#[derive(Debug)]
pub struct BatchBuilder {
    header: BatchHeader,
    codec: Codec,
    level: i32,
    records: BytesMut,
}

impl BatchBuilder {
    pub fn new(codec: Codec) -> BatchBuilder {
        let mut header = BatchHeader {
            base_offset: 0,
            batch_length: 0,
            partition_leader_epoch: -1,
            crc: 0,
            attributes: 0,
            last_offset_delta: -1,
            base_timestamp: -1,
            max_timestamp: -1,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            record_count: 0,
        };
        header.set_codec(codec);
        BatchBuilder {
            header,
            codec,
            level: codec.default_level(),
            records: BytesMut::new(),
        }
    }

    pub fn base_offset(mut self, base_offset: i64) -> BatchBuilder {
        self.header.base_offset = base_offset;
        self
    }

    pub fn leader_epoch(mut self, epoch: i32) -> BatchBuilder {
        self.header.partition_leader_epoch = epoch;
        self
    }

    pub fn producer(mut self, id: i64, epoch: i16, base_sequence: i32) -> BatchBuilder {
        (
            self.header.producer_id,
            self.header.producer_epoch,
            self.header.base_sequence,
        ) = (id, epoch, base_sequence);
        self
    }

    pub fn transactional(mut self) -> BatchBuilder {
        self.header.set_transactional();
        self
    }

    pub fn control(mut self) -> BatchBuilder {
        self.header.set_control();
        self
    }

    /// Adds a record at the next offset.
    pub fn add(&mut self, record: &NewRecord<'_>) {
        if self.header.record_count == 0 {
            self.header.base_timestamp = record.timestamp_ms;
            self.header.max_timestamp = record.timestamp_ms;
        }
        self.header.max_timestamp = self.header.max_timestamp.max(record.timestamp_ms);
        let timestamp_delta = record.timestamp_ms.wrapping_sub(self.header.base_timestamp);
        let offset_delta = i64::from(self.header.record_count);
        let headers = record.headers.iter();
        let body_len = 1
            + varint_len(timestamp_delta)
            + varint_len(offset_delta)
            + nullable_len(record.key)
            + nullable_len(record.value)
            + varint_len(record.headers.len() as i64)
            + headers
                .map(|(key, value)| nullable_len(Some(key.as_bytes())) + nullable_len(*value))
                .sum::<usize>();
        let out = &mut self.records;
        put_varint(out, body_len as i64);
        out.put_i8(0);
        put_varint(out, timestamp_delta);
        put_varint(out, offset_delta);
        put_nullable(out, record.key);
        put_nullable(out, record.value);
        put_varint(out, record.headers.len() as i64);
        for (key, value) in record.headers {
            put_nullable(out, Some(key.as_bytes()));
            put_nullable(out, *value);
        }
        self.header.last_offset_delta = self.header.record_count;
        self.header.record_count += 1;
    }

    pub fn is_empty(&self) -> bool {
        self.header.record_count == 0
    }

    /// Bytes of the batch before compression.
    pub fn len(&self) -> usize {
        HEADER_LEN + self.records.len()
    }

    /// The whole batch. A builder without records gives an empty batch, as compaction leaves them.
    pub fn build(self) -> io::Result<Bytes> {
        let batch = BytesMut::with_capacity(self.len());
        let mut writer = Writer::new(self.codec, self.level, header_room(batch))?;
        writer.write(&self.records)?;
        seal(self.header, writer.finish()?)
    }
}

/// Room for the header in front of the records of a new batch.
pub(super) fn header_room(mut batch: BytesMut) -> BytesMut {
    batch.put_bytes(0, HEADER_LEN);
    batch
}

/// Fills in the header of a batch whose records are written; length and checksum are set here.
pub(super) fn seal(mut header: BatchHeader, mut batch: BytesMut) -> io::Result<Bytes> {
    header.batch_length = i32::try_from(batch.len() - LENGTH_END).map_err(|_| {
        let message = "a record batch cannot be larger than 2 GiB";
        io::Error::new(io::ErrorKind::InvalidInput, message)
    })?;
    header.write_to(&mut batch);
    set_crc(&mut batch);
    Ok(batch.freeze())
}

fn nullable_len(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, |bytes| varint_len(bytes.len() as i64) + bytes.len())
}

fn put_nullable(out: &mut BytesMut, bytes: Option<&[u8]>) {
    match bytes {
        None => put_varint(out, -1),
        Some(bytes) => {
            put_varint(out, bytes.len() as i64);
            out.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::super::*;
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        text.split_whitespace()
            .map(|byte| u8::from_str_radix(byte, 16).unwrap())
            .collect()
    }

    #[test]
    fn a_producer_that_is_set_later_gives_the_same_batch() {
        let built = |builder: BatchBuilder| {
            let mut builder = builder;
            builder.add(&NewRecord {
                timestamp_ms: 1_700_000_000_000,
                key: None,
                value: Some(b"v"),
                headers: &[],
            });
            builder.build().unwrap()
        };
        let expected = built(BatchBuilder::new(Codec::None).producer(77, 3, 16));
        let mut batch = built(BatchBuilder::new(Codec::None)).to_vec();
        set_producer(&mut batch, 77, 3, 16);
        assert_eq!(batch, expected);
    }

    #[test]
    fn one_record_is_what_kafka_writes() {
        // kafka.md A1
        let expected = hex(
            "00 00 00 00 00 00 00 00 00 00 00 3a 00 00 00 00 02 e9 9b 8d d8 00 00 00 00 00 00 00 00 01 8b cf e5 68 00 00 00 01 8b cf e5 68 00 \
             ff ff ff ff ff ff ff ff ff ff ff ff ff ff 00 00 00 01 10 00 00 00 02 6b 02 76 00",
        );
        let mut builder = BatchBuilder::new(Codec::None).leader_epoch(0);
        builder.add(&NewRecord {
            timestamp_ms: 1_700_000_000_000,
            key: Some(b"k"),
            value: Some(b"v"),
            headers: &[],
        });
        assert_eq!(builder.build().unwrap(), expected);
    }

    #[test]
    fn a_commit_marker_is_what_kafka_writes() {
        // kafka.md A3
        let expected = hex(
            "00 00 00 00 00 00 00 64 00 00 00 42 00 00 00 03 02 99 a0 02 6c 00 30 00 00 00 00 00 00 01 8b cf e5 68 00 00 00 01 8b cf e5 68 00 \
             00 00 00 00 00 00 03 e8 00 04 ff ff ff ff 00 00 00 01 20 00 00 00 08 00 00 00 01 0c 00 00 00 00 00 09 00",
        );
        let mut builder = BatchBuilder::new(Codec::None)
            .base_offset(100)
            .leader_epoch(3)
            .producer(1000, 4, -1)
            .transactional()
            .control();
        builder.add(&NewRecord {
            timestamp_ms: 1_700_000_000_000,
            key: Some(&[0, 0, 0, 1]),
            value: Some(&[0, 0, 0, 0, 0, 9]),
            headers: &[],
        });
        assert_eq!(builder.build().unwrap(), expected);
    }

    #[test]
    fn what_is_built_is_read_back() {
        for codec in Codec::ALL {
            let mut builder = BatchBuilder::new(codec);
            let headers: [(&str, Option<&[u8]>); 2] = [("a", Some(b"1")), ("b", None)];
            builder.add(&NewRecord {
                timestamp_ms: 10,
                key: None,
                value: Some(b"v"),
                headers: &headers,
            });
            builder.add(&NewRecord {
                timestamp_ms: 7,
                key: Some(b""),
                value: None,
                headers: &[],
            });
            let batch = builder.build().unwrap();
            let header = BatchHeader::parse(&batch).unwrap();
            assert_eq!(
                (
                    header.record_count,
                    header.base_timestamp,
                    header.max_timestamp
                ),
                (2, 10, 10)
            );
            let records = decoded_records(&header, &batch, 1 << 20).unwrap();
            let read: Vec<_> = RecordIter::new(&records, 2).map(Result::unwrap).collect();
            assert_eq!(
                (read[0].value, read[1].timestamp_delta, read[1].key),
                (Some(&b"v"[..]), -3, Some(&b""[..]))
            );
            assert_eq!(
                read[0]
                    .headers()
                    .map(|h| (std::str::from_utf8(h.key).unwrap(), h.value))
                    .collect::<Vec<_>>(),
                headers
            );
        }
    }
}
