//! A command under way.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use proto::iscsi::initiator::CommandResult;
use proto::iscsi::target_role::TaskFunction;

use super::shared::Shared;
use super::waiters::{Answer, WaitId};
use crate::Error;

/// A command of a [`crate::Session`] that is under way from its creation; awaiting it yields the answer.
///
/// Dropping it gives the command up: if the command still waits for the target's window, it is not sent;
/// otherwise it is aborted. Then it is unknown whether it takes effect. The session keeps its buffers until
/// the target no longer uses them.
#[must_use = "the command is aborted when this is dropped"]
pub struct Pending(State);

enum State {
    UnderWay {
        shared: Rc<Shared>,
        id: WaitId,
        /// The unit, for an abort.
        lun: [u8; 8],
    },
    /// The command was not sent.
    Failed(Error),
    Over,
}

impl Pending {
    pub(super) fn new(shared: Rc<Shared>, id: WaitId, lun: [u8; 8]) -> Pending {
        Pending(State::UnderWay { shared, id, lun })
    }

    pub(super) fn failed(error: Error) -> Pending {
        Pending(State::Failed(error))
    }

    /// Aborts the command, and waits until it can have no further effect: until it has been aborted, answered
    /// all the same, or the session has ended.
    ///
    /// # Errors
    /// [`Error::Aborted`] if it was aborted; [`Error::Ended`].
    pub async fn abort(mut self) -> Result<CommandResult, Error> {
        if let State::UnderWay { shared, id, lun } = &self.0
            && !abort(shared, *id, *lun)
        {
            self.0 = State::Over;
            return Err(Error::Aborted);
        }
        self.await
    }
}

impl Future for Pending {
    type Output = Result<CommandResult, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = match &self.0 {
            State::UnderWay { shared, id, .. } => shared.waiters.borrow_mut().poll(*id, context),
            State::Failed(_) => match std::mem::replace(&mut self.0, State::Over) {
                State::Failed(error) => return Poll::Ready(Err(error)),
                _ => unreachable!("just seen"),
            },
            State::Over => panic!("polled after its end"),
        };
        let Poll::Ready(answer) = answer else { return Poll::Pending };
        self.0 = State::Over;
        Poll::Ready(match answer {
            Answer::Command(result) => Ok(result),
            Answer::Aborted => Err(Error::Aborted),
            Answer::TimedOut => Err(Error::TimedOut),
            Answer::Ended(ended) => Err(Error::Ended(ended)),
            Answer::NotSent(ended) => Err(Error::NotSent(ended)),
            _ => Err(Error::BadAnswer("a command")),
        })
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let State::UnderWay { shared, id, lun } = &self.0
            && abort(shared, *id, *lun)
        {
            shared.waiters.borrow_mut().abandon(*id);
        }
    }
}

/// Withdraws a command, or sends an ABORT TASK for it. False if it was withdrawn: then there is nothing to
/// wait for.
fn abort(shared: &Shared, id: WaitId, lun: [u8; 8]) -> bool {
    let Some(task) = shared.waiters.borrow().task(id) else { return true };
    let mut connection = shared.connection.borrow_mut();
    if connection.withdraw(task) {
        shared.waiters.borrow_mut().forget(id);
        return false;
    }
    // The response to the ABORT TASK itself does not matter: the command's own end shows what happened.
    connection.manage(TaskFunction::AbortTask, lun, Some(task));
    drop(connection);
    shared.output.notify();
    true
}
