//! The log directories of this broker: which replica lies where, what their checkpoint files say, what waits for removal.
//!
//! Shared by cores, helper threads and housekeeping, on the control path only: one lock, never held during a system call that waits for a disk,
//! but for the checkpoint files, which have a lock of their own.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use corelog_io::disk::space::space;
use corelog_shards::base::ids::{Text, TopicPartition, Uuid};
use corelog_shards::effect::PartitionCheckpoint;
use rustc_hash::FxHashMap;

use super::storage::{self, Checkpoints};
use crate::api::{Directories, DirectoryView};

/// Where a replica lies.
#[derive(Debug, Clone)]
pub struct Place {
    pub directory: u16,
    /// `<topic>-<partition>`
    pub name: String,
}

struct State {
    places: FxHashMap<TopicPartition, Place>,
    /// Which replica a name belongs to: a topic may be gone, and another of its name be there, before its directory is.
    names: FxHashMap<String, TopicPartition>,
    /// Per directory.
    checkpoints: Vec<Checkpoints>,
    /// What the files of each directory say.
    on_disk: Vec<Checkpoints>,
    replicas: Vec<usize>,
    changed: bool,
    offline: Vec<bool>,
    /// Files and directories to remove, each at its time.
    doomed: BinaryHeap<Reverse<(Instant, PathBuf)>>,
    /// Makes the names of renamed directories unique.
    renames: u128,
}

pub struct LogDirs {
    roots: Vec<PathBuf>,
    state: Mutex<State>,
    /// Held while checkpoint files are written, so that an older state never replaces a newer one.
    writing: Mutex<()>,
}

impl LogDirs {
    /// `checkpoints` as read at start, one per root; `seed` makes names of renamed directories unique across runs.
    pub fn new(roots: Vec<PathBuf>, checkpoints: Vec<Checkpoints>, seed: u128) -> LogDirs {
        assert_eq!(
            roots.len(),
            checkpoints.len(),
            "one set of checkpoints per log directory"
        );
        let state = State {
            places: FxHashMap::default(),
            names: FxHashMap::default(),
            replicas: vec![0; roots.len()],
            offline: vec![false; roots.len()],
            on_disk: checkpoints.clone(),
            checkpoints,
            changed: false,
            doomed: BinaryHeap::new(),
            renames: seed,
        };
        LogDirs {
            roots,
            state: Mutex::new(state),
            writing: Mutex::new(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// A replica that was found at start.
    pub fn found(&self, log: TopicPartition, directory: u16, name: String) {
        let mut state = self.lock();
        state.replicas[usize::from(directory)] += 1;
        state.names.insert(name.clone(), log);
        state.places.insert(log, Place { directory, name });
    }

    /// Whether the directory of a deleted replica still has this name.
    pub fn is_taken(&self, name: &str, log: TopicPartition) -> bool {
        let state = self.lock();
        state.names.get(name).is_some_and(|holder| *holder != log)
    }

    pub fn place(&self, log: TopicPartition) -> Option<Place> {
        self.lock().places.get(&log).cloned()
    }

    /// The directory of a replica.
    pub fn path(&self, log: TopicPartition) -> Option<PathBuf> {
        let place = self.place(log)?;
        Some(self.roots[usize::from(place.directory)].join(place.name))
    }

    /// What the checkpoint files said of a replica: (recovery point, high watermark, log start).
    pub fn checkpoint(&self, log: TopicPartition) -> (Option<i64>, Option<i64>, Option<i64>) {
        let state = self.lock();
        let Some(place) = state.places.get(&log) else {
            return (None, None, None);
        };
        let Some((topic, partition)) = storage::parse_partition_name(&place.name) else {
            return (None, None, None);
        };
        let checkpoints = &state.checkpoints[usize::from(place.directory)];
        let key = (topic.to_owned(), partition);
        let get = |of: &std::collections::BTreeMap<(String, i32), i64>| of.get(&key).copied();
        (
            get(&checkpoints.recovery_points),
            get(&checkpoints.high_watermarks),
            get(&checkpoints.log_starts),
        )
    }

    /// Makes a new replica's directory, where the fewest are (L-31). Its name must not be taken.
    ///
    /// Checkpoint files know replicas by name: what they say of a deleted one of this name has to be gone from the disk first, or a crash would
    /// let the new one begin where the old one did, without the records below.
    pub fn create(&self, log: TopicPartition, name: &str) -> io::Result<PathBuf> {
        let (directory, is_remembered) = {
            let mut state = self.lock();
            if state.names.get(name).is_some_and(|holder| *holder != log) {
                return Err(io::Error::other(format!(
                    "{name} is still the directory of a deleted topic"
                )));
            }
            let open = (0..self.roots.len()).filter(|index| !state.offline[*index]);
            let Some(directory) = open.min_by_key(|index| state.replicas[*index]) else {
                return Err(io::Error::other("every log directory is offline"));
            };
            let mut is_remembered = false;
            if let Some((topic, partition)) = storage::parse_partition_name(name) {
                state.checkpoints[directory].forget(topic, partition);
                is_remembered = state.on_disk[directory].knows(topic, partition);
                state.changed |= is_remembered;
            }
            state.replicas[directory] += 1;
            state.names.insert(name.to_owned(), log);
            state.places.insert(
                log,
                Place {
                    directory: directory as u16,
                    name: name.to_owned(),
                },
            );
            (directory, is_remembered)
        };
        if is_remembered {
            self.write_checkpoints()?;
        }
        storage::create_log(&self.roots[directory], name, log.topic_id)?;
        Ok(self.roots[directory].join(name))
    }

    /// Renames a replica's directory away; it is removed after `delay` (L-30).
    pub fn delete(&self, log: TopicPartition, delay: Duration) -> io::Result<()> {
        let (place, unique) = {
            let mut state = self.lock();
            let Some(place) = state.places.remove(&log) else {
                return Ok(());
            };
            state.replicas[usize::from(place.directory)] -= 1;
            if let Some((topic, partition)) = storage::parse_partition_name(&place.name) {
                state.checkpoints[usize::from(place.directory)].forget(topic, partition);
                state.changed = true;
            }
            state.renames += 1;
            (place, state.renames)
        };
        let renamed = storage::rename_for_delete(
            &self.roots[usize::from(place.directory)],
            &place.name,
            unique,
        )?;
        self.lock().names.remove(&place.name);
        self.doom(renamed, delay);
        Ok(())
    }

    /// Renames a directory that the metadata does not know (L-10).
    pub fn stray(&self, directory: u16, name: &str) -> io::Result<PathBuf> {
        let unique = {
            let mut state = self.lock();
            state.renames += 1;
            state.renames
        };
        storage::rename_stray(&self.roots[usize::from(directory)], name, unique)
    }

    /// Renames files to `*.deleted` now and removes them after `delay` (L-13).
    pub fn delete_files(
        &self,
        directory: &Path,
        names: &[String],
        delay: Duration,
    ) -> io::Result<()> {
        for path in storage::mark_deleted(directory, names)? {
            self.doom(path, delay);
        }
        Ok(())
    }

    /// `path`, a file or a directory, is to be removed after `delay`.
    pub fn doom(&self, path: PathBuf, delay: Duration) {
        let at = Instant::now() + delay;
        self.lock().doomed.push(Reverse((at, path)));
    }

    /// Takes over what a shard reports.
    pub fn note(&self, reports: &[PartitionCheckpoint]) {
        let mut state = self.lock();
        let State {
            places,
            checkpoints,
            changed,
            ..
        } = &mut *state;
        for report in reports {
            let Some(place) = places.get(&report.log) else {
                continue;
            };
            let Some((topic, _)) = storage::parse_partition_name(&place.name) else {
                continue;
            };
            checkpoints[usize::from(place.directory)].note(topic, report);
            *changed = true;
        }
    }

    /// Writes the checkpoint files if anything in them has changed. Those of a failed directory are left as they are.
    pub fn write_checkpoints(&self) -> io::Result<()> {
        let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let (checkpoints, offline) = {
            let mut state = self.lock();
            if !std::mem::take(&mut state.changed) {
                return Ok(());
            }
            (state.checkpoints.clone(), state.offline.clone())
        };
        for (index, checkpoints) in checkpoints.into_iter().enumerate() {
            if !offline[index] {
                if let Err(error) = checkpoints.write(&self.roots[index]) {
                    self.lock().changed = true;
                    return Err(error);
                }
                self.lock().on_disk[index] = checkpoints;
            }
        }
        drop(writing);
        Ok(())
    }

    /// Removes what is due.
    pub fn remove_doomed(&self, now: Instant) {
        loop {
            let path = {
                let mut state = self.lock();
                match state.doomed.peek() {
                    Some(Reverse((at, _))) if *at <= now => {
                        state.doomed.pop().map(|Reverse((_, path))| path)
                    }
                    _ => None,
                }
            };
            let Some(path) = path else { return };
            let removed = if path.is_dir() {
                fs::remove_dir_all(&path)
            } else {
                fs::remove_file(&path)
            };
            match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(path = %path.display(), %error, "cannot remove what was deleted; remove it by hand");
                }
                _ => {}
            }
        }
    }

    /// Takes the directory of this replica out of use. Gives its path and every replica in it, the first time.
    pub fn set_offline(&self, log: TopicPartition) -> Option<(PathBuf, Vec<TopicPartition>)> {
        let mut state = self.lock();
        let directory = state.places.get(&log)?.directory;
        if std::mem::replace(&mut state.offline[usize::from(directory)], true) {
            return None;
        }
        let logs = state
            .places
            .iter()
            .filter(|(_, place)| place.directory == directory)
            .map(|(log, _)| *log);
        let mut logs: Vec<TopicPartition> = logs.collect();
        logs.sort_unstable();
        Some((self.roots[usize::from(directory)].clone(), logs))
    }

    /// How many directories have failed, and how many replicas are in them.
    pub fn offline(&self) -> (usize, usize) {
        let state = self.lock();
        let is_offline = |directory: u16| state.offline[usize::from(directory)];
        let directories = state.offline.iter().filter(|offline| **offline).count();
        let replicas = state.places.values();
        (
            directories,
            replicas.filter(|place| is_offline(place.directory)).count(),
        )
    }

    pub fn count(&self) -> usize {
        self.roots.len()
    }

    /// The replica is not one of this broker's any more.
    pub fn forget(&self, log: TopicPartition) {
        let mut state = self.lock();
        if let Some(place) = state.places.remove(&log) {
            state.replicas[usize::from(place.directory)] -= 1;
            state.names.remove(&place.name);
        }
    }

    /// What DescribeLogDirs shows.
    pub fn view(&self) -> Directories {
        let state = self.lock();
        let list = self.roots.iter().enumerate().map(|(index, root)| {
            let space = space(root).ok();
            DirectoryView {
                path: Text::from(root.display().to_string()),
                total_bytes: space.map_or(-1, |space| space.total as i64),
                usable_bytes: space.map_or(-1, |space| space.usable as i64),
                offline: state.offline[index],
            }
        });
        let elsewhere = state
            .places
            .iter()
            .filter(|(_, place)| place.directory != 0);
        Directories {
            list: list.collect(),
            of: elsewhere
                .map(|(log, place)| (*log, place.directory))
                .collect(),
        }
    }

    /// All replicas that were found or made, by identity.
    pub fn logs(&self) -> Vec<(TopicPartition, Place)> {
        let mut logs: Vec<_> = self
            .lock()
            .places
            .iter()
            .map(|(log, place)| (*log, place.clone()))
            .collect();
        logs.sort_unstable_by_key(|(log, _)| *log);
        logs
    }
}

/// A value that differs from run to run and from directory to directory.
pub fn seed_of(id: Uuid) -> u128 {
    u128::from_be_bytes(id.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(topic: u8) -> TopicPartition {
        TopicPartition {
            topic_id: Uuid([topic; 16]),
            partition: 0,
        }
    }

    #[test]
    fn a_name_is_taken_until_the_directory_of_the_deleted_topic_is_renamed() {
        let root = tempfile::tempdir().unwrap();
        let dirs = LogDirs::new(
            vec![root.path().to_owned()],
            vec![Checkpoints::default()],
            7,
        );
        dirs.create(log(1), "again-0").unwrap();
        assert!(dirs.is_taken("again-0", log(2)));
        assert!(!dirs.is_taken("again-0", log(1)));
        assert!(dirs.create(log(2), "again-0").is_err());
        dirs.delete(log(1), Duration::from_mins(1)).unwrap();
        assert!(!dirs.is_taken("again-0", log(2)));
        let path = dirs.create(log(2), "again-0").unwrap();
        assert!(path.join("partition.metadata").exists());
        assert_eq!(dirs.path(log(2)), Some(path));
        assert_eq!(dirs.path(log(1)), None);
    }

    #[test]
    fn what_was_remembered_of_a_deleted_replica_is_gone_before_another_has_its_name() {
        let root = tempfile::tempdir().unwrap();
        let dirs = LogDirs::new(
            vec![root.path().to_owned()],
            vec![Checkpoints::default()],
            7,
        );
        dirs.create(log(1), "again-0").unwrap();
        dirs.note(&[PartitionCheckpoint {
            log: log(1),
            recovery_point: 200,
            high_watermark: 200,
            log_start_offset: 159,
            first_segment_base: 0,
        }]);
        dirs.write_checkpoints().unwrap();
        let said = || fs::read_to_string(root.path().join("log-start-offset-checkpoint")).unwrap();
        assert!(said().contains("again 0 159"), "{}", said());
        dirs.delete(log(1), Duration::from_mins(1)).unwrap();
        dirs.create(log(2), "again-0").unwrap();
        assert!(!said().contains("again"), "{}", said());
        assert_eq!(dirs.checkpoint(log(2)), (None, None, None));
    }

    #[test]
    fn failed_directories_and_their_replicas_are_counted() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let roots = vec![one.path().to_owned(), two.path().to_owned()];
        let dirs = LogDirs::new(
            roots,
            vec![Checkpoints::default(), Checkpoints::default()],
            7,
        );
        for topic in 1..=4 {
            dirs.create(log(topic), &format!("t{topic}-0")).unwrap();
        }
        assert_eq!(dirs.offline(), (0, 0));
        let (_, lost) = dirs.set_offline(log(1)).unwrap();
        assert_eq!((dirs.offline(), lost.len()), ((1, 2), 2));
        assert!(dirs.set_offline(log(1)).is_none(), "said once");
        assert!(dirs.count() > 1);
    }
}
