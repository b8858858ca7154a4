//! When batches are due: fixed before the run, whatever the broker does.
//!
//! A time is nanoseconds since the run began. With a constant rate batch number `n` is due at `n × interval`, computed afresh each time, so rounding does
//! not add up; with Poisson arrivals the times between batches are exponential. Either way a late sender catches up instead of sending less.

use crate::workload::Arrivals;

/// The same in every run, so that every target gets the same arrivals.
const SEED: u64 = 0x5eed_c0de;

/// Pseudo-random numbers (SplitMix64): small, and the same everywhere.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn seeded(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// Above 0, at most 1.
    fn share(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    interval_ns: f64,
    arrivals: Arrivals,
    random: Random,
    number: u64,
    /// When number `number` is due.
    due_ns: f64,
    /// Nothing is due from here on.
    end_ns: u64,
}

impl Schedule {
    pub(crate) fn new(arrivals: Arrivals, batches_per_second: f64, end_ns: u64) -> Schedule {
        let mut schedule = Schedule {
            interval_ns: 1e9 / batches_per_second,
            arrivals,
            random: Random::seeded(SEED),
            number: 0,
            due_ns: 0.0,
            end_ns,
        };
        if arrivals == Arrivals::Poisson {
            schedule.due_ns = schedule.pause();
        }
        schedule
    }

    fn pause(&mut self) -> f64 {
        -self.random.share().ln() * self.interval_ns
    }

    /// When the next batch is due.
    pub(crate) fn peek(&self) -> Option<u64> {
        let due = self.due_ns as u64;
        (due < self.end_ns).then_some(due)
    }

    /// Takes the next batch if it is due: its number and its time.
    pub(crate) fn take_due(&mut self, now_ns: u64) -> Option<(u64, u64)> {
        let due = self.peek().filter(|due| *due <= now_ns)?;
        let number = self.number;
        self.number += 1;
        self.due_ns = match self.arrivals {
            Arrivals::Constant => self.number as f64 * self.interval_ns,
            Arrivals::Poisson => self.due_ns + self.pause(),
        };
        Some((number, due))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000_000_000;

    fn taken(schedule: &mut Schedule, now_ns: u64) -> Vec<(u64, u64)> {
        std::iter::from_fn(|| schedule.take_due(now_ns)).collect()
    }

    #[test]
    fn a_late_sender_gets_all_that_was_due_with_the_times_it_was_due() {
        let mut schedule = Schedule::new(Arrivals::Constant, 1000.0, u64::MAX);
        assert_eq!(taken(&mut schedule, 0), [(0, 0)]);
        assert_eq!(taken(&mut schedule, 999_999), []);
        assert_eq!(
            taken(&mut schedule, 3_500_000),
            [(1, 1_000_000), (2, 2_000_000), (3, 3_000_000)]
        );
        assert_eq!(schedule.peek(), Some(4_000_000));
    }

    #[test]
    fn a_rate_that_does_not_divide_a_second_is_kept_over_a_long_run() {
        let mut schedule = Schedule::new(Arrivals::Constant, 7.0, HOUR);
        assert_eq!(taken(&mut schedule, HOUR).len(), 7 * 3600);
        assert_eq!(schedule.peek(), None);
    }

    #[test]
    fn independent_arrivals_have_the_rate_and_the_spread_of_poisson() {
        let mut schedule = Schedule::new(Arrivals::Poisson, 50.0, HOUR);
        let times = taken(&mut schedule, HOUR);
        let expected = 50.0 * 3600.0;
        let off = (times.len() as f64 - expected).abs() / expected;
        assert!(off < 0.01, "{} of {expected}", times.len());
        // Of exponential pauses e⁻¹ are longer than the mean; of constant ones none.
        let mean = 2e7;
        let long = times
            .windows(2)
            .filter(|pair| (pair[1].1 - pair[0].1) as f64 > mean);
        let share = long.count() as f64 / times.len() as f64;
        assert!((share - (-1.0_f64).exp()).abs() < 0.01, "{share}");
    }

    #[test]
    fn every_run_has_the_same_arrivals() {
        let times = || {
            taken(
                &mut Schedule::new(Arrivals::Poisson, 1000.0, HOUR),
                1_000_000_000,
            )
        };
        assert!(times().len() > 900);
        assert_eq!(times(), times());
    }
}
