//! The partitions that a shard owns: produce, fetch, list offsets, delete records.
//!
//! [`Partitions`] takes parts and finished effects and answers parts; [`Partition`] is the state of one. Both are used by [`crate::shard`] and, for
//! appends and reads of its own, by a coordinator ([`internal`]).
//!
//! Reading order: [`state`], [`partitions`], [`validate`], [`produce`], [`watch`], [`fetch`], [`lookups`], [`delete_records`], [`internal`], [`refuse`],
//! [`fetch_session`]. Not here: bytes of a log (`log`), which partition is whose (`metadata`, `placement`), RPCs.

mod delete_records;
mod fetch;
pub mod fetch_session;
pub mod internal;
mod lookups;
mod partitions;
mod produce;
mod refuse;
mod state;
mod ticket;
mod validate;
mod watch;

#[cfg(test)]
mod tests;

pub use partitions::{Partitions, PartitionsConfig};
pub use refuse::{partitions_of, refuse};
pub use state::{Partition, State};
