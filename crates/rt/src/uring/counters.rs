//! What a core has done. The core writes this once per turn; any thread may read it.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use base::Instant;

use super::turns::{TurnCounters, Turns};

/// CPU time and turns of a core, for metrics. All values only grow, except the longest recent turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct CoreStats {
    /// CPU time of the thread.
    pub cpu: Duration,
    /// The part of it spent looking for work: what a core that sleeps at once would not have used.
    pub polling: Duration,
    /// Turns of the loop that found work.
    pub busy_turns: u64,
    /// Calls to io_uring_enter.
    pub enters: u64,
    /// Completions taken from the ring.
    pub completions: u64,
    /// The durations of turns.
    pub turns: Turns,
}

/// The shared side of [`CoreStats`]. One writer, no order between the fields: they are for metrics.
#[derive(Default)]
pub(super) struct Counters {
    /// The clock of the thread's CPU time; zero before the thread has started.
    cpu_clock: AtomicI32,
    /// The CPU time at the thread's end; zero before that.
    cpu_final_ns: AtomicU64,
    polling_ns: AtomicU64,
    busy_turns: AtomicU64,
    enters: AtomicU64,
    completions: AtomicU64,
    pub(super) turns: TurnCounters,
}

impl Counters {
    /// Counts the current thread from now on.
    pub(super) fn start(&self) {
        let mut clock: libc::clockid_t = 0;
        // SAFETY: `clock` is valid for writing, and the current thread exists.
        let result = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        if result == 0 {
            self.cpu_clock.store(clock, Ordering::Relaxed);
        }
    }

    /// Ends the counting: the current thread, which is the one that is counted, is about to end.
    pub(super) fn finish(&self) {
        let clock = self.cpu_clock.load(Ordering::Relaxed);
        let cpu = if clock == 0 { None } else { read_clock(clock) };
        self.cpu_final_ns.store(cpu.unwrap_or(0).max(1), Ordering::Relaxed);
    }

    pub(super) fn publish(&self, polling_ns: u64, busy_turns: u64, enters: u64, completions: u64) {
        self.polling_ns.store(polling_ns, Ordering::Relaxed);
        self.busy_turns.store(busy_turns, Ordering::Relaxed);
        self.enters.store(enters, Ordering::Relaxed);
        self.completions.store(completions, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> CoreStats {
        let cpu_ns = match (self.cpu_final_ns.load(Ordering::Relaxed), self.cpu_clock.load(Ordering::Relaxed))
        {
            (0, 0) => 0,
            // A thread that ends right now no longer has a clock; it stores its final value a moment later.
            (0, clock) => read_clock(clock).unwrap_or_else(|| self.cpu_final_ns.load(Ordering::Relaxed)),
            (last, _) => last,
        };
        CoreStats {
            cpu: Duration::from_nanos(cpu_ns),
            polling: Duration::from_nanos(self.polling_ns.load(Ordering::Relaxed)),
            busy_turns: self.busy_turns.load(Ordering::Relaxed),
            enters: self.enters.load(Ordering::Relaxed),
            completions: self.completions.load(Ordering::Relaxed),
            turns: self.turns.read(Instant(read_clock(SINCE_BOOT).unwrap_or_default())),
        }
    }
}

/// The clock of [`crate::now`].
pub(super) const SINCE_BOOT: libc::clockid_t = libc::CLOCK_BOOTTIME;

/// Nanoseconds of a system clock, or `None` if there is no such clock.
pub(super) fn read_clock(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writing.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    // Both fields are positive for the clocks that we read, and 64 bits hold 584 years.
    (result == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
