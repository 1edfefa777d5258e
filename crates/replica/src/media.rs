//! The order of a copy's writes to its own disk: intent first (R4), and overlapping writes one after the
//! other.
//!
//! A write is handed out when its bits of the dirty map are on the disk and no older write that overlaps it
//! still waits. Overlapping writes take effect in the order in which they were handed out: the slice that
//! carries them out ensures that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::dirty_map::DirtyMap;
use crate::{Blocks, Geometry, Payload, Slots};

/// The number of a write to the local disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApplyId(pub u64);

/// A write to be carried out, durably.
#[derive(Clone, Debug)]
pub struct Apply {
    /// The argument of [`crate::Replica::handle_applied`].
    pub id: ApplyId,
    /// Where it writes.
    pub blocks: Blocks,
    /// What it writes.
    pub payload: Payload,
    /// What it is for.
    pub kind: ApplyKind,
}

/// What a write to the local disk is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyKind {
    /// The blocks get new data.
    Write,
    /// The same, but blocks that are noted as lost stay lost, whatever the payload has there.
    WriteAroundLost,
    /// The blocks could not be read: they are rewritten with what they hold, and then read back
    /// ([`crate::Replica::repair`]).
    Repair,
    /// No copy in sync can read the blocks (R27): they are noted as lost, and not written, until something
    /// else is written there. The payload means nothing.
    Lose {
        /// The copies that hold the blocks. If this copy is one of them, it does not lose what it knows that
        /// it holds.
        holders: Slots,
    },
}

/// The local writes of a copy; see the module.
#[derive(Debug, Default)]
pub struct Media {
    last: u64,
    waiting: VecDeque<(Apply, Slots)>,
    /// Handed out and not ended.
    under_way: BTreeMap<ApplyId, Blocks>,
    /// What a resync has brought to this member, waiting or under way.
    brought: BTreeSet<ApplyId>,
    /// Handed out, then abandoned, and not ended.
    abandoned: BTreeSet<ApplyId>,
}

impl Media {
    /// Adds a write that needs the bits `intents` in its regions.
    pub fn submit(&mut self, blocks: Blocks, payload: Payload, intents: Slots, kind: ApplyKind) -> ApplyId {
        self.last += 1;
        let id = ApplyId(self.last);
        self.waiting.push_back((Apply { id, blocks, payload, kind }, intents));
        id
    }

    /// The next write to carry out.
    pub fn poll(&mut self, map: &DirtyMap, geometry: &Geometry) -> Option<Apply> {
        let ready = (0..self.waiting.len()).find(|index| {
            let (apply, intents) = &self.waiting[*index];
            map.is_durable(geometry.regions_of(apply.blocks), *intents)
                && self.waiting.range(..index).all(|(older, _)| !older.blocks.overlaps(apply.blocks))
        })?;
        let (apply, _) = self.waiting.remove(ready).expect("just found");
        self.under_way.insert(apply.id, apply.blocks);
        Some(apply)
    }

    /// The write was brought by a resync.
    pub fn note_brought(&mut self, id: ApplyId) {
        self.brought.insert(id);
    }

    /// Whether a resync has brought the write, and it is under way.
    pub fn is_being_brought(&self, id: ApplyId) -> bool {
        self.brought.contains(&id) && self.is_under_way(id)
    }

    /// The write has ended. Returns its blocks, or `None` if it was abandoned.
    pub fn end(&mut self, id: ApplyId) -> Option<Blocks> {
        self.brought.remove(&id);
        self.abandoned.remove(&id);
        self.under_way.remove(&id)
    }

    /// Whether the disk still has to write what a resync has brought, or what was abandoned.
    ///
    /// This does not count hosts' writes of this membership, of which there may always be some.
    pub fn is_behind(&self) -> bool {
        !self.brought.is_empty() || !self.abandoned.is_empty()
    }

    /// Whether no write waits, and the disk has ended all that were handed out.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_empty() && self.abandoned.is_empty()
    }

    /// Whether the write was handed out and neither ended nor was abandoned.
    pub fn is_under_way(&self, id: ApplyId) -> bool {
        self.under_way.contains_key(&id)
    }

    /// Forgets waiting writes and those under way: the copy was not a member all the time since they began.
    ///
    /// Writes that were handed out still happen.
    pub fn abandon(&mut self) {
        self.waiting.clear();
        self.brought.clear();
        self.abandoned.extend(std::mem::take(&mut self.under_way).into_keys());
    }

    /// Only these slots still have a copy.
    ///
    /// Waiting writes need no bits for the others: those were cleared, and would never reach the disk.
    pub fn drop_intents_but(&mut self, slots: Slots) {
        self.waiting.iter_mut().for_each(|(_, intents)| *intents = intents.and(slots));
    }

    /// The writes to the blocks that wait or are under way.
    pub fn within(&self, blocks: Blocks) -> Vec<ApplyId> {
        let waiting = self.waiting.iter().map(|(apply, _)| (apply.id, apply.blocks));
        let under_way = self.under_way.iter().map(|(id, blocks)| (*id, *blocks));
        waiting.chain(under_way).filter(|(_, other)| other.overlaps(blocks)).map(|(id, _)| id).collect()
    }

    /// Whether a write to the blocks is waiting or under way.
    pub fn touches(&self, blocks: Blocks) -> bool {
        self.waiting.iter().any(|(apply, _)| apply.blocks.overlaps(blocks))
            || self.under_way.values().any(|other| other.overlaps(blocks))
    }
}
