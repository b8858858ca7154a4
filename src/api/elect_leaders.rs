//! ElectLeaders (key 43), versions 0 to 2. v1 unclean elections; v2 flexible. Rules: D-10, as one broker answers: who is the only replica
//! leads already, or can't.

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::ids::Text;
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::elect_leaders::{
    Request, Response, ResponseReplicaElectionResults,
    ResponseReplicaElectionResultsPartitionResult,
};
use corelog_wire::primitives::{DecodeError, Reader};

use super::{Answer, Context, Parts, Split};

const PREFERRED: i8 = 0;
const UNCLEAN: i8 = 1;

pub fn split(
    cx: &Context<'_>,
    header: &RequestHeader,
    body: Bytes,
    _parts: &mut Parts,
    answer: &mut Answer<'_>,
) -> Result<Split, DecodeError> {
    let request = Request::decode(&mut Reader::new(body), header.api_version)?;
    let response = if (PREFERRED..=UNCLEAN).contains(&request.election_type) {
        Response {
            replica_election_results: results(cx, &request),
            ..Response::default()
        }
    } else {
        Response {
            error_code: ErrorCode::INVALID_REQUEST.0,
            ..Response::default()
        }
    };
    answer.write(header, |out| response.encode(out, header.api_version));
    Ok(Split::Ready)
}

fn results(cx: &Context<'_>, request: &Request) -> Vec<ResponseReplicaElectionResults> {
    let Some(asked) = &request.topic_partitions else {
        return all(cx, request.election_type);
    };
    let topics = asked.iter().map(|topic| {
        let partitions = topic.partitions.iter();
        let results =
            partitions.map(|partition| elect(cx, request.election_type, &topic.topic, *partition));
        ResponseReplicaElectionResults {
            topic: topic.topic.clone(),
            partition_result: results.collect(),
        }
    });
    topics.collect()
}

/// Of all partitions, those that need an election: the others go without saying.
fn all(cx: &Context<'_>, election: i8) -> Vec<ResponseReplicaElectionResults> {
    let topics = cx.image.sorted_topics().into_iter().map(|topic| {
        let results = (0_i32..)
            .take(topic.partitions.len())
            .map(|partition| elect(cx, election, &topic.name, partition));
        let not_needed = ErrorCode::ELECTION_NOT_NEEDED.0;
        ResponseReplicaElectionResults {
            topic: topic.name.clone(),
            partition_result: results.filter(|own| own.error_code != not_needed).collect(),
        }
    });
    topics
        .filter(|topic| !topic.partition_result.is_empty())
        .collect()
}

fn elect(
    cx: &Context<'_>,
    election: i8,
    topic: &Text,
    partition: i32,
) -> ResponseReplicaElectionResultsPartitionResult {
    let (code, message) = match cx.image.topic(topic) {
        None => {
            let message = format!("No such topic as {topic}");
            (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, Text::from(message))
        }
        Some(known) => {
            let index = usize::try_from(partition).unwrap_or(usize::MAX);
            match known.partitions.get(index) {
                None => {
                    let message = format!("No such partition as {topic}-{partition}");
                    (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, Text::from(message))
                }
                Some(meta) => outcome(election, meta.leader),
            }
        }
    };
    ResponseReplicaElectionResultsPartitionResult {
        partition_id: partition,
        error_code: code.0,
        error_message: Some(message),
    }
}

fn outcome(election: i8, leader: i32) -> (ErrorCode, Text) {
    let (code, message) = if leader >= 0 {
        let message = "Leader election not needed for topic partition.";
        (ErrorCode::ELECTION_NOT_NEEDED, message)
    } else if election == PREFERRED {
        let message = "The preferred leader was not available.";
        (ErrorCode::PREFERRED_LEADER_NOT_AVAILABLE, message)
    } else {
        let message = "Eligible topic partition leaders are not available.";
        (ErrorCode::ELIGIBLE_LEADERS_NOT_AVAILABLE, message)
    };
    (code, Text::from_static(message))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, call};
    use super::*;
    use corelog_wire::messages::elect_leaders::RequestTopicPartitions;

    fn ask(bench: &Bench, version: i16, request: &Request) -> Response {
        call(
            bench,
            43,
            version,
            |out| request.encode(out, version),
            |reader| Response::decode(reader, version),
        )
    }

    #[test]
    fn d10_who_leads_needs_no_election() {
        let bench = Bench::new().topic("a", 1);
        let of = |topic: &'static str, partitions| RequestTopicPartitions {
            topic: Text::from_static(topic),
            partitions,
        };
        for version in 0..=2 {
            let request = Request {
                topic_partitions: Some(vec![of("a", vec![0, 1]), of("b", vec![0])]),
                ..Request::default()
            };
            let response = ask(&bench, version, &request);
            let results = response.replica_election_results.iter();
            let codes: Vec<i16> = results
                .flat_map(|topic| topic.partition_result.iter().map(|own| own.error_code))
                .collect();
            assert_eq!(codes, [84, 3, 3]);
        }
        let everything = ask(
            &bench,
            2,
            &Request {
                topic_partitions: None,
                ..Request::default()
            },
        );
        assert!(everything.replica_election_results.is_empty());
        let unknown = Request {
            election_type: 2,
            ..Request::default()
        };
        assert_eq!(
            ask(&bench, 1, &unknown).error_code,
            ErrorCode::INVALID_REQUEST.0
        );
    }
}
