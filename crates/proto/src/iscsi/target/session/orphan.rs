//! Commands that the session has forgotten and the driver has not ended: aborted, or of a connection that is
//! gone.
//!
//! Their data is in memory until the driver has ended them, so it counts until then. Their places in the
//! window are given up at once, so that a disk that hangs does not stop the session's commands to other
//! units: as long as there are not too many, and all data that is held fits into `data_bytes_max`. One that
//! brought unsolicited data when more than that is held keeps its place, which bounds that data; else an
//! initiator that aborts and writes again could fill the memory.

use super::Session;
use super::task::TaskKey;

/// How many may have given up their place: each takes a kilobyte or two of the driver. Eight windows of the
/// usual size.
const PLACES_MAX: usize = 1024;

/// What a forgotten command still holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Orphan {
    /// Bytes counted in the session's `write_bytes`.
    charged: usize,
    /// Its memory is a part of `data_bytes_max`: it was granted, or its place is given up. Counted in the
    /// session's `orphan_bytes`.
    is_alone: bool,
    /// It has kept its place, and whether that is among the immediate commands.
    place: Option<bool>,
}

impl Session {
    /// Forgets a command that the driver has. Says that it was there.
    pub(super) fn orphan(&mut self, key: TaskKey) -> bool {
        let Some(task) = self.tasks.remove(key) else { return false };
        let is_bounded = task.charged == 0 || task.granted || self.write_bytes <= self.config.data_bytes_max;
        let keeps_place = self.orphans.len() >= PLACES_MAX || !is_bounded;
        let place = keeps_place.then_some(task.immediate);
        let is_alone = task.granted || !keeps_place;
        // It may hang, and give nothing back: nobody waits for that who has room beside it.
        self.write_grants -= usize::from(task.granted);
        if is_alone {
            self.orphan_bytes += task.charged;
        }
        self.orphans.insert(key, Orphan { charged: task.charged, is_alone, place });
        if !keeps_place {
            self.give_up_place(task.immediate);
        }
        self.feed_starved();
        true
    }

    /// The driver has ended a command that is forgotten.
    pub(super) fn end_orphan(&mut self, key: TaskKey) {
        let Some(orphan) = self.orphans.remove(&key) else { return };
        self.write_bytes -= orphan.charged;
        if orphan.is_alone {
            self.orphan_bytes -= orphan.charged;
        }
        if let Some(immediate) = orphan.place {
            self.give_up_place(immediate);
        }
        self.feed_starved();
    }
}
