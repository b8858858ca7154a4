//! The engine that corelog exists for: one pinned thread per core, each with its own ring, its own sockets and its own shards.
//!
//! [`prepare`] takes what the host must give, [`serve`] starts the engine and returns when it has stopped. Reading order: `core` (the turn), `connection`, `credits`, `hop` (what crosses cores),
//! `disk`, `mail` and `slow` (what reaches a core from other threads), `start`.

mod connection;
mod core;
mod credits;
mod disk;
mod hop;
mod listen;
mod mail;
mod slow;
mod start;

pub use listen::Bound;
pub use start::{ServeError, prepare, serve};
