//! Fetch on the leader (kafka.md 4.1), in two rounds: peek (how much is there?) and collect (hand it over).

use slab::Slab;

use super::partitions::Partitions;
use super::state::Partition;
use super::ticket::Ticket;
use crate::base::error_code::ErrorCode;
use crate::base::ids::ReplyTo;
use crate::base::time::Now;
use crate::effect::{Chunks, Outbox};
use crate::log::{Log, ReadOutcome, ReadRequest, TailCache};
use crate::part::{
    Entries, FetchCollect, FetchEntry, FetchGrant, FetchPeek, FetchPeeked, Fetched, Isolation,
    Reply,
};

/// Why a partition gives no records to an entry.
enum Unreadable {
    Error(ErrorCode),
    /// (epoch, end offset): the client's log went another way (F-8).
    Diverging(i32, i64),
}

impl From<ErrorCode> for Unreadable {
    fn from(code: ErrorCode) -> Unreadable {
        Unreadable::Error(code)
    }
}

/// Checks everything that can be wrong with an entry: state, leader epoch (F-7), the client's last epoch (F-8), offset (F-5).
fn readable<'a>(partition: &'a Partition, entry: &FetchEntry) -> Result<&'a Log, Unreadable> {
    let log = partition.peek_log()?;
    partition.check_epoch(entry.current_leader_epoch)?;
    if entry.offset < log.log_start() || entry.offset > log.log_end() {
        return Err(ErrorCode::OFFSET_OUT_OF_RANGE.into());
    }
    if entry.last_fetched_epoch >= 0 {
        let (epoch, end) = log.epoch_end(entry.last_fetched_epoch);
        if epoch < 0 || end < 0 {
            return Err(ErrorCode::OFFSET_OUT_OF_RANGE.into());
        }
        if epoch < entry.last_fetched_epoch || end < entry.offset {
            return Err(Unreadable::Diverging(epoch, end));
        }
    }
    Ok(log)
}

/// How much there is for `entry`. What can't be read is found again, and named, by the collect that follows.
pub(super) fn peek(
    partition: Option<&Partition>,
    entry: &FetchEntry,
    isolation: Isolation,
    tail: &TailCache,
) -> FetchPeeked {
    let nothing = FetchPeeked {
        at: entry.at,
        available: 0,
        immediate: true,
    };
    let Some(partition) = partition else {
        return nothing;
    };
    match readable(partition, entry) {
        Ok(log) => {
            let available = log.available(
                entry.offset,
                partition.bound(log, isolation),
                entry.max_bytes,
                tail,
            );
            FetchPeeked {
                at: entry.at,
                available: available.bytes,
                immediate: available.older_segment,
            }
        }
        Err(_) => nothing,
    }
}

/// Collects of which at least one partition is being read from disk.
#[derive(Default)]
pub(super) struct Collects {
    waiting: Slab<Waiting>,
}

struct Waiting {
    to: ReplyTo,
    cancelled: bool,
    outstanding: u32,
    results: Entries<Fetched>,
}

impl Collects {
    pub(super) fn finish(
        &mut self,
        key: u32,
        index: u32,
        records: Result<Chunks, ErrorCode>,
        out: &mut Outbox,
    ) {
        let waiting = &mut self.waiting[key as usize];
        waiting.outstanding -= 1;
        let fetched = &mut waiting.results[index as usize];
        match records {
            Ok(records) => fetched.records = records,
            Err(code) => *fetched = Fetched::error(fetched.at, code),
        }
        if waiting.outstanding == 0 {
            let waiting = self.waiting.remove(key as usize);
            if !waiting.cancelled {
                out.reply(waiting.to, Reply::FetchCollect(waiting.results));
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

impl Partitions {
    pub fn fetch_peek(&mut self, now: Now, to: ReplyTo, round: FetchPeek, out: &mut Outbox) {
        let watch = round
            .watch
            .then(|| self.watches.open(to, round.isolation, round.wake_bytes));
        let mut peeked = Entries::with_capacity(round.entries.len());
        for entry in round.entries {
            let slot = self.by_id.get(&entry.partition.id).copied();
            let mut partition = slot.and_then(|slot| self.slots[slot as usize].as_deref_mut());
            if let Some(Ok(log)) = partition.as_deref_mut().map(Partition::log) {
                log.follow(now);
            }
            let result = peek(partition.as_deref(), &entry, round.isolation, &self.tail);
            if let (Some(key), Some(slot), Some(partition)) = (watch, slot, partition) {
                self.watches
                    .add(key, slot, partition, entry, result.available);
            }
            peeked.push(result);
        }
        out.reply(to, Reply::FetchPeek(peeked));
    }

    pub fn fetch_collect(&mut self, now: Now, to: ReplyTo, round: FetchCollect, out: &mut Outbox) {
        let key = self.collects.waiting.vacant_key() as u32;
        let mut results = Entries::with_capacity(round.entries.len());
        let mut outstanding = 0;
        for (index, grant) in (0_u32..).zip(&round.entries) {
            let ticket = Ticket::Collect { key, index }.pack();
            let (fetched, pending) = self.collect_entry(now, grant, round.isolation, ticket, out);
            results.push(fetched);
            outstanding += u32::from(pending);
        }
        if outstanding == 0 {
            out.reply(to, Reply::FetchCollect(results));
        } else {
            self.collects.waiting.insert(Waiting {
                to,
                cancelled: false,
                outstanding,
                results,
            });
        }
    }

    /// What one partition gives, and whether its records are still to come.
    fn collect_entry(
        &mut self,
        now: Now,
        grant: &FetchGrant,
        isolation: Isolation,
        ticket: u64,
        out: &mut Outbox,
    ) -> (Fetched, bool) {
        let entry = &grant.entry;
        let slot = self.by_id.get(&entry.partition.id).copied();
        let Some((slot, partition)) =
            slot.and_then(|slot| Some((slot, self.slots[slot as usize].as_deref_mut()?)))
        else {
            return (
                Fetched::error(entry.at, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
                false,
            );
        };
        let mut fetched = match describe(partition, entry, isolation) {
            Ok(fetched) => fetched,
            Err(Unreadable::Error(code)) => return (Fetched::error(entry.at, code), false),
            Err(Unreadable::Diverging(epoch, end)) => {
                let mut fetched = Fetched::error(entry.at, ErrorCode::NONE);
                fetched.diverging = Some((epoch, end));
                return (fetched, false);
            }
        };
        let bound = match isolation {
            Isolation::ReadUncommitted => fetched.high_watermark,
            Isolation::ReadCommitted => fetched.last_stable_offset,
        };
        let max_bytes = grant.bytes.min(entry.max_bytes);
        if entry.offset >= bound || (max_bytes == 0 && !grant.at_least_one) {
            return (fetched, false);
        }
        let log = match partition.log() {
            Ok(log) => log,
            Err(code) => return (Fetched::error(entry.at, code), false),
        };
        let request = ReadRequest {
            offset: entry.offset,
            bound,
            max_bytes,
            at_least_one: grant.at_least_one,
        };
        let outcome = log.read(request, ticket, &self.tail, out);
        let pending = match outcome {
            ReadOutcome::Ready(records) => {
                fetched.records = records;
                false
            }
            ReadOutcome::Pending => {
                partition.reads.push(ticket);
                true
            }
            ReadOutcome::OutOfRange => {
                fetched = Fetched::error(entry.at, ErrorCode::OFFSET_OUT_OF_RANGE);
                false
            }
            ReadOutcome::Offline => {
                fetched = Fetched::error(entry.at, ErrorCode::KAFKA_STORAGE_ERROR);
                false
            }
        };
        self.settle(now, slot, out);
        (fetched, pending)
    }
}

/// Everything of an answer but the records (F-6).
fn describe(
    partition: &Partition,
    entry: &FetchEntry,
    isolation: Isolation,
) -> Result<Fetched, Unreadable> {
    let log = readable(partition, entry)?;
    let last_stable_offset = log.last_stable_offset(partition.high_watermark);
    let aborted = match isolation {
        Isolation::ReadUncommitted => None,
        Isolation::ReadCommitted => {
            Some(log.aborted_transactions(entry.offset, last_stable_offset))
        }
    };
    Ok(Fetched {
        at: entry.at,
        code: ErrorCode::NONE,
        high_watermark: partition.high_watermark,
        last_stable_offset,
        log_start_offset: log.log_start(),
        diverging: None,
        aborted,
        records: Chunks::new(),
    })
}
