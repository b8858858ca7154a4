//! From a light load to the knee: the highest rate that holds a given p99, and what latency is on the way there.
//!
//! First the closed loop says roughly how much a target takes. Then shares of that are offered by an open loop until one does not hold, and the gap between the last that
//! held and the first that did not is halved. Targets take turns.

use std::fmt::Write as _;

use crate::Failure;
use crate::lab::{Lab, Setup};
use crate::measure::Run;
use crate::results::Results;
use crate::table::{self, three};
use crate::workload::{Acks, Workload};

/// Shares of the closed loop's rate that are offered one after the other.
const STEPS: [f64; 8] = [0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1];
/// Beyond the last step, as long as it holds.
const GROWTH: f64 = 1.2;
/// The gap that is not worth halving.
const RESOLUTION: f64 = 0.04;
/// Less than this share of the closed loop's rate is not looked for.
const LOWEST: f64 = 0.01;

/// Which rate to try next.
#[derive(Debug, Clone)]
pub(crate) struct Search {
    closed_loop: f64,
    held: f64,
    failed: Option<f64>,
}

impl Search {
    pub(crate) fn below(closed_loop: f64) -> Search {
        Search {
            closed_loop,
            held: 0.0,
            failed: None,
        }
    }

    pub(crate) fn next(&self) -> Option<f64> {
        match self.failed {
            None => {
                let steps = STEPS.iter().map(|share| share * self.closed_loop);
                let mut higher = steps.filter(|rate| *rate > self.held * 1.0001);
                Some(higher.next().unwrap_or(self.held * GROWTH))
            }
            Some(failed) => {
                let middle = f64::midpoint(self.held, failed);
                let is_worth_it = failed - self.held > failed * RESOLUTION;
                (is_worth_it && middle > self.closed_loop * LOWEST).then_some(middle)
            }
        }
    }

    pub(crate) fn tell(&mut self, rate: f64, holds: bool) {
        if holds {
            self.held = self.held.max(rate);
        } else {
            self.failed = Some(self.failed.map_or(rate, |failed| failed.min(rate)));
        }
    }

    /// The highest that held so far.
    pub(crate) fn highest(&self) -> Option<f64> {
        (self.held > 0.0).then_some(self.held)
    }
}

/// Whether a run kept its rate and this p99. Where the count carries no p99, the maximum must do.
pub(crate) fn holds(run: &Run, p99_ms: f64) -> bool {
    let p99_us = run.tail().map(|tail| tail.p99_us.unwrap_or(tail.max_us));
    run.kept_its_rate() && p99_us.is_some_and(|p99_us| p99_us < p99_ms * 1e3)
}

/// The same workload at a rate of its own; the name says which.
pub(crate) fn at_rate(workload: &Workload, rate: f64) -> Workload {
    let mut paced = workload.clone();
    paced.name = format!("{}@{rate:.0}", workload.name);
    paced.producer_rate = Some(rate);
    paced
}

/// The same workload as fast as it goes.
pub(crate) fn closed_loop(workload: &Workload) -> Result<Workload, Failure> {
    if workload.acks == Acks::None {
        return Err(Failure::told(
            "without acknowledgements nothing says how much a target takes; sweep with acks 1 or all",
        ));
    }
    let mut unpaced = workload.clone();
    unpaced.name = format!("{}@max", workload.name);
    unpaced.producer_rate = None;
    Ok(unpaced)
}

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) workloads: Vec<Workload>,
    pub(crate) p99_ms: f64,
    pub(crate) heat_seconds: f64,
}

/// What one target holds.
#[derive(Debug, Clone)]
pub(crate) struct Knee {
    pub(crate) workload: String,
    pub(crate) target: String,
    pub(crate) closed_loop: f64,
    pub(crate) highest: Option<f64>,
}

/// Sweeps all; ended early, it gives what there is.
pub(crate) fn run(plan: &Plan, setup: &Setup<'_>) -> Result<(Results, Vec<Knee>), Failure> {
    let mut knees = Vec::new();
    let results = Lab::open(setup)?.measure(|lab| {
        if let Some(first) = plan.workloads.first() {
            lab.heat(first, plan.heat_seconds)?;
        }
        for workload in &plan.workloads {
            knees.extend(sweep(lab, workload, plan.p99_ms)?);
        }
        Ok(())
    })?;
    Ok((results, knees))
}

/// What an interrupted sweep has measured it need not measure again.
pub(crate) fn known_or_run(lab: &mut Lab, at: usize, workload: &Workload) -> Result<Run, Failure> {
    let known = lab.results.complete(&workload.name, &lab.brokers[at].name);
    match known.into_iter().next() {
        Some(run) => Ok(run.clone()),
        None => lab.run(at, workload, 1),
    }
}

/// One workload on every target of the lab.
pub(crate) fn sweep(lab: &mut Lab, workload: &Workload, p99_ms: f64) -> Result<Vec<Knee>, Failure> {
    let unpaced = closed_loop(workload)?;
    let mut searches = Vec::new();
    for at in 0..lab.brokers.len() {
        let run = known_or_run(lab, at, &unpaced)?;
        searches.push(Search::below(run.records_per_second));
    }
    let mut goes_on = true;
    while goes_on {
        goes_on = false;
        for (at, search) in searches.iter_mut().enumerate() {
            let Some(rate) = search.next() else {
                continue;
            };
            let run = known_or_run(lab, at, &at_rate(workload, rate))?;
            search.tell(rate, holds(&run, p99_ms));
            goes_on = true;
        }
    }
    let knees = lab.brokers.iter().zip(&searches);
    Ok(knees
        .map(|(broker, search)| Knee {
            workload: workload.name.clone(),
            target: broker.name.clone(),
            closed_loop: search.closed_loop,
            highest: search.highest(),
        })
        .collect())
}

/// The knee out of runs that lie there already.
pub(crate) fn knee(results: &Results, workload: &str, target: &str, p99_ms: f64) -> Option<Knee> {
    let first = |name: &str| results.complete(name, target).first().copied();
    let closed_loop = first(&format!("{workload}@max"))?.records_per_second;
    let mut search = Search::below(closed_loop);
    while let Some(rate) = search.next() {
        let run = first(&format!("{workload}@{rate:.0}"))?;
        search.tell(rate, holds(run, p99_ms));
    }
    Some(Knee {
        workload: workload.to_owned(),
        target: target.to_owned(),
        closed_loop,
        highest: search.highest(),
    })
}

/// The knees, then every point.
pub(crate) fn shown(results: &Results, found: &[Knee], p99_ms: f64) -> Result<String, Failure> {
    Ok(format!(
        "{}\n{}",
        knees(found, p99_ms)?,
        table::table(results)?
    ))
}

pub(crate) fn knees(knees: &[Knee], p99_ms: f64) -> Result<String, Failure> {
    let mut out = format!(
        "| workload | target | closed loop records/s | highest records/s with p99 < {} ms |\n|---|---|---|---|\n",
        three(p99_ms)
    );
    for knee in knees {
        let highest = knee
            .highest
            .map_or_else(|| "none".to_owned(), |rate| format!("{rate:.0}"));
        writeln!(
            out,
            "| {} | {} | {:.0} | {highest} |",
            knee.workload, knee.target, knee.closed_loop
        )
        .map_err(|_| Failure::told("the table can't be written"))?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure;

    /// Searches against a target that holds everything up to `capacity`.
    fn found(closed_loop: f64, capacity: f64) -> (Option<f64>, Vec<f64>) {
        let mut search = Search::below(closed_loop);
        let mut tried = Vec::new();
        while let Some(rate) = search.next() {
            tried.push(rate);
            search.tell(rate, rate <= capacity);
        }
        (search.highest(), tried)
    }

    #[test]
    fn the_highest_rate_is_found_within_the_resolution() {
        for capacity in [30.0, 512.0, 730.0, 990.0, 1090.0, 2500.0] {
            let (highest, tried) = found(1000.0, capacity);
            let highest = highest.unwrap();
            assert!(highest <= capacity, "{highest} of {capacity}");
            assert!(
                highest > capacity * (1.0 - 2.0 * RESOLUTION),
                "{highest} of {capacity}"
            );
            assert!(tried.len() < 20, "{tried:?}");
        }
    }

    #[test]
    fn the_way_up_begins_light() {
        let (_, tried) = found(1000.0, 850.0);
        assert_eq!(tried[..6], [100.0, 250.0, 500.0, 700.0, 800.0, 900.0]);
    }

    #[test]
    fn a_target_that_holds_nothing_is_given_up() {
        let (highest, tried) = found(1000.0, 0.0);
        assert_eq!(highest, None);
        assert!(tried.len() < 10, "{tried:?}");
    }

    #[test]
    fn a_knee_is_found_again_in_results() {
        let mut runs = vec![measure::example("b1@max", "percore", 1, 1.0)];
        let mut search = Search::below(1000.0);
        while let Some(rate) = search.next() {
            let mut run = measure::example(&format!("b1@{rate:.0}"), "percore", 1, 1.0);
            run.records_per_second = rate;
            run.rate = Some(rate);
            run.unanswered = u64::from(rate > 640.0);
            search.tell(rate, holds(&run, 10.0));
            runs.push(run);
        }
        let results = crate::results::example(runs);
        let knee = knee(&results, "b1", "percore", 10.0).unwrap();
        assert_eq!(knee.highest, search.highest());
        assert!(super::knee(&results, "b1", "kafka", 10.0).is_none());
    }

    #[test]
    fn a_rate_that_was_not_kept_is_not_held_whatever_its_p99() {
        let mut run = measure::example("b1@900", "percore", 1, 1.0);
        assert!(holds(&run, 10.0));
        assert!(!holds(&run, 3.0));
        run.rate = Some(1200.0);
        assert!(!holds(&run, 10.0));
        run.rate = None;
        run.latency.as_mut().unwrap().p99_us = None;
        assert!(!holds(&run, 9.0), "the maximum must do");
        assert!(holds(&run, 9.1));
    }
}
