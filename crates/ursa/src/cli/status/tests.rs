//! The whole screen in each state.

use api::{
    Change, ClusterNode, CopyState, CopySync, DiskFailure, List, Missing, Node, NodeProblem, Pool, PoolDisk,
    PoolState, RecordPlace, Since, SyncRestraint, Volume, VolumeCopy, VolumeFork, VolumeKind,
};

use super::health::{self, Health};
use super::{Observed, screen};
use crate::samples::{self, sync, volume};

const G: u64 = 1 << 30;

fn copy(node: u16, state: CopyState, sync: Option<CopySync>) -> VolumeCopy {
    VolumeCopy { sync, ..samples::copy(usize::from(node) - 1, node, state) }
}

fn cluster_node(id: u16) -> ClusterNode {
    ClusterNode { copies: 2, in_sync: 2, ..samples::node(id) }
}

fn pool(state: PoolState) -> Pool {
    Pool {
        name: "default".into(),
        id: Some("1".into()),
        state,
        reason: None,
        total: 100 * G,
        free: 80 * G,
        extent: 1 << 20,
        volumes: 2,
        disks: Vec::new(),
        promised: 0,
        overcommit: None,
        node: None,
        node_name: None,
    }
}

/// A node without a cluster, and a volume.
fn alone() -> Observed {
    Observed {
        node: Node {
            name: "server1".into(),
            version: "0.1.0".into(),
            cores: 2,
            portals: vec!["0.0.0.0:3260".into()],
            uptime: 90_000,
            changes: Vec::new(),
            problems: Vec::new(),
            record: None,
            record_place: RecordPlace::Nodes,
            read_confirm: api::ReadConfirm::default(),
        },
        nodes: None,
        problems: List::of(Vec::new()),
        pools: vec![pool(PoolState::Online)],
        volumes: vec![volume("db", Vec::new())],
        targets: Vec::new(),
        sessions: 1,
        missing: Vec::new(),
        asked_at: 1000,
    }
}

/// What node `id` of a cluster says, or a node without one.
fn problem(id: Option<u16>, text: &str) -> NodeProblem {
    let node_name = id.map(|id| format!("server{id}"));
    NodeProblem { text: text.into(), code: None, subject: None, since: None, node: id, node_name }
}

/// The same, of a kind, and about something.
fn problem_of(id: Option<u16>, code: &str, subject: &str, text: &str) -> NodeProblem {
    NodeProblem { code: Some(code.into()), subject: Some(subject.into()), ..problem(id, text) }
}

/// Three nodes with two volumes of two copies each.
fn cluster() -> Observed {
    let both = || vec![copy(1, CopyState::InSync, None), copy(2, CopyState::InSync, None)];
    Observed {
        nodes: Some(vec![
            cluster_node(1),
            cluster_node(2),
            ClusterNode { witness: true, copies: 0, in_sync: 0, ..cluster_node(3) },
        ]),
        volumes: vec![volume("db", both()), volume("mail", both())],
        ..alone()
    }
}

#[track_caller]
fn shows(observed: &Observed, health: Health, line: &str, screen: &str) {
    let findings = health::findings(observed);
    let report = observed.report(&findings);
    assert_eq!(report.health, health, "{findings:#?}");
    assert_eq!(super::screen::line(report.health, &findings), format!("{line}\n"));
    let text = screen::text(observed, &report);
    assert_eq!(text, screen, "\n{text}");
    assert!(text.lines().count() <= 24, "it is one screen");
}

#[test]
fn a_node_alone_is_healthy() {
    shows(
        &alone(),
        Health::Healthy,
        "healthy",
        "\
Node       server1, ursa 0.1.0, up 1d01h; 2 cores, iSCSI 0.0.0.0:3260
Cluster    none
State      healthy
Resync     none needed: no volume has copies on several nodes
Tolerance  if this node is lost: db: unavailable until the node returns (no other copy)
Action     none needed
Advice     none
Pools      default: 80G free of 100G
Objects    1 volume, 0 targets, 1 session
Changes    none in progress
",
    );
}

#[test]
fn data_in_the_memory_of_one_node_is_lost_with_it() {
    let mut observed = alone();
    let in_memory = |name: &str| Volume { kind: VolumeKind::Ram, ..volume(name, Vec::new()) };
    observed.volumes.push(in_memory("scratch"));
    let report = observed.report(&[]);
    assert_eq!(
        report.losses,
        [
            "if this node is lost: scratch: DATA LOST (in memory, no other copy)",
            "if this node is lost: db: unavailable until the node returns (no other copy)",
        ]
    );
}

#[test]
fn a_cluster_in_sync_is_healthy() {
    shows(
        &cluster(),
        Health::Healthy,
        "healthy",
        "\
Node       server1, ursa 0.1.0, up 1d01h; 2 cores, iSCSI 0.0.0.0:3260
Cluster    3 of 3 nodes up, 4 of 4 copies in sync
State      healthy
Resync     none needed: all copies are in sync
Tolerance  if node 1 is lost: db, mail: still available, after a pause of about a second
           if node 2 is lost: db, mail: still available, after a pause of about a second
Action     none needed
Advice     none
Pools      default: 80G free of 100G
Objects    2 volumes, 0 targets, 1 session
Changes    none in progress
",
    );
}

#[test]
fn a_copy_that_is_given_what_it_missed_degrades() {
    let mut observed = cluster();
    let limited = CopySync { limited_by: Some(SyncRestraint::ClusterLimit), ..sync() };
    observed.volumes[0].copies[1] = copy(2, CopyState::OutOfSync, Some(limited));
    observed.nodes.as_mut().unwrap()[1].in_sync = 1;
    shows(
        &observed,
        Health::Degraded,
        "DEGRADED: The copy of db on node 2 is out of sync and resyncing.",
        "\
Node       server1, ursa 0.1.0, up 1d01h; 2 cores, iSCSI 0.0.0.0:3260
Cluster    3 of 3 nodes up, 3 of 4 copies in sync
State      DEGRADED: The copy of db on node 2 is out of sync and resyncing. (for at least 2m00s)
Resync     1 copy: 7G of 10G copied (70 %), 64M/s, 48s to go
           db on node 2: 3G of 10G left to copy, 64M/s, 48s to go; cause: its node restarted; limited by the cluster's resync limit (ursa node resync-limit)
Tolerance  if node 1 is lost: db: unavailable until the node returns (only copy in sync)
           if node 1 is lost: mail: still available, after a pause of about a second
           if node 2 is lost: db: no effect (its copy is out of sync)
           if node 2 is lost: mail: still available, after a pause of about a second
Action     No action needed; resync in progress: ursa volume show db
Advice     none
Pools      default: 80G free of 100G
Objects    2 volumes, 0 targets, 1 session
Changes    none in progress
",
    );
}

#[test]
fn a_node_that_is_down_degrades() {
    let mut observed = cluster();
    for volume in &mut observed.volumes {
        volume.copies[1] = copy(2, CopyState::OutOfSync, None);
    }
    let nodes = observed.nodes.as_mut().unwrap();
    (nodes[1].up, nodes[1].down_since, nodes[1].in_sync) = (false, Some(Since::exactly(815)), 0);
    shows(
        &observed,
        Health::Degraded,
        "DEGRADED: Node 2 (server2) is down: heartbeat timeout.",
        "\
Node       server1, ursa 0.1.0, up 1d01h; 2 cores, iSCSI 0.0.0.0:3260
Cluster    2 of 3 nodes up, 2 of 4 copies in sync
State      DEGRADED: Node 2 (server2) is down: heartbeat timeout. (for 3m05s)
Resync     2 copies are out of sync, progress unknown
Tolerance  if node 1 is lost: db, mail: unavailable until the node returns (only copy in sync)
Action     Check that the server runs, and start Ursa there (server2): systemctl start ursa
Advice     none
Pools      default: 80G free of 100G
Objects    2 volumes, 0 targets, 1 session
Changes    none in progress
",
    );
}

#[test]
fn a_split_volume_is_a_loss_and_comes_first() {
    let mut observed = cluster();
    observed.nodes.as_mut().unwrap().truncate(2);
    observed.nodes.as_mut().unwrap()[1].votes = false;
    observed.volumes[1].fork = Some(VolumeFork { node: 2, since: 9, split: true });
    let waits = Some("node 2 to be reachable again (heartbeat timeout)".to_owned());
    let waiting = CopySync { bytes_per_second: 0, seconds_left: None, waits_for: waits, ..sync() };
    observed.volumes[0].copies[1] = copy(2, CopyState::OutOfSync, Some(waiting));
    shows(
        &observed,
        Health::Lost,
        "LOST: Split brain on volume mail: two nodes each have writes that the other lacks. (1 more: `ursa status`)",
        "\
Node       server1, ursa 0.1.0, up 1d01h; 2 cores, iSCSI 0.0.0.0:3260
Cluster    2 of 2 nodes up, 4 of 4 copies in sync
State      LOST: Split brain on volume mail: two nodes each have writes that the other lacks. (for 16m31s)
           The copy of db on node 2 is out of sync and waits for node 2 to be reachable again (heartbeat timeout). (for at least 2m00s)
Resync     1 copy: 7G of 10G copied (70 %), 0/s, time left unknown
           db on node 2: 3G of 10G left to copy; cause: its node restarted; WAITING for node 2 to be reachable again (heartbeat timeout)
Tolerance  if node 1 is lost: db: unavailable until the node returns (only copy in sync)
           if node 1 is lost: mail: unavailable until the node returns (preferred node, and there is no witness: `ursa node prefer`)
           if node 2 is lost: db: no effect (its copy is out of sync)
           if node 2 is lost: mail: still available, after a pause of about a second
Action     Back up what you need, then choose which side to keep: ursa volume resolve-split-brain mail --keep NODE --discard-other
           If it keeps waiting, check what it waits for: ursa volume show db
           Add a third node; a small machine as a witness is enough: ursa node token
Advice     Two nodes without a witness have no majority: if the preferred node is lost, the other one waits for it.
Pools      default: 80G free of 100G
Objects    2 volumes, 0 targets, 1 session
Changes    none in progress
",
    );
}

#[test]
fn a_failed_disk_of_a_node_alone_is_a_loss() {
    let mut observed = alone();
    let failure = DiskFailure { error: "Input/output error (os error 5)".into(), since: 9 };
    let disk = PoolDisk { path: "/dev/sdb".into(), id: None, total: 0, free: 0, failure: Some(failure) };
    let reason = Some("/dev/sdb failed to write: Input/output error (os error 5)".to_owned());
    observed.pools = vec![Pool { reason, disks: vec![disk], ..pool(PoolState::DiskFailed) }];
    observed.problems.items = vec![
        problem_of(None, "disk_failed", "/dev/sdb", "a disk is out of service"),
        problem(None, "the record is damaged"),
    ];
    observed.node.changes = vec![Change {
        what: "deleting volume \"x\"".into(),
        age: 400,
        waits_for: "a response from /dev/sdb".into(),
    }];
    shows(
        &observed,
        Health::Lost,
        "LOST: A disk of pool default has failed: /dev/sdb failed to write: Input/output error (os error 5). (2 more: `ursa status`)",
        "\
Node       server1, ursa 0.1.0, up 1d01h; 2 cores, iSCSI 0.0.0.0:3260
Cluster    none
State      LOST: A disk of pool default has failed: /dev/sdb failed to write: Input/output error (os error 5).
           Deleting volume \"x\" has not finished after 6m40s: it waits for a response from /dev/sdb.
           the record is damaged
Resync     none needed: no volume has copies on several nodes
Tolerance  if this node is lost: db: unavailable until the node returns (no other copy)
Action     Check the disk (dmesg); when it works again or is replaced, reopen the pool: ursa pool reopen default
           Fix what it waits for; it then continues automatically: journalctl -u ursa
           Do what the message says; the log has details: journalctl -u ursa
Advice     none
Pools      default: see `ursa pool show default`
Objects    1 volume, 0 targets, 1 session
Changes    deleting volume \"x\" for 6m40s, waiting for a response from /dev/sdb
",
    );
}

/// The pool of a node of a cluster.
fn of_node(node: u16, state: PoolState) -> Pool {
    Pool { node: Some(node), node_name: Some(format!("server{node}")), ..pool(state) }
}

fn missing() -> Missing {
    Missing { node: 2, node_name: "server2".into(), reason: "it did not answer within 2 s".into() }
}

#[test]
fn what_other_nodes_say_is_theirs_and_what_several_say_is_said_once() {
    let mut observed = cluster();
    observed.pools = vec![of_node(1, PoolState::ReadOnly)];
    let since = |at, problem| NodeProblem { since: Some(Since::exactly(at)), ..problem };
    observed.problems.items = vec![
        since(910, problem_of(Some(1), "pool_read_only", "default", "pool default is locked")),
        since(990, problem(Some(1), "etcd cannot be used")),
        problem_of(Some(2), "pool_read_only", "default", "pool default is locked"),
        since(980, problem(Some(3), "etcd cannot be used")),
    ];
    shows(
        &observed,
        Health::Degraded,
        "DEGRADED: Pool default on node 1 (server1) is read-only: a metadata write failed. Volume I/O continues. (2 more: `ursa status`)",
        "\
Node       server1, ursa 0.1.0, up 1d01h; 2 cores, iSCSI 0.0.0.0:3260
Cluster    3 of 3 nodes up, 4 of 4 copies in sync
State      DEGRADED: Pool default on node 1 (server1) is read-only: a metadata write failed. Volume I/O continues. (for 1m30s)
           Node 1 (server1), node 3 (server3): etcd cannot be used (for 20s)
           Node 2 (server2): pool default is locked
Resync     none needed: all copies are in sync
Tolerance  if node 1 is lost: db, mail: still available, after a pause of about a second
           if node 2 is lost: db, mail: still available, after a pause of about a second
Action     Check its disks (dmesg), then reopen it: ursa pool reopen default --node 1
           Do what the message says; the log of node 1 (server1), node 3 (server3) has details: journalctl -u ursa
           Do what the message says; the log of node 2 (server2) has details: journalctl -u ursa
Advice     none
Pools      node 1 (server1): default: see `ursa pool show default --node 1`
Objects    2 volumes, 0 targets, 1 session
Changes    none in progress
",
    );
}

#[test]
fn what_all_nodes_have_is_told_and_who_does_not_say() {
    let mut observed = cluster();
    observed.pools = vec![
        of_node(2, PoolState::Online),
        of_node(1, PoolState::Online),
        Pool { name: "fast".into(), ..of_node(1, PoolState::Exported) },
    ];
    observed.sessions = 5;
    observed.missing = vec![Missing { node: 3, node_name: "server3".into(), ..missing() }];
    shows(
        &observed,
        Health::Degraded,
        "DEGRADED: Node 3 (server3) does not report all of its pools, volumes and sessions: it did not answer within 2 s.",
        "\
Node       server1, ursa 0.1.0, up 1d01h; 2 cores, iSCSI 0.0.0.0:3260
Cluster    3 of 3 nodes up, 4 of 4 copies in sync
State      DEGRADED: Node 3 (server3) does not report all of its pools, volumes and sessions: it did not answer within 2 s.
Resync     none needed: all copies are in sync
Tolerance  if node 1 is lost: db, mail: still available, after a pause of about a second
           if node 2 is lost: db, mail: still available, after a pause of about a second
Action     Check locally on server3: ursa status
Advice     none
Pools      node 1 (server1): default: 80G free of 100G; fast: see `ursa pool show fast --node 1`
           node 2 (server2): default: 80G free of 100G
           node 3 (server3): MISSING: it did not answer within 2 s
Objects    2 volumes, 0 targets, 5 sessions; INCOMPLETE: without node 3 (server3)
Changes    none in progress
",
    );
    // Of one that is down it is said once.
    observed.nodes.as_mut().unwrap()[2].up = false;
    let findings = health::findings(&observed);
    let of_third = findings.iter().filter(|finding| finding.cause.starts_with("Node 3 ("));
    assert_eq!(of_third.count(), 1, "{findings:?}");
}

#[test]
fn a_node_that_does_not_say_how_it_is_is_named_once() {
    let causes = |observed: &Observed| -> Vec<String> {
        health::findings(observed).into_iter().map(|finding| finding.cause).collect()
    };
    let mut observed = cluster();
    observed.problems.missing = vec![missing()];
    let silent = "Node 2 (server2) does not report its health: it did not answer within 2 s.";
    assert_eq!(causes(&observed), [silent]);
    observed.nodes.as_mut().unwrap()[1].up = false;
    assert_eq!(causes(&observed), ["Node 2 (server2) is down: heartbeat timeout."]);
}

/// It was said to be down by one cause, and up by another.
#[test]
fn a_node_that_is_cut_off_from_the_asked_one_is_one_cause_that_says_what_is_known() {
    let mut observed = cluster();
    let nodes = observed.nodes.as_mut().unwrap();
    (nodes[1].up, nodes[1].reached_by) = (false, vec![3]);
    let said = |text: &str, id: u16| problem_of(Some(id), "node_cut_off", "2", text);
    let rest = "has not responded to this node on any link for 12 seconds, and node 3 (server3) reaches it: check the network";
    observed.problems.items = vec![said(&format!("node 2 (server2) {rest}"), 1)];
    observed.problems.missing = vec![missing()];
    let found = health::findings(&observed);
    let [finding] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(
        finding.cause,
        "Node 2 (server2) is cut off from node 1 (server1) on every link; node 3 (server3) reaches it."
    );
    assert_eq!((finding.health, finding.command.as_str()), (Health::Degraded, "ursa node links"));
    // What is cut off from others than the asked one only they say.
    observed.problems.items.push(said("node 2 (server2) is up, but this node has not reached it", 3));
    assert_eq!(health::findings(&observed).len(), 2);
}

#[test]
fn what_is_judged_how() {
    let judged = |change: fn(&mut Observed)| {
        let mut observed = cluster();
        change(&mut observed);
        health::worst(&health::findings(&observed))
    };
    let node =
        |observed: &mut Observed, of: fn(&mut ClusterNode)| of(&mut observed.nodes.as_mut().unwrap()[1]);
    assert_eq!(judged(|_| {}), Health::Healthy);
    assert_eq!(judged(|it| it.pools[0].free = G), Health::Healthy, "thick volumes have their space");
    assert_eq!(judged(|it| it.pools[0].state = PoolState::Exported), Health::Healthy);
    assert_eq!(
        judged(|it| it.pools[0].state = PoolState::Unavailable),
        Health::Degraded,
        "others have copies"
    );
    assert_eq!(judged(|it| it.volumes[0].problem = Some("its pool is not open".into())), Health::Healthy);
    assert_eq!(judged(|it| it.volumes[0].serving = false), Health::Healthy, "through the other node");
    assert_eq!(
        judged(|it| it.volumes[0].copies.iter_mut().for_each(|copy| copy.state = CopyState::OutOfSync)),
        Health::Lost
    );
    let alone = VolumeFork { node: 1, since: 0, split: false };
    let mut forked = cluster();
    forked.volumes[0].fork = Some(alone);
    assert_eq!(health::worst(&health::findings(&forked)), Health::Degraded);
    let mut observed = cluster();
    node(&mut observed, |node| node.maintenance = true);
    assert_eq!(health::worst(&health::findings(&observed)), Health::Degraded);
    assert_eq!(
        judged(|it| it.nodes.iter_mut().flatten().for_each(|node| node.votes = false)),
        Health::Degraded
    );
    assert_eq!(
        judged(|it| it.problems.items = vec![problem(Some(2), "the record is damaged")]),
        Health::Degraded
    );
    assert_eq!(judged(|it| it.problems.missing = vec![missing()]), Health::Degraded, "nobody knows");
    let codes = [Health::Healthy, Health::Lost, Health::Degraded].map(Health::exit_code);
    assert_eq!(codes, [0, 2, 3]);
}

#[test]
fn what_is_not_counted_yet_is_no_progress() {
    let mut observed = cluster();
    let waits_for = Some("node 2 to be reachable again (heartbeat timeout)".into());
    let new = CopySync {
        total_bytes: 0,
        left_bytes: 0,
        copied_bytes: 0,
        bytes_per_second: 0,
        seconds_left: None,
        waits_for,
        ..sync()
    };
    observed.volumes[0].copies[1] = copy(2, CopyState::OutOfSync, Some(new));
    let findings = health::findings(&observed);
    let text = screen::text(&observed, &observed.report(&findings));
    assert!(text.contains("Resync     1 copy: amount to copy not known yet\n"), "{text}");
}

#[test]
fn a_thousand_volumes_are_one_screen_too() {
    let mut observed = cluster();
    let outside = |name: String| {
        volume(&name, vec![copy(1, CopyState::InSync, None), copy(2, CopyState::OutOfSync, Some(sync()))])
    };
    observed.volumes = (0..1000).map(|at| outside(format!("v{at}"))).collect();
    observed.volumes.extend((0..500).map(|at| volume(&format!("w{at}"), Vec::new())));
    observed.pools = vec![pool(PoolState::Online); 20];
    let findings = health::findings(&observed);
    let text = screen::text(&observed, &observed.report(&findings));
    assert!(text.lines().count() <= 24, "{text}");
    // 3000 GiB at 64,000 MiB a second, and each says 48 s.
    assert!(text.contains("1000 copies: 7000G of 9.8T copied (70 %), 62.5G/s, 48s to go\n"), "{text}");
    assert!(text.contains("if this node is lost: w0, w1, w2 and 497 more: unavailable"), "{text}");
}
