//! The process as the kernel sees it; stands in for `java.lang` beans (kafka.md 14).

use std::sync::LazyLock;

/// Read on demand, from `/proc`.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Process {
    pub(super) cpu_seconds: f64,
    pub(super) resident_bytes: u64,
    /// Resident memory that is no file: what the memory budget bounds.
    pub(super) anonymous_bytes: u64,
    pub(super) threads: u64,
    pub(super) open_files: u64,
}

/// Clock ticks a second in `/proc`: a constant of the kernel's interface on all machines that this runs on.
const TICKS_PER_SECOND: f64 = 100.0;

static START: LazyLock<f64> = LazyLock::new(|| {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
});

/// Seconds since the Unix epoch at which this was first asked, which is at start.
pub(super) fn start_seconds() -> f64 {
    *START
}

impl Process {
    pub(super) fn now() -> Process {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/self/{file}")).ok();
        let mut process = Process::parse(
            &read("stat").unwrap_or_default(),
            &read("status").unwrap_or_default(),
        );
        process.open_files =
            std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64);
        process
    }

    fn parse(stat: &str, status: &str) -> Process {
        // The second field, the name, may hold anything, parentheses included; what follows the last one is numbers.
        let numbers = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let field = |index: usize| -> f64 {
            let text = numbers.split_ascii_whitespace().nth(index);
            text.and_then(|text| text.parse().ok()).unwrap_or(0.0)
        };
        let line = |name: &str| -> u64 {
            let text = status.lines().find_map(|line| line.strip_prefix(name));
            text.and_then(|text| text.split_ascii_whitespace().next()?.parse().ok())
                .unwrap_or(0)
        };
        Process {
            // utime and stime, fields 14 and 15 counted from 1
            cpu_seconds: (field(11) + field(12)) / TICKS_PER_SECOND,
            resident_bytes: line("VmRSS:") * 1024,
            anonymous_bytes: line("RssAnon:") * 1024,
            threads: line("Threads:"),
            open_files: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read_whatever_the_name_of_the_process() {
        let stat = "7 (core) log) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 3 0 100 1 1";
        let status = "Name:\tcorelog\nVmRSS:\t  2048 kB\nRssAnon:\t 1024 kB\nThreads:\t3\n";
        assert_eq!(
            Process::parse(stat, status),
            Process {
                cpu_seconds: 3.0,
                resident_bytes: 2 << 20,
                anonymous_bytes: 1 << 20,
                threads: 3,
                open_files: 0,
            }
        );
        assert_eq!(Process::parse("", ""), Process::default());
    }

    #[test]
    fn this_process_is_there() {
        let process = Process::now();
        assert!(process.resident_bytes > 0 && process.open_files > 0 && process.threads > 0);
    }
}
