//! A small blocking client: one connection, one request at a time, the newest version that both sides have.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use corelog_shards::base::error_code::ErrorCode;
use corelog_wire::frame::{self, RequestHeader, ResponseHeader};
use corelog_wire::messages;
use corelog_wire::primitives::{DecodeError, Reader, Text};

/// A request with its response, as the wire crate has them.
pub(super) trait Call {
    type Response;
    const KEY: i16;
    const NAME: &'static str;
    const MIN: i16;
    const MAX: i16;
    fn encode(&self, out: &mut BytesMut, version: i16);
    fn decode(reader: &mut Reader, version: i16) -> Result<Self::Response, DecodeError>;
}

macro_rules! calls {
    ($($module:ident)*) => {
        $(impl Call for messages::$module::Request {
            type Response = messages::$module::Response;
            const KEY: i16 = messages::$module::Request::KEY;
            const NAME: &'static str = stringify!($module);
            const MIN: i16 = messages::$module::Request::MIN_VERSION;
            const MAX: i16 = messages::$module::Request::MAX_VERSION;
            fn encode(&self, out: &mut BytesMut, version: i16) {
                messages::$module::Request::encode(self, out, version);
            }
            fn decode(reader: &mut Reader, version: i16) -> Result<Self::Response, DecodeError> {
                messages::$module::Response::decode(reader, version)
            }
        })*
    };
}

calls! {
    produce fetch list_offsets metadata api_versions create_topics delete_topics create_partitions describe_configs incremental_alter_configs
    find_coordinator list_groups describe_groups delete_groups offset_fetch offset_commit
}

/// Answers of other programs are not trusted with more memory than the largest fetch that these commands ask for.
const RESPONSE_MAX: usize = 256 << 20;
const CLIENT_ID: &str = "corelog-cli";

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(
        "cannot connect to {address}: {why}; start the broker, or say where it is with --bootstrap-server"
    )]
    Connect { address: String, why: io::Error },
    #[error("the connection to {address} broke during {call}: {why}; see the broker's log")]
    Broken {
        address: String,
        call: &'static str,
        why: io::Error,
    },
    #[error(
        "{address} does not answer {call} in time; raise --timeout-ms, or see whether the broker is overloaded"
    )]
    Late { address: String, call: &'static str },
    #[error("{address} answers {call} with what cannot be read ({why}); is it a Kafka broker?")]
    Unreadable {
        address: String,
        call: &'static str,
        why: String,
    },
    #[error(
        "{address} does not serve {call} in a version that this program has; use one that fits the broker"
    )]
    Unsupported { address: String, call: &'static str },
    #[error("{what}: {code}{}", detail(.message.as_ref(), *.code))]
    Refused {
        what: String,
        code: ErrorCode,
        message: Option<String>,
    },
}

impl ClientError {
    /// The broker's error code, if that is what went wrong.
    pub(super) fn code(&self) -> Option<ErrorCode> {
        match self {
            ClientError::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }
}

/// What the broker says, else what usually helps.
fn detail(message: Option<&String>, code: ErrorCode) -> String {
    match message {
        Some(message) if !message.is_empty() => format!(": {message}"),
        _ => hint(code).map_or_else(String::new, |hint| format!("; {hint}")),
    }
}

fn hint(code: ErrorCode) -> Option<&'static str> {
    Some(match code {
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => {
            "create it with: corelog topic create, or see: corelog topic list"
        }
        ErrorCode::TOPIC_ALREADY_EXISTS => "choose another name, or give --if-not-exists",
        ErrorCode::MESSAGE_TOO_LARGE => "raise max.message.bytes of the topic",
        ErrorCode::OFFSET_OUT_OF_RANGE => {
            "the log starts later or ends earlier; use --from beginning or --from end"
        }
        ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::LEADER_NOT_AVAILABLE => {
            "the partition is not ready yet; try again"
        }
        ErrorCode::NON_EMPTY_GROUP => "stop its members first",
        ErrorCode::GROUP_ID_NOT_FOUND => "see: corelog group list",
        _ => return None,
    })
}

/// One connection to one broker.
#[derive(Debug)]
pub(super) struct Client {
    address: String,
    stream: TcpStream,
    correlation_id: i32,
    /// By key: the oldest and the newest version that the broker serves.
    served: BTreeMap<i16, (i16, i16)>,
}

impl Client {
    /// Connects and asks for the versions.
    pub(super) fn connect(address: &str, timeout_ms: u32) -> Result<Client, ClientError> {
        let timeout = Duration::from_millis(timeout_ms.max(1).into());
        let stream = connect(address, timeout).map_err(|why| ClientError::Connect {
            address: address.to_owned(),
            why,
        })?;
        let mut client = Client {
            address: address.to_owned(),
            stream,
            correlation_id: 0,
            served: BTreeMap::new(),
        };
        client.served = client.ask_versions()?;
        Ok(client)
    }

    /// Sends one request and waits for its response. Returns the version too: fields that it lacks have their defaults.
    pub(super) fn call<C: Call>(&mut self, request: &C) -> Result<(C::Response, i16), ClientError> {
        let version = self.version::<C>()?;
        self.call_in(request, version)
    }

    /// The newest version of a call that both sides have.
    pub(super) fn version<C: Call>(&self) -> Result<i16, ClientError> {
        self.served
            .get(&C::KEY)
            .map(|(oldest, newest)| (C::MIN.max(*oldest), C::MAX.min(*newest)))
            .filter(|(oldest, newest)| oldest <= newest)
            .map(|(_, newest)| newest)
            .ok_or_else(|| ClientError::Unsupported {
                address: self.address.clone(),
                call: C::NAME,
            })
    }

    /// Sends one request that has no response (Produce with acks=0).
    pub(super) fn send<C: Call>(&mut self, request: &C, version: i16) -> Result<(), ClientError> {
        self.correlation_id = self.correlation_id.wrapping_add(1);
        let header = RequestHeader {
            api_key: C::KEY,
            api_version: version,
            correlation_id: self.correlation_id,
            client_id: Some(Text::from_static(CLIENT_ID)),
        };
        let mut out = BytesMut::new();
        header.put_frame(&mut out, |out| request.encode(out, version));
        self.stream
            .write_all(&out)
            .map_err(|why| self.broken(C::NAME, why))
    }

    fn call_in<C: Call>(
        &mut self,
        request: &C,
        version: i16,
    ) -> Result<(C::Response, i16), ClientError> {
        self.send(request, version)?;
        let frame = self.receive(C::NAME)?;
        let unreadable = |why: String| ClientError::Unreadable {
            address: self.address.clone(),
            call: C::NAME,
            why,
        };
        let (header, mut reader) = ResponseHeader::parse(frame, C::KEY, version)
            .map_err(|error| unreadable(error.to_string()))?;
        if header.correlation_id != self.correlation_id {
            return Err(unreadable("an answer to another request".to_owned()));
        }
        let response =
            C::decode(&mut reader, version).map_err(|error| unreadable(error.to_string()))?;
        Ok((response, version))
    }

    fn receive(&mut self, call: &'static str) -> Result<Bytes, ClientError> {
        let mut prefix = [0; frame::PREFIX_LENGTH];
        self.stream
            .read_exact(&mut prefix)
            .map_err(|why| self.broken(call, why))?;
        let length =
            frame::frame_length(prefix, RESPONSE_MAX).map_err(|error| ClientError::Unreadable {
                address: self.address.clone(),
                call,
                why: error.to_string(),
            })?;
        let mut body = Vec::new();
        // Grows as bytes come: a claimed length alone reserves nothing.
        (&mut self.stream)
            .take(length as u64)
            .read_to_end(&mut body)
            .map_err(|why| self.broken(call, why))?;
        if body.len() < length {
            return Err(self.broken(call, io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(Bytes::from(body))
    }

    /// In the oldest version, which every broker understands and answers.
    fn ask_versions(&mut self) -> Result<BTreeMap<i16, (i16, i16)>, ClientError> {
        let (response, _) = self.call_in(&messages::api_versions::Request::default(), 0)?;
        check("ApiVersions", response.error_code, None)?;
        let served = response.api_keys.iter();
        Ok(served
            .map(|api| (api.api_key, (api.min_version, api.max_version)))
            .collect())
    }

    fn broken(&self, call: &'static str, why: io::Error) -> ClientError {
        let address = self.address.clone();
        match why.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                ClientError::Late { address, call }
            }
            _ => ClientError::Broken { address, call, why },
        }
    }
}

/// Turns an error code of a response into an error that says what was asked.
pub(super) fn check(
    what: impl Into<String>,
    code: i16,
    message: Option<&Text>,
) -> Result<(), ClientError> {
    let code = ErrorCode(code);
    if !code.is_error() {
        return Ok(());
    }
    Err(ClientError::Refused {
        what: what.into(),
        code,
        message: message.map(|text| text.as_str().to_owned()),
    })
}

fn connect(address: &str, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "no such address");
    for candidate in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&candidate, timeout) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
