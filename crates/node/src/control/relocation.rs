//! Copies that are added, removed and moved while the volume is in use.
//!
//! A new copy begins blank. No node has noted what it misses, so its own map says "everything", and it is
//! resynced like a copy that was down (`docs/why/replication.md`, *Copies that come and go*). Removing a copy
//! is first an intent in the volume's entry of the cluster's record ([`crate::copies::Leaves`]). Reconcilers
//! execute it as soon as another copy is in sync, and the copy's node then deletes the copy.

use std::rc::Rc;
use std::time::Duration;

use replica::{NodeId, Revision, Slot};
use store::{CopyState, VolumeInfo};

use super::change::WaitsFor;
use super::copies::{HEARD_WITHIN, drop_copies, once_heard};
use super::doing::Doing;
use super::snapshots::{check_copy_may_go, nothing_begun};
use super::tidying::TIDY_EVERY;
use super::turns::{NOTHING, Thing};
use super::{Control, ControlError, NEXT_NUMBER, Result, VolumeStatus};
use crate::copies::{
    Answer, Ask, Cause, CopyEntry, DroppedCopy, LAST_SNAPSHOT, Leaves, NewCopy, NodeEntry, StandingEntry,
    SyncPause, VolumeEntry, node_key, volume_key,
};
use crate::data::VolumeId;
use crate::member::{ClusterError, ForkState, Reconciler, json};
use crate::shard::Shard;

/// How often a change is repeated that failed because of another change of the same volume: while a node is
/// being lost, the set of copies in sync changes a few times.
pub(super) const TRIES_MAX: usize = 20;

/// How long to wait until a copy has been removed; after that, the removal continues automatically.
const GONE_DEADLINE: Duration = Duration::from_secs(10);

/// How long to wait until a node has deleted its removed copy before it is asked for a new one. The node
/// looks for removed copies every second.
const DELETED_DEADLINE: Duration = Duration::from_secs(5);

/// A copy to be added.
#[derive(Clone, Debug)]
pub struct AddedCopy {
    /// The node that gets it.
    pub node: u16,
    /// The pool there; `None` for the only one, or the default one.
    pub pool: Option<String>,
    /// The node whose copy is removed when the new one is in sync.
    pub instead_of: Option<u16>,
}

impl Control {
    /// Adds a copy to a volume; it then resyncs automatically. With `instead_of`, a copy moves.
    ///
    /// This node must have a copy of the volume, or the sole copy.
    ///
    /// # Errors
    /// The node cannot take a copy, or has one; no slot is free; errors of the node or of the cluster's
    /// record.
    pub async fn add_copy(self: &Rc<Control>, volume: &str, added: AddedCopy) -> Result<()> {
        let reconciler = self.reconciler()?;
        if self.is_sole_here(&reconciler, volume) {
            if added.node == reconciler.me().0 {
                return Err(ControlError::HasCopy { volume: volume.to_owned(), node: added.node });
            }
            self.check_first_copy(&reconciler, volume, added.instead_of)?;
            once_heard(&reconciler, || node_that_takes_copies(&reconciler, added.node)).await?;
            self.make_ready_for_copies(&reconciler, volume).await?;
        }
        let (id, entry) = self.replicated(&reconciler, volume)?;
        if let Some(from) = added.instead_of {
            copy_on(&entry, from)?;
            check_copy_may_go(&reconciler, &entry, from)?;
        }
        if entry.copy_on(NodeId(added.node)).is_some() {
            return Err(ControlError::HasCopy { volume: entry.name, node: added.node });
        }
        let elsewhere = || ControlError::ElsewhereOnly {
            volume: entry.name.clone(),
            node: entry.copies.first().map_or(0, |copy| copy.node),
        };
        let (_, info) = self.volume_named(&entry.id).map_err(|_| elsewhere())?;
        if entry.copy_on(reconciler.me()).is_none() {
            return Err(elsewhere());
        }
        if entry.copies.len() == 1 && !reconciler.is_open(id) {
            return Err(ClusterError::Conflict(entry.name).into());
        }
        entry.free_slot().ok_or_else(|| ControlError::FourCopies(entry.name.clone()))?;
        once_heard(&reconciler, || node_that_takes_copies(&reconciler, added.node)).await?;
        // The node creates no copy beside one that is to be deleted, because it could not tell them apart.
        let is_deleted = || {
            let entry = reconciler.volume(id).map(|volume| volume.entry);
            entry.is_none_or(|entry| entry.dropped.iter().all(|dropped| dropped.node != added.node))
        };
        reconciler.until(DELETED_DEADLINE, is_deleted).await;
        let (_, entry) = entry_named(&reconciler, &entry.id)?;
        let slot = entry.free_slot().ok_or_else(|| ControlError::FourCopies(entry.name.clone()))?;
        once_heard(&reconciler, || node_that_takes_copies(&reconciler, added.node)).await?;
        let blank = NewCopy::blank(&info, slot, added.pool.clone());
        let new = NewCopy {
            name: entry.name.clone(),
            kind: entry.shape.kind,
            compression: entry.compression,
            size: entry.size,
            space: entry.space,
            ..blank
        };
        let (node, asker) = (NodeId(added.node), new.asker);
        if let Err(error) = self.make_and_record(&reconciler, id, node, new, added.instead_of).await {
            let may_be_left = match &error {
                // The node has created nothing.
                ControlError::Cluster(ClusterError::Refused { .. }) => false,
                // If the result of the transaction is not known, the copy may have been added.
                ControlError::Cluster(error) => !error.may_be_committed(),
                _ => true,
            };
            // A node that has not answered may have created it, or may still do so.
            if may_be_left {
                drop_copies(&reconciler, &[node], id, Some(asker)).await;
            }
            return Err(error);
        }
        Ok(())
    }

    /// Asks a node for a copy, and adds it to the record.
    async fn make_and_record(
        &self,
        reconciler: &Rc<Reconciler>,
        id: VolumeId,
        node: NodeId,
        new: NewCopy,
        instead_of: Option<u16>,
    ) -> Result<()> {
        let (slot, size, asker) = (Slot::new(usize::from(new.slot)), new.size, new.asker);
        let slot = slot.ok_or(ControlError::Internal("a copy of no slot"))?;
        let Answer::Done { incarnation } = reconciler.ask(node, Ask::MakeCopy(new)).await? else {
            return Err(ControlError::Internal("an unexpected answer"));
        };
        // The record must know the same life of the node that created the copy: a node that has restarted
        // since deletes it. If that life has only just begun, the record learns about it in a moment.
        let known = || reconciler.get::<NodeEntry>(&node_key(node));
        let has_heard = || known().is_none_or(|(entry, _)| entry.incarnation >= incarnation);
        reconciler.until(HEARD_WITHIN, has_heard).await;
        let Some((_, node_revision)) = known().filter(|(entry, _)| entry.incarnation == incarnation) else {
            return Err(ClusterError::Unreached(node).into());
        };
        let added = self.change_entry(reconciler, id, None, |entry| {
            if entry.free_slot() != Some(slot) || entry.copy_on(node).is_some() || entry.size != size {
                return Err(ClusterError::Conflict(volume_key(id)).into());
            }
            let config = entry.config(Revision(0)).and_then(|config| config.add(slot, node).ok());
            let config = config.ok_or(ControlError::Internal("the slot is free and the node has no copy"))?;
            let mut next = entry.with_config(&config, Cause::CopyAdded);
            next.copies.iter_mut().filter(|copy| copy.node == node.0).for_each(|copy| copy.asker = asker);
            let mut also = vec![(node_key(node), Some(node_revision))];
            if let Some(from) = instead_of {
                copy_on(&next, from)?;
                check_copy_may_go(reconciler, entry, from)?;
                also.extend(nothing_begun(reconciler));
                next.copies.iter_mut().filter(|copy| copy.node == from).for_each(|copy| {
                    copy.leaves = Some(Leaves::After(node.0));
                });
            }
            Ok((next, also))
        });
        added.await.map(drop)
    }

    /// The volume that [`Control::add_copy`] would add a copy to, and the nodes that have one.
    ///
    /// # Errors
    /// As there, except those of other nodes and of the record.
    pub fn check_added_copy(
        &self,
        volume: &str,
        instead_of: Option<u16>,
    ) -> Result<(VolumeStatus, Vec<u16>)> {
        let reconciler = self.reconciler()?;
        if self.is_sole_here(&reconciler, volume) {
            let status = self.check_first_copy(&reconciler, volume, instead_of)?;
            return Ok((status, vec![reconciler.me().0]));
        }
        let (_, entry) = self.replicated(&reconciler, volume)?;
        entry.free_slot().ok_or_else(|| ControlError::FourCopies(entry.name.clone()))?;
        if let Some(from) = instead_of {
            check_copy_may_go(&reconciler, &entry, from)?;
        }
        Ok((self.volume(volume)?, entry.copies.iter().map(|copy| copy.node).collect()))
    }

    /// Removes a copy. `Ok(true)`: it is gone; `Ok(false)`: the removal continues automatically.
    ///
    /// # Errors
    /// [`ControlError::OnlyInSync`]; the node has no copy.
    pub async fn remove_copy(&self, volume: &str, node: u16) -> Result<bool> {
        let reconciler = self.reconciler()?;
        let (id, _) = self.replicated(&reconciler, volume)?;
        self.change_entry(&reconciler, id, Some(node), |entry| {
            in_sync_without(entry, node)?;
            check_copy_may_go(&reconciler, entry, node)?;
            Ok((without_copy(entry, node), nothing_begun(&reconciler).into()))
        })
        .await?;
        let gone = || {
            let entry = reconciler.volume(id).map(|volume| volume.entry);
            entry.is_none_or(|entry| entry.copy_on(NodeId(node)).is_none())
        };
        Ok(reconciler.until(GONE_DEADLINE, gone).await)
    }

    /// The record's entry for a volume, whether or not this node has a copy.
    ///
    /// # Errors
    /// [`ControlError::NotReplicated`]: the volume exists, but has no copies.
    pub fn volume_entry(&self, volume: &str) -> Result<VolumeEntry> {
        let reconciler = self.reconciler()?;
        self.replicated(&reconciler, volume).map(|(_, entry)| entry)
    }

    /// As [`Control::volume_entry`], with the volume's identity.
    pub(super) fn replicated(
        &self,
        reconciler: &Reconciler,
        volume: &str,
    ) -> Result<(VolumeId, VolumeEntry)> {
        match reconciler.entry_named(volume) {
            Some(found) => Ok(found),
            None => Err(ControlError::NotReplicated(self.volume(volume)?.info.name)),
        }
    }

    /// Checks whether a copy could be removed; returns how many copies in sync would be left.
    ///
    /// # Errors
    /// As [`Control::remove_copy`], except those of the record.
    pub fn check_removed_copy(&self, entry: &VolumeEntry, node: u16) -> Result<usize> {
        let reconciler = self.reconciler()?;
        check_settled(&reconciler, entry, Some(node))?;
        check_copy_may_go(&reconciler, entry, node)?;
        in_sync_without(entry, node)
    }

    /// Cancels adding a copy: the new copy is removed automatically, and a copy that was to be replaced by it
    /// stays.
    ///
    /// # Errors
    /// The node has no copy; [`ControlError::CopyInSync`].
    pub async fn cancel_copy(&self, volume: &str, node: u16) -> Result<()> {
        let reconciler = self.reconciler()?;
        let (id, _) = entry_named(&reconciler, volume)?;
        let cancelled = self.change_entry(&reconciler, id, Some(node), |entry| {
            not_in_sync(entry, node)?;
            check_copy_may_go(&reconciler, entry, node)?;
            Ok((without_copy(entry, node), nothing_begun(&reconciler).into()))
        });
        cancelled.await.map(drop)
    }

    /// Checks whether adding a copy could be cancelled.
    ///
    /// # Errors
    /// As [`Control::cancel_copy`], except those of the record.
    pub fn check_cancelled_copy(&self, volume: &str, node: u16) -> Result<()> {
        let reconciler = self.reconciler()?;
        let (_, entry) = entry_named(&reconciler, volume)?;
        check_settled(&reconciler, &entry, Some(node))?;
        check_copy_may_go(&reconciler, &entry, node)?;
        not_in_sync(&entry, node)
    }

    /// Cancels the removal of a copy that still exists. The copy resyncs automatically.
    ///
    /// # Errors
    /// The node has no copy.
    pub async fn keep_copy(&self, volume: &str, node: u16) -> Result<()> {
        let reconciler = self.reconciler()?;
        let (id, _) = entry_named(&reconciler, volume)?;
        let kept = self.change_entry(&reconciler, id, None, |entry| {
            copy_on(entry, node)?;
            let mut next = entry.clone();
            next.copies.iter_mut().filter(|copy| copy.node == node).for_each(|copy| copy.leaves = None);
            Ok((next, Vec::new()))
        });
        kept.await.map(drop)
    }

    /// Checks whether the removal of a copy could be cancelled.
    ///
    /// # Errors
    /// As [`Control::keep_copy`], except those of the record.
    pub fn check_kept_copy(&self, volume: &str, node: u16) -> Result<()> {
        let reconciler = self.reconciler()?;
        let (_, entry) = entry_named(&reconciler, volume)?;
        check_settled(&reconciler, &entry, None)?;
        copy_on(&entry, node)
    }

    /// Pauses the resync of a copy until it is resumed, also over restarts.
    ///
    /// The dirty map of what the copy misses is kept. A copy that is catching up has nearly everything, and
    /// still comes in sync.
    ///
    /// # Errors
    /// The node has no copy; [`ControlError::NothingToPause`].
    pub async fn pause_sync(&self, volume: &str, node: u16, by: &str) -> Result<()> {
        let at = (Shard::current().config().unix_now)();
        self.change_pause(volume, node, |entry, slot| {
            let pause = SyncPause { by: by.to_owned(), at };
            entry.paused.entry(slot).or_insert(pause);
        })
        .await
    }

    /// Resumes the resync of a copy.
    ///
    /// # Errors
    /// The node has no copy; [`ControlError::NothingToPause`].
    pub async fn resume_sync(&self, volume: &str, node: u16) -> Result<()> {
        self.change_pause(volume, node, |entry, slot| {
            entry.paused.remove(&slot);
        })
        .await
    }

    async fn change_pause(
        &self,
        volume: &str,
        node: u16,
        change: impl Fn(&mut VolumeEntry, u8),
    ) -> Result<()> {
        let reconciler = self.reconciler()?;
        let (id, _) = entry_named(&reconciler, volume)?;
        let changed = self.change_entry(&reconciler, id, None, |entry| {
            copy_on(entry, node)?;
            let behind = |copy: &&CopyEntry| {
                copy.node == node
                    && copy.standing != StandingEntry::InSync
                    && copy.leaves != Some(Leaves::Now)
            };
            let copy = entry.copies.iter().find(behind);
            let nothing = || ControlError::NothingToPause { volume: entry.name.clone(), node };
            let slot = copy.ok_or_else(nothing)?.slot;
            let mut next = entry.clone();
            change(&mut next, slot);
            Ok((next, Vec::new()))
        });
        changed.await.map(drop)
    }

    /// Changes a volume's entry in the cluster's record, and tries again if another change was faster.
    ///
    /// The change may name more keys, and the revisions that they must still have; `None`: the key must not
    /// exist. `leaves`: the node whose copy the change removes, if that is all that it does.
    pub(super) async fn change_entry(
        &self,
        reconciler: &Reconciler,
        id: VolumeId,
        leaves: Option<u16>,
        change: impl Fn(&VolumeEntry) -> Result<(VolumeEntry, Vec<(String, Option<cluster::Revision>)>)>,
    ) -> Result<VolumeEntry> {
        let key = volume_key(id);
        let mut tries = 0;
        loop {
            tries += 1;
            let (entry, revision) = reconciler
                .get::<VolumeEntry>(&key)
                .ok_or_else(|| ControlError::not_found("volume", &id.to_string()))?;
            check_settled(reconciler, &entry, leaves)?;
            let (next, also) = change(&entry)?;
            let mut transaction =
                Reconciler::transaction().expect(&key, Some(revision)).put(&key, json(&next));
            for (key, revision) in &also {
                transaction = transaction.expect(key, *revision);
            }
            let may_change = |conflict: &str| [key.as_str(), LAST_SNAPSHOT, NEXT_NUMBER].contains(&conflict);
            match reconciler.commit(transaction).await {
                Err(ClusterError::Conflict(conflict)) if may_change(&conflict) && tries < TRIES_MAX => {
                    let before = also.iter().find(|(key, _)| *key == conflict);
                    let before = before.map_or(Some(revision), |(_, revision)| *revision);
                    reconciler.until_changed(TIDY_EVERY, &conflict, before).await;
                }
                result => return Ok(result.map(|()| next)?),
            }
        }
    }

    /// Lets the pool follow when the volume was renamed.
    pub(super) async fn rename_copy(self: &Rc<Control>, id: VolumeId, name: String) {
        let found = self.current_of(self.copies_of(id)).map(|(pool, info)| (pool.name(), info));
        let Some((pool, info)) = found else { return };
        if info.name == name {
            return;
        }
        let called = name.clone();
        let work = Doing::RenameCopy.of(&info.name);
        let renamed = self.change(work, NOTHING, |control, changing| async move {
            changing.concerns(id);
            let _name = changing.hold([Thing::VolumeName(name.clone())]).await?;
            let _volume = changing.hold(Thing::volume_in(id, pool.clone())).await?;
            let pool = control.pool_named(&pool)?;
            changing.waits_for(WaitsFor::Disks(pool.paths()));
            Ok(pool.rename_volume(id, &name).await.map(drop)?)
        });
        // A volume that only this node has may have that name. That does no harm: the record's names come
        // first.
        if let Err(error) = renamed.await {
            tracing::debug!(volume = called, %error, "the pool still has a volume's former name for its copy");
        }
    }

    /// Deletes a copy that was removed from this node, and notes in the record that it is gone.
    pub(super) async fn drop_left_copy(
        self: &Rc<Control>,
        reconciler: &Rc<Reconciler>,
        entry: &VolumeEntry,
        dropped: DroppedCopy,
    ) -> Result<()> {
        let Some(id) = VolumeId::parse(&entry.id) else { return Ok(()) };
        // The request that added the copy has ended, even if this node has never opened the copy: it may have
        // followed both changes of the record at once.
        self.forget_asker(id, dropped.asker);
        // A copy that is being created is looked at again later. The exception is the removed copy itself, if
        // it was created too late: after the new volume had been recorded without it.
        if self.being_made.borrow().contains_key(&id)
            && !self.copies_of(id).iter().any(|(_, info)| self.is_left(reconciler, info, dropped))
        {
            return Ok(());
        }
        let pools: Vec<String> = self.copies_of(id).into_iter().map(|(pool, _)| pool.name()).collect();
        for pool in pools {
            self.delete_left(reconciler, pool, id, dropped).await?;
        }
        if !self.all_pools_are_open() {
            // One of the closed pools may hold the copy.
            return Ok(());
        }
        let changed = self.change_entry(reconciler, id, None, |entry| {
            let mut next = entry.clone();
            next.dropped.retain(|other| *other != dropped);
            Ok((next, Vec::new()))
        });
        changed.await.map(drop)
    }

    /// Whether what a pool holds of a volume is the copy that was removed from this node.
    fn is_left(&self, reconciler: &Reconciler, info: &VolumeInfo, dropped: DroppedCopy) -> bool {
        let is_copy = || {
            reconciler.volume(info.id).is_some_and(|volume| volume.entry.copy_on(reconciler.me()).is_some())
        };
        info.copy.is_some_and(|kept| match kept.state {
            CopyState::Trusted { epoch } | CopyState::SetBack { epoch } => epoch == dropped.made,
            CopyState::Sole | CopyState::New => dropped.made == 1,
            // If the node has a copy again, or is about to get one, this may be that one.
            CopyState::Blank => !self.being_made.borrow().contains_key(&info.id) && !is_copy(),
        })
    }

    async fn delete_left(
        self: &Rc<Control>,
        reconciler: &Rc<Reconciler>,
        pool: String,
        id: VolumeId,
        dropped: DroppedCopy,
    ) -> Result<()> {
        let info = self.pool_named(&pool).ok().and_then(|pool| pool.volume(id));
        let Some(info) = info.filter(|info| self.is_left(reconciler, info, dropped)) else { return Ok(()) };
        let reconciler = Rc::clone(reconciler);
        let work = Doing::DeleteCopy.of(&info.name);
        self.change(work, Thing::volume_in(info.id, pool.clone()), |control, changing| async move {
            let Ok(pool) = control.pool_named(&pool) else { return Ok(()) };
            // The change that held the volume until now may have started a new copy with this data.
            let Some(info) = pool.volume(id).filter(|info| control.is_left(&reconciler, info, dropped))
            else {
                return Ok(());
            };
            changing.waits_for(WaitsFor::Disks(pool.paths()));
            pool.delete_volume(info.id).await?;
            control.being_made.borrow_mut().remove(&info.id);
            tracing::info!(
                volume = info.name,
                pool = pool.name(),
                "the copy that was removed from this node is deleted"
            );
            Ok(())
        })
        .await
    }
}

pub(super) fn entry_named(reconciler: &Reconciler, name: &str) -> Result<(VolumeId, VolumeEntry)> {
    reconciler.entry_named(name).ok_or_else(|| ControlError::not_found("volume", name))
}

/// The entry with the intent to remove this node's copy.
///
/// Copies that were to be replaced by it stay: the node may get a copy again one day.
fn without_copy(entry: &VolumeEntry, node: u16) -> VolumeEntry {
    let mut next = entry.clone();
    for copy in &mut next.copies {
        if copy.node == node {
            copy.leaves = Some(Leaves::Now);
        } else if copy.leaves == Some(Leaves::After(node)) {
            copy.leaves = None;
        }
    }
    next
}

/// Checks that no node has continued alone with a volume, or that the copy of node `leaves` may be removed
/// all the same.
fn check_settled(reconciler: &Reconciler, entry: &VolumeEntry, leaves: Option<u16>) -> Result<()> {
    let Some(fork) = reconciler.fork_of(entry) else { return Ok(()) };
    // A copy that was added later must be removed before the data that the node wrote alone can be kept.
    let third = leaves.is_some_and(|node| node != fork.node) && entry.copies.len() > 2;
    match third && fork.state == ForkState::Split {
        true => Ok(()),
        false => Err(ControlError::Forked(entry.name.clone())),
    }
}

/// How many other copies in sync a volume would keep without this node's: at least one.
fn in_sync_without(entry: &VolumeEntry, node: u16) -> Result<usize> {
    copy_on(entry, node)?;
    let others = entry.copies.iter().filter(|copy| copy.node != node && !entry.is_to_leave(copy));
    match others.filter(|copy| copy.standing == StandingEntry::InSync).count() {
        0 => Err(ControlError::OnlyInSync { volume: entry.name.clone(), node }),
        left => Ok(left),
    }
}

fn not_in_sync(entry: &VolumeEntry, node: u16) -> Result<()> {
    copy_on(entry, node)?;
    match entry.copy_on(NodeId(node)) {
        Some((_, copy)) if copy.standing == StandingEntry::InSync => {
            Err(ControlError::CopyInSync { volume: entry.name.clone(), node })
        }
        _ => Ok(()),
    }
}

fn copy_on(entry: &VolumeEntry, node: u16) -> Result<()> {
    match entry.copy_on(NodeId(node)) {
        Some(_) => Ok(()),
        None => Err(ControlError::HasNoCopy { volume: entry.name.clone(), node }),
    }
}

fn node_that_takes_copies(reconciler: &Reconciler, node: u16) -> Result<(NodeEntry, cluster::Revision)> {
    let takes = |(entry, up): (NodeEntry, bool)| entry.id == node && up && !entry.witness;
    let up = !reconciler.is_in_maintenance(NodeId(node)) && reconciler.nodes().into_iter().any(takes);
    let known = reconciler.get::<NodeEntry>(&node_key(NodeId(node)));
    known.filter(|_| up).ok_or(ControlError::NodeNotThere(node))
}
