//! A core's pool of receive and read buffers, by size class.
//!
//! A buffer leaves as `BytesMut`, its parts are handed on as `Bytes`, and what is left of it comes
//! back by `give`. While parts of it live elsewhere the remainder waits in a list of lent buffers;
//! `BytesMut::try_reclaim` gets the whole allocation back when the last part is gone. After warm-up
//! the pool does not allocate.
//!
//! What the pool keeps is bounded: free buffers by bytes; what exceeds the bound is simply freed. A lent
//! remainder pins its whole allocation, so each `take` looks at some of them, and the owner calls
//! `settle` now and then: what nobody uses any more is not held for long. The pool does not bound what
//! is *in use*: credits do (see `credits`).

use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;

/// The sizes that are pooled. Larger requests are allocated exactly and freed after use.
pub const SIZE_CLASSES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// Lent buffers looked at per `take`: more would make one turn pay for many, fewer would let
/// reclaimable buffers wait behind long-lived ones. A `take` is followed by one `give` at most, so the
/// list gets no longer by what is lent for a short time.
const RECLAIMS_PER_TAKE: usize = 8;

/// How often a lent buffer is looked at before it is forgotten: its parts live long, or it never owned
/// memory.
const TRIES_MAX: u8 = 32;

/// Lent remainders remembered: beyond it their memory is freed with the last part, not reused.
const LENT_MAX: usize = 4096;

/// Up to this size a request gets a buffer of a class, however small it is.
const ROUNDED_UP_MAX: usize = 64 << 10;

#[derive(Debug)]
pub struct BufferPool {
    free: [Vec<BytesMut>; SIZE_CLASSES.len()],
    lent: VecDeque<(BytesMut, u8)>,
    free_bytes: usize,
    free_bytes_max: usize,
    allocations: u64,
}

impl BufferPool {
    /// Keeps at most `free_bytes_max` bytes of unused buffers.
    pub fn new(free_bytes_max: usize) -> Self {
        Self {
            free: std::array::from_fn(|_| Vec::new()),
            lent: VecDeque::new(),
            free_bytes: 0,
            free_bytes_max,
            allocations: 0,
        }
    }

    /// An empty buffer with room for at least `capacity` bytes.
    pub fn take(&mut self, capacity: usize) -> BytesMut {
        self.look(RECLAIMS_PER_TAKE);
        let Some(class) = class_for(capacity) else {
            self.allocations += 1;
            return BytesMut::with_capacity(capacity);
        };
        if let Some(buffer) = self.free[class].pop() {
            self.free_bytes -= SIZE_CLASSES[class];
            return buffer;
        }
        self.allocations += 1;
        BytesMut::with_capacity(SIZE_CLASSES[class])
    }

    /// Takes back a buffer, or what is left of it after parts were split off; its content is dropped.
    pub fn give(&mut self, mut buffer: BytesMut) {
        buffer.clear();
        self.sort(buffer, 0);
    }

    /// Takes back an immutable part if it is the last one of its buffer; else only drops it.
    pub fn give_bytes(&mut self, bytes: Bytes) {
        if let Ok(buffer) = bytes.try_into_mut() {
            self.give(buffer);
        }
    }

    /// Bytes of unused buffers held now.
    pub fn free_bytes(&self) -> usize {
        self.free_bytes
    }

    /// Buffers whose parts were still in use when last looked at.
    pub fn lent(&self) -> usize {
        self.lent.len()
    }

    /// Buffers allocated since the start; constant after warm-up.
    pub fn allocations(&self) -> u64 {
        self.allocations
    }

    /// Looks at everything that was lent: to be called now and then, also when nobody takes.
    pub fn settle(&mut self) {
        self.look(self.lent.len());
    }

    fn look(&mut self, count: usize) {
        for _ in 0..count.min(self.lent.len()) {
            if let Some((buffer, tries)) = self.lent.pop_front() {
                self.sort(buffer, tries + 1);
            }
        }
    }

    fn sort(&mut self, mut buffer: BytesMut, tries: u8) {
        match whole_class(&mut buffer) {
            Whole::Class(class) => self.keep(class, buffer),
            Whole::NotPooled => {}
            Whole::Lent if tries < TRIES_MAX && self.lent.len() < LENT_MAX => {
                self.lent.push_back((buffer, tries));
            }
            Whole::Lent => {}
        }
    }

    fn keep(&mut self, class: usize, buffer: BytesMut) {
        if self.free_bytes + SIZE_CLASSES[class] <= self.free_bytes_max {
            self.free_bytes += SIZE_CLASSES[class];
            self.free[class].push(buffer);
        }
    }
}

enum Whole {
    /// The whole allocation is ours, of this class.
    Class(usize),
    /// The whole allocation is ours and of no class.
    NotPooled,
    /// Parts of it live elsewhere.
    Lent,
}

/// The smallest class that fits; none if it is large and more than twice what is asked for, as that much is not paid for.
fn class_for(capacity: usize) -> Option<usize> {
    let class = SIZE_CLASSES.iter().position(|&size| size >= capacity)?;
    let size = SIZE_CLASSES[class];
    (size <= ROUNDED_UP_MAX || size / 2 <= capacity).then_some(class)
}

/// `try_reclaim` of one byte more than there is succeeds exactly if nobody else holds a part and
/// the allocation is larger than this remainder. A buffer that has a class's size is taken as whole: a
/// remainder of just that size is as good as one.
fn whole_class(buffer: &mut BytesMut) -> Whole {
    let exact = |capacity| SIZE_CLASSES.iter().position(|&size| size == capacity);
    if let Some(class) = exact(buffer.capacity()) {
        return Whole::Class(class);
    }
    let larger = buffer.capacity() + 1;
    if buffer.try_reclaim(larger) {
        return exact(buffer.capacity()).map_or(Whole::NotPooled, Whole::Class);
    }
    if buffer.capacity() > SIZE_CLASSES[SIZE_CLASSES.len() - 1] {
        return Whole::NotPooled;
    }
    Whole::Lent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_gets_the_smallest_class_that_fits() {
        let mut pool = BufferPool::new(1 << 20);
        assert_eq!(pool.take(1).capacity(), 4 << 10);
        assert_eq!(pool.take(4097).capacity(), 16 << 10);
        assert_eq!(pool.take((1 << 20) + 1).capacity(), (1 << 20) + 1);
    }

    #[test]
    fn a_buffer_comes_back_when_its_last_part_is_gone() {
        let mut pool = BufferPool::new(1 << 20);
        let mut buffer = pool.take(4096);
        buffer.extend_from_slice(&[1; 1000]);
        let part = buffer.split_to(600).freeze();
        pool.give(buffer);
        assert_eq!((pool.lent(), pool.free_bytes()), (1, 0));
        let other = pool.take(4096);
        assert_eq!(pool.allocations(), 2, "the first buffer is still lent");
        drop(part);
        let again = pool.take(4096);
        assert_eq!(
            (pool.allocations(), again.capacity(), again.len()),
            (2, 4096, 0)
        );
        drop((other, again));
    }

    #[test]
    fn what_was_lent_of_a_large_buffer_is_not_held_when_its_parts_are_gone() {
        let mut pool = BufferPool::new(1 << 20);
        for _ in 0..100 {
            let mut buffer = pool.take(3 << 20);
            buffer.extend_from_slice(&[7; 1000]);
            buffer.truncate(1000);
            let part = buffer.split_to(1000).freeze();
            let rest = buffer.split_off(0);
            let end = rest.capacity();
            pool.give(buffer);
            drop((part, rest));
            assert!(pool.lent() <= 1, "{} of {end}", pool.lent());
        }
        pool.settle();
        assert_eq!(pool.lent(), 0);
    }

    #[test]
    fn a_class_that_is_much_too_large_is_not_used() {
        let mut pool = BufferPool::new(1 << 20);
        assert_eq!(pool.take((256 << 10) + 1).capacity(), (256 << 10) + 1);
        assert_eq!(pool.take(512 << 10).capacity(), 1 << 20);
        assert_eq!(pool.take((16 << 10) + 1).capacity(), 64 << 10);
    }

    #[test]
    fn steady_use_does_not_allocate() {
        let mut pool = BufferPool::new(1 << 20);
        for _ in 0..100 {
            let mut buffer = pool.take(10_000);
            buffer.extend_from_slice(&[7; 9000]);
            let parts: Vec<_> = (0..3).map(|_| buffer.split_to(3000).freeze()).collect();
            pool.give(buffer);
            drop(parts);
        }
        assert_eq!(pool.allocations(), 1);
    }

    #[test]
    fn a_buffer_used_to_its_last_byte_comes_back_too() {
        let mut pool = BufferPool::new(1 << 20);
        for _ in 0..10 {
            let mut buffer = pool.take(4096);
            buffer.extend_from_slice(&[1; 4096]);
            let all = buffer.split_to(4096).freeze();
            pool.give(buffer);
            drop(all);
        }
        assert_eq!(pool.allocations(), 1);
    }

    #[test]
    fn a_buffer_without_memory_is_forgotten() {
        let mut pool = BufferPool::new(1 << 20);
        pool.give(BytesMut::new());
        for _ in 0..=TRIES_MAX {
            drop(pool.take(1));
        }
        assert_eq!(pool.lent(), 0);
    }

    #[test]
    fn what_is_kept_is_bounded_by_bytes() {
        let mut pool = BufferPool::new(5 << 10);
        let (first, second) = (pool.take(4096), pool.take(4096));
        pool.give(first);
        pool.give(second);
        assert_eq!(pool.free_bytes(), 4096);
    }

    #[test]
    fn one_off_sizes_are_not_kept() {
        let mut pool = BufferPool::new(64 << 20);
        let mut large = pool.take(3 << 20);
        large.extend_from_slice(&[0; 100]);
        let part = large.split_to(100).freeze();
        pool.give(large);
        pool.give_bytes(part);
        assert_eq!((pool.free_bytes(), pool.lent()), (0, 0));
    }
}
