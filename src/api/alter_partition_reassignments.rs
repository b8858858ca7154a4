//! AlterPartitionReassignments (key 45), versions 0 and 1. Flexible. v1 may forbid another replication factor. Rules: D-11, as one broker
//! answers: the only assignment that there can be is the one that there is.

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::ids::Text;
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::alter_partition_reassignments::{
    Request, Response, ResponseResponses, ResponseResponsesPartitions,
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
    let responses = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            let replicas = partition.replicas.as_deref();
            let refusal = reassign(cx, &topic.name, partition.partition_index, replicas).err();
            let (code, message) = refusal.map_or((ErrorCode::NONE, None), |refusal| {
                (refusal.0, Some(Text::from(refusal.1)))
            });
            ResponseResponsesPartitions {
                partition_index: partition.partition_index,
                error_code: code.0,
                error_message: message,
            }
        });
        ResponseResponses {
            name: topic.name.clone(),
            partitions: partitions.collect(),
        }
    });
    let response = Response {
        allow_replication_factor_change: request.allow_replication_factor_change,
        responses: responses.collect(),
        ..Response::default()
    };
    answer.write(header, |out| response.encode(out, header.api_version));
    Ok(Split::Ready)
}

type Refusal = (ErrorCode, String);

fn reassign(
    cx: &Context<'_>,
    topic: &str,
    partition: i32,
    replicas: Option<&[i32]>,
) -> Result<(), Refusal> {
    let known = cx.image.topic(topic);
    let index = usize::try_from(partition).unwrap_or(usize::MAX);
    if known.is_none_or(|known| known.partitions.len() <= index) {
        let message = format!("Unable to find partition {topic}:{partition}.");
        return Err((ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, message));
    }
    let Some(replicas) = replicas else {
        let message = "No partition reassignment is in progress.".to_owned();
        return Err((ErrorCode::NO_REASSIGNMENT_IN_PROGRESS, message));
    };
    let invalid = |message: String| Err((ErrorCode::INVALID_REPLICA_ASSIGNMENT, message));
    if replicas.is_empty() {
        return invalid(
            "The manual partition assignment includes an empty replica list.".to_owned(),
        );
    }
    for (at, replica) in replicas.iter().enumerate() {
        if replicas[..at].contains(replica) {
            return invalid(format!(
                "The manual partition assignment includes the broker {replica} more than once."
            ));
        }
        if !cx.image.brokers.contains_key(replica) {
            return invalid(format!(
                "The manual partition assignment includes broker {replica}, but no such broker is registered."
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, call};
    use super::*;
    use corelog_wire::messages::alter_partition_reassignments::{
        RequestTopics, RequestTopicsPartitions,
    };

    #[test]
    fn d11_one_broker_has_one_assignment() {
        let partition = |partition_index, replicas: Option<&[i32]>| RequestTopicsPartitions {
            partition_index,
            replicas: replicas.map(<[i32]>::to_vec),
        };
        let request = Request {
            topics: vec![RequestTopics {
                name: Text::from_static("a"),
                partitions: vec![
                    partition(0, Some(&[1])),
                    partition(0, None),
                    partition(0, Some(&[])),
                    partition(0, Some(&[1, 1])),
                    partition(0, Some(&[2])),
                    partition(9, Some(&[1])),
                ],
            }],
            ..Request::default()
        };
        for version in 0..=1 {
            let response = call(
                &Bench::new().topic("a", 1),
                45,
                version,
                |out| request.encode(out, version),
                |reader| Response::decode(reader, version),
            );
            let codes: Vec<i16> = response.responses[0]
                .partitions
                .iter()
                .map(|own| own.error_code)
                .collect();
            assert_eq!(codes, [0, 85, 39, 39, 39, 3]);
        }
    }
}
