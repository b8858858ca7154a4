//! What a request costs that is for another core than its connection's: corelog on one core and on two, there with every request for the own and with every request for
//! the other core.
//!
//! On a machine with two cores the load shares one of them with a shard, so throughput says nothing there; CPU is that of the broker's own threads, and microseconds are
//! those of a light open loop.

use std::fmt::Write as _;

use crate::Failure;
use crate::lab::{Lab, Setup};
use crate::measure::Run;
use crate::results::Results;
use crate::table::three;
use crate::target::Place;
use crate::verdict::Ratio;
use crate::workload::Workload;

/// Of the light open loop, in records a second.
const LIGHT_RATE: f64 = 2000.0;
const ONE: &str = "one core";
const TWO: &str = "two cores";

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) repeats: u32,
    /// The cores of the second broker, as taskset takes them.
    pub(crate) two_cores: String,
}

/// The workloads: busy and light, local and crossing.
fn workloads() -> Result<[Workload; 4], Failure> {
    let busy = |name: &str| Workload::find(name);
    let light = |name: &str| -> Result<Workload, Failure> {
        let mut light = Workload::find(name)?;
        light.name = format!("{name}-light");
        light.producer_rate = Some(LIGHT_RATE);
        Ok(light)
    };
    Ok([
        busy("hop-local")?,
        busy("hop-crossing")?,
        light("hop-local")?,
        light("hop-crossing")?,
    ])
}

/// `setup.targets` has one corelog, which is started twice.
pub(crate) fn run(plan: &Plan, setup: &Setup<'_>) -> Result<Results, Failure> {
    let [target] = setup.targets else {
        return Err(Failure::told("a hop is measured on one target"));
    };
    let (mut one, mut two) = (target.clone(), target.clone());
    (one.name, two.name) = (ONE.to_owned(), TWO.to_owned());
    let targets = [one];
    let mut lab = Lab::open(&Setup {
        targets: &targets,
        ..*setup
    })?;
    let place = Place {
        cores: plan.two_cores.clone(),
        ..setup.place.clone()
    };
    lab.start(&two, &place)?;
    lab.measure(|lab| run_all(plan, lab))
}

fn run_all(plan: &Plan, lab: &mut Lab) -> Result<(), Failure> {
    let workloads = workloads()?;
    lab.heat(&workloads[0], 2.0)?;
    for repeat in 1..=plan.repeats {
        for workload in &workloads {
            for at in 0..2 {
                // On one core nothing crosses.
                let crosses = workload.name.starts_with("hop-crossing");
                if at == 1 || !crosses {
                    let done = lab
                        .results
                        .has(&workload.name, &lab.brokers[at].name, repeat);
                    if !done {
                        lab.run(at, workload, repeat)?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// The table, and what a hop costs.
pub(crate) fn shown(results: &Results) -> Result<String, Failure> {
    let mut out = String::from(
        "| workload | broker | CPU µs a request | records/s | ms p50 / p99 |\n|---|---|---|---|---|\n",
    );
    for workload in results.workload_names() {
        for target in results.target_names(Some(workload)) {
            let runs = results.complete(workload, target);
            let cost = mean(&runs, |run| Some(cpu_us(results, run)));
            let rate = mean(&runs, |run| Some(run.records_per_second));
            let p50 = mean(&runs, |run| Some(run.latency.as_ref()?.p50_us / 1e3));
            let p99 = mean(&runs, |run| Some(run.latency.as_ref()?.p99_us? / 1e3));
            let cell = |number: Option<f64>| number.map_or_else(|| "-".to_owned(), three);
            writeln!(
                out,
                "| {workload} | {target} | {} | {} | {} / {} |",
                cell(cost),
                cell(rate),
                cell(p50),
                cell(p99)
            )
            .map_err(|_| Failure::told("the table can't be written"))?;
        }
    }
    out.push('\n');
    out += &conclusion(results, "busy", "hop-local", "hop-crossing");
    out += &conclusion(results, "light", "hop-local-light", "hop-crossing-light");
    Ok(out)
}

fn conclusion(results: &Results, how: &str, local: &str, crossing: &str) -> String {
    let both = |number: fn(&Results, &Run) -> Option<f64>| -> Vec<(f64, f64)> {
        let locals = results.complete(local, TWO);
        let pairs = results
            .complete(crossing, TWO)
            .into_iter()
            .filter_map(|run| {
                let other = locals.iter().find(|other| other.repeat == run.repeat)?;
                Some((number(results, run)?, number(results, other)?))
            });
        pairs.collect()
    };
    let mut out = String::new();
    let costs = both(|results, run| Some(cpu_us(results, run)));
    if let Ok(ratio) = Ratio::of(&costs) {
        out.extend([
            how,
            ": CPU of a request for the other core ÷ one for the own: ",
            &ratio.line(),
            ", a hop is ",
            &three(mean_difference(&costs)),
            " µs of CPU\n",
        ]);
    }
    let p50 = both(|_, run| Some(run.latency.as_ref()?.p50_us));
    if how == "light" && !p50.is_empty() {
        let more = three(mean_difference(&p50));
        out.extend([how, ": a hop is ", &more, " µs more at the median\n"]);
    }
    out
}

/// Of all threads of the broker: a request is one batch.
fn cpu_us(results: &Results, run: &Run) -> f64 {
    let known = results
        .workloads
        .iter()
        .find(|known| known.name == run.workload);
    let records = known.map_or(1, |workload| workload.records_per_batch);
    run.cpu_seconds_per_million_records * f64::from(records)
}

fn mean(runs: &[&Run], number: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
    let numbers: Option<Vec<f64>> = runs.iter().map(|run| number(run)).collect();
    numbers
        .filter(|numbers| !numbers.is_empty())
        .map(|numbers| numbers.iter().sum::<f64>() / numbers.len() as f64)
}

fn mean_difference(pairs: &[(f64, f64)]) -> f64 {
    let sum: f64 = pairs.iter().map(|(more, less)| more - less).sum();
    sum / pairs.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure;
    use crate::results;

    #[test]
    fn a_hop_is_what_crossing_costs_more() {
        let mut runs = Vec::new();
        for repeat in 1..=3 {
            let run = |workload: &str, cpu| measure::example(workload, TWO, repeat, cpu);
            runs.push(run("hop-local", 2.5));
            runs.push(run("hop-crossing", 3.0));
            runs.push(run("hop-local-light", 10.0));
            let mut crossing = run("hop-crossing-light", 12.0);
            crossing.latency.as_mut().unwrap().p50_us = 1578.0;
            runs.push(crossing);
        }
        let mut results = results::example(runs);
        results.workloads = workloads().unwrap().to_vec();
        let text = shown(&results).unwrap();
        for part in [
            "| hop-crossing | two cores | 12.0 |",
            "busy: CPU of a request for the other core ÷ one for the own: 1.20",
            "a hop is 2.00 µs of CPU",
            "a hop is 78.0 µs more at the median",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
