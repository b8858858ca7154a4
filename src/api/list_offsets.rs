//! ListOffsets (key 2), versions 1 to 11. v2 isolation, v4 leader epochs, v6 flexible, v7 the maximum timestamp, v8 -4, v9 -5, v10 timeout (for remote
//! lookups, of which there are none), v11 -6.

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::ids::ShardId;
use corelog_shards::base::time::Mono;
use corelog_shards::part::{Isolation, ListOffset, Part, PartitionRef, Reply};
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::list_offsets::{
    Request, RequestTopicsPartitions, Response, ResponseTopics, ResponseTopicsPartitions,
};
use corelog_wire::messages::topic_ref::TopicRef;
use corelog_wire::primitives::{DecodeError, Reader};
use rustc_hash::FxHashSet;

use super::resolve;
use super::{Answer, Context, Joins, Parts, Split, Step};

pub fn split(
    cx: &Context<'_>,
    header: &RequestHeader,
    body: Bytes,
    parts: &mut Parts,
    answer: &mut Answer<'_>,
) -> Result<Split, DecodeError> {
    let request = Request::decode(&mut Reader::new(body), header.api_version)?;
    let isolation = if request.isolation_level == 1 {
        Isolation::ReadCommitted
    } else {
        Isolation::ReadUncommitted
    };
    let duplicates = duplicates(&request);
    let mut pending = Pending {
        header: header.clone(),
        response: Response::default(),
        places: Vec::new(),
        outstanding: 0,
    };
    let first = parts.len();
    for topic in &request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in &topic.partitions {
            let owner = if duplicates.contains(&(&topic.name, asked.partition_index)) {
                Err(ErrorCode::INVALID_REQUEST)
            } else {
                owner(cx, header, &topic.name, asked)
            };
            let code = match owner {
                Ok((shard, partition)) => {
                    let at = pending.places.len() as u32;
                    let (current_leader_epoch, timestamp) =
                        (asked.current_leader_epoch, asked.timestamp);
                    let entry = ListOffset {
                        at,
                        partition,
                        current_leader_epoch,
                        isolation,
                        timestamp,
                    };
                    resolve::cut(parts, first, shard, entry, entries, |entries| {
                        Part::ListOffsets(Box::new(entries))
                    });
                    pending
                        .places
                        .push((pending.response.topics.len(), partitions.len()));
                    ErrorCode::REQUEST_TIMED_OUT
                }
                Err(code) => code,
            };
            let partition_index = asked.partition_index;
            partitions.push(ResponseTopicsPartitions {
                partition_index,
                error_code: code.0,
                timestamp: -1,
                offset: -1,
                leader_epoch: -1,
            });
        }
        pending.response.topics.push(ResponseTopics {
            name: topic.name.clone(),
            partitions,
        });
    }
    pending.outstanding = parts.len() - first;
    if pending.outstanding == 0 {
        pending.write(answer);
        return Ok(Split::Ready);
    }
    Ok(Split::Wait(super::Pending::other(pending)))
}

/// Partitions that are named more than once: each of them is an error.
fn duplicates(request: &Request) -> FxHashSet<(&str, i32)> {
    let mut seen = FxHashSet::default();
    let all = request.topics.iter().flat_map(|topic| {
        topic
            .partitions
            .iter()
            .map(|asked| (&*topic.name, asked.partition_index))
    });
    all.filter(|named| !seen.insert(*named)).collect()
}

fn owner(
    cx: &Context<'_>,
    header: &RequestHeader,
    topic: &str,
    asked: &RequestTopicsPartitions,
) -> Result<(ShardId, PartitionRef), ErrorCode> {
    if header.api_version < first_version(asked.timestamp) {
        return Err(ErrorCode::UNSUPPORTED_VERSION);
    }
    let topic = resolve::topic(cx.image, TopicRef::Name(topic))?;
    resolve::leader(cx, topic, asked.partition_index)
}

/// The version from which a timestamp may be asked for (kafka.md 4.3).
fn first_version(timestamp: i64) -> i16 {
    match timestamp {
        -2.. => 1,
        -3 => 7,
        -4 => 8,
        -5 => 9,
        -6 => 11,
        _ => i16::MAX,
    }
}

fn entries(part: &mut Part) -> Option<&mut Vec<ListOffset>> {
    match part {
        Part::ListOffsets(entries) => Some(entries),
        _ => None,
    }
}

struct Pending {
    header: RequestHeader,
    response: Response,
    /// Where the answer to each entry goes: topic, partition.
    places: Vec<(usize, usize)>,
    outstanding: usize,
}

impl Pending {
    fn write(&self, answer: &mut Answer<'_>) {
        answer.write(&self.header, |out| {
            self.response.encode(out, self.header.api_version);
        });
    }
}

impl Joins for Pending {
    fn on_reply(
        &mut self,
        _cx: &Context<'_>,
        _part: usize,
        reply: Reply,
        _parts: &mut Parts,
        answer: &mut Answer<'_>,
    ) -> Step {
        let Reply::ListOffsets(listed) = reply else {
            return Step::Wait;
        };
        for listed in listed {
            let (topic, partition) = self.places[listed.at as usize];
            let place = &mut self.response.topics[topic].partitions[partition];
            place.error_code = listed.code.0;
            (place.timestamp, place.offset, place.leader_epoch) =
                (listed.timestamp, listed.offset, listed.leader_epoch);
        }
        self.outstanding -= 1;
        if self.outstanding > 0 {
            return Step::Wait;
        }
        self.write(answer);
        Step::Done
    }

    fn deadline(&self) -> Option<Mono> {
        None
    }

    fn on_deadline(
        &mut self,
        _cx: &Context<'_>,
        _parts: &mut Parts,
        _answer: &mut Answer<'_>,
    ) -> Step {
        Step::Wait
    }
}
