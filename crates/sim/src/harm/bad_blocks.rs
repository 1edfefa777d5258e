//! Blocks that a disk cannot read: one, several adjacent ones, or all of it. A rewrite repairs some of them.
//!
//! Only one node's disk has bad blocks at a time: if no disk could read a block, the right response would be
//! MEDIUM ERROR, which the scenarios of `node/tests/copies/bad_blocks.rs` cover. While there is no other
//! fault, a host that reads bad blocks through that very node must not notice. Soon, blocks that a rewrite
//! repairs are good again, or the copy is out of sync, and the node has told people once.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use base::Rng;
use node::events::code::{BLOCK_REPAIRED, Code, READ_FAILED};
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

/// Longest time until bad blocks are good again or the copy is out of sync, if hosts read them.
///
/// Where errors come late, it takes some seconds for each block.
const REPAIRED_WITHIN: Duration = Duration::from_secs(15);
const REPAIRED_LATE_WITHIN: Duration = Duration::from_secs(60);

/// How often hosts read meanwhile: of two reads that meet, one may leave a block to the next read.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// With fewer reads through the disk's node than this nothing is expected: reservations kept hosts out.
const READS_MIN: u32 = 3;

/// Longest time until a node tells of a repair: it first reads the block once more.
const TOLD_WITHIN: Duration = Duration::from_secs(1);

/// Blocks that have just gone bad.
struct Bad {
    index: usize,
    disk: Disk,
    blocks: Range<u64>,
    comes_late: bool,
    /// Nothing is left of earlier failed reads: the node must tell of these.
    is_news: bool,
}

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
        let disk = Disk { pool: volume.pool, path: volume.pool.disks[first.disk] };
        let sees_repair = is_calm && spoilt == Spoilt::Blocks;
        let is_news = sees_repair && self.cluster.acknowledge_read_errors(index, volume.pool);
        if is_news {
            self.cluster.take_events(index);
        }
        self.spoilt.set(Some(index));
        self.harm_disk(index, disk, faults);
        if sees_repair {
            self.see_repair(volume, &Bad { index, disk, blocks, comes_late, is_news });
        } else if is_calm {
            self.read_unharmed(volume, index, blocks);
        }
        true
    }

    /// Lets a host read the blocks until they are good again or the copy is out of sync, and checks that this
    /// takes no longer than it may, and what the node has told.
    fn see_repair(&self, volume: &Volume, bad: &Bad) {
        let (world, cluster) = (&self.cluster.world, self.cluster);
        let history = &self.histories[volume.index];
        let (began, moment, epoch) = (world.now(), history.tick(), cluster.entry_of(volume).epoch);
        let within = if bad.comes_late { REPAIRED_LATE_WITHIN } else { REPAIRED_WITHIN };
        let is_good = || world.disk_faults(self.machine(bad.index), bad.disk.path).unreadable.is_empty();
        let is_over = || is_good() || !cluster.has_in_sync(volume, bad.index);
        let read = || u32::from(self.read_unharmed(volume, bad.index, bad.blocks.clone()) == Some(bad.index));
        let mut reads = read();
        while !is_over() {
            if world.now() - began >= within {
                let all_in_sync = (0..cluster.servers.len()).all(|at| cluster.has_in_sync(volume, at));
                assert!(
                    reads < READS_MIN || !all_in_sync,
                    "blocks {:?} of {} are bad on node {} after {reads} reads",
                    bad.blocks,
                    volume.name,
                    bad.index + 1
                );
                return;
            }
            self.inside.run_for(READ_AGAIN);
            if !is_over() {
                reads += read();
            }
        }
        self.counts.count(if is_good() { "bad blocks good again" } else { "copy out for bad blocks" });
        let sectors = history.sectors_of(bad.blocks.start).start..history.sectors_of(bad.blocks.end - 1).end;
        // A disk with larger blocks writes all of one that hosts change in part.
        let together = u64::from(self.plan.disk_block) / SECTOR as u64;
        let sectors = sectors.start / together * together..sectors.end.next_multiple_of(together);
        let only_the_node_wrote = is_good()
            && cluster.entry_of(volume).epoch == epoch
            && !history.is_written_since(sectors, moment);
        self.inside.run_for(TOLD_WITHIN);
        if bad.is_news && cluster.is_started(bad.index) {
            self.check_told(bad, only_the_node_wrote);
        }
    }

    /// Checks that the node has told once of each bad block, and of each repair.
    fn check_told(&self, bad: &Bad, has_repaired: bool) {
        let Some(events) = self.cluster.take_events(bad.index) else { return };
        let told = |code: Code| -> BTreeSet<u64> {
            let of_code = events.iter().filter(|event| event.code == code);
            let ranges = of_code.filter_map(|event| event.range.as_ref());
            let offsets: Vec<u64> =
                ranges.filter(|range| range.disk == bad.disk.path).map(|range| range.offset).collect();
            let once: BTreeSet<u64> = offsets.iter().copied().collect();
            assert_eq!(once.len(), offsets.len(), "{} is told more than once: {offsets:?}", code.as_str());
            once
        };
        let (failed, repaired) = (told(READ_FAILED), told(BLOCK_REPAIRED));
        assert!(
            repaired.is_subset(&failed),
            "{repaired:?} are told to be repaired, and {failed:?} to be bad"
        );
        assert!(!has_repaired || !repaired.is_empty(), "nobody is told of a bad block that was repaired");
        if !failed.is_empty() {
            self.counts.count("bad blocks told of");
        }
    }

    /// Adjacent blocks of a volume that many hosts use.
    fn draw_blocks(&self, volume: &Volume, rng: &mut Rng) -> Range<u64> {
        let areas = volume.layout.hot(self.plan.block);
        let area = &areas[usize::from(rng.one_in(3)).min(areas.len() - 1)];
        let first = area.start + rng.below(area.end - area.start);
        first..(first + 1 + rng.below(BLOCKS_MAX)).min(area.end)
    }
}
