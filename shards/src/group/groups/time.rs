//! Groups and time: sessions, rebalances, appends that take too long, offsets that expire. A turn stays short, however much is due.

use std::cmp::Reverse;

use super::Groups;
use crate::base::error_code::ErrorCode;
use crate::base::ids::Text;
use crate::base::time::{Mono, Now};
use crate::coordinator::failure::code_for_client;
use crate::effect::Outbox;
use crate::group::classic::{Group, NEVER};
use crate::group::limits::{EXPIRE_GROUPS_PER_TICK, GROUPS_PER_TICK};
use crate::group::outcome::{Outcome, Then};

impl Groups {
    /// When [`Groups::tick`] is due.
    pub fn next_deadline(&self) -> Option<Mono> {
        if self.expiring.is_some() || !self.replies.is_empty() {
            return Some(Mono(0));
        }
        let timer = self.timers.peek().map(|Reverse((at, ..))| *at);
        [timer, self.next_give_up(), self.expire_at]
            .into_iter()
            .flatten()
            .min()
    }

    fn next_give_up(&self) -> Option<Mono> {
        if self.appends_under_way == 0 {
            return None;
        }
        let homes = self.homes.values();
        homes.filter_map(|home| home.ledger.next_give_up()).min()
    }

    pub fn tick(&mut self, now: Now, out: &mut Outbox) {
        self.tick_groups(now);
        self.give_up(now);
        self.tick_expiry(now);
        self.flush(out);
    }

    /// Some groups at a time: the rest is still due when the turn is over.
    fn tick_groups(&mut self, now: Now) {
        for _ in 0..GROUPS_PER_TICK {
            let Some(Reverse((at, number, id))) = self.timers.pop() else {
                return;
            };
            if at > now.mono {
                self.timers.push(Reverse((at, number, id)));
                return;
            }
            let home = self.homes.get_mut(&number);
            let Some(group) = home.and_then(|home| home.groups.get_mut(&id)) else {
                continue;
            };
            if group.armed == at {
                group.armed = NEVER;
                self.on_group(now, number, &id, Group::tick);
            }
        }
    }

    /// `offsets.commit.timeout.ms`: the append goes on, but nobody waits for it any longer.
    fn give_up(&mut self, now: Now) {
        if self.next_give_up().is_none_or(|at| at > now.mono) {
            return;
        }
        let code = code_for_client(ErrorCode::REQUEST_TIMED_OUT);
        let mut gathered = Vec::new();
        for home in self.homes.values_mut() {
            for memory in home.ledger.late(now.mono) {
                match &mut memory.outcome {
                    Outcome::Offsets { then, .. } => match then {
                        Then::Answer { to, ready, failed } => {
                            let reply = failed(ready, code);
                            self.replies.extend(to.take().map(|to| (to, reply)));
                        }
                        Then::Gathered { gather, at } => {
                            gathered.push((*gather, *at));
                            *then = Then::Nobody;
                        }
                        Then::Nobody => {}
                    },
                    // Their members wait for the record itself.
                    Outcome::Assigned { .. } | Outcome::Emptied | Outcome::Replaced(_) => {}
                }
            }
        }
        for (gather, at) in gathered {
            self.gathered(gather, at, Err(code));
        }
    }

    /// J-13, some groups at a time.
    fn tick_expiry(&mut self, now: Now) {
        if self.expire_at.is_some_and(|at| at <= now.mono) {
            let interval_ms = self.config.expiration_check_interval_ms;
            self.expire_at = Some(now.mono.after_ms(interval_ms));
            self.expiring = Some((i32::MIN, Text::empty()));
        }
        let Some(from) = self.expiring.take() else {
            return;
        };
        let batch = self.groups_after(&from);
        if batch.len() == EXPIRE_GROUPS_PER_TICK {
            self.expiring = batch.last().cloned();
        }
        for (number, id) in batch {
            self.on_group(now, number, &id, Group::expire);
        }
    }

    /// The next groups in order of partition and id, of loaded partitions.
    fn groups_after(&self, from: &(i32, Text)) -> Vec<(i32, Text)> {
        let homes = self.homes.range(from.0..);
        let active = homes.filter(|(_, home)| home.ledger.refusal().is_none());
        active
            .flat_map(|(number, home)| home.groups.keys().map(|id| (*number, id)))
            .filter(|(number, id)| (*number, *id) > (from.0, &from.1))
            .take(EXPIRE_GROUPS_PER_TICK)
            .map(|(number, id)| (number, id.clone()))
            .collect()
    }
}
