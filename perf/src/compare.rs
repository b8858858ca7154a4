//! Several workloads on several targets, interleaved: A B A B …, so that whatever else the machine does falls on all of them.

use crate::Failure;
use crate::lab::{Lab, Setup};
use crate::results::Results;
use crate::workload::Workload;

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) workloads: Vec<Workload>,
    pub(crate) repeats: u32,
    /// Seconds of the first workload on each broker before anything counts.
    pub(crate) heat_seconds: f64,
}

/// Runs the plan; ended early, it gives what there is.
pub(crate) fn run(plan: &Plan, setup: &Setup<'_>) -> Result<Results, Failure> {
    Lab::open(setup)?.measure(|lab| run_all(plan, lab))
}

fn run_all(plan: &Plan, lab: &mut Lab) -> Result<(), Failure> {
    if let Some(first) = plan.workloads.first() {
        lab.heat(first, plan.heat_seconds)?;
    }
    let mut workloads = plan.workloads.iter();
    workloads.try_for_each(|workload| lab.interleave(workload, plan.repeats))
}
