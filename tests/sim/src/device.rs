//! Effects on files that are under way: an engine's disk, with everything that may go wrong with one.
//!
//! Effects on the same file happen in the order in which they were asked for, others in any order; what was asked for, what happened and what was
//! reported are three moments. Faults: an operation fails (and may have happened in part), the device stands still for a while, the machine stops
//! between two moments. [`Lie`] is for the tests of the simulator itself: a disk that breaks its promises.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use corelog_shards::base::ids::{FileId, FileKind, METADATA_LOG, Op, TopicPartition};
use corelog_shards::effect::Effect;
use corelog_shards::event::{DiskFailure, Done};

use crate::disk::{Disk, Path};
use crate::seeded::Seeded;

/// What a broken disk does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// Reports writes before they have happened.
    EarlyWrites,
    /// Reports syncs that did nothing.
    IdleSyncs,
    /// Writes something else now and then.
    WrongBytes,
}

enum Work {
    Write {
        file: FileId,
        position: u64,
        bytes: Bytes,
    },
    /// With the changes that were reported when it was asked for.
    Sync {
        file: FileId,
        covered: Vec<u64>,
    },
    Read {
        file: FileId,
        position: u64,
        len: u32,
    },
    Map {
        file: FileId,
    },
    SetLen {
        file: FileId,
        len: u64,
    },
    Replace {
        file: FileId,
        content: Bytes,
    },
    Delete {
        files: Vec<FileId>,
    },
    CreateLog {
        log: TopicPartition,
        name: String,
    },
    DeleteLog {
        log: TopicPartition,
    },
    /// A write that was reported before ([`Lie::EarlyWrites`]).
    Late {
        file: FileId,
        position: u64,
        bytes: Bytes,
    },
}

struct Pending {
    shard: u16,
    op: Op,
    work: Work,
}

/// A change of a file: directory, name and the disk's number.
pub type Changed = (Path, String, u64);

/// What is to be reported to a shard.
pub struct Finished {
    pub shard: u16,
    pub op: Op,
    pub file: Option<FileId>,
    pub outcome: Result<Done, DiskFailure>,
    /// The change that the report makes known: a later sync covers it.
    pub change: Option<Changed>,
}

/// See the module.
pub struct Device {
    pub disk: Disk,
    /// Where each replica lies.
    pub places: BTreeMap<TopicPartition, Path>,
    /// Failures of an operation: one in so many, per log directory; 0 = never.
    pub fails_once_in: [u64; 2],
    /// Nothing of the metadata log happens.
    pub metadata_frozen: bool,
    pub lie: Option<Lie>,
    pending: Vec<Pending>,
    renames: u64,
}

impl Device {
    pub fn new(lie: Option<Lie>) -> Device {
        Device {
            disk: Disk::default(),
            places: BTreeMap::new(),
            fails_once_in: [0; 2],
            metadata_frozen: false,
            lie,
            pending: Vec::new(),
            renames: 0,
        }
    }

    /// Takes an effect on files over. False if it is none.
    pub fn take(&mut self, shard: u16, effect: Effect) -> bool {
        let (op, work) = match effect {
            Effect::Write {
                op,
                file,
                position,
                chunks,
            } => {
                let mut bytes = BytesMut::new();
                chunks
                    .iter()
                    .for_each(|chunk| bytes.extend_from_slice(chunk));
                let bytes = bytes.freeze();
                (
                    op,
                    Work::Write {
                        file,
                        position,
                        bytes,
                    },
                )
            }
            Effect::Sync { op, file } => {
                let covered = self
                    .at(file)
                    .map_or_else(Vec::new, |(path, name)| self.disk.covered(&path, &name));
                (op, Work::Sync { file, covered })
            }
            Effect::Read {
                op,
                file,
                position,
                len,
            } => (
                op,
                Work::Read {
                    file,
                    position,
                    len,
                },
            ),
            Effect::Map { op, file } => (op, Work::Map { file }),
            Effect::Seal { op, file, len } | Effect::Truncate { op, file, len } => {
                (op, Work::SetLen { file, len })
            }
            Effect::Replace { op, file, content } => (op, Work::Replace { file, content }),
            Effect::Delete { op, files, .. } => (op, Work::Delete { files }),
            Effect::CreateLog { op, log, name } => {
                let name = name.to_string();
                (op, Work::CreateLog { log, name })
            }
            Effect::DeleteLog { op, log, .. } => (op, Work::DeleteLog { log }),
            _ => return false,
        };
        self.pending.push(Pending { shard, op, work });
        true
    }

    /// Operations that have not happened yet.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    fn at(&self, file: FileId) -> Option<(Path, String)> {
        let path = self.places.get(&file.log)?.clone();
        Some((path, file_name(file)))
    }

    /// Whether operation `at` may happen now: nothing that stands before it touches the same file.
    fn may_happen(&self, at: usize) -> bool {
        let work = &self.pending[at].work;
        let frozen = self.metadata_frozen && work.log() == METADATA_LOG;
        !frozen
            && self.pending[..at]
                .iter()
                .all(|earlier| !earlier.work.meets(work))
    }

    /// One operation happens, any that may. `None` if none may now.
    pub fn step(&mut self, seeded: &mut Seeded, wall_ms: i64) -> Option<Finished> {
        let from = if self.pending.is_empty() {
            return None;
        } else {
            seeded.index(self.pending.len())
        };
        let order = (from..self.pending.len()).chain(0..from);
        let at = { order }.find(|at| self.may_happen(*at))?;
        let Pending { shard, op, work } = self.pending.remove(at);
        if let Work::Late {
            file,
            position,
            bytes,
        } = work
        {
            self.write(file, position, bytes, wall_ms);
            return self.step(seeded, wall_ms);
        }
        Some(self.happen(shard, op, work, seeded, wall_ms))
    }

    fn happen(
        &mut self,
        shard: u16,
        op: Op,
        work: Work,
        seeded: &mut Seeded,
        wall_ms: i64,
    ) -> Finished {
        let file = work.file();
        let root = self.places.get(&work.log()).map_or(0, |path| path.0);
        let odds = self.fails_once_in[usize::from(root)];
        if odds > 0 && seeded.once_in(odds) {
            if seeded.percent(50) {
                self.happen_in_part(work, seeded, wall_ms);
            }
            return Finished {
                shard,
                op,
                file,
                outcome: Err(DiskFailure),
                change: None,
            };
        }
        let (outcome, change) = self.carry_out(work, seeded, wall_ms);
        Finished {
            shard,
            op,
            file,
            outcome,
            change,
        }
    }

    fn write(
        &mut self,
        file: FileId,
        position: u64,
        bytes: Bytes,
        wall_ms: i64,
    ) -> Option<Changed> {
        let (path, name) = self.at(file)?;
        let change = self.disk.write(&path, &name, position, bytes, wall_ms)?;
        Some((path, name, change))
    }

    fn carry_out(
        &mut self,
        work: Work,
        seeded: &mut Seeded,
        wall_ms: i64,
    ) -> (Result<Done, DiskFailure>, Option<Changed>) {
        let written = (Ok(Done::Written), None);
        match work {
            Work::Write {
                file,
                position,
                bytes,
            } => {
                let is_log = file.kind == FileKind::Log && file.log != METADATA_LOG;
                if self.lie == Some(Lie::EarlyWrites) && is_log && seeded.percent(20) {
                    self.later(file, position, bytes);
                    return written;
                }
                let bytes = match self.lie {
                    Some(Lie::WrongBytes) if is_log && seeded.percent(5) => wrong(&bytes),
                    _ => bytes,
                };
                match self.write(file, position, bytes, wall_ms) {
                    Some(change) => (Ok(Done::Written), Some(change)),
                    None => (Err(DiskFailure), None),
                }
            }
            Work::Late { .. } => written,
            Work::Sync { file, covered } => {
                if self.lie != Some(Lie::IdleSyncs)
                    && let Some((path, name)) = self.at(file)
                {
                    self.disk.sync(&path, &name, &covered);
                }
                (Ok(Done::Synced), None)
            }
            Work::Read {
                file,
                position,
                len,
            } => (self.read(file, position, u64::from(len)), None),
            Work::Map { file } => (self.read(file, 0, u64::MAX), None),
            Work::SetLen { file, len } => {
                let place = self.at(file);
                let change = place.and_then(|(path, name)| {
                    let change = self.disk.set_len(&path, &name, len, wall_ms)?;
                    Some((path, name, change))
                });
                (Ok(Done::Written), change)
            }
            Work::Replace { file, content } => {
                if let Some((path, name)) = self.at(file) {
                    self.disk.replace(&path, &name, &content, wall_ms);
                }
                written
            }
            Work::Delete { files } => {
                self.delete(&files);
                written
            }
            Work::CreateLog { log, name } => {
                self.create_log(log, &name, 3, wall_ms);
                written
            }
            Work::DeleteLog { log } => {
                self.delete_log(log);
                written
            }
        }
    }

    fn later(&mut self, file: FileId, position: u64, bytes: Bytes) {
        let work = Work::Late {
            file,
            position,
            bytes,
        };
        let op = Op { slot: 0, seq: 0 };
        self.pending.push(Pending { shard: 0, op, work });
    }

    fn read(&self, file: FileId, position: u64, len: u64) -> Result<Done, DiskFailure> {
        let (path, name) = self.at(file).ok_or(DiskFailure)?;
        let content = self.disk.read(&path, &name).ok_or(DiskFailure)?;
        Ok(Done::Bytes(slice(content, position, len)))
    }

    fn delete(&mut self, files: &[FileId]) {
        for file in files {
            if let Some((path, name)) = self.at(*file) {
                self.disk.unlink(&path, &name);
            }
        }
    }

    /// Makes a replica's directory; a crash stops at an earlier stage than 3.
    fn create_log(&mut self, log: TopicPartition, name: &str, stage: usize, wall_ms: i64) {
        let used = |root: u8| self.places.values().filter(|path| path.0 == root).count();
        let root = u8::from(used(1) < used(0));
        let path = (root, name.to_owned());
        if stage >= 1 {
            self.disk.create_dir(&path);
        }
        if stage >= 2 {
            self.disk.set_topic_id(&path, log.topic_id);
        }
        if stage >= 3 {
            for suffix in ["log", "index", "timeindex"] {
                let name = format!("{:020}.{suffix}", 0);
                self.disk.set_len(&path, &name, 0, wall_ms);
                self.disk.sync_content(&path, &name);
            }
            self.disk.sync_dir(&path);
            self.places.insert(log, path);
        }
    }

    fn delete_log(&mut self, log: TopicPartition) {
        if let Some(path) = self.places.remove(&log) {
            self.rename_away(&path, "delete");
        }
    }

    /// The directory is no replica's any more.
    pub fn rename_away(&mut self, path: &Path, suffix: &str) {
        self.renames += 1;
        let to = (path.0, format!("{}.{}-{suffix}", path.1, self.renames));
        self.disk.rename_dir(path, to);
    }

    /// What an operation that was under way may leave behind.
    fn happen_in_part(&mut self, work: Work, seeded: &mut Seeded, wall_ms: i64) {
        match work {
            Work::Write {
                file,
                position,
                bytes,
            }
            | Work::Late {
                file,
                position,
                bytes,
            } => {
                let bytes = bytes.slice(..seeded.index(bytes.len() + 1));
                self.write(file, position, bytes, wall_ms);
            }
            Work::Delete { files } => {
                let some = seeded.index(files.len() + 1);
                self.delete(&files[..some]);
            }
            Work::CreateLog { log, name } => {
                let stage = seeded.index(4);
                self.create_log(log, &name, stage, wall_ms);
            }
            work @ (Work::SetLen { .. } | Work::Replace { .. } | Work::DeleteLog { .. }) => {
                if seeded.percent(50) {
                    drop(self.carry_out(work, seeded, wall_ms));
                }
            }
            Work::Sync { file, covered } => {
                if let Some((path, name)) = self.at(file).filter(|_| seeded.percent(50)) {
                    self.disk.sync(&path, &name, &covered);
                }
            }
            Work::Read { .. } | Work::Map { .. } => {}
        }
    }

    /// The process is gone: of what was under way anything may have happened, in part too, in order as far as one file is concerned.
    pub fn kill(&mut self, seeded: &mut Seeded, wall_ms: i64) {
        while !self.pending.is_empty() {
            let Pending { work, .. } = self.pending.remove(0);
            match seeded.below(3) {
                0 => {
                    drop(self.carry_out(work, seeded, wall_ms));
                }
                1 => {
                    self.pending.retain(|later| !later.work.meets(&work));
                    self.happen_in_part(work, seeded, wall_ms);
                }
                _ => self.pending.retain(|later| !later.work.meets(&work)),
            }
        }
        self.disk.outlive_process();
    }
}

fn slice(content: &[u8], position: u64, len: u64) -> Bytes {
    let from = content
        .len()
        .min(usize::try_from(position).unwrap_or(usize::MAX));
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    Bytes::copy_from_slice(&content[from..from + len.min(content.len() - from)])
}

fn wrong(bytes: &Bytes) -> Bytes {
    let mut wrong = bytes.to_vec();
    if let Some(last) = wrong.last_mut() {
        *last ^= 1;
    }
    wrong.into()
}

impl Work {
    fn file(&self) -> Option<FileId> {
        match self {
            Work::Write { file, .. }
            | Work::Sync { file, .. }
            | Work::Read { file, .. }
            | Work::Map { file }
            | Work::SetLen { file, .. }
            | Work::Replace { file, .. }
            | Work::Late { file, .. } => Some(*file),
            Work::Delete { .. } | Work::CreateLog { .. } | Work::DeleteLog { .. } => None,
        }
    }

    fn log(&self) -> TopicPartition {
        match self {
            Work::CreateLog { log, .. } | Work::DeleteLog { log } => *log,
            Work::Delete { files } => files.first().map_or(METADATA_LOG, |file| file.log),
            work => work.file().map_or(METADATA_LOG, |file| file.log),
        }
    }

    /// Both touch the same file, or one of them the whole directory.
    fn meets(&self, other: &Work) -> bool {
        // A lie does not hold up what comes after it: that is the point.
        if matches!(self, Work::Late { .. }) || self.log() != other.log() {
            return false;
        }
        match (self.file(), other.file()) {
            (Some(one), Some(two)) => one == two,
            (Some(file), None) => other.touches(file),
            (None, Some(file)) => self.touches(file),
            (None, None) => true,
        }
    }

    fn touches(&self, file: FileId) -> bool {
        match self {
            Work::Delete { files } => files.contains(&file),
            _ => true,
        }
    }
}

/// The name of a file in its log's directory (kafka.md 5.1).
pub fn file_name(file: FileId) -> String {
    corelog::engine::storage::file_name(file)
}
