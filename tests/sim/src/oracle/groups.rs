//! What has to be true of consumer groups.
//!
//! A coordinator decides one fact at a time, so the oracle listens where facts reach it and where its answers leave it: a request is remembered with
//! what was true when it came, and its answer is held against that. Rules, each with the name under which it fails:
//!
//! - a generation that was told is never followed by an older one;
//! - one member set and one assignment per generation, and no partition in it twice;
//! - only members of the present generation commit, sync and are kept alive;
//! - what was committed and acknowledged is read until something newer is, and nothing is read that was not sent;
//! - a deleted group's offsets are gone.
//!
//! What a crash may take: a rebalance that was not finished, always; everything, if the power goes and the topic does not sync.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Buf, Bytes};
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::ids::{ReplyTo, Text};
use corelog_shards::group::request::{
    Commit, FetchOffsets, GroupOffsets, Join, Joined, Leave, Left, Sync, Synced,
};
use corelog_shards::group::{Reply, Request};

use super::Crash;
use crate::{Checked, Failure, must};

/// No offset.
const NONE: i64 = -1;

/// The offset that only those send who are not members.
pub const FORGED: i64 = 1 << 40;

/// One partition's commits.
#[derive(Debug, Default)]
struct Cell {
    /// (order of arrival, offset); a deletion is a commit of no offset.
    sent: Vec<(u64, i64)>,
    /// The newest one that was acknowledged, by its order of arrival.
    floor: u64,
}

impl Cell {
    /// Whether `found` may be what is committed, when `floor` was acknowledged. With its topic, an offset may go at any time.
    fn may_hold(&self, found: i64, floor: u64, is_doomed: bool) -> bool {
        let newest = self.sent.iter().rev().find(|(_, offset)| *offset == found);
        let order = match newest {
            Some((order, _)) => *order,
            None if found == NONE => 0,
            None => return false,
        };
        order >= floor || (found == NONE && is_doomed)
    }
}

/// One group as it has to be.
#[derive(Debug, Default)]
struct Truth {
    /// The newest that somebody was told to be in.
    generation: i32,
    /// The newest of which an assignment was given out: it outlives the process.
    assigned: i32,
    /// Who leads whom: by generation, the owners whom its leader was told of.
    members: BTreeMap<i32, BTreeSet<Text>>,
    /// Ids that were told to be members.
    known: BTreeSet<Text>,
    /// Of these, those that left or were left behind.
    gone: BTreeSet<Text>,
    /// The instance of a static member's id.
    instances: BTreeMap<Text, Text>,
    /// The id that an instance has now.
    current: BTreeMap<Text, Text>,
    /// What was given out: by generation and owner (an instance or an id).
    assignments: BTreeMap<i32, BTreeMap<Text, Bytes>>,
    cells: BTreeMap<(Text, i32), Cell>,
}

impl Truth {
    /// Somebody asks for its deletion: a group of its name may begin with generation 1.
    fn may_begin_anew(&mut self) {
        self.generation = 0;
        self.assigned = 0;
        self.members.clear();
        self.assignments.clear();
    }

    /// A static member is its instance, whatever its id.
    fn owner(&self, id: &Text) -> Text {
        self.instances.get(id).unwrap_or(id).clone()
    }

    /// Why nothing may be done in the name of this member.
    fn objection(&self, id: &Text, instance: Option<&Text>) -> Option<&'static str> {
        if !self.known.contains(id) {
            return Some("it was never told to be a member");
        }
        if self.gone.contains(id) {
            return Some("it had left");
        }
        let current = self.current.get(instance?)?;
        (current != id).then_some("its instance has another id")
    }
}

/// A request on its way, with what was true when it came.
#[derive(Debug)]
struct Arrived {
    request: Request,
    order: u64,
    generation: i32,
    objection: Option<&'static str>,
    /// Of an OffsetFetch: what was acknowledged, by group.
    floors: BTreeMap<Text, BTreeMap<(Text, i32), u64>>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Groups {
    truths: BTreeMap<Text, Truth>,
    arrived: BTreeMap<ReplyTo, Arrived>,
    order: u64,
    /// Names of topics that somebody wanted to be gone.
    doomed: BTreeSet<String>,
    /// The topic of offsets syncs what it acknowledges.
    pub is_durable: bool,
    pub commits: u64,
    pub assignments: u64,
}

impl Groups {
    /// A request reaches its coordinator.
    pub fn arrives(&mut self, to: ReplyTo, request: &Request) {
        self.order += 1;
        let mut arrived = Arrived {
            request: request.clone(),
            order: self.order,
            generation: 0,
            objection: None,
            floors: BTreeMap::new(),
        };
        let identity = match request {
            Request::Join(join) => Some((&join.group, &join.member_id, join.instance_id.as_ref())),
            Request::Sync(sync) => Some((&sync.group, &sync.member_id, sync.instance_id.as_ref())),
            Request::Heartbeat(beat) => {
                Some((&beat.group, &beat.member_id, beat.instance_id.as_ref()))
            }
            Request::Commit(commit) => {
                self.sends(commit);
                Some((
                    &commit.group,
                    &commit.member_id,
                    commit.instance_id.as_ref(),
                ))
            }
            Request::DeleteOffsets(delete) => {
                let cells = delete.entries.iter();
                let cells = cells.map(|(_, topic, partition)| (topic.detached(), *partition));
                self.deletes(&delete.group, &cells.collect::<Vec<_>>());
                None
            }
            Request::Delete(named) => {
                for named in named {
                    let truth = self.truths.entry(named.group.detached()).or_default();
                    truth.may_begin_anew();
                    let cells: Vec<_> = truth.cells.keys().cloned().collect();
                    self.deletes(&named.group, &cells);
                }
                None
            }
            Request::FetchOffsets(asked) => {
                for asked in asked {
                    let floors = self.floors(&asked.group);
                    arrived.floors.insert(asked.group.detached(), floors);
                }
                None
            }
            Request::Leave(_) | Request::Describe(_) | Request::List(_) => None,
        };
        if let Some((group, id, instance)) = identity {
            let truth = self.truths.entry(group.detached()).or_default();
            arrived.generation = truth.generation;
            arrived.objection = truth.objection(id, instance);
        }
        self.arrived.insert(to, arrived);
    }

    fn sends(&mut self, commit: &Commit) {
        let truth = self.truths.entry(commit.group.detached()).or_default();
        for entry in &commit.entries {
            let key = (entry.topic.detached(), entry.partition);
            let cell = truth.cells.entry(key).or_default();
            cell.sent.push((self.order, entry.offset));
        }
    }

    fn deletes(&mut self, group: &Text, cells: &[(Text, i32)]) {
        let truth = self.truths.entry(group.detached()).or_default();
        for key in cells {
            let cell = truth.cells.entry(key.clone()).or_default();
            cell.sent.push((self.order, NONE));
        }
    }

    fn floors(&self, group: &Text) -> BTreeMap<(Text, i32), u64> {
        let Some(truth) = self.truths.get(group) else {
            return BTreeMap::new();
        };
        let cells = truth.cells.iter();
        cells.map(|(key, cell)| (key.clone(), cell.floor)).collect()
    }

    /// Nobody waits for the answer any more; what was asked may happen all the same.
    pub fn cancelled(&mut self, to: ReplyTo) {
        self.arrived.remove(&to);
    }

    /// Somebody asks for a topic's deletion: offsets of a topic of this name may go.
    pub fn topic_may_go(&mut self, topic: &str) {
        self.doomed.insert(topic.to_owned());
    }

    pub fn crashed(&mut self, crash: Crash) {
        self.arrived.clear();
        let keeps = crash == Crash::Kill || self.is_durable;
        for truth in self.truths.values_mut() {
            // What was only in memory is as it was when the last assignment was written, or the one after.
            truth.gone.clear();
            truth.current.clear();
            if !keeps {
                truth.assigned = 0;
                truth.assignments.clear();
                truth.cells.values_mut().for_each(|cell| cell.floor = 0);
            }
            truth.generation = truth.assigned;
            let assigned = truth.assigned;
            truth
                .members
                .retain(|generation, _| *generation <= assigned && keeps);
        }
    }

    /// An answer leaves its coordinator.
    pub fn answers(&mut self, to: ReplyTo, reply: &Reply) -> Checked {
        let Some(arrived) = self.arrived.remove(&to) else {
            return Ok(());
        };
        match (&arrived.request, reply) {
            (Request::Join(join), Reply::Joined(joined)) => self.joined(&arrived, join, joined),
            (Request::Sync(sync), Reply::Synced(synced)) => self.synced(&arrived, sync, synced),
            (Request::Heartbeat(beat), Reply::Heartbeat(ErrorCode::NONE)) => {
                is_member(&arrived, &beat.group, &beat.member_id, beat.generation)
            }
            (Request::Commit(commit), Reply::Committed(codes)) => {
                self.committed(&arrived, commit, codes)
            }
            (Request::Leave(leave), Reply::Left(left)) => {
                self.left(leave, left);
                Ok(())
            }
            (Request::FetchOffsets(asked), Reply::Offsets(all)) => {
                let mut both = asked.iter().zip(all);
                both.try_for_each(|(asked, offsets)| self.read(&arrived, asked, offsets))
            }
            (Request::Delete(named), Reply::Deleted(codes)) => {
                for (at, code) in codes {
                    let named = named.iter().find(|named| named.at == *at);
                    if let (ErrorCode::NONE, Some(named)) = (*code, named) {
                        self.deleted(&named.group, arrived.order, None);
                    }
                }
                Ok(())
            }
            (Request::DeleteOffsets(delete), Reply::OffsetsDeleted(deleted)) => {
                for (at, code) in &deleted.entries {
                    let entry = delete.entries.iter().find(|(place, ..)| place == at);
                    if let (ErrorCode::NONE, Some((_, topic, partition))) = (*code, entry) {
                        let key = (topic.detached(), *partition);
                        self.deleted(&delete.group, arrived.order, Some(&key));
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn joined(&mut self, arrived: &Arrived, join: &Join, joined: &Joined) -> Checked {
        if joined.code.is_error() {
            return Ok(());
        }
        let (group, generation) = (join.group.as_str(), joined.generation);
        must!(
            generation >= arrived.generation,
            "a generation is never followed by an older one: {group} gives {generation} after {}",
            arrived.generation
        );
        let truth = self.truths.entry(join.group.detached()).or_default();
        if let Some(instance) = &join.instance_id {
            let before = truth
                .current
                .insert(instance.detached(), joined.member_id.clone());
            truth
                .gone
                .extend(before.filter(|before| *before != joined.member_id));
            truth
                .instances
                .insert(joined.member_id.clone(), instance.detached());
        }
        truth.known.insert(joined.member_id.clone());
        if generation > truth.generation {
            truth.generation = generation;
        }
        if joined.members.is_empty() {
            return Ok(());
        }
        let told = joined.members.iter();
        let owner = |member: &corelog_shards::group::request::JoinedMember| {
            let own = member.instance_id.as_ref().unwrap_or(&member.member_id);
            own.clone()
        };
        let owners: BTreeSet<Text> = told.map(owner).collect();
        let listed: BTreeSet<&Text> = joined.members.iter().map(|own| &own.member_id).collect();
        let left_behind = truth.known.iter().filter(|id| !listed.contains(id));
        truth.gone.extend(left_behind.cloned());
        let first = truth
            .members
            .entry(generation)
            .or_insert_with(|| owners.clone());
        must!(
            *first == owners,
            "one member set per generation: {group} generation {generation} has {first:?} and {owners:?}"
        );
        Ok(())
    }

    fn synced(&mut self, arrived: &Arrived, sync: &Sync, synced: &Synced) -> Checked {
        if synced.code.is_error() {
            return Ok(());
        }
        is_member(arrived, &sync.group, &sync.member_id, sync.generation)?;
        self.assignments += 1;
        let truth = self.truths.entry(sync.group.detached()).or_default();
        truth.assigned = truth.assigned.max(sync.generation);
        let owner = truth.owner(&sync.member_id);
        let given = truth.assignments.entry(sync.generation).or_default();
        let first = given
            .entry(owner.clone())
            .or_insert_with(|| synced.assignment.clone());
        must!(
            *first == synced.assignment,
            "one assignment per generation: {} generation {} gives {owner:?} two",
            sync.group.as_str(),
            sync.generation
        );
        let mut taken = BTreeSet::new();
        let mut nonces = BTreeSet::new();
        for (nonce, partitions) in given.values().filter_map(|bytes| assignment_of(bytes)) {
            nonces.insert(nonce);
            for partition in partitions {
                must!(
                    taken.insert(partition),
                    "no partition has two owners: {} generation {} gives {partition} twice",
                    sync.group.as_str(),
                    sync.generation
                );
            }
        }
        must!(
            nonces.len() <= 1,
            "one assignment per generation: {} generation {} mixes {nonces:?}",
            sync.group.as_str(),
            sync.generation
        );
        Ok(())
    }

    fn committed(
        &mut self,
        arrived: &Arrived,
        commit: &Commit,
        codes: &[(u32, ErrorCode)],
    ) -> Checked {
        for (at, code) in codes {
            let entry = commit.entries.iter().find(|entry| entry.at == *at);
            let (ErrorCode::NONE, Some(entry)) = (*code, entry) else {
                continue;
            };
            if commit.generation >= 0 {
                is_member(arrived, &commit.group, &commit.member_id, commit.generation)?;
            }
            self.commits += 1;
            let truth = self.truths.entry(commit.group.detached()).or_default();
            let key = (entry.topic.detached(), entry.partition);
            let cell = truth.cells.entry(key).or_default();
            cell.floor = cell.floor.max(arrived.order);
        }
        Ok(())
    }

    fn left(&mut self, leave: &Leave, left: &Left) {
        let truth = self.truths.entry(leave.group.detached()).or_default();
        for ((id, _), code) in leave.members.iter().zip(&left.members) {
            if *code == ErrorCode::NONE && !id.is_empty() {
                truth.gone.insert(id.detached());
            }
        }
    }

    fn deleted(&mut self, group: &Text, order: u64, only: Option<&(Text, i32)>) {
        let Some(truth) = self.truths.get_mut(group) else {
            return;
        };
        for (key, cell) in &mut truth.cells {
            let was_there = cell.sent.iter().any(|(at, _)| *at == order);
            if was_there && only.is_none_or(|only| only == key) {
                cell.floor = cell.floor.max(order);
            }
        }
    }

    fn read(&self, arrived: &Arrived, asked: &FetchOffsets, offsets: &GroupOffsets) -> Checked {
        if offsets.code.is_error() {
            return Ok(());
        }
        let found: BTreeMap<(&str, i32), i64> = offsets
            .topics
            .iter()
            .flat_map(|(topic, partitions)| {
                let all = partitions.iter();
                all.map(|of| ((topic.as_str(), of.partition), of.offset))
            })
            .collect();
        let Some(truth) = self.truths.get(&asked.group) else {
            must!(
                found.values().all(|offset| *offset == NONE),
                "nobody committed to {:?}",
                asked.group
            );
            return Ok(());
        };
        for ((topic, partition), offset) in &found {
            let known = truth
                .cells
                .contains_key(&(Text::from((*topic).to_owned()), *partition));
            must!(
                known || *offset == NONE,
                "an offset that is read was committed: {} {topic} {partition} has {offset}",
                asked.group.as_str()
            );
        }
        let Some(floors) = arrived.floors.get(&asked.group) else {
            return Ok(());
        };
        for (key, floor) in floors {
            let Some(cell) = truth.cells.get(key) else {
                continue;
            };
            let found = found.get(&(key.0.as_str(), key.1)).copied().unwrap_or(NONE);
            must!(
                cell.may_hold(found, *floor, self.doomed.contains(key.0.as_str())),
                "an acknowledged commit is read until a newer one is: {} {key:?} has {found}, {floor} was acknowledged of {:?}",
                asked.group.as_str(),
                cell.sent
            );
        }
        Ok(())
    }
}

/// Whether somebody who was told "yes" may have been.
fn is_member(arrived: &Arrived, group: &Text, id: &Text, generation: i32) -> Checked {
    let present = arrived.generation;
    must!(
        generation >= present,
        "only the present generation is served: {} takes {generation} of {id:?} for {present}",
        group.as_str()
    );
    match arrived.objection {
        None => Ok(()),
        Some(why) => Err(Failure(format!(
            "only members are served: {} serves {id:?} in {generation}, but {why}",
            group.as_str()
        ))),
    }
}

/// What members of these runs are given: the number of the leader's decision, then partitions. Nothing = no part.
pub fn assignment_of(mut bytes: &[u8]) -> Option<(u32, Vec<i32>)> {
    let nonce = bytes.try_get_u32().ok()?;
    let mut partitions = Vec::new();
    while let Ok(partition) = bytes.try_get_i32() {
        partitions.push(partition);
    }
    Some((nonce, partitions))
}

#[cfg(test)]
mod tests;
