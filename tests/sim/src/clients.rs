//! The load: producers, consumers and an operator, each on one connection at a time.
//!
//! A client wakes up, says what it sends, and is told what was answered or that its connection is lost. Idempotent producers keep Kafka's rules: at most
//! five batches of a partition unanswered, and what was not answered, or answered with an error that passes, is sent again in order.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use corelog_shards::base::ids::{TopicPartition, Uuid};
use corelog_wire::batch::{BatchBuilder, NewRecord};
use corelog_wire::compress::Codec;

use crate::load::{self, FetchParams};
use crate::oracle::{Answered, Got, Kind, Oracle, Said, Truth, What};
use crate::seeded::Seeded;
use crate::{Checked, must};

const OUT_OF_ORDER: i16 = 45;
const OFFSET_OUT_OF_RANGE: i16 = 1;
const UNKNOWN_TOPIC: [i16; 2] = [3, 100];

/// What a client sees when it acts.
pub struct Scene<'a> {
    pub wall_ms: i64,
    pub seeded: &'a mut Seeded,
    /// Topics that can be used: id and number of partitions, by name.
    pub topics: &'a BTreeMap<String, (Uuid, i32)>,
    pub truths: &'a BTreeMap<TopicPartition, Truth>,
    /// No new work: what is open is finished.
    pub calm: bool,
}

impl Scene<'_> {
    fn partitions(&self) -> Vec<(TopicPartition, String)> {
        let of = |(name, (topic_id, partitions)): (&String, &(Uuid, i32))| {
            let (name, topic_id) = (name.clone(), *topic_id);
            (0..*partitions).map(move |partition| {
                let partition = TopicPartition {
                    topic_id,
                    partition,
                };
                (partition, name.clone())
            })
        };
        self.topics.iter().flat_map(of).collect()
    }

    fn has(&self, partition: TopicPartition) -> bool {
        self.topics
            .values()
            .any(|(id, _)| *id == partition.topic_id)
    }
}

/// A request on its way out.
pub struct Sending {
    pub what: What,
    pub version: i16,
    pub frame: Bytes,
    /// Batches in it, as the oracle knows them.
    pub uids: Vec<u64>,
}

pub struct Client {
    pub connection: Option<u64>,
    correlation: i32,
    /// Requests without an answer yet.
    outstanding: usize,
    pub role: Role,
}

pub enum Role {
    Producer(Producer),
    Consumer(Consumer),
    Operator,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flight {
    Under,
    /// Has to be sent again.
    Again,
}

#[derive(Debug, Clone)]
struct Open {
    uid: u64,
    bytes: Bytes,
    sequence: i32,
    flight: Flight,
}

/// One partition as its producer sees it.
#[derive(Debug, Default)]
struct Line {
    topic: String,
    next_sequence: i32,
    open: VecDeque<Open>,
}

pub struct Producer {
    number: usize,
    idempotent: bool,
    acks: i16,
    version: i16,
    in_flight_max: usize,
    id: Option<(i64, i16)>,
    lines: BTreeMap<TopicPartition, Line>,
    batches: u64,
}

pub struct Consumer {
    params: FetchParams,
    sessions: bool,
    /// Reads everything from the start, for the last check.
    pub everything: bool,
    positions: BTreeMap<TopicPartition, (String, i64)>,
    /// What the session has been told.
    told: BTreeMap<TopicPartition, (String, i64)>,
    lost: Vec<TopicPartition>,
}

impl Client {
    fn new(role: Role) -> Client {
        Client {
            connection: None,
            correlation: 0,
            outstanding: 0,
            role,
        }
    }

    pub fn producer(number: usize, seeded: &mut Seeded) -> Client {
        let idempotent = seeded.percent(60);
        Client::new(Role::Producer(Producer {
            number,
            idempotent,
            acks: if idempotent {
                -1
            } else {
                *seeded.pick(&[0, 1, 1, -1])
            },
            version: *seeded.pick(load::PRODUCE_VERSIONS),
            in_flight_max: seeded.between(1, 5) as usize,
            id: None,
            lines: BTreeMap::new(),
            batches: 0,
        }))
    }

    pub fn consumer(seeded: &mut Seeded) -> Client {
        Client::new(Role::Consumer(Consumer {
            params: FetchParams {
                version: *seeded.pick(load::FETCH_VERSIONS),
                max_wait_ms: *seeded.pick(&[0, 20, 500, 2000]),
                min_bytes: *seeded.pick(&[0, 1, 1, 500, 10_000]),
                max_bytes: *seeded.pick(&[1, 2_000, 50_000, 1 << 20]),
                partition_max_bytes: *seeded.pick(&[1, 1_000, 20_000, 1 << 20]),
                isolation: seeded.below(2) as i8,
                session: (0, -1),
            },
            sessions: seeded.percent(60),
            everything: false,
            positions: BTreeMap::new(),
            told: BTreeMap::new(),
            lost: Vec::new(),
        }))
    }

    /// Reads everything that is there, for the last check.
    pub fn verifier() -> Client {
        Client::new(Role::Consumer(Consumer {
            params: FetchParams {
                version: 18,
                max_wait_ms: 50,
                min_bytes: 1,
                max_bytes: 1 << 20,
                partition_max_bytes: 200_000,
                isolation: 0,
                session: (0, -1),
            },
            sessions: false,
            everything: true,
            positions: BTreeMap::new(),
            told: BTreeMap::new(),
            lost: Vec::new(),
        }))
    }

    pub fn operator() -> Client {
        Client::new(Role::Operator)
    }

    /// Nothing is open. A consumer always asks for more.
    pub fn is_idle(&self) -> bool {
        match &self.role {
            Role::Producer(producer) => {
                let mut lines = producer.lines.values();
                self.outstanding == 0 && lines.all(|line| line.open.is_empty())
            }
            Role::Operator => self.outstanding == 0,
            Role::Consumer(_) => true,
        }
    }

    /// What is sent now, and in how many microseconds the client wants to act again.
    pub fn wake(&mut self, scene: &mut Scene<'_>) -> (Vec<Sending>, u64) {
        let mut sending = Vec::new();
        let (correlation, outstanding) = (&mut self.correlation, self.outstanding);
        let rest_us = match &mut self.role {
            Role::Producer(producer) => {
                producer.wake(scene, correlation, outstanding, &mut sending);
                scene.seeded.between(200, 40_000)
            }
            Role::Consumer(consumer) => {
                if outstanding == 0 {
                    sending.extend(consumer.wake(scene, correlation));
                }
                scene.seeded.between(100, 60_000)
            }
            Role::Operator => {
                if outstanding == 0 {
                    sending.extend(operate(scene, correlation));
                }
                scene.seeded.between(5_000, 400_000)
            }
        };
        self.outstanding += sending
            .iter()
            .filter(|sent| sent.what.is_answered())
            .count();
        (sending, rest_us)
    }

    pub fn answered(&mut self, answered: &Answered, scene: &mut Scene<'_>) -> Checked {
        self.outstanding -= 1;
        match (&mut self.role, &answered.said) {
            (Role::Producer(producer), Said::Produced(produced)) => {
                let What::Produce { batches, .. } = &answered.asked.what else {
                    return Ok(());
                };
                for ((partition, _, uid), (_, code, _)) in batches.iter().zip(produced) {
                    producer.produced(*partition, *uid, *code, scene)?;
                }
            }
            (Role::Producer(producer), Said::ProducerId(0, id, epoch)) => {
                producer.id = Some((*id, *epoch));
            }
            (
                Role::Consumer(consumer),
                Said::Fetched {
                    error,
                    session,
                    partitions,
                },
            ) => consumer.fetched(*error, *session, partitions),
            (Role::Consumer(consumer), Said::Offsets(offsets)) => consumer.found(offsets),
            _ => {}
        }
        Ok(())
    }

    pub fn lost_connection(&mut self) {
        self.connection = None;
        self.outstanding = 0;
        match &mut self.role {
            Role::Producer(producer) => producer.lost_connection(),
            Role::Consumer(consumer) => consumer.forget_session(),
            Role::Operator => {}
        }
    }

    /// Whether a verifier has read all of every log.
    pub fn has_read(&self, log: TopicPartition, end: i64) -> bool {
        match &self.role {
            Role::Consumer(consumer) => consumer
                .positions
                .get(&log)
                .is_some_and(|(_, position)| *position == end),
            Role::Producer(_) | Role::Operator => false,
        }
    }
}

impl What {
    pub fn is_answered(&self) -> bool {
        !matches!(self, What::Produce { acks: 0, .. })
    }
}

fn next(correlation: &mut i32) -> i32 {
    *correlation += 1;
    *correlation
}

impl Producer {
    fn wake(
        &mut self,
        scene: &mut Scene<'_>,
        correlation: &mut i32,
        outstanding: usize,
        sending: &mut Vec<Sending>,
    ) {
        self.lines.retain(|partition, _| scene.has(*partition));
        if self.idempotent && self.id.is_none() {
            if outstanding == 0 && !scene.calm {
                let (version, frame) = load::init_producer_id(next(correlation));
                sending.push(Sending {
                    what: What::InitProducerId,
                    version,
                    frame,
                    uids: Vec::new(),
                });
            }
            return;
        }
        let rounds = scene.seeded.between(1, 2) as usize;
        for _ in 0..rounds.min(self.in_flight_max.saturating_sub(outstanding)) {
            let mut chosen = self.again();
            if !scene.calm {
                self.add_new(scene, &mut chosen);
            }
            if chosen.is_empty() {
                return;
            }
            chosen.sort_by_key(|(partition, _, _)| *partition);
            let what = What::Produce {
                acks: self.acks,
                batches: chosen
                    .iter()
                    .map(|(partition, topic, bytes)| {
                        (*partition, topic.clone(), Oracle::uid(bytes))
                    })
                    .collect(),
            };
            let timeout_ms = scene.seeded.between(200, 5000) as i32;
            let number = next(correlation);
            let (version, frame) =
                load::produce(number, self.version, self.acks, timeout_ms, &chosen);
            sending.push(Sending {
                uids: chosen
                    .iter()
                    .map(|(_, _, bytes)| Oracle::uid(bytes))
                    .collect(),
                what,
                version,
                frame,
            });
        }
    }

    /// The first batch of each partition that has to be sent again.
    fn again(&mut self) -> Vec<(TopicPartition, String, Bytes)> {
        let mut chosen = Vec::new();
        for (partition, line) in &mut self.lines {
            let first = line
                .open
                .iter_mut()
                .find(|open| open.flight == Flight::Again);
            if let Some(open) = first {
                open.flight = Flight::Under;
                chosen.push((*partition, line.topic.clone(), open.bytes.clone()));
            }
        }
        chosen
    }

    fn add_new(
        &mut self,
        scene: &mut Scene<'_>,
        chosen: &mut Vec<(TopicPartition, String, Bytes)>,
    ) {
        let partitions = scene.partitions();
        if partitions.is_empty() {
            return;
        }
        for _ in 0..scene.seeded.between(1, 4) {
            let (partition, topic) = scene.seeded.pick(&partitions).clone();
            if chosen.iter().any(|(there, _, _)| *there == partition) {
                continue;
            }
            let line = self.lines.entry(partition).or_insert_with(|| Line {
                topic: topic.clone(),
                ..Line::default()
            });
            let waits = line.open.iter().any(|open| open.flight == Flight::Again);
            if waits || line.open.len() >= 5 {
                continue;
            }
            let count = *scene.seeded.pick(&[1, 1, 2, 5, 20]);
            self.batches += 1;
            let id = self.id.filter(|_| self.idempotent);
            let tag = format!("{}/{}", self.number, self.batches);
            let bytes = batch(scene, &tag, id, line.next_sequence, count);
            if self.acks != 0 {
                line.open.push_back(Open {
                    uid: Oracle::uid(&bytes),
                    bytes: bytes.clone(),
                    sequence: line.next_sequence,
                    flight: Flight::Under,
                });
            }
            line.next_sequence += count;
            chosen.push((partition, topic, bytes));
        }
    }

    fn produced(
        &mut self,
        partition: TopicPartition,
        uid: u64,
        code: i16,
        scene: &Scene<'_>,
    ) -> Checked {
        let Some(line) = self.lines.get_mut(&partition) else {
            return Ok(());
        };
        let Some(at) = line.open.iter().position(|open| open.uid == uid) else {
            return Ok(());
        };
        match code {
            0 => {
                line.open.remove(at);
            }
            code if UNKNOWN_TOPIC.contains(&code) => {
                // Whoever forgets a partition may not go on with the numbers of the same producer.
                self.id = None;
                self.lines.clear();
            }
            _ if !self.idempotent => {
                line.open.remove(at);
            }
            OUT_OF_ORDER if at == 0 => {
                let sequence = line.open[0].sequence;
                let takes = scene.truths.get(&partition).zip(self.id);
                must!(
                    !takes.is_some_and(|(truth, id)| truth.has_to_take(id, sequence, uid)),
                    "a batch that is next in its producer's order is taken (I-5): {partition:?} producer {:?} sequence {sequence}",
                    self.id
                );
                self.id = None;
                self.lines.clear();
            }
            _ => line.open[at].flight = Flight::Again,
        }
        Ok(())
    }

    fn lost_connection(&mut self) {
        for line in self.lines.values_mut() {
            if self.idempotent {
                line.open
                    .iter_mut()
                    .for_each(|open| open.flight = Flight::Again);
            } else {
                line.open.clear();
            }
        }
    }
}

fn batch(
    scene: &mut Scene<'_>,
    tag: &str,
    id: Option<(i64, i16)>,
    sequence: i32,
    count: i32,
) -> Bytes {
    let codec = *scene.seeded.pick(&[
        Codec::None,
        Codec::None,
        Codec::None,
        Codec::Lz4,
        Codec::Zstd,
        Codec::Gzip,
        Codec::Snappy,
    ]);
    // Versions before 7 may not carry zstd (P-2).
    let codec = if codec == Codec::Zstd {
        Codec::None
    } else {
        codec
    };
    let mut builder = BatchBuilder::new(codec);
    if let Some((id, epoch)) = id {
        builder = builder.producer(id, epoch, sequence);
    }
    let filler = vec![b'.'; scene.seeded.index(300)];
    for number in 0..count {
        let value = format!("{tag}/{number}");
        builder.add(&NewRecord {
            timestamp_ms: scene.wall_ms,
            key: Some(value.as_bytes()),
            value: Some(&filler),
            headers: &[],
        });
    }
    match builder.build() {
        Ok(bytes) => bytes,
        Err(error) => panic!("a small batch can be built: {error}"),
    }
}

impl Consumer {
    fn wake(&mut self, scene: &mut Scene<'_>, correlation: &mut i32) -> Option<Sending> {
        self.positions.retain(|partition, _| scene.has(*partition));
        self.lost.retain(|partition| scene.has(*partition));
        if self.everything {
            self.assign_everything(scene);
        } else if self.positions.is_empty() || scene.seeded.once_in(60) {
            self.assign(scene);
        }
        if self.positions.is_empty() {
            return None;
        }
        if !self.lost.is_empty() {
            let named = |partition: &TopicPartition| {
                let (topic, _) = self.positions.get(partition)?;
                Some((*partition, topic.clone()))
            };
            let partitions: Vec<_> = self.lost.iter().filter_map(named).collect();
            let (version, frame) = load::list_offsets(next(correlation), &partitions);
            return Some(Sending {
                what: What::ListOffsets { partitions },
                version,
                frame,
                uids: Vec::new(),
            });
        }
        Some(self.fetch(scene, correlation))
    }

    fn assign_everything(&mut self, scene: &Scene<'_>) {
        for (partition, topic) in scene.partitions() {
            self.positions.entry(partition).or_insert_with(|| {
                self.lost.push(partition);
                (topic, 0)
            });
        }
    }

    fn assign(&mut self, scene: &mut Scene<'_>) {
        let all = scene.partitions();
        let mut chosen = BTreeMap::new();
        for _ in 0..scene.seeded.between(1, 6).min(all.len() as u64) {
            let (partition, topic) = scene.seeded.pick(&all).clone();
            let before = self
                .positions
                .get(&partition)
                .map(|(_, position)| *position);
            let position = before.unwrap_or_else(|| {
                let end = scene.truths.get(&partition).map_or(0, |truth| truth.end);
                if scene.seeded.percent(50) {
                    0
                } else {
                    scene.seeded.below(end as u64 + 2) as i64
                }
            });
            chosen.insert(partition, (topic, position));
        }
        self.lost.retain(|partition| chosen.contains_key(partition));
        self.positions = chosen;
    }

    fn fetch(&mut self, scene: &mut Scene<'_>, correlation: &mut i32) -> Sending {
        if self.sessions && self.params.session.1 < 0 {
            self.params.session = (0, 0);
            self.told.clear();
        }
        if scene.seeded.once_in(30) {
            self.forget_session();
        }
        let full = self.params.session.1 <= 0;
        let known = |partition: &TopicPartition, position: i64| {
            let told = self.told.get(partition);
            !full && told.is_some_and(|(_, told)| *told == position)
        };
        let all = self.positions.iter();
        let changed: Vec<_> = all
            .filter(|(partition, (_, position))| !known(partition, *position))
            .map(|(partition, (topic, position))| (*partition, topic.clone(), *position))
            .collect();
        let gone = self.told.iter();
        let forgotten: Vec<_> = gone
            .filter(|(partition, _)| !full && !self.positions.contains_key(partition))
            .map(|(partition, (topic, _))| (*partition, topic.clone()))
            .collect();
        self.told.clone_from(&self.positions);
        let positions = self.positions.iter();
        let positions = positions
            .map(|(partition, (topic, position))| (*partition, topic.clone(), *position))
            .collect();
        let (version, frame) = load::fetch(next(correlation), &self.params, &changed, &forgotten);
        Sending {
            what: What::Fetch { positions },
            version,
            frame,
            uids: Vec::new(),
        }
    }

    fn forget_session(&mut self) {
        self.params.session = if self.sessions { (0, 0) } else { (0, -1) };
        self.told.clear();
    }

    fn fetched(&mut self, error: i16, session: i32, partitions: &[Got]) {
        if error != 0 {
            self.forget_session();
            return;
        }
        if self.params.session.1 >= 0 {
            if session == 0 {
                self.forget_session();
            } else {
                self.params.session = (session, self.params.session.1 + 1);
            }
        }
        for got in partitions {
            match got.error {
                0 => {
                    if let Some(after) = Oracle::after(&got.records)
                        && let Some((_, position)) = self.positions.get_mut(&got.partition)
                    {
                        *position = after;
                    }
                }
                OFFSET_OUT_OF_RANGE if self.lost.contains(&got.partition) => {}
                OFFSET_OUT_OF_RANGE => self.lost.push(got.partition),
                code if UNKNOWN_TOPIC.contains(&code) => {
                    self.positions.remove(&got.partition);
                }
                _ => {}
            }
        }
    }

    fn found(&mut self, offsets: &[(TopicPartition, i16, i64)]) {
        for (partition, code, offset) in offsets {
            if *code == 0
                && let Some((_, position)) = self.positions.get_mut(partition)
            {
                *position = *offset;
                self.lost.retain(|lost| lost != partition);
            }
        }
    }
}

/// Topics come and go, records are deleted.
fn operate(scene: &mut Scene<'_>, correlation: &mut i32) -> Option<Sending> {
    if scene.calm {
        return None;
    }
    let sending = |what, (version, frame)| {
        Some(Sending {
            what,
            version,
            frame,
            uids: Vec::new(),
        })
    };
    let wish = scene.seeded.below(100);
    if scene.topics.len() < 3 || (wish < 15 && scene.topics.len() < 6) {
        let kind = *scene.seeded.pick(&Kind::ALL);
        let name = format!("{}{}", kind.prefix(), scene.seeded.below(3));
        let partitions = scene.seeded.between(1, 4) as i32;
        let number = next(correlation);
        let frame = load::create_topic(number, &name, partitions);
        return sending(What::CreateTopic { name }, frame);
    }
    let names: Vec<_> = scene.topics.iter().collect();
    let (name, (id, _)) = *scene.seeded.pick(&names);
    if wish < 22 {
        let what = What::DeleteTopic {
            name: name.clone(),
            id: *id,
        };
        return sending(what, load::delete_topic(next(correlation), *id));
    }
    if wish < 45 {
        let partitions = scene.partitions();
        let (partition, topic) = scene.seeded.pick(&partitions).clone();
        let end = scene.truths.get(&partition)?.high_watermark_seen;
        let offset = scene.seeded.below(end as u64 + 1) as i64;
        let number = next(correlation);
        let frame = load::delete_records(number, &topic, partition.partition, offset);
        let what = What::DeleteRecords {
            partition,
            topic,
            offset,
        };
        return sending(what, frame);
    }
    None
}
