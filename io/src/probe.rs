#![expect(unsafe_code, reason = "resource limits are system calls")]
//! What the machine lacks, found before anything starts, each with its fix in one line.
//!
//! glommio panics or ends the process where io_uring is missing; this says what is wrong instead.

use io_uring::{IoUring, Probe, opcode};
use std::fmt;
use std::fs;
use std::io;

/// glommio refuses less.
const MEMLOCK_MIN: u64 = 512 << 10;

/// Connections, segments and their indexes: fewer descriptors end in EMFILE within minutes.
const NOFILE_MIN: u64 = 4096;

/// Something that the broker needs and the machine does not give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    pub what: String,
    pub fix: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.fix)
    }
}

/// Looks at io_uring and the limits; raises the soft limit of open files to the hard one first.
pub fn probe() -> Vec<Missing> {
    let mut missing = Vec::new();
    missing.extend(probe_ring());
    match limit(libc::RLIMIT_MEMLOCK) {
        Ok(memlock) => missing.extend(judge_memlock(memlock.rlim_cur)),
        Err(error) => missing.push(unknown("RLIMIT_MEMLOCK", &error)),
    }
    match raise_open_files() {
        Ok(files) => missing.extend(judge_open_files(files)),
        Err(error) => missing.push(unknown("RLIMIT_NOFILE", &error)),
    }
    missing
}

fn missing(what: impl Into<String>, fix: impl Into<String>) -> Missing {
    Missing {
        what: what.into(),
        fix: fix.into(),
    }
}

fn unknown(what: &str, error: &io::Error) -> Missing {
    missing(
        format!("{what} cannot be read: {error}"),
        "check that the process may read its own limits",
    )
}

fn probe_ring() -> Option<Missing> {
    let ring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_coop_taskrun()
        .setup_taskrun_flag()
        .build(8);
    match ring {
        Ok(ring) => probe_operations(&ring),
        Err(error) => {
            let disabled = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok();
            let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
            Some(judge_ring(
                &error,
                disabled.as_deref().map_or("0", str::trim),
                kernel.trim(),
            ))
        }
    }
}

/// Why there is no ring, from its error and the sysctl.
fn judge_ring(error: &io::Error, disabled: &str, kernel: &str) -> Missing {
    match error.raw_os_error() {
        Some(libc::EPERM) if disabled != "0" => missing(
            format!("io_uring is disabled (kernel.io_uring_disabled = {disabled})"),
            "run: sysctl -w kernel.io_uring_disabled=0",
        ),
        Some(libc::EPERM) => missing(
            "io_uring is filtered (EPERM although the sysctl allows it)",
            "allow io_uring_setup, io_uring_enter and io_uring_register in the seccomp profile (docker: --security-opt seccomp=unconfined)",
        ),
        Some(libc::ENOSYS) => missing(
            format!("kernel {kernel} has no io_uring, or a filter hides it (ENOSYS)"),
            "use a kernel of 6.1 or later built with CONFIG_IO_URING, or allow io_uring in the seccomp profile",
        ),
        Some(libc::EINVAL) => missing(
            format!(
                "kernel {kernel} is too old: its io_uring lacks SINGLE_ISSUER or DEFER_TASKRUN"
            ),
            "use a kernel of 6.1 or later",
        ),
        Some(libc::ENOMEM) => missing(
            "io_uring cannot lock memory (ENOMEM)",
            "raise the memlock limit (ulimit -l unlimited, or LimitMEMLOCK=infinity in the service)",
        ),
        Some(libc::EMFILE | libc::ENFILE) => missing(
            "no file descriptor is left for io_uring",
            "raise the limit of open files (ulimit -n, or LimitNOFILE= in the service)",
        ),
        _ => missing(
            format!("io_uring does not start: {error}"),
            "use a kernel of 6.1 or later with io_uring allowed",
        ),
    }
}

fn probe_operations(ring: &IoUring) -> Option<Missing> {
    const NEEDED: [(u8, &str); 11] = [
        (opcode::Recv::CODE, "RECV"),
        (opcode::Send::CODE, "SEND"),
        (opcode::SendMsg::CODE, "SENDMSG"),
        (opcode::Connect::CODE, "CONNECT"),
        (opcode::Read::CODE, "READ"),
        (opcode::Writev::CODE, "WRITEV"),
        (opcode::Fsync::CODE, "FSYNC"),
        (opcode::SyncFileRange::CODE, "SYNC_FILE_RANGE"),
        (opcode::Fadvise::CODE, "FADVISE"),
        (opcode::Fallocate::CODE, "FALLOCATE"),
        (opcode::MsgRingData::CODE, "MSG_RING"),
    ];
    let mut probe = Probe::new();
    if let Err(error) = ring.submitter().register_probe(&mut probe) {
        return Some(missing(
            format!("io_uring cannot be asked what it can: {error}"),
            "use a kernel of 6.1 or later",
        ));
    }
    let lacking: Vec<_> = NEEDED
        .iter()
        .filter(|(code, _)| !probe.is_supported(*code))
        .map(|(_, name)| *name)
        .collect();
    (!lacking.is_empty()).then(|| {
        missing(
            format!("io_uring lacks {}", lacking.join(", ")),
            "use a kernel of 6.1 or later",
        )
    })
}

fn judge_memlock(bytes: u64) -> Option<Missing> {
    (bytes < MEMLOCK_MIN).then(|| {
        missing(
            format!(
                "the memlock limit is {} KiB, at least 512 KiB are needed",
                bytes >> 10
            ),
            "run: ulimit -l unlimited, or set LimitMEMLOCK=infinity in the service",
        )
    })
}

fn judge_open_files(files: u64) -> Option<Missing> {
    (files < NOFILE_MIN).then(|| {
        missing(
            format!("at most {files} files can be open, at least {NOFILE_MIN} are needed"),
            "run: ulimit -Hn 100000, or set LimitNOFILE=100000 in the service",
        )
    })
}

/// Raises the soft limit of open files to the hard one; the limit then.
pub fn raise_open_files() -> io::Result<u64> {
    let mut files = limit(libc::RLIMIT_NOFILE)?;
    if files.rlim_cur < files.rlim_max {
        files.rlim_cur = files.rlim_max;
        // SAFETY: claim: the pointer is valid for one rlimit. keeper: the lines above. breaker: a null pointer.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const files) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(files.rlim_cur)
}

fn limit(resource: libc::__rlimit_resource_t) -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: claim: the pointer is valid for one rlimit. keeper: the line above. breaker: a null pointer.
    if unsafe { libc::getrlimit(resource, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(limit)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    fn judged(code: i32, disabled: &str) -> String {
        judge_ring(&io::Error::from_raw_os_error(code), disabled, "5.4.0").to_string()
    }

    #[test]
    fn each_cause_has_its_own_fix() {
        assert!(judged(libc::EPERM, "2").contains("sysctl -w kernel.io_uring_disabled=0"));
        assert!(judged(libc::EPERM, "0").contains("seccomp"));
        assert!(judged(libc::ENOSYS, "0").contains("CONFIG_IO_URING"));
        assert!(judged(libc::EINVAL, "0").contains("5.4.0 is too old"));
        assert!(judged(libc::ENOMEM, "0").contains("LimitMEMLOCK"));
        assert!(judged(libc::EMFILE, "0").contains("LimitNOFILE"));
        assert!(
            judge_memlock(MEMLOCK_MIN - 1)
                .unwrap()
                .to_string()
                .contains("ulimit -l")
        );
        assert_eq!(judge_memlock(MEMLOCK_MIN), None);
        assert!(
            judge_open_files(1024)
                .unwrap()
                .to_string()
                .contains("1024 files")
        );
        assert_eq!(judge_open_files(NOFILE_MIN), None);
    }

    #[test]
    fn a_machine_that_runs_these_tests_lacks_nothing_of_io_uring() {
        assert_eq!(probe_ring(), None);
    }

    #[test]
    fn the_soft_limit_of_open_files_is_raised_to_the_hard_one() {
        let hard = limit(libc::RLIMIT_NOFILE).unwrap().rlim_max;
        assert_eq!(raise_open_files().unwrap(), hard);
        assert_eq!(limit(libc::RLIMIT_NOFILE).unwrap().rlim_cur, hard);
    }
}
