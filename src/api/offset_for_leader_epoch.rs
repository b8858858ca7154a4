//! OffsetForLeaderEpoch (key 23), versions 2 to 4. v3 replica id, v4 flexible.

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::time::Mono;
use corelog_shards::part::{EpochEnd, Part, Reply};
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::offset_for_leader_epoch::{
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
    let mut pending = Pending {
        header: header.clone(),
        response: Response::default(),
        places: Vec::new(),
        outstanding: 0,
    };
    let first = parts.len();
    for topic in &request.topics {
        let known = resolve::topic(cx.image, TopicRef::Name(&topic.topic));
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in &topic.partitions {
            let code = match known.and_then(|topic| resolve::leader(cx, topic, asked.partition)) {
                Ok((shard, partition)) => {
                    let at = pending.places.len() as u32;
                    let (current_leader_epoch, epoch) =
                        (asked.current_leader_epoch, asked.leader_epoch);
                    let entry = EpochEnd {
                        at,
                        partition,
                        current_leader_epoch,
                        epoch,
                    };
                    resolve::cut(parts, first, shard, entry, entries, |entries| {
                        Part::EpochEnd(Box::new(entries))
                    });
                    pending
                        .places
                        .push((pending.response.topics.len(), partitions.len()));
                    ErrorCode::REQUEST_TIMED_OUT
                }
                Err(code) => code,
            };
            partitions.push(ResponseTopicsPartitions {
                error_code: code.0,
                partition: asked.partition,
                leader_epoch: -1,
                end_offset: -1,
            });
        }
        pending.response.topics.push(ResponseTopics {
            topic: topic.topic.clone(),
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

fn entries(part: &mut Part) -> Option<&mut Vec<EpochEnd>> {
    match part {
        Part::EpochEnd(entries) => Some(entries),
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
        let Reply::EpochEnd(ended) = reply else {
            return Step::Wait;
        };
        for ended in ended {
            let (topic, partition) = self.places[ended.at as usize];
            let place = &mut self.response.topics[topic].partitions[partition];
            place.error_code = ended.code.0;
            (place.leader_epoch, place.end_offset) = (ended.epoch, ended.end_offset);
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
