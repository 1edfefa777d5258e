//! Copies on this node as they are opened, closed and deleted.

use base::ByteLen;
use store::VolumeId;

use super::super::SliceCopy;
use super::super::core::Copies;
use super::super::entry::{DroppedCopy, NodeEntry, VOLUMES, VolumeEntry, node_key};
use super::super::strategy::{SplitEntry, split_key};
use super::fork::detach;
use super::{Keeper, Kept};
use crate::control::{Control, CopyOpening};
use crate::shard::on_all_cores;

impl Keeper {
    /// This node has no copy of the volume any more.
    pub(super) async fn forget(&self, id: VolumeId) {
        let kept = self.volumes.borrow_mut().remove(&id);
        let Some(kept) = kept else { return };
        if self.forks.has(id) {
            tracing::error!(
                volume = kept.entry.name,
                "the copy here was taken away while this node had gone on alone with it: what it has written is not deleted, and not served"
            );
        }
        let number = kept.entry.number;
        on_all_cores(move || async move {
            let copies = Copies::current();
            copies.slices_of(number).iter().for_each(SliceCopy::leave);
            copies.remove(number);
        })
        .await;
        // Its last commands may take their time.
        if let Some(control) = Control::try_current() {
            self.closing.borrow_mut().insert(id);
            rt::spawn(async move { control.close_copy(id).await }).detach();
        }
    }

    /// The copy of the volume that was here is closed: another one may be opened.
    pub async fn closed(&self, id: VolumeId) {
        self.closing.borrow_mut().remove(&id);
        self.open_volumes().await;
        self.work.notify();
    }

    /// The entries of volumes that have a copy here.
    pub fn entries_here(&self) -> Vec<VolumeEntry> {
        self.volumes.borrow().values().map(|kept| kept.entry.clone()).collect()
    }

    /// Copies that were taken off this node, which this life of it is to delete.
    pub fn dropped_here(&self) -> Vec<(VolumeEntry, DroppedCopy)> {
        let me = self.me();
        let known = self.get::<NodeEntry>(&node_key(me));
        if known.is_none_or(|(node, _)| node.incarnation != self.incarnation().0) {
            // Somebody may be about to give a copy to the life before.
            return Vec::new();
        }
        let dropped = |entry: VolumeEntry| {
            let dropped = entry.dropped.iter().find(|dropped| dropped.node == me.0).copied();
            dropped.map(|dropped| (entry, dropped))
        };
        let closing = self.closing.borrow();
        let is_closing =
            |entry: &VolumeEntry| VolumeId::parse(&entry.id).is_some_and(|id| closing.contains(&id));
        let volumes: Vec<VolumeEntry> = self.list(VOLUMES);
        // What was written here alone is not deleted because somebody who did not know of it took the copy away.
        let is_split_here = |id: VolumeId| {
            let split = self.get::<SplitEntry>(&split_key(id));
            split.is_some_and(|(split, _)| split.keep.is_none() && split.node == me.0)
        };
        let is_forked = |entry: &VolumeEntry| {
            VolumeId::parse(&entry.id).is_some_and(|id| self.forks.has(id) || is_split_here(id))
        };
        let those = volumes.into_iter().filter(|entry| !is_closing(entry) && !is_forked(entry));
        those.filter_map(dropped).collect()
    }

    /// Opens copies whose volume and whose pool are both there by now.
    pub async fn open_volumes(&self) {
        let Some(control) = Control::try_current() else { return };
        self.opening.acquire(1).await;
        let wanted: Vec<(VolumeId, CopyOpening)> = {
            let volumes = self.volumes.borrow();
            let closing = self.closing.borrow();
            let closed = volumes.iter().filter(|(id, kept)| !kept.open && !closing.contains(id));
            closed.map(|(id, kept)| (*id, self.opening(kept))).collect()
        };
        for (id, opening) in wanted {
            let Some(blank) = control.open_copy(id, opening).await else { continue };
            if self.forks.has(id) {
                detach(opening.number).await;
            }
            if let Some(kept) = self.volumes.borrow_mut().get_mut(&id) {
                (kept.open, kept.blank, kept.shown) = (true, blank, opening.size.0);
                // All copies of a new volume begin alike.
                kept.agreement.known = opening.new;
            }
        }
        self.opening.release(1);
    }

    fn opening(&self, kept: &Kept) -> CopyOpening {
        CopyOpening {
            number: kept.entry.number,
            me: kept.slot,
            made: kept.made,
            size: ByteLen(kept.entry.size),
            incarnation: self.copies.incarnation(),
            new: kept.membership.newest().is_some_and(|config| self.is_in_sync(kept, config)),
        }
    }
}
