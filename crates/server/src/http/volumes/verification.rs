//! Verifying a volume: its copies in sync are compared.

use std::rc::Rc;

use ::node::Control;
use ::node::VolumeId;
use ::node::control;
use ::node::member::CopiesStatus;
use api::{Comparison, Difference, Verification, VerificationState};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use terms::clock::unix_now;

use super::wait_for_end;
use crate::http::input::{Parameters, Segments};
use crate::http::jobs::id;
use crate::http::node_param::OfNode;
use crate::http::refusal::{Refusal, Reply};
use crate::http::state::State;

/// Verifies a volume: compares its copies that are in sync, by SHA-256, while hosts use it.
///
/// It works part by part: commands of hosts to the part being read wait for a few milliseconds. Differences
/// are read three times. If a verify run is already in progress, no other one is started. If the queried node
/// has no copy in sync, a node that has one verifies. The verify run is a job of that node; every node can
/// show and cancel it.
#[utoipa::path(
    post, path = "/v1/volumes/{name}/verify", tag = "volumes", operation_id = "verify_volume",
    params(("name" = String, Path, description = "Volume name or ID"), OfNode),
    responses(
        (status = OK, description = "The result", body = Verification),
        (status = ACCEPTED, description = "In progress: repeat the request for the result", body = Verification, headers(("Location" = String, description = "The job that shows progress and result"))),
        (status = NOT_FOUND, description = "`volume_not_found`, `node_not_found`"),
        (status = CONFLICT, description = "`not_replicated`"),
    ),
)]
pub(in crate::http) async fn begin(
    state: State,
    Segments(name): Segments<String>,
    Parameters(OfNode { node }): Parameters<OfNode>,
) -> Result<Response, Refusal> {
    let begin = move |control: Rc<Control>| async move {
        control.check_is_here(node)?;
        let here = control.number();
        let job = id::of_verification(control.volume(&name)?.info.id, here);
        let begun = control.begin_verification(&name)?;
        let is_running = |found: &control::Verification| found.state == control::VerificationState::Running;
        let found = wait_for_end(begun, is_running, || control.verification(&name)).await?;
        Ok((shown(found), job))
    };
    let (found, job) = state.call(begin).await?;
    Ok(match found.state {
        VerificationState::Running => {
            (StatusCode::ACCEPTED, id::location(&job), axum::Json(found)).into_response()
        }
        VerificationState::Done | VerificationState::Stopped => axum::Json(found).into_response(),
    })
}

/// Result of the last verify run of a volume on this node, since the node was started.
#[utoipa::path(
    get, path = "/v1/volumes/{name}/verify", tag = "volumes", operation_id = "show_verification",
    params(("name" = String, Path, description = "Volume name or ID"), OfNode),
    responses(
        (status = OK, description = "The result so far", body = Verification),
        (status = NOT_FOUND, description = "`volume_not_found`, `not_verified`, `node_not_found`"),
    ),
)]
pub(in crate::http) async fn show(
    state: State,
    Segments(name): Segments<String>,
    Parameters(OfNode { node }): Parameters<OfNode>,
) -> Reply<Verification> {
    let asked = name.clone();
    let last = move |control: Rc<Control>| async move { control.verification(&asked) };
    let found = state.call_on(node, last).await?.ok_or_else(|| {
        let detail = format!("volume {name:?} has not been verified since this node was started");
        Refusal::new(StatusCode::NOT_FOUND, "not_verified", detail)
            .hint("run `ursa volume verify` on the queried node")
    })?;
    Ok(axum::Json(shown(found)))
}

/// The result of the last verify run, and when the next one is due.
pub(super) fn compared(copies: &CopiesStatus, id: VolumeId, created: u64) -> Comparison {
    let found = &copies.verification;
    let last = found.last.as_ref();
    let due = |every| control::verification_due(unix_now(), every, id, created, found);
    Comparison {
        last: last.map(|last| last.at),
        node: last.map(|last| last.node),
        stopped: last.is_some_and(|last| last.stopped),
        different_bytes: last.map_or(0, |last| last.different),
        unchecked_bytes: last.map_or(0, |last| last.unchecked),
        done_bytes: found.progress.as_ref().map(|progress| progress.done),
        next: copies.verify_every.filter(|_| copies.entry.copies.len() > 1).map(due),
    }
}

fn shown(found: control::Verification) -> Verification {
    let equal = found.is_equal();
    let place = |place: control::Difference| Difference {
        offset: place.offset,
        bytes: place.len,
        nodes: place.nodes.into_iter().collect(),
    };
    Verification {
        state: match found.state {
            control::VerificationState::Running => VerificationState::Running,
            control::VerificationState::Done => VerificationState::Done,
            control::VerificationState::Stopped => VerificationState::Stopped,
        },
        equal,
        total_bytes: found.total,
        checked_bytes: found.done,
        unchecked_bytes: found.unchecked,
        problem: found.problem.map(|problem| problem.to_string()),
        different_bytes: found.different,
        differences: found.differences.into_iter().map(place).collect(),
        nodes: found.nodes.into_iter().collect(),
        age_s: found.age.as_secs(),
        took_s: found.took.as_secs(),
    }
}
