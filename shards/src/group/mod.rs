//! Consumer groups: the classic protocol (kafka.md 7.3) and the offsets that groups commit, on [`crate::coordinator`].
//!
//! Reading order: [`request`] (what is asked and answered), [`config`], [`groups`] (all groups of a shard: load, routing, time, outcomes of
//! appends), `classic` (one group's state), `member`, then what happens to it: `join`, `rebalance`, `sync`, `leave`, `offsets`, `commit`,
//! `expire`, `admin`; `record` is what of it stands in the log.
//!
//! The shard gives requests to [`groups::Groups::on_request`] and what its partitions finished to the methods beside it, carries out the
//! asks, and ticks it when [`groups::Groups::next_deadline`] has come. Not here: the KIP-848 protocol (its records are passed over and
//! stay in the log), offsets inside transactions, authorisation.

mod admin;
mod classic;
mod commit;
pub mod config;
mod expire;
pub mod groups;
mod home;
mod join;
mod leave;
pub mod limits;
mod member;
mod offsets;
mod outcome;
mod rebalance;
mod record;
pub mod request;
mod sync;
mod turn;

#[cfg(test)]
mod tests;

pub use groups::Groups;
pub use request::{Reply, Request};
