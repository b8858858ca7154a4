//! corelog: a Kafka broker for bare-metal Linux, one pinned thread per core, io_uring for sockets and for disks.

pub mod api;
pub mod cli;
pub mod config;
pub mod console;
pub mod engine;
pub mod metrics;
