//! The clocks of a broker: read once a turn, handed to shards as an argument.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use corelog_shards::base::time::{Mono, Now};

/// The same start on every core, so that moments can be compared between cores.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    pub fn starting_now() -> Clock {
        Clock {
            start: Instant::now(),
        }
    }

    pub fn now(&self) -> Now {
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Now {
            mono: Mono(self.start.elapsed().as_micros() as u64),
            wall_ms: wall.as_millis() as i64,
        }
    }
}
