//! The requests of one front end that are under way: which connection asked, which parts are out, when waiting ends.
//!
//! A front end is a core of the per-core engine, a thread of the blocking engine, or the simulator: it delivers what [`Requests`] puts into
//! `out`, and brings the replies back. No I/O and no clock here.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bytes::Bytes;
use corelog_shards::base::ids::{ReplyTo, ShardId};
use corelog_shards::base::time::Mono;
use corelog_shards::part::{Part, Reply};
use corelog_wire::frame::RequestHeader;
use slab::Slab;
use smallvec::SmallVec;

use crate::api::{self, Answer, Context, Joins, Parts, Pending, Split, Step};

/// What to carry to the owners.
pub enum Carry {
    Part {
        shard: ShardId,
        to: ReplyTo,
        part: Part,
    },
    Cancel {
        shard: ShardId,
        to: ReplyTo,
    },
}

impl Carry {
    /// The most bytes that the answer may bring.
    pub fn reply_bytes(&self) -> usize {
        match self {
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
}

/// Where a request came from: the front end's own number of the connection, and the request's place in its order of replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    pub connection: u64,
    pub seq: u64,
    /// Bytes of the request pool that the request holds, unless it is parked.
    pub bytes: usize,
    /// Waits for others, and has given its credits back.
    pub parked: bool,
    /// When it was split.
    pub since: Mono,
}

/// How a request stands after a step.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// Replies or a deadline are still to come. `key` names the request until it is finished.
    Waiting { key: u32, parked: bool },
    /// The response is in the answer.
    Answered,
    /// Finished, and nothing is to be sent.
    Silent,
    /// The connection has to be closed, for this reason.
    Close(&'static str),
}

/// A request that has just been finished by a reply or its deadline.
#[derive(Debug, PartialEq, Eq)]
pub struct Stepped {
    pub origin: Origin,
    pub api_key: i16,
    pub key: u32,
    /// Reply bytes that were reserved for the request so far; 0 while it goes on.
    pub reserved: usize,
    pub progress: Progress,
}

struct Open {
    part: u16,
    shard: ShardId,
    watch: bool,
}

struct Request {
    generation: u32,
    origin: Origin,
    header: RequestHeader,
    pending: Pending,
    next_part: u16,
    open: SmallVec<[Open; 4]>,
    reserved: usize,
    /// The deadline that stands in the heap for this request.
    deadline: Option<Mono>,
}

const PART_BITS: u32 = 12;
const GENERATION_BITS: u32 = 18;
const KEY_BITS: u32 = 24;

/// More parts than this in one request close its connection: 12 bits name a part.
const PARTS_MAX: u16 = (1 << PART_BITS) - 1;

/// The table of one front end.
pub struct Requests {
    front: u16,
    slab: Slab<Request>,
    generation: u32,
    deadlines: BinaryHeap<Reverse<(Mono, u32, u32)>>,
    parts: Parts,
}

/// The front end to which a reply has to be carried.
pub fn front_of(to: ReplyTo) -> u16 {
    (to.0 >> (PART_BITS + GENERATION_BITS + KEY_BITS)) as u16
}

impl Requests {
    /// `front` is this front end's number, below 1024.
    pub fn new(front: u16) -> Requests {
        assert!(front < 1 << 10, "front end {front} does not fit 10 bits");
        Requests {
            front,
            slab: Slab::new(),
            generation: 0,
            deadlines: BinaryHeap::new(),
            parts: Vec::new(),
        }
    }

    /// Requests whose parts are out.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    pub fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    /// Splits a frame (without size prefix) and sends its parts off.
    pub fn begin(
        &mut self,
        cx: &Context<'_>,
        origin: Origin,
        frame: Bytes,
        out: &mut Vec<Carry>,
        answer: &mut Answer<'_>,
    ) -> (i16, Progress) {
        let (header, split) = api::split(cx, frame, &mut self.parts, answer);
        let api_key = header.as_ref().map_or(-1, |header| header.api_key);
        let progress = match (header, split) {
            (Some(header), Split::Wait(pending)) => {
                self.generation = (self.generation + 1) & ((1 << GENERATION_BITS) - 1);
                let request = Request {
                    generation: self.generation,
                    origin,
                    header,
                    pending,
                    next_part: 0,
                    open: SmallVec::new(),
                    reserved: 0,
                    deadline: None,
                };
                let key = self.slab.insert(request) as u32;
                assert!(
                    key < 1 << KEY_BITS,
                    "more requests are under way than 24 bits can name"
                );
                self.send_parts(key, out)
            }
            (_, Split::Ready) => Progress::Answered,
            (_, Split::Silent) => Progress::Silent,
            (_, Split::Close(reason)) => Progress::Close(reason),
            (None, Split::Wait(_)) => Progress::Close("malformed request header"),
        };
        self.parts.clear();
        (api_key, progress)
    }

    /// A reply of an owner.
    pub fn on_reply(
        &mut self,
        cx: &Context<'_>,
        to: ReplyTo,
        reply: Reply,
        out: &mut Vec<Carry>,
        answer: &mut Answer<'_>,
    ) -> Option<Stepped> {
        let (key, generation, part) = parse(to);
        let request = self
            .slab
            .get_mut(key as usize)
            .filter(|request| request.generation == generation)?;
        if let Some(index) = request
            .open
            .iter()
            .position(|open| open.part == part && !open.watch)
        {
            request.open.swap_remove(index);
        }
        let step = request
            .pending
            .on_reply(cx, usize::from(part), reply, &mut self.parts, answer);
        Some(self.take_step(key, step, out))
    }

    /// The next request whose waiting ends at or before `now`; call until `None`.
    pub fn expire(
        &mut self,
        cx: &Context<'_>,
        out: &mut Vec<Carry>,
        answer: &mut Answer<'_>,
    ) -> Option<Stepped> {
        loop {
            let Reverse((at, key, generation)) = *self.deadlines.peek()?;
            if at > cx.now.mono {
                return None;
            }
            self.deadlines.pop();
            let Some(request) = self.slab.get_mut(key as usize) else {
                continue;
            };
            if request.generation != generation || request.deadline != Some(at) {
                continue;
            }
            request.deadline = None;
            let step = request.pending.on_deadline(cx, &mut self.parts, answer);
            return Some(self.take_step(key, step, out));
        }
    }

    /// When [`Requests::expire`] is due next (possibly too early, never too late).
    pub fn next_deadline(&self) -> Option<Mono> {
        self.deadlines.peek().map(|Reverse((at, _, _))| *at)
    }

    /// The connection of this request is gone: nobody waits for it any more. Gives what it held: its origin and reserved reply bytes.
    pub fn cancel(&mut self, key: u32, out: &mut Vec<Carry>) -> Option<(Origin, usize)> {
        if !self.slab.contains(key as usize) {
            return None;
        }
        self.cancel_open(key, out, |_| true);
        let request = self.slab.remove(key as usize);
        Some((request.origin, request.reserved))
    }

    /// The request has given its credits back while it waits for others.
    pub fn set_parked(&mut self, key: u32) {
        self.slab[key as usize].origin.parked = true;
    }

    /// The request may not wait: its deadline is now.
    pub fn hurry(&mut self, key: u32, now: Mono) {
        let request = &mut self.slab[key as usize];
        request.deadline = Some(now);
        self.deadlines.push(Reverse((now, key, request.generation)));
    }

    /// Where the request came from that `to` belongs to, if it is still under way.
    pub fn origin_of(&self, to: ReplyTo) -> Option<Origin> {
        let (key, generation, _) = parse(to);
        let request = self.slab.get(key as usize)?;
        (request.generation == generation).then_some(request.origin)
    }

    /// The origin of the request that [`Requests::expire`] would take next at `now`.
    pub fn next_expired(&mut self, now: Mono) -> Option<Origin> {
        loop {
            let Reverse((at, key, generation)) = *self.deadlines.peek()?;
            if at > now {
                return None;
            }
            let request = self.slab.get(key as usize);
            if let Some(request) = request
                .filter(|request| request.generation == generation && request.deadline == Some(at))
            {
                return Some(request.origin);
            }
            self.deadlines.pop();
        }
    }

    /// Notes reply bytes reserved for the request that `to` belongs to; false if it is gone.
    pub fn reserve(&mut self, to: ReplyTo, bytes: usize) -> bool {
        let (key, generation, _) = parse(to);
        match self
            .slab
            .get_mut(key as usize)
            .filter(|request| request.generation == generation)
        {
            Some(request) => {
                request.reserved += bytes;
                true
            }
            None => false,
        }
    }

    fn take_step(&mut self, key: u32, step: Step, out: &mut Vec<Carry>) -> Stepped {
        let request = &self.slab[key as usize];
        let (origin, api_key) = (request.origin, request.header.api_key);
        let progress = match step {
            Step::Wait => self.wait(key),
            Step::Again => {
                self.cancel_open(key, out, |open| open.watch);
                self.send_parts(key, out)
            }
            Step::Done => Progress::Answered,
            Step::Silent => Progress::Silent,
            Step::Close => Progress::Close("a request without acknowledgement failed"),
        };
        self.parts.clear();
        let mut reserved = 0;
        if !matches!(progress, Progress::Waiting { .. })
            && let Some((_, held)) = self.cancel(key, out)
        {
            reserved = held;
        }
        Stepped {
            origin,
            api_key,
            key,
            reserved,
            progress,
        }
    }

    fn wait(&mut self, key: u32) -> Progress {
        let request = &mut self.slab[key as usize];
        let deadline = request.pending.deadline();
        if deadline != request.deadline {
            request.deadline = deadline;
            if let Some(at) = deadline {
                self.deadlines.push(Reverse((at, key, request.generation)));
            }
        }
        Progress::Waiting {
            key,
            parked: request.pending.parked(),
        }
    }

    fn send_parts(&mut self, key: u32, out: &mut Vec<Carry>) -> Progress {
        let request = &mut self.slab[key as usize];
        if usize::from(PARTS_MAX - request.next_part) < self.parts.len() {
            self.parts.clear();
            self.cancel(key, out);
            return Progress::Close("a request needs more parts than can be named");
        }
        for (shard, part) in self.parts.drain(..) {
            let number = request.next_part;
            request.next_part += 1;
            let watch = matches!(&part, Part::FetchPeek(peek) if peek.watch);
            request.open.push(Open {
                part: number,
                shard,
                watch,
            });
            out.push(Carry::Part {
                shard,
                to: reply_to(self.front, key, request.generation, number),
                part,
            });
        }
        self.wait(key)
    }

    fn cancel_open(&mut self, key: u32, out: &mut Vec<Carry>, which: impl Fn(&Open) -> bool) {
        let request = &mut self.slab[key as usize];
        let (front, generation) = (self.front, request.generation);
        request.open.retain(|open| {
            let gone = which(open);
            if gone {
                out.push(Carry::Cancel {
                    shard: open.shard,
                    to: reply_to(front, key, generation, open.part),
                });
            }
            !gone
        });
    }
}

/// Key, generation and part number.
fn parse(to: ReplyTo) -> (u32, u32, u16) {
    let key = (to.0 >> (PART_BITS + GENERATION_BITS)) as u32 & ((1 << KEY_BITS) - 1);
    let generation = (to.0 >> PART_BITS) as u32 & ((1 << GENERATION_BITS) - 1);
    (key, generation, to.0 as u16 & PARTS_MAX)
}

fn reply_to(front: u16, key: u32, generation: u32, part: u16) -> ReplyTo {
    let key = u64::from(key) << (PART_BITS + GENERATION_BITS);
    ReplyTo(
        u64::from(front) << (PART_BITS + GENERATION_BITS + KEY_BITS)
            | key
            | u64::from(generation) << PART_BITS
            | u64::from(part),
    )
}
