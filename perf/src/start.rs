//! How long a broker takes to answer: on an empty directory, and after kill -9.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::Failure;
use crate::connection::ask;
use crate::frames;
use crate::load;
use crate::target::{Broker, Place, Target};
use crate::workload::Workload;

const WRITABLE_TIMEOUT: Duration = Duration::from_mins(1);
/// Answered while a partition is recovered (NOT_LEADER_OR_FOLLOWER and what comes before metadata is known).
const PASSING: &[i16] = &[3, 5, 6];

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Started {
    pub(crate) target: String,
    pub(crate) repeat: u32,
    pub(crate) empty_ms: f64,
    pub(crate) after_kill_ms: f64,
    /// After kill -9, until a Produce is acknowledged.
    pub(crate) writable_after_kill_ms: f64,
}

/// `gigabytes` are in the partitions of `workload` when the broker is killed.
pub(crate) fn measure(
    target: &Target,
    place: &Place,
    repeat: u32,
    workload: &Workload,
    gigabytes: f64,
) -> Result<Started, Failure> {
    let broker = target.start(place, 0)?;
    let empty = broker.started_in;
    broker.create_topic("restarted", workload)?;
    let batches = (gigabytes * 1e9) as u64 / workload.batch_payload();
    load::fill(broker.address, "restarted", workload, batches)?;
    let killed = Instant::now();
    let broker = broker.killed_and_started_again(target, place, 0)?;
    let after_kill = broker.started_in;
    wait_until_writable(&broker, workload, killed)?;
    Ok(Started {
        target: broker.name.clone(),
        repeat,
        empty_ms: milliseconds(empty),
        after_kill_ms: milliseconds(after_kill),
        writable_after_kill_ms: milliseconds(killed.elapsed()),
    })
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn wait_until_writable(
    broker: &Broker,
    workload: &Workload,
    since: Instant,
) -> Result<(), Failure> {
    let batch = frames::batch(workload, 0)?;
    let request = frames::produce("restarted", 0, workload.acks.on_the_wire(), &batch);
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
