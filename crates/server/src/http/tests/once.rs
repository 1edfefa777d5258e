//! Repeated requests with an idempotency key are executed once, and dry runs change nothing.

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
    // A secret is not kept, so it is not shown again.
    let token = json!({"name": "t", "role": "viewer"});
    assert!(post(&rig, "t", "/v1/tokens", &token).json(201)["secret"].is_string());
    post(&rig, "t", "/v1/tokens", &token).refused(409, "already_done");
    assert_eq!(rig.get("/v1/tokens").json(200)["items"].as_array().unwrap().len(), 1);
}

#[test]
fn a_dry_run_describes_and_changes_nothing() {
    let rig = Rig::new();
    let new = json!({"name": "db", "size": MIB});
    let would = rig.post("/v1/volumes?dry_run=true", new.clone()).json(200);
    assert_eq!(would["would"].as_array().unwrap().len(), 3, "{would}");
    assert!(would["would"][1].as_str().unwrap().contains("a single copy"), "{would}");
    assert!(would["would"][2].as_str().unwrap().contains("as a LUN of target"), "{would}");
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
    let said = [
        "LUN 0 of target iqn.2026-11.io.ursa:db is unmapped from host group local",
        "target iqn.2026-11.io.ursa:db, which was created with it, is deleted",
        "volume db is deleted, with 1M of data, on node 1",
    ];
    assert_eq!(would["would"], json!(said));
    assert_eq!(rig.names("/v1/volumes"), ["db"]);
    rig.post("/v1/volumes/db/copies?dry_run=true", json!({"node": 2})).refused(404, "node_not_found");
    rig.delete("/v1/volumes/db/copies/2?dry_run=true").refused(404, "copy_not_found");
    // A call without a dry run must not be executed when a dry run is requested.
    rig.post("/v1/hosts?dry_run=true", json!({"name": "a"})).refused(422, "dry_run_not_possible");
    let target = "/v1/targets/iqn.2026-11.io.ursa:db";
    rig.delete(&format!("{target}?dry_run=true")).refused(409, "target_has_maps");
    let would = rig.delete(&format!("{target}?force=true&dry_run=true")).json(200);
    let taken = "host group local loses access to volume db, LUN 0 of target iqn.2026-11.io.ursa:db";
    let deleted = "target iqn.2026-11.io.ursa:db is deleted; volumes stay";
    assert_eq!(would["would"], json!([taken, deleted]));
    let map = format!("{target}/maps/0");
    assert_eq!(rig.delete(&format!("{map}?dry_run=true")).json(200)["would"], json!([taken]));
    rig.delete(&format!("{map}?dry_run=true&host=x")).refused(404, "map_not_found");
    assert_eq!(rig.get(target).json(200)["maps"].as_array().unwrap().len(), 1, "nothing was done");
    rig.post("/v1/hosts", json!({"name": "a", "addresses": ["10.0.0.0/8"]})).json(201);
    let would = rig.delete("/v1/hosts/a?dry_run=true").json(200);
    assert_eq!(would["would"], json!(["host group a is deleted, with 0 initiator names and 1 address"]));
    rig.get("/v1/hosts/a").json(200);
    rig.delete("/v1/hosts/local?dry_run=true").refused(409, "host_built_in");
    rig.put("/v1/nodes/2/maintenance?dry_run=true", json!({"on": true})).refused(404, "node_not_found");
    rig.delete("/v1/sessions/1?dry_run=true").refused(404, "session_not_found");
    rig.patch("/v1/volumes/db?dry_run=1", json!({"name": "x"})).refused(400, "query_invalid");
    assert_eq!(rig.names("/v1/volumes"), ["db"]);
}

#[test]
fn dry_runs_of_growing_and_renaming() {
    let rig = Rig::new();
    for name in ["db", "other"] {
        rig.post("/v1/volumes", json!({"name": name, "size": 4 * MIB, "map": false})).json(201);
    }
    let before = rig.get("/v1/volumes/db").json(200);
    let would = |change: Value| rig.patch("/v1/volumes/db?dry_run=true", change);
    let said = would(json!({"name": "mail", "size": 8 * MIB})).json(200);
    let grows = "volume db is resized from 4M to 8M";
    assert_eq!(said["would"], json!(["volume db is renamed to mail; hosts are not affected", grows]));
    assert_eq!(said["candidates"][0]["pool"], "default", "{said}");
    for nothing in [json!({}), json!({"name": "db"}), json!({"size": 4 * MIB})] {
        assert_eq!(
            would(nothing).json(200)["would"],
            json!(["no change: volume db already has these settings"])
        );
    }
    let problem = would(json!({"size": 1024 * MIB})).refused(507, "no_space");
    assert_eq!(problem["candidates"][0]["rule"], "no_space", "{problem}");
    would(json!({"size": MIB})).refused(422, "would_shrink");
    would(json!({"size": 0})).refused(422, "field_invalid");
    would(json!({"name": "other"})).refused(409, "volume_exists");
    would(json!({"name": "../x"})).refused(422, "name_invalid");
    rig.patch("/v1/volumes/no?dry_run=true", json!({})).refused(404, "volume_not_found");
    assert_eq!(rig.get("/v1/volumes/db").json(200), before);
    // Without a dry run the refusal is the same.
    let refused = rig.patch("/v1/volumes/db", json!({"name": "mail", "size": 1024 * MIB}));
    assert_eq!(refused.refused(507, "no_space")["candidates"], problem["candidates"]);
    assert_eq!(rig.get("/v1/volumes/db").json(200)["name"], "db");
    // What the dry run says is possible.
    let all = rig.get("/v1/pools/default").json(200)["free"].as_u64().unwrap() + 4 * MIB;
    would(json!({"size": all})).json(200);
    rig.patch("/v1/volumes/db", json!({"size": all})).json(200);
}

#[test]
fn dry_runs_of_a_policy_an_export_and_deleting_a_user() {
    let rig = Rig::new();
    rig.post("/v1/volumes", json!({"name": "db", "size": MIB})).json(201);
    let prefer = json!({"policy": "prefer", "by": "eva"});
    rig.put("/v1/volumes/db/split-brain-policy?dry_run=true", prefer.clone()).json(200);
    rig.post("/v1/pools/default/export?dry_run=true", json!({})).refused(409, "volume_mapped");
    rig.delete("/v1/targets/iqn.2026-11.io.ursa:db?force=true").empty(204);
    let would = rig.post("/v1/pools/default/export?dry_run=true", json!({})).json(200);
    let said = [
        "pool default is closed; another server can then import it",
        "this node no longer serves the volumes on it: db",
    ];
    assert_eq!(would["would"], json!(said));
    assert_eq!(rig.get("/v1/pools/default").json(200)["state"], "online");
    rig.post("/v1/pools/nothing/export?dry_run=true", json!({})).refused(404, "pool_not_found");

    rig.delete("/v1/users/eva?dry_run=true").refused(404, "user_not_found");
    for (name, role) in [("eva", "admin"), ("tom", "viewer")] {
        let user = json!({"name": name, "role": role, "password": "correct horse battery"});
        rig.post("/v1/users", user).json(201);
    }
    rig.delete("/v1/users/eva?dry_run=true").refused(409, "last_admin");
    let would = rig.delete("/v1/users/tom?dry_run=true").json(200);
    assert_eq!(would["would"], json!(["user tom (viewer) is deleted, and logged out on all nodes"]));
    assert_eq!(rig.names("/v1/users"), ["eva", "tom"]);

    rig.post("/v1/cluster", json!({"listen": ["127.0.0.1:0"]})).json(201);
    rig.post("/v1/volumes", json!({"name": "shared", "size": 4 * MIB, "copies": 1})).json(201);
    let would = |choice: Value| rig.put("/v1/volumes/shared/split-brain-policy?dry_run=true", choice);
    let said = would(prefer).json(200);
    assert_eq!(
        said["would"],
        json!(["volume shared waits for quorum: only the preferred node, or a majority, continues"])
    );
    let heartbeat = |accept: bool| json!({"policy": "heartbeat", "by": "eva", "accept_split_brain": accept});
    would(heartbeat(false)).refused(422, "risk_not_accepted");
    would(heartbeat(true)).refused(409, "not_of_two");
    assert!(rig.get("/v1/volumes/shared").json(200).get("split_brain_policy").is_none());
}
