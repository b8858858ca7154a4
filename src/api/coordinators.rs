//! From a group to the shard that coordinates it, and back: what the APIs of groups share.

use std::net::IpAddr;

use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::ids::{ShardId, Text, TopicPartition};
use corelog_shards::base::time::Mono;
use corelog_shards::coordinator::placement::partition_of;
use corelog_shards::group::groups::OFFSETS_TOPIC;
use corelog_shards::group::{Reply as GroupReply, Request as GroupRequest};
use corelog_shards::metadata::PartitionMeta;
use corelog_shards::part::{Part, PartitionRef, Reply};

use super::{Answer, Context, Joins, Parts, Pending, Split, Step};

/// The owner of the partition that coordinates `group` (G-1), or NOT_COORDINATOR.
pub(super) fn home(cx: &Context<'_>, group: &str) -> Result<(ShardId, PartitionRef), ErrorCode> {
    let (id, meta) = partition(cx, OFFSETS_TOPIC, group).ok_or(ErrorCode::NOT_COORDINATOR)?;
    if meta.leader != cx.broker.node_id {
        return Err(ErrorCode::NOT_COORDINATOR);
    }
    let since = meta.since;
    Ok((meta.owner, PartitionRef { id, since }))
}

/// The partition of an internal topic that coordinates `key`.
pub(super) fn partition<'a>(
    cx: &'a Context<'_>,
    topic: &str,
    key: &str,
) -> Option<(TopicPartition, &'a PartitionMeta)> {
    let topic = cx.image.topic(topic)?;
    let count = i32::try_from(topic.partitions.len()).ok()?;
    if count == 0 {
        return None;
    }
    let partition = partition_of(key, count);
    let id = TopicPartition {
        topic_id: topic.id,
        partition,
    };
    Some((id, &topic.partitions[partition as usize]))
}

/// A client's address as Java shows it, which is what Kafka stores and tools print.
pub(super) fn client_host(cx: &Context<'_>) -> Text {
    Text::from(match cx.client_address.to_canonical() {
        IpAddr::V4(address) => format!("/{address}"),
        IpAddr::V6(address) => {
            let groups = address.segments().map(|segment| format!("{segment:x}"));
            format!("/{}", groups.join(":"))
        }
    })
}

pub(super) fn part(request: GroupRequest) -> Part {
    Part::Group(Box::new(request))
}

/// Adds an entry to the request for `shard` among the parts from `first` on; `entries` names the entries of such a request, `new` makes one.
pub(super) fn cut<E>(
    parts: &mut Parts,
    first: usize,
    shard: ShardId,
    entry: E,
    entries: impl Fn(&mut GroupRequest) -> Option<&mut Vec<E>>,
    new: impl FnOnce(Vec<E>) -> GroupRequest,
) {
    super::resolve::cut(
        parts,
        first,
        shard,
        entry,
        |part| match part {
            Part::Group(request) => entries(request),
            _ => None,
        },
        |entries| part(new(entries)),
    );
}

/// Waits for the answers to all parts that were pushed since `first`; `then` makes the response of them.
pub(super) fn wait<F>(parts: &Parts, first: usize, then: F) -> Split
where
    F: FnOnce(&Context<'_>, Vec<GroupReply>, &mut Answer<'_>) + Send + 'static,
{
    Split::Wait(Pending::other(Waiting {
        outstanding: parts.len() - first,
        replies: Vec::new(),
        then: Some(then),
    }))
}

struct Waiting<F> {
    outstanding: usize,
    replies: Vec<GroupReply>,
    then: Option<F>,
}

impl<F> Joins for Waiting<F>
where
    F: FnOnce(&Context<'_>, Vec<GroupReply>, &mut Answer<'_>) + Send,
{
    fn on_reply(
        &mut self,
        cx: &Context<'_>,
        _part: usize,
        reply: Reply,
        _parts: &mut Parts,
        answer: &mut Answer<'_>,
    ) -> Step {
        let Reply::Group(reply) = reply else {
            return Step::Close;
        };
        self.replies.push(*reply);
        self.outstanding -= 1;
        if self.outstanding > 0 {
            return Step::Wait;
        }
        match self.then.take() {
            Some(then) => {
                then(cx, std::mem::take(&mut self.replies), answer);
                Step::Done
            }
            None => Step::Close,
        }
    }

    fn deadline(&self) -> Option<Mono> {
        None
    }

    fn on_deadline(&mut self, _: &Context<'_>, _: &mut Parts, _: &mut Answer<'_>) -> Step {
        Step::Wait
    }

    /// A group may keep its members waiting as long as their rebalance timeout.
    fn parked(&self) -> bool {
        true
    }
}
