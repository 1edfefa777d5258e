//! A volume with a single copy gets another one on another node while a host uses it, and survives its node.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use e2e::node::binary;
use e2e::pattern::{self, SECTOR};
use e2e::raw::in_spite_of_attentions;
use e2e::{Node, ports, program};

use crate::cluster::{TARGET, cluster_of_three, init, join, token, wait, wait_until_in_sync};
use crate::set_back::{BLOCKS, expect, put, ready};

/// From a node's joining until the other nodes know what it has.
const JOINED_WITHIN: Duration = Duration::from_secs(60);

/// One round of writes, on a busy disk.
const WRITTEN_WITHIN: Duration = Duration::from_secs(60);

/// Writes to the volume through this node while `happens` runs; returns the number of the last round.
pub fn written_while(node: &Node, happens: impl FnOnce()) -> u64 {
    written_after(0, node, happens)
}

/// Writes rounds with greater numbers than this to the volume through this node: one, a second one, and
/// further ones while `happens` runs. Returns the number of the last round.
pub fn written_after(number: u64, node: &Node, happens: impl FnOnce()) -> u64 {
    let first = number + 1;
    put(node, BLOCKS, first);
    let mut host = ready(node);
    let ended = AtomicBool::new(false);
    let written = AtomicU64::new(first);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut number = first;
            while !ended.load(Ordering::Relaxed) {
                number += 1;
                for block in BLOCKS {
                    let data = pattern::stamped(1, number, block * 8, 8 * SECTOR);
                    let written = in_spite_of_attentions(|| host.write(block * 8, 8, &data, false));
                    written.unwrap_or_else(|error| panic!("block {block}, number {number}: {error}"));
                }
                written.store(number, Ordering::Relaxed);
            }
            number
        });
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            wait(WRITTEN_WITHIN, "the host writes", || {
                assert!(!writer.is_finished(), "the host sees no error");
                written.load(Ordering::Relaxed) > first
            });
            happens();
        }));
        ended.store(true, Ordering::Relaxed);
        let last = writer.join().expect("the host sees no error");
        outcome.unwrap_or_else(|panic| resume_unwind(panic));
        last
    })
}

fn gets_a_copy(kind: &str) {
    let mut nodes = cluster_of_three();
    let create =
        ["volume", "create", "demo", "--size", "64M", "--kind", kind, "--copies", "1", "--target", TARGET];
    nodes[0].ursa(&create).expect_ok();
    let last = written_while(&nodes[0], || {
        // By a command to a node without a copy.
        nodes[2].ursa(&["volume", "copy", "add", "demo", "--on", "2"]).expect_ok();
        wait_until_in_sync(&nodes[1], "demo");
    });
    nodes[0].kill();
    expect(&nodes[1], last);
}

/// The second node joins, with its target and its LUN map: nothing has to be deleted first. `listen` is its
/// address.
fn joins_under_load(mut nodes: [Node; 2], listen: &str) {
    let last = written_while(&nodes[1], || {
        nodes[1].ursa(&["node", "join", &token(&nodes[0]), "--listen", listen]).expect_ok();
        let is_shown = || nodes[0].ursa(&["volume", "show", "demo"]).ok();
        wait(JOINED_WITHIN, "the volume is in the cluster", is_shown);
        let targets = nodes[0].ursa_json(&["target", "list"]).to_string();
        assert!(targets.contains(TARGET), "{targets}");
        let add = || nodes[0].ursa(&["volume", "copy", "add", "demo", "--on", "1"]).ok();
        wait(JOINED_WITHIN, "the nodes hear each other, and a copy is added", add);
        wait_until_in_sync(&nodes[0], "demo");
    });
    // Of two nodes, the one that created the cluster decides alone.
    nodes[1].kill();
    expect(&nodes[0], last);
}

#[test]
fn a_node_joins_with_its_volume_under_load_and_the_volume_gets_a_copy() {
    let nodes = [Node::start(), Node::start()];
    nodes[1].ursa(&["volume", "create", "demo", "--size", "64M", "--target", TARGET]).expect_ok();
    init(&nodes[0]);
    joins_under_load(nodes, &ports::free().to_string());
}

/// `ursa serve` has created it at its first start. The node is alone, lets another one join, and gives the
/// volume a copy there.
#[test]
fn a_volume_that_a_node_was_started_with_gets_a_copy_under_load() {
    let mut nodes = [Node::start_with(&["--volume", "demo=64M"]), Node::start()];
    let shown = nodes[0].ursa_json(&["volume", "show", "demo"]);
    assert_eq!(shown["copies"].as_array().map(Vec::len), Some(1), "{shown}");
    nodes[0].ursa(&["target", "create", TARGET]).expect_ok();
    nodes[0].ursa(&["map", "create", TARGET, "demo", "--host", "any"]).expect_ok();
    let last = written_while(&nodes[0], || {
        init(&nodes[0]);
        join(&nodes[0], &nodes[1]);
        let add = || nodes[0].ursa(&["volume", "copy", "add", "demo", "--on", "2"]).ok();
        wait(JOINED_WITHIN, "the nodes hear each other, and a copy is added", add);
        wait_until_in_sync(&nodes[0], "demo");
    });
    let verified = nodes[0].ursa_json(&["volume", "verify", "demo"]);
    assert_eq!(verified["equal"], true, "{verified}");
    // Of two nodes, the one that created the cluster decides alone.
    nodes[1].kill();
    expect(&nodes[0], last);
}

/// Both nodes have created clusters of their own, and both have a volume in use. The node that joins keeps
/// its address.
#[test]
fn a_node_joins_from_its_own_cluster_under_load_and_the_volume_gets_a_copy() {
    const OTHER: &str = "iqn.2026-11.io.ursa:other";
    let nodes = [Node::start(), Node::start()];
    let [first, second] = [(); 2].map(|()| ports::free().to_string());
    nodes[0].ursa(&["node", "init", "--listen", &first]).expect_ok();
    nodes[1].ursa(&["node", "init", "--listen", &second]).expect_ok();
    nodes[0].ursa(&["volume", "create", "first", "--size", "64M", "--target", OTHER]).expect_ok();
    nodes[1].ursa(&["volume", "create", "demo", "--size", "64M", "--target", TARGET]).expect_ok();
    joins_under_load(nodes, &second);
}

/// Killed at some moment while it joins, it is in the old cluster or the new one, and has lost nothing.
#[test]
fn a_node_that_is_killed_while_it_joins_from_its_own_cluster_serves_its_volume() {
    for pause in [0, 5, 20, 60, 150, 400].map(Duration::from_millis) {
        let mut nodes = [Node::start(), Node::start()];
        nodes.iter().for_each(init);
        nodes[1].ursa(&["volume", "create", "demo", "--size", "64M", "--target", TARGET]).expect_ok();
        put(&nodes[1], BLOCKS, 1);
        let mut command = Command::new(binary());
        command.args(["node", "join", &token(&nodes[0]), "--listen", &ports::free().to_string()]);
        command.env("URSA_API", format!("http://{}", nodes[1].api()));
        let joins = thread::spawn(move || program::run(&mut command, JOINED_WITHIN).ok());
        thread::sleep(pause);
        nodes[1].kill();
        // It fails if the node was killed before it had joined.
        let _ = joins.join().expect("the command ends");
        nodes[1].restart();
        expect(&nodes[1], 1);
        wait(JOINED_WITHIN, "it takes part in a cluster", || nodes[1].ursa(&["node", "list"]).ok());
        expect(&nodes[1], 1);
    }
}

#[test]
fn a_single_copy_on_disks_gets_another_under_load_and_survives_its_node() {
    gets_a_copy("thick");
}

#[test]
fn a_single_copy_in_memory_gets_another_under_load_and_survives_its_node() {
    gets_a_copy("ram");
}
