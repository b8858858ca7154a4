//! Sockets: taking connections, dealing them to cores, and the socket itself.

pub mod deal;
pub mod listener;
mod socket;

pub use socket::{ConnectionLimit, ConnectionPlace, Socket};
