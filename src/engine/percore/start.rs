//! Start and stop of the per-core engine.
//!
//! Start: what the host lacks, listeners bound, log directories listed, the metadata log recovered and taken over, cores started, the first image
//! published, then connections. Logs recover in the background meanwhile. Stop: no more connections, shards stop, checkpoints, the sign of a
//! clean stop.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use corelog_io::cpu;
use corelog_io::credits::credits;
use corelog_io::executor::{CoreThread, spawn_core};
use corelog_io::inbox::{InboxSender, inbox};
use corelog_io::mesh::mesh;
use corelog_io::net::deal::CoreLoads;
use corelog_io::net::listener::ListenerThread;
use corelog_io::turn::{Turn, TurnConfig};
use corelog_io::watchdog::Watchdog;
use corelog_shards::base::ids::{METADATA_LOG, ShardId, TopicPartition};
use corelog_shards::effect::{Outbox, PartitionCheckpoint};
use corelog_shards::metadata::Image;
use corelog_shards::shard::{Shard, ShardConfig};
use corelog_wire::frame::PREFIX_LENGTH;
use rustc_hash::FxHashSet;

use super::core::{Core, Limits, Parts, Seat};
use super::credits::{CoreCredits, Loose};
use super::disk::Disk;
use super::hop::{Hop, Hops};
use super::listen::{self, Bound};
use super::mail::{MAIL_MAX, Mail, post};
use super::slow::Slow;
use crate::api::Directories;
use crate::config::BrokerConfig;
use crate::config::format::Identity;
use crate::console::{BrokerState, Console, Health, Housekeeping};
use crate::engine::clock::Clock;
use crate::engine::log_dirs::LogDirs;
use crate::engine::metadata::{self, Metadata};
use crate::engine::recovery::Recoverer;
use crate::engine::storage;
use crate::metrics::Metrics;

/// Why the broker does not serve. Each says what, why and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("this host can't run the per-core engine:\n{0}")]
    Host(String),
    #[error("cannot listen on {address}: {why}")]
    Listen { address: String, why: String },
    #[error("cannot use the log directory {}: {why}", path.display())]
    Directory { path: PathBuf, why: io::Error },
    #[error("cannot load the metadata in {}: {why}; restore the directory from a copy, or start with an empty one", path.display())]
    Metadata { path: PathBuf, why: String },
    #[error("cannot start {what}: {why}")]
    Thread { what: String, why: io::Error },
    #[error(
        "the metadata log was not taken over within {0:?}: look at the disk of the first log directory"
    )]
    Controller(Duration),
    #[error("the broker stopped, but not cleanly: {0}; the next start recovers its logs")]
    Unclean(String),
}

/// Messages in one ring between two cores.
const RING_MESSAGES: usize = 4096;
/// Parts of one core that may be out to another: half the ring, so that replies and messages find room.
const RING_PARTS_MAX: usize = RING_MESSAGES / 2;
/// Requests of one connection that may be under way. More would let one client own a core's turn; librdkafka sends as many as it likes.
const CONNECTION_REQUESTS_MAX: usize = 1024;
/// Answers that one connection may have waiting before it is not read any more.
const CONNECTION_REPLY_BYTES_MAX: usize = 8 << 20;
/// Long polls and acks=all that wait, per core: one for each of very many connections.
const PARKED_MAX: usize = 65_536;
/// Parts per shard that wait for metadata or for a log that is being made.
const SHARD_PARKED_MAX: usize = 10_000;
/// Credits that a core keeps at hand.
const REQUEST_BYTES_CHUNK: u64 = 1 << 20;
const REQUEST_COUNT_CHUNK: u64 = 16;
/// How long the start waits for the first image.
const CONTROLLER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a stop may take before it is called unclean.
const STOP_TIMEOUT: Duration = Duration::from_mins(1);
/// Checkpoint files are written this often at most: what lies above a recovery point has to be scanned after a crash.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);
/// Housekeeping looks around this often.
const KEEP_EVERY: Duration = Duration::from_millis(250);
/// Free space of directories is looked at this often.
const DIRECTORIES_EVERY: Duration = Duration::from_secs(10);
/// A core whose loop stands still for longer is reported.
const STALL_AFTER: Duration = Duration::from_secs(1);

/// What a start needs from the host, found out and taken before any directory is touched.
pub fn prepare(config: &BrokerConfig) -> Result<Bound, ServeError> {
    check_host()?;
    listen::bind(config)
}

/// Runs the broker until it is told to stop.
pub fn serve(
    config: BrokerConfig,
    identity: Identity,
    console: Option<Console>,
    bound: Bound,
) -> Result<(), ServeError> {
    let clock = Clock::starting_now();
    let shards = shard_count(&config);
    let cores: Vec<usize> = chosen_cores(&config)
        .into_iter()
        .take(usize::from(shards))
        .collect();

    let metrics = Metrics::new(cores.len());
    let health = Arc::new(Health::new(cores.len()));
    let housekeeping = Housekeeping::start(console, Arc::clone(&metrics), Arc::clone(&health))
        .map_err(|why| ServeError::Thread {
            what: "the housekeeping thread".to_owned(),
            why,
        })?;

    let metadata = metadata::load(&config, &identity, shards, clock.now(), bound.endpoints())?;
    let broker = Broker::start(
        &config, &identity, &cores, shards, clock, metadata, &bound, &metrics, &health,
    )?;
    health.set(BrokerState::Running);
    let listening = broker.accept(bound)?;
    let (tell, told) = mpsc::channel();
    housekeeping
        .on_stop_signal(move || {
            let _ = tell.send(());
        })
        .map_err(|why| ServeError::Thread {
            what: "the signal handler".to_owned(),
            why,
        })?;
    let listeners: Vec<String> = config
        .listeners
        .advertised
        .iter()
        .map(ToString::to_string)
        .collect();
    tracing::info!(?cores, shards, ?listeners, "serving");
    // An error means that the handler is gone, which it never is before the process ends.
    let _ = told.recv();
    health.set(BrokerState::ShuttingDown);
    drop(listening);
    let stopped = broker.stop();
    drop(housekeeping);
    stopped
}

fn check_host() -> Result<(), ServeError> {
    // What can't be raised is among what is missing.
    let _ = corelog_io::probe::raise_open_files();
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

fn chosen_cores(config: &BrokerConfig) -> Vec<usize> {
    config.cores.clone().unwrap_or_else(cpu::allowed_cores)
}

fn shard_count(config: &BrokerConfig) -> u16 {
    config
        .shards
        .unwrap_or(chosen_cores(config).len() as u16)
        .max(1)
}

/// What threads tell the one that waits for the broker.
enum News {
    Image(Arc<Image>),
    Checkpoint(Vec<PartitionCheckpoint>),
    ShardStopped(ShardId),
    Offline(PathBuf, Vec<TopicPartition>),
}

/// The running broker.
struct Broker {
    cores: Vec<CoreThread>,
    inboxes: Vec<InboxSender<Mail>>,
    loads: CoreLoads,
    keeper: Keeper,
}

impl Broker {
    #[expect(
        clippy::too_many_arguments,
        reason = "what a start has put together, used once"
    )]
    fn start(
        config: &BrokerConfig,
        identity: &Identity,
        cores: &[usize],
        shards: u16,
        clock: Clock,
        metadata: Metadata,
        bound: &Bound,
        metrics: &Arc<Metrics>,
        health: &Arc<Health>,
    ) -> Result<Broker, ServeError> {
        let Metadata {
            controller,
            outbox,
            dirs,
            found,
            shutdown,
            image,
        } = metadata;
        let (news, heard) = mpsc::channel();
        let recoverer = Arc::new(Recoverer::new(Arc::clone(&dirs), shutdown, clock));
        let recovery_threads = config.recovery_threads_per_dir as usize * dirs.roots().len();
        let slow = Slow::start(Arc::clone(&recoverer), recovery_threads).map_err(|why| {
            ServeError::Thread {
                what: "helper threads".to_owned(),
                why,
            }
        })?;
        let slow = Arc::new(slow);
        let existing: FxHashSet<TopicPartition> = found.iter().copied().collect();

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
        let watchdog = Watchdog::start(STALL_AFTER).map_err(|why| ServeError::Thread {
            what: "the watchdog".to_owned(),
            why,
        })?;
        let watchdog = Arc::new(watchdog);
        let (mut controller, mut outbox) = (Some(controller), Some(outbox));
        let mut threads = Vec::new();
        for (index, ((port, inbox), credits)) in ports
            .into_iter()
            .zip(receivers)
            .zip(core_credits)
            .enumerate()
        {
            let mut seats = Vec::new();
            for id in (index as u16..shards).step_by(count) {
                let shard = Shard::new(ShardConfig {
                    id: ShardId(id),
                    shards,
                    node_id: identity.node_id,
                    tail_cache_bytes: (config.memory.tail / u64::from(shards)) as usize,
                    existing: existing.clone(),
                    parked_max: SHARD_PARKED_MAX,
                    fetch_session_slots: config.fetch_session_slots as usize,
                    retention_check_interval_ms: config.tasks.retention_every_ms,
                    initial_task_delay_ms: config.tasks.first_after_ms,
                    seed: crate::engine::random_u64(),
                    controller: if id == 0 {
                        controller.take().map(Box::new)
                    } else {
                        None
                    },
                });
                seats.push(Seat::new(
                    shard,
                    if id == 0 {
                        outbox.take().unwrap_or_default()
                    } else {
                        Outbox::new()
                    },
                ));
            }
            let mut disk = Disk::new(
                Arc::clone(&dirs),
                Arc::clone(&slow),
                senders[index].clone(),
                config.write_behind_bytes,
                config.test_stall_file.clone(),
                Arc::clone(metrics),
                index,
                offline_teller(&news, &dirs),
            );
            if let Some(directory) = dirs.path(METADATA_LOG).filter(|_| index == 0) {
                disk.place(METADATA_LOG, directory);
            }
            let made = CoreParts {
                clock,
                index: index as u16,
                cores: count as u16,
                mesh: port,
                hops: Arc::clone(&hops),
                inbox,
                seats,
                disk,
                credits,
                peers: senders.clone(),
                image: Arc::clone(&image),
                views: bound.views(config, identity),
                metrics: Arc::clone(metrics),
                loads: loads.clone(),
                limits: limits(config),
                news: news.clone(),
            };
            threads.push(start_core(made, cores[index], Arc::clone(&watchdog))?);
        }
        drop(news);
        let keeper = Keeper::new(
            heard,
            dirs,
            recoverer,
            senders.clone(),
            Arc::clone(health),
            Arc::clone(metrics),
            shards,
            identity.node_id,
        );
        let broker = Broker {
            cores: threads,
            inboxes: senders,
            loads,
            keeper,
        };
        broker.keeper.wait_for_first_image()?;
        Ok(broker)
    }
}

impl Broker {
    /// Lets connections in.
    fn accept(&self, bound: Bound) -> Result<Vec<ListenerThread>, ServeError> {
        let inboxes = self.inboxes.clone();
        bound.accept(self.loads.clone(), move |core, listener, socket, peer| {
            // A full inbox means a core that stands still: the connection is dropped, which its client notices.
            drop(inboxes[core].push(Mail::Socket {
                socket,
                peer,
                listener,
            }));
        })
    }

    /// Stops cleanly: every acknowledged byte is synced and a clean start needs no recovery.
    fn stop(self) -> Result<(), ServeError> {
        for inbox in &self.inboxes {
            post(inbox, Mail::Stop);
        }
        let stopped = self.keeper.finish();
        // The cores run until the process ends: their loops never return.
        drop(self.cores);
        stopped
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
    news: Sender<News>,
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
        let (images, checkpoints, stops) = (made.news.clone(), made.news.clone(), made.news);
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
            // The receiver lives as long as the process: a failed send means that the process is ending.
            publish: Box::new(move |image| drop(images.send(News::Image(image)))),
            checkpoint: Box::new(move |reports| drop(checkpoints.send(News::Checkpoint(reports)))),
            stopped: Box::new(move |shard| drop(stops.send(News::ShardStopped(shard)))),
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

/// Tells the keeper that a log directory has failed.
fn offline_teller(news: &Sender<News>, dirs: &Arc<LogDirs>) -> Box<dyn Fn(TopicPartition) + Send> {
    let (news, dirs) = (news.clone(), Arc::clone(dirs));
    Box::new(move |log| {
        if let Some((root, logs)) = dirs.set_offline(log) {
            drop(news.send(News::Offline(root, logs)));
        }
    })
}

/// The thread beside the cores that hands images on, merges checkpoints and removes what was deleted.
struct Keeper {
    shared: Arc<Mutex<KeeperState>>,
    first_image: Receiver<()>,
    done: Receiver<Result<(), String>>,
}

#[derive(Default)]
struct KeeperState {
    stopping: bool,
}

impl Keeper {
    #[expect(
        clippy::too_many_arguments,
        reason = "what a start has put together, used once"
    )]
    fn new(
        heard: Receiver<News>,
        dirs: Arc<LogDirs>,
        recoverer: Arc<Recoverer>,
        inboxes: Vec<InboxSender<Mail>>,
        health: Arc<Health>,
        metrics: Arc<Metrics>,
        shards: u16,
        node_id: i32,
    ) -> Keeper {
        let shared = Arc::new(Mutex::new(KeeperState::default()));
        let (first, first_image) = mpsc::channel();
        let (finished, done) = mpsc::channel();
        let work = Keeping {
            heard,
            dirs,
            recoverer,
            inboxes,
            health,
            metrics,
            uncounted: None,
            shards_left: shards,
            node_id,
            broker_epoch: -1,
            shared: Arc::clone(&shared),
            first,
            strays_named: false,
        };
        thread::Builder::new()
            .name("keeper".to_owned())
            .spawn(move || drop(finished.send(work.run())))
            .unwrap_or_else(|error| panic!("cannot start the keeper thread: {error}"));
        Keeper {
            shared,
            first_image,
            done,
        }
    }

    fn wait_for_first_image(&self) -> Result<(), ServeError> {
        self.first_image
            .recv_timeout(CONTROLLER_TIMEOUT)
            .map_err(|_| ServeError::Controller(CONTROLLER_TIMEOUT))
    }

    fn finish(&self) -> Result<(), ServeError> {
        self.shared
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .stopping = true;
        match self.done.recv_timeout(STOP_TIMEOUT) {
            Ok(result) => result.map_err(ServeError::Unclean),
            Err(_) => Err(ServeError::Unclean(format!(
                "not every shard had stopped after {STOP_TIMEOUT:?}"
            ))),
        }
    }
}

struct Keeping {
    heard: Receiver<News>,
    dirs: Arc<LogDirs>,
    recoverer: Arc<Recoverer>,
    inboxes: Vec<InboxSender<Mail>>,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    /// The newest image, while the metrics do not show it yet.
    uncounted: Option<Arc<Image>>,
    shards_left: u16,
    node_id: i32,
    /// Of this run's registration, for the sign of a clean stop.
    broker_epoch: i64,
    shared: Arc<Mutex<KeeperState>>,
    first: Sender<()>,
    strays_named: bool,
}

impl Keeping {
    fn run(mut self) -> Result<(), String> {
        let mut next_checkpoint = Instant::now() + CHECKPOINT_EVERY;
        let mut next_directories = Instant::now();
        let mut next_count = Instant::now();
        loop {
            match self.heard.recv_timeout(KEEP_EVERY) {
                Ok(news) => self.on(news),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err("the cores are gone".to_owned()),
            }
            let now = Instant::now();
            if now >= next_directories {
                next_directories = now + DIRECTORIES_EVERY;
                self.tell(
                    |directories| Mail::Directories(Arc::clone(directories)),
                    &Arc::new(self.dirs.view()),
                );
            }
            if now >= next_count {
                next_count = now + KEEP_EVERY;
                self.count();
            }
            if now >= next_checkpoint {
                next_checkpoint = now + CHECKPOINT_EVERY;
                if let Err(error) = self.dirs.write_checkpoints() {
                    tracing::error!(%error, "checkpoint files can't be written; a restart after a crash would take longer");
                }
                self.dirs.remove_doomed(now);
            }
            if self.shards_left == 0
                && self
                    .shared
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .stopping
            {
                return self.leave_cleanly();
            }
        }
    }

    fn on(&mut self, news: News) {
        match news {
            News::Image(image) => {
                let first = self.recoverer.set_image(&image);
                self.broker_epoch = image
                    .brokers
                    .get(&self.node_id)
                    .map_or(-1, |broker| broker.epoch);
                self.tell(|image| Mail::Image(Arc::clone(image)), &image);
                if !self.strays_named {
                    self.strays_named = true;
                    self.name_strays(&image);
                }
                if first {
                    let _ = self.first.send(());
                }
                self.uncounted = Some(image);
            }
            News::Checkpoint(reports) => self.dirs.note(&reports),
            News::ShardStopped(shard) => {
                tracing::debug!(shard = shard.0, "shard stopped");
                self.shards_left -= 1;
            }
            News::Offline(root, logs) => {
                tracing::error!(directory = %root.display(), replicas = logs.len(), "log directory is offline; replace the disk and restart");
                self.tell(|logs| Mail::Offline { logs: logs.clone() }, &logs);
            }
        }
    }

    /// Walks the whole image, so not for each of many that follow each other.
    fn count(&mut self) {
        let Some(image) = self.uncounted.take() else {
            return;
        };
        let partitions = || image.topics().flat_map(|topic| &topic.partitions);
        let here = partitions().filter(|partition| partition.replicas.contains(&self.node_id));
        let led = partitions().filter(|partition| partition.leader == self.node_id);
        let broker = &self.metrics.broker;
        broker.topics.set(image.topic_count() as i64);
        broker.partitions.set(here.count() as i64);
        broker.leaders.set(led.count() as i64);
        broker.metadata_offset.set(image.offset);
    }

    fn tell<T>(&self, mail: impl Fn(&T) -> Mail, what: &T) {
        for inbox in &self.inboxes {
            post(inbox, mail(what));
        }
    }

    /// Replicas that the metadata does not know are put aside for the operator (L-10).
    fn name_strays(&self, image: &Image) {
        for (log, place) in self.dirs.logs() {
            if log == METADATA_LOG || image.partition(log).is_some() {
                continue;
            }
            match self.dirs.stray(place.directory, &place.name) {
                Ok(renamed) => {
                    tracing::warn!(directory = %renamed.display(), "not in the metadata: renamed; remove it if its data is not needed");
                }
                Err(error) => {
                    tracing::error!(name = place.name, %error, "cannot rename a stray replica");
                }
            }
            self.dirs.forget(log);
        }
    }

    fn leave_cleanly(&mut self) -> Result<(), String> {
        while let Ok(news) = self.heard.try_recv() {
            self.on(news);
        }
        self.dirs
            .write_checkpoints()
            .map_err(|error| format!("checkpoint files can't be written: {error}"))?;
        for root in self.dirs.roots() {
            storage::write_clean_shutdown(root, self.broker_epoch).map_err(|error| {
                format!(
                    "{} can't be marked as stopped cleanly: {error}",
                    root.display()
                )
            })?;
        }
        self.health.set(BrokerState::NotRunning);
        Ok(())
    }
}
