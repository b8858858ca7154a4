//! JoinGroup (J-1, J-2, J-5, J-9).

use super::classic::{Group, State};
use super::limits::NEW_MEMBER_JOIN_TIMEOUT_MS;
use super::member::{Member, Settings};
use super::outcome::{Outcome, Replaced};
use super::request::{Join, Joined};
use super::turn::Turn;
use crate::base::error_code::ErrorCode;
use crate::base::ids::{ReplyTo, Text};

impl Group {
    /// A request whose session timeout and group id have been checked, for a group that exists or may be made for it.
    pub(super) fn join(&mut self, turn: &mut Turn<'_>, to: ReplyTo, join: &Join) {
        if !self.accepts(turn, &join.member_id) {
            self.expel(turn, &join.member_id);
            turn.join_error(Some(to), ErrorCode::GROUP_MAX_SIZE_REACHED, &Text::empty());
            return;
        }
        if !self.supports(&join.protocol_type, &join.protocols) {
            let code = ErrorCode::INCONSISTENT_GROUP_PROTOCOL;
            turn.join_error(Some(to), code, &join.member_id);
            return;
        }
        if join.member_id.is_empty() {
            self.join_new(turn, to, join);
        } else if self.is_pending(&join.member_id) && join.instance_id.is_none() {
            self.add_and_rebalance(turn, to, join, join.member_id.detached());
        } else {
            self.join_again(turn, to, join);
        }
    }

    /// `group.max.size`. While members rejoin, the first ones that come have a place: the size itself may be too large already.
    fn accepts(&self, turn: &Turn<'_>, member_id: &str) -> bool {
        match self.state {
            State::Empty => true,
            State::PreparingRebalance => {
                let waits = self
                    .member(member_id)
                    .is_some_and(|member| member.join.waits());
                waits || self.joining() < turn.config.size_max
            }
            State::CompletingRebalance | State::Stable => {
                self.member(member_id).is_some() || self.size() < turn.config.size_max
            }
        }
    }

    /// A known member has no place any more.
    fn expel(&mut self, turn: &mut Turn<'_>, member_id: &str) {
        self.remove_pending(member_id);
        self.dismiss(turn, member_id);
    }

    fn join_new(&mut self, turn: &mut Turn<'_>, to: ReplyTo, join: &Join) {
        if let Some(instance_id) = &join.instance_id {
            let new_id = turn.member_id(instance_id);
            match self.static_member(instance_id).cloned() {
                Some(old_id) => self.replace_static(turn, to, join, &old_id, new_id),
                None => self.add_and_rebalance(turn, to, join, new_id),
            }
            return;
        }
        let new_id = turn.member_id(&join.client_id);
        if join.needs_known_id {
            let until = turn
                .now
                .mono
                .after_ms(join.session_timeout_ms.unsigned_abs().into());
            self.add_pending(new_id.clone(), until);
            turn.join_error(Some(to), ErrorCode::MEMBER_ID_REQUIRED, &new_id);
        } else {
            self.add_and_rebalance(turn, to, join, new_id);
        }
    }

    fn join_again(&mut self, turn: &mut Turn<'_>, to: ReplyTo, join: &Join) {
        let id = &join.member_id;
        if let Err(code) = self.check_member(id, join.instance_id.as_ref()) {
            turn.join_error(Some(to), code, id);
            return;
        }
        let unchanged = self
            .member(id)
            .is_some_and(|member| member.matches(&join.protocols));
        match self.state {
            // It lost the response to its first JoinGroup: there it is again (J-5).
            State::CompletingRebalance if unchanged => {
                turn.joined(Some(to), self.joined(id));
            }
            State::Stable if unchanged && !self.is_leader(id) => {
                let joined = Joined {
                    members: Vec::new(),
                    ..self.joined(id)
                };
                turn.joined(Some(to), joined);
            }
            // A leader that joins wants a rebalance: topics may have grown.
            State::PreparingRebalance | State::CompletingRebalance | State::Stable => {
                self.update(turn, to, join, id);
                self.rebalance_or_complete(turn);
            }
            State::Empty => turn.join_error(Some(to), ErrorCode::UNKNOWN_MEMBER_ID, id),
        }
    }

    /// What a member is told of the present generation.
    pub(super) fn joined(&self, id: &Text) -> Joined {
        Joined {
            code: ErrorCode::NONE,
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader: self.leader.clone().unwrap_or_default(),
            skip_assignment: false,
            member_id: id.clone(),
            members: if self.is_leader(id) {
                self.joined_members()
            } else {
                Vec::new()
            },
        }
    }

    fn add_and_rebalance(&mut self, turn: &mut Turn<'_>, to: ReplyTo, join: &Join, id: Text) {
        if self.state == State::PreparingRebalance && self.was_empty {
            self.new_member_added = true;
        }
        self.add(id.clone(), &join.protocol_type, Member::new(join));
        self.park_join(&id, to);
        // Its client may be gone without a trace, because it cannot be heard of while it waits: so it may only wait so long.
        self.keep_for_ms(turn, &id, NEW_MEMBER_JOIN_TIMEOUT_MS);
        self.rebalance_or_complete(turn);
    }

    /// Takes over what a rejoining member can do, and parks its request.
    fn update(&mut self, turn: &mut Turn<'_>, to: ReplyTo, join: &Join, id: &Text) {
        self.change_settings(id, Settings::of(join));
        let earlier = self.park_join(id, to);
        // The same member asked twice, over two connections: the later request counts.
        turn.join_error(earlier, ErrorCode::REBALANCE_IN_PROGRESS, id);
    }

    /// J-9: a static member comes back without its id.
    fn replace_static(
        &mut self,
        turn: &mut Turn<'_>,
        to: ReplyTo,
        join: &Join,
        old_id: &Text,
        new_id: Text,
    ) {
        let old_leader = self.leader.clone().unwrap_or_default();
        let Some(old_settings) = self.member(old_id).map(|member| member.settings.clone()) else {
            turn.join_error(Some(to), ErrorCode::UNKNOWN_MEMBER_ID, &Text::empty());
            return;
        };
        self.fence(turn, old_id);
        self.rename(old_id, new_id.clone());
        self.touch(turn, &new_id);
        self.update(turn, to, join, &new_id);
        match self.state {
            State::Stable if self.choose_protocol() == self.protocol => {
                let replaced = Replaced {
                    instance_id: join
                        .instance_id
                        .as_ref()
                        .map(Text::detached)
                        .unwrap_or_default(),
                    old_id: old_id.clone(),
                    new_id,
                    old_settings,
                    old_leader,
                    generation: self.generation,
                    may_skip_assignment: join.may_skip_assignment,
                };
                let records = vec![self.record(|member| member.assignment.clone())];
                self.write(turn, records, Outcome::Replaced(Box::new(replaced)));
            }
            State::Stable => self.rebalance_or_complete(turn),
            // The leader may already be told of the old id, and would assign to it.
            State::CompletingRebalance => self.prepare_rebalance(turn),
            State::PreparingRebalance => self.complete_join_if_all_joined(turn),
            State::Empty => {
                let to = self.take_join(&new_id);
                turn.join_error(to, ErrorCode::UNKNOWN_MEMBER_ID, &Text::empty());
            }
        }
    }

    /// Whoever still uses the old id of a static member is told so.
    fn fence(&mut self, turn: &mut Turn<'_>, old_id: &Text) {
        let to = self.take_join(old_id);
        turn.join_error(to, ErrorCode::FENCED_INSTANCE_ID, old_id);
        let to = self.take_sync(old_id);
        turn.synced(
            to,
            super::request::Synced::error(ErrorCode::FENCED_INSTANCE_ID),
        );
    }

    /// The record with a static member's new id is committed, or never will be.
    pub(super) fn replaced(
        &mut self,
        turn: &mut Turn<'_>,
        replaced: Replaced,
        result: Result<(), ErrorCode>,
    ) {
        let id = &replaced.new_id;
        let current = self.static_member(&replaced.instance_id) == Some(id);
        if !current {
            return; // It has been replaced again, or is gone; who waited was answered then.
        }
        if let Err(code) = result {
            let to = self.take_join(id);
            if self.state == State::Stable && self.generation == replaced.generation {
                self.change_settings(id, replaced.old_settings);
                self.rename(id, replaced.old_id.clone());
                self.touch(turn, &replaced.old_id);
            }
            turn.join_error(to, code, &Text::empty());
            return;
        }
        if self.state != State::Stable || self.generation != replaced.generation {
            return; // A rebalance has begun meanwhile, and answers the join.
        }
        let to = self.take_join(id);
        let mut joined = self.joined(id);
        if replaced.may_skip_assignment {
            joined.skip_assignment = self.is_leader(id);
        } else {
            // An older client would assign anew if it saw itself lead.
            joined.leader = replaced.old_leader;
            joined.members = Vec::new();
        }
        turn.joined(to, joined);
        self.touch(turn, id);
    }
}
