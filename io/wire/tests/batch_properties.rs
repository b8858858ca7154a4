//! What must hold for every batch, well formed or not.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use bytes::{Bytes, BytesMut};
use corelog_wire::batch::{
    Action, BatchBuilder, BatchHeader, BatchIter, HEADER_LEN, InvalidBatch, NewRecord, RecordIter,
    TimestampType, ValidationParams, decoded_records, max_timestamp_record, offset_for_timestamp,
    peek_base_offset, peek_last_offset, peek_leader_epoch, peek_len, peek_magic,
    peek_max_timestamp, set_max_timestamp, validate_records, verify_crc,
};
use corelog_wire::compress::{Codec, compress};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::{Index, select};

#[derive(Debug, Clone, PartialEq, Eq)]
struct Record {
    timestamp_ms: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
}

fn records() -> impl Strategy<Value = Vec<Record>> {
    let bytes = || vec(any::<u8>(), 0..200);
    let record = (
        -1..2_000_000_000_000_i64,
        of(bytes()),
        of(bytes()),
        vec((".{0,8}", of(vec(any::<u8>(), 0..9))), 0..3),
    );
    let record = record.prop_map(|(timestamp_ms, key, value, headers)| Record {
        timestamp_ms,
        key,
        value,
        headers,
    });
    vec(record, 1..30)
}

fn codec() -> impl Strategy<Value = Codec> {
    select(&Codec::ALL[..])
}

fn built(codec: Codec, records: &[Record]) -> Bytes {
    let mut builder = BatchBuilder::new(codec);
    for record in records {
        let headers: Vec<_> = record
            .headers
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_deref()))
            .collect();
        builder.add(&NewRecord {
            timestamp_ms: record.timestamp_ms,
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: &headers,
        });
    }
    builder.build().unwrap()
}

fn read(batch: &[u8]) -> Vec<Record> {
    let header = BatchHeader::parse(batch).unwrap();
    let section = decoded_records(&header, batch, 1 << 20).unwrap();
    RecordIter::new(&section, header.record_count as usize)
        .enumerate()
        .map(|(index, record)| {
            let record = record.unwrap();
            assert_eq!(record.offset_delta, index as i32);
            let headers = record.headers().map(|header| {
                let key = String::from_utf8(header.key.to_vec()).unwrap();
                (key, header.value.map(<[u8]>::to_vec))
            });
            Record {
                timestamp_ms: header.timestamp_of(record.timestamp_delta),
                key: record.key.map(<[u8]>::to_vec),
                value: record.value.map(<[u8]>::to_vec),
                headers: headers.collect(),
            }
        })
        .collect()
}

fn params(target: Option<Codec>) -> ValidationParams {
    ValidationParams {
        now_ms: 2_000_000_000_000,
        timestamp_type: TimestampType::CreateTime,
        before_max_ms: i64::MAX,
        after_max_ms: 0,
        compacted: false,
        target: target.map(|codec| (codec, codec.default_level())),
        max_batch_bytes: 1 << 20,
        zstd_allowed: true,
    }
}

/// A batch of this section whatever the section holds, with the checksum that fits.
fn wrapped(codec: Codec, section: &[u8], header: &BatchHeader) -> Bytes {
    let stored = compress(codec, codec.default_level(), section).unwrap();
    let mut header = *header;
    header.set_codec(codec);
    header.batch_length = (HEADER_LEN - 12 + stored.len()) as i32;
    let mut fixed = [0; HEADER_LEN];
    header.write(&mut fixed);
    let mut batch = BytesMut::from(&fixed[..]);
    batch.extend_from_slice(&stored);
    set_max_timestamp(&mut batch, TimestampType::CreateTime, header.max_timestamp);
    batch.freeze()
}

/// Every function that takes bytes. None may panic.
fn exercise(bytes: &Bytes) {
    peek_len(bytes);
    peek_magic(bytes);
    peek_base_offset(bytes);
    peek_last_offset(bytes);
    peek_leader_epoch(bytes);
    peek_max_timestamp(bytes);
    verify_crc(bytes);
    for batch in BatchIter::new(bytes).flatten() {
        let header = &batch.header;
        header.last_offset();
        header.next_offset();
        header.last_sequence();
        let count = usize::try_from(header.record_count).unwrap_or(0);
        if let Ok(section) = decoded_records(header, batch.bytes, 1 << 20) {
            for record in RecordIter::new(&section, count).flatten() {
                record.headers().for_each(drop);
                header.offset_of(record.offset_delta);
                header.timestamp_of(record.timestamp_delta);
            }
        }
        // Their answer is of no interest here.
        drop(max_timestamp_record(batch.bytes));
        drop(offset_for_timestamp(batch.bytes, 1, 1));
    }
    for target in [None, Some(Codec::None), Some(Codec::Lz4)] {
        if let Ok(validated) = validate_records(bytes, &params(target)) {
            let bytes = match validated.action {
                Action::InPlace => bytes.clone(),
                Action::Rewritten(bytes) => bytes,
            };
            assert!(verify_crc(&bytes));
            assert_eq!(BatchHeader::parse(&bytes), Ok(validated.header));
            // What was accepted is accepted again, as it is.
            let again = validate_records(&bytes, &params(target)).unwrap();
            assert_eq!(again.action, Action::InPlace);
        }
    }
}

proptest! {
    #[test]
    fn what_is_built_is_read(codec in codec(), records in records()) {
        let batch = built(codec, &records);
        prop_assert!(verify_crc(&batch));
        prop_assert_eq!(read(&batch), records);
    }

    #[test]
    fn a_batch_says_the_same_in_every_codec(from in codec(), to in codec(), records in records()) {
        let batch = built(from, &records);
        let validated = validate_records(&batch, &params(Some(to))).unwrap();
        prop_assert_eq!(validated.header.codec(), Some(to));
        prop_assert_eq!(validated.header.max_timestamp, records.iter().map(|r| r.timestamp_ms).max().unwrap());
        match validated.action {
            Action::InPlace => prop_assert_eq!(from, to),
            Action::Rewritten(bytes) => prop_assert_eq!(read(&bytes), records),
        }
    }

    #[test]
    fn the_first_record_of_a_time_is_found(codec in codec(), records in records(), pick: Index, from in 0..30_usize) {
        let batch = built(codec, &records);
        let target = records[pick.index(records.len())].timestamp_ms;
        let expected = records
            .iter()
            .enumerate()
            .find(|(index, record)| *index >= from && record.timestamp_ms >= target);
        let found = offset_for_timestamp(&batch, target, from as i64).unwrap();
        prop_assert_eq!(
            found.map(|found| (found.offset, found.timestamp_ms)),
            expected.map(|(index, record)| (index as i64, record.timestamp_ms))
        );
    }

    /// Compressed records are held to the same rules as plain ones.
    #[test]
    fn damaged_records_are_judged_alike_in_every_codec(
        records in records(),
        damage in vec((any::<Index>(), any::<u8>()), 1..3),
        codec in codec(),
    ) {
        let plain = built(Codec::None, &records);
        let header = BatchHeader::parse(&plain).unwrap();
        let mut section = plain[HEADER_LEN..].to_vec();
        for (at, byte) in damage {
            let at = at.index(section.len());
            section[at] = byte;
        }
        let plain = validate_records(&wrapped(Codec::None, &section, &header), &params(None));
        let packed = validate_records(&wrapped(codec, &section, &header), &params(None));
        match (plain, packed) {
            (Ok(plain), Ok(packed)) => {
                prop_assert_eq!(plain.header.max_timestamp, packed.header.max_timestamp);
                prop_assert_eq!(plain.header.record_count, packed.header.record_count);
            }
            (plain, packed) => prop_assert_eq!(plain.unwrap_err(), packed.unwrap_err()),
        }
    }

    #[test]
    fn nothing_panics_on_damage(
        codec in codec(),
        records in records(),
        damage in vec((any::<Index>(), any::<u8>()), 1..6),
        cut in of(any::<Index>()),
        fix_checksum: bool,
    ) {
        let mut batch = BytesMut::from(&built(codec, &records)[..]);
        for (at, byte) in damage {
            let at = at.index(batch.len());
            batch[at] = byte;
        }
        if let Some(cut) = cut {
            batch.truncate(cut.index(batch.len()));
        }
        if fix_checksum && batch.len() > HEADER_LEN {
            set_max_timestamp(&mut batch, TimestampType::CreateTime, 5);
        }
        exercise(&batch.freeze());
    }

    #[test]
    fn nothing_panics_on_rubbish(bytes in vec(any::<u8>(), 0..200)) {
        let mut batch = bytes.clone();
        exercise(&bytes.into());
        if batch.len() > HEADER_LEN {
            let length = batch.len() as i32 - 12;
            batch[8..12].copy_from_slice(&length.to_be_bytes());
            batch[16] = 2;
            set_max_timestamp(&mut batch, TimestampType::CreateTime, 5);
            exercise(&batch.into());
        }
    }
}

#[test]
fn any_single_flipped_bit_behind_the_epoch_is_noticed() {
    let record = Record {
        timestamp_ms: 1_700_000_000_000,
        key: Some(b"k".to_vec()),
        value: None,
        headers: Vec::new(),
    };
    let batch = built(Codec::None, &[record]);
    // The base offset, the length and the leader epoch are outside the checksum.
    for bit in 16 * 8..batch.len() * 8 {
        let mut flipped = BytesMut::from(&batch[..]);
        flipped[bit / 8] ^= 1 << (bit % 8);
        let refused = validate_records(&flipped.freeze(), &params(None)).unwrap_err();
        let magic_became_old = matches!(refused, InvalidBatch::Invalid { .. });
        assert!(matches!(refused, InvalidBatch::Corrupt(_)) || magic_became_old && bit / 8 == 16);
    }
}
