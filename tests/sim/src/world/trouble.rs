//! What goes wrong: connections, the disk, the broker itself.

use super::{Action, Hop, World};
use crate::{Checked, must};

/// No request may be unanswered for longer, whatever the disk does: the longest timeout of a client is 5 s, the longest standstill 3 s.
const UNANSWERED_US_MAX: u64 = 40_000_000;

impl World {
    /// Asks all shards to stop cleanly; as in the engine, not before every core has had its first image, which names the logs to be recovered.
    pub fn stop(&mut self) {
        if !self.accepting || self.stopping {
            return;
        }
        self.note(format_args!("STOP is asked for"));
        self.stopping = true;
        for core in 0..self.cores.len() {
            self.send_hop(core, core, Hop::Stop);
        }
    }

    pub(super) fn trouble(&mut self) -> Checked {
        let delay = self.seeded.between(20_000, 1_500_000);
        self.later(delay, Action::Trouble);
        for there in self.net.connections.values() {
            let oldest = there
                .asked
                .front()
                .map_or(self.now_us, |asked| asked.sent_us);
            must!(
                self.now_us - oldest <= UNANSWERED_US_MAX,
                "no reply is lost unless its connection is: {:?}",
                there.asked.front()
            );
        }
        if !self.faults || !self.up {
            return Ok(());
        }
        match self.seeded.below(100) {
            0..30 => {
                let open: Vec<u64> = self.net.connections.keys().copied().collect();
                if !open.is_empty() {
                    let connection = *self.seeded.pick(&open);
                    self.note(format_args!("connection {connection} is lost"));
                    self.close(connection);
                }
            }
            30..45 => {
                let until = self.now_us + self.seeded.below(3_000_000);
                self.note(format_args!("the disk stands still until {until}"));
                self.stalled_until_us = until;
            }
            45..55 => {
                self.note(format_args!("metadata log freezes"));
                self.device.metadata_frozen = true;
                let delay = self.seeded.below(3_000_000);
                self.later(delay, Action::Thaw);
            }
            55..85 if self.crash_in.is_none() => {
                let crash = self.any_crash();
                self.crash_in = Some((self.seeded.below(1_500), crash));
            }
            85..93 => self.stop(),
            _ => self.hold_up_a_connection(),
        }
        Ok(())
    }

    /// What is sent from now on comes late.
    fn hold_up_a_connection(&mut self) {
        let open: Vec<u64> = self.net.connections.keys().copied().collect();
        if open.is_empty() {
            return;
        }
        let connection = *self.seeded.pick(&open);
        let until = self.now_us + self.seeded.below(3_000_000);
        self.note(format_args!(
            "connection {connection} is held up until {until}"
        ));
        if let Some(there) = self.net.connections.get_mut(&connection) {
            there.broker_clock = there.broker_clock.max(until);
            there.client_clock = there.client_clock.max(until);
        }
    }
}
