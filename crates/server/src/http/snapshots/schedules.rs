//! Schedules of snapshots.

use ::node::control::{ScheduleChange, ScheduleSpec, ScheduleStatus};
use ::node::copies::{Retention, ScheduleEntry};
use api::{DryRun, List, SnapshotSchedule, SnapshotScheduleChange, SnapshotScheduleCreate};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::super::dry_run::{self, DryRunParam};
use super::super::input::{Json, Parameters, Segments};
use super::super::refusal::{Refusal, Reply};
use super::super::state::State;

/// All schedules of snapshots, by name.
#[utoipa::path(
    get, path = "/v1/snapshot-schedules", tag = "snapshots", operation_id = "list_snapshot_schedules",
    responses((status = OK, description = "Those of the cluster", body = List<SnapshotSchedule>)),
)]
pub(in crate::http) async fn list(state: State) -> Reply<List<SnapshotSchedule>> {
    let all = state.call(|control| async move { control.snapshot_schedules() }).await?;
    Ok(axum::Json(List::of(all.into_iter().map(shown).collect())))
}

/// One schedule of snapshots.
#[utoipa::path(
    get, path = "/v1/snapshot-schedules/{schedule}", tag = "snapshots",
    operation_id = "show_snapshot_schedule",
    params(("schedule" = String, Path, description = "Schedule name")),
    responses(
        (status = OK, description = "The schedule", body = SnapshotSchedule),
        (status = NOT_FOUND, description = "`snapshot_schedule_not_found`"),
    ),
)]
pub(in crate::http) async fn show(
    state: State,
    Segments(schedule): Segments<String>,
) -> Reply<SnapshotSchedule> {
    let found = state.call(move |control| async move { control.snapshot_schedule(&schedule) }).await?;
    Ok(axum::Json(shown(found)))
}

/// Creates a schedule of snapshots.
///
/// One node of the cluster takes each snapshot, whichever are up. If several times have passed without one,
/// one is taken as soon as possible. The first snapshot is due at the next multiple of the interval.
#[utoipa::path(
    post, path = "/v1/snapshot-schedules", tag = "snapshots", operation_id = "create_snapshot_schedule",
    request_body = SnapshotScheduleCreate,
    responses(
        (status = CREATED, description = "It is created", body = SnapshotSchedule),
        (status = NOT_FOUND, description = "`volume_not_found`"),
        (status = CONFLICT, description = "`snapshot_schedule_exists`; `snapshot_volume_kind`: a volume is not a log volume; `too_many_schedules`; `forked`; `not_replicated`"),
        (status = UNPROCESSABLE_ENTITY, description = "`name_invalid`; `field_invalid`: the interval is not in whole minutes, or nothing would be kept, or more than 900 snapshots"),
    ),
)]
pub(in crate::http) async fn create(
    state: State,
    Json(create): Json<SnapshotScheduleCreate>,
) -> Result<(StatusCode, axum::Json<SnapshotSchedule>), Refusal> {
    let SnapshotScheduleCreate { name, volumes, every, keep, daily, weekly, monthly } = create;
    let spec = ScheduleSpec { name, volumes, every, retention: Retention { keep, daily, weekly, monthly } };
    let created = state.call(move |control| async move { control.create_snapshot_schedule(spec).await });
    Ok((StatusCode::CREATED, axum::Json(shown(created.await?))))
}

/// Changes a schedule of snapshots, pauses it, or resumes it.
///
/// What it does not keep any more is deleted after its next snapshot.
#[utoipa::path(
    patch, path = "/v1/snapshot-schedules/{schedule}", tag = "snapshots",
    operation_id = "change_snapshot_schedule",
    params(("schedule" = String, Path, description = "Schedule name")),
    request_body = SnapshotScheduleChange,
    responses(
        (status = OK, description = "The schedule", body = SnapshotSchedule),
        (status = NOT_FOUND, description = "`snapshot_schedule_not_found`; `volume_not_found`"),
        (status = CONFLICT, description = "`snapshot_volume_kind`: a volume is not a log volume; `forked`; `not_replicated`; `snapshot_schedule_unreadable`: a later version wrote it"),
        (status = UNPROCESSABLE_ENTITY, description = "`field_invalid`: the interval is not in whole minutes, or nothing would be kept, or more than 900 snapshots"),
    ),
)]
pub(in crate::http) async fn change(
    state: State,
    Segments(schedule): Segments<String>,
    Json(change): Json<SnapshotScheduleChange>,
) -> Reply<SnapshotSchedule> {
    let SnapshotScheduleChange { volumes, every, keep, daily, weekly, monthly, paused } = change;
    let change = ScheduleChange { volumes, every, keep, daily, weekly, monthly, paused };
    let changed = state
        .call(move |control| async move { control.change_snapshot_schedule(&schedule, change).await })
        .await?;
    Ok(axum::Json(shown(changed)))
}

/// Deletes a schedule of snapshots.
///
/// Its snapshots stay. They are not deleted automatically any more, not even by a new schedule of that name.
#[utoipa::path(
    delete, path = "/v1/snapshot-schedules/{schedule}", tag = "snapshots",
    operation_id = "delete_snapshot_schedule",
    params(("schedule" = String, Path, description = "Schedule name"), DryRunParam),
    responses(
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = NO_CONTENT, description = "It is deleted"),
        (status = NOT_FOUND, description = "`snapshot_schedule_not_found`"),
    ),
)]
pub(in crate::http) async fn delete(
    state: State,
    Segments(schedule): Segments<String>,
    Parameters(DryRunParam { dry_run }): Parameters<DryRunParam>,
) -> Result<Response, Refusal> {
    if dry_run {
        let found = state.call(move |control| async move { control.snapshot_schedule(&schedule) });
        return Ok(dry_run::would(would_delete(&found.await?), Vec::new()));
    }
    state.call(move |control| async move { control.delete_snapshot_schedule(&schedule).await }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn would_delete(ScheduleStatus { entry, volumes, snapshots, .. }: &ScheduleStatus) -> Vec<String> {
    let ends = format!("no more snapshots of {} are taken by schedule {}", volumes.join(", "), entry.name);
    let stay = match snapshots {
        0 => "it has no snapshots".to_owned(),
        1 => "its snapshot stays until somebody deletes it".to_owned(),
        count => format!("its {count} snapshots stay until somebody deletes them"),
    };
    vec![ends, stay]
}

fn shown(status: ScheduleStatus) -> SnapshotSchedule {
    let ScheduleStatus { entry, volumes, next, missed_since, snapshots } = status;
    let ScheduleEntry { name, every, retention, paused, created, last, failed, .. } = entry;
    let Retention { keep, daily, weekly, monthly } = retention;
    SnapshotSchedule {
        name,
        volumes,
        every,
        keep,
        daily,
        weekly,
        monthly,
        paused,
        created,
        next,
        snapshots: snapshots as u64,
        last_success: last.as_ref().map(|last| last.at),
        last_snapshot: last.map(|last| last.name),
        missed_since,
        problem: failed.map(|failed| failed.obstacle.to_string()),
    }
}
