//! What split and join may know besides the request.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use corelog_shards::base::ids::{ShardId, Text, TopicPartition};
use corelog_shards::base::time::Now;
use corelog_shards::metadata::Image;
use rustc_hash::FxHashMap;

pub struct Context<'a> {
    pub now: Now,
    pub image: &'a Arc<Image>,
    pub broker: &'a BrokerView,
    pub directories: &'a Arc<Directories>,
    /// The shard at which the connection is at home: waits of its requests live there.
    pub home: ShardId,
    pub client_address: IpAddr,
}

/// What of the static configuration the APIs need. Units as in Kafka's names.
#[derive(Debug, Clone)]
pub struct BrokerView {
    pub node_id: i32,
    /// Name, host and port of the listener as advertised to clients (W-13).
    pub listener: Text,
    pub host: Text,
    pub port: u16,
    pub rack: Option<Text>,
    /// Every property given in the file or by override, by Kafka's name (source STATIC_BROKER_CONFIG, D-4).
    pub statics: BTreeMap<String, String>,
    pub auto_create_topics: bool,
    pub delete_topic_enable: bool,
    pub num_partitions: i32,
    pub default_replication_factor: i16,
    pub fetch_max_bytes: u32,
    pub max_request_partition_size_limit: i32,
}

/// The log directories as they are now; replaced as a whole when something changes.
#[derive(Debug, Clone, Default)]
pub struct Directories {
    pub list: Vec<DirectoryView>,
    /// Index into `list`, for partitions that are not in the first directory.
    pub of: FxHashMap<TopicPartition, u16>,
}

#[derive(Debug, Clone)]
pub struct DirectoryView {
    pub path: Text,
    pub total_bytes: i64,
    pub usable_bytes: i64,
    pub offline: bool,
}
