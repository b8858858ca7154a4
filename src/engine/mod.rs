//! Engines act: they move bytes between sockets, shards and disks, and decide nothing.
//!
//! [`prepare`] takes what the host must give, [`serve`] starts a broker and returns when it has stopped (`start`). [`percore`] is the engine that
//! corelog exists for: a pinned thread per core; `classic` is the design of Kafka, to compare with. Engines share [`requests`], [`reply_order`] and `counting`; [`storage`], [`log_dirs`], [`recovery`] and
//! [`metadata`], which know the directories; `listen`; and the threads beside them: `keeper` and `slow`, whose news come as a `notice`.

mod classic;
pub mod clock;
mod counting;
mod keeper;
mod listen;
pub mod log_dirs;
pub mod metadata;
mod notice;
pub mod percore;
pub mod recovery;
pub mod reply_order;
pub mod requests;
mod slow;
mod start;
pub mod storage;

pub use listen::Bound;
pub use start::{ServeError, prepare, serve};

use std::hash::{BuildHasher, RandomState};

/// Randomness from the operating system, for seeds.
pub fn random_u64() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
