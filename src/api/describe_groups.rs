//! DescribeGroups (key 15), versions 0 to 6. v3 allowed operations; v4 static members; v5 flexible; v6 GROUP_ID_NOT_FOUND. Rules: J-12.

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::ids::Text;
use corelog_shards::group::Reply;
use corelog_shards::group::request::{self, Described, Named};
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::describe_groups::{
    Request, Response, ResponseGroups, ResponseGroupsMembers,
};
use corelog_wire::primitives::{DecodeError, Reader};

use super::{Answer, Context, Parts, Split, coordinators, topology};

pub fn split(
    cx: &Context<'_>,
    header: &RequestHeader,
    body: Bytes,
    parts: &mut Parts,
    answer: &mut Answer<'_>,
) -> Result<Split, DecodeError> {
    let request = Request::decode(&mut Reader::new(body), header.api_version)?;
    let operations = if request.include_authorized_operations {
        topology::GROUP_OPERATIONS
    } else {
        topology::OPERATIONS_UNASKED
    };
    let (first, mut groups) = (parts.len(), Vec::with_capacity(request.groups.len()));
    for (at, group) in (0_u32..).zip(request.groups) {
        let mut described = ResponseGroups {
            group_id: group.clone(),
            authorized_operations: operations,
            ..ResponseGroups::default()
        };
        match coordinators::home(cx, &group) {
            Ok((shard, home)) => {
                let named = Named { at, home, group };
                coordinators::cut(
                    parts,
                    first,
                    shard,
                    named,
                    entries,
                    request::Request::Describe,
                );
            }
            Err(code) => described.error_code = code.0,
        }
        groups.push(described);
    }
    if parts.len() == first {
        respond(header, groups, answer);
        return Ok(Split::Ready);
    }
    let header = header.clone();
    Ok(coordinators::wait(
        parts,
        first,
        move |_, replies, answer| {
            for reply in replies {
                let Reply::Described(all) = reply else {
                    continue;
                };
                for described in all {
                    let at = described.at as usize;
                    fill(&mut groups[at], described, header.api_version);
                }
            }
            respond(&header, groups, answer);
        },
    ))
}

fn entries(request: &mut request::Request) -> Option<&mut Vec<Named>> {
    match request {
        request::Request::Describe(entries) => Some(entries),
        _ => None,
    }
}

fn fill(group: &mut ResponseGroups, described: Described, version: i16) {
    let is_unknown = described.code == ErrorCode::GROUP_ID_NOT_FOUND;
    // Older clients see a dead group, and no error.
    group.error_code = if is_unknown && version < 6 {
        0
    } else {
        described.code.0
    };
    if is_unknown {
        group.error_message = Some(Text::from(format!("Group {} not found.", group.group_id)));
    }
    group.group_state = Text::from_static(described.state);
    group.protocol_type = described.protocol_type;
    group.protocol_data = described.protocol;
    let members = described.members.into_iter();
    let members = members.map(|member| ResponseGroupsMembers {
        member_id: member.member_id,
        group_instance_id: member.instance_id,
        client_id: member.client_id,
        client_host: member.client_host,
        member_metadata: member.metadata,
        member_assignment: member.assignment,
    });
    group.members = members.collect();
}

fn respond(header: &RequestHeader, groups: Vec<ResponseGroups>, answer: &mut Answer<'_>) {
    let response = Response {
        groups,
        ..Response::default()
    };
    answer.write(header, |out| response.encode(out, header.api_version));
}
