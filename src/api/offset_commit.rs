//! OffsetCommit (key 8), versions 2 to 10.
//!
//! v2 to v4 with a retention of their own; v6 leader epochs; v7 static members; v8 flexible; v9 GROUP_ID_NOT_FOUND; v10 topics by id.
//! Rules: J-10. A topic or partition that is not there is refused here, the rest goes to the group.

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::ids::ShardId;
use corelog_shards::group::Reply;
use corelog_shards::group::request::{self, Commit, CommitEntry};
use corelog_shards::part::PartitionRef;
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::offset_commit::{
    Request, RequestTopics, Response, ResponseTopics, ResponseTopicsPartitions,
};
use corelog_wire::messages::topic_ref::TopicRef;
use corelog_wire::primitives::{DecodeError, Reader};

use super::{Answer, Context, Parts, Split, coordinators, resolve};

pub fn split(
    cx: &Context<'_>,
    header: &RequestHeader,
    body: Bytes,
    parts: &mut Parts,
    answer: &mut Answer<'_>,
) -> Result<Split, DecodeError> {
    let mut request = Request::decode(&mut Reader::new(body), header.api_version)?;
    let topics = std::mem::take(&mut request.topics);
    let mut ready = Ready::default();
    let home = coordinators::home(cx, &request.group_id);
    let entries = ready.sort(cx, header.api_version, topics, home.as_ref().err().copied());
    let Ok((shard, home)) = home else {
        ready.write(header, answer);
        return Ok(Split::Ready);
    };
    if entries.is_empty() {
        ready.write(header, answer);
        return Ok(Split::Ready);
    }
    push(parts, header, request, (shard, home), entries);
    let header = header.clone();
    Ok(coordinators::wait(
        parts,
        parts.len() - 1,
        move |_, replies, answer| {
            for reply in replies {
                if let Reply::Committed(codes) = reply {
                    ready.take(codes);
                }
            }
            ready.write(&header, answer);
        },
    ))
}

fn push(
    parts: &mut Parts,
    header: &RequestHeader,
    request: Request,
    (shard, home): (ShardId, PartitionRef),
    entries: Vec<CommitEntry>,
) {
    let commit = Commit {
        home,
        group: request.group_id,
        generation: request.generation_id_or_member_epoch,
        member_id: request.member_id,
        instance_id: request.group_instance_id,
        retention_ms: request.retention_time_ms,
        unknown_group: if header.api_version >= 9 {
            ErrorCode::GROUP_ID_NOT_FOUND
        } else {
            ErrorCode::ILLEGAL_GENERATION
        },
        entries,
    };
    parts.push((shard, coordinators::part(request::Request::Commit(commit))));
}

/// The response as far as it is known.
#[derive(Default)]
struct Ready {
    topics: Vec<ResponseTopics>,
    /// Where the answer to each entry goes: topic, partition.
    places: Vec<(usize, usize)>,
}

impl Ready {
    /// Sorts what the group has to decide from what is decided: `code` for everything, or topics that are not there.
    fn sort(
        &mut self,
        cx: &Context<'_>,
        version: i16,
        topics: Vec<RequestTopics>,
        code: Option<ErrorCode>,
    ) -> Vec<CommitEntry> {
        let mut entries = Vec::new();
        for topic in topics {
            let named = if version >= 10 {
                TopicRef::Id(topic.topic_id)
            } else {
                TopicRef::Name(&topic.name)
            };
            let known = resolve::topic(cx.image, named);
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for asked in topic.partitions {
                let index = usize::try_from(asked.partition_index).unwrap_or(usize::MAX);
                let refused = match (code, &known) {
                    (Some(code), _) => Some(code),
                    (None, Err(code)) => Some(*code),
                    (None, Ok(known)) if known.partitions.len() <= index => {
                        Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
                    }
                    (None, Ok(known)) => {
                        self.places.push((self.topics.len(), partitions.len()));
                        entries.push(CommitEntry {
                            at: entries.len() as u32,
                            topic: known.name.clone(),
                            topic_id: known.id,
                            partition: asked.partition_index,
                            offset: asked.committed_offset,
                            leader_epoch: asked.committed_leader_epoch,
                            metadata: asked.committed_metadata.unwrap_or_default(),
                        });
                        None
                    }
                };
                partitions.push(ResponseTopicsPartitions {
                    partition_index: asked.partition_index,
                    error_code: refused.unwrap_or(ErrorCode::NONE).0,
                });
            }
            self.topics.push(ResponseTopics {
                name: topic.name,
                topic_id: topic.topic_id,
                partitions,
            });
        }
        entries
    }

    fn take(&mut self, codes: Vec<(u32, ErrorCode)>) {
        for (at, code) in codes {
            let (topic, partition) = self.places[at as usize];
            self.topics[topic].partitions[partition].error_code = code.0;
        }
    }

    fn write(self, header: &RequestHeader, answer: &mut Answer<'_>) {
        let response = Response {
            topics: self.topics,
            ..Response::default()
        };
        answer.write(header, |out| response.encode(out, header.api_version));
    }
}
