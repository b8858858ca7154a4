//! One fetching connection, and how positions move.

use super::topics::Topics;
use crate::Failure;
use crate::connection::Connection;
use crate::frames::{self, Fetched};

/// What consumers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Consumption {
    None,
    /// Fetch what is produced.
    Follow,
    /// Nothing is produced; from the beginning again when the end is reached.
    ReadAgain,
    /// From the beginning, while producing goes on.
    CatchUp,
}

#[derive(Debug)]
pub(super) struct Consumer {
    pub(super) connection: Connection,
    /// Numbers of its partitions, ascending.
    pub(super) partitions: Vec<u32>,
    pub(super) asked_ns: u64,
}

/// Where reading is, by number of partition.
#[derive(Debug)]
pub(super) struct Positions(pub(super) Vec<i64>);

impl Positions {
    /// Moves past what was fetched; `each` is called with number and bytes of every batch.
    pub(super) fn take(
        &mut self,
        topics: &Topics,
        fetched: Fetched<'_>,
        again: bool,
        mut each: impl FnMut(u32, usize),
    ) -> Result<(), Failure> {
        let partition = fetched.partition;
        if fetched.error != 0 {
            return Err(Failure::told(format!(
                "Fetch of partition {partition} was answered with error {}",
                fetched.error
            )));
        }
        let number = topics.number(fetched.topic, partition).ok_or_else(|| {
            Failure::told(format!(
                "partition {partition} was fetched and not asked for"
            ))
        })?;
        let position = &mut self.0[number as usize];
        let before = *position;
        for batch in frames::whole_batches(fetched.batches) {
            if batch.base_offset != *position {
                return Err(Failure::told(format!(
                    "partition {partition} continues at {} where {position} was next",
                    batch.base_offset
                )));
            }
            *position = batch.end_offset;
            each(number, batch.bytes);
        }
        if again && *position == before {
            *position = 0;
        }
        Ok(())
    }

    pub(super) fn have_reached(&self, ends: &[i64]) -> bool {
        let mut pairs = self.0.iter().zip(ends);
        pairs.all(|(position, end)| position >= end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;

    fn topics() -> Topics {
        let mut workload = Workload::find("b4").unwrap();
        workload.partitions_per_topic = 2;
        Topics::named("t", &workload)
    }

    fn fetched(partition: u32, batches: &[u8]) -> Fetched<'_> {
        Fetched {
            topic: b"t-0",
            partition,
            error: 0,
            batches,
        }
    }

    #[test]
    fn a_gap_between_batches_is_noticed() {
        let batch = frames::batch(&Workload::find("b4").unwrap(), 0).unwrap();
        let mut positions = Positions(vec![0, 0]);
        let mut seen = 0;
        let mut take = |positions: &mut Positions| {
            positions.take(&topics(), fetched(1, &batch), false, |_, _| seen += 1)
        };
        take(&mut positions).unwrap();
        assert_eq!(positions.0, [0, 1]);
        let again = take(&mut positions);
        assert!(again.unwrap_err().to_string().contains("1 was next"));
        assert_eq!(seen, 1);
    }

    #[test]
    fn a_reader_that_reached_the_end_begins_again() {
        let mut positions = Positions(vec![7, 9]);
        let mut take = |again| {
            positions
                .take(&topics(), fetched(0, &[]), again, |_, _| {})
                .unwrap();
            positions.0[0]
        };
        assert_eq!((take(false), take(true)), (7, 0));
    }

    #[test]
    fn the_backlog_is_read_when_every_partition_is() {
        assert!(!Positions(vec![7, 9]).have_reached(&[8, 9]));
        assert!(Positions(vec![8, 9]).have_reached(&[8, 9]));
    }
}
