//! Access control with real nodes: the local command line, tokens, and a cluster's users.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use crate::node::{Node, free_address, ursa};

/// Sends a raw request; returns the status and the whole response.
fn request(api: SocketAddr, head: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(api).unwrap();
    stream.write_all(format!("{head}\r\nhost: {api}\r\nconnection: close\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

fn with_token(node: &Node, token: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let output = ursa(arguments)
        .env("URSA_API", format!("http://{}", node.api))
        .env("URSA_TOKEN", token)
        .output()
        .unwrap();
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout),
    )
}

#[test]
fn the_local_command_line_needs_no_login_and_others_get_nothing() {
    let node = Node::start(&[]);
    node.ok(&["volume", "create", "db", "--size", "1G"]);
    for path in ["/v1/volumes", "/v1/node", "/v1/users", "/v1/audit"] {
        let (status, answer) = request(node.api, &format!("GET {path} HTTP/1.1"));
        assert_eq!(status, 401, "{answer}");
        assert!(answer.to_lowercase().contains("www-authenticate: bearer"), "{answer}");
    }
    assert_eq!(request(node.api, "DELETE /v1/volumes/db?force=true HTTP/1.1").0, 401);
    assert_eq!(request(node.api, "GET /metrics HTTP/1.1").0, 200);
    assert_eq!(node.json(&["volume", "list"])[0]["name"], "db");
    // After a restart the node has another credential, which the command line finds.
    let directory = node.kill();
    let node = Node::start_in(directory, &["--metrics-without-token", "false"]);
    assert_eq!(node.json(&["volume", "list"])[0]["name"], "db");
    assert_eq!(request(node.api, "GET /metrics HTTP/1.1").0, 401);
}

#[test]
fn a_token_may_what_its_role_may() {
    let node = Node::start(&[]);
    let viewer = node.ok(&["token", "create", "monitoring", "--role", "viewer"]);
    let (code, text) = with_token(&node, viewer.trim(), &["volume", "list"]);
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = with_token(&node, viewer.trim(), &["volume", "create", "db", "--size", "1G"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("requires the role operator"), "{text}");
    let id = node.json(&["token", "list"])[0]["id"].as_str().unwrap().to_owned();
    node.ok(&["token", "delete", &id, "--yes"]);
    let (code, text) = with_token(&node, viewer.trim(), &["volume", "list"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("invalid token"), "{text}");

    let audit = node.json(&["audit"]);
    assert_eq!(audit[0]["action"], format!("DELETE /v1/tokens/{id}"));
    assert_eq!((&audit[1]["who"], &audit[1]["code"]), (&"monitoring".into(), &"role_too_low".into()));
    let log = std::fs::read_to_string(node.directory.path().join("log")).unwrap();
    assert!(!log.contains(viewer.trim().rsplit('-').next().unwrap()), "a secret is in the log");
}

#[test]
fn users_are_the_clusters() {
    let (first, second) = (Node::start(&[]), Node::start(&[]));
    let password = first.directory.path().join("password");
    std::fs::write(&password, "correct horse battery\n").unwrap();
    let file = password.to_str().unwrap();
    first.ok(&["user", "create", "alice", "--role", "admin", "--password-file", file]);
    // A node that joins brings its users along.
    second.ok(&["user", "create", "bob", "--role", "admin", "--password-file", file]);
    first.ok(&["node", "init", "--listen", &free_address().to_string()]);
    let token = first.json(&["node", "token"])["token"].as_str().unwrap().to_owned();
    second.ok(&["node", "join", &token, "--listen", &free_address().to_string()]);
    let names = |node: &Node| {
        let users = node.json(&["user", "list"]);
        users
            .as_array()
            .unwrap()
            .iter()
            .map(|user| user["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    until("the second node knows the users of both", || names(&second) == ["alice", "bob"]);
    until("the first node knows them, too", || names(&first) == ["alice", "bob"]);
    second.ok(&["user", "create", "carol", "--role", "viewer", "--password-file", file]);
    let would = second.ok(&["user", "set", "carol", "--role", "admin", "--dry-run"]);
    let changes_nothing = would.ends_with("Nothing was changed.\n");
    assert!(would.contains("user carol gets the role admin") && changes_nothing, "{would}");
    until("the first node knows the new one", || names(&first) == ["alice", "bob", "carol"]);
    let viewer = first.ok(&["token", "create", "monitoring", "--role", "viewer"]);
    until("the second node knows the token", || with_token(&second, viewer.trim(), &["status"]).0 == Some(0));
    first.ok(&["user", "delete", "bob", "--yes"]);
    until("the second node does not know bob any more", || names(&second) == ["alice", "carol"]);
    let refused = second.refused(1, &["user", "delete", "alice", "--yes"]);
    assert!(refused.contains("only administrator"), "{refused}");
}

#[test]
fn a_node_on_all_addresses_has_a_certificate_and_its_command_line_works() {
    let everywhere = SocketAddr::from(([0, 0, 0, 0], free_address().port()));
    // A killed process has left its credential for the loopback address.
    Node::start(&["--api-listen", &format!("127.0.0.1:{}", everywhere.port())]).kill();
    let node = Node::start(&["--api-listen", &everywhere.to_string()]);
    let here = SocketAddr::from(([127, 0, 0, 1], everywhere.port()));
    let status = ursa(&["status"]).env("URSA_API", format!("http://{here}")).output().unwrap();
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    assert_eq!(request(here, "GET /v1/node HTTP/1.1").0, 401);
    node.ok(&["status"]);
    for file in ["certificate.pem", "key.pem"] {
        let path = node.directory.path().join("data/api").join(file);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{file}");
    }
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < end, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(50));
    }
}
