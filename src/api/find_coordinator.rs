//! FindCoordinator (key 10), versions 0 to 6.
//!
//! v1 key types; v3 flexible; v4 several keys; v5 and v6 as v4, v6 with share groups, which this broker does not have yet.
//! Rules: M-10. The first question for a group creates `__consumer_offsets` (M-4) and is answered when it is there; Kafka answers
//! COORDINATOR_NOT_AVAILABLE meanwhile, which only costs the client another round.

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::ids::Text;
use corelog_shards::base::time::Mono;
use corelog_shards::controller::request::{Ask, CreateTopics};
use corelog_shards::group::groups::OFFSETS_TOPIC;
use corelog_shards::part::Reply;
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::find_coordinator::{Request, Response, ResponseCoordinators};
use corelog_wire::primitives::{DecodeError, Reader};

use super::{
    Answer, Context, Joins, Parts, Split, Step, asked, coordinators, internal_topics, topology,
};

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;

/// How long the internal topic may take before the client is told to come back.
const CREATION_TIMEOUT_MS: i32 = 5_000;

pub fn split(
    cx: &Context<'_>,
    header: &RequestHeader,
    body: Bytes,
    parts: &mut Parts,
    answer: &mut Answer<'_>,
) -> Result<Split, DecodeError> {
    let request = Request::decode(&mut Reader::new(body), header.api_version)?;
    let keys = if header.api_version >= 4 {
        request.coordinator_keys
    } else {
        vec![request.key]
    };
    let lookup = Lookup {
        header: header.clone(),
        key_type: request.key_type,
        keys,
    };
    let missing = request.key_type == GROUP && cx.image.topic(OFFSETS_TOPIC).is_none();
    if !missing || lookup.keys.is_empty() {
        lookup.respond(cx, answer);
        return Ok(Split::Ready);
    }
    let topic = internal_topics::new_topic(cx.broker, &Text::from_static(OFFSETS_TOPIC));
    let create = CreateTopics {
        topics: vec![topic],
        validate_only: false,
    };
    asked::push(parts, CREATION_TIMEOUT_MS, Ask::CreateTopics(create));
    Ok(Split::Wait(super::Pending::other(lookup)))
}

/// What is looked for; waits for the internal topic if it is not there.
struct Lookup {
    header: RequestHeader,
    key_type: i8,
    keys: Vec<Text>,
}

impl Lookup {
    fn respond(&self, cx: &Context<'_>, answer: &mut Answer<'_>) {
        let mut found: Vec<ResponseCoordinators> =
            self.keys.iter().map(|key| self.find(cx, key)).collect();
        let version = self.header.api_version;
        let response = if version >= 4 {
            Response {
                coordinators: found,
                ..Response::default()
            }
        } else {
            let only = found.pop().unwrap_or_default();
            Response {
                error_code: only.error_code,
                error_message: only.error_message,
                node_id: only.node_id,
                host: only.host,
                port: only.port,
                ..Response::default()
            }
        };
        answer.write(&self.header, |out| response.encode(out, version));
    }

    fn find(&self, cx: &Context<'_>, key: &Text) -> ResponseCoordinators {
        let refused = |code: ErrorCode, message: &'static str| ResponseCoordinators {
            key: key.clone(),
            node_id: -1,
            host: Text::empty(),
            port: -1,
            error_code: code.0,
            error_message: Some(Text::from_static(message)),
        };
        match self.key_type {
            GROUP => {}
            TRANSACTION => {
                return refused(
                    ErrorCode::INVALID_REQUEST,
                    "This broker does not coordinate transactions.",
                );
            }
            _ => return refused(ErrorCode::INVALID_REQUEST, "Unknown coordinator type."),
        }
        let leader = coordinators::partition(cx, OFFSETS_TOPIC, key).map(|(_, meta)| meta.leader);
        let node = leader.and_then(|id| node(cx, id));
        match node {
            Some((node_id, host, port)) => ResponseCoordinators {
                key: key.clone(),
                node_id,
                host,
                port,
                error_code: ErrorCode::NONE.0,
                error_message: Some(Text::empty()),
            },
            None => refused(
                ErrorCode::COORDINATOR_NOT_AVAILABLE,
                "The coordinator is not available.",
            ),
        }
    }
}

/// Where a client on this listener reaches a broker.
fn node(cx: &Context<'_>, id: i32) -> Option<(i32, Text, i32)> {
    if id == cx.broker.node_id {
        return Some((id, cx.broker.host.clone(), i32::from(cx.broker.port)));
    }
    let node = topology::node(cx, cx.image.brokers.get(&id)?)?;
    Some((id, node.host, node.port))
}

impl Joins for Lookup {
    /// Whatever the controller says: the topic is there, or the client comes back.
    fn on_reply(
        &mut self,
        cx: &Context<'_>,
        _part: usize,
        reply: Reply,
        _parts: &mut Parts,
        answer: &mut Answer<'_>,
    ) -> Step {
        let Reply::Controller(_) = reply else {
            return Step::Close;
        };
        self.respond(cx, answer);
        Step::Done
    }

    fn deadline(&self) -> Option<Mono> {
        None
    }

    fn on_deadline(&mut self, _: &Context<'_>, _: &mut Parts, _: &mut Answer<'_>) -> Step {
        Step::Wait
    }
}
