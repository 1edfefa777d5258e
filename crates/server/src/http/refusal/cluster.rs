//! Refusals of cluster operations.

use ::node::control::{EnterError, JoinError};
use ::node::member::ClusterError;
use axum::http::StatusCode;

use super::{Refusal, with_causes};

/// The node could not create a cluster, or restart in one.
pub(super) fn not_entered(error: &EnterError) -> Refusal {
    use EnterError as E;
    let (status, code) = match error {
        E::Already | E::NotAlone => (StatusCode::CONFLICT, "cluster_already"),
        E::NotInPool(_) | E::AddressGoing(_) => (StatusCode::CONFLICT, "changed_meanwhile"),
        E::HasSnapshots(_) => (StatusCode::CONFLICT, "cluster_has_snapshots"),
        E::HasSchedules(_) => (StatusCode::CONFLICT, "cluster_has_schedules"),
        E::Etcd(_) => (StatusCode::BAD_GATEWAY, "etcd_unusable"),
        E::Links(_) => (StatusCode::UNPROCESSABLE_ENTITY, "listen"),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "cluster_failed"),
    };
    let refusal = Refusal::new(status, code, with_causes(error));
    match error {
        E::Already => refusal.hint("`ursa node list` shows its cluster"),
        E::NotAlone => refusal.hint(
            "let the other node join the cluster of this one instead, or remove this node from its cluster first (`ursa node remove` on another node of that cluster)",
        ),
        E::Etcd(_) => refusal.hint("check etcd, and the settings whose names begin with `etcd`"),
        E::Links(_) => refusal.field("listen"),
        _ => refusal,
    }
}

/// The node could not join a cluster.
pub(super) fn not_joined(error: &JoinError) -> Refusal {
    use JoinError as E;
    let (status, code) = match error {
        E::Token(_) => (StatusCode::UNPROCESSABLE_ENTITY, "token_invalid"),
        E::Unreachable { .. } => (StatusCode::BAD_GATEWAY, "member_unreachable"),
        E::Unanswered { .. } => (StatusCode::BAD_GATEWAY, "member_unanswered"),
        E::Refused { .. } | E::NotAdmitted { .. } => (StatusCode::CONFLICT, "join_refused"),
        E::Credentials(_) => (StatusCode::INTERNAL_SERVER_ERROR, "cluster_failed"),
    };
    let refusal = Refusal::new(status, code, with_causes(error));
    if matches!(error, E::Token(_)) { refusal.field("token") } else { refusal }
}

/// The cluster's record or another node did not execute the call.
pub(super) fn refused(error: &ClusterError) -> Refusal {
    use ClusterError as E;
    let (status, code) = match error {
        E::Record(_) if error.is_unanswered_by_record() => (StatusCode::GATEWAY_TIMEOUT, "record_unanswered"),
        E::Record(_) | E::Moving => (StatusCode::SERVICE_UNAVAILABLE, "record_unavailable"),
        E::Conflict(_) => (StatusCode::CONFLICT, "changed_meanwhile"),
        E::Unreadable(_) => (StatusCode::CONFLICT, "entry_unreadable"),
        E::Unreached(_) => (StatusCode::SERVICE_UNAVAILABLE, "node_unreachable"),
        E::Unanswered { .. } => (StatusCode::GATEWAY_TIMEOUT, "node_unanswered"),
        E::Strange(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        E::Refused { .. } => (StatusCode::CONFLICT, "node_refused"),
    };
    let refusal = Refusal::new(status, code, with_causes(error));
    match error {
        E::Record(_) if error.is_unanswered_by_record() => refusal.hint(
            "check whether the change was made before you repeat it; if this persists, see `ursa status`",
        ),
        E::Record(_) if error.is_of_etcd() => refusal.hint("volumes keep serving; bring etcd back up"),
        E::Record(_) => refusal.hint(
            "the nodes that vote must be able to write in their data directories, and a majority of them must be up: see `ursa node list` and `ursa status`",
        ),
        E::Unreadable(_) => refusal.hint("use a node of that version, or upgrade this one"),
        _ => refusal,
    }
}
