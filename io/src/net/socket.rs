//! A connected stream socket, shared by the connection and its operations in flight.
//!
//! The descriptor is closed when the last clone is gone, so an operation in flight never works on a
//! descriptor that has become another file. To end what is in flight use `shutdown` or `Turn::cancel`.
//!
//! Descriptors are in blocking mode on purpose: on a non-blocking one the ring answers EAGAIN instead
//! of waiting.

use bytes::{Buf, Bytes};
use socket2::{Domain, Protocol, SockRef, Type};
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Chunks that one `send_now` call hands to the kernel: an answer has one to a few.
const SLICES: usize = 16;

#[derive(Clone, Debug)]
pub struct Socket(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    fd: OwnedFd,
    peer: SocketAddr,
    local: SocketAddr,
    /// What the last receive said: false means that trying again without polling would be in vain.
    more_bytes: AtomicBool,
    /// The connection counts until its descriptor is closed.
    place: Option<ConnectionPlace>,
}

impl Socket {
    /// Takes over a connected socket; `place` is what it occupies in a `ConnectionLimit`.
    pub fn new(fd: OwnedFd, place: Option<ConnectionPlace>) -> io::Result<Self> {
        let socket = SockRef::from(&fd);
        socket.set_nonblocking(false)?;
        let peer = inet(&socket.peer_addr()?)?;
        let local = inet(&socket.local_addr()?)?;
        Ok(Self::assemble(fd, peer, local, place))
    }

    /// A socket for `Turn::connect` to this address, with TCP_NODELAY set.
    pub fn unconnected(peer: SocketAddr) -> io::Result<Self> {
        let socket =
            socket2::Socket::new(Domain::for_address(peer), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_tcp_nodelay(true)?;
        let local = inet(&socket.local_addr()?)?;
        Ok(Self::assemble(OwnedFd::from(socket), peer, local, None))
    }

    fn assemble(
        fd: OwnedFd,
        peer: SocketAddr,
        local: SocketAddr,
        place: Option<ConnectionPlace>,
    ) -> Self {
        Self(Arc::new(Inner {
            fd,
            peer,
            local,
            more_bytes: AtomicBool::new(true),
            place,
        }))
    }

    /// The descriptor for work without a ring, with the place that lasts as long; `None` while there are clones.
    pub fn into_stream(self) -> Option<(TcpStream, Option<ConnectionPlace>)> {
        let inner = Arc::into_inner(self.0)?;
        Some((TcpStream::from(inner.fd), inner.place))
    }

    pub fn peer(&self) -> SocketAddr {
        self.0.peer
    }

    /// The address of this end; not known for a socket that was made unconnected.
    pub fn local(&self) -> SocketAddr {
        self.0.local
    }

    /// Ends the stream; receives in flight complete with end of stream, sends with an error.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match SockRef::from(&self.0.fd).shutdown(how) {
            // The peer was faster.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            result => result,
        }
    }

    /// Sends what the socket's buffer takes at once, and takes it off `chunks`; the number of bytes. It never waits: with a
    /// full buffer nothing is sent, which is no error.
    pub fn send_now(&self, chunks: &mut Vec<Bytes>) -> io::Result<usize> {
        let socket = SockRef::from(&self.0.fd);
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let mut sent = 0;
        loop {
            let result = match &chunks[..] {
                [] => return Ok(sent),
                [chunk] => socket.send_with_flags(chunk, flags),
                many => {
                    let few = &many[..many.len().min(SLICES)];
                    let mut slices = [IoSlice::new(&[]); SLICES];
                    for (slice, chunk) in slices.iter_mut().zip(few) {
                        *slice = IoSlice::new(chunk);
                    }
                    socket.send_vectored_with_flags(&slices[..few.len()], flags)
                }
            };
            match result {
                Ok(bytes) => {
                    sent += bytes;
                    take_front(chunks, bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(sent),
                Err(error) => return Err(error),
            }
        }
    }

    /// SO_SNDBUF; the kernel doubles it and bounds it by net.core.wmem_max.
    pub fn set_send_buffer(&self, bytes: usize) -> io::Result<()> {
        SockRef::from(&self.0.fd).set_send_buffer_size(bytes)
    }

    /// SO_RCVBUF; the kernel doubles it and bounds it by net.core.rmem_max.
    pub fn set_receive_buffer(&self, bytes: usize) -> io::Result<()> {
        SockRef::from(&self.0.fd).set_recv_buffer_size(bytes)
    }

    pub(crate) fn may_have_bytes(&self) -> bool {
        self.0.more_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn note_more_bytes(&self, more: bool) {
        self.0.more_bytes.store(more, Ordering::Relaxed);
    }
}

fn take_front(chunks: &mut Vec<Bytes>, mut bytes: usize) {
    let whole = chunks.iter().take_while(|chunk| {
        let gone = chunk.len() <= bytes;
        bytes -= if gone { chunk.len() } else { 0 };
        gone
    });
    let whole = whole.count();
    chunks.drain(..whole);
    if bytes > 0 {
        chunks[0].advance(bytes);
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.fd.as_raw_fd()
    }
}

impl TryFrom<TcpStream> for Socket {
    type Error = io::Error;

    fn try_from(stream: TcpStream) -> io::Result<Self> {
        Self::new(OwnedFd::from(stream), None)
    }
}

fn inet(address: &socket2::SockAddr) -> io::Result<SocketAddr> {
    let not_inet = || {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "the socket is neither IPv4 nor IPv6",
        )
    };
    address.as_socket().ok_or_else(not_inet)
}

/// How many connections there may be at once, over all listeners that share it.
#[derive(Clone, Debug)]
pub struct ConnectionLimit(Arc<Count>);

#[derive(Debug)]
struct Count {
    now: AtomicUsize,
    max: usize,
}

impl ConnectionLimit {
    pub fn new(max: usize) -> Self {
        Self(Arc::new(Count {
            now: AtomicUsize::new(0),
            max,
        }))
    }

    /// A place for one more connection, given back when it is dropped.
    pub fn take(&self) -> Option<ConnectionPlace> {
        let more = |now| (now < self.0.max).then_some(now + 1);
        let taken = self
            .0
            .now
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        taken.ok().map(|_| ConnectionPlace(self.0.clone()))
    }

    pub fn in_use(&self) -> usize {
        self.0.now.load(Ordering::Acquire)
    }

    pub fn max(&self) -> usize {
        self.0.max
    }
}

/// One connection's place in a `ConnectionLimit`.
#[derive(Debug)]
pub struct ConnectionPlace(Arc<Count>);

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_given_back_when_the_connection_is_gone() {
        let limit = ConnectionLimit::new(1);
        let place = limit.take().unwrap();
        assert!(limit.take().is_none());
        drop(place);
        assert_eq!(limit.in_use(), 0);
        assert!(limit.take().is_some());
    }

    #[test]
    fn a_socket_alone_gives_its_descriptor_away() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = Socket::try_from(listener.accept().unwrap().0).unwrap();
        let clone = socket.clone();
        assert!(clone.into_stream().is_none());
        let (mut stream, place) = socket.into_stream().unwrap();
        assert!(place.is_none());
        io::Write::write_all(&mut stream, b"x").unwrap();
        let mut got = [0];
        io::Read::read_exact(&mut client, &mut got).unwrap();
        assert_eq!(&got, b"x");
    }

    #[test]
    fn clones_share_the_descriptor_and_the_last_one_closes_it() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = Socket::try_from(listener.accept().unwrap().0).unwrap();
        assert_eq!(socket.peer(), client.local_addr().unwrap());
        let clone = socket.clone();
        drop(socket);
        clone.shutdown(Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        io::Read::read_to_end(&mut client, &mut rest).unwrap();
        assert!(rest.is_empty());
    }
}
