//! Long polls, budgets over shards, and where data comes from.

use crate::broker::Home;
use crate::client::{ANSWER_WITHIN, Client};
use crate::topic::{
    EARLIEST, Fetched, LATEST, append, create, create_with, fetch_request, fetched, list_offset,
    numbered, read_all, values,
};

/// Longer than any answer may take: who gets one has been woken.
fn beyond_patience_ms() -> i32 {
    2 * ANSWER_WITHIN.as_millis() as i32
}

fn all_values(fetched: &[Fetched]) -> usize {
    fetched.iter().map(|part| part.values.len()).sum()
}

#[test]
fn a_long_poll_is_woken_by_an_append() {
    let home = Home::new();
    let broker = home.start(2, &[]);
    let mut writer = broker.connect();
    // On both shards, so one of them is on another core than the reader.
    let topic = create(&mut writer, "poll", 2);
    for partition in 0..2 {
        let mut reader = broker.connect();
        let mut request = fetch_request(&topic, 12, &[(partition, 0)]);
        request.max_wait_ms = beyond_patience_ms();
        reader.send(&request, 12);
        append(&mut writer, &topic, partition, &values("new", 1));
        let got = fetched(&reader.receive::<corelog_wire::messages::fetch::Request>(12));
        assert_eq!(got[0].values, numbered(values("new", 1)));
    }
    broker.stop();
}

#[test]
fn min_bytes_are_counted_over_partitions_of_different_shards() {
    let home = Home::new();
    let broker = home.start(4, &[]);
    let mut writer = broker.connect();
    let topic = create(&mut writer, "sum", 4);
    let size = {
        append(&mut writer, &topic, 0, &values("x", 1));
        let answer = writer.call(&fetch_request(&topic, 12, &[(0, 0)]), 12);
        answer.responses[0].partitions[0]
            .records
            .as_ref()
            .unwrap()
            .len() as i32
    };
    let mut reader = broker.connect();
    let mut request = fetch_request(&topic, 12, &[(0, 1), (1, 0), (2, 0), (3, 0)]);
    request.min_bytes = 3 * size;
    request.max_wait_ms = beyond_patience_ms();
    reader.send(&request, 12);
    for partition in 1..4 {
        append(&mut writer, &topic, partition, &values("x", 1));
    }
    let got = fetched(&reader.receive::<corelog_wire::messages::fetch::Request>(12));
    assert_eq!(all_values(&got), 3);
    broker.stop();
}

#[test]
fn a_poll_that_gets_too_little_is_answered_with_what_there_is_when_its_time_is_up() {
    let home = Home::new();
    let broker = home.start(2, &[]);
    let mut client = broker.connect();
    let topic = create(&mut client, "little", 2);
    append(&mut client, &topic, 1, &values("x", 1));
    let mut request = fetch_request(&topic, 12, &[(0, 0), (1, 0)]);
    request.min_bytes = 1 << 20;
    request.max_wait_ms = 50;
    let got = fetched(&client.call(&request, 12));
    assert_eq!(all_values(&got), 1);
    broker.stop();
}

#[test]
fn a_budget_goes_to_partitions_in_the_order_of_the_request() {
    let home = Home::new();
    let broker = home.start(4, &[]);
    let mut client = broker.connect();
    let topic = create(&mut client, "budget", 4);
    for partition in 0..4 {
        append(
            &mut client,
            &topic,
            partition,
            &values(&format!("p{partition}"), 1),
        );
    }
    for first in 0..4 {
        let order: Vec<_> = (0..4).map(|n| ((first + n) % 4, 0)).collect();
        let mut request = fetch_request(&topic, 12, &order);
        request.max_bytes = 1;
        let got = fetched(&client.call(&request, 12));
        // F-3: one batch comes whole even if it is larger; nothing else fits.
        let with_data: Vec<i32> = got
            .iter()
            .filter(|part| !part.values.is_empty())
            .map(|part| part.partition)
            .collect();
        assert_eq!(with_data, [first]);
    }
    broker.stop();
}

#[test]
fn max_bytes_hold_over_shards() {
    let home = Home::new();
    let broker = home.start(4, &[]);
    let mut client = broker.connect();
    let topic = create(&mut client, "bounded", 4);
    let value = vec!["y".repeat(100_000)];
    for partition in 0..4 {
        for _ in 0..5 {
            append(&mut client, &topic, partition, &value);
        }
    }
    let mut request = fetch_request(&topic, 12, &[(0, 0), (1, 0), (2, 0), (3, 0)]);
    request.max_bytes = 350_000;
    let answer = client.call(&request, 12);
    let bytes: usize = answer.responses[0]
        .partitions
        .iter()
        .map(|part| part.records.as_ref().map_or(0, bytes::Bytes::len))
        .sum();
    assert!((100_000..=350_000).contains(&bytes), "{bytes}");
    request.max_bytes = 50 << 20;
    request.topics[0]
        .partitions
        .iter_mut()
        .for_each(|part| part.partition_max_bytes = 250_000);
    let got = fetched(&client.call(&request, 12));
    assert_eq!(
        got.iter().map(|part| part.values.len()).collect::<Vec<_>>(),
        [2, 2, 2, 2]
    );
    broker.stop();
}

#[test]
fn offsets_that_are_not_there_are_told() {
    let home = Home::new();
    let broker = home.start(2, &[]);
    let mut client = broker.connect();
    let topic = create(&mut client, "edges", 2);
    append(&mut client, &topic, 0, &values("x", 3));
    let answer = client.call(&fetch_request(&topic, 12, &[(0, 4), (1, -5), (7, 0)]), 12);
    let codes: Vec<_> = fetched(&answer)
        .iter()
        .map(|part| (part.partition, part.error))
        .collect();
    // OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION
    assert_eq!(codes, [(0, 1), (1, 1), (7, 3)]);
    broker.stop();
}

#[test]
fn a_log_of_many_segments_is_read_from_any_offset() {
    let home = Home::new();
    let broker = home.start(2, &[]);
    let mut client = broker.connect();
    let configs = [
        ("segment.bytes", "1048576"),
        ("index.interval.bytes", "30000"),
        ("retention.ms", "-1"),
    ];
    let topic = create_with(&mut client, "long", 1, &configs);
    let sent: Vec<String> = (0..400).map(|n| format!("{n:0>20000}")).collect();
    for chunk in sent.chunks(4) {
        append(&mut client, &topic, 0, chunk);
    }
    let segments = crate::broker::files(&home.data().join("long-0"));
    assert!(
        segments
            .iter()
            .filter(|(name, _)| name.ends_with(".log"))
            .count()
            > 5,
        "{segments:?}"
    );
    assert_eq!(read_all(&mut client, &topic)[&0], numbered(sent.clone()));
    for offset in (0..400).step_by(17) {
        let mut request = fetch_request(&topic, 12, &[(0, offset)]);
        request.topics[0].partitions[0].partition_max_bytes = 1;
        let got = fetched(&client.call(&request, 12)).remove(0);
        let found = got.values.iter().find(|(at, _)| *at == offset);
        assert_eq!(
            found,
            Some(&(offset, sent[offset as usize].clone())),
            "at {offset}"
        );
    }
    ends_are(&mut client, &topic, 0, 400);
    broker.stop();
}

fn ends_are(client: &mut Client, topic: &crate::topic::Topic, start: i64, end: i64) {
    assert_eq!(list_offset(client, topic, 0, EARLIEST), (0, start));
    assert_eq!(list_offset(client, topic, 0, LATEST), (0, end));
}
