//! The language of the clients: requests to frames, frames to what was said. The message types of `wire` are used here and nowhere else.

pub mod groups;

use bytes::{Bytes, BytesMut};
use corelog_shards::base::ids::{Text, TopicPartition, Uuid};
use corelog_wire::frame::{RequestHeader, ResponseHeader};
use corelog_wire::messages::{
    create_topics, delete_records, delete_topics, fetch, init_producer_id, list_offsets, produce,
};
use corelog_wire::primitives::Reader;

use crate::oracle::{Asked, Got, Kind, Said, What};
use crate::{Checked, Failure, must};

const PRODUCE: i16 = 0;
const FETCH: i16 = 1;
const LIST_OFFSETS: i16 = 2;
const CREATE_TOPICS: i16 = 19;
const DELETE_TOPICS: i16 = 20;
const DELETE_RECORDS: i16 = 21;
const INIT_PRODUCER_ID: i16 = 22;

/// Versions that name topics, and those that have only ids.
pub const PRODUCE_VERSIONS: &[i16] = &[3, 7, 9, 12, 13];
pub const FETCH_VERSIONS: &[i16] = &[7, 11, 12, 13, 15, 17, 18];
const LIST_OFFSETS_VERSION: i16 = 7;
const CREATE_TOPICS_VERSION: i16 = 7;
const DELETE_TOPICS_VERSION: i16 = 6;
const DELETE_RECORDS_VERSION: i16 = 2;
const INIT_PRODUCER_ID_VERSION: i16 = 4;

fn frame(
    key: i16,
    version: i16,
    correlation_id: i32,
    body: impl FnOnce(&mut BytesMut),
) -> (i16, Bytes) {
    let header = RequestHeader {
        api_key: key,
        api_version: version,
        correlation_id,
        client_id: Some(Text::from_static("sim")),
    };
    let mut out = BytesMut::new();
    header.put_frame(&mut out, body);
    (version, out.freeze())
}

/// Batches are grouped by topic already.
pub fn produce(
    correlation: i32,
    version: i16,
    acks: i16,
    timeout_ms: i32,
    batches: &[(TopicPartition, String, Bytes)],
) -> (i16, Bytes) {
    let mut request = produce::Request {
        transactional_id: None,
        acks,
        timeout_ms,
        ..produce::Request::default()
    };
    for (partition, topic, bytes) in batches {
        let data = produce::RequestTopicDataPartitionData {
            index: partition.partition,
            records: Some(bytes.clone()),
        };
        match request.topic_data.last_mut() {
            Some(last) if last.topic_id == partition.topic_id => last.partition_data.push(data),
            _ => request.topic_data.push(produce::RequestTopicData {
                name: Text::from(topic.clone()),
                topic_id: partition.topic_id,
                partition_data: vec![data],
            }),
        }
    }
    frame(PRODUCE, version, correlation, |out| {
        request.encode(out, version);
    })
}

/// How a fetch is asked.
#[derive(Debug, Clone)]
pub struct FetchParams {
    pub version: i16,
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    pub partition_max_bytes: i32,
    pub isolation: i8,
    pub session: (i32, i32),
}

/// `changed` is what stands in the request: everything, or what a session does not know yet.
pub fn fetch(
    correlation: i32,
    params: &FetchParams,
    changed: &[(TopicPartition, String, i64)],
    forgotten: &[(TopicPartition, String)],
) -> (i16, Bytes) {
    let mut request = fetch::Request {
        max_wait_ms: params.max_wait_ms,
        min_bytes: params.min_bytes,
        max_bytes: params.max_bytes,
        isolation_level: params.isolation,
        session_id: params.session.0,
        session_epoch: params.session.1,
        ..fetch::Request::default()
    };
    for (partition, topic, offset) in changed {
        let entry = fetch::RequestTopicsPartitions {
            partition: partition.partition,
            fetch_offset: *offset,
            current_leader_epoch: -1,
            last_fetched_epoch: -1,
            partition_max_bytes: params.partition_max_bytes,
            ..fetch::RequestTopicsPartitions::default()
        };
        match request.topics.last_mut() {
            Some(last) if last.topic_id == partition.topic_id => last.partitions.push(entry),
            _ => request.topics.push(fetch::RequestTopics {
                topic: Text::from(topic.clone()),
                topic_id: partition.topic_id,
                partitions: vec![entry],
            }),
        }
    }
    for (partition, topic) in forgotten {
        request
            .forgotten_topics_data
            .push(fetch::RequestForgottenTopicsData {
                topic: Text::from(topic.clone()),
                topic_id: partition.topic_id,
                partitions: vec![partition.partition],
            });
    }
    let version = params.version;
    frame(FETCH, version, correlation, |out| {
        request.encode(out, version);
    })
}

/// The earliest offset of each.
pub fn list_offsets(correlation: i32, partitions: &[(TopicPartition, String)]) -> (i16, Bytes) {
    let topic = |(partition, topic): &(TopicPartition, String)| list_offsets::RequestTopics {
        name: Text::from(topic.clone()),
        partitions: vec![list_offsets::RequestTopicsPartitions {
            partition_index: partition.partition,
            current_leader_epoch: -1,
            timestamp: -2,
        }],
    };
    let request = list_offsets::Request {
        replica_id: -1,
        topics: partitions.iter().map(topic).collect(),
        ..list_offsets::Request::default()
    };
    frame(LIST_OFFSETS, LIST_OFFSETS_VERSION, correlation, |out| {
        request.encode(out, LIST_OFFSETS_VERSION);
    })
}

pub fn create_topic(correlation: i32, name: &str, kind: Kind, partitions: i32) -> (i16, Bytes) {
    let settings: &[(&str, &str)] = match kind {
        Kind::Plain => &[("index.interval.bytes", "500")],
        Kind::Durable => &[("flush.messages", "1"), ("segment.ms", "3000")],
        Kind::Rolling => &[
            ("segment.ms", "400"),
            ("retention.ms", "4000"),
            ("index.interval.bytes", "0"),
            ("flush.messages", "50"),
        ],
    };
    let config =
        |(name, value): &(&'static str, &'static str)| create_topics::RequestTopicsConfigs {
            name: Text::from_static(name),
            value: Some(Text::from_static(value)),
        };
    let request = create_topics::Request {
        topics: vec![create_topics::RequestTopics {
            name: Text::from(name.to_owned()),
            num_partitions: partitions,
            replication_factor: 1,
            assignments: Vec::new(),
            configs: settings.iter().map(config).collect(),
        }],
        timeout_ms: 5000,
        validate_only: false,
    };
    frame(CREATE_TOPICS, CREATE_TOPICS_VERSION, correlation, |out| {
        request.encode(out, CREATE_TOPICS_VERSION);
    })
}

pub fn delete_topic(correlation: i32, id: Uuid) -> (i16, Bytes) {
    let request = delete_topics::Request {
        topics: vec![delete_topics::RequestTopics {
            name: None,
            topic_id: id,
        }],
        timeout_ms: 5000,
        ..delete_topics::Request::default()
    };
    frame(DELETE_TOPICS, DELETE_TOPICS_VERSION, correlation, |out| {
        request.encode(out, DELETE_TOPICS_VERSION);
    })
}

pub fn delete_records(correlation: i32, topic: &str, partition: i32, offset: i64) -> (i16, Bytes) {
    let request = delete_records::Request {
        topics: vec![delete_records::RequestTopics {
            name: Text::from(topic.to_owned()),
            partitions: vec![delete_records::RequestTopicsPartitions {
                partition_index: partition,
                offset,
            }],
        }],
        timeout_ms: 5000,
    };
    frame(DELETE_RECORDS, DELETE_RECORDS_VERSION, correlation, |out| {
        request.encode(out, DELETE_RECORDS_VERSION);
    })
}

pub fn init_producer_id(correlation: i32) -> (i16, Bytes) {
    let request = init_producer_id::Request {
        transactional_id: None,
        transaction_timeout_ms: 1000,
        producer_id: -1,
        producer_epoch: -1,
        ..init_producer_id::Request::default()
    };
    frame(
        INIT_PRODUCER_ID,
        INIT_PRODUCER_ID_VERSION,
        correlation,
        |out| {
            request.encode(out, INIT_PRODUCER_ID_VERSION);
        },
    )
}

fn bad<E: std::fmt::Debug>(error: E) -> Failure {
    Failure(format!("every response can be read: {error:?}"))
}

/// Reads the response (without size prefix) to what was asked.
pub fn read(asked: &Asked, frame: Bytes) -> Checked<Said> {
    let key = match &asked.what {
        What::Produce { .. } => PRODUCE,
        What::Fetch { .. } => FETCH,
        What::ListOffsets { .. } => LIST_OFFSETS,
        What::CreateTopic { .. } => CREATE_TOPICS,
        What::DeleteTopic { .. } => DELETE_TOPICS,
        What::DeleteRecords { .. } => DELETE_RECORDS,
        What::InitProducerId => INIT_PRODUCER_ID,
        What::Group(ask) => groups::key(*ask),
    };
    let version = asked.version;
    let (header, mut reader) = ResponseHeader::parse(frame, key, version).map_err(bad)?;
    must!(
        header.correlation_id == asked.correlation,
        "replies are in request order: {} came where {} was due",
        header.correlation_id,
        asked.correlation
    );
    let said = body(asked, version, &mut reader)?;
    must!(reader.remaining() == 0, "nothing follows a response");
    Ok(said)
}

fn body(asked: &Asked, version: i16, reader: &mut Reader) -> Checked<Said> {
    Ok(match &asked.what {
        What::Produce { batches, .. } => {
            let response = produce::Response::decode(reader, version).map_err(bad)?;
            let answers = response
                .responses
                .iter()
                .flat_map(|topic| &topic.partition_responses);
            let said = batches
                .iter()
                .zip(answers)
                .filter(|((partition, _, _), answer)| partition.partition == answer.index);
            Said::Produced(
                said.map(|((partition, _, _), answer)| {
                    (*partition, answer.error_code, answer.base_offset)
                })
                .collect(),
            )
        }
        What::Fetch { positions } => {
            let response = fetch::Response::decode(reader, version).map_err(bad)?;
            let mut partitions = Vec::new();
            for topic in &response.responses {
                for got in &topic.partitions {
                    let found = positions.iter().find(|(partition, name, _)| {
                        let named = if version >= 13 {
                            partition.topic_id == topic.topic_id
                        } else {
                            *name == topic.topic.as_str()
                        };
                        named && partition.partition == got.partition_index
                    });
                    let Some((partition, _, _)) = found else {
                        return Err(Failure(format!(
                            "only what is asked for is fetched: {} {}",
                            topic.topic.as_str(),
                            got.partition_index
                        )));
                    };
                    partitions.push(Got {
                        partition: *partition,
                        error: got.error_code,
                        high_watermark: got.high_watermark,
                        records: got.records.clone().unwrap_or_default(),
                    });
                }
            }
            Said::Fetched {
                error: response.error_code,
                session: response.session_id,
                partitions,
            }
        }
        What::ListOffsets { partitions } => {
            let response = list_offsets::Response::decode(reader, version).map_err(bad)?;
            let answers = response.topics.iter().flat_map(|topic| &topic.partitions);
            let said = partitions.iter().zip(answers);
            Said::Offsets(
                said.map(|((partition, _), answer)| (*partition, answer.error_code, answer.offset))
                    .collect(),
            )
        }
        What::CreateTopic { .. } => {
            let response = create_topics::Response::decode(reader, version).map_err(bad)?;
            let topic = response.topics.first().ok_or_else(|| bad("no topic"))?;
            Said::Created(topic.error_code, topic.topic_id)
        }
        What::DeleteTopic { .. } => {
            let response = delete_topics::Response::decode(reader, version).map_err(bad)?;
            let topic = response.responses.first().ok_or_else(|| bad("no topic"))?;
            Said::Deleted(topic.error_code)
        }
        What::DeleteRecords { .. } => {
            let response = delete_records::Response::decode(reader, version).map_err(bad)?;
            let topics = response.topics.iter().flat_map(|topic| &topic.partitions);
            let partition = topics
                .into_iter()
                .next()
                .ok_or_else(|| bad("no partition"))?;
            Said::DeletedRecords(partition.error_code, partition.low_watermark)
        }
        What::Group(ask) => Said::Group(groups::read(*ask, version, reader)?),
        What::InitProducerId => {
            let response = init_producer_id::Response::decode(reader, version).map_err(bad)?;
            Said::ProducerId(
                response.error_code,
                response.producer_id,
                response.producer_epoch,
            )
        }
    })
}
