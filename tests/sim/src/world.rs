//! The world: everything that can happen, in an order that the seed decides.
//!
//! Time jumps from one thing to the next. Things between the same two parties keep their order (a ring, a connection, effects on a file), all others
//! come in any order. After each event the outbox of the shard is carried out effect by effect, and between any two effects the process may be killed
//! or the power may go.

mod effects;
mod requests;
mod trouble;
mod wires;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::sync::Arc;

use bytes::BytesMut;
use corelog::api::Answer;
use corelog_shards::base::ids::{ReplyTo, ShardId, TopicPartition, Uuid};
use corelog_shards::base::time::{Mono, Now};
use corelog_shards::effect::Message;
use corelog_shards::event::Event;
use corelog_shards::log::{Log, OpenFailure, Shutdown};
use corelog_shards::metadata::Image;
use corelog_shards::part::{Part, Reply};

use crate::clients::member::Member;
use crate::clients::{Client, GROUPS};
use crate::device::{Device, Finished, Lie};
use crate::history::History;
use crate::invariants;
use crate::net::Net;
use crate::node::{Core, Surroundings};
use crate::oracle::{Crash, Oracle};
use crate::seeded::Seeded;
use crate::start::Checkpoints;
use crate::{Checked, Failure, must};

/// Midnight of some day: the wall clock of the beginning.
const WALL_MS: i64 = 1_700_000_000_000;
/// More ticks at one moment are a loop.
const TICKS_MAX: u32 = 1000;

/// What a hop carries from one core to another.
pub enum Hop {
    Part { to: ReplyTo, part: Part },
    Cancel { to: ReplyTo },
    Reply { to: ReplyTo, reply: Reply },
    Message { from: ShardId, message: Message },
    Offline { logs: Vec<TopicPartition> },
    Stop,
}

/// Something that will happen.
pub enum Action {
    Start,
    Hop {
        core: usize,
        hop: Hop,
    },
    Device,
    Done(Box<Finished>),
    Recover {
        core: usize,
        log: TopicPartition,
    },
    Opened {
        core: usize,
        log: TopicPartition,
        opened: Result<Box<Log>, OpenFailure>,
    },
    Image {
        core: usize,
        image: Arc<Image>,
    },
    Checkpoints {
        file: usize,
    },
    ToBroker {
        connection: u64,
    },
    ToClient {
        connection: u64,
    },
    Wake {
        client: usize,
    },
    Trouble,
    Thaw,
}

struct Timed {
    at_us: u64,
    number: u64,
    /// The run of the broker that it belongs to; `None` = the world's own.
    incarnation: Option<u32>,
    action: Action,
}

impl PartialEq for Timed {
    fn eq(&self, other: &Timed) -> bool {
        self.number == other.number
    }
}
impl Eq for Timed {}
impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Timed) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Timed {
    fn cmp(&self, other: &Timed) -> std::cmp::Ordering {
        (self.at_us, self.number).cmp(&(other.at_us, other.number))
    }
}

/// See the module.
pub struct World {
    pub seeded: Seeded,
    pub history: History,
    now_us: u64,
    actions: BinaryHeap<Reverse<Timed>>,
    next_action: u64,
    pub device: Device,
    pub net: Net,
    pub cores: Vec<Core>,
    pub clients: Vec<Client>,
    pub oracle: Oracle,
    surroundings: Surroundings,
    pub incarnation: u32,
    /// The broker's process lives.
    pub up: bool,
    pub accepting: bool,
    pub published: bool,
    pub stopping: bool,
    pub shutdown: Shutdown,
    /// The newest image that was published in this run.
    pub image: Option<Arc<Image>>,
    /// Topics that all cores know.
    pub topics: BTreeMap<String, (Uuid, i32)>,
    pub channels: BTreeMap<(u16, u16), u64>,
    /// Parts that shards have, and whether they are watches.
    pub parts: BTreeMap<ReplyTo, bool>,
    pub checkpoints: [Checkpoints; 2],
    pub checkpoints_due: bool,
    stalled_until_us: u64,
    /// Effects until the next crash.
    pub crash_in: Option<(u64, Crash)>,
    pub faults: bool,
    pub calm: bool,
    pub clean_stops: u64,
}

impl World {
    pub fn new(seed: u64, lie: Option<Lie>) -> World {
        let mut seeded = Seeded::new(seed);
        // In half of the runs most of what happens is the groups'.
        let is_busy = seeded.percent(50);
        let producers = if is_busy { seeded.between(2, 5) } else { 1 } as usize;
        let consumers = if is_busy { seeded.between(2, 4) } else { 1 } as usize;
        let mut clients = vec![Client::operator()];
        clients.extend((0..producers).map(|number| Client::producer(number, &mut seeded)));
        clients.extend((0..consumers).map(|_| Client::consumer(&mut seeded)));
        clients.push(Client::administrator());
        for group in GROUPS {
            let members = Member::all_of(group, clients.len(), &mut seeded);
            clients.extend(members.into_iter().map(Client::member));
        }
        let mut oracle = Oracle::default();
        oracle.groups.is_durable = seeded.percent(50);
        let mut world = World {
            seeded,
            history: History::new(),
            now_us: 1_000_000,
            actions: BinaryHeap::new(),
            next_action: 0,
            device: Device::new(lie),
            net: Net::default(),
            cores: Vec::new(),
            clients: Vec::new(),
            oracle,
            surroundings: Surroundings::new(),
            incarnation: 0,
            up: false,
            accepting: false,
            published: false,
            stopping: false,
            shutdown: Shutdown::Crashed,
            image: None,
            topics: BTreeMap::new(),
            channels: BTreeMap::new(),
            parts: BTreeMap::new(),
            checkpoints: [Checkpoints::default(), Checkpoints::default()],
            checkpoints_due: false,
            stalled_until_us: 0,
            crash_in: None,
            faults: true,
            calm: false,
            clean_stops: 0,
        };
        world.later(0, Action::Start);
        world.later(100_000, Action::Trouble);
        for client in clients {
            world.join(client);
        }
        world
    }

    /// Another client comes.
    pub fn join(&mut self, client: Client) -> usize {
        self.clients.push(client);
        let client = self.clients.len() - 1;
        self.later(1, Action::Wake { client });
        client
    }

    pub fn now(&self) -> Now {
        Now {
            mono: Mono(self.now_us),
            wall_ms: WALL_MS + (self.now_us / 1000) as i64,
        }
    }

    pub fn note(&mut self, line: fmt::Arguments<'_>) {
        self.history.note(self.now_us, line);
    }

    pub fn later(&mut self, delay_us: u64, action: Action) {
        self.at(self.now_us + delay_us, action);
    }

    fn at(&mut self, at_us: u64, action: Action) {
        let own = matches!(
            action,
            Action::Start | Action::Wake { .. } | Action::Trouble
        );
        self.next_action += 1;
        self.actions.push(Reverse(Timed {
            at_us,
            number: self.next_action,
            incarnation: (!own).then_some(self.incarnation),
            action,
        }));
    }

    fn delay(&mut self, usual_us: u64) -> u64 {
        if self.seeded.once_in(40) {
            self.seeded.below(usual_us * 100)
        } else {
            self.seeded.below(usual_us)
        }
    }

    /// One event.
    pub fn step(&mut self) -> Checked {
        let next = self
            .actions
            .peek()
            .map_or(u64::MAX, |Reverse(timed)| timed.at_us);
        if let Some((at_us, core, is_shard)) = self.next_deadline()
            && at_us <= next
        {
            self.now_us = self.now_us.max(at_us);
            return self.tick(core, is_shard);
        }
        let Some(Reverse(timed)) = self.actions.pop() else {
            return Err(Failure("something is always to come".to_owned()));
        };
        self.now_us = self.now_us.max(timed.at_us);
        if timed.incarnation.is_some_and(|of| of != self.incarnation) {
            return Ok(());
        }
        self.act(timed.action)
    }

    fn next_deadline(&self) -> Option<(u64, usize, bool)> {
        let of = |(at, core): (usize, &Core)| {
            let shard = core.shard.next_deadline().map(|due| (due.0, at, true));
            let front = core.requests.next_deadline().map(|due| (due.0, at, false));
            [shard, front].into_iter().flatten().min()
        };
        self.cores.iter().enumerate().filter_map(of).min()
    }

    fn tick(&mut self, core: usize, is_shard: bool) -> Checked {
        let (at, count) = &mut self.cores[core].ticks;
        *count = if *at == self.now_us { *count + 1 } else { 0 };
        *at = self.now_us;
        must!(
            *count < TICKS_MAX,
            "a tick moves its deadline: core {core} ticks without end"
        );
        if is_shard {
            self.note(format_args!("core {core} tick"));
            return self.deliver(core, Event::Tick);
        }
        self.note(format_args!("core {core} deadline of a request"));
        loop {
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
            let Some(stepped) = requests.expire(&context, &mut carry, &mut answer) else {
                return Ok(());
            };
            self.after_step(core, stepped, head, chunks)?;
            self.carry(core, carry);
        }
    }

    fn act(&mut self, action: Action) -> Checked {
        match action {
            Action::Start => self.start(),
            Action::Hop { core, hop } => self.hop(core, hop),
            Action::Device => self.device_step(),
            Action::Done(finished) => self.done(*finished),
            Action::Recover { core, log } => self.recover(core, log),
            Action::Opened { core, log, opened } => {
                self.note(format_args!("core {core} log opened"));
                self.deliver(core, Event::Opened { log, opened })?;
                invariants::check_log(self, log)
            }
            Action::Image { core, image } => self.take_image(core, image),
            Action::Checkpoints { file } => {
                self.note(format_args!("checkpoint file {file} written"));
                self.write_checkpoints(file);
                Ok(())
            }
            Action::ToBroker { connection } => self.arrive_at_broker(connection),
            Action::ToClient { connection } => self.arrive_at_client(connection),
            Action::Wake { client } => {
                self.wake(client);
                Ok(())
            }
            Action::Trouble => self.trouble(),
            Action::Thaw => {
                self.note(format_args!("metadata log thaws"));
                self.device.metadata_frozen = false;
                Ok(())
            }
        }
    }

    fn deliver(&mut self, core: usize, event: Event) -> Checked {
        let now = self.now();
        let Core { shard, out, .. } = &mut self.cores[core];
        shard.on(now, event, out);
        self.drain(core)
    }
}
