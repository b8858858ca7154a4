//! Start and stop of a broker, whichever engine it runs on.
//!
//! Start: what the host lacks, listeners bound, log directories listed, the metadata log recovered and taken over, the engine started, the first
//! image published, then connections. Logs recover in the background meanwhile. Stop: no more connections, shards stop, checkpoints, the sign of a
//! clean stop.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use corelog_io::net::listener::ListenerThread;
use corelog_shards::base::ids::{ShardId, TopicPartition};
use corelog_shards::effect::Outbox;
use corelog_shards::metadata::Image;
use corelog_shards::shard::{Shard, ShardConfig};
use rustc_hash::FxHashSet;

use super::classic;
use super::clock::Clock;
use super::keeper::{Keeper, Kept, Teller, hearing};
use super::listen::{self, Bound};
use super::log_dirs::LogDirs;
use super::metadata::{self, Metadata};
use super::notice::{Notice, Notify};
use super::percore;
use super::recovery::Recoverer;
use super::slow::Slow;
use crate::api::BrokerView;
use crate::config::format::Identity;
use crate::config::{BrokerConfig, EngineKind};
use crate::console::{BrokerState, Console, Health, Housekeeping};
use crate::metrics::{Metrics, Pools};

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

impl ServeError {
    pub(super) fn thread(what: &str) -> impl FnOnce(io::Error) -> ServeError {
        let what = what.to_owned();
        move |why| ServeError::Thread { what, why }
    }
}

/// Parts per shard that wait for metadata or for a log that is being made.
const SHARD_PARKED_MAX: usize = 10_000;

/// What a start needs from the host, found out and taken before any directory is touched.
pub fn prepare(config: &BrokerConfig) -> Result<Bound, ServeError> {
    // What can't be raised is among what the engine misses, if it needs more.
    let _ = corelog_io::probe::raise_open_files();
    if config.engine == EngineKind::Percore {
        percore::check_host()?;
    }
    listen::bind(config)
}

/// What an engine is made of.
pub(super) struct Ground<'a> {
    pub(super) config: &'a BrokerConfig,
    pub(super) clock: Clock,
    /// All shards by number, each with what it wishes already.
    pub(super) shards: Vec<(Shard, Outbox)>,
    pub(super) dirs: Arc<LogDirs>,
    pub(super) slow: Arc<Slow>,
    pub(super) teller: Teller,
    /// The image as far as it was durable before this start.
    pub(super) image: Arc<Image>,
    /// One per listener.
    pub(super) views: Vec<Arc<BrokerView>>,
    pub(super) metrics: Arc<Metrics>,
}

/// An engine that runs, until the process ends.
pub(super) trait Engine {
    /// The ways on which it takes notices; each gets all of them.
    fn notifies(&self) -> Vec<Notify>;

    /// Lets connections in.
    fn accept(&self, bound: Bound) -> Result<Vec<ListenerThread>, ServeError>;
}

/// Which engine runs, and on what.
enum Plan {
    Percore {
        cores: Vec<usize>,
        shards: u16,
    },
    Classic {
        processors: usize,
        handlers: usize,
        stripes: u16,
    },
}

impl Plan {
    fn of(config: &BrokerConfig) -> Plan {
        match config.engine {
            EngineKind::Percore => Plan::Percore {
                cores: percore::cores(config),
                shards: percore::shard_count(config),
            },
            EngineKind::Classic => Plan::Classic {
                processors: config.network_threads as usize,
                handlers: config.io_threads as usize,
                stripes: classic::stripe_count(config),
            },
        }
    }

    fn shards(&self) -> u16 {
        match self {
            Plan::Percore { shards, .. } => *shards,
            Plan::Classic { stripes, .. } => *stripes,
        }
    }

    /// Loops that must not stand still: a thread that waits for a disk may.
    fn watched(&self) -> usize {
        match self {
            Plan::Percore { cores, .. } => cores.len(),
            Plan::Classic { .. } => 0,
        }
    }
}

/// Runs the broker until it is told to stop.
pub fn serve(
    config: BrokerConfig,
    identity: Identity,
    console: Option<Console>,
    bound: Bound,
) -> Result<(), ServeError> {
    let clock = Clock::starting_now();
    let plan = Plan::of(&config);
    let shards = plan.shards();
    let metrics = match &plan {
        Plan::Percore { cores, .. } => Metrics::new(cores.len()),
        Plan::Classic {
            processors,
            handlers,
            ..
        } => Metrics::with_pools(*handlers, Some(Pools::new(*processors, *handlers))),
    };
    let health = Arc::new(Health::new(plan.watched()));
    let housekeeping = Housekeeping::start(console, Arc::clone(&metrics), Arc::clone(&health))
        .map_err(ServeError::thread("the housekeeping thread"))?;

    let metadata = metadata::load(&config, &identity, shards, clock.now(), bound.endpoints())?;
    let (teller, hearing) = hearing(&metadata.dirs);
    let dirs = Arc::clone(&metadata.dirs);
    let recoverer = Arc::new(Recoverer::new(Arc::clone(&dirs), metadata.shutdown, clock));
    let views = bound.views(&config, &identity);
    let ground = ground(
        &config, &identity, shards, clock, metadata, teller, &recoverer, views, &metrics,
    )?;
    let engine: Box<dyn Engine> = match &plan {
        Plan::Percore { cores, .. } => Box::new(percore::Running::start(ground, cores)?),
        Plan::Classic { .. } => Box::new(classic::Running::start(ground)?),
    };
    let kept = Kept {
        dirs,
        recoverer,
        health: Arc::clone(&health),
        metrics,
        shards,
        node_id: identity.node_id,
    };
    let keeper = Keeper::start(hearing, kept, engine.notifies())?;
    keeper.wait_for_first_image()?;
    health.set(BrokerState::Running);
    let listening = engine.accept(bound)?;
    let (tell, told) = mpsc::channel();
    housekeeping
        .on_stop_signal(move || {
            let _ = tell.send(());
        })
        .map_err(ServeError::thread("the signal handler"))?;
    let listeners: Vec<String> = config
        .listeners
        .advertised
        .iter()
        .map(ToString::to_string)
        .collect();
    match &plan {
        Plan::Percore { cores, .. } => {
            tracing::info!(engine = "percore", ?cores, shards, ?listeners, "serving");
        }
        Plan::Classic {
            processors,
            handlers,
            ..
        } => {
            tracing::info!(
                engine = "classic",
                processors,
                handlers,
                shards,
                ?listeners,
                "serving"
            );
        }
    }
    // An error means that the handler is gone, which it never is before the process ends.
    let _ = told.recv();
    health.set(BrokerState::ShuttingDown);
    drop(listening);
    // Every acknowledged byte is synced and a clean start needs no recovery. The engine's threads run until the process ends.
    for notify in engine.notifies() {
        notify(Notice::Stop);
    }
    let stopped = keeper.finish();
    drop(housekeeping);
    stopped
}

#[expect(
    clippy::too_many_arguments,
    reason = "what a start has put together, used once"
)]
fn ground<'a>(
    config: &'a BrokerConfig,
    identity: &Identity,
    count: u16,
    clock: Clock,
    metadata: Metadata,
    teller: Teller,
    recoverer: &Arc<Recoverer>,
    views: Vec<Arc<BrokerView>>,
    metrics: &Arc<Metrics>,
) -> Result<Ground<'a>, ServeError> {
    let Metadata {
        controller,
        outbox,
        dirs,
        found,
        image,
        ..
    } = metadata;
    let recovery_threads = config.recovery_threads_per_dir as usize * dirs.roots().len();
    let slow = Slow::start(Arc::clone(recoverer), Arc::clone(&dirs), recovery_threads)
        .map_err(ServeError::thread("helper threads"))?;
    let existing: FxHashSet<TopicPartition> = found.iter().copied().collect();
    let (mut controller, mut outbox) = (Some(Box::new(controller)), Some(outbox));
    let shard = |id| {
        // Shard 0 has the controller.
        let shard = Shard::new(ShardConfig {
            id: ShardId(id),
            shards: count,
            node_id: identity.node_id,
            tail_cache_bytes: (config.memory.tail / u64::from(count)) as usize,
            existing: existing.clone(),
            parked_max: SHARD_PARKED_MAX,
            fetch_session_slots: config.fetch_session_slots as usize,
            retention_check_interval_ms: config.tasks.retention_every_ms,
            initial_task_delay_ms: config.tasks.first_after_ms,
            seed: super::random_u64(),
            controller: controller.take(),
        });
        (shard, outbox.take().unwrap_or_default())
    };
    Ok(Ground {
        config,
        clock,
        shards: (0..count).map(shard).collect(),
        dirs,
        slow: Arc::new(slow),
        teller,
        image,
        views,
        metrics: Arc::clone(metrics),
    })
}
