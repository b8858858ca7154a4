//! Time is an argument. `Now` carries the monotonic clock, for waiting, and the wall clock, for what is written.

/// Microseconds of a monotonic clock with an arbitrary start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(pub u64);

impl Mono {
    /// The moment `ms` milliseconds later (saturating: "never" is far away, not a panic).
    pub fn after_ms(self, ms: u64) -> Mono {
        Mono(self.0.saturating_add(ms.saturating_mul(1000)))
    }

    /// Milliseconds from `earlier` to here; 0 when `earlier` is later.
    pub fn ms_since(self, earlier: Mono) -> u64 {
        self.0.saturating_sub(earlier.0) / 1000
    }
}

/// One reading of both clocks, taken once a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    pub mono: Mono,
    /// Milliseconds since the Unix epoch.
    pub wall_ms: i64,
}
