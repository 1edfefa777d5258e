//! Jobs on copies, derived from the cluster's record: copies are brought in sync, or removed.
//!
//! Each change of the record also shows which of these jobs have ended, and how.

use serde::{Deserialize, Serialize};

use super::cause::Cause;
use super::entry::{CopyEntry, Leaves, StandingEntry, VolumeEntry};
use crate::control::JobOutcome;

/// What is done with a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyWork {
    /// It is resynced with what it missed.
    Sync,
    /// It is new, and gets a full resync.
    Add,
    /// The same, and then the copy on another node is removed.
    Move {
        /// The number of the node that has that other copy.
        from: u16,
    },
    /// It is removed from its node.
    Remove,
}

/// Work on a copy that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyEnd {
    /// The number of the copy's node.
    pub node: u16,
    /// What was done.
    pub work: CopyWork,
    /// How the work ended.
    pub outcome: JobOutcome,
    /// Why the outcome is not the one that was asked for.
    pub reason: Option<EndReason>,
    /// Why the copy missed writes; `None` if the work was its removal.
    pub cause: Option<Cause>,
}

/// Why work on a copy did not end as it was asked for. Nodes report it to each other as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // The messages say it.
pub enum EndReason {
    #[error("the volume was deleted")]
    VolumeDeleted,
    #[error("the copy was removed before it was in sync")]
    CopyRemoved,
    #[error("an administrator decided to keep the copy")]
    CopyKept,
}

impl VolumeEntry {
    /// What is done with one of the volume's copies; `None`: the copy is in sync, and stays.
    pub fn work_on(&self, copy: &CopyEntry) -> Option<CopyWork> {
        if self.is_to_leave(copy) {
            return Some(CopyWork::Remove);
        }
        if copy.standing == StandingEntry::InSync {
            return None;
        }
        let leaves_for_it = self.copies.iter().find(|other| other.leaves == Some(Leaves::After(copy.node)));
        Some(match leaves_for_it {
            Some(other) => CopyWork::Move { from: other.node },
            None if self.is_new(copy.slot) => CopyWork::Add,
            None => CopyWork::Sync,
        })
    }

    /// The work on the volume's copies that has ended, now that the record holds `now` for it; `None`: the
    /// volume was deleted.
    pub fn work_ended(&self, now: Option<&VolumeEntry>) -> Vec<CopyEnd> {
        self.copies.iter().filter_map(|copy| self.end_of(copy, now)).collect()
    }

    fn end_of(&self, copy: &CopyEntry, now: Option<&VolumeEntry>) -> Option<CopyEnd> {
        let work = self.work_on(copy)?;
        let is_removed = work == CopyWork::Remove;
        let end = |outcome, reason| {
            let cause = (!is_removed).then(|| self.cause(copy.slot));
            Some(CopyEnd { node: copy.node, work, outcome, reason, cause })
        };
        let Some(now) = now else {
            let outcome = if is_removed { JobOutcome::Done } else { JobOutcome::Cancelled };
            return end(outcome, Some(EndReason::VolumeDeleted));
        };
        let is_same =
            |other: &&CopyEntry| (other.slot, other.node, other.made) == (copy.slot, copy.node, copy.made);
        let Some(later) = now.copies.iter().find(is_same) else {
            // A new copy that was never in sync is removed: the cancelled addition was reported before, and
            // this is the rest of it.
            let is_rest = copy.standing != StandingEntry::InSync && self.is_new(copy.slot);
            return match is_removed {
                true if is_rest => None,
                true => end(JobOutcome::Done, None),
                false => end(JobOutcome::Cancelled, Some(EndReason::CopyRemoved)),
            };
        };
        match (is_removed, now.work_on(later)) {
            (true, Some(CopyWork::Remove)) => None,
            (true, _) => end(JobOutcome::Cancelled, Some(EndReason::CopyKept)),
            (false, None) => end(JobOutcome::Done, None),
            (false, Some(CopyWork::Remove)) => end(JobOutcome::Cancelled, Some(EndReason::CopyRemoved)),
            // The work continues, possibly for another reason.
            (false, Some(_)) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(copies: &[(u16, StandingEntry, Option<Leaves>)], missed: &[(u8, Cause)]) -> VolumeEntry {
        let standings: Vec<_> = copies.iter().map(|(node, standing, _)| (*node, *standing)).collect();
        let mut entry = VolumeEntry::with_copies(&standings);
        entry.copies.iter_mut().zip(copies).for_each(|(copy, (.., leaves))| copy.leaves = *leaves);
        entry.missed = missed.iter().cloned().collect();
        entry
    }

    use StandingEntry::{InSync, Joining, Outside};

    const MISSED: [(u8, Cause); 1] = [(1, Cause::Restarted)];

    fn ends(before: &VolumeEntry, now: Option<&VolumeEntry>) -> Vec<(u16, CopyWork, JobOutcome)> {
        let ends = before.work_ended(now).into_iter();
        ends.map(|end| (end.node, end.work, end.outcome)).collect()
    }

    #[test]
    fn the_work_on_a_copy_follows_from_the_record() {
        let work = |entry: &VolumeEntry, at: usize| entry.work_on(&entry.copies[at]);
        let behind = entry(&[(1, InSync, None), (2, Joining, None)], &MISSED);
        assert_eq!((work(&behind, 0), work(&behind, 1)), (None, Some(CopyWork::Sync)));
        assert_eq!(work(&entry(&[(1, InSync, None), (2, Outside, None)], &[]), 1), Some(CopyWork::Add));
        let moves = entry(&[(1, InSync, Some(Leaves::After(2))), (2, Outside, None)], &[]);
        assert_eq!((work(&moves, 0), work(&moves, 1)), (None, Some(CopyWork::Move { from: 1 })));
        let moved = entry(&[(1, InSync, Some(Leaves::After(2))), (2, InSync, None)], &[]);
        assert_eq!((work(&moved, 0), work(&moved, 1)), (Some(CopyWork::Remove), None));
    }

    #[test]
    fn a_resync_ends_when_its_copy_is_in_sync() {
        let before = entry(&[(1, InSync, None), (2, Outside, None)], &MISSED);
        let joins = entry(&[(1, InSync, None), (2, Joining, None)], &MISSED);
        let after = entry(&[(1, InSync, None), (2, InSync, None)], &[]);
        assert!(ends(&before, Some(&joins)).is_empty(), "it goes on");
        assert_eq!(ends(&joins, Some(&after)), [(2, CopyWork::Sync, JobOutcome::Done)]);
        assert_eq!(joins.work_ended(Some(&after))[0].cause, Some(Cause::Restarted));
        assert!(ends(&after, Some(&before)).is_empty(), "that is a beginning");
        let moves = entry(&[(1, InSync, Some(Leaves::After(2))), (2, Joining, None)], &[]);
        let moved = entry(&[(1, InSync, Some(Leaves::After(2))), (2, InSync, None)], &[]);
        assert_eq!(ends(&moves, Some(&moved)), [(2, CopyWork::Move { from: 1 }, JobOutcome::Done)]);
        let alone = entry(&[(2, InSync, None)], &[]);
        assert_eq!(ends(&moved, Some(&alone)), [(1, CopyWork::Remove, JobOutcome::Done)]);
    }

    #[test]
    fn a_cancelled_job_is_reported_once() {
        let added = entry(&[(1, InSync, None), (2, Outside, None)], &[]);
        let leaves = entry(&[(1, InSync, None), (2, Outside, Some(Leaves::Now))], &[]);
        let without = entry(&[(1, InSync, None)], &[]);
        let cancelled = [(2, CopyWork::Add, JobOutcome::Cancelled)];
        assert_eq!(ends(&added, Some(&leaves)), cancelled);
        assert!(ends(&leaves, Some(&without)).is_empty());
        assert_eq!(ends(&added, Some(&without)), cancelled, "this node has not seen what was between");
        assert_eq!(ends(&added, None), cancelled);
        // A copy that had been in sync is removed, or stays.
        let leaves = entry(&[(1, InSync, None), (2, InSync, Some(Leaves::Now))], &[]);
        let out = entry(&[(1, InSync, None), (2, Outside, Some(Leaves::Now))], &MISSED);
        assert!(ends(&leaves, Some(&out)).is_empty());
        assert_eq!(ends(&out, Some(&without)), [(2, CopyWork::Remove, JobOutcome::Done)]);
        assert_eq!(ends(&out, None), [(2, CopyWork::Remove, JobOutcome::Done)]);
        let stays = entry(&[(1, InSync, None), (2, Outside, None)], &MISSED);
        assert_eq!(ends(&out, Some(&stays)), [(2, CopyWork::Remove, JobOutcome::Cancelled)]);
    }

    #[test]
    fn another_copy_on_the_same_node_is_another_one() {
        let before = entry(&[(1, InSync, None), (2, Outside, None)], &MISSED);
        let mut after = entry(&[(1, InSync, None), (2, Outside, None)], &[]);
        after.copies[1].made = 5;
        assert_eq!(ends(&before, Some(&after)), [(2, CopyWork::Sync, JobOutcome::Cancelled)]);
    }
}
