//! A consumer that assigns itself partitions, with or without a fetch session.

use std::collections::BTreeMap;

use corelog_shards::base::ids::TopicPartition;

use super::{Scene, Sending, UNKNOWN_TOPIC, next};
use crate::load::{self, FetchParams};
use crate::oracle::{Got, Oracle, What};
use crate::seeded::Seeded;

const OFFSET_OUT_OF_RANGE: i16 = 1;

pub struct Consumer {
    params: FetchParams,
    sessions: bool,
    /// Reads everything from the start, for the last check.
    everything: bool,
    positions: BTreeMap<TopicPartition, (String, i64)>,
    /// What the session has been told.
    told: BTreeMap<TopicPartition, (String, i64)>,
    lost: Vec<TopicPartition>,
}

impl Consumer {
    fn with(params: FetchParams, sessions: bool, everything: bool) -> Consumer {
        Consumer {
            params,
            sessions,
            everything,
            positions: BTreeMap::new(),
            told: BTreeMap::new(),
            lost: Vec::new(),
        }
    }

    pub fn new(seeded: &mut Seeded) -> Consumer {
        let params = FetchParams {
            version: *seeded.pick(load::FETCH_VERSIONS),
            max_wait_ms: *seeded.pick(&[0, 20, 500, 2000]),
            min_bytes: *seeded.pick(&[0, 1, 1, 500, 10_000]),
            max_bytes: *seeded.pick(&[1, 2_000, 50_000, 1 << 20]),
            partition_max_bytes: *seeded.pick(&[1, 1_000, 20_000, 1 << 20]),
            isolation: seeded.below(2) as i8,
            session: (0, -1),
        };
        Consumer::with(params, seeded.percent(60), false)
    }

    pub fn verifier() -> Consumer {
        let params = FetchParams {
            version: 18,
            max_wait_ms: 50,
            min_bytes: 1,
            max_bytes: 1 << 20,
            partition_max_bytes: 200_000,
            isolation: 0,
            session: (0, -1),
        };
        Consumer::with(params, false, true)
    }

    /// Whether it has read the log up to `end`.
    pub(super) fn is_at(&self, log: TopicPartition, end: i64) -> bool {
        let position = self.positions.get(&log);
        position.is_some_and(|(_, position)| *position == end)
    }

    pub(super) fn wake(&mut self, scene: &mut Scene<'_>, correlation: &mut i32) -> Option<Sending> {
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
        for (partition, topic) in scene.all_partitions() {
            self.positions.entry(partition).or_insert_with(|| {
                self.lost.push(partition);
                (topic, 0)
            });
        }
    }

    fn assign(&mut self, scene: &mut Scene<'_>) {
        let all = scene.all_partitions();
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

    pub(super) fn forget_session(&mut self) {
        self.params.session = if self.sessions { (0, 0) } else { (0, -1) };
        self.told.clear();
    }

    pub(super) fn fetched(&mut self, error: i16, session: i32, partitions: &[Got]) {
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

    pub(super) fn found(&mut self, offsets: &[(TopicPartition, i16, i64)]) {
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
