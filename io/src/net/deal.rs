//! Which core gets a new connection.
//!
//! Hashing in the kernel (SO_REUSEPORT) skews badly with few connections, so the acceptor deals them:
//! to the core with the fewest connections, where a busy core counts each of them up to twice; among
//! equals the one that waited longest gets the next.

use crossbeam_utils::CachePadded;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// A core that does nothing but work.
pub const LOAD_FULL: u32 = 1000;

/// What cores publish about themselves; clones share it.
#[derive(Clone, Debug)]
pub struct CoreLoads(Arc<[CachePadded<Load>]>);

#[derive(Debug, Default)]
struct Load {
    connections: AtomicUsize,
    per_mille: AtomicU32,
}

impl CoreLoads {
    pub fn new(cores: usize) -> Self {
        Self((0..cores).map(|_| CachePadded::default()).collect())
    }

    /// The core's own view of how busy it was lately: 0 to `LOAD_FULL`.
    pub fn publish(&self, core: usize, per_mille: u32) {
        self.0[core]
            .per_mille
            .store(per_mille.min(LOAD_FULL), Ordering::Relaxed);
    }

    /// A connection of this core was closed, or was moved away.
    pub fn connection_left(&self, core: usize) {
        self.0[core].connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// A connection came to this core; `Dealer::deal` has counted those that it dealt.
    pub fn connection_came(&self, core: usize) {
        self.0[core].connections.fetch_add(1, Ordering::Relaxed);
    }

    pub fn connections(&self, core: usize) -> usize {
        self.0[core].connections.load(Ordering::Relaxed)
    }

    fn score(&self, core: usize) -> u64 {
        let load = self.0[core].per_mille.load(Ordering::Relaxed);
        (self.connections(core) as u64 + 1) * u64::from(LOAD_FULL + load)
    }
}

/// Deals connections to cores; one per listener.
#[derive(Debug)]
pub struct Dealer {
    loads: CoreLoads,
    next: usize,
}

impl Dealer {
    pub fn new(loads: CoreLoads) -> Self {
        assert!(!loads.0.is_empty(), "connections need at least one core");
        Self { loads, next: 0 }
    }

    /// The core for a new connection, which is counted there from now on.
    pub fn deal(&mut self) -> usize {
        let cores = self.loads.0.len();
        let from_next = (0..cores).map(|step| (self.next + step) % cores);
        let core = from_next
            .min_by_key(|&core| self.loads.score(core))
            .unwrap_or(0);
        self.loads.connection_came(core);
        self.next = (core + 1) % cores;
        core
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_cores_take_turns() {
        let mut dealer = Dealer::new(CoreLoads::new(3));
        let dealt: Vec<_> = (0..6).map(|_| dealer.deal()).collect();
        assert_eq!(dealt, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn the_core_with_fewer_connections_gets_the_next_ones() {
        let loads = CoreLoads::new(2);
        let mut dealer = Dealer::new(loads.clone());
        for _ in 0..6 {
            dealer.deal();
        }
        for _ in 0..3 {
            loads.connection_left(1);
        }
        let dealt: Vec<_> = (0..3).map(|_| dealer.deal()).collect();
        assert_eq!(dealt, [1, 1, 1]);
    }

    #[test]
    fn a_busy_core_gets_half_as_many_even_in_a_burst() {
        let loads = CoreLoads::new(2);
        loads.publish(0, 5000);
        let mut dealer = Dealer::new(loads.clone());
        for _ in 0..300 {
            dealer.deal();
        }
        assert!(
            (98..=102).contains(&loads.connections(0)),
            "{}",
            loads.connections(0)
        );
    }
}
