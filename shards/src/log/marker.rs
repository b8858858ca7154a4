//! The record of a control batch that ends a transaction (T-6).

use bytes::Bytes;
use corelog_wire::batch::{BatchHeader, HEADER_LEN, RecordIter};
use corelog_wire::records::control::ControlRecord;

use super::producers::EndMarker;

/// What the batch says about its producer's transaction; `None` if it is no control batch of a producer, or was emptied by compaction,
/// or holds something else.
pub(super) fn end_marker(header: &BatchHeader, batch: &Bytes) -> Option<EndMarker> {
    if !header.is_control() || !header.has_producer() {
        return None;
    }
    let records = batch.get(HEADER_LEN..)?;
    let record = RecordIter::new(records, header.record_count.max(0) as usize)
        .next()?
        .ok()?;
    let (key, value) = (batch.slice_ref(record.key?), batch.slice_ref(record.value?));
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
        timestamp_ms: header.base_timestamp.saturating_add(record.timestamp_delta),
    })
}
