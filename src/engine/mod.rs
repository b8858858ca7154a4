//! Engines act: they move bytes between sockets, shards and disks, and decide nothing.
//!
//! [`percore`] is the one that corelog exists for: a pinned thread per core. [`requests`] and [`reply_order`] are shared by all of them;
//! [`storage`], [`log_dirs`], [`recovery`] and [`metadata`] know the directories.

pub mod clock;
pub mod log_dirs;
pub mod metadata;
pub mod percore;
pub mod recovery;
pub mod reply_order;
pub mod requests;
pub mod storage;

use std::hash::{BuildHasher, RandomState};

/// Randomness from the operating system, for seeds.
pub fn random_u64() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
