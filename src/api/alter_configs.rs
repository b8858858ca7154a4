//! AlterConfigs (key 33), versions 0 to 2. v2 flexible. Replaces all settings of a resource (D-6).

use bytes::Bytes;
use corelog_shards::controller;
use corelog_shards::controller::request::{AlterConfigs, Ask, Refusal, Setting};
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::alter_configs::{
    Request, RequestResources, Response, ResponseResponses,
};
use corelog_wire::primitives::{DecodeError, Reader};

use super::altering::{Named, Plan, TIMEOUT_MS, check_broker_property};
use super::{Answer, Context, Parts, Split, asked};

pub fn split(
    cx: &Context<'_>,
    header: &RequestHeader,
    body: Bytes,
    parts: &mut Parts,
    answer: &mut Answer<'_>,
) -> Result<Split, DecodeError> {
    let request = Request::decode(&mut Reader::new(body), header.api_version)?;
    let resources = request.resources.into_iter().map(resource);
    let plan = Plan::make(cx, resources, |one_broker, setting: &Setting| {
        check_broker_property(one_broker, &setting.name, setting.value.as_deref())
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
        Ask::AlterConfigs(alter),
        move |_, reply, answer| {
            if let controller::Reply::AlterConfigs(replies) = reply {
                respond(&header, Plan::<Setting>::merge(local, replies), answer);
            }
        },
    ))
}

fn resource(resource: RequestResources) -> (Named, Result<Vec<Setting>, Refusal>) {
    let named = Named {
        kind: resource.resource_type,
        name: resource.resource_name,
    };
    let settings = resource.configs.into_iter().map(|config| Setting {
        name: config.name,
        value: config.value,
    });
    (named, Ok(settings.collect()))
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
    use corelog_wire::messages::alter_configs::RequestResourcesConfigs;

    #[test]
    fn d6_every_version_replaces_all_settings() {
        for version in 0..=2 {
            let bench = Bench::new()
                .topic("t", 1)
                .set(2, "t", "segment.bytes", "2000000");
            let request = Request {
                resources: vec![RequestResources {
                    resource_type: 2,
                    resource_name: Text::from_static("t"),
                    configs: vec![RequestResourcesConfigs {
                        name: Text::from_static("retention.ms"),
                        value: Some(Text::from_static("5")),
                    }],
                }],
                validate_only: false,
            };
            let response = call(
                &bench,
                33,
                version,
                |out| request.encode(out, version),
                |reader| Response::decode(reader, version),
            );
            assert_eq!(response.responses[0].error_code, 0);
            let config = bench.image().topic("t").expect("there").config.clone();
            assert_eq!((config.retention_ms, config.segment_bytes), (5, 1 << 30));
        }
    }
}
