//! Three nodes, one of them without copies: each answers for the whole cluster.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::Duration;

use e2e::Node;
use e2e::http::Http;
use serde_json::Value;

use crate::cluster::{cluster_of_three, pausable_job, wait, wait_until_in_sync};

/// Until a change has taken effect, or measurements have arrived: nodes measure every ten seconds.
const LIMIT: Duration = Duration::from_secs(60);

const TARGET: &str = "iqn.2026-11.io.ursa:shared";
const SECOND: &str = "iqn.2026-11.io.ursa:second";

/// All commands about the volume go to node 3, which has no copy of it until the end.
#[test]
fn a_volume_is_changed_through_a_node_that_has_no_copy() {
    let mut nodes = cluster_of_three();
    let done = |nodes: &[Node; 3], arguments: &[&str]| nodes[2].ursa(arguments).expect_ok();
    let told = |nodes: &[Node; 3], arguments: &[&str]| nodes[2].ursa_json(arguments);
    done(&nodes, &["volume", "create", "db", "--size", "64M", "--on", "1,2", "--target", TARGET]);
    wait_until_in_sync(&nodes[2], "db");
    assert_eq!(on(&nodes[2], "db"), [1, 2]);

    let grown = told(&nodes, &["volume", "resize", "db", "96M"]);
    assert_eq!(grown["size"], 96 << 20, "{grown}");
    done(&nodes, &["volume", "rename", "db", "mail"]);
    for node in &nodes {
        wait(LIMIT, "every node calls it so", || node.ursa(&["volume", "show", "mail"]).ok());
        assert_eq!(node.ursa_json(&["volume", "show", "mail"])["size"], 96 << 20);
    }
    assert_eq!(told(&nodes, &["volume", "verify", "mail"])["equal"], true);

    done(&nodes, &["target", "create", SECOND]);
    let mapped = told(&nodes, &["map", "create", SECOND, "mail", "--host", "any"]);
    assert_eq!((&mapped["volume"], &mapped["lun"]), (&Value::from("mail"), &Value::from(0)), "{mapped}");
    let names: BTreeSet<String> = told(&nodes, &["map", "list"])
        .as_array()
        .expect("a list")
        .iter()
        .map(|map| {
            format!("{} {}", map["target"].as_str().unwrap_or("?"), map["volume"].as_str().unwrap_or("?"))
        })
        .collect();
    assert_eq!(names, [format!("{TARGET} mail"), format!("{SECOND} mail")].into());
    done(&nodes, &["map", "delete", SECOND, "0", "--yes"]);

    // A copy is removed, and added again.
    done(&nodes, &["volume", "copy", "remove", "mail", "--on", "2", "--yes"]);
    wait(LIMIT, "the copy is gone", || on(&nodes[2], "mail") == [1]);
    done(&nodes, &["volume", "copy", "add", "mail", "--on", "2"]);
    wait_until_in_sync(&nodes[2], "mail");
    assert_eq!(on(&nodes[2], "mail"), [1, 2]);
    done(&nodes, &["volume", "copy", "rebuild", "mail", "--on", "2", "--yes"]);
    wait_until_in_sync(&nodes[2], "mail");

    // A resync is paused and resumed by commands to node 3.
    done(&nodes, &["node", "maintenance", "2", "on"]);
    wait(LIMIT, "there is something to copy", || pausable_job(&nodes[2]).is_some());
    let job = pausable_job(&nodes[2]).expect("it was there just now");
    assert_eq!(told(&nodes, &["job", "pause", &job])["state"], "paused");
    done(&nodes, &["node", "maintenance", "2", "off"]);
    assert_eq!(told(&nodes, &["job", "show", &job])["state"], "paused");
    done(&nodes, &["job", "resume", &job]);
    wait_until_in_sync(&nodes[2], "mail");

    // One file for volumes on different nodes.
    let file = nodes[2].data_dir().join("san.toml");
    let text = "[[volume]]\nname = \"mail\"\nsize = \"128M\"\non = [1, 2]\n\n[[volume]]\nname = \"other\"\nsize = \"32M\"\non = [1]\n";
    fs::write(&file, text).expect("a file can be written");
    let file = file.to_str().expect("our own path");
    done(&nodes, &["apply", "-f", file]);
    assert_eq!(told(&nodes, &["volume", "show", "mail"])["size"], 128 << 20);
    assert!(nodes[2].ursa(&["diff", "-f", file, "--exit-code"]).ok(), "nothing is left to do");

    // Node 2, the other one with a copy, does it. For a volume whose single copy is on the lost node, the
    // error names that node.
    nodes[0].kill();
    let renamed = || nodes[2].ursa(&["volume", "rename", "mail", "post"]).ok();
    wait(LIMIT, "node 2 renames it", renamed);
    let refused = || nodes[2].ursa(&["volume", "rename", "other", "another"]);
    wait(LIMIT, "it is known that nobody can", || refused().output.contains("nothing was done"));
    let said = refused();
    assert!(!said.ok() && said.output.contains("node 1"), "{said}");
    assert!(said.output.contains("ursa node list"), "it is said what to do: {said}");
    assert_eq!(told(&nodes, &["volume", "show", "other"])["size"], 32 << 20, "it is still shown");

    done(&nodes, &["volume", "delete", "post", "--force", "--yes"]);
    let gone = |node: &Node| !node.ursa(&["volume", "show", "post"]).ok();
    wait(LIMIT, "it is gone", || gone(&nodes[1]) && gone(&nodes[2]));
    nodes[0].restart();
    // At last node 3 gets a copy.
    let moved = || nodes[2].ursa(&["volume", "copy", "move", "other", "--from", "1", "--to", "3"]).ok();
    wait(LIMIT, "a copy comes to node 3", moved);
    wait(LIMIT, "it has moved", || on(&nodes[2], "other") == [3]);
}

/// All commands go to node 1; node 2 has the only copy.
#[test]
fn a_volume_whose_only_copy_is_on_another_node_is_worked_with_through_any() {
    let mut nodes = cluster_of_three();
    let done = |nodes: &[Node; 3], arguments: &[&str]| nodes[0].ursa(arguments).expect_ok();
    let told = |nodes: &[Node; 3], arguments: &[&str]| nodes[0].ursa_json(arguments);
    nodes[1].ursa(&["volume", "create", "own", "--size", "32M", "--no-map", "--copies", "1"]).expect_ok();

    let shown = told(&nodes, &["volume", "show", "own"]);
    assert_eq!(
        (&shown["copies"][0]["node"], &shown["serving"]),
        (&Value::from(2), &Value::from(false)),
        "{shown}"
    );
    assert_eq!(told(&nodes, &["volume", "list"])[0]["id"], shown["id"]);
    let grown = told(&nodes, &["volume", "resize", "own", "48M"]);
    assert_eq!(grown["size"], 48 << 20, "{grown}");
    assert_eq!(nodes[1].ursa_json(&["volume", "show", "own"])["size"], 48 << 20);
    done(&nodes, &["target", "create", TARGET]);
    let mapped = told(&nodes, &["map", "create", TARGET, "own", "--host", "any"]);
    assert_eq!(mapped["volume_id"], shown["id"], "{mapped}");
    // The name of a volume is unique in the cluster.
    let said = nodes[2].ursa(&["volume", "create", "own", "--size", "16M", "--no-map", "--copies", "1"]);
    assert!(!said.ok() && said.output.contains("already exists"), "{said}");
    assert_eq!(told(&nodes, &["volume", "rename", "own", "mail"])["name"], "mail");

    let status = told(&nodes, &["status"]);
    let pools: BTreeSet<u64> =
        status["pools"].as_array().into_iter().flatten().filter_map(|pool| pool["node"].as_u64()).collect();
    assert_eq!((pools, &status["volumes"]), ([1, 2, 3].into(), &Value::from(1)), "{status}");
    assert!(status["losses"].to_string().contains("if node 2 is lost: mail"), "{status}");

    nodes[1].kill();
    let is_missed = || nodes[0].ursa(&["status"]).output.contains("mail is unavailable");
    wait(LIMIT, "it is said that it is not served", is_missed);
    nodes[1].restart();
    // Until it has heard from the leader, it may not know the name, and says so. *Not found* would mean that
    // the volume is gone.
    let is_served = || {
        let shown = nodes[1].ursa(&["volume", "show", "mail", "-o", "json"]);
        assert!(!shown.output.contains("not found"), "{shown}");
        shown.ok() && serde_json::from_str::<Value>(&shown.stdout).expect("JSON")["serving"] == true
    };
    wait(LIMIT, "it is served again", is_served);
    done(&nodes, &["volume", "delete", "mail", "--force", "--yes"]);
    for node in &nodes {
        wait(LIMIT, "it is gone", || !node.ursa(&["volume", "show", "mail"]).ok());
    }
}

/// One node shows what is happening, and has happened, on all nodes; and which nodes are missing.
#[test]
fn one_node_shows_live_figures_of_all() {
    let mut nodes = cluster_of_three();
    let http = Http::viewer(&nodes[2]);
    let mut live = http.follow("/v1/live?node=all");
    for number in 1..=3 {
        let sample = live.until(LIMIT, "sample", |sample| sample["node"] == number);
        assert!(!sample["cores"].as_array().expect("cores").is_empty(), "{sample}");
    }
    let measured = || -> BTreeSet<u64> {
        let history = http.get("/v1/history?node=all&series=cpu");
        let series = history["series"].as_array().expect("series").iter();
        let has_points =
            |one: &&Value| one["points"].as_array().is_some_and(|points| points.iter().any(Value::is_number));
        series.filter(has_points).filter_map(|one| one["node"].as_u64()).collect()
    };
    wait(LIMIT, "figures of all nodes", || measured() == [1, 2, 3].into());
    assert!(http.get("/v1/history?node=all&series=cpu").get("missing").is_none());

    nodes[0].kill();
    let missing = live.until(LIMIT, "missing", |missing| missing["node"] == 1);
    assert!(missing["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{missing}");
    // The others continue.
    for number in 2..=3 {
        live.until(LIMIT, "sample", |sample| sample["node"] == number);
    }
    let history = http.get("/v1/history?node=all&series=cpu");
    let is_missing: Vec<u64> =
        history["missing"].as_array().into_iter().flatten().filter_map(|one| one["node"].as_u64()).collect();
    assert_eq!(is_missing, [1], "{history}");
    assert_eq!(measured(), [2, 3].into());

    let frame = nodes[2].ursa_json(&["top", "--once", "--node", "2"]);
    assert!(frame["node"].as_str().is_some_and(|node| node.starts_with("node 2 (")), "{frame}");
    assert!(!frame["cores"].as_array().expect("cores").is_empty(), "{frame}");
    let frame = nodes[2].ursa_json(&["top", "--once", "--node", "all"]);
    let on: BTreeSet<u64> =
        frame["cores"].as_array().expect("cores").iter().filter_map(|core| core["node"].as_u64()).collect();
    assert_eq!((on, &frame["missing"][0]["node"]), ([2, 3].into(), &Value::from(1)), "{frame}");

    let told = nodes[2].ursa_json(&["history", "cpu", "--node", "all"]);
    assert_eq!(
        (&told["missing"][0]["node"], &told["series"][0]["series"]),
        (&Value::from(1), &Value::from("cpu"))
    );
    let told = nodes[2].ursa(&["history", "cpu", "--since", "10m", "--node", "all"]);
    assert!(told.ok() && told.stdout.contains("2:cpu") && !told.stdout.contains("MISSING"), "{told}");
    assert!(told.output.contains("MISSING: node 1"), "{told}");
    assert!(
        nodes[2].ursa(&["history", "--since", "5m"]).expect_ok().contains("pool_used_bytes"),
        "without a name all are told"
    );

    nodes[0].restart();
    live.until(LIMIT, "back", |back| back["node"] == 1);
    live.until(LIMIT, "sample", |sample| sample["node"] == 1);
    // Its earlier measurements are kept.
    wait(LIMIT, "figures of all nodes again", || measured() == [1, 2, 3].into());
}

/// A node shows the audit log and events of other nodes, also after a node has returned.
#[test]
fn one_node_shows_the_audit_log_and_events_of_all() {
    let mut nodes = cluster_of_three();
    nodes[1].ursa(&["target", "create", SECOND]).expect_ok();
    let audit = |nodes: &[Node; 3]| nodes[0].ursa_json(&["audit", "--node", "all", "--limit", "1000"]);
    let deeds = audit(&nodes);
    let made: Vec<&Value> = deeds["items"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|deed| deed["action"] == "POST /v1/targets")
        .collect();
    assert_eq!(made.len(), 1, "{deeds}");
    assert_eq!((&made[0]["node"], &made[0]["status"]), (&Value::from(2), &Value::from(201)), "{deeds}");
    let text = nodes[0].ursa(&["audit", "--node", "2"]).expect_ok();
    assert!(text.contains("POST /v1/targets") && text.contains("NODE"), "{text}");
    let text = nodes[0].ursa(&["audit"]).expect_ok();
    assert!(!text.contains("POST /v1/targets"), "its own log has what it was asked itself: {text}");

    let http = Http::viewer(&nodes[0]);
    // The nodes that report each event of this code.
    let tellers = |code: &str, node: Option<u64>| -> Vec<Vec<u64>> {
        let all = http.get("/v1/events?node=all&limit=1000");
        let events = all["items"].as_array().expect("a list").iter();
        let is_meant =
            |event: &&Value| event["code"] == code && node.is_none_or(|node| event["node"] == node);
        let numbers = |event: &Value| -> Vec<u64> {
            let mut by: Vec<u64> =
                event["seen_by"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
            by.sort_unstable();
            by
        };
        events.filter(is_meant).map(numbers).collect()
    };
    wait(LIMIT, "all have seen it, and it is told once", || {
        tellers("target_created", None) == [vec![1, 2, 3]]
    });

    nodes[2].kill();
    wait(LIMIT, "both miss it", || {
        let told = tellers("node_lost", Some(3));
        told.iter().flatten().collect::<BTreeSet<_>>() == [1, 2].iter().collect()
    });
    wait(LIMIT, "it cannot be asked", || audit(&nodes)["missing"][0]["node"] == 3);
    assert_eq!(audit(&nodes)["missing"].as_array().map(Vec::len), Some(1));
    let missing = http.get("/v1/events?node=all");
    assert_eq!(missing["missing"][0]["node"], 3, "{missing}");

    nodes[2].restart();
    wait(LIMIT, "it is asked again", || audit(&nodes).get("missing").is_none());
    let deeds = audit(&nodes);
    let joined = |deed: &Value| deed["node"] == 3 && deed["action"] == "POST /v1/cluster/join";
    assert!(deeds["items"].as_array().expect("a list").iter().any(joined), "from before: {deeds}");
}

/// A verify on node 2 is shown and canceled through node 1, and all nodes show how it ended.
#[test]
fn a_verify_of_another_node_is_shown_and_its_end_reported() {
    let nodes = cluster_of_three();
    let create = ["volume", "create", "db", "--size", "512M", "--on", "2,3", "--target", TARGET];
    nodes[0].ursa(&create).expect_ok();
    wait_until_in_sync(&nodes[0], "db");
    let volume = nodes[0].ursa_json(&["volume", "show", "db"])["id"].as_str().expect("it has one").to_owned();
    let http = Http::viewer(&nodes[0]);
    let under_way = || -> Option<Value> {
        let jobs = http.get("/v1/jobs?node=all");
        jobs["items"].as_array()?.iter().find(|job| job["kind"] == "verify").cloned()
    };
    let id = format!("verify.{volume}.2");
    let path = format!("/v1/jobs/{id}");

    thread::scope(|scope| {
        let compared = scope.spawn(|| nodes[1].ursa_json(&["volume", "verify", "db"]));
        wait(LIMIT, "node 1 sees it", || under_way().is_some_and(|job| job["node"] == 2 && job["id"] == *id));
        assert_eq!(compared.join().expect("it does not panic")["equal"], true);
    });
    let job = http.get(&path);
    assert_eq!((&job["state"], &job["ended"]["found"]["equal"]), (&Value::from("ended"), &Value::from(true)));
    assert_eq!(under_way(), None);

    thread::scope(|scope| {
        let compared = scope.spawn(|| nodes[1].ursa(&["volume", "verify", "db"]));
        wait(LIMIT, "node 1 sees it again", || under_way().is_some());
        nodes[0].ursa(&["job", "cancel", &id, "--yes"]).expect_ok();
        assert!(!compared.join().expect("it does not panic").ok(), "not all was compared");
    });
    let shown = nodes[0].ursa(&["job", "show", &id]).expect_ok();
    assert!(shown.contains("cancelled") && shown.contains("stopped before it was complete"), "{shown}");
    let states = |node: &Node| -> Vec<Value> {
        let ended = node.ursa_json(&["job", "list", "--ended", "--node", "all"]);
        let of_verify = ended["items"].as_array().into_iter().flatten().filter(|job| job["id"] == *id);
        of_verify.map(|job| job["state"].clone()).collect()
    };
    for node in &nodes {
        assert_eq!(states(node), ["cancelled", "ended"]);
    }

    // Every node has itself seen what happened to copies.
    nodes[0].ursa(&["volume", "copy", "remove", "db", "--on", "3", "--yes"]).expect_ok();
    let copy = format!("copy.{volume}.3");
    for node in &nodes {
        let has_ended = || {
            let shown = node.ursa(&["job", "show", &copy]);
            shown.ok() && shown.output.contains("remove_copy") && shown.output.contains("ended")
        };
        wait(LIMIT, "its end is told", has_ended);
        let listed = node.ursa(&["job", "list", "--ended"]).expect_ok();
        assert!(listed.contains(&copy), "{listed}");
    }
}

/// The nodes that a volume has copies on.
fn on(node: &Node, volume: &str) -> Vec<u64> {
    let shown = node.ursa_json(&["volume", "show", volume]);
    shown["copies"].as_array().into_iter().flatten().filter_map(|copy| copy["node"].as_u64()).collect()
}
