//! The load: one thread, one epoll, producers that send what is due and consumers that fetch what is there.
//!
//! - `topics`: topics and partitions as numbers
//! - `producing`, `consuming`: what one connection does
//! - `routing`: partitions by core, where the workload asks for it
//! - `run`: the loop, and what it calls when a second is over

mod topics;

mod consuming;
mod producing;
mod routing;

mod run;

pub(crate) use run::{Job, Moment, Window, fill, run, touch};
pub(crate) use topics::Topics;
