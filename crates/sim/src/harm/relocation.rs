//! Copies that are removed from their nodes, added again, and moved.

use std::time::Duration;

use base::Rng;
use node::control::AddedCopy;

use super::{Harm, Harms};
use crate::cluster::Volume;

/// Usual time until a copy is gone, and how often to check.
const GONE_WITHIN: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A copy is removed from its node, if another one is in sync.
///
/// Half of the time it is added again at once, while the other faults last.
pub const REMOVE: Harm = Harm::new("copy taken off", 4, |harms, victim, rng| {
    let volume = harms.any_volume(rng);
    let removed = harms.remove_copy(volume, victim.index);
    if removed && rng.one_in(2) {
        harms.add_copy_again(volume, victim.index);
    }
    removed
})
.costs_full_copies()
.floor(1);

/// A node without a copy gets one; a removal in progress is canceled.
pub const ADD: Harm = Harm {
    repair: |harms| {
        for volume in &harms.cluster.volumes {
            for index in 0..harms.cluster.servers.len() {
                if harms.can_add_copy(volume, index) && harms.may_ask() {
                    harms.add_copy(volume, index, None);
                }
            }
        }
    },
    ..Harm::new("copy added", 12, |harms, victim, rng| {
        let volume = harms.any_volume(rng);
        let nodes = harms.cluster.servers.len();
        let without = (0..nodes).map(|at| (at + victim.index) % nodes);
        let without = { without }.find(|index| !harms.cluster.has_copy(volume, *index));
        without.is_some_and(|index| harms.add_copy(volume, index, None))
    })
    .floor(1)
};

/// A copy moves from one node to another: the second gets a copy, and the first loses its own when that is in
/// sync.
///
/// Mostly all nodes have a copy, so the second one first loses its copy. Few plans have this fault, and those
/// have it often: a single move shows little, and changes the plan all the same.
pub const MOVE: Harm = Harm {
    measures: &[0, 0, 0, 0, 0, 16],
    ..Harm::new("copy moved", 4, |harms, victim, rng| {
        let volume = harms.any_volume(rng);
        let (from, to) = (victim.other, victim.index);
        if harms.cluster.has_copy(volume, to) && !harms.remove_copy(volume, to) {
            return false;
        }
        harms.wait_until_gone(volume, to);
        harms.cluster.has_copy(volume, from)
            && !harms.cluster.has_copy(volume, to)
            && harms.add_copy(volume, to, Some(from))
    })
    .costs_full_copies()
    .floor(1)
};

impl<'a> Harms<'a> {
    /// One of the volumes.
    pub(super) fn any_volume(&self, rng: &mut Rng) -> &'a Volume {
        let volumes = &self.cluster.volumes;
        match volumes.len() as u64 {
            1 => &volumes[0],
            count => &volumes[rng.below(count) as usize],
        }
    }

    /// Lets a node with a copy in sync remove another node's copy.
    pub(super) fn remove_copy(&self, volume: &Volume, index: usize) -> bool {
        let cluster = self.cluster;
        let others = (0..cluster.servers.len()).filter(|other| *other != index);
        // A copy whose disk was set back may count as in sync for a moment.
        let mut able = others.filter(|other| {
            cluster.has_in_sync(volume, *other)
                && cluster.is_started(*other)
                && !self.holds_older_data(*other)
        });
        let Some(by) = able.next_back() else { return false };
        if !cluster.has_copy(volume, index) || !self.may_ask() {
            return false;
        }
        // From now on it is unknown where on the disk its sectors are.
        self.media.forget(volume, index);
        let (name, number) = (volume.name, index as u16 + 1);
        cluster.ask_to(by, move |control| async move { drop(control.remove_copy(name, number).await) });
        true
    }

    /// Adds a copy to a node as soon as its old one is gone, or cancels the removal if that takes too long.
    fn add_copy_again(&self, volume: &Volume, index: usize) {
        self.wait_until_gone(volume, index);
        if self.add_copy(volume, index, None) {
            self.counts.count(ADD.name);
        }
    }

    /// Waits until the removed copy is gone, if that does not take too long.
    fn wait_until_gone(&self, volume: &Volume, index: usize) {
        let until = self.cluster.world.now() + GONE_WITHIN;
        while self.cluster.has_copy(volume, index) && self.cluster.world.now() < until {
            self.inside.run_for(LOOK_EVERY);
        }
    }

    /// Whether no copy and no pool was requested for a while. The caller then requests one at once.
    pub(super) fn may_ask(&self) -> bool {
        let now = self.cluster.world.now();
        let may = self.asked.get().is_none_or(|asked| now >= asked + super::ASKED_FOR);
        if may {
            self.asked.set(Some(now));
        }
        may
    }

    /// Whether a node has no copy, or one that is to be removed, and a pool for one; and another node has a
    /// copy in sync.
    fn can_add_copy(&self, volume: &Volume, index: usize) -> bool {
        let cluster = self.cluster;
        let stays = cluster.has_copy(volume, index) && !cluster.is_to_leave(volume, index);
        !stays
            && cluster.is_started(index)
            && !self.gone.contains(&(index, volume.pool))
            && self.giver(volume, index).is_some()
    }

    /// Another node that has a copy in sync.
    fn giver(&self, volume: &Volume, index: usize) -> Option<usize> {
        let cluster = self.cluster;
        let able = |by: &usize| cluster.is_started(*by) && cluster.has_in_sync(volume, *by);
        (0..cluster.servers.len()).filter(|by| *by != index).find(able)
    }

    /// Lets a node with a copy in sync add one on a node that has none, or keep one that was to be removed.
    ///
    /// `instead_of` is a node whose copy is removed when the new one is in sync. Returns whether the request
    /// was possible.
    fn add_copy(&self, volume: &Volume, index: usize, instead_of: Option<usize>) -> bool {
        let cluster = self.cluster;
        let giver = self.giver(volume, index).filter(|_| self.can_add_copy(volume, index));
        let Some(by) = giver else { return false };
        let (here, node) = (cluster.has_copy(volume, index), index as u16 + 1);
        if let Some(from) = instead_of {
            self.media.forget(volume, from);
        }
        let instead_of = instead_of.map(|from| from as u16 + 1);
        let (name, pool) = (volume.name, volume.pool.name);
        cluster.ask_to(by, move |control| async move {
            if here {
                return drop(control.keep_copy(name, node).await);
            }
            let added = AddedCopy { node, pool: Some(pool.to_owned()), instead_of };
            drop(control.add_copy(name, added).await);
        });
        true
    }
}
