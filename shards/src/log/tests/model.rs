//! A log against a list of batches: appends, rolls, retention, reads, stops and crashes, in random order.
//!
//! The disk carries out waiting effects in random order across files, in order within a file. A kill loses what was not carried out, but
//! for a piece of it; a power cut also loses what was not synced, but for a piece of it. After each crash: everything below the end that
//! the log had promised is there, nothing else than the batches that were appended is there, producers are those of the batches.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};
use corelog_wire::batch::{
    BatchBuilder, BatchHeader, HEADER_LEN, NewRecord, checksum, set_base_offset, set_leader_epoch,
};
use corelog_wire::compress::Codec;
use corelog_wire::records::control::ControlRecord;
use corelog_wire::records::data::EndTxnMarker;
use proptest::prelude::*;

use super::disk::{Disk, id_of};
use super::rig::*;
use crate::effect::Effect;
use crate::log::marker::end_marker;
use crate::log::producers::Producers;
use crate::log::*;
use crate::metadata::TopicConfig;
use crate::part::DescribedProducer;

#[derive(Debug, Clone)]
enum Step {
    Append {
        count: i32,
        filler: usize,
        producer: i64,
        retry: bool,
    },
    Transaction {
        producer: i64,
        end: Option<bool>,
    },
    /// Carry out some waiting effects, each chosen by a number.
    Disk(Vec<u16>),
    Read {
        offset: u16,
        max_bytes: u32,
    },
    Tick,
    NewEpoch,
    AdvanceLogStart(u16),
    Retention,
    /// Everything that is replicated becomes too old.
    Expire,
    Stop,
    Kill(Vec<u16>),
    PowerCut(Vec<u16>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let numbers = || prop::collection::vec(any::<u16>(), 0..12);
    let append = (1..20i32, 0..400usize, -1..4i64, prop::bool::weighted(0.1));
    let step = prop_oneof![
        12 => append.prop_map(|(count, filler, producer, retry)| Step::Append { count, filler, producer, retry }),
        5 => (10..13i64, prop::option::weighted(0.4, any::<bool>())).prop_map(|(producer, end)| Step::Transaction { producer, end }),
        8 => numbers().prop_map(Step::Disk),
        4 => (any::<u16>(), 0..3000u32).prop_map(|(offset, max_bytes)| Step::Read { offset, max_bytes }),
        2 => Just(Step::Tick),
        1 => Just(Step::NewEpoch),
        1 => any::<u16>().prop_map(Step::AdvanceLogStart),
        1 => Just(Step::Retention),
        1 => Just(Step::Expire),
        1 => Just(Step::Stop),
        1 => numbers().prop_map(Step::Kill),
        1 => numbers().prop_map(Step::PowerCut),
    ];
    prop::collection::vec(step, 1..80)
}

/// A batch as a producer sends it; its records are filler.
fn batch(count: i32, filler: usize, timestamp: i64, producer: (i64, i32)) -> AppendBatch {
    let mut bytes = BytesMut::new();
    bytes.put_i64(0);
    bytes.put_i32((HEADER_LEN - 12 + filler) as i32);
    bytes.put_i32(-1);
    bytes.put_u8(2);
    bytes.put_u32(0);
    bytes.put_i16(0);
    bytes.put_i32(count - 1);
    bytes.put_i64(timestamp);
    bytes.put_i64(timestamp);
    bytes.put_i64(producer.0);
    bytes.put_i16(if producer.0 < 0 { -1 } else { 0 });
    bytes.put_i32(producer.1);
    bytes.put_i32(count);
    bytes.put_bytes(0xab, filler);
    let crc = checksum(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    let header = BatchHeader::parse(&bytes).unwrap();
    AppendBatch {
        bytes: bytes.freeze(),
        header,
        leader_epoch: 0,
        origin: Origin::Client,
    }
}

struct World {
    rig: Rig,
    config: TopicConfig,
    /// What was appended and is not known to be lost: the batches as they must lie on disk.
    batches: Vec<Bytes>,
    epoch: i32,
    /// Recovery points that a checkpoint file may hold: any that was reported in this run.
    recovery_points: Vec<i64>,
    clock_ms: u64,
}

fn header_of(batch: &Bytes) -> BatchHeader {
    BatchHeader::parse(batch).unwrap()
}

impl World {
    fn new() -> World {
        let config = TopicConfig {
            segment_bytes: 2000,
            index_interval_bytes: 300,
            retention_bytes: 6000,
            file_delete_delay_ms: 0,
            retention_ms: -1,
            ..TopicConfig::default()
        };
        let mut rig = Rig::new(config.clone());
        // What `CreateLog` makes.
        for suffix in ["log", "index", "timeindex"] {
            rig.disk.put(id_of(&format!("{:020}.{suffix}", 0)), &[]);
        }
        World {
            rig,
            config,
            batches: Vec::new(),
            epoch: 0,
            recovery_points: vec![0],
            clock_ms: 0,
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Append {
                count,
                filler,
                producer,
                retry,
            } => self.append(*count, *filler, *producer, *retry),
            Step::Transaction { producer, end } => self.transaction(*producer, *end),
            Step::Disk(choices) => self.disk(choices),
            Step::Read { offset, max_bytes } => self.read(*offset, *max_bytes),
            Step::Tick => self.tick(),
            Step::NewEpoch => {
                self.epoch += 1;
                self.rig.log.begin_epoch(self.epoch, &mut self.rig.out);
            }
            Step::AdvanceLogStart(to) => {
                let to = i64::from(*to) % (self.rig.log.written_end() + 1);
                self.rig.log.advance_log_start(to, &mut self.rig.out);
            }
            Step::Retention => {
                let high_watermark = self.rig.log.written_end();
                self.rig
                    .log
                    .apply_retention(self.rig.now, high_watermark, &mut self.rig.out);
            }
            Step::Expire => {
                let config = TopicConfig {
                    retention_ms: 0,
                    ..self.config.clone()
                };
                self.rig.log.set_config(config.into());
                self.rig.now.wall_ms += 1;
                let high_watermark = self.rig.log.written_end();
                self.rig
                    .log
                    .apply_retention(self.rig.now, high_watermark, &mut self.rig.out);
                self.rig.log.set_config(self.config.clone().into());
            }
            Step::Stop => {
                self.rig.stop();
                let end = self.rig.log.log_end();
                assert_eq!(self.rig.log.checkpoint(0).recovery_point, end);
                self.reopen(Shutdown::Clean, end, end);
            }
            Step::Kill(choices) => {
                let promised = self.rig.log.written_end();
                self.lose_waiting(choices);
                self.reopen_crashed(choices, promised);
            }
            Step::PowerCut(choices) => {
                let promised = self.rig.log.synced_end();
                self.lose_waiting(choices);
                let mut choices_left = choices.iter().cycle();
                self.rig.disk.cut_power(|lost| {
                    let choice = choices_left.next().copied().unwrap_or(0);
                    usize::from(choice) % (lost + 1)
                });
                self.reopen_crashed(choices, promised);
            }
        }
        self.rig.collect();
        self.recovery_points
            .push(self.rig.log.checkpoint(0).recovery_point);
        self.check();
    }

    fn append(&mut self, count: i32, filler: usize, producer: i64, retry: bool) {
        let known = self
            .rig
            .log
            .producers()
            .into_iter()
            .find(|known| known.producer_id == producer);
        let sequence = match &known {
            _ if producer < 0 => -1,
            Some(known) if retry => known.last_sequence - count + 1,
            Some(known) => known.last_sequence + 1,
            None => 0,
        };
        let mut batch = batch(
            count,
            filler,
            self.rig.now.wall_ms,
            (producer, sequence.max(-1)),
        );
        batch.leader_epoch = self.epoch;
        let end = self.rig.log.log_end();
        match self.rig.try_append(&batch) {
            Ok(appended) => {
                assert_eq!(appended.base_offset, end);
                assert_eq!(appended.last_offset, end + i64::from(count) - 1);
                self.note(&batch, end);
            }
            Err(AppendRefused::Duplicate { last_offset, .. }) => {
                assert!(retry && last_offset < end);
            }
            Err(refused) => assert!(retry, "{refused:?}"),
        }
    }

    /// A batch inside a transaction, or a marker that commits or aborts.
    fn transaction(&mut self, producer: i64, end: Option<bool>) {
        let known = self
            .rig
            .log
            .producers()
            .into_iter()
            .find(|known| known.producer_id == producer);
        let next = known.as_ref().map_or(0, |known| known.last_sequence + 1);
        let mut builder = BatchBuilder::new(Codec::None).transactional();
        let (mut key, mut value) = (BytesMut::new(), BytesMut::new());
        let origin = match end {
            None => {
                builder = builder.producer(producer, 0, next);
                Origin::Client
            }
            Some(commit) => {
                let marker = EndTxnMarker {
                    coordinator_epoch: 5,
                };
                let record = if commit {
                    ControlRecord::Commit(marker)
                } else {
                    ControlRecord::Abort(marker)
                };
                record.encode_key(&mut key);
                record.encode_value(&mut value);
                builder = builder.producer(producer, 0, -1).control();
                Origin::Coordinator
            }
        };
        builder.add(&NewRecord {
            timestamp_ms: self.rig.now.wall_ms,
            key: Some(&key),
            value: Some(&value),
            headers: &[],
        });
        let bytes = builder.build().unwrap();
        let header = header_of(&bytes);
        let batch = AppendBatch {
            bytes,
            header,
            leader_epoch: self.epoch,
            origin,
        };
        let appended = self.rig.try_append(&batch).unwrap();
        self.note(&batch, appended.base_offset);
    }

    /// The batch as it must lie on disk.
    fn note(&mut self, batch: &AppendBatch, offset: i64) {
        let mut expected = batch.bytes.to_vec();
        set_base_offset(&mut expected, offset);
        set_leader_epoch(&mut expected, self.epoch);
        self.batches.push(expected.into());
    }

    fn disk(&mut self, choices: &[u16]) {
        self.rig.collect();
        for choice in choices {
            if self.rig.waiting.is_empty() {
                return;
            }
            let at = self.first_of_its_file(usize::from(*choice) % self.rig.waiting.len());
            let progress = self.rig.carry_out(at);
            assert!(!progress.failed);
            for (_, finished) in progress.reads {
                assert!(matches!(
                    finished,
                    Finished::Read(Ok(_) | Err(ReadFailed::OutOfRange))
                ));
            }
        }
    }

    /// Effects on one file are carried out in order.
    fn first_of_its_file(&self, at: usize) -> usize {
        let file = Disk::file_of(&self.rig.waiting[at]);
        let same = |effect: &Effect| {
            file.is_none() || Disk::file_of(effect) == file || Disk::file_of(effect).is_none()
        };
        self.rig.waiting.iter().position(same).unwrap_or(at)
    }

    fn tick(&mut self) {
        self.clock_ms += 40_000;
        self.rig.now.mono = now().mono.after_ms(self.clock_ms);
        self.rig.now.wall_ms += 40_000;
        self.rig.log.tick(self.rig.now, &mut self.rig.out);
    }

    fn read(&mut self, offset: u16, max_bytes: u32) {
        let log = &self.rig.log;
        let offset = i64::from(offset) % (log.log_end() + 1);
        let bound = log.written_end();
        let request = ReadRequest {
            offset,
            bound,
            max_bytes,
            at_least_one: max_bytes.is_multiple_of(2),
        };
        let in_range = offset >= log.log_start();
        let outcome = self
            .rig
            .log
            .read(request, 9, &self.rig.tail, &mut self.rig.out);
        let bytes = match outcome {
            ReadOutcome::OutOfRange => return assert!(!in_range),
            ReadOutcome::Ready(chunks) => flat(&chunks),
            ReadOutcome::Pending => {
                let reads = self.rig.run();
                let found = reads.into_iter().find(|(ticket, _)| *ticket == 9);
                match found {
                    Some((_, Finished::Read(Ok(chunks)))) => flat(&chunks),
                    Some((_, Finished::Read(Err(ReadFailed::OutOfRange)))) => return,
                    other => panic!("{other:?}"),
                }
            }
            ReadOutcome::Offline => panic!("the disk is fine"),
        };
        assert!(in_range);
        let mut expected = self.batches.iter().filter(|batch| {
            let header = header_of(batch);
            header.last_offset() >= offset && header.base_offset < bound
        });
        let found = batches(&bytes);
        for batch in &found {
            assert_eq!(Some(batch), expected.next());
        }
        let fits = bytes.len() <= max_bytes as usize;
        assert!(fits || (found.len() == 1 && request.at_least_one));
        if let Some(first) = expected.next().filter(|_| found.is_empty()) {
            assert!(!request.at_least_one && first.len() > max_bytes as usize);
        }
    }

    /// The process dies: of what waits, a prefix per file may have got through, the last one in part.
    fn lose_waiting(&mut self, choices: &[u16]) {
        self.rig.collect();
        for choice in choices {
            if self.rig.waiting.is_empty() {
                break;
            }
            let at = self.first_of_its_file(usize::from(*choice) % self.rig.waiting.len());
            let effect = self.rig.waiting.remove(at);
            let file = Disk::file_of(&effect);
            if let Effect::Write {
                op,
                file,
                position,
                chunks,
            } = effect
            {
                let mut piece = BytesMut::new();
                chunks
                    .iter()
                    .for_each(|chunk| piece.extend_from_slice(chunk));
                piece.truncate(usize::from(*choice) % (piece.len() + 1));
                let chunks = [piece.freeze()].into_iter().collect();
                self.rig.disk.carry_out(Effect::Write {
                    op,
                    file,
                    position,
                    chunks,
                });
            } else if !matches!(effect, Effect::Read { .. } | Effect::Map { .. }) {
                self.rig.disk.carry_out(effect);
            }
            self.rig
                .waiting
                .retain(|other| file.is_none() || Disk::file_of(other) != file);
        }
        self.rig.waiting.clear();
    }

    fn reopen_crashed(&mut self, choices: &[u16], promised: i64) {
        let choice = usize::from(choices.first().copied().unwrap_or(0));
        let recovery_point = self.recovery_points[choice % self.recovery_points.len()];
        self.reopen(Shutdown::Crashed, recovery_point, promised);
    }

    fn reopen(&mut self, shutdown: Shutdown, recovery_point: i64, promised: i64) {
        let disk = std::mem::take(&mut self.rig.disk);
        let now = self.rig.now;
        // The checkpoint may be older than the deletion of records.
        let log_start = match shutdown {
            Shutdown::Clean => self.rig.log.log_start(),
            _ => self.rig.log.log_start() * (recovery_point % 2),
        };
        self.rig = Rig::open(
            disk,
            &self.config,
            How {
                log_start,
                ..How::after(shutdown, recovery_point)
            },
        )
        .unwrap();
        self.rig.now = now;
        let log = &self.rig.log;
        let end = log.log_end();
        assert!(end >= promised, "{promised} was promised, {end} is there");
        assert_eq!((log.written_end(), log.synced_end()), (end, end));
        self.batches
            .retain(|batch| header_of(batch).base_offset < end);
        let last = self
            .batches
            .last()
            .map_or(0, |batch| header_of(batch).next_offset());
        let began_anew = log.size_bytes() == 0 && log.producers().is_empty();
        assert!(
            last == end || began_anew,
            "the batches end at {last}, the log at {end}"
        );
        if began_anew {
            // It ended below its start (L-8).
            assert_eq!(log.log_start(), end);
            self.batches.clear();
        }
        self.recovery_points = vec![log.checkpoint(0).recovery_point];
        self.check_everything();
    }

    fn check(&self) {
        let log = &self.rig.log;
        assert!(log.synced_end() <= log.written_end() && log.written_end() <= log.log_end());
        let checkpoint = log.checkpoint(0);
        assert!(checkpoint.recovery_point <= log.synced_end());
        assert!(checkpoint.first_segment_base <= log.log_start());
        self.rig
            .disk
            .assert_durable_below(checkpoint.recovery_point);
        let open = log
            .producers()
            .iter()
            .filter_map(|p| Some(p.current_txn_start_offset).filter(|first| *first >= 0))
            .min();
        assert!(log.last_stable_offset(log.log_end()) <= open.unwrap_or(log.log_end()));
    }

    /// Reads the whole log from disk, and compares the producers with those of all its batches.
    fn check_everything(&mut self) {
        let (start, end) = (self.rig.log.log_start(), self.rig.log.log_end());
        let (mut offset, mut found) = (start, Vec::new());
        while offset < end {
            let request = ReadRequest {
                offset,
                bound: end,
                max_bytes: 1000,
                at_least_one: true,
            };
            let read = batches(&self.rig.read(request));
            offset = header_of(read.last().unwrap()).next_offset();
            found.extend(read);
        }
        let expected: Vec<_> = self
            .batches
            .iter()
            .filter(|batch| header_of(batch).last_offset() >= start)
            .cloned()
            .collect();
        assert_eq!(found, expected);
        self.check_producers();
    }

    /// All producers with a batch in the segments are known; of others, what is known is right. So is what was aborted.
    fn check_producers(&self) {
        let log = &self.rig.log;
        let first_base = log.checkpoint(0).first_segment_base;
        let (mut all, mut kept) = (Producers::default(), Producers::default());
        let mut aborted = Vec::new();
        for batch in &self.batches {
            let header = header_of(batch);
            let marker = end_marker(&header, batch);
            let completed = all.apply(&header, marker);
            if let Some(completed) = completed.filter(|completed| completed.aborted) {
                aborted.push(completed);
            }
            if header.base_offset >= first_base {
                kept.apply(&header, marker);
            }
        }
        let states = |producers: Vec<DescribedProducer>| -> BTreeMap<i64, (i32, i64)> {
            let state =
                |known: &DescribedProducer| (known.last_sequence, known.current_txn_start_offset);
            producers
                .iter()
                .map(|known| (known.producer_id, state(known)))
                .collect()
        };
        let known = states(log.producers());
        let all = states(all.describe());
        // A transaction that began in a deleted segment may be known from its later batches only.
        for (producer, (sequence, first)) in &known {
            let (expected_sequence, expected_first) = all[producer];
            assert_eq!(*sequence, expected_sequence);
            assert!(*first == expected_first || expected_first < first_base);
        }
        assert!(
            states(kept.describe())
                .keys()
                .all(|producer| known.contains_key(producer))
        );
        let listed = log.aborted_transactions(first_base, i64::MAX);
        let expected: Vec<(i64, i64)> = aborted
            .iter()
            .filter(|completed| completed.first_offset >= first_base)
            .map(|completed| (completed.producer_id, completed.first_offset))
            .collect();
        let listed: Vec<(i64, i64)> = listed
            .into_iter()
            .filter(|(_, first)| *first >= first_base)
            .collect();
        assert_eq!(listed, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn a_log_keeps_what_it_promised_through_every_crash(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
        }
        world.rig.run();
        let end = world.rig.log.log_end();
        prop_assert_eq!(world.rig.log.written_end(), end);
        world.check_everything();
        world.rig.stop();
        prop_assert_eq!(world.rig.log.synced_end(), end);
    }
}
