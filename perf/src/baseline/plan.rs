//! Which runs. Everything is kept at once and not measured again, so the same command goes on after an interruption.

use std::io::Write as _;

use crate::Failure;
use crate::interrupt;
use crate::lab::{Lab, Setup};
use crate::results::Results;
use crate::start;
use crate::sweep::{self, Search};
use crate::table;
use crate::target::Kind;
use crate::workload::Workload;

/// One point each.
const POINTS: [&str; 13] = [
    "b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8", "b9", "b10", "b11", "b12", "b13",
];
/// These need much disk or time.
const LARGE: [&str; 2] = ["b12-cold", "catch-up-10gb"];
/// From a light load to the knee.
const SWEPT: [&str; 4] = ["b1", "b3", "b7", "b13"];
/// Tails of the others are compared at one rate for all.
const TAILS: [&str; 5] = ["b2", "b4", "b5", "b10", "b11"];
/// Shares of Apache Kafka's highest rate at which all are compared.
const SHARES: [f64; 3] = [0.25, 0.5, 0.8];
const TAIL_SHARE: f64 = 0.8;
pub(super) const P99_MS: f64 = 10.0;
/// What is in the partition of a broker that is killed.
const KILLED_WITH_GB: f64 = 1.0;
/// Load before anything counts, so that a JVM has compiled what it runs.
const HEAT_SECONDS: f64 = 10.0;
/// The same before each workload, for what the workload needs beyond that.
const HEAT_EACH_SECONDS: f64 = 3.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// At most 40 minutes.
    Short,
    Full,
}

impl Form {
    pub(super) fn repeats(self) -> u32 {
        match self {
            Form::Short => 3,
            Form::Full => 5,
        }
    }

    fn repeats_of_large(self) -> u32 {
        match self {
            Form::Short => 1,
            Form::Full => 3,
        }
    }

    /// The workload, as long as this form has time for.
    fn workload(self, name: &str) -> Result<Workload, Failure> {
        let mut workload = Workload::find(name)?;
        if self == Form::Short {
            // The dirty limits need their time before B13 is steady.
            let (warmup, test) = if name == "b13" {
                (4.0, 10.0)
            } else {
                (1.5, 4.0)
            };
            workload.warmup_duration_seconds = workload.warmup_duration_seconds.min(warmup);
            // What reads a backlog ends when it has read it.
            if !LARGE.contains(&name) {
                workload.test_duration_seconds = workload.test_duration_seconds.min(test);
            }
        }
        Ok(workload)
    }
}

/// Measures what is missing in `setup.out`.
pub(crate) fn run(form: Form, setup: &Setup<'_>) -> Result<Results, Failure> {
    Lab::open(setup)?.measure(|lab| run_all(form, setup, lab))
}

fn run_all(form: Form, setup: &Setup<'_>, lab: &mut Lab) -> Result<(), Failure> {
    lab.heat(&form.workload("b1")?, HEAT_SECONDS)?;
    for name in POINTS {
        point(lab, &form.workload(name)?, form.repeats())?;
    }
    for name in LARGE {
        lab.interleave(&form.workload(name)?, form.repeats_of_large())?;
    }
    starts(form, setup, lab)?;
    if form == Form::Full {
        for name in SWEPT {
            let done = sweep_and_shares(form, lab, name);
            lab.note_failure(&format!("the sweep of {name}"), done)?;
        }
        for name in TAILS {
            let done = tails(form, lab, name);
            lab.note_failure(&format!("the tails of {name}"), done)?;
        }
    }
    Ok(())
}

fn sweep_and_shares(form: Form, lab: &mut Lab, name: &str) -> Result<(), Failure> {
    let workload = Workload::find(name)?;
    let knees = sweep::sweep(lab, &workload, P99_MS)?;
    let kafka = knees.iter().find(|knee| is_kafka(lab, &knee.target));
    if let Some(highest) = kafka.and_then(|knee| knee.highest) {
        for share in SHARES {
            lab.interleave(&at_share(&workload, share, highest), form.repeats())?;
        }
    }
    Ok(())
}

fn tails(form: Form, lab: &mut Lab, name: &str) -> Result<(), Failure> {
    let workload = Workload::find(name)?;
    if let Some(highest) = highest_of_kafka(lab, &workload)? {
        lab.interleave(&at_share(&workload, TAIL_SHARE, highest), form.repeats())?;
    }
    Ok(())
}

/// All repeats of one workload, after a short load on what compiles while it runs.
fn point(lab: &mut Lab, workload: &Workload, repeats: u32) -> Result<(), Failure> {
    let is_missing = |lab: &Lab, at: usize| {
        let name = &lab.brokers[at].name;
        (1..=repeats).any(|repeat| !lab.results.has(&workload.name, name, repeat))
    };
    for at in 0..lab.brokers.len() {
        if matches!(lab.brokers[at].kind, Kind::Kafka { .. }) && is_missing(lab, at) {
            let done = lab.heat_one(at, workload, HEAT_EACH_SECONDS);
            lab.note_failure(&format!("warming up for {}", workload.name), done)?;
        }
    }
    lab.interleave(workload, repeats)
}

/// B14 beside the other brokers, which idle.
fn starts(form: Form, setup: &Setup<'_>, lab: &mut Lab) -> Result<(), Failure> {
    let number = lab.brokers.len() as u16;
    for repeat in 1..=form.repeats() {
        for target in setup.targets {
            let starts = &lab.results.starts;
            let is_done = starts
                .iter()
                .any(|started| started.target == target.name && started.repeat == repeat);
            let has_a_start =
                !matches!(target.kind, Kind::Floor | Kind::Null | Kind::Running { .. });
            if is_done || !has_a_start {
                continue;
            }
            if interrupt::is_asked() {
                return Err(interrupt::stopped());
            }
            let plan = start::Plan {
                target,
                place: setup.place,
                number,
                gigabytes: KILLED_WITH_GB,
            };
            let done = start::measure(plan, repeat).map(|started| {
                // Progress; the results are elsewhere.
                let _ = writeln!(std::io::stderr(), "{}", table::started(&started));
                lab.results.starts.push(started);
            });
            lab.note_failure(&format!("b14 on {}", target.name), done)?;
            lab.results.save()?;
        }
    }
    Ok(())
}

fn is_kafka(lab: &Lab, target: &str) -> bool {
    let mut brokers = lab.brokers.iter();
    brokers.any(|broker| broker.name == target && matches!(broker.kind, Kind::Kafka { .. }))
}

/// The highest rate of Apache Kafka that was seen to hold in a sweep of its own; nothing without Apache Kafka.
fn highest_of_kafka(lab: &mut Lab, workload: &Workload) -> Result<Option<f64>, Failure> {
    let kafka = (0..lab.brokers.len()).find(|at| {
        let name = lab.brokers[*at].name.clone();
        is_kafka(lab, &name)
    });
    let Some(at) = kafka else {
        return Ok(None);
    };
    let closed_loop = sweep::known_or_run(lab, at, &sweep::closed_loop(workload)?)?;
    let mut search = Search::below(closed_loop.records_per_second);
    while let Some(rate) = search.next() {
        let run = sweep::known_or_run(lab, at, &sweep::at_rate(workload, rate))?;
        search.tell(rate, sweep::holds(&run, P99_MS));
    }
    Ok(search.highest())
}

/// The workload at a share of the highest rate of Apache Kafka.
fn at_share(workload: &Workload, share: f64, highest: f64) -> Workload {
    let mut paced = workload.clone();
    paced.name = share_name(&workload.name, share);
    paced.producer_rate = Some(share * highest);
    paced
}

pub(super) fn share_name(workload: &str, share: f64) -> String {
    format!("{workload}@{:.0}pct-of-kafka", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_of_a_baseline_can_run_in_both_forms() {
        for form in [Form::Short, Form::Full] {
            for name in POINTS.iter().chain(&LARGE).chain(&SWEPT).chain(&TAILS) {
                form.workload(name).unwrap().check().unwrap();
            }
        }
    }

    #[test]
    fn the_short_form_fits_into_its_time() {
        // Measured seconds alone, on four targets; beside them a run needs some two to four seconds.
        let seconds: f64 = POINTS
            .iter()
            .map(|name| Form::Short.workload(name).unwrap())
            .map(|workload| workload.warmup_duration_seconds + workload.test_duration_seconds)
            .sum();
        let all = seconds * 4.0 * f64::from(Form::Short.repeats());
        assert!(all < 20.0 * 60.0, "{all}");
    }

    #[test]
    fn a_share_has_a_name_of_its_own() {
        let workload = Workload::find("b3").unwrap();
        let shared = at_share(&workload, 0.8, 50_000.0);
        assert_eq!(shared.name, "b3@80pct-of-kafka");
        assert_eq!(shared.producer_rate, Some(40_000.0));
    }
}
