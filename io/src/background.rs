//! Which background work of a core could run now, and how it takes turns with the turn.
//!
//! Each background future is polled with a waker of ours, which counts it as runnable from the moment
//! it is woken until it was polled. A wake from another thread does not go through glommio, whose own
//! path for that needs its reactor: it is queued here, the core's doorbell is rung, and the loop passes it on.
//!
//! Each poll is one slice: after it the queue of background work gives the executor back. A turn that
//! has nothing to do waits for one slice to end, so that an idle core is all the background's; a
//! busy one only yields, and the shares decide.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, ThreadId};

use crate::turn::Doorbell;

/// A core's account of its background work.
#[derive(Debug)]
pub(crate) struct Gauge {
    shared: Arc<Shared>,
    slices: Cell<u64>,
    /// The turn, when it waits for a slice.
    turn: RefCell<Option<Waker>>,
}

#[derive(Debug)]
struct Shared {
    core: ThreadId,
    /// Futures that glommio has in its queue. Changed on the core's thread only.
    runnable: AtomicUsize,
    elsewhere: Mutex<Vec<Arc<Task>>>,
    woken_elsewhere: AtomicBool,
    doorbell: OnceLock<Doorbell>,
}

impl Gauge {
    /// Of the calling thread.
    pub(crate) fn new() -> Self {
        let shared = Shared {
            core: thread::current().id(),
            runnable: AtomicUsize::new(0),
            elsewhere: Mutex::new(Vec::new()),
            woken_elsewhere: AtomicBool::new(false),
            doorbell: OnceLock::new(),
        };
        Self {
            shared: Arc::new(shared),
            slices: Cell::new(0),
            turn: RefCell::new(None),
        }
    }

    pub(crate) fn attach(&self, doorbell: Doorbell) {
        assert!(
            self.shared.doorbell.set(doorbell).is_ok(),
            "a core has one turn"
        );
    }

    pub(crate) fn is_runnable(&self) -> bool {
        self.shared.runnable.load(Ordering::Acquire) > 0
    }

    pub(crate) fn is_woken_from_elsewhere(&self) -> bool {
        self.shared.woken_elsewhere.load(Ordering::Acquire)
    }

    /// Passes on what other threads have woken.
    pub(crate) fn wake_from_elsewhere(&self) {
        if !self.is_woken_from_elsewhere() {
            return;
        }
        self.shared.woken_elsewhere.store(false, Ordering::Release);
        let tasks = std::mem::take(
            &mut *self
                .shared
                .elsewhere
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        for task in tasks {
            // Polled or over in the meantime: it has seen what it was woken for.
            if task.change(WOKEN_ELSEWHERE, RUNNABLE) {
                task.run_here();
            }
        }
    }

    /// Waits until background work had one slice, or has none to run.
    pub(crate) async fn slice(&self) {
        let before = self.slices.get();
        std::future::poll_fn(|context| {
            if self.slices.get() != before || !self.is_runnable() {
                return Poll::Ready(());
            }
            *self.turn.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn slice_is_over(&self) {
        self.slices.set(self.slices.get() + 1);
        let turn = self.turn.borrow_mut().take();
        if let Some(turn) = turn {
            turn.wake();
        }
        yield_queue();
    }
}

/// Tells glommio that the queue that runs now yields after this poll: what `yield_task_queue_now` does
/// when it is polled first.
fn yield_queue() {
    let executor = glommio::executor();
    let yielding = pin!(executor.yield_task_queue_now());
    let first = yielding.poll(&mut Context::from_waker(Waker::noop()));
    debug_assert!(first.is_pending(), "a yield is pending once");
}

const IDLE: u8 = 0;
/// Woken, counted, and in glommio's queue.
const RUNNABLE: u8 = 1;
/// Woken by another thread and not passed on yet.
const WOKEN_ELSEWHERE: u8 = 2;
const OVER: u8 = 3;

#[derive(Debug)]
struct Task {
    shared: Arc<Shared>,
    state: AtomicU8,
    /// glommio's waker, used on the core's thread only.
    inner: Mutex<Option<Waker>>,
}

impl Task {
    fn change(&self, from: u8, to: u8) -> bool {
        self.state
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// On the core's thread, after the state became `RUNNABLE`.
    fn run_here(&self) {
        self.shared.runnable.fetch_add(1, Ordering::AcqRel);
        let inner = self
            .inner
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(waker) = inner {
            waker.wake();
        }
    }

    /// Leaves the state it is in; an entry of the account goes with `RUNNABLE`.
    fn leave_for(&self, state: u8) {
        if self.state.swap(state, Ordering::AcqRel) == RUNNABLE {
            self.shared.runnable.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if thread::current().id() == self.shared.core {
            if self.change(IDLE, RUNNABLE) {
                self.run_here();
            }
            return;
        }
        if !self.change(IDLE, WOKEN_ELSEWHERE) {
            return;
        }
        let shared = self.shared.clone();
        shared
            .elsewhere
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(self);
        shared.woken_elsewhere.store(true, Ordering::Release);
        if let Some(doorbell) = shared.doorbell.get() {
            doorbell.ring();
        }
    }
}

/// A background future and its account.
pub(crate) struct Watched<F> {
    future: Pin<Box<F>>,
    gauge: Rc<Gauge>,
    task: Arc<Task>,
    waker: Waker,
}

impl<F: Future<Output = ()>> Watched<F> {
    /// Counted as runnable from now on; to be spawned at once.
    pub(crate) fn new(future: F, gauge: Rc<Gauge>) -> Self {
        gauge.shared.runnable.fetch_add(1, Ordering::AcqRel);
        let shared = gauge.shared.clone();
        let task = Arc::new(Task {
            shared,
            state: AtomicU8::new(RUNNABLE),
            inner: Mutex::new(None),
        });
        Self {
            future: Box::pin(future),
            gauge,
            waker: task.clone().into(),
            task,
        }
    }

    fn remember(&self, waker: &Waker) {
        let mut inner = self
            .task
            .inner
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match &*inner {
            Some(known) if known.will_wake(waker) => {}
            _ => *inner = Some(waker.clone()),
        }
    }
}

impl<F: Future<Output = ()>> Future for Watched<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.remember(context.waker());
        this.task.leave_for(IDLE);
        let poll = this
            .future
            .as_mut()
            .poll(&mut Context::from_waker(&this.waker));
        if poll.is_ready() {
            this.task.leave_for(OVER);
        }
        this.gauge.slice_is_over();
        poll
    }
}

impl<F> Drop for Watched<F> {
    fn drop(&mut self) {
        self.task.leave_for(OVER);
        // Other threads may hold the task for longer; glommio's waker stays on this one.
        *self
            .task
            .inner
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = None;
    }
}
