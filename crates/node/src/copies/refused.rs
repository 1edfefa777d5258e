//! Why a node did not do what another node asked it for.
//!
//! Nodes send each other codes and facts. The words are added by the node that shows them: the two may run
//! different versions.

use std::error::Error;

use base::ByteLen;
use rt::DiskError;
use serde::{Deserialize, Serialize};
use store::StoreError;

use super::keeper::ClusterError;
use crate::control::ControlError;

/// Why a node did not do what another node asked it for. Nothing was done, except after
/// [`Refused::Unfinished`], [`Refused::RecordSilent`], [`Refused::ByNode`] and [`Refused::Failed`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Refused {
    /// It does not serve yet.
    #[error("it is starting: try again in a moment")]
    Starting,
    /// It cannot read the request.
    #[error("its version does not know this request")]
    UnknownRequest,
    /// It cannot take part in its cluster now.
    #[error("it does not take part in its cluster now: see `ursa status` on it")]
    NotInCluster,
    /// It has not followed the cluster's record as far as the node that asks.
    #[error("it has not caught up with the cluster's record")]
    RecordBehind,
    /// The cluster's record did not respond to it, or did not accept its change.
    #[error("the cluster's record did not respond, or did not accept the change")]
    RecordSilent,
    /// The request names no volume.
    #[error("it does not know this volume ID")]
    NoVolumeId,
    /// It has no usable copy of the volume.
    #[error("its copy is gone, or the copy's pool is not open")]
    CopyGone,
    /// It executes as many requests of other nodes as it can, or it is stopping.
    #[error("it is already carrying out {most} requests for other nodes, or is stopping")]
    TooManyRequests {
        /// The limit.
        most: usize,
    },
    /// The object does not exist there.
    #[error("{kind} {name:?} not found")]
    NotFound {
        /// What, as in [`ControlError::NotFound`].
        kind: String,
        /// Its name.
        name: String,
    },
    /// The name is taken.
    #[error("{kind} {name:?} already exists: choose another name")]
    Exists {
        /// What, as in [`ControlError::Exists`].
        kind: String,
        /// Its name.
        name: String,
    },
    /// It has several pools, and the request names none.
    #[error("it has several pools: choose one with --pool ({pools})")]
    SeveralPools {
        /// Their names.
        pools: String,
    },
    /// It has no pool.
    #[error("it has no pool: create one with `ursa pool create`")]
    NoPool,
    /// The pool is not open.
    #[error("pool {pool:?} is not open")]
    PoolNotOpen {
        /// Its name.
        pool: String,
    },
    /// The pool's metadata is read-only since a disk failed.
    #[error("its pool is locked: a metadata write failed. Repair the disk and reopen the pool")]
    PoolReadOnly,
    /// The pool is too full.
    #[error("not enough space: {} requested, {} free", ByteLen(*wanted), ByteLen(*free))]
    NoSpace {
        /// The requested space in bytes.
        wanted: u64,
        /// The free space in bytes.
        free: u64,
    },
    /// The file system of the pool is full.
    #[error("the file system of {path} is full")]
    FileSystemFull {
        /// The pool's file.
        path: String,
    },
    /// The memory for RAM volumes is used up.
    #[error("not enough memory for RAM volumes: {} requested, {} left", ByteLen(*wanted), ByteLen(*left))]
    NoMemory {
        /// The requested memory in bytes.
        wanted: u64,
        /// What is left, in bytes.
        left: u64,
    },
    /// The pool cannot hold another volume.
    #[error("its pool has {volumes} volumes and can hold no more")]
    TooManyVolumes {
        /// How many it has.
        volumes: usize,
    },
    /// The pool's metadata area is full.
    #[error("its pool's metadata area is full: remove reservations or volumes")]
    MetadataFull,
    /// A disk failed.
    #[error("{path} failed")]
    DiskFailed {
        /// The disk.
        path: String,
    },
    /// It already has a copy of the volume.
    #[error("it already has a copy of volume {volume:?}")]
    HasCopy {
        /// The volume's name.
        volume: String,
    },
    /// It still has an older copy of the volume.
    #[error(
        "an older copy of volume {volume:?} is still in pool {pool:?}: if it was removed from this node, it is deleted automatically, so try again in a moment; if not, choose another pool, or forget that one"
    )]
    OldCopy {
        /// The volume's name.
        volume: String,
        /// The pool that holds it.
        pool: String,
    },
    /// Somebody else has changed the object meanwhile.
    #[error("{what} was changed by someone else in the meantime: check it and try again")]
    Changed {
        /// A name, or a key of the cluster's record.
        what: String,
    },
    /// A node continued alone with the volume.
    #[error("a node has continued alone with volume {volume:?}: resolve that first")]
    Forked {
        /// The volume's name.
        volume: String,
    },
    /// The node cannot serve the data of the volume that it wrote alone.
    #[error(
        "node {node} could not serve its data of volume {volume:?}: its copy is not open, one of its disks has failed, or it does not know of the split brain yet (see `ursa volume show {volume}` and the node's log)"
    )]
    ForkUnwell {
        /// The volume's name.
        volume: String,
        /// The node.
        node: u16,
    },
    /// Earlier changes come first.
    #[error("an earlier change on it is still in progress: see `ursa job list`, and try again")]
    Busy,
    /// It has begun, and continues.
    #[error("it has not finished in time and continues: see `ursa job list`")]
    Unfinished,
    /// It needed a third node, which is unreachable or did not respond.
    #[error("it got no answer from node {node}")]
    NodeSilent {
        /// The third node.
        node: u16,
    },
    /// It needed a third node, which refused.
    #[error("node {node}: {reason}")]
    ByNode {
        /// The third node.
        node: u16,
        /// Why.
        reason: Box<Refused>,
    },
    /// Something else went wrong; its log says what.
    #[error("it failed: its log says why")]
    Failed,
}

impl From<ControlError> for Refused {
    fn from(error: ControlError) -> Refused {
        use ControlError as E;
        match error {
            E::NoCluster | E::ClusterFailed(_) => Refused::NotInCluster,
            E::NotFound { kind, name } => Refused::NotFound { kind: kind.to_owned(), name },
            E::Exists { kind, name } => Refused::Exists { kind: kind.to_owned(), name },
            E::ChoosePool(pools) => Refused::SeveralPools { pools },
            E::NoPool => Refused::NoPool,
            E::PoolClosed(pool, _) | E::PoolOpening { name: pool, .. } => Refused::PoolNotOpen { pool },
            E::HasCopy { volume, .. } => Refused::HasCopy { volume },
            E::OldCopy { volume, pool } => Refused::OldCopy { volume, pool },
            E::Forked(volume) => Refused::Forked { volume },
            E::ForkUnwell { volume, node } => Refused::ForkUnwell { volume, node },
            E::Busy { .. } => Refused::Busy,
            E::Unfinished(_) => Refused::Unfinished,
            E::Cluster(error) => of_cluster(error),
            E::Store(error) => of_pool(error),
            other => failed(&other),
        }
    }
}

fn of_cluster(error: ClusterError) -> Refused {
    match error {
        ClusterError::Conflict(what) => Refused::Changed { what },
        ClusterError::Record(_) | ClusterError::Moving => Refused::RecordSilent,
        ClusterError::Unreached(node) | ClusterError::Unanswered { node, .. } => {
            Refused::NodeSilent { node: node.0 }
        }
        ClusterError::Refused { node, reason } => Refused::ByNode { node: node.0, reason: Box::new(reason) },
        other @ (ClusterError::Unreadable(_) | ClusterError::Strange(_)) => failed(&other),
    }
}

fn of_pool(error: StoreError) -> Refused {
    match error {
        StoreError::NoSpace { wanted, free } => Refused::NoSpace { wanted: wanted.0, free: free.0 },
        StoreError::NoMemory { wanted, free } => Refused::NoMemory { wanted: wanted.0, left: free.0 },
        StoreError::Disk { path, source: DiskError::Full } => {
            Refused::FileSystemFull { path: path.display().to_string() }
        }
        StoreError::Disk { path, .. } => Refused::DiskFailed { path: path.display().to_string() },
        StoreError::MetadataReadOnly(_) => Refused::PoolReadOnly,
        StoreError::MetadataFull { .. } | StoreError::LuStateTooLarge(_) => Refused::MetadataFull,
        StoreError::TooManyVolumes(volumes) => Refused::TooManyVolumes { volumes },
        StoreError::NameTaken(name) => Refused::Exists { kind: "volume".to_owned(), name },
        other => failed(&other),
    }
}

/// The node that asked learns only that this failed.
fn failed(error: &(dyn Error + 'static)) -> Refused {
    tracing::warn!(error, "what another node asked for failed");
    Refused::Failed
}

#[cfg(test)]
mod tests {
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
    fn a_code_of_a_later_version_is_not_mistaken_for_a_known_one() {
        assert!(serde_json::from_str::<Refused>(r#""a-later-code""#).is_err());
        assert!(serde_json::from_str::<Refused>(r#"{"busy":"a sentence"}"#).is_err());
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
