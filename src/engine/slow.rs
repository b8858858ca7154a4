//! Helper threads for what may block: directories, renames, small files, recovery. They are not pinned, and finish by a notice.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use corelog_io::disk::map::map_sealed;
use corelog_io::disk::{File, OpenMode, dir};
use corelog_shards::base::ids::{FileId, METADATA_LOG, ShardId, Text, TopicPartition};
use corelog_shards::effect::Effect;
use corelog_shards::event::{DiskFailure, Done};

use super::log_dirs::LogDirs;
use super::notice::{Asker, Notice, Notify};
use super::recovery::Recoverer;
use super::storage;

type Job = Box<dyn FnOnce() + Send>;

/// Two queues: recovery of many logs must not delay the creation of a topic.
pub(super) struct Slow {
    /// One queue per thread: what is asked of one log is done in order.
    jobs: Vec<Sender<Job>>,
    recoveries: Sender<Job>,
    recoverer: Arc<Recoverer>,
    dirs: Arc<LogDirs>,
}

/// Threads for directories and small files: such work waits for the disk, not for a core.
const THREADS: usize = 2;

impl Slow {
    /// `recovery_threads` as `num.recovery.threads.per.data.dir` times the number of directories.
    pub(super) fn start(
        recoverer: Arc<Recoverer>,
        dirs: Arc<LogDirs>,
        recovery_threads: usize,
    ) -> io::Result<Slow> {
        Ok(Slow {
            jobs: (0..THREADS)
                .map(|_| pool("slow", 1))
                .collect::<io::Result<_>>()?,
            recoveries: pool("recover", recovery_threads.max(1))?,
            recoverer,
            dirs,
        })
    }

    /// Carries out an effect that is slow and rare. `directory` is where the engine knows the log to be. Never calls `notify` itself: the caller may
    /// hold what that needs.
    pub(super) fn effect(
        &self,
        shard: ShardId,
        effect: Effect,
        directory: Option<PathBuf>,
        notify: &Notify,
    ) {
        let asker = |op| Asker { shard, op };
        match effect {
            Effect::Map { op, file } => self.on_file(asker(op), file, directory, notify, |path| {
                map_whole(&path).map(Done::Bytes)
            }),
            Effect::Seal { op, file, len } | Effect::Truncate { op, file, len } => {
                self.on_file(asker(op), file, directory, notify, move |path| {
                    fs::OpenOptions::new()
                        .create(true)
                        .truncate(false)
                        .write(true)
                        .open(path)?
                        .set_len(len)?;
                    Ok(Done::Written)
                });
            }
            Effect::Replace { op, file, content } => {
                self.on_file(asker(op), file, directory, notify, move |path| {
                    dir::write_atomically(&path, &content)?;
                    Ok(Done::Written)
                });
            }
            Effect::Delete {
                op,
                files,
                delay_ms,
            } => self.delete(asker(op), &files, delay_ms, directory, notify),
            Effect::CreateLog { op, log, name } => {
                let creation = Creation {
                    asker: asker(op),
                    log,
                    name,
                    until: Instant::now() + NAME_FREE_WITHIN,
                    dirs: Arc::clone(&self.dirs),
                    notify: Arc::clone(notify),
                    queue: self.queue_of(log).clone(),
                };
                send(self.queue_of(log), creation.job());
            }
            Effect::DeleteLog { op, log, delay_ms } => {
                let dirs = Arc::clone(&self.dirs);
                self.run(log, asker(op), notify, move || {
                    dirs.delete(log, Duration::from_millis(delay_ms))?;
                    Ok(Done::Written)
                });
            }
            Effect::OpenLog { log, .. } => self.open_log(shard, log, notify),
            Effect::Write { .. }
            | Effect::Sync { .. }
            | Effect::Read { .. }
            | Effect::LogDirFailed { .. }
            | Effect::Reply { .. }
            | Effect::Send { .. }
            | Effect::Publish(_)
            | Effect::Checkpoint(_)
            | Effect::Stopped => unreachable!("not a slow effect"),
        }
    }

    /// Does something slow with a file's path.
    pub(super) fn on_file(
        &self,
        asker: Asker,
        file: FileId,
        directory: Option<PathBuf>,
        notify: &Notify,
        work: impl FnOnce(PathBuf) -> io::Result<Done> + Send + 'static,
    ) {
        self.run(file.log, asker, notify, move || {
            let directory = directory.ok_or_else(no_directory)?;
            work(directory.join(storage::file_name(file)))
        });
    }

    fn delete(
        &self,
        asker: Asker,
        files: &[FileId],
        delay_ms: u64,
        directory: Option<PathBuf>,
        notify: &Notify,
    ) {
        let log = files.first().map_or(METADATA_LOG, |file| file.log);
        let names: Vec<String> = files.iter().map(|file| storage::file_name(*file)).collect();
        let dirs = Arc::clone(&self.dirs);
        self.run(log, asker, notify, move || {
            if !names.is_empty() {
                let directory = directory.ok_or_else(no_directory)?;
                dirs.delete_files(&directory, &names, Duration::from_millis(delay_ms))?;
            }
            Ok(Done::Written)
        });
    }

    /// Runs `work`, after what was asked of the same log before; its result reaches the asker by a notice.
    pub(super) fn run(
        &self,
        log: TopicPartition,
        asker: Asker,
        notify: &Notify,
        work: impl FnOnce() -> io::Result<Done> + Send + 'static,
    ) {
        let notify = Arc::clone(notify);
        send(
            self.queue_of(log),
            Box::new(move || {
                let outcome = work().map_err(failed);
                notify(Notice::Done { asker, outcome });
            }),
        );
    }

    fn queue_of(&self, log: TopicPartition) -> &Sender<Job> {
        let number = usize::from(log.topic_id.0[15]).wrapping_add(log.partition as usize);
        &self.jobs[number % self.jobs.len()]
    }

    /// Recovers a log; it is handed over by a notice.
    fn open_log(&self, shard: ShardId, log: TopicPartition, notify: &Notify) {
        let notify = Arc::clone(notify);
        let recoverer = Arc::clone(&self.recoverer);
        send(
            &self.recoveries,
            Box::new(move || {
                let opened = recoverer.open(log);
                if let Some(directory) = recoverer.directory(log) {
                    notify(Notice::Placed { log, directory });
                }
                notify(Notice::Opened { shard, log, opened });
            }),
        );
    }
}

fn no_directory() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the replica has no directory")
}

/// The whole content of a sealed file.
fn map_whole(path: &Path) -> io::Result<bytes::Bytes> {
    let file = File::open(path, OpenMode::Read)?;
    map_sealed(&file, file.len()? as usize)
}

fn failed(error: io::Error) -> DiskFailure {
    tracing::error!(%error, "an operation on a log directory failed");
    DiskFailure
}

fn send(queue: &Sender<Job>, job: Job) {
    let sent = queue.send(job);
    assert!(sent.is_ok(), "the helper threads are gone");
}

/// A replica to be made. Shards learn of a new image one after the other: that of a deleted topic of the same name may still have to ask for its
/// removal, and its directory keeps the name until then.
struct Creation {
    asker: Asker,
    log: TopicPartition,
    name: Text,
    until: Instant,
    dirs: Arc<LogDirs>,
    notify: Notify,
    queue: Sender<Job>,
}

/// A shard that has not removed a replica after so long never will.
const NAME_FREE_WITHIN: Duration = Duration::from_secs(30);

impl Creation {
    fn job(self) -> Job {
        Box::new(move || {
            if self.dirs.is_taken(&self.name, self.log) && Instant::now() < self.until {
                // Behind what waits here, the removal perhaps among it.
                thread::sleep(Duration::from_millis(1));
                let queue = self.queue.clone();
                send(&queue, self.job());
                return;
            }
            let created = self.dirs.create(self.log, &self.name);
            if let Ok(directory) = &created {
                (self.notify)(Notice::Placed {
                    log: self.log,
                    directory: directory.clone(),
                });
            }
            (self.notify)(Notice::Done {
                asker: self.asker,
                outcome: created.map(|_| Done::Written).map_err(failed),
            });
        })
    }
}

fn pool(name: &str, threads: usize) -> io::Result<Sender<Job>> {
    let (sender, receiver) = mpsc::channel::<Job>();
    let receiver = Arc::new(Mutex::new(receiver));
    for number in 0..threads {
        let receiver = Arc::clone(&receiver);
        thread::Builder::new()
            .name(format!("{name}-{number}"))
            .spawn(move || work(&receiver))?;
    }
    Ok(sender)
}

fn work(receiver: &Mutex<Receiver<Job>>) {
    loop {
        let job = receiver
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        match job {
            Ok(job) => job(),
            Err(_) => return,
        }
    }
}
