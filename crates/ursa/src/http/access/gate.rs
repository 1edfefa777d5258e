//! The gate: what a route needs, who asks, and what is written down of it.

use std::time::Duration;

use ::node::NotRunning;
use ::node::events::Event as Happened;
use api::{ProvedBy, REQUEST_HEADER};
use axum::extract::{MatchedPath, Request, State as Extracted};
use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::task::JoinError;

use super::Caller;
use super::role::{Need, is_known, need};
use crate::http::audit::Deed;
use crate::http::dry_run;
use crate::http::events::AUDIT_UNAVAILABLE;
use crate::http::guard::Peer;
use crate::http::refusal::{Refusal, RefusalCode, was_not_looked_at};
use crate::http::state::State;
use crate::http::there;

/// When to try a change again that cannot be written down.
const AUDIT_AGAIN_SECONDS: u64 = 10;

/// Lets through who may, and writes down changes, done or refused, of who is known.
pub(in crate::http) async fn pass(
    Extracted(state): Extracted<State>,
    mut request: Request,
    next: Next,
) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let needed = route.as_deref().and_then(|route| need(request.method(), route));
    let role = match needed {
        Some(Need::Nothing) if is_safe(request.method()) => return next.run(request).await,
        Some(Need::Nothing) => return to_the_end(async move { next.run(request).await }).await,
        Some(Need::RoleUnlessLocal(_)) if state.access.metrics_without_token && is_local(&request) => {
            return next.run(request).await;
        }
        Some(Need::RoleUnlessLocal(role) | Need::Role(role)) => role,
        // The router says that there is no such method.
        None if route.as_deref().is_some_and(is_known) => return no_such_method().into_response(),
        None => return undeclared().into_response(),
    };
    let Some(peer) = request.extensions().get::<Peer>().copied() else { return undeclared().into_response() };
    let caller = match Caller::of(&state, request.headers(), &peer).await {
        Ok(caller) => caller,
        Err(refusal) => return refusal.into_response(),
    };
    let changes = !is_safe(request.method());
    // On which node, too.
    let action = format!("{} {}{}", request.method(), request.uri().path(), there::said(request.uri()));
    let address = address_of(&request);
    let refused = match () {
        () if caller.role < role => Some(role_too_low(&caller, role)),
        () if changes
            && let Err(refusal) = dry_run::check(&request, route.as_deref().unwrap_or_default()) =>
        {
            Some(refusal)
        }
        () if changes
            && caller.by == ProvedBy::Session
            && !request.headers().contains_key(REQUEST_HEADER) =>
        {
            Some(header_missing())
        }
        () => None,
    };
    let does = changes && !dry_run::is_asked(request.uri());
    let refused = match refused {
        // Who runs the node must be able to mend what is wrong.
        None if does && caller.by != ProvedBy::Local => not_written_down(&state).await,
        refused => refused,
    };
    // What was only asked for is no deed.
    let to_write = does || refused.is_some();
    let answer = async move {
        let mut response = match refused {
            Some(refusal) => refusal.into_response(),
            None => {
                request.extensions_mut().insert(caller.clone());
                state.answers.once(&caller, request, |request| next.run(request)).await
            }
        };
        // What one caller may see, no cache gives to another.
        response.headers_mut().entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
        let code = response.extensions().get::<RefusalCode>().map(|code| code.0.clone());
        if to_write && !code.as_deref().is_some_and(was_not_looked_at) {
            let (who, by, status) = (caller.name, Some(caller.by), response.status());
            state.access.audit.write(Deed { who, by, address, action, status, code }).await;
        }
        response
    };
    match to_write {
        true => to_the_end(answer).await,
        false => answer.await,
    }
}

/// Why a change is not carried out that this node's audit log would not have: nothing is done that nobody
/// finds.
pub(in crate::http) async fn not_written_down(state: &State) -> Option<Refusal> {
    let why = state.access.audit.trouble().await?;
    let happened = Happened::new(AUDIT_UNAVAILABLE, &state.name, why.clone());
    state.events.tell(None, Duration::ZERO, happened);
    Some(
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "audit_unavailable", why)
            .hint("check that directory and its disk; on the node itself, `ursa` still works for the user that runs the node")
            .retry_after(AUDIT_AGAIN_SECONDS),
    )
}

/// Goes on to the end, and writes it down, also if who asked hangs up: its connection's task is then gone.
async fn to_the_end(answer: impl Future<Output = Response> + Send + 'static) -> Response {
    match tokio::spawn(answer).await.map_err(JoinError::try_into_panic) {
        Ok(response) => response,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        Err(Err(_)) => Refusal::from(NotRunning).into_response(),
    }
}

/// RFC 9110 9.2.1. What is not known to be safe is not.
fn is_safe(method: &Method) -> bool {
    *method == Method::GET || *method == Method::HEAD
}

fn is_local(request: &Request) -> bool {
    request.extensions().get::<Peer>().is_some_and(Peer::is_local)
}

fn address_of(request: &Request) -> String {
    request.extensions().get::<Peer>().map(Peer::ip).unwrap_or_default()
}

fn role_too_low(caller: &Caller, role: api::Role) -> Refusal {
    let detail = format!("this requires the role {role}; {:?} has the role {}", caller.name, caller.role);
    Refusal::new(StatusCode::FORBIDDEN, "role_too_low", detail).hint("ask an administrator")
}

fn header_missing() -> Refusal {
    let detail = "changes authenticated by cookie require the header X-Ursa-Request: 1";
    Refusal::new(StatusCode::FORBIDDEN, "request_header_missing", detail)
}

fn no_such_method() -> Refusal {
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "method not allowed for this path")
}

fn undeclared() -> Refusal {
    let detail = "no role is declared for this call: this is a bug in Ursa, please report it";
    Refusal::new(StatusCode::FORBIDDEN, "role_undeclared", detail)
}
