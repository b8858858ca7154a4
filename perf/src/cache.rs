//! The state of the page cache before a run.
//!
//! A broker that has run for an hour writes into a full page cache, and each plain write then pays for reclaim; a benchmark on a fresh machine does not
//! show it. Filling writes a file as large as the memory once, and before each run reads so much of it, where the last one ended, that hardly any memory is free:
//! what was pushed out since is what was read longest ago. Its pages are clean, as those of old segments are.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};
use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::interrupt;

const CHUNK_BYTES: usize = 4 << 20;
/// More free than the kernel keeps by itself, by this share of the memory, is room for pages that cost no reclaim.
const ROOM_SHARE_MAX: f64 = 0.04;
/// Of what is missing so much is read: others read and write meanwhile.
const READ_SHARE: f64 = 1.5;

/// What the kernel says about memory, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PageCache {
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub cached_bytes: u64,
    pub dirty_bytes: u64,
}

impl PageCache {
    pub(crate) fn now() -> Result<PageCache, Failure> {
        let path = Path::new("/proc/meminfo");
        let text = std::fs::read_to_string(path).map_err(Failure::at(path))?;
        page_cache(&text).ok_or_else(|| Failure::told("/proc/meminfo does not read as on Linux"))
    }
}

fn page_cache(meminfo: &str) -> Option<PageCache> {
    let bytes = |name: &str| -> Option<u64> {
        let line = meminfo.lines().find(|line| line.starts_with(name))?;
        let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kib * 1024)
    };
    Some(PageCache {
        total_bytes: bytes("MemTotal:")?,
        free_bytes: bytes("MemFree:")?,
        cached_bytes: bytes("Cached:")?,
        dirty_bytes: bytes("Dirty:")?,
    })
}

/// A file whose pages fill the cache; removed when dropped, which empties it again.
#[derive(Debug)]
pub(crate) struct Filler {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// Where reading goes on.
    position: u64,
    /// What the kernel keeps free when everything is filled.
    kept_free_bytes: u64,
}

impl Filler {
    pub(crate) fn create(dir: &Path, bytes: u64) -> Result<Filler, Failure> {
        let path = dir.join("page-cache-filler");
        let file = File::create(&path).map_err(Failure::at(&path))?;
        let mut filler = Filler {
            path,
            file,
            bytes: bytes / CHUNK_BYTES as u64 * CHUNK_BYTES as u64,
            position: 0,
            kept_free_bytes: 0,
        };
        filler.write()?;
        filler.kept_free_bytes = PageCache::now()?.free_bytes;
        filler.file = File::open(&filler.path).map_err(Failure::at(&filler.path))?;
        Ok(filler)
    }

    fn write(&mut self) -> Result<(), Failure> {
        let at = || Failure::at(&self.path);
        let chunk = vec![0x5a; CHUNK_BYTES];
        for _ in 0..self.bytes / CHUNK_BYTES as u64 {
            if interrupt::is_asked() {
                return Err(interrupt::stopped());
            }
            self.file.write_all(&chunk).map_err(at())?;
        }
        self.file.sync_all().map_err(at())
    }

    /// Whether new pages cost reclaim.
    pub(crate) fn is_full(&self, now: &PageCache) -> bool {
        let room = now.free_bytes.saturating_sub(self.kept_free_bytes);
        (room as f64) < now.total_bytes as f64 * ROOM_SHARE_MAX
    }

    /// Reads as much as has been pushed out, until the cache is full.
    pub(crate) fn fill(&mut self) -> Result<(), Failure> {
        let mut chunk = vec![0; CHUNK_BYTES];
        let missing = PageCache::now()?
            .free_bytes
            .saturating_sub(self.kept_free_bytes);
        let most = (missing as f64 * READ_SHARE).min(self.bytes as f64) as u64;
        for _ in 0..most / CHUNK_BYTES as u64 {
            if self.is_full(&PageCache::now()?) || interrupt::is_asked() {
                return Ok(());
            }
            self.read_on(&mut chunk)?;
        }
        Ok(())
    }

    fn read_on(&mut self, chunk: &mut [u8]) -> Result<(), Failure> {
        let at = || Failure::at(&self.path);
        self.file
            .seek(SeekFrom::Start(self.position))
            .map_err(at())?;
        self.file.read_exact(chunk).map_err(at())?;
        self.position = (self.position + chunk.len() as u64) % self.bytes;
        Ok(())
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        // Left behind, it costs disk and nothing else; there is nobody to tell from here.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Waits until nothing of an earlier run is still to be written.
pub(crate) fn flush_dirty_pages() {
    rustix::fs::sync();
}

/// Takes what lies in and below this directory out of the page cache.
pub(crate) fn evict(dir: &Path) -> Result<(), Failure> {
    for entry in std::fs::read_dir(dir).map_err(Failure::at(dir))? {
        let path = entry.map_err(Failure::at(dir))?.path();
        if path.is_dir() {
            evict(&path)?;
        } else {
            let file = File::open(&path).map_err(Failure::at(&path))?;
            fadvise(&file, 0, None, Advice::DontNeed)
                .map_err(|error| Failure::at(&path)(error.into()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filler_is_read_around_and_goes_when_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let mut filler = Filler::create(dir.path(), 9 << 20).unwrap();
        assert_eq!(std::fs::metadata(&filler.path).unwrap().len(), 8 << 20);
        let mut chunk = vec![0; CHUNK_BYTES];
        filler.read_on(&mut chunk).unwrap();
        assert_eq!((chunk[0], filler.position), (0x5a, 4 << 20));
        filler.read_on(&mut chunk).unwrap();
        assert_eq!(filler.position, 0);
        let path = filler.path.clone();
        drop(filler);
        assert!(!path.exists());
    }

    #[test]
    fn the_cache_is_full_when_no_more_is_free_than_the_kernel_keeps() {
        let text = "MemTotal:  1000 kB\nMemFree:  120 kB\nMemAvailable: 900 kB\nBuffers: 1 kB\nCached: 700 kB\nSwapCached: 3 kB\nDirty:  4 kB\n";
        let mut cache = page_cache(text).unwrap();
        assert_eq!((cache.cached_bytes, cache.dirty_bytes), (716_800, 4096));
        let dir = tempfile::tempdir().unwrap();
        let mut filler = Filler::create(dir.path(), 4 << 20).unwrap();
        filler.kept_free_bytes = 100 * 1024;
        assert!(filler.is_full(&cache));
        cache.free_bytes = 150 * 1024;
        assert!(!filler.is_full(&cache));
        assert_eq!(page_cache("MemTotal: 5 kB\n"), None);
    }

    #[test]
    fn a_directory_that_is_not_there_cannot_be_evicted() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "x").unwrap();
        evict(dir.path()).unwrap();
        assert!(evict(&dir.path().join("b")).is_err());
    }
}
