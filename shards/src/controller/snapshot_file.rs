//! The bytes of a `*.checkpoint` file (kraft.md 10): header, records, footer.

use bytes::{Bytes, BytesMut};
use corelog_wire::records::control::ControlRecord;
use corelog_wire::records::data::{SnapshotFooterRecord, SnapshotHeaderRecord};
use corelog_wire::records::metadata::MetadataRecord;

use super::batch::{self, BadBatch, Stamp};
use super::start::bootstrap_records;
use crate::metadata::features::METADATA_VERSION_MAX;

/// Records in one batch of a snapshot: Kafka's readers take at most 8 MiB at a time.
const BATCH_RECORDS_MAX: usize = 10_000;

/// What a snapshot says besides its records.
#[derive(Debug, Clone, Default)]
pub(super) struct Frame {
    pub(super) epoch: i32,
    pub(super) timestamp_ms: i64,
    /// The records of kraft.version 1, if the log has them.
    pub(super) raft: Vec<ControlRecord>,
}

/// The whole file. Offsets inside count from 0; its name says what it stands for.
pub(super) fn write(frame: &Frame, records: &[MetadataRecord], metadata_version: i16) -> Bytes {
    let mut out = BytesMut::new();
    let mut offset = 0;
    let mut push = |batch: &dyn Fn(Stamp) -> Bytes, count: usize| {
        let stamp = Stamp {
            base_offset: offset,
            epoch: frame.epoch,
            timestamp_ms: frame.timestamp_ms,
        };
        out.extend_from_slice(&batch(stamp));
        offset += count as i64;
    };
    let header = ControlRecord::SnapshotHeader(SnapshotHeaderRecord {
        last_contained_log_timestamp: frame.timestamp_ms,
    });
    let head: Vec<ControlRecord> = std::iter::once(header)
        .chain(frame.raft.iter().cloned())
        .collect();
    push(&|stamp| batch::of_control(stamp, &head), head.len());
    for piece in records.chunks(BATCH_RECORDS_MAX) {
        push(
            &|stamp| batch::of_records(stamp, piece, metadata_version),
            piece.len(),
        );
    }
    let footer = [ControlRecord::SnapshotFooter(SnapshotFooterRecord {})];
    push(&|stamp| batch::of_control(stamp, &footer), 1);
    out.freeze()
}

/// What a snapshot file says.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) records: Vec<MetadataRecord>,
    pub(super) raft: Vec<ControlRecord>,
}

/// Why a file is no snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSnapshot {
    #[error(transparent)]
    Batch(#[from] BadBatch),
    #[error("a record can't be read: {0}")]
    Record(#[from] corelog_wire::primitives::DecodeError),
    #[error("the file does not begin with a snapshot header")]
    NoHeader,
    #[error("the file does not end with a snapshot footer")]
    NoFooter,
}

pub(super) fn read(mut file: Bytes) -> Result<Content, BadSnapshot> {
    let mut content = Content::default();
    let mut control = Vec::new();
    while let Some(batch) = batch::next(&mut file)? {
        for (key, value) in &batch.records {
            if batch.header.is_control() {
                let key = key.clone().unwrap_or_default();
                control.push(ControlRecord::decode(&key, value)?);
            } else {
                content.records.push(MetadataRecord::decode(value)?);
            }
        }
    }
    if !matches!(control.first(), Some(ControlRecord::SnapshotHeader(_))) {
        return Err(BadSnapshot::NoHeader);
    }
    if !matches!(control.last(), Some(ControlRecord::SnapshotFooter(_))) {
        return Err(BadSnapshot::NoFooter);
    }
    content.raft = control
        .into_iter()
        .filter(|record| {
            matches!(
                record,
                ControlRecord::KRaftVersion(_) | ControlRecord::Voters(_)
            )
        })
        .collect();
    Ok(content)
}

/// The content of `bootstrap.checkpoint` that a new directory is formatted with.
pub fn bootstrap_checkpoint(timestamp_ms: i64) -> Bytes {
    let frame = Frame {
        epoch: 0,
        timestamp_ms,
        raft: Vec::new(),
    };
    write(&frame, &bootstrap_records(), METADATA_VERSION_MAX)
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        reason = "a failed conversion is the test's failure"
    )]

    use super::*;

    #[test]
    fn a_snapshot_is_read_back() {
        let content = read(bootstrap_checkpoint(9)).unwrap();
        assert_eq!(content.records, bootstrap_records());
        assert!(content.raft.is_empty());
    }

    #[test]
    fn a_snapshot_that_was_cut_is_refused() {
        let file = bootstrap_checkpoint(9);
        let mut rest = file.clone();
        batch::next(&mut rest).unwrap();
        assert_eq!(read(rest.clone()).unwrap_err(), BadSnapshot::NoHeader);
        batch::next(&mut rest).unwrap();
        let without_footer = file.slice(..file.len() - rest.len());
        assert_eq!(read(without_footer).unwrap_err(), BadSnapshot::NoFooter);
    }
}
