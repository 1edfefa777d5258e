//! What the slices of a copy know together.

use replica::{Replica, Slots, View};

/// What one slice knows of the other copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceView {
    /// Outside, and missing little.
    pub caught_up: Slots,
    /// Joiners with everything.
    pub promotable: Slots,
    /// Its own disk failed.
    pub failed: bool,
}

impl SliceView {
    /// What this slice knows.
    pub fn of(replica: &Replica) -> SliceView {
        SliceView {
            caught_up: replica.caught_up(),
            promotable: replica.promotable(),
            failed: replica.has_failed(),
        }
    }

    /// What two slices of one copy know together.
    #[must_use]
    pub fn and(self, other: SliceView) -> SliceView {
        SliceView {
            caught_up: self.caught_up.and(other.caught_up),
            promotable: self.promotable.and(other.promotable),
            failed: self.failed || other.failed,
        }
    }

    /// As the steward wants it, with those that have said that they leave.
    pub fn with_leaving(self, leaving: Slots) -> View {
        View { caught_up: self.caught_up, promotable: self.promotable, leaving, ..View::default() }
    }
}
