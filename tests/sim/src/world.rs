//! The world: everything that can happen, in an order that the seed decides.
//!
//! Time jumps from one thing to the next. Things between the same two parties keep their order (a ring, a connection, effects on a file), all others
//! come in any order. After each event the outbox of the shard is carried out effect by effect, and between any two effects the process may be killed
//! or the power may go.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use corelog::api::Answer;
use corelog::engine::reply_order::{Outcome, Pieces};
use corelog::engine::requests::{Carry, Origin, Progress, Stepped, front_of};
use corelog_shards::base::ids::{FileKind, METADATA_LOG, ReplyTo, ShardId, TopicPartition, Uuid};
use corelog_shards::base::time::{Mono, Now};
use corelog_shards::effect::{Effect, Message};
use corelog_shards::event::Event;
use corelog_shards::log::{Log, OpenFailure, Shutdown};
use corelog_shards::metadata::Image;
use corelog_shards::part::{Part, Reply};

use crate::clients::{Client, Scene, Sending};
use crate::device::{Device, Finished, Lie};
use crate::history::History;
use crate::invariants;
use crate::load;
use crate::net::{self, Net};
use crate::node::{Core, Served, Surroundings};
use crate::oracle::{Answered, Asked, Crash, Oracle};
use crate::seeded::Seeded;
use crate::shown::{Shown, part_name, reply_name};
use crate::start::{Checkpoints, note};
use crate::{Checked, Failure, must};

/// Midnight of some day: the wall clock of the beginning.
const WALL_MS: i64 = 1_700_000_000_000;
/// No request may be unanswered for longer, whatever the disk does: the longest timeout of a client is 5 s, the longest standstill 3 s.
const UNANSWERED_US_MAX: u64 = 40_000_000;
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
        let producers = seeded.between(2, 5) as usize;
        let consumers = seeded.between(2, 4) as usize;
        let mut clients = vec![Client::operator()];
        clients.extend((0..producers).map(|number| Client::producer(number, &mut seeded)));
        clients.extend((0..consumers).map(|_| Client::consumer(&mut seeded)));
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
            oracle: Oracle::default(),
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

    /// Carries out the wishes of a shard, one after the other.
    pub fn drain(&mut self, core: usize) -> Checked {
        let incarnation = self.incarnation;
        loop {
            let effects: Vec<Effect> = match self.cores.get_mut(core) {
                Some(core) => core.out.drain().collect(),
                None => return Ok(()),
            };
            if effects.is_empty() {
                return Ok(());
            }
            for effect in effects {
                self.carry_out(core, effect)?;
                self.count_down()?;
                if self.incarnation != incarnation {
                    return Ok(());
                }
            }
        }
    }

    fn count_down(&mut self) -> Checked {
        if let Some((left, crash)) = &mut self.crash_in {
            if *left == 0 {
                let crash = *crash;
                return self.crash(crash);
            }
            *left -= 1;
        }
        Ok(())
    }

    fn carry_out(&mut self, core: usize, effect: Effect) -> Checked {
        self.note(format_args!("core {core} wishes {}", Shown(&effect)));
        match effect {
            Effect::Reply { to, reply } => self.reply(core, to, reply),
            Effect::Send { to, message } => {
                let from = ShardId(core as u16);
                self.send_hop(core, usize::from(to.0), Hop::Message { from, message });
                Ok(())
            }
            Effect::Publish(image) => self.publish(image),
            Effect::Checkpoint(lines) => {
                for line in &lines {
                    if let Some((root, name)) = self.device.places.get(&line.log) {
                        note(&mut self.checkpoints[usize::from(*root)], name, line);
                    }
                }
                if !self.checkpoints_due {
                    self.checkpoints_due = true;
                    let delay = self.seeded.below(5_000_000);
                    self.later(delay, Action::Checkpoints { file: 0 });
                }
                Ok(())
            }
            Effect::Stopped => {
                self.cores[core].stopped = true;
                if self.cores.iter().all(|core| core.stopped) {
                    return self.stopped();
                }
                Ok(())
            }
            Effect::LogDirFailed { log } => self.dir_failed(log),
            Effect::OpenLog { log, .. } => {
                let delay = self.seeded.below(300_000);
                self.later(delay, Action::Recover { core, log });
                Ok(())
            }
            effect => self.give_device(core, effect),
        }
    }

    fn give_device(&mut self, core: usize, effect: Effect) -> Checked {
        match &effect {
            Effect::Write {
                file,
                position,
                chunks,
                ..
            } if file.kind == FileKind::Log && file.log != METADATA_LOG => {
                let mut bytes = BytesMut::new();
                chunks
                    .iter()
                    .for_each(|chunk| bytes.extend_from_slice(chunk));
                // A write of nothing makes the file of a new segment.
                if !bytes.is_empty() {
                    let topic = self.topic_of(file.log);
                    self.oracle
                        .appended(&topic, *file, *position, &bytes.freeze())?;
                }
            }
            Effect::CreateLog { log, .. } => self.oracle.opened(*log, 0, 0)?,
            Effect::DeleteLog { log, .. } => {
                if let Some((root, name)) = self.device.places.get(log)
                    && let Some(key) = crate::start::parse_name(name)
                {
                    for lines in &mut self.checkpoints[usize::from(*root)] {
                        lines.remove(&key);
                    }
                }
            }
            _ => {}
        }
        must!(
            self.device.take(core as u16, effect),
            "every effect is carried out"
        );
        let delay = self.delay(200);
        let at = self.stalled_until_us.max(self.now_us) + delay;
        self.at(at, Action::Device);
        Ok(())
    }

    fn topic_of(&self, log: TopicPartition) -> String {
        let image = self.image.as_ref();
        let topic = image.and_then(|image| image.topic_by_id(log.topic_id));
        topic.map_or_else(String::new, |topic| topic.name.as_str().to_owned())
    }

    fn device_step(&mut self) -> Checked {
        if self.device.pending() == 0 {
            return Ok(());
        }
        if self.now_us < self.stalled_until_us {
            self.at(self.stalled_until_us, Action::Device);
            return Ok(());
        }
        let wall_ms = self.now().wall_ms;
        match self.device.step(&mut self.seeded, wall_ms) {
            Some(finished) => {
                self.note(format_args!(
                    "disk {} of {:?} {}",
                    finished.op.seq as i64,
                    finished.op.slot as i32,
                    if finished.outcome.is_ok() {
                        "happens"
                    } else {
                        "FAILS"
                    }
                ));
                let delay = self.delay(100);
                self.later(delay, Action::Done(Box::new(finished)));
            }
            None => self.later(1_000, Action::Device),
        }
        self.count_down()
    }

    fn done(&mut self, finished: Finished) -> Checked {
        let Finished {
            shard,
            op,
            file,
            outcome,
            change,
        } = finished;
        self.note(format_args!(
            "core {shard} is told {} of {}",
            op.seq as i64, op.slot as i32
        ));
        if let Some((path, name, change)) = change {
            self.device.disk.told(&path, &name, change);
        }
        self.deliver(usize::from(shard), Event::Done { op, outcome })?;
        match file {
            Some(file) if self.up => invariants::check_log(self, file.log),
            _ => Ok(()),
        }
    }

    fn dir_failed(&mut self, log: TopicPartition) -> Checked {
        let root = self.device.places.get(&log).map_or(0, |path| path.0);
        if root == 0 {
            // The metadata directory: the broker has to stop.
            return self.crash(Crash::Kill);
        }
        let logs: Vec<TopicPartition> = self
            .device
            .places
            .iter()
            .filter(|(_, path)| path.0 == root)
            .map(|(log, _)| *log)
            .collect();
        for core in 0..self.cores.len() {
            self.cores[core].has_failed = true;
            let logs = logs.clone();
            self.send_hop(core, core, Hop::Offline { logs });
        }
        Ok(())
    }

    fn publish(&mut self, image: Arc<Image>) -> Checked {
        self.image = Some(Arc::clone(&image));
        for topic in image.sorted_topics() {
            self.oracle.names(topic.name.as_str(), topic.id);
        }
        if !self.published {
            self.published = true;
            self.put_strays_aside()?;
        }
        for core in 0..self.cores.len() {
            let image = Arc::clone(&image);
            let delay = self.delay(300);
            self.later(delay, Action::Image { core, image });
        }
        Ok(())
    }

    fn take_image(&mut self, core: usize, image: Arc<Image>) -> Checked {
        if self.cores[core].image.version >= image.version && self.cores[core].has_applied {
            return Ok(());
        }
        self.note(format_args!("core {core} image {}", image.version));
        self.cores[core].image = Arc::clone(&image);
        self.cores[core].has_applied = true;
        let incarnation = self.incarnation;
        self.deliver(core, Event::Image(Arc::clone(&image)))?;
        if self.incarnation != incarnation {
            return Ok(());
        }
        invariants::one_owner(self)?;
        if self
            .cores
            .iter()
            .all(|core| core.image.version >= image.version && core.has_applied)
        {
            self.accepting = true;
            let topics = image.sorted_topics();
            let entry = |topic: &&Arc<corelog_shards::metadata::Topic>| {
                let partitions = topic.partitions.len() as i32;
                (topic.name.as_str().to_owned(), (topic.id, partitions))
            };
            self.topics = topics.iter().map(entry).collect();
        }
        Ok(())
    }

    /// Everything between the same two cores keeps its order.
    fn send_hop(&mut self, from: usize, to: usize, hop: Hop) {
        let delay = if from == to { 0 } else { self.delay(30) };
        let channel = self.channels.entry((from as u16, to as u16)).or_default();
        let at = (self.now_us + delay).max(*channel);
        *channel = at;
        self.at(at, Action::Hop { core: to, hop });
    }

    fn hop(&mut self, core: usize, hop: Hop) -> Checked {
        match hop {
            Hop::Part { to, part } => {
                self.note(format_args!("core {core} part {}", part_name(&part)));
                let watch = matches!(&part, Part::FetchPeek(peek) if peek.watch);
                let fresh = self.parts.insert(to, watch).is_none();
                must!(fresh, "a part has an address of its own");
                self.deliver(core, Event::Part { to, part })
            }
            Hop::Cancel { to } => {
                self.note(format_args!("core {core} cancel"));
                self.parts.remove(&to);
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
    fn reply(&mut self, core: usize, to: ReplyTo, reply: Reply) -> Checked {
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
        self.send_hop(core, usize::from(front_of(to)), Hop::Reply { to, reply });
        Ok(())
    }

    fn carry(&mut self, core: usize, carry: Vec<Carry>) {
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
    fn advance(&mut self, core: usize, connection: u64) -> Checked {
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

    fn after_step(
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

    /// A response leaves the broker: here it has to be true.
    fn emit(&mut self, connection: u64, pieces: Pieces) -> Checked {
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

    fn arrive_at_broker(&mut self, connection: u64) -> Checked {
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

    fn arrive_at_client(&mut self, connection: u64) -> Checked {
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
        };
        (&mut self.clients[client], scene)
    }

    fn wake(&mut self, client: usize) {
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
        self.later(rest_us.max(1), Action::Wake { client });
        for sent in sending {
            if let Some(connection) = connection {
                self.send(client, connection, sent);
            }
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

    /// Asks all shards to stop cleanly; as in the engine, not before every core has had its first image, which names the logs to be recovered.
    pub fn stop(&mut self) {
        if !self.accepting || self.stopping {
            return;
        }
        self.note(format_args!("STOP is asked for"));
        self.stopping = true;
        for core in 0..self.cores.len() {
            self.send_hop(core, core, Hop::Stop);
        }
    }

    fn trouble(&mut self) -> Checked {
        let delay = self.seeded.between(20_000, 1_500_000);
        self.later(delay, Action::Trouble);
        for there in self.net.connections.values() {
            let oldest = there
                .asked
                .front()
                .map_or(self.now_us, |asked| asked.sent_us);
            must!(
                self.now_us - oldest <= UNANSWERED_US_MAX,
                "no reply is lost unless its connection is: {:?}",
                there.asked.front()
            );
        }
        if !self.faults || !self.up {
            return Ok(());
        }
        match self.seeded.below(100) {
            0..30 => {
                let open: Vec<u64> = self.net.connections.keys().copied().collect();
                if !open.is_empty() {
                    let connection = *self.seeded.pick(&open);
                    self.note(format_args!("connection {connection} is lost"));
                    self.close(connection);
                }
            }
            30..45 => {
                let until = self.now_us + self.seeded.below(3_000_000);
                self.note(format_args!("the disk stands still until {until}"));
                self.stalled_until_us = until;
            }
            45..55 => {
                self.note(format_args!("metadata log freezes"));
                self.device.metadata_frozen = true;
                let delay = self.seeded.below(3_000_000);
                self.later(delay, Action::Thaw);
            }
            55..85 if self.crash_in.is_none() => {
                let crash = self.any_crash();
                self.crash_in = Some((self.seeded.below(1_500), crash));
            }
            85..93 => self.stop(),
            _ => {}
        }
        Ok(())
    }
}
