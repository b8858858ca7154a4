#![expect(unsafe_code, reason = "entries carry pointers into operation slots")]
//! The io_uring itself: pushing entries, entering the kernel, taking events.

use io_uring::{EnterFlags, IoUring, squeue, types};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::completion::{Completion, OpId};

/// An index no slot can have: events that belong to no operation.
const NO_SLOT: u32 = u32::MAX;
const NOTE_IGNORED: u32 = 0;
const NOTE_DOORBELL: u32 = 1;
const NOTE_RING_FAILED: u32 = 2;

pub(super) const IGNORED: u64 = note(NOTE_IGNORED);
pub(super) const DOORBELL: u64 = note(NOTE_DOORBELL);

/// User data of a doorbell entry: only its failure is reported.
pub(super) const fn ring_failed(peer: u32) -> u64 {
    note(NOTE_RING_FAILED + peer)
}

const fn note(what: u32) -> u64 {
    (what as u64) << 32 | NO_SLOT as u64
}

/// One completion queue entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    user_data: u64,
    pub(super) result: i32,
    pub(super) flags: u32,
}

pub(super) enum EventKind {
    Op(OpId),
    Ignored,
    Doorbell,
    RingFailed { peer: u32 },
}

impl Event {
    pub(super) fn kind(&self) -> EventKind {
        if self.user_data as u32 != NO_SLOT {
            return EventKind::Op(OpId(self.user_data));
        }
        match (self.user_data >> 32) as u32 {
            NOTE_IGNORED => EventKind::Ignored,
            NOTE_DOORBELL => EventKind::Doorbell,
            other => EventKind::RingFailed {
                peer: other - NOTE_RING_FAILED,
            },
        }
    }
}

/// A counter with one writer.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, count: u64) {
        self.0.store(self.get() + count, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a turn counts; readable from any thread.
#[derive(Debug, Default)]
pub struct TurnCounters {
    /// System calls of the ring.
    pub enters: Counter,
    /// Those of them that were allowed to sleep.
    pub blocks: Counter,
    /// Entries given to the kernel.
    pub submitted: Counter,
    /// Events taken.
    pub events: Counter,
    /// Doorbells of other cores rung through the ring.
    pub doorbells: Counter,
    /// Times the submission queue was full and had to be submitted early.
    pub submission_full: Counter,
    /// Times the kernel had more events than the completion queue has room for.
    pub completion_overflows: Counter,
    /// Receives that had to be repeated because all selectable buffers were taken.
    pub select_exhausted: Counter,
}

pub(super) struct Queue {
    ring: IoUring,
    /// Entries for which there was no room; they go before all newer ones.
    backlog: VecDeque<squeue::Entry>,
    /// Events taken early to make room.
    stash: VecDeque<Event>,
    /// Completions that needed no kernel.
    ready: VecDeque<Completion>,
    counters: Arc<TurnCounters>,
}

impl Queue {
    pub(super) fn new(entries: u32, worker_cores: &[usize]) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_cqsize(entries.saturating_mul(4))
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_clamp()
            .dontfork()
            .build(entries)?;
        if !worker_cores.is_empty() {
            ring.submitter().register_iowq_aff(&cpu_set(worker_cores))?;
        }
        Ok(Self {
            ring,
            backlog: VecDeque::new(),
            stash: VecDeque::new(),
            ready: VecDeque::new(),
            counters: Arc::default(),
        })
    }

    pub(super) fn counters(&self) -> &Arc<TurnCounters> {
        &self.counters
    }

    pub(super) fn ring(&self) -> &IoUring {
        &self.ring
    }

    /// A second descriptor of the ring, for doorbells.
    pub(super) fn duplicate_fd(&self) -> io::Result<OwnedFd> {
        // SAFETY: claim: fcntl with F_DUPFD_CLOEXEC takes no pointers. keeper: the constant. breaker: another
        // command.
        let fd = unsafe { libc::fcntl(self.ring.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: claim: the descriptor is new and owned by nobody else. keeper: the check above. breaker:
        // closing it elsewhere.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Queues an entry for the next `enter`. The pointers in it must stay valid until its event: all
    /// entries come from `op`, whose slots keep their memory until then.
    pub(super) fn push(&mut self, entry: squeue::Entry) {
        if self.backlog.is_empty() && self.push_now(&entry) {
            return;
        }
        self.backlog.push_back(entry);
    }

    pub(super) fn push_ready(&mut self, completion: Completion) {
        self.ready.push_back(completion);
    }

    pub(super) fn pop_ready(&mut self) -> Option<Completion> {
        self.ready.pop_front()
    }

    pub(super) fn pop_event(&mut self) -> Option<Event> {
        if let Some(event) = self.stash.pop_front() {
            return Some(event);
        }
        let event = self.take_event()?;
        self.counters.events.add(1);
        Some(event)
    }

    /// Is there something for `next` without entering the kernel?
    pub(super) fn has_ready(&mut self) -> bool {
        !self.ready.is_empty() || !self.stash.is_empty() || !self.ring.completion().is_empty()
    }

    /// Submits all and runs what the kernel has deferred, without sleeping. No system call when
    /// there is neither.
    pub(super) fn enter_and_poll(&mut self) -> io::Result<()> {
        self.submit_backlog();
        let submission = self.ring.submission();
        let (length, overflow) = (submission.len(), submission.cq_overflow());
        let idle = length == 0 && !submission.taskrun() && !overflow;
        drop(submission);
        if overflow {
            self.counters.completion_overflows.add(1);
        }
        if idle {
            return Ok(());
        }
        self.count_enter(length);
        let flags = EnterFlags::GETEVENTS.bits();
        // SAFETY: claim: no argument structure is passed, and `length` entries are in the queue. keeper: the
        // lines above. breaker: passing a dangling argument.
        let result = unsafe {
            self.ring
                .submitter()
                .enter::<libc::sigset_t>(length as u32, 0, flags, None)
        };
        forgive(result)
    }

    /// Submits all and sleeps until an event arrives or `longest` is over.
    pub(super) fn enter_and_block(&mut self, longest: Duration) -> io::Result<()> {
        self.submit_backlog();
        if !self.backlog.is_empty() || self.has_ready() {
            return self.enter_and_poll();
        }
        let length = self.ring.submission().len();
        self.count_enter(length);
        self.counters.blocks.add(1);
        let timeout = types::Timespec::from(longest);
        let arguments = types::SubmitArgs::new().timespec(&timeout);
        let result = self.ring.submitter().submit_with_args(1, &arguments);
        forgive(result)
    }

    fn count_enter(&self, length: usize) {
        self.counters.enters.add(1);
        self.counters.submitted.add(length as u64);
    }

    /// Moves the backlog into the queue, submitting as often as it fills.
    fn submit_backlog(&mut self) {
        while let Some(entry) = self.backlog.pop_front() {
            if !self.push_now(&entry) {
                self.backlog.push_front(entry);
                // The kernel takes no more at this moment: the caller works off events first.
                break;
            }
        }
    }

    fn push_now(&mut self, entry: &squeue::Entry) -> bool {
        if self.push_if_room(entry) {
            return true;
        }
        self.submit_full();
        self.push_if_room(entry)
    }

    fn push_if_room(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: claim: every pointer of the entry stays valid until its event. keeper: `op::Slots`, which
        // owns buffers, vectors and descriptors of an operation until then, in boxes that do not move.
        // breaker: an entry made elsewhere, or a slot freed before its event.
        unsafe { self.ring.submission().push(entry) }.is_ok()
    }

    /// Makes room in a full submission queue.
    fn submit_full(&mut self) {
        let length = self.ring.submission().len();
        self.counters.submission_full.add(1);
        self.count_enter(length);
        if let Err(error) = self.ring.submit() {
            // Busy: too many events wait. Taking them makes room for the next attempt.
            tracing::debug!(%error, "the submission queue is full and the kernel takes nothing");
            while let Some(event) = self.take_event() {
                self.counters.events.add(1);
                self.stash.push_back(event);
            }
        }
    }

    fn take_event(&mut self) -> Option<Event> {
        let entry = self.ring.completion().next()?;
        Some(Event {
            user_data: entry.user_data(),
            result: entry.result(),
            flags: entry.flags(),
        })
    }
}

/// What `enter` reports and what is no failure: the time is over, a signal came, or events must be
/// taken first.
fn forgive(result: io::Result<usize>) -> io::Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(error) => match error.raw_os_error() {
            Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
            _ => Err(error),
        },
    }
}

fn cpu_set(cores: &[usize]) -> libc::cpu_set_t {
    // SAFETY: claim: all zeros is a valid, empty set. keeper: its type is an array of integers. breaker: a
    // different libc.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &core in cores
        .iter()
        .filter(|&&core| core < libc::CPU_SETSIZE as usize)
    {
        // SAFETY: claim: the index is within the set. keeper: the filter. breaker: removing it.
        unsafe { libc::CPU_SET(core, &mut set) };
    }
    set
}
