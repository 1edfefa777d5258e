//! A pool's file is truncated outside of its node's control, under a volume with two copies in sync.

use std::fs::File;
use std::time::Duration;

use e2e::Node;
use e2e::pattern::{self, SECTOR};
use e2e::raw::in_spite_of_attentions;
use serde_json::{Value, json};

use crate::cluster::{TARGET, cluster_of_three, copies, wait, wait_until_in_sync};
use crate::full_disk::TOLD_OF_DISK;
use crate::set_back::{BLOCKS, expect, put, ready};

/// The file of the pool, in the data directory.
const FILE: &str = "pools/default.img";

/// Less than the volume's space: none of its data remains.
const LEFT_BYTES: u64 = 1 << 20;

/// Until the copy is out of sync.
const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn no_host_gets_a_medium_error_for_data_that_the_other_copy_has() {
    let nodes = cluster_of_three();
    nodes[0]
        .ursa(&["volume", "create", "db", "--size", "64M", "--on", "1,2", "--target", TARGET])
        .expect_ok();
    wait_until_in_sync(&nodes[0], "db");
    put(&nodes[0], BLOCKS, 1);
    let mut host = ready(&nodes[0]);
    let file = File::options().write(true).open(nodes[0].data_dir().join(FILE));
    file.and_then(|file| file.set_len(LEFT_BYTES)).expect("the file can be cut");

    let mut found = 0;
    for block in BLOCKS {
        match in_spite_of_attentions(|| host.read(block * 8, 8, 8 * SECTOR)) {
            Ok(data) => {
                assert_eq!(pattern::stamp(&data[..SECTOR], 1, block * 8), Some(1), "block {block}");
                found += 1;
            }
            // The path is lost: multipath takes the other one.
            Err(error) => {
                let error = error.to_string();
                assert!(!TOLD_OF_DISK.iter().any(|sense| error.contains(sense)), "block {block}: {error}");
            }
        }
    }
    assert!(found > 0, "no block was read from the other copy by this path");
    let out = || copies(&nodes[1], "db").iter().any(|copy| copy["node"] == 1 && copy["state"] != "in_sync");
    wait(LIMIT, "the copy leaves", out);
    expect(&nodes[1], 1);
    // There is one event about it.
    let status = nodes[1].ursa(&["status", "-o", "json"]).stdout;
    assert!(!status.contains("\"health\": \"healthy\""), "{status}");
    let events = nodes[1].ursa_json(&["events"]);
    let lost = events["items"].as_array().expect("it is a list").iter();
    let lost: Vec<_> = lost.filter(|event| event["code"] == "copy_out_of_sync").collect();
    assert_eq!(lost.len(), 1, "{lost:#?}");
    names_what_was_unreadable(&nodes[0]);
    verify_compares_what_is_in_sync(&nodes[1]);
}

/// Its own events name the node, pool, disk and offset, and the LBA of the volume.
fn names_what_was_unreadable(node: &Node) {
    let events = node.ursa_json(&["events", "--limit", "1000"]);
    let failed = events["items"].as_array().expect("it is a list").iter();
    let failed: Vec<_> = failed.filter(|event| event["code"] == "read_failed").collect();
    let is_read = |event: &Value| event["range"]["lba"].as_u64().is_some_and(|lba| lba < BLOCKS.end * 8);
    assert!(failed.iter().copied().any(is_read), "{events:#}");
    for event in failed {
        let range = &event["range"];
        assert_eq!((&range["node"], &range["pool"]), (&json!(1), &json!("default")), "{event:#}");
        let disk = range["disk"].as_str().expect("a path");
        assert!(disk.ends_with(FILE), "{event:#}");
        assert!(range["offset"].as_u64() >= Some(LEFT_BYTES), "{event:#}");
    }
}

/// What a disk cannot read does not count as a difference: a copy out of sync is not compared.
///
/// `node/tests/copies/verifying.rs` shows what a verify reports about the disk of a copy in sync.
fn verify_compares_what_is_in_sync(node: &Node) {
    let told = node.ursa(&["volume", "verify", "db", "-o", "json"]).stdout;
    let found: Value = serde_json::from_str(&told).unwrap_or_else(|error| panic!("{error}: {told}"));
    assert_eq!((&found["different_bytes"], &found["unchecked_bytes"]), (&json!(0), &json!(0)), "{found:#}");
    assert_eq!(found["nodes"], json!([2]), "{found:#}");
}
