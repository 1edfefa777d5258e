//! Why a change was refused, and what to do about it.

use std::net::SocketAddr;
use std::time::Duration;

use base::ByteLen;
use rt::DiskError;
use store::{SliceError, StoreError};

use super::change::{ChangeStatus, Work};
use super::cluster::EnterError;
use super::members::JoinRefusal;
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
    #[error("{kind} {name:?} not found: `ursa {kind} list` shows what exists")]
    NotFound { kind: &'static str, name: String },
    #[error("{kind} {name:?} already exists: choose another name")]
    Exists { kind: &'static str, name: String },
    /// The name is not valid.
    #[error(transparent)]
    Name(#[from] InvalidName),
    #[error("{field}: {reason}")]
    Invalid { field: &'static str, reason: &'static str },
    #[error(
        "volume {volume:?} is LUN {lun} of target {target}: unmap it with `ursa map delete {target} {lun}`, or delete with --force"
    )]
    Mapped { volume: String, target: String, lun: u16 },
    #[error(
        "volume {volume:?} of pool {pool:?} is LUN {lun} of target {target}: delete the map first (`ursa map delete {target} {lun}`)"
    )]
    MappedInPool { pool: String, volume: String, target: String, lun: u16 },
    #[error("target {target} has {luns} LUNs: unmap them first, or delete with --force")]
    HasLuns { target: String, luns: usize },
    #[error("host group {host:?} is used by target {target}: delete that map first")]
    HostInUse { host: String, target: String },
    #[error(
        "this node cannot read {kind} {name:?} in the cluster's record, because a later version of ursa wrote it, and does not change it: run the command on a node of that version"
    )]
    EntryUnreadable { kind: &'static str, name: String },
    #[error("a user already exists: log in, or have an administrator create another user")]
    SetUpAlready,
    #[error("user {0:?} is the only administrator: create another one first")]
    LastAdmin(String),
    #[error("limit reached: at most {most} {kind}s; delete unused ones")]
    TooMany { kind: &'static str, most: usize },
    #[error("host group {0:?} is built in and cannot be changed: create a host group of your own")]
    BuiltIn(String),
    #[error(
        "LUN {lun} of target {target} is already used for host group {host:?}: choose another LUN, or omit it"
    )]
    LunTaken { lun: u16, target: String, host: String },
    #[error("target {0} has no free LUN (0 to {max}): use another target", max = LUN_MAX)]
    NoLunFree(String),
    #[error("this node has several pools: choose one with --pool ({0})")]
    ChoosePool(String),
    #[error("the cluster's record is in etcd, where nodes have no votes: {what}; {instead}")]
    RecordInEtcd { what: &'static str, instead: &'static str },
    #[error("no pool exists yet: create one with `ursa pool create`")]
    NoPool,
    #[error("pool {0:?} is open and working: close it with `ursa pool export`")]
    PoolOpen(String),
    #[error(
        "another pool named {0:?} exists on this node and is not open: choose another name with --name, reopen that pool (`ursa pool reopen {0}`), or forget it (`ursa pool forget {0}`)"
    )]
    PoolOfThatName(String),
    #[error(
        "these disks hold pool {0:?}, which this node already has: they are an image of it, or other paths to its disks; to use them instead, first export that pool (`ursa pool export {0}`) or, if it is not open, forget it (`ursa pool forget {0}`)"
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
        "pool {name:?} is not open yet: its disks have not responded for {} seconds; it opens when they do", .since.as_secs()
    )]
    PoolOpening { name: String, since: Duration },
    #[error(
        "the reservations of volume {0:?} cannot be read: they are damaged, or a newer version of ursa wrote them. The volume is not served, because hosts that were fenced off could write to it: start the newest version that has served it; or, if no host relies on reservations, copy the data to a new volume and delete this one"
    )]
    LuStateUnreadable(String),
    #[error("pool {0:?} is not open: {1}")]
    PoolClosed(String, String),
    #[error("volume {volume:?} has {from} and would lose data at {to}: volumes can only grow")]
    WouldShrink { volume: String, from: ByteLen, to: ByteLen },
    #[error(
        "volume {0:?} is too small to use all of its slices and cannot grow with its copies: create a larger volume and copy the data"
    )]
    TooSmallToGrow(String),
    #[error("{work} was not started: {first} comes first and waits for {waits_for}", first = .first.work, waits_for = .first.waits_for)]
    Busy { work: Work, first: Box<ChangeStatus> },
    #[error(
        "{work} has not finished within {seconds} seconds and continues: it waits for {waits_for}; `ursa status` shows whether it still does",
        work = .0.work, seconds = .0.age.as_secs(), waits_for = .0.waits_for
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
    ClusterFailed(String),
    #[error(
        "this node is an active member of its cluster: to remove it, run `ursa node remove {0}` on another node"
    )]
    TakesPart(u16),
    #[error("this node is alone in its cluster: there is no other node that it could leave")]
    OnlyNode,
    #[error("no other node can join this one: `ursa node init` lets it listen for other nodes")]
    NotListening,
    #[error(
        "volume {volume:?} cannot have a node continue alone: that is for two nodes without a witness and a volume with a copy on each ({nodes} nodes, {copies} copies here); with three nodes a majority continues, without that risk"
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
    #[error(
        "node {0} cannot take a copy: it is down, in maintenance, a witness, or not in the cluster (`ursa node list`)"
    )]
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
        "the copy of volume {volume:?} on node {node} is in sync by now: remove it with `ursa volume copy remove`"
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
    #[error(
        "volume {0:?} is not a log volume, and only these have snapshots: convert it first (`ursa volume convert {0} --kind log`)"
    )]
    NoSnapshotsOfKind(String),
    #[error("the snapshot was not taken: volume {volume:?}{}: {obstacle}", on(*node))]
    SnapshotNotTaken { volume: String, node: Option<u16>, obstacle: SnapshotObstacle },
    #[error(
        "the snapshot was not taken: commands of hosts would have been held for more than {limit_ms} ms; try again when disks and links are less busy"
    )]
    SnapshotTooSlow { limit_ms: u64 },
    #[error("snapshot {0:?} is on hold: release it first (`ursa snapshot release {0}`)")]
    SnapshotHeld(String),
    #[error("snapshot {0:?} is being taken: try again in a moment")]
    SnapshotPreparing(String),
    #[error(
        "volume {volume:?} has {count} snapshots: delete them first (`ursa snapshot list {volume}` lists them, `ursa snapshot delete` deletes them)"
    )]
    HasSnapshots { volume: String, count: usize },
    #[error(
        "only the copy on node {node} has snapshot {snapshot:?} of volume {volume:?}: keep the copy, or delete the snapshot first (`ursa snapshot delete {snapshot}`)"
    )]
    OnlyCopyOfSnapshot { volume: String, node: u16, snapshot: String },
    #[error("volume {volume:?} cannot be scrubbed now: {reason}")]
    NotScrubbable { volume: String, reason: &'static str },
    /// The node could not join a cluster.
    #[error(transparent)]
    Join(Box<link::JoinError>),
    #[error("the member at {address} refused: {reason}")]
    JoinRefused { address: SocketAddr, reason: JoinRefusal },
    #[error(
        "this node does not hold the cluster CA key: create the token on the node that created the cluster"
    )]
    NoAuthority,
    #[error(
        "this node has too many targets, host groups and volumes to join a cluster with them: delete unused ones, or create the cluster on this node and let the other node join"
    )]
    TooMuchToMerge,
    #[error(
        "the targets or host groups of this node were changed while it joined, so it has not joined: create a new token, and try again"
    )]
    ChangedWhileJoining,
    #[error("node {node} has a copy of volume {volume:?}: move or remove that copy first")]
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
