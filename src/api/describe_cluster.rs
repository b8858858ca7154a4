//! DescribeCluster (key 60), versions 0 to 2. Flexible. v1 which kind of endpoint; v2 fenced brokers. Rules: M-8.

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::ids::Text;
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::describe_cluster::{Request, Response, ResponseBrokers};
use corelog_wire::primitives::{DecodeError, Reader};

use super::{Answer, Context, Parts, Split, topology};

const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

pub fn split(
    cx: &Context<'_>,
    header: &RequestHeader,
    body: Bytes,
    _parts: &mut Parts,
    answer: &mut Answer<'_>,
) -> Result<Split, DecodeError> {
    let request = Request::decode(&mut Reader::new(body), header.api_version)?;
    let response = match request.endpoint_type {
        BROKERS => describe(cx, &request),
        CONTROLLERS => refuse(
            ErrorCode::MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        ),
        _ => refuse(
            ErrorCode::UNSUPPORTED_ENDPOINT_TYPE,
            "Endpoints are of type 1, brokers, or 2, controllers",
        ),
    };
    answer.write(header, |out| response.encode(out, header.api_version));
    Ok(Split::Ready)
}

fn refuse(code: ErrorCode, message: &'static str) -> Response {
    Response {
        error_code: code.0,
        error_message: Some(Text::from_static(message)),
        ..Response::default()
    }
}

fn describe(cx: &Context<'_>, request: &Request) -> Response {
    let shown = topology::nodes(cx).into_iter();
    let shown = shown.filter(|node| request.include_fenced_brokers || !node.broker.fenced);
    Response {
        cluster_id: cx.image.cluster_id.clone(),
        controller_id: topology::controller_id(cx),
        brokers: shown
            .map(|node| ResponseBrokers {
                broker_id: node.broker.id,
                host: node.host,
                port: node.port,
                rack: node.broker.rack.clone(),
                is_fenced: node.broker.fenced,
            })
            .collect(),
        cluster_authorized_operations: if request.include_cluster_authorized_operations {
            topology::CLUSTER_OPERATIONS
        } else {
            topology::OPERATIONS_UNASKED
        },
        ..Response::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, call};
    use super::*;

    fn ask(version: i16, request: &Request) -> Response {
        call(
            &Bench::new(),
            60,
            version,
            |out| request.encode(out, version),
            |reader| Response::decode(reader, version),
        )
    }

    #[test]
    fn m8_the_cluster_is_described_in_every_version() {
        for version in 0..=2 {
            let request = Request {
                include_cluster_authorized_operations: true,
                ..Request::default()
            };
            let response = ask(version, &request);
            assert_eq!(
                (&*response.cluster_id, response.controller_id),
                ("cluster", 1)
            );
            assert_eq!(response.brokers.len(), 1);
            assert_eq!(
                (&*response.brokers[0].host, response.brokers[0].port),
                ("broker.example", 9092)
            );
            // Y-7: create 5, alter 7, describe 8, cluster action 9, (describe) configs 10 and 11, idempotent write 12.
            assert_eq!(response.cluster_authorized_operations, 0b1_1111_1010_0000);
        }
    }

    #[test]
    fn m8_controllers_are_not_found_here() {
        let code = |endpoint_type| {
            let request = Request {
                endpoint_type,
                ..Request::default()
            };
            ask(1, &request).error_code
        };
        assert_eq!(code(2), ErrorCode::MISMATCHED_ENDPOINT_TYPE.0);
        assert_eq!(code(3), ErrorCode::UNSUPPORTED_ENDPOINT_TYPE.0);
    }
}
