//! Sessions.

use std::rc::Rc;

use ::node::Control;
use ::node::control::{ControlError, SessionStatus};
use api::{List, Problem, Session};
use axum::extract::State as Extracted;
use axum::http::StatusCode;

use super::input::{Parameters, Segments};
use super::peers::{self, Whose};
use super::refusal::Refusal;
use super::state::State;
use super::there::OfNode;

/// All sessions with the node that is asked, by number; with `node=all` those with all nodes.
///
/// Numbers are a node's own: a session is ended with the number of the node that has it.
#[utoipa::path(
    get, path = "/v1/sessions", tag = "sessions", operation_id = "list_sessions",
    params(Whose),
    responses(
        (status = OK, description = "All of them", body = List<Session>),
        (status = BAD_REQUEST, description = "`query_invalid`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = NOT_FOUND, description = "`node_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = CONFLICT, description = "`no_cluster`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn list(
    Extracted(state): Extracted<State>,
    Parameters(whose): Parameters<Whose>,
) -> Result<axum::Json<List<Session>>, Refusal> {
    let own = |control: Rc<Control>| async move { all(&control).await };
    Ok(axum::Json(peers::list(&state, whose.asked()?, peers::SESSIONS, own).await?))
}

/// The sessions with this node.
pub(super) async fn all(control: &Control) -> Result<Vec<Session>, ControlError> {
    let (node, node_name) = control.number_and_name();
    let of_node = |session| Session { node, node_name: node_name.clone(), ..shown(session) };
    Ok(control.sessions().await?.into_iter().map(of_node).collect())
}

/// Ends a session in an orderly way; with `node`, one with that node. Its initiator may log in again.
#[utoipa::path(
    delete, path = "/v1/sessions/{tsih}", tag = "sessions", operation_id = "end_session",
    params(("tsih" = u16, Path, description = "The session's number"), OfNode),
    responses(
        (status = NO_CONTENT, description = "Done"),
        (status = NOT_FOUND, description = "`session_not_found`, `node_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn end(
    Extracted(state): Extracted<State>,
    Segments(tsih): Segments<u16>,
    Parameters(OfNode { node }): Parameters<OfNode>,
) -> Result<StatusCode, Refusal> {
    let end = move |control: Rc<Control>| async move {
        control.check_is_here(node)?;
        control.end_session(tsih).await
    };
    state.call(end).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn shown(session: SessionStatus) -> Session {
    Session {
        tsih: session.tsih,
        initiator: session.initiator,
        alias: session.alias,
        isid: session.isid.iter().map(|byte| format!("{byte:02x}")).collect(),
        target: session.target,
        core: session.core.0,
        addresses: session.addresses.iter().map(ToString::to_string).collect(),
        age: session.age.as_secs(),
        commands: session.traffic.commands,
        bytes_received: session.traffic.bytes_received,
        bytes_sent: session.traffic.bytes_sent,
        node: None,
        node_name: None,
    }
}
