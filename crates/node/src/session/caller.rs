//! A command's side of its session: what it sees, what it may hold, and whether anybody still wants it.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use proto::iscsi::target::CommandId;
use proto::scsi::Outcome;

use super::budget::Admitted;
use super::{Session, View};

/// One command of a session.
pub struct Caller {
    session: Rc<Session>,
    id: CommandId,
    view: Rc<View>,
}

/// The command was aborted: it must not begin anything any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aborted;

impl Caller {
    pub(super) fn new(session: Rc<Session>, id: CommandId, view: Rc<View>) -> Caller {
        Caller { session, id, view }
    }

    /// What its session saw when it came.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Whether it is to end, since nobody waits for its answer, or it will be TASK ABORTED.
    pub fn is_aborted(&self) -> bool {
        // Before its first wait it is not there, and nobody can abort it.
        self.session.running.borrow().get(&self.id).is_some_and(|running| running.aborted)
    }

    /// Answers it before it has ended. It is still waited for by those who must know that nothing of it takes effect any more; one
    /// that was aborted gets no answer before.
    pub fn answer(&self, outcome: Outcome) {
        if !self.is_aborted() {
            self.session.brain.borrow_mut().complete(self.id, outcome);
            self.session.pump();
        }
    }

    /// Waits until it may hold so many bytes besides the data that came with it.
    ///
    /// # Errors
    /// It was aborted.
    pub async fn admit(&self, bytes: usize) -> Result<Admitted<'_>, Aborted> {
        // The bell rang before for one that asks again after an abort, as a copy does before each of its steps.
        if self.is_aborted() {
            return Err(Aborted);
        }
        let mut admission = pin!(self.session.budget.admit(bytes));
        loop {
            let mut rung = pin!(self.session.aborted.notified());
            let admitted = poll_fn(|context| match admission.as_mut().poll(context) {
                Poll::Ready(admitted) => Poll::Ready(Some(admitted)),
                Poll::Pending => rung.as_mut().poll(context).map(|()| None),
            });
            match admitted.await {
                _ if self.is_aborted() => return Err(Aborted),
                Some(admitted) => return Ok(admitted),
                None => {}
            }
        }
    }
}
