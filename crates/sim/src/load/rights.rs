//! What the hosts that are fenced off, and the one that does it, know of the reservation together: who may do
//! what behind it (SPC-4 table 67), and so which answer a command must have, and which write must never have
//! happened.
//!
//! Nobody but the fencer changes the reservation. From the answer to its PREEMPT AND ABORT to its next change
//! all is certain, but for registrations that were on their way meanwhile.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use initiator::command::ReservationType;
use rt::sim::linear::Time;

/// See the module.
#[derive(Clone, Default)]
pub(super) struct Rights(Rc<Inner>);

#[derive(Default)]
struct Inner {
    fence: Cell<Option<Fence>>,
    /// A CLEAR was sent, which may take effect until the next fencing begins; and by when the last one had.
    clears: Cell<bool>,
    cleared: Cell<Option<Time>>,
    /// By value written, how its writer was registered when it was sent.
    written: RefCell<BTreeMap<u64, Sent>>,
}

/// A reservation by which others were fenced off, and which holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fence {
    pub(super) kind: ReservationType,
    /// When PREEMPT AND ABORT was asked for, the reservation being held by then; and when it was answered.
    pub(super) asked: Time,
    pub(super) answered: Time,
}

/// How who sends a command is registered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Registration {
    /// It asked for that at the first moment, and was answered at the second.
    Since(Time, Time),
    /// It has given its registration up, and was answered.
    None,
}

#[derive(Clone, Copy)]
struct Sent {
    registration: Registration,
    at: Time,
}

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// All types, and what a fencing by each is counted as.
pub const KINDS: [(ReservationType, &str); 6] = [
    (ReservationType::WriteExclusive, "fencing, Write Exclusive"),
    (ReservationType::ExclusiveAccess, "fencing, Exclusive Access"),
    (ReservationType::WriteExclusiveRegistrantsOnly, "fencing, Write Exclusive, Registrants Only"),
    (ReservationType::ExclusiveAccessRegistrantsOnly, "fencing, Exclusive Access, Registrants Only"),
    (ReservationType::WriteExclusiveAllRegistrants, "fencing, Write Exclusive, All Registrants"),
    (ReservationType::ExclusiveAccessAllRegistrants, "fencing, Exclusive Access, All Registrants"),
];

/// Whether everybody may read behind it.
pub(super) fn lets_read(kind: ReservationType) -> bool {
    use ReservationType::{WriteExclusive, WriteExclusiveAllRegistrants, WriteExclusiveRegistrantsOnly};
    matches!(kind, WriteExclusive | WriteExclusiveRegistrantsOnly | WriteExclusiveAllRegistrants)
}

/// Whether who is registered may do all that the holder may.
pub(super) fn is_shared(kind: ReservationType) -> bool {
    !matches!(kind, ReservationType::WriteExclusive | ReservationType::ExclusiveAccess)
}

/// Whether somebody who does not hold the reservation by itself may do that.
fn allows(kind: ReservationType, is_registered: bool, access: Access) -> bool {
    access == Access::Read && lets_read(kind) || is_registered && is_shared(kind)
}

impl Fence {
    /// Whether it is registered behind this fence; `None`: nobody knows.
    fn has(&self, registration: Registration) -> Option<bool> {
        match registration {
            Registration::None => Some(false),
            // Those that were there when others were fenced off are gone.
            Registration::Since(_, answered) if answered < self.asked => Some(false),
            Registration::Since(asked, _) if asked > self.answered => Some(true),
            Registration::Since(..) => None,
        }
    }
}

impl Rights {
    /// The fence that holds now.
    pub(super) fn fence(&self) -> Option<Fence> {
        self.0.fence.get()
    }

    /// Others are fenced off from now on; or, with `None`, nobody knows.
    pub(super) fn set_fence(&self, fence: Option<Fence>) {
        self.0.fence.set(fence);
    }

    /// All registrations are to be cleared.
    pub(super) fn clear(&self) {
        self.set_fence(None);
        self.0.clears.set(true);
    }

    /// A fencing begins: what was sent for an earlier one has taken effect, or never will.
    pub(super) fn begin(&self, at: Time) {
        self.set_fence(None);
        if self.0.clears.take() {
            self.0.cleared.set(Some(at));
        }
    }

    /// Whether a CLEAR may have taken this registration away: PREEMPT AND ABORT ends no command of a host
    /// that is not registered any more.
    fn may_be_cleared(&self, registration: Registration) -> bool {
        match registration {
            Registration::None => true,
            Registration::Since(asked, _) => self.0.cleared.get().is_some_and(|cleared| asked < cleared),
        }
    }

    /// A write of this value is sent at this moment.
    pub(super) fn send(&self, value: u64, registration: Registration, at: Time) {
        self.0.written.borrow_mut().insert(value, Sent { registration, at });
    }

    /// A command was answered by GOOD, or by RESERVATION CONFLICT, and this fence held all the time. Says
    /// whether that could be judged.
    ///
    /// # Panics
    /// If the other was right.
    pub(super) fn check_answer(
        &self,
        fence: Fence,
        registration: Registration,
        access: Access,
        good: bool,
    ) -> bool {
        let Some(is_registered) = fence.has(registration) else { return false };
        assert_eq!(
            good,
            allows(fence.kind, is_registered, access),
            "the answer to a {access:?} of a host that is registered ({registration:?}) behind {fence:?}"
        );
        true
    }

    /// This value came to the disk while the fence held.
    ///
    /// # Panics
    /// If it must not have.
    pub(super) fn check_written(&self, fence: Fence, value: u64) {
        let written = self.0.written.borrow();
        let Sent { registration, at } = *written.get(&value).expect("somebody wrote it");
        // It may have begun before.
        let may_be_late = at < fence.asked && self.may_be_cleared(registration);
        let is_allowed = match fence.has(registration) {
            Some(is_registered) => allows(fence.kind, is_registered, Access::Write),
            None => is_shared(fence.kind),
        };
        assert!(
            may_be_late || is_allowed,
            "a write took effect behind {fence:?} that was sent at {at} with the registration {registration:?}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SPC-4 table 67, of reads and writes of somebody who is not the holder of a reservation of one holder.
    #[test]
    fn who_may_do_what() {
        let expected = [
            // Not registered: reads, writes. Registered: reads, writes.
            (1, [true, false, true, false]),
            (3, [false, false, false, false]),
            (5, [true, false, true, true]),
            (6, [false, false, true, true]),
            (7, [true, false, true, true]),
            (8, [false, false, true, true]),
        ];
        for ((kind, _), (number, expected)) in KINDS.into_iter().zip(expected) {
            assert_eq!(kind as u8, number);
            let found =
                [(false, Access::Read), (false, Access::Write), (true, Access::Read), (true, Access::Write)];
            assert_eq!(found.map(|(is_registered, access)| allows(kind, is_registered, access)), expected);
        }
    }

    fn fence(kind: ReservationType) -> Fence {
        Fence { kind, asked: 10, answered: 20 }
    }

    #[test]
    #[should_panic(expected = "a write took effect")]
    fn what_was_registered_before_takes_no_effect() {
        let rights = Rights::default();
        rights.send(1, Registration::Since(1, 2), 3);
        rights.check_written(fence(ReservationType::WriteExclusiveRegistrantsOnly), 1);
    }

    #[test]
    fn what_a_clear_has_left_without_registration_may_be_late() {
        let rights = Rights::default();
        rights.clear();
        rights.begin(4);
        rights.send(1, Registration::Since(1, 2), 3);
        rights.check_written(fence(ReservationType::WriteExclusiveRegistrantsOnly), 1);
    }

    #[test]
    #[should_panic(expected = "a write took effect")]
    fn what_was_registered_after_a_clear_takes_no_effect() {
        let rights = Rights::default();
        rights.clear();
        rights.begin(4);
        rights.send(1, Registration::Since(5, 6), 7);
        rights.check_written(fence(ReservationType::WriteExclusiveRegistrantsOnly), 1);
    }

    #[test]
    #[should_panic(expected = "a write took effect")]
    fn who_registers_again_writes_nothing_where_one_alone_may() {
        let rights = Rights::default();
        rights.send(1, Registration::Since(21, 22), 23);
        rights.check_written(fence(ReservationType::WriteExclusive), 1);
    }

    #[test]
    fn who_registers_again_may_write_where_registrants_may() {
        let (rights, fence) = (Rights::default(), fence(ReservationType::ExclusiveAccessAllRegistrants));
        let again = Registration::Since(21, 22);
        rights.send(1, again, 23);
        rights.check_written(fence, 1);
        assert!(rights.check_answer(fence, again, Access::Write, true));
        assert!(
            !rights.check_answer(fence, Registration::Since(15, 16), Access::Write, false),
            "nobody knows"
        );
    }

    #[test]
    #[should_panic(expected = "the answer to a Read")]
    fn who_reads_what_he_must_not_is_noticed() {
        Rights::default().check_answer(
            fence(ReservationType::ExclusiveAccess),
            Registration::None,
            Access::Read,
            true,
        );
    }
}
