//! Produce (key 0), versions 3 to 13. v5 log start offset, v7 zstd, v8 record errors, v9 flexible, v10 leader hints, v13 topic ids.
//!
//! The request is read by a cursor and the response written straight into the buffer: nothing is allocated for a request of one partition.

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::ids::ShardId;
use corelog_shards::base::time::Mono;
use corelog_shards::metadata::is_internal;
use corelog_shards::part::{
    Acks, Entries, Part, PartitionRef, Produce, ProduceEntry, Produced, Reply,
};
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::produce_cursor::ProduceCursor;
use corelog_wire::messages::produce_writer::{
    ProduceResponseWriter, ProducedPartition, RecordError,
};
use corelog_wire::messages::topic_ref::TopicRef;
use corelog_wire::primitives::{DecodeError, Reader};
use smallvec::SmallVec;

use super::resolve::{self, Leaders};
use super::{Answer, Context, Joins, Parts, Split, Step};

/// From here on zstd is allowed (P-2).
const ZSTD_FROM: i16 = 7;
/// The client that may write to internal topics (P-4).
const ADMIN_CLIENT: &str = "__admin_client";

pub fn split(
    cx: &Context<'_>,
    header: &RequestHeader,
    body: Bytes,
    parts: &mut Parts,
    answer: &mut Answer<'_>,
) -> Result<Split, DecodeError> {
    let cursor = ProduceCursor::parse(Reader::new(body), header.api_version)?;
    let acks = match cursor.acks() {
        0 => Some(Acks::None),
        1 => Some(Acks::Leader),
        -1 => Some(Acks::All),
        _ => None,
    };
    let mut results = Entries::with_capacity(cursor.partition_count());
    let first = parts.len();
    for (at, partition) in (0_u32..).zip(cursor.partitions()) {
        let owner = match acks {
            Some(_) => owner(cx, header, partition.topic, partition.index),
            None => Err(ErrorCode::INVALID_REQUIRED_ACKS),
        };
        let code = match (owner, acks) {
            (Ok((shard, partition_ref)), Some(acks)) => {
                let entry = ProduceEntry {
                    at,
                    partition: partition_ref,
                    records: partition.records,
                };
                cut(header, &cursor, acks, shard, entry, parts, first);
                ErrorCode::REQUEST_TIMED_OUT
            }
            (Ok(_), None) => ErrorCode::INVALID_REQUIRED_ACKS,
            (Err(code), _) => code,
        };
        results.push(Produced {
            at,
            code,
            base_offset: -1,
            log_append_time_ms: -1,
            log_start_offset: -1,
            errors: None,
        });
    }
    let mut pending = Pending {
        header: header.clone(),
        cursor,
        results,
        outstanding: parts.len() - first,
    };
    if pending.outstanding > 0 {
        return Ok(Split::Wait(super::Pending::Produce(pending)));
    }
    Ok(match pending.finish(cx, answer) {
        Step::Silent => Split::Silent,
        Step::Close => Split::Close("a produce without acknowledgement failed"),
        Step::Done | Step::Wait | Step::Again => Split::Ready,
    })
}

fn owner(
    cx: &Context<'_>,
    header: &RequestHeader,
    named: TopicRef<'_>,
    partition: i32,
) -> Result<(ShardId, PartitionRef), ErrorCode> {
    let topic = resolve::topic(cx.image, named)?;
    let owner = resolve::leader(cx, topic, partition)?;
    let is_admin = header.client_id.as_deref() == Some(ADMIN_CLIENT);
    if is_internal(&topic.name) && !is_admin {
        return Err(ErrorCode::INVALID_TOPIC_EXCEPTION);
    }
    Ok(owner)
}

/// Adds an entry to its owner's part.
fn cut(
    header: &RequestHeader,
    cursor: &ProduceCursor,
    acks: Acks,
    shard: ShardId,
    entry: ProduceEntry,
    parts: &mut Parts,
    first: usize,
) {
    for (owner, part) in &mut parts[first..] {
        if let (true, Part::Produce(produce)) = (*owner == shard, part) {
            produce.entries.push(entry);
            return;
        }
    }
    let mut entries = Entries::new();
    entries.push(entry);
    let timeout_ms = cursor.timeout_ms().max(0).unsigned_abs();
    parts.push((
        shard,
        Part::Produce(Produce {
            acks,
            timeout_ms,
            zstd: header.api_version >= ZSTD_FROM,
            entries,
        }),
    ));
}

/// A Produce whose parts are out. Never parked: it keeps its credits until its bytes are written, so that a disk that stands still stops the sockets.
pub struct Pending {
    header: RequestHeader,
    cursor: ProduceCursor,
    /// In the order of the request; what is not answered yet stands as timed out.
    results: Entries<Produced>,
    outstanding: usize,
}

impl Joins for Pending {
    fn on_reply(
        &mut self,
        cx: &Context<'_>,
        _part: usize,
        reply: Reply,
        _parts: &mut Parts,
        answer: &mut Answer<'_>,
    ) -> Step {
        let Reply::Produce(produced) = reply else {
            return Step::Wait;
        };
        for produced in produced {
            let at = produced.at as usize;
            self.results[at] = produced;
        }
        self.outstanding -= 1;
        if self.outstanding > 0 {
            Step::Wait
        } else {
            self.finish(cx, answer)
        }
    }

    /// The owners keep the time: an append that has begun can't be called back.
    fn deadline(&self) -> Option<Mono> {
        None
    }

    fn on_deadline(
        &mut self,
        _cx: &Context<'_>,
        _parts: &mut Parts,
        _answer: &mut Answer<'_>,
    ) -> Step {
        Step::Wait
    }
}

impl Pending {
    fn finish(&mut self, cx: &Context<'_>, answer: &mut Answer<'_>) -> Step {
        if self.cursor.acks() == 0 {
            // P-1: closing the connection is the only way to tell.
            let failed = self.results.iter().any(|produced| produced.code.is_error());
            return if failed { Step::Close } else { Step::Silent };
        }
        let (cursor, results, version) = (&self.cursor, &self.results, self.header.api_version);
        answer.write(&self.header, |out| {
            let mut leaders = Leaders::default();
            let mut writer = ProduceResponseWriter::begin(out, version, cursor.topic_count());
            let mut topic_position = None;
            for (partition, produced) in cursor.partitions().zip(results) {
                if topic_position != Some(partition.topic_position) {
                    topic_position = Some(partition.topic_position);
                    writer.topic(partition.topic, partition.partitions_of_topic);
                }
                let record_errors = record_errors(produced);
                let message = produced
                    .errors
                    .as_ref()
                    .and_then(|errors| errors.message.as_deref());
                writer.partition(&ProducedPartition {
                    index: partition.index,
                    error_code: produced.code.0,
                    base_offset: produced.base_offset,
                    log_append_time_ms: produced.log_append_time_ms,
                    log_start_offset: produced.log_start_offset,
                    record_errors: &record_errors,
                    error_message: message,
                    current_leader: leaders.of(
                        cx.image,
                        partition.topic,
                        partition.index,
                        produced.code,
                    ),
                });
            }
            writer.finish(0, &leaders.endpoints(cx));
        });
        Step::Done
    }
}

fn record_errors(produced: &Produced) -> SmallVec<[RecordError<'_>; 1]> {
    let errors = produced.errors.iter().flat_map(|errors| &errors.records);
    errors
        .map(|(batch_index, message)| RecordError {
            batch_index: *batch_index,
            message: message.as_deref(),
        })
        .collect()
}
