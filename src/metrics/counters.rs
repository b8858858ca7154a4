//! Counters and gauges of one core. One core writes, the housekeeping thread reads: plain loads and stores, no locked instruction.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// Only grows. Only one thread may add.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds. Additions of two threads at once would get lost: each core has counters of its own.
    pub fn add(&self, more: u64) {
        self.0
            .store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }

    /// Adds, whoever else does. Not for the data path of a core.
    pub fn add_shared(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    pub fn increment(&self) {
        self.add(1);
    }

    /// For counters that are kept elsewhere.
    pub fn set(&self, total: u64) {
        self.0.store(total, Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Goes up and down. Only one thread may change it.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    pub fn set(&self, value: i64) {
        self.0.store(value, Relaxed);
    }

    /// Adds, whoever else does. Not for the data path of a core.
    pub fn add_shared(&self, more: i64) {
        self.0.fetch_add(more, Relaxed);
    }

    pub fn add(&self, more: i64) {
        self.set(self.get().wrapping_add(more));
    }

    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

/// What is paid before a request goes on (architecture.md 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreditKind {
    /// Bytes of requests (`queued.max.request.bytes`).
    RequestBytes,
    /// Places in the count of requests (`queued.max.requests`).
    RequestCount,
    /// Bytes of replies and reads.
    ReplyBytes,
    /// Entries of the class of parked requests.
    Parked,
    /// Slots of rings to other cores.
    RingSlots,
}

impl CreditKind {
    pub const ALL: [CreditKind; 5] = [
        CreditKind::RequestBytes,
        CreditKind::RequestCount,
        CreditKind::ReplyBytes,
        CreditKind::Parked,
        CreditKind::RingSlots,
    ];

    pub fn name(self) -> &'static str {
        match self {
            CreditKind::RequestBytes => "request_bytes",
            CreditKind::RequestCount => "request_count",
            CreditKind::ReplyBytes => "reply_bytes",
            CreditKind::Parked => "parked",
            CreditKind::RingSlots => "ring_slots",
        }
    }
}

/// One credit of one core.
#[derive(Debug, Default)]
pub struct Credit {
    pub free: Gauge,
    /// Connections or requests that wait for it now.
    pub waiters: Gauge,
    /// How often somebody had to wait.
    pub waits: Counter,
}

/// Keys up to here have a counter of their own; the protocol has 93 at present (kafka.md 2.1).
const API_KEY_END: usize = 100;

/// Counts by API.
#[derive(Debug)]
pub struct PerApi([Counter; API_KEY_END]);

impl Default for PerApi {
    fn default() -> PerApi {
        PerApi(std::array::from_fn(|_| Counter::default()))
    }
}

impl PerApi {
    /// The counter of `api_key`; unknown keys are rejected before they are counted, but share the last one should one come.
    pub fn of(&self, api_key: i16) -> &Counter {
        let index = usize::try_from(api_key).unwrap_or(API_KEY_END);
        &self.0[index.min(API_KEY_END - 1)]
    }
}

/// Everything that one core counts. Units: microseconds, bytes.
#[derive(Debug, Default)]
pub struct Core {
    /// Time in which the loop worked.
    pub busy_us: Counter,
    /// Time in which it waited for something to do.
    pub idle_us: Counter,
    /// Passes of the loop.
    pub turns: Counter,
    /// CPU time of the longest pass that ended in the last ten to twenty seconds; 0 = none was worth measuring.
    pub longest_turn_us: Gauge,
    /// Passes that took more than 2 ms of CPU time: whatever else waited for the core waited so long.
    pub long_turns: Counter,

    pub connections: Gauge,
    pub connections_opened: Counter,
    pub connections_closed: Counter,
    /// Closed because of what came: malformed, too large, unsupported.
    pub connections_refused: Counter,
    pub bytes_in: Counter,
    pub bytes_out: Counter,

    pub requests: PerApi,
    /// Requests that were answered with an error or closed their connection.
    pub request_errors: PerApi,
    pub records_in: Counter,
    pub record_bytes_in: Counter,
    pub record_bytes_out: Counter,

    /// Messages that wait in rings of this core.
    pub mesh_depth: Gauge,
    /// How often a ring to another core was full.
    pub mesh_full: Counter,
    pub hops_sent: Counter,
    pub hops_received: Counter,
    pub doorbells: Counter,

    pub credits: [Credit; CreditKind::ALL.len()],

    /// Memory of the consumer groups of this core's shards.
    pub group_bytes: Gauge,
    pub groups: Gauge,

    pub writes: Counter,
    pub write_bytes: Counter,
    pub syncs: Counter,
    pub reads: Counter,
    pub read_bytes: Counter,
    pub disk_failures: Counter,
    /// Logs that were recovered.
    pub recoveries: Counter,
}

impl Core {
    pub fn credit(&self, kind: CreditKind) -> &Credit {
        &self.credits[kind as usize]
    }
}

/// What is known of the whole broker; written by the housekeeping thread.
#[derive(Debug, Default)]
pub struct Broker {
    /// Kafka's number of the broker's state.
    pub state: Gauge,
    pub topics: Gauge,
    pub partitions: Gauge,
    pub leaders: Gauge,
    pub offline_partitions: Gauge,
    pub offline_directories: Gauge,
    pub metadata_offset: Gauge,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_add_and_gauges_follow() {
        let core = Core::default();
        core.bytes_in.add(3);
        core.bytes_in.increment();
        core.connections.add(2);
        core.connections.add(-1);
        assert_eq!((core.bytes_in.get(), core.connections.get()), (4, 1));
    }

    #[test]
    fn every_api_key_has_a_counter() {
        let requests = PerApi::default();
        for key in [-1, 0, 92, 99, i16::MAX] {
            requests.of(key).increment();
        }
        assert_eq!(requests.of(0).get(), 1);
        assert_eq!(requests.of(99).get(), 3);
    }

    #[test]
    fn every_credit_kind_has_its_place() {
        for (index, kind) in CreditKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
        }
    }
}
