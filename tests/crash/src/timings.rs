//! A few durations and how they are spread.

use std::fmt;
use std::time::Duration;

#[derive(Default)]
pub(crate) struct Timings(Vec<Duration>);

impl Timings {
    pub(crate) fn add(&mut self, took: Duration) {
        self.0.push(took);
    }
}

impl fmt::Display for Timings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let Some(last) = sorted.len().checked_sub(1) else {
            return f.write_str("nothing was timed");
        };
        let at = |share: f64| sorted[(last as f64 * share).round() as usize].as_secs_f64() * 1e3;
        write!(
            f,
            "min {:.0}, median {:.0}, p90 {:.0}, p99 {:.0}, max {:.0} ms ({} times)",
            at(0.0),
            at(0.5),
            at(0.9),
            at(0.99),
            at(1.0),
            sorted.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_sorted_durations() {
        let mut timings = Timings::default();
        for ms in [30, 10, 20] {
            timings.add(Duration::from_millis(ms));
        }
        assert_eq!(
            timings.to_string(),
            "min 10, median 20, p90 30, p99 30, max 30 ms (3 times)"
        );
    }
}
