//! Refusals of the node's control.

use ::node::RecordError;
use ::node::control::{ChangeStatus, ControlError, JoinRefusal, WaitsFor, Zeroed};
use axum::http::StatusCode;

use super::{Refusal, cluster, store, with_causes};
use crate::http::jobs::id;

const NOT_FOUND: StatusCode = StatusCode::NOT_FOUND;
const CONFLICT: StatusCode = StatusCode::CONFLICT;
const UNPROCESSABLE: StatusCode = StatusCode::UNPROCESSABLE_ENTITY;

impl From<ControlError> for Refusal {
    fn from(error: ControlError) -> Refusal {
        use ControlError as E;
        match error {
            E::NotFound { kind, name } => {
                let refusal = Refusal::new(
                    NOT_FOUND,
                    format!("{kind}_not_found"),
                    format!("{kind} {name:?} not found"),
                );
                match kind {
                    "map" => refusal.hint("`ursa target show` lists the LUN maps of a target"),
                    kind => refusal.hint(format!("`ursa {kind} list` lists them")),
                }
            }
            E::Exists { kind, name } => {
                Refusal::new(CONFLICT, format!("{kind}_exists"), format!("{kind} {name:?} already exists"))
                    .hint("choose another name")
            }
            E::Name(error) => Refusal::new(UNPROCESSABLE, "name_invalid", error.to_string()),
            E::Invalid { field, reason } => Refusal::invalid(field_path(field), reason),
            E::Mapped { volume, target, lun } => {
                let detail = format!("volume {volume:?} is LUN {lun} of target {target}");
                Refusal::new(CONFLICT, "volume_mapped", detail)
                    .hint("delete the map first, or delete the volume with --force (`force` in the API)")
            }
            E::MappedInPool { pool, volume, target, lun } => {
                let detail = format!("volume {volume:?} of pool {pool:?} is LUN {lun} of target {target}");
                Refusal::new(CONFLICT, "volume_mapped", detail)
                    .hint(format!("delete the map first: `ursa map delete {target} {lun}`"))
            }
            E::HasLuns { target, luns } => {
                let detail = format!("target {target} has {luns} LUN maps");
                Refusal::new(CONFLICT, "target_has_maps", detail)
                    .hint("delete them first, or delete the target with --force (`force` in the API)")
            }
            E::HostInUse { host, target } => {
                let detail = format!("host group {host:?} is used by a LUN map of target {target}");
                Refusal::new(CONFLICT, "host_in_use", detail).hint("delete the map first")
            }
            E::BuiltIn(host) => {
                let detail = format!("host group {host:?} is built in and cannot be changed");
                Refusal::new(CONFLICT, "host_built_in", detail).hint("create a host group of your own")
            }
            E::EntryUnreadable { kind, name } => {
                let detail = format!(
                    "this node cannot read {kind} {name:?} in the cluster's record: a later version of ursa wrote it; it is left unchanged"
                );
                Refusal::new(CONFLICT, format!("{kind}_unreadable"), detail)
                    .hint("use a node of that version")
            }
            E::SetUpAlready => Refusal::new(CONFLICT, "set_up_already", error.to_string()),
            E::LastAdmin(_) => Refusal::new(CONFLICT, "last_admin", error.to_string()),
            E::TooMany { kind, .. } => Refusal::new(CONFLICT, format!("too_many_{kind}s"), error.to_string()),
            E::LunTaken { lun, target, host } => {
                let detail = format!("LUN {lun} of target {target} is already in use for host group {host:?}");
                Refusal::new(CONFLICT, "lun_taken", detail)
                    .hint("choose another LUN, or omit it")
                    .field("lun")
            }
            E::NoLunFree(_) => Refusal::new(CONFLICT, "target_full", error.to_string()),
            E::ChoosePool(pools) => {
                let detail = format!("several pools exist ({pools}), and none was given");
                Refusal::new(UNPROCESSABLE, "pool_ambiguous", detail).hint("choose one").field("pool")
            }
            E::NoPool => Refusal::new(CONFLICT, "no_pool", "no pool exists yet")
                .hint("create one with `ursa pool create`"),
            E::PoolOpen(name) => {
                Refusal::new(CONFLICT, "pool_open", format!("pool {name:?} is open and working"))
                    .hint("close it with `ursa pool export`")
            }
            E::PoolOfThatName(name) => {
                let detail = format!("another pool on this node has the name {name:?}; it is not open");
                Refusal::new(CONFLICT, "pool_exists", detail).hint(format!(
                    "choose another name, or reopen that pool (`ursa pool reopen {name}`) or forget it (`ursa pool forget {name}`)"
                ))
            }
            E::PoolHereAlready(name) => {
                let detail = format!(
                    "the disks hold pool {name:?}, which this node already has: they are an image of it, or other paths to its disks"
                );
                Refusal::new(CONFLICT, "pool_exists", detail).hint(format!(
                    "to use them instead, first export that pool (`ursa pool export {name}`) or, if it is not open, forget it (`ursa pool forget {name}`)"
                ))
            }
            E::OnlyInMemory { .. } => Refusal::new(CONFLICT, "only_in_memory", error.to_string()),
            E::PoolWorks(_) => Refusal::new(CONFLICT, "pool_works", error.to_string()),
            E::LuStateUnreadable(_) => {
                Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "volume_unavailable", error.to_string())
            }
            E::PoolClosed(..) | E::PoolOpening { .. } => {
                Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "pool_unavailable", with_causes(&error))
                    .hint("repair its disks and run `ursa pool reopen`. If the pool is lost: `ursa volume copy rebuild` rebuilds this node's copies in another pool, and `ursa pool forget` removes it")
            }
            E::Busy { work, first } => {
                let ChangeStatus { work: other, waits_for, .. } = *first;
                let detail = format!("{work} was not started: {other} comes first and waits for {waits_for}");
                Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail).hint(advice(&waits_for))
            }
            E::Unfinished(change) => {
                let ChangeStatus { number, node, work, age, waits_for, zeroed } = *change;
                let seconds = age.as_secs();
                let begin = format!("{work} has not finished within {seconds} seconds and continues");
                let detail = match zeroed.filter(|zeroed| zeroed.gets_on) {
                    Some(Zeroed { done, total, .. }) => {
                        format!("{begin}: {done} of {total} zeroed")
                    }
                    None => format!("{begin}: it waits for {waits_for}"),
                };
                let (id, advice) = (id::of_change(number, node), advice(&waits_for));
                let hint = format!("{advice}; `ursa job show {id}` shows the progress of this change");
                Refusal::new(StatusCode::GATEWAY_TIMEOUT, "unfinished", detail).hint(hint).job(id)
            }
            E::Core(_) => Refusal::new(StatusCode::GATEWAY_TIMEOUT, "core_silent", error.to_string()),
            E::WouldShrink { volume, from, to } => {
                let detail =
                    format!("volume {volume:?} has {from}: shrinking it to {to} would lose data");
                Refusal::new(UNPROCESSABLE, "would_shrink", detail).hint("volumes can only grow").field("size")
            }
            E::ClusterFailed(_) => {
                Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "cluster_unavailable", error.to_string())
                    .hint("`ursa status` on this node shows what to do; the node retries automatically, and serves volumes that have never had a copy on another node")
            }
            E::TakesPart(node) => {
                Refusal::new(CONFLICT, "takes_part", "this node is an active member of its cluster")
                    .hint(format!("to remove it, run `ursa node remove {node}` on another node"))
            }
            E::OnlyNode => Refusal::new(CONFLICT, "takes_part", error.to_string()),
            E::RecordBehind => {
                Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "record_behind", error.to_string())
                    .hint("repeat the command")
                    .retry_after(1)
            }
            E::NotListening => Refusal::new(CONFLICT, "not_listening", "no other node can join this one")
                .hint("`ursa node init` lets it listen for other nodes; `ursa node join` lets it join another one"),
            E::Enter(error) => cluster::not_entered(&error),
            E::Join(error) => cluster::not_joined(&error),
            E::Cluster(error) => cluster::refused(&error),
            E::Copies { .. } => Refusal::new(CONFLICT, "too_few_nodes", error.to_string())
                .hint("request fewer copies, or free up space on more nodes: see `ursa node list` and `ursa pool list --node all`"),
            E::NodeNotThere(node) => {
                let detail = format!("node {node} cannot take a copy");
                Refusal::new(CONFLICT, "node_unavailable", detail)
                    .hint(
                        "it is down, in maintenance, a witness, or not in the cluster: see `ursa node list`",
                    )
                    .field("nodes")
            }
            E::ClusterWorks => Refusal::new(CONFLICT, "cluster_works", error.to_string()),
            E::RecordInEtcd { .. } => Refusal::new(CONFLICT, "record_in_etcd", error.to_string()),
            E::JoinRefused { reason: JoinRefusal::Collides { .. }, .. } => {
                Refusal::new(CONFLICT, "join_collision", error.to_string())
                    .hint("nothing was changed: rename or change what is listed, on this node or in the cluster, and join with the same token")
            }
            E::JoinRefused { .. } => Refusal::new(CONFLICT, "join_refused", error.to_string()),
            E::NodeIsThere(_) => Refusal::new(CONFLICT, "node_is_up", error.to_string()),
            E::TooSmallToGrow(_) => {
                Refusal::new(UNPROCESSABLE, "too_small_to_grow", error.to_string()).field("size")
            }
            E::HasCopy { .. } => Refusal::new(CONFLICT, "copy_exists", error.to_string()).field("node"),
            E::HasNoCopy { .. } => Refusal::new(NOT_FOUND, "copy_not_found", error.to_string()),
            E::NothingOlder(_) => Refusal::new(CONFLICT, "nothing_older", error.to_string()),
            E::LifeUnknown => Refusal::new(CONFLICT, "life_unknown", error.to_string()),
            E::SliceUnopened { .. } => Refusal::new(CONFLICT, "slice_unopened", error.to_string()),
            E::OnlyOlder { .. } => Refusal::new(CONFLICT, "copy_set_back", error.to_string()),
            E::OldCopy { .. } => Refusal::new(CONFLICT, "copy_old", error.to_string()),
            E::InSeveralPools { .. } => {
                Refusal::new(CONFLICT, "volume_in_several_pools", error.to_string())
            }
            E::FourCopies(_) => Refusal::new(CONFLICT, "copies_full", error.to_string()),
            E::OnlyInSync { .. } => Refusal::new(CONFLICT, "only_in_sync", error.to_string()),
            E::NothingToPause { .. } => Refusal::new(CONFLICT, "job_not_pausable", error.to_string()),
            E::CopyInSync { .. } => Refusal::new(CONFLICT, "copy_in_sync", error.to_string()),
            E::ElsewhereOnly { .. } => {
                Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "copy_unreachable", error.to_string())
            }
            E::NoSnapshotsOfKind(volume) => {
                let detail = format!("volume {volume:?} is not a log volume, and only these have snapshots");
                Refusal::new(CONFLICT, "snapshot_volume_kind", detail)
                    .hint(format!("convert it first: `ursa volume convert {volume} --kind log`"))
                    .field("volumes")
            }
            E::SnapshotNotTaken { .. } => {
                Refusal::new(CONFLICT, "snapshot_not_taken", error.to_string()).field("volumes")
            }
            E::SnapshotTooSlow { .. } => {
                Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "snapshot_too_slow", error.to_string())
            }
            E::SnapshotHeld(name) => {
                Refusal::new(CONFLICT, "snapshot_held", format!("snapshot {name:?} is on hold"))
                    .hint(format!("release it first: `ursa snapshot release {name}`"))
            }
            E::SnapshotPreparing(name) => {
                Refusal::new(CONFLICT, "snapshot_preparing", format!("snapshot {name:?} is being taken"))
                    .hint("try again in a moment")
            }
            E::HasSnapshots { volume, count } => {
                Refusal::new(CONFLICT, "volume_has_snapshots", format!("volume {volume:?} has {count} snapshots"))
                    .hint(format!("delete them first: `ursa snapshot list {volume}` lists them"))
            }
            E::OnlyCopyOfSnapshot { .. } => {
                Refusal::new(CONFLICT, "only_copy_of_snapshot", error.to_string())
            }
            E::NotScrubbable { .. } => Refusal::new(CONFLICT, "not_scrubbable", error.to_string()),
            E::NotReplicated(_) => Refusal::new(CONFLICT, "not_replicated", error.to_string()),
            E::NotOfTwo { .. } => Refusal::new(CONFLICT, "not_of_two", error.to_string()),
            E::NoFork(_) => Refusal::new(CONFLICT, "no_fork", error.to_string()),
            E::NotSplitYet { .. } => Refusal::new(CONFLICT, "not_split_yet", error.to_string()),
            E::SplitAmongMore { .. } => Refusal::new(CONFLICT, "split_among_more", error.to_string()),
            E::ForkUnwell { .. } => Refusal::new(CONFLICT, "fork_unwell", error.to_string()),
            E::Forked(_) => Refusal::new(CONFLICT, "forked", error.to_string()),
            E::NoAuthority => {
                let detail = "no node of the cluster is known to hold the cluster CA key";
                Refusal::new(CONFLICT, "no_authority", detail).hint(
                    "the key is on the node that created the cluster (`cluster/CLUSTER-NODE` in its data directory): run the command there, or see *When the majority is lost for good* in docs/use/cluster.md",
                )
            }
            E::TooMuchToMerge => Refusal::new(CONFLICT, "too_much_to_merge", error.to_string()),
            E::ChangedWhileJoining => Refusal::new(CONFLICT, "changed_meanwhile", error.to_string()),
            E::NodeHasCopies { node, volume } => {
                let detail = format!("node {node} has a copy of volume {volume:?}");
                let hint = format!(
                    "move the copy (`ursa volume copy move {volume} --from {node} --to OTHER`) or remove it (`ursa volume copy remove {volume} --on {node}`); the volume stays"
                );
                Refusal::new(CONFLICT, "node_has_copies", detail).hint(hint)
            }
            E::NodeNeeded(_) => Refusal::new(CONFLICT, "node_needed", error.to_string()),
            E::Internal(_) => Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", error.to_string()),
            E::Listen(..) => Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "listen", with_causes(&error)),
            E::Store(error) => store::refusal(&error),
            E::Record(error) => {
                let (status, code) = match error {
                    RecordError::Full(_) => (StatusCode::INSUFFICIENT_STORAGE, "record_full"),
                    RecordError::Latched => (StatusCode::SERVICE_UNAVAILABLE, "record_read_only"),
                    _ => (StatusCode::INTERNAL_SERVER_ERROR, "record_failed"),
                };
                Refusal::new(status, code, with_causes(&error))
            }
        }
    }
}

/// The hint about a change that does not finish.
fn advice(waits_for: &WaitsFor) -> &'static str {
    match waits_for {
        WaitsFor::Disks(_) | WaitsFor::Commands(_) | WaitsFor::Record(_) => {
            "check the disk (`dmesg`): the change finishes when the disk responds; a block device that never does can be removed \
             with `echo 1 > /sys/block/NAME/device/delete`; `ursa status` shows changes in progress"
        }
        WaitsFor::ClusterRecord | WaitsFor::Nodes(_) => {
            "`ursa node list` shows which nodes are up; `ursa status` shows changes in progress"
        }
        WaitsFor::Turn(_) | WaitsFor::Cores => {
            "try again in a moment; `ursa status` shows changes in progress"
        }
    }
}

/// The name in requests of a field in the control's types.
fn field_path(field: &'static str) -> &'static str {
    match field {
        "chap secret" => "chap.secret",
        "chap user" => "chap.user",
        field => field,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_pool_leads_to_what_rebuilds_its_copies() {
        let refusal = Refusal::from(ControlError::PoolClosed("fast".into(), "no such file".into()));
        let hint = refusal.problem.hint.expect("there is something to do");
        assert!(hint.contains("`ursa volume copy rebuild` rebuilds this node's copies"), "{hint}");
    }
}
