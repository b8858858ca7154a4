//! DeleteTopics (key 20), versions 1 to 6.
//!
//! v4 flexible; v5 messages; v6 topics by name or by id. Rules: D-2.

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::controller;
use corelog_shards::controller::request::{Ask, DeleteTopic, DeletedTopic, Refusal};
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::delete_topics::{Request, RequestTopics, Response, ResponseResponses};
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
    let by_name = request
        .topic_names
        .into_iter()
        .map(|name| Ok(DeleteTopic::Name(name)));
    let entries: Vec<Result<DeleteTopic, ResponseResponses>> =
        by_name.chain(request.topics.into_iter().map(key)).collect();
    let keys: Vec<DeleteTopic> = entries.iter().flatten().cloned().collect();
    if keys.is_empty() {
        let refused = entries.into_iter().filter_map(Result::err).collect();
        respond(header, refused, answer);
        return Ok(Split::Ready);
    }
    let header = header.clone();
    Ok(asked::ask(
        parts,
        request.timeout_ms,
        Ask::DeleteTopics(keys),
        move |_, reply, answer| {
            let controller::Reply::DeleteTopics(replies) = reply else {
                return;
            };
            let mut replies = replies.into_iter();
            let results = entries.into_iter().filter_map(|entry| match entry {
                Ok(key) => replies
                    .next()
                    .map(|reply| result(header.api_version, key, reply)),
                Err(refused) => Some(refused),
            });
            respond(&header, results.collect(), answer);
        },
    ))
}

fn key(topic: RequestTopics) -> Result<DeleteTopic, ResponseResponses> {
    let refuse = |message| {
        Err(ResponseResponses {
            name: topic.name.clone(),
            topic_id: topic.topic_id,
            error_code: ErrorCode::INVALID_REQUEST.0,
            error_message: Some(Text::from_static(message)),
        })
    };
    match (&topic.name, topic.topic_id.is_zero()) {
        (Some(name), true) => Ok(DeleteTopic::Name(name.clone())),
        (None, false) => Ok(DeleteTopic::Id(topic.topic_id)),
        (None, true) => refuse("Neither topic name nor id were specified."),
        (Some(_), false) => refuse("You may not specify both topic name and topic id."),
    }
}

fn result(
    version: i16,
    key: DeleteTopic,
    reply: Result<DeletedTopic, Refusal>,
) -> ResponseResponses {
    let refusal = match reply {
        Ok(deleted) => {
            return ResponseResponses {
                name: Some(deleted.name),
                topic_id: deleted.id,
                error_code: ErrorCode::NONE.0,
                error_message: None,
            };
        }
        Err(refusal) => refusal,
    };
    // Clients of these versions do not know the code.
    let code = match refusal.code {
        ErrorCode::TOPIC_DELETION_DISABLED if version < 3 => ErrorCode::INVALID_REQUEST,
        code => code,
    };
    let mut response = ResponseResponses {
        error_code: code.0,
        error_message: refusal.message,
        ..ResponseResponses::default()
    };
    match key {
        DeleteTopic::Name(name) => response.name = Some(name),
        DeleteTopic::Id(id) => response.topic_id = id,
    }
    response
}

fn respond(header: &RequestHeader, responses: Vec<ResponseResponses>, answer: &mut Answer<'_>) {
    let response = Response {
        throttle_time_ms: 0,
        responses,
    };
    answer.write(header, |out| response.encode(out, header.api_version));
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, call};
    use super::*;
    use corelog_wire::primitives::Uuid;

    fn ask(bench: &Bench, version: i16, request: &Request) -> Vec<(Option<String>, i16)> {
        let response = call(
            bench,
            20,
            version,
            |out| request.encode(out, version),
            |reader| Response::decode(reader, version),
        );
        let entry = |entry: &ResponseResponses| {
            (
                entry.name.as_ref().map(ToString::to_string),
                entry.error_code,
            )
        };
        response.responses.iter().map(entry).collect()
    }

    #[test]
    fn d2_names_in_the_older_versions_are_deleted() {
        for version in 1..=5 {
            let bench = Bench::new().topic("a", 1);
            let request = Request {
                topic_names: vec![Text::from_static("a"), Text::from_static("b")],
                timeout_ms: 1000,
                ..Request::default()
            };
            let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0;
            let expected = [(Some("a".to_owned()), 0), (Some("b".to_owned()), unknown)];
            assert_eq!(ask(&bench, version, &request), expected);
            assert!(bench.image().topic("a").is_none());
        }
    }

    #[test]
    fn d2_version_6_deletes_by_name_or_id_but_not_by_both_or_neither() {
        let bench = Bench::new().topic("a", 1).topic("b", 1);
        let id = bench.image().topic("a").expect("there").id;
        let topic = |name: Option<&'static str>, topic_id| RequestTopics {
            name: name.map(Text::from_static),
            topic_id,
        };
        let request = Request {
            topics: vec![
                topic(None, id),
                topic(Some("b"), Uuid::ZERO),
                topic(None, Uuid::ZERO),
                topic(Some("b"), id),
                topic(None, Uuid([5; 16])),
            ],
            timeout_ms: 1000,
            ..Request::default()
        };
        let invalid = ErrorCode::INVALID_REQUEST.0;
        assert_eq!(
            ask(&bench, 6, &request),
            [
                (Some("a".to_owned()), 0),
                (Some("b".to_owned()), 0),
                (None, invalid),
                (Some("b".to_owned()), invalid),
                (None, ErrorCode::UNKNOWN_TOPIC_ID.0),
            ]
        );
        assert_eq!(bench.image().topic_count(), 0);
    }
}
