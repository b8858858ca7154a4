//! The turn: one io_uring per core, in which the core waits for everything.
//!
//! Sockets, files and doorbells all end the one `wait`. An operation owns its buffer and a reference
//! to its socket or file until it completes, so nothing that the kernel works with can disappear.
//!
//! ```text
//! loop {
//!     turn.wait(Wait::Block(until_next_timer), || mesh.is_empty() && inbox.is_empty())?;
//!     while let Some(completion) = turn.next() { ...turn.send(..), turn.receive_into(..)... }
//!     mesh.drain(..); inbox.drain(..);      // after every wait, whatever ended it
//!     mesh.flush(&mut turn);                // doorbells leave with the next wait
//! }
//! ```
//!
//! What the caller must do: make the turn on the thread that uses it; call `wait` often (nothing is
//! submitted and nothing completes elsewhere); drain all queues after each `wait`; keep at most one
//! send and one receive in flight per socket, as two of a kind may complete in any order.
//!
//! What is not here: timers (give the time of the next one to `wait`), and operations on names, such
//! as open or rename (see `disk::blocking`).

mod completion;
mod doorbell;
mod entry;
mod op;
mod provided;
mod queue;
mod raw;

#[cfg(test)]
mod tests;

pub use completion::{Completion, FileOp, Key, OpId, is_cancelled};
pub use doorbell::Doorbell;
pub(crate) use doorbell::{eventfd, signal};
pub use queue::TurnCounters;

use bytes::{Bytes, BytesMut};
use socket2::SockAddr;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::buffer::BufferPool;
use crate::disk::File;
use crate::net::Socket;
use op::{Op, Slots};
use provided::ProvidedBuffers;
use queue::Queue;

/// The longest a core stays in one wait: the watchdog and slow clocks rely on it.
pub const BLOCK_MAX: Duration = Duration::from_millis(50);

#[derive(Clone, Debug)]
pub struct TurnConfig {
    /// Submission queue entries; the completion queue has four times as many. Rounded up by the kernel.
    pub entries: u32,
    /// Buffers that the kernel picks from for `receive_select`: a power of two, at most 32,768.
    pub select_buffers: u16,
    /// Size of each of them.
    pub select_buffer_bytes: u32,
    /// Unused buffers that the pool keeps, in bytes.
    pub pool_bytes_max: usize,
    /// Cores on which the kernel's io-wq workers of this ring may run; empty: where this thread may.
    pub worker_cores: Vec<usize>,
}

impl Default for TurnConfig {
    fn default() -> Self {
        Self {
            entries: 1024,
            select_buffers: 128,
            select_buffer_bytes: 16 << 10,
            pool_bytes_max: 32 << 20,
            worker_cores: Vec::new(),
        }
    }
}

/// How long `Turn::wait` may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Submit and collect what is there.
    Poll,
    /// Submit and sleep until something completes, for at most this long and at most `BLOCK_MAX`.
    Block(Duration),
}

/// Which writeback a `sync_range` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeSync {
    /// Start writing the dirty pages of the range.
    Start,
    /// Wait for earlier writeback, write, and wait for that. Neither metadata nor the device's cache
    /// is flushed: this is no fdatasync.
    Finish,
}

/// What `advise` tells the kernel about a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    DontNeed,
    WillNeed,
}

/// Whether a sync covers metadata that is not needed to read the data back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncKind {
    Data,
    All,
}

/// One core's ring. Not `Send`: it belongs to the thread that made it.
pub struct Turn {
    queue: Queue,
    slots: Slots,
    provided: ProvidedBuffers,
    pool: BufferPool,
    doorbell: Doorbell,
    /// Doorbells of others that were rung through the ring; the index is in the user data, so that a
    /// failed ring can be repeated by eventfd. One per peer core.
    peers: Vec<Doorbell>,
    /// At most one `Completion::Doorbell` a wait.
    doorbell_told: bool,
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turn")
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

impl Turn {
    /// Makes the ring; this thread is from now on the only one that may use it.
    pub fn new(config: &TurnConfig) -> io::Result<Turn> {
        let queue = Queue::new(config.entries, &config.worker_cores)?;
        let provided =
            ProvidedBuffers::register(&queue, config.select_buffers, config.select_buffer_bytes)?;
        let doorbell = Doorbell::new(queue.duplicate_fd()?)?;
        let mut turn = Turn {
            queue,
            slots: Slots::new(config.select_buffer_bytes),
            provided,
            pool: BufferPool::new(config.pool_bytes_max),
            doorbell,
            peers: Vec::new(),
            doorbell_told: false,
        };
        let bell = Op::Bell {
            eventfd: turn.doorbell.eventfd(),
            count: Box::new([0; 8]),
        };
        turn.start(bell);
        Ok(turn)
    }

    // ---- sockets ----

    /// Receives when bytes arrive, without holding a buffer until then: for idle connections. The
    /// bytes come in a buffer of the pool, at most `select_buffer_bytes` of them.
    pub fn receive_select(&mut self, key: Key, socket: &Socket) -> OpId {
        self.start(Op::ReceiveSelect {
            key,
            socket: socket.clone(),
        })
    }

    /// Receives at most `limit` bytes into the spare capacity of `buffer`, after what it holds
    /// already. The completion gives the buffer back, whatever happened.
    ///
    /// Panics when there is no spare capacity or `limit` is 0: the answer would look like end of stream.
    pub fn receive_into(
        &mut self,
        key: Key,
        socket: &Socket,
        buffer: BytesMut,
        limit: usize,
    ) -> OpId {
        let limit = limit.min(buffer.capacity() - buffer.len());
        assert!(
            limit > 0,
            "a receive needs room: capacity {}, length {}",
            buffer.capacity(),
            buffer.len()
        );
        self.start(Op::Receive {
            key,
            socket: socket.clone(),
            buffer,
            limit,
        })
    }

    /// Sends all chunks in order and completes when the last byte is in the socket's buffer or the
    /// connection failed. The completion gives the vector back, empty, for reuse.
    pub fn send(&mut self, key: Key, socket: &Socket, chunks: Vec<Bytes>) -> OpId {
        self.start(Op::send(key, socket.clone(), chunks))
    }

    /// Connects a socket made by `Socket::unconnected`.
    pub fn connect(&mut self, key: Key, socket: &Socket, address: SocketAddr) -> OpId {
        self.start(Op::Connect {
            key,
            socket: socket.clone(),
            address: Box::new(SockAddr::from(address)),
        })
    }

    // ---- files ----

    /// Writes all chunks at `position` by the ring's workers (file systems such as ext4) or while
    /// submitting (XFS); short writes are continued. The completion gives the vector back, empty.
    pub fn write(&mut self, key: Key, file: &File, position: u64, chunks: Vec<Bytes>) -> OpId {
        self.start(Op::write(key, file.clone(), position, chunks))
    }

    /// Reads `length` bytes at `position` to the end of `buffer`; less only at the end of the file.
    ///
    /// Panics when the buffer has less spare capacity than that.
    pub fn read(
        &mut self,
        key: Key,
        file: &File,
        position: u64,
        length: usize,
        buffer: BytesMut,
    ) -> OpId {
        let spare = buffer.capacity() - buffer.len();
        assert!(
            spare >= length,
            "a read of {length} bytes into {spare} bytes of room"
        );
        self.start(Op::Read {
            key,
            file: file.clone(),
            position,
            left: length,
            done: 0,
            buffer,
        })
    }

    /// Makes everything durable whose write had completed before this call.
    pub fn sync(&mut self, key: Key, file: &File, kind: SyncKind) -> OpId {
        self.start(Op::file(
            key,
            file.clone(),
            FileOp::Sync,
            entry::sync_entry(file, kind),
        ))
    }

    /// Writeback of a range, for write-behind windows.
    pub fn sync_range(
        &mut self,
        key: Key,
        file: &File,
        position: u64,
        length: u32,
        sync: RangeSync,
    ) -> OpId {
        let entry = entry::sync_range_entry(file, position, length, sync);
        self.start(Op::file(key, file.clone(), FileOp::SyncRange, entry))
    }

    /// Advice about the page cache of a range.
    pub fn advise(
        &mut self,
        key: Key,
        file: &File,
        position: u64,
        length: u32,
        advice: Advice,
    ) -> OpId {
        let entry = entry::advise_entry(file, position, length, advice);
        self.start(Op::file(key, file.clone(), FileOp::Advise, entry))
    }

    /// Reserves disk space for a range without changing the file's length.
    pub fn allocate(&mut self, key: Key, file: &File, position: u64, length: u64) -> OpId {
        let entry = entry::allocate_entry(file, position, length);
        self.start(Op::file(key, file.clone(), FileOp::Allocate, entry))
    }

    // ---- all of them ----

    /// Asks to end an operation early. It still completes: with `is_cancelled`, or with what it had
    /// achieved if that came first (a receive that got bytes returns them). An operation that is over
    /// is left alone.
    pub fn cancel(&mut self, op: OpId) {
        if self.slots.mark_cancelled(op) {
            self.queue.push(entry::cancel_entry(op));
        }
    }

    /// Submits everything and collects completions; see `Wait`.
    ///
    /// `inbox_is_empty` is asked once, after this core has announced that it sleeps: it must look at
    /// every queue whose producers ring this turn's doorbell. When it says false there is no sleep.
    pub fn wait(&mut self, wait: Wait, inbox_is_empty: impl FnOnce() -> bool) -> io::Result<()> {
        self.doorbell_told = false;
        self.doorbell.beat();
        match wait {
            Wait::Block(longest) if !self.queue.has_ready() => {
                let parked = self.doorbell.parked();
                if parked.park_unless(|| !inbox_is_empty()) {
                    let result = self.queue.enter_and_block(longest.min(BLOCK_MAX));
                    parked.unpark();
                    self.doorbell.beat();
                    return result;
                }
                self.queue.enter_and_poll()
            }
            Wait::Block(_) | Wait::Poll => self.queue.enter_and_poll(),
        }
    }

    /// Is there a completion for `next`?
    pub fn has_ready(&mut self) -> bool {
        self.queue.has_ready()
    }

    /// The next completion of those collected by `wait`. Operations may be started in between.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator would borrow the turn while operations start"
    )]
    pub fn next(&mut self) -> Option<Completion> {
        loop {
            if let Some(completion) = self.queue.pop_ready() {
                return Some(completion);
            }
            let event = self.queue.pop_event()?;
            if let Some(completion) = self.complete(event) {
                return Some(completion);
            }
        }
    }

    /// Rings another core with the next submission, if it sleeps.
    pub fn ring(&mut self, doorbell: &Doorbell) {
        if !doorbell.parked().must_ring() {
            return;
        }
        let known = self.peers.iter().position(|peer| peer.is(doorbell));
        let index = known.unwrap_or_else(|| {
            self.peers.push(doorbell.clone());
            self.peers.len() - 1
        });
        self.queue.counters().doorbells.add(1);
        self.queue.push(entry::ring_entry(doorbell, index as u32));
    }

    /// The handle by which others wake this core and see that it lives.
    pub fn doorbell(&self) -> Doorbell {
        self.doorbell.clone()
    }

    /// Buffers of this core.
    pub fn pool(&mut self) -> &mut BufferPool {
        &mut self.pool
    }

    /// Operations that have not completed (one of them is the turn's own, for its doorbell).
    pub fn in_flight(&self) -> usize {
        self.slots.in_flight()
    }

    /// Counters that any thread may read.
    pub fn counters(&self) -> Arc<TurnCounters> {
        self.queue.counters().clone()
    }

    fn start(&mut self, op: Op) -> OpId {
        let (id, entry) = self.slots.insert(op);
        match entry {
            Some(entry) => self.queue.push(entry),
            // Nothing to transfer: done at once, delivered like all others.
            None => {
                if let Some(completion) = self.slots.finish_empty(id) {
                    self.queue.push_ready(completion);
                }
            }
        }
        id
    }

    fn complete(&mut self, event: queue::Event) -> Option<Completion> {
        match event.kind() {
            queue::EventKind::Ignored => None,
            queue::EventKind::Doorbell => self.tell_doorbell(),
            queue::EventKind::RingFailed { peer } => {
                if event.result < 0 {
                    self.peers[peer as usize].ring_always();
                }
                None
            }
            queue::EventKind::Op(id) => {
                let step = self
                    .slots
                    .step(id, event, &mut self.provided, &mut self.pool);
                match step {
                    op::Step::Done(completion) => Some(completion),
                    op::Step::Again(entry) => {
                        self.queue.push(entry);
                        None
                    }
                    op::Step::Exhausted(entry) => {
                        self.queue.counters().select_exhausted.add(1);
                        self.queue.push(entry);
                        None
                    }
                    op::Step::BellRang(entry) => {
                        self.queue.push(entry);
                        self.tell_doorbell()
                    }
                    op::Step::BellOver => None,
                }
            }
        }
    }

    fn tell_doorbell(&mut self) -> Option<Completion> {
        (!std::mem::replace(&mut self.doorbell_told, true)).then_some(Completion::Doorbell)
    }

    /// Cancels everything and waits for it, so that the kernel holds no pointer into freed memory.
    fn close(&mut self) -> bool {
        self.slots.close();
        for id in self.slots.ids_in_flight() {
            self.cancel(id);
        }
        // The slowest are writes to a stalled disk, which cannot be cancelled once they run.
        let deadline = std::time::Instant::now() + Duration::from_secs(5);
        while self.in_flight() > 0 && std::time::Instant::now() < deadline {
            if self.wait(Wait::Block(BLOCK_MAX), || true).is_err() {
                return false;
            }
            while self.next().is_some() {}
        }
        self.in_flight() == 0
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.close() {
            self.provided.unregister(&self.queue);
        } else {
            tracing::warn!(
                in_flight = self.in_flight(),
                "operations outlive their ring; their memory is kept"
            );
            self.slots.keep_for_ever();
            self.provided.keep_for_ever();
        }
    }
}
