#![expect(unsafe_code, reason = "the CPU clock of a thread is a system call")]
//! Which cores and how much memory this process may use: affinity, and the limits of its control
//! group (version 2, or the version 1 controllers).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// Above this a version 1 limit means "none".
const UNLIMITED: u64 = 1 << 62;

/// The cores to use: those of the affinity mask, but no more than the CPU quota gives whole ones;
/// at least one.
pub fn allowed_cores() -> Vec<usize> {
    let ids = core_affinity::get_core_ids().unwrap_or_default();
    let cores: BTreeSet<usize> = ids.into_iter().map(|id| id.id).collect();
    let quota = CGroup::own().cpu_quota();
    within_quota(cores.into_iter().collect(), quota)
}

fn within_quota(mut cores: Vec<usize>, quota: Option<f64>) -> Vec<usize> {
    if cores.is_empty() {
        cores.push(0);
    }
    if let Some(quota) = quota {
        cores.truncate((quota.floor() as usize).max(1));
    }
    cores
}

/// Bytes of memory that this process may use: the control group's limit, at most what there is.
pub fn memory_limit_bytes() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let total =
        mem_total(&text).ok_or_else(|| io::Error::other("/proc/meminfo has no MemTotal"))?;
    Ok(CGroup::own()
        .memory_max()
        .map_or(total, |max| max.min(total)))
}

fn mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

/// CPU time that the calling thread has used.
pub fn thread_cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: claim: the pointer is valid for one timespec. keeper: the line above. breaker: another clock id
    // cannot make it invalid.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert!(result == 0, "every Linux has a CPU clock per thread");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Pins the calling thread to a core; for threads that are no executors.
pub fn pin_thread(core: usize) -> bool {
    core_affinity::set_for_current(core_affinity::CoreId { id: core })
}

/// A list of cores that makes no sense.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CoreListError {
    #[error("\"{0}\" is neither a core nor a range of cores such as 2-5")]
    Malformed(String),
    #[error(
        "core {core} is not among those that this process may use ({allowed}); change the list, the affinity or the CPU quota"
    )]
    NotAllowed { core: usize, allowed: String },
    #[error("the list names no core")]
    Empty,
}

/// Reads a list such as `0,2-5`; sorted, each core once.
pub fn parse_core_list(text: &str, allowed: &[usize]) -> Result<Vec<usize>, CoreListError> {
    let mut cores = BTreeSet::new();
    for part in text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let (first, last) =
            parse_range(part).ok_or_else(|| CoreListError::Malformed(part.to_owned()))?;
        // Checked before the range is walked: its length comes from outside.
        for core in [first, last] {
            check_allowed(core, allowed)?;
        }
        for core in first..=last {
            check_allowed(core, allowed)?;
            cores.insert(core);
        }
    }
    if cores.is_empty() {
        Err(CoreListError::Empty)
    } else {
        Ok(cores.into_iter().collect())
    }
}

fn check_allowed(core: usize, allowed: &[usize]) -> Result<(), CoreListError> {
    if allowed.contains(&core) {
        return Ok(());
    }
    let names: Vec<_> = allowed.iter().map(usize::to_string).collect();
    Err(CoreListError::NotAllowed {
        core,
        allowed: names.join(","),
    })
}

fn parse_range(part: &str) -> Option<(usize, usize)> {
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first <= last).then_some((first, last))
}

/// Where the limits of this process stand.
struct CGroup {
    root: PathBuf,
    /// Text of `/proc/self/cgroup`: lines of `number:controllers:path`.
    membership: String,
}

impl CGroup {
    fn own() -> Self {
        // Without the file there are no limits to find.
        let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self {
            root: CGROUP_ROOT.into(),
            membership,
        }
    }

    /// Whole CPUs' worth of time, from the tightest group on the way up.
    fn cpu_quota(&self) -> Option<f64> {
        let unified = self.lowest("", "cpu.max", parse_cpu_max);
        let legacy = self.groups("cpu").filter_map(|group| {
            let quota = read_number(&group.join("cpu.cfs_quota_us"))?;
            let period =
                read_number(&group.join("cpu.cfs_period_us")).filter(|&period| period > 0)?;
            Some(quota as f64 / period as f64)
        });
        unified.into_iter().chain(legacy).reduce(f64::min)
    }

    fn memory_max(&self) -> Option<u64> {
        let unified = self.lowest("", "memory.max", |text| text.trim().parse().ok());
        let legacy = self.lowest("memory", "memory.limit_in_bytes", |text| {
            text.trim().parse().ok()
        });
        unified
            .into_iter()
            .chain(legacy)
            .filter(|&max| max < UNLIMITED)
            .min()
    }

    fn lowest<T: PartialOrd>(
        &self,
        controller: &str,
        file: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let values = self
            .groups(controller)
            .filter_map(|group| parse(&fs::read_to_string(group.join(file)).ok()?));
        values.reduce(|low, value| if value < low { value } else { low })
    }

    /// The group of this process under a controller ("" is the unified hierarchy), and those above it.
    fn groups(&self, controller: &str) -> impl Iterator<Item = PathBuf> {
        let line = self.membership.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers
                .split(',')
                .any(|name| name == controller)
                .then(|| path.trim_start_matches('/').to_owned())
        });
        let top = if controller.is_empty() {
            self.root.clone()
        } else {
            self.root.join(controller)
        };
        let paths: Vec<PathBuf> = line.map_or_else(Vec::new, |own| {
            Path::new(&own)
                .ancestors()
                .map(|path| top.join(path))
                .collect()
        });
        paths.into_iter()
    }
}

/// `quota period` in microseconds, or `max period`.
fn parse_cpu_max(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0.0).then_some(quota / period)
}

/// A positive number in a file; version 1 says -1 for "none".
fn read_number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;
    use crate::testing::TestDir;

    #[test]
    fn a_core_list_is_sorted_and_free_of_doubles() {
        let allowed: Vec<usize> = (0..8).collect();
        assert_eq!(
            parse_core_list("5,0, 2-4,3", &allowed),
            Ok(vec![0, 2, 3, 4, 5])
        );
    }

    #[test]
    fn a_core_list_that_makes_no_sense_says_why() {
        let allowed = [0, 1];
        for text in ["x", "1-", "3-2", "-1", "1-2-3"] {
            assert_eq!(
                parse_core_list(text, &allowed),
                Err(CoreListError::Malformed(text.into())),
                "{text}"
            );
        }
        assert_eq!(parse_core_list(" , ", &allowed), Err(CoreListError::Empty));
        let error = parse_core_list("0-99999999999", &allowed).unwrap_err();
        assert!(error.to_string().contains("0,1"), "{error}");
    }

    #[test]
    fn a_quota_gives_whole_cores_and_at_least_one() {
        assert_eq!(within_quota(vec![2, 3, 5], Some(2.9)), [2, 3]);
        assert_eq!(within_quota(vec![2, 3, 5], Some(0.5)), [2]);
        assert_eq!(within_quota(vec![2, 3, 5], None), [2, 3, 5]);
        assert_eq!(within_quota(vec![], None), [0]);
    }

    fn group(files: &[(&str, &str)], membership: &str) -> (TestDir, CGroup) {
        let dir = TestDir::new();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let group = CGroup {
            root: dir.path().to_owned(),
            membership: membership.to_owned(),
        };
        (dir, group)
    }

    #[test]
    fn the_tightest_group_on_the_way_up_counts() {
        let files = [
            ("a/cpu.max", "150000 100000\n"),
            ("a/b/cpu.max", "max 100000\n"),
            ("a/memory.max", "max\n"),
            ("a/b/memory.max", "1073741824\n"),
        ];
        let (_dir, group) = group(&files, "0::/a/b\n");
        assert_eq!(group.cpu_quota(), Some(1.5));
        assert_eq!(group.memory_max(), Some(1 << 30));
    }

    #[test]
    fn version_1_limits_count_too() {
        let files = [
            ("cpu/x/cpu.cfs_quota_us", "250000\n"),
            ("cpu/x/cpu.cfs_period_us", "100000\n"),
            ("cpu/cpu.cfs_quota_us", "-1\n"),
            ("cpu/cpu.cfs_period_us", "100000\n"),
            ("memory/x/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        let (_dir, group) = group(&files, "4:cpu,cpuacct:/x\n3:memory:/x\n");
        assert_eq!(group.cpu_quota(), Some(2.5));
        assert_eq!(group.memory_max(), None);
    }

    #[test]
    fn this_machine_has_cores_and_memory() {
        assert!(!allowed_cores().is_empty());
        assert!(memory_limit_bytes().unwrap() > 1 << 20);
        assert_eq!(
            mem_total("MemFree: 1 kB\nMemTotal:       16 kB\n"),
            Some(16384)
        );
    }

    #[test]
    fn cpu_time_of_a_thread_grows_with_work() {
        let before = thread_cpu_time();
        let mut sum = 0u64;
        while thread_cpu_time() == before {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(thread_cpu_time() > before);
    }
}
