//! Start, stop, kill: acknowledged changes survive.

use serde_json::json;
use tempfile::TempDir;

use crate::node::{Node, free_address, serve};

const TARGET: &str = "iqn.2026-11.io.ursa:db";

fn fill(node: &Node) {
    node.ok(&["volume", "create", "db", "--size", "1G"]);
    node.ok(&["volume", "create", "scratch", "--size", "64M", "--kind", "ram", "--no-map"]);
    node.ok(&["host", "create", "web", "--initiator", "iqn.2026-11.example:web", "--address", "10.0.0.0/8"]);
    node.ok(&["map", "create", TARGET, "db", "--host", "web"]);
    node.ok(&["volume", "resize", "db", "2G"]);
}

fn everything(node: &Node) -> Vec<serde_json::Value> {
    ["pool", "volume", "target", "map", "host"].map(|noun| node.json(&[noun, "list"])).into()
}

#[test]
fn sigterm_drains_and_keeps_everything() {
    let node = Node::start(&[]);
    fill(&node);
    let before = everything(&node);
    let (directory, status) = node.stop();
    assert_eq!(status.code(), Some(0));
    assert_eq!(everything(&Node::start_in(directory, &[])), before);
}

#[test]
fn a_node_whose_log_nobody_reads_serves_and_stops() {
    let (reader, log) = std::io::pipe().unwrap();
    drop(reader);
    let node = Node::start_with_log(TempDir::new().unwrap(), &["--log", "debug"], log);
    fill(&node);
    assert_eq!(node.stop().1.code(), Some(0));
}

#[test]
fn a_kill_keeps_everything() {
    let node = Node::start(&[]);
    fill(&node);
    let before = everything(&node);
    let node = Node::start_in(node.kill(), &[]);
    assert_eq!(everything(&node), before);
    let db = node.json(&["volume", "show", "db"]);
    assert_eq!(db["size"], json!(2u64 << 30));
    assert_eq!(
        db["maps"],
        json!([
            {"target": TARGET, "lun": 0, "host": "local"},
            {"target": TARGET, "lun": 0, "host": "web"},
        ])
    );
}

#[test]
fn volumes_named_at_the_start_are_created_once() {
    let arguments = ["--volume", "demo=1G", "--volume", "fast=64M,ram"];
    let node = Node::start(&arguments);
    let before = node.json(&["volume", "list"]);
    assert_eq!(before[0]["name"], "demo");
    assert_eq!(before[0]["maps"], json!([{"target": "iqn.2026-11.io.ursa:demo", "lun": 0, "host": "local"}]));
    assert_eq!((&before[1]["name"], &before[1]["kind"]), (&json!("fast"), &json!("ram")));
    let node = Node::start_in(node.kill(), &arguments);
    assert_eq!(node.json(&["volume", "list"]), before);
}

#[test]
fn a_first_start_that_was_cut_off_does_not_hinder_the_next() {
    let directory = tempfile::TempDir::new().unwrap();
    let pools = directory.path().join("data/pools");
    std::fs::create_dir_all(&pools).unwrap();
    // An earlier start created the file, and nothing more.
    std::fs::File::create(pools.join("default.img")).unwrap().set_len(8 << 30).unwrap();
    let node = Node::start_in(directory, &[]);
    assert_eq!(node.json(&["pool", "list"])[0]["state"], "online");
}

#[test]
fn the_default_pool_is_created_once() {
    let node = Node::start(&[]);
    node.ok(&["pool", "export", "default", "--yes"]);
    let node = Node::start_in(node.kill(), &[]);
    assert_eq!(node.json(&["pool", "list"]), json!([]));
    assert!(node.refused(1, &["volume", "create", "a", "--size", "1G"]).contains("ursa pool create"));
    let path = node.directory.path().join("data/pools/default.img");
    node.ok(&["pool", "import", path.to_str().unwrap()]);
    node.ok(&["volume", "create", "a", "--size", "1G"]);
}

/// A node must not start as a new one if its file system is missing.
#[test]
fn a_node_whose_state_is_gone_does_not_start_as_a_new_one() {
    let place = TempDir::new().unwrap();
    let marker = place.path().join("initialized");
    let arguments = ["--state-marker", marker.to_str().unwrap()];
    let node = Node::start(&arguments);
    fill(&node);
    let before = everything(&node);
    assert!(marker.exists(), "the first start is a single command");
    let (directory, _) = node.stop();
    let (data, away) = (directory.path().join("data"), directory.path().join("away"));
    std::fs::rename(&data, &away).unwrap();
    for unmounted in [false, true] {
        if unmounted {
            std::fs::create_dir(&data).unwrap();
        }
        let start = serve(&data, free_address(), free_address()).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&start.stderr).into_owned();
        assert!(said.contains("is its file system mounted?"), "{said}");
        assert_eq!(start.status.code(), Some(1));
        let made = std::fs::read_dir(&data).map(|entries| entries.count()).unwrap_or(0);
        assert_eq!(made, 0, "nothing was created");
    }
    std::fs::remove_dir(&data).unwrap();
    std::fs::rename(&away, &data).unwrap();
    let node = Node::start_in(directory, &arguments);
    assert_eq!(everything(&node), before);
    // Without the marker it starts as a new node.
    let directory = node.kill();
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::remove_file(&marker).unwrap();
    let node = Node::start_in(directory, &arguments);
    assert!(node.json(&["volume", "list"]).as_array().unwrap().is_empty() && marker.exists());
}
