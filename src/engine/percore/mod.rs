//! The engine that corelog exists for: one pinned thread per core, each with its own ring, its own sockets and its own shards.
//!
//! Reading order: `core` (the turn), `connection`, `credits`, `hop` (what crosses cores), `longest_turn`, `disk`, `mail` (what reaches a core from other threads), `start`.

mod connection;
mod core;
mod credits;
mod disk;
mod hop;
mod longest_turn;
mod mail;
mod start;

pub(super) use start::{Running, check_host, cores, shard_count};
