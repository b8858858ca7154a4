//! The files of one stripe: written under its lock, synced and read after it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use corelog_io::disk::{File, OpenMode, dir};
use corelog_shards::base::ids::{FileId, Op, TopicPartition};
use corelog_shards::effect::Chunks;
use corelog_shards::event::Done;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::engine::log_dirs::LogDirs;
use crate::engine::storage;

/// Files that stay open, of all stripes together; the rest is opened when it is needed.
const OPEN_FILES_MAX: usize = 4096;

/// A test's hold on the disk: while the file exists, nothing is written.
pub(super) struct Stall {
    sign: PathBuf,
}

/// A thread that stands still looks this often whether it may go on.
const STALL_LOOK: Duration = Duration::from_millis(20);

impl Stall {
    pub(super) fn new(sign: PathBuf) -> Stall {
        Stall { sign }
    }

    /// Stands still as a disk would: with the thread that writes, and the stripe that it holds.
    fn wait(&self) {
        while self.sign.exists() {
            thread::sleep(STALL_LOOK);
        }
    }
}

pub(super) struct Files {
    dirs: Arc<LogDirs>,
    open: FxHashMap<FileId, File>,
    open_max: usize,
    /// Made here, and not synced with their directory yet.
    nameless: FxHashSet<FileId>,
    stall: Option<Arc<Stall>>,
}

/// What is done to a file after the lock of its stripe is given back.
pub(super) enum FileWork {
    Sync { file: File, with_name: bool },
    Read { file: File, position: u64, len: u32 },
}

/// One [`FileWork`] that a shard waits for.
pub(super) struct Waited {
    pub(super) op: Op,
    pub(super) id: FileId,
    pub(super) work: FileWork,
}

impl Files {
    /// Of one of `stripes`.
    pub(super) fn new(dirs: Arc<LogDirs>, stripes: usize, stall: Option<Arc<Stall>>) -> Files {
        Files {
            dirs,
            open: FxHashMap::default(),
            open_max: (OPEN_FILES_MAX / stripes).max(1),
            nameless: FxHashSet::default(),
            stall,
        }
    }

    /// Writes to the page cache; makes the file if it is not there.
    pub(super) fn write(&mut self, id: FileId, position: u64, chunks: &Chunks) -> io::Result<()> {
        if let Some(stall) = &self.stall {
            stall.wait();
        }
        let file = match self.existing(id) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let file = File::open(self.path(id)?, OpenMode::WriteOrCreate)?;
                self.nameless.insert(id);
                self.keep(id, &file);
                file
            }
            other => other?,
        };
        file.write_all_at(position, chunks)
    }

    pub(super) fn sync(&mut self, op: Op, id: FileId) -> io::Result<Waited> {
        let file = self.existing(id)?;
        // The name of a new file is not durable before its directory is.
        let with_name = self.nameless.remove(&id);
        let work = FileWork::Sync { file, with_name };
        Ok(Waited { op, id, work })
    }

    pub(super) fn read(
        &mut self,
        op: Op,
        id: FileId,
        position: u64,
        len: u32,
    ) -> io::Result<Waited> {
        let file = self.existing(id)?;
        let work = FileWork::Read {
            file,
            position,
            len,
        };
        Ok(Waited { op, id, work })
    }

    pub(super) fn close(&mut self, id: FileId) {
        self.open.remove(&id);
    }

    pub(super) fn close_all(&mut self, log: TopicPartition) {
        self.open.retain(|file, _| file.log != log);
        self.nameless.retain(|file| file.log != log);
    }

    pub(super) fn shown(&self, id: FileId) -> String {
        self.path(id)
            .map_or_else(|_| format!("{id:?}"), |path| path.display().to_string())
    }

    /// A file that is gone stays gone.
    fn existing(&mut self, id: FileId) -> io::Result<File> {
        if let Some(file) = self.open.get(&id) {
            return Ok(file.clone());
        }
        let file = File::open(self.path(id)?, OpenMode::Write)?;
        self.keep(id, &file);
        Ok(file)
    }

    fn keep(&mut self, id: FileId, file: &File) {
        if self.open.len() >= self.open_max {
            // Closing costs a reopen at most; which one hardly matters when so many are in use.
            let victim = self.open.keys().next().copied();
            victim.map(|victim| self.open.remove(&victim));
        }
        self.open.insert(id, file.clone());
    }

    pub(super) fn directory(&self, log: TopicPartition) -> Option<PathBuf> {
        self.dirs.path(log)
    }

    fn path(&self, id: FileId) -> io::Result<PathBuf> {
        let directory = self.directory(id.log).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "the replica has no directory")
        })?;
        Ok(directory.join(storage::file_name(id)))
    }
}

impl FileWork {
    /// Does it, on whatever thread calls; waits for the disk.
    pub(super) fn carry_out(self) -> io::Result<Done> {
        match self {
            FileWork::Sync { file, with_name } => {
                if with_name {
                    file.sync_all()?;
                    dir::sync_dir(file.path().parent().unwrap_or(file.path()))?;
                } else {
                    file.sync_data()?;
                }
                Ok(Done::Synced)
            }
            FileWork::Read {
                file,
                position,
                len,
            } => read(&file, position, len as usize).map(Done::Bytes),
        }
    }
}

/// At most `len` bytes; fewer at the end of the file.
fn read(file: &File, position: u64, len: usize) -> io::Result<Bytes> {
    let mut bytes = vec![0; len];
    let mut got = 0;
    while got < len {
        match file.read_at(position + got as u64, &mut bytes[got..])? {
            0 => break,
            more => got += more,
        }
    }
    bytes.truncate(got);
    Ok(bytes.into())
}
