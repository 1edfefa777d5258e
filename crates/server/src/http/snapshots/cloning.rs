//! Creating clones of a snapshot.

use ::node::control::{ClonesCreated, ClonesPlan, ClonesSpec};
use api::{ClonedVolume, DryRun, SnapshotClone, SnapshotCloned};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use terms::clock::utc;

use super::super::dry_run::{self, DryRunParam};
use super::super::input::{Json, Parameters, Segments};
use super::super::refusal::Refusal;
use super::super::state::State;
use super::super::volumes::creation::placement;

/// Creates clones of a snapshot: volumes that begin as what it has of a volume, and can be written.
///
/// It takes no longer for a large volume, and no space but for what is written to the clones. Each copy of a
/// clone shares blocks with the copy of the other volume in the same pool, so clones get copies on the nodes
/// whose copies have the snapshot. As long as a clone shares blocks, the snapshot cannot be deleted. Clones
/// are not mapped.
#[utoipa::path(
    post, path = "/v1/snapshots/{snapshot}/clones", tag = "snapshots", operation_id = "clone_snapshot",
    params(("snapshot" = String, Path, description = "Snapshot name or number"), DryRunParam),
    request_body = SnapshotClone,
    responses(
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = CREATED, description = "The clones, which can be used", body = SnapshotCloned),
        (status = NOT_FOUND, description = "`snapshot_not_found`; `volume_not_found`"),
        (status = CONFLICT, description = "`volume_exists`; `not_in_snapshot`; `not_cloned`: a copy cannot be cloned now; `no_copy_has_snapshot`; `too_few_nodes`: nodes with the snapshot are down; `node_unavailable`; `snapshot_preparing`; `clones_incomplete`: some were created; `forked`"),
        (status = UNPROCESSABLE_ENTITY, description = "`name_invalid`, `field_invalid`"),
        (status = INSUFFICIENT_STORAGE, description = "`no_space`, `too_many_volumes`, `metadata_full`, `record_full`"),
    ),
)]
pub(in crate::http) async fn create(
    state: State,
    Segments(snapshot): Segments<String>,
    Parameters(DryRunParam { dry_run }): Parameters<DryRunParam>,
    Json(SnapshotClone { name, volume, count, copies, nodes }): Json<SnapshotClone>,
) -> Result<Response, Refusal> {
    let copies = placement(copies, nodes)?;
    let spec = ClonesSpec { snapshot, volume, name, count, copies };
    if dry_run {
        let plan = state.call(move |control| async move { control.plan_clones(&spec).await }).await?;
        return Ok(dry_run::would(steps(&plan), Vec::new()));
    }
    let created = state.call(move |control| async move { control.create_clones(spec).await }).await?;
    Ok((StatusCode::CREATED, axum::Json(shown(created))).into_response())
}

fn steps(plan: &ClonesPlan) -> Vec<String> {
    let ClonesPlan { snapshot, volume, names, nodes } = plan;
    let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    let (what, on) = (&volume.name, nodes.join(", "));
    let begins =
        format!("as volume {what} was in snapshot {}, {}, on nodes {on}", snapshot.name, utc(snapshot.at));
    let created = match names.as_slice() {
        [only] => format!("volume {only} is created {begins}"),
        [first, .., last] => format!("{} volumes, {first} to {last}, are created {begins}", names.len()),
        [] => return Vec::new(),
    };
    vec![
        created,
        format!("they share blocks with volume {what}: only what is written to them takes space"),
        format!("snapshot {} cannot be deleted as long as they do", snapshot.name),
    ]
}

fn shown(created: ClonesCreated) -> SnapshotCloned {
    let ClonesCreated { snapshot, volume, clones, took, used } = created;
    SnapshotCloned {
        snapshot,
        volume,
        clones: clones.into_iter().map(|(name, id)| ClonedVolume { name, id: id.to_string() }).collect(),
        took_us: took.as_micros() as u64,
        used,
    }
}
