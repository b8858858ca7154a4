//! The metadata image: what this node knows of the cluster. Changed by metadata records only; immutable once published.

mod image;
mod topic_config;

pub use image::{Broker, Image, PartitionMeta, Topic};
pub use topic_config::{CleanupPolicy, CompressionType, TimestampType, TopicConfig};
