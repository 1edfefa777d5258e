//! Adding, moving and removing copies of a volume.

use std::rc::Rc;

use ::node::Control;
use ::node::control::{AddedCopy, ControlError, VolumeStatus};
use api::{CopyCreate, DryRun, Volume, VolumeCreate};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base::ByteLen;

use super::candidates::status_of;
use super::creation::{candidates_for, with_candidates};
use super::whole;
use crate::http::dry_run::{self, DryRunParam};
use crate::http::input::{Json, Parameters, Segments};
use crate::http::jobs::id;
use crate::http::refusal::Refusal;
use crate::http::state::State;

/// Adds a copy to a volume while it is in use, or moves one.
///
/// The new copy receives all data of the volume in the background; until it is in sync its state is not
/// `in_sync`. With `instead_of` the copy on that node is removed then. If repeated after a 504, it continues
/// where it was. If the copy cannot be placed, `candidates` of the problem names the rule.
#[utoipa::path(
    post, path = "/v1/volumes/{name}/copies", tag = "volumes", operation_id = "add_copy",
    params(("name" = String, Path, description = "Volume name or ID"), DryRunParam),
    request_body = CopyCreate,
    responses(
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = ACCEPTED, description = "The volume; the copy is being created", body = Volume, headers(("Location" = String, description = "The job that shows progress and result"))),
        (status = NOT_FOUND, description = "`volume_not_found`, `copy_not_found`, `node_not_found`"),
        (status = CONFLICT, description = "`volume_exists`, `copy_exists`, `copies_full`, `node_unavailable`, `node_refused`, `changed_meanwhile`"),
        (status = INSUFFICIENT_STORAGE, description = "`no_space`, `no_memory`: for the map of changed regions that a single copy does not have yet"),
    ),
)]
pub(in crate::http) async fn add_copy(
    state: State,
    Segments(name): Segments<String>,
    Parameters(DryRunParam { dry_run }): Parameters<DryRunParam>,
    Json(copy): Json<CopyCreate>,
) -> Result<Response, Refusal> {
    if dry_run {
        return would_add_copy(&state, name, copy).await;
    }
    let CopyCreate { node, pool, instead_of } = copy.clone();
    let of_volume = name.clone();
    // In two calls: each may run twice (see [`State::call`]), but the copy must be added once.
    let add = move |control: Rc<Control>| async move {
        control.add_copy(&of_volume, AddedCopy { node, pool, instead_of }).await
    };
    if let Err(refusal) = state.call(add).await {
        return Err(with_places(&state, name, &copy, refusal).await);
    }
    let show = move |control: Rc<Control>| async move {
        let volume = control.volume(&name)?;
        Ok(whole(&control, volume).await)
    };
    let volume = state.call(show).await?;
    let job = id::of_copy(&volume.id, node);
    Ok((StatusCode::ACCEPTED, id::location(&job), axum::Json(volume)).into_response())
}

/// If the refusal is about the place for the copy, adds the node and the pool that were considered.
async fn with_places(state: &State, name: String, copy: &CopyCreate, refusal: Refusal) -> Refusal {
    match state.call(move |control| async move { control.volume(&name) }).await {
        Ok(volume) => with_candidates(state, &as_made(&volume, copy), refusal).await,
        Err(_) => refusal,
    }
}

/// The request for a volume with the same requirements as a copy of this one.
fn as_made(volume: &VolumeStatus, copy: &CopyCreate) -> VolumeCreate {
    let mut asked = VolumeCreate::new(&volume.info.name, volume.info.capacity.0);
    asked.pool = copy.pool.clone();
    asked.nodes = Some(vec![copy.node]);
    asked.kind = super::kind(volume.info.kind);
    asked
}

async fn would_add_copy(state: &State, name: String, copy: CopyCreate) -> Result<Response, Refusal> {
    let instead_of = copy.instead_of;
    let look = move |control: Rc<Control>| async move { control.check_added_copy(&name, instead_of) };
    let (volume, nodes) = state.call(look).await?;
    let name = volume.info.name.clone();
    if nodes.contains(&copy.node) {
        return Err(ControlError::HasCopy { volume: name, node: copy.node }.into());
    }
    if let Some(node) = copy.instead_of.filter(|node| !nodes.contains(node)) {
        return Err(ControlError::HasNoCopy { volume: name, node }.into());
    }
    let asked = as_made(&volume, &copy);
    let found = candidates_for(state, &asked).await?;
    if let Some(bad) = found.iter().find(|found| found.rule.is_some()) {
        let detail = format!("cannot add a copy of volume {name} on node {}: {}", copy.node, bad.text);
        let code = bad.rule.clone().unwrap_or_default();
        return Err(Refusal::new(status_of(&code), code, detail).candidates(found));
    }
    let mut steps = vec![format!("node {} receives all {} of volume {name}", copy.node, ByteLen(asked.size))];
    if let Some(from) = copy.instead_of {
        steps.push(format!("then the copy on node {from} is deleted"));
    }
    Ok(dry_run::would(steps, found))
}

/// Removes a copy of a volume from a node while the volume is in use, and deletes it there.
///
/// The last copy in sync cannot be removed. A node that is down deletes its copy when it is back.
#[utoipa::path(
    delete, path = "/v1/volumes/{name}/copies/{node}", tag = "volumes", operation_id = "remove_copy",
    params(
        ("name" = String, Path, description = "Volume name or ID"),
        ("node" = u16, Path, description = "Number of the node that has the copy"),
        DryRunParam,
    ),
    responses(
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = NO_CONTENT, description = "Done"),
        (status = ACCEPTED, description = "Accepted: done as soon as the other copies have agreed", headers(("Location" = String, description = "The job that shows whether it is done"))),
        (status = NOT_FOUND, description = "`volume_not_found`, `copy_not_found`"),
        (status = CONFLICT, description = "`not_replicated`, `only_in_sync`, `changed_meanwhile`"),
    ),
)]
pub(in crate::http) async fn remove_copy(
    state: State,
    Segments((name, node)): Segments<(String, u16)>,
    Parameters(DryRunParam { dry_run }): Parameters<DryRunParam>,
) -> Result<Response, Refusal> {
    match dry_run {
        true => would_remove_copy(&state, name, node).await,
        false => removed(&state, name, node).await,
    }
}

async fn removed(state: &State, name: String, node: u16) -> Result<Response, Refusal> {
    let remove = move |control: Rc<Control>| async move {
        if control.remove_copy(&name, node).await? {
            return Ok(None);
        }
        // If the record no longer has the volume, the copy is gone.
        Ok(control.volume_entry(&name).ok())
    };
    Ok(match state.call(remove).await? {
        None => StatusCode::NO_CONTENT.into_response(),
        Some(entry) => (StatusCode::ACCEPTED, id::location(&id::of_copy(&entry.id, node))).into_response(),
    })
}

async fn would_remove_copy(state: &State, name: String, node: u16) -> Result<Response, Refusal> {
    let check = move |control: Rc<Control>| async move {
        let entry = control.volume_entry(&name)?;
        let left = control.check_removed_copy(&entry, node)?;
        Ok((entry.name, left))
    };
    let (name, left) = state.call(check).await?;
    let left = match left {
        1 => "1 copy in sync remains: losing it makes the volume unavailable".to_owned(),
        _ => format!("{left} copies in sync remain"),
    };
    let steps = vec![format!("the copy of volume {name} on node {node} is deleted"), left];
    Ok(dry_run::would(steps, Vec::new()))
}
