//! Whether something that was not found does not exist.
//!
//! A node answers from its own copy of the cluster's record. That copy is behind after a restart, until the
//! leader is heard from, and for as long as the node is cut off. A script takes "not found" for "deleted", so
//! the record's majority is asked first.

use super::cluster::CLUSTER;
use super::{Control, ControlError};
use crate::copies::{ClusterError, RECORD_DEADLINE};

impl Control {
    /// Does `work`; if it ends in [`ControlError::NotFound`], makes sure that this node's copy of the record
    /// was current.
    ///
    /// # Errors
    /// Those of `work`. In place of "not found": [`ControlError::RecordBehind`], or why the record could not be
    /// asked.
    pub async fn certainly<T>(
        &self,
        work: impl Future<Output = Result<T, ControlError>>,
    ) -> Result<T, ControlError> {
        let before = self.keeper().map(|keeper| keeper.acts_by());
        let refused = match work.await {
            Err(refused @ ControlError::NotFound { kind, .. }) if is_of_record(kind) => refused,
            other => return other,
        };
        let keeper = match self.keeper_or_why_not() {
            Err(ControlError::NoCluster) => return Err(refused),
            keeper => keeper?,
        };
        let store = keeper.store();
        store.get(CLUSTER, RECORD_DEADLINE).await.map_err(ClusterError::from)?;
        let current = store.status(RECORD_DEADLINE).await.map_err(ClusterError::from)?.revision;
        match before.is_some_and(|before| before.0 >= current.0) {
            true => Err(refused),
            false => Err(ControlError::RecordBehind),
        }
    }
}

/// Pools, sessions and tokens are this node's own.
fn is_of_record(kind: &str) -> bool {
    !matches!(kind, "pool" | "session" | "token")
}
