//! Access control: users, sessions, tokens, and attacks on them.

use std::time::{Duration, Instant};

use api::{REQUEST_HEADER, SESSION_COOKIE};
use axum::body::Body;
use axum::http::Request;
use axum::http::header::{COOKIE, SET_COOKIE};
use serde_json::{Value, json};

use super::rig::{Answer, Rig, Unauthenticated, with_json};
use crate::http::access::{Need, needs};
use crate::http::guard::Peer;

/// Until a token that is valid for one second has expired, by a clock of whole seconds, on a busy machine.
const EXPIRED_LIMIT: Duration = Duration::from_secs(60);

const PASSWORD: &str = "correct horse battery";

/// How the caller proves its identity.
#[derive(Clone, Debug)]
enum Proof {
    Nothing,
    Token(String),
    Cookie(String),
}

fn send(rig: &Rig, proof: &Proof, method: &str, path: &str, body: Option<Value>) -> Answer {
    let mut request = match body {
        Some(body) => with_json(method, path, &body),
        None => Request::builder().method(method).uri(path).body(Body::empty()).unwrap(),
    };
    request.extensions_mut().insert(Unauthenticated);
    let headers = request.headers_mut();
    match proof {
        Proof::Nothing => {}
        Proof::Token(token) => {
            drop(headers.insert("authorization", format!("Bearer {token}").parse().unwrap()))
        }
        Proof::Cookie(cookie) => {
            headers.insert(COOKIE, cookie.parse().unwrap());
            headers.insert(REQUEST_HEADER, "1".parse().unwrap());
        }
    }
    rig.send(request)
}

fn user(rig: &Rig, name: &str, role: &str) {
    rig.post("/v1/users", json!({"name": name, "role": role, "password": PASSWORD})).json(201);
}

/// A token and its ID.
fn token(rig: &Rig, role: &str) -> (Proof, String) {
    let made = rig.post("/v1/tokens", json!({"name": "t", "role": role})).json(201);
    (Proof::Token(made["secret"].as_str().unwrap().into()), made["id"].as_str().unwrap().into())
}

fn try_login(rig: &Rig, name: &str, password: &str) -> Answer {
    send(rig, &Proof::Nothing, "POST", "/v1/login", Some(json!({"name": name, "password": password})))
}

fn cookie_of(answer: &Answer) -> Proof {
    let cookie = answer.headers[SET_COOKIE].to_str().unwrap();
    Proof::Cookie(cookie.split(';').next().unwrap().to_owned())
}

fn login(rig: &Rig, name: &str) -> Proof {
    let answer = try_login(rig, name, PASSWORD);
    assert_eq!(answer.json(200)["name"], name);
    cookie_of(&answer)
}

fn whoami(rig: &Rig, proof: &Proof) -> Answer {
    send(rig, proof, "GET", "/v1/whoami", None)
}

/// A path that this route matches.
fn path_of(route: &str) -> String {
    let number =
        |route: &str| route.contains("{id}") && route.contains("/nodes/") || route.contains("{tsih}");
    let id = if number(route) { "99" } else { "nobody" };
    route
        .replace("{name}", "nobody")
        .replace("{node}", "99")
        .replace("{lun}", "99")
        .replace("{id}", id)
        .replace("{tsih}", "99")
}

#[test]
fn every_call_is_refused_without_the_role_and_without_login() {
    let rig = Rig::new();
    let (viewer, _) = token(&rig, "viewer");
    let (operator, _) = token(&rig, "operator");
    let outsider = Peer { address: ([10, 0, 0, 1], 9).into(), secure: true };
    let mut counted = (0, 0);
    for (method, route, need) in needs() {
        let path = path_of(route);
        // A body with which the call fails if it is admitted.
        let body = (method != "GET" && method != "DELETE").then(|| json!({"nothing": true}));
        let ask = |proof: &Proof| send(&rig, proof, method, &path, body.clone());
        let role = match need {
            Need::Nothing => continue,
            Need::RoleUnlessLocal(role) | Need::Role(role) => role,
        };
        if route != "/metrics" {
            ask(&Proof::Nothing).refused(401, "login_needed");
            ask(&Proof::Token("ursa-token-0-0".into())).refused(401, "token_invalid");
        }
        let refused = |answer: &Answer| [401, 403].contains(&answer.status);
        for (proof, own) in [(&viewer, api::Role::Viewer), (&operator, api::Role::Operator)] {
            let answer = ask(proof);
            if own < role {
                answer.refused(403, "role_too_low");
                counted.0 += 1;
            } else {
                assert!(!refused(&answer), "{method} {path} as {own}: {}", answer.text);
                counted.1 += 1;
            }
        }
        // From another machine, nothing is admitted without a token or session.
        let mut request =
            Request::builder().method(method).uri(&path).extension(outsider).extension(Unauthenticated);
        request = request.header("host", "san1.example");
        rig.send(request.body(Body::empty()).unwrap()).refused(401, "login_needed");
        let local = format!("Bearer {}", rig.state.access.local_token());
        let request = Request::builder().method(method).uri(&path).extension(outsider);
        let request = request.header("host", "san1.example").header("authorization", local);
        rig.send(request.body(Body::empty()).unwrap()).refused(401, "token_invalid");
    }
    assert!(counted.0 > 40 && counted.1 > 40, "{counted:?}");
    assert!(rig.names("/v1/volumes").is_empty());
}

#[test]
fn the_link_creates_the_first_user_once() {
    let rig = Rig::new();
    assert_eq!(send(&rig, &Proof::Nothing, "GET", "/v1/access/state", None).json(200)["setup_needed"], true);
    let set_up = |token: &str, name: &str| {
        let body = json!({"token": token, "name": name, "password": PASSWORD});
        send(&rig, &Proof::Nothing, "POST", "/v1/setup", Some(body))
    };
    set_up("", "alice").refused(403, "setup_token_invalid");
    let old = rig.state.access.offer_set_up();
    let link = rig.state.access.offer_set_up();
    set_up(&old, "alice").refused(403, "setup_token_invalid");
    set_up(&link, "../alice").refused(422, "name_invalid");
    let short = json!({"token": link, "name": "alice", "password": "short"});
    let problem = send(&rig, &Proof::Nothing, "POST", "/v1/setup", Some(short)).refused(422, "field_invalid");
    assert_eq!(problem["field"], "password");

    let answer = set_up(&link, "alice");
    assert_eq!(answer.json(201), json!({"name": "alice", "role": "admin"}));
    let alice = cookie_of(&answer);
    assert_eq!(whoami(&rig, &alice).json(200), json!({"name": "alice", "role": "admin", "by": "session"}));
    set_up(&link, "mallory").refused(403, "setup_token_invalid");
    // Nor with a link drawn earlier, should there be one.
    let again = rig.state.access.offer_set_up();
    set_up(&again, "mallory").refused(409, "set_up_already");
    assert_eq!(rig.names("/v1/users"), ["alice"]);
    assert_eq!(send(&rig, &Proof::Nothing, "GET", "/v1/access/state", None).json(200)["setup_needed"], false);
}

#[test]
fn a_user_logs_in_and_out() {
    let rig = Rig::new();
    user(&rig, "root", "admin");
    user(&rig, "alice", "operator");
    let answer = try_login(&rig, "alice", PASSWORD);
    assert_eq!(answer.json(200), json!({"name": "alice", "role": "operator"}));
    let cookie = answer.headers[SET_COOKIE].to_str().unwrap().to_owned();
    for part in ["Path=/", "HttpOnly", "SameSite=Strict", "Max-Age=43200"] {
        assert!(cookie.split("; ").any(|found| found == part), "{cookie}");
    }
    assert!(!cookie.contains("Secure"), "without TLS the browser would not keep it: {cookie}");
    let by_tls = Peer { address: ([10, 0, 0, 1], 9).into(), secure: true };
    let mut request = with_json("POST", "/v1/login", &json!({"name": "alice", "password": PASSWORD}));
    request.extensions_mut().insert(by_tls);
    let cookie = rig.send(request).headers[SET_COOKIE].to_str().unwrap().to_owned();
    assert!(cookie.ends_with("; Secure"), "{cookie}");

    let alice = cookie_of(&answer);
    assert_eq!(whoami(&rig, &alice).json(200)["by"], "session");
    let logged_out = send(&rig, &alice, "POST", "/v1/logout", None);
    logged_out.empty(204);
    assert!(logged_out.headers[SET_COOKIE].to_str().unwrap().contains("Max-Age=0"));
    whoami(&rig, &alice).refused(401, "login_needed");
    send(&rig, &alice, "POST", "/v1/logout", None).empty(204);
}

#[test]
fn a_change_by_cookie_needs_the_header() {
    let rig = Rig::new();
    user(&rig, "alice", "admin");
    let Proof::Cookie(cookie) = login(&rig, "alice") else { unreachable!() };
    let with = |header: Option<(&str, &str)>| {
        let mut request = with_json("POST", "/v1/volumes", &json!({"name": "v", "size": 1 << 20}));
        request.headers_mut().insert(COOKIE, cookie.parse().unwrap());
        if let Some((name, value)) = header {
            request
                .headers_mut()
                .insert(name.parse::<axum::http::HeaderName>().unwrap(), value.parse().unwrap());
        }
        rig.send(request)
    };
    with(None).refused(403, "request_header_missing");
    assert!(rig.names("/v1/volumes").is_empty());
    with(Some(("origin", "http://evil.example"))).refused(403, "cross_origin");
    with(Some((REQUEST_HEADER, "1"))).json(201);
    // Reading needs no such header.
    rig.send(Request::get("/v1/volumes").header(COOKIE, &cookie).body(Body::empty()).unwrap()).json(200);
    // A header cannot replace the method.
    let mut tricked = Request::get("/v1/volumes/v").header(COOKIE, &cookie);
    tricked = tricked.header("x-http-method-override", "DELETE");
    rig.send(tricked.body(Body::empty()).unwrap()).json(200);
    assert_eq!(rig.names("/v1/volumes"), ["v"]);
}

#[test]
fn a_changed_or_deleted_user_is_logged_out_at_once() {
    let rig = Rig::new();
    user(&rig, "root", "admin");
    user(&rig, "alice", "operator");
    let alice = login(&rig, "alice");
    rig.patch("/v1/users/alice", json!({"role": "viewer"})).json(200);
    whoami(&rig, &alice).refused(401, "login_needed");
    let alice = login(&rig, "alice");
    let made = send(&rig, &alice, "POST", "/v1/volumes", Some(json!({"name": "v", "size": 1 << 20})));
    made.refused(403, "role_too_low");
    rig.patch("/v1/users/alice", json!({"password": "another password"})).json(200);
    whoami(&rig, &alice).refused(401, "login_needed");
    try_login(&rig, "alice", PASSWORD).refused(401, "login_failed");
    let alice = cookie_of(&try_login(&rig, "alice", "another password"));
    rig.delete("/v1/users/alice").empty(204);
    whoami(&rig, &alice).refused(401, "login_needed");
    // Another user of the same name does not inherit the session.
    user(&rig, "alice", "admin");
    whoami(&rig, &alice).refused(401, "login_needed");
    rig.delete("/v1/users/alice").empty(204);
    rig.delete("/v1/users/root").refused(409, "last_admin");
    rig.patch("/v1/users/root", json!({"role": "operator"})).refused(409, "last_admin");
}

#[test]
fn a_token_is_shown_once_expires_and_is_deleted() {
    let rig = Rig::new();
    let (proof, id) = token(&rig, "operator");
    let Proof::Token(secret) = &proof else { unreachable!() };
    assert_eq!(whoami(&rig, &proof).json(200), json!({"name": "t", "role": "operator", "by": "token"}));
    let listed = rig.get("/v1/tokens");
    assert_eq!(listed.json(200)["items"][0]["id"], id);
    assert!(!listed.text.contains(secret.rsplit('-').next().unwrap()));
    // No variation of the secret is accepted, nor a part of it, nor another case.
    let mut wrong = secret.clone();
    wrong.replace_range(wrong.len() - 1.., if secret.ends_with('0') { "1" } else { "0" });
    for text in [&wrong, &secret[..secret.len() - 1], &secret.to_uppercase(), &id, "", " "] {
        whoami(&rig, &Proof::Token(text.to_owned())).refused(401, "token_invalid");
    }
    rig.delete(&format!("/v1/tokens/{id}")).empty(204);
    whoami(&rig, &proof).refused(401, "token_invalid");
    rig.delete(&format!("/v1/tokens/{id}")).refused(404, "token_not_found");

    let body = json!({"name": "brief", "role": "viewer", "valid_seconds": 1});
    let made = rig.post("/v1/tokens", body).json(201);
    let brief = Proof::Token(made["secret"].as_str().unwrap().into());
    let end = Instant::now() + EXPIRED_LIMIT;
    while whoami(&rig, &brief).status == 200 {
        assert!(Instant::now() < end, "it does not expire");
        std::thread::sleep(Duration::from_millis(100));
    }
    whoami(&rig, &brief).refused(401, "token_expired");
    let body = json!({"name": "lasting", "role": "viewer", "valid_seconds": 3600});
    let made = rig.post("/v1/tokens", body).json(201);
    whoami(&rig, &Proof::Token(made["secret"].as_str().unwrap().into())).json(200);
    for seconds in [json!(0), json!(1_u64 << 60)] {
        let body = json!({"name": "t", "role": "viewer", "valid_seconds": seconds});
        rig.post("/v1/tokens", body).refused(422, "field_invalid");
    }
}

#[test]
fn a_wrong_token_is_not_made_up_for_by_a_cookie() {
    let rig = Rig::new();
    user(&rig, "alice", "admin");
    let Proof::Cookie(cookie) = login(&rig, "alice") else { unreachable!() };
    let request = |authorization: &str| {
        let request =
            Request::get("/v1/whoami").header(COOKIE, &cookie).header("authorization", authorization);
        rig.send(request.body(Body::empty()).unwrap())
    };
    for authorization in ["Bearer x", "Basic YWxpY2U6eA==", ""] {
        request(authorization).refused(401, "token_invalid");
    }
    let doubled = Proof::Cookie(format!("{cookie}; {SESSION_COOKIE}=x"));
    whoami(&rig, &doubled).refused(401, "login_needed");
}

/// Each wait is twice as long as the one before. Of this many attempts at least one falls into a wait, on a
/// busy machine, too.
const SLOW_TRIES_MAX: u64 = 4;

fn until_slowed(rig: &Rig, name: &str) {
    let is_slowed = |_| try_login(rig, name, "wrong password").status == 429;
    assert!((0..SLOW_TRIES_MAX).any(is_slowed), "{name} is not slowed");
}

#[test]
fn wrong_passwords_are_slowed_and_do_not_reveal_users() {
    let rig = Rig::new();
    user(&rig, "alice", "admin");
    let known = try_login(&rig, "alice", "wrong password").refused(401, "login_failed");
    let unknown = try_login(&rig, "bob", "wrong password").refused(401, "login_failed");
    assert_eq!(known, unknown);
    for name in ["", "../alice", "alice\0", &"a".repeat(10_000)] {
        try_login(&rig, name, PASSWORD).refused(401, "login_failed");
    }
    for _ in 0..5 {
        try_login(&rig, "alice", &"x".repeat(300)).refused(401, "login_failed");
    }
    // The next attempt has to wait, even with the right password; the same for a user that does not exist.
    until_slowed(&rig, "alice");
    let slowed = try_login(&rig, "alice", PASSWORD);
    slowed.refused(429, "login_throttled");
    let wait: u64 = slowed.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=SLOW_TRIES_MAX).contains(&wait), "{wait}");
    for _ in 0..5 {
        try_login(&rig, "bob", "wrong password").refused(401, "login_failed");
    }
    until_slowed(&rig, "bob");
    // Tokens and the local token still work.
    rig.get("/v1/whoami").json(200);
    std::thread::sleep(Duration::from_secs(wait));
    login(&rig, "alice");
}

#[test]
fn people_change_their_own_password_and_no_others() {
    let rig = Rig::new();
    user(&rig, "root", "admin");
    user(&rig, "alice", "viewer");
    let (alice, elsewhere) = (login(&rig, "alice"), login(&rig, "alice"));
    let change = |proof: &Proof, old: &str, new: &str| {
        send(&rig, proof, "PUT", "/v1/password", Some(json!({"old": old, "new": new})))
    };
    change(&alice, "wrong password", "another password").refused(401, "login_failed");
    // Nine characters with 18 bytes; 257 characters; and 256 of two bytes each, which is the longest.
    let longest = "ä".repeat(256);
    for refused in ["short", "äöüäöüäöü", &format!("{longest}!")] {
        change(&alice, PASSWORD, refused).refused(422, "field_invalid");
    }
    let changed = change(&alice, PASSWORD, &longest);
    changed.empty(204);
    let alice = cookie_of(&changed);
    let changed = change(&alice, &longest, "another password");
    changed.empty(204);
    whoami(&rig, &alice).refused(401, "login_needed");
    whoami(&rig, &elsewhere).refused(401, "login_needed");
    whoami(&rig, &cookie_of(&changed)).json(200);
    let alice = cookie_of(&try_login(&rig, "alice", "another password"));
    let theirs = json!({"password": "mine from now on"});
    send(&rig, &alice, "PATCH", "/v1/users/root", Some(theirs)).refused(403, "role_too_low");
    let promoted = json!({"role": "admin"});
    send(&rig, &alice, "PATCH", "/v1/users/alice", Some(promoted)).refused(403, "role_too_low");
    rig.put("/v1/password", json!({"old": PASSWORD, "new": PASSWORD})).refused(409, "no_user");
}

#[test]
fn paths_written_otherwise_open_nothing() {
    let rig = Rig::new();
    let (viewer, _) = token(&rig, "viewer");
    for path in [
        "/v1//users",
        "/v1/users/",
        "/v1/./users",
        "/v1/nodes/../users",
        "/V1/users",
        "/v1/Users",
        "/v1/users;x",
        "/v1/users%2f",
        "/v1/%75sers",
        "//v1/users",
        "/v1/access/state/../../users",
        "/v1/users%00",
        "/v1/volumes/%2e%2e/users",
    ] {
        for proof in [&Proof::Nothing, &viewer] {
            let answer = send(&rig, proof, "GET", path, None);
            assert!(
                [400, 401, 403, 404].contains(&answer.status),
                "{path}: {} {}",
                answer.status,
                answer.text
            );
            assert!(!answer.text.contains("items"), "{path}");
        }
    }
    // Methods that no call has are refused, whoever the caller is.
    for method in ["OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get"] {
        for proof in [&Proof::Nothing, &viewer] {
            let answer = send(&rig, proof, method, "/v1/users", None);
            assert!([401, 403, 405].contains(&answer.status), "{method}: {}", answer.status);
        }
    }
    let head = send(&rig, &viewer, "HEAD", "/v1/users", None);
    assert_eq!(head.status, 403, "{}", head.text);
}

#[test]
fn metrics_are_open_to_this_machine_alone() {
    let rig = Rig::new();
    assert_eq!(send(&rig, &Proof::Nothing, "GET", "/metrics", None).status, 200);
    let outside = |proof: Option<&str>| {
        let peer = Peer { address: ([10, 0, 0, 1], 9).into(), secure: true };
        let mut request =
            Request::get("/metrics").header("host", "san1").extension(peer).extension(Unauthenticated);
        if let Some(token) = proof {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        rig.send(request.body(Body::empty()).unwrap())
    };
    outside(None).refused(401, "login_needed");
    let (Proof::Token(viewer), _) = token(&rig, "viewer") else { unreachable!() };
    assert_eq!(outside(Some(&viewer)).status, 200);
}

#[test]
fn changes_and_attempts_are_logged_without_secrets() {
    let rig = Rig::new();
    user(&rig, "root", "admin");
    user(&rig, "alice", "viewer");
    try_login(&rig, "alice", "not the password").refused(401, "login_failed");
    let alice = login(&rig, "alice");
    send(&rig, &alice, "DELETE", "/v1/volumes/v", None).refused(403, "role_too_low");
    send(&rig, &alice, "GET", "/v1/users", None).refused(403, "role_too_low");
    send(&rig, &alice, "GET", "/v1/volumes", None).json(200);
    let (_, _) = token(&rig, "viewer");
    rig.delete("/v1/volumes/v").refused(404, "volume_not_found");
    let log = rig.get("/v1/audit");
    let entries: Vec<String> = log.json(200)["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            format!(
                "{} {} {} {} {}",
                entry["who"], entry["by"], entry["action"], entry["status"], entry["code"]
            )
            .replace('"', "")
        })
        .collect();
    assert_eq!(
        entries,
        [
            "local local DELETE /v1/volumes/v 404 volume_not_found",
            "local local POST /v1/tokens 201 null",
            "alice session GET /v1/users 403 role_too_low",
            "alice session DELETE /v1/volumes/v 403 role_too_low",
            "alice session login 200 null",
            "alice null login 401 login_failed",
            "local local POST /v1/users 201 null",
            "local local POST /v1/users 201 null",
        ]
    );
    assert_eq!(log.json(200)["items"][0]["address"], "127.0.0.1");
    let two = rig.get("/v1/audit?limit=2&before=4").json(200);
    assert_eq!(two["items"][0]["id"], 3);
    assert_eq!(two["items"].as_array().unwrap().len(), 2);
    rig.get("/v1/audit?limit=x").refused(400, "query_invalid");
    let file = std::fs::read_to_string(rig.dir().join("audit/audit.jsonl")).unwrap();
    for secret in [PASSWORD, "not the password", "ursa-token-", "$argon2"] {
        assert!(!file.contains(secret), "{file}");
    }
}

#[test]
fn a_client_that_disconnects_is_logged() {
    let rig = Rig::new();
    rig.send_and_hang_up(with_json("POST", "/v1/volumes", &json!({"name": "v", "size": 1 << 20})));
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let log = rig.get("/v1/audit").json(200);
        if let Some(entry) = log["items"].as_array().unwrap().first() {
            assert_eq!((&entry["action"], &entry["status"]), (&json!("POST /v1/volumes"), &json!(201)));
            break;
        }
        assert!(Instant::now() < end, "not written down in time");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(rig.names("/v1/volumes"), ["v"]);
}

#[test]
fn failed_setups_are_slowed_and_not_logged() {
    let rig = Rig::new();
    let set_up = |token: &str| {
        let body = json!({"token": token, "name": "mallory", "password": PASSWORD});
        send(&rig, &Proof::Nothing, "POST", "/v1/setup", Some(body))
    };
    (0..3).for_each(|_| drop(set_up("x").refused(403, "setup_token_invalid")));
    let link = rig.state.access.offer_set_up();
    (0..3).for_each(|_| drop(set_up("x").refused(403, "setup_token_invalid")));
    let slowed = set_up("x");
    slowed.refused(429, "login_throttled");
    assert!(slowed.headers.contains_key("retry-after"));
    assert_eq!(rig.get("/v1/audit").json(200)["items"], json!([]));
    // Strangers cannot keep the owner of the link waiting.
    set_up(&link).json(201);
    let log = rig.get("/v1/audit").json(200);
    assert_eq!((&log["items"][0]["action"], &log["items"][0]["status"]), (&json!("setup"), &json!(201)));
}

#[test]
fn the_first_user_is_an_administrator() {
    let rig = Rig::new();
    let alice = json!({"name": "alice", "role": "operator", "password": PASSWORD});
    let refused = rig.post("/v1/users", alice.clone()).refused(422, "field_invalid");
    assert_eq!(refused["field"], "role");
    assert!(refused["hint"].as_str().unwrap().contains("--role admin"), "{refused}");
    user(&rig, "root", "admin");
    rig.post("/v1/users", alice).json(201);
}

#[test]
fn users_and_tokens_survive_a_restart_and_are_not_stored_in_plain_text() {
    let rig = Rig::new();
    user(&rig, "alice", "admin");
    let (proof, _) = token(&rig, "viewer");
    let Proof::Token(secret) = &proof else { unreachable!() };
    let mut stored = Vec::new();
    let mut places = vec![rig.dir().to_owned()];
    while let Some(place) = places.pop() {
        match std::fs::read_dir(&place) {
            Ok(entries) => places.extend(entries.map(|entry| entry.unwrap().path())),
            Err(_) if place.ends_with("default.pool") => {}
            Err(_) => stored.extend(std::fs::read(&place).unwrap_or_default()),
        }
    }
    let has = |text: &str| stored.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(has("$argon2id$") && has("api-token/"));
    assert!(!has(PASSWORD) && !has(secret.rsplit('-').next().unwrap()));
}

#[test]
fn unauthenticated_bodies_are_limited() {
    let rig = Rig::new();
    let long = "x".repeat(20 << 10);
    let body = json!({"name": long, "password": PASSWORD});
    send(&rig, &Proof::Nothing, "POST", "/v1/login", Some(body.clone())).refused(413, "body_too_large");
    send(&rig, &Proof::Nothing, "POST", "/v1/setup", Some(body.clone())).refused(413, "body_too_large");
    send(&rig, &Proof::Nothing, "POST", "/v1/volumes", Some(body)).refused(401, "login_needed");
}

#[test]
fn changes_that_cannot_be_logged_are_refused_except_to_the_local_user() {
    let rig = Rig::prepared(|dir| std::fs::write(dir.join("audit"), "in the way").unwrap());
    let (operator, _) = token(&rig, "operator");
    let host = |name: &str| Some(json!({"name": name, "initiators": ["iqn.2026-01.org.example:a"]}));
    let answer = send(&rig, &operator, "POST", "/v1/hosts", host("a"));
    let problem = answer.refused(503, "audit_unavailable");
    assert!(problem["detail"].as_str().unwrap().contains("audit"), "{problem}");
    assert!(answer.headers.contains_key("retry-after"));
    // Nothing was changed, everything can be read, and a finding reports the problem.
    send(&rig, &operator, "GET", "/v1/hosts/a", None).refused(404, "host_not_found");
    let found = send(&rig, &operator, "GET", "/v1/findings", None).json(200);
    assert_eq!(found["items"][0]["code"], "audit-unavailable", "{found}");
    let events = rig.get("/v1/events").json(200);
    let told = events["items"].as_array().unwrap().iter();
    assert!(told.clone().any(|event| event["code"] == "audit_unavailable"), "{events}");
    let measured = || rig.get("/metrics").text.lines().any(|line| line == "ursa_audit_up 1");
    assert!(!measured(), "an alert is made of it");

    rig.post("/v1/hosts", host("b").unwrap()).json(201);
    std::fs::remove_file(rig.dir().join("audit")).unwrap();
    assert!(measured(), "it is tried again");
    send(&rig, &operator, "POST", "/v1/hosts", host("c")).json(201);
    let written = rig.get("/v1/audit").json(200);
    assert_eq!((&written["items"][0]["who"], &written["items"][0]["status"]), (&json!("t"), &json!(201)));
    assert_eq!(rig.get("/v1/findings").json(200), json!({"items": []}));
}
