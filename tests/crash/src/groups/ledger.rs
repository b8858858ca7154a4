//! What a group was promised. The rules are here and nowhere else:
//!
//! - a commit that was acknowledged is there, or a later one is; what nobody sent is not there;
//! - nobody who is not a member of the group's present generation commits;
//! - a partition has one owner in a generation;
//! - a generation whose assignment was given out is not followed by an older one;
//! - a group that nothing happens to stays in its generation, however often the broker is killed.

use std::collections::HashMap;

use thiserror::Error;

#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum Broken {
    #[error(
        "offset {found} of partition {partition} is there, but {acknowledged} was acknowledged"
    )]
    Lost {
        partition: i32,
        found: i64,
        acknowledged: i64,
    },
    #[error(
        "offset {found} of partition {partition} is there, but the last that a member sent is {sent}"
    )]
    Foreign {
        partition: i32,
        found: i64,
        sent: i64,
    },
    #[error("partition {partition} of generation {generation} belongs to {before} and to {now}")]
    Shared {
        partition: i32,
        generation: i32,
        before: String,
        now: String,
    },
    #[error("generation {generation} was served after generation {known} had been")]
    Older { generation: i32, known: i32 },
    #[error("the group was left alone, but is in generation {generation} after {known}")]
    Disturbed { generation: i32, known: i32 },
    #[error("{what} by a member that is none was answered with {code}")]
    Accepted { what: &'static str, code: i16 },
}

#[derive(Clone, Copy, Default)]
struct Cell {
    /// 0 = none, as the first that is sent is 1.
    acknowledged: i64,
    sent: i64,
}

/// See the module.
pub(crate) struct Ledger {
    cells: Vec<Cell>,
    /// By generation and partition.
    owners: HashMap<(i32, i32), String>,
    generation: i32,
    /// The generation in which the group is to stay.
    pinned: Option<i32>,
}

impl Ledger {
    pub(crate) fn new(partitions: i32) -> Ledger {
        Ledger {
            cells: vec![Cell::default(); partitions as usize],
            owners: HashMap::new(),
            generation: 0,
            pinned: None,
        }
    }

    /// From now on nothing happens to the group beside the broker's ends.
    pub(crate) fn pin(&mut self) {
        self.pinned = Some(self.generation);
    }

    /// How many members share the partitions of the newest generation.
    pub(crate) fn owners(&self) -> usize {
        let newest = self
            .owners
            .iter()
            .filter(|(key, _)| key.0 == self.generation);
        let mut all: Vec<&String> = newest.map(|(_, owner)| owner).collect();
        all.sort_unstable();
        all.dedup();
        all.len()
    }

    /// The newest generation of which an assignment was given out.
    pub(crate) fn generation(&self) -> i32 {
        self.generation
    }

    /// The offsets that a member sends next for its partitions.
    pub(crate) fn next(&mut self, partitions: &[i32]) -> Vec<(i32, i64)> {
        let mut next = |partition: &i32| {
            let cell = &mut self.cells[*partition as usize];
            cell.sent += 1;
            (*partition, cell.sent)
        };
        partitions.iter().map(&mut next).collect()
    }

    /// Every partition's highest acknowledged offset; 0 = none.
    pub(crate) fn acknowledged(&self) -> Vec<i64> {
        self.cells.iter().map(|cell| cell.acknowledged).collect()
    }

    /// A commit was acknowledged that was sent in `generation`, when `known` was the newest.
    pub(crate) fn acknowledge(
        &mut self,
        generation: i32,
        known: i32,
        (partition, offset): (i32, i64),
    ) -> Result<(), Broken> {
        if generation < known {
            return Err(Broken::Older { generation, known });
        }
        let cell = &mut self.cells[partition as usize];
        cell.acknowledged = cell.acknowledged.max(offset);
        Ok(())
    }

    /// An offset that was read, when `acknowledged` was the highest before it was asked for. -1 = there is none.
    pub(crate) fn read(&self, partition: i32, found: i64, acknowledged: i64) -> Result<(), Broken> {
        let sent = self.cells[partition as usize].sent;
        if found.max(0) < acknowledged {
            return Err(Broken::Lost {
                partition,
                found,
                acknowledged,
            });
        }
        if found > sent {
            return Err(Broken::Foreign {
                partition,
                found,
                sent,
            });
        }
        Ok(())
    }

    /// `owner` was given `partitions` in `generation`; `known` was the newest when it asked.
    pub(crate) fn assign(
        &mut self,
        owner: &str,
        generation: i32,
        known: i32,
        partitions: &[i32],
    ) -> Result<(), Broken> {
        if generation < known {
            return Err(Broken::Older { generation, known });
        }
        if let Some(known) = self.pinned.filter(|pinned| *pinned != generation) {
            return Err(Broken::Disturbed { generation, known });
        }
        self.generation = self.generation.max(generation);
        for &partition in partitions {
            let before = self
                .owners
                .entry((generation, partition))
                .or_insert_with(|| owner.to_owned());
            if before != owner {
                return Err(Broken::Shared {
                    partition,
                    generation,
                    before: before.clone(),
                    now: owner.to_owned(),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_commits(acknowledged: i64, sent: i64) -> Ledger {
        let mut ledger = Ledger::new(1);
        for _ in 0..sent {
            ledger.next(&[0]);
        }
        assert_eq!(ledger.acknowledge(1, 1, (0, acknowledged)), Ok(()));
        ledger
    }

    #[test]
    fn a_lost_commit_is_noticed_and_one_that_was_not_answered_is_accepted() {
        let ledger = with_commits(3, 5);
        let read = |found| ledger.read(0, found, 3).is_ok();
        assert_eq!(
            [-1, 2, 3, 5, 6].map(read),
            [false, false, true, true, false]
        );
    }

    #[test]
    fn a_commit_of_an_old_generation_that_is_acknowledged_is_noticed() {
        let mut ledger = with_commits(1, 2);
        let broken = ledger.acknowledge(1, 2, (0, 2));
        assert_eq!(
            broken,
            Err(Broken::Older {
                generation: 1,
                known: 2
            })
        );
    }

    #[test]
    fn a_partition_with_two_owners_is_noticed() {
        let mut ledger = Ledger::new(2);
        assert_eq!(ledger.assign("a", 1, 0, &[0, 1]), Ok(()));
        assert_eq!(ledger.assign("a", 1, 1, &[0, 1]), Ok(()));
        assert!(matches!(
            ledger.assign("b", 1, 1, &[1]),
            Err(Broken::Shared { partition: 1, .. })
        ));
        assert_eq!(ledger.assign("b", 2, 1, &[1]), Ok(()));
        assert!(matches!(
            ledger.assign("a", 1, 2, &[0]),
            Err(Broken::Older { .. })
        ));
    }

    #[test]
    fn a_calm_group_that_gets_a_new_generation_is_noticed() {
        let mut ledger = Ledger::new(1);
        assert_eq!(ledger.assign("a", 3, 0, &[0]), Ok(()));
        assert_eq!(ledger.owners(), 1);
        ledger.pin();
        assert!(matches!(
            ledger.assign("a", 4, 3, &[0]),
            Err(Broken::Disturbed { .. })
        ));
    }
}
