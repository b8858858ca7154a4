//! Files that Apache Kafka 4.3.1 wrote (`tests/data/golden`: a log directory after a clean stop): replaying their batches gives
//! the same files, byte for byte.

use std::collections::BTreeMap;
use std::io::Read as _;

use bytes::Bytes;
use corelog_wire::batch::{
    self as wire, Action, ValidationParams, set_max_timestamp, validate_records,
};

use super::disk::name_of;
use super::rig::*;
use crate::log::*;
use crate::metadata::{TimestampType, TopicConfig};

/// The files of the directory by path (`rolled-0/00000000000000000000.log`).
pub(super) fn golden() -> BTreeMap<String, Vec<u8>> {
    let packed = include_bytes!("../../../../tests/data/golden/kafka-4.3.1.tar.gz");
    let mut tar = Vec::new();
    flate2::read::GzDecoder::new(&packed[..])
        .read_to_end(&mut tar)
        .unwrap();
    let mut files = BTreeMap::new();
    let mut rest = &tar[..];
    while rest.len() >= 512 && rest[0] != 0 {
        let text = |range: std::ops::Range<usize>| {
            let field = &rest[range];
            let len = field
                .iter()
                .position(|byte| *byte == 0)
                .unwrap_or(field.len());
            std::str::from_utf8(&field[..len])
                .unwrap()
                .trim()
                .to_owned()
        };
        let size = usize::from_str_radix(&text(124..136), 8).unwrap();
        if let Some(path) = text(0..100).strip_prefix("data/")
            && !path.ends_with('/')
        {
            files.insert(path.to_owned(), rest[512..512 + size].to_vec());
        }
        rest = &rest[512 + size.next_multiple_of(512)..];
    }
    assert!(files.len() > 100, "{}", files.len());
    files
}

/// The files of one partition.
pub(super) fn partition(name: &str) -> BTreeMap<String, Vec<u8>> {
    let inside = |(path, data): (String, Vec<u8>)| {
        Some((path.strip_prefix(&format!("{name}/"))?.to_owned(), data))
    };
    golden().into_iter().filter_map(inside).collect()
}

/// The batch as its producer sent it, taken through validation for a topic with append times.
fn validated(stamped: &AppendBatch, now_ms: i64) -> AppendBatch {
    let mut sent = stamped.bytes.to_vec();
    set_max_timestamp(
        &mut sent,
        wire::TimestampType::CreateTime,
        1_500_000_000_000,
    );
    let params = ValidationParams {
        now_ms,
        timestamp_type: wire::TimestampType::LogAppendTime,
        before_max_ms: i64::MAX,
        after_max_ms: i64::MAX,
        compacted: false,
        target: None,
        max_batch_bytes: usize::MAX,
        zstd_allowed: true,
    };
    let sent = Bytes::from(sent);
    let valid = validate_records(&sent, &params).unwrap();
    AppendBatch {
        bytes: match valid.action {
            Action::InPlace => sent,
            Action::Rewritten(bytes) => bytes,
        },
        header: valid.header,
        leader_epoch: stamped.leader_epoch,
        origin: stamped.origin,
    }
}

/// Appends all batches of a partition one by one, stops, and compares the files.
fn replay(name: &str, config: TopicConfig) {
    let golden = partition(name);
    let append_time = config.timestamp_type == TimestampType::LogAppendTime;
    let mut rig = Rig::new(config);
    for (_, log) in golden
        .iter()
        .filter(|(name, _)| name.strip_suffix(".log").is_some())
    {
        for batch in batches(log) {
            let mut fresh = unsent(&batch, Origin::Client);
            if fresh.header.is_control() {
                fresh.origin = Origin::Coordinator;
            }
            if append_time {
                rig.now.wall_ms = fresh.header.max_timestamp;
                fresh = validated(&fresh, rig.now.wall_ms);
            }
            rig.try_append(&fresh).unwrap();
        }
    }
    rig.stop();
    for (path, expected) in &golden {
        let ours = rig.disk.files.iter().find(|(id, _)| name_of(**id) == *path);
        match ours {
            Some((_, ours)) => assert!(ours.data == *expected, "{name}/{path} differs"),
            None => assert!(
                path == "partition.metadata" || path == "quorum-state",
                "{name}/{path} is missing"
            ),
        }
    }
    let names = rig.disk.files.keys().map(|id| name_of(*id));
    let only_ours: Vec<String> = names.filter(|path| !golden.contains_key(path)).collect();
    // From where the last five batches of each producer are replayed; Kafka knows one, and deletes such a snapshot when it starts.
    let is_snapshot = |path: &String| path.strip_suffix(".snapshot").is_some();
    assert!(
        only_ours.len() <= 1 && only_ours.iter().all(is_snapshot),
        "Kafka has no {name}/{only_ours:?}"
    );
}

#[test]
fn the_segments_and_indexes_of_a_rolled_log_are_those_of_kafka() {
    replay(
        "rolled-0",
        TopicConfig {
            segment_bytes: 1 << 20,
            index_interval_bytes: 1024,
            ..TopicConfig::default()
        },
    );
}

#[test]
fn the_files_of_every_codec_are_those_of_kafka() {
    for name in ["codecs-0", "codecs-1", "codecs-2", "codecs-3", "codecs-4"] {
        replay(name, TopicConfig::default());
    }
}

#[test]
fn the_files_of_transactions_are_those_of_kafka() {
    for name in [
        "txn-0",
        "__transaction_state-5",
        "__consumer_offsets-4",
        "__consumer_offsets-5",
    ] {
        replay(name, TopicConfig::default());
    }
}

#[test]
fn append_times_are_stamped_as_kafka_does() {
    replay(
        "append-time-0",
        TopicConfig {
            timestamp_type: TimestampType::LogAppendTime,
            ..TopicConfig::default()
        },
    );
}
