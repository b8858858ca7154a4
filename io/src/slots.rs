//! Entries that one core fills and another empties: requests in flight and who waits for them.
//!
//! A key is stale once its entry was taken: a late or double answer finds nothing, never another's
//! entry. The count is bounded; full is a value.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sharded_slab::Slab;

/// Names an entry, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotKey(u64);

impl SlotKey {
    /// As a number, to travel in messages.
    pub fn to_u64(self) -> u64 {
        self.0
    }

    /// A number that came back; a wrong one finds no entry.
    pub fn from_u64(key: u64) -> Self {
        Self(key)
    }
}

/// The table; clones share it.
#[derive(Debug)]
pub struct Slots<T>(Arc<Table<T>>);

#[derive(Debug)]
struct Table<T> {
    slab: Slab<T>,
    used: AtomicUsize,
    capacity: usize,
}

impl<T> Clone for Slots<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Slots<T> {
    /// At most `capacity` entries at once.
    pub fn new(capacity: usize) -> Self {
        Self(Arc::new(Table {
            slab: Slab::new(),
            used: AtomicUsize::new(0),
            capacity,
        }))
    }

    /// Stores an entry; gives it back when the table is full.
    pub fn reserve(&self, entry: T) -> Result<SlotKey, T> {
        let more = |used| (used < self.0.capacity).then_some(used + 1);
        if self
            .0
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
            .is_err()
        {
            return Err(entry);
        }
        let Some(vacant) = self.0.slab.vacant_entry() else {
            self.0.used.fetch_sub(1, Ordering::AcqRel);
            return Err(entry);
        };
        let key = SlotKey(vacant.key() as u64);
        vacant.insert(entry);
        Ok(key)
    }

    /// Takes an entry out, on any core; none when it was taken already.
    pub fn take(&self, key: SlotKey) -> Option<T> {
        let entry = self.0.slab.take(usize::try_from(key.0).ok()?)?;
        self.0.used.fetch_sub(1, Ordering::AcqRel);
        Some(entry)
    }

    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Acquire)
    }

    pub fn capacity(&self) -> usize {
        self.0.capacity
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_taken_once_and_a_stale_key_finds_nothing() {
        let slots = Slots::new(1);
        let key = slots.reserve("a").unwrap();
        assert_eq!(slots.reserve("b"), Err("b"));
        assert_eq!((slots.take(key), slots.take(key)), (Some("a"), None));
        let other = slots.reserve("c").unwrap();
        assert_ne!(key, other);
        assert_eq!(slots.take(key), None);
        assert_eq!(slots.take(SlotKey::from_u64(other.to_u64())), Some("c"));
        assert_eq!(slots.take(SlotKey::from_u64(u64::MAX)), None);
    }

    #[test]
    fn what_one_thread_fills_another_empties() {
        let slots = Slots::new(100);
        let (sender, receiver) = std::sync::mpsc::channel();
        let other = slots.clone();
        let thread = std::thread::spawn(move || {
            receiver
                .into_iter()
                .map(|key| other.take(key).unwrap())
                .sum::<u64>()
        });
        let mut expected = 0;
        for number in 0..5000u64 {
            while slots.used() == slots.capacity() {
                std::thread::yield_now();
            }
            sender.send(slots.reserve(number).unwrap()).unwrap();
            expected += number;
        }
        drop(sender);
        assert_eq!(thread.join().unwrap(), expected);
        assert_eq!(slots.used(), 0);
    }
}
