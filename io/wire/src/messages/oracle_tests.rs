//! Our codecs held against kafka-protocol, which was written from Kafka's own schemas by other people, on every RPC and
//! version that it has.

#![allow(
    clippy::unwrap_used,
    reason = "a failed conversion is the test's failure"
)]

use bytes::{Bytes, BytesMut};
use kafka_protocol::protocol::{Decodable, Encodable, Message};
use proptest::prelude::*;

use crate::arbitrary::{Arbitrary, Random};
use crate::primitives::{DecodeError, Reader};

/// One message as functions, since the structs of both sides have only their method names in common.
struct Subject {
    name: &'static str,
    versions: std::ops::RangeInclusive<i16>,
    /// The bytes of a random value, which is then read back and compared.
    sample: fn(&mut Random, i16) -> Bytes,
    /// Reads and writes again with our codec; also what was left unread.
    ours: fn(Bytes, i16) -> Result<(Bytes, usize), DecodeError>,
    theirs: Option<Theirs>,
}

struct Theirs {
    versions: std::ops::RangeInclusive<i16>,
    /// Reads and writes again with their codec.
    rewrite: fn(Bytes, i16) -> Result<Bytes, String>,
}

fn rewrite_with_theirs<T: Decodable + Encodable>(
    mut body: Bytes,
    version: i16,
) -> Result<Bytes, String> {
    let value = T::decode(&mut body, version).map_err(|error| error.to_string())?;
    assert!(
        body.is_empty(),
        "kafka-protocol left {} bytes unread",
        body.len()
    );
    let mut out = BytesMut::new();
    value
        .encode(&mut out, version)
        .map_err(|error| error.to_string())?;
    Ok(out.freeze())
}

macro_rules! subject {
    ($module:ident $root:ident, $theirs:expr) => {{
        use crate::messages::$module::$root;
        Subject {
            name: concat!(stringify!($module), "::", stringify!($root)),
            versions: $root::MIN_VERSION..=$root::CODEC_MAX_VERSION,
            sample: |random, version| {
                let value = $root::arbitrary(random, version);
                let mut out = BytesMut::new();
                value.encode(&mut out, version);
                let body = out.freeze();
                let mut reader = Reader::new(body.clone());
                assert_eq!(
                    $root::decode(&mut reader, version).as_ref(),
                    Ok(&value),
                    "version {version}"
                );
                assert_eq!(reader.remaining(), 0, "version {version} of {value:?}");
                body
            },
            ours: |body, version| {
                let mut reader = Reader::new(body);
                let value = $root::decode(&mut reader, version)?;
                let mut out = BytesMut::new();
                value.encode(&mut out, version);
                Ok((out.freeze(), reader.remaining()))
            },
            theirs: $theirs,
        }
    }};
}

macro_rules! theirs {
    ($message:ident) => {{
        use kafka_protocol::messages::$message;
        Some(Theirs {
            versions: $message::VERSIONS.min..=$message::VERSIONS.max,
            rewrite: rewrite_with_theirs::<$message>,
        })
    }};
}

macro_rules! both_have {
    ($($module:ident: $request:ident, $response:ident;)*) => {
        vec![$(
            subject!($module Request, theirs!($request)),
            subject!($module Response, theirs!($response)),
        )*]
    };
}

macro_rules! ours_alone {
    ($($module:ident)*) => { vec![$(subject!($module Request, None), subject!($module Response, None),)*] };
}

/// Every message, with kafka-protocol's where it has one.
fn compared() -> Vec<Subject> {
    both_have! {
        produce: ProduceRequest, ProduceResponse;
        fetch: FetchRequest, FetchResponse;
        list_offsets: ListOffsetsRequest, ListOffsetsResponse;
        metadata: MetadataRequest, MetadataResponse;
        offset_commit: OffsetCommitRequest, OffsetCommitResponse;
        offset_fetch: OffsetFetchRequest, OffsetFetchResponse;
        find_coordinator: FindCoordinatorRequest, FindCoordinatorResponse;
        join_group: JoinGroupRequest, JoinGroupResponse;
        heartbeat: HeartbeatRequest, HeartbeatResponse;
        leave_group: LeaveGroupRequest, LeaveGroupResponse;
        sync_group: SyncGroupRequest, SyncGroupResponse;
        describe_groups: DescribeGroupsRequest, DescribeGroupsResponse;
        list_groups: ListGroupsRequest, ListGroupsResponse;
        sasl_handshake: SaslHandshakeRequest, SaslHandshakeResponse;
        api_versions: ApiVersionsRequest, ApiVersionsResponse;
        create_topics: CreateTopicsRequest, CreateTopicsResponse;
        delete_topics: DeleteTopicsRequest, DeleteTopicsResponse;
        delete_records: DeleteRecordsRequest, DeleteRecordsResponse;
        init_producer_id: InitProducerIdRequest, InitProducerIdResponse;
        offset_for_leader_epoch: OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse;
        add_partitions_to_txn: AddPartitionsToTxnRequest, AddPartitionsToTxnResponse;
        add_offsets_to_txn: AddOffsetsToTxnRequest, AddOffsetsToTxnResponse;
        end_txn: EndTxnRequest, EndTxnResponse;
        write_txn_markers: WriteTxnMarkersRequest, WriteTxnMarkersResponse;
        txn_offset_commit: TxnOffsetCommitRequest, TxnOffsetCommitResponse;
        describe_acls: DescribeAclsRequest, DescribeAclsResponse;
        create_acls: CreateAclsRequest, CreateAclsResponse;
        delete_acls: DeleteAclsRequest, DeleteAclsResponse;
        describe_configs: DescribeConfigsRequest, DescribeConfigsResponse;
        alter_configs: AlterConfigsRequest, AlterConfigsResponse;
        alter_replica_log_dirs: AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse;
        describe_log_dirs: DescribeLogDirsRequest, DescribeLogDirsResponse;
        sasl_authenticate: SaslAuthenticateRequest, SaslAuthenticateResponse;
        create_partitions: CreatePartitionsRequest, CreatePartitionsResponse;
        create_delegation_token: CreateDelegationTokenRequest, CreateDelegationTokenResponse;
        renew_delegation_token: RenewDelegationTokenRequest, RenewDelegationTokenResponse;
        expire_delegation_token: ExpireDelegationTokenRequest, ExpireDelegationTokenResponse;
        describe_delegation_token: DescribeDelegationTokenRequest, DescribeDelegationTokenResponse;
        delete_groups: DeleteGroupsRequest, DeleteGroupsResponse;
        elect_leaders: ElectLeadersRequest, ElectLeadersResponse;
        incremental_alter_configs: IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse;
        alter_partition_reassignments: AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse;
        list_partition_reassignments: ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse;
        offset_delete: OffsetDeleteRequest, OffsetDeleteResponse;
        describe_client_quotas: DescribeClientQuotasRequest, DescribeClientQuotasResponse;
        alter_client_quotas: AlterClientQuotasRequest, AlterClientQuotasResponse;
        describe_user_scram_credentials: DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse;
        alter_user_scram_credentials: AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse;
        vote: VoteRequest, VoteResponse;
        begin_quorum_epoch: BeginQuorumEpochRequest, BeginQuorumEpochResponse;
        end_quorum_epoch: EndQuorumEpochRequest, EndQuorumEpochResponse;
        describe_quorum: DescribeQuorumRequest, DescribeQuorumResponse;
        alter_partition: AlterPartitionRequest, AlterPartitionResponse;
        update_features: UpdateFeaturesRequest, UpdateFeaturesResponse;
        envelope: EnvelopeRequest, EnvelopeResponse;
        fetch_snapshot: FetchSnapshotRequest, FetchSnapshotResponse;
        describe_cluster: DescribeClusterRequest, DescribeClusterResponse;
        describe_producers: DescribeProducersRequest, DescribeProducersResponse;
        broker_registration: BrokerRegistrationRequest, BrokerRegistrationResponse;
        broker_heartbeat: BrokerHeartbeatRequest, BrokerHeartbeatResponse;
        unregister_broker: UnregisterBrokerRequest, UnregisterBrokerResponse;
        describe_transactions: DescribeTransactionsRequest, DescribeTransactionsResponse;
        list_transactions: ListTransactionsRequest, ListTransactionsResponse;
        allocate_producer_ids: AllocateProducerIdsRequest, AllocateProducerIdsResponse;
        consumer_group_heartbeat: ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse;
        consumer_group_describe: ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse;
        controller_registration: ControllerRegistrationRequest, ControllerRegistrationResponse;
        get_telemetry_subscriptions: GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse;
        push_telemetry: PushTelemetryRequest, PushTelemetryResponse;
        assign_replicas_to_dirs: AssignReplicasToDirsRequest, AssignReplicasToDirsResponse;
        list_config_resources: ListConfigResourcesRequest, ListConfigResourcesResponse;
        describe_topic_partitions: DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse;
        share_group_heartbeat: ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse;
        share_group_describe: ShareGroupDescribeRequest, ShareGroupDescribeResponse;
        share_fetch: ShareFetchRequest, ShareFetchResponse;
        share_acknowledge: ShareAcknowledgeRequest, ShareAcknowledgeResponse;
        add_raft_voter: AddRaftVoterRequest, AddRaftVoterResponse;
        remove_raft_voter: RemoveRaftVoterRequest, RemoveRaftVoterResponse;
        update_raft_voter: UpdateRaftVoterRequest, UpdateRaftVoterResponse;
        initialize_share_group_state: InitializeShareGroupStateRequest, InitializeShareGroupStateResponse;
        read_share_group_state: ReadShareGroupStateRequest, ReadShareGroupStateResponse;
        write_share_group_state: WriteShareGroupStateRequest, WriteShareGroupStateResponse;
        delete_share_group_state: DeleteShareGroupStateRequest, DeleteShareGroupStateResponse;
        read_share_group_state_summary: ReadShareGroupStateSummaryRequest, ReadShareGroupStateSummaryResponse;
        describe_share_group_offsets: DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse;
        alter_share_group_offsets: AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse;
        delete_share_group_offsets: DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse;
    }
}

/// Every message of the table.
fn all() -> Vec<Subject> {
    with_every_rpc!(ours_alone)
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    }
}

proptest! {
    #![proptest_config(config(24))]

    #[test]
    fn every_message_survives_in_every_version(seed: u64) {
        let mut random = Random::new(seed);
        for subject in all() {
            for version in subject.versions.clone() {
                let body = (subject.sample)(&mut random, version);
                prop_assert_eq!((subject.ours)(body.clone(), version), Ok((body, 0)), "{}", subject.name);
            }
        }
    }

    #[test]
    fn kafka_protocol_reads_and_writes_the_same_bytes(seed: u64) {
        let mut random = Random::new(seed);
        for subject in compared() {
            let theirs = subject.theirs.as_ref().unwrap();
            for version in subject.versions.clone().filter(|version| theirs.versions.contains(version)) {
                let body = (subject.sample)(&mut random, version);
                let again = (theirs.rewrite)(body.clone(), version);
                prop_assert_eq!(again, Ok(body), "{} version {}", subject.name, version);
            }
        }
    }

    #[test]
    fn damaged_messages_are_read_or_refused(seed: u64) {
        let mut random = Random::new(seed);
        for subject in all() {
            for version in subject.versions.clone() {
                let body = (subject.sample)(&mut random, version);
                let body = damaged(&mut random, body);
                // What could be read is written in a form that reads the same: nothing was made up.
                if let Ok((again, _)) = (subject.ours)(body, version) {
                    prop_assert_eq!((subject.ours)(again.clone(), version), Ok((again, 0)), "{}", subject.name);
                }
            }
        }
    }
}

/// `body`, cut short or with some bytes changed.
fn damaged(random: &mut Random, body: Bytes) -> Bytes {
    let mut body = BytesMut::from(&body[..]);
    if body.is_empty() {
        return body.freeze();
    }
    if random.one_in(3) {
        body.truncate(random.below(body.len()));
    }
    for _ in 0..random.below(4) {
        if !body.is_empty() {
            let at = random.below(body.len());
            body[at] = [0, 1, 0x7f, 0x80, 0xff, random.bits() as u8][random.below(6)];
        }
    }
    body.freeze()
}

#[test]
fn the_table_is_complete_and_its_order_is_the_keys() {
    let keys: Vec<i16> = super::APIS.iter().map(|api| api.key).collect();
    let expected: Vec<i16> = (0..=94).filter(|key| !(4..=7).contains(key)).collect();
    assert_eq!(keys, expected);
    assert_eq!(
        super::api_schema(75).map(|api| api.name),
        Some("DescribeTopicPartitions")
    );
    assert_eq!(super::api_schema(5), None);
    assert_eq!(super::api_schema(95), None);
}

#[test]
fn an_unstable_version_can_be_read_but_is_not_advertised() {
    use crate::messages::init_producer_id::Request;
    assert_eq!((Request::MAX_VERSION, Request::CODEC_MAX_VERSION), (5, 6));
    assert!(super::api_schema(22).is_some_and(|api| api.supports(5) && !api.supports(6)));
}

#[test]
fn versions_that_do_not_exist_are_refused() {
    for (subject, api) in all().iter().step_by(2).zip(super::APIS) {
        for version in [api.min - 1, *subject.versions.end() + 1] {
            let refused = (subject.ours)(Bytes::from_static(&[0; 64]), version);
            assert!(
                matches!(refused, Err(DecodeError::UnknownVersion { .. })),
                "{} {version}",
                subject.name
            );
        }
    }
}
