//! What travels from core to core. The freight lies in a slot table; the ring carries the slot's key.

use corelog_io::slots::{SlotKey, Slots};
use corelog_shards::base::ids::{ReplyTo, ShardId};
use corelog_shards::effect::Message;
use corelog_shards::part::{Part, Reply};

/// One place in a ring.
pub(super) enum Hop {
    /// Take the freight out of the slot table.
    Freight(SlotKey),
    /// Nobody waits for this part any more.
    Cancel { shard: ShardId, to: ReplyTo },
}

pub(super) enum Freight {
    Part {
        shard: ShardId,
        to: ReplyTo,
        part: Part,
    },
    Reply {
        to: ReplyTo,
        reply: Reply,
    },
    Message {
        from: ShardId,
        to: ShardId,
        message: Message,
    },
}

/// The in-flight table of all cores: filled on one core, emptied on another.
pub(super) type Hops = Slots<Freight>;
