//! What a record costs as work grows: with connections, with partitions, with the size of batches. One page, with the fitted slope of each line.

use std::fmt::Write as _;

use crate::Failure;
use crate::lab::{Lab, Setup};
use crate::recorded::Spread;
use crate::report::{Axis, Line, document, draw, escaped, of_markdown};
use crate::results::Results;
use crate::table::{self, three};
use crate::verdict::power;
use crate::workload::Workload;

/// Connections that produce; more are idle.
const BUSY: u32 = 10;

/// What grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Growing {
    Connections,
    Partitions,
    Batch,
}

impl Growing {
    const ALL: [Growing; 3] = [Growing::Connections, Growing::Partitions, Growing::Batch];

    fn name(self) -> &'static str {
        match self {
            Growing::Connections => "connections",
            Growing::Partitions => "partitions",
            Growing::Batch => "batch",
        }
    }

    fn about(self) -> &'static str {
        match self {
            Growing::Connections => {
                "1 KiB × 1, 10 partitions; up to 10 connections send, one request in flight each, and the others are idle"
            }
            Growing::Partitions => {
                "1 KiB × 1, 10 connections, one request in flight each, so a turn has at most one batch for a partition, except where there is only one: there they share"
            }
            Growing::Batch => "100 B × N in a batch, 1 partition, 1 connection, 5 in flight",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Growing::Connections => "connections",
            Growing::Partitions => "partitions",
            Growing::Batch => "records in a batch",
        }
    }

    fn sizes(self) -> &'static [u32] {
        match self {
            Growing::Connections | Growing::Partitions => &[1, 10, 100, 1000, 10_000],
            Growing::Batch => &[1, 10, 100, 1000],
        }
    }

    fn workload(self, size: u32, seconds: f64) -> Result<Workload, Failure> {
        let mut workload = Workload::find("b4")?;
        workload.in_flight = 1;
        workload.partitions_per_topic = 10;
        workload.producers_per_topic = BUSY;
        match self {
            Growing::Connections => {
                workload.producers_per_topic = size.min(BUSY);
                workload.idle_connections = size.saturating_sub(BUSY);
            }
            Growing::Partitions => workload.partitions_per_topic = size,
            Growing::Batch => {
                workload = Workload::find("b1")?;
                workload.records_per_batch = size;
            }
        }
        workload.name = self.workload_name(size);
        self.about().clone_into(&mut workload.about);
        workload.test_duration_seconds = seconds;
        workload.warmup_duration_seconds = 1.0;
        workload.check().map_err(Failure::Told)?;
        Ok(workload)
    }

    fn workload_name(self, size: u32) -> String {
        format!("growth-{}-{size}", self.name())
    }
}

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) repeats: u32,
    pub(crate) seconds: f64,
    pub(crate) heat_seconds: f64,
}

/// Measures all; ended early, it gives what there is.
pub(crate) fn run(plan: &Plan, setup: &Setup<'_>) -> Result<Results, Failure> {
    Lab::open(setup)?.measure(|lab| run_all(plan, lab))
}

fn run_all(plan: &Plan, lab: &mut Lab) -> Result<(), Failure> {
    lab.heat(
        &Growing::Partitions.workload(10, plan.seconds)?,
        plan.heat_seconds,
    )?;
    for growing in Growing::ALL {
        for size in growing.sizes() {
            let workload = growing.workload(*size, plan.seconds)?;
            lab.interleave(&workload, plan.repeats)?;
        }
    }
    Ok(())
}

/// CPU per million records by size, of one target.
fn points(results: &Results, growing: Growing, target: &str) -> Vec<(f64, f64)> {
    let sizes = growing.sizes().iter();
    sizes
        .filter_map(|size| {
            let runs = results.complete(&growing.workload_name(*size), target);
            let costs = runs.iter().map(|run| run.cpu_seconds_per_million_records);
            Some((f64::from(*size), Spread::of(costs).ok()?.median))
        })
        .collect()
}

/// One row a line: the cost at each size, the slope, and how much the last is of the one at ten.
pub(crate) fn shown(results: &Results) -> Result<String, Failure> {
    let mut out = String::new();
    for growing in Growing::ALL {
        out += &rows(results, growing)?;
        out.push('\n');
    }
    Ok(out)
}

fn rows(results: &Results, growing: Growing) -> Result<String, Failure> {
    let sizes: Vec<String> = growing.sizes().iter().map(u32::to_string).collect();
    let mut out = format!(
        "| CPU s/M records by {} | {} | slope from 10 on | last ÷ at 10 |\n|---|{}---|---|\n",
        growing.title(),
        sizes.join(" | "),
        "---|".repeat(sizes.len())
    );
    for target in results.target_names(None) {
        let points = points(results, growing, target);
        let cells: Vec<String> = growing
            .sizes()
            .iter()
            .map(|size| {
                let found = points.iter().find(|(at, _)| *at as u32 == *size);
                found.map_or_else(|| "-".to_owned(), |(_, cost)| three(*cost))
            })
            .collect();
        let from_ten: Vec<(f64, f64)> = points
            .iter()
            .copied()
            .filter(|(at, _)| *at >= 10.0)
            .collect();
        let slope = power(&from_ten).map_or_else(|| "-".to_owned(), |slope| format!("{slope:+.3}"));
        let grown = match (from_ten.first(), from_ten.last()) {
            (Some((_, first)), Some((_, last))) if from_ten.len() > 1 => three(last / first),
            _ => "-".to_owned(),
        };
        writeln!(
            out,
            "| {target} | {} | {slope} | {grown} |",
            cells.join(" | ")
        )
        .map_err(|_| Failure::told("the table can't be written"))?;
    }
    Ok(out)
}

/// The three charts and their tables.
pub(crate) fn page(results: &Results) -> Result<String, Failure> {
    let mut body = format!("<p>{}</p>\n", escaped(&results.host.line()));
    for growing in Growing::ALL {
        let lines: Vec<Line> = results
            .target_names(None)
            .into_iter()
            .map(|target| Line {
                name: target.to_owned(),
                points: points(results, growing, target),
            })
            .collect();
        let size = Axis {
            title: growing.title(),
            is_log: true,
            label: |value| format!("{value:.0}"),
        };
        let cost = Axis {
            title: "CPU seconds per million records",
            is_log: true,
            label: three,
        };
        let title = format!("cost by {}", growing.title());
        body.extend(["<h2>", &title, "</h2>\n<p>", growing.about(), "</p>\n"]);
        body += &draw(&title, size, cost, &lines)?;
        body += &of_markdown(&rows(results, growing)?);
    }
    body += "<p>A slope is the power with which the cost of a record grows: 0 is flat, -1 halves it with each doubling.</p>\n<h2>every run</h2>\n";
    body += &of_markdown(&table::table(results)?);
    Ok(document("corelog bench: cost as work grows", &body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure;
    use crate::results;

    #[test]
    fn every_size_is_a_workload_that_can_run() {
        for growing in Growing::ALL {
            for size in growing.sizes() {
                let workload = growing.workload(*size, 3.0).unwrap();
                assert!(workload.name.ends_with(&size.to_string()));
            }
        }
        let many = Growing::Connections.workload(10_000, 3.0).unwrap();
        assert_eq!(
            (many.producers_per_topic, many.idle_connections),
            (10, 9990)
        );
        let one = Growing::Connections.workload(1, 3.0).unwrap();
        assert_eq!((one.producers_per_topic, one.idle_connections), (1, 0));
    }

    #[test]
    fn the_slope_and_the_growth_are_those_of_the_points() {
        let runs = Growing::Partitions.sizes().iter().map(|size| {
            let name = Growing::Partitions.workload_name(*size);
            measure::example(&name, "percore", 1, 5.0 * f64::from(*size).powf(0.1))
        });
        let results = results::example(runs.collect());
        let text = shown(&results).unwrap();
        assert!(text.contains("| +0.100 | 2.00 |"), "{text}");
        assert!(
            text.contains("| percore | - | - | - | - | - | - | - |"),
            "{text}"
        );
        let page = page(&results).unwrap();
        assert!(page.contains("<svg") && page.contains("cost by partitions"));
    }
}
