//! The mind of corelog: pure state machines that decide, and never act.
//!
//! A [`shard::Shard`] owns partitions, groups and (shard 0) the controller, with every bit of state about them.
//! Facts go in by [`event::Event`], wishes come out as [`effect::Effect`]; engines carry them out. There is no clock,
//! file, socket, thread, lock or await in this crate (`clippy.toml` is the fence).
//!
//! Reading order: [`base`], [`event`], [`effect`], [`part`], [`log`], [`partition`], [`metadata`], [`controller`], [`shard`].
#![forbid(unsafe_code)]

pub mod base;
pub mod controller;
pub mod coordinator;
pub mod effect;
pub mod event;
pub mod group;
pub mod log;
pub mod metadata;
pub mod part;
pub mod partition;
#[cfg(test)]
mod scenario;
pub mod shard;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
