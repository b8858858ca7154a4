//! Disk effects of one core: writes of a turn become one system call per file; syncs, reads and write-behind go through the ring; what is slow
//! and rare goes to helper threads.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use corelog_io::disk::write_behind::{self, WriteBehind};
use corelog_io::disk::{File, OpenMode, dir};
use corelog_io::turn::{Advice, Completion, Key, RangeSync, SyncKind, Turn};
use corelog_shards::base::ids::{FileId, FileKind, METADATA_LOG, ShardId, TopicPartition};
use corelog_shards::base::time::{Mono, Now};
use corelog_shards::effect::Effect;
use corelog_shards::event::{DiskFailure, Done};
use rustc_hash::{FxHashMap, FxHashSet};
use slab::Slab;

use super::core::KIND_DISK;
use crate::engine::keeper::Teller;
use crate::engine::notice::{Asker, Notify};
use crate::engine::slow::Slow;
use crate::engine::storage;
use crate::metrics::Metrics;

/// What came of an effect.
pub(super) struct DiskDone {
    pub(super) asker: Asker,
    pub(super) outcome: Result<Done, DiskFailure>,
}

/// An open file, with what is known of its space and its dirty pages.
struct OpenFile {
    file: File,
    /// End of the space that is allocated ahead; 0 = none.
    allocated_end: u64,
    behind: WriteBehind,
}

/// One coalesced write: pieces of one file that follow each other.
pub(super) struct Batch {
    pub(super) file: FileId,
    pub(super) position: u64,
    pub(super) end: u64,
    pub(super) chunks: Vec<Bytes>,
    pub(super) askers: Vec<Asker>,
}

/// The writes that a turn has staged, in order per file.
#[derive(Default)]
pub(super) struct Staged {
    batches: Vec<Batch>,
    /// The batch of each file that may still grow.
    open: FxHashMap<FileId, usize>,
    spare: Vec<Batch>,
}

impl Staged {
    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Adds a write. Writes that follow each other in a file become one.
    pub(super) fn add(
        &mut self,
        asker: Asker,
        file: FileId,
        position: u64,
        chunks: impl IntoIterator<Item = Bytes>,
    ) {
        let batch = match self.open.get(&file) {
            Some(&index) if self.batches[index].end == position => &mut self.batches[index],
            _ => {
                let mut batch = self.spare.pop().unwrap_or_else(|| Batch {
                    file,
                    position,
                    end: position,
                    chunks: Vec::new(),
                    askers: Vec::new(),
                });
                (batch.file, batch.position, batch.end) = (file, position, position);
                self.open.insert(file, self.batches.len());
                self.batches.push(batch);
                self.batches.last_mut().expect("pushed in the line above")
            }
        };
        for chunk in chunks {
            batch.end += chunk.len() as u64;
            batch.chunks.push(chunk);
        }
        batch.askers.push(asker);
    }

    /// Takes all batches, in the order in which they were begun.
    pub(super) fn take(&mut self) -> Vec<Batch> {
        self.open.clear();
        std::mem::take(&mut self.batches)
    }

    /// Gives batches back for reuse, so that a turn's writes cost no allocation.
    pub(super) fn recycle(&mut self, mut batches: Vec<Batch>) {
        for mut batch in batches.drain(..) {
            batch.chunks.clear();
            batch.askers.clear();
            self.spare.push(batch);
        }
        if self.batches.capacity() == 0 {
            self.batches = batches;
        }
    }
}

/// An operation of the ring that a shard waits for, or that nobody waits for (write-behind).
enum InFlight {
    Read {
        asker: Asker,
        file: FileId,
    },
    Sync {
        asker: Asker,
        file: FileId,
    },
    /// Writeback, advice, allocation: an error is logged, and shows itself again at the next sync.
    Background {
        file: FileId,
        finishes: Option<write_behind::Range>,
    },
}

/// A log gets space ahead once it has outgrown this: small ones stay small.
const ALLOCATE_FROM_BYTES: u64 = 1 << 20;

/// Space allocated ahead at a time. More wastes disk with many partitions, less costs a system call more often.
const ALLOCATE_STEP_BYTES: u64 = 16 << 20;

/// Windows of a log that stay in the page cache behind its end, for consumers near the tail.
const CACHED_WINDOWS: usize = 4;

/// Files that nobody has written to or read for a while are closed when more than this many are open.
const OPEN_FILES_MAX: usize = 4096;

pub(super) struct Disk {
    slow: Arc<Slow>,
    notify: Notify,
    paths: FxHashMap<TopicPartition, PathBuf>,
    files: FxHashMap<FileId, OpenFile>,
    /// Made here, and not synced with their directory yet.
    nameless: FxHashSet<FileId>,
    staged: Staged,
    in_flight: Slab<InFlight>,
    steps: Vec<write_behind::Step>,
    /// `log.write.behind.bytes`; 0 leaves it to the kernel.
    window_bytes: u32,
    stall: Option<Stall>,
    metrics: Arc<Metrics>,
    core: usize,
    teller: Teller,
}

/// A test's hold on the disk: while the file exists, nothing is written and nothing completes.
struct Stall {
    sign: PathBuf,
    held: VecDeque<Held>,
    active: bool,
    next_look: Mono,
}

enum Held {
    Batches(Vec<Batch>),
    Effect(ShardId, Effect),
}

/// The sign of a test is looked for this often.
const STALL_LOOK_MS: u64 = 20;

impl Disk {
    pub(super) fn new(
        slow: Arc<Slow>,
        notify: Notify,
        window_bytes: u32,
        stall_sign: Option<PathBuf>,
        metrics: Arc<Metrics>,
        core: usize,
        teller: Teller,
    ) -> Disk {
        let stall = stall_sign.map(|sign| Stall {
            sign,
            held: VecDeque::new(),
            active: false,
            next_look: Mono(0),
        });
        Disk {
            slow,
            notify,
            paths: FxHashMap::default(),
            files: FxHashMap::default(),
            nameless: FxHashSet::default(),
            staged: Staged::default(),
            in_flight: Slab::new(),
            steps: Vec::new(),
            window_bytes,
            stall,
            metrics,
            core,
            teller,
        }
    }

    /// A replica's directory is here.
    pub(super) fn place(&mut self, log: TopicPartition, directory: PathBuf) {
        self.paths.insert(log, directory);
    }

    /// Carries out, or begins to carry out, one disk effect.
    pub(super) fn effect(
        &mut self,
        turn: &mut Turn,
        shard: ShardId,
        effect: Effect,
        now: Now,
        done: &mut Vec<DiskDone>,
    ) {
        if let Effect::Write {
            op,
            file,
            position,
            chunks,
        } = effect
        {
            self.staged.add(Asker { shard, op }, file, position, chunks);
            return;
        }
        // What follows a write to the same file comes after it.
        self.write_staged(turn, now, done);
        let holds = |stall: &&mut Stall| stall.active || !stall.held.is_empty();
        if let Some(stall) = self.stall.as_mut().filter(holds) {
            stall.held.push_back(Held::Effect(shard, effect));
            return;
        }
        self.start(turn, shard, effect, done);
    }

    fn start(&mut self, turn: &mut Turn, shard: ShardId, effect: Effect, done: &mut Vec<DiskDone>) {
        let asker = |op| Asker { shard, op };
        match effect {
            Effect::Read {
                op,
                file,
                position,
                len,
            } => self.read(turn, asker(op), file, position, len as usize, done),
            Effect::Sync { op, file } => self.sync(turn, asker(op), file, done),
            Effect::Map { file, .. }
            | Effect::Seal { file, .. }
            | Effect::Truncate { file, .. }
            | Effect::Replace { file, .. } => {
                if !matches!(effect, Effect::Map { .. }) {
                    self.files.remove(&file);
                }
                self.slowly(shard, file.log, effect);
            }
            Effect::Delete { ref files, .. } => {
                for file in files {
                    self.files.remove(file);
                }
                let log = files.first().map_or(METADATA_LOG, |file| file.log);
                self.slowly(shard, log, effect);
            }
            Effect::CreateLog { log, .. } | Effect::OpenLog { log, .. } => {
                self.slowly(shard, log, effect);
            }
            Effect::DeleteLog { log, .. } => {
                self.paths.remove(&log);
                self.files.retain(|file, _| file.log != log);
                self.slowly(shard, log, effect);
            }
            Effect::LogDirFailed { log } => self.teller.directory_failed(log),
            Effect::Write { .. }
            | Effect::Reply { .. }
            | Effect::Send { .. }
            | Effect::Publish(_)
            | Effect::Checkpoint(_)
            | Effect::Stopped => unreachable!("not an effect on a disk"),
        }
    }

    /// Writes what the turn has staged, one system call per file and run of bytes.
    pub(super) fn write_staged(&mut self, turn: &mut Turn, now: Now, done: &mut Vec<DiskDone>) {
        if self.staged.is_empty() {
            return;
        }
        let batches = self.staged.take();
        // What is held comes first, even if its sign has gone meanwhile.
        let stalled = self.is_stalled(now);
        let holds = |stall: &&mut Stall| stalled || !stall.held.is_empty();
        if let Some(stall) = self.stall.as_mut().filter(holds) {
            stall.held.push_back(Held::Batches(batches));
            return;
        }
        self.write_batches(turn, batches, done);
    }

    fn write_batches(&mut self, turn: &mut Turn, batches: Vec<Batch>, done: &mut Vec<DiskDone>) {
        for batch in &batches {
            let written = self.write_batch(turn, batch);
            if let Err(error) = &written {
                tracing::error!(file = %self.shown(batch.file), position = batch.position, %error, "write failed");
            }
            for asker in &batch.askers {
                done.push(DiskDone {
                    asker: *asker,
                    outcome: written
                        .as_ref()
                        .map(|()| Done::Written)
                        .map_err(|_| DiskFailure),
                });
            }
        }
        self.staged.recycle(batches);
    }

    fn write_batch(&mut self, turn: &mut Turn, batch: &Batch) -> io::Result<()> {
        let window_bytes = self.window_bytes;
        let open = self.open(batch.file)?;
        open.file.write_all_at(batch.position, &batch.chunks)?;
        if batch.file.kind != FileKind::Log {
            return Ok(());
        }
        let file = open.file.clone();
        let mut background = Background {
            turn,
            in_flight: &mut self.in_flight,
            id: batch.file,
            file: &file,
        };
        let open = self.files.get_mut(&batch.file).expect("opened above");
        if batch.end > ALLOCATE_FROM_BYTES
            && batch.end + ALLOCATE_STEP_BYTES / 4 > open.allocated_end
        {
            let from = open.allocated_end.max(batch.end);
            open.allocated_end = from + ALLOCATE_STEP_BYTES;
            background.allocate(from, ALLOCATE_STEP_BYTES);
        }
        if window_bytes > 0 {
            let mut steps = std::mem::take(&mut self.steps);
            open.behind.appended(batch.end, &mut steps);
            for step in steps.drain(..) {
                background.step(step);
            }
            self.steps = steps;
        }
        let counters = self.metrics.core(self.core);
        counters.writes.increment();
        counters.write_bytes.add(batch.end - batch.position);
        Ok(())
    }

    /// For writing: made if it is not there.
    fn open(&mut self, id: FileId) -> io::Result<&mut OpenFile> {
        if !self.files.contains_key(&id) {
            let opened = match self.open_existing(id) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let path = self.path(id).ok_or(error)?;
                    let file = File::open(&path, OpenMode::WriteOrCreate)?;
                    self.nameless.insert(id);
                    file
                }
                other => other?,
            };
            let end = opened.len()?;
            let behind = WriteBehind::new(end, self.window_bytes, CACHED_WINDOWS);
            self.close_some();
            self.files.insert(
                id,
                OpenFile {
                    file: opened,
                    allocated_end: 0,
                    behind,
                },
            );
        }
        Ok(self.files.get_mut(&id).expect("inserted above"))
    }

    /// For reading and syncing: a file that is gone stays gone.
    fn open_existing(&self, id: FileId) -> io::Result<File> {
        if let Some(open) = self.files.get(&id) {
            return Ok(open.file.clone());
        }
        let path = self.path(id).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "the replica has no directory")
        })?;
        File::open(&path, OpenMode::Write)
    }

    fn close_some(&mut self) {
        if self.files.len() >= OPEN_FILES_MAX {
            // Closing costs a reopen at most; which ones hardly matters when so many are in use.
            let victims: Vec<FileId> = self
                .files
                .keys()
                .copied()
                .take(OPEN_FILES_MAX / 4)
                .collect();
            for victim in victims {
                self.files.remove(&victim);
            }
        }
    }

    fn path(&self, file: FileId) -> Option<PathBuf> {
        self.paths
            .get(&file.log)
            .map(|directory| directory.join(storage::file_name(file)))
    }

    fn shown(&self, file: FileId) -> String {
        self.path(file)
            .map_or_else(|| format!("{file:?}"), |path| path.display().to_string())
    }

    fn read(
        &mut self,
        turn: &mut Turn,
        asker: Asker,
        file: FileId,
        position: u64,
        len: usize,
        done: &mut Vec<DiskDone>,
    ) {
        let open = match self.open_existing(file) {
            Ok(open) => open,
            Err(error) => return self.failed(asker, file, "open", &error, done),
        };
        let buffer = turn.pool().take(len.max(1));
        let number = self.in_flight.insert(InFlight::Read { asker, file });
        turn.read(disk_key(number), &open, position, len, buffer);
    }

    fn sync(&mut self, turn: &mut Turn, asker: Asker, file: FileId, done: &mut Vec<DiskDone>) {
        let open = match self.open_existing(file) {
            Ok(open) => open,
            Err(error) => return self.failed(asker, file, "open", &error, done),
        };
        self.metrics.core(self.core).syncs.increment();
        // The name of a new file is not durable before its directory is.
        if self.nameless.remove(&file) {
            let directory = self.paths.get(&file.log).cloned();
            self.slow
                .on_file(asker, file, directory, &self.notify, move |path| {
                    open.sync_all()?;
                    dir::sync_dir(path.parent().unwrap_or(&path))?;
                    Ok(Done::Synced)
                });
            return;
        }
        let number = self.in_flight.insert(InFlight::Sync { asker, file });
        turn.sync(disk_key(number), &open, SyncKind::Data);
    }

    fn failed(
        &self,
        asker: Asker,
        file: FileId,
        what: &'static str,
        error: &io::Error,
        done: &mut Vec<DiskDone>,
    ) {
        tracing::error!(file = %self.shown(file), %error, "{what} failed");
        self.metrics.core(self.core).disk_failures.increment();
        done.push(DiskDone {
            asker,
            outcome: Err(DiskFailure),
        });
    }

    /// Leaves it to a helper thread.
    fn slowly(&self, shard: ShardId, log: TopicPartition, effect: Effect) {
        let directory = self.paths.get(&log).cloned();
        self.slow.effect(shard, effect, directory, &self.notify);
    }

    /// A completion that is no socket's.
    pub(super) fn on_completion(
        &mut self,
        turn: &mut Turn,
        completion: Completion,
        done: &mut Vec<DiskDone>,
    ) {
        match completion {
            Completion::Read {
                key,
                result,
                buffer,
                ..
            } => {
                let Some(InFlight::Read { asker, file }) =
                    self.in_flight.try_remove(number_of(key))
                else {
                    return;
                };
                match result {
                    Ok(_) => {
                        let mut buffer = buffer;
                        let bytes = buffer.split().freeze();
                        turn.pool().give(buffer);
                        let counters = self.metrics.core(self.core);
                        counters.reads.increment();
                        counters.read_bytes.add(bytes.len() as u64);
                        done.push(DiskDone {
                            asker,
                            outcome: Ok(Done::Bytes(bytes)),
                        });
                    }
                    Err(error) => {
                        turn.pool().give(buffer);
                        self.failed(asker, file, "read", &error, done);
                    }
                }
            }
            Completion::FileDone {
                key, what, result, ..
            } => match (self.in_flight.try_remove(number_of(key)), result) {
                (Some(InFlight::Sync { asker, .. }), Ok(())) => done.push(DiskDone {
                    asker,
                    outcome: Ok(Done::Synced),
                }),
                (Some(InFlight::Sync { asker, file }), Err(error)) => {
                    self.failed(asker, file, "sync", &error, done);
                }
                (Some(InFlight::Background { file, .. }), Err(error))
                    if !is_unsupported(&error) =>
                {
                    tracing::warn!(file = %self.shown(file), ?what, %error, "background work on a log file failed; its next sync decides");
                }
                (
                    Some(InFlight::Background {
                        file,
                        finishes: Some(range),
                    }),
                    Ok(()),
                ) => self.finished(turn, file, range),
                _ => {}
            },
            Completion::Written { .. }
            | Completion::Received { .. }
            | Completion::Sent { .. }
            | Completion::Connected { .. }
            | Completion::Doorbell => {}
        }
    }

    /// A window is on the disk: pages far behind the end may go.
    fn finished(&mut self, turn: &mut Turn, id: FileId, range: write_behind::Range) {
        let Some(open) = self.files.get_mut(&id) else {
            return;
        };
        let mut steps = std::mem::take(&mut self.steps);
        open.behind.finished(range, &mut steps);
        let file = open.file.clone();
        let mut background = Background {
            turn,
            in_flight: &mut self.in_flight,
            id,
            file: &file,
        };
        for step in steps.drain(..) {
            background.step(step);
        }
        self.steps = steps;
    }

    /// Looks whether a test holds the disk or has let it go.
    pub(super) fn tick(&mut self, turn: &mut Turn, now: Now, done: &mut Vec<DiskDone>) {
        if self.is_stalled(now) {
            return;
        }
        while let Some(held) = self.stall.as_mut().and_then(|stall| stall.held.pop_front()) {
            match held {
                Held::Batches(batches) => self.write_batches(turn, batches, done),
                Held::Effect(shard, effect) => self.start(turn, shard, effect, done),
            }
        }
    }

    fn is_stalled(&mut self, now: Now) -> bool {
        let Some(stall) = &mut self.stall else {
            return false;
        };
        if now.mono >= stall.next_look {
            stall.next_look = now.mono.after_ms(STALL_LOOK_MS);
            let exists = stall.sign.exists();
            if exists && !stall.active {
                tracing::info!(core = self.core, sign = %stall.sign.display(), "the disk is held");
            }
            stall.active = exists;
        }
        stall.active
    }
}

/// Orders to the ring for one file that nobody waits for.
struct Background<'a> {
    turn: &'a mut Turn,
    in_flight: &'a mut Slab<InFlight>,
    id: FileId,
    file: &'a File,
}

impl Background<'_> {
    fn key(&mut self, finishes: Option<write_behind::Range>) -> Key {
        disk_key(self.in_flight.insert(InFlight::Background {
            file: self.id,
            finishes,
        }))
    }

    fn allocate(&mut self, position: u64, length: u64) {
        let key = self.key(None);
        self.turn.allocate(key, self.file, position, length);
    }

    fn step(&mut self, step: write_behind::Step) {
        match step {
            write_behind::Step::Start(range) => {
                let key = self.key(None);
                self.turn.sync_range(
                    key,
                    self.file,
                    range.start,
                    range.len() as u32,
                    RangeSync::Start,
                );
            }
            write_behind::Step::Finish(range) => {
                let key = self.key(Some(range));
                self.turn.sync_range(
                    key,
                    self.file,
                    range.start,
                    range.len() as u32,
                    RangeSync::Finish,
                );
            }
            write_behind::Step::Drop(range) => {
                let key = self.key(None);
                self.turn.advise(
                    key,
                    self.file,
                    range.start,
                    range.len() as u32,
                    Advice::DontNeed,
                );
            }
        }
    }
}

fn disk_key(number: usize) -> Key {
    Key(KIND_DISK << 56 | number as u64)
}

fn number_of(key: Key) -> usize {
    (key.0 & ((1 << 56) - 1)) as usize
}

/// The file system does not know the operation: nothing is lost but speed.
fn is_unsupported(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
}

#[cfg(test)]
mod tests {
    use super::*;
    use corelog_shards::base::ids::{Op, Uuid};

    fn file(base: i64) -> FileId {
        FileId {
            log: TopicPartition {
                topic_id: Uuid([7; 16]),
                partition: 0,
            },
            kind: FileKind::Log,
            base,
        }
    }

    fn asker(seq: u64) -> Asker {
        Asker {
            shard: ShardId(0),
            op: Op { slot: 0, seq },
        }
    }

    #[test]
    fn writes_that_follow_each_other_become_one() {
        let mut staged = Staged::default();
        staged.add(asker(1), file(0), 0, [Bytes::from_static(b"ab")]);
        staged.add(asker(2), file(5), 0, [Bytes::from_static(b"x")]);
        staged.add(
            asker(3),
            file(0),
            2,
            [Bytes::from_static(b"c"), Bytes::from_static(b"d")],
        );
        staged.add(asker(4), file(0), 9, [Bytes::from_static(b"far")]);
        let batches = staged.take();
        let shape: Vec<_> = batches
            .iter()
            .map(|b| (b.file.base, b.position, b.end, b.askers.len()))
            .collect();
        assert_eq!(shape, [(0, 0, 4, 2), (5, 0, 1, 1), (0, 9, 12, 1)]);
    }
}
