use super::*;
use crate::event::Event;

#[test]
fn f4_whole_batches_come_from_the_one_that_holds_the_offset() {
    let mut rig = Rig::one();
    rig.produce(0, batch(&["a", "b"]));
    rig.produce(0, batch(&["c"]));
    let entry = rig.fetch_entry(0, 1);
    let fetched = rig.collect(entry);
    assert_eq!(batches_of(&fetched), [(0, 2), (2, 1)]);
    assert_eq!(
        (
            fetched.code,
            fetched.high_watermark,
            fetched.last_stable_offset,
            fetched.log_start_offset
        ),
        (ErrorCode::NONE, 3, 3, 0)
    );
    assert!(fetched.aborted.is_none());
}

#[test]
fn f5_offsets_outside_the_log_are_out_of_range_and_its_end_is_not() {
    let mut rig = Rig::one();
    rig.produce(0, batch(&["a"]));
    for (offset, code) in [
        (-1, ErrorCode::OFFSET_OUT_OF_RANGE),
        (1, ErrorCode::NONE),
        (2, ErrorCode::OFFSET_OUT_OF_RANGE),
    ] {
        let entry = rig.fetch_entry(0, offset);
        assert_eq!(
            rig.peek(entry),
            FetchPeeked {
                at: 0,
                available: 0,
                immediate: code.is_error()
            }
        );
        let fetched = rig.collect(entry);
        assert_eq!((fetched.code, fetched.records.len()), (code, 0));
        assert_eq!(fetched.high_watermark, if code.is_error() { -1 } else { 1 });
    }
}

#[test]
fn f5_what_is_not_committed_is_not_shown() {
    let mut rig = Rig::one();
    rig.follow(0);
    rig.produce(0, batch(&["a"]));
    rig.shard.hold = Hold::Everything;
    rig.send(0, Acks::Leader, batch(&["b"]));
    let entry = rig.fetch_entry(0, 0);
    let fetched = rig.collect(entry);
    assert_eq!(
        (batches_of(&fetched), fetched.high_watermark),
        (vec![(0, 1)], 1)
    );
    let entry = rig.fetch_entry(0, 1);
    assert_eq!(rig.peek(entry).available, 0);
}

#[test]
fn f3_a_budget_cuts_and_at_least_one_batch_may_exceed_it() {
    let mut rig = Rig::one();
    let one = batch(&["a"]);
    for _ in 0..3 {
        rig.produce(0, one.clone());
    }
    let entry = rig.fetch_entry(0, 0);
    for (bytes, at_least_one, batches) in [
        (2 * one.len(), false, 2),
        (one.len() - 1, false, 0),
        (1, true, 1),
        (0, true, 1),
    ] {
        let Reply::FetchCollect(fetched) =
            rig.shard
                .ask(Rig::collect_part(entry, bytes as u32, at_least_one))
        else {
            panic!("another reply")
        };
        assert_eq!(batches_of(&fetched[0]).len(), batches, "{bytes} bytes");
    }
}

#[test]
fn f7_an_older_epoch_is_fenced_and_a_newer_one_unknown() {
    let mut rig = Rig::one();
    rig.produce(0, batch(&["a"]));
    rig.cluster.elect(rig.partitions[0].id);
    rig.shard.image(&rig.cluster);
    for (epoch, code) in [
        (-1, ErrorCode::NONE),
        (0, ErrorCode::FENCED_LEADER_EPOCH),
        (1, ErrorCode::NONE),
        (2, ErrorCode::UNKNOWN_LEADER_EPOCH),
    ] {
        let entry = FetchEntry {
            current_leader_epoch: epoch,
            ..rig.fetch_entry(0, 0)
        };
        assert_eq!(rig.collect(entry).code, code, "epoch {epoch}");
        assert_eq!(rig.peek(entry).immediate, code.is_error());
    }
}

#[test]
fn f8_a_log_that_went_another_way_is_told_where_it_diverges() {
    let mut rig = Rig::one();
    rig.produce(0, batch(&["a", "b"]));
    rig.cluster.elect(rig.partitions[0].id);
    rig.shard.image(&rig.cluster);
    rig.produce(0, batch(&["c"]));
    // Epoch 0 ended at offset 2 here; the client says that it read up to 3 in it.
    let entry = FetchEntry {
        last_fetched_epoch: 0,
        ..rig.fetch_entry(0, 3)
    };
    let fetched = rig.collect(entry);
    assert_eq!(
        (fetched.code, fetched.diverging, fetched.records.len()),
        (ErrorCode::NONE, Some((0, 2)), 0)
    );
    assert!(rig.peek(entry).immediate);
    let entry = FetchEntry {
        last_fetched_epoch: 1,
        ..rig.fetch_entry(0, 2)
    };
    assert_eq!(batches_of(&rig.collect(entry)), [(2, 1)]);
    let entry = FetchEntry {
        last_fetched_epoch: 9,
        ..rig.fetch_entry(0, 2)
    };
    assert_eq!(rig.collect(entry).code, ErrorCode::OFFSET_OUT_OF_RANGE);
}

#[test]
fn f2_a_watch_wakes_when_there_is_enough_and_only_when_there_is_more() {
    let mut rig = Rig::one();
    let one = batch(&["a"]);
    let wake_bytes = 2 * one.len() as u32;
    let entry = rig.fetch_entry(0, 0);
    let to = rig.shard.part(Rig::peek_part(entry, true, wake_bytes));
    let Some(Reply::FetchPeek(peeked)) = rig.shard.reply(to) else {
        panic!("no answer")
    };
    assert_eq!(
        peeked[0],
        FetchPeeked {
            at: 0,
            available: 0,
            immediate: false
        }
    );
    rig.produce(0, one.clone());
    assert!(rig.woken(to).is_none());
    rig.produce(0, one.clone());
    assert_eq!(rig.woken(to).unwrap().available, wake_bytes);
    rig.shard.on(Event::Cancelled { to });
    rig.produce(0, one);
    assert!(rig.woken(to).is_none());
}

#[test]
fn f2_a_watch_wakes_on_an_error_at_once() {
    let mut rig = Rig::one();
    rig.produce(0, batch(&["a", "b"]));
    let entry = rig.fetch_entry(0, 2);
    let to = rig.shard.part(Rig::peek_part(entry, true, 1));
    rig.shard.reply(to).unwrap();
    rig.cluster.delete_topic(rig.partitions[0].id.topic_id);
    rig.shard.image(&rig.cluster);
    assert!(rig.woken(to).unwrap().immediate);
    rig.shard.on(Event::Cancelled { to });
}

#[test]
fn many_watches_of_one_partition_end_one_by_one() {
    let mut rig = Rig::one();
    let entry = rig.fetch_entry(0, 0);
    let watches: Vec<_> = (0..5)
        .map(|_| rig.shard.part(Rig::peek_part(entry, true, 1)))
        .collect();
    for to in &watches {
        rig.shard.reply(*to).unwrap();
    }
    for ended in [1, 4, 0] {
        rig.shard.on(Event::Cancelled { to: watches[ended] });
    }
    rig.produce(0, batch(&["a"]));
    let woken: Vec<_> = watches.iter().map(|to| rig.woken(*to).is_some()).collect();
    assert_eq!(woken, [false, false, true, true, false]);
}

/// A shard that keeps nothing in memory reads everything from disk.
fn cold(partitions: i32) -> Rig {
    let mut cluster = TestCluster::new(1);
    let topic = cluster.create_topic("t", partitions, &[]);
    let mut shard = TestShard::with(|config| config.tail_cache_bytes = 0);
    shard.image(&cluster);
    let partitions = (0..partitions)
        .map(|number| cluster.partition(topic, number))
        .collect();
    Rig {
        cluster,
        shard,
        partitions,
    }
}

#[test]
fn reads_from_disk_of_several_partitions_are_answered_together() {
    let mut rig = cold(2);
    rig.produce(0, batch(&["a"]));
    rig.produce(1, batch(&["b", "c"]));
    rig.shard.hold = Hold::Everything;
    let grants = [0, 1].map(|partition| FetchGrant {
        entry: rig.fetch_entry(partition, 0),
        bytes: 1000,
        at_least_one: true,
    });
    let round = FetchCollect {
        isolation: Isolation::ReadCommitted,
        entries: grants.into_iter().collect(),
    };
    let to = rig.shard.part(Part::FetchCollect(round));
    assert!(rig.shard.reply(to).is_none());
    assert!(!rig.shard.held.is_empty());
    rig.shard.hold = Hold::Nothing;
    rig.shard.release();
    let Some(Reply::FetchCollect(fetched)) = rig.shard.reply(to) else {
        panic!("no answer")
    };
    let batches: Vec<_> = fetched.iter().map(batches_of).collect();
    assert_eq!(batches, [vec![(0, 1)], vec![(0, 2)]]);
    assert!(
        fetched
            .iter()
            .all(|fetched| fetched.aborted.as_deref() == Some(&[]))
    );
}

#[test]
fn a_topic_that_goes_while_it_is_read_is_answered_and_a_late_completion_ignored() {
    let mut rig = cold(1);
    rig.produce(0, batch(&["a"]));
    rig.shard.hold = Hold::Everything;
    let entry = rig.fetch_entry(0, 0);
    let to = rig.shard.part(Rig::collect_part(entry, 1000, true));
    rig.cluster.delete_topic(rig.partitions[0].id.topic_id);
    rig.shard.image(&rig.cluster);
    let Some(Reply::FetchCollect(fetched)) = rig.shard.reply(to) else {
        panic!("no answer")
    };
    assert_eq!(fetched[0].code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    rig.shard.hold = Hold::Nothing;
    rig.shard.release();
    assert!(rig.shard.replies.is_empty());
}

#[test]
fn a_cancelled_collect_is_not_answered() {
    let mut rig = cold(1);
    rig.produce(0, batch(&["a"]));
    rig.shard.hold = Hold::Everything;
    let entry = rig.fetch_entry(0, 0);
    let to = rig.shard.part(Rig::collect_part(entry, 1000, true));
    rig.shard.on(Event::Cancelled { to });
    rig.shard.hold = Hold::Nothing;
    rig.shard.release();
    assert!(rig.shard.reply(to).is_none());
}
