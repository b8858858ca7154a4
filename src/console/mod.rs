//! The housekeeping thread: everything slow and rare, on one unpinned thread with ordinary libraries. It serves `/metrics`, `/healthz` and `/readyz`
//! and merges the cores' histograms. The data path never waits for it.

mod health;
mod housekeeping;
mod http;

pub use health::{BrokerState, Health};
pub use housekeeping::Housekeeping;
pub use http::{Console, ConsoleError, bind_patiently};
