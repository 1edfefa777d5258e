//! How another thread wakes a core that sleeps in its ring.
//!
//! What must never happen: a message waits in the inbox while its core sleeps. The sleeper first announces
//! itself (`sleeping = true`) and then checks the inbox a last time; the sender first puts the message into
//! the inbox and then checks the announcement. The inbox is behind a mutex, so one of the two checks comes
//! second. If it is the sleeper's, it finds the message and stays awake. If it is the sender's, the unlock
//! and lock of the mutex make the announcement visible to it, and it rings. A ring between the last check and
//! the sleep is not lost either: an eventfd that the ring polls counts it, so the sleep ends at once.
//!
//! A core that is awake costs a sender one load; many messages to a sleeper cost one ring.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::executor;

/// The doorbell of one core.
pub(super) struct Doorbell {
    /// The core sleeps, or is about to.
    sleeping: AtomicBool,
    /// Written to wake the core. It is never read: its ring polls it edge-triggered, and 2^64 rings do not
    /// happen.
    event: OwnedFd,
}

impl Doorbell {
    pub(super) fn new() -> io::Result<Arc<Doorbell>> {
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just opened and nothing else owns it.
        let event = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Arc::new(Doorbell { sleeping: AtomicBool::new(false), event }))
    }

    /// The descriptor for the core's ring to poll.
    pub(super) fn event(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Announces that the core will sleep unless it finds a message after this.
    pub(super) fn announce_sleep(&self) {
        self.sleeping.store(true, Ordering::SeqCst);
    }

    /// Announces that the core is awake again.
    pub(super) fn awake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// Wakes the core if it sleeps.
    pub(super) fn wake(&self) {
        // The load comes first because in the common case, a core that is awake, the sender must not write to
        // its cache line.
        if self.sleeping.load(Ordering::SeqCst) && self.sleeping.swap(false, Ordering::SeqCst) {
            self.wake_always();
        }
    }

    /// Wakes the core, or makes its next sleep end at once.
    pub(super) fn wake_always(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight readable bytes, as an eventfd requires. It can only fail if the counter is full, and
        // then the core has already been woken.
        let _ = unsafe { libc::write(self.event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }
}

/// The inbox's view of the doorbell.
pub(super) struct Ring(pub(super) Arc<Doorbell>);

impl executor::Doorbell for Ring {
    fn ring(&self) {
        self.0.wake();
    }
}
