//! Recent batches of all logs of a shard that somebody reads, in memory, within one byte budget.
//!
//! Batches of a log that nobody reads are passed on without a copy; a reader that comes later finds them in the page cache.
//!
//! Batches leave in the order in which they came, whatever log they belong to. A small batch is copied out of the buffer in which it
//! was received, with its header patched, so that it does not pin that buffer; of a large one only the header is copied. Copies lie
//! in chunks that are used again when nobody holds a piece of them any more: no allocation per batch after warm-up.
//!
//! A log is known here by its slot. When a slot gets another log, or its log is cut, the owner calls [`TailCache::forget`].

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use corelog_wire::batch::HEADER_LEN;
use rustc_hash::FxHashMap;

use super::limits::{ARENA_BYTES, COPY_BYTES_MAX};
use crate::effect::Chunks;

/// Batches of its log that leave when one is passed: a few, so that no turn has to drop all of them.
const PASS_EVICTS: usize = 4;

/// Batches that are gone and may stand in the order whatever else is there.
const GONE_MAX: usize = 1024;

/// A batch as it goes to disk.
struct Cached {
    /// When it came, in batches of all logs.
    seq: u64,
    base_offset: i64,
    last_offset: i64,
    /// Where it begins, in bytes appended to its log since that was opened.
    at: u64,
    chunks: Chunks,
}

impl Cached {
    fn len(&self) -> usize {
        self.chunks.iter().map(Bytes::len).sum()
    }
}

/// What is to be kept, and where it belongs.
pub struct Fresh<'a> {
    pub slot: u32,
    pub base_offset: i64,
    pub last_offset: i64,
    /// See [`TailCache::position`].
    pub at: u64,
    /// The header as it shall be.
    pub header: &'a [u8; HEADER_LEN],
    /// The batch as it came.
    pub batch: &'a Bytes,
}

/// What a reader may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub offset: i64,
    /// Exclusive.
    pub bound: i64,
    pub max_bytes: u32,
    pub at_least_one: bool,
}

/// See the module.
pub struct TailCache {
    budget_bytes: usize,
    used_bytes: usize,
    next_seq: u64,
    logs: FxHashMap<u32, VecDeque<Cached>>,
    /// (slot, seq) of all batches, oldest first, and of some that are gone: they are skipped when their turn comes.
    order: VecDeque<(u32, u64)>,
    /// Batches that are here.
    live: usize,
    arena: BytesMut,
    /// Handles on full chunks, oldest first.
    retired: VecDeque<BytesMut>,
}

impl TailCache {
    pub fn new(budget_bytes: usize) -> TailCache {
        TailCache {
            budget_bytes,
            used_bytes: 0,
            next_seq: 0,
            logs: FxHashMap::default(),
            order: VecDeque::new(),
            live: 0,
            arena: BytesMut::new(),
            retired: VecDeque::new(),
        }
    }

    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Another budget, from now on.
    pub fn set_budget(&mut self, budget_bytes: usize) {
        self.budget_bytes = budget_bytes;
        self.evict();
    }

    /// The pieces to write of a batch that is not taken in. What is here of its log leaves bit by bit.
    pub fn pass(&mut self, fresh: &Fresh<'_>) -> Chunks {
        for _ in 0..PASS_EVICTS {
            self.pop(fresh.slot);
        }
        self.skip_gone();
        let mut chunks = Chunks::new();
        chunks.push(self.copy(fresh.header, &[]));
        chunks.push(fresh.batch.slice(HEADER_LEN..));
        chunks
    }

    /// Takes a batch in and gives back the pieces to write.
    pub fn push(&mut self, fresh: &Fresh<'_>) -> Chunks {
        let chunks = self.chunks_of(fresh);
        self.end_gap(fresh);
        let seq = self.next_seq;
        self.next_seq += 1;
        self.used_bytes += fresh.batch.len();
        self.live += 1;
        self.order.push_back((fresh.slot, seq));
        self.logs.entry(fresh.slot).or_default().push_back(Cached {
            seq,
            base_offset: fresh.base_offset,
            last_offset: fresh.last_offset,
            at: fresh.at,
            chunks: chunks.clone(),
        });
        self.evict();
        chunks
    }

    /// Drops all batches of a slot.
    pub fn forget(&mut self, slot: u32) {
        if let Some(batches) = self.logs.remove(&slot) {
            self.used_bytes -= batches.iter().map(Cached::len).sum::<usize>();
            self.live -= batches.len();
        }
        self.skip_gone();
    }

    /// The batches of the window, beginning with the one that holds its offset; `None` if that one is not here. Whole batches only;
    /// nothing if not even the first fits and it need not.
    pub fn read(&self, slot: u32, window: Window) -> Option<Chunks> {
        let batches = self.logs.get(&slot)?;
        let first = index_of(batches, window.offset)?;
        let mut chunks = Chunks::new();
        let mut taken = 0;
        for batch in batches.range(first..) {
            let len = batch.len();
            let fits = taken + len <= window.max_bytes as usize;
            let must = window.at_least_one && taken == 0;
            if batch.base_offset >= window.bound || !(fits || must) {
                break;
            }
            taken += len;
            chunks.extend(batch.chunks.iter().cloned());
        }
        Some(chunks)
    }

    /// Where the batch that holds `offset` begins, in bytes appended to its log since that was opened.
    pub fn position(&self, slot: u32, offset: i64) -> Option<u64> {
        let batches = self.logs.get(&slot)?;
        index_of(batches, offset).map(|at| batches[at].at)
    }

    fn evict(&mut self) {
        while self.used_bytes > self.budget_bytes {
            let Some((slot, seq)) = self.order.pop_front() else {
                return;
            };
            if self.is_here(slot, seq) {
                self.pop(slot);
            }
        }
    }

    /// Drops the oldest batch of a slot.
    fn pop(&mut self, slot: u32) {
        if let Some(batch) = self.logs.get_mut(&slot).and_then(VecDeque::pop_front) {
            self.used_bytes -= batch.len();
            self.live -= 1;
        }
    }

    /// Batches of one slot leave in order, so the front one tells.
    fn is_here(&self, slot: u32, seq: u64) -> bool {
        let first = self.logs.get(&slot).and_then(VecDeque::front);
        first.is_some_and(|first| first.seq <= seq)
    }

    /// Keeps the order from filling with batches that are gone.
    fn skip_gone(&mut self) {
        if self.order.len() <= 2 * self.live + GONE_MAX {
            return;
        }
        let mut order = std::mem::take(&mut self.order);
        order.retain(|&(slot, seq)| self.is_here(slot, seq));
        self.order = order;
    }

    /// Batches before one that was passed are not read any more: what a reader gets has no gaps.
    fn end_gap(&mut self, fresh: &Fresh<'_>) {
        let last = self.logs.get(&fresh.slot).and_then(VecDeque::back);
        if last.is_some_and(|last| last.last_offset + 1 != fresh.base_offset) {
            self.forget(fresh.slot);
        }
    }

    fn chunks_of(&mut self, fresh: &Fresh<'_>) -> Chunks {
        let rest = fresh.batch.slice(HEADER_LEN..);
        let mut chunks = Chunks::new();
        if fresh.batch.len() <= COPY_BYTES_MAX {
            chunks.push(self.copy(fresh.header, &rest));
        } else {
            chunks.push(self.copy(fresh.header, &[]));
            chunks.push(rest);
        }
        chunks
    }

    fn copy(&mut self, header: &[u8], rest: &[u8]) -> Bytes {
        let len = header.len() + rest.len();
        if self.arena.capacity() < len {
            let next = self.next_arena();
            self.retired
                .push_back(std::mem::replace(&mut self.arena, next));
        }
        self.arena.extend_from_slice(header);
        self.arena.extend_from_slice(rest);
        self.arena.split().freeze()
    }

    /// The oldest chunk that nobody reads any more, else a new one.
    fn next_arena(&mut self) -> BytesMut {
        const TRIES: usize = 4;
        // Those that slow readers hold for long are left to them, and what was taken for many readers goes when they are gone.
        while self.retired.len() > 2 * self.used_bytes / ARENA_BYTES + TRIES {
            self.retired.pop_front();
        }
        for at in 0..self.retired.len().min(TRIES) {
            if self.retired[at].try_reclaim(ARENA_BYTES)
                && let Some(arena) = self.retired.remove(at)
            {
                return arena;
            }
        }
        BytesMut::with_capacity(ARENA_BYTES)
    }
}

fn index_of(batches: &VecDeque<Cached>, offset: i64) -> Option<usize> {
    let at = batches.partition_point(|batch| batch.last_offset < offset);
    let batch = batches.get(at)?;
    // The oldest batch here may begin above the offset.
    (at > 0 || batch.base_offset <= offset).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(cache: &mut TailCache, slot: u32, base: i64, count: i64, len: usize, at: u64) {
        let batch = Bytes::from(vec![slot as u8; len]);
        let chunks = cache.push(&Fresh {
            slot,
            base_offset: base,
            last_offset: base + count - 1,
            at,
            header: &[0xee; HEADER_LEN],
            batch: &batch,
        });
        let written: Vec<u8> = chunks.iter().flatten().copied().collect();
        assert_eq!(written[..HEADER_LEN], [0xee; HEADER_LEN]);
        assert_eq!(written[HEADER_LEN..], batch[HEADER_LEN..]);
    }

    fn window(offset: i64, bound: i64, max_bytes: u32, at_least_one: bool) -> Window {
        Window {
            offset,
            bound,
            max_bytes,
            at_least_one,
        }
    }

    fn read(cache: &TailCache, window: Window) -> Option<usize> {
        let chunks = cache.read(1, window)?;
        Some(chunks.iter().map(Bytes::len).sum())
    }

    #[test]
    fn a_read_begins_with_the_batch_that_holds_the_offset_and_ends_before_the_bound() {
        let mut cache = TailCache::new(1 << 20);
        for at in 0..4 {
            push(&mut cache, 1, at * 10, 10, 100, at as u64 * 100);
        }
        assert_eq!(read(&cache, window(15, 40, 1000, true)), Some(300));
        assert_eq!(read(&cache, window(10, 30, 1000, true)), Some(200));
        assert_eq!(read(&cache, window(0, 40, 250, true)), Some(200));
        assert_eq!(read(&cache, window(0, 40, 50, true)), Some(100));
        assert_eq!(read(&cache, window(0, 40, 50, false)), Some(0));
        assert_eq!(read(&cache, window(40, 40, 50, false)), None);
        assert_eq!(cache.position(1, 25), Some(200));
        assert_eq!(cache.position(2, 25), None);
    }

    #[test]
    fn the_oldest_batches_of_all_logs_leave_first() {
        let mut cache = TailCache::new(300);
        push(&mut cache, 1, 0, 10, 100, 0);
        push(&mut cache, 2, 0, 10, 100, 0);
        push(&mut cache, 1, 10, 10, 100, 100);
        push(&mut cache, 1, 20, 10, 100, 200);
        assert_eq!(cache.used_bytes(), 300);
        assert_eq!(read(&cache, window(9, 30, 1000, true)), None);
        assert_eq!(read(&cache, window(10, 30, 1000, true)), Some(200));
        assert_eq!(cache.position(2, 0), Some(0));
    }

    #[test]
    fn a_forgotten_slot_can_be_used_again() {
        let mut cache = TailCache::new(300);
        push(&mut cache, 1, 0, 10, 100, 0);
        cache.forget(1);
        assert_eq!(cache.used_bytes(), 0);
        push(&mut cache, 1, 500, 10, 100, 0);
        push(&mut cache, 1, 510, 10, 100, 100);
        push(&mut cache, 1, 520, 10, 100, 200);
        // The stale entry of the first batch must not take the new one with it.
        assert_eq!(read(&cache, window(500, 530, 1000, true)), Some(300));
        push(&mut cache, 1, 530, 10, 100, 300);
        assert_eq!(read(&cache, window(500, 540, 1000, true)), None);
        assert_eq!(read(&cache, window(510, 540, 1000, true)), Some(300));
    }

    #[test]
    fn a_batch_that_was_passed_leaves_no_gap_in_what_is_read() {
        let mut cache = TailCache::new(1 << 20);
        push(&mut cache, 1, 0, 10, 100, 0);
        let passed = Bytes::from(vec![1; 100]);
        let chunks = cache.pass(&Fresh {
            slot: 1,
            base_offset: 10,
            last_offset: 19,
            at: 100,
            header: &[0xee; HEADER_LEN],
            batch: &passed,
        });
        assert_eq!(chunks.concat()[..HEADER_LEN], [0xee; HEADER_LEN]);
        assert_eq!(chunks.concat()[HEADER_LEN..], passed[HEADER_LEN..]);
        push(&mut cache, 1, 20, 10, 100, 200);
        assert_eq!(cache.used_bytes(), 100);
        assert_eq!(read(&cache, window(0, 30, 1000, true)), None);
        assert_eq!(read(&cache, window(10, 30, 1000, true)), None);
        assert_eq!(read(&cache, window(20, 30, 1000, true)), Some(100));
    }

    #[test]
    fn a_log_that_nobody_reads_any_more_leaves_bit_by_bit() {
        let mut cache = TailCache::new(64 << 20);
        for at in 0..10_000 {
            push(&mut cache, 1, at, 1, 1000, at as u64 * 1000);
        }
        let batch = Bytes::from(vec![1; 1000]);
        for at in 10_000..13_000 {
            cache.pass(&Fresh {
                slot: 1,
                base_offset: at,
                last_offset: at,
                at: at as u64 * 1000,
                header: &[0xee; HEADER_LEN],
                batch: &batch,
            });
        }
        assert_eq!((cache.used_bytes(), cache.live), (0, 0));
        assert!(cache.order.len() <= GONE_MAX, "{}", cache.order.len());
        for _ in 0..5000 {
            push(&mut cache, 2, 0, 1, 1000, 0);
            cache.forget(2);
        }
        assert!(cache.order.len() <= GONE_MAX, "{}", cache.order.len());
        assert!(cache.retired.len() <= 6, "{}", cache.retired.len());
    }

    #[test]
    fn memory_of_evicted_batches_is_used_again() {
        let mut cache = TailCache::new(ARENA_BYTES);
        for at in 0..10_000 {
            push(&mut cache, 1, at, 1, 1000, at as u64 * 1000);
        }
        assert!(cache.retired.len() <= 3, "{}", cache.retired.len());
    }

    #[test]
    fn a_large_batch_is_not_copied() {
        let mut cache = TailCache::new(1 << 20);
        let batch = Bytes::from(vec![7; COPY_BYTES_MAX + 1]);
        let chunks = cache.push(&Fresh {
            slot: 1,
            base_offset: 0,
            last_offset: 0,
            at: 0,
            header: &[0; HEADER_LEN],
            batch: &batch,
        });
        assert_eq!(chunks[1].as_ptr(), batch[HEADER_LEN..].as_ptr());
    }
}
