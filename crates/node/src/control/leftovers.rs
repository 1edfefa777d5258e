//! What is left of deleted volumes: a node that was down or unreachable when a volume was deleted deletes its
//! copy automatically.
//!
//! If the cluster's record does not list a volume, that proves nothing: a node that has only begun to follow
//! the record has not received it yet, and a record may be set back. So nodes delete nothing for that reason.
//! The change that deletes a volume also writes which nodes have copies of it ([`DeletedVolume`]). A node
//! that finds itself there deletes what it has, and removes itself from the list.

use std::rc::Rc;
use std::sync::Arc;

use replica::NodeId;
use store::VolumeInfo;

use super::relocation::TRIES_MAX;
use super::tidying::TIDY_EVERY;
use super::{Control, ControlError, Result};
use crate::copies::{DeletedVolume, deleted_key};
use crate::data::VolumeId;
use crate::member::{ClusterError, CopiesStatus, Reconciler, json};

/// Why a node does not serve its data of a volume.
#[derive(Clone, Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum NotServed {
    /// It could not be opened, or must not be.
    #[error("{}", .0.with_hint())]
    Unopened(Arc<ControlError>),
    #[error(
        "a write to this copy failed, and the copy is out of service: check its disk (`ursa pool show {pool}`), then run `ursa pool reopen {pool}`"
    )]
    WriteFailed { pool: String },
    #[error(
        "this node does not take part in its cluster (see `ursa status`): the copy on this node cannot be used until it does"
    )]
    NotInCluster,
    #[error("this node has not read the cluster's record yet")]
    RecordUnread,
    #[error(
        "the cluster has this volume on node {0}: to serve it here, export its pool there (`ursa pool export`) or remove that node"
    )]
    OnNode(u16),
    #[error(
        "the data on this node is no longer a copy of the volume: it is from an earlier membership of this node, or is about to be deleted; it cannot be used"
    )]
    NoCopy,
    #[error(
        "it was deleted while this node continued alone with it: the data written here is kept, but not served; run `ursa volume delete` on this node to discard it"
    )]
    DeletedWhileAlone,
    #[error("it was deleted; its data on this node will be deleted in a moment")]
    Deleted,
    #[error(
        "the cluster does not have this volume: it was deleted, or belongs to another cluster; `ursa volume delete` on this node discards the data. Do not delete it if the cluster's record was set back to a time before the volume was created: then this data is the volume"
    )]
    NotInRecord,
}

impl Control {
    /// Deletes what this node has of a deleted volume: in open pools at once, in others when they come back.
    pub(super) async fn drop_deleted(
        self: &Rc<Control>,
        reconciler: &Rc<Reconciler>,
        id: VolumeId,
        deleted: &DeletedVolume,
    ) -> Result<()> {
        let is_ours =
            |info: &VolumeInfo| info.copy.is_some_and(|copy| copy.cluster.0 == reconciler.cluster().0);
        if self.copies_of(id).iter().any(|(_, info)| is_ours(info)) {
            self.drop_copy(&id.to_string(), None).await?;
            tracing::info!(volume = deleted.name, "leftovers of a deleted volume on this node were deleted");
        }
        let is_left = self.copies_of(id).iter().any(|(_, info)| is_ours(info));
        // A pool that is not open may have a copy.
        if is_left || !self.all_pools_are_open() {
            return Ok(());
        }
        Ok(note_dropped(reconciler, id, &[reconciler.me()]).await?)
    }

    /// Why this node does not serve its data of a volume with copies although no disk failed.
    ///
    /// `None` if the record lists the volume, or is about to.
    pub(super) fn why_not_recorded(&self, info: &VolumeInfo) -> Option<NotServed> {
        // A sole copy is served without the record, and is added to it.
        let is_gone = |reconciler: Rc<Reconciler>| reconciler.has(info.id) || reconciler.is_deleted(info.id);
        if info.is_sole() && !self.reconciler().is_ok_and(is_gone) {
            return None;
        }
        let Ok(reconciler) = self.reconciler() else {
            return Some(match self.cluster_failure() {
                Some(_) => NotServed::NotInCluster,
                None => NotServed::RecordUnread,
            });
        };
        if self.being_made.borrow().contains_key(&info.id) {
            return None;
        }
        if reconciler.has(info.id) {
            let is_one = |volume: CopiesStatus| volume.entry.copy_on(reconciler.me()).is_some();
            let elsewhere = reconciler.volume(info.id).filter(|volume| volume.entry.sole && info.is_sole());
            if let Some(copy) = elsewhere.and_then(|volume| volume.entry.copies.first().copied())
                && copy.node != reconciler.me().0
            {
                return Some(NotServed::OnNode(copy.node));
            }
            let is_none = reconciler.volume(info.id).is_some_and(|volume| !is_one(volume));
            return is_none.then_some(NotServed::NoCopy);
        }
        Some(if reconciler.acts_by().0 == 0 {
            NotServed::RecordUnread
        } else if reconciler.has_fork(info.id) {
            NotServed::DeletedWhileAlone
        } else if reconciler.is_deleted(info.id) {
            NotServed::Deleted
        } else {
            NotServed::NotInRecord
        })
    }
}

/// Removes deleted volumes from the record that are only noted for nodes that have left the cluster.
pub(super) async fn forget_deleted(reconciler: &Reconciler) {
    for (id, deleted) in reconciler.deleted_on_nobody() {
        let nodes: Vec<NodeId> = deleted.nodes.iter().copied().map(NodeId).collect();
        if let Err(error) = note_dropped(reconciler, id, &nodes).await {
            tracing::debug!(volume = deleted.name, %error, "a deleted volume is still in the record");
        }
    }
}

/// Notes in the record that these nodes have nothing of a deleted volume any more.
async fn note_dropped(reconciler: &Reconciler, id: VolumeId, nodes: &[NodeId]) -> Result<(), ClusterError> {
    let key = deleted_key(id);
    let mut tries = 0;
    loop {
        tries += 1;
        let Some((mut deleted, revision)) = reconciler.get::<DeletedVolume>(&key) else { return Ok(()) };
        deleted.nodes.retain(|node| !nodes.contains(&NodeId(*node)));
        let transaction = Reconciler::transaction().expect(&key, Some(revision));
        let transaction = match deleted.nodes.is_empty() {
            true => transaction.delete(&key),
            false => transaction.put(&key, json(&deleted)),
        };
        match reconciler.commit(transaction).await {
            Err(ClusterError::Conflict(_)) if tries < TRIES_MAX => {
                reconciler.until_changed(TIDY_EVERY, &key, Some(revision)).await;
            }
            result => return result,
        }
    }
}
