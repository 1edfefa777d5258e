//! The disk under the cluster's record is full on one node, and later it is not.

use std::fs;
use std::path::Path;
use std::time::Duration;

use e2e::Node;
use e2e::attached::{Mounted, can_mount, run};
use serde_json::Value;

use crate::cluster::{cluster_of_three, wait};

/// From a fault, or its end, until it shows.
const LIMIT: Duration = Duration::from_secs(60);
/// Of the small file system: a few times what the record has.
const BYTES: usize = 24 << 20;
const GROUPS: usize = 40;

fn listed(node: &Node, number: u64) -> Value {
    let list = node.ursa_json(&["node", "list"]);
    let found = list.as_array().expect("a list").iter().find(|node| node["id"] == number).cloned();
    found.unwrap_or_else(|| panic!("node {number} is listed: {list}"))
}

fn make_group(node: &Node, name: &str) -> bool {
    node.ursa(&["host", "create", name, "--initiator", &format!("iqn.2026-01.org.ursa:{name}")]).ok()
}

fn groups(node: &Node) -> usize {
    node.ursa_json(&["host", "list"]).as_array().expect("a list").len()
}

/// Puts the node's part of the cluster's record on a small file system of its own.
fn put_record_on_small_disk(node: &mut Node) -> Mounted {
    let place = node.data_dir().join("cluster");
    node.stop();
    let kept = node.data_dir().join("cluster.kept");
    fs::rename(&place, &kept).expect("it can be moved");
    fs::create_dir(&place).expect("it can be made");
    let mounted = Mounted::small(BYTES, &place);
    for file in fs::read_dir(&kept).expect("it is there") {
        let file = file.expect("it can be read").path();
        let to = place.join(file.file_name().expect("it has a name"));
        run("cp", &["-p", file.to_str().expect("our own path"), to.to_str().expect("our own path")]);
    }
    node.restart();
    mounted
}

fn fill(directory: &Path) {
    let full = fs::write(directory.join("filler"), vec![0; BYTES]).expect_err("it is too much");
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
}

#[test]
fn a_full_disk_under_the_record_is_shown_by_all_and_ends_by_itself() {
    if !can_mount() {
        return;
    }
    let mut nodes = cluster_of_three();
    let _small = put_record_on_small_disk(&mut nodes[2]);
    wait(LIMIT, "three nodes that vote", || (1..=3).all(|number| listed(&nodes[0], number)["up"] == true));

    let place = nodes[2].data_dir().join("cluster");
    fill(&place);
    for number in 0..GROUPS {
        let name = format!("group{number}");
        // The full node may have led: until another one does a change has to be repeated.
        wait(LIMIT, "a group is made", || {
            make_group(&nodes[0], &name) || nodes[0].ursa(&["host", "show", &name]).ok()
        });
    }
    let stalled = |node: &Node| listed(node, 3)["record_stalled"] == "no_space";
    wait(LIMIT, "all say that node 3 has no space", || nodes.iter().all(stalled));
    assert_eq!(listed(&nodes[0], 1)["record_stalled"], Value::Null);
    let table = nodes[0].ursa(&["node", "list"]).expect_ok();
    assert!(table.contains("MISSING (no space)"), "{table}");
    let metrics = nodes[0].metrics();
    let is_counted = |line: &str| {
        line.starts_with("ursa_node_record_up{") && line.contains("node=\"3\"") && line.ends_with(" 0")
    };
    assert!(metrics.lines().any(is_counted), "{metrics}");
    let status = nodes[0].ursa(&["status"]).output;
    assert!(status.contains("no space left on the file system of the data directory"), "{status}");
    let told = nodes[0].ursa_json(&["events", "--limit", "200"]).to_string();
    assert!(told.contains("record_stalled"), "{told}");
    assert!(groups(&nodes[2]) < GROUPS, "it learns of no changes");

    fs::remove_file(place.join("filler")).expect("it is there");
    wait(LIMIT, "node 3 takes part again", || nodes.iter().all(|node| !stalled(node)));
    wait(LIMIT, "it knows all groups", || groups(&nodes[2]) == groups(&nodes[0]));
    // Its vote counts: without it there would be one of three.
    nodes[1].kill();
    wait(LIMIT, "two of three decide", || make_group(&nodes[0], "one-more"));
}
