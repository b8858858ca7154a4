#![expect(unsafe_code, reason = "statvfs is a system call")]
//! How much room a file system has.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::file::named;

/// Room of a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    pub total: u64,
    /// What an ordinary process may still use.
    pub usable: u64,
}

/// Room of the file system that this path is on.
pub fn space(path: &Path) -> io::Result<Space> {
    let name =
        CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut stat = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: claim: the name ends with a zero byte and the pointer is valid for one statvfs. keeper: the lines
    // above. breaker: a name that is no C string.
    if unsafe { libc::statvfs(name.as_ptr(), stat.as_mut_ptr()) } != 0 {
        return Err(named(
            path,
            "look at the file system of",
            io::Error::last_os_error(),
        ));
    }
    // SAFETY: claim: the structure is filled. keeper: the check above. breaker: reading it after a failure.
    let stat = unsafe { stat.assume_init() };
    let block = stat.f_frsize;
    Ok(Space {
        total: stat.f_blocks.saturating_mul(block),
        usable: stat.f_bavail.saturating_mul(block),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn the_root_has_room_and_a_missing_path_is_named() {
        let root = space(Path::new("/")).unwrap();
        assert!(root.total > 0 && root.usable <= root.total);
        assert!(
            space(Path::new("/nowhere"))
                .unwrap_err()
                .to_string()
                .contains("/nowhere")
        );
    }
}
