//! The connections of a core: receiving, sending, closing.

use std::io;
use std::net::{IpAddr, Shutdown};

use bytes::{Bytes, BytesMut};
use corelog_io::buffer::BufferPool;
use corelog_io::net::Socket;
use corelog_io::turn::is_cancelled;

use super::super::connection::{Connection, Lacks, Next, Receive};
use super::{Core, KIND_RECEIVE, KIND_SEND, SWEEP_MS, WINDOW_BYTES_MAX, WINDOW_BYTES_MIN, key};

/// Frames that one connection may start before the others get their chance. More would let one pipelining client
/// stretch the turn; fewer would split what one receive brought.
const FRAMES_PER_VISIT: u32 = 256;

/// A frame that is larger is received in steps, so that a claimed length reserves no memory before bytes arrive.
const STEP_BYTES_MAX: usize = 1 << 20;

impl Core {
    pub(super) fn accept(&mut self, socket: Socket, peer: IpAddr, listener: u8) {
        let index = self
            .connections
            .insert(Connection::new(socket, peer, listener, self.now.mono));
        self.counters().connections_opened.increment();
        self.scratch.visit.push(index);
    }

    /// Starts what can start on this connection, then sees to it that more is received.
    pub(super) fn advance(&mut self, index: usize) {
        for _ in 0..FRAMES_PER_VISIT {
            let Some(connection) = self.connections.get(index) else {
                return;
            };
            if connection.closing || connection.lacks.is_some() {
                return;
            }
            let limits = &self.parts.limits;
            if connection.order.len() >= limits.connection_requests_max
                || connection.outgoing_bytes + connection.sending_bytes
                    > limits.connection_reply_bytes_max
            {
                return;
            }
            match connection.next(limits.frame_bytes_max) {
                Next::Close(reason) => {
                    self.close(index, &reason);
                    return;
                }
                Next::Barrier => return,
                Next::Receive { missing } => {
                    self.arm(index, missing);
                    return;
                }
                Next::Frame { total } => {
                    let woken = connection.woken;
                    if !self.rings_have_room() {
                        self.lack(index, Lacks::Ring);
                        return;
                    }
                    if !self
                        .parts
                        .credits
                        .request_count
                        .take(1, woken == Some(Lacks::RequestCount))
                    {
                        self.lack(index, Lacks::RequestCount);
                        return;
                    }
                    self.was_served(index);
                    self.begin(index, total);
                }
            }
        }
        self.scratch.visit.push(index);
    }

    pub(super) fn lack(&mut self, index: usize, lacks: Lacks) {
        let connection = &mut self.connections[index];
        connection.lacks = Some(lacks);
        let woken = connection.woken.take() == Some(lacks);
        self.parts.credits.wait(index, lacks, woken);
        if !woken {
            self.counters().credit(lacks.kind()).waits.increment();
        }
    }

    /// A connection that was woken got what it waited for: the next one may try.
    pub(super) fn was_served(&mut self, index: usize) {
        if let Some(lacks) = self.connections[index].woken.take() {
            self.wake(lacks);
        }
    }

    /// Arms the next receive, if its bytes can be paid for.
    pub(super) fn arm(&mut self, index: usize, missing: usize) {
        let connection = &mut self.connections[index];
        if connection.receive != Receive::Off {
            return;
        }
        if !connection.hot && connection.buffer.is_empty() {
            if self.parts.credits.request_bytes.waiters() > 0 {
                self.lack(index, Lacks::RequestBytes);
                return;
            }
            let op = self
                .parts
                .turn
                .receive_select(key(KIND_RECEIVE, index), &connection.socket);
            connection.receive = Receive::Cold(op);
            return;
        }
        let least = missing.clamp(1, STEP_BYTES_MAX);
        let wanted = least.max(connection.window);
        // A frame is read only when all of it is paid for, or two halves could wait for each other for ever.
        let whole = missing.max(1);
        let woken = connection.woken == Some(Lacks::RequestBytes);
        let window = if self
            .parts
            .credits
            .request_bytes
            .take(whole.max(wanted), woken)
        {
            whole.max(wanted)
        } else if self.parts.credits.request_bytes.take(whole, woken) {
            whole
        } else {
            self.lack(index, Lacks::RequestBytes);
            return;
        };
        self.was_served(index);
        self.receive_into(index, window);
    }

    /// `window` bytes are paid for.
    pub(super) fn receive_into(&mut self, index: usize, window: usize) {
        let connection = &mut self.connections[index];
        connection.paid += window;
        let room = window.min(STEP_BYTES_MAX.max(connection.window));
        let held = std::mem::take(&mut connection.buffer);
        connection.armed_with_part = !held.is_empty();
        let buffer = with_room(self.parts.turn.pool(), held, room);
        let connection = &mut self.connections[index];
        let op = self.parts.turn.receive_into(
            key(KIND_RECEIVE, index),
            &connection.socket,
            buffer,
            room,
        );
        connection.receive = Receive::Hot { op, window };
    }

    pub(super) fn on_received(
        &mut self,
        index: usize,
        result: io::Result<usize>,
        mut buffer: BytesMut,
    ) {
        let Some(connection) = self.connections.get_mut(index) else {
            return;
        };
        let was = std::mem::replace(&mut connection.receive, Receive::Off);
        let got = *result.as_ref().unwrap_or(&0);
        match was {
            Receive::Hot { window, .. } => {
                let unused = window.saturating_sub(got);
                connection.paid -= unused;
                self.give_request_bytes(unused);
            }
            // What comes to an idle connection is at most one small provided buffer; it is here whether or not there are credits for it.
            Receive::Cold(_) => {
                if self.parts.credits.request_bytes.take(got, true) {
                    connection.paid += got;
                }
            }
            Receive::Off => {}
        }
        let Some(connection) = self.connections.get_mut(index) else {
            return;
        };
        match result {
            Ok(0) => self.close(index, "closed by the client"),
            Ok(got) => {
                connection.buffer = buffer;
                connection.hot = true;
                connection.window = next_window(connection.window, got);
                connection.last_active = self.now.mono;
                self.scratch.visit.push(index);
            }
            Err(error) if is_cancelled(&error) => {
                if buffer.is_empty() {
                    // The connection has been idle: from now on it waits without a buffer.
                    connection.hot = false;
                    connection.window = WINDOW_BYTES_MIN;
                    self.parts.turn.pool().give(buffer);
                } else {
                    connection.buffer = std::mem::take(&mut buffer);
                }
                self.scratch.visit.push(index);
            }
            Err(error) => self.close(index, &error.to_string()),
        }
        self.remove_if_quiet(index);
    }

    pub(super) fn send_answers(&mut self) {
        let mut sendable = std::mem::take(&mut self.scratch.sendable);
        for index in sendable.drain(..) {
            let Some(connection) = self.connections.get_mut(index) else {
                continue;
            };
            connection.listed = false;
            connection.release_replies();
            self.send_next(index);
        }
        self.scratch.sendable = sendable;
    }

    pub(super) fn send_next(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if connection.sending || connection.closing || connection.outgoing.is_empty() {
            return;
        }
        connection.sending = true;
        connection.send_since = self.now.mono;
        connection.sending_bytes = std::mem::take(&mut connection.outgoing_bytes);
        let chunks = std::mem::replace(
            &mut connection.outgoing,
            std::mem::take(&mut connection.spare),
        );
        self.parts
            .turn
            .send(key(KIND_SEND, index), &connection.socket, chunks);
    }

    pub(super) fn on_sent(&mut self, index: usize, result: io::Result<usize>, chunks: Vec<Bytes>) {
        let Some(connection) = self.connections.get_mut(index) else {
            return;
        };
        connection.sending = false;
        connection.spare = chunks;
        let sent = std::mem::take(&mut connection.sending_bytes);
        // Reserved reply bytes come back when everything that was reserved for has left.
        let paid = if connection.outgoing.is_empty() {
            std::mem::take(&mut connection.reply_paid)
        } else {
            0
        };
        match result {
            Ok(_) => {
                connection.last_active = self.now.mono;
                self.counters().bytes_out.add(sent as u64);
                self.send_next(index);
                // A connection that was not read because of its answers may go on.
                self.scratch.visit.push(index);
            }
            Err(error) => self.close(index, &error.to_string()),
        }
        self.give_reply_bytes(paid);
        self.remove_if_quiet(index);
    }

    /// Closes a connection: nobody waits for its requests any more. Its entry goes when the kernel holds nothing of it.
    pub(super) fn close(&mut self, index: usize, reason: &str) {
        let Some(connection) = self.connections.get_mut(index) else {
            return;
        };
        if connection.closing {
            return;
        }
        connection.closing = true;
        tracing::debug!(peer = %connection.peer, reason, "connection closed");
        // A socket that is gone already is as good as shut down.
        drop(connection.socket.shutdown(Shutdown::Both));
        let waiting = std::mem::take(&mut connection.waiting);
        let lacks = connection.lacks.take();
        if let Some(lacks) = lacks {
            self.parts.credits.forget(index, lacks);
        }
        for key in waiting {
            if let Some((origin, reserved)) = self.requests.cancel(key, &mut self.scratch.carry) {
                self.release_request(origin);
                self.give_reply_bytes(reserved);
            }
        }
        self.carry();
        self.scratch.visit.push(index);
        self.remove_if_quiet(index);
    }

    pub(super) fn remove_if_quiet(&mut self, index: usize) {
        let gone = self
            .connections
            .get(index)
            .is_some_and(|connection| connection.closing && connection.is_quiet());
        if !gone {
            return;
        }
        let connection = self.connections.remove(index);
        self.give_request_bytes(connection.paid);
        self.give_reply_bytes(connection.reply_paid);
        self.parts.turn.pool().give(connection.buffer);
        self.counters().connections_closed.increment();
        self.parts
            .loads
            .connection_left(usize::from(self.parts.index));
    }

    /// Ends what is idle or stuck, and takes the buffers of connections that have become idle.
    pub(super) fn sweep(&mut self) {
        let limits = &self.parts.limits;
        let mut ended: Vec<(usize, &'static str)> = Vec::new();
        for (index, connection) in &mut self.connections {
            if connection.closing {
                continue;
            }
            let quiet_ms = self.now.mono.ms_since(connection.last_active);
            let has_part = !connection.buffer.is_empty() || connection.armed_with_part;
            if connection.sending
                && self.now.mono.ms_since(connection.send_since) > limits.send_ms_max
            {
                ended.push((index, "its reader takes nothing"));
            } else if connection.executing == 0 && quiet_ms > limits.idle_ms_max {
                ended.push((index, "idle for longer than connections.max.idle.ms"));
            } else if has_part
                && connection.lacks.is_none()
                && connection.executing == 0
                && quiet_ms > limits.progress_ms_max
            {
                ended.push((index, "the rest of its request does not come"));
            } else if let Receive::Hot { op, .. } = connection.receive
                && quiet_ms >= SWEEP_MS
                && !connection.armed_with_part
            {
                self.parts.turn.cancel(op);
            }
        }
        for (index, reason) in ended {
            self.close(index, reason);
        }
    }
}

/// A window that was filled doubles; one that was mostly empty halves.
fn next_window(window: usize, got: usize) -> usize {
    if got >= window {
        (window * 2).min(WINDOW_BYTES_MAX)
    } else if got * 4 < window {
        (window / 2).max(WINDOW_BYTES_MIN)
    } else {
        window
    }
}

/// The buffer with room for `room` more bytes: itself if nobody else holds a part of it, else a pooled one with the leftover copied.
fn with_room(pool: &mut BufferPool, mut held: BytesMut, room: usize) -> BytesMut {
    if held.capacity() - held.len() >= room || held.try_reclaim(room) {
        return held;
    }
    let mut buffer = pool.take(held.len() + room);
    buffer.extend_from_slice(&held);
    pool.give(held);
    buffer
}
