//! Produce on the leader (kafka.md 3.2 to 3.4): validate, append, and answer once the promise holds.
//!
//! acks=1 and acks=all wait for the same end while there is one replica. acks=0 waits too: its answer is never sent, but the request's credits are
//! given back with it, and a producer that asks for no answers must not fill the memory of a broker whose disk stands still.

use slab::Slab;
use smallvec::SmallVec;

use super::partitions::Partitions;
use super::state::{Partition, Waiter, WaitsFor};
use super::validate::{self, Checked};
use crate::base::error_code::ErrorCode;
use crate::base::ids::ReplyTo;
use crate::base::time::{Mono, Now};
use crate::effect::Outbox;
use crate::log::{AckAfter, AppendBatch, AppendRefused, Origin, TailCache};
use crate::metadata::TimestampType;
use crate::part::{Acks, Entries, Produce, ProduceEntry, ProduceErrors, Produced, Reply};

/// Kafka writes inside the request and starts the clock of acks=all after that. Our write is under way when the clock starts, so a timeout that is
/// meant for replicas ("do not wait for any", 0) gets the time that one write may take.
const TIMEOUT_MIN_MS: u64 = 1_000;

/// Requests that wait for at least one of their partitions.
#[derive(Default)]
pub(super) struct Produces {
    waiting: Slab<Waiting>,
    /// No later than the earliest deadline.
    scan_at: Option<Mono>,
}

struct Waiting {
    to: ReplyTo,
    /// The answer was given (timeout) or is not wanted any more; the entry stays until its partitions are done with it.
    answered: bool,
    outstanding: u32,
    /// acks=all only.
    deadline: Option<Mono>,
    /// Entries that wait stand here as they would be answered at the deadline: with REQUEST_TIMED_OUT.
    results: Entries<Produced>,
}

impl Produces {
    /// Entry `index` of request `key` is committed, or will never be.
    pub(super) fn finish(&mut self, key: u32, index: u32, code: ErrorCode, out: &mut Outbox) {
        let waiting = &mut self.waiting[key as usize];
        waiting.outstanding -= 1;
        if !waiting.answered {
            waiting.results[index as usize].code = code;
        }
        if waiting.outstanding == 0 {
            let waiting = self.waiting.remove(key as usize);
            if !waiting.answered {
                out.reply(
                    waiting.to,
                    Reply::Produce(without_offsets_of_errors(waiting.results)),
                );
            }
        }
    }

    pub(super) fn cancel(&mut self, to: ReplyTo) {
        if let Some((_, waiting)) = self
            .waiting
            .iter_mut()
            .find(|(_, waiting)| waiting.to == to)
        {
            waiting.answered = true;
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Mono> {
        self.scan_at
    }

    /// Answers what has waited too long with REQUEST_TIMED_OUT; the data stays (3.3 step 11).
    pub(super) fn expire(&mut self, now: Mono, out: &mut Outbox) {
        if self.scan_at.is_none_or(|at| at > now) {
            return;
        }
        self.scan_at = None;
        for (_, waiting) in &mut self.waiting {
            match waiting.deadline {
                Some(deadline) if !waiting.answered && deadline <= now => {
                    waiting.answered = true;
                    let results = std::mem::take(&mut waiting.results);
                    out.reply(
                        waiting.to,
                        Reply::Produce(without_offsets_of_errors(results)),
                    );
                }
                Some(deadline) if !waiting.answered => {
                    self.scan_at = Some(self.scan_at.map_or(deadline, |at| at.min(deadline)));
                }
                _ => {}
            }
        }
    }

    fn watch_deadline(&mut self, deadline: Mono) {
        self.scan_at = Some(self.scan_at.map_or(deadline, |at| at.min(deadline)));
    }
}

/// P-6: errors carry -1 for everything.
fn without_offsets_of_errors(mut results: Entries<Produced>) -> Entries<Produced> {
    for produced in &mut results {
        if produced.code.is_error() {
            (
                produced.base_offset,
                produced.log_append_time_ms,
                produced.log_start_offset,
            ) = (-1, -1, -1);
        }
    }
    results
}

/// The answer for an entry that was refused.
pub(super) fn refused(at: u32, code: ErrorCode, errors: Option<Box<ProduceErrors>>) -> Produced {
    Produced {
        at,
        code,
        base_offset: -1,
        log_append_time_ms: -1,
        log_start_offset: -1,
        errors,
    }
}

/// An entry that is in the log, or was already.
pub(super) struct Appended {
    pub(super) base_offset: i64,
    /// Everything below has to be committed before the entry is answered.
    pub(super) end: i64,
    log_append_time_ms: i64,
    log_start_offset: i64,
}

struct Refusal {
    code: ErrorCode,
    errors: Option<Box<ProduceErrors>>,
}

impl From<ErrorCode> for Refusal {
    fn from(code: ErrorCode) -> Refusal {
        Refusal { code, errors: None }
    }
}

impl Partitions {
    pub fn produce(&mut self, now: Now, to: ReplyTo, produce: Produce, out: &mut Outbox) {
        let Produce {
            acks,
            timeout_ms,
            zstd,
            entries,
        } = produce;
        let key = self.produces.waiting.vacant_key() as u32;
        let mut results = Entries::<Produced>::with_capacity(entries.len());
        let mut touched = SmallVec::<[u32; 4]>::new();
        for (index, entry) in (0_u32..).zip(entries) {
            let at = entry.at;
            let slot = self.by_id.get(&entry.partition.id).copied();
            let outcome = self.append_entry(now, slot, entry, acks, zstd, out);
            results.push(match (outcome, slot) {
                (Ok(appended), Some(slot)) => {
                    self.wait_for(slot, &appended, WaitsFor::Produce { key, index });
                    touched.push(slot);
                    Produced {
                        at,
                        code: ErrorCode::REQUEST_TIMED_OUT,
                        base_offset: appended.base_offset,
                        log_append_time_ms: appended.log_append_time_ms,
                        log_start_offset: appended.log_start_offset,
                        errors: None,
                    }
                }
                (Ok(_), None) => refused(at, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, None),
                (Err(refusal), _) => refused(at, refusal.code, refusal.errors),
            });
        }
        if touched.is_empty() {
            out.reply(to, Reply::Produce(results));
            return;
        }
        let deadline = (acks == Acks::All)
            .then(|| now.mono.after_ms(u64::from(timeout_ms).max(TIMEOUT_MIN_MS)));
        let outstanding = touched.len() as u32;
        self.produces.waiting.insert(Waiting {
            to,
            answered: false,
            outstanding,
            deadline,
            results,
        });
        if let Some(deadline) = deadline {
            self.produces.watch_deadline(deadline);
        }
        for slot in touched {
            // A duplicate of something that is committed already is answered here.
            self.settle(now, slot, out);
        }
    }

    fn append_entry(
        &mut self,
        now: Now,
        slot: Option<u32>,
        entry: ProduceEntry,
        acks: Acks,
        zstd: bool,
        out: &mut Outbox,
    ) -> Result<Appended, Refusal> {
        let stopping = self.is_stopping();
        let partition = slot.and_then(|slot| self.slots[slot as usize].as_deref_mut());
        let partition = partition.ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        if stopping {
            return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER.into());
        }
        partition.log()?;
        if acks == Acks::All && !partition.leadership.enough_in_sync() {
            return Err(ErrorCode::NOT_ENOUGH_REPLICAS.into());
        }
        let checked =
            validate::client_batch(now, &partition.leadership.config, entry.records, zstd)
                .map_err(|invalid| Refusal {
                    code: invalid.code,
                    errors: invalid.errors,
                })?;
        Ok(append(
            now,
            partition,
            checked,
            Origin::Client,
            &mut self.tail,
            out,
        )?)
    }

    fn wait_for(&mut self, slot: u32, appended: &Appended, who: WaitsFor) {
        if let Some(partition) = self.slots[slot as usize].as_deref_mut() {
            partition.wait(Waiter {
                end: appended.end,
                who,
            });
        }
    }
}

/// Steps 7 to 10 of 3.3: the log gives offsets, checks the producer and asks for the write. A duplicate waits for its original (I-2).
pub(super) fn append(
    now: Now,
    partition: &mut Partition,
    batch: Checked,
    origin: Origin,
    tail: &mut TailCache,
    out: &mut Outbox,
) -> Result<Appended, ErrorCode> {
    let leader_epoch = partition.leadership.leader_epoch;
    let append_time = partition.leadership.config.timestamp_type == TimestampType::LogAppendTime;
    let has_watchers = !partition.watchers.is_empty();
    let log = partition.log()?;
    if has_watchers {
        log.follow(now);
    }
    let batch = AppendBatch {
        bytes: batch.bytes,
        header: batch.header,
        leader_epoch,
        origin,
    };
    let outcome = log.append(now, &batch, tail, out);
    let log_start_offset = log.log_start();
    let (base_offset, end, time_ms) = match outcome {
        Ok(appended) => {
            if appended.ack_after == AckAfter::Synced {
                partition
                    .to_sync
                    .push_back((appended.base_offset, appended.end));
            }
            (appended.base_offset, appended.end, appended.append_time_ms)
        }
        Err(AppendRefused::Duplicate {
            base_offset,
            last_offset,
            timestamp_ms,
        }) => (base_offset, last_offset + 1, timestamp_ms),
        Err(AppendRefused::OutOfOrderSequence) => {
            return Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
        }
        Err(AppendRefused::InvalidProducerEpoch) => return Err(ErrorCode::INVALID_PRODUCER_EPOCH),
        Err(AppendRefused::InvalidTxnState) => return Err(ErrorCode::INVALID_TXN_STATE),
        Err(AppendRefused::RecordListTooLarge) => return Err(ErrorCode::RECORD_LIST_TOO_LARGE),
        Err(AppendRefused::CoordinatorFenced) => {
            return Err(ErrorCode::TRANSACTION_COORDINATOR_FENCED);
        }
        Err(AppendRefused::Offline) => return Err(ErrorCode::KAFKA_STORAGE_ERROR),
    };
    let log_append_time_ms = if append_time { time_ms } else { -1 };
    Ok(Appended {
        base_offset,
        end,
        log_append_time_ms,
        log_start_offset,
    })
}
