//! Whether something that was not found does not exist.
//!
//! A node answers from its own copy of the cluster's record. That copy is behind after a restart, until the
//! leader responds, and as long as the node is cut off. A script takes "not found" for "deleted", so the node
//! asks the record's majority before it says so.

use std::rc::Rc;

use super::{Control, ControlError, Result};
use crate::member::{ClusterError, RECORD_DEADLINE};

impl Control {
    /// Runs `work`, and runs it again if something was not found because this node's copy of the record was
    /// behind.
    ///
    /// Before the second run, the node catches up with the record.
    ///
    /// # Errors
    /// Those of `work`. Instead of [`ControlError::NotFound`]: [`ControlError::RecordBehind`], or why the
    /// record did not respond.
    pub async fn certainly<T, F>(self: &Rc<Self>, work: impl Fn(Rc<Self>) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let before = self.reconciler().ok().map(|reconciler| reconciler.acts_by());
        let refused = match work(self.clone()).await {
            Err(refused @ ControlError::NotFound { kind, .. }) if is_of_record(kind) => refused,
            other => return other,
        };
        let reconciler = self.reconciler()?;
        // Compares with the newest entry, not with the last change: a site's own etcd also counts what others
        // write.
        let current = reconciler.store().list("", RECORD_DEADLINE).await.map_err(ClusterError::from)?;
        let newest = current.entries.values().map(|entry| entry.revision.0).max().unwrap_or(0);
        if before.is_some_and(|before| before.0 >= newest) {
            return Err(refused);
        }
        if !reconciler.until(RECORD_DEADLINE, || reconciler.acts_by().0 >= newest).await {
            return Err(ControlError::RecordBehind);
        }
        // What is not found now did not exist when the record was asked, whatever has changed since.
        work(self.clone()).await
    }
}

/// Whether objects of this kind are in the cluster's record. Pools, sessions and tokens are this node's own.
fn is_of_record(kind: &str) -> bool {
    !matches!(kind, "pool" | "session" | "token")
}
