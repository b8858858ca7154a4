//! One core: its sockets, its shards, its turn.
//!
//! A turn takes what has completed, lets shards decide, carries out what they wish, and submits once (architecture.md 4). What a connection
//! may do next is decided in `connection.rs`, by credits in `credits.rs`; disk effects are in `disk.rs`.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Shutdown};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use corelog_io::buffer::BufferPool;
use corelog_io::executor::CoreHandle;
use corelog_io::inbox::{Inbox, InboxSender};
use corelog_io::mesh::MeshPort;
use corelog_io::net::Socket;
use corelog_io::net::deal::CoreLoads;
use corelog_io::turn::{Completion, Key, Turn, is_cancelled};
use corelog_shards::base::ids::{ReplyTo, ShardId};
use corelog_shards::base::time::{Mono, Now};
use corelog_shards::effect::{Effect, Message, Outbox};
use corelog_shards::event::Event;
use corelog_shards::metadata::Image;
use corelog_shards::part::{Part, Reply};
use corelog_shards::shard::Shard;
use slab::Slab;

use super::connection::{Connection, Lacks, Next, Receive};
use super::credits::CoreCredits;
use super::disk::{Disk, DiskDone};
use super::hop::{Freight, Hop, Hops};
use super::mail::Mail;
use crate::api::{Answer, BrokerView, Context, Directories, table};
use crate::engine::clock::Clock;
use crate::engine::reply_order::{Outcome, Pieces};
use crate::engine::requests::{Carry, Origin, Progress, Requests, Stepped, front_of};
use crate::metrics::{CreditKind, Family, Metrics, Recorder, Stage};

/// A wait in the ring is never longer: the core's timers are looked at this often at least.
const WAIT_MAX: Duration = Duration::from_millis(50);

/// The load of this core is published this often, in microseconds.
const LOAD_EVERY_US: u64 = 100_000;

/// Idle connections and hot buffers are looked through this often.
const SWEEP_MS: u64 = 1000;

/// Frames that one connection may start before the others get their chance. More would let one pipelining client
/// stretch the turn; fewer would split what one receive brought.
const FRAMES_PER_VISIT: u32 = 256;

/// The first receive window of a connection that has become active, and the one of a busy connection.
pub(super) const WINDOW_BYTES_MIN: usize = 8 << 10;
const WINDOW_BYTES_MAX: usize = 64 << 10;

/// A frame that is larger is received in steps, so that a claimed length reserves no memory before bytes arrive.
const STEP_BYTES_MAX: usize = 1 << 20;

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
    /// Called with each image that the controller publishes on this core: hands it to all cores.
    pub(super) publish: Box<dyn Fn(Arc<Image>) + Send>,
    /// Called with what should stand in the checkpoint files.
    pub(super) checkpoint: Box<dyn Fn(Vec<corelog_shards::effect::PartitionCheckpoint>) + Send>,
    pub(super) loads: CoreLoads,
    /// The inboxes of all cores.
    pub(super) peers: Vec<InboxSender<Mail>>,
    /// Called when a shard of this core has stopped.
    pub(super) stopped: Box<dyn Fn(ShardId) + Send>,
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
                        self.deliver(shard, Event::Part { to, part })
                    }
                    Some(Freight::Reply { to, reply }) => {
                        if !matches!(reply, Reply::FetchWake(_)) {
                            self.out[from] = self.out[from].saturating_sub(1);
                        }
                        self.on_reply(to, reply);
                    }
                    Some(Freight::Message { from, to, message }) => {
                        self.deliver(to, Event::Message { from, message })
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
                Mail::Image(image) => {
                    if image.version > self.parts.image.version {
                        self.parts.image = Arc::clone(&image);
                        for seat in 0..self.parts.seats.len() {
                            self.deliver_to_seat(seat, Event::Image(Arc::clone(&image)));
                        }
                    }
                }
                Mail::Credits => {}
                Mail::Directories(directories) => self.parts.directories = directories,
                Mail::Done { asker, outcome } => self.deliver(
                    asker.shard,
                    Event::Done {
                        op: asker.op,
                        outcome,
                    },
                ),
                Mail::Placed { log, directory } => self.parts.disk.place(log, directory),
                Mail::Opened { shard, log, opened } => {
                    self.deliver(shard, Event::Opened { log, opened })
                }
                Mail::Offline { logs } => {
                    for seat in 0..self.parts.seats.len() {
                        self.deliver_to_seat(seat, Event::Offline { logs: logs.clone() });
                    }
                }
                Mail::Stop => {
                    for seat in 0..self.parts.seats.len() {
                        self.deliver_to_seat(seat, Event::Stop);
                    }
                }
            }
        }
        self.scratch.mails = mails;
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

    /// Lets connections, shards and disk act until nothing is left to do in this turn.
    fn settle(&mut self) {
        loop {
            let mut visiting = std::mem::replace(
                &mut self.scratch.visit,
                std::mem::take(&mut self.scratch.visiting),
            );
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
            if self.scratch.wishing.is_empty() {
                // Connections that used up their share of this turn go on in the next one.
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
            Effect::Publish(image) => (self.parts.publish)(image),
            Effect::Checkpoint(checkpoints) => (self.parts.checkpoint)(checkpoints),
            Effect::Stopped => (self.parts.stopped)(shard),
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

    // ---- hops -------------------------------------------------------------------------------------------------------------------

    fn ship(&mut self, core: usize, freight: Freight) {
        if !self.overflow.is_empty() {
            self.overflow.push_back((core, freight));
            return;
        }
        match self.parts.hops.reserve(freight) {
            Ok(slot) => self.push_hop(core, Hop::Freight(slot)),
            Err(freight) => self.overflow.push_back((core, freight)),
        }
    }

    fn push_hop(&mut self, core: usize, hop: Hop) {
        self.counters().hops_sent.increment();
        if !self.backlog[core].is_empty() {
            self.backlog[core].push_back(hop);
        } else if let Err(hop) = self.parts.mesh.push(core, hop) {
            self.counters().mesh_full.increment();
            self.backlog[core].push_back(hop);
        }
    }

    fn flush_hops(&mut self) {
        while let Some((core, freight)) = self.overflow.pop_front() {
            match self.parts.hops.reserve(freight) {
                Ok(slot) => self.push_hop(core, Hop::Freight(slot)),
                Err(freight) => {
                    self.overflow.push_front((core, freight));
                    break;
                }
            }
        }
        for (core, backlog) in self.backlog.iter_mut().enumerate() {
            while let Some(hop) = backlog.pop_front() {
                if let Err(hop) = self.parts.mesh.push(core, hop) {
                    backlog.push_front(hop);
                    break;
                }
            }
        }
        self.parts.mesh.flush(&mut self.parts.turn);
    }

    /// Is there room for one more request's parts on the way to every other core?
    fn rings_have_room(&self) -> bool {
        let each = self.parts.seats.len();
        self.out
            .iter()
            .all(|out| out + each <= self.parts.limits.ring_parts_max)
    }

    // ---- requests ---------------------------------------------------------------------------------------------------------------

    fn on_reply(&mut self, to: ReplyTo, reply: Reply) {
        let cx = Context {
            now: self.now,
            image: &self.parts.image,
            broker: &self.parts.views[0],
            directories: &self.parts.directories,
            home: self.parts.seats[0].shard.id(),
            client_address: IpAddr::from([127, 0, 0, 1]),
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

    fn expire_requests(&mut self) {
        loop {
            let cx = Context {
                now: self.now,
                image: &self.parts.image,
                broker: &self.parts.views[0],
                directories: &self.parts.directories,
                home: self.parts.seats[0].shard.id(),
                client_address: IpAddr::from([127, 0, 0, 1]),
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

    fn begin(&mut self, index: usize, total: usize) {
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

    fn after_step(&mut self, stepped: Stepped) {
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
                self.close(index, reason);
            }
        }
    }

    /// What waits for others gives back its place and its bytes; when too many wait, it is answered at once.
    fn park(&mut self, key: u32, origin: Origin) {
        if self.parts.credits.parked >= self.parts.credits.parked_max {
            self.requests.hurry(key, self.now.mono);
            return;
        }
        self.parts.credits.parked += 1;
        self.requests.set_parked(key);
        self.give_request_credits(origin.bytes);
    }

    fn take_answer(&mut self) -> Outcome {
        if self.scratch.chunks.is_empty() {
            return Outcome::Frame(Pieces::One(self.scratch.head.split().freeze()));
        }
        self.scratch.head.clear();
        Outcome::Frame(Pieces::Many(std::mem::take(&mut self.scratch.chunks)))
    }

    fn finish(
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
    fn carry(&mut self) {
        let mut carry = std::mem::replace(
            &mut self.scratch.carry,
            std::mem::take(&mut self.scratch.carrying),
        );
        for item in carry.drain(..) {
            if needs_reply_bytes(&item) > 0 && !self.pay_for_reply(&item) {
                self.starved.push_back(item);
            } else {
                self.carry_one(item);
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

    /// Reply bytes are reserved before data is read; the one that waits longest is served first. The largest answer always fits
    /// once others are done, because a request is capped to what the pool holds.
    fn pay_for_reply(&mut self, item: &Carry) -> bool {
        let bytes = needs_reply_bytes(item).min(self.parts.credits.reply_bytes.total() as usize);
        if !self.starved.is_empty() || !self.parts.credits.reply_bytes.take(bytes, false) {
            return false;
        }
        self.note_reserved(item, bytes);
        true
    }

    fn note_reserved(&mut self, item: &Carry, bytes: usize) {
        if let Carry::Part { to, .. } = item
            && !self.requests.reserve(*to, bytes)
        {
            self.parts.credits.reply_bytes.give(bytes);
        }
    }

    fn give_reply_bytes(&mut self, bytes: usize) {
        if bytes > 0 {
            self.parts.credits.reply_bytes.give(bytes);
        }
        while let Some(item) = self.starved.pop_front() {
            let bytes =
                needs_reply_bytes(&item).min(self.parts.credits.reply_bytes.total() as usize);
            if !self.parts.credits.reply_bytes.take(bytes, true) {
                self.starved.push_front(item);
                return;
            }
            self.note_reserved(&item, bytes);
            self.carry_one(item);
        }
    }

    // ---- connections ------------------------------------------------------------------------------------------------------------

    fn accept(&mut self, socket: Socket, peer: IpAddr, listener: u8) {
        let index = self
            .connections
            .insert(Connection::new(socket, peer, listener, self.now.mono));
        self.counters().connections_opened.increment();
        self.scratch.visit.push(index);
    }

    /// Starts what can start on this connection, then sees to it that more is received.
    fn advance(&mut self, index: usize) {
        for _ in 0..FRAMES_PER_VISIT {
            let Some(connection) = self.connections.get(index) else {
                return;
            };
            if connection.closing || connection.lacks.is_some() {
                return;
            }
            let limits = &self.parts.limits;
            if connection.order.len() >= limits.connection_requests_max
                || connection.outgoing_bytes + connection.sending_bytes
                    > limits.connection_reply_bytes_max
            {
                return;
            }
            match connection.next(limits.frame_bytes_max) {
                Next::Close(reason) => {
                    self.close(index, &reason);
                    return;
                }
                Next::Barrier => return,
                Next::Receive { missing } => {
                    self.arm(index, missing);
                    return;
                }
                Next::Frame { total } => {
                    let woken = connection.woken;
                    if !self.rings_have_room() {
                        self.lack(index, Lacks::Ring);
                        return;
                    }
                    if !self
                        .parts
                        .credits
                        .request_count
                        .take(1, woken == Some(Lacks::RequestCount))
                    {
                        self.lack(index, Lacks::RequestCount);
                        return;
                    }
                    self.was_served(index);
                    self.begin(index, total);
                }
            }
        }
        self.scratch.visit.push(index);
    }

    fn lack(&mut self, index: usize, lacks: Lacks) {
        let connection = &mut self.connections[index];
        connection.lacks = Some(lacks);
        let woken = connection.woken.take() == Some(lacks);
        self.parts.credits.wait(index, lacks, woken);
        if !woken {
            self.counters().credit(lacks.kind()).waits.increment();
        }
    }

    /// A connection that was woken got what it waited for: the next one may try.
    fn was_served(&mut self, index: usize) {
        if let Some(lacks) = self.connections[index].woken.take() {
            self.wake(lacks);
        }
    }

    /// Arms the next receive, if its bytes can be paid for.
    fn arm(&mut self, index: usize, missing: usize) {
        let connection = &mut self.connections[index];
        if connection.receive != Receive::Off {
            return;
        }
        if !connection.hot && connection.buffer.is_empty() {
            if self.parts.credits.request_bytes.waiters() > 0 {
                self.lack(index, Lacks::RequestBytes);
                return;
            }
            let op = self
                .parts
                .turn
                .receive_select(key(KIND_RECEIVE, index), &connection.socket);
            connection.receive = Receive::Cold(op);
            return;
        }
        let least = missing.clamp(1, STEP_BYTES_MAX);
        let wanted = least.max(connection.window);
        // A frame is read only when all of it is paid for, or two halves could wait for each other for ever.
        let whole = missing.max(1);
        let woken = connection.woken == Some(Lacks::RequestBytes);
        let window = if self
            .parts
            .credits
            .request_bytes
            .take(whole.max(wanted), woken)
        {
            whole.max(wanted)
        } else if self.parts.credits.request_bytes.take(whole, woken) {
            whole
        } else {
            self.lack(index, Lacks::RequestBytes);
            return;
        };
        self.was_served(index);
        self.receive_into(index, window);
    }

    /// `window` bytes are paid for.
    fn receive_into(&mut self, index: usize, window: usize) {
        let connection = &mut self.connections[index];
        connection.paid += window;
        let room = window.min(STEP_BYTES_MAX.max(connection.window));
        let held = std::mem::take(&mut connection.buffer);
        connection.armed_with_part = !held.is_empty();
        let buffer = with_room(self.parts.turn.pool(), held, room);
        let connection = &mut self.connections[index];
        let op = self.parts.turn.receive_into(
            key(KIND_RECEIVE, index),
            &connection.socket,
            buffer,
            room,
        );
        connection.receive = Receive::Hot { op, window };
    }

    fn on_received(&mut self, index: usize, result: io::Result<usize>, mut buffer: BytesMut) {
        let Some(connection) = self.connections.get_mut(index) else {
            return;
        };
        let was = std::mem::replace(&mut connection.receive, Receive::Off);
        let got = *result.as_ref().unwrap_or(&0);
        match was {
            Receive::Hot { window, .. } => {
                let unused = window.saturating_sub(got);
                connection.paid -= unused;
                self.give_request_bytes(unused);
            }
            // What comes to an idle connection is at most one small provided buffer; it is here whether or not there are credits for it.
            Receive::Cold(_) => {
                if self.parts.credits.request_bytes.take(got, true) {
                    connection.paid += got;
                }
            }
            Receive::Off => {}
        }
        let Some(connection) = self.connections.get_mut(index) else {
            return;
        };
        match result {
            Ok(0) => self.close(index, "closed by the client"),
            Ok(got) => {
                connection.buffer = buffer;
                connection.hot = true;
                connection.window = next_window(connection.window, got);
                connection.last_active = self.now.mono;
                self.scratch.visit.push(index);
            }
            Err(error) if is_cancelled(&error) => {
                if buffer.is_empty() {
                    // The connection has been idle: from now on it waits without a buffer.
                    connection.hot = false;
                    connection.window = WINDOW_BYTES_MIN;
                    self.parts.turn.pool().give(buffer);
                } else {
                    connection.buffer = std::mem::take(&mut buffer);
                }
                self.scratch.visit.push(index);
            }
            Err(error) => self.close(index, &error.to_string()),
        }
        self.remove_if_quiet(index);
    }

    fn send_answers(&mut self) {
        let mut sendable = std::mem::take(&mut self.scratch.sendable);
        for index in sendable.drain(..) {
            let Some(connection) = self.connections.get_mut(index) else {
                continue;
            };
            connection.listed = false;
            connection.release_replies();
            self.send_next(index);
        }
        self.scratch.sendable = sendable;
    }

    fn send_next(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if connection.sending || connection.closing || connection.outgoing.is_empty() {
            return;
        }
        connection.sending = true;
        connection.send_since = self.now.mono;
        connection.sending_bytes = std::mem::take(&mut connection.outgoing_bytes);
        let chunks = std::mem::replace(
            &mut connection.outgoing,
            std::mem::take(&mut connection.spare),
        );
        self.parts
            .turn
            .send(key(KIND_SEND, index), &connection.socket, chunks);
    }

    fn on_sent(&mut self, index: usize, result: io::Result<usize>, chunks: Vec<Bytes>) {
        let Some(connection) = self.connections.get_mut(index) else {
            return;
        };
        connection.sending = false;
        connection.spare = chunks;
        let sent = std::mem::take(&mut connection.sending_bytes);
        // Reserved reply bytes come back when everything that was reserved for has left.
        let paid = if connection.outgoing.is_empty() {
            std::mem::take(&mut connection.reply_paid)
        } else {
            0
        };
        match result {
            Ok(_) => {
                connection.last_active = self.now.mono;
                self.counters().bytes_out.add(sent as u64);
                self.send_next(index);
                // A connection that was not read because of its answers may go on.
                self.scratch.visit.push(index);
            }
            Err(error) => self.close(index, &error.to_string()),
        }
        self.give_reply_bytes(paid);
        self.remove_if_quiet(index);
    }

    /// Closes a connection: nobody waits for its requests any more. Its entry goes when the kernel holds nothing of it.
    fn close(&mut self, index: usize, reason: &str) {
        let Some(connection) = self.connections.get_mut(index) else {
            return;
        };
        if connection.closing {
            return;
        }
        connection.closing = true;
        tracing::debug!(peer = %connection.peer, reason, "connection closed");
        // A socket that is gone already is as good as shut down.
        drop(connection.socket.shutdown(Shutdown::Both));
        let waiting = std::mem::take(&mut connection.waiting);
        let lacks = connection.lacks.take();
        if let Some(lacks) = lacks {
            self.parts.credits.forget(index, lacks);
        }
        for key in waiting {
            if let Some((origin, reserved)) = self.requests.cancel(key, &mut self.scratch.carry) {
                self.release_request(origin);
                self.give_reply_bytes(reserved);
            }
        }
        self.carry();
        self.scratch.visit.push(index);
        self.remove_if_quiet(index);
    }

    fn remove_if_quiet(&mut self, index: usize) {
        let gone = self
            .connections
            .get(index)
            .is_some_and(|connection| connection.closing && connection.is_quiet());
        if !gone {
            return;
        }
        let connection = self.connections.remove(index);
        self.give_request_bytes(connection.paid);
        self.give_reply_bytes(connection.reply_paid);
        self.parts.turn.pool().give(connection.buffer);
        self.counters().connections_closed.increment();
        self.parts
            .loads
            .connection_left(usize::from(self.parts.index));
    }

    /// Ends what is idle or stuck, and takes the buffers of connections that have become idle.
    fn sweep(&mut self) {
        let limits = &self.parts.limits;
        let mut ended: Vec<(usize, &'static str)> = Vec::new();
        for (index, connection) in &mut self.connections {
            if connection.closing {
                continue;
            }
            let quiet_ms = self.now.mono.ms_since(connection.last_active);
            let has_part = !connection.buffer.is_empty() || connection.armed_with_part;
            if connection.sending
                && self.now.mono.ms_since(connection.send_since) > limits.send_ms_max
            {
                ended.push((index, "its reader takes nothing"));
            } else if connection.executing == 0 && quiet_ms > limits.idle_ms_max {
                ended.push((index, "idle for longer than connections.max.idle.ms"));
            } else if has_part
                && connection.lacks.is_none()
                && connection.executing == 0
                && quiet_ms > limits.progress_ms_max
            {
                ended.push((index, "the rest of its request does not come"));
            } else if let Receive::Hot { op, .. } = connection.receive
                && quiet_ms >= SWEEP_MS
                && !connection.armed_with_part
            {
                self.parts.turn.cancel(op);
            }
        }
        for (index, reason) in ended {
            self.close(index, reason);
        }
    }

    // ---- credits ----------------------------------------------------------------------------------------------------------------

    fn release_request(&mut self, origin: Origin) {
        if origin.parked {
            self.parts.credits.parked -= 1;
        } else {
            self.give_request_credits(origin.bytes);
        }
    }

    fn give_request_credits(&mut self, bytes: usize) {
        self.parts.credits.request_count.give(1);
        self.wake(Lacks::RequestCount);
        self.give_request_bytes(bytes);
    }

    fn give_request_bytes(&mut self, bytes: usize) {
        if bytes > 0 {
            self.parts.credits.request_bytes.give(bytes);
            self.wake(Lacks::RequestBytes);
        }
    }

    fn wake_ring_waiters(&mut self) {
        if self.parts.credits.waiting(Lacks::Ring) > 0 && self.rings_have_room() {
            self.wake(Lacks::Ring);
        }
    }

    /// Lets the connection that has waited longest try again. It wakes the next one by what it gives back or leaves.
    fn wake(&mut self, lacks: Lacks) {
        if let Some(index) = self.parts.credits.next_waiter(lacks)
            && let Some(connection) = self.connections.get_mut(index)
        {
            connection.lacks = None;
            connection.woken = Some(lacks);
            self.scratch.visit.push(index);
        }
    }

    /// Once a turn: other cores may have given credits back, and may wait for ours.
    fn settle_credits(&mut self) {
        for lacks in [Lacks::RequestBytes, Lacks::RequestCount] {
            if self.parts.credits.waiting(lacks) > 0 {
                self.wake(lacks);
            }
        }
        if !self.starved.is_empty() {
            self.give_reply_bytes(0);
        }
        let Parts { credits, peers, .. } = &mut self.parts;
        // A full inbox means that the core is awake anyway.
        let mut wake = |core: usize| drop(peers[core].push(Mail::Credits));
        credits.request_bytes.settle(&mut wake);
        credits.request_count.settle(&mut wake);
        credits.reply_bytes.settle(&mut wake);
    }

    // ---- metrics ----------------------------------------------------------------------------------------------------------------

    fn counters(&self) -> &crate::metrics::Core {
        self.parts.metrics.core(usize::from(self.parts.index))
    }

    /// From split to the response: owners, hops and disk included.
    fn record(&mut self, api_key: i16, since: Mono) {
        let family = match api_key {
            table::PRODUCE => Family::Produce,
            table::FETCH => Family::Fetch,
            _ => Family::Other,
        };
        let us = self.clock.now().mono.0.saturating_sub(since.0);
        self.parts.recorder.record(family, Stage::Owners, us);
    }

    fn count_rest(&mut self, before: Mono) {
        let counters = self.counters();
        counters
            .idle_us
            .add(self.now.mono.0.saturating_sub(before.0));
        counters.turns.increment();
    }

    fn count_turn(&mut self) {
        let end = self.clock.now().mono;
        let counters = self.counters();
        counters.busy_us.add(end.0.saturating_sub(self.now.mono.0));
        counters.connections.set(self.connections.len() as i64);
        counters
            .mesh_depth
            .set(self.backlog.iter().map(VecDeque::len).sum::<usize>() as i64);
        let credits = &self.parts.credits;
        for (kind, share) in [
            (CreditKind::RequestBytes, &credits.request_bytes),
            (CreditKind::RequestCount, &credits.request_count),
            (CreditKind::ReplyBytes, &credits.reply_bytes),
        ] {
            counters.credit(kind).free.set(share.free() as i64);
            counters.credit(kind).waiters.set(share.waiters() as i64);
        }
        counters
            .credit(CreditKind::ReplyBytes)
            .waiters
            .set(self.starved.len() as i64);
        counters
            .credit(CreditKind::Parked)
            .free
            .set((credits.parked_max - credits.parked) as i64);
        counters
            .credit(CreditKind::RingSlots)
            .waiters
            .set(credits.waiting(Lacks::Ring) as i64);
        self.parts.recorder.turn_end();
        self.publish_load(end);
    }

    /// Tells the dealer how busy this core has been, some times a second.
    fn publish_load(&mut self, now: Mono) {
        let since = now.0.saturating_sub(self.load_since.0);
        if since < LOAD_EVERY_US {
            return;
        }
        let busy = self.counters().busy_us.get();
        let per_mille = (busy - self.load_busy_us) * 1000 / since;
        (self.load_since, self.load_busy_us) = (now, busy);
        self.parts
            .loads
            .publish(usize::from(self.parts.index), per_mille as u32);
    }
}

fn index_of(key: Key) -> usize {
    (key.0 & ((1 << 56) - 1)) as usize
}

/// A window that was filled doubles; one that was mostly empty halves.
fn next_window(window: usize, got: usize) -> usize {
    if got >= window {
        (window * 2).min(WINDOW_BYTES_MAX)
    } else if got * 4 < window {
        (window / 2).max(WINDOW_BYTES_MIN)
    } else {
        window
    }
}

/// The buffer with room for `room` more bytes: itself if nobody else holds a part of it, else a pooled one with the leftover copied.
fn with_room(pool: &mut BufferPool, mut held: BytesMut, room: usize) -> BytesMut {
    if held.capacity() - held.len() >= room || held.try_reclaim(room) {
        return held;
    }
    let mut buffer = pool.take(held.len() + room);
    buffer.extend_from_slice(&held);
    pool.give(held);
    buffer
}

/// The most bytes that the answer to this part may bring.
fn needs_reply_bytes(item: &Carry) -> usize {
    match item {
        Carry::Part {
            part: Part::FetchCollect(collect),
            ..
        } => collect
            .entries
            .iter()
            .map(|grant| grant.bytes as usize)
            .sum(),
        Carry::Part { .. } | Carry::Cancel { .. } => 0,
    }
}
