//! A volume is converted to the other kind while a host writes to it, and nodes are killed in the middle.

use std::thread;
use std::time::Duration;

use e2e::Node;

use crate::cluster::{TARGET, cluster_of_three, wait, wait_until_in_sync};
use crate::first_copy::written_while;
use crate::set_back::{BLOCKS, expect, put};

/// Until a copy of 64 MiB has been converted, on a slow and busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// From the command until each node that is up has begun.
const BEGUN: Duration = Duration::from_secs(3);

fn is_converting(node: &Node) -> bool {
    let jobs = node.ursa_json(&["job", "list"]);
    jobs.as_array().expect("a list").iter().any(|job| job["kind"] == "convert")
}

fn wait_until_converted(nodes: &[&Node], kind: &str) {
    thread::sleep(BEGUN);
    for node in nodes {
        wait(LIMIT, "the copy is converted", || !is_converting(node));
        assert_eq!(node.ursa_json(&["volume", "show", "demo"])["kind"], kind);
    }
}

fn converted_on_two_nodes(from: &str, to: &str) {
    let mut nodes = cluster_of_three();
    let create =
        ["volume", "create", "demo", "--size", "64M", "--kind", from, "--on", "1,2", "--target", TARGET];
    nodes[0].ursa(&create).expect_ok();
    wait_until_in_sync(&nodes[0], "demo");
    let convert = ["volume", "convert", "demo", "--kind", to];
    let would = nodes[2].ursa(&[&convert[..], &["--dry-run"]].concat()).expect_ok();
    assert!(would.contains("Nothing was changed"), "{would}");
    assert_eq!(nodes[0].ursa_json(&["volume", "show", "demo"])["kind"], from);
    let (first, others) = nodes.split_at_mut(1);
    let last = written_while(&first[0], || {
        // By a command to a node without a copy.
        others[1].ursa(&convert).expect_ok();
        thread::sleep(Duration::from_millis(1500));
        others[0].kill();
        thread::sleep(Duration::from_secs(1));
        others[0].restart();
        wait_until_in_sync(&first[0], "demo");
        wait_until_converted(&[&first[0], &others[0]], to);
    });
    let verified = nodes[0].ursa_json(&["volume", "verify", "demo"]);
    assert_eq!(verified["equal"], true, "{verified}");
    // The second node has all of it.
    nodes[0].kill();
    expect(&nodes[1], last);
}

#[test]
fn a_thick_volume_becomes_a_log_volume_on_two_nodes() {
    converted_on_two_nodes("thick", "log");
}

#[test]
fn a_log_volume_becomes_a_thick_volume_on_two_nodes() {
    converted_on_two_nodes("log", "thick");
}

/// Without a cluster, there and back.
#[test]
fn the_only_copy_is_converted_across_a_kill() {
    let mut node = Node::start();
    node.ursa(&["volume", "create", "demo", "--size", "64M", "--target", TARGET]).expect_ok();
    put(&node, BLOCKS, 1);
    for (to, number) in [("log", 2), ("thick", 3)] {
        node.ursa(&["volume", "convert", "demo", "--kind", to]).expect_ok();
        put(&node, BLOCKS, number);
        node.kill();
        node.restart();
        wait_until_converted(&[&node], to);
        expect(&node, number);
    }
    let not_converting = node.ursa(&["volume", "convert", "demo", "--cancel"]);
    assert!(!not_converting.ok() && not_converting.output.contains("is not being converted"));
    // Cancelled, it is what it was.
    node.ursa(&["volume", "convert", "demo", "--kind", "log"]).expect_ok();
    node.ursa(&["volume", "convert", "demo", "--kind", "thick"]).expect_ok();
    wait_until_converted(&[&node], "thick");
    expect(&node, 3);
}
