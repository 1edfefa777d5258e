//! A command's side of its session: what it sees, what it may hold, and whether anybody still wants it.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use base::Instant;
use proto::iscsi::target::CommandId;
use proto::scsi::{BlockError, Outcome};

use super::budget::Admitted;
use super::{Session, View};
use crate::canary::{Canary, makes};

/// How old the initiator's last word may be when a further step of a command begins. With what a write of
/// that step may wait, which counts from this word ([`crate::copies::HOLD_MAX`]), it is sooner than any
/// initiator gives a path up and goes on by another one.
const FRESH: Duration = Duration::from_millis(500);
/// How long a step waits for a word. It may be long: what counts is that one comes, and that the step begins
/// then.
const WORD_MAX: Duration = Duration::from_secs(10);

/// One command of a session.
pub struct Caller {
    session: Rc<Session>,
    id: CommandId,
    /// The connection that it came on.
    cid: u16,
    /// When it had come, with all of its data.
    came: Instant,
}

/// The command was aborted: it must not begin anything any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aborted;

impl Caller {
    pub(super) fn new(session: Rc<Session>, id: CommandId, cid: u16) -> Caller {
        Caller { session, id, cid, came: rt::now() }
    }

    /// When it had come, with all of its data.
    pub fn came(&self) -> Instant {
        self.came
    }

    /// What its session sees now. To be kept for a moment only: who closes a volume waits for everybody who
    /// has its unit.
    pub fn view(&self) -> Rc<View> {
        self.session.view()
    }

    /// Whether it is to end, since nobody waits for its answer, or it will be TASK ABORTED.
    pub fn is_aborted(&self) -> bool {
        // Before its first wait it is not there, and nobody can abort it.
        self.session.running.borrow().get(&self.id).is_some_and(|running| running.aborted)
    }

    /// Before a step of a command that has several: when the initiator last said something on the command's
    /// connection, which is a moment ago. If it was silent for longer, it is asked (a NOP-In), and the step
    /// waits for its word: an initiator that has lost this path may have gone on by another one, and what is
    /// still to be done would come after what it has written there since (G4).
    ///
    /// # Errors
    /// [`BlockError::Aborted`]; [`BlockError::Unknown`] where no word comes: some steps were done.
    pub async fn word(&self) -> Result<Instant, BlockError> {
        let until = rt::now() + WORD_MAX;
        loop {
            if self.is_aborted() {
                return Err(BlockError::Aborted);
            }
            let now = rt::now();
            if makes(Canary::AgeByStep) {
                return Ok(now);
            }
            let word = self.session.brain.borrow().last_word(self.cid).ok_or(BlockError::Unknown)?;
            let word = word.max(self.came);
            if now.since(word) <= FRESH {
                return Ok(word);
            }
            if now >= until {
                tracing::info!(
                    tsih = self.session.tsih(),
                    "a command of several steps was ended: its initiator is unreachable"
                );
                return Err(BlockError::Unknown);
            }
            self.session.ask_for_word(self.cid);
            let _ = rt::timeout(until.since(now), self.session.arrived.notified()).await;
        }
    }

    /// Answers it before it has ended. It is still waited for by those who must know that nothing of it takes
    /// effect any more; one that was aborted gets no answer before.
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
        // The bell rang before for one that asks again after an abort, as a copy does before each of its
        // steps.
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
