//! The place of a write in the order of its slice.

use crate::{Epoch, Slot};

/// The place of a write in the order: of two writes to a block, the one with the greater timestamp is what
/// every copy holds in the end.
///
/// The epoch comes first, so nothing else needs to survive a restart: a restarted node becomes a member again
/// only in a greater epoch, where its counter may start over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// The epoch in which the write began. A write that is sent again in a later epoch keeps it.
    pub epoch: Epoch,
    /// Greater than every counter that the coordinator had seen in this epoch.
    pub counter: u64,
    /// The coordinator's slot, so that no two timestamps are equal. During an epoch a slot belongs to one
    /// process.
    pub slot: Slot,
}

impl Timestamp {
    /// The lower bound of all timestamps of the epoch.
    pub fn first_of(epoch: Epoch) -> Timestamp {
        Timestamp { epoch, counter: 0, slot: Slot::new(0).expect("there is a first slot") }
    }
}

base::shows!(Display for Timestamp, |it| "{}.{}.{}", it.epoch.0, it.counter, it.slot.index());
