//! `corelog bench` alone, for `cargo xtask bench`.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;

#[derive(Debug, Parser)]
#[command(
    name = "corelog-perf",
    version,
    about = "Load on a Kafka broker, and what it cost"
)]
struct Line {
    #[command(flatten)]
    bench: corelog_perf::Arguments,
}

fn main() -> ExitCode {
    match corelog_perf::run(&Line::parse().bench, &[]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // When stderr is gone there is nobody left to tell.
            let _ = writeln!(std::io::stderr(), "corelog-perf: {failure}");
            ExitCode::FAILURE
        }
    }
}
