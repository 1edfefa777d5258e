//! What is owed to others until local writes have ended.

use std::collections::BTreeMap;

use crate::media::ApplyId;
use crate::message::{RoundId, SyncId};
use crate::{Slot, Timestamp};

use super::{Blocks, Canary, Replica, makes};

/// To whom what is owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owed {
    /// Our own part of our own round.
    Own(RoundId),
    /// An acknowledgement.
    Peer(Slot, RoundId),
    /// The word that a region of a sync is on the disk.
    Region(SyncId, u64),
}

/// The debts of a copy.
#[derive(Debug, Default)]
pub(super) struct Debts {
    last: u64,
    /// By number: how many writes have not ended, and what is due then.
    open: BTreeMap<u64, (usize, Owed)>,
    by_apply: BTreeMap<ApplyId, Vec<u64>>,
}

impl Debts {
    /// Takes on a debt that is due when all the writes, each named once, have ended; gives it back if that is
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

    /// The write has ended; says what is due.
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

    /// Forgets all: rounds and syncs of an epoch end with it, and whoever still wants something asks again.
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
    /// Owes something until all that the table says of the blocks is on the disk.
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
