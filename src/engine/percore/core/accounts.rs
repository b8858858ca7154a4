//! Credits given back and who may go on by them; what a turn tells of itself.

use std::collections::VecDeque;

use corelog_shards::base::time::Mono;

use super::super::connection::Lacks;
use super::super::mail::Mail;
use super::{Core, Parts};
use crate::engine::counting;
use crate::engine::requests::Origin;
use crate::metrics::{CreditKind, Stage};

/// The load of this core is published this often, in microseconds.
const LOAD_EVERY_US: u64 = 100_000;

/// No pass of the loop is to take more CPU time: what waits for the core meanwhile is answered so much later.
const LONG_TURN_US: u64 = 2_000;

impl Core {
    pub(super) fn release_request(&mut self, origin: Origin) {
        if origin.parked {
            self.parts.credits.parked -= 1;
        } else {
            self.give_request_credits(origin.bytes);
        }
    }

    pub(super) fn give_request_credits(&mut self, bytes: usize) {
        self.parts.credits.request_count.give(1);
        self.wake(Lacks::RequestCount);
        self.give_request_bytes(bytes);
    }

    pub(super) fn give_request_bytes(&mut self, bytes: usize) {
        if bytes > 0 {
            self.parts.credits.request_bytes.give(bytes);
            self.wake(Lacks::RequestBytes);
        }
    }

    pub(super) fn wake_ring_waiters(&mut self) {
        if self.parts.credits.waiting(Lacks::Ring) > 0 && self.rings_have_room() {
            self.wake(Lacks::Ring);
        }
    }

    /// Lets the connection that has waited longest try again. It wakes the next one by what it gives back or leaves.
    pub(super) fn wake(&mut self, lacks: Lacks) {
        if let Some(index) = self.parts.credits.next_waiter(lacks)
            && let Some(connection) = self.connections.get_mut(index)
        {
            connection.lacks = None;
            connection.woken = Some(lacks);
            self.scratch.visit.push(index);
        }
    }

    /// Once a turn: other cores may have given credits back, and may wait for ours.
    pub(super) fn settle_credits(&mut self) {
        for lacks in [Lacks::RequestBytes, Lacks::RequestCount] {
            if self.parts.credits.waiting(lacks) > 0 {
                self.wake(lacks);
            }
        }
        if !self.starved.is_empty() {
            self.give_reply_bytes(0);
        }
        let Parts { credits, peers, .. } = &mut self.parts;
        // A full inbox means that the core is awake anyway.
        let mut wake = |core: usize| drop(peers[core].push(Mail::Credits));
        credits.request_bytes.settle(&mut wake);
        credits.request_count.settle(&mut wake);
        credits.reply_bytes.settle(&mut wake);
    }

    pub(super) fn counters(&self) -> &crate::metrics::Core {
        self.parts.metrics.core(usize::from(self.parts.index))
    }

    /// From split to the response: owners, hops and disk included.
    pub(super) fn record(&mut self, api_key: i16, since: Mono) {
        let us = self.clock.now().mono.0.saturating_sub(since.0);
        self.parts
            .recorder
            .record(counting::family(api_key), Stage::Owners, us);
    }

    pub(super) fn count_rest(&mut self, before: Mono) {
        let counters = self.counters();
        counters
            .idle_us
            .add(self.now.mono.0.saturating_sub(before.0));
        counters.turns.increment();
        self.longest.begin();
    }

    pub(super) fn count_turn(&mut self) {
        let end = self.clock.now().mono;
        let counters = self.counters();
        let took_us = end.0.saturating_sub(self.now.mono.0);
        counters.busy_us.add(took_us);
        counters.connections.set(self.connections.len() as i64);
        counters
            .mesh_depth
            .set(self.backlog.iter().map(VecDeque::len).sum::<usize>() as i64);
        if self.longest.end(end, took_us) > LONG_TURN_US {
            self.counters().long_turns.increment();
        }
        let counters = self.counters();
        counters.longest_turn_us.set(self.longest.us() as i64);
        let credits = &self.parts.credits;
        for (kind, share) in [
            (CreditKind::RequestBytes, &credits.request_bytes),
            (CreditKind::RequestCount, &credits.request_count),
            (CreditKind::ReplyBytes, &credits.reply_bytes),
        ] {
            counters.credit(kind).free.set(share.free() as i64);
            counters.credit(kind).waiters.set(share.waiters() as i64);
        }
        counters
            .credit(CreditKind::ReplyBytes)
            .waiters
            .set(self.starved.len() as i64);
        counters
            .credit(CreditKind::Parked)
            .free
            .set((credits.parked_max - credits.parked) as i64);
        let out = self.out.iter().max().copied().unwrap_or_default();
        counters
            .credit(CreditKind::RingSlots)
            .free
            .set(self.parts.limits.ring_parts_max.saturating_sub(out) as i64);
        counters
            .credit(CreditKind::RingSlots)
            .waiters
            .set(credits.waiting(Lacks::Ring) as i64);
        self.parts.recorder.turn_end();
        self.publish_load(end);
    }

    /// Tells the dealer how busy this core has been, some times a second.
    pub(super) fn publish_load(&mut self, now: Mono) {
        let since = now.0.saturating_sub(self.load_since.0);
        if since < LOAD_EVERY_US {
            return;
        }
        let busy = self.counters().busy_us.get();
        let per_mille = (busy - self.load_busy_us) * 1000 / since;
        (self.load_since, self.load_busy_us) = (now, busy);
        let all = self.parts.seats.iter().map(|seat| seat.shard.groups());
        let (groups, bytes) = all.fold((0, 0), |sum, groups| {
            (sum.0 + groups.count(), sum.1 + groups.bytes())
        });
        let counters = self.counters();
        counters.groups.set(groups as i64);
        counters.group_bytes.set(bytes as i64);
        self.parts
            .loads
            .publish(usize::from(self.parts.index), per_mille as u32);
    }
}
