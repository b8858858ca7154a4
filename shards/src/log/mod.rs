//! One partition's log: segments, indexes, producer state, epochs; append, read, roll, retention, recovery.
//!
//! A [`Log`] decides and never acts: it emits `Effect`s and is told what came of them. Its files are those of Apache Kafka, byte for
//! byte (kafka.md 5.1 and 5.2). Reading order: `partition_log`, `append`, `ends`, `settle`, `read`, `time_search`, `retention`, `recovery`,
//! `restore`, then what they stand on.
//!
//! Not here: validation of batches, the high watermark, and who may read how far; those are the partition's.

pub mod append;
pub mod checkpoint_format;
pub mod limits;
pub mod partition_log;
pub mod producers;
pub mod read;
pub mod recovery;
pub mod tail_cache;
pub mod time_search;

mod aborted;
mod batch_walk;
mod ends;
mod epochs;
mod listing;
mod marker;
mod offset_index;
mod restore;
mod retention;
mod scan;
mod segment;
mod settle;
mod time_index;

#[cfg(test)]
mod tests;

pub use append::{AckAfter, AppendBatch, AppendRefused, Appended};
pub use partition_log::{Log, Progress};
pub use producers::Origin;
pub use read::{Available, Finished, ReadFailed, ReadOutcome, ReadRequest};
pub use recovery::{DirEntry, DiskOrder, RecoveryInput, Shutdown, recover};
pub use tail_cache::TailCache;
pub use time_search::{TimeOffset, TimeOutcome, TimeTarget};

/// Why a log could not be opened. The partition's directory is offline then.
#[derive(Debug, Clone)]
pub struct OpenFailure {
    pub reason: String,
}
