//! Records change the image (kraft.md 8.1). A record that can't be understood or that contradicts the image is an error: whoever
//! follows the log must stop there, not skip it.

use std::sync::Arc;

use corelog_wire::primitives::DecodeError;
use corelog_wire::records::metadata::{
    BrokerRegistrationChangeRecord, ClearElrRecord, ClientQuotaRecord, ConfigRecord,
    MetadataRecord, PartitionChangeRecord, PartitionRecord, RegisterBrokerRecord,
    RegisterBrokerRecordEndPoints, RegisterBrokerRecordFeatures, RegisterControllerRecord,
    RegisterControllerRecordEndPoints, RegisterControllerRecordFeatures, TopicRecord,
};

use super::configs::{ResourceKind, change};
use super::image::{Broker, ControllerNode, Endpoint, Image, PartitionMeta, Replicas, Topic};
use crate::base::ids::{ShardId, Text, TopicPartition, Uuid};

/// Why a record can't be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    #[error("the record can't be read: {0}")]
    Unreadable(#[from] DecodeError),
    #[error("no topic has the id {0}")]
    UnknownTopic(Uuid),
    #[error("topic {0} exists already")]
    TopicExists(Text),
    #[error("topic {topic} has no partition {partition}")]
    UnknownPartition { topic: Text, partition: i32 },
    #[error("partition {partition} of topic {topic} does not follow the {count} there are")]
    PartitionGap {
        topic: Text,
        partition: i32,
        count: usize,
    },
    #[error("no broker {id} is registered with epoch {epoch}")]
    UnknownBroker { id: i32, epoch: i64 },
    #[error("no controller {0} is registered")]
    UnknownController(i32),
    #[error("a setting is of the unknown resource type {0}")]
    UnknownResource(i8),
    #[error("no access control entry has the id {0}")]
    UnknownAcl(Uuid),
    #[error("a transaction begins or ends inside of another or of none")]
    Transaction,
}

impl Image {
    /// Applies one record. The three records of metadata transactions are not for the image but for [`super::Replay`].
    ///
    /// `self.version` must be the version under which the change will be published: partitions that the record creates get it as
    /// their `since`.
    pub(super) fn apply(&mut self, record: &MetadataRecord) -> Result<(), ApplyError> {
        match record {
            MetadataRecord::RegisterBroker(record) => self.register_broker(record),
            MetadataRecord::UnregisterBroker(record) => {
                self.broker_mut(record.broker_id, record.broker_epoch)?;
                self.brokers.remove(&record.broker_id);
            }
            MetadataRecord::BrokerRegistrationChange(record) => self.change_broker(record)?,
            MetadataRecord::FenceBroker(record) => {
                self.broker_mut(record.id, record.epoch)?.fenced = true;
            }
            MetadataRecord::UnfenceBroker(record) => {
                self.broker_mut(record.id, record.epoch)?.fenced = false;
            }
            MetadataRecord::Topic(record) => self.create_topic(record)?,
            MetadataRecord::RemoveTopic(record) => self.remove_topic(record.topic_id)?,
            MetadataRecord::Partition(record) => self.set_partition(record)?,
            MetadataRecord::PartitionChange(record) => self.change_partition(record)?,
            MetadataRecord::ClearElr(record) => self.clear_elr(record)?,
            MetadataRecord::Config(record) => self.set_config(record)?,
            MetadataRecord::FeatureLevel(record) if record.feature_level == 0 => {
                self.features.remove(&record.name);
            }
            MetadataRecord::FeatureLevel(record) => {
                self.features
                    .insert(record.name.detached(), record.feature_level);
            }
            MetadataRecord::ProducerIds(record) => self.next_producer_id = record.next_producer_id,
            MetadataRecord::RegisterController(record) => self.register_controller(record),
            MetadataRecord::UnregisterController(record) => {
                let id = record.controller_id;
                self.controllers
                    .remove(&id)
                    .ok_or(ApplyError::UnknownController(id))?;
            }
            MetadataRecord::BeginTransaction(_)
            | MetadataRecord::EndTransaction(_)
            | MetadataRecord::AbortTransaction(_) => return Err(ApplyError::Transaction),
            // 4.x has no migration; the record says nothing that matters any more.
            MetadataRecord::NoOp(_) | MetadataRecord::ZkMigrationState(_) => {}
            MetadataRecord::DelegationToken(_)
            | MetadataRecord::RemoveDelegationToken(_)
            | MetadataRecord::UserScramCredential(_)
            | MetadataRecord::RemoveUserScramCredential(_)
            | MetadataRecord::AccessControlEntry(_)
            | MetadataRecord::RemoveAccessControlEntry(_)
            | MetadataRecord::ClientQuota(_) => self.apply_security(record)?,
        }
        Ok(())
    }

    fn register_broker(&mut self, record: &RegisterBrokerRecord) {
        let broker = Broker {
            id: record.broker_id,
            epoch: record.broker_epoch,
            incarnation: record.incarnation_id,
            endpoints: record.end_points.iter().map(broker_endpoint).collect(),
            features: record.features.iter().map(broker_feature).collect(),
            rack: record.rack.as_ref().map(Text::detached),
            fenced: record.fenced,
            in_controlled_shutdown: record.in_controlled_shutdown,
            log_dirs: record.log_dirs.clone(),
            cordoned_log_dirs: record.cordoned_log_dirs.clone(),
        };
        self.brokers.insert(broker.id, Arc::new(broker));
    }

    fn broker_mut(&mut self, id: i32, epoch: i64) -> Result<&mut Broker, ApplyError> {
        self.brokers
            .get_mut(&id)
            .filter(|broker| broker.epoch == epoch)
            .map(Arc::make_mut)
            .ok_or(ApplyError::UnknownBroker { id, epoch })
    }

    fn change_broker(&mut self, record: &BrokerRegistrationChangeRecord) -> Result<(), ApplyError> {
        let broker = self.broker_mut(record.broker_id, record.broker_epoch)?;
        match record.fenced {
            1 => broker.fenced = true,
            -1 => broker.fenced = false,
            _ => {}
        }
        if record.in_controlled_shutdown == 1 {
            broker.in_controlled_shutdown = true;
        }
        if !record.log_dirs.is_empty() {
            broker.log_dirs.clone_from(&record.log_dirs);
        }
        if let Some(cordoned) = &record.cordoned_log_dirs {
            broker.cordoned_log_dirs = Some(cordoned.clone());
        }
        Ok(())
    }

    fn register_controller(&mut self, record: &RegisterControllerRecord) {
        let node = ControllerNode {
            id: record.controller_id,
            incarnation: record.incarnation_id,
            endpoints: record.end_points.iter().map(controller_endpoint).collect(),
            features: record.features.iter().map(controller_feature).collect(),
        };
        self.controllers.insert(node.id, Arc::new(node));
    }

    fn create_topic(&mut self, record: &TopicRecord) -> Result<(), ApplyError> {
        let name = record.name.detached();
        if self.topic(&name).is_some() {
            return Err(ApplyError::TopicExists(name));
        }
        let overrides = match self.configs.of(ResourceKind::Topic, &name) {
            Some(_) => Arc::make_mut(&mut self.configs).take_topic(&name),
            None => None,
        };
        let topic = Topic {
            name: name.clone(),
            id: record.topic_id,
            partitions: Vec::new(),
            config: self.configs.topic(overrides.as_deref()),
            overrides,
        };
        self.names.insert(record.topic_id, name.clone());
        self.topics.insert(name, Arc::new(topic));
        Ok(())
    }

    fn remove_topic(&mut self, id: Uuid) -> Result<(), ApplyError> {
        let name = self.names.remove(&id).ok_or(ApplyError::UnknownTopic(id))?;
        let Some(topic) = self.topics.remove(&name) else {
            return Ok(());
        };
        for meta in &topic.partitions {
            if meta.replicas.contains(&self.node_id) {
                let owned = &mut self.owned[usize::from(meta.owner.0)];
                *owned = owned.saturating_sub(1);
            }
        }
        Ok(())
    }

    fn topic_mut(&mut self, id: Uuid) -> Result<&mut Topic, ApplyError> {
        let name = self.names.get(&id).ok_or(ApplyError::UnknownTopic(id))?;
        self.topics
            .get_mut(name)
            .map(Arc::make_mut)
            .ok_or(ApplyError::UnknownTopic(id))
    }

    fn partition_mut(&mut self, id: TopicPartition) -> Result<&mut PartitionMeta, ApplyError> {
        let topic = self.topic_mut(id.topic_id)?;
        let index = usize::try_from(id.partition).unwrap_or(usize::MAX);
        let name = topic.name.clone();
        topic
            .partitions
            .get_mut(index)
            .ok_or(ApplyError::UnknownPartition {
                topic: name,
                partition: id.partition,
            })
    }

    fn set_partition(&mut self, record: &PartitionRecord) -> Result<(), ApplyError> {
        let topic = self.topic_mut(record.topic_id)?;
        let count = topic.partitions.len();
        let index = usize::try_from(record.partition_id).unwrap_or(usize::MAX);
        if index > count {
            return Err(ApplyError::PartitionGap {
                topic: topic.name.clone(),
                partition: record.partition_id,
                count,
            });
        }
        // A record that says an existing partition anew does not move it.
        let known = topic
            .partitions
            .get(index)
            .map(|known| (known.owner, known.since));
        let is_here = record.replicas.contains(&self.node_id);
        let (owner, since) = known.unwrap_or_else(|| (self.place(is_here), self.version));
        let meta = PartitionMeta {
            leader: record.leader,
            leader_epoch: record.leader_epoch,
            partition_epoch: record.partition_epoch,
            replicas: Replicas::from_slice(&record.replicas),
            isr: Replicas::from_slice(&record.isr),
            removing: Replicas::from_slice(&record.removing_replicas),
            adding: Replicas::from_slice(&record.adding_replicas),
            elr: replicas(record.eligible_leader_replicas.as_deref()),
            last_known_elr: replicas(record.last_known_elr.as_deref()),
            directories: record.directories.iter().copied().collect(),
            recovering: record.leader_recovery_state == 1,
            owner,
            since,
        };
        let topic = self.topic_mut(record.topic_id)?;
        match topic.partitions.get_mut(index) {
            Some(known) => *known = meta,
            None => topic.partitions.push(meta),
        }
        Ok(())
    }

    /// Places all partitions anew, evenly, whatever was created and deleted in which order. At start only: nobody has been told of an
    /// owner yet.
    pub(super) fn place_all(&mut self) {
        self.owned.fill(0);
        let names: Vec<Text> = self
            .sorted_topics()
            .into_iter()
            .map(|topic| topic.name.clone())
            .collect();
        for name in names {
            let Some(mut topic) = self.topics.get(&*name).map(|topic| Topic::clone(topic)) else {
                continue;
            };
            for meta in &mut topic.partitions {
                meta.owner = self.place(meta.replicas.contains(&self.node_id));
            }
            self.topics.insert(name, Arc::new(topic));
        }
    }

    /// The shard that owns the fewest partitions gets the next one. A partition that is not on this node weighs nothing.
    fn place(&mut self, is_here: bool) -> ShardId {
        let shards = self.owned.iter_mut().zip(0..);
        let Some((owned, shard)) = shards.min_by_key(|(owned, _)| **owned) else {
            return ShardId(0);
        };
        *owned += u32::from(is_here);
        ShardId(shard)
    }

    fn change_partition(&mut self, record: &PartitionChangeRecord) -> Result<(), ApplyError> {
        let partition = self.partition_mut(TopicPartition {
            topic_id: record.topic_id,
            partition: record.partition_id,
        })?;
        if let Some(replicas) = &record.replicas {
            change_replicas(partition, replicas);
        }
        if let Some(directories) = &record.directories {
            partition.directories = directories.iter().copied().collect();
        }
        let lists = [
            (&mut partition.isr, &record.isr),
            (&mut partition.removing, &record.removing_replicas),
            (&mut partition.adding, &record.adding_replicas),
            (&mut partition.elr, &record.eligible_leader_replicas),
            (&mut partition.last_known_elr, &record.last_known_elr),
        ];
        for (list, new) in lists {
            if let Some(new) = new {
                *list = Replicas::from_slice(new);
            }
        }
        if record.leader_recovery_state >= 0 {
            partition.recovering = record.leader_recovery_state == 1;
        }
        if record.leader != -2 {
            partition.leader = record.leader;
            partition.leader_epoch += 1;
        }
        partition.partition_epoch += 1;
        Ok(())
    }

    fn clear_elr(&mut self, record: &ClearElrRecord) -> Result<(), ApplyError> {
        let named: Vec<Text> = if record.topic_name.is_empty() {
            self.topics().map(|topic| topic.name.clone()).collect()
        } else {
            vec![record.topic_name.detached()]
        };
        for name in named {
            let topic = self
                .topics
                .get_mut(&name)
                .ok_or(ApplyError::UnknownTopic(Uuid::ZERO))?;
            let has_elr = |partition: &PartitionMeta| {
                !partition.elr.is_empty() || !partition.last_known_elr.is_empty()
            };
            if !topic.partitions.iter().any(has_elr) {
                continue;
            }
            for partition in &mut Arc::make_mut(topic).partitions {
                partition.elr.clear();
                partition.last_known_elr.clear();
            }
        }
        Ok(())
    }

    fn set_config(&mut self, record: &ConfigRecord) -> Result<(), ApplyError> {
        let kind = ResourceKind::from_code(record.resource_type)
            .ok_or(ApplyError::UnknownResource(record.resource_type))?;
        let (name, key, value) = (&record.resource_name, &record.name, record.value.as_ref());
        let configs = self.configs.clone();
        if kind == ResourceKind::Topic
            && let Some(topic) = self.topics.get_mut(name)
        {
            let topic = Arc::make_mut(topic);
            let mut overrides = topic.overrides.take().unwrap_or_default();
            change(&mut overrides, key, value);
            topic.overrides = (!overrides.is_empty()).then_some(overrides);
            topic.config = configs.topic(topic.overrides.as_deref());
            return Ok(());
        }
        drop(configs);
        Arc::make_mut(&mut self.configs).set(kind, name, key, value);
        if kind == ResourceKind::Broker {
            self.refresh_topic_configs();
        }
        Ok(())
    }

    /// A broker's settings are the defaults of all topics.
    fn refresh_topic_configs(&mut self) {
        if !Arc::make_mut(&mut self.configs).refresh_default_topic() {
            return;
        }
        let configs = self.configs.clone();
        let names: Vec<Text> = self.topics().map(|topic| topic.name.clone()).collect();
        for name in names {
            if let Some(topic) = self.topics.get_mut(&name) {
                let topic = Arc::make_mut(topic);
                topic.config = configs.topic(topic.overrides.as_deref());
            }
        }
    }

    fn apply_security(&mut self, record: &MetadataRecord) -> Result<(), ApplyError> {
        let security = Arc::make_mut(&mut self.security);
        match record {
            MetadataRecord::DelegationToken(record) => {
                security
                    .tokens
                    .insert(record.token_id.detached(), record.clone());
            }
            MetadataRecord::RemoveDelegationToken(record) => {
                security.tokens.remove(&record.token_id);
            }
            MetadataRecord::UserScramCredential(record) => {
                let key = (record.name.detached(), record.mechanism);
                security.scram.insert(key, record.clone());
            }
            MetadataRecord::RemoveUserScramCredential(record) => {
                security
                    .scram
                    .remove(&(record.name.clone(), record.mechanism));
            }
            MetadataRecord::AccessControlEntry(record) => {
                security.acls.insert(record.id, record.clone());
            }
            MetadataRecord::RemoveAccessControlEntry(record) => {
                security
                    .acls
                    .remove(&record.id)
                    .ok_or(ApplyError::UnknownAcl(record.id))?;
            }
            MetadataRecord::ClientQuota(record) => set_quota(security, record),
            _ => {}
        }
        Ok(())
    }
}

fn set_quota(security: &mut super::Security, record: &ClientQuotaRecord) {
    let mut entity: super::QuotaEntity = record
        .entity
        .iter()
        .map(|part| {
            let name = part.entity_name.as_ref().map(Text::detached);
            (part.entity_type.detached(), name)
        })
        .collect();
    entity.sort();
    let quotas = security.quotas.entry(entity.clone()).or_default();
    if record.remove {
        quotas.remove(&record.key);
    } else {
        quotas.insert(record.key.detached(), record.value);
    }
    if quotas.is_empty() {
        security.quotas.remove(&entity);
    }
}

/// Known directories stay with their replicas; a new replica's is not known yet.
fn change_replicas(partition: &mut PartitionMeta, replicas: &[i32]) {
    const UNASSIGNED: Uuid = Uuid::from_u128(1);
    if !partition.directories.is_empty() {
        let directory_of = |replica: &i32| {
            let at = partition.replicas.iter().position(|known| known == replica);
            at.and_then(|at| partition.directories.get(at).copied())
                .unwrap_or(UNASSIGNED)
        };
        partition.directories = replicas.iter().map(directory_of).collect();
    }
    partition.replicas = Replicas::from_slice(replicas);
}

fn replicas(list: Option<&[i32]>) -> Replicas {
    Replicas::from_slice(list.unwrap_or_default())
}

fn broker_endpoint(record: &RegisterBrokerRecordEndPoints) -> Endpoint {
    Endpoint {
        name: record.name.detached(),
        host: record.host.detached(),
        port: record.port,
        security_protocol: record.security_protocol,
    }
}

fn controller_endpoint(record: &RegisterControllerRecordEndPoints) -> Endpoint {
    Endpoint {
        name: record.name.detached(),
        host: record.host.detached(),
        port: record.port,
        security_protocol: record.security_protocol,
    }
}

fn broker_feature(record: &RegisterBrokerRecordFeatures) -> (Text, i16, i16) {
    (
        record.name.detached(),
        record.min_supported_version,
        record.max_supported_version,
    )
}

fn controller_feature(record: &RegisterControllerRecordFeatures) -> (Text, i16, i16) {
    (
        record.name.detached(),
        record.min_supported_version,
        record.max_supported_version,
    )
}
