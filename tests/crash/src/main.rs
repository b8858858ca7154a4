//! Programs against a real `corelog serve` on a temporary directory: `kill` takes it down under load again and again, `groups` does so in
//! the middle of rebalances and commits, `shards` restarts it with other numbers of shards, `hostile` sends it what no client sends. Each
//! checks what the broker promised and ends with exit status 1 and a line that says which promise was broken. The requests are made by hand
//! (`connection`), so that the broker's codecs are not their own judge.

#![expect(
    clippy::print_stdout,
    reason = "these programs report to a person or to CI"
)]

mod broker;
mod connection;
mod content;
mod groups;
mod hostile;
mod ledger;
mod load;
mod random;
mod rounds;
mod timings;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Kill -9 under load, restart, check: every acknowledged record is there, in order, once, at its offset.
    Kill(KillArgs),
    /// Restart with other numbers of shards, after clean stops and kills.
    Shards(ShardsArgs),
    /// Kill -9 in the middle of rebalances and commits, restart, check: commits stay, members rejoin, no group is stuck.
    Groups(GroupsArgs),
    /// Many groups and a large one beside a producer on one core: times, memory, the longest turn.
    Scale(ScaleArgs),
    /// Frames that no client sends, connections that do nothing, senders that are slow.
    Hostile(HostileArgs),
}

#[derive(Debug, Args)]
pub(crate) struct Common {
    #[command(flatten)]
    tested: broker::Tested,
    /// What random choices begin with, printed by every run.
    #[arg(long)]
    seed: Option<u64>,
    /// Keep the data directory, for looking at.
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, Args)]
struct KillArgs {
    #[command(flatten)]
    common: Common,
    #[arg(long, default_value_t = 100)]
    rounds: u32,
    /// Partitions of each of the two topics.
    #[arg(long, default_value_t = 6)]
    partitions: i32,
    /// MiB put into one more partition before the first round.
    #[arg(long, default_value_t = 0)]
    fill_mib: u32,
    /// Shards of the broker [default: the broker's own].
    #[arg(long)]
    shards: Option<u16>,
}

#[derive(Debug, Args)]
struct ShardsArgs {
    #[command(flatten)]
    common: Common,
    /// Numbers of shards, one after the other.
    #[arg(long, value_delimiter = ',', default_values_t = [4, 1, 3, 2, 4])]
    cycle: Vec<u16>,
    #[arg(long, default_value_t = 12)]
    partitions: i32,
}

#[derive(Debug, Args)]
struct GroupsArgs {
    #[command(flatten)]
    common: Common,
    #[arg(long, default_value_t = 100)]
    rounds: u32,
    /// Groups whose members come and go; two more are left alone.
    #[arg(long, default_value_t = 6)]
    groups: usize,
    /// Partitions of the topic that the groups share out.
    #[arg(long, default_value_t = 8)]
    partitions: i32,
    /// Shards of the broker [default: the broker's own].
    #[arg(long)]
    shards: Option<u16>,
}

#[derive(Debug, Args)]
struct ScaleArgs {
    #[command(flatten)]
    common: Common,
    /// Groups of three members.
    #[arg(long, default_value_t = 1_000)]
    groups: usize,
    /// Members of one more group.
    #[arg(long, default_value_t = 1_000)]
    members: usize,
}

#[derive(Debug, Args)]
struct HostileArgs {
    #[command(flatten)]
    common: Common,
    /// Connections that send one byte and wait.
    #[arg(long, default_value_t = 10_000)]
    connections: usize,
    /// Random and mutated frames.
    #[arg(long, default_value_t = 4_000)]
    frames: u32,
    /// Leave out the parts whose names contain this (Apache Kafka, to compare with, dies of "claimed and not sent").
    #[arg(long)]
    skip: Option<String>,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Kill(args) => rounds::run(&rounds::Plan {
            seed: seed(&args.common),
            tested: args.common.tested,
            keep: args.common.keep,
            rounds: args.rounds,
            partitions: args.partitions,
            fill_mib: args.fill_mib,
            shards: args.shards.into_iter().collect(),
            endings: rounds::Endings::MostlyKilled,
        }),
        Command::Shards(args) => rounds::run(&rounds::Plan {
            seed: seed(&args.common),
            tested: args.common.tested,
            keep: args.common.keep,
            rounds: 2 * args.cycle.len() as u32,
            partitions: args.partitions,
            fill_mib: 0,
            shards: args.cycle,
            endings: rounds::Endings::CleanThenKilled,
        }),
        Command::Groups(args) => groups::rounds::run(&groups::rounds::Plan {
            seed: seed(&args.common),
            tested: args.common.tested,
            keep: args.common.keep,
            rounds: args.rounds,
            groups: args.groups,
            partitions: args.partitions,
            shards: args.shards,
        }),
        Command::Scale(args) => groups::scale::run(&groups::scale::Plan {
            seed: seed(&args.common),
            tested: args.common.tested,
            groups: args.groups,
            members: args.members,
        }),
        Command::Hostile(args) => {
            let seed = seed(&args.common);
            let size = hostile::Size {
                connections: args.connections,
                frames: args.frames,
            };
            hostile::run(&args.common.tested, seed, &size, args.skip.as_deref())
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("FAILED: {why}");
            ExitCode::FAILURE
        }
    }
}

fn seed(common: &Common) -> u64 {
    let seed = common.seed.unwrap_or_else(random::fresh_seed);
    println!("seed {seed}");
    seed
}
