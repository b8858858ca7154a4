//! DescribeProducers (key 61), version 0. Answered by the leader of each partition (D-15).

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::time::Mono;
use corelog_shards::part::{DescribedProducer, Part, PartitionRef, Reply};
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::describe_producers::{
    Request, Response, ResponseTopics, ResponseTopicsPartitions,
    ResponseTopicsPartitionsActiveProducers,
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
        let known = resolve::topic(cx.image, TopicRef::Name(&topic.name));
        let mut partitions = Vec::with_capacity(topic.partition_indexes.len());
        for partition_index in &topic.partition_indexes {
            let code = match known.and_then(|topic| resolve::leader(cx, topic, *partition_index)) {
                Ok((shard, partition)) => {
                    let entry = (pending.places.len() as u32, partition);
                    resolve::cut(parts, first, shard, entry, entries, |entries| {
                        Part::DescribeProducers(Box::new(entries))
                    });
                    pending
                        .places
                        .push((pending.response.topics.len(), partitions.len()));
                    ErrorCode::REQUEST_TIMED_OUT
                }
                Err(code) => code,
            };
            partitions.push(ResponseTopicsPartitions {
                partition_index: *partition_index,
                error_code: code.0,
                error_message: None,
                active_producers: Vec::new(),
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

fn entries(part: &mut Part) -> Option<&mut Vec<(u32, PartitionRef)>> {
    match part {
        Part::DescribeProducers(entries) => Some(entries),
        _ => None,
    }
}

fn active(producer: &DescribedProducer) -> ResponseTopicsPartitionsActiveProducers {
    ResponseTopicsPartitionsActiveProducers {
        producer_id: producer.producer_id,
        producer_epoch: i32::from(producer.epoch),
        last_sequence: producer.last_sequence,
        last_timestamp: producer.last_timestamp,
        coordinator_epoch: producer.coordinator_epoch,
        current_txn_start_offset: producer.current_txn_start_offset,
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
        let Reply::DescribeProducers(described) = reply else {
            return Step::Wait;
        };
        for described in described {
            let (topic, partition) = self.places[described.at as usize];
            let place = &mut self.response.topics[topic].partitions[partition];
            place.error_code = described.code.0;
            place.active_producers = described.producers.iter().map(active).collect();
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
