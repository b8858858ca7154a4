//! The measure: load on a Kafka broker, and what it cost.
//!
//! - [`workload`]: what is sent, as small files in `workloads/`
//! - `schedule`: when it is sent; latency counts from there, not from when the broker let us send
//! - `frames`, `connection`, `load`, `idle`: the client, one thread on one epoll
//! - `recorded`, `hlog`: what the client saw, second by second
//! - `process`, `host`, `stages`: what the broker and the machine spent, and what the broker says about itself
//! - `target`, `floor`, `answers`, `cache`: brokers to start and stop, the bound they are compared with, the state of the page cache
//! - `measure`, `lab`: one run, and what lasts longer than one
//! - `compare`, `sweep`, `growth`, `hop`, `memory`, `start`, `baseline`: which runs
//! - `results`, `verdict`, `table`, `report`: what they say
//! - `progress`, `interrupt`: while it goes on
//!
//! The client speaks Produce 8, Fetch 11, CreateTopics 4, DeleteTopics 3, InitProducerId 1 and ApiVersions 0, so it measures every Kafka broker. Its batches are
//! built before the run and its frames change only by a sequence, so that the load costs little and the same for every broker.
//!
//! Not here: groups, transactions, more than one broker, more load than one core can make.
#![forbid(unsafe_code)]

mod arguments;
mod failure;

pub mod workload;

mod connection;
mod frames;
mod idle;
mod interrupt;
mod load;
mod progress;
mod schedule;

mod hlog;
mod recorded;

mod answers;
mod cache;
mod floor;
mod host;
mod process;
mod stages;
mod target;

mod lab;
mod measure;

mod baseline;
mod compare;
mod growth;
mod hop;
mod memory;
mod start;
mod sweep;

mod report;
mod results;
mod table;
mod verdict;

pub use arguments::{Arguments, run};
pub use failure::Failure;
