//! The corelog binary.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use corelog::cli::{self, Arguments};

/// 0: done; 1: failed, and stderr says why; 2: the command line was not understood, or a stop was forced.
fn main() -> ExitCode {
    match cli::run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // When stderr is gone there is nobody left to tell.
            let _ = writeln!(std::io::stderr(), "corelog: {failure}");
            ExitCode::FAILURE
        }
    }
}
