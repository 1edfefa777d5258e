//! What the slices of a copy know of the other copies, combined.

use replica::{DiskFault, Epoch, Replica, Slots, View};

use crate::canary::{Canary, makes};

/// What one slice knows of the other copies, or several slices together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceView {
    /// The epoch in which the slice acts and knows this; of several slices the earliest. `None`: it acts in
    /// none.
    pub epoch: Option<Epoch>,
    /// Copies outside that are resynced from here and miss little.
    pub caught_up: Slots,
    /// Copies outside that are resynced from here and miss much. A copy in neither set is resynced by another
    /// node, or by none.
    pub behind: Slots,
    /// Joiners that have everything.
    pub promotable: Slots,
    /// Members that have owed acknowledgements for too long.
    pub overdue: Slots,
    /// Joiners for which this copy cannot read everything that they miss.
    pub starved: Slots,
    /// The fault of this copy's own disk, if it failed.
    pub failed: Option<DiskFault>,
    /// Whether the file system under its pool is full.
    pub no_room: bool,
}

impl SliceView {
    /// The view of a slice that is closed for a while: it completes nothing.
    pub const CLOSED: SliceView = SliceView {
        epoch: None,
        caught_up: Slots::NONE,
        behind: Slots::NONE,
        promotable: Slots::NONE,
        overdue: Slots::NONE,
        starved: Slots::NONE,
        failed: Some(DiskFault::Write),
        no_room: false,
    };

    /// What this slice knows.
    pub fn of(replica: &Replica, no_room: bool) -> SliceView {
        SliceView {
            epoch: replica.config().map(|config| config.epoch),
            caught_up: replica.caught_up(),
            behind: replica.behind(),
            promotable: replica.promotable(),
            overdue: if makes(Canary::HangUnseen) { Slots::NONE } else { replica.overdue() },
            starved: replica.starved(),
            failed: replica.failure(),
            no_room,
        }
    }

    /// What two slices of one copy know together.
    #[must_use]
    pub fn and(self, other: SliceView) -> SliceView {
        SliceView {
            epoch: self.epoch.min(other.epoch),
            // Different nodes may resync the slices of one copy: each reports on those that it resyncs.
            caught_up: self.caught_up.or(other.caught_up),
            behind: self.behind.or(other.behind),
            promotable: self.promotable.and(other.promotable),
            overdue: self.overdue.or(other.overdue),
            starved: self.starved.or(other.starved),
            failed: self.failed.max(other.failed),
            no_room: self.no_room || other.no_room,
        }
    }

    /// Whether nothing in it leads to a proposal.
    pub fn is_quiet(&self) -> bool {
        let SliceView { caught_up, promotable, overdue, starved, failed, no_room, .. } = self;
        let nobody = |slots: &Slots| slots.is_empty();
        [caught_up, promotable, overdue, starved].into_iter().all(nobody) && failed.is_none() && !no_room
    }

    /// The part of this view that still holds if the volume acts in `epoch`.
    ///
    /// In another epoch than the view's, copies may have come and gone: only the state of this copy's own
    /// disk still holds.
    #[must_use]
    pub fn holds_in(self, epoch: Option<Epoch>) -> SliceView {
        let SliceView { failed, no_room, .. } = self;
        if self.epoch == epoch { self } else { SliceView { failed, no_room, ..SliceView::CLOSED } }
    }

    /// The view for the membership policy.
    ///
    /// `leaving` are the copies whose nodes have said that they leave; `unready` those that would keep writes
    /// waiting.
    pub fn with(self, leaving: Slots, unready: Slots) -> View {
        let caught_up = self.caught_up.minus(self.behind);
        let SliceView { promotable, overdue, starved, failed, no_room, .. } = self;
        View { caught_up, promotable, overdue, starved, leaving, unready, failed, no_room }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(caught_up: u8, behind: u8) -> SliceView {
        let [caught_up, behind] = [caught_up, behind].map(Slots::from_bits);
        SliceView {
            epoch: Some(Epoch(4)),
            caught_up,
            behind,
            promotable: Slots::from_bits(0b100),
            overdue: Slots::NONE,
            starved: Slots::NONE,
            failed: None,
            no_room: false,
        }
    }

    /// Found with whole nodes: two slices of a returning copy had different sources, and neither node knew of
    /// both.
    #[test]
    fn a_node_speaks_for_the_slices_that_it_brings_up_to_date() {
        let caught_up = |view: SliceView| view.with(Slots::NONE, Slots::NONE).caught_up.bits();
        assert_eq!(caught_up(slice(0b010, 0).and(slice(0, 0))), 0b010, "the other slice is another node's");
        assert_eq!(caught_up(slice(0b010, 0).and(slice(0, 0b010))), 0);
        assert_eq!(caught_up(slice(0, 0).and(slice(0, 0))), 0);
        assert!(
            slice(0, 0).and(SliceView { failed: Some(DiskFault::Write), ..slice(0, 0) }).failed.is_some()
        );
        assert!(slice(0, 0).and(SliceView { no_room: true, ..slice(0, 0) }).no_room);
        let none = SliceView { promotable: Slots::NONE, ..slice(0, 0) };
        assert!(slice(0, 0).and(none).promotable.is_empty(), "all slices must have everything");
    }

    #[test]
    fn a_view_is_quiet_if_there_is_nothing_to_propose() {
        let quiet = SliceView { promotable: Slots::NONE, ..slice(0, 0b010) };
        assert!(quiet.is_quiet());
        let one = Slots::from_bits(0b010);
        for view in [
            SliceView { caught_up: one, ..quiet },
            SliceView { promotable: one, ..quiet },
            SliceView { overdue: one, ..quiet },
            SliceView { starved: one, ..quiet },
            SliceView { failed: Some(DiskFault::Silent), ..quiet },
            SliceView { no_room: true, ..quiet },
        ] {
            assert!(!view.is_quiet(), "{view:?}");
        }
    }

    #[test]
    fn knowledge_of_another_epoch_expires_but_a_failed_disk_stays_failed() {
        let now = slice(0b010, 0);
        assert_eq!(now.holds_in(Some(Epoch(4))), now);
        for (view, epoch) in [
            (now, Some(Epoch(6))),
            (now, None),
            (now.and(SliceView { epoch: Some(Epoch(3)), ..now }), Some(Epoch(4))),
            (now.and(SliceView { epoch: None, ..now }), Some(Epoch(4))),
        ] {
            let holds = view.holds_in(epoch);
            assert!(
                holds.promotable.is_empty() && holds.caught_up.is_empty() && holds.failed.is_none(),
                "{view:?}"
            );
            assert!(SliceView { failed: Some(DiskFault::Write), ..view }.holds_in(epoch).failed.is_some());
        }
    }
}
