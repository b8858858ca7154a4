//! DeleteRecords (key 21), versions 0 to 2. v2 flexible. Rules: D-9.

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::ids::ShardId;
use corelog_shards::base::time::Mono;
use corelog_shards::metadata::is_internal;
use corelog_shards::part::{DeleteRecords, Part, PartitionRef, Reply};
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::delete_records::{
    Request, Response, ResponseTopics, ResponseTopicsPartitions,
};
use corelog_wire::messages::topic_ref::TopicRef;
use corelog_wire::primitives::{DecodeError, Reader};

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
    let deadline = cx
        .now
        .mono
        .after_ms(u64::from(request.timeout_ms.max(0).unsigned_abs()));
    let mut pending = Pending {
        header: header.clone(),
        response: Response::default(),
        places: Vec::new(),
        outstanding: 0,
        deadline,
    };
    let first = parts.len();
    for topic in &request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in &topic.partitions {
            let code = match owner(cx, &topic.name, asked.partition_index) {
                Ok((shard, partition)) => {
                    let entry = (pending.places.len() as u32, partition, asked.offset);
                    resolve::cut(parts, first, shard, entry, entries, |entries| {
                        Part::DeleteRecords(Box::new(DeleteRecords { entries }))
                    });
                    pending
                        .places
                        .push((pending.response.topics.len(), partitions.len()));
                    ErrorCode::REQUEST_TIMED_OUT
                }
                Err(code) => code,
            };
            partitions.push(ResponseTopicsPartitions {
                partition_index: asked.partition_index,
                low_watermark: -1,
                error_code: code.0,
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

fn owner(
    cx: &Context<'_>,
    name: &str,
    partition: i32,
) -> Result<(ShardId, PartitionRef), ErrorCode> {
    let topic = resolve::topic(cx.image, TopicRef::Name(name))?;
    let owner = resolve::leader(cx, topic, partition)?;
    if is_internal(name) {
        return Err(ErrorCode::INVALID_TOPIC_EXCEPTION);
    }
    if !topic.config.cleanup_policy.delete && topic.config.cleanup_policy.compact {
        return Err(ErrorCode::POLICY_VIOLATION);
    }
    Ok(owner)
}

fn entries(part: &mut Part) -> Option<&mut Vec<(u32, PartitionRef, i64)>> {
    match part {
        Part::DeleteRecords(request) => Some(&mut request.entries),
        _ => None,
    }
}

struct Pending {
    header: RequestHeader,
    response: Response,
    /// Where the answer to each entry goes: topic, partition.
    places: Vec<(usize, usize)>,
    outstanding: usize,
    deadline: Mono,
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
        let Reply::DeleteRecords(deleted) = reply else {
            return Step::Wait;
        };
        for deleted in deleted {
            let (topic, partition) = self.places[deleted.at as usize];
            let place = &mut self.response.topics[topic].partitions[partition];
            (place.error_code, place.low_watermark) = (deleted.code.0, deleted.low_watermark);
        }
        self.outstanding -= 1;
        if self.outstanding > 0 {
            return Step::Wait;
        }
        self.write(answer);
        Step::Done
    }

    fn deadline(&self) -> Option<Mono> {
        Some(self.deadline)
    }

    /// An owner waits for its log to be made: what has no answer says REQUEST_TIMED_OUT.
    fn on_deadline(
        &mut self,
        _cx: &Context<'_>,
        _parts: &mut Parts,
        answer: &mut Answer<'_>,
    ) -> Step {
        self.write(answer);
        Step::Done
    }
}
