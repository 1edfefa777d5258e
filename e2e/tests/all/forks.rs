//! Two nodes without a witness. The second one, as permitted, continues alone when the first one, which has
//! the vote, is killed.

use std::time::{Duration, Instant};

use e2e::pattern::{self, SECTOR};
use e2e::raw::Raw;
use e2e::{Export, Node};

use crate::cluster::{init, join, wait, wait_until_in_sync};

const CLUSTER_LIMIT: Duration = Duration::from_secs(30);
/// Five seconds of silence, leases, and some time for a busy machine.
const GOES_ON_LIMIT: Duration = Duration::from_secs(20);
const TARGET: &str = "iqn.2026-11.io.ursa:shared";
const BLOCKS: u64 = 64;

fn cluster_of_two() -> [Node; 2] {
    let nodes = [Node::start(), Node::start()];
    init(&nodes[0]);
    join(&nodes[0], &nodes[1]);
    let one_votes = |node: &Node| {
        let list = node.ursa_json(&["node", "list"]);
        let list = list.as_array().expect("it is a list").clone();
        let votes = |at: usize| list[at]["votes"] == true;
        list.len() == 2 && list.iter().all(|node| node["up"] == true) && votes(0) && !votes(1)
    };
    wait(CLUSTER_LIMIT, "two nodes of which one votes", || nodes.iter().all(one_votes));
    nodes
}

fn through(node: &Node) -> Export {
    Export { portals: node.portals().to_vec(), target: TARGET.to_owned(), lun: 0, chap: None }
}

fn serves(node: &Node) -> bool {
    node.ursa_json(&["volume", "show", "db"])["serving"] == true
}

/// Whether the node continues alone. `serving` is not enough: right after the loss of the other node it still
/// has leases.
fn goes_on_alone(node: &Node) -> bool {
    let shown = node.ursa_json(&["volume", "show", "db"]);
    shown["serving"] == true && shown["fork"]["node"] == 2
}

/// Waits until the node serves; returns a session whose unit is ready.
fn ready(node: &Node) -> Raw {
    let end = Instant::now() + GOES_ON_LIMIT;
    loop {
        let found = Raw::login(&through(node), 0, 0x4000);
        match found.and_then(|mut raw| raw.wait_until_ready().map(|()| raw)) {
            Ok(raw) => return raw,
            Err(error) => assert!(Instant::now() < end, "not ready within {GOES_ON_LIMIT:?}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn put(node: &Node, blocks: std::ops::Range<u64>, number: u64) {
    let mut raw = ready(node);
    for block in blocks {
        let data = pattern::stamped(1, number, block * 8, 8 * SECTOR);
        raw.write(block * 8, 8, &data, false).expect("it is written");
    }
}

#[track_caller]
fn expect(node: &Node, blocks: std::ops::Range<u64>, number: u64) {
    let mut raw = ready(node);
    for block in blocks {
        let data = raw.read(block * 8, 8, 8 * SECTOR).expect("it is read");
        assert_eq!(pattern::stamp(&data[..SECTOR], 1, block * 8), Some(number), "block {block}");
    }
}

#[test]
fn the_second_node_continues_alone_and_the_first_resyncs_from_it() {
    let mut nodes = cluster_of_two();
    nodes[0]
        .ursa(&["volume", "create", "db", "--size", "64M", "--copies", "2", "--target", TARGET])
        .expect_ok();
    wait_until_in_sync(&nodes[1], "db");
    assert!(
        !nodes[0].ursa(&["volume", "split-brain-policy", "db", "heartbeat"]).ok(),
        "the risk must be accepted"
    );
    let chosen =
        ["volume", "split-brain-policy", "db", "heartbeat", "--accept-split-brain", "--by", "a test"];
    nodes[1].ursa(&chosen).expect_ok();
    let shown = || nodes[1].ursa_json(&["volume", "show", "db"])["split_brain_policy"]["by"] == "a test";
    wait(CLUSTER_LIMIT, "both know it", shown);
    put(&nodes[0], 0..BLOCKS, 1);

    nodes[0].kill();
    let killed = Instant::now();
    wait(GOES_ON_LIMIT, "the second node serves", || goes_on_alone(&nodes[1]));
    println!("the second node goes on alone {:?} after the kill", killed.elapsed());
    assert!(killed.elapsed() > Duration::from_secs(4), "it waits for the silence");
    expect(&nodes[1], 0..BLOCKS, 1);
    put(&nodes[1], 0..BLOCKS / 2, 2);
    // It is killed, too, and continues alone after its restart.
    nodes[1].kill();
    nodes[1].restart();
    wait(GOES_ON_LIMIT, "the second node serves again", || goes_on_alone(&nodes[1]));
    expect(&nodes[1], 0..BLOCKS / 2, 2);

    nodes[0].restart();
    // The second node's view of the record is outdated until it reaches the first node.
    let settled = |node: &Node| {
        let shown = node.ursa_json(&["volume", "show", "db"]);
        shown["serving"] == true && shown["fork"].is_null()
    };
    wait(GOES_ON_LIMIT, "it is settled", || nodes.iter().all(settled));
    wait_until_in_sync(&nodes[1], "db");
    let found = nodes[1].ursa_json(&["volume", "verify", "db"]);
    assert_eq!(found["equal"], true, "{found}");
    expect(&nodes[0], 0..BLOCKS / 2, 2);
    expect(&nodes[0], BLOCKS / 2..BLOCKS, 1);
}

/// The second node continues alone and is lost; the first one returns and continues, too; then the second one
/// returns.
fn split() -> [Node; 2] {
    let mut nodes = cluster_of_two();
    nodes[0]
        .ursa(&["volume", "create", "db", "--size", "64M", "--copies", "2", "--target", TARGET])
        .expect_ok();
    wait_until_in_sync(&nodes[1], "db");
    nodes[0].ursa(&["volume", "split-brain-policy", "db", "heartbeat", "--accept-split-brain"]).expect_ok();
    put(&nodes[0], 0..BLOCKS, 1);
    nodes[0].kill();
    wait(GOES_ON_LIMIT, "the second node serves", || goes_on_alone(&nodes[1]));
    put(&nodes[1], 0..BLOCKS / 2, 2);
    nodes[1].kill();
    nodes[0].restart();
    wait(GOES_ON_LIMIT, "the first node serves", || serves(&nodes[0]));
    put(&nodes[0], 0..BLOCKS / 4, 3);

    nodes[1].restart();
    let split = || nodes[0].ursa_json(&["volume", "show", "db"])["fork"]["split"] == true;
    wait(GOES_ON_LIMIT, "it is said to be split", split);
    nodes
}

#[test]
fn both_sides_of_a_split_are_kept_until_somebody_decides() {
    let nodes = split();
    let words = nodes[1].ursa(&["volume", "show", "db"]).expect_ok();
    assert!(words.contains("SPLIT BRAIN"), "{words}");
    assert!(serves(&nodes[0]) && !serves(&nodes[1]));
    assert!(
        !nodes[0].ursa(&["volume", "copy", "remove", "db", "--on", "2", "--yes"]).ok(),
        "not before it is settled"
    );
    let decide = |keep: &str, more: &[&str]| {
        let words = ["volume", "resolve-split-brain", "db", "--keep", keep, "--discard-other"];
        nodes[0].ursa(&[&words[..], more].concat()).expect_ok()
    };
    for (keep, lost, stops) in
        [("1", "writes made only on node 2 ", false), ("2", "writes made only on node 1 ", true)]
    {
        let would = decide(keep, &["--dry-run"]);
        assert!(would.contains(lost) && would.contains("are discarded permanently"), "{would}");
        assert_eq!(would.contains("stops serving it"), stops, "{would}");
    }
    assert!(serves(&nodes[0]) && !serves(&nodes[1]), "that was only asked");
    decide("2", &[]);
    wait_until_in_sync(&nodes[1], "db");
    wait(GOES_ON_LIMIT, "both serve", || nodes.iter().all(serves));
    for node in &nodes {
        expect(node, 0..BLOCKS / 2, 2);
        expect(node, BLOCKS / 2..BLOCKS, 1);
    }
}

/// The first node is lost for good during a split brain: the second one can keep its data without asking the
/// first.
#[test]
fn the_side_of_a_splits_survivor_can_be_kept() {
    let mut nodes = split();
    nodes[0].kill();
    let keep = ["volume", "resolve-split-brain", "db", "--keep", "2", "--discard-other"];
    assert!(!nodes[1].ursa(&keep).ok(), "nobody has said that the first node does not come back");
    let forced = |node: &Node| node.ursa(&["node", "force-new-cluster", "--yes"]).ok();
    wait(CLUSTER_LIMIT, "the survivor is alone", || forced(&nodes[1]));
    nodes[1].stop();
    nodes[1].restart();
    wait(CLUSTER_LIMIT, "it is decided", || nodes[1].ursa(&keep).ok());
    wait(CLUSTER_LIMIT, "the survivor serves", || serves(&nodes[1]));
    expect(&nodes[1], 0..BLOCKS / 2, 2);
    expect(&nodes[1], BLOCKS / 2..BLOCKS, 1);
    put(&nodes[1], 0..BLOCKS, 4);
    nodes[1].ursa(&["volume", "copy", "remove", "db", "--on", "1", "--yes"]).expect_ok();
    nodes[1].ursa(&["node", "remove", "1", "--yes"]).expect_ok();
}
