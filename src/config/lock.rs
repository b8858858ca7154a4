//! `.lock`: one process per log directory (kafka.md 5.1). Taken with `fcntl`, as the JVM does, so that a Kafka broker and this one keep each other out.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, fcntl_lock};

pub const FILE_NAME: &str = ".lock";

/// Held until it is dropped, and until the process ends however it ends.
///
/// A lock of this kind belongs to the process: opening and closing the file anywhere else in it would give the lock up.
#[derive(Debug)]
pub struct DirLock {
    _file: File,
}

/// Why a directory can't be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error(
        "{} is in use{}; stop that process, or give this one directories of its own in log.dirs",
        dir.display(),
        by_pid(*.pid)
    )]
    InUse { dir: PathBuf, pid: Option<u32> },
    #[error("cannot lock {}: {why}; check that this user may write to the directory", dir.display())]
    Io { dir: PathBuf, why: io::Error },
}

fn by_pid(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" by process {pid}"))
}

impl DirLock {
    pub fn take(dir: &Path) -> Result<DirLock, LockError> {
        let problem = |why| LockError::Io {
            dir: dir.to_owned(),
            why,
        };
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(dir.join(FILE_NAME))
            .map_err(problem)?;
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(DirLock { _file: file }),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => {
                let inode = file.metadata().map_err(problem)?.ino();
                let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
                Err(LockError::InUse {
                    dir: dir.to_owned(),
                    pid: holder(&locks, inode),
                })
            }
            Err(error) => Err(problem(error.into())),
        }
    }
}

/// Who holds the lock, from `/proc/locks`: `1: POSIX  ADVISORY  WRITE 4121 fd:00:1234 0 EOF`. Told, never relied on.
fn holder(locks: &str, inode: u64) -> Option<u32> {
    locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, "POSIX", _, "WRITE", pid, file, ..] = fields[..] else {
            return None;
        };
        let (_, number) = file.rsplit_once(':')?;
        (number.parse() == Ok(inode)).then(|| pid.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_holder_is_found_by_the_file() {
        let locks = "1: FLOCK  ADVISORY  WRITE 1 fd:00:77 0 EOF\n\
                     2: POSIX  ADVISORY  READ 2 fd:00:77 0 EOF\n\
                     3: POSIX  ADVISORY  WRITE 4121 fd:00:77 0 EOF\n";
        assert_eq!(holder(locks, 77), Some(4121));
        assert_eq!(holder(locks, 78), None);
        assert_eq!(holder("", 77), None);
    }

    /// Locks of this kind never conflict within one process, so the test runs itself as another one.
    #[test]
    fn a_second_process_is_refused_until_the_first_lets_go() {
        const DIR: &str = "CORELOG_TEST_LOCK_DIR";
        if let Some(dir) = std::env::var_os(DIR) {
            let taken = DirLock::take(Path::new(&dir));
            std::process::exit(if taken.is_ok() { 0 } else { 3 });
        }
        let dir = tempfile::tempdir().unwrap();
        let code = || {
            let this = std::env::current_exe().unwrap();
            let name = "config::lock::tests::a_second_process_is_refused_until_the_first_lets_go";
            Command::new(this)
                .args(["--exact", name])
                .env(DIR, dir.path())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .unwrap()
                .code()
        };
        let held = DirLock::take(dir.path()).unwrap();
        assert_eq!(code(), Some(3));
        drop(held);
        assert_eq!(code(), Some(0));
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let error = DirLock::take(&dir.path().join("none")).unwrap_err();
        assert!(error.to_string().contains("cannot lock"), "{error}");
    }
}
