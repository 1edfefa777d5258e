//! Scrubbing a volume on a node.

use std::rc::Rc;

use ::node::Control;
use ::node::control;
use api::{Scrub, ScrubState, VolumeScrub};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::wait_for_end;
use crate::http::input::{Parameters, Segments};
use crate::http::jobs::id;
use crate::http::node_param::OfNode;
use crate::http::refusal::{Refusal, Reply};
use crate::http::state::State;

/// Scrubs a volume on a node: reads everything in use from the node's disks while hosts use the volume, and
/// repairs bad blocks from another copy in sync.
///
/// For log volumes, it verifies the checksums of blocks and block maps. Without another copy, bad blocks
/// are counted and reported, and cannot be read until hosts write them. If a scrub is already running, no
/// other one is started, and it yields less to hosts. An interrupted scrub resumes where it was, even after
/// a restart of the node. If the queried node has no copy, a node that has one scrubs its own. The scrub is a
/// job of that node; every node can show and cancel it.
#[utoipa::path(
    post, path = "/v1/volumes/{name}/scrub", tag = "volumes", operation_id = "scrub_volume",
    params(("name" = String, Path, description = "Volume name or ID"), OfNode),
    responses(
        (status = OK, description = "The result", body = Scrub),
        (status = ACCEPTED, description = "In progress", body = Scrub, headers(("Location" = String, description = "The job that shows progress and result"))),
        (status = NOT_FOUND, description = "`volume_not_found`, `node_not_found`"),
        (status = CONFLICT, description = "`not_scrubbable`: this node does not serve the volume, its copy is out of sync, or it is a RAM volume"),
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
        let job = id::of_scrub(control.volume(&name)?.info.id, here);
        let begun = control.begin_scrub(&name)?;
        let is_running = |scrub: &control::Scrub| scrub.state == control::ScrubState::Running;
        let found = wait_for_end(begun, is_running, || control.last_scrub(&name)).await?;
        Ok((shown(found), job))
    };
    let (found, job) = state.call(begin).await?;
    Ok(match found.state {
        ScrubState::Running | ScrubState::Interrupted => {
            (StatusCode::ACCEPTED, id::location(&job), axum::Json(found)).into_response()
        }
        ScrubState::Done | ScrubState::Stopped => axum::Json(found).into_response(),
    })
}

/// Progress or result of the last scrub of a volume on this node since the node was started, or of one that
/// a restart has interrupted.
#[utoipa::path(
    get, path = "/v1/volumes/{name}/scrub", tag = "volumes", operation_id = "show_scrub",
    params(("name" = String, Path, description = "Volume name or ID"), OfNode),
    responses(
        (status = OK, description = "The result so far", body = Scrub),
        (status = NOT_FOUND, description = "`volume_not_found`, `not_scrubbed`, `node_not_found`"),
    ),
)]
pub(in crate::http) async fn show(
    state: State,
    Segments(name): Segments<String>,
    Parameters(OfNode { node }): Parameters<OfNode>,
) -> Reply<Scrub> {
    let asked = name.clone();
    let last = move |control: Rc<Control>| async move { control.last_scrub(&asked) };
    let found = state.call_on(node, last).await?.ok_or_else(|| {
        let detail = format!("volume {name:?} has not been scrubbed since this node was started");
        Refusal::new(StatusCode::NOT_FOUND, "not_scrubbed", detail)
            .hint("run `ursa volume scrub` on the queried node; `ursa volume show` has the result of earlier scrubs")
    })?;
    Ok(axum::Json(shown(found)))
}

/// The result of the last scrub, and when the next one is due.
pub(super) fn scrubbed(status: &control::ScrubStatus) -> VolumeScrub {
    let last = status.last;
    VolumeScrub {
        last: last.map(|last| last.at),
        stopped: last.is_some_and(|last| last.stopped),
        bad_blocks: last.map_or(0, |last| last.found.bad),
        unrepaired_blocks: last.map_or(0, |last| last.found.unrepaired()),
        done_bytes: status.done,
        next: status.next,
        overdue: status.is_overdue,
    }
}

fn shown(found: control::Scrub) -> Scrub {
    Scrub {
        state: match found.state {
            control::ScrubState::Running => ScrubState::Running,
            control::ScrubState::Done => ScrubState::Done,
            control::ScrubState::Stopped => ScrubState::Stopped,
            control::ScrubState::Interrupted => ScrubState::Interrupted,
        },
        total_bytes: found.total,
        done_bytes: found.done,
        bad_blocks: found.found.bad,
        repaired_blocks: found.found.repaired,
        unrepaired_blocks: found.found.unrepaired(),
        first_unrepaired: found.found.first,
        problem: found.problem.map(|problem| problem.to_string()),
        age_s: found.age.as_secs(),
        took_s: found.took.as_secs(),
    }
}
