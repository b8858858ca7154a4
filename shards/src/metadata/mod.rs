//! The metadata image: what this node knows of the cluster. Changed by metadata records only; immutable once published.
//!
//! Reading order: [`image`] (what is known), [`apply`] (how records change it), [`replay`] (following a log), [`snapshot`] (the records of
//! an image), [`properties`], [`topic_config`] and [`resource_config`] (the properties that there are), [`configs`] (where a setting
//! comes from), [`features`]. Not here: who decides about changes ([`crate::controller`]).

mod apply;
pub mod configs;
pub mod features;
mod image;
pub mod properties;
mod replay;
pub mod resource_config;
mod security;
mod shelf;
pub mod snapshot;
pub mod topic_config;

pub use apply::ApplyError;
pub use image::{
    Broker, ControllerNode, Endpoint, Identity, Image, PartitionMeta, Replicas, Topic, is_internal,
};
pub use replay::Replay;
pub use security::{QuotaEntity, Security};
pub use topic_config::{CleanupPolicy, CompressionType, TimestampType, TopicConfig};
