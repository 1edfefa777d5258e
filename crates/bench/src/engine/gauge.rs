//! What a run shows to other threads while it goes on, and how they stop it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use base::Instant;

/// What a run is doing. Told in this order; what does not happen is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Targets are opened and looked at.
    Preparing,
    /// Targets are written before the run.
    Filling,
    /// Requests are made and not measured yet.
    WarmUp,
    /// Requests are measured.
    Measuring,
    /// No more requests are made; those under way are waited for.
    Draining,
    /// That was it.
    Over,
}

/// The shared face of a run.
pub(crate) struct Gauge {
    lanes: Vec<Counter>,
    /// Bytes that were filled, and that are to be.
    filled: [AtomicU64; 2],
    /// When it was stopped before its time; the end of time: it was not.
    stopped_at: AtomicU64,
    phases: mpsc::Sender<Phase>,
}

/// What one thread of the run has done; written by that thread only. On cache lines of its own.
#[repr(align(128))]
#[derive(Default)]
pub(crate) struct Counter {
    requests: [AtomicU64; 2],
    bytes: [AtomicU64; 2],
}

/// What all threads have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Answered reads and writes.
    pub(crate) requests: [u64; 2],
    pub(crate) bytes: [u64; 2],
}

impl Counter {
    pub(crate) fn add(&self, read: bool, bytes: u64) {
        let at = usize::from(!read);
        // One writer: a load and a store are enough, and cheaper than an addition that other threads may join
        // in.
        let add = |field: &AtomicU64, more| {
            field.store(field.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        };
        add(&self.requests[at], 1);
        add(&self.bytes[at], bytes);
    }
}

impl Gauge {
    /// Of a run of so many lanes. The phases come out of the receiver.
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

    /// What was done until now.
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
        // Whoever watched may be gone.
        let _ = self.phases.send(phase);
    }

    pub(crate) fn fill_more(&self, total: u64) {
        self.filled[1].fetch_add(total, Ordering::Relaxed);
    }

    pub(crate) fn filled(&self, bytes: u64) {
        self.filled[0].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that were filled, and that are to be filled in all.
    pub(crate) fn fill(&self) -> (u64, u64) {
        (self.filled[0].load(Ordering::Relaxed), self.filled[1].load(Ordering::Relaxed))
    }

    /// Ends the run now. The first call counts.
    pub(crate) fn stop(&self, now: Instant) {
        self.stopped_at.fetch_min(now.0, Ordering::Relaxed);
    }

    /// When the run was stopped before its time; the end of time: it was not.
    pub(crate) fn stopped_at(&self) -> Instant {
        Instant(self.stopped_at.load(Ordering::Relaxed))
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped_at.load(Ordering::Relaxed) != u64::MAX
    }
}
