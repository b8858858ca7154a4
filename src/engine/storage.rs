//! Log directories: which files and directories a partition's identity stands for, and the slow operations on them.
//!
//! Everything here may block and is called from helper threads, or before serving. Paths are known here and nowhere else.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use corelog_io::disk::dir;
use corelog_shards::base::ids::{FileId, FileKind, TopicPartition, Uuid};
use corelog_shards::effect::PartitionCheckpoint;
use corelog_shards::log::checkpoint_format::{self, OffsetLine};

/// The name of the metadata log's directory.
pub const METADATA_LOG_NAME: &str = "__cluster_metadata-0";

const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";
const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";
const HIGH_WATERMARKS: &str = "replication-offset-checkpoint";
const LOG_STARTS: &str = "log-start-offset-checkpoint";

/// Suffixes of directories that are not replicas (kafka.md 5.1).
const DELETE_SUFFIX: &str = "-delete";
const STRAY_SUFFIX: &str = "-stray";
const FUTURE_SUFFIX: &str = "-future";

/// Names longer than this do not fit a directory entry.
const NAME_BYTES_MAX: usize = 255;

/// The name of a file within its partition's directory.
pub fn file_name(file: FileId) -> String {
    let base = file.base;
    match file.kind {
        FileKind::Log => format!("{base:020}.log"),
        FileKind::OffsetIndex => format!("{base:020}.index"),
        FileKind::TimeIndex => format!("{base:020}.timeindex"),
        FileKind::TxnIndex => format!("{base:020}.txnindex"),
        FileKind::ProducerSnapshot => format!("{base:020}.snapshot"),
        FileKind::LeaderEpochs => "leader-epoch-checkpoint".to_owned(),
        FileKind::PartitionMetadata => "partition.metadata".to_owned(),
        FileKind::MetadataSnapshot { epoch } => format!("{base:020}-{epoch:010}.checkpoint"),
    }
}

/// `<topic>-<partition>` taken apart.
pub fn parse_partition_name(name: &str) -> Option<(&str, i32)> {
    let (topic, partition) = name.rsplit_once('-')?;
    let partition: i32 = partition.parse().ok().filter(|p| *p >= 0)?;
    (!topic.is_empty()).then_some((topic, partition))
}

/// A directory that holds a replica, found at start.
#[derive(Debug, Clone)]
pub struct FoundLog {
    pub name: String,
    pub topic: String,
    pub id: TopicPartition,
}

/// What a log directory holds.
#[derive(Debug, Default)]
pub struct Found {
    pub logs: Vec<FoundLog>,
    /// Replicas without a readable `partition.metadata`: strays (5.2).
    pub nameless: Vec<String>,
    /// Directories whose deletion was begun before (L-30).
    pub to_delete: Vec<PathBuf>,
}

/// Lists the replicas of a log directory. A sub-directory whose name means nothing is left alone.
pub fn scan(root: &Path) -> io::Result<Found> {
    let mut found = Found::default();
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            continue;
        }
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if name.ends_with(DELETE_SUFFIX) {
            found.to_delete.push(entry.path());
            continue;
        }
        if name == METADATA_LOG_NAME
            || name.ends_with(STRAY_SUFFIX)
            || name.ends_with(FUTURE_SUFFIX)
        {
            continue;
        }
        let Some((topic, partition)) = parse_partition_name(&name) else {
            tracing::warn!(directory = %entry.path().display(), "not a replica: left alone");
            continue;
        };
        match read_topic_id(&entry.path())? {
            Some(topic_id) => {
                let id = TopicPartition {
                    topic_id,
                    partition,
                };
                found.logs.push(FoundLog {
                    topic: topic.to_owned(),
                    name: name.clone(),
                    id,
                });
            }
            None => found.nameless.push(name),
        }
    }
    Ok(found)
}

fn read_topic_id(directory: &Path) -> io::Result<Option<Uuid>> {
    match fs::read_to_string(directory.join("partition.metadata")) {
        Ok(text) => match checkpoint_format::parse_partition_metadata(&text) {
            Ok(topic_id) => Ok(Some(topic_id)),
            Err(error) => {
                tracing::warn!(directory = %directory.display(), %error, "partition.metadata can't be read");
                Ok(None)
            }
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes a replica's directory with its identity and empty first segment files (Kafka makes them at once, too).
pub fn create_log(root: &Path, name: &str, topic_id: Uuid) -> io::Result<()> {
    let path = root.join(name);
    fs::create_dir_all(&path)?;
    let metadata = checkpoint_format::format_partition_metadata(topic_id);
    dir::write_atomically(&path.join("partition.metadata"), metadata.as_bytes())?;
    for suffix in ["log", "index", "timeindex"] {
        fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join(format!("{:020}.{suffix}", 0)))?;
    }
    dir::sync_dir(&path)?;
    dir::sync_dir(root)
}

/// Renames a replica's directory so that it no longer is one, and says what to remove later.
pub fn rename_away(root: &Path, name: &str, unique: u128, suffix: &str) -> io::Result<PathBuf> {
    let tail = format!(".{unique:032x}{suffix}");
    let keep = name.len().min(NAME_BYTES_MAX - tail.len());
    let renamed = root.join(format!("{}{tail}", &name[..keep]));
    fs::rename(root.join(name), &renamed)?;
    dir::sync_dir(root)?;
    Ok(renamed)
}

/// [`rename_away`] for a topic's deletion (L-30).
pub fn rename_for_delete(root: &Path, name: &str, unique: u128) -> io::Result<PathBuf> {
    rename_away(root, name, unique, DELETE_SUFFIX)
}

/// [`rename_away`] for a replica that the metadata does not know (L-10): kept for the operator.
pub fn rename_stray(root: &Path, name: &str, unique: u128) -> io::Result<PathBuf> {
    rename_away(root, name, unique, STRAY_SUFFIX)
}

/// Renames files to `*.deleted`; gives the paths to unlink after the delay. Files that are not there are fine.
pub fn mark_deleted(directory: &Path, names: &[String]) -> io::Result<Vec<PathBuf>> {
    let mut marked = Vec::new();
    for name in names {
        let to = directory.join(format!("{name}.deleted"));
        match fs::rename(directory.join(name), &to) {
            Ok(()) => marked.push(to),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(marked)
}

/// The checkpoint files of one log directory.
#[derive(Debug, Default, Clone)]
pub struct Checkpoints {
    pub recovery_points: BTreeMap<(String, i32), i64>,
    pub high_watermarks: BTreeMap<(String, i32), i64>,
    pub log_starts: BTreeMap<(String, i32), i64>,
}

impl Checkpoints {
    /// Reads the three files. A file that is not there is empty; a malformed one is an error (5.2).
    pub fn read(root: &Path) -> io::Result<Checkpoints> {
        Ok(Checkpoints {
            recovery_points: read_offsets(&root.join(RECOVERY_POINTS))?,
            high_watermarks: read_offsets(&root.join(HIGH_WATERMARKS))?,
            log_starts: read_offsets(&root.join(LOG_STARTS))?,
        })
    }

    /// Takes over what a shard reports of one partition.
    pub fn note(&mut self, topic: &str, checkpoint: &PartitionCheckpoint) {
        let key = (topic.to_owned(), checkpoint.log.partition);
        if checkpoint.log_start_offset > checkpoint.first_segment_base {
            self.log_starts
                .insert(key.clone(), checkpoint.log_start_offset);
        } else {
            self.log_starts.remove(&key);
        }
        self.high_watermarks
            .insert(key.clone(), checkpoint.high_watermark);
        self.recovery_points.insert(key, checkpoint.recovery_point);
    }

    pub fn forget(&mut self, topic: &str, partition: i32) {
        let key = (topic.to_owned(), partition);
        self.recovery_points.remove(&key);
        self.high_watermarks.remove(&key);
        self.log_starts.remove(&key);
    }

    /// Is there anything about this replica?
    pub fn knows(&self, topic: &str, partition: i32) -> bool {
        let key = (topic.to_owned(), partition);
        [
            &self.recovery_points,
            &self.high_watermarks,
            &self.log_starts,
        ]
        .iter()
        .any(|lines| lines.contains_key(&key))
    }

    /// Writes the three files, each atomically.
    pub fn write(&self, root: &Path) -> io::Result<()> {
        write_offsets(&root.join(RECOVERY_POINTS), &self.recovery_points)?;
        write_offsets(&root.join(HIGH_WATERMARKS), &self.high_watermarks)?;
        write_offsets(&root.join(LOG_STARTS), &self.log_starts)
    }
}

fn read_offsets(path: &Path) -> io::Result<BTreeMap<(String, i32), i64>> {
    match fs::read_to_string(path) {
        Ok(text) => match checkpoint_format::parse_offsets(&text) {
            Ok(lines) => Ok(lines
                .into_iter()
                .map(|line| ((line.topic, line.partition), line.offset))
                .collect()),
            Err(error) => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{}: {error}", path.display()),
            )),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(error),
    }
}

fn write_offsets(path: &Path, offsets: &BTreeMap<(String, i32), i64>) -> io::Result<()> {
    let line = |((topic, partition), offset): (&(String, i32), &i64)| OffsetLine {
        topic: topic.clone(),
        partition: *partition,
        offset: *offset,
    };
    let lines: Vec<OffsetLine> = offsets.iter().map(line).collect();
    dir::write_atomically(path, checkpoint_format::format_offsets(&lines).as_bytes())
}

/// Reads and removes the sign of a clean stop. It is removed before anything is served: from here on, a crash is unclean.
pub fn take_clean_shutdown(root: &Path) -> io::Result<Option<i64>> {
    let path = root.join(CLEAN_SHUTDOWN);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    fs::remove_file(&path)?;
    dir::sync_dir(root)?;
    // An empty file of an older version means clean, epoch unknown (5.2).
    let epoch = text.split("\"brokerEpoch\":").nth(1).and_then(|rest| {
        let digits: String = rest
            .trim_start()
            .chars()
            .take_while(|c| c.is_ascii_digit() || *c == '-')
            .collect();
        digits.parse().ok()
    });
    Ok(Some(epoch.unwrap_or(-1)))
}

/// Leaves the sign of a clean stop. Everything else must be durable before.
pub fn write_clean_shutdown(root: &Path, broker_epoch: i64) -> io::Result<()> {
    dir::write_atomically(
        &root.join(CLEAN_SHUTDOWN),
        format!("{{\"version\":0,\"brokerEpoch\":{broker_epoch}}}").as_bytes(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_name_ends_in_its_number() {
        assert_eq!(parse_partition_name("a-b-12"), Some(("a-b", 12)));
        assert_eq!(parse_partition_name("a--1"), Some(("a-", 1)));
        assert_eq!(parse_partition_name("plain"), None);
        assert_eq!(parse_partition_name("-3"), None);
    }

    #[test]
    fn file_names_are_kafkas() {
        let log = TopicPartition {
            topic_id: Uuid([0; 16]),
            partition: 0,
        };
        let name = |kind, base| file_name(FileId { log, kind, base });
        assert_eq!(name(FileKind::Log, 0), "00000000000000000000.log");
        assert_eq!(
            name(FileKind::ProducerSnapshot, 42),
            "00000000000000000042.snapshot"
        );
        assert_eq!(
            name(FileKind::MetadataSnapshot { epoch: 3 }, 7),
            "00000000000000000007-0000000003.checkpoint"
        );
    }
}
