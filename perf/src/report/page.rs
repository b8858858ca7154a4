//! What stands on the page: the table, and for each workload the spectrum of percentiles, latency and throughput over time, the broker's cores, its threads and
//! stages.

use std::fmt::Write as _;

use super::chart::{Axis, Line, draw};
use super::html::{document, escaped, of_markdown};
use crate::Failure;
use crate::hlog::Log;
use crate::measure::Run;
use crate::recorded::{Latencies, Series};
use crate::results::Results;
use crate::table::{self, three};

const TIME: Axis = Axis {
    title: "seconds of the measured time",
    is_log: false,
    label: |value| format!("{value:.1}"),
};
const MILLISECONDS: Axis = Axis {
    title: "milliseconds",
    is_log: true,
    label: three,
};
/// Of 1 / (1 - quantile).
const PERCENTILE: Axis = Axis {
    title: "percentile",
    is_log: true,
    label: |value| {
        let percent = 100.0 - 100.0 / value;
        let text = format!("{percent:.4}");
        format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
    },
};
const RECORDS: Axis = Axis {
    title: "records a second",
    is_log: false,
    label: |value| format!("{value:.0}"),
};
const CORES: Axis = Axis {
    title: "cores",
    is_log: false,
    label: |value| format!("{value:.2}"),
};

/// Which of the three series.
type Which = fn(&Log) -> &Series;

pub(crate) fn page(results: &Results) -> Result<String, Failure> {
    let mut body = format!("<p>{}</p>\n", escaped(&results.host.line()));
    body += "<p>Latency counts from the intended time of a batch, service time from when it was sent, end to end from the intended time to the consumer's receipt, all on one clock, warm-up left out. A percentile is shown where at least ten samples lie above it. Histograms of repeats are merged; the table has medians of repeats.</p>\n";
    for used in &results.targets {
        let (name, command) = (escaped(&used.name), escaped(&used.command));
        let started = three(used.started_ms);
        writeln!(
            body,
            "<p>{name}: <code>{command}</code>, first answer after {started} ms</p>"
        )
        .map_err(written)?;
    }
    body += &of_markdown(&table::table(results)?);
    let verdicts = table::verdicts(results);
    if !verdicts.is_empty() {
        writeln!(body, "<pre>{}</pre>", escaped(&verdicts)).map_err(written)?;
    }
    for workload in results.workload_names() {
        body += &section(results, workload)?;
    }
    Ok(document("corelog bench", &body))
}

fn section(results: &Results, workload: &str) -> Result<String, Failure> {
    let known = results
        .workloads
        .iter()
        .find(|known| known.name == workload);
    let about = known.map_or("", |known| &*known.about);
    let mut out = format!(
        "<h2>{}</h2>\n<p>{}</p>\n",
        escaped(workload),
        escaped(about)
    );
    let mut logs = Vec::new();
    for target in results.target_names(Some(workload)) {
        let runs = results.of(workload, target);
        let logs_of: Vec<Log> = runs
            .iter()
            .map(|run| results.log(run))
            .collect::<Result<_, _>>()?;
        logs.push((target, runs, logs_of));
    }
    let kinds: [(&str, Which); 3] = [
        ("latency", |log| &log.latency),
        ("service time", |log| &log.service),
        ("end to end", |log| &log.end_to_end),
    ];
    for (name, which) in kinds {
        let merged: Vec<(&str, Vec<Latencies>)> = logs
            .iter()
            .map(|(target, _, logs)| (*target, by_second(logs, which)))
            .collect();
        let spectra = lines(&merged, |seconds| spectrum(&all(seconds)));
        out += &draw(
            &format!("{name}: percentiles"),
            PERCENTILE,
            MILLISECONDS,
            &spectra,
        )?;
        if name != "service time" {
            let p99 = lines(&merged, |seconds| {
                over_time(seconds, |second| second.shown(0.99))
            });
            out += &draw(
                &format!("{name}: p99 of each second"),
                TIME,
                MILLISECONDS,
                &p99,
            )?;
            let max = lines(&merged, |seconds| {
                over_time(seconds, |second| {
                    second.summary().map(|summary| summary.max_us)
                })
            });
            out += &draw(
                &format!("{name}: maximum of each second"),
                TIME,
                MILLISECONDS,
                &max,
            )?;
        }
    }
    let means = |number: fn(&(f64, f64)) -> f64| -> Vec<Line> {
        let targets = logs.iter();
        targets
            .map(|(target, runs, _)| Line {
                name: (*target).to_owned(),
                points: mean_each_second(runs, number),
            })
            .collect()
    };
    out += &draw("throughput", TIME, RECORDS, &means(|second| second.0))?;
    out += &draw(
        "cores that the broker used",
        TIME,
        CORES,
        &means(|second| second.1),
    )?;
    for (target, runs, _) in &logs {
        out += &threads(target, runs)?;
        out += &stages(target, runs)?;
    }
    Ok(out)
}

fn lines(
    merged: &[(&str, Vec<Latencies>)],
    points: impl Fn(&[Latencies]) -> Vec<(f64, f64)>,
) -> Vec<Line> {
    merged
        .iter()
        .map(|(target, seconds)| Line {
            name: (*target).to_owned(),
            points: points(seconds),
        })
        .collect()
}

/// The same second of all repeats in one histogram.
fn by_second(logs: &[Log], which: Which) -> Vec<Latencies> {
    let length = logs.iter().map(|log| which(log).0.len()).max().unwrap_or(0);
    (0..length)
        .map(|second| {
            let mut merged = Latencies::new();
            for log in logs {
                if let Some(interval) = which(log).interval(second) {
                    merged.add(interval);
                }
            }
            merged
        })
        .collect()
}

fn all(seconds: &[Latencies]) -> Latencies {
    let mut merged = Latencies::new();
    for second in seconds {
        merged.add(second);
    }
    merged
}

/// Milliseconds by 1 / (1 - quantile), as far as the count carries.
fn spectrum(latencies: &Latencies) -> Vec<(f64, f64)> {
    let steps = (0..=40).map(|step| 10_f64.powf(f64::from(step) / 10.0));
    steps
        .filter_map(|inverse| {
            let quantile = 1.0 - 1.0 / inverse;
            Some((inverse, latencies.shown(quantile)? / 1e3))
        })
        .collect()
}

fn over_time(seconds: &[Latencies], micros: impl Fn(&Latencies) -> Option<f64>) -> Vec<(f64, f64)> {
    let numbered = seconds.iter().enumerate();
    numbered
        .filter_map(|(second, latencies)| Some((second as f64, micros(latencies)? / 1e3)))
        .collect()
}

fn mean_each_second(runs: &[&Run], number: fn(&(f64, f64)) -> f64) -> Vec<(f64, f64)> {
    let length = runs.iter().map(|run| run.each_second.len()).max();
    (0..length.unwrap_or(0))
        .map(|second| {
            let of_runs: Vec<f64> = runs
                .iter()
                .filter_map(|run| run.each_second.get(second).map(number))
                .collect();
            let mean = of_runs.iter().sum::<f64>() / of_runs.len() as f64;
            (second as f64, mean)
        })
        .collect()
}

fn written(_: std::fmt::Error) -> Failure {
    Failure::told("the page can't be written")
}

/// Of the last run: means of means of several say no more.
fn threads(target: &str, runs: &[&Run]) -> Result<String, Failure> {
    let Some(run) = runs.last().filter(|run| !run.threads.is_empty()) else {
        return Ok(String::new());
    };
    let mut rows = String::from("| threads | count | cores |\n|---|---|---|\n");
    for threads in run.threads.iter().take(12) {
        let cores = threads.cpu_seconds / run.seconds;
        writeln!(
            rows,
            "| {} | {} | {} |",
            threads.name,
            threads.count,
            three(cores)
        )
        .map_err(written)?;
    }
    Ok(format!(
        "<h3>{}: cores by thread, repeat {}</h3>\n{}",
        escaped(target),
        run.repeat,
        of_markdown(&rows)
    ))
}

fn stages(target: &str, runs: &[&Run]) -> Result<String, Failure> {
    let Some(run) = runs.last().filter(|run| !run.stages.is_empty()) else {
        return Ok(String::new());
    };
    let mut rows = String::from("| request | stage | requests | mean µs |\n|---|---|---|---|\n");
    for stage in &run.stages {
        let (count, mean) = (stage.count, three(stage.mean_us));
        writeln!(
            rows,
            "| {} | {} | {count} | {mean} |",
            stage.request, stage.stage
        )
        .map_err(written)?;
    }
    Ok(format!(
        "<h3>{}: what the broker says about its stages, repeat {}, warm-up included</h3>\n{}",
        escaped(target),
        run.repeat,
        of_markdown(&rows)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure;
    use crate::recorded::INTERVAL_NS;
    use crate::results;
    use crate::stages::Stage;

    fn latencies(values: std::ops::Range<u64>) -> Latencies {
        let mut latencies = Latencies::new();
        values.for_each(|value| latencies.record(value * 1000));
        latencies
    }

    #[test]
    fn the_spectrum_ends_where_the_count_ends() {
        let points = spectrum(&latencies(1..10_001));
        let (last, milliseconds) = points.last().unwrap();
        assert!((999.0..=1000.1).contains(last), "{points:?}");
        assert!((milliseconds - 9.99).abs() < 0.02, "{points:?}");
        assert!(spectrum(&latencies(0..5)).is_empty());
    }

    #[test]
    fn repeats_are_merged_second_by_second() {
        let log = |slow: u64| {
            let mut log = Log::default();
            log.latency.record(0, 1000);
            log.latency.record(INTERVAL_NS, slow);
            log
        };
        let seconds = by_second(&[log(5000), log(9000)], |log| &log.latency);
        let counts: Vec<u64> = seconds
            .iter()
            .map(|second| second.histogram().len())
            .collect();
        assert_eq!(counts, [2, 2]);
        assert_eq!(all(&seconds).histogram().len(), 4);
    }

    #[test]
    fn the_page_has_every_workload_target_and_stage() {
        let mut run = measure::example("b1", "per<core", 1, 1.0);
        run.stages = vec![Stage {
            request: "Produce".to_owned(),
            stage: "owners".to_owned(),
            count: 7,
            mean_us: 12.0,
        }];
        let page = page(&results::example(vec![run])).unwrap();
        for part in ["<h2>b1</h2>", "per&lt;core", "owners", "throughput", "<svg"] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("per<core"));
        assert!(!page.contains("http://") || page.contains("http://www.w3.org/2000/svg"));
    }

    #[test]
    fn percentiles_are_written_as_percent() {
        let labels: Vec<String> = [1.0, 10.0, 100.0, 1000.0, 10_000.0]
            .map(PERCENTILE.label)
            .to_vec();
        assert_eq!(labels, ["0%", "90%", "99%", "99.9%", "99.99%"]);
    }
}
