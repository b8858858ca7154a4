//! A cluster of one shard or several on disks in memory, driven by hand: for the tests of this crate and, with the feature `testing`, of others.
//!
//! [`TestShard`] is the smallest engine there is: it carries out every effect at once, unless its disk is held or told to fail. [`TestCluster`] makes
//! metadata images out of records, as the controller does. Not here: directories, real files, recovery.
#![allow(clippy::expect_used, reason = "a test that can't go on has failed")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use corelog_wire::batch::{BatchBuilder, NewRecord};
use corelog_wire::compress::Codec;
use corelog_wire::records::metadata::{
    ConfigRecord, MetadataRecord, PartitionChangeRecord, PartitionRecord, RemoveTopicRecord,
    TopicRecord,
};

use crate::base::ids::{FileId, Op, ReplyTo, ShardId, Text, TopicPartition, Uuid};
use crate::base::time::{Mono, Now};
use crate::effect::{Effect, Outbox, PartitionCheckpoint};
use crate::event::{DiskFailure, Done, Event};
use crate::log::Log;
use crate::metadata::{Identity, Image, Replay};
use crate::part::{Part, PartitionRef, Reply};
use crate::shard::{Shard, ShardConfig};

/// The node of every test.
pub const NODE: i32 = 1;

/// Metadata, one change after the other.
pub struct TestCluster {
    replay: Replay,
    next_topic: u128,
}

impl TestCluster {
    pub fn new(shards: u16) -> TestCluster {
        let identity = Identity {
            cluster_id: Text::from_static("test"),
            node_id: NODE,
            shards,
            statics: Arc::default(),
        };
        TestCluster {
            replay: Replay::new(&identity),
            next_topic: 1000,
        }
    }

    pub fn image(&self) -> Arc<Image> {
        Arc::new(self.replay.shown().clone())
    }

    fn change(&mut self, records: Vec<MetadataRecord>) {
        self.replay.begin_version();
        for record in records {
            let offset = self.replay.working().offset + 1;
            self.replay
                .apply(offset, &record)
                .expect("the record is valid");
        }
    }

    /// A topic with settings of its own.
    pub fn create_topic(
        &mut self,
        name: &'static str,
        partitions: i32,
        settings: &[(&'static str, &'static str)],
    ) -> Uuid {
        let topic_id = Uuid(self.next_topic.to_be_bytes());
        self.next_topic += 1;
        let mut records = vec![MetadataRecord::Topic(TopicRecord {
            name: Text::from_static(name),
            topic_id,
        })];
        records.extend(settings.iter().map(|(key, value)| config(name, key, value)));
        records.extend((0..partitions).map(|partition_id| {
            MetadataRecord::Partition(PartitionRecord {
                partition_id,
                topic_id,
                replicas: vec![NODE],
                isr: vec![NODE],
                leader: NODE,
                leader_epoch: 0,
                partition_epoch: 0,
                ..PartitionRecord::default()
            })
        }));
        self.change(records);
        topic_id
    }

    pub fn set_config(&mut self, topic: &'static str, key: &'static str, value: &'static str) {
        self.change(vec![config(topic, key, value)]);
    }

    pub fn delete_topic(&mut self, topic_id: Uuid) {
        self.change(vec![MetadataRecord::RemoveTopic(RemoveTopicRecord {
            topic_id,
        })]);
    }

    /// A new leader epoch, as after an election.
    pub fn elect(&mut self, id: TopicPartition) {
        let change = PartitionChangeRecord {
            partition_id: id.partition,
            topic_id: id.topic_id,
            leader: NODE,
            ..PartitionChangeRecord::default()
        };
        self.change(vec![MetadataRecord::PartitionChange(change)]);
    }

    /// How a part names a partition.
    pub fn partition(&self, topic: Uuid, partition: i32) -> PartitionRef {
        let id = TopicPartition {
            topic_id: topic,
            partition,
        };
        let since = self
            .replay
            .shown()
            .partition(id)
            .expect("the partition exists")
            .since;
        PartitionRef { id, since }
    }
}

fn config(topic: &'static str, key: &'static str, value: &'static str) -> MetadataRecord {
    MetadataRecord::Config(ConfigRecord {
        resource_type: 2,
        resource_name: Text::from_static(topic),
        name: Text::from_static(key),
        value: Some(Text::from_static(value)),
    })
}

/// One shard and its engine.
pub struct TestShard {
    pub shard: Shard,
    pub now: Now,
    /// File effects stay here until [`TestShard::release`].
    pub held: VecDeque<Effect>,
    pub hold: Hold,
    pub files: BTreeMap<FileId, Vec<u8>>,
    /// Every effect on a file fails from now on.
    pub failing: bool,
    pub replies: Vec<(ReplyTo, Reply)>,
    pub applied: Vec<u64>,
    pub checkpoints: Vec<PartitionCheckpoint>,
    pub failed_dirs: Vec<TopicPartition>,
    pub opened: Vec<TopicPartition>,
    pub deleted: Vec<TopicPartition>,
    pub stopped: bool,
    next_reply: u64,
    out: Outbox,
}

/// What the disk does not carry out for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    Nothing,
    Everything,
    Syncs,
}

impl TestShard {
    pub fn new() -> TestShard {
        TestShard::with(|_| ())
    }

    pub fn with(change: impl FnOnce(&mut ShardConfig)) -> TestShard {
        let mut config = ShardConfig {
            id: ShardId(0),
            shards: 1,
            node_id: NODE,
            tail_cache_bytes: 1 << 20,
            existing: rustc_hash::FxHashSet::default(),
            parked_max: 8,
            fetch_session_slots: 100,
            retention_check_interval_ms: 300_000,
            initial_task_delay_ms: 30_000,
            seed: 1,
            controller: None,
        };
        change(&mut config);
        TestShard {
            shard: Shard::new(config),
            now: Now {
                mono: Mono(1_000_000),
                wall_ms: 1_700_000_000_000,
            },
            held: VecDeque::new(),
            hold: Hold::Nothing,
            files: BTreeMap::new(),
            failing: false,
            replies: Vec::new(),
            applied: Vec::new(),
            checkpoints: Vec::new(),
            failed_dirs: Vec::new(),
            opened: Vec::new(),
            deleted: Vec::new(),
            stopped: false,
            next_reply: 0,
            out: Outbox::new(),
        }
    }

    /// Delivers one fact and carries out what it brings about.
    pub fn on(&mut self, event: Event) {
        self.shard.on(self.now, event, &mut self.out);
        self.run();
    }

    pub fn image(&mut self, cluster: &TestCluster) {
        self.on(Event::Image(cluster.image()));
    }

    pub fn part(&mut self, part: Part) -> ReplyTo {
        let to = ReplyTo(self.next_reply);
        self.next_reply += 1;
        self.on(Event::Part { to, part });
        to
    }

    /// The first reply to `to` that was not taken yet.
    pub fn reply(&mut self, to: ReplyTo) -> Option<Reply> {
        let at = self.replies.iter().position(|(there, _)| *there == to)?;
        Some(self.replies.remove(at).1)
    }

    /// Asks and expects an answer at once.
    pub fn ask(&mut self, part: Part) -> Reply {
        let to = self.part(part);
        self.reply(to).expect("the part is answered at once")
    }

    /// Lets time pass, with every tick that becomes due.
    pub fn pass_ms(&mut self, ms: u64) {
        let end = self.now.mono.after_ms(ms);
        let wall_end_ms = self.now.wall_ms + ms as i64;
        while let Some(at) = self.shard.next_deadline().filter(|at| *at <= end) {
            let at = at.max(self.now.mono);
            self.now.wall_ms += at.ms_since(self.now.mono) as i64;
            self.now.mono = at;
            self.on(Event::Tick);
        }
        self.now = Now {
            mono: end,
            wall_ms: wall_end_ms,
        };
    }

    /// Carries out what was held; `hold` applies to what comes of it.
    pub fn release(&mut self) {
        for effect in std::mem::take(&mut self.held) {
            self.carry_out(effect);
        }
        self.run();
    }

    fn run(&mut self) {
        loop {
            let effects: Vec<Effect> = self.out.drain().collect();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                self.take(effect);
            }
        }
    }

    fn take(&mut self, effect: Effect) {
        match effect {
            Effect::Reply { to, reply } => self.replies.push((to, reply)),
            Effect::Send { message, .. } => {
                let crate::effect::Message::Applied { version } = message;
                self.applied.push(version);
            }
            Effect::OpenLog { log, .. } => self.opened.push(log),
            Effect::Checkpoint(lines) => self.checkpoints.extend(lines),
            Effect::LogDirFailed { log } => self.failed_dirs.push(log),
            Effect::Stopped => self.stopped = true,
            Effect::Publish(image) => self.shard.on(self.now, Event::Image(image), &mut self.out),
            effect if self.holds(&effect) => self.held.push_back(effect),
            effect => self.carry_out(effect),
        }
    }

    fn holds(&self, effect: &Effect) -> bool {
        match self.hold {
            Hold::Nothing => false,
            Hold::Everything => true,
            Hold::Syncs => matches!(effect, Effect::Sync { .. }),
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        let (op, done) = self.disk(effect);
        let outcome = if self.failing {
            Err(DiskFailure)
        } else {
            Ok(done)
        };
        self.shard
            .on(self.now, Event::Done { op, outcome }, &mut self.out);
    }

    fn disk(&mut self, effect: Effect) -> (Op, Done) {
        match effect {
            Effect::Write {
                op,
                file,
                position,
                chunks,
            } => {
                let data = self.files.entry(file).or_default();
                let bytes: Vec<u8> = chunks.iter().flatten().copied().collect();
                let end = position as usize + bytes.len();
                data.resize(data.len().max(end), 0);
                data[position as usize..end].copy_from_slice(&bytes);
                (op, Done::Written)
            }
            Effect::Sync { op, .. } => (op, Done::Synced),
            Effect::Read {
                op,
                file,
                position,
                len,
            } => {
                let data = &self.files[&file];
                let end = data.len().min(position as usize + len as usize);
                (
                    op,
                    Done::Bytes(Bytes::copy_from_slice(
                        &data[(position as usize).min(end)..end],
                    )),
                )
            }
            Effect::Map { op, file } => {
                (op, Done::Bytes(Bytes::copy_from_slice(&self.files[&file])))
            }
            Effect::Seal { op, file, len } | Effect::Truncate { op, file, len } => {
                self.files.entry(file).or_default().resize(len as usize, 0);
                (op, Done::Written)
            }
            Effect::Replace { op, file, content } => {
                self.files.insert(file, content.to_vec());
                (op, Done::Written)
            }
            Effect::Delete { op, files, .. } => {
                for file in files {
                    self.files.remove(&file);
                }
                (op, Done::Written)
            }
            Effect::CreateLog { op, .. } => (op, Done::Written),
            Effect::DeleteLog { op, log, .. } => {
                self.files.retain(|file, _| file.log != log);
                self.deleted.push(log);
                (op, Done::Written)
            }
            Effect::Reply { .. }
            | Effect::Send { .. }
            | Effect::OpenLog { .. }
            | Effect::Publish(_)
            | Effect::Checkpoint(_)
            | Effect::LogDirFailed { .. }
            | Effect::Stopped => unreachable!("not an effect on a disk"),
        }
    }

    /// The log that an `OpenLog` asked for, as if an empty directory had been recovered.
    pub fn opened_empty(&mut self, id: TopicPartition) {
        let log = Log::create(id, 0, Arc::default(), self.now);
        self.on(Event::Opened {
            log: id,
            opened: Ok(Box::new(log)),
        });
    }
}

impl Default for TestShard {
    fn default() -> TestShard {
        TestShard::new()
    }
}

/// A batch of `values` with a key each, as a producer without an id sends it.
pub fn batch(values: &[&str]) -> Bytes {
    build(BatchBuilder::new(Codec::None), values)
}

/// The same from an idempotent producer.
pub fn batch_of(producer: (i64, i16), base_sequence: i32, values: &[&str]) -> Bytes {
    build(
        BatchBuilder::new(Codec::None).producer(producer.0, producer.1, base_sequence),
        values,
    )
}

/// What a builder makes of the values.
pub fn build(mut builder: BatchBuilder, values: &[&str]) -> Bytes {
    for value in values {
        let record = NewRecord {
            timestamp_ms: 1_700_000_000_000,
            key: Some(b"key"),
            value: Some(value.as_bytes()),
            headers: &[],
        };
        builder.add(&record);
    }
    builder.build().expect("the batch is small")
}
