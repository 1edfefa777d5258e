//! What each node does by itself about snapshots that were deleted or not taken: it deletes what its copies
//! have of them, and confirms that in the record.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use base::Instant;
use replica::NodeId;

use super::super::{Control, ControlError, Result};
use super::leftovers::delete_in_pool;
use super::restoring::{complete, is_restored_to};
use super::{SnapshotHere, SnapshotsHere};
use crate::copies::{
    NodeEntry, SNAPSHOT_CHANGES, SnapshotCopy, SnapshotEntry, SnapshotOf, SnapshotState, VolumeEntry,
    node_key, pool_number, volume_key,
};
use crate::data::VolumeId;
use crate::member::Reconciler;
use crate::yielding::ITEMS_PER_TURN;

/// How many snapshots are confirmed in one round, and deleted of one volume: the record takes a moment for
/// each.
const AT_ONCE: usize = 64;

/// How often what pools here have is compared with the record at most, as long as copies are opened or
/// something is left. All of their slices have to say what they have.
const COMPARED_AFTER: Duration = Duration::from_secs(10);

impl Control {
    /// Looks after the snapshots that are being taken or deleted, in a task of its own: the record may not
    /// respond.
    pub(in crate::control) fn tidy_snapshots(self: &Rc<Control>, reconciler: &Rc<Reconciler>) {
        let changes: Vec<SnapshotEntry> = reconciler.list(SNAPSHOT_CHANGES);
        let (now, activations) = (rt::now(), reconciler.activations());
        let is_old = |(at, before): (Instant, Option<u64>)| {
            before != Some(activations) && now.since(at) >= COMPARED_AFTER
        };
        let is_due = self.snapshots.compared.get().is_none_or(is_old);
        let compares = is_due && reconciler.acts_by().0 > 0 && self.all_pools_are_open();
        if changes.is_empty() && !compares {
            return;
        }
        let (control, reconciler) = (Rc::clone(self), Rc::clone(reconciler));
        self.snapshots.tidying.start((), async move {
            control.tidy_all(&reconciler, changes).await;
            if compares {
                // Before the look: another volume may come meanwhile.
                control.snapshots.compared.set(Some((now, Some(activations))));
                control.compare_snapshots(&reconciler, now).await;
            }
        });
    }

    /// A volume has come to this node with its pool, and perhaps its snapshots have.
    pub(in crate::control) fn compare_snapshots_soon(&self) {
        self.snapshots.compared.set(None);
    }

    /// Compares what pools here have with the record, at `now`. If a copy cannot say yet what it has, or has
    /// something that is gone, they are compared again.
    async fn compare_snapshots(&self, reconciler: &Reconciler, now: Instant) {
        let adopted = self.adopt_snapshots(reconciler).await;
        let are_adopted = matches!(adopted, Ok(true));
        let is_clean = adopted.is_ok() && self.delete_left_snapshots(reconciler).await;
        if !are_adopted || !is_clean {
            tracing::debug!(?adopted, is_clean, "snapshots in pools differ from the record");
            // At once if snapshots of sole copies may be missing in the record, or another volume has come.
            let again = self.snapshots.compared.get().filter(|_| are_adopted).map(|_| (now, None));
            self.snapshots.compared.set(again);
        }
    }

    /// Writes to the record that sole copies here have snapshots that no other copy has: they have come with
    /// their pools from another node. Returns whether all sole copies here have said what they have.
    async fn adopt_snapshots(&self, reconciler: &Reconciler) -> Result<bool> {
        let sole = reconciler.sole_here();
        if sole.is_empty() {
            return Ok(true);
        }
        let (here, me) = (self.snapshots_here().await?, reconciler.me());
        let is_known = |id: &VolumeId| here.iter().any(|of| of.volume == id.to_string());
        let are_all_known = sole.iter().all(is_known);
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
        let here = self.snapshots_of_copies(Some(id)).await.unwrap_or_default();
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
        is_lost(reconciler, entry.node, entry.incarnation, || self.snapshots.taking.has(&entry.number))
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
    /// disk does not respond, that waits. So does one through which a clone is read that is still in the
    /// pool, and only that.
    async fn delete_snapshots_here(&self, reconciler: &Reconciler, id: VolumeId, numbers: &[u32]) {
        let cluster = reconciler.cluster();
        let all = numbers.iter().map(|number| pool_number(cluster, *number)).collect();
        let mut gone = Vec::new();
        if delete_in_pool(id, all).await {
            gone.extend_from_slice(numbers);
        } else if numbers.len() > 1 {
            for number in numbers {
                if delete_in_pool(id, [pool_number(cluster, *number)].into()).await {
                    gone.push(*number);
                }
            }
        }
        let (me, volume) = (reconciler.me().0, id.to_string());
        for number in gone {
            let Some((entry, _)) = super::numbered(reconciler, number) else { continue };
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

/// Whether what a life of a node has begun is not continued any more. `is_busy`: whether this node continues
/// it, if it is this life.
pub(super) fn is_lost(
    reconciler: &Reconciler,
    node: u16,
    incarnation: u64,
    is_busy: impl Fn() -> bool,
) -> bool {
    let node = NodeId(node);
    if node == reconciler.me() {
        return incarnation != reconciler.incarnation().0 || !is_busy();
    }
    let life = reconciler.get::<NodeEntry>(&node_key(node)).map(|(node, _)| node.incarnation);
    life != Some(incarnation) || !reconciler.hears(node)
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
