//! Taking a snapshot of a set of volumes: the node that coordinates, and the steps on each node.
//!
//! The steps, and why they make one instant of it: `docs/why/snapshots.md`, *Taking one*.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base::Instant;
use replica::{Config, NodeId, Standing};
use rt::sync::oneshot;

use super::super::change::WaitsFor;
use super::super::doing::Doing;
use super::super::relocation::TRIES_MAX;
use super::super::tidying::TIDY_EVERY;
use super::super::turns::NOTHING;
use super::super::{Control, ControlError, Result};
use super::properties::{check_expires_after, check_labels};
use super::scheduled::unix_now;
use super::{SnapshotStatus, all, in_sync, numbered, volume_entry};
use crate::attach::access::VolumeName;
use crate::attach::unit::Unit;
use crate::canary::{Canary, makes};
use crate::copies::{
    Answer, Ask, HeldVolume, LAST_SNAPSHOT, OfSchedule, Refused, Restores, SNAPSHOT_PARTS_MAX,
    SNAPSHOT_VOLUMES_MAX, SNAPSHOTS_MAX, SnapshotAnswer, SnapshotEntry, SnapshotObstacle, SnapshotOf,
    SnapshotState, SnapshotStep, VolumeEntry, pool_number, volume_key,
};
use crate::data::{Slice, TakenRange, VolumeId};
use crate::member::{ClusterError, RECORD_DEADLINE, Reconciler, json};
use crate::shard::{Shard, on_all_cores};
use crate::under_way::Begun;

/// How long commands of hosts are held at most for a snapshot.
pub const HOLD_MAX: Duration = Duration::from_millis(500);

/// How long a node may take before hosts are held.
pub(super) const PREPARE_DEADLINE: Duration = Duration::from_secs(20);
/// How long a node may take to let go. It does so by itself after [`HOLD_MAX`].
const RELEASE_DEADLINE: Duration = Duration::from_secs(5);
/// How long a node waits until it has followed the record to the entry of a snapshot.
pub(super) const KNOWN_WITHIN: Duration = Duration::from_secs(2);

/// How late a copy takes a snapshot by mistake ([`Canary::SnapshotLate`]).
const LATE: Duration = Duration::from_millis(20);

/// A snapshot to be taken.
#[derive(Clone, Debug, Default)]
pub struct SnapshotSpec {
    /// Its name.
    pub name: String,
    /// The names or identities of its volumes.
    pub volumes: Vec<String>,
    /// After how many seconds it expires; `None`: never.
    pub expires_after: Option<u64>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

/// A snapshot to be begun.
pub(super) struct Beginning<'a> {
    /// Its name. That of a restore gets its number, too.
    pub name: &'a str,
    /// Its volumes.
    pub ids: &'a BTreeSet<VolumeId>,
    /// After how many seconds it expires.
    pub expires_after: Option<u64>,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
    /// The restore for which it is taken.
    pub restores: Option<Restores>,
    /// The schedule by which it is taken.
    pub schedule: Option<&'a OfSchedule>,
}

/// What a node holds for a snapshot. Commands continue when this is dropped.
pub(super) struct Hold {
    began: Instant,
    /// Everything is held that was requested.
    is_complete: bool,
    _ranges: Vec<(u16, TakenRange)>,
    /// The volumes are not closed meanwhile.
    _units: Vec<Rc<Unit>>,
}

/// What has been taken.
struct Taken {
    held: Vec<HeldVolume>,
    pause_us: u64,
}

pub(super) fn too_slow() -> ControlError {
    ControlError::SnapshotTooSlow { limit_ms: HOLD_MAX.as_millis() as u64 }
}

pub(super) fn not_taken(volume: &str, obstacle: SnapshotObstacle) -> ControlError {
    ControlError::SnapshotNotTaken { volume: volume.to_owned(), node: None, obstacle }
}

impl Control {
    /// Takes a snapshot of all of these volumes at one instant, on all of their copies in sync.
    ///
    /// # Errors
    /// It was not taken: a name is invalid or taken, a label or the expiry is invalid, a volume cannot have
    /// snapshots, [`ControlError::SnapshotNotTaken`], [`ControlError::SnapshotTooSlow`], those of other nodes
    /// and of the record. If the record did not answer, it may have been taken.
    pub async fn create_snapshot(self: &Rc<Control>, spec: SnapshotSpec) -> Result<SnapshotStatus> {
        let number = self.take_set(spec, None).await?;
        self.snapshot(&number.to_string())
    }

    /// As [`Control::create_snapshot`], for a schedule if there is one. Returns the snapshot's number.
    pub(super) async fn take_set(
        self: &Rc<Control>,
        spec: SnapshotSpec,
        schedule: Option<OfSchedule>,
    ) -> Result<u32> {
        let SnapshotSpec { name, volumes, expires_after, labels } = spec;
        check_name(&name)?;
        if let Some(after) = expires_after {
            check_expires_after(after)?;
        }
        check_labels(&labels)?;
        let ids = self.set_of(&volumes)?;
        let doing = if schedule.is_some() { Doing::TakeScheduledSnapshot } else { Doing::TakeSnapshot };
        let number = self.change(doing.of(&name), NOTHING, |control, changing| async move {
            changing.waits_for(WaitsFor::ClusterRecord);
            let reconciler = control.reconciler()?;
            let beginning = Beginning {
                name: &name,
                ids: &ids,
                expires_after,
                labels: &labels,
                restores: None,
                schedule: schedule.as_ref(),
            };
            let (entry, _taking) = control.reserve_snapshot(&reconciler, &beginning).await?;
            changing.waits_for(WaitsFor::Nodes(entry.nodes().into_iter().map(|node| node.0).collect()));
            let is_marked = Cell::new(false);
            let taken = control.take_snapshot(&reconciler, &entry, &is_marked).await;
            changing.waits_for(WaitsFor::ClusterRecord);
            let completed = match taken {
                Ok(taken) => complete(&reconciler, &entry, taken).await,
                Err(error) => Err(error),
            };
            let Err(error) = completed else { return Ok(entry.number) };
            // If the record did not answer, it may have been completed all the same.
            if control.undo_snapshot(entry.number, is_marked.get()).await {
                Ok(entry.number)
            } else {
                Err(error)
            }
        });
        number.await
    }

    /// The volumes of a set, as far as they can have a snapshot.
    pub(super) fn set_of(&self, volumes: &[String]) -> Result<BTreeSet<VolumeId>> {
        let reconciler = self.reconciler()?;
        let mut ids = BTreeSet::new();
        for volume in volumes {
            let (id, entry) = self.replicated(&reconciler, volume)?;
            reconciler.check_entry(&volume_key(id))?;
            check_volume(&reconciler, &entry)?;
            ids.insert(id);
        }
        match ids.len() {
            1..=SNAPSHOT_VOLUMES_MAX => Ok(ids),
            _ => {
                let reason = "a snapshot has 1 to 128 volumes";
                Err(ControlError::Invalid { field: "volumes", reason })
            }
        }
    }

    /// Writes the entry of a new snapshot. It is this node's as long as the second result exists.
    pub(super) async fn reserve_snapshot(
        &self,
        reconciler: &Reconciler,
        beginning: &Beginning<'_>,
    ) -> Result<(SnapshotEntry, Begun<u32>)> {
        let mut tries = 0;
        loop {
            let last = reconciler.get::<u32>(LAST_SNAPSHOT);
            let revision = reconciler.revision_of(LAST_SNAPSHOT);
            if last.is_none() && revision.is_some() {
                return Err(ClusterError::Unreadable(LAST_SNAPSHOT.to_owned()).into());
            }
            let number = last.map_or(0, |(number, _)| number).checked_add(1);
            let number = number.ok_or(ControlError::Internal("the numbers of snapshots are used up"))?;
            let entry = new_entry(reconciler, number, beginning)?;
            let Some(taking) = self.snapshots.taking.begin(number) else {
                // Another request to this node is just getting the number.
                reconciler.until_changed(TIDY_EVERY, LAST_SNAPSHOT, revision).await;
                continue;
            };
            tries += 1;
            let transaction = Reconciler::transaction()
                .expect(LAST_SNAPSHOT, revision)
                .expect(&entry.key(), None)
                .put(LAST_SNAPSHOT, json(&number))
                .put(&entry.key(), json(&entry));
            match reconciler.commit(transaction).await {
                Ok(()) => return Ok((entry, taking)),
                Err(ClusterError::Conflict(_)) if tries < TRIES_MAX => {
                    drop(taking);
                    reconciler.until_changed(TIDY_EVERY, LAST_SNAPSHOT, revision).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes the snapshot on all copies, while no command of a host is under way on any of them. Before the
    /// first copy is asked to take it, sets `is_marked`.
    async fn take_snapshot(
        self: &Rc<Control>,
        reconciler: &Rc<Reconciler>,
        entry: &SnapshotEntry,
        is_marked: &Cell<bool>,
    ) -> Result<Taken> {
        let number = entry.number;
        let ask = |node, step, deadline| ask_step(reconciler, node, number, step, deadline);
        let nodes = entry.nodes();
        let prepare = nodes.iter().map(|node| ask(*node, SnapshotStep::Prepare, PREPARE_DEADLINE));
        for prepared in rt::join_all(prepare).await {
            prepared?;
        }
        let holders = holders(reconciler, entry)?;
        let until = rt::now() + HOLD_MAX;
        let marked =
            rt::timeout_at(until, hold_and_mark(reconciler, entry, &holders, (until, is_marked))).await;
        // In any case, and before anything else: hosts wait.
        let release = holders.keys().map(|node| ask(*node, SnapshotStep::Release, RELEASE_DEADLINE));
        let released = rt::join_all(release).await;
        let held = marked.unwrap_or_else(|rt::Elapsed| Err(too_slow()))?;
        let mut longest = 0;
        for released in released {
            match released? {
                SnapshotAnswer::Released { was_held: true, pause_us } => longest = longest.max(pause_us),
                _ => return Err(too_slow()),
            }
        }
        Ok(Taken { held, pause_us: longest })
    }

    /// Lets a snapshot that is being taken not exist. Its copies delete it if they may have been asked to
    /// take it (`is_marked`). Returns whether it has been completed all the same.
    pub(super) async fn undo_snapshot(&self, number: u32, is_marked: bool) -> bool {
        let undone = self.change_snapshot(number, |entry| {
            let mut next = SnapshotEntry { state: SnapshotState::Deleting, ..entry.clone() };
            next.volumes.retain(|_| is_marked);
            Ok((entry.state == SnapshotState::Preparing).then_some(next))
        });
        match undone.await {
            Ok(entry) => entry.state == SnapshotState::Complete,
            Err(error) => {
                // Whoever looks after snapshots tries again.
                tracing::debug!(number, %error, "a snapshot that was not taken is still in the record");
                false
            }
        }
    }

    /// Does a step of a snapshot that another node coordinates, or this one.
    pub(in crate::control) async fn do_snapshot_step(
        self: &Rc<Control>,
        number: u32,
        step: SnapshotStep,
    ) -> Result<SnapshotAnswer> {
        match step {
            SnapshotStep::Prepare => self.prepare_snapshot(number).await,
            SnapshotStep::Hold { ids } => self.hold_for_snapshot(number, ids).await,
            SnapshotStep::Mark { volumes } => self.mark_snapshot(number, volumes).await,
            SnapshotStep::Release => Ok(self.release_snapshot(number)),
            SnapshotStep::Settle { volumes } => self.settle_for_restore(number, volumes).await,
            SnapshotStep::Restore { volumes } => self.restore_here(number, volumes).await,
        }
    }

    /// Waits until this node has followed the record to the entry of a snapshot that is being taken.
    pub(super) async fn preparing(&self, number: u32) -> Result<SnapshotEntry> {
        let reconciler = self.reconciler()?;
        let entry = || numbered(&reconciler, number).map(|(entry, _)| entry);
        reconciler.until(KNOWN_WITHIN, || entry().is_some()).await;
        let is_wanted = |entry: &SnapshotEntry| entry.state == SnapshotState::Preparing;
        let entry = entry().filter(is_wanted);
        entry.ok_or_else(|| ControlError::not_found("snapshot", &number.to_string()))
    }

    async fn prepare_snapshot(self: &Rc<Control>, number: u32) -> Result<SnapshotAnswer> {
        let (entry, reconciler) = (self.preparing(number).await?, self.reconciler()?);
        let me = reconciler.me();
        let mine = entry.volumes.iter().filter(|of| of.copies.iter().any(|copy| copy.node == me.0));
        for of in mine {
            let info = self.volume_named(&of.id).map(|(_, info)| info);
            let info = info.map_err(|_| not_taken(&of.name, SnapshotObstacle::NotServed))?;
            if !info.kind.has_snapshots() || info.converting.is_some() {
                return Err(not_taken(&of.name, SnapshotObstacle::Converting));
            }
            let volume = Shard::current().volume(info.id);
            let volume = volume.ok_or_else(|| not_taken(&of.name, SnapshotObstacle::NotServed))?;
            volume.flush().await.map_err(|_| not_taken(&of.name, SnapshotObstacle::Failed))?;
            if let Some(restores) = entry.restores {
                self.prepare_restore(&reconciler, restores, of).await?;
            }
        }
        Ok(SnapshotAnswer::Done)
    }

    async fn hold_for_snapshot(self: &Rc<Control>, number: u32, ids: Vec<String>) -> Result<SnapshotAnswer> {
        // It has prepared this. A question that comes late holds nobody.
        let entry = self.preparing(number).await?;
        let name = |id: &String| entry.of(id).map_or(id, |of| &of.name).clone();
        let size = |id: &str| entry.of(id).map_or(0, |of| of.size);
        let began = rt::now();
        let until = began + HOLD_MAX;
        let hold = Hold { began, is_complete: false, _ranges: Vec::new(), _units: Vec::new() };
        self.snapshots.held.borrow_mut().insert(number, hold);
        let control = Rc::clone(self);
        rt::spawn(async move {
            rt::sleep_until(until).await;
            control.release_snapshot(number);
        })
        .detach();
        let me = self.reconciler()?.me();
        let hold = ids.iter().map(|id| {
            let size = size(id.as_str());
            async move { (id, hold_volume(me, id, size, until).await) }
        });
        let all = rt::timeout_at(until, rt::join_all(hold)).await.ok().filter(|_| rt::now() < until);
        let (mut volumes, mut ranges, mut units) = (Vec::new(), Vec::new(), Vec::new());
        for (id, held) in all.ok_or_else(too_slow)? {
            let (volume, of_volume, unit) = held.map_err(|obstacle| not_taken(&name(id), obstacle))?;
            volumes.push(volume);
            ranges.extend(of_volume);
            units.push(unit);
        }
        // It may have been released meanwhile.
        match self.snapshots.held.borrow_mut().get_mut(&number) {
            Some(hold) => *hold = Hold { began, is_complete: true, _ranges: ranges, _units: units },
            None => return Err(too_slow()),
        }
        Ok(SnapshotAnswer::Held(volumes))
    }

    fn release_snapshot(&self, number: u32) -> SnapshotAnswer {
        let hold = self.snapshots.held.borrow_mut().remove(&number);
        let was_held = hold.as_ref().is_some_and(|hold| hold.is_complete);
        let pause = hold.as_ref().map_or(Duration::ZERO, |hold| rt::now().since(hold.began));
        SnapshotAnswer::Released { was_held, pause_us: pause.as_micros() as u64 }
    }

    /// Takes the snapshot on this node's copies.
    ///
    /// It runs to its end, whoever waits for it: until then, nobody here deletes the snapshot.
    async fn mark_snapshot(
        self: &Rc<Control>,
        number: u32,
        volumes: Vec<(String, Option<u64>)>,
    ) -> Result<SnapshotAnswer> {
        let Some(marking) = self.snapshots.marking.begin(number) else {
            return Err(ControlError::Internal("a snapshot is taken twice on one node"));
        };
        let (control, (ended, result)) = (Rc::clone(self), oneshot());
        rt::spawn(async move {
            let marked = control.mark_here(number, volumes).await;
            drop(marking);
            ended.send(marked);
        })
        .detach();
        result.await.unwrap_or(Err(ControlError::Internal("a core is being torn down")))
    }

    async fn mark_here(&self, number: u32, volumes: Vec<(String, Option<u64>)>) -> Result<SnapshotAnswer> {
        let entry = self.preparing(number).await?;
        let of = |(id, epoch): (String, Option<u64>)| Some((VolumeId::parse(&id)?, epoch));
        let volumes: Option<Vec<_>> = volumes.into_iter().map(of).collect();
        let volumes = volumes.ok_or(ControlError::Internal("a snapshot of a volume without identity"))?;
        let volumes: Arc<[_]> = volumes.into();
        let (id, time) = (pool_number(self.reconciler()?.cluster(), number), entry.at);
        let mark = move || async move { mark_on_core(&volumes, id, time).await };
        if makes(Canary::SnapshotLate) {
            rt::spawn(async move {
                rt::sleep(LATE).await;
                drop(on_all_cores(mark).await);
            })
            .detach();
            return Ok(SnapshotAnswer::Done);
        }
        for marked in on_all_cores(mark).await {
            marked.map_err(|(id, obstacle)| {
                let id = id.to_string();
                not_taken(entry.of(&id).map_or(&id, |of| &of.name), obstacle)
            })?;
        }
        Ok(SnapshotAnswer::Done)
    }
}

/// Checks that a snapshot can have this name: it must not be mistaken for a number.
pub(super) fn check_name(name: &str) -> Result<()> {
    let _valid: VolumeName = name.parse()?;
    match name.bytes().all(|byte| byte.is_ascii_digit()) {
        false => Ok(()),
        true => {
            let reason = "a name needs at least one character that is not a digit";
            Err(ControlError::Invalid { field: "name", reason })
        }
    }
}

/// Checks that a volume can have snapshots.
pub(super) fn check_volume(reconciler: &Reconciler, entry: &VolumeEntry) -> Result<()> {
    if !entry.shape.kind.has_snapshots() {
        return Err(ControlError::NoSnapshotsOfKind(entry.name.clone()));
    }
    match reconciler.fork_of(entry) {
        Some(_) => Err(ControlError::Forked(entry.name.clone())),
        None => Ok(()),
    }
}

/// Checks that the record has room for one more snapshot of this many volumes.
fn check_room(known: &[SnapshotEntry], volumes: usize) -> Result<()> {
    let parts = known.iter().map(|entry| entry.volumes.len()).sum::<usize>() + volumes;
    if known.len() >= SNAPSHOTS_MAX {
        return Err(ControlError::TooMany { kind: "snapshot", most: SNAPSHOTS_MAX });
    }
    if parts > SNAPSHOT_PARTS_MAX {
        return Err(ControlError::TooMany { kind: "volumes in snapshot", most: SNAPSHOT_PARTS_MAX });
    }
    Ok(())
}

/// The entry of a snapshot that is about to be taken.
fn new_entry(reconciler: &Reconciler, number: u32, beginning: &Beginning<'_>) -> Result<SnapshotEntry> {
    let Beginning { name, ids, expires_after, labels, restores, schedule } = *beginning;
    let name = restores.map_or_else(|| name.to_owned(), |_| format!("{name}-{number}"));
    let known = all(reconciler);
    let is_there = |entry: &&SnapshotEntry| entry.state != SnapshotState::Deleting;
    if known.iter().filter(is_there).any(|entry| entry.name == name) {
        return Err(ControlError::Exists { kind: "snapshot", name });
    }
    // The node had lost the turn, and another one has taken it.
    let same = |of: &OfSchedule| known.iter().filter(is_there).find(|it| it.schedule.as_ref() == Some(of));
    if let Some(other) = schedule.and_then(same) {
        return Err(ControlError::Exists { kind: "snapshot", name: other.name.clone() });
    }
    check_room(&known, ids.len())?;
    let under_way = |id: &str| known.iter().find(|entry| entry.is_under_way() && entry.of(id).is_some());
    let mut volumes = Vec::new();
    for id in ids {
        let entry = reconciler.get::<VolumeEntry>(&volume_key(*id));
        let (entry, _) = entry.ok_or_else(|| ControlError::not_found("volume", &id.to_string()))?;
        check_volume(reconciler, &entry)?;
        if let Some(other) = under_way(&entry.id) {
            let restoring = other.restores.map(|_| SnapshotObstacle::Restoring);
            return Err(not_taken(&entry.name, restoring.unwrap_or(SnapshotObstacle::UnderWay)));
        }
        let copies = in_sync(&entry);
        if copies.is_empty() {
            return Err(not_taken(&entry.name, SnapshotObstacle::NotServed));
        }
        let of = SnapshotOf { id: entry.id.clone(), name: entry.name.clone(), size: entry.size, copies };
        if !of.has_it(&entry) {
            return Err(not_taken(&entry.name, SnapshotObstacle::Moving));
        }
        volumes.push(of);
    }
    let at = unix_now();
    Ok(SnapshotEntry {
        number,
        name,
        at,
        node: reconciler.me().0,
        incarnation: reconciler.incarnation().0,
        state: SnapshotState::Preparing,
        volumes,
        pause_us: 0,
        held: false,
        expires: expires_after.map(|after| at.saturating_add(after)),
        labels: labels.clone(),
        restores,
        schedule: schedule.cloned(),
    })
}

/// Which node holds which volumes: one with a copy in sync, this one if possible.
fn holders(reconciler: &Reconciler, entry: &SnapshotEntry) -> Result<BTreeMap<NodeId, Vec<String>>> {
    let mut holders: BTreeMap<NodeId, Vec<String>> = BTreeMap::new();
    for of in &entry.volumes {
        let nodes = || of.copies.iter().map(|copy| NodeId(copy.node));
        let node = nodes().find(|node| *node == reconciler.me());
        let node = node.or_else(|| nodes().find(|node| reconciler.hears(*node)));
        let node = node.ok_or_else(|| not_taken(&of.name, SnapshotObstacle::NotServed))?;
        holders.entry(node).or_default().push(of.id.clone());
    }
    Ok(holders)
}

/// Holds all volumes, and takes the snapshot on all copies in sync.
async fn hold_and_mark(
    reconciler: &Rc<Reconciler>,
    entry: &SnapshotEntry,
    holders: &BTreeMap<NodeId, Vec<String>>,
    (until, is_marked): (Instant, &Cell<bool>),
) -> Result<Vec<HeldVolume>> {
    let ask = |node, step| ask_step(reconciler, node, entry.number, step, until.since(rt::now()));
    let hold = holders.iter().map(|(node, ids)| ask(*node, SnapshotStep::Hold { ids: ids.clone() }));
    let mut all = Vec::new();
    for held in rt::join_all(hold).await {
        if let SnapshotAnswer::Held(held) = held? {
            all.extend(held);
        }
    }
    let mut marks: BTreeMap<NodeId, Vec<(String, Option<u64>)>> = BTreeMap::new();
    for of in &entry.volumes {
        let held = all.iter().find(|held| held.id == of.id).filter(|held| !held.nodes.is_empty());
        let held = held.ok_or_else(|| not_taken(&of.name, SnapshotObstacle::NotServed))?;
        for node in &held.nodes {
            // Only the copies that the entry names delete it if it is undone.
            if !of.copies.iter().any(|copy| copy.node == *node) {
                return Err(not_taken(&of.name, SnapshotObstacle::Changed));
            }
            marks.entry(NodeId(*node)).or_default().push((of.id.clone(), held.epoch));
        }
    }
    is_marked.set(true);
    let mark = marks.into_iter().map(|(node, volumes)| ask(node, SnapshotStep::Mark { volumes }));
    for marked in rt::join_all(mark).await {
        marked?;
    }
    Ok(all)
}

/// Asks a node, which may be this one, for a step of a snapshot.
pub(super) async fn ask_step(
    reconciler: &Rc<Reconciler>,
    node: NodeId,
    number: u32,
    step: SnapshotStep,
    deadline: Duration,
) -> Result<SnapshotAnswer> {
    let ask = Ask::Snapshot { number, step };
    let unanswered = ClusterError::Unanswered { node, after: deadline };
    let answer = reconciler.ask_within(node, ask, deadline);
    // A step on this node has no deadline of its own.
    match rt::timeout(deadline, answer).await.unwrap_or(Err(unanswered)) {
        Ok(Answer::Snapshot(answer)) => Ok(answer),
        Ok(_) => Err(ClusterError::Strange(node).into()),
        Err(ClusterError::Refused { node, reason: Refused::NoSnapshot { volume, obstacle } }) => {
            Err(ControlError::SnapshotNotTaken { volume, node: Some(node.0), obstacle })
        }
        Err(ClusterError::Refused { reason: Refused::SnapshotTooSlow, .. }) => Err(too_slow()),
        Err(ClusterError::Unanswered { .. }) if deadline <= HOLD_MAX => Err(too_slow()),
        Err(error) => Err(error.into()),
    }
}

/// Makes a snapshot exist that all copies in sync have.
async fn complete(reconciler: &Reconciler, entry: &SnapshotEntry, taken: Taken) -> Result<()> {
    let key = entry.key();
    let now = reconciler.get::<SnapshotEntry>(&key);
    let now = now.filter(|(now, _)| now.state == SnapshotState::Preparing);
    let undone =
        || not_taken(entry.volumes.first().map_or("", |of| of.name.as_str()), SnapshotObstacle::Undone);
    let (now, revision) = now.ok_or_else(undone)?;
    let mut next = SnapshotEntry { state: SnapshotState::Complete, pause_us: taken.pause_us, ..now };
    for of in &mut next.volumes {
        let held = taken.held.iter().find(|held| held.id == of.id);
        of.copies.retain(|copy| held.is_some_and(|held| held.nodes.contains(&copy.node)));
        // What has changed since the entry was written depends on it.
        let volume = volume_entry(reconciler, &of.id);
        if volume.is_none_or(|(volume, _)| !volume.shape.kind.has_snapshots() || !of.has_it(&volume)) {
            return Err(not_taken(&of.name, SnapshotObstacle::Changed));
        }
    }
    let transaction =
        Reconciler::transaction().expect(&key, Some(revision)).delete(&key).put(&next.key(), json(&next));
    let committed = reconciler.commit(transaction).await;
    if committed.as_ref().is_err_and(ClusterError::may_be_committed) {
        // Whoever undoes it now waits for the outcome.
        reconciler.until_changed(RECORD_DEADLINE, &key, Some(revision)).await;
    }
    match committed {
        Err(ClusterError::Conflict(_)) => Err(undone()),
        committed => Ok(committed?),
    }
}

/// Holds a volume on all members, and waits until all of them have the same. Gives up at `until`.
async fn hold_volume(
    me: NodeId,
    id: &str,
    size: u64,
    until: Instant,
) -> Result<(HeldVolume, Vec<(u16, TakenRange)>, Rc<Unit>), SnapshotObstacle> {
    let unit = VolumeId::parse(id).and_then(|id| Shard::current().unit(id));
    let unit = unit.ok_or(SnapshotObstacle::NotServed)?;
    let volume = unit.volume();
    // It has grown, and this core does not know that yet.
    if (volume.blocks() * volume.block_size()).0 < size {
        return Err(SnapshotObstacle::Changed);
    }
    let mut ranges = volume.take_all(until).await.map_err(|_| SnapshotObstacle::NotServed)?;
    let mut found: Option<Option<Config>> = None;
    for (slice, _) in &ranges {
        let config = volume.on_owner(*slice, |slice| async move { Ok(settled_config(&slice).await) });
        // Without a configuration, it is not in sync any more.
        let config = config.await.ok().flatten().ok_or(SnapshotObstacle::NotServed)?;
        if found.as_ref().is_some_and(|found| *found != config) {
            return Err(SnapshotObstacle::Changed);
        }
        found = Some(config);
    }
    if makes(Canary::SnapshotUnheld) {
        ranges.clear();
    }
    let Some(config) = found.flatten() else {
        let held = HeldVolume { id: id.to_owned(), epoch: None, nodes: vec![me.0] };
        return Ok((held, ranges, unit));
    };
    if !config.joining().is_empty() {
        return Err(SnapshotObstacle::Joining);
    }
    let in_sync = config.copies().filter(|(_, copy)| matches!(copy.standing, Standing::InSync(_)));
    let nodes = in_sync.map(|(_, copy)| copy.node.0).collect();
    let held = HeldVolume { id: id.to_owned(), epoch: Some(config.epoch.0), nodes };
    Ok((held, ranges, unit))
}

/// The configuration in which the copy of a slice is in sync and has nothing to finish; `Some(None)`: no
/// other node has a copy.
async fn settled_config(slice: &Slice) -> Option<Option<Config>> {
    let Some(copy) = slice.copy() else { return Some(None) };
    if !copy.settled().await {
        return None;
    }
    copy.in_sync_config().map(Some)
}

/// Takes a snapshot on this core's slices of these volumes: each must act in the epoch with which it comes.
async fn mark_on_core(
    volumes: &[(VolumeId, Option<u64>)],
    id: u64,
    time: u64,
) -> Result<(), (VolumeId, SnapshotObstacle)> {
    let shard = Shard::current();
    let mut begun = Vec::new();
    for (of, epoch) in volumes {
        let volume = shard.volume(*of).ok_or((*of, SnapshotObstacle::NotServed))?;
        for slice in volume.own_slices().filter(|slice| slice.len().0 > 0) {
            let new = slice
                .layout()
                .begin_snapshot(id, time)
                .await
                .map_err(|error| (*of, SnapshotObstacle::from(error)))?;
            // In the step in which it has begun. In a later epoch, hosts may have written here already.
            if acts_in(slice) != Some(*epoch) {
                return Err((*of, SnapshotObstacle::Changed));
            }
            begun.push((*of, new));
        }
    }
    let settle = begun.into_iter().map(|(of, new)| async move {
        new.settle().await.map_err(|error| (of, SnapshotObstacle::from(error)))
    });
    rt::join_all(settle).await.into_iter().collect()
}

/// The epoch in which the copy of a slice is in sync; `Some(None)`: no other node has a copy.
fn acts_in(slice: &Slice) -> Option<Option<u64>> {
    match slice.copy() {
        None => Some(None),
        Some(copy) => copy.in_sync_config().map(|config| Some(config.epoch.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_do_not_fill_the_record() {
        let of = SnapshotOf { id: "id".into(), name: "db".into(), size: 1 << 20, copies: Vec::new() };
        let of_volumes = |volumes: usize| SnapshotEntry {
            number: 1,
            name: "first".into(),
            at: 0,
            node: 1,
            incarnation: 1,
            state: SnapshotState::Complete,
            volumes: vec![of.clone(); volumes],
            pause_us: 0,
            held: false,
            expires: None,
            labels: BTreeMap::new(),
            restores: None,
            schedule: None,
        };
        let too_many = |known: &[SnapshotEntry], volumes| match check_room(known, volumes) {
            Err(ControlError::TooMany { kind, most }) => Some((kind, most)),
            _ => None,
        };
        let small = vec![of_volumes(1); SNAPSHOTS_MAX];
        assert_eq!(too_many(&small[1..], 1), None);
        assert_eq!(too_many(&small, 1), Some(("snapshot", SNAPSHOTS_MAX)));
        let large = vec![of_volumes(SNAPSHOT_VOLUMES_MAX); SNAPSHOT_PARTS_MAX / SNAPSHOT_VOLUMES_MAX - 1];
        assert_eq!(too_many(&large, SNAPSHOT_VOLUMES_MAX), None);
        assert_eq!(
            too_many(&[large, vec![of_volumes(1)]].concat(), SNAPSHOT_VOLUMES_MAX),
            Some(("volumes in snapshot", SNAPSHOT_PARTS_MAX))
        );
    }

    #[test]
    fn a_name_is_not_a_number() {
        for name in ["before-upgrade", "2026-11-29T21.50", "7a"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", "7", "20261129", "a b", "db@a", "-a"] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
