//! Refusals of cluster operations.

use ::node::control::{EnterError, JoinError};
use ::node::member::ClusterError;
use axum::http::StatusCode;

use super::{Refusal, with_causes};

/// The node could not create a cluster, or restart in one.
pub(super) fn not_entered(error: &EnterError) -> Refusal {
    match error {
        EnterError::Already => {
            Refusal::new(StatusCode::CONFLICT, "cluster_already", error.to_string())
                .hint("`ursa node list` shows its cluster")
        }
        EnterError::NotAlone => Refusal::new(StatusCode::CONFLICT, "cluster_already", error.to_string())
            .hint(
                "let the other node join the cluster of this one instead, or remove this node from its cluster first (`ursa node remove` on another node of that cluster)",
            ),
        EnterError::NotInPool(_) => {
            Refusal::new(StatusCode::CONFLICT, "changed_meanwhile", error.to_string())
        }
        EnterError::HasSnapshots(_) => {
            Refusal::new(StatusCode::CONFLICT, "cluster_has_snapshots", error.to_string())
        }
        EnterError::Etcd(_) => Refusal::new(StatusCode::BAD_GATEWAY, "etcd_unusable", with_causes(error))
            .hint("check etcd, and the settings whose names begin with `etcd`"),
        EnterError::Links(_) => {
            Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "listen", with_causes(error)).field("listen")
        }
        _ => Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "cluster_failed", with_causes(error)),
    }
}

/// The node could not join a cluster.
pub(super) fn not_joined(error: &JoinError) -> Refusal {
    let detail = with_causes(error);
    match error {
        JoinError::Token(_) => {
            Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "token_invalid", detail).field("token")
        }
        JoinError::Unreachable { .. } => Refusal::new(StatusCode::BAD_GATEWAY, "member_unreachable", detail),
        JoinError::Unanswered { .. } => Refusal::new(StatusCode::BAD_GATEWAY, "member_unanswered", detail),
        JoinError::Refused { .. } | JoinError::NotAdmitted { .. } => {
            Refusal::new(StatusCode::CONFLICT, "join_refused", detail)
        }
        JoinError::Credentials(_) => {
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "cluster_failed", detail)
        }
    }
}

/// The cluster's record or another node did not execute the call.
pub(super) fn refused(error: &ClusterError) -> Refusal {
    let detail = with_causes(error);
    match error {
        ClusterError::Record(_) if error.is_unanswered_by_record() => {
            Refusal::new(StatusCode::GATEWAY_TIMEOUT, "record_unanswered", detail).hint(
                "check whether the change was made before you repeat it; if this persists, see `ursa status`",
            )
        }
        ClusterError::Record(_) if error.is_of_etcd() => {
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "record_unavailable", detail)
                .hint("volumes keep serving; bring etcd back up")
        }
        ClusterError::Record(_) => {
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "record_unavailable", detail)
                .hint(
                    "the nodes that vote must be able to write in their data directories, and a majority of them must be up: see `ursa node list` and `ursa status`",
                )
        }
        ClusterError::Moving => Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "record_unavailable", detail),
        ClusterError::Conflict(_) => Refusal::new(StatusCode::CONFLICT, "changed_meanwhile", detail),
        ClusterError::Unreadable(_) => Refusal::new(StatusCode::CONFLICT, "entry_unreadable", detail)
            .hint("use a node of that version, or upgrade this one"),
        ClusterError::Unreached(_) => {
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "node_unreachable", detail)
        }
        ClusterError::Unanswered { .. } => {
            Refusal::new(StatusCode::GATEWAY_TIMEOUT, "node_unanswered", detail)
        }
        ClusterError::Strange(_) => Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail),
        ClusterError::Refused { .. } => Refusal::new(StatusCode::CONFLICT, "node_refused", detail),
    }
}
