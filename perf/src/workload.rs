//! What is sent: small declarative files, with the names that the OpenMessaging Benchmark has for them where it has any.
//!
//! Those of this folder's `workloads/` are part of the program and are asked for by name; others by path.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Failure;

const BUILT_IN: &[&str] = &[
    include_str!("../workloads/b1.toml"),
    include_str!("../workloads/b2.toml"),
    include_str!("../workloads/b3.toml"),
    include_str!("../workloads/b4.toml"),
    include_str!("../workloads/b5.toml"),
    include_str!("../workloads/b6.toml"),
    include_str!("../workloads/b7.toml"),
    include_str!("../workloads/b8.toml"),
    include_str!("../workloads/b9.toml"),
    include_str!("../workloads/b10.toml"),
    include_str!("../workloads/b11.toml"),
    include_str!("../workloads/b12.toml"),
    include_str!("../workloads/b13.toml"),
];

/// One topic, its producers and its consumers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Workload {
    /// Short, such as b1.
    pub name: String,
    pub about: String,
    /// Bytes of a record's value.
    pub message_size: u32,
    pub records_per_batch: u32,
    pub partitions_per_topic: u32,
    /// Connections that produce. Every partition belongs to one of them.
    pub producers_per_topic: u32,
    /// Requests that a connection may have unanswered.
    pub in_flight: u32,
    /// Records a second of all producers together, sent at times fixed beforehand. Without it each producer sends as soon as it may.
    pub producer_rate: Option<f64>,
    #[serde(default)]
    pub acks: Acks,
    /// Connections that fetch what is produced; partitions are dealt to them.
    #[serde(default)]
    pub consumers: u32,
    /// Bytes that one Fetch asks for.
    #[serde(default = "default_fetch_bytes")]
    pub fetch_bytes: u32,
    /// Produced first, then only read, again and again from the beginning.
    #[serde(rename = "consumerBacklogSizeGB")]
    pub consumer_backlog_size_gb: Option<f64>,
    pub test_duration_seconds: f64,
    pub warmup_duration_seconds: f64,
    /// Properties of the topic.
    #[serde(default)]
    pub topic_config: BTreeMap<String, String>,
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
        let at_least_one = [
            ("recordsPerBatch", self.records_per_batch),
            ("partitionsPerTopic", self.partitions_per_topic),
            ("producersPerTopic", self.producers_per_topic),
            ("inFlight", self.in_flight),
        ];
        if let Some((name, _)) = at_least_one.iter().find(|(_, value)| *value == 0) {
            return Err(format!("{name} must be at least 1"));
        }
        if self.producers_per_topic > self.partitions_per_topic {
            return Err("producersPerTopic can't exceed partitionsPerTopic: the order of a partition is that of one connection".to_owned());
        }
        if self
            .producer_rate
            .is_some_and(|rate| rate.is_nan() || rate <= 0.0)
        {
            return Err(
                "producerRate must be more than 0; leave it out to send without pause".to_owned(),
            );
        }
        if self.consumer_backlog_size_gb.is_some() && self.consumers == 0 {
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

    /// Bytes of values in a batch.
    pub(crate) fn batch_payload(&self) -> u64 {
        u64::from(self.message_size) * u64::from(self.records_per_batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_workloads_are_valid_and_have_names_of_their_own() {
        let mut names: Vec<String> = Workload::built_in()
            .unwrap()
            .into_iter()
            .map(|workload| workload.name)
            .collect();
        let count = names.len();
        names.dedup();
        assert_eq!((names.len(), count), (13, 13));
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
                "producersPerTopic = 2",
                "one connection",
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
