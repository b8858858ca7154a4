//! One partition's log: segments, indexes, producer state, epochs; append, read, roll, retention, recovery.

/// A partition's log. A plain `Send` value.
pub struct Log {}

/// Why a log could not be opened. The partition's directory is offline then.
#[derive(Debug, Clone)]
pub struct OpenFailure {
    pub reason: String,
}
