//! What the members of all groups and the rounds share: the groups, and what the broker goes through.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::ledger::{Broken, Ledger};

/// One group under test.
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) members: usize,
    /// How many of its members are static.
    pub(crate) statics: usize,
    /// Its members only heartbeat and commit.
    pub(crate) is_calm: bool,
    ledger: Mutex<Ledger>,
}

impl Group {
    pub(crate) fn new(name: String, members: usize, statics: usize, partitions: i32) -> Group {
        Group {
            name,
            members,
            statics,
            is_calm: false,
            ledger: Mutex::new(Ledger::new(partitions)),
        }
    }

    pub(crate) fn calm(self) -> Group {
        Group {
            is_calm: true,
            ..self
        }
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn broken(&self, why: &Broken) -> io::Error {
        io::Error::other(format!("{}: {why}", self.name))
    }
}

/// See the module.
pub(crate) struct Stage {
    pub(crate) address: SocketAddr,
    /// Even: the broker is to serve. Odd: it is about to be ended, or is not back yet.
    phase: AtomicU64,
    is_over: AtomicBool,
    shakes: AtomicU64,
    /// Members that have asked to join and have no assignment yet.
    pub(crate) rebalancing: AtomicUsize,
    pub(crate) joins: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) forgeries: AtomicU64,
    failure: Mutex<Option<String>>,
}

impl Stage {
    pub(crate) fn new(address: SocketAddr) -> Stage {
        Stage {
            address,
            phase: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            shakes: AtomicU64::new(0),
            rebalancing: AtomicUsize::new(0),
            joins: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            forgeries: AtomicU64::new(0),
            failure: Mutex::new(None),
        }
    }

    pub(crate) fn phase(&self) -> u64 {
        self.phase.load(Ordering::SeqCst)
    }

    /// The broker's end is announced, or the broker is back.
    pub(crate) fn next_phase(&self) {
        self.phase.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether a connection of that phase may be lost.
    pub(crate) fn has_ended_since(&self, phase: u64) -> bool {
        let now = self.phase();
        now != phase || now % 2 == 1
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Everybody who may is to join anew.
    pub(crate) fn shake(&self) {
        self.shakes.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn shakes(&self) -> u64 {
        self.shakes.load(Ordering::SeqCst)
    }

    /// A promise was broken, or a member can't go on: the first says so for all.
    pub(crate) fn fail(&self, why: &io::Error) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert_with(|| why.to_string());
        self.end();
    }

    pub(crate) fn check(&self) -> io::Result<()> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        match &*failure {
            Some(why) => Err(io::Error::other(why.clone())),
            None => Ok(()),
        }
    }
}
