//! `corelog consume`: records of a topic on stdout, one a line.

use std::collections::BTreeMap;
use std::io::Write;

use corelog_wire::batch::{BatchIter, RecordIter, TimestampType, Walked, decoded_records};
use corelog_wire::messages::{fetch, list_offsets};

use super::args::{ConsumeArgs, From};
use super::client::{ClientError, check};
use super::cluster::{AutoCreate, Cluster, TopicView};
use super::failure::Failure;
use super::record_text::{Shape, Shown};

/// How long a broker may wait for records before it answers without any.
const WAIT_MS: i32 = 500;
const FETCH_BYTES: i32 = 16 << 20;
const PARTITION_BYTES: i32 = 1 << 20;
/// No batch may grow over this when it is decompressed; the largest that brokers are commonly set to accept is far smaller.
const DECOMPRESSED_MAX: usize = 1 << 30;

const EARLIEST: i64 = -2;
const LATEST: i64 = -1;

/// Where the reading of one partition stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Position {
    partition: i32,
    /// The next offset to print.
    next: i64,
    /// Where to stop.
    end: Option<i64>,
}

impl Position {
    fn is_done(&self) -> bool {
        self.end.is_some_and(|end| self.next >= end)
    }
}

pub(super) fn run(args: &ConsumeArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let mut consumer = Consumer::connect(args)?;
    let mut left = args.max.unwrap_or(u64::MAX);
    while left > 0 && !consumer.positions.is_empty() {
        consumer.round(&mut left, out)?;
        out.flush().map_err(Failure::Output)?;
    }
    Ok(())
}

struct Consumer {
    cluster: Cluster,
    topic: TopicView,
    shape: Shape,
    /// Partitions that are still read.
    positions: Vec<Position>,
}

impl Consumer {
    fn connect(args: &ConsumeArgs) -> Result<Consumer, Failure> {
        let mut cluster = Cluster::connect(&args.broker)?;
        let topic = cluster.patient_topic(&args.topic, AutoCreate::No)?;
        let numbers: Vec<i32> = match args.partition {
            Some(partition) => vec![partition],
            None => topic
                .partitions
                .iter()
                .map(|view| view.partition_index)
                .collect(),
        };
        let mut positions = Vec::with_capacity(numbers.len());
        for partition in numbers {
            let end = if args.until_end {
                Some(offset(&mut cluster, &topic, partition, LATEST)?)
            } else {
                None
            };
            let next = match args.from {
                From::Beginning => offset(&mut cluster, &topic, partition, EARLIEST)?,
                From::End => offset(&mut cluster, &topic, partition, LATEST)?,
                From::Offset(offset) => offset,
                From::Time(ms) => match offset(&mut cluster, &topic, partition, ms)? {
                    // Nothing is that young.
                    -1 => offset(&mut cluster, &topic, partition, LATEST)?,
                    found => found,
                },
            };
            positions.push(Position {
                partition,
                next,
                end,
            });
        }
        positions.retain(|position| !position.is_done());
        Ok(Consumer {
            cluster,
            topic,
            shape: Shape::of(args),
            positions,
        })
    }

    /// One fetch of each partition's leader. With one broker that is one request.
    fn round(&mut self, left: &mut u64, out: &mut dyn Write) -> Result<(), Failure> {
        for group in self.by_leader() {
            let request = fetch::Request {
                max_wait_ms: WAIT_MS.min(self.cluster.timeout_ms() / 2),
                min_bytes: 1,
                max_bytes: FETCH_BYTES,
                // No session: every request stands for itself (S-1).
                session_epoch: -1,
                topics: vec![fetch::RequestTopics {
                    topic: self.topic.name.clone(),
                    topic_id: self.topic.id,
                    partitions: group.iter().map(wanted).collect(),
                }],
                ..fetch::Request::default()
            };
            let (topic, first) = (self.topic.clone(), group[0].partition);
            let response = self.cluster.patiently(|cluster| {
                let leader = cluster.leader(&topic, first)?;
                let (response, _) = leader.call(&request)?;
                check("cannot fetch", response.error_code, None)?;
                for answer in answers(&response) {
                    let partition = answer.partition_index;
                    let what = format!("cannot read partition {partition} of topic {}", topic.name);
                    check(what, answer.error_code, None)?;
                }
                Ok(response)
            })?;
            for answer in answers(&response) {
                self.print(answer, left, out)?;
            }
        }
        self.positions.retain(|position| !position.is_done());
        Ok(())
    }

    fn by_leader(&self) -> Vec<Vec<Position>> {
        let mut groups: BTreeMap<i32, Vec<Position>> = BTreeMap::new();
        for position in &self.positions {
            let mut views = self.topic.partitions.iter();
            let view = views.find(|view| view.partition_index == position.partition);
            let leader = view.map_or(-1, |view| view.leader_id);
            groups.entry(leader).or_default().push(*position);
        }
        groups.into_values().collect()
    }

    fn print(
        &mut self,
        answer: &fetch::ResponseResponsesPartitions,
        left: &mut u64,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let mut positions = self.positions.iter_mut();
        let found = positions.find(|position| position.partition == answer.partition_index);
        let (Some(position), Some(records)) = (found, &answer.records) else {
            return Ok(());
        };
        for batch in BatchIter::new(records) {
            // The last batch of an answer may be cut off; the next answer has it whole.
            let Ok(batch) = batch else { break };
            if batch.header.next_offset() <= position.next {
                continue;
            }
            if !batch.header.is_control() {
                print_batch(&batch, position, &self.topic.name, &self.shape, left, out)?;
            }
            if *left == 0 {
                return Ok(());
            }
            position.next = batch.header.next_offset();
        }
        Ok(())
    }
}

fn print_batch(
    batch: &Walked<'_>,
    position: &Position,
    topic: &str,
    shape: &Shape,
    left: &mut u64,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let header = &batch.header;
    let broken = |why: String| {
        Failure::Told(format!(
            "the batch at offset {} of partition {} cannot be read: {why}; check the log with kafka-dump-log",
            header.base_offset, position.partition
        ))
    };
    let records = decoded_records(header, batch.bytes, DECOMPRESSED_MAX)
        .map_err(|error| broken(error.to_string()))?;
    let count = usize::try_from(header.record_count).unwrap_or(0);
    for record in RecordIter::new(&records, count) {
        let record = record.map_err(|error| broken(error.to_string()))?;
        let offset = header.base_offset + i64::from(record.offset_delta);
        let wanted = offset >= position.next && position.end.is_none_or(|end| offset < end);
        if !wanted || *left == 0 {
            continue;
        }
        let timestamp_ms = match header.timestamp_type() {
            TimestampType::CreateTime => header.base_timestamp.wrapping_add(record.timestamp_delta),
            TimestampType::LogAppendTime => header.max_timestamp,
        };
        let headers: Vec<_> = record
            .headers()
            .map(|header| (String::from_utf8_lossy(header.key), header.value))
            .collect();
        let headers: Vec<(&str, Option<&[u8]>)> = headers
            .iter()
            .map(|(key, value)| (&**key, *value))
            .collect();
        let shown = Shown {
            topic,
            partition: position.partition,
            offset,
            timestamp_ms,
            key: record.key,
            value: record.value,
            headers: &headers,
        };
        shape.write(&shown, out).map_err(Failure::Output)?;
        *left -= 1;
    }
    Ok(())
}

fn wanted(position: &Position) -> fetch::RequestTopicsPartitions {
    fetch::RequestTopicsPartitions {
        partition: position.partition,
        fetch_offset: position.next,
        partition_max_bytes: PARTITION_BYTES,
        ..fetch::RequestTopicsPartitions::default()
    }
}

fn answers(
    response: &fetch::Response,
) -> impl Iterator<Item = &fetch::ResponseResponsesPartitions> {
    response
        .responses
        .iter()
        .flat_map(|topic| &topic.partitions)
}

/// The offset at a time, or at one of the special times; -1 = none.
pub(super) fn offset(
    cluster: &mut Cluster,
    topic: &TopicView,
    partition: i32,
    timestamp: i64,
) -> Result<i64, ClientError> {
    let request = list_offsets::Request {
        timeout_ms: cluster.timeout_ms(),
        topics: vec![list_offsets::RequestTopics {
            name: topic.name.clone(),
            partitions: vec![list_offsets::RequestTopicsPartitions {
                partition_index: partition,
                timestamp,
                ..list_offsets::RequestTopicsPartitions::default()
            }],
        }],
        ..list_offsets::Request::default()
    };
    cluster.patiently(|cluster| {
        let (response, _) = cluster.leader(topic, partition)?.call(&request)?;
        let mut answers = response.topics.iter().flat_map(|topic| &topic.partitions);
        let what = format!(
            "cannot find offsets of partition {partition} of topic {}",
            topic.name
        );
        match answers.find(|answer| answer.partition_index == partition) {
            Some(answer) => {
                check(what, answer.error_code, None)?;
                Ok(answer.offset)
            }
            None => Err(cluster.unreadable("list_offsets", "nothing about the partition")),
        }
    })
}
