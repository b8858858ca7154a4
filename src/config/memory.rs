//! The memory budget and its pools (architecture.md 6). Every pool bounds bytes that the broker holds because of what comes from outside;
//! together they are `memory.budget.bytes`.

use std::path::Path;

use super::settings::{ConfigError, Settings};

/// How the budget is cut. Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryPlan {
    /// The sum of the pools.
    pub budget: u64,
    /// Requests between their first byte and their parse or write (`queued.max.request.bytes`).
    pub requests: u64,
    /// Answers and reads between their reservation and the last byte sent.
    pub replies: u64,
    /// Recent batches kept for consumers at the tail.
    pub tail: u64,
    /// Appended bytes that are not written yet, copies for recompression, index areas.
    pub writes: u64,
    /// The largest request that is read (`socket.request.max.bytes`).
    pub request_max: u32,
}

/// Not more: the page cache, which serves all older reads, is worth more than larger pools. Not less: two cores at full speed keep this busy.
const BUDGET_MAX: u64 = 1 << 30;
/// Below this the pools are smaller than one ordinary batch per core.
const BUDGET_MIN: u64 = 16 << 20;
/// More than this of recent batches is better kept by the page cache, which gives way when memory is short.
const TAIL_MAX: u64 = 64 << 20;
/// The budget is this part of what the cgroup (or the machine) has: the rest is for the page cache and for other processes.
const BUDGET_PART: u64 = 4;
/// What is assumed where nothing says how much memory there is.
const MEMORY_UNKNOWN: u64 = 1 << 30;

impl MemoryPlan {
    /// `memory` is what the cgroup or the machine allows this process.
    pub fn of(settings: &Settings, memory: Option<u64>) -> Result<MemoryPlan, ConfigError> {
        let budget = match settings.number::<i64>("memory.budget.bytes") {
            -1 => (memory.unwrap_or(MEMORY_UNKNOWN) / BUDGET_PART).clamp(BUDGET_MIN, BUDGET_MAX),
            given => given as u64,
        };
        if budget < BUDGET_MIN {
            return Err(ConfigError::one(format!(
                "memory.budget.bytes={budget}: too small; give at least {BUDGET_MIN}, or -1 for a quarter of the memory"
            )));
        }
        let requests = match settings.number::<i64>("queued.max.request.bytes") {
            given if given > 0 => given as u64,
            _ => budget / 4,
        };
        if requests > budget / 2 {
            return Err(ConfigError::one(format!(
                "queued.max.request.bytes={requests}: more than half of memory.budget.bytes={budget}, whose other pools it would starve; \
                 lower it or give a budget of at least {}",
                requests.saturating_mul(2)
            )));
        }
        let request_max = request_max(settings, requests)?;
        let rest = budget - requests;
        let third = rest / 3;
        let tail = third.min(TAIL_MAX);
        Ok(MemoryPlan {
            budget,
            requests,
            replies: third,
            tail,
            writes: rest - third - tail,
            request_max,
        })
    }
}

/// A request must fit into the pool that it is paid from. Kafka's default is lowered to half of that, so that others can be read beside the largest
/// one; a value that was given is not lowered.
fn request_max(settings: &Settings, requests: u64) -> Result<u32, ConfigError> {
    let max: u32 = settings.number("socket.request.max.bytes");
    if settings.given_value("socket.request.max.bytes").is_none() {
        return Ok(u32::try_from(requests / 2).map_or(max, |half| half.min(max)));
    }
    if u64::from(max) <= requests {
        return Ok(max);
    }
    Err(ConfigError::one(format!(
        "socket.request.max.bytes={max}: larger than the pool of {requests} bytes that requests are paid from, so the largest request could never \
         be read; lower it, or raise queued.max.request.bytes or memory.budget.bytes (a quarter of it is for requests)"
    )))
}

/// What the cgroup allows this process, else what the machine has; `None` if neither says.
pub fn memory_of_this_process() -> Option<u64> {
    let proc = Path::new("/proc");
    let machine = std::fs::read_to_string(proc.join("meminfo"))
        .ok()
        .and_then(|text| machine_memory(&text));
    let membership = std::fs::read_to_string(proc.join("self/cgroup")).unwrap_or_default();
    let cgroup = cgroup_files(&membership)
        .iter()
        .filter_map(|file| std::fs::read_to_string(file).ok())
        .filter_map(|text| text.trim().parse::<u64>().ok())
        .min();
    match (machine, cgroup) {
        (Some(machine), Some(cgroup)) => Some(machine.min(cgroup)),
        (machine, cgroup) => machine.or(cgroup),
    }
}

fn machine_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The limit files of the process's cgroup and of all that it lies in: each of them binds. Version 2 first, then version 1.
fn cgroup_files(membership: &str) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for line in membership.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let (root, file) = if controllers.is_empty() {
            ("/sys/fs/cgroup", "memory.max")
        } else if controllers.split(',').any(|name| name == "memory") {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else {
            continue;
        };
        let path = Path::new(path.trim_start_matches('/'));
        files.extend(
            path.ancestors()
                .map(|up| Path::new(root).join(up).join(file)),
        );
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn plan(pairs: &[(&str, &str)], memory: u64) -> Result<MemoryPlan, ConfigError> {
        let settings =
            Settings::from_pairs(pairs.iter().map(|(k, v)| ((*k).into(), (*v).into()))).unwrap();
        MemoryPlan::of(&settings, Some(memory))
    }

    #[test]
    fn the_pools_are_the_budget() {
        for memory in [1, 100 * MIB, 1000 * MIB, 1 << 40] {
            let plan = plan(&[], memory).unwrap();
            assert_eq!(
                plan.requests + plan.replies + plan.tail + plan.writes,
                plan.budget
            );
            assert!(u64::from(plan.request_max) <= plan.requests);
        }
    }

    #[test]
    fn the_default_is_a_quarter_of_the_memory_and_at_most_one_gib() {
        assert_eq!(plan(&[], 2 << 30).unwrap().budget, 512 * MIB);
        assert_eq!(plan(&[], 64 << 30).unwrap().budget, 1 << 30);
        assert_eq!(plan(&[], 64 << 30).unwrap().request_max, 104_857_600);
        assert_eq!(plan(&[], 256 * MIB).unwrap().request_max as u64, 8 * MIB);
    }

    #[test]
    fn a_request_that_could_never_be_read_is_refused() {
        let small = ("memory.budget.bytes", "67108864");
        let error = plan(&[small, ("socket.request.max.bytes", "104857600")], 1 << 34)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("larger than the pool of 16777216 bytes"),
            "{error}"
        );
        assert!(plan(&[small], 1 << 34).is_ok());
    }

    #[test]
    fn a_pool_that_starves_the_others_is_refused() {
        let small = ("memory.budget.bytes", "67108864");
        assert!(plan(&[small, ("queued.max.request.bytes", "33554433")], 1 << 34).is_err());
        let plan = plan(&[small, ("queued.max.request.bytes", "33554432")], 1 << 34).unwrap();
        assert_eq!(plan.requests, 32 * MIB);
    }

    #[test]
    fn a_budget_that_is_too_small_is_refused() {
        assert!(plan(&[("memory.budget.bytes", "1000")], 1 << 34).is_err());
    }

    #[test]
    fn the_limits_of_all_enclosing_cgroups_are_read() {
        let files = cgroup_files("0::/a/b\n");
        let files: Vec<_> = files.iter().map(|file| file.to_str().unwrap()).collect();
        assert_eq!(
            files,
            [
                "/sys/fs/cgroup/a/b/memory.max",
                "/sys/fs/cgroup/a/memory.max",
                "/sys/fs/cgroup/memory.max"
            ]
        );
        let files = cgroup_files("5:cpu:/x\n4:memory:/y\n");
        assert_eq!(
            files[0].to_str().unwrap(),
            "/sys/fs/cgroup/memory/y/memory.limit_in_bytes"
        );
        assert_eq!(files.len(), 2);
        assert_eq!(
            machine_memory("MemTotal:       1024 kB\nMemFree: 1 kB"),
            Some(MIB)
        );
    }
}
