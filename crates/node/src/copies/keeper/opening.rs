//! Copies on this node as they are opened, closed and deleted.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base::ByteLen;
use replica::NodeId;
use store::VolumeId;

use super::super::SliceCopy;
use super::super::core::Copies;
use super::super::entry::{
    DELETED, DELETED_MAX, DeletedVolume, DroppedCopy, NodeEntry, VolumeEntry, deleted_key, node_key,
};
use super::super::strategy::{SplitEntry, split_key};
use super::fork::detach;
use super::unreadable::Legible;
use super::{Keeper, Kept};
use crate::control::{Control, CopyOpening, ServedAs};
use crate::shard::on_all_cores;

/// How long a pool gets to say that it has a copy, and the record what is new of it; then it is tried again
/// later.
const ADOPTED_WITHIN: Duration = Duration::from_secs(2);

impl Kept {
    /// A slice of it could not be opened: its disk does not give what the slice needs. The others would speak
    /// for all of the volume, so the copy takes no part.
    pub(super) fn is_partly_open(&self) -> bool {
        self.open && !self.whole
    }
}

impl Keeper {
    /// This node has no copy of the volume any more.
    pub(super) async fn forget(self: &Rc<Self>, id: VolumeId) {
        let kept = self.volumes.borrow_mut().remove(&id);
        let Some(kept) = kept else { return };
        if self.forks.has(id) {
            tracing::error!(
                volume = kept.entry.name,
                "the copy on this node was removed while this node continued alone with it: its data is not deleted, and not served"
            );
        }
        take_out(vec![kept.entry.number]).await;
        if kept.sole && !self.is_deleted(id) {
            // The record may have been set back, and nobody else has it.
            return;
        }
        // Its last commands may take their time.
        if let Some(control) = Control::try_current() {
            self.closing.borrow_mut().insert(id);
            let (keeper, number) = (Rc::clone(self), kept.entry.number);
            rt::spawn(async move {
                // It may be being opened now.
                keeper.opening.acquire(1).await;
                take_out(vec![number]).await;
                keeper.opening.release(1);
                control.close_copy(id).await;
            })
            .detach();
        }
    }

    /// The pool of these volumes is about to be closed, and may be opened again: hosts' writes to copies end
    /// with an outcome that nobody knows, and no more is served until [`Keeper::bring_back`]. Those that
    /// `forgets` names are in memory: they come back blank.
    pub async fn set_aside(&self, ids: &BTreeSet<VolumeId>, forgets: &BTreeSet<VolumeId>) {
        self.opening.acquire(1).await;
        let numbers = {
            let mut volumes = self.volumes.borrow_mut();
            for (id, kept) in volumes.iter_mut().filter(|(id, kept)| kept.sole && ids.contains(id)) {
                kept.sole = false;
                self.closing.borrow_mut().insert(*id);
            }
            let here = volumes.iter_mut().filter(|(id, kept)| kept.open && ids.contains(id));
            here.map(|(id, kept)| {
                (kept.open, kept.reopens) = (false, true);
                kept.forgets = forgets.contains(id);
                self.closing.borrow_mut().insert(*id);
                kept.entry.number
            })
            .collect()
        };
        self.opening.release(1);
        take_out(numbers).await;
    }

    /// The pool of these volumes is open again.
    pub async fn bring_back(&self, ids: &BTreeSet<VolumeId>) {
        let is_sole =
            |id: &VolumeId| self.volumes.borrow().get(id).is_some_and(|kept| kept.entry.sole && !kept.open);
        self.closing.borrow_mut().retain(|id| !(ids.contains(id) && (self.is_aside(*id) || is_sole(id))));
        self.open_volumes().await;
        self.work.notify();
    }

    /// Whether the slices of the volume that are here are copies, and open.
    pub fn is_open(&self, id: VolumeId) -> bool {
        self.volumes.borrow().get(&id).is_some_and(|kept| kept.open)
    }

    /// Whether the volume has a copy here that was open, and is to be again.
    pub fn is_aside(&self, id: VolumeId) -> bool {
        self.volumes.borrow().get(&id).is_some_and(|kept| kept.reopens)
    }

    /// Whether a disk of the copy here failed: it takes no part until it is opened again.
    pub fn has_failed(&self, id: VolumeId) -> bool {
        self.volumes.borrow().get(&id).is_some_and(|kept| kept.failed || kept.is_partly_open())
    }

    /// The copy of the volume that was here is closed: another one may be opened.
    pub async fn closed(&self, id: VolumeId) {
        self.closing.borrow_mut().remove(&id);
        self.open_volumes().await;
        self.work.notify();
    }

    /// The identity of the volume with this number, of which there is a copy here.
    pub fn id_of(&self, number: u32) -> Option<VolumeId> {
        self.volumes.borrow().iter().find(|(_, kept)| kept.entry.number == number).map(|(id, _)| *id)
    }

    /// What the volumes are called that have a copy here.
    pub fn names_here(&self) -> Vec<(VolumeId, String)> {
        self.volumes.borrow().iter().map(|(id, kept)| (*id, kept.entry.name.clone())).collect()
    }

    /// Copies that were taken off this node, which this life of it is to delete; looked for in a few volumes
    /// in each turn of this core.
    pub async fn dropped_here(&self) -> Vec<(VolumeEntry, DroppedCopy)> {
        let me = self.me();
        if !self.knows_this_life() {
            // Somebody may be about to give a copy to the life before.
            return Vec::new();
        }
        let is_closing = |id: VolumeId| self.closing.borrow().contains(&id);
        // What was written here alone is not deleted because somebody who did not know of it took the copy
        // away.
        let is_split_here = |id: VolumeId| {
            let key = split_key(id);
            let split = self.get::<SplitEntry>(&key);
            self.is_unreadable(&key)
                || split.is_some_and(|(split, _)| split.keep.is_none() && split.node == me.0)
        };
        let stays = |entry: &VolumeEntry| {
            VolumeId::parse(&entry.id)
                .is_some_and(|id| is_closing(id) || self.forks.has(id) || is_split_here(id))
        };
        let mut all = Vec::new();
        self.for_each_entry(|entry| {
            let dropped = entry.dropped.iter().find(|dropped| dropped.node == me.0).copied();
            if let Some(dropped) = dropped.filter(|_| !stays(&entry)) {
                all.push((entry, dropped));
            }
        })
        .await;
        all
    }

    /// Whether the record, as far as this node has followed it, has this very start of the node: then it is
    /// not an old one, and nobody else is this life.
    pub fn knows_this_life(&self) -> bool {
        let known = self.get::<NodeEntry>(&node_key(self.me()));
        known.is_some_and(|(node, _)| (node.incarnation, node.start) == (self.incarnation().0, self.start))
    }

    /// Whether the record has another copy of the volume in sync than the one here.
    pub fn has_another_in_sync(&self, id: VolumeId) -> bool {
        let volumes = self.volumes.borrow();
        let newest = volumes.get(&id).and_then(|kept| Some((kept, kept.membership.newest()?)));
        newest.is_some_and(|(kept, config)| !config.in_sync().without(kept.slot).is_empty())
    }

    /// Somebody has accepted what the copy here holds, which is older than what it held: it may go on alone.
    pub fn accept(&self, id: VolumeId) {
        if let Some(kept) = self.volumes.borrow_mut().get_mut(&id) {
            kept.blank = false;
        }
    }

    /// Whether the record has the copy here in sync, in whichever life.
    pub fn calls_this_copy_in_sync(&self, id: VolumeId) -> bool {
        let volumes = self.volumes.borrow();
        let newest = volumes.get(&id).and_then(|kept| Some((kept, kept.membership.newest()?)));
        newest.is_some_and(|(kept, config)| config.in_sync().contains(kept.slot))
    }

    /// Volumes that are deleted, and of which this node is to delete what it has. Not what was written here
    /// alone.
    pub fn deleted_here(&self) -> Vec<(VolumeId, DeletedVolume)> {
        if !self.knows_this_life() {
            return Vec::new();
        }
        let closing = self.closing.borrow();
        let may = |id: &VolumeId| !closing.contains(id) && !self.forks.has(*id);
        let me = self.me().0;
        self.deleted().filter(|(id, deleted)| deleted.nodes.contains(&me) && may(id)).collect()
    }

    /// Volumes that are deleted, and still noted for nodes only that are in the cluster no more.
    pub fn deleted_on_nobody(&self) -> Vec<(VolumeId, DeletedVolume)> {
        let mut deleted = self.deleted().peekable();
        if deleted.peek().is_none() || !self.knows_this_life() {
            return Vec::new();
        }
        let is_there = |node: &u16| self.revision_of(&node_key(NodeId(*node))).is_some();
        deleted.filter(|(_, deleted)| !deleted.nodes.iter().any(is_there)).collect()
    }

    /// Whether the volume is deleted, and some node may still have a copy of it.
    pub fn is_deleted(&self, id: VolumeId) -> bool {
        self.revision_of(&deleted_key(id)).is_some()
    }

    /// Whether this node has gone on alone with the volume, and that is not settled.
    pub fn has_fork(&self, id: VolumeId) -> bool {
        self.forks.has(id)
    }

    /// Whether one more deleted volume may be remembered.
    pub fn remembers_deleted(&self) -> bool {
        self.deleted().count() < DELETED_MAX
    }

    fn deleted(&self) -> impl Iterator<Item = (VolumeId, DeletedVolume)> {
        let deleted = self.list::<DeletedVolume>(DELETED).into_iter();
        deleted.filter_map(|deleted| Some((VolumeId::parse(&deleted.id)?, deleted)))
    }

    /// Opens copies whose volume and whose pool are both there by now, for nobody who waits: a disk that
    /// hangs must not keep what other disks hold from acting by the record.
    pub fn open_volumes_soon(self: &Rc<Self>) {
        if self.to_be_opened().is_empty() {
            return;
        }
        let keeper = Rc::clone(self);
        rt::spawn(async move {
            keeper.open_volumes().await;
            // What is open acts by what the record says.
            keeper.work.notify();
        })
        .detach();
    }

    fn to_be_opened(&self) -> Vec<(VolumeId, CopyOpening)> {
        let volumes = self.volumes.borrow();
        let closing = self.closing.borrow();
        let closed = volumes.iter().filter(|(id, kept)| !kept.open && !kept.sole && !closing.contains(id));
        let may = closed.filter(|(_, kept)| self.may_open(kept));
        may.map(|(id, kept)| (*id, self.opening(kept))).collect()
    }

    /// Opens copies whose volume and whose pool are both there by now.
    pub async fn open_volumes(&self) {
        let Some(control) = Control::try_current() else { return };
        self.opening.acquire(1).await;
        for (id, opening) in self.to_be_opened() {
            // A disk that hangs must not keep what other disks hold from being opened.
            match rt::timeout(ADOPTED_WITHIN, control.adopt_what_is_recorded(self, id)).await {
                Err(rt::Elapsed) => continue,
                Ok(Ok(ServedAs::Copy)) => {}
                Ok(Ok(ServedAs::Sole)) => {
                    // It may have become one of several meanwhile.
                    let is_served = control.serve_sole(id).await && control.has_sole(id);
                    if let Some(kept) = self.volumes.borrow_mut().get_mut(&id) {
                        (kept.sole, kept.shown) = (is_served && kept.entry.sole, opening.size.0);
                    }
                    continue;
                }
                Ok(Err(error)) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(volume = %id, error, "the pool of a volume does not make it a copy yet");
                    continue;
                }
            }
            if !control.may_open_copy(self, id) {
                continue;
            }
            if let Some(kept) = self.volumes.borrow_mut().get_mut(&id).filter(|kept| kept.reopens) {
                kept.reopens = false;
                kept.membership.forget();
            }
            let Some(opened) = control.open_copy(id, opening).await else { continue };
            if self.forks.has(id) {
                detach(opening.number).await;
            }
            let mut volumes = self.volumes.borrow_mut();
            // It may have been taken off this node meanwhile, and put there again.
            let is_it = |kept: &&mut Kept| (kept.slot, kept.made) == (opening.me, opening.made);
            if let Some(kept) = volumes.get_mut(&id).filter(is_it) {
                (kept.open, kept.opened) = (true, rt::now());
                (kept.whole, kept.blank, kept.shown) = (opened.whole, opened.blank, opening.size.0);
                // All copies of a new volume begin alike.
                kept.agreement.known = opening.new;
            }
        }
        self.opening.release(1);
    }

    /// Slices that are closed and opened again in one life of a node have forgotten what they took part in,
    /// and others count on that: not before this copy is outside, or is the only one that takes part from now
    /// on. Others see to the former: it does not finish what they send it. Who is alone needs nothing of what
    /// it has forgotten: what it has told others to be on its disk is there, and the rest nobody was told of.
    fn may_open(&self, kept: &Kept) -> bool {
        if kept.legible == Legible::Nothing {
            return false;
        }
        let Some(newest) = kept.membership.newest().filter(|_| kept.reopens) else { return true };
        let is_alone = || newest.members().without(kept.slot).is_empty();
        !self.is_member(kept, newest) || is_alone() && !kept.forgets
    }

    /// The volumes whose only copy is here, and always was.
    pub fn sole_here(&self) -> Vec<VolumeId> {
        let volumes = self.volumes.borrow();
        volumes.iter().filter(|(_, kept)| kept.entry.sole).map(|(id, _)| *id).collect()
    }

    /// The copy here is one of several from now on, as its pool says: it is to be opened as such.
    pub fn end_sole(&self, id: VolumeId) {
        if let Some(kept) = self.volumes.borrow_mut().get_mut(&id) {
            kept.sole = false;
        }
    }

    /// Whether nobody but this node has a copy of the volume in sync.
    pub fn is_last(&self, id: VolumeId) -> bool {
        let volumes = self.volumes.borrow();
        let newest = volumes.get(&id).and_then(|kept| Some((kept, kept.membership.newest()?)));
        newest.is_some_and(|(kept, config)| config.in_sync().without(kept.slot).is_empty())
    }

    fn opening(&self, kept: &Kept) -> CopyOpening {
        CopyOpening {
            number: kept.entry.number,
            me: kept.slot,
            made: kept.made,
            size: ByteLen(kept.entry.size),
            incarnation: self.copies.incarnation(),
            new: !kept.reopens
                && kept.membership.newest().is_some_and(|config| self.is_in_sync(kept, config)),
        }
    }
}

/// Takes the slices of these volumes off all cores.
async fn take_out(volumes: Vec<u32>) {
    let volumes: Arc<[u32]> = volumes.into();
    on_all_cores(move || {
        let volumes = Arc::clone(&volumes);
        async move {
            let copies = Copies::current();
            for number in volumes.iter() {
                copies.slices_of(*number).iter().for_each(SliceCopy::leave);
                copies.remove(*number);
            }
        }
    })
    .await;
}
