//! The shard: everything that one owner owns.

use crate::base::ids::ShardId;
use crate::base::time::{Mono, Now};
use crate::effect::Outbox;
use crate::event::Event;

pub struct Shard {
    pub id: ShardId,
}

impl Shard {
    /// Takes one fact, adds wishes to `out`. Never waits, never fails.
    pub fn on(&mut self, now: Now, event: Event, out: &mut Outbox) {
        let _ = (now, event, out);
    }

    /// When `Event::Tick` is due; `None` = nothing waits for time.
    pub fn next_deadline(&self) -> Option<Mono> {
        None
    }
}
