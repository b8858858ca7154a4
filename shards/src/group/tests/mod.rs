//! Tests of all groups of a shard on a log in memory: scenario files, one for each rule of kafka.md 7.3, and random members.

mod model;
mod rig;
mod scenario;
