#![expect(
    unsafe_code,
    reason = "the slots of the ring are shared between two threads"
)]
//! A bounded ring between one producer and one consumer.
//!
//! Full is a value: `push` gives the message back. Neither side ever waits. Capacity is rounded up
//! to a power of two. Each side keeps a copy of the other side's cursor and reads the shared one
//! only when the copy says "full" or "empty", so a busy ring costs one cache line per batch.
//!
//! What is not here: waking the consumer (see `mesh`), and more than one producer (see `inbox`).

use crossbeam_utils::CachePadded;
use std::mem::MaybeUninit;

use crate::sync::{Arc, AtomicU64, AtomicUsize, Ordering, UnsafeCell};

/// Both cursors, as running counts: a slot is `count % capacity`.
#[derive(Debug)]
struct Cursors {
    /// Messages taken out so far; written by the consumer.
    head: CachePadded<AtomicUsize>,
    /// Messages put in so far; written by the producer.
    tail: CachePadded<AtomicUsize>,
    /// How often the producer found the ring full.
    full: CachePadded<AtomicU64>,
}

struct Shared<T> {
    cursors: Arc<Cursors>,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: claim: a slot is touched by one side at a time, because the producer writes only slots in
// [tail, head + capacity) and the consumer reads only slots in [head, tail), and each publishes its
// cursor with release after it is done with the slot. keeper: `push`, `pop` and that neither half is
// `Clone`. breaker: a second producer or consumer, or a weaker ordering on either cursor.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: claim: the slots hold plain `T`s, which may be sent. keeper: the bound `T: Send`. breaker:
// dropping the bound.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T> Shared<T> {
    fn slot(&self, count: usize) -> &UnsafeCell<MaybeUninit<T>> {
        &self.slots[count & (self.slots.len() - 1)]
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let tail = self.cursors.tail.load(Ordering::Acquire);
        let mut head = self.cursors.head.load(Ordering::Acquire);
        while head != tail {
            self.slot(head).with_mut(|slot| {
                // SAFETY: claim: both halves are gone, so the pointer is unique and valid. keeper:
                // `Arc` runs this once, after both halves. breaker: a raw pointer kept elsewhere.
                let slot = unsafe { &mut *slot };
                // SAFETY: claim: slots in [head, tail) are initialised. keeper: `push` writes before
                // it moves the tail. breaker: moving the tail first.
                unsafe { slot.assume_init_drop() };
            });
            head = head.wrapping_add(1);
        }
    }
}

/// Makes a ring for at least `capacity` messages (rounded up to a power of two).
pub fn ring<T: Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    let capacity = capacity.max(1).next_power_of_two();
    let cursors = Arc::new(Cursors {
        head: CachePadded::new(AtomicUsize::new(0)),
        tail: CachePadded::new(AtomicUsize::new(0)),
        full: CachePadded::new(AtomicU64::new(0)),
    });
    let slots = (0..capacity)
        .map(|_| UnsafeCell::new(MaybeUninit::uninit()))
        .collect();
    let shared = Arc::new(Shared { cursors, slots });
    let producer = Producer {
        shared: shared.clone(),
        tail: 0,
        head_seen: 0,
    };
    (
        producer,
        Consumer {
            shared,
            head: 0,
            tail_seen: 0,
        },
    )
}

/// The sending half; may move to another thread, cannot be shared.
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    tail: usize,
    head_seen: usize,
}

impl<T: Send> Producer<T> {
    /// Puts a message in; gives it back when the ring is full (and counts that).
    pub fn push(&mut self, message: T) -> Result<(), T> {
        if self.free() == 0 {
            let full = &self.shared.cursors.full;
            full.store(full.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return Err(message);
        }
        self.shared.slot(self.tail).with_mut(|slot| {
            // SAFETY: claim: the slot at tail is free and ours. keeper: `free` saw the consumer's head
            // with acquire. breaker: a second producer.
            unsafe { slot.write(MaybeUninit::new(message)) };
        });
        self.tail = self.tail.wrapping_add(1);
        self.shared.cursors.tail.store(self.tail, Ordering::Release);
        Ok(())
    }

    /// Places left for this producer; the consumer may free more at any time, nobody takes any away.
    pub fn free(&mut self) -> usize {
        let capacity = self.shared.slots.len();
        let used = self.tail.wrapping_sub(self.head_seen);
        if used < capacity {
            return capacity - used;
        }
        self.head_seen = self.shared.cursors.head.load(Ordering::Acquire);
        capacity - self.tail.wrapping_sub(self.head_seen)
    }

    /// Like `free`, but asks for the consumer's newest position instead of stopping at "some".
    pub fn free_now(&mut self) -> usize {
        self.head_seen = self.shared.cursors.head.load(Ordering::Acquire);
        self.shared.slots.len() - self.tail.wrapping_sub(self.head_seen)
    }

    pub fn capacity(&self) -> usize {
        self.shared.slots.len()
    }

    /// Counters of this ring for any thread to read.
    pub fn gauge(&self) -> RingGauge {
        RingGauge(self.shared.cursors.clone())
    }
}

/// The receiving half; may move to another thread, cannot be shared.
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    head: usize,
    tail_seen: usize,
}

impl<T: Send> Consumer<T> {
    /// Takes the oldest message.
    pub fn pop(&mut self) -> Option<T> {
        if self.head == self.tail_seen {
            self.tail_seen = self.shared.cursors.tail.load(Ordering::Acquire);
            if self.head == self.tail_seen {
                return None;
            }
        }
        let message = self.shared.slot(self.head).with_mut(|slot| {
            // SAFETY: claim: the slot at head was published by the producer and is ours until head
            // moves. keeper: the acquire load of tail above. breaker: a second consumer.
            let slot = unsafe { slot.read() };
            // SAFETY: claim: a published slot is initialised. keeper: `push` writes before it moves the
            // tail. breaker: moving the tail first.
            unsafe { slot.assume_init() }
        });
        self.head = self.head.wrapping_add(1);
        self.shared.cursors.head.store(self.head, Ordering::Release);
        Some(message)
    }

    /// Nothing to take at this moment.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Messages waiting at this moment.
    pub fn len(&self) -> usize {
        self.shared
            .cursors
            .tail
            .load(Ordering::Acquire)
            .wrapping_sub(self.head)
    }
}

/// Counters of one ring, readable from any thread; each is exact for its writer and a moment old
/// for the reader.
#[derive(Clone, Debug)]
pub struct RingGauge(Arc<Cursors>);

impl RingGauge {
    /// Messages waiting.
    pub fn depth(&self) -> usize {
        let head = self.0.head.load(Ordering::Relaxed);
        let depth = self.0.tail.load(Ordering::Relaxed).wrapping_sub(head);
        // The two loads are not one moment: the consumer may have been read late.
        if depth > isize::MAX as usize {
            0
        } else {
            depth
        }
    }

    /// Messages put in since the start.
    pub fn sent(&self) -> usize {
        self.0.tail.load(Ordering::Relaxed)
    }

    /// How often a push found the ring full.
    pub fn full(&self) -> u64 {
        self.0.full.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn a_full_ring_gives_the_message_back_and_counts_it() {
        let (mut producer, mut consumer) = ring(2);
        assert_eq!((producer.push(1), producer.push(2)), (Ok(()), Ok(())));
        assert_eq!(producer.push(3), Err(3));
        assert_eq!(producer.gauge().full(), 1);
        assert_eq!(consumer.pop(), Some(1));
        assert_eq!(producer.free(), 1);
        assert_eq!(producer.push(3), Ok(()));
        assert_eq!(
            (consumer.pop(), consumer.pop(), consumer.pop()),
            (Some(2), Some(3), None)
        );
    }

    #[test]
    fn messages_left_in_the_ring_are_dropped_with_it() {
        let witness = std::sync::Arc::new(());
        let (mut producer, consumer) = ring(4);
        producer.push(witness.clone()).unwrap();
        producer.push(witness.clone()).unwrap();
        drop((producer, consumer));
        assert_eq!(std::sync::Arc::strong_count(&witness), 1);
    }

    #[test]
    fn two_threads_keep_the_order() {
        let (mut producer, mut consumer) = ring(8);
        let sender = std::thread::spawn(move || {
            for message in 0..20_000u32 {
                while producer.push(message).is_err() {
                    std::thread::yield_now();
                }
            }
        });
        let mut expected = 0;
        while expected < 20_000 {
            match consumer.pop() {
                Some(message) => {
                    assert_eq!(message, expected);
                    expected += 1;
                }
                None => std::thread::yield_now(),
            }
        }
        sender.join().unwrap();
    }

    proptest! {
        #[test]
        fn it_behaves_like_a_bounded_deque(capacity in 1usize..9, steps in proptest::collection::vec(any::<bool>(), 0..200)) {
            let (mut producer, mut consumer) = ring(capacity);
            let capacity = producer.capacity();
            let mut oracle = VecDeque::new();
            for (number, push) in steps.into_iter().enumerate() {
                if push {
                    let expected = if oracle.len() < capacity { oracle.push_back(number); Ok(()) } else { Err(number) };
                    prop_assert_eq!(producer.push(number), expected);
                } else {
                    prop_assert_eq!(consumer.pop(), oracle.pop_front());
                }
                prop_assert_eq!(consumer.len(), oracle.len());
                prop_assert_eq!(producer.free_now(), capacity - oracle.len());
                prop_assert_eq!(producer.gauge().depth(), oracle.len());
            }
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;

    #[test]
    fn loom_every_message_arrives_once_and_in_order() {
        loom::model(|| {
            let (mut producer, mut consumer) = ring::<Box<u32>>(2);
            let sender = loom::thread::spawn(move || {
                let mut sent = 0;
                for message in 0..3 {
                    if producer.push(Box::new(message)).is_ok() {
                        sent += 1;
                    } else {
                        break;
                    }
                }
                sent
            });
            let mut received = Vec::new();
            for _ in 0..2 {
                received.extend(consumer.pop().map(|message| *message));
            }
            let sent = sender.join().unwrap();
            received.extend(std::iter::from_fn(|| {
                consumer.pop().map(|message| *message)
            }));
            assert_eq!(received, (0..sent).collect::<Vec<_>>());
        });
    }

    #[test]
    fn loom_a_message_left_behind_is_dropped_once() {
        loom::model(|| {
            let (mut producer, consumer) = ring::<Box<u32>>(1);
            let sender = loom::thread::spawn(move || drop(producer.push(Box::new(1))));
            drop(consumer);
            sender.join().unwrap();
        });
    }
}
