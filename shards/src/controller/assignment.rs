//! Which brokers hold the replicas of a new partition (D-1, D-3).
//!
//! Racks are not looked at: no other broker can register with an embedded controller, and which of them is chosen is not
//! observable (kraft.md 9.3).

use corelog_wire::records::metadata::MetadataRecord;
use smallvec::SmallVec;

use super::request::Refusal;
use crate::base::error_code::ErrorCode;
use crate::base::ids::{ShardId, Uuid};
use crate::base::random::Random;
use crate::metadata::snapshot::partition_record;
use crate::metadata::{Image, PartitionMeta, Replicas};

/// The directory of a replica whose broker has not said yet where it lies.
const UNASSIGNED: Uuid = Uuid::from_u128(1);

/// Chooses replicas for `count` partitions. The first replica of each, its leader, is an active broker.
pub(super) fn choose(
    image: &Image,
    random: &mut Random,
    count: i32,
    replication_factor: i16,
) -> Result<Vec<Vec<i32>>, Refusal> {
    let active: Vec<i32> = image.active_brokers().map(|broker| broker.id).collect();
    let others: Vec<i32> = image
        .brokers
        .keys()
        .copied()
        .filter(|id| !active.contains(id))
        .collect();
    let wanted = usize::try_from(replication_factor).unwrap_or(0);
    let registered = active.len() + others.len();
    let unable = |reason: String| {
        Refusal::new(
            ErrorCode::INVALID_REPLICATION_FACTOR,
            format!("Unable to replicate the partition {wanted} time(s): {reason}"),
        )
    };
    if wanted > registered {
        return Err(unable(format!(
            "The target replication factor of {wanted} cannot be reached because only {registered} broker(s) are registered or some brokers have all their log directories cordoned."
        )));
    }
    if active.is_empty() {
        return Err(unable("All brokers are currently fenced.".to_owned()));
    }
    let start = random.below(active.len());
    let replicas_of = |partition: usize| {
        let first = (start + partition) % active.len();
        let turned = active[first..].iter().chain(&active[..first]);
        turned.chain(&others).copied().take(wanted).collect()
    };
    Ok((0..usize::try_from(count).unwrap_or(0))
        .map(replicas_of)
        .collect())
}

/// Checks replicas that the client chose for one partition; `expected` is the number that the partitions before it have.
pub(super) fn check_manual(
    image: &Image,
    partition: i32,
    replicas: &[i32],
    expected: Option<usize>,
) -> Result<(), Refusal> {
    let refuse = |reason: String| Err(Refusal::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, reason));
    if replicas.is_empty() {
        return refuse(
            "The manual partition assignment includes an empty replica list.".to_owned(),
        );
    }
    for (at, replica) in replicas.iter().enumerate() {
        if !image.brokers.contains_key(replica) {
            return refuse(format!(
                "The manual partition assignment includes broker {replica}, but no such broker is registered."
            ));
        }
        if replicas[..at].contains(replica) {
            return refuse(format!(
                "The manual partition assignment includes the broker {replica} more than once."
            ));
        }
    }
    let count = replicas.len();
    if let Some(expected) = expected.filter(|expected| *expected != count) {
        return refuse(format!(
            "The manual partition assignment includes a partition with {count} replica(s), but this is not consistent with previous partitions, which have {expected} replica(s)."
        ));
    }
    if in_sync(image, replicas).is_empty() {
        return refuse(format!(
            "All brokers specified in the manual partition assignment for partition {partition} are fenced or in controlled shutdown."
        ));
    }
    Ok(())
}

fn in_sync(image: &Image, replicas: &[i32]) -> Replicas {
    let is_active = |id: &i32| image.active_brokers().any(|broker| broker.id == *id);
    replicas.iter().copied().filter(is_active).collect()
}

/// The record of a new partition: every active replica is in sync, the first of them leads.
pub(super) fn new_partition(
    image: &Image,
    topic_id: Uuid,
    partition: i32,
    replicas: &[i32],
) -> MetadataRecord {
    let isr = in_sync(image, replicas);
    let meta = PartitionMeta {
        leader: isr.first().copied().unwrap_or(-1),
        leader_epoch: 0,
        partition_epoch: 0,
        replicas: Replicas::from_slice(replicas),
        isr,
        removing: Replicas::new(),
        adding: Replicas::new(),
        elr: Replicas::new(),
        last_known_elr: Replicas::new(),
        directories: replicas
            .iter()
            .map(|id| directory(image, *id))
            .collect::<SmallVec<_>>(),
        recovering: false,
        // Neither is in the record: whoever applies it says them.
        owner: ShardId(0),
        since: 0,
    };
    partition_record(topic_id, partition, &meta)
}

/// A broker with one directory has nothing to choose; others report where they put the replica (kraft.md 9.3).
fn directory(image: &Image, broker: i32) -> Uuid {
    match image
        .brokers
        .get(&broker)
        .map(|broker| &broker.log_dirs[..])
    {
        Some([only]) => *only,
        _ => UNASSIGNED,
    }
}
