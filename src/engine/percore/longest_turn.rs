//! The CPU time of the longest turn of the last seconds.

use std::time::Duration;

use corelog_io::cpu::thread_cpu_time;
use corelog_shards::base::time::Mono;

/// A turn that is over sooner is not looked at: reading the thread's clock is a system call.
const LOOK_AT_US: u64 = 300;
/// What is shown is of this window and the one before.
const WINDOW_US: u64 = 10_000_000;

/// See the module.
pub(super) struct LongestTurn {
    begun: Duration,
    window_end: Mono,
    this_window_us: u64,
    last_window_us: u64,
}

impl LongestTurn {
    pub(super) fn new(now: Mono) -> LongestTurn {
        LongestTurn {
            begun: Duration::ZERO,
            window_end: Mono(now.0 + WINDOW_US),
            this_window_us: 0,
            last_window_us: 0,
        }
    }

    /// The core has something to do.
    pub(super) fn begin(&mut self) {
        self.begun = thread_cpu_time();
    }

    /// It has done it, `took_us` later by the clock on the wall. Gives the CPU time of the turn, or 0 if it was not worth a look.
    pub(super) fn end(&mut self, now: Mono, took_us: u64) -> u64 {
        let mut us = 0;
        if took_us >= LOOK_AT_US {
            us = thread_cpu_time().saturating_sub(self.begun).as_micros() as u64;
        }
        self.note(now, us);
        us
    }

    fn note(&mut self, now: Mono, us: u64) {
        if now >= self.window_end {
            // A core that slept through a window has nothing to show of it.
            let slept = now.0 - self.window_end.0 >= WINDOW_US;
            self.last_window_us = if slept { 0 } else { self.this_window_us };
            self.this_window_us = 0;
            self.window_end = Mono(now.0 + WINDOW_US);
        }
        self.this_window_us = self.this_window_us.max(us);
    }

    pub(super) fn us(&self) -> u64 {
        self.this_window_us.max(self.last_window_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_turn_is_shown_for_a_window_and_the_one_after() {
        let mut longest = LongestTurn::new(Mono(0));
        longest.note(Mono(1), 700);
        longest.note(Mono(2), 500);
        assert_eq!(longest.us(), 700);
        longest.note(Mono(WINDOW_US), 100);
        assert_eq!(longest.us(), 700);
        longest.note(Mono(2 * WINDOW_US), 200);
        assert_eq!(longest.us(), 200);
        longest.note(Mono(9 * WINDOW_US), 0);
        assert_eq!(longest.us(), 0);
    }

    #[test]
    fn a_short_turn_costs_no_look() {
        let mut longest = LongestTurn::new(Mono(0));
        longest.begin();
        assert_eq!(longest.end(Mono(1), LOOK_AT_US - 1), 0);
    }
}
