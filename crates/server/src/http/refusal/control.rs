//! Refusals of the node's control.

use std::borrow::Cow;

use ::node::RecordError;
use ::node::control::{ControlError, JoinRefusal};
use axum::http::StatusCode;

use super::{Refusal, cluster, store, with_causes};
use crate::http::jobs::id;

const NOT_FOUND: StatusCode = StatusCode::NOT_FOUND;
const CONFLICT: StatusCode = StatusCode::CONFLICT;
const UNPROCESSABLE: StatusCode = StatusCode::UNPROCESSABLE_ENTITY;
const UNAVAILABLE: StatusCode = StatusCode::SERVICE_UNAVAILABLE;

impl From<ControlError> for Refusal {
    fn from(error: ControlError) -> Refusal {
        use ControlError as E;
        let (status, code) = match &error {
            E::Enter(error) => return cluster::not_entered(error),
            E::Join(error) => return cluster::not_joined(error),
            E::Cluster(error) => return cluster::refused(error),
            E::Store(error) => return store::refusal(error),
            &E::Invalid { field, reason } => return Refusal::invalid(field_path(field), reason),
            E::NotFound { kind, .. } => {
                return worded(&error, NOT_FOUND, format!("{}_not_found", code_of(kind)));
            }
            E::Exists { kind, .. } => return worded(&error, CONFLICT, format!("{}_exists", code_of(kind))),
            E::EntryUnreadable { kind, .. } => {
                return worded(&error, CONFLICT, format!("{}_unreadable", code_of(kind)));
            }
            E::TooMany { kind, .. } => {
                let last = kind.rsplit(' ').next().unwrap_or(kind);
                return worded(&error, CONFLICT, format!("too_many_{last}s"));
            }
            E::Name(_) => (UNPROCESSABLE, "name_invalid"),
            E::Mapped { .. } | E::MappedInPool { .. } => (CONFLICT, "volume_mapped"),
            E::HasLuns { .. } => (CONFLICT, "target_has_maps"),
            E::HostInUse { .. } => (CONFLICT, "host_in_use"),
            E::BuiltIn(_) => (CONFLICT, "host_built_in"),
            E::SetUpAlready => (CONFLICT, "set_up_already"),
            E::LastAdmin(_) => (CONFLICT, "last_admin"),
            E::LunTaken { .. } => (CONFLICT, "lun_taken"),
            E::NoLunFree(_) => (CONFLICT, "target_full"),
            E::ChoosePool(_) => (UNPROCESSABLE, "pool_ambiguous"),
            E::NoPool => (CONFLICT, "no_pool"),
            E::PoolOpen(_) => (CONFLICT, "pool_open"),
            E::PoolOfThatName(_) | E::PoolHereAlready(_) => (CONFLICT, "pool_exists"),
            E::OnlyInMemory { .. } => (CONFLICT, "only_in_memory"),
            E::PoolWorks(_) => (CONFLICT, "pool_works"),
            E::LuStateUnreadable(_) => (UNAVAILABLE, "volume_unavailable"),
            E::PoolClosed(..) => (UNAVAILABLE, "pool_unavailable"),
            E::Busy { .. } => (UNAVAILABLE, "busy"),
            E::Unfinished(_) => (StatusCode::GATEWAY_TIMEOUT, "unfinished"),
            E::Core(_) => (StatusCode::GATEWAY_TIMEOUT, "core_silent"),
            E::WouldShrink { .. } => (UNPROCESSABLE, "would_shrink"),
            E::ClusterFailed(_) => (UNAVAILABLE, "cluster_unavailable"),
            E::TakesPart(_) | E::OnlyNode => (CONFLICT, "takes_part"),
            E::RecordBehind => (UNAVAILABLE, "record_behind"),
            E::NotListening => (CONFLICT, "not_listening"),
            E::Copies { .. } => (CONFLICT, "too_few_nodes"),
            E::NodeNotThere(_) => (CONFLICT, "node_unavailable"),
            E::ClusterWorks => (CONFLICT, "cluster_works"),
            E::RecordInEtcd(_) => (CONFLICT, "record_in_etcd"),
            E::JoinRefused { reason: JoinRefusal::Collides { .. }, .. } => (CONFLICT, "join_collision"),
            E::JoinRefused { .. } => (CONFLICT, "join_refused"),
            E::NodeIsThere(_) => (CONFLICT, "node_is_up"),
            E::TooSmallToGrow(_) => (UNPROCESSABLE, "too_small_to_grow"),
            E::HasCopy { .. } => (CONFLICT, "copy_exists"),
            E::HasNoCopy { .. } => (NOT_FOUND, "copy_not_found"),
            E::NothingOlder(_) => (CONFLICT, "nothing_older"),
            E::LifeUnknown => (CONFLICT, "life_unknown"),
            E::SliceUnopened { .. } | E::LogDamaged { .. } => (CONFLICT, "slice_unopened"),
            E::OnlyOlder { .. } => (CONFLICT, "copy_set_back"),
            E::OldCopy { .. } => (CONFLICT, "copy_old"),
            E::InSeveralPools { .. } => (CONFLICT, "volume_in_several_pools"),
            E::FourCopies(_) => (CONFLICT, "copies_full"),
            E::OnlyInSync { .. } => (CONFLICT, "only_in_sync"),
            E::NothingToPause { .. } => (CONFLICT, "job_not_pausable"),
            E::CopyInSync { .. } => (CONFLICT, "copy_in_sync"),
            E::ElsewhereOnly { .. } => (UNAVAILABLE, "copy_unreachable"),
            E::NoSnapshotsOfKind(_) => (CONFLICT, "snapshot_volume_kind"),
            E::SnapshotNotTaken { .. } => (CONFLICT, "snapshot_not_taken"),
            E::SnapshotTooSlow { .. } => (UNAVAILABLE, "snapshot_too_slow"),
            E::NotRestored { .. } => (CONFLICT, "not_restored"),
            E::RestoreTooSlow { .. } => (UNAVAILABLE, "restore_too_slow"),
            E::RestoreUnfinished(_) => (StatusCode::GATEWAY_TIMEOUT, "restore_unfinished"),
            E::NotInSnapshot { .. } => (CONFLICT, "not_in_snapshot"),
            E::CopyLacksSnapshot { .. } => (CONFLICT, "copy_lacks_snapshot"),
            E::NoCopyHasSnapshot { .. } => (CONFLICT, "no_copy_has_snapshot"),
            E::SnapshotUnread { .. } => (UNAVAILABLE, "snapshot_unread"),
            E::NoCopyHasBoth { .. } => (CONFLICT, "no_copy_has_both"),
            E::NotCompared { .. } => (CONFLICT, "not_compared"),
            E::SnapshotRestored(_) => (CONFLICT, "snapshot_in_use"),
            E::NotCloned { .. } => (CONFLICT, "not_cloned"),
            E::ClonesIncomplete { .. } => (CONFLICT, "clones_incomplete"),
            E::SnapshotHasClones { .. } => (CONFLICT, "snapshot_has_clones"),
            E::HasClones { .. } => (CONFLICT, "volume_has_clones"),
            E::ReadByClone { .. } => (CONFLICT, "copy_has_clones"),
            E::SnapshotHeld(_) => (CONFLICT, "snapshot_held"),
            E::SnapshotPreparing(_) => (CONFLICT, "snapshot_preparing"),
            E::HasSnapshots { .. } => (CONFLICT, "volume_has_snapshots"),
            E::OnlyCopyOfSnapshot { .. } => (CONFLICT, "only_copy_of_snapshot"),
            E::NotScrubbable { .. } => (CONFLICT, "not_scrubbable"),
            E::NotReplicated(_) => (CONFLICT, "not_replicated"),
            E::NotOfTwo { .. } => (CONFLICT, "not_of_two"),
            E::NoFork(_) => (CONFLICT, "no_fork"),
            E::NotSplitYet { .. } => (CONFLICT, "not_split_yet"),
            E::SplitAmongMore { .. } => (CONFLICT, "split_among_more"),
            E::ForkUnwell { .. } => (CONFLICT, "fork_unwell"),
            E::Forked(_) => (CONFLICT, "forked"),
            E::NoAuthority => (CONFLICT, "no_authority"),
            E::TooMuchToMerge => (CONFLICT, "too_much_to_merge"),
            E::ChangedWhileJoining => (CONFLICT, "changed_meanwhile"),
            E::NodeHasCopies { .. } => (CONFLICT, "node_has_copies"),
            E::NodeNeeded(_) => (CONFLICT, "node_needed"),
            E::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
            E::Listen(..) => (StatusCode::INTERNAL_SERVER_ERROR, "listen"),
            E::Record(RecordError::Full(_)) => (StatusCode::INSUFFICIENT_STORAGE, "record_full"),
            E::Record(RecordError::Latched) => (UNAVAILABLE, "record_read_only"),
            E::Record(_) => (StatusCode::INTERNAL_SERVER_ERROR, "record_failed"),
        };
        worded(&error, status, code)
    }
}

fn worded(error: &ControlError, status: StatusCode, code: impl Into<Cow<'static, str>>) -> Refusal {
    use ControlError as E;
    let detail = match error {
        // It names its cause itself.
        E::SliceUnopened { .. } => error.to_string(),
        _ => with_causes(error),
    };
    let mut refusal = Refusal::new(status, code, detail);
    let hint = error.hint();
    if let Some(hint) = &hint {
        refusal = refusal.hint(&**hint);
    }
    match error {
        E::LunTaken { .. } => refusal.field("lun"),
        E::ChoosePool(_) => refusal.field("pool"),
        E::WouldShrink { .. } | E::TooSmallToGrow(_) => refusal.field("size"),
        E::NodeNotThere(_) => refusal.field("nodes"),
        E::HasCopy { .. } => refusal.field("node"),
        E::NoSnapshotsOfKind(_)
        | E::SnapshotNotTaken { .. }
        | E::NotRestored { .. }
        | E::NotInSnapshot { .. } => refusal.field("volumes"),
        E::RecordBehind => refusal.retry_after(1),
        E::Unfinished(change) => {
            let (advice, id) = (hint.unwrap_or_default(), id::of_change(change.number, change.node));
            refusal.hint(format!("{advice}; `ursa job show {id}` shows the progress of this change")).job(id)
        }
        _ => refusal,
    }
}

/// A kind of things as a part of codes.
fn code_of(kind: &str) -> String {
    kind.replace(' ', "_")
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
    use std::time::Duration;

    use ::node::control::NotOpen;

    use super::*;

    #[test]
    fn a_lost_pool_leads_to_what_rebuilds_its_copies() {
        let why = NotOpen::Silent(Duration::from_secs(60));
        let refusal = Refusal::from(ControlError::PoolClosed("fast".into(), why));
        let hint = refusal.problem.hint.expect("there is something to do");
        assert!(hint.contains("`ursa volume copy rebuild` rebuilds this node's copies"), "{hint}");
    }
}
