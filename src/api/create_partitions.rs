//! CreatePartitions (key 37), versions 0 to 3. v2 flexible. Rules: D-3.

use bytes::Bytes;
use corelog_shards::controller;
use corelog_shards::controller::request::{Ask, CreatePartitions, MorePartitions};
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::create_partitions::{
    Request, RequestTopics, Response, ResponseResults,
};
use corelog_wire::primitives::{DecodeError, Reader, Text};

use super::{Answer, Context, Parts, Split, asked};

pub fn split(
    _cx: &Context<'_>,
    header: &RequestHeader,
    body: Bytes,
    parts: &mut Parts,
    answer: &mut Answer<'_>,
) -> Result<Split, DecodeError> {
    let request = Request::decode(&mut Reader::new(body), header.api_version)?;
    let names: Vec<Text> = request
        .topics
        .iter()
        .map(|topic| topic.name.clone())
        .collect();
    if names.is_empty() {
        respond(header, Vec::new(), answer);
        return Ok(Split::Ready);
    }
    let grow = CreatePartitions {
        topics: request.topics.into_iter().map(more).collect(),
        validate_only: request.validate_only,
    };
    let header = header.clone();
    Ok(asked::ask(
        parts,
        request.timeout_ms,
        Ask::CreatePartitions(grow),
        move |_, reply, answer| {
            let controller::Reply::CreatePartitions(entries) = reply else {
                return;
            };
            let mut results: Vec<ResponseResults> = Vec::with_capacity(entries.len());
            for (name, entry) in names.into_iter().zip(entries) {
                // A name that stands twice is refused once.
                if results.iter().any(|result| result.name == name) {
                    continue;
                }
                let refusal = entry.err();
                results.push(ResponseResults {
                    name,
                    error_code: refusal.as_ref().map_or(0, |refusal| refusal.code.0),
                    error_message: refusal.and_then(|refusal| refusal.message),
                });
            }
            respond(&header, results, answer);
        },
    ))
}

fn more(topic: RequestTopics) -> MorePartitions {
    MorePartitions {
        name: topic.name,
        count: topic.count,
        assignments: topic.assignments.map(|list| {
            list.into_iter()
                .map(|assignment| assignment.broker_ids)
                .collect()
        }),
    }
}

fn respond(header: &RequestHeader, results: Vec<ResponseResults>, answer: &mut Answer<'_>) {
    let response = Response {
        throttle_time_ms: 0,
        results,
    };
    answer.write(header, |out| response.encode(out, header.api_version));
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, call};
    use super::*;
    use corelog_shards::base::error_code::ErrorCode;

    #[test]
    fn d3_every_version_adds_partitions() {
        for version in 0..=3 {
            let bench = Bench::new().topic("a", 1);
            let topic = |name: &'static str, count| RequestTopics {
                name: Text::from_static(name),
                count,
                assignments: None,
            };
            let request = Request {
                topics: vec![topic("a", 3), topic("b", 3)],
                timeout_ms: 1000,
                validate_only: false,
            };
            let response = call(
                &bench,
                37,
                version,
                |out| request.encode(out, version),
                |reader| Response::decode(reader, version),
            );
            let codes: Vec<i16> = response
                .results
                .iter()
                .map(|result| result.error_code)
                .collect();
            assert_eq!(codes, [0, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0]);
            let topic = bench.image().topic("a").expect("there").clone();
            assert_eq!(topic.partitions.len(), 3);
        }
    }
}
