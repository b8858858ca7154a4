//! What a turn reports, and the names of operations.

use bytes::{Bytes, BytesMut};
use std::io;

/// The caller's own mark of an operation; comes back with its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub u64);

/// Names an operation until it has completed; harmless afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpId(pub(super) u64);

impl OpId {
    pub(super) fn new(index: u32, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(index))
    }

    pub(super) fn index(self) -> usize {
        (self.0 & 0xffff_ffff) as usize
    }

    pub(super) fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The operations on files that give nothing but success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileOp {
    Sync,
    SyncRange,
    Advise,
    Allocate,
}

/// One finished operation. Buffers and vectors come back whatever the result is.
#[derive(Debug)]
pub enum Completion {
    /// `result` bytes were added to `buffer`; 0 is the end of the stream. After `receive_select` that
    /// brought no bytes the buffer is empty and owns nothing.
    Received {
        key: Key,
        op: OpId,
        result: io::Result<usize>,
        buffer: BytesMut,
    },
    /// All bytes were sent (`result` says how many), or the connection is broken.
    Sent {
        key: Key,
        op: OpId,
        result: io::Result<usize>,
        chunks: Vec<Bytes>,
    },
    Connected {
        key: Key,
        op: OpId,
        result: io::Result<()>,
    },
    /// All bytes were written (`result` says how many), or the file's state is unknown.
    Written {
        key: Key,
        op: OpId,
        result: io::Result<usize>,
        chunks: Vec<Bytes>,
    },
    /// `result` bytes were added to `buffer`, less than asked only at the end of the file.
    Read {
        key: Key,
        op: OpId,
        result: io::Result<usize>,
        buffer: BytesMut,
    },
    FileDone {
        key: Key,
        op: OpId,
        what: FileOp,
        result: io::Result<()>,
    },
    /// Somebody rang: look at the queues. At most once a wait, and not needed by a loop that looks
    /// at its queues after each wait anyway.
    Doorbell,
}

/// Did the operation end because of `Turn::cancel`?
pub fn is_cancelled(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ECANCELED)
}
