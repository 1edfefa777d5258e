//! Errands: changes of volumes that this node has no copy of. A node that has one carries them out, and its answer is given.
//!
//! The node that was asked lets in who asks and writes down what was done ([`super::access`]). The one that carries out takes an errand from a node of its cluster, over their link, and from nobody
//! else. Only calls of [`CALLS`] are carried out so: none names anything of a machine. Their role is looked at again, so that a node that is out of date about a call gives no more rights than this one would.

use std::sync::{Arc, Mutex, PoisonError};

use ::node::control::{CARRY_DEADLINE, Passage};
use ::node::{Carry, Control};
use api::{Candidate, Problem, Volume};
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{FromRequestParts, MatchedPath, RawPathParams, Request, State as Extracted};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use std::rc::Rc;
use tokio::sync::{Semaphore, mpsc};
use tower::ServiceExt;

use super::access::{Caller, Need, need};
use super::deadline::REQUEST_DEADLINE;
use super::input::whole;
use super::refusal::{Refusal, RefusalCode};
use super::state::State;

/// Calls that another node carries out if this one has no copy of the volume.
const CALLS: [(&str, &str); 6] = [
    ("PATCH", "/v1/volumes/{name}"),
    ("DELETE", "/v1/volumes/{name}"),
    ("POST", "/v1/volumes/{name}/verify"),
    ("GET", "/v1/volumes/{name}/verify"),
    ("POST", "/v1/volumes/{name}/copies"),
    MAP,
];
/// Of this one the body says which volume.
const MAP: (&str, &str) = ("POST", "/v1/targets/{name}/maps");

/// Headers of an answer that are given back.
const HEADERS: [HeaderName; 2] = [CONTENT_TYPE, RETRY_AFTER];

/// Errands that are carried out at a time, and as many wait: each holds its body and its answer, some KiB.
const AT_ONCE_MAX: usize = 64;

const _: () =
    assert!(CARRY_DEADLINE.as_secs() < REQUEST_DEADLINE.as_secs(), "there is time left to tell of it");

/// What another node is to do.
#[derive(Serialize, Deserialize)]
struct Errand {
    method: String,
    /// Path and query.
    target: String,
    content_type: Option<String>,
    body: String,
    caller: Caller,
    /// The name of the node that was asked.
    asked: String,
}

/// What it came to.
#[derive(Serialize, Deserialize)]
struct Outcome {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

/// An errand on its way from core 0 to those who carry it out.
struct Given {
    errand: String,
    outcome: rt::sync::Sender<String>,
}

/// The way from core 0, where links end, to the routes.
pub struct Errands {
    sender: mpsc::Sender<Given>,
    receiver: Mutex<Option<mpsc::Receiver<Given>>>,
}

impl Default for Errands {
    fn default() -> Errands {
        let (sender, receiver) = mpsc::channel(AT_ONCE_MAX);
        Errands { sender, receiver: Mutex::new(Some(receiver)) }
    }
}

impl Errands {
    /// What the node does with what other nodes pass on.
    pub fn carry(self: &Arc<Self>) -> Carry {
        let errands = Arc::clone(self);
        Carry::new(move |errand| {
            let (outcome, ended) = rt::sync::oneshot();
            let begun = errands.sender.try_send(Given { errand, outcome });
            Box::pin(async move {
                if begun.is_err() {
                    return Err(format!(
                        "it carries out {AT_ONCE_MAX} requests for other nodes already, or stops"
                    ));
                }
                // It was begun, so this is an answer, too.
                Ok(ended.await.unwrap_or_else(|_| written(&Outcome::refused(&cut_off()))))
            })
        })
    }
}

#[cfg(test)]
impl Errands {
    /// How many wait for somebody to carry them out.
    pub(super) fn waiting(&self) -> usize {
        let receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner);
        receiver.as_ref().map_or(0, mpsc::Receiver::len)
    }
}

/// Carries out what other nodes pass on, for as long as the node runs.
pub(super) async fn carry_out_all(state: State) {
    let receiver = state.errands.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(mut errands) = receiver else { return };
    let (router, room) = (router(state), Arc::new(Semaphore::new(AT_ONCE_MAX)));
    while let Some(Given { errand, outcome }) = errands.recv().await {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let router = router.clone();
        tokio::spawn(async move {
            outcome.send(written(&carry_out(router, &errand).await));
            drop(permit);
        });
    }
}

/// The routes without their gate: who asks was let in by another node.
fn router(state: State) -> Router {
    let (api, _) = super::api().split_for_parts();
    api.route_layer(from_fn(admit)).fallback(|| async { no_errand() }).with_state(state)
}

async fn carry_out(router: Router, errand: &str) -> Outcome {
    let Ok(errand) = serde_json::from_str::<Errand>(errand) else { return Outcome::refused(&no_errand()) };
    tracing::info!(
        asked = errand.asked,
        who = errand.caller.name,
        action = format!("{} {}", errand.method, errand.target),
        "carried out for another node"
    );
    let mut request = Request::builder().method(errand.method.as_str()).uri(&errand.target);
    if let Some(content_type) = &errand.content_type {
        request = request.header(CONTENT_TYPE, content_type);
    }
    let Ok(mut request) = request.body(Body::from(errand.body)) else {
        return Outcome::refused(&no_errand());
    };
    request.extensions_mut().insert(errand.caller);
    let response = router.oneshot(request).await.unwrap_or_else(|never| match never {});
    let (parts, body) = response.into_parts();
    // What we have made ourselves is there as a whole, and text.
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

/// Lets through what may be an errand, of who may ask for it.
async fn admit(request: Request, next: Next) -> Response {
    let role = match call_of(&request) {
        Some((method, path)) => match need(request.method(), path) {
            Some(Need::Role(role)) if method == request.method().as_str() => role,
            _ => return no_errand().into_response(),
        },
        None => return no_errand().into_response(),
    };
    match request.extensions().get::<Caller>() {
        Some(caller) if caller.role >= role => next.run(request).await,
        _ => no_errand().into_response(),
    }
}

/// Which of [`CALLS`] it is.
fn call_of(request: &Request) -> Option<(&'static str, &'static str)> {
    let route = request.extensions().get::<MatchedPath>()?.as_str();
    CALLS.into_iter().find(|(method, path)| *method == request.method().as_str() && *path == route)
}

/// Passes on what this node cannot do because it has no copy of the volume.
pub(super) async fn pass_on(Extracted(state): Extracted<State>, request: Request, next: Next) -> Response {
    let Some(call) = call_of(&request) else { return next.run(request).await };
    let (mut parts, body) = request.into_parts();
    let body = match whole(body).await {
        Ok(body) => body,
        Err(refusal) => return refusal.into_response(),
    };
    let answered = match volume_of(call, &mut parts, &body).await {
        Some(volume) => at_another_node(&state, &parts, &body, volume).await,
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
    let in_path = RawPathParams::from_request_parts(parts, &()).await.ok()?;
    in_path.iter().find(|(name, _)| *name == "name").map(|(_, value)| value.to_owned())
}

/// The answer, unless it is this node that should give it.
async fn at_another_node(state: &State, parts: &Parts, body: &Bytes, volume: String) -> Option<Response> {
    // Text of another encoding is no JSON: this node says so.
    let body = std::str::from_utf8(body).ok()?.to_owned();
    let caller = parts.extensions.get::<Caller>()?.clone();
    let content_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let errand = Errand {
        method: parts.method.to_string(),
        target: parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
        content_type: content_type.map(str::to_owned),
        body,
        caller,
        asked: state.name.clone(),
    };
    let (errand, name) = (written(&errand), volume.clone());
    let pass = move |control: Rc<Control>| async move {
        Ok((control.pass_on(&name, &errand).await, control.node_names()))
    };
    let (passage, names) = match state.call(pass).await {
        Ok(passed) => passed,
        Err(refusal) => return Some(refusal.into_response()),
    };
    let candidate = |(node, text): (u16, String)| Candidate {
        node: Some(node),
        node_name: names.get(&node).cloned().unwrap_or_default(),
        pool: None,
        rule: Some("node_unreachable".into()),
        text,
    };
    match passage {
        Passage::Stays => None,
        Passage::Answered(outcome) => Some(match serde_json::from_str::<Outcome>(&outcome) {
            Ok(outcome) => outcome.into_response(&parts.method),
            Err(_) => not_known(&volume, None, "its answer cannot be read").into_response(),
        }),
        Passage::Refused(nodes) => {
            let all: Vec<String> = nodes.iter().map(|(node, why)| format!("node {node}: {why}")).collect();
            let detail = format!(
                "volume {volume:?} has no copy here that works, and no node that has one has begun it ({}); nothing was done",
                all.join("; ")
            );
            let refusal = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "copy_unreachable", detail)
                .hint("see `ursa node list`, bring one of these nodes back or mend its links, and ask again")
                .candidates(nodes.into_iter().map(candidate).collect());
            Some(refusal.into_response())
        }
        Passage::Unknown { node, reason } => Some(not_known(&volume, Some(node), &reason).into_response()),
    }
}

/// It was passed on, and nobody knows what has become of it.
fn not_known(volume: &str, node: Option<u16>, reason: &str) -> Refusal {
    let who = node.map_or("another node".into(), |node| format!("node {node}"));
    let detail = format!(
        "{who}, which has a copy of volume {volume:?}, was asked to do it, and it is not known whether it has: {reason}"
    );
    Refusal::new(StatusCode::GATEWAY_TIMEOUT, "node_unanswered", detail)
        .hint("look before you repeat it: `ursa volume show`, `ursa events`")
}

/// The node stops while it carries something out.
fn cut_off() -> Refusal {
    let detail = "the node that carries it out stops; whether it was done is not known";
    Refusal::new(StatusCode::GATEWAY_TIMEOUT, "node_unanswered", detail)
        .hint("look before you repeat it: `ursa volume show`, `ursa events`")
}

fn no_errand() -> Refusal {
    let detail = "the node with a copy of the volume does not carry this out for another one: they may be of different versions";
    Refusal::new(StatusCode::CONFLICT, "node_refused", detail)
        .hint("ask a node that has a copy of the volume")
}

fn written<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("texts and numbers can be written as JSON")
}

impl Outcome {
    fn refused(refusal: &Refusal) -> Outcome {
        let headers = vec![(CONTENT_TYPE.to_string(), Problem::MEDIA_TYPE.to_owned())];
        Outcome { status: refusal.status().as_u16(), headers, body: written(refusal.problem()) }
    }

    /// As this node answers: a volume is shown as it sees it.
    fn into_response(self, method: &Method) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::BAD_GATEWAY);
        let code = serde_json::from_str::<Problem>(&self.body).ok().filter(|_| !status.is_success());
        let shown = match *method != Method::DELETE && status.is_success() {
            true => {
                serde_json::from_str::<Volume>(&self.body).ok().map(|volume| written(&seen_from_here(volume)))
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

/// What another node has said of a volume that has no copy on this one.
fn seen_from_here(mut volume: Volume) -> Volume {
    volume.serving = false;
    volume.problem = None;
    volume.copies.iter_mut().for_each(|copy| copy.here = false);
    volume
}

#[cfg(test)]
mod tests {
    use api::{ProvedBy, Role};

    use super::*;
    use crate::http::access::needs;

    #[test]
    fn what_is_carried_out_for_others_names_nothing_of_a_machine() {
        for (method, path) in CALLS {
            let needed =
                needs().find(|(of, route, _)| (*of, *route) == (method, path)).map(|(.., need)| need);
            let is_no_administrators = matches!(needed, Some(Need::Role(role)) if role <= Role::Operator);
            assert!(is_no_administrators, "{method} {path}: {needed:?}");
        }
    }

    #[test]
    fn an_errand_is_read_as_it_was_written() {
        let caller = Caller { name: "eva".into(), role: Role::Operator, by: ProvedBy::Session };
        let errand = Errand {
            method: "PATCH".into(),
            target: "/v1/volumes/db?dry_run=true".into(),
            content_type: Some("application/json".into()),
            body: "{\"size\": 5}".into(),
            caller: caller.clone(),
            asked: "san3".into(),
        };
        let read: Errand = serde_json::from_str(&written(&errand)).unwrap();
        assert_eq!((read.target, read.body, read.caller), (errand.target, errand.body, caller));
    }

    #[tokio::test]
    async fn a_refusal_of_another_node_is_given_back_as_it_is() {
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
