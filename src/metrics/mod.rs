//! What the broker says about itself.
//!
//! Each core counts in its own cache lines ([`counters`]) and records times in its own histograms ([`latency`]); nobody else writes there, so the data
//! path takes no lock and shares no line. The housekeeping thread reads, merges and renders ([`exposition`]).
//!
//! Not here: who serves the text (`console`), traces of single requests.

pub mod counters;

pub mod latency;

pub mod pools;

pub mod exposition;
mod process;

pub use counters::{Broker, Core, Counter, CreditKind, Gauge};
pub use exposition::Metrics;
pub use latency::{Family, Recorder, Stage};
pub use pools::Pools;
