//! The numbers of the log, each with the reason why not more and why not less.

/// Bytes that may lie above the recovery point before the background moves it.
/// More: a crash makes the next start scan more. Less: a busy partition syncs more often than the device likes.
pub const RECOVERY_POINT_BYTES: u64 = 32 << 20;

/// How long a changed partition waits at most for its recovery point to move.
/// More: many slow partitions together leave much to scan. Less: a thousand of them would keep the device busy with syncs.
pub const RECOVERY_POINT_MS: u64 = 30_000;

/// Batches of a producer that are remembered (I-1): what the protocol allows in flight.
pub const PRODUCER_BATCHES: usize = 5;

/// Up to this size a batch is copied out of the buffer in which it came.
/// More: copying costs more than the memory that it saves. Less: small batches would pin large receive buffers.
pub const COPY_BYTES_MAX: usize = 64 << 10;

/// For so long after a fetch, or an append that a fetch waited for, new batches of a log are kept in memory.
/// More: what nobody reads any more takes memory and the work of copying. Less: a consumer between two polls finds its next batches
/// in the page cache only.
pub const FOLLOWED_MS: u64 = 5_000;

/// The unit in which memory for copied batches is taken. Must hold the largest copied batch several times over.
pub const ARENA_BYTES: usize = 256 << 10;

/// Places in a log at which readers are expected to go on. A partition that more groups than this read in step looks
/// positions up in the index instead.
pub const CURSORS: usize = 4;

/// Sealed indexes of one log that are held at a time. A reader needs one, a search by time two.
pub const MAPS: usize = 4;

/// A segment smaller than this is scanned from its start: cheaper than to fetch its index.
pub const SCAN_WITHOUT_INDEX_BYTES: u64 = 32 << 10;

/// The least that is asked of the disk in one read.
pub const READ_BYTES_MIN: u64 = 16 << 10;

/// The most that is read from disk for one reader at once, unless one batch is larger.
/// More: a client that asks for much takes the memory of others. Less: a reader that catches up needs more round trips.
pub const READ_BYTES_MAX: u64 = 4 << 20;

/// The most that a search by time reads at once.
pub const TIME_SCAN_BYTES: u64 = 256 << 10;

/// The most that recovery holds of a log at once, unless one batch is larger.
pub const RECOVERY_READ_BYTES: u64 = 4 << 20;

/// A reply of more pieces than this is copied together: the kernel takes at most 1024 pieces in one call, and many tiny
/// ones cost more there than a copy here.
pub const READ_PIECES_MAX: usize = 64;

/// At a start, producers are replayed from up to so many bytes before the newest snapshot, so that their last [`PRODUCER_BATCHES`] are
/// known again, and not only the last one, which is all that a snapshot holds (kafka.md 5.2).
/// More: a start reads more of each busy partition. Less would not hold what one client may have in flight: five batches of 1 MiB.
pub const REPLAY_BYTES_MAX: u64 = 8 << 20;

const _: () = assert!(ARENA_BYTES >= 4 * COPY_BYTES_MAX);
