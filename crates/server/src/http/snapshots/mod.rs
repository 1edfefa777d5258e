//! Snapshots of volumes.

pub(super) mod cloning;
pub(super) mod diff;
mod labels;
pub(super) mod reading;
pub(super) mod restoring;
pub(super) mod schedules;

use std::collections::BTreeMap;
use std::rc::Rc;

use ::node::Control;
use ::node::control::{
    ControlError, SnapshotHere, SnapshotSpec, SnapshotStatus, SnapshotUpdate, SnapshotsHere,
};
use ::node::copies;
use api::{
    DryRun, List, Snapshot, SnapshotChange, SnapshotCopy, SnapshotCopyState, SnapshotCreate, SnapshotState,
    SnapshotVolume,
};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::IntoParams;

use self::labels::Labels;
use super::dry_run::{self, DryRunParam};
use super::input::{Json, Parameters, Segments};
use super::peers::{self, Answers, PeerQuery};
use super::refusal::{Refusal, Reply};
use super::state::State;

/// Which snapshots.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Volume name or ID; absent: all volumes.
    #[serde(default)]
    volume: Option<String>,
    /// Only snapshots with all of these labels, separated by commas: `app=shop`, or `app` for any value.
    #[serde(default)]
    label: Option<String>,
}

/// All snapshots, oldest first.
///
/// Each node reports what its copies have. If a node does not answer within two seconds, that is unknown.
#[utoipa::path(
    get, path = "/v1/snapshots", tag = "snapshots", operation_id = "list_snapshots",
    params(Which),
    responses(
        (status = OK, description = "Those of the cluster, or of the volume", body = List<Snapshot>),
        (status = BAD_REQUEST, description = "`query_invalid`"),
        (status = NOT_FOUND, description = "`volume_not_found`"),
    ),
)]
pub(super) async fn list(
    state: State,
    Parameters(Which { volume, label }): Parameters<Which>,
) -> Reply<List<Snapshot>> {
    let wanted = label.as_deref().map(Labels::parse).transpose()?.unwrap_or_default();
    let all = state.call(move |control| async move {
        let mut statuses = control.snapshots(volume.as_deref())?;
        statuses.retain(|status| wanted.are_on(&status.entry.labels));
        shown_all(&control, statuses).await
    });
    Ok(axum::Json(all.await?))
}

/// One snapshot.
#[utoipa::path(
    get, path = "/v1/snapshots/{snapshot}", tag = "snapshots", operation_id = "show_snapshot",
    params(("snapshot" = String, Path, description = "Snapshot name or number")),
    responses(
        (status = OK, description = "The snapshot", body = Snapshot),
        (status = NOT_FOUND, description = "`snapshot_not_found`"),
    ),
)]
pub(super) async fn show(state: State, Segments(snapshot): Segments<String>) -> Reply<Snapshot> {
    let shown = state.call(move |control| async move {
        let status = control.snapshot(&snapshot)?;
        one(&control, status).await
    });
    Ok(axum::Json(shown.await?))
}

/// Takes a snapshot of one or several log volumes, all at one point in time, on all copies in sync.
///
/// Host I/O to these volumes is held meanwhile: for 500 ms at most, or the snapshot is not taken
/// (`snapshot_too_slow`). A copy that is out of sync does not get the snapshot.
#[utoipa::path(
    post, path = "/v1/snapshots", tag = "snapshots", operation_id = "create_snapshot",
    request_body = SnapshotCreate,
    responses(
        (status = CREATED, description = "It is taken, and durable", body = Snapshot),
        (status = NOT_FOUND, description = "`volume_not_found`"),
        (status = CONFLICT, description = "`snapshot_exists`; `snapshot_volume_kind`: a volume is not a log volume; `snapshot_not_taken`: a copy cannot have it now; `too_many_snapshots`; `forked`; `not_replicated`"),
        (status = SERVICE_UNAVAILABLE, description = "`snapshot_too_slow`; `node_unreachable`"),
    ),
)]
pub(super) async fn create(
    state: State,
    Json(SnapshotCreate { volumes, name, expires_after, labels }): Json<SnapshotCreate>,
) -> Result<(StatusCode, axum::Json<Snapshot>), Refusal> {
    let spec = SnapshotSpec { name, volumes, expires_after, labels };
    let created = state.call(move |control| async move {
        let status = control.create_snapshot(spec).await?;
        one(&control, status).await
    });
    Ok((StatusCode::CREATED, axum::Json(created.await?)))
}

/// Changes a snapshot: puts it on hold, so that it cannot be deleted, or releases it; changes when it
/// expires, and its labels.
///
/// A snapshot that has expired while it was on hold is deleted soon after it is released.
#[utoipa::path(
    patch, path = "/v1/snapshots/{snapshot}", tag = "snapshots", operation_id = "change_snapshot",
    params(("snapshot" = String, Path, description = "Snapshot name or number")),
    request_body = SnapshotChange,
    responses(
        (status = OK, description = "The snapshot", body = Snapshot),
        (status = NOT_FOUND, description = "`snapshot_not_found`"),
        (status = CONFLICT, description = "`snapshot_preparing`"),
        (status = UNPROCESSABLE_ENTITY, description = "`field_invalid`"),
    ),
)]
pub(super) async fn change(
    state: State,
    Segments(snapshot): Segments<String>,
    Json(SnapshotChange { held, expires_after, labels, remove_labels }): Json<SnapshotChange>,
) -> Reply<Snapshot> {
    let update = SnapshotUpdate { held, expires_after, labels, remove_labels };
    let changed = state.call(move |control| async move {
        let status = control.update_snapshot(&snapshot, update).await?;
        one(&control, status).await
    });
    Ok(axum::Json(changed.await?))
}

/// Deletes a snapshot.
///
/// Its space is freed in the background, in proportion to what was overwritten. Nodes that are down do this
/// when they return; until then the snapshot is listed as `deleting`.
#[utoipa::path(
    delete, path = "/v1/snapshots/{snapshot}", tag = "snapshots", operation_id = "delete_snapshot",
    params(("snapshot" = String, Path, description = "Snapshot name or number"), DryRunParam),
    responses(
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = NO_CONTENT, description = "It is deleted"),
        (status = NOT_FOUND, description = "`snapshot_not_found`"),
        (status = CONFLICT, description = "`snapshot_held`; `snapshot_has_clones`; `snapshot_preparing`"),
    ),
)]
pub(super) async fn delete(
    state: State,
    Segments(snapshot): Segments<String>,
    Parameters(DryRunParam { dry_run }): Parameters<DryRunParam>,
) -> Result<Response, Refusal> {
    if dry_run {
        let known = move |control: Rc<Control>| async move {
            let status = control.check_snapshot_deletion(&snapshot)?;
            one(&control, status).await
        };
        return Ok(dry_run::would(would_delete(&state.call(known).await?), Vec::new()));
    }
    state.call(move |control| async move { control.delete_snapshot(&snapshot).await }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// What this node itself has, for other nodes.
pub(super) async fn here(control: &Control) -> Option<Vec<SnapshotsHere>> {
    control.snapshots_here().await.ok()
}

fn would_delete(snapshot: &Snapshot) -> Vec<String> {
    let of = |volume: &SnapshotVolume| {
        let frees = volume.copies.iter().filter_map(|copy| copy.frees).max();
        let frees = frees.map_or(String::new(), |frees| {
            format!(": frees up to {} in the pool of each copy", base::ByteLen(frees))
        });
        format!("snapshot {} of volume {} is deleted{frees}", snapshot.name, volume.volume)
    };
    snapshot.volumes.iter().map(of).collect()
}

async fn one(control: &Rc<Control>, status: SnapshotStatus) -> Result<Snapshot, ControlError> {
    let number = status.entry.number.to_string();
    let shown = shown_all(control, vec![status]).await?.items.pop();
    shown.ok_or_else(|| ControlError::not_found("snapshot", &number))
}

async fn shown_all(
    control: &Rc<Control>,
    statuses: Vec<SnapshotStatus>,
) -> Result<List<Snapshot>, ControlError> {
    let here = control.number();
    let volumes = statuses.iter().flat_map(|status| &status.volumes);
    let has = volumes.flat_map(|volume| &volume.copies).filter(|(node, has)| *has && *node != here);
    let queries = has.map(|(node, _)| (*node, PeerQuery::Snapshots)).collect();
    let answers = peers::ask(control, queries).await?;
    let (reports, missing) = Reports::new(control, answers).await;
    let items = statuses.into_iter().map(|status| shown(status, &reports)).collect();
    Ok(List { items, missing })
}

/// What nodes report about their copies.
struct Reports {
    /// By node and volume; without nodes that did not answer.
    has: BTreeMap<(u16, String), Vec<SnapshotHere>>,
    names: BTreeMap<u16, String>,
}

impl Reports {
    async fn new(control: &Control, answers: Answers) -> (Reports, Vec<api::Missing>) {
        let read =
            |text: &str| serde_json::from_str::<Vec<SnapshotsHere>>(text).map_err(|error| error.to_string());
        let (theirs, missing) = answers.each(read);
        let mut has = BTreeMap::new();
        let own = here(control).await.unwrap_or_default();
        let all = theirs.into_iter().map(|theirs| (theirs.node, theirs.has));
        for (node, volumes) in all.chain([(control.number(), own)]) {
            has.extend(volumes.into_iter().map(|of| ((node, of.volume), of.has)));
        }
        (Reports { has, names: control.node_names() }, missing)
    }

    fn copy(&self, (number, at): (u32, u64), volume: &str, node: u16, has: bool) -> SnapshotCopy {
        let reported = self.has.get(&(node, volume.to_owned()));
        let found =
            reported.and_then(|all| all.iter().find(|here| (here.number, here.at) == (number, at))).copied();
        let state = match (has, reported, found) {
            (false, _, _) => SnapshotCopyState::Absent,
            (true, None, _) => SnapshotCopyState::Unknown,
            (true, Some(_), None) => SnapshotCopyState::Missing,
            (true, Some(_), Some(_)) => SnapshotCopyState::Present,
        };
        let found = found.filter(|_| has);
        SnapshotCopy {
            node,
            node_name: self.names.get(&node).cloned().unwrap_or_default(),
            state,
            frees: found.map(|found| found.frees),
            frees_is_exact: found.is_some_and(|found| found.is_exact),
        }
    }
}

fn shown(status: SnapshotStatus, reports: &Reports) -> Snapshot {
    let SnapshotStatus { entry, volumes } = status;
    let state = match entry.state {
        copies::SnapshotState::Preparing => SnapshotState::Preparing,
        copies::SnapshotState::Restoring => SnapshotState::Restoring,
        copies::SnapshotState::Complete => SnapshotState::Complete,
        copies::SnapshotState::Deleting => SnapshotState::Deleting,
    };
    let volumes = volumes.into_iter().map(|of| SnapshotVolume {
        copies: of
            .copies
            .iter()
            .map(|(node, has)| reports.copy((entry.number, entry.at), &of.id, *node, *has))
            .collect(),
        volume: of.name,
        volume_id: of.id,
        size: of.size,
    });
    Snapshot {
        number: entry.number,
        volumes: volumes.collect(),
        name: entry.name,
        state,
        created: entry.at,
        pause_us: Some(entry.pause_us).filter(|pause| *pause > 0),
        held: entry.held,
        expires: entry.expires,
        labels: entry.labels,
        schedule: entry.schedule.map(|of| of.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_what_the_record_says_and_its_node_reports() {
        let here = |number| SnapshotHere { number, at: 100, frees: 4096, is_exact: true };
        let reports = Reports {
            has: BTreeMap::from([
                ((1, "db".to_owned()), vec![here(7), here(8)]),
                ((2, "db".to_owned()), Vec::new()),
            ]),
            names: BTreeMap::from([(1, "san1".to_owned())]),
        };
        let copy = |node, has| reports.copy((7, 100), "db", node, has);
        let present = copy(1, true);
        assert_eq!((present.state, present.frees), (SnapshotCopyState::Present, Some(4096)));
        assert_eq!((present.node_name.as_str(), present.frees_is_exact), ("san1", true));
        assert_eq!(copy(2, true).state, SnapshotCopyState::Missing);
        assert_eq!(copy(3, true).state, SnapshotCopyState::Unknown);
        assert_eq!(reports.copy((7, 101), "db", 1, true).state, SnapshotCopyState::Missing, "another one");
        // What a pool has is not believed if the record does not say so.
        let absent = copy(1, false);
        assert_eq!((absent.state, absent.frees), (SnapshotCopyState::Absent, None));
    }
}
