//! Results on a terminal, which are Markdown too.

use std::fmt::Write as _;

use crate::Failure;
use crate::measure::Run;
use crate::memory::AtRest;
use crate::recorded::{Spread, Summary};
use crate::results::Results;
use crate::start::Started;
use crate::verdict::Ratio;

/// One line a workload and target: medians, and how many times the first target's cost each target costs.
pub(crate) fn table(results: &Results) -> Result<String, Failure> {
    table_of(results, &results.workload_names())
}

pub(crate) fn table_of(results: &Results, workloads: &[&str]) -> Result<String, Failure> {
    let mut table = String::from(
        "| workload | target | CPU s/M records | CPU s/GB | ÷ first | records/s | MB/s | ms p50 / p99 / p99.9 / p99.99 / max (samples) | service ms p50 / p99 / p99.9 / p99.99 / max (samples) | end to end ms p50 / p99 / p99.9 / p99.99 / max (samples) | MiB | waited | load | others | runs |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for workload in workloads {
        let targets = results.target_names(Some(workload));
        for target in &targets {
            let first = results.of(workload, targets[0]);
            row(&mut table, &results.of(workload, target), &first)?;
        }
    }
    Ok(table)
}

fn row(table: &mut String, runs: &[&Run], first: &[&Run]) -> Result<(), Failure> {
    let spread = |number: fn(&Run) -> f64| Spread::of(runs.iter().map(|run| number(run)));
    let per_million = spread(|run| run.cpu_seconds_per_million_records)?;
    let of_first = Spread::of(first.iter().map(|run| run.cpu_seconds_per_million_records))?;
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
        latencies(runs, |run| run.service.as_ref()),
        latencies(runs, |run| run.end_to_end.as_ref()),
        format!(
            "{:.0}",
            spread(|run| run.memory.rss_bytes as f64 / f64::from(1 << 20))?.median
        ),
        three(spread(|run| run.waited)?.median),
        three(spread(|run| run.load_cores)?.median),
        three(spread(|run| run.other_cores)?.median),
        marks(runs),
    ];
    writeln!(table, "| {} |", cells.join(" | ")).map_err(written)
}

fn written(_: std::fmt::Error) -> Failure {
    Failure::told("the table can't be written")
}

/// How many runs, and what is wrong with some.
pub(crate) fn marks(runs: &[&Run]) -> String {
    type Holds = fn(&Run) -> bool;
    let marks: [(Holds, &str); 4] = [
        (Run::is_doubtful, "with more than 2% stolen"),
        (|run| run.throttled > 0.0, "throttled"),
        (|run| !run.kept_its_rate(), "that did not keep the rate"),
        (|run| run.interrupted, "cut short"),
    ];
    let found: Vec<String> = marks
        .iter()
        .map(|(holds, what)| (runs.iter().filter(|run| holds(run)).count(), what))
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if found.is_empty() {
        runs.len().to_string()
    } else {
        format!("{} ({})", runs.len(), found.join(", "))
    }
}

/// What interleaved repeats say about each target against the first, a line a quantity.
pub(crate) fn verdicts(results: &Results) -> String {
    type Number = fn(&Run) -> Option<f64>;
    const NUMBERS: [(&str, Number); 5] = [
        ("CPU per record", |run| {
            Some(run.cpu_seconds_per_million_records).filter(|cpu| *cpu > 0.0)
        }),
        ("records per second", |run| {
            run.rate.is_none().then_some(run.records_per_second)
        }),
        ("p50", |run| run.tail().map(|tail| tail.p50_us)),
        ("p99", |run| run.tail()?.p99_us),
        ("p99.9", |run| run.tail()?.p999_us),
    ];
    let mut lines = String::new();
    for workload in results.workload_names() {
        let targets = results.target_names(Some(workload));
        for target in targets.iter().skip(1) {
            for (what, number) in NUMBERS {
                let pairs = results.pairs(workload, (target, targets[0]), number);
                // What not every run has is not compared.
                if let Ok(ratio) = Ratio::of(&pairs) {
                    let against = targets[0];
                    let line = ratio.line();
                    lines.push_str(
                        &[
                            workload, ": ", what, ", ", target, " ÷ ", against, ": ", &line, "\n",
                        ]
                        .concat(),
                    );
                }
            }
        }
    }
    lines
}

/// Medians over the runs, and the count of all samples; a percentile that some run does not carry is left out.
pub(crate) fn latencies(runs: &[&Run], which: fn(&Run) -> Option<&Summary>) -> String {
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
    let percentiles = [
        cell(|summary| Some(summary.p50_us)),
        cell(|summary| summary.p99_us),
        cell(|summary| summary.p999_us),
        cell(|summary| summary.p9999_us),
        cell(|summary| Some(summary.max_us)),
    ]
    .join(" / ");
    let count: u64 = summaries.iter().map(|summary| summary.count).sum();
    format!("{percentiles} ({count})")
}

/// Three digits that mean something.
pub(crate) fn three(number: f64) -> String {
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
        "{} {} #{}: {:.0} records/s, {} MB/s, CPU {} s/M {} s/GB, ms {}, service {}, end to end {}, memory {} MiB, waited {} load {} others {} stolen {} throttled {}, unanswered {} unseen {}, page cache {}{}{}",
        run.workload,
        run.target,
        run.repeat,
        run.records_per_second,
        three(run.megabytes_per_second),
        three(run.cpu_seconds_per_million_records),
        three(run.cpu_seconds_per_gigabyte),
        latencies(|run| run.latency.as_ref()),
        latencies(|run| run.service.as_ref()),
        latencies(|run| run.end_to_end.as_ref()),
        run.memory.rss_bytes >> 20,
        three(run.waited),
        three(run.load_cores),
        three(run.other_cores),
        three(run.stolen_cores),
        three(run.throttled),
        run.unanswered,
        run.unseen,
        if run.page_cache_full {
            "full"
        } else {
            "as it was"
        },
        run.caught_up_seconds
            .map_or_else(String::new, |seconds| format!(
                ", caught up after {} s at {} MB/s",
                three(seconds),
                three(run.fetched_megabytes_per_second)
            )),
        if run.is_doubtful() {
            "; MORE THAN 2% STOLEN"
        } else {
            ""
        },
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
    let mib = |bytes: u64| three(bytes as f64 / f64::from(1 << 20));
    format!(
        "{} #{}: answers after {} ms on an empty directory, {} MiB at rest, {} MiB under b2; after kill -9 answers after {} ms, writable after {} ms",
        started.target,
        started.repeat,
        three(started.empty_ms),
        mib(started.at_rest.rss_bytes),
        mib(started.under_load.rss_bytes),
        three(started.after_kill_ms),
        three(started.writable_after_kill_ms),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::example as run;
    use crate::results;

    #[test]
    fn the_table_gives_medians_and_ratios_to_the_first_target() {
        let mut runs = Vec::new();
        for (repeat, cpu) in (1..).zip([1.0, 2.0, 9.0]) {
            runs.push(run("b1", "percore", repeat, cpu));
            let mut other = run("b1", "kafka", repeat, 4.0 * cpu);
            other.latency.as_mut().unwrap().p99_us = None;
            runs.push(other);
        }
        let table = table(&results::example(runs)).unwrap();
        let rows: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(rows.len(), 2);
        assert!(
            rows[0].contains("| 2.00 (1.00 to 9.00) | 2.00 | 1.00 |"),
            "{table}"
        );
        assert!(
            rows[0].contains("1.50 / 3.00 / - / - / 9.00 (15000)"),
            "{table}"
        );
        assert!(
            rows[1].contains("| 8.00 (4.00 to 36.0) | 8.00 | 4.00 |"),
            "{table}"
        );
        assert!(
            rows[1].contains("1.50 / - / - / - / 9.00 (15000)"),
            "{table}"
        );
    }

    #[test]
    fn what_is_wrong_with_a_run_is_shown() {
        let mut doubtful = run("b1", "percore", 1, 1.0);
        doubtful.stolen_cores = 0.03;
        let mut slow = run("b1", "percore", 2, 1.0);
        (slow.rate, slow.throttled) = (Some(5000.0), 0.5);
        let results = results::example(vec![doubtful, slow]);
        let table = table(&results).unwrap();
        assert!(
            table.contains(
                "2 (1 with more than 2% stolen, 1 throttled, 1 that did not keep the rate)"
            ),
            "{table}"
        );
        assert!(line(&results.runs[0]).contains("STOLEN"));
    }

    #[test]
    fn verdicts_compare_what_both_have() {
        let mut runs = Vec::new();
        for repeat in 1..=5 {
            let noise = 1.0 + f64::from(repeat) / 100.0;
            runs.push(run("b1", "percore", repeat, noise));
            let mut other = run("b1", "kafka", repeat, 4.0 * noise);
            other.latency.as_mut().unwrap().p99_us = None;
            runs.push(other);
        }
        let lines = verdicts(&results::example(runs));
        assert!(
            lines.contains("b1: CPU per record, kafka ÷ percore: 4.00 (4.00 to 4.00, n=5): more"),
            "{lines}"
        );
        assert!(lines.contains("b1: p50, kafka ÷ percore: 1.00"), "{lines}");
        assert!(!lines.contains("p99,"), "{lines}");
    }
}
