//! How a session handles commands that are not answered in time (SAM-5 7).
//!
//! It sends ABORT TASK. If that does not help, it sends LOGICAL UNIT RESET, which also ends the commands of
//! other initiators on the unit. If that does not help either, it gives the session up.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use proto::iscsi::initiator::TaskId;
use proto::iscsi::target_role::TaskFunction;

use super::shared::Shared;
use super::wait_for;
use super::waiters::{Answer, Overdue};
use crate::Ended;

/// Handles overdue commands until the session ends.
pub(super) async fn run(shared: Rc<Shared>) {
    while shared.ended.get().is_none() {
        let overdue = shared.overdue.take();
        if overdue.is_empty() {
            shared.overdue_found.notified().await;
        } else {
            escalate(&shared, overdue).await;
        }
    }
}

async fn escalate(shared: &Rc<Shared>, mut overdue: Vec<Overdue>) {
    let peer = shared.stream.peer_address();
    tracing::warn!(%peer, commands = overdue.len(), "commands timed out: aborting them");
    overdue.retain(|command| !withdraw(shared, command.task));
    let aborts = overdue.iter().map(|command| {
        manage(shared, TaskFunction::AbortTask, command.lun, Some(command.task), shared.timeouts.abort)
    });
    rt::join_all(aborts).await;
    overdue.retain(|command| shared.waiters.borrow().is_unanswered(command.task));
    if overdue.is_empty() {
        return;
    }
    tracing::warn!(%peer, commands = overdue.len(), "commands cannot be aborted: resetting their LUNs");
    let units: BTreeSet<_> = overdue.iter().map(|command| command.lun).collect();
    let resets = units
        .into_iter()
        .map(|lun| manage(shared, TaskFunction::LogicalUnitReset, lun, None, shared.timeouts.reset));
    rt::join_all(resets).await;
    if overdue.iter().any(|command| shared.waiters.borrow().is_unanswered(command.task)) {
        tracing::error!(%peer, "the LUN reset did not end the commands: dropping the session");
        shared.end(Ended::Unresponsive);
    }
}

/// Withdraws a command that still waits for the target's window; false if it was sent already.
fn withdraw(shared: &Shared, task: TaskId) -> bool {
    let withdrawn = shared.connection.borrow_mut().withdraw(task);
    if withdrawn {
        shared.waiters.borrow_mut().answer(task, Answer::TimedOut);
    }
    withdrawn
}

/// Requests a task management function and waits at most `deadline` for the response. The caller looks at the
/// commands themselves to see whether it helped.
async fn manage(
    shared: &Rc<Shared>,
    function: TaskFunction,
    lun: [u8; 8],
    task: Option<TaskId>,
    deadline: Duration,
) {
    let _ = rt::timeout(deadline, wait_for(shared, |it| it.manage(function, lun, task))).await;
}
