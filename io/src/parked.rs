//! The flag that says "this core sleeps, or is about to": the store-load protocol that lets a
//! producer skip the doorbell of a core that is awake without ever losing a wake-up.
//!
//! The sleeper stores the flag and then looks at its queues; the producer stores into a queue and
//! then looks at the flag. Between the two steps each side has a sequentially consistent fence, so
//! at least one of them sees what the other did: either the sleeper finds the message and stays
//! awake, or the producer finds the flag and rings. The model test below runs all interleavings.
//!
//! The sleeper must look at *every* queue whose producers use this flag.

use crate::sync::{AtomicBool, Ordering, fence};

#[derive(Debug)]
pub(crate) struct Parked(AtomicBool);

impl Parked {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Sleeper: announces sleep, then looks once more. True when it may sleep; then `unpark` must
    /// follow the sleep. False when `has_work` said so, and the flag is down again.
    pub(crate) fn park_unless(&self, has_work: impl FnOnce() -> bool) -> bool {
        self.0.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if has_work() {
            self.0.store(false, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Sleeper: awake again.
    pub(crate) fn unpark(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Producer, after it has stored its message: must the doorbell ring?
    pub(crate) fn must_ring(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_a_parked_core_is_rung() {
        let parked = Parked::new();
        assert!(!parked.must_ring());
        assert!(!parked.park_unless(|| true));
        assert!(!parked.must_ring());
        assert!(parked.park_unless(|| false));
        assert!(parked.must_ring());
        parked.unpark();
        assert!(!parked.must_ring());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::ring::ring;
    use crate::sync::Arc;

    #[test]
    fn loom_a_sleeper_is_rung_or_has_seen_the_message() {
        loom::model(|| {
            let parked = Arc::new(Parked::new());
            let rung = Arc::new(AtomicBool::new(false));
            let (mut producer, consumer) = ring::<u32>(2);
            let sender = {
                let (parked, rung) = (parked.clone(), rung.clone());
                loom::thread::spawn(move || {
                    producer.push(7).unwrap();
                    if parked.must_ring() {
                        rung.store(true, Ordering::Release);
                    }
                })
            };
            let slept = parked.park_unless(|| !consumer.is_empty());
            sender.join().unwrap();
            assert!(!slept || rung.load(Ordering::Acquire), "a wake-up was lost");
            parked.unpark();
            assert!(!parked.must_ring());
        });
    }

    #[test]
    fn loom_two_senders_cannot_both_leave_a_sleeper_asleep() {
        loom::model(|| {
            let parked = Arc::new(Parked::new());
            let rung = Arc::new(AtomicBool::new(false));
            let lanes: Vec<_> = (0..2).map(|_| ring::<u32>(1)).collect();
            let (mut senders, mut consumers) = (Vec::new(), Vec::new());
            for (mut producer, consumer) in lanes {
                consumers.push(consumer);
                let (parked, rung) = (parked.clone(), rung.clone());
                senders.push(loom::thread::spawn(move || {
                    producer.push(1).unwrap();
                    if parked.must_ring() {
                        rung.store(true, Ordering::Release);
                    }
                }));
            }
            let slept = parked.park_unless(|| consumers.iter().any(|lane| !lane.is_empty()));
            for sender in senders {
                sender.join().unwrap();
            }
            assert!(!slept || rung.load(Ordering::Acquire));
        });
    }
}
