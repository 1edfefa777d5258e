//! Which findings follow from which facts, and their texts.

use std::collections::BTreeMap;

use ::node::control::{Doing, EtcdTrouble, FaultKind, UnreadBlock, WaitsFor, Work};
use ::node::copies::ScheduleObstacle;
use ::node::{RecordDamage, RecordFault, RecordMissing};
use FindingCode as Code;
use Severity::{Critical, Info, Warning};
use api::CopyState::{InSync, OutOfSync};
use api::{
    ChosenPolicy, ClusterNode, CopyState, CopySync, Finding, FindingCode, LossOutcome, Missing, Overcommit,
    Pool, PoolLogs, PoolState, RecordStall, Severity, Since, SplitBrainPolicy, Subject, SubjectKind,
    SyncPaused, Volume, VolumeCopy, VolumeFork,
};
use cli::mentioned::mistake_in;
use terms::loss::{Cluster, losses};
use terms::samples;

use super::identity::condition;
use super::judge::{Observed, judge};
use super::own::{OwnFault, Report};
use super::words;
use crate::history::{Forecast, Outlook};
use crate::http::audit::AuditTrouble;
use crate::http::certificate::CertificateFault;

fn node(id: u16) -> ClusterNode {
    samples::node(id)
}

fn down(id: u16) -> ClusterNode {
    ClusterNode { up: false, ..node(id) }
}

fn cut_off(id: u16, reached_by: &[u16]) -> ClusterNode {
    ClusterNode { reached_by: reached_by.into(), ..down(id) }
}

fn copies(of: &[(u16, CopyState)]) -> Vec<VolumeCopy> {
    of.iter().enumerate().map(|(slot, (node, state))| samples::copy(slot, *node, *state)).collect()
}

fn volume(of: &[(u16, CopyState)]) -> Volume {
    samples::volume("db", copies(of))
}

/// A volume whose copy on the first node, which is the queried one, has failed.
fn failed(of: &[(u16, CopyState)]) -> Volume {
    Volume { problem: Some("a write to this copy failed".into()), serving: false, ..volume(of) }
}

/// A volume whose second copy is out of sync, with this resync.
fn syncing(sync: CopySync) -> Volume {
    let mut volume = volume(&[(1, InSync), (2, OutOfSync)]);
    volume.copies[1].sync = Some(sync);
    volume
}

fn pool(node: u16, state: PoolState) -> Pool {
    Pool {
        name: "default".into(),
        id: Some("1".into()),
        state,
        reason: None,
        total: 100,
        free: 80,
        extent: 1,
        volumes: 1,
        disks: Vec::new(),
        promised: 0,
        overcommit: None,
        scrub: None,
        used: 0,
        logs: None,
        node,
        node_name: format!("server{node}"),
    }
}

fn own(node: u16, fault: OwnFault) -> Report {
    Report { fault, since: None, node, node_name: format!("server{node}") }
}

fn report(node: u16, kind: FaultKind) -> Report {
    own(node, OwnFault::Node(kind))
}

fn missing(node: u16) -> Missing {
    Missing { node, node_name: format!("server{node}"), reason: "it did not answer within 2 s".into() }
}

fn etcd_lost(node: u16) -> Report {
    report(node, FaultKind::RecordLost { trouble: EtcdTrouble::Silent })
}

fn disk_failed() -> FaultKind {
    let (pool, disk) = ("default".into(), "/dev/sdb".into());
    FaultKind::DiskFailed { pool, disk, errno: 5 }
}

/// A healthy cluster: three nodes, and a volume with two copies.
fn cluster() -> Observed {
    Observed {
        nodes: vec![node(1), node(2), node(3)],
        in_etcd: false,
        volumes: vec![volume(&[(1, InSync), (2, InSync)])],
        pools: vec![pool(1, PoolState::Online), pool(2, PoolState::Online)],
        reports: Vec::new(),
        silent: Vec::new(),
        incomplete: Vec::new(),
    }
}

/// The only node of its cluster, with a volume.
fn alone() -> Observed {
    Observed {
        nodes: vec![node(1)],
        volumes: vec![volume(&[(1, InSync)])],
        pools: vec![pool(1, PoolState::Online)],
        ..cluster()
    }
}

fn findings(observed: &Observed) -> Vec<Finding> {
    judge(observed).iter().map(|found| words::told(found, &observed.nodes)).collect()
}

/// Asserts that these are the findings, in this order.
#[track_caller]
fn finds(observed: Observed, expected: &[(Severity, FindingCode)]) {
    let found = findings(&observed);
    let judged: Vec<_> = found.iter().map(|finding| (finding.severity, finding.code)).collect();
    assert_eq!(judged, expected, "{found:#?}");
    for Finding { cause, action, command, .. } in &found {
        assert_eq!(command.strip_prefix("ursa ").and_then(mistake_in), None, "{command}");
        assert!(cause.starts_with(|first: char| first.is_uppercase() || first == '"'), "{cause}");
        assert!(
            action.as_ref().is_none_or(|action| !action.is_empty() && !action.ends_with('.')),
            "{action:?}"
        );
    }
}

#[test]
fn all_is_well() {
    finds(cluster(), &[]);
    finds(alone(), &[]);
    finds(Observed { pools: vec![pool(1, PoolState::Exported)], ..alone() }, &[]);
}

#[test]
fn a_volume_is_unavailable_when_no_node_serves_it() {
    let unavailable = (Critical, Code::VolumeUnavailable);
    let of = |volume: Volume| Observed { volumes: vec![volume], ..cluster() };
    let closed = Volume { problem: Some("its pool is not open".into()), serving: false, ..volume(&[]) };
    finds(Observed { nodes: Vec::new(), volumes: vec![closed], ..alone() }, &[unavailable]);
    // The failed copy is that of the queried node.
    finds(of(failed(&[(1, InSync), (2, InSync)])), &[]);
    finds(of(failed(&[(1, InSync)])), &[unavailable]);
    let behind = failed(&[(1, InSync), (2, OutOfSync)]);
    finds(of(behind), &[unavailable, (Warning, Code::CopyOutOfSync)]);
    finds(of(Volume { serving: false, ..volume(&[(1, InSync), (2, InSync)]) }), &[]);
}

#[test]
fn a_volume_is_unavailable_when_the_nodes_of_its_copies_in_sync_are_down() {
    let unavailable = (Critical, Code::VolumeUnavailable);
    let node_down = (Critical, Code::NodeDown);
    let of = |nodes, volume| Observed { nodes, volumes: vec![volume], ..cluster() };
    let two_down = || vec![node(1), down(2), down(3)];
    let all = [unavailable, (Critical, Code::NoQuorum), node_down, node_down];
    finds(of(two_down(), volume(&[(2, OutOfSync), (3, OutOfSync)])), &all);
    finds(of(two_down(), volume(&[(2, InSync), (3, InSync)])), &all);
    let one_down = || vec![node(1), down(2), node(3)];
    let behind = [unavailable, node_down, (Warning, Code::CopyOutOfSync)];
    finds(of(one_down(), volume(&[(1, OutOfSync), (2, InSync)])), &behind);
    finds(of(one_down(), failed(&[(1, InSync), (2, InSync)])), &[unavailable, node_down]);
    let cut = vec![node(1), node(2), cut_off(3, &[2])];
    finds(of(cut, volume(&[(3, InSync)])), &[(Warning, Code::NodeCutOff)]);
}

#[test]
fn a_split_brain_is_worse_than_a_node_that_continues_alone() {
    let forked = |split| {
        let fork = Some(VolumeFork { node: 2, since: 9, split });
        Observed { volumes: vec![Volume { fork, ..volume(&[(1, InSync), (2, InSync)]) }], ..cluster() }
    };
    finds(forked(true), &[(Critical, Code::SplitBrain)]);
    finds(forked(false), &[(Warning, Code::ContinuedAlone)]);
}

#[test]
fn findings_of_copies_out_of_sync_depend_on_their_resync() {
    let of = |volume: Volume| Observed { volumes: vec![volume], ..cluster() };
    finds(of(syncing(samples::sync())), &[(Warning, Code::ResyncRunning)]);
    finds(of(volume(&[(1, InSync), (2, OutOfSync)])), &[(Warning, Code::CopyOutOfSync)]);
    let waits_for = Some("the link to node 2".into());
    let waiting = CopySync { waits_for: waits_for.clone(), ..samples::sync() };
    finds(of(syncing(waiting)), &[(Warning, Code::ResyncWaiting)]);
    let paused = Some(SyncPaused { by: "eva".into(), since: 9 });
    let paused = CopySync { waits_for, paused, ..samples::sync() };
    finds(of(syncing(paused)), &[(Warning, Code::ResyncPaused)]);
    // If the node of the copy is down, the finding is about the node.
    let nodes = vec![node(1), down(2), node(3)];
    finds(Observed { nodes, ..of(syncing(samples::sync())) }, &[(Critical, Code::NodeDown)]);
}

#[test]
fn findings_that_clear_automatically_come_last() {
    let reports = vec![report(2, FaultKind::RecordEntriesUnreadable { keys: vec!["volumes/7".into()] })];
    let observed = Observed { reports, volumes: vec![syncing(samples::sync())], ..cluster() };
    finds(observed, &[(Warning, Code::RecordEntriesUnreadable), (Warning, Code::ResyncRunning)]);
}

#[test]
fn nodes_that_are_down_cut_off_or_in_maintenance_are_found_once() {
    let of = |third: ClusterNode| Observed { nodes: vec![node(1), node(2), third], ..cluster() };
    finds(of(down(3)), &[(Critical, Code::NodeDown)]);
    let maintenance = |node| ClusterNode { maintenance: true, ..node };
    finds(of(maintenance(node(3))), &[(Warning, Code::NodeMaintenance)]);
    finds(of(maintenance(down(3))), &[(Warning, Code::NodeMaintenance)]);
    let said_with = |third, reports| Observed {
        reports,
        silent: vec![missing(3)],
        incomplete: vec![missing(3)],
        ..of(third)
    };
    finds(said_with(down(3), Vec::new()), &[(Critical, Code::NodeDown)]);
    let cut = || FaultKind::NodeCutOff { node: 3, heard: false, reached_by: vec![2] };
    finds(said_with(cut_off(3, &[2]), vec![report(1, cut())]), &[(Warning, Code::NodeCutOff)]);
    // If another node does not reach it either, that is a finding of its own.
    let both = vec![report(1, cut()), report(2, cut())];
    finds(said_with(cut_off(3, &[2]), both), &[(Warning, Code::NodeCutOff); 2]);
}

#[test]
fn a_node_that_was_removed_does_not_find_the_others_down() {
    let observed = || Observed {
        nodes: vec![node(1), down(2), down(3)],
        silent: vec![missing(3)],
        incomplete: vec![missing(2)],
        ..cluster()
    };
    for kind in [FaultKind::RemovedFromCluster, FaultKind::LeftBehind] {
        finds(Observed { reports: vec![report(1, kind)], ..observed() }, &[(Warning, Code::NodeRemoved)]);
    }
}

#[test]
fn votes_are_counted() {
    let of = |nodes| Observed { nodes, ..cluster() };
    let voteless = |node| ClusterNode { votes: false, ..node };
    let no_quorum = [(Critical, Code::NoQuorum), (Critical, Code::NodeDown), (Critical, Code::NodeDown)];
    finds(of(vec![node(1), down(2), down(3)]), &no_quorum);
    let stalled = ClusterNode { record_stalled: Some(RecordStall::NoSpace), ..node(3) };
    finds(of(vec![node(1), down(2), stalled]), &no_quorum[..2]);
    finds(of([1, 2, 3].map(|id| voteless(node(id))).into()), &[(Critical, Code::RecordLost)]);
    finds(of(vec![node(1), voteless(node(2))]), &[(Warning, Code::NoWitness)]);
    finds(of(vec![node(1), voteless(down(2))]), &[(Critical, Code::NodeDown), (Warning, Code::NoWitness)]);
    // The only node says itself why it cannot write the record.
    finds(of(vec![ClusterNode { record_stalled: Some(RecordStall::NoSpace), ..node(1) }]), &[]);
    finds(of(vec![voteless(node(1))]), &[(Critical, Code::RecordLost)]);
    let two = [1, 2].map(|id| voteless(node(id)));
    finds(Observed { in_etcd: true, ..of(two.into()) }, &[]);
}

#[test]
fn two_nodes_without_a_witness_are_a_warning_if_a_volume_depends_on_one_of_them() {
    let two = || vec![node(1), ClusterNode { votes: false, ..node(2) }];
    let of = |volumes: Vec<Volume>| Observed { nodes: two(), volumes, ..cluster() };
    let (advice, warning) = ([(Info, Code::NoWitness)], [(Warning, Code::NoWitness)]);
    let both = || volume(&[(1, InSync), (2, InSync)]);
    finds(of(Vec::new()), &advice);
    finds(of(vec![volume(&[(1, InSync)])]), &advice);
    finds(of(vec![both()]), &warning);
    let chosen = ChosenPolicy { policy: SplitBrainPolicy::Heartbeat, by: "eva".into(), at: 9 };
    let witness = ClusterNode { witness: true, ..node(2) };
    finds(Observed { nodes: vec![node(1), witness], ..of(vec![volume(&[(1, InSync)])]) }, &[]);
    let heartbeat = || Volume { split_brain_policy: Some(chosen.clone()), ..both() };
    finds(of(vec![heartbeat()]), &advice);
    finds(of(vec![heartbeat(), both()]), &warning);
    let cause = |volumes| findings(&of(volumes)).remove(0).cause;
    assert_eq!(
        cause(vec![both(), samples::volume("mail", both().copies)]),
        "Two nodes without a witness: if the preferred node, node 1 (server1), fails, these volumes become unavailable: db, mail."
    );
    assert_eq!(
        cause(Vec::new()),
        "Two nodes without a witness: if the preferred node, node 1 (server1), fails, a volume with copies on both becomes unavailable, unless its split-brain policy is `heartbeat`."
    );
}

/// `ursa status` does not say *healthy* while the loss of one node would stop a volume that was meant to
/// survive it.
#[test]
fn a_healthy_cluster_survives_the_loss_of_any_node() {
    let stalled = |id| ClusterNode { record_stalled: Some(RecordStall::NoSpace), ..node(id) };
    let stall =
        |node: u16| report(node, FaultKind::RecordStalled { stall: 0, data_dir: "/var/lib/ursa".into() });
    // The states of two nodes, or of three, and of the second copy.
    let mut all = Vec::new();
    for first in [node(1), stalled(1)] {
        for second in [node(2), down(2), stalled(2)] {
            for third in [None, Some(node(3)), Some(down(3)), Some(stalled(3))] {
                let second = ClusterNode { votes: third.is_some(), ..second.clone() };
                let nodes: Vec<_> = [first.clone(), second].into_iter().chain(third).collect();
                all.extend([(nodes.clone(), InSync), (nodes, OutOfSync)]);
            }
        }
    }
    let mut healthy = 0;
    for (nodes, second) in all {
        let mut db = volume(&[(1, InSync), (2, second)]);
        db.losses = losses(&db, Cluster { nodes: &nodes, record: None });
        let stops = db.losses.iter().any(|loss| loss.outcome == LossOutcome::Unavailable);
        let stalled = nodes.iter().filter(|node| node.record_stalled.is_some());
        let reports = stalled.map(|node| stall(node.id)).collect();
        let observed = Observed { nodes, volumes: vec![db], reports, ..cluster() };
        let is_healthy = findings(&observed).iter().all(|finding| finding.severity == Info);
        assert!(!is_healthy || !stops, "{observed:#?}");
        healthy += usize::from(is_healthy);
    }
    assert!(healthy > 0, "none of them is healthy");
}

#[test]
fn pools_that_fail_are_critical() {
    let here = |pool: Pool| Observed { volumes: Vec::new(), pools: vec![pool], ..alone() };
    let there = |pool: Pool| Observed { pools: vec![pool], ..cluster() };
    let (one, two) = (|state| pool(1, state), |state| pool(2, state));
    finds(here(one(PoolState::Unavailable)), &[(Critical, Code::PoolClosed)]);
    finds(there(two(PoolState::Unavailable)), &[(Critical, Code::PoolClosed)]);
    // Of a node that takes no part in its cluster.
    let unknown = Observed { nodes: Vec::new(), ..here(one(PoolState::Unavailable)) };
    finds(unknown, &[(Critical, Code::PoolClosed)]);
    finds(here(one(PoolState::DiskFailed)), &[(Critical, Code::DiskFailed)]);
    let reports = vec![report(2, disk_failed())];
    let disk = Observed { reports, ..there(two(PoolState::DiskFailed)) };
    finds(disk, &[(Critical, Code::DiskFailed)]);
    let reports = vec![own(1, OwnFault::Node(FaultKind::PoolReadOnly { pool: "default".into() }))];
    finds(Observed { reports, ..here(one(PoolState::ReadOnly)) }, &[(Critical, Code::PoolReadOnly)]);
    // The pool of the only copies cannot be rebuilt.
    let action = |observed| findings(&observed).remove(0).action.unwrap_or_default();
    let rebuild = "`ursa volume copy rebuild VOLUME --on 2`";
    assert!(action(there(two(PoolState::Unavailable))).contains(rebuild));
    assert!(!action(here(one(PoolState::Unavailable))).contains("rebuild"));
    // A report about a pool that no node lists is all that is known about it.
    let reports = vec![report(3, disk_failed())];
    finds(Observed { reports, ..cluster() }, &[(Critical, Code::DiskFailed)]);
}

#[test]
fn a_pool_that_fills_up_is_advice() {
    let free = |free| Observed { pools: vec![Pool { free, ..pool(2, PoolState::Online) }], ..cluster() };
    finds(free(4), &[(Info, Code::PoolNearlyFull)]);
    finds(free(5), &[]);
    let overcommit = Some(Overcommit { promised: 60, free: 50 });
    let pools = vec![Pool { overcommit, ..pool(1, PoolState::Online) }];
    finds(Observed { pools, ..alone() }, &[(Info, Code::PoolOvercommitted)]);
}

/// Those of a pool that is not full, in which snapshots hold a number of bytes.
fn logs(snapshots: u64) -> PoolLogs {
    PoolLogs { lent: 90, used: 80, reserved: 0, snapshots, freeing: 0, room: 8, percent: 70, level: None }
}

#[test]
fn a_pool_that_snapshots_hold_is_advice() {
    let held = |logs| Observed {
        pools: vec![Pool { free: 0, logs: Some(logs), ..pool(1, PoolState::Online) }],
        ..alone()
    };
    finds(held(logs(50)), &[]);
    finds(held(logs(51)), &[(Info, Code::SnapshotSpace)]);
    let found = findings(&held(logs(51))).remove(0);
    assert_eq!(found.cause, "Snapshots hold 51B of pool default on node 1 (server1), which has 100B.");
    assert_eq!((found.subject.kind, found.subject.node), (SubjectKind::Pool, Some(1)));
    // A pool that fills up is worse, and says what snapshots hold of it.
    let filling = held(PoolLogs { level: Some(80), ..logs(51) });
    finds(held(PoolLogs { level: Some(80), ..logs(51) }), &[(Warning, Code::PoolNearlyFull)]);
    let found = findings(&filling).remove(0);
    assert!(found.cause.ends_with("Snapshots hold 51B of it."), "{}", found.cause);
    assert!(found.action.unwrap().contains("delete snapshots"));
}

#[test]
fn a_pool_with_log_volumes_warns_by_level() {
    let level = |level| {
        let logs = Some(PoolLogs { percent: 91, level, ..logs(0) });
        // Space that logs have borrowed is not used.
        Observed { pools: vec![Pool { free: 0, logs, ..pool(1, PoolState::Online) }], ..alone() }
    };
    finds(level(None), &[]);
    finds(level(Some(80)), &[(Warning, Code::PoolNearlyFull)]);
    finds(level(Some(90)), &[(Warning, Code::PoolNearlyFull)]);
    finds(level(Some(95)), &[(Critical, Code::PoolNearlyFull)]);
    let found = findings(&level(Some(90)));
    assert_eq!(
        found[0].cause,
        "Pool default on node 1 (server1) is 91 % full: its log volumes can take 8B more. When it is full, writes to log volumes fail."
    );
}

#[test]
fn a_pool_that_is_forecast_to_be_full_is_advice_until_it_is_nearly_full() {
    let soon = |node, pools| {
        let days = |days: u64| days * 86_400;
        let outlook =
            Outlook::Fuller { growth: 10 << 30, likely: days(9), soonest: days(9), latest: Some(days(9)) };
        let forecast = Forecast { known: days(7), outlook };
        let reports = vec![own(node, OwnFault::PoolFullSoon { pool: "default".into(), forecast })];
        Observed { reports, pools, ..if node == 1 { alone() } else { cluster() } }
    };
    let online = |node| pool(node, PoolState::Online);
    finds(soon(2, cluster().pools), &[(Info, Code::PoolFullSoon)]);
    finds(soon(1, vec![online(1)]), &[(Info, Code::PoolFullSoon)]);
    let found = findings(&soon(2, cluster().pools)).remove(0);
    let cause = "Pool default on node 2 (server2) is filling up. Over the last 7 d, it grew by 10GiB per day. At this rate it will be full in about 9 days (growth was steady).";
    assert_eq!(found.cause, cause);
    assert_eq!(found.command, "ursa pool add-disk default DISK --node 2");
    assert_eq!((found.subject.kind, found.subject.node), (SubjectKind::Pool, Some(2)));
    // One finding for each pool.
    finds(soon(1, vec![Pool { free: 4, ..online(1) }]), &[(Info, Code::PoolNearlyFull)]);
    finds(soon(1, vec![pool(1, PoolState::Unavailable)]), &[(Critical, Code::PoolClosed)]);
    // It was exported or forgotten since.
    finds(soon(1, vec![pool(1, PoolState::Exported)]), &[]);
    finds(soon(2, vec![online(1)]), &[]);
}

#[test]
fn reports_of_several_nodes_about_the_cluster_are_one_finding() {
    let of = |reports| findings(&Observed { reports, ..cluster() });
    let late = |at, report| Report { since: Some(Since::exactly(at)), ..report };
    let found = of(vec![late(990, etcd_lost(1)), late(980, etcd_lost(3))]);
    let [etcd] = found.as_slice() else { panic!("{found:#?}") };
    assert!(etcd.cause.starts_with("Node 1 (server1), node 3 (server3): etcd, which holds"), "{etcd:?}");
    assert_eq!((etcd.since, etcd.seen_by.as_slice()), (Some(Since::exactly(980)), &[1, 3][..]));
    // Faults of each node itself are not combined.
    let latched = |node| report(node, FaultKind::RecordLatched);
    assert_eq!(of(vec![latched(1), latched(2)]).len(), 2);
    let both = of(vec![report(1, disk_failed()), report(2, disk_failed())]);
    let nodes: Vec<_> = both.iter().map(|finding| finding.subject.node).collect();
    assert_eq!(nodes, [Some(1), Some(2)]);
}

#[test]
fn copies_that_differ_are_critical() {
    let kind = FaultKind::CopiesMismatch {
        id: "7".into(),
        volume: "db".into(),
        bytes: 64 << 10,
        nodes: [1, 2].into(),
    };
    let found = findings(&Observed { reports: vec![report(1, kind)], ..cluster() });
    let [finding] = found.as_slice() else { panic!("{found:#?}") };
    assert_eq!((finding.severity, finding.code), (Critical, Code::CopiesMismatch));
    assert_eq!(finding.cause, "Mismatch: copies of volume db differ in 64K (nodes 1, 2).");
    let (id, name) = (Some("7".into()), Some("db".into()));
    assert_eq!(finding.subject, Subject { kind: SubjectKind::Volume, name, id, node: None });
}

#[test]
fn hosts_that_are_stopped_for_a_restore_are_one_finding_of_all_nodes() {
    let kind = || FaultKind::RestoreUnfinished { id: "7".into(), volume: "db".into() };
    let found = findings(&Observed { reports: vec![report(1, kind()), report(2, kind())], ..cluster() });
    let [finding] = found.as_slice() else { panic!("{found:#?}") };
    assert_eq!((finding.severity, finding.code), (Critical, Code::VolumeUnavailable));
    assert!(finding.cause.starts_with("Hosts of volume db are stopped"), "{}", finding.cause);
    assert_eq!(finding.seen_by, [1, 2]);
}

#[test]
fn a_schedule_that_has_missed_a_snapshot_says_why() {
    let kind = |obstacle| FaultKind::SnapshotScheduleMissed {
        schedule: "hourly".into(),
        due: 1_795_348_800,
        obstacle,
    };
    let full = kind(Some(ScheduleObstacle::VolumeDeleted { volume: "db".into() }));
    let found = findings(&Observed { reports: vec![report(1, full)], ..cluster() });
    let [finding] = found.as_slice() else { panic!("{found:#?}") };
    assert_eq!((finding.severity, finding.code), (Warning, Code::SnapshotScheduleMissed));
    assert_eq!(
        finding.cause,
        "Schedule hourly could not take the snapshot that was due at 2026-11-22 12:00:00Z: volume db was deleted: remove it from the schedule."
    );
    let name = Some("hourly".into());
    assert_eq!(finding.subject, Subject { kind: SubjectKind::Schedule, name, id: None, node: None });
    let found = findings(&Observed { reports: vec![report(1, kind(None))], ..cluster() });
    assert!(found[0].cause.ends_with("no node has tried."), "{}", found[0].cause);
}

#[test]
fn snapshots_that_may_have_been_forgotten_are_advice() {
    let kind = |count| FaultKind::SnapshotsOld { count, oldest: "before".into(), at: 1_795_348_800 };
    let found = findings(&Observed { reports: vec![report(1, kind(3))], ..cluster() });
    let [finding] = found.as_slice() else { panic!("{found:#?}") };
    assert_eq!((finding.severity, finding.code), (Info, Code::SnapshotsOld));
    assert_eq!(
        finding.cause,
        "3 snapshots are older than 30 days and never expire: they may have been forgotten. The oldest is before, taken on 2026-11-22 12:00:00Z."
    );
    assert_eq!(finding.subject, Subject { kind: SubjectKind::Cluster, name: None, id: None, node: None });
    let found = findings(&Observed { reports: vec![report(1, kind(1)), report(2, kind(1))], ..cluster() });
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].cause.starts_with("Snapshot before was taken on 2026-11-22"), "{}", found[0].cause);
}

#[test]
fn lost_blocks_are_critical() {
    let kind = FaultKind::BlocksLost { id: "7".into(), volume: "db".into(), blocks: 2, lba: 40 };
    let found = findings(&Observed { reports: vec![report(1, kind)], ..cluster() });
    let [finding] = found.as_slice() else { panic!("{found:#?}") };
    assert_eq!((finding.severity, finding.code), (Critical, Code::BlocksLost));
    let cause = "The copy of volume db on node 1 (server1) lacks 2 blocks, first LBA 40: no copy in sync could read them when it resynced.";
    assert_eq!(finding.cause, cause);
    let (id, name) = (Some("7".into()), Some("db".into()));
    assert_eq!(finding.subject, Subject { kind: SubjectKind::Volume, name, id, node: Some(1) });
}

#[test]
fn scrub_results_are_findings_of_the_volume_on_its_node() {
    let of = |kind| findings(&Observed { reports: vec![report(1, kind)], ..cluster() }).remove(0);
    let (id, volume) = ("7".to_owned(), "db".to_owned());
    let unrepaired = |blocks, of_snapshots| {
        let (id, volume) = (id.clone(), volume.clone());
        of(FaultKind::ScrubUnrepaired { id, volume, blocks, lba: 40, of_snapshots })
    };
    let past = unrepaired(2, 2);
    assert!(past.cause.ends_with("first LBA 40; 2 in snapshots only."), "{}", past.cause);
    assert!(past.action.is_some_and(|action| action.contains("The volume itself is not affected")));
    let found = unrepaired(1, 0);
    assert!(found.action.as_ref().is_some_and(|action| action.contains("writing a block repairs it")));
    assert_eq!((found.severity, found.code), (Warning, Code::ScrubUnrepaired));
    let cause = "The last scrub of volume db on node 1 (server1) found 1 bad block that could not be repaired from another copy, first LBA 40.";
    assert_eq!(found.cause, cause);
    assert_eq!(found.subject.node, Some(1));
    let overdue = of(FaultKind::ScrubOverdue { id, volume, seconds: 60 * 86_400 });
    assert_eq!((overdue.severity, overdue.code), (Warning, Code::ScrubOverdue));
    assert_eq!(
        overdue.cause,
        "Volume db on node 1 (server1) has not been scrubbed for 60 days: bad blocks there may have gone unnoticed."
    );
}

#[test]
fn a_node_that_does_not_report_is_a_finding() {
    let silent = (Warning, Code::NodeSilent);
    finds(Observed { silent: vec![missing(2)], incomplete: vec![missing(2)], ..cluster() }, &[silent]);
    finds(Observed { incomplete: vec![missing(2)], ..cluster() }, &[silent]);
}

#[test]
fn a_change_that_does_not_end_is_found_on_any_node() {
    let stuck = || OwnFault::ChangeStuck {
        work: Work { doing: Doing::DeleteVolume, name: "x".into() },
        waits_for: WaitsFor::Disks(vec!["/dev/sdb".into()]),
    };
    let cause = |observed: Observed| findings(&observed).remove(0).cause;
    assert_eq!(
        cause(Observed { reports: vec![own(2, stuck())], ..cluster() }),
        "Node 2 (server2): deleting volume \"x\" has not finished: it waits for a response from /dev/sdb."
    );
}

#[test]
fn a_finding_says_since_when() {
    let since = |observed: Observed| findings(&observed).iter().map(|it| it.since).collect::<Vec<_>>();
    let down_at = |id, at| ClusterNode { down_since: Some(Since::exactly(at)), ..down(id) };
    let at = |at| Some(Since::exactly(at));
    // There was a majority until the second voter was lost.
    let nodes = vec![node(1), down_at(2, 60), down_at(3, 50)];
    assert_eq!(since(Observed { nodes: nodes.clone(), ..cluster() }), [at(60), at(60), at(50)]);
    let volumes = vec![volume(&[(2, InSync), (3, InSync)])];
    assert_eq!(since(Observed { nodes, volumes, ..cluster() })[0], at(60), "the last that had it");
    let maintenance = ClusterNode { maintenance: true, maintenance_since: Some(70), ..node(2) };
    let nodes = vec![node(1), maintenance, node(3)];
    assert_eq!(since(Observed { nodes, ..cluster() }), [at(70)]);
    let behind = |since| syncing(CopySync { since, ..samples::sync() });
    let earlier = Some(Since { at: 30, or_earlier: true });
    let volumes = vec![behind(at(40)), behind(earlier)];
    assert_eq!(since(Observed { volumes, ..cluster() }), [earlier]);
    let read_only = FaultKind::PoolReadOnly { pool: "default".into() };
    let reports = vec![Report { since: at(15), ..report(2, read_only) }];
    let pools = vec![pool(2, PoolState::ReadOnly)];
    assert_eq!(since(Observed { pools, reports, ..cluster() }), [at(15)]);
}

#[test]
fn many_copies_are_one_finding_that_names_the_first() {
    let first = |volumes: Vec<Volume>| findings(&Observed { volumes, ..cluster() }).remove(0);
    let one = first(vec![syncing(samples::sync())]);
    assert_eq!(one.cause, "The copy of db on node 2 is out of sync and resyncing (70 %).");
    assert_eq!((one.action, one.command.as_str()), (None, "ursa volume show db"));
    let subject = Subject {
        kind: SubjectKind::Copy,
        name: Some("db".into()),
        id: Some("id of db".into()),
        node: Some(2),
    };
    assert_eq!(one.subject, subject);
    let many = first(vec![syncing(samples::sync()); 3]);
    assert_eq!(many.cause, "3 copies are out of sync and resyncing (70 %).");
    assert_eq!(many.subject, Subject { kind: SubjectKind::Copy, name: None, id: None, node: None });
    let uncounted = CopySync { total_bytes: 0, left_bytes: 0, ..samples::sync() };
    assert_eq!(
        first(vec![syncing(uncounted)]).cause,
        "The copy of db on node 2 is out of sync and resyncing."
    );
    let paused = Some(SyncPaused { by: "eva".into(), since: 9 });
    let paused = first(vec![syncing(CopySync { paused, ..samples::sync() }); 2]);
    assert_eq!(
        paused.cause,
        "The resync of db on node 2 was paused by eva: the volume has reduced redundancy until it completes. 1 more are paused."
    );
    assert_eq!(paused.command, "ursa job resume copy.id of db.2");
}

#[test]
fn a_finding_leads_to_what_can_be_done() {
    let told = |reports: Vec<Report>| {
        let found = findings(&Observed { reports, ..cluster() }).remove(0);
        (found.cause, found.action.unwrap_or_default(), found.command)
    };
    let errors = |first| FaultKind::ReadFailed {
        pool: "default".into(),
        disk: "/dev/sdb".into(),
        blocks: 2,
        more: false,
        bad: 1,
        first,
    };
    let (cause, action, command) = told(vec![report(1, errors(None))]);
    assert_eq!(
        cause,
        "Disk /dev/sdb of pool default on node 1 (server1) failed to read 2 blocks: all were repaired from another copy and can be read."
    );
    assert!(action.ends_with("then acknowledge the read errors"), "{action}");
    assert_eq!(command, "ursa pool acknowledge default --node 1");
    let bad = |snapshot| Some(UnreadBlock { volume: "db".into(), lba: 300, snapshot });
    let (cause, ..) = told(vec![report(1, errors(bad(None)))]);
    assert!(cause.contains("2 blocks: 1 still cannot be read, first LBA 300 of volume db;"), "{cause}");
    let (cause, ..) = told(vec![report(1, errors(bad(Some("monday".into()))))]);
    assert!(cause.contains("first LBA 300 of volume db in snapshot monday;"), "{cause}");
    let set_back = |stuck: &[&str]| FaultKind::PoolSetBack {
        pool: "default".into(),
        disks: "/dev/sdb".into(),
        resynced: 3,
        stuck: stuck.iter().map(ToString::to_string).collect(),
    };
    let (cause, _, command) = told(vec![report(2, set_back(&[]))]);
    assert_eq!(
        cause,
        "Pool default (/dev/sdb) on node 2 (server2) was set back: it holds an older state than when it was last used; 3 of its copies are resynced in full."
    );
    assert_eq!(command, "ursa pool show default --node 2");
    let (_, action, command) = told(vec![report(2, set_back(&["db"]))]);
    assert!(action.ends_with("or accept the older data"), "{action}");
    assert_eq!(command, "ursa pool accept-older default --node 2");
}

#[test]
fn a_lost_copy_of_the_record_says_what_may_be_missing() {
    let fault = RecordFault {
        path: "/var/lib/ursa/record".into(),
        slot: 1,
        damage: RecordDamage::Content,
        missing: RecordMissing::Change(8),
        used: 7,
    };
    let reports = vec![own(1, OwnFault::Node(FaultKind::RecordFault(fault)))];
    assert_eq!(
        findings(&Observed { reports, ..alone() }).remove(0).cause,
        "Node 1 (server1): copy 1 of its own record /var/lib/ursa/record is damaged; the other copy, change 7, is used. Change 8 of pools, targets, LUN maps or hosts is lost."
    );
}

#[test]
fn a_node_that_is_cut_off_is_named_with_those_that_reach_it() {
    let first = |observed: &Observed| findings(observed).remove(0);
    let nodes = vec![node(1), node(2), cut_off(3, &[2])];
    let found = first(&Observed { nodes, ..cluster() });
    assert_eq!(
        (found.cause.as_str(), found.command.as_str()),
        (
            "Node 3 (server3) is cut off from node 1 (server1) on every link; node 2 (server2) reaches it.",
            "ursa node links"
        )
    );
    let heard = FaultKind::NodeCutOff { node: 3, heard: true, reached_by: Vec::new() };
    let found = first(&Observed { reports: vec![report(2, heard)], ..cluster() });
    assert!(
        found.cause.starts_with("Node 2 (server2) has no replication link to node 3 (server3)"),
        "{found:?}"
    );
}

#[test]
fn facts_arrive_as_they_were_sent() {
    let reports = vec![
        report(1, FaultKind::RecordLatched),
        report(2, disk_failed()),
        own(
            1,
            OwnFault::AuditUnavailable { directory: "/a".into(), error: AuditTrouble::System { errno: 28 } },
        ),
        own(3, OwnFault::CertificateUnavailable { error: CertificateFault::Pem { path: "/c".into() } }),
    ];
    let sent = serde_json::to_string(&reports).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Report>>(&sent).unwrap(), reports);
}

/// The page's table begins with the severity of a code's condition, and then may name other ones.
#[test]
fn the_page_of_findings_has_every_code_with_its_severity() {
    let page = include_str!("../../../../../docs/use/findings.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let listed: BTreeMap<String, String> = rows
        .filter_map(|(code, rest)| {
            let severity = rest.split([' ', ';']).next()?;
            ["critical", "warning", "info"]
                .contains(&severity)
                .then(|| (code.to_owned(), severity.to_owned()))
        })
        .collect();
    let schema = serde_json::to_value(<FindingCode as utoipa::PartialSchema>::schema()).unwrap();
    let severity = |code: FindingCode| format!("{:?}", condition(code).severity()).to_lowercase();
    let codes: BTreeMap<String, String> = { schema["enum"].as_array().unwrap().iter() }
        .map(|name| (name.as_str().unwrap().to_owned(), serde_json::from_value(name.clone()).unwrap()))
        .map(|(name, code)| (name, severity(code)))
        .collect();
    assert_eq!(listed, codes);
}
