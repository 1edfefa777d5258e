//! Why something that needs the cluster could not be done.

use std::time::Duration;

use replica::NodeId;

use crate::copies::refused::Refused;

/// Something that needs the cluster could not be done.
#[derive(Clone, Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum ClusterError {
    #[error("the cluster's record did not respond, or did not accept the change")]
    Record(#[from] cluster::Error),
    #[error("{0} was changed by someone else in the meantime: check it and try again")]
    Conflict(String),
    #[error(
        "this node cannot read {0:?} in the cluster's record, because a later version of ursa wrote it, and does not change it: run the command on a node of that version, or update this one"
    )]
    Unreadable(String),
    #[error("this node is joining another cluster: try again in a moment")]
    Moving,
    #[error("{0} is unreachable: check that it is running and that its addresses are correct")]
    Unreached(NodeId),
    #[error(
        "{node} has not responded for {seconds} seconds and may still be working on it: try again in a while", seconds = after.as_secs()
    )]
    Unanswered { node: NodeId, after: Duration },
    #[error(
        "{0} gave an unexpected answer: the nodes may run different versions; if not, this is a bug in Ursa, please report it"
    )]
    Strange(NodeId),
    #[error("{node}: {reason}")]
    Refused { node: NodeId, reason: Refused },
}

impl ClusterError {
    /// Whether it is unknown if the record has taken the change.
    pub fn is_unanswered_by_record(&self) -> bool {
        matches!(self, ClusterError::Record(cluster::Error::OutcomeUnknown))
    }

    /// Whether a transaction may be committed, now or later, although the record did not confirm it.
    pub fn may_be_committed(&self) -> bool {
        matches!(self, ClusterError::Record(cluster::Error::OutcomeUnknown | cluster::Error::Stopped))
    }

    /// Whether etcd is the reason.
    pub fn is_of_etcd(&self) -> bool {
        matches!(self, ClusterError::Record(cluster::Error::Etcd | cluster::Error::WrongEtcd))
    }
}
