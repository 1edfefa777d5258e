//! What writers and the fencer together know of the reservation.
//!
//! It determines who may do what behind the reservation (SPC-4 table 67), and so which response a command
//! must get, and which write must never take effect. Only the fencer changes the reservation. From the
//! response to its PREEMPT AND ABORT to its next change all is certain, except for registrations that were
//! under way meanwhile.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use initiator::command::ReservationType;
use rt::sim::linear::Time;

/// The shared knowledge: see the module.
#[derive(Clone, Default)]
pub(super) struct Rights(Rc<Inner>);

#[derive(Default)]
struct Inner {
    fence: Cell<Option<Fence>>,
    /// A CLEAR was sent that may take effect until the next fencing begins; and by when the last one had.
    clears: Cell<bool>,
    cleared: Cell<Option<Time>>,
    /// For each value, how its writer was registered when it sent the write.
    written: RefCell<BTreeMap<u64, Sent>>,
}

/// A reservation by which others were fenced off, and which holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fence {
    pub(super) kind: ReservationType,
    /// When PREEMPT AND ABORT was sent, after the reservation was held; and when the response came.
    pub(super) asked: Time,
    pub(super) answered: Time,
}

/// How the sender of a command is registered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Registration {
    /// It requested its registration at the first moment, and got the response at the second.
    Since(Time, Time),
    /// It has unregistered, and got the response.
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

/// All types, and the counter of fencings by each.
pub const KINDS: [(ReservationType, &str); 6] = [
    (ReservationType::WriteExclusive, "fencing, Write Exclusive"),
    (ReservationType::ExclusiveAccess, "fencing, Exclusive Access"),
    (ReservationType::WriteExclusiveRegistrantsOnly, "fencing, Write Exclusive, Registrants Only"),
    (ReservationType::ExclusiveAccessRegistrantsOnly, "fencing, Exclusive Access, Registrants Only"),
    (ReservationType::WriteExclusiveAllRegistrants, "fencing, Write Exclusive, All Registrants"),
    (ReservationType::ExclusiveAccessAllRegistrants, "fencing, Exclusive Access, All Registrants"),
];

/// Whether all hosts may read behind a reservation of this type.
pub(super) fn lets_read(kind: ReservationType) -> bool {
    use ReservationType::{WriteExclusive, WriteExclusiveAllRegistrants, WriteExclusiveRegistrantsOnly};
    matches!(kind, WriteExclusive | WriteExclusiveRegistrantsOnly | WriteExclusiveAllRegistrants)
}

/// Whether registrants may do all that the holder may.
pub(super) fn is_shared(kind: ReservationType) -> bool {
    !matches!(kind, ReservationType::WriteExclusive | ReservationType::ExclusiveAccess)
}

/// Whether a host that is not itself the holder may do this.
fn allows(kind: ReservationType, is_registered: bool, access: Access) -> bool {
    access == Access::Read && lets_read(kind) || is_registered && is_shared(kind)
}

impl Fence {
    /// Whether a registration is present behind this fence; `None`: unknown.
    fn has(&self, registration: Registration) -> Option<bool> {
        match registration {
            Registration::None => Some(false),
            // The fencing removed the registrations that were present.
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

    /// From now on this fence holds; `None`: it is unknown whether one does.
    pub(super) fn set_fence(&self, fence: Option<Fence>) {
        self.0.fence.set(fence);
    }

    /// Notes that all registrations are being cleared.
    pub(super) fn clear(&self) {
        self.set_fence(None);
        self.0.clears.set(true);
    }

    /// Notes that a fencing begins: commands of an earlier one have taken effect, or never will.
    pub(super) fn begin(&self, at: Time) {
        self.set_fence(None);
        if self.0.clears.take() {
            self.0.cleared.set(Some(at));
        }
    }

    /// Whether a CLEAR may have removed this registration: PREEMPT AND ABORT aborts no command of a host that
    /// is not registered any more.
    fn may_be_cleared(&self, registration: Registration) -> bool {
        match registration {
            Registration::None => true,
            Registration::Since(asked, _) => self.0.cleared.get().is_some_and(|cleared| asked < cleared),
        }
    }

    /// Notes that a write of this value is being sent.
    pub(super) fn send(&self, value: u64, registration: Registration, at: Time) {
        self.0.written.borrow_mut().insert(value, Sent { registration, at });
    }

    /// Checks a response, GOOD or RESERVATION CONFLICT, to a command during which this fence held.
    ///
    /// Returns whether it could be judged.
    ///
    /// # Panics
    /// If the response is wrong.
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

    /// Checks that this value may have reached the disk while the fence held.
    ///
    /// # Panics
    /// If it must not have.
    pub(super) fn check_written(&self, fence: Fence, value: u64) {
        let written = self.0.written.borrow();
        let Sent { registration, at } = *written.get(&value).expect("somebody wrote it");
        // The write may have begun before.
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

    /// SPC-4 table 67: reads and writes of a host that is not itself the holder.
    #[test]
    fn access_by_reservation_type() {
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
    fn an_earlier_registration_has_no_effect() {
        let rights = Rights::default();
        rights.send(1, Registration::Since(1, 2), 3);
        rights.check_written(fence(ReservationType::WriteExclusiveRegistrantsOnly), 1);
    }

    #[test]
    fn late_writes_of_cleared_registrants_are_allowed() {
        let rights = Rights::default();
        rights.clear();
        rights.begin(4);
        rights.send(1, Registration::Since(1, 2), 3);
        rights.check_written(fence(ReservationType::WriteExclusiveRegistrantsOnly), 1);
    }

    #[test]
    #[should_panic(expected = "a write took effect")]
    fn a_registration_after_a_clear_has_no_effect() {
        let rights = Rights::default();
        rights.clear();
        rights.begin(4);
        rights.send(1, Registration::Since(5, 6), 7);
        rights.check_written(fence(ReservationType::WriteExclusiveRegistrantsOnly), 1);
    }

    #[test]
    #[should_panic(expected = "a write took effect")]
    fn registering_again_gives_no_write_access_under_exclusive_types() {
        let rights = Rights::default();
        rights.send(1, Registration::Since(21, 22), 23);
        rights.check_written(fence(ReservationType::WriteExclusive), 1);
    }

    #[test]
    fn registering_again_gives_write_access_under_registrants_only_types() {
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
    fn a_forbidden_read_is_noticed() {
        Rights::default().check_answer(
            fence(ReservationType::ExclusiveAccess),
            Registration::None,
            Access::Read,
            true,
        );
    }
}
