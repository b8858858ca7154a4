//! What the broker and the machine spent, from /proc.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Failure;

/// Counters of one process since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Spent {
    /// User and system time of all threads, those that ended and those of io_uring's workers included.
    pub(crate) cpu_seconds: f64,
    /// Time that its threads were ready but had no core: what others on the machine took from it.
    pub(crate) waited_seconds: f64,
}

/// What the threads of one name have spent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Threads {
    /// Without numbers at the end: a pool is one entry.
    pub name: String,
    pub count: u32,
    pub cpu_seconds: f64,
}

/// Memory of one process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Memory {
    pub rss_bytes: u64,
    /// The part that no file stands behind.
    pub anonymous_bytes: u64,
    /// The highest `rss_bytes` so far.
    pub peak_bytes: u64,
}

/// Counters of the machine since it began, in core seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Machine {
    pub(crate) busy_seconds: f64,
    /// Taken by the hypervisor for others.
    pub(crate) stolen_seconds: f64,
    /// In which the cgroup's quota kept threads from running.
    pub(crate) throttled_seconds: f64,
}

fn read(path: PathBuf) -> Result<String, Failure> {
    std::fs::read_to_string(&path).map_err(Failure::at(&path))
}

fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

fn unreadable(what: &str) -> Failure {
    Failure::told(format!("/proc/{what} does not read as on Linux"))
}

impl Spent {
    pub(crate) fn of(pid: u32) -> Result<Spent, Failure> {
        let cpu_seconds = Spent::cpu_seconds_of(pid)?;
        let tasks = PathBuf::from(format!("/proc/{pid}/task"));
        let mut waited_ns = 0;
        for task in std::fs::read_dir(&tasks).map_err(Failure::at(&tasks))? {
            let path = task.map_err(Failure::at(&tasks))?.path().join("schedstat");
            // A thread may end while we look.
            if let Ok(schedstat) = std::fs::read_to_string(path) {
                waited_ns += run_queue_ns(&schedstat).unwrap_or(0);
            }
        }
        Ok(Spent {
            cpu_seconds,
            waited_seconds: waited_ns as f64 / 1e9,
        })
    }

    /// The CPU time alone, which is cheap to ask for.
    pub(crate) fn cpu_seconds_of(pid: u32) -> Result<f64, Failure> {
        let stat = read(format!("/proc/{pid}/stat").into())?;
        let ticks = cpu_ticks(&stat).ok_or_else(|| unreadable("PID/stat"))?;
        Ok(ticks as f64 / ticks_per_second())
    }

    pub(crate) fn since(self, earlier: Spent) -> Spent {
        Spent {
            cpu_seconds: self.cpu_seconds - earlier.cpu_seconds,
            // Threads that ended took their share with them.
            waited_seconds: (self.waited_seconds - earlier.waited_seconds).max(0.0),
        }
    }
}

impl Threads {
    /// Of all threads that run now, by name.
    pub(crate) fn of(pid: u32) -> Result<Vec<Threads>, Failure> {
        let tasks = PathBuf::from(format!("/proc/{pid}/task"));
        let mut by_name: BTreeMap<String, Threads> = BTreeMap::new();
        for task in std::fs::read_dir(&tasks).map_err(Failure::at(&tasks))? {
            let path = task.map_err(Failure::at(&tasks))?.path().join("stat");
            // A thread may end while we look.
            let Ok(stat) = std::fs::read_to_string(path) else {
                continue;
            };
            let (Some(name), Some(ticks)) = (thread_name(&stat), cpu_ticks(&stat)) else {
                return Err(unreadable("PID/task/TID/stat"));
            };
            let threads = by_name.entry(name.to_owned()).or_insert_with(|| Threads {
                name: name.to_owned(),
                count: 0,
                cpu_seconds: 0.0,
            });
            threads.count += 1;
            threads.cpu_seconds += ticks as f64 / ticks_per_second();
        }
        Ok(by_name.into_values().collect())
    }

    /// What was spent since, the most first; threads that spent nothing are left out.
    pub(crate) fn since(now: Vec<Threads>, earlier: &[Threads]) -> Vec<Threads> {
        let mut spent: Vec<Threads> = now
            .into_iter()
            .map(|mut threads| {
                let before = earlier.iter().find(|before| before.name == threads.name);
                threads.cpu_seconds -= before.map_or(0.0, |before| before.cpu_seconds);
                threads
            })
            .filter(|threads| threads.cpu_seconds > 0.0)
            .collect();
        spent.sort_by(|one, other| other.cpu_seconds.total_cmp(&one.cpu_seconds));
        spent
    }
}

impl Memory {
    pub(crate) fn of(pid: u32) -> Result<Memory, Failure> {
        let status = read(format!("/proc/{pid}/status").into())?;
        memory(&status).ok_or_else(|| unreadable("PID/status"))
    }
}

impl Machine {
    pub(crate) fn now() -> Result<Machine, Failure> {
        let mut machine = machine(&read("/proc/stat".into())?, ticks_per_second())
            .ok_or_else(|| unreadable("stat"))?;
        // A machine without cgroups of version 2 does not throttle by them.
        let cgroup = std::fs::read_to_string("/sys/fs/cgroup/cpu.stat").unwrap_or_default();
        machine.throttled_seconds = throttled_us(&cgroup) as f64 / 1e6;
        Ok(machine)
    }
}

/// utime + stime. The name in parentheses may hold anything, so fields count from the last parenthesis.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace();
    let user: u64 = fields.nth(11)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// The name in parentheses, without the number of a pool's thread.
fn thread_name(stat: &str) -> Option<&str> {
    let (_, from_name) = stat.split_once('(')?;
    let (name, _) = from_name.rsplit_once(')')?;
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || "-#/_ ".contains(c));
    Some(if stem.is_empty() { name } else { stem })
}

fn throttled_us(cgroup: &str) -> u64 {
    let of = |line: &str| line.strip_prefix("throttled_usec ")?.trim().parse().ok();
    cgroup.lines().find_map(of).unwrap_or(0)
}

fn run_queue_ns(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().nth(1)?.parse().ok()
}

fn memory(status: &str) -> Option<Memory> {
    let bytes = |name: &str| -> Option<u64> {
        let line = status.lines().find(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(':'))
        })?;
        let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kib * 1024)
    };
    Some(Memory {
        rss_bytes: bytes("VmRSS")?,
        anonymous_bytes: bytes("RssAnon")?,
        peak_bytes: bytes("VmHWM")?,
    })
}

/// The line of all cores: user nice system idle iowait irq softirq steal; guest time is part of user.
fn machine(stat: &str, ticks_per_second: f64) -> Option<Machine> {
    let fields: Vec<u64> = stat
        .lines()
        .find_map(|line| line.strip_prefix("cpu "))?
        .split_whitespace()
        .map(|field| field.parse().ok())
        .collect::<Option<_>>()?;
    let [user, nice, system, _idle, _wait, irq, soft_irq, stolen, ..] = fields[..] else {
        return None;
    };
    Some(Machine {
        busy_seconds: (user + nice + system + irq + soft_irq) as f64 / ticks_per_second,
        stolen_seconds: stolen as f64 / ticks_per_second,
        throttled_seconds: 0.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let stat = "42 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 700 33 1 2 20 0 9 0 100 1 1";
        assert_eq!(cpu_ticks(stat), Some(733));
        assert_eq!(cpu_ticks("42 (a) S 1 2"), None);
    }

    #[test]
    fn the_second_field_of_schedstat_is_the_time_without_a_core() {
        assert_eq!(run_queue_ns("1000 250 3\n"), Some(250));
        assert_eq!(run_queue_ns(""), None);
    }

    #[test]
    fn memory_comes_in_bytes() {
        let status = "Name:\tx\nVmHWM:\t  3000 kB\nVmRSS:\t  2000 kB\nRssAnon:\t  1500 kB\n";
        assert_eq!(
            memory(status),
            Some(Memory {
                rss_bytes: 2_048_000,
                anonymous_bytes: 1_536_000,
                peak_bytes: 3_072_000
            })
        );
        assert_eq!(memory("Name:\tzombie\n"), None);
    }

    #[test]
    fn idle_and_waiting_for_disks_is_not_busy() {
        let stat = "cpu  100 20 30 9999 888 5 5 40 60 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(
            machine(stat, 10.0),
            Some(Machine {
                busy_seconds: 16.0,
                stolen_seconds: 4.0,
                throttled_seconds: 0.0,
            })
        );
        assert_eq!(machine("cpu0 1 2\n", 10.0), None);
    }

    #[test]
    fn threads_of_a_pool_have_one_name() {
        for (stat, name) in [
            ("7 (kafka-network-t) S 1", "kafka-network-t"),
            ("7 (core-12) S 1", "core"),
            ("7 (G1 Conc#3) S 1", "G1 Conc"),
            ("7 (a (b) 1) S 1", "a (b)"),
            ("7 (42) S 1", "42"),
        ] {
            assert_eq!(thread_name(stat), Some(name), "{stat}");
        }
    }

    #[test]
    fn threads_that_were_busy_come_first_and_idle_ones_not_at_all() {
        let threads = |name: &str, cpu_seconds| Threads {
            name: name.to_owned(),
            count: 1,
            cpu_seconds,
        };
        let earlier = [threads("a", 1.0), threads("b", 2.0)];
        let now = vec![threads("a", 1.5), threads("b", 2.0), threads("c", 4.0)];
        let spent = Threads::since(now, &earlier);
        assert_eq!(spent, [threads("c", 4.0), threads("a", 0.5)]);
    }

    #[test]
    fn throttling_is_in_microseconds() {
        let stat = "usage_usec 5\nnr_throttled 2\nthrottled_usec 1500\n";
        assert_eq!(throttled_us(stat), 1500);
        assert_eq!(throttled_us(""), 0);
    }

    #[test]
    fn this_process_can_be_read() {
        let pid = std::process::id();
        assert!(Memory::of(pid).unwrap().rss_bytes > 0);
        let earlier = Spent::of(pid).unwrap();
        assert!(Spent::of(pid).unwrap().since(earlier).cpu_seconds >= 0.0);
        assert!(Machine::now().unwrap().busy_seconds > 0.0);
        assert!(!Threads::of(pid).unwrap().is_empty());
    }
}
