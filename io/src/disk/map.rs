#![expect(unsafe_code, reason = "mapping a file")]
//! Files as memory: read-only maps of sealed indexes, and writable maps of active ones for the classic
//! engine.
//!
//! What the caller must do: never cut a file that is mapped to less than the map, in this process or
//! another (reading beyond the end is SIGBUS, which ends the process), and bound the number of maps
//! (`vm.max_map_count`). Log directories are locked, so that no other broker changes them.

use bytes::Bytes;
use memmap2::{Mmap, MmapMut, MmapOptions};
use std::io;
use std::os::fd::AsRawFd;

use super::file::File;

/// The first `length` bytes of a sealed file; unmapped when the last part of it is dropped.
pub fn map_sealed(file: &File, length: usize) -> io::Result<Bytes> {
    check_length(file, length)?;
    if length == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: claim: the mapped bytes do not change or disappear. keeper: the caller, who maps only sealed files
    // of a locked log directory and does not cut them. breaker: another program that writes there.
    let map: Mmap = unsafe { MmapOptions::new().len(length).map(file.as_raw_fd()) }?;
    Ok(Bytes::from_owner(map))
}

/// A writable map of the first `length` bytes of a file.
#[derive(Debug)]
pub struct WritableMap(MmapMut);

impl WritableMap {
    /// The file must have this length already (`File::set_len`).
    pub fn new(file: &File, length: usize) -> io::Result<Self> {
        check_length(file, length)?;
        // SAFETY: claim: only this value changes the mapped bytes. keeper: the caller, who maps an active index
        // once, in a locked log directory, and drops the map before cutting the file. breaker: a second map.
        let map = unsafe { MmapOptions::new().len(length).map_mut(file.as_raw_fd()) }?;
        Ok(Self(map))
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// Writes changed pages and waits for it; the file's metadata is another matter (`File::sync_all`).
    pub fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
}

fn check_length(file: &File, length: usize) -> io::Result<()> {
    let actual = file.len()?;
    if actual < length as u64 {
        let message = format!(
            "{} has {actual} bytes, {length} cannot be mapped",
            file.path().display()
        );
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;
    use crate::disk::OpenMode;
    use crate::testing::TestDir;

    #[test]
    fn a_sealed_file_is_bytes_that_outlive_its_descriptor() {
        let dir = TestDir::new();
        let file = File::open(dir.path().join("a"), OpenMode::CreateNew).unwrap();
        file.write_all_at(0, &[Bytes::from_static(b"0123456789")])
            .unwrap();
        let part = map_sealed(&file, 10).unwrap().slice(2..5);
        drop(file);
        assert_eq!(&part[..], b"234");
    }

    #[test]
    fn more_than_the_file_has_is_refused() {
        let dir = TestDir::new();
        let file = File::open(dir.path().join("a"), OpenMode::CreateNew).unwrap();
        assert_eq!(map_sealed(&file, 0).unwrap(), Bytes::new());
        assert_eq!(
            map_sealed(&file, 1).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
        assert!(WritableMap::new(&file, 1).is_err());
    }

    #[test]
    fn a_writable_map_changes_the_file() {
        let dir = TestDir::new();
        let file = File::open(dir.path().join("a"), OpenMode::CreateNew).unwrap();
        file.set_len(8).unwrap();
        let mut map = WritableMap::new(&file, 8).unwrap();
        map.bytes_mut()[3] = 9;
        map.flush().unwrap();
        let mut read = [0; 8];
        file.read_exact_at(0, &mut read).unwrap();
        assert_eq!((read, map.bytes()), ([0, 0, 0, 9, 0, 0, 0, 0], &read[..]));
    }
}
