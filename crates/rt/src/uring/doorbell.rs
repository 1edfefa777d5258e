//! How a core that sleeps in its ring is woken by another thread.
//!
//! What must never happen: a message lies in the inbox and its core sleeps. The sleeper announces itself
//! (`sleeping = true`) and only then looks into the inbox a last time; the sender puts the message into the
//! inbox and only then looks at the announcement. The inbox is behind a mutex, so one of the two looks came
//! second: if the sleeper's, it sees the message and stays awake; if the sender's, the unlock and lock of the
//! mutex carry the announcement over to it, and it rings. A ring between the last look and the sleep is not
//! lost either: it is counted in an eventfd that the ring polls, so that the sleep ends at once.
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
        // SAFETY: `fd` was just opened and belongs to nobody else.
        let event = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Arc::new(Doorbell { sleeping: AtomicBool::new(false), event }))
    }

    /// The descriptor for the core's ring to poll.
    pub(super) fn event(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// The core will sleep unless it finds a message after this.
    pub(super) fn announce_sleep(&self) {
        self.sleeping.store(true, Ordering::SeqCst);
    }

    /// The core is awake again.
    pub(super) fn awake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// Wakes the core if it sleeps.
    pub(super) fn wake(&self) {
        // The load comes first because the common case, a core that is awake, must not write to its cache
        // line.
        if self.sleeping.load(Ordering::SeqCst) && self.sleeping.swap(false, Ordering::SeqCst) {
            self.wake_always();
        }
    }

    /// Wakes the core, or makes its next sleep end at once.
    pub(super) fn wake_always(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight readable bytes, as an eventfd wants. It can only fail when the counter is full, and
        // then the core has been woken already.
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
