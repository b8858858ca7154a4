//! A bounded queue from any thread to one core, with the core's doorbell.
//!
//! For what is rare: new connections, results of helper threads, news of the control path. It has a
//! lock, held for a push or a swap, never while user code runs. Between cores use `mesh`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::turn::Doorbell;

struct Shared<T> {
    queue: Mutex<VecDeque<T>>,
    /// Length of the queue, so that looking into an empty inbox costs one load.
    waiting: AtomicUsize,
    /// Messages and places promised; at most `capacity`.
    taken: AtomicUsize,
    capacity: usize,
    doorbell: OnceLock<Doorbell>,
}

impl<T> Shared<T> {
    fn queue(&self) -> MutexGuard<'_, VecDeque<T>> {
        // Nothing can panic under this lock but the allocator.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes an inbox for at most `capacity` messages.
pub fn inbox<T: Send>(capacity: usize) -> (InboxSender<T>, Inbox<T>) {
    let shared = Arc::new(Shared {
        queue: Mutex::new(VecDeque::new()),
        waiting: AtomicUsize::new(0),
        taken: AtomicUsize::new(0),
        capacity,
        doorbell: OnceLock::new(),
    });
    (
        InboxSender(shared.clone()),
        Inbox {
            shared,
            batch: VecDeque::new(),
        },
    )
}

/// The sending side, for any number of threads.
pub struct InboxSender<T>(Arc<Shared<T>>);

impl<T> Clone for InboxSender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Send> InboxSender<T> {
    /// Puts a message in and wakes the core; gives it back when the inbox is full.
    pub fn push(&self, message: T) -> Result<(), T> {
        match self.reserve() {
            Some(place) => {
                place.put(message);
                Ok(())
            }
            None => Err(message),
        }
    }

    /// A place for a message that will come later and must not fail then.
    pub fn reserve(&self) -> Option<Place<T>> {
        let more = |taken| (taken < self.0.capacity).then_some(taken + 1);
        let taken = self
            .0
            .taken
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        taken.ok().map(|_| Place(Some(self.0.clone())))
    }
}

/// A reserved place in an inbox; given back when it is dropped unused.
pub struct Place<T>(Option<Arc<Shared<T>>>);

impl<T> Place<T> {
    /// Delivers the message and wakes the core.
    pub fn put(mut self, message: T) {
        let Some(shared) = self.0.take() else { return };
        let mut queue = shared.queue();
        queue.push_back(message);
        shared.waiting.store(queue.len(), Ordering::Release);
        drop(queue);
        if let Some(doorbell) = shared.doorbell.get() {
            doorbell.ring();
        }
    }
}

impl<T> Drop for Place<T> {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            shared.taken.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// The receiving side, of one core.
pub struct Inbox<T> {
    shared: Arc<Shared<T>>,
    batch: VecDeque<T>,
}

impl<T: Send> Inbox<T> {
    /// From now on pushes wake this core. Once, before the core's first `wait`.
    pub fn attach(&self, doorbell: Doorbell) {
        assert!(
            self.shared.doorbell.set(doorbell).is_ok(),
            "an inbox belongs to one core"
        );
    }

    /// For the closure of `Turn::wait`.
    pub fn is_empty(&self) -> bool {
        self.shared.waiting.load(Ordering::Acquire) == 0
    }

    /// Takes all that is there now, oldest first.
    pub fn drain(&mut self, mut receive: impl FnMut(T)) {
        if self.is_empty() {
            return;
        }
        let mut queue = self.shared.queue();
        std::mem::swap(&mut *queue, &mut self.batch);
        self.shared.waiting.store(0, Ordering::Release);
        drop(queue);
        for message in self.batch.drain(..) {
            self.shared.taken.fetch_sub(1, Ordering::AcqRel);
            receive(message);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn a_full_inbox_gives_the_message_back() {
        let (sender, mut inbox) = inbox(2);
        assert_eq!(
            (sender.push(1), sender.push(2), sender.push(3)),
            (Ok(()), Ok(()), Err(3))
        );
        let mut got = Vec::new();
        inbox.drain(|message| got.push(message));
        assert_eq!(got, [1, 2]);
        assert!(inbox.is_empty());
        assert_eq!(sender.push(3), Ok(()));
    }

    #[test]
    fn a_reserved_place_is_kept_until_it_is_used_or_dropped() {
        let (sender, mut inbox) = inbox(1);
        let place = sender.reserve().unwrap();
        assert_eq!(sender.push(1), Err(1));
        drop(place);
        let place = sender.reserve().unwrap();
        place.put(2);
        assert_eq!(sender.push(1), Err(1));
        inbox.drain(|message| assert_eq!(message, 2));
        assert_eq!(sender.push(1), Ok(()));
    }
}
