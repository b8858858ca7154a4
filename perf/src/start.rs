//! B14: how long a broker takes to answer, on an empty directory and after kill -9, and what memory it needs, at rest and under B2.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::connection::ask;
use crate::frames;
use crate::load::{self, Job, Topics, Window};
use crate::process::Memory;
use crate::target::{Broker, Place, Target};
use crate::workload::Workload;

const WRITABLE_TIMEOUT: Duration = Duration::from_mins(1);
/// After this time what a broker does in the background has been done.
pub(crate) const SETTLE: Duration = Duration::from_secs(2);
/// How long it is under load before its memory is looked at.
const LOAD_SECONDS: f64 = 5.0;
/// Answered while a partition is recovered (NOT_LEADER_OR_FOLLOWER and what comes before metadata is known).
const PASSING: &[i16] = &[3, 5, 6];

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Started {
    pub target: String,
    pub repeat: u32,
    pub empty_ms: f64,
    pub at_rest: Memory,
    /// After some seconds of B2.
    pub under_load: Memory,
    pub after_kill_ms: f64,
    /// After kill -9, until a Produce is acknowledged.
    pub writable_after_kill_ms: f64,
}

/// How to measure it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan<'a> {
    pub(crate) target: &'a Target,
    pub(crate) place: &'a Place,
    /// Keeps it apart from brokers that run.
    pub(crate) number: u16,
    /// In the one partition when the broker is killed.
    pub(crate) gigabytes: f64,
}

pub(crate) fn measure(plan: Plan<'_>, repeat: u32) -> Result<Started, Failure> {
    let Plan {
        target,
        place,
        number,
        gigabytes,
    } = plan;
    let broker = target.start(place, number)?;
    let empty = broker.started_in;
    std::thread::sleep(SETTLE);
    let at_rest = Memory::of(broker.pid)?;
    let under_load = under_load(&broker)?;
    let workload = Workload::find("b1")?;
    let topics = Topics::named("restarted", &workload);
    broker.create_topics(&topics, &workload)?;
    let batches = (gigabytes * 1e9) as u64 / workload.batch_payload();
    load::fill(
        Job {
            address: broker.address,
            topics: &topics,
            workload: &workload,
            metrics: None,
        },
        batches,
    )?;
    let killed = Instant::now();
    let broker = broker.killed_and_started_again(target, place, number)?;
    let after_kill = broker.started_in;
    wait_until_writable(&broker, &topics, &workload, killed)?;
    Ok(Started {
        target: broker.name.clone(),
        repeat,
        empty_ms: milliseconds(empty),
        at_rest,
        under_load,
        after_kill_ms: milliseconds(after_kill),
        writable_after_kill_ms: milliseconds(killed.elapsed()),
    })
}

fn under_load(broker: &Broker) -> Result<Memory, Failure> {
    let workload = Workload::find("b2")?;
    let topics = Topics::named("loaded", &workload);
    broker.create_topics(&topics, &workload)?;
    let job = Job {
        address: broker.address,
        topics: &topics,
        workload: &workload,
        metrics: None,
    };
    load::touch(job)?;
    let window = Window {
        begin_seconds: 0.0,
        end_seconds: LOAD_SECONDS,
    };
    load::run(job, window, None, &mut |_| Ok(()))?;
    let memory = Memory::of(broker.pid)?;
    broker.delete_topics(&topics)?;
    Ok(memory)
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn wait_until_writable(
    broker: &Broker,
    topics: &Topics,
    workload: &Workload,
    since: Instant,
) -> Result<(), Failure> {
    let batch = frames::batch(workload, 0)?;
    let (topic, partition) = topics.of(0);
    let request = frames::produce(topic, partition, 0, workload.acks.on_the_wire(), &batch);
    while since.elapsed() < WRITABLE_TIMEOUT {
        match frames::produced(&ask(broker.address, &request)?)?.error {
            0 => return Ok(()),
            passing if PASSING.contains(&passing) => std::thread::sleep(Duration::from_millis(1)),
            error => {
                return Err(Failure::told(format!(
                    "Produce after the restart was answered with error {error}"
                )));
            }
        }
    }
    Err(Failure::told(
        "the partition does not come back after kill -9",
    ))
}
