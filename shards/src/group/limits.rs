//! Limits of the groups of one shard that Kafka does not have. Each is full as a value, never a wait.

/// Memory of members: their ids, metadata and assignments. Less, and a group of a thousand members that each bring 16 KiB of metadata
/// would not fit; more, and members that join in a flood would take what the data path needs. A join beyond it is told
/// COORDINATOR_NOT_AVAILABLE, and its client tries again.
pub const MEMBERS_BYTES_MAX: usize = 64 << 20;

/// What a member weighs beside the bytes that it sends: two map entries, a struct, a place among the parked.
pub const MEMBER_BYTES: usize = 640;

/// What a group weighs without members.
pub const GROUP_BYTES: usize = 512;

/// How long a new member's JoinGroup may wait while others do not come. Kafka's number (J-7): less would end joins of slow groups, more
/// would let clients that gave up pile up as members.
pub const NEW_MEMBER_JOIN_TIMEOUT_MS: u64 = 5 * 60 * 1000;

/// Tombstones that go into one batch when groups are deleted or offsets expire: far below `max.message.bytes`, and a turn stays short.
pub const TOMBSTONES_PER_BATCH: usize = 1000;

/// Groups that one tick looks at for expired offsets: a turn stays short whatever the number of groups.
pub const EXPIRE_GROUPS_PER_TICK: usize = 64;

/// Groups whose timers one tick lets act. More, and a thousand groups whose members came together would hold the core for milliseconds;
/// less, and a turn does little beside being one.
pub const GROUPS_PER_TICK: usize = 64;

/// Replies that one turn sends. More, and the answers to a group of a thousand members would hold the core for milliseconds; less, and small
/// groups would be answered in pieces.
pub const REPLIES_PER_TURN: usize = 128;
