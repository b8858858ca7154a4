//! One client connection of a core: what was received and not yet taken, what executes, what has to leave.
//!
//! Only state and its rules; the core arms the receives and sends that these rules ask for.

use std::net::IpAddr;

use bytes::{Bytes, BytesMut};
use corelog_io::net::Socket;
use corelog_io::turn::OpId;
use corelog_shards::base::time::Mono;
use corelog_wire::frame::{self, PREFIX_LENGTH};
use smallvec::SmallVec;

use crate::api::table;
use crate::engine::reply_order::{Outcome, Pieces, ReplyOrder};
use crate::metrics::CreditKind;

/// Bytes that one send hands to the kernel at most. A send says nothing before all of it is in the socket's buffer: with more, a reader that is slow
/// but steady could not be told from one that takes nothing. With less, large answers cost more system calls.
const SEND_BYTES_MAX: usize = 1 << 20;

/// How the socket is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Receive {
    /// Not at all: this is what closes TCP's window.
    Off,
    /// Waiting for first bytes without owning a buffer.
    Cold(OpId),
    /// Receiving into the connection's own buffer; a frame of `committed` bytes is paid for to its end (0 = none).
    Hot { op: OpId, committed: usize },
}

/// The credit that a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lacks {
    /// Bytes of the request pool (`queued.max.request.bytes`).
    RequestBytes,
    /// A place among `queued.max.requests`.
    RequestCount,
    /// Room on the way to another core.
    Ring,
}

impl Lacks {
    /// The kind in metrics.
    pub(super) fn kind(self) -> CreditKind {
        match self {
            Lacks::RequestBytes => CreditKind::RequestBytes,
            Lacks::RequestCount => CreditKind::RequestCount,
            Lacks::Ring => CreditKind::RingSlots,
        }
    }
}

/// What the connection can do next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A whole frame is here (prefix included: `PREFIX_LENGTH + length`) and may start.
    Frame { total: usize },
    /// Wait for what executes: the next request is a barrier, or one executes.
    Barrier,
    /// So many bytes of the next frame are missing (0 = its length is not known yet).
    Receive { missing: usize },
    /// The length in front of the frame is not one that Kafka accepts.
    Close(String),
}

pub(super) struct Connection {
    pub(super) socket: Socket,
    pub(super) peer: IpAddr,
    /// Index of the listener on which it came.
    pub(super) listener: u8,
    pub(super) receive: Receive,
    pub(super) buffer: BytesMut,
    /// Bytes of the request pool that this connection holds for its buffer and its armed window.
    pub(super) paid: usize,
    /// How many of them no frame needs that is paid for to its end.
    pub(super) loose: usize,
    pub(super) order: ReplyOrder,
    /// Reply bytes reserved for answers that have not left yet.
    pub(super) reply_paid: usize,
    /// Owns a receive buffer of its own: bytes came within the last second or so.
    pub(super) hot: bool,
    /// Size of the next receive into that buffer.
    pub(super) window: usize,
    /// The armed receive holds the beginning of a frame.
    pub(super) armed_with_part: bool,
    /// Requests begun and not finished.
    pub(super) executing: u32,
    /// The request that executes is a barrier: nothing may start beside it.
    pub(super) exclusive: bool,
    pub(super) lacks: Option<Lacks>,
    /// It waited for this and is the first that may take it now.
    pub(super) woken: Option<Lacks>,
    /// Keys of requests whose parts are out, to cancel when the connection closes.
    pub(super) waiting: SmallVec<[u32; 4]>,
    pub(super) outgoing: Vec<Bytes>,
    pub(super) outgoing_bytes: usize,
    /// The vector that the last send gave back.
    pub(super) spare: Vec<Bytes>,
    pub(super) sending_bytes: usize,
    pub(super) sending: bool,
    pub(super) closing: bool,
    pub(super) last_active: Mono,
    /// When the send that is under way was begun.
    pub(super) send_since: Mono,
    /// Stands in the core's list of connections that have something to send.
    pub(super) listed: bool,
}

impl Connection {
    pub(super) fn new(socket: Socket, peer: IpAddr, listener: u8, now: Mono) -> Connection {
        Connection {
            socket,
            peer,
            listener,
            receive: Receive::Off,
            buffer: BytesMut::new(),
            paid: 0,
            loose: 0,
            order: ReplyOrder::default(),
            reply_paid: 0,
            hot: false,
            window: super::core::WINDOW_BYTES_MIN,
            armed_with_part: false,
            executing: 0,
            exclusive: false,
            lacks: None,
            woken: None,
            waiting: SmallVec::new(),
            outgoing: Vec::new(),
            outgoing_bytes: 0,
            spare: Vec::new(),
            sending_bytes: 0,
            sending: false,
            closing: false,
            last_active: now,
            send_since: now,
            listed: false,
        }
    }

    /// What comes next, by the bytes that are here. Knows nothing of credits.
    pub(super) fn next(&self, frame_bytes_max: usize) -> Next {
        let Some(prefix) = self.buffer.first_chunk::<PREFIX_LENGTH>() else {
            return Next::Receive { missing: 0 };
        };
        let length = match frame::frame_length(*prefix, frame_bytes_max) {
            Ok(length) => length,
            Err(error) => return Next::Close(error.to_string()),
        };
        let total = PREFIX_LENGTH + length;
        if self.buffer.len() < total {
            return Next::Receive {
                missing: total - self.buffer.len(),
            };
        }
        let key = self
            .buffer
            .get(PREFIX_LENGTH..PREFIX_LENGTH + 2)
            .map(|key| i16::from_be_bytes([key[0], key[1]]));
        let concurrent = key.and_then(table::api).is_some_and(|api| api.concurrent);
        if self.exclusive || (self.executing > 0 && !concurrent) {
            return Next::Barrier;
        }
        Next::Frame { total }
    }

    /// Takes a frame of `total` bytes off the buffer; gives it without its prefix.
    pub(super) fn take(&mut self, total: usize) -> Bytes {
        let frame = self.buffer.split_to(total).freeze();
        frame.slice(PREFIX_LENGTH..)
    }

    /// Puts everything that may leave now, in order, into the outgoing list.
    pub(super) fn release_replies(&mut self) {
        while let Some(outcome) = self.order.pop() {
            match outcome {
                Outcome::Silent => {}
                Outcome::Frame(Pieces::One(piece)) => self.put(piece),
                Outcome::Frame(Pieces::Many(pieces)) => {
                    for piece in pieces {
                        self.put(piece);
                    }
                }
            }
        }
    }

    /// What the next send takes off the outgoing list.
    pub(super) fn take_outgoing(&mut self) -> Vec<Bytes> {
        let spare = std::mem::take(&mut self.spare);
        if self.outgoing_bytes <= SEND_BYTES_MAX {
            self.sending_bytes = std::mem::take(&mut self.outgoing_bytes);
            return std::mem::replace(&mut self.outgoing, spare);
        }
        let (mut taken, mut left) = (spare, SEND_BYTES_MAX);
        let whole = self.outgoing.iter().take_while(|piece| {
            let fits = piece.len() <= left;
            left -= if fits { piece.len() } else { 0 };
            fits
        });
        let whole = whole.count();
        taken.extend(self.outgoing.drain(..whole));
        if left > 0 {
            // There is more than fits, so there is a piece that did not fit whole.
            taken.push(self.outgoing[0].split_to(left));
        }
        self.sending_bytes = SEND_BYTES_MAX;
        self.outgoing_bytes -= SEND_BYTES_MAX;
        taken
    }

    fn put(&mut self, piece: Bytes) {
        self.outgoing_bytes += piece.len();
        self.outgoing.push(piece);
    }

    /// Nothing of this connection is in the kernel's hands any more.
    pub(super) fn is_quiet(&self) -> bool {
        !self.sending && self.receive == Receive::Off
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;

    fn connection() -> Connection {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let socket = Socket::unconnected(address).unwrap();
        Connection::new(socket, address.ip(), 0, Mono(0))
    }

    #[test]
    fn much_leaves_in_several_sends_and_in_order() {
        let mut connection = connection();
        let sizes = [700_000, 700_000, 10, 3_000_000];
        let mut due = Vec::new();
        for (byte, size) in (0..).zip(sizes) {
            let piece = vec![byte; size];
            due.extend_from_slice(&piece);
            connection.put(Bytes::from(piece));
        }
        let mut sent = Vec::new();
        while !connection.outgoing.is_empty() {
            let taken = connection.take_outgoing();
            let bytes: usize = taken.iter().map(Bytes::len).sum();
            assert_eq!(bytes, connection.sending_bytes);
            assert!((1..=SEND_BYTES_MAX).contains(&bytes));
            sent.extend(taken.concat());
        }
        assert_eq!(connection.outgoing_bytes, 0);
        assert!(sent == due);
    }
}
