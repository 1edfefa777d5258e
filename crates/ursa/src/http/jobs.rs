//! Jobs: work that takes its time, as the cluster's record and the node know it. Nothing is kept of them here.

use std::rc::Rc;

use ::node::control::{ChangeStatus, Verification};
use ::node::copies::{CopiesStatus, CopyEntry, Leaves, StandingEntry, VolumeEntry};
use ::node::{Control, VolumeId};
use api::{Job, JobKind, JobState, List, Problem, SyncPaused};
use axum::Extension;
use axum::extract::State as Extracted;
use axum::http::StatusCode;

use super::access::Caller;
use super::input::Segments;
use super::refusal::Refusal;
use super::state::State;
use super::volumes::copies::restraint;

/// What is under way: copies of the whole cluster, and changes of the node that is asked.
#[utoipa::path(get, path = "/v1/jobs", tag = "jobs", operation_id = "list_jobs", responses((status = OK, description = "All of it", body = List<Job>)))]
pub(super) async fn list(Extracted(state): Extracted<State>) -> Result<axum::Json<List<Job>>, Refusal> {
    Ok(axum::Json(List::of(all(&state).await?)))
}

/// One job. When it is over there is none any more.
#[utoipa::path(
    get, path = "/v1/jobs/{id}", tag = "jobs", operation_id = "show_job",
    params(("id" = String, Path, description = "What it is found by")),
    responses(
        (status = OK, description = "The job", body = Job),
        (status = NOT_FOUND, description = "`job_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn show(
    Extracted(state): Extracted<State>,
    Segments(id): Segments<String>,
) -> Result<axum::Json<Job>, Refusal> {
    Ok(axum::Json(find(&state, &id).await?))
}

/// Takes a job back: a copy that is added or moved is taken away again, one that is to leave stays.
#[utoipa::path(
    delete, path = "/v1/jobs/{id}", tag = "jobs", operation_id = "cancel_job",
    params(("id" = String, Path, description = "What it is found by")),
    responses(
        (status = NO_CONTENT, description = "It is taken back; what it has left is tidied up by itself"),
        (status = NOT_FOUND, description = "`job_not_found`, `copy_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = CONFLICT, description = "`job_not_cancellable`, `copy_in_sync`: it is over; `forked`, `changed_meanwhile`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = SERVICE_UNAVAILABLE, description = "`record_unavailable`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn cancel(
    Extracted(state): Extracted<State>,
    Segments(id): Segments<String>,
) -> Result<StatusCode, Refusal> {
    let job = find(&state, &id).await?;
    let (volume, node) = (volume_of(&job.id).to_owned(), job.node.unwrap_or_default());
    match job.kind {
        JobKind::AddCopy | JobKind::MoveCopy => {
            state.call(move |control| async move { control.cancel_copy(&volume, node).await }).await?;
        }
        JobKind::RemoveCopy => {
            state.call(move |control| async move { control.keep_copy(&volume, node).await }).await?;
        }
        JobKind::Verify => {
            let id = VolumeId::parse(&volume);
            let stop = move |control: Rc<Control>| async move {
                id.into_iter().for_each(|id| control.stop_verification(id));
                Ok(())
            };
            state.call(stop).await?;
        }
        JobKind::Sync => {
            let (volume, node) = (job.subject, job.node.unwrap_or_default());
            let detail = format!(
                "the copy of volume {volume:?} on node {node} has to be brought up to date, or it protects nothing"
            );
            return Err(Refusal::new(StatusCode::CONFLICT, "job_not_cancellable", detail).hint(format!(
                "pause it, make it slower with `ursa node sync-limit`, or take the copy away: `ursa volume copy remove {volume} --on {node}`"
            )));
        }
        JobKind::Change => {
            let detail = format!("{} goes on to its end: half of it would be worse", job.subject);
            return Err(Refusal::new(StatusCode::CONFLICT, "job_not_cancellable", detail)
                .hint("see what it waits for"));
        }
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Has a sync stand still until it is resumed, over restarts of nodes, too. What is noted of what the copy misses is kept.
///
/// The copy protects nothing until it is in sync: the volume survives fewer losses meanwhile. One that takes new writes already comes in sync all the same.
/// A sync that is paused already stays so.
#[utoipa::path(
    post, path = "/v1/jobs/{id}/pause", tag = "jobs", operation_id = "pause_job",
    params(("id" = String, Path, description = "What it is found by")),
    responses(
        (status = OK, description = "The job", body = Job),
        (status = NOT_FOUND, description = "`job_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = CONFLICT, description = "`job_not_pausable`: it is no sync, or nearly done; `forked`, `changed_meanwhile`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = SERVICE_UNAVAILABLE, description = "`record_unavailable`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn pause(
    Extracted(state): Extracted<State>,
    Extension(caller): Extension<Caller>,
    Segments(id): Segments<String>,
) -> Result<axum::Json<Job>, Refusal> {
    let job = find(&state, &id).await?;
    if job.paused.is_some() {
        return Ok(axum::Json(job));
    }
    if !job.can_be_paused {
        return Err(not_pausable(&job));
    }
    let (volume, node) = (volume_of(&job.id).to_owned(), job.node.unwrap_or_default());
    let pause =
        move |control: Rc<Control>| async move { control.pause_sync(&volume, node, &caller.name).await };
    state.call(pause).await?;
    Ok(axum::Json(find(&state, &id).await?))
}

/// Has a sync go on that was paused. One that is not stays as it is.
#[utoipa::path(
    post, path = "/v1/jobs/{id}/resume", tag = "jobs", operation_id = "resume_job",
    params(("id" = String, Path, description = "What it is found by")),
    responses(
        (status = OK, description = "The job", body = Job),
        (status = NOT_FOUND, description = "`job_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = CONFLICT, description = "`job_not_pausable`: it is no sync; `forked`, `changed_meanwhile`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = SERVICE_UNAVAILABLE, description = "`record_unavailable`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn resume(
    Extracted(state): Extracted<State>,
    Segments(id): Segments<String>,
) -> Result<axum::Json<Job>, Refusal> {
    let job = find(&state, &id).await?;
    if job.paused.is_none() {
        let is_sync = matches!(job.kind, JobKind::Sync | JobKind::AddCopy | JobKind::MoveCopy);
        return if is_sync { Ok(axum::Json(job)) } else { Err(not_pausable(&job)) };
    }
    let (volume, node) = (volume_of(&job.id).to_owned(), job.node.unwrap_or_default());
    state.call(move |control| async move { control.resume_sync(&volume, node).await }).await?;
    // It may be over by now.
    let now = find(&state, &id).await;
    let done = Job { state: JobState::Running, paused: None, waits_for: None, ..job };
    Ok(axum::Json(now.unwrap_or(done)))
}

fn not_pausable(job: &Job) -> Refusal {
    let detail = match job.kind {
        JobKind::Change | JobKind::RemoveCopy | JobKind::Verify => {
            format!("{} is no sync: only what is copied can be paused", job.subject)
        }
        _ => format!(
            "the copy of volume {:?} takes new writes already and has nearly all: it comes in sync",
            job.subject
        ),
    };
    Refusal::new(StatusCode::CONFLICT, "job_not_pausable", detail)
}

async fn find(state: &State, id: &str) -> Result<Job, Refusal> {
    let found = all(state).await?.into_iter().find(|job| job.id == id);
    found.ok_or_else(|| {
        let detail = format!("there is no job {id:?} under way");
        Refusal::new(StatusCode::NOT_FOUND, "job_not_found", detail)
            .hint("it may be over: `ursa events` shows what has happened")
    })
}

async fn all(state: &State) -> Result<Vec<Job>, Refusal> {
    let now = |control: Rc<Control>| async move {
        let volumes = match control.keeper() {
            Some(keeper) => keeper.volumes_in_parts(has_job).await,
            None => Vec::new(),
        };
        Ok((volumes, control.verifications(), control.changes()))
    };
    let (volumes, verifications, changes) = state.call(now).await?;
    let mut jobs: Vec<Job> = volumes.iter().flat_map(of_volume).collect();
    jobs.extend(verifications.into_iter().map(|(id, found)| of_verification(id, found)));
    jobs.extend(changes.into_iter().map(of_change));
    Ok(jobs)
}

/// The volume's identity in a job's.
fn volume_of(id: &str) -> &str {
    id.split('.').nth(1).unwrap_or_default()
}

fn has_job(entry: &VolumeEntry) -> bool {
    entry.copies.iter().any(is_worked_on)
}

/// Whether a copy is brought up to date, or taken away.
fn is_worked_on(copy: &CopyEntry) -> bool {
    copy.standing != StandingEntry::InSync || copy.leaves == Some(Leaves::Now)
}

fn of_volume(volume: &CopiesStatus) -> Vec<Job> {
    let entry = &volume.entry;
    // Who leaves as soon as this one is in sync.
    let from = |node: u16| {
        entry.copies.iter().find(|copy| copy.leaves == Some(Leaves::After(node))).map(|copy| copy.node)
    };
    let job = |copy: &CopyEntry| {
        if !is_worked_on(copy) {
            return None;
        }
        let leaves = copy.leaves == Some(Leaves::Now);
        let (from_node, is_new) = (from(copy.node), entry.is_new(copy.slot));
        let kind = match (leaves, from_node) {
            (true, _) => JobKind::RemoveCopy,
            (false, Some(_)) => JobKind::MoveCopy,
            (false, None) if is_new => JobKind::AddCopy,
            (false, None) => JobKind::Sync,
        };
        let sync = volume.syncs.get(&copy.slot).filter(|_| !leaves);
        let waits_for = match leaves {
            true => Some("the other copies, to go on without it".to_owned()),
            false => sync.and_then(|sync| sync.waits_for.clone()),
        };
        let paused = entry.paused.get(&copy.slot).filter(|_| !leaves);
        // Who takes new writes already is given the rest.
        let stands = copy.standing == StandingEntry::Outside && !leaves;
        let done = sync.map(|sync| sync.total_bytes.saturating_sub(sync.left_bytes));
        Some(Job {
            id: format!("copy.{}.{}", entry.id, copy.node),
            kind,
            subject: entry.name.clone(),
            state: match (&waits_for, paused) {
                (_, Some(_)) if stands => JobState::Paused,
                (Some(_), _) => JobState::Waiting,
                (None, _) => JobState::Running,
            },
            node: Some(copy.node),
            from_node,
            progress: sync
                .zip(done)
                .filter(|(sync, _)| sync.total_bytes > 0)
                .map(|(sync, done)| done as f64 / sync.total_bytes as f64),
            bytes_done: done,
            bytes_total: sync.map(|sync| sync.total_bytes),
            rate: sync.map(|sync| sync.bytes_per_second),
            eta_s: sync.and_then(|sync| sync.seconds_left()),
            age_s: None,
            cause: if leaves { None } else { Some(entry.cause(copy.slot).to_owned()) },
            held_back_by: sync.and_then(|sync| sync.held_back_by).map(restraint),
            waits_for,
            can_be_cancelled: kind != JobKind::Sync,
            can_be_paused: stands && paused.is_none(),
            paused: paused.map(|pause| SyncPaused { by: pause.by.clone(), since: pause.at }),
        })
    };
    entry.copies.iter().filter_map(job).collect()
}

fn of_verification(id: VolumeId, found: Verification) -> Job {
    let rate = (found.done * 1000).checked_div(found.took.as_millis() as u64).unwrap_or_default();
    Job {
        id: format!("verify.{id}"),
        kind: JobKind::Verify,
        subject: found.volume,
        state: if found.done == 0 { JobState::Waiting } else { JobState::Running },
        node: None,
        from_node: None,
        progress: Some(found.done as f64 / found.total.max(1) as f64),
        bytes_done: Some(found.done),
        bytes_total: Some(found.total),
        rate: Some(rate),
        eta_s: (found.total - found.done).checked_div(rate),
        age_s: Some(found.age.as_secs()),
        cause: None,
        held_back_by: None,
        waits_for: (found.done == 0).then(|| "its turn".to_owned()),
        can_be_cancelled: true,
        can_be_paused: false,
        paused: None,
    }
}

fn of_change(change: ChangeStatus) -> Job {
    Job {
        id: format!("change.{}", change.number),
        kind: JobKind::Change,
        subject: change.work.to_string(),
        state: JobState::Waiting,
        node: None,
        from_node: None,
        progress: None,
        bytes_done: None,
        bytes_total: None,
        rate: None,
        eta_s: None,
        age_s: Some(change.age.as_secs()),
        cause: None,
        held_back_by: None,
        waits_for: Some(change.waits_for.to_string()),
        can_be_cancelled: false,
        can_be_paused: false,
        paused: None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ::node::copies::{CopySync, Restraint, SyncPause, VolumeEntry};
    use api::SyncRestraint;

    use super::*;

    fn volume(copies: &[(u16, StandingEntry, Option<Leaves>)], missed: &[(u8, &str)]) -> CopiesStatus {
        let copy =
            |(slot, (node, standing, leaves)): (usize, &(u16, StandingEntry, Option<Leaves>))| CopyEntry {
                slot: slot as u8,
                node: *node,
                standing: *standing,
                incarnation: 1,
                made: 1,
                leaves: *leaves,
            };
        let entry = VolumeEntry {
            id: "ab".into(),
            number: 1,
            name: "db".into(),
            size: 1 << 30,
            epoch: 4,
            copies: copies.iter().enumerate().map(copy).collect(),
            reason: "-".into(),
            dropped: Vec::new(),
            missed: missed.iter().map(|(slot, why)| (*slot, (*why).to_owned())).collect(),
            paused: BTreeMap::new(),
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
        CopiesStatus { entry, here: None, serving: false, syncs, strategy: None, fork: None }
    }

    use StandingEntry::{InSync, Joining, Outside};

    #[test]
    fn what_becomes_of_a_copy_is_a_job() {
        assert!(of_volume(&volume(&[(1, InSync, None), (2, InSync, None)], &[])).is_empty());
        let sync =
            of_volume(&volume(&[(1, InSync, None), (2, Joining, None)], &[(1, "its node was restarted")]));
        assert_eq!((sync.len(), sync[0].kind, sync[0].node), (1, JobKind::Sync, Some(2)));
        assert_eq!((sync[0].progress, sync[0].bytes_done, sync[0].eta_s), (Some(0.75), Some(300), Some(2)));
        assert_eq!(sync[0].cause.as_deref(), Some("its node was restarted"));
        assert!(!sync[0].can_be_cancelled);
        let added = of_volume(&volume(&[(1, InSync, None), (2, Outside, None)], &[]));
        assert_eq!((added[0].kind, added[0].can_be_cancelled), (JobKind::AddCopy, true));
        let moved = of_volume(&volume(&[(1, InSync, Some(Leaves::After(2))), (2, Outside, None)], &[]));
        assert_eq!((moved.len(), moved[0].kind, moved[0].from_node), (1, JobKind::MoveCopy, Some(1)));
        let leaves = of_volume(&volume(&[(1, InSync, None), (2, InSync, Some(Leaves::Now))], &[]));
        assert_eq!((leaves[0].kind, leaves[0].progress), (JobKind::RemoveCopy, None));
        assert_eq!(volume_of(&leaves[0].id), "ab");
    }

    #[test]
    fn a_sync_says_what_keeps_it_from_going_faster() {
        let mut behind = volume(&[(1, InSync, None), (2, Outside, None)], &[]);
        assert_eq!(of_volume(&behind)[0].held_back_by, None);
        behind.syncs.get_mut(&1).unwrap().held_back_by = Some(Restraint::NodeLimit);
        assert_eq!(of_volume(&behind)[0].held_back_by, Some(SyncRestraint::NodeLimit));
        // What goes is given nothing.
        behind.entry.copies[1].leaves = Some(Leaves::Now);
        assert_eq!(of_volume(&behind)[0].held_back_by, None);
    }

    #[test]
    fn a_paused_sync_says_who_has_paused_it() {
        let pause = || SyncPause { by: "eva".into(), at: 9 };
        let mut behind = volume(&[(1, InSync, None), (2, Outside, None)], &[(1, "its node was restarted")]);
        let job = |volume: &CopiesStatus| of_volume(volume).remove(0);
        assert_eq!((job(&behind).state, job(&behind).can_be_paused), (JobState::Running, true));
        behind.entry.paused.insert(1, pause());
        let paused = job(&behind);
        assert_eq!((paused.state, paused.can_be_paused), (JobState::Paused, false));
        assert_eq!(paused.paused, Some(SyncPaused { by: "eva".into(), since: 9 }));
        // What takes new writes already ends, and what leaves is given nothing.
        behind.entry.copies[1].standing = Joining;
        assert_eq!((job(&behind).state, job(&behind).can_be_paused), (JobState::Running, false));
        behind.entry.copies[1].leaves = Some(Leaves::Now);
        assert_eq!((job(&behind).state, job(&behind).paused), (JobState::Waiting, None));
    }
}
