//! One core: its sockets, its shards, its turn.
//!
//! A turn takes what has completed, lets shards decide, carries out what they wish, and submits once (architecture.md 4). What a connection
//! may do next is decided in `connection.rs`, by credits in `credits.rs`; disk effects are in `disk.rs`.

mod accounts;
mod hops;
mod requests;
mod sockets;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use corelog_io::executor::CoreHandle;
use corelog_io::inbox::{Inbox, InboxSender};
use corelog_io::mesh::MeshPort;
use corelog_io::net::deal::CoreLoads;
use corelog_io::turn::{Completion, Key, Turn};
use corelog_shards::base::ids::ShardId;
use corelog_shards::base::time::{Mono, Now};
use corelog_shards::effect::{Effect, Message, Outbox};
use corelog_shards::event::Event;
use corelog_shards::metadata::Image;
use corelog_shards::part::Reply;
use corelog_shards::shard::Shard;
use slab::Slab;

use super::connection::Connection;
use super::credits::CoreCredits;
use super::disk::{Disk, DiskDone};
use super::hop::{Freight, Hop, Hops};
use super::longest_turn::LongestTurn;
use super::mail::Mail;
use crate::api::{BrokerView, Directories};
use crate::engine::clock::Clock;
use crate::engine::keeper::Teller;
use crate::engine::notice::Notice;
use crate::engine::requests::{Carry, Requests, front_of};
use crate::metrics::{Metrics, Recorder};

/// A wait in the ring is never longer: the core's timers are looked at this often at least.
const WAIT_MAX: Duration = Duration::from_millis(50);

/// Idle connections and hot buffers are looked through this often.
const SWEEP_MS: u64 = 1000;

/// Times that a turn lets connections, shards and disk act one after the other: a request that needs two rounds of its owners is answered in one
/// turn, and a client that pipelines without end still leaves the turn to others.
const ROUNDS_PER_TURN: u32 = 16;

/// The first receive window of a connection that has become active, and the one of a busy connection.
pub(super) const WINDOW_BYTES_MIN: usize = 8 << 10;
const WINDOW_BYTES_MAX: usize = 64 << 10;

/// Limits of this core, from the configuration.
pub(super) struct Limits {
    /// `socket.request.max.bytes`
    pub(super) frame_bytes_max: usize,
    /// Requests of one connection that may be under way.
    pub(super) connection_requests_max: usize,
    /// Bytes of answers that one connection may have waiting before it is not read any more.
    pub(super) connection_reply_bytes_max: usize,
    /// `connections.max.idle.ms`
    pub(super) idle_ms_max: u64,
    /// A reader that takes nothing for so long is closed.
    pub(super) send_ms_max: u64,
    /// A frame whose bytes stop coming for so long is given up.
    pub(super) progress_ms_max: u64,
    /// Parts that may be out to one other core.
    pub(super) ring_parts_max: usize,
}

/// A shard of this core, with its wishes.
pub(super) struct Seat {
    pub(super) shard: Shard,
    outbox: Outbox,
    spare: Vec<Effect>,
    /// Stands in the list of seats whose outbox may hold something.
    listed: bool,
}

impl Seat {
    /// `outbox` holds what the shard wishes from the start.
    pub(super) fn new(shard: Shard, outbox: Outbox) -> Seat {
        Seat {
            shard,
            outbox,
            spare: Vec::new(),
            listed: false,
        }
    }
}

/// Storage reused from turn to turn.
#[derive(Default)]
struct Scratch {
    carry: Vec<Carry>,
    carrying: Vec<Carry>,
    head: BytesMut,
    chunks: Vec<Bytes>,
    /// Seats whose outbox may hold something.
    wishing: Vec<usize>,
    /// Connections to look at again: a request finished, or their share of the turn was used up.
    visit: Vec<usize>,
    visiting: Vec<usize>,
    /// Connections with something to send.
    sendable: Vec<usize>,
    disk_done: Vec<DiskDone>,
    hops: Vec<(usize, Hop)>,
    mails: Vec<Mail>,
}

/// What a core is made of.
pub(super) struct Parts {
    pub(super) clock: Clock,
    pub(super) index: u16,
    pub(super) cores: u16,
    pub(super) turn: Turn,
    pub(super) mesh: MeshPort<Hop>,
    pub(super) hops: Arc<Hops>,
    pub(super) inbox: Inbox<Mail>,
    pub(super) seats: Vec<Seat>,
    pub(super) disk: Disk,
    pub(super) credits: CoreCredits,
    pub(super) image: Arc<Image>,
    /// One per listener.
    pub(super) views: Vec<Arc<BrokerView>>,
    pub(super) directories: Arc<Directories>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) recorder: Recorder,
    pub(super) limits: Limits,
    pub(super) teller: Teller,
    pub(super) loads: CoreLoads,
    /// The inboxes of all cores.
    pub(super) peers: Vec<InboxSender<Mail>>,
}

pub(super) struct Core {
    parts: Parts,
    clock: Clock,
    now: Now,
    requests: Requests,
    connections: Slab<Connection>,
    /// Parts whose answer needs more reply bytes than there are, in order.
    starved: VecDeque<Carry>,
    /// Hops that found their ring full, per core: bounded by the requests that are under way.
    backlog: Vec<VecDeque<Hop>>,
    /// Freight that found the slot table full, in order.
    overflow: VecDeque<(usize, Freight)>,
    /// Parts of this core that are out to each other core.
    out: Vec<usize>,
    next_sweep: Mono,
    load_since: Mono,
    load_busy_us: u64,
    longest: LongestTurn,
    scratch: Scratch,
}

/// Kinds of operations, in the key of a completion.
const KIND_RECEIVE: u64 = 1;
const KIND_SEND: u64 = 2;
/// Keys of this kind and above belong to the disk.
pub(super) const KIND_DISK: u64 = 8;

fn key(kind: u64, index: usize) -> Key {
    Key(kind << 56 | index as u64)
}

impl Core {
    pub(super) fn new(parts: Parts) -> Core {
        let clock = parts.clock;
        let now = clock.now();
        let cores = usize::from(parts.cores);
        let scratch = Scratch {
            wishing: (0..parts.seats.len()).collect(),
            ..Scratch::default()
        };
        Core {
            requests: Requests::new(parts.index),
            connections: Slab::new(),
            starved: VecDeque::new(),
            backlog: (0..cores).map(|_| VecDeque::new()).collect(),
            overflow: VecDeque::new(),
            out: vec![0; cores],
            next_sweep: now.mono.after_ms(SWEEP_MS),
            load_since: now.mono,
            load_busy_us: 0,
            longest: LongestTurn::new(now.mono),
            scratch,
            clock,
            now,
            parts,
        }
    }

    /// The turn loop. Ends only with the process.
    pub(super) async fn run(mut self, handle: CoreHandle) {
        loop {
            let before = self.clock.now().mono;
            self.rest(&handle).await;
            self.now = self.clock.now();
            self.count_rest(before);
            self.take_completions();
            self.take_hops();
            self.take_mail();
            self.take_timers();
            self.settle_credits();
            self.settle();
            self.send_answers();
            self.flush_hops();
            self.count_turn();
        }
    }

    /// The one wait of the turn. Without anything to do it sleeps until something completes or a timer is due.
    async fn rest(&mut self, handle: &CoreHandle) {
        let busy = !self.scratch.visit.is_empty()
            || !self.scratch.wishing.is_empty()
            || self.backlog.iter().any(|hops| !hops.is_empty())
            || !self.overflow.is_empty();
        let longest = self.until_next_deadline();
        let Parts {
            turn, mesh, inbox, ..
        } = &mut self.parts;
        // With something to do already this is only a look.
        let rested = handle
            .rest(turn, if busy { Duration::ZERO } else { longest }, || {
                !busy && mesh.is_empty() && inbox.is_empty()
            })
            .await;
        if let Err(error) = rested {
            panic!("the ring of core {} failed: {error}", self.parts.index);
        }
    }

    fn until_next_deadline(&self) -> Duration {
        let shards = self
            .parts
            .seats
            .iter()
            .filter_map(|seat| seat.shard.next_deadline())
            .min();
        let earliest = [shards, self.requests.next_deadline(), Some(self.next_sweep)]
            .into_iter()
            .flatten()
            .min();
        let mono = self.clock.now().mono;
        earliest.map_or(WAIT_MAX, |at| {
            Duration::from_micros(at.0.saturating_sub(mono.0)).min(WAIT_MAX)
        })
    }

    fn take_completions(&mut self) {
        while let Some(completion) = self.parts.turn.next() {
            match completion {
                Completion::Received {
                    key,
                    result,
                    buffer,
                    ..
                } => self.on_received(index_of(key), result, buffer),
                Completion::Sent {
                    key,
                    result,
                    chunks,
                    ..
                } => self.on_sent(index_of(key), result, chunks),
                Completion::Doorbell => {}
                other => self.parts.disk.on_completion(
                    &mut self.parts.turn,
                    other,
                    &mut self.scratch.disk_done,
                ),
            }
        }
        self.take_disk_done();
    }

    fn take_hops(&mut self) {
        let mut hops = std::mem::take(&mut self.scratch.hops);
        self.parts.mesh.drain(|from, hop| hops.push((from, hop)));
        self.counters().hops_received.add(hops.len() as u64);
        for (from, hop) in hops.drain(..) {
            match hop {
                Hop::Cancel { shard, to } => self.deliver(shard, Event::Cancelled { to }),
                Hop::Freight(slot) => match self.parts.hops.take(slot) {
                    Some(Freight::Part { shard, to, part }) => {
                        self.deliver(shard, Event::Part { to, part });
                    }
                    Some(Freight::Reply { to, reply }) => {
                        if !matches!(reply, Reply::FetchWake(_)) {
                            self.out[from] = self.out[from].saturating_sub(1);
                        }
                        self.on_reply(to, reply);
                    }
                    Some(Freight::Message { from, to, message }) => {
                        self.deliver(to, Event::Message { from, message });
                    }
                    None => panic!("a hop from core {from} names an empty slot"),
                },
            }
        }
        self.scratch.hops = hops;
        self.wake_ring_waiters();
    }

    fn take_mail(&mut self) {
        let mut mails = std::mem::take(&mut self.scratch.mails);
        self.parts.inbox.drain(|mail| mails.push(mail));
        for mail in mails.drain(..) {
            match mail {
                Mail::Socket {
                    socket,
                    peer,
                    listener,
                } => self.accept(socket, peer, listener),
                Mail::Credits => {}
                Mail::Notice(notice) => self.take_notice(notice),
            }
        }
        self.scratch.mails = mails;
    }

    fn take_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Image(image) => {
                if image.version > self.parts.image.version {
                    self.parts.image = Arc::clone(&image);
                    for seat in 0..self.parts.seats.len() {
                        self.deliver_to_seat(seat, Event::Image(Arc::clone(&image)));
                    }
                }
            }
            Notice::Directories(directories) => self.parts.directories = directories,
            Notice::Done { asker, outcome } => self.deliver(
                asker.shard,
                Event::Done {
                    op: asker.op,
                    outcome,
                },
            ),
            Notice::Placed { log, directory } => self.parts.disk.place(log, directory),
            Notice::Opened { shard, log, opened } => {
                self.deliver(shard, Event::Opened { log, opened });
            }
            Notice::Offline { logs } => {
                for seat in 0..self.parts.seats.len() {
                    self.deliver_to_seat(seat, Event::Offline { logs: logs.clone() });
                }
            }
            Notice::Stop => {
                for seat in 0..self.parts.seats.len() {
                    self.deliver_to_seat(seat, Event::Stop);
                }
            }
        }
    }

    fn take_timers(&mut self) {
        for seat in 0..self.parts.seats.len() {
            if self.parts.seats[seat]
                .shard
                .next_deadline()
                .is_some_and(|at| at <= self.now.mono)
            {
                self.deliver_to_seat(seat, Event::Tick);
            }
        }
        self.expire_requests();
        if self.now.mono >= self.next_sweep {
            self.next_sweep = self.now.mono.after_ms(SWEEP_MS);
            self.sweep();
        }
        self.parts
            .disk
            .tick(&mut self.parts.turn, self.now, &mut self.scratch.disk_done);
        self.take_disk_done();
    }

    /// Lets connections, shards and disk act until nothing is left to do, or until others have waited long enough.
    fn settle(&mut self) {
        for _ in 0..ROUNDS_PER_TURN {
            let spare = std::mem::take(&mut self.scratch.visiting);
            let mut visiting = std::mem::replace(&mut self.scratch.visit, spare);
            for connection in visiting.drain(..) {
                self.advance(connection);
            }
            self.scratch.visiting = visiting;
            self.carry_out_wishes();
            self.parts.disk.write_staged(
                &mut self.parts.turn,
                self.now,
                &mut self.scratch.disk_done,
            );
            self.take_disk_done();
            if self.scratch.wishing.is_empty() && self.scratch.visit.is_empty() {
                return;
            }
        }
    }

    fn take_disk_done(&mut self) {
        let mut done = std::mem::take(&mut self.scratch.disk_done);
        for DiskDone { asker, outcome } in done.drain(..) {
            self.deliver(
                asker.shard,
                Event::Done {
                    op: asker.op,
                    outcome,
                },
            );
        }
        self.scratch.disk_done = done;
    }

    fn carry_out_wishes(&mut self) {
        while let Some(seat) = self.scratch.wishing.pop() {
            let Seat {
                outbox,
                spare,
                listed,
                shard,
            } = &mut self.parts.seats[seat];
            *listed = false;
            let id = shard.id();
            let mut effects = std::mem::take(spare);
            outbox.swap(&mut effects);
            for effect in effects.drain(..) {
                self.carry_out(id, effect);
            }
            self.parts.seats[seat].spare = effects;
        }
    }

    fn carry_out(&mut self, shard: ShardId, effect: Effect) {
        match effect {
            Effect::Reply { to, reply } => {
                let front = front_of(to);
                if front == self.parts.index {
                    self.on_reply(to, reply);
                } else {
                    self.ship(usize::from(front), Freight::Reply { to, reply });
                }
            }
            Effect::Send { to, message } => self.send_message(shard, to, message),
            Effect::Publish(image) => self.parts.teller.publish(image),
            Effect::Checkpoint(checkpoints) => self.parts.teller.checkpoint(checkpoints),
            Effect::Stopped => self.parts.teller.stopped(shard),
            disk => self.parts.disk.effect(
                &mut self.parts.turn,
                shard,
                disk,
                self.now,
                &mut self.scratch.disk_done,
            ),
        }
    }

    fn send_message(&mut self, from: ShardId, to: ShardId, message: Message) {
        let core = self.core_of(to);
        if core == usize::from(self.parts.index) {
            self.deliver(to, Event::Message { from, message });
        } else {
            self.ship(core, Freight::Message { from, to, message });
        }
    }

    fn core_of(&self, shard: ShardId) -> usize {
        usize::from(shard.0 % self.parts.cores)
    }

    fn deliver(&mut self, shard: ShardId, event: Event) {
        debug_assert_eq!(
            self.core_of(shard),
            usize::from(self.parts.index),
            "{shard:?} is not here"
        );
        self.deliver_to_seat(usize::from(shard.0 / self.parts.cores), event);
    }

    fn deliver_to_seat(&mut self, index: usize, event: Event) {
        let seat = &mut self.parts.seats[index];
        seat.shard.on(self.now, event, &mut seat.outbox);
        if !seat.listed && !seat.outbox.is_empty() {
            seat.listed = true;
            self.scratch.wishing.push(index);
        }
    }
}

fn index_of(key: Key) -> usize {
    (key.0 & ((1 << 56) - 1)) as usize
}
