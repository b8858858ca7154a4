//! Tests of the log as a whole: a disk in memory, Kafka's own files, and a model.
#![allow(
    clippy::unwrap_used,
    reason = "a failed conversion is the test's failure"
)]

mod basics;
mod disk;
mod golden;
mod model;
mod opening;
mod retention;
mod rig;
mod scenario;
mod settling;
