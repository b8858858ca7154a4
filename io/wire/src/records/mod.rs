//! What Kafka writes into its own logs.
//!
//! - [`metadata`]: the records of the metadata log
//! - [`control`]: control records of any log
//! - [`offsets`], [`transactions`], [`share_state`]: the internal topics
//! - [`data`]: other values that begin with their own version, such as the consumer protocol
//!
//! All structs are written by the build script from the tables in `schema/`.

pub mod control;
pub mod data;
pub mod metadata;
pub mod offsets;
pub mod share_state;
pub mod transactions;
