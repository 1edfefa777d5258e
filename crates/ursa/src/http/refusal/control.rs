//! What the node's control refuses.

use ::node::RecordError;
use ::node::control::{ChangeStatus, ControlError, WaitsFor, Zeroed};
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
                    format!("there is no {kind} {name:?}"),
                );
                match kind {
                    "map" => refusal.hint("`ursa target show` lists a target's maps"),
                    kind => refusal.hint(format!("`ursa {kind} list` shows those that exist")),
                }
            }
            E::Exists { kind, name } => {
                Refusal::new(CONFLICT, format!("{kind}_exists"), format!("{kind} {name:?} exists already"))
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
                let detail = format!("host {host:?} is named by a LUN map of target {target}");
                Refusal::new(CONFLICT, "host_in_use", detail).hint("take the map away first")
            }
            E::BuiltIn(host) => {
                let detail = format!("host {host:?} is built in and cannot be changed");
                Refusal::new(CONFLICT, "host_built_in", detail).hint("make a host of your own")
            }
            E::EntryUnreadable { kind, name } => {
                let detail = format!(
                    "this node cannot read what the cluster's record has of {kind} {name:?}, since a later version of ursa has written it, and leaves it as it is"
                );
                Refusal::new(CONFLICT, format!("{kind}_unreadable"), detail)
                    .hint("ask a node of that version")
            }
            E::SetUpAlready => Refusal::new(CONFLICT, "set_up_already", error.to_string()),
            E::LastAdmin(_) => Refusal::new(CONFLICT, "last_admin", error.to_string()),
            E::TooMany { kind, .. } => Refusal::new(CONFLICT, format!("too_many_{kind}s"), error.to_string()),
            E::LunTaken { lun, target, host } => {
                let detail = format!("LUN {lun} of target {target} is taken for host {host:?}");
                Refusal::new(CONFLICT, "lun_taken", detail)
                    .hint("choose another LUN, or name none")
                    .field("lun")
            }
            E::NoLunFree(_) => Refusal::new(CONFLICT, "target_full", error.to_string()),
            E::ChoosePool(pools) => {
                let detail = format!("there are several pools ({pools}), and none was named");
                Refusal::new(UNPROCESSABLE, "pool_ambiguous", detail).hint("name one").field("pool")
            }
            E::NoPool => Refusal::new(CONFLICT, "no_pool", "there is no pool yet")
                .hint("make one with `ursa pool create`"),
            E::PoolOpen(name) => {
                Refusal::new(CONFLICT, "pool_open", format!("pool {name:?} is open and takes changes"))
                    .hint("close it with `ursa pool export`")
            }
            E::PoolOfThatName(name) => {
                let detail = format!("another pool is called {name:?} here, which is not open");
                Refusal::new(CONFLICT, "pool_exists", detail).hint(format!(
                    "choose another name, or bring that one back (`ursa pool reopen {name}`) or give it up (`ursa pool forget {name}`)"
                ))
            }
            E::OnlyInMemory { .. } => Refusal::new(CONFLICT, "only_in_memory", error.to_string()),
            E::PoolWorks(_) => Refusal::new(CONFLICT, "pool_works", error.to_string()),
            E::LuStateUnreadable(_) => {
                Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "volume_unserved", error.to_string())
            }
            E::PoolClosed(..) | E::PoolOpening { .. } => {
                Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "pool_unavailable", with_causes(&error))
                    .hint("repair its disks and run `ursa pool reopen`. If the pool is lost: `ursa volume copy replace` rebuilds this node's copies in another pool, and `ursa pool forget` removes it")
            }
            E::Busy { work, first } => {
                let ChangeStatus { work: other, waits_for, .. } = *first;
                let detail = format!("{work} was not begun: {other} comes first and waits for {waits_for}");
                Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail).hint(advice(&waits_for))
            }
            E::Unfinished(change) => {
                let ChangeStatus { number, node, work, age, waits_for, zeroed } = *change;
                let seconds = age.as_secs();
                let begin = format!("{work} has not ended within {seconds} seconds and goes on");
                let detail = match zeroed.filter(|zeroed| zeroed.gets_on) {
                    Some(Zeroed { done, total, .. }) => {
                        format!("{begin}: {} of {} bytes are zeroed", done.0, total.0)
                    }
                    None => format!("{begin}: it waits for {waits_for}"),
                };
                let (id, advice) = (id::of_change(number, node), advice(&waits_for));
                let hint = format!("{advice}, and `ursa job show {id}` what becomes of this");
                Refusal::new(StatusCode::GATEWAY_TIMEOUT, "unfinished", detail).hint(hint).job(id)
            }
            E::Core(_) => Refusal::new(StatusCode::GATEWAY_TIMEOUT, "core_silent", error.to_string()),
            E::WouldShrink { volume, from, to } => {
                let detail =
                    format!("volume {volume:?} has {} bytes and would lose data at {}", from.0, to.0);
                Refusal::new(UNPROCESSABLE, "would_shrink", detail).hint("volumes only grow").field("size")
            }
            E::ClusterFailed(_) => {
                Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "cluster_unavailable", error.to_string())
                    .hint("`ursa status` on this node says what to do; it tries again by itself, and serves its local volumes")
            }
            E::TakesPart(node) => {
                Refusal::new(CONFLICT, "takes_part", "this node takes part in its cluster")
                    .hint(format!("on another node, `ursa node remove {node}` takes it out"))
            }
            E::NoCluster => Refusal::new(CONFLICT, "no_cluster", "this node is in no cluster")
                .hint("make one with `ursa node init`, or join one with `ursa node join`"),
            E::Enter(error) => cluster::not_entered(&error),
            E::Join(error) => cluster::not_joined(&error),
            E::Cluster(error) => cluster::refused(&error),
            E::Copies { .. } => Refusal::new(CONFLICT, "too_few_nodes", error.to_string())
                .hint("ask for fewer copies, or make room on more nodes: see `ursa node list` and `ursa pool list --node all`"),
            E::NodeNotThere(node) => {
                let detail = format!("node {node} cannot be given a copy");
                Refusal::new(CONFLICT, "node_unavailable", detail)
                    .hint(
                        "it is down, in maintenance, a witness, or none of the cluster: see `ursa node list`",
                    )
                    .field("nodes")
            }
            E::ClusterWorks => Refusal::new(CONFLICT, "cluster_works", error.to_string()),
            E::RecordInEtcd { .. } => Refusal::new(CONFLICT, "record_in_etcd", error.to_string()),
            E::JoinsWithoutEtcd | E::JoinsWithEtcd => {
                Refusal::new(CONFLICT, "record_elsewhere", error.to_string())
            }
            E::NodeIsThere(_) => Refusal::new(CONFLICT, "node_is_up", error.to_string()),
            E::TooSmallToGrow(_) => {
                Refusal::new(UNPROCESSABLE, "too_small_to_grow", error.to_string()).field("size")
            }
            E::HasCopy { .. } => Refusal::new(CONFLICT, "copy_exists", error.to_string()).field("node"),
            E::HasNoCopy { .. } => Refusal::new(NOT_FOUND, "copy_not_found", error.to_string()),
            E::NothingOlder(_) => Refusal::new(CONFLICT, "nothing_older", error.to_string()),
            E::LifeUnknown => Refusal::new(CONFLICT, "life_unknown", error.to_string()),
            E::OnlyOlder { .. } => Refusal::new(CONFLICT, "copy_set_back", error.to_string()),
            E::OldCopy { .. } => Refusal::new(CONFLICT, "copy_old", error.to_string()),
            E::FourCopies(_) => Refusal::new(CONFLICT, "copies_full", error.to_string()),
            E::OnlyInSync { .. } => Refusal::new(CONFLICT, "only_in_sync", error.to_string()),
            E::NothingToPause { .. } => Refusal::new(CONFLICT, "job_not_pausable", error.to_string()),
            E::CopyInSync { .. } => Refusal::new(CONFLICT, "copy_in_sync", error.to_string()),
            E::ElsewhereOnly { .. } => {
                Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "copy_unreachable", error.to_string())
            }
            E::NotReplicated(_) => Refusal::new(CONFLICT, "not_replicated", error.to_string()),
            E::NotOfTwo { .. } => Refusal::new(CONFLICT, "not_of_two", error.to_string()),
            E::NoFork(_) => Refusal::new(CONFLICT, "no_fork", error.to_string()),
            E::NotSplitYet { .. } => Refusal::new(CONFLICT, "not_split_yet", error.to_string()),
            E::SplitAmongMore { .. } => Refusal::new(CONFLICT, "split_among_more", error.to_string()),
            E::ForkUnwell { .. } => Refusal::new(CONFLICT, "fork_unwell", error.to_string()),
            E::Forked(_) => Refusal::new(CONFLICT, "forked", error.to_string()),
            E::NoAuthority => {
                let detail = "no node of the cluster is known to have the key to let others in with";
                Refusal::new(CONFLICT, "no_authority", detail).hint(
                    "it is on the node that made the cluster (`cluster` in its data directory): ask that one, or see *When the majority is lost for good* in docs/use/cluster.md",
                )
            }
            E::OwnAccess => {
                let detail = "this node has targets or host groups of its own, and those of a cluster are the same on all nodes";
                Refusal::new(CONFLICT, "own_access", detail).hint(
                    "delete them first (`ursa target list`, `ursa host list`), or make the cluster here and have the other node join",
                )
            }
            E::NodeHasCopies { node, volume } => {
                let detail = format!("node {node} has a copy of volume {volume:?}");
                let hint = format!(
                    "move its copy away (`ursa volume copy move {volume} --from {node} --to OTHER`) or take it away (`ursa volume copy remove {volume} --on {node}`); the volume stays"
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

/// What to do about a change that does not end.
fn advice(waits_for: &WaitsFor) -> &'static str {
    match waits_for {
        WaitsFor::Disks(_) | WaitsFor::Commands(_) | WaitsFor::Record(_) => {
            "look at the disk (`dmesg`): the change ends when it answers; a block device that will not can be taken away \
             with `echo 1 > /sys/block/NAME/device/delete`; `ursa status` shows what is under way"
        }
        WaitsFor::ClusterRecord | WaitsFor::Nodes(_) => {
            "`ursa node list` shows which nodes are up; `ursa status` shows what is under way"
        }
        WaitsFor::Turn(_) | WaitsFor::Cores => "try again in a moment; `ursa status` shows what is under way",
    }
}

/// The name that a field of the control's has in requests.
fn field_path(field: &'static str) -> &'static str {
    match field {
        "chap secret" => "chap.secret",
        "chap user" => "chap.user",
        field => field,
    }
}
