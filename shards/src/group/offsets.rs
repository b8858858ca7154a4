//! The offsets that a group has committed.
//!
//! A change counts as *under way* from its append to its outcome, and is shown from its commit on (G-4): a change that fails leaves nothing
//! to undo.

use std::collections::BTreeMap;

use crate::base::ids::{Text, Uuid};

/// One committed offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Committed {
    pub(super) offset: i64,
    /// -1 = not said.
    pub(super) leader_epoch: i32,
    pub(super) metadata: Text,
    pub(super) commit_ms: i64,
    /// -1 = as the broker's retention says.
    pub(super) expire_ms: i64,
    /// Zero = an older broker wrote it.
    pub(super) topic_id: Uuid,
}

/// An offset set or (`None`) deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) topic: Text,
    pub(super) partition: i32,
    pub(super) to: Option<Committed>,
}

#[derive(Debug, Default)]
struct Cell {
    committed: Option<Committed>,
    under_way: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Offsets {
    topics: BTreeMap<Text, BTreeMap<i32, Cell>>,
}

impl Offsets {
    /// Nothing is committed or under way.
    pub(super) fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    pub(super) fn get(&self, topic: &str, partition: i32) -> Option<&Committed> {
        let cell = self.topics.get(topic)?.get(&partition)?;
        cell.committed.as_ref()
    }

    /// What is committed, by topic.
    pub(super) fn committed(
        &self,
    ) -> impl Iterator<Item = (&Text, impl Iterator<Item = (i32, &Committed)>)> {
        self.topics.iter().map(|(topic, partitions)| {
            let set = partitions
                .iter()
                .filter_map(|(partition, cell)| Some((*partition, cell.committed.as_ref()?)));
            (topic, set)
        })
    }

    /// What is committed and not about to change.
    pub(super) fn settled(&self) -> impl Iterator<Item = (&Text, i32, &Committed)> {
        self.topics.iter().flat_map(|(topic, partitions)| {
            let settled = partitions.iter().filter(|(_, cell)| cell.under_way == 0);
            settled.filter_map(move |(partition, cell)| {
                Some((topic, *partition, cell.committed.as_ref()?))
            })
        })
    }

    /// Deletes everything that is committed or under way, of one topic or of all.
    pub(super) fn deletions(&self, topic: Option<&str>) -> Vec<Change> {
        let wanted = |name: &Text| topic.is_none_or(|topic| &**name == topic);
        let topics = self.topics.iter().filter(|(name, _)| wanted(name));
        let keys = topics.flat_map(|(name, partitions)| {
            partitions.keys().map(move |partition| (name, *partition))
        });
        keys.map(|(name, partition)| Change {
            topic: name.clone(),
            partition,
            to: None,
        })
        .collect()
    }

    pub(super) fn contains(&self, topic: &str, partition: i32) -> bool {
        let partitions = self.topics.get(topic);
        partitions.is_some_and(|partitions| partitions.contains_key(&partition))
    }

    /// A change is on its way into the log.
    pub(super) fn appended(&mut self, change: &Change) {
        if !self.topics.contains_key(&change.topic) {
            self.topics.insert(change.topic.detached(), BTreeMap::new());
        }
        if let Some(partitions) = self.topics.get_mut(&change.topic) {
            partitions.entry(change.partition).or_default().under_way += 1;
        }
    }

    /// A change that was under way is committed (or found in the log by a load: then it never was under way).
    pub(super) fn commit(&mut self, change: Change) {
        let Change {
            topic,
            partition,
            to,
        } = change;
        if to.is_some() && !self.topics.contains_key(&topic) {
            self.topics.insert(topic.detached(), BTreeMap::new());
        }
        let Some(partitions) = self.topics.get_mut(&topic) else {
            return;
        };
        let cell = partitions.entry(partition).or_default();
        cell.under_way = cell.under_way.saturating_sub(1);
        cell.committed = to;
        self.drop_if_void(&topic, partition);
    }

    /// A change that was under way never will be committed.
    pub(super) fn fail(&mut self, change: &Change) {
        let partitions = self.topics.get_mut(&change.topic);
        if let Some(cell) = partitions.and_then(|all| all.get_mut(&change.partition)) {
            cell.under_way = cell.under_way.saturating_sub(1);
        }
        self.drop_if_void(&change.topic, change.partition);
    }

    fn drop_if_void(&mut self, topic: &Text, partition: i32) {
        let Some(partitions) = self.topics.get_mut(topic) else {
            return;
        };
        let is_void = |cell: &Cell| cell.committed.is_none() && cell.under_way == 0;
        if partitions.get(&partition).is_some_and(is_void) {
            partitions.remove(&partition);
        }
        if partitions.is_empty() {
            self.topics.remove(topic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(offset: Option<i64>) -> Change {
        Change {
            topic: Text::from_static("t"),
            partition: 0,
            to: offset.map(|offset| Committed {
                offset,
                leader_epoch: -1,
                metadata: Text::empty(),
                commit_ms: 0,
                expire_ms: -1,
                topic_id: Uuid::ZERO,
            }),
        }
    }

    fn shown(offsets: &Offsets) -> Option<i64> {
        offsets.get("t", 0).map(|committed| committed.offset)
    }

    #[test]
    fn a_change_is_shown_when_it_is_committed() {
        let mut offsets = Offsets::default();
        offsets.appended(&change(Some(1)));
        assert_eq!((shown(&offsets), offsets.is_empty()), (None, false));
        offsets.commit(change(Some(1)));
        assert_eq!(shown(&offsets), Some(1));
        offsets.appended(&change(None));
        assert_eq!(shown(&offsets), Some(1));
        offsets.commit(change(None));
        assert!(offsets.is_empty());
    }

    #[test]
    fn a_change_that_fails_leaves_no_trace() {
        let mut offsets = Offsets::default();
        offsets.appended(&change(Some(1)));
        offsets.fail(&change(Some(1)));
        assert!(offsets.is_empty());
        offsets.commit(change(Some(5)));
        offsets.appended(&change(Some(6)));
        offsets.fail(&change(Some(6)));
        assert_eq!(shown(&offsets), Some(5));
    }

    #[test]
    fn what_is_under_way_is_deleted_with_the_rest_but_does_not_expire() {
        let mut offsets = Offsets::default();
        offsets.appended(&change(Some(1)));
        assert_eq!(offsets.deletions(None), [change(None)]);
        assert_eq!(offsets.deletions(Some("u")), []);
        assert_eq!(offsets.settled().count(), 0);
        offsets.commit(change(Some(1)));
        assert_eq!(offsets.settled().count(), 1);
    }
}
