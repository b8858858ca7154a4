//! Whole requests against whole shards: split, decide, join, with no engine between but this one.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fetch;
mod groups;
mod lookups;
mod produce;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use corelog_shards::base::ids::{ReplyTo, ShardId, Text, TopicPartition, Uuid};
use corelog_shards::event::Event;
use corelog_shards::metadata::Image;
use corelog_shards::part::{Part, Reply};
use corelog_shards::testing::{NODE, TestCluster, TestShard};
use corelog_wire::frame::{RequestHeader, ResponseHeader};
use corelog_wire::primitives::Reader;

use super::{
    Answer, BrokerView, Context, Directories, DirectoryView, Joins, Parts, Pending, Split, Step,
};

/// A node of several shards, and the way of requests through it.
struct Node {
    cluster: TestCluster,
    image: Arc<Image>,
    shards: Vec<TestShard>,
    broker: BrokerView,
    directories: Arc<Directories>,
    client_id: Option<Text>,
}

/// A request under way.
struct Open {
    pending: Pending,
    /// Shard and reply address of each part, in order; watches stay until the round is over.
    parts: Vec<(ShardId, ReplyTo)>,
    watches: Vec<usize>,
}

enum Outcome {
    Frame(Bytes),
    Silent,
    Close,
    Waits(Open),
}

impl Node {
    fn new(shards: u16) -> Node {
        let broker = BrokerView {
            node_id: NODE,
            listener: Text::from_static("PLAINTEXT"),
            host: Text::from_static("broker.test"),
            port: 9092,
            rack: None,
            statics: BTreeMap::new(),
            auto_create_topics: true,
            delete_topic_enable: true,
            num_partitions: 1,
            default_replication_factor: 1,
            fetch_max_bytes: 57_671_680,
            max_request_partition_size_limit: 2000,
        };
        let cluster = TestCluster::new(shards);
        let shard = |id| {
            TestShard::with(|config| {
                config.id = ShardId(id);
                config.shards = shards;
            })
        };
        Node {
            image: cluster.image(),
            cluster,
            shards: (0..shards).map(shard).collect(),
            broker,
            directories: Arc::default(),
            client_id: None,
        }
    }

    /// A node with the topic `t`.
    fn with_topic(shards: u16, partitions: i32) -> (Node, Uuid) {
        let mut node = Node::new(shards);
        let topic = node.create_topic("t", partitions, &[]);
        (node, topic)
    }

    fn create_topic(
        &mut self,
        name: &'static str,
        partitions: i32,
        settings: &[(&'static str, &'static str)],
    ) -> Uuid {
        let topic = self.cluster.create_topic(name, partitions, settings);
        self.show_image();
        topic
    }

    fn show_image(&mut self) {
        self.image = self.cluster.image();
        for shard in &mut self.shards {
            shard.on(Event::Image(Arc::clone(&self.image)));
        }
    }

    fn owner(&self, topic: Uuid, partition: i32) -> usize {
        let id = TopicPartition {
            topic_id: topic,
            partition,
        };
        usize::from(self.image.partition(id).unwrap().owner.0)
    }

    /// Sends one request and goes as far as it goes by itself.
    fn send(&mut self, key: i16, version: i16, body: impl FnOnce(&mut BytesMut)) -> Outcome {
        let mut bytes = BytesMut::new();
        body(&mut bytes);
        let header = RequestHeader {
            api_key: key,
            api_version: version,
            correlation_id: 77,
            client_id: self.client_id.clone(),
        };
        let (mut parts, mut head, mut chunks) = (Parts::new(), BytesMut::new(), Vec::new());
        let split = {
            let mut answer = Answer {
                head: &mut head,
                chunks: &mut chunks,
            };
            let split = super::table::api(key).unwrap().split;
            split(
                &self.context(),
                &header,
                bytes.freeze(),
                &mut parts,
                &mut answer,
            )
        };
        match split {
            Ok(Split::Ready) => Outcome::Frame(frame(head, chunks)),
            Ok(Split::Silent) => Outcome::Silent,
            Ok(Split::Close(_)) | Err(_) => Outcome::Close,
            Ok(Split::Wait(pending)) => {
                let mut open = Open {
                    pending,
                    parts: Vec::new(),
                    watches: Vec::new(),
                };
                self.deliver(&mut open, parts);
                self.go_on(open)
            }
        }
    }

    fn context(&self) -> Context<'_> {
        Context {
            now: self.shards[0].now,
            image: &self.image,
            broker: &self.broker,
            directories: &self.directories,
            home: ShardId(0),
            client_address: [127, 0, 0, 1].into(),
        }
    }

    fn deliver(&mut self, open: &mut Open, parts: Parts) {
        for (shard, part) in parts {
            if matches!(&part, Part::FetchPeek(round) if round.watch) {
                open.watches.push(open.parts.len());
            }
            let to = self.shards[usize::from(shard.0)].part(part);
            open.parts.push((shard, to));
        }
    }

    /// Brings replies to the request until there are none.
    fn go_on(&mut self, mut open: Open) -> Outcome {
        while let Some((index, reply)) = self.next_reply(&open) {
            let (mut parts, mut head, mut chunks) = (Parts::new(), BytesMut::new(), Vec::new());
            let mut answer = Answer {
                head: &mut head,
                chunks: &mut chunks,
            };
            let step =
                open.pending
                    .on_reply(&self.context(), index, reply, &mut parts, &mut answer);
            if let Some(outcome) = self.take(step, &mut open, parts, head, chunks) {
                return outcome;
            }
        }
        Outcome::Waits(open)
    }

    fn take(
        &mut self,
        step: Step,
        open: &mut Open,
        parts: Parts,
        head: BytesMut,
        chunks: Vec<Bytes>,
    ) -> Option<Outcome> {
        if step != Step::Wait {
            for index in std::mem::take(&mut open.watches) {
                let (shard, to) = open.parts[index];
                self.shards[usize::from(shard.0)].on(Event::Cancelled { to });
            }
        }
        match step {
            Step::Wait => None,
            Step::Again => {
                self.deliver(open, parts);
                None
            }
            Step::Done => Some(Outcome::Frame(frame(head, chunks))),
            Step::Silent => Some(Outcome::Silent),
            Step::Close => Some(Outcome::Close),
        }
    }

    fn next_reply(&mut self, open: &Open) -> Option<(usize, Reply)> {
        open.parts
            .iter()
            .enumerate()
            .find_map(|(index, (shard, to))| {
                let reply = self.shards[usize::from(shard.0)].reply(*to)?;
                Some((index, reply))
            })
    }

    /// Time passes until the request's deadline.
    fn expire(&mut self, mut open: Open) -> Outcome {
        let deadline = open.pending.deadline().unwrap();
        let left_ms = deadline.ms_since(self.shards[0].now.mono);
        for shard in &mut self.shards {
            shard.pass_ms(left_ms);
        }
        let (mut parts, mut head, mut chunks) = (Parts::new(), BytesMut::new(), Vec::new());
        let mut answer = Answer {
            head: &mut head,
            chunks: &mut chunks,
        };
        let step = open
            .pending
            .on_deadline(&self.context(), &mut parts, &mut answer);
        match self.take(step, &mut open, parts, head, chunks) {
            Some(outcome) => outcome,
            None => self.go_on(open),
        }
    }
}

fn frame(head: BytesMut, chunks: Vec<Bytes>) -> Bytes {
    if chunks.is_empty() {
        return head.freeze();
    }
    assert!(head.is_empty(), "a frame is in one place");
    chunks.concat().into()
}

/// The body of a response frame.
fn body(outcome: Outcome, key: i16, version: i16) -> Reader {
    let Outcome::Frame(frame) = outcome else {
        panic!("the request is not answered");
    };
    let size = u32::from_be_bytes(frame[..4].try_into().unwrap()) as usize;
    assert_eq!(size, frame.len() - 4, "the size prefix");
    let (header, reader) = ResponseHeader::parse(frame.slice(4..), key, version).unwrap();
    assert_eq!(header.correlation_id, 77);
    reader
}

fn waits(outcome: Outcome) -> Open {
    match outcome {
        Outcome::Waits(open) => open,
        _ => panic!("the request does not wait"),
    }
}

/// One directory for everything.
fn directory(path: &'static str, offline: bool) -> DirectoryView {
    DirectoryView {
        path: Text::from_static(path),
        total_bytes: 1000,
        usable_bytes: 400,
        offline,
    }
}
