//! Disks that are slow, and disks whose operations fail now and then.

use std::ops::Range;
use std::time::Duration;

use base::Rng;
use rt::sim::{DiskFaults, DiskLatency};

use super::dead_disk::HUNG_MAX;
use super::{Harm, Harms};
use crate::cluster::{Pool, Volume};

/// A disk is slow.
pub const SLOW: Harm = Harm::new("slow disk", 4, |harms, victim, rng| {
    let is_calm = harms.is_calm();
    // Some are so slow that a node is lost and back before the answer comes.
    let max = [300, 300, 3_000][rng.below(3) as usize];
    let slow = Duration::from_millis(1 + rng.below(max));
    let spike_one_in = 1 + rng.below(50);
    let latency = DiskLatency { spike_one_in, spike: slow / 4..slow, ..harms.latency(victim.index) };
    let volume = harms.any_volume(rng);
    let disk = Disk { pool: volume.pool, path: any_of(volume.pool, rng) };
    let is_very_slow = slow >= Duration::from_secs(1);
    if is_calm && harms.read_past(volume, victim.index, disk) && is_very_slow {
        // A read that was late, and then late once more, would count as that of a disk that hangs.
        return true;
    }
    // A copy may leave because of it, and stay out for as long as its disk is slow.
    harms.disks_ill.set(true);
    if is_very_slow {
        // What is under way when the disk is fast again may still take its copy out.
        harms.hangs.set(true);
    }
    harms.set_latency(victim.index, disk, latency);
    true
});

/// Some of a disk's reads, writes or flushes fail.
pub const FAILING: Harm = Harm {
    repair: |harms| harms.reopen_or_restart(),
    ..Harm::new("failing disk", 12, |harms, victim, rng| {
        let mut one_in = || if rng.one_in(2) { 1 + rng.below(10) } else { 0 };
        let faults = DiskFaults {
            read_error_one_in: one_in(),
            write_error_one_in: one_in(),
            flush_error_one_in: one_in(),
            ..DiskFaults::default()
        };
        harms.harm_disk(victim.index, harms.any_disk(rng), faults);
        true
    })
    .costs_full_copies()
};

/// Ends all faults of disks.
pub const WELL: Harm = Harm {
    heal: |harms| harms.make_disks_well(),
    ..Harm::new("well disks", 6, |harms, _, _| {
        harms.make_disks_well();
        harms.reopen_pools();
        true
    })
    .always()
};

/// A disk of each node.
#[derive(Clone, Copy)]
pub(super) struct Disk {
    pub pool: Pool,
    pub path: &'static str,
}

/// One of the pool's disks. Draws no number if there is only one.
pub(super) fn any_of(pool: Pool, rng: &mut Rng) -> &'static str {
    match pool.disks.len() as u64 {
        1 => pool.disks[0],
        count => pool.disks[rng.below(count) as usize],
    }
}

/// Duration of a disk's reads that are late: another copy is asked for what they read.
const LATE: Range<Duration> = Duration::from_secs(3)..Duration::from_secs(4);
/// Longest time until a host has what such a disk reads: another copy is asked after a second.
const READ_PAST_WITHIN: Duration = Duration::from_millis(2800);
/// Longest time to reopen the pool of a disk that works again.
const REOPENS_WITHIN: Duration = Duration::from_secs(10);

impl Harms<'_> {
    /// A disk under one of the volumes.
    fn any_disk(&self, rng: &mut Rng) -> Disk {
        let pool = self.any_volume(rng).pool;
        Disk { pool, path: any_of(pool, rng) }
    }

    /// Lets all reads of a disk be late for a moment, in which a host reads the quiet block of a volume
    /// through that disk's node: the host must get it earlier from another copy.
    ///
    /// Returns whether that happened: only if the block is on that disk. Blocks of logs, and those with
    /// checksums, may take more than one read, and a disk that takes five seconds counts as hanging.
    fn read_past(&self, volume: &Volume, index: usize, disk: Disk) -> bool {
        let quiet = self.quiet(volume);
        let sector = self.histories[volume.index].sectors_of(quiet.start).start;
        let place = self.media.places(volume, index).get(&sector).copied();
        if volume.checksums || place.is_none_or(|place| volume.pool.disks[place.disk] != disk.path) {
            return false;
        }
        let began = self.cluster.world.now();
        self.set_latency(index, disk, DiskLatency { read: LATE, ..self.latency(index) });
        let given_by = self.read_unharmed(volume, index, quiet);
        let took = self.cluster.world.now() - began;
        assert!(
            given_by != Some(index) || took < READ_PAST_WITHIN,
            "node {} has waited for its slow disk for {took:?}, and not asked another copy",
            index + 1
        );
        self.set_latency(index, disk, self.latency(index));
        self.counts.count("read past a slow disk");
        true
    }

    fn set_disk_faults(&self, index: usize, disk: Disk, faults: DiskFaults) {
        let faults = DiskFaults { lies: self.lying.contains(&disk.path), ..faults };
        self.cluster.world.set_disk_faults(self.machine(index), disk.path, faults);
    }

    pub(super) fn harm_disk(&self, index: usize, disk: Disk, faults: DiskFaults) {
        self.note_ill(disk.pool);
        self.set_disk_faults(index, disk, faults);
    }

    pub(super) fn set_latency(&self, index: usize, disk: Disk, latency: DiskLatency) {
        self.note_ill(disk.pool);
        self.cluster.world.set_disk_latency(self.machine(index), disk.path, latency);
    }

    pub(super) fn note_ill(&self, pool: Pool) {
        self.disks_ill.set(true);
        self.count_disk(pool);
    }

    /// Counts a fault of a disk in this pool, if it is a second volume's own pool.
    pub(super) fn count_disk(&self, pool: Pool) {
        if pool != self.cluster.pools[0] {
            self.counts.count("fault of a second disk");
        }
    }

    pub(super) fn latency(&self, index: usize) -> DiskLatency {
        DiskLatency { read: Duration::from_micros(60)..self.plan.reads[index], ..DiskLatency::default() }
    }

    /// Returns all disks to the state of the plan.
    pub fn make_disks_well(&self) {
        self.make_disks_fast();
        for (index, disk) in self.disks() {
            self.set_disk_faults(index, disk, DiskFaults::default());
            self.cluster.world.set_disk_dead(self.machine(index), disk.path, false);
        }
        self.disks_ill.set(false);
        self.spoilt.set(None);
    }

    pub(super) fn make_disks_fast(&self) {
        for (index, disk) in self.disks() {
            self.cluster.world.set_disk_latency(self.machine(index), disk.path, self.latency(index));
        }
        if self.hangs.replace(false) {
            self.hung_until.set(self.cluster.world.now() + HUNG_MAX);
        }
    }

    /// All disks, by node.
    pub(super) fn disks(&self) -> impl Iterator<Item = (usize, Disk)> {
        let of = |pool: &Pool| {
            let pool = *pool;
            pool.disks.iter().map(move |path| Disk { pool, path })
        };
        let disks: Vec<Disk> = self.cluster.pools.iter().flat_map(of).collect();
        (0..self.cluster.servers.len())
            .flat_map(move |index| disks.clone().into_iter().map(move |disk| (index, disk)))
    }

    /// Whether the pool of a node needs an administrator, and the node is not about to end.
    pub(super) fn pool_failed(&self, index: usize) -> bool {
        self.cluster.is_started(index)
            && !self.stopping.contains(&index)
            && !self.gone.iter().any(|(gone, _)| *gone == index)
            && self.cluster.pool_failed(index)
    }

    /// Reopens the pools that do not work, as an administrator does when a disk works again.
    fn reopen_pools(&self) {
        for index in 0..self.cluster.servers.len() {
            if self.pool_failed(index) {
                self.counts.count("pool opened anew");
                self.cluster.reopen_pools(index);
            }
        }
    }

    /// Reopens the pools that do not work; kills a node whose pool cannot be reopened.
    fn reopen_or_restart(&mut self) {
        let (cluster, now) = (self.cluster, self.cluster.world.now());
        for index in 0..cluster.servers.len() {
            if !self.pool_failed(index) {
                continue;
            }
            match self.reopening.get(&index) {
                None => {
                    self.counts.count("pool opened anew");
                    cluster.reopen_pools(index);
                    self.reopening.insert(index, now);
                }
                Some(began) if now - *began < REOPENS_WITHIN => {}
                Some(_) => {
                    self.counts.count("pool not opened anew");
                    self.kill(index);
                    self.reopening.remove(&index);
                }
            }
        }
    }
}
