//! The credits of one core (architecture.md 6): what a request has to pay before it is read, and who waits for what.

use std::collections::VecDeque;

use corelog_io::credits::Share;

use super::connection::Lacks;

/// One kind of credit with the connections that wait for it, first in, first out.
pub(super) struct Kind {
    pub(super) share: Share,
    waiters: VecDeque<usize>,
}

impl Kind {
    fn new(share: Share) -> Kind {
        Kind { share, waiters: VecDeque::new() }
    }

    /// Takes `n`, unless others wait already or there is not enough.
    pub(super) fn take(&mut self, n: usize) -> bool {
        self.waiters.is_empty() && self.share.try_take(n as u64)
    }

    /// As [`Kind::take`], for the one that waited longest and has just been woken.
    pub(super) fn take_as_first(&mut self, n: usize) -> bool {
        self.share.try_take(n as u64)
    }

    pub(super) fn give(&mut self, n: usize) {
        self.share.give(n as u64);
    }

    pub(super) fn waiters(&self) -> usize {
        self.waiters.len()
    }
}

pub(super) struct CoreCredits {
    pub(super) request_bytes: Kind,
    pub(super) request_count: Kind,
    pub(super) reply_bytes: Kind,
    /// Connections that wait for room in a ring.
    ring_waiters: VecDeque<usize>,
    /// Requests that wait for others now (long polls, acks=all) and the most that may.
    pub(super) parked: usize,
    pub(super) parked_max: usize,
}

impl CoreCredits {
    pub(super) fn new(request_bytes: Share, request_count: Share, reply_bytes: Share, parked_max: usize) -> CoreCredits {
        CoreCredits {
            request_bytes: Kind::new(request_bytes),
            request_count: Kind::new(request_count),
            reply_bytes: Kind::new(reply_bytes),
            ring_waiters: VecDeque::new(),
            parked: 0,
            parked_max,
        }
    }

    /// `connection` has to wait for `lacks`.
    pub(super) fn wait(&mut self, connection: usize, lacks: Lacks) {
        self.queue(lacks).push_back(connection);
    }

    /// The connection that has waited longest for `lacks`.
    pub(super) fn next_waiter(&mut self, lacks: Lacks) -> Option<usize> {
        self.queue(lacks).pop_front()
    }

    /// Puts a woken waiter back in front: it still lacks.
    pub(super) fn wait_again(&mut self, connection: usize, lacks: Lacks) {
        self.queue(lacks).push_front(connection);
    }

    /// The connection is gone.
    pub(super) fn forget(&mut self, connection: usize, lacks: Lacks) {
        self.queue(lacks).retain(|waiter| *waiter != connection);
    }

    pub(super) fn waiting(&self, lacks: Lacks) -> usize {
        match lacks {
            Lacks::RequestBytes => self.request_bytes.waiters(),
            Lacks::RequestCount => self.request_count.waiters(),
            Lacks::Ring => self.ring_waiters.len(),
        }
    }

    fn queue(&mut self, lacks: Lacks) -> &mut VecDeque<usize> {
        match lacks {
            Lacks::RequestBytes => &mut self.request_bytes.waiters,
            Lacks::RequestCount => &mut self.request_count.waiters,
            Lacks::Ring => &mut self.ring_waiters,
        }
    }
}
