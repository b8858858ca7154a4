//! Submission entries that point to no memory: file operations, cancels and doorbells.

use io_uring::{opcode, squeue, types};
use std::os::fd::AsRawFd;

use super::completion::OpId;
use super::doorbell::Doorbell;
use super::queue::{DOORBELL, IGNORED, ring_failed};
use super::{Advice, RangeSync, SyncKind};
use crate::disk::File;

pub(super) fn fd(of: &impl AsRawFd) -> types::Fd {
    types::Fd(of.as_raw_fd())
}

pub(super) fn sync_entry(file: &File, kind: SyncKind) -> squeue::Entry {
    let flags = match kind {
        SyncKind::Data => types::FsyncFlags::DATASYNC,
        SyncKind::All => types::FsyncFlags::empty(),
    };
    opcode::Fsync::new(fd(file)).flags(flags).build()
}

pub(super) fn sync_range_entry(
    file: &File,
    position: u64,
    length: u32,
    sync: RangeSync,
) -> squeue::Entry {
    let flags = match sync {
        RangeSync::Start => libc::SYNC_FILE_RANGE_WRITE,
        RangeSync::Finish => {
            libc::SYNC_FILE_RANGE_WAIT_BEFORE
                | libc::SYNC_FILE_RANGE_WRITE
                | libc::SYNC_FILE_RANGE_WAIT_AFTER
        }
    };
    opcode::SyncFileRange::new(fd(file), length)
        .offset(position)
        .flags(flags)
        .build()
}

pub(super) fn advise_entry(
    file: &File,
    position: u64,
    length: u32,
    advice: Advice,
) -> squeue::Entry {
    let advice = match advice {
        Advice::DontNeed => libc::POSIX_FADV_DONTNEED,
        Advice::WillNeed => libc::POSIX_FADV_WILLNEED,
    };
    opcode::Fadvise::new(fd(file), libc::off_t::from(length), advice)
        .offset(position)
        .build()
}

pub(super) fn allocate_entry(file: &File, position: u64, length: u64) -> squeue::Entry {
    opcode::Fallocate::new(fd(file), length)
        .offset(position)
        .mode(libc::FALLOC_FL_KEEP_SIZE)
        .build()
}

pub(super) fn cancel_entry(id: OpId) -> squeue::Entry {
    opcode::AsyncCancel::new(id.0).build().user_data(IGNORED)
}

pub(super) fn ring_entry(doorbell: &Doorbell, peer: u32) -> squeue::Entry {
    opcode::MsgRingData::new(types::Fd(doorbell.ring_fd()), 0, DOORBELL, None)
        .build()
        .user_data(ring_failed(peer))
        .flags(squeue::Flags::SKIP_SUCCESS)
}
