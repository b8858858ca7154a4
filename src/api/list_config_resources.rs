//! ListConfigResources (key 74), versions 0 and 1. Flexible. v0 only client metrics; v1 types. Rules: D-14.

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::ids::Text;
use corelog_shards::metadata::configs::ResourceKind;
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::list_config_resources::{Request, Response, ResponseConfigResources};
use corelog_wire::primitives::{DecodeError, Reader};

use super::{Answer, Context, Parts, Split, topology};

const ALL: [ResourceKind; 5] = [
    ResourceKind::Group,
    ResourceKind::ClientMetrics,
    ResourceKind::BrokerLogger,
    ResourceKind::Broker,
    ResourceKind::Topic,
];

pub fn split(
    cx: &Context<'_>,
    header: &RequestHeader,
    body: Bytes,
    _parts: &mut Parts,
    answer: &mut Answer<'_>,
) -> Result<Split, DecodeError> {
    let request = Request::decode(&mut Reader::new(body), header.api_version)?;
    let response = match kinds(header.api_version, &request.resource_types) {
        Some(kinds) => Response {
            config_resources: kinds.into_iter().flat_map(|kind| named(cx, kind)).collect(),
            ..Response::default()
        },
        None => Response {
            error_code: ErrorCode::UNSUPPORTED_VERSION.0,
            ..Response::default()
        },
    };
    answer.write(header, |out| response.encode(out, header.api_version));
    Ok(Split::Ready)
}

/// What is asked for; `None` = a type that there is not.
fn kinds(version: i16, codes: &[i8]) -> Option<Vec<ResourceKind>> {
    if version == 0 {
        return Some(vec![ResourceKind::ClientMetrics]);
    }
    if codes.is_empty() {
        return Some(ALL.to_vec());
    }
    codes
        .iter()
        .map(|code| ResourceKind::from_code(*code))
        .collect()
}

fn named(cx: &Context<'_>, kind: ResourceKind) -> Vec<ResponseConfigResources> {
    let names: Vec<Text> = match kind {
        ResourceKind::Topic => {
            let topics = cx.image.sorted_topics();
            topics.into_iter().map(|topic| topic.name.clone()).collect()
        }
        ResourceKind::Broker | ResourceKind::BrokerLogger => {
            let nodes = topology::nodes(cx).into_iter();
            nodes
                .map(|node| Text::from(node.broker.id.to_string()))
                .collect()
        }
        // These there are only as far as they have settings.
        ResourceKind::ClientMetrics | ResourceKind::Group => {
            let resources = cx.image.configs.resources();
            let of_kind = resources.filter(|(own, ..)| *own == kind);
            of_kind.map(|(_, name, _)| name.clone()).collect()
        }
    };
    let resource = |resource_name| ResponseConfigResources {
        resource_name,
        resource_type: kind.code(),
    };
    names.into_iter().map(resource).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, call};
    use super::*;

    fn ask(bench: &Bench, version: i16, resource_types: Vec<i8>) -> (i16, Vec<(String, i8)>) {
        let request = Request { resource_types };
        let response = call(
            bench,
            74,
            version,
            |out| request.encode(out, version),
            |reader| Response::decode(reader, version),
        );
        let resources = response.config_resources.iter();
        let named = resources.map(|own| (own.resource_name.to_string(), own.resource_type));
        (response.error_code, named.collect())
    }

    #[test]
    fn d14_all_types_or_those_that_are_asked_for() {
        let bench = Bench::new()
            .topic("a", 1)
            .set(32, "g", "consumer.session.timeout.ms", "50000");
        let of = |name: &str, kind| (name.to_owned(), kind);
        assert_eq!(ask(&bench, 1, vec![2]), (0, vec![of("a", 2)]));
        assert_eq!(
            ask(&bench, 1, vec![4, 32]),
            (0, vec![of("1", 4), of("g", 32)])
        );
        assert_eq!(ask(&bench, 1, Vec::new()).1.len(), 4);
        assert_eq!(ask(&bench, 1, vec![3]).0, ErrorCode::UNSUPPORTED_VERSION.0);
        assert_eq!(ask(&bench, 0, Vec::new()), (0, Vec::new()));
    }
}
