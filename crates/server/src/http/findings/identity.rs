//! The identity of a finding: its code and its subject; and its severity.

use ::node::control::FaultKind;
use ::node::events::condition::Condition;
use api::{FindingCode, Pool, Severity, Subject, SubjectKind, Volume};
use terms::same_names::same_names;

use super::judge::{Copy, Resync, What};
use super::own::{OwnFault, Report};
use crate::http::events::shown_severity;

/// The severity of a finding.
pub(super) fn severity(what: &What<'_>) -> Severity {
    let condition = match what {
        What::PoolFilling { level: 95.., .. } => Condition::LogPoolNearlyFull,
        What::PoolFilling { .. } => Condition::LogPoolFilling,
        What::NoWitness { stopped } if !stopped.is_empty() => Condition::ReducedTolerance,
        _ => condition(code_and_subject(what).0),
    };
    shown_severity(condition.severity())
}

/// The severity of a node's own fault. The consequences for volumes are findings of the volumes.
pub fn severity_of(kind: &FaultKind) -> Severity {
    shown_severity(condition(code_of(kind)).severity())
}

same_names! {
    /// The condition of a code; some codes have more severe ones, too ([`severity`]).
    pub(super) fn condition(FindingCode) -> Condition {
        SplitBrain, VolumeUnavailable, ContinuedAlone, SnapshotScheduleMissed, SnapshotsOld, CopiesMismatch,
        BlocksLost, ScrubUnrepaired, ScrubOverdue, VolumeNameTaken, CopyOutOfSync, ResyncRunning,
        ResyncWaiting, ResyncPaused, NodeDown, NodeCutOff, NodeMaintenance, NodeSilent, NodeSetBack,
        NodeRemoved, ClusterFailed,
        LinkAddressMissing, FloatingIpLost, LoginsRefused, NoQuorum, NoWitness, RecordLost, RecordStalled,
        RecordEntriesUnreadable, RecordFault, RecordLatched, DiskFailed, ReadFailed, PoolClosed,
        PoolReadOnly, PoolSetBack, PoolOvercommitted, SnapshotSpace, PoolNearlyFull, PoolFullSoon, ChangeStuck,
        AuditUnavailable, CertificateUnavailable
    }
}

pub(super) fn code_and_subject(what: &What<'_>) -> (FindingCode, Subject) {
    use FindingCode as Code;
    match what {
        What::SplitBrain(volume) => (Code::SplitBrain, of_volume(volume)),
        What::Unserved { volume, .. } => (Code::VolumeUnavailable, of_volume(volume)),
        What::ContinuedAlone { volume, .. } => (Code::ContinuedAlone, of_volume(volume)),
        What::Resync { how, copies } => {
            let code = match how {
                Resync::Paused => Code::ResyncPaused,
                Resync::Waiting => Code::ResyncWaiting,
                Resync::Running => Code::ResyncRunning,
                Resync::Unknown => Code::CopyOutOfSync,
            };
            (code, of_copies(copies))
        }
        What::NodeDown(node) => (Code::NodeDown, of_node(node.id, &node.name)),
        What::NodeMaintenance(node) => (Code::NodeMaintenance, of_node(node.id, &node.name)),
        What::NodeCutOff(node) => (Code::NodeCutOff, of_node(node.id, &node.name)),
        What::NodeSilent { missing, .. } => (Code::NodeSilent, of_node(missing.node, &missing.node_name)),
        What::NoQuorum { .. } => (Code::NoQuorum, subject(SubjectKind::Cluster)),
        What::RecordSilent => (Code::RecordLost, subject(SubjectKind::Cluster)),
        What::NoWitness { .. } => (Code::NoWitness, subject(SubjectKind::Cluster)),
        What::DiskFailed { pool, .. } => (Code::DiskFailed, of_pool(pool)),
        What::PoolClosed { pool, .. } => (Code::PoolClosed, of_pool(pool)),
        What::PoolReadOnly(pool) => (Code::PoolReadOnly, of_pool(pool)),
        What::PoolOvercommitted { pool, .. } => (Code::PoolOvercommitted, of_pool(pool)),
        What::SnapshotSpace { pool, .. } => (Code::SnapshotSpace, of_pool(pool)),
        What::PoolNearlyFull(pool) | What::PoolFilling { pool, .. } => (Code::PoolNearlyFull, of_pool(pool)),
        What::Own(reports) => identity(reports[0]),
    }
}

pub(super) fn identity(report: &Report) -> (FindingCode, Subject) {
    use FindingCode as Code;
    let of = |kind: SubjectKind, name: &str| named(kind, name, Some(report.node));
    let of_itself = || of_node(report.node, &report.node_name);
    let of_volume_here =
        |id: &String, name: &str| Subject { id: Some(id.clone()), ..of(SubjectKind::Volume, name) };
    let kind = match &report.fault {
        OwnFault::Node(kind) => kind,
        OwnFault::AuditUnavailable { .. } => return (Code::AuditUnavailable, of_itself()),
        OwnFault::CertificateUnavailable { .. } => return (Code::CertificateUnavailable, of_itself()),
        OwnFault::ChangeStuck { work, .. } => {
            return (Code::ChangeStuck, of(SubjectKind::Change, &work.to_string()));
        }
        OwnFault::PoolFullSoon { pool, .. } => return (Code::PoolFullSoon, of(SubjectKind::Pool, pool)),
    };
    let subject = match kind {
        FaultKind::RecordFault(_)
        | FaultKind::RecordLatched
        | FaultKind::RecordEntriesUnreadable { .. }
        | FaultKind::RecordStalled { .. }
        | FaultKind::LoginsRefused
        | FaultKind::RemovedFromCluster
        | FaultKind::LeftBehind
        | FaultKind::ClusterFailed { .. }
        | FaultKind::NodeSetBack { .. }
        | FaultKind::RecordSetBack => of_itself(),
        FaultKind::RecordLost { .. } | FaultKind::SnapshotsOld { .. } => subject(SubjectKind::Cluster),
        FaultKind::LinkAddressMissing { address, .. } => of(SubjectKind::Address, &address.to_string()),
        FaultKind::NodeCutOff { node, .. } => of_node(*node, ""),
        FaultKind::SnapshotScheduleMissed { schedule, .. } => named(SubjectKind::Schedule, schedule, None),
        FaultKind::FloatingIpLost { address, .. } => named(SubjectKind::Address, &address.to_string(), None),
        FaultKind::PoolClosed { pool, .. }
        | FaultKind::PoolReadOnly { pool }
        | FaultKind::PoolSetBack { pool, .. } => of(SubjectKind::Pool, pool),
        FaultKind::DiskFailed { disk, .. } | FaultKind::ReadFailed { disk, .. } => {
            of(SubjectKind::Disk, disk)
        }
        FaultKind::VolumeNameTaken { id, volume, .. }
        | FaultKind::BlocksLost { id, volume, .. }
        | FaultKind::ScrubUnrepaired { id, volume, .. }
        | FaultKind::ScrubOverdue { id, volume, .. } => of_volume_here(id, volume),
        FaultKind::CopiesMismatch { id, volume, .. } | FaultKind::RestoreUnfinished { id, volume } => {
            Subject { id: Some(id.clone()), ..named(SubjectKind::Volume, volume, None) }
        }
    };
    (code_of(kind), subject)
}

fn code_of(kind: &FaultKind) -> FindingCode {
    use FindingCode as Code;
    match kind {
        FaultKind::RecordFault(_) => Code::RecordFault,
        FaultKind::RecordLatched => Code::RecordLatched,
        FaultKind::RecordEntriesUnreadable { .. } => Code::RecordEntriesUnreadable,
        FaultKind::RecordLost { .. } => Code::RecordLost,
        FaultKind::RecordStalled { .. } => Code::RecordStalled,
        FaultKind::LoginsRefused => Code::LoginsRefused,
        FaultKind::RemovedFromCluster | FaultKind::LeftBehind => Code::NodeRemoved,
        FaultKind::ClusterFailed { .. } => Code::ClusterFailed,
        FaultKind::NodeSetBack { .. } | FaultKind::RecordSetBack => Code::NodeSetBack,
        FaultKind::LinkAddressMissing { .. } => Code::LinkAddressMissing,
        FaultKind::NodeCutOff { .. } => Code::NodeCutOff,
        FaultKind::FloatingIpLost { .. } => Code::FloatingIpLost,
        FaultKind::PoolClosed { .. } => Code::PoolClosed,
        FaultKind::PoolReadOnly { .. } => Code::PoolReadOnly,
        FaultKind::PoolSetBack { .. } => Code::PoolSetBack,
        FaultKind::DiskFailed { .. } => Code::DiskFailed,
        FaultKind::ReadFailed { .. } => Code::ReadFailed,
        FaultKind::VolumeNameTaken { .. } => Code::VolumeNameTaken,
        FaultKind::BlocksLost { .. } => Code::BlocksLost,
        FaultKind::ScrubUnrepaired { .. } => Code::ScrubUnrepaired,
        FaultKind::ScrubOverdue { .. } => Code::ScrubOverdue,
        FaultKind::CopiesMismatch { .. } => Code::CopiesMismatch,
        FaultKind::RestoreUnfinished { .. } => Code::VolumeUnavailable,
        FaultKind::SnapshotScheduleMissed { .. } => Code::SnapshotScheduleMissed,
        FaultKind::SnapshotsOld { .. } => Code::SnapshotsOld,
    }
}

fn subject(kind: SubjectKind) -> Subject {
    Subject { kind, name: None, id: None, node: None }
}

fn named(kind: SubjectKind, name: &str, node: Option<u16>) -> Subject {
    Subject { name: Some(name.to_owned()).filter(|name| !name.is_empty()), node, ..subject(kind) }
}

fn of_node(node: u16, name: &str) -> Subject {
    named(SubjectKind::Node, name, Some(node))
}

fn of_pool(pool: &Pool) -> Subject {
    named(SubjectKind::Pool, &pool.name, Some(pool.node))
}

fn of_volume(volume: &Volume) -> Subject {
    Subject { id: Some(volume.id.clone()), ..named(SubjectKind::Volume, &volume.name, None) }
}

fn of_copies(copies: &[Copy<'_>]) -> Subject {
    match copies {
        [(volume, copy)] => {
            Subject { id: Some(volume.id.clone()), ..named(SubjectKind::Copy, &volume.name, Some(copy.node)) }
        }
        _ => subject(SubjectKind::Copy),
    }
}
