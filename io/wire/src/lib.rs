//! The language: everything that has a Kafka byte layout.
#![forbid(unsafe_code)]
