//! Reading (L-17, F-3, F-4): from the tail cache at once, else from disk in steps.
//!
//! A read that is not served from memory is a `Job`: find the segment, find the position (a cursor where the last reader stopped, the
//! index in memory, or the sealed segment's mapped index), read, scan forward to the batch that holds the offset, take whole batches.
//! Each step that needs the disk emits one effect; [`Log::done`] takes the job further. Nothing here waits.
//!
//! Only what is written is read from disk, whatever bound the caller gives. Searches by time are jobs too (`time_search`).

use bytes::Bytes;
use smallvec::SmallVec;

use super::limits::{
    CURSORS, MAPS, READ_BYTES_MAX, READ_BYTES_MIN, READ_PIECES_MAX, SCAN_WITHOUT_INDEX_BYTES,
    TIME_SCAN_BYTES,
};
use super::offset_index;
use super::partition_log::{Log, Progress, Purpose, State};
use super::scan::{Scan, Scanned, Whole, whole_batches};
use super::tail_cache::{TailCache, Window};
use super::time_search::{Found, TimeSearch};
use crate::base::ids::FileKind;
use crate::effect::{Chunks, Effect, Outbox};

/// What a reader asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadRequest {
    pub offset: i64,
    /// Exclusive: the high watermark, the last stable offset or the log's end.
    pub bound: i64,
    pub max_bytes: u32,
    /// Give one whole batch even if it is larger than `max_bytes` (F-3).
    pub at_least_one: bool,
}

#[derive(Debug)]
pub enum ReadOutcome {
    /// Whole batches, the first of which holds the offset (or is the next there is). Empty: nothing below the bound, or not even the first
    /// batch fits.
    Ready(Chunks),
    /// The result comes with [`Progress::reads`].
    Pending,
    /// Below the log's start, or above its end (F-5).
    OutOfRange,
    /// The disk failed.
    Offline,
}

/// A finished job.
#[derive(Debug)]
pub enum Finished {
    Read(Result<Chunks, ReadFailed>),
    Time(Result<Found, ReadFailed>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadFailed {
    /// The offset was deleted meanwhile.
    OutOfRange,
    Storage,
}

/// For the first round of a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Available {
    /// From the batch that holds the offset to the bound; at most `max_bytes`, unless one batch is larger. Where the batch is not in memory it
    /// is an estimate, too high by some index intervals, or by the rest of a sealed segment.
    pub bytes: u32,
    /// The offset lies below the active segment: answer at once (F-2).
    pub older_segment: bool,
}

/// Where a reader stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cursor {
    offset: i64,
    base: i64,
    position: u64,
}

/// A sealed index in memory.
#[derive(Debug)]
pub(super) struct Mapped {
    base: i64,
    kind: FileKind,
    bytes: Bytes,
}

/// A read or a search that waits for the disk.
#[derive(Debug)]
pub(super) struct Job {
    id: u64,
    ticket: u64,
    pub(super) task: Task,
    /// The segment it is at.
    pub(super) base: i64,
    /// The next position to read, once it is known.
    pub(super) position: Option<u64>,
    /// At least so many bytes: a batch is known to be that large.
    pub(super) needs: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Task {
    Read(ReadRequest),
    Time(TimeSearch),
}

/// What to do next with a job.
pub(super) enum Next {
    /// Its position or its needs changed, or it is new.
    GoOn,
    /// Nothing in this segment: take the next one.
    Skip,
    Finished(Finished),
}

/// What an index says.
pub(super) enum Lookup<T> {
    Known(T),
    /// It is on its way into memory.
    Fetching,
}

impl Log {
    /// Reads from `offset` up to `bound`.
    pub fn read(
        &mut self,
        request: ReadRequest,
        ticket: u64,
        tail: &TailCache,
        out: &mut Outbox,
    ) -> ReadOutcome {
        if self.state == State::Failed {
            return ReadOutcome::Offline;
        }
        if request.offset < self.log_start || request.offset > self.log_end {
            return ReadOutcome::OutOfRange;
        }
        if request.offset >= request.bound {
            return ReadOutcome::Ready(Chunks::new());
        }
        if let Some(chunks) = tail.read(self.slot, window(&request)) {
            return ReadOutcome::Ready(joined(chunks));
        }
        match self.start_job(Task::Read(request), request.offset, ticket, tail, out) {
            None => ReadOutcome::Pending,
            Some(Finished::Read(Ok(chunks))) => ReadOutcome::Ready(chunks),
            Some(Finished::Read(Err(ReadFailed::OutOfRange)) | Finished::Time(_)) => {
                ReadOutcome::OutOfRange
            }
            Some(Finished::Read(Err(ReadFailed::Storage))) => ReadOutcome::Offline,
        }
    }

    /// How much a read would find. Cheap: memory only.
    pub fn available(
        &self,
        offset: i64,
        bound: i64,
        max_bytes: u32,
        tail: &TailCache,
    ) -> Available {
        let older_segment = offset < self.active.base;
        if offset >= bound {
            return Available {
                bytes: 0,
                older_segment,
            };
        }
        let end = if bound >= self.log_end {
            self.appended_bytes as i64
        } else {
            self.place_after(bound, tail)
        };
        let bytes = end.saturating_sub(self.place_of(offset, tail)).max(1);
        Available {
            bytes: u32::try_from(bytes)
                .unwrap_or(u32::MAX)
                .min(max_bytes.max(1)),
            older_segment,
        }
    }

    /// Where a batch begins, in bytes appended since the log was opened (negative: before that); not above it, if it is not in memory.
    fn place_of(&self, offset: i64, tail: &TailCache) -> i64 {
        if let Some(at) = tail.position(self.slot, offset) {
            return at as i64;
        }
        let active_start = self.appended_bytes as i64 - self.active.size as i64;
        if offset >= self.active.base {
            let relative = offset - self.active.base;
            return active_start
                + i64::from(offset_index::floor(&self.active.offset_index, relative));
        }
        let at = self
            .sealed
            .partition_point(|segment| segment.base <= offset);
        let from = at.saturating_sub(1);
        let above: u64 = self.sealed[from..].iter().map(|segment| segment.size).sum();
        active_start - above as i64
    }

    /// As [`Log::place_of`], but not below it.
    fn place_after(&self, offset: i64, tail: &TailCache) -> i64 {
        if let Some(at) = tail.position(self.slot, offset) {
            return at as i64;
        }
        let active_start = self.appended_bytes as i64 - self.active.size as i64;
        if offset >= self.active.base {
            let relative = offset - self.active.base;
            let next = offset_index::ceiling(&self.active.offset_index, relative);
            return active_start + next.map_or(self.active.size as i64, i64::from);
        }
        let at = self.sealed.partition_point(|segment| segment.base < offset);
        let above: u64 = self.sealed[at..].iter().map(|segment| segment.size).sum();
        active_start - above as i64
    }

    pub(super) fn start_job(
        &mut self,
        task: Task,
        from: i64,
        ticket: u64,
        tail: &TailCache,
        out: &mut Outbox,
    ) -> Option<Finished> {
        let job = Job {
            id: self.next_seq,
            ticket,
            task,
            base: self.segment_of(from),
            position: None,
            needs: 0,
        };
        self.next_seq += 1;
        self.advance(job, Next::GoOn, tail, out)
            .map(|(_, finished)| finished)
    }

    /// The base of the segment that holds the offset.
    pub(super) fn segment_of(&self, offset: i64) -> i64 {
        if offset >= self.active.base {
            return self.active.base;
        }
        let at = self
            .sealed
            .partition_point(|segment| segment.base <= offset);
        self.sealed
            .get(at.saturating_sub(1))
            .map_or(self.active.base, |segment| segment.base)
    }

    fn next_segment(&self, base: i64) -> Option<i64> {
        let at = self.sealed.partition_point(|segment| segment.base <= base);
        match self.sealed.get(at) {
            Some(segment) => Some(segment.base),
            None => (self.active.base > base).then_some(self.active.base),
        }
    }

    /// The bytes of a segment that can be read from disk; `None` if it is gone.
    fn readable(&self, base: i64) -> Option<u64> {
        if base == self.active.base {
            return Some(self.ends.readable(base, self.active.size));
        }
        let at = self
            .sealed
            .binary_search_by_key(&base, |segment| segment.base)
            .ok()?;
        Some(self.ends.readable(base, self.sealed[at].size))
    }

    /// Takes a job as far as it gets without the disk. Either it is kept and waits for one effect, or it is finished.
    fn advance(
        &mut self,
        mut job: Job,
        mut next: Next,
        tail: &TailCache,
        out: &mut Outbox,
    ) -> Option<(u64, Finished)> {
        loop {
            match next {
                Next::Finished(finished) => return Some((job.ticket, finished)),
                Next::Skip => {
                    let Some(base) = self.next_segment(job.base) else {
                        return Some((job.ticket, job.task.nothing()));
                    };
                    job.base = base;
                    job.position = None;
                    job.needs = 0;
                }
                Next::GoOn => {}
            }
            next = match self.step(&mut job, tail, out) {
                Some(next) => next,
                None => {
                    self.jobs.push(job);
                    return None;
                }
            };
        }
    }

    /// One step: `None` when an effect is under way.
    fn step(&mut self, job: &mut Job, tail: &TailCache, out: &mut Outbox) -> Option<Next> {
        if job.task.lowest() < self.log_start {
            return Some(Next::Finished(job.task.failed(ReadFailed::OutOfRange)));
        }
        let Some(readable) = self.readable(job.base) else {
            // Its segment was deleted. What it looks for is in a later one, or nowhere.
            return Some(Next::Skip);
        };
        if let Task::Read(request) = &job.task {
            // It may have come into the cache while the job waited: nobody else can read what is not written yet.
            if let Some(chunks) = tail.read(self.slot, window(request)) {
                return Some(Next::Finished(Finished::Read(Ok(joined(chunks)))));
            }
        }
        if job.position.is_none() {
            match self.position_for(job, out) {
                Lookup::Known(position) => job.position = Some(position),
                Lookup::Fetching => return None,
            }
        }
        let position = job.position.unwrap_or(0);
        if position >= readable {
            return Some(Next::Skip);
        }
        let len = job
            .read_len(self.config.index_interval_bytes)
            .min(readable - position);
        let file = self.file(FileKind::Log, job.base);
        let op = self.begin(Purpose::Read { job: job.id });
        out.push(Effect::Read {
            op,
            file,
            position,
            len: u32::try_from(len).unwrap_or(u32::MAX),
        });
        None
    }

    fn position_for(&mut self, job: &Job, out: &mut Outbox) -> Lookup<u64> {
        match job.task {
            Task::Read(request) => {
                let at =
                    |cursor: &Cursor| (cursor.offset, cursor.base) == (request.offset, job.base);
                match self.cursors.iter().find(|cursor| at(cursor)) {
                    Some(cursor) => Lookup::Known(cursor.position),
                    None => self.offset_position(job, request.offset, out),
                }
            }
            Task::Time(search) => self.time_position(job, search, out),
        }
    }

    /// Where to begin to scan for an offset.
    pub(super) fn offset_position(
        &mut self,
        job: &Job,
        offset: i64,
        out: &mut Outbox,
    ) -> Lookup<u64> {
        let relative = offset.saturating_sub(job.base);
        let size = self.readable(job.base).unwrap_or(0);
        if relative <= 0 || size <= SCAN_WITHOUT_INDEX_BYTES {
            return Lookup::Known(0);
        }
        if job.base == self.active.base {
            let position = offset_index::floor(&self.active.offset_index, relative);
            return Lookup::Known(u64::from(position));
        }
        match self.mapped(job, FileKind::OffsetIndex, out) {
            Lookup::Known(bytes) => Lookup::Known(u64::from(offset_index::floor(&bytes, relative))),
            Lookup::Fetching => Lookup::Fetching,
        }
    }

    /// A sealed segment's index: the one that is held, or an effect that fetches it for the job.
    pub(super) fn mapped(&mut self, job: &Job, kind: FileKind, out: &mut Outbox) -> Lookup<Bytes> {
        let held = self
            .maps
            .iter()
            .position(|map| (map.base, map.kind) == (job.base, kind));
        if let Some(at) = held {
            // The one used last stands last.
            self.maps[at..].rotate_left(1);
            return Lookup::Known(self.maps[self.maps.len() - 1].bytes.clone());
        }
        let file = self.file(kind, job.base);
        let op = self.begin(Purpose::Map {
            job: job.id,
            base: job.base,
            kind,
        });
        out.push(Effect::Map { op, file });
        Lookup::Fetching
    }

    pub(super) fn keep_map(&mut self, base: i64, kind: FileKind, bytes: Bytes) {
        self.maps.retain(|map| (map.base, map.kind) != (base, kind));
        if self.maps.len() == MAPS {
            self.maps.remove(0);
        }
        self.maps.push(Mapped { base, kind, bytes });
    }

    fn take_job(&mut self, id: u64) -> Option<Job> {
        let at = self.jobs.iter().position(|job| job.id == id)?;
        Some(self.jobs.swap_remove(at))
    }

    /// An effect of the job is done.
    pub(super) fn resume(
        &mut self,
        id: u64,
        tail: &TailCache,
        out: &mut Outbox,
        progress: &mut Progress,
    ) {
        if let Some(job) = self.take_job(id) {
            progress
                .reads
                .extend(self.advance(job, Next::GoOn, tail, out));
        }
    }

    /// Bytes of a segment are here.
    pub(super) fn read_done(
        &mut self,
        id: u64,
        bytes: Bytes,
        tail: &TailCache,
        out: &mut Outbox,
        progress: &mut Progress,
    ) {
        let Some(mut job) = self.take_job(id) else {
            return;
        };
        let next = match job.task {
            Task::Read(request) => self.take_batches(&mut job, request, &bytes),
            Task::Time(search) => self.search_batches(&mut job, search, &bytes),
        };
        if let Next::Finished(
            Finished::Read(Err(ReadFailed::Storage)) | Finished::Time(Err(ReadFailed::Storage)),
        ) = next
        {
            tracing::error!(log = ?self.id, base = job.base, position = ?job.position, "the log holds no batch where one must be");
            progress.failed = self.state != State::Failed;
            self.state = State::Failed;
            progress.reads.extend(self.advance(job, next, tail, out));
            self.fail_jobs(progress);
            return;
        }
        progress.reads.extend(self.advance(job, next, tail, out));
    }

    pub(super) fn job_lost_its_segment(&self, id: u64) -> bool {
        let base = self
            .jobs
            .iter()
            .find(|job| job.id == id)
            .map(|job| job.base);
        base.is_some_and(|base| self.readable(base).is_none())
    }

    pub(super) fn fail_jobs(&mut self, progress: &mut Progress) {
        let failed = |job: Job| (job.ticket, job.task.failed(ReadFailed::Storage));
        progress.reads.extend(self.jobs.drain(..).map(failed));
    }

    /// Scans to the batch that holds the offset and takes whole batches from there.
    fn take_batches(&mut self, job: &mut Job, request: ReadRequest, bytes: &Bytes) -> Next {
        let position = job.position.unwrap_or(0);
        let mut scan = Scan::new(bytes);
        let start = loop {
            match scan.next() {
                Scanned::Batch { at, header } if header.last_offset() >= request.offset => {
                    if header.base_offset >= request.bound {
                        return Next::Finished(Finished::Read(Ok(Chunks::new())));
                    }
                    break at;
                }
                Scanned::Batch { .. } => {}
                Scanned::Cut { at, needs } => return job.go_on_at(position + at as u64, needs),
                Scanned::Nonsense => return Next::Finished(job.task.failed(ReadFailed::Storage)),
            }
        };
        let (end, next_offset) = match whole_batches(&bytes[start..], &request) {
            Whole::Batches { len, next_offset } => (start + len, next_offset),
            Whole::Needs(needs) => return job.go_on_at(position + start as u64, needs),
            Whole::DoesNotFit => return Next::Finished(Finished::Read(Ok(Chunks::new()))),
            Whole::Nonsense => return Next::Finished(job.task.failed(ReadFailed::Storage)),
        };
        self.keep_cursor(Cursor {
            offset: next_offset,
            base: job.base,
            position: position + end as u64,
        });
        let mut chunks = Chunks::new();
        chunks.push(bytes.slice(start..end));
        Next::Finished(Finished::Read(Ok(chunks)))
    }

    fn keep_cursor(&mut self, cursor: Cursor) {
        self.cursors.retain(|kept| *kept != cursor);
        if self.cursors.len() == CURSORS {
            self.cursors.remove(0);
        }
        self.cursors.push(cursor);
    }
}

impl Job {
    /// The bytes end before what is looked for does.
    pub(super) fn go_on_at(&mut self, position: u64, needs: u64) -> Next {
        if self.position == Some(position) && self.needs >= needs && needs > 0 {
            // The file is shorter than what was written to it.
            return Next::Finished(self.task.failed(ReadFailed::Storage));
        }
        self.position = Some(position);
        self.needs = needs;
        Next::GoOn
    }

    fn read_len(&self, index_interval_bytes: u32) -> u64 {
        let len = match self.task {
            Task::Read(request) => {
                // The index leads to within an interval of the batch.
                let slack = if self.needs > 0 {
                    0
                } else {
                    u64::from(index_interval_bytes)
                };
                u64::from(request.max_bytes) + slack
            }
            Task::Time(_) => TIME_SCAN_BYTES,
        };
        len.clamp(READ_BYTES_MIN, READ_BYTES_MAX).max(self.needs)
    }
}

impl Task {
    /// The answer when the end of the log is reached.
    fn nothing(&self) -> Finished {
        match self {
            Task::Read(_) => Finished::Read(Ok(Chunks::new())),
            Task::Time(_) => Finished::Time(Ok(None)),
        }
    }

    pub(super) fn failed(&self, why: ReadFailed) -> Finished {
        match self {
            Task::Read(_) => Finished::Read(Err(why)),
            Task::Time(_) => Finished::Time(Err(why)),
        }
    }

    /// Below this offset it wants nothing, and must not be given anything.
    fn lowest(&self) -> i64 {
        match self {
            Task::Read(request) => request.offset,
            Task::Time(_) => i64::MAX,
        }
    }
}

fn window(request: &ReadRequest) -> Window {
    Window {
        offset: request.offset,
        bound: request.bound,
        max_bytes: request.max_bytes,
        at_least_one: request.at_least_one,
    }
}

/// Many small pieces are copied into one.
fn joined(chunks: Chunks) -> Chunks {
    if chunks.len() <= READ_PIECES_MAX {
        return chunks;
    }
    let mut whole = bytes::BytesMut::with_capacity(chunks.iter().map(Bytes::len).sum());
    for chunk in &chunks {
        whole.extend_from_slice(chunk);
    }
    SmallVec::from_iter([whole.freeze()])
}
