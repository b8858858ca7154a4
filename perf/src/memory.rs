//! What a broker needs at rest: itself, per idle connection, per idle partition.

use serde::Serialize;

use crate::Failure;
use crate::idle;
use crate::load::{self, Job, Topics};
use crate::process::Memory;
use crate::start::SETTLE;
use crate::target::{Broker, Place, Target};
use crate::workload::Workload;

#[derive(Debug, Clone, Serialize)]
pub(crate) struct AtRest {
    pub(crate) target: String,
    pub(crate) rss_bytes: u64,
    pub(crate) anonymous_bytes: u64,
    /// Anonymous bytes of a connection that has asked one thing and is silent.
    pub(crate) per_connection: f64,
    /// Anonymous bytes of a partition without records.
    pub(crate) per_empty_partition: f64,
    /// Anonymous bytes of a partition with one batch.
    pub(crate) per_written_partition: f64,
}

pub(crate) fn measure(
    target: &Target,
    place: &Place,
    connections: u32,
    partitions: u32,
) -> Result<AtRest, Failure> {
    idle::allow_open_files(u64::from(connections) + 2000)?;
    let broker = target.start(place, 0)?;
    let rest = settled(&broker)?;
    let open = idle::open(broker.address, connections)?;
    let with_connections = settled(&broker)?;
    drop(open);
    let before = settled(&broker)?;
    let workload = one_small_record_each(partitions)?;
    let topics = Topics::named("idle", &workload);
    broker.create_topics(&topics, &workload)?;
    let with_partitions = settled(&broker)?;
    load::touch(Job {
        address: broker.address,
        topics: &topics,
        workload: &workload,
        metrics: None,
    })?;
    let written = settled(&broker)?;
    let each = |more: Memory, less: Memory, count: u32| {
        (more.anonymous_bytes as f64 - less.anonymous_bytes as f64) / f64::from(count)
    };
    Ok(AtRest {
        target: broker.name.clone(),
        rss_bytes: rest.rss_bytes,
        anonymous_bytes: rest.anonymous_bytes,
        per_connection: each(with_connections, rest, connections),
        per_empty_partition: each(with_partitions, before, partitions),
        per_written_partition: each(written, before, partitions),
    })
}

fn settled(broker: &Broker) -> Result<Memory, Failure> {
    std::thread::sleep(SETTLE);
    Memory::of(broker.pid)
}

fn one_small_record_each(partitions: u32) -> Result<Workload, Failure> {
    let mut workload = Workload::find("b4")?;
    workload.message_size = 100;
    workload.partitions_per_topic = partitions;
    Ok(workload)
}
