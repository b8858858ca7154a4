//! Logs and batches that Apache Kafka 4.3.1, its Java client and librdkafka wrote. The `.txt` files are what Kafka's own
//! kafka-dump-log prints of the `.log` files; the `.batch` files are by the Java client's record builder, one a codec.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fmt::Write;
use std::path::PathBuf;

use bytes::Bytes;
use corelog_wire::batch::{
    Action, BatchBuilder, BatchHeader, BatchIter, Found, NewRecord, RecordIter, RecordRef,
    TimestampType, ValidationParams, Walked, control_type, decoded_records, max_timestamp_record,
    offset_for_timestamp, set_base_offset, validate_records, verify_crc,
};
use corelog_wire::compress::Codec;

const BATCH_BYTES_MAX: usize = 1 << 20;

fn data(name: &str) -> Bytes {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    std::fs::read(path.join(name)).unwrap().into()
}

fn dump(name: &str) -> String {
    let text = String::from_utf8(data(name).to_vec()).unwrap();
    // Above the batches it names the file and its first offset.
    text.split_inclusive('\n').skip(2).collect()
}

/// What kafka-dump-log prints.
fn printed(log: &[u8]) -> String {
    let mut out = String::new();
    let mut batches = BatchIter::new(log);
    for batch in &mut batches {
        print_batch(&batch.unwrap(), &mut out);
    }
    assert_eq!(batches.position(), log.len());
    out
}

fn print_batch(batch: &Walked, out: &mut String) {
    let header = &batch.header;
    let horizon = if header.has_delete_horizon() {
        format!("OptionalLong[{}]", header.base_timestamp)
    } else {
        "OptionalLong.empty".to_owned()
    };
    writeln!(
        out,
        "baseOffset: {} lastOffset: {} count: {} baseSequence: {} lastSequence: {} producerId: {} producerEpoch: {} \
         partitionLeaderEpoch: {} isTransactional: {} isControl: {} deleteHorizonMs: {horizon} position: {} {:?}: {} \
         size: {} magic: 2 compresscodec: {} crc: {} isvalid: {}",
        header.base_offset,
        header.last_offset(),
        header.record_count,
        header.base_sequence,
        header.last_sequence(),
        header.producer_id,
        header.producer_epoch,
        header.partition_leader_epoch,
        header.is_transactional(),
        header.is_control(),
        batch.position,
        header.timestamp_type(),
        header.max_timestamp,
        header.total_len(),
        header.codec().unwrap().name(),
        header.crc,
        verify_crc(batch.bytes)
    )
    .unwrap();
    let section = decoded_records(header, batch.bytes, BATCH_BYTES_MAX).unwrap();
    for record in RecordIter::new(&section, header.record_count as usize) {
        print_record(header, &record.unwrap(), out);
    }
}

fn print_record(header: &BatchHeader, record: &RecordRef, out: &mut String) {
    let length = |bytes: Option<&[u8]>| bytes.map_or(-1, |bytes| bytes.len() as i64);
    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }
    let sequence = if header.base_sequence < 0 {
        -1
    } else {
        header.base_sequence + record.offset_delta
    };
    let header_keys: Vec<_> = record.headers().map(|header| text(header.key)).collect();
    write!(
        out,
        "| offset: {} {:?}: {} keySize: {} valueSize: {} sequence: {sequence} headerKeys: [{}]",
        header.offset_of(record.offset_delta),
        header.timestamp_type(),
        header.timestamp_of(record.timestamp_delta),
        length(record.key),
        length(record.value),
        header_keys.join(",")
    )
    .unwrap();
    if header.is_control() {
        let kind = ["ABORT", "COMMIT"][control_type(record.key.unwrap()).unwrap() as usize];
        let epoch = i32::from_be_bytes(*record.value.unwrap().last_chunk().unwrap());
        write!(out, " endTxnMarker: {kind} coordinatorEpoch: {epoch}").unwrap();
    } else {
        let field = |name, bytes: Option<&[u8]>| {
            bytes.map_or_else(String::new, |bytes| format!(" {name}: {}", text(bytes)))
        };
        out.push_str(&field("key", record.key));
        out.push_str(&field("payload", record.value));
    }
    out.push('\n');
}

/// The lines of the hundred records that librdkafka sent with each codec.
fn hundred_records(codec: Codec) -> String {
    let mut out = String::new();
    for k in 0..100 {
        let key = (k % 7 != 0).then(|| format!("k{k}"));
        let value = (k % 10 != 9).then(|| format!("v{k}-{}", codec.name().repeat(20)));
        let length = |text: &Option<String>| text.as_ref().map_or(-1, |text| text.len() as i64);
        let headers = if k % 5 == 0 { "h,n" } else { "" };
        write!(
            out,
            "| offset: {k} CreateTime: {} keySize: {} valueSize: {} sequence: -1 headerKeys: [{headers}]",
            1_700_000_000_000_i64 + k,
            length(&key),
            length(&value),
        )
        .unwrap();
        for (name, text) in [("key", key), ("payload", value)] {
            if let Some(text) = text {
                write!(out, " {name}: {text}").unwrap();
            }
        }
        out.push('\n');
    }
    out
}

#[test]
fn logs_are_read_as_kafka_reads_them() {
    for name in ["codecs-0", "compacted-0", "append-time-0", "txn-0"] {
        let read = printed(&data(&format!("{name}.log")));
        assert_eq!(read, dump(&format!("{name}.txt")), "{name}");
    }
}

#[test]
fn what_librdkafka_compressed_is_read() {
    for codec in Codec::ALL {
        let read = printed(&data(&format!("codecs-{}.log", codec.id())));
        let batch = dump(&format!("codecs-{}.txt", codec.id()));
        let expected = batch.lines().next().unwrap().to_owned() + "\n" + &hundred_records(codec);
        assert_eq!(read, expected, "{codec:?}");
    }
}

fn params() -> ValidationParams {
    ValidationParams {
        now_ms: 1_700_000_000_000,
        timestamp_type: TimestampType::CreateTime,
        before_max_ms: i64::MAX,
        after_max_ms: 3_600_000,
        compacted: false,
        target: None,
        max_batch_bytes: BATCH_BYTES_MAX,
        zstd_allowed: true,
    }
}

#[test]
fn clients_batches_are_appended_in_place() {
    for codec in Codec::ALL {
        for name in [
            format!("codecs-{}.log", codec.id()),
            format!("java-{}.batch", codec.name()),
        ] {
            let validated = validate_records(&data(&name), &params()).unwrap();
            assert_eq!(validated.action, Action::InPlace, "{name}");
        }
    }
}

/// The records of the `.batch` files; timestamps go up and down.
fn java_builder(codec: Codec) -> BatchBuilder {
    let mut builder = BatchBuilder::new(codec)
        .leader_epoch(3)
        .producer(4000, 7, 2_147_483_600)
        .transactional();
    for k in 0..100_u8 {
        let key = format!("k{k}");
        let value = format!("v{k}-{}", "x".repeat(usize::from(k) * 3));
        let first = [k];
        let headers: &[(&str, Option<&[u8]>)] = &[("h", Some(&first)), ("ü", None)];
        builder.add(&NewRecord {
            timestamp_ms: 1_700_000_000_000 + i64::from(k) * 37 % 101 - 50,
            key: (k % 7 != 0).then_some(key.as_bytes()),
            value: (k % 10 != 9).then_some(value.as_bytes()),
            headers: if k % 5 == 0 { headers } else { &[] },
        });
    }
    builder
}

#[test]
fn an_uncompressed_batch_is_byte_for_byte_the_java_clients() {
    let ours = java_builder(Codec::None).build().unwrap();
    assert_eq!(ours, data("java-none.batch"));
}

#[test]
fn what_the_java_client_compressed_is_read() {
    let expected = data("java-none.batch");
    for codec in Codec::ALL {
        let batch = data(&format!("java-{}.batch", codec.name()));
        let header = BatchHeader::parse(&batch).unwrap();
        assert_eq!(header.codec(), Some(codec));
        // The sequence has passed 2^31-1.
        assert_eq!(header.last_sequence(), 51);
        let section = decoded_records(&header, &batch, BATCH_BYTES_MAX).unwrap();
        assert_eq!(section, &expected[61..]);
    }
}

#[test]
fn recompression_makes_the_java_clients_batch_of_another_codecs_batch() {
    for codec in Codec::ALL {
        let params = ValidationParams {
            target: Some((Codec::None, 0)),
            ..params()
        };
        let batch = data(&format!("java-{}.batch", codec.name()));
        match validate_records(&batch, &params).unwrap().action {
            Action::InPlace => assert_eq!(codec, Codec::None),
            Action::Rewritten(bytes) => assert_eq!(bytes, data("java-none.batch")),
        }
    }
}

#[test]
fn a_record_is_found_by_its_time_in_every_codec() {
    let find = |batch: &[u8], target, from| offset_for_timestamp(batch, target, from).unwrap();
    for codec in Codec::ALL {
        let mut batch = data(&format!("java-{}.batch", codec.name())).to_vec();
        set_base_offset(&mut batch, 1000);
        // Timestamps are 1699999999950 and then 37 more each time, modulo 101.
        let found = |offset, past: i64| {
            let timestamp_ms = 1_699_999_999_950 + past;
            Some(Found {
                offset,
                timestamp_ms,
            })
        };
        assert_eq!(find(&batch, 0, 0), found(1000, 0));
        assert_eq!(find(&batch, 1_699_999_999_950 + 70, 0), found(1002, 74));
        assert_eq!(find(&batch, 1_699_999_999_950 + 70, 1003), found(1005, 84));
        assert_eq!(find(&batch, 1_699_999_999_950 + 101, 0), None);
        assert_eq!(find(&batch, 0, 1100), None);
        assert_eq!(max_timestamp_record(&batch).unwrap(), found(1030, 100));
    }
}

#[test]
fn where_the_broker_made_the_timestamps_every_record_has_the_maximum() {
    let log = data("append-time-0.log");
    let first = BatchIter::new(&log).next().unwrap().unwrap();
    let timestamp_ms = first.header.max_timestamp;
    let found = |offset| {
        Some(Found {
            offset,
            timestamp_ms,
        })
    };
    assert_eq!(max_timestamp_record(first.bytes).unwrap(), found(0));
    assert_eq!(offset_for_timestamp(first.bytes, 1, 4).unwrap(), found(4));
}

#[test]
fn gaps_that_the_cleaner_left_are_no_gaps_in_the_walk() {
    let log = data("compacted-0.log");
    let ends: Vec<_> = BatchIter::new(&log)
        .map(|batch| batch.unwrap().header.next_offset())
        .collect();
    assert_eq!(ends, [90, 100, 110, 120]);
}

#[test]
fn a_walk_ends_where_the_last_whole_batch_ends() {
    let log = data("txn-0.log");
    let starts: Vec<_> = BatchIter::new(&log)
        .map(|batch| batch.unwrap().position)
        .collect();
    for cut in 0..log.len() {
        let mut batches = BatchIter::new(&log[..cut]);
        let whole = batches.by_ref().flatten().count();
        assert!(batches.next().is_none());
        let end = *starts.iter().rev().find(|start| **start <= cut).unwrap();
        assert_eq!(batches.position(), end);
        assert_eq!(starts[whole], end);
    }
}
