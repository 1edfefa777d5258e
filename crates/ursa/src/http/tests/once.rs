//! What is sent twice is done once, and what is only asked for is not done.

use axum::http::HeaderValue;
use serde_json::{Value, json};

use super::rig::{Answer, MIB, Rig, with_json};

fn post(rig: &Rig, key: &'static str, path: &str, body: &Value) -> Answer {
    let mut request = with_json("POST", path, body);
    request.headers_mut().insert("idempotency-key", HeaderValue::from_static(key));
    rig.send(request)
}

#[test]
fn the_same_key_gets_the_same_answer() {
    let rig = Rig::new();
    let new = json!({"name": "db", "size": MIB});
    let first = post(&rig, "a", "/v1/volumes", &new);
    let made = first.json(201);
    assert!(!first.headers.contains_key("idempotency-replayed"));
    let again = post(&rig, "a", "/v1/volumes", &new);
    assert_eq!(again.json(201), made);
    assert_eq!(again.headers["idempotency-replayed"], "true");
    post(&rig, "b", "/v1/volumes", &new).refused(409, "volume_exists");
    let problem = post(&rig, "b", "/v1/volumes", &new);
    problem.refused(409, "volume_exists");
    assert_eq!(problem.headers["idempotency-replayed"], "true");
    let other = json!({"name": "db2", "size": MIB});
    post(&rig, "a", "/v1/volumes", &other).refused(422, "idempotency_key_reused");
    post(&rig, "", "/v1/volumes", &other).refused(400, "idempotency_key_invalid");
    assert_eq!(rig.names("/v1/volumes"), ["db"]);
    // A secret is not kept to be shown again.
    let token = json!({"name": "t", "role": "viewer"});
    assert!(post(&rig, "t", "/v1/tokens", &token).json(201)["secret"].is_string());
    post(&rig, "t", "/v1/tokens", &token).refused(409, "already_done");
    assert_eq!(rig.get("/v1/tokens").json(200)["items"].as_array().unwrap().len(), 1);
}

#[test]
fn what_would_be_done_is_said_and_not_done() {
    let rig = Rig::new();
    let new = json!({"name": "db", "size": MIB});
    let would = rig.post("/v1/volumes?dry_run=true", new.clone()).json(200);
    assert_eq!(would["would"].as_array().unwrap().len(), 2, "{would}");
    assert!(would["would"][1].as_str().unwrap().contains("becomes a LUN"), "{would}");
    assert!(would["candidates"][0].get("rule").is_none(), "{would}");
    assert!(rig.names("/v1/volumes").is_empty() && rig.names("/v1/targets").is_empty());

    let large = json!({"name": "db", "size": 1024 * MIB});
    for path in ["/v1/volumes?dry_run=true", "/v1/volumes"] {
        let problem = rig.post(path, large.clone()).refused(507, "no_space");
        assert_eq!(problem["candidates"][0]["rule"], "no_space", "{path}: {problem}");
        assert_eq!(problem["candidates"][0]["pool"], "default", "{path}: {problem}");
    }
    let problem = rig.post("/v1/volumes?dry_run=true", json!({"name": "db", "size": MIB, "pool": "fast"}));
    assert_eq!(problem.refused(404, "pool_not_found")["candidates"][0]["rule"], "pool_not_found");
    rig.post("/v1/volumes?dry_run=true", json!({"name": "../x", "size": MIB})).refused(422, "name_invalid");

    assert!(
        rig.get("/v1/audit").json(200)["items"].as_array().unwrap().iter().all(|deed| deed["status"] != 200)
    );
    rig.post("/v1/volumes", new.clone()).json(201);
    rig.post("/v1/volumes?dry_run=true", new).refused(409, "volume_exists");
    rig.delete("/v1/volumes/db?dry_run=true").refused(409, "volume_mapped");
    let would = rig.delete("/v1/volumes/db?dry_run=true&force=true").json(200);
    assert_eq!(would["would"].as_array().unwrap().len(), 2, "{would}");
    assert_eq!(rig.names("/v1/volumes"), ["db"]);
    rig.post("/v1/volumes/db/copies?dry_run=true", json!({"node": 2})).refused(409, "not_replicated");
    rig.delete("/v1/volumes/db/copies/2?dry_run=true").refused(409, "not_replicated");
    // Who asks what would happen does not find that it has happened.
    rig.post("/v1/hosts?dry_run=true", json!({"name": "a"})).refused(422, "dry_run_not_possible");
    let target = "/v1/targets/iqn.2026-11.io.ursa:db";
    rig.delete(&format!("{target}?dry_run=true")).refused(409, "target_has_maps");
    let would = rig.delete(&format!("{target}?force=true&dry_run=true")).json(200);
    let taken = "host local has volume db as LUN 0 of target iqn.2026-11.io.ursa:db no more";
    let deleted = "target iqn.2026-11.io.ursa:db is deleted; volumes stay";
    assert_eq!(would["would"], json!([taken, deleted]));
    let map = format!("{target}/maps/0");
    assert_eq!(rig.delete(&format!("{map}?dry_run=true")).json(200)["would"], json!([taken]));
    rig.delete(&format!("{map}?dry_run=true&host=x")).refused(404, "map_not_found");
    assert_eq!(rig.get(target).json(200)["maps"].as_array().unwrap().len(), 1, "nothing was done");
    rig.post("/v1/hosts", json!({"name": "a", "addresses": ["10.0.0.0/8"]})).json(201);
    let would = rig.delete("/v1/hosts/a?dry_run=true").json(200);
    assert_eq!(
        would["would"],
        json!(["host group a is deleted, with 0 names and 1 addresses of initiators"])
    );
    rig.get("/v1/hosts/a").json(200);
    rig.delete("/v1/hosts/local?dry_run=true").refused(409, "host_built_in");
    rig.put("/v1/nodes/1/maintenance?dry_run=true", json!({"on": true})).refused(409, "no_cluster");
    rig.delete("/v1/sessions/1?dry_run=true").refused(422, "dry_run_not_possible");
    rig.patch("/v1/volumes/db?dry_run=1", json!({"name": "x"})).refused(400, "query_invalid");
    assert_eq!(rig.names("/v1/volumes"), ["db"]);
}
