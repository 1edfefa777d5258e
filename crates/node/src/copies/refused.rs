//! Why a node did not do what another node asked it for.
//!
//! Nodes send each other codes and facts. The words are added by the node that shows them: the two may run
//! different versions.

use base::ByteLen;
use serde::{Deserialize, Serialize};

use super::snapshot::SnapshotObstacle;

/// Why a node did not do what another node asked it for. Nothing was done, except after
/// [`Refused::Unfinished`], [`Refused::RecordSilent`], [`Refused::ByNode`] and [`Refused::Failed`].
///
/// `wanted`, `free` and `left` are bytes; `node` is the number of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
#[serde(rename_all = "kebab-case")]
pub enum Refused {
    #[error("it is starting: try again in a moment")]
    Starting,
    #[error("its version does not know this request")]
    UnknownRequest,
    #[error("it does not take part in its cluster now: see `ursa status` on it")]
    NotInCluster,
    #[error("it has not caught up with the cluster's record")]
    RecordBehind,
    #[error("the cluster's record did not respond, or did not accept the change")]
    RecordSilent,
    #[error("it does not know this volume ID")]
    NoVolumeId,
    #[error("its copy is gone, or the copy's pool is not open")]
    CopyGone,
    #[error("it is already carrying out {most} requests for other nodes, or is stopping")]
    TooManyRequests { most: usize },
    #[error("{kind} {name:?} not found")]
    NotFound { kind: String, name: String },
    #[error("{kind} {name:?} already exists: choose another name")]
    Exists { kind: String, name: String },
    #[error("it has several pools: choose one with --pool ({pools})")]
    SeveralPools { pools: String },
    #[error("it has no pool: create one with `ursa pool create`")]
    NoPool,
    #[error("pool {pool:?} is not open")]
    PoolNotOpen { pool: String },
    #[error("its pool is locked: a metadata write failed. Repair the disk and reopen the pool")]
    PoolReadOnly,
    #[error("not enough space: {} requested, {} free", ByteLen(*wanted), ByteLen(*free))]
    NoSpace { wanted: u64, free: u64 },
    #[error("the file system of {path} is full")]
    FileSystemFull { path: String },
    #[error("not enough memory for RAM volumes: {} requested, {} left", ByteLen(*wanted), ByteLen(*left))]
    NoMemory { wanted: u64, left: u64 },
    #[error("its pool has {volumes} volumes and can hold no more")]
    TooManyVolumes { volumes: usize },
    #[error("its pool's metadata area is full: remove reservations or volumes")]
    MetadataFull,
    #[error("{path} failed")]
    DiskFailed { path: String },
    #[error("it already has a copy of volume {volume:?}")]
    HasCopy { volume: String },
    #[error(
        "an older copy of volume {volume:?} is still in pool {pool:?}: if it was removed from this node, it is deleted automatically, so try again in a moment; if not, choose another pool, or forget that one"
    )]
    OldCopy { volume: String, pool: String },
    #[error("{what} was changed by someone else in the meantime: check it and try again")]
    Changed { what: String },
    #[error("a node has continued alone with volume {volume:?}: resolve that first")]
    Forked { volume: String },
    #[error(
        "node {node} could not serve its data of volume {volume:?}: its copy is not open, one of its disks has failed, or it does not know of the split brain yet (see `ursa volume show {volume}` and the node's log)"
    )]
    ForkUnwell { volume: String, node: u16 },
    #[error("no snapshot of volume {volume:?}: {obstacle}")]
    NoSnapshot { volume: String, obstacle: SnapshotObstacle },
    #[error("commands of hosts could not be held in time")]
    SnapshotTooSlow,
    #[error("an earlier change on it is still in progress: see `ursa job list`, and try again")]
    Busy,
    #[error("it has not finished in time and continues: see `ursa job list`")]
    Unfinished,
    #[error("it got no answer from node {node}")]
    NodeSilent { node: u16 },
    #[error("node {node}: {reason}")]
    ByNode { node: u16, reason: Box<Refused> },
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
