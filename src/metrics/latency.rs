//! Times of requests, per stage, in histograms that one core fills and the housekeeping thread merges.
//!
//! Two sets of histograms per core change hands: while the core fills one, the other is merged and emptied. The exchange is one atomic pointer in
//! each direction, so neither side ever waits for the other; a core that has nothing to do hands over late, and nothing is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crossbeam_utils::atomic::AtomicCell;
use hdrhistogram::Histogram;

/// APIs that are told apart in histograms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    Produce,
    Fetch,
    Other,
}

impl Family {
    pub const ALL: [Family; 3] = [Family::Produce, Family::Fetch, Family::Other];

    pub fn name(self) -> &'static str {
        match self {
            Family::Produce => "Produce",
            Family::Fetch => "Fetch",
            Family::Other => "Other",
        }
    }
}

/// Where a request spends its time, in order. The stages of one request add up to `Total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// From the first byte of the frame to the last.
    Receive,
    /// Waiting for credits or behind earlier requests of the connection.
    Admission,
    /// From split to the last reply of an owner, hops and disk included.
    Owners,
    /// From the response being ready to its turn in the order of replies.
    Order,
    /// From there to the last byte handed to the kernel.
    Send,
    Total,
}

impl Stage {
    pub const ALL: [Stage; 6] = [
        Stage::Receive,
        Stage::Admission,
        Stage::Owners,
        Stage::Order,
        Stage::Send,
        Stage::Total,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Stage::Receive => "receive",
            Stage::Admission => "admission",
            Stage::Owners => "owners",
            Stage::Order => "order",
            Stage::Send => "send",
            Stage::Total => "total",
        }
    }
}

/// Longer waits count as this long. More buckets would only say how broken a broken broker is.
const LONGEST_US: u64 = 60_000_000;
/// 1 % of the value. One digit more would cost ten times the memory per core.
const DIGITS: u8 = 2;

/// One histogram of microseconds for each family and stage.
#[derive(Debug, Clone)]
pub struct Latencies {
    histograms: Vec<Histogram<u64>>,
    /// Sums, which histograms keep only to the precision of their buckets.
    sums_us: Vec<u64>,
}

impl Default for Latencies {
    fn default() -> Latencies {
        let empty = Histogram::new_with_max(LONGEST_US, DIGITS)
            .expect("the largest value is above 2 and the digits are below 5");
        let count = Family::ALL.len() * Stage::ALL.len();
        Latencies {
            histograms: vec![empty; count],
            sums_us: vec![0; count],
        }
    }
}

impl Latencies {
    pub fn record(&mut self, family: Family, stage: Stage, us: u64) {
        let index = index(family, stage);
        self.histograms[index].saturating_record(us);
        self.sums_us[index] = self.sums_us[index].wrapping_add(us);
    }

    pub fn of(&self, family: Family, stage: Stage) -> &Histogram<u64> {
        &self.histograms[index(family, stage)]
    }

    pub fn sum_us(&self, family: Family, stage: Stage) -> u64 {
        self.sums_us[index(family, stage)]
    }

    /// Adds what the other one holds.
    pub fn merge(&mut self, other: &Latencies) {
        for (mine, theirs) in self.histograms.iter_mut().zip(&other.histograms) {
            mine.add(theirs)
                .expect("all histograms are made with the same bounds");
        }
        for (mine, theirs) in self.sums_us.iter_mut().zip(&other.sums_us) {
            *mine = mine.wrapping_add(*theirs);
        }
    }

    fn clear(&mut self) {
        self.histograms.iter_mut().for_each(Histogram::reset);
        self.sums_us.fill(0);
    }
}

fn index(family: Family, stage: Stage) -> usize {
    family as usize * Stage::ALL.len() + stage as usize
}

/// Where the two sets of one core change hands.
pub(super) struct Exchange {
    /// Set by the reader, cleared by the core.
    wanted: AtomicBool,
    /// Core to reader.
    filled: AtomicCell<Option<Box<Latencies>>>,
    /// Reader to core.
    empty: AtomicCell<Option<Box<Latencies>>>,
}

impl Exchange {
    pub(super) fn new() -> Arc<Exchange> {
        Arc::new(Exchange {
            wanted: AtomicBool::new(true),
            filled: AtomicCell::new(None),
            empty: AtomicCell::new(Some(Box::default())),
        })
    }

    /// Merges what the core has handed over since, and asks for more.
    pub(super) fn collect(&self, totals: &mut Latencies) {
        if let Some(mut filled) = self.filled.take() {
            totals.merge(&filled);
            filled.clear();
            self.empty.store(Some(filled));
        }
        self.wanted.store(true, Relaxed);
    }
}

/// The core's end.
pub struct Recorder {
    current: Box<Latencies>,
    exchange: Arc<Exchange>,
}

impl Recorder {
    pub(super) fn new(exchange: Arc<Exchange>) -> Recorder {
        Recorder {
            current: Box::default(),
            exchange,
        }
    }

    pub fn record(&mut self, family: Family, stage: Stage, us: u64) {
        self.current.record(family, stage, us);
    }

    /// To be called at the end of every turn: hands over if the reader asked.
    pub fn turn_end(&mut self) {
        if !self.exchange.wanted.load(Relaxed) {
            return;
        }
        if let Some(empty) = self.exchange.empty.take() {
            let filled = std::mem::replace(&mut self.current, empty);
            self.exchange.wanted.store(false, Relaxed);
            self.exchange.filled.store(Some(filled));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Recorder, Arc<Exchange>, Latencies) {
        let exchange = Exchange::new();
        (
            Recorder::new(Arc::clone(&exchange)),
            exchange,
            Latencies::default(),
        )
    }

    #[test]
    fn the_exchange_never_locks() {
        assert!(AtomicCell::<Option<Box<Latencies>>>::is_lock_free());
    }

    #[test]
    fn nothing_is_lost_or_counted_twice_whoever_is_late() {
        let (mut recorder, exchange, mut totals) = pair();
        let mut recorded = 0;
        for round in 0..20 {
            for _ in 0..round {
                recorder.record(Family::Produce, Stage::Total, 100);
                recorded += 1;
            }
            if round % 3 != 0 {
                recorder.turn_end();
            }
            if round % 2 == 0 {
                exchange.collect(&mut totals);
            }
        }
        for _ in 0..2 {
            recorder.turn_end();
            exchange.collect(&mut totals);
        }
        assert_eq!(totals.of(Family::Produce, Stage::Total).len(), recorded);
        assert_eq!(totals.sum_us(Family::Produce, Stage::Total), 100 * recorded);
        assert_eq!(totals.of(Family::Fetch, Stage::Total).len(), 0);
    }

    #[test]
    fn a_wait_of_hours_counts_as_the_longest() {
        let (mut recorder, _, _) = pair();
        recorder.record(Family::Other, Stage::Send, u64::MAX);
        let longest = recorder.current.of(Family::Other, Stage::Send).max();
        assert!(longest >= LONGEST_US, "{longest}");
    }

    #[test]
    fn two_threads_exchange_without_losing_anything() {
        let (mut recorder, exchange, mut totals) = pair();
        let core = std::thread::spawn(move || {
            for _ in 0..10_000 {
                recorder.record(Family::Fetch, Stage::Owners, 7);
                recorder.turn_end();
            }
            recorder
        });
        while !core.is_finished() {
            exchange.collect(&mut totals);
        }
        let mut recorder = core.join().unwrap();
        for _ in 0..2 {
            recorder.turn_end();
            exchange.collect(&mut totals);
        }
        assert_eq!(totals.of(Family::Fetch, Stage::Owners).len(), 10_000);
    }
}
