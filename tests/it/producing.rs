//! Produce in all its versions, and what comes back.

use corelog_wire::compress::Codec;
use corelog_wire::messages::produce;

use crate::broker::{Broker, Home, eventually};
use crate::client::Client;
use crate::topic::{
    self, LATEST, Topic, append, batch, batch_with, create, fetch_request, fetched, list_offset,
    numbered, produce_request, produced, read_all, values,
};

const PRODUCE_VERSIONS: std::ops::RangeInclusive<i16> = 3..=13;
const FETCH_VERSIONS: std::ops::RangeInclusive<i16> = 4..=18;

fn broker_with_topic(home: &Home, partitions: i32) -> (Broker, Client, Topic) {
    let broker = home.start(2, &[]);
    let mut client = broker.connect();
    let topic = create(&mut client, "there", partitions);
    (broker, client, topic)
}

#[test]
fn what_any_version_produces_every_version_fetches() {
    let home = Home::new();
    let (broker, mut client, topic) = broker_with_topic(&home, 3);
    let mut sent = Vec::new();
    for version in PRODUCE_VERSIONS {
        for acks in [1, -1, 0] {
            let value = format!("v{version} acks {acks}");
            let one = batch(std::slice::from_ref(&value));
            let request = produce_request(&topic, version, acks, &[(1, one)]);
            if acks == 0 {
                client.send_unanswered(&request, version);
            } else {
                let due = sent.len() as i64;
                assert_eq!(
                    produced(&client.call(&request, version)),
                    (0, due),
                    "{value}"
                );
            }
            sent.push(value);
        }
    }
    // The last one had acks=0: nothing said yet that it has been appended.
    eventually("all records are there", || {
        (list_offset(&mut client, &topic, 1, LATEST) == (0, sent.len() as i64)).then_some(())
    });
    let due = numbered(sent);
    for version in FETCH_VERSIONS {
        let answer = client.call(&fetch_request(&topic, version, &[(1, 0)]), version);
        let got = fetched(&answer).remove(0);
        assert_eq!((got.partition, got.error), (1, 0), "v{version}");
        assert_eq!(got.values, due, "v{version}");
    }
    broker.stop();
}

#[test]
fn every_codec_comes_back_as_it_was_sent() {
    let home = Home::new();
    let (broker, mut client, topic) = broker_with_topic(&home, 1);
    let mut sent = Vec::new();
    let mut raw = Vec::new();
    for codec in [
        Codec::None,
        Codec::Gzip,
        Codec::Snappy,
        Codec::Lz4,
        Codec::Zstd,
    ] {
        let records = values(&format!("{codec:?}"), 20);
        let bytes = batch_with(codec, None, &records);
        let request = produce_request(&topic, 9, -1, &[(0, bytes.clone())]);
        assert_eq!(produced(&client.call(&request, 9)).0, 0, "{codec:?}");
        sent.extend(records);
        // Base offset and leader epoch are the broker's to set; everything behind is the producer's.
        raw.extend_from_slice(&bytes[16..]);
    }
    let answer = client.call(&fetch_request(&topic, 12, &[(0, 0)]), 12);
    assert_eq!(fetched(&answer)[0].values, numbered(sent));
    let stored = answer.responses[0].partitions[0].records.clone().unwrap();
    let mut behind = Vec::new();
    for walked in corelog_wire::batch::BatchIter::new(&stored) {
        behind.extend_from_slice(&walked.unwrap().bytes[16..]);
    }
    assert_eq!(behind, raw);
    broker.stop();
}

#[test]
fn one_request_reaches_partitions_on_all_shards() {
    let home = Home::new();
    let broker = home.start(4, &[]);
    let mut client = broker.connect();
    let topic = create(&mut client, "spread", 8);
    let batches: Vec<_> = (0..8)
        .map(|p| (p, batch(&values(&format!("p{p}"), 5))))
        .collect();
    let answer = client.call(&produce_request(&topic, 11, -1, &batches), 11);
    let parts = &answer.responses[0].partition_responses;
    let told: Vec<_> = parts
        .iter()
        .map(|p| (p.index, p.error_code, p.base_offset))
        .collect();
    assert_eq!(told, (0..8).map(|p| (p, 0, 0)).collect::<Vec<_>>());
    let all = read_all(&mut client, &topic);
    assert!(
        all.iter()
            .all(|(p, got)| *got == numbered(values(&format!("p{p}"), 5)))
    );
    broker.stop();
}

#[test]
fn what_is_wrong_with_one_partition_is_told_of_that_one() {
    let home = Home::new();
    let (broker, mut client, topic) = broker_with_topic(&home, 2);
    let good = batch(&values("good", 1));
    let mut damaged = good.to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    let request = produce_request(
        &topic,
        9,
        -1,
        &[(0, good.clone()), (1, damaged.into()), (9, good)],
    );
    let answer = client.call(&request, 9);
    let told: Vec<_> = answer.responses[0]
        .partition_responses
        .iter()
        .map(|p| p.error_code)
        .collect();
    // CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION
    assert_eq!(told, [0, 2, 3]);
    broker.stop();
}

#[test]
fn an_error_of_acks_0_closes_the_connection() {
    let home = Home::new();
    let (broker, mut client, topic) = broker_with_topic(&home, 1);
    let mut damaged = batch(&values("damaged", 1)).to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    client.send_unanswered(&produce_request(&topic, 9, 0, &[(0, damaged.into())]), 9);
    assert!(client.is_closed(), "P-1");
    broker.stop();
}

#[test]
fn a_topic_is_made_by_asking_for_it_and_serves_at_once() {
    let home = Home::new();
    let broker = home.start(2, &["num.partitions=3"]);
    let mut client = broker.connect();
    let request = corelog_wire::messages::metadata::Request {
        topics: Some(vec![corelog_wire::messages::metadata::RequestTopics {
            name: Some("made".into()),
            ..Default::default()
        }]),
        allow_auto_topic_creation: true,
        ..Default::default()
    };
    let made = eventually("metadata shows the new topic", || {
        let answer = client.call(&request, 12);
        (answer.topics[0].error_code == 0).then(|| answer.topics[0].clone())
    });
    let topic = Topic {
        name: made.name.clone().unwrap(),
        id: made.topic_id,
        partitions: made.partitions.len() as i32,
    };
    assert_eq!(topic.partitions, 3);
    topic::await_leaders(&mut client, &topic);
    assert_eq!(append(&mut client, &topic, 2, &values("x", 2)), 0);
    broker.stop();
}

#[test]
fn a_record_that_is_too_large_is_refused_and_the_next_one_is_not() {
    let home = Home::new();
    let broker = home.start(1, &[]);
    let mut client = broker.connect();
    let topic = topic::create_with(&mut client, "small", 1, &[("max.message.bytes", "1000")]);
    let request = |size: usize| produce_request(&topic, 9, -1, &[(0, batch(&["x".repeat(size)]))]);
    let answer: produce::Response = client.call(&request(2000), 9);
    assert_eq!(produced(&answer).0, 10);
    assert_eq!(produced(&client.call(&request(500), 9)), (0, 0));
    broker.stop();
}
