//! The one queue between processors and handlers: bounded, first in, first out.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mio::Token;

use super::front::Link;
use super::pool::Served;

/// A frame, read from a channel that is muted until it is answered.
pub(super) struct Request {
    pub(super) processor: u16,
    pub(super) channel: Token,
    pub(super) link: Arc<Link>,
    /// Without its prefix.
    pub(super) frame: Bytes,
}

/// What a handler does next.
pub(super) enum Work {
    Request(Request),
    /// A read that has waited for room in the pool of answers, and has it now.
    Read(Served),
}

struct State {
    requests: VecDeque<Request>,
    /// Bounded by the requests that wait for them. These go first: they hold what others wait for.
    reads: VecDeque<Served>,
}

pub(super) struct RequestQueue {
    state: Mutex<State>,
    not_empty: Condvar,
    not_full: Condvar,
    capacity: usize,
}

impl RequestQueue {
    /// For `queued.max.requests` requests.
    pub(super) fn new(capacity: usize) -> RequestQueue {
        RequestQueue {
            state: Mutex::new(State {
                requests: VecDeque::new(),
                reads: VecDeque::new(),
            }),
            not_empty: Condvar::new(),
            not_full: Condvar::new(),
            capacity,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a request in if there is room; gives it back otherwise.
    pub(super) fn try_push(&self, request: Request) -> Result<(), Request> {
        let mut state = self.lock();
        if state.requests.len() >= self.capacity {
            return Err(request);
        }
        state.requests.push_back(request);
        drop(state);
        self.not_empty.notify_one();
        Ok(())
    }

    /// Puts a request in; waits for room.
    pub(super) fn push(&self, request: Request) {
        let mut state = self.lock();
        while state.requests.len() >= self.capacity {
            state = self
                .not_full
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.requests.push_back(request);
        drop(state);
        self.not_empty.notify_one();
    }

    pub(super) fn push_read(&self, read: Served) {
        self.lock().reads.push_back(read);
        self.not_empty.notify_one();
    }

    /// The next thing to do; waits for one, but not longer than `patience`.
    pub(super) fn pop(&self, patience: Duration) -> Option<Work> {
        let mut state = self.lock();
        if state.requests.is_empty() && state.reads.is_empty() {
            state = self
                .not_empty
                .wait_timeout(state, patience)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        if let Some(read) = state.reads.pop_front() {
            return Some(Work::Read(read));
        }
        let request = state.requests.pop_front()?;
        drop(state);
        self.not_full.notify_one();
        Some(Work::Request(request))
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Places for more requests.
    pub(super) fn free(&self) -> usize {
        self.capacity - self.lock().requests.len()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn request(number: usize) -> Request {
        Request {
            processor: 0,
            channel: Token(number),
            link: Arc::new(Link::for_tests()),
            frame: Bytes::new(),
        }
    }

    fn next(queue: &RequestQueue) -> Option<usize> {
        match queue.pop(Duration::ZERO) {
            Some(Work::Request(request)) => Some(request.channel.0),
            Some(Work::Read(_)) | None => None,
        }
    }

    #[test]
    fn it_is_first_in_first_out_and_bounded() {
        let queue = RequestQueue::new(2);
        assert!(queue.try_push(request(1)).is_ok());
        assert!(queue.try_push(request(2)).is_ok());
        assert!(queue.try_push(request(3)).is_err());
        assert_eq!(queue.free(), 0);
        assert_eq!(next(&queue), Some(1));
        assert!(queue.try_push(request(3)).is_ok());
        assert_eq!([next(&queue), next(&queue)], [Some(2), Some(3)]);
        assert_eq!(next(&queue), None);
    }

    #[test]
    fn who_finds_it_full_waits_until_one_is_taken() {
        let queue = Arc::new(RequestQueue::new(1));
        queue.push(request(1));
        let pushing = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.push(request(2)))
        };
        assert_eq!(next(&queue), Some(1));
        pushing.join().unwrap();
        assert_eq!(next(&queue), Some(2));
    }
}
