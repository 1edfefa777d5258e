//! A disk, or a whole machine, that is set back: an earlier image is restored, as by a reverted snapshot or a
//! restored backup.
//!
//! The nodes can detect an image if the record knows that the pool's count has grown since
//! (`docs/why/pool.md`). They cannot detect a younger one, so none is restored here. Nor is the only complete
//! copy set back: nothing could recover its data. And no dirty bit may cover what the image lacks: otherwise
//! a resync of recent writes would hide that the copy was trusted. Hosts write their blocks all the time, so
//! the fault writes a block that is otherwise left alone ([`crate::layout::Layout::quiet`]).

use std::time::Duration;

use super::disk::any_of;
use super::{Harm, Harms, Victim};
use crate::cluster::{Pool, Volume};
use base::ByteOffset;
use node::control::FaultKind;
use node::copies::{PoolMarkEntry, pool_mark_key};
use store::VolumeKind;

/// The disk of a node is set back while the node is down.
pub const DISK_BACK: Harm = Harm::new("disk set back", 6, |harms, victim, rng| {
    let volume = harms.any_volume(rng);
    let disk = any_of(volume.pool, rng);
    // A log that was set back in part cannot be opened: an administrator would have to replace its copies.
    let has_logs = |it: &&Volume| it.pool == volume.pool && it.kind == VolumeKind::Log;
    let all = harms.cluster.volumes.iter().any(|it| has_logs(&it));
    let disks = volume.pool.disks.iter().filter(|it| all || **it == disk).copied().collect();
    harms.set_back(victim, &[volume], Back::Disks(disks))
})
.costs_full_copies()
.floor(3);

/// A whole machine is set back: its pools, and the node's own record.
pub const MACHINE_BACK: Harm = Harm {
    repair: |harms| harms.restart_set_back(),
    ..Harm::new("machine set back", 6, |harms, victim, rng| {
        let volumes: Vec<&Volume> = harms.cluster.volumes.iter().collect();
        let done = harms.set_back(victim, &volumes, Back::Machine);
        if done && rng.one_in(2) {
            harms.expect_told(victim.index);
        }
        done
    })
    .costs_full_copies()
    .floor(3)
};

/// Longest time until an image is old, without other faults: the node is lost and in sync again, the pool's
/// count has grown, and the dirty bits of earlier writes are gone.
const OLD_WITHIN: Duration = Duration::from_secs(25);
/// Longest time until a machine that was set back is reported.
const TOLD_WITHIN: Duration = Duration::from_secs(20);
/// How often to check.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What of a machine is set back.
enum Back {
    Disks(Vec<&'static str>),
    /// All its disks, and the node's own record.
    Machine,
}

/// A copy that was set back and is not in sync again yet.
pub struct Older {
    index: usize,
    pools: Vec<Pool>,
    /// The incarnations of its copies in the record: a copy with another one has come in sync again.
    lives: Vec<u64>,
}

impl Harms<'_> {
    /// Takes images of disks under a node's copies of these volumes, waits until they are old, and restores
    /// them.
    ///
    /// Returns whether that was possible.
    fn set_back(&mut self, victim: Victim, volumes: &[&Volume], what: Back) -> bool {
        let (cluster, Victim { index, other }) = (self.cluster, victim);
        if !self.calm_down() {
            return false;
        }
        let mut pools: Vec<Pool> = volumes.iter().map(|volume| volume.pool).collect();
        pools.dedup();
        let marks: Vec<_> = { pools.iter() }
            .map(|pool| {
                let name = pool.name;
                let marked = cluster.control(index, move |control| async move { control.pool_mark(name) });
                let (id, mark) = marked.expect("its pool is open: it is in sync");
                (pool_mark_key(id), mark.count)
            })
            .collect();
        let mut disks = Vec::new();
        for pool in &pools {
            let images = pool.disks.iter().zip(cluster.disks(index, *pool));
            disks.extend(images.filter(|(path, _)| match &what {
                Back::Disks(only) => only.contains(path),
                Back::Machine => true,
            }));
        }
        let record = cluster.node_record(index);
        let written: Vec<_> = volumes.iter().map(|volume| self.write_quietly(volume, other)).collect();
        self.inside.run_for(LOOK_EVERY);
        if !self.kill_and_tell(index) {
            return false;
        }
        self.start(index);
        let has_counted_on = |(key, count): &(String, u64)| {
            let known = cluster.record.value(key);
            let known: Option<PoolMarkEntry> = known.and_then(|value| serde_json::from_slice(&value).ok());
            known.is_some_and(|known| known.count > *count)
        };
        let block = self.plan.block;
        let is_noted = |volume: &Volume| {
            let quiet = ByteOffset(volume.layout.quiet(block) * u64::from(block.bytes()));
            (0..cluster.servers.len()).any(|index| cluster.notes(volume, index, quiet))
        };
        let is_old = || {
            marks.iter().all(has_counted_on)
                && written.iter().all(|written| written.get())
                && self.is_calm()
                && !volumes.iter().any(|volume| is_noted(volume))
        };
        let until = cluster.world.now() + OLD_WITHIN;
        while !is_old() {
            if cluster.world.now() > until {
                return false;
            }
            self.inside.run_for(LOOK_EVERY);
        }
        let lives = cluster.lives_of(index, &pools);
        cluster.world.crash(self.machine(index));
        disks.into_iter().for_each(|(path, image)| cluster.put_disk(index, path, image));
        pools.iter().for_each(|pool| self.count_disk(*pool));
        if matches!(what, Back::Machine) {
            cluster.put_node_record(index, record);
        }
        self.make_disks_well();
        self.older.push(Older { index, pools, lives });
        true
    }

    /// Whether the node's disk was set back, and not all of its copies have come in sync since.
    pub(super) fn holds_older_data(&self, index: usize) -> bool {
        let is_back = |Older { pools, lives, .. }: &Older| {
            let now = self.cluster.lives_of(index, pools);
            self.cluster.has_all(index) && now.iter().zip(lives).all(|(now, then)| now != then)
        };
        self.older.iter().any(|older| older.index == index && !is_back(older))
    }

    /// Whether the record has a copy in sync that was set back, because no node has detected it yet.
    pub(super) fn trusts_older_data(&self) -> bool {
        let is_trusted = |Older { index, pools, .. }: &Older| {
            let mut volumes = self.cluster.volumes.iter().filter(|volume| pools.contains(&volume.pool));
            self.holds_older_data(*index) && volumes.any(|volume| self.cluster.has_in_sync(volume, *index))
        };
        self.older.iter().any(is_trusted)
    }

    /// Starts a machine that was set back, without other faults, and waits until the node reports it.
    fn expect_told(&mut self, index: usize) {
        self.start(index);
        let until = self.cluster.world.now() + TOLD_WITHIN;
        while !self.is_told_set_back(index) {
            assert!(
                self.cluster.world.now() < until,
                "the machine of node {} was set back, and nobody is told",
                index + 1
            );
            self.inside.run_for(LOOK_EVERY);
        }
        self.counts.count("machine set back told at once");
    }

    /// Whether the node has found itself set back, and reports so.
    fn is_told_set_back(&self, index: usize) -> bool {
        self.cluster.is_started(index)
            && self.cluster.control(index, |control| async move {
                let faults = control.faults();
                let is_set_back = |kind: &FaultKind| {
                    matches!(kind, FaultKind::NodeSetBack { .. } | FaultKind::RecordSetBack)
                };
                faults.iter().any(|fault| is_set_back(&fault.kind))
            })
    }

    /// Restarts nodes that found themselves set back, as they tell an administrator to do.
    fn restart_set_back(&self) {
        for index in 0..self.cluster.servers.len() {
            if self.is_told_set_back(index) {
                self.counts.count("machine set back noticed");
                self.kill(index);
            }
        }
    }
}
