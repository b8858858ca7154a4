//! A request handler: takes what the processors have read, one after the other, and carries it out to where it waits or is answered.

use std::sync::Arc;
use std::time::Duration;

use super::house::{Blocking, House, Jobs};
use super::queue::Work;

/// Waits no longer than this for a request (as Kafka's do), so that idle time shows while it passes.
const POLL_MAX: Duration = Duration::from_millis(300);

/// Ends only with the process.
pub(super) fn run(house: &Arc<House>, number: u16) {
    let mut jobs = Jobs::new(Blocking::Here);
    let mut free_since = house.now().mono;
    loop {
        let work = house.queue().pop(POLL_MAX);
        let taken = house.now().mono;
        let counters = house.handler_counters(number);
        let waited = taken.0.saturating_sub(free_since.0);
        counters.idle_us.add(waited);
        house.pools().handlers[usize::from(number)].add(waited);
        match work {
            Some(Work::Request(request)) => house.begin(number, request, &mut jobs),
            Some(Work::Read(read)) => house.resume(read, &mut jobs),
            None => {}
        }
        free_since = house.now().mono;
        counters.busy_us.add(free_since.0.saturating_sub(taken.0));
        counters.turns.increment();
    }
}
