//! A command under way.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use proto::iscsi::initiator::CommandResult;
use proto::iscsi::target::TaskFunction;

use super::shared::Shared;
use super::waiters::{Answer, WaitId};
use crate::Error;

/// A command that was given to a [`crate::Session`]: its answer, once it is awaited. It is on its way from
/// the moment that it is made.
///
/// Dropping it gives the command up: one that still waits for the target's window is not sent, any other is
/// aborted. Whether it takes effect is then not known. Its buffers belong to the session until the target
/// lets go of them.
#[must_use = "the command is aborted when this is dropped"]
pub struct Pending(State);

enum State {
    UnderWay {
        shared: Rc<Shared>,
        id: WaitId,
        /// The unit, for an abort.
        lun: [u8; 8],
    },
    /// It was not sent.
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

    /// Asks the target to abort the command, and waits until nothing more can come of it: until it is
    /// aborted, answered all the same, or the session has ended.
    ///
    /// # Errors
    /// [`Error::Aborted`], if it was; [`Error::Ended`].
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

/// Takes a command back, or sends an ABORT TASK for it. False if it was taken back: then there is nothing to
/// wait for.
fn abort(shared: &Shared, id: WaitId, lun: [u8; 8]) -> bool {
    let Some(task) = shared.waiters.borrow().task(id) else { return true };
    let mut connection = shared.connection.borrow_mut();
    if connection.withdraw(task) {
        shared.waiters.borrow_mut().forget(id);
        return false;
    }
    // How the abort itself ends is of no interest: the command's end tells.
    connection.manage(TaskFunction::AbortTask, lun, Some(task));
    drop(connection);
    shared.output.notify();
    true
}
