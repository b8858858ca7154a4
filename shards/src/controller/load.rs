//! Reading a metadata directory: the newest snapshot, and the log from there on.

use bytes::Bytes;
use corelog_wire::primitives::DecodeError;
use corelog_wire::records::control::ControlRecord;
use corelog_wire::records::metadata::MetadataRecord;

use super::batch::{self, BadBatch, Batch};
use super::snapshot_file::{self, BadSnapshot};
use crate::metadata::{ApplyError, Identity, Replay};

/// A snapshot file and what its name says.
#[derive(Debug, Clone)]
pub struct SnapshotFile {
    pub end_offset: i64,
    pub epoch: i32,
    pub content: Bytes,
    /// End offsets and epochs of those before it that are still there; they go with the next one.
    pub older: Vec<(i64, i32)>,
}

/// What was in the directory.
pub struct Loaded {
    pub(super) replay: Replay,
    /// Voter records of kraft.version 1, which snapshots carry on.
    pub(super) raft: Vec<ControlRecord>,
    /// Of the newest batch.
    pub(super) timestamp_ms: i64,
    /// No snapshot and no record: the log has to be activated.
    pub(super) is_new: bool,
    /// End offset and epoch of the snapshot, if there was one.
    pub(super) snapshot: Option<(i64, i32)>,
    pub(super) older: Vec<(i64, i32)>,
}

/// Why a metadata directory can't be loaded. The broker must not start: what it would do next could contradict the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadFailure {
    #[error("the snapshot of offset {end_offset} is damaged: {reason}")]
    Snapshot {
        end_offset: i64,
        reason: BadSnapshot,
    },
    #[error("the metadata log is damaged: {0}")]
    Batch(#[from] BadBatch),
    #[error(
        "the record at offset {offset} of the metadata log can't be read by this release: {reason}"
    )]
    Unreadable { offset: i64, reason: DecodeError },
    #[error("the record at offset {offset} of the metadata log can't be applied: {reason}")]
    Refused { offset: i64, reason: ApplyError },
    #[error("the metadata log goes on at offset {found} where offset {expected} was expected")]
    Gap { expected: i64, found: i64 },
}

impl Loaded {
    /// Reads everything. `segments` are the contents of the log's segment files, oldest first.
    pub fn read(
        identity: &Identity,
        snapshot: Option<&SnapshotFile>,
        segments: impl IntoIterator<Item = Bytes>,
    ) -> Result<Loaded, LoadFailure> {
        let mut loaded = Loaded {
            replay: Replay::new(identity),
            raft: Vec::new(),
            timestamp_ms: 0,
            is_new: snapshot.is_none(),
            snapshot: snapshot.map(|file| (file.end_offset, file.epoch)),
            older: snapshot.map_or_else(Vec::new, |file| file.older.clone()),
        };
        loaded.replay.begin_version();
        if let Some(file) = snapshot {
            loaded.read_snapshot(file)?;
        }
        for mut segment in segments {
            while let Some(batch) = batch::next(&mut segment)? {
                loaded.read_batch(&batch)?;
            }
        }
        loaded.replay.place_all();
        Ok(loaded)
    }

    fn read_snapshot(&mut self, file: &SnapshotFile) -> Result<(), LoadFailure> {
        let end_offset = file.end_offset;
        let content = snapshot_file::read(file.content.clone())
            .map_err(|reason| LoadFailure::Snapshot { end_offset, reason })?;
        for record in &content.records {
            self.replay
                .apply(end_offset - 1, record)
                .map_err(|reason| LoadFailure::Refused {
                    offset: end_offset - 1,
                    reason,
                })?;
        }
        self.replay.skip(end_offset - 1);
        self.replay.set_epoch(file.epoch);
        self.raft = content.raft;
        Ok(())
    }

    fn read_batch(&mut self, batch: &Batch) -> Result<(), LoadFailure> {
        let expected = self.replay.working().offset + 1;
        if batch.header.last_offset() < expected {
            return Ok(()); // the snapshot has it
        }
        // Without a snapshot the log may begin anywhere only if nothing was ever deleted: at 0.
        if batch.header.base_offset != expected {
            return Err(LoadFailure::Gap {
                expected,
                found: batch.header.base_offset,
            });
        }
        for ((key, value), offset) in batch.records.iter().zip(batch.header.base_offset..) {
            if batch.header.is_control() {
                self.read_control(key.as_ref(), value, offset)?;
            } else {
                let record = MetadataRecord::decode(value)
                    .map_err(|reason| LoadFailure::Unreadable { offset, reason })?;
                self.replay
                    .apply(offset, &record)
                    .map_err(|reason| LoadFailure::Refused { offset, reason })?;
                self.is_new = false;
            }
        }
        self.replay.skip(batch.header.last_offset());
        self.replay.set_epoch(batch.header.partition_leader_epoch);
        self.timestamp_ms = batch.header.max_timestamp;
        Ok(())
    }

    fn read_control(
        &mut self,
        key: Option<&Bytes>,
        value: &Bytes,
        offset: i64,
    ) -> Result<(), LoadFailure> {
        let key = key.cloned().unwrap_or_default();
        let record = ControlRecord::decode(&key, value)
            .map_err(|reason| LoadFailure::Unreadable { offset, reason })?;
        if matches!(
            record,
            ControlRecord::KRaftVersion(_) | ControlRecord::Voters(_)
        ) {
            self.raft.retain(|known| known.kind() != record.kind());
            self.raft.push(record);
        }
        Ok(())
    }

    /// What was read.
    pub fn image(&self) -> &crate::metadata::Image {
        self.replay.shown()
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        reason = "a failed conversion is the test's failure"
    )]

    use super::super::snapshot_file::Frame;
    use super::super::testing::{apply_all, settings};
    use super::*;
    use crate::base::ids::Uuid;
    use crate::metadata::Image;
    use crate::metadata::features::METADATA_VERSION;

    /// `__cluster_metadata-0` as Apache Kafka 4.3.1 left it after a clean stop (see tests/golden).
    const GOLDEN: &[u8] = include_bytes!("../../tests/golden/cluster_metadata.log");
    const GOLDEN_BOOTSTRAP: &[u8] = include_bytes!("../../tests/golden/bootstrap.checkpoint");

    fn golden() -> Loaded {
        Loaded::read(&settings().identity, None, [Bytes::from_static(GOLDEN)]).unwrap()
    }

    #[test]
    fn the_golden_log_gives_kafkas_topics() {
        let loaded = golden();
        let image = loaded.image();
        let topics: Vec<(&str, String, usize)> = image
            .sorted_topics()
            .iter()
            .map(|topic| (&*topic.name, topic.id.to_string(), topic.partitions.len()))
            .collect();
        let row = |name, id: &str, partitions| (name, id.to_owned(), partitions);
        assert_eq!(
            topics,
            [
                row("__consumer_offsets", "wSE9C-BHSLenbpXBEOATfQ", 8),
                row("__transaction_state", "GkvyqgMaSia3WEkkPyDHow", 8),
                row("append-time", "t064LyYgSOmtfHEJD3X6_A", 3),
                row("codecs", "wki8Yp0TSn-4yfh-yg2Tjg", 5),
                row("compacted", "uzkAp6EtQnOYx3q3gp2ecQ", 1),
                row("rolled", "dXW8Gx2YRNqg2_tRERSBlg", 1),
                row("trimmed", "0T39bZSORBa4ycXLij--cQ", 1),
                row("txn", "gG8RoCmjRMOjcTecEx5y1g", 1),
            ]
        );
        let deleted: Uuid = "iNw4ba95TwKWeUt9z5X0Kw".parse().unwrap();
        assert!(image.topic_by_id(deleted).is_none());
        assert_eq!((image.offset, image.epoch), (181, 1));
        assert!(!loaded.is_new);
    }

    #[test]
    fn the_golden_log_gives_kafkas_settings_and_features() {
        let loaded = golden();
        let image = loaded.image();
        let config = |name: &str| image.topic(name).unwrap().config.clone();
        assert_eq!(config("codecs").retention_ms, -1);
        assert_eq!(config("txn").retention_ms, 123_456_789);
        assert_eq!(config("rolled").segment_bytes, 1_048_576);
        assert_eq!(config("rolled").index_interval_bytes, 1024);
        assert!(config("compacted").cleanup_policy.compact);
        assert!(!config("compacted").cleanup_policy.delete);
        assert_eq!(image.feature(METADATA_VERSION), 30);
        assert_eq!(image.feature("transaction.version"), 2);
        assert_eq!(image.next_producer_id, 1000);
        let broker = &image.brokers[&1];
        assert!(broker.fenced && broker.in_controlled_shutdown);
        assert_eq!((broker.epoch, broker.endpoints[0].port), (11, 29192));
        assert_eq!(image.controllers[&1].endpoints[0].port, 19193);
    }

    #[test]
    fn partitions_are_spread_evenly_after_loading() {
        let loaded = golden();
        let owners = loaded.image().topics().flat_map(|topic| &topic.partitions);
        let (first, second): (Vec<_>, Vec<_>) = owners.partition(|meta| meta.owner.0 == 0);
        assert_eq!((first.len(), second.len()), (14, 14));
    }

    #[test]
    fn a_controlled_shutdown_left_the_golden_partitions_without_a_leader() {
        let loaded = golden();
        for topic in loaded.image().topics() {
            for meta in &topic.partitions {
                assert_eq!(
                    (meta.leader, meta.leader_epoch, meta.partition_epoch),
                    (-1, 1, 1)
                );
                assert_eq!((&meta.isr[..], &meta.elr[..]), (&[][..], &[1][..]));
            }
        }
    }

    #[test]
    fn kafkas_bootstrap_checkpoint_is_read() {
        let content = snapshot_file::read(Bytes::from_static(GOLDEN_BOOTSTRAP)).unwrap();
        let mut replay = Replay::new(&settings().identity);
        apply_all(&mut replay, &content.records);
        assert_eq!(replay.shown().features.len(), 6);
    }

    fn through_a_snapshot(image: &Image) -> Loaded {
        let frame = Frame {
            epoch: image.epoch,
            timestamp_ms: 1,
            raft: Vec::new(),
        };
        let file = SnapshotFile {
            end_offset: image.offset + 1,
            epoch: image.epoch,
            content: snapshot_file::write(&frame, &image.records(), 30),
            older: Vec::new(),
        };
        Loaded::read(&settings().identity, Some(&file), []).unwrap()
    }

    #[test]
    fn a_snapshot_of_the_golden_image_says_the_same() {
        let loaded = golden();
        let again = through_a_snapshot(loaded.image());
        assert!(again.image().says_the_same_as(loaded.image()));
        assert_eq!((again.image().offset, again.image().epoch), (181, 1));
        assert_eq!(again.snapshot, Some((182, 1)));
    }

    #[test]
    fn the_log_goes_on_where_the_snapshot_ends() {
        let mut first_half = Loaded {
            replay: Replay::new(&settings().identity),
            raft: Vec::new(),
            timestamp_ms: 0,
            is_new: true,
            snapshot: None,
            older: Vec::new(),
        };
        let mut log = Bytes::from_static(GOLDEN);
        for _ in 0..20 {
            let batch = batch::next(&mut log).unwrap().unwrap();
            first_half.read_batch(&batch).unwrap();
        }
        let image = first_half.replay.shown();
        let frame = Frame {
            epoch: 1,
            ..Frame::default()
        };
        let file = SnapshotFile {
            end_offset: image.offset + 1,
            epoch: 1,
            content: snapshot_file::write(&frame, &image.records(), 30),
            older: Vec::new(),
        };
        let identity = settings().identity;
        let whole = Loaded::read(&identity, Some(&file), [Bytes::from_static(GOLDEN)]).unwrap();
        assert!(whole.image().says_the_same_as(golden().image()));
        let rest = Loaded::read(&identity, Some(&file), [log.clone()]).unwrap();
        assert!(rest.image().says_the_same_as(golden().image()));
        assert!(matches!(
            Loaded::read(&identity, None, [log]),
            Err(LoadFailure::Gap { expected: 0, .. })
        ));
    }
}
