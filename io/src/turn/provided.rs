#![expect(
    unsafe_code,
    reason = "the kernel and this file share the memory of the buffer ring"
)]
//! Buffers that the kernel picks from when bytes arrive on an idle connection.
//!
//! One allocation holds the ring (entries of 16 bytes, page-aligned) and another the buffers. A buffer
//! belongs to the kernel from `offer` until an event names it, and to us from then until the next
//! `offer`, which `take` does before it returns: there is never more than one in our hands.

use io_uring::types::BufRingEntry;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use super::queue::Queue;

/// The only buffer group of a ring.
pub(super) const GROUP: u16 = 0;

const PAGE: usize = 4096;

pub(super) struct ProvidedBuffers {
    ring: NonNull<u8>,
    buffers: NonNull<u8>,
    ring_layout: Layout,
    buffers_layout: Layout,
    count: u16,
    size: u32,
    tail: u16,
    kept: bool,
}

impl ProvidedBuffers {
    pub(super) fn register(queue: &Queue, count: u16, size: u32) -> io::Result<Self> {
        if !count.is_power_of_two() || size == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "{count} selectable buffers of {size} bytes: the count must be a power of two, the size positive"
                ),
            ));
        }
        let entry = std::mem::size_of::<BufRingEntry>();
        let ring_layout = layout(usize::from(count) * entry)?;
        let buffers_layout = layout(usize::from(count) * size as usize)?;
        let ring = allocate(ring_layout);
        let buffers = allocate(buffers_layout);
        let mut provided = Self {
            ring,
            buffers,
            ring_layout,
            buffers_layout,
            count,
            size,
            tail: 0,
            kept: false,
        };
        // SAFETY: claim: the ring memory is page-aligned, holds `count` entries and lives until it is
        // unregistered. keeper: this type, whose owner unregisters before dropping. breaker: dropping it first.
        unsafe {
            queue.ring().submitter().register_buf_ring_with_flags(
                ring.as_ptr() as u64,
                count,
                GROUP,
                0,
            )
        }?;
        for id in 0..count {
            provided.offer(id);
        }
        Ok(provided)
    }

    /// Hands the first `length` bytes of buffer `id` to `copy`, then gives the buffer to the kernel again.
    pub(super) fn take(&mut self, id: u16, length: usize, copy: impl FnOnce(&[u8])) {
        assert!(
            id < self.count && length <= self.size as usize,
            "the kernel named buffer {id} with {length} bytes"
        );
        let start = self.start_of(id);
        // SAFETY: claim: the bytes are initialised (zeroed at first) and the kernel does not touch them now.
        // keeper: the kernel gave the buffer away with the event, and `offer` comes after. breaker: offering
        // before copying.
        copy(unsafe { std::slice::from_raw_parts(start, length) });
        self.offer(id);
    }

    fn start_of(&self, id: u16) -> *mut u8 {
        let offset = usize::from(id) * self.size as usize;
        // SAFETY: claim: the offset is inside the allocation. keeper: ids are below `count`. breaker: an
        // unchecked id.
        unsafe { self.buffers.as_ptr().add(offset) }
    }

    #[expect(clippy::cast_ptr_alignment, reason = "the ring is aligned to a page")]
    fn offer(&mut self, id: u16) {
        let base = self.ring.as_ptr().cast::<BufRingEntry>();
        let index = usize::from(self.tail & (self.count - 1));
        // SAFETY: claim: the index is inside the ring. keeper: the mask. breaker: a count that is no power of two.
        let entry = unsafe { base.add(index) };
        // SAFETY: claim: the entry at tail is not read by the kernel until the tail moves. keeper: the order of
        // the lines below. breaker: storing the tail first, or more offers than buffers.
        let entry = unsafe { &mut *entry };
        entry.set_addr(self.start_of(id) as u64);
        entry.set_len(self.size);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: claim: base is the first entry of the ring. keeper: the line that made it. breaker: another
        // address.
        let tail = unsafe { BufRingEntry::tail(base) };
        // SAFETY: claim: the tail is an aligned u16 that only this thread writes; an atomic view of it is
        // sound. keeper: the kernel's layout of `io_uring_buf_ring`. breaker: a second writer.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }

    /// No receive that selects a buffer is in flight any more.
    pub(super) fn unregister(&mut self, queue: &Queue) {
        if let Err(error) = queue.ring().submitter().unregister_buf_ring(GROUP) {
            tracing::warn!(%error, "cannot unregister the buffer ring; its memory is kept");
            self.kept = true;
        }
    }

    /// The kernel may still write into the buffers.
    pub(super) fn keep_for_ever(&mut self) {
        self.kept = true;
    }
}

impl Drop for ProvidedBuffers {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        // SAFETY: claim: allocated with this layout and freed once. keeper: `register` and this drop. breaker:
        // freeing elsewhere.
        unsafe { dealloc(self.ring.as_ptr(), self.ring_layout) };
        // SAFETY: claim: allocated with this layout and freed once. keeper: `register` and this drop. breaker:
        // freeing elsewhere.
        unsafe { dealloc(self.buffers.as_ptr(), self.buffers_layout) };
    }
}

fn layout(bytes: usize) -> io::Result<Layout> {
    Layout::from_size_align(bytes, PAGE)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

fn allocate(layout: Layout) -> NonNull<u8> {
    // SAFETY: claim: the layout is not empty. keeper: `register` refuses zero counts and sizes. breaker:
    // calling it with another layout.
    let memory = unsafe { alloc_zeroed(layout) };
    NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout))
}
