//! What a partition promised and what was read from it. The rules of issue are here and nowhere else:
//!
//! - what was acknowledged is there, at the offset that was acknowledged;
//! - what was read once stays as it was read;
//! - offsets have no gap;
//! - one producer's records are in its order, and an idempotent producer's are there exactly once: its record *n* is at offset *n*, since nobody
//!   else writes to the partition.

use std::collections::VecDeque;

use thiserror::Error;

use crate::content::Batch;

#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum Broken {
    #[error("the log ends at {end}, but offsets up to {acknowledged} were acknowledged")]
    Lost { end: i64, acknowledged: i64 },
    #[error("the log ends at {end}, but offsets up to {seen} had been read")]
    Unread { end: i64, seen: i64 },
    #[error("record {serial} was acknowledged at offset {offset}, where record {found} is")]
    Moved {
        serial: u64,
        offset: i64,
        found: u64,
    },
    #[error("offset {offset} was record {before} and is record {now} after a restart")]
    Changed { offset: i64, before: u64, now: u64 },
    #[error("record {serial} is at offset {offset}, after record {before}: {what}")]
    Order {
        serial: u64,
        offset: i64,
        before: u64,
        what: &'static str,
    },
    #[error("offset {found} follows where {expected} was due")]
    Gap { expected: i64, found: i64 },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Batches without an answer are given up; they may be there or not.
    Plain,
    /// Batches without an answer are sent again under the same sequence number until there is one.
    Idempotent,
}

struct Acknowledged {
    offset: i64,
    first: u64,
    count: u32,
}

pub(crate) struct Ledger {
    pub(crate) kind: Kind,
    /// The serial number at each offset that was read.
    seen: Vec<u64>,
    /// Not yet compared with what is read.
    acknowledged: Vec<Acknowledged>,
    acknowledged_end: i64,
    pub(crate) next_serial: u64,
    /// Sent by an idempotent producer and not answered: must be sent again.
    pub(crate) unanswered: VecDeque<Batch>,
}

impl Ledger {
    pub(crate) fn new(kind: Kind) -> Ledger {
        Ledger {
            kind,
            seen: Vec::new(),
            acknowledged: Vec::new(),
            acknowledged_end: 0,
            next_serial: 0,
            unanswered: VecDeque::new(),
        }
    }

    pub(crate) fn acknowledge(&mut self, offset: i64, batch: &Batch) {
        self.acknowledged_end = self.acknowledged_end.max(offset + i64::from(batch.count));
        self.acknowledged.push(Acknowledged {
            offset,
            first: batch.first,
            count: batch.count,
        });
    }

    /// How many records were read and compared.
    pub(crate) fn seen_end(&self) -> i64 {
        self.seen.len() as i64
    }

    /// A record that was read.
    pub(crate) fn read(&mut self, offset: i64, serial: u64) -> Result<(), Broken> {
        let due = self.seen_end();
        if offset > due {
            return Err(Broken::Gap {
                expected: due,
                found: offset,
            });
        }
        if offset < due {
            let before = self.seen[offset as usize];
            return if before == serial {
                Ok(())
            } else {
                Err(Broken::Changed {
                    offset,
                    before,
                    now: serial,
                })
            };
        }
        if let Some(&before) = self.seen.last()
            && serial <= before
        {
            let what = if serial == before {
                "it is there twice"
            } else {
                "out of order"
            };
            return Err(Broken::Order {
                serial,
                offset,
                before,
                what,
            });
        }
        if self.kind == Kind::Idempotent && serial != offset as u64 {
            let before = self.seen.last().copied().unwrap_or(0);
            return Err(Broken::Order {
                serial,
                offset,
                before,
                what: "records of an idempotent producer are missing before it",
            });
        }
        self.seen.push(serial);
        Ok(())
    }

    /// After everything up to `end` was read: was every promise kept?
    pub(crate) fn settle(&mut self, end: i64) -> Result<(), Broken> {
        if end < self.acknowledged_end {
            return Err(Broken::Lost {
                end,
                acknowledged: self.acknowledged_end,
            });
        }
        if end < self.seen_end() {
            return Err(Broken::Unread {
                end,
                seen: self.seen_end(),
            });
        }
        for batch in self.acknowledged.drain(..) {
            for i in 0..batch.count {
                let (offset, serial) = (batch.offset + i64::from(i), batch.first + u64::from(i));
                let found = self.seen[offset as usize];
                if found != serial {
                    return Err(Broken::Moved {
                        serial,
                        offset,
                        found,
                    });
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(first: u64, count: u32) -> Batch {
        Batch {
            first,
            count,
            bytes: bytes::Bytes::new(),
        }
    }

    fn read_all(kind: Kind, serials: &[u64]) -> (Ledger, Result<(), Broken>) {
        let mut ledger = Ledger::new(kind);
        let read = serials
            .iter()
            .enumerate()
            .try_for_each(|(offset, serial)| ledger.read(offset as i64, *serial));
        (ledger, read)
    }

    #[test]
    fn what_was_acknowledged_and_is_there_is_accepted() {
        let (mut ledger, read) = read_all(Kind::Idempotent, &[0, 1, 2]);
        ledger.acknowledge(1, &batch(1, 2));
        assert_eq!((read, ledger.settle(3)), (Ok(()), Ok(())));
    }

    #[test]
    fn a_lost_batch_is_noticed() {
        let (mut ledger, _) = read_all(Kind::Plain, &[0, 1]);
        ledger.acknowledge(2, &batch(2, 2));
        assert_eq!(
            ledger.settle(2),
            Err(Broken::Lost {
                end: 2,
                acknowledged: 4
            })
        );
    }

    #[test]
    fn a_batch_at_another_offset_is_noticed() {
        let (mut ledger, _) = read_all(Kind::Plain, &[0, 5, 6]);
        ledger.acknowledge(1, &batch(4, 2));
        assert_eq!(
            ledger.settle(3),
            Err(Broken::Moved {
                serial: 4,
                offset: 1,
                found: 5
            })
        );
    }

    #[test]
    fn a_record_that_is_there_twice_is_noticed() {
        let (_, read) = read_all(Kind::Plain, &[0, 1, 1]);
        assert!(matches!(
            read,
            Err(Broken::Order {
                what: "it is there twice",
                ..
            })
        ));
    }

    #[test]
    fn a_missing_record_of_an_idempotent_producer_is_noticed() {
        let (_, read) = read_all(Kind::Idempotent, &[0, 2]);
        assert!(matches!(
            read,
            Err(Broken::Order {
                serial: 2,
                offset: 1,
                ..
            })
        ));
        // Of a plain producer it may be one that was never answered.
        assert_eq!(read_all(Kind::Plain, &[0, 2]).1, Ok(()));
    }

    #[test]
    fn a_record_that_changes_or_goes_after_it_was_read_is_noticed() {
        let (mut ledger, _) = read_all(Kind::Plain, &[0, 1, 2]);
        assert_eq!(
            ledger.read(1, 7),
            Err(Broken::Changed {
                offset: 1,
                before: 1,
                now: 7
            })
        );
        assert_eq!(ledger.settle(2), Err(Broken::Unread { end: 2, seen: 3 }));
        assert_eq!(
            ledger.read(4, 9),
            Err(Broken::Gap {
                expected: 3,
                found: 4
            })
        );
    }
}
