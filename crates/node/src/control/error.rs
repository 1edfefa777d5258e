//! Why a change was refused, and what to do.

use std::net::SocketAddr;
use std::time::Duration;

use base::ByteLen;
use rt::DiskError;
use store::StoreError;

use super::change::{ChangeStatus, Work};
use super::cluster::EnterError;
use crate::access::{InvalidName, LUN_MAX};
use crate::copies::ClusterError;
use crate::record::RecordError;
use crate::shard::SilentCore;

/// A change was refused. Nothing was changed, but by [`ControlError::Unfinished`].
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// There is no such object.
    #[error("there is no {kind} {name:?}: `ursa {kind} list` shows those that exist")]
    NotFound {
        /// "volume", "pool", "target", "host".
        kind: &'static str,
        /// What was asked for.
        name: String,
    },
    /// The name is taken.
    #[error("{kind} {name:?} exists already: choose another name")]
    Exists {
        /// What.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A name is none.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// A field has a value that cannot be.
    #[error("{field}: {reason}")]
    Invalid {
        /// Which field.
        field: &'static str,
        /// What is wrong, and what would be right.
        reason: &'static str,
    },
    /// The volume is mapped.
    #[error(
        "volume {volume:?} is LUN {lun} of target {target}: take it away with `ursa map delete {target} {lun}`, or delete with --force"
    )]
    Mapped {
        /// The volume's name.
        volume: String,
        /// One of the targets.
        target: String,
        /// Its LUN there.
        lun: u16,
    },
    /// The pool to be closed has a volume that is mapped.
    #[error(
        "volume {volume:?} of pool {pool:?} is LUN {lun} of target {target}: delete the map first (`ursa map delete {target} {lun}`)"
    )]
    MappedInPool {
        /// The pool.
        pool: String,
        /// The volume's name.
        volume: String,
        /// One of the targets.
        target: String,
        /// Its LUN there.
        lun: u16,
    },
    /// The target has LUNs.
    #[error("target {target} has {luns} LUNs: take them away first, or delete with --force")]
    HasLuns {
        /// The target.
        target: String,
        /// How many.
        luns: usize,
    },
    /// The host group is used by a map.
    #[error("host {host:?} is used by target {target}: delete that map first")]
    HostInUse {
        /// The host group.
        host: String,
        /// A target that names it.
        target: String,
    },
    /// A later version has written it into the cluster's record.
    #[error(
        "this node cannot read what the cluster's record has of {kind} {name:?}, since a later version of ursa has written it, and leaves it as it is: ask a node of that version"
    )]
    EntryUnreadable {
        /// What.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// Somebody was first.
    #[error("there is a user already: log in, or let an administrator make another user")]
    SetUpAlready,
    /// Nobody could make users any more.
    #[error("user {0:?} is the only administrator: make another one first")]
    LastAdmin(String),
    /// There are enough of them.
    #[error("there are {most} of the kind {kind} already, which is the most: delete some that are not used")]
    TooMany {
        /// What.
        kind: &'static str,
        /// How many there may be.
        most: usize,
    },
    /// `any` and `local` are always there.
    #[error("host {0:?} is built in and cannot be changed: make a host of your own")]
    BuiltIn(String),
    /// The LUN is taken for this host.
    #[error("LUN {lun} of target {target} is taken for host {host:?}: choose another LUN or name none")]
    LunTaken {
        /// The number.
        lun: u16,
        /// The target.
        target: String,
        /// The host group.
        host: String,
    },
    /// All LUNs are taken.
    #[error("target {0} has all of its LUNs (0 to {max}): use another target", max = LUN_MAX)]
    NoLunFree(String),
    /// Several pools could be meant.
    #[error("there are several pools: name one with --pool ({0})")]
    ChoosePool(String),
    /// The cluster's record is in etcd.
    #[error("the cluster's record is in etcd, where nodes have no votes: {what}; {instead}")]
    RecordInEtcd {
        /// What does not apply.
        what: &'static str,
        /// What does.
        instead: &'static str,
    },
    /// The newcomer's settings do not name etcd.
    #[error(
        "this cluster has its record in etcd: set `etcd` on the node that is to join, as on the others, start it again, and use the same token"
    )]
    JoinsWithoutEtcd,
    /// The newcomer's settings name etcd.
    #[error(
        "this cluster has its record in its nodes: take `etcd` out of the settings of the node that is to join, start it again, and use the same token"
    )]
    JoinsWithEtcd,
    /// There is no pool.
    #[error("there is no pool yet: make one with `ursa pool create`")]
    NoPool,
    /// The pool is in use.
    #[error("pool {0:?} is open and takes changes: close it with `ursa pool export`")]
    PoolOpen(String),
    /// The name belongs to another pool, which is not open.
    #[error(
        "another pool is called {0:?} here, which is not open: choose another name with --name, or bring that one back (`ursa pool reopen {0}`) or give it up (`ursa pool forget {0}`)"
    )]
    PoolOfThatName(String),
    /// Reopening the pool would lose the only good copy of a volume.
    #[error(
        "volume {volume:?} is in memory, and no other node has a copy of it in sync: it would be lost with the reopening of pool {pool:?}; \
         wait until another copy is in sync, make one (`ursa volume copy add {volume} --on NODE`), or delete the volume"
    )]
    OnlyInMemory {
        /// The pool.
        pool: String,
        /// The volume.
        volume: String,
    },
    /// There is no reason to reopen the pool.
    #[error("pool {0:?} works: there is no reason to reopen it")]
    PoolWorks(String),
    /// There is no older data to be accepted.
    #[error("pool {0:?} has no volume whose only copy in sync was set back: there is nothing to accept")]
    NothingOlder(String),
    /// The pool's disks have not answered since the node started.
    #[error(
        "pool {name:?} is not open yet: its disks have not answered for {} seconds; it comes when they do", .since.as_secs()
    )]
    PoolOpening {
        /// The pool.
        name: String,
        /// How long that has been so.
        since: Duration,
    },
    /// What a unit keeps in its pool cannot be read.
    #[error(
        "the reservations of volume {0:?} cannot be read: they are damaged, or a newer version of ursa wrote them. It is not served, because hosts that were fenced off could write to it: start the newest version that has served it; or, when no host relies on reservations, copy the volume's data by a new volume and delete it"
    )]
    LuStateUnreadable(String),
    /// The pool could not be opened when the node started.
    #[error("pool {0:?} is not open: {1}")]
    PoolClosed(String, String),
    /// Volumes do not shrink.
    #[error("volume {volume:?} has {} bytes and would lose data at {}: volumes only grow", .from.0, .to.0)]
    WouldShrink {
        /// The volume.
        volume: String,
        /// What it has.
        from: ByteLen,
        /// What was asked for.
        to: ByteLen,
    },
    /// Some of its slices are empty.
    #[error(
        "volume {0:?} is so small that it does not use all of its slices, and cannot grow with its copies: make a larger one and copy the data"
    )]
    TooSmallToGrow(String),
    /// An earlier change has what this one is about. Nothing was done.
    #[error("{work} was not begun: {first} comes first and waits for {waits_for}", first = .first.work, waits_for = .first.waits_for)]
    Busy {
        /// What was to be done.
        work: Work,
        /// What is being done.
        first: Box<ChangeStatus>,
    },
    /// The change goes on, and nobody waits for it any more.
    #[error(
        "{work} has not ended within {seconds} seconds and goes on: it waits for {waits_for}; `ursa status` shows whether it still does",
        work = .0.work, seconds = .0.age.as_secs(), waits_for = .0.waits_for
    )]
    Unfinished(Box<ChangeStatus>),
    /// A core does not answer.
    #[error(transparent)]
    Core(#[from] SilentCore),
    /// The portal could not be opened.
    #[error("cannot listen for iSCSI at {0}")]
    Listen(SocketAddr, #[source] std::io::Error),
    /// It could not enter a cluster, or go on in it.
    #[error(transparent)]
    Enter(Box<EnterError>),
    /// It is in one, and cannot take part in it.
    #[error("this node cannot take part in its cluster now: {0}")]
    ClusterFailed(String),
    /// It takes part in its cluster, and was to leave it as if it did not.
    #[error("this node takes part in its cluster: on another node, `ursa node remove {0}` takes it out")]
    TakesPart(u16),
    /// The node is in no cluster.
    #[error("this node is in no cluster: make one with `ursa node init`, or join one with `ursa node join`")]
    NoCluster,
    /// Going on alone is for volumes of two nodes.
    #[error(
        "volume {volume:?} cannot be one with which a node goes on alone: that is for two nodes without a witness and a volume with a copy on each ({nodes} nodes, {copies} copies here); of three nodes a majority goes on, which needs no such risk"
    )]
    NotOfTwo {
        /// The volume.
        volume: String,
        /// How many nodes there are.
        nodes: usize,
        /// How many copies it has.
        copies: usize,
    },
    /// No node has gone on alone.
    #[error("there is nothing to decide about volume {0:?}: no node has gone on alone with it")]
    NoFork(String),
    /// A node has gone on alone.
    #[error(
        "a node has gone on alone with volume {0:?}, which is not settled: `ursa volume show {0}` says what to do; then try again"
    )]
    Forked(String),
    /// The node has not been heard by the record since.
    #[error(
        "node {node} goes on alone with volume {volume:?}, and settles that by itself when it reaches the cluster's record: there is something to decide only if `ursa volume show {volume}` says then that the volume is split"
    )]
    NotSplitYet {
        /// The volume.
        volume: String,
        /// The node.
        node: u16,
    },
    /// Others have copies of what the record's side has.
    #[error(
        "volume {volume:?} has got more copies since it was split: what node {node} has can be kept only beside one other; take away what is too much with `ursa volume copy remove {volume} --node N`, then try again"
    )]
    SplitAmongMore {
        /// The volume.
        volume: String,
        /// The node.
        node: u16,
    },
    /// It could not be served.
    #[error(
        "node {node} could not serve what it has of volume {volume:?}: its copy is not open, or one of its disks has failed, or it does not know yet that the volume is split (`ursa volume show {volume}`, and the node's log); nothing was changed"
    )]
    ForkUnwell {
        /// The volume.
        volume: String,
        /// The node.
        node: u16,
    },
    /// There are not as many nodes.
    #[error("{}", too_few(*wanted, *there, refused))]
    Copies {
        /// How many.
        wanted: usize,
        /// How many nodes there are that can take one.
        there: usize,
        /// What the others said.
        refused: Vec<ClusterError>,
    },
    /// A copy cannot be put there.
    #[error(
        "node {0} cannot be given a copy: it is down, in maintenance, a witness, or none of the cluster (`ursa node list`)"
    )]
    NodeNotThere(u16),
    /// It has one.
    #[error("node {node} has a copy of volume {volume:?} already: `ursa volume show {volume}`")]
    HasCopy {
        /// The volume.
        volume: String,
        /// The node.
        node: u16,
    },
    /// It has none.
    #[error("node {node} has no copy of volume {volume:?}: `ursa volume show {volume}`")]
    HasNoCopy {
        /// The volume.
        volume: String,
        /// The node.
        node: u16,
    },
    /// The cluster's record does not know this life of the node yet, so nothing is known of what it has.
    #[error("the cluster's record does not know yet that this node has started")]
    LifeUnknown,
    /// The pool was set back, and there is no other copy in sync.
    #[error(
        "pool {pool:?} was set back to an older state, and no other copy of volume {volume:?} is in sync: put the newer disks back, bring back the node with the other copy, or accept the older data with `ursa pool accept-older {pool}`"
    )]
    OnlyOlder {
        /// The volume.
        volume: String,
        /// The pool that has it.
        pool: String,
    },
    /// A copy that was taken off the node is still there.
    #[error(
        "an older copy of volume {volume:?} is still in pool {pool:?}: it is deleted by itself if it was taken off this node, so try again in a moment; if not, another pool must be chosen, or that one forgotten"
    )]
    OldCopy {
        /// The volume.
        volume: String,
        /// The pool that has it.
        pool: String,
    },
    /// There is no slot.
    #[error(
        "volume {0:?} has four copies, which is all that it can have: take one off its node first (`ursa volume copy remove`)"
    )]
    FourCopies(String),
    /// Nobody would have the data.
    #[error(
        "the copy on node {node} is the only copy of volume {volume:?} in sync: wait until another one is in sync (`ursa volume show {volume}`), or delete the volume"
    )]
    OnlyInSync {
        /// The volume.
        volume: String,
        /// The node.
        node: u16,
    },
    /// There is nothing to pause or to resume.
    #[error("the copy of volume {volume:?} on node {node} is given nothing: it is in sync, or leaves")]
    NothingToPause {
        /// The volume.
        volume: String,
        /// The node.
        node: u16,
    },
    /// There is nothing to take back.
    #[error(
        "the copy of volume {volume:?} on node {node} is in sync by now: take it away with `ursa volume copy remove`"
    )]
    CopyInSync {
        /// The volume.
        volume: String,
        /// The node.
        node: u16,
    },
    /// The volume's shape is not known here.
    #[error("this node has no copy of volume {volume:?}: say it on node {node}, which has one")]
    ElsewhereOnly {
        /// The volume.
        volume: String,
        /// A node that has one.
        node: u16,
    },
    /// What was asked for is about copies, and this node has the volume alone.
    #[error("volume {0:?} has no copies: it is this node's alone")]
    NotReplicated(String),
    /// It could not join.
    #[error(transparent)]
    Join(Box<link::JoinError>),
    /// Only who has the cluster's authority can let others in.
    #[error("this node has no key to let others in with: make the token on the node that made the cluster")]
    NoAuthority,
    /// Names could collide.
    #[error(
        "this node has targets or hosts of its own, and those of a cluster are the same on all nodes: delete them first (`ursa target list`, `ursa host list`), or make the cluster here and have the other node join"
    )]
    OwnAccess,
    /// The node is needed.
    #[error("node {node} has a copy of volume {volume:?}: move that copy or take it away first")]
    NodeHasCopies {
        /// The node.
        node: u16,
        /// One of the volumes.
        volume: String,
    },
    /// Nobody could decide without it.
    #[error(
        "without node {0} the nodes that are up would be no majority of those that vote, and nothing could be changed: bring back those that are down first (`ursa node list`)"
    )]
    NodeNeeded(u16),
    /// There is a majority.
    #[error(
        "the cluster works: a majority of the nodes that vote is reached, so there is nothing to force (`ursa node list`)"
    )]
    ClusterWorks,
    /// It is not alone.
    #[error(
        "node {0} is up: only the last survivor can be made a new cluster; bring back a majority of the nodes that vote, or stop node {0} for good"
    )]
    NodeIsThere(u16),
    /// What the cluster said.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// This should not happen.
    #[error("{0}: this is a defect of the program, please report it")]
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
    /// There is no object of this kind and name.
    pub fn not_found(kind: &'static str, name: &str) -> ControlError {
        ControlError::NotFound { kind, name: name.to_owned() }
    }

    /// Whether a pool's disk failed, or its metadata takes no changes since one did. A full file system is not a
    /// failed disk.
    pub fn is_of_disk(&self) -> bool {
        match self {
            ControlError::Store(StoreError::Disk { source, .. }) => !matches!(source, DiskError::Full),
            ControlError::Store(StoreError::MetadataReadOnly(_)) => true,
            _ => false,
        }
    }
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
