//! What a coordinator of this shard does with a partition: append its own records with the promise of acks=all, and read them back to load its state.
//!
//! The coordinator gives each call a ticket and gets an [`InternalDone`] with it from [`Partitions::take_internal`] (the shard asks after every
//! event). Tickets are the coordinator's own, below 2^62. An append that is refused at once finishes the same way.

use bytes::Bytes;

use super::partitions::Partitions;
use super::produce;
use super::state::{Waiter, WaitsFor};
use super::ticket::Ticket;
use super::validate;
use crate::base::error_code::ErrorCode;
use crate::base::ids::TopicPartition;
use crate::base::time::Now;
use crate::effect::{Chunks, Outbox};
use crate::log::{Origin, ReadOutcome, ReadRequest};

/// Something that a coordinator asked for is finished.
#[derive(Debug)]
pub enum InternalDone {
    /// Committed: (base offset, exclusive end); or why it never will be (kafka.md G-4 says what groups make of the code).
    Appended {
        ticket: u64,
        result: Result<(i64, i64), ErrorCode>,
    },
    /// Whole batches from the offset that was asked for; empty at the end.
    Read {
        ticket: u64,
        result: Result<Chunks, ErrorCode>,
    },
}

impl Partitions {
    /// Appends one batch built by a coordinator. Its offset is known at once, so that state can be applied before the commit; the commit comes with
    /// the ticket.
    pub fn append_internal(
        &mut self,
        now: Now,
        id: TopicPartition,
        batch: Bytes,
        ticket: u64,
        out: &mut Outbox,
    ) -> Result<i64, ErrorCode> {
        let appended = self.try_append_internal(now, id, batch, ticket, out);
        if let Err(code) = appended {
            self.internal.push(InternalDone::Appended {
                ticket,
                result: Err(code),
            });
        }
        appended
    }

    fn try_append_internal(
        &mut self,
        now: Now,
        id: TopicPartition,
        batch: Bytes,
        ticket: u64,
        out: &mut Outbox,
    ) -> Result<i64, ErrorCode> {
        if self.is_stopping() {
            return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        }
        let slot = *self
            .by_id
            .get(&id)
            .ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        let partition = self.slots[slot as usize]
            .as_deref_mut()
            .ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        partition.peek_log()?;
        if !partition.leadership.enough_in_sync() {
            return Err(ErrorCode::NOT_ENOUGH_REPLICAS);
        }
        let checked = validate::own_batch(&partition.leadership.config, batch)?;
        let appended = produce::append(
            now,
            partition,
            checked,
            Origin::Coordinator,
            &mut self.tail,
            out,
        )?;
        let base_offset = appended.base_offset;
        partition.wait(Waiter {
            end: appended.end,
            who: WaitsFor::Internal {
                ticket,
                base_offset,
            },
        });
        self.settle(now, slot, out);
        Ok(base_offset)
    }

    /// Reads whole batches from `offset`, or from the log's start if that is later, up to the log's end (G-3: a coordinator loads what its leader's log holds).
    pub fn read_internal(
        &mut self,
        now: Now,
        id: TopicPartition,
        offset: i64,
        max_bytes: u32,
        ticket: u64,
        out: &mut Outbox,
    ) {
        let result = self.try_read_internal(now, id, offset, max_bytes, ticket, out);
        if let Some(result) = result.transpose() {
            self.internal.push(InternalDone::Read { ticket, result });
        }
    }

    fn try_read_internal(
        &mut self,
        now: Now,
        id: TopicPartition,
        offset: i64,
        max_bytes: u32,
        ticket: u64,
        out: &mut Outbox,
    ) -> Result<Option<Chunks>, ErrorCode> {
        let slot = *self
            .by_id
            .get(&id)
            .ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        let partition = self.slots[slot as usize]
            .as_deref_mut()
            .ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        let log = partition.log()?;
        let request = ReadRequest {
            offset: offset.max(log.log_start()),
            bound: log.log_end(),
            max_bytes,
            at_least_one: true,
        };
        if request.offset == request.bound {
            return Ok(Some(Chunks::new()));
        }
        let ticket = Ticket::Internal(ticket).pack();
        let chunks = match log.read(request, ticket, &self.tail, out) {
            ReadOutcome::Ready(chunks) => Some(chunks),
            ReadOutcome::Pending => {
                partition.reads.push(ticket);
                None
            }
            ReadOutcome::Offline => return Err(ErrorCode::KAFKA_STORAGE_ERROR),
            ReadOutcome::OutOfRange => return Err(ErrorCode::OFFSET_OUT_OF_RANGE),
        };
        self.settle(now, slot, out);
        Ok(chunks)
    }
}
