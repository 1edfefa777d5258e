//! What is wrong with this node now, as facts. `ursa` words them, and adds what only it knows.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use cluster::etcd::EtcdTrouble;
use replica::NodeId;
use serde::{Deserialize, Serialize};
use store::MetadataState;

use super::cluster::{ClusterFault, TRY_EVERY};
use super::pool_fault::PoolFault;
use super::status::RecordStatus;
use super::{Control, FailedDisk, PoolStatus};
use crate::copies::ScheduleObstacle;
use crate::member::Expelled;
use crate::record::RecordFault;
use crate::shard::Shard;

/// Something that is wrong with this node, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong.
    pub kind: FaultKind,
    /// How long it has been so, if known.
    pub age: Option<Duration>,
}

/// What is wrong with a node. Nodes report it to each other as JSON.
///
/// `volume` is the name of a volume, `id` its ID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // Fields are explained where their names do not.
pub enum FaultKind {
    /// One of the two copies of the node's record was lost before this start.
    RecordFault(RecordFault),
    /// The node's record accepts no changes: one could not be written.
    RecordLatched,
    /// A later version wrote entries of the cluster's record that this node cannot read.
    RecordEntriesUnreadable { keys: Vec<String> },
    /// etcd, which holds the cluster's record, cannot be used.
    RecordLost { trouble: EtcdTrouble },
    /// The node's copy of the cluster's record accepts no changes.
    RecordStalled {
        /// What stalls it, by [`super::Stall::code`].
        stall: u8,
        data_dir: PathBuf,
    },
    /// The node refuses logins: its access rules may be outdated.
    LoginsRefused,
    /// The node was removed from its cluster.
    RemovedFromCluster,
    /// Another node was forced into a new cluster, which leaves this one out.
    LeftBehind,
    /// The node cannot take part in its cluster.
    ClusterFailed {
        why: ClusterFault,
        /// The interval, in seconds, at which the node tries again.
        retry_seconds: u64,
    },
    /// The node was set back to an earlier state, or runs twice.
    NodeSetBack {
        /// The start of this node that the cluster has already seen.
        seen_start: u64,
    },
    /// The node's part of the cluster's record was set back: it has lost changes that it had confirmed.
    RecordSetBack,
    /// An address at which other nodes reach this one is missing.
    LinkAddressMissing {
        address: SocketAddr,
        /// The system's error number.
        errno: i32,
    },
    /// Another node is up, and this one does not reach it.
    NodeCutOff {
        node: u16,
        /// Its heartbeats arrive, so only the links for replication are down.
        heard: bool,
        reached_by: Vec<u16>,
    },
    /// No node holds a floating IP.
    FloatingIpLost { address: IpAddr, holders_up: bool },
    /// A pool is not open.
    PoolClosed { pool: String, why: PoolFault },
    /// A metadata write of a pool failed: it accepts no changes.
    PoolReadOnly { pool: String },
    /// A pool holds an earlier state than the one it had.
    PoolSetBack {
        pool: String,
        disks: String,
        /// How many of its copies are resynced in full.
        resynced: usize,
        /// Volumes that have no other copy in sync.
        stuck: Vec<String>,
    },
    /// A disk is out of service: a write or a flush failed.
    DiskFailed {
        pool: String,
        disk: String,
        /// The system's error number.
        errno: i32,
    },
    /// A disk failed to read blocks, and nobody has acknowledged that.
    ReadFailed {
        pool: String,
        disk: String,
        blocks: usize,
        /// There are more, which are not counted.
        more: bool,
        /// How many of them still cannot be read.
        bad: usize,
        /// The first of these.
        first: Option<UnreadBlock>,
    },
    /// A volume of the node is not in the cluster's record, which has another one of its name.
    VolumeNameTaken { pool: String, id: String, volume: String },
    /// Copies of a volume that are in sync differ.
    CopiesMismatch {
        id: String,
        volume: String,
        /// How much of them differs.
        bytes: u64,
        nodes: BTreeSet<u16>,
    },
    /// A snapshot is overdue by its schedule.
    SnapshotScheduleMissed {
        schedule: String,
        /// When it was due, in seconds since 1970.
        due: u64,
        /// Why the last attempt failed; `None`: there was none.
        obstacle: Option<ScheduleObstacle>,
    },
    /// Snapshots that are old, and that nothing deletes automatically.
    SnapshotsOld {
        count: usize,
        /// The name of the oldest one.
        oldest: String,
        /// When that was taken, in seconds since 1970.
        at: u64,
    },
    /// A volume is being restored, and hosts have been stopped for that for too long.
    RestoreUnfinished { id: String, volume: String },
    /// The node's copy of a volume lacks blocks that no copy in sync could read.
    BlocksLost {
        id: String,
        volume: String,
        /// How many blocks of the volume.
        blocks: u64,
        /// The first of these.
        lba: u64,
    },
    /// The last scrub of a volume on this node found blocks that cannot be read, nor repaired.
    ScrubUnrepaired {
        id: String,
        volume: String,
        /// How many bad blocks were not repaired.
        blocks: u64,
        /// The LBA of the first of these.
        lba: u64,
        /// How many of them only snapshots have.
        of_snapshots: u64,
    },
    /// A volume has not been scrubbed for far longer than the interval.
    ScrubOverdue {
        id: String,
        volume: String,
        /// How long ago the last scrub ended, or the volume was created.
        seconds: u64,
    },
}

/// A block of a volume that a disk cannot read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadBlock {
    /// The volume, by name.
    pub volume: String,
    /// Its address.
    pub lba: u64,
    /// The name of a snapshot that has the block, if the volume does not have it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
}

impl FaultKind {
    /// The fault, with how long it has lasted.
    pub(super) fn lasting(self, age: Duration) -> Fault {
        Fault { kind: self, age: Some(age) }
    }
}

/// A fault whose beginning is not known.
impl From<FaultKind> for Fault {
    fn from(kind: FaultKind) -> Fault {
        Fault { kind, age: None }
    }
}

impl Control {
    /// What is wrong with this node now.
    pub fn faults(&self) -> Vec<Fault> {
        let RecordStatus { fault, latched } = self.record();
        let mut faults: Vec<Fault> = Vec::new();
        faults.extend(fault.map(|fault| FaultKind::RecordFault(fault).into()));
        faults.extend(latched.then(|| FaultKind::RecordLatched.into()));
        faults.extend(self.record_lost());
        faults.extend(self.expelled());
        faults.extend(self.failed_in_cluster());
        faults.extend(self.unreadable_entries());
        faults.extend(self.missing_addresses());
        faults.extend(self.record_stalled());
        faults.extend(self.logins_refused());
        faults.extend(self.cut_off());
        faults.extend(self.lost_addresses());
        faults.extend(self.pools().iter().flat_map(of_pool));
        faults.extend(self.read_faults());
        faults.extend(self.set_back());
        faults.extend(self.life_used());
        faults.extend(self.differing_copies());
        faults.extend(self.unfinished_restores());
        faults.extend(self.missed_snapshots());
        faults.extend(self.old_snapshots());
        faults.extend(self.lost_blocks());
        faults.extend(self.scrub_faults());
        faults.extend(self.unrecorded());
        faults
    }

    fn record_lost(&self) -> Option<Fault> {
        let trouble = self.reconciler().ok()?.record_trouble()?;
        Some(FaultKind::RecordLost { trouble }.into())
    }

    fn unreadable_entries(&self) -> Option<Fault> {
        let keys = self.reconciler().ok()?.unreadable_keys();
        (!keys.is_empty()).then(|| FaultKind::RecordEntriesUnreadable { keys }.into())
    }

    fn expelled(&self) -> Option<Fault> {
        let kind = match self.reconciler().ok()?.expelled()? {
            Expelled::Removed => FaultKind::RemovedFromCluster,
            Expelled::GivenUp => FaultKind::LeftBehind,
        };
        Some(kind.into())
    }

    fn failed_in_cluster(&self) -> Option<Fault> {
        let failure = self.cluster_failure()?;
        let kind = FaultKind::ClusterFailed { why: failure.why, retry_seconds: TRY_EVERY.as_secs() };
        Some(kind.lasting(rt::now().since(failure.since)))
    }

    fn missing_addresses(&self) -> Vec<Fault> {
        let missing =
            self.reconciler().map(|reconciler| reconciler.links().missing_addresses()).unwrap_or_default();
        let fault =
            |(address, errno): (SocketAddr, i32)| FaultKind::LinkAddressMissing { address, errno }.into();
        missing.into_iter().map(fault).collect()
    }

    fn record_stalled(&self) -> Option<Fault> {
        let (stall, age) = self.reconciler().ok()?.stalled()?;
        let data_dir = Shard::current().config().data_dir.clone();
        Some(FaultKind::RecordStalled { stall: stall.code(), data_dir }.lasting(age))
    }

    fn logins_refused(&self) -> Option<Fault> {
        self.reconciler().ok()?.refuses_logins().then(|| FaultKind::LoginsRefused.into())
    }

    /// The nodes that are up but not reached from here. A node that no node reaches is down, and not listed.
    fn cut_off(&self) -> Vec<Fault> {
        let Ok(reconciler) = self.reconciler() else { return Vec::new() };
        let names = self.node_names();
        let fault = |(node, age): (NodeId, Duration)| {
            let reached_by = reconciler.reached_by(node).into_iter().map(|node| node.0).collect();
            FaultKind::NodeCutOff { node: node.0, heard: reconciler.hears(node), reached_by }.lasting(age)
        };
        let is_member = |(node, _): &(NodeId, Duration)| names.contains_key(&node.0);
        reconciler.cuts().into_iter().filter(is_member).map(fault).collect()
    }
}

fn of_pool(pool: &PoolStatus) -> Vec<Fault> {
    let name = || pool.name.clone();
    let open = match &pool.state {
        Ok(open) => open,
        Err(why) => return vec![FaultKind::PoolClosed { pool: name(), why: why.into() }.into()],
    };
    let disk = |disk: &FailedDisk| {
        let path = disk.path.display().to_string();
        FaultKind::DiskFailed { pool: name(), disk: path, errno: disk.errno }.lasting(disk.age)
    };
    let mut faults: Vec<Fault> = open.failed.iter().map(disk).collect();
    if open.metadata == MetadataState::Failed {
        faults.push(FaultKind::PoolReadOnly { pool: name() }.into());
    }
    faults
}
