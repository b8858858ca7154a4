//! The thread beside an engine that hands images on, merges checkpoints and removes what was deleted.

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use corelog_shards::base::ids::{METADATA_LOG, ShardId, TopicPartition};
use corelog_shards::effect::PartitionCheckpoint;
use corelog_shards::metadata::Image;

use super::log_dirs::LogDirs;
use super::notice::{Notice, Notify};
use super::recovery::Recoverer;
use super::start::ServeError;
use super::storage;
use crate::console::{BrokerState, Health};
use crate::metrics::Metrics;

/// How long the start waits for the first image.
const CONTROLLER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a stop may take before it is called unclean.
const STOP_TIMEOUT: Duration = Duration::from_mins(1);
/// The exit status when the last log directory has failed, which is Kafka's.
const DISKS_FAILED_EXIT_CODE: i32 = 1;
/// Checkpoint files are written this often at most: what lies above a recovery point has to be scanned after a crash.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);
/// Housekeeping looks around this often.
const KEEP_EVERY: Duration = Duration::from_millis(250);
/// Free space of directories is looked at this often.
const DIRECTORIES_EVERY: Duration = Duration::from_secs(10);

/// What an engine tells the keeper.
enum News {
    Image(Arc<Image>),
    Checkpoint(Vec<PartitionCheckpoint>),
    ShardStopped(ShardId),
    Offline(PathBuf, Vec<TopicPartition>),
}

/// The engine's way to the keeper. What the calls of one shard tell arrives in their order.
#[derive(Clone)]
pub(super) struct Teller {
    news: Sender<News>,
    dirs: Arc<LogDirs>,
}

impl Teller {
    /// An image that the controller publishes: for all shards and front ends.
    pub(super) fn publish(&self, image: Arc<Image>) {
        self.tell(News::Image(image));
    }

    /// What should stand in the checkpoint files.
    pub(super) fn checkpoint(&self, reports: Vec<PartitionCheckpoint>) {
        self.tell(News::Checkpoint(reports));
    }

    pub(super) fn stopped(&self, shard: ShardId) {
        self.tell(News::ShardStopped(shard));
    }

    /// The log directory of this replica can't be trusted any more.
    pub(super) fn directory_failed(&self, log: TopicPartition) {
        if let Some((root, logs)) = self.dirs.set_offline(log) {
            self.tell(News::Offline(root, logs));
        }
    }

    fn tell(&self, news: News) {
        // The keeper hears as long as the process lives: a failed send means that the process is ending.
        drop(self.news.send(news));
    }
}

/// Both ends of the way to the keeper that is still to be started.
pub(super) struct Hearing(Receiver<News>);

pub(super) fn hearing(dirs: &Arc<LogDirs>) -> (Teller, Hearing) {
    let (news, heard) = mpsc::channel();
    let teller = Teller {
        news,
        dirs: Arc::clone(dirs),
    };
    (teller, Hearing(heard))
}

/// See the module.
pub(super) struct Keeper {
    shared: Arc<Mutex<KeeperState>>,
    first_image: Receiver<()>,
    done: Receiver<Result<(), String>>,
}

#[derive(Default)]
struct KeeperState {
    stopping: bool,
}

impl Keeper {
    pub(super) fn start(
        heard: Hearing,
        kept: Kept,
        notifies: Vec<Notify>,
    ) -> Result<Keeper, ServeError> {
        let shared = Arc::new(Mutex::new(KeeperState::default()));
        let (first, first_image) = mpsc::channel();
        let (finished, done) = mpsc::channel();
        let work = Keeping {
            heard: heard.0,
            shards_left: kept.shards,
            kept,
            notifies,
            uncounted: None,
            broker_epoch: -1,
            shared: Arc::clone(&shared),
            first,
            strays_named: false,
        };
        thread::Builder::new()
            .name("keeper".to_owned())
            .spawn(move || drop(finished.send(work.run())))
            .map_err(|why| ServeError::Thread {
                what: "the keeper".to_owned(),
                why,
            })?;
        Ok(Keeper {
            shared,
            first_image,
            done,
        })
    }

    pub(super) fn wait_for_first_image(&self) -> Result<(), ServeError> {
        self.first_image
            .recv_timeout(CONTROLLER_TIMEOUT)
            .map_err(|_| ServeError::Controller(CONTROLLER_TIMEOUT))
    }

    pub(super) fn finish(&self) -> Result<(), ServeError> {
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

/// What the keeper looks after.
pub(super) struct Kept {
    pub(super) dirs: Arc<LogDirs>,
    pub(super) recoverer: Arc<Recoverer>,
    pub(super) health: Arc<Health>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) shards: u16,
    pub(super) node_id: i32,
}

struct Keeping {
    heard: Receiver<News>,
    kept: Kept,
    notifies: Vec<Notify>,
    /// The newest image, while the metrics do not show it yet.
    uncounted: Option<Arc<Image>>,
    shards_left: u16,
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
                Err(RecvTimeoutError::Disconnected) => return Err("the engine is gone".to_owned()),
            }
            let now = Instant::now();
            if now >= next_directories {
                next_directories = now + DIRECTORIES_EVERY;
                self.tell(
                    |directories| Notice::Directories(Arc::clone(directories)),
                    &Arc::new(self.kept.dirs.view()),
                );
            }
            if now >= next_count {
                next_count = now + KEEP_EVERY;
                self.count();
            }
            if now >= next_checkpoint {
                next_checkpoint = now + CHECKPOINT_EVERY;
                if let Err(error) = self.kept.dirs.write_checkpoints() {
                    tracing::error!(%error, "checkpoint files can't be written; a restart after a crash would take longer");
                }
                self.kept.dirs.remove_doomed(now);
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
                let first = self.kept.recoverer.set_image(&image);
                self.broker_epoch = image
                    .brokers
                    .get(&self.kept.node_id)
                    .map_or(-1, |broker| broker.epoch);
                self.tell(|image| Notice::Image(Arc::clone(image)), &image);
                if !self.strays_named {
                    self.strays_named = true;
                    self.name_strays(&image);
                }
                if first {
                    let _ = self.first.send(());
                }
                self.uncounted = Some(image);
            }
            News::Checkpoint(reports) => self.kept.dirs.note(&reports),
            News::ShardStopped(shard) => {
                tracing::debug!(shard = shard.0, "shard stopped");
                self.shards_left -= 1;
            }
            News::Offline(root, logs) => {
                tracing::error!(directory = %root.display(), replicas = logs.len(), "log directory is offline; replace the disk and restart");
                self.tell(|logs| Notice::Offline { logs: logs.clone() }, &logs);
                let (directories, replicas) = self.kept.dirs.offline();
                let broker = &self.kept.metrics.broker;
                broker.offline_directories.set(directories as i64);
                broker.offline_partitions.set(replicas as i64);
                if directories == self.kept.dirs.count() {
                    // As Kafka does: nothing can be served any more, and whoever watches the process shall know.
                    tracing::error!(
                        "every log directory has failed: the broker stops; replace the disk or make room on it, and start again"
                    );
                    std::process::exit(DISKS_FAILED_EXIT_CODE);
                }
            }
        }
    }

    /// Walks the whole image, so not for each of many that follow each other.
    fn count(&mut self) {
        let Some(image) = self.uncounted.take() else {
            return;
        };
        let partitions = || image.topics().flat_map(|topic| &topic.partitions);
        let here = partitions().filter(|partition| partition.replicas.contains(&self.kept.node_id));
        let led = partitions().filter(|partition| partition.leader == self.kept.node_id);
        let broker = &self.kept.metrics.broker;
        broker.topics.set(image.topic_count() as i64);
        broker.partitions.set(here.count() as i64);
        broker.leaders.set(led.count() as i64);
        broker.metadata_offset.set(image.offset);
    }

    fn tell<T>(&self, notice: impl Fn(&T) -> Notice, what: &T) {
        for notify in &self.notifies {
            notify(notice(what));
        }
    }

    /// Replicas that the metadata does not know are put aside for the operator (L-10).
    fn name_strays(&self, image: &Image) {
        for (log, place) in self.kept.dirs.logs() {
            if log == METADATA_LOG || image.partition(log).is_some() {
                continue;
            }
            match self.kept.dirs.stray(place.directory, &place.name) {
                Ok(renamed) => {
                    tracing::warn!(directory = %renamed.display(), "not in the metadata: renamed; remove it if its data is not needed");
                }
                Err(error) => {
                    tracing::error!(name = place.name, %error, "cannot rename a stray replica");
                }
            }
            self.kept.dirs.forget(log);
        }
    }

    fn leave_cleanly(&mut self) -> Result<(), String> {
        while let Ok(news) = self.heard.try_recv() {
            self.on(news);
        }
        self.kept
            .dirs
            .write_checkpoints()
            .map_err(|error| format!("checkpoint files can't be written: {error}"))?;
        for root in self.kept.dirs.roots() {
            storage::write_clean_shutdown(root, self.broker_epoch).map_err(|error| {
                format!(
                    "{} can't be marked as stopped cleanly: {error}",
                    root.display()
                )
            })?;
        }
        self.kept.health.set(BrokerState::NotRunning);
        Ok(())
    }
}
