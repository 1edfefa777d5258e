//! Volumes that are restored to snapshots while hosts use them, whatever faults there are.
//!
//! The next fault comes while a restore is under way. What must hold for restores: [`crate::snapshots`].
//!
//! This is a part of a plan, and no [`super::Harm`]: it happens beside the plan's faults, by random numbers
//! of its own, and takes no fault's turn.

use std::time::Duration;

use base::Rng;

use super::Harms;
use crate::snapshots::Wanted;

/// Volumes are restored in one turn of faults out of this many, if they can be.
const ONE_IN: u64 = 2;
/// Longest time until the next fault, in microseconds: hosts are stopped for some ten milliseconds.
const SOON: [u64; 3] = [4_000, 16_000, 64_000];
/// Longest time until volumes can be restored, once faults have ended.
const RESTORED_WITHIN: Duration = Duration::from_secs(60);
/// How often to check.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long hosts hurry before and after that: they have written something that a restore undoes, and see
/// it.
const USED_FOR: Duration = Duration::from_millis(300);

impl Harms<'_> {
    /// Has volumes restored now and then.
    ///
    /// The random numbers are for this alone.
    pub fn restore_volumes(&self, rng: &mut Rng) {
        let (cluster, Some(snapshots)) = (self.cluster, &self.snapshots) else { return };
        let (asks, discards, is_one) = (rng.one_in(ONE_IN), rng.one_in(2), rng.one_in(2));
        let index = rng.below(cluster.servers.len() as u64) as usize;
        let (any, any_volume) = (rng.next(), rng.next());
        let longest = SOON[rng.below(SOON.len() as u64) as usize];
        let (soon, hurries) = (Duration::from_micros(rng.below(longest)), rng.one_in(2));
        let is_restoring = self.is_restoring();
        if !asks || is_restoring || !self.may_change_volumes(index) {
            return;
        }
        let all = snapshots.restorable();
        let Some(snapshot) = all.get(any as usize % all.len().max(1)).copied() else { return };
        let mut volumes = snapshots.volumes_of(snapshot);
        if is_one {
            volumes = vec![volumes[any_volume as usize % volumes.len()]];
        }
        if hurries {
            self.hurry.begin(index);
        }
        snapshots.restore(cluster, index, Wanted { snapshot, volumes, discards });
        self.inside.run_for(soon);
        self.hurry.end();
    }

    /// Whether it is not known yet what becomes of the last restore.
    pub(super) fn is_restoring(&self) -> bool {
        self.snapshots.as_ref().is_some_and(|snapshots| snapshots.is_restoring(self.cluster))
    }

    /// Sees that all volumes of a snapshot can be restored, under load and without faults, in a plan with
    /// restores.
    ///
    /// # Panics
    /// If that takes too long.
    pub fn see_restored(&self, snapshot: usize) {
        let cluster = self.cluster;
        let Some(snapshots) = self.snapshots.as_ref().filter(|_| self.plan.restores) else { return };
        let use_volumes = || {
            self.hurry.begin(0);
            self.inside.run_for(USED_FOR);
            self.hurry.end();
        };
        use_volumes();
        let until = cluster.world.now() + RESTORED_WITHIN;
        let wait = || {
            let now = cluster.world.now();
            assert!(now < until, "volumes cannot be restored though nothing fails any more");
            self.inside.run_for(LOOK_EVERY);
        };
        for index in (0..cluster.servers.len()).cycle() {
            while self.is_restoring() {
                wait();
            }
            let wanted = Wanted { snapshot, volumes: snapshots.volumes_of(snapshot), discards: false };
            let Some(number) = snapshots.restore(cluster, index, wanted) else {
                snapshots.begin_to_read(cluster, index, snapshot);
                wait();
                continue;
            };
            while self.is_restoring() {
                wait();
            }
            if snapshots.is_restored(number) == Some(true) {
                break;
            }
        }
        use_volumes();
    }
}
