//! How a broker of one shard takes many groups and a large one while it serves a producer: the time of their rebalances, the memory, and the
//! longest turn of the core.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::requests::{
    Joined, MEMBER_ID_REQUIRED, Timeouts, Who, assigned, assignment, subscription,
};
use crate::broker::{Broker, Home, Tested};
use crate::connection::Connection;
use crate::content;
use crate::random::Random;
use crate::timings::Timings;

const TOPIC: &str = "work";
const PARTITIONS: i32 = 3;
/// Threads that speak for the members.
const SPEAKERS: usize = 4;
const TIMEOUTS: Timeouts = Timeouts {
    session_ms: 120_000,
    rebalance_ms: 120_000,
};

pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) tested: Tested,
    /// Groups of three members.
    pub(crate) groups: usize,
    /// Members of the one large group.
    pub(crate) members: usize,
}

struct Member {
    connection: Connection,
    who: Identity,
}

struct Identity {
    group: String,
    id: String,
    generation: i32,
}

impl Identity {
    fn get(&self) -> Who<'_> {
        Who {
            group: &self.group,
            generation: self.generation,
            member: &self.id,
            instance: None,
        }
    }
}

pub(crate) fn run(plan: &Plan) -> io::Result<()> {
    let home = Home::new(&plan.tested, false, plan.seed)?;
    let console = SocketAddr::from(([127, 0, 0, 1], home.port() + 1));
    let home = home.with(&[
        format!("admin.listener={console}"),
        "group.initial.rebalance.delay.ms=1000".to_owned(),
    ]);
    let broker = home.start(Some(1))?;
    let mut connection = Connection::open(broker.address)?;
    connection.create_topic(TOPIC, PARTITIONS, &[])?;
    connection.await_leader(TOPIC, 0)?;
    if connection.find_coordinator("g")? != 0 {
        return Err(io::Error::other("the topic of offsets can't be made"));
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (address, seed, is_over) = (broker.address, plan.seed, &is_over);
        let producer = scope.spawn(move || produce(address, seed, is_over));
        let outcome = phases(plan, &broker, console);
        is_over.store(true, Ordering::SeqCst);
        let produced = producer
            .join()
            .map_err(|_| io::Error::other("the producer panicked"))?;
        outcome?;
        println!("produced meanwhile, one batch at a time: {}", produced?);
        Ok(())
    })
}

fn phases(plan: &Plan, broker: &Broker, console: SocketAddr) -> io::Result<()> {
    // What the start took is not asked for here: its windows have to pass.
    let metric = |name| metric(console, name);
    while metric("corelog_core_longest_turn_us")? > 2_000.0 {
        thread::sleep(Duration::from_millis(200));
    }
    let watch = |what: &str, act: &mut dyn FnMut() -> io::Result<()>| -> io::Result<()> {
        let (rss, long) = (
            broker.rss_anon_kib()?,
            metric("corelog_core_long_turns_total")?,
        );
        let begun = Instant::now();
        act()?;
        println!(
            "{what}: {} ms; longest turn so far {:.0} us of CPU, {} over 2 ms; {} MiB anonymous (before: {}), groups {:.0} KiB",
            begun.elapsed().as_millis(),
            metric("corelog_core_longest_turn_us")?,
            metric("corelog_core_long_turns_total")? - long,
            broker.rss_anon_kib()? / 1024,
            rss / 1024,
            metric("corelog_core_group_bytes")? / 1024.0
        );
        Ok(())
    };
    let mut small = Vec::new();
    watch("connections of the small groups", &mut || {
        for group in 0..plan.groups {
            small.push(crew(broker.address, &format!("small-{group}"), 3)?);
        }
        Ok(())
    })?;
    for what in ["first rebalance", "second rebalance"] {
        let what = format!("{what} of {} groups of 3 members", plan.groups);
        watch(&what, &mut || together(&mut small, rebalance))?;
    }
    watch("a commit of every member", &mut || {
        together(&mut small, commit)
    })?;
    watch("a heartbeat of every member", &mut || {
        together(&mut small, heartbeat)
    })?;
    let mut large = Vec::new();
    watch("connections of the large group", &mut || {
        large.push(crew(broker.address, "large", plan.members)?);
        Ok(())
    })?;
    for what in ["first rebalance", "second rebalance"] {
        let what = format!("{what} of a group of {} members", plan.members);
        watch(&what, &mut || together(&mut large, rebalance))?;
    }
    watch("a commit of every member", &mut || {
        together(&mut large, commit)
    })?;
    watch("a heartbeat of every member", &mut || {
        together(&mut large, heartbeat)
    })
}

fn crew(address: SocketAddr, group: &str, members: usize) -> io::Result<Vec<Member>> {
    let member = |_| {
        let connection = Connection::open(address)?;
        connection.patience(Duration::from_mins(2))?;
        let who = Identity {
            group: group.to_owned(),
            id: String::new(),
            generation: -1,
        };
        Ok(Member { connection, who })
    };
    (0..members).map(member).collect()
}

/// Lets all groups do something, some threads at a time.
fn together(
    groups: &mut [Vec<Member>],
    act: fn(&mut [Vec<Member>]) -> io::Result<()>,
) -> io::Result<()> {
    let share = groups.len().div_ceil(SPEAKERS).max(1);
    thread::scope(|scope| {
        let workers: Vec<_> = groups
            .chunks_mut(share)
            .map(|share| scope.spawn(move || act(share)))
            .collect();
        workers.into_iter().try_for_each(|worker| {
            let done = worker.join();
            done.map_err(|_| io::Error::other("a thread panicked"))?
        })
    })
}

impl Member {
    fn send_join(&mut self, mood: u8) -> io::Result<()> {
        let Member { connection, who } = self;
        connection.send_join(&who.get(), &TIMEOUTS, &subscription(TOPIC, mood))
    }

    fn refused(&self, what: &str, code: i16) -> io::Error {
        io::Error::other(format!("{}: {what} gave error {code}", self.who.group))
    }
}

/// All members join, the leader shares out, everybody is given its part.
fn rebalance(groups: &mut [Vec<Member>]) -> io::Result<()> {
    let mood = u8::from(groups[0][0].who.generation > 0);
    for member in groups.iter_mut().flatten() {
        member.send_join(mood)?;
    }
    for member in groups
        .iter_mut()
        .flatten()
        .filter(|member| member.who.id.is_empty())
    {
        let joined = member.connection.receive_join()?;
        if joined.error != MEMBER_ID_REQUIRED {
            return Err(member.refused("the first JoinGroup", joined.error));
        }
        member.who.id = joined.member;
        member.send_join(mood)?;
    }
    for group in groups.iter_mut() {
        let mut shares = Vec::new();
        for member in group.iter_mut() {
            let joined = member.connection.receive_join()?;
            if joined.error != 0 {
                return Err(member.refused("JoinGroup", joined.error));
            }
            member.who.generation = joined.generation;
            if joined.leader == joined.member {
                shares = share_out(&joined);
            }
        }
        for member in group.iter_mut() {
            let Member { connection, who } = member;
            let leads = shares.first().is_some_and(|(leader, _)| *leader == who.id);
            let own: &[_] = if leads { &shares } else { &[] };
            connection.send_sync(&who.get(), own)?;
        }
    }
    for member in groups.iter_mut().flatten() {
        let synced = member.connection.receive_sync()?;
        if synced.error != 0 {
            return Err(member.refused("SyncGroup", synced.error));
        }
        assigned(synced.assignment)?;
    }
    Ok(())
}

/// The leader's own share stands first.
fn share_out(joined: &Joined) -> Vec<(String, bytes::Bytes)> {
    let mut members = joined.members.clone();
    members.sort_by_key(|member| *member != joined.leader);
    let share = |at: usize| -> Vec<i32> { (0..PARTITIONS).filter(|p| *p as usize == at).collect() };
    let all = members.into_iter().enumerate();
    all.map(|(at, member)| (member, assignment(TOPIC, &share(at))))
        .collect()
}

fn commit(groups: &mut [Vec<Member>]) -> io::Result<()> {
    for member in groups.iter_mut().flatten() {
        let Member {
            connection, who, ..
        } = member;
        let codes = connection.commit(&who.get(), TOPIC, &[(0, 1), (1, 1), (2, 1)])?;
        if let Some(code) = codes.into_iter().find(|code| *code != 0) {
            return Err(member.refused("OffsetCommit", code));
        }
    }
    Ok(())
}

fn heartbeat(groups: &mut [Vec<Member>]) -> io::Result<()> {
    for member in groups.iter_mut().flatten() {
        let Member {
            connection, who, ..
        } = member;
        let code = connection.heartbeat(&who.get())?;
        if code != 0 {
            return Err(member.refused("Heartbeat", code));
        }
    }
    Ok(())
}

/// A small batch at a time, without a pause between answer and next.
fn produce(address: SocketAddr, seed: u64, is_over: &AtomicBool) -> io::Result<Timings> {
    let (mut random, mut took) = (Random::new(seed), Timings::default());
    let mut connection = Connection::open(address)?;
    let mut serial = 0;
    while !is_over.load(Ordering::SeqCst) {
        let batch = content::batch(&mut random, 1, serial, None)?;
        serial += u64::from(batch.count);
        let begun = Instant::now();
        connection.send_produce(TOPIC, 0, -1, &batch.bytes)?;
        let produced = connection.receive_produce()?;
        took.add(begun.elapsed());
        if produced.error != 0 {
            return Err(io::Error::other(format!(
                "Produce gave error {}",
                produced.error
            )));
        }
    }
    Ok(took)
}

/// The value of a metric of core 0.
fn metric(console: SocketAddr, name: &str) -> io::Result<f64> {
    let mut stream = TcpStream::connect_timeout(&console, Duration::from_secs(5))?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: corelog\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let line = text
        .lines()
        .find(|line| line.starts_with(name) && line.contains("core=\"0\""))
        .ok_or_else(|| io::Error::other(format!("there is no metric {name}")))?;
    let value = line.rsplit(' ').next().unwrap_or_default();
    value.parse().map_err(io::Error::other)
}
