//! The gate in front of all routes: checks the caller's role, and writes the audit log.

use std::time::Duration;

use ::node::NotRunning;
use ::node::events::Event as Happened;
use api::{ProvedBy, REQUEST_HEADER};
use axum::extract::{MatchedPath, Request};
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
use crate::http::node_param;
use crate::http::refusal::{Refusal, RefusalCode, was_not_looked_at};
use crate::http::state::State;

/// When to retry a change that was refused because the audit log cannot be written.
const AUDIT_AGAIN_SECONDS: u64 = 10;

/// Admits callers with the required role. Writes the changes of authenticated callers to the audit log,
/// whether done or refused.
pub(in crate::http) async fn pass(state: State, mut request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let needed = route.as_deref().and_then(|route| need(request.method(), route));
    let role = match needed {
        Some(Need::Nothing) if is_safe(request.method()) => return next.run(request).await,
        Some(Need::Nothing) => return to_the_end(async move { next.run(request).await }).await,
        Some(Need::RoleUnlessLocal(_)) if state.access.metrics_without_token && is_local(&request) => {
            return next.run(request).await;
        }
        Some(Need::RoleUnlessLocal(role) | Need::Role(role)) => role,
        // The router answers that the method is not allowed.
        None if route.as_deref().is_some_and(is_known) => return no_such_method().into_response(),
        None => return undeclared().into_response(),
    };
    let Some(peer) = request.extensions().get::<Peer>().copied() else { return undeclared().into_response() };
    let caller = match Caller::of(&state, request.headers(), &peer).await {
        Ok(caller) => caller,
        Err(refusal) => return refusal.into_response(),
    };
    let changes = !is_safe(request.method());
    // With the node that the query names.
    let action = format!("{} {}{}", request.method(), request.uri().path(), node_param::said(request.uri()));
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
        // The user who runs the node must be able to repair what is wrong.
        None if does && caller.by != ProvedBy::Local => not_written_down(&state).await,
        refused => refused,
    };
    // A dry run changes nothing, so it is not written.
    let to_write = does || refused.is_some();
    let answer = async move {
        let mut response = match refused {
            Some(refusal) => refusal.into_response(),
            None => {
                request.extensions_mut().insert(caller.clone());
                state.answers.once(&caller, request, |request| next.run(request)).await
            }
        };
        // No cache may give one caller's response to another.
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

/// The refusal of a change that this node's audit log cannot record: no change may be untraceable.
pub(in crate::http) async fn not_written_down(state: &State) -> Option<Refusal> {
    let why = state.access.audit.trouble().await?;
    let happened = Happened::new(AUDIT_UNAVAILABLE, &state.name, why.clone());
    state.events.tell(Duration::ZERO, happened);
    Some(
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "audit_unavailable", why)
            .hint("check that directory and its disk; on the node itself, `ursa` still works for the user that runs the node")
            .retry_after(AUDIT_AGAIN_SECONDS),
    )
}

/// Runs to the end and writes the audit log even if the client disconnects, which ends its connection's task.
async fn to_the_end(answer: impl Future<Output = Response> + Send + 'static) -> Response {
    match tokio::spawn(answer).await.map_err(JoinError::try_into_panic) {
        Ok(response) => response,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        Err(Err(_)) => Refusal::from(NotRunning).into_response(),
    }
}

/// Whether a method is safe (RFC 9110 9.2.1). Unknown methods are not.
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
