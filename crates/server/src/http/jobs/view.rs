//! Jobs as the API shows them.

use ::node::VolumeId;
use ::node::control::{
    ChangeStatus, Conversion, EndedJob, EndedWork, Freeing, JobOutcome, Scrub, ScrubState, Verification,
    VerificationState, Work,
};
use ::node::copies::{CopyEntry, CopyWork, StandingEntry};
use ::node::member::CopiesStatus;
use api::{Job, JobEnd, JobFound, JobKind, JobState, SyncPaused};

use super::id;
use super::report::{EndFact, JobReport, JobWait};
use crate::http::volumes::copies::restraint;

pub(super) fn of_volume(volume: &CopiesStatus) -> Vec<Job> {
    let entry = &volume.entry;
    let job = |copy: &CopyEntry| {
        let (kind, from_node) = kind_of(entry.work_on(copy)?);
        let leaves = kind == JobKind::RemoveCopy;
        let sync = volume.syncs.get(&copy.slot).filter(|_| !leaves);
        let waits_for = match leaves {
            true => Some("the other copies, to continue without it".to_owned()),
            false => sync.and_then(|sync| sync.waits_for.as_ref()).map(ToString::to_string),
        };
        let paused = entry.paused.get(&copy.slot).filter(|_| !leaves);
        // A copy that is catching up gets the rest even while paused.
        let stands = copy.standing == StandingEntry::Outside && !leaves;
        let done = sync.map(|sync| sync.total_bytes.saturating_sub(sync.left_bytes));
        let state = match (&waits_for, paused) {
            (_, Some(_)) if stands => JobState::Paused,
            (Some(_), _) => JobState::Waiting,
            (None, _) => JobState::Running,
        };
        Some(Job {
            from_node,
            progress: sync
                .zip(done)
                .filter(|(sync, _)| sync.total_bytes > 0)
                .map(|(sync, done)| done as f64 / sync.total_bytes as f64),
            bytes_done: done,
            bytes_total: sync.map(|sync| sync.total_bytes),
            rate: sync.map(|sync| sync.bytes_per_second),
            eta_s: sync.and_then(|sync| sync.seconds_left()),
            cause: (!leaves).then(|| entry.cause(copy.slot).to_string()),
            limited_by: sync.and_then(|sync| sync.limited_by).map(restraint),
            waits_for,
            can_be_cancelled: kind != JobKind::Sync,
            can_be_paused: stands && paused.is_none(),
            paused: paused.map(|pause| SyncPaused { by: pause.by.clone(), since: pause.at }),
            ..plain((id::of_copy(&entry.id, copy.node), copy.node), kind, entry.name.clone(), state)
        })
    };
    entry.copies.iter().filter_map(job).collect()
}

pub(super) fn of_verification(id: VolumeId, found: Verification, node: u16) -> JobReport {
    let rate = (found.done * 1000).checked_div(found.took.as_millis() as u64).unwrap_or_default();
    let state = if found.done == 0 { JobState::Waiting } else { JobState::Running };
    let waits_for = (found.done == 0).then_some(JobWait::Turn);
    let job = Job {
        progress: Some(part_done(&found)),
        bytes_done: Some(found.done),
        bytes_total: Some(found.total),
        rate: Some(rate),
        eta_s: found.total.saturating_sub(found.done).checked_div(rate),
        age_s: Some(found.age.as_secs()),
        can_be_cancelled: true,
        ..plain((id::of_verification(id, node), node), JobKind::Verify, found.volume, state)
    };
    JobReport { waits_for, ..JobReport::of(job) }
}

pub(in crate::http) fn of_scrub(id: VolumeId, scrub: Scrub, node: u16) -> JobReport {
    let rate = (scrub.read * 1000).checked_div(scrub.took.as_millis() as u64).unwrap_or_default();
    let state = if scrub.waits_for.is_some() { JobState::Waiting } else { JobState::Running };
    let job = Job {
        progress: Some(part_of(scrub.done, scrub.total)),
        bytes_done: Some(scrub.done),
        bytes_total: Some(scrub.total),
        rate: Some(rate),
        // Not by what is left of the volume: what is not in use is not read.
        eta_s: scrub.left.map(|left| left.as_secs()),
        age_s: Some(scrub.age.as_secs()),
        can_be_cancelled: true,
        ..plain((id::of_scrub(id, node), node), JobKind::Scrub, scrub.volume, state)
    };
    JobReport { waits_for: scrub.waits_for.map(JobWait::Scrub), ..JobReport::of(job) }
}

/// The conversion of a copy by the node with this number.
pub(super) fn of_conversion(id: VolumeId, found: Conversion, node: u16) -> JobReport {
    let rate = (found.copied * 1000).checked_div(found.age.as_millis() as u64).unwrap_or_default();
    let is_waiting = found.waits_for.is_some() || found.copied == 0;
    let state = if is_waiting { JobState::Waiting } else { JobState::Running };
    let waits_for = is_waiting.then(|| found.waits_for.map_or(JobWait::Turn, JobWait::Conversion));
    let job = Job {
        progress: Some(part_of(found.done, found.total)),
        bytes_done: Some(found.done),
        bytes_total: Some(found.total),
        rate: Some(rate),
        eta_s: found.total.saturating_sub(found.done).checked_div(rate).filter(|_| !is_waiting),
        age_s: Some(found.age.as_secs()),
        can_be_cancelled: true,
        ..plain((id::of_conversion(id, node), node), JobKind::Convert, found.volume, state)
    };
    JobReport { waits_for, ..JobReport::of(job) }
}

/// The freeing of the space of deleted snapshots in a pool of the node with this number.
pub(super) fn of_freeing(found: Freeing, node: u16) -> JobReport {
    let is_paused = found.paused.is_some();
    let state = if is_paused { JobState::Paused } else { JobState::Running };
    let left = found.total.saturating_sub(found.done);
    JobReport::of(Job {
        progress: (found.total > 0).then(|| part_of(found.done, found.total)),
        bytes_done: Some(found.done),
        bytes_total: Some(found.total),
        rate: Some(found.rate).filter(|_| !is_paused),
        eta_s: left.checked_div(found.rate).filter(|_| !is_paused),
        age_s: Some(found.age.as_secs()),
        can_be_paused: !is_paused,
        paused: found.paused.map(|pause| SyncPaused { by: pause.by, since: pause.at }),
        ..plain((id::of_freeing(found.pool, node), node), JobKind::FreeSnapshots, found.name, state)
    })
}

/// A change of a node.
pub(super) fn of_change(change: ChangeStatus) -> JobReport {
    let (id, Work { doing, name }) = (id::of_change(change.number, change.node), change.work);
    let (zeroed, age_s) = (change.zeroed, Some(change.age.as_secs()));
    // The mean over the whole time: the disk takes pieces that may last seconds.
    let rate = zeroed.and_then(|zeroed| (zeroed.done.0 * 1000).checked_div(zeroed.took.as_millis() as u64));
    let left = zeroed.map_or(0, |zeroed| zeroed.total.0 - zeroed.done.0);
    let gets_on = zeroed.is_some_and(|zeroed| zeroed.gets_on);
    let state = if gets_on { JobState::Running } else { JobState::Waiting };
    let waits_for = (!gets_on).then_some(JobWait::Change(change.waits_for));
    let job = Job {
        progress: zeroed.map(|zeroed| zeroed.done.0 as f64 / zeroed.total.0 as f64),
        bytes_done: zeroed.map(|zeroed| zeroed.done.0),
        bytes_total: zeroed.map(|zeroed| zeroed.total.0),
        rate: rate.filter(|_| gets_on),
        eta_s: rate.filter(|_| gets_on).and_then(|rate| left.checked_div(rate)),
        age_s,
        ..plain((id, change.node), JobKind::Change, name, state)
    };
    JobReport { doing: Some(doing), waits_for, ..JobReport::of(job) }
}

/// A job that ended at this time, in seconds since 1970; `here` is the number of this node.
pub(super) fn of_ended(job: EndedJob, here: u16, at: u64) -> JobReport {
    let EndedJob { work, subject, outcome, took } = job;
    let state = match outcome {
        JobOutcome::Done => JobState::Ended,
        JobOutcome::Failed => JobState::Failed,
        JobOutcome::Cancelled => JobState::Cancelled,
    };
    let facts = end_facts(&work, outcome);
    let end = JobEnd { at, took_s: took.map(|took| took.as_secs()), reason: None, found: None };
    let report = match work {
        EndedWork::Copy { volume, node, work, cause, .. } => {
            let (kind, from_node) = kind_of(work);
            let progress = (outcome == JobOutcome::Done && kind != JobKind::RemoveCopy).then_some(1.0);
            let id = id::of_copy(&volume, node);
            let ended = Some(end);
            let job = Job { from_node, progress, ended, ..plain((id, node), kind, subject, state) };
            JobReport { cause, ..JobReport::of(job) }
        }
        EndedWork::Verification { volume, found } => {
            let end = JobEnd {
                found: Some(JobFound {
                    equal: found.is_equal(),
                    different_bytes: found.different,
                    unchecked_bytes: found.unchecked,
                }),
                ..end
            };
            JobReport::of(Job {
                progress: Some(part_done(&found)),
                bytes_done: Some(found.done),
                bytes_total: Some(found.total),
                ended: Some(end),
                ..plain((id::of_verification(volume, here), here), JobKind::Verify, subject, state)
            })
        }
        EndedWork::Scrub { volume, found } => JobReport::of(Job {
            progress: Some(part_of(found.done, found.total)),
            bytes_done: Some(found.done),
            bytes_total: Some(found.total),
            ended: Some(end),
            ..plain((id::of_scrub(volume, here), here), JobKind::Scrub, subject, state)
        }),
        EndedWork::Conversion { volume, found } => JobReport::of(Job {
            progress: Some(part_of(found.done, found.total)),
            bytes_done: Some(found.done),
            bytes_total: Some(found.total),
            ended: Some(end),
            ..plain((id::of_conversion(volume, here), here), JobKind::Convert, subject, state)
        }),
        EndedWork::Change { number, doing, .. } => {
            let id = (id::of_change(number, here), here);
            let job = Job { ended: Some(end), ..plain(id, JobKind::Change, subject, state) };
            JobReport { doing: Some(doing), ..JobReport::of(job) }
        }
    };
    JobReport { end: facts, ..report }
}

/// Why a job did not end as requested, and what else to know about it.
fn end_facts(work: &EndedWork, outcome: JobOutcome) -> Vec<EndFact> {
    let facts = match work {
        EndedWork::Copy { reason, .. } => [reason.map(EndFact::Copy), None, None],
        EndedWork::Verification { found, .. } if found.is_cut_short() => {
            [Some(EndFact::CopyGone), None, None]
        }
        EndedWork::Verification { found, .. } => [
            (found.state == VerificationState::Stopped).then_some(EndFact::Stopped),
            (found.different > 0).then_some(EndFact::Different(found.different)),
            (found.unchecked > 0).then(|| EndFact::Unchecked(found.unchecked, found.problem.clone())),
        ],
        EndedWork::Scrub { found, .. } => {
            let stopped = (found.state == ScrubState::Stopped).then_some(EndFact::Stopped);
            [stopped, Some(EndFact::Scrubbed(found.found)), None]
        }
        EndedWork::Conversion { .. } => {
            [(outcome == JobOutcome::Cancelled).then_some(EndFact::Cancelled), None, None]
        }
        EndedWork::Change { failure, .. } => [failure.clone().map(EndFact::Failed), None, None],
    };
    facts.into_iter().flatten().collect()
}

/// The kind of a job, and the node that a copy moves from.
fn kind_of(work: CopyWork) -> (JobKind, Option<u16>) {
    match work {
        CopyWork::Sync => (JobKind::Sync, None),
        CopyWork::Add => (JobKind::AddCopy, None),
        CopyWork::Move { from } => (JobKind::MoveCopy, Some(from)),
        CopyWork::Remove => (JobKind::RemoveCopy, None),
    }
}

/// The part that is done. A volume that has grown meanwhile has more blocks than the verification counted.
fn part_done(found: &Verification) -> f64 {
    part_of(found.done, found.total)
}

fn part_of(done: u64, total: u64) -> f64 {
    (done as f64 / total.max(1) as f64).min(1.0)
}

/// A job with no other properties; `id`: its ID, and the number of its node.
fn plain((id, node): (String, u16), kind: JobKind, subject: String, state: JobState) -> Job {
    Job {
        id,
        kind,
        subject,
        state,
        node,
        from_node: None,
        progress: None,
        bytes_done: None,
        bytes_total: None,
        rate: None,
        eta_s: None,
        age_s: None,
        cause: None,
        limited_by: None,
        waits_for: None,
        can_be_cancelled: false,
        can_be_paused: false,
        paused: None,
        ended: None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use ::node::control::{ChangeFailure, Doing, ScrubFound, ScrubWait, Uncompared, WaitsFor, Zeroed};
    use ::node::copies::{
        Cause, CopySync, EndReason, Leaves, Refused, Restraint, ShapeEntry, SyncPause, VolumeEntry,
    };
    use api::SyncRestraint;
    use base::ByteLen;

    use super::super::report::worded;
    use super::*;

    fn volume(copies: &[(u16, StandingEntry, Option<Leaves>)], missed: &[(u8, Cause)]) -> CopiesStatus {
        let copy =
            |(slot, (node, standing, leaves)): (usize, &(u16, StandingEntry, Option<Leaves>))| CopyEntry {
                slot: slot as u8,
                node: *node,
                standing: *standing,
                incarnation: 1,
                made: 1,
                asker: 0,
                leaves: *leaves,
            };
        let entry = VolumeEntry {
            id: "ab".into(),
            number: 1,
            name: "db".into(),
            size: 1 << 30,
            shape: ShapeEntry {
                kind: store::VolumeKind::Thick,
                block_bytes: 512,
                physical_exponent: 3,
                slices: 1,
                created: 0,
            },
            epoch: 4,
            copies: copies.iter().enumerate().map(copy).collect(),
            reason: Cause::VolumeCreated,
            dropped: Vec::new(),
            missed: missed.iter().cloned().collect(),
            unread: BTreeMap::new(),
            sole: false,
            paused: BTreeMap::new(),
            space: Default::default(),
            compression: Default::default(),
            restoring: None,
            restored: None,
            snapshots_above: None,
            clone_of: None,
        };
        let sync = CopySync {
            total_bytes: 400,
            left_bytes: 100,
            copied_bytes: 300,
            bytes_per_second: 50,
            ..CopySync::default()
        };
        let behind = entry.copies.iter().filter(|copy| copy.standing != StandingEntry::InSync);
        let syncs: BTreeMap<u8, CopySync> = behind.map(|copy| (copy.slot, sync.clone())).collect();
        let verification = ::node::copies::VerificationEntry::default();
        CopiesStatus {
            entry,
            here: None,
            serving: false,
            syncs,
            policy: None,
            fork: None,
            verification,
            verify_every: None,
            clone_of: None,
        }
    }

    use StandingEntry::{InSync, Joining, Outside};

    #[test]
    fn work_on_a_copy_is_a_job() {
        assert!(of_volume(&volume(&[(1, InSync, None), (2, InSync, None)], &[])).is_empty());
        let sync = of_volume(&volume(&[(1, InSync, None), (2, Joining, None)], &[(1, Cause::Restarted)]));
        assert_eq!((sync.len(), sync[0].kind, sync[0].node), (1, JobKind::Sync, 2));
        assert_eq!((sync[0].progress, sync[0].bytes_done, sync[0].eta_s), (Some(0.75), Some(300), Some(2)));
        assert_eq!(sync[0].cause.as_deref(), Some("its node restarted"));
        assert!(!sync[0].can_be_cancelled);
        let added = of_volume(&volume(&[(1, InSync, None), (2, Outside, None)], &[]));
        assert_eq!((added[0].kind, added[0].can_be_cancelled), (JobKind::AddCopy, true));
        let moved = of_volume(&volume(&[(1, InSync, Some(Leaves::After(2))), (2, Outside, None)], &[]));
        assert_eq!((moved.len(), moved[0].kind, moved[0].from_node), (1, JobKind::MoveCopy, Some(1)));
        let leaves = of_volume(&volume(&[(1, InSync, None), (2, InSync, Some(Leaves::Now))], &[]));
        assert_eq!((leaves[0].kind, leaves[0].progress), (JobKind::RemoveCopy, None));
        assert_eq!(id::volume_of(&leaves[0].id), "ab");
    }

    #[test]
    fn a_sync_says_what_keeps_it_from_going_faster() {
        let mut behind = volume(&[(1, InSync, None), (2, Outside, None)], &[]);
        assert_eq!(of_volume(&behind)[0].limited_by, None);
        behind.syncs.get_mut(&1).unwrap().limited_by = Some(Restraint::NodeLimit);
        assert_eq!(of_volume(&behind)[0].limited_by, Some(SyncRestraint::NodeLimit));
        // A copy that is being removed is not resynced.
        behind.entry.copies[1].leaves = Some(Leaves::Now);
        assert_eq!(of_volume(&behind)[0].limited_by, None);
    }

    #[test]
    fn a_paused_resync_names_the_user_who_paused_it() {
        let pause = || SyncPause { by: "eva".into(), at: 9 };
        let mut behind = volume(&[(1, InSync, None), (2, Outside, None)], &[(1, Cause::Restarted)]);
        let job = |volume: &CopiesStatus| of_volume(volume).remove(0);
        assert_eq!((job(&behind).state, job(&behind).can_be_paused), (JobState::Running, true));
        behind.entry.paused.insert(1, pause());
        let paused = job(&behind);
        assert_eq!((paused.state, paused.can_be_paused), (JobState::Paused, false));
        assert_eq!(paused.paused, Some(SyncPaused { by: "eva".into(), since: 9 }));
        // A copy that is catching up completes its resync, and one that is being removed is not resynced.
        behind.entry.copies[1].standing = Joining;
        assert_eq!((job(&behind).state, job(&behind).can_be_paused), (JobState::Running, false));
        behind.entry.copies[1].leaves = Some(Leaves::Now);
        assert_eq!((job(&behind).state, job(&behind).paused), (JobState::Waiting, None));
    }

    #[test]
    fn a_change_says_how_far_its_zeroing_is() {
        let change = |zeroed| ChangeStatus {
            number: 7,
            node: 2,
            work: Work { doing: Doing::MakeVolume, name: "db".into() },
            age: Duration::from_secs(12),
            waits_for: WaitsFor::Disks(vec!["/dev/sdb".into()]),
            zeroed,
        };
        let zeroed = |done, gets_on| {
            let took = Duration::from_secs(10);
            Some(Zeroed { done: ByteLen(done), total: ByteLen(4000), took, gets_on })
        };
        let job = of_change(change(None)).shown();
        assert_eq!((job.state, job.progress, job.bytes_total), (JobState::Waiting, None, None));
        let job = of_change(change(zeroed(1000, true))).shown();
        assert_eq!((job.state, job.progress, job.age_s), (JobState::Running, Some(0.25), Some(12)));
        assert_eq!((job.bytes_done, job.bytes_total), (Some(1000), Some(4000)));
        assert_eq!((job.rate, job.eta_s, job.waits_for), (Some(100), Some(30), None));
        let job = of_change(change(zeroed(1000, false))).shown();
        assert_eq!((job.state, job.rate, job.eta_s), (JobState::Waiting, None, None));
        assert_eq!(job.waits_for.as_deref(), Some("a response from /dev/sdb"));
        assert_eq!(of_change(change(zeroed(0, true))).shown().eta_s, None, "nobody can say");
    }

    #[test]
    fn a_scrub_says_how_long_it_takes_or_what_it_waits_for() {
        let running = Scrub {
            volume: "db".into(),
            state: ScrubState::Running,
            age: Duration::from_secs(20),
            took: Duration::from_secs(10),
            total: 1000 << 30,
            done: 500 << 30,
            read: 1 << 30,
            found: ScrubFound::default(),
            problem: None,
            waits_for: None,
            left: Some(Duration::from_secs(10)),
        };
        let job = of_scrub(VolumeId([5; 16]), running.clone(), 2).shown();
        assert_eq!((job.state, job.eta_s, job.progress), (JobState::Running, Some(10), Some(0.5)));
        let waits_for = Some(ScrubWait::Sync);
        let interrupted = Scrub { state: ScrubState::Interrupted, waits_for, left: None, ..running };
        let job = of_scrub(VolumeId([5; 16]), interrupted, 2).shown();
        assert_eq!((job.state, job.eta_s, job.can_be_cancelled), (JobState::Waiting, None, true));
        assert_eq!(job.waits_for.as_deref(), Some("the copy on this node to be in sync"));
    }

    #[test]
    fn the_freeing_of_snapshots_is_a_job_that_can_be_paused() {
        let running = Freeing {
            pool: store::PoolId([9; 16]),
            name: "default".into(),
            done: 300,
            total: 1_200,
            rate: 100,
            age: Duration::from_secs(3),
            paused: None,
        };
        let job = of_freeing(running.clone(), 2).shown();
        assert_eq!((job.kind, job.subject.as_str(), job.node), (JobKind::FreeSnapshots, "default", 2));
        assert_eq!((job.state, job.progress, job.eta_s), (JobState::Running, Some(0.25), Some(9)));
        assert_eq!((job.can_be_paused, job.can_be_cancelled), (true, false));
        let paused = Some(SyncPause { by: "eva".into(), at: 9 });
        let job = of_freeing(Freeing { paused, ..running }, 2).shown();
        assert_eq!((job.state, job.rate, job.eta_s), (JobState::Paused, None, None));
        assert_eq!(job.paused, Some(SyncPaused { by: "eva".into(), since: 9 }));
        assert!(!job.can_be_paused);
    }

    #[test]
    fn the_end_of_a_job_is_reported() {
        let found = Verification {
            volume: "db".into(),
            state: VerificationState::Done,
            age: Duration::from_secs(9),
            took: Duration::from_secs(7),
            total: 4096,
            done: 4096,
            unchecked: 0,
            problem: None,
            different: 512,
            differences: Vec::new(),
            nodes: [1, 2].into(),
        };
        let compared = EndedJob {
            work: EndedWork::Verification { volume: VolumeId([5; 16]), found: Box::new(found) },
            subject: "db".into(),
            outcome: JobOutcome::Done,
            took: Some(Duration::from_secs(7)),
        };
        let job = of_ended(compared.clone(), 2, 1000).shown();
        assert_eq!((job.state, job.node, job.can_be_cancelled), (JobState::Ended, 2, false));
        assert_eq!(id::node_of(&job.id), Some(2));
        let end = job.ended.unwrap();
        assert_eq!((end.at, end.took_s), (1000, Some(7)));
        assert_eq!(end.reason.as_deref(), Some("copies differ in 512B"));
        assert_eq!(end.found, Some(JobFound { equal: false, different_bytes: 512, unchecked_bytes: 0 }));

        let work = CopyWork::Move { from: 1 };
        let (cause, reason) = (Some(Cause::Silent), Some(EndReason::CopyRemoved));
        let work = EndedWork::Copy { volume: "ab".into(), node: 3, work, cause, reason };
        let moved = EndedJob { work, outcome: JobOutcome::Cancelled, ..compared.clone() };
        let job = of_ended(moved, 2, 1000).shown();
        assert_eq!((job.id.as_str(), job.kind), ("copy.ab.3", JobKind::MoveCopy));
        assert_eq!(job.state, JobState::Cancelled);
        let reason = job.ended.unwrap().reason;
        assert_eq!(reason.as_deref(), Some("the copy was removed before it was in sync"));
        assert_eq!((job.node, job.from_node, job.progress), (3, Some(1), None));

        let failure = Some(ChangeFailure::Refused(Refused::NoSpace { wanted: 8 << 20, free: 4 << 20 }));
        let work = EndedWork::Change { number: 7, doing: Doing::GrowVolume, failure };
        let change = EndedJob { work, outcome: JobOutcome::Failed, ..compared };
        let job = of_ended(change, 2, 1000).shown();
        assert_eq!((job.id.as_str(), job.node, job.state), ("change.7.2", 2, JobState::Failed));
        assert_eq!(job.subject, "growing volume \"db\"");
        let reason = job.ended.unwrap().reason;
        assert_eq!(reason.as_deref(), Some("not enough space: 8M requested, 4M free"));
    }

    #[test]
    fn facts_are_sent_and_worded_where_they_are_shown() {
        let work = Work { doing: Doing::MakeVolume, name: "db".into() };
        let waits_for = WaitsFor::Disks(vec!["/dev/sdb".into()]);
        let age = Duration::from_secs(12);
        let running = of_change(ChangeStatus { number: 7, node: 2, work, age, waits_for, zeroed: None });
        let failure = Some(ChangeFailure::Refused(Refused::NoSpace { wanted: 8 << 20, free: 4 << 20 }));
        let work = EndedWork::Change { number: 7, doing: Doing::GrowVolume, failure };
        let (subject, outcome) = ("db".into(), JobOutcome::Failed);
        let failed = of_ended(EndedJob { work, subject, outcome, took: None }, 2, 1000);
        for report in [running, failed] {
            let sent = serde_json::to_string(&report).unwrap();
            let words = ["response", "volume ", "enough", "requested"];
            assert!(words.iter().all(|word| !sent.contains(word)), "{sent}");
            let there: JobReport = serde_json::from_str(&sent).unwrap();
            assert_eq!(there.shown(), report.shown());
        }
    }

    #[test]
    fn what_a_verify_found_is_said_in_one_sentence() {
        use VerificationState::{Done, Stopped};

        let said = |state, done, different, unchecked| {
            let found = Verification {
                volume: "db".into(),
                state,
                age: Duration::ZERO,
                took: Duration::ZERO,
                total: 1 << 20,
                done,
                unchecked,
                problem: Some(Uncompared::NotPaused),
                different,
                differences: Vec::new(),
                nodes: [1, 2].into(),
            };
            let work = EndedWork::Verification { volume: VolumeId([5; 16]), found: Box::new(found) };
            worded(&end_facts(&work, JobOutcome::Done))
        };
        assert_eq!(said(Done, 1 << 20, 0, 0), None);
        let text = "stopped before it was complete; copies differ in 64K";
        assert_eq!(said(Stopped, 1 << 19, 65_536, 0).as_deref(), Some(text));
        let text = "copies differ in 512B; 4K could not be compared: host writes to it could not be paused";
        assert_eq!(said(Done, 1 << 20, 512, 4096).as_deref(), Some(text));
        assert_eq!(said(Done, 0, 0, 0).as_deref(), Some("the volume no longer has a copy on this node"));
    }
}
