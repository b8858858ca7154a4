//! A group's committed offsets: read and written through its coordinator, whatever version it speaks.

use std::collections::BTreeMap;
use std::fmt;

use corelog_wire::messages::{offset_commit, offset_fetch};
use corelog_wire::primitives::Text;

use super::client::check;
use super::cluster::{Cluster, TopicView};
use super::failure::Failure;

/// A partition of a topic, by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) topic: Text,
    pub(super) partition: i32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.topic, self.partition)
    }
}

/// Everything that the group has committed.
pub(super) fn committed(
    cluster: &mut Cluster,
    group: &Text,
) -> Result<BTreeMap<Place, i64>, Failure> {
    let topics = cluster.topics()?;
    // Both fields: versions up to 7 read the first, later ones the second. No topics means all.
    let request = offset_fetch::Request {
        group_id: group.clone(),
        topics: None,
        groups: vec![offset_fetch::RequestGroups {
            group_id: group.clone(),
            topics: None,
            ..offset_fetch::RequestGroups::default()
        }],
        require_stable: false,
    };
    let what = format!("cannot read the offsets of group {group}");
    let offsets = cluster.patiently(|cluster| {
        let (response, version) = cluster.coordinator(group)?.call(&request)?;
        check(what.clone(), response.error_code, None)?;
        let mut found = BTreeMap::new();
        for topic in &response.topics {
            for partition in &topic.partitions {
                check(what.clone(), partition.error_code, None)?;
                add(
                    &mut found,
                    &topic.name,
                    partition.partition_index,
                    partition.committed_offset,
                );
            }
        }
        for group in &response.groups {
            check(what.clone(), group.error_code, None)?;
            for topic in &group.topics {
                let named = topics.iter().find(|known| known.id == topic.topic_id);
                let name = if version >= 10 {
                    named.map(|known| &known.name)
                } else {
                    Some(&topic.name)
                };
                let Some(name) = name else { continue };
                for partition in &topic.partitions {
                    check(what.clone(), partition.error_code, None)?;
                    add(
                        &mut found,
                        name,
                        partition.partition_index,
                        partition.committed_offset,
                    );
                }
            }
        }
        Ok(found)
    })?;
    Ok(offsets)
}

fn add(found: &mut BTreeMap<Place, i64>, topic: &Text, partition: i32, offset: i64) {
    if offset >= 0 {
        let topic = topic.detached();
        found.insert(Place { topic, partition }, offset);
    }
}

/// Commits offsets for a group without members, as an administrator does.
pub(super) fn commit(
    cluster: &mut Cluster,
    group: &Text,
    topics: &[TopicView],
    offsets: &BTreeMap<Place, i64>,
) -> Result<(), Failure> {
    let named = topics.iter().filter_map(|topic| {
        let own = offsets
            .iter()
            .filter(|(place, _)| place.topic == topic.name);
        let partitions: Vec<_> = own
            .map(|(place, offset)| offset_commit::RequestTopicsPartitions {
                partition_index: place.partition,
                committed_offset: *offset,
                committed_metadata: Some(Text::empty()),
                ..offset_commit::RequestTopicsPartitions::default()
            })
            .collect();
        (!partitions.is_empty()).then(|| offset_commit::RequestTopics {
            name: topic.name.clone(),
            topic_id: topic.id,
            partitions,
        })
    });
    let request = offset_commit::Request {
        group_id: group.clone(),
        topics: named.collect(),
        ..offset_commit::Request::default()
    };
    cluster.patiently(|cluster| {
        let (response, _) = cluster.coordinator(group)?.call(&request)?;
        for partition in response.topics.iter().flat_map(|topic| &topic.partitions) {
            let what = format!("cannot set an offset of group {group}");
            check(what, partition.error_code, None)?;
        }
        Ok(())
    })?;
    Ok(())
}
