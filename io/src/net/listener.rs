#![expect(unsafe_code, reason = "poll is a system call")]
//! Takes connections on one address, on a thread of its own, and hands them to a callback.
//!
//! At the connection limit it stops accepting until a connection is closed: clients wait in the
//! backlog, as with Kafka's `max.connections`. When descriptors run out it gives up its spare one to
//! accept and close a connection, so that the client learns of it, and waits a little.
//!
//! Who gets a connection is the callback's business (see `deal`). It must not block.

use socket2::{Domain, Protocol, SockRef, Type};
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::socket::{ConnectionLimit, Socket};
use crate::turn::{eventfd, signal};

/// How long to leave the backlog alone when there is no room: long enough not to spin, short enough
/// that nobody notices.
const BACK_OFF: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
pub struct ListenerConfig {
    /// Connections that may wait to be accepted (`socket.listen.backlog.size`).
    pub backlog: u32,
    /// SO_SNDBUF of accepted sockets; none: the system's default.
    pub send_buffer: Option<usize>,
    /// SO_RCVBUF of accepted sockets; none: the system's default.
    pub receive_buffer: Option<usize>,
    /// How many connections there may be, shared with other listeners.
    pub limit: ConnectionLimit,
}

/// A bound address that accepts nothing yet.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    config: ListenerConfig,
}

impl Listener {
    /// Binds and listens, so that `local_addr` is final and clients can already connect.
    pub fn bind(address: SocketAddr, config: ListenerConfig) -> io::Result<Self> {
        let bind = || -> io::Result<TcpListener> {
            let socket = socket2::Socket::new(
                Domain::for_address(address),
                Type::STREAM,
                Some(Protocol::TCP),
            )?;
            socket.set_reuse_address(true)?;
            if address.is_ipv6() {
                socket.set_only_v6(false)?;
            }
            // Inherited by accepted sockets, and before listening so that the window scale fits.
            if let Some(bytes) = config.receive_buffer {
                socket.set_recv_buffer_size(bytes)?;
            }
            if let Some(bytes) = config.send_buffer {
                socket.set_send_buffer_size(bytes)?;
            }
            socket.bind(&address.into())?;
            socket.listen(i32::try_from(config.backlog).unwrap_or(i32::MAX))?;
            socket.set_nonblocking(true)?;
            Ok(socket.into())
        };
        let socket = bind().map_err(|error| {
            io::Error::new(error.kind(), format!("cannot bind {address}: {error}"))
        })?;
        Ok(Self { socket, config })
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Starts accepting; `on_accept` runs on the listener's thread.
    pub fn start(
        self,
        name: &str,
        on_accept: impl FnMut(Socket, SocketAddr) + Send + 'static,
    ) -> io::Result<ListenerThread> {
        let stop = Arc::new(eventfd()?);
        let counters = Arc::new(ListenerCounters::default());
        let acceptor = Acceptor {
            listener: self,
            stop: stop.clone(),
            counters: counters.clone(),
            spare: Some(spare()?),
            on_accept,
        };
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || acceptor.run())?;
        Ok(ListenerThread {
            stop,
            counters,
            thread: Some(thread),
        })
    }
}

/// What a listener counts; readable from any thread.
#[derive(Debug, Default)]
pub struct ListenerCounters {
    pub accepted: AtomicU64,
    /// Connections closed at once because no descriptor was left.
    pub refused: AtomicU64,
    /// Times it stopped accepting because of the connection limit.
    pub limit_reached: AtomicU64,
}

/// A running listener; stops with the value.
#[derive(Debug)]
pub struct ListenerThread {
    stop: Arc<OwnedFd>,
    counters: Arc<ListenerCounters>,
    thread: Option<JoinHandle<()>>,
}

impl ListenerThread {
    pub fn counters(&self) -> &Arc<ListenerCounters> {
        &self.counters
    }
}

impl Drop for ListenerThread {
    fn drop(&mut self) {
        signal(&self.stop);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn spare() -> io::Result<fs::File> {
    fs::File::open("/dev/null")
}

struct Acceptor<F> {
    listener: Listener,
    stop: Arc<OwnedFd>,
    counters: Arc<ListenerCounters>,
    /// A descriptor to give up when there are no others.
    spare: Option<fs::File>,
    on_accept: F,
}

impl<F: FnMut(Socket, SocketAddr)> Acceptor<F> {
    fn run(mut self) {
        let mut at_limit = false;
        loop {
            let Some(place) = self.listener.config.limit.take() else {
                if !std::mem::replace(&mut at_limit, true) {
                    self.counters.limit_reached.fetch_add(1, Ordering::Relaxed);
                }
                if self.stopped_within(None, Some(BACK_OFF)) {
                    return;
                }
                continue;
            };
            at_limit = false;
            let accepted = loop {
                match self.listener.socket.accept() {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        if self.stopped_within(Some(self.listener.socket.as_raw_fd()), None) {
                            return;
                        }
                    }
                    other => break other,
                }
            };
            match accepted {
                Ok((stream, peer)) => match prepare(stream, place) {
                    Ok(socket) => {
                        self.counters.accepted.fetch_add(1, Ordering::Relaxed);
                        (self.on_accept)(socket, peer);
                    }
                    // Gone before it was taken.
                    Err(error) => {
                        tracing::debug!(%peer, %error, "a connection ended while it was accepted");
                    }
                },
                Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                    self.refuse_one(&error);
                    if self.stopped_within(None, Some(BACK_OFF)) {
                        return;
                    }
                }
                Err(error) => {
                    // A client that gave up, or memory: accept(2) says to try again.
                    tracing::debug!(%error, "a connection could not be accepted");
                    if self.stopped_within(None, Some(Duration::from_millis(1))) {
                        return;
                    }
                }
            }
        }
    }

    /// Closes the connection that waits longest, with the help of the spare descriptor.
    fn refuse_one(&mut self, error: &io::Error) {
        if self.counters.refused.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(%error, "no descriptor is left for connections: raise the limit of open files (ulimit -n)");
        }
        self.spare = None;
        drop(self.listener.socket.accept());
        self.spare = spare().ok();
    }

    /// Waits until `readable` is, or the time is over; true when the listener is to stop.
    fn stopped_within(&self, readable: Option<RawFd>, longest: Option<Duration>) -> bool {
        let wanted = |fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // A negative descriptor is ignored.
        let mut fds = [
            wanted(self.stop.as_raw_fd()),
            wanted(readable.unwrap_or(-1)),
        ];
        let timeout = longest.map_or(-1, |longest| longest.as_millis() as i32);
        // SAFETY: claim: the pointer is valid for two entries. keeper: the array above. breaker: a larger count.
        let result = unsafe { libc::poll(fds.as_mut_ptr(), 2, timeout) };
        result > 0 && fds[0].revents != 0
    }
}

fn prepare(stream: TcpStream, place: super::ConnectionPlace) -> io::Result<Socket> {
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_keepalive(true)?;
    Socket::new(OwnedFd::from(stream), Some(place))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;
    use std::io::Read;
    use std::sync::mpsc::{Receiver, channel};

    const LONG: Duration = Duration::from_secs(20);

    fn listen(max: usize) -> (SocketAddr, ListenerThread, Receiver<Socket>) {
        let config = ListenerConfig {
            backlog: 50,
            send_buffer: None,
            receive_buffer: Some(65536),
            limit: ConnectionLimit::new(max),
        };
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), config).unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, receiver) = channel();
        let thread = listener.start("listener", move |socket, peer| {
            assert_eq!(socket.peer(), peer);
            sender.send(socket).unwrap();
        });
        (address, thread.unwrap(), receiver)
    }

    #[test]
    fn connections_are_handed_over_with_their_options_set() {
        let (address, thread, accepted) = listen(10);
        let client = TcpStream::connect(address).unwrap();
        let socket = accepted.recv_timeout(LONG).unwrap();
        assert_eq!(
            (socket.peer(), socket.local()),
            (client.local_addr().unwrap(), address)
        );
        let raw = socket.as_raw_fd();
        let flags = fs::read_to_string(format!("/proc/self/fdinfo/{raw}")).unwrap();
        let flags = flags
            .lines()
            .find_map(|line| line.strip_prefix("flags:\t"))
            .unwrap();
        let flags = i32::from_str_radix(flags.trim(), 8).unwrap();
        assert_eq!(flags & libc::O_CLOEXEC, libc::O_CLOEXEC);
        assert_eq!(
            flags & libc::O_NONBLOCK,
            0,
            "the ring needs blocking descriptors"
        );
        assert_eq!(thread.counters().accepted.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn at_the_limit_clients_wait_until_a_connection_is_closed() {
        let (address, thread, accepted) = listen(1);
        let _first = TcpStream::connect(address).unwrap();
        let socket = accepted.recv_timeout(LONG).unwrap();
        let second = TcpStream::connect(address).unwrap();
        while thread.counters().limit_reached.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        assert!(accepted.try_recv().is_err());
        drop(socket);
        assert_eq!(
            accepted.recv_timeout(LONG).unwrap().peer(),
            second.local_addr().unwrap()
        );
    }

    #[test]
    fn a_stopped_listener_refuses_and_an_address_in_use_is_named() {
        let (address, thread, _accepted) = listen(10);
        let config = ListenerConfig {
            backlog: 1,
            send_buffer: None,
            receive_buffer: None,
            limit: ConnectionLimit::new(1),
        };
        let error = Listener::bind(address, config).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&address.to_string()), "{error}");
        drop(thread);
        assert_eq!(
            TcpStream::connect(address).unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
    }

    #[test]
    fn without_descriptors_a_client_is_closed_at_once() {
        let config = ListenerConfig {
            backlog: 50,
            send_buffer: None,
            receive_buffer: None,
            limit: ConnectionLimit::new(1),
        };
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), config).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(LONG)).unwrap();
        let mut acceptor = Acceptor {
            listener,
            stop: Arc::new(eventfd().unwrap()),
            counters: Arc::default(),
            spare: Some(spare().unwrap()),
            on_accept: |_, _| {},
        };
        acceptor.refuse_one(&io::Error::from_raw_os_error(libc::EMFILE));
        assert_eq!(client.read(&mut [0; 1]).unwrap_or(0), 0);
        assert!(acceptor.spare.is_some());
        assert_eq!(acceptor.counters.refused.load(Ordering::Relaxed), 1);
    }
}
