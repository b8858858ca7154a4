//! When batches are due: fixed before the run, whatever the broker does.
//!
//! A time is nanoseconds since the run began. Because batch number `n` is due at `n × interval`, computed afresh each time, rounding does not add up
//! and a late sender catches up instead of sending less.

/// A constant rate.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    interval_ns: f64,
    next: u64,
    /// Nothing is due from here on.
    end_ns: u64,
}

impl Schedule {
    pub(crate) fn constant(batches_per_second: f64, end_ns: u64) -> Schedule {
        Schedule {
            interval_ns: 1e9 / batches_per_second,
            next: 0,
            end_ns,
        }
    }

    /// When the next batch is due.
    pub(crate) fn peek(&self) -> Option<u64> {
        let due = (self.next as f64 * self.interval_ns) as u64;
        (due < self.end_ns).then_some(due)
    }

    /// Takes the next batch if it is due: its number and its time.
    pub(crate) fn take_due(&mut self, now_ns: u64) -> Option<(u64, u64)> {
        let due = self.peek().filter(|due| *due <= now_ns)?;
        let number = self.next;
        self.next += 1;
        Some((number, due))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(schedule: &mut Schedule, now_ns: u64) -> Vec<(u64, u64)> {
        std::iter::from_fn(|| schedule.take_due(now_ns)).collect()
    }

    #[test]
    fn a_late_sender_gets_all_that_was_due_with_the_times_it_was_due() {
        let mut schedule = Schedule::constant(1000.0, u64::MAX);
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
        let hour = 3_600_000_000_000;
        let mut schedule = Schedule::constant(7.0, hour);
        let mut count = 0;
        while schedule.take_due(hour).is_some() {
            count += 1;
        }
        assert_eq!(count, 7 * 3600);
        assert_eq!(schedule.peek(), None);
    }
}
