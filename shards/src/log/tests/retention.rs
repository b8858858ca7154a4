//! Retention (L-11 to L-14).

use super::rig::*;
use crate::base::ids::FileKind;
use crate::log::*;
use crate::metadata::{CleanupPolicy, TopicConfig};

/// Six segments of two batches, offsets 0 to 119; timestamps as of the batches.
fn six(config: TopicConfig) -> Rig {
    let mut rig = Rig::new(TopicConfig {
        segment_bytes: 20_000,
        ..config
    });
    let log = &super::golden::partition("rolled-0")["00000000000000000000.log"];
    for batch in &batches(log)[..12] {
        rig.try_append(&unsent(batch, Origin::Client)).unwrap();
    }
    rig.run();
    assert_eq!(rig.log.segment_count(), 6);
    rig
}

fn retain(rig: &mut Rig, high_watermark: i64) -> (i64, u32) {
    rig.log
        .apply_retention(rig.now, high_watermark, &mut rig.out);
    rig.run();
    assert_eq!(rig.disk.segments().len() as u32, rig.log.segment_count());
    (rig.log.log_start(), rig.log.segment_count())
}

fn newest_timestamp(rig: &Rig) -> i64 {
    let log = rig.disk.get(FileKind::Log, 100).unwrap();
    let header = |batch: &bytes::Bytes| corelog_wire::batch::BatchHeader::parse(batch).unwrap();
    batches(log)
        .iter()
        .map(|batch| header(batch).max_timestamp)
        .max()
        .unwrap()
}

#[test]
fn segments_below_the_log_start_go_whatever_the_policy_says() {
    for (delete, compact) in [(true, false), (false, true), (false, false)] {
        let mut rig = six(TopicConfig {
            cleanup_policy: CleanupPolicy { delete, compact },
            retention_ms: -1,
            ..TopicConfig::default()
        });
        rig.log.advance_log_start(45, &mut rig.out);
        assert_eq!(retain(&mut rig, 120), (45, 4));
        assert_eq!(rig.disk.segments(), [40, 60, 80, 100]);
        assert_eq!(rig.disk.get(FileKind::ProducerSnapshot, 20), None);
        assert_eq!(rig.disk.get(FileKind::TimeIndex, 20), None);
        let checkpoint = rig.log.checkpoint(120);
        assert_eq!(
            (checkpoint.log_start_offset, checkpoint.first_segment_base),
            (45, 40)
        );
    }
}

#[test]
fn the_oldest_segments_go_while_the_log_is_larger_by_a_whole_one() {
    let mut rig = six(TopicConfig {
        retention_ms: -1,
        retention_bytes: 50_000,
        ..TopicConfig::default()
    });
    // 6 segments of 18,302 bytes: after 3 are gone, 54,906 are left, too few to delete another.
    assert_eq!(retain(&mut rig, 120), (60, 3));
    assert_eq!(rig.log.size_bytes(), 3 * 18_302);
    assert_eq!(retain(&mut rig, 120), (60, 3));
}

#[test]
fn what_is_not_replicated_stays() {
    let mut rig = six(TopicConfig {
        retention_ms: -1,
        retention_bytes: 0,
        ..TopicConfig::default()
    });
    assert_eq!(retain(&mut rig, 59), (40, 4));
    assert_eq!(retain(&mut rig, 60), (60, 3));
}

#[test]
fn a_log_that_is_too_old_as_a_whole_keeps_one_empty_segment() {
    let mut rig = six(TopicConfig {
        retention_ms: 1000,
        ..TopicConfig::default()
    });
    let newest = newest_timestamp(&rig);
    rig.now.wall_ms = newest + 1001;
    assert_eq!(retain(&mut rig, 120), (120, 1));
    assert_eq!(rig.disk.segments(), [120]);
    assert_eq!((rig.log.size_bytes(), rig.log.log_end()), (0, 120));
    // The producers are still known.
    assert_eq!(rig.log.producers().len(), 1);
    rig.stop();
    let rig = Rig::open(
        rig.disk,
        &TopicConfig::default(),
        How::after(Shutdown::Clean, 120),
    )
    .unwrap();
    assert_eq!((rig.log.log_start(), rig.log.log_end()), (120, 120));
    assert_eq!(rig.log.producers().len(), 1);
}

#[test]
fn timestamps_in_the_future_never_expire() {
    let mut rig = six(TopicConfig {
        retention_ms: 1000,
        ..TopicConfig::default()
    });
    rig.now.wall_ms = newest_timestamp(&rig) - 1_000_000_000;
    assert_eq!(retain(&mut rig, 120), (0, 6));
}

#[test]
fn segments_that_are_not_settled_are_deleted_when_they_are() {
    let mut rig = Rig::new(TopicConfig {
        segment_bytes: 20_000,
        retention_ms: -1,
        retention_bytes: 1,
        ..TopicConfig::default()
    });
    let log = &super::golden::partition("rolled-0")["00000000000000000000.log"];
    for batch in &batches(log)[..4] {
        rig.try_append(&unsent(batch, Origin::Client)).unwrap();
    }
    rig.collect();
    rig.log.apply_retention(rig.now, 40, &mut rig.out);
    assert_eq!((rig.log.segment_count(), rig.log.log_start()), (2, 0));
    rig.run();
    assert_eq!((rig.log.segment_count(), rig.log.log_start()), (1, 20));
    assert_eq!(rig.disk.segments(), [20]);
}

#[test]
fn a_reader_of_a_deleted_segment_is_told_that_its_offset_is_gone() {
    let mut rig = six(TopicConfig::default());
    rig.tail.set_budget(0);
    let request = ReadRequest {
        offset: 5,
        bound: 120,
        max_bytes: 100,
        at_least_one: true,
    };
    assert!(matches!(
        rig.log.read(request, 1, &rig.tail, &mut rig.out),
        ReadOutcome::Pending
    ));
    rig.collect();
    rig.log.advance_log_start(30, &mut rig.out);
    rig.log.apply_retention(rig.now, 120, &mut rig.out);
    assert_eq!(rig.log.segment_count(), 5);
    // The file is gone before the read gets to it.
    let progress = rig.fail(0);
    assert!(!progress.failed && !rig.log.is_failed());
    assert!(matches!(
        progress.reads[..],
        [(1, Finished::Read(Err(ReadFailed::OutOfRange)))]
    ));
}
