//! Writing again what the local disk did not read (R25).
//!
//! The data is what another copy in sync would have given to a host of its own. It is the newest write of these blocks if nothing was taken there since the read that failed
//! began, and the blocks are valid: then every member holds it. Writes that are taken later are handed out behind this one.

use base::Instant;

use crate::canary::{Canary, left_out};
use crate::{ApplyId, Blocks, Leases, Payload, Slots};

use super::{DiskFault, ReadMark, Replica};

impl Replica {
    /// Hands out a write of blocks that the local disk did not read, with what another copy in sync holds there. Its bits for all other copies are on the disk first (R4): a power
    /// cut may leave anything of it. [`Replica::handle_applied`] ends it; an error ends this copy's part, as for any write.
    ///
    /// `None`: something has happened since `mark`, which is older than the question to the other copy. The blocks hold something else by now, or will soon.
    pub fn repair(
        &mut self,
        mark: ReadMark,
        now: Instant,
        leases: &Leases,
        blocks: Blocks,
        payload: Payload,
    ) -> Option<ApplyId> {
        if self.failed.is_some()
            || !self.still_readable(mark, now, leases, blocks) && !left_out(Canary::RepairLate)
        {
            return None;
        }
        let intents = if left_out(Canary::RepairWithoutIntent) { Slots::NONE } else { self.others() };
        let regions = self.geometry.regions_of(blocks);
        for region in regions.clone() {
            self.warm.insert(region, self.ticks);
            self.note_dirtied(region);
        }
        self.map.mark(regions, intents);
        Some(self.media.submit_repair(blocks, payload, intents))
    }

    /// The write that [`Replica::repair`] gave this number has failed, or its blocks still cannot be read. This copy goes, if there is another one in sync: the blocks may hold anything.
    pub fn handle_unrepaired(&mut self, id: ApplyId) {
        self.media.end(id);
        self.give_up_disk(DiskFault::Unrepaired);
    }

    /// The disk is not to be relied on. The only copy in sync goes on with what it has: nobody else has it.
    pub fn give_up_disk(&mut self, fault: DiskFault) {
        let Some(config) = &self.config else { return };
        if config.members().contains(self.me) && !config.in_sync().without(self.me).is_empty() {
            self.fail(fault);
        }
    }

    /// Whether this copy is in sync, and another one, too: what it cannot read can be had.
    pub fn has_others_in_sync(&self) -> bool {
        let in_sync = self.config.as_ref().map_or(Slots::NONE, |config| config.in_sync());
        in_sync.contains(self.me) && in_sync.len() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canary::leave_out;
    use crate::{
        Activation, Command, Config, DirtyMap, Geometry, Incarnation, NodeId, Output, Revision, Slot, Terms,
    };

    const GEOMETRY: Geometry = Geometry { blocks: 48, block_bytes: 8, region_blocks: 6 };
    const LIFE: Incarnation = Incarnation(1);
    const BLOCK: Blocks = Blocks { start: 3, end: 4 };

    fn slot(number: usize) -> Slot {
        Slot::new(number).unwrap()
    }

    fn leases() -> Leases {
        Leases::new(Instant(0), LIFE, Terms::default())
    }

    /// The only copy in sync and the only member, which needs no lease; another one is outside.
    fn alone() -> Replica {
        let two = Config::initial(&[(NodeId(1), LIFE), (NodeId(2), LIFE)], Revision(1));
        let mut replica = Replica::new(slot(0), LIFE, GEOMETRY, DirtyMap::new(GEOMETRY.regions()));
        replica.activate(Activation { config: two.remove(slot(1)).unwrap(), kept: false });
        replica
    }

    fn repair(replica: &mut Replica, mark: ReadMark) -> Option<ApplyId> {
        replica.repair(mark, Instant(1), &leases(), BLOCK, Payload::Zeros)
    }

    fn next_disk_write(replica: &mut Replica) -> Option<Output> {
        std::iter::from_fn(|| replica.poll())
            .find(|output| matches!(output, Output::Apply(_) | Output::WritePage(_)))
    }

    #[test]
    fn its_bits_are_on_the_disk_before_the_block_is_written_again() {
        let mut replica = alone();
        let mark = replica.readable(Instant(1), &leases(), BLOCK).unwrap();
        let id = repair(&mut replica, mark).unwrap();
        let Some(Output::WritePage(page)) = next_disk_write(&mut replica) else { panic!("no intent") };
        assert!(next_disk_write(&mut replica).is_none(), "nothing is written before that");
        replica.handle_page_written(page.page, Ok(()));
        let Some(Output::Apply(apply)) = next_disk_write(&mut replica) else { panic!("not written") };
        assert_eq!((apply.id, apply.blocks, apply.repair), (id, BLOCK, true));
        replica.handle_applied(id, Ok(()));
        assert!(replica.is_at_rest());

        leave_out(Some(Canary::RepairWithoutIntent));
        let mut replica = alone();
        let mark = replica.readable(Instant(1), &leases(), BLOCK).unwrap();
        repair(&mut replica, mark).unwrap();
        assert!(matches!(next_disk_write(&mut replica), Some(Output::Apply(_))), "the rule is what does it");
        leave_out(None);
    }

    #[test]
    fn what_was_written_since_is_not_overwritten() {
        let mut replica = alone();
        let mark = replica.readable(Instant(1), &leases(), BLOCK).unwrap();
        replica.write(Command(1), BLOCK, Payload::Zeros, 0).unwrap();
        assert_eq!(repair(&mut replica, mark), None);
    }

    #[test]
    fn the_last_copy_in_sync_stays_though_a_block_cannot_be_repaired() {
        let mut replica = alone();
        let mark = replica.readable(Instant(1), &leases(), BLOCK).unwrap();
        let id = repair(&mut replica, mark).unwrap();
        replica.handle_unrepaired(id);
        assert!(!replica.has_failed());

        let two = Config::initial(&[(NodeId(1), LIFE), (NodeId(2), LIFE)], Revision(1));
        let mut replica = Replica::new(slot(0), LIFE, GEOMETRY, DirtyMap::new(GEOMETRY.regions()));
        replica.activate(Activation { config: two, kept: false });
        replica.handle_unrepaired(id);
        assert_eq!(replica.failure(), Some(DiskFault::Unrepaired));
    }

    #[test]
    fn a_joiner_gives_its_disk_up_as_well_and_who_is_no_member_has_none_to_give_up() {
        let two = Config::initial(&[(NodeId(1), LIFE), (NodeId(2), LIFE)], Revision(1));
        let outside = two.remove(slot(0)).unwrap();
        let joining = outside.admit(slot(0), LIFE).unwrap();
        for (config, fault) in [(outside, None), (joining, Some(DiskFault::Write))] {
            let mut replica = Replica::new(slot(0), LIFE, GEOMETRY, DirtyMap::new(GEOMETRY.regions()));
            replica.activate(Activation { config, kept: false });
            replica.give_up_disk(DiskFault::Write);
            assert_eq!(replica.failure(), fault);
        }
    }
}
