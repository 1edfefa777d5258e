//! Disks that leave their pools while hosts use the volumes, and come back as new ones.
//!
//! What lies on them moves to the pool's other disk. It is unknown from then on where a sector is, so checks
//! that look at places leave the copy out. What hosts read, and what copies hold in the end, is checked.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use rt::sim::DiskLatency;
use store::{NewDisk, VolumeKind};

use super::disk::{Disk, any_of};
use super::kinds::Plans;
use super::{Harm, Harms};
use crate::cluster::Pool;

/// A disk of a node leaves its pool. It stays away until there is a quiet moment; if it has not left by then,
/// it stays in the pool.
///
/// In half of the cases there is no other fault: then it must have left in time, while hosts hurry.
pub const LEAVE: Harm = Harm {
    // A single move shows little.
    measures: &[0, 8, 16, 16],
    plans: Plans::WithSpareDisks,
    repair: |harms| harms.bring_disks_back(),
    ..Harm::new("disk leaves its pool", 8, |harms, victim, rng| {
        let is_calm = rng.one_in(2) && harms.calm_down();
        let pools = harms.cluster.pools.iter().copied();
        let pools: Vec<Pool> = pools.filter(|pool| harms.can_spare(*pool)).collect();
        if pools.is_empty() {
            return false;
        }
        let pool = pools[rng.below(pools.len() as u64) as usize];
        harms.let_leave(victim.index, Disk { pool, path: any_of(pool, rng) }, is_calm)
    })
    .floor(5)
};

/// How long hosts hurry while parts move: a part takes some 50 ms.
const HURRY: Duration = Duration::from_millis(300);
/// How slow the disks of the pool are then, so that much happens while a part moves.
const PACE: std::ops::Range<Duration> = Duration::from_millis(2)..Duration::from_millis(8);
/// Longest time until a disk has left its pool, without other faults: the node tries again after 30 seconds.
const LEFT_WITHIN: Duration = Duration::from_secs(45);
/// How often to check.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A pool of a node that was told to do without a disk, and may lack it.
pub struct Left {
    index: usize,
    pool: Pool,
    /// Whoever asks the node for something holds a clone until the node has answered or has ended.
    asked: Rc<()>,
}

impl Left {
    /// Whether the node has not answered yet.
    fn is_asking(&self) -> bool {
        Rc::strong_count(&self.asked) > 1
    }
}

impl Harms<'_> {
    /// Whether a disk of this pool can be emptied: for zones of logs, the other one is too small.
    fn can_spare(&self, pool: Pool) -> bool {
        let mut volumes = self.cluster.volumes.iter().filter(|volume| volume.pool == pool);
        pool.disks.len() > 1 && volumes.all(|volume| volume.kind == VolumeKind::Thick)
    }

    /// Lets a disk leave its pool, if the pool has all of its disks.
    fn let_leave(&mut self, index: usize, disk: Disk, is_calm: bool) -> bool {
        let (cluster, pool) = (self.cluster, disk.pool);
        let is_out = self.left.iter().any(|left| (left.index, left.pool) == (index, pool));
        if is_out || !cluster.is_started(index) {
            return false;
        }
        let moved = cluster.volumes.iter().filter(|volume| volume.pool == pool);
        moved.for_each(|volume| self.media.forget(volume, index));
        let asked = Rc::new(());
        let asking = Rc::clone(&asked);
        cluster.ask_to(index, move |control| async move {
            drop(control.remove_disk(pool.name, disk.path.into()).await);
            drop(asking);
        });
        self.left.push(Left { index, pool, asked });
        if is_calm {
            self.see_it_leave(index, disk);
        }
        true
    }

    /// Lets hosts hurry while parts move, and checks that the disk leaves in time.
    fn see_it_leave(&self, index: usize, disk: Disk) {
        let world = &self.cluster.world;
        let until = world.now() + LEFT_WITHIN;
        let latency = DiskLatency { write: PACE, flush: PACE, ..self.latency(index) };
        for path in disk.pool.disks {
            world.set_disk_latency(self.machine(index), path, latency.clone());
        }
        self.hurry.begin(index);
        self.inside.run_for(HURRY);
        self.hurry.end();
        self.make_disks_fast();
        let has_left = || {
            let present = self.cluster.present_disks(index, disk.pool);
            present.is_some_and(|(paths, _)| !paths.iter().any(|path| path == Path::new(disk.path)))
        };
        while !has_left() {
            assert!(world.now() < until, "{} of node {} does not leave its pool", disk.path, index + 1);
            self.inside.run_for(LOOK_EVERY);
        }
        self.counts.count("disk emptied under load");
    }

    /// Keeps disks that are leaving, and adds those that have left.
    fn bring_disks_back(&mut self) {
        let mut left = std::mem::take(&mut self.left);
        left.retain(|left| !self.brings_back(left));
        self.left = left;
    }

    /// Has a pool get back what it lacks. Returns whether it lacks nothing.
    fn brings_back(&self, left: &Left) -> bool {
        let (cluster, index, name) = (self.cluster, left.index, left.pool.name);
        if left.is_asking() {
            return false;
        }
        let Some((paths, leaving)) = cluster.present_disks(index, left.pool) else { return false };
        let asking = Rc::clone(&left.asked);
        if let Some(path) = leaving {
            cluster.ask_to(index, move |control| async move {
                drop(control.keep_disk(name, path).await);
                drop(asking);
            });
            return false;
        }
        let is_absent = |disk: &&&str| !paths.iter().any(|path| path == Path::new(**disk));
        let Some(absent) = left.pool.disks.iter().find(is_absent) else { return true };
        let disk = NewDisk { path: absent.into(), create: None, reserve: false };
        cluster.ask_to(index, move |control| async move {
            drop(control.add_disk(name, disk, true).await);
            drop(asking);
        });
        false
    }
}
