//! Finding an offset by time (kafka.md 4.3): the first segment with a timestamp as late, its time index, its offset index, then batch by
//! batch, and inside the batch record by record.

use bytes::Bytes;
use corelog_wire::batch::offset_for_timestamp;

use super::partition_log::{Log, State};
use super::read::{Finished, Job, Lookup, Next, ReadFailed, Task};
use super::scan::{Scan, Scanned};
use super::tail_cache::TailCache;
use super::time_index;
use crate::base::ids::FileKind;
use crate::effect::Outbox;

/// A record that was found by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeOffset {
    pub offset: i64,
    pub timestamp: i64,
    /// -1 if it is not known.
    pub leader_epoch: i32,
}

/// `None`: there is no such record below the bound.
pub type Found = Option<TimeOffset>;

/// What is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeTarget {
    /// The first record with this timestamp or a later one.
    AtOrAfter(i64),
    /// The first record with the largest timestamp.
    Largest,
}

#[derive(Debug)]
pub enum TimeOutcome {
    Ready(Found),
    /// The result comes with [`super::Progress::reads`].
    Pending,
    /// The disk failed.
    Offline,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct TimeSearch {
    timestamp: i64,
    bound: i64,
}

impl Log {
    /// Looks for a record by its timestamp, below `bound`.
    pub fn find_by_time(
        &mut self,
        target: TimeTarget,
        bound: i64,
        ticket: u64,
        tail: &TailCache,
        out: &mut Outbox,
    ) -> TimeOutcome {
        if self.state == State::Failed {
            return TimeOutcome::Offline;
        }
        let Some((timestamp, base)) = self.first_segment_with(target) else {
            return TimeOutcome::Ready(None);
        };
        let task = Task::Time(TimeSearch { timestamp, bound });
        match self.start_job(task, base, ticket, tail, out) {
            None => TimeOutcome::Pending,
            Some(Finished::Time(Ok(found))) => TimeOutcome::Ready(found),
            Some(Finished::Time(Err(ReadFailed::Storage))) => TimeOutcome::Offline,
            Some(Finished::Time(Err(ReadFailed::OutOfRange)) | Finished::Read(_)) => {
                TimeOutcome::Ready(None)
            }
        }
    }

    /// The timestamp to look for, and the first segment that has one as late.
    fn first_segment_with(&self, target: TimeTarget) -> Option<(i64, i64)> {
        let sealed = self
            .sealed
            .iter()
            .map(|segment| (segment.max_timestamp, segment.base));
        let mut all = sealed.chain([(self.active.max_timestamp, self.active.base)]);
        match target {
            TimeTarget::AtOrAfter(timestamp) => all
                .find(|(largest, _)| *largest >= timestamp)
                .map(|(_, base)| (timestamp, base)),
            TimeTarget::Largest => all
                .filter(|(largest, _)| *largest >= 0)
                .reduce(|best, next| if next.0 > best.0 { next } else { best }),
        }
    }

    pub(super) fn time_position(
        &mut self,
        job: &Job,
        search: TimeSearch,
        out: &mut Outbox,
    ) -> Lookup<u64> {
        let entry = if job.base == self.active.base {
            time_index::floor(&self.active.time_index, search.timestamp)
        } else {
            match self.mapped(job, FileKind::TimeIndex, out) {
                Lookup::Known(bytes) => time_index::floor(&bytes, search.timestamp),
                Lookup::Fetching => return Lookup::Fetching,
            }
        };
        let offset = job.base + entry.map_or(0, |entry| i64::from(entry.relative_offset));
        self.offset_position(job, offset.max(self.log_start), out)
    }

    pub(super) fn search_batches(
        &mut self,
        job: &mut Job,
        search: TimeSearch,
        bytes: &Bytes,
    ) -> Next {
        let position = job.position.unwrap_or(0);
        let mut scan = Scan::new(bytes);
        loop {
            let (at, header) = match scan.next() {
                Scanned::Batch { at, header } => (at, header),
                Scanned::Cut { at, needs } => return job.go_on_at(position + at as u64, needs),
                Scanned::Nonsense => return Next::Finished(job.task.failed(ReadFailed::Storage)),
            };
            if header.base_offset >= search.bound {
                return Next::Finished(Finished::Time(Ok(None)));
            }
            let may_hold =
                header.max_timestamp >= search.timestamp && header.last_offset() >= self.log_start;
            if !may_hold {
                continue;
            }
            let end = at + header.total_len();
            if end > bytes.len() {
                return job.go_on_at(position + at as u64, header.total_len() as u64);
            }
            let batch = &bytes[at..end];
            match offset_for_timestamp(batch, search.timestamp, self.log_start) {
                Ok(None) => {}
                Ok(Some(record)) => {
                    let found = TimeOffset {
                        offset: record.offset,
                        timestamp: record.timestamp_ms,
                        leader_epoch: header.partition_leader_epoch,
                    };
                    let found = Some(found).filter(|found| found.offset < search.bound);
                    return Next::Finished(Finished::Time(Ok(found)));
                }
                Err(error) => {
                    // Not the disk's fault: the producer sent it so, and nobody can read it.
                    tracing::warn!(log = ?self.id, offset = header.base_offset, %error, "a batch can't be searched by time");
                }
            }
        }
    }
}
