//! What the controller writes when it starts (kraft.md 9.1, 9.2): the activation of an empty log, and the registrations of this node.

use corelog_wire::records::metadata::{
    AbortTransactionRecord, BeginTransactionRecord, BrokerRegistrationChangeRecord,
    EndTransactionRecord, FeatureLevelRecord, MetadataRecord, PartitionChangeRecord,
};

use super::Settings;
use crate::base::ids::{Text, Uuid};
use crate::log::Shutdown;
use crate::metadata::features::{
    CONTROLLER_REGISTRATION_SINCE, METADATA_VERSION, METADATA_VERSION_MAX, SUPPORTED,
};
use crate::metadata::snapshot::{broker_record, controller_record};
use crate::metadata::{Broker, ControllerNode, Image, PartitionMeta, TopicConfig};

/// The records of a new cluster, as `bootstrap.checkpoint` holds them too.
pub fn bootstrap_records() -> Vec<MetadataRecord> {
    vec![MetadataRecord::FeatureLevel(FeatureLevelRecord {
        name: Text::from_static(METADATA_VERSION),
        feature_level: METADATA_VERSION_MAX,
    })]
}

/// The first records of an empty log: the bootstrap records in one transaction. `given` are those of a bootstrap.checkpoint that
/// the directory was formatted with.
pub(super) fn activation(given: Option<Vec<MetadataRecord>>) -> Vec<MetadataRecord> {
    let begin = MetadataRecord::BeginTransaction(BeginTransactionRecord {
        name: Some(Text::from_static("Bootstrap records")),
    });
    let end = MetadataRecord::EndTransaction(EndTransactionRecord {});
    let records = given.unwrap_or_else(bootstrap_records);
    std::iter::once(begin).chain(records).chain([end]).collect()
}

/// Ends a transaction that the controller before this one did not.
pub(super) fn abort() -> MetadataRecord {
    MetadataRecord::AbortTransaction(AbortTransactionRecord {
        reason: Some(Text::from_static(
            "The controller stopped before the transaction's end.",
        )),
    })
}

fn features() -> Vec<(Text, i16, i16)> {
    SUPPORTED
        .iter()
        .map(|feature| (Text::from_static(feature.name), feature.min, feature.max))
        .collect()
}

/// The controller's own registration, from the level on that has one. Only when it differs from the one there is: the incarnation is
/// new with each start, so that is always, as with Kafka.
pub(super) fn register_controller(
    image: &Image,
    settings: &Settings,
    incarnation: Uuid,
) -> Option<MetadataRecord> {
    let level = image.feature(METADATA_VERSION);
    (level >= CONTROLLER_REGISTRATION_SINCE).then(|| {
        controller_record(&ControllerNode {
            id: settings.identity.node_id,
            incarnation,
            endpoints: settings.controller_endpoints.clone(),
            features: features(),
        })
    })
}

/// This node's registration as a broker, at `offset`, and its unfencing: nothing has to be waited for inside one process. A
/// registration that another process left behind (a JVM broker whose directory this is) is replaced.
pub(super) fn register_broker(
    settings: &Settings,
    incarnation: Uuid,
    offset: i64,
) -> Vec<MetadataRecord> {
    let id = settings.identity.node_id;
    let registration = broker_record(&Broker {
        id,
        epoch: offset,
        incarnation,
        endpoints: settings.broker_endpoints.clone(),
        features: features(),
        rack: settings.rack.clone(),
        fenced: true,
        in_controlled_shutdown: false,
        log_dirs: settings.log_dirs.clone(),
        cordoned_log_dirs: Some(Vec::new()),
    });
    let unfencing = MetadataRecord::BrokerRegistrationChange(BrokerRegistrationChangeRecord {
        broker_id: id,
        broker_epoch: offset,
        fenced: -1,
        ..BrokerRegistrationChangeRecord::default()
    });
    vec![registration, unfencing]
}

/// Elections that the unfencing of this broker makes possible: a controlled shutdown left these partitions without a leader
/// (kafka.md 9.4). The leader must come from the ISR, or from the ELR, or be allowed to be unclean.
///
/// What this broker leads already it leads in a new epoch, unless it was stopped cleanly: its logs may have lost their ends, and only by the
/// epoch can a reader that was further (F-8, 4.4) tell that other records have their offsets now.
pub(super) fn elect(image: &Image, settings: &Settings) -> Vec<MetadataRecord> {
    let broker = settings.identity.node_id;
    let mut records = Vec::new();
    for topic in image.sorted_topics() {
        for (meta, partition) in topic.partitions.iter().zip(0..) {
            let change = if meta.leader == broker && settings.shutdown != Shutdown::Clean {
                Some(lead(broker))
            } else {
                election(image, meta, broker, &topic.config)
            };
            if let Some(mut change) = change {
                change.partition_id = partition;
                change.topic_id = topic.id;
                records.push(MetadataRecord::PartitionChange(change));
            }
        }
    }
    records
}

/// Naming a leader begins an epoch, also if it was the leader before.
fn lead(broker: i32) -> PartitionChangeRecord {
    PartitionChangeRecord {
        leader: broker,
        ..PartitionChangeRecord::default()
    }
}

fn election(
    image: &Image,
    meta: &PartitionMeta,
    broker: i32,
    config: &TopicConfig,
) -> Option<PartitionChangeRecord> {
    let is_led = image
        .active_brokers()
        .any(|active| active.id == meta.leader);
    if is_led || meta.leader == broker || !meta.replicas.contains(&broker) {
        return None;
    }
    let mut change = lead(broker);
    if meta.isr.contains(&broker) {
        return Some(change);
    }
    let eligible = meta.elr.contains(&broker);
    if !eligible && !config.unclean_leader_election {
        return None;
    }
    change.isr = Some(vec![broker]);
    if !eligible {
        change.leader_recovery_state = 1;
    }
    // With enough replicas in sync nobody else needs to be eligible (kafka.md 9.3).
    let enough = config.min_insync_replicas <= 1;
    let others = meta
        .elr
        .iter()
        .copied()
        .filter(|id| *id != broker && !enough);
    change.eligible_leader_replicas = Some(others.collect());
    if enough || eligible {
        change.last_known_elr = Some(Vec::new());
    }
    Some(change)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{apply_all, image_with_broker, settings};
    use super::*;
    use corelog_wire::records::metadata::{PartitionRecord, TopicRecord};

    fn partition(isr: &[i32], elr: &[i32], leader: i32) -> MetadataRecord {
        MetadataRecord::Partition(PartitionRecord {
            partition_id: 0,
            topic_id: Uuid([1; 16]),
            replicas: vec![1, 2],
            isr: isr.to_vec(),
            leader,
            leader_epoch: 4,
            partition_epoch: 9,
            eligible_leader_replicas: Some(elr.to_vec()),
            ..PartitionRecord::default()
        })
    }

    fn elected(isr: &[i32], elr: &[i32], leader: i32) -> (i32, i32, Vec<i32>, Vec<i32>) {
        elected_after(Shutdown::Clean, isr, elr, leader)
    }

    fn elected_after(
        shutdown: Shutdown,
        isr: &[i32],
        elr: &[i32],
        leader: i32,
    ) -> (i32, i32, Vec<i32>, Vec<i32>) {
        let mut replay = image_with_broker();
        let topic = MetadataRecord::Topic(TopicRecord {
            name: Text::from_static("t"),
            topic_id: Uuid([1; 16]),
        });
        apply_all(&mut replay, &[topic, partition(isr, elr, leader)]);
        let settings = Settings {
            shutdown,
            ..settings()
        };
        let records = elect(replay.working(), &settings);
        apply_all(&mut replay, &records);
        let topic = replay.working().topic("t").expect("created").clone();
        let meta = &topic.partitions[0];
        (
            meta.leader,
            meta.leader_epoch,
            meta.isr.to_vec(),
            meta.elr.to_vec(),
        )
    }

    #[test]
    fn a_broker_that_comes_back_leads_what_it_may_lead() {
        assert_eq!(
            elected(&[1], &[], -1),
            (1, 5, vec![1], vec![]),
            "in the ISR"
        );
        assert_eq!(elected(&[], &[1], -1), (1, 5, vec![1], vec![]), "eligible");
        assert_eq!(elected(&[2], &[], -1), (-1, 4, vec![2], vec![]), "neither");
        assert_eq!(
            elected(&[1], &[], 1),
            (1, 4, vec![1], vec![]),
            "leads already"
        );
    }

    #[test]
    fn after_a_crash_a_leader_leads_in_a_new_epoch() {
        for shutdown in [Shutdown::Crashed, Shutdown::CrashedElsewhere] {
            let again = elected_after(shutdown, &[1], &[], 1);
            assert_eq!(again, (1, 5, vec![1], vec![]), "{shutdown:?}");
            let back = elected_after(shutdown, &[1], &[], -1);
            assert_eq!(back, (1, 5, vec![1], vec![]), "{shutdown:?}");
        }
    }

    #[test]
    fn a_new_log_is_activated_in_one_transaction() {
        let mut replay = crate::metadata::Replay::new(&settings().identity);
        let records = activation(None);
        for (record, offset) in records.iter().zip(0..) {
            replay.apply(offset, record).expect("valid");
            let shown = replay.shown().feature(METADATA_VERSION);
            let is_last = offset == records.len() as i64 - 1;
            assert_eq!(shown, if is_last { METADATA_VERSION_MAX } else { 0 });
        }
    }
}
