//! Who waits for which answer.
//!
//! The connection uses the slot of a task again as soon as it is answered, and the one who waits may look at
//! the answer later: so answers have places of their own.

use std::task::{Context, Poll, Waker};

use proto::iscsi::initiator::{CommandResult, TaskId};
use proto::iscsi::target::TargetRecord;
use slab::Slab;

use crate::Ended;

/// What a task may be answered with.
#[derive(Debug)]
pub(super) enum Answer {
    Command(CommandResult),
    Aborted,
    /// It was aborted because it was not answered in time.
    TimedOut,
    /// RFC 7143 11.6.1.
    Task(u8),
    Targets(Vec<TargetRecord>),
    Pong,
    LoggedOut,
    Ended(Ended),
    /// The session has ended before the command was sent.
    NotSent(Ended),
}

struct Wait {
    task: TaskId,
    /// The unit, if it is a command.
    lun: Option<[u8; 8]>,
    /// The tick in which it began.
    since: u32,
    /// It was not answered in time, and is being aborted.
    overdue: bool,
    state: State,
}

enum State {
    /// Not answered; whom to wake.
    Waiting(Option<Waker>),
    /// Not answered, and nobody waits any more.
    Abandoned,
    Answered(Answer),
}

#[derive(Default)]
pub(super) struct Waiters {
    waits: Slab<Wait>,
    /// The wait of the task in each slot of the connection.
    by_slot: Vec<Option<usize>>,
    /// Commands that are not answered.
    commands: usize,
}

/// A place in the list of waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitId(usize);

/// A command that was not answered in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overdue {
    pub(super) task: TaskId,
    pub(super) lun: [u8; 8],
}

impl Waiters {
    /// Begins to wait for `task`, which is a command to the unit `lun` if there is one.
    pub(super) fn add(&mut self, task: TaskId, lun: Option<[u8; 8]>, tick: u32) -> WaitId {
        self.commands += usize::from(lun.is_some());
        let wait = Wait { task, lun, since: tick, overdue: false, state: State::Waiting(None) };
        let id = self.waits.insert(wait);
        if self.by_slot.len() <= task.slot() {
            self.by_slot.resize(task.slot() + 1, None);
        }
        self.by_slot[task.slot()] = Some(id);
        WaitId(id)
    }

    /// The answer to `task` has come.
    pub(super) fn answer(&mut self, task: TaskId, answer: Answer) {
        if let Some(id) = self.by_slot.get_mut(task.slot()).and_then(Option::take) {
            self.settle(id, answer);
        }
    }

    /// No answer will come any more, to anybody. `was_sent` tells whether a command had left before.
    pub(super) fn end(&mut self, ended: Ended, mut was_sent: impl FnMut(TaskId) -> bool) {
        for slot in 0..self.by_slot.len() {
            if let Some(id) = self.by_slot[slot].take() {
                let sent = self.waits.get(id).is_none_or(|wait| was_sent(wait.task));
                self.settle(id, if sent { Answer::Ended(ended) } else { Answer::NotSent(ended) });
            }
        }
    }

    /// Commands that are not answered.
    pub(super) fn commands(&self) -> usize {
        self.commands
    }

    /// Whether this command is not answered yet.
    pub(super) fn is_unanswered(&self, task: TaskId) -> bool {
        let id = self.by_slot.get(task.slot()).copied().flatten();
        id.and_then(|id| self.waits.get(id)).is_some_and(|wait| wait.task == task)
    }

    /// The commands that have waited for more than `limit` ticks, each once.
    pub(super) fn overdue(&mut self, tick: u32, limit: u32) -> Vec<Overdue> {
        let mut overdue = Vec::new();
        for (_, wait) in &mut self.waits {
            let is_open = !matches!(wait.state, State::Answered(_));
            if let Some(lun) = wait.lun
                && is_open
                && !wait.overdue
                && tick.wrapping_sub(wait.since) > limit
            {
                wait.overdue = true;
                overdue.push(Overdue { task: wait.task, lun });
            }
        }
        overdue
    }

    fn settle(&mut self, id: usize, answer: Answer) {
        let Some(wait) = self.waits.get_mut(id) else { return };
        self.commands -= usize::from(wait.lun.is_some());
        let answer = match answer {
            Answer::Aborted if wait.overdue => Answer::TimedOut,
            answer => answer,
        };
        match std::mem::replace(&mut wait.state, State::Answered(answer)) {
            State::Waiting(Some(waker)) => waker.wake(),
            State::Abandoned => drop(self.waits.remove(id)),
            _ => {}
        }
    }

    /// Takes the answer, or asks to be woken when it comes.
    pub(super) fn poll(&mut self, id: WaitId, context: &Context<'_>) -> Poll<Answer> {
        match self.waits.get_mut(id.0).map(|wait| &mut wait.state) {
            Some(State::Answered(_)) => match self.waits.remove(id.0).state {
                State::Answered(answer) => Poll::Ready(answer),
                _ => unreachable!("just seen"),
            },
            Some(State::Waiting(waker)) => {
                if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                    *waker = Some(context.waker().clone());
                }
                Poll::Pending
            }
            _ => Poll::Pending,
        }
    }

    /// The task behind a wait that is not over.
    pub(super) fn task(&self, id: WaitId) -> Option<TaskId> {
        let wait = self.waits.get(id.0)?;
        (!matches!(wait.state, State::Answered(_))).then_some(wait.task)
    }

    /// Nobody waits any more.
    pub(super) fn abandon(&mut self, id: WaitId) {
        match self.waits.get_mut(id.0).map(|wait| &mut wait.state) {
            Some(state @ State::Waiting(_)) => *state = State::Abandoned,
            Some(State::Answered(_)) => drop(self.waits.remove(id.0)),
            _ => {}
        }
    }

    /// Forgets a task that was taken back before it was sent.
    pub(super) fn forget(&mut self, id: WaitId) {
        let Some(wait) = self.waits.try_remove(id.0) else { return };
        self.commands -= usize::from(wait.lun.is_some());
        if let Some(slot) = self.by_slot.get_mut(wait.task.slot()) {
            *slot = None;
        }
    }
}
