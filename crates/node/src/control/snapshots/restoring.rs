//! Restoring volumes to a snapshot: the node that coordinates, the steps on each node, and what any node does
//! about restores whose coordinator is lost.
//!
//! The steps, and why all copies end at the same state: `docs/why/snapshots.md`, *Restoring*.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base::Instant;
use replica::NodeId;

use super::super::change::WaitsFor;
use super::super::doing::Doing;
use super::super::relocation::{TRIES_MAX, entry_named};
use super::super::turns::NOTHING;
use super::super::{Control, ControlError, Fault, FaultKind, Result};
use super::taking::{
    Beginning, HOLD_MAX, KNOWN_WITHIN, PREPARE_DEADLINE, ask_step, check_volume, not_taken, too_slow,
};
use super::{SnapshotStatus, in_sync, numbered, part_of, volume_entry};
use crate::canary::{Canary, makes};
use crate::copies::{
    Restores, SNAPSHOT_CHANGES, SliceCopy, SnapshotAnswer, SnapshotCopy, SnapshotEntry, SnapshotObstacle,
    SnapshotOf, SnapshotState, SnapshotStep, StandingEntry, VolumeEntry, pool_number, volume_key,
};
use crate::data::VolumeId;
use crate::member::{ClusterError, RECORD_DEADLINE, Reconciler, json};
use crate::shard::{Shard, on_all_cores};

/// How many volumes are restored at a time: one change of the record has all of their entries.
const RESTORE_VOLUMES_MAX: usize = 48;
const _: () = assert!(RESTORE_VOLUMES_MAX + 2 <= cluster::limits::PRECONDITIONS_MAX);
const _: () = assert!(RESTORE_VOLUMES_MAX + 2 <= cluster::limits::WRITES_MAX);

/// How many characters of a snapshot's name are in that of the one which keeps the state before. Names have
/// 63 at most.
const NAME_CHARS: usize = 32;

/// How long a node may take to restore its copies before it is asked again: it continues meanwhile.
const RESTORE_DEADLINE: Duration = Duration::from_secs(2);
/// After which pause a step is tried again, and how long the pauses become.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
const AGAIN_MAX: Duration = Duration::from_millis(500);
/// For how long hosts may be stopped before that is reported.
const REPORTED_AFTER: Duration = Duration::from_secs(5);
/// For how long one node tries to complete a restore. After that, whoever looks after snapshots does.
const COMPLETE_WITHIN: Duration = Duration::from_secs(30);

/// A restore that is asked for.
#[derive(Clone, Debug)]
pub struct RestoreSpec {
    /// The name or number of the snapshot.
    pub snapshot: String,
    /// The names or identities of the volumes; empty: all that the snapshot has.
    pub volumes: Vec<String>,
    /// Whether what the volumes are now is not kept as a snapshot.
    pub discard: bool,
}

/// What a restore would change.
#[derive(Clone, Debug)]
pub struct RestorePlan {
    /// The snapshot.
    pub snapshot: SnapshotEntry,
    /// The volumes.
    pub volumes: Vec<VolumeEntry>,
}

/// A restore that is complete.
#[derive(Clone, Debug)]
pub struct Restored {
    /// The name of the snapshot.
    pub snapshot: String,
    /// The names of the volumes.
    pub volumes: Vec<String>,
    /// The snapshot that has what the volumes were before; `None`: that was discarded, or somebody has
    /// deleted it since.
    pub kept: Option<SnapshotStatus>,
    /// For how long hosts were stopped, in microseconds.
    pub pause_us: u64,
}

/// A volume of a restore, as the record has it.
struct Found {
    key: String,
    entry: VolumeEntry,
    revision: cluster::Revision,
}

/// Why a step failed on a core: of which volume; `None`: it took too long.
type Failed = (VolumeId, Option<SnapshotObstacle>);

fn not_restored(volume: &str, obstacle: SnapshotObstacle) -> ControlError {
    ControlError::NotRestored { volume: volume.to_owned(), node: None, obstacle }
}

/// The error of a step that restores share with snapshots, as one of a restore.
fn of_restore(error: ControlError) -> ControlError {
    match error {
        ControlError::SnapshotNotTaken { volume, node, obstacle } => {
            ControlError::NotRestored { volume, node, obstacle }
        }
        ControlError::SnapshotTooSlow { limit_ms } => ControlError::RestoreTooSlow { limit_ms },
        error => error,
    }
}

impl Control {
    /// What a restore would change.
    ///
    /// # Errors
    /// The restore would be refused: the snapshot or a volume is not found,
    /// [`ControlError::SnapshotPreparing`], [`ControlError::NotInSnapshot`],
    /// [`ControlError::CopyLacksSnapshot`], [`ControlError::NotRestored`].
    pub fn plan_restore(&self, spec: &RestoreSpec) -> Result<RestorePlan> {
        let reconciler = self.reconciler()?;
        let snapshot = super::complete(&reconciler, &spec.snapshot)?;
        let mut wanted = BTreeSet::new();
        for volume in &spec.volumes {
            let (_, entry) = entry_named(&reconciler, volume)?;
            part_of(&snapshot, &entry)?;
            wanted.insert(entry.id);
        }
        let mut volumes = Vec::new();
        for of in snapshot.volumes.iter().filter(|of| wanted.is_empty() || wanted.contains(&of.id)) {
            let entry = volume_entry(&reconciler, &of.id);
            let (entry, _) = entry.ok_or_else(|| ControlError::not_found("volume", &of.name))?;
            check_restorable(&reconciler, &snapshot, &entry)?;
            volumes.push(entry);
        }
        if volumes.len() > RESTORE_VOLUMES_MAX {
            let reason = "at most 48 volumes are restored at a time: name some of them";
            return Err(ControlError::Invalid { field: "volumes", reason });
        }
        Ok(RestorePlan { snapshot, volumes })
    }

    /// Restores volumes to a snapshot, all at one instant and on all copies in sync. Copies that are not in
    /// sync get a full resync.
    ///
    /// What the volumes are now is kept as a snapshot, unless it is discarded. All hosts are stopped
    /// meanwhile, and get a unit attention afterwards.
    ///
    /// # Errors
    /// Those of [`Control::plan_restore`]; [`ControlError::RestoreTooSlow`]; those of other nodes and of the
    /// record: nothing was restored. [`ControlError::RestoreUnfinished`]: it will be. If the record did not
    /// answer, the volumes are restored later, or not at all.
    pub async fn restore_snapshot(self: &Rc<Control>, spec: RestoreSpec) -> Result<Restored> {
        let RestorePlan { snapshot, volumes } = self.plan_restore(&spec)?;
        let names: Vec<String> = volumes.iter().map(|volume| volume.name.clone()).collect();
        let ids: BTreeSet<VolumeId> =
            volumes.iter().filter_map(|volume| VolumeId::parse(&volume.id)).collect();
        let restores = Restores { snapshot: snapshot.number, discards: spec.discard, stopped: false };
        let name = format!("before-restore-of-{}", first_chars(&snapshot.name));
        let work = Doing::RestoreSnapshot.of(&snapshot.name);
        let restored = self.change(work, NOTHING, |control, changing| async move {
            changing.waits_for(WaitsFor::ClusterRecord);
            let reconciler = control.reconciler()?;
            let beginning = Beginning {
                name: &name,
                ids: &ids,
                expires_after: None,
                labels: &BTreeMap::new(),
                restores: Some(restores),
                schedule: None,
            };
            let reserved = control.reserve_snapshot(&reconciler, &beginning).await;
            let (entry, _taking) = reserved.map_err(of_restore)?;
            changing.waits_for(WaitsFor::Nodes(entry.nodes().into_iter().map(|node| node.0).collect()));
            let began = match stop_and_decide(&reconciler, &entry).await {
                Ok(began) => Some(began),
                // If the record did not answer, it may be decided all the same.
                Err(error) => match control.undo_restore(entry.number).await {
                    true => None,
                    false => return Err(of_restore(error)),
                },
            };
            complete(&reconciler, entry.number, began).await?;
            Ok((entry.number, began.map_or(Duration::ZERO, |began| rt::now().since(began))))
        });
        let (number, pause) = restored.await?;
        let kept = self.snapshot(&number.to_string()).ok().filter(|_| !spec.discard);
        let pause_us = pause.as_micros() as u64;
        Ok(Restored { snapshot: snapshot.name, volumes: names, kept, pause_us })
    }

    /// Whether a session of this initiator with a target, from one of these addresses, sees a volume.
    pub fn is_seen(&self, id: VolumeId, target: &str, initiator: &str, addresses: &[IpAddr]) -> bool {
        let access = self.access();
        let maps = access.target(target).map_or(&[][..], |target| &target.maps);
        maps.iter().filter(|map| map.volume == id).any(|map| {
            let host = access.host(map.host.as_str());
            host.is_some_and(|host| addresses.iter().any(|address| host.contains(initiator, *address)))
        })
    }

    /// Volumes whose hosts have been stopped for a restore for too long.
    pub(in crate::control) fn unfinished_restores(&self) -> Vec<Fault> {
        let Ok(reconciler) = self.reconciler() else { return Vec::new() };
        let fault = |(id, age): (VolumeId, Duration)| {
            let volume = reconciler.volume(id)?.entry.name;
            Some(FaultKind::RestoreUnfinished { id: id.to_string(), volume }.lasting(age))
        };
        let stopped = reconciler.stopped_for_restores().into_iter();
        stopped.filter(|(_, age)| *age >= REPORTED_AFTER).filter_map(fault).collect()
    }

    /// Lets hosts continue on volumes that are not restored, unless that is decided already: returns whether
    /// it is.
    pub(super) async fn undo_restore(&self, number: u32) -> bool {
        let Ok(reconciler) = self.reconciler() else { return false };
        for _ in 0..TRIES_MAX {
            let Some((entry, revision)) = numbered(&reconciler, number) else { return false };
            if entry.state != SnapshotState::Preparing {
                return entry.state != SnapshotState::Deleting;
            }
            let mut transaction = Reconciler::transaction().expect(&entry.key(), Some(revision));
            let volumes = entry.volumes.iter().filter_map(|of| find(&reconciler, of));
            for Found { key, entry, revision } in volumes {
                if entry.restoring == Some(number) {
                    let next = VolumeEntry { restoring: None, ..entry };
                    transaction = transaction.expect(&key, Some(revision)).put(&key, json(&next));
                }
            }
            // Copies may have been asked to keep what they were.
            let is_kept = entry.restores.is_some_and(|restores| restores.stopped && !restores.discards);
            let next = SnapshotEntry { state: SnapshotState::Deleting, restores: None, ..entry };
            transaction = match is_kept {
                true => transaction.put(&next.key(), json(&next)),
                false => transaction.delete(&next.key()),
            };
            match reconciler.commit(transaction).await {
                Ok(()) => return false,
                Err(ClusterError::Conflict(key)) => {
                    reconciler.until_changed(AGAIN_AFTER, &key, reconciler.revision_of(&key)).await;
                }
                Err(error) => {
                    // Whoever looks after snapshots tries again.
                    tracing::debug!(number, %error, "a restore that failed is still in the record");
                    return false;
                }
            }
        }
        false
    }

    /// Makes this node's copy of a volume ready to be restored.
    pub(super) async fn prepare_restore(
        self: &Rc<Control>,
        reconciler: &Rc<Reconciler>,
        restores: Restores,
        of: &SnapshotOf,
    ) -> Result<()> {
        if volume_entry(reconciler, &of.id).is_some_and(|(entry, _)| entry.sole) {
            // It would be served without the record, and so in the middle of the restore, after a crash.
            self.make_ready_for_copies(reconciler, &of.id).await?;
        }
        let snapshot = numbered(reconciler, restores.snapshot).map(|(snapshot, _)| snapshot);
        let here = self.snapshots_of_copies(VolumeId::parse(&of.id)).await?;
        let has = here.iter().filter(|here| here.volume == of.id).flat_map(|here| &here.has);
        let is_it = |snapshot: &SnapshotEntry| {
            has.clone().any(|here| (here.number, here.at) == (snapshot.number, snapshot.at))
        };
        match snapshot.is_some_and(|snapshot| is_it(&snapshot)) {
            true => Ok(()),
            false => Err(not_taken(&of.name, SnapshotObstacle::Absent)),
        }
    }

    /// Waits until nothing is under way on this node's copies of volumes for which hosts are stopped.
    pub(super) async fn settle_for_restore(
        &self,
        number: u32,
        volumes: Vec<(String, u64)>,
    ) -> Result<SnapshotAnswer> {
        let entry = self.preparing(number).await?;
        let (volumes, until) = (parsed(&volumes), rt::now() + HOLD_MAX);
        let restore = pool_number(self.reconciler()?.cluster(), number);
        let settled = on_all_cores(move || async move { settle_on_core(&volumes, restore, until).await });
        done(&entry, settled.await)
    }

    /// Restores this node's copies.
    pub(super) async fn restore_here(
        &self,
        number: u32,
        volumes: Vec<(String, u64)>,
    ) -> Result<SnapshotAnswer> {
        let reconciler = self.reconciler()?;
        let entry = || {
            let entry = numbered(&reconciler, number).map(|(entry, _)| entry);
            entry.filter(|entry| entry.state == SnapshotState::Restoring)
        };
        reconciler.until(KNOWN_WITHIN, || entry().is_some()).await;
        let unknown = || ControlError::not_found("snapshot", &number.to_string());
        let entry = entry().ok_or_else(unknown)?;
        let restores = entry.restores.ok_or_else(unknown)?;
        let cluster = reconciler.cluster();
        let (snapshot, restore) = (pool_number(cluster, restores.snapshot), pool_number(cluster, number));
        let volumes = parsed(&volumes);
        let restored =
            on_all_cores(move || async move { restore_on_core(&volumes, snapshot, restore).await });
        done(&entry, restored.await)
    }
}

/// Stops all hosts, has all copies in sync keep what they are now, and has the record decide that they are
/// restored. Returns when hosts were stopped.
async fn stop_and_decide(reconciler: &Rc<Reconciler>, entry: &SnapshotEntry) -> Result<Instant> {
    let (number, nodes) = (entry.number, entry.nodes());
    let prepare =
        nodes.iter().map(|node| ask_step(reconciler, *node, number, SnapshotStep::Prepare, PREPARE_DEADLINE));
    for prepared in rt::join_all(prepare).await {
        prepared?;
    }
    let (stopped, began) = stop_hosts(reconciler, number).await?;
    let until = began + HOLD_MAX;
    let volumes = found(reconciler, &stopped)?;
    if let Some(other) = volumes.iter().find(|of| of.entry.restoring != Some(number)) {
        return Err(not_restored(&other.entry.name, SnapshotObstacle::Changed));
    }
    let kept = settle_and_keep(reconciler, &stopped, &volumes, until);
    rt::timeout_at(until, kept).await.unwrap_or_else(|rt::Elapsed| Err(too_slow()))?;
    decide(reconciler, number, &volumes).await?;
    Ok(began)
}

/// Completes a restore that is decided: has all copies in sync restored, and lets hosts continue. `began` is
/// when hosts were stopped, if that is known.
///
/// # Errors
/// [`ControlError::RestoreUnfinished`]: not in time.
pub(super) async fn complete(reconciler: &Rc<Reconciler>, number: u32, began: Option<Instant>) -> Result<()> {
    let (until, mut pause) = (rt::now() + COMPLETE_WITHIN, AGAIN_AFTER);
    loop {
        let known = numbered(reconciler, number).filter(|(entry, _)| entry.is_under_way());
        let Some((entry, revision)) = known else { return Ok(()) };
        // Otherwise this node has not followed the record to the decision yet.
        if entry.state == SnapshotState::Restoring {
            let Err(error) = restore_all(reconciler, (&entry, revision), began).await else { return Ok(()) };
            tracing::debug!(number, %error, "a restore is not complete yet");
        }
        if rt::now() >= until || reconciler.is_stopping() {
            return Err(ControlError::RestoreUnfinished(entry.name));
        }
        reconciler.until_changed(pause, &entry.key(), Some(revision)).await;
        pause = (pause * 2).min(AGAIN_MAX);
    }
}

/// Whether volumes are being restored to a snapshot, or are about to be: no copy may delete it.
pub(super) fn is_restored_to(reconciler: &Reconciler, number: u32) -> bool {
    let changes = reconciler.list::<SnapshotEntry>(SNAPSHOT_CHANGES);
    changes.iter().any(|entry| entry.is_restore_to(number))
}

fn first_chars(name: &str) -> String {
    name.chars().take(NAME_CHARS).collect()
}

/// Checks that all copies in sync of a volume have a snapshot, and that no copy is about to be in sync.
fn check_restorable(reconciler: &Reconciler, snapshot: &SnapshotEntry, volume: &VolumeEntry) -> Result<()> {
    check_volume(reconciler, volume)?;
    let refuse = |obstacle| Err(not_restored(&volume.name, obstacle));
    if volume.restoring.is_some() {
        return refuse(SnapshotObstacle::Restoring);
    }
    if volume.copies.iter().any(|copy| copy.standing == StandingEntry::Joining) {
        return refuse(SnapshotObstacle::Joining);
    }
    let (in_sync, of) = (in_sync(volume), snapshot.of(&volume.id));
    if in_sync.is_empty() {
        return refuse(SnapshotObstacle::NotServed);
    }
    let has = |copy: &&SnapshotCopy| of.is_some_and(|of| of.copies.contains(copy));
    match in_sync.iter().find(|copy| !has(copy)) {
        None => Ok(()),
        Some(copy) => Err(ControlError::CopyLacksSnapshot {
            volume: volume.name.clone(),
            node: copy.node,
            snapshot: snapshot.name.clone(),
        }),
    }
}

fn find(reconciler: &Reconciler, of: &SnapshotOf) -> Option<Found> {
    let key = VolumeId::parse(&of.id).map(volume_key)?;
    let (entry, revision) = reconciler.get::<VolumeEntry>(&key)?;
    Some(Found { key, entry, revision })
}

/// The volumes of a restore, in its order.
fn found(reconciler: &Reconciler, restore: &SnapshotEntry) -> Result<Vec<Found>> {
    let missing = |of: &SnapshotOf| not_restored(&of.name, SnapshotObstacle::Changed);
    restore.volumes.iter().map(|of| find(reconciler, of).ok_or_else(|| missing(of))).collect()
}

/// The nodes with copies in sync, with their volumes and the epochs of these.
fn members(volumes: &[Found]) -> BTreeMap<NodeId, Vec<(String, u64)>> {
    let mut members: BTreeMap<NodeId, Vec<(String, u64)>> = BTreeMap::new();
    for Found { entry, .. } in volumes {
        for copy in in_sync(entry) {
            members.entry(NodeId(copy.node)).or_default().push((entry.id.clone(), entry.epoch));
        }
    }
    members
}

/// The entry of a restore that is not decided yet.
fn undecided(reconciler: &Reconciler, number: u32) -> Result<(SnapshotEntry, Restores, cluster::Revision)> {
    let entry = numbered(reconciler, number);
    let gone = || ControlError::not_found("snapshot", &number.to_string());
    let (entry, revision) = entry.ok_or_else(gone)?;
    if entry.state != SnapshotState::Preparing {
        let name = entry.volumes.first().map_or("", |of| of.name.as_str());
        return Err(not_restored(name, SnapshotObstacle::Undone));
    }
    let restores = entry.restores.ok_or(ControlError::Internal("a restore of nothing"))?;
    Ok((entry, restores, revision))
}

/// Has the record stop all hosts of the volumes. Returns the restore's entry then, and when that began.
async fn stop_hosts(reconciler: &Reconciler, number: u32) -> Result<(SnapshotEntry, Instant)> {
    let mut tries = 0;
    loop {
        tries += 1;
        let (entry, restores, revision) = undecided(reconciler, number)?;
        let snapshot = numbered(reconciler, restores.snapshot);
        let snapshot = snapshot.filter(|(snapshot, _)| snapshot.state == SnapshotState::Complete);
        let gone = || ControlError::not_found("snapshot", &restores.snapshot.to_string());
        let (snapshot, of_snapshot) = snapshot.ok_or_else(gone)?;
        let volumes = found(reconciler, &entry)?;
        if let Some(sole) = volumes.iter().find(|of| of.entry.sole && tries < TRIES_MAX) {
            // Its node has changed that, and this one has not followed yet.
            reconciler.until_changed(AGAIN_AFTER, &sole.key, Some(sole.revision)).await;
            continue;
        }
        let mut next = SnapshotEntry { restores: Some(Restores { stopped: true, ..restores }), ..entry };
        let mut transaction = Reconciler::transaction()
            .expect(&next.key(), Some(revision))
            .expect(&snapshot.key(), Some(of_snapshot));
        for (of, Found { key, entry, revision }) in next.volumes.iter_mut().zip(volumes) {
            check_restorable(reconciler, &snapshot, &entry)?;
            let in_sync = in_sync(&entry);
            // Others have not prepared for it.
            if entry.sole || in_sync.iter().any(|copy| !of.copies.contains(copy)) {
                return Err(not_restored(&entry.name, SnapshotObstacle::Changed));
            }
            (of.copies, of.size) = (in_sync, entry.size);
            // The epoch ends what commands have locked, and what resyncs are about to conclude.
            let stopped = VolumeEntry { restoring: Some(number), epoch: entry.epoch + 1, ..entry };
            transaction = transaction.expect(&key, Some(revision)).put(&key, json(&stopped));
        }
        let began = rt::now();
        match reconciler.commit(transaction.put(&next.key(), json(&next))).await {
            Ok(()) => return Ok((next, began)),
            Err(ClusterError::Conflict(key)) if tries < TRIES_MAX => {
                reconciler.until_changed(AGAIN_AFTER, &key, reconciler.revision_of(&key)).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits until nothing is under way on any copy in sync, and has each keep what it is then.
async fn settle_and_keep(
    reconciler: &Rc<Reconciler>,
    restore: &SnapshotEntry,
    volumes: &[Found],
    until: Instant,
) -> Result<()> {
    let members = members(volumes);
    let ask = |node, step| ask_step(reconciler, node, restore.number, step, until.since(rt::now()));
    let settle =
        members.iter().map(|(node, volumes)| ask(*node, SnapshotStep::Settle { volumes: volumes.clone() }));
    for settled in rt::join_all(settle).await {
        settled?;
    }
    if restore.restores.is_none_or(|restores| restores.discards) || makes(Canary::RestoreUnkept) {
        return Ok(());
    }
    let mark = members.into_iter().map(|(node, volumes)| {
        let volumes = volumes.into_iter().map(|(id, epoch)| (id, Some(epoch))).collect();
        ask(node, SnapshotStep::Mark { volumes })
    });
    for marked in rt::join_all(mark).await {
        marked?;
    }
    Ok(())
}

/// Has the record decide that the volumes are restored: if a configuration has changed meanwhile, they are
/// not.
async fn decide(reconciler: &Reconciler, number: u32, volumes: &[Found]) -> Result<()> {
    let (entry, _, revision) = undecided(reconciler, number)?;
    let next = SnapshotEntry { state: SnapshotState::Restoring, ..entry };
    let key = next.key();
    let mut transaction = Reconciler::transaction().expect(&key, Some(revision)).put(&key, json(&next));
    for of in volumes {
        transaction = transaction.expect(&of.key, Some(of.revision));
    }
    let committed = reconciler.commit(transaction).await;
    if committed.as_ref().is_err_and(ClusterError::may_be_committed) {
        // Whoever undoes it now waits for the outcome.
        reconciler.until_changed(RECORD_DEADLINE, &key, Some(revision)).await;
    }
    match committed {
        Err(ClusterError::Conflict(_)) => {
            let name = next.volumes.first().map_or("", |of| of.name.as_str());
            Err(not_restored(name, SnapshotObstacle::Changed))
        }
        committed => Ok(committed?),
    }
}

/// Has all copies in sync restored, and then the record let hosts continue, unless a configuration has
/// changed meanwhile.
async fn restore_all(
    reconciler: &Rc<Reconciler>,
    (entry, revision): (&SnapshotEntry, cluster::Revision),
    began: Option<Instant>,
) -> Result<()> {
    let volumes = found(reconciler, entry)?;
    let restore = members(&volumes).into_iter().map(|(node, volumes)| {
        ask_step(reconciler, node, entry.number, SnapshotStep::Restore { volumes }, RESTORE_DEADLINE)
    });
    for restored in rt::join_all(restore).await {
        restored?;
    }
    let mut transaction = Reconciler::transaction().expect(&entry.key(), Some(revision)).delete(&entry.key());
    let mut kept = SnapshotEntry { state: SnapshotState::Complete, restores: None, ..entry.clone() };
    for (of, Found { key, entry, revision }) in kept.volumes.iter_mut().zip(volumes) {
        of.copies.retain(|copy| copy.is_of(&entry));
        let next = VolumeEntry {
            restoring: None,
            restored: Some(kept.number),
            // What was about to be concluded of the former content is not.
            epoch: entry.epoch + 1,
            ..entry
        };
        transaction = transaction.expect(&key, Some(revision)).put(&key, json(&next));
    }
    if entry.restores.is_some_and(|restores| !restores.discards) {
        kept.pause_us = began.map_or(0, |began| rt::now().since(began).as_micros() as u64);
        transaction = transaction.put(&kept.key(), json(&kept));
    }
    Ok(reconciler.commit(transaction).await?)
}

/// The volumes that a step names.
fn parsed(volumes: &[(String, u64)]) -> Arc<[(VolumeId, u64)]> {
    volumes.iter().filter_map(|(id, epoch)| Some((VolumeId::parse(id)?, *epoch))).collect()
}

/// The answer to a step, of which each core has done its part or has failed.
fn done(entry: &SnapshotEntry, by_core: Vec<Result<(), Failed>>) -> Result<SnapshotAnswer> {
    for done in by_core {
        done.map_err(|(id, obstacle)| {
            let id = id.to_string();
            let name = entry.of(&id).map_or(&id, |of| &of.name);
            obstacle.map_or_else(too_slow, |obstacle| not_taken(name, obstacle))
        })?;
    }
    Ok(SnapshotAnswer::Done)
}

/// The copies of this core's slices of these volumes.
fn copies_on_core(volumes: &[(VolumeId, u64)]) -> Result<Vec<(VolumeId, u64, Rc<SliceCopy>)>, Failed> {
    let shard = Shard::current();
    let mut copies = Vec::new();
    for (id, epoch) in volumes {
        let not_served = || (*id, Some(SnapshotObstacle::NotServed));
        let volume = shard.volume(*id).ok_or_else(not_served)?;
        for slice in volume.own_slices().filter(|slice| slice.len().0 > 0) {
            let copy = slice.copy().ok_or_else(not_served)?;
            copies.push((*id, *epoch, Rc::clone(copy)));
        }
    }
    Ok(copies)
}

/// Checks that a copy is in sync in the epoch with which a step comes.
fn check_acts(id: VolumeId, epoch: u64, copy: &SliceCopy) -> Result<(), Failed> {
    match copy.acts_in(epoch) {
        true => Ok(()),
        false => Err((id, Some(SnapshotObstacle::Changed))),
    }
}

async fn settle_on_core(volumes: &[(VolumeId, u64)], restore: u64, until: Instant) -> Result<(), Failed> {
    let copies = copies_on_core(volumes)?;
    let settle = copies.iter().map(|(id, epoch, copy)| async move {
        // This node may not have followed the record that far.
        if !copy.until_acts_in(*epoch, until).await {
            return Err((*id, Some(SnapshotObstacle::Changed)));
        }
        if !copy.stands_still(until).await {
            return Err((*id, None));
        }
        // It would take this restore for one that it has carried out.
        if copy.may_have_restored(restore).await {
            return Err((*id, Some(SnapshotObstacle::Changed)));
        }
        check_acts(*id, *epoch, copy)
    });
    rt::join_all(settle).await.into_iter().collect()
}

/// Restores this core's slices of these volumes. In a later epoch, other copies would be out of sync than
/// those that a copy has noted as missing everything.
async fn restore_on_core(volumes: &[(VolumeId, u64)], snapshot: u64, restore: u64) -> Result<(), Failed> {
    let copies = copies_on_core(volumes)?;
    let all = copies.iter().map(|(id, epoch, copy)| async move {
        let restored = copy.restore(*epoch, snapshot, restore).await;
        restored.map_err(|obstacle| (*id, Some(obstacle)))?;
        check_acts(*id, *epoch, copy)
    });
    rt::join_all(all).await.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_before_has_a_valid_name_whatever_the_snapshot_is_called() {
        let longest = "s".repeat(63);
        let name = format!("before-restore-of-{}-{}", first_chars(&longest), u32::MAX);
        assert!(name.parse::<crate::attach::access::VolumeName>().is_ok(), "{name}");
    }
}
