//! A command's access to its session: its view, its memory, and whether the initiator still wants it.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use base::Instant;
use proto::block::BlockError;
use proto::iscsi::target_role::CommandId;
use proto::scsi::Outcome;

use super::budget::Admitted;
use super::{Session, View};
use crate::canary::{Canary, makes};

/// How old the initiator's last PDU may be when a further step of a command begins. A write of that step may
/// wait [`crate::copies::HOLD_MAX`] from that PDU; together this is less than any initiator takes to give up
/// a path and continue on another one.
const FRESH: Duration = Duration::from_millis(500);
/// How long a step waits for a PDU. This may be long: what matters is that one arrives, and that the step
/// begins then.
const WORD_MAX: Duration = Duration::from_secs(10);

/// One command of a session.
pub struct Caller {
    session: Rc<Session>,
    id: CommandId,
    /// The connection that it came on.
    cid: u16,
    /// When the command and all of its data had arrived.
    came: Instant,
}

/// The command was aborted: it must begin no further step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aborted;

impl Caller {
    pub(super) fn new(session: Rc<Session>, id: CommandId, cid: u16) -> Caller {
        Caller { session, id, cid, came: rt::now() }
    }

    /// When the command and all of its data had arrived.
    pub fn came(&self) -> Instant {
        self.came
    }

    /// The current view of its session.
    ///
    /// Keep it for a moment only: closing a volume waits until every holder has released its unit.
    pub fn view(&self) -> Rc<View> {
        self.session.view()
    }

    /// Whether the command must end, because its response has no recipient or will be TASK ABORTED.
    pub fn is_aborted(&self) -> bool {
        // Before its first wait the command is not in `running`, and cannot be aborted.
        self.session.running.borrow().get(&self.id).is_some_and(|running| running.aborted)
    }

    /// When the initiator last sent a PDU on the command's connection, which is a moment ago.
    ///
    /// Called before each step of a command with several steps.
    ///
    /// If the initiator was silent for longer, the session sends it a NOP-In, and the step waits for the
    /// answer. An initiator that has lost this path may have continued on another one, and the remaining
    /// steps would then come after what it has written there since (G4).
    ///
    /// # Errors
    /// [`BlockError::Aborted`]; [`BlockError::Unknown`] if no answer arrives: some steps were done.
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

    /// Responds before the command has ended, unless it was aborted.
    ///
    /// Others can still wait until the command can take no more effect.
    pub fn answer(&self, outcome: Outcome) {
        if !self.is_aborted() {
            self.session.brain.borrow_mut().complete(self.id, outcome);
            self.session.pump();
        }
    }

    /// Waits until the command may hold `bytes` in addition to the data that came with it.
    pub async fn admit(&self, bytes: usize) -> Result<Admitted<'_>, Aborted> {
        // A caller that asks again after an abort, as a copy does before each of its steps, has missed the
        // notification.
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
