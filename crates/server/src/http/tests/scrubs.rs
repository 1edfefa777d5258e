//! Scrubs through the API.

use serde_json::json;

use super::forwarding::{cluster_of, wait};
use super::rig::{MIB, Rig};

#[test]
fn a_volume_is_scrubbed_and_shows_the_result() {
    let rig = Rig::new();
    for kind in ["thick", "log"] {
        let new = json!({"name": kind, "size": 4 * MIB, "kind": kind, "map": false});
        let id = rig.post("/v1/volumes", new).json(201)["id"].as_str().unwrap().to_owned();
        let path = format!("/v1/volumes/{kind}");
        assert!(rig.get(&path).json(200)["scrub"].get("last").is_none());
        rig.get(&format!("{path}/scrub")).refused(404, "not_scrubbed");
        let scrub = rig.post(&format!("{path}/scrub"), json!({})).json(200);
        assert_eq!((&scrub["state"], &scrub["bad_blocks"]), (&json!("done"), &json!(0)), "{scrub}");
        assert_eq!((&scrub["done_bytes"], &scrub["total_bytes"]), (&json!(4 * MIB), &json!(4 * MIB)));
        assert_eq!(rig.get(&format!("{path}/scrub")).json(200)["state"], "done");
        let shown = rig.get(&path).json(200)["scrub"].clone();
        assert!(shown["last"].is_u64() && shown.get("overdue").is_none(), "{shown}");
        let job = rig.get(&format!("/v1/jobs/scrub.{id}.1")).json(200);
        assert_eq!((&job["kind"], &job["state"]), (&json!("scrub"), &json!("ended")), "{job}");
        rig.delete(&format!("/v1/jobs/scrub.{id}.1")).refused(409, "job_ended");
    }
    let ram = json!({"name": "ram", "size": MIB, "kind": "ram", "map": false});
    assert!(rig.post("/v1/volumes", ram).json(201).get("scrub").is_none());
    rig.post("/v1/volumes/ram/scrub", json!({})).refused(409, "not_scrubbable");
    rig.post("/v1/volumes/nothing/scrub", json!({})).refused(404, "volume_not_found");

    let jobs = rig.post("/v1/pools/default/scrub", json!({})).json(202);
    assert_eq!(jobs["items"].as_array().unwrap().len(), 2, "not the one in memory: {jobs}");
    let pool = || rig.get("/v1/pools/default").json(200)["scrub"].clone();
    wait("the pool is scrubbed", || pool()["unfinished"] == 0);
    assert!(pool()["oldest"].is_u64() && pool()["unrepaired_blocks"] == 0, "{}", pool());
    rig.post("/v1/pools/nothing/scrub", json!({})).refused(404, "pool_not_found");
}

#[test]
fn a_node_with_a_copy_scrubs_for_one_that_has_none() {
    let (first, second) = (Rig::new(), Rig::new());
    cluster_of(&first, &second);
    let (_carrying, _too) = (first.carry_out(), second.carry_out());
    let new = json!({"name": "db", "size": 4 * MIB, "nodes": [1], "map": false});
    let volume = first.post("/v1/volumes", new).json(201)["id"].as_str().unwrap().to_owned();
    wait("the volume is known", || second.get("/v1/volumes/db").status == 200);
    assert_eq!(second.post("/v1/volumes/db/scrub", json!({})).json(200)["state"], "done");
    let job = second.get(&format!("/v1/jobs/scrub.{volume}.1")).json(200);
    assert_eq!((&job["kind"], &job["node"]), (&json!("scrub"), &json!(1)), "{job}");
    first.get("/v1/volumes/db/scrub?node=7").refused(404, "node_not_found");
}
