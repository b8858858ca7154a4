//! What a broker needs at rest: itself, per idle connection, per idle partition.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

use crate::Failure;
use crate::frames;
use crate::load;
use crate::process::Memory;
use crate::target::{Broker, Place, Target};
use crate::workload::Workload;

/// After this time what a broker does in the background has been done.
const SETTLE: Duration = Duration::from_secs(2);

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
    allow_open_files(u64::from(connections) + 100)?;
    let broker = target.start(place, 0)?;
    let rest = settled(&broker)?;
    let open = open_idle(broker.address, connections)?;
    let with_connections = settled(&broker)?;
    drop(open);
    let before = settled(&broker)?;
    let workload = one_small_record_each(partitions)?;
    broker.create_topic("idle", &workload)?;
    let with_partitions = settled(&broker)?;
    load::touch(broker.address, "idle", &workload)?;
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

/// Connections that have had one answer.
fn open_idle(address: SocketAddr, count: u32) -> Result<Vec<TcpStream>, Failure> {
    use std::io::{Read as _, Write as _};
    let failed = || Failure::io(format!("an idle connection to {address}"));
    (0..count)
        .map(|_| {
            let mut stream = TcpStream::connect(address).map_err(failed())?;
            stream
                .set_read_timeout(Some(Duration::from_secs(30)))
                .map_err(failed())?;
            stream
                .write_all(&frames::api_versions())
                .map_err(failed())?;
            let mut prefix = [0; 4];
            stream.read_exact(&mut prefix).map_err(failed())?;
            let mut answer = vec![0; u32::from_be_bytes(prefix).min(1 << 20) as usize];
            stream.read_exact(&mut answer).map_err(failed())?;
            Ok(stream)
        })
        .collect()
}

fn one_small_record_each(partitions: u32) -> Result<Workload, Failure> {
    let mut workload = Workload::find("b4")?;
    workload.message_size = 100;
    workload.partitions_per_topic = partitions;
    Ok(workload)
}

fn allow_open_files(count: u64) -> Result<(), Failure> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= count) {
        return Ok(());
    }
    let raised = Rlimit {
        current: Some(count),
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).map_err(|error| {
        Failure::io(format!("cannot open {count} files; raise ulimit -n"))(error.into())
    })
}
