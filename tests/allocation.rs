//! The data path allocates nothing per batch once it is warm: a counting allocator says so, from the request's bytes to the response's.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]
#![expect(
    unsafe_code,
    reason = "an allocator that counts can't be written without"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use corelog::api::table::{FETCH, PRODUCE};
use corelog::api::{
    self, Answer, BrokerView, Context, Directories, Joins, Parts, Pending, Split, Step,
};
use corelog_shards::base::ids::{Op, ReplyTo, ShardId, Text};
use corelog_shards::base::time::{Mono, Now};
use corelog_shards::effect::{Effect, Outbox};
use corelog_shards::event::{Done, Event};
use corelog_shards::metadata::Image;
use corelog_shards::part::Reply;
use corelog_shards::shard::{Shard, ShardConfig};
use corelog_shards::testing::{NODE, TestCluster, batch};
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::{fetch, produce};

struct Counting;

thread_local! {
    static COUNT: Cell<Option<u64>> = const { Cell::new(None) };
}

fn count() {
    // Other threads, and the end of this one, are nobody's business here.
    let _ = COUNT.try_with(|count| count.set(count.get().map(|count| count + 1)));
}

// SAFETY: every call is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `System.alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the pointer came from `System.alloc` with this layout.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(work: impl FnOnce()) -> u64 {
    COUNT.set(Some(0));
    work();
    COUNT.take().unwrap()
}

/// One shard, and an engine that keeps all its buffers.
struct Engine {
    shard: Shard,
    image: Arc<Image>,
    broker: BrokerView,
    directories: Arc<Directories>,
    now: Now,
    outbox: Outbox,
    spare: Vec<Effect>,
    done: VecDeque<(Op, Done)>,
    replies: VecDeque<Reply>,
    parts: Parts,
    head: BytesMut,
    chunks: Vec<Bytes>,
}

impl Engine {
    fn new() -> Engine {
        let mut cluster = TestCluster::new(1);
        cluster.create_topic("t", 1, &[]);
        let mut engine = Engine {
            shard: Shard::new(ShardConfig {
                id: ShardId(0),
                shards: 1,
                node_id: NODE,
                tail_cache_bytes: 4 << 20,
                existing: rustc_hash::FxHashSet::default(),
                parked_max: 8,
                fetch_session_slots: 0,
                retention_check_interval_ms: 300_000,
                initial_task_delay_ms: 30_000,
                seed: 1,
                controller: None,
            }),
            image: cluster.image(),
            broker: BrokerView {
                node_id: NODE,
                listener: Text::from_static("PLAINTEXT"),
                host: Text::from_static("localhost"),
                port: 9092,
                rack: None,
                statics: BTreeMap::new(),
                auto_create_topics: true,
                delete_topic_enable: true,
                num_partitions: 1,
                default_replication_factor: 1,
                fetch_max_bytes: 57_671_680,
                max_request_partition_size_limit: 2000,
            },
            directories: Arc::default(),
            now: Now {
                mono: Mono(1_000_000),
                wall_ms: 1_700_000_000_000,
            },
            outbox: Outbox::new(),
            spare: Vec::new(),
            done: VecDeque::new(),
            replies: VecDeque::new(),
            parts: Parts::new(),
            head: BytesMut::with_capacity(64 << 10),
            chunks: Vec::new(),
        };
        engine.on(Event::Image(cluster.image()));
        engine
    }

    fn on(&mut self, event: Event) {
        self.shard.on(self.now, event, &mut self.outbox);
        loop {
            self.outbox.swap(&mut self.spare);
            for effect in self.spare.drain(..) {
                match effect {
                    Effect::Write { op, .. }
                    | Effect::Seal { op, .. }
                    | Effect::Replace { op, .. }
                    | Effect::CreateLog { op, .. } => self.done.push_back((op, Done::Written)),
                    Effect::Sync { op, .. } => self.done.push_back((op, Done::Synced)),
                    Effect::Reply { reply, .. } => self.replies.push_back(reply),
                    Effect::Send { .. } => {}
                    _ => panic!("an effect that producing and fetching from memory don't need"),
                }
            }
            let Some((op, done)) = self.done.pop_front() else {
                return;
            };
            let outcome = Ok(done);
            self.shard
                .on(self.now, Event::Done { op, outcome }, &mut self.outbox);
        }
    }

    /// A consumer has been at the log's beginning, so batches are kept for it: time stands still here.
    fn follow(&mut self) {
        self.request(&header(FETCH, 11), &fetch_body(11, 0));
        self.on(Event::Cancelled { to: ReplyTo(1) });
        self.replies.clear();
    }

    /// One request; the length of its response.
    fn request(&mut self, header: &RequestHeader, body: &Bytes) -> usize {
        let mut pending = self.split(header, body);
        while let Some((_, part)) = self.parts.pop() {
            assert!(self.parts.is_empty(), "one shard, one part");
            self.on(Event::Part {
                to: ReplyTo(1),
                part,
            });
            let reply = self.replies.pop_front().unwrap();
            if self.join(&mut pending, reply) == Step::Done {
                break;
            }
        }
        let size = self.head.len() + self.chunks.iter().map(Bytes::len).sum::<usize>();
        self.head.clear();
        self.chunks.clear();
        // As an engine that pools its buffers does.
        let _ = self.head.try_reclaim(16 << 10);
        size
    }

    fn split(&mut self, header: &RequestHeader, body: &Bytes) -> Pending {
        let split = api::table::api(header.api_key).unwrap().split;
        let cx = context(&self.image, &self.broker, &self.directories, self.now);
        let mut answer = Answer {
            head: &mut self.head,
            chunks: &mut self.chunks,
        };
        match split(&cx, header, body.clone(), &mut self.parts, &mut answer) {
            Ok(Split::Wait(pending)) => pending,
            _ => panic!("the request asks nothing of the shard"),
        }
    }

    fn join(&mut self, pending: &mut Pending, reply: Reply) -> Step {
        let cx = context(&self.image, &self.broker, &self.directories, self.now);
        let mut answer = Answer {
            head: &mut self.head,
            chunks: &mut self.chunks,
        };
        pending.on_reply(&cx, 0, reply, &mut self.parts, &mut answer)
    }
}

fn context<'a>(
    image: &'a Arc<Image>,
    broker: &'a BrokerView,
    directories: &'a Arc<Directories>,
    now: Now,
) -> Context<'a> {
    Context {
        now,
        image,
        broker,
        directories,
        home: ShardId(0),
        client_address: [127, 0, 0, 1].into(),
    }
}

fn header(api_key: i16, api_version: i16) -> RequestHeader {
    RequestHeader {
        api_key,
        api_version,
        correlation_id: 1,
        client_id: Some(Text::from_static("counting")),
    }
}

fn produce_body(version: i16) -> Bytes {
    let value = "x".repeat(1000);
    let request = produce::Request {
        acks: -1,
        timeout_ms: 1000,
        topic_data: vec![produce::RequestTopicData {
            name: Text::from_static("t"),
            partition_data: vec![produce::RequestTopicDataPartitionData {
                index: 0,
                records: Some(batch(&[&value])),
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let mut out = BytesMut::new();
    request.encode(&mut out, version);
    shared(out)
}

fn fetch_body(version: i16, offset: i64) -> Bytes {
    let request = fetch::Request {
        max_bytes: 1 << 20,
        min_bytes: 1,
        max_wait_ms: 500,
        session_epoch: -1,
        topics: vec![fetch::RequestTopics {
            topic: Text::from_static("t"),
            partitions: vec![fetch::RequestTopicsPartitions {
                fetch_offset: offset,
                current_leader_epoch: -1,
                last_fetched_epoch: -1,
                partition_max_bytes: 1 << 20,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let mut out = BytesMut::new();
    request.encode(&mut out, version);
    shared(out)
}

/// A receive buffer is shared already when a frame is cut out of it.
fn shared(mut out: BytesMut) -> Bytes {
    let bytes = out.split().freeze();
    drop(bytes.clone());
    bytes
}

const WARM_UP: u64 = 6_000;
const MEASURED: u64 = 10_000;

#[test]
fn a_produce_of_one_batch_allocates_nothing() {
    for (version, followed) in [(7, false), (9, false), (9, true)] {
        let mut engine = Engine::new();
        if followed {
            engine.follow();
        }
        let (header, body) = (header(PRODUCE, version), produce_body(version));
        for _ in 0..WARM_UP {
            assert!(engine.request(&header, &body) > 0);
        }
        let count = allocations(|| {
            for _ in 0..MEASURED {
                engine.request(&header, &body);
            }
        });
        println!("version {version}: {count} allocations in {MEASURED} produces");
        // What grows now and then (an index, a chunk of the tail's memory) may; what comes with each batch may not.
        assert!(
            count < MEASURED / 100,
            "{count} allocations in {MEASURED} produces"
        );
    }
}

#[test]
fn a_fetch_allocates_nothing_per_batch() {
    const BATCHES: i64 = 100;
    let version = 11;
    let mut engine = Engine::new();
    engine.follow();
    let (produce, body) = (header(PRODUCE, 9), produce_body(9));
    for _ in 0..WARM_UP {
        engine.request(&produce, &body);
    }
    let fetch = header(FETCH, version);
    let body = fetch_body(version, WARM_UP as i64 - BATCHES);
    let size = engine.request(&fetch, &body);
    assert!(size > BATCHES as usize * 1000, "{size} bytes");
    let rounds = 1000;
    let count = allocations(|| {
        for _ in 0..rounds {
            engine.request(&fetch, &body);
        }
    });
    println!("{count} allocations in {rounds} fetches of {BATCHES} batches");
    assert!(
        count < rounds * 16,
        "{count} allocations in {rounds} fetches"
    );
}
