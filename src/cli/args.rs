//! What can be said on the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// A Kafka broker, one pinned thread per core, and small clients for it.
#[derive(Debug, Parser)]
#[command(name = "corelog", version, disable_help_subcommand = true)]
pub struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run the broker.
    Serve(ServeArgs),
    /// Give log directories their identity (serve does it itself for empty ones).
    Format(FormatArgs),
    /// Create, list, describe, delete and alter topics.
    #[command(subcommand)]
    Topic(TopicCommand),
    /// Print the version and what it is compatible with.
    Version,
}

/// Where settings come from.
#[derive(Debug, Args)]
pub(super) struct SettingsArgs {
    /// A file in the syntax and with the names of Kafka's server.properties.
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// One setting; wins over the file. Any number of times.
    #[arg(long = "override", value_name = "PROPERTY=VALUE")]
    pub(super) overrides: Vec<String>,
}

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    pub(super) settings: SettingsArgs,
    /// The cores to run on, such as 0,2-5 [default: all that are allowed].
    #[arg(long, value_name = "LIST")]
    pub(super) cores: Option<String>,
    /// Units of ownership that partitions are spread over [default: one per core].
    #[arg(long, value_name = "COUNT")]
    pub(super) shards: Option<u16>,
    /// How log lines look [default: human].
    #[arg(long, value_name = "FORMAT")]
    pub(super) log_format: Option<LogFormat>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    Human,
    Json,
}

#[derive(Debug, Args)]
pub(super) struct FormatArgs {
    #[command(flatten)]
    pub(super) settings: SettingsArgs,
    /// The cluster that the directories belong to [default: that of formatted ones, else a new random id].
    #[arg(long, value_name = "ID")]
    pub(super) cluster_id: Option<String>,
}

/// Which broker to ask.
#[derive(Debug, Clone, Args)]
pub(super) struct BrokerArgs {
    /// A broker; others are found through it.
    #[arg(
        short,
        long,
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:9092"
    )]
    pub(super) bootstrap_server: String,
    /// How long to wait for one answer.
    #[arg(long, value_name = "MS", default_value_t = 30_000)]
    pub(super) timeout_ms: u32,
}

#[derive(Debug, Subcommand)]
pub(super) enum TopicCommand {
    /// Create a topic.
    Create {
        #[command(flatten)]
        broker: BrokerArgs,
        name: String,
        /// [default: num.partitions of the broker]
        #[arg(short, long, value_parser = clap::value_parser!(i32).range(1..))]
        partitions: Option<i32>,
        /// [default: default.replication.factor of the broker]
        #[arg(short, long, value_parser = clap::value_parser!(i16).range(1..))]
        replication_factor: Option<i16>,
        /// A property of the topic, any number of times.
        #[arg(short, long = "config", value_name = "PROPERTY=VALUE")]
        configs: Vec<String>,
        /// Succeed if it is there already.
        #[arg(long)]
        if_not_exists: bool,
    },
    /// List the names of topics, one a line.
    List {
        #[command(flatten)]
        broker: BrokerArgs,
        /// Those of the broker itself too.
        #[arg(long)]
        internal: bool,
    },
    /// Show partitions and the properties that differ from the defaults.
    Describe {
        #[command(flatten)]
        broker: BrokerArgs,
        /// [default: all]
        names: Vec<String>,
    },
    /// Delete topics and everything in them.
    Delete {
        #[command(flatten)]
        broker: BrokerArgs,
        #[arg(required = true)]
        names: Vec<String>,
        /// Succeed if one is not there.
        #[arg(long)]
        if_exists: bool,
    },
    /// Add partitions, set and unset properties.
    Alter {
        #[command(flatten)]
        broker: BrokerArgs,
        name: String,
        /// The new number of partitions; only more than before.
        #[arg(short, long, value_parser = clap::value_parser!(i32).range(1..))]
        partitions: Option<i32>,
        /// A property to set, any number of times.
        #[arg(long, value_name = "PROPERTY=VALUE")]
        set: Vec<String>,
        /// A property to give back to its default, any number of times.
        #[arg(long, value_name = "PROPERTY")]
        unset: Vec<String>,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_commands_of_the_readme_are_understood() {
        for line in [
            "serve",
            "serve --config server.properties --override num.partitions=3 --override node.id=2 --cores 0,2-5 --shards 4 --log-format json",
            "format --override log.dirs=/a,/b --cluster-id x",
            "topic create events -p 3 -c retention.ms=1000 --if-not-exists",
            "topic list -b localhost:9092",
            "topic describe a b",
            "topic delete a",
            "topic alter a --partitions 4 --set retention.ms=1 --unset segment.bytes",
            "version",
        ] {
            let words = std::iter::once("corelog").chain(line.split(' '));
            Arguments::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }
}
