//! Connections between clients and cores: what is sent, what arrives, what is lost.

use std::cmp::Reverse;

use corelog::engine::reply_order::Pieces;

use super::{Action, Timed, World};
use crate::clients::{Client, Scene, Sending};
use crate::load;
use crate::net;
use crate::node::Served;
use crate::oracle::{Answered, Asked};
use crate::{Checked, Failure, must};

impl World {
    /// A response leaves the broker: here it has to be true.
    pub(super) fn emit(&mut self, connection: u64, pieces: Pieces) -> Checked {
        let frame = match pieces {
            Pieces::One(frame) => frame,
            Pieces::Many(pieces) => pieces.concat().into(),
        };
        let Some(there) = self.net.connections.get_mut(&connection) else {
            return Ok(());
        };
        let Some(asked) = there.asked.pop_front() else {
            return Err(Failure("nothing is answered that was not asked".to_owned()));
        };
        let prefix = frame
            .first_chunk::<4>()
            .map(|size| u32::from_be_bytes(*size) as usize);
        must!(
            prefix == Some(frame.len() - 4),
            "a frame has the size that it says"
        );
        let said = load::read(&asked, frame.slice(4..))?;
        self.oracle.answers(&asked, &said)?;
        there.answered.push_back(Answered { asked, said });
        for piece in net::pieces(frame, &mut self.seeded) {
            there.to_client.push_back(piece);
            let late = if self.seeded.once_in(30) { 20_000 } else { 300 };
            let at = (self.now_us + self.seeded.below(late)).max(there.client_clock);
            there.client_clock = at;
            self.next_action += 1;
            self.actions.push(Reverse(Timed {
                at_us: at,
                number: self.next_action,
                incarnation: Some(self.incarnation),
                action: Action::ToClient { connection },
            }));
        }
        Ok(())
    }

    /// A connection is lost, whoever lost it.
    pub fn close(&mut self, connection: u64) {
        let Some(there) = self.net.connections.remove(&connection) else {
            return;
        };
        self.clients[there.client].lost_connection();
        let core = &mut self.cores[there.core];
        let Some(served) = core.served.remove(&connection) else {
            return;
        };
        let mut carry = Vec::new();
        for key in served.waiting {
            core.requests.cancel(key, &mut carry);
        }
        self.carry(there.core, carry);
    }

    pub(super) fn arrive_at_broker(&mut self, connection: u64) -> Checked {
        let Some(there) = self.net.connections.get_mut(&connection) else {
            return Ok(());
        };
        let core = there.core;
        if let Some(piece) = there.to_broker.pop_front()
            && let Some(served) = self.cores[core].served.get_mut(&connection)
        {
            served.buffer.extend_from_slice(&piece);
        }
        self.advance(core, connection)
    }

    pub(super) fn arrive_at_client(&mut self, connection: u64) -> Checked {
        let Some(there) = self.net.connections.get_mut(&connection) else {
            return Ok(());
        };
        let client = there.client;
        if let Some(piece) = there.to_client.pop_front() {
            there.received.extend_from_slice(&piece);
        }
        let mut answers = Vec::new();
        while net::next_frame(&mut there.received).is_some() {
            answers.extend(there.answered.pop_front());
        }
        for answered in answers {
            self.note(format_args!("client {client} is answered"));
            let (client, mut scene) = self.scene(client);
            client.answered(&answered, &mut scene)?;
        }
        Ok(())
    }

    fn scene(&mut self, client: usize) -> (&mut Client, Scene<'_>) {
        let wall_ms = self.now().wall_ms;
        let scene = Scene {
            wall_ms,
            seeded: &mut self.seeded,
            topics: &self.topics,
            truths: &self.oracle.truths,
            calm: self.calm,
            offsets_are_durable: self.oracle.groups.is_durable,
        };
        (&mut self.clients[client], scene)
    }

    pub(super) fn wake(&mut self, client: usize) {
        if !self.accepting {
            self.later(50_000, Action::Wake { client });
            return;
        }
        if self.clients[client].connection.is_none() {
            let core = self.seeded.index(self.cores.len());
            let connection = self.net.connect(client, core, self.now_us);
            self.cores[core]
                .served
                .insert(connection, Served::default());
            self.clients[client].connection = Some(connection);
        }
        let connection = self.clients[client].connection;
        let (there, mut scene) = self.scene(client);
        let (sending, rest_us) = there.wake(&mut scene);
        let hangs_up = there.hangs_up();
        self.later(rest_us.max(1), Action::Wake { client });
        for sent in sending {
            if let Some(connection) = connection {
                self.send(client, connection, sent);
            }
        }
        if let Some(connection) = connection.filter(|_| hangs_up) {
            self.note(format_args!("client {client} hangs up"));
            self.close(connection);
        }
    }

    fn send(&mut self, client: usize, connection: u64, sending: Sending) {
        for uid in &sending.uids {
            self.oracle.sends(*uid);
        }
        self.oracle.asks(&sending.what);
        self.note(format_args!(
            "client {client} sends {} bytes",
            sending.frame.len()
        ));
        let Some(there) = self.net.connections.get_mut(&connection) else {
            return;
        };
        if sending.what.is_answered() {
            let correlation = sending.frame.get(8..12).map_or(0, |bytes| {
                i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
            });
            there.asked.push_back(Asked {
                correlation,
                version: sending.version,
                sent_us: self.now_us,
                watermarks: self.oracle.watermarks(&sending.what),
                what: sending.what,
            });
        }
        for piece in net::pieces(sending.frame, &mut self.seeded) {
            there.to_broker.push_back(piece);
            let late = if self.seeded.once_in(30) { 20_000 } else { 300 };
            let at = (self.now_us + self.seeded.below(late)).max(there.broker_clock);
            there.broker_clock = at;
            self.next_action += 1;
            self.actions.push(Reverse(Timed {
                at_us: at,
                number: self.next_action,
                incarnation: Some(self.incarnation),
                action: Action::ToBroker { connection },
            }));
        }
    }
}
