//! Fetch sessions (kafka.md 4.2): over shards, over connections, and what ends them.

use std::collections::BTreeSet;

use corelog_wire::messages::fetch;

use crate::broker::{Broker, Home};
use crate::client::Client;
use crate::topic::{Topic, append, create, fetch_request, fetched, values};

const VERSION: i16 = 12;
const SESSION_ID_NOT_FOUND: i16 = 70;
const INVALID_SESSION_EPOCH: i16 = 71;

fn scene(home: &Home) -> (Broker, Client, Topic) {
    let broker = home.start(4, &[]);
    let mut client = broker.connect();
    let topic = create(&mut client, "watched", 4);
    (broker, client, topic)
}

/// Opens a session over all partitions from offset 0; its id, and the answer.
fn open(client: &mut Client, topic: &Topic) -> (i32, fetch::Response) {
    let from: Vec<_> = (0..topic.partitions)
        .map(|partition| (partition, 0))
        .collect();
    let mut request = fetch_request(topic, VERSION, &from);
    request.session_epoch = 0;
    let answer = client.call(&request, VERSION);
    assert_eq!(answer.error_code, 0);
    assert_ne!(answer.session_id, 0, "a session was asked for");
    (answer.session_id, answer)
}

/// The next fetch of a session, naming only what is new.
fn incremental(topic: &Topic, id: i32, epoch: i32, from: &[(i32, i64)]) -> fetch::Request {
    let mut request = fetch_request(topic, VERSION, from);
    if from.is_empty() {
        request.topics.clear();
    }
    (request.session_id, request.session_epoch) = (id, epoch);
    request
}

#[test]
fn a_session_tells_only_what_is_new() {
    let home = Home::new();
    let (broker, mut client, topic) = scene(&home);
    let (id, first) = open(&mut client, &topic);
    assert_eq!(
        fetched(&first).len(),
        4,
        "a full answer names every partition"
    );
    let quiet = client.call(&incremental(&topic, id, 1, &[]), VERSION);
    assert_eq!((quiet.session_id, fetched(&quiet).len()), (id, 0));
    append(&mut client, &topic, 2, &values("new", 2));
    let news = fetched(&client.call(&incremental(&topic, id, 2, &[]), VERSION));
    assert_eq!(news.len(), 1);
    assert_eq!((news[0].partition, news[0].values.len()), (2, 2));
    // The position moves on only when the client says so.
    let moved = client.call(&incremental(&topic, id, 3, &[(2, 2)]), VERSION);
    assert!(fetched(&moved).iter().all(|part| part.values.is_empty()));
    broker.stop();
}

#[test]
fn a_session_is_known_on_every_connection() {
    let home = Home::new();
    let (broker, mut client, topic) = scene(&home);
    let (id, _) = open(&mut client, &topic);
    append(&mut client, &topic, 0, &values("x", 1));
    for epoch in 1..9 {
        // New connections are dealt to one core after the other.
        let mut other = broker.connect();
        let answer = other.call(&incremental(&topic, id, epoch, &[]), VERSION);
        assert_eq!(
            (answer.error_code, answer.session_id),
            (0, id),
            "epoch {epoch}"
        );
        assert_eq!(fetched(&answer)[0].values.len(), 1);
    }
    broker.stop();
}

#[test]
fn wrong_ids_and_epochs_are_told_apart() {
    let home = Home::new();
    let (broker, mut client, topic) = scene(&home);
    let (id, _) = open(&mut client, &topic);
    let wrong_epoch = client.call(&incremental(&topic, id, 5, &[]), VERSION);
    assert_eq!(wrong_epoch.error_code, INVALID_SESSION_EPOCH);
    let wrong_id = client.call(&incremental(&topic, id ^ 0x5555, 1, &[]), VERSION);
    assert_eq!(wrong_id.error_code, SESSION_ID_NOT_FOUND);
    // Closing: the last fetch of a session has the epoch -1.
    let last = client.call(&incremental(&topic, id, -1, &[(0, 0)]), VERSION);
    assert_eq!(last.error_code, 0);
    let gone = client.call(&incremental(&topic, id, 1, &[]), VERSION);
    assert_eq!(gone.error_code, SESSION_ID_NOT_FOUND);
    broker.stop();
}

#[test]
fn a_forgotten_partition_is_not_told_any_more() {
    let home = Home::new();
    let (broker, mut client, topic) = scene(&home);
    let (id, _) = open(&mut client, &topic);
    append(&mut client, &topic, 1, &values("x", 1));
    append(&mut client, &topic, 3, &values("x", 1));
    let mut request = incremental(&topic, id, 1, &[]);
    request.forgotten_topics_data = vec![fetch::RequestForgottenTopicsData {
        topic: topic.name.clone(),
        partitions: vec![1],
        ..Default::default()
    }];
    let got = fetched(&client.call(&request, VERSION));
    assert_eq!(
        got.iter().map(|part| part.partition).collect::<Vec<_>>(),
        [3]
    );
    broker.stop();
}

#[test]
fn a_small_budget_takes_turns_among_the_partitions_of_a_session() {
    let home = Home::new();
    let (broker, mut client, topic) = scene(&home);
    for partition in 0..4 {
        append(&mut client, &topic, partition, &values("x", 1));
    }
    let mut request = fetch_request(&topic, VERSION, &[(0, 0), (1, 0), (2, 0), (3, 0)]);
    (request.session_epoch, request.max_bytes) = (0, 1);
    let mut answer = client.call(&request, VERSION);
    let id = answer.session_id;
    let mut served = BTreeSet::new();
    for epoch in 1..=4 {
        let with_data = fetched(&answer)
            .into_iter()
            .find(|part| !part.values.is_empty());
        served.insert(with_data.expect("there is always something").partition);
        // Positions stay where they are: without turns the first partition would win for ever.
        let mut request = incremental(&topic, id, epoch, &[]);
        request.max_bytes = 1;
        answer = client.call(&request, VERSION);
    }
    assert_eq!(served, BTreeSet::from([0, 1, 2, 3]));
    broker.stop();
}
