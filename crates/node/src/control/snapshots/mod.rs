//! Snapshots of sets of volumes, as administrators manage them.
//!
//! The cluster's record says which there are, and which copies have them (`docs/why/snapshots.md`). How one
//! is taken: [`taking`]. How volumes become what one has: [`restoring`]. What one has: [`reading`]. What
//! differs between two: [`diff`]. What each node does about those that were deleted: [`tidying`]. What pools
//! still have of those that are gone: [`leftovers`]. Schedules, and how they are carried out: [`schedules`]
//! and [`scheduled`]. Holds, expiries and labels: [`properties`]. Those that have expired: [`expiry`]. How
//! far the space of deleted ones is freed: [`freeing`]. How clones are created: [`cloning`]; what they are
//! read through, and what must stay for that: [`clones`].

mod calendar;
mod clones;
mod cloning;
mod diff;
mod expiry;
mod freeing;
mod leftovers;
mod properties;
mod reading;
mod restoring;
mod retention;
mod schedule;
mod scheduled;
mod schedules;
mod taking;
mod tidying;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use base::Instant;
use cluster::Transaction;
use serde::{Deserialize, Serialize};
use store::{PoolId, SnapshotInfo};

pub(super) use self::clones::is_being_cloned;
use self::clones::{check_no_clones, check_not_read, check_volume_not_cloned, no_new_clone};
pub use self::cloning::{CLONES_MAX, ClonesCreated, ClonesPlan, ClonesSpec};
pub use self::diff::{DIFF_RANGES_MAX, DiffSpec, SnapshotDiff};
use self::expiry::{Looked, Old};
use self::freeing::Course;
pub use self::freeing::Freeing;
pub use self::properties::SnapshotUpdate;
use self::reading::Turns;
pub use self::reading::{CopyUnread, SNAPSHOT_READ_BYTES_MAX, VolumeAt};
use self::restoring::is_restored_to;
pub use self::restoring::{RestorePlan, RestoreSpec, Restored};
use self::schedule::Own;
use self::scheduled::Quiet;
pub use self::schedules::{ScheduleChange, ScheduleSpec, ScheduleStatus};
use self::taking::Hold;
pub use self::taking::{HOLD_MAX, SnapshotSpec};
use super::change::WaitsFor;
use super::doing::Doing;
use super::relocation::{TRIES_MAX, entry_named};
use super::tidying::TIDY_EVERY;
use super::turns::NOTHING;
use super::{Control, ControlError, Result};
use crate::copies::{
    DELETED_SNAPSHOTS, DeletedSnapshot, LAST_SNAPSHOT, SNAPSHOT_CHANGES, SNAPSHOTS, SnapshotCopy,
    SnapshotEntry, SnapshotOf, SnapshotState, StandingEntry, VolumeEntry, pool_number, volume_key,
};
use crate::data::VolumeId;
use crate::member::{ClusterError, Reconciler, json};
use crate::shard::{Shard, on_all_cores};
use crate::under_way::UnderWay;

/// How long a slice may take to say which snapshots it has: its log may have to be recovered first.
const KNOWN_WITHIN: Duration = Duration::from_secs(1);

/// What this node does about snapshots at the moment.
#[derive(Default)]
pub(in crate::control) struct Snapshots {
    /// Those that it coordinates, and restores that it completes.
    taking: UnderWay<u32>,
    /// Those that are being taken on copies here.
    marking: UnderWay<u32>,
    /// Volumes of which copies here delete snapshots.
    deleting: UnderWay<VolumeId>,
    /// Clones that this node creates, by the number of the first one.
    cloning: UnderWay<u32>,
    /// A look at clones that are being created anywhere.
    giving_up: UnderWay<()>,
    /// The number under which cores last held a snapshot of which a clone is being created.
    last_held: Cell<u64>,
    /// A look at those that are being taken or deleted.
    tidying: UnderWay<()>,
    /// When what pools here have was last compared with the record, and [`Reconciler::activations`] then or,
    /// if something was left to do, `None`. `None` altogether: it has to be compared at once.
    compared: Cell<Option<(Instant, Option<u64>)>>,
    /// What is held for snapshots, by their numbers.
    held: RefCell<BTreeMap<u32, Hold>>,
    /// The snapshots that are due by schedule.
    following: UnderWay<()>,
    /// A time in which none is due.
    quiet: Cell<Option<Quiet>>,
    /// Reads of what snapshots have.
    reading: Turns,
    /// What this node has last done for schedules, by [`crate::copies::ScheduleEntry::id`].
    followed: RefCell<BTreeMap<u64, Own>>,
    /// The last look at the ages of all snapshots.
    looked: Cell<Option<Looked>>,
    /// What that look has found: those that nothing deletes automatically.
    old: RefCell<Option<Old>>,
    /// The pools in which space of deleted snapshots is being freed, or that are paused.
    freeing: RefCell<BTreeMap<PoolId, Course>>,
    /// Pools whose logs are being paused again: some may have been opened since.
    pausing: UnderWay<PoolId>,
}

/// A snapshot as the cluster's record has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotStatus {
    /// The record's entry.
    pub entry: SnapshotEntry,
    /// Its volumes, as they are now.
    pub volumes: Vec<SnapshotVolume>,
}

/// A volume of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotVolume {
    /// The volume's identity.
    pub id: String,
    /// Its present name, or the one that it had if it was deleted.
    pub name: String,
    /// Its capacity when the snapshot was taken, in bytes.
    pub size: u64,
    /// The nodes of its copies, and whether each copy has the snapshot.
    pub copies: Vec<(u16, bool)>,
}

/// The snapshots that this node's copy of a volume has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotsHere {
    /// The volume's identity.
    pub volume: String,
    /// What it has.
    pub has: Vec<SnapshotHere>,
}

/// A snapshot that a copy has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotHere {
    /// The snapshot's number.
    pub number: u32,
    /// Its time, as in the record's entry. A record that was set back may give a number again.
    pub at: u64,
    /// How many bytes of the pool its deletion frees, at most.
    pub frees: u64,
    /// Whether it frees exactly that.
    pub is_exact: bool,
}

impl Control {
    /// The snapshots that exist, are being taken or are being deleted, in order; with a volume, only those
    /// that have it.
    ///
    /// # Errors
    /// The volume is not found; [`ControlError::ClusterFailed`].
    pub fn snapshots(&self, volume: Option<&str>) -> Result<Vec<SnapshotStatus>> {
        let reconciler = self.reconciler()?;
        let volume = volume.map(|volume| entry_named(&reconciler, volume)).transpose()?;
        let is_wanted =
            |entry: &SnapshotEntry| volume.as_ref().is_none_or(|(_, volume)| entry.of(&volume.id).is_some());
        let wanted = all(&reconciler).into_iter().filter(is_wanted);
        Ok(wanted.map(|entry| status(&reconciler, entry)).collect())
    }

    /// The snapshot with this name or number.
    ///
    /// # Errors
    /// It is not found; [`ControlError::ClusterFailed`].
    pub fn snapshot(&self, name: &str) -> Result<SnapshotStatus> {
        let reconciler = self.reconciler()?;
        Ok(status(&reconciler, named(&reconciler, name)?))
    }

    /// The name of the snapshot that has this number in pools; the number if the record does not know it.
    pub(in crate::control) fn name_of_snapshot(&self, number: u64) -> String {
        let name = self.reconciler().ok().and_then(|reconciler| {
            let of_cluster = number.checked_sub(pool_number(reconciler.cluster(), 0))?;
            numbered(&reconciler, u32::try_from(of_cluster).ok()?).map(|(entry, _)| entry.name)
        });
        name.unwrap_or_else(|| number.to_string())
    }

    /// What this node's own copies have. A volume whose copy cannot say that at the moment is left out.
    pub async fn snapshots_here(&self) -> Result<Vec<SnapshotsHere>> {
        self.snapshots_of_copies(None).await
    }

    /// The same, or only what the copy of one volume has.
    async fn snapshots_of_copies(&self, of: Option<VolumeId>) -> Result<Vec<SnapshotsHere>> {
        let cluster = self.reconciler()?.cluster();
        let mut by_volume: BTreeMap<VolumeId, Vec<Option<Vec<SnapshotInfo>>>> = BTreeMap::new();
        for (volume, found) in on_all_cores(move || snapshots_of_core(of)).await.into_iter().flatten() {
            by_volume.entry(volume).or_default().push(found);
        }
        let here = by_volume.into_iter().filter_map(|(volume, slices)| {
            let slices = slices.into_iter().collect::<Option<Vec<_>>>()?;
            let has = numbers(slices.first()?, pool_number(cluster, 0))
                .filter_map(|number| sum(&slices, pool_number(cluster, number), number))
                .collect();
            Some(SnapshotsHere { volume: volume.to_string(), has })
        });
        Ok(here.collect())
    }

    /// Deletes a snapshot. Its copies free its space in the background, those of nodes that are down when
    /// they return.
    ///
    /// # Errors
    /// It is not found; [`ControlError::SnapshotHeld`], [`ControlError::SnapshotPreparing`],
    /// [`ControlError::SnapshotRestored`], [`ControlError::SnapshotHasClones`]; those of the record.
    pub async fn delete_snapshot(self: &Rc<Control>, name: &str) -> Result<()> {
        let SnapshotEntry { number, name, state, .. } = self.snapshot(name)?.entry;
        if state == SnapshotState::Deleting {
            return Ok(());
        }
        self.change(Doing::DeleteSnapshot.of(&name), NOTHING, move |control, changing| async move {
            changing.waits_for(WaitsFor::ClusterRecord);
            let reconciler = control.reconciler()?;
            let deleted = control.change_snapshot(number, |entry| {
                check_deletable(&reconciler, entry)?;
                let next = SnapshotEntry { state: SnapshotState::Deleting, ..entry.clone() };
                Ok((entry.state != SnapshotState::Deleting).then_some(next))
            });
            deleted.await.map(drop)
        })
        .await
    }

    /// Checks, without doing it, whether a snapshot could be deleted.
    ///
    /// # Errors
    /// As [`Control::delete_snapshot`], except those of the record.
    pub fn check_snapshot_deletion(&self, name: &str) -> Result<SnapshotStatus> {
        let status = self.snapshot(name)?;
        check_deletable(self.reconciler()?.as_ref(), &status.entry)?;
        Ok(status)
    }

    /// Changes the entry of a snapshot, and tries again if another change was faster; `None` leaves it as it
    /// is. An entry without volumes is removed. One that exists is only deleted if no clone was begun since
    /// `change` has looked. Returns what the record has then.
    async fn change_snapshot(
        &self,
        number: u32,
        change: impl Fn(&SnapshotEntry) -> Result<Option<SnapshotEntry>>,
    ) -> Result<SnapshotEntry> {
        let reconciler = self.reconciler()?;
        let mut tries = 0;
        loop {
            tries += 1;
            let entry = numbered(&reconciler, number);
            let (entry, revision) =
                entry.ok_or_else(|| ControlError::not_found("snapshot", &number.to_string()))?;
            let Some(next) = change(&entry)? else { return Ok(entry) };
            let (key, next_key) = (entry.key(), next.key());
            let mut transaction = Reconciler::transaction().expect(&key, Some(revision));
            let (clones, begun) = no_new_clone(&reconciler);
            if (entry.state, next.state) == (SnapshotState::Complete, SnapshotState::Deleting) {
                transaction = transaction.expect(&clones, begun);
            }
            if key != next_key || next.volumes.is_empty() {
                transaction = transaction.delete(&key);
            }
            if !next.volumes.is_empty() {
                transaction = transaction.put(&next_key, json(&next));
            } else if entry.state == SnapshotState::Deleting {
                transaction = remember_deleted(&reconciler, &entry, transaction);
            }
            match reconciler.commit(transaction).await {
                Err(ClusterError::Conflict(conflict)) if tries < TRIES_MAX => {
                    let (changed, before) = match conflict == clones {
                        true => (&clones, begun),
                        false => (&key, Some(revision)),
                    };
                    reconciler.until_changed(TIDY_EVERY, changed, before).await;
                }
                result => return Ok(result.map(|()| next)?),
            }
        }
    }

    /// Checks that a volume has no snapshots, before it becomes something that cannot have them.
    ///
    /// # Errors
    /// [`ControlError::HasSnapshots`]; [`ControlError::HasClones`]: its pool has come from another cluster,
    /// which had the snapshot.
    pub(super) fn check_no_snapshots(&self, id: VolumeId, name: &str) -> Result<()> {
        let Ok(reconciler) = self.reconciler() else { return Ok(()) };
        let id = id.to_string();
        match all(&reconciler).iter().filter(|entry| entry.counts_for(&id)).count() {
            0 => check_volume_not_cloned(&reconciler, &id, name),
            count => Err(ControlError::HasSnapshots { volume: name.to_owned(), count }),
        }
    }
}

/// Checks that no snapshot is lost with the copy on a node.
///
/// # Errors
/// [`ControlError::OnlyCopyOfSnapshot`].
pub(super) fn check_snapshots_stay(reconciler: &Reconciler, volume: &VolumeEntry, node: u16) -> Result<()> {
    match all(reconciler).into_iter().find(|entry| entry.is_only_on(node, volume)) {
        None => Ok(()),
        Some(SnapshotEntry { name: snapshot, .. }) => {
            Err(ControlError::OnlyCopyOfSnapshot { volume: volume.name.clone(), node, snapshot })
        }
    }
}

/// Checks that the copy on a node can be removed: no snapshot is lost with it, and no clone is read through
/// it.
///
/// # Errors
/// [`ControlError::OnlyCopyOfSnapshot`]; [`ControlError::ReadByClone`].
pub(super) fn check_copy_may_go(reconciler: &Reconciler, volume: &VolumeEntry, node: u16) -> Result<()> {
    check_snapshots_stay(reconciler, volume, node)?;
    check_not_read(reconciler, volume, node)
}

/// Checks that no snapshot of a volume is being taken, and that it is not being restored.
///
/// # Errors
/// [`ControlError::SnapshotPreparing`].
pub(super) fn check_none_preparing(reconciler: &Reconciler, id: &str) -> Result<()> {
    let is_of_it = |entry: &SnapshotEntry| entry.is_under_way() && entry.of(id).is_some();
    let changes: Vec<SnapshotEntry> = reconciler.list(SNAPSHOT_CHANGES);
    match changes.into_iter().find(is_of_it) {
        None => Ok(()),
        Some(entry) => Err(ControlError::SnapshotPreparing(entry.name)),
    }
}

/// For a transaction that no snapshot must have been begun since now: which key must have which revision.
pub(super) fn no_new_snapshot(reconciler: &Reconciler) -> (String, Option<cluster::Revision>) {
    (LAST_SNAPSHOT.to_owned(), reconciler.revision_of(LAST_SNAPSHOT))
}

/// For a transaction that neither a snapshot nor a clone must have been begun since now: which keys must have
/// which revisions.
pub(super) fn nothing_begun(reconciler: &Reconciler) -> [(String, Option<cluster::Revision>); 2] {
    [no_new_snapshot(reconciler), no_new_clone(reconciler)]
}

/// The number of the last snapshot that was begun; 0: none was.
pub(super) fn last_snapshot(reconciler: &Reconciler) -> u32 {
    reconciler.get(LAST_SNAPSHOT).map_or(0, |(number, _)| number)
}

/// All snapshots of the record, in the order of their numbers.
pub(super) fn all(reconciler: &Reconciler) -> Vec<SnapshotEntry> {
    let mut all: Vec<SnapshotEntry> = reconciler.list(SNAPSHOTS);
    all.extend(reconciler.list::<SnapshotEntry>(SNAPSHOT_CHANGES));
    all.sort_by_key(|entry| entry.number);
    all
}

fn numbered(reconciler: &Reconciler, number: u32) -> Option<(SnapshotEntry, cluster::Revision)> {
    SnapshotEntry::keys(number).iter().find_map(|key| reconciler.get(key))
}

/// What a snapshot has of a volume.
///
/// # Errors
/// [`ControlError::NotInSnapshot`].
fn part_of<'a>(snapshot: &'a SnapshotEntry, volume: &VolumeEntry) -> Result<&'a SnapshotOf> {
    let lacks =
        || ControlError::NotInSnapshot { volume: volume.name.clone(), snapshot: snapshot.name.clone() };
    snapshot.of(&volume.id).ok_or_else(lacks)
}

/// The entry of the volume with this identity.
fn volume_entry(reconciler: &Reconciler, id: &str) -> Option<(VolumeEntry, cluster::Revision)> {
    reconciler.get(&volume_key(VolumeId::parse(id)?))
}

/// The copies of a volume that are in sync.
fn in_sync(volume: &VolumeEntry) -> Vec<SnapshotCopy> {
    let in_sync = volume.copies.iter().filter(|copy| copy.standing == StandingEntry::InSync);
    in_sync.map(|copy| SnapshotCopy { node: copy.node, made: copy.made }).collect()
}

/// Adds to a transaction that the record remembers a snapshot as deleted.
fn remember_deleted(reconciler: &Reconciler, entry: &SnapshotEntry, transaction: Transaction) -> Transaction {
    let since = (Shard::current().config().unix_now)();
    let deleted = DeletedSnapshot { number: entry.number, at: entry.at, since };
    let forgotten = deleted.instead_of(reconciler.list(DELETED_SNAPSHOTS));
    let transaction = transaction.put(&deleted.key(), json(&deleted));
    forgotten.iter().fold(transaction, |transaction, forgotten| transaction.delete(&forgotten.key()))
}

fn named(reconciler: &Reconciler, name: &str) -> Result<SnapshotEntry> {
    let found = match name.parse() {
        Ok(number) => numbered(reconciler, number).map(|(entry, _)| entry),
        // The name of one that is being deleted may have been given to another one.
        Err(_) => {
            let found = all(reconciler).into_iter().filter(|entry| entry.name == name);
            found.min_by_key(|entry| entry.state == SnapshotState::Deleting)
        }
    };
    found.ok_or_else(|| ControlError::not_found("snapshot", name))
}

/// The snapshot with this name or number, if it exists.
///
/// # Errors
/// It is not found; [`ControlError::SnapshotPreparing`].
fn complete(reconciler: &Reconciler, name: &str) -> Result<SnapshotEntry> {
    let entry = named(reconciler, name)?;
    match entry.state {
        SnapshotState::Complete => Ok(entry),
        SnapshotState::Deleting => Err(ControlError::not_found("snapshot", name)),
        SnapshotState::Preparing | SnapshotState::Restoring => {
            Err(ControlError::SnapshotPreparing(entry.name))
        }
    }
}

fn check_deletable(reconciler: &Reconciler, entry: &SnapshotEntry) -> Result<()> {
    match entry.state {
        SnapshotState::Preparing | SnapshotState::Restoring => {
            Err(ControlError::SnapshotPreparing(entry.name.clone()))
        }
        SnapshotState::Complete if is_restored_to(reconciler, entry.number) => {
            Err(ControlError::SnapshotRestored(entry.name.clone()))
        }
        SnapshotState::Complete if entry.held => Err(ControlError::SnapshotHeld(entry.name.clone())),
        SnapshotState::Complete => check_no_clones(reconciler, entry.number, &entry.name),
        SnapshotState::Deleting => Ok(()),
    }
}

fn status(reconciler: &Reconciler, entry: SnapshotEntry) -> SnapshotStatus {
    let volumes = entry.volumes.iter().map(|of| {
        let volume = volume_entry(reconciler, &of.id).map(|(volume, _)| volume);
        let copies = volume.iter().flat_map(|volume| status_of_copies(of, volume));
        SnapshotVolume {
            id: of.id.clone(),
            name: volume.as_ref().map_or(&of.name, |volume| &volume.name).clone(),
            size: of.size,
            copies: copies.collect(),
        }
    });
    SnapshotStatus { volumes: volumes.collect(), entry }
}

/// The nodes of a volume's copies, in their order, and whether each copy has the snapshot.
fn status_of_copies(of: &SnapshotOf, volume: &VolumeEntry) -> impl Iterator<Item = (u16, bool)> {
    volume.copies.iter().map(move |copy| {
        let has = |has: &SnapshotCopy| has.node == copy.node && has.is_of(volume);
        (copy.node, of.copies.iter().any(has))
    })
}

/// The nodes of a volume's copies that have the snapshot.
fn nodes_with(of: &SnapshotOf, volume: &VolumeEntry) -> impl Iterator<Item = u16> {
    status_of_copies(of, volume).filter(|(_, has)| *has).map(|(node, _)| node)
}

/// What the slices of this core have, by volume, or those of one volume; `None`: a slice cannot say that at
/// the moment.
async fn snapshots_of_core(of: Option<VolumeId>) -> Vec<(VolumeId, Option<Vec<SnapshotInfo>>)> {
    let units = Shard::current().units();
    let slices = units.iter().filter(|unit| of.is_none_or(|of| unit.id() == of)).flat_map(|unit| {
        let slices = unit.volume().own_slices().filter(|slice| slice.len().0 > 0);
        slices.map(move |slice| (unit.id(), Rc::clone(slice)))
    });
    let found = slices.map(|(id, slice)| async move {
        let found = rt::timeout(KNOWN_WITHIN, slice.layout().snapshots()).await;
        (id, found.ok().and_then(|found| found.ok()))
    });
    rt::join_all(found).await
}

/// The numbers of this cluster's snapshots in a list; `base` is the pools' number of the cluster's snapshot
/// 0.
fn numbers(list: &[SnapshotInfo], base: u64) -> impl Iterator<Item = u32> {
    list.iter().filter_map(move |info| u32::try_from(info.id.checked_sub(base)?).ok())
}

/// What all slices of a copy have of a snapshot together; `None`: one of them does not have it.
fn sum(slices: &[Vec<SnapshotInfo>], id: u64, number: u32) -> Option<SnapshotHere> {
    let at = slices.first()?.iter().find(|info| info.id == id)?.time;
    let (mut frees, mut is_exact) = (0, true);
    for slice in slices {
        let info = slice.iter().find(|info| info.id == id && info.time == at)?;
        frees += info.frees.0;
        is_exact &= info.is_exact;
    }
    Some(SnapshotHere { number, at, frees, is_exact })
}

#[cfg(test)]
mod tests {
    use base::ByteLen;

    use super::*;

    fn info(id: u64, frees: u64, is_exact: bool) -> SnapshotInfo {
        SnapshotInfo { id, time: 0, frees: ByteLen(frees), is_exact }
    }

    #[test]
    fn a_copy_has_what_all_of_its_slices_have() {
        let base = 5 << 32;
        let slices = [
            vec![info(base + 3, 100, true), info(base + 4, 7, false), info(9, 1, true)],
            vec![info(base + 4, 50, true)],
        ];
        assert_eq!(
            numbers(&slices[0], base).collect::<Vec<u32>>(),
            [3, 4],
            "the last one is another cluster's"
        );
        assert_eq!(sum(&slices, base + 3, 3), None);
        let both = SnapshotHere { number: 4, at: 0, frees: 57, is_exact: false };
        assert_eq!(sum(&slices, base + 4, 4), Some(both));
    }
}
