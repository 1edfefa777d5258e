//! The place of a write in the order of its slice.

use std::fmt;

use crate::{Epoch, Slot};

/// When a write was begun, in the only sense that matters: of two writes to a block the one with the greater
/// timestamp is what the block holds in the end, on every copy.
///
/// The epoch stands first, so that nothing else must outlive a restart: a restarted node is a member again
/// only in a greater epoch, where its counter may begin anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// The epoch in which the write began; a write that is sent again in a later one keeps it.
    pub epoch: Epoch,
    /// Greater than that of everything its coordinator had seen in this epoch.
    pub counter: u64,
    /// The coordinator's slot, so that no two are equal. A slot is one process's as long as an epoch lasts.
    pub slot: Slot,
}

impl Timestamp {
    /// Below every timestamp of the epoch.
    pub fn first_of(epoch: Epoch) -> Timestamp {
        Timestamp { epoch, counter: 0, slot: Slot::new(0).expect("there is a first slot") }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.epoch.0, self.counter, self.slot.index())
    }
}
