//! Sessions.

use std::rc::Rc;

use ::node::Control;
use ::node::control::{ControlError, SessionStatus};
use api::{DryRun, List, Session};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::dry_run;
use super::input::{Parameters, Segments};
use super::node_param::AskedOfNode;
use super::peers::{self, PeerQuery, Whose};
use super::refusal::{Refusal, Reply};
use super::state::State;

/// All sessions with the queried node, by number; with `node=all`, with all nodes.
///
/// Each node numbers its own sessions: to end a session, use its number with the node that has it.
#[utoipa::path(
    get, path = "/v1/sessions", tag = "sessions", operation_id = "list_sessions",
    params(Whose),
    responses(
        (status = OK, description = "All of them", body = List<Session>),
    ),
)]
pub(super) async fn list(state: State, Parameters(whose): Parameters<Whose>) -> Reply<List<Session>> {
    let own = |control: Rc<Control>| async move { all(&control).await };
    Ok(axum::Json(peers::list(&state, whose.asked()?, PeerQuery::Sessions, own).await?))
}

/// The sessions with this node.
pub(super) async fn all(control: &Control) -> Result<Vec<Session>, ControlError> {
    let (node, node_name) = control.number_and_name();
    let of_node = |session| shown(session, node, node_name.clone());
    Ok(control.sessions().await?.into_iter().map(of_node).collect())
}

/// Ends a session in an orderly way; with `node`, a session with that node. The initiator may log in again.
#[utoipa::path(
    delete, path = "/v1/sessions/{tsih}", tag = "sessions", operation_id = "end_session",
    params(("tsih" = u16, Path, description = "Session number"), AskedOfNode),
    responses(
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = NO_CONTENT, description = "Done"),
        (status = NOT_FOUND, description = "`session_not_found`, `node_not_found`"),
    ),
)]
pub(super) async fn end(
    state: State,
    Segments(tsih): Segments<u16>,
    Parameters(AskedOfNode { node, dry_run }): Parameters<AskedOfNode>,
) -> Result<Response, Refusal> {
    if dry_run {
        let look = move |control: Rc<Control>| async move { control.session(tsih).await };
        let (session, commands) = state.call_on(node, look).await?;
        return Ok(dry_run::would(would_end(&session, commands), Vec::new()));
    }
    state.call_on(node, move |control| async move { control.end_session(tsih).await }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The steps of ending a session; `commands`: the number of its commands in progress.
fn would_end(session: &SessionStatus, commands: usize) -> Vec<String> {
    let SessionStatus { tsih, initiator, addresses, target, .. } = session;
    let from = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let from = if from.is_empty() { String::new() } else { format!(" from {from}") };
    let with = target.as_ref().map_or("for discovery".to_owned(), |target| format!("with target {target}"));
    let under_way = match commands {
        0 => "no command is in progress".to_owned(),
        1 => "1 command is in progress: if it has not finished by then, its initiator resends it".to_owned(),
        _ => format!(
            "{commands} commands are in progress: their initiator resends those that have not finished by then"
        ),
    };
    vec![
        format!(
            "session {tsih} of {initiator}{from}, {with}, ends: its initiator is asked to log out, and disconnected if it does not"
        ),
        under_way,
        format!("{initiator} may log in again automatically, at once: to keep it out, unmap its LUNs"),
    ]
}

fn shown(session: SessionStatus, node: u16, node_name: String) -> Session {
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
        node,
        node_name,
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use ::node::control::Traffic;
    use rt::CoreId;

    use super::*;

    #[test]
    fn ending_a_session_shows_its_initiator_and_its_open_commands() {
        let mut session = SessionStatus {
            tsih: 7,
            initiator: "iqn.i".into(),
            alias: None,
            isid: [0; 6],
            target: Some("iqn.t".into()),
            core: CoreId(0),
            addresses: vec![SocketAddr::from(([10, 0, 0, 7], 9))],
            age: Duration::ZERO,
            traffic: Traffic::default(),
        };
        let said = would_end(&session, 0);
        let whose = "session 7 of iqn.i from 10.0.0.7:9, with target iqn.t, ends:";
        assert!(said[0].starts_with(whose), "{said:?}");
        assert_eq!(said[1], "no command is in progress");
        assert!(said[2].starts_with("iqn.i may log in again automatically"), "{said:?}");
        assert!(would_end(&session, 1)[1].starts_with("1 command is in progress"));
        assert!(would_end(&session, 2)[1].starts_with("2 commands are in progress"));
        (session.target, session.addresses) = (None, Vec::new());
        assert!(would_end(&session, 0)[0].starts_with("session 7 of iqn.i, for discovery, ends:"));
    }
}
