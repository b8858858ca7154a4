//! The files of a log's directory as recovery knows them, and the rules about names (L-6).

use std::collections::BTreeMap;

use super::OpenFailure;
use super::batch_walk::{Disk, Walk};
use super::recovery::DirEntry;

const DELETED: &str = ".deleted";
const CLEANED: &str = ".cleaned";
const SWAP: &str = ".swap";

/// Files of a segment.
const SEGMENT_SUFFIXES: [&str; 4] = ["log", "index", "timeindex", "txnindex"];

#[derive(Debug, Clone, Copy)]
struct Known {
    len: u64,
    modified_ms: i64,
}

/// See the module.
pub(super) struct Listing {
    files: BTreeMap<String, Known>,
}

/// `<20 digits>.<suffix>` taken apart.
fn parse(name: &str) -> Option<(i64, &str)> {
    let (digits, suffix) = name.split_once('.')?;
    let is_base = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_base {
        return None;
    }
    Some((digits.parse().ok()?, suffix))
}

impl Listing {
    pub(super) fn new(files: &[DirEntry]) -> Listing {
        let known = |entry: &DirEntry| Known {
            len: entry.len,
            modified_ms: entry.modified_ms,
        };
        Listing {
            files: files
                .iter()
                .map(|entry| (entry.name.clone(), known(entry)))
                .collect(),
        }
    }

    pub(super) fn name(base: i64, suffix: &str) -> String {
        format!("{base:020}.{suffix}")
    }

    pub(super) fn has(&self, base: i64, suffix: &str) -> bool {
        self.files.contains_key(&Listing::name(base, suffix))
    }

    /// 0 if the file is not there.
    pub(super) fn len(&self, base: i64, suffix: &str) -> u64 {
        self.len_of(&Listing::name(base, suffix)).unwrap_or(0)
    }

    pub(super) fn len_of(&self, name: &str) -> Option<u64> {
        self.files.get(name).map(|known| known.len)
    }

    pub(super) fn modified_ms(&self, base: i64, otherwise: i64) -> i64 {
        self.files
            .get(&Listing::name(base, "log"))
            .map_or(otherwise, |known| known.modified_ms)
    }

    pub(super) fn set_len(&mut self, base: i64, suffix: &str, len: u64) {
        let modified_ms = self.modified_ms(base, 0);
        self.files
            .insert(Listing::name(base, suffix), Known { len, modified_ms });
    }

    fn bases(&self, suffix: &str) -> Vec<i64> {
        let of = |name: &String| {
            parse(name)
                .filter(|(_, found)| *found == suffix)
                .map(|(base, _)| base)
        };
        self.files.keys().filter_map(of).collect()
    }

    /// Bases of the segments, oldest first.
    pub(super) fn segments(&self) -> Vec<i64> {
        self.bases("log")
    }

    /// Offsets of the producer snapshots, oldest first.
    pub(super) fn snapshots(&self) -> Vec<i64> {
        self.bases("snapshot")
    }

    pub(super) fn delete(
        &mut self,
        base: i64,
        suffix: &str,
        disk: &mut Disk<'_>,
    ) -> Result<(), OpenFailure> {
        self.delete_named(&Listing::name(base, suffix), disk)
    }

    fn delete_named(&mut self, name: &str, disk: &mut Disk<'_>) -> Result<(), OpenFailure> {
        if self.files.remove(name).is_some() {
            disk.delete(name.to_owned())?;
        }
        Ok(())
    }

    /// The log goes last, so that a crash in between leaves no index that nobody would delete.
    pub(super) fn delete_segment(
        &mut self,
        base: i64,
        disk: &mut Disk<'_>,
    ) -> Result<(), OpenFailure> {
        for suffix in SEGMENT_SUFFIXES.iter().rev() {
            self.delete(base, suffix, disk)?;
        }
        Ok(())
    }

    /// Completes or undoes what the cleaner was doing: leftovers go; a complete `.swap` set takes the place of the segments that it was
    /// made of.
    pub(super) fn finish_swaps(&mut self, disk: &mut Disk<'_>) -> Result<(), OpenFailure> {
        let with = |listing: &Listing, ending: &str| -> Vec<String> {
            listing
                .files
                .keys()
                .filter(|name| name.ends_with(ending))
                .cloned()
                .collect()
        };
        for name in with(self, DELETED) {
            self.delete_named(&name, disk)?;
        }
        let cleaned = with(self, CLEANED);
        // A swap set is complete only if nothing is left to be cleaned at or below it.
        let complete_below = cleaned
            .iter()
            .filter_map(|name| parse(name))
            .map(|(base, _)| base)
            .min();
        for name in with(self, SWAP) {
            let is_complete = match (parse(&name), complete_below) {
                (Some((base, _)), Some(below)) => base < below,
                (Some(_), None) => true,
                (None, _) => false,
            };
            if !is_complete {
                self.delete_named(&name, disk)?;
            }
        }
        for name in cleaned {
            self.delete_named(&name, disk)?;
        }
        self.swap_in(&with(self, SWAP), disk)
    }

    fn swap_in(&mut self, swaps: &[String], disk: &mut Disk<'_>) -> Result<(), OpenFailure> {
        let mut replaced: Option<(i64, i64)> = None;
        for name in swaps {
            let Some((base, "log.swap")) = parse(name) else {
                continue;
            };
            let end = self.end_of(name, base, disk)?;
            let (from, to) = replaced.unwrap_or((base, end));
            replaced = Some((from.min(base), to.max(end)));
        }
        if let Some((from, to)) = replaced {
            for base in self
                .segments()
                .into_iter()
                .filter(|base| (from..to).contains(base))
            {
                self.delete_segment(base, disk)?;
            }
        }
        for name in swaps {
            let Some(to) = name.strip_suffix(SWAP) else {
                continue;
            };
            disk.rename(name.clone(), to.to_owned())?;
            if let Some(known) = self.files.remove(name) {
                self.files.insert(to.to_owned(), known);
            }
        }
        if swaps.is_empty() {
            Ok(())
        } else {
            disk.sync_directory()
        }
    }

    /// The next offset after the last batch of a file.
    fn end_of(&self, name: &str, base: i64, disk: &mut Disk<'_>) -> Result<i64, OpenFailure> {
        let mut walk = Walk::new(name.to_owned(), 0, self.len_of(name).unwrap_or(0));
        let mut end = base;
        while let Some((header, _)) = walk.next(disk)? {
            end = header.last_offset() + 1;
        }
        Ok(end)
    }

    /// Indexes without their log.
    pub(super) fn delete_orphans(&mut self, disk: &mut Disk<'_>) -> Result<(), OpenFailure> {
        for suffix in &SEGMENT_SUFFIXES[1..] {
            for base in self.bases(suffix) {
                if !self.has(base, "log") {
                    self.delete(base, suffix, disk)?;
                }
            }
        }
        Ok(())
    }
}
