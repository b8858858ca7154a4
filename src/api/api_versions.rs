//! ApiVersions (key 18), versions 0 to 5.
//!
//! v1 throttle time; v3 flexible, the client's name, features; v4 features whose lowest level is 0; v5 the client says where it thinks that it
//! is. The response header is v0 in every version. Rules.

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::ids::Text;
use corelog_shards::metadata::features::{SUPPORTED, clamped};
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::api_versions::{
    Request, Response, ResponseApiKeys, ResponseFinalizedFeatures, ResponseSupportedFeatures,
};
use corelog_wire::primitives::{DecodeError, Reader};

use super::table::{APIS, Api, PRODUCE, api};
use super::{Answer, Context, Parts, Split};

pub fn split(
    cx: &Context<'_>,
    header: &RequestHeader,
    body: Bytes,
    _parts: &mut Parts,
    answer: &mut Answer<'_>,
) -> Result<Split, DecodeError> {
    let own = api(header.api_key);
    if !own.is_some_and(|api| (api.min..=api.max).contains(&header.api_version)) {
        unsupported(header, answer);
        return Ok(Split::Ready);
    }
    let request = Request::decode(&mut Reader::new(body), header.api_version)?;
    let response = match refusal(cx, header.api_version, &request) {
        Some(code) => Response {
            error_code: code.0,
            ..Response::default()
        },
        None => all(cx, header.api_version),
    };
    answer.write(header, |out| response.encode(out, header.api_version));
    Ok(Split::Ready)
}

/// in the body of v0, with the range that the client should use, whatever it sent.
fn unsupported(header: &RequestHeader, answer: &mut Answer<'_>) {
    let response = Response {
        error_code: ErrorCode::UNSUPPORTED_VERSION.0,
        api_keys: api(header.api_key).into_iter().map(advertised).collect(),
        ..Response::default()
    };
    answer.write(header, |out| response.encode(out, 0));
}

fn refusal(cx: &Context<'_>, version: i16, request: &Request) -> Option<ErrorCode> {
    let named = is_software_name(&request.client_software_name)
        && is_software_name(&request.client_software_version);
    if version >= 3 && !named {
        return Some(ErrorCode::INVALID_REQUEST);
    }
    let other_cluster = request
        .cluster_id
        .as_ref()
        .is_some_and(|id| *id != cx.image.cluster_id);
    let other_node = request.node_id != -1 && request.node_id != cx.broker.node_id;
    (version >= 5 && (other_cluster || other_node)).then_some(ErrorCode::REBOOTSTRAP_REQUIRED)
}

/// letters and digits, with dashes and dots inside.
fn is_software_name(name: &str) -> bool {
    let ends = |end: Option<&u8>| end.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    let inside = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    ends(bytes.first()) && ends(bytes.last()) && bytes.iter().all(inside)
}

fn advertised(api: &Api) -> ResponseApiKeys {
    // old librdkafka thinks that it may not compress unless it sees Produce v0.
    let min = if api.key == PRODUCE { 0 } else { api.min };
    ResponseApiKeys {
        api_key: api.key,
        min_version: min,
        max_version: api.max,
    }
}

fn all(cx: &Context<'_>, version: i16) -> Response {
    let finalized = cx
        .image
        .features
        .iter()
        .map(|(name, level)| (name, clamped(name, *level)));
    Response {
        error_code: 0,
        api_keys: APIS.iter().map(advertised).collect(),
        throttle_time_ms: 0,
        supported_features: SUPPORTED
            .iter()
            .filter(|feature| version >= 4 || feature.min > 0)
            .map(|feature| ResponseSupportedFeatures {
                name: Text::from_static(feature.name),
                min_version: feature.min,
                max_version: feature.max,
            })
            .collect(),
        finalized_features_epoch: cx.image.offset,
        finalized_features: finalized
            .filter(|(_, level)| *level > 0)
            .map(|(name, level)| ResponseFinalizedFeatures {
                name: name.clone(),
                max_version_level: level,
                min_version_level: level,
            })
            .collect(),
        zk_migration_ready: false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, call};
    use super::*;

    fn ask(bench: &Bench, version: i16, request: &Request) -> Response {
        call(
            bench,
            18,
            version,
            |out| request.encode(out, version),
            |reader| Response::decode(reader, version),
        )
    }

    fn named() -> Request {
        Request {
            client_software_name: Text::from_static("librdkafka"),
            client_software_version: Text::from_static("2.8.0"),
            ..Request::default()
        }
    }

    #[test]
    fn a5_produce_is_advertised_from_version_0() {
        let response = ask(&Bench::new(), 4, &named());
        assert_eq!(response.error_code, 0);
        let produce = response.api_keys.iter().find(|key| key.api_key == PRODUCE);
        assert_eq!(produce.map(|key| key.min_version), Some(0));
        let keys: Vec<i16> = response.api_keys.iter().map(|key| key.api_key).collect();
        assert_eq!(keys, APIS.iter().map(|api| api.key).collect::<Vec<_>>());
    }

    #[test]
    fn a1_a_version_that_is_too_new_is_answered_in_the_body_of_version_0() {
        let response = call(
            &Bench::new(),
            18,
            99,
            |out| out.extend_from_slice(b"whatever"),
            |reader| Response::decode(reader, 0),
        );
        assert_eq!(response.error_code, ErrorCode::UNSUPPORTED_VERSION.0);
        assert_eq!(response.api_keys.len(), 1);
        assert_eq!(
            (
                response.api_keys[0].api_key,
                response.api_keys[0].max_version
            ),
            (18, 5)
        );
    }

    #[test]
    fn a2_the_clients_name_must_be_a_name() {
        for bad in ["", "-x", "x-", "a b", "ä"] {
            let request = Request {
                client_software_name: Text::from(bad.to_owned()),
                ..named()
            };
            let response = ask(&Bench::new(), 3, &request);
            assert_eq!(response.error_code, ErrorCode::INVALID_REQUEST.0, "{bad}");
        }
        assert_eq!(ask(&Bench::new(), 0, &Request::default()).error_code, 0);
    }

    #[test]
    fn only_built_features_are_shown_whatever_the_log_says() {
        let bench = Bench::new()
            .feature("transaction.version", 2)
            .feature("metadata.version", 33);
        let response = ask(&bench, 4, &named());
        let finalized: Vec<(&str, i16)> = response
            .finalized_features
            .iter()
            .map(|feature| (&*feature.name, feature.max_version_level))
            .collect();
        assert_eq!(finalized, [("metadata.version", 30)]);
        assert_eq!(response.finalized_features_epoch, bench.image().offset);
    }

    #[test]
    fn a9_a_client_that_thinks_it_is_elsewhere_has_to_bootstrap_again() {
        let code = |cluster_id: Option<&'static str>, node_id| {
            let request = Request {
                cluster_id: cluster_id.map(Text::from_static),
                node_id,
                ..named()
            };
            ask(&Bench::new(), 5, &request).error_code
        };
        assert_eq!(code(None, -1), 0);
        assert_eq!(code(Some("cluster"), 1), 0);
        assert_eq!(code(Some("other"), 1), ErrorCode::REBOOTSTRAP_REQUIRED.0);
        assert_eq!(code(None, 2), ErrorCode::REBOOTSTRAP_REQUIRED.0);
    }
}
