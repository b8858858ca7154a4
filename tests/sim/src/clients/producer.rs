//! A producer. An idempotent one keeps Kafka's rules: at most five batches of a partition unanswered, and what was not answered, or answered with an
//! error that passes, is sent again in order.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use corelog_shards::base::ids::TopicPartition;
use corelog_wire::batch::{BatchBuilder, NewRecord};
use corelog_wire::compress::Codec;

use super::{Scene, Sending, UNKNOWN_TOPIC, next};
use crate::load;
use crate::oracle::{Oracle, What};
use crate::seeded::Seeded;
use crate::{Checked, must};

const OUT_OF_ORDER: i16 = 45;

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

impl Producer {
    pub fn new(number: usize, seeded: &mut Seeded) -> Producer {
        let idempotent = seeded.percent(60);
        Producer {
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
        }
    }

    pub(super) fn has_no_open(&self) -> bool {
        self.lines.values().all(|line| line.open.is_empty())
    }

    pub(super) fn is_given(&mut self, id: i64, epoch: i16) {
        self.id = Some((id, epoch));
    }

    pub(super) fn wake(
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

    pub(super) fn produced(
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

    pub(super) fn lost_connection(&mut self) {
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
