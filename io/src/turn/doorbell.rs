#![expect(unsafe_code, reason = "eventfd is a system call")]
//! How others wake a core, and how they see that it lives.
//!
//! A core with a ring of its own uses `Turn::ring` (one MSG_RING in its next submission); any other
//! thread uses `Doorbell::ring` (one write to an eventfd). Both do nothing while the core is awake,
//! because it looks at its queues before it sleeps (see `parked`). Store the message first, ring after.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::parked::Parked;

/// Wakes one core; clones wake the same one.
#[derive(Clone, Debug)]
pub struct Doorbell(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    parked: Parked,
    /// Grows with every wait of the core; read by the watchdog.
    beats: AtomicU64,
    eventfd: Arc<OwnedFd>,
    /// A duplicate of the ring's descriptor, so that it names this ring and no other for ever.
    ring: OwnedFd,
}

impl Doorbell {
    pub(super) fn new(ring: OwnedFd) -> io::Result<Self> {
        let eventfd = Arc::new(eventfd()?);
        Ok(Self(Arc::new(Shared {
            parked: Parked::new(),
            beats: AtomicU64::new(0),
            eventfd,
            ring,
        })))
    }

    /// Wakes the core if it sleeps; from any thread, after the message is stored.
    pub fn ring(&self) {
        if self.0.parked.must_ring() {
            self.ring_always();
        }
    }

    /// Wakes the core's ring whether or not it sleeps.
    pub fn ring_always(&self) {
        signal(&self.0.eventfd);
    }

    /// How many times the core has come to its wait; stands still when the core does.
    pub fn beats(&self) -> u64 {
        self.0.beats.load(Ordering::Relaxed)
    }

    pub(super) fn beat(&self) {
        self.0.beats.store(self.beats() + 1, Ordering::Relaxed);
    }

    pub(super) fn parked(&self) -> &Parked {
        // The reference outlives no caller: `Shared` is behind an `Arc` that `self` holds.
        &self.0.parked
    }

    pub(super) fn is(&self, other: &Doorbell) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(super) fn eventfd(&self) -> Arc<OwnedFd> {
        self.0.eventfd.clone()
    }

    pub(super) fn ring_fd(&self) -> RawFd {
        self.0.ring.as_raw_fd()
    }
}

/// A non-blocking, close-on-exec eventfd... for writers; the ring reads it through a poll.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: claim: eventfd takes no pointers. keeper: its signature. breaker: none.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: claim: the descriptor is new and owned by nobody else. keeper: the check above. breaker:
    // closing it elsewhere.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Adds one to an eventfd. It cannot fail but for a full counter, which wakes just as well.
pub(crate) fn signal(eventfd: &OwnedFd) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: claim: the pointer is valid for eight bytes. keeper: the array above. breaker: a longer
    // length.
    let written = unsafe { libc::write(eventfd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    if written < 0 {
        let error = io::Error::last_os_error();
        if error.kind() == io::ErrorKind::Interrupted {
            signal(eventfd);
        } else if error.kind() != io::ErrorKind::WouldBlock {
            tracing::warn!(%error, "cannot ring a doorbell");
        }
    }
}
