//! The rounds: start, check, load, end; again.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use corelog_wire::batch::{BatchBuilder, NewRecord};
use corelog_wire::compress::Codec;

use crate::broker::{Broker, Home, Tested};
use crate::connection::Connection;
use crate::load::{self, Counts, Ending, Lane};
use crate::random::Random;
use crate::timings::Timings;

const PLAIN: &str = "plain";
const IDEMPOTENT: &str = "idempotent";
const FILLED: &str = "filled";
/// Threads that produce to each topic.
const PRODUCERS_MAX: usize = 4;
/// Every so many rounds the logs are read from their starts.
const FULL_CHECK_EVERY: u32 = 20;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endings {
    /// Of twenty ends, one is clean and two come before the broker has been asked anything.
    MostlyKilled,
    CleanThenKilled,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Killed,
    KilledAtStart,
    Clean,
}

pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) tested: Tested,
    pub(crate) keep: bool,
    pub(crate) rounds: u32,
    pub(crate) partitions: i32,
    pub(crate) fill_mib: u32,
    /// Numbers of shards, one after the other; empty: the broker's own choice.
    pub(crate) shards: Vec<u16>,
    pub(crate) endings: Endings,
}

impl Plan {
    fn shards(&self, round: u32) -> Option<u16> {
        let at = round as usize % self.shards.len().max(1);
        self.shards.get(at).copied()
    }

    fn end(&self, round: u32, random: &mut Random) -> End {
        match self.endings {
            Endings::CleanThenKilled if (round as usize) < self.shards.len() => End::Clean,
            Endings::CleanThenKilled => End::Killed,
            Endings::MostlyKilled => match random.within(0, 20) {
                0 => End::Clean,
                1 | 2 => End::KilledAtStart,
                _ => End::Killed,
            },
        }
    }
}

#[derive(Default)]
struct Report {
    answered: Timings,
    first_answer: Duration,
    ready: Timings,
    again: u64,
    killed: u32,
    clean: Timings,
}

pub(crate) fn run(plan: &Plan) -> io::Result<()> {
    let home = Home::new(&plan.tested, plan.keep, plan.seed)?;
    let outcome = all_rounds(plan, &home);
    outcome.map_err(|error| {
        io::Error::other(format!(
            "{error} (the broker's last words: {})",
            home.last_words()
        ))
    })
}

fn all_rounds(plan: &Plan, home: &Home) -> io::Result<()> {
    let mut random = Random::new(plan.seed);
    let (counts, mut report) = (Counts::default(), Report::default());
    let mut broker = home.start(plan.shards(0))?;
    report.first_answer = broker.answered_after;
    let topics = set_up(plan, &broker)?;
    for round in 0..plan.rounds {
        let end = plan.end(round, &mut random);
        load_and_end(&mut random, broker, &topics, end, &counts, &mut report)
            .map_err(|error| io::Error::other(format!("round {round}: {error}")))?;
        broker = home.start(plan.shards(round + 1))?;
        report.answered.add(broker.answered_after);
        if end == End::KilledAtStart {
            broker.kill()?;
            broker = home.start(plan.shards(round + 1))?;
            report.answered.add(broker.answered_after);
        }
        let full = (round + 1) % FULL_CHECK_EVERY == 0 || round + 1 == plan.rounds;
        check(&broker, &topics, full, &mut report)
            .map_err(|error| io::Error::other(format!("after round {round} ({end:?}): {error}")))?;
        println!(
            "round {round}: {end:?}, {} records so far, answers after {} ms",
            counts.records.load(Ordering::Relaxed),
            broker.answered_after.as_millis()
        );
    }
    report.clean.add(broker.stop()?);
    print(plan, &report, &counts);
    warn_of_panics(home)
}

/// Topics with small segments, so that rolling is under way when the broker is killed, and an id for each idempotent producer.
fn set_up(plan: &Plan, broker: &Broker) -> io::Result<[Vec<Arc<Lane>>; 2]> {
    let mut connection = Connection::open(broker.address)?;
    let small = [
        ("segment.bytes", "1048576"),
        ("retention.ms", "-1"),
        ("index.interval.bytes", "1024"),
    ];
    let mut number = 0;
    let mut lanes = |connection: &mut Connection,
                     topic: &'static str,
                     idempotent: bool|
     -> io::Result<Vec<Arc<Lane>>> {
        connection.create_topic(topic, plan.partitions, &small)?;
        (0..plan.partitions)
            .map(|partition| {
                number += 1;
                let producer = idempotent
                    .then(|| connection.init_producer_id())
                    .transpose()?;
                Ok(Arc::new(Lane::new(number, topic, partition, producer)))
            })
            .collect()
    };
    let topics = [
        lanes(&mut connection, PLAIN, false)?,
        lanes(&mut connection, IDEMPOTENT, true)?,
    ];
    for lanes in &topics {
        await_leaders(&mut connection, lanes)?;
    }
    if plan.fill_mib > 0 {
        fill(&mut connection, plan.fill_mib)?;
    }
    Ok(topics)
}

fn await_leaders(connection: &mut Connection, lanes: &[Arc<Lane>]) -> io::Result<()> {
    lanes
        .iter()
        .try_for_each(|lane| connection.await_leader(lane.topic, lane.partition))
}

/// One partition with much in it: what recovery would have to read if its recovery point did not move.
fn fill(connection: &mut Connection, mib: u32) -> io::Result<()> {
    connection.create_topic(FILLED, 1, &[("retention.ms", "-1")])?;
    connection.await_leader(FILLED, 0)?;
    let mut builder = BatchBuilder::new(Codec::None);
    for serial in 0..1000 {
        builder.add(&NewRecord {
            timestamp_ms: serial,
            key: None,
            value: Some(&[7; 1000]),
            headers: &[],
        });
    }
    let batch = builder.build()?;
    let begun = Instant::now();
    for at in 0..mib {
        connection.send_produce(FILLED, 0, -1, &batch)?;
        let produced = connection.receive_produce()?;
        if produced.error != 0 {
            return Err(io::Error::other(format!(
                "filling: batch {at} gave error {}",
                produced.error
            )));
        }
    }
    println!(
        "filled one partition with {mib} MiB in {:.1} s",
        begun.elapsed().as_secs_f64()
    );
    Ok(())
}

fn load_and_end(
    random: &mut Random,
    mut broker: Broker,
    topics: &[Vec<Arc<Lane>>; 2],
    end: End,
    counts: &Counts,
    report: &mut Report,
) -> io::Result<()> {
    let (ending, address) = (Ending::default(), broker.address);
    let pause = Duration::from_millis(random.within(50, 1_200));
    thread::scope(|scope| {
        let mut workers = Vec::new();
        for lanes in topics {
            let threads = lanes.len().min(PRODUCERS_MAX);
            for thread in 0..threads {
                let mine: Vec<Arc<Lane>> = lanes
                    .iter()
                    .skip(thread)
                    .step_by(threads)
                    .cloned()
                    .collect();
                let (seed, ending) = (random.next(), &ending);
                workers
                    .push(scope.spawn(move || load::produce(address, &mine, seed, ending, counts)));
            }
            let ending = &ending;
            workers.push(scope.spawn(move || load::follow(address, lanes, ending)));
        }
        thread::sleep(pause);
        let running = broker.check_running();
        // Announced before, so that no worker takes the lost connection for a failure.
        ending.announce();
        let ended = match end {
            End::Clean => broker.stop().map(|took| report.clean.add(took)),
            End::Killed | End::KilledAtStart => {
                report.killed += 1;
                broker.kill()
            }
        };
        for worker in workers {
            worker
                .join()
                .map_err(|_| io::Error::other("a worker panicked"))??;
        }
        running.and(ended)
    })
}

fn check(
    broker: &Broker,
    topics: &[Vec<Arc<Lane>>; 2],
    full: bool,
    report: &mut Report,
) -> io::Result<()> {
    let begun = Instant::now();
    let mut connection = Connection::open(broker.address)?;
    for lanes in topics {
        await_leaders(&mut connection, lanes)?;
    }
    report.ready.add(broker.answered_after + begun.elapsed());
    for lanes in topics {
        load::verify(&mut connection, lanes, full)?;
    }
    report.again += load::send_again(&mut connection, &topics[1])?;
    load::verify(&mut connection, &topics[1], false)
}

fn print(plan: &Plan, report: &Report, counts: &Counts) {
    println!(
        "{} records in {} batches were acknowledged over {} rounds ({} kills); {} batches were sent again; every promise was kept",
        counts.records.load(Ordering::Relaxed),
        counts.batches.load(Ordering::Relaxed),
        plan.rounds,
        report.killed,
        report.again
    );
    println!(
        "first start, empty directory: answers after {} ms",
        report.first_answer.as_millis()
    );
    println!("restart to the first answer: {}", report.answered);
    println!(
        "restart to leaders for all {} partitions: {}",
        2 * plan.partitions,
        report.ready
    );
    println!("clean stop: {}", report.clean);
}

pub(crate) fn warn_of_panics(home: &Home) -> io::Result<()> {
    let said = fs::read(home.log())?;
    let said = String::from_utf8_lossy(&said);
    match said.lines().find(|line| line.contains("panicked")) {
        Some(line) => Err(io::Error::other(format!("the broker panicked: {line}"))),
        None => Ok(()),
    }
}
