//! What recovery does with the disk: single operations, and a walk over the batches of a file in large reads.

use bytes::Bytes;
use corelog_wire::batch::{BatchHeader, HEADER_LEN};

use super::OpenFailure;
use super::limits::RECOVERY_READ_BYTES;
use super::recovery::DiskOrder;
use super::scan::{Scan, Scanned};

/// The closure that carries out orders, with a name for each.
pub(super) struct Disk<'a> {
    run: &'a mut dyn FnMut(DiskOrder) -> Result<Bytes, String>,
}

impl<'a> Disk<'a> {
    pub(super) fn new(run: &'a mut dyn FnMut(DiskOrder) -> Result<Bytes, String>) -> Disk<'a> {
        Disk { run }
    }

    fn order(&mut self, order: DiskOrder) -> Result<Bytes, OpenFailure> {
        (self.run)(order).map_err(|reason| OpenFailure { reason })
    }

    pub(super) fn read(
        &mut self,
        name: String,
        position: u64,
        len: u64,
    ) -> Result<Bytes, OpenFailure> {
        self.order(DiskOrder::Read {
            name,
            position,
            len,
        })
    }

    pub(super) fn write(
        &mut self,
        name: String,
        position: u64,
        bytes: Bytes,
    ) -> Result<(), OpenFailure> {
        self.order(DiskOrder::Write {
            name,
            position,
            bytes,
        })
        .map(drop)
    }

    pub(super) fn truncate(&mut self, name: String, len: u64) -> Result<(), OpenFailure> {
        self.order(DiskOrder::Truncate { name, len }).map(drop)
    }

    pub(super) fn replace(&mut self, name: String, content: Bytes) -> Result<(), OpenFailure> {
        self.order(DiskOrder::Replace { name, content }).map(drop)
    }

    pub(super) fn delete(&mut self, name: String) -> Result<(), OpenFailure> {
        self.order(DiskOrder::Delete { name }).map(drop)
    }

    pub(super) fn rename(&mut self, from: String, to: String) -> Result<(), OpenFailure> {
        self.order(DiskOrder::Rename { from, to }).map(drop)
    }

    pub(super) fn sync(&mut self, name: String) -> Result<(), OpenFailure> {
        self.order(DiskOrder::Sync { name }).map(drop)
    }

    pub(super) fn sync_directory(&mut self) -> Result<(), OpenFailure> {
        self.order(DiskOrder::SyncDirectory).map(drop)
    }
}

/// The batches of a file from a position on, as long as they look like batches.
pub(super) struct Walk {
    name: String,
    /// Where the next batch begins.
    position: u64,
    /// The end of what may be read.
    end: u64,
    /// Bytes of the file from `held_at` on.
    held: Bytes,
    held_at: u64,
}

impl Walk {
    pub(super) fn new(name: String, position: u64, end: u64) -> Walk {
        Walk {
            name,
            position,
            end,
            held: Bytes::new(),
            held_at: position,
        }
    }

    /// The next whole batch; `None` at the end, or where no whole batch lies.
    pub(super) fn next(
        &mut self,
        disk: &mut Disk<'_>,
    ) -> Result<Option<(BatchHeader, Bytes)>, OpenFailure> {
        let mut needs = HEADER_LEN as u64;
        loop {
            if self.position + needs > self.end {
                return Ok(None);
            }
            if self.position + needs > self.held_at + self.held.len() as u64 {
                let len = (self.end - self.position).min(RECOVERY_READ_BYTES.max(needs));
                self.held = disk.read(self.name.clone(), self.position, len)?;
                self.held_at = self.position;
                if (self.held.len() as u64) < needs {
                    return Ok(None);
                }
            }
            let at = (self.position - self.held_at) as usize;
            let Scanned::Batch { header, .. } = Scan::new(&self.held[at..]).next() else {
                return Ok(None);
            };
            let size = header.total_len();
            if at + size <= self.held.len() {
                self.position += size as u64;
                return Ok(Some((header, self.held.slice(at..at + size))));
            }
            needs = size as u64;
        }
    }
}
