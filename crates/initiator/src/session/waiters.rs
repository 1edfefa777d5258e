//! The tasks that wait for answers.
//!
//! The connection reuses a task's slot as soon as it has been answered, but the waiter may look at the answer
//! later. So answers are stored here, apart from the slots.

use std::task::{Context, Poll, Waker};

use proto::iscsi::initiator::{CommandResult, TaskId};
use proto::iscsi::target_role::TargetRecord;
use slab::Slab;

use crate::Ended;

/// The possible answers to a task.
#[derive(Debug)]
pub(super) enum Answer {
    Command(CommandResult),
    Aborted,
    /// It was aborted because it was not answered in time.
    TimedOut,
    /// The response to a task management function (RFC 7143 11.6.1).
    Task(u8),
    Targets(Vec<TargetRecord>),
    Pong,
    LoggedOut,
    Ended(Ended),
    /// The session had ended before the command was sent.
    NotSent(Ended),
}

struct Wait {
    task: TaskId,
    /// The unit, if it is a command.
    lun: Option<[u8; 8]>,
    /// The tick in which it began.
    since: u32,
    /// It was not answered in time and is being aborted.
    overdue: bool,
    state: State,
}

enum State {
    /// Not answered; the waker of the waiter.
    Waiting(Option<Waker>),
    /// Not answered, and the waiter has given up.
    Abandoned,
    Answered(Answer),
}

#[derive(Default)]
pub(super) struct Waiters {
    waits: Slab<Wait>,
    /// The wait of the task in each slot of the connection.
    by_slot: Vec<Option<usize>>,
    /// Commands that have not been answered.
    commands: usize,
}

/// An index into the list of waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitId(usize);

/// A command that was not answered in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overdue {
    pub(super) task: TaskId,
    pub(super) lun: [u8; 8],
}

impl Waiters {
    /// Starts to wait for `task`, which is a command to the unit `lun` if there is one.
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

    /// Stores the answer to `task` and wakes its waiter.
    pub(super) fn answer(&mut self, task: TaskId, answer: Answer) {
        if let Some(id) = self.by_slot.get_mut(task.slot()).and_then(Option::take) {
            self.settle(id, answer);
        }
    }

    /// The session has ended: answers all waits. `was_sent` returns whether a command had been sent before.
    pub(super) fn end(&mut self, ended: Ended, mut was_sent: impl FnMut(TaskId) -> bool) {
        for slot in 0..self.by_slot.len() {
            if let Some(id) = self.by_slot[slot].take() {
                let sent = self.waits.get(id).is_none_or(|wait| was_sent(wait.task));
                self.settle(id, if sent { Answer::Ended(ended) } else { Answer::NotSent(ended) });
            }
        }
    }

    /// The number of commands that have not been answered.
    pub(super) fn commands(&self) -> usize {
        self.commands
    }

    /// Whether this command has not been answered yet.
    pub(super) fn is_unanswered(&self, task: TaskId) -> bool {
        let id = self.by_slot.get(task.slot()).copied().flatten();
        id.and_then(|id| self.waits.get(id)).is_some_and(|wait| wait.task == task)
    }

    /// The commands that have waited for more than `limit` ticks; each is returned once.
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

    /// Takes the answer, or registers the waker.
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

    /// The task of a wait that has no answer yet.
    pub(super) fn task(&self, id: WaitId) -> Option<TaskId> {
        let wait = self.waits.get(id.0)?;
        (!matches!(wait.state, State::Answered(_))).then_some(wait.task)
    }

    /// The waiter has given up.
    pub(super) fn abandon(&mut self, id: WaitId) {
        match self.waits.get_mut(id.0).map(|wait| &mut wait.state) {
            Some(state @ State::Waiting(_)) => *state = State::Abandoned,
            Some(State::Answered(_)) => drop(self.waits.remove(id.0)),
            _ => {}
        }
    }

    /// Forgets a task that was withdrawn before it was sent.
    pub(super) fn forget(&mut self, id: WaitId) {
        let Some(wait) = self.waits.try_remove(id.0) else { return };
        self.commands -= usize::from(wait.lun.is_some());
        if let Some(slot) = self.by_slot.get_mut(wait.task.slot()) {
            *slot = None;
        }
    }
}
