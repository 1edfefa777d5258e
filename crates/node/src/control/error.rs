//! Why a change was refused.
//!
//! What to do about it is in [`super::hint`]. The server adds status and code:
//! `server/src/http/refusal/control.rs`.

use std::net::SocketAddr;

use base::ByteLen;
use rt::DiskError;
use store::{SliceError, StoreError};

use super::change::{ChangeStatus, Work};
use super::cluster::{ClusterFault, EnterError};
use super::members::JoinRefusal;
use super::pools::NotOpen;
use super::scrubbing::Unscrubbable;
use super::snapshots::CopyUnread;
use crate::attach::access::{InvalidName, LUN_MAX};
use crate::copies::SnapshotObstacle;
use crate::member::ClusterError;
use crate::record::RecordError;
use crate::shard::SilentCore;

/// What a request to the control returns.
pub(crate) type Result<T, E = ControlError> = std::result::Result<T, E>;

/// A change was refused. Except for [`ControlError::Unfinished`], nothing was changed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum ControlError {
    #[error("{kind} {name:?} not found")]
    NotFound { kind: &'static str, name: String },
    #[error("{kind} {name:?} already exists")]
    Exists { kind: &'static str, name: String },
    /// The name is not valid.
    #[error(transparent)]
    Name(#[from] InvalidName),
    #[error("{field}: {reason}")]
    Invalid { field: &'static str, reason: &'static str },
    #[error("volume {volume:?} is LUN {lun} of target {target}")]
    Mapped { volume: String, target: String, lun: u16 },
    #[error("volume {volume:?} of pool {pool:?} is LUN {lun} of target {target}")]
    MappedInPool { pool: String, volume: String, target: String, lun: u16 },
    #[error("target {target} still has LUN maps ({luns})")]
    HasLuns { target: String, luns: usize },
    #[error("host group {host:?} is used by a LUN map of target {target}")]
    HostInUse { host: String, target: String },
    #[error(
        "this node cannot read {kind} {name:?} in the cluster's record: a later version of ursa wrote it; it is left unchanged"
    )]
    EntryUnreadable { kind: &'static str, name: String },
    #[error("a user already exists: log in, or have an administrator create another user")]
    SetUpAlready,
    #[error("user {0:?} is the only administrator: create another one first")]
    LastAdmin(String),
    #[error("limit reached: at most {most} {kind}s; delete unused ones")]
    TooMany { kind: &'static str, most: usize },
    #[error("host group {0:?} is built in and cannot be changed")]
    BuiltIn(String),
    #[error("LUN {lun} of target {target} is already in use for host group {host:?}")]
    LunTaken { lun: u16, target: String, host: String },
    #[error("target {0} has no free LUN (0 to {max}): use another target", max = LUN_MAX)]
    NoLunFree(String),
    #[error("several pools exist ({0}), and none was given")]
    ChoosePool(String),
    #[error("the cluster's record is in etcd, where nodes have no votes: {0}")]
    RecordInEtcd(NeedsVotes),
    #[error("no pool exists yet")]
    NoPool,
    #[error("pool {0:?} is open and working")]
    PoolOpen(String),
    #[error("another pool on this node has the name {0:?}; it is not open")]
    PoolOfThatName(String),
    #[error(
        "the disks hold pool {0:?}, which this node already has: they are an image of it, or other paths to its disks"
    )]
    PoolHereAlready(String),
    #[error(
        "volume {volume:?} is a RAM volume, and no other node has a copy of it in sync: reopening pool {pool:?} would lose its data; wait until another copy is in sync, add one (`ursa volume copy add {volume} --on NODE`), or delete the volume"
    )]
    OnlyInMemory { pool: String, volume: String },
    #[error("pool {0:?} is working: no need to reopen it")]
    PoolWorks(String),
    #[error("pool {0:?} has no volume whose only copy in sync was set back: nothing to accept")]
    NothingOlder(String),
    #[error(
        "the reservations of volume {0:?} cannot be read: they are damaged, or a newer version of ursa wrote them. The volume is not served, because hosts that were fenced off could write to it: start the newest version that has served it; or, if no host relies on reservations, copy the data to a new volume and delete this one"
    )]
    LuStateUnreadable(String),
    #[error("pool {0:?} is not open: {1}")]
    PoolClosed(String, NotOpen),
    #[error("volume {volume:?} has {from}: shrinking it to {to} would lose data")]
    WouldShrink { volume: String, from: ByteLen, to: ByteLen },
    #[error(
        "volume {0:?} is too small to use all of its slices and cannot grow with its copies: create a larger volume and copy the data"
    )]
    TooSmallToGrow(String),
    #[error("{work} was not started: {first} comes first and waits for {waits_for}", first = .first.work, waits_for = .first.waits_for)]
    Busy { work: Work, first: Box<ChangeStatus> },
    #[error(
        "{work} has not finished within {seconds} seconds and continues: {stage}",
        work = .0.work, seconds = .0.age.as_secs(), stage = .0.stage()
    )]
    Unfinished(Box<ChangeStatus>),
    /// A core does not respond.
    #[error(transparent)]
    Core(#[from] SilentCore),
    #[error("cannot listen for iSCSI at {0}")]
    Listen(SocketAddr, #[source] std::io::Error),
    /// The node could not enter a cluster, or continue in it.
    #[error(transparent)]
    Enter(Box<EnterError>),
    #[error("this node cannot take part in its cluster now: {0}")]
    ClusterFailed(ClusterFault),
    #[error("this node is an active member of its cluster")]
    TakesPart(u16),
    #[error("this is the only node of its cluster: it has nothing to leave")]
    OnlyNode,
    #[error("no other node can join this one")]
    NotListening,
    #[error(
        "no node can continue alone with volume {volume:?}: this requires two nodes without a witness, and a copy on each (nodes here: {nodes}, copies: {copies}); with three nodes a majority continues, without the risk of a split brain"
    )]
    NotOfTwo { volume: String, nodes: usize, copies: usize },
    #[error("nothing to resolve for volume {0:?}: no node has continued alone with it")]
    NoFork(String),
    #[error(
        "a node has continued alone with volume {0:?}: resolve that first (`ursa volume show {0}` says how), then try again"
    )]
    Forked(String),
    #[error(
        "node {node} continues alone with volume {volume:?} and resolves that automatically when it reaches the cluster's record: no action is needed unless `ursa volume show {volume}` then reports a split brain"
    )]
    NotSplitYet { volume: String, node: u16 },
    #[error(
        "copies were added to volume {volume:?} after the split brain: the data of node {node} can be kept only together with one other copy; remove the extra copies with `ursa volume copy remove {volume} --on NODE`, then try again"
    )]
    SplitAmongMore { volume: String, node: u16 },
    #[error(
        "node {node} could not serve its data of volume {volume:?}: its copy is not open, one of its disks has failed, or it does not know of the split brain yet (see `ursa volume show {volume}` and the node's log); nothing was changed"
    )]
    ForkUnwell { volume: String, node: u16 },
    #[error("{}", too_few(*wanted, *there, refused))]
    Copies { wanted: usize, there: usize, refused: Vec<ClusterError> },
    #[error("node {0} cannot take a copy")]
    NodeNotThere(u16),
    #[error("node {node} already has a copy of volume {volume:?}: see `ursa volume show {volume}`")]
    HasCopy { volume: String, node: u16 },
    #[error("node {node} has no copy of volume {volume:?}: see `ursa volume show {volume}`")]
    HasNoCopy { volume: String, node: u16 },
    #[error("the cluster's record has not registered this start of the node yet")]
    LifeUnknown,
    #[error(
        "pool {pool:?} was set back to an older state, and no other copy of volume {volume:?} is in sync: put the newer disks back, bring back the node with the other copy, or accept the older data with `ursa pool accept-older {pool}`"
    )]
    OnlyOlder { volume: String, pool: String },
    #[error(
        "a part of volume {volume:?} in pool {pool:?} cannot be opened: {source}. Check the pool's disks with `ursa pool show {pool}`, then run `ursa pool reopen {pool}`; if that does not help, rebuild this node's copy in another pool with `ursa volume copy rebuild`, or restore the volume from a backup if it has no other copy"
    )]
    SliceUnopened { volume: String, pool: String, source: SliceError },
    #[error(
        "a part of volume {volume:?} in pool {pool:?} cannot be opened: a log of the pool lacks acknowledged writes, because a disk could not read a part of it. The copies in that log are fully resynced automatically, and lose their snapshots, as soon as each of their volumes has another copy in sync that is up, and each of their snapshots is on another copy, too: bring back the nodes with these copies, delete snapshots that only this node has, or make the disk readable and run `ursa pool reopen {pool}`. If a volume in the log has no other copy, restore it from a backup and delete it here, or rebuild the copies of the other volumes in another pool with `ursa volume copy rebuild`"
    )]
    LogDamaged { volume: String, pool: String },
    #[error(
        "an older copy of volume {volume:?} is still in pool {pool:?}: if it was removed from this node, it is deleted automatically, so try again in a moment; if not, choose another pool, or forget that one"
    )]
    OldCopy { volume: String, pool: String },
    #[error(
        "pools {pools} of this node all hold volume {volume:?}, and it is unknown which one has its current data: unmap it on all hosts (`ursa map delete`), then export all other pools (`ursa pool export`)"
    )]
    InSeveralPools { volume: String, pools: String },
    #[error("volume {0:?} has four copies, the maximum: remove one first (`ursa volume copy remove`)")]
    FourCopies(String),
    #[error(
        "the copy on node {node} is the only copy of volume {volume:?} in sync: wait until another one is in sync (`ursa volume show {volume}`), or delete the volume"
    )]
    OnlyInSync { volume: String, node: u16 },
    #[error(
        "the copy of volume {volume:?} on node {node} is not resyncing: it is in sync, or is being removed"
    )]
    NothingToPause { volume: String, node: u16 },
    #[error(
        "the copy of volume {volume:?} on node {node} is already in sync: remove it with `ursa volume copy remove`"
    )]
    CopyInSync { volume: String, node: u16 },
    #[error("no copy of volume {volume:?} on this node; run the command on node {node}")]
    ElsewhereOnly { volume: String, node: u16 },
    /// The cluster's record does not list the volume: it has another one of that name, or this node has not
    /// added the volume yet.
    #[error(
        "volume {0:?} is not in the cluster's record: if another volume has its name, rename it first (`ursa volume rename`); if not, try again in a moment"
    )]
    NotReplicated(String),
    #[error("volume {0:?} is not a log volume, and only these have snapshots")]
    NoSnapshotsOfKind(String),
    #[error("the snapshot was not taken: volume {volume:?}{}: {obstacle}", on(*node))]
    SnapshotNotTaken { volume: String, node: Option<u16>, obstacle: SnapshotObstacle },
    #[error(
        "the snapshot was not taken: commands of hosts would have been held for more than {limit_ms} ms; try again when disks and links are less busy"
    )]
    SnapshotTooSlow { limit_ms: u64 },
    #[error("nothing was restored: volume {volume:?}{}: {obstacle}", on(*node))]
    NotRestored { volume: String, node: Option<u16>, obstacle: SnapshotObstacle },
    #[error(
        "nothing was restored: what hosts were writing could not be completed within {limit_ms} ms; try again when disks and links are less busy"
    )]
    RestoreTooSlow { limit_ms: u64 },
    #[error(
        "the volumes are still being restored, and hosts wait: a copy in sync cannot be restored now. It continues automatically; {0:?} in `ursa snapshot list` shows when it is complete"
    )]
    RestoreUnfinished(String),
    #[error("snapshot {snapshot:?} has nothing of volume {volume:?}")]
    NotInSnapshot { volume: String, snapshot: String },
    #[error(
        "the copy of volume {volume:?} on node {node} is in sync, and does not have snapshot {snapshot:?}: it was added or resynced later"
    )]
    CopyLacksSnapshot { volume: String, node: u16, snapshot: String },
    #[error("no copy of volume {volume:?} has snapshot {snapshot:?}")]
    NoCopyHasSnapshot { volume: String, snapshot: String },
    #[error("snapshot {snapshot:?} of volume {volume:?} cannot be read now: {}", of_nodes(nodes))]
    SnapshotUnread { volume: String, snapshot: String, nodes: Vec<(u16, CopyUnread)> },
    #[error("no copy of volume {volume:?} has both snapshot {since:?} and snapshot {snapshot:?}")]
    NoCopyHasBoth { volume: String, since: String, snapshot: String },
    #[error("the snapshots were not compared: volume {volume:?} on node {node}: {obstacle}")]
    NotCompared { volume: String, node: u16, obstacle: SnapshotObstacle },
    #[error("volumes are being restored to snapshot {0:?}")]
    SnapshotRestored(String),
    #[error("no clone was created: volume {volume:?}{}: {obstacle}", on(*node))]
    NotCloned { volume: String, node: Option<u16>, obstacle: SnapshotObstacle },
    #[error("{created} of {wanted} clones were created")]
    ClonesIncomplete { created: usize, wanted: usize, source: Box<ControlError> },
    #[error("snapshot {snapshot:?} has clones ({count})")]
    SnapshotHasClones { snapshot: String, count: usize },
    #[error("volume {clone:?} is a clone of a snapshot of volume {volume:?}")]
    HasClones { volume: String, clone: String },
    #[error(
        "the copy of volume {clone:?} on node {node} is read through a snapshot in the copy of volume {volume:?} there: delete the clone, or first remove or move its copy (`ursa volume copy remove {clone} --on {node}`)"
    )]
    ReadByClone { volume: String, node: u16, clone: String },
    #[error("snapshot {0:?} is on hold")]
    SnapshotHeld(String),
    #[error("snapshot {0:?} is being taken")]
    SnapshotPreparing(String),
    #[error("volume {volume:?} has snapshots ({count})")]
    HasSnapshots { volume: String, count: usize },
    #[error(
        "only the copy on node {node} has snapshot {snapshot:?} of volume {volume:?}: keep the copy, or delete the snapshot first (`ursa snapshot delete {snapshot}`)"
    )]
    OnlyCopyOfSnapshot { volume: String, node: u16, snapshot: String },
    #[error("volume {volume:?} cannot be scrubbed now: {reason}")]
    NotScrubbable { volume: String, reason: Unscrubbable },
    /// The node could not join a cluster.
    #[error(transparent)]
    Join(Box<link::JoinError>),
    #[error("the member at {address} refused: {reason}")]
    JoinRefused { address: SocketAddr, reason: JoinRefusal },
    #[error("no node of the cluster is known to hold the cluster CA key")]
    NoAuthority,
    #[error(
        "too many targets, host groups, users, API tokens and volumes to merge with those of the cluster: delete unused ones, or create the cluster on this node and let the other node join"
    )]
    TooMuchToMerge,
    #[error(
        "targets, host groups, users, API tokens or floating IPs of this node were changed while it joined, so it has not joined: create a new token, and try again"
    )]
    ChangedWhileJoining,
    #[error("node {node} has a copy of volume {volume:?}")]
    NodeHasCopies { node: u16, volume: String },
    #[error(
        "without node {0} there would be no quorum, and nothing could be changed: bring back the nodes whose votes are missing first (`ursa node list`)"
    )]
    NodeNeeded(u16),
    #[error(
        "the cluster is working: a majority of the voters is reachable, so there is nothing to force (`ursa node list`)"
    )]
    ClusterWorks,
    #[error(
        "node {0} is up: only the last surviving node can be forced into a new cluster; bring back a majority of the voters, or stop node {0} for good"
    )]
    NodeIsThere(u16),
    #[error("this node was still catching up with the cluster's record")]
    RecordBehind,
    /// The cluster refused.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("{0}: this is a bug in Ursa, please report it")]
    Internal(&'static str),
    /// The pool refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The record refused.
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// What replaces the nodes' votes if the record is in etcd.
const ETCD_VOTES: &str =
    "if either of two nodes is lost, the other one continues as long as etcd is available";

/// What needs the nodes' votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum NeedsVotes {
    #[error(
        "a node cannot be forced into a new cluster; volumes keep running without etcd; if it is lost for good, restore it from its newest backup (see docs/use/cluster.md)"
    )]
    NewCluster,
    #[error("no node continues alone; {ETCD_VOTES}")]
    ContinuingAlone,
    #[error("no preferred node is needed; {ETCD_VOTES}")]
    PreferredNode,
    #[error("a witness is not needed; {ETCD_VOTES}")]
    Witness,
}

impl From<EnterError> for ControlError {
    fn from(error: EnterError) -> ControlError {
        ControlError::Enter(Box::new(error))
    }
}

impl From<link::JoinError> for ControlError {
    fn from(error: link::JoinError) -> ControlError {
        ControlError::Join(Box::new(error))
    }
}

impl ControlError {
    /// The error for an object of this kind and name that does not exist.
    pub fn not_found(kind: &'static str, name: &str) -> ControlError {
        ControlError::NotFound { kind, name: name.to_owned() }
    }

    /// Whether a slice of a volume could not be opened.
    pub fn is_of_slice(&self) -> bool {
        matches!(self, ControlError::SliceUnopened { .. } | ControlError::LogDamaged { .. })
    }

    /// Whether the error comes from a failed disk, or from metadata that has been read-only since a disk
    /// failed.
    ///
    /// A full file system does not count as a failed disk.
    pub fn is_of_disk(&self) -> bool {
        match self {
            ControlError::Store(StoreError::Disk { source, .. }) => !matches!(source, DiskError::Full),
            ControlError::Store(StoreError::MetadataReadOnly(_)) => true,
            _ => false,
        }
    }
}

fn on(node: Option<u16>) -> String {
    node.map(|node| format!(" on node {node}")).unwrap_or_default()
}

fn of_nodes(nodes: &[(u16, CopyUnread)]) -> String {
    let all: Vec<String> = nodes.iter().map(|(node, reason)| format!("node {node}: {reason}")).collect();
    all.join("; ")
}

fn too_few(wanted: usize, there: usize, refused: &[ClusterError]) -> String {
    let asked = format!(
        "a volume has one to four copies, each on a different node: {wanted} requested, {there} available"
    );
    match refused {
        [] => format!("{asked} (`ursa node list`)"),
        refused => {
            let why: Vec<String> = refused.iter().map(ToString::to_string).collect();
            format!("{asked}. {}", why.join("; "))
        }
    }
}
