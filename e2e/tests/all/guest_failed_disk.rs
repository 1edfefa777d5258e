//! A disk that begins to fail writes, with the Linux kernel's initiator and dm-multipath as `ursa host-setup
//! linux` sets them up.

use std::time::Duration;

use e2e::{Export, Guest, Node, VolumeSpec};

use crate::cluster::{cluster_of_three, wait, wait_until_in_sync};
use crate::guest::script;
use crate::guest_cluster::{create, host_setup, look, verify, wait_for_paths};

const MIB: u64 = 1 << 20;

/// Where the disk, a file, begins to fail. A volume of 128 MiB begins before it and ends after it.
const BAD_FROM: u64 = 64 * MIB;

/// Where in the volume the failing writes go, in MiB. However the volume is striped, a part of these 8 MiB is
/// in the second half of its space.
const AT: &str = "AT=112";

/// Until the kernel fails the I/O of a multipath device without an active path, in seconds: `no_path_retry`
/// is 24 times 5, and the same again for emulation, which is slow.
const GIVEN_UP: &str = "LIMIT=240";

/// The pool that every node has from its start.
const POOL: &str = "default";

/// Until a node has detected something and decided on it.
const LIMIT: Duration = Duration::from_secs(30);

fn pool_state(node: &Node) -> String {
    node.ursa_json(&["pool", "show", POOL])["state"].as_str().expect("a pool has a state").to_owned()
}

/// Ends the fault of the disk, and reopens the pool.
#[track_caller]
fn mend(node: &Node) {
    node.fail_writes_beyond(None);
    node.ursa(&["pool", "reopen", POOL, "--yes"]).expect_ok();
    assert_eq!(pool_state(node), "online");
}

/// Makes the disk fail; it accepts no writes from then on.
#[track_caller]
fn stall(node: &Node, guest: &Guest, export: &Export) {
    node.fail_writes_beyond(Some(BAD_FROM));
    look(guest, export, AT, script!("disk-stalls"));
    assert_eq!(pool_state(node), "disk_failed", "it stays so though it could be written elsewhere");
}

/// TEST UNIT READY must not be answered GOOD: otherwise multipathd would reinstate the paths at each check,
/// and the kernel would retry forever.
#[test]
fn io_to_the_only_copy_on_a_failed_disk_waits_for_a_while_and_ends_in_an_error() {
    let mut node = Node::start();
    let export = node.create(&VolumeSpec::new("failing", 128 * MIB));
    let Some(guest) = Guest::start("failing") else { return };
    guest.run(&export, &host_setup(&node, &export), script!("host-setup")).expect_ok();
    look(&guest, &export, AT, script!("disk-good"));

    // Repaired in time: the host sees no error.
    stall(&node, &guest, &export);
    mend(&node);
    look(&guest, &export, &format!("{AT} {GIVEN_UP} WANTED=done"), script!("disk-ends"));
    look(&guest, &export, AT, script!("disk-good"));

    stall(&node, &guest, &export);
    look(&guest, &export, &format!("{AT} {GIVEN_UP} WANTED=refused"), script!("disk-ends"));
    mend(&node);
    look(&guest, &export, AT, script!("disk-good"));
}

#[test]
fn io_uses_the_node_of_another_copy_when_the_disk_of_one_fails() {
    let nodes = cluster_of_three();
    let export = create(&nodes, "1,2");
    let Some(guest) = Guest::start("degraded") else { return };
    guest.run(&export, &host_setup(&nodes[0], &export), script!("host-setup")).expect_ok();
    guest.run(&export, "", script!("write-on")).expect_ok();
    wait_for_paths(&guest, &export, "active active");

    nodes[1].fail_writes_beyond(Some(BAD_FROM));
    look(&guest, &export, AT, script!("disk-write"));
    wait_for_paths(&guest, &export, "active unavailable");
    wait(LIMIT, "the pool says that its disk has failed", || pool_state(&nodes[1]) == "disk_failed");

    mend(&nodes[1]);
    wait_until_in_sync(&nodes[0], "db");
    wait_for_paths(&guest, &export, "active active");
    guest.run(&export, "", script!("write-end")).expect_ok();
    verify(&nodes[0]);
}
