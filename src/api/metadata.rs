//! Metadata (key 3), versions 0 to 13.
//!
//! v1 null topics mean all, controller, racks; v2 cluster id; v4 the client may forbid creation; v5 offline replicas; v7 leader epochs;
//! v8 authorised operations (v8 to 10 for the cluster too); v9 flexible; v10 topic ids; v12 topics by id alone; v13 a code for the whole.
//! Rules: M-1 to M-7.
//!
//! Where Kafka answers 3 to a name that it is about to create, this broker answers when it is created (M-4): the client need not ask again.

use std::collections::BTreeSet;

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::ids::{Text, Uuid};
use corelog_shards::base::time::Mono;
use corelog_shards::controller;
use corelog_shards::controller::request::{Ask, CreateTopics};
use corelog_shards::controller::topic_name;
use corelog_shards::metadata::{Topic, is_internal};
use corelog_shards::part::Reply;
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::metadata::{
    Request, RequestTopics, Response, ResponseBrokers, ResponseTopics, ResponseTopicsPartitions,
};
use corelog_wire::primitives::{DecodeError, Reader};

use super::{
    Answer, Context, Joins, Parts, Pending, Split, Step, asked, internal_topics, topology,
};

/// How long a creation may take before the client is told to ask again.
const CREATE_TIMEOUT_MS: i32 = 5_000;
/// The first version whose topics may be named by id.
const IDS_SINCE: i16 = 12;

/// What the client wants to know of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Wanted {
    Name(Text),
    Id(Uuid),
}

pub fn split(
    cx: &Context<'_>,
    header: &RequestHeader,
    body: Bytes,
    parts: &mut Parts,
    answer: &mut Answer<'_>,
) -> Result<Split, DecodeError> {
    let request = Request::decode(&mut Reader::new(body), header.api_version)?;
    let version = header.api_version;
    let mut join = Join {
        header: header.clone(),
        topic_operations: request.include_topic_authorized_operations,
        cluster_operations: request.include_cluster_authorized_operations,
        wanted: None,
        creating: Vec::new(),
    };
    match request.topics {
        Some(topics) if !(version == 0 && topics.is_empty()) => {
            let by_id_too_early = |topic: &RequestTopics| {
                version < IDS_SINCE && (topic.name.is_none() || !topic.topic_id.is_zero())
            };
            if topics.iter().any(by_id_too_early) {
                join.refuse(cx, &topics, answer);
                return Ok(Split::Ready);
            }
            join.wanted = Some(wanted(topics));
        }
        // v1 and later say "all" with null, v0 with nothing (M-1).
        _ => {}
    }
    let may_create =
        cx.broker.auto_create_topics && (version < 4 || request.allow_auto_topic_creation);
    if may_create {
        join.create(cx, parts);
    }
    if join.creating.is_empty() {
        join.write(cx, None, answer);
        return Ok(Split::Ready);
    }
    Ok(Split::Wait(Pending::other(join)))
}

/// In the client's order, each once.
fn wanted(topics: Vec<RequestTopics>) -> Vec<Wanted> {
    let mut seen = BTreeSet::new();
    topics
        .into_iter()
        .map(|topic| match topic.name {
            Some(name) if topic.topic_id.is_zero() => Wanted::Name(name),
            _ => Wanted::Id(topic.topic_id),
        })
        .filter(|wanted| seen.insert(wanted.clone()))
        .collect()
}

struct Join {
    header: RequestHeader,
    topic_operations: bool,
    cluster_operations: bool,
    /// `None` = all topics.
    wanted: Option<Vec<Wanted>>,
    /// The names that the controller was asked to create, in its order.
    creating: Vec<Text>,
}

/// What became of the creations.
type Created<'a> =
    Option<&'a [Result<controller::request::CreatedTopic, controller::request::Refusal>]>;

impl Join {
    /// Asks the controller for the topics that are not there and may be (M-4).
    fn create(&mut self, cx: &Context<'_>, parts: &mut Parts) {
        let missing = self
            .wanted
            .iter()
            .flatten()
            .filter_map(|wanted| match wanted {
                Wanted::Name(name) => (cx.image.topic(name).is_none()
                    && topic_name::check(name).is_ok())
                .then_some(name),
                Wanted::Id(_) => None,
            });
        self.creating = missing.cloned().collect();
        if self.creating.is_empty() {
            return;
        }
        let topics = self
            .creating
            .iter()
            .map(|name| internal_topics::new_topic(cx.broker, name))
            .collect();
        let create = CreateTopics {
            topics,
            validate_only: false,
        };
        asked::push(parts, CREATE_TIMEOUT_MS, Ask::CreateTopics(create));
    }

    fn write(&self, cx: &Context<'_>, created: Created<'_>, answer: &mut Answer<'_>) {
        let topics = match &self.wanted {
            None => {
                let all = cx.image.sorted_topics().into_iter();
                all.map(|topic| self.topic(cx, topic)).collect()
            }
            Some(wanted) => wanted
                .iter()
                .map(|wanted| self.wanted_topic(cx, wanted, created))
                .collect(),
        };
        self.respond(cx, topics, ErrorCode::NONE, answer);
    }

    fn wanted_topic(
        &self,
        cx: &Context<'_>,
        wanted: &Wanted,
        created: Created<'_>,
    ) -> ResponseTopics {
        let found = match wanted {
            Wanted::Name(name) => cx.image.topic(name),
            Wanted::Id(id) => cx.image.topic_by_id(*id),
        };
        match (found, wanted) {
            (Some(topic), _) => self.topic(cx, topic),
            (None, Wanted::Id(id)) => ResponseTopics {
                topic_id: *id,
                ..self.without_topic(None, ErrorCode::UNKNOWN_TOPIC_ID)
            },
            (None, Wanted::Name(name)) => {
                let code = if topic_name::check(name).is_err() {
                    ErrorCode::INVALID_TOPIC_EXCEPTION
                } else {
                    self.missing(name, created)
                };
                self.without_topic(Some(name.clone()), code)
            }
        }
    }

    /// Why a topic is not there. 5 makes clients ask again.
    fn missing(&self, name: &Text, created: Created<'_>) -> ErrorCode {
        let at = self.creating.iter().position(|creating| creating == name);
        let entry = at.and_then(|at| created?.get(at));
        match entry {
            None => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            Some(Ok(_)) => ErrorCode::LEADER_NOT_AVAILABLE,
            Some(Err(refusal)) => match refusal.code {
                ErrorCode::INVALID_TOPIC_EXCEPTION => ErrorCode::INVALID_TOPIC_EXCEPTION,
                ErrorCode::REQUEST_TIMED_OUT | ErrorCode::TOPIC_ALREADY_EXISTS => {
                    ErrorCode::LEADER_NOT_AVAILABLE
                }
                _ => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            },
        }
    }

    fn without_topic(&self, name: Option<Text>, code: ErrorCode) -> ResponseTopics {
        // Versions below 12 have no null name.
        let name = name.or_else(|| (self.header.api_version < IDS_SINCE).then(Text::empty));
        ResponseTopics {
            error_code: code.0,
            is_internal: name.as_deref().is_some_and(is_internal),
            name,
            ..ResponseTopics::default()
        }
    }

    fn topic(&self, cx: &Context<'_>, topic: &Topic) -> ResponseTopics {
        let partitions = topic.partitions.iter().zip(0..);
        ResponseTopics {
            error_code: 0,
            name: Some(topic.name.clone()),
            topic_id: topic.id,
            is_internal: is_internal(&topic.name),
            partitions: partitions
                .map(|(meta, index)| {
                    let missing_listener = if self.header.api_version >= 6 {
                        ErrorCode::LISTENER_NOT_FOUND
                    } else {
                        ErrorCode::LEADER_NOT_AVAILABLE
                    };
                    let view = topology::partition(cx, meta, missing_listener);
                    ResponseTopicsPartitions {
                        error_code: view.code.0,
                        partition_index: index,
                        leader_id: view.leader_id,
                        leader_epoch: meta.leader_epoch,
                        replica_nodes: view.replicas,
                        isr_nodes: view.isr,
                        offline_replicas: view.offline,
                    }
                })
                .collect(),
            topic_authorized_operations: if self.topic_operations {
                topology::TOPIC_OPERATIONS
            } else {
                topology::OPERATIONS_UNASKED
            },
        }
    }

    /// Topics by id in a version that has only their names (M-5).
    fn refuse(&self, cx: &Context<'_>, topics: &[RequestTopics], answer: &mut Answer<'_>) {
        let refused = topics.iter().map(|topic| ResponseTopics {
            topic_id: topic.topic_id,
            ..self.without_topic(topic.name.clone(), ErrorCode::INVALID_REQUEST)
        });
        self.respond(cx, refused.collect(), ErrorCode::INVALID_REQUEST, answer);
    }

    fn respond(
        &self,
        cx: &Context<'_>,
        topics: Vec<ResponseTopics>,
        code: ErrorCode,
        answer: &mut Answer<'_>,
    ) {
        let alive = topology::nodes(cx)
            .into_iter()
            .filter(|node| !node.broker.fenced);
        let response = Response {
            throttle_time_ms: 0,
            brokers: alive
                .map(|node| ResponseBrokers {
                    node_id: node.broker.id,
                    host: node.host,
                    port: node.port,
                    rack: node.broker.rack.clone(),
                })
                .collect(),
            cluster_id: Some(cx.image.cluster_id.clone()),
            controller_id: topology::controller_id(cx),
            topics,
            cluster_authorized_operations: if self.cluster_operations {
                topology::CLUSTER_OPERATIONS
            } else {
                topology::OPERATIONS_UNASKED
            },
            error_code: code.0,
        };
        answer.write(&self.header, |out| {
            response.encode(out, self.header.api_version);
        });
    }
}

impl Joins for Join {
    fn on_reply(
        &mut self,
        cx: &Context<'_>,
        _part: usize,
        reply: Reply,
        _parts: &mut Parts,
        answer: &mut Answer<'_>,
    ) -> Step {
        let Reply::Controller(reply) = reply else {
            return Step::Close;
        };
        let controller::Reply::CreateTopics(created) = *reply else {
            return Step::Close;
        };
        self.write(cx, Some(&created), answer);
        Step::Done
    }

    fn deadline(&self) -> Option<Mono> {
        None
    }

    fn on_deadline(&mut self, _: &Context<'_>, _: &mut Parts, _: &mut Answer<'_>) -> Step {
        Step::Wait
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, call};
    use super::*;
    use corelog_wire::records::metadata::{
        BrokerRegistrationChangeRecord, MetadataRecord, PartitionChangeRecord,
    };

    fn named(names: &[&'static str]) -> Vec<RequestTopics> {
        let topic = |name: &&'static str| RequestTopics {
            name: Some(Text::from_static(name)),
            ..RequestTopics::default()
        };
        names.iter().map(topic).collect()
    }

    fn ask(bench: &Bench, version: i16, topics: impl Into<Option<Vec<RequestTopics>>>) -> Response {
        let request = Request {
            topics: topics.into(),
            ..Request::default()
        };
        call(
            bench,
            3,
            version,
            |out| request.encode(out, version),
            |reader| Response::decode(reader, version),
        )
    }

    fn codes(response: &Response) -> Vec<(Option<&str>, ErrorCode)> {
        let topics = response.topics.iter();
        topics
            .map(|topic| (topic.name.as_deref(), ErrorCode(topic.error_code)))
            .collect()
    }

    #[test]
    fn m1_all_topics_are_asked_for_with_nothing_or_with_null() {
        let bench = Bench::new().topic("b", 1).topic("a", 2);
        let both = [(Some("a"), ErrorCode::NONE), (Some("b"), ErrorCode::NONE)];
        assert_eq!(codes(&ask(&bench, 0, named(&[]))), both);
        for version in 1..=13 {
            assert_eq!(codes(&ask(&bench, version, None)), both);
            assert!(ask(&bench, version, named(&[])).topics.is_empty());
        }
    }

    #[test]
    fn every_version_says_where_partitions_are() {
        let bench = Bench::new().topic("a", 2);
        for version in 0..=13 {
            let response = ask(&bench, version, named(&["a"]));
            assert_eq!(response.brokers.len(), 1);
            assert_eq!(
                (&*response.brokers[0].host, response.brokers[0].port),
                ("broker.example", 9092)
            );
            let partitions = &response.topics[0].partitions;
            assert_eq!(partitions.len(), 2);
            assert_eq!(
                (partitions[1].partition_index, partitions[1].leader_id),
                (1, 1)
            );
            assert_eq!(partitions[1].replica_nodes, [1]);
            if version >= 1 {
                assert_eq!(response.controller_id, 1);
            }
            if version >= 2 {
                assert_eq!(response.cluster_id.as_deref(), Some("cluster"));
            }
            if version >= 10 {
                assert_eq!(
                    response.topics[0].topic_id,
                    bench.image().topic("a").expect("there").id
                );
            }
        }
    }

    #[test]
    fn m4_a_missing_topic_is_there_in_the_first_answer() {
        for version in 0..=13 {
            let bench = Bench::new();
            let response = ask(&bench, version, named(&["new", "b d"]));
            let expected = [
                (Some("new"), ErrorCode::NONE),
                (Some("b d"), ErrorCode::INVALID_TOPIC_EXCEPTION),
            ];
            assert_eq!(codes(&response), expected);
            assert_eq!(response.topics[0].partitions[0].leader_id, 1);
        }
    }

    #[test]
    fn m4_nothing_is_created_when_client_or_broker_say_so() {
        let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
        let mut bench = Bench::new();
        let request = Request {
            topics: Some(named(&["new"])),
            allow_auto_topic_creation: false,
            ..Request::default()
        };
        let response = call(
            &bench,
            3,
            9,
            |out| request.encode(out, 9),
            |reader| Response::decode(reader, 9),
        );
        assert_eq!(codes(&response), [(Some("new"), unknown)]);
        bench.broker.auto_create_topics = false;
        assert_eq!(
            codes(&ask(&bench, 9, named(&["new"]))),
            [(Some("new"), unknown)]
        );
        assert_eq!(bench.image().topic_count(), 0);
    }

    #[test]
    fn m4_a_name_that_collides_is_invalid() {
        let bench = Bench::new().topic("a.b", 1);
        let response = ask(&bench, 9, named(&["a_b"]));
        assert_eq!(
            codes(&response),
            [(Some("a_b"), ErrorCode::INVALID_TOPIC_EXCEPTION)]
        );
    }

    #[test]
    fn m5_topics_are_named_by_id_from_version_12_on() {
        let bench = Bench::new().topic("a", 1);
        let by_id = |topic_id| {
            Some(vec![RequestTopics {
                topic_id,
                name: None,
            }])
        };
        let id = bench.image().topic("a").expect("there").id;
        let unknown = Uuid([5; 16]);
        assert_eq!(
            codes(&ask(&bench, 12, by_id(id))),
            [(Some("a"), ErrorCode::NONE)]
        );
        let response = ask(&bench, 13, by_id(unknown));
        assert_eq!(codes(&response), [(None, ErrorCode::UNKNOWN_TOPIC_ID)]);
        assert_eq!(response.topics[0].topic_id, unknown);
        for version in 10..=11 {
            let response = ask(&bench, version, by_id(id));
            assert_eq!(codes(&response), [(Some(""), ErrorCode::INVALID_REQUEST)]);
        }
    }

    #[test]
    fn m3_a_partition_without_a_leader_says_so() {
        let bench = Bench::new().topic("a", 1);
        let topic_id = bench.image().topic("a").expect("there").id;
        let bench = bench.change(MetadataRecord::PartitionChange(PartitionChangeRecord {
            partition_id: 0,
            topic_id,
            leader: -1,
            ..PartitionChangeRecord::default()
        }));
        let response = ask(&bench, 9, named(&["a"]));
        let partition = &response.topics[0].partitions[0];
        assert_eq!(
            ErrorCode(partition.error_code),
            ErrorCode::LEADER_NOT_AVAILABLE
        );
        assert_eq!((partition.leader_id, partition.leader_epoch), (-1, 1));
    }

    #[test]
    fn m3_fenced_brokers_are_not_listed_and_their_replicas_are_offline() {
        let bench = Bench::new().topic("a", 1);
        let broker_epoch = bench.image().brokers[&1].epoch;
        let bench = bench.change(MetadataRecord::BrokerRegistrationChange(
            BrokerRegistrationChangeRecord {
                broker_id: 1,
                broker_epoch,
                fenced: 1,
                ..BrokerRegistrationChangeRecord::default()
            },
        ));
        for (version, code) in [
            (5, ErrorCode::LEADER_NOT_AVAILABLE),
            (6, ErrorCode::LISTENER_NOT_FOUND),
        ] {
            let response = ask(&bench, version, named(&["a"]));
            assert!(response.brokers.is_empty());
            assert_eq!(response.controller_id, -1);
            let partition = &response.topics[0].partitions[0];
            assert_eq!(
                (ErrorCode(partition.error_code), partition.leader_id),
                (code, -1)
            );
            assert_eq!(partition.offline_replicas, [1]);
        }
    }

    #[test]
    fn m7_allowed_operations_are_said_when_asked_for() {
        let bench = Bench::new().topic("a", 1);
        let request = Request {
            topics: Some(named(&["a"])),
            include_topic_authorized_operations: true,
            include_cluster_authorized_operations: true,
            ..Request::default()
        };
        let response = call(
            &bench,
            3,
            8,
            |out| request.encode(out, 8),
            |reader| Response::decode(reader, 8),
        );
        assert_eq!(
            response.topics[0].topic_authorized_operations,
            topology::TOPIC_OPERATIONS
        );
        assert_eq!(
            response.cluster_authorized_operations,
            topology::CLUSTER_OPERATIONS
        );
        let response = ask(&bench, 8, named(&["a"]));
        assert_eq!(response.topics[0].topic_authorized_operations, i32::MIN);
    }
}
