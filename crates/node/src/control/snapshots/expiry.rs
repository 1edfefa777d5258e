//! Snapshots that expire, and old ones that nothing deletes: what each node does about them automatically.
//!
//! Why one that has expired is deleted once, and never while it is on hold: `docs/why/snapshots.md`,
//! *Expiry*.

use std::rc::Rc;
use std::time::Duration;

use base::Instant;
use serde::Deserialize;

use super::super::{Control, Fault, FaultKind};
use super::calendar::DAY;
use super::clones::Clones;
use super::scheduled::{Quiet, delete_unless_kept, is_first_up, release_turn, take_turn, unix_now};
use crate::copies::{OfSchedule, SNAPSHOT_SCHEDULES, SNAPSHOTS, ScheduleEntry};
use crate::events::code::SNAPSHOT_EXPIRED;
use crate::events::{Event, tell};
use crate::member::Reconciler;

/// How often a node looks at the ages of snapshots at most: it reads the entries of all of them.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How many are deleted at most with one turn: snapshots that are due by schedule wait meanwhile.
const AT_ONCE: usize = 256;
/// How old a snapshot is, in seconds, when people are asked whether they have forgotten it.
const OLD_AFTER: u64 = 30 * DAY;

/// What counts for the age of a snapshot, of its entry.
#[derive(Deserialize)]
struct Aging {
    number: u32,
    name: String,
    at: u64,
    #[serde(default)]
    held: bool,
    #[serde(default)]
    expires: Option<u64>,
    #[serde(default)]
    schedule: Option<OfSchedule>,
}

/// Snapshots that are old, and that nothing deletes automatically.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Old {
    count: usize,
    /// The name of the oldest one.
    oldest: String,
    /// When that was taken, in seconds since 1970.
    at: u64,
}

/// A look at the ages of all snapshots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looked {
    at: Instant,
    /// The time in which another look would find the same.
    quiet: Quiet,
}

/// What a look finds.
#[derive(Debug, PartialEq, Eq)]
struct Ages {
    /// The numbers of those that have expired.
    expired: Vec<u32>,
    old: Option<Old>,
    /// When the next look finds something else if no entry changes, in seconds since 1970; not after now if
    /// some have expired, which may not be deleted yet.
    next: u64,
}

impl Control {
    /// Deletes the snapshots that have expired, in a task of its own.
    pub(in crate::control) fn follow_ages(self: &Rc<Control>, reconciler: &Rc<Reconciler>) {
        let (known, now) = (reconciler.acts_by(), unix_now());
        let is_quiet =
            |looked: Looked| rt::now().since(looked.at) < LOOK_EVERY || looked.quiet.holds(known, now);
        if self.snapshots.looked.get().is_some_and(is_quiet) || !reconciler.knows_this_life() {
            return;
        }
        let mut all: Vec<Aging> = reconciler.list(SNAPSHOTS);
        // They cannot be deleted, and are not forgotten: somebody uses them.
        if !all.is_empty() {
            let cloned = Clones::now(reconciler).snapshots(reconciler.cluster());
            all.retain(|one| !cloned.contains(&one.number));
        }
        let schedules: Vec<ScheduleEntry> = reconciler.list(SNAPSHOT_SCHEDULES);
        let Ages { expired, old, next } = ages(&all, &schedules, now);
        let quiet = Quiet { known, from: now, until: next };
        self.snapshots.looked.set(Some(Looked { at: rt::now(), quiet }));
        self.snapshots.old.replace(old);
        if !expired.is_empty() {
            let reconciler = Rc::clone(reconciler);
            self.snapshots.following.start((), async move { delete_all(&reconciler, expired).await });
        }
    }

    /// Old snapshots that nothing deletes automatically. Only one node of the cluster reports them: the first
    /// one that is up.
    pub(crate) fn old_snapshots(&self) -> Option<Fault> {
        let Old { count, oldest, at } = self.snapshots.old.borrow().clone()?;
        if !is_first_up(self.reconciler().ok()?.as_ref()) {
            return None;
        }
        let age = unix_now().saturating_sub(at.saturating_add(OLD_AFTER));
        Some(FaultKind::SnapshotsOld { count, oldest, at }.lasting(Duration::from_secs(age)))
    }
}

/// Deletes snapshots that have expired, unless somebody changes that meanwhile. The next look finds those
/// that are left.
async fn delete_all(reconciler: &Reconciler, expired: Vec<u32>) {
    if !take_turn(reconciler, Reconciler::transaction()).await {
        return;
    }
    for number in expired.into_iter().take(AT_ONCE) {
        if reconciler.is_stopping() {
            break;
        }
        let now = unix_now();
        let transaction = Reconciler::transaction();
        match delete_unless_kept(reconciler, number, transaction, |entry| entry.has_expired(now)).await {
            Ok(Some(name)) => {
                let text = format!("snapshot {name} has expired and was deleted");
                tell(Event::new(SNAPSHOT_EXPIRED, &name, text));
            }
            Ok(None) => {}
            // Each of the others would wait for the record, too.
            Err(_) => break,
        }
    }
    release_turn(reconciler).await;
}

fn ages(all: &[Aging], schedules: &[ScheduleEntry], now: u64) -> Ages {
    let kept_by_schedule = |one: &Aging| {
        one.schedule.as_ref().is_some_and(|of| schedules.iter().any(|schedule| of.is_of(schedule)))
    };
    let (mut expired, mut old, mut next) = (Vec::new(), Vec::new(), u64::MAX);
    for one in all.iter().filter(|one| !one.held) {
        match one.expires {
            Some(at) if at <= now => expired.push(one.number),
            Some(at) => next = next.min(at),
            None if kept_by_schedule(one) => {}
            None => match one.at.saturating_add(OLD_AFTER) {
                at if at <= now => old.push(one),
                at => next = next.min(at),
            },
        }
    }
    let oldest = old.iter().min_by_key(|one| (one.at, one.number));
    let old = oldest.map(|one| Old { count: old.len(), oldest: one.name.clone(), at: one.at });
    let next = if expired.is_empty() { next } else { now };
    Ages { expired, old, next }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copies::Retention;

    const NOW: u64 = 1_795_305_600;

    fn taken(number: u32, days_ago: u64) -> Aging {
        Aging {
            number,
            name: format!("s{number}"),
            at: NOW - days_ago * DAY,
            held: false,
            expires: None,
            schedule: None,
        }
    }

    fn found(all: &[Aging]) -> Ages {
        ages(all, &[], NOW)
    }

    #[test]
    fn those_whose_time_has_come_are_deleted_unless_they_are_on_hold() {
        let until = |number, expires| Aging { expires: Some(expires), ..taken(number, 1) };
        let all = [until(1, NOW), until(2, NOW + 1), until(3, NOW - 5_000), taken(4, 1)];
        let Ages { expired, old, next } = found(&all);
        assert_eq!(
            (expired, old, next),
            (vec![1, 3], None, NOW),
            "the next look finds whether they are gone"
        );
        let held = Aging { held: true, ..until(1, NOW) };
        assert_eq!(found(&[held, until(2, NOW + 9)]), Ages { expired: Vec::new(), old: None, next: NOW + 9 });
        assert_eq!(found(&[]).next, u64::MAX);
    }

    #[test]
    fn those_that_nothing_deletes_are_old_after_thirty_days() {
        let all = [taken(5, 29), taken(6, 31), taken(7, 30), taken(8, 0)];
        let Ages { expired, old, next } = found(&all);
        assert!(expired.is_empty());
        assert_eq!(old, Some(Old { count: 2, oldest: "s6".into(), at: NOW - 31 * DAY }));
        assert_eq!(next, NOW + DAY, "when the first of the others is old");
        // Somebody has said how long they are kept.
        let held = Aging { held: true, ..taken(1, 400) };
        let expires = Aging { expires: Some(NOW + 300 * DAY), ..taken(2, 400) };
        assert_eq!(found(&[held, expires]).old, None);
    }

    #[test]
    fn those_of_a_schedule_are_its_own_as_long_as_it_exists() {
        let schedule = ScheduleEntry {
            name: "monthly".into(),
            id: 7,
            volumes: Vec::new(),
            every: DAY,
            retention: Retention { monthly: 12, ..Retention::default() },
            paused: false,
            created: 0,
            since: 0,
            last: None,
            failed: None,
        };
        let of = OfSchedule { name: "monthly".into(), id: 7, due: 0 };
        let all = [Aging { schedule: Some(of), ..taken(1, 90) }];
        assert_eq!(ages(&all, std::slice::from_ref(&schedule), NOW).old, None);
        let another = ScheduleEntry { id: 8, ..schedule };
        assert!(ages(&all, &[another], NOW).old.is_some(), "another schedule has its name now");
        assert!(found(&all).old.is_some());
    }
}
