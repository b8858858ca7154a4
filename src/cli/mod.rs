//! The command line.
//!
//! `serve` and `format` work on directories; the others are small clients that speak Kafka's protocol to any broker. Every command returns a
//! [`Failure`] that says what, why and what to do; `main` prints it and gives the exit code.

mod args;
mod failure;

mod bench;

mod logging;
mod serve;

mod client;
mod cluster;
mod topic;

mod group;
mod group_offsets;
mod group_reset;
mod lag;
mod moments;

mod consume;
mod partitioner;
mod produce;
mod record_text;

mod print;

pub use args::Arguments;
pub use failure::Failure;

use args::Command;

/// Runs one command.
pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let done = match arguments.command {
        Command::Serve(serve) => serve::serve(&serve),
        Command::Format(format) => serve::format(&format, &mut out),
        Command::Topic(topic) => topic::run(&topic, &mut out),
        Command::Group(group) => group::run(&group, &mut out),
        Command::Produce(produce) => {
            produce::run(&produce, std::io::stdin(), &mut std::io::stderr())
        }
        Command::Consume(consume) => consume::run(&consume, &mut std::io::BufWriter::new(&mut out)),
        Command::Bench(bench) => bench::run(&bench),
        Command::Version => print::version(&mut out),
    };
    match done {
        // Whoever read our output has seen enough: `corelog topic list | head -1` is no error.
        Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
