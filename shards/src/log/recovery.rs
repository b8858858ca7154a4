//! Opening a log that is on disk (L-6 to L-9), after a clean stop or a crash.
//!
//! [`recover`] is ordinary sequential code that asks for one disk operation at a time through a closure; whoever owns the files runs it
//! off the shards (it may block for long) and hands the [`Log`] over. It never leaves a directory worse than it was: killed halfway, it
//! does the same work again.
//!
//! After a clean stop little is read: index tails, the newest producer snapshot. After a crash of this broker the scan begins at the
//! last index entry below the recovery point, because everything below it is durable with its index and snapshot (`settle`). A directory
//! that another broker left after a crash is scanned from the whole segment that holds the recovery point, as Kafka does.
//!
//! Also here: cutting a log back (L-15), which is an opening that stops early. Not here: producers and transactions (`restore`).

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use corelog_wire::batch::{BatchHeader, HEADER_LEN, verify_crc};

use super::batch_walk::{Disk, Walk};
use super::epochs::{Changed, Epochs};
use super::listing::Listing;
use super::partition_log::{Log, Parts};
use super::segment::{Sealed, Segment};
use super::{OpenFailure, checkpoint_format, offset_index, time_index};
use crate::base::ids::TopicPartition;
use crate::base::time::Now;
use crate::metadata::TopicConfig;

/// How the directory was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// The clean-shutdown file was there.
    Clean,
    /// This broker crashed.
    Crashed,
    /// Another broker, such as Apache Kafka, crashed.
    CrashedElsewhere,
}

/// A file of the log's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    pub name: String,
    pub len: u64,
    /// In milliseconds since the Unix epoch.
    pub modified_ms: i64,
}

/// What is known before the directory is opened.
#[derive(Debug)]
pub struct RecoveryInput {
    pub id: TopicPartition,
    pub slot: u32,
    pub files: Vec<DirEntry>,
    pub shutdown: Shutdown,
    /// From the checkpoints; 0 where they say nothing.
    pub recovery_point: i64,
    pub log_start: i64,
    /// Cut the log back to this end.
    pub truncate_to: Option<i64>,
    pub config: Arc<TopicConfig>,
    pub now: Now,
}

/// One operation in the log's directory; names are plain file names.
#[derive(Clone, PartialEq, Eq)]
pub enum DiskOrder {
    /// Give up to `len` bytes at `position`; fewer only at the end of the file.
    Read {
        name: String,
        position: u64,
        len: u64,
    },
    Write {
        name: String,
        position: u64,
        bytes: Bytes,
    },
    /// Set the file's length; it is made if it is not there.
    Truncate {
        name: String,
        len: u64,
    },
    /// Replace the whole file atomically and durably.
    Replace {
        name: String,
        content: Bytes,
    },
    /// Unlink; fine if it is not there.
    Delete {
        name: String,
    },
    Rename {
        from: String,
        to: String,
    },
    Sync {
        name: String,
    },
    SyncDirectory,
}

impl fmt::Debug for DiskOrder {
    /// Without the bytes, which may be many.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiskOrder::Read {
                name,
                position,
                len,
            } => {
                write!(f, "read {len} bytes at {position} of {name}")
            }
            DiskOrder::Write {
                name,
                position,
                bytes,
            } => {
                write!(f, "write {} bytes at {position} of {name}", bytes.len())
            }
            DiskOrder::Truncate { name, len } => write!(f, "set the length of {name} to {len}"),
            DiskOrder::Replace { name, content } => {
                write!(f, "replace {name} by {} bytes", content.len())
            }
            DiskOrder::Delete { name } => write!(f, "delete {name}"),
            DiskOrder::Rename { from, to } => write!(f, "rename {from} to {to}"),
            DiskOrder::Sync { name } => write!(f, "sync {name}"),
            DiskOrder::SyncDirectory => write!(f, "sync the directory"),
        }
    }
}

/// Opens a log. `disk` carries out one order and gives the bytes that were read (else none); its error ends the recovery.
pub fn recover(
    input: RecoveryInput,
    disk: &mut dyn FnMut(DiskOrder) -> Result<Bytes, String>,
) -> Result<Box<Log>, OpenFailure> {
    let mut listing = Listing::new(&input.files);
    let mut disk = Disk::new(disk);
    listing.finish_swaps(&mut disk)?;
    listing.delete_orphans(&mut disk)?;
    let epochs = read_epochs(&listing, &mut disk)?;
    let recovery = Recovery {
        verify_all: input.shutdown == Shutdown::CrashedElsewhere,
        scan_from: match input.shutdown {
            Shutdown::Clean => i64::MAX,
            // One that ends right there may have been sealed since, and lack its last entries.
            Shutdown::Crashed | Shutdown::CrashedElsewhere => input.recovery_point - 1,
        },
        limit: input.truncate_to.unwrap_or(i64::MAX),
        input,
        listing,
        disk,
        epochs_changed: false,
        epochs,
        opened: Vec::new(),
    };
    recovery.run()
}

/// A segment that has been opened.
pub(super) struct Opened {
    pub(super) segment: Segment,
    /// The next offset after its last batch.
    pub(super) end: i64,
    /// Its files were written anew, or cut.
    pub(super) changed: bool,
}

pub(super) struct Recovery<'a> {
    pub(super) input: RecoveryInput,
    pub(super) listing: Listing,
    pub(super) disk: Disk<'a>,
    /// After a crash, segments that end above this are scanned.
    scan_from: i64,
    /// Scan whole segments.
    verify_all: bool,
    /// Batches that reach this offset are cut off.
    pub(super) limit: i64,
    epochs: Epochs,
    epochs_changed: bool,
    /// Oldest first.
    pub(super) opened: Vec<Opened>,
}

impl Recovery<'_> {
    fn run(mut self) -> Result<Box<Log>, OpenFailure> {
        self.open_segments()?;
        let log_end = self.log_end_or_start_over()?;
        let log_start = self.input.log_start.min(self.limit).max(self.first_base());
        self.settle_epochs(log_start, log_end)?;
        let (producers, aborted, from) = self.restore_producers(log_end)?;
        self.sync_changed()?;
        let snapshots = self.settle_snapshots(&producers, &aborted, from, log_end)?;
        let Some(active) = self.opened.pop() else {
            return Err(OpenFailure {
                reason: "no segment was opened".to_owned(),
            });
        };
        let sealed = self.opened.iter().map(|opened| opened.segment.sealed());
        let sealed: Vec<Sealed> = sealed.collect();
        Ok(Box::new(Log::from_parts(Parts {
            id: self.input.id,
            slot: self.input.slot,
            config: self.input.config,
            log_start,
            log_end,
            sealed,
            active: active.segment,
            epochs: self.epochs,
            producers,
            aborted,
            snapshots,
            recovery_point: log_end,
        })))
    }

    fn open_segments(&mut self) -> Result<(), OpenFailure> {
        let bases = self.listing.segments();
        for (at, &base) in bases.iter().enumerate() {
            if base > self.limit {
                return self.delete_segments(&bases[at..]);
            }
            let next_base = bases.get(at + 1).copied();
            let len = self.listing.len(base, "log");
            let opened = self.open_segment(base, next_base)?;
            let cut = opened.segment.size < len;
            // Segments above the recovery point may have survived what they follow: writes to different files are carried out, and reach
            // the device, in any order. (Below it, compaction may have left gaps.)
            let crashed = self.input.shutdown == Shutdown::Crashed && opened.changed;
            let hole = crashed && next_base.is_some_and(|next| opened.end < next);
            self.opened.push(opened);
            if cut || hole {
                // Nothing behind a hole can be believed (L-7), or nothing is wanted (L-15).
                return self.delete_segments(&bases[at + 1..]);
            }
        }
        Ok(())
    }

    fn delete_segments(&mut self, bases: &[i64]) -> Result<(), OpenFailure> {
        for &base in bases {
            self.listing.delete_segment(base, &mut self.disk)?;
        }
        Ok(())
    }

    fn open_segment(&mut self, base: i64, next_base: Option<i64>) -> Result<Opened, OpenFailure> {
        let reaches = |offset: i64| next_base.is_none_or(|next| next > offset);
        if self.limit != i64::MAX && reaches(self.limit) {
            return self.scan(base, self.limit.min(self.scan_from));
        }
        if reaches(self.scan_from) && self.input.shutdown != Shutdown::Clean {
            return self.scan(base, self.input.recovery_point);
        }
        if !self.listing.has(base, "index") {
            return self.scan(base, base); // L-6
        }
        match next_base {
            Some(next_base) => self.open_sealed(base, next_base),
            None => self.open_active(base),
        }
    }

    /// A sealed segment that is complete: its last time index entry says what must be known.
    fn open_sealed(&mut self, base: i64, next_base: i64) -> Result<Opened, OpenFailure> {
        let mut segment = self.new_segment(base);
        segment.size = self.listing.len(base, "log");
        let entries = self.listing.len(base, "timeindex") / time_index::ENTRY as u64;
        if let Some(last) = entries.checked_sub(1) {
            let name = Listing::name(base, "timeindex");
            let at = last * time_index::ENTRY as u64;
            let bytes = self.disk.read(name, at, time_index::ENTRY as u64)?;
            if let Some(entry) = time_index::last(&bytes) {
                segment.max_timestamp = entry.timestamp;
                segment.max_timestamp_offset = base + i64::from(entry.relative_offset);
            }
        }
        Ok(Opened {
            segment,
            end: next_base,
            changed: false,
        })
    }

    /// The last segment after a clean stop: the batches behind the last index entry say where it ends.
    fn open_active(&mut self, base: i64) -> Result<Opened, OpenFailure> {
        let (mut segment, mut end) = self.start_of_scan(base, i64::MAX)?;
        let stop = self.walk(&mut segment, &mut end, Checks::Shape)?;
        if stop == Stop::IndexIsWrong {
            return self.scan(base, base);
        }
        self.refuse_to_cut(&segment, stop)?;
        segment.time_index = self.read_whole(base, "timeindex")?;
        if let Some(entry) = time_index::last(&segment.time_index) {
            segment.max_timestamp = entry.timestamp;
            segment.max_timestamp_offset = base + i64::from(entry.relative_offset);
        }
        Ok(Opened {
            segment,
            end,
            changed: false,
        })
    }

    /// Reads a segment batch by batch, keeps what is valid, and writes its indexes anew (L-7). What lies below `trusted` is durable with
    /// its index entries, unless another broker wrote it.
    fn scan(&mut self, base: i64, trusted: i64) -> Result<Opened, OpenFailure> {
        let trusted = if self.verify_all { base } else { trusted };
        let (mut segment, mut end) = self.start_of_scan(base, trusted)?;
        let mut stop = self.walk(&mut segment, &mut end, Checks::All)?;
        if stop == Stop::IndexIsWrong {
            segment = self.new_segment(base);
            end = base;
            stop = self.walk(&mut segment, &mut end, Checks::All)?;
        }
        self.refuse_to_cut(&segment, stop)?;
        segment.note_max_timestamp();
        let len = self.listing.len(base, "log");
        if segment.size < len {
            tracing::info!(log = ?self.input.id, base, end, cut_bytes = len - segment.size, "cut the log behind its last whole batch");
            let name = Listing::name(base, "log");
            self.disk.truncate(name, segment.size)?;
            self.listing.set_len(base, "log", segment.size);
        }
        self.rewrite(base, "index", &segment.offset_index)?;
        self.rewrite(base, "timeindex", &segment.time_index)?;
        Ok(Opened {
            segment,
            end,
            changed: true,
        })
    }

    /// A segment with the index entries below `trusted`, as of the last one's batch, which is still to be walked.
    fn start_of_scan(&mut self, base: i64, trusted: i64) -> Result<(Segment, i64), OpenFailure> {
        let mut segment = self.new_segment(base);
        if trusted <= base || !self.listing.has(base, "index") {
            return Ok((segment, base));
        }
        let size = self.listing.len(base, "log");
        let mut offsets = self.read_whole(base, "index")?;
        offsets.truncate(offset_index::valid(&offsets, trusted - base, size));
        let Some((relative, position)) = offset_index::last(&offsets) else {
            return Ok((segment, base));
        };
        let mut times = self.read_whole(base, "timeindex")?;
        times.truncate(time_index::valid(&times, relative));
        if let Some(entry) = time_index::last(&times) {
            segment.max_timestamp = entry.timestamp;
            segment.max_timestamp_offset = base + i64::from(entry.relative_offset);
        }
        segment.first_timestamp = self.first_timestamp(base)?;
        segment.size = u64::from(position);
        segment.offset_index = offsets;
        segment.time_index = times;
        Ok((segment, base))
    }

    fn first_timestamp(&mut self, base: i64) -> Result<Option<i64>, OpenFailure> {
        let bytes = self
            .disk
            .read(Listing::name(base, "log"), 0, HEADER_LEN as u64)?;
        Ok(BatchHeader::parse(&bytes)
            .ok()
            .map(|header| header.max_timestamp))
    }

    /// Takes valid batches from the segment's present end.
    fn walk(
        &mut self,
        segment: &mut Segment,
        end: &mut i64,
        checks: Checks,
    ) -> Result<Stop, OpenFailure> {
        let mut indexed = offset_index::last(&segment.offset_index)
            .map(|(relative, _)| segment.base + i64::from(relative));
        let interval = match checks {
            Checks::All => self.input.config.index_interval_bytes,
            // The index stays as it is on disk.
            Checks::Shape => u32::MAX,
        };
        let name = Listing::name(segment.base, "log");
        let mut walk = Walk::new(name, segment.size, self.listing.len(segment.base, "log"));
        while let Some((header, batch)) = walk.next(&mut self.disk)? {
            let in_range = header.base_offset >= *end
                && header.last_offset() - segment.base <= i64::from(i32::MAX);
            if !in_range || (checks == Checks::All && !verify_crc(&batch)) {
                break;
            }
            if header.last_offset() >= self.limit {
                return Ok(Stop::Limit);
            }
            match indexed.take() {
                Some(offset) if offset != header.last_offset() => return Ok(Stop::IndexIsWrong),
                Some(_) => segment.add_indexed(&header),
                None => segment.add(&header, interval),
            }
            if self
                .epochs
                .assign(header.partition_leader_epoch, header.base_offset)
                == Changed::Yes
            {
                self.epochs_changed = true;
            }
            *end = header.last_offset() + 1;
        }
        // Not even the batch that the last index entry names is there.
        Ok(if indexed.is_some() {
            Stop::IndexIsWrong
        } else {
            Stop::NoBatch
        })
    }

    /// After a clean stop nothing is missing, so what can't be read is something that this broker does not know: it is not cut away.
    /// Neither are batches of the formats before version 2, which only other brokers have written (L-34).
    fn refuse_to_cut(&mut self, segment: &Segment, stop: Stop) -> Result<(), OpenFailure> {
        let left = self.listing.len(segment.base, "log") - segment.size;
        if left == 0 || stop == Stop::Limit {
            return Ok(());
        }
        let refuse = match self.input.shutdown {
            Shutdown::Crashed => false,
            Shutdown::Clean => true,
            Shutdown::CrashedElsewhere => {
                let name = Listing::name(segment.base, "log");
                let head = self.disk.read(name, segment.size, left.min(17))?;
                is_old_format(&head, left)
            }
        };
        if !refuse {
            return Ok(());
        }
        Err(OpenFailure {
            reason: format!(
                "{} holds no batch of format 2 at position {}; if an older Kafka wrote it, let it rewrite its messages first",
                Listing::name(segment.base, "log"),
                segment.size
            ),
        })
    }

    fn new_segment(&self, base: i64) -> Segment {
        let mut segment = Segment::new(base, self.input.now.wall_ms);
        segment.modified_ms = self.listing.modified_ms(base, self.input.now.wall_ms);
        segment
    }

    pub(super) fn read_whole(&mut self, base: i64, suffix: &str) -> Result<Vec<u8>, OpenFailure> {
        let len = self.listing.len(base, suffix);
        if len == 0 {
            return Ok(Vec::new());
        }
        let bytes = self.disk.read(Listing::name(base, suffix), 0, len)?;
        Ok(bytes.to_vec())
    }

    /// Makes a file hold exactly these bytes.
    pub(super) fn rewrite(
        &mut self,
        base: i64,
        suffix: &'static str,
        bytes: &[u8],
    ) -> Result<(), OpenFailure> {
        let name = Listing::name(base, suffix);
        if !bytes.is_empty() {
            self.disk
                .write(name.clone(), 0, Bytes::copy_from_slice(bytes))?;
        }
        self.disk.truncate(name, bytes.len() as u64)?;
        self.listing.set_len(base, suffix, bytes.len() as u64);
        Ok(())
    }

    pub(super) fn first_base(&self) -> i64 {
        self.opened.first().map_or(0, |opened| opened.segment.base)
    }

    /// The log's end. A log that ends below its start, or has no segment, begins anew (L-8, L-15).
    fn log_end_or_start_over(&mut self) -> Result<i64, OpenFailure> {
        let log_start = self.input.log_start.clamp(0, self.limit.max(0));
        if let Some(end) = self
            .opened
            .last()
            .map(|opened| opened.end)
            .filter(|end| *end >= log_start)
        {
            return Ok(end);
        }
        let nothing_is_left = self.opened.is_empty() && self.limit != i64::MAX;
        let start = if nothing_is_left {
            self.limit
        } else {
            log_start
        };
        let bases: Vec<i64> = self
            .opened
            .drain(..)
            .map(|opened| opened.segment.base)
            .collect();
        self.delete_segments(&bases)?;
        for offset in self.listing.snapshots() {
            self.listing.delete(offset, "snapshot", &mut self.disk)?;
        }
        self.epochs_changed |= self.epochs.truncate_from_end(0) == Changed::Yes;
        for suffix in ["log", "index", "timeindex"] {
            self.rewrite(start, suffix, &[])?;
        }
        self.opened.push(Opened {
            segment: self.new_segment(start),
            end: start,
            changed: true,
        });
        Ok(start)
    }

    fn settle_epochs(&mut self, log_start: i64, log_end: i64) -> Result<(), OpenFailure> {
        // An epoch that began at the end has no record, but its leader was here; unless the log was cut there (L-16).
        let end = if self.limit == i64::MAX {
            log_end + 1
        } else {
            log_end
        };
        let cut = self.epochs.truncate_from_end(end);
        let trimmed = self.epochs.truncate_from_start(log_start);
        if self.epochs_changed || cut == Changed::Yes || trimmed == Changed::Yes {
            let content = checkpoint_format::format_epochs(&self.epochs).into();
            self.disk.replace(EPOCHS.to_owned(), content)?;
        }
        Ok(())
    }

    /// What was written here, or might never have been synced, is durable from now on.
    fn sync_changed(&mut self) -> Result<(), OpenFailure> {
        let changed = self.opened.iter().filter(|opened| opened.changed);
        let bases: Vec<i64> = changed.map(|opened| opened.segment.base).collect();
        for &base in &bases {
            for suffix in ["log", "index", "timeindex", "txnindex"] {
                if self.listing.has(base, suffix) {
                    self.disk.sync(Listing::name(base, suffix))?;
                }
            }
        }
        if bases.is_empty() {
            Ok(())
        } else {
            self.disk.sync_directory()
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Checks {
    /// Sizes, offsets and checksums.
    All,
    /// Sizes and offsets.
    Shape,
}

/// Why a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// The end of the file, or something that is no valid batch.
    NoBatch,
    /// A batch that shall be cut off.
    Limit,
    /// The last index entry does not lead to its batch.
    IndexIsWrong,
}

const EPOCHS: &str = "leader-epoch-checkpoint";

fn read_epochs(listing: &Listing, disk: &mut Disk<'_>) -> Result<Epochs, OpenFailure> {
    let Some(len) = listing.len_of(EPOCHS) else {
        return Ok(Epochs::default());
    };
    let bytes = disk.read(EPOCHS.to_owned(), 0, len)?;
    let text = String::from_utf8_lossy(&bytes);
    checkpoint_format::parse_epochs(&text).map_err(|malformed| OpenFailure {
        reason: format!("{EPOCHS} cannot be read: {malformed}"),
    })
}

/// Is this the head of a message of format 0 or 1, and not a torn write?
fn is_old_format(head: &[u8], left: u64) -> bool {
    const SMALLEST: i32 = 14;
    let (Some(size), Some(magic)) = (head.get(8..12), head.get(16)) else {
        return false;
    };
    let size = size
        .iter()
        .fold(0, |sum: i32, byte| (sum << 8) | i32::from(*byte));
    (0..=1).contains(magic) && size >= SMALLEST && i64::from(size) + 12 <= left as i64
}
