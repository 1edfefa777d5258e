//! How the client handles responses of all kinds.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::{self, JoinHandle};

use super::{Client, ClientError};
use crate::{SnapshotDataQuery, VolumeCreate, VolumeKind};

/// Answers one request with these bytes, and returns the request.
fn server(answer: &str) -> (Client, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::new(&format!("http://{}/", listener.local_addr().unwrap()));
    let answer = answer.to_owned();
    let thread = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut request, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            let len = stream.read(&mut piece).unwrap();
            request.extend_from_slice(&piece[..len]);
            let text = String::from_utf8_lossy(&request);
            let Some((headers, body)) = text.split_once("\r\n\r\n") else { continue };
            let length = headers.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                break;
            }
        }
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8(request).unwrap()
    });
    (client, thread)
}

fn response(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

#[test]
fn a_request_names_the_host_and_carries_what_was_set() {
    let body = r#"{"id":"0","name":"a b","pool":"p","kind":"ram","size":4096,"block_size":512,"physical_block_size":512,
        "slices":1,"reserved":0,"used":0,"created":0,"naa":"6","maps":[],
        "health":"healthy","new_in_a_later_version":1}"#;
    let (client, thread) = server(&response("201 Created", body));
    let volume = client.create_volume(&VolumeCreate::new("a b", 4096)).unwrap();
    assert_eq!((volume.name.as_str(), volume.kind), ("a b", VolumeKind::Ram));
    let request = thread.join().unwrap();
    assert!(request.starts_with("POST /v1/volumes HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("\r\nhost: 127.0.0.1:"), "{request}");
    assert!(request.contains("\r\ncontent-type: application/json"), "{request}");
    let (_, sent) = request.split_once("\r\n\r\n").unwrap();
    let sent: serde_json::Value = serde_json::from_str(sent).unwrap();
    let expected = r#"{"name":"a b","size":4096,"kind":"thick","block_size":512,"native_512":false,
        "checksums":false,"map":true}"#;
    assert_eq!(sent, serde_json::from_str::<serde_json::Value>(expected).unwrap());
}

#[test]
fn a_response_of_bytes_has_the_expected_length() {
    let query = |len| SnapshotDataQuery { volume: "db".into(), snapshot: "a b".into(), offset: 4096, len };
    let (client, thread) = server(&response("200 OK", "\u{1}\0\u{2}"));
    assert_eq!(client.snapshot_data(&query(3)).unwrap(), [1, 0, 2]);
    let request = thread.join().unwrap();
    let path = "GET /v1/snapshots/a%20b/data?volume=db&offset=4096&len=3 HTTP/1.1\r\n";
    assert!(request.starts_with(path), "{request}");
    for len in [2, 4] {
        let (client, _thread) = server(&response("200 OK", "\u{1}\0\u{2}"));
        let error = client.snapshot_data(&query(len)).unwrap_err();
        assert!(matches!(error, ClientError::NotUrsa { .. }), "{error:?}");
    }
    let problem = r#"{"type":"about:blank","title":"t","status":409,"code":"not_in_snapshot","detail":"d"}"#;
    let (client, _thread) = server(&response("409 Conflict", problem));
    let error = client.snapshot_data(&query(3)).unwrap_err();
    assert_eq!(error.problem().map(|problem| problem.code.as_str()), Some("not_in_snapshot"));
}

#[test]
fn a_deletion_returns_nothing() {
    let (client, thread) = server("HTTP/1.1 204 No Content\r\n\r\n");
    client.delete_map("iqn.2026-11.io.ursa:db", 3, Some("a/b")).unwrap();
    let request = thread.join().unwrap();
    assert!(request.starts_with("DELETE /v1/targets/iqn.2026-11.io.ursa:db/maps/3?host=a%2Fb HTTP/1.1\r\n"));
}

#[test]
fn a_dry_run_says_so_in_the_query() {
    let answer = response("200 OK", r#"{"would":["it goes"]}"#);
    let (client, thread) = server(&answer);
    let would = client.would(|client| client.delete_map("iqn.2026-11.io.ursa:db", 3, Some("h"))).unwrap();
    assert_eq!(would.would, ["it goes"]);
    let request = thread.join().unwrap();
    assert!(request.contains("/maps/3?host=h&dry_run=true HTTP/1.1\r\n"), "{request}");
    let (client, thread) = server(&answer);
    client.would(|client| client.delete_host("h")).unwrap();
    let request = thread.join().unwrap();
    assert!(request.starts_with("DELETE /v1/hosts/h?dry_run=true HTTP/1.1\r\n"), "{request}");
}

#[test]
fn a_refusal_says_why() {
    let problem = r#"{"type":"about:blank","title":"Conflict","status":409,"detail":"it is used","code":"host_in_use",
        "hint":"let it be"}"#;
    let (client, _) = server(&response("409 Conflict", problem));
    let error = client.delete_host("h").unwrap_err();
    assert_eq!(error.problem().map(|problem| problem.code.as_str()), Some("host_in_use"));
    assert_eq!(error.to_string(), "it is used: let it be");
}

#[test]
fn another_server_is_distinguished_from_none() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = Client::new(&format!("http://{free}")).health().unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error:?}");

    for answer in [
        response("200 OK", "<html>"),
        response("200 OK", "{}"),
        response("404 Not Found", "<html>"),
        response("302 Found", ""),
    ] {
        let error = server(&answer).0.health().unwrap_err();
        assert!(matches!(error, ClientError::NotUrsa { .. }), "{answer}: {error:?}");
    }
    let error = server("SSH-2.0-OpenSSH_9.2p1\r\n").0.health().unwrap_err();
    assert!(matches!(error, ClientError::NotUrsa { .. }), "{error:?}");
    // The connection ends in the middle of a response.
    for answer in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"] {
        let error = server(answer).0.health().unwrap_err();
        assert!(matches!(error, ClientError::NoAnswer { .. }), "{answer}: {error:?}");
    }
    for url in ["", "127.0.0.1:3280", "http://", "https://", "ftp://127.0.0.1"] {
        let error = Client::new(url).health().unwrap_err();
        assert!(matches!(error, ClientError::Address { .. }), "{url}: {error:?}");
    }
}

#[test]
fn localhost_is_one_address() {
    for (url, meant) in [
        ("http://localhost:3280/", "http://127.0.0.1:3280"),
        ("http://LOCALHOST", "http://127.0.0.1"),
        ("http://localhost.example:3280", "http://localhost.example:3280"),
        ("http://[::1]:3280", "http://[::1]:3280"),
        ("localhost:3280", "localhost:3280"),
    ] {
        assert_eq!(Client::new(url).url(), meant);
    }
}
