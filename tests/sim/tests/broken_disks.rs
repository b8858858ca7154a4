//! The simulator can fail: a disk that breaks its promises is found out, and an honest one is not.

use corelog_sim::device::Lie;
use corelog_sim::run::{Length, run, run_twice};

const LENGTH: Length = Length { events: 6_000 };

/// What the first of some seeds finds wrong with such a disk.
fn found(lie: Lie) -> String {
    let mut failures = (1..20).filter_map(|seed| run(seed, LENGTH, Some(lie)).err());
    failures
        .next()
        .map_or_else(String::new, |failure| failure.0)
}

#[test]
fn honest_disks_are_believed_and_runs_repeat() {
    for seed in 1..4 {
        let summary = run_twice(seed, LENGTH);
        let acknowledged = summary.map(|summary| summary.acknowledged);
        assert!(
            acknowledged.as_ref().is_ok_and(|batches| *batches > 20),
            "{acknowledged:?}"
        );
    }
}

#[test]
fn a_disk_that_reports_writes_before_they_happen_is_found_out() {
    let why = found(Lie::EarlyWrites);
    assert!(why.contains("is said to be written"), "{why:?}");
}

#[test]
fn a_disk_whose_syncs_do_nothing_is_found_out() {
    let why = found(Lie::IdleSyncs);
    assert!(
        why.contains("a power cut would take it")
            || why.contains("after any crash")
            || why.contains("that were acknowledged"),
        "{why:?}"
    );
}

#[test]
fn a_disk_that_writes_something_else_is_found_out() {
    let why = found(Lie::WrongBytes);
    assert!(why.contains("is not on the disk"), "{why:?}");
}
