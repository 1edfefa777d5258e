//! Shows a run's progress to other threads, and lets them stop the run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use base::Instant;

/// What a run is doing. Phases are reported in this order; those that do not occur are omitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Targets are opened and inspected.
    Preparing,
    /// Targets are filled before the run.
    Filling,
    /// Requests are sent, but not measured yet.
    WarmUp,
    /// Requests are measured.
    Measuring,
    /// No more requests are sent; the run waits for those under way.
    Draining,
    /// The run has ended.
    Over,
}

/// The part of a run that other threads see.
pub(crate) struct Gauge {
    lanes: Vec<Counter>,
    /// Bytes filled so far, and bytes to fill in total.
    filled: [AtomicU64; 2],
    /// When the run was stopped early; `u64::MAX` if it was not.
    stopped_at: AtomicU64,
    phases: mpsc::Sender<Phase>,
}

/// Counts the work of one lane. Only that lane's thread writes it; it has cache lines of its own.
#[repr(align(128))]
#[derive(Default)]
pub(crate) struct Counter {
    requests: [AtomicU64; 2],
    bytes: [AtomicU64; 2],
}

/// The work of all lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Answered reads and writes.
    pub(crate) requests: [u64; 2],
    pub(crate) bytes: [u64; 2],
}

impl Counter {
    pub(crate) fn add(&self, read: bool, bytes: u64) {
        let at = usize::from(!read);
        // There is only one writer: a load and a store are enough, and cheaper than an atomic addition.
        let add = |field: &AtomicU64, more| {
            field.store(field.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        };
        add(&self.requests[at], 1);
        add(&self.bytes[at], bytes);
    }
}

impl Gauge {
    /// A gauge for a number of lanes, and the receiver of the run's phases.
    pub(crate) fn new(lanes: usize) -> (Gauge, mpsc::Receiver<Phase>) {
        let (phases, receiver) = mpsc::channel();
        let gauge = Gauge {
            lanes: (0..lanes).map(|_| Counter::default()).collect(),
            filled: Default::default(),
            stopped_at: AtomicU64::new(u64::MAX),
            phases,
        };
        (gauge, receiver)
    }

    pub(crate) fn lane(&self, number: usize) -> &Counter {
        &self.lanes[number]
    }

    /// The work so far.
    pub(crate) fn count(&self) -> Count {
        let mut count = Count::default();
        for lane in &self.lanes {
            for at in 0..2 {
                count.requests[at] += lane.requests[at].load(Ordering::Relaxed);
                count.bytes[at] += lane.bytes[at].load(Ordering::Relaxed);
            }
        }
        count
    }

    pub(crate) fn enter(&self, phase: Phase) {
        // The observer may be gone.
        let _ = self.phases.send(phase);
    }

    pub(crate) fn fill_more(&self, total: u64) {
        self.filled[1].fetch_add(total, Ordering::Relaxed);
    }

    pub(crate) fn filled(&self, bytes: u64) {
        self.filled[0].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes filled so far, and bytes to fill in total.
    pub(crate) fn fill(&self) -> (u64, u64) {
        (self.filled[0].load(Ordering::Relaxed), self.filled[1].load(Ordering::Relaxed))
    }

    /// Stops the run. Only the first call has an effect.
    pub(crate) fn stop(&self, now: Instant) {
        self.stopped_at.fetch_min(now.0, Ordering::Relaxed);
    }

    /// When the run was stopped early; the end of time if it was not.
    pub(crate) fn stopped_at(&self) -> Instant {
        Instant(self.stopped_at.load(Ordering::Relaxed))
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped_at.load(Ordering::Relaxed) != u64::MAX
    }
}
