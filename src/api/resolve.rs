//! From what a request names to who owns it, and from an error to the leader that a client should ask instead.

use std::sync::Arc;

use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::ids::{ShardId, TopicPartition};
use corelog_shards::metadata::{Image, Topic};
use corelog_shards::part::{Part, PartitionRef};
use corelog_wire::messages::topic_ref::{CurrentLeader, NodeEndpoint, TopicRef};
use smallvec::SmallVec;

use super::{Context, Parts};

/// The topic that a request names, or the code for one that is not there: by name 3, by id 100.
pub(super) fn topic<'a>(
    image: &'a Image,
    named: TopicRef<'_>,
) -> Result<&'a Arc<Topic>, ErrorCode> {
    match named {
        TopicRef::Name(name) => image
            .topic(name)
            .ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
        TopicRef::Id(id) => image.topic_by_id(id).ok_or(ErrorCode::UNKNOWN_TOPIC_ID),
    }
}

/// The owner of a partition that this node leads.
pub(super) fn leader(
    cx: &Context<'_>,
    topic: &Topic,
    partition: i32,
) -> Result<(ShardId, PartitionRef), ErrorCode> {
    let index = usize::try_from(partition).map_err(|_| ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
    let meta = topic
        .partitions
        .get(index)
        .ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
    if meta.leader != cx.broker.node_id {
        return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER);
    }
    let id = TopicPartition {
        topic_id: topic.id,
        partition,
    };
    Ok((
        meta.owner,
        PartitionRef {
            id,
            since: meta.since,
        },
    ))
}

/// Adds an entry to the part of `shard` among those from `first` on; `entries` names the entries of such a part, `new` makes one.
pub(super) fn cut<E>(
    parts: &mut Parts,
    first: usize,
    shard: ShardId,
    entry: E,
    entries: impl Fn(&mut Part) -> Option<&mut Vec<E>>,
    new: impl FnOnce(Vec<E>) -> Part,
) {
    let mut earlier = parts[first..]
        .iter_mut()
        .filter(|(owner, _)| *owner == shard);
    match earlier.find_map(|(_, part)| entries(part)) {
        Some(entries) => entries.push(entry),
        None => parts.push((shard, new(vec![entry]))),
    }
}

/// The leaders that a response points to because of 6 or 74 (P-6, F-7), and where they are.
#[derive(Default)]
pub(super) struct Leaders {
    nodes: SmallVec<[i32; 2]>,
}

impl Leaders {
    /// What the answer for `partition` says of its leader when its code is `code`.
    pub(super) fn of(
        &mut self,
        image: &Image,
        named: TopicRef<'_>,
        partition: i32,
        code: ErrorCode,
    ) -> CurrentLeader {
        if !matches!(
            code,
            ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::FENCED_LEADER_EPOCH
        ) {
            return CurrentLeader::UNTOLD;
        }
        let meta = topic(image, named)
            .ok()
            .and_then(|topic| topic.partitions.get(usize::try_from(partition).ok()?));
        let Some(meta) = meta else {
            return CurrentLeader::UNTOLD;
        };
        if !self.nodes.contains(&meta.leader) {
            self.nodes.push(meta.leader);
        }
        CurrentLeader {
            leader_id: meta.leader,
            leader_epoch: meta.leader_epoch,
        }
    }

    /// The endpoints of all of them, as the client's listener knows them (W-13).
    pub(super) fn endpoints<'a>(&self, cx: &'a Context<'_>) -> SmallVec<[NodeEndpoint<'a>; 2]> {
        self.nodes
            .iter()
            .filter_map(|node_id| endpoint(cx, *node_id))
            .collect()
    }
}

fn endpoint<'a>(cx: &'a Context<'_>, node_id: i32) -> Option<NodeEndpoint<'a>> {
    if node_id == cx.broker.node_id {
        let rack = cx.broker.rack.as_deref();
        return Some(NodeEndpoint {
            node_id,
            host: &cx.broker.host,
            port: i32::from(cx.broker.port),
            rack,
        });
    }
    let broker = cx.image.brokers.get(&node_id)?;
    let endpoint = broker.endpoint(&cx.broker.listener)?;
    Some(NodeEndpoint {
        node_id,
        host: &endpoint.host,
        port: i32::from(endpoint.port),
        rack: broker.rack.as_deref(),
    })
}
