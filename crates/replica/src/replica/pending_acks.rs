//! What a copy owes to others until its local writes have ended.

use std::collections::BTreeMap;

use crate::media::ApplyId;
use crate::message::{RoundId, SyncId};
use crate::{Slot, Timestamp};

use super::{Blocks, Canary, Replica, makes};

/// What is owed, and to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owed {
    /// This copy's part of its own round.
    Own(RoundId),
    /// An acknowledgement.
    Peer(Slot, RoundId),
    /// The message that a region of a resync is on the disk.
    Region(SyncId, u64),
    /// The message that there is no room for such a region now.
    RegionLater(SyncId, u64),
}

/// The debts of a copy.
#[derive(Debug, Default)]
pub(super) struct Debts {
    last: u64,
    /// By number: how many writes have not ended, and what is due when they have.
    open: BTreeMap<u64, (usize, Owed)>,
    by_apply: BTreeMap<ApplyId, Vec<u64>>,
}

impl Debts {
    /// Adds a debt that is due when all these writes, each named once, have ended. Returns it if it is due
    /// now.
    pub fn add(&mut self, writes: Vec<ApplyId>, owed: Owed) -> Option<Owed> {
        if writes.is_empty() {
            return Some(owed);
        }
        self.last += 1;
        for write in &writes {
            self.by_apply.entry(*write).or_default().push(self.last);
        }
        self.open.insert(self.last, (writes.len(), owed));
        None
    }

    /// The write, which has not ended, finds no room: regions that need it are not on the disk afterwards.
    ///
    /// What is owed for them is due as before, when their other writes have ended, too.
    pub fn put_off(&mut self, write: ApplyId) {
        for debt in self.by_apply.get(&write).into_iter().flatten() {
            if let Some((_, owed)) = self.open.get_mut(debt)
                && let Owed::Region(sync, region) = *owed
            {
                *owed = Owed::RegionLater(sync, region);
            }
        }
    }

    /// Whether another write of a region that needs this one was put off.
    pub fn is_put_off(&self, write: ApplyId) -> bool {
        let debts = self.by_apply.get(&write).into_iter().flatten();
        let mut owed = debts.filter_map(|debt| self.open.get(debt));
        owed.any(|(_, owed)| matches!(owed, Owed::RegionLater(..)))
    }

    /// The write has ended. Returns what is due.
    pub fn pay(&mut self, write: ApplyId) -> Vec<Owed> {
        let mut due = Vec::new();
        for debt in self.by_apply.remove(&write).unwrap_or_default() {
            let Some((writes, owed)) = self.open.get_mut(&debt) else { continue };
            *writes -= 1;
            if *writes == 0 {
                due.push(*owed);
                self.open.remove(&debt);
            }
        }
        due
    }

    /// Forgets all debts: rounds and resyncs end with their epoch, and a copy that still wants something asks
    /// again.
    pub fn clear(&mut self) {
        self.open.clear();
        self.by_apply.clear();
    }

    /// Whether nothing is owed.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

impl Replica {
    /// Owes something until all that the table has for the blocks is on the disk.
    pub(super) fn owe(&mut self, blocks: Blocks, ts: Timestamp, owed: Owed) {
        let writes = if makes(Canary::AckSuperseded) {
            self.table
                .within(blocks)
                .filter(|(_, entry)| entry.ts == ts)
                .filter_map(|(_, entry)| entry.apply)
                .collect()
        } else {
            self.table.under_way(blocks)
        };
        if let Some(owed) = self.debts.add(writes, owed) {
            self.settle_debt(owed);
        }
    }
}
