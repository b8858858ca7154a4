//! The rounds: members at work, an end in the middle of it, and what has to hold after the restart.

use std::io;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use super::member::{Member, SESSION_MS, TOPIC, check_committed};
use super::stage::{Group, Stage};
use crate::broker::{Broker, Home, Tested};
use crate::connection::Connection;
use crate::random::Random;
use crate::rounds::warn_of_panics;
use crate::timings::Timings;

/// A group that has not committed everything anew by then is stuck. Sessions of ghosts and a rebalance have to end before, some times over.
const STUCK_AFTER: Duration = Duration::from_secs(30);

pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) tested: Tested,
    pub(crate) keep: bool,
    pub(crate) rounds: u32,
    /// Groups that change all the time; two more are left alone.
    pub(crate) groups: usize,
    pub(crate) partitions: i32,
    pub(crate) shards: Option<u16>,
}

#[derive(Default)]
struct Report {
    killed: u32,
    in_rebalance: u32,
    loaded: Timings,
    working: Timings,
}

pub(crate) fn run(plan: &Plan) -> io::Result<()> {
    let home = Home::new(&plan.tested, plan.keep, plan.seed)?.with(&[
        format!("group.min.session.timeout.ms={SESSION_MS}"),
        "group.initial.rebalance.delay.ms=300".to_owned(),
    ]);
    all_rounds(plan, &home)
        .and_then(|()| warn_of_panics(&home))
        .map_err(|error| {
            io::Error::other(format!(
                "{error} (the broker's last words: {})",
                home.last_words()
            ))
        })
}

fn all_rounds(plan: &Plan, home: &Home) -> io::Result<()> {
    let broker = home.start(plan.shards)?;
    let mut connection = Connection::open(broker.address)?;
    connection.create_topic(TOPIC, plan.partitions, &[])?;
    let (stage, groups) = (Stage::new(broker.address), groups_of(plan));
    thread::scope(|scope| {
        let mut random = Random::new(plan.seed);
        for group in &groups {
            for number in 0..group.members {
                let seed = random.next();
                let member = Member::new(group, &stage, plan.partitions, number, seed);
                scope.spawn(move || member.live());
            }
        }
        let outcome = rounds(plan, home, broker, &stage, &groups, &mut random);
        stage.end();
        outcome
    })
}

/// Static and dynamic members, alone and mixed; two groups are left alone.
fn groups_of(plan: &Plan) -> Vec<Group> {
    let changing = (0..plan.groups).map(|number| {
        let members = 2 + number % 4;
        let statics = [0, members, members / 2][number % 3];
        Group::new(
            format!("changing-{number}"),
            members,
            statics,
            plan.partitions,
        )
    });
    let calm = [("calm-static", 3), ("calm-dynamic", 0)];
    let calm =
        calm.map(|(name, statics)| Group::new(name.to_owned(), 3, statics, plan.partitions).calm());
    changing.chain(calm).collect()
}

fn rounds(
    plan: &Plan,
    home: &Home,
    mut broker: Broker,
    stage: &Stage,
    groups: &[Group],
    random: &mut Random,
) -> io::Result<()> {
    let mut report = Report::default();
    await_work(stage, groups, &mut Timings::default())?;
    await_calm(stage, groups)?;
    for round in 0..plan.rounds {
        broker = end_and_start(plan, home, broker, stage, random, &mut report)?;
        after(round, stage, groups, &mut report)?;
        broker.check_running()?;
        println!(
            "round {round}: {} commits so far, answers after {} ms",
            stage.commits.load(Ordering::Relaxed),
            broker.answered_after.as_millis()
        );
    }
    stage.end();
    stage.check()?;
    // Its members may still be heard, or lose it now.
    stage.next_phase();
    broker.stop()?;
    print(plan, stage, groups, &report);
    Ok(())
}

/// Lets the members work for a while, and ends the broker: mostly by kill -9, often in the middle of a rebalance, at times twice.
fn end_and_start(
    plan: &Plan,
    home: &Home,
    mut broker: Broker,
    stage: &Stage,
    random: &mut Random,
    report: &mut Report,
) -> io::Result<Broker> {
    thread::sleep(Duration::from_millis(random.within(20, 800)));
    if random.one_in(2) {
        stage.shake();
        thread::sleep(Duration::from_millis(random.within(0, 60)));
    }
    broker.check_running()?;
    stage.next_phase();
    report.in_rebalance += u32::from(stage.rebalancing.load(Ordering::SeqCst) > 0);
    if random.one_in(20) {
        broker.stop()?;
    } else {
        report.killed += 1;
        broker.kill()?;
    }
    let mut broker = home.start(plan.shards)?;
    if random.one_in(8) {
        // In the middle of the load of its groups.
        report.killed += 1;
        broker.kill()?;
        broker = home.start(plan.shards)?;
    }
    stage.next_phase();
    Ok(broker)
}

fn after(round: u32, stage: &Stage, groups: &[Group], report: &mut Report) -> io::Result<()> {
    let checked = await_loaded(stage, groups, &mut report.loaded)
        .and_then(|()| await_work(stage, groups, &mut report.working));
    checked.map_err(|error| io::Error::other(format!("after round {round}: {error}")))
}

/// Every commit that was acknowledged is there, as soon as the groups are.
fn await_loaded(stage: &Stage, groups: &[Group], took: &mut Timings) -> io::Result<()> {
    let begun = Instant::now();
    let mut connection = Connection::open(stage.address)?;
    for group in groups {
        let partitions: Vec<i32> = (0..group.ledger().acknowledged().len() as i32).collect();
        while !check_committed(group, &mut connection, &partitions)? {
            stage.check()?;
            if begun.elapsed() > STUCK_AFTER {
                return Err(io::Error::other(format!("{} is not loaded", group.name)));
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
    took.add(begun.elapsed());
    Ok(())
}

/// Every partition of every group is committed anew.
fn await_work(stage: &Stage, groups: &[Group], took: &mut Timings) -> io::Result<()> {
    let begun = Instant::now();
    for (group, before) in groups
        .iter()
        .map(|group| (group, group.ledger().acknowledged()))
        .collect::<Vec<_>>()
    {
        let moved = || {
            let now = group.ledger().acknowledged();
            before.iter().zip(now).all(|(before, now)| now > *before)
        };
        while !moved() {
            stage.check()?;
            if begun.elapsed() > STUCK_AFTER {
                return Err(stuck(stage, group, "is stuck"));
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
    took.add(begun.elapsed());
    Ok(())
}

/// The groups that are to be left alone are complete, and stay as they are from now on.
fn await_calm(stage: &Stage, groups: &[Group]) -> io::Result<()> {
    let begun = Instant::now();
    for group in groups.iter().filter(|group| group.is_calm) {
        loop {
            stage.check()?;
            {
                let mut ledger = group.ledger();
                if ledger.owners() == group.members {
                    ledger.pin();
                    break;
                }
            }
            if begun.elapsed() > STUCK_AFTER {
                return Err(stuck(stage, group, "does not come to rest"));
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
    Ok(())
}

fn stuck(stage: &Stage, group: &Group, what: &str) -> io::Error {
    let described = Connection::open(stage.address).and_then(|mut c| c.describe(&group.name));
    let described = described.unwrap_or_else(|error| error.to_string());
    io::Error::other(format!(
        "{} {what} after {} s: {described}",
        group.name,
        STUCK_AFTER.as_secs()
    ))
}

fn print(plan: &Plan, stage: &Stage, groups: &[Group], report: &Report) {
    println!("restart to all offsets read: {}", report.loaded);
    println!(
        "restart to new commits of all partitions of all groups: {}",
        report.working
    );
    println!(
        "{} commits were acknowledged to {} groups over {} rounds ({} kills, {} ends in a rebalance), {} assignments were given out, {} forged commits refused; every promise was kept",
        stage.commits.load(Ordering::Relaxed),
        groups.len(),
        plan.rounds,
        report.killed,
        report.in_rebalance,
        stage.joins.load(Ordering::Relaxed),
        stage.forgeries.load(Ordering::Relaxed)
    );
}
