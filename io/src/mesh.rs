//! Rings between all pairs of cores.
//!
//! A port is one core's end: it pushes to peers, flushes once a turn (one doorbell for each peer that
//! got something and sleeps), and drains what others sent. Full is a value; who must not be surprised
//! by it reserves against `free` first, which only this core can lower.
//!
//! What the caller must do: `attach` the turn's doorbell before the first `wait`; give `is_empty` to
//! `wait`; `drain` after each `wait`; `flush` before the next one, without yielding in between.

use std::sync::{Arc, OnceLock};

use crate::ring::{Consumer, Producer, RingGauge, ring};
use crate::turn::{Doorbell, Turn};

type Doorbells = Arc<[OnceLock<Doorbell>]>;

/// Makes the ports of `cores` cores, whose rings hold `capacity` messages each.
pub fn mesh<T: Send>(cores: usize, capacity: usize) -> (Vec<MeshPort<T>>, MeshStats) {
    let doorbells: Doorbells = (0..cores).map(|_| OnceLock::new()).collect();
    let mut ports: Vec<_> = (0..cores)
        .map(|own| MeshPort::new(own, cores, doorbells.clone()))
        .collect();
    let mut gauges: Vec<Vec<Option<RingGauge>>> = vec![vec![None; cores]; cores];
    for from in 0..cores {
        for to in (0..cores).filter(|&to| to != from) {
            let (producer, consumer) = ring(capacity);
            gauges[from][to] = Some(producer.gauge());
            ports[from].to[to] = Some(producer);
            ports[to].from[from] = Some(consumer);
        }
    }
    (ports, MeshStats(gauges.into()))
}

/// One core's end of the mesh.
pub struct MeshPort<T> {
    own: usize,
    to: Vec<Option<Producer<T>>>,
    from: Vec<Option<Consumer<T>>>,
    /// Peers that got messages since the last flush.
    unrung: Vec<usize>,
    doorbells: Doorbells,
    /// Where the next drain starts, so that no peer is always last.
    first: usize,
}

impl<T: Send> MeshPort<T> {
    fn new(own: usize, cores: usize, doorbells: Doorbells) -> Self {
        Self {
            own,
            to: (0..cores).map(|_| None).collect(),
            from: (0..cores).map(|_| None).collect(),
            unrung: Vec::with_capacity(cores),
            doorbells,
            first: 0,
        }
    }

    /// The core that this port belongs to.
    pub fn own(&self) -> usize {
        self.own
    }

    pub fn cores(&self) -> usize {
        self.to.len()
    }

    /// Makes this core's doorbell known to its peers.
    pub fn attach(&self, doorbell: Doorbell) {
        assert!(
            self.doorbells[self.own].set(doorbell).is_ok(),
            "a port belongs to one turn"
        );
    }

    /// Sends to another core; gives the message back when the ring is full. The peer is woken by `flush`.
    pub fn push(&mut self, to: usize, message: T) -> Result<(), T> {
        let Some(producer) = &mut self.to[to] else {
            panic!("core {to} does not send to itself")
        };
        producer.push(message)?;
        if !self.unrung.contains(&to) {
            self.unrung.push(to);
        }
        Ok(())
    }

    /// Messages that this core can certainly push to that one.
    pub fn free(&mut self, to: usize) -> usize {
        self.to[to].as_mut().map_or(0, Producer::free_now)
    }

    /// Rings each sleeping peer that got messages, and says how many; they leave with the turn's next `wait`.
    pub fn flush(&mut self, turn: &mut Turn) -> usize {
        let mut rung = 0;
        for peer in self.unrung.drain(..) {
            // A peer without a doorbell has not slept yet, and looks at its rings before it does.
            if let Some(doorbell) = self.doorbells[peer].get() {
                turn.ring(doorbell);
                rung += 1;
            }
        }
        rung
    }

    /// For the closure of `Turn::wait`.
    pub fn is_empty(&self) -> bool {
        self.from.iter().flatten().all(Consumer::is_empty)
    }

    /// Takes all messages that are there now, each peer's in order, starting with another peer each
    /// time: `receive(from, message)`.
    pub fn drain(&mut self, mut receive: impl FnMut(usize, T)) {
        let cores = self.from.len();
        self.first = (self.first + 1) % cores;
        for step in 0..cores {
            let from = (self.first + step) % cores;
            let Some(consumer) = &mut self.from[from] else {
                continue;
            };
            // Only what is there at the start: a busy peer cannot keep this core in here.
            for _ in 0..consumer.len() {
                if let Some(message) = consumer.pop() {
                    receive(from, message);
                }
            }
        }
    }
}

/// Counters of all rings, readable from any thread.
#[derive(Clone, Debug)]
pub struct MeshStats(Arc<[Vec<Option<RingGauge>>]>);

impl MeshStats {
    /// The ring between two different cores.
    pub fn ring(&self, from: usize, to: usize) -> Option<&RingGauge> {
        self.0.get(from)?.get(to)?.as_ref()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_with_their_sender_and_in_its_order() {
        let (mut ports, stats) = mesh(3, 4);
        ports[0].push(2, "a").unwrap();
        ports[1].push(2, "b").unwrap();
        ports[0].push(2, "c").unwrap();
        assert!(ports[0].is_empty() && !ports[2].is_empty());
        assert_eq!(stats.ring(0, 2).unwrap().depth(), 2);
        let mut got = Vec::new();
        ports[2].drain(|from, message| got.push((from, message)));
        got.sort_unstable();
        assert_eq!(got, [(0, "a"), (0, "c"), (1, "b")]);
        assert_eq!(
            stats.ring(0, 2).map(|ring| (ring.depth(), ring.sent())),
            Some((0, 2))
        );
        assert!(stats.ring(1, 1).is_none());
    }

    #[test]
    fn free_is_a_promise_and_full_is_a_value() {
        let (mut ports, stats) = mesh(2, 2);
        for left in [2, 1] {
            assert_eq!(ports[0].free(1), left);
            ports[0].push(1, ()).unwrap();
        }
        assert_eq!((ports[0].free(1), ports[0].push(1, ())), (0, Err(())));
        assert_eq!(stats.ring(0, 1).unwrap().full(), 1);
        ports[1].drain(|_, ()| {});
        assert_eq!(ports[0].free(1), 2);
    }
}
