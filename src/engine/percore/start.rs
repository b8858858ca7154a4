//! Makes and starts the cores.

use std::sync::Arc;
use std::time::Duration;

use corelog_io::cpu;
use corelog_io::credits::credits;
use corelog_io::executor::{CoreThread, spawn_core};
use corelog_io::inbox::{InboxSender, inbox};
use corelog_io::mesh::mesh;
use corelog_io::net::deal::{CoreLoads, Dealer};
use corelog_io::net::listener::ListenerThread;
use corelog_io::turn::{Turn, TurnConfig};
use corelog_io::watchdog::Watchdog;
use corelog_shards::base::ids::METADATA_LOG;
use corelog_shards::metadata::Image;
use corelog_wire::frame::PREFIX_LENGTH;

use super::core::{Core, Limits, Parts, Seat};
use super::credits::{CoreCredits, Loose};
use super::disk::Disk;
use super::hop::{Hop, Hops};
use super::mail::{MAIL_MAX, Mail, notify};
use crate::api::Directories;
use crate::config::BrokerConfig;
use crate::engine::clock::Clock;
use crate::engine::keeper::Teller;
use crate::engine::listen::Bound;
use crate::engine::notice::Notify;
use crate::engine::start::{Engine, Ground, ServeError};
use crate::metrics::Metrics;

/// Messages in one ring between two cores.
const RING_MESSAGES: usize = 4096;
/// Parts of one core that may be out to another: half the ring, so that replies and messages find room.
const RING_PARTS_MAX: usize = RING_MESSAGES / 2;
/// Requests of one connection that may be under way. More would let a few clients hold all places of `queued.max.requests`; librdkafka sends as many
/// as it likes.
const CONNECTION_REQUESTS_MAX: usize = 64;
/// Answers that one connection may have waiting before it is not read any more.
const CONNECTION_REPLY_BYTES_MAX: usize = 8 << 20;
/// Long polls and acks=all that wait, per core: one for each of very many connections.
const PARKED_MAX: usize = 65_536;
/// Credits that a core keeps at hand.
const REQUEST_BYTES_CHUNK: u64 = 1 << 20;
const REQUEST_COUNT_CHUNK: u64 = 16;
/// A core whose loop stands still for longer is reported.
const STALL_AFTER: Duration = Duration::from_secs(1);

/// Fails if this host lacks what the engine can't do without.
pub(in crate::engine) fn check_host() -> Result<(), ServeError> {
    let missing = corelog_io::probe::probe();
    if missing.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = missing
        .iter()
        .map(|missing| format!("- {missing}"))
        .collect();
    Err(ServeError::Host(lines.join("\n")))
}

/// The cores to run on: no more than there are shards.
pub(in crate::engine) fn cores(config: &BrokerConfig) -> Vec<usize> {
    let shards = usize::from(shard_count(config));
    chosen_cores(config).into_iter().take(shards).collect()
}

fn chosen_cores(config: &BrokerConfig) -> Vec<usize> {
    config.cores.clone().unwrap_or_else(cpu::allowed_cores)
}

pub(in crate::engine) fn shard_count(config: &BrokerConfig) -> u16 {
    config
        .shards
        .unwrap_or(chosen_cores(config).len() as u16)
        .max(1)
}

/// The running cores.
pub(in crate::engine) struct Running {
    /// Their loops never return.
    _cores: Vec<CoreThread>,
    inboxes: Vec<InboxSender<Mail>>,
    loads: CoreLoads,
}

impl Running {
    pub(in crate::engine) fn start(
        ground: Ground<'_>,
        cores: &[usize],
    ) -> Result<Running, ServeError> {
        let config = ground.config;
        let count = cores.len();
        let (ports, mesh_stats) = mesh::<Hop>(count, RING_MESSAGES);
        drop(mesh_stats);
        let hops = Arc::new(Hops::new(count * RING_MESSAGES * 2));
        let loads = CoreLoads::new(count);
        let core_credits = core_credits(config, count)?;
        let mut senders = Vec::new();
        let mut receivers = Vec::new();
        for _ in 0..count {
            let (sender, receiver) = inbox(MAIL_MAX);
            senders.push(sender);
            receivers.push(receiver);
        }
        let watchdog = Watchdog::start(STALL_AFTER).map_err(ServeError::thread("the watchdog"))?;
        let watchdog = Arc::new(watchdog);
        let mut seats: Vec<Vec<Seat>> = (0..count).map(|_| Vec::new()).collect();
        for (number, (shard, outbox)) in ground.shards.into_iter().enumerate() {
            seats[number % count].push(Seat::new(shard, outbox));
        }
        let mut threads = Vec::new();
        for (index, (((port, inbox), credits), seats)) in ports
            .into_iter()
            .zip(receivers)
            .zip(core_credits)
            .zip(seats)
            .enumerate()
        {
            let mut disk = Disk::new(
                Arc::clone(&ground.slow),
                notify(senders[index].clone()),
                config.write_behind_bytes,
                config.test_stall_file.clone(),
                Arc::clone(&ground.metrics),
                index,
                ground.teller.clone(),
            );
            if let Some(directory) = ground.dirs.path(METADATA_LOG).filter(|_| index == 0) {
                disk.place(METADATA_LOG, directory);
            }
            let made = CoreParts {
                clock: ground.clock,
                index: index as u16,
                cores: count as u16,
                mesh: port,
                hops: Arc::clone(&hops),
                inbox,
                seats,
                disk,
                credits,
                peers: senders.clone(),
                image: Arc::clone(&ground.image),
                views: ground.views.clone(),
                metrics: Arc::clone(&ground.metrics),
                loads: loads.clone(),
                limits: limits(config),
                teller: ground.teller.clone(),
            };
            threads.push(start_core(made, cores[index], Arc::clone(&watchdog))?);
        }
        Ok(Running {
            _cores: threads,
            inboxes: senders,
            loads,
        })
    }
}

impl Engine for Running {
    fn notifies(&self) -> Vec<Notify> {
        self.inboxes.iter().cloned().map(notify).collect()
    }

    fn accept(&self, bound: Bound) -> Result<Vec<ListenerThread>, ServeError> {
        bound.accept(|listener| {
            let inboxes = self.inboxes.clone();
            let mut dealer = Dealer::new(self.loads.clone());
            move |socket, peer| {
                // A full inbox means a core that stands still: the connection is dropped, which its client notices.
                drop(inboxes[dealer.deal()].push(Mail::Socket {
                    socket,
                    peer: peer.ip(),
                    listener,
                }));
            }
        })
    }
}

/// One shard per core after another: `index`, `index + cores`, …
struct CoreParts {
    clock: Clock,
    index: u16,
    cores: u16,
    mesh: corelog_io::mesh::MeshPort<Hop>,
    hops: Arc<Hops>,
    inbox: corelog_io::inbox::Inbox<Mail>,
    seats: Vec<Seat>,
    disk: Disk,
    credits: CoreCredits,
    image: Arc<Image>,
    views: Vec<Arc<crate::api::BrokerView>>,
    metrics: Arc<Metrics>,
    loads: CoreLoads,
    peers: Vec<InboxSender<Mail>>,
    limits: Limits,
    teller: Teller,
}

fn start_core(
    made: CoreParts,
    core: usize,
    watchdog: Arc<Watchdog>,
) -> Result<CoreThread, ServeError> {
    let name = format!("core-{core}");
    let what = name.clone();
    let body = move |handle: corelog_io::executor::CoreHandle| async move {
        // One submission queue entry per connection that acts in a turn, and room for disk operations.
        let config = TurnConfig {
            select_buffers: 64,
            select_buffer_bytes: 4 << 10,
            ..TurnConfig::default()
        };
        let turn = Turn::new(&config)
            .unwrap_or_else(|error| panic!("cannot make the ring of core {core}: {error}"));
        made.mesh.attach(turn.doorbell());
        made.inbox.attach(turn.doorbell());
        handle.attach(&turn);
        watchdog.watch(
            &format!("core-{core}"),
            turn.doorbell(),
            handle.poke().await,
        );
        let parts = Parts {
            clock: made.clock,
            index: made.index,
            cores: made.cores,
            turn,
            mesh: made.mesh,
            hops: made.hops,
            inbox: made.inbox,
            seats: made.seats,
            disk: made.disk,
            credits: made.credits,
            image: made.image,
            views: made.views,
            directories: Arc::new(Directories::default()),
            recorder: made.metrics.recorder(usize::from(made.index)),
            metrics: made.metrics,
            loads: made.loads,
            peers: made.peers,
            limits: made.limits,
            teller: made.teller,
        };
        Core::new(parts).run(handle).await;
    };
    spawn_core(name, Some(core), body).map_err(|why| ServeError::Thread { what, why })
}

fn limits(config: &BrokerConfig) -> Limits {
    Limits {
        frame_bytes_max: config.memory.request_max as usize,
        connection_requests_max: CONNECTION_REQUESTS_MAX,
        connection_reply_bytes_max: CONNECTION_REPLY_BYTES_MAX,
        idle_ms_max: config.connections.idle_max_ms.unwrap_or(u64::MAX),
        send_ms_max: u64::from(config.connections.send_timeout_ms),
        progress_ms_max: u64::from(config.connections.receive_timeout_ms),
        ring_parts_max: RING_PARTS_MAX,
    }
}

/// Credits of each core in the pools of the whole broker (architecture.md 6).
fn core_credits(config: &BrokerConfig, cores: usize) -> Result<Vec<CoreCredits>, ServeError> {
    let pool = |total: u64, largest: u64, chunk: u64| {
        let made = credits(total, largest, cores, chunk);
        made.map_err(|why| ServeError::Host(format!("{why}; raise memory.budget.bytes")))
    };
    let (request_bytes, byte_stats) = pool(
        config.memory.requests,
        u64::from(config.memory.request_max),
        REQUEST_BYTES_CHUNK,
    )?;
    let (request_count, count_stats) = pool(
        u64::from(config.queued_max_requests),
        1,
        REQUEST_COUNT_CHUNK,
    )?;
    let (reply_bytes, reply_stats) = pool(config.memory.replies, 1, REQUEST_BYTES_CHUNK)?;
    let largest_frame = u64::from(config.memory.request_max) + PREFIX_LENGTH as u64;
    let each = request_bytes
        .into_iter()
        .zip(request_count)
        .zip(reply_bytes);
    Ok(each
        .map(|((bytes, count), reply)| {
            CoreCredits::new(
                (bytes, byte_stats.clone()),
                (count, count_stats.clone()),
                (reply, reply_stats.clone()),
                Loose::new(config.memory.requests, largest_frame, cores),
                PARKED_MAX / cores,
            )
        })
        .collect())
}
