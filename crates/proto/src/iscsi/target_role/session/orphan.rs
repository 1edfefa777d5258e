//! Commands that the session has forgotten and the driver has not ended: aborted, or of a lost connection.
//!
//! Their data stays in memory until the driver has ended them, so it counts until then. They give up their
//! places in the window at once, so that a hanging disk does not stop the session's commands to other units.
//! Two conditions limit this: not too many commands have given up their places, and all held data fits into
//! `data_bytes_max`. If it does not fit, a command with unsolicited data keeps its place, which bounds that
//! data; otherwise an initiator that keeps writing and aborting could fill the memory.

use super::Session;
use super::task::TaskKey;

/// The most commands that may have given up their places: each takes one or two kilobytes in the driver.
/// Eight windows of the usual size.
const PLACES_MAX: usize = 1024;

/// What a forgotten command still holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Orphan {
    /// Bytes counted in the session's `write_bytes`.
    charged: usize,
    /// Its memory counts against `data_bytes_max`: it was granted, or the command has given up its place. It
    /// is included in the session's `orphan_bytes`.
    is_alone: bool,
    /// `Some` if the command has kept its place, and whether that is among the immediate commands.
    place: Option<bool>,
}

impl Session {
    /// Forgets a command, which the driver has. Returns whether the session had it.
    pub(super) fn orphan(&mut self, key: TaskKey) -> bool {
        let Some(task) = self.tasks.remove(key) else { return false };
        let is_bounded = task.charged == 0 || task.granted || self.write_bytes <= self.config.data_bytes_max;
        let keeps_place = self.orphans.len() >= PLACES_MAX || !is_bounded;
        let place = keeps_place.then_some(task.immediate);
        let is_alone = task.granted || !keeps_place;
        // The command may hang and never return its memory. A write that fits beside it must not wait for
        // that.
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

    /// Ends a forgotten command that the driver has ended.
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
