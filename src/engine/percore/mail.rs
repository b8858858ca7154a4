//! What reaches a core from threads that are no cores: new sockets, new images, finished slow operations.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use corelog_io::inbox::InboxSender;
use corelog_io::net::Socket;
use corelog_shards::base::ids::{ShardId, TopicPartition};
use corelog_shards::event::{DiskFailure, Done};
use corelog_shards::log::{Log, OpenFailure};
use corelog_shards::metadata::Image;

use super::disk::Asker;
use crate::api::Directories;

pub(super) enum Mail {
    /// An accepted connection, before its first byte is read.
    Socket {
        socket: Socket,
        peer: IpAddr,
        listener: u8,
    },
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
    /// Another core has given credits back that this one waits for.
    Credits,
    /// The listeners are closed: shards write what a clean start needs.
    Stop,
}

/// Messages that may wait for a core. More would hide that it stands still; less would make recovery of many logs wait for it.
pub(super) const MAIL_MAX: usize = 16_384;

/// Delivers what must arrive. When the core has not taken its mail for long, the sender waits: it has nothing better to do.
pub(super) fn post(to: &InboxSender<Mail>, mail: Mail) {
    let mut mail = mail;
    while let Err(back) = to.push(mail) {
        mail = back;
        thread::sleep(Duration::from_millis(1));
    }
}
