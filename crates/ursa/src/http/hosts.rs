//! Host groups.

use ::node::Control;
use ::node::access::HostGroup;
use ::node::control::ControlError;
use api::{DryRun, Host, HostChange, HostCreate, List, Problem};
use axum::extract::State as Extracted;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::dry_run::{self, Asked};
use super::input::{Json, Parameters, Segments};
use super::refusal::Refusal;
use super::state::State;
use super::targets::secret;

/// All host groups, by name.
#[utoipa::path(get, path = "/v1/hosts", tag = "hosts", operation_id = "list_hosts", responses((status = OK, description = "All of them", body = List<Host>)))]
pub(super) async fn list(Extracted(state): Extracted<State>) -> Result<axum::Json<List<Host>>, Refusal> {
    let access = state.call(|control| async move { Ok(control.access()) }).await?;
    Ok(axum::Json(List::of(access.hosts().map(shown).collect())))
}

/// One host group.
#[utoipa::path(
    get, path = "/v1/hosts/{name}", tag = "hosts", operation_id = "show_host",
    params(("name" = String, Path, description = "The host group's name")),
    responses(
        (status = OK, description = "The host group", body = Host),
        (status = NOT_FOUND, description = "`host_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn show(
    Extracted(state): Extracted<State>,
    Segments(name): Segments<String>,
) -> Result<axum::Json<Host>, Refusal> {
    let host = state.call(move |control| async move { known(&control, &name) }).await?;
    Ok(axum::Json(shown(&host)))
}

/// Makes a host group.
#[utoipa::path(
    post, path = "/v1/hosts", tag = "hosts", operation_id = "create_host",
    request_body = HostCreate,
    responses(
        (status = CREATED, description = "The host group", body = Host),
        (status = CONFLICT, description = "`host_exists`, `host_built_in`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = UNPROCESSABLE_ENTITY, description = "`name_invalid`, `field_invalid`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn create(
    Extracted(state): Extracted<State>,
    Json(new): Json<HostCreate>,
) -> Result<(StatusCode, axum::Json<Host>), Refusal> {
    let group = HostGroup {
        name: new.name.parse().map_err(ControlError::Name)?,
        initiators: new.initiators,
        addresses: addresses(&new.addresses)?,
        chap: new.chap.map(secret),
    };
    let answer = shown(&group);
    state.call(|control| async move { control.set_host(group, true).await }).await?;
    Ok((StatusCode::CREATED, axum::Json(answer)))
}

/// Changes a host group to what is sent. A `chap` that is absent stays as it is; `null` takes it away.
#[utoipa::path(
    put, path = "/v1/hosts/{name}", tag = "hosts", operation_id = "change_host",
    params(("name" = String, Path, description = "The host group's name")),
    request_body = HostChange,
    responses(
        (status = OK, description = "The host group", body = Host),
        (status = NOT_FOUND, description = "`host_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = CONFLICT, description = "`host_built_in`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = UNPROCESSABLE_ENTITY, description = "`name_invalid`, `field_invalid`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn change(
    Extracted(state): Extracted<State>,
    Segments(name): Segments<String>,
    Json(change): Json<HostChange>,
) -> Result<axum::Json<Host>, Refusal> {
    let addresses = addresses(&change.addresses)?;
    let host = state.call(move |control| async move {
        let before = known(&control, &name)?;
        let chap = match change.chap {
            None => before.chap,
            Some(chap) => chap.map(secret),
        };
        let group = HostGroup { name: before.name, initiators: change.initiators, addresses, chap };
        control.set_host(group.clone(), false).await?;
        Ok(group)
    });
    Ok(axum::Json(shown(&host.await?)))
}

/// Deletes a host group that no map names.
#[utoipa::path(
    delete, path = "/v1/hosts/{name}", tag = "hosts", operation_id = "delete_host",
    params(("name" = String, Path, description = "The host group's name"), Asked),
    responses(
        (status = NO_CONTENT, description = "Done"),
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = NOT_FOUND, description = "`host_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = CONFLICT, description = "`host_in_use`, `host_built_in`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn delete(
    Extracted(state): Extracted<State>,
    Segments(name): Segments<String>,
    Parameters(Asked { dry_run }): Parameters<Asked>,
) -> Result<Response, Refusal> {
    if dry_run {
        let host = state.call(move |control| async move {
            control.unused_host(&name)?;
            known(&control, &name)
        });
        let HostGroup { name, initiators, addresses, .. } = host.await?;
        let (initiators, addresses) = (initiators.len(), addresses.len());
        let steps = vec![format!(
            "host group {name} is deleted, with {initiators} names and {addresses} addresses of initiators"
        )];
        return Ok(dry_run::would(steps, Vec::new()));
    }
    state.call(move |control| async move { control.delete_host(&name).await }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn known(control: &Control, name: &str) -> Result<HostGroup, ControlError> {
    let access = control.access();
    let host = access.hosts().find(|host| host.name.as_str() == name);
    host.cloned().ok_or_else(|| ControlError::not_found("host", name))
}

fn addresses(texts: &[String]) -> Result<Vec<::node::access::AddressRange>, Refusal> {
    let parse = |text: &String| Ok(Control::parse_address(text)?);
    texts.iter().map(parse).collect()
}

fn shown(host: &HostGroup) -> Host {
    Host {
        name: host.name.to_string(),
        initiators: host.initiators.clone(),
        addresses: host.addresses.iter().map(ToString::to_string).collect(),
        chap_user: host.chap.as_ref().map(|chap| chap.user.clone()),
        built_in: host.is_built_in(),
    }
}
