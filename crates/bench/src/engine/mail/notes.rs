//! Measurements of a mail server's tasks and requests.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use base::Instant;

use super::super::{Gauge, Loss};
use crate::Latency;
use crate::device::Failure;
use crate::mail::{KINDS, Part, WINDOWS};
use crate::recorder::{Answered, Directions, Recorder, Window};

#[derive(Clone, Default)]
pub(crate) struct TaskNotes {
    /// Tasks that ended in the window.
    pub(crate) ended: u64,
    /// Latency of the tasks that were due in the window, whenever they ended.
    pub(crate) latency: Latency,
}

/// The measurements of one part of the run.
#[derive(Clone, Default)]
pub(crate) struct MailWindow {
    pub(crate) tasks: [TaskNotes; KINDS.len()],
    /// Requests to the parts of the targets, by role.
    pub(crate) requests: [Directions; 3],
}

pub(super) struct Notes {
    window: Window,
    gauge: Arc<Gauge>,
    recorder: RefCell<Recorder>,
    windows: RefCell<Vec<MailWindow>>,
    /// Reads and writes under way.
    under_way: [Cell<u64>; 2],
    /// Reads and writes that failed without an answer.
    unanswered: [Cell<u64>; 2],
    last_answer: Cell<Option<Instant>>,
    loss: RefCell<Option<Loss>>,
}

/// The measurements of a whole run.
pub(super) struct NotesEnd {
    pub(super) recorder: Recorder,
    pub(super) windows: Vec<MailWindow>,
    pub(super) loss: Option<Loss>,
    pub(super) unanswered: [u64; 2],
}

impl Notes {
    pub(super) fn new(window: Window, gauge: Arc<Gauge>) -> Notes {
        Notes {
            window,
            gauge,
            recorder: RefCell::new(Recorder::new(window)),
            windows: RefCell::new((0..WINDOWS).map(|_| MailWindow::default()).collect()),
            under_way: Default::default(),
            unanswered: Default::default(),
            last_answer: Cell::new(None),
            loss: RefCell::default(),
        }
    }

    /// Records a task that has ended.
    pub(super) fn task(&self, kind: usize, due: Instant, ended: Instant) {
        let mut windows = self.windows.borrow_mut();
        if let Some(number) = self.number(ended) {
            windows[number].tasks[kind].ended += 1;
        }
        if let Some(number) = self.number(due) {
            windows[number].tasks[kind].latency.note(ended - due);
        }
    }

    /// Records a task that was due and never started: it would have taken longer than it has waited.
    pub(super) fn never_begun(&self, kind: usize, due: Instant, now: Instant) {
        if let Some(number) = self.number(due) {
            self.windows.borrow_mut()[number].tasks[kind].latency.note(now - due);
        }
    }

    /// Records that a request is sent.
    pub(super) fn begun(&self, read: bool) {
        let under_way = &self.under_way[usize::from(!read)];
        under_way.set(under_way.get() + 1);
    }

    /// Records an answered request.
    pub(super) fn answered(&self, part: &Part, read: bool, bytes: u64, began: Instant) {
        self.done(read);
        let ended = rt::now();
        self.last_answer.set(Some(ended));
        let answered = Answered { read, bytes, began, ended };
        self.recorder.borrow_mut().note(&answered, self.gauge.stopped_at());
        self.gauge.lane(0).add(read, bytes);
        if let Some(number) = self.number(ended) {
            let directions = &mut self.windows.borrow_mut()[number].requests[part.role as usize];
            let direction = &mut directions[usize::from(!read)];
            direction.requests += 1;
            direction.bytes += bytes;
            direction.latency.note(ended - began);
        }
    }

    /// Records a failed request.
    pub(super) fn failed(&self, part: &Part, read: bool, offset: u64, failure: Failure) {
        self.done(read);
        if failure.is_unanswered() {
            let unanswered = &self.unanswered[usize::from(!read)];
            unanswered.set(unanswered.get() + 1);
        }
        self.end_run(part, read, offset, failure);
    }

    fn done(&self, read: bool) {
        let under_way = &self.under_way[usize::from(!read)];
        under_way.set(under_way.get() - 1);
    }

    /// Records the first failure, and ends the run.
    pub(super) fn end_run(&self, part: &Part, read: bool, offset: u64, failure: Failure) {
        let at = rt::now();
        self.gauge.stop(at);
        let last_answer = self.last_answer.get();
        let loss = Loss { at, last_answer, place: part.place, read, offset, failure };
        self.loss.borrow_mut().get_or_insert(loss);
    }

    /// Whether requests are under way.
    pub(super) fn is_busy(&self) -> bool {
        self.under_way.iter().any(|count| count.get() > 0)
    }

    /// Whether nothing has failed.
    pub(super) fn is_clean(&self) -> bool {
        self.loss.borrow().is_none()
    }

    pub(super) fn stopped_at(&self) -> Instant {
        self.gauge.stopped_at()
    }

    /// The window of a moment; `None` after the end.
    fn number(&self, at: Instant) -> Option<usize> {
        let Window { start, until, .. } = self.window;
        let whole = (until - start).as_nanos();
        let number = (at - start).as_nanos() * WINDOWS as u128 / whole;
        (at < until && at < self.gauge.stopped_at()).then_some(number as usize)
    }

    pub(super) fn end(self) -> NotesEnd {
        NotesEnd {
            recorder: self.recorder.into_inner(),
            windows: self.windows.into_inner(),
            loss: self.loss.into_inner(),
            // Nothing waits for the requests that are still under way.
            unanswered: [0, 1].map(|at| self.unanswered[at].get() + self.under_way[at].get()),
        }
    }
}
