#![expect(unsafe_code, reason = "pwritev and fallocate are system calls")]
//! An open file, shared by its owner and its operations in flight, with the blocking calls on it.
//!
//! The descriptor is closed when the last clone is gone. The calls here block their thread: a core
//! uses `write_all_at` within the dirty budget (see `write_behind`) and the ring for the rest.

use bytes::Bytes;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Vectors of one call, kept on the stack so that a write allocates nothing: few for the usual case, as
/// clearing many costs more than a small write; many (4 KiB) are enough to make the call's own cost small.
const VECTORS_FEW: usize = 16;
const VECTORS_MANY: usize = 256;

#[derive(Clone, Debug)]
pub struct File(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: fs::File,
    /// The name at the time of opening, for messages only: a rename does not change it.
    path: PathBuf,
}

/// How to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    Read,
    /// For reading and writing; it must exist.
    Write,
    /// For reading and writing; made when it is not there, kept as it is when it is.
    WriteOrCreate,
    /// For reading and writing; it must not exist.
    CreateNew,
    /// For reading and writing; emptied when it exists.
    Truncate,
}

impl File {
    pub fn open(path: impl Into<PathBuf>, mode: OpenMode) -> io::Result<Self> {
        let path = path.into();
        let mut options = fs::OpenOptions::new();
        options.read(true).write(mode != OpenMode::Read);
        match mode {
            OpenMode::Read | OpenMode::Write => {}
            OpenMode::WriteOrCreate => drop(options.create(true).truncate(false)),
            OpenMode::CreateNew => drop(options.create_new(true)),
            OpenMode::Truncate => drop(options.create(true).truncate(true)),
        }
        let file = options
            .open(&path)
            .map_err(|error| named(&path, "open", error))?;
        Ok(Self(Arc::new(Inner { file, path })))
    }

    /// The path at the time of opening.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Its length now, by the descriptor.
    pub fn len(&self) -> io::Result<u64> {
        Ok(self.0.file.metadata()?.len())
    }

    pub fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Writes all chunks in order at `position`; blocks.
    pub fn write_all_at(&self, mut position: u64, chunks: &[Bytes]) -> io::Result<()> {
        let mut first = 0;
        let mut offset = 0;
        loop {
            while first < chunks.len() && offset == chunks[first].len() {
                first += 1;
                offset = 0;
            }
            if first == chunks.len() {
                return Ok(());
            }
            let rest = &chunks[first..];
            let mut written = if rest.len() <= VECTORS_FEW {
                self.write_some_at::<VECTORS_FEW>(position, rest, offset)?
            } else {
                self.write_some_at::<VECTORS_MANY>(position, rest, offset)?
            };
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            position += written as u64;
            while written > 0 {
                let part = written.min(chunks[first].len() - offset);
                offset += part;
                written -= part;
                if offset == chunks[first].len() {
                    first += 1;
                    offset = 0;
                }
            }
        }
    }

    /// One pwritev of at most `N` chunks; the first starts at `offset`.
    fn write_some_at<const N: usize>(
        &self,
        position: u64,
        chunks: &[Bytes],
        offset: usize,
    ) -> io::Result<usize> {
        let mut vectors = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }; N];
        let count = chunks.len().min(N);
        load(&mut vectors[..count], chunks, offset);
        self.pwritev(position, &vectors[..count])
    }

    fn pwritev(&self, position: u64, vectors: &[libc::iovec]) -> io::Result<usize> {
        let position = libc::off_t::try_from(position).map_err(|_| io::ErrorKind::InvalidInput)?;
        loop {
            // SAFETY: claim: each vector names readable bytes for the time of the call. keeper: `write_all_at`
            // borrows the chunks meanwhile. breaker: vectors that outlive their chunks.
            let written = unsafe {
                libc::pwritev(
                    self.as_raw_fd(),
                    vectors.as_ptr(),
                    vectors.len() as i32,
                    position,
                )
            };
            if let Ok(written) = usize::try_from(written) {
                return Ok(written);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Fills `buffer` from `position`; UnexpectedEof when the file ends before; blocks.
    pub fn read_exact_at(&self, position: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.file.read_exact_at(buffer, position)
    }

    /// Reads what one call gives; 0 at the end of the file; blocks.
    pub fn read_at(&self, position: u64, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.file.read_at(buffer, position) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Cuts or extends the file to this length.
    pub fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.file.set_len(length)
    }

    /// fdatasync; blocks.
    pub fn sync_data(&self) -> io::Result<()> {
        self.0.file.sync_data()
    }

    /// fsync; blocks.
    pub fn sync_all(&self) -> io::Result<()> {
        self.0.file.sync_all()
    }

    /// Reserves space for a range without changing the length. File systems that cannot are no error:
    /// preallocation only makes later writes cheaper.
    pub fn allocate_keep_size(&self, position: u64, length: u64) -> io::Result<()> {
        let offset = libc::off_t::try_from(position).map_err(|_| io::ErrorKind::InvalidInput)?;
        let length = libc::off_t::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?;
        loop {
            // SAFETY: claim: fallocate takes no pointers. keeper: its signature. breaker: none.
            let result = unsafe {
                libc::fallocate(self.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, offset, length)
            };
            if result == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EOPNOTSUPP | libc::ENOSYS) => return Ok(()),
                _ => return Err(error),
            }
        }
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.0.file.as_raw_fd()
    }
}

fn load(vectors: &mut [libc::iovec], chunks: &[Bytes], offset: usize) {
    for (vector, chunk) in vectors.iter_mut().zip(chunks) {
        *vector = libc::iovec {
            iov_base: chunk.as_ptr().cast_mut().cast(),
            iov_len: chunk.len(),
        };
    }
    let first = &chunks[0][offset..];
    vectors[0] = libc::iovec {
        iov_base: first.as_ptr().cast_mut().cast(),
        iov_len: first.len(),
    };
}

/// An error that says which file and what was tried.
pub(crate) fn named(path: &Path, what: &str, error: io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("cannot {what} {}: {error}", path.display()),
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;
    use crate::testing::TestDir;
    use proptest::prelude::*;

    #[test]
    fn open_modes_differ_in_what_they_require() {
        let dir = TestDir::new();
        let path = dir.path().join("a");
        assert_eq!(
            File::open(&path, OpenMode::Write).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        let file = File::open(&path, OpenMode::CreateNew).unwrap();
        file.write_all_at(0, &[Bytes::from_static(b"abc")]).unwrap();
        assert_eq!(
            File::open(&path, OpenMode::CreateNew).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        assert_eq!(
            File::open(&path, OpenMode::WriteOrCreate)
                .unwrap()
                .len()
                .unwrap(),
            3
        );
        assert!(
            File::open(&path, OpenMode::Read)
                .unwrap()
                .write_all_at(0, &[Bytes::from_static(b"x")])
                .is_err()
        );
        assert!(
            File::open(&path, OpenMode::Truncate)
                .unwrap()
                .is_empty()
                .unwrap()
        );
    }

    #[test]
    fn preallocation_keeps_the_length() {
        let dir = TestDir::new();
        let file = File::open(dir.path().join("a"), OpenMode::CreateNew).unwrap();
        file.allocate_keep_size(0, 1 << 20).unwrap();
        assert_eq!(file.len().unwrap(), 0);
    }

    #[test]
    fn the_end_of_the_file_is_an_error_for_an_exact_read() {
        let dir = TestDir::new();
        let file = File::open(dir.path().join("a"), OpenMode::CreateNew).unwrap();
        file.set_len(10).unwrap();
        assert_eq!(
            file.read_exact_at(5, &mut [0; 6]).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
        assert_eq!(file.read_at(5, &mut [0; 6]).unwrap(), 5);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn chunks_arrive_in_order(lengths in proptest::collection::vec(0usize..40, 0..80), start in 0u64..100) {
            let dir = TestDir::new();
            let file = File::open(dir.path().join("a"), OpenMode::CreateNew).unwrap();
            let chunks: Vec<Bytes> = lengths.iter().enumerate().map(|(i, &n)| vec![i as u8; n].into()).collect();
            file.write_all_at(start, &chunks).unwrap();
            let mut read = vec![0; lengths.iter().sum()];
            file.read_exact_at(start, &mut read).unwrap();
            prop_assert_eq!(read, chunks.concat());
        }
    }

    #[test]
    fn more_chunks_than_one_call_takes_are_written() {
        let dir = TestDir::new();
        let file = File::open(dir.path().join("a"), OpenMode::CreateNew).unwrap();
        let chunks: Vec<Bytes> = (0..3000u32)
            .map(|i| i.to_be_bytes().to_vec().into())
            .collect();
        file.write_all_at(0, &chunks).unwrap();
        let mut read = vec![0; 12_000];
        file.read_exact_at(0, &mut read).unwrap();
        assert_eq!(read, chunks.concat());
    }
}
