//! Builds batches: for the metadata log, the internal topics, the command line's producer and tests. Uncompressed output is what Kafka's own
//! client writes, byte for byte.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};

use super::header::{BatchHeader, HEADER_LEN};
use crate::compress::{self, Codec};

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
        let mut body = BytesMut::with_capacity(32);
        body.put_i8(0);
        put_varlong(
            &mut body,
            record.timestamp_ms.wrapping_sub(self.header.base_timestamp),
        );
        put_varlong(&mut body, i64::from(self.header.record_count));
        put_nullable(&mut body, record.key);
        put_nullable(&mut body, record.value);
        put_varlong(&mut body, record.headers.len() as i64);
        for (key, value) in record.headers {
            put_nullable(&mut body, Some(key.as_bytes()));
            put_nullable(&mut body, *value);
        }
        put_varlong(&mut self.records, body.len() as i64);
        self.records.extend_from_slice(&body);
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

    pub fn build(self) -> io::Result<Bytes> {
        BatchBuilder::seal(self.header, &self.records, self.codec, self.level)
    }

    /// A whole batch of these uncompressed records; length and checksum are set here.
    pub(super) fn seal(
        mut header: BatchHeader,
        records: &[u8],
        codec: Codec,
        level: i32,
    ) -> io::Result<Bytes> {
        let compressed;
        let payload = if codec == Codec::None {
            records
        } else {
            compressed = compress::compress(codec, level, records)?;
            &compressed
        };
        let length = i32::try_from(HEADER_LEN - 12 + payload.len()).map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "a record batch can't be larger than 2 GiB",
            )
        })?;
        header.batch_length = length;
        let mut fixed = [0; HEADER_LEN];
        header.write(&mut fixed);
        let crc = crc32c::crc32c_append(crc32c::crc32c(&fixed[21..]), payload);
        fixed[17..21].copy_from_slice(&crc.to_be_bytes());
        let mut batch = BytesMut::with_capacity(HEADER_LEN + payload.len());
        batch.extend_from_slice(&fixed);
        batch.extend_from_slice(payload);
        Ok(batch.freeze())
    }
}

fn put_varlong(out: &mut BytesMut, value: i64) {
    let mut raw = (value << 1 ^ value >> 63) as u64;
    while raw >= 0x80 {
        out.put_u8(raw as u8 | 0x80);
        raw >>= 7;
    }
    out.put_u8(raw as u8);
}

fn put_nullable(out: &mut BytesMut, bytes: Option<&[u8]>) {
    match bytes {
        None => put_varlong(out, -1),
        Some(bytes) => {
            put_varlong(out, bytes.len() as i64);
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
                    .map(|h| (h.key, h.value))
                    .collect::<Vec<_>>(),
                headers
            );
        }
    }
}
