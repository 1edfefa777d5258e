//! Why a change failed, as a code and facts, for the list of ended jobs. The node's log has the rest.

use serde::{Deserialize, Serialize};

use super::{ClusterFault, ControlError, PoolFault};
use crate::copies::Refused;

/// Why a change failed. Nodes report it to each other as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeFailure {
    /// For a reason that another node would be told, too, if it had asked for the change.
    #[error(transparent)]
    Refused(Refused),
    /// The node could not enter its cluster, or continue in it.
    #[error(transparent)]
    Cluster(ClusterFault),
    /// A pool could not be opened.
    #[error(transparent)]
    Pool(PoolFault),
    /// For any other reason.
    #[error("the node's log says why")]
    Other,
}

impl From<&ControlError> for ChangeFailure {
    fn from(error: &ControlError) -> ChangeFailure {
        match error {
            ControlError::Enter(_) | ControlError::Record(_) | ControlError::ClusterFailed(_) => {
                ChangeFailure::Cluster(error.into())
            }
            ControlError::PoolClosed(_, why) => ChangeFailure::Pool(why.into()),
            other => match (Refused::of(other), other) {
                (Some(refused), _) => ChangeFailure::Refused(refused),
                (None, ControlError::Store(error)) => match PoolFault::from(error) {
                    PoolFault::Other => ChangeFailure::Other,
                    fault => ChangeFailure::Pool(fault),
                },
                (None, _) => ChangeFailure::Other,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use base::ByteLen;
    use store::StoreError;

    use super::*;

    fn of(error: impl Into<ControlError>) -> ChangeFailure {
        ChangeFailure::from(&error.into())
    }

    #[test]
    fn facts_are_kept() {
        let full = of(StoreError::NoSpace { wanted: ByteLen(8 << 20), free: ByteLen(4 << 20) });
        assert_eq!(full, ChangeFailure::Refused(Refused::NoSpace { wanted: 8 << 20, free: 4 << 20 }));
        assert_eq!(full.to_string(), "not enough space: 8M requested, 4M free");
        let path = std::path::PathBuf::from("/dev/sdb");
        let shrunk = StoreError::DiskShrunk { path: path.clone(), expected: 8, found: 4 };
        let fault = PoolFault::DiskShrunk { path, expected: 8, found: 4 };
        assert_eq!(of(shrunk), ChangeFailure::Pool(fault));
        let failed = ControlError::ClusterFailed(ClusterFault::Moving);
        assert_eq!(of(failed), ChangeFailure::Cluster(ClusterFault::Moving));
        assert_eq!(of(ControlError::Internal("nobody has thought of this")), ChangeFailure::Other);
    }
}
