//! One pinned executor per core: the turn's task and, beside it, background work with few shares.
//!
//! The turn's task waits in its own ring (`turn`), so glommio itself never parks and never runs its
//! reactor. What follows for background futures: they yield by `Slice`, and they may wait
//! for anything that wakes a `Waker`, from any thread; they must not wait for glommio's timers, files or
//! sockets, which would complete late or never. Slow system calls belong to `disk::blocking`.
//!
//! A panic on a core ends the process: a core that is gone would leave its partitions silent.

use glommio::{Latency, LocalExecutorBuilder, Placement, Shares, TaskQueueHandle};
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use crate::background::{Gauge, Watched};
use crate::turn::{Turn, Wait};

const TURN_SHARES: usize = 1000;
const BACKGROUND_SHARES: usize = 50;

/// How long background work runs before it yields: longer would show in the turn's latency, shorter
/// would spend its share on switching.
pub const BACKGROUND_SLICE: Duration = Duration::from_micros(100);

/// glommio's rings are used for little: its registered memory stays small, because three of them count
/// against RLIMIT_MEMLOCK.
const GLOMMIO_MEMORY: usize = 64 << 10;
const GLOMMIO_RING_DEPTH: usize = 128;

/// A running core.
#[derive(Debug)]
pub struct CoreThread(thread::JoinHandle<()>);

impl CoreThread {
    /// Waits until the core's body has returned.
    pub fn join(self) {
        // A panic does not come here: it has ended the process.
        drop(self.0.join());
    }
}

/// Starts a thread with an executor, pinned to `core` or to none, which runs `body` to its end.
/// Returns when the executor stands; `body` starts on its thread.
pub fn spawn_core<B, F>(name: String, core: Option<usize>, body: B) -> io::Result<CoreThread>
where
    B: FnOnce(CoreHandle) -> F + Send + 'static,
    F: Future<Output = ()> + 'static,
{
    let (started, start) = std::sync::mpsc::sync_channel(1);
    let thread = thread::Builder::new().name(name.clone()).spawn(move || {
        let run = AssertUnwindSafe(|| run_core(&name, core, body, &started));
        if catch_unwind(run).is_err() {
            abort(&name);
        }
    })?;
    match start.recv() {
        Ok(Ok(())) => Ok(CoreThread(thread)),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::Error::other("the executor ended while it was starting")),
    }
}

fn run_core<B, F>(
    name: &str,
    core: Option<usize>,
    body: B,
    started: &std::sync::mpsc::SyncSender<io::Result<()>>,
) where
    B: FnOnce(CoreHandle) -> F,
    F: Future<Output = ()> + 'static,
{
    let executor = LocalExecutorBuilder::new(core.map_or(Placement::Unbound, Placement::Fixed))
        .name(name)
        .io_memory(GLOMMIO_MEMORY)
        .ring_depth(GLOMMIO_RING_DEPTH)
        .make();
    let executor = match executor {
        Ok(executor) => executor,
        Err(error) => {
            let error = io::Error::other(format!("cannot start an executor for {name}: {error}"));
            drop(started.send(Err(error)));
            return;
        }
    };
    drop(started.send(Ok(())));
    executor.run(async move {
        let proxy = glommio::executor();
        let queue = |shares, name| {
            proxy.create_task_queue(Shares::Static(shares), Latency::NotImportant, name)
        };
        let turn = queue(TURN_SHARES, "turn");
        let handle = CoreHandle {
            background: queue(BACKGROUND_SHARES, "background"),
            gauge: Rc::new(Gauge::new()),
        };
        match glommio::spawn_local_into(body(handle), turn) {
            Ok(task) => task.await,
            Err(error) => panic!("the task queue of the turn is gone: {error}"),
        }
    });
}

fn abort(name: &str) -> ! {
    tracing::error!(core = name, "a core panicked: the process ends");
    eprintln!("{name} panicked; the broker cannot go on without one of its cores and aborts");
    std::process::abort();
}

/// What a core's body has of its executor. Stays on its thread.
#[derive(Clone, Debug)]
pub struct CoreHandle {
    background: TaskQueueHandle,
    gauge: Rc<Gauge>,
}

impl CoreHandle {
    /// Lets background work that is woken from other threads wake this core. Once, before the first
    /// `spawn_background`.
    pub fn attach(&self, turn: &Turn) {
        self.gauge.attach(turn.doorbell());
    }

    /// Runs a future with the shares of background work, to its end.
    pub fn spawn_background(&self, future: impl Future<Output = ()> + 'static) {
        let watched = Watched::new(future, self.gauge.clone());
        match glommio::spawn_local_into(watched, self.background) {
            Ok(task) => drop(task.detach()),
            Err(error) => panic!("the task queue of background work is gone: {error}"),
        }
    }

    /// Is there background work that could run now?
    pub fn background_is_runnable(&self) -> bool {
        self.gauge.is_runnable()
    }

    /// The one wait of a core's loop. Without background work that could run it sleeps, for at most
    /// `longest`. With such work it collects completions without sleeping and lets the background run: a
    /// slice when the turn has nothing to do, else what its share allows.
    ///
    /// `inbox_is_empty` as for `Turn::wait`.
    pub async fn rest(
        &self,
        turn: &mut Turn,
        longest: Duration,
        inbox_is_empty: impl Fn() -> bool,
    ) -> io::Result<()> {
        self.gauge.wake_from_elsewhere();
        if !self.background_is_runnable() {
            turn.wait(Wait::Block(longest), || {
                inbox_is_empty() && !self.gauge.is_woken_from_elsewhere()
            })?;
            self.gauge.wake_from_elsewhere();
            return Ok(());
        }
        turn.wait(Wait::Poll, || true)?;
        if turn.has_ready() || !inbox_is_empty() {
            glommio::executor().yield_task_queue_now().await;
        } else {
            self.gauge.slice().await;
        }
        Ok(())
    }

    /// Lets background work run for a slice if its share allows: for a turn that has much to do before
    /// its next `rest`.
    pub async fn yield_turn(&self) {
        if self.background_is_runnable() {
            glommio::executor().yield_task_queue_now().await;
        }
    }

    /// A waker of this executor for the watchdog: glommio can park although tasks are runnable, and
    /// wakes up by this.
    pub async fn poke(&self) -> Waker {
        let (give, take) = std::sync::mpsc::channel();
        let parked = std::future::poll_fn(move |context| {
            // Received below on this thread; later polls find nobody, which is fine.
            drop(give.send(context.waker().clone()));
            Poll::<()>::Pending
        });
        glommio::spawn_local(parked).detach();
        loop {
            if let Ok(waker) = take.try_recv() {
                return waker;
            }
            glommio::executor().yield_now().await;
        }
    }
}

/// For background work: gives the core back to the turn when the slice is over.
#[derive(Debug)]
pub struct Slice(Instant);

impl Slice {
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Call it every few microseconds of work.
    pub async fn yield_if_over(&mut self) {
        if self.0.elapsed() >= BACKGROUND_SLICE {
            glommio::executor().yield_now().await;
            self.0 = Instant::now();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;
    use crate::turn::{BLOCK_MAX, TurnConfig};
    use crate::watchdog::Watchdog;
    use std::cell::Cell;
    use std::sync::{Arc, Mutex};

    fn config() -> TurnConfig {
        TurnConfig {
            entries: 64,
            select_buffers: 4,
            ..TurnConfig::default()
        }
    }

    /// Runs a turn's loop until `over` says so, at most for some seconds; how often it slept.
    async fn run_until(core: &CoreHandle, turn: &mut Turn, over: impl Fn() -> bool) -> u64 {
        let watchdog = Watchdog::start(Duration::from_secs(1)).unwrap();
        watchdog.watch("test", turn.doorbell(), core.poke().await);
        let deadline = Instant::now() + Duration::from_secs(20);
        while !over() {
            core.rest(turn, BLOCK_MAX, || true).await.unwrap();
            while turn.next().is_some() {}
            assert!(
                Instant::now() < deadline,
                "the background makes no progress"
            );
        }
        turn.counters().blocks.get()
    }

    #[test]
    fn background_work_runs_beside_the_turn_and_the_core_sleeps_only_without_it() {
        let core = spawn_core("test".into(), None, |core| async move {
            let mut turn = Turn::new(&config()).unwrap();
            core.attach(&turn);
            let steps = Rc::new(Cell::new(0));
            let counter = steps.clone();
            core.spawn_background(async move {
                let mut slice = Slice::start();
                while counter.get() < 1000 {
                    counter.set(counter.get() + 1);
                    std::thread::sleep(Duration::from_micros(10));
                    slice.yield_if_over().await;
                }
            });
            assert!(core.background_is_runnable());
            let slept = run_until(&core, &mut turn, || steps.get() == 1000).await;
            assert_eq!(slept, 0, "the core slept although there was work");
            while core.background_is_runnable() {
                core.rest(&mut turn, BLOCK_MAX, || true).await.unwrap();
            }
            core.rest(&mut turn, Duration::from_millis(1), || true)
                .await
                .unwrap();
            assert_eq!(turn.counters().blocks.get(), 1);
        });
        core.unwrap().join();
    }

    #[test]
    fn a_wake_from_another_thread_ends_the_cores_sleep() {
        let core = spawn_core("test".into(), None, |core| async move {
            let mut turn = Turn::new(&config()).unwrap();
            core.attach(&turn);
            let shared: Arc<Mutex<(bool, Option<Waker>)>> = Arc::default();
            let (theirs, done) = (shared.clone(), Rc::new(Cell::new(false)));
            let told = done.clone();
            core.spawn_background(async move {
                std::future::poll_fn(|context| {
                    let mut state = shared.lock().unwrap();
                    state.1 = Some(context.waker().clone());
                    if state.0 {
                        Poll::Ready(())
                    } else {
                        Poll::Pending
                    }
                })
                .await;
                told.set(true);
            });
            while core.background_is_runnable() {
                core.rest(&mut turn, BLOCK_MAX, || true).await.unwrap();
            }
            let thread = thread::spawn(move || {
                thread::sleep(Duration::from_millis(5));
                let mut state = theirs.lock().unwrap();
                state.0 = true;
                state.1.take().unwrap().wake();
            });
            run_until(&core, &mut turn, || done.get()).await;
            thread.join().unwrap();
            assert!(!core.background_is_runnable());
        });
        core.unwrap().join();
    }

    #[test]
    fn a_core_that_stands_still_is_noticed() {
        let core = spawn_core("test".into(), None, |core| async move {
            let turn = Turn::new(&config()).unwrap();
            let watchdog = Watchdog::start(Duration::from_millis(200)).unwrap();
            watchdog.watch("test", turn.doorbell(), core.poke().await);
            let deadline = Instant::now() + Duration::from_secs(20);
            while watchdog.stalls() == 0 {
                assert!(Instant::now() < deadline, "nobody noticed");
                thread::yield_now();
            }
            assert!(watchdog.pokes() > 0);
        });
        core.unwrap().join();
    }

    /// Runs this test again in a process of its own, where a core panics.
    #[test]
    fn a_panic_on_a_core_ends_the_process() {
        use std::os::unix::process::ExitStatusExt;
        const MARK: &str = "CORELOG_IO_PANIC_ON_A_CORE";
        if std::env::var_os(MARK).is_some() {
            let core = spawn_core("doomed".into(), None, |core| async move {
                core.spawn_background(async { panic!("on purpose") });
                core.yield_turn().await;
                std::future::pending::<()>().await;
            });
            core.unwrap().join();
            return;
        }
        let name = "executor::tests::a_panic_on_a_core_ends_the_process";
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(MARK, "1")
            .output()
            .unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{output:?}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            errors.contains("doomed panicked; the broker cannot go on"),
            "{errors}"
        );
    }

    #[test]
    fn a_core_that_does_not_exist_is_an_error() {
        let core = spawn_core("test".into(), Some(100_000), |_| async {});
        assert!(core.is_err());
    }
}
