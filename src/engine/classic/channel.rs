//! One connection as its processor has it: the frame that is being read, the answer that has to leave.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read as _, Write as _};
use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use corelog_io::net::ConnectionPlace;
use corelog_shards::base::time::Mono;
use corelog_wire::frame::{self, PREFIX_LENGTH};
use mio::net::TcpStream;

use super::front::Link;
use super::pool::{RequestPool, Taken, WINDOW_BYTES, Waiter};
use crate::engine::reply_order::Pieces;

/// Pieces that one system call writes at most.
const PIECES_MAX: usize = 64;

/// What reading came to.
pub(super) enum Came {
    /// A whole frame, without its prefix. It holds its bytes of the pool from now on.
    Frame(Bytes),
    /// There is nothing more to read now.
    Nothing,
    /// The pool has no room for the frame: it is not read until a grant comes.
    Waits,
    /// Close the connection, for this reason.
    Close(String),
}

/// A frame on its way in.
#[derive(Default)]
struct Receive {
    prefix: [u8; PREFIX_LENGTH],
    /// Bytes of the prefix that are here.
    prefix_filled: usize,
    /// As the prefix says, once it is whole.
    length: Option<usize>,
    body: Vec<u8>,
    /// Bytes of the body that are here.
    filled: usize,
    /// Bytes of the pool that it holds.
    paid: usize,
    /// It is not paid for to its end.
    loose: bool,
}

pub(super) struct Channel {
    pub(super) stream: TcpStream,
    /// Held for its drop.
    pub(super) _place: Option<ConnectionPlace>,
    pub(super) link: Arc<Link>,
    waiter: Waiter,
    receive: Receive,
    /// Waits for a grant of the pool.
    pub(super) waits: bool,
    /// A request of this channel is under way: nothing is read.
    pub(super) muted: bool,
    /// The selector tells of changes only: what is known since.
    pub(super) readable: bool,
    pub(super) writable: bool,
    out: VecDeque<Bytes>,
    /// Bytes of the pool of answers that come back when `out` has left.
    pub(super) reserved: usize,
    pub(super) last_active: Mono,
}

impl Channel {
    pub(super) fn new(
        stream: TcpStream,
        place: Option<ConnectionPlace>,
        link: Arc<Link>,
        waiter: Waiter,
        now: Mono,
    ) -> Channel {
        Channel {
            stream,
            _place: place,
            link,
            waiter,
            receive: Receive::default(),
            waits: false,
            muted: false,
            readable: true,
            writable: true,
            out: VecDeque::new(),
            reserved: 0,
            last_active: now,
        }
    }

    /// Reads on, until a frame is whole or nothing more comes.
    pub(super) fn read(&mut self, pool: &RequestPool, frame_bytes_max: usize) -> Came {
        loop {
            let Some(length) = self.receive.length else {
                let prefix = &mut self.receive.prefix[self.receive.prefix_filled..];
                match read_some(&mut self.stream, prefix, &mut self.readable) {
                    Ok(got) => self.receive.prefix_filled += got,
                    Err(came) => return came,
                }
                if self.receive.prefix_filled < PREFIX_LENGTH {
                    continue;
                }
                let length = match frame::frame_length(self.receive.prefix, frame_bytes_max) {
                    Ok(length) => length,
                    Err(error) => return Came::Close(error.to_string()),
                };
                self.receive.length = Some(length);
                match pool.begin(self.waiter, length) {
                    Taken::Loose => (self.receive.paid, self.receive.loose) = (WINDOW_BYTES, true),
                    Taken::Whole => self.receive.paid = length,
                    Taken::Waits => {
                        self.waits = true;
                        return Came::Waits;
                    }
                }
                continue;
            };
            if self.receive.filled == length {
                return Came::Frame(std::mem::take(&mut self.receive).into_frame());
            }
            if self.receive.filled == self.receive.paid {
                match pool.finish(self.waiter, length - self.receive.paid) {
                    Taken::Whole | Taken::Loose => self.pay(pool, length - self.receive.paid),
                    Taken::Waits => {
                        self.waits = true;
                        return Came::Waits;
                    }
                }
            }
            let room = self.receive.room();
            match read_some(&mut self.stream, room, &mut self.readable) {
                Ok(got) => self.receive.filled += got,
                Err(came) => return came,
            }
        }
    }

    /// The pool has served it.
    pub(super) fn granted(&mut self, pool: &RequestPool, bytes: usize) {
        self.waits = false;
        self.pay(pool, bytes);
    }

    /// The frame is paid for to its end now.
    fn pay(&mut self, pool: &RequestPool, bytes: usize) {
        self.receive.paid += bytes;
        if std::mem::take(&mut self.receive.loose) {
            pool.settle_window();
        }
    }

    /// The connection ends: what it holds of the pool of requests.
    pub(super) fn give_up(&mut self, pool: &RequestPool) -> usize {
        if self.waits {
            pool.forget(self.waiter);
        }
        let receive = std::mem::take(&mut self.receive);
        if receive.loose {
            pool.settle_window();
        }
        receive.paid
    }

    /// Part of a frame is here.
    pub(super) fn has_part(&self) -> bool {
        self.receive.prefix_filled > 0
    }

    pub(super) fn is_sending(&self) -> bool {
        !self.out.is_empty()
    }

    pub(super) fn answer(&mut self, pieces: Pieces) {
        match pieces {
            Pieces::One(piece) => self.out.push_back(piece),
            Pieces::Many(pieces) => self.out.extend(pieces),
        }
    }

    /// Writes what the kernel takes: how many bytes that were.
    pub(super) fn write(&mut self) -> io::Result<usize> {
        let mut written = 0;
        while self.writable && !self.out.is_empty() {
            let mut slices = [IoSlice::new(&[]); PIECES_MAX];
            let count = self.out.len().min(PIECES_MAX);
            for (slice, piece) in slices.iter_mut().zip(&self.out) {
                *slice = IoSlice::new(piece);
            }
            match self.stream.write_vectored(&slices[..count]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(got) => {
                    written += got;
                    self.advance(got);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    fn advance(&mut self, mut written: usize) {
        while let Some(piece) = self.out.front_mut() {
            if piece.len() > written {
                piece.advance(written);
                return;
            }
            written -= piece.len();
            self.out.pop_front();
        }
    }
}

impl Receive {
    /// Where the next bytes of the body go: as much as has come already, so that memory grows with what is there and not with what is claimed.
    fn room(&mut self) -> &mut [u8] {
        let grown = (self.filled * 2).max(WINDOW_BYTES);
        let end = grown.min(self.paid).min(self.length.unwrap_or(0));
        if self.body.len() < end {
            self.body.reserve_exact(end - self.body.len());
            self.body.resize(end, 0);
        }
        &mut self.body[self.filled..]
    }

    fn into_frame(self) -> Bytes {
        Bytes::from(self.body)
    }
}

/// Reads once. At least one byte, or why not.
fn read_some(stream: &mut TcpStream, into: &mut [u8], readable: &mut bool) -> Result<usize, Came> {
    loop {
        match stream.read(into) {
            Ok(0) => return Err(Came::Close("closed by the client".to_owned())),
            Ok(got) => return Ok(got),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                *readable = false;
                return Err(Came::Nothing);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Came::Close(error.to_string())),
        }
    }
}
