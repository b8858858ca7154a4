//! Random members against one group: they join, sync, commit, leave, die, lose replies and share a broker that dies too.
//!
//! What must hold whatever happens: a generation has one assignment; a commit of an older generation is not accepted; an acknowledged
//! commit is not lost; and when the world calms down, everybody who lives shares the partitions again.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::rig::Rig;
use crate::base::error_code::ErrorCode;
use crate::base::ids::{ReplyTo, Text, Uuid};
use crate::base::random::Random;
use crate::group::request::{
    Commit, CommitEntry, FetchOffsets, Heartbeat, Join, Joined, Leave, OffsetOf, Protocol, Reply,
    Request, Sync, Synced,
};

const CLIENTS: usize = 4;
const PARTITIONS: i32 = 4;
const RUNS: u64 = 150;
const STEPS: usize = 250;

#[derive(Default, Clone)]
struct Client {
    id: Text,
    generation: i32,
    phase: Phase,
    /// As the leader it has to say who gets what.
    members: Vec<Text>,
    owned: Vec<i32>,
    waits: Option<ReplyTo>,
    dead: bool,
}

#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    #[default]
    Out,
    Joined,
    Working,
}

struct World {
    rig: Rig,
    random: Random,
    clients: Vec<Client>,
    /// Whose request is answered where.
    asked: BTreeMap<ReplyTo, (usize, Asked)>,
    /// Who got what in a generation, by partition.
    given: BTreeMap<(i32, i32), Text>,
    highest_generation: i32,
    next_offset: i64,
    acknowledged: BTreeMap<i32, i64>,
}

enum Asked {
    Join,
    Sync,
    Commit {
        is_fenced: bool,
        partition: i32,
        offset: i64,
    },
    Other,
}

#[test]
fn random_members_never_break_the_rules_and_always_come_to_rest() {
    for seed in 0..RUNS {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        world.come_to_rest(seed);
    }
}

impl World {
    fn new(seed: u64) -> World {
        World {
            rig: Rig::new(),
            random: Random::new(seed),
            clients: vec![Client::default(); CLIENTS],
            asked: BTreeMap::new(),
            given: BTreeMap::new(),
            highest_generation: 0,
            next_offset: 1,
            acknowledged: BTreeMap::new(),
        }
    }

    fn step(&mut self) {
        let who = self.random.below(CLIENTS);
        match self.random.below(40) {
            0 => self.clients[who].dead = true,
            1 => self.clients[who] = Client::default(),
            2 => self.lose_reply(who),
            3 => self.rig.holds = true,
            4..=6 => {
                self.rig.holds = false;
                while self.rig.finish_one(Ok(())) {}
            }
            7 => {
                let failed = Err(ErrorCode::NOT_ENOUGH_REPLICAS);
                self.rig.finish_one(failed);
            }
            8 => self.crash(),
            9 => self.leave(who),
            10..=15 => {
                let ms = [1, 500, 3_000, 7_000, 11_000][self.random.below(5)];
                self.rig.pass_ms(ms);
            }
            16..=20 => self.commit(who),
            21..=23 => self.heartbeat(who),
            _ => self.go_on(who),
        }
        self.take_replies();
        self.check_offsets();
    }

    /// What a well-behaved client does next.
    fn go_on(&mut self, who: usize) {
        let client = &self.clients[who];
        if client.dead || client.waits.is_some() {
            return;
        }
        match client.phase {
            Phase::Out => self.join(who),
            Phase::Joined => self.sync(who),
            Phase::Working => self.heartbeat(who),
        }
    }

    fn ask(&mut self, who: usize, asked: Asked, request: &Request) {
        let to = self.rig.next();
        if matches!(asked, Asked::Join | Asked::Sync) {
            self.clients[who].waits = Some(to);
        }
        self.asked.insert(to, (who, asked));
        self.rig.ask(request);
        self.take_replies();
    }

    fn join(&mut self, who: usize) {
        let protocol = Protocol {
            name: Text::from_static("range"),
            metadata: Bytes::new(),
        };
        let request = Request::Join(Join {
            home: self.rig.home,
            group: Text::from_static("g"),
            member_id: self.clients[who].id.clone(),
            instance_id: None,
            client_id: Text::from(format!("c{who}")),
            client_host: Text::empty(),
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 15_000,
            protocol_type: Text::from_static("consumer"),
            protocols: vec![protocol],
            needs_known_id: who.is_multiple_of(2),
            may_skip_assignment: false,
        });
        self.ask(who, Asked::Join, &request);
    }

    fn sync(&mut self, who: usize) {
        let client = &self.clients[who];
        let mut assignments: Vec<(Text, Vec<u8>)> = client
            .members
            .iter()
            .map(|id| (id.clone(), Vec::new()))
            .collect();
        // Who gets what differs from try to try.
        let shift = self.random.below(CLIENTS);
        for partition in 0..PARTITIONS {
            let count = assignments.len();
            if count > 0 {
                assignments[(partition as usize + shift) % count]
                    .1
                    .push(partition as u8);
            }
        }
        let request = Request::Sync(Sync {
            home: self.rig.home,
            group: Text::from_static("g"),
            generation: client.generation,
            member_id: client.id.clone(),
            instance_id: None,
            protocol_type: None,
            protocol: None,
            assignments: assignments
                .into_iter()
                .map(|(id, own)| (id, Bytes::from(own)))
                .collect(),
        });
        self.ask(who, Asked::Sync, &request);
    }

    fn heartbeat(&mut self, who: usize) {
        let client = &self.clients[who];
        if client.id.is_empty() {
            return;
        }
        let request = Request::Heartbeat(Heartbeat {
            home: self.rig.home,
            group: Text::from_static("g"),
            generation: client.generation,
            member_id: client.id.clone(),
            instance_id: None,
        });
        self.ask(who, Asked::Other, &request);
    }

    fn commit(&mut self, who: usize) {
        let client = &self.clients[who];
        let Some(&partition) = client.owned.first() else {
            return;
        };
        let (generation, offset) = (client.generation, self.next_offset);
        self.next_offset += 1;
        let request = Request::Commit(Commit {
            home: self.rig.home,
            group: Text::from_static("g"),
            generation,
            member_id: client.id.clone(),
            instance_id: None,
            retention_ms: -1,
            unknown_group: ErrorCode::ILLEGAL_GENERATION,
            entries: vec![CommitEntry {
                at: 0,
                topic: Text::from_static("t"),
                topic_id: Uuid::ZERO,
                partition,
                offset,
                leader_epoch: -1,
                metadata: Text::empty(),
            }],
        });
        let is_fenced = generation < self.highest_generation;
        self.ask(
            who,
            Asked::Commit {
                is_fenced,
                partition,
                offset,
            },
            &request,
        );
    }

    fn leave(&mut self, who: usize) {
        let request = Request::Leave(Leave {
            home: self.rig.home,
            group: Text::from_static("g"),
            members: vec![(self.clients[who].id.clone(), None)],
        });
        self.ask(who, Asked::Other, &request);
        self.clients[who] = Client {
            dead: self.clients[who].dead,
            ..Client::default()
        };
    }

    /// The connection goes while a request is out: the client asks again, on another one.
    fn lose_reply(&mut self, who: usize) {
        if let Some(to) = self.clients[who].waits.take() {
            self.rig.cancel(to);
            self.asked.remove(&to);
        }
    }

    /// The broker dies, and with it what had not been promised.
    fn crash(&mut self) {
        let unpromised = self.random.below(self.rig.under_way.len() + 1);
        self.rig.log.truncate(self.rig.log.len() - unpromised);
        self.rig.restart();
        self.asked.clear();
        self.highest_generation = 0;
        for client in &mut self.clients {
            client.waits = None;
        }
    }

    fn take_replies(&mut self) {
        for (to, reply) in std::mem::take(&mut self.rig.replies) {
            // Whoever lost its reply has asked again meanwhile.
            let Some((who, asked)) = self.asked.remove(&to) else {
                continue;
            };
            if self.clients[who].waits == Some(to) {
                self.clients[who].waits = None;
            }
            match (asked, reply) {
                (Asked::Join, Reply::Joined(joined)) => self.joined(who, joined),
                (Asked::Sync, Reply::Synced(synced)) => self.synced(who, &synced),
                (
                    Asked::Commit {
                        is_fenced,
                        partition,
                        offset,
                    },
                    Reply::Committed(codes),
                ) => {
                    if !codes[0].1.is_error() {
                        assert!(!is_fenced, "a commit of an older generation was accepted");
                        let last = self.acknowledged.entry(partition).or_insert(0);
                        *last = (*last).max(offset);
                    }
                }
                (Asked::Other, Reply::Heartbeat(code)) if code.is_error() => {
                    self.refused(who, code);
                }
                (Asked::Other, Reply::Heartbeat(_) | Reply::Left(_)) => {}
                (_, reply) => panic!("not an answer to that: {reply:?}"),
            }
        }
    }

    fn refused(&mut self, who: usize, code: ErrorCode) {
        let client = &mut self.clients[who];
        client.phase = Phase::Out;
        client.owned.clear();
        if code == ErrorCode::UNKNOWN_MEMBER_ID {
            client.id = Text::empty();
        }
    }

    fn joined(&mut self, who: usize, joined: Joined) {
        if joined.code == ErrorCode::MEMBER_ID_REQUIRED {
            self.clients[who].id = joined.member_id;
            return;
        }
        if joined.code.is_error() {
            self.refused(who, joined.code);
            return;
        }
        self.highest_generation = self.highest_generation.max(joined.generation);
        let client = &mut self.clients[who];
        client.id = joined.member_id;
        client.generation = joined.generation;
        client.members = joined
            .members
            .into_iter()
            .map(|member| member.member_id)
            .collect();
        client.phase = Phase::Joined;
        client.owned.clear();
    }

    fn synced(&mut self, who: usize, synced: &Synced) {
        if synced.code.is_error() {
            self.refused(who, synced.code);
            return;
        }
        let client = &mut self.clients[who];
        client.phase = Phase::Working;
        client.owned = synced
            .assignment
            .iter()
            .map(|partition| i32::from(*partition))
            .collect();
        for partition in &client.owned {
            let before = self
                .given
                .insert((client.generation, *partition), client.id.clone());
            assert!(
                before.is_none() || before.as_ref() == Some(&client.id),
                "partition {partition} of generation {} has two owners: {before:?} and {}",
                client.generation,
                client.id
            );
        }
    }

    fn check_offsets(&mut self) {
        let shown = self.fetch();
        for (partition, acknowledged) in &self.acknowledged {
            let own = shown.iter().find(|of| of.partition == *partition);
            let offset = own.map_or(-1, |of| of.offset);
            assert!(
                offset >= *acknowledged,
                "offset {acknowledged} of partition {partition} was acknowledged, and {offset} is shown"
            );
        }
    }

    fn fetch(&mut self) -> Vec<OffsetOf> {
        let to = self.rig.ask(&Request::FetchOffsets(vec![FetchOffsets {
            at: 0,
            home: self.rig.home,
            group: Text::from_static("g"),
            topics: None,
        }]));
        let at = self
            .rig
            .replies
            .iter()
            .position(|(own, _)| *own == to)
            .expect("an answer");
        match self.rig.replies.remove(at).1 {
            Reply::Offsets(mut groups) => groups
                .remove(0)
                .topics
                .pop()
                .map_or(Vec::new(), |(_, all)| all),
            reply => panic!("{reply:?}"),
        }
    }

    /// Nothing goes wrong any more: everybody who lives works in one generation, and all partitions are read.
    fn come_to_rest(&mut self, seed: u64) {
        self.rig.holds = false;
        while self.rig.finish_one(Ok(())) {}
        self.clients[0].dead = false;
        for _ in 0..60 {
            for who in 0..CLIENTS {
                self.take_replies();
                self.go_on(who);
            }
            self.rig.pass_ms(2_000);
            self.take_replies();
        }
        let living: Vec<&Client> = self.clients.iter().filter(|client| !client.dead).collect();
        let generation = living[0].generation;
        for client in &living {
            assert_eq!(
                client.phase,
                Phase::Working,
                "run {seed}: a member is stuck"
            );
            assert_eq!(
                client.generation, generation,
                "run {seed}: a member is elsewhere"
            );
        }
        let mut owned: Vec<i32> = living
            .iter()
            .flat_map(|client| client.owned.clone())
            .collect();
        owned.sort_unstable();
        assert_eq!(owned, [0, 1, 2, 3], "run {seed}");
    }
}
