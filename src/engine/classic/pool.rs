//! Bytes that the whole broker may hold: of requests that are being read or carried out (`queued.max.request.bytes`), and of answers.
//!
//! Who finds a pool empty waits in line, first in, first out. A pool's lock is held for a look and a number.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mio::Token;

use crate::engine::requests::Carry;

/// A frame larger than this is only a claim until so many bytes of it have come; smaller ones are paid for as a whole before their first byte.
pub(super) const WINDOW_BYTES: usize = 64 << 10;

/// Which channel waits, or is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) processor: u16,
    pub(super) channel: Token,
}

/// What a channel got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// The first window of a frame that is not paid for to its end.
    Loose,
    /// All that was asked for.
    Whole,
    /// Nothing yet: a grant will come.
    Waits,
}

struct RequestState {
    free: usize,
    loose: usize,
    waiters: VecDeque<(Waiter, usize)>,
}

/// The pool of requests.
///
/// A frame that is paid for to its end needs nobody: its bytes come, or its time is up. Those that are not hold one window each, and together leave
/// room for the largest frame: whoever stands in front is served some time.
pub(super) struct RequestPool {
    state: Mutex<RequestState>,
    total: usize,
    loose_max: usize,
}

impl RequestPool {
    /// `largest` is what one frame may need; not more than `total`.
    pub(super) fn new(total: usize, largest: usize) -> RequestPool {
        assert!(
            largest <= total,
            "a frame of {largest} bytes needs a pool of {total}"
        );
        RequestPool {
            state: Mutex::new(RequestState {
                free: total,
                loose: 0,
                waiters: VecDeque::new(),
            }),
            total,
            loose_max: total - largest,
        }
    }

    fn lock(&self) -> MutexGuard<'_, RequestState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pays for the beginning of a frame of `length` bytes, or for all of it.
    pub(super) fn begin(&self, waiter: Waiter, length: usize) -> Taken {
        let mut state = self.lock();
        let nobody_waits = state.waiters.is_empty();
        if length > WINDOW_BYTES
            && nobody_waits
            && state.free >= WINDOW_BYTES
            && state.loose + WINDOW_BYTES <= self.loose_max
        {
            state.free -= WINDOW_BYTES;
            state.loose += WINDOW_BYTES;
            return Taken::Loose;
        }
        take(&mut state, waiter, length)
    }

    /// Pays for the rest of a frame whose first window has come.
    pub(super) fn finish(&self, waiter: Waiter, rest: usize) -> Taken {
        take(&mut self.lock(), waiter, rest)
    }

    /// The window of a frame that has been paid for to its end, or given up, is not loose any more.
    pub(super) fn settle_window(&self) {
        self.lock().loose -= WINDOW_BYTES;
    }

    /// Gives bytes back; `grant` is called for each channel that is served by them.
    pub(super) fn give(&self, bytes: usize, mut grant: impl FnMut(Waiter, usize)) {
        let mut state = self.lock();
        let RequestState { free, waiters, .. } = &mut *state;
        *free += bytes;
        while let Some((waiter, need)) = waiters.pop_front_if(|(_, need)| *need <= *free) {
            *free -= need;
            grant(waiter, need);
        }
    }

    /// The channel is gone. One that is served already gets its grant all the same.
    pub(super) fn forget(&self, waiter: Waiter) {
        self.lock()
            .waiters
            .retain(|(waiting, _)| *waiting != waiter);
    }

    pub(super) fn total(&self) -> usize {
        self.total
    }

    /// (bytes that nobody holds, channels that wait)
    pub(super) fn state(&self) -> (usize, usize) {
        let state = self.lock();
        (state.free, state.waiters.len())
    }
}

fn take(state: &mut RequestState, waiter: Waiter, bytes: usize) -> Taken {
    if state.waiters.is_empty() && state.free >= bytes {
        state.free -= bytes;
        return Taken::Whole;
    }
    state.waiters.push_back((waiter, bytes));
    Taken::Waits
}

/// A part that may be carried to its owner now: room for its answer is reserved.
pub(super) struct Served {
    pub(super) item: Carry,
    pub(super) bytes: usize,
}

struct ReplyState {
    free: usize,
    starved: VecDeque<Carry>,
}

/// The pool of answers: reserved before data is read, given back when the answer has left. The largest answer always fits once others are
/// done, because a reservation is capped to what there is.
pub(super) struct ReplyPool {
    state: Mutex<ReplyState>,
    total: usize,
}

impl ReplyPool {
    pub(super) fn new(total: usize) -> ReplyPool {
        ReplyPool {
            state: Mutex::new(ReplyState {
                free: total,
                starved: VecDeque::new(),
            }),
            total,
        }
    }

    fn lock(&self) -> MutexGuard<'_, ReplyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves for `item`; keeps it, to be served later, if there is no room or somebody waits.
    pub(super) fn take(&self, item: Carry) -> Option<Served> {
        let bytes = item.reply_bytes().min(self.total);
        let mut state = self.lock();
        if !state.starved.is_empty() || state.free < bytes {
            state.starved.push_back(item);
            return None;
        }
        state.free -= bytes;
        Some(Served { item, bytes })
    }

    /// Gives bytes back; `serve` is called with what can go on by them.
    pub(super) fn give(&self, bytes: usize, mut serve: impl FnMut(Served)) {
        let mut state = self.lock();
        state.free += bytes;
        while let Some(item) = state.starved.pop_front() {
            let bytes = item.reply_bytes().min(self.total);
            if state.free < bytes {
                state.starved.push_front(item);
                return;
            }
            state.free -= bytes;
            serve(Served { item, bytes });
        }
    }

    /// (bytes that nobody holds, parts that wait)
    pub(super) fn state(&self) -> (usize, usize) {
        let state = self.lock();
        (state.free, state.starved.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGEST: usize = 1 << 20;

    fn channel(number: usize) -> Waiter {
        Waiter {
            processor: 0,
            channel: Token(number),
        }
    }

    fn pool(windows: usize) -> RequestPool {
        RequestPool::new(LARGEST + windows * WINDOW_BYTES, LARGEST)
    }

    fn granted(pool: &RequestPool, bytes: usize) -> Vec<usize> {
        let mut served = Vec::new();
        pool.give(bytes, |waiter, _| served.push(waiter.channel.0));
        served
    }

    #[test]
    fn a_small_frame_is_paid_for_as_a_whole() {
        let pool = pool(1);
        let (all, _) = pool.state();
        assert_eq!(pool.begin(channel(1), 1000), Taken::Whole);
        assert_eq!(pool.state(), (all - 1000, 0));
        assert_eq!(granted(&pool, 1000), Vec::<usize>::new());
        assert_eq!(pool.state(), (all, 0));
    }

    #[test]
    fn claims_hold_a_window_each_and_leave_room_for_the_largest_frame() {
        let pool = pool(2);
        assert_eq!(pool.begin(channel(1), LARGEST), Taken::Loose);
        assert_eq!(pool.begin(channel(2), LARGEST), Taken::Loose);
        // A third claim is paid for as a whole, or waits.
        assert_eq!(pool.begin(channel(3), LARGEST), Taken::Whole);
        assert_eq!(
            pool.finish(channel(1), LARGEST - WINDOW_BYTES),
            Taken::Waits
        );
        assert_eq!(pool.begin(channel(4), 10), Taken::Waits, "nobody overtakes");
        assert_eq!(granted(&pool, LARGEST), [1, 4]);
        pool.settle_window();
        assert_eq!(pool.begin(channel(5), LARGEST), Taken::Waits);
        assert_eq!(granted(&pool, LARGEST), [5]);
    }

    #[test]
    fn who_is_gone_is_not_served() {
        let pool = pool(0);
        assert_eq!(pool.begin(channel(1), LARGEST), Taken::Whole);
        assert_eq!(pool.begin(channel(2), 10), Taken::Waits);
        assert_eq!(pool.begin(channel(3), 10), Taken::Waits);
        pool.forget(channel(2));
        assert_eq!(granted(&pool, LARGEST), [3]);
    }
}
