//! How long a node has been silent, or a copy out of sync, as far as this node has seen in its life.

use std::collections::BTreeMap;

use base::Instant;
use replica::NodeId;

use super::Reconciler;
use crate::copies::entry::{CopyEntry, StandingEntry, VolumeEntry};
use crate::copies::progress::Lasting;

/// Since when copies are not in sync, by the volume's number and the slot.
///
/// It has the copies that this node has seen fall out of sync: at most as many as the record has copies.
pub(super) struct OutOfSyncSince {
    /// When this node began to look.
    began: Instant,
    since: BTreeMap<(u32, u8), Instant>,
}

impl OutOfSyncSince {
    /// Nothing yet.
    pub(super) fn new(now: Instant) -> OutOfSyncSince {
        OutOfSyncSince { began: now, since: BTreeMap::new() }
    }

    /// Notes a change of a volume's entry in the record.
    pub(super) fn note(&mut self, now: Instant, before: Option<&VolumeEntry>, after: Option<&VolumeEntry>) {
        for (number, copy) in behind(before) {
            if !behind(after).any(|(_, other)| is_same(other, copy)) {
                self.since.remove(&(number, copy.slot));
            }
        }
        for (number, copy) in behind(after) {
            if !behind(before).any(|(_, other)| is_same(other, copy)) {
                self.since.insert((number, copy.slot), now);
            }
        }
    }

    /// How long a copy that is not in sync has been so.
    pub(super) fn lasts(&self, now: Instant, number: u32, slot: u8) -> Lasting {
        self.lasting(now, self.since.get(&(number, slot)).copied())
    }

    fn lasting(&self, now: Instant, since: Option<Instant>) -> Lasting {
        Lasting { age: now.since(since.unwrap_or(self.began)), at_least: since.is_none() }
    }
}

/// The copies that are not in sync, with the volume's number.
fn behind(entry: Option<&VolumeEntry>) -> impl Iterator<Item = (u32, &CopyEntry)> {
    entry.into_iter().flat_map(|entry| {
        let copies = entry.copies.iter().filter(|copy| copy.standing != StandingEntry::InSync);
        copies.map(move |copy| (entry.number, copy))
    })
}

fn is_same(a: &CopyEntry, b: &CopyEntry) -> bool {
    (a.slot, a.node, a.made) == (b.slot, b.node, b.made)
}

impl Reconciler {
    /// How long a node has been silent; `None`: it was heard just now.
    pub fn silence_of(&self, node: NodeId) -> Option<Lasting> {
        let now = rt::now();
        if self.is_heard(now, node) {
            return None;
        }
        let heard = self.peers.borrow().get(&node).and_then(|peer| peer.heard);
        Some(self.out_of_sync_since.borrow().lasting(now, heard))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant(seconds * 1_000_000_000)
    }

    #[test]
    fn the_duration_counts_from_leaving_until_in_sync() {
        use StandingEntry::{InSync, Joining, Outside as Out};
        let lasting = |seconds, at_least| Lasting { age: Duration::from_secs(seconds), at_least };
        let whole = VolumeEntry::with_copies(&[(1, InSync), (2, InSync)]);
        let out = VolumeEntry::with_copies(&[(1, InSync), (2, Out)]);
        let joins = VolumeEntry::with_copies(&[(1, InSync), (2, Joining)]);
        let mut outside = OutOfSyncSince::new(at(100));
        assert_eq!(outside.lasts(at(105), 7, 1), lasting(5, true), "it was so before");
        outside.note(at(110), Some(&whole), Some(&out));
        outside.note(at(120), Some(&out), Some(&joins));
        assert_eq!(outside.lasts(at(130), 7, 1), lasting(20, false), "to join is not to be in sync");
        outside.note(at(140), Some(&joins), Some(&whole));
        outside.note(at(150), Some(&whole), Some(&out));
        assert_eq!(outside.lasts(at(151), 7, 1), lasting(1, false));
        // Another copy takes its place.
        outside.note(at(160), Some(&out), Some(&VolumeEntry::with_copies(&[(1, InSync), (3, Out)])));
        assert_eq!(outside.lasts(at(161), 7, 1), lasting(1, false));
        outside.note(at(170), Some(&VolumeEntry::with_copies(&[(1, InSync), (3, Out)])), None);
        assert!(outside.since.is_empty(), "the volume is gone");
        outside.note(at(180), None, Some(&out));
        assert_eq!(outside.since.len(), 1);
    }
}
