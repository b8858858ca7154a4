//! The measure: load on a Kafka broker, and what it cost.
//!
//! - [`workload`]: what is sent, as small files in `workloads/`
//! - `schedule`: when it is sent; latency counts from there, not from when the broker let us send
//! - `frames`, `connection`, `load`: the client, one thread on one epoll
//! - `process`, `recorded`: what the broker and the machine spent, and what the client saw
//! - `target`, `floor`, `cache`: brokers to start and stop, the bound they are compared with, the state of the page cache
//! - `compare`, `memory`, `start`: the runs; `report`: JSON and tables
//!
//! The client speaks Produce 8, Fetch 11, CreateTopics 4, DeleteTopics 3 and ApiVersions 0, so it measures every Kafka broker. Its batches are built
//! before the run and its frames never change, so that the load costs little and the same for every broker.
//!
//! Not here: groups, transactions, more than one broker, more load than one core can make.
#![forbid(unsafe_code)]

mod arguments;
mod failure;

pub mod workload;

mod connection;
mod frames;
mod load;
mod recorded;
mod schedule;

mod cache;
mod floor;
mod process;
mod target;

mod compare;
mod memory;
mod start;

mod report;

pub use arguments::{Arguments, run};
pub use failure::Failure;
