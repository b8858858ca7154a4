//! LeaveGroup (key 13), versions 0 to 5. v3 several members, static ones too; v4 flexible; v5 reasons. Rules: J-8.

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::ids::Text;
use corelog_shards::group::Reply;
use corelog_shards::group::request::{self, Leave, Left};
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::leave_group::{Request, Response, ResponseMembers};
use corelog_wire::primitives::{DecodeError, Reader};

use super::{Answer, Context, Parts, Split, coordinators};

type Identity = (Text, Option<Text>);

pub fn split(
    cx: &Context<'_>,
    header: &RequestHeader,
    body: Bytes,
    parts: &mut Parts,
    answer: &mut Answer<'_>,
) -> Result<Split, DecodeError> {
    let request = Request::decode(&mut Reader::new(body), header.api_version)?;
    let members: Vec<Identity> = if header.api_version >= 3 {
        let members = request.members.into_iter();
        members
            .map(|member| (member.member_id, member.group_instance_id))
            .collect()
    } else {
        vec![(request.member_id, None)]
    };
    let (shard, home) = match coordinators::home(cx, &request.group_id) {
        Ok(home) => home,
        Err(code) => {
            respond(header, code, Vec::new(), answer);
            return Ok(Split::Ready);
        }
    };
    let leave = Leave {
        home,
        group: request.group_id,
        members: members.clone(),
    };
    let first = parts.len();
    parts.push((shard, coordinators::part(request::Request::Leave(leave))));
    let header = header.clone();
    Ok(coordinators::wait(
        parts,
        first,
        move |_, replies, answer| {
            for reply in replies {
                if let Reply::Left(left) = reply {
                    answer_left(&header, &members, left, answer);
                }
            }
        },
    ))
}

fn answer_left(header: &RequestHeader, members: &[Identity], left: Left, answer: &mut Answer<'_>) {
    if left.code.is_error() {
        respond(header, left.code, Vec::new(), answer);
        return;
    }
    // Before v3 the one member's outcome is that of the request.
    let only = left.members.first().copied().unwrap_or(ErrorCode::NONE);
    let code = if header.api_version < 3 {
        only
    } else {
        ErrorCode::NONE
    };
    let members = members.iter().zip(left.members);
    let members = members.map(|((member_id, instance_id), code)| ResponseMembers {
        member_id: member_id.clone(),
        group_instance_id: instance_id.clone(),
        error_code: code.0,
    });
    respond(header, code, members.collect(), answer);
}

fn respond(
    header: &RequestHeader,
    code: ErrorCode,
    members: Vec<ResponseMembers>,
    answer: &mut Answer<'_>,
) {
    let response = Response {
        error_code: code.0,
        members,
        ..Response::default()
    };
    answer.write(header, |out| response.encode(out, header.api_version));
}
