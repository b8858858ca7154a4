//! All groups of a shard: which partition of `__consumer_offsets` they live on, its load, the outcomes of its appends, time.
//!
//! A group's own rules are in `classic` and beside it. Every method takes a fact; what comes of it are replies in the outbox and
//! [`Ask`]s, which the shard takes with [`Groups::take_asks`] after every fact and whose outcome it brings to [`Groups::on_appended`] and
//! [`Groups::on_read`].

mod time;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use rustc_hash::FxHashMap;

use super::classic::Group;
use super::commit::fetch_unknown;
use super::config::GroupConfig;
use super::home::{Home, Memory};
use super::limits::{MEMBER_BYTES, MEMBERS_BYTES_MAX, REPLIES_PER_TURN};
use super::outcome::{Outcome, Then};
use super::record::replay;
use super::request::{
    Commit, DeleteOffsets, Described, FetchOffsets, GroupOffsets, Join, Left, List, Listed, Named,
    Reply, Request,
};
use super::turn::{Turn, Write};
use crate::base::error_code::ErrorCode;
use crate::base::ids::{ReplyTo, ShardId, Text, TopicPartition};
use crate::base::random::Random;
use crate::base::time::{Mono, Now};
use crate::coordinator::Ask;
use crate::coordinator::failure::{code_for_client, ends_coordination};
use crate::coordinator::ledger::{LoadStep, build};
use crate::effect::{Chunks, Outbox};
use crate::metadata::{Image, Topic};
use crate::part;

/// The topic in which groups live.
pub const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// See the module.
pub struct Groups {
    shard: ShardId,
    config: GroupConfig,
    random: Random,
    /// By partition number.
    homes: BTreeMap<i32, Home>,
    /// Which home a ticket belongs to is found by it; tickets are below 2^62.
    tickets: u64,
    asks: VecDeque<Ask>,
    replies: Vec<(ReplyTo, Reply)>,
    /// Requests that wait, and the group they wait for.
    parked: FxHashMap<ReplyTo, (i32, Text)>,
    /// DeleteGroups requests of which a batch is under way.
    gathers: BTreeMap<u64, Gather>,
    /// When to look at a group; entries that the group no longer agrees with are skipped.
    timers: BinaryHeap<Reverse<(Mono, i32, Text)>>,
    /// Memory of all members.
    members_bytes: usize,
    appends_under_way: usize,
    expire_at: Option<Mono>,
    /// The next group to look at for expired offsets, while that goes on.
    expiring: Option<(i32, Text)>,
}

struct Gather {
    to: Option<ReplyTo>,
    /// Batches that are committed or failed.
    done: usize,
    /// How many there are, once that is known.
    batches: Option<usize>,
    codes: Vec<(u32, ErrorCode)>,
}

impl Groups {
    /// `seed` makes the ids of members differ between runs.
    pub fn new(shard: ShardId, seed: u64) -> Groups {
        Groups {
            shard,
            config: GroupConfig::default(),
            random: Random::new(seed),
            homes: BTreeMap::new(),
            tickets: 0,
            asks: VecDeque::new(),
            replies: Vec::new(),
            parked: FxHashMap::default(),
            gathers: BTreeMap::new(),
            timers: BinaryHeap::new(),
            members_bytes: 0,
            appends_under_way: 0,
            expire_at: None,
            expiring: None,
        }
    }

    #[cfg(test)]
    pub(super) fn config_mut(&mut self) -> &mut GroupConfig {
        &mut self.config
    }

    /// Follows the image: `old` is the one that was followed before.
    pub fn on_image(&mut self, now: Now, old: Option<&Image>, new: &Image, out: &mut Outbox) {
        self.config = GroupConfig::of(new);
        self.follow(new);
        if let Some(old) = old {
            for topic in old.topics() {
                if new.topic_by_id(topic.id).is_none() {
                    self.forget_topic(now, topic);
                }
            }
        }
        self.expire_at
            .get_or_insert(now.mono.after_ms(self.config.expiration_check_interval_ms));
        self.load_waiting();
        self.flush(out);
    }

    /// Takes up the partitions that this shard leads now, and lets go of the others.
    fn follow(&mut self, image: &Image) {
        let led = image
            .topic(OFFSETS_TOPIC)
            .map(|topic| self.led(image, topic));
        let led = led.unwrap_or_default();
        let held: Vec<i32> = self.homes.keys().copied().collect();
        for number in held {
            let home = &self.homes[&number].ledger;
            if led.get(&number) != Some(&(home.partition, home.leader_epoch)) {
                self.unload(number);
                self.homes.remove(&number);
            }
        }
        for (number, (partition, leader_epoch)) in led {
            self.homes
                .entry(number)
                .or_insert_with(|| Home::new(partition, leader_epoch));
        }
    }

    fn led(&self, image: &Image, topic: &Topic) -> BTreeMap<i32, (TopicPartition, i32)> {
        let numbered = (0_i32..).zip(&topic.partitions);
        let own =
            numbered.filter(|(_, meta)| meta.owner == self.shard && meta.leader == image.node_id);
        own.map(|(partition, meta)| {
            let id = TopicPartition {
                topic_id: topic.id,
                partition,
            };
            (partition, (id, meta.leader_epoch))
        })
        .collect()
    }

    fn forget_topic(&mut self, now: Now, topic: &Topic) {
        for number in self.numbers() {
            let Some(home) = self.homes.get_mut(&number) else {
                continue;
            };
            if home.ledger.refusal().is_some() {
                home.gone_topics.push(topic.name.detached());
                continue;
            }
            let ids: Vec<Text> = home.groups.keys().cloned().collect();
            for id in ids {
                self.on_group(now, number, &id, |group, turn| {
                    group.forget_topic(turn, &topic.name);
                });
            }
        }
    }

    fn numbers(&self) -> Vec<i32> {
        self.homes.keys().copied().collect()
    }

    /// Logs of this shard have become readable: what waits for its load tries again.
    pub fn on_online(&mut self) {
        self.load_waiting();
    }

    fn load_waiting(&mut self) {
        for home in self.homes.values_mut() {
            self.tickets += 1;
            let buffer_bytes = self.config.load_buffer_bytes;
            home.ledger.load(self.tickets, buffer_bytes, &mut self.asks);
        }
    }

    /// What has to be carried out on the shard's partitions, in order.
    pub fn take_asks(&mut self) -> VecDeque<Ask> {
        std::mem::take(&mut self.asks)
    }

    /// A read is finished.
    pub fn on_read(
        &mut self,
        now: Now,
        ticket: u64,
        result: Result<Chunks, ErrorCode>,
        out: &mut Outbox,
    ) {
        let mut homes = self.homes.iter_mut();
        let Some((number, home)) = homes.find(|(_, home)| home.ledger.awaits(ticket)) else {
            return; // Its partition has been unloaded meanwhile.
        };
        let (number, groups) = (*number, &mut home.groups);
        let buffer_bytes = self.config.load_buffer_bytes;
        let step = home
            .ledger
            .on_read(result, buffer_bytes, &mut self.asks, |record| {
                replay(groups, &record);
            });
        match step {
            LoadStep::Finished => self.loaded(now, number),
            LoadStep::Failed => home.groups.clear(),
            LoadStep::More => {}
        }
        self.flush(out);
    }

    /// A partition's state is complete: sessions begin (kafka.md G-3).
    fn loaded(&mut self, now: Now, number: i32) {
        let Some(home) = self.homes.get_mut(&number) else {
            return;
        };
        let ids: Vec<Text> = home.groups.keys().cloned().collect();
        let gone = std::mem::take(&mut home.gone_topics);
        if ids.is_empty() {
            tracing::debug!(
                partition = number,
                "a partition of __consumer_offsets has no groups"
            );
        } else {
            tracing::info!(
                partition = number,
                groups = ids.len(),
                "the groups of a partition of __consumer_offsets are loaded"
            );
        }
        for id in ids {
            let bytes = self.homes[&number].groups.get(&id).map_or(0, Group::bytes);
            self.members_bytes += bytes;
            self.on_group(now, number, &id, |group, turn| {
                group.begin_sessions(turn);
                for topic in &gone {
                    group.forget_topic(turn, topic);
                }
            });
        }
    }

    /// An append is committed, or never will be.
    pub fn on_appended(
        &mut self,
        now: Now,
        ticket: u64,
        result: Result<(), ErrorCode>,
        out: &mut Outbox,
    ) {
        let found = self
            .homes
            .iter_mut()
            .find_map(|(number, home)| Some((*number, home.ledger.settle(ticket)?)));
        let Some((number, memory)) = found else {
            return; // Its partition has been unloaded meanwhile.
        };
        self.appends_under_way -= 1;
        self.settle(now, number, memory, result);
        if let Err(code) = result
            && ends_coordination(code)
        {
            tracing::warn!(partition = number, %code, "the log of a coordinator fails; its groups are unloaded");
            self.unload(number);
            self.load_waiting();
        }
        self.flush(out);
    }

    fn settle(&mut self, now: Now, number: i32, memory: Memory, result: Result<(), ErrorCode>) {
        let result = result.map_err(code_for_client);
        let then = self.on_group(now, number, &memory.group, |group, turn| {
            group.settled(turn, memory.outcome, result)
        });
        if let Some(Some(then)) = then {
            self.answer(then, result);
        }
    }

    fn answer(&mut self, then: Then, result: Result<(), ErrorCode>) {
        match then {
            Then::Nobody => {}
            Then::Answer { to, ready, failed } => {
                let reply = match result {
                    Ok(()) => ready,
                    Err(code) => failed(&ready, code),
                };
                self.replies.extend(to.map(|to| (to, reply)));
            }
            Then::Gathered { gather, at } => self.gathered(gather, at, result),
        }
    }

    fn gathered(&mut self, key: u64, at: u32, result: Result<(), ErrorCode>) {
        if let Some(gather) = self.gathers.get_mut(&key) {
            gather.done += 1;
        }
        if let Err(code) = result {
            self.set_gathered(key, at, code);
        }
        self.finish_gather(key);
    }

    /// Forgets a partition's groups: whoever waits for them is sent elsewhere (G-3).
    fn unload(&mut self, number: i32) {
        let Some(home) = self.homes.get_mut(&number) else {
            return;
        };
        let memories = home.ledger.unload();
        self.appends_under_way -= memories.len();
        for (_, mut group) in std::mem::take(&mut home.groups) {
            self.members_bytes = self.members_bytes.saturating_sub(group.bytes());
            group.abandon(&mut self.replies, ErrorCode::NOT_COORDINATOR);
        }
        for memory in memories {
            if let Outcome::Offsets { then, .. } = memory.outcome {
                self.answer(then, Err(ErrorCode::NOT_COORDINATOR));
            }
        }
    }

    /// A request, whose answer comes now or later, once.
    pub fn on_request(&mut self, now: Now, to: ReplyTo, request: &Request, out: &mut Outbox) {
        match request {
            Request::Join(join) => self.join(now, to, join),
            Request::Sync(sync) => {
                let group = (sync.home, &sync.group);
                self.on_known(
                    now,
                    to,
                    group,
                    request,
                    ErrorCode::UNKNOWN_MEMBER_ID,
                    |group, turn| {
                        group.sync(turn, to, sync);
                    },
                );
            }
            Request::Heartbeat(heartbeat) => {
                let group = (heartbeat.home, &heartbeat.group);
                self.on_known(
                    now,
                    to,
                    group,
                    request,
                    ErrorCode::UNKNOWN_MEMBER_ID,
                    |group, turn| {
                        let code = group.heartbeat(turn, heartbeat);
                        turn.replies.push((to, Reply::Heartbeat(code)));
                    },
                );
            }
            Request::Leave(leave) => self.leave(now, to, leave, request),
            Request::Commit(commit) => self.commit(now, to, commit, request),
            Request::DeleteOffsets(delete) => self.delete_offsets(now, to, delete, request),
            Request::FetchOffsets(asked) => {
                let all = asked
                    .iter()
                    .map(|asked| self.fetch_offsets(asked))
                    .collect();
                self.replies.push((to, Reply::Offsets(all)));
            }
            Request::Describe(named) => {
                let all = named.iter().map(|named| self.describe(named)).collect();
                self.replies.push((to, Reply::Described(all)));
            }
            Request::Delete(named) => self.delete(now, to, named),
            Request::List(list) => {
                let listed = self.list(list);
                self.replies.push((to, Reply::Listed(listed)));
            }
        }
        self.flush(out);
    }

    /// Why the home of a group can't serve, or its number.
    fn home_of(&self, home: part::PartitionRef) -> Result<i32, ErrorCode> {
        let number = home.id.partition;
        let held = self
            .homes
            .get(&number)
            .filter(|held| held.ledger.partition == home.id);
        let held = held.ok_or(ErrorCode::NOT_COORDINATOR)?;
        if let Some(code) = held.ledger.refusal() {
            return Err(code);
        }
        Ok(number)
    }

    /// Gives a request to its group, or says why not.
    fn on_known(
        &mut self,
        now: Now,
        to: ReplyTo,
        (home, id): (part::PartitionRef, &Text),
        request: &Request,
        unknown: ErrorCode,
        serve: impl FnOnce(&mut Group, &mut Turn<'_>),
    ) {
        if id.is_empty() {
            let code = ErrorCode::INVALID_GROUP_ID;
            self.replies.push((to, request.refused(code)));
            return;
        }
        let code = match self.home_of(home) {
            Ok(number) => {
                self.parked.insert(to, (number, id.clone()));
                if self.on_group(now, number, id, serve).is_some() {
                    return;
                }
                unknown
            }
            Err(code) => code,
        };
        self.replies.push((to, request.refused(code)));
    }

    fn join(&mut self, now: Now, to: ReplyTo, join: &Join) {
        match self.check_join(join) {
            Ok(number) => {
                self.parked.insert(to, (number, join.group.clone()));
                if join.member_id.is_empty() {
                    self.make(number, &join.group);
                }
                let joined = self.on_group(now, number, &join.group, |group, turn| {
                    group.join(turn, to, join);
                });
                if joined.is_none() {
                    self.refuse_join(to, join, ErrorCode::UNKNOWN_MEMBER_ID);
                }
            }
            Err(code) => self.refuse_join(to, join, code),
        }
    }

    fn refuse_join(&mut self, to: ReplyTo, join: &Join, code: ErrorCode) {
        let refused = super::request::Joined::error(code, join.member_id.clone());
        self.replies.push((to, Reply::Joined(refused)));
    }

    fn check_join(&self, join: &Join) -> Result<i32, ErrorCode> {
        if join.group.is_empty() {
            return Err(ErrorCode::INVALID_GROUP_ID);
        }
        let number = self.home_of(join.home)?;
        let (min, max) = (
            self.config.session_timeout_min_ms,
            self.config.session_timeout_max_ms,
        );
        if !(min..=max).contains(&join.session_timeout_ms) {
            return Err(ErrorCode::INVALID_SESSION_TIMEOUT);
        }
        let metadata: usize = join
            .protocols
            .iter()
            .map(|protocol| protocol.metadata.len() + 64)
            .sum();
        if self.members_bytes + metadata + MEMBER_BYTES > MEMBERS_BYTES_MAX {
            return Err(ErrorCode::COORDINATOR_NOT_AVAILABLE);
        }
        Ok(number)
    }

    /// Makes a group that is not there yet. One that comes to nothing is forgotten again at the end of its turn.
    fn make(&mut self, number: i32, id: &Text) {
        let Some(home) = self.homes.get_mut(&number) else {
            return;
        };
        if !home.groups.contains_key(id) {
            let group = Group::new(id.detached());
            self.members_bytes += group.bytes();
            home.groups.insert(group.id.clone(), group);
        }
    }

    fn leave(&mut self, now: Now, to: ReplyTo, leave: &super::request::Leave, request: &Request) {
        let group = (leave.home, &leave.group);
        if let Ok(number) = self.home_of(leave.home)
            && !leave.group.is_empty()
            && !self.homes[&number].groups.contains_key(&leave.group)
        {
            // J-8: each of them is unknown, the request as a whole is well.
            let left = Left {
                code: ErrorCode::NONE,
                members: vec![ErrorCode::UNKNOWN_MEMBER_ID; leave.members.len()],
            };
            self.replies.push((to, Reply::Left(left)));
            return;
        }
        self.on_known(
            now,
            to,
            group,
            request,
            ErrorCode::UNKNOWN_MEMBER_ID,
            |group, turn| {
                let left = group.leave(turn, leave);
                turn.replies.push((to, Reply::Left(left)));
            },
        );
    }

    fn commit(&mut self, now: Now, to: ReplyTo, commit: &Commit, request: &Request) {
        match self.home_of(commit.home) {
            Ok(number) => {
                if commit.generation < 0 {
                    self.make(number, &commit.group);
                }
                self.parked.insert(to, (number, commit.group.clone()));
                let committed = self.on_group(now, number, &commit.group, |group, turn| {
                    group.commit(turn, to, commit);
                });
                if committed.is_none() {
                    self.replies
                        .push((to, request.refused(commit.unknown_group)));
                }
            }
            Err(code) => self.replies.push((to, request.refused(code))),
        }
    }

    fn delete_offsets(&mut self, now: Now, to: ReplyTo, delete: &DeleteOffsets, request: &Request) {
        match self.home_of(delete.home) {
            Ok(number) => {
                self.parked.insert(to, (number, delete.group.clone()));
                let deleted = self.on_group(now, number, &delete.group, |group, turn| {
                    group.delete_some_offsets(turn, to, delete);
                });
                if deleted.is_none() {
                    self.replies
                        .push((to, request.refused(ErrorCode::GROUP_ID_NOT_FOUND)));
                }
            }
            Err(code) => self.replies.push((to, request.refused(code))),
        }
    }

    fn fetch_offsets(&self, asked: &FetchOffsets) -> GroupOffsets {
        match self.home_of(asked.home) {
            Ok(number) => match self.homes[&number].groups.get(&asked.group) {
                Some(group) => group.fetch_offsets(asked),
                None => fetch_unknown(asked),
            },
            Err(code) => GroupOffsets::error(asked.at, code),
        }
    }

    fn describe(&self, named: &Named) -> Described {
        match self.home_of(named.home) {
            Ok(number) => match self.homes[&number].groups.get(&named.group) {
                Some(group) => group.describe(named.at),
                None => Described::error(named.at, ErrorCode::GROUP_ID_NOT_FOUND),
            },
            Err(code) => Described::error(named.at, code),
        }
    }

    fn list(&self, list: &List) -> Listed {
        let loading = Some(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS);
        if self
            .homes
            .values()
            .any(|home| home.ledger.refusal() == loading)
        {
            return Listed {
                code: ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
                groups: Vec::new(),
            };
        }
        let groups = self.homes.values().flat_map(|home| home.groups.values());
        Listed {
            code: ErrorCode::NONE,
            groups: groups.filter_map(|group| group.listed(list)).collect(),
        }
    }

    /// J-12: several groups at once, answered when the last of them is gone for good.
    fn delete(&mut self, now: Now, to: ReplyTo, named: &[Named]) {
        self.tickets += 1;
        let key = self.tickets;
        let gather = Gather {
            to: Some(to),
            done: 0,
            batches: None,
            codes: named
                .iter()
                .map(|named| (named.at, ErrorCode::NONE))
                .collect(),
        };
        self.gathers.insert(key, gather);
        self.parked.insert(to, (-1, Text::empty()));
        let mut batches = 0;
        for named in named {
            match self.delete_one(now, key, named) {
                Ok(more) => batches += more,
                Err(code) => self.set_gathered(key, named.at, code),
            }
        }
        if let Some(gather) = self.gathers.get_mut(&key) {
            gather.batches = Some(batches);
        }
        self.finish_gather(key);
    }

    fn delete_one(&mut self, now: Now, key: u64, named: &Named) -> Result<usize, ErrorCode> {
        let number = self.home_of(named.home)?;
        let at = named.at;
        let deleted = self.on_group(now, number, &named.group, |group, turn| {
            group.delete(turn, || Then::Gathered { gather: key, at })
        });
        deleted.ok_or(ErrorCode::GROUP_ID_NOT_FOUND)?
    }

    fn set_gathered(&mut self, key: u64, at: u32, code: ErrorCode) {
        let gather = self.gathers.get_mut(&key);
        let entry = gather.and_then(|gather| gather.codes.iter_mut().find(|entry| entry.0 == at));
        if let Some(entry) = entry {
            entry.1 = code;
        }
    }

    fn finish_gather(&mut self, key: u64) {
        let is_complete = |gather: &Gather| gather.batches == Some(gather.done);
        if self.gathers.get(&key).is_some_and(is_complete)
            && let Some(gather) = self.gathers.remove(&key)
        {
            let reply = Reply::Deleted(gather.codes);
            self.replies.extend(gather.to.map(|to| (to, reply)));
        }
    }

    /// Lets a fact happen to a group, then carries out what it asks for. `None` = there is no such group.
    fn on_group<R>(
        &mut self,
        now: Now,
        number: i32,
        id: &Text,
        serve: impl FnOnce(&mut Group, &mut Turn<'_>) -> R,
    ) -> Option<R> {
        let mut writes = Vec::new();
        let group = self.homes.get_mut(&number)?.groups.get_mut(id)?;
        let before = group.bytes();
        let mut turn = Turn {
            now,
            config: &self.config,
            random: &mut self.random,
            replies: &mut self.replies,
            writes: &mut writes,
        };
        let result = serve(group, &mut turn);
        self.members_bytes = self.members_bytes + group.bytes() - before;
        if group.due < group.armed {
            group.armed = group.due;
            self.timers
                .push(Reverse((group.due, number, group.id.clone())));
        }
        for write in writes {
            self.append(now, number, write);
        }
        self.forget_if_void(number, id);
        Some(result)
    }

    fn append(&mut self, now: Now, number: i32, write: Write) {
        let memory = Memory {
            group: write.group,
            outcome: write.outcome,
        };
        if write.records.is_empty() {
            self.settle(now, number, memory, Ok(()));
            return;
        }
        let batch = build(&write.records, now.wall_ms, self.config.offsets_codec);
        let (Some(batch), Some(home)) = (batch, self.homes.get_mut(&number)) else {
            self.settle(now, number, memory, Err(ErrorCode::UNKNOWN_SERVER_ERROR));
            return;
        };
        self.tickets += 1;
        self.appends_under_way += 1;
        let give_up_at = now.mono.after_ms(self.config.commit_timeout_ms);
        home.ledger
            .append(batch, self.tickets, give_up_at, memory, &mut self.asks);
    }

    fn forget_if_void(&mut self, number: i32, id: &Text) {
        let Some(home) = self.homes.get_mut(&number) else {
            return;
        };
        if home.groups.get(id).is_some_and(Group::is_forgettable)
            && let Some(group) = home.groups.remove(id)
        {
            self.members_bytes -= group.bytes();
        }
    }

    /// Nobody waits for `to` any more. Its member lives on until its session ends.
    pub fn cancel(&mut self, to: ReplyTo) {
        let Some((number, id)) = self.parked.remove(&to) else {
            return;
        };
        self.replies.retain(|(waiting, _)| *waiting != to);
        for gather in self.gathers.values_mut() {
            gather.to = gather.to.filter(|held| *held != to);
        }
        let Some(home) = self.homes.get_mut(&number) else {
            return;
        };
        if let Some(group) = home.groups.get_mut(&id) {
            group.forget_waiter(to);
        }
        for memory in home.ledger.appends_mut() {
            if let Outcome::Offsets { then, .. } = &mut memory.outcome {
                then.forget(to);
            }
        }
    }

    /// A clean stop begins: whoever waits is sent elsewhere, and nothing is loaded any more.
    pub fn stop(&mut self, out: &mut Outbox) {
        for number in self.numbers() {
            self.unload(number);
        }
        self.homes.clear();
        self.send(self.replies.len(), out);
    }

    /// Sends some replies; the rest follows in the next turns.
    fn flush(&mut self, out: &mut Outbox) {
        let now = self.replies.len().min(REPLIES_PER_TURN);
        self.send(now, out);
    }

    fn send(&mut self, count: usize, out: &mut Outbox) {
        for (to, reply) in self.replies.drain(..count) {
            self.parked.remove(&to);
            out.reply(to, part::Reply::Group(Box::new(reply)));
        }
    }

    /// Memory of all groups.
    pub fn bytes(&self) -> usize {
        self.members_bytes
    }

    /// How many groups there are.
    pub fn count(&self) -> usize {
        self.homes.values().map(|home| home.groups.len()).sum()
    }

    /// Requests that wait.
    pub fn parked(&self) -> usize {
        self.parked.len()
    }
}
