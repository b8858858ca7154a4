//! Files and directories of log directories.

pub mod blocking;
pub mod dir;
mod file;
pub mod map;
pub mod space;
pub mod write_behind;

pub use file::{File, OpenMode};
