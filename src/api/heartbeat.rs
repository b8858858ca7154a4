//! Heartbeat (key 12), versions 0 to 4. v3 static members; v4 flexible. Rules: J-7.

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::group::Reply;
use corelog_shards::group::request::{self, Heartbeat};
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::heartbeat::{Request, Response};
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
    let (shard, home) = match coordinators::home(cx, &request.group_id) {
        Ok(home) => home,
        Err(code) => {
            respond(header, code, answer);
            return Ok(Split::Ready);
        }
    };
    let heartbeat = Heartbeat {
        home,
        group: request.group_id,
        generation: request.generation_id,
        member_id: request.member_id,
        instance_id: request.group_instance_id,
    };
    let first = parts.len();
    parts.push((
        shard,
        coordinators::part(request::Request::Heartbeat(heartbeat)),
    ));
    let header = header.clone();
    Ok(coordinators::wait(
        parts,
        first,
        move |_, replies, answer| {
            for reply in replies {
                if let Reply::Heartbeat(code) = reply {
                    respond(&header, code, answer);
                }
            }
        },
    ))
}

fn respond(header: &RequestHeader, code: ErrorCode, answer: &mut Answer<'_>) {
    let response = Response {
        error_code: code.0,
        ..Response::default()
    };
    answer.write(header, |out| response.encode(out, header.api_version));
}
