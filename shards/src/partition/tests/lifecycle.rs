use super::*;
use crate::base::ids::TopicPartition;
use crate::event::Event;

#[test]
fn an_image_is_followed_and_reported() {
    let mut rig = Rig::one();
    assert_eq!(rig.shard.applied, [1]);
    rig.shard.image(&rig.cluster);
    assert_eq!(
        rig.shard.applied,
        [1],
        "the same version is not followed twice"
    );
}

#[test]
fn a_part_ahead_of_the_image_parks_until_it_comes() {
    let mut rig = Rig::one();
    let topic = rig.cluster.create_topic("later", 1, &[]);
    rig.partitions.push(rig.cluster.partition(topic, 0));
    let first = rig.send(1, Acks::All, batch(&["a"]));
    let second = rig.send(1, Acks::All, batch(&["b"]));
    assert!(rig.produced(first).is_none());
    rig.shard.image(&rig.cluster);
    assert_eq!(outcome(&rig.produced(first).unwrap()), (ErrorCode::NONE, 0));
    assert_eq!(
        outcome(&rig.produced(second).unwrap()),
        (ErrorCode::NONE, 1)
    );
}

#[test]
fn a_part_for_a_log_that_is_being_made_parks_and_later_ones_stay_behind_it() {
    let mut rig = Rig::one();
    let topic = rig.cluster.create_topic("new", 1, &[]);
    rig.partitions.push(rig.cluster.partition(topic, 0));
    rig.shard.hold = Hold::Everything;
    rig.shard.image(&rig.cluster);
    let entry = |at, partition: PartitionRef, value: &str| ProduceEntry {
        at,
        partition,
        records: Some(batch(&[value])),
    };
    let entries = smallvec![
        entry(0, rig.partitions[0], "first"),
        entry(1, rig.partitions[1], "x")
    ];
    let both = rig.shard.part(Part::Produce(Produce {
        acks: Acks::All,
        timeout_ms: 1000,
        zstd: true,
        entries,
    }));
    let later = rig.send(0, Acks::All, batch(&["second"]));
    rig.shard.hold = Hold::Nothing;
    rig.shard.release();
    let Some(Reply::Produce(produced)) = rig.shard.reply(both) else {
        panic!("no answer")
    };
    assert_eq!(produced[0].base_offset, 0);
    assert_eq!(outcome(&rig.produced(later).unwrap()), (ErrorCode::NONE, 1));
}

#[test]
fn too_many_parked_parts_are_refused() {
    let mut rig = Rig::one();
    let topic = rig.cluster.create_topic("later", 1, &[]);
    rig.partitions.push(rig.cluster.partition(topic, 0));
    let parked: Vec<_> = (0..8)
        .map(|_| rig.send(1, Acks::All, batch(&["a"])))
        .collect();
    let refused = rig.send(1, Acks::All, batch(&["a"]));
    assert_eq!(
        rig.produced(refused).unwrap().code,
        ErrorCode::NOT_LEADER_OR_FOLLOWER
    );
    rig.shard.on(Event::Cancelled { to: parked[0] });
    rig.shard.image(&rig.cluster);
    assert!(rig.produced(parked[0]).is_none());
    assert_eq!(
        outcome(&rig.produced(parked[1]).unwrap()),
        (ErrorCode::NONE, 0)
    );
}

#[test]
fn a_client_that_wants_no_answer_may_leave_before_its_topic_is_made() {
    let mut rig = Rig::one();
    let topic = rig.cluster.create_topic("later", 1, &[]);
    rig.partitions.push(rig.cluster.partition(topic, 0));
    let sent = rig.send(1, Acks::None, batch(&["a"]));
    rig.shard.on(Event::Cancelled { to: sent });
    rig.shard.image(&rig.cluster);
    assert_eq!(
        outcome(&rig.produce(1, batch(&["b"]))),
        (ErrorCode::NONE, 1)
    );
}

#[test]
fn a_parked_produce_times_out() {
    let mut rig = Rig::one();
    let topic = rig.cluster.create_topic("later", 1, &[]);
    rig.partitions.push(rig.cluster.partition(topic, 0));
    let to = rig.send(1, Acks::Leader, batch(&["a"]));
    rig.shard.pass_ms(30_000);
    assert_eq!(rig.produced(to).unwrap().code, ErrorCode::REQUEST_TIMED_OUT);
    rig.shard.image(&rig.cluster);
    assert_eq!(
        outcome(&rig.produce(1, batch(&["b"]))),
        (ErrorCode::NONE, 0),
        "what timed out while parked was not appended"
    );
}

#[test]
fn an_existing_log_is_opened_and_refuses_until_it_is_recovered() {
    let mut cluster = TestCluster::new(1);
    let topic = cluster.create_topic("t", 1, &[]);
    let partition = cluster.partition(topic, 0);
    let mut shard = TestShard::with(|config| {
        config.existing.insert(partition.id);
    });
    shard.image(&cluster);
    let mut rig = Rig {
        cluster,
        shard,
        partitions: vec![partition],
    };
    assert_eq!(rig.shard.opened, [partition.id]);
    assert_eq!(
        rig.produce(0, batch(&["a"])).code,
        ErrorCode::NOT_LEADER_OR_FOLLOWER
    );
    rig.shard.opened_empty(partition.id);
    assert_eq!(
        outcome(&rig.produce(0, batch(&["a"]))),
        (ErrorCode::NONE, 0)
    );
}

#[test]
fn a_log_that_cannot_be_opened_is_offline() {
    let mut cluster = TestCluster::new(1);
    let topic = cluster.create_topic("t", 1, &[]);
    let partition = cluster.partition(topic, 0);
    let mut shard = TestShard::with(|config| {
        config.existing.insert(partition.id);
    });
    shard.image(&cluster);
    let reason = "a test says so".to_owned();
    shard.on(Event::Opened {
        log: partition.id,
        opened: Err(crate::log::OpenFailure { reason }),
    });
    assert_eq!(shard.failed_dirs, [partition.id]);
    let mut rig = Rig {
        cluster,
        shard,
        partitions: vec![partition],
    };
    assert_eq!(
        rig.produce(0, batch(&["a"])).code,
        ErrorCode::KAFKA_STORAGE_ERROR
    );
}

#[test]
fn a_deleted_topic_is_gone_at_once_and_its_waiters_are_told() {
    let mut rig = Rig::one();
    rig.shard.hold = Hold::Everything;
    let waiting = rig.send(0, Acks::All, batch(&["a"]));
    rig.cluster.delete_topic(rig.partitions[0].id.topic_id);
    rig.shard.image(&rig.cluster);
    assert_eq!(
        outcome(&rig.produced(waiting).unwrap()),
        (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, -1)
    );
    rig.shard.hold = Hold::Nothing;
    rig.shard.release();
    assert_eq!(rig.shard.deleted, [rig.partitions[0].id]);
    assert_eq!(
        rig.produce(0, batch(&["a"])).code,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
    );
}

#[test]
fn a_new_configuration_counts_from_the_next_batch_on() {
    let mut rig = Rig::one();
    rig.produce(0, batch(&["a"]));
    rig.cluster.set_config("t", "max.message.bytes", "10");
    rig.shard.image(&rig.cluster);
    assert_eq!(
        rig.produce(0, batch(&["a"])).code,
        ErrorCode::MESSAGE_TOO_LARGE
    );
}

#[test]
fn l32_the_partitions_of_a_failed_directory_are_offline_whoever_found_out() {
    let mut rig = Rig::new(2, &[]);
    let logs: Vec<TopicPartition> = rig
        .partitions
        .iter()
        .map(|partition| partition.id)
        .collect();
    rig.shard.on(Event::Offline { logs });
    assert!(
        rig.shard.failed_dirs.is_empty(),
        "who is told does not tell"
    );
    for partition in [0, 1] {
        assert_eq!(
            rig.produce(partition, batch(&["a"])).code,
            ErrorCode::KAFKA_STORAGE_ERROR
        );
    }
}

#[test]
fn l5_watermarks_are_checkpointed_after_a_second_and_only_if_they_moved() {
    let mut rig = Rig::new(2, &[]);
    rig.shard.pass_ms(60_000);
    rig.shard.checkpoints.clear();
    rig.produce(1, batch(&["a"]));
    rig.shard.pass_ms(999);
    assert!(rig.shard.checkpoints.is_empty());
    rig.shard.pass_ms(1);
    let lines: Vec<_> = rig
        .shard
        .checkpoints
        .drain(..)
        .map(|line| (line.log, line.high_watermark))
        .collect();
    assert_eq!(lines, [(rig.partitions[1].id, 1)]);
}

#[test]
fn l11_retention_runs_by_itself() {
    let mut rig = Rig::new(1, &[("segment.bytes", "1048576"), ("retention.bytes", "1")]);
    let large = "x".repeat(600_000);
    for _ in 0..4 {
        rig.produce(0, batch(&[&large]));
    }
    rig.shard.pass_ms(400_000);
    let entry = rig.fetch_entry(0, 3);
    assert_eq!(rig.collect(entry).log_start_offset, 3);
}

#[test]
fn a_stop_settles_every_log_and_refuses_appends() {
    let mut rig = Rig::one();
    rig.produce(0, batch(&["a"]));
    rig.shard.hold = Hold::Everything;
    rig.shard.on(Event::Stop);
    assert!(!rig.shard.stopped);
    let refused = rig.send(0, Acks::All, batch(&["b"]));
    assert_eq!(
        rig.produced(refused).unwrap().code,
        ErrorCode::NOT_LEADER_OR_FOLLOWER
    );
    rig.shard.hold = Hold::Nothing;
    rig.shard.release();
    assert!(rig.shard.stopped);
    let last = rig.shard.checkpoints.last().unwrap();
    assert_eq!((last.recovery_point, last.high_watermark), (1, 1));
}

#[test]
fn a_stop_waits_for_logs_that_are_being_made() {
    let mut cluster = TestCluster::new(1);
    cluster.create_topic("t", 1, &[]);
    let mut shard = TestShard::new();
    shard.hold = Hold::Everything;
    shard.image(&cluster);
    shard.on(Event::Stop);
    assert!(!shard.stopped);
    shard.hold = Hold::Nothing;
    shard.release();
    assert!(shard.stopped);
}
