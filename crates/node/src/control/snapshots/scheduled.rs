//! Snapshots by schedule: what each node does automatically. Any node can take one, and delete those that are
//! not kept; it first takes the cluster's turn.
//!
//! Why one is taken for each time, whatever nodes fail: `docs/why/snapshots.md`, *Schedules*.

use std::rc::Rc;
use std::time::Duration;

use cluster::Transaction;
use replica::{NodeId, Revision};

use super::super::change::CHANGE_DEADLINE;
use super::super::{Control, ControlError, Fault, FaultKind, Result};
use super::calendar::{stamp, utc};
use super::clones::{Clones, no_new_clone};
use super::retention::{Kept, expired};
use super::schedule::Own;
use super::{SnapshotSpec, all, check_deletable, numbered, schedule};
use crate::copies::{
    FailedAttempt, NodeEntry, OfSchedule, SNAPSHOT_SCHEDULES, SNAPSHOT_TURN, ScheduleEntry, ScheduleObstacle,
    ScheduledSnapshot, SnapshotEntry, SnapshotState, SnapshotTurn, node_key, snapshot_schedule_key,
};
use crate::events::code::SNAPSHOT_SCHEDULE_RECOVERED;
use crate::events::{Event, tell};
use crate::member::{ClusterError, Reconciler, json};
use crate::shard::Shard;

/// After how many seconds another node may take the turn although the node that has it is up.
const TURN_SECONDS_MAX: u64 = 300;

const _: () = assert!(
    TURN_SECONDS_MAX > 2 * CHANGE_DEADLINE.as_secs(),
    "a node that takes a snapshot keeps the turn, unless its clock or the record is at fault"
);

/// A time in which nothing is due, if the record does not change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quiet {
    /// The revision by which this node acts.
    pub(super) known: Revision,
    /// In seconds since 1970, as `until`, which is not part of it.
    pub(super) from: u64,
    pub(super) until: u64,
}

impl Quiet {
    /// Whether it has this moment; not if the clock was set back.
    pub(super) fn holds(self, known: Revision, now: u64) -> bool {
        self.known == known && (self.from..self.until).contains(&now)
    }
}

impl Control {
    /// Takes the snapshots that are due, in a task of its own.
    pub(in crate::control) fn follow_schedules(self: &Rc<Control>, reconciler: &Rc<Reconciler>) {
        let (known, now) = (reconciler.acts_by(), unix_now());
        let is_quiet = self.snapshots.quiet.get().is_some_and(|quiet| quiet.holds(known, now));
        if is_quiet || !reconciler.knows_this_life() {
            return;
        }
        let all: Vec<ScheduleEntry> = reconciler.list(SNAPSHOT_SCHEDULES);
        let is_there = |id: &u64| all.iter().any(|one| one.id == *id);
        self.snapshots.followed.borrow_mut().retain(|id, _| is_there(id));
        let next_look = |one| schedule::next_look(one, self.followed(one), now);
        let until = all.iter().map(next_look).min().unwrap_or(u64::MAX);
        self.snapshots.quiet.set(Some(Quiet { known, from: now, until }));
        if until <= now {
            let (control, reconciler) = (Rc::clone(self), Rc::clone(reconciler));
            self.snapshots.following.start((), async move { control.take_due(&reconciler, all).await });
        }
    }

    /// What this node has last done for a schedule.
    fn followed(&self, schedule: &ScheduleEntry) -> Own {
        self.snapshots.followed.borrow().get(&schedule.id).copied().unwrap_or_default()
    }

    async fn take_due(self: &Rc<Control>, reconciler: &Rc<Reconciler>, all: Vec<ScheduleEntry>) {
        for ScheduleEntry { name, .. } in all {
            let key = snapshot_schedule_key(&name);
            let Some((schedule, revision)) = reconciler.get::<ScheduleEntry>(&key) else { continue };
            let Some(due) = schedule::due(&schedule, self.followed(&schedule), unix_now()) else { continue };
            // Another node may have taken the snapshot, and released the turn, since what this one knows.
            if !take_turn(reconciler, Reconciler::transaction().expect(&key, Some(revision))).await {
                return;
            }
            self.take_and_note(reconciler, &schedule, due).await;
            delete_expired(reconciler, &schedule).await;
            release_turn(reconciler).await;
        }
    }

    /// Takes the snapshot of a schedule that is due, and notes in the record whether that succeeded.
    async fn take_and_note(
        self: &Rc<Control>,
        reconciler: &Rc<Reconciler>,
        schedule: &ScheduleEntry,
        due: u64,
    ) {
        let name = &schedule.name;
        let (taken, failed) = match self.take_for(reconciler, schedule, due).await {
            Ok(entry) => (Some(ScheduledSnapshot { name: entry.name, due, at: entry.at }), None),
            Err(error) => {
                let obstacle = obstacle(reconciler, schedule, &error);
                let error = &error as &dyn std::error::Error;
                tracing::warn!(schedule = name, error, "a snapshot was not taken by schedule; retrying");
                let at = unix_now();
                self.snapshots.followed.borrow_mut().entry(schedule.id).or_default().failed = Some(at);
                (None, Some(FailedAttempt { at, obstacle }))
            }
        };
        let noted = self.change_schedule(name, |entry| {
            let last = taken.clone().or_else(|| entry.last.clone());
            let next = ScheduleEntry { last, failed: failed.clone(), ..entry.clone() };
            // Another schedule may have got its name, and another node may have taken the snapshot.
            let is_taken = taken.is_none() && entry.last.as_ref().is_some_and(|last| last.due == due);
            Ok((entry.id == schedule.id && !is_taken).then_some(next))
        });
        if let Err(error) = noted.await {
            return tracing::debug!(schedule = name, %error, "the record does not say yet whether a snapshot was taken");
        }
        let Some(taken) = taken else { return };
        let own = Own { due: Some(due), failed: None };
        self.snapshots.followed.borrow_mut().insert(schedule.id, own);
        if let Some(since) = schedule::missed_since(schedule, unix_now()) {
            let text = format!(
                "schedule {name} has taken snapshot {}: one that was due at {} was missed",
                taken.name,
                utc(since)
            );
            tell(Event::new(SNAPSHOT_SCHEDULE_RECOVERED, name, text));
        }
    }

    /// Takes the snapshot of a schedule, if it has not been taken yet.
    async fn take_for(
        self: &Rc<Control>,
        reconciler: &Reconciler,
        schedule: &ScheduleEntry,
        due: u64,
    ) -> Result<SnapshotEntry> {
        let of = OfSchedule { name: schedule.name.clone(), id: schedule.id, due };
        let mut known = all(reconciler).into_iter();
        // A node was lost before it could note that.
        let is_it = |entry: &SnapshotEntry| {
            entry.state == SnapshotState::Complete && entry.schedule.as_ref() == Some(&of)
        };
        if let Some(found) = known.find(is_it) {
            return Ok(found);
        }
        let name = format!("{}-{}", schedule.name, stamp(unix_now()));
        let volumes = schedule.volumes.iter().map(|volume| volume.id.clone()).collect();
        let spec = SnapshotSpec { name, volumes, ..SnapshotSpec::default() };
        let number = self.take_set(spec, Some(of)).await?;
        Ok(self.snapshot(&number.to_string())?.entry)
    }

    /// The snapshots that schedules have missed. Only one node of the cluster reports each: the first one
    /// that is up.
    pub(crate) fn missed_snapshots(&self) -> Vec<Fault> {
        let Ok(reconciler) = self.reconciler() else { return Vec::new() };
        let (all, now) = (reconciler.list::<ScheduleEntry>(SNAPSHOT_SCHEDULES), unix_now());
        let missed = all.into_iter().filter_map(|one| Some((schedule::missed_since(&one, now)?, one)));
        let missed: Vec<(u64, ScheduleEntry)> = missed.collect();
        if missed.is_empty() {
            return Vec::new();
        }
        let is_first = is_first_up(&reconciler);
        let fault = |(due, schedule): (u64, ScheduleEntry)| {
            let obstacle = schedule.failed.map(|failed| failed.obstacle);
            let kind = FaultKind::SnapshotScheduleMissed { schedule: schedule.name, due, obstacle };
            kind.lasting(Duration::from_secs(now - due))
        };
        missed.into_iter().filter(|_| is_first).map(fault).collect()
    }
}

/// The wall clock of this node, in seconds since 1970.
pub(super) fn unix_now() -> u64 {
    (Shard::current().config().unix_now)()
}

/// Whether this node is the one that reports what all nodes see alike: the first one that is up.
pub(super) fn is_first_up(reconciler: &Reconciler) -> bool {
    let nodes = reconciler.nodes().into_iter();
    nodes.filter(|(_, is_heard)| *is_heard).map(|(node, _)| node.id).min() == Some(reconciler.me().0)
}

/// Takes the turn in a transaction. Returns whether this node has it.
pub(super) async fn take_turn(reconciler: &Reconciler, transaction: Transaction) -> bool {
    if reconciler.is_stopping() || is_taken(reconciler) {
        return false;
    }
    let turn = SnapshotTurn { node: reconciler.me().0, life: reconciler.incarnation().0, at: unix_now() };
    let transaction = transaction
        .expect(SNAPSHOT_TURN, reconciler.revision_of(SNAPSHOT_TURN))
        .put(SNAPSHOT_TURN, json(&turn));
    let taken = reconciler.commit(transaction).await;
    if let Err(error) = &taken {
        tracing::debug!(%error, "another node has the turn, or the record does not respond");
    }
    taken.is_ok()
}

/// Whether another node that may be working has the turn.
fn is_taken(reconciler: &Reconciler) -> bool {
    let Some((turn, _)) = reconciler.get::<SnapshotTurn>(SNAPSHOT_TURN) else { return false };
    let node = NodeId(turn.node);
    let known = reconciler.get::<NodeEntry>(&node_key(node));
    let is_that_life = known.is_some_and(|(entry, _)| entry.incarnation == turn.life);
    let is_recent = unix_now().abs_diff(turn.at) < TURN_SECONDS_MAX;
    // This node could not release its own turn.
    node != reconciler.me() && is_that_life && is_recent && reconciler.hears(node)
}

/// Releases the turn if this node has it.
pub(super) async fn release_turn(reconciler: &Reconciler) {
    let Some((turn, revision)) = reconciler.get::<SnapshotTurn>(SNAPSHOT_TURN) else { return };
    if NodeId(turn.node) == reconciler.me() && turn.life == reconciler.incarnation().0 {
        let released = Reconciler::transaction().expect(SNAPSHOT_TURN, Some(revision)).delete(SNAPSHOT_TURN);
        if let Err(error) = reconciler.commit(released).await {
            tracing::debug!(%error, "the turn to take snapshots was not released");
        }
    }
}

/// Deletes the snapshots of a schedule that it does not keep, except those on hold or with clones. Stops if
/// somebody changes, pauses or deletes the schedule: what is left is decided after its next snapshot.
async fn delete_expired(reconciler: &Reconciler, schedule: &ScheduleEntry) {
    let key = snapshot_schedule_key(&schedule.name);
    // Somebody may have changed what it keeps.
    let now = reconciler.get::<ScheduleEntry>(&key).filter(|(now, _)| now.id == schedule.id && !now.paused);
    let Some((schedule, revision)) = now else { return };
    let cloned = Clones::now(reconciler).snapshots(reconciler.cluster());
    let is_its = |entry: &SnapshotEntry| {
        let of_it = entry.schedule.as_ref().is_some_and(|of| of.is_of(&schedule));
        of_it && entry.state == SnapshotState::Complete && !entry.held && !cloned.contains(&entry.number)
    };
    let its = all(reconciler).into_iter().filter(is_its);
    let its = its.map(|entry| Kept { at: entry.at, number: entry.number }).collect();
    for number in expired(schedule.retention, its) {
        if reconciler.is_stopping() || reconciler.revision_of(&key) != Some(revision) {
            return;
        }
        let transaction = Reconciler::transaction().expect(&key, Some(revision));
        if delete_unless_kept(reconciler, number, transaction, is_its).await.is_err() {
            // Each of the others would wait for the record, too.
            return;
        }
    }
}

/// Deletes a snapshot in a transaction, if `is_wanted` says so of its entry, and if it can be deleted: not if
/// it is on hold, has clones, or volumes are being restored to it. Returns its name if this call has deleted
/// it.
///
/// # Errors
/// The record does not respond.
pub(super) async fn delete_unless_kept(
    reconciler: &Reconciler,
    number: u32,
    transaction: Transaction,
    is_wanted: impl Fn(&SnapshotEntry) -> bool,
) -> std::result::Result<Option<String>, ClusterError> {
    let found = numbered(reconciler, number);
    let found = found.filter(|(entry, _)| is_wanted(entry) && check_deletable(reconciler, entry).is_ok());
    let Some((entry, known)) = found else { return Ok(None) };
    let next = SnapshotEntry { state: SnapshotState::Deleting, ..entry.clone() };
    let (clones, begun) = no_new_clone(reconciler);
    let deleted = transaction
        .expect(&entry.key(), Some(known))
        .expect(&clones, begun)
        .delete(&entry.key())
        .put(&next.key(), json(&next));
    let Err(error) = reconciler.commit(deleted).await else { return Ok(Some(entry.name)) };
    tracing::debug!(number, %error, "a snapshot is not deleted yet");
    match error {
        ClusterError::Conflict(_) => Ok(None),
        error => Err(error),
    }
}

/// Why a schedule could not take a snapshot.
fn obstacle(reconciler: &Reconciler, schedule: &ScheduleEntry, error: &ControlError) -> ScheduleObstacle {
    use ClusterError as C;
    use ControlError as E;
    match error {
        E::NotFound { kind: "volume", name } => {
            let volume = schedule.volumes.iter().find(|volume| volume.id == *name);
            let volume = volume.map_or(name, |volume| &volume.name).clone();
            ScheduleObstacle::VolumeDeleted { volume }
        }
        E::NoSnapshotsOfKind(volume) => ScheduleObstacle::NotLog { volume: volume.clone() },
        E::Forked(volume) => ScheduleObstacle::Forked { volume: volume.clone() },
        E::SnapshotNotTaken { volume, node, obstacle } => {
            ScheduleObstacle::NotTaken { volume: volume.clone(), node: *node, obstacle: *obstacle }
        }
        E::SnapshotTooSlow { .. } => ScheduleObstacle::TooSlow,
        E::TooMany { .. } => ScheduleObstacle::TooMany,
        E::Cluster(C::Unreached(node) | C::Unanswered { node, .. }) => {
            ScheduleObstacle::NodeUnreachable { node: node.0 }
        }
        E::Cluster(C::Record(_)) => ScheduleObstacle::RecordSilent,
        _ => ScheduleObstacle::Other { node: reconciler.me().0 },
    }
}
