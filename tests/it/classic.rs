//! The cases of `main.rs` on the classic engine, what only that one has, and what must be the same on both.
#![allow(
    clippy::unwrap_used,
    reason = "what cannot be unwrapped is the case's failure"
)]
#![allow(
    clippy::case_sensitive_file_extension_comparisons,
    reason = "the broker's own files have names of one case"
)]

/// What the brokers of all cases run on.
const ENGINE: broker::Engine = broker::Engine::Classic;

include!("cases.rs");

mod classic_only;
mod same_answers;
