//! Values that begin with their own version: the consumer protocol (kafka.md 7.2), the principal inside an Envelope
//! (kraft.md 4.1), entries of the aborted transactions' index, and the bodies of control records.

pub use generated::*;

mod generated {
    #![allow(
        clippy::all,
        clippy::pedantic,
        unused_imports,
        unused_variables,
        unused_mut,
        dead_code,
        reason = "written by the build script"
    )]
    include!(concat!(env!("OUT_DIR"), "/data.rs"));
}
