//! A volume with a single copy gets another one on another node while a host uses it, and survives its node.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use e2e::pattern::{self, SECTOR};
use e2e::raw::in_spite_of_attentions;

use crate::cluster::{TARGET, cluster_of_three, wait_until_in_sync};
use crate::set_back::{BLOCKS, expect, put, ready};

fn gets_a_copy(kind: &str) {
    let mut nodes = cluster_of_three();
    let create =
        ["volume", "create", "demo", "--size", "64M", "--kind", kind, "--copies", "1", "--target", TARGET];
    nodes[0].ursa(&create).expect_ok();
    put(&nodes[0], BLOCKS, 1);
    let mut host = ready(&nodes[0]);
    let ended = AtomicBool::new(false);
    let last = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut number = 1;
            while !ended.load(Ordering::Relaxed) {
                number += 1;
                for block in BLOCKS {
                    let data = pattern::stamped(1, number, block * 8, 8 * SECTOR);
                    let written = in_spite_of_attentions(|| host.write(block * 8, 8, &data, false));
                    written.unwrap_or_else(|error| panic!("block {block}, number {number}: {error}"));
                }
            }
            number
        });
        // By a command to a node without a copy.
        nodes[2].ursa(&["volume", "copy", "add", "demo", "--on", "2"]).expect_ok();
        wait_until_in_sync(&nodes[1], "demo");
        ended.store(true, Ordering::Relaxed);
        writer.join().expect("the host is told of no error")
    });
    assert!(last > 2, "{last} rounds of writes");
    nodes[0].kill();
    expect(&nodes[1], last);
}

#[test]
fn a_single_copy_on_disks_gets_another_under_load_and_outlives_its_node() {
    gets_a_copy("thick");
}

#[test]
fn a_single_copy_in_memory_gets_another_under_load_and_outlives_its_node() {
    gets_a_copy("ram");
}
