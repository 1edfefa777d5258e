//! Calls that another node executes. They concern a volume of which this node has no copy, snapshots that its
//! copy does not have, or another node's pools, sessions or jobs. A node that has the volume, with or without
//! other copies, or the snapshots, or the node that the call names executes the call, and the queried node
//! passes its response on.
//!
//! The queried node checks the caller's role and writes its audit log ([`super::access`]). The executing node
//! accepts forwarded calls only from nodes of its cluster, over their link, and only calls of [`OF_VOLUMES`],
//! [`OF_NODES`], [`OF_AUTHORITY`] and [`OF_JOBS`], and [`DIFF`]. It checks the role again, so that a node
//! whose table of calls is out of date grants no more rights than this one would.
//!
//! Calls of [`OF_NODES`] name disks and files of the executing node's machine, and some of them need an
//! administrator. The executing node relies on the queried one for the identity of the caller. This grants
//! nothing new: users and their roles are in the record of the cluster, which every node can write, so an
//! attacker who controls one node can create an administrator there and log in to any API within reach. The
//! executing node also writes changes of its machine and its volumes to its own audit log, where its
//! administrator finds them. Nor does a join token grant more: the record lists the members of the cluster,
//! and every node can write it. What this costs, and why: `docs/why/access.md`.
//!
//! This module defines forwarded calls and executes them; [`outgoing`] forwards them.

mod outgoing;

use std::sync::{Arc, Mutex, PoisonError};

use ::node::control::FORWARD_DEADLINE;
use ::node::copies::Refused;
use api::{Problem, Volume};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{MatchedPath, Request};
use axum::http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, mpsc};
use tower::ServiceExt;

pub(super) use self::outgoing::forward;
use super::access::{Caller, Need, need, not_written_down};
use super::audit::Deed;
use super::deadline::REQUEST_DEADLINE;
use super::refusal::{Refusal, RefusalCode};
use super::state::State;
use super::{dry_run, node_param, volumes};

/// Calls that another node executes if this one does not have the volume.
const OF_VOLUMES: [(&str, &str); 10] = [
    ("PATCH", "/v1/volumes/{name}"),
    ("DELETE", "/v1/volumes/{name}"),
    ("GET", "/v1/volumes/{name}/counters"),
    ("POST", "/v1/volumes/{name}/verify"),
    ("GET", "/v1/volumes/{name}/verify"),
    ("POST", "/v1/volumes/{name}/scrub"),
    ("GET", "/v1/volumes/{name}/scrub"),
    ("POST", "/v1/volumes/{name}/convert"),
    ("POST", "/v1/volumes/{name}/copies"),
    MAP,
];
/// Those of them whose query may name the node.
const AT_NODES: [(&str, &str); 5] = [
    ("GET", "/v1/volumes/{name}/counters"),
    ("POST", "/v1/volumes/{name}/verify"),
    ("GET", "/v1/volumes/{name}/verify"),
    ("POST", "/v1/volumes/{name}/scrub"),
    ("GET", "/v1/volumes/{name}/scrub"),
];
/// The call whose body names the volume.
const MAP: (&str, &str) = ("POST", "/v1/targets/{name}/maps");

/// The call that compares snapshots of a volume: a node whose copy has them executes it.
const DIFF: (&str, &str) = ("GET", "/v1/snapshots/{snapshot}/diff");

/// Calls about objects of one node: the node that the query names executes them ([`node_param::OfNode`]).
const OF_NODES: [(&str, &str); 15] = [
    ("DELETE", "/v1/sessions/{tsih}"),
    ("GET", "/v1/disks"),
    ("POST", "/v1/pools"),
    ("POST", "/v1/pools/import"),
    ("GET", "/v1/pools/{name}"),
    ("GET", "/v1/pools/{name}/remains"),
    ("POST", "/v1/pools/{name}/disks"),
    ("POST", "/v1/pools/{name}/remove-disk"),
    ("POST", "/v1/pools/{name}/grow"),
    ("POST", "/v1/pools/{name}/export"),
    ("POST", "/v1/pools/{name}/forget"),
    ("POST", "/v1/pools/{name}/reopen"),
    ("POST", "/v1/pools/{name}/accept-older"),
    ("POST", "/v1/pools/{name}/acknowledge"),
    ("POST", "/v1/pools/{name}/scrub"),
];

/// Calls that only a node with the cluster's authority can execute. Any such node may.
const OF_AUTHORITY: [(&str, &str); 1] = [("POST", "/v1/cluster/tokens")];

/// Calls about a job. If the job belongs to a node, the node in its ID executes them ([`super::jobs::id`]).
const OF_JOBS: [(&str, &str); 4] = [
    ("GET", "/v1/jobs/{id}"),
    ("DELETE", "/v1/jobs/{id}"),
    ("POST", "/v1/jobs/{id}/pause"),
    ("POST", "/v1/jobs/{id}/resume"),
];

/// Headers of the response that are passed on.
const HEADERS: [HeaderName; 3] = [CONTENT_TYPE, RETRY_AFTER, LOCATION];

/// The number of forwarded calls that are executed concurrently, and of those that may wait. Each takes some
/// KiB for its body and response.
const AT_ONCE_MAX: usize = 64;

const _: () =
    assert!(FORWARD_DEADLINE.as_secs() < REQUEST_DEADLINE.as_secs(), "there is time left to tell of it");

/// A call for another node to execute.
#[derive(Serialize, Deserialize)]
pub(super) struct ForwardedCall {
    method: String,
    /// Path and query.
    target: String,
    content_type: Option<String>,
    body: String,
    caller: Caller,
    /// The name of the queried node.
    asked: String,
}

/// The response to a forwarded call.
#[derive(Serialize, Deserialize)]
struct Outcome {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

/// The name of the queried node, attached to the request of a forwarded call.
#[derive(Clone)]
struct AskedAt(String);

/// A forwarded call on its way from core 0 to the task that executes it.
struct QueuedRequest {
    forwarded: ForwardedCall,
    outcome: rt::sync::Sender<String>,
}

/// The channel from core 0, where links end, to the routes.
pub struct Forwarding {
    sender: mpsc::Sender<QueuedRequest>,
    receiver: Mutex<Option<mpsc::Receiver<QueuedRequest>>>,
}

impl Default for Forwarding {
    fn default() -> Forwarding {
        let (sender, receiver) = mpsc::channel(AT_ONCE_MAX);
        Forwarding { sender, receiver: Mutex::new(Some(receiver)) }
    }
}

impl Forwarding {
    /// Executes a call that another node forwards; returns its [`Outcome`] as text. Runs on core 0.
    ///
    /// # Errors
    /// [`Refused::TooManyRequests`].
    pub(super) async fn execute(&self, forwarded: ForwardedCall) -> Result<String, Refused> {
        let (outcome, ended) = rt::sync::oneshot();
        if self.sender.try_send(QueuedRequest { forwarded, outcome }).is_err() {
            return Err(Refused::TooManyRequests { most: AT_ONCE_MAX });
        }
        // The forwarded call has begun, so the refusal counts as its response.
        Ok(ended.await.unwrap_or_else(|_| written(&Outcome::refused(&cut_off()))))
    }
}

#[cfg(test)]
impl Forwarding {
    /// Executes a forwarded call of a caller with this role: status and body of the response.
    pub(super) async fn executed(state: State, call: (&str, &str), role: api::Role) -> (u16, String) {
        let forwarded = ForwardedCall {
            method: call.0.into(),
            target: call.1.into(),
            content_type: None,
            body: String::new(),
            caller: Caller { name: "eva".into(), role, by: api::ProvedBy::Session },
            asked: "san3".into(),
        };
        let outcome = carry_out(router(state), forwarded).await;
        (outcome.status, outcome.body)
    }

    /// The number of forwarded calls that wait.
    pub(super) fn waiting(&self) -> usize {
        let receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner);
        receiver.as_ref().map_or(0, mpsc::Receiver::len)
    }
}

/// Executes forwarded calls of other nodes for as long as the node runs.
pub(super) async fn carry_out_all(state: State) {
    let receiver = state.forwarding.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(mut forwarding) = receiver else { return };
    let (router, room) = (router(state), Arc::new(Semaphore::new(AT_ONCE_MAX)));
    while let Some(QueuedRequest { forwarded, outcome }) = forwarding.recv().await {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let router = router.clone();
        tokio::spawn(async move {
            outcome.send(written(&carry_out(router, forwarded).await));
            drop(permit);
        });
    }
}

/// The routes without the gate: the queried node has admitted the caller.
fn router(state: State) -> Router {
    let (api, _) = super::api().split_for_parts();
    api.route_layer(from_fn_with_state(state.clone(), admit))
        .fallback(|| async { no_forwarded_call() })
        .with_state(state)
}

async fn carry_out(router: Router, forwarded: ForwardedCall) -> Outcome {
    let (asked, who) = (&forwarded.asked, &forwarded.caller.name);
    let action = format!("{} {}", forwarded.method, forwarded.target);
    match forwarded.method.as_str() {
        // An open page of the console sends a request every few seconds.
        "GET" => tracing::debug!(asked, who, action, "carried out for another node"),
        _ => tracing::info!(asked, who, action, "carried out for another node"),
    }
    let mut request = Request::builder().method(forwarded.method.as_str()).uri(&forwarded.target);
    if let Some(content_type) = &forwarded.content_type {
        request = request.header(CONTENT_TYPE, content_type);
    }
    let Ok(mut request) = request.body(Body::from(forwarded.body)) else {
        return Outcome::refused(&no_forwarded_call());
    };
    request.extensions_mut().insert(forwarded.caller);
    request.extensions_mut().insert(AskedAt(forwarded.asked));
    let response = router.oneshot(request).await.unwrap_or_else(|never| match never {});
    let (parts, body) = response.into_parts();
    // The body is complete, and is text: this node has created it.
    let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let header = |name: &HeaderName| {
        let value = parts.headers.get(name)?.to_str().ok()?;
        Some((name.to_string(), value.to_owned()))
    };
    Outcome {
        status: parts.status.as_u16(),
        headers: HEADERS.iter().filter_map(header).collect(),
        body: String::from_utf8_lossy(&body).into_owned(),
    }
}

/// Admits calls that may be forwarded, from callers with the required role.
async fn admit(state: State, request: Request, next: Next) -> Response {
    let Some(call) = call_of(&request) else { return no_forwarded_call().into_response() };
    let Some(Need::Role(role)) = need(request.method(), call.1) else {
        return no_forwarded_call().into_response();
    };
    let caller = request.extensions().get::<Caller>().filter(|caller| caller.role >= role).cloned();
    let asked = request.extensions().get::<AskedAt>().cloned();
    let (Some(caller), Some(AskedAt(asked))) = (caller, asked) else {
        return no_forwarded_call().into_response();
    };
    let does = call.0 != "GET" && !dry_run::is_asked(request.uri());
    // Even for local tokens: whoever runs the queried node does not necessarily run this one.
    if does && let Some(refusal) = not_written_down(&state).await {
        return refusal.into_response();
    }
    let action = format!("{} {}{}", call.0, request.uri().path(), node_param::said(request.uri()));
    let response = next.run(request).await;
    if does {
        let code = response.extensions().get::<RefusalCode>().map(|code| code.0.clone());
        let (who, by, status) = (caller.name, Some(caller.by), response.status());
        let address = format!("through node {asked}");
        state.access.audit.write(Deed { who, by, address, action, status, code }).await;
    }
    response
}

/// The entry of [`OF_VOLUMES`], [`OF_NODES`], [`OF_AUTHORITY`] or [`OF_JOBS`] for a request, or [`DIFF`].
fn call_of(request: &Request) -> Option<(&'static str, &'static str)> {
    let route = request.extensions().get::<MatchedPath>()?.as_str();
    // A HEAD is executed as a GET whose body is not sent.
    let asked = if *request.method() == Method::HEAD { "GET" } else { request.method().as_str() };
    let mut calls = OF_VOLUMES.into_iter().chain(OF_NODES).chain(OF_AUTHORITY).chain(OF_JOBS).chain([DIFF]);
    calls.find(|(method, path)| *method == asked && *path == route)
}

/// The node stops while it executes a forwarded call.
fn cut_off() -> Refusal {
    let detail =
        "the node that carries out the request is stopping; it is unknown whether the request was completed";
    Refusal::new(StatusCode::GATEWAY_TIMEOUT, "node_unanswered", detail)
        .hint("check before you repeat it: `ursa volume show`, `ursa pool list`, `ursa events`")
}

fn no_forwarded_call() -> Refusal {
    let detail =
        "the responsible node does not accept the forwarded request: the nodes may run different versions";
    Refusal::new(StatusCode::CONFLICT, "node_refused", detail).hint("send the request to that node directly")
}

fn written<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("texts and numbers can be written as JSON")
}

impl Outcome {
    fn refused(refusal: &Refusal) -> Outcome {
        let headers = vec![(CONTENT_TYPE.to_string(), Problem::MEDIA_TYPE.to_owned())];
        Outcome { status: refusal.status().as_u16(), headers, body: written(refusal.problem()) }
    }

    /// The response of the queried node: a volume is shown as that node sees it.
    fn into_response(self, method: &Method) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::BAD_GATEWAY);
        let code = serde_json::from_str::<Problem>(&self.body).ok().filter(|_| !status.is_success());
        let shown = match *method != Method::DELETE && status.is_success() {
            true => {
                let volume = serde_json::from_str::<Volume>(&self.body).ok();
                volume.map(|volume| written(&volumes::seen_from_here(volume)))
            }
            false => None,
        };
        let mut response = (status, shown.unwrap_or(self.body)).into_response();
        response.headers_mut().remove(CONTENT_TYPE);
        for (name, value) in self.headers {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                response.headers_mut().insert(name, value);
            }
        }
        if let Some(problem) = code {
            response.extensions_mut().insert(RefusalCode(problem.code));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use api::{ProvedBy, Role};

    use super::*;
    use crate::http::access::needs;

    #[test]
    fn calls_on_machine_objects_run_on_the_named_node() {
        let document = serde_json::to_value(crate::http::api().into_openapi()).unwrap();
        for (method, path) in OF_NODES.into_iter().chain(AT_NODES) {
            let call = &document["paths"][path][method.to_lowercase()];
            let parameters = call["parameters"].as_array().unwrap().iter();
            let by_node = parameters.filter(|one| one["name"] == "node" && one["in"] == "query").count();
            assert_eq!(by_node, 1, "{method} {path}");
        }
    }

    #[test]
    fn calls_without_a_node_parameter_name_no_machine_objects() {
        for (method, path) in OF_VOLUMES.into_iter().chain(OF_JOBS).chain([DIFF]) {
            let needed =
                needs().find(|(of, route, _)| (*of, *route) == (method, path)).map(|(.., need)| need);
            let is_no_administrators = matches!(needed, Some(Need::Role(role)) if role <= Role::Operator);
            assert!(is_no_administrators, "{method} {path}: {needed:?}");
        }
    }

    #[test]
    fn a_forwarded_call_is_decoded_as_it_was_encoded() {
        let caller = Caller { name: "eva".into(), role: Role::Operator, by: ProvedBy::Session };
        let forwarded = ForwardedCall {
            method: "PATCH".into(),
            target: "/v1/volumes/db?dry_run=true".into(),
            content_type: Some("application/json".into()),
            body: "{\"size\": 5}".into(),
            caller: caller.clone(),
            asked: "san3".into(),
        };
        let read: ForwardedCall = serde_json::from_str(&written(&forwarded)).unwrap();
        assert_eq!((read.target, read.body, read.caller), (forwarded.target, forwarded.body, caller));
    }

    #[tokio::test]
    async fn a_refusal_of_another_node_is_passed_on_unchanged() {
        let refusal = Refusal::new(StatusCode::CONFLICT, "volume_mapped", "it is LUN 0").hint("take it away");
        let response = Outcome::refused(&refusal).into_response(&Method::DELETE);
        assert_eq!(
            (response.status(), &response.headers()[CONTENT_TYPE]),
            (StatusCode::CONFLICT, &HeaderValue::from_static(Problem::MEDIA_TYPE))
        );
        assert_eq!(response.extensions().get::<RefusalCode>().unwrap().0, "volume_mapped");
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        assert_eq!(serde_json::from_slice::<Problem>(&body).unwrap(), *refusal.problem());
    }
}
