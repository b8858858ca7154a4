//! UnregisterBroker (key 64), version 0. Flexible. Rules: D-13, as one broker answers: the only one that is registered serves the request,
//! and refuses to take itself out.

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::ids::Text;
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::unregister_broker::{Request, Response};
use corelog_wire::primitives::{DecodeError, Reader};

use super::{Answer, Context, Parts, Split};

pub fn split(
    cx: &Context<'_>,
    header: &RequestHeader,
    body: Bytes,
    _parts: &mut Parts,
    answer: &mut Answer<'_>,
) -> Result<Split, DecodeError> {
    let request = Request::decode(&mut Reader::new(body), header.api_version)?;
    let (code, message) = if cx.image.brokers.contains_key(&request.broker_id) {
        let message = format!(
            "Broker {} is the only broker of the cluster and can't be unregistered while it runs.",
            request.broker_id
        );
        (ErrorCode::INVALID_REQUEST, message)
    } else {
        let message = format!(
            "Broker ID {} is not currently registered",
            request.broker_id
        );
        (ErrorCode::BROKER_ID_NOT_REGISTERED, message)
    };
    let response = Response {
        error_code: code.0,
        error_message: Some(Text::from(message)),
        ..Response::default()
    };
    answer.write(header, |out| response.encode(out, header.api_version));
    Ok(Split::Ready)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, call};
    use super::*;

    #[test]
    fn nobody_else_is_registered_and_the_broker_itself_stays() {
        let ask = |broker_id| {
            let request = Request { broker_id };
            call(
                &Bench::new(),
                64,
                0,
                |out| request.encode(out, 0),
                |reader| Response::decode(reader, 0),
            )
            .error_code
        };
        assert_eq!(ask(7), ErrorCode::BROKER_ID_NOT_REGISTERED.0);
        assert_eq!(ask(1), ErrorCode::INVALID_REQUEST.0);
    }
}
