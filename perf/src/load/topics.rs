//! Topics and their partitions, numbered through: partition `p` of topic `t` is number `t × partitions per topic + p`.

use crate::frames::Wanted;
use crate::workload::Workload;

#[derive(Debug, Clone)]
pub(crate) struct Topics {
    names: Vec<String>,
    partitions_per_topic: u32,
}

impl Topics {
    /// What a topic's name may not have becomes a hyphen.
    pub(crate) fn named(prefix: &str, workload: &Workload) -> Topics {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let prefix = prefix.replace(|c| !is_allowed(c), "-");
        let names = (0..workload.topics).map(|topic| format!("{prefix}-{topic}"));
        Topics {
            names: names.collect(),
            partitions_per_topic: workload.partitions_per_topic,
        }
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    pub(crate) fn partitions(&self) -> u32 {
        self.names.len() as u32 * self.partitions_per_topic
    }

    /// The topic and the partition of it that this number means.
    pub(crate) fn of(&self, number: u32) -> (&str, u32) {
        let topic = (number / self.partitions_per_topic) as usize;
        (&self.names[topic], number % self.partitions_per_topic)
    }

    pub(crate) fn number(&self, topic: &[u8], partition: u32) -> Option<u32> {
        let at = self
            .names
            .iter()
            .position(|name| name.as_bytes() == topic)?;
        (partition < self.partitions_per_topic)
            .then_some(at as u32 * self.partitions_per_topic + partition)
    }

    /// These numbers, which ascend, as a Fetch names them.
    pub(crate) fn wanted(&self, numbers: &[u32], position: impl Fn(u32) -> i64) -> Vec<Wanted<'_>> {
        let mut wanted: Vec<Wanted<'_>> = Vec::new();
        for number in numbers {
            let (topic, partition) = self.of(*number);
            if wanted.last().is_none_or(|last| last.topic != topic) {
                wanted.push(Wanted {
                    topic,
                    positions: Vec::new(),
                });
            }
            if let Some(last) = wanted.last_mut() {
                last.positions.push((partition, position(*number)));
            }
        }
        wanted
    }

    /// What one of the producers of all topics sends to. With more producers than partitions several share one.
    pub(crate) fn of_producer(&self, producers_per_topic: u32, producer: u32) -> Vec<u32> {
        let topic = producer / producers_per_topic;
        let first = topic * self.partitions_per_topic;
        let own = producer % producers_per_topic;
        if own < self.partitions_per_topic {
            let partitions = dealt(self.partitions_per_topic, producers_per_topic, own);
            partitions.map(|partition| first + partition).collect()
        } else {
            vec![first + own % self.partitions_per_topic]
        }
    }

    pub(crate) fn of_consumer(&self, consumers: u32, consumer: u32) -> Vec<u32> {
        dealt(self.partitions(), consumers, consumer).collect()
    }
}

/// What one of `owners` gets of what is dealt to them in turns.
fn dealt(count: u32, owners: u32, owner: u32) -> impl Iterator<Item = u32> {
    (owner..count).step_by(owners as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topics(topics: u32, partitions: u32) -> Topics {
        let mut workload = Workload::find("b1").unwrap();
        workload.topics = topics;
        workload.partitions_per_topic = partitions;
        Topics::named("t", &workload)
    }

    #[test]
    fn every_partition_belongs_to_one_producer() {
        let topics = topics(2, 10);
        let mut all: Vec<u32> = (0..6)
            .flat_map(|producer| topics.of_producer(3, producer))
            .collect();
        all.sort_unstable();
        assert_eq!(all, (0..20).collect::<Vec<_>>());
        assert_eq!(topics.of_producer(3, 1), [1, 4, 7]);
        assert_eq!(topics.of_producer(3, 4), [11, 14, 17]);
    }

    #[test]
    fn more_producers_than_partitions_share_them() {
        let topics = topics(1, 2);
        let partitions: Vec<_> = (0..5)
            .map(|producer| topics.of_producer(5, producer))
            .collect();
        assert_eq!(partitions, [[0], [1], [0], [1], [0]]);
    }

    #[test]
    fn names_are_what_topics_may_have() {
        let topics = Topics::named("bench-b1@80-1", &Workload::find("b1").unwrap());
        assert_eq!(topics.names(), ["bench-b1-80-1-0"]);
    }

    #[test]
    fn numbers_and_names_say_the_same() {
        let topics = topics(3, 4);
        assert_eq!(topics.of(9), ("t-2", 1));
        assert_eq!(topics.number(b"t-2", 1), Some(9));
        assert_eq!(topics.number(b"t-2", 4), None);
        assert_eq!(topics.number(b"t-3", 0), None);
        let wanted = topics.wanted(&[0, 3, 9], i64::from);
        let shown: Vec<_> = wanted
            .iter()
            .map(|wanted| (wanted.topic, wanted.positions.clone()))
            .collect();
        assert_eq!(
            shown,
            [("t-0", vec![(0, 0), (3, 3)]), ("t-2", vec![(1, 9)])]
        );
    }
}
