//! What administrators manage on a node: pools, volumes, targets, LUN maps, host groups, sessions.
//!
//! All of it runs on core 0. A change checks its conditions, makes itself durable (in the pool's metadata or
//! in the node's record), and then notifies every core. Changes of the same thing take turns ([`turns`]), and
//! every wait for a change has a deadline ([`change`]). I/O never waits for a change. If a change needs the
//! time of day, the caller passes it in.

mod absence;
mod access;
mod addresses;
mod beats;
mod change;
mod change_failure;
mod cluster;
mod copies;
mod doing;
mod ended;
mod error;
mod faults;
mod filling;
mod forgetting;
mod forks;
mod forwarding;
mod handoff;
mod hint;
mod lacking_logs;
mod leaving;
mod leftovers;
mod life;
mod links;
mod lost_blocks;
mod members;
mod overcommit;
mod paths;
mod peer_query;
mod people;
mod pool_fault;
mod pool_marks;
mod pool_previews;
mod pools;
mod portal_group;
mod previous_run;
mod read_errors;
mod record_place;
mod refused;
mod relocation;
mod reopening;
mod scrubbing;
mod shared;
mod snapshots;
mod start;
mod status;
mod tidying;
mod turns;
mod verifying;
mod volumes;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::Arc;

pub use ::cluster::Stall;
pub use ::cluster::etcd::EtcdTrouble;
use base::Instant;
pub use link::{JoinError, LinkTrouble};
use proto::iscsi::target_role::LoginStatus;
use rt::sync::Notify;
use rt::{CoreId, Task};
use store::{Host, LogMemory, LogTuning, Pool, PoolId, RamBudget, StoreError};

pub(crate) use self::access::{HOSTS, TARGETS};
pub use self::access::{MapSpec, TargetChange, TargetSpec};
pub use self::addresses::{AddressHere, AddressSpec, AddressStatus};
pub(crate) use self::beats::Beat;
use self::change::Changes;
pub use self::change::{CHANGE_DEADLINE, ChangeStatus, TURN_DEADLINE, WaitsFor, Work, Zeroed};
pub use self::change_failure::ChangeFailure;
pub use self::cluster::{ClusterFailure, ClusterFault, EnterError, Leaving, Member, Place};
pub use self::copies::{CopyOpening, Placement, Ranking};
pub(crate) use self::copies::{NEXT_NUMBER, ServedAs};
pub use self::doing::Doing;
use self::ended::EndedJobs;
pub(crate) use self::ended::note_ended_work;
pub use self::ended::{EndedJob, EndedWork, JobOutcome};
pub(crate) use self::error::Result;
pub use self::error::{ControlError, NeedsVotes};
pub use self::faults::{Fault, FaultKind, UnreadBlock};
pub(crate) use self::filling::space_of;
pub use self::filling::{Filling, LEVELS};
pub use self::forgetting::{LostMap, Muteness, PoolRemains};
pub use self::forks::{ForkDecision, PolicyChange};
pub use self::forwarding::{FORWARD_DEADLINE, ForwardOutcome, NotBegun, Request};
pub use self::handoff::Handoff;
pub use self::leaving::{DiskLeaving, NotEmptied};
pub use self::leftovers::NotServed;
pub use self::links::LinkStatus;
pub(crate) use self::lost_blocks::{note_lost_of_copy, set_lost_of_copy};
use self::members::Door;
pub use self::members::{Collision, Counted, JoinRefusal, NodeStatus, Removal};
pub(crate) use self::members::{NEXT_NODE, PREFERRED};
pub use self::overcommit::Overcommit;
pub use self::peer_query::{QUERY_DEADLINE, QueryFailed};
pub use self::people::{API_TOKENS_MAX, ApiToken, Role, USERS_MAX, User, UserChange};
pub(crate) use self::people::{SET_UP, TOKENS, USERS, token_key, user_key};
pub use self::pool_fault::PoolFault;
pub use self::pool_previews::Importable;
pub use self::pools::{FailedDisk, ImportSpec, MapMemory, NotOpen, PoolSpec, PoolState, PoolStatus};
pub use self::read_errors::DiskReadErrors;
use self::read_errors::ReadErrors;
pub(crate) use self::read_errors::{
    note_bad_block, note_bad_block_of_copy, note_repaired_block, note_repaired_block_of_copy,
    note_unrepaired_of_copy,
};
pub use self::record_place::RecordPlace;
pub use self::relocation::AddedCopy;
use self::reopening::SetAside;
use self::scrubbing::Scrubs;
pub use self::scrubbing::{
    PoolScrubs, SCRUB_EVERY, Scrub, ScrubEnd, ScrubFound, ScrubState, ScrubStatus, ScrubWait, Unscrubbable,
};
use self::snapshots::Snapshots;
pub use self::snapshots::{
    CLONES_MAX, ClonesCreated, ClonesPlan, ClonesSpec, CopyUnread, DIFF_RANGES_MAX, DiffSpec, Freeing,
    HOLD_MAX as SNAPSHOT_HOLD_MAX, RestorePlan, RestoreSpec, Restored, SNAPSHOT_READ_BYTES_MAX,
    ScheduleChange, ScheduleSpec, ScheduleStatus, SnapshotDiff, SnapshotHere, SnapshotSpec, SnapshotStatus,
    SnapshotUpdate, SnapshotVolume, SnapshotsHere, VolumeAt,
};
pub use self::start::{DefaultPool, StartError, StartSpec};
pub use self::status::{
    ClusterRecordStatus, RecordStatus, ReplicationStats, SessionStatus, StatsByCore, Traffic, VolumeStats,
};
use self::verifying::Verifications;
pub use self::verifying::{Difference, Uncompared, Verification, VerificationState, due as verification_due};
use self::volumes::Conversions;
pub use self::volumes::{Conversion, ConversionWait, NewVolume, SpaceChange, VolumeStatus};
pub(crate) use self::volumes::{show_capacity, to_be_converted};
use crate::attach::port_numbers::NodeNumber;
use crate::attach::unit::Paths;
use crate::data::VolumeId;
use crate::events::Events;
use crate::iscsi::portal::Registry;
use crate::member::Reconciler;
use crate::member::floating::Floating;
use crate::record::Record;
use crate::shard::{NodePortals, Shard};

/// The control of a node, on core 0.
pub struct Control {
    record: RefCell<Record>,
    /// When this life of the node began, in seconds since 1970. `None` in the simulator, which has no wall
    /// clock.
    started: Option<u64>,
    changes: Changes,
    /// The pools of the record, by name.
    pools: RefCell<BTreeMap<String, KnownPool>>,
    /// Volumes of open pools that this node does not serve, and why.
    unserved: RefCell<BTreeMap<VolumeId, Arc<ControlError>>>,
    /// Volumes whose pool failed to store the last change of their unit's state (reservations, mode pages).
    unsettled: RefCell<BTreeSet<VolumeId>>,
    /// Volumes of pools that are being reopened or could not be reopened, with the state of their units.
    set_aside: RefCell<BTreeMap<VolumeId, SetAside>>,
    registry: Registry,
    /// This server, as pools know it.
    host: Host,
    ram: RamBudget,
    /// Limits of logs.
    log: LogTuning,
    /// The memory that the logs of all pools share.
    log_memory: LogMemory,
    /// Refused logins, by the login status that the initiator received.
    refused_logins: RefCell<BTreeMap<u16, u64>>,
    /// Tokens with which nodes may join. They are valid until the next start.
    tokens: RefCell<Vec<link::OpenToken>>,
    /// The paths to copies, and the portals of other nodes, that units and sessions were last shown.
    shown_paths: RefCell<BTreeMap<VolumeId, Paths>>,
    shown_portals: RefCell<BTreeMap<NodeNumber, NodePortals>>,
    /// Copies that this node created for other nodes and that the cluster's record does not list yet, each
    /// with its requesters ([`crate::copies::NewCopy::asker`]) and the time of the request.
    being_made: RefCell<BTreeMap<VolumeId, BTreeMap<u64, Instant>>>,
    /// The requests for copies that this node is carrying out now, by requester. If its requester gives one
    /// up, it is removed at once, and the change that carries it out deletes what it has created.
    copy_requests: RefCell<BTreeSet<u64>>,
    /// Set if the cluster's record already knew this life, or a later one, from another start of this node:
    /// the latest life that it knew. This life then ends before it does anything.
    used_life: Cell<Option<u64>>,
    /// This node's part of the cluster's record was set back.
    forgotten_record: Cell<bool>,
    /// Copies in pools that were set back whose older data an administrator has accepted, until their disks
    /// are marked as trusted.
    accepted_older: RefCell<BTreeSet<VolumeId>>,
    /// Copies that this life has marked as set back although their pool was not, until their disks are marked
    /// as trusted: see [`lacking_logs`].
    lacking: RefCell<BTreeSet<VolumeId>>,
    /// Notified when copies cannot be opened because their pool has not been compared with the cluster's
    /// record.
    unvouched: Notify,
    /// Notified when a pool may have a disk that is leaving it.
    leaving: Notify,
    /// Why the leaving disks of pools cannot be emptied.
    leaving_problems: RefCell<BTreeMap<PoolId, ControlError>>,
    /// This node's floating addresses.
    floating: Floating,
    events: Events,
    verifications: Verifications,
    read_errors: ReadErrors,
    scrubs: Scrubs,
    conversions: Conversions,
    snapshots: Snapshots,
    lost_blocks: lost_blocks::LostBlocks,
    /// File systems that have less free space than the pools in them may still take.
    overcommitted: RefCell<BTreeSet<u64>>,
    /// The fill level that each pool with log volumes has reached, if any.
    levels: RefCell<BTreeMap<PoolId, u8>>,
    ended: EndedJobs,
    /// Why the node does not take part in the cluster that it is in.
    cluster_failure: RefCell<Option<ClusterFailure>>,
    /// Notified when this node has changed access rules of its cluster.
    access_changed: Notify,
    /// The tasks of the present life in a cluster that may be cancelled between two of their steps: whatever
    /// must run to its end is a change.
    life: RefCell<Vec<Task<()>>>,
    /// The reconciler of a cluster that the node has left for another one, as long as something holds it.
    former: RefCell<Weak<Reconciler>>,
    /// Whether nodes may join through this one.
    door: Door,
}

/// A pool of the record.
struct KnownPool {
    paths: Vec<PathBuf>,
    state: Opened,
    /// It is open and about to be closed: no copy is opened there any more, because its slices would keep the
    /// disks.
    closing: bool,
}

/// Whether a pool of the record is open.
enum Opened {
    Yes(Pool),
    /// Its disks have not responded since then.
    NotYet(Instant),
    /// It could not be opened.
    No(Arc<StoreError>),
}

impl KnownPool {
    fn open(&self) -> Option<&Pool> {
        match &self.state {
            Opened::Yes(pool) => Some(pool),
            Opened::NotYet(_) | Opened::No(_) => None,
        }
    }

    fn opened(&self) -> Result<&Pool, NotOpen> {
        match &self.state {
            Opened::Yes(pool) => Ok(pool),
            Opened::NotYet(began) => Err(NotOpen::Silent(rt::now().since(*began))),
            Opened::No(error) => Err(NotOpen::Failed(Arc::clone(error))),
        }
    }
}

impl Control {
    /// The control of the node whose core 0 runs the caller.
    pub fn current() -> Rc<Control> {
        Control::try_current().expect("called on core 0 after the start")
    }

    /// As [`Control::current`], or `None` while the node starts or on another core.
    pub fn try_current() -> Option<Rc<Control>> {
        Shard::current().control()
    }

    /// This node's name.
    pub(crate) fn name(&self) -> &str {
        &self.host.name
    }

    /// The events of this node.
    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    /// This node's floating addresses.
    pub(crate) fn floating(&self) -> &Floating {
        &self.floating
    }

    /// All sessions by name.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Counts a login that was refused.
    pub fn count_refused_login(&self, status: LoginStatus) {
        *self.refused_logins.borrow_mut().entry(status as u16).or_default() += 1;
    }

    /// Refused logins so far, by status class and detail.
    pub fn refused_logins(&self) -> BTreeMap<u16, u64> {
        self.refused_logins.borrow().clone()
    }

    /// Stores the state of a volume's logical unit. It is durable when this returns.
    pub async fn store_lu_state(&self, id: VolumeId, state: Vec<u8>) -> Result<()> {
        let pool = self.pool_of(id)?;
        // If the write fails, the next life may find either state on the disk.
        self.set_unsettled_state(id, true);
        pool.set_lu_state(id, state).await?;
        self.set_unsettled_state(id, false);
        Ok(())
    }

    fn set_unsettled_state(&self, id: VolumeId, unsettled: bool) {
        let mut all = self.unsettled.borrow_mut();
        if unsettled {
            all.insert(id)
        } else {
            all.remove(&id)
        };
    }

    /// Whether the pool may hold a different state of the volume's unit than the last one stored.
    ///
    /// That is so after a failed change. Until that is resolved, no response may depend on the stored state.
    pub fn has_unsettled_state(&self, id: VolumeId) -> bool {
        self.unsettled.borrow().contains(&id)
    }

    /// The pool that holds this volume.
    fn pool_of(&self, id: VolumeId) -> Result<Pool> {
        let current = self.current_of(self.copies_of(id)).map(|(pool, _)| pool);
        current.ok_or_else(|| ControlError::not_found("volume", &id.to_string()))
    }

    /// The open pool with this identity.
    fn pool_with(&self, id: PoolId) -> Option<Pool> {
        self.open_pools().into_iter().find(|pool| pool.id() == id)
    }

    /// The open pools, by name.
    ///
    /// A pool that is held, even by its handle alone, cannot be closed and opened again: who waits for
    /// something else in between keeps its identity instead, and looks it up again.
    fn open_pools(&self) -> Vec<Pool> {
        self.pools.borrow().values().filter_map(KnownPool::open).cloned().collect()
    }
}

/// Reaches a node's control from other threads, such as that of the HTTP interface.
#[derive(Clone)]
pub struct Handle(rt::Handle);

/// The node has stopped, or has not started yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the node is starting or stopping: try again in a moment")]
pub struct NotRunning;

impl Handle {
    /// Reaches the node of these cores.
    pub fn new(cores: rt::Handle) -> Handle {
        Handle(cores)
    }

    /// How many cores the node has.
    pub fn cores(&self) -> usize {
        self.0.cores()
    }

    /// Runs an async function with the node's control, and returns its result to the caller's executor.
    pub async fn call<T, F>(
        &self,
        function: impl FnOnce(Rc<Control>) -> F + Send + 'static,
    ) -> Result<T, NotRunning>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let result = self.0.call(CoreId(0), move || async move {
            match Control::try_current() {
                Some(control) => Some(function(control).await),
                None => None,
            }
        });
        result.await.flatten().ok_or(NotRunning)
    }

    /// Ends all sessions in an orderly way, then stops the node.
    pub async fn drain(&self) {
        let _ = self.0.call(CoreId(0), || async { crate::stop().await }).await;
    }
}
