//! The embedded single-voter controller (kraft.md 9). Lives on shard 0.
//!
//! Reading order: [`request`] (what is asked), [`decision`] with [`topics`], [`configs`] and [`assignment`] (pure decisions), [`start`] (what
//! is written at start). Not here: other voters, other brokers' registrations and heartbeats.

mod assignment;
mod batch;
mod configs;
pub mod decision;
mod load;
mod quorum_state;
pub mod random;
pub mod request;
mod settings;
mod snapshot_file;
pub mod start;
#[cfg(test)]
mod testing;
pub mod topic_name;
mod topics;

pub use batch::BadBatch;
pub use load::{LoadFailure, Loaded, SnapshotFile};
pub use quorum_state::{BadQuorumState, Form, QuorumState};
pub use request::{Reply, Request};
pub use settings::Settings;
pub use snapshot_file::{BadSnapshot, bootstrap_checkpoint};
pub use start::bootstrap_records;
