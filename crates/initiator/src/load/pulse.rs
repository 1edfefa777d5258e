//! Progress of a run, for an observer on another thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use base::Instant;

use crate::multipath::Event;

/// At most this many events are kept until they are taken; further ones are dropped.
const EVENTS_MAX: usize = 1024;

/// Shows the answers of one run, and can end the run.
#[derive(Debug, Default)]
pub struct Pulse {
    stop: AtomicBool,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    answers: u64,
    refused: u64,
    last: Option<Instant>,
    stall: Stall,
    events: Vec<Event>,
}

/// The worst stall in a span of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stall {
    /// The longest time without any answer.
    pub silence: Duration,
    /// When that time ended.
    pub silence_ended: Instant,
    /// The longest time that one request waited for its answer.
    pub request: Duration,
}

impl Pulse {
    /// Ends the run: no further request is started.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Requests that have succeeded so far.
    pub fn answers(&self) -> u64 {
        self.seen().answers
    }

    /// How often a write was refused for lack of space, and then sent again.
    pub fn refused(&self) -> u64 {
        self.seen().refused
    }

    /// When the last request was answered; the start of the run if none was, `None` before the start.
    pub fn last_answer(&self) -> Option<Instant> {
        self.seen().last
    }

    /// The worst since the last call of [`Pulse::take_stall`].
    pub fn stall(&self) -> Stall {
        self.seen().stall
    }

    /// The same, and starts again. Requests and a silence that have not ended do not count yet.
    pub fn take_stall(&self) -> Stall {
        std::mem::take(&mut self.seen().stall)
    }

    /// Path events since the last call.
    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.seen().events)
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The first request starts.
    pub(super) fn begin(&self, now: Instant) {
        self.seen().last = Some(now);
    }

    pub(super) fn note(&self, began: Instant, now: Instant) {
        let mut seen = self.seen();
        seen.note(began, now);
        seen.answers += 1;
    }

    /// A write was refused for lack of space: that is an answer, too.
    pub(super) fn note_refused(&self, began: Instant, now: Instant) {
        let mut seen = self.seen();
        seen.note(began, now);
        seen.refused += 1;
    }

    pub(super) fn note_events(&self, events: Vec<Event>) {
        let mut seen = self.seen();
        let room = EVENTS_MAX - seen.events.len().min(EVENTS_MAX);
        seen.events.extend(events.into_iter().take(room));
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("nobody panics with it")
    }
}

impl Seen {
    fn note(&mut self, began: Instant, now: Instant) {
        let silence = self.last.map_or(Duration::ZERO, |last| now.since(last));
        if silence > self.stall.silence {
            (self.stall.silence, self.stall.silence_ended) = (silence, now);
        }
        self.stall.request = self.stall.request.max(now.since(began));
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_silence_and_the_slowest_request_are_kept_apart() {
        let at = |ms: u64| Instant(ms * 1_000_000);
        let pulse = Pulse::default();
        pulse.begin(at(100));
        for (began, now) in [(100, 110), (100, 610), (105, 700), (700, 705)] {
            pulse.note(at(began), at(now));
        }
        let worst = Stall {
            silence: Duration::from_millis(500),
            silence_ended: at(610),
            request: Duration::from_millis(595),
        };
        assert_eq!((pulse.take_stall(), pulse.answers(), pulse.last_answer()), (worst, 4, Some(at(705))));
        pulse.note(at(701), at(706));
        let next = Stall {
            silence: Duration::from_millis(1),
            silence_ended: at(706),
            request: Duration::from_millis(5),
        };
        assert_eq!(pulse.take_stall(), next, "since the last call");
        pulse.note_refused(at(800), at(900));
        assert_eq!((pulse.answers(), pulse.refused()), (5, 1));
        assert_eq!(pulse.take_stall().request, Duration::from_millis(100), "it was answered");
    }
}
