//! How severe each condition is. This is the only table: events, findings and the alert rules
//! (`deploy/prometheus`) all use it, so the same fact never has two severities.

use super::Severity;

macro_rules! conditions {
    ($($(#[$doc:meta])* $name:ident = $severity:ident;)*) => {
        /// Something that is wrong, or could be better, for as long as it lasts. Names are those of findings'
        /// codes, except where a code has several severities.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Condition {
            $($(#[$doc])* $name,)*
        }

        impl Condition {
            /// The severity.
            pub const fn severity(self) -> Severity {
                match self {
                    $(Condition::$name => Severity::$severity,)*
                }
            }
        }
    };
}

conditions! {
    /// Two nodes have served a volume independently, and its copies have diverged.
    SplitBrain = Critical;
    /// No node serves a volume, or its hosts are stopped for a restore that does not end.
    VolumeUnavailable = Critical;
    /// A node continues alone with a volume, by its split-brain policy.
    ContinuedAlone = Warning;
    /// A snapshot is overdue by its schedule.
    SnapshotScheduleMissed = Warning;
    /// Snapshots are old, and nothing deletes them automatically.
    SnapshotsOld = Info;
    /// Copies that are in sync differ.
    CopiesMismatch = Critical;
    /// A copy lacks blocks that no copy in sync could read.
    BlocksLost = Critical;
    /// The last scrub of a volume found blocks that cannot be read.
    ScrubUnrepaired = Warning;
    /// A volume has not been scrubbed for a long time.
    ScrubOverdue = Warning;
    /// A volume is not in the cluster's record, which has another one of its name.
    VolumeNameTaken = Warning;
    /// A copy is out of sync. If the reason is a failure, that has a condition of its own.
    CopyOutOfSync = Warning;
    /// Copies are out of sync and resyncing.
    ResyncRunning = Warning;
    /// Copies are out of sync, and their resync waits for something.
    ResyncWaiting = Warning;
    /// Copies are out of sync, and somebody has paused their resync.
    ResyncPaused = Warning;
    /// A node is down. The next failure can stop each volume that has a copy there.
    NodeDown = Critical;
    /// Other nodes reach the node, and the reporting node does not.
    NodeCutOff = Warning;
    /// A node is in maintenance.
    NodeMaintenance = Warning;
    /// A node is up, and does not report its state.
    NodeSilent = Warning;
    /// A node was set back to an earlier state, or runs twice.
    NodeSetBack = Critical;
    /// A node was removed from the cluster, or left behind by it.
    NodeRemoved = Warning;
    /// A node cannot take part in its cluster.
    ClusterFailed = Critical;
    /// An address at which other nodes reach the node is missing.
    LinkAddressMissing = Warning;
    /// No node holds a floating IP: hosts that use it are not served.
    FloatingIpLost = Critical;
    /// A node refuses all logins: its access rules may be outdated.
    LoginsRefused = Critical;
    /// A majority of the voters is down.
    NoQuorum = Critical;
    /// Two nodes have no witness, and no volume depends on it.
    NoWitness = Info;
    /// Two nodes have no witness, so the loss of one of them stops a volume that has a copy on the other.
    ReducedTolerance = Warning;
    /// The cluster's record, or the etcd that holds it, does not answer.
    RecordLost = Critical;
    /// A node's copy of the cluster's record accepts no changes: its vote is missing.
    RecordStalled = Critical;
    /// A node cannot read entries of the cluster's record.
    RecordEntriesUnreadable = Warning;
    /// One of the two copies of a node's own record was lost.
    RecordFault = Warning;
    /// A node's own record accepts no changes.
    RecordLatched = Critical;
    /// A disk is out of service.
    DiskFailed = Critical;
    /// A disk failed to read blocks.
    ReadFailed = Warning;
    /// A pool is not open.
    PoolClosed = Critical;
    /// A pool accepts no changes.
    PoolReadOnly = Critical;
    /// A pool was reverted to an older state.
    PoolSetBack = Critical;
    /// The file system below a pool has less free space than the pools there may still need.
    PoolOvercommitted = Info;
    /// Snapshots hold more than half of a pool.
    SnapshotSpace = Info;
    /// Little of a pool without log volumes is free. They have all their space.
    PoolNearlyFull = Info;
    /// A pool with log volumes is 80 % full.
    LogPoolFilling = Warning;
    /// A pool with log volumes is 95 % full: when it is full, writes to them fail.
    LogPoolNearlyFull = Critical;
    /// A pool is forecast to be full within 30 days.
    PoolFullSoon = Info;
    /// A change has been in progress for more than five minutes.
    ChangeStuck = Warning;
    /// A node's audit log cannot be written.
    AuditUnavailable = Warning;
    /// A node has no certificate for its API.
    CertificateUnavailable = Warning;
}
