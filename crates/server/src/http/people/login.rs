//! Login, logout, and creation of the first user.

use std::rc::Rc;
use std::time::{Duration, Instant};

use ::node::Control;
use ::node::control::{User, UserChange};
use ::node::events::Event as Happened;
use api::{
    AccessState, LoggedIn, Login, PASSWORD_CHARACTERS_MAX, PASSWORD_CHARACTERS_MIN, PasswordChange, ProvedBy,
    Role, SetUp, WhoAmI,
};
use axum::Extension;
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use terms::clock::unix_now;

use crate::http::access::{
    Access, Caller, SESSION_AGE_MAX, TooMany, draw_number, kept_role, session_cookie, session_cookie_name,
    shown_role,
};
use crate::http::audit::Deed;
use crate::http::events::LOGIN_THROTTLED;
use crate::http::guard::Peer;
use crate::http::input::Json;
use crate::http::refusal::{Refusal, Reply, was_not_looked_at};
use crate::http::state::State;

/// A `Set-Cookie` header that sets or deletes the cookie.
type Cookie = [(HeaderName, String); 1];

const SETUP_TOKEN_INVALID: &str = "setup_token_invalid";

/// What a console needs to know before login.
#[utoipa::path(
    get, path = "/v1/access/state", tag = "access", operation_id = "access_state",
    responses((status = OK, description = "Whether the first user needs to be created", body = AccessState)),
)]
pub(in crate::http) async fn state(state: State) -> Reply<AccessState> {
    let set_up = state.access.is_set_up(&state).await?;
    Ok(axum::Json(AccessState { setup_needed: set_up == Some(false), cluster: state.name.clone() }))
}

/// Creates the first user, an administrator, and logs in.
///
/// `token` comes from the setup link, which the node prints when it starts while no user exists. It can be
/// used once, within a day.
#[utoipa::path(
    post, path = "/v1/setup", tag = "access", operation_id = "set_up",
    request_body = SetUp,
    responses(
        (status = CREATED, description = "The user, with the session cookie", body = LoggedIn),
        (status = FORBIDDEN, description = "`setup_token_invalid`"),
        (status = CONFLICT, description = "`set_up_already`"),
        (status = UNPROCESSABLE_ENTITY, description = "`name_invalid`, `field_invalid`"),
        (status = TOO_MANY_REQUESTS, description = "`login_throttled`: with Retry-After"),
        (status = SERVICE_UNAVAILABLE, description = "`login_busy`"),
    ),
)]
pub(in crate::http) async fn set_up(
    state: State,
    Extension(peer): Extension<Peer>,
    Json(SetUp { token, name, password }): Json<SetUp>,
) -> Result<(StatusCode, Cookie, axum::Json<LoggedIn>), Refusal> {
    let result = make_first(&state, &peer, &token, &name, password).await;
    // Without a valid link the caller is unauthenticated, and could flood the audit log.
    let by_stranger =
        |refusal: &Refusal| refusal.code() == SETUP_TOKEN_INVALID || was_not_looked_at(refusal.code());
    if !result.as_ref().is_err_and(by_stranger) {
        write_down(&state, &peer, "setup", &name, &result, StatusCode::CREATED).await;
    }
    let user = result?;
    let cookie = begin_session(&state.access, &peer, &user);
    Ok((StatusCode::CREATED, cookie, axum::Json(LoggedIn { name: user.name, role: Role::Admin })))
}

async fn make_first(
    state: &State,
    peer: &Peer,
    token: &str,
    name: &str,
    password: String,
) -> Result<User, Refusal> {
    // The secret has 256 random bits, so only wrong ones are slowed down: others cannot keep its owner
    // waiting.
    if !state.access.is_set_up_secret(token) {
        let address = peer.address.ip();
        state
            .access
            .slowdown()
            .begin(Instant::now(), "", address)
            .map_err(|wait| slowed(state, peer, wait))?;
        let detail =
            "the setup link is invalid: not the one that this node printed, already used, or expired";
        return Err(Refusal::new(StatusCode::FORBIDDEN, SETUP_TOKEN_INVALID, detail)
            .hint("restart the node to get a new link, or create a user on the node itself: `ursa user create NAME --role admin`"));
    }
    let user = new_user(state, name, Role::Admin, password).await?;
    let made =
        state.call(move |control| async move { control.change_user(UserChange::First(user)).await }).await?;
    state.access.end_set_up();
    Ok(made)
}

/// A user for the record, with its password hashed.
pub(super) async fn new_user(
    state: &State,
    name: &str,
    role: Role,
    password: String,
) -> Result<User, Refusal> {
    let (password, name) = (hashed(state, "password", password).await?, name.to_owned());
    Ok(User { name, role: kept_role(role), password, stamp: draw_number(), created: unix_now() })
}

pub(super) async fn hashed(state: &State, field: &'static str, password: String) -> Result<String, Refusal> {
    if !(PASSWORD_CHARACTERS_MIN..=PASSWORD_CHARACTERS_MAX).contains(&password.chars().count()) {
        let detail =
            format!("a password must have {PASSWORD_CHARACTERS_MIN} to {PASSWORD_CHARACTERS_MAX} characters");
        return Err(Refusal::invalid(field, detail));
    }
    state.access.passwords.hash(password).await.map_err(busy)
}

/// Logs in with a password and returns the session cookie.
///
/// The login session ends after 30 minutes without a request, after 12 hours, and when the user's role or
/// password changes. Changes authenticated by cookie require the header `X-Ursa-Request: 1`. After five wrong
/// passwords for an account, or twenty from an address, each further one lengthens the wait before the next
/// attempt, up to a minute.
#[utoipa::path(
    post, path = "/v1/login", tag = "access", operation_id = "log_in",
    request_body = Login,
    responses(
        (status = OK, description = "The user who logged in", body = LoggedIn),
        (status = UNAUTHORIZED, description = "`login_failed`: invalid user name or password"),
        (status = TOO_MANY_REQUESTS, description = "`login_throttled`: with Retry-After"),
        (status = SERVICE_UNAVAILABLE, description = "`login_busy`"),
    ),
)]
pub(in crate::http) async fn log_in(
    state: State,
    Extension(peer): Extension<Peer>,
    Json(Login { name, password }): Json<Login>,
) -> Result<(Cookie, axum::Json<LoggedIn>), Refusal> {
    let result = check(&state, &peer, &name, password).await;
    // Attempts that were not checked are not written to the audit log: there may be any number of them.
    if !result.as_ref().is_err_and(|refusal| was_not_looked_at(refusal.code())) {
        write_down(&state, &peer, "login", &name, &result, StatusCode::OK).await;
    }
    let user = result?;
    let cookie = begin_session(&state.access, &peer, &user);
    Ok((cookie, axum::Json(LoggedIn { role: shown_role(user.role), name: user.name })))
}

/// The user of this name, if the password is right.
async fn check(state: &State, peer: &Peer, name: &str, password: String) -> Result<User, Refusal> {
    let (access, address) = (&state.access, peer.address.ip());
    // Names that are too long for a user count as one account, and are not remembered.
    let account = if name.len() <= 63 { name } else { "" };
    access.slowdown().begin(Instant::now(), account, address).map_err(|wait| slowed(state, peer, wait))?;
    let of_name = name.to_owned();
    let user = state.call(move |control: Rc<Control>| async move { Ok(control.user(&of_name)) }).await;
    let kept = user.as_ref().ok().and_then(Option::as_ref).map(|user| user.password.clone());
    // A password longer than any that is accepted is wrong; its check takes no longer than others.
    let fits = password.chars().count() <= PASSWORD_CHARACTERS_MAX;
    let checked = access.passwords.check(if fits { password } else { String::new() }, kept).await;
    match (user, checked) {
        (Ok(Some(user)), Ok(true)) if fits => {
            access.slowdown().forgive(account, address, true);
            Ok(user)
        }
        (Ok(_), Ok(_)) => {
            let detail = "invalid user name or password";
            Err(Refusal::new(StatusCode::UNAUTHORIZED, "login_failed", detail))
        }
        (Err(refusal), _) => {
            access.slowdown().forgive(account, address, false);
            Err(refusal)
        }
        (Ok(_), Err(TooMany)) => {
            access.slowdown().forgive(account, address, false);
            Err(busy(TooMany))
        }
    }
}

fn slowed(state: &State, peer: &Peer, wait: Duration) -> Refusal {
    let seconds = wait.as_secs() + 1;
    // The text does not contain the account's name, since a stranger chose it.
    let text = format!("login from {} delayed after too many wrong passwords", peer.ip());
    state.events.tell(Duration::ZERO, Happened::new(LOGIN_THROTTLED, peer.ip(), text));
    let detail = format!("too many failed attempts: try again in {seconds} s");
    Refusal::new(StatusCode::TOO_MANY_REQUESTS, "login_throttled", detail).retry_after(seconds)
}

fn busy(_: TooMany) -> Refusal {
    let detail = "too many password checks in progress";
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "login_busy", detail).retry_after(1)
}

/// Logs out: ends the login session whose cookie comes with the request.
#[utoipa::path(
    post, path = "/v1/logout", tag = "access", operation_id = "log_out",
    responses((status = NO_CONTENT, description = "The user is logged out")),
)]
pub(in crate::http) async fn log_out(
    state: State,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> (StatusCode, Cookie) {
    if let Some(secret) = session_cookie(&headers, peer.secure)
        && let Some((who, _)) = state.access.find_session(&secret)
    {
        state.access.sessions().end(&secret);
        let (by, address) = (Some(ProvedBy::Session), peer.ip());
        let (action, status) = ("logout".into(), StatusCode::NO_CONTENT);
        state.access.audit.write(Deed { who, by, address, action, status, code: None }).await;
    }
    (StatusCode::NO_CONTENT, cookie(&peer, "", 0))
}

/// Shows the authenticated caller and its role.
#[utoipa::path(
    get, path = "/v1/whoami", tag = "access", operation_id = "who_am_i",
    responses((status = OK, description = "The caller", body = WhoAmI)),
)]
pub(in crate::http) async fn who_am_i(Extension(caller): Extension<Caller>) -> axum::Json<WhoAmI> {
    axum::Json(WhoAmI { name: caller.name, role: caller.role, by: caller.by })
}

/// Changes the password of the logged-in user. The user is logged out everywhere else; a new session cookie
/// is returned.
#[utoipa::path(
    put, path = "/v1/password", tag = "access", operation_id = "change_password",
    request_body = PasswordChange,
    responses(
        (status = NO_CONTENT, description = "Done"),
        (status = UNAUTHORIZED, description = "`login_failed`: the old password is wrong"),
        (status = CONFLICT, description = "`no_user`: a token or this machine's local token has no password"),
        (status = TOO_MANY_REQUESTS, description = "`login_throttled`: with Retry-After"),
    ),
)]
pub(in crate::http) async fn change_password(
    state: State,
    Extension(peer): Extension<Peer>,
    Extension(caller): Extension<Caller>,
    Json(PasswordChange { old, new }): Json<PasswordChange>,
) -> Result<(StatusCode, Cookie), Refusal> {
    if caller.by != ProvedBy::Session {
        let detail = "password change requires a password login";
        return Err(Refusal::new(StatusCode::CONFLICT, "no_user", detail)
            .hint("an administrator can set any user's password: `ursa user set NAME --password`"));
    }
    check(&state, &peer, &caller.name, old).await?;
    let password = Some(hashed(&state, "new", new).await?);
    let change = UserChange::Set { name: caller.name, new_name: None, role: None, password };
    let set = move |control: Rc<Control>| async move { control.change_user(change).await };
    let user = state.call(set).await?;
    Ok((StatusCode::NO_CONTENT, begin_session(&state.access, &peer, &user)))
}

fn begin_session(access: &Access, peer: &Peer, user: &User) -> Cookie {
    let secret = access.sessions().begin(Instant::now(), &user.name, user.stamp);
    cookie(peer, &secret, SESSION_AGE_MAX.as_secs())
}

fn cookie(peer: &Peer, secret: &str, age_max: u64) -> Cookie {
    let secure = if peer.secure { "; Secure" } else { "" };
    let name = session_cookie_name(peer.secure);
    let cookie = format!("{name}={secret}; Path=/; Max-Age={age_max}; HttpOnly; SameSite=Strict{secure}");
    [(SET_COOKIE, cookie)]
}

async fn write_down(
    state: &State,
    peer: &Peer,
    action: &str,
    name: &str,
    result: &Result<User, Refusal>,
    done: StatusCode,
) {
    let (status, code) = match result {
        Ok(_) => (done, None),
        Err(refusal) => (refusal.status(), Some(refusal.code().to_owned())),
    };
    let by = result.is_ok().then_some(ProvedBy::Session);
    let (who, action) = (name.to_owned(), action.to_owned());
    state.access.audit.write(Deed { who, by, address: peer.ip(), action, status, code }).await;
}
