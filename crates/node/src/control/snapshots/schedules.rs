//! Schedules of snapshots, as administrators manage them. How they are carried out: [`super::scheduled`].

use super::super::relocation::TRIES_MAX;
use super::super::tidying::TIDY_EVERY;
use super::super::{Control, ControlError, Result};
use super::retention::{KEPT_MAX, total};
use super::schedule::{EVERY_MAX, EVERY_MIN, missed_since, next};
use super::scheduled::unix_now;
use super::taking::check_name;
use super::{all, volume_entry};
use crate::copies::{
    Retention, SNAPSHOT_SCHEDULES, SNAPSHOT_SCHEDULES_MAX, ScheduleEntry, ScheduledVolume, SnapshotEntry,
    SnapshotState, VolumeEntry, snapshot_schedule_key, volume_key,
};
use crate::data::VolumeId;
use crate::member::{ClusterError, Reconciler, json};

/// What schedules are called in errors.
const KIND: &str = "snapshot schedule";
/// How long the name of a schedule may be: its snapshots are called `NAME-2026-11-29T21.50.45Z`, and names
/// of snapshots have 63 characters at most.
const NAME_MAX: usize = 42;

/// A schedule to be created.
#[derive(Clone, Debug)]
pub struct ScheduleSpec {
    /// Its name.
    pub name: String,
    /// The names or identities of its volumes.
    pub volumes: Vec<String>,
    /// The interval in seconds.
    pub every: u64,
    /// Which snapshots it keeps.
    pub retention: Retention,
}

/// A change of a schedule; `None` leaves something as it is.
#[derive(Clone, Debug, Default)]
pub struct ScheduleChange {
    /// The names or identities of its volumes.
    pub volumes: Option<Vec<String>>,
    /// The interval in seconds.
    pub every: Option<u64>,
    /// How many of the latest snapshots it keeps.
    pub keep: Option<u32>,
    /// Of how many days it keeps one.
    pub daily: Option<u32>,
    /// Of how many weeks it keeps one.
    pub weekly: Option<u32>,
    /// Of how many months it keeps one.
    pub monthly: Option<u32>,
    /// Whether it is paused.
    pub paused: Option<bool>,
}

/// A schedule as the cluster's record has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleStatus {
    /// The record's entry.
    pub entry: ScheduleEntry,
    /// The present names of its volumes, or those that they had if they were deleted.
    pub volumes: Vec<String>,
    /// When the next snapshot is due, in seconds since 1970; in the past if it is late. `None`: paused.
    pub next: Option<u64>,
    /// Since when a snapshot has been due that was not taken, if it counts as missed.
    pub missed_since: Option<u64>,
    /// How many snapshots it has.
    pub snapshots: usize,
}

impl Control {
    /// All schedules, by name.
    ///
    /// # Errors
    /// [`ControlError::ClusterFailed`].
    pub fn snapshot_schedules(&self) -> Result<Vec<ScheduleStatus>> {
        let reconciler = self.reconciler()?;
        let entries: Vec<ScheduleEntry> = reconciler.list(SNAPSHOT_SCHEDULES);
        let taken = if entries.is_empty() { Vec::new() } else { all(&reconciler) };
        Ok(entries.into_iter().map(|entry| status(&reconciler, entry, &taken)).collect())
    }

    /// The schedule with this name.
    ///
    /// # Errors
    /// It is not found; [`ControlError::EntryUnreadable`]; [`ControlError::ClusterFailed`].
    pub fn snapshot_schedule(&self, name: &str) -> Result<ScheduleStatus> {
        let reconciler = self.reconciler()?;
        let (entry, _) = named(&reconciler, name)?;
        Ok(status(&reconciler, entry, &all(&reconciler)))
    }

    /// When each schedule has last taken a snapshot, in seconds since 1970, by name; without those that never
    /// have.
    pub fn last_scheduled_snapshots(&self) -> Vec<(String, u64)> {
        let Ok(reconciler) = self.reconciler() else { return Vec::new() };
        let entries = reconciler.list::<ScheduleEntry>(SNAPSHOT_SCHEDULES).into_iter();
        entries.filter_map(|entry| Some((entry.name, entry.last?.at))).collect()
    }

    /// Creates a schedule. The first snapshot is due at the next multiple of its interval.
    ///
    /// # Errors
    /// A name is invalid or taken, a volume cannot have snapshots, the interval or what is kept is invalid,
    /// or there are already [`SNAPSHOT_SCHEDULES_MAX`]; those of the record.
    pub async fn create_snapshot_schedule(&self, spec: ScheduleSpec) -> Result<ScheduleStatus> {
        let ScheduleSpec { name, volumes, every, retention } = spec;
        check_name(&name)?;
        if name.len() > NAME_MAX {
            let reason = "at most 42 characters: the names of its snapshots also have the time";
            return Err(ControlError::Invalid { field: "name", reason });
        }
        let reconciler = self.reconciler()?;
        let (key, now) = (snapshot_schedule_key(&name), unix_now());
        let exists = || ControlError::Exists { kind: KIND, name: name.clone() };
        if reconciler.revision_of(&key).is_some() {
            return Err(exists());
        }
        if reconciler.list::<ScheduleEntry>(SNAPSHOT_SCHEDULES).len() >= SNAPSHOT_SCHEDULES_MAX {
            return Err(ControlError::TooMany { kind: KIND, most: SNAPSHOT_SCHEDULES_MAX });
        }
        let entry = ScheduleEntry {
            name: name.clone(),
            id: rt::random(),
            volumes: self.scheduled_volumes(&reconciler, &volumes)?,
            every,
            retention,
            paused: false,
            created: now,
            since: now,
            last: None,
            failed: None,
        };
        check_times(&entry)?;
        let created = Reconciler::transaction().expect(&key, None).put(&key, json(&entry));
        match reconciler.commit(created).await {
            Err(ClusterError::Conflict(_)) => Err(exists()),
            Err(error) => Err(error.into()),
            Ok(()) => self.snapshot_schedule(&name),
        }
    }

    /// Changes a schedule. What it does not keep any more is deleted after its next snapshot.
    ///
    /// # Errors
    /// As [`Control::create_snapshot_schedule`]; it is not found; [`ControlError::EntryUnreadable`].
    pub async fn change_snapshot_schedule(
        &self,
        name: &str,
        change: ScheduleChange,
    ) -> Result<ScheduleStatus> {
        let reconciler = self.reconciler()?;
        let volumes = change.volumes.as_deref().map(|volumes| self.scheduled_volumes(&reconciler, volumes));
        let (volumes, now) = (volumes.transpose()?, unix_now());
        let changed = self.change_schedule(name, |entry| {
            let next = changed(entry, &change, volumes.as_deref(), now);
            check_times(&next)?;
            Ok((next != *entry).then_some(next))
        });
        changed.await?;
        self.snapshot_schedule(name)
    }

    /// Deletes a schedule. Its snapshots stay.
    ///
    /// # Errors
    /// It is not found; [`ControlError::EntryUnreadable`]; those of the record.
    pub async fn delete_snapshot_schedule(&self, name: &str) -> Result<()> {
        let reconciler = self.reconciler()?;
        named(&reconciler, name)?;
        // Whoever is following it changes the entry only if it still exists.
        Ok(reconciler.commit(Reconciler::transaction().delete(&snapshot_schedule_key(name))).await?)
    }

    /// Changes the entry of a schedule, and tries again if another change was faster; `None` leaves it as it
    /// is.
    pub(super) async fn change_schedule(
        &self,
        name: &str,
        change: impl Fn(&ScheduleEntry) -> Result<Option<ScheduleEntry>>,
    ) -> Result<()> {
        let reconciler = self.reconciler()?;
        let key = snapshot_schedule_key(name);
        let mut tries = 0;
        loop {
            tries += 1;
            let (entry, revision) = named(&reconciler, name)?;
            let Some(next) = change(&entry)? else { return Ok(()) };
            let transaction = Reconciler::transaction().expect(&key, Some(revision)).put(&key, json(&next));
            match reconciler.commit(transaction).await {
                Err(ClusterError::Conflict(_)) if tries < TRIES_MAX => {
                    reconciler.until_changed(TIDY_EVERY, &key, Some(revision)).await;
                }
                result => return Ok(result?),
            }
        }
    }

    fn scheduled_volumes(&self, reconciler: &Reconciler, volumes: &[String]) -> Result<Vec<ScheduledVolume>> {
        let ids = self.set_of(volumes)?.into_iter();
        let volume = |id: VolumeId| -> Result<ScheduledVolume> {
            let entry = reconciler.get::<VolumeEntry>(&volume_key(id));
            let (entry, _) = entry.ok_or_else(|| ControlError::not_found("volume", &id.to_string()))?;
            Ok(ScheduledVolume { id: entry.id, name: entry.name })
        };
        ids.map(volume).collect()
    }
}

fn named(reconciler: &Reconciler, name: &str) -> Result<(ScheduleEntry, cluster::Revision)> {
    let key = snapshot_schedule_key(name);
    match (reconciler.get(&key), reconciler.revision_of(&key)) {
        (Some(found), _) => Ok(found),
        (None, Some(_)) => Err(ControlError::EntryUnreadable { kind: KIND, name: name.to_owned() }),
        (None, None) => Err(ControlError::not_found(KIND, name)),
    }
}

fn status(reconciler: &Reconciler, entry: ScheduleEntry, taken: &[SnapshotEntry]) -> ScheduleStatus {
    let name = |of: &ScheduledVolume| {
        let volume = volume_entry(reconciler, &of.id);
        volume.map_or_else(|| of.name.clone(), |(volume, _)| volume.name)
    };
    let is_its = |taken: &&SnapshotEntry| {
        taken.state != SnapshotState::Deleting && taken.schedule.as_ref().is_some_and(|of| of.is_of(&entry))
    };
    let now = unix_now();
    ScheduleStatus {
        volumes: entry.volumes.iter().map(name).collect(),
        next: next(&entry, now),
        missed_since: missed_since(&entry, now),
        snapshots: taken.iter().filter(is_its).count(),
        entry,
    }
}

/// A schedule after a change at `now`, in seconds since 1970. It tries again at once if it has failed.
fn changed(
    entry: &ScheduleEntry,
    change: &ScheduleChange,
    volumes: Option<&[ScheduledVolume]>,
    now: u64,
) -> ScheduleEntry {
    let (before, every) = (entry.retention, change.every.unwrap_or(entry.every));
    let paused = change.paused.unwrap_or(entry.paused);
    let retention = Retention {
        keep: change.keep.unwrap_or(before.keep),
        daily: change.daily.unwrap_or(before.daily),
        weekly: change.weekly.unwrap_or(before.weekly),
        monthly: change.monthly.unwrap_or(before.monthly),
    };
    let is_due_from_now = every != entry.every || entry.paused && !paused;
    ScheduleEntry {
        volumes: volumes.map_or_else(|| entry.volumes.clone(), <[_]>::to_vec),
        every,
        retention,
        paused,
        since: if is_due_from_now { now } else { entry.since },
        failed: None,
        ..entry.clone()
    }
}

/// Checks the interval of a schedule, and what it keeps.
fn check_times(schedule: &ScheduleEntry) -> Result<()> {
    let is_valid = (EVERY_MIN..=EVERY_MAX).contains(&schedule.every);
    if !is_valid || !schedule.every.is_multiple_of(EVERY_MIN) {
        let reason = "whole minutes, from one minute to 366 days";
        return Err(ControlError::Invalid { field: "every", reason });
    }
    match total(schedule.retention) {
        0 => {
            let reason = "nothing would be kept: set keep, daily, weekly or monthly";
            Err(ControlError::Invalid { field: "keep", reason })
        }
        kept if kept > u64::from(KEPT_MAX) => {
            let reason = "a schedule keeps at most 900 snapshots, with daily, weekly and monthly ones";
            Err(ControlError::Invalid { field: "keep", reason })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copies::{FailedAttempt, ScheduleObstacle};

    fn entry() -> ScheduleEntry {
        ScheduleEntry {
            name: "hourly".into(),
            id: 7,
            volumes: vec![ScheduledVolume { id: "a".into(), name: "db".into() }],
            every: 3_600,
            retention: Retention { keep: 24, daily: 7, weekly: 0, monthly: 0 },
            paused: false,
            created: 1_000,
            since: 1_000,
            last: None,
            failed: Some(FailedAttempt { at: 4_000, obstacle: ScheduleObstacle::TooSlow }),
        }
    }

    #[test]
    fn a_change_leaves_what_it_does_not_name() {
        let change = ScheduleChange { daily: Some(0), monthly: Some(12), ..ScheduleChange::default() };
        let retention = Retention { keep: 24, daily: 0, weekly: 0, monthly: 12 };
        let expected = ScheduleEntry { retention, failed: None, ..entry() };
        assert_eq!(changed(&entry(), &change, None, 5_000), expected);
        let other = [ScheduledVolume { id: "b".into(), name: "logs".into() }];
        let of_other = changed(&entry(), &ScheduleChange::default(), Some(&other), 5_000);
        assert_eq!((of_other.volumes, of_other.since), (other.to_vec(), 1_000));
    }

    #[test]
    fn what_was_due_while_it_was_paused_or_had_another_interval_is_not_owed() {
        let pause = |paused| ScheduleChange { paused: Some(paused), ..ScheduleChange::default() };
        let paused = changed(&entry(), &pause(true), None, 5_000);
        assert_eq!((paused.paused, paused.since), (true, 1_000));
        let resumed = changed(&paused, &pause(false), None, 9_000);
        assert_eq!((resumed.paused, resumed.since), (false, 9_000));
        assert_eq!(changed(&resumed, &pause(false), None, 9_500).since, 9_000, "it was not paused");
        let every = |every| ScheduleChange { every: Some(every), ..ScheduleChange::default() };
        assert_eq!(changed(&entry(), &every(900), None, 5_000).since, 5_000);
        assert_eq!(changed(&entry(), &every(3_600), None, 5_000).since, 1_000);
    }

    #[test]
    fn intervals_are_whole_minutes_and_something_is_kept() {
        let refused = |every, keep, daily| {
            let retention = Retention { keep, daily, ..Retention::default() };
            match check_times(&ScheduleEntry { every, retention, ..entry() }) {
                Ok(()) => None,
                Err(ControlError::Invalid { field, .. }) => Some(field),
                Err(other) => panic!("{other:?}"),
            }
        };
        for (every, keep, daily) in [(60, 1, 0), (900, 0, 1), (366 * 86_400, 800, 100)] {
            assert_eq!(refused(every, keep, daily), None, "{every} {keep} {daily}");
        }
        for every in [0, 59, 90, 366 * 86_400 + 60] {
            assert_eq!(refused(every, 1, 0), Some("every"), "{every}");
        }
        for (keep, daily) in [(0, 0), (900, 1), (u32::MAX, u32::MAX)] {
            assert_eq!(refused(60, keep, daily), Some("keep"), "{keep} {daily}");
        }
    }
}
