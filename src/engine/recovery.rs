//! Opens logs: runs the sequential recovery of `shards::log` over the real directory, on whatever thread calls.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use corelog_io::disk::dir;
use corelog_shards::base::ids::TopicPartition;
use corelog_shards::base::time::Now;
use corelog_shards::log::{
    DirEntry, DiskOrder, Log, OpenFailure, RecoveryInput, Shutdown, recover,
};
use corelog_shards::metadata::{Image, TopicConfig};

use super::clock::Clock;
use super::log_dirs::LogDirs;

/// What every recovery of this start shares.
pub struct Recoverer {
    dirs: Arc<LogDirs>,
    shutdown: Shutdown,
    clock: Clock,
    /// The image by which a log's configuration is known: set before any shard can ask for a log.
    image: RwLock<Option<Arc<Image>>>,
    first_image: OnceLock<()>,
}

impl Recoverer {
    pub fn new(dirs: Arc<LogDirs>, shutdown: Shutdown, clock: Clock) -> Recoverer {
        Recoverer {
            dirs,
            shutdown,
            clock,
            image: RwLock::new(None),
            first_image: OnceLock::new(),
        }
    }

    /// There is a newer image. True for the first one.
    pub fn set_image(&self, image: &Arc<Image>) -> bool {
        *self.image.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(image));
        self.first_image.set(()).is_ok()
    }

    pub fn directory(&self, log: TopicPartition) -> Option<PathBuf> {
        self.dirs.path(log)
    }

    /// Opens the log of a replica that is on disk.
    pub fn open(&self, log: TopicPartition) -> Result<Box<Log>, OpenFailure> {
        let directory = self.dirs.path(log).ok_or_else(|| OpenFailure {
            reason: "the replica has no directory".to_owned(),
        })?;
        let config = {
            let image = self.image.read().unwrap_or_else(PoisonError::into_inner);
            image
                .as_ref()
                .and_then(|image| image.topic_by_id(log.topic_id))
                .map(|topic| Arc::clone(&topic.config))
        };
        let (recovery_point, _, log_start) = self.dirs.checkpoint(log);
        let opening = Opening {
            id: log,
            slot: 0,
            directory: &directory,
            recovery_point: recovery_point.unwrap_or(0),
            log_start: log_start.unwrap_or(0),
            config: config.unwrap_or_else(|| Arc::new(TopicConfig::default())),
            shutdown: self.shutdown,
            now: self.clock.now(),
        };
        open(opening).inspect_err(|failure| {
            tracing::error!(directory = %directory.display(), reason = %failure.reason, "log can't be opened: its partition stays offline");
        })
    }
}

/// One log to open.
pub struct Opening<'a> {
    pub id: TopicPartition,
    /// The owner's slot, if it is known already (an owner sets its own otherwise).
    pub slot: u32,
    pub directory: &'a Path,
    pub recovery_point: i64,
    pub log_start: i64,
    pub config: Arc<TopicConfig>,
    pub shutdown: Shutdown,
    pub now: Now,
}

pub fn open(opening: Opening<'_>) -> Result<Box<Log>, OpenFailure> {
    let told = |what: &str, error: &io::Error| OpenFailure {
        reason: format!("{what}: {error}"),
    };
    let files =
        list(opening.directory).map_err(|error| told("cannot list the directory", &error))?;
    let input = RecoveryInput {
        id: opening.id,
        slot: opening.slot,
        files,
        shutdown: opening.shutdown,
        recovery_point: opening.recovery_point,
        log_start: opening.log_start,
        truncate_to: None,
        config: opening.config,
        now: opening.now,
    };
    let directory = opening.directory;
    let mut open_file = None;
    recover(input, &mut |order| {
        let shown = format!("{order:?}");
        carry_out(directory, order, &mut open_file).map_err(|error| {
            let shown: String = shown.chars().take(120).collect();
            format!("{shown}: {error}")
        })
    })
}

fn list(directory: &Path) -> io::Result<Vec<DirEntry>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if metadata.is_file() {
            let modified = metadata
                .modified()?
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            files.push(DirEntry {
                name,
                len: metadata.len(),
                modified_ms: modified.as_millis() as i64,
            });
        }
    }
    Ok(files)
}

/// The file that was read last stays open: recovery reads one file piece by piece.
type OpenFile = Option<(String, File)>;

fn carry_out(directory: &Path, order: DiskOrder, open_file: &mut OpenFile) -> io::Result<Bytes> {
    let path = |name: &str| directory.join(name);
    match order {
        DiskOrder::Read {
            name,
            position,
            len,
        } => return read(directory, name, position, len, open_file),
        DiskOrder::Write {
            name,
            position,
            bytes,
        } => {
            OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(path(&name))?
                .write_all_at(&bytes, position)?;
        }
        DiskOrder::Truncate { name, len } => {
            *open_file = None;
            OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(path(&name))?
                .set_len(len)?;
        }
        DiskOrder::Replace { name, content } => {
            *open_file = None;
            dir::write_atomically(&path(&name), &content)?;
        }
        DiskOrder::Delete { name } => {
            *open_file = None;
            match fs::remove_file(path(&name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        DiskOrder::Rename { from, to } => {
            *open_file = None;
            fs::rename(path(&from), path(&to))?;
        }
        DiskOrder::Sync { name } => OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path(&name))?
            .sync_all()?,
        DiskOrder::SyncDirectory => dir::sync_dir(directory)?,
    }
    Ok(Bytes::new())
}

fn read(
    directory: &Path,
    name: String,
    position: u64,
    len: u64,
    open_file: &mut OpenFile,
) -> io::Result<Bytes> {
    if open_file.as_ref().is_none_or(|(open, _)| *open != name) {
        let file = File::open(directory.join(&name))?;
        *open_file = Some((name, file));
    }
    let Some((_, file)) = open_file else {
        return Ok(Bytes::new());
    };
    let there = file.metadata()?.len().saturating_sub(position).min(len);
    let mut bytes = vec![0; usize::try_from(there).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, position)?;
    Ok(bytes.into())
}
