//! What this node answers where it does not do what another node asked it for.

use std::error::Error;

use rt::DiskError;
use store::StoreError;

use super::ControlError;
use crate::copies::Refused;
use crate::member::ClusterError;

impl From<ControlError> for Refused {
    /// Of an error without a code, the node that asked learns only that this failed; the log has the rest.
    fn from(error: ControlError) -> Refused {
        Refused::of(&error).unwrap_or_else(|| {
            let error = &error as &dyn Error;
            tracing::warn!(error, "a request from another node failed");
            Refused::Failed
        })
    }
}

impl Refused {
    /// The code for an error, if there is one.
    pub(super) fn of(error: &ControlError) -> Option<Refused> {
        use ControlError as E;
        Some(match error {
            E::ClusterFailed(_) => Refused::NotInCluster,
            E::NotFound { kind, name } => Refused::NotFound { kind: (*kind).to_owned(), name: name.clone() },
            E::Exists { kind, name } => Refused::Exists { kind: (*kind).to_owned(), name: name.clone() },
            E::ChoosePool(pools) => Refused::SeveralPools { pools: pools.clone() },
            E::NoPool => Refused::NoPool,
            E::PoolClosed(pool, _) => Refused::PoolNotOpen { pool: pool.clone() },
            E::HasCopy { volume, .. } => Refused::HasCopy { volume: volume.clone() },
            E::OldCopy { volume, pool } => Refused::OldCopy { volume: volume.clone(), pool: pool.clone() },
            E::Forked(volume) => Refused::Forked { volume: volume.clone() },
            E::ForkUnwell { volume, node } => Refused::ForkUnwell { volume: volume.clone(), node: *node },
            E::SnapshotNotTaken { volume, obstacle, .. } | E::NotCloned { volume, obstacle, .. } => {
                Refused::NoSnapshot { volume: volume.clone(), obstacle: *obstacle }
            }
            E::SnapshotTooSlow { .. } => Refused::SnapshotTooSlow,
            E::Busy { .. } => Refused::Busy,
            E::Unfinished(_) => Refused::Unfinished,
            E::Cluster(error) => return of_cluster(error),
            E::Store(error) => return of_pool(error),
            _ => return None,
        })
    }
}

fn of_cluster(error: &ClusterError) -> Option<Refused> {
    Some(match error {
        ClusterError::Conflict(what) => Refused::Changed { what: what.clone() },
        ClusterError::Record(_) | ClusterError::Moving => Refused::RecordSilent,
        ClusterError::Unreached(node) | ClusterError::Unanswered { node, .. } => {
            Refused::NodeSilent { node: node.0 }
        }
        ClusterError::Refused { node, reason } => {
            Refused::ByNode { node: node.0, reason: Box::new(reason.clone()) }
        }
        ClusterError::Unreadable(_) | ClusterError::Strange(_) => return None,
    })
}

fn of_pool(error: &StoreError) -> Option<Refused> {
    Some(match error {
        StoreError::NoSpace { wanted, free } => Refused::NoSpace { wanted: wanted.0, free: free.0 },
        StoreError::NoMemory { wanted, free } => Refused::NoMemory { wanted: wanted.0, left: free.0 },
        StoreError::Disk { path, source: DiskError::Full } => {
            Refused::FileSystemFull { path: path.display().to_string() }
        }
        StoreError::Disk { path, .. } => Refused::DiskFailed { path: path.display().to_string() },
        StoreError::MetadataReadOnly(_) => Refused::PoolReadOnly,
        StoreError::MetadataFull { .. } | StoreError::LuStateTooLarge(_) => Refused::MetadataFull,
        StoreError::TooManyVolumes(volumes) => Refused::TooManyVolumes { volumes: *volumes },
        StoreError::NameTaken(name) => Refused::Exists { kind: "volume".to_owned(), name: name.clone() },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use base::ByteLen;

    use super::*;

    #[test]
    fn facts_are_sent_and_worded_where_they_are_shown() {
        let error = StoreError::NoSpace { wanted: ByteLen(8 << 20), free: ByteLen(4 << 20) };
        let refused = Refused::from(ControlError::from(error));
        let sent = serde_json::to_string(&refused).unwrap();
        assert_eq!(sent, r#"{"no-space":{"wanted":8388608,"free":4194304}}"#);
        assert_eq!(serde_json::from_str::<Refused>(&sent).unwrap(), refused);
        assert!(refused.to_string().contains("requested"), "{refused}");
    }

    #[test]
    fn no_sentence_of_an_unforeseen_failure_is_sent() {
        let error = ControlError::Internal("something that nobody has thought of");
        assert_eq!(serde_json::to_string(&Refused::from(error)).unwrap(), r#""failed""#);
    }

    #[test]
    fn a_refusal_of_a_third_node_keeps_its_facts() {
        let unwell = Refused::ForkUnwell { volume: "db".into(), node: 3 };
        let error = ClusterError::Refused { node: replica::NodeId(3), reason: unwell.clone() };
        let refused = Refused::from(ControlError::from(error));
        assert_eq!(refused, Refused::ByNode { node: 3, reason: Box::new(unwell) });
        let sent = serde_json::to_string(&refused).unwrap();
        assert_eq!(serde_json::from_str::<Refused>(&sent).unwrap(), refused);
    }
}
