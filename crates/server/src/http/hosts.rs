//! Host groups.

use ::node::Control;
use ::node::access::HostGroup;
use ::node::control::ControlError;
use api::{DryRun, Host, HostChange, HostCreate, List};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::dry_run::{self, Answer, DryRunParam};
use super::input::{Json, Parameters, Segments};
use super::refusal::{Refusal, Reply};
use super::state::State;
use super::targets::secret;

/// All host groups, by name.
#[utoipa::path(get, path = "/v1/hosts", tag = "hosts", operation_id = "list_hosts", responses((status = OK, description = "All of them", body = List<Host>)))]
pub(super) async fn list(state: State) -> Reply<List<Host>> {
    let access = state.call(|control| async move { Ok(control.access()) }).await?;
    Ok(axum::Json(List::of(access.hosts().map(shown).collect())))
}

/// Shows one host group.
#[utoipa::path(
    get, path = "/v1/hosts/{name}", tag = "hosts", operation_id = "show_host",
    params(("name" = String, Path, description = "Host group name")),
    responses(
        (status = OK, description = "The host group", body = Host),
        (status = NOT_FOUND, description = "`host_not_found`"),
    ),
)]
pub(super) async fn show(state: State, Segments(name): Segments<String>) -> Reply<Host> {
    let host = state.call(move |control| async move { known(&control, &name) }).await?;
    Ok(axum::Json(shown(&host)))
}

/// Creates a host group.
#[utoipa::path(
    post, path = "/v1/hosts", tag = "hosts", operation_id = "create_host",
    request_body = HostCreate,
    responses(
        (status = CREATED, description = "The host group", body = Host),
        (status = CONFLICT, description = "`host_exists`, `host_built_in`"),
        (status = UNPROCESSABLE_ENTITY, description = "`name_invalid`, `field_invalid`"),
    ),
)]
pub(super) async fn create(
    state: State,
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

/// Replaces the settings of a host group with those sent. If `chap` is absent, it is unchanged; `null`
/// removes it.
#[utoipa::path(
    put, path = "/v1/hosts/{name}", tag = "hosts", operation_id = "change_host",
    params(("name" = String, Path, description = "Host group name"), DryRunParam),
    request_body = HostChange,
    responses(
        (status = OK, description = "The host group; with `dry_run`: what would be done", body = Answer<Host>),
        (status = NOT_FOUND, description = "`host_not_found`"),
        (status = CONFLICT, description = "`host_built_in`"),
        (status = UNPROCESSABLE_ENTITY, description = "`name_invalid`, `field_invalid`"),
    ),
)]
pub(super) async fn change(
    state: State,
    Segments(name): Segments<String>,
    Parameters(DryRunParam { dry_run }): Parameters<DryRunParam>,
    Json(change): Json<HostChange>,
) -> Reply<Answer<Host>> {
    let addresses = addresses(&change.addresses)?;
    let host = state.call(move |control| async move {
        let before = known(&control, &name)?;
        let chap = match change.chap {
            None => before.chap.clone(),
            Some(chap) => chap.map(secret),
        };
        let group = HostGroup { name: before.name.clone(), initiators: change.initiators, addresses, chap };
        if dry_run {
            let luns = control.check_changed_host(&group)?;
            let would = would_change(&before, &group, luns);
            return Ok(Answer::Would(DryRun { would, candidates: Vec::new() }));
        }
        control.set_host(group.clone(), false).await?;
        Ok(Answer::Done(shown(&group)))
    });
    Ok(axum::Json(host.await?))
}

/// The steps of changing a host group; `luns`: the number of LUNs that are mapped to it.
fn would_change(before: &HostGroup, after: &HostGroup, luns: usize) -> Vec<String> {
    let (before, after, has_other_secret) = (shown(before), shown(after), before.chap != after.chap);
    let (names, is_narrower) = members("initiator", &before.initiators, &after.initiators);
    let (addresses, is_nearer) = members("address", &before.addresses, &after.addresses);
    let mut steps = [names, addresses].concat();
    if has_other_secret {
        steps.push(match after.chap_user {
            Some(user) => format!(
                "the CHAP secret changes (CHAP name {user}): hosts need the new one from their next login on"
            ),
            None => "the CHAP secret is removed: initiators match by name and address alone".to_owned(),
        });
    }
    if (is_narrower || is_nearer) && luns > 0 {
        let luns = if luns == 1 { "1 LUN".to_owned() } else { format!("{luns} LUNs") };
        steps.push(format!("hosts that no longer match lose access to {luns} mapped to the group"));
    }
    if steps.is_empty() {
        steps.push(format!("no change: host group {} already has these settings", after.name));
    }
    steps
}

/// The changes of members by name or by address, and whether any initiator no longer matches. An empty list
/// matches all.
fn members(kind: &str, before: &[String], after: &[String]) -> (Vec<String>, bool) {
    let without = |all: &[String], others: &[String]| -> Vec<String> {
        all.iter().filter(|one| !others.contains(one)).cloned().collect()
    };
    let (gone, new) = (without(before, after), without(after, before));
    match (before, after) {
        ([], []) => (Vec::new(), false),
        (_, []) => (vec![format!("any {kind} matches")], false),
        ([], _) => (vec![format!("only {kind} {} still matches", after.join(", "))], true),
        _ => {
            let gone_ones =
                (!gone.is_empty()).then(|| format!("{kind} {} no longer matches", gone.join(", ")));
            let new_ones = (!new.is_empty()).then(|| format!("{kind} {} matches", new.join(", ")));
            (gone_ones.into_iter().chain(new_ones).collect(), !gone.is_empty())
        }
    }
}

/// Deletes a host group that no LUN map uses.
#[utoipa::path(
    delete, path = "/v1/hosts/{name}", tag = "hosts", operation_id = "delete_host",
    params(("name" = String, Path, description = "Host group name"), DryRunParam),
    responses(
        (status = NO_CONTENT, description = "Done"),
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = NOT_FOUND, description = "`host_not_found`"),
        (status = CONFLICT, description = "`host_in_use`, `host_built_in`"),
    ),
)]
pub(super) async fn delete(
    state: State,
    Segments(name): Segments<String>,
    Parameters(DryRunParam { dry_run }): Parameters<DryRunParam>,
) -> Result<Response, Refusal> {
    if dry_run {
        let host = state.call(move |control| async move {
            control.unused_host(&name)?;
            known(&control, &name)
        });
        let HostGroup { name, initiators, addresses, .. } = host.await?;
        let counted = |count: usize, one: &str, several: &str| {
            format!("{count} {}", if count == 1 { one } else { several })
        };
        let steps = vec![format!(
            "host group {name} is deleted, with {} and {}",
            counted(initiators.len(), "initiator name", "initiator names"),
            counted(addresses.len(), "address", "addresses")
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
