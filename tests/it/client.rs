//! One blocking connection: requests out, answers in, both as the wire crate has them.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use corelog_wire::frame::{RequestHeader, ResponseHeader};
use corelog_wire::messages;
use corelog_wire::primitives::{DecodeError, Reader, Text};

/// An answer that takes longer is none. Longer than any answer on a loaded machine, shorter than the long polls that must be woken.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// A request with its response.
pub(crate) trait Call: Default {
    type Response: std::fmt::Debug;
    const KEY: i16;
    fn encode(&self, out: &mut BytesMut, version: i16);
    fn decode(reader: &mut Reader, version: i16) -> Result<Self::Response, DecodeError>;
}

macro_rules! calls {
    ($($module:ident)*) => {
        $(impl Call for messages::$module::Request {
            type Response = messages::$module::Response;
            const KEY: i16 = messages::$module::Request::KEY;
            fn encode(&self, out: &mut BytesMut, version: i16) {
                messages::$module::Request::encode(self, out, version);
            }
            fn decode(reader: &mut Reader, version: i16) -> Result<Self::Response, DecodeError> {
                messages::$module::Response::decode(reader, version)
            }
        })*

        /// Asks with a minimal body; the answer must be readable to its end. Gives it as text.
        pub(crate) fn minimal(client: &mut Client, key: i16, version: i16) -> String {
            if key == messages::produce::Request::KEY {
                // The default is acks=0, which has no answer.
                let request = messages::produce::Request { acks: -1, ..Default::default() };
                return format!("{:?}", client.call(&request, version));
            }
            if key == messages::api_versions::Request::KEY {
                return format!("{:?}", client.call(&named(), version));
            }
            match key {
                $(messages::$module::Request::KEY => {
                    format!("{:?}", client.call(&messages::$module::Request::default(), version))
                })*
                _ => panic!("API {key} has no line in the list of calls"),
            }
        }
    };
}

calls! {
    produce fetch list_offsets metadata offset_commit offset_fetch find_coordinator join_group heartbeat leave_group sync_group describe_groups
    list_groups api_versions create_topics delete_topics delete_records init_producer_id offset_for_leader_epoch describe_configs
    alter_configs describe_log_dirs create_partitions delete_groups incremental_alter_configs offset_delete describe_cluster
    describe_producers describe_topic_partitions alter_replica_log_dirs elect_leaders alter_partition_reassignments
    list_partition_reassignments describe_quorum update_features unregister_broker list_config_resources
}

fn named() -> messages::api_versions::Request {
    messages::api_versions::Request {
        client_software_name: Text::from_static("it"),
        client_software_version: Text::from_static("1"),
        ..Default::default()
    }
}

pub(crate) struct Client {
    stream: TcpStream,
    correlation_id: i32,
    /// Requests that wait for their answers.
    waiting: VecDeque<i32>,
}

impl Client {
    pub(crate) fn try_connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&address, ANSWER_WITHIN)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        stream.set_write_timeout(Some(ANSWER_WITHIN))?;
        Ok(Client {
            stream,
            correlation_id: 0,
            waiting: VecDeque::new(),
        })
    }

    pub(crate) fn try_api_versions(&mut self) -> Option<messages::api_versions::Response> {
        self.try_call(&named(), 3).ok()
    }

    /// Writes a request whose answer comes later.
    pub(crate) fn send<C: Call>(&mut self, request: &C, version: i16) {
        let id = self.send_unanswered(request, version);
        self.waiting.push_back(id);
    }

    /// Writes a request that has no answer.
    pub(crate) fn send_unanswered<C: Call>(&mut self, request: &C, version: i16) -> i32 {
        self.correlation_id += 1;
        self.stream
            .write_all(&frame(request, version, self.correlation_id))
            .unwrap();
        self.correlation_id
    }

    /// The answer to the oldest request that has none.
    pub(crate) fn receive<C: Call>(&mut self, version: i16) -> C::Response {
        self.try_receive::<C>(version)
            .unwrap_or_else(|error| panic!("no answer of API {} v{version}: {error}", C::KEY))
    }

    pub(crate) fn try_receive<C: Call>(&mut self, version: i16) -> io::Result<C::Response> {
        let due = self.waiting.pop_front().expect("nothing was asked");
        let frame = read_frame(&mut self.stream)?;
        let (header, mut reader) =
            ResponseHeader::parse(frame, C::KEY, version).map_err(io::Error::other)?;
        assert_eq!(
            header.correlation_id, due,
            "answers in the order of requests (W-8)"
        );
        let response = C::decode(&mut reader, version).map_err(io::Error::other)?;
        assert_eq!(
            reader.remaining(),
            0,
            "bytes after the answer of API {} v{version}",
            C::KEY
        );
        Ok(response)
    }

    pub(crate) fn call<C: Call>(&mut self, request: &C, version: i16) -> C::Response {
        self.send(request, version);
        self.receive::<C>(version)
    }

    pub(crate) fn try_call<C: Call>(
        &mut self,
        request: &C,
        version: i16,
    ) -> io::Result<C::Response> {
        self.send(request, version);
        self.try_receive::<C>(version)
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The next answer's frame, whatever it is.
    pub(crate) fn read_frame(&mut self) -> io::Result<Bytes> {
        read_frame(&mut self.stream)
    }

    /// Waits for the broker's reaction: `true` if it closes the connection without a byte, `false` if bytes come.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.reaction(ANSWER_WITHIN)
            .expect("neither an answer nor the end of the connection")
    }

    /// `Some(true)`: closed; `Some(false)`: answered; `None`: nothing within `patience`.
    pub(crate) fn reaction(&mut self, patience: Duration) -> Option<bool> {
        self.stream.set_read_timeout(Some(patience)).unwrap();
        match self.stream.read(&mut [0; 4096]) {
            Ok(got) => Some(got == 0),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                None
            }
            Err(_) => Some(true),
        }
    }

    pub(crate) fn end_of_sending(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }
}

fn read_frame(stream: &mut TcpStream) -> io::Result<Bytes> {
    let mut prefix = [0; 4];
    stream.read_exact(&mut prefix)?;
    let length = usize::try_from(i32::from_be_bytes(prefix)).map_err(io::Error::other)?;
    let mut frame = vec![0; length];
    stream.read_exact(&mut frame)?;
    Ok(Bytes::from(frame))
}

/// A whole request, prefix included.
pub(crate) fn frame<C: Call>(request: &C, version: i16, correlation_id: i32) -> BytesMut {
    let header = RequestHeader {
        api_key: C::KEY,
        api_version: version,
        correlation_id,
        client_id: Some(Text::from_static("it")),
    };
    let mut out = BytesMut::new();
    header.put_frame(&mut out, |out| request.encode(out, version));
    out
}

/// A frame with a classic header and a body of any bytes, for keys and versions that no codec has.
pub(crate) fn raw_frame(key: i16, version: i16, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&(10 + body.len() as i32).to_be_bytes());
    out.extend_from_slice(&key.to_be_bytes());
    out.extend_from_slice(&version.to_be_bytes());
    out.extend_from_slice(&7_i32.to_be_bytes());
    out.extend_from_slice(&(-1_i16).to_be_bytes());
    out.extend_from_slice(body);
    out
}
