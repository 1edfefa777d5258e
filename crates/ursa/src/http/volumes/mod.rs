//! Volumes.

mod making;

use ::node::control::VolumeStatus;
use api::{List, Problem, Volume, VolumeChange, VolumeCreate, VolumeKind, VolumeMap};
use axum::extract::State as Extracted;
use axum::http::StatusCode;
use base::ByteLen;
use serde::Deserialize;
use utoipa::IntoParams;

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
    let volumes = state.call(|control| async move { Ok(control.volumes()) }).await?;
    Ok(axum::Json(List { items: volumes.into_iter().map(shown).collect() }))
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
    let volume = state.call(move |control| async move { control.volume(&name) }).await?;
    Ok(axum::Json(shown(volume)))
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
        (status = CONFLICT, description = "`volume_exists`, `no_pool`, `lun_taken`, `target_full`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = UNPROCESSABLE_ENTITY, description = "`name_invalid`, `field_invalid`, `pool_ambiguous`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = INSUFFICIENT_STORAGE, description = "`no_space`, `no_memory`, `too_many_volumes`, `metadata_full`, `record_full`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn create(
    Extracted(state): Extracted<State>,
    Json(new): Json<VolumeCreate>,
) -> Result<(StatusCode, axum::Json<Volume>), Refusal> {
    let new = making::new_volume(new)?;
    let volume = state.call(|control| async move { control.create_volume(new).await }).await?;
    Ok((StatusCode::CREATED, axum::Json(shown(volume))))
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
    let volume =
        state.call(move |control| making::change(control, name, change.name, change.size.map(ByteLen)));
    Ok(axum::Json(shown(volume.await?)))
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

fn shown(volume: VolumeStatus) -> Volume {
    let VolumeStatus { info, pool, maps, problem, copies: _ } = volume;
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
        problem,
    }
}
