//! Worked examples from Kafka: what it writes, byte for byte. The names (A2, K1 and so on) are those of the fact tables.

#![allow(
    clippy::unwrap_used,
    reason = "a failed conversion is the test's failure"
)]

use bytes::{Bytes, BytesMut};
use corelog_wire::frame::{RequestHeader, ResponseHeader};
use corelog_wire::messages::fetch_cursor::FetchCursor;
use corelog_wire::messages::{api_versions, broker_heartbeat, fetch};
use corelog_wire::primitives::{Reader, Text, Uuid};
use corelog_wire::records::control::ControlRecord;
use corelog_wire::records::data::{DefaultPrincipalData, LeaderChangeMessage};
use corelog_wire::records::data::{LeaderChangeMessageGrantingVoters, LeaderChangeMessageVoters};
use corelog_wire::records::metadata::{
    FeatureLevelRecord, MetadataRecord, NoOpRecord, PartitionChangeRecord, TopicRecord,
};
use corelog_wire::records::offsets::{
    ConsumerGroupMemberMetadataValue, OffsetCommitKey, OffsetCommitValue, OffsetsKey, OffsetsValue,
    StreamsGroupMetadataValue,
};

const ID: Uuid = Uuid::from_u128(0x1122_3344_5566_7788_8899_aabb_ccdd_eeff);
const TIME_MS: i64 = 1_700_000_000_000;

fn hex(text: &str) -> Bytes {
    text.split_whitespace()
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect()
}

fn written(write: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::new();
    write(&mut out);
    out.freeze()
}

#[test]
fn a2_the_answer_to_a_too_new_api_versions_request() {
    let expected = hex("00 00 00 10 00 00 00 07 00 23 00 00 00 01 00 12 00 00 00 04");
    let response = api_versions::Response {
        error_code: 35,
        api_keys: vec![api_versions::ResponseApiKeys {
            api_key: 18,
            min_version: 0,
            max_version: 4,
        }],
        ..api_versions::Response::default()
    };
    // The body is of version 0 whatever was asked; the header is never tagged.
    let header = ResponseHeader {
        api_key: 18,
        api_version: 99,
        correlation_id: 7,
    };
    assert_eq!(
        written(|out| header.put_frame(out, |out| response.encode(out, 0))),
        expected
    );
}

#[test]
fn a4_to_a6_a_committed_offset() {
    let key = OffsetsKey::OffsetCommit(OffsetCommitKey {
        group: Text::from("g"),
        topic: Text::from("foo"),
        partition: 0,
    });
    let a4 = hex("00 01 00 01 67 00 03 66 6f 6f 00 00 00 00");
    assert_eq!(written(|out| key.encode(out)), a4);
    assert_eq!(OffsetsKey::decode(&a4), Ok(key));

    let commit = OffsetCommitValue {
        offset: 42,
        leader_epoch: 5,
        commit_timestamp: TIME_MS,
        ..OffsetCommitValue::default()
    };
    let a5 = hex("00 03 00 00 00 00 00 00 00 2a 00 00 00 05 00 00 00 00 01 8b cf e5 68 00");
    let value = OffsetsValue::OffsetCommit(commit.clone());
    assert_eq!(written(|out| value.encode(out, 3)), a5);
    assert_eq!(OffsetsValue::decode(1, &a5), Ok(value));

    let a6 = hex(
        "00 04 00 00 00 00 00 00 00 2a 00 00 00 05 01 00 00 01 8b cf e5 68 00 01 00 10 11 22 33 44 55 66
         77 88 88 99 aa bb cc dd ee ff",
    );
    let value = OffsetsValue::OffsetCommit(OffsetCommitValue {
        topic_id: ID,
        ..commit
    });
    assert_eq!(value.written_version(), 4);
    assert_eq!(written(|out| value.encode(out, 4)), a6);
    assert_eq!(OffsetsValue::decode(1, &a6), Ok(value));
}

#[test]
fn an_offset_with_an_expiry_is_written_in_the_version_that_has_one() {
    let value = OffsetsValue::OffsetCommit(OffsetCommitValue {
        offset: 1,
        commit_timestamp: 2,
        expire_timestamp: 3,
        ..OffsetCommitValue::default()
    });
    let version = value.written_version();
    let bytes = written(|out| value.encode(out, version));
    assert_eq!((version, OffsetsValue::decode(1, &bytes)), (1, Ok(value)));
}

#[test]
fn k1_the_first_fetch_of_an_observer() {
    let expected = hex(
        "00 00 00 9e 00 01 00 11 00 00 00 01 00 0d 72 61 66 74 2d 63 6c 69 65 6e 74 2d 35 00 00 00 01 f4
         00 00 00 00 00 10 00 00 00 00 00 00 00 ff ff ff ff 02 00 00 00 00 00 00 00 00 00 00 00 00 00 00
         00 01 02 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 ff ff ff ff ff ff ff ff 00
         00 00 00 01 00 10 11 22 33 44 55 66 77 88 88 99 aa bb cc dd ee ff 00 01 01 02 00 17 17 4d 6b 55
         33 4f 45 56 42 4e 54 63 77 4e 54 4a 45 4e 44 4d 32 51 67 01 0d 00 00 00 05 ff ff ff ff ff ff ff
         ff 00",
    );
    let (header, mut reader) = RequestHeader::parse(expected.slice(4..)).unwrap();
    let cursor = FetchCursor::parse(reader.clone(), header.api_version).unwrap();
    assert_eq!(cursor.cluster_id(), Some("MkU3OEVBNTcwNTJENDM2Qg"));
    assert_eq!(
        (
            cursor.replica_id(),
            cursor.replica_epoch(),
            cursor.session_epoch()
        ),
        (5, -1, -1)
    );
    assert_eq!(cursor.partitions().next().unwrap().replica_directory_id, ID);

    let request = fetch::Request::decode(&mut reader, header.api_version).unwrap();
    assert_eq!(reader.remaining(), 0);
    assert_eq!(request.topics[0].topic_id, Uuid::from_u128(1));
    assert_eq!(header.client_id, Some(Text::from("raft-client-5")));
    let version = header.api_version;
    assert_eq!(
        written(|out| header.put_frame(out, |out| request.encode(out, version))),
        expected
    );
}

fn metadata_record(record: MetadataRecord, version: i16, expected: &str) {
    let expected = hex(expected);
    assert_eq!(written(|out| record.encode(out, version)), expected);
    assert_eq!(MetadataRecord::decode(&expected), Ok(record));
}

#[test]
fn k2_to_k5_metadata_records() {
    let topic = TopicRecord {
        name: Text::from("foo"),
        topic_id: ID,
    };
    let k2 = "01 02 00 04 66 6f 6f 11 22 33 44 55 66 77 88 88 99 aa bb cc dd ee ff 00";
    metadata_record(MetadataRecord::Topic(topic), 0, k2);

    let change = PartitionChangeRecord {
        partition_id: 0,
        topic_id: ID,
        isr: Some(vec![3]),
        leader: 3,
        ..PartitionChangeRecord::default()
    };
    let k3 = "01 05 00 00 00 00 00 11 22 33 44 55 66 77 88 88 99 aa bb cc dd ee ff 02 00 05 02 00 00 00 03 01
              04 00 00 00 03";
    metadata_record(MetadataRecord::PartitionChange(change), 0, k3);

    let level = FeatureLevelRecord {
        name: Text::from("metadata.version"),
        feature_level: 29,
    };
    let k4 = "01 0c 00 11 6d 65 74 61 64 61 74 61 2e 76 65 72 73 69 6f 6e 00 1d 00";
    metadata_record(MetadataRecord::FeatureLevel(level), 0, k4);

    metadata_record(MetadataRecord::NoOp(NoOpRecord {}), 0, "01 14 00 00");
}

/// The record inside the batch of the example.
#[test]
fn k6_a_leader_change() {
    let (key, value) = (
        hex("00 00 00 02"),
        hex("00 00 00 00 00 01 02 00 00 00 01 00 02 00 00 00 01 00 00"),
    );
    let record = ControlRecord::LeaderChange(LeaderChangeMessage {
        leader_id: 1,
        voters: vec![LeaderChangeMessageVoters {
            voter_id: 1,
            ..LeaderChangeMessageVoters::default()
        }],
        granting_voters: vec![LeaderChangeMessageGrantingVoters {
            voter_id: 1,
            ..LeaderChangeMessageGrantingVoters::default()
        }],
    });
    assert_eq!(written(|out| record.encode_key(out)), key);
    assert_eq!(written(|out| record.encode_value(out)), value);
    assert_eq!(ControlRecord::decode(&key, &value), Ok(record));
}

#[test]
fn k7_the_principal_inside_an_envelope() {
    let expected = hex("00 00 05 55 73 65 72 06 61 6c 69 63 65 00 00");
    let principal = DefaultPrincipalData {
        type_: Text::from("User"),
        name: Text::from("alice"),
        token_authenticated: false,
    };
    assert_eq!(written(|out| principal.encode(out, 0)), expected);
    assert_eq!(
        DefaultPrincipalData::decode(&mut Reader::new(expected)),
        Ok(principal)
    );
}

#[test]
fn k8_a_heartbeat() {
    let expected = hex(
        "00 00 00 23 00 3f 00 01 00 00 00 09 00 01 35 00 00 00 00 05 00 00 00 00 00 00 04 d2 00 00 00 00
         00 00 04 d8 00 00 00",
    );
    let header = RequestHeader {
        api_key: broker_heartbeat::Request::KEY,
        api_version: 1,
        correlation_id: 9,
        client_id: Some(Text::from("5")),
    };
    let heartbeat = broker_heartbeat::Request {
        broker_id: 5,
        broker_epoch: 1234,
        current_metadata_offset: 1240,
        ..broker_heartbeat::Request::default()
    };
    assert_eq!(
        written(|out| header.put_frame(out, |out| heartbeat.encode(out, 1))),
        expected
    );
}

/// Fields that may be null but are empty by default: null is said in the tagged section. Taken from Kafka 4.3.1; reading
/// the absence of the first as null would make a consumer of every classic member, and the other way round.
#[test]
fn a_tagged_field_that_is_empty_by_default_says_null() {
    let consumer = ConsumerGroupMemberMetadataValue {
        instance_id: Some(Text::empty()),
        rack_id: Some(Text::empty()),
        subscribed_topic_regex: Some(Text::empty()),
        server_assignor: Some(Text::empty()),
        classic_member_metadata: None,
        ..ConsumerGroupMemberMetadataValue::default()
    };
    let classic = ConsumerGroupMemberMetadataValue {
        classic_member_metadata: ConsumerGroupMemberMetadataValue::default()
            .classic_member_metadata,
        ..consumer.clone()
    };
    for (member, expected) in [
        (
            consumer,
            "00 00 01 01 01 01 01 01 ff ff ff ff 01 01 00 01 00",
        ),
        (classic, "00 00 01 01 01 01 01 01 ff ff ff ff 01 00"),
    ] {
        let value = OffsetsValue::ConsumerGroupMemberMetadata(member);
        let bytes = written(|out| value.encode(out, 0));
        assert_eq!(bytes, hex(expected));
        assert_eq!(OffsetsValue::decode(5, &bytes), Ok(value));
    }

    let group = |configs| {
        OffsetsValue::StreamsGroupMetadata(StreamsGroupMetadataValue {
            last_assignment_configs: configs,
            ..StreamsGroupMetadataValue::default()
        })
    };
    let null = hex("00 00 00 00 00 00 00 00 00 00 00 00 00 00 01 01 01 00");
    let empty = hex("00 00 00 00 00 00 00 00 00 00 00 00 00 00 00");
    for (value, expected) in [(group(None), null), (group(Some(Vec::new())), empty)] {
        assert_eq!(written(|out| value.encode(out, 0)), expected);
        assert_eq!(OffsetsValue::decode(17, &expected), Ok(value));
    }
}
