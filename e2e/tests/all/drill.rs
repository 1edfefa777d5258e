//! `ursa drill` reports what happened, and cleans up however it ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use e2e::node::binary;
use e2e::program;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::cluster::wait;

/// For a drill of one cycle on a busy machine.
const DRILL_LIMIT: Duration = Duration::from_secs(180);
/// From the end of a drill until its processes have ended.
const END_LIMIT: Duration = Duration::from_secs(10);

fn drill(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(["-o", "json", "drill"]).args(arguments).args(["--size", "32M", "--depth", "4", "--dir"]);
    command.arg(directory);
    command
}

/// Processes with this directory on their command line, except the drill itself.
fn nodes_in(directory: &Path) -> Vec<PathBuf> {
    let directory = directory.to_str().expect("our own path");
    let processes = fs::read_dir("/proc").expect("there is /proc").flatten().map(|entry| entry.path());
    let is_one = |process: &PathBuf| {
        let line = fs::read(process.join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains(directory) && line.contains("\0serve\0")
    };
    processes.filter(is_one).collect()
}

/// The heartbeat timeout: four heartbeats.
const SILENCE_MS: i64 = 400;

#[test]
fn a_drill_says_what_happened_and_leaves_nothing_behind() {
    // The node that is killed is also the leader of the cluster's record.
    let out_ms = drill_of_a_crash(&[], "its process died");
    assert!(out_ms < SILENCE_MS, "the others were told, and yet it took {out_ms} ms");
}

#[test]
fn without_watchers_the_others_wait_until_they_miss_a_node() {
    let out_ms = drill_of_a_crash(&["--no-watcher"], "heartbeat timeout");
    assert!(out_ms > SILENCE_MS - 100, "{out_ms} ms: less than silence, from the last heartbeat on");
}

/// From the death of the node until its copy is out of sync, in milliseconds.
fn drill_of_a_crash(more: &[&str], reason: &str) -> i64 {
    let home = TempDir::new().expect("a temporary directory can be made");
    let directory = home.path().join("nodes");
    // The length of a stall on a busy machine says nothing about the program.
    let arguments = ["crash-node", "--witness", "--seconds", "3", "--stall-max", "10000"];
    let mut command = drill(&directory, &[&arguments, more].concat());
    let record = program::run(&mut command, DRILL_LIMIT).expect_ok();
    let record: Value = serde_json::from_str(&record).expect("it is one JSON document");
    assert_eq!(record["passed"], true, "{record:#}");
    let cycle = &record["cycles"][0];
    let events: Vec<&Value> = cycle["events"].as_array().expect("a list").iter().collect();
    let at = |kind: &str, node: u64| {
        let event = events.iter().find(|event| event["kind"] == kind && event["node"] == node);
        event.unwrap_or_else(|| panic!("{kind} of {node}: {record:#}"))["ms"].as_i64().expect("a number")
    };
    let order = [
        at("fault", 1),
        at("out", 1),
        at("missed", 1),
        at("undone", 1),
        at("back", 1),
        at("catching_up", 1),
        at("in_sync", 1),
    ];
    assert!(order.is_sorted(), "{order:?}: {record:#}");
    assert_eq!((order[0], cycle["out_ms"].as_i64()), (0, Some(order[1])));
    let moved = &cycle["moved"];
    assert!(
        moved["dirty_bytes"].as_u64() > Some(0) && moved["synced_bytes"].as_u64() > Some(0),
        "{record:#}"
    );
    assert!(order[1] < 3_000, "the other goes on before the node is back: {record:#}");
    let out = events.iter().find(|event| event["kind"] == "out").expect("found above");
    assert!(out["text"].as_str().is_some_and(|text| text.contains(reason)), "{record:#}");
    println!("{more:?}: out after {} ms, longest wait {} ms", order[1], cycle["stall_ms"]);
    assert!(cycle["requests"].as_u64() > Some(100), "{record:#}");
    let checks = cycle["checks"].as_array().expect("a list");
    assert_eq!(checks.len(), 6, "{record:#}");
    assert!(checks.iter().all(|check| check["passed"] == true), "{record:#}");
    assert!(!directory.exists(), "its directory is removed");
    assert_eq!(nodes_in(&directory), Vec::<PathBuf>::new());
    order[1]
}

#[test]
fn a_copy_whose_disk_was_lost_is_rebuilt() {
    let home = TempDir::new().expect("a temporary directory can be made");
    let directory = home.path().join("nodes");
    // Replace a disk of another node than the one that created the cluster, and a second time on the state
    // that the first time left.
    let arguments =
        ["replace-disk", "--node", "2", "--cycles", "2", "--seconds", "2", "--stall-max", "10000"];
    let record = program::run(&mut drill(&directory, &arguments), DRILL_LIMIT).expect_ok();
    let record: Value = serde_json::from_str(&record).expect("it is one JSON document");
    assert_eq!(record["passed"], true, "{record:#}");
    for cycle in record["cycles"].as_array().expect("a list") {
        let happened = |kind: &str| {
            let events = cycle["events"].as_array().expect("a list");
            let found = events.iter().find(|event| event["kind"] == kind && event["node"] == 2);
            found.unwrap_or_else(|| panic!("{kind}: {record:#}"))["text"].as_str().expect("a text").to_owned()
        };
        assert!(happened("removed").contains("no longer has a copy"), "{record:#}");
        assert!(happened("added").contains("has a new copy"), "{record:#}");
        assert!(happened("in_sync").contains("resync complete"), "{record:#}");
        assert!(cycle["moved"]["synced_bytes"].as_u64() >= Some(32 << 20), "all of it: {record:#}");
        assert_eq!(cycle["checks"].as_array().expect("a list").len(), 7, "{record:#}");
    }
}

/// Hosts reach all nodes, and the links between the nodes have each kind of fault.
///
/// No acknowledged write is lost, and the copies are equal in the end. Drills check the length of stalls when
/// no other test runs.
#[test]
fn hosts_see_one_volume_whichever_links_are_cut() {
    for arguments in [
        ["cut-link", "--node", "1"].as_slice(),
        &["cut-one-way", "--node", "2"],
        &["cut-pair", "--node", "3", "--lossy"],
    ] {
        let (record, cycle) = drill_of_one_cycle(&[arguments, &["--seconds", "2"]].concat());
        assert_eq!(cycle["checks"].as_array().map(Vec::len), Some(6), "{record:#}");
        let out = events(&cycle, "out");
        assert_eq!(out.len(), 1, "one was taken out, and only once: {record:#}");
        assert_eq!(events(&cycle, "in_sync").len(), 1, "{record:#}");
        assert!(cycle["moved"]["dirty_bytes"].as_u64() > Some(0), "{record:#}");
    }
}

#[test]
fn a_node_paused_for_ten_seconds_serves_nothing_old_afterwards() {
    let (record, cycle) = drill_of_one_cycle(&["pause", "--node", "1", "--seconds", "10"]);
    let at = |kind: &str| events(&cycle, kind).first().and_then(|event| event["ms"].as_i64());
    assert!(at("out") < at("undone"), "the others go on without it: {record:#}");
    assert!(at("undone") < at("in_sync"), "{record:#}");
    assert!(cycle["moved"]["dirty_bytes"].as_u64() > Some(0), "{record:#}");
}

#[test]
fn a_node_that_is_stopped_in_order_is_waited_for_by_nobody() {
    // Shutdown gives hosts two seconds to leave: the drill counts writes that the node misses once it has
    // been away for a while.
    let (record, cycle) = drill_of_one_cycle(&["reboot", "--node", "3", "--seconds", "5"]);
    let out = events(&cycle, "out");
    let text = out.first().and_then(|event| event["text"].as_str());
    assert!(text.is_some_and(|text| text.contains("its node was stopped")), "{record:#}");
    assert_eq!(events(&cycle, "in_sync").len(), 1, "{record:#}");
}

#[test]
fn after_a_blackout_no_decision_is_needed() {
    let (record, cycle) = drill_of_one_cycle(&["black-out", "--witness", "--seconds", "1"]);
    assert_eq!(cycle["checks"].as_array().map(Vec::len), Some(5), "{record:#}");
}

/// Nodes recover their logs when they start: one of them while the others serve, and all of them at once.
#[test]
fn a_log_volume_survives_the_loss_of_one_node_and_of_all() {
    for (scenario, checks) in [("crash-node", 6), ("black-out", 5)] {
        let (record, cycle) = drill_of_one_cycle(&[scenario, "--kind", "log", "--witness", "--seconds", "2"]);
        assert_eq!(record["kind"], "log", "{record:#}");
        assert_eq!(cycle["checks"].as_array().map(Vec::len), Some(checks), "{record:#}");
    }
}

/// Copies in sync need no quorum.
#[test]
fn without_a_quorum_and_without_a_witness_hosts_notice_nothing() {
    for scenario in ["lose-quorum", "lose-witness"] {
        let (record, cycle) = drill_of_one_cycle(&[scenario, "--seconds", "3"]);
        assert_eq!(cycle["checks"].as_array().map(Vec::len), Some(6), "{record:#}");
        assert_eq!(events(&cycle, "out").len() + events(&cycle, "serves_not").len(), 0, "{record:#}");
        assert_eq!(cycle["moved"]["sent_bytes"].as_u64(), Some(0), "{record:#}");
    }
}

/// A network for heartbeats is only a preference. The drill waits until heartbeats, and nothing else, use it.
#[test]
fn when_the_network_for_heartbeats_falls_silent_hosts_notice_nothing() {
    let (record, cycle) = drill_of_one_cycle(&["cut-heartbeats", "--seconds", "3"]);
    assert_eq!(cycle["checks"].as_array().map(Vec::len), Some(6), "{record:#}");
    assert_eq!(events(&cycle, "out").len() + events(&cycle, "serves_not").len(), 0, "{record:#}");
    assert_eq!(cycle["moved"]["sent_bytes"].as_u64(), Some(0), "{record:#}");
}

/// The disk reports no error: only checksums find the damage. More reads find more of it.
#[test]
fn data_that_has_rotted_is_repaired_and_hosts_notice_nothing() {
    let (record, cycle) = drill_of_one_cycle(&["rot", "--reads", "80", "--seconds", "2"]);
    assert_eq!(cycle["checks"].as_array().map(Vec::len), Some(7), "{record:#}");
    assert_eq!(events(&cycle, "out").len() + events(&cycle, "serves_not").len(), 0, "{record:#}");
    let rot = |name: &str| cycle["rot"][name].as_u64().unwrap_or_else(|| panic!("{name}: {record:#}"));
    assert_eq!(rot("damaged_blocks"), 40, "{record:#}");
    assert!(rot("repaired_blocks") > 0 && rot("failed_reads") > 0, "{record:#}");
    println!("{}", cycle["rot"]);
}

/// Once, on a busy machine, two copies that had gone out of sync stayed so: their resyncs waited for space
/// for what the load had not written before, in front of what was unmapped.
#[test]
fn full_pools_are_read_and_take_writes_again_after_an_unmap() {
    let (record, cycle) = drill_of_one_cycle(&["full", "--seconds", "1"]);
    assert_eq!(cycle["checks"].as_array().map(Vec::len), Some(7), "{record:#}");
    let full = |name: &str| cycle["full"][name].as_u64().unwrap_or_else(|| panic!("{name}: {record:#}"));
    let (filled, pool) = (full("filled_bytes"), 64 << 20);
    assert!((pool / 4..pool).contains(&filled), "{record:#}");
    assert!(full("unmapped_bytes") >= filled / 4 && full("rewritten_bytes") > 0, "{record:#}");
    println!("{}", cycle["full"]);
}

/// Runs a drill of one cycle; returns its record, and that of the cycle.
fn drill_of_one_cycle(arguments: &[&str]) -> (Value, Value) {
    let home = TempDir::new().expect("a temporary directory can be made");
    let directory = home.path().join("nodes");
    // The length of a stall on a busy machine says nothing about the program.
    let common = ["--policy", "round-robin", "--stall-max", "10000"];
    let mut command = drill(&directory, &[arguments, &common].concat());
    let record = program::run(&mut command, DRILL_LIMIT).expect_ok();
    let record: Value = serde_json::from_str(&record).expect("it is one JSON document");
    assert_eq!(record["passed"], true, "{record:#}");
    let cycle = record["cycles"][0].clone();
    assert!(cycle["requests"].as_u64() > Some(100), "{record:#}");
    (record, cycle)
}

fn events<'a>(cycle: &'a Value, kind: &str) -> Vec<&'a Value> {
    let events = cycle["events"].as_array().expect("a list");
    events.iter().filter(|event| event["kind"] == kind && event["ms"].as_i64() >= Some(0)).collect()
}

/// Starts a drill, and waits for its nodes.
fn started(directory: &Path) -> Child {
    let mut command = drill(directory, &["crash-node", "--seconds", "600"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary was built");
    wait(END_LIMIT, "three nodes", || nodes_in(directory).len() == 3);
    child
}

#[test]
fn a_drill_that_is_interrupted_clears_up() {
    let home = TempDir::new().expect("a temporary directory can be made");
    let directory = home.path().join("nodes");
    let mut child = started(&directory);
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    let status = program::wait(&mut child, END_LIMIT).expect("it ends in time");
    assert_eq!(status.code(), Some(1));
    assert!(!directory.exists() && nodes_in(&directory).is_empty());
}

#[test]
fn the_nodes_of_a_drill_die_with_it() {
    let home = TempDir::new().expect("a temporary directory can be made");
    let directory = home.path().join("nodes");
    let mut child = started(&directory);
    child.kill().expect("it runs");
    child.wait().expect("it was killed");
    wait(END_LIMIT, "no nodes", || nodes_in(&directory).is_empty());
}

#[test]
fn invalid_drills_are_refused_before_anything_is_done() {
    let home = TempDir::new().expect("a temporary directory can be made");
    let directory = home.path().join("nodes");
    for (arguments, code, words) in [
        (["black-out", "--ram"].as_slice(), 2, "a RAM volume does not survive the loss of all nodes"),
        (["crash-node", "--node", "4"].as_slice(), 2, "node 4 has no copy; nodes 1 to 3 have one"),
        (["lose-quorum", "--witness"].as_slice(), 2, "lose-quorum has a fixed set of nodes"),
        (["full", "--ram"].as_slice(), 2, "full uses a log volume"),
        (["rot", "--kind", "thick"].as_slice(), 2, "rot uses a log volume"),
        (["rot", "--cycles", "2"].as_slice(), 2, "rot has one cycle"),
    ] {
        let finished = program::run(&mut drill(&directory, arguments), END_LIMIT);
        assert_eq!(finished.status.and_then(|status| status.code()), Some(code), "{finished}");
        assert!(finished.output.contains(words), "{finished}");
        assert!(!directory.exists());
    }
    // A drill leaves an existing directory alone.
    fs::create_dir(&directory).expect("a directory can be made");
    let finished = program::run(&mut drill(&directory, &["crash-node"]), END_LIMIT);
    assert!(!finished.ok() && directory.exists(), "{finished}");
}
