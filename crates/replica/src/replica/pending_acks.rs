//! Acknowledgements, and what else the others are told, that wait until writes of this copy have ended.

use std::collections::BTreeMap;

use crate::media::ApplyId;
use crate::message::{RoundId, SyncId};
use crate::{Slot, Timestamp};

use super::{Blocks, Canary, Replica, makes};

/// What is sent once the writes have ended, and to which copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PendingAck {
    /// This copy's part of its own round.
    Own(RoundId),
    /// An acknowledgement.
    Peer(Slot, RoundId),
    /// The message that a region of a resync is on the disk.
    Region(SyncId, u64),
    /// The message that there is no room for such a region now.
    RegionLater(SyncId, u64),
}

/// What waits for writes of a copy.
#[derive(Debug, Default)]
pub(super) struct PendingAcks {
    last: u64,
    /// By number: how many writes have not ended, and what is sent when they have.
    open: BTreeMap<u64, (usize, PendingAck)>,
    by_apply: BTreeMap<ApplyId, Vec<u64>>,
}

impl PendingAcks {
    /// Adds what is sent when all these writes, each named once, have ended. Returns it if they have already.
    pub fn add(&mut self, writes: Vec<ApplyId>, ack: PendingAck) -> Option<PendingAck> {
        if writes.is_empty() {
            return Some(ack);
        }
        self.last += 1;
        for write in &writes {
            self.by_apply.entry(*write).or_default().push(self.last);
        }
        self.open.insert(self.last, (writes.len(), ack));
        None
    }

    /// The write, which has not ended, finds no room: regions that need it are not on the disk afterwards.
    ///
    /// They are acknowledged as such when their other writes have ended, too.
    pub fn put_off(&mut self, write: ApplyId) {
        for number in self.by_apply.get(&write).into_iter().flatten() {
            if let Some((_, ack)) = self.open.get_mut(number)
                && let PendingAck::Region(sync, region) = *ack
            {
                *ack = PendingAck::RegionLater(sync, region);
            }
        }
    }

    /// Whether another write of a region that needs this one was put off.
    pub fn is_put_off(&self, write: ApplyId) -> bool {
        let numbers = self.by_apply.get(&write).into_iter().flatten();
        let mut acks = numbers.filter_map(|number| self.open.get(number));
        acks.any(|(_, ack)| matches!(ack, PendingAck::RegionLater(..)))
    }

    /// The write has ended. Returns what is to be sent now.
    pub fn complete(&mut self, write: ApplyId) -> Vec<PendingAck> {
        let mut due = Vec::new();
        for number in self.by_apply.remove(&write).unwrap_or_default() {
            let Some((writes, ack)) = self.open.get_mut(&number) else { continue };
            *writes -= 1;
            if *writes == 0 {
                due.push(*ack);
                self.open.remove(&number);
            }
        }
        due
    }

    /// Forgets everything: rounds and resyncs end with their epoch, and a copy that still wants something
    /// asks again.
    pub fn clear(&mut self) {
        self.open.clear();
        self.by_apply.clear();
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

impl Replica {
    /// Acknowledges when all that the table has for the blocks is on the disk.
    pub(super) fn ack_when_written(&mut self, blocks: Blocks, ts: Timestamp, ack: PendingAck) {
        let writes = if makes(Canary::AckSuperseded) {
            self.table
                .within(blocks)
                .filter(|(_, entry)| entry.ts == ts)
                .filter_map(|(_, entry)| entry.apply)
                .collect()
        } else {
            self.table.under_way(blocks)
        };
        if let Some(ack) = self.pending_acks.add(writes, ack) {
            self.release_ack(ack);
        }
    }
}
