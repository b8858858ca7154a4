use corelog_wire::batch::BatchBuilder;
use corelog_wire::compress::Codec;

use super::*;
use crate::event::Event;

const NONE: ErrorCode = ErrorCode::NONE;

#[test]
fn p6_offsets_count_up_and_the_log_start_is_told() {
    let mut rig = Rig::one();
    assert_eq!(outcome(&rig.produce(0, batch(&["a", "b"]))), (NONE, 0));
    let second = rig.produce(0, batch(&["c"]));
    assert_eq!(
        (
            outcome(&second),
            second.log_append_time_ms,
            second.log_start_offset
        ),
        ((NONE, 2), -1, 0)
    );
}

#[test]
fn nothing_is_acknowledged_before_it_is_written() {
    for acks in [Acks::None, Acks::Leader, Acks::All] {
        let mut rig = Rig::one();
        rig.shard.hold = Hold::Everything;
        let to = rig.send(0, acks, batch(&["a"]));
        assert!(rig.produced(to).is_none());
        rig.shard.hold = Hold::Nothing;
        rig.shard.release();
        assert_eq!(outcome(&rig.produced(to).unwrap()), (NONE, 0));
    }
}

#[test]
fn l4_flush_messages_1_waits_for_the_sync() {
    let mut rig = Rig::new(1, &[("flush.messages", "1")]);
    rig.shard.hold = Hold::Syncs;
    let to = rig.send(0, Acks::Leader, batch(&["a"]));
    assert!(rig.produced(to).is_none());
    let entry = rig.fetch_entry(0, 0);
    assert_eq!(rig.peek(entry).available, 0);
    rig.shard.hold = Hold::Nothing;
    rig.shard.release();
    assert_eq!(outcome(&rig.produced(to).unwrap()), (NONE, 0));
}

#[test]
fn p2_a_produce_carries_exactly_one_batch_of_format_2() {
    let mut rig = Rig::one();
    let whole = batch(&["a"]);
    let twice: Bytes = [&whole[..], &whole[..]].concat().into();
    let mut old = whole.to_vec();
    old[16] = 1;
    for records in [Bytes::new(), twice, old.into()] {
        let produced = rig.produce(0, records);
        assert_eq!(outcome(&produced), (ErrorCode::INVALID_RECORD, -1));
        assert!(produced.errors.unwrap().message.is_some());
    }
    assert_eq!(
        rig.produce(0, whole.slice(..30)).code,
        ErrorCode::CORRUPT_MESSAGE
    );
}

#[test]
fn step_2_a_partial_batch_behind_a_whole_one_is_trimmed() {
    let mut rig = Rig::one();
    let whole = batch(&["a"]);
    let trailing: Bytes = [&whole[..], &whole[..20]].concat().into();
    assert_eq!(outcome(&rig.produce(0, trailing)), (NONE, 0));
    let entry = rig.fetch_entry(0, 0);
    let fetched = rig.collect(entry);
    assert_eq!(bytes_of(&fetched).len(), whole.len());
}

#[test]
fn step_2_a_damaged_or_too_large_batch_is_refused() {
    let mut rig = Rig::new(1, &[("max.message.bytes", "200")]);
    let mut damaged = batch(&["a"]).to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    assert_eq!(
        rig.produce(0, damaged.into()).code,
        ErrorCode::CORRUPT_MESSAGE
    );
    let large = "x".repeat(200);
    assert_eq!(
        rig.produce(0, batch(&[&large])).code,
        ErrorCode::MESSAGE_TOO_LARGE
    );
    assert_eq!(outcome(&rig.produce(0, batch(&["a"]))), (NONE, 0));
}

#[test]
fn step_3_a_compacted_topic_wants_keys() {
    let mut rig = Rig::new(1, &[("cleanup.policy", "compact")]);
    let mut builder = BatchBuilder::new(Codec::None);
    builder.add(&corelog_wire::batch::NewRecord {
        timestamp_ms: rig.shard.now.wall_ms,
        key: None,
        value: Some(b"v"),
        headers: &[],
    });
    let produced = rig.produce(0, builder.build().unwrap());
    assert_eq!(produced.code, ErrorCode::INVALID_RECORD);
    assert_eq!(produced.errors.unwrap().records[0].0, 0);
}

#[test]
fn step_3_control_and_transactional_batches_are_refused() {
    let mut rig = Rig::one();
    let control = build(BatchBuilder::new(Codec::None).control(), &["a"]);
    assert_eq!(rig.produce(0, control).code, ErrorCode::INVALID_RECORD);
    let transactional = build(
        BatchBuilder::new(Codec::None)
            .producer(1, 0, 0)
            .transactional(),
        &["a"],
    );
    assert_eq!(
        rig.produce(0, transactional).code,
        ErrorCode::UNSUPPORTED_VERSION
    );
}

#[test]
fn step_4_log_append_time_is_told_and_a_wrong_create_time_refused() {
    let mut rig = Rig::new(1, &[("message.timestamp.type", "LogAppendTime")]);
    assert_eq!(
        rig.produce(0, batch(&["a"])).log_append_time_ms,
        rig.shard.now.wall_ms
    );
    let mut rig = Rig::new(1, &[("message.timestamp.before.max.ms", "1000")]);
    rig.shard.pass_ms(5000);
    let produced = rig.produce(0, batch(&["a"]));
    assert_eq!(
        (produced.code, produced.errors.unwrap().records.len()),
        (ErrorCode::INVALID_TIMESTAMP, 1)
    );
}

#[test]
fn step_5_the_topics_codec_wins() {
    let mut rig = Rig::new(1, &[("compression.type", "lz4")]);
    rig.produce(0, batch(&["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]));
    let entry = rig.fetch_entry(0, 0);
    let fetched = bytes_of(&rig.collect(entry));
    assert_eq!(
        corelog_wire::batch::BatchHeader::parse(&fetched)
            .unwrap()
            .codec(),
        Some(Codec::Lz4)
    );
}

#[test]
fn p2_zstd_needs_version_7() {
    let mut rig = Rig::one();
    let zstd = build(BatchBuilder::new(Codec::Zstd), &["a"]);
    let mut part = rig.produce_part(0, Acks::All, zstd.clone());
    if let Part::Produce(produce) = &mut part {
        produce.zstd = false;
    }
    let Reply::Produce(produced) = rig.shard.ask(part) else {
        panic!("another reply")
    };
    assert_eq!(produced[0].code, ErrorCode::UNSUPPORTED_COMPRESSION_TYPE);
    assert_eq!(outcome(&rig.produce(0, zstd)), (NONE, 0));
}

#[test]
fn step_8_a_batch_larger_than_a_segment_is_refused() {
    let mut rig = Rig::new(
        1,
        &[
            ("segment.bytes", "1048576"),
            ("max.message.bytes", "2000000"),
        ],
    );
    let large = "x".repeat(1_100_000);
    assert_eq!(
        rig.produce(0, batch(&[&large])).code,
        ErrorCode::RECORD_LIST_TOO_LARGE
    );
}

#[test]
fn step_1_min_isr_counts_at_most_the_replicas() {
    let mut rig = Rig::new(1, &[("min.insync.replicas", "3")]);
    assert_eq!(outcome(&rig.produce(0, batch(&["a"]))), (NONE, 0));
}

#[test]
fn i2_a_duplicate_gets_the_original_offset_and_is_not_appended() {
    let mut rig = Rig::one();
    let first = batch_of((7, 0), 0, &["a", "b"]);
    assert_eq!(outcome(&rig.produce(0, first.clone())), (NONE, 0));
    assert_eq!(outcome(&rig.produce(0, first)), (NONE, 0));
    assert_eq!(
        outcome(&rig.produce(0, batch_of((7, 0), 2, &["c"]))),
        (NONE, 2)
    );
}

#[test]
fn i2_a_duplicate_in_flight_waits_behind_its_original() {
    let mut rig = Rig::one();
    rig.shard.hold = Hold::Everything;
    let records = batch_of((7, 0), 0, &["a"]);
    let original = rig.send(0, Acks::All, records.clone());
    let later = rig.send(0, Acks::All, batch_of((7, 0), 1, &["b"]));
    let duplicate = rig.send(0, Acks::Leader, records);
    assert!(rig.produced(duplicate).is_none());
    rig.shard.hold = Hold::Nothing;
    rig.shard.release();
    for (to, offset) in [(original, 0), (duplicate, 0), (later, 1)] {
        assert_eq!(outcome(&rig.produced(to).unwrap()), (NONE, offset));
    }
}

#[test]
fn i3_i4_i5_epochs_and_sequences_are_checked() {
    let mut rig = Rig::one();
    rig.produce(0, batch_of((7, 1), 0, &["a"]));
    assert_eq!(
        rig.produce(0, batch_of((7, 0), 1, &["b"])).code,
        ErrorCode::INVALID_PRODUCER_EPOCH
    );
    assert_eq!(
        rig.produce(0, batch_of((7, 2), 5, &["b"])).code,
        ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER
    );
    assert_eq!(
        rig.produce(0, batch_of((7, 1), 2, &["b"])).code,
        ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER
    );
    assert_eq!(
        outcome(&rig.produce(0, batch_of((7, 1), 1, &["b"]))),
        (NONE, 1)
    );
    assert_eq!(
        outcome(&rig.produce(0, batch_of((7, 2), 0, &["c"]))),
        (NONE, 2)
    );
}

#[test]
fn step_11_acks_all_times_out_and_the_data_stays() {
    let mut rig = Rig::one();
    rig.shard.hold = Hold::Everything;
    let all = rig.send(0, Acks::All, batch(&["a"]));
    let leader = rig.send(0, Acks::Leader, batch(&["b"]));
    rig.shard.pass_ms(29_999);
    assert!(rig.produced(all).is_none());
    rig.shard.pass_ms(1);
    assert_eq!(
        outcome(&rig.produced(all).unwrap()),
        (ErrorCode::REQUEST_TIMED_OUT, -1)
    );
    assert!(rig.produced(leader).is_none());
    rig.shard.hold = Hold::Nothing;
    rig.shard.release();
    assert!(rig.produced(all).is_none(), "a part has one answer");
    assert_eq!(outcome(&rig.produced(leader).unwrap()), (NONE, 1));
}

#[test]
fn step_12_a_failed_write_is_a_storage_error_and_the_directory_is_reported_once() {
    let mut rig = Rig::new(1, &[]);
    rig.shard.failing = true;
    let produced = rig.produce(0, batch(&["a"]));
    assert_eq!(outcome(&produced), (ErrorCode::KAFKA_STORAGE_ERROR, -1));
    assert_eq!(rig.shard.failed_dirs, [rig.partitions[0].id]);
    assert_eq!(
        rig.produce(0, batch(&["a"])).code,
        ErrorCode::KAFKA_STORAGE_ERROR
    );
    assert_eq!(rig.shard.failed_dirs.len(), 1);
}

#[test]
fn one_request_of_several_partitions_has_one_answer_in_its_order() {
    let mut rig = Rig::new(2, &[]);
    rig.shard.hold = Hold::Everything;
    let entry = |at: u32, partition| ProduceEntry {
        at,
        partition,
        records: Some(batch(&["a"])),
    };
    let unknown = PartitionRef {
        id: crate::base::ids::TopicPartition {
            partition: 9,
            ..rig.partitions[0].id
        },
        ..rig.partitions[0]
    };
    let entries = smallvec::smallvec![
        entry(4, rig.partitions[1]),
        entry(5, unknown),
        entry(6, rig.partitions[0])
    ];
    let to = rig.shard.part(Part::Produce(Produce {
        acks: Acks::All,
        timeout_ms: 1000,
        zstd: true,
        entries,
    }));
    assert!(rig.shard.reply(to).is_none());
    rig.shard.release();
    let Some(Reply::Produce(produced)) = rig.shard.reply(to) else {
        panic!("another reply")
    };
    let codes: Vec<_> = produced
        .iter()
        .map(|produced| (produced.at, produced.code))
        .collect();
    assert_eq!(
        codes,
        [
            (4, NONE),
            (5, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
            (6, NONE)
        ]
    );
}

#[test]
fn a_cancelled_produce_is_appended_and_not_answered() {
    let mut rig = Rig::one();
    rig.shard.hold = Hold::Everything;
    let to = rig.send(0, Acks::All, batch(&["a"]));
    rig.shard.on(Event::Cancelled { to });
    rig.shard.hold = Hold::Nothing;
    rig.shard.release();
    assert!(rig.produced(to).is_none());
    assert_eq!(outcome(&rig.produce(0, batch(&["b"]))), (NONE, 1));
}

#[test]
fn internal_appends_are_committed_like_acks_all_and_read_back() {
    use crate::partition::internal::InternalDone;
    let mut rig = Rig::one();
    rig.follow(0);
    let id = rig.partitions[0].id;
    let mut out = crate::effect::Outbox::new();
    let now = rig.shard.now;
    let partitions = rig.shard.shard.partitions_mut();
    assert_eq!(
        partitions.append_internal(now, id, batch(&["a"]), 5, &mut out),
        Ok(0)
    );
    assert!(
        partitions.take_internal().is_empty(),
        "nothing is written yet"
    );
    let written: Vec<_> = out.drain().collect();
    for effect in written {
        if let crate::effect::Effect::Write { op, .. } = effect {
            partitions.done(now, op, Ok(crate::event::Done::Written), &mut out);
        }
    }
    let done = partitions.take_internal();
    assert!(
        matches!(
            done[..],
            [InternalDone::Appended {
                ticket: 5,
                result: Ok((0, 1))
            }]
        ),
        "{done:?}"
    );
    partitions.read_internal(now, id, 0, 1000, 6, &mut out);
    let done = partitions.take_internal();
    assert!(
        matches!(&done[..], [InternalDone::Read { ticket: 6, result: Ok(records) }] if !records.is_empty()),
        "{done:?}"
    );
}
