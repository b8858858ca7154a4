use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::part::{Acks, Produce, ProduceEntry};
use corelog_shards::testing::{batch, batch_of};
use corelog_wire::messages::{
    delete_records, describe_log_dirs, describe_producers, list_offsets, offset_for_leader_epoch,
};

use super::*;

fn produce(node: &mut Node, topic: Uuid, partition: i32, records: Bytes) {
    let partition_ref = node.cluster.partition(topic, partition);
    let entry = ProduceEntry {
        at: 0,
        partition: partition_ref,
        records: Some(records),
    };
    let entries = std::iter::once(entry).collect();
    let owner = node.owner(topic, partition);
    node.shards[owner].ask(Part::Produce(Produce {
        acks: Acks::All,
        timeout_ms: 1000,
        zstd: true,
        entries,
    }));
}

fn list(node: &mut Node, version: i16, asked: &[(i32, i64)]) -> Vec<(i32, i16, i64)> {
    let partitions =
        asked.iter().map(
            |(partition_index, timestamp)| list_offsets::RequestTopicsPartitions {
                partition_index: *partition_index,
                timestamp: *timestamp,
                current_leader_epoch: -1,
            },
        );
    let request = list_offsets::Request {
        replica_id: -1,
        topics: vec![list_offsets::RequestTopics {
            name: Text::from_static("t"),
            partitions: partitions.collect(),
        }],
        ..list_offsets::Request::default()
    };
    let outcome = node.send(2, version, |out| request.encode(out, version));
    let response = list_offsets::Response::decode(&mut body(outcome, 2, version), version).unwrap();
    let listed = response.topics.iter().flat_map(|topic| &topic.partitions);
    listed
        .map(|listed| (listed.partition_index, listed.error_code, listed.offset))
        .collect()
}

#[test]
fn every_version_lists_offsets_of_all_shards_in_request_order() {
    let (mut node, topic) = Node::with_topic(2, 2);
    produce(&mut node, topic, 1, batch(&["a", "b"]));
    for version in 1..=11 {
        let listed = list(&mut node, version, &[(1, -1), (0, -1), (7, -1)]);
        let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0;
        assert_eq!(
            listed,
            [(1, 0, 2), (0, 0, 0), (7, unknown, -1)],
            "version {version}"
        );
    }
}

#[test]
fn a_special_timestamp_below_its_version_is_unsupported() {
    let (mut node, _) = Node::with_topic(1, 1);
    for (timestamp, first) in [(-3, 7), (-4, 8), (-5, 9), (-6, 11)] {
        let code = |listed: Vec<(i32, i16, i64)>| ErrorCode(listed[0].1);
        assert_eq!(
            code(list(&mut node, first - 1, &[(0, timestamp)])),
            ErrorCode::UNSUPPORTED_VERSION
        );
        assert_eq!(
            code(list(&mut node, first, &[(0, timestamp)])),
            ErrorCode::NONE
        );
    }
    assert_eq!(
        list(&mut node, 11, &[(0, -7)])[0].1,
        ErrorCode::UNSUPPORTED_VERSION.0
    );
}

#[test]
fn partitions_that_are_named_twice_are_invalid_both_times() {
    let (mut node, _) = Node::with_topic(1, 2);
    let invalid = ErrorCode::INVALID_REQUEST.0;
    assert_eq!(
        list(&mut node, 7, &[(0, -1), (1, -1), (0, -2)]),
        [(0, invalid, -1), (1, 0, 0), (0, invalid, -1)]
    );
}

fn delete(node: &mut Node, topic: &'static str, offset: i64) -> (i16, i64) {
    let request = delete_records::Request {
        timeout_ms: 1000,
        topics: vec![delete_records::RequestTopics {
            name: Text::from_static(topic),
            partitions: vec![delete_records::RequestTopicsPartitions {
                partition_index: 0,
                offset,
            }],
        }],
    };
    let outcome = node.send(21, 2, |out| request.encode(out, 2));
    let response = delete_records::Response::decode(&mut body(outcome, 21, 2), 2).unwrap();
    let deleted = &response.topics[0].partitions[0];
    (deleted.error_code, deleted.low_watermark)
}

#[test]
fn d9_who_may_delete_records() {
    let mut node = Node::new(2);
    let topic = node.create_topic("t", 1, &[]);
    node.create_topic("compacted", 1, &[("cleanup.policy", "compact")]);
    node.create_topic("both", 1, &[("cleanup.policy", "compact,delete")]);
    node.create_topic("__consumer_offsets", 1, &[]);
    produce(&mut node, topic, 0, batch(&["a", "b"]));
    assert_eq!(delete(&mut node, "t", 1), (0, 1));
    assert_eq!(delete(&mut node, "t", -1), (0, 2));
    assert_eq!(
        delete(&mut node, "t", 3).0,
        ErrorCode::OFFSET_OUT_OF_RANGE.0
    );
    assert_eq!(
        delete(&mut node, "compacted", 0).0,
        ErrorCode::POLICY_VIOLATION.0
    );
    assert_eq!(delete(&mut node, "both", 0), (0, 0));
    assert_eq!(
        delete(&mut node, "__consumer_offsets", 0).0,
        ErrorCode::INVALID_TOPIC_EXCEPTION.0
    );
    assert_eq!(
        delete(&mut node, "nobody", 0).0,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0
    );
}

#[test]
fn epoch_ends_are_answered_in_every_version() {
    let (mut node, topic) = Node::with_topic(1, 1);
    produce(&mut node, topic, 0, batch(&["a", "b"]));
    for version in 2..=4 {
        let asked = |partition| offset_for_leader_epoch::RequestTopicsPartitions {
            partition,
            current_leader_epoch: 0,
            leader_epoch: 0,
        };
        let request = offset_for_leader_epoch::Request {
            replica_id: -1,
            topics: vec![offset_for_leader_epoch::RequestTopics {
                topic: Text::from_static("t"),
                partitions: vec![asked(3), asked(0)],
            }],
        };
        let outcome = node.send(23, version, |out| request.encode(out, version));
        let mut reader = body(outcome, 23, version);
        let response = offset_for_leader_epoch::Response::decode(&mut reader, version).unwrap();
        let ends: Vec<_> = response.topics[0]
            .partitions
            .iter()
            .map(|end| (end.error_code, end.leader_epoch, end.end_offset))
            .collect();
        assert_eq!(ends, [(3, -1, -1), (0, 0, 2)]);
    }
}

#[test]
fn d15_producers_are_described_by_their_leaders() {
    let (mut node, topic) = Node::with_topic(2, 2);
    produce(&mut node, topic, 1, batch_of((9, 3), 0, &["a"]));
    let request = describe_producers::Request {
        topics: vec![describe_producers::RequestTopics {
            name: Text::from_static("t"),
            partition_indexes: vec![0, 1, 2],
        }],
    };
    let outcome = node.send(61, 0, |out| request.encode(out, 0));
    let response = describe_producers::Response::decode(&mut body(outcome, 61, 0), 0).unwrap();
    let partitions = &response.topics[0].partitions;
    assert_eq!(
        partitions
            .iter()
            .map(|partition| partition.error_code)
            .collect::<Vec<_>>(),
        [0, 0, 3]
    );
    assert!(partitions[0].active_producers.is_empty());
    let producer = &partitions[1].active_producers[0];
    assert_eq!(
        (
            producer.producer_id,
            producer.producer_epoch,
            producer.coordinator_epoch
        ),
        (9, 3, -1)
    );
}

fn log_dirs(
    node: &mut Node,
    version: i16,
    topics: Option<Vec<describe_log_dirs::RequestTopics>>,
) -> describe_log_dirs::Response {
    let request = describe_log_dirs::Request { topics };
    let outcome = node.send(35, version, |out| request.encode(out, version));
    describe_log_dirs::Response::decode(&mut body(outcome, 35, version), version).unwrap()
}

#[test]
fn d7_sizes_are_told_per_directory() {
    let (mut node, topic) = Node::with_topic(2, 2);
    let records = batch(&["a"]);
    produce(&mut node, topic, 1, records.clone());
    let second = TopicPartition {
        topic_id: topic,
        partition: 1,
    };
    node.directories = Arc::new(Directories {
        list: vec![
            directory("/a", false),
            directory("/b", false),
            directory("/c", true),
        ],
        of: std::iter::once((second, 1)).collect(),
    });
    for version in 1..=5 {
        let response = log_dirs(&mut node, version, None);
        let dirs: Vec<_> = response
            .results
            .iter()
            .map(|dir| (dir.error_code, &*dir.log_dir, dir.topics.len()))
            .collect();
        assert_eq!(
            dirs,
            [
                (0, "/a", 1),
                (0, "/b", 1),
                (ErrorCode::KAFKA_STORAGE_ERROR.0, "/c", 0)
            ]
        );
        let partition = &response.results[1].topics[0].partitions[0];
        assert_eq!(
            (partition.partition_index, partition.partition_size),
            (1, records.len() as i64)
        );
        assert_eq!(
            response.results[0].usable_bytes,
            if version >= 4 { 400 } else { -1 }
        );
    }
    let named = describe_log_dirs::RequestTopics {
        topic: Text::from_static("t"),
        partitions: vec![0, 9],
    };
    let response = log_dirs(&mut node, 4, Some(vec![named]));
    assert_eq!(
        response
            .results
            .iter()
            .map(|dir| dir.topics.len())
            .collect::<Vec<_>>(),
        [1, 0, 0]
    );
}
