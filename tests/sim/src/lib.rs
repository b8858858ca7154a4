//! The simulator: the shards of one node, driven by a seeded scheduler on a virtual disk, a virtual net and a virtual clock.
//!
//! Everything that decides is the product's own code: `api` splits and joins, the engine's table of requests and its order of replies, shards,
//! recovery, the controller. The simulator owns what an engine would do: it carries parts and replies, completes effects in any order that the
//! contract allows, kills the process or cuts the power between any two of them, and starts the node again with another number of shards.
//!
//! Reading order: [`seeded`] and [`history`] (randomness in, hash out), [`disk`] (files), [`device`] (effects under way), [`net`], [`node`] (cores),
//! [`clients`] (the load), [`oracle`] (what has to be true of answers), [`invariants`] (what has to be true of shards), [`world`] (the loop), [`run`].
//!
//! Not here: threads, sockets, files, credits, real time. A run is a function of its seed.

pub mod clients;
pub mod device;
pub mod disk;
pub mod history;
pub mod invariants;
pub mod load;
pub mod net;
pub mod node;
pub mod oracle;
pub mod run;
pub mod seeded;
pub mod shown;
pub mod start;
pub mod world;

/// Something that must not happen has happened. The sentence names the invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(pub String);

/// What every step of the simulator gives.
pub type Checked<T = ()> = Result<T, Failure>;

/// A [`Failure`] unless the condition holds.
#[macro_export]
macro_rules! must {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::Failure(format!($($message)+)));
        }
    };
}
