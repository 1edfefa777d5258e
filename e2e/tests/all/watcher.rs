//! The process that watches a node's process: small, with none of the node's files open, and gone when it has
//! reported the death.

use std::fs;
use std::thread;
use std::time::Duration;

use e2e::Node;
use e2e::node::own_bytes;
use rustix::process::{Pid, Signal, kill_process};

use crate::cluster::{cluster_of_three, wait};

/// A node checks twice a second that it has a watcher.
const WATCHER_LIMIT: Duration = Duration::from_secs(10);
/// A node passes its knowledge to the watcher twice a second; on a busy machine later.
const HANDED_WITHIN: Duration = Duration::from_secs(3);
/// The watcher tries to report for two seconds at most.
const END_LIMIT: Duration = Duration::from_secs(10);
/// The watcher's own memory, at most, in bytes.
const OWN_MAX: u64 = 4 << 20;

/// The watchers of the process with this number, by their numbers.
fn watchers(of: u32) -> Vec<u32> {
    let wanted = format!("ursa\0watch-process\0{of}\0");
    let processes = fs::read_dir("/proc").expect("there is /proc").flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers
        .filter(|pid| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == wanted.as_bytes()))
        .collect()
}

fn watcher(node: &Node) -> u32 {
    wait(WATCHER_LIMIT, "a watcher", || watchers(node.pid()).len() == 1);
    watchers(node.pid())[0]
}

#[test]
fn a_node_of_a_cluster_has_a_watcher_that_needs_next_to_nothing() {
    let alone = Node::start();
    let mut nodes = cluster_of_three();
    let found = watcher(&nodes[0]);
    // While it starts it may use more.
    let is_small = || own_bytes(found) < OWN_MAX;
    wait(WATCHER_LIMIT, "a watcher that takes next to nothing", is_small);
    println!("the watcher takes {} KiB", own_bytes(found) / 1024);
    // It has its own pipe, its log, and the process that it watches open: nothing that would keep a port, a
    // lock or a disk in use.
    let open = fs::read_dir(format!("/proc/{found}/fd")).expect("it runs").flatten();
    for descriptor in open {
        let target = fs::read_link(descriptor.path()).unwrap_or_default();
        let name = target.to_string_lossy().into_owned();
        let harmless = name.starts_with("pipe:") || name == "/dev/null" || name.contains("pidfd");
        let log = nodes[0].data_dir().with_extension("log");
        assert!(harmless || target == log, "{name} is open");
    }
    assert_eq!(watchers(alone.pid()), Vec::<u32>::new(), "the only node of a cluster has nobody to tell");

    // A service manager sends it to all processes of a service.
    kill_process(Pid::from_raw(found as i32).expect("not 0"), Signal::TERM).expect("it runs");
    let one = nodes[1].pid();
    let other = watcher(&nodes[1]);
    kill_process(Pid::from_raw(other as i32).expect("not 0"), Signal::KILL).expect("it runs");
    wait(WATCHER_LIMIT, "another watcher", || watchers(one).iter().any(|pid| *pid != other));
    assert_eq!(watchers(nodes[0].pid()), [found], "it does not mind SIGTERM");

    // Killed, and restarted at once: its ports and its directory are free. Its watcher knows both other nodes
    // by then.
    thread::sleep(HANDED_WITHIN);
    let dead = nodes[0].pid();
    nodes[0].kill();
    nodes[0].restart();
    wait(END_LIMIT, "the end of the watcher", || watchers(dead).is_empty());
    assert!(nodes[0].log().contains("2 other nodes were notified"), "{}", nodes[0].log());
    // After an orderly stop, the watcher has nothing to report.
    watcher(&nodes[0]);
    let stopped = nodes[0].pid();
    nodes[0].stop();
    wait(END_LIMIT, "the end of the watcher", || watchers(stopped).is_empty());
    assert_eq!(nodes[0].log().matches("the node's process has died").count(), 1, "{}", nodes[0].log());
}
