//! What becomes of a topic's directories and offsets when it is deleted, widened or cut.

use std::fs;

use corelog_wire::messages::{create_partitions, delete_records, delete_topics};

use crate::broker::{Home, eventually};
use crate::client::Client;
use crate::topic::{
    EARLIEST, LATEST, Topic, append, await_leaders, batch, create, create_with, fetch_request,
    fetched, list_offset, produce_request, produced, read_all, values,
};

const UNKNOWN_TOPIC_ID: i16 = 100;
const OFFSET_OUT_OF_RANGE: i16 = 1;

fn delete(client: &mut Client, topic: &Topic) {
    let request = delete_topics::Request {
        topics: vec![delete_topics::RequestTopics {
            name: Some(topic.name.clone()),
            ..Default::default()
        }],
        timeout_ms: 20_000,
        ..Default::default()
    };
    assert_eq!(client.call(&request, 6).responses[0].error_code, 0);
}

/// The new start of the log.
fn cut(client: &mut Client, topic: &Topic, partition: i32, offset: i64) -> i64 {
    let request = delete_records::Request {
        topics: vec![delete_records::RequestTopics {
            name: topic.name.clone(),
            partitions: vec![delete_records::RequestTopicsPartitions {
                partition_index: partition,
                offset,
            }],
        }],
        timeout_ms: 20_000,
    };
    let answer = client.call(&request, 2);
    let told = &answer.topics[0].partitions[0];
    assert_eq!(told.error_code, 0);
    told.low_watermark
}

/// Names of directories in `root` that begin with `prefix`.
fn directories(root: &std::path::Path, prefix: &str) -> Vec<String> {
    let names = fs::read_dir(root).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(prefix)).collect()
}

#[test]
fn a_deleted_topic_is_gone_and_its_name_is_free() {
    let home = Home::new();
    let broker = home.start(2, &["log.segment.delete.delay.ms=100"]);
    let mut client = broker.connect();
    let old = create(&mut client, "again", 4);
    for partition in 0..4 {
        append(&mut client, &old, partition, &values("old", 10));
    }
    delete(&mut client, &old);
    eventually("the directories are gone", || {
        directories(&home.data(), "again-").is_empty().then_some(())
    });
    let new = create(&mut client, "again", 2);
    assert_ne!(new.id, old.id);
    let one = batch(&values("x", 1));
    let by_old_id = produce_request(&old, 13, -1, &[(0, one)]);
    assert_eq!(produced(&client.call(&by_old_id, 13)).0, UNKNOWN_TOPIC_ID);
    assert_eq!(append(&mut client, &new, 1, &values("new", 3)), 0);
    broker.kill();
    let broker = home.start(1, &[]);
    let mut client = broker.connect();
    await_leaders(&mut client, &new);
    let all = read_all(&mut client, &new);
    assert_eq!((all[&0].len(), all[&1].len()), (0, 3));
    broker.stop();
}

#[test]
fn a_topic_can_be_made_and_deleted_many_times_while_it_is_written_to() {
    let home = Home::new();
    let broker = home.start(2, &["log.segment.delete.delay.ms=100"]);
    let mut client = broker.connect();
    for round in 0..10 {
        let topic = create(&mut client, "restless", 3);
        let mut other = broker.connect();
        for n in 0..60 {
            let one = batch(&[format!("{round}/{n}")]);
            other.send(&produce_request(&topic, 9, -1, &[(n % 3, one)]), 9);
        }
        delete(&mut client, &topic);
        for _ in 0..60 {
            let answer = other.receive::<corelog_wire::messages::produce::Request>(9);
            // It was there, or it was not any more; nothing else, and every request is answered.
            assert!(
                [0, 3, 6].contains(&produced(&answer).0),
                "error {}",
                produced(&answer).0
            );
        }
    }
    eventually("the directories are gone", || {
        directories(&home.data(), "restless-")
            .is_empty()
            .then_some(())
    });
    broker.stop();
}

#[test]
fn new_partitions_serve_at_once_and_after_a_restart() {
    let home = Home::new();
    let broker = home.start(2, &[]);
    let mut client = broker.connect();
    let mut topic = create(&mut client, "wider", 1);
    append(&mut client, &topic, 0, &values("x", 2));
    let request = create_partitions::Request {
        topics: vec![create_partitions::RequestTopics {
            name: topic.name.clone(),
            count: 5,
            assignments: None,
        }],
        timeout_ms: 20_000,
        ..Default::default()
    };
    assert_eq!(client.call(&request, 3).results[0].error_code, 0);
    topic.partitions = 5;
    await_leaders(&mut client, &topic);
    for partition in 1..5 {
        assert_eq!(append(&mut client, &topic, partition, &values("y", 3)), 0);
    }
    let due = read_all(&mut client, &topic);
    broker.stop();
    let broker = home.start(3, &[]);
    let mut client = broker.connect();
    await_leaders(&mut client, &topic);
    assert_eq!(read_all(&mut client, &topic), due);
    broker.stop();
}

#[test]
fn records_that_were_cut_off_stay_away() {
    let home = Home::new();
    let broker = home.start(2, &[]);
    let mut client = broker.connect();
    let topic = create_with(&mut client, "cut", 2, &[("segment.bytes", "1048576")]);
    for n in 0..50 {
        append(&mut client, &topic, 1, &[format!("{n:0>60000}")]);
    }
    assert_eq!(cut(&mut client, &topic, 1, 37), 37);
    let gone = fetched(&client.call(&fetch_request(&topic, 12, &[(1, 36)]), 12));
    assert_eq!(gone[0].error, OFFSET_OUT_OF_RANGE);
    let there = fetched(&client.call(&fetch_request(&topic, 12, &[(1, 37)]), 12));
    assert_eq!(there[0].values[0].0, 37);
    eventually("segments before are deleted", || {
        let first = home.data().join("cut-1/00000000000000000000.log");
        (!first.exists()).then_some(())
    });
    assert_eq!(
        cut(&mut client, &topic, 1, -1),
        50,
        "-1 is the high watermark"
    );
    broker.stop();
    for kill in [true, false] {
        let broker = home.start(1, &[]);
        let mut client = broker.connect();
        await_leaders(&mut client, &topic);
        assert_eq!(list_offset(&mut client, &topic, 1, EARLIEST), (0, 50));
        assert_eq!(list_offset(&mut client, &topic, 1, LATEST), (0, 50));
        if kill { broker.kill() } else { broker.stop() }
    }
}

#[test]
fn old_segments_are_deleted_by_size() {
    let home = Home::new();
    let more = [
        "log.retention.check.interval.ms=200",
        "log.initial.task.delay.ms=100",
        "log.segment.delete.delay.ms=100",
    ];
    let broker = home.start(2, &more);
    let mut client = broker.connect();
    let configs = [("segment.bytes", "1048576"), ("retention.bytes", "2097152")];
    let topic = create_with(&mut client, "short", 1, &configs);
    for n in 0..120 {
        append(&mut client, &topic, 0, &[format!("{n:0>60000}")]);
    }
    let start = eventually("the log starts later", || {
        let (error, start) = list_offset(&mut client, &topic, 0, EARLIEST);
        (error == 0 && start > 30).then_some(start)
    });
    assert_eq!(list_offset(&mut client, &topic, 0, LATEST), (0, 120));
    let there = fetched(&client.call(&fetch_request(&topic, 12, &[(0, start)]), 12));
    assert_eq!(there[0].values[0], (start, format!("{start:0>60000}")));
    broker.stop();
}

#[test]
fn partitions_are_spread_over_directories_and_found_again() {
    let home = Home::new();
    let dirs = [home.path("one"), home.path("two")];
    let both = format!("log.dirs={},{}", dirs[0].display(), dirs[1].display());
    let broker = home.start(2, &[&both]);
    let mut client = broker.connect();
    let topic = create(&mut client, "spread", 6);
    for partition in 0..6 {
        append(&mut client, &topic, partition, &values("x", 4));
    }
    let due = read_all(&mut client, &topic);
    let each = dirs.each_ref().map(|dir| directories(dir, "spread-").len());
    assert_eq!(each, [3, 3]);
    broker.kill();
    let broker = home.start(1, &[&both]);
    let mut client = broker.connect();
    await_leaders(&mut client, &topic);
    assert_eq!(read_all(&mut client, &topic), due);
    broker.stop();
}
