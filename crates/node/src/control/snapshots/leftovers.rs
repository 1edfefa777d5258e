//! What pools still have of snapshots that are gone: a pool that was set back has them again, and a pool
//! that no node had open when they were deleted still has them.
//!
//! As with volumes (`control/leftovers.rs`), nothing is deleted because the record does not list it: the
//! record may have been set back. Something is deleted here only if the record says so. It remembers the
//! snapshots that were deleted last ([`DeletedSnapshot`]). And of a volume that somebody has had converted to
//! thick, it says up to which number there are none ([`VolumeEntry::snapshots_above`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::Control;
use super::{all, snapshots_of_core};
use crate::canary::{Canary, makes};
use crate::copies::{
    DELETED_SNAPSHOTS, DeletedSnapshot, SNAPSHOT_CHANGES, SnapshotEntry, SnapshotState, VolumeEntry,
    pool_number, volume_key,
};
use crate::data::VolumeId;
use crate::member::Reconciler;
use crate::shard::{Shard, on_all_cores};

/// A snapshot as a pool knows it: its number there, and its time.
type InPool = (u64, u64);

impl Control {
    /// Begins to delete what copies here have of snapshots that the record remembers as deleted, for each
    /// copy in a task of its own: a disk may hang. Returns whether all copies have said what they have, and
    /// nothing of that is left.
    pub(super) async fn delete_left_snapshots(&self, reconciler: &Reconciler) -> bool {
        let deleted = deleted(reconciler);
        if deleted.is_empty() {
            return true;
        }
        let mut is_clean = true;
        for (id, has) in in_pools(None).await {
            let Some(has) = has else {
                is_clean = false;
                continue;
            };
            let left: Arc<[u64]> = has.intersection(&deleted).map(|(number, _)| *number).collect();
            if left.is_empty() {
                continue;
            }
            is_clean = false;
            self.snapshots.deleting.start(id, async move {
                let count = left.len();
                if delete_in_pool(id, left).await {
                    tracing::info!(volume = %id, count, "a pool still had deleted snapshots: they were deleted");
                }
            });
        }
        is_clean
    }

    /// Deletes what this node's copy of a volume has of snapshots from before somebody had it converted to
    /// thick. Otherwise the conversion would never end.
    ///
    /// While the copy is being converted, no snapshot is taken of it.
    pub(in crate::control) async fn delete_snapshots_before_thick(&self, id: VolumeId) {
        let Some(Some(has)) = in_pools(Some(id)).await.remove(&id) else { return };
        let Ok(reconciler) = self.reconciler() else { return };
        let Some((entry, _)) = reconciler.get::<VolumeEntry>(&volume_key(id)) else { return };
        let has_none = !entry.shape.kind.has_snapshots();
        let Some(above) = entry.snapshots_above.filter(|_| has_none) else { return };
        let first = pool_number(reconciler.cluster(), 0);
        let left: Arc<[u64]> =
            has.iter().map(|(number, _)| *number).filter(|it| is_before(*it, first, above)).collect();
        if left.is_empty() || all(&reconciler).iter().any(|snapshot| snapshot.counts_for(&entry.id)) {
            return;
        }
        let count = left.len();
        if delete_in_pool(id, left).await {
            tracing::info!(volume = %id, count, "a volume becomes thick: snapshots that only its pool knew were deleted");
        }
    }
}

/// Whether a pool's number is that of a snapshot up to `above`, or of another cluster's, which nobody can
/// read here. `first` is the pools' number of this cluster's snapshot 0.
fn is_before(number: u64, first: u64, above: u32) -> bool {
    let number = number.checked_sub(first).and_then(|number| u32::try_from(number).ok());
    number.is_none_or(|number| number <= above)
}

/// The snapshots that the record says are deleted, including those that copies have not confirmed yet, except
/// those to which volumes are being restored.
fn deleted(reconciler: &Reconciler) -> BTreeSet<InPool> {
    let cluster = reconciler.cluster();
    let changes = reconciler.list::<SnapshotEntry>(SNAPSHOT_CHANGES);
    let restores: Vec<&SnapshotEntry> = changes.iter().filter(|entry| entry.restores.is_some()).collect();
    let is_restored_to = |number| restores.iter().any(|restore| restore.is_restore_to(number));
    let deleting = changes
        .iter()
        .filter(|entry| entry.state == SnapshotState::Deleting && !is_restored_to(entry.number));
    let deleting = deleting.map(|entry| (entry.number, entry.at));
    let deleted = reconciler.list::<DeletedSnapshot>(DELETED_SNAPSHOTS).into_iter();
    let deleted = deleted.map(|deleted| (deleted.number, deleted.at));
    deleting.chain(deleted).map(|(number, at)| (pool_number(cluster, number), at)).collect()
}

/// What any slice of the copies here has, by volume, or of the copy of one volume; `None`: a slice cannot say
/// that at the moment.
async fn in_pools(of: Option<VolumeId>) -> BTreeMap<VolumeId, Option<BTreeSet<InPool>>> {
    let mut by_volume = BTreeMap::new();
    for (id, found) in on_all_cores(move || snapshots_of_core(of)).await.into_iter().flatten() {
        let has: &mut Option<BTreeSet<InPool>> = by_volume.entry(id).or_insert_with(|| Some(BTreeSet::new()));
        *has = has.take().zip(found).map(|(mut has, found)| {
            has.extend(found.iter().map(|info| (info.id, info.time)));
            has
        });
    }
    by_volume
}

/// Deletes snapshots of this node's copy of a volume, by the numbers that its pool knows. Returns whether all
/// slices have deleted them: not if its copy is not open, or a disk does not respond.
pub(super) async fn delete_in_pool(id: VolumeId, numbers: Arc<[u64]>) -> bool {
    let deleted = on_all_cores(move || async move {
        let Some(volume) = Shard::current().volume(id) else { return false };
        let slices = volume.own_slices().filter(|_| !makes(Canary::SnapshotLeft));
        for slice in slices {
            if let Err(error) = slice.layout().delete_snapshots(&numbers).await {
                tracing::debug!(volume = %id, %error, "snapshots could not be deleted yet");
                return false;
            }
        }
        true
    });
    deleted.await.into_iter().all(|is_deleted| is_deleted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record that was set back may call a volume thick that has become a log volume since.
    #[test]
    fn snapshots_that_are_newer_than_the_decision_stay() {
        let first = 5 << 32;
        for (number, is_left) in [(first, true), (first + 7, true), (first + 8, false), (first - 1, true)] {
            assert_eq!(is_before(number, first, 7), is_left, "{number}");
        }
        assert!(is_before((6 << 32) + 8, first, 7), "another cluster's");
    }
}
