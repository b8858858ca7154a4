//! A log on a disk in memory, driven by hand.

use std::sync::Arc;

use bytes::Bytes;

use super::disk::Disk;
use crate::base::ids::{Op, TopicPartition, Uuid};
use crate::base::time::{Mono, Now};
use crate::effect::{Chunks, Effect, Outbox};
use crate::event::DiskFailure;
use crate::log::*;
use crate::metadata::TopicConfig;
use corelog_wire::batch::BatchHeader;

pub(super) const ID: TopicPartition = TopicPartition {
    topic_id: Uuid([7; 16]),
    partition: 0,
};

pub(super) struct Rig {
    pub(super) log: Log,
    pub(super) tail: TailCache,
    pub(super) disk: Disk,
    pub(super) out: Outbox,
    pub(super) now: Now,
    /// Effects that were not carried out yet.
    pub(super) waiting: Vec<Effect>,
}

/// How a directory is opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct How {
    pub(super) shutdown: Shutdown,
    pub(super) recovery_point: i64,
    pub(super) log_start: i64,
    pub(super) truncate_to: Option<i64>,
    pub(super) now: Now,
}

impl How {
    pub(super) fn after(shutdown: Shutdown, recovery_point: i64) -> How {
        How {
            shutdown,
            recovery_point,
            log_start: 0,
            truncate_to: None,
            now: now(),
        }
    }
}

pub(super) fn now() -> Now {
    Now {
        mono: Mono(1_000_000),
        wall_ms: 1_700_000_000_000,
    }
}

pub(super) fn op_of(effect: &Effect) -> Option<Op> {
    match effect {
        Effect::Write { op, .. }
        | Effect::Sync { op, .. }
        | Effect::Read { op, .. }
        | Effect::Map { op, .. }
        | Effect::Seal { op, .. }
        | Effect::Truncate { op, .. }
        | Effect::Replace { op, .. }
        | Effect::Delete { op, .. } => Some(*op),
        _ => None,
    }
}

impl Rig {
    pub(super) fn new(config: TopicConfig) -> Rig {
        Rig::with(Log::create(ID, 3, Arc::new(config), now()), Disk::default())
    }

    /// A log that somebody reads.
    pub(super) fn with(mut log: Log, disk: Disk) -> Rig {
        log.followed_until = Mono(u64::MAX);
        Rig {
            log,
            tail: TailCache::new(1 << 20),
            disk,
            out: Outbox::new(),
            now: now(),
            waiting: Vec::new(),
        }
    }

    /// Opens what is on the disk.
    pub(super) fn open(mut disk: Disk, config: &TopicConfig, how: How) -> Result<Rig, OpenFailure> {
        let input = RecoveryInput {
            id: ID,
            slot: 3,
            files: disk.listing(),
            shutdown: how.shutdown,
            recovery_point: how.recovery_point,
            log_start: how.log_start,
            truncate_to: how.truncate_to,
            config: Arc::new(config.clone()),
            now: how.now,
        };
        let log = recover(input, &mut |order| Ok(disk.obey(order)))?;
        let mut rig = Rig::with(*log, disk);
        rig.now = how.now;
        Ok(rig)
    }

    pub(super) fn try_append(&mut self, batch: &AppendBatch) -> Result<Appended, AppendRefused> {
        self.log
            .append(self.now, batch, &mut self.tail, &mut self.out)
    }

    /// Takes the wishes over, without carrying them out.
    pub(super) fn collect(&mut self) {
        self.waiting.extend(self.out.drain());
    }

    /// Carries out one waiting effect.
    pub(super) fn carry_out(&mut self, at: usize) -> Progress {
        let effect = self.waiting.remove(at);
        let op = op_of(&effect).unwrap();
        let done = self.disk.carry_out(effect);
        let progress = self
            .log
            .done(self.now, op, Ok(done), &self.tail, &mut self.out);
        self.collect();
        progress
    }

    pub(super) fn fail(&mut self, at: usize) -> Progress {
        let op = op_of(&self.waiting.remove(at)).unwrap();
        let progress = self
            .log
            .done(self.now, op, Err(DiskFailure), &self.tail, &mut self.out);
        self.collect();
        progress
    }

    /// Carries out everything, in order, and what it brings about. Gives the finished reads.
    pub(super) fn run(&mut self) -> Vec<(u64, Finished)> {
        let mut reads = Vec::new();
        self.collect();
        while !self.waiting.is_empty() {
            let progress = self.carry_out(0);
            assert!(!progress.failed);
            reads.extend(progress.reads);
        }
        reads
    }

    pub(super) fn stop(&mut self) {
        self.run();
        self.log.stop(self.now, &mut self.out);
        self.run();
        assert!(self.log.is_stopped());
    }

    pub(super) fn read(&mut self, request: ReadRequest) -> Vec<u8> {
        match self.log.read(request, 9, &self.tail, &mut self.out) {
            ReadOutcome::Ready(chunks) => flat(&chunks),
            ReadOutcome::Pending => {
                let mut reads = self.run();
                assert_eq!(reads.len(), 1);
                match reads.remove(0) {
                    (9, Finished::Read(Ok(chunks))) => flat(&chunks),
                    other => panic!("{other:?}"),
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

pub(super) fn flat(chunks: &Chunks) -> Vec<u8> {
    chunks.iter().flatten().copied().collect()
}

/// The batches that lie in some bytes.
pub(super) fn batches(bytes: &[u8]) -> Vec<Bytes> {
    let mut rest = bytes;
    let mut found = Vec::new();
    while let Ok(header) = BatchHeader::parse(rest) {
        let (batch, after) = rest.split_at(header.total_len());
        found.push(Bytes::copy_from_slice(batch));
        rest = after;
    }
    assert!(rest.is_empty());
    found
}

/// A batch as its producer sent it: without offset and epoch.
pub(super) fn unsent(batch: &[u8], origin: Origin) -> AppendBatch {
    let leader_epoch = BatchHeader::parse(batch).unwrap().partition_leader_epoch;
    let mut bytes = batch.to_vec();
    bytes[..8].fill(0);
    bytes[12..16].fill(0xff);
    let header = BatchHeader::parse(&bytes).unwrap();
    AppendBatch {
        bytes: bytes.into(),
        header,
        leader_epoch,
        origin,
    }
}
