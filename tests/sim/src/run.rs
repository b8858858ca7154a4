//! One run: trouble for a while, then calm, then everything is read.

use crate::clients::Client;
use crate::device::Lie;
use crate::oracle::Kind;
use crate::world::World;
use crate::{Checked, Failure, must};

/// How long a run is.
#[derive(Debug, Clone, Copy)]
pub struct Length {
    /// Events with faults.
    pub events: u64,
}

impl Default for Length {
    fn default() -> Length {
        Length { events: 12_000 }
    }
}

/// Events that may pass until the world is quiet again.
const SETTLING_EVENTS_MAX: u64 = 400_000;

/// What a run was like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    pub hash: u64,
    pub events: u64,
    pub starts: u32,
    pub clean_stops: u64,
    pub acknowledged: u64,
    pub fetched: u64,
    pub commits: u64,
    pub assignments: u64,
}

/// Runs one seed.
pub fn run(seed: u64, length: Length, lie: Option<Lie>) -> Checked<Summary> {
    let mut world = World::new(seed, lie);
    while world.history.events() < length.events {
        world.step()?;
    }
    calm_down(&mut world)?;
    read_everything(&mut world)?;
    Ok(Summary {
        hash: world.history.hash(),
        events: world.history.events(),
        starts: world.incarnation + 1,
        clean_stops: world.clean_stops,
        acknowledged: world.oracle.acknowledged,
        fetched: world.oracle.fetched,
        commits: world.oracle.groups.commits,
        assignments: world.oracle.groups.assignments,
    })
}

/// Runs one seed twice and compares the histories (12).
pub fn run_twice(seed: u64, length: Length) -> Checked<Summary> {
    let first = run(seed, length, None)?;
    let second = run(seed, length, None)?;
    must!(
        first == second,
        "same seed, same history (12): {first:?} and {second:?}"
    );
    Ok(first)
}

fn until(world: &mut World, what: &str, mut there: impl FnMut(&World) -> bool) -> Checked {
    let end = world.history.events() + SETTLING_EVENTS_MAX;
    while !there(world) {
        must!(
            world.history.events() < end,
            "the world settles: {what} does not come"
        );
        world.step()?;
    }
    Ok(())
}

/// No more faults, a start on a disk that works, and every client gets its answers.
fn calm_down(world: &mut World) -> Checked {
    world.faults = false;
    world.crash_in = None;
    restart(world)?;
    world.calm = true;
    until(world, "the last answer", |world| {
        world.accepting && world.clients.iter().all(Client::is_idle)
    })?;
    restart(world)?;
    until(world, "a look at all committed offsets", |world| {
        world.clients.iter().all(Client::is_audited)
    })
}

fn restart(world: &mut World) -> Checked {
    until(world, "a broker that accepts", |world| world.accepting)?;
    let incarnation = world.incarnation;
    world.stop();
    until(world, "the end of a clean stop", |world| {
        world.incarnation > incarnation
    })?;
    until(world, "a broker that accepts", |world| world.accepting)
}

/// Everything that is there is read once more, through Fetch.
fn read_everything(world: &mut World) -> Checked {
    let verifier = world.join(Client::verifier());
    let end = world.history.events() + SETTLING_EVENTS_MAX;
    loop {
        let unread = world.oracle.truths.iter().find(|(log, truth)| {
            let there = world.topics.get(&truth.topic);
            there.is_some_and(|(id, _)| *id == log.topic_id)
                && !world.clients[verifier].has_read(**log, truth.end)
                && truth.kind != Kind::Rolling
        });
        let Some((log, truth)) = unread else {
            return Ok(());
        };
        if world.history.events() >= end {
            return Err(Failure(format!(
                "everything can be read: {} {log:?} has {} records",
                truth.topic, truth.end
            )));
        }
        world.step()?;
    }
}
