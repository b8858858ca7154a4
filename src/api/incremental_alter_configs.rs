//! IncrementalAlterConfigs (key 44), versions 0 and 1. v1 flexible. Changes single settings of a resource (D-5).

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::controller;
use corelog_shards::controller::request::{AlterConfigs, Ask, Change, ConfigOp, Refusal};
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::incremental_alter_configs::{
    Request, RequestResources, RequestResourcesConfigs, Response, ResponseResponses,
};
use corelog_wire::primitives::{DecodeError, Reader};

use super::altering::{Named, Plan, TIMEOUT_MS, broker_list, check_broker_property};
use super::{Answer, Context, Parts, Split, asked};

pub fn split(
    cx: &Context<'_>,
    header: &RequestHeader,
    body: Bytes,
    parts: &mut Parts,
    answer: &mut Answer<'_>,
) -> Result<Split, DecodeError> {
    let request = Request::decode(&mut Reader::new(body), header.api_version)?;
    let resources = request
        .resources
        .into_iter()
        .map(|named| resource(cx, named));
    let plan = Plan::make(cx, resources, |one_broker, op: &ConfigOp| {
        let new = op.value.as_deref().filter(|_| op.change != Change::Delete);
        check_broker_property(one_broker, &op.name, new)
    });
    if plan.asked.is_empty() {
        respond(header, plan.local.into_iter(), answer);
        return Ok(Split::Ready);
    }
    let alter = AlterConfigs {
        resources: plan.asked,
        validate_only: request.validate_only,
    };
    let (header, local) = (header.clone(), plan.local);
    Ok(asked::ask(
        parts,
        TIMEOUT_MS,
        Ask::IncrementalAlterConfigs(alter),
        move |_, reply, answer| {
            if let controller::Reply::AlterConfigs(replies) = reply {
                respond(&header, Plan::<ConfigOp>::merge(local, replies), answer);
            }
        },
    ))
}

fn resource(
    cx: &Context<'_>,
    resource: RequestResources,
) -> (Named, Result<Vec<ConfigOp>, Refusal>) {
    let named = Named {
        kind: resource.resource_type,
        name: resource.resource_name,
    };
    let ops = resource
        .configs
        .into_iter()
        .map(|config| op(cx, config))
        .collect();
    (named, ops)
}

fn op(cx: &Context<'_>, config: RequestResourcesConfigs) -> Result<ConfigOp, Refusal> {
    let change = match config.config_operation {
        0 => Change::Set,
        1 => Change::Delete,
        2 => Change::Append,
        3 => Change::Subtract,
        unknown => {
            return Err(Refusal::new(
                ErrorCode::INVALID_REQUEST,
                format!("Unknown operation type {unknown}."),
            ));
        }
    };
    Ok(ConfigOp {
        broker_list: broker_list(cx, &config.name),
        name: config.name,
        change,
        value: config.value,
    })
}

fn respond(
    header: &RequestHeader,
    results: impl Iterator<Item = (Named, Option<Refusal>)>,
    answer: &mut Answer<'_>,
) {
    let response = Response {
        throttle_time_ms: 0,
        responses: results
            .map(|(named, refusal)| ResponseResponses {
                error_code: refusal.as_ref().map_or(0, |refusal| refusal.code.0),
                error_message: refusal.and_then(|refusal| refusal.message),
                resource_type: named.kind,
                resource_name: named.name,
            })
            .collect(),
    };
    answer.write(header, |out| response.encode(out, header.api_version));
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, call};
    use super::*;
    use corelog_shards::base::ids::Text;

    fn alter(
        bench: &Bench,
        version: i16,
        resources: &[(i8, &str, &str, i8, &str)],
    ) -> Vec<ErrorCode> {
        let request = Request {
            resources: resources
                .iter()
                .map(
                    |(kind, resource, name, operation, value)| RequestResources {
                        resource_type: *kind,
                        resource_name: Text::from((*resource).to_owned()),
                        configs: vec![RequestResourcesConfigs {
                            name: Text::from((*name).to_owned()),
                            config_operation: *operation,
                            value: Some(Text::from((*value).to_owned())),
                        }],
                    },
                )
                .collect(),
            validate_only: false,
        };
        let response = call(
            bench,
            44,
            version,
            |out| request.encode(out, version),
            |reader| Response::decode(reader, version),
        );
        response
            .responses
            .iter()
            .map(|response| ErrorCode(response.error_code))
            .collect()
    }

    #[test]
    fn d5_every_resource_is_answered_in_its_place_whoever_refused_it() {
        for version in 0..=1 {
            let bench = Bench::new().topic("t", 1);
            let codes = alter(
                &bench,
                version,
                &[
                    (8, "1", "root", 0, "DEBUG"),
                    (2, "t", "retention.ms", 0, "5"),
                    (4, "1", "node.id", 0, "7"),
                    (2, "u", "retention.ms", 0, "5"),
                    (4, "1", "message.max.bytes", 0, "99"),
                ],
            );
            let invalid = ErrorCode::INVALID_REQUEST;
            let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
            assert_eq!(
                codes,
                [invalid, ErrorCode::NONE, invalid, unknown, ErrorCode::NONE]
            );
            let config = bench.image().topic("t").expect("there").config.clone();
            assert_eq!((config.retention_ms, config.max_message_bytes), (5, 99));
        }
    }

    #[test]
    fn d5_broker_properties_are_checked_by_the_brokers_table() {
        let bench = Bench::new();
        let code = |name, property, operation, value| {
            alter(&bench, 1, &[(4, name, property, operation, value)])[0]
        };
        assert_eq!(
            code("1", "num.io.threads", 0, "none"),
            ErrorCode::INVALID_REQUEST
        );
        assert_eq!(
            code("", "listeners", 0, "PLAINTEXT://:1"),
            ErrorCode::INVALID_REQUEST,
            "per broker only"
        );
        assert_eq!(
            code("2", "num.io.threads", 0, "4"),
            ErrorCode::INVALID_REQUEST,
            "another broker"
        );
        assert_eq!(code("", "num.io.threads", 0, "4"), ErrorCode::NONE);
        assert_eq!(
            code("1", "num.io.threads", 9, "4"),
            ErrorCode::INVALID_REQUEST,
            "no such operation"
        );
        assert_eq!(
            code("1", "num.io.threads", 2, "4"),
            ErrorCode::INVALID_CONFIG,
            "no list"
        );
        assert_eq!(
            code("1", "log.cleanup.policy", 2, "compact"),
            ErrorCode::NONE
        );
        let policy = bench.image().configs.default_topic().cleanup_policy;
        assert!(policy.compact && policy.delete);
    }
}
