//! Where and how it was measured.

use std::path::Path;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Host {
    pub(crate) command: String,
    pub(crate) host: String,
    pub(crate) kernel: String,
    pub(crate) processor: String,
    pub(crate) cores: usize,
    /// How the kernel chooses the clock rate; empty where it does not, as in most virtual machines.
    pub(crate) governor: String,
    pub(crate) memory_bytes: u64,
    /// Of the data: type and options.
    pub(crate) file_system: String,
    pub(crate) broker_cores: String,
    pub(crate) load_core: usize,
    pub(crate) commit: String,
    /// Seconds since 1970.
    pub(crate) time: u64,
}

impl Host {
    pub(crate) fn here(broker_cores: &str, load_core: usize, data: &Path) -> Host {
        let line = |path: &str| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            text.trim().to_owned()
        };
        let cpuinfo = line("/proc/cpuinfo");
        let processor = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
            .map_or_else(String::new, |(_, name)| name.to_owned());
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let data = std::fs::canonicalize(data).unwrap_or_else(|_| data.to_owned());
        Host {
            command: std::env::args().collect::<Vec<_>>().join(" "),
            host: line("/proc/sys/kernel/hostname"),
            kernel: line("/proc/sys/kernel/osrelease"),
            processor,
            cores: cores(&line("/sys/devices/system/cpu/online")),
            governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            memory_bytes: crate::cache::PageCache::now().map_or(0, |memory| memory.total_bytes),
            file_system: file_system(&line("/proc/self/mountinfo"), &data),
            broker_cores: broker_cores.to_owned(),
            load_core,
            commit: commit(),
            time: now.map_or(0, |time| time.as_secs()),
        }
    }

    /// One paragraph for people.
    pub(crate) fn line(&self) -> String {
        let governor = match &*self.governor {
            "" => "no governor",
            governor => governor,
        };
        format!(
            "{}: {} × {}, {} GiB, Linux {}, {governor}, {}; brokers on core {}, load on core {}; commit {}; `{}`",
            self.host,
            self.cores,
            self.processor,
            self.memory_bytes >> 30,
            self.kernel,
            self.file_system,
            self.broker_cores,
            self.load_core,
            self.commit,
            self.command
        )
    }
}

/// How many a list such as `0-3,6` has.
fn cores(list: &str) -> usize {
    let count = |range: &str| match range.split_once('-') {
        Some((first, last)) => {
            let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
            last.checked_sub(first).map(|more| more + 1)
        }
        None => range.parse::<usize>().ok().map(|_| 1),
    };
    list.split(',').filter_map(count).sum()
}

/// The mount with the longest path above `data`: its type and options.
fn file_system(mountinfo: &str, data: &Path) -> String {
    let mounts = mountinfo.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mount_point = before.split(' ').nth(4)?;
        let options = before.split(' ').nth(5)?;
        let kind = after.split(' ').next()?;
        data.starts_with(mount_point)
            .then(|| (mount_point.len(), format!("{kind} ({options})")))
    });
    mounts
        .max_by_key(|(length, _)| *length)
        .map_or_else(String::new, |(_, shown)| shown)
}

/// Of the directory that this runs in; empty outside of a repository.
fn commit() -> String {
    std::process::Command::new("git")
        .args(["describe", "--always", "--dirty"])
        .output()
        .ok()
        .filter(|output| output.status.success())
        .map_or_else(String::new, |output| {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_cores_are_counted() {
        assert_eq!(cores("0-3,6"), 5);
        assert_eq!(cores("0"), 1);
        assert_eq!(cores(""), 0);
    }

    #[test]
    fn the_file_system_is_that_of_the_nearest_mount() {
        let mounts = "21 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
                      30 21 7:0 / /data rw,noatime shared:5 - xfs /dev/loop0 rw\n";
        let of = |path: &str| file_system(mounts, Path::new(path));
        assert_eq!(of("/data/bench"), "xfs (rw,noatime)");
        assert_eq!(of("/database"), "ext4 (rw,relatime)");
        assert_eq!(file_system("", Path::new("/")), "");
    }

    #[test]
    fn this_host_has_what_is_needed_to_repeat_a_run() {
        let host = Host::here("0", 1, Path::new("."));
        assert!(!host.kernel.is_empty());
        assert!(host.cores > 0 && host.memory_bytes > 0);
        assert!(host.line().contains(&host.kernel));
    }
}
