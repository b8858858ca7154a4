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
    /// List, describe and delete consumer groups, and move their offsets.
    #[command(subcommand)]
    Group(GroupCommand),
    /// Send every line of stdin as a record.
    Produce(ProduceArgs),
    /// Print records of a topic, one a line.
    Consume(ConsumeArgs),
    /// Measure a broker: load at fixed times, what it cost, how long it took.
    Bench(corelog_perf::Arguments),
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
    /// How threads, sockets and disks are put together [default: percore].
    #[arg(long, value_name = "ENGINE")]
    pub(super) engine: Option<Engine>,
    /// Units of ownership that partitions are spread over [default: one per core; of the classic engine, eight per handler thread].
    #[arg(long, value_name = "COUNT")]
    pub(super) shards: Option<u16>,
    /// How log lines look [default: human].
    #[arg(long, value_name = "FORMAT")]
    pub(super) log_format: Option<LogFormat>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Engine {
    /// One pinned thread per core.
    Percore,
    /// Network threads, one request queue and handler threads, as in Kafka.
    Classic,
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

#[derive(Debug, Subcommand)]
pub(super) enum GroupCommand {
    /// List groups and their states.
    List {
        #[command(flatten)]
        broker: BrokerArgs,
        /// One JSON object a line.
        #[arg(short, long)]
        json: bool,
    },
    /// Show members, what they read, and how far they are behind.
    Describe {
        #[command(flatten)]
        broker: BrokerArgs,
        /// [default: all]
        groups: Vec<String>,
        /// One JSON object a line.
        #[arg(short, long)]
        json: bool,
    },
    /// Delete groups without members, and their offsets.
    Delete {
        #[command(flatten)]
        broker: BrokerArgs,
        #[arg(required = true)]
        groups: Vec<String>,
    },
    /// Move the offsets of a group without members.
    ResetOffsets(ResetArgs),
}

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("target").required(true)))]
pub(super) struct ResetArgs {
    #[command(flatten)]
    pub(super) broker: BrokerArgs,
    pub(super) group: String,
    /// A topic, or some of its partitions; any number of times.
    #[arg(
        short = 'T',
        long = "topic",
        value_name = "NAME[:0,1,…]",
        conflicts_with = "all_topics"
    )]
    pub(super) topics: Vec<String>,
    /// Everything that the group has offsets of.
    #[arg(long)]
    pub(super) all_topics: bool,
    /// To the beginning of the log.
    #[arg(long, group = "target")]
    pub(super) to_earliest: bool,
    /// To the end of the log.
    #[arg(long, group = "target")]
    pub(super) to_latest: bool,
    /// To the first record of this time or later.
    #[arg(long, group = "target", value_name = "YYYY-MM-DDTHH:MM:SS.mmm")]
    pub(super) to_datetime: Option<String>,
    /// To the first record that is at most so old.
    #[arg(long, group = "target", value_name = "PnDTnHnMnS")]
    pub(super) by_duration: Option<String>,
    /// Forwards, or backwards if negative.
    #[arg(
        long,
        group = "target",
        value_name = "COUNT",
        allow_negative_numbers = true
    )]
    pub(super) shift_by: Option<i64>,
    #[arg(long, group = "target", value_name = "OFFSET")]
    pub(super) to_offset: Option<i64>,
    /// To what a file says, in lines of topic,partition,offset.
    #[arg(long, group = "target", value_name = "FILE")]
    pub(super) from_file: Option<PathBuf>,
    /// Only show what would be done; so it is without --execute too.
    #[arg(long, conflicts_with = "execute")]
    pub(super) dry_run: bool,
    /// Do it.
    #[arg(long)]
    pub(super) execute: bool,
    /// One JSON object a line.
    #[arg(short, long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ProduceArgs {
    #[command(flatten)]
    pub(super) broker: BrokerArgs,
    pub(super) topic: String,
    /// The partition of all records [default: by the hash of the key, in turns without one].
    #[arg(short, long, value_parser = clap::value_parser!(i32).range(0..))]
    pub(super) partition: Option<i32>,
    /// What stands between key and value; a line without it has no key.
    #[arg(short, long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(super) key_separator: Option<String>,
    /// A key or value that is this text is null.
    #[arg(long, value_name = "TEXT")]
    pub(super) null: Option<String>,
    /// A header of every record, any number of times.
    #[arg(short = 'H', long = "header", value_name = "NAME=VALUE")]
    pub(super) headers: Vec<String>,
    #[arg(long, value_enum, default_value_t = Acks::All)]
    pub(super) acks: Acks,
    #[arg(long, value_enum, default_value_t = Compression::None)]
    pub(super) compression: Compression,
    /// Do not say how many records there were.
    #[arg(short, long)]
    pub(super) quiet: bool,
}

/// Who must have a record before it counts as produced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Acks {
    #[value(name = "0")]
    None,
    #[value(name = "1")]
    Leader,
    #[value(name = "all")]
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Compression {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

#[derive(Debug, Args)]
pub(super) struct ConsumeArgs {
    #[command(flatten)]
    pub(super) broker: BrokerArgs,
    pub(super) topic: String,
    /// Only this partition [default: all].
    #[arg(short, long, value_parser = clap::value_parser!(i32).range(0..))]
    pub(super) partition: Option<i32>,
    /// beginning, end, an offset, or @MILLISECONDS since 1970.
    #[arg(short, long, default_value = "end")]
    pub(super) from: From,
    /// Stop after this many records.
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub(super) max: Option<u64>,
    /// Stop at the end that the log has now.
    #[arg(short = 'e', long)]
    pub(super) until_end: bool,
    /// One JSON object a line, with offset, timestamp, key and headers.
    #[arg(short, long, conflicts_with_all = ["key_separator", "null"])]
    pub(super) json: bool,
    /// Print keys too, with this between key and value.
    #[arg(short, long, value_name = "TEXT")]
    pub(super) key_separator: Option<String>,
    /// What is printed for null [default: nothing].
    #[arg(long, value_name = "TEXT")]
    pub(super) null: Option<String>,
}

/// Where to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    Beginning,
    End,
    Offset(i64),
    /// Milliseconds since the Unix epoch.
    Time(i64),
}

impl std::str::FromStr for From {
    type Err = String;

    fn from_str(text: &str) -> Result<From, String> {
        let number = |text: &str| text.parse().ok().filter(|number| *number >= 0);
        match (text, text.strip_prefix('@')) {
            ("beginning", _) => Some(From::Beginning),
            ("end", _) => Some(From::End),
            (_, Some(ms)) => number(ms).map(From::Time),
            _ => number(text).map(From::Offset),
        }
        .ok_or_else(|| "give beginning, end, an offset, or @MILLISECONDS since 1970".to_owned())
    }
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
    fn a_beginning_is_a_word_an_offset_or_a_time() {
        assert_eq!("beginning".parse(), Ok(From::Beginning));
        assert_eq!("7".parse(), Ok(From::Offset(7)));
        assert_eq!("@7".parse(), Ok(From::Time(7)));
        for text in ["", "-1", "@", "@-1", "start", "1.5"] {
            assert!(text.parse::<From>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_commands_of_the_readme_are_understood() {
        for line in [
            "serve",
            "serve --config server.properties --override num.partitions=3 --override node.id=2 --engine classic --cores 0,2-5 --shards 4 --log-format json",
            "format --override log.dirs=/a,/b --cluster-id x",
            "topic create events -p 3 -c retention.ms=1000 --if-not-exists",
            "topic list -b localhost:9092",
            "topic describe a b",
            "topic delete a",
            "topic alter a --partitions 4 --set retention.ms=1 --unset segment.bytes",
            "group list --json",
            "group describe a b -b localhost:9092",
            "group delete a",
            "group reset-offsets a --topic t:0,1 --topic u --shift-by -5 --execute",
            "group reset-offsets a --all-topics --to-datetime 2026-01-31T12:00:00.000 --dry-run",
            "produce a --key-separator : --acks all --compression zstd -H a=b",
            "produce a --acks 1 -p 0",
            "consume a --from beginning --until-end --json",
            "consume a -f @1700000000000 -n 5 -p 0 -k :",
            "bench run b1 b6 --target percore --target floor --repeats 3",
            "version",
        ] {
            let words = std::iter::once("corelog").chain(line.split(' '));
            Arguments::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }
}
