//! A coordinator is a replayed state machine on a partition (kafka.md G-3, G-4). This is the half that all of them share; [`crate::group`]
//! is the first machine on it.
//!
//! - [`placement`]: which partition coordinates a key
//! - [`ledger`]: one partition's load, its appends under way and their outcome
//! - [`replay`]: from the bytes of a log to records, from records to a batch
//! - [`failure`]: what a client is told when an append fails
//!
//! A change is *appended* first, is *committed* later, in order, and only then shown and answered; one that fails leaves no trace.
//! A coordinator never touches the partition: it puts an [`Ask`] where the shard finds it, and the shard brings the outcome back with
//! the ask's ticket. Not here: what a record means.

pub mod failure;
pub mod ledger;
pub mod placement;
pub mod replay;

use bytes::Bytes;

use crate::base::ids::TopicPartition;

/// What a coordinator wants from a partition of its shard.
#[derive(Debug)]
pub enum Ask {
    /// Append one batch with the promise of acks=all.
    Append {
        partition: TopicPartition,
        batch: Bytes,
        ticket: u64,
    },
    /// Whole batches from `offset`, or from the log's start if that is later, up to the log's end.
    Read {
        partition: TopicPartition,
        offset: i64,
        max_bytes: u32,
        ticket: u64,
    },
}
