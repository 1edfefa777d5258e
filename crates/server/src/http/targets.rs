//! Targets and their LUN maps.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use ::node::access::{ChapSecret, LunMap, Target as Known};
use ::node::control::{ControlError, MapSpec, TargetChange as Change, TargetSpec};
use ::node::{Control, VolumeId};
use api::{Chap, DEFAULT_HOST, DryRun, List, MapCreate, Target, TargetChange, TargetCreate, TargetMap};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::IntoParams;

use super::dry_run::{self, Answer, DryRunParam};
use super::input::{Json, Parameters, Segments};
use super::refusal::{Refusal, Reply};
use super::state::State;

/// How to delete a target.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Deletion {
    /// Delete its LUN maps, too.
    #[serde(default)]
    force: bool,
    /// Dry run: show what would be done, and change nothing.
    #[serde(default)]
    dry_run: bool,
}

/// Which map of a LUN.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ForHost {
    /// The host group; absent: all of them.
    host: Option<String>,
    /// Dry run: show what would be done, and change nothing.
    #[serde(default)]
    dry_run: bool,
}

/// All targets, by name.
#[utoipa::path(get, path = "/v1/targets", tag = "targets", operation_id = "list_targets", responses((status = OK, description = "All of them", body = List<Target>)))]
pub(super) async fn list(state: State) -> Reply<List<Target>> {
    let found = state.call(|control| async move { Ok((control.access(), control.volume_names().await)) });
    let (access, names) = found.await?;
    Ok(axum::Json(List::of(access.targets().map(|target| shown(target, &names)).collect())))
}

/// Shows one target.
#[utoipa::path(
    get, path = "/v1/targets/{name}", tag = "targets", operation_id = "show_target",
    params(("name" = String, Path, description = "iSCSI name of the target")),
    responses(
        (status = OK, description = "The target", body = Target),
        (status = NOT_FOUND, description = "`target_not_found`"),
    ),
)]
pub(super) async fn show(state: State, Segments(name): Segments<String>) -> Reply<Target> {
    state.call(move |control| async move { one(&control, &name).await }).await.map(axum::Json)
}

/// Creates a target.
#[utoipa::path(
    post, path = "/v1/targets", tag = "targets", operation_id = "create_target",
    request_body = TargetCreate,
    responses(
        (status = CREATED, description = "The target", body = Target),
        (status = CONFLICT, description = "`target_exists`"),
        (status = UNPROCESSABLE_ENTITY, description = "`name_invalid`, `field_invalid`"),
    ),
)]
pub(super) async fn create(
    state: State,
    Json(new): Json<TargetCreate>,
) -> Result<(StatusCode, axum::Json<Target>), Refusal> {
    let spec = TargetSpec { name: new.name.clone(), alias: new.alias, chap: new.chap.map(secret) };
    let target = state.call(move |control| async move {
        control.create_target(spec).await?;
        one(&control, &new.name).await
    });
    Ok((StatusCode::CREATED, axum::Json(target.await?)))
}

/// Changes a target's alias, or its CHAP credentials. Absent fields stay the same; `null` removes the value.
/// Sessions continue: a new secret takes effect at the next login.
#[utoipa::path(
    patch, path = "/v1/targets/{name}", tag = "targets", operation_id = "change_target",
    params(("name" = String, Path, description = "iSCSI name of the target"), DryRunParam),
    request_body = TargetChange,
    responses(
        (status = OK, description = "The target; with `dry_run`: what would be done", body = Answer<Target>),
        (status = NOT_FOUND, description = "`target_not_found`"),
    ),
)]
pub(super) async fn change(
    state: State,
    Segments(name): Segments<String>,
    Parameters(DryRunParam { dry_run }): Parameters<DryRunParam>,
    Json(change): Json<TargetChange>,
) -> Reply<Answer<Target>> {
    let change = Change { alias: change.alias, chap: change.chap.map(|chap| chap.map(secret)) };
    let answer = state.call(move |control| async move {
        if dry_run {
            let (before, after) = control.check_changed_target(&name, change)?;
            let would = would_change(&before, &after);
            return Ok(Answer::Would(DryRun { would, candidates: Vec::new() }));
        }
        control.change_target(&name, change).await?;
        Ok(Answer::Done(one(&control, &name).await?))
    });
    Ok(axum::Json(answer.await?))
}

fn would_change(before: &Known, after: &Known) -> Vec<String> {
    let mut steps = Vec::new();
    if before.alias != after.alias {
        steps.push(match &after.alias {
            Some(alias) => format!("its alias becomes {alias}"),
            None => "its alias is removed".to_owned(),
        });
    }
    if before.chap != after.chap {
        steps.push(match &after.chap {
            Some(ChapSecret { user, .. }) => format!(
                "its CHAP secret changes (CHAP name {user}): hosts need the new one from their next login on"
            ),
            None => {
                "its CHAP secret is removed: hosts that require mutual CHAP cannot log in again".to_owned()
            }
        });
        steps.push("sessions continue".to_owned());
    }
    if steps.is_empty() {
        steps.push(format!("no change: target {} already has these settings", after.name));
    }
    steps
}

/// Deletes a target. Its sessions end.
#[utoipa::path(
    delete, path = "/v1/targets/{name}", tag = "targets", operation_id = "delete_target",
    params(("name" = String, Path, description = "iSCSI name of the target"), Deletion),
    responses(
        (status = NO_CONTENT, description = "Done"),
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = NOT_FOUND, description = "`target_not_found`"),
        (status = CONFLICT, description = "`target_has_maps`"),
    ),
)]
pub(super) async fn delete(
    state: State,
    Segments(name): Segments<String>,
    Parameters(Deletion { force, dry_run }): Parameters<Deletion>,
) -> Result<Response, Refusal> {
    if dry_run {
        return would_delete(&state, name, force).await;
    }
    state.call(move |control| async move { control.delete_target(&name, force).await }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn would_delete(state: &State, name: String, force: bool) -> Result<Response, Refusal> {
    let steps = move |control: Rc<Control>| async move {
        let target = one(&control, &name).await?;
        if !force && !target.maps.is_empty() {
            return Err(ControlError::HasLuns { target: name, luns: target.maps.len() });
        }
        let mut steps: Vec<String> = target.maps.iter().map(|map| taken(&name, map)).collect();
        steps.push(format!("target {name} is deleted; volumes stay"));
        steps.extend(sessions_with(&control, &name).await?);
        Ok(steps)
    };
    Ok(dry_run::would(state.call(steps).await?, Vec::new()))
}

fn taken(target: &str, map: &TargetMap) -> String {
    let volume = map.volume.as_deref().unwrap_or(&map.volume_id);
    format!("host group {} loses access to volume {volume}, LUN {} of target {target}", map.host, map.lun)
}

/// What happens to the sessions with a target.
async fn sessions_with(control: &Control, target: &str) -> Result<Option<String>, ControlError> {
    let sessions = control.sessions().await?;
    let of_target: BTreeSet<&str> = sessions
        .iter()
        .filter(|session| session.target.as_deref() == Some(target))
        .map(|session| session.initiator.as_str())
        .collect();
    let also = if control.node_names().len() > 1 { " on this node, and those on other nodes" } else { "" };
    let names = of_target.into_iter().collect::<Vec<_>>().join(", ");
    Ok((!names.is_empty()).then(|| format!("hosts that use it lose access: sessions{also} of {names}")))
}

/// Maps a volume to a host group as a LUN of a target.
#[utoipa::path(
    post, path = "/v1/targets/{name}/maps", tag = "targets", operation_id = "create_map",
    params(("name" = String, Path, description = "iSCSI name of the target")),
    request_body = MapCreate,
    responses(
        (status = CREATED, description = "The map", body = TargetMap),
        (status = NOT_FOUND, description = "`target_not_found`, `volume_not_found`, `host_not_found`"),
        (status = CONFLICT, description = "`lun_taken`, `target_full`"),
    ),
)]
pub(super) async fn create_map(
    state: State,
    Segments(target): Segments<String>,
    Json(new): Json<MapCreate>,
) -> Result<(StatusCode, axum::Json<TargetMap>), Refusal> {
    let host = new.host.unwrap_or_else(|| DEFAULT_HOST.into());
    let spec = MapSpec { target, host: host.clone(), lun: new.lun };
    let map = state.call(move |control| async move {
        let volume = control.volume(&new.volume)?.info;
        let lun = control.map(&new.volume, spec).await?;
        Ok(TargetMap { lun, volume: Some(volume.name), volume_id: volume.id.to_string(), host })
    });
    Ok((StatusCode::CREATED, axum::Json(map.await?)))
}

/// Unmaps a LUN from one host group, or from all.
#[utoipa::path(
    delete, path = "/v1/targets/{name}/maps/{lun}", tag = "targets", operation_id = "delete_map",
    params(
        ("name" = String, Path, description = "iSCSI name of the target"),
        ("lun" = u16, Path, description = "LUN"),
        ForHost,
    ),
    responses(
        (status = NO_CONTENT, description = "Done"),
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = NOT_FOUND, description = "`target_not_found`, `map_not_found`"),
    ),
)]
pub(super) async fn delete_map(
    state: State,
    Segments((target, lun)): Segments<(String, u16)>,
    Parameters(ForHost { host, dry_run }): Parameters<ForHost>,
) -> Result<Response, Refusal> {
    if dry_run {
        return would_unmap(&state, target, lun, host).await;
    }
    state.call(move |control| async move { control.unmap(&target, lun, host.as_deref()).await }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn would_unmap(
    state: &State,
    target: String,
    lun: u16,
    host: Option<String>,
) -> Result<Response, Refusal> {
    let steps = move |control: Rc<Control>| async move {
        let known = one(&control, &target).await?;
        let goes = |map: &&TargetMap| map.lun == lun && host.as_ref().is_none_or(|host| map.host == *host);
        let mut steps: Vec<String> = known.maps.iter().filter(goes).map(|map| taken(&target, map)).collect();
        if steps.is_empty() {
            return Err(ControlError::not_found("map", &format!("{target} LUN {lun}")));
        }
        steps.extend(sessions_with(&control, &target).await?);
        Ok(steps)
    };
    Ok(dry_run::would(state.call(steps).await?, Vec::new()))
}

async fn one(control: &Control, name: &str) -> Result<Target, ControlError> {
    let access = control.access();
    let target = access.target(name).ok_or_else(|| ControlError::not_found("target", name))?;
    Ok(shown(target, &control.volume_names().await))
}

fn shown(target: &Known, names: &BTreeMap<VolumeId, String>) -> Target {
    let map = |map: &LunMap| TargetMap {
        lun: map.lun,
        volume: names.get(&map.volume).cloned(),
        volume_id: map.volume.to_string(),
        host: map.host.to_string(),
    };
    Target {
        name: target.name.to_string(),
        alias: target.alias.clone(),
        chap_user: target.chap.as_ref().map(|chap| chap.user.clone()),
        maps: target.maps.iter().map(map).collect(),
    }
}

/// The CHAP secret in the node's type.
pub(super) fn secret(chap: Chap) -> ChapSecret {
    ChapSecret { user: chap.user, secret: chap.secret }
}
