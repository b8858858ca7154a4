//! Append, read, completions, failures.

use corelog_wire::batch::BatchHeader;

use super::rig::*;
use crate::base::ids::FileKind;
use crate::base::time::Mono;
use crate::effect::Effect;
use crate::log::*;
use crate::metadata::TopicConfig;

fn request(offset: i64, bound: i64, max_bytes: u32) -> ReadRequest {
    ReadRequest {
        offset,
        bound,
        max_bytes,
        at_least_one: true,
    }
}

/// A rig with the batches of a rolled log of Kafka's, written but not stopped, and all its bytes.
fn rolled() -> (Rig, Vec<u8>) {
    rolled_within(1 << 20)
}

fn rolled_within(budget: usize) -> (Rig, Vec<u8>) {
    let mut rig = Rig::new(TopicConfig {
        segment_bytes: 1 << 20,
        index_interval_bytes: 1024,
        ..TopicConfig::default()
    });
    rig.tail.set_budget(budget);
    let mut all = Vec::new();
    for (_, log) in super::golden::partition("rolled-0")
        .iter()
        .filter(|(name, _)| name.strip_suffix(".log").is_some())
    {
        all.extend_from_slice(log);
        for batch in batches(log) {
            rig.try_append(&unsent(&batch, Origin::Client)).unwrap();
        }
    }
    rig.run();
    (rig, all)
}

#[test]
fn a_reader_gets_the_same_bytes_from_memory_and_from_disk() {
    let (mut rig, all) = rolled();
    let end = rig.log.log_end();
    for max_bytes in [1, 20_000, 300_000, 10_000_000] {
        for budget in [0, 500_000, 10 << 20] {
            let (mut offset, mut read) = (0, Vec::new());
            rig.tail.set_budget(budget);
            while offset < end {
                let bytes = rig.read(request(offset, end, max_bytes));
                offset = BatchHeader::parse(batches(&bytes).last().unwrap())
                    .unwrap()
                    .last_offset()
                    + 1;
                read.extend(bytes);
            }
            assert!(read == all, "max_bytes {max_bytes}, budget {budget}");
        }
    }
}

#[test]
fn only_what_somebody_reads_is_kept_in_memory() {
    let (_, all) = rolled();
    let batch = unsent(&batches(&all)[0], Origin::Controller);
    let mut rig = Rig::new(TopicConfig::default());
    rig.log.followed_until = Mono(0);
    rig.try_append(&batch).unwrap();
    rig.run();
    assert_eq!(rig.tail.used_bytes(), 0);
    let passed = rig.read(request(0, 10, 1 << 20));
    assert_eq!(batches(&passed).len(), 1);

    rig.log.follow(rig.now);
    let mut next = unsent(&batches(&all)[1], Origin::Controller);
    next.header.producer_id = -1;
    rig.try_append(&next).unwrap();
    assert_eq!(rig.tail.used_bytes(), next.bytes.len());
    // The one on disk and the one in memory, once each.
    rig.run();
    let both = rig.read(request(0, 20, 1 << 20));
    assert_eq!(both[..passed.len()], passed);
    assert_eq!(batches(&both).len(), 2);

    rig.now.mono = rig.now.mono.after_ms(limits::FOLLOWED_MS);
    rig.try_append(&next).unwrap();
    assert_eq!(rig.tail.used_bytes(), 0);
}

#[test]
fn every_offset_leads_to_its_batch_and_the_bound_holds() {
    let (mut rig, _) = rolled();
    rig.tail.set_budget(0);
    for offset in (0..3000).step_by(7) {
        let bytes = rig.read(request(offset, offset + 1, 1 << 20));
        let found = batches(&bytes);
        let header = BatchHeader::parse(&found[0]).unwrap();
        assert!(header.base_offset <= offset && offset <= header.last_offset());
        assert_eq!(found.len(), 1, "offset {offset}");
    }
}

#[test]
fn a_batch_that_does_not_fit_is_given_only_to_who_may_have_one_anyway() {
    let (mut rig, _) = rolled();
    for budget in [10 << 20, 0] {
        rig.tail.set_budget(budget);
        let mut small = request(2995, 3000, 100);
        assert_eq!(batches(&rig.read(small)).len(), 1);
        small.at_least_one = false;
        assert_eq!(rig.read(small), []);
    }
}

#[test]
fn offsets_outside_the_log_are_out_of_range() {
    let (mut rig, _) = rolled();
    let read = |rig: &mut Rig, offset| {
        rig.log
            .read(request(offset, 3000, 100), 1, &rig.tail, &mut rig.out)
    };
    assert!(matches!(read(&mut rig, 3001), ReadOutcome::OutOfRange));
    assert!(matches!(read(&mut rig, -1), ReadOutcome::OutOfRange));
    assert!(matches!(read(&mut rig, 3000), ReadOutcome::Ready(chunks) if chunks.is_empty()));
    rig.log.advance_log_start(5, &mut rig.out);
    assert!(matches!(read(&mut rig, 4), ReadOutcome::OutOfRange));
}

#[test]
fn what_is_not_written_is_not_read_from_disk() {
    let (mut rig, _) = rolled();
    let batch = batches(rig.disk.get(FileKind::Log, 2280).unwrap())
        .pop()
        .unwrap();
    let mut again = unsent(&batch, Origin::Controller);
    again.header.producer_id = -1;
    rig.tail.set_budget(0);
    rig.try_append(&again).unwrap();
    rig.collect();
    assert_eq!((rig.log.written_end(), rig.log.log_end()), (3000, 3010));
    let outcome = rig
        .log
        .read(request(3000, 3010, 100), 1, &rig.tail, &mut rig.out);
    assert!(matches!(outcome, ReadOutcome::Pending));
    rig.collect();
    let reads = rig.carry_out(1).reads;
    assert!(matches!(&reads[0], (1, Finished::Read(Ok(chunks))) if chunks.is_empty()));
}

#[test]
fn a_duplicate_gets_the_original_offsets() {
    let (mut rig, all) = rolled();
    let last = unsent(batches(&all).last().unwrap(), Origin::Client);
    let refused = rig.try_append(&last).unwrap_err();
    assert!(matches!(
        refused,
        AppendRefused::Duplicate {
            last_offset: 2999,
            ..
        }
    ));
    assert_eq!(rig.log.log_end(), 3000);
}

#[test]
fn a_failed_write_takes_the_log_offline_once() {
    let (mut rig, all) = rolled();
    let mut batch = unsent(&batches(&all)[0], Origin::Controller);
    batch.header.producer_id = -1;
    rig.try_append(&batch).unwrap();
    rig.try_append(&batch).unwrap();
    rig.tail.set_budget(0);
    rig.collect();
    assert!(matches!(
        rig.log
            .read(request(0, 10, 100), 5, &rig.tail, &mut rig.out),
        ReadOutcome::Pending
    ));
    let progress = rig.fail(0);
    assert!(progress.failed);
    assert!(matches!(
        progress.reads[0],
        (5, Finished::Read(Err(ReadFailed::Storage)))
    ));
    assert!(!rig.fail(0).failed);
    assert_eq!(rig.log.written_end(), 3000);
    assert!(matches!(
        rig.try_append(&batch),
        Err(AppendRefused::Offline)
    ));
    assert!(rig.log.is_stopped());
}

#[test]
fn flush_messages_syncs_with_the_batch_that_reaches_it() {
    let mut rig = Rig::new(TopicConfig {
        flush_messages: 15,
        ..TopicConfig::default()
    });
    let golden = super::golden::partition("rolled-0");
    let all = batches(&golden["00000000000000000000.log"]);
    let first = rig.try_append(&unsent(&all[0], Origin::Client)).unwrap();
    assert_eq!(first.ack_after, AckAfter::Written);
    rig.collect();
    assert!(
        !rig.waiting
            .iter()
            .any(|effect| matches!(effect, Effect::Sync { .. }))
    );
    let second = rig.try_append(&unsent(&all[1], Origin::Client)).unwrap();
    assert_eq!(second.ack_after, AckAfter::Synced);
    rig.run();
    assert_eq!(rig.log.synced_end(), second.end);
}

#[test]
fn available_counts_the_bytes_up_to_the_bound() {
    let (mut rig, all) = rolled_within(10 << 20);
    let of = |rig: &Rig, offset, bound, max| rig.log.available(offset, bound, max, &rig.tail).bytes;
    let batch = 9151;
    assert_eq!(of(&rig, 2990, 2990, 1 << 20), 0);
    assert_eq!(of(&rig, 0, 3000, u32::MAX), all.len() as u32);
    assert_eq!(of(&rig, 0, 10, u32::MAX), batch);
    assert_eq!(of(&rig, 0, 3000, 100), 100);
    rig.tail.set_budget(0);
    assert_eq!(of(&rig, 0, 3000, u32::MAX), all.len() as u32);
    let estimate = of(&rig, 2400, 2700, u32::MAX);
    assert!(estimate > 0 && estimate < 60 * batch);
    assert!(rig.log.available(0, 3000, 100, &rig.tail).older_segment);
    assert!(!rig.log.available(2280, 3000, 100, &rig.tail).older_segment);
}

#[test]
fn an_idle_log_is_small_and_asks_for_nothing() {
    let rig = Rig::new(TopicConfig::default());
    assert!(size_of::<Log>() < 1024, "{}", size_of::<Log>());
    assert_eq!(rig.log.next_deadline(), None);
    let (mut rig, all) = rolled();
    // The rolls have settled everything; only the producers' expiry is left.
    assert_eq!(rig.log.checkpoint(3000).recovery_point, 3000);
    let due = |rig: &Rig| rig.log.next_deadline().unwrap().ms_since(now().mono);
    assert_eq!(due(&rig), rig.log.config().producer_check_ms);
    let mut batch = unsent(&batches(&all)[0], Origin::Controller);
    batch.header.producer_id = -1;
    rig.try_append(&batch).unwrap();
    rig.run();
    assert_eq!(due(&rig), limits::RECOVERY_POINT_MS);
    assert_eq!(rig.log.checkpoint(3000).recovery_point, 3000);
    rig.now.mono = rig.log.next_deadline().unwrap();
    rig.log.tick(rig.now, &mut rig.out);
    rig.run();
    assert_eq!(rig.log.checkpoint(3000).recovery_point, 3010);
}
