//! Pools that are created, lost and found again.

use std::path::Path;

use serde_json::json;

use crate::node::Node;

const TARGET: &str = "iqn.2026-11.io.ursa:db";

/// Starts a node with a second pool and a volume in it; also returns the pool's file.
fn with_second_pool() -> (Node, String) {
    let node = Node::start(&[]);
    let file = add_second_pool(&node);
    node.ok(&["volume", "create", "db", "--size", "100M", "--pool", "second"]);
    (node, file)
}

/// Adds a second pool to the node; returns its file.
pub fn add_second_pool(node: &Node) -> String {
    let file = node.directory.path().join("second.img").to_str().unwrap().to_owned();
    node.ok(&["pool", "create", "second", &file, "--size", "1G"]);
    file
}

/// Kills the node and starts it without the file of its second pool; returns where the file is now.
pub fn lose_file(node: Node, file: &str) -> (Node, String) {
    let directory = node.kill();
    let name = Path::new(file).file_name().unwrap();
    // The handle of the directory may be another one now, but its path is the same.
    let (here, away) = (directory.path().join(name), directory.path().join("away"));
    std::fs::rename(&here, &away).unwrap();
    (Node::start_in(directory, &[]), away.to_str().unwrap().to_owned())
}

#[test]
fn a_pool_that_is_gone_is_forgotten_and_returns() {
    let (node, file) = with_second_pool();
    let refused = node.refused(1, &["pool", "forget", "second", "--yes"]);
    assert!(refused.contains("open") && refused.contains("ursa pool export"), "{refused}");
    let (node, away) = lose_file(node, &file);
    let pool = node.json(&["pool", "show", "second"]);
    assert_eq!(pool["state"], "unavailable");

    let would = node.ok(&["pool", "forget", "second", "--dry-run"]);
    for part in [
        "Forget pool second",
        &file,
        "No such file",
        "its disks are not touched",
        &format!("LUN 0 of target {TARGET} for host group local stays, without effect"),
        "Nothing was changed",
        "- this node forgets pool second",
        "- it is unknown which volumes are forgotten with it: none of its disks can be read",
    ] {
        assert!(would.contains(part), "{part:?} is not in: {would}");
    }
    let unasked = node.refused(2, &["pool", "forget", "second"]);
    assert!(unasked.contains("--yes") && unasked.contains("forgets pool second"), "{unasked}");
    assert_eq!(node.json(&["pool", "list"]).as_array().unwrap().len(), 2);

    assert_eq!(node.ok(&["pool", "forget", "second", "--yes"]), "Pool second forgotten.\n");
    assert_eq!(node.json(&["pool", "list"]).as_array().unwrap().len(), 1);
    node.ok(&["pool", "import", &away]);
    let maps = &node.json(&["volume", "show", "db"])["maps"];
    assert_eq!(*maps, json!([{"target": TARGET, "lun": 0, "host": "local"}]));
}

#[test]
fn a_pool_is_forgotten_with_the_maps_of_its_volumes() {
    let (node, file) = with_second_pool();
    let (node, away) = lose_file(node, &file);
    let would = node.ok(&["pool", "forget", "second", "--unmap", "--dry-run"]);
    let taken = format!("- LUN 0 of target {TARGET} for host group local is unmapped");
    assert!(would.contains(&taken), "{would}");
    node.ok(&["pool", "forget", "second", "--unmap", "--yes"]);
    assert_eq!(node.json(&["target", "show", TARGET])["maps"], json!([]));
    node.ok(&["pool", "import", &away]);
    assert_eq!(node.json(&["volume", "show", "db"])["maps"], json!([]));
}

#[test]
fn a_pool_grows_with_its_file() {
    let (node, file) = with_second_pool();
    let refused = node.refused(1, &["pool", "grow", "second"]);
    assert!(refused.contains("no disk of the pool has grown") && refused.contains("truncate"), "{refused}");
    let total = |pool: &serde_json::Value| pool["total"].as_u64().unwrap();
    let before = total(&node.json(&["pool", "show", "second"]));
    std::fs::File::options().write(true).open(&file).unwrap().set_len(3 << 30).unwrap();
    node.refused(1, &["volume", "create", "big", "--size", "2G", "--pool", "second"]);
    let would = node.ok(&["pool", "grow", "second", "--dry-run"]);
    assert!(would.contains(&format!("of {file} instead of")), "{would}");
    assert_eq!(total(&node.json(&["pool", "show", "second"])), before, "that was only asked");
    let grown = node.json(&["pool", "grow", "second"]);
    assert_eq!(total(&grown), before + (2 << 30));
    node.ok(&["volume", "create", "big", "--size", "2G", "--pool", "second"]);
    let before = node.json(&["pool", "show", "second"]);
    let node = Node::start_in(node.kill(), &[]);
    assert_eq!(node.json(&["pool", "show", "second"]), before);
}

#[test]
fn a_pool_moves_to_another_disk() {
    let (node, file) = with_second_pool();
    let more = node.directory.path().join("more.img").to_str().unwrap().to_owned();
    node.ok(&["pool", "add-disk", "second", &more, "--size", "1G"]);
    let would = node.ok(&["pool", "remove-disk", "second", &file, "--dry-run"]);
    assert!(would.contains(&format!("are moved from {file} to the other disks")), "{would}");
    node.ok(&["pool", "remove-disk", "second", &file, "--yes"]);
    let began = std::time::Instant::now();
    let left = loop {
        let pool = node.json(&["pool", "show", "second"]);
        match pool["disks"].as_array().unwrap().len() {
            1 => break pool["disks"][0]["path"].clone(),
            _ => assert!(began.elapsed() < std::time::Duration::from_secs(60), "{pool}"),
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    };
    assert_eq!(left, json!(more));
    let before = node.json(&["pool", "show", "second"]);
    let node = Node::start_in(node.kill(), &[]);
    assert_eq!(node.json(&["pool", "show", "second"]), before);
    assert_eq!(node.json(&["volume", "list"]).as_array().unwrap().len(), 1);
}

#[test]
fn a_pool_gets_a_disk_more() {
    let (node, file) = with_second_pool();
    let more = node.directory.path().join("more.img").to_str().unwrap().to_owned();
    let would = node.ok(&["pool", "add-disk", "second", &more, "--size", "2G", "--dry-run"]);
    assert!(would.contains(&format!("- {more} is created for pool second")), "{would}");
    assert!(!Path::new(&more).exists(), "that was only asked");
    node.refused(1, &["volume", "create", "big", "--size", "2G", "--pool", "second"]);
    let pool = node.json(&["pool", "add-disk", "second", &more, "--size", "2G"]);
    assert_eq!(pool["disks"].as_array().unwrap().len(), 2);
    assert_eq!((&pool["disks"][0]["path"], &pool["disks"][1]["path"]), (&json!(file), &json!(more)));
    let pool = node.json(&["pool", "remove-disk", "second", &more, "--yes"]);
    assert_eq!(pool["disks"].as_array().unwrap().len(), 1);
    // It was wiped, and the node does not keep it open.
    let pool = node.json(&["pool", "add-disk", "second", &more]);
    assert_eq!(pool["disks"].as_array().unwrap().len(), 2);
    node.ok(&["volume", "create", "big", "--size", "2G", "--pool", "second"]);
    node.ok(&["volume", "resize", "db", "500M"]);
    let refused = node.refused(1, &["pool", "add-disk", "second", &more]);
    assert!(refused.contains("in use"), "{refused}");
    let refused = node.refused(1, &["pool", "remove-disk", "second", &more, "--yes"]);
    assert!(refused.contains("not enough space"), "what lies on it has no room elsewhere: {refused}");
    for taken in [&more, &file] {
        let refused = node.refused(1, &["pool", "create", "third", taken, "--wipe"]);
        assert!(refused.contains("in use"), "the node says so before it is asked: {refused}");
    }
    let before = node.json(&["pool", "show", "second"]);
    let node = Node::start_in(node.kill(), &[]);
    assert_eq!(node.json(&["pool", "show", "second"]), before);
    assert_eq!(node.json(&["volume", "list"]).as_array().unwrap().len(), 2);
}
