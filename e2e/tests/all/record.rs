//! What keeps a node from its cluster: a full disk under its copy of the record, a missing address, a damaged
//! file.
//!
//! Volumes whose only copy is on that node stay available.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use e2e::attached::can_mount;
use e2e::{Export, Node, ports};
use serde_json::Value;

use crate::cluster::{TARGET, cluster_of_three, init, join, ready, token, wait, wait_until_in_sync};
use crate::full_disk::{fill, put_on_small_disk};

/// From a fault, or its end, until it shows.
const LIMIT: Duration = Duration::from_secs(60);
/// Size of the small file system: a few times the size of the record.
const BYTES: usize = 24 << 20;
const GROUPS: usize = 40;
/// Until a node has stored the cluster's access rules for a start without it: it checks every five seconds.
const KEPT_WITHIN: Duration = Duration::from_secs(8);

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

/// The directory with the certificates and the record of a node: that of the highest number, since a node
/// that has joined has been the first one of a cluster of its own before.
fn place_of(node: &Node) -> PathBuf {
    let places = fs::read_dir(node.data_dir().join("cluster")).expect("it is in a cluster");
    let places = places.map(|place| place.expect("it can be read").path());
    let number = |place: &PathBuf| {
        let name = place.file_name()?.to_string_lossy().into_owned();
        name.split_once('-')?.1.parse::<u16>().ok()
    };
    places.max_by_key(number).expect("it has a place")
}

#[test]
fn a_full_disk_under_the_record_is_shown_by_all_and_recovers_automatically() {
    if !can_mount() {
        return;
    }
    let mut nodes = cluster_of_three();
    let place = place_of(&nodes[2]);
    let _small = put_on_small_disk(&mut nodes[2], &place, BYTES);
    wait(LIMIT, "three nodes that vote", || (1..=3).all(|number| listed(&nodes[0], number)["up"] == true));

    fill(&place, BYTES);
    for number in 0..GROUPS {
        let name = format!("group{number}");
        // The full node may have been the leader: until there is another one, a change has to be repeated.
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

/// A cluster of one node, which listens for others at these addresses, and has a volume.
fn node_with_volume(listen: &str) -> (Node, Export) {
    let node = Node::start();
    node.ursa(&["volume", "create", "local", "--size", "64M", "--target", TARGET]).expect_ok();
    node.ursa(&["node", "init", "--listen", listen]).expect_ok();
    let export = Export { portals: node.portals().to_vec(), target: TARGET.into(), lun: 0, chap: None };
    ready(&export).write(0, 8, &[7; 4096], false).expect("it is written");
    thread::sleep(KEPT_WITHIN);
    (node, export)
}

fn problems(node: &Node) -> String {
    node.ursa(&["status"]).output
}

fn is_served(export: &Export) -> bool {
    let data = ready(export).read(0, 8, 4096).expect("it is read");
    data.iter().all(|byte| *byte == 7)
}

#[test]
fn a_node_starts_without_one_of_its_addresses_and_uses_it_when_it_is_there() {
    let (there, missing) = (ports::free(), ports::free());
    let (mut node, export) = node_with_volume(&format!("{there},{missing}"));
    node.stop();
    // This is like a missing interface: the node cannot listen there.
    let taken = TcpListener::bind(missing).expect("it is free");
    node.restart();
    assert!(is_served(&export));
    assert!(TcpStream::connect(there).is_ok(), "it listens at the other one");
    assert_eq!(listed(&node, 1)["up"], true);
    let said = problems(&node);
    assert!(said.contains(&format!("cannot listen for other nodes at {missing}")), "{said}");
    drop(taken);
    wait(LIMIT, "it listens there, too", || TcpStream::connect(missing).is_ok());
    wait(LIMIT, "nothing is said any more", || !problems(&node).contains("cannot listen"));
}

/// Damages a stopped node's part of the cluster's record, and undoes that while the node runs: volumes whose
/// only copy it has are served all the time.
fn single_copies_outlive(harm: impl FnOnce(&Path), undo: impl FnOnce(&Path), said: &str) {
    let (mut node, export) = node_with_volume(&ports::free().to_string());
    node.ursa(&["volume", "create", "shared", "--size", "64M", "--copies", "1", "--target", TARGET])
        .expect_ok();
    thread::sleep(KEPT_WITHIN);
    node.stop();
    let directory = place_of(&node);
    harm(&directory);
    node.restart();
    assert!(is_served(&export));
    let status = problems(&node);
    assert!(status.contains("does not take part in its cluster") && status.contains(said), "{status}");
    // Its own number still means this node.
    node.ursa(&["pool", "show", "default", "--node", "1"]).expect_ok();
    assert!(node.metrics().contains("\nursa_cluster_record_up 0"), "its metrics say so");
    let told = node.ursa_json(&["events", "--limit", "50"]).to_string();
    assert!(told.contains("cluster_failed"), "{told}");
    let refused = node.ursa(&["host", "create", "h1", "--initiator", "iqn.2026-11.io.ursa:h1"]);
    assert!(!refused.ok() && refused.output.contains("cannot take part in its cluster"), "{refused}");
    let shared = Export { lun: 1, ..export.clone() };
    ready(&shared);
    let refused = node.ursa(&["volume", "delete", "shared", "--yes"]);
    assert!(!refused.ok(), "what is the cluster's is not deleted without it: {refused}");

    undo(&directory);
    wait(LIMIT, "it takes part again", || !problems(&node).contains("does not take part in its cluster"));
    assert_eq!(listed(&node, 1)["up"], true);
    let shown = || node.ursa_json(&["volume", "show", "shared"]);
    wait(LIMIT, "it is served as before", || shown()["serving"] == true);
    ready(&shared);
    assert!(is_served(&export));
    assert!(make_group(&node, "h2"));
}

/// SQLite may leave changes in a file beside the record, also when the node was stopped.
#[test]
fn a_damaged_record_does_not_take_single_copies_down() {
    const RECORD: &str = "record.sqlite";
    let kept = std::cell::RefCell::new(Vec::new());
    let files = |directory: &Path| {
        let entries =
            fs::read_dir(directory).expect("it is there").map(|entry| entry.expect("it is read").path());
        let of_record =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(RECORD));
        entries.filter(of_record).collect::<Vec<PathBuf>>()
    };
    single_copies_outlive(
        |directory| {
            let all = files(directory).into_iter().map(|path| (fs::read(&path).expect("it is there"), path));
            kept.borrow_mut().extend(all);
            for (bytes, path) in &*kept.borrow() {
                fs::write(path, vec![0x5a; bytes.len()]).expect("it can be written");
            }
        },
        |directory| {
            let mut kept = kept.borrow_mut();
            let is_new = |path: &PathBuf| kept.iter().all(|(_, before)| before != path);
            files(directory)
                .iter()
                .filter(|path| is_new(path))
                .for_each(|path| fs::remove_file(path).expect("it is there"));
            // The record itself comes last: until then it cannot be opened.
            kept.sort_by_key(|(_, path)| std::cmp::Reverse(path.as_os_str().len()));
            for (bytes, path) in &*kept {
                fs::write(path, bytes).expect("it can be written");
            }
        },
        "the cluster's record cannot be opened",
    );
}

#[test]
fn a_certificate_that_cannot_be_read_does_not_take_single_copies_down() {
    let kept = std::cell::RefCell::new(Vec::new());
    let certificate = |directory: &Path| directory.join("node.pem");
    single_copies_outlive(
        |directory| {
            kept.replace(fs::read(certificate(directory)).expect("it is there"));
            fs::write(certificate(directory), "no certificate").expect("it can be written");
        },
        |directory| fs::write(certificate(directory), &*kept.borrow()).expect("it can be written"),
        "certificates cannot be used",
    );
}

/// For example because it is on a file system of its own, which is mounted late.
#[test]
fn a_missing_directory_does_not_take_single_copies_down() {
    let away = |directory: &Path| directory.with_extension("away");
    single_copies_outlive(
        |directory| fs::rename(directory, away(directory)).expect("it is there"),
        |directory| fs::rename(away(directory), directory).expect("nothing has taken its place"),
        "is missing or empty",
    );
}

/// Two of three nodes are given up; one of them returns, leaves, is removed, and joins again, with a volume
/// whose only copy it has all the time.
#[test]
fn a_node_that_was_removed_returns_with_its_volumes() {
    let mut nodes = [Node::start(), Node::start(), Node::start()];
    init(&nodes[0]);
    // A volume of its own, with which it joins.
    nodes[1].ursa(&["volume", "create", "local", "--size", "64M", "--target", TARGET]).expect_ok();
    join(&nodes[0], &nodes[1]);
    join(&nodes[0], &nodes[2]);
    let export = Export { portals: nodes[1].portals().to_vec(), target: TARGET.into(), lun: 0, chap: None };
    ready(&export).write(0, 8, &[7; 4096], false).expect("it is written");
    let all_vote = |node: &Node| {
        let list = node.ursa_json(&["node", "list"]);
        list.as_array().is_some_and(|list| list.len() == 3 && list.iter().all(|node| node["votes"] == true))
    };
    wait(LIMIT, "three nodes vote", || all_vote(&nodes[0]));
    nodes[0].ursa(&["volume", "create", "shared", "--size", "64M", "--on", "1,2"]).expect_ok();
    wait_until_in_sync(&nodes[0], "shared");
    thread::sleep(KEPT_WITHIN);

    nodes[1].kill();
    nodes[2].kill();
    // Without a majority no node can be removed: the survivor becomes a cluster of its own.
    wait(LIMIT, "the survivor is alone", || nodes[0].ursa(&["node", "force-new-cluster", "--yes"]).ok());
    nodes[0].stop();
    nodes[0].restart();
    wait(LIMIT, "the copy is taken away", || {
        nodes[0].ursa(&["volume", "copy", "remove", "shared", "--on", "2", "--yes"]).ok()
    });
    let remove = |first: &Node, number: &str| {
        wait(LIMIT, "the node is removed", || first.ursa(&["node", "remove", number, "--yes"]).ok());
    };
    remove(&nodes[0], "3");

    nodes[1].restart();
    wait(LIMIT, "it says that it is none of the cluster", || {
        let said = problems(&nodes[1]);
        said.contains("ursa node leave --forget") && !said.contains("systemctl start ursa")
    });
    let said = problems(&nodes[1]);
    assert!(said.contains("was left behind") || said.contains("was removed"), "{said}");
    let refused = nodes[0].ursa(&["node", "leave", "--forget", "--yes"]);
    assert!(!refused.ok() && refused.output.contains("is an active member of its cluster"), "{refused}");
    let would = nodes[1].ursa(&["node", "leave", "--forget", "--dry-run"]).expect_ok();
    assert!(would.contains("volume local is served as before"), "{would}");
    assert!(would.contains("the copy of volume shared stays in its pool"), "{would}");
    nodes[1].ursa(&["node", "leave", "--forget", "--yes"]).expect_ok();
    nodes[1].stop();
    nodes[1].restart();
    assert!(is_served(&export), "alone, by the target that it had in the cluster");
    let list = nodes[1].ursa_json(&["node", "list"]);
    assert_eq!(list.as_array().map(Vec::len), Some(1), "it is alone: {list}");
    let volumes = nodes[1].ursa_json(&["volume", "list"]).to_string();
    assert!(volumes.contains("shared"), "what is left of the cluster's volume is shown: {volumes}");

    // As long as the cluster has the volume on its old number, it would stop serving it.
    let token = token(&nodes[0]);
    let refused = nodes[1].ursa(&["node", "join", &token, "--listen", &ports::free().to_string()]);
    assert!(!refused.ok() && refused.output.contains("ursa node remove 2"), "{refused}");
    assert!(is_served(&export), "nothing has changed");
    remove(&nodes[0], "2");
    join(&nodes[0], &nodes[1]);
    let list = nodes[0].ursa_json(&["node", "list"]);
    assert_eq!(list[1]["id"], 4, "a new number: {list}");
    wait(LIMIT, "it is up", || listed(&nodes[0], 4)["up"] == true);
    assert!(is_served(&export), "in the cluster again");
    let old = nodes[1].ursa_json(&["volume", "list"]).to_string();
    assert!(old.contains("shared"), "its old copy is neither deleted nor in sync: {old}");
    let copies = nodes[0].ursa_json(&["volume", "show", "shared"])["copies"].clone();
    assert_eq!(copies.as_array().map(Vec::len), Some(1), "{copies}");

    // Node 3 follows the documentation: its directory is deleted.
    fs::remove_dir_all(nodes[2].data_dir().join("cluster")).expect("it is there");
    nodes[2].restart();
    assert!(!nodes[2].ursa(&["node", "list"]).ok(), "it takes part in none");
    assert!(problems(&nodes[2]).contains("is missing or empty"));
    join(&nodes[0], &nodes[2]);
    wait(LIMIT, "it is up", || listed(&nodes[0], 5)["up"] == true);
}
