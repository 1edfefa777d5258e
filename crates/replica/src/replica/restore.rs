//! Restores: the disks of all copies in sync get other content, the same on each, without any write of the
//! protocol (`docs/why/snapshots.md`, *Restoring*).
//!
//! The driver sees to it that no host is served, and that no copy has anything to finish. What is left for
//! this copy to do: nothing that was read before counts any more, and copies that are not in sync, which keep
//! their former content, miss everything.

use std::ops::Range;

use crate::message::LostUnits;
use crate::{Blocks, Slots};

use super::Replica;

impl Replica {
    /// Whether this copy has nothing to finish, and its disk has nothing to write.
    pub fn is_still(&self) -> bool {
        self.is_settled(Blocks::new(0, self.geometry.blocks)) && self.media.is_idle()
    }

    /// The content of the disk is about to change: what was read before must be read again.
    pub fn begin_restore(&mut self) {
        self.table.outdate();
    }

    /// The disk has its new content, of which `lost` is lost.
    ///
    /// The table stays as it is: a message that comes late must not bring back a write from before.
    pub fn handle_restored(&mut self, lost: LostUnits) {
        self.table.outdate();
        self.lost = lost;
        self.unread.clear();
        // What they were given by now is the former content.
        self.sources = Default::default();
    }

    /// Notes that the copies that are not in sync miss these regions. It counts once
    /// [`Replica::has_noted_absent`] says so.
    pub fn note_absent(&mut self, regions: Range<u64>) {
        let absent = self.absent();
        if !absent.is_empty() {
            self.map.mark(regions, absent);
        }
    }

    /// Whether the disk has noted that.
    pub fn has_noted_absent(&self, regions: Range<u64>) -> bool {
        let absent = self.absent();
        absent.is_empty() || self.map.is_durable(regions, absent)
    }

    fn absent(&self) -> Slots {
        let in_sync = self.config.as_ref().map_or(Slots::NONE, |config| config.in_sync());
        self.others().minus(in_sync)
    }
}

#[cfg(test)]
mod tests {
    use base::Instant;

    use super::*;
    use crate::{
        Activation, Command, Config, DirtyMap, Geometry, Incarnation, Leases, NodeId, Output, Payload,
        Revision, Slot, Terms,
    };

    const GEOMETRY: Geometry = Geometry { blocks: 48, block_bytes: 8, region_blocks: 6 };
    const LIFE: Incarnation = Incarnation(1);
    const ALL: Blocks = Blocks { start: 0, end: 48 };

    fn slot(number: usize) -> Slot {
        Slot::new(number).unwrap()
    }

    /// Copy 0, the only one in sync; copy 1 is outside.
    fn alone() -> Replica {
        let two = Config::initial(&[(NodeId(1), LIFE), (NodeId(2), LIFE)], Revision(1));
        let mut replica = Replica::new(slot(0), LIFE, GEOMETRY, DirtyMap::new(GEOMETRY.regions()));
        replica.activate(Activation { config: two.remove(slot(1)).unwrap(), kept: false });
        replica
    }

    /// Does what the replica wants from its disk until there is nothing left.
    fn carry_out(replica: &mut Replica) {
        while let Some(output) = replica.poll() {
            match output {
                Output::WritePage(page) => replica.handle_page_written(page.page, Ok(())),
                Output::Apply(apply) => replica.handle_applied(apply.id, Ok(())),
                _ => {}
            }
        }
    }

    #[test]
    fn a_copy_outside_misses_everything() {
        let regions = || 0..GEOMETRY.regions();
        let mut replica = alone();
        carry_out(&mut replica);
        assert_eq!(replica.map().count(slot(1)), 0);
        replica.handle_restored(LostUnits::new());
        replica.note_absent(regions());
        assert_eq!(replica.map().count(slot(1)), GEOMETRY.regions());
        assert!(!replica.has_noted_absent(regions()), "the disk does not know that yet");
        carry_out(&mut replica);
        assert!(replica.has_noted_absent(regions()));
    }

    #[test]
    fn copies_in_sync_miss_nothing() {
        let two = Config::initial(&[(NodeId(1), LIFE), (NodeId(2), LIFE)], Revision(1));
        let mut replica = Replica::new(slot(0), LIFE, GEOMETRY, DirtyMap::new(GEOMETRY.regions()));
        replica.activate(Activation { config: two, kept: false });
        replica.handle_restored(LostUnits::new());
        replica.note_absent(0..GEOMETRY.regions());
        assert!(replica.map().count(slot(1)) == 0 && replica.has_noted_absent(0..GEOMETRY.regions()));
    }

    #[test]
    fn what_was_read_before_must_be_read_again() {
        let leases = Leases::new(Instant(0), LIFE, Terms::default());
        let mut replica = alone();
        let is_current = |replica: &Replica, mark| replica.still_readable(mark, Instant(1), &leases, ALL);
        let before = replica.readable(Instant(1), &leases, ALL).unwrap();
        assert!(is_current(&replica, before));
        replica.begin_restore();
        assert!(!is_current(&replica, before));
        let meanwhile = replica.readable(Instant(1), &leases, ALL).unwrap();
        replica.handle_restored(LostUnits::new());
        assert!(!is_current(&replica, meanwhile));
        let after = replica.readable(Instant(1), &leases, ALL).unwrap();
        assert!(is_current(&replica, after));
    }

    #[test]
    fn a_copy_is_still_when_its_writes_have_ended() {
        let mut replica = alone();
        carry_out(&mut replica);
        assert!(replica.is_still());
        replica.write(Command(1), Blocks::new(3, 4), Payload::Zeros, 0).unwrap();
        assert!(!replica.is_still());
        carry_out(&mut replica);
        assert!(replica.is_still());
    }
}
