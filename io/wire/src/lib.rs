//! The language: everything that has a Kafka byte layout.
//!
//! - [`primitives`]: text, ids, and how single values lie in bytes
//! - [`frame`]: the size prefix and the headers around a message
//! - [`messages`]: every RPC, written by the build script from `schema/rpcs.txt`, and cursors for the data path
//! - [`records`]: the metadata log, the internal topics, control records
//!
//! Not here: sockets, files, clocks, and what any of it means.
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "arbitrary"))]
pub mod arbitrary;
pub mod batch;
pub mod compress;
pub mod frame;
pub mod messages;
pub mod primitives;
pub mod records;
