//! OffsetDelete (key 47), version 0. Rules: J-12.

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::group::Reply;
use corelog_shards::group::request::{self, DeleteOffsets};
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::offset_delete::{
    Request, Response, ResponseTopics, ResponseTopicsPartitions,
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
    let (mut response, mut places, mut entries) = (Response::default(), Vec::new(), Vec::new());
    for topic in request.topics {
        let count = cx
            .image
            .topic(&topic.name)
            .map_or(0, |known| known.partitions.len());
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in topic.partitions {
            let index = usize::try_from(asked.partition_index).unwrap_or(usize::MAX);
            let mut code = ErrorCode::NONE;
            if index < count {
                places.push((response.topics.len(), partitions.len()));
                entries.push((
                    entries.len() as u32,
                    topic.name.clone(),
                    asked.partition_index,
                ));
            } else {
                code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
            }
            partitions.push(ResponseTopicsPartitions {
                partition_index: asked.partition_index,
                error_code: code.0,
            });
        }
        response.topics.push(ResponseTopics {
            name: topic.name,
            partitions,
        });
    }
    let (shard, home) = match coordinators::home(cx, &request.group_id) {
        Ok(home) => home,
        Err(code) => {
            respond(header, failed(code), answer);
            return Ok(Split::Ready);
        }
    };
    let delete = DeleteOffsets {
        home,
        group: request.group_id,
        entries,
    };
    let first = parts.len();
    parts.push((
        shard,
        coordinators::part(request::Request::DeleteOffsets(delete)),
    ));
    let header = header.clone();
    Ok(coordinators::wait(
        parts,
        first,
        move |_, replies, answer| {
            for reply in replies {
                let Reply::OffsetsDeleted(deleted) = reply else {
                    continue;
                };
                if deleted.code.is_error() {
                    response = failed(deleted.code);
                    break;
                }
                for (at, code) in deleted.entries {
                    let (topic, partition): (usize, usize) = places[at as usize];
                    response.topics[topic].partitions[partition].error_code = code.0;
                }
            }
            respond(&header, response, answer);
        },
    ))
}

/// An error of the whole comes without topics.
fn failed(code: ErrorCode) -> Response {
    Response {
        error_code: code.0,
        ..Response::default()
    }
}

fn respond(header: &RequestHeader, response: Response, answer: &mut Answer<'_>) {
    answer.write(header, |out| response.encode(out, header.api_version));
}
