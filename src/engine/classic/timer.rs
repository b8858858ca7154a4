//! When the timer thread has to look next. Whoever makes something due earlier wakes it.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use corelog_shards::base::time::Mono;

/// A moment at which something is due: written by who holds the thing, read by the timer.
pub(super) struct Due(AtomicU64);

/// Nothing is due ever.
const NEVER: u64 = u64::MAX;

impl Due {
    pub(super) fn never() -> Due {
        Due(AtomicU64::new(NEVER))
    }

    pub(super) fn is_at_or_before(&self, now: Mono) -> bool {
        self.0.load(SeqCst) <= now.0
    }
}

#[derive(Default)]
pub(super) struct Alarm {
    /// The moment until which the timer thread sleeps; 0 while it is awake.
    until: AtomicU64,
    rung: Mutex<bool>,
    bell: Condvar,
}

impl Alarm {
    /// `due` is at `at` now.
    pub(super) fn set(&self, due: &Due, at: Option<Mono>) {
        let at = at.map_or(NEVER, |at| at.0);
        // The timer says how long it sleeps and then looks once more; this says when it is due and then looks how long the timer sleeps. One of
        // the two sees the other.
        due.0.store(at, SeqCst);
        if at < self.until.load(SeqCst) {
            *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.bell.notify_one();
        }
    }

    /// Sleeps until something of `dues` is due, or until `latest`. Only the timer thread comes here.
    pub(super) fn wait<'a>(
        &self,
        now: impl Fn() -> Mono,
        latest: Mono,
        dues: impl Fn() -> Box<dyn Iterator<Item = &'a Due> + 'a>,
    ) {
        let earliest = || {
            let dues = dues().map(|due| due.0.load(SeqCst));
            dues.min().unwrap_or(NEVER).min(latest.0)
        };
        let until = earliest();
        self.until.store(until, SeqCst);
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let left = until.saturating_sub(now().0);
        if earliest() >= until && !*rung && left > 0 {
            rung = self
                .bell
                .wait_timeout(rung, Duration::from_micros(left))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        *rung = false;
        self.until.store(0, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn what_becomes_due_earlier_wakes_the_timer() {
        let (alarm, due) = (Arc::new(Alarm::default()), Arc::new(Due::never()));
        let waiting = {
            let (alarm, due) = (Arc::clone(&alarm), Arc::clone(&due));
            thread::spawn(move || {
                // An hour, unless it is woken.
                while !due.is_at_or_before(Mono(5)) {
                    alarm.wait(
                        || Mono(0),
                        Mono(3_600_000_000),
                        || Box::new(std::iter::once(&*due)),
                    );
                }
            })
        };
        alarm.set(&due, Some(Mono(5)));
        waiting.join().unwrap();
    }

    #[test]
    fn what_is_due_already_is_not_waited_for() {
        let (alarm, due) = (Alarm::default(), Due::never());
        alarm.set(&due, Some(Mono(7)));
        alarm.wait(
            || Mono(7),
            Mono(3_600_000_000),
            || Box::new(std::iter::once(&due)),
        );
        assert!(due.is_at_or_before(Mono(7)));
    }
}
