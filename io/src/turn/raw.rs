#![expect(unsafe_code, reason = "buffers are filled by the kernel")]
//! The two unsafe steps of operations: making an empty message header, and believing the kernel's count.

use bytes::{BufMut, BytesMut};

/// A message header with no address, no control data and no vectors.
pub(super) fn empty_header() -> libc::msghdr {
    // SAFETY: claim: all zeros is a valid `msghdr`. keeper: it has only integers and pointers. breaker: a
    // different libc.
    unsafe { std::mem::zeroed() }
}

/// The kernel has put `bytes` bytes into the spare capacity of `buffer`.
pub(super) fn filled(buffer: &mut BytesMut, bytes: usize) {
    assert!(
        bytes <= buffer.capacity() - buffer.len(),
        "the kernel claims {bytes} bytes, there was less room"
    );
    // SAFETY: claim: these bytes are initialised. keeper: the kernel wrote them, as the event of the entry
    // that pointed here says. breaker: an event of another buffer.
    unsafe { buffer.advance_mut(bytes) };
}
