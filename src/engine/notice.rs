//! What threads beside an engine tell it: newer images, finished slow operations, opened logs.

use std::path::PathBuf;
use std::sync::Arc;

use corelog_shards::base::ids::{Op, ShardId, TopicPartition};
use corelog_shards::event::{DiskFailure, Done};
use corelog_shards::log::{Log, OpenFailure};
use corelog_shards::metadata::Image;

use crate::api::Directories;

/// An operation whose completion a shard waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asker {
    pub(super) shard: ShardId,
    pub(super) op: Op,
}

pub(super) enum Notice {
    /// A new image; older ones are ignored.
    Image(Arc<Image>),
    Directories(Arc<Directories>),
    /// A slow operation is done.
    Done {
        asker: Asker,
        outcome: Result<Done, DiskFailure>,
    },
    /// A replica's directory is at this place now.
    Placed {
        log: TopicPartition,
        directory: PathBuf,
    },
    Opened {
        shard: ShardId,
        log: TopicPartition,
        opened: Result<Box<Log>, OpenFailure>,
    },
    /// A log directory is offline, and these replicas with it.
    Offline {
        logs: Vec<TopicPartition>,
    },
    /// The listeners are closed: shards write what a clean start needs.
    Stop,
}

/// Delivers a notice, in the order of the calls of one thread. May wait.
pub(super) type Notify = Arc<dyn Fn(Notice) + Send + Sync>;
