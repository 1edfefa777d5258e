//! Who waits for which answer.
//!
//! The connection uses the slot of a task again as soon as it is answered, and the one who waits may look at the answer
//! later: so answers have places of their own.

use std::task::{Context, Poll, Waker};

use proto::iscsi::initiator::{CommandResult, TaskId};
use proto::iscsi::target::TargetRecord;
use slab::Slab;

use crate::Ended;

/// What a task may be answered with.
#[derive(Debug)]
pub(crate) enum Answer {
    Command(CommandResult),
    Aborted,
    /// RFC 7143 11.6.1.
    Task(u8),
    Targets(Vec<TargetRecord>),
    Pong,
    LoggedOut,
    Ended(Ended),
}

enum Wait {
    /// Not answered; whom to wake.
    Waiting(Option<Waker>),
    /// Not answered, and nobody waits any more.
    Abandoned,
    Answered(Answer),
}

#[derive(Default)]
pub(crate) struct Waiters {
    waits: Slab<Wait>,
    /// The wait of the task in each slot of the connection.
    by_slot: Vec<Option<usize>>,
}

/// A place in the list of waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitId(usize);

impl Waiters {
    /// Begins to wait for `task`.
    pub(crate) fn add(&mut self, task: TaskId) -> WaitId {
        let id = self.waits.insert(Wait::Waiting(None));
        if self.by_slot.len() <= task.slot() {
            self.by_slot.resize(task.slot() + 1, None);
        }
        self.by_slot[task.slot()] = Some(id);
        WaitId(id)
    }

    /// The answer to `task` has come.
    pub(crate) fn answer(&mut self, task: TaskId, answer: Answer) {
        if let Some(id) = self.by_slot.get_mut(task.slot()).and_then(Option::take) {
            self.settle(id, answer);
        }
    }

    /// No answer will come any more, to anybody.
    pub(crate) fn end(&mut self, ended: Ended) {
        for slot in 0..self.by_slot.len() {
            if let Some(id) = self.by_slot[slot].take() {
                self.settle(id, Answer::Ended(ended));
            }
        }
    }

    fn settle(&mut self, id: usize, answer: Answer) {
        match self.waits.get_mut(id) {
            Some(Wait::Abandoned) => drop(self.waits.remove(id)),
            Some(wait) => {
                if let Wait::Waiting(Some(waker)) = std::mem::replace(wait, Wait::Answered(answer)) {
                    waker.wake();
                }
            }
            None => {}
        }
    }

    /// Takes the answer, or asks to be woken when it comes.
    pub(crate) fn poll(&mut self, id: WaitId, context: &Context<'_>) -> Poll<Answer> {
        match self.waits.get_mut(id.0) {
            Some(Wait::Answered(_)) => match self.waits.remove(id.0) {
                Wait::Answered(answer) => Poll::Ready(answer),
                _ => unreachable!("just seen"),
            },
            Some(Wait::Waiting(waker)) => {
                if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                    *waker = Some(context.waker().clone());
                }
                Poll::Pending
            }
            _ => Poll::Pending,
        }
    }

    /// Nobody waits any more.
    pub(crate) fn abandon(&mut self, id: WaitId) {
        match self.waits.get_mut(id.0) {
            Some(wait @ Wait::Waiting(_)) => *wait = Wait::Abandoned,
            Some(Wait::Answered(_)) => drop(self.waits.remove(id.0)),
            _ => {}
        }
    }
}
