//! Ended jobs, kept for a while so that users can see how they ended.
//!
//! An end is noted where it happens: when the cluster's record changes, when a verification ends, when a
//! change ends. Jobs on copies belong to the cluster, and every node notes them; the other ones are a node's
//! own. A restart forgets all of them. Runs on core 0.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem::discriminant;
use std::time::Duration;

use base::Instant;

use super::{ChangeFailure, Control, Conversion, Doing, Scrub, Verification};
use crate::copies::{Cause, CopyWork, EndReason, VolumeEntry};
use crate::data::VolumeId;

/// How many are kept of each kind ([`EndedWork`]), at some 400 bytes each. A returning node may end thousands
/// of resyncs; the limit per kind keeps them from displacing verifications.
const KEPT_MAX: usize = 100;

/// How long they are kept.
const KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobOutcome {
    /// It is complete.
    Done,
    /// It failed.
    Failed,
    /// It was cancelled, or its object was removed.
    Cancelled,
}

/// A job that has ended.
#[derive(Clone, Debug)]
pub struct EndedJob {
    /// What it was.
    pub work: EndedWork,
    /// The name of the volume when the job ended; for a change, that of the object that it changed.
    pub subject: String,
    /// How it ended.
    pub outcome: JobOutcome,
    /// How long it took, if known.
    pub took: Option<Duration>,
}

/// What a job was.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // Fields are explained where their names do not.
pub enum EndedWork {
    /// A job on a copy.
    Copy {
        volume: String,
        node: u16,
        work: CopyWork,
        cause: Option<Cause>,
        /// Why it did not end as requested.
        reason: Option<EndReason>,
    },
    /// A verification.
    Verification {
        volume: VolumeId,
        /// What it found, without the list of differences.
        found: Box<Verification>,
    },
    /// A scrub.
    Scrub { volume: VolumeId, found: Box<Scrub> },
    /// A conversion of this node's copy of a volume.
    Conversion { volume: VolumeId, found: Box<Conversion> },
    /// A change of this node.
    Change {
        /// Its number, as in the list of changes under way.
        number: u64,
        /// Its kind.
        doing: Doing,
        /// Why it failed.
        failure: Option<ChangeFailure>,
    },
}

/// The ended jobs that are remembered.
#[derive(Default)]
pub(super) struct EndedJobs(RefCell<VecDeque<(Instant, EndedJob)>>);

impl EndedJobs {
    fn note(&self, now: Instant, job: EndedJob) {
        let mut kept = self.0.borrow_mut();
        kept.retain(|(ended, _)| now.since(*ended) < KEPT_FOR);
        let kind = discriminant(&job.work);
        let is_alike = |(_, other): &(Instant, EndedJob)| discriminant(&other.work) == kind;
        if kept.iter().filter(|other| is_alike(other)).count() >= KEPT_MAX
            && let Some(oldest) = kept.iter().position(is_alike)
        {
            kept.remove(oldest);
        }
        kept.push_back((now, job));
    }

    /// Newest first, each with the time since it ended.
    fn kept(&self, now: Instant) -> Vec<(Duration, EndedJob)> {
        let kept = self.0.borrow();
        let ago = kept.iter().rev().map(|(ended, job)| (now.since(*ended), job));
        ago.take_while(|(ago, _)| *ago < KEPT_FOR).map(|(ago, job)| (ago, job.clone())).collect()
    }
}

impl Control {
    /// The jobs that this node has seen end in the last 24 hours, newest first, each with the time since
    /// then.
    ///
    /// At most a hundred of each kind.
    pub fn ended_jobs(&self) -> Vec<(Duration, EndedJob)> {
        self.ended.kept(rt::now())
    }

    pub(super) fn note_end(&self, job: EndedJob) {
        self.ended.note(rt::now(), job);
    }
}

/// Notes jobs on copies of a volume that have ended with a change of its entry to `now`; `None` if it is
/// deleted.
///
/// Does nothing while the node starts.
pub(crate) fn note_ended_work(before: &VolumeEntry, now: Option<&VolumeEntry>) {
    let ended = before.work_ended(now);
    let Some(control) = Control::try_current().filter(|_| !ended.is_empty()) else { return };
    let name = &now.unwrap_or(before).name;
    for end in ended {
        control.note_end(EndedJob {
            work: EndedWork::Copy {
                volume: before.id.clone(),
                node: end.node,
                work: end.work,
                cause: end.cause,
                reason: end.reason,
            },
            subject: name.clone(),
            outcome: end.outcome,
            took: None,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(number: u64) -> EndedJob {
        EndedJob {
            work: EndedWork::Change { number, doing: Doing::GrowVolume, failure: None },
            subject: "db".into(),
            outcome: JobOutcome::Done,
            took: None,
        }
    }

    fn sync(node: u16) -> EndedJob {
        let (work, cause) = (CopyWork::Sync, Some(Cause::Silent));
        let work = EndedWork::Copy { volume: "ab".into(), node, work, cause, reason: None };
        EndedJob { work, ..change(0) }
    }

    fn numbers(kept: &[(Duration, EndedJob)]) -> Vec<u64> {
        let number = |(_, job): &(Duration, EndedJob)| match job.work {
            EndedWork::Change { number, .. } => Some(number),
            _ => None,
        };
        kept.iter().filter_map(number).collect()
    }

    fn at(seconds: u64) -> Instant {
        Instant::default() + Duration::from_secs(seconds)
    }

    #[test]
    fn the_newest_job_comes_first_and_the_oldest_of_its_kind_is_dropped() {
        let ended = EndedJobs::default();
        for number in 0..3 {
            ended.note(at(number), change(number));
        }
        assert_eq!(numbers(&ended.kept(at(3))), [2, 1, 0]);
        assert_eq!(ended.kept(at(3))[0].0, Duration::from_secs(1));
        // However many syncs end, changes stay.
        for node in 0..2 * KEPT_MAX as u16 {
            ended.note(at(3), sync(node));
        }
        let kept = ended.kept(at(3));
        assert_eq!((kept.len(), numbers(&kept)), (KEPT_MAX + 3, vec![2, 1, 0]));
        let nodes: Vec<u16> = kept
            .iter()
            .filter_map(|(_, job)| match job.work {
                EndedWork::Copy { node, .. } => Some(node),
                _ => None,
            })
            .collect();
        let last: Vec<u16> = (KEPT_MAX as u16..2 * KEPT_MAX as u16).rev().collect();
        assert_eq!(nodes, last);
        for number in 3..=KEPT_MAX as u64 {
            ended.note(at(4), change(number));
        }
        let kept = numbers(&ended.kept(at(4)));
        assert_eq!((kept.len(), kept.first(), kept.last()), (KEPT_MAX, Some(&(KEPT_MAX as u64)), Some(&1)));
    }

    #[test]
    fn jobs_that_ended_long_ago_are_forgotten() {
        let ended = EndedJobs::default();
        ended.note(at(0), change(1));
        ended.note(at(60), change(2));
        let day = KEPT_FOR.as_secs();
        assert_eq!(numbers(&ended.kept(at(day - 1))), [2, 1]);
        assert_eq!(numbers(&ended.kept(at(day))), [2]);
        ended.note(at(day + 60), change(3));
        assert_eq!(ended.0.borrow().len(), 1, "and takes no room");
    }
}
