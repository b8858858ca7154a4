use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::testing::{Hold, batch};
use corelog_wire::messages::produce::{
    Request, RequestTopicData, RequestTopicDataPartitionData, Response,
    ResponseResponsesPartitionResponses,
};

use super::*;

const VERSIONS: std::ops::RangeInclusive<i16> = 3..=13;

fn request(acks: i16, topics: &[(&str, Uuid, &[i32])]) -> Request {
    let topic_data = topics
        .iter()
        .map(|(name, id, partitions)| RequestTopicData {
            name: Text::from((*name).to_owned()),
            topic_id: *id,
            partition_data: partitions.iter().map(|index| data(*index)).collect(),
        });
    Request {
        transactional_id: None,
        acks,
        timeout_ms: 1000,
        topic_data: topic_data.collect(),
    }
}

fn data(index: i32) -> RequestTopicDataPartitionData {
    RequestTopicDataPartitionData {
        index,
        records: Some(batch(&["a"])),
    }
}

fn produce(node: &mut Node, version: i16, request: &Request) -> Outcome {
    node.send(0, version, |out| request.encode(out, version))
}

fn answered(node: &mut Node, version: i16, request: &Request) -> Response {
    let outcome = produce(node, version, request);
    Response::decode(&mut body(outcome, 0, version), version).unwrap()
}

fn only(response: &Response) -> &ResponseResponsesPartitionResponses {
    assert_eq!(response.responses.len(), 1);
    assert_eq!(response.responses[0].partition_responses.len(), 1);
    &response.responses[0].partition_responses[0]
}

fn code(response: &Response) -> ErrorCode {
    ErrorCode(only(response).error_code)
}

#[test]
fn every_version_appends_and_answers() {
    let (mut node, topic) = Node::with_topic(1, 1);
    for (offset, version) in (0..).zip(VERSIONS) {
        let response = answered(&mut node, version, &request(-1, &[("t", topic, &[0])]));
        let produced = only(&response);
        assert_eq!(
            (produced.error_code, produced.base_offset),
            (0, offset),
            "version {version}"
        );
        assert_eq!(produced.log_start_offset, if version >= 5 { 0 } else { -1 });
    }
}

#[test]
fn partitions_of_several_shards_are_answered_in_request_order() {
    let (mut node, topic) = Node::with_topic(3, 6);
    let response = answered(
        &mut node,
        9,
        &request(1, &[("t", topic, &[5, 0, 3]), ("t", topic, &[1])]),
    );
    let order: Vec<Vec<i32>> = response
        .responses
        .iter()
        .map(|topic| {
            topic
                .partition_responses
                .iter()
                .map(|produced| produced.index)
                .collect()
        })
        .collect();
    assert_eq!(order, [vec![5, 0, 3], vec![1]]);
    let all = response
        .responses
        .iter()
        .flat_map(|topic| &topic.partition_responses);
    assert!(all.into_iter().all(|produced| produced.error_code == 0));
}

#[test]
fn p1_wrong_acks_are_refused_for_every_partition() {
    let (mut node, topic) = Node::with_topic(1, 1);
    let response = answered(&mut node, 9, &request(2, &[("t", topic, &[0])]));
    assert_eq!(code(&response), ErrorCode::INVALID_REQUIRED_ACKS);
}

#[test]
fn p1_acks_0_is_silent_and_an_error_closes_the_connection() {
    let (mut node, topic) = Node::with_topic(2, 2);
    let outcome = produce(&mut node, 9, &request(0, &[("t", topic, &[0, 1])]));
    assert!(matches!(outcome, Outcome::Silent));
    let outcome = produce(
        &mut node,
        9,
        &request(0, &[("t", topic, &[0]), ("nobody", topic, &[0])]),
    );
    assert!(matches!(outcome, Outcome::Close));
    let outcome = produce(&mut node, 9, &request(0, &[("nobody", topic, &[0])]));
    assert!(matches!(outcome, Outcome::Close));
    let outcome = produce(&mut node, 9, &request(0, &[]));
    assert!(matches!(outcome, Outcome::Silent));
}

#[test]
fn p3_unknown_topics_are_3_by_name_and_100_by_id() {
    let (mut node, topic) = Node::with_topic(1, 1);
    let response = answered(&mut node, 12, &request(1, &[("nobody", topic, &[0])]));
    assert_eq!(code(&response), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    let response = answered(&mut node, 13, &request(1, &[("t", Uuid([3; 16]), &[0])]));
    assert_eq!(code(&response), ErrorCode::UNKNOWN_TOPIC_ID);
    for partition in [-1, 1] {
        let response = answered(&mut node, 12, &request(1, &[("t", topic, &[partition])]));
        assert_eq!(code(&response), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    }
}

#[test]
fn p4_internal_topics_are_for_the_admin_client_only() {
    let mut node = Node::new(1);
    let topic = node.create_topic("__consumer_offsets", 1, &[]);
    let request = request(1, &[("__consumer_offsets", topic, &[0])]);
    assert_eq!(
        code(&answered(&mut node, 12, &request)),
        ErrorCode::INVALID_TOPIC_EXCEPTION
    );
    node.client_id = Some(Text::from_static("__admin_client"));
    assert_eq!(code(&answered(&mut node, 12, &request)), ErrorCode::NONE);
}

#[test]
fn p6_wrong_records_are_named_from_version_8_on() {
    let mut node = Node::new(1);
    let topic = node.create_topic("t", 1, &[("message.timestamp.before.max.ms", "1000")]);
    node.shards[0].pass_ms(10_000);
    for (version, named) in [(7, 0), (8, 1)] {
        let response = answered(&mut node, version, &request(1, &[("t", topic, &[0])]));
        let produced = only(&response);
        assert_eq!(code(&response), ErrorCode::INVALID_TIMESTAMP);
        assert_eq!(
            (
                produced.record_errors.len(),
                produced.error_message.is_some()
            ),
            (named, named > 0)
        );
        assert_eq!(produced.base_offset, -1);
    }
}

#[test]
fn p6_a_leader_elsewhere_is_named_from_version_10_on() {
    let (mut node, topic) = Node::with_topic(1, 1);
    node.broker.node_id = 2;
    for (version, leader) in [(9, -1), (10, NODE)] {
        let response = answered(&mut node, version, &request(1, &[("t", topic, &[0])]));
        assert_eq!(code(&response), ErrorCode::NOT_LEADER_OR_FOLLOWER);
        assert_eq!(only(&response).current_leader.leader_id, leader);
    }
    // This node's own endpoint is the advertised one.
    node.broker.node_id = NODE;
    let mut leaders = super::super::resolve::Leaders::default();
    let named = corelog_wire::messages::topic_ref::TopicRef::Name("t");
    leaders.of(&node.image, named, 0, ErrorCode::FENCED_LEADER_EPOCH);
    let cx = node.context();
    let endpoints = leaders.endpoints(&cx);
    assert_eq!(
        (endpoints[0].node_id, endpoints[0].host, endpoints[0].port),
        (NODE, "broker.test", 9092)
    );
}

#[test]
fn a_produce_waits_for_its_write_and_is_never_parked() {
    let (mut node, topic) = Node::with_topic(1, 1);
    node.shards[0].hold = Hold::Everything;
    let open = waits(produce(&mut node, 9, &request(-1, &[("t", topic, &[0])])));
    assert!(
        !open.pending.parked(),
        "its credits are what stops the sockets of a broker whose disk stands still"
    );
    node.shards[0].hold = Hold::Nothing;
    node.shards[0].release();
    let outcome = node.go_on(open);
    let response = Response::decode(&mut body(outcome, 0, 9), 9).unwrap();
    assert_eq!(code(&response), ErrorCode::NONE);
}

#[test]
fn a_malformed_body_closes_the_connection() {
    let mut node = Node::new(1);
    let outcome = node.send(0, 9, |out| {
        out.extend_from_slice(&[0, 0xff, 0xff, 0, 0, 0, 0, 0xff]);
    });
    assert!(matches!(outcome, Outcome::Close));
}
