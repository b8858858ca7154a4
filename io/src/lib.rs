//! The machine: executors, rings, sockets and disks. All unsafe code of the workspace lives here.
//!
//! What it is: one pinned thread per core that waits in one place (`turn`), the queues between
//! those threads (`mesh`, `inbox`), what they share (`credits`, `slots`), and the operating system's
//! sockets and files behind types that cannot dangle.
//!
//! What the caller must do: after each `Turn::wait` look at every queue whose producers ring that
//! turn's doorbell; the rest of the rules stand at each type.
//!
//! What is not here: Kafka. This crate does not know what a topic, a group or a frame is.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p corelog-io --release loom` model-checks `ring`, `parked`
//! and `credits`; only these modules are compiled for it.

pub mod credits;
mod parked;
pub mod ring;
mod sync;

#[cfg(not(loom))]
mod background;
#[cfg(not(loom))]
pub mod buffer;
#[cfg(not(loom))]
pub mod cpu;
#[cfg(not(loom))]
pub mod disk;
#[cfg(not(loom))]
pub mod executor;
#[cfg(not(loom))]
pub mod inbox;
#[cfg(not(loom))]
pub mod mesh;
#[cfg(not(loom))]
pub mod net;
#[cfg(not(loom))]
pub mod probe;
#[cfg(not(loom))]
pub mod slots;
#[cfg(not(loom))]
pub mod turn;
#[cfg(not(loom))]
pub mod watchdog;

#[cfg(all(test, not(loom)))]
mod testing;
