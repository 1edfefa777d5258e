//! Machines that lose power: what was not flushed is lost, in whole or in part.

use std::collections::BTreeSet;

use super::{Harm, Harms};
use crate::cluster::Expects;

/// A machine loses power.
pub const POWER_LOSS: Harm = Harm::new("power loss", 6, |harms, victim, _| {
    let up = harms.is_up(victim.index);
    if up {
        harms.power_loss(&[victim.index]);
    }
    up
});

/// All machines lose power at once.
pub const BLACK_OUT: Harm = Harm::new("black-out", 3, |harms, _, _| {
    harms.power_loss(&(0..harms.cluster.servers.len()).collect::<Vec<_>>());
    true
});

impl Harms<'_> {
    /// Cuts the power of these nodes at once, and checks their disks.
    pub(super) fn power_loss(&self, indices: &[usize]) {
        let cluster = self.cluster;
        let indices: BTreeSet<usize> = indices.iter().flat_map(|index| self.lost_with(*index)).collect();
        // The record may not know yet that a disk was set back, or that the other node has continued alone.
        let knows = |index: &usize| !self.holds_older_data(*index) && !self.is_left_behind(*index);
        let well: Vec<usize> = indices.iter().copied().filter(knows).collect();
        let copies = cluster.volumes.iter().flat_map(|volume| well.iter().map(move |index| (volume, *index)));
        let in_sync: Vec<_> = copies.filter(|(volume, index)| cluster.has_in_sync(volume, *index)).collect();
        if indices.iter().any(|index| self.is_converting(*index)) {
            self.counts.count("power loss during a conversion");
        }
        indices.iter().for_each(|index| cluster.world.crash(self.machine(*index)));
        let expects = match self.plan {
            plan if plan.harms_logs() => Expects::Nothing,
            // Slots of a lost leaf stay live for a while.
            plan if plan.rots => Expects::Data,
            _ => Expects::Invariants,
        };
        for (volume, index) in in_sync {
            self.counts.count("disk of a copy in sync after a power loss");
            let lost = self.inside.lost(index, volume.index);
            let history = &self.histories[volume.index];
            let is_checked = self.media.check(cluster, volume, index, history, &lost, expects);
            if is_checked && self.media.moves(volume, index) {
                self.counts.count("log of a copy in sync opened after a power loss");
            }
        }
    }
}
