//! Two nodes of a cluster, and calls to the one without a copy of the volume.

use std::thread;
use std::time::{Duration, Instant};

use ::node::PeerRequests;
use ::node::control::FORWARD_DEADLINE;
use api::Role;
use axum::body::Body;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderValue, Request};
use initiator::{Options, Session};
use serde_json::{Value, json};

use super::rig::{Answer, MIB, Rig, with_json};
use crate::http::forwarding::Forwarding;

/// Until two nodes have connected, on a busy machine.
const CLUSTER_LIMIT: Duration = Duration::from_secs(60);

const TARGET: &str = "iqn.2026-11.io.ursa:other";

#[track_caller]
pub(super) fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + CLUSTER_LIMIT;
    while !is_so() {
        assert!(Instant::now() < end, "{what}: not within {CLUSTER_LIMIT:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// An address for the links of a node, so that other nodes can find it.
pub(super) fn free_address() -> String {
    e2e::ports::free().to_string()
}

/// Makes these two nodes 1 and 2 of a cluster.
pub(super) fn cluster_of(first: &Rig, second: &Rig) {
    first.post("/v1/cluster", json!({"listen": [free_address()]})).json(201);
    let made = first.post("/v1/cluster/tokens", json!({})).json(201);
    second.post("/v1/cluster/join", json!({"token": made["token"], "listen": [free_address()]})).empty(204);
    // Of two nodes only one votes.
    let both_up = |rig: &Rig| {
        let list = rig.get("/v1/nodes").json(200)["items"].as_array().unwrap().clone();
        list.len() == 2 && list.iter().all(|node| node["up"] == true)
    };
    wait("two nodes that hear each other", || both_up(first) && both_up(second));
}

/// Creates a volume of the cluster with a single copy on node 1.
fn make(rig: &Rig, name: &str) -> Answer {
    rig.post("/v1/volumes", json!({"name": name, "size": 4 * MIB, "nodes": [1], "map": false}))
}

/// A script takes "not found" for "deleted", and creates what it did not find.
#[test]
fn an_object_created_on_one_node_is_found_by_the_other_at_once() {
    let (first, second) = (Rig::new(), Rig::new());
    cluster_of(&first, &second);
    for number in 0..20 {
        let name = format!("v{number}");
        let far = json!({"name": name, "size": 2 * MIB, "nodes": [2], "map": false});
        first.post("/v1/volumes", far).json(201);
        // At this time, the node with the copy writes to the record.
        let lost = json!({"name": "lost", "size": 2 * MIB, "nodes": [2], "host": "nobody"});
        first.post("/v1/volumes", lost).refused(404, "host_not_found");
        first.get("/v1/volumes/nothing").refused(404, "volume_not_found");
        second.get(&format!("/v1/volumes/{name}")).json(200);
        second.delete(&format!("/v1/volumes/{name}")).empty(204);
        first.get(&format!("/v1/volumes/{name}")).refused(404, "volume_not_found");
    }
}

#[test]
fn requests_to_a_node_without_a_copy_are_executed_by_one_that_has_one() {
    let (first, second) = (Rig::new(), Rig::new());
    cluster_of(&first, &second);
    let _carrying = first.carry_out();
    make(&second, "db").json(201);

    let would = second.patch("/v1/volumes/db?dry_run=true", json!({"size": 6 * MIB, "name": "mail"}));
    let would = would.json(200)["would"].clone();
    assert_eq!(would.as_array().unwrap().len(), 2, "{would}");
    let changed = second.patch("/v1/volumes/db", json!({"size": 6 * MIB, "name": "mail"})).json(200);
    assert_eq!((&changed["name"], &changed["size"]), (&json!("mail"), &json!(6 * MIB)));
    // The response comes from the other node, but is adapted to this one.
    assert_eq!((&changed["copies"][0]["here"], &changed["serving"]), (&json!(false), &json!(false)));
    let shown = |rig: &Rig| rig.get("/v1/volumes/mail").json(200);
    assert_eq!(shown(&second)["size"], 6 * MIB, "what was changed is seen at once where it was asked for");
    assert_eq!(
        (&shown(&first)["size"], &shown(&first)["copies"][0]["here"]),
        (&json!(6 * MIB), &json!(true))
    );

    let problem = second.patch("/v1/volumes/mail", json!({"size": MIB})).refused(422, "would_shrink");
    assert_eq!(problem, first.patch("/v1/volumes/mail", json!({"size": MIB})).refused(422, "would_shrink"));
    second.patch("/v1/volumes/mail", json!({"pool": "x"})).refused(422, "field_invalid");
    second.patch("/v1/volumes/nothing", json!({"name": "x"})).refused(404, "volume_not_found");
    let text = Request::patch("/v1/volumes/mail").body(Body::from("{}")).unwrap();
    second.send(text).refused(415, "not_json");

    second.post("/v1/targets", json!({"name": TARGET})).json(201);
    let map = format!("/v1/targets/{TARGET}/maps");
    let post = |key: &'static str| {
        let mut request = with_json("POST", &map, &json!({"volume": "mail"}));
        request.headers_mut().insert("idempotency-key", HeaderValue::from_static(key));
        second.send(request)
    };
    let mapped = post("a").json(201);
    assert_eq!((&mapped["volume"], &mapped["lun"]), (&json!("mail"), &json!(0)));
    let again = post("a");
    assert_eq!(
        (again.json(201), &again.headers["idempotency-replayed"]),
        (mapped, &HeaderValue::from_static("true"))
    );
    let target = second.get(&format!("/v1/targets/{TARGET}")).json(200);
    assert_eq!((&target["maps"][0]["volume"], target["maps"].as_array().unwrap().len()), (&json!("mail"), 1));
    second.post(&map, json!({"volume": "mail", "host": "nobody"})).refused(404, "host_not_found");
    second.post(&map, json!({"volume": 5})).refused(422, "field_invalid");

    let verified = second.post("/v1/volumes/mail/verify", json!({})).json(200);
    assert_eq!(verified["equal"], true, "{verified}");
    second.post("/v1/volumes/mail/copies", json!({"node": 1})).refused(409, "copy_exists");
    second.post("/v1/volumes/mail/copies?dry_run=true", json!({"node": 2})).json(200);
    second.delete("/v1/volumes/mail/copies/1?dry_run=true").refused(409, "only_in_sync");

    second.delete("/v1/volumes/mail").refused(409, "volume_mapped");
    second.delete("/v1/volumes/mail?force=true&dry_run=true").json(200);
    second.delete("/v1/volumes/mail?force=true").empty(204);
    for rig in [&first, &second] {
        rig.get("/v1/volumes/mail").refused(404, "volume_not_found");
    }

    // The audit log of the queried node has the call, the caller and the result.
    let deeds = |rig: &Rig| -> Vec<Value> {
        let list = rig.get("/v1/audit").json(200)["items"].as_array().unwrap().clone();
        let on_volume =
            |deed: &Value| deed["action"].as_str().is_some_and(|text| text.contains("/v1/volumes/"));
        list.into_iter().filter(on_volume).collect()
    };
    let (here, there) = (deeds(&second), deeds(&first));
    let last = json!("DELETE /v1/volumes/mail");
    assert_eq!(
        (&here[0]["action"], &here[0]["status"], &here[0]["who"]),
        (&last, &json!(204), &json!("local"))
    );
    assert_eq!((&here[1]["action"], &here[1]["code"]), (&last, &json!("volume_mapped")));
    // So does the audit log of the executing node, with the node that forwarded it.
    let (asked, carried): (Vec<&Value>, Vec<&Value>) =
        there.iter().partition(|deed| deed["address"] != "through node test");
    assert_eq!(asked.len(), 1, "what that node was asked itself: {there:?}");
    assert_eq!(
        (&carried[0]["action"], &carried[0]["status"], &carried[0]["who"]),
        (&last, &json!(204), &json!("local"))
    );
    assert_eq!((&carried[1]["action"], &carried[1]["code"]), (&last, &json!("volume_mapped")));
    let deletions = carried.iter().filter(|deed| deed["action"] == last);
    assert_eq!(deletions.count(), 2, "what was only asked for is no deed: {carried:?}");
}

#[test]
fn forwarded_changes_are_refused_if_they_cannot_be_logged() {
    let first = Rig::prepared(|dir| std::fs::write(dir.join("audit"), "in the way").unwrap());
    let second = Rig::new();
    cluster_of(&first, &second);
    let _carrying = first.carry_out();
    make(&second, "db").json(201);
    // The caller has the local token of node 2.
    let rename = |rig: &Rig, query: &str| {
        let path = format!("/v1/volumes/db{query}");
        rig.patch(&path, json!({"name": "mail"}))
    };
    let problem = rename(&second, "").refused(503, "audit_unavailable");
    assert!(problem["detail"].as_str().unwrap().contains("audit"), "{problem}");
    rename(&second, "?dry_run=true").json(200);
    assert_eq!(second.get("/v1/volumes/db/counters").json(200)["node"], 1);
    // With the local token of node 1 it still works.
    assert_eq!(rename(&first, "").json(200)["name"], "mail");
}

#[test]
fn copies_come_move_and_go_through_a_node_that_has_none() {
    let (first, second) = (Rig::new(), Rig::new());
    cluster_of(&first, &second);
    let (_carrying, _too) = (first.carry_out(), second.carry_out());
    make(&second, "db").json(201);
    let copies = |rig: &Rig| -> Vec<(u64, String)> {
        let volume = rig.get("/v1/volumes/db").json(200);
        let copies = volume["copies"].as_array().unwrap().iter();
        copies.map(|copy| (copy["node"].as_u64().unwrap(), copy["state"].as_str().unwrap().into())).collect()
    };
    let wait_for = |what: &str, nodes: &[u64]| {
        let wanted: Vec<(u64, String)> = nodes.iter().map(|node| (*node, "in_sync".into())).collect();
        wait(what, || copies(&first) == wanted && copies(&second) == wanted);
    };

    // Nodes may change the volume's entry at the same time: then the response says to try again.
    let add = |rig: &Rig, body: Value| {
        let mut added = Value::Null;
        wait("a copy is added", || {
            let answer = rig.post("/v1/volumes/db/copies", body.clone());
            if answer.status == 409 {
                answer.refused(409, "changed_meanwhile");
                return false;
            }
            added = answer.json(202);
            true
        });
        added
    };

    // A copy on the queried node: while the other node executes the forwarded call, it asks the queried one.
    let added = add(&second, json!({"node": 2}));
    assert_eq!((&added["name"], added["copies"].as_array().unwrap().len()), (&json!("db"), 2), "{added}");
    wait_for("both have it", &[1, 2]);
    // The copies are moved and removed, each through the node without one.
    second.delete("/v1/volumes/db/copies/1").empty(204);
    wait_for("node 2 alone has it", &[2]);
    wait("what was on node 1 is deleted", || {
        let pool = &first.get("/v1/pools").json(200)["items"][0];
        pool["volumes"] == 0
    });
    add(&first, json!({"node": 1, "instead_of": 2}));
    wait_for("it has moved to node 1", &[1]);
    add(&second, json!({"node": 2, "instead_of": 1}));
    wait_for("it has moved to node 2", &[2]);
}

#[test]
fn the_role_is_checked_for_changes_through_another_node() {
    let (first, second) = (Rig::new(), Rig::new());
    cluster_of(&first, &second);
    let _carrying = first.carry_out();
    make(&first, "db").json(201);
    wait("the volume is known", || second.get("/v1/volumes/db").status == 200);
    let rename_as = |role: &str, to: &str| {
        let token = second.post("/v1/tokens", json!({"name": role, "role": role})).json(201);
        let mut request = with_json("PATCH", "/v1/volumes/db", &json!({"name": to}));
        let secret = format!("Bearer {}", token["secret"].as_str().unwrap());
        request.headers_mut().insert(AUTHORIZATION, secret.parse().unwrap());
        second.send(request)
    };
    rename_as("viewer", "mail").refused(403, "role_too_low");
    assert_eq!(rename_as("operator", "mail").json(200)["name"], "mail");
    let deed = &second.get("/v1/audit").json(200)["items"][0];
    assert_eq!((&deed["who"], &deed["status"]), (&json!("operator"), &json!(200)), "{deed}");
}

#[test]
fn a_node_with_the_copy_that_cannot_be_asked_is_named_and_nothing_is_done() {
    let (mut first, second) = (Rig::new(), Rig::new());
    cluster_of(&first, &second);
    make(&second, "db").json(201);
    make(&first, "unseen").json(201);
    first.stop();
    let rename = |name: &str| second.patch(&format!("/v1/volumes/{name}"), json!({"name": "x"}));
    // The request may already be on a link that is being lost.
    wait("it is known that the node is gone", || match rename("db").status {
        503 => true,
        status => {
            assert_eq!(status, 504);
            false
        }
    });
    let problem = rename("db").refused(503, "copy_unreachable");
    assert_eq!(
        (&problem["candidates"][0]["node"], &problem["candidates"][0]["rule"]),
        (&json!(1), &json!("node_unreachable"))
    );
    assert!(problem["detail"].as_str().unwrap().contains("nothing was done"), "{problem}");
    assert!(problem["hint"].as_str().unwrap().contains("ursa node list"), "{problem}");
    // Both are in the record, whether or not the node has reported them.
    for name in ["db", "unseen"] {
        let shown = second.get(&format!("/v1/volumes/{name}")).json(200);
        assert_eq!(
            (&shown["size"], &shown["kind"], &shown["block_size"], &shown["copies"][0]["node"]),
            (&json!(4 * MIB), &json!("thick"), &json!(512), &json!(1))
        );
    }
    assert_eq!(second.get("/v1/volumes/unseen").json(200)["pool"], "");
    assert_eq!(second.names("/v1/volumes"), ["db", "unseen"]);
    // Without a majority of the voters, it is unknown whether the volume has been created since.
    second.get("/v1/volumes/nothing").refused(503, "record_unavailable");
}

#[test]
fn a_node_that_is_lost_while_it_carries_something_out_may_have_done_it() {
    let (mut first, second) = (Rig::new(), Rig::new());
    cluster_of(&first, &second);
    make(&second, "db").json(201);
    // Node 1 executes no forwarded calls.
    let problem = thread::scope(|scope| {
        let asked = scope.spawn(|| second.patch("/v1/volumes/db", json!({"name": "mail"})));
        wait("node 1 has it", || first.state.forwarding.waiting() == 1);
        first.stop();
        asked.join().unwrap().refused(504, "node_unanswered")
    });
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("node 1") && detail.contains("unknown whether"), "{problem}");
    assert!(problem["hint"].as_str().unwrap().contains("before you repeat it"), "{problem}");
}

#[test]
fn reads_of_another_node_have_a_shorter_timeout_than_changes() {
    let (first, second) = (Rig::new(), Rig::new());
    cluster_of(&first, &second);
    make(&second, "db").json(201);
    // Node 1 executes no forwarded calls.
    let began = Instant::now();
    let problem = second.get("/v1/volumes/db/counters").refused(503, "copy_unreachable");
    assert_eq!(problem["candidates"][0]["node"], 1);
    assert!(began.elapsed() < FORWARD_DEADLINE, "{:?}", began.elapsed());
}

#[test]
fn snapshots_are_compared_by_a_node_whose_copy_has_both() {
    let (first, second) = (Rig::new(), Rig::new());
    cluster_of(&first, &second);
    let new = json!({"name": "db", "kind": "log", "size": 4 * MIB, "nodes": [1], "map": false});
    first.post("/v1/volumes", new).json(201);
    for name in ["a", "b"] {
        first.post("/v1/snapshots", json!({"volumes": ["db"], "name": name})).json(201);
    }
    wait("the snapshots are known", || second.get("/v1/snapshots/b").status == 200);
    let path = "/v1/snapshots/b/diff?volume=db&since=a&limit=5";
    // Node 1 executes no forwarded calls.
    let problem = second.get(path).refused(503, "copy_unreachable");
    assert_eq!(problem["candidates"][0]["node"], 1);
    let _carrying = first.carry_out();
    let page = second.get(path).json(200);
    assert_eq!((&page["snapshot"], &page["ranges"]), (&json!("b"), &json!([])), "{page}");
    assert_eq!(page, first.get(path).json(200));
    // It says these itself.
    second.get("/v1/snapshots/b/diff?volume=db&since=none").refused(404, "snapshot_not_found");
    second.get("/v1/snapshots/b/diff?since=a").refused(400, "query_invalid");
    let page = second.get("/v1/snapshots/b/diff?volume=db").json(200);
    assert_eq!((page.get("since"), &page["ranges"]), (None, &json!([])), "{page}");
    // Nodes themselves ask each other for what a snapshot has.
    let read = second.get("/v1/snapshots/b/data?volume=db&offset=4096&len=2097152");
    assert_eq!((read.status, read.text.len()), (200, 2 << 20));
}

#[test]
fn a_volume_is_created_although_its_node_does_not_report_it() {
    let first = Rig::with(
        |_| {},
        |config| config.peer_requests = PeerRequests::new(|_, _| Box::pin(std::future::pending())),
    );
    let second = Rig::new();
    cluster_of(&first, &second);
    let made = make(&second, "db").json(201);
    assert_eq!((&made["name"], &made["size"], &made["pool"]), (&json!("db"), &json!(4 * MIB), &json!("")));
    assert_eq!((&made["copies"][0]["node"], &made["epoch"]), (&json!(1), &json!(1)), "{made}");
    assert!(made["problem"].as_str().unwrap().contains("node 1"), "{made}");
    let known = first.get("/v1/volumes/db").json(200);
    for field in
        ["id", "naa", "slices", "block_size", "physical_block_size", "created", "kind", "maps", "copies"]
    {
        // Except for `here`, it is what the node itself reports.
        let mut of_node = known[field].clone();
        if field == "copies" {
            of_node[0]["here"] = json!(false);
        }
        assert_eq!(made[field], of_node, "{field}");
    }
    make(&second, "db").refused(409, "volume_exists");
    let shown = second.get("/v1/volumes/db").json(200);
    assert_eq!((&shown["slices"], &shown["pool"]), (&known["slices"], &json!("")));
    assert!(shown["problem"].as_str().unwrap().contains("node 1"), "{shown}");
}

#[test]
fn any_node_makes_tokens_and_says_that_nobody_joins_without_the_one_that_has_the_key() {
    let (first, second, third) = (Rig::new(), Rig::new(), Rig::new());
    cluster_of(&first, &second);
    let _carrying = first.carry_out();
    let nodes = || second.get("/v1/nodes").json(200)["items"].as_array().unwrap().clone();
    wait("node 1 says that it has the key", || nodes()[0]["authority"] == true);
    let made = second.post("/v1/cluster/tokens", json!({"valid_seconds": 60})).json(201);
    let problem = second.post("/v1/cluster/tokens", json!({"valid_seconds": 0}));
    assert_eq!(problem.refused(422, "field_invalid")["field"], "valid_seconds");
    third.post("/v1/cluster/join", json!({"token": made["token"], "listen": [free_address()]})).empty(204);
    let version = json!(env!("CARGO_PKG_VERSION"));
    wait("three nodes of this version", || {
        let nodes = nodes();
        nodes.len() == 3 && nodes.iter().all(|node| node["version"] == version)
    });
    assert_eq!((&nodes()[1]["authority"], &nodes()[2]["authority"]), (&json!(false), &json!(false)));
    let try_out = |node: u16| third.delete(&format!("/v1/nodes/{node}?dry_run=true"));
    wait("two others decide", || try_out(1).status == 200);
    assert!(try_out(1).text.contains("NO NODE CAN JOIN THE CLUSTER ANY MORE"), "{}", try_out(1).text);
    wait("two others decide", || try_out(2).status == 200);
    assert!(!try_out(2).text.contains("NO NODE CAN JOIN"), "{}", try_out(2).text);
}

#[test]
fn a_dry_run_of_removing_a_node_changes_nothing() {
    let (first, second) = (Rig::new(), Rig::new());
    cluster_of(&first, &second);
    make(&first, "db").json(201);
    let try_out = |query: &str| second.delete(&format!("/v1/nodes/1{query}"));
    wait("the volume is known", || second.get("/v1/volumes/db").status == 200);
    let problem = try_out("?dry_run=true").refused(409, "node_has_copies");
    assert_eq!(problem, try_out("").refused(409, "node_has_copies"));
    // The hint must not suggest to delete volumes with copies on other nodes.
    let hint = problem["hint"].as_str().unwrap();
    assert!(hint.contains("copy move db --from 1") && hint.contains("copy remove db --on 1"), "{hint}");
    assert!(!hint.contains("delete"), "{hint}");

    let would = first.delete("/v1/nodes/2?dry_run=true").json(200);
    let steps = would["would"].as_array().unwrap();
    assert!(steps[0].as_str().unwrap().starts_with("node 2 (test) is removed"), "{would}");
    assert_eq!(first.get("/v1/nodes").json(200)["items"].as_array().unwrap().len(), 2);
    first.delete("/v1/nodes/2").empty(204);
    assert_eq!(first.get("/v1/nodes").json(200)["items"].as_array().unwrap().len(), 1);
}

#[test]
fn pools_of_another_node_are_worked_with_through_the_one_that_is_asked() {
    let (mut first, second) = (Rig::new(), Rig::new());
    cluster_of(&first, &second);
    let carrying = first.carry_out();
    let new = json!({"name": "far", "disks": [{"path": first.path("far.pool"), "size": 32 * MIB}]});
    let made = second.post("/v1/pools?node=1", new.clone()).json(201);
    assert_eq!(
        (&made["name"], &made["node"], &made["node_name"]),
        (&json!("far"), &json!(1), &json!("test"))
    );
    assert_eq!((first.names("/v1/pools"), second.names("/v1/pools")), (far_too(), vec!["default".into()]));
    second.post("/v1/pools?node=1", new).refused(409, "pool_exists");
    assert_eq!(second.get("/v1/pools/far?node=1").json(200), made);
    second.get("/v1/pools/far").refused(404, "pool_not_found");
    second.get("/v1/pools/far?node=2").refused(404, "pool_not_found");
    second.get("/v1/pools/far?node=7").refused(404, "node_not_found");
    second.get("/v1/pools/far?node=all").refused(400, "query_invalid");
    second.get("/v1/pools/far?node=1&node=2").refused(400, "query_invalid");

    let disk = json!({"path": first.path("more.pool"), "size": 32 * MIB});
    let grown = second.post("/v1/pools/far/disks?node=1", disk).json(201);
    assert_eq!((&grown["disks"].as_array().unwrap().len(), &grown["node"]), (&2, &json!(1)));
    second.post("/v1/pools/far/disks?node=1", json!({"path": "x"})).refused(422, "field_invalid");
    let text = Request::post("/v1/pools/far/disks?node=1").body(Body::from(vec![0xff])).unwrap();
    second.send(text).refused(400, "json_syntax");
    second.post("/v1/pools/far/reopen?node=1", json!({})).refused(409, "pool_works");
    second.post("/v1/pools/far/reopen?node=1&dry_run=true", json!({})).refused(409, "pool_works");
    second.get("/v1/pools/far/remains?node=1").refused(409, "pool_open");
    second.post("/v1/pools/far/forget?node=1", json!({})).refused(409, "pool_open");
    second.post("/v1/pools/far/forget?node=1&dry_run=true", json!({})).refused(409, "pool_open");

    let would = second.post("/v1/pools/far/export?node=1&dry_run=true", json!({})).json(200);
    assert!(would["would"][0].as_str().unwrap().contains("pool far is closed"), "{would}");
    assert_eq!(first.names("/v1/pools"), far_too());
    second.post("/v1/pools/far/export?node=1", json!({})).empty(204);
    assert_eq!(first.names("/v1/pools"), ["default"]);
    let paths = json!({"paths": [first.path("far.pool"), first.path("more.pool")]});
    let would = second.post("/v1/pools/import?node=1&dry_run=true", paths.clone()).json(200);
    assert!(would["would"][0].as_str().unwrap().starts_with("pool far on "), "{would}");
    assert_eq!(first.names("/v1/pools"), ["default"]);
    assert_eq!(second.post("/v1/pools/import?node=1", paths).json(201)["node"], 1);
    assert_eq!((first.names("/v1/pools"), second.names("/v1/pools")), (far_too(), vec!["default".into()]));

    // The audit logs of both nodes have it.
    let deeds = |rig: &Rig| -> Vec<Value> {
        let list = rig.get("/v1/audit").json(200)["items"].as_array().unwrap().clone();
        list.into_iter().filter(|deed| deed["action"] == "POST /v1/pools/far/export?node=1").collect()
    };
    let (here, there) = (deeds(&second), deeds(&first));
    assert_eq!((here.len(), there.len()), (1, 1), "{here:?} {there:?}");
    for deed in [&here[0], &there[0]] {
        assert_eq!((&deed["who"], &deed["status"]), (&json!("local"), &json!(204)), "{deed}");
    }
    assert_eq!(there[0]["address"], "through node test");

    drop(carrying);
    first.stop();
    let export = || second.post("/v1/pools/far/export?node=1", json!({}));
    // The request may already be on a link that is being lost. A read is answered at once.
    second.get("/v1/pools/far?node=1").refused(503, "node_unreachable");
    wait("it is known that the node is gone", || export().status == 503);
    let problem = export().refused(503, "node_unreachable");
    assert!(problem["detail"].as_str().unwrap().contains("nothing was done"), "{problem}");
    assert_eq!(problem["candidates"][0]["node"], 1);
}

fn far_too() -> Vec<String> {
    vec!["default".into(), "far".into()]
}

#[test]
fn a_session_with_another_node_is_ended_through_the_one_that_is_asked() {
    let (first, second) = (Rig::new(), Rig::new());
    cluster_of(&first, &second);
    let _carrying = first.carry_out();
    let new = json!({"name": "db", "size": MIB, "kind": "ram", "copies": 1});
    first.post("/v1/volumes", new).json(201);
    let portal = first.state.portals[0];
    first.client(move || async move {
        let session = Session::connect(portal, "iqn.2026-11.io.ursa:db", &Options::default()).await.unwrap();
        // The session stays logged in.
        rt::spawn(async move {
            let _session = session;
            std::future::pending::<()>().await;
        })
        .detach();
    });
    let sessions = || second.get("/v1/sessions?node=1").json(200)["items"].as_array().unwrap().clone();
    // The session is listed shortly after the login response.
    wait("it is logged in", || !sessions().is_empty());
    let number = sessions()[0]["tsih"].as_u64().unwrap();
    let end = |query: &str| second.delete(&format!("/v1/sessions/{number}{query}"));
    end("").refused(404, "session_not_found");
    end("?node=2").refused(404, "session_not_found");
    end("?node=7").refused(404, "node_not_found");
    let would = end("?node=1&dry_run=true").json(200);
    let whose = format!("session {number} of ");
    assert!(would["would"][0].as_str().unwrap().starts_with(&whose), "{would}");
    assert_eq!(sessions().len(), 1);
    end("?node=1").empty(204);
    wait("it has ended", || sessions().is_empty());
}

#[test]
fn a_node_checks_the_role_behind_a_forwarded_request_itself() {
    let rig = Rig::new();
    rig.post("/v1/cluster", json!({"listen": [free_address()]})).json(201);
    let carried = |method, target, role| {
        rig.tokio().block_on(Forwarding::executed(rig.state.clone(), (method, target), role))
    };
    let export = "/v1/pools/default/export?node=1&dry_run=true";
    let (status, body) = carried("POST", export, Role::Operator);
    assert_eq!(status, 409, "{body}");
    assert!(body.contains("node_refused"), "{body}");
    assert_eq!(carried("POST", export, Role::Admin).0, 200);
    assert_eq!(carried("POST", "/v1/pools/default/reopen?node=1", Role::Viewer).0, 409);
    assert_eq!(carried("POST", "/v1/cluster/tokens", Role::Operator).0, 409);
    for (method, target) in [("GET", "/v1/users"), ("POST", "/v1/tokens"), ("GET", "/v1/pools")] {
        let (status, body) = carried(method, target, Role::Admin);
        assert!(status == 409 && body.contains("node_refused"), "{method} {target}: {status} {body}");
    }
    // A call for another node must not act on an object of the same name here.
    assert_eq!(carried("POST", "/v1/pools/default/export?node=2", Role::Admin).0, 500);
    assert_eq!(rig.names("/v1/pools"), ["default"]);
}
