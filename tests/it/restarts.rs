//! What is there after a stop, a kill, and with another number of shards.

use std::fs;
use std::path::Path;

use corelog_wire::compress::Codec;
use corelog_wire::messages::produce;

use crate::broker::{Home, eventually, files};
use crate::client::Client;
use crate::ordering::new_producer;
use crate::topic::{
    Topic, Values, append, await_leaders, batch, batch_with, create, create_with, numbered,
    produce_request, produced, read_all, values,
};

const CLEAN: &str = ".kafka_cleanshutdown";

fn fill(client: &mut Client, topic: &Topic) -> Values {
    for partition in 0..topic.partitions {
        append(
            client,
            topic,
            partition,
            &values(&format!("p{partition}"), 50),
        );
    }
    read_all(client, topic)
}

#[test]
fn any_number_of_shards_serves_what_another_one_wrote() {
    let home = Home::new();
    let broker = home.start(4, &[]);
    let mut client = broker.connect();
    let topic = create(&mut client, "kept", 7);
    let mut due = fill(&mut client, &topic);
    broker.stop();
    for shards in [1, 3, 2] {
        let broker = home.start(shards, &[]);
        let mut client = broker.connect();
        await_leaders(&mut client, &topic);
        assert_eq!(read_all(&mut client, &topic), due, "with {shards} shards");
        for partition in 0..topic.partitions {
            let base = append(
                &mut client,
                &topic,
                partition,
                &values(&format!("s{shards}"), 2),
            );
            let kept = due.get_mut(&partition).unwrap();
            assert_eq!(base, kept.len() as i64);
            kept.extend((base..).zip(values(&format!("s{shards}"), 2)));
        }
        broker.stop();
    }
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    let home = Home::new();
    let broker = home.start(2, &[]);
    let mut client = broker.connect();
    let topic = create(&mut client, "safe", 3);
    let mut acknowledged = vec![Vec::new(); 3];
    let mut broker = broker;
    for round in 0..3_usize {
        // Requests are still under way when the broker is killed.
        for n in 0..90 {
            let record = format!("{round}/{n}");
            let request = produce_request(&topic, 9, -1, &[(n % 3, batch(&[record]))]);
            client.send(&request, 9);
        }
        for n in 0..60_usize {
            let (error, offset) = produced(&client.receive::<produce::Request>(9));
            assert_eq!(error, 0);
            acknowledged[n % 3].push((offset, format!("{round}/{n}")));
        }
        broker.kill();
        assert!(!home.data().join(CLEAN).exists());
        broker = home.start(2, &[]);
        client = broker.connect();
        await_leaders(&mut client, &topic);
        let there = read_all(&mut client, &topic);
        for (partition, acknowledged) in (0..).zip(&acknowledged) {
            let lost: Vec<_> = acknowledged
                .iter()
                .filter(|record| !there[&partition].contains(record))
                .collect();
            assert!(lost.is_empty(), "partition {partition} lost {lost:?}");
            let offsets: Vec<i64> = there[&partition]
                .iter()
                .map(|(offset, _)| *offset)
                .collect();
            assert_eq!(offsets, (0..offsets.len() as i64).collect::<Vec<_>>());
        }
    }
    broker.stop();
}

/// I-1, I-10: what was in flight when the broker went is sent again, and is there once.
#[test]
fn five_batches_of_a_producer_are_known_after_a_kill_and_after_a_stop() {
    let home = Home::new();
    let mut broker = home.start(2, &[]);
    let mut client = broker.connect();
    let topic = create(&mut client, "once", 1);
    let (id, epoch) = new_producer(&mut client);
    let mut due = Vec::new();
    for round in 0..4 {
        let batches: Vec<_> = (round * 5..round * 5 + 5)
            .map(|n| {
                let records = values(&format!("b{n}"), 2);
                let bytes = batch_with(Codec::None, Some((id, epoch, n * 2)), &records);
                due.extend(records);
                produce_request(&topic, 9, -1, &[(0, bytes)])
            })
            .collect();
        let send_all = |client: &mut Client| -> Vec<(i16, i64)> {
            for request in &batches {
                client.send(request, 9);
            }
            let answers = batches.iter();
            answers
                .map(|_| produced(&client.receive::<produce::Request>(9)))
                .collect()
        };
        let first = send_all(&mut client);
        let offsets = (0..5).map(|n| (0, i64::from(round * 10 + n * 2)));
        assert_eq!(first, offsets.collect::<Vec<_>>());
        if round % 2 == 0 {
            broker.kill();
        } else {
            broker.stop();
        }
        broker = home.start(2, &[]);
        client = broker.connect();
        await_leaders(&mut client, &topic);
        assert_eq!(send_all(&mut client), first, "round {round}");
    }
    assert_eq!(read_all(&mut client, &topic)[&0], numbered(due));
    broker.stop();
}

/// Where the newest epoch of partition 0 up to `epoch` ends: (epoch, end).
fn epoch_end(client: &mut Client, topic: &Topic, epoch: i32) -> (i32, i64) {
    use corelog_wire::messages::offset_for_leader_epoch::{
        Request, RequestTopics, RequestTopicsPartitions,
    };
    let partition = RequestTopicsPartitions {
        partition: 0,
        current_leader_epoch: -1,
        leader_epoch: epoch,
    };
    let request = Request {
        replica_id: -1,
        topics: vec![RequestTopics {
            topic: topic.name.clone(),
            partitions: vec![partition],
        }],
    };
    let answer = client.call(&request, 4);
    let found = &answer.topics[0].partitions[0];
    assert_eq!(found.error_code, 0);
    (found.leader_epoch, found.end_offset)
}

/// A power cut may take a log's end; only a new epoch tells a reader that was further (4.4, F-8).
#[test]
fn leaders_lead_in_a_new_epoch_after_a_kill_but_not_after_a_stop() {
    let home = Home::new();
    let broker = home.start(2, &[]);
    let mut client = broker.connect();
    let topic = create(&mut client, "epochs", 1);
    append(&mut client, &topic, 0, &values("before", 3));
    assert_eq!(epoch_end(&mut client, &topic, 0), (0, 3));
    broker.stop();
    let broker = home.start(2, &[]);
    let mut client = broker.connect();
    await_leaders(&mut client, &topic);
    append(&mut client, &topic, 0, &values("stopped", 2));
    assert_eq!(epoch_end(&mut client, &topic, 0), (0, 5));
    broker.kill();
    let broker = home.start(2, &[]);
    let mut client = broker.connect();
    await_leaders(&mut client, &topic);
    append(&mut client, &topic, 0, &values("killed", 1));
    assert_eq!(epoch_end(&mut client, &topic, 0), (0, 5));
    assert_eq!(epoch_end(&mut client, &topic, 1), (1, 6));
    broker.stop();
}

#[test]
fn topics_and_their_settings_survive_a_kill() {
    let home = Home::new();
    let broker = home.start(2, &[]);
    let mut client = broker.connect();
    let topic = create_with(&mut client, "set", 2, &[("max.message.bytes", "1000")]);
    broker.kill();
    let broker = home.start(2, &[]);
    let mut client = broker.connect();
    await_leaders(&mut client, &topic);
    let large = batch(&["x".repeat(2000)]);
    let answer = client.call(&produce_request(&topic, 13, -1, &[(0, large)]), 13);
    assert_eq!(
        produced(&answer).0,
        10,
        "MESSAGE_TOO_LARGE; the topic's id is the same, too"
    );
    broker.stop();
}

/// Entries of a fixed size, each larger than the one before, and no space behind the last one.
fn check_index(path: &Path, entry: usize, key: usize) {
    let bytes = fs::read(path).unwrap();
    assert_eq!(
        bytes.len() % entry,
        0,
        "{} has {} bytes",
        path.display(),
        bytes.len()
    );
    let keys: Vec<&[u8]> = bytes.chunks(entry).map(|entry| &entry[..key]).collect();
    assert!(keys.is_sorted(), "{} is not in order", path.display());
    assert!(
        keys.iter().all(|key| key.iter().any(|byte| *byte != 0)),
        "{} has empty entries",
        path.display()
    );
}

#[test]
fn a_clean_stop_leaves_its_sign_and_files_without_room_at_their_end() {
    let home = Home::new();
    let broker = home.start(2, &[]);
    let mut client = broker.connect();
    let configs = [
        ("segment.bytes", "1048576"),
        ("index.interval.bytes", "10000"),
    ];
    let topic = create_with(&mut client, "exact", 1, &configs);
    for _ in 0..300 {
        append(&mut client, &topic, 0, &["z".repeat(10_000)]);
    }
    let due = read_all(&mut client, &topic);
    broker.stop();
    assert!(home.data().join(CLEAN).exists());
    let directory = home.data().join("exact-0");
    let found = files(&directory);
    let logs: u64 = found
        .iter()
        .filter(|(name, _)| name.ends_with(".log"))
        .map(|(_, size)| size)
        .sum();
    let batch_bytes = batch(&["z".repeat(10_000)]).len() as u64;
    assert_eq!(logs, 300 * batch_bytes, "{found:?}");
    for (name, _) in &found {
        if name.ends_with(".index") {
            check_index(&directory.join(name), 8, 4);
        } else if name.ends_with(".timeindex") {
            check_index(&directory.join(name), 12, 8);
        }
    }
    assert!(
        found
            .iter()
            .any(|(name, size)| name.ends_with(".index") && *size > 0),
        "{found:?}"
    );
    let broker = home.start(1, &[]);
    assert!(
        !home.data().join(CLEAN).exists(),
        "the sign is taken away at the start"
    );
    let mut client = broker.connect();
    await_leaders(&mut client, &topic);
    assert_eq!(read_all(&mut client, &topic), due);
    broker.stop();
}

#[test]
fn a_log_whose_end_is_torn_is_cut_back_to_its_last_whole_batch() {
    let home = Home::new();
    let broker = home.start(1, &[]);
    let mut client = broker.connect();
    let topic = create(&mut client, "torn", 1);
    append(&mut client, &topic, 0, &values("whole", 10));
    broker.kill();
    let path = home.data().join("torn-0/00000000000000000000.log");
    let mut bytes = fs::read(&path).unwrap();
    let whole = batch(&values("whole", 10)).len();
    bytes.truncate(whole);
    bytes.extend_from_slice(&batch(&values("torn", 10))[..100]);
    fs::write(&path, bytes).unwrap();
    let broker = home.start(1, &[]);
    let mut client = broker.connect();
    await_leaders(&mut client, &topic);
    assert_eq!(
        read_all(&mut client, &topic)[&0],
        numbered(values("whole", 10))
    );
    assert_eq!(append(&mut client, &topic, 0, &values("next", 1)), 10);
    broker.stop();
}

#[test]
fn a_second_signal_ends_what_does_not_stop() {
    let home = Home::new();
    let mut broker = home.start(2, &[&home.stall_option()]);
    let mut client = broker.connect();
    let topic = create(&mut client, "stuck", 2);
    append(&mut client, &topic, 0, &values("there", 5));
    home.hold_disk();
    // Never answered: the disk stands still.
    client.send(
        &produce_request(&topic, 9, -1, &[(0, batch(&values("held", 1)))]),
        9,
    );
    broker.signal("TERM");
    eventually("the first signal is taken", || {
        home.told().contains("SIGTERM").then_some(())
    });
    assert!(
        broker.ended().is_none(),
        "it can't have stopped cleanly: its disk stands still"
    );
    broker.signal("TERM");
    let status = broker.wait_for_end();
    assert!(!status.success(), "{status}");
    home.let_disk_go();
    assert!(!home.data().join(CLEAN).exists());
    let broker = home.start(2, &[]);
    let mut client = broker.connect();
    await_leaders(&mut client, &topic);
    assert_eq!(
        read_all(&mut client, &topic)[&0],
        numbered(values("there", 5))
    );
    broker.stop();
}
