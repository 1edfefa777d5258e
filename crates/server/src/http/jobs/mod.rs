//! Jobs: work in progress, as the cluster's record and its nodes know it. This module stores nothing.
//!
//! Jobs on copies belong to the cluster, and every node reports them. Verifications, scrubs, conversions, the
//! freeing of snapshots and changes belong to a node: other nodes ask it for them ([`super::peers`]), and
//! forward calls about them to it ([`super::forwarding`]). Each node keeps for itself how jobs have ended
//! (`Control::ended_jobs`), except the freeing of snapshots: its end is of no interest.

pub(super) mod id;
mod report;
mod view;
mod would;

use std::cmp::Reverse;
use std::rc::Rc;
use std::time::Duration;

use ::node::control::{ChangeStatus, Conversion, EndedJob, EndedWork, Freeing, Scrub, Verification};
use ::node::copies::VolumeEntry;
use ::node::member::CopiesStatus;
use ::node::{Control, VolumeId};
use api::{DryRun, Job, JobKind, JobState, List};
use axum::Extension;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use terms::clock::unix_now;
use utoipa::IntoParams;

use self::id::{pool_of, volume_of};
use self::report::JobReport;
pub(super) use self::view::of_scrub;
use self::view::{of_change, of_conversion, of_ended, of_freeing, of_verification, of_volume};
use super::access::Caller;
use super::dry_run::DryRunParam;
use super::input::{Parameters, Segments};
use super::peers::{PeerQuery, Whose, gather};
use super::refusal::{Refusal, Reply};
use super::state::State;

/// Which jobs.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// A node number, or `all`: whose verify runs, scrubs, conversions and changes; absent: those of the
    /// queried node. Jobs on copies belong to the cluster, and are always listed.
    #[serde(default)]
    node: Option<String>,
    /// Jobs that ended recently, newest first, instead of those in progress.
    #[serde(default)]
    ended: bool,
}

/// Jobs in progress: those on copies in the whole cluster, and verify runs, scrubs, conversions, freeing
/// of snapshots and changes of the queried node; with `node=all`, of all nodes.
///
/// With `ended=true`, ended jobs: of the last 24 hours, up to a hundred of each kind (copies, verify runs,
/// scrubs, changes that took longer than a second), since the reporting node was started. The queried node
/// reports those on copies.
#[utoipa::path(
    get, path = "/v1/jobs", tag = "jobs", operation_id = "list_jobs",
    params(Which),
    responses(
        (status = OK, description = "All of it", body = List<Job>),
    ),
)]
pub(super) async fn list(
    state: State,
    Parameters(Which { node, ended }): Parameters<Which>,
) -> Reply<List<Job>> {
    let asked = Whose { node }.asked()?;
    let query = move |_| if ended { PeerQuery::EndedJobs } else { PeerQuery::Jobs };
    let known = move |control: Rc<Control>, is_asked: bool| async move {
        let known = if ended { Known::ended(&control) } else { Known::under_way(&control).await };
        Ok((known, is_asked))
    };
    let ((known, of_this), answers) = gather(&state, asked, query, known).await?;
    let mut items = if of_this { known } else { known.of_cluster() }.shown();
    let (theirs, missing) = answers.read::<JobReport>();
    items.extend(theirs.into_iter().map(JobReport::shown));
    // The sort is stable: jobs in progress keep their order.
    items.sort_by_key(|job| Reverse(job.ended.as_ref().map(|end| end.at)));
    Ok(axum::Json(List { items, missing }))
}

/// Shows one job of any node, in progress or ended. Ended jobs are kept for a day, until the node that
/// reports them is restarted.
#[utoipa::path(
    get, path = "/v1/jobs/{id}", tag = "jobs", operation_id = "show_job",
    params(("id" = String, Path, description = "Job ID")),
    responses(
        (status = OK, description = "The job", body = Job),
        (status = NOT_FOUND, description = "`job_not_found`"),
        (status = SERVICE_UNAVAILABLE, description = "`node_unreachable`: it belongs to another node, which is unreachable"),
    ),
)]
pub(super) async fn show(state: State, Segments(id): Segments<String>) -> Reply<Job> {
    Ok(axum::Json(find(&state, &id).await?))
}

/// Cancels a job and undoes it: an added or moved copy is removed again, a copy being removed is kept, a
/// volume being converted keeps its former kind on all nodes.
#[utoipa::path(
    delete, path = "/v1/jobs/{id}", tag = "jobs", operation_id = "cancel_job",
    params(("id" = String, Path, description = "Job ID"), DryRunParam),
    responses(
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = NO_CONTENT, description = "Cancelled; leftovers are cleaned up automatically"),
        (status = NOT_FOUND, description = "`job_not_found`, `copy_not_found`"),
        (status = CONFLICT, description = "`job_not_cancellable`; `job_ended`, `copy_in_sync`: it has ended; `forked`, `changed_meanwhile`"),
        (status = SERVICE_UNAVAILABLE, description = "`record_unavailable`; `node_unreachable`: it belongs to another node, which is unreachable"),
    ),
)]
pub(super) async fn cancel(
    state: State,
    Segments(id): Segments<String>,
    Parameters(DryRunParam { dry_run }): Parameters<DryRunParam>,
) -> Result<Response, Refusal> {
    let job = find_under_way(&state, &id).await?;
    if dry_run {
        return would::cancel(&state, &job).await;
    }
    let (volume, node) = (volume_of(&job.id).to_owned(), job.node);
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
        JobKind::Scrub => {
            let id = VolumeId::parse(&volume);
            let stop = move |control: Rc<Control>| async move {
                if let Some(id) = id {
                    control.stop_scrub(id).await;
                }
                Ok(())
            };
            state.call(stop).await?;
        }
        JobKind::Convert => {
            state
                .call(move |control| async move { control.cancel_conversion(&volume).await.map(drop) })
                .await?;
        }
        JobKind::Sync | JobKind::FreeSnapshots | JobKind::Change => {
            return Err(would::not_cancellable(&job));
        }
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Pauses a resync until it is resumed; it stays paused across restarts of nodes. The dirty map is kept. Or
/// pauses the freeing of the space of deleted snapshots in a pool, until it is resumed or the pool is opened
/// again; what is deleted meanwhile is not freed either.
///
/// The copy provides no redundancy until it is in sync: the volume has reduced redundancy meanwhile. A copy
/// that already takes new writes still completes its resync. Pausing a paused resync changes nothing.
#[utoipa::path(
    post, path = "/v1/jobs/{id}/pause", tag = "jobs", operation_id = "pause_job",
    params(("id" = String, Path, description = "Job ID")),
    responses(
        (status = OK, description = "The job", body = Job),
        (status = NOT_FOUND, description = "`job_not_found`"),
        (status = CONFLICT, description = "`job_not_pausable`: it is neither a resync nor `free_snapshots`, or nearly done; `job_ended`; `forked`, `changed_meanwhile`"),
    ),
)]
pub(super) async fn pause(
    state: State,
    Extension(caller): Extension<Caller>,
    Segments(id): Segments<String>,
) -> Reply<Job> {
    let job = find_under_way(&state, &id).await?;
    if job.paused.is_some() {
        return Ok(axum::Json(job));
    }
    if !job.can_be_paused {
        return Err(not_pausable(&job));
    }
    let (volume, node, pool) = (volume_of(&job.id).to_owned(), job.node, pool_of(&job.id));
    let pause = move |control: Rc<Control>| async move {
        match pool {
            Some(pool) => control.pause_freeing(pool, &caller.name).await,
            None => control.pause_sync(&volume, node, &caller.name).await,
        }
    };
    state.call(pause).await?;
    Ok(axum::Json(find(&state, &id).await?))
}

/// Resumes a job that was paused. One that is not paused is not affected.
#[utoipa::path(
    post, path = "/v1/jobs/{id}/resume", tag = "jobs", operation_id = "resume_job",
    params(("id" = String, Path, description = "Job ID")),
    responses(
        (status = OK, description = "The job", body = Job),
        (status = NOT_FOUND, description = "`job_not_found`"),
        (status = CONFLICT, description = "`job_not_pausable`: it is neither a resync nor `free_snapshots`; `job_ended`; `forked`, `changed_meanwhile`"),
    ),
)]
pub(super) async fn resume(state: State, Segments(id): Segments<String>) -> Reply<Job> {
    let job = find_under_way(&state, &id).await?;
    if job.paused.is_none() {
        let can_be_paused =
            matches!(job.kind, JobKind::Sync | JobKind::AddCopy | JobKind::MoveCopy | JobKind::FreeSnapshots);
        return if can_be_paused { Ok(axum::Json(job)) } else { Err(not_pausable(&job)) };
    }
    let (volume, node, pool) = (volume_of(&job.id).to_owned(), job.node, pool_of(&job.id));
    let resume = move |control: Rc<Control>| async move {
        match pool {
            Some(pool) => {
                control.resume_freeing(pool).await;
                Ok(())
            }
            None => control.resume_sync(&volume, node).await,
        }
    };
    state.call(resume).await?;
    // It may have finished by now.
    let now = find(&state, &id).await;
    let done = Job { state: JobState::Running, paused: None, waits_for: None, ..job };
    Ok(axum::Json(now.unwrap_or(done)))
}

fn not_pausable(job: &Job) -> Refusal {
    let detail = match job.kind {
        JobKind::Change | JobKind::RemoveCopy | JobKind::Verify | JobKind::Scrub | JobKind::Convert => {
            format!("{} cannot be paused: only resyncs and the freeing of snapshots can", job.subject)
        }
        _ => format!(
            "the copy of volume {:?} already takes new writes and is nearly in sync: it can no longer be paused",
            job.subject
        ),
    };
    Refusal::new(StatusCode::CONFLICT, "job_not_pausable", detail)
}

/// The job with this ID: the one in progress, or the last one that has ended.
async fn find(state: &State, id: &str) -> Result<Job, Refusal> {
    let look = |control: Rc<Control>| async move {
        let under_way = Known::under_way(&control).await;
        // Read afterwards, so that a job that ends meanwhile is in at least one of the lists.
        Ok(Known { ended: control.ended_jobs(), ..under_way })
    };
    let known = state.call(look).await?;
    known.shown().into_iter().find(|job| job.id == id).ok_or_else(|| {
        let detail = format!("job {id:?} not found, neither in progress nor ended");
        Refusal::new(StatusCode::NOT_FOUND, "job_not_found", detail).hint(
            "ended jobs are kept for a day, until the node is restarted: see `ursa job list --ended --node all`, and `ursa events`",
        )
    })
}

/// As [`find`], but refuses a job that has ended.
async fn find_under_way(state: &State, id: &str) -> Result<Job, Refusal> {
    let job = find(state, id).await?;
    if job.ended.is_none() {
        return Ok(job);
    }
    let how = match job.state {
        JobState::Failed => "has already failed",
        JobState::Cancelled => "was already cancelled",
        _ => "has already ended",
    };
    let detail = format!("job {id:?} {how}");
    Err(Refusal::new(StatusCode::CONFLICT, "job_ended", detail)
        .hint(format!("`ursa job show {id}` shows the result")))
}

/// The jobs that this node knows.
#[derive(Default)]
struct Known {
    node: u16,
    /// Volumes of the cluster with jobs on their copies.
    volumes: Vec<CopiesStatus>,
    /// Verifications by this node.
    comparisons: Vec<(VolumeId, Verification)>,
    /// Scrubs by this node, including those that were interrupted.
    scrubs: Vec<(VolumeId, Scrub)>,
    /// Conversions of this node's copies.
    conversions: Vec<(VolumeId, Conversion)>,
    /// Pools of this node in which space of deleted snapshots is being freed.
    freeings: Vec<Freeing>,
    /// Changes of this node.
    changes: Vec<ChangeStatus>,
    /// Ended jobs of the cluster and of this node, the newest first, and how long ago each ended.
    ended: Vec<(Duration, EndedJob)>,
}

impl Known {
    async fn under_way(control: &Control) -> Known {
        let volumes = match control.reconciler() {
            Ok(reconciler) => reconciler.volumes_in_parts(has_job).await,
            Err(_) => Vec::new(),
        };
        Known { volumes, ..Known::own(control) }
    }

    /// This node's own jobs in progress.
    fn own(control: &Control) -> Known {
        let node = control.number();
        let (comparisons, changes) = (control.verifications(), control.changes());
        let (scrubs, conversions) = (control.unfinished_scrubs(), control.conversions());
        let freeings = control.freeings();
        Known { node, comparisons, scrubs, conversions, freeings, changes, ..Known::default() }
    }

    fn ended(control: &Control) -> Known {
        let node = control.number();
        Known { node, ended: control.ended_jobs(), ..Known::default() }
    }

    /// Without this node's own jobs.
    fn of_cluster(self) -> Known {
        let ended = self.ended.into_iter().filter(|(_, job)| is_of_cluster(job)).collect();
        Known { node: self.node, volumes: self.volumes, ended, ..Known::default() }
    }

    /// The jobs as the API shows them. Not to be called on the node's core if there may be many.
    fn shown(self) -> Vec<Job> {
        let mut jobs: Vec<Job> = self.volumes.iter().flat_map(of_volume).collect();
        jobs.extend(self.reports().into_iter().map(JobReport::shown));
        jobs
    }

    /// The jobs except those in progress on copies, which the cluster's record has.
    fn reports(self) -> Vec<JobReport> {
        let (node, now) = (self.node, unix_now());
        let comparisons = self.comparisons.into_iter().map(|(id, found)| of_verification(id, found, node));
        let scrubs = self.scrubs.into_iter().map(|(id, scrub)| of_scrub(id, scrub, node));
        let conversions = self.conversions.into_iter().map(|(id, found)| of_conversion(id, found, node));
        let freeings = self.freeings.into_iter().map(|found| of_freeing(found, node));
        let changes = self.changes.into_iter().map(of_change);
        let ended = self.ended.into_iter();
        let ended = ended.map(|(ago, job)| of_ended(job, node, now.saturating_sub(ago.as_secs())));
        comparisons.chain(scrubs).chain(conversions).chain(freeings).chain(changes).chain(ended).collect()
    }
}

/// This node's own jobs in progress, for other nodes.
pub(super) fn own(control: &Control) -> Vec<JobReport> {
    Known::own(control).reports()
}

/// This node's own jobs that have ended, for other nodes.
pub(super) fn own_ended(control: &Control) -> Vec<JobReport> {
    let mut known = Known::ended(control);
    known.ended.retain(|(_, job)| !is_of_cluster(job));
    known.reports()
}

fn has_job(entry: &VolumeEntry) -> bool {
    entry.copies.iter().any(|copy| entry.work_on(copy).is_some())
}

fn is_of_cluster(job: &EndedJob) -> bool {
    matches!(job.work, EndedWork::Copy { .. })
}
