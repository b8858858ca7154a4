//! The image itself: cheap to share (`Arc`), cheap to copy with one change, read by every core without a lock.
//!
//! It is changed by [`super::apply`] only, and not any more once it is published. What the topics' settings are made of is in
//! [`super::configs`], what a snapshot of it says in [`super::snapshot`].

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::TopicConfig;
use super::configs::{Configs, Overrides};
use super::security::Security;
use super::shelf::Shelf;
use crate::base::ids::{ShardId, Text, TopicPartition, Uuid};

/// Node ids of a partition's replicas.
pub type Replicas = SmallVec<[i32; 4]>;

/// One version of the cluster's metadata.
#[derive(Clone)]
pub struct Image {
    /// Grows with every published change. Not an offset: it also counts changes of placement.
    pub version: u64,
    /// Offset of the last metadata record applied; -1 before the first.
    pub offset: i64,
    /// Epoch of that record's leader.
    pub epoch: i32,
    pub cluster_id: Text,
    /// This node.
    pub node_id: i32,
    /// Number of shards of this node.
    pub shards: u16,
    pub brokers: BTreeMap<i32, Arc<Broker>>,
    pub controllers: BTreeMap<i32, Arc<ControllerNode>>,
    /// Finalised features and their levels, as the log says; what exceeds this broker is clamped where it is shown.
    pub features: BTreeMap<Text, i16>,
    /// The first producer id that no block has been given out of.
    pub next_producer_id: i64,
    pub configs: Arc<Configs>,
    pub security: Arc<Security>,
    pub(super) topics: Shelf<Text, Arc<Topic>>,
    pub(super) names: Shelf<Uuid, Text>,
    /// Partitions that each shard of this node owns.
    pub(super) owned: Vec<u32>,
}

/// What an image is about before the first record: this node, and what its configuration file says.
#[derive(Debug, Clone)]
pub struct Identity {
    pub cluster_id: Text,
    pub node_id: i32,
    pub shards: u16,
    /// Every property given in the file or by override, by Kafka's name.
    pub statics: Arc<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Broker {
    pub id: i32,
    /// Given at registration: the offset of the record.
    pub epoch: i64,
    pub incarnation: Uuid,
    pub endpoints: Vec<Endpoint>,
    /// (name, lowest level, highest level)
    pub features: Vec<(Text, i16, i16)>,
    pub rack: Option<Text>,
    pub fenced: bool,
    pub in_controlled_shutdown: bool,
    pub log_dirs: Vec<Uuid>,
    /// `None` = never said.
    pub cordoned_log_dirs: Option<Vec<Uuid>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ControllerNode {
    pub id: i32,
    pub incarnation: Uuid,
    pub endpoints: Vec<Endpoint>,
    /// (name, lowest level, highest level)
    pub features: Vec<(Text, i16, i16)>,
}

/// Where a node can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The listener's name.
    pub name: Text,
    pub host: Text,
    pub port: u16,
    pub security_protocol: i16,
}

impl Broker {
    /// The endpoint on the listener `name`, which may be another one than the first (W-13).
    pub fn endpoint(&self, name: &str) -> Option<&Endpoint> {
        self.endpoints
            .iter()
            .find(|endpoint| &*endpoint.name == name)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Topic {
    pub name: Text,
    pub id: Uuid,
    /// Index = partition number.
    pub partitions: Vec<PartitionMeta>,
    /// Effective configuration: topic override, else broker default, else Kafka's default.
    pub config: Arc<TopicConfig>,
    /// The topic's own settings as they were given; `None` for most topics.
    pub overrides: Option<Arc<Overrides>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PartitionMeta {
    /// -1 = none.
    pub leader: i32,
    pub leader_epoch: i32,
    pub partition_epoch: i32,
    pub replicas: Replicas,
    pub isr: Replicas,
    pub removing: Replicas,
    pub adding: Replicas,
    /// Eligible leader replicas, and the last known of them (KIP-966).
    pub elr: Replicas,
    pub last_known_elr: Replicas,
    /// The log directory of each replica.
    pub directories: SmallVec<[Uuid; 1]>,
    /// The leader was elected uncleanly and has not recovered yet.
    pub recovering: bool,
    /// The shard of this node that owns the partition.
    pub owner: ShardId,
    /// Image version at which the partition was created here or last changed its owner.
    pub since: u64,
}

impl Image {
    /// The image before the first record.
    pub fn empty(identity: &Identity) -> Image {
        Image {
            version: 0,
            offset: -1,
            epoch: 0,
            cluster_id: identity.cluster_id.clone(),
            node_id: identity.node_id,
            shards: identity.shards,
            brokers: BTreeMap::new(),
            controllers: BTreeMap::new(),
            features: BTreeMap::new(),
            next_producer_id: 0,
            configs: Arc::new(Configs::new(identity.node_id, identity.statics.clone())),
            security: Arc::default(),
            topics: Shelf::new(),
            names: Shelf::new(),
            owned: vec![0; usize::from(identity.shards.max(1))],
        }
    }

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

    pub fn topic_count(&self) -> usize {
        self.topics.len()
    }

    /// All topics by name.
    pub fn sorted_topics(&self) -> Vec<&Arc<Topic>> {
        let mut topics: Vec<&Arc<Topic>> = self.topics().collect();
        topics.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        topics
    }

    pub fn partition(&self, id: TopicPartition) -> Option<&PartitionMeta> {
        self.topic_by_id(id.topic_id)?
            .partitions
            .get(usize::try_from(id.partition).ok()?)
    }

    /// The finalised level of a feature; 0 = not finalised.
    pub fn feature(&self, name: &str) -> i16 {
        self.features.get(name).copied().unwrap_or(0)
    }

    /// Brokers that are registered, not fenced and not on their way out.
    pub fn active_brokers(&self) -> impl Iterator<Item = &Arc<Broker>> {
        self.brokers
            .values()
            .filter(|broker| !broker.fenced && !broker.in_controlled_shutdown)
    }

    /// Whether both say the same about the cluster; versions, offsets and placement may differ.
    pub fn says_the_same_as(&self, other: &Image) -> bool {
        let topics = |image: &Image| -> Vec<Topic> {
            let mut topics: Vec<Topic> = image.topics().map(|topic| Topic::clone(topic)).collect();
            topics.sort_unstable_by(|a, b| a.name.cmp(&b.name));
            for partition in topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
                partition.since = 0;
                partition.owner = ShardId(0);
            }
            topics
        };
        self.cluster_id == other.cluster_id
            && self.brokers == other.brokers
            && self.controllers == other.controllers
            && self.features == other.features
            && self.next_producer_id == other.next_producer_id
            && self.configs == other.configs
            && self.security == other.security
            && topics(self) == topics(other)
    }
}

/// The topics that the broker itself writes to (M-6).
pub fn is_internal(topic: &str) -> bool {
    matches!(
        topic,
        "__consumer_offsets" | "__transaction_state" | "__share_group_state"
    )
}
