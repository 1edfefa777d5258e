//! The Linux kernel's initiator, dm-multipath and reservations, in a guest, as a host of a volume with two or
//! three copies.

use std::thread;
use std::time::Duration;

use e2e::{Export, Guest, Node, VolumeSpec};
use serde_json::Value;

use crate::cluster::{cluster_of_three, init, join, pausable_job, wait, wait_until_in_sync};
use crate::etcd::{Etcd, cluster_of_two};
use crate::guest::script;

const TARGET: &str = "iqn.2026-11.io.ursa:shared";

/// Until nodes have detected something and decided on it.
const LIMIT: Duration = Duration::from_secs(60);

/// How often to repeat a doubt: the state is *transitioning* only for a second and a half, and an emulated
/// host may get no processor time in it.
const DOUBTS_MAX: usize = 6;

/// Creates the volume `db` with copies on these nodes; returns the paths through one portal of each of the
/// first two.
pub fn create(nodes: &[Node], on: &str) -> Export {
    nodes[0].ursa(&["volume", "create", "db", "--size", "128M", "--on", on, "--target", TARGET]).expect_ok();
    wait_until_in_sync(&nodes[0], "db");
    let portals = nodes[..2].iter().map(|node| node.portals()[0]).collect();
    Export { portals, target: TARGET.to_owned(), lun: 0, chap: None }
}

/// The commands that `ursa host-setup linux` prints for users.
pub fn host_setup(node: &Node, export: &Export) -> String {
    let target = export.target.clone();
    let mut arguments = vec!["host-setup".to_owned(), "linux".into(), "--target".into(), target];
    for portal in Guest::portals(export) {
        arguments.extend(["--portal".to_owned(), portal]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let text = node.ursa(&arguments).expect_ok();
    format!("cat >/run/host-setup <<'PRINTED'\n{text}PRINTED")
}

/// Runs a script after `ways`; returns its output.
#[track_caller]
pub fn look(guest: &Guest, export: &Export, variables: &str, script: &str) -> String {
    guest.run(export, &format!("{variables}\n{}", script!("ways")), script).expect_ok()
}

/// Waits until the guest has its paths in these states; returns what the nodes reported about them then.
#[track_caller]
pub fn wait_for_paths(guest: &Guest, export: &Export, wanted: &str) -> String {
    look(guest, export, &format!("WANTED='{wanted}'"), script!("paths"))
}

/// Checks that all copies have the same data.
#[track_caller]
pub fn verify(node: &Node) {
    let found = node.ursa_json(&["volume", "verify", "db"]);
    assert_eq!(found["equal"], Value::Bool(true), "{found}");
}

#[test]
fn multipath_continues_without_a_node_and_uses_it_again() {
    let mut nodes = cluster_of_three();
    let export = create(&nodes, "1,2");
    let Some(guest) = Guest::start("crash") else { return };
    let states = |wanted: &str| wait_for_paths(&guest, &export, wanted);
    guest.run(&export, &host_setup(&nodes[0], &export), script!("host-setup")).expect_ok();
    guest.run(&export, "", script!("write-on")).expect_ok();
    states("active active");
    nodes[1].kill();
    states("active lost");
    // Otherwise it would be in sync again before an emulated host has looked.
    nodes[0].ursa(&["node", "maintenance", "2", "on"]).expect_ok();
    nodes[1].restart();
    states("active unavailable");
    nodes[0].ursa(&["node", "maintenance", "2", "off"]).expect_ok();
    wait_until_in_sync(&nodes[0], "db");
    states("active active");
    guest.run(&export, "", script!("write-end")).expect_ok();
    verify(&nodes[0]);
}

/// A third copy misses writes and its resync is held up: for so long its source is not an optimized path to
/// the volume.
#[test]
fn multipath_spares_the_node_that_brings_another_one_up_to_date() {
    let nodes = cluster_of_three();
    let export = create(&nodes, "1,2,3");
    let Some(guest) = Guest::start("source") else { return };
    guest.run(&export, &host_setup(&nodes[0], &export), script!("host-setup")).expect_ok();
    guest.run(&export, "", script!("write-on")).expect_ok();
    wait_for_paths(&guest, &export, "active active");
    nodes[0].ursa(&["node", "maintenance", "3", "on"]).expect_ok();
    wait(LIMIT, "there is something to copy", || pausable_job(&nodes[0]).is_some());
    let job = pausable_job(&nodes[0]).expect("it was there just now");
    nodes[0].ursa(&["job", "pause", &job]).expect_ok();
    nodes[0].ursa(&["node", "maintenance", "3", "off"]).expect_ok();

    // The resync may take either of the two as its source.
    let seen = wait_for_paths(&guest, &export, "non-optimized active|active non-optimized");
    let source = usize::from(!seen.contains("states: non-optimized active"));
    let told = ["told 103", "told 013"][source];
    assert_eq!(seen.matches(told).count(), 2, "both nodes tell the same of all three, {told:?}: {seen}");
    let portals = Guest::portals(&export);
    let ways = format!("SOURCE='{}' OPTIMIZED='{}'", portals[source], portals[1 - source]);
    look(&guest, &export, &ways, script!("detour"));

    nodes[0].ursa(&["job", "resume", &job]).expect_ok();
    wait_until_in_sync(&nodes[0], "db");
    wait_for_paths(&guest, &export, "active active");
    guest.run(&export, "", script!("write-end")).expect_ok();
    verify(&nodes[0]);
}

/// With an etcd that answers reads but refuses changes, a node whose partner has fallen silent can neither
/// remove it nor learn that it was itself removed.
#[test]
fn the_kernel_sees_a_node_that_cannot_tell_whether_it_may_serve() {
    let Some(etcd) = Etcd::start() else { return };
    let mut nodes = cluster_of_two(&etcd);
    let export = create(&nodes, "1,2");
    let Some(guest) = Guest::start("doubt") else { return };
    guest.run(&export, &host_setup(&nodes[0], &export), script!("host-setup")).expect_ok();
    let mut all_seen = Vec::new();
    // Each in one of the doubts: a guest that gets no processor time in one may get it in another.
    let (mut told, mut known) = (false, false);
    let is_seen = (0..DOUBTS_MAX).any(|_| {
        wait_for_paths(&guest, &export, "active active");
        let seen = seen_in_doubt(&etcd, &mut nodes, &guest, &export);
        told |= seen.lines().any(|line| line.starts_with('f'));
        known |= seen.lines().any(|line| line.ends_with(" transitioning"));
        all_seen.push(seen);
        told && known
    });
    assert!(is_seen, "no kernel saw that the node was transitioning: {all_seen:#?}");
    wait_for_paths(&guest, &export, "active active");
    verify(&nodes[0]);
}

/// What the guest saw until the first node was unavailable, while the second one was stopped. At the end both
/// are in sync.
///
/// A line for each change of what the first node reported about both, or of the kernel's state of the path to
/// it.
fn seen_in_doubt(etcd: &Etcd, nodes: &mut [Node; 2], guest: &Guest, export: &Export) -> String {
    look(guest, export, "", script!("watch"));
    etcd.refuse_changes(true);
    let frozen = nodes[1].freeze();
    let seen = look(guest, export, "", script!("doubt"));
    etcd.refuse_changes(false);
    // Otherwise the second one might continue.
    let goes_on = || nodes[0].ursa_json(&["volume", "show", "db"])["serving"] == true;
    wait(LIMIT, "the first node goes on", goes_on);
    drop(frozen);
    wait_until_in_sync(&nodes[0], "db");
    look(guest, export, "", script!("doubt-over"));
    seen
}

#[test]
fn promises_of_one_node_are_kept_by_the_other() {
    let mut nodes = cluster_of_three();
    let export = create(&nodes, "1,2");
    let Some(guest) = Guest::start("promised") else { return };
    guest.run(&export, "", script!("two-hosts")).expect_ok();
    guest.run(&export, "", script!("reservations")).expect_ok();
    guest.run(&export, "", script!("compare-and-write")).expect_ok();
    guest.run(&export, "", script!("reserve-for-good")).expect_ok();
    nodes[0].kill();
    guest.run(&export, "", script!("fence")).expect_ok();
    nodes[0].restart();
    wait_until_in_sync(&nodes[1], "db");
    guest.run(&export, "", script!("fenced")).expect_ok();
}

/// open-iscsi logs in again only if a portal is in the portal group of the first login.
#[test]
fn the_host_of_a_node_that_has_joined_logs_in_again() {
    let (first, mut node) = (Node::start(), Node::start());
    init(&first);
    let export = node.create(&VolumeSpec::new("joined", 64 << 20));
    let Some(guest) = Guest::start("joined") else { return };
    guest.run(&export, "", script!("attach")).expect_ok();
    join(&first, &node);
    guest.run(&export, "", script!("write-through")).expect_ok();
    node.kill();
    thread::sleep(Duration::from_secs(2));
    guest.run(&export, "", script!("through-stat")).expect_ok();
    node.restart();
    guest.run(&export, "", script!("through-end")).expect_ok();
}
