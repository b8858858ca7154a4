//! SyncGroup (key 14), versions 0 to 5. v3 static members; v4 flexible; v5 protocol type and name. Rules: J-6.

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::group::Reply;
use corelog_shards::group::request::{self, Sync, Synced};
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::sync_group::{Request, Response};
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
    // v5 must say both, so that a member of another protocol is not given this one's assignment.
    let says_both = request.protocol_type.is_some() && request.protocol_name.is_some();
    let home = if header.api_version >= 5 && !says_both {
        Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL)
    } else {
        coordinators::home(cx, &request.group_id)
    };
    let (shard, home) = match home {
        Ok(home) => home,
        Err(code) => {
            respond(header, Synced::error(code), answer);
            return Ok(Split::Ready);
        }
    };
    let assignments = request.assignments.into_iter();
    let sync = Sync {
        home,
        group: request.group_id,
        generation: request.generation_id,
        member_id: request.member_id,
        instance_id: request.group_instance_id,
        protocol_type: request.protocol_type,
        protocol: request.protocol_name,
        assignments: assignments
            .map(|entry| (entry.member_id, entry.assignment))
            .collect(),
    };
    let first = parts.len();
    parts.push((shard, coordinators::part(request::Request::Sync(sync))));
    let header = header.clone();
    Ok(coordinators::wait(
        parts,
        first,
        move |_, replies, answer| {
            for reply in replies {
                if let Reply::Synced(synced) = reply {
                    respond(&header, synced, answer);
                }
            }
        },
    ))
}

fn respond(header: &RequestHeader, synced: Synced, answer: &mut Answer<'_>) {
    let response = Response {
        error_code: synced.code.0,
        protocol_type: synced.protocol_type,
        protocol_name: synced.protocol,
        assignment: synced.assignment,
        ..Response::default()
    };
    answer.write(header, |out| response.encode(out, header.api_version));
}
