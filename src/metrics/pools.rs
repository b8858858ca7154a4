//! Threads of the classic engine: how idle they are, and what waits between them.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use super::counters::{Counter, Gauge};

/// Idle shares are those of the last minute, or of the time since the start if that is shorter (Kafka: a rate of one minute for handlers, a window of 30
/// to 60 s for selectors).
const WINDOW: Duration = Duration::from_mins(1);

/// One network thread.
#[derive(Debug, Default)]
pub struct Processor {
    /// Microseconds in its selector.
    pub idle_us: Counter,
    /// Answers that it has not taken yet.
    pub responses: Gauge,
}

/// Everything that the pools of threads count.
#[derive(Debug)]
pub struct Pools {
    pub processors: Box<[CachePadded<Processor>]>,
    /// Microseconds that each handler waited for a request.
    pub handlers: Box<[CachePadded<Counter>]>,
    /// Requests that wait for a handler.
    pub queue: Gauge,
    /// Times that a processor found the queue full. Added to by several threads.
    pub queue_full: Counter,
    pub request_bytes_free: Gauge,
    pub request_bytes_used: Gauge,
    samples: Mutex<VecDeque<Sample>>,
}

#[derive(Debug)]
struct Sample {
    at: Instant,
    processors_us: Vec<u64>,
    handlers_us: u64,
}

/// Shares of time from 0 to 1.
#[derive(Debug, PartialEq)]
pub(super) struct Idle {
    pub(super) processors: Vec<f64>,
    pub(super) processors_avg: f64,
    pub(super) handlers_avg: f64,
}

impl Pools {
    pub fn new(processors: usize, handlers: usize) -> Pools {
        let pools = Pools {
            processors: (0..processors).map(|_| CachePadded::default()).collect(),
            handlers: (0..handlers).map(|_| CachePadded::default()).collect(),
            queue: Gauge::default(),
            queue_full: Counter::default(),
            request_bytes_free: Gauge::default(),
            request_bytes_used: Gauge::default(),
            samples: Mutex::default(),
        };
        pools.sample(Instant::now());
        pools
    }

    /// Notes how idle the threads have been. Called about once a second.
    pub(super) fn sample(&self, at: Instant) {
        let sample = self.take(at);
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.push_back(sample);
        // One that is older than the window stays, as its beginning.
        while samples
            .get(1)
            .is_some_and(|second| at.duration_since(second.at) >= WINDOW)
        {
            samples.pop_front();
        }
    }

    pub(super) fn idle(&self, at: Instant) -> Idle {
        let now = self.take(at);
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let first = samples.front().unwrap_or(&now);
        let window_us = at.duration_since(first.at).as_micros() as f64;
        let share = |us: u64, threads: usize| {
            let whole = window_us * threads as f64;
            if whole > 0.0 {
                (us as f64 / whole).min(1.0)
            } else {
                0.0
            }
        };
        let each = now.processors_us.iter().zip(&first.processors_us);
        let processors: Vec<f64> = each
            .map(|(now, first)| share(now.saturating_sub(*first), 1))
            .collect();
        let handlers_us = now.handlers_us.saturating_sub(first.handlers_us);
        Idle {
            processors_avg: processors.iter().sum::<f64>() / processors.len().max(1) as f64,
            processors,
            handlers_avg: share(handlers_us, self.handlers.len()),
        }
    }

    fn take(&self, at: Instant) -> Sample {
        Sample {
            at,
            processors_us: self
                .processors
                .iter()
                .map(|one| one.idle_us.get())
                .collect(),
            handlers_us: self.handlers.iter().map(|one| one.get()).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_shares_are_those_of_the_last_minute() {
        let pools = Pools::new(2, 4);
        let start = pools.samples.lock().unwrap()[0].at;
        let after = |seconds| start + Duration::from_secs(seconds);
        pools.processors[0].idle_us.add(10_000_000);
        pools.processors[1].idle_us.add(5_000_000);
        pools.handlers[0].add(10_000_000);
        pools.handlers[3].add(10_000_000);
        let idle = pools.idle(after(10));
        assert_eq!(idle.processors, [1.0, 0.5]);
        assert!((idle.processors_avg - 0.75).abs() < 1e-9);
        assert!((idle.handlers_avg - 0.5).abs() < 1e-9);
        // Busy ever since: the first ten seconds leave the window.
        for second in 10..=100 {
            pools.sample(after(second));
        }
        assert_eq!(pools.samples.lock().unwrap().len(), 61);
        let idle = pools.idle(after(100));
        assert_eq!((idle.processors_avg, idle.handlers_avg), (0.0, 0.0));
    }
}
