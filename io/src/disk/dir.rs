#![expect(unsafe_code, reason = "record locks are system calls")]
//! Directories: durable names, checkpoint files that are old or new and never half, and the lock of a
//! log directory. All calls block; on a core they go through `blocking`.
//!
//! A new name, a rename or a removal survives a power cut only when its directory was synced after it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use super::file::named;

/// Makes names in a directory durable.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    let sync = || fs::File::open(path)?.sync_all();
    sync().map_err(|error| named(path, "sync directory", error))
}

/// Makes a directory and those above it that are missing, and their names durable.
pub fn create_dirs(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = parent(path) {
        create_dirs(parent)?;
    }
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(named(path, "create directory", error)),
        Ok(()) => sync_parent(path),
    }
}

/// Replaces a file's content: after a crash it has the old or the new one. Writes `<name>.tmp` beside it,
/// as Kafka's checkpoint files do.
pub fn write_atomically(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    let temporary = PathBuf::from(name);
    let write = || {
        let mut file = fs::File::create(&temporary)?;
        file.write_all(content)?;
        file.sync_all()
    };
    write().map_err(|error| named(&temporary, "write", error))?;
    rename_durably(&temporary, path)
}

/// Renames and makes it durable, in both directories if they differ.
pub fn rename_durably(from: &Path, to: &Path) -> io::Result<()> {
    rename(from, to)?;
    sync_parent(to)?;
    if from.parent() == to.parent() {
        Ok(())
    } else {
        sync_parent(from)
    }
}

/// Renames; not durable until the directory is synced.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)
        .map_err(|error| named(from, &format!("rename to {}:", to.display()), error))
}

/// Removes a file; that it is gone already is fine.
pub fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.map_err(|error| named(path, "remove", error)),
    }
}

/// Removes a directory and all in it; that it is gone already is fine.
pub fn remove_dir(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.map_err(|error| named(path, "remove directory", error)),
    }
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub is_dir: bool,
    /// Length in bytes; of a directory without meaning.
    pub length: u64,
    /// Time of the last change, in milliseconds since 1970.
    pub modified_ms: i64,
}

/// The names in a directory, sorted. Names that are not UTF-8 are none of ours and left out; so are
/// those that disappear meanwhile.
pub fn list(path: &Path) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let directory = fs::read_dir(path).map_err(|error| named(path, "list", error))?;
    for entry in directory {
        let entry = entry.map_err(|error| named(path, "list", error))?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let metadata = match entry.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            result => result.map_err(|error| named(&entry.path(), "look at", error))?,
        };
        let modified_ms = modified(&metadata);
        entries.push(Entry {
            name,
            is_dir: metadata.is_dir(),
            length: metadata.len(),
            modified_ms,
        });
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// Time of a file's last change, in milliseconds since 1970.
pub fn modified_ms(path: &Path) -> io::Result<i64> {
    let metadata = fs::metadata(path).map_err(|error| named(path, "look at", error))?;
    Ok(modified(&metadata))
}

fn modified(metadata: &fs::Metadata) -> i64 {
    metadata
        .mtime()
        .saturating_mul(1000)
        .saturating_add(metadata.mtime_nsec() / 1_000_000)
}

/// Sets a file's time of last change, which Kafka uses for the age of segments without time stamps.
pub fn set_modified_ms(path: &Path, ms: i64) -> io::Result<()> {
    let since = std::time::Duration::from_millis(ms.unsigned_abs());
    let time = if ms < 0 {
        UNIX_EPOCH.checked_sub(since)
    } else {
        UNIX_EPOCH.checked_add(since)
    };
    let time = time.ok_or(io::ErrorKind::InvalidInput)?;
    let set = || {
        fs::File::options()
            .write(true)
            .open(path)?
            .set_modified(time)
    };
    set().map_err(|error| named(path, "set the time of", error))
}

fn parent(path: &Path) -> Option<&Path> {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
}

fn sync_parent(path: &Path) -> io::Result<()> {
    sync_dir(parent(path).unwrap_or(Path::new(".")))
}

/// Why a directory could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("{} is in use by process {pid}; stop that process, or give this one directories of its own in log.dirs", .dir.display())]
    HeldBy { dir: PathBuf, pid: i32 },
    #[error("{} stands twice in log.dirs, by another path; give each directory once", .dir.display())]
    HeldByUs { dir: PathBuf },
    #[error("cannot lock {}: {why}; check that this user may write to the directory", .dir.display())]
    Io { dir: PathBuf, why: io::Error },
}

/// The file of a log directory that its broker locks (kafka.md 5.1).
const LOCK_FILE: &str = ".lock";

/// Lock files of this process, by device and inode: record locks do not exclude their own process.
static HELD: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());

/// An exclusive lock on a log directory, as the JVM's `FileChannel.lock` takes it (fcntl on the whole file `.lock`), so
/// that Kafka and corelog exclude each other. Ends with the value or the process.
///
/// The process must not open and close this file elsewhere: closing any descriptor of it ends the lock.
#[derive(Debug)]
pub struct DirLock {
    /// Always there but in `drop`.
    file: Option<fs::File>,
    identity: (u64, u64),
}

impl DirLock {
    /// Takes the lock; the file is made when it is missing, and left when the lock ends, as Kafka does.
    pub fn take(dir: &Path) -> Result<Self, LockError> {
        let problem = |why| LockError::Io {
            dir: dir.to_owned(),
            why,
        };
        let path = dir.join(LOCK_FILE);
        // Looked up before opening: closing another descriptor would end a lock that is held.
        let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(metadata) = fs::metadata(&path)
            && held.contains(&identity(&metadata))
        {
            return Err(LockError::HeldByUs {
                dir: dir.to_owned(),
            });
        }
        let mut options = fs::File::options();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(&path).map_err(problem)?;
        let identity = identity(&file.metadata().map_err(problem)?);
        loop {
            let Err(error) = record_lock(&file, libc::F_SETLK) else {
                held.insert(identity);
                return Ok(Self {
                    file: Some(file),
                    identity,
                });
            };
            if !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) {
                return Err(problem(error));
            }
            let holder = record_lock(&file, libc::F_GETLK).map_err(problem)?;
            // Unlocked: it went away in between, so try again.
            if i32::from(holder.l_type) != libc::F_UNLCK {
                return Err(LockError::HeldBy {
                    dir: dir.to_owned(),
                    pid: holder.l_pid,
                });
            }
        }
    }
}

impl Drop for DirLock {
    fn drop(&mut self) {
        // Closed before anybody else of this process may open it: closing ends all its locks.
        let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.file.take());
        held.remove(&self.identity);
    }
}

fn identity(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// A lock command on the whole file.
fn record_lock(file: &fs::File, command: libc::c_int) -> io::Result<libc::flock> {
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: claim: the pointer is valid for one flock, as these commands want. keeper: the callers pass F_SETLK
    // or F_GETLK. breaker: another command.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(lock)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;
    use crate::testing::TestDir;

    #[test]
    fn a_checkpoint_is_replaced_and_leaves_no_temporary_file() {
        let dir = TestDir::new();
        let path = dir.path().join("recovery-point-offset-checkpoint");
        write_atomically(&path, b"0\n0\n").unwrap();
        write_atomically(&path, b"0\n1\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"0\n1\n");
        let names: Vec<_> = list(dir.path())
            .unwrap()
            .into_iter()
            .map(|entry| entry.name)
            .collect();
        assert_eq!(names, ["recovery-point-offset-checkpoint"]);
    }

    #[test]
    fn directories_are_made_listed_and_removed() {
        let dir = TestDir::new();
        let deep = dir.path().join("a/b");
        create_dirs(&deep).unwrap();
        create_dirs(&deep).unwrap();
        fs::write(dir.path().join("z"), b"12345").unwrap();
        set_modified_ms(&dir.path().join("z"), 1_700_000_000_123).unwrap();
        let entries = list(dir.path()).unwrap();
        assert_eq!((entries[0].name.as_str(), entries[0].is_dir), ("a", true));
        let expected = Entry {
            name: "z".into(),
            is_dir: false,
            length: 5,
            modified_ms: 1_700_000_000_123,
        };
        assert_eq!(entries[1], expected);
        assert_eq!(
            modified_ms(&dir.path().join("z")).unwrap(),
            1_700_000_000_123
        );
        rename_durably(&dir.path().join("z"), &deep.join("y")).unwrap();
        assert!(deep.join("y").exists());
        remove_file(&deep.join("y")).unwrap();
        remove_file(&deep.join("y")).unwrap();
        remove_dir(&dir.path().join("a")).unwrap();
        remove_dir(&dir.path().join("a")).unwrap();
        assert!(list(dir.path()).unwrap().is_empty());
    }

    #[test]
    fn errors_name_the_path() {
        let error = list(Path::new("/nowhere")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("/nowhere"), "{error}");
    }

    #[test]
    fn a_directory_is_locked_once_in_a_process() {
        let dir = TestDir::new();
        let lock = DirLock::take(dir.path()).unwrap();
        let again = DirLock::take(dir.path());
        assert!(matches!(again, Err(LockError::HeldByUs { .. })));
        drop(lock);
        assert!(DirLock::take(dir.path()).is_ok());
        let path = dir.path().join(LOCK_FILE);
        assert!(path.exists(), "the file stays, as Kafka's does");
    }

    #[test]
    fn a_lock_of_another_process_is_refused_with_its_pid() {
        let dir = TestDir::new();
        let path = dir.path().join(LOCK_FILE);
        fs::write(&path, b"").unwrap();
        let script = "import fcntl,sys,time\nf=open(sys.argv[1],'r+')\nfcntl.lockf(f,fcntl.LOCK_EX)\nprint('held',flush=True)\nsys.stdin.read()";
        let child = std::process::Command::new("python3")
            .args(["-c", script])
            .arg(&path)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn();
        let mut child = child.unwrap();
        let mut line = String::new();
        let mut output = io::BufReader::new(child.stdout.take().unwrap());
        io::BufRead::read_line(&mut output, &mut line).unwrap();
        assert_eq!(line, "held\n");
        match DirLock::take(dir.path()) {
            Err(LockError::HeldBy { pid, .. }) => assert_eq!(pid as u32, child.id()),
            other => panic!("{other:?}"),
        }
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(DirLock::take(dir.path()).is_ok());
    }
}
