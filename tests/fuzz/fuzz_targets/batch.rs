//! A record batch from a stranger, by every way that reads one, as it came and with the checksum made right.
//!
//! Run it in `tests/fuzz` with `RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir . batch`; the `.log` and `.batch` files of
//! `io/wire/tests/data` are good seeds. It fails on a panic, on an accepted batch that is not accepted again as it is, and
//! (libFuzzer's own limit) on memory out of proportion.

#![no_main]

use bytes::{Bytes, BytesMut};
use corelog_wire::batch::{
    Action, BatchHeader, BatchIter, HEADER_LEN, RecordIter, TimestampType, ValidationParams,
    decoded_records, max_timestamp_record, offset_for_timestamp, set_max_timestamp,
    validate_records, verify_crc,
};
use corelog_wire::compress::Codec;
use libfuzzer_sys::fuzz_target;

const BATCH_BYTES_MAX: usize = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    validate(&Bytes::copy_from_slice(bytes));
    if bytes.len() >= HEADER_LEN {
        let mut batch = BytesMut::from(bytes);
        let length = batch.len() as i32 - 12;
        batch[8..12].copy_from_slice(&length.to_be_bytes());
        set_max_timestamp(&mut batch, TimestampType::CreateTime, 1_700_000_000_000);
        read(&batch);
        validate(&batch.freeze());
    }
});

fn read(log: &[u8]) {
    for batch in BatchIter::new(log).flatten() {
        let header = &batch.header;
        header.next_offset();
        header.last_sequence();
        let _ = max_timestamp_record(batch.bytes);
        let _ = offset_for_timestamp(batch.bytes, header.base_timestamp, header.base_offset);
        let Ok(section) = decoded_records(header, batch.bytes, BATCH_BYTES_MAX) else {
            continue;
        };
        let count = usize::try_from(header.record_count).unwrap_or(0);
        for record in RecordIter::new(&section, count).flatten() {
            assert_eq!(record.headers().count(), record.header_count);
        }
    }
}

fn validate(batch: &Bytes) {
    for target in [None, Some(Codec::None), Some(Codec::Zstd)] {
        let params = ValidationParams {
            now_ms: 1_700_000_000_000,
            timestamp_type: TimestampType::CreateTime,
            before_max_ms: i64::MAX,
            after_max_ms: 3_600_000,
            compacted: false,
            target: target.map(|codec| (codec, codec.default_level())),
            max_batch_bytes: BATCH_BYTES_MAX,
            zstd_allowed: true,
        };
        let Ok(validated) = validate_records(batch, &params) else {
            continue;
        };
        let accepted = match validated.action {
            Action::InPlace => batch.clone(),
            Action::Rewritten(bytes) => bytes,
        };
        assert!(verify_crc(&accepted));
        assert_eq!(BatchHeader::parse(&accepted), Ok(validated.header));
        let again = validate_records(&accepted, &params).expect("it was accepted");
        assert_eq!(again.action, Action::InPlace);
    }
}
