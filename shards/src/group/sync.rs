//! SyncGroup (J-6) and Heartbeat (J-7).

use std::collections::BTreeMap;

use bytes::Bytes;

use super::classic::{Group, State};
use super::member::Parked;
use super::outcome::Outcome;
use super::request::{Heartbeat, Sync, Synced};
use super::turn::{NO_ASSIGNMENT, Turn};
use crate::base::error_code::ErrorCode;
use crate::base::ids::{ReplyTo, Text};

impl Group {
    pub(super) fn sync(&mut self, turn: &mut Turn<'_>, to: ReplyTo, sync: &Sync) {
        if let Err(code) = self.check_sync(sync) {
            turn.synced(Some(to), Synced::error(code));
            return;
        }
        match self.state {
            State::Empty => turn.synced(Some(to), Synced::error(ErrorCode::UNKNOWN_MEMBER_ID)),
            State::PreparingRebalance => {
                turn.synced(Some(to), Synced::error(ErrorCode::REBALANCE_IN_PROGRESS));
            }
            State::CompletingRebalance => self.wait_for_assignment(turn, to, sync),
            State::Stable => {
                self.to_sync.remove(&sync.member_id);
                let synced = self.synced(&sync.member_id);
                turn.synced(Some(to), synced);
            }
        }
    }

    fn check_sync(&self, sync: &Sync) -> Result<(), ErrorCode> {
        self.check_member(&sync.member_id, sync.instance_id.as_ref())?;
        if sync.generation != self.generation {
            return Err(ErrorCode::ILLEGAL_GENERATION);
        }
        let differs = |asked: &Option<Text>, own: &Option<Text>| match (asked, own) {
            (Some(asked), Some(own)) => asked != own,
            _ => false,
        };
        if differs(&sync.protocol_type, &self.protocol_type)
            || differs(&sync.protocol, &self.protocol)
        {
            return Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
        }
        Ok(())
    }

    fn synced(&self, id: &str) -> Synced {
        Synced {
            code: ErrorCode::NONE,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            assignment: self
                .member(id)
                .map_or(NO_ASSIGNMENT, |member| member.assignment.clone()),
        }
    }

    fn wait_for_assignment(&mut self, turn: &mut Turn<'_>, to: ReplyTo, sync: &Sync) {
        let earlier = self.take_sync(&sync.member_id);
        turn.synced(earlier, Synced::error(ErrorCode::REBALANCE_IN_PROGRESS));
        if let Some(member) = self.member_mut(&sync.member_id) {
            member.sync = Parked::For(to);
        }
        self.to_sync.remove(&sync.member_id);
        // One assignment per generation: the leader that asks twice waits for what it said first.
        if self.is_leader(&sync.member_id) && self.assigning != Some(self.generation) {
            self.assign(turn, sync);
        }
    }

    /// The leader has said who gets what: it counts when it is committed.
    fn assign(&mut self, turn: &mut Turn<'_>, sync: &Sync) {
        let mut assignments: BTreeMap<Text, Bytes> = self
            .members()
            .map(|(id, _)| (id.clone(), NO_ASSIGNMENT))
            .collect();
        for (id, assignment) in &sync.assignments {
            if let Some(own) = assignments.get_mut(id) {
                *own = Bytes::copy_from_slice(assignment);
            }
        }
        self.assigning = Some(self.generation);
        let record = self.record_with(|id, _| assignments.get(id).cloned().unwrap_or_default());
        self.is_recorded = true;
        let generation = self.generation;
        let outcome = Outcome::Assigned {
            generation,
            assignments,
        };
        self.write(turn, vec![record], outcome);
    }

    /// The assignment is committed, or never will be. Members may have come or gone meanwhile: then it is of no interest.
    pub(super) fn assigned(
        &mut self,
        turn: &mut Turn<'_>,
        generation: i32,
        assignments: BTreeMap<Text, Bytes>,
        result: Result<(), ErrorCode>,
    ) {
        if self.assigning == Some(generation) {
            self.assigning = None;
        }
        if self.state != State::CompletingRebalance || self.generation != generation {
            return;
        }
        if let Err(code) = result {
            self.withdraw_assignments(turn, code);
            self.prepare_rebalance(turn);
            return;
        }
        self.set_state(turn, State::Stable);
        for (id, assignment) in assignments {
            self.set_assignment(&id, assignment);
            if self.member(&id).is_some_and(|member| member.sync.waits()) {
                let to = self.take_sync(&id);
                let synced = self.synced(&id);
                turn.synced(to, synced);
                self.touch(turn, &id);
            }
        }
    }

    pub(super) fn heartbeat(&mut self, turn: &mut Turn<'_>, heartbeat: &Heartbeat) -> ErrorCode {
        let id = &heartbeat.member_id;
        if let Err(code) = self.check_member(id, heartbeat.instance_id.as_ref()) {
            return code;
        }
        if heartbeat.generation != self.generation {
            return ErrorCode::ILLEGAL_GENERATION;
        }
        self.touch(turn, id);
        match self.state {
            State::Empty => ErrorCode::UNKNOWN_MEMBER_ID,
            State::PreparingRebalance => ErrorCode::REBALANCE_IN_PROGRESS,
            State::CompletingRebalance | State::Stable => ErrorCode::NONE,
        }
    }
}
