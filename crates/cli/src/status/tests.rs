//! The whole screen in various states.

use api::{
    Change, ClusterNode, CopyState, CopySync, Finding, FindingCode, Missing, Node, Pool, PoolState,
    RecordPlace, Severity, Since, Subject, SubjectKind, SyncRestraint, Volume, VolumeCopy, VolumeFork,
    VolumeKind,
};
use terms::loss::{Cluster, losses};
use terms::samples::{self, sync, volume};

use super::{Observed, exit_code, screen};

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
        used: 0,
        logs: None,
        scrub: None,
        node: 1,
        node_name: "server1".into(),
    }
}

/// The only node of its cluster, and a volume.
fn alone() -> Observed {
    Observed {
        node: Node {
            name: "server1".into(),
            version: "0.1.0".into(),
            cores: 2,
            portals: vec!["0.0.0.0:3260".into()],
            uptime: 90_000,
            map_memory: api::MapMemory { used: 0, limit: 1 << 30 },
            changes: Vec::new(),
            record: None,
            record_place: RecordPlace::Nodes,
            read_confirm: api::ReadConfirm::default(),
        },
        nodes: vec![samples::node(1)],
        findings: Vec::new(),
        pools: vec![pool(PoolState::Online)],
        volumes: vec![volume("db", vec![copy(1, CopyState::InSync, None)])],
        targets: Vec::new(),
        sessions: 1,
        missing: Vec::new(),
        asked_at: 1000,
    }
}

/// A finding about a volume.
fn finding(severity: Severity, cause: &str, action: Option<&str>, command: &str) -> Finding {
    Finding {
        code: FindingCode::VolumeUnavailable,
        severity,
        subject: Subject { kind: SubjectKind::Volume, name: None, id: None, node: None },
        since: None,
        cause: cause.into(),
        action: action.map(str::to_owned),
        command: command.into(),
        seen_by: Vec::new(),
    }
}

fn resyncing() -> Finding {
    let cause = "The copy of db on node 2 is out of sync and resyncing (70 %).";
    let since = Some(Since { at: 880, or_earlier: true });
    Finding { since, ..finding(Severity::Warning, cause, None, "ursa volume show db") }
}

/// Three nodes with two volumes of two copies each.
fn cluster() -> Observed {
    let both = || vec![copy(1, CopyState::InSync, None), copy(2, CopyState::InSync, None)];
    Observed {
        nodes: vec![
            cluster_node(1),
            cluster_node(2),
            ClusterNode { witness: true, copies: 0, in_sync: 0, ..cluster_node(3) },
        ],
        volumes: vec![volume("db", both()), volume("mail", both())],
        ..alone()
    }
}

/// With the failure tolerance that the node reports for each volume.
fn judged(mut observed: Observed) -> Observed {
    for volume in &mut observed.volumes {
        volume.losses = losses(volume, Cluster { nodes: &observed.nodes, record: None });
    }
    observed
}

#[track_caller]
fn shows(observed: Observed, health: &str, line: &str, screen: &str) {
    let observed = judged(observed);
    let report = observed.report();
    assert_eq!(report.health, health);
    assert_eq!(super::screen::line(&observed), format!("{line}\n"));
    let text = screen::text(&observed, &report);
    assert_eq!(text, screen, "\n{text}");
    assert!(text.lines().count() <= 24, "it is one screen");
}

#[test]
fn a_node_alone_is_healthy() {
    shows(
        alone(),
        "healthy",
        "healthy",
        "\
Node       server1, ursa 0.1.0, up 1d01h; 2 cores, iSCSI 0.0.0.0:3260
Cluster    this node only; `ursa node init --listen ADDRESS` lets others join
State      healthy
Resync     none needed: no volume has copies on several nodes
Tolerance  if node 1 is lost: db: unavailable until the node returns (only copy in sync)
Action     none needed
Advice     none
Pools      node 1 (server1): default: 80G free of 100G
Objects    1 volume, 0 targets, 1 session
Changes    none in progress
",
    );
}

#[test]
fn data_in_the_memory_of_a_node_without_its_record_is_lost_with_it() {
    let of_pool = vec![volume("db", Vec::new())];
    let mut observed = Observed { nodes: Vec::new(), volumes: of_pool, ..alone() };
    let in_memory = |name: &str| Volume { kind: VolumeKind::Ram, ..volume(name, Vec::new()) };
    observed.volumes.push(in_memory("scratch"));
    let report = observed.report();
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
        cluster(),
        "healthy",
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
Pools      node 1 (server1): default: 80G free of 100G
Objects    2 volumes, 0 targets, 1 session
Changes    none in progress
",
    );
}

#[test]
fn a_resyncing_copy_is_a_warning() {
    let mut observed = cluster();
    let limited = CopySync { limited_by: Some(SyncRestraint::ClusterLimit), ..sync() };
    observed.volumes[0].copies[1] = copy(2, CopyState::OutOfSync, Some(limited));
    observed.nodes[1].in_sync = 1;
    observed.findings = vec![resyncing()];
    shows(
        observed,
        "warning",
        "WARNING: The copy of db on node 2 is out of sync and resyncing (70 %).",
        "\
Node       server1, ursa 0.1.0, up 1d01h; 2 cores, iSCSI 0.0.0.0:3260
Cluster    3 of 3 nodes up, 3 of 4 copies in sync
State      WARNING: The copy of db on node 2 is out of sync and resyncing (70 %). (for at least 2m00s)
Resync     1 copy: 7G of 10G copied (70 %), 64M/s, 48s to go
           db on node 2: 3G of 10G left to copy, 64M/s, 48s to go; cause: its node restarted; limited by the cluster's resync limit (ursa node resync-limit)
Tolerance  if node 1 is lost: db: unavailable until the node returns (only copy in sync)
           if node 1 is lost: mail: still available, after a pause of about a second
           if node 2 is lost: db: no effect (its copy is out of sync)
           if node 2 is lost: mail: still available, after a pause of about a second
Action     No action needed; details: ursa volume show db
Advice     none
Pools      node 1 (server1): default: 80G free of 100G
Objects    2 volumes, 0 targets, 1 session
Changes    none in progress
",
    );
}

#[test]
fn a_node_that_is_down_is_critical() {
    let mut observed = cluster();
    for volume in &mut observed.volumes {
        volume.copies[1] = copy(2, CopyState::OutOfSync, None);
    }
    (observed.nodes[1].up, observed.nodes[1].in_sync) = (false, 0);
    let cause = "Node 2 (server2) is down: heartbeat timeout.";
    let action = Some("Check that the server is running, and start Ursa there (server2)");
    let down = finding(Severity::Critical, cause, action, "systemctl start ursa");
    observed.findings = vec![Finding { since: Some(Since::exactly(815)), ..down }];
    shows(
        observed,
        "critical",
        "CRITICAL: Node 2 (server2) is down: heartbeat timeout.",
        "\
Node       server1, ursa 0.1.0, up 1d01h; 2 cores, iSCSI 0.0.0.0:3260
Cluster    2 of 3 nodes up, 2 of 4 copies in sync
State      CRITICAL: Node 2 (server2) is down: heartbeat timeout. (for 3m05s)
Resync     2 copies are out of sync, progress unknown
Tolerance  if node 1 is lost: db, mail: unavailable until the node returns (only copy in sync)
Action     Check that the server is running, and start Ursa there (server2): systemctl start ursa
Advice     none
Pools      node 1 (server1): default: 80G free of 100G
Objects    2 volumes, 0 targets, 1 session
Changes    none in progress
",
    );
}

#[test]
fn a_split_volume_is_critical_and_comes_first() {
    let mut observed = cluster();
    observed.nodes.truncate(2);
    observed.nodes[1].votes = false;
    observed.volumes[1].fork = Some(VolumeFork { node: 2, since: 9, split: true });
    let waits = Some("node 2 to be reachable again (heartbeat timeout)".to_owned());
    let waiting = CopySync { bytes_per_second: 0, seconds_left: None, waits_for: waits, ..sync() };
    observed.volumes[0].copies[1] = copy(2, CopyState::OutOfSync, Some(waiting));
    let cause = "Split brain on volume mail: two nodes each have writes that the other lacks.";
    let action = Some("Back up what you need, then choose which side to keep");
    let command = "ursa volume resolve-split-brain mail --keep NODE --discard-other";
    let split = finding(Severity::Critical, cause, action, command);
    let cause = "Two nodes without a witness have no majority.";
    let action = Some("Add a third node; a small machine as a witness is enough");
    observed.findings = vec![
        Finding { since: Some(Since::exactly(9)), ..split },
        resyncing(),
        finding(Severity::Info, cause, action, "ursa node token"),
    ];
    shows(
        observed,
        "critical",
        "CRITICAL: Split brain on volume mail: two nodes each have writes that the other lacks. (1 more: `ursa status`)",
        "\
Node       server1, ursa 0.1.0, up 1d01h; 2 cores, iSCSI 0.0.0.0:3260
Cluster    2 of 2 nodes up, 4 of 4 copies in sync
State      CRITICAL: Split brain on volume mail: two nodes each have writes that the other lacks. (for 16m31s)
           The copy of db on node 2 is out of sync and resyncing (70 %). (for at least 2m00s)
Resync     1 copy: 7G of 10G copied (70 %), 0/s, time left unknown
           db on node 2: 3G of 10G left to copy; cause: its node restarted; WAITING for node 2 to be reachable again (heartbeat timeout)
Tolerance  if node 1 is lost: db: unavailable until the node returns (only copy in sync)
           if node 1 is lost: mail: unavailable until the node returns (preferred node, and the cluster has no witness: `ursa node prefer`)
           if node 2 is lost: db: no effect (its copy is out of sync)
           if node 2 is lost: mail: still available, after a pause of about a second
Action     Back up what you need, then choose which side to keep: ursa volume resolve-split-brain mail --keep NODE --discard-other
           No action needed; details: ursa volume show db
           Add a third node; a small machine as a witness is enough: ursa node token
Advice     Two nodes without a witness have no majority.
Pools      node 1 (server1): default: 80G free of 100G
Objects    2 volumes, 0 targets, 1 session
Changes    none in progress
",
    );
}

#[test]
fn a_change_that_takes_long_is_shown_with_what_it_waits_for() {
    let mut observed = alone();
    let waits_for = "a response from /dev/sdb".into();
    observed.node.changes = vec![Change { what: "deleting volume \"x\"".into(), age: 400, waits_for }];
    observed.pools = vec![pool(PoolState::DiskFailed)];
    let text = screen::text(&observed, &observed.report());
    assert!(
        text.contains("Pools      node 1 (server1): default: see `ursa pool show default --node 1`\n"),
        "{text}"
    );
    assert!(
        text.ends_with("Changes    deleting volume \"x\" for 6m40s, waiting for a response from /dev/sdb\n"),
        "{text}"
    );
}

fn of_node(node: u16, state: PoolState) -> Pool {
    Pool { node, node_name: format!("server{node}"), ..pool(state) }
}

#[test]
fn all_nodes_are_shown_and_those_that_do_not_answer() {
    let mut observed = cluster();
    observed.pools = vec![
        of_node(2, PoolState::Online),
        of_node(1, PoolState::Online),
        Pool { name: "fast".into(), ..of_node(1, PoolState::Exported) },
    ];
    observed.sessions = 5;
    observed.missing =
        vec![Missing { node: 3, node_name: "server3".into(), reason: "it did not answer within 2 s".into() }];
    shows(
        observed,
        "healthy",
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
Pools      node 1 (server1): default: 80G free of 100G; fast: see `ursa pool show fast --node 1`
           node 2 (server2): default: 80G free of 100G
           node 3 (server3): MISSING: it did not answer within 2 s
Objects    2 volumes, 0 targets, 5 sessions; INCOMPLETE: without node 3 (server3)
Changes    none in progress
",
    );
}

#[test]
fn exit_codes_are_those_of_monitoring() {
    let codes = [Severity::Info, Severity::Critical, Severity::Warning].map(exit_code);
    assert_eq!(codes, [0, 2, 3]);
}

#[test]
fn uncounted_work_shows_no_progress() {
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
    let text = screen::text(&observed, &observed.report());
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
    observed.findings = vec![resyncing()];
    let text = screen::text(&observed, &observed.report());
    assert!(text.lines().count() <= 24, "{text}");
    // 3000 GiB at 64,000 MiB per second; each resync reports 48 s.
    assert!(text.contains("1000 copies: 7000G of 9.8T copied (70 %), 62.5G/s, 48s to go\n"), "{text}");
    assert!(text.contains("if this node is lost: w0, w1, w2 and 497 more: unavailable"), "{text}");
}
