//! Questions that change nothing: ListOffsets (kafka.md 4.3), epoch ends (4.4), producers, sizes.
//!
//! Not here: 78 OFFSET_NOT_AVAILABLE, which only a leader gives whose watermark a follower holds back.

use slab::Slab;

use super::partitions::Partitions;
use super::state::Partition;
use super::ticket::Ticket;
use crate::base::error_code::ErrorCode;
use crate::base::ids::{ReplyTo, TopicPartition};
use crate::base::time::Now;
use crate::effect::Outbox;
use crate::log::{TimeOffset, TimeOutcome, TimeTarget};
use crate::part::{
    DescribedLog, DescribedProducer, DescribedProducers, EpochEnd, EpochEnded, ListOffset,
    ListedOffset, PartitionRef, Reply,
};

/// ListOffsets requests of which at least one time is still searched for.
#[derive(Default)]
pub(super) struct Lists {
    waiting: Slab<Waiting>,
}

struct Waiting {
    to: ReplyTo,
    cancelled: bool,
    outstanding: u32,
    results: Vec<ListedOffset>,
}

type Found = Option<TimeOffset>;

impl Lists {
    pub(super) fn finish(
        &mut self,
        key: u32,
        index: u32,
        found: Result<Found, ErrorCode>,
        out: &mut Outbox,
    ) {
        let waiting = &mut self.waiting[key as usize];
        waiting.outstanding -= 1;
        let listed = &mut waiting.results[index as usize];
        *listed = answer(listed.at, found);
        if waiting.outstanding == 0 {
            let waiting = self.waiting.remove(key as usize);
            if !waiting.cancelled {
                out.reply(waiting.to, Reply::ListOffsets(waiting.results));
            }
        }
    }

    pub(super) fn cancel(&mut self, to: ReplyTo) {
        if let Some((_, waiting)) = self
            .waiting
            .iter_mut()
            .find(|(_, waiting)| waiting.to == to)
        {
            waiting.cancelled = true;
        }
    }
}

fn answer(at: u32, found: Result<Found, ErrorCode>) -> ListedOffset {
    let nothing = TimeOffset {
        offset: -1,
        timestamp: -1,
        leader_epoch: -1,
    };
    let (code, found) = match found {
        Ok(found) => (ErrorCode::NONE, found.unwrap_or(nothing)),
        Err(code) => (code, nothing),
    };
    ListedOffset {
        at,
        code,
        timestamp: found.timestamp,
        offset: found.offset,
        leader_epoch: found.leader_epoch,
    }
}

/// The special timestamps of kafka.md 4.3.
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;

impl Partitions {
    pub fn list_offsets(
        &mut self,
        now: Now,
        to: ReplyTo,
        entries: Vec<ListOffset>,
        out: &mut Outbox,
    ) {
        let key = self.lists.waiting.vacant_key() as u32;
        let mut results = Vec::with_capacity(entries.len());
        let mut outstanding = 0;
        for (index, entry) in (0_u32..).zip(&entries) {
            let ticket = Ticket::List { key, index }.pack();
            let found = self.list_offset(now, entry, ticket, out);
            outstanding += u32::from(found.is_none());
            results.push(answer(entry.at, found.unwrap_or(Ok(None))));
        }
        if outstanding == 0 {
            out.reply(to, Reply::ListOffsets(results));
        } else {
            self.lists.waiting.insert(Waiting {
                to,
                cancelled: false,
                outstanding,
                results,
            });
        }
    }

    /// `None`: the log will finish the ticket.
    fn list_offset(
        &mut self,
        now: Now,
        entry: &ListOffset,
        ticket: u64,
        out: &mut Outbox,
    ) -> Option<Result<Found, ErrorCode>> {
        let Some(&slot) = self.by_id.get(&entry.partition.id) else {
            return Some(Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
        };
        let Some(partition) = self.slots[slot as usize].as_deref_mut() else {
            return Some(Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
        };
        let bound = match partition.peek_log().and_then(|log| {
            partition
                .check_epoch(entry.current_leader_epoch)
                .map(|()| log)
        }) {
            Ok(log) => partition.bound(log, entry.isolation),
            Err(code) => return Some(Err(code)),
        };
        let leader_epoch = partition.leader_epoch();
        let log = match partition.log() {
            Ok(log) => log,
            Err(code) => return Some(Err(code)),
        };
        let query = match entry.timestamp {
            LATEST => {
                return Some(Ok(Some(TimeOffset {
                    offset: bound,
                    timestamp: -1,
                    leader_epoch,
                })));
            }
            // Nothing is tiered: what is local is everything, and all of it would still have to be uploaded.
            EARLIEST | EARLIEST_LOCAL | EARLIEST_PENDING_UPLOAD => {
                let start = log.log_start();
                return Some(Ok(Some(TimeOffset {
                    offset: start,
                    timestamp: -1,
                    leader_epoch: log.epoch_of(start),
                })));
            }
            LATEST_TIERED => return Some(Ok(None)),
            MAX_TIMESTAMP => TimeTarget::Largest,
            timestamp if timestamp >= 0 => TimeTarget::AtOrAfter(timestamp),
            _ => return Some(Err(ErrorCode::UNSUPPORTED_VERSION)),
        };
        let outcome = log.find_by_time(query, bound, ticket, &self.tail, out);
        let found = match outcome {
            TimeOutcome::Ready(found) => Some(Ok(found)),
            TimeOutcome::Pending => {
                partition.reads.push(ticket);
                None
            }
            TimeOutcome::Offline => Some(Err(ErrorCode::KAFKA_STORAGE_ERROR)),
        };
        self.settle(now, slot, out);
        found
    }

    pub fn epoch_ends(&self, to: ReplyTo, entries: &[EpochEnd], out: &mut Outbox) {
        let ended = entries.iter().map(|entry| {
            let (code, (epoch, end_offset)) = match self.epoch_end(entry) {
                Ok(end) => (ErrorCode::NONE, end),
                Err(code) => (code, (-1, -1)),
            };
            EpochEnded {
                at: entry.at,
                code,
                epoch,
                end_offset,
            }
        });
        out.reply(to, Reply::EpochEnd(ended.collect()));
    }

    fn epoch_end(&self, entry: &EpochEnd) -> Result<(i32, i64), ErrorCode> {
        let partition = self
            .get(entry.partition.id)
            .ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        let log = partition.peek_log()?;
        partition.check_epoch(entry.current_leader_epoch)?;
        Ok(log.epoch_end(entry.epoch))
    }

    pub fn describe_producers(
        &self,
        to: ReplyTo,
        entries: &[(u32, PartitionRef)],
        out: &mut Outbox,
    ) {
        let described =
            entries
                .iter()
                .map(|&(at, partition)| match self.producers_of(partition.id) {
                    Ok(producers) => DescribedProducers {
                        at,
                        code: ErrorCode::NONE,
                        producers,
                    },
                    Err(code) => DescribedProducers {
                        at,
                        code,
                        producers: Vec::new(),
                    },
                });
        out.reply(to, Reply::DescribeProducers(described.collect()));
    }

    fn producers_of(&self, id: TopicPartition) -> Result<Vec<DescribedProducer>, ErrorCode> {
        let partition = self.get(id).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        Ok(partition.peek_log()?.producers())
    }

    /// Sizes of the named partitions, or of all; those that are not online are left out.
    pub fn describe_logs(&self, to: ReplyTo, named: Option<&[TopicPartition]>, out: &mut Outbox) {
        let described = match named {
            Some(named) => named
                .iter()
                .filter_map(|id| describe_log(self.get(*id)?))
                .collect(),
            None => self
                .slots
                .iter()
                .flatten()
                .filter_map(|partition| describe_log(partition))
                .collect(),
        };
        out.reply(to, Reply::DescribeLogs(described));
    }
}

fn describe_log(partition: &Partition) -> Option<DescribedLog> {
    let log = partition.online()?;
    Some(DescribedLog {
        log: partition.id(),
        size_bytes: log.size_bytes(),
        log_end: log.log_end(),
        log_start: log.log_start(),
        high_watermark: partition.high_watermark(),
        segments: log.segment_count(),
    })
}
