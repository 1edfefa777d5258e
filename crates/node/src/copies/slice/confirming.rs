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

/// Reads that wait, in the order in which they came: what releases one releases those before it. No more than
/// hosts have commands outstanding.
#[derive(Default)]
pub(super) struct Confirming {
    waiting: VecDeque<Waiting>,
    /// The question of the last of them is to leave at the end of this turn.
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
    /// It is to be done again: the epoch is over.
    Again,
    /// Nobody has answered for too long.
    TooLate,
}

impl SliceCopy {
    /// A read begins. `None`: it needs nobody's word, since this machine's clocks run, or there is no other
    /// member.
    pub(super) fn ask_confirmation(self: &Rc<Self>) -> Option<Receiver<Release>> {
        let copies = Copies::current();
        if !copies.read_confirm() || !self.replica.borrow().has_other_members() {
            return None;
        }
        let confirmation = self.replica.borrow_mut().ask_confirmation();
        let (release, released) = oneshot();
        let mut confirming = self.confirming.borrow_mut();
        confirming.waiting.push_back(Waiting { confirmation, came: rt::now(), release });
        if !std::mem::replace(&mut confirming.will_send, true) {
            // With the questions of all reads that come in this turn.
            copies.will_send(Rc::clone(self));
        }
        Some(released)
    }

    /// Waits until a read that has begun may be answered; whether it may, or is to be done again.
    ///
    /// # Errors
    /// [`SliceError::Unavailable`]: nobody has answered for [`HOLD_MAX`], or this copy does not serve.
    pub(super) async fn is_confirmed(&self, asked: Option<Receiver<Release>>) -> Result<bool, SliceError> {
        let Some(released) = asked else { return Ok(true) };
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

    /// Lets reads go whose time has come.
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
