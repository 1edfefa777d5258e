//! Forwarding calls: which calls the queried node forwards, to which node, and how it responds.

use std::rc::Rc;

use ::node::Control;
use ::node::control::{self, DiffSpec, ForwardOutcome, NotBegun};
use api::Candidate;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, RawPathParams, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::super::access::Caller;
use super::super::input::whole;
use super::super::peers::PeerRequest;
use super::super::refusal::Refusal;
use super::super::state::State;
use super::super::{jobs, node_param, snapshots};
use super::{AT_NODES, DIFF, ForwardedCall, MAP, OF_AUTHORITY, OF_JOBS, OF_NODES, Outcome, call_of};

/// What a call that another node may execute is about.
#[derive(Clone, Debug)]
enum About {
    /// A volume, by name or ID.
    Volume(String),
    /// Snapshots of a volume, to be compared.
    Diff(DiffSpec),
    /// An object of this node.
    Node(u16),
    /// A job of this node, if the node exists.
    Job(u16),
    /// Something that needs the cluster's authority.
    Authority,
}

/// Forwards calls that this node cannot execute, because it has no copy of the volume or is not the named
/// node.
pub(in crate::http) async fn forward(state: State, request: Request, next: Next) -> Response {
    let Some(call) = call_of(&request) else { return next.run(request).await };
    let may_name = OF_NODES.contains(&call) || AT_NODES.contains(&call);
    let node = node_param::named(request.uri()).filter(|_| may_name);
    if node.is_none() && OF_NODES.contains(&call) {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    let body = match whole(body).await {
        Ok(body) => body,
        Err(refusal) => return refusal.into_response(),
    };
    let about = match node {
        // Only its ID tells which node a job belongs to.
        _ if OF_JOBS.contains(&call) => node_of_job(&mut parts).await.map(About::Job),
        _ if OF_AUTHORITY.contains(&call) => Some(About::Authority),
        _ if call == DIFF => compared(&mut parts).await.map(About::Diff),
        Some(node) => Some(About::Node(node)),
        None => volume_of(call, &mut parts, &body).await.map(About::Volume),
    };
    let answered = match about {
        Some(about) => at_another_node(&state, call.0, &parts, &body, about).await,
        None => None,
    };
    match answered {
        Some(response) => response,
        None => next.run(Request::from_parts(parts, Body::from(body))).await,
    }
}

/// The volume that a call is about, if it names one.
async fn volume_of(call: (&str, &str), parts: &mut Parts, body: &Bytes) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        volume: String,
    }
    if call == MAP {
        return Some(serde_json::from_slice::<Named>(body).ok()?.volume);
    }
    in_path("name", parts).await
}

/// What a call compares, unless its handler refuses it.
async fn compared(parts: &mut Parts) -> Option<DiffSpec> {
    snapshots::diff::compared(in_path("snapshot", parts).await?, &parts.uri)
}

/// The node to which the job of a call belongs, if it belongs to a node.
async fn node_of_job(parts: &mut Parts) -> Option<u16> {
    jobs::id::node_of(&in_path("id", parts).await?)
}

/// The value of a parameter in a call's path.
async fn in_path(place: &str, parts: &mut Parts) -> Option<String> {
    let in_path = RawPathParams::from_request_parts(parts, &()).await.ok()?;
    in_path.iter().find(|(name, _)| *name == place).map(|(_, value)| value.to_owned())
}

/// The other node's response; `None`: this node should execute the call.
async fn at_another_node(
    state: &State,
    method: &str,
    parts: &Parts,
    body: &Bytes,
    about: About,
) -> Option<Response> {
    let body = match (std::str::from_utf8(body), &about) {
        (Ok(body), _) => body.to_owned(),
        // It is not JSON: this node says so.
        (Err(_), About::Volume(_) | About::Diff(_) | About::Job(_) | About::Authority) => return None,
        (Err(_), About::Node(_)) => {
            let detail = "invalid JSON in request body: it is not UTF-8";
            return Some(Refusal::new(StatusCode::BAD_REQUEST, "json_syntax", detail).into_response());
        }
    };
    let caller = parts.extensions.get::<Caller>()?.clone();
    let content_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let forwarded = ForwardedCall {
        method: method.to_owned(),
        target: parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
        content_type: content_type.map(str::to_owned),
        body,
        caller,
        asked: state.name.clone(),
    };
    let text = PeerRequest::Call(forwarded).written();
    let forwarded = control::Request { text, changes: method != "GET" };
    let to = about.clone();
    let pass = move |control: Rc<Control>| async move {
        let passage = match to {
            About::Volume(volume) => control.forward(&volume, &forwarded).await,
            About::Diff(spec) => control.forward_diff(&spec, &forwarded).await,
            // There is no such job: this node says so.
            About::Job(node) if !control.node_names().contains_key(&node) => ForwardOutcome::Stays,
            About::Node(node) | About::Job(node) => control.forward_to(node, &forwarded).await?,
            // If no such node is known, this node tries itself and reports the reason.
            About::Authority => match control.token_maker() {
                Some(node) => control.forward_to(node, &forwarded).await?,
                None => ForwardOutcome::Stays,
            },
        };
        Ok((passage, control.node_names()))
    };
    let (passage, names) = match state.call(pass).await {
        Ok((passage, names)) => (passage, names),
        Err(refusal) => return Some(refusal.into_response()),
    };
    let candidate = |(node, text): (u16, String)| Candidate {
        node,
        node_name: names.get(&node).cloned().unwrap_or_default(),
        pool: None,
        rule: Some("node_unreachable".into()),
        text,
    };
    match passage {
        ForwardOutcome::Stays => None,
        ForwardOutcome::Answered(outcome) => Some(match serde_json::from_str::<Outcome>(&outcome) {
            Ok(outcome) => outcome.into_response(&parts.method),
            Err(_) => about.not_known(None, "its answer cannot be read").into_response(),
        }),
        // This node notes in the record that they have to delete their copies.
        ForwardOutcome::Refused(nodes) if method == "DELETE" && are_unreachable(&about, &nodes) => None,
        ForwardOutcome::Refused(nodes) => {
            let nodes: Vec<(u16, String)> =
                nodes.into_iter().map(|(node, why)| (node, why.to_string())).collect();
            let refusal = about.not_begun(&nodes);
            Some(refusal.candidates(nodes.into_iter().map(candidate).collect()).into_response())
        }
        ForwardOutcome::Unknown { node, reason } => {
            Some(about.not_known(Some(node), &reason.to_string()).into_response())
        }
    }
}

/// Whether the call is about a volume of which no copy can be reached.
fn are_unreachable(about: &About, nodes: &[(u16, NotBegun)]) -> bool {
    let is_out_of_reach =
        |(_, why): &(u16, NotBegun)| matches!(why, NotBegun::Unreached | NotBegun::ClosedHere);
    matches!(about, About::Volume(_)) && nodes.iter().all(is_out_of_reach)
}

impl About {
    /// The refusal if no node that could execute the call has begun.
    fn not_begun(&self, nodes: &[(u16, String)]) -> Refusal {
        let all: Vec<String> = nodes.iter().map(|(node, why)| format!("node {node}: {why}")).collect();
        let all = all.join("; ");
        let (code, detail, hint) = match self {
            About::Volume(volume) => (
                "copy_unreachable",
                format!(
                    "this node has no working copy of volume {volume:?}, and no node that has a copy accepted the request ({all}); nothing was done"
                ),
                "see `ursa node list`, bring one of these nodes back or repair its links, and try again",
            ),
            About::Diff(DiffSpec { volume, .. }) => (
                "copy_unreachable",
                format!(
                    "this node has no working copy of volume {volume:?} with what is to be compared, and no node whose copy has it accepted the request ({all})"
                ),
                "see `ursa node list`, bring one of these nodes back or repair its links, and try again",
            ),
            About::Node(_) | About::Job(_) => (
                "node_unreachable",
                format!("the responsible node did not accept the request ({all}); nothing was done"),
                "see `ursa node list`, bring the node back or repair its links, and try again; or send the request to that node directly",
            ),
            About::Authority => (
                "node_unreachable",
                format!(
                    "the node that holds the cluster CA key did not accept the request ({all}); nothing was done"
                ),
                "see `ursa node list`, bring the node back or repair its links, and try again: no other node can create join tokens",
            ),
        };
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, code, detail).hint(hint)
    }

    /// The refusal if the call was forwarded, but its outcome is unknown.
    fn not_known(&self, node: Option<u16>, reason: &str) -> Refusal {
        let who = node.map_or("another node".into(), |node| format!("node {node}"));
        let (whose, hint) = match self {
            About::Volume(volume) => (
                format!(", which has volume {volume:?}"),
                "check before you repeat it: `ursa volume show`, `ursa events`".to_owned(),
            ),
            About::Diff(_) => (", whose copy has what is to be compared".to_owned(), "repeat it".to_owned()),
            About::Node(node) => (
                String::new(),
                format!(
                    "check before you repeat it: `ursa pool list --node {node}`, `ursa session list --node {node}`, `ursa volume list`, `ursa events`"
                ),
            ),
            About::Authority => (
                String::new(),
                "create another token: this one was not delivered, so it cannot be used, and it expires"
                    .to_owned(),
            ),
            About::Job(node) => (
                String::new(),
                format!(
                    "check before you repeat it: `ursa job list --node {node}`, with and without `--ended`"
                ),
            ),
        };
        let detail = format!(
            "the request was forwarded to {who}{whose}, but it is unknown whether it was carried out: {reason}"
        );
        Refusal::new(StatusCode::GATEWAY_TIMEOUT, "node_unanswered", detail).hint(hint)
    }
}
