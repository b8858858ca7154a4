//! Topics, records, and the calls that every case makes.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use corelog_wire::batch::{BatchBuilder, BatchIter, NewRecord, RecordIter, decoded_records};
use corelog_wire::compress::Codec;
use corelog_wire::messages::{create_topics, fetch, list_offsets, produce};
use corelog_wire::primitives::{Text, Uuid};

use crate::broker::eventually;
use crate::client::Client;

pub(crate) const EARLIEST: i64 = -2;
pub(crate) const LATEST: i64 = -1;
/// From here on Produce and Fetch name topics by id.
const IDS_FROM: i16 = 13;
/// A partition that is new, or is being recovered, answers so for a moment.
const PASSING: [i16; 3] = [3, 5, 6];

#[derive(Clone)]
pub(crate) struct Topic {
    pub(crate) name: Text,
    pub(crate) id: Uuid,
    pub(crate) partitions: i32,
}

/// One partition's share of an answer.
#[derive(Debug, PartialEq)]
pub(crate) struct Fetched {
    pub(crate) partition: i32,
    pub(crate) error: i16,
    pub(crate) high_watermark: i64,
    pub(crate) values: Vec<(i64, String)>,
}

pub(crate) type Values = BTreeMap<i32, Vec<(i64, String)>>;

/// Creates a topic and waits until each of its partitions has a leader.
pub(crate) fn create(client: &mut Client, name: &str, partitions: i32) -> Topic {
    create_with(client, name, partitions, &[])
}

pub(crate) fn create_with(
    client: &mut Client,
    name: &str,
    partitions: i32,
    configs: &[(&str, &str)],
) -> Topic {
    let request = create_topics::Request {
        topics: vec![create_topics::RequestTopics {
            name: Text::from(name.to_owned()),
            num_partitions: partitions,
            replication_factor: 1,
            configs: configs
                .iter()
                .map(|(key, value)| create_topics::RequestTopicsConfigs {
                    name: Text::from((*key).to_owned()),
                    value: Some(Text::from((*value).to_owned())),
                })
                .collect(),
            ..Default::default()
        }],
        timeout_ms: 20_000,
        ..Default::default()
    };
    let response = client.call(&request, 7);
    let made = &response.topics[0];
    assert_eq!(made.error_code, 0, "{:?}", made.error_message);
    let topic = Topic {
        name: made.name.clone(),
        id: made.topic_id,
        partitions,
    };
    await_leaders(client, &topic);
    topic
}

pub(crate) fn await_leaders(client: &mut Client, topic: &Topic) {
    for partition in 0..topic.partitions {
        eventually("every partition has a leader", || {
            let (error, _) = list_offset(client, topic, partition, LATEST);
            assert!(error == 0 || PASSING.contains(&error), "error {error}");
            (error == 0).then_some(())
        });
    }
}

pub(crate) fn list_offsets_request(
    topic: &Topic,
    partition: i32,
    timestamp: i64,
) -> list_offsets::Request {
    list_offsets::Request {
        replica_id: -1,
        topics: vec![list_offsets::RequestTopics {
            name: topic.name.clone(),
            partitions: vec![list_offsets::RequestTopicsPartitions {
                partition_index: partition,
                current_leader_epoch: -1,
                timestamp,
            }],
        }],
        ..Default::default()
    }
}

/// Error and offset.
pub(crate) fn list_offset(
    client: &mut Client,
    topic: &Topic,
    partition: i32,
    timestamp: i64,
) -> (i16, i64) {
    let request = list_offsets_request(topic, partition, timestamp);
    let response = client.call(&request, 7);
    let found = &response.topics[0].partitions[0];
    (found.error_code, found.offset)
}

/// A batch of one record for each value.
pub(crate) fn batch(values: &[String]) -> Bytes {
    batch_with(Codec::None, None, values)
}

/// `producer`: id, epoch, first sequence number.
pub(crate) fn batch_with(
    codec: Codec,
    producer: Option<(i64, i16, i32)>,
    values: &[String],
) -> Bytes {
    let mut builder = BatchBuilder::new(codec);
    if let Some((id, epoch, sequence)) = producer {
        builder = builder.producer(id, epoch, sequence);
    }
    // Old records would be deleted, and records of the future are refused.
    let timestamp_ms = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_millis() as i64;
    for value in values {
        builder.add(&NewRecord {
            timestamp_ms,
            key: None,
            value: Some(value.as_bytes()),
            headers: &[],
        });
    }
    builder.build().unwrap()
}

pub(crate) fn produce_request(
    topic: &Topic,
    version: i16,
    acks: i16,
    batches: &[(i32, Bytes)],
) -> produce::Request {
    let by_id = version >= IDS_FROM;
    produce::Request {
        acks,
        timeout_ms: 20_000,
        topic_data: vec![produce::RequestTopicData {
            name: if by_id {
                Text::empty()
            } else {
                topic.name.clone()
            },
            topic_id: if by_id { topic.id } else { Uuid::ZERO },
            partition_data: batches
                .iter()
                .map(|(index, records)| produce::RequestTopicDataPartitionData {
                    index: *index,
                    records: Some(records.clone()),
                })
                .collect(),
        }],
        ..Default::default()
    }
}

/// Error and base offset of the one partition in an answer.
pub(crate) fn produced(response: &produce::Response) -> (i16, i64) {
    let partition = &response.responses[0].partition_responses[0];
    (partition.error_code, partition.base_offset)
}

/// One batch to one partition, acknowledged; its base offset.
pub(crate) fn append(client: &mut Client, topic: &Topic, partition: i32, values: &[String]) -> i64 {
    let request = produce_request(topic, 9, -1, &[(partition, batch(values))]);
    let (error, base_offset) = produced(&client.call(&request, 9));
    assert_eq!(error, 0);
    base_offset
}

pub(crate) fn values(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}-{n}")).collect()
}

/// A fetch without a session of (partition, offset) each; waits for nothing.
pub(crate) fn fetch_request(topic: &Topic, version: i16, from: &[(i32, i64)]) -> fetch::Request {
    let by_id = version >= IDS_FROM;
    fetch::Request {
        replica_id: -1,
        max_wait_ms: 0,
        min_bytes: 1,
        max_bytes: 50 << 20,
        session_epoch: -1,
        topics: vec![fetch::RequestTopics {
            topic: if by_id {
                Text::empty()
            } else {
                topic.name.clone()
            },
            topic_id: if by_id { topic.id } else { Uuid::ZERO },
            partitions: from
                .iter()
                .map(|(partition, offset)| fetch::RequestTopicsPartitions {
                    partition: *partition,
                    current_leader_epoch: -1,
                    fetch_offset: *offset,
                    last_fetched_epoch: -1,
                    log_start_offset: -1,
                    partition_max_bytes: 10 << 20,
                    ..Default::default()
                })
                .collect(),
        }],
        ..Default::default()
    }
}

/// What an answer brought, in its order.
pub(crate) fn fetched(response: &fetch::Response) -> Vec<Fetched> {
    assert_eq!(response.error_code, 0, "of the fetch as a whole");
    let topics = response.responses.iter();
    topics
        .flat_map(|topic| &topic.partitions)
        .map(|partition| Fetched {
            partition: partition.partition_index,
            error: partition.error_code,
            high_watermark: partition.high_watermark,
            values: records(partition.records.as_deref().unwrap_or_default()),
        })
        .collect()
}

/// Offsets and values of all records in a run of batches.
pub(crate) fn records(bytes: &[u8]) -> Vec<(i64, String)> {
    let mut out = Vec::new();
    for walked in BatchIter::new(bytes) {
        let walked = walked.unwrap();
        let plain = decoded_records(&walked.header, walked.bytes, 64 << 20).unwrap();
        for record in RecordIter::new(&plain, walked.header.record_count as usize) {
            let record = record.unwrap();
            let value = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
            out.push((walked.header.offset_of(record.offset_delta), value));
        }
    }
    out
}

/// Everything in the topic, by partition, read from the start to the high watermark.
pub(crate) fn read_all(client: &mut Client, topic: &Topic) -> Values {
    let mut all = Values::new();
    for partition in 0..topic.partitions {
        let mut offset = 0;
        let found: &mut Vec<(i64, String)> = all.entry(partition).or_default();
        loop {
            let answer = client.call(&fetch_request(topic, 12, &[(partition, offset)]), 12);
            let got = fetched(&answer).remove(0);
            assert_eq!(got.error, 0, "partition {partition} from {offset}");
            found.extend(got.values.into_iter().filter(|(at, _)| *at >= offset));
            offset = found.last().map_or(0, |(at, _)| at + 1);
            if offset == got.high_watermark {
                break;
            }
        }
    }
    all
}

/// `values` at the offsets 0, 1, 2, …
pub(crate) fn numbered(values: impl IntoIterator<Item = String>) -> Vec<(i64, String)> {
    (0..).zip(values).collect()
}
