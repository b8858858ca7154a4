//! Keeps dirty pages few and old pages out of the cache: pure bookkeeping.
//!
//! With a full page cache plain buffered writes stall for tens of milliseconds. Each time a log crosses a
//! window, writeback of that window is started, the one some windows back is finished, and pages
//! further back are dropped. The engine issues the steps through the ring (`Turn::sync_range`,
//! `Turn::advise`), off the turn. Started and finished writeback is no fdatasync.
//!
//! What the caller must do: report each append, issue the steps, report each finished `Finish`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Windows between the one being written and the one whose writeback is waited for: fewer and the wait
/// is long, more and dirty pages pile up.
const FINISH_DISTANCE: usize = 2;

/// A range of a file, half-open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub start: u64,
    pub end: u64,
}

impl Range {
    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

/// What to do with a range now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// `RangeSync::Start`.
    Start(Range),
    /// `RangeSync::Finish`; its completion goes to `finished`.
    Finish(Range),
    /// `Advice::DontNeed`.
    Drop(Range),
}

/// Write-behind of one file.
#[derive(Debug)]
pub struct WriteBehind {
    window: u64,
    /// Finished windows whose pages stay cached, for consumers near the tail.
    cached_windows: usize,
    /// Everything before is started.
    started_end: u64,
    started: VecDeque<Range>,
    finished: VecDeque<Range>,
}

impl WriteBehind {
    /// For a file whose next append is at `position`. A window of 0 leaves everything to the kernel.
    pub fn new(position: u64, window: u32, cached_windows: usize) -> Self {
        Self {
            window: u64::from(window),
            cached_windows,
            started_end: position,
            started: VecDeque::new(),
            finished: VecDeque::new(),
        }
    }

    /// The file has been written up to `end`; adds what to do to `steps`.
    pub fn appended(&mut self, end: u64, steps: &mut Vec<Step>) {
        if self.window == 0 {
            return;
        }
        while let Some(range) = self.next_window(end) {
            self.started_end = range.end;
            self.started.push_back(range);
            steps.push(Step::Start(range));
        }
        while self.started.len() > FINISH_DISTANCE {
            steps.extend(self.started.pop_front().map(Step::Finish));
        }
    }

    /// Windows end at multiples of their size, so the first of a file may be shorter.
    fn next_window(&self, end: u64) -> Option<Range> {
        let window_end = (self.started_end / self.window + 1) * self.window;
        (window_end <= end).then_some(Range {
            start: self.started_end,
            end: window_end,
        })
    }

    /// Writeback of this range is over; adds what to do to `steps`.
    pub fn finished(&mut self, range: Range, steps: &mut Vec<Step>) {
        self.finished.push_back(range);
        while self.finished.len() > self.cached_windows {
            steps.extend(self.finished.pop_front().map(Step::Drop));
        }
    }

    /// The file was cut to `end`: ranges beyond it are no more.
    pub fn truncated(&mut self, end: u64) {
        self.started_end = self.started_end.min(end);
        for ranges in [&mut self.started, &mut self.finished] {
            ranges.retain(|range| range.start < end);
            for range in ranges.iter_mut() {
                range.end = range.end.min(end);
            }
        }
    }

    /// The file is sealed with this length: starts the rest and finishes all.
    pub fn sealed(&mut self, end: u64, steps: &mut Vec<Step>) {
        self.appended(end, steps);
        if self.window > 0 && self.started_end < end {
            let rest = Range {
                start: self.started_end,
                end,
            };
            self.started_end = end;
            self.started.push_back(rest);
        }
        steps.extend(self.started.drain(..).map(Step::Finish));
    }
}

/// Bytes written to a device and not yet written back, over all cores; clones share it. Within the
/// limit a write is cheap and may be done inline; beyond it the kernel may make the writer wait.
#[derive(Clone, Debug)]
pub struct DirtyBudget(Arc<Budget>);

#[derive(Debug)]
struct Budget {
    dirty: AtomicU64,
    limit: u64,
}

/// Which way a write takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritePath {
    /// `File::write_all_at` on the core.
    Inline,
    /// `Turn::write`: a stalled disk stops credits and not the core.
    Ring,
}

impl DirtyBudget {
    pub fn new(limit: u64) -> Self {
        Self(Arc::new(Budget {
            dirty: AtomicU64::new(0),
            limit,
        }))
    }

    /// Counts a write that is about to be made, and says which way it takes.
    pub fn write(&self, bytes: u64) -> WritePath {
        let before = self.0.dirty.fetch_add(bytes, Ordering::AcqRel);
        if before.saturating_add(bytes) <= self.0.limit {
            WritePath::Inline
        } else {
            WritePath::Ring
        }
    }

    /// Writeback of so many bytes is over, or their file is gone.
    pub fn written_back(&self, bytes: u64) {
        // A range may be finished twice, by its window and by an fdatasync: never below zero.
        let less = |dirty: u64| Some(dirty.saturating_sub(bytes));
        let subtracted = self
            .0
            .dirty
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        debug_assert!(subtracted.is_ok(), "the subtraction always has a result");
    }

    pub fn dirty(&self) -> u64 {
        self.0.dirty.load(Ordering::Acquire)
    }

    pub fn limit(&self) -> u64 {
        self.0.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(start: u64, end: u64) -> Range {
        Range { start, end }
    }

    #[test]
    fn each_window_is_started_then_finished_then_dropped() {
        let mut behind = WriteBehind::new(0, 10, 1);
        let mut steps = Vec::new();
        behind.appended(9, &mut steps);
        assert_eq!(steps, []);
        behind.appended(25, &mut steps);
        assert_eq!(
            steps,
            [Step::Start(range(0, 10)), Step::Start(range(10, 20))]
        );
        steps.clear();
        behind.appended(30, &mut steps);
        assert_eq!(
            steps,
            [Step::Start(range(20, 30)), Step::Finish(range(0, 10))]
        );
        steps.clear();
        behind.finished(range(0, 10), &mut steps);
        assert_eq!(steps, [], "one finished window stays cached");
        behind.finished(range(10, 20), &mut steps);
        assert_eq!(steps, [Step::Drop(range(0, 10))]);
    }

    #[test]
    fn a_sealed_file_is_finished_to_its_end() {
        let mut behind = WriteBehind::new(0, 10, 0);
        let mut steps = Vec::new();
        behind.appended(12, &mut steps);
        steps.clear();
        behind.sealed(15, &mut steps);
        assert_eq!(
            steps,
            [Step::Finish(range(0, 10)), Step::Finish(range(10, 15))]
        );
    }

    #[test]
    fn a_window_of_zero_leaves_it_to_the_kernel() {
        let mut behind = WriteBehind::new(0, 0, 0);
        let mut steps = Vec::new();
        behind.appended(1 << 40, &mut steps);
        behind.sealed(1 << 41, &mut steps);
        assert_eq!(steps, []);
    }

    #[test]
    fn after_a_cut_the_windows_begin_there() {
        let mut behind = WriteBehind::new(0, 10, 0);
        let mut steps = Vec::new();
        behind.appended(20, &mut steps);
        behind.truncated(13);
        steps.clear();
        behind.appended(20, &mut steps);
        assert_eq!(
            steps,
            [Step::Start(range(13, 20)), Step::Finish(range(0, 10))]
        );
    }

    #[test]
    fn beyond_the_dirty_budget_writes_take_the_ring() {
        let budget = DirtyBudget::new(100);
        assert_eq!(budget.write(100), WritePath::Inline);
        assert_eq!(budget.write(1), WritePath::Ring);
        budget.written_back(60);
        assert_eq!((budget.dirty(), budget.write(59)), (41, WritePath::Inline));
        budget.written_back(1000);
        assert_eq!(budget.dirty(), 0);
    }

    proptest! {
        #[test]
        fn started_ranges_cover_the_file_once(start in 0u64..50, window in 1u32..30, appends in proptest::collection::vec(0u64..40, 1..50)) {
            let mut behind = WriteBehind::new(start, window, 2);
            let (mut end, mut steps) = (start, Vec::new());
            for append in appends {
                end += append;
                behind.appended(end, &mut steps);
            }
            behind.sealed(end, &mut steps);
            let mut finished = start;
            for step in steps {
                if let Step::Finish(range) = step {
                    prop_assert_eq!(range.start, finished);
                    prop_assert!(!range.is_empty() && range.len() <= u64::from(window));
                    finished = range.end;
                }
            }
            prop_assert_eq!(finished, end);
        }
    }
}
