//! Configuration under Kafka's names.
//!
//! [`settings::Settings`] reads a file and overrides, checks every value against the [`table`] and says what is unknown, before anything is touched.
//! [`broker::BrokerConfig`] is the same, typed, for the engine. [`format`] gives directories their identity ([`meta`]).
//!
//! Not here: dynamic configuration (records of the metadata log), topic properties (`corelog_shards::metadata`).

pub mod properties;
pub mod table;
pub mod value;

pub mod settings;

pub mod listeners;
pub mod memory;

pub mod broker;

pub mod format;
pub mod meta;

pub use broker::{BrokerConfig, EngineKind};
pub use settings::{ConfigError, Settings};
