//! The listeners: bound before anything else is touched, opened when the broker is ready. The engine deals accepted sockets before their first
//! byte is read.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use corelog_io::net::listener::{Listener, ListenerConfig, ListenerThread};
use corelog_io::net::{ConnectionLimit, Socket};
use corelog_shards::base::ids::Text;
use corelog_shards::metadata::Endpoint;

use super::start::ServeError;
use crate::api::BrokerView;
use crate::config::BrokerConfig;
use crate::config::format::Identity;
use crate::console::bind_patiently;

/// Kafka's id of the protocol without TLS and SASL, the only one so far.
const PLAINTEXT: i16 = 0;

/// One listener, bound and not yet accepting.
struct Open {
    name: String,
    host: String,
    /// As told to clients.
    port: u16,
    listener: Listener,
}

/// The listeners of a broker that does not accept yet.
pub struct Bound {
    open: Vec<Open>,
}

pub(super) fn bind(config: &BrokerConfig) -> Result<Bound, ServeError> {
    let limit = ConnectionLimit::new(config.connections.max as usize);
    let mut open = Vec::new();
    for (listener, told) in config
        .listeners
        .open
        .iter()
        .zip(&config.listeners.advertised)
    {
        let failed = |why: String| ServeError::Listen {
            address: listener.to_string(),
            why,
        };
        let address = resolve(&listener.host, listener.port).map_err(|error| {
            failed(format!("{error}; set listeners to an address of this host"))
        })?;
        let options = ListenerConfig {
            backlog: config.connections.backlog,
            send_buffer: config
                .connections
                .send_buffer_bytes
                .map(|bytes| bytes as usize),
            receive_buffer: config
                .connections
                .receive_buffer_bytes
                .map(|bytes| bytes as usize),
            limit: limit.clone(),
        };
        let bound = bind_patiently(|| Listener::bind(address, options.clone()))
            .map_err(|error| failed(explained(&error)))?;
        let port = if told.port == 0 {
            bound
                .local_addr()
                .map_err(|error| failed(error.to_string()))?
                .port()
        } else {
            told.port
        };
        open.push(Open {
            name: listener.name.clone(),
            host: told.host.clone(),
            port,
            listener: bound,
        });
    }
    Ok(Bound { open })
}

fn resolve(host: &str, port: u16) -> std::io::Result<SocketAddr> {
    if host.is_empty() {
        return Ok(SocketAddr::from(([0, 0, 0, 0], port)));
    }
    (host, port)
        .to_socket_addrs()?
        .next()
        .ok_or_else(|| std::io::Error::other("the name has no address"))
}

fn explained(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            "the address is in use; stop the process that has it, or set listeners to another port"
                .to_owned()
        }
        std::io::ErrorKind::PermissionDenied => {
            format!("{error}; ports below 1024 need the capability CAP_NET_BIND_SERVICE")
        }
        std::io::ErrorKind::AddrNotAvailable => {
            format!("{error}; the host of listeners must be an address of this machine")
        }
        _ => error.to_string(),
    }
}

impl Bound {
    /// What the broker's registration says of its listeners.
    pub(super) fn endpoints(&self) -> Vec<Endpoint> {
        let endpoint = |open: &Open| Endpoint {
            name: Text::from(open.name.clone()),
            host: Text::from(open.host.clone()),
            port: open.port,
            security_protocol: PLAINTEXT,
        };
        self.open.iter().map(endpoint).collect()
    }

    /// What the APIs may know of the broker, per listener.
    pub(super) fn views(&self, config: &BrokerConfig, identity: &Identity) -> Vec<Arc<BrokerView>> {
        let view = |open: &Open| {
            Arc::new(BrokerView {
                node_id: identity.node_id,
                listener: Text::from(open.name.clone()),
                host: Text::from(open.host.clone()),
                port: open.port,
                rack: config.rack.clone().map(Text::from),
                statics: config.statics.clone(),
                auto_create_topics: config.auto_create_topics,
                delete_topic_enable: config.delete_topic_enable,
                num_partitions: config.num_partitions,
                default_replication_factor: config.default_replication_factor,
                fetch_max_bytes: config.fetch_max_bytes,
                max_request_partition_size_limit: config.max_request_partition_size_limit,
            })
        };
        self.open.iter().map(view).collect()
    }

    /// Starts accepting, until the threads are dropped. `taker` makes what takes the connections of one listener, on that listener's own thread.
    pub(super) fn accept<T>(
        self,
        mut taker: impl FnMut(u8) -> T,
    ) -> Result<Vec<ListenerThread>, ServeError>
    where
        T: FnMut(Socket, SocketAddr) + Send + 'static,
    {
        let mut threads = Vec::new();
        for (number, open) in self.open.into_iter().enumerate() {
            let address = format!("{}://{}:{}", open.name, open.host, open.port);
            let name = format!("accept-{number}");
            let accepting = open.listener.start(&name, taker(number as u8));
            threads.push(accepting.map_err(|error| ServeError::Listen {
                address,
                why: error.to_string(),
            })?);
        }
        Ok(threads)
    }
}
