//! Invalid requests, whatever they are about.

use axum::body::Body;
use axum::http::Request;
use serde_json::json;

use super::rig::Rig;
use crate::http::guard::Peer;

#[test]
fn invalid_requests_are_refused_with_their_position() {
    let rig = Rig::new();
    let problem = rig
        .post("/v1/volumes", json!({"name": "db", "size": 1 << 20, "sise": 1}))
        .refused(422, "field_invalid");
    assert_eq!(problem["field"], "sise");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("unknown field `sise`"), "{detail}");

    let problem = rig.post("/v1/volumes", json!({"name": "db", "size": "1G"})).refused(422, "field_invalid");
    assert_eq!(problem["field"], "size");

    let body = json!({"name": "p", "disks": [{"path": "/a"}, {"path": 7}]});
    let problem = rig.post("/v1/pools", body).refused(422, "field_invalid");
    assert_eq!(problem["field"], "disks[1].path");

    let problem = rig.post("/v1/volumes", json!({"name": "db"})).refused(422, "field_invalid");
    assert!(problem["detail"].as_str().unwrap().contains("missing field `size`"), "{problem}");

    for size in [json!(-1), json!(1.5), json!(1e30), json!(null)] {
        rig.post("/v1/volumes", json!({"name": "db", "size": size})).refused(422, "field_invalid");
    }
    assert!(rig.names("/v1/volumes").is_empty());
}

#[test]
fn a_body_is_json_and_not_too_long() {
    let rig = Rig::new();
    let post = |kind: &str, body: &str| {
        let request = Request::post("/v1/volumes").header("content-type", kind);
        rig.send(request.body(Body::from(body.to_owned())).unwrap())
    };
    for body in ["", "{", "nonsense", r#"{"name": "a", "size": 1048576} {}"#, "{\"name\": \"\u{1}\"}"] {
        post("application/json", body).refused(400, "json_syntax");
    }
    let deep = "[".repeat(100_000);
    post("application/json", &format!(r#"{{"name": {deep}"#)).refused(422, "field_invalid");
    post("application/json", &deep).refused(422, "field_invalid");
    // Lists with the fields in order, which serde would accept.
    for body in [r#"["a", 1048576]"#, " [null]"] {
        let problem = post("application/json", body).refused(422, "field_invalid");
        assert!(problem["detail"].as_str().unwrap().contains("send an object"), "{problem}");
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/json-seq", ""] {
        post(kind, r#"{"name": "a", "size": 1048576}"#).refused(415, "not_json");
    }
    let long = format!(r#"{{"name": "{}"}}"#, "a".repeat(1 << 20));
    post("application/json", &long).refused(413, "body_too_large");
    assert!(rig.names("/v1/volumes").is_empty());
    post("application/json; charset=utf-8", r#"{"name": "a", "size": 1048576}"#).json(201);
}

#[test]
fn paths_methods_and_parameters_that_are_none() {
    let rig = Rig::new();
    rig.get("/v1/nothing").refused(404, "no_such_path");
    rig.get("/nothing").refused(404, "no_such_path");
    rig.delete("/v1/volumes").refused(405, "method_not_allowed");
    rig.delete("/v1/volumes/a?force=perhaps").refused(400, "query_invalid");
    rig.delete("/v1/volumes/a?forse=true").refused(400, "query_invalid");
    rig.delete("/v1/sessions/x").refused(400, "path_invalid");
    rig.delete("/v1/sessions/65536").refused(400, "path_invalid");
    rig.get("/v1/volumes/%ff").refused(400, "path_invalid");
    rig.get("/v1/volumes/..%2f..%2fetc").refused(404, "volume_not_found");
}

#[test]
fn strangers_are_refused() {
    let rig = Rig::new();
    let get = || Request::get("/v1/volumes");
    rig.send(get().header("host", "evil.example").body(Body::empty()).unwrap())
        .refused(421, "host_not_local");
    rig.send(get().header("origin", "http://evil.example").body(Body::empty()).unwrap())
        .refused(403, "cross_origin");
    let peer = Peer { address: ([10, 0, 0, 1], 9).into(), secure: false };
    rig.send(get().extension(peer).body(Body::empty()).unwrap()).refused(403, "peer_not_local");
    let metrics = Request::get("/metrics").header("host", "evil.example").body(Body::empty()).unwrap();
    rig.send(metrics).refused(421, "host_not_local");
}
