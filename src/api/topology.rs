//! Brokers and partitions as a client on this listener sees them: shared by Metadata, DescribeCluster and DescribeTopicPartitions.

use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::ids::Text;
use corelog_shards::metadata::{Broker, PartitionMeta};

use super::Context;

/// Everything that can be allowed on a topic or on the cluster, bit n for AclOperation n (Y-7, M-7). Nothing is refused yet.
pub(super) const TOPIC_OPERATIONS: i32 = bits(&[
    READ,
    WRITE,
    CREATE,
    DELETE,
    ALTER,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    ALTER_CONFIGS,
]);
pub(super) const CLUSTER_OPERATIONS: i32 = bits(&[
    CREATE,
    ALTER,
    DESCRIBE,
    CLUSTER_ACTION,
    DESCRIBE_CONFIGS,
    ALTER_CONFIGS,
    IDEMPOTENT_WRITE,
]);
pub(super) const GROUP_OPERATIONS: i32 =
    bits(&[READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS]);
/// Operations were not asked for.
pub(super) const OPERATIONS_UNASKED: i32 = i32::MIN;

const READ: u32 = 3;
const WRITE: u32 = 4;
const CREATE: u32 = 5;
const DELETE: u32 = 6;
const ALTER: u32 = 7;
const DESCRIBE: u32 = 8;
const CLUSTER_ACTION: u32 = 9;
const DESCRIBE_CONFIGS: u32 = 10;
const ALTER_CONFIGS: u32 = 11;
const IDEMPOTENT_WRITE: u32 = 12;

const fn bits(operations: &[u32]) -> i32 {
    let (mut all, mut at) = (0, 0);
    while at < operations.len() {
        all |= 1 << operations[at];
        at += 1;
    }
    all
}

/// Where a client on this listener reaches a broker.
pub(super) struct Node<'a> {
    pub(super) broker: &'a Broker,
    pub(super) host: Text,
    pub(super) port: i32,
}

/// The broker, unless it has no endpoint on the listener of this connection (M-3, W-13).
pub(super) fn node<'a>(cx: &Context<'a>, broker: &'a Broker) -> Option<Node<'a>> {
    if broker.id == cx.broker.node_id {
        return Some(Node {
            broker,
            host: cx.broker.host.clone(),
            port: i32::from(cx.broker.port),
        });
    }
    let endpoint = broker.endpoint(&cx.broker.listener)?;
    Some(Node {
        broker,
        host: endpoint.host.clone(),
        port: i32::from(endpoint.port),
    })
}

/// All brokers that can be reached on this listener, by id.
pub(super) fn nodes<'a>(cx: &Context<'a>) -> Vec<Node<'a>> {
    cx.image
        .brokers
        .values()
        .filter_map(|broker| node(cx, broker))
        .collect()
}

fn is_alive(cx: &Context<'_>, id: i32) -> bool {
    let broker = cx.image.brokers.get(&id);
    broker.is_some_and(|broker| !broker.fenced && node(cx, broker).is_some())
}

/// A broker that admin requests may be sent to: this one, unless it is fenced (M-2).
pub(super) fn controller_id(cx: &Context<'_>) -> i32 {
    let own = cx.broker.node_id;
    if is_alive(cx, own) { own } else { -1 }
}

/// What is said of a partition's replicas.
pub(super) struct PartitionView {
    pub(super) code: ErrorCode,
    pub(super) leader_id: i32,
    pub(super) replicas: Vec<i32>,
    pub(super) isr: Vec<i32>,
    pub(super) offline: Vec<i32>,
}

/// M-3. `missing_listener` is the code for a leader that this listener does not reach; versions differ.
pub(super) fn partition(
    cx: &Context<'_>,
    meta: &PartitionMeta,
    missing_listener: ErrorCode,
) -> PartitionView {
    let (code, leader_id) = if is_alive(cx, meta.leader) {
        (ErrorCode::NONE, meta.leader)
    } else if cx.image.brokers.contains_key(&meta.leader) {
        (missing_listener, -1)
    } else {
        (ErrorCode::LEADER_NOT_AVAILABLE, -1)
    };
    let replicas = meta.replicas.iter().copied();
    PartitionView {
        code,
        leader_id,
        replicas: meta.replicas.to_vec(),
        isr: meta.isr.to_vec(),
        offline: replicas.filter(|id| !is_alive(cx, *id)).collect(),
    }
}
