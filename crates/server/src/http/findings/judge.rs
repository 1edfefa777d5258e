//! Turns what nodes report, and what the queried node knows, into findings, as codes and facts. `words` has
//! the texts.

use std::cmp::Reverse;

use ::node::control::FaultKind;
use api::{
    ClusterNode, CopyState, Missing, Overcommit, Pool, PoolLogs, PoolState, Since, Volume, VolumeCopy,
};
use terms::loss::continues_alone;

use super::identity::{identity, severity};
use super::own::{OwnFault, Report};
use crate::http::volumes::health::{Unserved, unserved};

/// What the queried node knows about the cluster.
#[derive(Debug)]
pub(super) struct Observed {
    /// The nodes of the cluster; empty if the node takes no part in it.
    pub(super) nodes: Vec<ClusterNode>,
    /// Whether the cluster's record is in etcd.
    pub(super) in_etcd: bool,
    pub(super) volumes: Vec<Volume>,
    /// The pools of all nodes.
    pub(super) pools: Vec<Pool>,
    /// What nodes report about themselves.
    pub(super) reports: Vec<Report>,
    /// Nodes that do not report their own faults.
    pub(super) silent: Vec<Missing>,
    /// Nodes that do not report their pools or volumes.
    pub(super) incomplete: Vec<Missing>,
}

/// A finding, and since when it lasts, if that is known.
#[derive(Debug)]
pub(super) struct Found<'a> {
    pub(super) what: What<'a>,
    pub(super) since: Option<Since>,
}

/// The facts of a finding.
#[derive(Debug)]
pub(super) enum What<'a> {
    SplitBrain(&'a Volume),
    Unserved {
        volume: &'a Volume,
        why: Unserved<'a>,
    },
    ContinuedAlone {
        volume: &'a Volume,
        node: u16,
    },
    Resync {
        how: Resync,
        copies: Vec<Copy<'a>>,
    },
    NodeDown(&'a ClusterNode),
    NodeMaintenance(&'a ClusterNode),
    NodeCutOff(&'a ClusterNode),
    /// A node is up, but does not report its own faults, or (`reports_state`) its pools or volumes.
    NodeSilent {
        missing: &'a Missing,
        reports_state: bool,
    },
    NoQuorum {
        up: usize,
        voters: usize,
    },
    /// The voters are unknown.
    RecordSilent,
    /// `stopped`: the volumes that the loss of the preferred node stops although they have copies on both.
    NoWitness {
        stopped: Vec<&'a Volume>,
    },
    /// `can_rebuild`: whether another node has copies of volumes on this node, so that they can be rebuilt in
    /// another pool.
    DiskFailed {
        pool: &'a Pool,
        can_rebuild: bool,
    },
    PoolClosed {
        pool: &'a Pool,
        can_rebuild: bool,
    },
    PoolReadOnly(&'a Pool),
    PoolOvercommitted {
        pool: &'a Pool,
        overcommit: Overcommit,
    },
    /// Snapshots hold much of a pool, which has not reached a fill level.
    SnapshotSpace {
        pool: &'a Pool,
        logs: PoolLogs,
    },
    PoolNearlyFull(&'a Pool),
    /// A pool with log volumes has reached a fill level.
    PoolFilling {
        pool: &'a Pool,
        logs: PoolLogs,
        level: u8,
    },
    /// Faults that nodes report themselves: of one node, or of several about the same thing of the cluster.
    Own(Vec<&'a Report>),
}

/// The state of the resync of a copy that is out of sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resync {
    Paused,
    Waiting,
    Running,
    /// No node reports a resync of this copy.
    Unknown,
}

pub(super) type Copy<'a> = (&'a Volume, &'a VolumeCopy);

/// A pool with less free space than this is nearly full.
const FREE_PERCENT_MIN: u64 = 5;
/// Snapshots that hold more of a pool than this are worth a look.
const SNAPSHOTS_PERCENT_MAX: u64 = 50;

impl<'a> What<'a> {
    fn since(self, since: Option<Since>) -> Found<'a> {
        Found { what: self, since }
    }
}

/// All findings, the worst first; among equally severe ones, those that end automatically come last.
pub(super) fn judge(observed: &Observed) -> Vec<Found<'_>> {
    let nodes = observed.nodes.as_slice();
    let is_removed = observed.reports.iter().any(|report| is_here(nodes, report) && report.is_removal());
    // If the other nodes refuse this node because it was removed, they are not down: its own report says what
    // to do.
    let nodes = if is_removed { &[] } else { nodes };
    let mut found: Vec<Found<'_>> = Vec::new();
    found.extend(observed.volumes.iter().filter_map(|volume| of_volume(volume, nodes)));
    found.extend(observed.pools.iter().filter_map(|pool| of_pool(pool, observed)));
    // If the record is in etcd, no node votes, and nodes report themselves what is wrong with etcd.
    found.extend(of_votes(nodes).filter(|_| !observed.in_etcd));
    found.extend(nodes.iter().filter_map(of_node));
    found.extend(of_copies(observed));
    found.extend(of_reports(observed));
    found.extend(of_missing(observed).filter(|_| !is_removed));
    let two = nodes.len() == 2 && nodes.iter().all(|node| !node.witness) && !observed.in_etcd;
    found.extend(two.then(|| What::NoWitness { stopped: stopped(observed) }.since(None)));
    found.sort_by_cached_key(|found| (Reverse(severity(&found.what)), found.what.ends_automatically()));
    found
}

impl What<'_> {
    /// Whether the finding ends without any action.
    pub(super) fn ends_automatically(&self) -> bool {
        matches!(self, What::Resync { how: Resync::Running | Resync::Unknown, .. })
    }
}

impl Report {
    fn is_removal(&self) -> bool {
        matches!(self.fault, OwnFault::Node(FaultKind::RemovedFromCluster | FaultKind::LeftBehind))
    }

    /// Whether it is about something of the cluster that every node sees alike.
    fn is_of_cluster(&self) -> bool {
        matches!(
            self.fault,
            OwnFault::Node(
                FaultKind::RecordLost { .. }
                    | FaultKind::FloatingIpLost { .. }
                    | FaultKind::RestoreUnfinished { .. }
                    | FaultKind::SnapshotScheduleMissed { .. }
                    | FaultKind::SnapshotsOld { .. }
            )
        )
    }
}

/// Whether the report is the queried node's own.
fn is_here(nodes: &[ClusterNode], report: &Report) -> bool {
    nodes.iter().any(|node| node.here && node.id == report.node)
}

fn of_volume<'a>(volume: &'a Volume, nodes: &[ClusterNode]) -> Option<Found<'a>> {
    let fork = volume.fork.as_ref();
    let forked = fork.map(|fork| Since::exactly(fork.since));
    if fork.is_some_and(|fork| fork.split) {
        return Some(What::SplitBrain(volume).since(forked));
    }
    if let Some(why) = unserved(volume, nodes) {
        let since = match why {
            Unserved::Problem(_) => None,
            // Since the last node with a copy in sync went down.
            Unserved::NotReached => {
                let has = |node: &&ClusterNode| volume.copies.iter().any(|copy| is_in_sync_on(copy, node.id));
                last(nodes.iter().filter(has).filter_map(|node| node.down_since))
            }
            // Since the last copy went out of sync.
            Unserved::NoneInSync => last(volume.copies.iter().filter_map(behind_since)),
        };
        return Some(What::Unserved { volume, why }.since(since));
    }
    fork.map(|fork| What::ContinuedAlone { volume, node: fork.node }.since(forked))
}

fn is_in_sync_on(copy: &VolumeCopy, node: u16) -> bool {
    copy.node == node && copy.state == CopyState::InSync
}

/// Since when a copy is out of sync.
fn behind_since(copy: &VolumeCopy) -> Option<Since> {
    copy.sync.as_ref()?.since
}

fn first(all: impl IntoIterator<Item = Since>) -> Option<Since> {
    all.into_iter().min_by_key(|since| since.at)
}

fn last(all: impl IntoIterator<Item = Since>) -> Option<Since> {
    all.into_iter().max_by_key(|since| since.at)
}

/// Whether other nodes reach this node, but the queried node does not.
fn is_cut_off(node: &ClusterNode) -> bool {
    !node.up && !node.reached_by.is_empty()
}

fn of_node(node: &ClusterNode) -> Option<Found<'_>> {
    Some(match (node.up, node.maintenance) {
        _ if is_cut_off(node) => What::NodeCutOff(node).since(node.down_since),
        (true, false) => return None,
        (true, true) => What::NodeMaintenance(node).since(node.maintenance_since.map(Since::exactly)),
        (false, true) => What::NodeMaintenance(node).since(node.down_since),
        (false, false) => What::NodeDown(node).since(node.down_since),
    })
}

fn of_votes(nodes: &[ClusterNode]) -> Option<Found<'_>> {
    let votes = || nodes.iter().filter(|node| node.votes);
    let (up, voters) = (votes().filter(|node| node.can_vote()).count(), votes().count());
    // The only node reports itself why it cannot write the record.
    if nodes.is_empty() || 2 * up > voters || (nodes.len() == 1 && voters == 1) {
        return None;
    }
    if voters == 0 {
        return Some(What::RecordSilent.since(None));
    }
    // Since so many voters are down that the rest is no majority.
    let mut down: Vec<Since> = votes().filter_map(|node| node.down_since).collect();
    down.sort_by_key(|since| since.at);
    Some(What::NoQuorum { up, voters }.since(down.get(voters.div_ceil(2) - 1).copied()))
}

/// The volumes of two nodes without a witness that the loss of the preferred one stops: also while a copy is
/// out of sync, so that the finding does not come and go with it.
fn stopped(observed: &Observed) -> Vec<&Volume> {
    observed.volumes.iter().filter(|volume| volume.copies.len() > 1 && !continues_alone(volume)).collect()
}

fn is_well(pool: &Pool) -> bool {
    matches!(pool.state, PoolState::Online | PoolState::Exported)
}

fn is_about(report: &Report, pool: &Pool) -> bool {
    let of_pool = match &report.fault {
        OwnFault::Node(
            FaultKind::DiskFailed { pool, .. }
            | FaultKind::PoolClosed { pool, .. }
            | FaultKind::PoolReadOnly { pool },
        ) => pool,
        _ => return false,
    };
    report.node == pool.node && *of_pool == pool.name
}

fn of_pool<'a>(pool: &'a Pool, observed: &'a Observed) -> Option<Found<'a>> {
    let reports = observed.reports.iter().filter(|report| is_about(report, pool));
    let since = first(reports.filter_map(|report| report.since));
    let has_other_copies =
        |volume: &Volume| volume.copies.len() > 1 && volume.copies.iter().any(|copy| copy.node == pool.node);
    let can_rebuild = observed.volumes.iter().any(has_other_copies);
    Some(match pool.state {
        PoolState::Exported => return None,
        PoolState::DiskFailed => What::DiskFailed { pool, can_rebuild }.since(since),
        PoolState::Unavailable => What::PoolClosed { pool, can_rebuild }.since(since),
        PoolState::ReadOnly => What::PoolReadOnly(pool).since(since),
        PoolState::Online => {
            let at_level = pool.logs.and_then(|logs| Some((logs, logs.level?)));
            let by_snapshots = pool.logs.filter(|logs| hold_much(logs, pool));
            match (at_level, pool.overcommit, by_snapshots) {
                (Some((logs, level)), _, _) => What::PoolFilling { pool, logs, level }.since(None),
                (None, Some(overcommit), _) => What::PoolOvercommitted { pool, overcommit }.since(None),
                (None, None, Some(logs)) => What::SnapshotSpace { pool, logs }.since(None),
                (None, None, None) if is_nearly_full(pool) => What::PoolNearlyFull(pool).since(None),
                (None, None, None) => return None,
            }
        }
    })
}

/// Whether a pool is nearly full. Not for pools with logs, whose borrowed space is not all in use.
fn is_nearly_full(pool: &Pool) -> bool {
    if pool.logs.is_some() {
        return false;
    }
    u128::from(pool.free) * 100 < u128::from(pool.total) * u128::from(FREE_PERCENT_MIN)
}

/// Whether snapshots hold much of a pool.
fn hold_much(logs: &PoolLogs, pool: &Pool) -> bool {
    u128::from(logs.snapshots) * 100 > u128::from(pool.total) * u128::from(SNAPSHOTS_PERCENT_MAX)
}

/// Copies that are out of sync while their node is up, grouped by the state of their resync. If the node is
/// down or in maintenance, another finding says so.
fn of_copies(observed: &Observed) -> impl Iterator<Item = Found<'_>> {
    let in_use = |copy: &VolumeCopy| {
        observed.nodes.iter().any(|node| node.id == copy.node && node.up && !node.maintenance)
    };
    let all = observed.volumes.iter().flat_map(|volume| volume.copies.iter().map(move |copy| (volume, copy)));
    let behind: Vec<Copy<'_>> =
        all.filter(|(_, copy)| copy.state != CopyState::InSync && in_use(copy)).collect();
    let each = move |how: Resync| {
        let copies: Vec<Copy<'_>> = behind.iter().filter(|(_, copy)| resync(copy) == how).copied().collect();
        let paused_since = |copy: &VolumeCopy| Some(copy.sync.as_ref()?.paused.as_ref()?.since);
        let since = match how {
            Resync::Paused => {
                first(copies.iter().filter_map(|(_, copy)| paused_since(copy)).map(Since::exactly))
            }
            _ => first(copies.iter().filter_map(|(_, copy)| behind_since(copy))),
        };
        (!copies.is_empty()).then(|| What::Resync { how, copies }.since(since))
    };
    [Resync::Paused, Resync::Waiting, Resync::Running, Resync::Unknown].into_iter().filter_map(each)
}

fn resync(copy: &VolumeCopy) -> Resync {
    match &copy.sync {
        None => Resync::Unknown,
        Some(sync) if sync.paused.is_some() => Resync::Paused,
        Some(sync) if sync.waits_for.is_some() => Resync::Waiting,
        Some(_) => Resync::Running,
    }
}

/// The faults that nodes report, unless there is another finding about the same pool, or about a node that is
/// cut off from the queried one. Reports of several nodes about the cluster become one finding.
fn of_reports(observed: &Observed) -> Vec<Found<'_>> {
    let nodes = observed.nodes.as_slice();
    let is_said = |report: &Report| {
        let of_pool = observed.pools.iter().any(|pool| !is_well(pool) && is_about(report, pool));
        let of_cut_off = match report.fault {
            OwnFault::Node(FaultKind::NodeCutOff { node, .. }) if is_here(nodes, report) => {
                nodes.iter().any(|other| other.id == node && is_cut_off(other))
            }
            _ => false,
        };
        of_pool || of_cut_off || is_idle_forecast(report, observed)
    };
    let mut groups: Vec<Vec<&Report>> = Vec::new();
    for report in observed.reports.iter().filter(|report| !is_said(report)) {
        let is_same = |group: &&mut Vec<&Report>| identity(group[0]) == identity(report);
        match groups.iter_mut().filter(|_| report.is_of_cluster()).find(is_same) {
            Some(group) => group.push(report),
            None => groups.push(vec![report]),
        }
    }
    let since = |group: &[&Report]| first(group.iter().filter_map(|report| report.since));
    groups
        .into_iter()
        .map(|group| (since(&group), group))
        .map(|(since, group)| What::Own(group).since(since))
        .collect()
}

/// Whether the report is a forecast that says nothing new: its pool is gone, not open or already nearly full.
fn is_idle_forecast(report: &Report, observed: &Observed) -> bool {
    let OwnFault::PoolFullSoon { pool: name, .. } = &report.fault else { return false };
    let mut pools = observed.pools.iter().filter(|pool| pool.node == report.node && pool.name == *name);
    let has_room = |pool: &Pool| {
        let what = of_pool(pool, observed).map(|found| found.what);
        matches!(pool.state, PoolState::Online)
            && matches!(what, None | Some(What::PoolOvercommitted { .. } | What::SnapshotSpace { .. }))
    };
    !pools.any(has_room)
}

/// Nodes that are up but do not report everything. If a node is down, another finding says so.
fn of_missing(observed: &Observed) -> impl Iterator<Item = Found<'_>> {
    let is_down = |missing: &&Missing| observed.nodes.iter().any(|node| node.id == missing.node && !node.up);
    let is_silent = |missing: &&Missing| observed.silent.iter().any(|one| one.node == missing.node);
    let silent = observed.silent.iter().map(|missing| (missing, false));
    let incomplete =
        observed.incomplete.iter().filter(move |one| !is_silent(one)).map(|missing| (missing, true));
    let up = silent.chain(incomplete).filter(move |(missing, _)| !is_down(missing));
    up.map(|(missing, reports_state)| What::NodeSilent { missing, reports_state }.since(None))
}
