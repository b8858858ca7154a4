//! Helper threads for system calls that may take long: open, unlink, rename, mkdir, directory syncs.
//!
//! A job's result goes to an inbox in which a place was reserved when the job was accepted, so it
//! always arrives. Full is a value: then the job comes back. A panic of a job ends the process, as on
//! a core.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::inbox::InboxSender;

type Job = Box<dyn FnOnce() + Send>;

/// The threads; ended, after the jobs that were accepted, with the value.
#[derive(Debug)]
pub struct Blocking {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// Gives jobs to the threads; for any thread.
#[derive(Clone, Debug)]
pub struct BlockingHandle(Arc<Shared>);

struct Shared {
    queue: Mutex<Queue>,
    more: Condvar,
    capacity: usize,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    over: bool,
}

/// The queue of jobs or the inbox is full; try again in a later turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the helper threads have too much to do")]
pub struct Busy;

impl Blocking {
    /// Starts unpinned threads with a queue of at most `capacity` waiting jobs.
    pub fn start(threads: usize, capacity: usize) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            more: Condvar::new(),
            capacity,
        });
        let mut pool = Self {
            shared: shared.clone(),
            threads: Vec::new(),
        };
        for number in 0..threads.max(1) {
            let worker = shared.clone();
            pool.threads.push(
                thread::Builder::new()
                    .name(format!("blocking-{number}"))
                    .spawn(move || worker.work())?,
            );
        }
        Ok(pool)
    }

    pub fn handle(&self) -> BlockingHandle {
        BlockingHandle(self.shared.clone())
    }
}

impl BlockingHandle {
    /// Runs `job` on a helper thread and delivers its result to `inbox`.
    pub fn submit<R: Send + 'static>(
        &self,
        inbox: &InboxSender<R>,
        job: impl FnOnce() -> R + Send + 'static,
    ) -> Result<(), Busy> {
        let place = inbox.reserve().ok_or(Busy)?;
        let mut queue = self.0.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.jobs.len() >= self.0.capacity || queue.over {
            return Err(Busy);
        }
        queue.jobs.push_back(Box::new(move || place.put(job())));
        drop(queue);
        self.0.more.notify_one();
        Ok(())
    }
}

impl Shared {
    fn work(&self) {
        while let Some(job) = self.next() {
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                tracing::error!("a helper thread panicked: the process ends");
                eprintln!(
                    "a helper thread panicked; nobody would learn the result of its job, so the broker aborts"
                );
                std::process::abort();
            }
        }
    }

    /// The oldest job; none when the pool has ended and all are done.
    fn next(&self) -> Option<Job> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.over {
                return None;
            }
            queue = self
                .more
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Blocking {
    fn drop(&mut self) {
        self.shared
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .over = true;
        self.shared.more.notify_all();
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;
    use crate::inbox::inbox;
    use std::sync::mpsc::channel;

    #[test]
    fn results_arrive_in_the_inbox() {
        let pool = Blocking::start(2, 10).unwrap();
        let (sender, mut inbox) = inbox(10);
        for number in 0..10 {
            pool.handle()
                .submit(&sender, move || number * number)
                .unwrap();
        }
        drop(pool);
        let mut results = Vec::new();
        inbox.drain(|result| results.push(result));
        results.sort_unstable();
        assert_eq!(
            results,
            (0..10).map(|number| number * number).collect::<Vec<_>>()
        );
    }

    #[test]
    fn too_many_jobs_are_refused_and_an_accepted_one_always_has_a_place_for_its_result() {
        let pool = Blocking::start(1, 1).unwrap();
        let (sender, mut inbox) = inbox(2);
        let (started, start) = channel();
        let (go, gate) = channel::<()>();
        let first = move || {
            started.send(()).unwrap();
            gate.recv().unwrap();
        };
        pool.handle().submit(&sender, first).unwrap();
        start.recv().unwrap();
        pool.handle().submit(&sender, || {}).unwrap();
        assert_eq!(pool.handle().submit(&sender, || {}), Err(Busy));
        assert_eq!(sender.push(()), Err(()), "both places are promised");
        go.send(()).unwrap();
        drop(pool);
        let mut count = 0;
        inbox.drain(|()| count += 1);
        assert_eq!(count, 2);
        let (sender, _inbox) = crate::inbox::inbox::<()>(0);
        let pool = Blocking::start(1, 1).unwrap();
        assert_eq!(
            pool.handle().submit(&sender, || {}),
            Err(Busy),
            "no place in the inbox"
        );
    }
}
