//! The mind: pure state machines that decide.
#![forbid(unsafe_code)]
