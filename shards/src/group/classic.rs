//! One group's state: who is in it, what they can do, how it stands. What happens to it is in the modules beside this one.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use corelog_wire::primitives::Reader;
use corelog_wire::records::data::ConsumerProtocolSubscription;

use super::limits::GROUP_BYTES;
use super::member::{Member, Settings};
use super::offsets::Offsets;
use super::request::{JoinedMember, Protocol};
use super::turn::Turn;
use crate::base::error_code::ErrorCode;
use crate::base::ids::{ReplyTo, Text};
use crate::base::time::Mono;

/// The protocol type of consumers; connectors and others bring their own.
pub(super) const CONSUMER: &str = "consumer";

/// How a group stands (kafka.md 7.3). There is no Dead: a dead group is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Empty,
    /// Members are to join.
    PreparingRebalance,
    /// The leader is to say who gets what.
    CompletingRebalance,
    Stable,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            State::Empty => "Empty",
            State::PreparingRebalance => "PreparingRebalance",
            State::CompletingRebalance => "CompletingRebalance",
            State::Stable => "Stable",
        }
    }
}

/// When the join phase ends (J-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JoinTimer {
    /// The first rebalance of an empty group: a delay that new members extend, up to what remains.
    Initial {
        at: Mono,
        delay_ms: u64,
        remaining_ms: u64,
    },
    Rebalance {
        at: Mono,
    },
}

impl JoinTimer {
    pub(super) fn at(self) -> Mono {
        match self {
            JoinTimer::Initial { at, .. } | JoinTimer::Rebalance { at } => at,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) id: Text,
    pub(super) state: State,
    /// The rebalance that is being prepared is the first of an empty group.
    pub(super) was_empty: bool,
    pub(super) generation: i32,
    /// Kept when the last member leaves (J-14); `None` = only offsets were ever committed.
    pub(super) protocol_type: Option<Text>,
    pub(super) protocol: Option<Text>,
    pub(super) leader: Option<Text>,
    /// In the order of their ids.
    members: BTreeMap<Text, Member>,
    /// Instance id to member id (J-9).
    statics: BTreeMap<Text, Text>,
    /// Ids that were given out and are to come back, and when they end (J-2).
    pending: BTreeMap<Text, Mono>,
    /// How many members know a protocol.
    supporters: BTreeMap<Text, usize>,
    /// Members whose JoinGroup waits.
    joining: usize,
    /// Members that have not asked for this generation's assignment.
    pub(super) to_sync: BTreeSet<Text>,
    pub(super) new_member_added: bool,
    pub(super) join_timer: Option<JoinTimer>,
    pub(super) sync_deadline: Option<Mono>,
    /// The generation whose assignment is on its way into the log.
    pub(super) assigning: Option<i32>,
    /// Wall time of the last change of state; `None` in records of old brokers.
    pub(super) state_since_ms: Option<i64>,
    /// What a consumer group subscribes to; `None` = it can't be known.
    pub(super) subscribed: Option<BTreeSet<Text>>,
    pub(super) offsets: Offsets,
    /// A record of the group itself is in the log, or on its way there.
    pub(super) is_recorded: bool,
    /// Its offsets were deleted, but not the group: Kafka shows it until it looks for expired offsets (J-13).
    pub(super) lingers: bool,
    /// Its batches that are neither committed nor failed.
    pub(super) writes_under_way: u32,
    /// Memory of its members.
    bytes: usize,
    /// At this time or earlier something may be due.
    pub(super) due: Mono,
    /// When the timer queue will look at the group.
    pub(super) armed: Mono,
}

/// Far away.
pub(super) const NEVER: Mono = Mono(u64::MAX);

impl Group {
    pub(super) fn new(id: Text) -> Group {
        Group {
            id,
            state: State::Empty,
            was_empty: true,
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            statics: BTreeMap::new(),
            pending: BTreeMap::new(),
            supporters: BTreeMap::new(),
            joining: 0,
            to_sync: BTreeSet::new(),
            new_member_added: false,
            join_timer: None,
            sync_deadline: None,
            assigning: None,
            state_since_ms: None,
            subscribed: None,
            offsets: Offsets::default(),
            is_recorded: false,
            lingers: false,
            writes_under_way: 0,
            bytes: GROUP_BYTES,
            due: NEVER,
            armed: NEVER,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn size(&self) -> usize {
        self.members.len()
    }

    pub(super) fn joining(&self) -> usize {
        self.joining
    }

    pub(super) fn member(&self, id: &str) -> Option<&Member> {
        self.members.get(id)
    }

    /// For all that does not change who waits, what it weighs or what it can do.
    pub(super) fn member_mut(&mut self, id: &str) -> Option<&mut Member> {
        self.members.get_mut(id)
    }

    pub(super) fn members(&self) -> impl Iterator<Item = (&Text, &Member)> {
        self.members.iter()
    }

    pub(super) fn member_ids(&self) -> Vec<Text> {
        self.members.keys().cloned().collect()
    }

    pub(super) fn static_member(&self, instance_id: &str) -> Option<&Text> {
        self.statics.get(instance_id)
    }

    pub(super) fn is_leader(&self, id: &str) -> bool {
        self.leader.as_deref() == Some(id)
    }

    pub(super) fn is_pending(&self, id: &str) -> bool {
        self.pending.contains_key(id)
    }

    pub(super) fn is_consumer_group(&self) -> bool {
        self.protocol_type.as_deref() == Some(CONSUMER)
    }

    /// Nothing would be lost with it.
    pub(super) fn is_forgettable(&self) -> bool {
        self.state == State::Empty
            && !self.is_recorded
            && !self.lingers
            && self.writes_under_way == 0
            && self.pending.is_empty()
            && self.offsets.is_empty()
    }

    /// Looks at the group again at `at`, at the latest.
    pub(super) fn wake_at(&mut self, at: Mono) {
        self.due = self.due.min(at);
    }

    pub(super) fn set_state(&mut self, turn: &Turn<'_>, state: State) {
        self.was_empty = self.state == State::Empty;
        self.state = state;
        self.state_since_ms = Some(turn.now.wall_ms);
    }

    /// Whether the request's member is who it says (KIP-345).
    pub(super) fn check_member(
        &self,
        id: &str,
        instance_id: Option<&Text>,
    ) -> Result<(), ErrorCode> {
        if let Some(instance_id) = instance_id {
            match self.statics.get(instance_id) {
                None => return Err(ErrorCode::UNKNOWN_MEMBER_ID),
                Some(current) if &**current != id => return Err(ErrorCode::FENCED_INSTANCE_ID),
                Some(_) => {}
            }
        }
        if self.members.contains_key(id) {
            Ok(())
        } else {
            Err(ErrorCode::UNKNOWN_MEMBER_ID)
        }
    }

    /// J-1: the protocol type, and a protocol that all members know.
    pub(super) fn supports(&self, protocol_type: &str, protocols: &[Protocol]) -> bool {
        if self.state == State::Empty {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        let known_to_all = |protocol: &Protocol| {
            self.supporters.get(&protocol.name).copied().unwrap_or(0) == self.members.len()
        };
        self.protocol_type.as_deref() == Some(protocol_type) && protocols.iter().any(known_to_all)
    }

    pub(super) fn add_pending(&mut self, id: Text, until: Mono) {
        self.bytes += super::limits::MEMBER_BYTES + id.len();
        self.pending.insert(id, until);
        self.wake_at(until);
    }

    pub(super) fn remove_pending(&mut self, id: &str) -> bool {
        let was = self.pending.remove(id).is_some();
        if was {
            self.bytes -= super::limits::MEMBER_BYTES + id.len();
        }
        was
    }

    pub(super) fn clear_pending(&mut self) {
        let ids: Vec<Text> = self.pending.keys().cloned().collect();
        for id in ids {
            self.remove_pending(&id);
        }
    }

    pub(super) fn expired_pending(&self, now: Mono) -> Vec<Text> {
        let ended = self.pending.iter().filter(|(_, until)| **until <= now);
        ended.map(|(id, _)| id.clone()).collect()
    }

    pub(super) fn next_pending_end(&self) -> Option<Mono> {
        self.pending.values().min().copied()
    }

    /// Adds a member; the first one says what the group speaks, and leads.
    pub(super) fn add(&mut self, id: Text, protocol_type: &str, member: Member) {
        self.remove_pending(&id);
        if let Some(instance_id) = &member.instance_id {
            let before = self.statics.insert(instance_id.clone(), id.clone());
            assert!(before.is_none(), "the instance {instance_id} has a member");
        }
        if self.members.is_empty() {
            self.protocol_type = Some(Text::from(protocol_type.to_owned()));
        }
        self.leader.get_or_insert_with(|| id.clone());
        self.bytes += member.bytes() + id.len();
        self.joining += usize::from(member.join.waits());
        self.count_protocols(&member.settings, true);
        let before = self.members.insert(id, member);
        assert!(before.is_none(), "a member joins that is there");
    }

    /// Takes a member out; whoever of it waits is the caller's business. The next in line leads if it led.
    pub(super) fn remove(&mut self, id: &str) -> Option<Member> {
        let member = self.members.remove(id)?;
        self.bytes -= member.bytes() + id.len();
        self.joining -= usize::from(member.join.waits());
        self.count_protocols(&member.settings, false);
        if let Some(instance_id) = &member.instance_id {
            self.statics.remove(instance_id);
        }
        self.to_sync.remove(id);
        if self.is_leader(id) {
            self.leader = self.members.keys().next().cloned();
        }
        Some(member)
    }

    /// Gives a static member a new id (J-9). Its waits are the caller's business, before.
    pub(super) fn rename(&mut self, old_id: &str, new_id: Text) {
        let Some(member) = self.members.remove(old_id) else {
            return;
        };
        assert!(
            !member.join.waits() && !member.sync.waits(),
            "a fenced member waits"
        );
        self.bytes = self.bytes + new_id.len() - old_id.len();
        if let Some(instance_id) = &member.instance_id {
            self.statics.insert(instance_id.clone(), new_id.clone());
        }
        if self.is_leader(old_id) {
            self.leader = Some(new_id.clone());
        }
        self.to_sync.remove(old_id);
        self.members.insert(new_id, member);
    }

    pub(super) fn change_settings(&mut self, id: &str, settings: Settings) {
        let Some((id, mut member)) = self.members.remove_entry(id) else {
            return;
        };
        self.bytes -= member.bytes();
        self.count_protocols(&member.settings, false);
        member.settings = settings;
        self.bytes += member.bytes();
        self.count_protocols(&member.settings, true);
        self.members.insert(id, member);
    }

    pub(super) fn set_assignment(&mut self, id: &str, assignment: Bytes) {
        if let Some(member) = self.members.get_mut(id) {
            self.bytes = self.bytes + assignment.len() - member.assignment.len();
            member.assignment = assignment;
        }
    }

    fn count_protocols(&mut self, settings: &Settings, add: bool) {
        for (at, protocol) in settings.protocols.iter().enumerate() {
            // A protocol that is named twice counts once.
            if settings.protocols[..at]
                .iter()
                .any(|earlier| earlier.name == protocol.name)
            {
                continue;
            }
            if add {
                *self.supporters.entry(protocol.name.clone()).or_insert(0) += 1;
            } else if let Some(count) = self.supporters.get_mut(&protocol.name) {
                *count -= 1;
                if *count == 0 {
                    self.supporters.remove(&protocol.name);
                }
            }
        }
    }

    /// The member's JoinGroup waits; an earlier one that still waits is given back to be answered.
    pub(super) fn park_join(&mut self, id: &str, to: ReplyTo) -> Option<ReplyTo> {
        let member = self.members.get_mut(id)?;
        self.joining += usize::from(!member.join.waits());
        let earlier = member.join.take();
        member.join = super::member::Parked::For(to);
        earlier
    }

    /// The member's JoinGroup does not wait any more; whom to answer, if anybody.
    pub(super) fn take_join(&mut self, id: &str) -> Option<ReplyTo> {
        let member = self.members.get_mut(id)?;
        self.joining -= usize::from(member.join.waits());
        member.join.take()
    }

    pub(super) fn take_sync(&mut self, id: &str) -> Option<ReplyTo> {
        self.members.get_mut(id)?.sync.take()
    }

    /// J-3: everybody who is known waits for the join to complete.
    pub(super) fn all_have_joined(&self) -> bool {
        self.members.len() == self.joining && self.pending.is_empty()
    }

    /// The longest of all members'.
    pub(super) fn rebalance_timeout_ms(&self) -> u64 {
        let all = self.members.values();
        let longest = all.map(|member| member.settings.rebalance_timeout_ms).max();
        u64::from(longest.unwrap_or(0))
    }

    /// The leader stays if it has rejoined, else somebody leads who has. False: nobody has.
    pub(super) fn elect_joined_leader(&mut self) -> bool {
        let Some(leader) = &self.leader else {
            return false;
        };
        if self
            .members
            .get(leader)
            .is_some_and(|member| member.join.waits())
        {
            return true;
        }
        let joined = self.members.iter().find(|(_, member)| member.join.waits());
        match joined.map(|(id, _)| id.clone()) {
            Some(id) => {
                self.leader = Some(id);
                true
            }
            None => false,
        }
    }

    /// J-4: each member votes for the first of its protocols that all members know.
    pub(super) fn choose_protocol(&self) -> Option<Text> {
        let mut votes: Vec<(&Text, usize)> = Vec::new();
        for member in self.members.values() {
            let everybodys = |name: &Text| self.supporters.get(name) == Some(&self.members.len());
            let mut own = member
                .settings
                .protocols
                .iter()
                .map(|protocol| &protocol.name);
            let Some(choice) = own.find(|name| everybodys(name)) else {
                continue;
            };
            match votes.iter_mut().find(|(name, _)| *name == choice) {
                Some((_, count)) => *count += 1,
                None => votes.push((choice, 1)),
            }
        }
        // Of equals, the one that was voted for first.
        let winner = votes.iter().rev().max_by_key(|(_, count)| *count);
        winner.map(|(name, _)| (*name).clone())
    }

    /// Everybody, for the leader's JoinGroup response.
    pub(super) fn joined_members(&self) -> Vec<JoinedMember> {
        let protocol = self.protocol.as_deref().unwrap_or("");
        let all = self.members.iter();
        all.map(|(id, member)| member.joined(id, protocol))
            .collect()
    }

    /// What the members of a consumer group subscribe to (7.2); `None` when a subscription can't be read.
    pub(super) fn refresh_subscribed(&mut self) {
        self.subscribed = self.subscriptions();
    }

    fn subscriptions(&self) -> Option<BTreeSet<Text>> {
        if !self.is_consumer_group() {
            return None;
        }
        let mut topics = BTreeSet::new();
        for member in self.members.values() {
            let metadata = member.metadata(self.protocol.as_deref()?);
            topics.extend(topics_of(&metadata)?);
        }
        Some(topics)
    }

    /// Whether offsets of the topic are in use by members.
    pub(super) fn subscribes_to(&self, topic: &str) -> bool {
        match &self.subscribed {
            Some(topics) => topics.contains(topic),
            None => self.is_consumer_group(),
        }
    }

    /// Whoever of the group waited for `to` is gone.
    pub(super) fn forget_waiter(&mut self, to: ReplyTo) {
        use super::member::Parked;
        for member in self.members.values_mut() {
            for parked in [&mut member.join, &mut member.sync] {
                if *parked == Parked::For(to) {
                    *parked = Parked::Unheard;
                }
            }
        }
    }
}

/// The topics of a consumer's subscription. They stand at the same place in every version, so a version that is newer than this broker
/// can be read too.
fn topics_of(subscription: &[u8]) -> Option<Vec<Text>> {
    let as_version_0 = [&[0, 0], subscription.get(2..)?].concat();
    let read = ConsumerProtocolSubscription::decode(&mut Reader::new(Bytes::from(as_version_0)));
    Some(read.ok()?.topics.iter().map(Text::detached).collect())
}
