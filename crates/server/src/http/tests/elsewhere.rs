//! Volumes with copies on other nodes only, shown and changed through a node without a copy.

use serde_json::json;

use super::forwarding::{cluster_of, wait};
use super::rig::{MIB, Rig};

const TARGET: &str = "iqn.2026-11.io.ursa:other";

#[test]
fn a_volume_is_shown_and_changed_through_a_node_without_a_copy() {
    let (first, second) = (Rig::new(), Rig::new());
    cluster_of(&first, &second);
    let _carrying = first.carry_out();
    let new = json!({"name": "own", "size": 4 * MIB, "map": false, "copies": 1});
    let made = first.post("/v1/volumes", new).json(201);
    let id = made["id"].as_str().unwrap();
    assert_eq!((&made["copies"][0]["node"], &made["serving"]), (&json!(1), &json!(true)), "{made}");

    let mut there = made.clone();
    (there["serving"], there["copies"][0]["here"]) = (json!(false), json!(false));
    let shown = |rig: &Rig, path: &str| {
        let mut shown = rig.get(&format!("/v1/volumes/{path}")).json(200);
        // Failure tolerance depends on what is known about the nodes.
        shown.as_object_mut().unwrap().remove("losses");
        shown
    };
    // Only the node with the copy knows about its scrubs.
    for field in ["losses", "scrub"] {
        there.as_object_mut().unwrap().remove(field);
    }
    for path in ["own", id] {
        assert_eq!(shown(&second, path), there, "{path}");
    }
    assert_eq!(second.names("/v1/volumes"), ["own"]);
    let counted = second.get("/v1/volumes/own/counters").json(200);
    assert_eq!((&counted["node"], &counted["read"]["operations"]), (&json!(1), &json!(0)), "{counted}");

    let would = second.patch("/v1/volumes/own?dry_run=true", json!({"size": 6 * MIB})).json(200);
    assert!(would["would"][0].as_str().unwrap().contains("resized from 4M to 6M"), "{would}");
    let changed = second.patch("/v1/volumes/own", json!({"size": 6 * MIB, "name": "mine"})).json(200);
    assert_eq!(
        (&changed["name"], &changed["size"], &changed["serving"]),
        (&json!("mine"), &json!(6 * MIB), &json!(false))
    );
    wait("the other node knows it", || first.get("/v1/volumes/mine").json(200)["size"] == 6 * MIB);
    second.patch("/v1/volumes/mine", json!({"size": MIB})).refused(422, "would_shrink");
    for dry_run in ["", "?dry_run=true"] {
        let copies = "/v1/volumes/mine/copies";
        for rig in [&first, &second] {
            rig.post(&format!("{copies}{dry_run}"), json!({"node": 1})).refused(409, "copy_exists");
            rig.delete(&format!("{copies}/1{dry_run}")).refused(409, "only_in_sync");
        }
        second.delete(&format!("/v1/volumes/x/copies/1{dry_run}")).refused(404, "volume_not_found");
    }

    second.post("/v1/targets", json!({"name": TARGET})).json(201);
    let map = format!("/v1/targets/{TARGET}/maps");
    assert_eq!(second.post(&map, json!({"volume": "mine"})).json(201)["volume_id"], id);
    assert_eq!(second.get("/v1/volumes/mine").json(200)["maps"][0]["target"], TARGET);

    second.delete("/v1/volumes/mine").refused(409, "volume_mapped");
    second.delete("/v1/volumes/mine?force=true&dry_run=true").json(200);
    second.delete("/v1/volumes/mine?force=true").empty(204);
    for rig in [&first, &second] {
        wait("it is gone", || rig.get("/v1/volumes/mine").status == 404);
    }
}

/// More volumes than fit in one question.
const MANY: usize = 150;

#[test]
fn many_are_listed() {
    let (first, second) = (Rig::new(), Rig::new());
    cluster_of(&first, &second);
    let names: Vec<String> = (0..MANY).map(|number| format!("v{number:03}")).collect();
    for name in &names {
        let new = json!({
            "name": name, "size": 65536, "kind": "ram", "slices": 1, "map": false, "copies": 1,
        });
        first.post("/v1/volumes", new).json(201);
    }
    wait("the second node shows all", || second.names("/v1/volumes") == names);
}

#[test]
fn live_figures_of_others_are_read_one_by_one() {
    let (mut first, second) = (Rig::new(), Rig::new());
    cluster_of(&first, &second);
    let nodes = |query: &str| -> Vec<u64> {
        let found = second.get(&format!("/v1/live/sample{query}")).json(200);
        found["items"].as_array().unwrap().iter().map(|sample| sample["node"].as_u64().unwrap()).collect()
    };
    // Requests start the sampling. A rig samples only while requests are sent to it.
    wait("this node has a sample", || nodes("") == [2]);
    wait("the other one has one, too", || {
        let _ = first.get("/v1/live/sample");
        nodes("?node=1") == [1]
    });
    wait("both have one", || {
        let _ = first.get("/v1/live/sample");
        nodes("?node=all") == [2, 1]
    });
    second.get("/v1/live/sample?node=7").refused(404, "node_not_found");
    second.get("/v1/live/sample?node=x").refused(400, "query_invalid");
    first.stop();
    let found = second.get("/v1/live/sample?node=all").json(200);
    assert_eq!(found["missing"][0]["node"], 1, "{found}");
}
