//! The embedded single-voter controller (kraft.md 9). Lives on shard 0.
//!
//! Reading order: [`request`] (what is asked), [`decision`] with [`topics`], [`configs`] and [`assignment`] (pure decisions), [`leader`] (append,
//! sync, publish, answer), [`start`] (what is written at start), [`load`] (what an earlier run left), [`snapshots`] and [`snapshot_file`],
//! [`quorum_state`]. Not here: other voters, other brokers' registrations and heartbeats.

mod assignment;
mod batch;
mod configs;
mod decision;
mod leader;
mod load;
mod quorum_state;
pub mod request;
mod settings;
mod snapshot_file;
mod snapshots;
mod start;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod topic_name;
mod topics;

pub use batch::BadBatch;
pub use leader::{Controller, log_config};
pub use load::{LoadFailure, Loaded, SnapshotFile};
pub use quorum_state::{BadQuorumState, Form, QuorumState};
pub use request::{Reply, Request};
pub use settings::Settings;
pub use snapshot_file::{BadSnapshot, bootstrap_checkpoint};
pub use start::bootstrap_records;
