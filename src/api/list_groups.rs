//! ListGroups (key 16), versions 0 to 5. v3 flexible; v4 states; v5 types. Every shard is asked. Rules: J-12.

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::ids::{ShardId, Text};
use corelog_shards::group::Reply;
use corelog_shards::group::request::{self, List, ListedGroup};
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::list_groups::{Request, Response, ResponseGroups};
use corelog_wire::primitives::{DecodeError, Reader};

use super::{Answer, Context, Parts, Split, coordinators};

/// The only type of group that there is.
const CLASSIC: &str = "Classic";

pub fn split(
    cx: &Context<'_>,
    header: &RequestHeader,
    body: Bytes,
    parts: &mut Parts,
    answer: &mut Answer<'_>,
) -> Result<Split, DecodeError> {
    let request = Request::decode(&mut Reader::new(body), header.api_version)?;
    let types = &request.types_filter;
    if !types.is_empty() && !types.iter().any(|name| name.eq_ignore_ascii_case(CLASSIC)) {
        respond(header, ErrorCode::NONE, Vec::new(), answer);
        return Ok(Split::Ready);
    }
    let first = parts.len();
    for shard in 0..cx.image.shards.max(1) {
        let list = List {
            states: request.states_filter.clone(),
        };
        let part = coordinators::part(request::Request::List(list));
        parts.push((ShardId(shard), part));
    }
    let header = header.clone();
    Ok(coordinators::wait(
        parts,
        first,
        move |_, replies, answer| {
            let (mut code, mut groups) = (ErrorCode::NONE, Vec::new());
            for reply in replies {
                let Reply::Listed(listed) = reply else {
                    continue;
                };
                if listed.code.is_error() {
                    code = listed.code;
                }
                groups.extend(listed.groups);
            }
            // The answer does not depend on which owner was faster.
            groups.sort_unstable_by(|a, b| a.group.cmp(&b.group));
            respond(&header, code, groups, answer);
        },
    ))
}

fn respond(
    header: &RequestHeader,
    code: ErrorCode,
    groups: Vec<ListedGroup>,
    answer: &mut Answer<'_>,
) {
    let groups = groups.into_iter().filter(|_| !code.is_error());
    let response = Response {
        error_code: code.0,
        groups: groups
            .map(|group| ResponseGroups {
                group_id: group.group,
                protocol_type: group.protocol_type,
                group_state: Text::from_static(group.state),
                group_type: Text::from_static(CLASSIC),
            })
            .collect(),
        ..Response::default()
    };
    answer.write(header, |out| response.encode(out, header.api_version));
}
