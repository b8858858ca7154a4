use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::part::{Acks, Produce, ProduceEntry};
use corelog_shards::testing::batch;
use corelog_wire::messages::fetch::{
    Request, RequestForgottenTopicsData, RequestTopics, RequestTopicsPartitions, Response,
    ResponseResponsesPartitions,
};

use super::*;

/// A fetch of `t` from (partition, offset) each, that waits for one byte.
fn request(topic: Uuid, partitions: &[(i32, i64)]) -> Request {
    let partitions = partitions
        .iter()
        .map(|(partition, fetch_offset)| RequestTopicsPartitions {
            partition: *partition,
            fetch_offset: *fetch_offset,
            partition_max_bytes: 1 << 20,
            current_leader_epoch: -1,
            last_fetched_epoch: -1,
            ..RequestTopicsPartitions::default()
        });
    Request {
        max_wait_ms: 500,
        min_bytes: 1,
        max_bytes: 1 << 20,
        session_id: 0,
        session_epoch: -1,
        topics: vec![RequestTopics {
            topic: Text::from_static("t"),
            topic_id: topic,
            partitions: partitions.collect(),
        }],
        ..Request::default()
    }
}

fn fetch(node: &mut Node, version: i16, request: &Request) -> Outcome {
    node.send(1, version, |out| request.encode(out, version))
}

fn decoded(outcome: Outcome, version: i16) -> Response {
    Response::decode(&mut body(outcome, 1, version), version).unwrap()
}

fn answered(node: &mut Node, version: i16, request: &Request) -> Response {
    let outcome = fetch(node, version, request);
    decoded(outcome, version)
}

fn partitions(response: &Response) -> Vec<&ResponseResponsesPartitions> {
    response
        .responses
        .iter()
        .flat_map(|topic| &topic.partitions)
        .collect()
}

/// (partition, code, bytes of records)
fn summary(response: &Response) -> Vec<(i32, i16, usize)> {
    let records =
        |partition: &ResponseResponsesPartitions| partition.records.as_ref().unwrap().len();
    partitions(response)
        .iter()
        .map(|partition| {
            (
                partition.partition_index,
                partition.error_code,
                records(partition),
            )
        })
        .collect()
}

fn fill(node: &mut Node, topic: Uuid, partition: i32, batches: usize) -> usize {
    let records = batch(&["a"]);
    for _ in 0..batches {
        let entry = ProduceEntry {
            at: 0,
            partition: node.cluster.partition(topic, partition),
            records: Some(records.clone()),
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
    records.len()
}

#[test]
fn every_version_reads_what_is_there() {
    let (mut node, topic) = Node::with_topic(1, 1);
    let size = fill(&mut node, topic, 0, 2);
    for version in 4..=18 {
        let response = answered(&mut node, version, &request(topic, &[(0, 0)]));
        assert_eq!(summary(&response), [(0, 0, 2 * size)], "version {version}");
        let partition = partitions(&response)[0];
        assert_eq!(
            (partition.high_watermark, partition.last_stable_offset),
            (2, 2)
        );
        assert_eq!(partition.aborted_transactions, None);
        assert_eq!(response.responses[0].topic_id == topic, version >= 13);
    }
}

#[test]
fn f2_a_fetch_waits_until_there_is_something_on_any_shard() {
    let (mut node, topic) = Node::with_topic(3, 3);
    let open = waits(fetch(
        &mut node,
        12,
        &request(topic, &[(0, 0), (1, 0), (2, 0)]),
    ));
    assert!(open.pending.parked());
    let size = fill(&mut node, topic, 2, 1);
    let response = decoded(node.go_on(open), 12);
    assert_eq!(summary(&response), [(0, 0, 0), (1, 0, 0), (2, 0, size)]);
}

#[test]
fn f2_min_bytes_counts_over_all_shards() {
    let (mut node, topic) = Node::with_topic(2, 2);
    let size = fill(&mut node, topic, 0, 1);
    let mut request = request(topic, &[(0, 0), (1, 0)]);
    request.min_bytes = 2 * size as i32;
    let open = waits(fetch(&mut node, 12, &request));
    fill(&mut node, topic, 1, 1);
    let response = decoded(node.go_on(open), 12);
    assert_eq!(summary(&response), [(0, 0, size), (1, 0, size)]);
}

#[test]
fn f2_the_time_is_up_and_what_is_there_is_given() {
    let (mut node, topic) = Node::with_topic(2, 2);
    let size = fill(&mut node, topic, 1, 1);
    let mut request = request(topic, &[(0, 0), (1, 0)]);
    request.min_bytes = 100_000;
    let open = waits(fetch(&mut node, 12, &request));
    let response = decoded(node.expire(open), 12);
    assert_eq!(summary(&response), [(0, 0, 0), (1, 0, size)]);
}

#[test]
fn f2_an_error_or_no_patience_answers_at_once() {
    let (mut node, topic) = Node::with_topic(2, 2);
    let response = answered(&mut node, 12, &request(topic, &[(0, 0), (1, 5)]));
    let out_of_range = ErrorCode::OFFSET_OUT_OF_RANGE.0;
    assert_eq!(summary(&response), [(0, 0, 0), (1, out_of_range, 0)]);
    assert_eq!(partitions(&response)[1].high_watermark, -1);
    let response = answered(&mut node, 12, &request(topic, &[(0, 0), (9, 0)]));
    assert_eq!(
        summary(&response)[1].1,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0
    );
    for change in [
        |request: &mut Request| request.max_wait_ms = 0,
        |request: &mut Request| request.min_bytes = 0,
    ] {
        let mut request = request(topic, &[(0, 0)]);
        change(&mut request);
        assert_eq!(summary(&answered(&mut node, 12, &request)), [(0, 0, 0)]);
    }
    assert!(
        answered(&mut node, 12, &request(topic, &[])).responses[..]
            .iter()
            .all(|topic| topic.partitions.is_empty())
    );
}

#[test]
fn f3_budgets_are_given_out_in_request_order() {
    let (mut node, topic) = Node::with_topic(3, 3);
    let size = (0..3)
        .map(|partition| fill(&mut node, topic, partition, 3))
        .max()
        .unwrap();
    let mut request = request(topic, &[(2, 0), (0, 0), (1, 0)]);
    request.max_bytes = 4 * size as i32;
    let response = answered(&mut node, 12, &request);
    assert_eq!(
        summary(&response),
        [(2, 0, 3 * size), (0, 0, size), (1, 0, 0)]
    );
    // The first that has anything sends one batch even if it is too large.
    request.max_bytes = 1;
    let response = answered(&mut node, 12, &request);
    assert_eq!(summary(&response), [(2, 0, size), (0, 0, 0), (1, 0, 0)]);
    request.max_bytes = 1 << 20;
    request.topics[0].partitions[1].partition_max_bytes = 2 * size as i32;
    let response = answered(&mut node, 12, &request);
    assert_eq!(
        summary(&response),
        [(2, 0, 3 * size), (0, 0, 2 * size), (1, 0, 3 * size)]
    );
}

#[test]
fn f1_unknown_ids_are_100_and_followers_are_not_served() {
    let (mut node, topic) = Node::with_topic(1, 1);
    let response = answered(&mut node, 13, &request(Uuid([3; 16]), &[(0, 0)]));
    assert_eq!(summary(&response)[0].1, ErrorCode::UNKNOWN_TOPIC_ID.0);
    let mut request = request(topic, &[(0, 0)]);
    request.replica_id = 5;
    let response = answered(&mut node, 12, &request);
    assert_eq!(summary(&response)[0].1, ErrorCode::NOT_LEADER_OR_FOLLOWER.0);
}

#[test]
fn f7_a_fenced_epoch_names_the_leader_and_its_endpoint() {
    let (mut node, topic) = Node::with_topic(1, 1);
    node.cluster.elect(node.cluster.partition(topic, 0).id);
    node.show_image();
    let mut request = request(topic, &[(0, 0)]);
    request.topics[0].partitions[0].current_leader_epoch = 0;
    for version in [11, 12, 16] {
        let response = answered(&mut node, version, &request);
        let partition = partitions(&response)[0];
        assert_eq!(partition.error_code, ErrorCode::FENCED_LEADER_EPOCH.0);
        let expected = if version >= 12 { (NODE, 1) } else { (-1, -1) };
        assert_eq!(
            (
                partition.current_leader.leader_id,
                partition.current_leader.leader_epoch
            ),
            expected
        );
        assert_eq!(response.node_endpoints.len(), usize::from(version >= 16));
    }
}

#[test]
fn f8_a_diverging_epoch_is_told_without_records() {
    let (mut node, topic) = Node::with_topic(1, 1);
    fill(&mut node, topic, 0, 1);
    node.cluster.elect(node.cluster.partition(topic, 0).id);
    node.show_image();
    fill(&mut node, topic, 0, 1);
    let mut request = request(topic, &[(0, 2)]);
    request.topics[0].partitions[0].last_fetched_epoch = 0;
    let response = answered(&mut node, 12, &request);
    let diverging = &partitions(&response)[0].diverging_epoch;
    assert_eq!((diverging.epoch, diverging.end_offset), (0, 1));
    assert_eq!(summary(&response), [(0, 0, 0)]);
}

#[test]
fn s1_a_session_answers_everything_first_and_then_what_changed() {
    for version in [7, 13] {
        let (mut node, topic) = Node::with_topic(3, 3);
        let mut first = request(topic, &[(0, 0), (1, 0), (2, 0)]);
        first.session_epoch = 0;
        first.max_wait_ms = 0;
        let response = answered(&mut node, version, &first);
        assert_ne!(response.session_id, 0);
        assert_eq!(partitions(&response).len(), 3);

        let mut next = request(topic, &[]);
        next.topics.clear();
        next.session_id = response.session_id;
        next.session_epoch = 1;
        let open = waits(fetch(&mut node, version, &next));
        let size = fill(&mut node, topic, 1, 1);
        let response = decoded(node.go_on(open), version);
        assert_eq!(
            (summary(&response), response.session_id),
            (vec![(1, 0, size)], next.session_id)
        );

        next.session_epoch = 2;
        next.max_wait_ms = 0;
        next.forgotten_topics_data = vec![RequestForgottenTopicsData {
            topic: Text::from_static("t"),
            topic_id: topic,
            partitions: vec![1],
        }];
        let response = answered(&mut node, version, &next);
        assert_eq!((response.error_code, partitions(&response).len()), (0, 0));
    }
}

#[test]
fn s3_a_wrong_session_is_a_top_level_error() {
    let (mut node, topic) = Node::with_topic(2, 1);
    let mut request = request(topic, &[(0, 0)]);
    (request.session_id, request.session_epoch) = (12345, 3);
    let response = answered(&mut node, 12, &request);
    assert_eq!(response.error_code, ErrorCode::FETCH_SESSION_ID_NOT_FOUND.0);
    assert_eq!((response.session_id, response.responses.len()), (0, 0));
}

#[test]
fn s1_a_closed_session_goes_on_without() {
    let (mut node, topic) = Node::with_topic(2, 1);
    fill(&mut node, topic, 0, 1);
    let mut request = request(topic, &[(0, 0)]);
    request.session_epoch = 0;
    let id = answered(&mut node, 12, &request).session_id;
    (request.session_id, request.session_epoch) = (id, -1);
    let response = answered(&mut node, 12, &request);
    assert_eq!((response.session_id, partitions(&response).len()), (0, 1));
    request.session_epoch = 1;
    assert_eq!(
        answered(&mut node, 12, &request).error_code,
        ErrorCode::FETCH_SESSION_ID_NOT_FOUND.0
    );
}

#[test]
fn a_topic_that_goes_while_a_fetch_waits_ends_the_wait() {
    let (mut node, topic) = Node::with_topic(1, 1);
    let open = waits(fetch(&mut node, 12, &request(topic, &[(0, 0)])));
    node.cluster.delete_topic(topic);
    node.show_image();
    let response = decoded(node.go_on(open), 12);
    assert_eq!(
        summary(&response)[0].1,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0
    );
}
