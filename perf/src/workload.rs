//! What is sent: small declarative files, with the names that the OpenMessaging Benchmark has for them where it has any.
//!
//! Those of this folder's `workloads/` are part of the program and are asked for by name; others by path.

use std::collections::BTreeMap;
use std::path::Path;

use clap::ValueEnum;
use corelog_wire::compress::Codec;
use serde::{Deserialize, Serialize};

use crate::Failure;

macro_rules! built_in {
    ($($name:literal)*) => {
        &[$(include_str!(concat!("../workloads/", $name, ".toml"))),*]
    };
}

const BUILT_IN: &[&str] = built_in! {
    "b1"
    "b2"
    "b3"
    "b4"
    "b5"
    "b6"
    "b7"
    "b8"
    "b9"
    "b10"
    "b11"
    "b12"
    "b12-cold"
    "b13"
    "1-topic-1-partition-100b"
    "max-rate-1-topic-1-partition-1p-1c-64kb"
    "1-topic-100-partitions-1kb-4p-4c-200k"
    "partitions-1"
    "partitions-100"
    "partitions-1000"
    "producers-4"
    "producers-50"
    "producers-500"
    "keyed"
    "acks-0"
    "acks-1"
    "acks-all"
    "lz4"
    "zstd"
    "idempotent"
    "catch-up"
    "catch-up-10gb"
    "idle-10000"
    "topics-100"
    "fsync-none"
    "fsync-second"
    "fsync-each"
    "hop-local"
    "hop-crossing"
};

/// Topics, their producers and their consumers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Workload {
    /// Short, such as b1.
    pub name: String,
    pub about: String,
    /// Bytes of a record's value.
    pub message_size: u32,
    pub records_per_batch: u32,
    #[serde(default)]
    pub key_distributor: KeyDistributor,
    /// The share of each value that does not compress; the rest is zeros.
    #[serde(default = "one")]
    pub random_bytes_ratio: f64,
    #[serde(default)]
    pub compression: Compression,
    /// One producer id a connection, and sequence numbers.
    #[serde(default)]
    pub enable_idempotence: bool,
    #[serde(default = "one_topic")]
    pub topics: u32,
    pub partitions_per_topic: u32,
    /// Connections that produce to each topic. Where there are consumers or sequences every partition belongs to one of them.
    pub producers_per_topic: u32,
    /// Requests that a connection may have unanswered.
    pub in_flight: u32,
    /// Records a second of all producers together, sent at times fixed beforehand. Without it each producer sends as soon as it may.
    pub producer_rate: Option<f64>,
    /// How far apart those times are.
    #[serde(default)]
    pub arrivals: Arrivals,
    #[serde(default)]
    pub acks: Acks,
    /// Connections that fetch what is produced; the partitions of all topics are dealt to them.
    #[serde(default)]
    pub consumer_per_subscription: u32,
    /// Connections that have asked one thing and stay silent.
    #[serde(default)]
    pub idle_connections: u32,
    /// Bytes that one Fetch asks for.
    #[serde(default = "default_fetch_bytes")]
    pub fetch_bytes: u32,
    /// Produced first. Without a `producerRate` it is then only read, again and again from the beginning; with one, reading begins with the measured time, while
    /// producing goes on, and ends it when the backlog has been read.
    #[serde(rename = "consumerBacklogSizeGB")]
    pub consumer_backlog_size_gb: Option<f64>,
    /// The backlog is not in the page cache when reading begins.
    #[serde(default)]
    pub cold_backlog: bool,
    pub test_duration_seconds: f64,
    pub warmup_duration_seconds: f64,
    /// Whether requests have to go to another core than the one that their connection is on; for corelog on several cores.
    pub crossings: Option<Crossings>,
    /// Properties of the topic.
    #[serde(default)]
    pub topic_config: BTreeMap<String, String>,
}

/// Keys and, because a key chooses its partition, where batches go. The names are those of the OpenMessaging Benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum KeyDistributor {
    /// No keys; partitions in turns.
    #[default]
    NoKey,
    /// Keys, with the partitions in turns.
    KeyRoundRobin,
    /// Keys that hit the partitions of a connection at random.
    RandomNano,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    #[default]
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl Compression {
    pub(crate) fn codec(self) -> Codec {
        match self {
            Compression::None => Codec::None,
            Compression::Gzip => Codec::Gzip,
            Compression::Snappy => Codec::Snappy,
            Compression::Lz4 => Codec::Lz4,
            Compression::Zstd => Codec::Zstd,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Crossings {
    Never,
    Always,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// The same time between any two.
    #[default]
    Constant,
    /// As many independent clients send: exponential times between them, the same ones in every run.
    Poisson,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Acks {
    #[serde(rename = "0")]
    None,
    #[serde(rename = "1")]
    Leader,
    #[default]
    #[serde(rename = "all")]
    All,
}

impl Acks {
    pub(crate) fn on_the_wire(self) -> i16 {
        match self {
            Acks::None => 0,
            Acks::Leader => 1,
            Acks::All => -1,
        }
    }
}

fn one() -> f64 {
    1.0
}

fn one_topic() -> u32 {
    1
}

fn default_fetch_bytes() -> u32 {
    1 << 20
}

impl Workload {
    /// One of [`Workload::built_in`] by name, or a file.
    pub fn find(name_or_path: &str) -> Result<Workload, Failure> {
        if let Some(known) = Workload::built_in()?
            .into_iter()
            .find(|known| known.name.eq_ignore_ascii_case(name_or_path))
        {
            return Ok(known);
        }
        let path = Path::new(name_or_path);
        if path.extension().is_none() {
            return Err(Failure::told(format!(
                "there is no workload {name_or_path}; give one that `list` shows, or the path of a .toml file"
            )));
        }
        let text = std::fs::read_to_string(path).map_err(Failure::at(path))?;
        Workload::parse(&text).map_err(|why| Failure::told(format!("{}: {why}", path.display())))
    }

    pub fn built_in() -> Result<Vec<Workload>, Failure> {
        let parsed = BUILT_IN.iter().map(|text| Workload::parse(text));
        parsed.collect::<Result<_, _>>().map_err(Failure::Told)
    }

    fn parse(text: &str) -> Result<Workload, String> {
        let workload: Workload = toml::from_str(text).map_err(|error| error.to_string())?;
        workload.check().map(|()| workload)
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        // Results are kept in files of that name.
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
        if self.name.is_empty() || !self.name.bytes().all(is_allowed) {
            return Err(format!(
                "name {:?}: letters, digits, dots, hyphens and underscores only",
                self.name
            ));
        }
        let at_least_one = [
            ("recordsPerBatch", self.records_per_batch),
            ("topics", self.topics),
            ("partitionsPerTopic", self.partitions_per_topic),
            ("producersPerTopic", self.producers_per_topic),
            ("inFlight", self.in_flight),
        ];
        if let Some((name, _)) = at_least_one.iter().find(|(_, value)| *value == 0) {
            return Err(format!("{name} must be at least 1"));
        }
        let ordered = self.consumer_per_subscription > 0 || self.enable_idempotence;
        if ordered && self.producers_per_topic > self.partitions_per_topic {
            return Err("with consumers or sequences producersPerTopic can't exceed partitionsPerTopic: the order of a partition is that of one connection".to_owned());
        }
        if !(0.0..=1.0).contains(&self.random_bytes_ratio) {
            return Err("randomBytesRatio is a share, from 0 to 1".to_owned());
        }
        if self
            .producer_rate
            .is_some_and(|rate| rate.is_nan() || rate <= 0.0)
        {
            return Err(
                "producerRate must be more than 0; leave it out to send without pause".to_owned(),
            );
        }
        if self.consumer_backlog_size_gb.is_some() && self.consumer_per_subscription == 0 {
            return Err("a backlog needs consumers".to_owned());
        }
        if self.acks == Acks::None && self.producer_rate.is_none() {
            return Err(
                "acks 0 needs a producerRate: nothing else would hold the producers back"
                    .to_owned(),
            );
        }
        let durations = [self.test_duration_seconds, self.warmup_duration_seconds];
        if durations
            .iter()
            .any(|seconds| !seconds.is_finite() || *seconds < 0.0)
            || self.test_duration_seconds == 0.0
        {
            return Err("the test must last, and neither duration can be negative".to_owned());
        }
        Ok(())
    }

    /// Whether it measures reading alone.
    pub(crate) fn only_reads(&self) -> bool {
        self.consumer_backlog_size_gb.is_some() && self.producer_rate.is_none()
    }

    /// Bytes of values in a batch.
    pub(crate) fn batch_payload(&self) -> u64 {
        u64::from(self.message_size) * u64::from(self.records_per_batch)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_built_in_workloads_are_valid_and_have_names_of_their_own() {
        let names: BTreeSet<String> = Workload::built_in()
            .unwrap()
            .into_iter()
            .map(|workload| workload.name)
            .collect();
        assert_eq!(names.len(), BUILT_IN.len());
        for number in 1..=13 {
            assert!(names.contains(&format!("b{number}")), "b{number}");
        }
    }

    #[test]
    fn a_workload_is_found_by_name_in_any_case() {
        assert_eq!(Workload::find("B3").unwrap().partitions_per_topic, 1000);
        let error = Workload::find("b99").unwrap_err().to_string();
        assert!(error.contains("no workload b99"), "{error}");
    }

    #[test]
    fn what_cannot_be_run_is_refused_with_a_reason() {
        let good = BUILT_IN[0];
        for (from, to, reason) in [
            ("inFlight = 5", "inFlight = 0", "inFlight"),
            (
                "producersPerTopic = 1",
                "producersPerTopic = 2\nconsumerPerSubscription = 1",
                "one connection",
            ),
            ("name = \"b1\"", "name = \"../b1\"", "letters, digits"),
            (
                "inFlight = 5",
                "inFlight = 5\nrandomBytesRatio = 1.5",
                "a share",
            ),
            (
                "inFlight = 5",
                "inFlight = 5\nproducerRate = 0.0",
                "producerRate",
            ),
            ("inFlight = 5", "inFlight = 5\nacks = \"0\"", "acks 0"),
            (
                "inFlight = 5",
                "inFlight = 5\nconsumerBacklogSizeGB = 1.0",
                "consumers",
            ),
            ("inFlight = 5", "inflight = 5", "unknown field"),
        ] {
            let bad = good.replace(from, to);
            assert_ne!(bad, good, "{from}");
            let error = Workload::parse(&bad).unwrap_err();
            assert!(error.contains(reason), "{to}: {error}");
        }
    }
}
