//! Snapshots that are taken and deleted while hosts use the volumes, whatever faults there are.
//!
//! The next fault comes while one is being taken or deleted. What must hold for snapshots:
//! [`crate::snapshots`].
//!
//! This is a part of a plan, and no [`super::Harm`]: it happens beside the plan's faults, by random numbers
//! of its own, and takes no fault's turn.

use std::time::Duration;

use base::Rng;
use store::VolumeKind;

use super::Harms;
use crate::cluster::Volume;

/// A snapshot is taken in one turn of faults out of this many.
const TAKEN_ONE_IN: u64 = 2;
/// One is deleted in one turn out of this many.
const DELETED_ONE_IN: u64 = 3;
/// How many there are at a time, at most.
const MOST: usize = 4;
/// Longest time until the next fault, in microseconds: a step takes less than one or up to ten milliseconds.
const SOON: [u64; 3] = [2_000, 8_000, 32_000];
/// Longest time until a snapshot can be taken, once faults have ended.
const TAKEN_WITHIN: Duration = Duration::from_secs(60);
/// How often to check.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl<'a> Harms<'a> {
    /// Has snapshots taken, read and deleted now and then.
    ///
    /// The random numbers are for this alone.
    pub fn manage_snapshots(&self, rng: &mut Rng) {
        let (cluster, Some(snapshots)) = (self.cluster, &self.snapshots) else { return };
        let (takes, deletes) = (rng.one_in(TAKEN_ONE_IN), rng.one_in(DELETED_ONE_IN));
        let index = rng.below(cluster.servers.len() as u64) as usize;
        // Beyond the last volume: all of them.
        let drawn = rng.below(cluster.volumes.len() as u64 + 1) as usize;
        let longest = SOON[rng.below(SOON.len() as u64) as usize];
        let (soon, hurries) = (Duration::from_micros(rng.below(longest)), rng.one_in(2));
        let (alive, any) = (snapshots.alive(), rng.next());
        let chosen = alive.get(any as usize % alive.len().max(1)).copied();
        if let Some(at) = chosen {
            let started = (0..cluster.servers.len()).filter(|index| cluster.is_started(*index));
            started.for_each(|index| snapshots.begin_to_read(cluster, index, at));
        }
        if !self.may_change_volumes(index) {
            return;
        }
        let deleted = chosen.filter(|_| deletes || alive.len() >= MOST);
        if let Some(at) = deleted {
            snapshots.delete(cluster, index, at);
        }
        let logs = self.log_volumes();
        let set = logs.get(drawn..=drawn).unwrap_or(&logs);
        let takes = takes && alive.len() < MOST && !set.is_empty();
        if takes {
            snapshots.take(cluster, index, set);
        }
        if takes || deleted.is_some() {
            if hurries {
                self.hurry.begin(index);
            }
            self.inside.run_for(soon);
            self.hurry.end();
        }
    }

    /// Sees that a snapshot of all log volumes can be taken, under load and without faults, in a plan with
    /// snapshots. Returns which it is; `None`: there is nothing to take one of.
    ///
    /// # Panics
    /// If that takes too long.
    pub fn see_snapshot_taken(&self) -> Option<usize> {
        let (cluster, logs) = (self.cluster, self.log_volumes());
        let snapshots = self.snapshots.as_ref().filter(|_| !logs.is_empty())?;
        let until = cluster.world.now() + TAKEN_WITHIN;
        for index in (0..cluster.servers.len()).cycle() {
            let at = snapshots.take(cluster, index, &logs);
            while snapshots.is_taken(at).is_none() {
                let now = cluster.world.now();
                assert!(now < until, "no snapshot can be taken though nothing fails any more");
                self.inside.run_for(LOOK_EVERY);
            }
            if snapshots.is_taken(at) == Some(true) {
                return Some(at);
            }
        }
        None
    }

    /// Deletes what only a node's copy has of snapshots, as an administrator must before a copy is removed
    /// whose disk is lost. Returns whether there is nothing of that kind.
    pub(super) fn clear_of_snapshots(&self, volume: &Volume, index: usize) -> bool {
        let cluster = self.cluster;
        let Some(all) = &self.snapshots else { return true };
        let last = all.only_on(cluster, volume, index);
        let mut others = (0..cluster.servers.len()).filter(|other| *other != index);
        if !last.is_empty()
            && self.may_ask()
            && let Some(by) = others.find(|other| cluster.is_started(*other))
        {
            last.iter().for_each(|at| all.delete(cluster, by, *at));
        }
        last.is_empty()
    }

    /// The volumes that can have snapshots.
    fn log_volumes(&self) -> Vec<&'a Volume> {
        let is_log = |volume: &&Volume| self.cluster.entry_of(volume).shape.kind == VolumeKind::Log;
        self.cluster.volumes.iter().filter(is_log).collect()
    }
}
