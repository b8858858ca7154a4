//! What the controller has to know of this node's configuration.

use crate::base::ids::{Text, Uuid};
use crate::log::Shutdown;
use crate::metadata::{Endpoint, Identity};

#[derive(Debug, Clone)]
pub struct Settings {
    pub identity: Identity,
    /// `num.partitions`, `default.replication.factor`, `delete.topic.enable`.
    pub num_partitions: i32,
    pub default_replication_factor: i16,
    pub delete_topic_enable: bool,
    pub rack: Option<Text>,
    /// The advertised listeners for clients.
    pub broker_endpoints: Vec<Endpoint>,
    /// Where a controller listener would be; may be empty.
    pub controller_endpoints: Vec<Endpoint>,
    /// The ids of the log directories that are online, sorted.
    pub log_dirs: Vec<Uuid>,
    /// How the log directories were left: after anything but a clean stop, leaders lead in a new epoch.
    pub shutdown: Shutdown,
    /// `metadata.log.max.record.bytes.between.snapshots` and `metadata.log.max.snapshot.interval.ms`.
    pub snapshot_bytes: u64,
    pub snapshot_interval_ms: u64,
    /// Randomness of this start, from the operating system: ids are made of it.
    pub seed: u64,
}
