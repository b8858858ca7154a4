//! Log lines: for people on a terminal, as JSON for machines. `RUST_LOG` chooses what is shown; by default INFO and above.
//!
//! WARN means that an operator must act, ERROR that something has stopped; what is merely interesting is INFO or below.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use super::args::LogFormat;
use super::failure::Failure;

/// Log lines go to stderr: stdout is for output.
pub(super) fn start(format: LogFormat) -> Result<(), Failure> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(text) if !text.is_empty() => EnvFilter::try_new(&text).map_err(|error| {
            Failure::Told(format!(
                "RUST_LOG={text}: {error}; give levels such as info or corelog=debug,warn"
            ))
        })?,
        _ => EnvFilter::new("info"),
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let started = match format {
        LogFormat::Human => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| Failure::Told(format!("cannot start the log: {error}")))
}
