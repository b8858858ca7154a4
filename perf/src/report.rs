//! Results: as JSON with everything needed to repeat them, as a table with ratios for people.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;

use crate::Failure;
use crate::compare::Run;
use crate::memory::AtRest;
use crate::recorded::{Spread, Summary};
use crate::start::Started;

/// Where and how it was measured.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Host {
    pub(crate) command: String,
    pub(crate) host: String,
    pub(crate) kernel: String,
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) broker_cores: String,
    pub(crate) load_core: usize,
    pub(crate) commit: String,
    /// Seconds since 1970.
    pub(crate) time: u64,
}

impl Host {
    pub(crate) fn here(broker_cores: &str, load_core: usize) -> Host {
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
        Host {
            command: std::env::args().collect::<Vec<_>>().join(" "),
            host: line("/proc/sys/kernel/hostname"),
            kernel: line("/proc/sys/kernel/osrelease"),
            processor,
            cores: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            broker_cores: broker_cores.to_owned(),
            load_core,
            commit: commit(),
            time: now.map_or(0, |time| time.as_secs()),
        }
    }
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

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    pub(crate) host: Host,
    pub(crate) runs: Vec<Run>,
}

impl Report {
    pub(crate) fn new(host: Host) -> Report {
        Report {
            host,
            runs: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, run: Run) {
        self.runs.push(run);
    }

    pub(crate) fn write_json(&self, path: &Path) -> Result<(), Failure> {
        let mut text = serde_json::to_string_pretty(self)
            .map_err(|error| Failure::told(format!("the results as JSON: {error}")))?;
        text.push('\n');
        std::fs::write(path, text).map_err(Failure::at(path))
    }

    /// One line a workload and target: medians, and how many times the first target's cost each target costs.
    pub(crate) fn table(&self) -> Result<String, Failure> {
        let mut table = String::from(
            "| workload | target | CPU s/M records | CPU s/GB | ÷ first | records/s | MB/s | ms p50 / p99 / p99.9 / max | end to end ms p50 / p99 / p99.9 / max | waited | load | others | runs |\n\
             |---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
        );
        for (workload, target) in distinct(&self.runs) {
            let of = |target: &str| -> Vec<&Run> {
                let all = self.runs.iter();
                all.filter(|run| run.workload == workload && run.target == target)
                    .collect()
            };
            let first = self.runs.iter().find(|run| run.workload == workload);
            let first = of(first.map_or(target, |run| &run.target));
            row(&mut table, &of(target), &first)?;
        }
        Ok(table)
    }
}

fn distinct(runs: &[Run]) -> Vec<(&str, &str)> {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for run in runs {
        let pair = (&*run.workload, &*run.target);
        if !pairs.contains(&pair) {
            pairs.push(pair);
        }
    }
    pairs
}

fn row(table: &mut String, runs: &[&Run], first: &[&Run]) -> Result<(), Failure> {
    let spread = |number: fn(&Run) -> f64| Spread::of(runs.iter().map(|run| number(run)));
    let per_million = spread(|run| run.cpu_seconds_per_million_records)?;
    let of_first = Spread::of(first.iter().map(|run| run.cpu_seconds_per_million_records))?;
    let doubtful = runs.iter().filter(|run| run.is_doubtful()).count();
    let counted = match doubtful {
        0 => format!("{}", runs.len()),
        some => format!("{} ({some} with stolen time)", runs.len()),
    };
    let cells = [
        runs.first().map_or("", |run| &run.workload).to_owned(),
        runs.first().map_or("", |run| &run.target).to_owned(),
        format!(
            "{} ({} to {})",
            three(per_million.median),
            three(per_million.lowest),
            three(per_million.highest)
        ),
        three(spread(|run| run.cpu_seconds_per_gigabyte)?.median),
        three(per_million.median / of_first.median),
        format!("{:.0}", spread(|run| run.records_per_second)?.median),
        three(spread(|run| run.megabytes_per_second)?.median),
        latencies(runs, |run| run.latency.as_ref()),
        latencies(runs, |run| run.end_to_end.as_ref()),
        three(spread(|run| run.waited)?.median),
        three(spread(|run| run.load_cores)?.median),
        three(spread(|run| run.other_cores)?.median),
        counted,
    ];
    writeln!(table, "| {} |", cells.join(" | "))
        .map_err(|_| Failure::told("the table can't be written"))
}

/// Medians over the runs; a percentile that some run does not carry is left out.
fn latencies(runs: &[&Run], which: fn(&Run) -> Option<&Summary>) -> String {
    let summaries: Option<Vec<&Summary>> = runs.iter().map(|run| which(run)).collect();
    let Some(summaries) = summaries else {
        return String::from("-");
    };
    let cell = |number: fn(&Summary) -> Option<f64>| {
        let numbers: Option<Vec<f64>> = summaries.iter().map(|summary| number(summary)).collect();
        numbers
            .and_then(|numbers| Spread::of(numbers).ok())
            .map_or_else(|| String::from("-"), |spread| three(spread.median / 1e3))
    };
    [
        cell(|summary| Some(summary.p50_us)),
        cell(|summary| summary.p99_us),
        cell(|summary| summary.p999_us),
        cell(|summary| Some(summary.max_us)),
    ]
    .join(" / ")
}

/// Three digits that mean something.
fn three(number: f64) -> String {
    match number.abs() {
        size if size >= 100.0 => format!("{number:.0}"),
        size if size >= 10.0 => format!("{number:.1}"),
        size if size >= 1.0 => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
}

/// What one run says, on one line.
pub(crate) fn line(run: &Run) -> String {
    let latencies = |which: fn(&Run) -> Option<&Summary>| latencies(&[run], which);
    format!(
        "{} {} #{}: {:.0} records/s, {} MB/s, CPU {} s/M {} s/GB, ms {} (end to end {}), memory {} MiB, waited {} load {} others {} unanswered {} unseen {}",
        run.workload,
        run.target,
        run.repeat,
        run.records_per_second,
        three(run.megabytes_per_second),
        three(run.cpu_seconds_per_million_records),
        three(run.cpu_seconds_per_gigabyte),
        latencies(|run| run.latency.as_ref()),
        latencies(|run| run.end_to_end.as_ref()),
        run.memory.rss_bytes >> 20,
        three(run.waited),
        three(run.load_cores),
        three(run.other_cores),
        run.unanswered,
        run.unseen,
    )
}

pub(crate) fn at_rest(memory: &AtRest) -> String {
    let mib = |bytes: u64| three(bytes as f64 / f64::from(1 << 20));
    let kib = |bytes: f64| three(bytes / 1024.0);
    format!(
        "{}: at rest {} MiB ({} MiB anonymous), {} KiB per idle connection, {} KiB per empty partition, {} KiB per partition with a batch",
        memory.target,
        mib(memory.rss_bytes),
        mib(memory.anonymous_bytes),
        kib(memory.per_connection),
        kib(memory.per_empty_partition),
        kib(memory.per_written_partition),
    )
}

pub(crate) fn started(started: &Started) -> String {
    format!(
        "{} #{}: answers after {} ms on an empty directory, {} ms after kill -9; writable {} ms after kill -9",
        started.target,
        started.repeat,
        three(started.empty_ms),
        three(started.after_kill_ms),
        three(started.writable_after_kill_ms),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Memory;

    fn run(target: &str, cpu: f64, p99_us: Option<f64>) -> Run {
        Run {
            workload: "b1".to_owned(),
            target: target.to_owned(),
            repeat: 1,
            seconds: 10.0,
            records_per_second: 1000.0,
            megabytes_per_second: 1.0,
            cpu_seconds: cpu,
            cpu_seconds_per_million_records: cpu,
            cpu_seconds_per_gigabyte: cpu,
            waited: 0.0,
            load_cores: 0.5,
            other_cores: 0.0,
            stolen_cores: 0.0,
            memory: Memory::default(),
            latency: Some(Summary {
                count: 100,
                p50_us: 1500.0,
                p99_us,
                p999_us: None,
                p9999_us: None,
                max_us: 9000.0,
            }),
            service: None,
            end_to_end: None,
            unanswered: 0,
            unseen: 0,
        }
    }

    #[test]
    fn the_table_gives_medians_and_ratios_to_the_first_target() {
        let mut report = Report::new(Host::here("0", 1));
        for cpu in [1.0, 2.0, 9.0] {
            report.add(run("percore", cpu, Some(3000.0)));
            report.add(run("kafka", 4.0 * cpu, None));
        }
        let table = report.table().unwrap();
        let rows: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(rows.len(), 2);
        assert!(
            rows[0].contains("| 2.00 (1.00 to 9.00) | 2.00 | 1.00 |"),
            "{table}"
        );
        assert!(rows[0].contains("1.50 / 3.00 / - / 9.00"), "{table}");
        assert!(
            rows[1].contains("| 8.00 (4.00 to 36.0) | 8.00 | 4.00 |"),
            "{table}"
        );
        assert!(rows[1].contains("1.50 / - / - / 9.00"), "{table}");
    }

    #[test]
    fn stolen_time_is_shown() {
        let mut report = Report::new(Host::here("0", 1));
        let mut doubtful = run("percore", 1.0, None);
        doubtful.stolen_cores = 0.03;
        report.add(doubtful);
        assert!(report.table().unwrap().contains("1 (1 with stolen time)"));
    }

    #[test]
    fn results_are_written_with_what_is_needed_to_repeat_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.json");
        let mut report = Report::new(Host::here("0", 1));
        report.add(run("floor", 1.0, None));
        report.write_json(&path).unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(!value["host"]["kernel"].as_str().unwrap().is_empty());
        assert_eq!(value["runs"][0]["target"], "floor");
    }
}
