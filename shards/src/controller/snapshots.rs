//! When a snapshot is written, and what becomes of the older ones (kraft.md 10).

use crate::base::ids::{FileId, FileKind, METADATA_LOG, Op};
use crate::base::time::{Mono, Now};
use crate::effect::{Effect, Outbox};

/// How long an old snapshot stays, renamed, before it is deleted (L-13).
const DELETE_DELAY_MS: u64 = 60_000;

/// The end offset and epoch that name a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SnapshotId {
    pub(super) end_offset: i64,
    pub(super) epoch: i32,
}

impl SnapshotId {
    pub(super) fn file(self) -> FileId {
        FileId {
            log: METADATA_LOG,
            kind: FileKind::MetadataSnapshot { epoch: self.epoch },
            base: self.end_offset,
        }
    }
}

/// What has been written, and what has happened since.
#[derive(Debug)]
pub(super) struct Snapshots {
    bytes_max: u64,
    interval_ms: u64,
    /// Oldest first. Kafka keeps more of them, by `metadata.max.retention.bytes` and `.ms`, for nodes that fetch; here nobody does.
    on_disk: Vec<SnapshotId>,
    under_way: Option<(Op, SnapshotId)>,
    bytes_since: u64,
    /// When the oldest change since the newest snapshot is old enough for another one.
    due: Option<Mono>,
    next_seq: u64,
}

impl Snapshots {
    pub(super) fn new(bytes_max: u64, interval_ms: u64, on_disk: Vec<SnapshotId>) -> Snapshots {
        Snapshots {
            bytes_max,
            interval_ms,
            on_disk,
            under_way: None,
            bytes_since: 0,
            due: None,
            next_seq: 0,
        }
    }

    /// Records were appended.
    pub(super) fn appended(&mut self, now: Now, bytes: usize) {
        self.bytes_since += bytes as u64;
        self.due
            .get_or_insert_with(|| now.mono.after_ms(self.interval_ms));
    }

    /// A snapshot should be begun.
    pub(super) fn is_due(&self, now: Now) -> bool {
        let enough = self.bytes_since >= self.bytes_max;
        let old = self.due.is_some_and(|due| due <= now.mono);
        self.under_way.is_none() && (enough || old)
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        self.due.filter(|_| self.under_way.is_none())
    }

    /// The number of the effect that writes `id`.
    pub(super) fn begin(&mut self, id: SnapshotId) -> Op {
        let op = self.next_op();
        self.under_way = Some((op, id));
        self.bytes_since = 0;
        self.due = None;
        op
    }

    /// A snapshot is on disk: those before it may go. `None` if `op` was the deletion of one.
    pub(super) fn done(&mut self, op: Op, out: &mut Outbox) -> Option<SnapshotId> {
        let (_, id) = self.under_way.take_if(|(number, _)| *number == op)?;
        let older = std::mem::replace(&mut self.on_disk, vec![id]);
        if !older.is_empty() {
            let op = self.next_op();
            out.push(Effect::Delete {
                op,
                files: older.into_iter().map(SnapshotId::file).collect(),
                delay_ms: DELETE_DELAY_MS,
            });
        }
        Some(id)
    }

    fn next_op(&mut self) -> Op {
        self.next_seq += 1;
        Op {
            slot: Op::CONTROLLER_FILES,
            seq: self.next_seq,
        }
    }
}
