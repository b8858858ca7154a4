//! OffsetFetch (key 9), versions 1 to 10.
//!
//! v2 all topics, error of the whole; v5 leader epochs; v6 flexible; v7 RequireStable; v8 several groups; v9 members of KIP-848 groups;
//! v10 topics by id. Rules: J-11. Without transactions every offset is stable.

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::ids::{Text, Uuid};
use corelog_shards::group::Reply;
use corelog_shards::group::request::{self, FetchOffsets, GroupOffsets, OffsetOf};
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::offset_fetch::{
    Request, RequestGroups, RequestGroupsTopics, Response, ResponseGroups, ResponseGroupsTopics,
    ResponseGroupsTopicsPartitions, ResponseTopics, ResponseTopicsPartitions,
};
use corelog_wire::primitives::{DecodeError, Reader};

use super::{Answer, Context, Parts, Split, coordinators};

pub fn split(
    cx: &Context<'_>,
    header: &RequestHeader,
    body: Bytes,
    parts: &mut Parts,
    answer: &mut Answer<'_>,
) -> Result<Split, DecodeError> {
    let request = Request::decode(&mut Reader::new(body), header.api_version)?;
    let groups = if header.api_version >= 8 {
        request.groups
    } else {
        vec![only_group(request)]
    };
    let (first, mut asked) = (parts.len(), Vec::with_capacity(groups.len()));
    for (at, group) in (0_u32..).zip(groups) {
        let asking = Asking::of(cx, header.api_version, group);
        match coordinators::home(cx, &asking.group) {
            Ok((shard, home)) => {
                let fetch = FetchOffsets {
                    at,
                    home,
                    group: asking.group.clone(),
                    topics: asking.names(),
                };
                coordinators::cut(parts, first, shard, fetch, entries, |entries| {
                    request::Request::FetchOffsets(entries)
                });
                asked.push((asking, None));
            }
            Err(code) => asked.push((asking, Some(failed(at, code)))),
        }
    }
    if parts.len() == first {
        respond(cx, header, asked, answer);
        return Ok(Split::Ready);
    }
    let header = header.clone();
    Ok(coordinators::wait(
        parts,
        first,
        move |cx, replies, answer| {
            for reply in replies {
                let Reply::Offsets(groups) = reply else {
                    continue;
                };
                for group in groups {
                    let at = group.at as usize;
                    asked[at].1 = Some(group);
                }
            }
            respond(cx, &header, asked, answer);
        },
    ))
}

fn entries(request: &mut request::Request) -> Option<&mut Vec<FetchOffsets>> {
    match request {
        request::Request::FetchOffsets(entries) => Some(entries),
        _ => None,
    }
}

fn failed(at: u32, code: ErrorCode) -> GroupOffsets {
    GroupOffsets {
        at,
        code,
        topics: Vec::new(),
    }
}

/// The request of the older versions as one of the newer.
fn only_group(request: Request) -> RequestGroups {
    RequestGroups {
        group_id: request.group_id,
        topics: request.topics.map(|topics| {
            let topics = topics.into_iter().map(|topic| RequestGroupsTopics {
                name: topic.name,
                partition_indexes: topic.partition_indexes,
                ..RequestGroupsTopics::default()
            });
            topics.collect()
        }),
        ..RequestGroups::default()
    }
}

/// What is asked about one group.
struct Asking {
    group: Text,
    /// `None` = everything.
    topics: Option<Vec<Topic>>,
}

struct Topic {
    /// `None` = no topic has this id.
    name: Option<Text>,
    id: Uuid,
    partitions: Vec<i32>,
}

impl Asking {
    fn of(cx: &Context<'_>, version: i16, group: RequestGroups) -> Asking {
        let topic = |topic: RequestGroupsTopics| Topic {
            name: if version >= 10 {
                cx.image
                    .topic_by_id(topic.topic_id)
                    .map(|known| known.name.clone())
            } else {
                Some(topic.name)
            },
            id: topic.topic_id,
            partitions: topic.partition_indexes,
        };
        Asking {
            group: group.group_id,
            topics: group
                .topics
                .map(|topics| topics.into_iter().map(topic).collect()),
        }
    }

    /// What the group is asked: topics that are known.
    fn names(&self) -> Option<Vec<(Text, Vec<i32>)>> {
        let topics = self.topics.as_ref()?.iter();
        Some(
            topics
                .filter_map(|topic| Some((topic.name.clone()?, topic.partitions.clone())))
                .collect(),
        )
    }
}

type Asked = (Asking, Option<GroupOffsets>);

fn respond(cx: &Context<'_>, header: &RequestHeader, asked: Vec<Asked>, answer: &mut Answer<'_>) {
    let version = header.api_version;
    let mut groups: Vec<ResponseGroups> = asked
        .into_iter()
        .map(|(asking, offsets)| group(cx, version, asking, offsets))
        .collect();
    let response = if version >= 8 {
        Response {
            groups,
            ..Response::default()
        }
    } else {
        let only = groups.pop().unwrap_or_default();
        Response {
            topics: only.topics.into_iter().map(old_topic).collect(),
            error_code: only.error_code,
            ..Response::default()
        }
    };
    answer.write(header, |out| response.encode(out, version));
}

fn group(
    cx: &Context<'_>,
    version: i16,
    asking: Asking,
    offsets: Option<GroupOffsets>,
) -> ResponseGroups {
    let offsets = offsets.unwrap_or_else(|| failed(0, ErrorCode::UNKNOWN_SERVER_ERROR));
    let mut found = offsets.topics.into_iter();
    let topics = match asking.topics {
        // v1 has no place for an error of the whole: each partition says it.
        Some(topics) if offsets.code.is_error() && version < 2 => topics
            .into_iter()
            .map(|topic| without_offsets(topic, offsets.code))
            .collect(),
        _ if offsets.code.is_error() => Vec::new(),
        Some(topics) => topics
            .into_iter()
            .map(|topic| match &topic.name {
                None => without_offsets(topic, ErrorCode::UNKNOWN_TOPIC_ID),
                Some(_) => {
                    let partitions = found
                        .next()
                        .map_or_else(Vec::new, |(_, partitions)| partitions);
                    with_offsets(topic.name.unwrap_or_default(), topic.id, partitions)
                }
            })
            .collect(),
        None => found
            .filter_map(|(name, partitions)| {
                let id = cx.image.topic(&name).map(|topic| topic.id);
                // A topic that is gone has no id to be named by.
                let id = if version >= 10 { id? } else { Uuid::ZERO };
                Some(with_offsets(name, id, partitions))
            })
            .collect(),
    };
    ResponseGroups {
        group_id: asking.group,
        topics,
        error_code: offsets.code.0,
    }
}

fn with_offsets(name: Text, topic_id: Uuid, partitions: Vec<OffsetOf>) -> ResponseGroupsTopics {
    let partitions = partitions
        .into_iter()
        .map(|of| ResponseGroupsTopicsPartitions {
            partition_index: of.partition,
            committed_offset: of.offset,
            committed_leader_epoch: of.leader_epoch,
            metadata: Some(of.metadata),
            error_code: ErrorCode::NONE.0,
        });
    ResponseGroupsTopics {
        name,
        topic_id,
        partitions: partitions.collect(),
    }
}

fn without_offsets(topic: Topic, code: ErrorCode) -> ResponseGroupsTopics {
    let partitions = topic.partitions.into_iter();
    let partitions = partitions.map(|partition_index| ResponseGroupsTopicsPartitions {
        partition_index,
        committed_offset: -1,
        committed_leader_epoch: -1,
        metadata: Some(Text::empty()),
        error_code: code.0,
    });
    ResponseGroupsTopics {
        name: topic.name.unwrap_or_default(),
        topic_id: topic.id,
        partitions: partitions.collect(),
    }
}

fn old_topic(topic: ResponseGroupsTopics) -> ResponseTopics {
    let partitions = topic.partitions.into_iter();
    let partitions = partitions.map(|partition| ResponseTopicsPartitions {
        partition_index: partition.partition_index,
        committed_offset: partition.committed_offset,
        committed_leader_epoch: partition.committed_leader_epoch,
        metadata: partition.metadata,
        error_code: partition.error_code,
    });
    ResponseTopics {
        name: topic.name,
        partitions: partitions.collect(),
    }
}
