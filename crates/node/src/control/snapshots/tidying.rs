//! What each node does by itself about snapshots that were deleted or not taken: it deletes what its copies
//! have of them, and confirms that in the record.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use replica::NodeId;

use super::super::{Control, ControlError, Result};
use super::restoring::{complete, is_restored_to};
use super::{SnapshotHere, SnapshotsHere};
use crate::canary::{Canary, makes};
use crate::copies::{
    NodeEntry, SNAPSHOT_CHANGES, SnapshotCopy, SnapshotEntry, SnapshotOf, SnapshotState, VolumeEntry,
    node_key, pool_number, volume_key,
};
use crate::data::VolumeId;
use crate::member::Reconciler;
use crate::shard::{Shard, on_all_cores};
use crate::yielding::ITEMS_PER_TURN;

/// How many snapshots are confirmed in one round, and deleted of one volume: the record takes a moment for
/// each.
const AT_ONCE: usize = 64;

impl Control {
    /// Looks after the snapshots that are being taken or deleted, in a task of its own: the record may not
    /// respond.
    pub(in crate::control) fn tidy_snapshots(self: &Rc<Control>, reconciler: &Rc<Reconciler>) {
        let changes: Vec<SnapshotEntry> = reconciler.list(SNAPSHOT_CHANGES);
        let adopts = !self.snapshots.all_adopted.get() && self.all_pools_are_open();
        if changes.is_empty() && !adopts {
            return;
        }
        let (control, reconciler) = (Rc::clone(self), Rc::clone(reconciler));
        self.snapshots.tidying.start((), async move {
            control.tidy_all(&reconciler, changes).await;
            if adopts {
                // Before the look: another volume may come meanwhile.
                control.snapshots.all_adopted.set(true);
                let adopted = control.adopt_snapshots(&reconciler).await;
                if !matches!(adopted, Ok(true)) {
                    tracing::debug!(?adopted, "snapshots in pools are not compared with the record yet");
                    control.adopt_snapshots_soon();
                }
            }
        });
    }

    /// A volume has come to this node with its pool, and perhaps its snapshots have.
    pub(in crate::control) fn adopt_snapshots_soon(&self) {
        self.snapshots.all_adopted.set(false);
    }

    /// Writes to the record that sole copies here have snapshots that no other copy has: they have come with
    /// their pools from another node. Returns whether all sole copies here have said what they have.
    async fn adopt_snapshots(&self, reconciler: &Reconciler) -> Result<bool> {
        let (here, me) = (self.snapshots_here().await?, reconciler.me());
        let is_known = |id: &VolumeId| here.iter().any(|of| of.volume == id.to_string());
        let are_all_known = reconciler.sole_here().iter().all(is_known);
        for SnapshotsHere { volume, has } in here {
            let Some(key) = VolumeId::parse(&volume).map(volume_key).filter(|_| !has.is_empty()) else {
                continue;
            };
            let entry = reconciler.get::<VolumeEntry>(&key).filter(|(entry, _)| entry.sole);
            let Some((entry, _)) = entry else { continue };
            let Some((_, copy)) = entry.copy_on(me) else { continue };
            let mine = SnapshotCopy { node: me.0, made: copy.made };
            for SnapshotHere { number, at, .. } in has {
                let adopted = self.change_snapshot(number, |snapshot| {
                    Ok(snapshot.adopted(&entry, mine).filter(|_| snapshot.at == at))
                });
                match adopted.await {
                    // It was deleted while the pool was elsewhere.
                    Ok(_) | Err(ControlError::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(are_all_known)
    }

    /// Writes to the record which snapshots this node's copy of a volume lacks although they should be on it:
    /// its pool was set back. Otherwise another copy that has them could be removed. Returns whether that is
    /// done.
    pub(in crate::control) async fn note_lacking_snapshots(
        &self,
        reconciler: &Reconciler,
        id: VolumeId,
    ) -> bool {
        let Some((volume, _)) = reconciler.get::<VolumeEntry>(&volume_key(id)) else { return true };
        let Some((_, copy)) = volume.copy_on(reconciler.me()) else { return true };
        let mine = SnapshotCopy { node: reconciler.me().0, made: copy.made };
        let mut named = super::all(reconciler);
        named.retain(|entry| entry.lacking(&volume, mine).is_some());
        if named.is_empty() {
            return true;
        }
        let here = self.snapshots_here().await.unwrap_or_default();
        let Some(SnapshotsHere { has, .. }) = here.into_iter().find(|of| of.volume == id.to_string()) else {
            return false;
        };
        named.retain(|entry| !has.iter().any(|here| (here.number, here.at) == (entry.number, entry.at)));
        for SnapshotEntry { number, name, .. } in named {
            let noted = self.change_snapshot(number, |entry| Ok(entry.lacking(&volume, mine)));
            match noted.await {
                Ok(_) | Err(ControlError::NotFound { .. }) => {}
                Err(error) => {
                    tracing::debug!(snapshot = name, %error, "the record still names a copy that lacks it");
                    return false;
                }
            }
        }
        true
    }

    async fn tidy_all(self: &Rc<Control>, reconciler: &Rc<Reconciler>, changes: Vec<SnapshotEntry>) {
        let mut here: BTreeMap<VolumeId, Vec<u32>> = BTreeMap::new();
        // All of them are looked at: those that wait for a node that is down must not keep others waiting.
        let mut confirmed = 0;
        for (number, entry) in changes.into_iter().enumerate() {
            if number > 0 && number.is_multiple_of(ITEMS_PER_TURN) {
                rt::next_turn().await;
            }
            match entry.state {
                SnapshotState::Preparing if self.is_abandoned(reconciler, &entry) => {
                    match entry.restores {
                        None => self.undo_snapshot(entry.number, true).await,
                        Some(_) => self.undo_restore(entry.number).await,
                    };
                }
                SnapshotState::Restoring if self.is_abandoned(reconciler, &entry) => {
                    let (reconciler, number) = (Rc::clone(reconciler), entry.number);
                    self.snapshots.taking.start(number, async move {
                        if let Err(error) = complete(&reconciler, number, None).await {
                            tracing::warn!(number, %error, "volumes are still being restored");
                        }
                    });
                }
                SnapshotState::Deleting => {
                    if confirmed < AT_ONCE
                        && self.confirm_gone(&entry, |of, copy| is_gone(reconciler, of, copy)).await
                    {
                        confirmed += 1;
                    }
                    for of in self.to_delete(reconciler, &entry) {
                        let numbers = here.entry(of).or_default();
                        if numbers.len() < AT_ONCE {
                            numbers.push(entry.number);
                        }
                    }
                }
                SnapshotState::Preparing | SnapshotState::Restoring | SnapshotState::Complete => {}
            }
        }
        for (id, numbers) in here {
            let (control, reconciler) = (Rc::clone(self), Rc::clone(reconciler));
            self.snapshots.deleting.start(id, async move {
                control.delete_snapshots_here(&reconciler, id, &numbers).await;
            });
        }
    }

    /// Whether nobody takes a snapshot any more that the record has as being taken, or completes a restore.
    fn is_abandoned(&self, reconciler: &Reconciler, entry: &SnapshotEntry) -> bool {
        let node = NodeId(entry.node);
        if node == reconciler.me() {
            return entry.incarnation != reconciler.incarnation().0
                || !self.snapshots.taking.has(&entry.number);
        }
        let life = reconciler.get::<NodeEntry>(&node_key(node)).map(|(node, _)| node.incarnation);
        life != Some(entry.incarnation) || !reconciler.hears(node)
    }

    /// The volumes of which this node's copy may have a deleted snapshot.
    fn to_delete(&self, reconciler: &Reconciler, entry: &SnapshotEntry) -> Vec<VolumeId> {
        // It may be deleted in the record in the moment in which a restore to it is decided.
        if self.snapshots.marking.has(&entry.number) || is_restored_to(reconciler, entry.number) {
            return Vec::new();
        }
        let is_here = |of: &SnapshotOf, copy: &SnapshotCopy| {
            copy.node == reconciler.me().0 && !is_gone(reconciler, of, *copy)
        };
        let mine = entry.volumes.iter().filter(|of| of.copies.iter().any(|copy| is_here(of, copy)));
        mine.filter_map(|of| VolumeId::parse(&of.id)).collect()
    }

    /// Deletes snapshots of this node's copy of a volume, and confirms that. If its copy is not open, or a
    /// disk does not respond, that waits.
    async fn delete_snapshots_here(&self, reconciler: &Reconciler, id: VolumeId, numbers: &[u32]) {
        let cluster = reconciler.cluster();
        let ids: Arc<[u64]> = numbers.iter().map(|number| pool_number(cluster, *number)).collect();
        let deleted = on_all_cores(move || async move {
            let Some(volume) = Shard::current().volume(id) else { return false };
            let slices = volume.own_slices().filter(|_| !makes(Canary::SnapshotLeft));
            for slice in slices {
                if let Err(error) = slice.layout().delete_snapshots(&ids).await {
                    tracing::debug!(volume = %id, %error, "snapshots could not be deleted yet");
                    return false;
                }
            }
            true
        });
        if !deleted.await.into_iter().all(|is_deleted| is_deleted) {
            return;
        }
        let (me, volume) = (reconciler.me().0, id.to_string());
        for number in numbers {
            let Some((entry, _)) = super::numbered(reconciler, *number) else { continue };
            self.confirm_gone(&entry, |of, copy| of.id == volume && copy.node == me).await;
        }
    }

    /// Notes in the record that copies do not have a deleted snapshot. When none is left, it is forgotten.
    /// Returns whether there was anything to note.
    async fn confirm_gone(
        &self,
        entry: &SnapshotEntry,
        is_gone: impl Fn(&SnapshotOf, SnapshotCopy) -> bool,
    ) -> bool {
        if entry.without(&is_gone) == *entry {
            return false;
        }
        let confirmed = self.change_snapshot(entry.number, |entry| {
            let next = entry.without(&is_gone);
            Ok((entry.state == SnapshotState::Deleting && next != *entry).then_some(next))
        });
        if let Err(error) = confirmed.await {
            tracing::debug!(snapshot = entry.name, %error, "a deleted snapshot is still in the record");
        }
        true
    }
}

/// Whether a copy is no longer one of its volume: what it had goes with it.
fn is_gone(reconciler: &Reconciler, of: &SnapshotOf, copy: SnapshotCopy) -> bool {
    let Some(key) = VolumeId::parse(&of.id).map(volume_key) else { return true };
    match reconciler.get::<VolumeEntry>(&key) {
        Some((volume, _)) => !copy.is_of(&volume),
        // An entry that cannot be read may name the copy.
        None => reconciler.revision_of(&key).is_none(),
    }
}
