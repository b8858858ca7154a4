//! The state of the page cache before a run.
//!
//! A broker that has run for an hour writes into a full page cache, and each plain write then pays for reclaim; a benchmark on a fresh machine does not
//! show it. Filling writes a file, waits for the disk and leaves the clean pages lying.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::Failure;

/// A file whose pages fill the cache; removed when dropped, which empties it again.
#[derive(Debug)]
pub(crate) struct FilledCache {
    path: PathBuf,
}

impl FilledCache {
    pub(crate) fn fill(dir: &Path, gigabytes: f64) -> Result<FilledCache, Failure> {
        let filled = FilledCache {
            path: dir.join("page-cache-filler"),
        };
        let at = || Failure::at(&filled.path);
        let mut file = File::create(&filled.path).map_err(at())?;
        let chunk = vec![0x5a; 1 << 20];
        for _ in 0..(gigabytes * 1e9) as u64 / chunk.len() as u64 {
            file.write_all(&chunk).map_err(at())?;
        }
        file.sync_all().map_err(at())?;
        Ok(filled)
    }
}

impl Drop for FilledCache {
    fn drop(&mut self) {
        // Left behind, it costs disk and nothing else; there is nobody to tell from here.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Waits until nothing of an earlier run is still to be written.
pub(crate) fn flush_dirty_pages() {
    rustix::fs::sync();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filler_goes_when_the_run_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let filled = FilledCache::fill(dir.path(), 0.003).unwrap();
        assert_eq!(std::fs::metadata(&filled.path).unwrap().len(), 2 << 20);
        let path = filled.path.clone();
        drop(filled);
        assert!(!path.exists());
    }
}
