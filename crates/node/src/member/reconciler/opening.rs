//! Opens, closes and deletes copies on this node.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base::ByteLen;
use replica::{Config, Incarnation, NodeId, Revision};
use rt::sync::{Receiver, oneshot};
use store::{PoolId, VolumeId};

use super::fork::detach;
use super::unreadable::Legible;
use super::{Kept, Reconciler};
use crate::control::{Control, CopyOpening, ServedAs};
use crate::copies::SliceCopy;
use crate::copies::core::Copies;
use crate::copies::entry::{
    CopyEntry, DELETED, DELETED_MAX, DeletedVolume, DroppedCopy, NodeEntry, StandingEntry, VolumeEntry,
    WantedCopy, deleted_key, node_key,
};
use crate::copies::split_brain::{SplitEntry, split_key};
use crate::shard::on_all_cores;

/// How long the other copies of a pool wait for one that is being opened. After that they are opened beside
/// it.
const OPENED_WITHIN: Duration = Duration::from_secs(2);

impl Kept {
    /// Whether a slice could not be opened, because its disk does not return what the slice needs.
    ///
    /// The other slices would speak for the whole volume, so the copy takes no part.
    pub(super) fn is_partly_open(&self) -> bool {
        self.open && !self.whole
    }

    /// The newest configuration that the copy here has learned of or, if it has learned of none because an
    /// earlier life of this node has continued alone (F5), that the record has.
    pub(super) fn newest_config(&self) -> Option<Config> {
        let recorded = || self.entry.config(Revision(self.revision.0));
        self.membership.newest().cloned().or_else(recorded)
    }
}

impl Reconciler {
    /// Gives up the volume: this node no longer has a copy of it.
    pub(super) async fn forget(self: &Rc<Self>, id: VolumeId) {
        let kept = self.volumes_mut().remove(&id);
        let Some(kept) = kept else { return };
        if self.forks.has(id) {
            tracing::error!(
                volume = kept.entry.name,
                "the copy on this node was removed while this node continued alone with it: its data is not deleted, and not served"
            );
        }
        take_out(vec![kept.entry.number]).await;
        if kept.sole && !self.is_deleted(id) {
            // The record may have been set back, and no other node has the data.
            return;
        }
        // The copy's last commands may take a while to end.
        if let Some(control) = Control::try_current() {
            self.closing.borrow_mut().insert(id);
            let (reconciler, number) = (Rc::clone(self), kept.entry.number);
            rt::spawn(async move {
                // The copy may be being opened right now. From here on it is not opened: it is being closed.
                reconciler.opened.until(|| !reconciler.is_being_opened(id)).await;
                take_out(vec![number]).await;
                control.close_copy(id).await;
            })
            .detach();
        }
    }

    /// Stops serving these volumes, because their pool is about to be closed; it may be opened again.
    ///
    /// Hosts' writes to copies end with an unknown outcome, and nothing is served until
    /// [`Reconciler::bring_back`]. The volumes in `forgets` are in memory: they come back blank.
    pub async fn set_aside(&self, ids: &BTreeSet<VolumeId>, forgets: &BTreeSet<VolumeId>) {
        self.opened.until(|| self.opening.borrow().is_disjoint(ids)).await;
        let numbers = {
            let mut volumes = self.volumes_mut();
            for (id, kept) in volumes.iter_mut().filter(|(id, kept)| kept.sole && ids.contains(id)) {
                kept.sole = false;
                self.closing.borrow_mut().insert(*id);
            }
            let here = volumes.iter_mut().filter(|(id, kept)| kept.open && ids.contains(id));
            here.map(|(id, kept)| {
                (kept.open, kept.reopens) = (false, true);
                kept.forgets = forgets.contains(id);
                self.closing.borrow_mut().insert(*id);
                self.forks.note_closed(*id);
                kept.entry.number
            })
            .collect()
        };
        take_out(numbers).await;
    }

    /// Opens these volumes again, because their pool is open again. One whose disk takes long may still be
    /// being opened when this returns.
    pub async fn bring_back(self: &Rc<Self>, ids: &BTreeSet<VolumeId>) {
        let is_sole =
            |id: &VolumeId| self.volumes.borrow().get(id).is_some_and(|kept| kept.entry.sole && !kept.open);
        self.closing.borrow_mut().retain(|id| !(ids.contains(id) && (self.is_aside(*id) || is_sole(id))));
        self.open_volumes(ids).await;
    }

    /// Whether the slices of the volume here are those of a copy, and open.
    pub fn is_open(&self, id: VolumeId) -> bool {
        self.volumes.borrow().get(&id).is_some_and(|kept| kept.open)
    }

    /// Whether the volume has a copy here that was open and is to be opened again.
    pub fn is_aside(&self, id: VolumeId) -> bool {
        self.volumes.borrow().get(&id).is_some_and(|kept| kept.reopens)
    }

    /// Whether the copy here is being opened.
    pub fn is_being_opened(&self, id: VolumeId) -> bool {
        self.opening.borrow().contains(&id)
    }

    /// Whether a disk of the copy here has failed: the copy takes no part until it is opened again.
    pub fn has_failed(&self, id: VolumeId) -> bool {
        self.volumes.borrow().get(&id).is_some_and(|kept| kept.failed || kept.is_partly_open())
    }

    /// Notes that the volume's old copy here is closed, so that another one may be opened.
    pub fn closed(self: &Rc<Self>, id: VolumeId) {
        self.closing.borrow_mut().remove(&id);
        self.open_volumes_soon();
        self.work.notify();
    }

    /// The identity of the volume with this number, if it has a copy here.
    pub fn id_of(&self, number: u32) -> Option<VolumeId> {
        self.volumes.borrow().iter().find(|(_, kept)| kept.entry.number == number).map(|(id, _)| *id)
    }

    /// What the record says about the copies here, for their pools to follow.
    pub fn wanted_here(&self) -> Vec<(VolumeId, WantedCopy)> {
        self.volumes.borrow().iter().map(|(id, kept)| (*id, kept.entry.wanted())).collect()
    }

    /// Copies that were removed from this node, and that this life of it has to delete.
    ///
    /// It looks at a few volumes in each turn of this core.
    pub async fn dropped_here(&self) -> Vec<(VolumeEntry, DroppedCopy)> {
        if !self.knows_this_life() {
            // Another node may be about to give a copy to the previous life.
            return Vec::new();
        }
        let is_closing = |id: VolumeId| self.closing.borrow().contains(&id);
        // Someone may have removed the copy without knowing what was written only here: that is not deleted.
        let stays = |entry: &VolumeEntry| {
            VolumeId::parse(&entry.id).is_some_and(|id| is_closing(id) || self.has_own_writes(id))
        };
        let mut all = self.dropped_copies().await;
        all.retain(|(entry, _)| !stays(entry));
        all
    }

    /// Whether this node has continued alone with the volume, and nobody has decided yet whose data to keep.
    fn has_own_writes(&self, id: VolumeId) -> bool {
        let key = split_key(id);
        let is_here = |split: SplitEntry| split.keep.is_none() && split.node == self.me().0;
        self.forks.has(id)
            || self.is_unreadable(&key)
            || self.get::<SplitEntry>(&key).is_some_and(|(split, _)| is_here(split))
    }

    /// Whether a slice of the copy here could not be opened.
    pub fn is_partly_open(&self, id: VolumeId) -> bool {
        self.volumes.borrow().get(&id).is_some_and(Kept::is_partly_open)
    }

    /// Whether all that the copy here could be missed for is elsewhere now: the record has it out of sync,
    /// and a copy in sync in the present life of a node that this one reaches.
    ///
    /// A node that was down with this one is in sync in its present life only if it has opened all of its
    /// copy. So two copies of which neither can be opened are both kept.
    pub fn is_dispensable(&self, id: VolumeId) -> bool {
        if !self.knows_this_life() || self.has_own_writes(id) {
            return false;
        }
        let (now, volumes) = (rt::now(), self.volumes.borrow());
        let Some(kept) = volumes.get(&id).filter(|kept| kept.legible == Legible::Whole) else {
            return false;
        };
        let life = |node: NodeId| self.peers.borrow().get(&node).and_then(|peer| peer.life);
        let serves = |copy: &CopyEntry| {
            let node = NodeId(copy.node);
            copy.standing == StandingEntry::InSync
                && life(node) == Some(Incarnation(copy.incarnation))
                && self.reaches_now(now, node)
        };
        let here = kept.entry.copy_in(kept.slot);
        here.is_some_and(|here| here.standing == StandingEntry::Outside)
            && kept.entry.copies.iter().any(serves)
    }

    /// Whether the record, as far as this node has followed it, has this very start of the node.
    ///
    /// Then it is not an old record, and no other process is this life.
    pub fn knows_this_life(&self) -> bool {
        let known = self.get::<NodeEntry>(&node_key(self.me()));
        known.is_some_and(|(node, _)| (node.incarnation, node.start) == (self.incarnation().0, self.start))
    }

    /// Whether the record has a copy of the volume in sync other than the one here.
    pub fn has_another_in_sync(&self, id: VolumeId) -> bool {
        let volumes = self.volumes.borrow();
        let newest = volumes.get(&id).and_then(|kept| Some((kept, kept.newest_config()?)));
        newest.is_some_and(|(kept, config)| !config.in_sync().without(kept.slot).is_empty())
    }

    /// Lets the copy here continue alone, because an administrator has accepted that its data is older than
    /// it was.
    pub fn accept(&self, id: VolumeId) {
        if let Some(kept) = self.volumes_mut().get_mut(&id) {
            kept.blank = false;
        }
    }

    /// Whether the record has the copy here in sync, in any life of the node.
    pub fn calls_this_copy_in_sync(&self, id: VolumeId) -> bool {
        let volumes = self.volumes.borrow();
        let newest = volumes.get(&id).and_then(|kept| Some((kept, kept.newest_config()?)));
        newest.is_some_and(|(kept, config)| config.in_sync().contains(kept.slot))
    }

    /// Deleted volumes of which this node has to delete its data, except what was written here alone.
    pub fn deleted_here(&self) -> Vec<(VolumeId, DeletedVolume)> {
        if !self.knows_this_life() {
            return Vec::new();
        }
        let closing = self.closing.borrow();
        let may = |id: &VolumeId| !closing.contains(id) && !self.forks.has(*id);
        let me = self.me().0;
        self.deleted().filter(|(id, deleted)| deleted.nodes.contains(&me) && may(id)).collect()
    }

    /// Deleted volumes that are still noted, but only for nodes that have left the cluster.
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

    /// Whether this node has continued alone with the volume, and the fork is not settled.
    pub fn has_fork(&self, id: VolumeId) -> bool {
        self.forks.has(id)
    }

    /// Whether the record may note one more deleted volume.
    pub fn remembers_deleted(&self) -> bool {
        self.deleted().count() < DELETED_MAX
    }

    fn deleted(&self) -> impl Iterator<Item = (VolumeId, DeletedVolume)> {
        let deleted = self.list::<DeletedVolume>(DELETED).into_iter();
        deleted.filter_map(|deleted| Some((VolumeId::parse(&deleted.id)?, deleted)))
    }

    /// Starts to open copies whose volume and pool are both available by now.
    ///
    /// The caller does not wait: a disk that hangs must not keep copies on other disks from acting by the
    /// record.
    pub fn open_volumes_soon(self: &Rc<Self>) {
        self.queue_openings(|_| true);
    }

    /// Opens those of these copies whose volume and pool are both available by now. One whose disk takes long
    /// may still be being opened when this returns.
    pub async fn open_volumes(self: &Rc<Self>, ids: &BTreeSet<VolumeId>) {
        self.queue_openings(|id| ids.contains(id));
        self.opened.until(|| self.queued.borrow().is_disjoint(ids)).await;
        let opened = self.opened.until(|| self.opening.borrow().is_disjoint(ids));
        let _ = rt::timeout(OPENED_WITHIN, opened).await;
    }

    /// Has the copies opened that may be opened now, those of each pool in turn.
    fn queue_openings(self: &Rc<Self>, wanted: impl Fn(&VolumeId) -> bool) {
        for ids in self.to_be_opened(wanted) {
            self.queued.borrow_mut().extend(&ids);
            let reconciler = Rc::clone(self);
            rt::spawn(async move { reconciler.open_in_turn(ids).await }).detach();
        }
    }

    /// The copies that may be opened now and are not queued yet, by pool: the disks of one must not delay the
    /// copies on those of another.
    fn to_be_opened(&self, wanted: impl Fn(&VolumeId) -> bool) -> Vec<Vec<VolumeId>> {
        let Some(control) = Control::try_current() else { return Vec::new() };
        let closed: Vec<VolumeId> = {
            let volumes = self.volumes.borrow();
            let closed = volumes.iter().filter(|(_, kept)| !kept.open && !kept.sole);
            closed.map(|(id, _)| *id).filter(wanted).collect()
        };
        let mut pools: BTreeMap<Option<PoolId>, Vec<VolumeId>> = BTreeMap::new();
        let is_new = |id: &VolumeId| !self.queued.borrow().contains(id) && self.opening_of(*id).is_some();
        for id in closed.into_iter().filter(is_new) {
            pools.entry(control.pool_of_copy(id)).or_default().push(id);
        }
        pools.into_values().collect()
    }

    /// How to open the copy of a volume now; `None` if it must not be opened, or is being opened already.
    fn opening_of(&self, id: VolumeId) -> Option<CopyOpening> {
        let volumes = self.volumes.borrow();
        let kept = volumes.get(&id).filter(|kept| !kept.open && !kept.sole && self.may_open(kept))?;
        let is_busy = self.closing.borrow().contains(&id) || self.is_being_opened(id);
        (!is_busy).then(|| self.opening(kept))
    }

    /// Opens these copies of a pool one after the other, except that each waits only for a moment for those
    /// before it.
    async fn open_in_turn(self: &Rc<Self>, ids: Vec<VolumeId>) {
        for id in ids {
            self.queued.borrow_mut().remove(&id);
            self.opened.notify();
            if let Some(ended) = self.begin_opening(id) {
                let _ = rt::timeout(OPENED_WITHIN, ended).await;
            }
        }
        // Copies that are open now have to act by the record.
        self.work.notify();
    }

    /// Begins to open the copy of a volume, unless something has changed and it must not be opened now.
    /// Returns what waits for the end.
    ///
    /// Nobody gives up an opening: its parts that are at a disk would continue, and the next attempt would
    /// not wait for them.
    fn begin_opening(self: &Rc<Self>, id: VolumeId) -> Option<Receiver<()>> {
        let control = Control::try_current()?;
        let opening = self.opening_of(id)?;
        self.opening.borrow_mut().insert(id);
        let (reconciler, (end, ended)) = (Rc::clone(self), oneshot());
        rt::spawn(async move {
            let is_over = reconciler.open_volume(&control, id, opening).await;
            // A copy that was put off is still awaited if its pool was closed for a while.
            if is_over || !reconciler.is_aside(id) {
                control.end_wait(id).await;
            }
            reconciler.opening.borrow_mut().remove(&id);
            reconciler.opened.notify();
            end.send(());
        })
        .detach();
        Some(ended)
    }

    /// Returns whether it is open or could not be opened; if not, it is only put off.
    async fn open_volume(&self, control: &Rc<Control>, id: VolumeId, opening: CopyOpening) -> bool {
        match control.adopt_what_is_recorded(self, id).await {
            Ok(ServedAs::Copy) => {}
            Ok(ServedAs::Sole) => {
                // The volume may have got another copy meanwhile.
                let is_served = control.serve_sole(id).await && control.has_sole(id);
                if let Some(kept) = self.volumes_mut().get_mut(&id) {
                    (kept.sole, kept.shown) = (is_served && kept.entry.sole, opening.size.0);
                }
                return true;
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(volume = %id, error, "the pool of a volume cannot turn it into a copy yet");
                return false;
            }
        }
        if !control.may_open_copy(self, id) {
            return false;
        }
        let mut reopens = false;
        if let Some(kept) = self.volumes_mut().get_mut(&id) {
            // While it is being opened, it acts in no configuration: not all of its slices would learn of it.
            reopens = std::mem::take(&mut kept.reopens);
            if reopens {
                kept.membership.forget();
            }
        }
        // The copy may have been removed from this node and added again meanwhile.
        let is_it = |kept: &&mut Kept| (kept.slot, kept.made) == (opening.me, opening.made);
        let Some(opened) = control.open_copy(id, opening).await else {
            if let Some(kept) = self.volumes_mut().get_mut(&id).filter(is_it) {
                // It is closed as before, and must not pass for a new one the next time.
                kept.reopens |= reopens;
            }
            return true;
        };
        if self.forks.has(id) {
            detach(opening.number).await;
        }
        let mut volumes = self.volumes_mut();
        if let Some(kept) = volumes.get_mut(&id).filter(is_it) {
            (kept.open, kept.opened) = (true, rt::now());
            (kept.whole, kept.blank, kept.shown) = (opened.whole, opened.blank, opening.size.0);
            kept.agreement.handle_open(opening.new);
        }
        true
    }

    /// Whether the copy may be opened now.
    ///
    /// Slices that are closed and opened again in one life of a node have forgotten what they took part in,
    /// and other members rely on that. So they wait until this copy is outside, or is the only member from
    /// now on. The other members take it out, because it does not complete what they send. A copy that is the
    /// only member needs nothing that it has forgotten, unless its data was in memory: what it has reported
    /// to be on its disk is there, and other nodes do not know of the rest.
    fn may_open(&self, kept: &Kept) -> bool {
        if kept.legible == Legible::Nothing {
            return false;
        }
        let Some(newest) = kept.membership.newest().filter(|_| kept.reopens) else { return true };
        let is_alone = || newest.members().without(kept.slot).is_empty();
        !self.is_member(kept, newest) || is_alone() && !kept.forgets
    }

    /// The volumes whose sole copy is here.
    pub fn sole_here(&self) -> Vec<VolumeId> {
        let volumes = self.volumes.borrow();
        volumes.iter().filter(|(_, kept)| kept.entry.sole).map(|(id, _)| *id).collect()
    }

    /// Has the copy here opened as one of several, as its pool says that it is from now on.
    pub fn end_sole(&self, id: VolumeId) {
        if let Some(kept) = self.volumes_mut().get_mut(&id) {
            kept.sole = false;
        }
    }

    /// Whether no other node has a copy of the volume in sync.
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

/// Removes the slices of these volumes from all cores.
async fn take_out(volumes: Vec<u32>) {
    let volumes: Arc<[u32]> = volumes.into();
    on_all_cores(move || async move {
        let copies = Copies::current();
        for number in volumes.iter() {
            copies.slices_of(*number).iter().for_each(SliceCopy::leave);
            copies.remove(*number);
        }
    })
    .await;
}
