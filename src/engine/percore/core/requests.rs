//! From a frame to its parts, and from replies to the answer.

use std::net::IpAddr;

use corelog_shards::base::ids::ReplyTo;
use corelog_shards::event::Event;
use corelog_shards::part::Reply;

use super::super::hop::{Freight, Hop};
use super::Core;
use crate::api::{Answer, Context, table};
use crate::engine::counting;
use crate::engine::reply_order::{Outcome, Pieces};
use crate::engine::requests::{Carry, Origin, Progress, Stepped};

impl Core {
    pub(super) fn on_reply(&mut self, to: ReplyTo, reply: Reply) {
        let Some(origin) = self.requests.origin_of(to) else {
            return;
        };
        counting::reply(self.counters(), &reply);
        let connection = self.connections.get(origin.connection as usize);
        let cx = Context {
            now: self.now,
            image: &self.parts.image,
            broker: &self.parts.views[connection.map_or(0, |asker| usize::from(asker.listener))],
            directories: &self.parts.directories,
            home: self.parts.seats[0].shard.id(),
            client_address: connection.map_or(IpAddr::from([0; 4]), |asker| asker.peer),
        };
        let mut answer = Answer {
            head: &mut self.scratch.head,
            chunks: &mut self.scratch.chunks,
        };
        let stepped = self
            .requests
            .on_reply(&cx, to, reply, &mut self.scratch.carry, &mut answer);
        if let Some(stepped) = stepped {
            self.after_step(stepped);
        }
        self.carry();
    }

    pub(super) fn expire_requests(&mut self) {
        while let Some(origin) = self.requests.next_expired(self.now.mono) {
            let connection = self.connections.get(origin.connection as usize);
            let cx = Context {
                now: self.now,
                image: &self.parts.image,
                broker: &self.parts.views
                    [connection.map_or(0, |asker| usize::from(asker.listener))],
                directories: &self.parts.directories,
                home: self.parts.seats[0].shard.id(),
                client_address: connection.map_or(IpAddr::from([0; 4]), |asker| asker.peer),
            };
            let mut answer = Answer {
                head: &mut self.scratch.head,
                chunks: &mut self.scratch.chunks,
            };
            let Some(stepped) = self
                .requests
                .expire(&cx, &mut self.scratch.carry, &mut answer)
            else {
                return;
            };
            self.after_step(stepped);
            self.carry();
        }
    }

    pub(super) fn begin(&mut self, index: usize, total: usize) {
        let connection = &mut self.connections[index];
        let frame = connection.take(total);
        let bytes = total.min(connection.paid);
        connection.paid -= bytes;
        let origin = Origin {
            connection: index as u64,
            seq: connection.order.admit(),
            bytes,
            parked: false,
            since: self.now.mono,
        };
        connection.executing += 1;
        connection.last_active = self.now.mono;
        let cx = Context {
            now: self.now,
            image: &self.parts.image,
            broker: &self.parts.views[usize::from(connection.listener)],
            directories: &self.parts.directories,
            home: self.parts.seats[0].shard.id(),
            client_address: connection.peer,
        };
        let mut answer = Answer {
            head: &mut self.scratch.head,
            chunks: &mut self.scratch.chunks,
        };
        let (api_key, progress) =
            self.requests
                .begin(&cx, origin, frame, &mut self.scratch.carry, &mut answer);
        let concurrent = table::api(api_key).is_some_and(|api| api.concurrent);
        self.connections[index].exclusive = !concurrent;
        self.counters().requests.of(api_key).increment();
        self.counters().bytes_in.add(total as u64);
        let key = match progress {
            Progress::Waiting { key, .. } => key,
            _ => 0,
        };
        if matches!(progress, Progress::Waiting { .. }) {
            self.connections[index].waiting.push(key);
        }
        self.after_step(Stepped {
            origin,
            api_key,
            key,
            reserved: 0,
            progress,
        });
        self.carry();
    }

    pub(super) fn after_step(&mut self, stepped: Stepped) {
        let Stepped {
            origin,
            api_key,
            key,
            reserved,
            progress,
        } = stepped;
        let index = origin.connection as usize;
        match progress {
            Progress::Waiting { key, parked } => {
                if parked && !origin.parked {
                    self.park(key, origin);
                }
            }
            Progress::Answered => {
                let outcome = self.take_answer();
                self.record(api_key, origin.since);
                self.finish(index, origin, key, reserved, outcome);
            }
            Progress::Silent => self.finish(index, origin, key, reserved, Outcome::Silent),
            Progress::Close(reason) => {
                self.scratch.head.clear();
                self.scratch.chunks.clear();
                self.finish(index, origin, key, reserved, Outcome::Silent);
                self.counters().request_errors.of(api_key).increment();
                self.counters().connections_refused.increment();
                self.close(index, reason);
            }
        }
    }

    /// What waits for others gives back its place and its bytes; when too many wait, it is answered at once.
    pub(super) fn park(&mut self, key: u32, origin: Origin) {
        if self.parts.credits.parked >= self.parts.credits.parked_max {
            self.requests.hurry(key, self.now.mono);
            return;
        }
        self.parts.credits.parked += 1;
        self.requests.set_parked(key);
        self.give_request_credits(origin.bytes);
    }

    pub(super) fn take_answer(&mut self) -> Outcome {
        if self.scratch.chunks.is_empty() {
            return Outcome::Frame(Pieces::One(self.scratch.head.split().freeze()));
        }
        self.scratch.head.clear();
        Outcome::Frame(Pieces::Many(std::mem::take(&mut self.scratch.chunks)))
    }

    pub(super) fn finish(
        &mut self,
        index: usize,
        origin: Origin,
        key: u32,
        reserved: usize,
        outcome: Outcome,
    ) {
        self.release_request(origin);
        let Some(connection) = self.connections.get_mut(index) else {
            self.give_reply_bytes(reserved);
            return;
        };
        connection.executing -= 1;
        connection.exclusive = false;
        if let Some(at) = connection
            .waiting
            .iter()
            .position(|waiting| *waiting == key)
        {
            connection.waiting.swap_remove(at);
        }
        connection.reply_paid += reserved;
        connection.order.ready(origin.seq, outcome);
        if !connection.listed {
            connection.listed = true;
            self.scratch.sendable.push(index);
        }
        self.scratch.visit.push(index);
    }

    /// Hands parts and cancellations to their shards, here or on other cores.
    pub(super) fn carry(&mut self) {
        let mut carry = std::mem::replace(
            &mut self.scratch.carry,
            std::mem::take(&mut self.scratch.carrying),
        );
        for item in carry.drain(..) {
            counting::carry(self.counters(), &item);
            if item.reply_bytes() == 0 {
                self.carry_one(item);
            } else if !self.starved.is_empty() {
                self.starved.push_back(item);
            } else if let Some(item) = self.carry_paid(item, false) {
                self.starved.push_back(item);
            }
        }
        self.scratch.carrying = carry;
    }

    fn carry_one(&mut self, item: Carry) {
        let here = usize::from(self.parts.index);
        match item {
            Carry::Part { shard, to, part } => {
                let core = self.core_of(shard);
                if core == here {
                    self.deliver(shard, Event::Part { to, part });
                } else {
                    self.out[core] += 1;
                    self.ship(core, Freight::Part { shard, to, part });
                }
            }
            Carry::Cancel { shard, to } => {
                let core = self.core_of(shard);
                if core == here {
                    self.deliver(shard, Event::Cancelled { to });
                } else {
                    self.push_hop(core, Hop::Cancel { shard, to });
                }
            }
        }
    }

    /// Carries a part whose answer needs reply bytes, which are reserved before data is read; gives it back when there are not enough yet. The
    /// largest answer always fits once others are done, because a request is capped to what the pool holds. What belongs to a request that is
    /// gone is dropped: nobody would pay for what it reads.
    fn carry_paid(&mut self, item: Carry, woken: bool) -> Option<Carry> {
        let pool = &mut self.parts.credits.reply_bytes;
        let bytes = item.reply_bytes().min(pool.total() as usize);
        let Carry::Part { to, .. } = item else {
            return None;
        };
        self.requests.origin_of(to)?;
        if !pool.take(bytes, woken) {
            return Some(item);
        }
        self.requests.reserve(to, bytes);
        self.carry_one(item);
        None
    }

    pub(super) fn give_reply_bytes(&mut self, bytes: usize) {
        if bytes > 0 {
            self.parts.credits.reply_bytes.give(bytes);
        }
        while let Some(item) = self.starved.pop_front() {
            if let Some(item) = self.carry_paid(item, true) {
                self.starved.push_front(item);
                return;
            }
        }
    }
}
