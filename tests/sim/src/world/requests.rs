//! Requests inside the broker: split into parts, carried between cores, joined into responses.

use bytes::{Bytes, BytesMut};
use corelog::api::Answer;
use corelog::engine::reply_order::{Outcome, Pieces};
use corelog::engine::requests::{Carry, Origin, Progress, Stepped, front_of};
use corelog_shards::base::ids::ReplyTo;
use corelog_shards::event::Event;
use corelog_shards::part::{Part, Reply};

use super::{Action, Hop, World};
use crate::node::Core;
use crate::shown::{part_name, reply_name};
use crate::{Checked, must};

impl World {
    /// Everything between the same two cores keeps its order.
    pub(super) fn send_hop(&mut self, from: usize, to: usize, hop: Hop) {
        let delay = if from == to { 0 } else { self.delay(30) };
        let channel = self.channels.entry((from as u16, to as u16)).or_default();
        let at = (self.now_us + delay).max(*channel);
        *channel = at;
        self.at(at, Action::Hop { core: to, hop });
    }

    pub(super) fn hop(&mut self, core: usize, hop: Hop) -> Checked {
        match hop {
            Hop::Part { to, part } => {
                self.note(format_args!("core {core} part {}", part_name(&part)));
                if let Part::Group(request) = &part {
                    self.oracle.groups.arrives(to, request);
                }
                let watch = matches!(&part, Part::FetchPeek(peek) if peek.watch);
                let fresh = self.parts.insert(to, watch).is_none();
                must!(fresh, "a part has an address of its own");
                self.deliver(core, Event::Part { to, part })
            }
            Hop::Cancel { to } => {
                self.note(format_args!("core {core} cancel"));
                self.parts.remove(&to);
                self.oracle.groups.cancelled(to);
                self.deliver(core, Event::Cancelled { to })
            }
            Hop::Message { from, message } => {
                self.note(format_args!("core {core} message from {}", from.0));
                self.deliver(core, Event::Message { from, message })
            }
            Hop::Offline { logs } => {
                self.note(format_args!("core {core} offline"));
                self.deliver(core, Event::Offline { logs })
            }
            Hop::Stop => {
                self.note(format_args!("core {core} stop"));
                self.deliver(core, Event::Stop)
            }
            Hop::Reply { to, reply } => self.take_reply(core, to, reply),
        }
    }

    /// Every part is answered once, a watch several times, one that was cancelled not at all.
    pub(super) fn reply(&mut self, core: usize, to: ReplyTo, reply: Reply) -> Checked {
        let again = matches!(reply, Reply::FetchPeek(_) | Reply::FetchWake(_));
        let known = self.parts.get(&to).copied();
        must!(
            known.is_some(),
            "a part is answered once, and not after it was cancelled (9): {}",
            reply_name(&reply)
        );
        if !(known == Some(true) && again) {
            self.parts.remove(&to);
        }
        if let Reply::Group(reply) = &reply {
            self.oracle.groups.answers(to, reply)?;
        }
        self.send_hop(core, usize::from(front_of(to)), Hop::Reply { to, reply });
        Ok(())
    }

    pub(super) fn carry(&mut self, core: usize, carry: Vec<Carry>) {
        for item in carry {
            match item {
                Carry::Part { shard, to, part } => {
                    self.send_hop(core, usize::from(shard.0), Hop::Part { to, part });
                }
                Carry::Cancel { shard, to } => {
                    self.send_hop(core, usize::from(shard.0), Hop::Cancel { to });
                }
            }
        }
    }

    fn take_reply(&mut self, core: usize, to: ReplyTo, reply: Reply) -> Checked {
        self.note(format_args!("core {core} reply {}", reply_name(&reply)));
        let (mut carry, mut head, mut chunks) = (Vec::new(), BytesMut::new(), Vec::new());
        let now = self.now();
        let Core {
            requests, image, ..
        } = &mut self.cores[core];
        let context = self.surroundings.context(now, image, core);
        let mut answer = Answer {
            head: &mut head,
            chunks: &mut chunks,
        };
        let Some(stepped) = requests.on_reply(&context, to, reply, &mut carry, &mut answer) else {
            return Ok(());
        };
        self.after_step(core, stepped, head, chunks)?;
        self.carry(core, carry);
        Ok(())
    }

    /// Starts the requests of a connection that may start now.
    pub(super) fn advance(&mut self, core: usize, connection: u64) -> Checked {
        loop {
            let now = self.now();
            let Core {
                requests,
                image,
                served,
                ..
            } = &mut self.cores[core];
            let Some(served) = served.get_mut(&connection) else {
                return Ok(());
            };
            let Some(frame) = served.start_next() else {
                return Ok(());
            };
            let origin = Origin {
                connection,
                seq: served.order.admit(),
                bytes: 0,
                parked: false,
                since: now.mono,
            };
            let (mut carry, mut head, mut chunks) = (Vec::new(), BytesMut::new(), Vec::new());
            let context = self.surroundings.context(now, image, core);
            let mut answer = Answer {
                head: &mut head,
                chunks: &mut chunks,
            };
            let (api_key, progress) =
                requests.begin(&context, origin, frame, &mut carry, &mut answer);
            let key = match &progress {
                Progress::Waiting { key, .. } => {
                    served.waiting.push(*key);
                    *key
                }
                _ => 0,
            };
            let stepped = Stepped {
                origin,
                api_key,
                key,
                reserved: 0,
                progress,
            };
            self.note(format_args!(
                "core {core} request {api_key} of {connection}"
            ));
            self.after_step(core, stepped, head, chunks)?;
            self.carry(core, carry);
        }
    }

    pub(super) fn after_step(
        &mut self,
        core: usize,
        stepped: Stepped,
        head: BytesMut,
        chunks: Vec<Bytes>,
    ) -> Checked {
        let Stepped {
            origin,
            key,
            progress,
            ..
        } = stepped;
        let outcome = match progress {
            Progress::Waiting { .. } => return Ok(()),
            Progress::Silent => Outcome::Silent,
            Progress::Answered if chunks.is_empty() => Outcome::Frame(Pieces::One(head.freeze())),
            Progress::Answered => Outcome::Frame(Pieces::Many(chunks)),
            Progress::Close(reason) => {
                must!(
                    reason.contains("without acknowledgement"),
                    "a good request does not close its connection: {reason}"
                );
                self.close(origin.connection);
                return Ok(());
            }
        };
        let Some(served) = self.cores[core].served.get_mut(&origin.connection) else {
            return Ok(());
        };
        served.executing -= 1;
        served.exclusive = false;
        served.waiting.retain(|waiting| *waiting != key);
        served.order.ready(origin.seq, outcome);
        while let Some(served) = self.cores[core].served.get_mut(&origin.connection) {
            match served.order.pop() {
                Some(Outcome::Frame(pieces)) => self.emit(origin.connection, pieces)?,
                Some(Outcome::Silent) => {}
                None => break,
            }
        }
        self.advance(core, origin.connection)
    }
}
