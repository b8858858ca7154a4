//! A directory in memory that knows what a kill and what a power cut leave behind.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::rig::ID;
use crate::base::ids::{FileId, FileKind};
use crate::effect::Effect;
use crate::event::Done;
use crate::log::{DirEntry, DiskOrder};

#[derive(Debug, Clone, Default)]
pub(super) struct File {
    pub(super) data: Vec<u8>,
    /// As of the last sync; `None` = a power cut takes the file away.
    durable: Option<Vec<u8>>,
}

/// Carries out effects of one log.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk {
    pub(super) files: BTreeMap<FileId, File>,
}

impl Disk {
    /// What was asked for, done now.
    pub(super) fn carry_out(&mut self, effect: Effect) -> Done {
        match effect {
            Effect::Write {
                file,
                position,
                chunks,
                ..
            } => {
                let data = &mut self.files.entry(file).or_default().data;
                let bytes: Vec<u8> = chunks.iter().flatten().copied().collect();
                let end = position as usize + bytes.len();
                if data.len() < end {
                    data.resize(end, 0);
                }
                data[position as usize..end].copy_from_slice(&bytes);
                Done::Written
            }
            Effect::Sync { file, .. } => {
                let file = self
                    .files
                    .get_mut(&file)
                    .unwrap_or_else(|| panic!("{file:?} is synced but not there"));
                file.durable = Some(file.data.clone());
                Done::Synced
            }
            Effect::Read {
                file,
                position,
                len,
                ..
            } => {
                let data = &self.files[&file].data;
                let end = data.len().min(position as usize + len as usize);
                Done::Bytes(Bytes::copy_from_slice(
                    &data[(position as usize).min(end)..end],
                ))
            }
            Effect::Map { file, .. } => {
                Done::Bytes(Bytes::copy_from_slice(&self.files[&file].data))
            }
            Effect::Seal { file, len, .. } | Effect::Truncate { file, len, .. } => {
                self.files
                    .entry(file)
                    .or_default()
                    .data
                    .resize(len as usize, 0);
                Done::Written
            }
            Effect::Replace { file, content, .. } => {
                let (data, durable) = (content.to_vec(), Some(content.to_vec()));
                self.files.insert(file, File { data, durable });
                Done::Written
            }
            Effect::Delete { files, .. } => {
                for file in files {
                    self.files.remove(&file);
                }
                Done::Written
            }
            _ => panic!("a log does not ask for this"),
        }
    }

    pub(super) fn file_of(effect: &Effect) -> Option<FileId> {
        match effect {
            Effect::Write { file, .. }
            | Effect::Sync { file, .. }
            | Effect::Read { file, .. }
            | Effect::Map { file, .. }
            | Effect::Seal { file, .. }
            | Effect::Truncate { file, .. }
            | Effect::Replace { file, .. } => Some(*file),
            _ => None,
        }
    }

    /// The power goes: what was not synced is lost, but for a part of it that `keep` (of the lost bytes) chooses.
    pub(super) fn cut_power(&mut self, mut keep: impl FnMut(usize) -> usize) {
        self.files.retain(|_, file| {
            let Some(durable) = file.durable.clone() else {
                let kept = keep(file.data.len());
                file.data.truncate(kept);
                return kept > 0;
            };
            let lost = file.data.len().saturating_sub(durable.len());
            let kept = durable.len() + keep(lost);
            let tail = file.data.get(durable.len()..kept).unwrap_or(&[]).to_vec();
            file.data = durable;
            file.data.extend(tail);
            true
        });
    }

    /// All files as recovery gets them listed.
    pub(super) fn listing(&self) -> Vec<DirEntry> {
        let entry = |(id, file): (&FileId, &File)| DirEntry {
            name: name_of(*id),
            len: file.data.len() as u64,
            modified_ms: 1_700_000_000_000,
        };
        self.files.iter().map(entry).collect()
    }

    /// A file that was there before and is durable.
    pub(super) fn put(&mut self, id: FileId, data: &[u8]) {
        let (data, durable) = (data.to_vec(), Some(data.to_vec()));
        self.files.insert(id, File { data, durable });
    }

    /// Carries out an order of recovery.
    pub(super) fn obey(&mut self, order: DiskOrder) -> Bytes {
        match order {
            DiskOrder::Read {
                name,
                position,
                len,
            } => {
                let data = &self.files[&id_of(&name)].data;
                let end = data.len().min((position + len) as usize);
                return Bytes::copy_from_slice(&data[(position as usize).min(end)..end]);
            }
            DiskOrder::Write {
                name,
                position,
                bytes,
            } => {
                let data = &mut self.files.entry(id_of(&name)).or_default().data;
                let end = position as usize + bytes.len();
                data.resize(data.len().max(end), 0);
                data[position as usize..end].copy_from_slice(&bytes);
            }
            DiskOrder::Truncate { name, len } => {
                self.files
                    .entry(id_of(&name))
                    .or_default()
                    .data
                    .resize(len as usize, 0);
            }
            DiskOrder::Replace { name, content } => self.put(id_of(&name), &content),
            DiskOrder::Delete { name } => {
                self.files.remove(&id_of(&name));
            }
            DiskOrder::Rename { from, to } => {
                panic!("nothing was cleaned, but {from} becomes {to}")
            }
            DiskOrder::Sync { name } => {
                let file = self
                    .files
                    .get_mut(&id_of(&name))
                    .expect("only files that are there are synced");
                file.durable = Some(file.data.clone());
            }
            DiskOrder::SyncDirectory => {}
        }
        Bytes::new()
    }

    /// Bases of the segments, oldest first.
    pub(super) fn segments(&self) -> Vec<i64> {
        self.files
            .keys()
            .filter(|id| id.kind == FileKind::Log)
            .map(|id| id.base)
            .collect()
    }

    /// The files of the segments that end below `offset` survive a power cut as they are.
    pub(super) fn assert_durable_below(&self, offset: i64) {
        let bases = self.segments();
        for (base, next) in bases.iter().zip(&bases[1.min(bases.len())..]) {
            let of_segment = |id: &&FileId| {
                let kinds = [
                    FileKind::Log,
                    FileKind::OffsetIndex,
                    FileKind::TimeIndex,
                    FileKind::TxnIndex,
                ];
                id.base == *base && kinds.contains(&id.kind) && *next < offset
            };
            for id in self.files.keys().filter(of_segment) {
                let file = &self.files[id];
                assert!(
                    file.durable.as_ref() == Some(&file.data),
                    "{id:?} is not durable below {offset}"
                );
            }
        }
    }

    pub(super) fn get(&self, kind: FileKind, base: i64) -> Option<&[u8]> {
        self.files
            .iter()
            .find(|(id, _)| id.kind == kind && id.base == base)
            .map(|(_, file)| &file.data[..])
    }
}

/// The name of a file in its log's directory.
pub(super) fn name_of(id: FileId) -> String {
    let suffix = match id.kind {
        FileKind::Log => "log",
        FileKind::OffsetIndex => "index",
        FileKind::TimeIndex => "timeindex",
        FileKind::TxnIndex => "txnindex",
        FileKind::ProducerSnapshot => "snapshot",
        FileKind::LeaderEpochs => return "leader-epoch-checkpoint".to_owned(),
        FileKind::PartitionMetadata => return "partition.metadata".to_owned(),
        FileKind::MetadataSnapshot { .. } => panic!("no log of a topic has metadata snapshots"),
    };
    format!("{:020}.{suffix}", id.base)
}

pub(super) fn id_of(name: &str) -> FileId {
    let (base, kind) = match name.split_once('.') {
        Some((base, "log")) => (base, FileKind::Log),
        Some((base, "index")) => (base, FileKind::OffsetIndex),
        Some((base, "timeindex")) => (base, FileKind::TimeIndex),
        Some((base, "txnindex")) => (base, FileKind::TxnIndex),
        Some((base, "snapshot")) => (base, FileKind::ProducerSnapshot),
        Some(("partition", "metadata")) => ("0", FileKind::PartitionMetadata),
        _ => ("0", FileKind::LeaderEpochs),
    };
    FileId {
        log: ID,
        kind,
        base: base.parse().expect("a base offset"),
    }
}
