//! Reads that wait until the other members have confirmed them (R24), on nodes whose clocks may stop.

use std::collections::VecDeque;
use std::rc::Rc;

use base::Instant;
use replica::{Confirmation, Confirmed};
use rt::sync::{Receiver, Sender, oneshot};
use store::SliceError;

use super::super::HOLD_MAX;
use super::super::core::Copies;
use super::SliceCopy;

/// The waiting reads, in the order in which they came.
///
/// What releases one also releases all before it. There are no more of them than hosts have commands
/// outstanding.
#[derive(Default)]
pub(super) struct Confirming {
    waiting: VecDeque<Waiting>,
    /// Whether the question of the last of them is to be sent at the end of this turn.
    will_send: bool,
}

struct Waiting {
    confirmation: Confirmation,
    came: Instant,
    release: Sender<Release>,
}

/// How the wait of a read ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    /// All other members have answered.
    Confirmed,
    /// The epoch is over: the read must be repeated.
    Again,
    /// Not all other members answered in time.
    TooLate,
}

/// What a read waits for.
pub(super) enum ReadConfirmation {
    /// Nothing: this machine's clocks run.
    Nothing,
    /// There is no other member to ask, but the epoch must still be this one at the end of the read.
    Epoch(Confirmation),
    /// The other members.
    Members(Receiver<Release>),
}

impl SliceCopy {
    /// Begins the confirmation of a read.
    pub(super) fn ask_confirmation(self: &Rc<Self>) -> ReadConfirmation {
        let copies = Copies::current();
        if !copies.read_confirm() {
            return ReadConfirmation::Nothing;
        }
        let confirmation = self.replica.borrow_mut().ask_confirmation();
        if !self.replica.borrow().has_other_members() {
            return ReadConfirmation::Epoch(confirmation);
        }
        self.wake();
        let (release, released) = oneshot();
        let mut confirming = self.confirming.borrow_mut();
        confirming.waiting.push_back(Waiting { confirmation, came: rt::now(), release });
        if !std::mem::replace(&mut confirming.will_send, true) {
            // The question is sent with those of all reads that come in this turn.
            copies.will_send(Rc::clone(self));
        }
        ReadConfirmation::Members(released)
    }

    /// Waits for the confirmation of a read.
    ///
    /// Returns whether it may be answered; if not, it must be repeated.
    ///
    /// # Errors
    /// [`SliceError::Unavailable`]: the confirmation did not come within [`HOLD_MAX`], or this copy does not
    /// serve.
    pub(super) async fn is_confirmed(&self, asked: ReadConfirmation) -> Result<bool, SliceError> {
        let released = match asked {
            ReadConfirmation::Nothing => return Ok(true),
            ReadConfirmation::Epoch(of) => {
                return Ok(self.replica.borrow().confirmation(of) == Confirmed::Yes);
            }
            ReadConfirmation::Members(released) => released,
        };
        match released.await {
            Ok(Release::Confirmed) => Ok(true),
            Ok(Release::Again) => Ok(false),
            Ok(Release::TooLate) | Err(rt::sync::Closed) => Err(SliceError::Unavailable),
        }
    }

    /// Sends the question of the reads of this turn.
    pub(super) fn send_probes(self: &Rc<Self>) {
        if std::mem::take(&mut self.confirming.borrow_mut().will_send) {
            self.replica.borrow_mut().send_probes();
            self.carry_out();
        }
    }

    /// Whether reads wait, which may become too late.
    pub(super) fn has_waiting_reads(&self) -> bool {
        !self.confirming.borrow().waiting.is_empty()
    }

    /// Releases the reads that are confirmed, void or too late.
    pub(super) fn release_reads(&self) {
        while let Some((release, how)) = self.next_released() {
            release.send(how);
        }
    }

    fn next_released(&self) -> Option<(Sender<Release>, Release)> {
        let mut confirming = self.confirming.borrow_mut();
        let first = confirming.waiting.front()?;
        let how = match self.replica.borrow().confirmation(first.confirmation) {
            Confirmed::Yes => Release::Confirmed,
            Confirmed::Void => Release::Again,
            Confirmed::NotYet if self.given_up.get() || rt::now().since(first.came) >= HOLD_MAX => {
                Release::TooLate
            }
            Confirmed::NotYet => return None,
        };
        confirming.waiting.pop_front().map(|waiting| (waiting.release, how))
    }
}
