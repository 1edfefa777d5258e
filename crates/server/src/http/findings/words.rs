//! The texts of all findings.

use std::fmt::Display;
use std::io;

use ::node::control::{FaultKind, Stall, UnreadBlock};
use ::node::{RecordDamage, RecordFault, RecordMissing};
use api::{ClusterNode, Finding, Missing, Overcommit, Pool, SubjectKind, Volume};
use base::ByteLen;
use terms::clock::utc;

use super::identity::{code_and_subject, severity};
use super::judge::{Copy, Found, Resync, What};
use super::own::{OwnFault, Report};
use crate::http::volumes::health::Unserved;

/// A cause and an action as sentences, the action without a period; and a command.
struct Words {
    cause: String,
    action: String,
    command: String,
}

/// The log of the node, if no other command helps.
const LOG: &str = "journalctl -u ursa";
const NODES: &str = "ursa node list";
const LINKS: &str = "ursa node links";
const CHECK_NETWORK: &str =
    "Check the network between the two nodes (cables, switches, firewalls, port 3270)";

/// A finding with its text. `nodes`: the nodes of the cluster.
pub(super) fn told(found: &Found<'_>, nodes: &[ClusterNode]) -> Finding {
    let Found { what, since } = found;
    let (code, mut subject) = code_and_subject(what);
    if let (SubjectKind::Node, None, Some(id)) = (subject.kind, &subject.name, subject.node) {
        // A node that reports another one knows only its number.
        subject.name = nodes.iter().find(|node| node.id == id).map(|node| node.name.clone());
    }
    let Words { cause, action, command } = words(what, nodes);
    Finding {
        code,
        severity: severity(what),
        subject,
        since: *since,
        cause,
        action: (!what.ends_automatically()).then_some(action),
        command,
        seen_by: match what {
            What::Own(reports) => reports.iter().map(|report| report.node).collect(),
            _ => Vec::new(),
        },
    }
}

fn words(what: &What<'_>, nodes: &[ClusterNode]) -> Words {
    match what {
        What::SplitBrain(Volume { name, .. }) => Words {
            cause: format!("Split brain on volume {name}: two nodes each have writes that the other lacks."),
            action: "Back up what you need, then choose which side to keep".into(),
            command: format!("ursa volume resolve-split-brain {name} --keep NODE --discard-other"),
        },
        What::Unserved { volume, why } => of_unserved(volume, *why),
        What::ContinuedAlone { volume, node } => Words {
            cause: format!("Node {node} continues alone with volume {}.", volume.name),
            action: "Bring back the other node, or restore the link to it".into(),
            command: NODES.into(),
        },
        What::Resync { how, copies } => of_resync(*how, copies),
        What::NodeDown(node) => Words {
            cause: format!("{} is down: heartbeat timeout.", capital(&node_of(node))),
            action: format!(
                "Check that the server is running, and start Ursa there ({}). Its copies then resync automatically",
                node.name
            ),
            command: "systemctl start ursa".into(),
        },
        What::NodeMaintenance(node) => {
            let (state, action) = match node.up {
                true => ("in maintenance: its copies are out of sync", "End maintenance when the work is done"),
                false => (
                    "in maintenance and stopped",
                    "Start Ursa there when the work is done, then end maintenance",
                ),
            };
            Words {
                cause: format!("{} is {state}.", capital(&node_of(node))),
                action: action.into(),
                command: format!("ursa node maintenance {} off", node.id),
            }
        }
        What::NodeCutOff(node) => {
            let here = nodes.iter().find(|node| node.here).map(node_of);
            of_cut_off(node.id, &here.unwrap_or("this node".into()), &node.reached_by, nodes)
        }
        What::NodeSilent { missing, reports_state } => of_silent(missing, *reports_state),
        What::NoQuorum { up, voters } => Words {
            cause: format!(
                "No quorum ({up} of {voters} voters up): nothing can be changed, and no further node can be declared lost."
            ),
            action: "Bring back the nodes that are down".into(),
            command: NODES.into(),
        },
        What::RecordSilent if nodes.len() == 1 => Words {
            cause: "The node's copy of the cluster's record does not respond: nothing can be changed.".into(),
            action: "Check the disk of its data directory (dmesg)".into(),
            command: LOG.into(),
        },
        What::RecordSilent => Words {
            cause: "The cluster's record is unavailable: nothing can be changed, and no node can be declared lost.".into(),
            action: "Bring back the nodes that are down".into(),
            command: NODES.into(),
        },
        What::NoWitness { stopped } => Words {
            cause: of_no_witness(stopped, nodes),
            action: "Add a third node; a small machine as a witness is enough".into(),
            command: "ursa node token".into(),
        },
        What::DiskFailed { pool, can_rebuild } => {
            let rebuild = rebuild(pool, *can_rebuild);
            Words {
                cause: format!("A disk of pool {} has failed{}.", pool_of(pool), reason(pool)),
                action: format!(
                    "Check the disk (dmesg){rebuild}; when it works again or is replaced, reopen the pool"
                ),
                command: format!("ursa pool reopen {}{}", pool.name, at(pool.node)),
            }
        }
        What::PoolClosed { pool, can_rebuild } => Words {
            cause: format!("Pool {} is unavailable{}.", pool_of(pool), reason(pool)),
            action: format!("Bring its disks back{}, then reopen it", rebuild(pool, *can_rebuild)),
            command: format!("ursa pool reopen {}{}", pool.name, at(pool.node)),
        },
        What::PoolReadOnly(pool) => of_read_only(&pool.name, &pool_of(pool), pool.node),
        What::PoolOvercommitted { pool, overcommit: Overcommit { promised, free } } => Words {
            cause: format!(
                "Pool {} is overcommitted: its file system has {} free, and pools on it may still need {}. When it is full, writes that need new space fail.",
                pool_of(pool),
                ByteLen(*free),
                ByteLen(*promised)
            ),
            action: "Free space on that file system, or enlarge it".into(),
            command: format!("ursa pool show {}{}", pool.name, at(pool.node)),
        },
        What::PoolNearlyFull(pool) => Words {
            cause: format!("Pool {} is nearly full: new volumes may not fit.", pool_of(pool)),
            action: "Add a disk to it; existing volumes are not affected".into(),
            command: format!("ursa pool add-disk {} DISK{}", pool.name, at(pool.node)),
        },
        What::PoolFilling { pool, logs, .. } => Words {
            cause: format!(
                "Pool {} is {} % full: its log volumes can take {} more. When it is full, writes to log volumes fail.{}",
                pool_of(pool),
                logs.percent,
                ByteLen(logs.room),
                match logs.snapshots {
                    0 => String::new(),
                    bytes => format!(" Snapshots hold {} of it.", ByteLen(bytes)),
                }
            ),
            action: match logs.snapshots {
                0 => "Unmap (fstrim), delete volumes, or add a disk".into(),
                _ => "Unmap (fstrim), delete snapshots or volumes, or add a disk".into(),
            },
            command: format!("ursa pool add-disk {} DISK{}", pool.name, at(pool.node)),
        },
        What::SnapshotSpace { pool, logs } => Words {
            cause: format!(
                "Snapshots hold {} of pool {}, which has {}.",
                ByteLen(logs.snapshots),
                pool_of(pool),
                ByteLen(pool.total)
            ),
            action: "Delete snapshots that are not needed, or keep fewer by schedule (`ursa snapshot schedule change`). FREES shows what deleting each one frees".into(),
            command: "ursa snapshot list".into(),
        },
        What::Own(reports) => of_reports(reports, nodes),
    }
}

fn of_unserved(volume: &Volume, why: Unserved<'_>) -> Words {
    let name = &volume.name;
    let (cause, action) = match why {
        Unserved::Problem(problem) => (
            format!("Volume {name} is unavailable: {problem}"),
            "Show the volume to see what it is waiting for",
        ),
        Unserved::NotReached => (
            format!(
                "Volume {name} is unavailable, as seen from this node: no node with a copy in sync responds."
            ),
            "Bring back a node that has a copy in sync, or restore the network to it",
        ),
        Unserved::NoneInSync => (
            format!("Volume {name} is unavailable: none of its copies is in sync."),
            "Bring back the node that had the last copy in sync",
        ),
    };
    Words { cause, action: action.into(), command: format!("ursa volume show {name}") }
}

/// One copy by name, and the number of further ones.
fn of_resync(how: Resync, copies: &[Copy<'_>]) -> Words {
    let (volume, copy) = copies[0];
    let (name, sync) = (&volume.name, copy.sync.as_ref());
    let one = format!("The copy of {name} on node {} is out of sync", copy.node);
    let more = |are: &str| match copies.len() - 1 {
        0 => String::new(),
        more => format!(" {more} more {are}."),
    };
    let show = format!("ursa volume show {name}");
    match how {
        Resync::Paused => {
            let by = sync.and_then(|sync| sync.paused.as_ref()).map_or("-", |paused| &paused.by);
            Words {
                cause: format!(
                    "The resync of {name} on node {} was paused by {}: the volume has reduced redundancy until it completes.{}",
                    copy.node,
                    by.escape_debug(),
                    more("are paused")
                ),
                action: "Resume it as soon as the load allows".into(),
                command: format!("ursa job resume copy.{}.{}", volume.id, copy.node),
            }
        }
        Resync::Waiting => {
            let what = sync.and_then(|sync| sync.waits_for.as_deref()).unwrap_or_default();
            Words {
                cause: format!("{one} and waits for {what}.{}", more("are waiting")),
                action: "If the wait does not end, check what it is waiting for".into(),
                command: show,
            }
        }
        Resync::Running => Words {
            cause: match copies.len() {
                1 => format!("{one} and resyncing{}.", percent(copies)),
                many => format!("{many} copies are out of sync and resyncing{}.", percent(copies)),
            },
            action: String::new(),
            command: show,
        },
        Resync::Unknown => Words {
            cause: match copies.len() {
                1 => format!("{one}, progress unknown."),
                many => format!("{many} copies are out of sync, progress unknown."),
            },
            action: String::new(),
            command: show,
        },
    }
}

/// The progress of these resyncs, as ` (70 %)`; empty while the total is not known.
fn percent(copies: &[Copy<'_>]) -> String {
    let syncs = || copies.iter().filter_map(|(_, copy)| copy.sync.as_ref());
    let total: u64 = syncs().map(|sync| sync.total_bytes).sum();
    let left: u64 = syncs().map(|sync| sync.left_bytes).sum();
    match total {
        0 => String::new(),
        _ => format!(" ({} %)", u128::from(total.saturating_sub(left)) * 100 / u128::from(total)),
    }
}

/// `by`: the node that does not reach it; `reached_by`: the nodes that do.
fn of_cut_off(node: u16, by: &str, reached_by: &[u16], nodes: &[ClusterNode]) -> Words {
    let reach = match reached_by {
        [] => String::new(),
        [_] => format!("; {} reaches it", listed(reached_by, nodes)),
        _ => format!("; {} reach it", listed(reached_by, nodes)),
    };
    Words {
        cause: format!("{} is cut off from {by} on every link{reach}.", capital(&node_named(node, nodes))),
        action: CHECK_NETWORK.into(),
        command: LINKS.into(),
    }
}

fn of_silent(missing: &Missing, reports_state: bool) -> Words {
    let Missing { node, node_name, reason } = missing;
    let what = if reports_state { "all of its pools and volumes" } else { "its health" };
    Words {
        cause: format!("{} is not reporting {what}: {reason}.", capital(&node_words(*node, node_name))),
        action: format!("Its state is unknown: log in to {node_name} and run this there"),
        command: "ursa status".into(),
    }
}

fn of_read_only(name: &str, pool: &str, node: u16) -> Words {
    Words {
        cause: format!("Pool {pool} is read-only: a metadata write failed. Volume I/O continues."),
        action: "Check its disks (dmesg), then reopen it".into(),
        command: format!("ursa pool reopen {name}{}", at(node)),
    }
}

fn whose(report: &Report) -> String {
    node_words(report.node, &report.node_name)
}

fn of_reports(reports: &[&Report], nodes: &[ClusterNode]) -> Words {
    let report = reports[0];
    let who = capital(&whose(report));
    match &report.fault {
        OwnFault::Node(kind) => of_fault(kind, reports, nodes),
        OwnFault::AuditUnavailable { directory, error } => Words {
            cause: format!(
                "{who} cannot write the audit log in {}: {error}. Changes by the API are refused until it can.",
                directory.display()
            ),
            action: "Check that directory and its disk (df, dmesg, ls -ld)".into(),
            command: LOG.into(),
        },
        OwnFault::CertificateUnavailable { error } => Words {
            cause: format!("{who}: the API does not answer other machines: {error}."),
            action: "Repair the certificate, then restart the node".into(),
            command: "systemctl restart ursa".into(),
        },
        OwnFault::ChangeStuck { work, waits_for } => Words {
            cause: format!("{who}: {work} has not finished: it waits for {waits_for}."),
            action: "Fix what it waits for; it then continues automatically".into(),
            command: LOG.into(),
        },
        OwnFault::PoolFullSoon { pool, forecast } => Words {
            cause: format!("Pool {pool} on {} is filling up. {}", whose(report), forecast.text()),
            action: "Add a disk to it, or delete volumes that are not needed".into(),
            command: format!("ursa pool add-disk {pool} DISK{}", at(report.node)),
        },
    }
}

fn of_no_witness(stopped: &[&Volume], nodes: &[ClusterNode]) -> String {
    let preferred = nodes.iter().find(|node| node.votes).map(|node| format!(", {},", node_of(node)));
    let failed =
        format!("Two nodes without a witness: if the preferred node{} fails,", preferred.unwrap_or_default());
    let names: Vec<String> = stopped.iter().map(|volume| volume.name.clone()).collect();
    match names.is_empty() {
        true => format!(
            "{failed} a volume with copies on both becomes unavailable, unless its split-brain policy is `heartbeat`."
        ),
        false => format!("{failed} these volumes become unavailable: {}.", shortened(&names)),
    }
}

fn of_fault(kind: &FaultKind, reports: &[&Report], nodes: &[ClusterNode]) -> Words {
    let report = reports[0];
    let (it, node) = (whose(report), report.node);
    let who = capital(&it);
    let on = format!(" on {it}");
    match kind {
        FaultKind::RecordFault(fault) => of_record_fault(&who, fault),
        FaultKind::RecordLatched => Words {
            cause: format!("{who} accepts no changes: its own record could not be written. It tries again every few seconds."),
            action: "Check the disk and the free space of its data directory".into(),
            command: LOG.into(),
        },
        FaultKind::RecordEntriesUnreadable { keys } => Words {
            cause: format!(
                "{who} cannot read entries of the cluster's record that a later version of Ursa wrote ({}): it uses their previous content and does not change them. If the entry of a volume's copies is among them, only the other nodes serve that volume.",
                shortened(keys)
            ),
            action: "Update Ursa there".into(),
            command: NODES.into(),
        },
        FaultKind::RecordLost { trouble } => Words {
            cause: format!(
                "{}: etcd, which holds the cluster's record, cannot be used ({trouble}). Volumes keep running with the copies that are in sync, but nothing can be changed, a lost node cannot be excluded, and a node that starts cannot serve volumes with copies.",
                capital(&reports.iter().map(|report| whose(report)).collect::<Vec<_>>().join(", "))
            ),
            action: "Bring etcd back, or correct the `etcd` setting".into(),
            command: LOG.into(),
        },
        FaultKind::RecordStalled { stall, data_dir } => Words {
            cause: format!(
                "{who} cannot update its copy of the cluster's record{}. {}.",
                Stall::of_code(*stall).map(|stall| format!(": {stall}")).unwrap_or_default(),
                match nodes {
                    [_] => "Nothing can be changed",
                    _ => "Its vote is missing, and it does not see changes",
                }
            ),
            action: match Stall::of_code(*stall) {
                Some(Stall::Unreadable) => "Update Ursa there".into(),
                _ => format!(
                    "Check the disk and the free space of {}; the node then recovers automatically",
                    data_dir.display()
                ),
            },
            command: NODES.into(),
        },
        FaultKind::LoginsRefused => Words {
            cause: format!("{who} refuses new logins: its access rules may be outdated. Hosts use their other paths."),
            action: "Correct what keeps it from updating its copy of the cluster's record".into(),
            command: NODES.into(),
        },
        FaultKind::RemovedFromCluster => of_removed(format!(
            "{who} was removed from the cluster: the other nodes refuse it. It serves only volumes that have never had a copy on another node."
        )),
        FaultKind::LeftBehind => of_removed(format!(
            "{who} was left behind: a surviving node was forced into a new cluster, which refuses it. It serves only volumes that have never had a copy on another node."
        )),
        FaultKind::ClusterFailed { why, retry_seconds } => Words {
            cause: format!(
                "{who} does not take part in its cluster: {why}. It serves only volumes that have never had a copy on another node; its other copies are closed, and the cluster cannot be changed from there. It tries again every {retry_seconds} seconds."
            ),
            action: "Repair the cause; if it cannot be repaired, `ursa node leave --forget` lets the node leave its cluster for a new one of its own, from which it can join again".into(),
            command: LOG.into(),
        },
        FaultKind::NodeSetBack { seen_start } => Words {
            cause: format!(
                "{who} was set back to an earlier state, or runs twice: the cluster has already seen its start {seen_start}. It does not take part in the cluster."
            ),
            action: "Make sure that no second machine runs with a copy of its data directory, then restart it; older copies are resynced in full".into(),
            command: "systemctl restart ursa".into(),
        },
        FaultKind::RecordSetBack => Words {
            cause: format!(
                "{who} was set back to an earlier state: it has lost changes of the cluster's record that it had confirmed, so it no longer votes and does not take part in the cluster."
            ),
            action: "Remove it from the cluster on another node, and let it join again".into(),
            command: format!("ursa node remove {node}"),
        },
        FaultKind::LinkAddressMissing { address, errno } => Words {
            cause: format!(
                "{who} cannot listen for other nodes at {address} ({}). Its other addresses work.",
                io::Error::from_raw_os_error(*errno)
            ),
            action: "Bring up the interface with this address; the node keeps trying".into(),
            command: LINKS.into(),
        },
        FaultKind::NodeCutOff { node, heard: true, .. } => Words {
            cause: format!(
                "{who} has no replication link to {}, which is up: a volume with copies on both can have only one of them in sync.",
                node_named(*node, nodes)
            ),
            action: CHECK_NETWORK.into(),
            command: LINKS.into(),
        },
        FaultKind::NodeCutOff { node, reached_by, .. } => of_cut_off(*node, &it, reached_by, nodes),
        FaultKind::FloatingIpLost { address, holders_up } => Words {
            cause: format!(
                "No node holds floating IP {address}, and hosts that use it have lost their disks: {}.",
                match holders_up {
                    true => "nodes that may hold it are up, but none has it on a network device",
                    false => "no node that may hold it is up and out of maintenance",
                }
            ),
            action: "See which nodes cannot hold it, and why".into(),
            command: "ursa floating-ip list".into(),
        },
        FaultKind::PoolClosed { pool, why } => Words {
            cause: format!("Pool {pool}{on} is unavailable: {why}."),
            action: "Bring its disks back, then reopen it".into(),
            command: format!("ursa pool reopen {pool}{}", at(node)),
        },
        FaultKind::PoolReadOnly { pool } => of_read_only(pool, &format!("{pool}{on}"), node),
        FaultKind::PoolSetBack { pool, disks, resynced, stuck } => {
            of_set_back((pool, &on, disks), *resynced, stuck, &at(node))
        }
        FaultKind::DiskFailed { pool, disk, errno } => Words {
            cause: format!(
                "Disk {disk} of pool {pool}{on} has failed: {}.",
                io::Error::from_raw_os_error(*errno)
            ),
            action: "Check the disk (dmesg); when it works again or is replaced, reopen the pool".into(),
            command: format!("ursa pool reopen {pool}{}", at(node)),
        },
        FaultKind::ReadFailed { pool, disk, blocks, more, bad, first } => {
            let state = match first {
                None => "all were repaired from another copy and can be read".to_owned(),
                Some(UnreadBlock { volume, lba, snapshot: Some(snapshot) }) => format!(
                    "{bad} still cannot be read, first LBA {lba} of volume {volume} in snapshot {snapshot}; a scrub repairs it if another copy in sync has that snapshot"
                ),
                Some(UnreadBlock { volume, lba, snapshot: None }) => format!(
                    "{bad} still cannot be read, first LBA {lba} of volume {volume}; if no other copy of it is in sync, a host repairs it by writing the whole block"
                ),
            };
            Words {
                cause: format!(
                    "Disk {disk} of pool {pool}{on} failed to read {}{blocks} {}: {state}.",
                    if *more { "more than " } else { "" },
                    if *blocks == 1 { "block" } else { "blocks" }
                ),
                action: "Check the disk (smartctl, dmesg), and replace it if errors continue; then acknowledge the read errors".into(),
                command: format!("ursa pool acknowledge {pool}{}", at(node)),
            }
        }
        FaultKind::VolumeNameTaken { pool, id, volume } => Words {
            cause: format!(
                "Pool {pool}{on} has a volume {volume}, and the cluster has another volume with that name: the other nodes do not know this one, and it cannot get copies."
            ),
            action: "Rename it on that node".into(),
            command: format!("ursa volume rename {id} NEW-NAME"),
        },
        FaultKind::CopiesMismatch { volume, bytes, nodes, .. } => Words {
            cause: format!(
                "Mismatch: copies of volume {volume} differ in {} (nodes {}).",
                ByteLen(*bytes),
                joined(nodes)
            ),
            action: "See where they differ, then rebuild the wrong copy (`ursa volume copy rebuild`); the finding clears when a full verify finds no mismatch".into(),
            command: format!("ursa volume verify {volume}"),
        },
        FaultKind::SnapshotScheduleMissed { schedule, due, obstacle } => Words {
            cause: match obstacle {
                Some(why) => format!(
                    "Schedule {schedule} could not take the snapshot that was due at {}: {why}.",
                    utc(*due)
                ),
                None => format!(
                    "Schedule {schedule} has not taken the snapshot that was due at {}: no node has tried.",
                    utc(*due)
                ),
            },
            action: "Fix the cause; a snapshot is then taken automatically. Pause the schedule if it is not needed for now (`ursa snapshot schedule pause`)".into(),
            command: format!("ursa snapshot schedule show {schedule}"),
        },
        FaultKind::SnapshotsOld { count, oldest, at } => Words {
            cause: match count {
                1 => format!(
                    "Snapshot {oldest} was taken on {} and never expires: it may have been forgotten.",
                    utc(*at)
                ),
                _ => format!(
                    "{count} snapshots are older than 30 days and never expire: they may have been forgotten. The oldest is {oldest}, taken on {}.",
                    utc(*at)
                ),
            },
            action: "Delete what is no longer needed. For others, set how long they are kept (`ursa snapshot change SNAPSHOT --expires 90d`), or put them on hold (`ursa snapshot hold`)".into(),
            command: "ursa snapshot list".into(),
        },
        FaultKind::RestoreUnfinished { volume, .. } => Words {
            cause: format!(
                "Hosts of volume {volume} are stopped: it is being restored to a snapshot, and a copy in sync does not respond or cannot be restored."
            ),
            action: "Check the nodes and pools with copies in sync, and bring back what is down (`ursa pool reopen`); the restore then continues automatically".into(),
            command: format!("ursa volume show {volume}"),
        },
        FaultKind::ScrubUnrepaired { volume, blocks, lba, of_snapshots, .. } => Words {
            cause: format!(
                "The last scrub of volume {volume}{on} found {blocks} bad {} that could not be repaired from another copy, first LBA {lba}{}.",
                if *blocks == 1 { "block" } else { "blocks" },
                match of_snapshots {
                    0 => String::new(),
                    some => format!("; {some} in snapshots only"),
                },
            ),
            action: if of_snapshots == blocks {
                "Check the disk. The volume itself is not affected, but after a restore to such a snapshot these blocks cannot be read: keep another backup. The finding clears when a scrub finds no such block, because another copy in sync has the snapshot, or because the snapshot was deleted"
            } else {
                "Check the disk, and restore the data of these blocks from a backup: writing a block repairs it. Then scrub the volume again; the finding clears when a scrub finds no such block"
            }
            .into(),
            command: format!("ursa volume scrub {volume}{}", at(node)),
        },
        FaultKind::ScrubOverdue { volume, seconds, .. } => Words {
            cause: format!(
                "Volume {volume}{on} has not been scrubbed for {} days: bad blocks there may have gone unnoticed.",
                seconds / 86_400
            ),
            action: "Check that the copy is in sync and its pool is open; the scrub then runs automatically. Or start it now".into(),
            command: format!("ursa volume scrub {volume}{}", at(node)),
        },
        FaultKind::BlocksLost { volume, blocks, lba, .. } => Words {
            cause: format!(
                "The copy of volume {volume}{on} lacks {blocks} {}, first LBA {lba}: no copy in sync could read {} when it resynced.",
                if *blocks == 1 { "block" } else { "blocks" },
                if *blocks == 1 { "it" } else { "them" },
            ),
            action: "Keep the copy on the disk that failed to read: Ursa retries the reads about once a minute. If the disk can no longer read the blocks, restore them from a backup; the finding clears when hosts have overwritten them".into(),
            command: format!("ursa volume show {volume}"),
        },
    }
}

fn of_record_fault(who: &str, fault: &RecordFault) -> Words {
    let RecordFault { path, slot, damage, missing, used } = fault;
    let path = path.display();
    let damage = match damage {
        RecordDamage::Content => format!("copy {slot} of its own record {path} is damaged"),
        RecordDamage::Unreadable { errno } => {
            let error = io::Error::from_raw_os_error(*errno);
            format!("copy {slot} of its own record {path} cannot be read ({error})")
        }
    };
    let (missing, action) = match missing {
        RecordMissing::Nothing => ("Nothing is missing.".to_owned(), "Check the disk"),
        RecordMissing::Perhaps => (
            "If the newer copy is the lost one, the last change of pools, targets, LUN maps or hosts is missing.".to_owned(),
            "Check the disk, and whether the last change is missing",
        ),
        RecordMissing::Change(lost) => (
            format!("Change {lost} of pools, targets, LUN maps or hosts is lost."),
            "Check the disk, and repeat the change",
        ),
    };
    Words {
        cause: format!("{who}: {damage}; the other copy, change {used}, is used. {missing}"),
        action: action.into(),
        command: LOG.into(),
    }
}

fn of_removed(cause: String) -> Words {
    let action = "To let it join the cluster again, run this there, then restart it".into();
    Words { cause, action, command: "ursa node leave --forget".into() }
}

fn of_set_back((pool, on, disks): (&str, &str, &str), resynced: usize, stuck: &[String], at: &str) -> Words {
    let mut cause =
        format!("Pool {pool} ({disks}){on} was set back: it holds an older state than when it was last used");
    if resynced > 0 {
        cause.push_str(&format!("; {resynced} of its copies are resynced in full"));
    }
    if stuck.is_empty() {
        return Words {
            cause: cause + ".",
            action: "Find out who restored or reverted its disks".into(),
            command: format!("ursa pool show {pool}{at}"),
        };
    }
    let stuck = stuck.join(", ");
    Words {
        cause: format!(
            "{cause}; volume {stuck} has no other copy in sync that is up, so it is unavailable."
        ),
        action: "Bring back the node with the other copy, or put the newer disks back and restart the node, or accept the older data".into(),
        command: format!("ursa pool accept-older {pool}{at}"),
    }
}

/// `default on node 2 (san2)`.
fn pool_of(pool: &Pool) -> String {
    format!("{} on {}", pool.name, node_words(pool.node, &pool.node_name))
}

fn reason(pool: &Pool) -> String {
    pool.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default()
}

fn rebuild(pool: &Pool, can_rebuild: bool) -> String {
    match can_rebuild {
        true => format!(
            " (if it is lost, rebuild its copies in another pool there: `ursa volume copy rebuild VOLUME --on {}`)",
            pool.node
        ),
        false => String::new(),
    }
}

/// The option that names a node in a command.
fn at(node: u16) -> String {
    format!(" --node {node}")
}

fn node_words(id: u16, name: &str) -> String {
    if name.is_empty() { format!("node {id}") } else { format!("node {id} ({name})") }
}

fn node_of(node: &ClusterNode) -> String {
    node_words(node.id, &node.name)
}

fn node_named(id: u16, nodes: &[ClusterNode]) -> String {
    nodes.iter().find(|node| node.id == id).map_or_else(|| node_words(id, ""), node_of)
}

fn listed(ids: &[u16], nodes: &[ClusterNode]) -> String {
    joined(ids.iter().map(|id| node_named(*id, nodes)))
}

/// The first of these, and how many more there are.
fn shortened(keys: &[String]) -> String {
    const SHOWN: usize = 5;
    match keys.len().saturating_sub(SHOWN) {
        0 => keys.join(", "),
        more => format!("{} and {more} more", keys[..SHOWN].join(", ")),
    }
}

fn joined<T: Display>(all: impl IntoIterator<Item = T>) -> String {
    all.into_iter().map(|one| one.to_string()).collect::<Vec<_>>().join(", ")
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_ascii_uppercase().to_string() + letters.as_str())
}
