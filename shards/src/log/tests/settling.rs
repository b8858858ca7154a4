//! The background recovery point.

use super::rig::*;
use crate::base::ids::FileKind;
use crate::effect::Effect;
use crate::log::*;
use crate::metadata::TopicConfig;

/// A rig with small segments, and some batches for it.
fn small() -> (Rig, Vec<AppendBatch>) {
    let rig = Rig::new(TopicConfig {
        segment_bytes: 20_000,
        index_interval_bytes: 1024,
        ..TopicConfig::default()
    });
    let log = &super::golden::partition("rolled-0")["00000000000000000000.log"];
    let sent = batches(log)
        .iter()
        .map(|batch| unsent(batch, Origin::Client))
        .collect();
    (rig, sent)
}

#[test]
fn a_roll_during_a_round_makes_the_sealed_index_durable_too() {
    let (mut rig, sent) = small();
    rig.try_append(&sent[0]).unwrap();
    rig.try_append(&sent[1]).unwrap();
    rig.now.mono = rig.log.next_deadline().unwrap();
    rig.log.tick(rig.now, &mut rig.out);
    rig.collect();
    // The round waits for its writes; meanwhile the segment that it is about is sealed.
    rig.try_append(&sent[2]).unwrap();
    rig.collect();
    while !rig.waiting.is_empty() {
        rig.carry_out(0);
        rig.disk
            .assert_durable_below(rig.log.checkpoint(0).recovery_point);
    }
    assert_eq!(rig.log.checkpoint(0).recovery_point, 20);
    assert_eq!(rig.disk.segments(), [0, 20]);
}

#[test]
fn indexes_are_synced_only_after_everything_is_written() {
    let (mut rig, sent) = small();
    for batch in &sent[..2] {
        rig.try_append(batch).unwrap();
    }
    rig.now.mono = rig.log.next_deadline().unwrap();
    rig.log.tick(rig.now, &mut rig.out);
    rig.collect();
    let is_index_sync = |effect: &Effect| matches!(effect, Effect::Sync { file, .. } if file.kind == FileKind::OffsetIndex);
    let is_index_write = |effect: &Effect| matches!(effect, Effect::Write { file, .. } if file.kind == FileKind::OffsetIndex);
    assert!(rig.waiting.iter().any(is_index_write));
    while rig
        .waiting
        .iter()
        .any(|effect| matches!(effect, Effect::Write { .. }))
    {
        assert!(!rig.waiting.iter().any(is_index_sync));
        rig.carry_out(0);
    }
    rig.run();
    assert_eq!(rig.log.checkpoint(0).recovery_point, 20);
    assert_eq!(rig.log.synced_end(), 20);
}

#[test]
fn the_last_five_batches_are_known_after_a_crash() {
    let mut rig = Rig::new(TopicConfig::default());
    let (_, sent) = small();
    for (at, batch) in sent[..12].iter().enumerate() {
        rig.try_append(batch).unwrap();
        if at == 5 || at == 10 {
            rig.now.mono = rig.now.mono.after_ms(limits::RECOVERY_POINT_MS);
            rig.log.tick(rig.now, &mut rig.out);
        }
        rig.run();
    }
    let recovery_point = rig.log.checkpoint(0).recovery_point;
    assert_eq!(recovery_point, 110);
    let how = How::after(Shutdown::Crashed, recovery_point);
    let mut rig = Rig::open(rig.disk, &TopicConfig::default(), how).unwrap();
    for (at, batch) in sent[..12].iter().enumerate().skip(7) {
        let base_offset = at as i64 * 10;
        assert!(matches!(
            rig.try_append(batch),
            Err(AppendRefused::Duplicate { base_offset: found, .. }) if found == base_offset
        ));
    }
}

#[test]
fn many_bytes_move_the_recovery_point_without_waiting() {
    let mut rig = Rig::new(TopicConfig::default());
    let (_, mut sent) = small();
    let mut batch = sent.remove(0);
    batch.origin = Origin::Controller;
    batch.header.producer_id = -1;
    let count = limits::RECOVERY_POINT_BYTES / batch.bytes.len() as u64 + 1;
    for _ in 0..count {
        rig.try_append(&batch).unwrap();
    }
    assert_eq!(rig.log.next_deadline(), Some(rig.now.mono));
    rig.log.tick(rig.now, &mut rig.out);
    rig.run();
    assert_eq!(rig.log.checkpoint(0).recovery_point, rig.log.log_end());
}
