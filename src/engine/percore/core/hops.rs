//! What crosses cores: freight, cancellations, and what waits for room on the way.

use super::super::hop::{Freight, Hop};
use super::Core;

impl Core {
    pub(super) fn ship(&mut self, core: usize, freight: Freight) {
        if !self.overflow.is_empty() {
            self.overflow.push_back((core, freight));
            return;
        }
        match self.parts.hops.reserve(freight) {
            Ok(slot) => self.push_hop(core, Hop::Freight(slot)),
            Err(freight) => self.overflow.push_back((core, freight)),
        }
    }

    pub(super) fn push_hop(&mut self, core: usize, hop: Hop) {
        self.counters().hops_sent.increment();
        if !self.backlog[core].is_empty() {
            self.backlog[core].push_back(hop);
        } else if let Err(hop) = self.parts.mesh.push(core, hop) {
            self.counters().mesh_full.increment();
            self.backlog[core].push_back(hop);
        }
    }

    pub(super) fn flush_hops(&mut self) {
        while let Some((core, freight)) = self.overflow.pop_front() {
            match self.parts.hops.reserve(freight) {
                Ok(slot) => self.push_hop(core, Hop::Freight(slot)),
                Err(freight) => {
                    self.overflow.push_front((core, freight));
                    break;
                }
            }
        }
        for (core, backlog) in self.backlog.iter_mut().enumerate() {
            while let Some(hop) = backlog.pop_front() {
                if let Err(hop) = self.parts.mesh.push(core, hop) {
                    backlog.push_front(hop);
                    break;
                }
            }
        }
        let rung = self.parts.mesh.flush(&mut self.parts.turn);
        self.counters().doorbells.add(rung as u64);
    }

    /// Is there room for one more request's parts on the way to every other core?
    pub(super) fn rings_have_room(&self) -> bool {
        let each = self.parts.seats.len();
        self.out
            .iter()
            .all(|out| out + each <= self.parts.limits.ring_parts_max)
    }
}
