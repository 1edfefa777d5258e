//! Volumes.

mod copies;
mod making;
mod strategy;

use std::collections::BTreeMap;
use std::rc::Rc;

use ::node::Control;
use ::node::control::{AddedCopy, ControlError, VolumeStatus};
use api::{
    CopyCreate, List, Problem, Verification, Volume, VolumeChange, VolumeCreate, VolumeKind, VolumeMap,
};
use axum::extract::State as Extracted;
use axum::http::StatusCode;
use base::ByteLen;
use serde::Deserialize;
use utoipa::IntoParams;

pub(super) use self::strategy::{__path_choose_strategy, __path_resolve_fork, choose_strategy, resolve_fork};
use super::input::{Json, Parameters, Segments};
use super::refusal::Refusal;
use super::state::State;

/// How to delete.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Deletion {
    /// Delete its LUN maps, too.
    #[serde(default)]
    pub(super) force: bool,
}

/// All volumes of open pools, by name.
#[utoipa::path(get, path = "/v1/volumes", tag = "volumes", operation_id = "list_volumes", responses((status = OK, description = "All of them", body = List<Volume>)))]
pub(super) async fn list(Extracted(state): Extracted<State>) -> Result<axum::Json<List<Volume>>, Refusal> {
    let all = |control: Rc<Control>| async move { Ok((control.volumes(), control.node_names())) };
    let (volumes, names) = state.call(all).await?;
    Ok(axum::Json(List { items: volumes.into_iter().map(|volume| shown(volume, &names)).collect() }))
}

/// One volume, by name or identity.
#[utoipa::path(
    get, path = "/v1/volumes/{name}", tag = "volumes", operation_id = "show_volume",
    params(("name" = String, Path, description = "The volume's name or identity")),
    responses(
        (status = OK, description = "The volume", body = Volume),
        (status = NOT_FOUND, description = "`volume_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn show(
    Extracted(state): Extracted<State>,
    Segments(name): Segments<String>,
) -> Result<axum::Json<Volume>, Refusal> {
    let volume =
        state.call(move |control| async move { control.volume(&name).map(|volume| named(&control, volume)) });
    Ok(axum::Json(volume.await?))
}

/// Makes a volume, and maps it so that it can be used at once.
///
/// Unless `map` is false it becomes a LUN of `target` (made if it does not exist) for `host`. If that fails the volume
/// is deleted again: all of it is done or nothing.
#[utoipa::path(
    post, path = "/v1/volumes", tag = "volumes", operation_id = "create_volume",
    request_body = VolumeCreate,
    responses(
        (status = CREATED, description = "The volume", body = Volume),
        (status = NOT_FOUND, description = "`pool_not_found`, `host_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = CONFLICT, description = "`volume_exists`, `no_pool`, `lun_taken`, `target_full`, `no_cluster`, `too_few_nodes`, `node_unavailable`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = UNPROCESSABLE_ENTITY, description = "`name_invalid`, `field_invalid`, `pool_ambiguous`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = INSUFFICIENT_STORAGE, description = "`no_space`, `no_memory`, `too_many_volumes`, `metadata_full`, `record_full`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn create(
    Extracted(state): Extracted<State>,
    Json(new): Json<VolumeCreate>,
) -> Result<(StatusCode, axum::Json<Volume>), Refusal> {
    let new = making::new_volume(new)?;
    let make = |control: Rc<Control>| async move {
        let made: Result<VolumeStatus, ControlError> = control.create_volume(new).await;
        made.map(|volume| named(&control, volume))
    };
    Ok((StatusCode::CREATED, axum::Json(state.call(make).await?)))
}

/// Grows or renames a volume, while it is in use.
#[utoipa::path(
    patch, path = "/v1/volumes/{name}", tag = "volumes", operation_id = "change_volume",
    params(("name" = String, Path, description = "The volume's name or identity")),
    request_body = VolumeChange,
    responses(
        (status = OK, description = "The volume", body = Volume),
        (status = NOT_FOUND, description = "`volume_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = CONFLICT, description = "`volume_exists`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = UNPROCESSABLE_ENTITY, description = "`would_shrink`, `name_invalid`, `field_invalid`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = INSUFFICIENT_STORAGE, description = "`no_space`, `no_memory`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn change(
    Extracted(state): Extracted<State>,
    Segments(name): Segments<String>,
    Json(change): Json<VolumeChange>,
) -> Result<axum::Json<Volume>, Refusal> {
    let change = move |control: Rc<Control>| async move {
        let size = change.size.map(ByteLen);
        let changed = making::change(Rc::clone(&control), name, change.name, size).await;
        changed.map(|volume| named(&control, volume))
    };
    Ok(axum::Json(state.call(change).await?))
}

/// Deletes a volume with all its data.
///
/// The target that was made with it goes, too, unless it has other maps or was given an alias or a secret.
#[utoipa::path(
    delete, path = "/v1/volumes/{name}", tag = "volumes", operation_id = "delete_volume",
    params(("name" = String, Path, description = "The volume's name or identity"), Deletion),
    responses(
        (status = NO_CONTENT, description = "Done"),
        (status = NOT_FOUND, description = "`volume_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = CONFLICT, description = "`volume_mapped`, `volume_in_use`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn delete(
    Extracted(state): Extracted<State>,
    Segments(name): Segments<String>,
    Parameters(Deletion { force }): Parameters<Deletion>,
) -> Result<StatusCode, Refusal> {
    state.call(move |control| making::delete(control, name, force)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Reads all copies of a volume, on all of their nodes, and compares them.
///
/// What hosts write meanwhile may be in one copy's checksum and not in the other's: ask while nobody writes.
#[utoipa::path(
    post, path = "/v1/volumes/{name}/verify", tag = "volumes", operation_id = "verify_volume",
    params(("name" = String, Path, description = "The volume's name or identity")),
    responses(
        (status = OK, description = "What was found", body = Verification),
        (status = NOT_FOUND, description = "`volume_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = CONFLICT, description = "`not_replicated`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn verify(
    Extracted(state): Extracted<State>,
    Segments(name): Segments<String>,
) -> Result<axum::Json<Verification>, Refusal> {
    let checked = state.call(move |control| async move { control.verify_copies(&name).await }).await?;
    Ok(axum::Json(copies::verification(checked)))
}

/// Adds a copy to a volume while it is in use, or moves one.
///
/// The new copy is given all of the volume's data in the background; until it is in sync its state is not `in_sync`. With `instead_of`
/// that node's copy is taken away then. The node that is asked must have a copy. Asked again after a 504 it goes on where it was.
#[utoipa::path(
    post, path = "/v1/volumes/{name}/copies", tag = "volumes", operation_id = "add_copy",
    params(("name" = String, Path, description = "The volume's name or identity")),
    request_body = CopyCreate,
    responses(
        (status = ACCEPTED, description = "The volume; the copy is being made", body = Volume),
        (status = NOT_FOUND, description = "`volume_not_found`, `copy_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = CONFLICT, description = "`no_cluster`, `copy_exists`, `copies_full`, `copy_elsewhere`, `node_unavailable`, `node_refused`, `changed_meanwhile`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = SERVICE_UNAVAILABLE, description = "`node_unreachable`, `record_unavailable`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = GATEWAY_TIMEOUT, description = "`node_unanswered`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn add_copy(
    Extracted(state): Extracted<State>,
    Segments(name): Segments<String>,
    Json(copy): Json<CopyCreate>,
) -> Result<(StatusCode, axum::Json<Volume>), Refusal> {
    let CopyCreate { node, pool, instead_of } = copy;
    let add = move |control: Rc<Control>| async move {
        control.add_copy(&name, AddedCopy { node, pool, instead_of }).await?;
        control.volume(&name).map(|volume| named(&control, volume))
    };
    Ok((StatusCode::ACCEPTED, axum::Json(state.call(add).await?)))
}

/// Takes a volume's copy off a node, while the volume is in use, and deletes it there.
///
/// The last copy in sync stays. A node that is down deletes its copy when it is back.
#[utoipa::path(
    delete, path = "/v1/volumes/{name}/copies/{node}", tag = "volumes", operation_id = "remove_copy",
    params(
        ("name" = String, Path, description = "The volume's name or identity"),
        ("node" = u16, Path, description = "The number of the copy's node"),
    ),
    responses(
        (status = NO_CONTENT, description = "Done"),
        (status = ACCEPTED, description = "It is done as soon as the other copies have agreed"),
        (status = NOT_FOUND, description = "`volume_not_found`, `copy_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = CONFLICT, description = "`no_cluster`, `only_in_sync`, `changed_meanwhile`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = SERVICE_UNAVAILABLE, description = "`record_unavailable`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn remove_copy(
    Extracted(state): Extracted<State>,
    Segments((name, node)): Segments<(String, u16)>,
) -> Result<StatusCode, Refusal> {
    let done = state.call(move |control| async move { control.remove_copy(&name, node).await }).await?;
    Ok(if done { StatusCode::NO_CONTENT } else { StatusCode::ACCEPTED })
}

fn named(control: &Control, volume: VolumeStatus) -> Volume {
    shown(volume, &control.node_names())
}

fn shown(volume: VolumeStatus, names: &BTreeMap<u16, String>) -> Volume {
    let VolumeStatus { info, pool, maps, problem, copies } = volume;
    Volume {
        id: info.id.to_string(),
        name: info.name,
        pool,
        kind: match info.kind {
            store::VolumeKind::Thick => VolumeKind::Thick,
            store::VolumeKind::Ram => VolumeKind::Ram,
        },
        size: info.capacity.0,
        block_size: info.block_size.bytes(),
        physical_block_size: info.block_size.bytes() << info.physical_exponent,
        slices: info.stripe.slices(),
        reserved: info.reserved.0,
        created: info.created,
        naa: ::node::naa(info.id).iter().map(|byte| format!("{byte:02x}")).collect(),
        maps: maps.into_iter().map(|(target, lun, host)| VolumeMap { target, lun, host }).collect(),
        serving: copies.as_ref().map_or(problem.is_none(), |copies| copies.serving),
        copies: copies.as_ref().map(|copies| copies::shown(copies, names)).unwrap_or_default(),
        epoch: copies.as_ref().map(|copies| copies.entry.epoch),
        strategy: copies.as_ref().and_then(strategy::chosen),
        fork: copies.as_ref().and_then(strategy::fork),
        reason: copies.map(|copies| copies.entry.reason),
        problem,
    }
}
