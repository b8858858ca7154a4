//! Groups on a log in memory that commits at once, late, or never.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use crate::base::error_code::ErrorCode;
use crate::base::ids::{ReplyTo, ShardId, Uuid};
use crate::base::time::{Mono, Now};
use crate::coordinator::Ask;
use crate::coordinator::replay::{Record, records_of};
use crate::effect::{Chunks, Effect, Outbox};
use crate::group::record::{Loaded, read};
use crate::group::{Groups, Reply, Request};
use crate::part::{self, PartitionRef};
use crate::testing::TestCluster;

pub(super) struct Rig {
    pub(super) groups: Groups,
    pub(super) now: Now,
    pub(super) cluster: TestCluster,
    pub(super) home: PartitionRef,
    /// Batches of the log.
    pub(super) log: Vec<Bytes>,
    /// Appends that are neither committed nor failed.
    pub(super) under_way: VecDeque<u64>,
    pub(super) holds: bool,
    pub(super) replies: Vec<(ReplyTo, Reply)>,
    next: u64,
    seed: u64,
}

impl Rig {
    pub(super) fn new() -> Rig {
        let mut cluster = TestCluster::new(1);
        let topic = cluster.create_topic("__consumer_offsets", 1, &[]);
        cluster.create_topic("t", 4, &[]);
        let home = cluster.partition(topic, 0);
        let mut rig = Rig {
            groups: Groups::new(ShardId(0), 1),
            now: Now {
                mono: Mono(1_000_000),
                wall_ms: 1_000_000,
            },
            cluster,
            home,
            log: Vec::new(),
            under_way: VecDeque::new(),
            holds: false,
            replies: Vec::new(),
            next: 0,
            seed: 1,
        };
        rig.start();
        rig
    }

    /// The broker starts anew on the same log.
    pub(super) fn restart(&mut self) {
        self.seed += 1;
        self.groups = Groups::new(ShardId(0), self.seed);
        self.under_way.clear();
        self.start();
    }

    fn start(&mut self) {
        let mut out = Outbox::new();
        let image = self.cluster.image();
        self.groups.on_image(self.now, None, &image, &mut out);
        self.settle(&mut out);
    }

    pub(super) fn delete_topic(&mut self, id: Uuid) {
        let old = self.cluster.image();
        self.cluster.delete_topic(id);
        let mut out = Outbox::new();
        self.groups
            .on_image(self.now, Some(&old), &self.cluster.image(), &mut out);
        self.settle(&mut out);
    }

    /// Where the next request's answer will go.
    pub(super) fn next(&self) -> ReplyTo {
        ReplyTo(self.next)
    }

    pub(super) fn ask(&mut self, request: &Request) -> ReplyTo {
        let to = ReplyTo(self.next);
        self.next += 1;
        let mut out = Outbox::new();
        self.groups.on_request(self.now, to, request, &mut out);
        self.settle(&mut out);
        to
    }

    /// Lets time pass, with every tick that becomes due.
    pub(super) fn pass_ms(&mut self, ms: u64) {
        let end = self.now.mono.after_ms(ms);
        while let Some(at) = self.groups.next_deadline().filter(|at| *at <= end) {
            let at = at.max(self.now.mono);
            self.now.wall_ms += at.ms_since(self.now.mono) as i64;
            self.now.mono = at;
            let mut out = Outbox::new();
            self.groups.tick(self.now, &mut out);
            self.settle(&mut out);
        }
        self.now.wall_ms += end.ms_since(self.now.mono) as i64;
        self.now.mono = end;
    }

    /// The oldest append that is under way ends.
    pub(super) fn finish_one(&mut self, result: Result<(), ErrorCode>) -> bool {
        let Some(ticket) = self.under_way.pop_front() else {
            return false;
        };
        let mut out = Outbox::new();
        self.groups.on_appended(self.now, ticket, result, &mut out);
        self.settle(&mut out);
        true
    }

    fn settle(&mut self, out: &mut Outbox) {
        loop {
            self.take_replies(out);
            let asks = self.groups.take_asks();
            if asks.is_empty() {
                return;
            }
            for ask in asks {
                self.carry_out(ask, out);
            }
        }
    }

    fn carry_out(&mut self, ask: Ask, out: &mut Outbox) {
        match ask {
            Ask::Append { batch, ticket, .. } => {
                let mut batch = batch.to_vec();
                corelog_wire::batch::set_base_offset(&mut batch, self.log_end());
                self.log.push(Bytes::from(batch));
                if self.holds {
                    self.under_way.push_back(ticket);
                } else {
                    self.groups.on_appended(self.now, ticket, Ok(()), out);
                }
            }
            Ask::Read { offset, ticket, .. } => {
                let ends = self.log.iter().map(|batch| end_of(batch));
                let first = ends.take_while(|end| *end <= offset).count();
                // A few batches at a time.
                let chunks: Chunks = self.log.iter().skip(first).take(3).cloned().collect();
                self.groups.on_read(self.now, ticket, Ok(chunks), out);
            }
        }
    }

    /// The last record of each key, in the order of the keys.
    pub(super) fn log_shown(&self) -> Vec<String> {
        let mut last = BTreeMap::new();
        for batch in &self.log {
            let shown = records_of(batch, 0, |record| {
                let (key, value) = shown(&record);
                last.insert(key, value.unwrap_or_else(|| "deleted".to_owned()));
            });
            shown.expect("the log holds batches");
        }
        last.into_iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect()
    }

    fn log_end(&self) -> i64 {
        self.log.last().map_or(0, |batch| end_of(batch))
    }

    fn take_replies(&mut self, out: &mut Outbox) {
        for effect in out.drain() {
            if let Effect::Reply {
                to,
                reply: part::Reply::Group(reply),
            } = effect
            {
                self.replies.push((to, *reply));
            }
        }
    }

    pub(super) fn cancel(&mut self, to: ReplyTo) {
        self.groups.cancel(to);
    }
}

fn end_of(batch: &[u8]) -> i64 {
    corelog_wire::batch::BatchHeader::parse(batch)
        .expect("the log holds batches")
        .next_offset()
}

/// Key and value of a record, as short as can be.
fn shown(record: &Record) -> (String, Option<String>) {
    match read(record) {
        Loaded::Offset { group, change } => (
            format!("{group}:{}/{}", change.topic, change.partition),
            change.to.map(|to| to.offset.to_string()),
        ),
        Loaded::Group { group, value } => (
            group.to_string(),
            value.map(|value| format!("gen{}", value.generation)),
        ),
        Loaded::Other => panic!("a record that nobody understands"),
    }
}
