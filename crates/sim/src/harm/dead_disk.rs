//! Disks that hang, and disks that fail: for a while, or until they are replaced.

use std::time::Duration;

use rt::sim::DiskLatency;

use super::disk::{Disk, any_of};
use super::{Harm, Harms, Victim};
use crate::cluster::{Pool, Volume};

/// A disk answers nothing for so long that the other nodes go on without it.
pub const HANG: Harm = Harm::new("hanging disk", 4, |harms, victim, rng| {
    let is_calm = rng.one_in(2) && harms.calm_down();
    let volume = harms.any_volume(rng);
    let latency = DiskLatency { read: READ_HANGS, write: HANGS, flush: HANGS, ..harms.latency(victim.index) };
    harms.set_latency(victim.index, Disk { pool: volume.pool, path: any_of(volume.pool, rng) }, latency);
    harms.hangs.set(true);
    if is_calm {
        harms.use_unharmed(volume, victim);
    }
    true
})
.costs_full_copies()
.floor(5);

/// A disk fails all operations until it is back, with all its data.
pub const DEAD: Harm = Harm::new("dead disk", 4, |harms, victim, rng| {
    let is_calm = rng.one_in(2) && harms.calm_down();
    let volume = harms.any_volume(rng);
    harms.kill_disk(victim.index, volume.pool, any_of(volume.pool, rng));
    if is_calm {
        harms.use_unharmed(volume, victim);
    }
    true
})
.costs_full_copies()
.floor(5);

/// A disk is lost with all its data.
///
/// It is replaced by an empty one, and an administrator adds the node's copy again.
pub const GONE: Harm = Harm {
    repair: |harms| harms.replace_copies(),
    ..Harm::new("disk gone for good", 6, |harms, victim, rng| {
        harms.calm_down() && {
            let volume = harms.any_volume(rng);
            harms.lose_disk(volume, any_of(volume.pool, rng), victim);
            true
        }
    })
    .costs_full_copies()
    .floor(3)
};

/// Duration of a read of a disk that hangs: longer than the others wait.
const READ_HANGS: std::ops::Range<Duration> = Duration::from_secs(20)..Duration::from_secs(30);
/// Duration of a write, and of a flush: a durable write is both.
const HANGS: std::ops::Range<Duration> = Duration::from_secs(10)..Duration::from_secs(15);
/// How long operations from the time of the hang may take after it has ended.
pub(super) const HUNG_MAX: Duration = Duration::from_secs(30);
/// Longest time until a copy whose disk is lost is out of sync, without other faults.
const LEAVES_WITHIN: Duration = Duration::from_secs(15);

impl Harms<'_> {
    fn kill_disk(&self, index: usize, pool: Pool, disk: &str) {
        self.note_ill(pool);
        self.cluster.world.set_disk_dead(self.machine(index), disk, true);
    }

    /// Loses a disk under a node's copy of this volume for good.
    fn lose_disk(&mut self, volume: &Volume, disk: &str, victim: Victim) {
        let (cluster, pool, Victim { index, other }) = (self.cluster, volume.pool, victim);
        self.kill_disk(index, pool, disk);
        self.use_unharmed(volume, victim);
        if !self.leaves(volume, index) {
            // The used part of the volume may all be on the pool's other disk (seed 6300000).
            pool.disks.iter().for_each(|disk| self.kill_disk(index, pool, disk));
            self.write_unharmed(volume, other);
            assert!(self.leaves(volume, index), "the copy of node {} has no disk, and is in sync", index + 1);
        }
        cluster.world.kill(self.machine(index));
        cluster.put_blank_disks(index, pool);
        let lost = cluster.volumes.iter().filter(|volume| volume.pool == pool);
        lost.for_each(|volume| self.media.forget(volume, index));
        self.gone.push((index, pool));
    }

    /// Whether a node's copy becomes out of sync in time.
    fn leaves(&self, volume: &Volume, index: usize) -> bool {
        let until = self.cluster.world.now() + LEAVES_WITHIN;
        while self.cluster.has_in_sync(volume, index) && self.cluster.world.now() < until {
            self.inside.run_for(Duration::from_millis(100));
        }
        !self.cluster.has_in_sync(volume, index)
    }

    /// Does what an administrator does about lost disks.
    ///
    /// He forgets the pool, creates one on the new disk, deletes the snapshots that are lost with the copies,
    /// and removes these from the node. Then the node gets new copies, like every node without one.
    fn replace_copies(&mut self) {
        let cluster = self.cluster;
        for (index, pool) in self.gone.clone() {
            if !cluster.is_started(index) {
                continue;
            }
            let mut lost = cluster.volumes.iter().filter(|volume| volume.pool == pool);
            if let Some(volume) = lost.find(|volume| cluster.has_copy(volume, index)) {
                if self.clear_of_snapshots(volume, index) {
                    self.remove_copy(volume, index);
                }
            } else if cluster.has_well_pool(index, pool) {
                self.counts.count("disk replaced");
                self.gone.retain(|gone| *gone != (index, pool));
            } else if self.may_ask() {
                cluster.make_pool_again(index, pool);
            }
        }
    }
}
