//! The one table of APIs. ApiVersions, routing and the table in ARCHITECTURE.md come from it.

use super::SplitFn;

/// One API that this broker serves.
pub struct Api {
    pub key: i16,
    pub name: &'static str,
    /// Versions that are answered. (What ApiVersions says of Produce's minimum differs: A-5.)
    pub min: i16,
    pub max: i16,
    /// May execute beside other requests of its connection (Produce, Fetch); every other API is a barrier.
    pub concurrent: bool,
    pub split: SplitFn,
}

pub const PRODUCE: i16 = 0;
pub const FETCH: i16 = 1;
pub const API_VERSIONS: i16 = 18;

macro_rules! apis {
    ($($key:literal $name:ident $min:literal..=$max:literal $concurrent:literal $module:ident;)*) => {
        /// In the order of their keys.
        pub const APIS: &[Api] = &[
            $(Api { key: $key, name: stringify!($name), min: $min, max: $max, concurrent: $concurrent, split: super::$module::split },)*
        ];

        /// The row of `key`.
        pub fn api(key: i16) -> Option<&'static Api> {
            let index = match key {
                $($key => APIS.iter().position(|api| api.key == $key),)*
                _ => None,
            };
            APIS.get(index?)
        }
    };
}

apis! {
    0 Produce 3..=13 true produce;
    1 Fetch 4..=18 true fetch;
    2 ListOffsets 1..=11 false list_offsets;
    3 Metadata 0..=13 false metadata;
    8 OffsetCommit 2..=10 false offset_commit;
    9 OffsetFetch 1..=10 false offset_fetch;
    10 FindCoordinator 0..=6 false find_coordinator;
    11 JoinGroup 0..=9 false join_group;
    12 Heartbeat 0..=4 false heartbeat;
    13 LeaveGroup 0..=5 false leave_group;
    14 SyncGroup 0..=5 false sync_group;
    15 DescribeGroups 0..=6 false describe_groups;
    16 ListGroups 0..=5 false list_groups;
    18 ApiVersions 0..=5 false api_versions;
    19 CreateTopics 2..=7 false create_topics;
    20 DeleteTopics 1..=6 false delete_topics;
    21 DeleteRecords 0..=2 false delete_records;
    22 InitProducerId 0..=5 false init_producer_id;
    23 OffsetForLeaderEpoch 2..=4 false offset_for_leader_epoch;
    32 DescribeConfigs 1..=4 false describe_configs;
    33 AlterConfigs 0..=2 false alter_configs;
    34 AlterReplicaLogDirs 1..=2 false alter_replica_log_dirs;
    35 DescribeLogDirs 1..=5 false describe_log_dirs;
    37 CreatePartitions 0..=3 false create_partitions;
    42 DeleteGroups 0..=3 false delete_groups;
    43 ElectLeaders 0..=2 false elect_leaders;
    44 IncrementalAlterConfigs 0..=1 false incremental_alter_configs;
    45 AlterPartitionReassignments 0..=1 false alter_partition_reassignments;
    46 ListPartitionReassignments 0..=0 false list_partition_reassignments;
    47 OffsetDelete 0..=0 false offset_delete;
    55 DescribeQuorum 0..=2 false describe_quorum;
    57 UpdateFeatures 0..=2 false update_features;
    60 DescribeCluster 0..=2 false describe_cluster;
    61 DescribeProducers 0..=0 false describe_producers;
    64 UnregisterBroker 0..=0 false unregister_broker;
    74 ListConfigResources 0..=1 false list_config_resources;
    75 DescribeTopicPartitions 0..=0 false describe_topic_partitions;
}
