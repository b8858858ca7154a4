//! AlterReplicaLogDirs (key 34), versions 1 and 2. v2 flexible. Rules: D-8.
//!
//! A replica that is in the directory already has been moved. Moving one to another directory of this broker is refused: INVALID_REQUEST.

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::ids::TopicPartition;
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::alter_replica_log_dirs::{
    Request, Response, ResponseResults, ResponseResultsPartitions,
};
use corelog_wire::primitives::{DecodeError, Reader};

use super::{Answer, Context, Parts, Split};

pub fn split(
    cx: &Context<'_>,
    header: &RequestHeader,
    body: Bytes,
    _parts: &mut Parts,
    answer: &mut Answer<'_>,
) -> Result<Split, DecodeError> {
    let request = Request::decode(&mut Reader::new(body), header.api_version)?;
    let mut results: Vec<ResponseResults> = Vec::new();
    for dir in &request.dirs {
        for topic in &dir.topics {
            let moved = topic
                .partitions
                .iter()
                .map(|partition| ResponseResultsPartitions {
                    partition_index: *partition,
                    error_code: alter(cx, &dir.path, &topic.name, *partition).0,
                });
            let earlier = results.iter_mut().find(|own| own.topic_name == topic.name);
            match earlier {
                Some(earlier) => earlier.partitions.extend(moved),
                None => results.push(ResponseResults {
                    topic_name: topic.name.clone(),
                    partitions: moved.collect(),
                }),
            }
        }
    }
    let response = Response {
        results,
        ..Response::default()
    };
    answer.write(header, |out| response.encode(out, header.api_version));
    Ok(Split::Ready)
}

fn alter(cx: &Context<'_>, path: &str, topic: &str, partition: i32) -> ErrorCode {
    let wanted = cx
        .directories
        .list
        .iter()
        .position(|own| &*own.path == path);
    let Some(wanted) = wanted else {
        return ErrorCode::LOG_DIR_NOT_FOUND;
    };
    if cx.directories.list[wanted].offline {
        return ErrorCode::KAFKA_STORAGE_ERROR;
    }
    let topic_id = cx.image.topic(topic).map(|topic| topic.id);
    let id = topic_id.map(|topic_id| TopicPartition {
        topic_id,
        partition,
    });
    let Some(id) = id.filter(|id| cx.image.partition(*id).is_some()) else {
        return ErrorCode::REPLICA_NOT_AVAILABLE;
    };
    let present = cx.directories.of.get(&id).copied().map_or(0, usize::from);
    if present == wanted {
        ErrorCode::NONE
    } else {
        ErrorCode::INVALID_REQUEST
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, call};
    use super::*;
    use corelog_shards::base::ids::Text;
    use corelog_wire::messages::alter_replica_log_dirs::{RequestDirs, RequestDirsTopics};

    #[test]
    fn d8_a_directory_that_there_is_not() {
        let request = Request {
            dirs: vec![RequestDirs {
                path: Text::from_static("/nowhere"),
                topics: vec![RequestDirsTopics {
                    name: Text::from_static("a"),
                    partitions: vec![0, 1],
                }],
            }],
        };
        for version in 1..=2 {
            let response = call(
                &Bench::new().topic("a", 1),
                34,
                version,
                |out| request.encode(out, version),
                |reader| Response::decode(reader, version),
            );
            let codes: Vec<i16> = response.results[0]
                .partitions
                .iter()
                .map(|own| own.error_code)
                .collect();
            assert_eq!(codes, [57, 57]);
        }
    }
}
