//! Jobs of two nodes, through each of them, and their results.

use std::collections::BTreeSet;

use axum::http::HeaderValue;
use serde_json::{Value, json};

use super::forwarding::{cluster_of, wait};
use super::rig::{MIB, Rig, with_json};

/// The IDs of jobs except changes: which changes take long enough to be remembered depends on the machine.
fn ids(rig: &Rig, path: &str) -> BTreeSet<String> {
    let list = rig.get(path).json(200);
    let ids = list["items"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap().to_owned());
    ids.filter(|id| !id.starts_with("change.")).collect()
}

#[test]
fn every_node_shows_how_jobs_ended() {
    let (first, second) = (Rig::new(), Rig::new());
    cluster_of(&first, &second);
    let (_carrying, _too) = (first.carry_out(), second.carry_out());
    let new = json!({"name": "db", "size": 4 * MIB, "nodes": [1], "map": false});
    let volume = first.post("/v1/volumes", new).json(201)["id"].as_str().unwrap().to_owned();
    wait("the volume is known", || second.get("/v1/volumes/db").status == 200);

    // The other node executes the call. Each repetition gets the same response.
    let add = || {
        let mut request = with_json("POST", "/v1/volumes/db/copies", &json!({"node": 2}));
        request.headers_mut().insert("idempotency-key", HeaderValue::from_static("a"));
        let answer = second.send(request);
        answer.json(202);
        answer.headers["location"].to_str().unwrap().to_owned()
    };
    let copy = add();
    assert_eq!(copy, format!("/v1/jobs/copy.{volume}.2"));
    assert_eq!(add(), copy);
    for rig in [&first, &second] {
        wait("the copy is in sync", || rig.get(&copy).json(200)["state"] == "ended");
        let job = rig.get(&copy).json(200);
        let expected = (&json!("add_copy"), &json!(2), &json!("db"));
        assert_eq!((&job["kind"], &job["node"], &job["subject"]), expected, "{job}");
        assert!(job["ended"]["at"].is_u64() && job["ended"].get("reason").is_none(), "{job}");
    }

    // A verification belongs to the node that runs it.
    assert_eq!(first.post("/v1/volumes/db/verify", json!({})).json(200)["equal"], true);
    let compared = format!("/v1/jobs/verify.{volume}.1");
    for rig in [&first, &second] {
        let job = rig.get(&compared).json(200);
        assert_eq!((&job["state"], &job["node"]), (&json!("ended"), &json!(1)), "{job}");
        let found = json!({"equal": true, "different_bytes": 0, "unchecked_bytes": 0});
        assert_eq!(job["ended"]["found"], found, "{job}");
    }
    let (copy_id, compared_id) = (format!("copy.{volume}.2"), format!("verify.{volume}.1"));
    let both = BTreeSet::from([copy_id.clone(), compared_id.clone()]);
    assert_eq!(ids(&first, "/v1/jobs?ended=true"), both);
    assert_eq!(ids(&second, "/v1/jobs?ended=true"), [copy_id.clone()].into());
    assert_eq!(ids(&second, "/v1/jobs?ended=true&node=1"), both);
    assert_eq!(ids(&second, "/v1/jobs?ended=true&node=2"), [copy_id].into());
    assert_eq!(ids(&second, "/v1/jobs?ended=true&node=all"), both);
    for query in ["", "?node=all", "?ended=false&node=1"] {
        assert_eq!(ids(&second, &format!("/v1/jobs{query}")), BTreeSet::new(), "nothing is under way");
    }
    let all = second.get("/v1/jobs?ended=true&node=all").json(200);
    let ended: Vec<u64> =
        all["items"].as_array().unwrap().iter().map(|job| job["ended"]["at"].as_u64().unwrap()).collect();
    assert!(ended.is_sorted_by(|newer, older| newer >= older), "{all}");

    // The jobs have ended.
    for path in [&copy, &compared] {
        second.delete(path).refused(409, "job_ended");
        second.post(&format!("{path}/pause"), json!({})).refused(409, "job_ended");
    }
}

#[test]
fn an_unknown_job_is_not_found() {
    let rig = Rig::new();
    for id in ["copy.ab.2", "verify.ab.2", "change.5", "change.5.2", "%20"] {
        rig.get(&format!("/v1/jobs/{id}")).refused(404, "job_not_found");
        rig.delete(&format!("/v1/jobs/{id}")).refused(404, "job_not_found");
    }
    assert_eq!(rig.get("/v1/jobs").json(200), json!({"items": []}));
    rig.get("/v1/jobs?node=all").json(200);
    rig.get("/v1/jobs?node=2").refused(404, "node_not_found");
    for query in ["node=x", "ended=perhaps", "state=ended"] {
        rig.get(&format!("/v1/jobs?{query}")).refused(400, "query_invalid");
    }
    let (first, second) = (Rig::new(), Rig::new());
    cluster_of(&first, &second);
    let _carrying = first.carry_out();
    second.get("/v1/jobs?node=7").refused(404, "node_not_found");
    for id in ["verify.ab.7", "verify.ab.1", "change.900000.1"] {
        second.get(&format!("/v1/jobs/{id}")).refused(404, "job_not_found");
        // Only the ID determines which node is asked.
        second.get(&format!("/v1/jobs/{id}?node=7")).refused(404, "job_not_found");
    }
    let missing: Value = second.get("/v1/jobs?node=all").json(200)["missing"].clone();
    assert!(missing.is_null(), "both have told: {missing}");
}
