//! API tokens.

use std::rc::Rc;

use ::node::Control;
use ::node::access::HostName;
use ::node::control::{self, ControlError};
use api::{ApiToken, ApiTokenCreate, ApiTokenMade, DryRun, List};
use axum::Extension;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use terms::clock::unix_now;

use crate::http::access::{Caller, Digested, draw, draw_id, kept_role, shown_role, token_text};
use crate::http::dry_run::{self, DryRunParam};
use crate::http::input::{Json, Parameters, Segments};
use crate::http::refusal::{Refusal, Reply};
use crate::http::state::State;

/// The longest validity of a token that expires: ten years.
const VALID_SECONDS_MAX: u64 = 10 * 366 * 24 * 60 * 60;

/// All tokens of the cluster, without their secrets.
#[utoipa::path(get, path = "/v1/tokens", tag = "access", operation_id = "list_tokens", responses((status = OK, description = "All of them", body = List<ApiToken>)))]
pub(in crate::http) async fn list(state: State) -> Reply<List<ApiToken>> {
    let tokens = state.call(|control| async move { Ok(control.api_tokens()) }).await?;
    Ok(axum::Json(List::of(tokens.into_iter().map(shown).collect())))
}

/// Creates a token. Its secret is in the response and nowhere else: only a digest is stored.
#[utoipa::path(
    post, path = "/v1/tokens", tag = "access", operation_id = "create_api_token",
    request_body = ApiTokenCreate,
    responses(
        (status = CREATED, description = "The token with its secret", body = ApiTokenMade),
        (status = CONFLICT, description = "`too_many_tokens`"),
        (status = UNPROCESSABLE_ENTITY, description = "`name_invalid`, `field_invalid`"),
    ),
)]
pub(in crate::http) async fn create(
    state: State,
    Extension(caller): Extension<Caller>,
    Json(ApiTokenCreate { name, role, valid_seconds }): Json<ApiTokenCreate>,
) -> Result<(StatusCode, axum::Json<ApiTokenMade>), Refusal> {
    let _: HostName = name.parse().map_err(ControlError::Name)?;
    if valid_seconds.is_some_and(|seconds| !(1..=VALID_SECONDS_MAX).contains(&seconds)) {
        let detail = format!("a token is valid for 1 to {VALID_SECONDS_MAX} seconds, or without limit");
        return Err(Refusal::invalid("valid_seconds", detail));
    }
    let (id, secret, now) = (draw_id(), draw(), unix_now());
    let token = control::ApiToken {
        id: id.clone(),
        name,
        role: kept_role(role),
        digest: Digested::of(&secret).text(),
        created: now,
        expires: valid_seconds.map(|seconds| now + seconds),
        created_by: caller.name,
    };
    let made = shown(token.clone());
    state.call(move |control| async move { control.add_api_token(token).await }).await?;
    let secret = token_text(&id, &secret);
    Ok((StatusCode::CREATED, axum::Json(ApiTokenMade { token: made, secret })))
}

/// Deletes a token: it no longer grants access, on any node.
#[utoipa::path(
    delete, path = "/v1/tokens/{id}", tag = "access", operation_id = "delete_token",
    params(("id" = String, Path, description = "Token ID"), DryRunParam),
    responses(
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = NO_CONTENT, description = "Done"),
        (status = NOT_FOUND, description = "`token_not_found`"),
    ),
)]
pub(in crate::http) async fn delete(
    state: State,
    Segments(id): Segments<String>,
    Parameters(DryRunParam { dry_run }): Parameters<DryRunParam>,
) -> Result<Response, Refusal> {
    if dry_run {
        let known = move |control: Rc<Control>| async move {
            control.api_token(&id).ok_or_else(|| ControlError::not_found("token", &id))
        };
        return Ok(dry_run::would(would_delete(&state.call(known).await?), Vec::new()));
    }
    state.call(move |control| async move { control.delete_api_token(&id).await }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn would_delete(token: &control::ApiToken) -> Vec<String> {
    let control::ApiToken { id, name, role, created_by, .. } = token;
    let role = shown_role(*role);
    vec![
        format!("token {name} ({id}, {role}), created by {created_by}, is deleted"),
        "programs that use it lose access, on all nodes".to_owned(),
    ]
}

fn shown(token: control::ApiToken) -> ApiToken {
    ApiToken {
        id: token.id,
        name: token.name,
        role: shown_role(token.role),
        created: token.created,
        expires: token.expires,
        created_by: token.created_by,
    }
}
