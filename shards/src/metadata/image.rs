//! The image itself: cheap to share (`Arc`), cheap to copy with one change, read by every core without a lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::TopicConfig;
use crate::base::ids::{ShardId, Text, TopicPartition, Uuid};

/// One version of the cluster's metadata.
#[derive(Clone)]
pub struct Image {
    /// Grows with every published change. Not an offset: it also counts changes of placement.
    pub version: u64,
    /// Offset of the last metadata record applied; -1 before the first.
    pub offset: i64,
    pub cluster_id: Text,
    /// Number of shards of this node.
    pub shards: u16,
    pub brokers: BTreeMap<i32, Arc<Broker>>,
    topics: FxHashMap<Text, Arc<Topic>>,
    names: FxHashMap<Uuid, Text>,
}

pub struct Broker {
    pub id: i32,
    pub host: Text,
    pub port: u16,
    pub rack: Option<Text>,
    pub fenced: bool,
}

pub struct Topic {
    pub name: Text,
    pub id: Uuid,
    /// Index = partition number.
    pub partitions: Vec<PartitionMeta>,
    /// Effective configuration: topic override, else broker default, else Kafka's default.
    pub config: Arc<TopicConfig>,
}

pub struct PartitionMeta {
    pub leader: i32,
    pub leader_epoch: i32,
    pub partition_epoch: i32,
    pub replicas: Vec<i32>,
    pub isr: Vec<i32>,
    /// The shard of this node that owns the partition.
    pub owner: ShardId,
    /// Image version at which the partition was created here or last changed its owner.
    pub since: u64,
}

impl Image {
    pub fn topic(&self, name: &str) -> Option<&Arc<Topic>> {
        self.topics.get(name)
    }

    pub fn topic_by_id(&self, id: Uuid) -> Option<&Arc<Topic>> {
        self.topic(self.names.get(&id)?)
    }

    /// All topics, in no particular order.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.topics.values()
    }

    pub fn partition(&self, id: TopicPartition) -> Option<&PartitionMeta> {
        self.topic_by_id(id.topic_id)?
            .partitions
            .get(usize::try_from(id.partition).ok()?)
    }
}
