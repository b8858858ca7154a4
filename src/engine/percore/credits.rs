//! The credits of one core (architecture.md 6): what a request has to pay before it is read, and who waits for what.

use std::collections::VecDeque;

use corelog_io::credits::{CreditStats, Share};

use super::connection::Lacks;

/// One kind of credit with the connections that wait for it, first in, first out.
pub(super) struct Kind {
    share: Share,
    stats: CreditStats,
    waiters: VecDeque<usize>,
}

impl Kind {
    fn new((share, stats): (Share, CreditStats)) -> Kind {
        Kind {
            share,
            stats,
            waiters: VecDeque::new(),
        }
    }

    /// Takes `n`. Who was not woken may not overtake those that wait.
    pub(super) fn take(&mut self, n: usize, woken: bool) -> bool {
        (woken || self.waiters.is_empty())
            && (self.share.try_take(n as u64) || self.share.wait_for(n as u64))
    }

    pub(super) fn give(&mut self, n: usize) {
        self.share.give(n as u64);
    }

    /// Credits of the whole broker that nobody holds.
    pub(super) fn free(&self) -> u64 {
        self.stats.free()
    }

    pub(super) fn total(&self) -> u64 {
        self.stats.total()
    }

    pub(super) fn waiters(&self) -> usize {
        self.waiters.len()
    }

    /// Once a turn: lends what is unused to cores that wait.
    pub(super) fn settle(&mut self, wake: impl FnMut(usize)) {
        self.share.settle(wake);
    }
}

/// How much of the request pool this core's connections may hold without a frame that is paid for to its end. What all cores hold so leaves room
/// for the largest frame: this is why frames that wait for credits do not wait for each other.
#[derive(Debug)]
pub(super) struct Loose {
    held: usize,
    max: usize,
}

impl Loose {
    /// The share of one of `cores`.
    pub(super) fn new(pool: u64, largest: u64, cores: usize) -> Loose {
        let max = pool.saturating_sub(largest) as usize / cores;
        Loose { held: 0, max }
    }

    pub(super) fn room(&self) -> usize {
        self.max.saturating_sub(self.held)
    }

    /// Notes `bytes` as held; returns them for the connection's own account.
    pub(super) fn take(&mut self, bytes: usize) -> usize {
        self.held += bytes;
        bytes
    }

    pub(super) fn give(&mut self, bytes: usize) {
        self.held -= bytes;
    }
}

pub(super) struct CoreCredits {
    pub(super) request_bytes: Kind,
    pub(super) loose: Loose,
    pub(super) request_count: Kind,
    pub(super) reply_bytes: Kind,
    /// Connections that wait for room in a ring.
    ring_waiters: VecDeque<usize>,
    /// Requests that wait for others now (long polls, acks=all) and the most that may.
    pub(super) parked: usize,
    pub(super) parked_max: usize,
}

impl CoreCredits {
    pub(super) fn new(
        request_bytes: (Share, CreditStats),
        request_count: (Share, CreditStats),
        reply_bytes: (Share, CreditStats),
        loose: Loose,
        parked_max: usize,
    ) -> CoreCredits {
        CoreCredits {
            request_bytes: Kind::new(request_bytes),
            loose,
            request_count: Kind::new(request_count),
            reply_bytes: Kind::new(reply_bytes),
            ring_waiters: VecDeque::new(),
            parked: 0,
            parked_max,
        }
    }

    /// `connection` has to wait for `lacks`: at the end, or in front again if it was woken in vain.
    pub(super) fn wait(&mut self, connection: usize, lacks: Lacks, woken: bool) {
        if woken {
            self.queue(lacks).push_front(connection);
        } else {
            self.queue(lacks).push_back(connection);
        }
    }

    /// The connection that has waited longest for `lacks`.
    pub(super) fn next_waiter(&mut self, lacks: Lacks) -> Option<usize> {
        self.queue(lacks).pop_front()
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
