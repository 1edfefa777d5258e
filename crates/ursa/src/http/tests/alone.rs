//! Volumes that a node has alone, seen and changed through others.

use serde_json::{Value, json};

use super::errands::{cluster_of, free_address, wait};
use super::rig::{MIB, Rig};

const TARGET: &str = "iqn.2026-11.io.ursa:other";

/// A volume of this node alone.
fn make(rig: &Rig, name: &str, size: u64) -> Value {
    rig.post("/v1/volumes", json!({"name": name, "size": size, "map": false, "local": true})).json(201)
}

fn list(rig: &Rig) -> Value {
    rig.get("/v1/volumes").json(200)
}

#[test]
fn what_a_node_has_alone_is_seen_and_changed_through_another() {
    let (first, second) = (Rig::new(), Rig::new());
    cluster_of(&first, &second);
    let _carrying = first.carry_out();
    let made = make(&first, "own", 4 * MIB);
    assert_eq!((&made["node"], &made["node_name"], &made["copies"]), (&json!(1), &json!("test"), &json!([])));

    let mut there = made.clone();
    there["serving"] = json!(false);
    assert_eq!(list(&second), json!({"items": [there]}), "as its node tells, but not served here");
    assert_eq!(list(&first), json!({"items": [made]}));
    let id = made["id"].as_str().unwrap();
    for path in ["own", id, "own?node=1"] {
        assert_eq!(second.get(&format!("/v1/volumes/{path}")).json(200), there, "{path}");
    }
    assert_eq!(first.get("/v1/volumes/own?node=1").json(200), made);
    for rig in [&first, &second] {
        rig.get("/v1/volumes/own?node=2").refused(404, "volume_not_found");
        rig.get("/v1/volumes/own?node=7").refused(404, "node_not_found");
        rig.get("/v1/volumes/own?node=all").refused(400, "query_invalid");
    }

    let counted = second.get("/v1/volumes/own/counters").json(200);
    assert_eq!((&counted["node"], &counted["read"]["operations"]), (&json!(1), &json!(0)), "{counted}");
    second.get("/v1/volumes/own/counters?node=2").refused(404, "volume_not_found");

    let would = second.patch("/v1/volumes/own?dry_run=true", json!({"size": 6 * MIB})).json(200);
    assert!(would["would"][0].as_str().unwrap().contains("resized from 4M to 6M"), "{would}");
    let changed = second.patch("/v1/volumes/own", json!({"size": 6 * MIB, "name": "mine"})).json(200);
    assert_eq!(
        (&changed["name"], &changed["size"], &changed["node"], &changed["serving"]),
        (&json!("mine"), &json!(6 * MIB), &json!(1), &json!(false))
    );
    assert_eq!(first.get("/v1/volumes/mine").json(200)["size"], 6 * MIB);
    second.patch("/v1/volumes/mine?node=1", json!({"size": MIB})).refused(422, "would_shrink");
    second.patch("/v1/volumes/mine?node=2", json!({"name": "x"})).refused(404, "volume_not_found");
    second.post("/v1/volumes/mine/verify", json!({})).refused(409, "not_replicated");
    for dry_run in ["", "?dry_run=true"] {
        let copies = "/v1/volumes/mine/copies";
        for rig in [&first, &second] {
            rig.post(&format!("{copies}{dry_run}"), json!({"node": 1})).refused(409, "copy_exists");
        }
        first.delete(&format!("{copies}/1{dry_run}")).refused(409, "not_replicated");
        let problem = second.delete(&format!("{copies}/1{dry_run}")).refused(409, "not_replicated");
        assert!(problem["detail"].as_str().unwrap().contains("node 1 (test)"), "{problem}");
        assert_eq!(problem["candidates"][0]["node"], 1);
        second.delete(&format!("/v1/volumes/x/copies/1{dry_run}")).refused(404, "volume_not_found");
    }

    second.post("/v1/targets", json!({"name": TARGET})).json(201);
    let map = format!("/v1/targets/{TARGET}/maps");
    assert_eq!(second.post(&map, json!({"volume": "mine"})).json(201)["volume_id"], id);
    second.post(&format!("{map}?node=2"), json!({"volume": "mine"})).refused(404, "volume_not_found");
    assert_eq!(second.get("/v1/volumes/mine").json(200)["maps"][0]["target"], TARGET);

    second.delete("/v1/volumes/mine").refused(409, "volume_mapped");
    second.delete("/v1/volumes/mine?force=true&dry_run=true").json(200);
    second.delete("/v1/volumes/mine?force=true&node=1").empty(204);
    for rig in [&first, &second] {
        rig.get("/v1/volumes/mine").refused(404, "volume_not_found");
    }
}

#[test]
fn what_a_node_has_alone_has_no_strategy_and_no_fork() {
    let (first, second) = (Rig::new(), Rig::new());
    cluster_of(&first, &second);
    make(&first, "own", 4 * MIB);
    let prefer = json!({"strategy": "prefer", "by": "eva"});
    let heartbeat = json!({"strategy": "heartbeat", "by": "eva", "accept_split_brain": true});
    let keep = json!({"keep": 1, "discard_other": true});
    for (about, body) in
        [("split-brain-policy", prefer), ("split-brain-policy", heartbeat), ("split-brain", keep)]
    {
        for dry_run in ["", "?dry_run=true"] {
            let put = |rig: &Rig, name: &str| {
                rig.put(&format!("/v1/volumes/{name}/{about}{dry_run}"), body.clone())
            };
            put(&first, "own").refused(409, "not_replicated");
            let problem = put(&second, "own").refused(409, "not_replicated");
            assert!(problem["detail"].as_str().unwrap().contains("node 1 (test)"), "{problem}");
            assert_eq!(problem["candidates"][0]["node"], 1);
            put(&second, "nothing").refused(404, "volume_not_found");
        }
    }
}

#[test]
fn there_are_no_nodes_to_name_without_a_cluster() {
    let rig = Rig::new();
    assert_eq!(make(&rig, "own", MIB).get("node"), None);
    rig.get("/v1/volumes/own?node=1").refused(409, "no_cluster");
    rig.patch("/v1/volumes/own?node=1", json!({"name": "x"})).refused(409, "no_cluster");
    rig.delete("/v1/volumes/own?node=1").refused(409, "no_cluster");
    assert_eq!(rig.names("/v1/volumes"), ["own"]);
}

fn cluster_of_three() -> [Rig; 3] {
    let [first, second, third] = [Rig::new(), Rig::new(), Rig::new()];
    cluster_of(&first, &second);
    let made = first.post("/v1/cluster/tokens", json!({})).json(201);
    third.post("/v1/cluster/join", json!({"token": made["token"], "listen": [free_address()]})).empty(204);
    let all = [first, second, third];
    let sees_all = |rig: &Rig| {
        let nodes = rig.get("/v1/nodes").json(200)["items"].as_array().unwrap().clone();
        nodes.len() == 3 && nodes.iter().all(|node| node["up"] == true)
    };
    wait("three nodes that hear each other", || all.iter().all(sees_all));
    all
}

#[test]
fn what_fits_volumes_of_several_nodes_is_refused_until_the_node_is_named() {
    let [first, mut second, third] = cluster_of_three();
    let (_carrying, carrying) = (first.carry_out(), second.carry_out());
    make(&first, "db", 4 * MIB);
    make(&second, "db", 8 * MIB);
    let size = |rig: &Rig, path: &str| rig.get(&format!("/v1/volumes/{path}")).json(200)["size"].clone();

    assert_eq!(third.names("/v1/volumes"), ["db", "db"]);
    let problem = third.get("/v1/volumes/db").refused(409, "volume_ambiguous");
    let nodes: Vec<&Value> =
        problem["candidates"].as_array().unwrap().iter().map(|found| &found["node"]).collect();
    assert_eq!(nodes, [&json!(1), &json!(2)]);
    third.patch("/v1/volumes/db", json!({"name": "x"})).refused(409, "volume_ambiguous");
    third.delete("/v1/volumes/db").refused(409, "volume_ambiguous");
    assert_eq!((size(&third, "db?node=1"), size(&third, "db?node=2")), (json!(4 * MIB), json!(8 * MIB)));
    // What is called so here goes first.
    assert_eq!((size(&first, "db"), size(&second, "db")), (json!(4 * MIB), json!(8 * MIB)));
    assert_eq!(size(&first, "db?node=2"), 8 * MIB);

    let renamed = third.patch("/v1/volumes/db?node=2", json!({"name": "mail"})).json(200);
    assert_eq!((&renamed["name"], &renamed["node"]), (&json!("mail"), &json!(2)));
    assert_eq!((size(&third, "db"), size(&third, "mail")), (json!(4 * MIB), json!(8 * MIB)));

    third.post("/v1/targets", json!({"name": TARGET})).json(201);
    // One that does not answer may have a volume of that name, too.
    drop(carrying);
    second.stop();
    let problem = third.patch("/v1/volumes/db", json!({"name": "x"})).refused(503, "node_unreachable");
    assert!(problem["hint"].as_str().unwrap().contains("--node 1"), "{problem}");
    assert_eq!(size(&third, "db"), 4 * MIB, "it is shown all the same");
    let found = list(&third);
    assert_eq!(
        (&found["items"][0]["name"], &found["missing"][0]["node"]),
        (&json!("db"), &json!(2)),
        "{found}"
    );
    let problem = third.get("/v1/volumes/mail").refused(404, "volume_not_found");
    assert!(problem["hint"].as_str().unwrap().contains("node 2"), "{problem}");
    third.get("/v1/volumes/mail/counters").refused(404, "volume_not_found");
    let changes = [
        third.patch("/v1/volumes/mail", json!({"name": "x"})),
        third.delete("/v1/volumes/mail"),
        third.post(&format!("/v1/targets/{TARGET}/maps"), json!({"volume": "mail"})),
    ];
    for change in changes {
        let problem = change.refused(503, "node_unreachable");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("node 2") && detail.contains("nothing was done"), "{problem}");
    }
    assert_eq!(third.patch("/v1/volumes/db?node=1", json!({"name": "x"})).json(200)["name"], "x");
    let id = list(&third)["items"][0]["id"].as_str().unwrap().to_owned();
    third.delete(&format!("/v1/volumes/{id}")).empty(204);
}

/// More than are told at a time.
const MANY: usize = 150;

#[test]
fn many_are_told_page_by_page() {
    let (first, second) = (Rig::new(), Rig::new());
    cluster_of(&first, &second);
    let far = json!({"name": "far", "disks": [{"path": first.path("far.pool"), "size": 32 * MIB}]});
    first.post("/v1/pools", far).json(201);
    for number in 0..MANY {
        let name = format!("v{number:03}");
        let pool = if number % 3 == 0 { "far" } else { "default" };
        let new = json!({
            "name": name, "pool": pool, "size": 65536, "kind": "ram", "slices": 1, "map": false, "local": true,
        });
        first.post("/v1/volumes", new).json(201);
    }
    let found = list(&second);
    let names: Vec<&str> =
        found["items"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    let expected: Vec<String> = (0..MANY).map(|number| format!("v{number:03}")).collect();
    assert_eq!((names, found.get("missing")), (expected.iter().map(String::as_str).collect(), None));
}

#[test]
fn live_figures_of_others_are_read_one_by_one() {
    let (mut first, second) = (Rig::new(), Rig::new());
    cluster_of(&first, &second);
    let nodes = |query: &str| -> Vec<u64> {
        let found = second.get(&format!("/v1/live/sample{query}")).json(200);
        found["items"].as_array().unwrap().iter().map(|sample| sample["node"].as_u64().unwrap()).collect()
    };
    // Whoever asks has the nodes begin. A rig samples only while something is sent to it.
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
