//! Files and directories of log directories.

mod file;

pub use file::{File, OpenMode};
