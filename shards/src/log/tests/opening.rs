//! Opening directories: Kafka's own after a clean stop, and damaged ones.

use std::collections::BTreeMap;

use super::disk::{Disk, id_of};
use super::golden::{golden, partition};
use super::rig::*;
use crate::base::ids::FileKind;
use crate::log::*;
use crate::metadata::TopicConfig;
use corelog_wire::batch::{BatchHeader, RecordIter, RecordRef, decoded_records};

const LONG: ReadRequest = ReadRequest {
    offset: 0,
    bound: i64::MAX,
    max_bytes: u32::MAX,
    at_least_one: true,
};

fn config_of(name: &str) -> TopicConfig {
    let mut config = TopicConfig::default();
    if name == "rolled-0" {
        config.segment_bytes = 1 << 20;
        config.index_interval_bytes = 1024;
    }
    config
}

fn disk_of(files: &BTreeMap<String, Vec<u8>>) -> Disk {
    let mut disk = Disk::default();
    for (name, data) in files.iter().filter(|(name, _)| *name != "quorum-state") {
        disk.put(id_of(name), data);
    }
    disk
}

fn contents(disk: &Disk) -> BTreeMap<crate::base::ids::FileId, Vec<u8>> {
    disk.files
        .iter()
        .map(|(id, file)| (*id, file.data.clone()))
        .collect()
}

/// Partition directories, with the log end that Kafka's checkpoint gives.
fn partitions() -> Vec<(String, i64)> {
    let golden = golden();
    let text = std::str::from_utf8(&golden["recovery-point-offset-checkpoint"]).unwrap();
    let lines = checkpoint_format::parse_offsets(text).unwrap();
    assert_eq!(lines.len(), 28);
    lines
        .into_iter()
        .map(|line| (format!("{}-{}", line.topic, line.partition), line.offset))
        .collect()
}

/// Reads everything from disk.
fn read_all(rig: &mut Rig) -> Vec<u8> {
    let mut all = Vec::new();
    let mut offset = rig.log.log_start();
    while offset < rig.log.log_end() {
        let bytes = rig.read(ReadRequest { offset, ..LONG });
        let Some(last) = batches(&bytes).pop() else {
            break;
        };
        offset = BatchHeader::parse(&last).unwrap().last_offset() + 1;
        all.extend(bytes);
    }
    all
}

fn logs_of(files: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    let logs = files
        .iter()
        .filter(|(name, _)| name.strip_suffix(".log").is_some());
    logs.flat_map(|(_, data)| data.clone()).collect()
}

#[test]
fn every_directory_of_kafkas_opens_and_is_left_as_it_was() {
    for (name, end) in partitions() {
        let files = partition(&name);
        let disk = disk_of(&files);
        let before = contents(&disk);
        let mut rig = Rig::open(disk, &config_of(&name), How::after(Shutdown::Clean, end)).unwrap();
        assert_eq!(rig.log.log_end(), end, "{name}");
        assert_eq!(rig.log.checkpoint(end).recovery_point, end, "{name}");
        assert!(read_all(&mut rig) == logs_of(&files), "{name}");
        rig.stop();
        assert!(contents(&rig.disk) == before, "{name}");
    }
}

#[test]
fn rebuilding_everything_gives_the_files_of_kafka() {
    for (name, end) in partitions() {
        for shutdown in [Shutdown::Crashed, Shutdown::CrashedElsewhere] {
            let mut disk = disk_of(&partition(&name));
            let before = contents(&disk);
            disk.files
                .retain(|id, _| matches!(id.kind, FileKind::Log | FileKind::PartitionMetadata));
            let mut rig = Rig::open(disk, &config_of(&name), How::after(shutdown, 0)).unwrap();
            assert_eq!(rig.log.log_end(), end, "{name}");
            rig.stop();
            for (id, expected) in &before {
                // Kafka snapshots at each roll; and knows epochs whose first record is gone or never was.
                let is_extra = (id.kind == FileKind::ProducerSnapshot && id.base != end)
                    || (id.kind == FileKind::LeaderEpochs
                        && (end == 0 || ["compacted-0", "trimmed-0"].contains(&&name[..])));
                let ours = rig.disk.files.get(id).map(|file| &file.data);
                assert!(is_extra || ours == Some(expected), "{name}: {id:?}");
            }
        }
    }
}

#[test]
fn transactions_of_kafka_are_read_as_kafka_reads_them() {
    let files = partition("txn-0");
    let mut without_index = files.clone();
    without_index.remove("00000000000000000000.txnindex");
    without_index.remove("00000000000000000029.snapshot");
    for (files, shutdown) in [
        (files, Shutdown::Clean),
        (without_index, Shutdown::CrashedElsewhere),
    ] {
        let rig = Rig::open(
            disk_of(&files),
            &TopicConfig::default(),
            How::after(shutdown, 29),
        )
        .unwrap();
        assert_eq!(rig.log.log_end(), 29);
        assert_eq!(rig.log.last_stable_offset(29), 29);
        let aborted = rig.log.aborted_transactions(0, 29);
        let first_offsets: Vec<i64> = aborted.iter().map(|(_, first)| *first).collect();
        // 10 committed, marker, 5 aborted, marker, 7 committed, marker, 3 aborted, marker
        assert_eq!(first_offsets, [11, 25]);
        assert_eq!(rig.log.aborted_transactions(17, 25), []);
        let producers = rig.log.producers();
        assert_eq!(producers.len(), 1);
        assert_eq!(producers[0].current_txn_start_offset, -1);
    }
}

#[test]
fn a_trimmed_log_starts_where_it_was_trimmed() {
    let how = How {
        log_start: 20,
        ..How::after(Shutdown::Clean, 50)
    };
    let rig = Rig::open(
        disk_of(&partition("trimmed-0")),
        &TopicConfig::default(),
        how,
    )
    .unwrap();
    assert_eq!((rig.log.log_start(), rig.log.log_end()), (20, 50));
    let checkpoint = rig.log.checkpoint(50);
    assert_eq!(
        (checkpoint.log_start_offset, checkpoint.first_segment_base),
        (20, 0)
    );
    assert_eq!(rig.log.epoch_of(19), -1);
    assert_eq!(rig.log.epoch_of(20), 0);
}

#[test]
fn a_log_that_ends_below_its_start_begins_anew() {
    let how = How {
        log_start: 60,
        ..How::after(Shutdown::Crashed, 50)
    };
    let mut rig = Rig::open(
        disk_of(&partition("trimmed-0")),
        &TopicConfig::default(),
        how,
    )
    .unwrap();
    assert_eq!((rig.log.log_start(), rig.log.log_end()), (60, 60));
    assert_eq!(rig.disk.get(FileKind::Log, 0), None);
    assert!(rig.log.producers().is_empty());
    rig.log.begin_epoch(7, &mut rig.out);
    rig.run();
    assert_eq!(rig.log.epoch_end(7), (7, 60));
}

#[test]
fn a_log_goes_on_where_it_stopped() {
    let files = partition("rolled-0");
    let config = config_of("rolled-0");
    let mut rig = Rig::open(disk_of(&files), &config, How::after(Shutdown::Clean, 3000)).unwrap();
    let all = logs_of(&files);
    let again = unsent(batches(&all).last().unwrap(), Origin::Client);
    assert!(matches!(
        rig.try_append(&again),
        Err(AppendRefused::Duplicate {
            last_offset: 2999,
            ..
        })
    ));
    let mut next = again;
    next.header.base_sequence = next.header.last_sequence() + 1;
    let appended = rig.try_append(&next).unwrap();
    assert_eq!(appended.base_offset, 3000);
    rig.stop();
    let rig = Rig::open(rig.disk, &config, How::after(Shutdown::Clean, appended.end)).unwrap();
    assert_eq!(rig.log.log_end(), appended.end);
}

#[test]
fn the_log_is_cut_at_the_first_bad_byte_and_later_segments_go() {
    let files = partition("rolled-0");
    let whole = logs_of(&files);
    let config = config_of("rolled-0");
    for shutdown in [Shutdown::Crashed, Shutdown::CrashedElsewhere] {
        let mut disk = disk_of(&files);
        let log = &mut disk
            .files
            .get_mut(&id_of("00000000000000001140.log"))
            .unwrap()
            .data;
        log[500_000] ^= 1;
        let mut rig = Rig::open(disk, &config, How::after(shutdown, 1200)).unwrap();
        let end = rig.log.log_end();
        let kept = 1_043_214 + 500_000 / 9151 * 9151;
        assert_eq!(end, (kept / 9151 * 10) as i64);
        assert!(read_all(&mut rig) == whole[..kept]);
        assert_eq!(rig.disk.get(FileKind::Log, 2280), None);
        assert_eq!(rig.disk.get(FileKind::TimeIndex, 2280), None);
        assert_eq!(rig.log.producers()[0].last_sequence as i64 + 1, end);
    }
}

#[test]
fn what_a_crash_left_below_the_recovery_point_is_not_read_again() {
    let files = partition("rolled-0");
    let mut disk = disk_of(&files);
    // Damage that a scan of the whole segment would find.
    disk.files
        .get_mut(&id_of("00000000000000002280.log"))
        .unwrap()
        .data[100] ^= 1;
    let config = config_of("rolled-0");
    let rig = Rig::open(disk.clone(), &config, How::after(Shutdown::Crashed, 2990)).unwrap();
    assert_eq!(rig.log.log_end(), 3000);
    let rig = Rig::open(disk, &config, How::after(Shutdown::CrashedElsewhere, 2990)).unwrap();
    assert_eq!(rig.log.log_end(), 2280);
}

#[test]
fn an_index_above_the_recovery_point_is_not_trusted() {
    let mut disk = disk_of(&partition("rolled-0"));
    disk.files
        .get_mut(&id_of("00000000000000002280.log"))
        .unwrap()
        .data[100] ^= 1;
    let how = How::after(Shutdown::Crashed, 2280);
    let rig = Rig::open(disk, &config_of("rolled-0"), how).unwrap();
    assert_eq!(rig.log.log_end(), 2280);
}

#[test]
fn a_clean_directory_is_never_cut() {
    let mut files = partition("codecs-0");
    files
        .get_mut("00000000000000000000.log")
        .unwrap()
        .extend_from_slice(&[0; 100]);
    let opened = Rig::open(
        disk_of(&files),
        &TopicConfig::default(),
        How::after(Shutdown::Clean, 100),
    );
    let failure = opened.err().unwrap();
    assert!(
        failure.reason.contains("position 8951"),
        "{}",
        failure.reason
    );
}

#[test]
fn a_log_is_cut_back_to_an_offset() {
    let files = partition("rolled-0");
    let whole = logs_of(&files);
    for (to, end) in [
        (2999, 2990),
        (2990, 2990),
        (1140, 1140),
        (5, 0),
        (0, 0),
        (9999, 3000),
    ] {
        let how = How {
            truncate_to: Some(to),
            ..How::after(Shutdown::Clean, 3000)
        };
        let mut rig = Rig::open(disk_of(&files), &config_of("rolled-0"), how).unwrap();
        assert_eq!(rig.log.log_end(), end, "to {to}");
        assert!(
            read_all(&mut rig) == whole[..end as usize / 10 * 9151],
            "to {to}"
        );
        let sequence = rig
            .log
            .producers()
            .first()
            .map_or(0, |producer| producer.last_sequence + 1);
        assert_eq!(i64::from(sequence), end, "to {to}");
    }
}

#[test]
fn leftovers_of_deletion_and_of_the_cleaner_go() {
    let files = partition("codecs-0");
    let entry = |name: &str, len: usize| DirEntry {
        name: name.to_owned(),
        len: len as u64,
        modified_ms: 0,
    };
    let log = files["00000000000000000000.log"].clone();
    let listed = vec![
        entry("00000000000000000000.log", 0),
        entry("00000000000000000000.log.swap", log.len()),
        entry("00000000000000000000.index.swap", 0),
        entry("00000000000000000050.log", 10),
        entry("00000000000000000050.index", 0),
        entry("00000000000000000200.log.cleaned", 5),
        entry("00000000000000000300.log.swap", 5),
        entry("00000000000000000400.index", 0),
        entry("00000000000000000000.timeindex.deleted", 0),
    ];
    let mut orders = Vec::new();
    let input = RecoveryInput {
        id: ID,
        slot: 0,
        files: listed,
        shutdown: Shutdown::Clean,
        recovery_point: 100,
        log_start: 0,
        truncate_to: None,
        config: std::sync::Arc::new(TopicConfig::default()),
        now: now(),
    };
    let opened = recover(input, &mut |order| {
        let bytes = match &order {
            DiskOrder::Read { position, len, .. } => {
                let end = (position + len).min(log.len() as u64);
                log[*position as usize..end as usize].to_vec()
            }
            _ => Vec::new(),
        };
        orders.push(order);
        Ok(bytes.into())
    });
    assert_eq!(opened.unwrap().log_end(), 100);
    let deleted: Vec<&str> = orders
        .iter()
        .filter_map(|order| match order {
            DiskOrder::Delete { name } => Some(name.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(
        deleted,
        [
            "00000000000000000000.timeindex.deleted",
            "00000000000000000300.log.swap",
            "00000000000000000200.log.cleaned",
            "00000000000000000000.log",
            "00000000000000000050.index",
            "00000000000000000050.log",
            "00000000000000000400.index",
        ]
    );
    let renamed = |order: &&DiskOrder| matches!(order, DiskOrder::Rename { .. });
    assert_eq!(orders.iter().filter(renamed).count(), 2);
}

#[test]
fn a_malformed_epoch_checkpoint_is_an_error() {
    let mut files = partition("codecs-0");
    files.insert(
        "leader-epoch-checkpoint".to_owned(),
        b"0\n2\n0 0\n".to_vec(),
    );
    let opened = Rig::open(
        disk_of(&files),
        &TopicConfig::default(),
        How::after(Shutdown::Clean, 100),
    );
    assert!(opened.err().unwrap().reason.contains("line 4"));
}

fn find(rig: &mut Rig, target: TimeTarget, bound: i64) -> Option<TimeOffset> {
    match rig
        .log
        .find_by_time(target, bound, 9, &rig.tail, &mut rig.out)
    {
        TimeOutcome::Ready(found) => found,
        TimeOutcome::Pending => match rig.run().remove(0) {
            (9, Finished::Time(Ok(found))) => found,
            other => panic!("{other:?}"),
        },
        TimeOutcome::Offline => panic!("the disk is fine"),
    }
}

#[test]
fn records_of_every_codec_are_found_by_time() {
    const FIRST: i64 = 1_700_000_000_000;
    for name in ["codecs-0", "codecs-1", "codecs-2", "codecs-3", "codecs-4"] {
        let disk = disk_of(&partition(name));
        let how = How::after(Shutdown::Clean, 100);
        let mut rig = Rig::open(disk, &TopicConfig::default(), how).unwrap();
        for offset in 0..100 {
            let expected = TimeOffset {
                offset,
                timestamp: FIRST + offset,
                leader_epoch: 0,
            };
            let found = find(&mut rig, TimeTarget::AtOrAfter(FIRST + offset), 100);
            assert_eq!(found, Some(expected), "{name}");
        }
        let last = find(&mut rig, TimeTarget::Largest, 100).unwrap();
        assert_eq!((last.offset, last.timestamp), (99, FIRST + 99));
        assert_eq!(
            find(&mut rig, TimeTarget::AtOrAfter(FIRST + 100), 100),
            None
        );
        // Nothing at or above the bound, nothing below the start.
        assert_eq!(find(&mut rig, TimeTarget::AtOrAfter(FIRST + 50), 50), None);
        rig.log.advance_log_start(30, &mut rig.out);
        rig.run();
        assert_eq!(
            find(&mut rig, TimeTarget::AtOrAfter(0), 100)
                .unwrap()
                .offset,
            30
        );
    }
}

/// (offset, timestamp) of the first record that is as late, by reading them all.
fn first_record(batch: &bytes::Bytes, timestamp: i64) -> (i64, i64) {
    let header = BatchHeader::parse(batch).unwrap();
    let records = decoded_records(&header, batch, 1 << 20).unwrap();
    let all = RecordIter::new(&records, header.record_count as usize).map(Result::unwrap);
    let placed = |record: RecordRef<'_>| {
        let offset = header.base_offset + i64::from(record.offset_delta);
        (offset, header.base_timestamp + record.timestamp_delta)
    };
    all.map(placed)
        .find(|(_, found)| *found >= timestamp)
        .unwrap()
}

#[test]
fn a_search_by_time_finds_what_reading_all_batches_finds() {
    let files = partition("rolled-0");
    let all = batches(&logs_of(&files));
    let how = How::after(Shutdown::Clean, 3000);
    let mut rig = Rig::open(disk_of(&files), &config_of("rolled-0"), how).unwrap();
    let header = |batch: &bytes::Bytes| BatchHeader::parse(batch).unwrap();
    let largest = all
        .iter()
        .map(|batch| header(batch).max_timestamp)
        .max()
        .unwrap();
    let smallest = header(&all[0]).base_timestamp;
    let step = ((largest - smallest) / 50).max(1);
    for timestamp in (smallest..=largest).step_by(step as usize) {
        let first = all
            .iter()
            .find(|batch| header(batch).max_timestamp >= timestamp)
            .unwrap();
        let expected = first_record(first, timestamp);
        let found = find(&mut rig, TimeTarget::AtOrAfter(timestamp), 3000).unwrap();
        assert_eq!((found.offset, found.timestamp), expected);
    }
    assert_eq!(
        find(&mut rig, TimeTarget::Largest, 3000).unwrap().timestamp,
        largest
    );
}
