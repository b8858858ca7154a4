//! One script, played to a broker of each engine: the answers are the same, but for ids, times and sizes of disks.

use std::fmt::Debug;

use bytes::Bytes;
use corelog_wire::compress::Codec;
use corelog_wire::messages::{
    create_partitions, create_topics, delete_groups, delete_records, delete_topics,
    describe_configs, describe_groups, describe_producers, describe_topic_partitions, fetch,
    find_coordinator, heartbeat, incremental_alter_configs, init_producer_id, join_group,
    leave_group, list_groups, metadata, offset_commit, offset_delete, offset_fetch,
    offset_for_leader_epoch, produce, sync_group,
};
use corelog_wire::primitives::Text;

use crate::broker::{Broker, Engine, Home, eventually};
use crate::client::{Call, Client, minimal};
use crate::topic::{
    EARLIEST, LATEST, Topic, append, batch, batch_with, create_with, fetch_request,
    list_offsets_request, produce_request, values,
};

const MEMBER_ID_REQUIRED: i16 = 79;
/// Numbers behind these names differ from run to run: times, the space of a disk, what housekeeping has appended to the metadata log.
const PASSING: [&str; 8] = [
    "total_bytes: ",
    "usable_bytes: ",
    "last_fetch_timestamp: ",
    "last_caught_up_timestamp: ",
    "log_append_time_ms: ",
    "port: ",
    "session_id: ",
    "log_end_offset: ",
];

/// What one broker has answered, line by line.
struct Play {
    client: Client,
    lines: Vec<String>,
    /// Values that differ from run to run, and what stands for them.
    names: Vec<(String, String)>,
}

impl Play {
    fn name(&mut self, value: impl Debug, name: &str) {
        let value = format!("{value:?}");
        self.names
            .push((value.trim_matches('"').to_owned(), format!("<{name}>")));
    }

    fn note(&mut self, what: &str, answer: &str) {
        let mut line = format!("{what}: {answer}");
        for (value, name) in &self.names {
            line = line.replace(value, name);
        }
        for passing in PASSING {
            line = blank(&line, passing);
        }
        self.lines.push(line);
    }

    fn ask<C: Call>(&mut self, what: &str, request: &C, version: i16) -> C::Response {
        let answer = self.client.call(request, version);
        self.note(what, &format!("v{version} {answer:?}"));
        answer
    }
}

/// `text` without the numbers behind `name`.
fn blank(text: &str, name: &str) -> String {
    let mut parts = text.split(name);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(name);
        out.push('_');
        out.push_str(part.trim_start_matches(|c: char| c == '-' || c.is_ascii_digit()));
    }
    out
}

fn text(text: &str) -> Text {
    Text::from(text.to_owned())
}

/// The same bytes for both brokers, so that their logs are the same.
struct Batches {
    plain: Bytes,
    packed: Bytes,
    first: Bytes,
    later: Bytes,
    damaged: Bytes,
}

impl Batches {
    fn new(producer: (i64, i16)) -> Batches {
        let mut damaged = batch(&values("damaged", 2)).to_vec();
        *damaged.last_mut().unwrap() ^= 1;
        Batches {
            plain: batch(&values("plain", 5)),
            packed: batch_with(Codec::Lz4, None, &values("packed", 20)),
            first: batch_with(
                Codec::None,
                Some((producer.0, producer.1, 0)),
                &values("once", 3),
            ),
            later: batch_with(
                Codec::None,
                Some((producer.0, producer.1, 9)),
                &values("gap", 1),
            ),
            damaged: Bytes::from(damaged),
        }
    }
}

fn topics(play: &mut Play) -> Topic {
    let topic = create_with(
        &mut play.client,
        "played",
        4,
        &[("retention.ms", "777600000")],
    );
    play.name(topic.id, "id of played");
    let mut request = create_topics::Request {
        timeout_ms: 20_000,
        ..Default::default()
    };
    for (name, partitions, replicas) in [
        ("played", 1, 1),
        ("no/such name", 1, 1),
        ("too-many-replicas", 1, 3),
        ("no-partitions", 0, 1),
    ] {
        request.topics = vec![create_topics::RequestTopics {
            name: text(name),
            num_partitions: partitions,
            replication_factor: replicas,
            ..Default::default()
        }];
        play.ask("create refused", &request, 7);
    }
    request.topics[0].num_partitions = 3;
    request.validate_only = true;
    let validated = play.client.call(&request, 7);
    play.name(validated.topics[0].topic_id, "an id for nothing");
    play.note("create validated", &format!("{validated:?}"));
    for version in [1, 9, 12] {
        let named = metadata::Request {
            topics: Some(vec![
                metadata::RequestTopics {
                    name: Some(text("played")),
                    ..Default::default()
                },
                metadata::RequestTopics {
                    name: Some(text("unknown")),
                    ..Default::default()
                },
            ]),
            allow_auto_topic_creation: version == 1,
            ..Default::default()
        };
        if version > 1 {
            play.ask("metadata", &named, version);
        }
    }
    let described = describe_topic_partitions::Request {
        topics: vec![describe_topic_partitions::RequestTopics {
            name: text("played"),
        }],
        ..Default::default()
    };
    play.ask("describe topic", &described, 0);
    let mut more = create_partitions::Request {
        topics: vec![create_partitions::RequestTopics {
            name: text("played"),
            count: 2,
            ..Default::default()
        }],
        timeout_ms: 20_000,
        ..Default::default()
    };
    play.ask("fewer partitions", &more, 3);
    more.topics[0].count = 6;
    play.ask("more partitions", &more, 3);
    topic
}

fn producing(play: &mut Play, topic: &Topic, batches: &Batches) {
    let Batches {
        plain,
        packed,
        first,
        later,
        damaged,
    } = batches;
    let elsewhere = Topic {
        name: text("nowhere"),
        ..topic.clone()
    };
    let sent = [
        (
            "two partitions",
            topic,
            9,
            -1,
            vec![(0, plain.clone()), (1, packed.clone())],
        ),
        ("oldest version", topic, 3, 1, vec![(2, plain.clone())]),
        ("by id", topic, 13, -1, vec![(3, packed.clone())]),
        (
            "no such partition",
            topic,
            9,
            -1,
            vec![(0, plain.clone()), (77, plain.clone())],
        ),
        ("no such topic", &elsewhere, 9, -1, vec![(0, plain.clone())]),
        ("damaged", topic, 9, -1, vec![(0, damaged.clone())]),
        ("acks that are none", topic, 9, 7, vec![(0, plain.clone())]),
        ("once", topic, 9, -1, vec![(0, first.clone())]),
        ("once again", topic, 9, -1, vec![(0, first.clone())]),
        ("with a gap", topic, 9, -1, vec![(0, later.clone())]),
    ];
    for (what, topic, version, acks, parts) in sent {
        let request = produce_request(topic, version, acks, &parts);
        play.ask(what, &request, version);
    }
    // No answer, and what comes behind it has one.
    let silent = produce_request(topic, 9, 0, &[(1, plain.clone())]);
    play.client.send_unanswered(&silent, 9);
    let producers = describe_producers::Request {
        topics: vec![describe_producers::RequestTopics {
            name: text("played"),
            partition_indexes: vec![0, 1, 77],
        }],
    };
    play.ask("producers", &producers, 0);
}

fn reading(play: &mut Play, topic: &Topic) {
    for (partition, timestamp) in [
        (0, EARLIEST),
        (0, LATEST),
        (1, LATEST),
        (2, -3),
        (3, 1),
        (9, LATEST),
    ] {
        let request = list_offsets_request(topic, partition, timestamp);
        play.ask("offsets", &request, 7);
    }
    for version in [4, 11, 12, 13, 17] {
        let from = [(0, 0), (1, 3), (2, 99), (3, 0), (55, 0)];
        play.ask("fetch", &fetch_request(topic, version, &from), version);
    }
    let mut small = fetch_request(topic, 12, &[(0, 0), (1, 0), (2, 0)]);
    small.max_bytes = 1;
    play.ask("fetch of one batch", &small, 12);
    let mut waits = fetch_request(topic, 12, &[(2, 5)]);
    (waits.max_wait_ms, waits.min_bytes) = (50, 1000);
    play.ask("fetch whose time is up", &waits, 12);
    // A session, and what ends it.
    let mut session: fetch::Request = fetch_request(topic, 12, &[(0, 0), (1, 0)]);
    session.session_epoch = 0;
    let opened = play.ask("session opened", &session, 12);
    session.session_id = opened.session_id;
    session.topics.clear();
    for epoch in [1, 2, 9] {
        session.session_epoch = epoch;
        play.ask("session goes on", &session, 12);
    }
    session.session_id = 12_345;
    play.ask("session of nobody", &session, 12);
    let epochs = offset_for_leader_epoch::Request {
        replica_id: -1,
        topics: vec![offset_for_leader_epoch::RequestTopics {
            topic: topic.name.clone(),
            partitions: vec![offset_for_leader_epoch::RequestTopicsPartitions {
                partition: 0,
                current_leader_epoch: -1,
                leader_epoch: 0,
            }],
        }],
    };
    play.ask("epoch end", &epochs, 4);
    for offset in [2, 1000, -1] {
        let cut = delete_records::Request {
            topics: vec![delete_records::RequestTopics {
                name: topic.name.clone(),
                partitions: vec![delete_records::RequestTopicsPartitions {
                    partition_index: 0,
                    offset,
                }],
            }],
            timeout_ms: 20_000,
        };
        play.ask("records deleted", &cut, 2);
    }
}

fn configuring(play: &mut Play) {
    let describe = describe_configs::Request {
        resources: vec![describe_configs::RequestResources {
            resource_type: 2,
            resource_name: text("played"),
            configuration_keys: None,
        }],
        include_synonyms: true,
        include_documentation: true,
    };
    for (name, operation, value) in [
        ("segment.bytes", 0, Some("2097152")),
        ("no.such.property", 0, Some("1")),
        ("retention.ms", 0, Some("many")),
        ("retention.ms", 1, None),
    ] {
        let alter = incremental_alter_configs::Request {
            resources: vec![incremental_alter_configs::RequestResources {
                resource_type: 2,
                resource_name: text("played"),
                configs: vec![incremental_alter_configs::RequestResourcesConfigs {
                    name: text(name),
                    config_operation: operation,
                    value: value.map(text),
                }],
            }],
            ..Default::default()
        };
        play.ask("configs altered", &alter, 1);
    }
    play.ask("configs", &describe, 4);
}

fn find_players() -> find_coordinator::Request {
    find_coordinator::Request {
        coordinator_keys: vec![text("players")],
        ..Default::default()
    }
}

/// What is made and loaded in the background is there, so that no answer depends on its progress.
fn await_coordinators(client: &mut Client) {
    eventually("every group has a coordinator", || {
        let found = client.call(&find_players(), 4);
        let listed = client.call(&list_groups::Request::default(), 5);
        (found.coordinators[0].error_code == 0 && listed.error_code == 0).then_some(())
    });
}

fn joining(play: &mut Play) {
    let find = find_players();
    play.ask("coordinator", &find, 4);
    let mut join = join_group::Request {
        group_id: text("players"),
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 30_000,
        protocol_type: text("consumer"),
        protocols: vec![join_group::RequestProtocols {
            name: text("range"),
            metadata: Bytes::from_static(b"meta"),
        }],
        ..Default::default()
    };
    let first = play.client.call(&join, 9);
    assert_eq!(first.error_code, MEMBER_ID_REQUIRED);
    play.name(&first.member_id, "member");
    play.note("join refused", &format!("{first:?}"));
    join.member_id = first.member_id;
    let joined = play.ask("joined", &join, 9);
    let mut sync = sync_group::Request {
        group_id: text("players"),
        generation_id: joined.generation_id,
        member_id: join.member_id.clone(),
        protocol_type: Some(text("consumer")),
        protocol_name: Some(text("range")),
        assignments: vec![sync_group::RequestAssignments {
            member_id: join.member_id.clone(),
            assignment: Bytes::from_static(b"all"),
        }],
        ..Default::default()
    };
    play.ask("synced", &sync, 5);
    sync.generation_id += 5;
    play.ask("synced in a wrong generation", &sync, 5);
    let mut beat = heartbeat::Request {
        group_id: text("players"),
        generation_id: joined.generation_id,
        member_id: join.member_id.clone(),
        ..Default::default()
    };
    play.ask("heartbeat", &beat, 4);
    beat.member_id = text("nobody");
    play.ask("heartbeat of nobody", &beat, 4);
    let mut commit = offset_commit::Request {
        group_id: text("players"),
        generation_id_or_member_epoch: joined.generation_id,
        member_id: join.member_id.clone(),
        topics: vec![offset_commit::RequestTopics {
            name: text("played"),
            partitions: (0..2)
                .map(|partition| offset_commit::RequestTopicsPartitions {
                    partition_index: partition,
                    committed_offset: 3,
                    committed_metadata: Some(text("mark")),
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        }],
        ..Default::default()
    };
    play.ask("committed", &commit, 9);
    commit.generation_id_or_member_epoch += 1;
    play.ask("committed in a wrong generation", &commit, 9);
    let committed = offset_fetch::Request {
        groups: vec![offset_fetch::RequestGroups {
            group_id: text("players"),
            ..Default::default()
        }],
        ..Default::default()
    };
    play.ask("offsets of the group", &committed, 9);
    let described = describe_groups::Request {
        groups: vec![text("players"), text("strangers")],
        ..Default::default()
    };
    play.ask("groups described", &described, 6);
    play.ask("groups listed", &list_groups::Request::default(), 5);
    let forget = delete_groups::Request {
        groups_names: vec![text("players"), text("strangers")],
    };
    play.ask("a group in use deleted", &forget, 2);
    let leave = leave_group::Request {
        group_id: text("players"),
        members: vec![leave_group::RequestMembers {
            member_id: join.member_id,
            ..Default::default()
        }],
        ..Default::default()
    };
    play.ask("left", &leave, 5);
    let offsets = offset_delete::Request {
        group_id: text("players"),
        topics: vec![offset_delete::RequestTopics {
            name: text("played"),
            partitions: vec![offset_delete::RequestTopicsPartitions { partition_index: 1 }],
        }],
    };
    play.ask("an offset deleted", &offsets, 0);
    play.ask("what is left", &committed, 9);
    play.ask("an empty group deleted", &forget, 2);
}

fn ending(play: &mut Play, topic: &Topic, batches: &Batches) {
    let delete = delete_topics::Request {
        topics: ["played", "unknown"]
            .into_iter()
            .map(|name| delete_topics::RequestTopics {
                name: Some(text(name)),
                ..Default::default()
            })
            .collect(),
        timeout_ms: 20_000,
        ..Default::default()
    };
    play.ask("topics deleted", &delete, 6);
    let late = produce_request(topic, 9, -1, &[(0, batches.plain.clone())]);
    play.ask("produced to what is gone", &late, 9);
}

/// Every API in every version, with next to nothing in it.
fn minimal_calls(play: &mut Play) {
    let advertised = play.client.try_api_versions().unwrap();
    for api in advertised.api_keys {
        // Lower versions of Produce are advertised for the sake of old clients, and close the connection.
        let lowest = match api.api_key {
            produce::Request::KEY => produce::Request::MIN_VERSION,
            _ => api.min_version,
        };
        for version in lowest..=api.max_version {
            let answer = minimal(&mut play.client, api.api_key, version);
            play.note(&format!("API {} v{version}", api.api_key), &answer);
        }
    }
}

fn play(home: &Home, broker: &Broker, batches: &mut Option<Batches>) -> Vec<String> {
    let mut play = Play {
        client: broker.connect(),
        lines: Vec::new(),
        names: Vec::new(),
    };
    let everything = play.client.call(&metadata::Request::default(), 12);
    play.name(everything.cluster_id.unwrap(), "cluster");
    play.name(home.data(), "data");
    let producer = play.ask("producer", &init_producer_id::Request::default(), 4);
    let producer = (producer.producer_id, producer.producer_epoch);
    let batches = &*batches.get_or_insert_with(|| Batches::new(producer));
    await_coordinators(&mut play.client);
    let offsets = play.client.call(&metadata::Request::default(), 12).topics;
    play.name(offsets[0].topic_id, "id of the topic of offsets");
    minimal_calls(&mut play);
    let topic = topics(&mut play);
    producing(&mut play, &topic, batches);
    reading(&mut play, &topic);
    configuring(&mut play);
    joining(&mut play);
    minimal_calls(&mut play);
    ending(&mut play, &topic, batches);
    append_elsewhere(&mut play);
    play.lines
}

/// The broker is still one that serves.
fn append_elsewhere(play: &mut Play) {
    let topic = create_with(&mut play.client, "after", 2, &[]);
    let offset = append(&mut play.client, &topic, 1, &values("after", 3));
    play.note("appended", &offset.to_string());
}

/// Where two lines part, with some of what is around.
fn difference(percore: &str, classic: &str) -> String {
    let same = percore.chars().zip(classic.chars());
    let same = same.take_while(|(a, b)| a == b).count();
    let around = |line: &str| -> String {
        let from = same.saturating_sub(120);
        line.chars().skip(from).take(300).collect()
    };
    let what: String = percore.chars().take(40).collect();
    format!(
        "{what}\n percore: …{}\n classic: …{}",
        around(percore),
        around(classic)
    )
}

#[test]
fn both_engines_give_the_same_answers() {
    let mut batches = None;
    let mut transcripts = [Engine::Percore, Engine::Classic].map(|engine| {
        let home = Home::on(engine);
        let broker = home.start(
            4,
            &[
                "auto.create.topics.enable=false",
                "offsets.topic.num.partitions=4",
            ],
        );
        let lines = play(&home, &broker, &mut batches);
        broker.stop();
        lines
    });
    let [percore, classic] = &mut transcripts;
    assert!(percore.len() > 250, "{} answers", percore.len());
    let differing: Vec<String> = percore
        .iter()
        .zip(classic.iter())
        .filter(|(percore, classic)| percore != classic)
        .map(|(percore, classic)| difference(percore, classic))
        .collect();
    assert!(differing.is_empty(), "{}", differing.join("\n\n"));
    assert_eq!(percore.len(), classic.len());
}
