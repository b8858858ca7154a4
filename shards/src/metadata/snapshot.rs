//! The records that bring about an image (kraft.md 10, snapshot): features, cluster, topics, configs, quotas, producer ids, security.

use corelog_wire::records::metadata::{
    ClientQuotaRecord, ClientQuotaRecordEntity, ConfigRecord, FeatureLevelRecord, MetadataRecord,
    PartitionRecord, ProducerIdsRecord, RegisterBrokerRecord, RegisterBrokerRecordEndPoints,
    RegisterBrokerRecordFeatures, RegisterControllerRecord, RegisterControllerRecordEndPoints,
    RegisterControllerRecordFeatures, TopicRecord,
};

use super::configs::{Overrides, ResourceKind};
use super::features::METADATA_VERSION;
use super::image::{Broker, ControllerNode, Image, PartitionMeta, Topic};
use crate::base::ids::{Text, Uuid};

impl Image {
    /// All records of a snapshot of this image, in Kafka's order.
    pub fn records(&self) -> Vec<MetadataRecord> {
        let mut records = Vec::new();
        self.feature_records(&mut records);
        records.extend(self.brokers.values().map(|broker| broker_record(broker)));
        records.extend(
            self.controllers
                .values()
                .map(|node| controller_record(node)),
        );
        let topics = self.sorted_topics();
        for topic in &topics {
            topic_records(topic, &mut records);
        }
        for (kind, name, overrides) in self.configs.resources() {
            config_records(kind, name, overrides, &mut records);
        }
        for topic in &topics {
            if let Some(overrides) = &topic.overrides {
                config_records(ResourceKind::Topic, &topic.name, overrides, &mut records);
            }
        }
        self.quota_records(&mut records);
        if self.next_producer_id > 0 {
            records.push(MetadataRecord::ProducerIds(ProducerIdsRecord {
                broker_id: -1,
                broker_epoch: -1,
                next_producer_id: self.next_producer_id,
            }));
        }
        self.security_records(&mut records);
        records
    }

    /// metadata.version first: it says how everything after it is read.
    fn feature_records(&self, records: &mut Vec<MetadataRecord>) {
        let (first, rest): (Vec<_>, Vec<_>) = self
            .features
            .iter()
            .partition(|(name, _)| **name == METADATA_VERSION);
        records.extend(first.into_iter().chain(rest).map(|(name, level)| {
            MetadataRecord::FeatureLevel(FeatureLevelRecord {
                name: name.clone(),
                feature_level: *level,
            })
        }));
    }

    fn quota_records(&self, records: &mut Vec<MetadataRecord>) {
        for (entity, quotas) in &self.security.quotas {
            let entity: Vec<ClientQuotaRecordEntity> = entity
                .iter()
                .map(|(entity_type, entity_name)| ClientQuotaRecordEntity {
                    entity_type: entity_type.clone(),
                    entity_name: entity_name.clone(),
                })
                .collect();
            records.extend(quotas.iter().map(|(key, value)| {
                MetadataRecord::ClientQuota(ClientQuotaRecord {
                    entity: entity.clone(),
                    key: key.clone(),
                    value: *value,
                    remove: false,
                })
            }));
        }
    }

    fn security_records(&self, records: &mut Vec<MetadataRecord>) {
        let security = &self.security;
        records.extend(
            security
                .acls
                .values()
                .cloned()
                .map(MetadataRecord::AccessControlEntry),
        );
        records.extend(
            security
                .scram
                .values()
                .cloned()
                .map(MetadataRecord::UserScramCredential),
        );
        records.extend(
            security
                .tokens
                .values()
                .cloned()
                .map(MetadataRecord::DelegationToken),
        );
    }
}

/// The record that registers a broker as the image knows it.
pub(crate) fn broker_record(broker: &Broker) -> MetadataRecord {
    MetadataRecord::RegisterBroker(RegisterBrokerRecord {
        broker_id: broker.id,
        is_migrating_zk_broker: false,
        incarnation_id: broker.incarnation,
        broker_epoch: broker.epoch,
        end_points: broker
            .endpoints
            .iter()
            .map(|endpoint| RegisterBrokerRecordEndPoints {
                name: endpoint.name.clone(),
                host: endpoint.host.clone(),
                port: endpoint.port,
                security_protocol: endpoint.security_protocol,
            })
            .collect(),
        features: broker
            .features
            .iter()
            .map(|(name, min, max)| RegisterBrokerRecordFeatures {
                name: name.clone(),
                min_supported_version: *min,
                max_supported_version: *max,
            })
            .collect(),
        rack: broker.rack.clone(),
        fenced: broker.fenced,
        in_controlled_shutdown: broker.in_controlled_shutdown,
        log_dirs: broker.log_dirs.clone(),
        cordoned_log_dirs: broker.cordoned_log_dirs.clone(),
    })
}

/// The record that registers a controller as the image knows it.
pub(crate) fn controller_record(node: &ControllerNode) -> MetadataRecord {
    MetadataRecord::RegisterController(RegisterControllerRecord {
        controller_id: node.id,
        incarnation_id: node.incarnation,
        zk_migration_ready: false,
        end_points: node
            .endpoints
            .iter()
            .map(|endpoint| RegisterControllerRecordEndPoints {
                name: endpoint.name.clone(),
                host: endpoint.host.clone(),
                port: endpoint.port,
                security_protocol: endpoint.security_protocol,
            })
            .collect(),
        features: node
            .features
            .iter()
            .map(|(name, min, max)| RegisterControllerRecordFeatures {
                name: name.clone(),
                min_supported_version: *min,
                max_supported_version: *max,
            })
            .collect(),
    })
}

fn topic_records(topic: &Topic, records: &mut Vec<MetadataRecord>) {
    records.push(MetadataRecord::Topic(TopicRecord {
        name: topic.name.clone(),
        topic_id: topic.id,
    }));
    let partitions = topic.partitions.iter().zip(0..);
    records.extend(partitions.map(|(meta, partition)| partition_record(topic.id, partition, meta)));
}

/// The record that says everything about a partition.
pub(crate) fn partition_record(
    topic_id: Uuid,
    partition: i32,
    meta: &PartitionMeta,
) -> MetadataRecord {
    let unless_empty = |list: &[i32]| (!list.is_empty()).then(|| list.to_vec());
    MetadataRecord::Partition(PartitionRecord {
        partition_id: partition,
        topic_id,
        replicas: meta.replicas.to_vec(),
        isr: meta.isr.to_vec(),
        removing_replicas: meta.removing.to_vec(),
        adding_replicas: meta.adding.to_vec(),
        leader: meta.leader,
        leader_recovery_state: i8::from(meta.recovering),
        leader_epoch: meta.leader_epoch,
        partition_epoch: meta.partition_epoch,
        directories: meta.directories.to_vec(),
        eligible_leader_replicas: unless_empty(&meta.elr),
        last_known_elr: unless_empty(&meta.last_known_elr),
    })
}

fn config_records(
    kind: ResourceKind,
    name: &Text,
    overrides: &Overrides,
    records: &mut Vec<MetadataRecord>,
) {
    records.extend(
        overrides.iter().map(|(key, value)| {
            config_record(kind, name.clone(), key.clone(), Some(value.clone()))
        }),
    );
}

/// The record that sets or removes one setting.
pub(crate) fn config_record(
    kind: ResourceKind,
    resource: Text,
    name: Text,
    value: Option<Text>,
) -> MetadataRecord {
    MetadataRecord::Config(ConfigRecord {
        resource_type: kind.code(),
        resource_name: resource,
        name,
        value,
    })
}
