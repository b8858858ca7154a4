//! Scenarios of the log (`tests/scenarios/log`): one log on a disk in memory.
//!
//! - `new`, `config` set properties of the topic; `clock` sets the wall time, `wait` lets time pass.
//! - `append` makes a batch of the words that follow (`value@timestamp`), `pid=`, `seq=`, `producer-epoch=` make it a producer's, `epoch=` is
//!   the leader's. `commit` and `abort` end a producer's transaction.
//! - `hold` keeps effects back until `release`; `waiting` shows them, `carry N` carries one out, `fail N` lets it fail.
//! - `stop` stops cleanly, `kill` forgets what was not carried out, `powercut` also what was not synced (but for `keep=` bytes of each
//!   file); `open clean|crashed|elsewhere` opens what is on the disk. `damage`, `cut`, `zeros`, `oldbatch`, `remove` spoil a file; `again` goes back to
//!   what the stop or crash left.
//! - `segments`, `files`, `epochs` show what is on the disk; ranges are half-open.

#![allow(
    clippy::unwrap_used,
    reason = "a scenario that can't be read has failed"
)]

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use corelog_wire::batch::{BatchBuilder, BatchHeader, HEADER_LEN, NewRecord};
use corelog_wire::compress::Codec;

use super::disk::{Disk, id_of, name_of};
use super::rig::*;
use crate::base::ids::{FileId, FileKind};
use crate::base::time::Now;
use crate::effect::Effect;
use crate::log::*;
use crate::metadata::TopicConfig;
use crate::metadata::topic_config::topic_property;
use crate::scenario::{self, Args, scenarios};

scenarios! {
    "log", run:
    append_and_offsets
    l2_when_segments_are_rolled
    l3_index_entries
    l4_flushing
    l17_reading
    time_lookups
    high_watermark_and_ends
    l8_clean_start
    l7_start_after_a_crash
    l7_start_after_another_brokers_crash
    l15_truncation
    l11_retention
    l14_delete_records
    l16_leader_epochs
    i1_batches_known_after_a_restart
    i2_duplicates_and_order
    i3_producer_epochs
    i7_expiry
    i9_snapshots
    t1_transactions
}

fn run(name: &str, text: &str) {
    let mut stage = Stage::new();
    stage.create();
    scenario::run(name, text, |line| stage.command(line));
}

/// What the wall clock says at first, and what records say that come without a timestamp.
const START_MS: i64 = 10_000;
const RECORD_MS: &str = "1000";

struct Stage {
    config: TopicConfig,
    /// `None` after a failed opening.
    rig: Option<Rig>,
    /// What is on the disk while no log is open.
    disk: Disk,
    held: bool,
    now: Now,
    /// As of the last stop or crash.
    recovery_point: i64,
    log_start: i64,
    /// As it was left then.
    left: Disk,
}

impl Stage {
    fn new() -> Stage {
        let mut now = now();
        now.wall_ms = START_MS;
        Stage {
            now,
            rig: None,
            config: TopicConfig::default(),
            disk: Disk::default(),
            held: false,
            recovery_point: 0,
            log_start: 0,
            left: Disk::default(),
        }
    }

    fn create(&mut self) {
        let mut rig = Rig::new(self.config.clone());
        rig.now = self.now;
        self.rig = Some(rig);
    }

    fn rig(&mut self) -> &mut Rig {
        self.rig.as_mut().expect("a log is open")
    }

    fn command(&mut self, line: &str) -> String {
        let mut words = line.split_whitespace();
        let verb = words.next().unwrap_or("");
        let args = Args(words.collect());
        match verb {
            "new" => {
                *self = Stage::new();
                self.configure(&args);
                self.create();
                String::new()
            }
            "config" => {
                self.configure(&args);
                let config = Arc::new(self.config.clone());
                self.rig().log.set_config(config);
                String::new()
            }
            "clock" => {
                self.now.wall_ms = number(&args);
                if let Some(rig) = &mut self.rig {
                    rig.now = self.now;
                }
                String::new()
            }
            "wait" => {
                self.wait(number(&args));
                self.finish("")
            }
            "append" => self.append(&args),
            "commit" | "abort" => self.end_transaction(verb == "commit", &args),
            "hold" => {
                self.held = true;
                String::new()
            }
            "release" => {
                self.held = false;
                self.finish("")
            }
            "stop" | "kill" | "powercut" => self.go_down(verb, &args),
            "open" => self.open(&args),
            "damage" | "cut" | "zeros" | "oldbatch" | "remove" => self.spoil(verb, &args),
            "again" => {
                self.rig = None;
                self.disk = self.left.clone();
                String::new()
            }
            "retain" => {
                let rig = self.rig();
                let high_watermark = args.number("hw").unwrap_or_else(|| rig.log.log_end());
                rig.log
                    .apply_retention(rig.now, high_watermark, &mut rig.out);
                self.finish("")
            }
            "trim" => {
                let rig = self.rig();
                rig.log.advance_log_start(number(&args), &mut rig.out);
                self.finish("")
            }
            "leader" => {
                let rig = self.rig();
                rig.log.begin_epoch(number(&args) as i32, &mut rig.out);
                self.finish("")
            }
            _ => self.show(verb, &args),
        }
    }

    /// What is shown changes nothing.
    fn show(&mut self, verb: &str, args: &Args<'_>) -> String {
        match verb {
            "read" => self.read(args),
            "time" => self.time(args),
            "waiting" => {
                let wishes: Vec<String> = self.rig().waiting.iter().map(wish).collect();
                wishes.concat()
            }
            "carry" | "fail" => {
                let rig = self.rig.as_mut().expect("a log is open");
                let progress = match verb {
                    "carry" => rig.carry_out(number(args) as usize),
                    _ => rig.fail(number(args) as usize),
                };
                format!(
                    "written_moved={} synced_moved={} failed={}\n",
                    progress.written_moved, progress.synced_moved, progress.failed
                )
            }
            "ends" => {
                let log = &self.rig().log;
                format!(
                    "start={} recovery_point={} synced={} written={} end={}\n",
                    log.log_start(),
                    log.checkpoint(0).recovery_point,
                    log.synced_end(),
                    log.written_end(),
                    log.log_end()
                )
            }
            "tail" => {
                self.rig().tail.set_budget(number(args) as usize);
                String::new()
            }
            "available" => {
                let rig = self.rig();
                let bound = args.number("bound").unwrap_or_else(|| rig.log.log_end());
                let max = args.number("max").unwrap_or(1 << 20) as u32;
                let found = rig.log.available(number(args), bound, max, &rig.tail);
                let older = if found.older_segment {
                    " older segment"
                } else {
                    ""
                };
                format!("{} bytes{older}\n", found.bytes)
            }
            "segments" => self.segments(),
            "files" => {
                let files = self.disk().files.iter();
                let shown: Vec<String> = files
                    .map(|(id, file)| format!("{}:{}", short(*id), file.data.len()))
                    .collect();
                format!("{}\n", shown.join(" "))
            }
            "epochs" => self.epochs(),
            "epochend" => {
                let (epoch, end) = self.rig().log.epoch_end(number(args) as i32);
                format!("epoch={epoch} end={end}\n")
            }
            "epochof" => format!("{}\n", self.rig().log.epoch_of(number(args))),
            "producers" => self.producers(),
            "stable" => {
                let high_watermark = number(args);
                let log = &self.rig().log;
                format!("{}\n", log.last_stable_offset(high_watermark))
            }
            "aborted" => {
                let aborted = self.rig().log.aborted_transactions(0, i64::MAX);
                let shown = aborted.iter();
                let shown = shown.map(|(pid, first)| format!("pid={pid} first={first}\n"));
                shown.collect()
            }
            "deadline" => {
                let rig = self.rig();
                let due = rig.log.next_deadline();
                due.map_or("none\n".to_owned(), |due| {
                    format!("in {} ms\n", due.ms_since(rig.now.mono))
                })
            }
            _ => panic!("no such command: {verb}"),
        }
    }

    /// Carries out what was wished for, unless that is held back.
    fn finish(&mut self, output: &str) -> String {
        let held = self.held;
        let rig = self.rig();
        if held {
            rig.collect();
        } else {
            rig.run();
        }
        output.to_owned()
    }

    /// Properties by Kafka's name; those with a minimum may be lower here.
    fn configure(&mut self, args: &Args<'_>) {
        for (key, value) in args.0.iter().filter_map(|word| word.split_once('=')) {
            match key {
                "segment.bytes" => self.config.segment_bytes = value.parse().unwrap(),
                "producer.id.expiration.ms" => {
                    self.config.producer_expiration_ms = value.parse().unwrap();
                }
                "producer.id.expiration.check.interval.ms" => {
                    self.config.producer_check_ms = value.parse().unwrap();
                }
                _ => {
                    let property = topic_property(key).unwrap_or_else(|| panic!("{key}?"));
                    self.config.set(property, value).unwrap();
                }
            }
        }
    }

    fn wait(&mut self, ms: i64) {
        let held = self.held;
        self.now.mono = self.now.mono.after_ms(ms as u64);
        self.now.wall_ms += ms;
        let now = self.now;
        let rig = self.rig();
        rig.now = now;
        if rig
            .log
            .next_deadline()
            .is_some_and(|due| due <= rig.now.mono)
        {
            rig.log.tick(rig.now, &mut rig.out);
            if !held {
                rig.run();
            }
        }
    }

    fn append(&mut self, args: &Args<'_>) -> String {
        let codec = match args.get("codec") {
            Some("gzip") => Codec::Gzip,
            Some("zstd") => Codec::Zstd,
            _ => Codec::None,
        };
        let mut builder = BatchBuilder::new(codec);
        if let Some(pid) = args.number("pid") {
            let epoch = args.number("producer-epoch").unwrap_or(0) as i16;
            builder = builder.producer(pid, epoch, args.number("seq").unwrap_or(0) as i32);
        }
        if args.get("txn").is_some() {
            builder = builder.transactional();
        }
        let fill = "x".repeat(args.number("fill").unwrap_or(0) as usize);
        for word in args.plain() {
            let (value, timestamp) = word.split_once('@').unwrap_or((word, RECORD_MS));
            let value = format!("{value}{fill}");
            builder.add(&NewRecord {
                timestamp_ms: timestamp.parse().unwrap(),
                key: None,
                value: Some(value.as_bytes()),
                headers: &[],
            });
        }
        self.append_batch(builder, Origin::Client, args)
    }

    fn end_transaction(&mut self, commit: bool, args: &Args<'_>) -> String {
        let epoch = args.number("producer-epoch").unwrap_or(0) as i16;
        let mut builder = BatchBuilder::new(Codec::None)
            .producer(args.number("pid").unwrap(), epoch, -1)
            .transactional()
            .control();
        let key = [0, 0, 0, u8::from(commit)];
        let coordinator_epoch = args.number("coordinator-epoch").unwrap_or(0) as i32;
        let mut value = vec![0, 0];
        value.extend(coordinator_epoch.to_be_bytes());
        builder.add(&NewRecord {
            timestamp_ms: 1000,
            key: Some(&key),
            value: Some(&value),
            headers: &[],
        });
        self.append_batch(builder, Origin::Coordinator, args)
    }

    fn append_batch(&mut self, builder: BatchBuilder, origin: Origin, args: &Args<'_>) -> String {
        let bytes = builder.build().unwrap();
        let batch = AppendBatch {
            header: BatchHeader::parse(&bytes).unwrap(),
            bytes,
            leader_epoch: args.number("epoch").unwrap_or(0) as i32,
            origin,
        };
        let output = match self.rig().try_append(&batch) {
            Ok(appended) => {
                let synced = match appended.ack_after {
                    AckAfter::Written => "",
                    AckAfter::Synced => ", answered when synced",
                };
                let (from, to) = (appended.base_offset, appended.end);
                format!("{from}..{to} ({} bytes){synced}\n", batch.bytes.len())
            }
            Err(AppendRefused::Duplicate {
                base_offset,
                last_offset,
                ..
            }) => format!("duplicate of {base_offset}..{}\n", last_offset + 1),
            Err(refused) => format!("refused: {refused:?}\n"),
        };
        self.finish(&output)
    }

    fn go_down(&mut self, how: &str, args: &Args<'_>) -> String {
        let mut rig = self.rig.take().expect("a log is open");
        if how == "stop" {
            rig.stop();
        }
        self.recovery_point = rig.log.checkpoint(0).recovery_point;
        self.log_start = rig.log.log_start();
        self.disk = rig.disk;
        if how == "powercut" {
            let keep = args.number("keep").unwrap_or(0) as usize;
            self.disk.cut_power(|lost| lost.min(keep));
        }
        self.left = self.disk.clone();
        self.held = false;
        String::new()
    }

    fn open(&mut self, args: &Args<'_>) -> String {
        let shutdown = match args.0[0] {
            "clean" => Shutdown::Clean,
            "crashed" => Shutdown::Crashed,
            _ => Shutdown::CrashedElsewhere,
        };
        let how = How {
            shutdown,
            recovery_point: args.number("point").unwrap_or(self.recovery_point),
            log_start: args.number("start").unwrap_or(self.log_start),
            truncate_to: args.number("to"),
            now: self.now,
        };
        match Rig::open(self.disk.clone(), &self.config, how) {
            Ok(rig) => {
                let (start, end) = (rig.log.log_start(), rig.log.log_end());
                self.rig = Some(rig);
                format!("{start}..{end}\n")
            }
            Err(failure) => format!("failed: {}\n", failure.reason),
        }
    }

    fn disk(&self) -> &Disk {
        self.rig.as_ref().map_or(&self.disk, |rig| &rig.disk)
    }

    fn spoil(&mut self, how: &str, args: &Args<'_>) -> String {
        let id = long(args.0[0]);
        let mut spoilt = self.disk.files[&id].data.clone();
        match how {
            "damage" => spoilt[args.number("at").unwrap() as usize] ^= 1,
            "cut" => spoilt.truncate(args.number("to").unwrap() as usize),
            // A message of format 1: offset, size, checksum, magic, the rest.
            "oldbatch" => {
                spoilt.extend([0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 22, 1, 2, 3, 4, 1]);
                spoilt.resize(spoilt.len() + 17, 0);
            }
            "zeros" => spoilt.resize(spoilt.len() + args.number("n").unwrap() as usize, 0),
            _ => {
                self.disk.files.remove(&id);
                return String::new();
            }
        }
        self.disk.put(id, &spoilt);
        String::new()
    }

    fn read(&mut self, args: &Args<'_>) -> String {
        let rig = self.rig();
        let request = ReadRequest {
            offset: number(args),
            bound: args.number("bound").unwrap_or_else(|| rig.log.log_end()),
            max_bytes: args.number("max").unwrap_or(1 << 20) as u32,
            at_least_one: args.get("first") != Some("may-be-missing"),
        };
        match rig.log.read(request, 9, &rig.tail, &mut rig.out) {
            ReadOutcome::Ready(chunks) => format!("memory: {}\n", ranges(&flat(&chunks))),
            ReadOutcome::OutOfRange => "out of range\n".to_owned(),
            ReadOutcome::Offline => "offline\n".to_owned(),
            ReadOutcome::Pending => match rig.run().remove(0) {
                (9, Finished::Read(Ok(chunks))) => format!("disk: {}\n", ranges(&flat(&chunks))),
                other => format!("{other:?}\n"),
            },
        }
    }

    fn time(&mut self, args: &Args<'_>) -> String {
        let rig = self.rig();
        let target = match args.0[0] {
            "largest" => TimeTarget::Largest,
            moment => TimeTarget::AtOrAfter(moment.parse().unwrap()),
        };
        let bound = args.number("bound").unwrap_or_else(|| rig.log.log_end());
        let found = match rig
            .log
            .find_by_time(target, bound, 9, &rig.tail, &mut rig.out)
        {
            TimeOutcome::Ready(found) => found,
            TimeOutcome::Offline => return "offline\n".to_owned(),
            TimeOutcome::Pending => match rig.run().remove(0) {
                (9, Finished::Time(Ok(found))) => found,
                other => return format!("{other:?}\n"),
            },
        };
        found.map_or("none\n".to_owned(), |found| {
            format!(
                "offset={} timestamp={} epoch={}\n",
                found.offset, found.timestamp, found.leader_epoch
            )
        })
    }

    /// The segments on the disk: the batches of the log file, the entries of its indexes.
    fn segments(&self) -> String {
        let mut out = String::new();
        let disk = self.disk();
        for base in disk.segments() {
            let log = disk.get(FileKind::Log, base).unwrap_or(&[]);
            let index = entries::<8>(disk.get(FileKind::OffsetIndex, base)).map(|entry| {
                let offset = base + i64::from(be32(&entry[..4]));
                format!("{offset}@{}", be32(&entry[4..]))
            });
            let times = entries::<12>(disk.get(FileKind::TimeIndex, base)).map(|entry| {
                let (high, low) = (be32(&entry[..4]), be32(&entry[4..8]));
                let time = i64::from(high) << 32 | i64::from(low);
                format!("{time}={}", base + i64::from(be32(&entry[8..])))
            });
            let (index, times): (Vec<_>, Vec<_>) = (index.collect(), times.collect());
            let _ = writeln!(
                out,
                "{base}: {} bytes, offsets [{}], times [{}]",
                log.len(),
                index.join(" "),
                times.join(" ")
            );
        }
        out
    }

    fn epochs(&self) -> String {
        let file = self.disk().get(FileKind::LeaderEpochs, 0).unwrap_or(b"");
        let lines = std::str::from_utf8(file).unwrap().lines().skip(2);
        let shown: Vec<String> = lines
            .filter_map(|line| line.split_once(' '))
            .map(|(epoch, start)| format!("{epoch}@{start}"))
            .collect();
        format!("[{}]\n", shown.join(" "))
    }

    fn producers(&mut self) -> String {
        let producers = self.rig().log.producers();
        let shown = producers.iter().map(|producer| {
            format!(
                "pid={} epoch={} last_sequence={} transaction={}\n",
                producer.producer_id,
                producer.epoch,
                producer.last_sequence,
                producer.current_txn_start_offset
            )
        });
        shown.collect()
    }
}

/// The first word, as a number.
fn number(args: &Args<'_>) -> i64 {
    args.0[0].parse().unwrap()
}

fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().unwrap())
}

fn entries<const N: usize>(bytes: Option<&[u8]>) -> impl Iterator<Item = &[u8; N]> {
    bytes.unwrap_or(&[]).as_chunks::<N>().0.iter()
}

/// The batches in some bytes, by offsets, and how many bytes of a further one.
fn ranges(bytes: &[u8]) -> String {
    let mut shown = Vec::new();
    let mut rest = bytes;
    while rest.len() >= HEADER_LEN {
        let header = BatchHeader::parse(rest).unwrap();
        if rest.len() < header.total_len() {
            break;
        }
        shown.push(format!("{}..{}", header.base_offset, header.next_offset()));
        rest = &rest[header.total_len()..];
    }
    if !rest.is_empty() {
        shown.push(format!("and {} bytes", rest.len()));
    }
    if shown.is_empty() {
        return "nothing".to_owned();
    }
    shown.join(" ")
}

/// `17.log` for the file of base offset 17.
fn short(id: FileId) -> String {
    let name = name_of(id);
    match name.split_once('.') {
        Some((base, suffix)) if base.len() == 20 => format!("{}.{suffix}", id.base),
        _ => name,
    }
}

fn long(name: &str) -> FileId {
    match name.split_once('.') {
        Some((base, suffix)) if base.parse::<i64>().is_ok() => {
            id_of(&format!("{base:0>20}.{suffix}"))
        }
        _ => id_of(name),
    }
}

fn wish(effect: &Effect) -> String {
    let shown = match effect {
        Effect::Write {
            file,
            position,
            chunks,
            ..
        } => {
            let len: usize = chunks.iter().map(Bytes::len).sum();
            format!(
                "write {} {position}..{}",
                short(*file),
                *position as usize + len
            )
        }
        Effect::Sync { file, .. } => format!("sync {}", short(*file)),
        Effect::Read { file, .. } => format!("read {}", short(*file)),
        Effect::Map { file, .. } => format!("map {}", short(*file)),
        Effect::Seal { file, len, .. } => format!("seal {} at {len}", short(*file)),
        Effect::Truncate { file, len, .. } => format!("truncate {} to {len}", short(*file)),
        Effect::Replace { file, .. } => format!("replace {}", short(*file)),
        Effect::Delete {
            files, delay_ms, ..
        } => {
            let names: Vec<String> = files.iter().map(|file| short(*file)).collect();
            format!("delete {} after {delay_ms} ms", names.join(" "))
        }
        _ => panic!("a log does not ask for this"),
    };
    format!("{shown}\n")
}
