//! The identity of a finding: its code and its subject; and its severity.

use ::node::control::FaultKind;
use api::{FindingCode, Pool, Severity, Subject, SubjectKind, Volume};

use super::judge::{Copy, Resync, What};
use super::own::{OwnFault, Report};

/// The severity of a finding.
pub(super) fn severity(what: &What<'_>) -> Severity {
    match what {
        What::SplitBrain(_) | What::Unserved { .. } => Severity::Critical,
        What::DiskFailed { impact, .. } | What::PoolClosed { impact, .. } => impact.severity,
        What::Own(reports) => match &reports[0].fault {
            OwnFault::Node(kind) => severity_of(kind),
            OwnFault::PoolFullSoon { .. } => Severity::Info,
            _ => Severity::Warning,
        },
        What::PoolFilling { level, .. } => match level {
            ..90 => Severity::Info,
            90..95 => Severity::Warning,
            95.. => Severity::Critical,
        },
        What::NoWitness | What::PoolOvercommitted { .. } | What::PoolNearlyFull(_) => Severity::Info,
        _ => Severity::Warning,
    }
}

/// The severity of a node's own fault. The consequences for volumes are findings of the volumes.
pub fn severity_of(kind: &FaultKind) -> Severity {
    match kind {
        FaultKind::CopiesMismatch { .. } | FaultKind::BlocksLost { .. } => Severity::Critical,
        _ => Severity::Warning,
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
        What::NoWitness => (Code::NoWitness, subject(SubjectKind::Cluster)),
        What::DiskFailed { pool, .. } => (Code::DiskFailed, of_pool(pool)),
        What::PoolClosed { pool, .. } => (Code::PoolClosed, of_pool(pool)),
        What::PoolReadOnly(pool) => (Code::PoolReadOnly, of_pool(pool)),
        What::PoolOvercommitted { pool, .. } => (Code::PoolOvercommitted, of_pool(pool)),
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
    match kind {
        FaultKind::RecordFault(_) => (Code::RecordFault, of_itself()),
        FaultKind::RecordLatched => (Code::RecordLatched, of_itself()),
        FaultKind::RecordEntriesUnreadable { .. } => (Code::RecordEntriesUnreadable, of_itself()),
        FaultKind::RecordLost { .. } => (Code::RecordLost, subject(SubjectKind::Cluster)),
        FaultKind::RecordStalled { .. } => (Code::RecordStalled, of_itself()),
        FaultKind::LoginsRefused => (Code::LoginsRefused, of_itself()),
        FaultKind::RemovedFromCluster | FaultKind::LeftBehind => (Code::NodeRemoved, of_itself()),
        FaultKind::ClusterFailed { .. } => (Code::ClusterFailed, of_itself()),
        FaultKind::NodeSetBack { .. } | FaultKind::RecordSetBack => (Code::NodeSetBack, of_itself()),
        FaultKind::LinkAddressMissing { address, .. } => {
            (Code::LinkAddressMissing, of(SubjectKind::Address, &address.to_string()))
        }
        FaultKind::NodeCutOff { node, .. } => (Code::NodeCutOff, of_node(*node, "")),
        FaultKind::FloatingIpLost { address, .. } => {
            (Code::FloatingIpLost, named(SubjectKind::Address, &address.to_string(), None))
        }
        FaultKind::PoolClosed { pool, .. } => (Code::PoolClosed, of(SubjectKind::Pool, pool)),
        FaultKind::PoolReadOnly { pool } => (Code::PoolReadOnly, of(SubjectKind::Pool, pool)),
        FaultKind::PoolSetBack { pool, .. } => (Code::PoolSetBack, of(SubjectKind::Pool, pool)),
        FaultKind::DiskFailed { disk, .. } => (Code::DiskFailed, of(SubjectKind::Disk, disk)),
        FaultKind::ReadFailed { disk, .. } => (Code::ReadFailed, of(SubjectKind::Disk, disk)),
        FaultKind::VolumeNameTaken { id, volume, .. } => (Code::VolumeNameTaken, of_volume_here(id, volume)),
        FaultKind::BlocksLost { id, volume, .. } => (Code::BlocksLost, of_volume_here(id, volume)),
        FaultKind::ScrubUnrepaired { id, volume, .. } => (Code::ScrubUnrepaired, of_volume_here(id, volume)),
        FaultKind::ScrubOverdue { id, volume, .. } => (Code::ScrubOverdue, of_volume_here(id, volume)),
        FaultKind::CopiesMismatch { id, volume, .. } => {
            let volume = named(SubjectKind::Volume, volume, None);
            (Code::CopiesMismatch, Subject { id: Some(id.clone()), ..volume })
        }
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
