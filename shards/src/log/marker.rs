//! The record of a control batch that ends a transaction (T-6).

use bytes::Bytes;
use corelog_wire::primitives::{DecodeError, Reader};
use corelog_wire::records::control::ControlRecord;

use super::header::{BatchHeader, HEADER};
use super::producers::EndMarker;

/// What the batch says about its producer's transaction; `None` if it is no control batch of a producer, or was emptied by compaction,
/// or holds something else.
pub(super) fn end_marker(header: &BatchHeader, batch: &Bytes) -> Option<EndMarker> {
    if !header.is_control() || header.producer_id < 0 || header.record_count == 0 {
        return None;
    }
    let (timestamp_delta, key, value) = first_record(batch.slice(HEADER..)).ok()?;
    let (commit, marker) = match ControlRecord::decode(&key, &value).ok()? {
        ControlRecord::Abort(marker) => (false, marker),
        ControlRecord::Commit(marker) => (true, marker),
        ControlRecord::LeaderChange(_)
        | ControlRecord::SnapshotHeader(_)
        | ControlRecord::SnapshotFooter(_)
        | ControlRecord::KRaftVersion(_)
        | ControlRecord::Voters(_) => return None,
    };
    Some(EndMarker {
        commit,
        coordinator_epoch: marker.coordinator_epoch,
        timestamp_ms: header.base_timestamp.saturating_add(timestamp_delta),
    })
}

/// Timestamp delta, key and value of the first of some uncompressed records.
fn first_record(records: Bytes) -> Result<(i64, Bytes, Bytes), DecodeError> {
    let mut reader = Reader::new(records);
    reader.varint()?; // length
    reader.i8()?; // attributes
    let timestamp_delta = reader.varlong()?;
    reader.varint()?; // offset delta
    let key_len = reader.varint()?;
    let key = reader.raw(usize::try_from(key_len).unwrap_or(0))?;
    let value_len = reader.varint()?;
    let value = reader.raw(usize::try_from(value_len).unwrap_or(0))?;
    Ok((timestamp_delta, key, value))
}
