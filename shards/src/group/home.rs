//! One partition of `__consumer_offsets` that this shard owns, and the groups that it coordinates.

use std::collections::BTreeMap;

use super::classic::Group;
use super::outcome::Outcome;
use crate::base::ids::{Text, TopicPartition};
use crate::coordinator::ledger::Ledger;

#[derive(Debug)]
pub(super) struct Home {
    pub(super) ledger: Ledger<Memory>,
    pub(super) groups: BTreeMap<Text, Group>,
    /// Topics that went while the log was being loaded.
    pub(super) gone_topics: Vec<Text>,
}

/// What is remembered of an append.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) group: Text,
    pub(super) outcome: Outcome,
}

impl Home {
    pub(super) fn new(partition: TopicPartition, leader_epoch: i32) -> Home {
        Home {
            ledger: Ledger::new(partition, leader_epoch),
            groups: BTreeMap::new(),
            gone_topics: Vec::new(),
        }
    }
}
