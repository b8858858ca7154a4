use super::*;

fn list(rig: &mut Rig, timestamp: i64) -> (ErrorCode, i64, i64, i32) {
    list_with(rig, timestamp, -1)
}

fn list_with(
    rig: &mut Rig,
    timestamp: i64,
    current_leader_epoch: i32,
) -> (ErrorCode, i64, i64, i32) {
    let entry = ListOffset {
        at: 3,
        partition: rig.partitions[0],
        current_leader_epoch,
        isolation: Isolation::ReadUncommitted,
        timestamp,
    };
    let Reply::ListOffsets(listed) = rig.shard.ask(Part::ListOffsets(Box::new(vec![entry]))) else {
        panic!("another reply")
    };
    assert_eq!(listed[0].at, 3);
    (
        listed[0].code,
        listed[0].offset,
        listed[0].timestamp,
        listed[0].leader_epoch,
    )
}

/// Batches at 0 (two records at T), 2 (one record at T).
fn filled() -> Rig {
    let mut rig = Rig::one();
    rig.produce(0, batch(&["a", "b"]));
    rig.produce(0, batch(&["c"]));
    rig
}

const T: i64 = 1_700_000_000_000;
const OK: ErrorCode = ErrorCode::NONE;

#[test]
fn list_offsets_knows_the_special_timestamps() {
    let mut rig = filled();
    assert_eq!(list(&mut rig, -1), (OK, 3, -1, 0));
    assert_eq!(list(&mut rig, -2), (OK, 0, -1, 0));
    assert_eq!(list(&mut rig, -3), (OK, 0, T, 0));
    assert_eq!(list(&mut rig, -4), (OK, 0, -1, 0));
    assert_eq!(list(&mut rig, -5), (OK, -1, -1, -1));
    assert_eq!(list(&mut rig, -7).0, ErrorCode::UNSUPPORTED_VERSION);
}

#[test]
fn list_offsets_finds_the_first_record_at_or_after_a_time() {
    let mut rig = filled();
    assert_eq!(list(&mut rig, 0), (OK, 0, T, 0));
    assert_eq!(list(&mut rig, T), (OK, 0, T, 0));
    assert_eq!(list(&mut rig, T + 1), (OK, -1, -1, -1));
}

#[test]
fn list_offsets_does_not_show_what_is_not_committed() {
    let mut rig = Rig::one();
    rig.shard.hold = Hold::Everything;
    rig.send(0, Acks::Leader, batch(&["a"]));
    assert_eq!(list(&mut rig, -1).1, 0);
    assert_eq!(list(&mut rig, T).1, -1);
}

#[test]
fn list_offsets_checks_the_leader_epoch() {
    let mut rig = filled();
    assert_eq!(
        list_with(&mut rig, -1, 1).0,
        ErrorCode::UNKNOWN_LEADER_EPOCH
    );
}

#[test]
fn epoch_ends_are_those_of_4_4() {
    let mut rig = filled();
    rig.cluster.elect(rig.partitions[0].id);
    rig.shard.image(&rig.cluster);
    for (epoch, end) in [(-1, (-1, -1)), (0, (0, 3)), (1, (1, 3)), (2, (-1, -1))] {
        let entry = EpochEnd {
            at: 0,
            partition: rig.partitions[0],
            current_leader_epoch: 1,
            epoch,
        };
        let Reply::EpochEnd(ended) = rig.shard.ask(Part::EpochEnd(Box::new(vec![entry]))) else {
            panic!("another reply")
        };
        assert_eq!(
            (ended[0].code, (ended[0].epoch, ended[0].end_offset)),
            (OK, end),
            "epoch {epoch}"
        );
    }
}

fn delete(rig: &mut Rig, offset: i64) -> (ErrorCode, i64) {
    let request = DeleteRecords {
        entries: vec![(0, rig.partitions[0], offset)],
    };
    let Reply::DeleteRecords(deleted) = rig.shard.ask(Part::DeleteRecords(Box::new(request)))
    else {
        panic!("another reply")
    };
    (deleted[0].code, deleted[0].low_watermark)
}

#[test]
fn d9_delete_records_moves_the_log_start_up_to_the_watermark() {
    let mut rig = filled();
    assert_eq!(delete(&mut rig, 4), (ErrorCode::OFFSET_OUT_OF_RANGE, -1));
    assert_eq!(delete(&mut rig, -2), (ErrorCode::OFFSET_OUT_OF_RANGE, -1));
    assert_eq!(delete(&mut rig, 2), (OK, 2));
    assert_eq!(
        delete(&mut rig, 1),
        (OK, 2),
        "the log start does not go back"
    );
    assert_eq!(list(&mut rig, -2).1, 2);
    let entry = rig.fetch_entry(0, 1);
    assert_eq!(rig.collect(entry).code, ErrorCode::OFFSET_OUT_OF_RANGE);
    assert_eq!(delete(&mut rig, -1), (OK, 3));
}

#[test]
fn d9_a_fetch_that_waits_below_the_new_start_is_woken() {
    let mut rig = filled();
    let entry = rig.fetch_entry(0, 2);
    let to = rig.shard.part(Rig::peek_part(
        FetchEntry {
            max_bytes: 1 << 20,
            ..entry
        },
        true,
        1 << 19,
    ));
    rig.shard.reply(to).unwrap();
    delete(&mut rig, 3);
    assert!(rig.woken(to).unwrap().immediate);
}

#[test]
fn d15_producers_are_described() {
    let mut rig = Rig::one();
    rig.produce(0, batch_of((7, 2), 0, &["a", "b"]));
    let part = Part::DescribeProducers(Box::new(vec![(0, rig.partitions[0])]));
    let Reply::DescribeProducers(described) = rig.shard.ask(part) else {
        panic!("another reply")
    };
    let producer = &described[0].producers[0];
    assert_eq!(
        (
            producer.producer_id,
            producer.epoch,
            producer.last_sequence,
            producer.current_txn_start_offset
        ),
        (7, 2, 1, -1)
    );
}

#[test]
fn sizes_are_described() {
    let mut rig = Rig::new(2, &[]);
    let records = batch(&["a"]);
    rig.produce(1, records.clone());
    let Reply::DescribeLogs(all) = rig.shard.ask(Part::DescribeLogs(None)) else {
        panic!("another reply")
    };
    let sizes: Vec<_> = all
        .iter()
        .map(|log| (log.log.partition, log.size_bytes, log.log_end))
        .collect();
    assert_eq!(sizes, [(0, 0, 0), (1, records.len() as u64, 1)]);
    let named = vec![rig.partitions[1].id];
    let Reply::DescribeLogs(named) = rig.shard.ask(Part::DescribeLogs(Some(named))) else {
        panic!("another reply")
    };
    assert_eq!(named.len(), 1);
}
