//! Runs: one workload on one broker, and several interleaved.
//!
//! Brokers of a comparison are started once and idle while another is measured, so that a JVM is as warm as it gets; each run has a topic of its own,
//! which is deleted afterwards. Runs go A B A B …: whatever else the machine does falls on all of them.

use std::io::Write as _;
use std::path::PathBuf;

use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::cache;
use crate::load::{self, Window};
use crate::process::{Machine, Memory, Spent};
use crate::recorded::{Recorded, Summary};
use crate::report::{self, Report};
use crate::target::{Broker, Place, Target};
use crate::workload::Workload;

/// More stolen than this share of a core makes a run doubtful.
const STOLEN_MAX: f64 = 0.02;

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) workloads: Vec<Workload>,
    pub(crate) targets: Vec<Target>,
    pub(crate) repeats: u32,
    /// Seconds of the first workload on each broker before anything counts.
    pub(crate) heat_seconds: f64,
    pub(crate) load_core: usize,
    /// Gigabytes written before each run, so that the page cache is full.
    pub(crate) fill_cache_gb: Option<f64>,
    pub(crate) json: Option<PathBuf>,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub workload: String,
    pub target: String,
    pub repeat: u32,
    pub seconds: f64,
    pub records_per_second: f64,
    pub megabytes_per_second: f64,
    /// Of all threads of the broker.
    pub cpu_seconds: f64,
    pub cpu_seconds_per_million_records: f64,
    pub cpu_seconds_per_gigabyte: f64,
    /// Core seconds a second that the broker's threads were ready and had no core.
    pub waited: f64,
    /// Cores that the load used; near 1 the load is the limit.
    pub load_cores: f64,
    /// Cores that neither broker nor load used: others on the machine, and the kernel's own threads.
    pub other_cores: f64,
    pub stolen_cores: f64,
    pub memory: Memory,
    /// From the intended time to the answer.
    pub latency: Option<Summary>,
    /// From sending to the answer.
    pub service: Option<Summary>,
    /// From the intended time to the consumer's receipt.
    pub end_to_end: Option<Summary>,
    pub unanswered: u64,
    pub unseen: u64,
}

impl Run {
    /// Whether the hypervisor took so much that the run says little.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.stolen_cores > STOLEN_MAX
    }
}

pub(crate) fn pin_to(core: usize) -> Result<(), Failure> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set)
        .map_err(|error| Failure::io(format!("cannot pin the load to core {core}"))(error.into()))
}

/// Runs the plan; every run is in `report` (and in the file) as soon as it is done.
pub(crate) fn run(plan: &Plan, place: &Place, mut report: Report) -> Result<Report, Failure> {
    let brokers: Vec<Broker> = (0..)
        .zip(&plan.targets)
        .map(|(number, target)| target.start(place, number))
        .collect::<Result<_, _>>()?;
    // After the brokers: what is started inherits the affinity.
    pin_to(plan.load_core)?;
    heat(plan, &brokers)?;
    for workload in &plan.workloads {
        for repeat in 1..=plan.repeats {
            for broker in &brokers {
                cache::flush_dirty_pages();
                let filled = plan
                    .fill_cache_gb
                    .map(|gb| cache::FilledCache::fill(&place.dir, gb))
                    .transpose()?;
                let done = measure(broker, workload, repeat)?;
                drop(filled);
                // Progress; the results are elsewhere.
                let _ = writeln!(std::io::stderr(), "{}", report::line(&done));
                report.add(done);
                if let Some(path) = &plan.json {
                    report.write_json(path)?;
                }
            }
        }
    }
    Ok(report)
}

fn heat(plan: &Plan, brokers: &[Broker]) -> Result<(), Failure> {
    let Some(first) = plan.workloads.first().filter(|_| plan.heat_seconds > 0.0) else {
        return Ok(());
    };
    let mut workload = first.clone();
    workload.warmup_duration_seconds = 0.0;
    workload.test_duration_seconds = plan.heat_seconds;
    workload.consumer_backlog_size_gb = None;
    for broker in brokers {
        measure(broker, &workload, 0)?;
    }
    Ok(())
}

/// What was spent up to one edge of the measured time.
struct Edge {
    at: std::time::Instant,
    broker: Spent,
    load: Spent,
    machine: Machine,
    memory: Memory,
}

impl Edge {
    fn now(pid: u32) -> Result<Edge, Failure> {
        Ok(Edge {
            at: std::time::Instant::now(),
            broker: Spent::of(pid)?,
            load: Spent::of(std::process::id())?,
            machine: Machine::now()?,
            memory: Memory::of(pid)?,
        })
    }
}

fn measure(broker: &Broker, workload: &Workload, repeat: u32) -> Result<Run, Failure> {
    // The floor serves no Fetch: it is measured without consumers.
    let mut workload = workload.clone();
    if broker.name == "floor" {
        workload.consumers = 0;
        workload.consumer_backlog_size_gb = None;
    }
    let topic = format!("bench-{}-{repeat}-{}", workload.name, std::process::id());
    broker.create_topic(&topic, &workload)?;
    let mut edges = Vec::new();
    let recorded = load_on(broker, &workload, &topic, &mut edges)?;
    broker.delete_topic(&topic)?;
    let [begin, end] = &edges[..] else {
        return Err(Failure::told("the run ended before it was measured"));
    };
    Ok(describe(broker, &workload, repeat, begin, end, &recorded))
}

fn load_on(
    broker: &Broker,
    workload: &Workload,
    topic: &str,
    edges: &mut Vec<Edge>,
) -> Result<Recorded, Failure> {
    let window = Window {
        begin_seconds: workload.warmup_duration_seconds,
        end_seconds: workload.warmup_duration_seconds + workload.test_duration_seconds,
    };
    let mut at_edge = || {
        edges.push(Edge::now(broker.pid)?);
        Ok(())
    };
    match workload.consumer_backlog_size_gb {
        None => load::run(broker.address, topic, workload, window, &mut at_edge),
        Some(gigabytes) => {
            let bytes = (gigabytes * 1e9) as u64;
            load::run_catch_up(broker.address, topic, workload, bytes, window, &mut at_edge)
        }
    }
}

fn describe(
    broker: &Broker,
    workload: &Workload,
    repeat: u32,
    begin: &Edge,
    end: &Edge,
    recorded: &Recorded,
) -> Run {
    let seconds = (end.at - begin.at).as_secs_f64();
    let records = (recorded.batches * u64::from(workload.records_per_batch)) as f64;
    let bytes = if workload.consumer_backlog_size_gb.is_some() {
        recorded.fetched_bytes as f64
    } else {
        records * f64::from(workload.message_size)
    };
    let spent = end.broker.since(begin.broker);
    let load = end.load.since(begin.load);
    let busy = end.machine.busy_seconds - begin.machine.busy_seconds;
    let stolen = end.machine.stolen_seconds - begin.machine.stolen_seconds;
    Run {
        workload: workload.name.clone(),
        target: broker.name.clone(),
        repeat,
        seconds,
        records_per_second: records / seconds,
        megabytes_per_second: bytes / seconds / 1e6,
        cpu_seconds: spent.cpu_seconds,
        cpu_seconds_per_million_records: spent.cpu_seconds / records * 1e6,
        cpu_seconds_per_gigabyte: spent.cpu_seconds / bytes * 1e9,
        waited: spent.waited_seconds / seconds,
        load_cores: load.cpu_seconds / seconds,
        other_cores: ((busy - spent.cpu_seconds - load.cpu_seconds) / seconds).max(0.0),
        stolen_cores: stolen / seconds,
        memory: end.memory,
        latency: recorded.latency.summary(),
        service: recorded.service.summary(),
        end_to_end: recorded.end_to_end.summary(),
        unanswered: recorded.unanswered,
        unseen: recorded.unseen,
    }
}
