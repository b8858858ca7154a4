//! The two phases of a rebalance and what ends them (J-3, J-4), sessions (J-7), and time.

use super::classic::{Group, JoinTimer, NEVER, State};
use super::outcome::{Outcome, Then};
use super::request::{Joined, Reply, Synced};
use super::turn::{NO_ASSIGNMENT, Turn};
use crate::base::error_code::ErrorCode;
use crate::base::ids::{ReplyTo, Text};
use crate::base::time::Mono;

impl Group {
    /// Something about the members has changed.
    pub(super) fn rebalance_or_complete(&mut self, turn: &mut Turn<'_>) {
        if self.state == State::PreparingRebalance {
            self.complete_join_if_all_joined(turn);
        } else {
            self.prepare_rebalance(turn);
        }
    }

    /// Begins the join phase.
    pub(super) fn prepare_rebalance(&mut self, turn: &mut Turn<'_>) {
        if self.state == State::CompletingRebalance {
            self.withdraw_assignments(turn, ErrorCode::REBALANCE_IN_PROGRESS);
        }
        self.sync_deadline = None;
        let from_empty = self.state == State::Empty;
        self.set_state(turn, State::PreparingRebalance);
        if from_empty {
            let delay_ms = turn.config.initial_rebalance_delay_ms;
            let remaining_ms = self.rebalance_timeout_ms().saturating_sub(delay_ms);
            self.new_member_added = false;
            self.delay_join(turn, delay_ms, remaining_ms);
        } else if self.all_have_joined() {
            self.complete_join(turn);
        } else {
            self.wait_for_joins(turn);
        }
    }

    fn delay_join(&mut self, turn: &Turn<'_>, delay_ms: u64, remaining_ms: u64) {
        let at = turn.now.mono.after_ms(delay_ms);
        self.join_timer = Some(JoinTimer::Initial {
            at,
            delay_ms,
            remaining_ms,
        });
        self.wake_at(at);
    }

    fn wait_for_joins(&mut self, turn: &Turn<'_>) {
        let at = turn.now.mono.after_ms(self.rebalance_timeout_ms());
        self.join_timer = Some(JoinTimer::Rebalance { at });
        self.wake_at(at);
    }

    /// The first rebalance of a group only ends by its delay.
    pub(super) fn complete_join_if_all_joined(&mut self, turn: &mut Turn<'_>) {
        if self.state == State::PreparingRebalance && !self.was_empty && self.all_have_joined() {
            self.complete_join(turn);
        }
    }

    /// Ends the join phase with those who are there (J-3, J-4).
    fn complete_join(&mut self, turn: &mut Turn<'_>) {
        self.join_timer = None;
        for id in self.member_ids() {
            let is_missing = self
                .member(&id)
                .is_some_and(|member| !member.join.waits() && member.instance_id.is_none());
            if is_missing {
                self.dismiss(turn, &id);
            }
        }
        if self.size() > 0 && !self.elect_joined_leader() {
            // Only static members, and none of them is back: their sessions decide.
            self.wait_for_joins(turn);
            return;
        }
        self.generation = self.generation.wrapping_add(1).max(1);
        self.to_sync.clear();
        if self.size() == 0 {
            self.become_empty(turn);
        } else {
            self.begin_sync(turn);
        }
    }

    /// J-14
    fn become_empty(&mut self, turn: &mut Turn<'_>) {
        self.protocol = None;
        self.leader = None;
        self.set_state(turn, State::Empty);
        self.refresh_subscribed();
        let records = vec![self.record(|_| NO_ASSIGNMENT)];
        self.is_recorded = true;
        self.write(turn, records, Outcome::Emptied);
    }

    fn begin_sync(&mut self, turn: &mut Turn<'_>) {
        self.protocol = self.choose_protocol();
        self.set_state(turn, State::CompletingRebalance);
        self.refresh_subscribed();
        for id in self.member_ids() {
            let to = self.take_join(&id);
            let joined = self.joined(&id);
            turn.joined(to, joined);
            if let Some(member) = self.member_mut(&id) {
                member.is_new = false;
            }
            self.touch(turn, &id);
            self.to_sync.insert(id);
        }
        let at = turn.now.mono.after_ms(self.rebalance_timeout_ms());
        self.sync_deadline = Some(at);
        self.wake_at(at);
    }

    /// Whoever waits for an assignment is told `code` instead.
    pub(super) fn withdraw_assignments(&mut self, turn: &mut Turn<'_>, code: ErrorCode) {
        for id in self.member_ids() {
            self.set_assignment(&id, NO_ASSIGNMENT);
            if self.member(&id).is_some_and(|member| member.sync.waits()) {
                let to = self.take_sync(&id);
                turn.synced(to, Synced::error(code));
                self.touch(turn, &id);
            }
        }
    }

    /// A member is out: what of it waits is told so. The rebalance that follows is the caller's business.
    pub(super) fn dismiss(&mut self, turn: &mut Turn<'_>, id: &str) -> bool {
        let to = self.take_join(id);
        turn.join_error(to, ErrorCode::UNKNOWN_MEMBER_ID, &Text::empty());
        let to = self.take_sync(id);
        turn.synced(to, Synced::error(ErrorCode::UNKNOWN_MEMBER_ID));
        self.remove(id).is_some()
    }

    /// The member was heard of.
    pub(super) fn touch(&mut self, turn: &Turn<'_>, id: &str) {
        let timeout_ms = self
            .member(id)
            .map(|member| member.settings.session_timeout_ms);
        self.keep_for_ms(turn, id, u64::from(timeout_ms.unwrap_or(0)));
    }

    pub(super) fn keep_for_ms(&mut self, turn: &Turn<'_>, id: &str, ms: u64) {
        let end = turn.now.mono.after_ms(ms);
        if let Some(member) = self.member_mut(id) {
            member.session_end = end;
            self.wake_at(end);
        }
    }

    /// Time has passed.
    pub(super) fn tick(&mut self, turn: &mut Turn<'_>) {
        if self.due > turn.now.mono {
            return;
        }
        self.end_pending(turn);
        self.end_sessions(turn);
        self.end_join(turn);
        self.end_sync(turn);
        self.due = self.next_due(turn.now.mono);
    }

    fn end_pending(&mut self, turn: &mut Turn<'_>) {
        for id in self.expired_pending(turn.now.mono) {
            self.remove_pending(&id);
            self.complete_join_if_all_joined(turn);
        }
    }

    /// J-7: members of which nothing was heard.
    fn end_sessions(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.mono;
        let ended: Vec<Text> = self
            .members()
            .filter(|(_, member)| member.session_end <= now && !member.is_alive())
            .map(|(id, _)| id.clone())
            .collect();
        for id in &ended {
            tracing::info!(group = %self.id, member = %id, "a member was not heard of for its session timeout and is out");
            self.dismiss(turn, id);
        }
        if !ended.is_empty() {
            self.members_left(turn);
        }
    }

    /// Members are gone: the others share anew.
    pub(super) fn members_left(&mut self, turn: &mut Turn<'_>) {
        match self.state {
            State::Stable | State::CompletingRebalance => self.prepare_rebalance(turn),
            State::PreparingRebalance => self.complete_join_if_all_joined(turn),
            State::Empty => {}
        }
    }

    fn end_join(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.mono;
        let Some(timer) = self.join_timer.filter(|timer| timer.at() <= now) else {
            return;
        };
        match timer {
            JoinTimer::Initial {
                delay_ms,
                remaining_ms,
                ..
            } if self.new_member_added && remaining_ms > 0 => {
                self.new_member_added = false;
                let next_ms = turn.config.initial_rebalance_delay_ms.min(remaining_ms);
                self.delay_join(turn, next_ms, remaining_ms.saturating_sub(delay_ms));
            }
            JoinTimer::Initial { .. } | JoinTimer::Rebalance { .. } => self.complete_join(turn),
        }
    }

    /// J-6: members that never asked for their assignment are out.
    fn end_sync(&mut self, turn: &mut Turn<'_>) {
        if self.sync_deadline.is_none_or(|at| at > turn.now.mono) {
            return;
        }
        self.sync_deadline = None;
        let silent = std::mem::take(&mut self.to_sync);
        if silent.is_empty() {
            return;
        }
        for id in &silent {
            self.dismiss(turn, id);
        }
        tracing::info!(group = %self.id, members = silent.len(), "members never asked for their assignment and are out");
        self.members_left(turn);
    }

    /// When something is due next: exactly, so that a group costs one look at a time.
    pub(super) fn next_due(&self, now: Mono) -> Mono {
        let sessions = self
            .members()
            .filter(|(_, member)| !member.is_alive())
            .map(|(_, member)| member.session_end);
        let timers = [
            self.join_timer.map(JoinTimer::at),
            self.sync_deadline,
            self.next_pending_end(),
        ];
        let next = sessions.chain(timers.into_iter().flatten()).min();
        // Nothing that was due is left; a member that waits for ever has no deadline.
        next.unwrap_or(NEVER).max(Mono(now.0 + 1))
    }

    /// After a load: everybody has a whole session to be heard of, and a group that has grown too large begins anew.
    pub(super) fn begin_sessions(&mut self, turn: &mut Turn<'_>) {
        for id in self.member_ids() {
            self.touch(turn, &id);
        }
        if self.size() > turn.config.size_max {
            self.prepare_rebalance(turn);
        }
    }

    /// A batch is committed, or never will be. Gives back who is to be answered.
    pub(super) fn settled(
        &mut self,
        turn: &mut Turn<'_>,
        outcome: Outcome,
        result: Result<(), ErrorCode>,
    ) -> Option<Then> {
        self.writes_under_way -= 1;
        match outcome {
            Outcome::Emptied => {
                if let Err(code) = result {
                    tracing::warn!(group = %self.id, %code, "that a group is empty could not be recorded");
                }
                None
            }
            Outcome::Assigned {
                generation,
                assignments,
            } => {
                self.assigned(turn, generation, assignments, result);
                None
            }
            Outcome::Replaced(replaced) => {
                self.replaced(turn, *replaced, result);
                None
            }
            Outcome::Offsets {
                changes,
                dies,
                then,
            } => {
                self.offsets_settled(changes, dies, result);
                Some(then)
            }
        }
    }

    /// The group's partition is not served here any more: everybody who waits is told so.
    pub(super) fn abandon(&mut self, replies: &mut Vec<(ReplyTo, Reply)>, code: ErrorCode) {
        for id in self.member_ids() {
            let joined = Reply::Joined(Joined::error(code, id.clone()));
            replies.extend(self.take_join(&id).map(|to| (to, joined)));
            let synced = Reply::Synced(Synced::error(code));
            replies.extend(self.take_sync(&id).map(|to| (to, synced)));
        }
    }
}
