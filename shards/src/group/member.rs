//! One member of a classic group.

use bytes::Bytes;

use super::limits::MEMBER_BYTES;
use super::request::{Join, JoinedMember, Protocol};
use crate::base::ids::{ReplyTo, Text};
use crate::base::time::Mono;

/// Whether a request of the member is parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parked {
    No,
    For(ReplyTo),
    /// Its connection is gone; the member itself lives on until its session ends.
    Unheard,
}

impl Parked {
    pub(super) fn waits(self) -> bool {
        self != Parked::No
    }

    /// Ends the wait; whom to answer, if anybody.
    pub(super) fn take(&mut self) -> Option<ReplyTo> {
        match std::mem::replace(self, Parked::No) {
            Parked::For(to) => Some(to),
            Parked::No | Parked::Unheard => None,
        }
    }
}

/// See the module. All that it holds is copied out of the frame that brought it.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) instance_id: Option<Text>,
    pub(super) client_id: Text,
    pub(super) client_host: Text,
    pub(super) settings: Settings,
    pub(super) assignment: Bytes,
    pub(super) join: Parked,
    pub(super) sync: Parked,
    /// Has not been through a join yet: its session ends even while it waits (J-7).
    pub(super) is_new: bool,
    /// When its session ends, unless it is heard of or waits.
    pub(super) session_end: Mono,
}

/// What a join may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) rebalance_timeout_ms: u32,
    pub(super) session_timeout_ms: u32,
    /// In the order of the member's preference.
    pub(super) protocols: Vec<Protocol>,
}

impl Settings {
    pub(super) fn of(join: &Join) -> Settings {
        let session_timeout_ms = join.session_timeout_ms.unsigned_abs();
        Settings {
            rebalance_timeout_ms: u32::try_from(join.rebalance_timeout_ms)
                .unwrap_or(session_timeout_ms),
            session_timeout_ms,
            protocols: join
                .protocols
                .iter()
                .map(|protocol| Protocol {
                    name: protocol.name.detached(),
                    metadata: Bytes::copy_from_slice(&protocol.metadata),
                })
                .collect(),
        }
    }

    fn bytes(&self) -> usize {
        let of = |protocol: &Protocol| protocol.name.len() + protocol.metadata.len() + 64;
        self.protocols.iter().map(of).sum()
    }
}

impl Member {
    pub(super) fn new(join: &Join) -> Member {
        Member {
            instance_id: join.instance_id.as_ref().map(Text::detached),
            client_id: join.client_id.detached(),
            client_host: join.client_host.detached(),
            settings: Settings::of(join),
            assignment: Bytes::new(),
            join: Parked::No,
            sync: Parked::No,
            is_new: true,
            session_end: Mono(u64::MAX),
        }
    }

    /// The same protocols in the same order with the same metadata (J-5).
    pub(super) fn matches(&self, protocols: &[Protocol]) -> bool {
        self.settings.protocols == protocols
    }

    pub(super) fn metadata(&self, protocol: &str) -> Bytes {
        let found = self
            .settings
            .protocols
            .iter()
            .find(|own| &*own.name == protocol);
        found.map_or_else(Bytes::new, |own| own.metadata.clone())
    }

    /// Nothing needs to be heard of the member now: it waits for the coordinator. A new one may only wait so long.
    pub(super) fn is_alive(&self) -> bool {
        !self.is_new && (self.join.waits() || self.sync.waits())
    }

    pub(super) fn joined(&self, id: &Text, protocol: &str) -> JoinedMember {
        JoinedMember {
            member_id: id.clone(),
            instance_id: self.instance_id.clone(),
            metadata: self.metadata(protocol),
        }
    }

    /// What it weighs (limits.rs).
    pub(super) fn bytes(&self) -> usize {
        let instance = self.instance_id.as_ref().map_or(0, |id| id.len());
        MEMBER_BYTES
            + instance
            + self.client_id.len()
            + self.client_host.len()
            + self.assignment.len()
            + self.settings.bytes()
    }
}
