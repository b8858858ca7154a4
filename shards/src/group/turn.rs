//! What a group is given for one fact, and where it puts what it decides.

use bytes::Bytes;

use super::config::GroupConfig;
use super::outcome::Outcome;
use super::request::{Joined, Reply, Synced};
use crate::base::error_code::ErrorCode;
use crate::base::ids::{ReplyTo, Text};
use crate::base::random::Random;
use crate::base::time::Now;
use crate::coordinator::replay::Record;

/// One fact's turn.
pub(super) struct Turn<'a> {
    pub(super) now: Now,
    pub(super) config: &'a GroupConfig,
    pub(super) random: &'a mut Random,
    pub(super) replies: &'a mut Vec<(ReplyTo, Reply)>,
    /// Batches to append to the group's partition, in order.
    pub(super) writes: &'a mut Vec<Write>,
}

/// Records that belong into one batch, and what their commit or failure means.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) group: Text,
    pub(super) records: Vec<Record>,
    pub(super) outcome: Outcome,
}

impl Turn<'_> {
    pub(super) fn joined(&mut self, to: Option<ReplyTo>, joined: Joined) {
        if let Some(to) = to {
            self.replies.push((to, Reply::Joined(joined)));
        }
    }

    pub(super) fn join_error(&mut self, to: Option<ReplyTo>, code: ErrorCode, member_id: &Text) {
        self.joined(to, Joined::error(code, member_id.clone()));
    }

    pub(super) fn synced(&mut self, to: Option<ReplyTo>, synced: Synced) {
        if let Some(to) = to {
            self.replies.push((to, Reply::Synced(synced)));
        }
    }

    /// A member id as Kafka makes them: the client's id or the instance's id, then a random one (J-2).
    pub(super) fn member_id(&mut self, prefix: &str) -> Text {
        let mut id = format!("{prefix}-");
        for (at, byte) in self.random.uuid().0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                id.push('-');
            }
            for digit in [byte >> 4, byte & 0xf] {
                id.extend(char::from_digit(u32::from(digit), 16));
            }
        }
        Text::from(id)
    }
}

/// The assignment of a member that the leader gave nothing.
pub(super) const NO_ASSIGNMENT: Bytes = Bytes::new();
