//! What the client saw: latencies in histograms, counts, and what is made of them.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::Failure;

/// A percentile is shown only where at least this many samples lie above it.
const SAMPLES_ABOVE_MIN: f64 = 10.0;

/// The length of an interval of the interval logs.
pub(crate) const INTERVAL_NS: u64 = 1_000_000_000;

/// Latencies in nanoseconds, three digits exact.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies::new()
    }
}

impl Latencies {
    pub(crate) fn new() -> Latencies {
        Latencies(Histogram::new(3).expect("three digits are within what the crate takes"))
    }

    pub(crate) fn of(histogram: Histogram<u64>) -> Latencies {
        Latencies(histogram)
    }

    pub(crate) fn histogram(&self) -> &Histogram<u64> {
        &self.0
    }

    pub(crate) fn record(&mut self, nanoseconds: u64) {
        // The histogram grows as needed, so that nothing is cut off.
        self.0
            .record(nanoseconds)
            .expect("a growing histogram takes every value");
    }

    /// Histograms are merged; percentiles never are.
    pub(crate) fn add(&mut self, other: &Latencies) {
        self.0
            .add(&other.0)
            .expect("a growing histogram takes every other");
    }

    pub(crate) fn summary(&self) -> Option<Summary> {
        (!self.0.is_empty()).then(|| Summary {
            count: self.0.len(),
            mean_us: self.0.mean() / 1e3,
            p50_us: self.micros_at(0.5),
            p99_us: self.shown(0.99),
            p999_us: self.shown(0.999),
            p9999_us: self.shown(0.9999),
            max_us: self.0.max() as f64 / 1e3,
        })
    }

    pub(crate) fn micros_at(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1e3
    }

    /// The percentile, if the count of samples carries it.
    pub(crate) fn shown(&self, quantile: f64) -> Option<f64> {
        let above = self.0.len() as f64 * (1.0 - quantile);
        (above.round() >= SAMPLES_ABOVE_MIN).then(|| self.micros_at(quantile))
    }
}

/// Latencies by the second in which they ended, counted from the beginning of the measured time.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Series(pub(crate) Vec<Latencies>);

impl Series {
    pub(crate) fn record(&mut self, ended_ns: u64, nanoseconds: u64) {
        let interval = (ended_ns / INTERVAL_NS) as usize;
        if interval >= self.0.len() {
            self.0.resize_with(interval + 1, Latencies::new);
        }
        self.0[interval].record(nanoseconds);
    }

    pub(crate) fn merged(&self) -> Latencies {
        let mut merged = Latencies::new();
        for interval in &self.0 {
            merged.add(interval);
        }
        merged
    }

    pub(crate) fn interval(&self, number: usize) -> Option<&Latencies> {
        self.0.get(number)
    }
}

/// Percentiles; those that the count of samples does not carry are missing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub count: u64,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p99_us: Option<f64>,
    pub p999_us: Option<f64>,
    pub p9999_us: Option<f64>,
    pub max_us: f64,
}

/// One run, as the client saw it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recorded {
    /// From the intended time to the answer.
    pub(crate) latency: Series,
    /// From the time the request was sent to the answer.
    pub(crate) service: Series,
    /// From the intended time to the consumer's receipt.
    pub(crate) end_to_end: Series,
    /// Batches answered (or, when only reading, received) within the measured time.
    pub(crate) batches: u64,
    /// Bytes of batches received by consumers within the measured time.
    pub(crate) fetched_bytes: u64,
    /// Sent, and neither answered nor refused when the run ended.
    pub(crate) unanswered: u64,
    /// Produced, and not seen by a consumer when the run ended.
    pub(crate) unseen: u64,
    /// Until the backlog had been read; missing if it was not.
    pub(crate) caught_up_seconds: Option<f64>,
    /// Somebody ended the run early.
    pub(crate) interrupted: bool,
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
    fn intervals_are_merged_by_histogram() {
        let mut series = Series::default();
        // A second of 990 fast ones and a second of 10 slow ones: the mean of both p99 would say 500 ms.
        for _ in 0..990 {
            series.record(5, 1_000_000);
        }
        for _ in 0..10 {
            series.record(3 * INTERVAL_NS, 1_000_000_000);
        }
        assert_eq!(series.0.len(), 4);
        let merged = series.merged();
        assert_eq!(merged.summary().unwrap().count, 1000);
        let p99 = merged.shown(0.99).unwrap();
        assert!((p99 - 1000.0).abs() < 2.0, "{p99}");
        assert_eq!(series.interval(1), Some(&Latencies::new()));
        assert_eq!(series.interval(4), None);
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
