//! Who the caller of a request is.

use std::rc::Rc;
use std::time::Instant;

use ::node::Control;
use api::{ProvedBy, Role, SECURE_SESSION_COOKIE, SESSION_COOKIE};
use axum::http::header::{AUTHORIZATION, COOKIE};
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use terms::clock::unix_now;
use terms::same_names::same_names;

use super::{Access, Digested};
use crate::http::guard::Peer;
use crate::http::refusal::Refusal;
use crate::http::state::State;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::http) struct Caller {
    /// The user's or the token's name.
    pub(in crate::http) name: String,
    pub(in crate::http) role: Role,
    pub(in crate::http) by: ProvedBy,
}

/// The name of a caller with the local token.
const LOCAL: &str = "local";

/// The prefix of tokens, which makes them recognizable where they leak.
const TOKEN_PREFIX: &str = "ursa-token-";

/// The text of a token: its ID, by which it is found, and its secret.
pub(in crate::http) fn token_text(id: &str, secret: &str) -> String {
    format!("{TOKEN_PREFIX}{id}-{secret}")
}

fn token_parts(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix(TOKEN_PREFIX)?.split_once('-')
}

impl Caller {
    /// The caller of a request with these headers, from this machine or another. If the token is wrong, a
    /// valid cookie does not help.
    ///
    /// # Errors
    /// 401: nothing is proved.
    pub(super) async fn of(state: &State, headers: &HeaderMap, peer: &Peer) -> Result<Caller, Refusal> {
        if headers.contains_key(AUTHORIZATION) {
            let token = bearer(headers).ok_or_else(unknown_token)?;
            return by_token(state, token, peer.is_local()).await;
        }
        match session_cookie(headers, peer.secure) {
            Some(secret) => by_session(state, &secret, Use::Counts).await,
            None => Err(not_logged_in("login required: log in, or send a token with Authorization: Bearer")),
        }
    }

    /// The caller as of now, for a response that is still being sent. This does not count as use of a
    /// session.
    ///
    /// # Errors
    /// The token or the session is no longer valid.
    pub(in crate::http) async fn now(
        state: &State,
        headers: &HeaderMap,
        peer: &Peer,
    ) -> Result<Caller, Refusal> {
        match session_cookie(headers, peer.secure).filter(|_| !headers.contains_key(AUTHORIZATION)) {
            Some(secret) => by_session(state, &secret, Use::DoesNot).await,
            None => Caller::of(state, headers, peer).await,
        }
    }
}

async fn by_token(state: &State, token: String, is_local: bool) -> Result<Caller, Refusal> {
    // From another machine the local token proves nothing: its sender was not meant to read it.
    if is_local && state.access.local.is(&token) {
        return Ok(Caller { name: LOCAL.into(), role: Role::Admin, by: ProvedBy::Local });
    }
    let (id, secret) = token_parts(&token).ok_or_else(unknown_token)?;
    if !state.access.unauthenticated.may_have(state, id, secret).await? {
        return Err(unknown_token());
    }
    // It may have been deleted since the last lookup.
    let id = id.to_owned();
    let kept = state.call(move |control: Rc<Control>| async move { Ok(control.api_token(&id)) }).await?;
    let kept = kept.filter(|kept| Digested::parse(&kept.digest).is_some_and(|digest| digest.is_of(secret)));
    let kept = kept.ok_or_else(unknown_token)?;
    if kept.expires.is_some_and(|expires| expires <= unix_now()) {
        return Err(Refusal::new(StatusCode::UNAUTHORIZED, "token_expired", "the token has expired")
            .hint("ask an administrator for a new one: `ursa token create`"));
    }
    Ok(Caller { name: kept.name, role: shown_role(kept.role), by: ProvedBy::Token })
}

/// Whether a lookup counts as use of the session.
#[derive(Clone, Copy)]
enum Use {
    Counts,
    DoesNot,
}

async fn by_session(state: &State, secret: &str, counts: Use) -> Result<Caller, Refusal> {
    let over = || not_logged_in("you are no longer logged in: log in again");
    let found = match counts {
        Use::Counts => state.access.find_session(secret),
        Use::DoesNot => state.access.sessions().look_at(Instant::now(), secret),
    };
    let (name, stamp) = found.ok_or_else(over)?;
    let user = state.call(move |control: Rc<Control>| async move { Ok(control.user(&name)) }).await?;
    match user.filter(|user| user.stamp == stamp) {
        Some(user) => Ok(Caller { name: user.name, role: shown_role(user.role), by: ProvedBy::Session }),
        None => {
            // The user was deleted, or has another role or password now.
            state.access.sessions().end(secret);
            Err(over())
        }
    }
}

impl Access {
    /// The user of a session, and the user's stamp when it began.
    pub(in crate::http) fn find_session(&self, secret: &str) -> Option<(String, u64)> {
        self.sessions().find(Instant::now(), secret)
    }
}

fn unknown_token() -> Refusal {
    Refusal::new(StatusCode::UNAUTHORIZED, "token_invalid", "invalid token").hint(
        "it was deleted, or is incomplete; this machine's local token changes with each start of the node",
    )
}

fn not_logged_in(detail: &str) -> Refusal {
    Refusal::new(StatusCode::UNAUTHORIZED, "login_needed", detail)
        .hint("on the node itself, the user that runs the node needs no login for `ursa`; elsewhere, use a token (URSA_TOKEN)")
}

/// The token of the only `Authorization` header, if it is `Bearer` (RFC 6750 2.1).
fn bearer(headers: &HeaderMap) -> Option<String> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (value, None) = (values.next()?.to_str().ok()?, values.next()) else { return None };
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
}

/// The secret in the session cookie. If there are several cookies of that name, none counts: another host of
/// the same site may have set one.
pub(in crate::http) fn session_cookie(headers: &HeaderMap, secure: bool) -> Option<String> {
    let wanted = session_cookie_name(secure);
    let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut values = pairs.filter(|(name, _)| *name == wanted).map(|(_, value)| value);
    match (values.next(), values.next()) {
        (Some(value), None) if !value.is_empty() => Some(value.to_owned()),
        _ => None,
    }
}

/// The name of the session cookie, with or without TLS.
pub(in crate::http) fn session_cookie_name(secure: bool) -> &'static str {
    if secure { SECURE_SESSION_COOKIE } else { SESSION_COOKIE }
}

same_names! {
    pub(in crate::http) fn shown_role(::node::control::Role) -> Role { Viewer, Operator, Admin }
    pub(in crate::http) fn kept_role(Role) -> ::node::control::Role { Viewer, Operator, Admin }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(headers: &[(&'static str, &str)]) -> HeaderMap {
        headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_cookie_is_found_among_others_and_counts_once() {
        let found = |cookies: &[&str]| {
            let cookies: Vec<_> = cookies.iter().map(|cookie| ("cookie", *cookie)).collect();
            session_cookie(&headers(&cookies), false)
        };
        assert_eq!(found(&["a=b; ursa_session=x; c"]), Some("x".into()));
        assert_eq!(found(&["a=b", "ursa_session=x"]), Some("x".into()));
        let by_tls = headers(&[("cookie", "ursa_session=x; __Host-ursa_session=y")]);
        assert_eq!(
            session_cookie(&by_tls, true),
            Some("y".into()),
            "without the prefix anybody may have set it"
        );
        for none in [&["ursa_session="][..], &["ursa_session=x; ursa_session=y"], &["Xursa_session=x"], &[]] {
            assert_eq!(found(none), None, "{none:?}");
        }
    }

    #[test]
    fn a_token_is_a_bearers_and_alone() {
        let found = |values: &[&str]| {
            let values: Vec<_> = values.iter().map(|value| ("authorization", *value)).collect();
            bearer(&headers(&values))
        };
        assert_eq!(found(&["Bearer x"]), Some("x".into()));
        assert_eq!(found(&["bearer x"]), Some("x".into()));
        for none in [&["Basic x"][..], &["x"], &["Bearer x", "Bearer y"], &[]] {
            assert_eq!(found(none), None, "{none:?}");
        }
        assert_eq!(token_parts(&token_text("a1", "b2")), Some(("a1", "b2")));
        assert_eq!(token_parts("ursa-token-a1"), None);
    }
}
