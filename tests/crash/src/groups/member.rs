//! The life of one member: it joins, is given partitions, commits, and at times leaves, dies, hangs, changes its mind or pretends to be
//! somebody else. It survives the broker.

use std::io;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use super::ledger::Broken;
use super::requests::{
    FENCED_INSTANCE, ILLEGAL_GENERATION, Joined, MEMBER_ID_REQUIRED, NOT_AVAILABLE,
    NOT_COORDINATOR, REBALANCE, Timeouts, UNKNOWN_MEMBER, Who, assigned, assignment, subscription,
};
use super::stage::{Group, Stage};
use crate::connection::{COORDINATOR_LOADING, Connection};
use crate::load::is_lost;
use crate::random::Random;

pub(crate) const TOPIC: &str = "work";
/// The shortest sessions that the broker is started with: ghosts of members are gone soon.
pub(crate) const SESSION_MS: i32 = 2_000;
const REBALANCE_MS: i32 = 3_000;
/// A group that is to stay as it is must outlast a broker that is slow to come back.
const CALM_SESSION_MS: i32 = 60_000;
/// An offset that only forgeries carry.
const FORGED: i64 = 1 << 40;

/// See the module.
pub(crate) struct Member<'a> {
    group: &'a Group,
    stage: &'a Stage,
    partitions: i32,
    instance: Option<String>,
    /// Empty: it has none.
    id: String,
    /// The id before this one.
    former_id: String,
    generation: i32,
    /// It has an assignment of its generation. A lost connection does not change that.
    is_in: bool,
    mine: Vec<i32>,
    mood: u8,
    shakes_seen: u64,
    random: Random,
}

/// What a member does after it was told something, or has taken it into its head.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    GoOn,
    Join,
    /// Over a new connection.
    Begin,
}

impl<'a> Member<'a> {
    pub(crate) fn new(
        group: &'a Group,
        stage: &'a Stage,
        partitions: i32,
        number: usize,
        seed: u64,
    ) -> Member<'a> {
        let is_static = number < group.statics;
        Member {
            group,
            stage,
            partitions,
            instance: is_static.then(|| format!("{}-{number}", group.name)),
            id: String::new(),
            former_id: String::new(),
            generation: -1,
            is_in: false,
            mine: Vec::new(),
            mood: 0,
            shakes_seen: 0,
            random: Random::new(seed),
        }
    }

    /// Until everything is over; a failure ends it for all.
    pub(crate) fn live(mut self) {
        while !self.stage.is_over() {
            let phase = self.stage.phase();
            let talk = Connection::open(self.stage.address).and_then(|mut c| self.converse(&mut c));
            match talk {
                Ok(()) => {}
                Err(error) if is_lost(&error) && self.stage.has_ended_since(phase) => {
                    thread::sleep(Duration::from_millis(5));
                }
                Err(error) => {
                    let name = self.instance.as_deref().unwrap_or("a dynamic member");
                    let group = &self.group.name;
                    self.stage
                        .fail(&io::Error::other(format!("{group}, {name}: {error}")));
                }
            }
        }
    }

    fn converse(&mut self, connection: &mut Connection) -> io::Result<()> {
        while !self.stage.is_over() {
            if !self.is_in {
                self.stage.rebalancing.fetch_add(1, Ordering::SeqCst);
                let joined = self.join(connection);
                self.stage.rebalancing.fetch_sub(1, Ordering::SeqCst);
                self.is_in = joined?;
            } else if self.take_part(connection)? == Next::Begin {
                break;
            }
        }
        Ok(())
    }

    fn who(&self) -> Who<'_> {
        Who {
            group: &self.group.name,
            generation: self.generation,
            member: &self.id,
            instance: self.instance.as_deref(),
        }
    }

    fn timeouts(&self) -> Timeouts {
        let session_ms = if self.group.is_calm {
            CALM_SESSION_MS
        } else {
            SESSION_MS
        };
        Timeouts {
            session_ms,
            rebalance_ms: session_ms.max(REBALANCE_MS),
        }
    }

    /// One attempt to get an assignment; false: it has to try again.
    fn join(&mut self, connection: &mut Connection) -> io::Result<bool> {
        match connection.find_coordinator(&self.group.name)? {
            0 => {}
            code => return self.told(code).map(|_| false),
        }
        let metadata = subscription(TOPIC, self.mood);
        connection.send_join(&self.who(), &self.timeouts(), &metadata)?;
        let joined = connection.receive_join()?;
        if joined.error == MEMBER_ID_REQUIRED {
            self.id = joined.member;
            return Ok(false);
        }
        if joined.error != 0 {
            return self.told(joined.error).map(|_| false);
        }
        self.become_member(&joined);
        let assignments = self.share_out(&joined);
        let known = self.group.ledger().generation();
        connection.send_sync(&self.who(), &assignments)?;
        let synced = connection.receive_sync()?;
        if synced.error != 0 {
            return self.told(synced.error).map(|_| false);
        }
        self.mine = assigned(synced.assignment)?;
        let owner = self.instance.as_ref().unwrap_or(&self.id);
        let given = self
            .group
            .ledger()
            .assign(owner, self.generation, known, &self.mine);
        given.map_err(|why| self.group.broken(&why))?;
        self.stage.joins.fetch_add(1, Ordering::Relaxed);
        self.check_committed(connection)?;
        Ok(true)
    }

    fn become_member(&mut self, joined: &Joined) {
        if joined.member != self.id {
            let former = std::mem::replace(&mut self.id, joined.member.clone());
            if !former.is_empty() {
                self.former_id = former;
            }
        }
        self.generation = joined.generation;
    }

    /// The leader's part: partitions in turn to members in turn.
    fn share_out(&self, joined: &Joined) -> Vec<(String, bytes::Bytes)> {
        if joined.leader != joined.member {
            return Vec::new();
        }
        let share = |at: usize| -> Vec<i32> {
            (0..self.partitions)
                .skip(at)
                .step_by(joined.members.len())
                .collect()
        };
        let members = joined.members.iter().enumerate();
        members
            .map(|(at, member)| (member.clone(), assignment(TOPIC, &share(at))))
            .collect()
    }

    /// What the group had committed for the partitions that are now this member's.
    fn check_committed(&self, connection: &mut Connection) -> io::Result<()> {
        check_committed(self.group, connection, &self.mine).map(drop)
    }

    /// What an error means for a member; an error that no member may get is a failure.
    fn told(&mut self, code: i16) -> io::Result<Next> {
        match code {
            COORDINATOR_LOADING | NOT_AVAILABLE | NOT_COORDINATOR => {
                thread::sleep(Duration::from_millis(5));
                Ok(Next::GoOn)
            }
            REBALANCE | ILLEGAL_GENERATION => Ok(Next::Join),
            UNKNOWN_MEMBER | FENCED_INSTANCE => {
                self.forget_id();
                Ok(Next::Join)
            }
            _ => Err(io::Error::other(format!("a member was told error {code}"))),
        }
    }

    fn forget_id(&mut self) {
        if !self.id.is_empty() {
            self.former_id = std::mem::take(&mut self.id);
        }
    }

    /// Heartbeats and commits, until something else is to be done.
    fn take_part(&mut self, connection: &mut Connection) -> io::Result<Next> {
        let next = self.work(connection)?;
        self.is_in = false;
        Ok(next)
    }

    fn work(&mut self, connection: &mut Connection) -> io::Result<Next> {
        while !self.stage.is_over() {
            let next = match self.random.within(0, 3) {
                0 => {
                    let code = connection.heartbeat(&self.who())?;
                    self.told_or_on(code)?
                }
                _ => self.commit(connection)?,
            };
            if next != Next::GoOn {
                return Ok(next);
            }
            let next = self.whim(connection)?;
            if next != Next::GoOn {
                return Ok(next);
            }
            thread::sleep(Duration::from_millis(self.random.within(1, 30)));
        }
        Ok(Next::Begin)
    }

    fn told_or_on(&mut self, code: i16) -> io::Result<Next> {
        match code {
            0 => Ok(Next::GoOn),
            code => self.told(code),
        }
    }

    fn commit(&mut self, connection: &mut Connection) -> io::Result<Next> {
        let (known, offsets) = {
            let mut ledger = self.group.ledger();
            (ledger.generation(), ledger.next(&self.mine))
        };
        let codes = connection.commit(&self.who(), TOPIC, &offsets)?;
        let mut next = Next::GoOn;
        for (offset, code) in offsets.into_iter().zip(codes) {
            if code == 0 {
                let mut ledger = self.group.ledger();
                let taken = ledger.acknowledge(self.generation, known, offset);
                taken.map_err(|why| self.group.broken(&why))?;
                self.stage.commits.fetch_add(1, Ordering::Relaxed);
            } else if next == Next::GoOn {
                next = self.told(code)?;
            }
        }
        Ok(next)
    }

    /// What members do beside their duty.
    fn whim(&mut self, connection: &mut Connection) -> io::Result<Next> {
        if self.random.one_in(20) {
            self.forge(connection)?;
        }
        if self.group.is_calm {
            return Ok(self.restart_at_times());
        }
        let shakes = self.stage.shakes();
        if shakes != self.shakes_seen {
            self.shakes_seen = shakes;
            self.mood = self.mood.wrapping_add(1);
            return Ok(Next::Join);
        }
        match self.random.within(0, 600) {
            0..4 => {
                self.mood = self.mood.wrapping_add(1);
                Ok(Next::Join)
            }
            4..8 => self.leave(connection),
            8..10 => {
                // A process that dies and is started again.
                self.forget_id();
                Ok(Next::Begin)
            }
            10 => {
                self.hang();
                Ok(Next::GoOn)
            }
            _ => Ok(Next::GoOn),
        }
    }

    /// A static member that is started again disturbs nobody.
    fn restart_at_times(&mut self) -> Next {
        if self.instance.is_none() || !self.random.one_in(50) {
            return Next::GoOn;
        }
        self.forget_id();
        Next::Begin
    }

    fn leave(&mut self, connection: &mut Connection) -> io::Result<Next> {
        let by_instance = self.instance.is_some() && self.random.one_in(2);
        let who = Who {
            member: if by_instance { "" } else { &self.id },
            ..self.who()
        };
        let code = connection.leave(&who)?;
        self.forget_id();
        match self.told_or_on(code)? {
            Next::GoOn | Next::Join => Ok(Next::Join),
            Next::Begin => Ok(Next::Begin),
        }
    }

    /// Says nothing for longer than its session lasts, and goes on as if nothing had been.
    fn hang(&self) {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(SESSION_MS as u64 + 500)
            && !self.stage.is_over()
        {
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// A commit by somebody who is not a member of this generation.
    fn forge(&mut self, connection: &mut Connection) -> io::Result<()> {
        let kind = self.random.within(0, 4);
        let partition = self.random.within(0, self.partitions as u64) as i32;
        let own = self.who();
        let (what, who, code) = match kind {
            0 => {
                let generation = self.generation + 1_000;
                let who = Who { generation, ..own };
                ("a commit of a later generation", who, ILLEGAL_GENERATION)
            }
            1 => {
                let generation = self.generation - 1;
                let who = Who { generation, ..own };
                ("a commit of the generation before", who, ILLEGAL_GENERATION)
            }
            2 if self.instance.is_some() && !self.former_id.is_empty() => {
                let member = &self.former_id;
                let who = Who { member, ..own };
                ("a commit of a fenced member", who, FENCED_INSTANCE)
            }
            _ => {
                let (member, instance) = ("nobody", None);
                let who = Who {
                    member,
                    instance,
                    ..own
                };
                ("a commit of a stranger", who, UNKNOWN_MEMBER)
            }
        };
        if who.generation < 0 {
            return Ok(()); // That would be a commit of no member, which an empty group takes.
        }
        let codes = connection.commit(&who, TOPIC, &[(partition, FORGED)])?;
        self.stage.forgeries.fetch_add(1, Ordering::Relaxed);
        let told = codes.first().copied().unwrap_or(0);
        let passing = [COORDINATOR_LOADING, NOT_AVAILABLE, NOT_COORDINATOR];
        // Whoever has been expelled meanwhile is told so instead.
        if told == code || told == UNKNOWN_MEMBER || passing.contains(&told) {
            return Ok(());
        }
        Err(self.group.broken(&Broken::Accepted { what, code: told }))
    }
}

/// Reads the group's offsets of these partitions and compares them with what was acknowledged before. False: it can't be read yet.
pub(crate) fn check_committed(
    group: &Group,
    connection: &mut Connection,
    partitions: &[i32],
) -> io::Result<bool> {
    let acknowledged = group.ledger().acknowledged();
    let (error, all) = connection.committed(&group.name, TOPIC, partitions)?;
    match error {
        0 => {}
        COORDINATOR_LOADING | NOT_AVAILABLE | NOT_COORDINATOR => return Ok(false),
        _ => {
            return Err(io::Error::other(format!(
                "{}: OffsetFetch gave error {error}",
                group.name
            )));
        }
    }
    if all.len() != partitions.len() {
        return Err(io::Error::other("OffsetFetch left out partitions"));
    }
    let ledger = group.ledger();
    for found in all {
        if found.error != 0 {
            return Err(io::Error::other(format!(
                "{}: OffsetFetch of partition {} gave error {}",
                group.name, found.partition, found.error
            )));
        }
        ledger
            .read(
                found.partition,
                found.offset,
                acknowledged[found.partition as usize],
            )
            .map_err(|why| group.broken(&why))?;
    }
    Ok(true)
}
