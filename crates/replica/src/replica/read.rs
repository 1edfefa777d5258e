//! Reads: when a copy may answer them (R9).

use base::Instant;

use crate::canary::{Canary, makes};
use crate::lease::Leases;
use crate::{Blocks, Slot, Standing};

use super::Replica;

/// Why blocks cannot be read now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The copy is not in sync.
    #[error("this copy of the volume is not in sync")]
    NotInSync,
    /// A disk of the copy failed.
    #[error("a disk of this copy of the volume failed")]
    Failed,
    /// A member may have continued without this copy: ask again soon.
    #[error("no lease of {0}")]
    NoLease(Slot),
    /// A write to the blocks is under way: ask again when something has happened.
    #[error("a write is under way")]
    Unsettled,
}

/// The state that a read is compared with when its data has come from the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadMark(pub(super) u64);

impl Replica {
    /// Whether the blocks may be read from the local disk now (R9).
    ///
    /// When the data has come, [`Replica::still_readable`] must agree.
    ///
    /// # Errors
    /// Why not.
    pub fn readable(&self, now: Instant, leases: &Leases, blocks: Blocks) -> Result<ReadMark, Unreadable> {
        if self.failed.is_some() && !(self.is_alone() && self.knows_failed) {
            return Err(Unreadable::Failed);
        }
        self.leased(now, leases)?;
        if !self.table.is_valid(blocks) {
            // What a failed write has left can be read, but may be gone after the next power loss.
            return Err(if self.failed.is_some() { Unreadable::Failed } else { Unreadable::Unsettled });
        }
        Ok(ReadMark(self.table.mark()))
    }

    /// Whether this copy is in sync and holds a lease of every other member.
    ///
    /// # Errors
    /// What it lacks: [`Unreadable::NotInSync`], [`Unreadable::NoLease`].
    pub fn leased(&self, now: Instant, leases: &Leases) -> Result<(), Unreadable> {
        let config = self.config.as_ref().ok_or(Unreadable::NotInSync)?;
        if !matches!(config.standing(self.me, self.incarnation), Standing::InSync(_)) {
            return Err(Unreadable::NotInSync);
        }
        for slot in config.members().without(self.me).iter() {
            let needless =
                makes(Canary::NoLease) || makes(Canary::NoJoinerLease) && config.joining().contains(slot);
            let copy = config.copy(slot).expect("a member is a copy");
            if !needless && !leases.holds(now, copy.node) {
                return Err(Unreadable::NoLease(slot));
            }
        }
        Ok(())
    }

    /// Whether the data that was read since the mark is what the blocks hold now.
    ///
    /// If so, the read takes effect here; if not, it must be repeated. A read that
    /// [`Replica::remember_since`] does not cover may have to be repeated for a write to other blocks.
    pub fn still_readable(&self, mark: ReadMark, now: Instant, leases: &Leases, blocks: Blocks) -> bool {
        self.readable(now, leases, blocks).is_ok() && self.table.unchanged_since(mark.0, blocks)
    }

    /// Called before each [`Replica::handle_tick`]: `oldest` is the mark of the oldest read that is under
    /// way, if there is one. Which blocks have been written since then is remembered (R15).
    pub fn remember_since(&mut self, oldest: Option<ReadMark>) {
        self.table.remember_since(oldest.map(|mark| mark.0));
    }
}
