//! Blocks that a disk cannot read: one, several adjacent ones, or all of it. A rewrite repairs some of them.
//!
//! Only one node's disk has bad blocks at a time: if no disk could read a block, the right response would be
//! MEDIUM ERROR, which the scenarios of `node/tests/copies/bad_blocks.rs` cover. While there is no other
//! fault, a host that reads bad blocks through that very node must not notice.

use std::ops::Range;
use std::time::Duration;

use base::Rng;
use rt::sim::DiskFaults;

use super::disk::Disk;
use super::{Harm, Harms};
use crate::cluster::Volume;
use crate::layout::SECTOR;
use crate::media::Spot;

/// Some blocks of a disk are unreadable until they are written again.
pub const BAD: Harm =
    Harm::new("bad blocks", 8, |harms, victim, rng| harms.spoil(victim.index, Spoilt::Blocks, rng)).floor(10);

/// Some blocks of a disk can be neither read nor written.
pub const LOST: Harm = Harm::new("blocks lost for good", 8, |harms, victim, rng| {
    harms.spoil(victim.index, Spoilt::ForGood, rng)
})
.costs_full_copies()
.floor(5);

/// No block of a disk can be read.
pub const UNREADABLE: Harm =
    Harm::new("unreadable disk", 4, |harms, victim, rng| harms.spoil(victim.index, Spoilt::Whole, rng))
        .costs_full_copies()
        .floor(3);

/// How much of a disk is bad.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spoilt {
    /// One or more blocks, which a write repairs.
    Blocks,
    /// One or more blocks, which no write repairs.
    ForGood,
    /// All blocks, for reads.
    Whole,
}

/// How long some disks take until a read fails: longer than hosts are kept waiting for it.
///
/// A second read finds out which block it was, and a disk that takes five seconds altogether counts as
/// hanging.
const ERROR_COMES_AFTER: Duration = Duration::from_millis(1500);

/// Number of blocks that are bad at once, at most.
const BLOCKS_MAX: u64 = 3;

impl Harms<'_> {
    fn spoil(&mut self, index: usize, spoilt: Spoilt, rng: &mut Rng) -> bool {
        let is_calm = rng.one_in(2) && self.calm_down();
        if self.spoilt.get().is_some() {
            return false;
        }
        let volume = self.any_volume(rng);
        let history = &self.histories[volume.index];
        let blocks = self.draw_blocks(volume, rng);
        let sectors = history.sectors_of(blocks.start).start..history.sectors_of(blocks.end - 1).end;
        let places: Vec<Spot> =
            self.media.places(volume, index).range(sectors).map(|(_, place)| *place).collect();
        // If another disk begins within the blocks, only the first ones are bad.
        let Some(first) = places.first().copied() else { return false };
        let places = places.into_iter().filter(|place| place.disk == first.disk).map(|place| place.at);
        let faults = places.fold(DiskFaults::default(), |faults, at| {
            let sector = at..at + SECTOR as u64;
            match spoilt {
                Spoilt::Blocks => faults.with_unreadable(sector).remapping(),
                Spoilt::ForGood => faults.with_unreadable(sector.clone()).with_unwritable(sector),
                Spoilt::Whole => faults.with_unreadable(0..u64::MAX),
            }
        });
        // Not drawn, so that the other seeds stay the same.
        let comes_late = spoilt != Spoilt::Whole && blocks.start % 2 == 1;
        let faults = if comes_late { faults.failing_after(ERROR_COMES_AFTER) } else { faults };
        self.spoilt.set(Some(index));
        let disk = Disk { pool: volume.pool, path: volume.pool.disks[first.disk] };
        self.harm_disk(index, disk, faults);
        if is_calm {
            self.read_unharmed(volume, index, blocks);
        }
        true
    }

    /// Adjacent blocks of a volume that many hosts use.
    fn draw_blocks(&self, volume: &Volume, rng: &mut Rng) -> Range<u64> {
        let areas = volume.layout.hot(self.plan.block);
        let area = &areas[usize::from(rng.one_in(3)).min(areas.len() - 1)];
        let first = area.start + rng.below(area.end - area.start);
        first..(first + 1 + rng.below(BLOCKS_MAX)).min(area.end)
    }
}
