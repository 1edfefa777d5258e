//! A file system that fills up under one copy of a volume with two copies.
//!
//! Hosts see at most a lost path. The copy goes out of sync for that very reason, and comes back
//! automatically when there is room.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use e2e::Node;
use e2e::attached::{Mounted, can_mount, run};
use e2e::pattern::{self, SECTOR};
use e2e::raw::{Raw, in_spite_of_attentions};
use serde_json::Value;

use crate::cluster::{TARGET, cluster_of_three, copies, wait, wait_until_in_sync};
use crate::set_back::{expect_blocks, put, ready};

/// Size of the small file system: some times what the pool's file takes at first.
const BYTES: usize = 48 << 20;
/// Blocks of 4 KiB that are written at places of their own: the file system has room for far fewer.
const BLOCKS: std::ops::Range<u64> = 2048..2176;
/// Until the copy is out of sync, and until it is back.
const LIMIT: Duration = Duration::from_secs(60);
/// How long the copy must stay out of sync, without being added and removed again.
const STAYS_OUT: Duration = Duration::from_secs(5);

/// The beginning of sense data, as errors of [`e2e::raw::Raw`] print it: MEDIUM ERROR, HARDWARE ERROR, DATA
/// PROTECT.
pub const TOLD_OF_DISK: [&str; 6] =
    ["70, 00, 03", "f0, 00, 03", "70, 00, 04", "f0, 00, 04", "70, 00, 07", "f0, 00, 07"];

/// Puts a directory of the node on a file system of its own with this capacity. Its files stay sparse.
pub fn put_on_small_disk(node: &mut Node, place: &Path, bytes: usize) -> Mounted {
    node.stop();
    let kept = node.data_dir().join("kept");
    fs::rename(place, &kept).expect("it can be moved");
    fs::create_dir(place).expect("it can be made");
    let mounted = Mounted::small(bytes, place);
    for file in fs::read_dir(&kept).expect("it is there") {
        let file = file.expect("it can be read").path();
        let to = place.join(file.file_name().expect("it has a name"));
        let [from, to] = [&file, &to].map(|path| path.to_str().expect("our own path"));
        run("cp", &["-p", "--sparse=always", from, to]);
    }
    node.restart();
    mounted
}

/// Fills such a file system.
pub fn fill(directory: &Path, bytes: usize) {
    let full = fs::write(directory.join("filler"), vec![0; bytes]).expect_err("it is too much");
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
}

/// The copy on node 1, as node 2 shows it.
fn copy_on_first(nodes: &[Node; 3]) -> Value {
    let copies = copies(&nodes[1], "db");
    copies.into_iter().find(|copy| copy["node"] == 1).expect("it has a copy on node 1")
}

/// Writes a block through the first path that works: like multipath, gives up paths that have failed.
fn write(paths: &mut Vec<Raw>, block: u64) {
    let data = pattern::stamped(1, 2, block * 8, 8 * SECTOR);
    while let Some(path) = paths.first_mut() {
        let Err(error) = in_spite_of_attentions(|| path.write(block * 8, 8, &data, false)) else { return };
        let error = error.to_string();
        assert!(!TOLD_OF_DISK.iter().any(|sense| error.contains(sense)), "block {block}: {error}");
        paths.remove(0);
    }
    panic!("no path takes block {block}");
}

#[track_caller]
fn expect(node: &Node) {
    expect_blocks(node, BLOCKS, 2);
}

#[test]
fn a_copy_on_a_full_file_system_leaves_and_returns_automatically() {
    if !can_mount() {
        return;
    }
    let mut nodes = cluster_of_three();
    nodes[0]
        .ursa(&["volume", "create", "db", "--size", "64M", "--on", "1,2", "--target", TARGET])
        .expect_ok();
    wait_until_in_sync(&nodes[0], "db");
    let place = nodes[0].data_dir().join("pools");
    let _small = put_on_small_disk(&mut nodes[0], &place, BYTES);
    wait_until_in_sync(&nodes[1], "db");
    put(&nodes[0], 0..64, 1);

    let mut paths = vec![ready(&nodes[0]), ready(&nodes[1])];
    fill(&place, BYTES);
    BLOCKS.for_each(|block| write(&mut paths, block));
    wait(LIMIT, "the copy leaves", || copy_on_first(&nodes)["state"] != "in_sync");
    let is_said = || copy_on_first(&nodes)["sync"]["cause"].to_string().contains("is full");
    wait(LIMIT, "it is said why", is_said);
    expect(&nodes[1]);
    let status: Value =
        serde_json::from_str(&nodes[1].ursa(&["status", "-o", "json"]).stdout).expect("it is JSON");
    assert_eq!(status["health"], "warning", "{status:#}");
    thread::sleep(STAYS_OUT);
    assert_ne!(copy_on_first(&nodes)["state"], "in_sync");
    let events = nodes[1].ursa_json(&["events"]);
    let lost = events["items"].as_array().expect("it is a list").iter();
    let lost: Vec<_> = { lost }
        .filter(|event| event["code"] == "copy_out_of_sync" && event["cause"] == "no_space")
        .collect();
    assert_eq!(lost.len(), 1, "{events:#}");

    fs::remove_file(place.join("filler")).expect("it is there");
    wait(LIMIT, "the copy is in sync again", || copy_on_first(&nodes)["state"] == "in_sync");
    expect(&nodes[0]);
    // It was really resynced, not only marked as in sync.
    nodes[1].kill();
    expect(&nodes[0]);
}
