//! Users.

use std::rc::Rc;

use ::node::Control;
use ::node::control::{self, UserChange as Change};
use api::{DryRun, List, Role, User, UserChange, UserCreate};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::login::{hashed, new_user};
use crate::http::access::{kept_role, shown_role};
use crate::http::dry_run::{self, Answer, DryRunParam};
use crate::http::input::{Json, Parameters, Segments};
use crate::http::refusal::{Refusal, Reply};
use crate::http::state::State;

/// All users of the cluster, by name.
#[utoipa::path(get, path = "/v1/users", tag = "access", operation_id = "list_users", responses((status = OK, description = "All of them", body = List<User>)))]
pub(in crate::http) async fn list(state: State) -> Reply<List<User>> {
    let users = state.call(|control| async move { Ok(control.users()) }).await?;
    Ok(axum::Json(List::of(users.into_iter().map(shown).collect())))
}

/// Creates a user.
#[utoipa::path(
    post, path = "/v1/users", tag = "access", operation_id = "create_user",
    request_body = UserCreate,
    responses(
        (status = CREATED, description = "The user", body = User),
        (status = CONFLICT, description = "`user_exists`, `too_many_users`"),
        (status = UNPROCESSABLE_ENTITY, description = "`name_invalid`, `field_invalid`"),
    ),
)]
pub(in crate::http) async fn create(
    state: State,
    Json(UserCreate { name, role, password }): Json<UserCreate>,
) -> Result<(StatusCode, axum::Json<User>), Refusal> {
    let set_up = state.call(|control| async move { Ok(control.is_set_up()) }).await?;
    if set_up == Some(false) && role != Role::Admin {
        // The setup link becomes invalid with the first user. If that one were no administrator, no further
        // users could be created from other machines.
        return Err(Refusal::invalid("role", "the first user must be an administrator")
            .hint("create that one first: `ursa user create NAME --role admin`"));
    }
    let user = new_user(&state, &name, role, password).await?;
    let made = state.call(move |control| async move { control.change_user(Change::Add(user)).await }).await?;
    // The setup link must not create another first user.
    state.access.end_set_up();
    Ok((StatusCode::CREATED, axum::Json(shown(made))))
}

/// Changes the name, role or password of a user, who is logged out on all nodes.
#[utoipa::path(
    patch, path = "/v1/users/{name}", tag = "access", operation_id = "change_user",
    params(("name" = String, Path, description = "User name"), DryRunParam),
    request_body = UserChange,
    responses(
        (status = OK, description = "The user; with `dry_run`: what would be done", body = Answer<User>),
        (status = NOT_FOUND, description = "`user_not_found`"),
        (status = CONFLICT, description = "`last_admin`, `user_exists`"),
        (status = UNPROCESSABLE_ENTITY, description = "`name_invalid`, `field_invalid`"),
    ),
)]
pub(in crate::http) async fn change(
    state: State,
    Segments(name): Segments<String>,
    Parameters(DryRunParam { dry_run }): Parameters<DryRunParam>,
    Json(UserChange { name: new_name, role, password }): Json<UserChange>,
) -> Reply<Answer<User>> {
    let has_other_password = password.is_some();
    let password = match password {
        Some(password) => Some(hashed(&state, "password", password).await?),
        None => None,
    };
    let before = name.clone();
    let change = Change::Set { name, new_name, role: role.map(kept_role), password };
    if dry_run {
        let user = state.call(move |control| async move { control.check_user_change(change) }).await?;
        let would = would_change(&before, &shown(user), role, has_other_password);
        return Ok(axum::Json(Answer::Would(DryRun { would, candidates: Vec::new() })));
    }
    let user = state.call(move |control| async move { control.change_user(change).await }).await?;
    Ok(axum::Json(Answer::Done(shown(user))))
}

/// The steps of changing the user `name`; `user` is the user after the change.
fn would_change(name: &str, user: &User, role: Option<Role>, has_other_password: bool) -> Vec<String> {
    let renamed = (user.name != name).then(|| format!("user {name} is renamed to {}", user.name));
    let role = role.map(|role| format!("user {name} gets the role {role}"));
    let password = has_other_password.then(|| format!("user {name} gets a new password"));
    let ended = format!("user {name} is logged out on all nodes");
    renamed.into_iter().chain(role).chain(password).chain([ended]).collect()
}

/// Deletes a user, who is logged out on all nodes. Tokens that the user created remain valid.
#[utoipa::path(
    delete, path = "/v1/users/{name}", tag = "access", operation_id = "delete_user",
    params(("name" = String, Path, description = "User name"), DryRunParam),
    responses(
        (status = NO_CONTENT, description = "Done"),
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = NOT_FOUND, description = "`user_not_found`"),
        (status = CONFLICT, description = "`last_admin`"),
    ),
)]
pub(in crate::http) async fn delete(
    state: State,
    Segments(name): Segments<String>,
    Parameters(DryRunParam { dry_run }): Parameters<DryRunParam>,
) -> Result<Response, Refusal> {
    if dry_run {
        return would_delete(&state, name).await;
    }
    state.call(move |control| async move { control.change_user(Change::Delete(name)).await }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Answers the dry run of deleting a user.
async fn would_delete(state: &State, name: String) -> Result<Response, Refusal> {
    let check = move |control: Rc<Control>| async move {
        let user = control.check_user_change(Change::Delete(name))?;
        let made = control.api_tokens().into_iter().filter(|token| token.created_by == user.name).count();
        Ok((user, made))
    };
    let (user, made) = state.call(check).await?;
    let mut steps = vec![format!(
        "user {} ({}) is deleted, and logged out on all nodes",
        user.name,
        shown_role(user.role)
    )];
    if made > 0 {
        steps.push(format!("tokens that the user created remain valid: {made}"));
    }
    Ok(dry_run::would(steps, Vec::new()))
}

fn shown(user: control::User) -> User {
    User { name: user.name, role: shown_role(user.role), created: user.created }
}
