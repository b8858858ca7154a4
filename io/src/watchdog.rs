//! Notices cores that stand still.
//!
//! A healthy core comes to its wait at least every 50 ms (`turn::BLOCK_MAX`), each time with a beat.
//! A core without a beat for longer is poked first: its doorbell is rung and its executor is woken,
//! because glommio can park although tasks are runnable. A core without a beat for the stall time is
//! reported once, with a WARN, until it moves again.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::turn::{BLOCK_MAX, Doorbell};

/// A core is poked after this long without a beat: three waits.
const POKE_AFTER: Duration = BLOCK_MAX.saturating_mul(3);

/// The thread that looks after all cores; stops with the value.
#[derive(Debug)]
pub struct Watchdog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    cores: Mutex<Vec<Watched>>,
    stalls: AtomicU64,
    pokes: AtomicU64,
    stop: AtomicBool,
}

#[derive(Debug)]
struct Watched {
    name: String,
    doorbell: Doorbell,
    waker: Waker,
    state: State,
}

/// What is known about one core; pure.
#[derive(Debug)]
struct State {
    beats: u64,
    since: Instant,
    reported: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Finding {
    Alive,
    /// It moves again after it was reported; it stood this long.
    Recovered(Duration),
    Poke,
    /// Report it, and poke it.
    Stalled(Duration),
}

impl State {
    fn look(&mut self, beats: u64, now: Instant, stall: Duration) -> Finding {
        let still = now.saturating_duration_since(self.since);
        if beats != self.beats {
            self.beats = beats;
            self.since = now;
            return if std::mem::take(&mut self.reported) {
                Finding::Recovered(still)
            } else {
                Finding::Alive
            };
        }
        if still >= stall && !self.reported {
            self.reported = true;
            return Finding::Stalled(still);
        }
        if still >= POKE_AFTER {
            Finding::Poke
        } else {
            Finding::Alive
        }
    }
}

impl Watchdog {
    /// Reports cores that stand still for `stall` (default of the broker: one second).
    pub fn start(stall: Duration) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            cores: Mutex::new(Vec::new()),
            stalls: AtomicU64::new(0),
            pokes: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let looked_after = shared.clone();
        let thread = thread::Builder::new()
            .name("watchdog".into())
            .spawn(move || looked_after.run(stall))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Looks after one more core; `poke` is from `CoreHandle::poke`.
    pub fn watch(&self, name: &str, doorbell: Doorbell, poke: Waker) {
        let state = State {
            beats: doorbell.beats(),
            since: Instant::now(),
            reported: false,
        };
        let core = Watched {
            name: name.to_owned(),
            doorbell,
            waker: poke,
            state,
        };
        self.shared
            .cores
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(core);
    }

    /// Cores found standing still since the start.
    pub fn stalls(&self) -> u64 {
        self.shared.stalls.load(Ordering::Relaxed)
    }

    /// Cores poked since the start.
    pub fn pokes(&self) -> u64 {
        self.shared.pokes.load(Ordering::Relaxed)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            drop(thread.join());
        }
    }
}

impl Shared {
    fn run(&self, stall: Duration) {
        while !self.stop.load(Ordering::Acquire) {
            thread::park_timeout(BLOCK_MAX);
            for core in self
                .cores
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .iter_mut()
            {
                self.look_after(core, stall);
            }
        }
    }

    fn look_after(&self, core: &mut Watched, stall: Duration) {
        match core
            .state
            .look(core.doorbell.beats(), Instant::now(), stall)
        {
            Finding::Alive => return,
            Finding::Recovered(still) => {
                tracing::info!(
                    core = core.name,
                    still_ms = still.as_millis(),
                    "the core moves again"
                );
                return;
            }
            Finding::Poke => {}
            Finding::Stalled(still) => {
                self.stalls.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    core = core.name,
                    still_ms = still.as_millis(),
                    "a core stands still"
                );
            }
        }
        self.pokes.fetch_add(1, Ordering::Relaxed);
        core.doorbell.ring_always();
        core.waker.wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_poked_then_reported_once_and_seen_to_recover() {
        let start = Instant::now();
        let mut state = State {
            beats: 7,
            since: start,
            reported: false,
        };
        let stall = Duration::from_secs(1);
        let mut look = |beats, ms| state.look(beats, start + Duration::from_millis(ms), stall);
        assert_eq!(look(8, 50), Finding::Alive);
        assert_eq!(look(8, 100), Finding::Alive);
        assert_eq!(look(8, 200), Finding::Poke);
        assert_eq!(look(8, 1050), Finding::Stalled(Duration::from_secs(1)));
        assert_eq!(look(8, 1100), Finding::Poke);
        assert_eq!(
            look(9, 1250),
            Finding::Recovered(Duration::from_millis(1200))
        );
        assert_eq!(look(9, 1300), Finding::Alive);
    }
}
