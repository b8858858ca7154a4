//! The line that a long run writes over and over on a terminal: what goes on, how fast, and how late.

use std::io::{IsTerminal as _, Write as _};

use crate::recorded::Recorded;

const BAR_WIDTH: u64 = 20;

#[derive(Debug)]
pub(crate) struct Progress {
    what: String,
    seconds: u64,
    records_per_batch: u64,
    batches_before: u64,
    is_shown: bool,
}

impl Progress {
    pub(crate) fn new(what: String, seconds: f64, records_per_batch: u32) -> Progress {
        Progress {
            what,
            seconds: seconds.ceil() as u64,
            records_per_batch: u64::from(records_per_batch),
            batches_before: 0,
            is_shown: std::io::stderr().is_terminal(),
        }
    }

    pub(crate) fn second(&mut self, second: u64, recorded: &Recorded) {
        let line = self.line(second, recorded);
        self.batches_before = recorded.batches;
        if self.is_shown {
            // Without a terminal there is nobody who waits for it.
            let _ = write!(std::io::stderr(), "\r{line}\x1b[K");
        }
    }

    fn line(&self, second: u64, recorded: &Recorded) -> String {
        let done = (second * BAR_WIDTH / self.seconds.max(1)).min(BAR_WIDTH) as usize;
        let bar = "━".repeat(done) + &"·".repeat(BAR_WIDTH as usize - done);
        let rate = (recorded.batches - self.batches_before) * self.records_per_batch;
        let interval = recorded.latency.interval(second as usize - 1);
        let p99 = interval
            .filter(|interval| !interval.histogram().is_empty())
            .map_or_else(
                || "no answer".to_owned(),
                |interval| format!("p99 {:.2} ms", interval.micros_at(0.99) / 1e3),
            );
        format!(
            "{} {bar} {second}/{} s  {rate} records/s  {p99}",
            self.what, self.seconds
        )
    }

    pub(crate) fn end(&self) {
        if self.is_shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_the_rate_and_the_tail_of_the_last_second() {
        let mut progress = Progress::new("b1 percore #2".to_owned(), 10.0, 160);
        let mut recorded = Recorded::default();
        for _ in 0..100 {
            recorded.latency.record(0, 1_000_000);
        }
        recorded.batches = 100;
        progress.second(1, &recorded);
        recorded.batches = 150;
        let line = progress.line(2, &recorded);
        assert_eq!(
            line,
            "b1 percore #2 ━━━━················ 2/10 s  8000 records/s  no answer"
        );
        recorded.latency.record(1_500_000_000, 3_000_000);
        assert!(progress.line(2, &recorded).ends_with("p99 3.00 ms"));
    }
}
