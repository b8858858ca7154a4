//! Operations in flight: who owns what until the kernel is done, and what follows from each event.
//!
//! Each operation lives in a boxed slot: the kernel may read the slot's message header and vectors
//! after the entry was made, so a slot never moves and its memory is kept until its event came.

use bytes::{Buf, Bytes, BytesMut};
use io_uring::{cqueue, opcode, squeue, types};
use socket2::SockAddr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use super::completion::{Completion, FileOp, Key, OpId};
use super::entry::fd;
use super::provided::{GROUP, ProvidedBuffers};
use super::queue::Event;
use super::raw::{empty_header, filled};
use crate::buffer::BufferPool;
use crate::disk::File;
use crate::net::Socket;

/// Vectors a system call takes at most (IOV_MAX).
const VECTORS_MAX: usize = 1024;

/// Bytes a system call moves at most (MAX_RW_COUNT, rounded down to a page).
const BYTES_MAX: usize = 0x7fff_f000;

pub(super) enum Op {
    Receive {
        key: Key,
        socket: Socket,
        buffer: BytesMut,
        limit: usize,
    },
    ReceiveSelect {
        key: Key,
        socket: Socket,
    },
    Send {
        key: Key,
        socket: Socket,
        chunks: Chunks,
    },
    Connect {
        key: Key,
        socket: Socket,
        address: Box<SockAddr>,
    },
    Write {
        key: Key,
        file: File,
        position: u64,
        chunks: Chunks,
    },
    Read {
        key: Key,
        file: File,
        position: u64,
        left: usize,
        done: usize,
        buffer: BytesMut,
    },
    /// The file is held, not read: the entry has its descriptor.
    File {
        key: Key,
        _file: File,
        what: FileOp,
        entry: squeue::Entry,
    },
    /// The turn's own: reads its doorbell's eventfd.
    Bell {
        eventfd: Arc<OwnedFd>,
        count: Box<[u8; 8]>,
    },
}

/// Chunks on their way out, and how far they are.
pub(super) struct Chunks {
    chunks: Vec<Bytes>,
    /// Chunks before this one are gone.
    first: usize,
    done: usize,
    left: usize,
}

impl Chunks {
    fn new(chunks: Vec<Bytes>) -> Self {
        let left = chunks.iter().map(Bytes::len).sum();
        Self {
            chunks,
            first: 0,
            done: 0,
            left,
        }
    }

    fn advance(&mut self, mut bytes: usize) {
        self.done += bytes;
        self.left -= bytes;
        while bytes > 0 {
            let chunk = &mut self.chunks[self.first];
            let part = bytes.min(chunk.len());
            chunk.advance(part);
            bytes -= part;
            if chunk.is_empty() {
                // Freed at once: a long answer gives its memory back while it is being sent.
                *chunk = Bytes::new();
                self.first += 1;
            }
        }
    }

    /// The vector for reuse.
    fn into_empty(mut self) -> Vec<Bytes> {
        self.chunks.clear();
        self.chunks
    }
}

impl Op {
    pub(super) fn send(key: Key, socket: Socket, chunks: Vec<Bytes>) -> Op {
        Op::Send {
            key,
            socket,
            chunks: Chunks::new(chunks),
        }
    }

    pub(super) fn write(key: Key, file: File, position: u64, chunks: Vec<Bytes>) -> Op {
        Op::Write {
            key,
            file,
            position,
            chunks: Chunks::new(chunks),
        }
    }

    pub(super) fn file(key: Key, file: File, what: FileOp, entry: squeue::Entry) -> Op {
        Op::File {
            key,
            _file: file,
            what,
            entry,
        }
    }

    /// Nothing to transfer, so nothing to ask the kernel.
    fn is_empty(&self) -> bool {
        match self {
            Op::Send { chunks, .. } | Op::Write { chunks, .. } => chunks.left == 0,
            Op::Read { left, .. } => *left == 0,
            _ => false,
        }
    }

    /// What the caller gets when the operation ends with this result.
    fn finish(self, op: OpId, result: io::Result<usize>) -> Option<Completion> {
        Some(match self {
            Op::Receive { key, buffer, .. } => Completion::Received {
                key,
                op,
                result,
                buffer,
            },
            Op::ReceiveSelect { key, .. } => Completion::Received {
                key,
                op,
                result,
                buffer: BytesMut::new(),
            },
            Op::Send { key, chunks, .. } => Completion::Sent {
                key,
                op,
                result,
                chunks: chunks.into_empty(),
            },
            Op::Connect { key, .. } => Completion::Connected {
                key,
                op,
                result: result.map(drop),
            },
            Op::Write { key, chunks, .. } => Completion::Written {
                key,
                op,
                result,
                chunks: chunks.into_empty(),
            },
            Op::Read { key, buffer, .. } => Completion::Read {
                key,
                op,
                result,
                buffer,
            },
            Op::File { key, what, .. } => Completion::FileDone {
                key,
                op,
                what,
                result: result.map(drop),
            },
            Op::Bell { .. } => return None,
        })
    }
}

/// What an event leads to.
pub(super) enum Step {
    Done(Completion),
    /// More of the same operation.
    Again(squeue::Entry),
    /// The same once more, because no selectable buffer was left.
    Exhausted(squeue::Entry),
    BellRang(squeue::Entry),
    BellOver,
}

struct Slot {
    generation: u32,
    cancelled: bool,
    op: Option<Op>,
    header: libc::msghdr,
    vectors: Vec<libc::iovec>,
}

impl Slot {
    fn new() -> Box<Self> {
        Box::new(Self {
            generation: 0,
            cancelled: false,
            op: None,
            header: empty_header(),
            vectors: Vec::new(),
        })
    }

    /// Points the vectors at what is left of the chunks; gives their count.
    fn load_vectors(vectors: &mut Vec<libc::iovec>, chunks: &Chunks) -> usize {
        vectors.clear();
        let mut bytes = 0;
        for chunk in chunks.chunks[chunks.first..]
            .iter()
            .filter(|chunk| !chunk.is_empty())
        {
            let length = chunk.len().min(BYTES_MAX - bytes);
            if vectors.len() == VECTORS_MAX || length == 0 {
                break;
            }
            bytes += length;
            vectors.push(libc::iovec {
                iov_base: chunk.as_ptr().cast_mut().cast(),
                iov_len: length,
            });
        }
        vectors.len()
    }

    fn entry(&mut self, id: OpId, select_size: u32) -> squeue::Entry {
        let Self {
            op,
            header,
            vectors,
            ..
        } = self;
        let op = op
            .as_mut()
            .expect("an entry is made for an operation in its slot");
        let entry = match op {
            Op::Receive {
                socket,
                buffer,
                limit,
                ..
            } => {
                let room = buffer.spare_capacity_mut();
                let length = room.len().min(*limit).min(BYTES_MAX) as u32;
                opcode::Recv::new(fd(socket), room.as_mut_ptr().cast(), length)
                    .ioprio(poll_first(socket))
                    .build()
            }
            Op::ReceiveSelect { socket, .. } => {
                opcode::Recv::new(fd(socket), std::ptr::null_mut(), select_size)
                    .buf_group(GROUP)
                    .ioprio(poll_first(socket))
                    .build()
                    .flags(squeue::Flags::BUFFER_SELECT)
            }
            Op::Send { socket, chunks, .. } => {
                let count = Self::load_vectors(vectors, chunks);
                let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
                if let [vector] = vectors.as_slice() {
                    opcode::Send::new(fd(socket), vector.iov_base.cast(), vector.iov_len as u32)
                        .flags(flags)
                        .build()
                } else {
                    header.msg_iov = vectors.as_mut_ptr();
                    header.msg_iovlen = count as _;
                    opcode::SendMsg::new(fd(socket), &raw const *header)
                        .flags(flags as u32)
                        .build()
                }
            }
            Op::Connect {
                socket, address, ..
            } => opcode::Connect::new(fd(socket), address.as_ptr().cast(), address.len()).build(),
            Op::Write {
                file,
                position,
                chunks,
                ..
            } => {
                let count = Self::load_vectors(vectors, chunks);
                opcode::Writev::new(fd(file), vectors.as_ptr(), count as u32)
                    .offset(*position)
                    .build()
            }
            Op::Read {
                file,
                position,
                left,
                buffer,
                ..
            } => {
                let room = buffer.spare_capacity_mut();
                let length = room.len().min(*left).min(BYTES_MAX) as u32;
                opcode::Read::new(fd(file), room.as_mut_ptr().cast(), length)
                    .offset(*position)
                    .build()
            }
            Op::File { entry, .. } => entry.clone(),
            Op::Bell { eventfd, count } => opcode::Read::new(
                types::Fd(eventfd.as_raw_fd()),
                count.as_mut_ptr(),
                count.len() as u32,
            )
            .build(),
        };
        entry.user_data(id.0)
    }
}

/// A socket that said it has no more bytes is polled first: trying to receive would only fail.
fn poll_first(socket: &Socket) -> u16 {
    const POLL_FIRST: u16 = 1;
    if socket.may_have_bytes() {
        0
    } else {
        POLL_FIRST
    }
}

/// The table of operations. An identity is an index and a generation, so that a late `cancel` cannot
/// hit another operation.
pub(super) struct Slots {
    #[expect(
        clippy::vec_box,
        reason = "the kernel has pointers into slots: they must not move when the table grows"
    )]
    slots: Vec<Box<Slot>>,
    free: Vec<u32>,
    select_size: u32,
    closing: bool,
}

impl Slots {
    pub(super) fn new(select_size: u32) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            select_size,
            closing: false,
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Stores an operation; the entry to submit, or none when there is nothing to transfer.
    pub(super) fn insert(&mut self, op: Op) -> (OpId, Option<squeue::Entry>) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::new());
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        let id = OpId::new(index, slot.generation);
        let empty = op.is_empty();
        slot.op = Some(op);
        slot.cancelled = false;
        (id, (!empty).then(|| slot.entry(id, self.select_size)))
    }

    /// Ends an operation that had nothing to transfer.
    pub(super) fn finish_empty(&mut self, id: OpId) -> Option<Completion> {
        self.free(id).finish(id, Ok(0))
    }

    /// False when the operation is over.
    pub(super) fn mark_cancelled(&mut self, id: OpId) -> bool {
        match self.slots.get_mut(id.index()) {
            Some(slot) if slot.generation == id.generation() && slot.op.is_some() => {
                slot.cancelled = true;
                true
            }
            _ => false,
        }
    }

    /// From now on nothing is continued.
    pub(super) fn close(&mut self) {
        self.closing = true;
    }

    pub(super) fn ids_in_flight(&self) -> Vec<OpId> {
        let live = self
            .slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.op.is_some());
        live.map(|(index, slot)| OpId::new(index as u32, slot.generation))
            .collect()
    }

    /// The kernel may still use the memory of what is in flight.
    pub(super) fn keep_for_ever(&mut self) {
        Box::leak(Box::new(std::mem::take(&mut self.slots)));
        self.free.clear();
    }

    fn free(&mut self, id: OpId) -> Op {
        let slot = &mut self.slots[id.index()];
        assert!(
            slot.generation == id.generation(),
            "an event came for an operation that is over"
        );
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index() as u32);
        slot.op.take().expect("an operation has one last event")
    }

    /// Applies an event to its operation.
    pub(super) fn step(
        &mut self,
        id: OpId,
        event: Event,
        provided: &mut ProvidedBuffers,
        pool: &mut BufferPool,
    ) -> Step {
        let slot = &mut self.slots[id.index()];
        assert!(
            slot.generation == id.generation(),
            "an event came for an operation that is over"
        );
        let stop = slot.cancelled || self.closing;
        let op = slot.op.as_mut().expect("an operation has one last event");
        let verdict = match result_of(event) {
            Err(error) => after_error(op, error, event, stop, provided),
            Ok(bytes) => after_bytes(op, bytes, event, stop, provided, pool),
        };
        match verdict {
            Verdict::Finish(result) => match self.free(id).finish(id, result) {
                Some(completion) => Step::Done(completion),
                None => Step::BellOver,
            },
            Verdict::Selected { bytes, buffer } => match self.free(id) {
                Op::ReceiveSelect { key, .. } => Step::Done(Completion::Received {
                    key,
                    op: id,
                    result: Ok(bytes),
                    buffer,
                }),
                _ => unreachable!("only a selecting receive selects"),
            },
            Verdict::Again => Step::Again(slot.entry(id, self.select_size)),
            Verdict::Exhausted => Step::Exhausted(slot.entry(id, self.select_size)),
            Verdict::BellRang => Step::BellRang(slot.entry(id, self.select_size)),
        }
    }
}

enum Verdict {
    Finish(io::Result<usize>),
    Selected { bytes: usize, buffer: BytesMut },
    Again,
    Exhausted,
    BellRang,
}

fn result_of(event: Event) -> io::Result<usize> {
    usize::try_from(event.result).map_err(|_| io::Error::from_raw_os_error(-event.result))
}

fn cancelled() -> io::Error {
    io::Error::from_raw_os_error(libc::ECANCELED)
}

fn after_error(
    op: &mut Op,
    error: io::Error,
    event: Event,
    stop: bool,
    provided: &mut ProvidedBuffers,
) -> Verdict {
    give_back_selected(event, provided);
    let code = error.raw_os_error();
    match (op, code) {
        (Op::Bell { .. }, _) if stop => Verdict::Finish(Err(error)),
        // A worker of the kernel was interrupted, or the eventfd was drained by nobody we know: once more.
        (_, Some(libc::EINTR | libc::EAGAIN)) if !stop => Verdict::Again,
        (_, Some(libc::EINTR | libc::EAGAIN)) => Verdict::Finish(Err(cancelled())),
        (Op::ReceiveSelect { .. }, Some(libc::ENOBUFS)) if !stop => Verdict::Exhausted,
        (Op::ReceiveSelect { .. }, Some(libc::ENOBUFS)) => Verdict::Finish(Err(cancelled())),
        _ => Verdict::Finish(Err(error)),
    }
}

/// An event may name a buffer although it brought no bytes.
fn give_back_selected(event: Event, provided: &mut ProvidedBuffers) {
    if let Some(id) = cqueue::buffer_select(event.flags) {
        provided.take(id, 0, |_| {});
    }
}

fn after_bytes(
    op: &mut Op,
    bytes: usize,
    event: Event,
    stop: bool,
    provided: &mut ProvidedBuffers,
    pool: &mut BufferPool,
) -> Verdict {
    match op {
        Op::Receive { socket, buffer, .. } => {
            socket.note_more_bytes(cqueue::sock_nonempty(event.flags));
            filled(buffer, bytes);
            Verdict::Finish(Ok(bytes))
        }
        Op::ReceiveSelect { socket, .. } => {
            socket.note_more_bytes(cqueue::sock_nonempty(event.flags));
            match cqueue::buffer_select(event.flags) {
                Some(id) if bytes > 0 => {
                    let mut buffer = pool.take(bytes);
                    provided.take(id, bytes, |arrived| buffer.extend_from_slice(arrived));
                    Verdict::Selected { bytes, buffer }
                }
                _ => {
                    give_back_selected(event, provided);
                    Verdict::Finish(Ok(0))
                }
            }
        }
        Op::Send { chunks, .. } => outgoing(chunks, bytes, stop),
        Op::Write {
            chunks, position, ..
        } => {
            *position += bytes as u64;
            outgoing(chunks, bytes, stop)
        }
        Op::Read {
            position,
            left,
            done,
            buffer,
            ..
        } => {
            filled(buffer, bytes);
            *position += bytes as u64;
            *left -= bytes;
            *done += bytes;
            match (bytes, *left) {
                (0, _) | (_, 0) => Verdict::Finish(Ok(*done)),
                _ if stop => Verdict::Finish(Err(cancelled())),
                _ => Verdict::Again,
            }
        }
        Op::Connect { .. } | Op::File { .. } => Verdict::Finish(Ok(0)),
        Op::Bell { .. } if stop => Verdict::Finish(Ok(0)),
        Op::Bell { .. } => Verdict::BellRang,
    }
}

fn outgoing(chunks: &mut Chunks, bytes: usize, stop: bool) -> Verdict {
    chunks.advance(bytes);
    match (bytes, chunks.left) {
        (_, 0) => Verdict::Finish(Ok(chunks.done)),
        (0, _) => Verdict::Finish(Err(io::ErrorKind::WriteZero.into())),
        _ if stop => Verdict::Finish(Err(cancelled())),
        _ => Verdict::Again,
    }
}
