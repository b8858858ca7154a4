//! The virtual disk: what a program has written, and what of it would survive.
//!
//! Every file has two contents: what reads see (*written*: survives a kill of the process) and what was synced (*durable*). Between them lie changes,
//! in order. A power cut keeps the durable content and any selection of the changes after it, each of which may be torn. Names are journaled per
//! directory, as file systems do: a power cut keeps a beginning of the changes of names that were not synced, never a later one without an earlier.
//! The directories themselves, and files that are replaced atomically, are durable when the operation ends: engines sync them before they say so.
//!
//! Not here: when an operation happens, and what comes of one that is under way when the machine stops ([`crate::device`]).

use std::collections::BTreeMap;

use bytes::Bytes;
use corelog_shards::base::ids::Uuid;

use crate::seeded::Seeded;

/// A directory: log directory and name.
pub type Path = (u8, String);

#[derive(Debug, Clone)]
enum Change {
    Write { position: u64, bytes: Bytes },
    SetLen(u64),
}

#[derive(Debug, Default, Clone)]
struct Inode {
    written: Vec<u8>,
    durable: Vec<u8>,
    /// Not synced yet; the flag: the program has been told that it is done.
    changes: Vec<(u64, Change, bool)>,
    modified_ms: i64,
}

#[derive(Debug, Clone)]
enum NameChange {
    Link(String, u64),
    Unlink(String),
}

#[derive(Debug, Default, Clone)]
struct Dir {
    /// `partition.metadata`, if it is there.
    topic_id: Option<Uuid>,
    names: BTreeMap<String, u64>,
    durable: BTreeMap<String, u64>,
    journal: Vec<NameChange>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Disk {
    inodes: BTreeMap<u64, Inode>,
    dirs: BTreeMap<Path, Dir>,
    /// Small files of the log directories themselves (checkpoints), always replaced as a whole.
    pub texts: BTreeMap<Path, String>,
    next_inode: u64,
    next_change: u64,
}

fn apply(content: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write { position, bytes } => {
            let end = *position as usize + bytes.len();
            if content.len() < end {
                content.resize(end, 0);
            }
            content[*position as usize..end].copy_from_slice(bytes);
        }
        Change::SetLen(len) => content.resize(*len as usize, 0),
    }
}

impl Disk {
    pub fn create_dir(&mut self, path: &Path) {
        self.dirs.entry(path.clone()).or_default();
    }

    pub fn set_topic_id(&mut self, path: &Path, topic_id: Uuid) {
        if let Some(dir) = self.dirs.get_mut(path) {
            dir.topic_id = Some(topic_id);
        }
    }

    /// All directories with the topic ids of their `partition.metadata`.
    pub fn dirs(&self) -> impl Iterator<Item = (&Path, Option<Uuid>)> {
        self.dirs.iter().map(|(path, dir)| (path, dir.topic_id))
    }

    pub fn rename_dir(&mut self, from: &Path, to: Path) {
        if let Some(dir) = self.dirs.remove(from) {
            self.dirs.insert(to, dir);
        }
    }

    pub fn remove_dir(&mut self, path: &Path) {
        if let Some(dir) = self.dirs.remove(path) {
            for inode in dir.names.values().chain(dir.durable.values()) {
                self.inodes.remove(inode);
            }
        }
    }

    fn inode(&self, path: &Path, name: &str) -> Option<&Inode> {
        self.inodes.get(self.dirs.get(path)?.names.get(name)?)
    }

    fn inode_mut(&mut self, path: &Path, name: &str) -> Option<&mut Inode> {
        self.inodes.get_mut(self.dirs.get(path)?.names.get(name)?)
    }

    /// Creates the file if it is not there. False if its directory is gone.
    fn open(&mut self, path: &Path, name: &str) -> bool {
        let Some(dir) = self.dirs.get_mut(path) else {
            return false;
        };
        if !dir.names.contains_key(name) {
            self.next_inode += 1;
            self.inodes.insert(self.next_inode, Inode::default());
            dir.names.insert(name.to_owned(), self.next_inode);
            dir.journal
                .push(NameChange::Link(name.to_owned(), self.next_inode));
        }
        true
    }

    /// Names, lengths and times of the files of a directory.
    pub fn list(&self, path: &Path) -> Vec<(String, u64, i64)> {
        let names = self.dirs.get(path).map(|dir| &dir.names);
        let entry = |(name, inode): (&String, &u64)| {
            let inode = self.inodes.get(inode)?;
            Some((name.clone(), inode.written.len() as u64, inode.modified_ms))
        };
        names.into_iter().flatten().filter_map(entry).collect()
    }

    /// What a read sees; `None` if there is no such file.
    pub fn read(&self, path: &Path, name: &str) -> Option<&[u8]> {
        self.inode(path, name).map(|inode| &inode.written[..])
    }

    /// What a power cut leaves at least, if the name survives; `None` if there is no such file.
    pub fn durable(&self, path: &Path, name: &str) -> Option<&[u8]> {
        let dir = self.dirs.get(path)?;
        let inode = dir.names.get(name)?;
        let survives = dir.durable.get(name) == Some(inode);
        survives.then(|| self.inodes.get(inode).map(|inode| &inode.durable[..]))?
    }

    fn change(&mut self, path: &Path, name: &str, wall_ms: i64, change: Change) -> Option<u64> {
        if !self.open(path, name) {
            return None;
        }
        self.next_change += 1;
        let number = self.next_change;
        let inode = self.inode_mut(path, name)?;
        apply(&mut inode.written, &change);
        inode.changes.push((number, change, false));
        inode.modified_ms = wall_ms;
        Some(number)
    }

    /// The number names the change for [`Disk::told`].
    pub fn write(
        &mut self,
        path: &Path,
        name: &str,
        position: u64,
        bytes: Bytes,
        wall_ms: i64,
    ) -> Option<u64> {
        self.change(path, name, wall_ms, Change::Write { position, bytes })
    }

    pub fn set_len(&mut self, path: &Path, name: &str, len: u64, wall_ms: i64) -> Option<u64> {
        self.change(path, name, wall_ms, Change::SetLen(len))
    }

    /// The program knows that this change is done: a sync from here on covers it.
    pub fn told(&mut self, path: &Path, name: &str, change: u64) {
        if let Some(inode) = self.inode_mut(path, name)
            && let Some(found) = inode
                .changes
                .iter_mut()
                .find(|(number, _, _)| *number == change)
        {
            found.2 = true;
        }
    }

    /// The process is gone: what has been written is what the next one finds, and its syncs cover it.
    pub fn outlive_process(&mut self) {
        for inode in self.inodes.values_mut() {
            for change in &mut inode.changes {
                change.2 = true;
            }
        }
    }

    /// The changes that a sync that is issued now has to cover.
    pub fn covered(&self, path: &Path, name: &str) -> Vec<u64> {
        let changes = self.inode(path, name).map(|inode| &inode.changes);
        let told = changes.into_iter().flatten().filter(|(_, _, told)| *told);
        told.map(|(number, _, _)| *number).collect()
    }

    /// Makes these changes of the file, its name and all earlier changes of names durable.
    pub fn sync(&mut self, path: &Path, name: &str, covered: &[u64]) {
        if let Some(inode) = self.inode_mut(path, name) {
            for (number, change, _) in &inode.changes {
                if covered.contains(number) {
                    apply(&mut inode.durable, change);
                }
            }
            inode
                .changes
                .retain(|(number, _, _)| !covered.contains(number));
        }
        self.sync_dir(path);
    }

    /// Makes the whole content durable, but not the name.
    pub fn sync_content(&mut self, path: &Path, name: &str) {
        if let Some(inode) = self.inode_mut(path, name) {
            inode.changes.clear();
            inode.durable.clone_from(&inode.written);
        }
    }

    pub fn sync_dir(&mut self, path: &Path) {
        if let Some(dir) = self.dirs.get_mut(path) {
            dir.journal.clear();
            dir.durable.clone_from(&dir.names);
        }
    }

    /// Atomically and durably.
    pub fn replace(&mut self, path: &Path, name: &str, content: &[u8], wall_ms: i64) {
        let Some(dir) = self.dirs.get_mut(path) else {
            return;
        };
        self.next_inode += 1;
        let inode = Inode {
            written: content.to_vec(),
            durable: content.to_vec(),
            changes: Vec::new(),
            modified_ms: wall_ms,
        };
        self.inodes.insert(self.next_inode, inode);
        dir.names.insert(name.to_owned(), self.next_inode);
        self.sync_dir(path);
    }

    pub fn unlink(&mut self, path: &Path, name: &str) {
        if let Some(dir) = self.dirs.get_mut(path)
            && dir.names.remove(name).is_some()
        {
            dir.journal.push(NameChange::Unlink(name.to_owned()));
        }
    }

    pub fn rename(&mut self, path: &Path, from: &str, to: &str) {
        if let Some(dir) = self.dirs.get_mut(path)
            && let Some(inode) = dir.names.remove(from)
        {
            dir.names.insert(to.to_owned(), inode);
            dir.journal.push(NameChange::Unlink(from.to_owned()));
            dir.journal.push(NameChange::Link(to.to_owned(), inode));
        }
    }

    /// The power goes and comes back.
    pub fn cut_power(&mut self, seeded: &mut Seeded) {
        let temper = Temper::of(seeded);
        for dir in self.dirs.values_mut() {
            let kept = temper.kept(seeded, dir.journal.len());
            for change in dir.journal.drain(..).take(kept) {
                match change {
                    NameChange::Link(name, inode) => {
                        dir.durable.insert(name, inode);
                    }
                    NameChange::Unlink(name) => {
                        dir.durable.remove(&name);
                    }
                }
            }
            dir.names.clone_from(&dir.durable);
        }
        for inode in self.inodes.values_mut() {
            for (_, change, _) in std::mem::take(&mut inode.changes) {
                if let Some(change) = temper.torn(seeded, change) {
                    apply(&mut inode.durable, &change);
                }
            }
            inode.written.clone_from(&inode.durable);
        }
        self.forget_unreachable();
    }

    fn forget_unreachable(&mut self) {
        let reachable: std::collections::BTreeSet<u64> = self
            .dirs
            .values()
            .flat_map(|dir| dir.names.values().chain(dir.durable.values()))
            .copied()
            .collect();
        self.inodes.retain(|inode, _| reachable.contains(inode));
    }
}

/// How much a power cut leaves of what was not synced.
#[derive(Clone, Copy)]
enum Temper {
    Nothing,
    Everything,
    Some,
}

impl Temper {
    fn of(seeded: &mut Seeded) -> Temper {
        *seeded.pick(&[
            Temper::Nothing,
            Temper::Everything,
            Temper::Some,
            Temper::Some,
        ])
    }

    fn kept(self, seeded: &mut Seeded, of: usize) -> usize {
        match self {
            Temper::Nothing => 0,
            Temper::Everything => of,
            Temper::Some => seeded.index(of + 1),
        }
    }

    fn torn(self, seeded: &mut Seeded, change: Change) -> Option<Change> {
        match (self, change) {
            (Temper::Nothing, _) => None,
            (Temper::Everything, change) => Some(change),
            (Temper::Some, change) if seeded.percent(40) => Some(change),
            (Temper::Some, Change::Write { position, bytes }) if seeded.percent(50) => {
                Some(Change::Write {
                    position,
                    bytes: bytes.slice(..seeded.index(bytes.len() + 1)),
                })
            }
            (Temper::Some, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> (Disk, Path) {
        let mut disk = Disk::default();
        let path = (0, "t-0".to_owned());
        disk.create_dir(&path);
        (disk, path)
    }

    #[test]
    fn a_sync_keeps_what_was_reported_before_it_was_issued_and_nothing_else() {
        for seed in 0..50 {
            let (mut disk, path) = file();
            let first = disk.write(&path, "a", 0, Bytes::from_static(b"one"), 0);
            disk.told(&path, "a", first.expect("the directory is there"));
            let covered = disk.covered(&path, "a");
            disk.write(&path, "a", 3, Bytes::from_static(b"two"), 0);
            disk.sync(&path, "a", &covered);
            assert_eq!(disk.durable(&path, "a"), Some(&b"one"[..]));
            assert_eq!(disk.read(&path, "a"), Some(&b"onetwo"[..]));
            disk.cut_power(&mut Seeded::new(seed));
            let left = disk.read(&path, "a").expect("its name is durable");
            assert!(b"onetwo".starts_with(left) && left.len() >= 3, "{left:?}");
        }
    }

    #[test]
    fn a_power_cut_can_take_a_file_that_was_never_synced() {
        let survives = |seed| {
            let (mut disk, path) = file();
            disk.write(&path, "a", 0, Bytes::from_static(b"one"), 0);
            disk.cut_power(&mut Seeded::new(seed));
            disk.read(&path, "a").is_some()
        };
        let survived = (0..50).filter(|seed| survives(*seed)).count();
        assert!((1..50).contains(&survived), "{survived} of 50");
    }

    #[test]
    fn a_later_change_of_names_never_survives_without_an_earlier_one() {
        for seed in 0..50 {
            let (mut disk, path) = file();
            disk.replace(&path, "a", b"", 0);
            disk.replace(&path, "b", b"", 0);
            disk.unlink(&path, "a");
            disk.unlink(&path, "b");
            disk.cut_power(&mut Seeded::new(seed));
            assert!(disk.read(&path, "a").is_none() || disk.read(&path, "b").is_some());
        }
    }
}
