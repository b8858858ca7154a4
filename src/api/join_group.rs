//! JoinGroup (key 11), versions 0 to 9.
//!
//! v1 rebalance timeout; v4 MEMBER_ID_REQUIRED; v5 static members; v6 flexible; v7 protocol type in the response; v8 a reason; v9
//! SkipAssignment. Rules: J-1 to J-5, J-9.

use bytes::Bytes;
use corelog_shards::base::ids::Text;
use corelog_shards::group::Reply;
use corelog_shards::group::request::{self, Join, Joined, Protocol};
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::join_group::{Request, Response, ResponseMembers};
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
            respond(header, Joined::error(code, request.member_id), answer);
            return Ok(Split::Ready);
        }
    };
    let protocols = request.protocols.into_iter().map(|protocol| Protocol {
        name: protocol.name,
        metadata: protocol.metadata,
    });
    let join = Join {
        home,
        group: request.group_id,
        member_id: request.member_id,
        instance_id: request.group_instance_id,
        client_id: header.client_id.clone().unwrap_or_default(),
        client_host: coordinators::client_host(cx),
        session_timeout_ms: request.session_timeout_ms,
        rebalance_timeout_ms: request.rebalance_timeout_ms,
        protocol_type: request.protocol_type,
        protocols: protocols.collect(),
        needs_known_id: header.api_version >= 4,
        may_skip_assignment: header.api_version >= 9,
    };
    let first = parts.len();
    parts.push((shard, coordinators::part(request::Request::Join(join))));
    let header = header.clone();
    Ok(coordinators::wait(
        parts,
        first,
        move |_, replies, answer| {
            for reply in replies {
                if let Reply::Joined(joined) = reply {
                    respond(&header, joined, answer);
                }
            }
        },
    ))
}

fn respond(header: &RequestHeader, joined: Joined, answer: &mut Answer<'_>) {
    let version = header.api_version;
    let response = Response {
        error_code: joined.code.0,
        generation_id: joined.generation,
        protocol_type: joined.protocol_type,
        // Before v7 there is no null.
        protocol_name: joined.protocol.or((version < 7).then(Text::empty)),
        leader: joined.leader,
        skip_assignment: joined.skip_assignment,
        member_id: joined.member_id,
        members: joined
            .members
            .into_iter()
            .map(|member| ResponseMembers {
                member_id: member.member_id,
                group_instance_id: member.instance_id,
                metadata: member.metadata,
            })
            .collect(),
        ..Response::default()
    };
    answer.write(header, |out| response.encode(out, version));
}
