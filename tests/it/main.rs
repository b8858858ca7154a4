//! The real binary, spoken to over real sockets: on the per-core engine here, on the classic one in `classic.rs`. The cases are the same (`cases.rs`);
//! `classic_only.rs` has what is there on that engine only, and `same_answers.rs` holds the answers of both equal.
//!
//! Every case starts a broker of its own on an empty directory ([`broker::Home`]), sends raw frames made by the wire crate's codecs
//! ([`client::Client`]) and ends the broker. Nothing waits for ever: sockets time out, polls have a deadline, and a broker that outlives its case
//! is killed, which fails what still reads from it.
//!
//! Not here: other people's clients (`tests/clients`), crashes in long loops (`tests/crash`), speed (`perf`).
#![allow(
    clippy::unwrap_used,
    reason = "what cannot be unwrapped is the case's failure"
)]
#![allow(
    clippy::case_sensitive_file_extension_comparisons,
    reason = "the broker's own files have names of one case"
)]

/// What the brokers of all cases run on.
const ENGINE: broker::Engine = broker::Engine::Percore;

include!("cases.rs");
