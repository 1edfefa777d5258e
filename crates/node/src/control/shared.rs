//! What the nodes of a cluster share besides volumes: targets, host groups, users and tokens, by key.
//!
//! They are in the cluster's record. A node that does not take part in its cluster knows none of them, and
//! changes none.

use serde::de::DeserializeOwned;

use super::change::{Changing, WaitsFor};
use super::{Control, Result};
use crate::member::Reconciler;
use crate::record::Change;

impl Control {
    /// The entries whose keys begin with `prefix`, by key.
    pub(super) fn shared_entries<T: DeserializeOwned>(&self, prefix: &str) -> Vec<T> {
        self.reconciler().map_or_else(|_| Vec::new(), |reconciler| reconciler.list(prefix))
    }

    /// The entry at `key`; `None` if there is none, or if it has another shape.
    pub(super) fn shared_entry<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        self.reconciler().ok()?.get(key).map(|(value, _)| value)
    }

    /// Whether there is an entry at `key`, of whatever shape.
    pub(super) fn has_shared_entry(&self, key: &str) -> bool {
        self.reconciler().is_ok_and(|reconciler| reconciler.revision_of(key).is_some())
    }

    /// Makes changes of shared entries durable, all or none, and then changes of what is the node's own. The
    /// caller holds the record.
    ///
    /// # Errors
    /// Somebody else has changed an entry since this node last heard of it; those of the two records.
    pub(super) async fn commit_shared(
        &self,
        changing: &Changing,
        shared: Vec<Change>,
        own: Vec<Change>,
    ) -> Result<()> {
        if !shared.is_empty() {
            let reconciler = self.reconciler()?;
            changing.waits_for(WaitsFor::ClusterRecord);
            let transaction =
                shared.into_iter().fold(Reconciler::transaction(), |transaction, (key, value)| {
                    let transaction = transaction.expect(&key, reconciler.revision_of(&key));
                    match value {
                        Some(value) => transaction.put(&key, value.get()),
                        None => transaction.delete(&key),
                    }
                });
            reconciler.commit(transaction).await?;
        }
        if own.is_empty() { Ok(()) } else { self.commit(changing, own).await }
    }
}
