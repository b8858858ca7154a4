//! The connections of a core: receiving, sending, closing.

use std::io;
use std::net::{IpAddr, Shutdown};

use bytes::{Bytes, BytesMut};
use corelog_io::buffer::BufferPool;
use corelog_io::net::Socket;
use corelog_io::turn::is_cancelled;
use corelog_wire::frame::PREFIX_LENGTH;

use super::super::connection::{Connection, Lacks, Next, Receive};
use super::{Core, KIND_RECEIVE, KIND_SEND, SWEEP_MS, WINDOW_BYTES_MAX, WINDOW_BYTES_MIN, key};

/// Frames that one connection may start before the others get their chance. More would let one pipelining client
/// stretch the turn; fewer would split what one receive brought.
const FRAMES_PER_VISIT: u32 = 256;

/// A frame that is larger is received in steps, so that a claimed length reserves no memory before bytes arrive.
const STEP_BYTES_MAX: usize = 1 << 20;

/// While an answer waits for the client to take it, so many more requests of its connection may be under way. More would let those who take
/// nothing keep the places of others; fewer would slow a client that pipelines over a long way.
const UNTAKEN_REQUESTS_MAX: usize = 8;

/// A turn with at most so many answers sends them by a system call each: the completion of a send through the ring would end the wait
/// that follows, for nothing. With more of them one submission is cheaper, and what it ends is a wait for the next of many.
const SENDS_NOW_MAX: usize = 4;

/// How a send leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// By a call of its own that does not wait; what the socket does not take goes through the ring.
    Now,
    Ring,
}

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
            let requests_max = if connection.sending {
                UNTAKEN_REQUESTS_MAX
            } else {
                limits.connection_requests_max
            };
            if connection.order.len() >= requests_max
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
        let woken = connection.woken == Some(Lacks::RequestBytes);
        if !connection.hot && connection.buffer.is_empty() {
            if !woken && self.parts.credits.request_bytes.waiters() > 0 {
                self.lack(index, Lacks::RequestBytes);
                return;
            }
            self.was_served(index);
            let connection = &mut self.connections[index];
            let op = self
                .parts
                .turn
                .receive_select(key(KIND_RECEIVE, index), &connection.socket);
            connection.receive = Receive::Cold(op);
            return;
        }
        let credits = &mut self.parts.credits;
        credits.loose.give(std::mem::take(&mut connection.loose));
        let state = Held {
            have: connection.buffer.len(),
            paid: connection.paid,
            missing,
            window: connection.window,
        };
        let pool = credits.request_bytes.total() as usize;
        let plans = state.plans(pool, credits.loose.room());
        let plan = plans
            .into_iter()
            .flatten()
            // What costs nothing waits behind nobody: others may wait for what this connection holds.
            .find(|plan| plan.cost == 0 || credits.request_bytes.take(plan.cost, woken));
        let Some(plan) = plan else {
            // What is held stays held while it waits.
            connection.loose = credits.loose.take(state.have.min(state.paid));
            self.lack(index, Lacks::RequestBytes);
            return;
        };
        connection.paid += plan.cost;
        connection.loose = credits.loose.take(plan.loose);
        self.was_served(index);
        self.receive_into(index, plan);
    }

    fn receive_into(&mut self, index: usize, plan: Plan) {
        let connection = &mut self.connections[index];
        let room = plan.receive.min(STEP_BYTES_MAX.max(connection.window));
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
        connection.receive = Receive::Hot {
            op,
            committed: plan.committed,
        };
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
            // What a frame will need stays paid for; the rest of the window was not needed.
            Receive::Hot { committed, .. } => {
                let kept = buffer.len().max(committed).min(connection.paid);
                let unused = std::mem::replace(&mut connection.paid, kept) - kept;
                self.give_request_bytes(unused);
            }
            // What comes to an idle connection is at most one small provided buffer; it is here whether or not there are credits for it.
            Receive::Cold(_) => {
                let credits = &mut self.parts.credits;
                if credits.loose.room() >= got && credits.request_bytes.take(got, true) {
                    connection.paid += got;
                    connection.loose += credits.loose.take(got);
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
        let way = if sendable.len() <= SENDS_NOW_MAX {
            Way::Now
        } else {
            Way::Ring
        };
        for index in sendable.drain(..) {
            let Some(connection) = self.connections.get_mut(index) else {
                continue;
            };
            connection.listed = false;
            connection.release_replies();
            // Places of requests are free again, also of those that are not answered at all.
            if connection.receive == Receive::Off {
                self.scratch.visit.push(index);
            }
            self.send_next(index, way);
        }
        self.scratch.sendable = sendable;
    }

    /// Sends what is outgoing, unless a send is in the kernel's hands already.
    fn send_next(&mut self, index: usize, way: Way) {
        let connection = &mut self.connections[index];
        if connection.sending || connection.closing || connection.outgoing.is_empty() {
            return;
        }
        connection.send_since = self.now.mono;
        let mut chunks = connection.take_outgoing();
        if way == Way::Now {
            let result = connection.socket.send_now(&mut chunks);
            if result.is_err() || chunks.is_empty() {
                chunks.clear();
                self.after_send(index, result.map(drop), chunks);
                return;
            }
        }
        connection.sending = true;
        self.parts
            .turn
            .send(key(KIND_SEND, index), &connection.socket, chunks);
    }

    pub(super) fn on_sent(&mut self, index: usize, result: io::Result<usize>, chunks: Vec<Bytes>) {
        let Some(connection) = self.connections.get_mut(index) else {
            return;
        };
        connection.sending = false;
        // One that was not read because of its answers may go on.
        if connection.receive == Receive::Off {
            self.scratch.visit.push(index);
        }
        self.after_send(index, result.map(drop), chunks);
    }

    /// `spare` is the emptied vector of the chunks that have left.
    fn after_send(&mut self, index: usize, result: io::Result<()>, spare: Vec<Bytes>) {
        let connection = &mut self.connections[index];
        connection.spare = spare;
        let sent = std::mem::take(&mut connection.sending_bytes);
        // Reserved reply bytes come back when everything that was reserved for has left.
        let paid = if connection.outgoing.is_empty() {
            std::mem::take(&mut connection.reply_paid)
        } else {
            0
        };
        match result {
            Ok(()) => {
                connection.last_active = self.now.mono;
                self.counters().bytes_out.add(sent as u64);
                self.send_next(index, Way::Ring);
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
        self.parts.credits.loose.give(connection.loose);
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
        self.parts.turn.pool().settle();
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

/// What a connection holds of a frame that is not whole yet.
struct Held {
    have: usize,
    paid: usize,
    /// 0 = the frame's length is not known yet.
    missing: usize,
    window: usize,
}

/// One receive, with what has to be paid for it first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Plan {
    cost: usize,
    /// Bytes that may be received.
    receive: usize,
    /// Size of the frame that is paid for to its end; 0 = none.
    committed: usize,
    /// Bytes held by no such frame.
    loose: usize,
}

impl Held {
    /// The receives that would do, best first; `pool` is all that there is, `loose` what may be held loosely.
    ///
    /// A frame is paid for to its end before its bytes come, and stays paid for, or beginnings could wait for each other's credits for ever. Only
    /// what is loose is not: bytes that come behind a frame, and the first window of a large one, whose length is a mere claim until then. All
    /// that is loose together leaves room for the largest frame.
    fn plans(&self, pool: usize, loose: usize) -> [Option<Plan>; 2] {
        let cost = |bytes: usize| bytes.min(pool).saturating_sub(self.paid);
        let window = Plan {
            cost: cost(self.have + self.window),
            receive: self.window,
            committed: 0,
            loose: self.have + self.window,
        };
        let fits = |plan: &Plan| plan.loose <= loose;
        if self.missing == 0 {
            let prefix = PREFIX_LENGTH - self.have.min(PREFIX_LENGTH - 1);
            let least = Plan {
                cost: cost(self.have + prefix),
                receive: prefix,
                committed: 0,
                loose: self.have + prefix,
            };
            return [Some(window).filter(fits), Some(least)];
        }
        let total = self.have + self.missing;
        let whole = Plan {
            cost: cost(total),
            receive: self.missing,
            committed: total.min(pool),
            loose: 0,
        };
        if self.missing > WINDOW_BYTES_MAX
            && self.have < WINDOW_BYTES_MAX
            && self.paid < total.min(pool)
            && fits(&window)
        {
            return [Some(window), None];
        }
        let extra = self.window.saturating_sub(self.missing);
        let with_more = Plan {
            cost: cost(total + extra),
            receive: self.missing + extra,
            loose: extra,
            ..whole
        };
        [Some(with_more).filter(fits), Some(whole)]
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

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: usize = 16 << 20;
    const LOOSE: usize = 1 << 20;

    fn held(have: usize, paid: usize, missing: usize) -> Held {
        Held {
            have,
            paid,
            missing,
            window: WINDOW_BYTES_MIN,
        }
    }

    fn first(held: &Held, loose: usize) -> Plan {
        held.plans(POOL, loose)
            .into_iter()
            .flatten()
            .next()
            .unwrap()
    }

    #[test]
    fn a_claim_costs_a_window_until_bytes_come() {
        let plan = first(&held(100, 100, 10 << 20), LOOSE);
        assert_eq!((plan.cost, plan.committed), (WINDOW_BYTES_MIN, 0));
        let proven = first(&held(WINDOW_BYTES_MAX, WINDOW_BYTES_MAX, 10 << 20), LOOSE);
        assert_eq!(proven.cost, 10 << 20);
        assert_eq!(proven.committed, WINDOW_BYTES_MAX + (10 << 20));
    }

    #[test]
    fn a_frame_that_is_paid_for_is_not_paid_for_again() {
        let plan = first(&held(1000, 300_000, 299_000), 0);
        assert_eq!((plan.cost, plan.committed), (0, 300_000));
    }

    #[test]
    fn without_room_for_loose_bytes_exactly_the_frame_is_read() {
        let plan = first(&held(10, 10, 500), 0);
        assert_eq!((plan.cost, plan.receive, plan.loose), (500, 500, 0));
        let plan = first(&held(1, 1, 0), 0);
        assert_eq!((plan.cost, plan.receive), (3, 3));
        let claim = first(&held(100, 100, 10 << 20), 0);
        assert_eq!(claim.cost, 10 << 20);
    }

    #[test]
    fn the_largest_frame_costs_no_more_than_there_is() {
        let plan = first(&held(4, 4, POOL), 0);
        assert_eq!((plan.cost, plan.committed), (POOL - 4, POOL));
    }
}
