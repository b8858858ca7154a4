//! What the commit or the failure of a group's batch means.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::member::Settings;
use super::offsets::Change;
use super::request::Reply;
use crate::base::error_code::ErrorCode;
use crate::base::ids::{ReplyTo, Text};

/// Remembered until the batch's outcome is known.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The group has lost its last member. A failure matters little: at worst the old generation comes back at a restart, and its
    /// members time out.
    Emptied,
    /// The leader's assignment for a generation (J-6).
    Assigned {
        generation: i32,
        assignments: BTreeMap<Text, Bytes>,
    },
    /// A static member has a new id without a rebalance (J-9).
    Replaced(Box<Replaced>),
    /// Offsets were set or deleted.
    Offsets {
        changes: Vec<Change>,
        /// The group goes with them.
        dies: bool,
        then: Then,
    },
}

#[derive(Debug)]
pub(super) struct Replaced {
    pub(super) instance_id: Text,
    pub(super) old_id: Text,
    pub(super) new_id: Text,
    pub(super) old_settings: Settings,
    pub(super) old_leader: Text,
    pub(super) generation: i32,
    pub(super) may_skip_assignment: bool,
}

/// Who is answered when the offsets are committed.
#[derive(Debug)]
pub(super) enum Then {
    Nobody,
    /// `ready` is the answer for a commit.
    Answer {
        to: Option<ReplyTo>,
        ready: Reply,
        /// What was asked, for the answer of a failure.
        failed: fn(&Reply, ErrorCode) -> Reply,
    },
    /// One of several groups that one DeleteGroups request deletes on this shard.
    Gathered {
        gather: u64,
        at: u32,
    },
}

impl Then {
    /// Nobody waits for `to` any more.
    pub(super) fn forget(&mut self, gone: ReplyTo) -> bool {
        match self {
            Then::Answer { to, .. } if *to == Some(gone) => {
                *to = None;
                true
            }
            Then::Answer { .. } | Then::Nobody | Then::Gathered { .. } => false,
        }
    }
}

/// `code` instead of every success in a Committed reply.
pub(super) fn commit_failed(ready: &Reply, code: ErrorCode) -> Reply {
    let Reply::Committed(entries) = ready else {
        return ready.clone();
    };
    let failed = |&(at, own): &(u32, ErrorCode)| (at, if own.is_error() { own } else { code });
    Reply::Committed(entries.iter().map(failed).collect())
}

/// `code` for an OffsetDelete as a whole.
pub(super) fn offset_delete_failed(_: &Reply, code: ErrorCode) -> Reply {
    Reply::OffsetsDeleted(super::request::OffsetsDeleted {
        code,
        entries: Vec::new(),
    })
}
