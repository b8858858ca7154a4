//! Engines act: they move bytes between sockets, shards and disks, and decide nothing.
//!
//! [`percore`] is the one that corelog exists for: a pinned thread per core. [`requests`] and [`reply_order`] are shared by all of them.

pub mod reply_order;
pub mod requests;
