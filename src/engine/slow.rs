//! Helper threads for what may block: directories, renames, small files, recovery. They are not pinned, and finish by a notice.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use corelog_shards::base::ids::{ShardId, TopicPartition};
use corelog_shards::event::{DiskFailure, Done};

use super::notice::{Asker, Notice, Notify};
use super::recovery::Recoverer;

type Job = Box<dyn FnOnce() + Send>;

/// Two queues: recovery of many logs must not delay the creation of a topic.
pub(super) struct Slow {
    /// One queue per thread: what is asked of one log is done in order.
    jobs: Vec<Mutex<Sender<Job>>>,
    recoveries: Mutex<Sender<Job>>,
    recoverer: Arc<Recoverer>,
}

/// Threads for directories and small files: such work waits for the disk, not for a core.
const THREADS: usize = 2;

impl Slow {
    /// `recovery_threads` as `num.recovery.threads.per.data.dir` times the number of directories.
    pub(super) fn start(recoverer: Arc<Recoverer>, recovery_threads: usize) -> io::Result<Slow> {
        Ok(Slow {
            jobs: (0..THREADS)
                .map(|_| pool("slow", 1).map(Mutex::new))
                .collect::<io::Result<_>>()?,
            recoveries: Mutex::new(pool("recover", recovery_threads.max(1))?),
            recoverer,
        })
    }

    /// Runs `work`, after what was asked of the same log before; its result reaches the asker by a notice.
    pub(super) fn run(
        &self,
        log: TopicPartition,
        asker: Asker,
        notify: Notify,
        work: impl FnOnce() -> io::Result<Done> + Send + 'static,
    ) {
        let queue =
            usize::from(log.topic_id.0[15]).wrapping_add(log.partition as usize) % self.jobs.len();
        send(
            &self.jobs[queue],
            Box::new(move || {
                let outcome = work().map_err(|error| {
                    tracing::error!(%error, "an operation on a log directory failed");
                    DiskFailure
                });
                notify(Notice::Done { asker, outcome });
            }),
        );
    }

    /// Recovers a log; it is handed over by a notice.
    pub(super) fn open_log(&self, shard: ShardId, log: TopicPartition, notify: Notify) {
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

fn send(queue: &Mutex<Sender<Job>>, job: Job) {
    let sent = queue
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .send(job);
    assert!(sent.is_ok(), "the helper threads are gone");
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
