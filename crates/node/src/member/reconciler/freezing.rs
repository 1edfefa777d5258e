//! Keeps the record as it is while the node leaves its cluster for another one.
//!
//! The node compares the record with its pools, and takes only what the pools have. What the record confirmed
//! after that would be lost. So no change begins from then on, and those under way end first.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use rt::sync::Notify;

use super::{ClusterError, Reconciler};

/// How long changes of the record that are under way may take. A record with one voter needs milliseconds.
const FROZEN_WITHIN: Duration = Duration::from_secs(5);

/// The changes of the record that callers of [`Reconciler::commit`] wait for.
#[derive(Default)]
pub(super) struct PendingCommits {
    under_way: Cell<usize>,
    frozen: Cell<bool>,
    /// Notified when one has ended.
    ended: Notify,
}

/// One of them. It has ended when this is dropped.
pub(super) struct PendingCommit<'a>(&'a PendingCommits);

impl PendingCommits {
    /// Notes that a change begins.
    ///
    /// # Errors
    /// [`ClusterError::Moving`].
    pub(super) fn begin(&self) -> Result<PendingCommit<'_>, ClusterError> {
        if self.frozen.get() {
            return Err(ClusterError::Moving);
        }
        self.under_way.set(self.under_way.get() + 1);
        Ok(PendingCommit(self))
    }
}

impl Drop for PendingCommit<'_> {
    fn drop(&mut self) {
        self.0.under_way.set(self.0.under_way.get() - 1);
        self.0.ended.notify();
    }
}

/// The record confirms no change of this node until this is dropped, or for good if the node's part in the
/// cluster has ended by then.
pub struct Frozen(Rc<Reconciler>);

impl Drop for Frozen {
    fn drop(&mut self) {
        let has_ended = self.0.engine.borrow().is_none();
        self.0.pending_commits.frozen.set(has_ended);
    }
}

impl Reconciler {
    /// Lets no change of the record begin any more. When this returns, the reconciler acts by those that were
    /// under way.
    ///
    /// # Errors
    /// [`ClusterError::Record`]: one of them has not ended in time. Changes may begin again.
    pub async fn freeze(self: &Rc<Self>) -> Result<Frozen, ClusterError> {
        self.pending_commits.frozen.set(true);
        let frozen = Frozen(Rc::clone(self));
        let ended = self.pending_commits.ended.until(|| self.pending_commits.under_way.get() == 0);
        match rt::timeout(FROZEN_WITHIN, ended).await {
            Ok(()) => Ok(frozen),
            Err(rt::Elapsed) => Err(cluster::Error::NoQuorum.into()),
        }
    }
}
