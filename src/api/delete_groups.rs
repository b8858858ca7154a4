//! DeleteGroups (key 42), versions 0 to 3. v2 flexible; v3 messages. Rules: J-12.

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::group::Reply;
use corelog_shards::group::request::{self, Named};
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::delete_groups::{Request, Response, ResponseResults};
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
    let (first, mut results) = (parts.len(), Vec::with_capacity(request.groups_names.len()));
    for (at, group) in (0_u32..).zip(request.groups_names) {
        let mut code = ErrorCode::NONE;
        match coordinators::home(cx, &group) {
            Ok((shard, home)) => {
                let group = group.clone();
                let named = Named { at, home, group };
                coordinators::cut(
                    parts,
                    first,
                    shard,
                    named,
                    entries,
                    request::Request::Delete,
                );
            }
            Err(refused) => code = refused,
        }
        results.push(ResponseResults {
            group_id: group,
            error_code: code.0,
            error_message: None,
        });
    }
    if parts.len() == first {
        respond(header, results, answer);
        return Ok(Split::Ready);
    }
    let header = header.clone();
    Ok(coordinators::wait(
        parts,
        first,
        move |_, replies, answer| {
            for reply in replies {
                let Reply::Deleted(codes) = reply else {
                    continue;
                };
                for (at, code) in codes {
                    results[at as usize].error_code = code.0;
                }
            }
            respond(&header, results, answer);
        },
    ))
}

fn entries(request: &mut request::Request) -> Option<&mut Vec<Named>> {
    match request {
        request::Request::Delete(entries) => Some(entries),
        _ => None,
    }
}

fn respond(header: &RequestHeader, results: Vec<ResponseResults>, answer: &mut Answer<'_>) {
    let response = Response {
        results,
        ..Response::default()
    };
    answer.write(header, |out| response.encode(out, header.api_version));
}
