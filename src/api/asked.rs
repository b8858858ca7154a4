//! APIs that are one question to the controller on shard 0.

use corelog_shards::base::ids::ShardId;
use corelog_shards::base::time::Mono;
use corelog_shards::controller;
use corelog_shards::controller::request::Ask;
use corelog_shards::part::{Part, Reply};

use super::{Answer, Context, Joins, Parts, Pending, Split, Step};

/// The shard that has the controller.
const CONTROLLER: ShardId = ShardId(0);

/// Asks the controller; `then` makes the response of its reply. The controller itself keeps the timeout, so the wait has no deadline of
/// its own.
pub(super) fn ask<F>(parts: &mut Parts, timeout_ms: i32, ask: Ask, then: F) -> Split
where
    F: FnOnce(&Context<'_>, controller::Reply, &mut Answer<'_>) + Send + 'static,
{
    push(parts, timeout_ms, ask);
    Split::Wait(Pending::other(Asked { then: Some(then) }))
}

/// The part alone, for APIs with a pending of their own.
pub(super) fn push(parts: &mut Parts, timeout_ms: i32, ask: Ask) {
    let request = controller::Request {
        timeout_ms: u32::try_from(timeout_ms).unwrap_or(0),
        ask,
    };
    parts.push((CONTROLLER, Part::Controller(Box::new(request))));
}

struct Asked<F> {
    then: Option<F>,
}

impl<F> Joins for Asked<F>
where
    F: FnOnce(&Context<'_>, controller::Reply, &mut Answer<'_>) + Send,
{
    fn on_reply(
        &mut self,
        cx: &Context<'_>,
        _part: usize,
        reply: Reply,
        _parts: &mut Parts,
        answer: &mut Answer<'_>,
    ) -> Step {
        match (reply, self.then.take()) {
            (Reply::Controller(reply), Some(then)) => {
                then(cx, *reply, answer);
                Step::Done
            }
            _ => Step::Close,
        }
    }

    fn deadline(&self) -> Option<Mono> {
        None
    }

    fn on_deadline(&mut self, _: &Context<'_>, _: &mut Parts, _: &mut Answer<'_>) -> Step {
        Step::Wait
    }
}
