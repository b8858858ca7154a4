//! A core of the node: a shard, a front end, and the broker's side of its connections.
//!
//! This is what an engine's core is made of, without sockets and credits: frames of a connection start as the engine starts them (Produce and Fetch
//! beside each other, every other API alone), replies leave in request order.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use corelog::api::{BrokerView, Context, Directories, table};
use corelog::engine::reply_order::ReplyOrder;
use corelog::engine::requests::Requests;
use corelog_shards::base::ids::{ShardId, Text};
use corelog_shards::base::time::Now;
use corelog_shards::effect::Outbox;
use corelog_shards::metadata::Image;
use corelog_shards::shard::Shard;

use crate::net::next_frame;

/// What stands in the node's file: groups live faster than Kafka's defaults let them.
pub fn statics() -> BTreeMap<String, String> {
    let given = [
        ("group.min.session.timeout.ms", "500"),
        ("group.initial.rebalance.delay.ms", "200"),
        ("offsets.topic.num.partitions", "3"),
    ];
    given
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

/// The node of every run.
pub const NODE: i32 = 1;

/// The broker's side of a connection.
#[derive(Default)]
pub struct Served {
    pub buffer: BytesMut,
    pub order: ReplyOrder,
    pub executing: u32,
    pub exclusive: bool,
    /// Keys of requests whose parts are out.
    pub waiting: Vec<u32>,
}

impl Served {
    /// The next frame that may start now.
    pub fn start_next(&mut self) -> Option<Bytes> {
        let key = self.buffer.get(4..6)?;
        let key = i16::from_be_bytes([key[0], key[1]]);
        let concurrent = table::api(key).is_some_and(|api| api.concurrent);
        if self.exclusive || (self.executing > 0 && !concurrent) {
            return None;
        }
        let frame = next_frame(&mut self.buffer)?;
        self.exclusive = !concurrent;
        self.executing += 1;
        Some(frame)
    }
}

pub struct Core {
    pub shard: Shard,
    pub out: Outbox,
    pub requests: Requests,
    pub image: Arc<Image>,
    pub served: BTreeMap<u64, Served>,
    pub stopped: bool,
    /// An image has come in this run.
    pub has_applied: bool,
    /// A log directory went offline: this run can't end cleanly.
    pub has_failed: bool,
    /// Ticks at the same moment, one after the other.
    pub ticks: (u64, u32),
}

impl Core {
    pub fn new(shard: Shard, front: u16, image: Arc<Image>) -> Core {
        Core {
            shard,
            out: Outbox::new(),
            requests: Requests::new(front),
            image,
            served: BTreeMap::new(),
            stopped: false,
            has_applied: false,
            has_failed: false,
            ticks: (0, 0),
        }
    }
}

/// What every request of the run may know of the broker.
pub struct Surroundings {
    pub broker: BrokerView,
    pub directories: Arc<Directories>,
}

impl Surroundings {
    pub fn new() -> Surroundings {
        Surroundings {
            broker: BrokerView {
                node_id: NODE,
                listener: Text::from_static("PLAINTEXT"),
                host: Text::from_static("simulated"),
                port: 9092,
                rack: None,
                statics: statics(),
                auto_create_topics: true,
                delete_topic_enable: true,
                num_partitions: 1,
                default_replication_factor: 1,
                fetch_max_bytes: 57_671_680,
                max_request_partition_size_limit: 2000,
            },
            directories: Arc::default(),
        }
    }

    pub fn context<'a>(&'a self, now: Now, image: &'a Arc<Image>, core: usize) -> Context<'a> {
        Context {
            now,
            image,
            broker: &self.broker,
            directories: &self.directories,
            home: ShardId(core as u16),
            client_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }
}

impl Default for Surroundings {
    fn default() -> Surroundings {
        Surroundings::new()
    }
}
