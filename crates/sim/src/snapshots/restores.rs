//! Restores of volumes to snapshots that an administrator asks for while all else goes on, and what must hold
//! for them (A16, `docs/why/snapshots.md`, *Restoring*).
//!
//! A restore is an operation of the histories: at some moment between its call and the time at which the
//! record has it as complete, it replaces all that a volume holds by what the snapshot has
//! ([`crate::replaced`]). So only snapshots are restored of which all was read. What the restore has kept is
//! a snapshot like any other, and what was there directly before.
//!
//! The record says whether a restore happens. That must agree with what was answered, and one that was
//! answered as done must be over. Only one is asked for at a time, so it is known which one the record has.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use node::control::{ControlError, RestoreSpec, Restored};
use node::copies::{SnapshotState, VolumeEntry};
use rt::sim::linear::Time;

use super::{Answer, Asked, Snapshots};
use crate::cluster::Cluster;
use crate::onlooker::Recorded;
use crate::replaced::Sectors;

/// By then, the onlooker has seen in the record what a node that has answered has written there.
const SEEN_WITHIN: Duration = Duration::from_secs(1);
/// A node that does not answer, or does not know, has begun a restore by then or never will.
const BEGUN_WITHIN: Duration = Duration::from_secs(20);

/// A restore to be asked for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The snapshot.
    pub snapshot: usize,
    /// The volumes, by their indices.
    pub volumes: Vec<usize>,
    /// What the volumes are is not kept.
    pub discards: bool,
}

/// All restores of a run, by their numbers in the histories.
#[derive(Default)]
pub(super) struct Restores(RefCell<Vec<Restore>>);

/// A restore that was asked for.
struct Restore {
    of: Wanted,
    /// The node that was asked.
    node: u16,
    call: Time,
    /// When it was asked for, by the world's time.
    asked: Duration,
    /// The last snapshot that the record had then.
    after: u32,
    answer: Option<Outcome>,
    /// When the answer was known, by the world's time.
    answered: Option<Duration>,
    fate: Fate,
    /// The snapshot that has what the volumes were before.
    kept: Option<usize>,
}

/// What was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Restored,
    /// It is decided, and will happen.
    Unfinished,
    Refused,
    /// It happens, or does not.
    Unknown,
}

/// What becomes of a restore, by the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    Happened,
    Undone,
}

impl Snapshots {
    /// The snapshots that exist, according to the record, and of which all was read.
    pub fn restorable(&self) -> Vec<usize> {
        let is_whole = |at: &usize| {
            let volumes = self.volumes_of(*at);
            !volumes.is_empty() && volumes.iter().all(|volume| self.content(*at, *volume).is_some())
        };
        self.alive().into_iter().filter(is_whole).collect()
    }

    /// The volumes of a snapshot, by their indices.
    pub fn volumes_of(&self, at: usize) -> Vec<usize> {
        let Some(known) = self.entry(at) else { return Vec::new() };
        let has = |volume: &usize| known.entry.of(&self.0.volumes[*volume].id).is_some();
        (0..self.0.volumes.len()).filter(has).collect()
    }

    /// Has a node restore volumes, and does not wait for it. Returns the number of the restore; `None`: the
    /// last one is not over, or not all of the snapshot was read.
    pub fn restore(&self, cluster: &Cluster, index: usize, wanted: Wanted) -> Option<usize> {
        if self.is_restoring(cluster) {
            return None;
        }
        let contents = wanted.volumes.iter().map(|volume| self.content(wanted.snapshot, *volume));
        let contents = contents.collect::<Option<Vec<Sectors>>>()?;
        let is_all = wanted.volumes == self.volumes_of(wanted.snapshot);
        let names = wanted.volumes.iter().map(|volume| self.0.volumes[*volume].name.to_owned());
        let spec = RestoreSpec {
            snapshot: self.name(wanted.snapshot),
            volumes: if is_all { Vec::new() } else { names.collect() },
            discard: wanted.discards,
        };
        let keys: Vec<String> =
            wanted.volumes.iter().map(|volume| cluster.volumes[*volume].key.clone()).collect();
        let call = self.0.histories[0].tick();
        let number = self.0.restores.0.borrow().len();
        for (volume, to) in wanted.volumes.iter().zip(contents) {
            self.0.histories[*volume].begin_restore(number as u64, call, to);
        }
        self.0.restores.0.borrow_mut().push(Restore {
            of: wanted,
            node: index as u16 + 1,
            call,
            asked: cluster.world.now(),
            after: self.0.recorded.borrow().keys().next_back().copied().unwrap_or(0),
            answer: None,
            answered: None,
            fate: Fate::Open,
            kept: None,
        });
        let (all, record) = (self.clone(), Rc::clone(&cluster.record));
        cluster.ask_to(index, move |control| async move {
            let restored = control.restore_snapshot(spec).await;
            let kept = restored.as_ref().ok().and_then(|done| Some(done.kept.as_ref()?.entry.number));
            for value in keys.iter().filter_map(|key| record.value(key)) {
                let now: VolumeEntry =
                    serde_json::from_slice(&value).expect("nodes write what they can read");
                let is_over = kept.is_none() || now.restoring != kept;
                assert!(is_over, "a restore that is not over was answered as done: {now:?}");
            }
            all.answered_restore(number, &restored);
        });
        Some(number)
    }

    fn answered_restore(&self, number: usize, restored: &Result<Restored, ControlError>) {
        let (outcome, what) = match restored {
            Ok(_) => (Outcome::Restored, "volumes restored"),
            Err(ControlError::RestoreUnfinished(_)) => (Outcome::Unfinished, "restore that takes long"),
            Err(
                ControlError::NotRestored { .. }
                | ControlError::RestoreTooSlow { .. }
                | ControlError::CopyLacksSnapshot { .. }
                | ControlError::NotInSnapshot { .. }
                | ControlError::NotFound { .. }
                | ControlError::SnapshotPreparing(_)
                | ControlError::NoSnapshotsOfKind(_),
            ) => (Outcome::Refused, "restore refused"),
            Err(_) => (Outcome::Unknown, "restore that may happen"),
        };
        self.0.counts.count(what);
        let restore = &mut self.0.restores.0.borrow_mut()[number];
        restore.answer = Some(outcome);
        if outcome == Outcome::Restored && restore.of.discards {
            self.0.counts.count("restore that discards what was there");
        }
    }

    /// Whether the last restore that was asked for may still happen: the record does not say yet what becomes
    /// of it. If it has happened, the snapshot that it has kept is one of all from now on.
    pub fn is_restoring(&self, cluster: &Cluster) -> bool {
        let (now, mut restores) = (cluster.world.now(), self.0.restores.0.borrow_mut());
        let last = restores.len().saturating_sub(1);
        let Some(restore) = restores.get_mut(last).filter(|restore| restore.fate == Fate::Open) else {
            return false;
        };
        if restore.answer.is_some() {
            restore.answered.get_or_insert(now);
        }
        let (fate, begun) = self.fate_of(restore, now);
        restore.fate = fate;
        let happened = begun.and_then(|known| Some((known.restored?, known.entry)));
        if let Some((time, _)) = &happened {
            restore.of.volumes.iter().for_each(|volume| {
                self.0.histories[*volume].end_restore(last as u64, Some(*time));
            });
        }
        if let Some((time, entry)) = happened.filter(|_| !restore.of.discards) {
            let mut asked = self.0.asked.borrow_mut();
            restore.kept = Some(asked.len());
            let kept = Asked::new(entry.name, restore.call);
            asked.push(Asked { is_kept: true, reply: time, answer: Some(Answer::Taken), ..kept });
        }
        if fate == Fate::Undone {
            restore.of.volumes.iter().for_each(|volume| {
                self.0.histories[*volume].end_restore(last as u64, None);
            });
        }
        fate == Fate::Open
    }

    /// What becomes of a restore, and what the record has, or had last, if it was begun.
    fn fate_of(&self, restore: &Restore, now: Duration) -> (Fate, Option<Recorded>) {
        let number = self.entry(restore.of.snapshot).map(|known| known.entry.number);
        // A node that has given up an earlier one may have begun it all the same, and that is undone then.
        let is_it = |known: &Recorded| {
            known.entry.node == restore.node
                && known
                    .restores
                    .is_some_and(|of| Some(of.snapshot) == number && of.discards == restore.of.discards)
        };
        let recorded = self.0.recorded.borrow();
        let later = || recorded.range(restore.after + 1..).map(|(_, known)| known);
        let is_unwanted = |known: &Recorded| known.restored.is_some() && !is_it(known);
        assert!(!later().any(is_unwanted), "a restore has happened that nobody has asked for: {recorded:?}");
        let Some(known) = later().find(|known| is_it(known)) else {
            let is_known = restore.answer.is_some_and(|answer| answer != Outcome::Unknown);
            let is_over = restore.answered.is_some_and(|at| is_known && now >= at + SEEN_WITHIN);
            let is_given_up = now >= restore.asked + BEGUN_WITHIN;
            return (if is_over || is_given_up { Fate::Undone } else { Fate::Open }, None);
        };
        let is_undone = known.is_gone || known.entry.state == SnapshotState::Deleting;
        let fate = match known.restored {
            Some(_) => Fate::Happened,
            None if is_undone => Fate::Undone,
            None => Fate::Open,
        };
        (fate, Some(known.clone()))
    }

    /// Whether a restore has happened; `None`: that is not known yet.
    pub fn is_restored(&self, number: usize) -> Option<bool> {
        let fate = self.0.restores.0.borrow()[number].fate;
        (fate != Fate::Open).then_some(fate == Fate::Happened)
    }

    /// Checks what became of each restore against what was answered, and tells the histories what was there
    /// directly before.
    pub(super) fn check_restores(&self) {
        let asked = self.0.asked.borrow();
        for (number, restore) in self.0.restores.0.borrow().iter().enumerate() {
            let has_happened = restore.fate == Fate::Happened;
            match restore.answer {
                Some(Outcome::Restored | Outcome::Unfinished) => {
                    assert!(has_happened, "restore {number} was answered as decided, and has not happened");
                }
                Some(Outcome::Refused) => {
                    assert!(!has_happened, "restore {number} was refused, and has happened");
                }
                Some(Outcome::Unknown) | None => {}
            }
            if !has_happened {
                continue;
            }
            self.0.counts.count("restore compared with what hosts saw");
            let Some(kept) = restore.kept else { continue };
            for volume in &restore.of.volumes {
                let found = asked[kept].found.iter().filter(|((of, _), _)| of == volume);
                let found: Sectors = found.map(|((_, sector), value)| (*sector, *value)).collect();
                if !found.is_empty() {
                    self.0.counts.count("state before a restore compared with what hosts saw");
                }
                self.0.histories[*volume].keep(number as u64, found);
            }
        }
    }
}
