//! The order of a copy's writes to its own disk: intent first (R4), overlapping writes one after the other.
//!
//! A write is handed out when its bits of the dirty map are on the disk and no older write that overlaps it
//! still waits. Writes that were handed out and overlap take effect in the order in which they were handed
//! out: the slice that carries them out sees to that.

use std::collections::{BTreeMap, VecDeque};

use crate::dirty_map::DirtyMap;
use crate::{Blocks, Geometry, LostBlocks, Payload, Slots};

/// A write to the local disk, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApplyId(pub u64);

/// A write to be carried out, durably.
#[derive(Clone, Debug)]
pub struct Apply {
    /// What [`crate::Replica::handle_applied`] is called with.
    pub id: ApplyId,
    /// Where.
    pub blocks: Blocks,
    /// What.
    pub payload: Payload,
    /// What for.
    pub kind: ApplyKind,
}

/// What a write to the local disk is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyKind {
    /// The blocks are to hold something new.
    Write,
    /// They cannot be read: they are written once more, and read again after that
    /// ([`crate::Replica::repair`]).
    Repair,
    /// No copy in sync can read them (R27): they are not written, but noted as lost, until something else is
    /// written there. The payload means nothing.
    Lose {
        /// The copies that hold them. If this is one, what it knows that it holds is not lost.
        holders: Slots,
    },
}

/// See the module.
#[derive(Debug, Default)]
pub struct Media {
    last: u64,
    waiting: VecDeque<(Apply, Slots)>,
    /// Handed out and not ended.
    under_way: BTreeMap<ApplyId, Blocks>,
}

impl Media {
    /// Takes a write that needs the bits `intents` in its regions.
    pub fn submit(&mut self, blocks: Blocks, payload: Payload, intents: Slots) -> ApplyId {
        self.add(blocks, payload, intents, ApplyKind::Write)
    }

    /// Takes a write of what the blocks hold already, as [`Media::submit`].
    pub fn submit_repair(&mut self, blocks: Blocks, payload: Payload, intents: Slots) -> ApplyId {
        self.add(blocks, payload, intents, ApplyKind::Repair)
    }

    /// Takes the word that the blocks are lost, as [`Media::submit`].
    pub fn submit_loss(&mut self, LostBlocks { blocks, holders }: LostBlocks, intents: Slots) -> ApplyId {
        self.add(blocks, Payload::Zeros, intents, ApplyKind::Lose { holders })
    }

    fn add(&mut self, blocks: Blocks, payload: Payload, intents: Slots, kind: ApplyKind) -> ApplyId {
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

    /// The write has ended; says where it was, or `None` if it is none of this membership's.
    pub fn end(&mut self, id: ApplyId) -> Option<Blocks> {
        self.under_way.remove(&id)
    }

    /// Whether the write was handed out, in this membership, and has not ended.
    pub fn is_under_way(&self, id: ApplyId) -> bool {
        self.under_way.contains_key(&id)
    }

    /// Forgets what waits, and whose ends are waited for: the copy is no member any more. What was handed out
    /// still happens.
    pub fn abandon(&mut self) {
        self.waiting.clear();
        self.under_way.clear();
    }

    /// The writes to the blocks that wait or are under way.
    pub fn within(&self, blocks: Blocks) -> Vec<ApplyId> {
        let waiting = self.waiting.iter().map(|(apply, _)| (apply.id, apply.blocks));
        let under_way = self.under_way.iter().map(|(id, blocks)| (*id, *blocks));
        waiting.chain(under_way).filter(|(_, other)| other.overlaps(blocks)).map(|(id, _)| id).collect()
    }

    /// Whether a write to the region is waiting or under way.
    pub fn touches(&self, blocks: Blocks) -> bool {
        self.waiting.iter().any(|(apply, _)| apply.blocks.overlaps(blocks))
            || self.under_way.values().any(|other| other.overlaps(blocks))
    }
}
