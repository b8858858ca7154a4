//! InitProducerId (key 22), versions 0 to 5. v2 flexible; v3 the producer says what it was; v4 PRODUCER_FENCED; v5 as v4.
//!
//! Idempotent producers only: a transactional id gets UNSUPPORTED_VERSION until transactions are built.

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::controller;
use corelog_shards::controller::request::Ask;
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::init_producer_id::{Request, Response};
use corelog_wire::primitives::{DecodeError, Reader};

use super::{Answer, Context, Parts, Split, asked};

/// How long an id may take.
const TIMEOUT_MS: i32 = 5_000;

pub fn split(
    _cx: &Context<'_>,
    header: &RequestHeader,
    body: Bytes,
    parts: &mut Parts,
    answer: &mut Answer<'_>,
) -> Result<Split, DecodeError> {
    let request = Request::decode(&mut Reader::new(body), header.api_version)?;
    if let Some(code) = refusal(&request) {
        respond(header, Err(code), answer);
        return Ok(Split::Ready);
    }
    let header = header.clone();
    Ok(asked::ask(
        parts,
        TIMEOUT_MS,
        Ask::AllocateProducerId,
        move |_, reply, answer| {
            let controller::Reply::ProducerId(id) = reply else {
                return;
            };
            // Producers ask again after this code, and nowhere else.
            respond(
                &header,
                id.map_err(|_| ErrorCode::COORDINATOR_LOAD_IN_PROGRESS),
                answer,
            );
        },
    ))
}

fn refusal(request: &Request) -> Option<ErrorCode> {
    match request.transactional_id.as_deref() {
        Some("") => return Some(ErrorCode::INVALID_REQUEST),
        Some(_) => return Some(ErrorCode::UNSUPPORTED_VERSION),
        None => {}
    }
    // What the producer was is given whole or not at all. Without a transactional id it makes no difference: it gets a new id.
    let half = (request.producer_id == -1) != (request.producer_epoch == -1);
    half.then_some(ErrorCode::INVALID_REQUEST)
}

fn respond(header: &RequestHeader, id: Result<i64, ErrorCode>, answer: &mut Answer<'_>) {
    let response = Response {
        error_code: id.err().unwrap_or(ErrorCode::NONE).0,
        producer_id: id.unwrap_or(-1),
        producer_epoch: if id.is_ok() { 0 } else { -1 },
        ..Response::default()
    };
    answer.write(header, |out| response.encode(out, header.api_version));
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, call};
    use super::*;
    use corelog_shards::base::ids::Text;

    fn ask(bench: &Bench, version: i16, request: &Request) -> (i16, i64, i16) {
        let response = call(
            bench,
            22,
            version,
            |out| request.encode(out, version),
            |reader| Response::decode(reader, version),
        );
        (
            response.error_code,
            response.producer_id,
            response.producer_epoch,
        )
    }

    #[test]
    fn every_producer_gets_an_id_of_its_own() {
        let bench = Bench::new();
        for version in 0..=5 {
            let expected = (0, i64::from(version), 0);
            assert_eq!(ask(&bench, version, &Request::default()), expected);
        }
    }

    #[test]
    fn transactional_ids_are_refused_until_there_are_transactions() {
        let with = |id| Request {
            transactional_id: Some(Text::from_static(id)),
            ..Request::default()
        };
        let bench = Bench::new();
        assert_eq!(
            ask(&bench, 4, &with("")),
            (ErrorCode::INVALID_REQUEST.0, -1, -1)
        );
        assert_eq!(
            ask(&bench, 4, &with("t")),
            (ErrorCode::UNSUPPORTED_VERSION.0, -1, -1)
        );
    }

    #[test]
    fn half_of_what_a_producer_was_is_refused() {
        let request = Request {
            producer_id: 5,
            ..Request::default()
        };
        assert_eq!(
            ask(&Bench::new(), 4, &request).0,
            ErrorCode::INVALID_REQUEST.0
        );
    }
}
