//! Disks and machines that are restored to an earlier state: those of the second of three nodes, which has
//! one of two copies.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use e2e::pattern::{self, SECTOR};
use e2e::raw::{Raw, in_spite_of_attentions};
use e2e::{Export, Node};

use crate::cluster::{TARGET, cluster_of_three, wait, wait_until_in_sync};
use crate::full_disk::TOLD_OF_DISK;

const SERVES_LIMIT: Duration = Duration::from_secs(60);
/// Dirty bits of written blocks stay for five seconds: later, nothing says what to copy.
const BITS: Duration = Duration::from_secs(7);
pub const BLOCKS: std::ops::Range<u64> = 0..64;
/// Written while the other node is alone.
const FEW: std::ops::Range<u64> = 100..104;

const BEFORE: u64 = 1;
const AFTER: u64 = 2;

/// What is restored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Pools,
    /// The cluster's record and votes.
    Record,
    Everything,
}

impl What {
    fn of(self, node: &Node) -> PathBuf {
        match self {
            What::Pools => node.data_dir().join("pools"),
            What::Record => node.data_dir().join("cluster"),
            What::Everything => node.data_dir().to_owned(),
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory can be made");
    for entry in fs::read_dir(from).expect("it is a directory") {
        let entry = entry.expect("it can be listed");
        let (kind, to) = (entry.file_type().expect("it has a kind"), to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&entry.path(), &to);
        } else if kind.is_file() {
            fs::copy(entry.path(), to).expect("a file can be copied");
        }
    }
}

fn log_in(node: &Node) -> io::Result<Raw> {
    let export = Export { portals: node.portals().to_vec(), target: TARGET.to_owned(), lun: 0, chap: None };
    Raw::login(&export, 0, 0x4000)
}

/// Waits until the node serves; returns a session whose unit is ready.
pub fn ready(node: &Node) -> Raw {
    let end = Instant::now() + SERVES_LIMIT;
    loop {
        let found = log_in(node);
        match found.and_then(|mut raw| raw.wait_until_ready().map(|()| raw)) {
            Ok(raw) => return raw,
            Err(error) => assert!(Instant::now() < end, "not ready within {SERVES_LIMIT:?}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Executes a command, through a new session if the node has lost the path for a moment: on a busy machine it
/// may lose its leases at any time.
///
/// An error about the disk still counts as one.
#[track_caller]
fn patiently<T>(node: &Node, raw: &mut Raw, command: impl Fn(&mut Raw) -> io::Result<T>) -> T {
    let end = Instant::now() + SERVES_LIMIT;
    loop {
        match in_spite_of_attentions(|| command(raw)) {
            Ok(done) => return done,
            Err(error) => {
                let told = error.to_string();
                let of_disk = TOLD_OF_DISK.iter().any(|sense| told.contains(sense));
                assert!(!of_disk && Instant::now() < end, "{told}");
            }
        }
        *raw = ready(node);
    }
}

#[track_caller]
pub fn put(node: &Node, blocks: std::ops::Range<u64>, number: u64) {
    let mut raw = ready(node);
    for block in blocks {
        let data = pattern::stamped(1, number, block * 8, 8 * SECTOR);
        patiently(node, &mut raw, |raw| raw.write(block * 8, 8, &data, false));
    }
}

#[track_caller]
pub fn expect(node: &Node, number: u64) {
    expect_blocks(node, BLOCKS, number);
}

#[track_caller]
pub fn expect_blocks(node: &Node, blocks: std::ops::Range<u64>, number: u64) {
    let mut raw = ready(node);
    for block in blocks {
        let data = patiently(node, &mut raw, |raw| raw.read(block * 8, 8, 8 * SECTOR));
        assert_eq!(pattern::stamp(&data[..SECTOR], 1, block * 8), Some(number), "block {block}");
    }
}

/// Whether `ursa status` there has a finding of this code.
fn has_finding(node: &Node, code: &str) -> bool {
    node.ursa(&["status", "-o", "json"]).stdout.contains(&format!("\"code\": \"{code}\""))
}

/// Three nodes, with the volume on the first two. The second one gets its earlier state back after further
/// writes to the volume.
fn set_back(what: What) -> [Node; 3] {
    let mut nodes = cluster_of_three();
    nodes[0]
        .ursa(&["volume", "create", "db", "--size", "64M", "--on", "1,2", "--target", TARGET])
        .expect_ok();
    wait_until_in_sync(&nodes[1], "db");
    put(&nodes[0], BLOCKS, BEFORE);
    std::thread::sleep(BITS);
    nodes[1].stop();
    let kept = tempfile::tempdir().expect("a directory can be made");
    copy(&what.of(&nodes[1]), kept.path());
    nodes[1].restart();
    wait_until_in_sync(&nodes[0], "db");
    put(&nodes[1], BLOCKS, AFTER);
    std::thread::sleep(BITS);
    nodes[1].stop();
    put(&nodes[0], FEW, AFTER);
    fs::remove_dir_all(what.of(&nodes[1])).expect("it can be removed");
    copy(kept.path(), &what.of(&nodes[1]));
    nodes
}

/// Now with a power loss of all nodes.
fn lose_power(nodes: &mut [Node; 3]) {
    nodes[0].kill();
    nodes[2].kill();
}

#[test]
fn a_pool_that_was_set_back_is_copied_as_a_whole() {
    let mut nodes = set_back(What::Pools);
    nodes[1].restart();
    wait_until_in_sync(&nodes[0], "db");
    expect(&nodes[1], AFTER);
    expect(&nodes[0], AFTER);
    let told = nodes[1].ursa(&["events", "-o", "json"]).expect_ok();
    assert!(told.contains("pool_set_back"), "{told}");
    assert_eq!(nodes[0].ursa_json(&["volume", "verify", "db"])["equal"], true);
}

#[test]
fn a_pool_that_was_set_back_in_a_blackout_never_continues_alone() {
    let mut nodes = set_back(What::Pools);
    lose_power(&mut nodes);
    nodes[1].restart();
    nodes[2].restart();
    // It is a finding until the copy is marked for a full resync, which takes a moment; there is one event.
    let told = || nodes[1].ursa(&["events", "-o", "json"]).stdout.contains("pool_set_back");
    wait(SERVES_LIMIT, "the second node says what is wrong", told);
    nodes[0].restart();
    wait_until_in_sync(&nodes[0], "db");
    expect(&nodes[1], AFTER);
    expect(&nodes[0], AFTER);
}

/// Its record, its vote and its pool.
#[test]
fn a_machine_that_was_set_back_takes_no_part() {
    let mut nodes = set_back(What::Everything);
    nodes[1].restart();
    wait(SERVES_LIMIT, "the second node says what is wrong", || has_finding(&nodes[1], "node-set-back"));
    let serves = || nodes[0].ursa_json(&["volume", "show", "db"])["serving"] == true;
    wait(SERVES_LIMIT, "the first node serves", serves);
    expect(&nodes[0], AFTER);
    let read = log_in(&nodes[1]).and_then(|mut raw| in_spite_of_attentions(|| raw.read(0, 8, 8 * SECTOR)));
    assert!(read.is_err(), "the second node serves hosts");
}

/// There is no leader when the nodes return: the others remember what the second one had confirmed, also
/// after its next restart. It must join again to return.
#[test]
fn a_record_that_was_set_back_in_a_black_out_votes_no_more() {
    let mut nodes = set_back(What::Record);
    lose_power(&mut nodes);
    nodes.iter_mut().rev().for_each(Node::restart);
    let forgotten = |nodes: &[Node; 3]| {
        wait(SERVES_LIMIT, "the second node says what is wrong", || has_finding(&nodes[1], "node-set-back"));
    };
    forgotten(&nodes);
    expect(&nodes[0], AFTER);
    nodes[1].stop();
    nodes[1].restart();
    forgotten(&nodes);
    nodes[0].ursa(&["volume", "copy", "remove", "db", "--on", "2", "--yes"]).expect_ok();
    nodes[0].ursa(&["node", "remove", "2", "--yes"]).expect_ok();
    expect(&nodes[0], AFTER);
}
