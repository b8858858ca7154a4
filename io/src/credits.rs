//! Credits: a bounded amount of something (bytes of requests, places in a count) shared by cores.
//!
//! Each core has a share from which it takes without touching shared memory; shares borrow from and
//! return to one reserve. A share keeps only so much for itself that the largest legal request always
//! fits when the others are idle. No credit is a value, `false`; who wants to wait calls `wait_for`
//! and is woken when another core's `settle` finds credits for it.
//!
//! What the caller must do: give back what was taken, on the same core; call `settle` once a turn.
//! A core that forgets to settle delays waiters, and loses nothing.

use crossbeam_utils::CachePadded;

use crate::sync::{Arc, AtomicBool, AtomicU64, Ordering, fence};

/// The pool cannot hold even one of the largest requests.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a pool of {total} cannot hold the largest request of {largest}")]
pub struct PoolTooSmall {
    pub total: u64,
    pub largest: u64,
}

#[derive(Debug)]
struct Reserve {
    total: u64,
    free: CachePadded<AtomicU64>,
    cores: Vec<CachePadded<Core>>,
}

/// What others may see of a core.
#[derive(Debug)]
struct Core {
    /// Unused credits that the core keeps; written by the core alone.
    kept: AtomicU64,
    /// How often it found too few; written by the core alone.
    denied: AtomicU64,
    /// It waits for credits.
    waiting: AtomicBool,
}

impl Reserve {
    /// Takes all of `count`, or nothing.
    fn take(&self, count: u64) -> bool {
        let mut free = self.free.load(Ordering::Acquire);
        loop {
            let Some(left) = free.checked_sub(count) else {
                return false;
            };
            match self
                .free
                .compare_exchange_weak(free, left, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return true,
                Err(now) => free = now,
            }
        }
    }

    fn put(&self, count: u64) {
        if count > 0 {
            let free = self.free.fetch_add(count, Ordering::AcqRel);
            assert!(
                free + count <= self.total,
                "more credits were given back than taken"
            );
        }
    }
}

/// Makes the shares of `cores` cores of one pool. `largest` is the largest single request; `chunk` is
/// how much a core may keep for itself to save shared traffic (it is lowered as needed).
pub fn credits(
    total: u64,
    largest: u64,
    cores: usize,
    chunk: u64,
) -> Result<(Vec<Share>, CreditStats), PoolTooSmall> {
    if total < largest || cores == 0 {
        return Err(PoolTooSmall { total, largest });
    }
    let keep = chunk.min((total - largest) / cores as u64);
    let core = || Core {
        kept: AtomicU64::new(0),
        denied: AtomicU64::new(0),
        waiting: AtomicBool::new(false),
    };
    let reserve = Arc::new(Reserve {
        total,
        free: CachePadded::new(AtomicU64::new(total)),
        cores: (0..cores).map(|_| CachePadded::new(core())).collect(),
    });
    let shares = (0..cores).map(|own| Share {
        own,
        kept: 0,
        taken: 0,
        keep,
        reserve: reserve.clone(),
    });
    Ok((shares.collect(), CreditStats(reserve.clone())))
}

/// One core's share.
#[derive(Debug)]
pub struct Share {
    own: usize,
    /// Unused credits here, at most `keep`.
    kept: u64,
    /// Credits in use by this core.
    taken: u64,
    keep: u64,
    reserve: Arc<Reserve>,
}

impl Share {
    /// Takes `count` credits, or none and says false.
    #[must_use]
    pub fn try_take(&mut self, count: u64) -> bool {
        if !self.cover(count) {
            let denied = &self.reserve.cores[self.own].denied;
            denied.store(denied.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return false;
        }
        self.kept -= count;
        self.taken += count;
        self.publish();
        true
    }

    /// Borrows until `count` credits are kept here.
    fn cover(&mut self, count: u64) -> bool {
        let Some(need) = count.checked_sub(self.kept).filter(|&need| need > 0) else {
            return true;
        };
        // A little more, so that the next small ones need no shared memory.
        let with_stock = need + self.keep;
        let borrowed = if self.keep > 0 && self.reserve.take(with_stock) {
            with_stock
        } else if self.reserve.take(need) {
            need
        } else {
            return false;
        };
        self.kept += borrowed;
        true
    }

    /// Gives back credits taken by this core.
    pub fn give(&mut self, count: u64) {
        assert!(
            count <= self.taken,
            "{count} credits given back, {} taken",
            self.taken
        );
        self.taken -= count;
        self.kept += count;
        if self.kept > self.keep {
            // Down to half, so that alternating small takes and gives stay local.
            self.reserve.put(self.kept - self.keep / 2);
            self.kept = self.keep / 2;
        }
        self.publish();
    }

    /// Credits in use by this core.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Tries once more and, when that fails too, asks to be woken by others' `settle`. True when the
    /// credits were taken after all.
    #[must_use]
    pub fn wait_for(&mut self, count: u64) -> bool {
        self.reserve.cores[self.own]
            .waiting
            .store(true, Ordering::Relaxed);
        // With the fence in `settle`: either this attempt sees what the other core gave, or that core
        // sees the flag.
        fence(Ordering::SeqCst);
        if self.try_take(count) {
            self.reserve.cores[self.own]
                .waiting
                .store(false, Ordering::Relaxed);
            return true;
        }
        false
    }

    /// Once a turn: when other cores wait, lends them all unused credits and calls `wake` for each.
    /// Waiters that still find too few wait again.
    pub fn settle(&mut self, mut wake: impl FnMut(usize)) {
        fence(Ordering::SeqCst);
        let mut lent = false;
        for core in (0..self.reserve.cores.len()).filter(|&core| core != self.own) {
            if !self.reserve.cores[core].waiting.load(Ordering::Relaxed) {
                continue;
            }
            if !lent {
                lent = true;
                self.reserve.put(self.kept);
                self.kept = 0;
                self.publish();
            }
            if self.reserve.free.load(Ordering::Acquire) > 0
                && self.reserve.cores[core]
                    .waiting
                    .swap(false, Ordering::AcqRel)
            {
                wake(core);
            }
        }
    }

    fn publish(&self) {
        self.reserve.cores[self.own]
            .kept
            .store(self.kept, Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.reserve.put(self.kept);
        self.kept = 0;
        self.publish();
    }
}

/// The pool as any thread sees it: numbers of different moments.
#[derive(Clone, Debug)]
pub struct CreditStats(Arc<Reserve>);

impl CreditStats {
    pub fn total(&self) -> u64 {
        self.0.total
    }

    /// Unused credits, in the reserve and in shares.
    pub fn free(&self) -> u64 {
        let kept: u64 = self
            .0
            .cores
            .iter()
            .map(|core| core.kept.load(Ordering::Relaxed))
            .sum();
        (self.0.free.load(Ordering::Relaxed) + kept).min(self.0.total)
    }

    pub fn used(&self) -> u64 {
        self.0.total - self.free()
    }

    /// How often this core found too few.
    pub fn denied(&self, core: usize) -> u64 {
        self.0.cores[core].denied.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_pool_smaller_than_its_largest_request_is_refused() {
        assert_eq!(
            credits(9, 10, 2, 1).unwrap_err(),
            PoolTooSmall {
                total: 9,
                largest: 10
            }
        );
        assert!(credits(10, 10, 2, 1000).is_ok());
    }

    #[test]
    fn the_largest_request_fits_whatever_idle_cores_keep() {
        let (mut shares, stats) = credits(100, 60, 4, 1000).unwrap();
        for share in &mut shares[1..] {
            assert!(share.try_take(5));
            share.give(5);
        }
        assert_eq!(stats.free(), 100);
        assert!(shares[0].try_take(60));
        assert_eq!(stats.used(), 60);
    }

    #[test]
    fn a_waiter_gets_what_others_keep() {
        let (mut shares, stats) = credits(100, 50, 2, 50).unwrap();
        let (mut first, mut second) = (shares.remove(0), shares.remove(0));
        assert!(first.try_take(60));
        assert!(second.try_take(10));
        second.give(10);
        assert_eq!(stats.free(), 40, "of which the second keeps ten");
        assert!(!first.try_take(35));
        assert!(!first.wait_for(35));
        assert_eq!(stats.denied(0), 2);
        let mut woken = Vec::new();
        second.settle(|core| woken.push(core));
        assert_eq!(woken, [0]);
        assert!(first.wait_for(35));
        second.settle(|core| woken.push(core));
        assert_eq!(woken, [0], "who was served waits no more");
    }

    #[test]
    #[should_panic(expected = "given back")]
    fn giving_more_than_was_taken_is_our_fault() {
        let (mut shares, _) = credits(10, 1, 1, 1).unwrap();
        shares[0].give(1);
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Take(usize, u64),
        Give(usize, u64),
        Settle(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0usize..3, 0u64..40).prop_map(|(core, count)| Step::Take(core, count)),
            (0usize..3, 0u64..40).prop_map(|(core, count)| Step::Give(core, count)),
            (0usize..3).prop_map(Step::Settle),
        ]
    }

    proptest! {
        #[test]
        fn it_behaves_like_one_counter(chunk in 0u64..30, steps in proptest::collection::vec(step(), 0..100)) {
            const TOTAL: u64 = 100;
            const LARGEST: u64 = 40;
            let (mut shares, stats) = credits(TOTAL, LARGEST, 3, chunk).unwrap();
            let mut taken = [0u64; 3];
            for step in steps {
                match step {
                    Step::Take(core, count) => {
                        let used: u64 = taken.iter().sum();
                        let got = shares[core].try_take(count);
                        // Never more than there are; and always when the others are idle.
                        prop_assert!(!got || used + count <= TOTAL);
                        prop_assert!(got || used > 0 || count > LARGEST);
                        taken[core] += if got { count } else { 0 };
                    }
                    Step::Give(core, count) => {
                        let count = count.min(taken[core]);
                        shares[core].give(count);
                        taken[core] -= count;
                    }
                    Step::Settle(core) => shares[core].settle(|_| {}),
                }
                prop_assert_eq!(stats.used(), taken.iter().sum::<u64>());
            }
            drop(shares);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;

    #[test]
    fn loom_two_cores_never_have_more_than_there_is() {
        loom::model(|| {
            let (mut shares, stats) = credits(3, 2, 2, 1).unwrap();
            let mut second = shares.remove(1);
            let mut first = shares.remove(0);
            let other = loom::thread::spawn(move || {
                let got = second.try_take(2);
                if got {
                    second.give(1);
                }
                (second, u64::from(got))
            });
            let mine = if first.try_take(2) { 2 } else { 0 };
            let (second, theirs) = other.join().unwrap();
            assert_eq!(stats.used(), mine + theirs);
            assert!(mine + theirs > 0, "one of them must get it");
            drop((first, second));
        });
    }

    #[test]
    fn loom_a_waiter_is_served_or_woken() {
        loom::model(|| {
            let (mut shares, _stats) = credits(1, 1, 2, 0).unwrap();
            let mut giver = shares.remove(1);
            let mut waiter = shares.remove(0);
            assert!(giver.try_take(1));
            let other = loom::thread::spawn(move || {
                giver.give(1);
                let mut woken = false;
                giver.settle(|_| woken = true);
                woken
            });
            let served = waiter.wait_for(1);
            let woken = other.join().unwrap();
            assert!(served || woken, "the waiter was forgotten");
        });
    }
}
