//! The copies of volumes on this node, and how the node works with the other nodes of its cluster.
//!
//! [`mod@slice`] executes what the protocol (crate `replica`) decides for one slice of one copy. [`mod@core`]
//! holds what each core has of copies: slices, links and leases. On core 0 the
//! [`Reconciler`](crate::member::Reconciler) follows the cluster's record, tells each copy which
//! configuration it acts in, and proposes changes to volumes when nodes are lost and return. Why:
//! `docs/why/replication.md`. How nodes agree on reservations is decided in [`agreement`], and how a command
//! has a range for itself on all of them in [`lock`].

pub(crate) mod agreement;
pub(crate) mod ask;
pub(crate) mod budget;
pub(crate) mod cause;
pub(crate) mod clone;
pub(crate) mod core;
mod digests;
pub(crate) mod disk_range;
pub(crate) mod entry;
mod fetch;
mod linked;
mod lock;
pub(crate) mod message;
mod pace;
pub(crate) mod progress;
pub(crate) mod refused;
pub(crate) mod schedule;
pub(crate) mod slice;
pub(crate) mod snapshot;
pub(crate) mod split_brain;
mod traffic;
pub(crate) mod verification;
pub(crate) mod view;
mod work;

use std::time::Duration;

pub use self::ask::{Answer, Ask, CarriedOut, SnapshotData, SnapshotPart};
pub use self::budget::{Restraint, SYNC_LIMIT_MIN, SYNCS_AT_ONCE_MAX};
pub use self::cause::Cause;
pub use self::clone::{CLONES_AT_ONCE, CloneOfEntry, NEW_CLONES, NewClone, NewClones, Origin};
pub use self::core::{Copies, LinkHandler};
pub use self::digests::{DIGEST_BYTES, digests};
pub use self::disk_range::DiskRange;
pub use self::entry::{
    CompressionEntry, CopyEntry, DROPPED_MAX, DeletedVolume, DroppedCopy, Leaves, LinkRole, LinkRoles, NODES,
    NewCopy, NodeEntry, PoolMarkEntry, ShapeEntry, SpaceEntry, StandingEntry, SyncPause, VolumeEntry,
    WantedCopy, deleted_key, link_roles_key, maintenance_key, node_key, peer, pool_mark_key, volume_key,
    volume_name_key,
};
pub use replica::NodeId;

pub use self::linked::Linked;
pub use self::progress::{Awaited, CopySync, KeptOut, Lasting, SyncWait};
pub use self::refused::Refused;
pub use self::schedule::{
    FailedAttempt, OfSchedule, Retention, SNAPSHOT_SCHEDULES, SNAPSHOT_SCHEDULES_MAX, SNAPSHOT_TURN,
    ScheduleEntry, ScheduleObstacle, ScheduledSnapshot, ScheduledVolume, SnapshotTurn, snapshot_schedule_key,
};
pub use self::slice::{Opening, SliceCopy};
pub use self::snapshot::{
    DELETED_SNAPSHOTS, DeletedSnapshot, HeldVolume, LAST_SNAPSHOT, Restores, SNAPSHOT_CHANGES,
    SNAPSHOT_PARTS_MAX, SNAPSHOT_VOLUMES_MAX, SNAPSHOTS, SNAPSHOTS_MAX, SnapshotAnswer, SnapshotCopy,
    SnapshotEntry, SnapshotObstacle, SnapshotOf, SnapshotState, SnapshotStep, pool_number,
};
pub use self::split_brain::{
    FORK_EPOCHS, ForkRecord, PolicyEntry, SplitBrainPolicy, SplitEntry, alone, policy_key, split_key,
};
pub use self::traffic::{Traffic, sum as sum_traffic};
pub use self::verification::{
    DIFFERING, DifferingEntry, VERIFICATION_TURN, VERIFY_EVERY_MIN, VerificationEntry, VerificationProgress,
    VerificationTurn, Verified, differing_key, verification_key,
};
pub use self::work::{CopyEnd, CopyWork, EndReason};

/// How long a command waits for a copy that does not serve at the moment (R21).
///
/// The other nodes give up a lost node after the length of a lease, 1 s; initiators wait 5 s and more before
/// they give up a path.
pub const HOLD_MAX: Duration = Duration::from_secs(2);

/// How long a copy stays in sync while its disk answers no read, or stores no change of reservations.
///
/// Such reads cost hosts only a second each, since another copy answers them. But hosts wait for what the
/// disk does not write, and a copy whose disk hangs is no redundancy when the other one is lost.
const SILENT_MAX: Duration = Duration::from_secs(5);

/// Which slice of which volume: the address of a slice on links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The volume's number in its cluster.
    pub volume: u32,
    /// The slice's number.
    pub slice: u16,
}

impl Address {
    fn channel(self) -> u64 {
        u64::from(self.volume) << 16 | u64::from(self.slice)
    }

    fn of_channel(channel: u64) -> Option<Address> {
        Some(Address { volume: u32::try_from(channel >> 16).ok()?, slice: channel as u16 })
    }
}

base::shows!(Display for Address, |it| "slice {} of volume {}", it.slice, it.volume);
