//! Why a node did not do what another node asked it for.
//!
//! Nodes send each other codes and facts. The words are added by the node that shows them: the two may run
//! different versions.

use base::ByteLen;
use serde::{Deserialize, Serialize};

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
        /// What, as in `ControlError::NotFound`.
        kind: String,
        /// Its name.
        name: String,
    },
    /// The name is taken.
    #[error("{kind} {name:?} already exists: choose another name")]
    Exists {
        /// What, as in `ControlError::Exists`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_of_a_later_version_is_not_mistaken_for_a_known_one() {
        assert!(serde_json::from_str::<Refused>(r#""a-later-code""#).is_err());
        assert!(serde_json::from_str::<Refused>(r#"{"busy":"a sentence"}"#).is_err());
    }
}
