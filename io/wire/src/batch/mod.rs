//! Record batches of magic 2 (kafka.md 3.1): reading, checking, patching and building.
//!
//! A batch stays raw bytes from socket to disk and back. [`BatchHeader`] reads its 61 bytes, [`BatchIter`] walks a run of batches, [`records`]
//! walks the records of one, [`validate`] checks what a client sent (3.3), [`builder`] makes new ones. Base offset and leader epoch lie outside the
//! checksum, so a log stamps them into a copy of the header and leaves the rest untouched.
//!
//! Not here: batches of magic 0 and 1 (old logs; recognised, not read), files, clocks.

mod builder;
mod header;
mod records;
mod rewrite;
mod search;
mod stream;
mod validate;
mod varint;

pub use builder::{BatchBuilder, NewRecord};
pub use header::{
    BatchError, BatchHeader, BatchIter, HEADER_LEN, TimestampType, Walked, checksum,
    peek_base_offset, peek_last_offset, peek_leader_epoch, peek_len, peek_magic,
    peek_max_timestamp, set_base_offset, set_leader_epoch, set_max_timestamp, set_producer,
    verify_crc,
};
pub use records::{Header, RecordError, RecordIter, RecordRef, control_type, decoded_records};
pub use search::{Found, max_timestamp_record, offset_for_timestamp};
pub use validate::{
    Action, InvalidBatch, RecordProblem, Validated, ValidationParams, validate_records,
};
