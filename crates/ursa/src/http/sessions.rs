//! Sessions.

use ::node::control::SessionStatus;
use api::{List, Problem, Session};
use axum::extract::State as Extracted;
use axum::http::StatusCode;

use super::input::Segments;
use super::refusal::Refusal;
use super::state::State;

/// All sessions, by number.
#[utoipa::path(get, path = "/v1/sessions", tag = "sessions", operation_id = "list_sessions", responses((status = OK, description = "All of them", body = List<Session>)))]
pub(super) async fn list(Extracted(state): Extracted<State>) -> Result<axum::Json<List<Session>>, Refusal> {
    let sessions = state.call(|control| async move { control.sessions().await }).await?;
    Ok(axum::Json(List { items: sessions.into_iter().map(shown).collect() }))
}

/// Ends a session in an orderly way. Its initiator may log in again.
#[utoipa::path(
    delete, path = "/v1/sessions/{tsih}", tag = "sessions", operation_id = "end_session",
    params(("tsih" = u16, Path, description = "The session's number")),
    responses(
        (status = NO_CONTENT, description = "Done"),
        (status = NOT_FOUND, description = "`session_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn end(
    Extracted(state): Extracted<State>,
    Segments(tsih): Segments<u16>,
) -> Result<StatusCode, Refusal> {
    state.call(move |control| async move { control.end_session(tsih).await }).await?;
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
    }
}
