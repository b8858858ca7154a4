//! Which shard of this node owns a partition.

use crate::base::ids::{ShardId, TopicPartition};

/// The owner of `id` among `shards` shards. Computed anew at every start, so that another number of shards just works (invariant 14).
///
/// The partitions of one topic go round the shards, beginning at one that the topic's id says: one topic with as many partitions as
/// there are shards uses all of them, and many topics of one partition are spread too.
pub fn place(id: TopicPartition, shards: u16) -> ShardId {
    assert!(shards > 0, "a node has at least one shard");
    let start = id.topic_id.as_u128() % u128::from(shards);
    let turn = u128::from(id.partition.unsigned_abs());
    ShardId(((start + turn) % u128::from(shards)) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::Uuid;

    #[test]
    fn the_partitions_of_a_topic_use_every_shard() {
        let topic_id = Uuid([7; 16]);
        let mut owners: Vec<u16> = (0..4)
            .map(|partition| {
                place(
                    TopicPartition {
                        topic_id,
                        partition,
                    },
                    4,
                )
                .0
            })
            .collect();
        owners.sort_unstable();
        assert_eq!(owners, [0, 1, 2, 3]);
    }
}
