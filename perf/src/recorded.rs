//! What the client saw: latencies in histograms, counts, and what is made of them.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::Failure;

/// A percentile is shown only where at least this many samples lie above it.
const SAMPLES_ABOVE_MIN: f64 = 10.0;

/// Latencies in nanoseconds, three digits exact.
#[derive(Debug, Clone)]
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(crate) fn new() -> Latencies {
        Latencies(Histogram::new(3).expect("three digits are within what the crate takes"))
    }

    pub(crate) fn record(&mut self, nanoseconds: u64) {
        // The histogram grows as needed, so that nothing is cut off.
        self.0
            .record(nanoseconds)
            .expect("a growing histogram takes every value");
    }

    pub(crate) fn summary(&self) -> Option<Summary> {
        (!self.0.is_empty()).then(|| Summary {
            count: self.0.len(),
            p50_us: self.micros_at(0.5),
            p99_us: self.shown(0.99),
            p999_us: self.shown(0.999),
            p9999_us: self.shown(0.9999),
            max_us: self.0.max() as f64 / 1e3,
        })
    }

    fn micros_at(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1e3
    }

    fn shown(&self, quantile: f64) -> Option<f64> {
        let above = self.0.len() as f64 * (1.0 - quantile);
        (above.round() >= SAMPLES_ABOVE_MIN).then(|| self.micros_at(quantile))
    }
}

/// Percentiles; those that the count of samples does not carry are missing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub count: u64,
    pub p50_us: f64,
    pub p99_us: Option<f64>,
    pub p999_us: Option<f64>,
    pub p9999_us: Option<f64>,
    pub max_us: f64,
}

/// One run, as the client saw it.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    /// From the intended time to the answer.
    pub(crate) latency: Latencies,
    /// From the time the request was sent to the answer.
    pub(crate) service: Latencies,
    /// From the intended time to the consumer's receipt.
    pub(crate) end_to_end: Latencies,
    /// Batches answered (or, when only reading, received) within the measured time.
    pub(crate) batches: u64,
    /// Bytes of batches received by consumers within the measured time.
    pub(crate) fetched_bytes: u64,
    /// Sent, and neither answered nor refused when the run ended.
    pub(crate) unanswered: u64,
    /// Produced, and not seen by a consumer when the run ended.
    pub(crate) unseen: u64,
}

impl Recorded {
    pub(crate) fn new() -> Recorded {
        Recorded {
            latency: Latencies::new(),
            service: Latencies::new(),
            end_to_end: Latencies::new(),
            batches: 0,
            fetched_bytes: 0,
            unanswered: 0,
            unseen: 0,
        }
    }
}

/// The middle of some numbers, and how far they lie apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) lowest: f64,
    pub(crate) highest: f64,
}

impl Spread {
    pub(crate) fn of(numbers: impl IntoIterator<Item = f64>) -> Result<Spread, Failure> {
        let mut sorted: Vec<f64> = numbers.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (Some(lowest), Some(highest)) = (sorted.first(), sorted.last()) else {
            return Err(Failure::told("nothing was measured"));
        };
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Ok(Spread {
            median,
            lowest: *lowest,
            highest: *highest,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_needs_ten_samples_above_it() {
        let mut latencies = Latencies::new();
        assert_eq!(latencies.summary(), None);
        for value in 1..=1000 {
            latencies.record(value * 1000);
        }
        let summary = latencies.summary().unwrap();
        assert_eq!(summary.count, 1000);
        assert!((summary.p50_us - 500.0).abs() < 1.0, "{summary:?}");
        assert!((summary.p99_us.unwrap() - 990.0).abs() < 1.0, "{summary:?}");
        assert_eq!((summary.p999_us, summary.p9999_us), (None, None));
    }

    #[test]
    fn a_stall_of_an_hour_is_not_cut_off() {
        let mut latencies = Latencies::new();
        latencies.record(3_600_000_000_000);
        let max_us = latencies.summary().unwrap().max_us;
        assert!((max_us / 3.6e9 - 1.0).abs() < 0.001, "{max_us}");
    }

    #[test]
    fn the_median_of_an_even_count_lies_between() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(
            spread,
            Spread {
                median: 2.5,
                lowest: 1.0,
                highest: 4.0
            }
        );
        assert!(Spread::of([]).is_err());
    }
}
