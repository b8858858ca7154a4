//! What the broker and the machine spent, from /proc.

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
        let stat = read(format!("/proc/{pid}/stat").into())?;
        let ticks = cpu_ticks(&stat).ok_or_else(|| unreadable("PID/stat"))?;
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
            cpu_seconds: ticks as f64 / ticks_per_second(),
            waited_seconds: waited_ns as f64 / 1e9,
        })
    }

    pub(crate) fn since(self, earlier: Spent) -> Spent {
        Spent {
            cpu_seconds: self.cpu_seconds - earlier.cpu_seconds,
            // Threads that ended took their share with them.
            waited_seconds: (self.waited_seconds - earlier.waited_seconds).max(0.0),
        }
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
        machine(&read("/proc/stat".into())?, ticks_per_second()).ok_or_else(|| unreadable("stat"))
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
                stolen_seconds: 4.0
            })
        );
        assert_eq!(machine("cpu0 1 2\n", 10.0), None);
    }

    #[test]
    fn this_process_can_be_read() {
        let pid = std::process::id();
        assert!(Memory::of(pid).unwrap().rss_bytes > 0);
        let earlier = Spent::of(pid).unwrap();
        assert!(Spent::of(pid).unwrap().since(earlier).cpu_seconds >= 0.0);
        assert!(Machine::now().unwrap().busy_seconds > 0.0);
    }
}
