//! A directory in memory that knows what a kill and what a power cut leave behind.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::base::ids::{FileId, FileKind};
use crate::effect::Effect;
use crate::event::Done;

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

    pub(super) fn get(&self, kind: FileKind, base: i64) -> Option<&[u8]> {
        self.files
            .iter()
            .find(|(id, _)| id.kind == kind && id.base == base)
            .map(|(_, file)| &file.data[..])
    }
}
