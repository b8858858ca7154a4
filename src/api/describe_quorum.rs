//! DescribeQuorum (key 55), versions 0 to 2. Flexible. v1 times; v2 messages, directories and nodes. Rules: D-13; the one controller is all
//! there is of the quorum: it has fetched everything just now.

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::ids::Text;
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::describe_quorum::{
    Request, Response, ResponseNodes, ResponseNodesListeners, ResponseTopics,
    ResponseTopicsPartitions, ResponseTopicsPartitionsCurrentVoters,
};
use corelog_wire::primitives::{DecodeError, Reader};

use super::{Answer, Context, Parts, Split};

const METADATA_TOPIC: &str = "__cluster_metadata";

pub fn split(
    cx: &Context<'_>,
    header: &RequestHeader,
    body: Bytes,
    _parts: &mut Parts,
    answer: &mut Answer<'_>,
) -> Result<Split, DecodeError> {
    let request = Request::decode(&mut Reader::new(body), header.api_version)?;
    let response = describe(cx, &request);
    answer.write(header, |out| response.encode(out, header.api_version));
    Ok(Split::Ready)
}

fn describe(cx: &Context<'_>, request: &Request) -> Response {
    let names_the_log = matches!(
        request.topics.as_slice(),
        [topic] if &*topic.topic_name == METADATA_TOPIC
            && matches!(topic.partitions.as_slice(), [only] if only.partition_index == 0)
    );
    if names_the_log {
        return quorum(cx);
    }
    let unknown = request.topics.iter().map(|topic| ResponseTopics {
        topic_name: topic.topic_name.clone(),
        partitions: topic
            .partitions
            .iter()
            .map(|partition| ResponseTopicsPartitions {
                partition_index: partition.partition_index,
                error_code: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0,
                ..ResponseTopicsPartitions::default()
            })
            .collect(),
    });
    Response {
        topics: unknown.collect(),
        ..Response::default()
    }
}

fn quorum(cx: &Context<'_>) -> Response {
    let end = cx.image.offset + 1;
    let voter = ResponseTopicsPartitionsCurrentVoters {
        replica_id: cx.broker.node_id,
        log_end_offset: end,
        last_fetch_timestamp: cx.now.wall_ms,
        last_caught_up_timestamp: cx.now.wall_ms,
        ..ResponseTopicsPartitionsCurrentVoters::default()
    };
    let partition = ResponseTopicsPartitions {
        partition_index: 0,
        leader_id: cx.broker.node_id,
        leader_epoch: cx.image.epoch,
        high_watermark: end,
        current_voters: vec![voter],
        ..ResponseTopicsPartitions::default()
    };
    Response {
        topics: vec![ResponseTopics {
            topic_name: Text::from_static(METADATA_TOPIC),
            partitions: vec![partition],
        }],
        nodes: vec![ResponseNodes {
            node_id: cx.broker.node_id,
            listeners: listeners(cx),
        }],
        ..Response::default()
    }
}

fn listeners(cx: &Context<'_>) -> Vec<ResponseNodesListeners> {
    let Some(controller) = cx.image.controllers.get(&cx.broker.node_id) else {
        return Vec::new();
    };
    let endpoints = controller.endpoints.iter();
    endpoints
        .map(|endpoint| ResponseNodesListeners {
            name: endpoint.name.clone(),
            host: endpoint.host.clone(),
            port: endpoint.port,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, call};
    use super::*;
    use corelog_wire::messages::describe_quorum::{RequestTopics, RequestTopicsPartitions};

    fn ask(bench: &Bench, version: i16, topic: &'static str) -> Response {
        let request = Request {
            topics: vec![RequestTopics {
                topic_name: Text::from_static(topic),
                partitions: vec![RequestTopicsPartitions { partition_index: 0 }],
            }],
        };
        call(
            bench,
            55,
            version,
            |out| request.encode(out, version),
            |reader| Response::decode(reader, version),
        )
    }

    #[test]
    fn the_one_controller_leads_itself() {
        let bench = Bench::new();
        for version in 0..=2 {
            let response = ask(&bench, version, METADATA_TOPIC);
            let partition = &response.topics[0].partitions[0];
            assert_eq!((response.error_code, partition.error_code), (0, 0));
            assert_eq!(
                (partition.leader_id, partition.current_voters.len()),
                (1, 1)
            );
            assert_eq!(partition.high_watermark, bench.image().offset + 1);
            assert_eq!(response.nodes.len(), usize::from(version >= 2));
        }
        let other = ask(&bench, 2, "t");
        assert_eq!(other.topics[0].partitions[0].error_code, 3);
    }
}
