//! Follows the cluster's record, makes this node's copies act by it, and proposes changes of volumes when
//! nodes are lost and return.
//!
//! The reconciler lives on core 0. It follows the record in order; the record says which copies are in sync.
//! A copy acts in a configuration when [`replica::Membership`] allows it, all its slices alike. Only then is
//! the record's revision *applied*: leases are granted and counted by the applied revision. Heartbeats are
//! requests for leases. A *life* of a node is one run of its process, an incarnation.
//!
//! This file has what the reconciler knows, and what others ask of the record. How it follows and acts:
//! [`following`]. What comes from other nodes: [`frames`]. Through which nodes hosts reach volumes:
//! [`paths`].

mod agreement;
mod beat;
mod budget;
mod cuts;
mod emit_events;
mod engine;
mod error;
mod following;
mod fork;
mod frames;
mod freezing;
mod kinds;
mod lasting;
mod leaving;
mod linked;
mod listing;
mod lives;
mod membership;
mod opening;
mod paths;
mod proposals;
mod questions;
mod rest;
mod restoring;
mod stalling;
mod suspect;
mod syncs;
mod unreadable;
mod verifying;

use std::cell::{Cell, RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use base::Instant;
use cluster::etcd::EtcdTrouble;
use cluster::{Everything, Outcome, Store, Transaction, Watch};
use link::{ClusterId, Link, Links};
use replica::{Config, Incarnation, Membership, MembershipPolicy, NodeId, Revision, Slot};
use rt::Task;
use rt::sync::{Notify, Semaphore, Sender};
use serde::Serialize;
use serde::de::DeserializeOwned;
use store::VolumeId;

use self::agreement::Agreement;
pub(crate) use self::beat::HEARTBEAT;
use self::budget::Dealt;
use self::cuts::Cuts;
pub use self::engine::Engine;
pub use self::error::ClusterError;
pub use self::fork::{ForkShown, ForkState};
use self::fork::{Forks, Word};
pub use self::freezing::Frozen;
use self::freezing::PendingCommits;
use self::lasting::OutOfSyncSince;
use self::listing::Searched;
pub use self::membership::Expelled;
use self::rest::Rest;
use self::restoring::Restores;
use self::stalling::Stalls;
use self::suspect::Suspicion;
pub use self::syncs::Counted;
use self::syncs::Syncs;
use self::unreadable::{Legible, Unreadable, legible};
use crate::canary::{Canary, makes};
use crate::copies::ask::Answer;
use crate::copies::core::Copies;
use crate::copies::disk_range::DiskRange;
use crate::copies::entry::{NODES, NodeEntry, VolumeEntry, maintenance_key};
use crate::copies::progress::CopySync;
use crate::copies::refused::Refused;
use crate::copies::split_brain::{ForkRecord, PolicyEntry};
use crate::copies::verification::VerificationEntry;

/// How long a new volume takes to serve at most if all is well.
const SERVES_WITHIN: Duration = Duration::from_secs(3);

/// How long a change of the record may take.
pub const RECORD_DEADLINE: Duration = Duration::from_secs(5);

/// Follows the cluster's record and makes this node's copies act by it: see the module.
pub struct Reconciler {
    copies: Rc<Copies>,
    store: Store,
    links: Links,
    record: RefCell<Everything>,
    /// Stand-ins for entries of the record that this version cannot read.
    unreadable: RefCell<Unreadable>,
    peers: RefCell<BTreeMap<NodeId, PeerState>>,
    cuts: RefCell<Cuts>,
    volumes: RefCell<BTreeMap<VolumeId, Kept>>,
    /// Whether a look at them would find anything.
    rest: Rest,
    /// Volumes whose copy here is being closed: no other copy of them may be opened meanwhile.
    closing: RefCell<BTreeSet<VolumeId>>,
    /// Allows one change at a time of the configurations that copies act in.
    acting: Semaphore,
    /// Volumes whose copies are being opened. If a copy were opened twice at once, the second opening would
    /// undo what the first one has heard since.
    opening: RefCell<BTreeSet<VolumeId>>,
    /// Volumes whose copies wait for others of their pool to be opened first.
    queued: RefCell<BTreeSet<VolumeId>>,
    /// Notified when an opening has ended, and when a copy is not queued any more.
    opened: Notify,
    /// Notified when there is something to do before the next look.
    work: Notify,
    /// Notified when a volume with a copy here changes, or the record, even if copies do not act by it yet.
    stirred: Notify,
    /// Notified when the record has changed and copies act by it, when a node is heard that was not, and when
    /// this node is about to stop.
    applied: Notify,
    /// Open questions by number: which node was asked, and what waits for its answer. No number is used
    /// again, so a late answer reaches no other question.
    questions: RefCell<BTreeMap<u64, (NodeId, Sender<Answered>)>>,
    last_question: Cell<u64>,
    pending_commits: PendingCommits,
    syncs: RefCell<Syncs>,
    told: RefCell<emit_events::ReportedState>,
    out_of_sync_since: RefCell<OutOfSyncSince>,
    dealt: RefCell<Dealt>,
    restores: Restores,
    searched: RefCell<Searched>,
    /// `None`: the node has left this cluster for another one.
    engine: RefCell<Option<Engine>>,
    /// The tasks that follow the record and act by it.
    tasks: RefCell<Vec<Task<()>>>,
    stalls: Stalls,
    /// Volumes with which this node continues alone.
    forks: Forks,
    /// A random number of this start: [`NodeEntry::start`].
    start: u64,
    /// How often copies here have begun to act in another configuration.
    activations: Cell<u64>,
    stopping: Cell<bool>,
}

/// The outcome of a question.
type Answered = Option<Result<Answer, Refused>>;

/// What this node knows of another one.
#[derive(Default)]
struct PeerState {
    link: Option<Rc<Link>>,
    /// The life that has announced that it leaves.
    leaving: Option<Incarnation>,
    /// The life that was last heard.
    life: Option<Incarnation>,
    /// The last life whose process is known to be dead.
    dead: Option<Incarnation>,
    /// When the life in `life` was first heard.
    met: Option<Instant>,
    heard: Option<Instant>,
    /// The nodes that it reaches, as it last said; `None`: it has not said that.
    reached: Option<BTreeSet<NodeId>>,
    /// Why its copy of the cluster's record takes no changes, as it last said.
    stalled: Option<cluster::Stall>,
    /// The volumes with which it continues alone, as it has said over the link that is up or was up last.
    word: Option<Word>,
}

/// A volume with a copy here.
struct Kept {
    entry: VolumeEntry,
    /// The revision of the entry in the record.
    revision: cluster::Revision,
    slot: Slot,
    /// Which copy it is: [`CopyEntry::made`].
    made: u64,
    membership: Membership,
    membership_policy: MembershipPolicy,
    /// The disk no longer holds what it held when this copy was in sync: the copy cannot continue alone.
    blank: bool,
    /// Its slices are open.
    open: bool,
    /// All of its slices are open: see [`Kept::is_partly_open`].
    whole: bool,
    /// It is the sole copy, and the node serves hosts directly from its pool: its slices are not
    /// those of a copy.
    sole: bool,
    /// When its last slice was opened.
    opened: Instant,
    /// Its slices were open in this life, and lost what they knew when they were closed: see
    /// [`Reconciler::may_open`].
    reopens: bool,
    /// Their data was in memory, so it was lost as well.
    forgets: bool,
    /// A disk of it failed.
    failed: bool,
    /// The range that its disk last failed to read, and that could not be repaired.
    unread: Option<DiskRange>,
    /// The capacity that hosts see.
    shown: u64,
    /// A change of its entry is being committed.
    proposing: bool,
    /// The revision of the entry that this life last asked the record to replace by one without this copy in
    /// sync, and how many of these requests have not failed for certain. While the entry has that revision,
    /// the record may or may not have done so.
    leaving: Option<(cluster::Revision, u32)>,
    agreement: Agreement,
    suspicion: Suspicion,
    /// When it was last in sync and had the leases of all other members, as far as looks have noted that
    /// ([`rest::Rested::led`]).
    led: Option<Instant>,
    /// Hosts are not served until it is settled which data is kept: this copy's or what the record says.
    held: bool,
    /// How much of its entry can be read.
    legible: Legible,
    /// The record's key of its split-brain policy, kept here because it is looked up twenty times a second.
    policy_key: String,
}

impl Kept {
    /// Whether this life has asked the record to take the copy here out of sync, and does not know whether it
    /// has.
    fn may_have_left(&self) -> bool {
        self.leaving.is_some_and(|(revision, _)| revision == self.revision)
    }

    /// Notes that it asks the record for that.
    fn note_leaving(&mut self) {
        let before = self.leaving.filter(|(revision, _)| *revision == self.revision);
        self.leaving = Some((self.revision, before.map_or(1, |(_, requests)| requests + 1)));
    }

    /// Notes that a request to replace the entry of this revision has failed for certain.
    fn note_not_left(&mut self, revision: cluster::Revision) {
        if let Some((_, requests)) = self.leaving.filter(|(of, _)| *of == revision) {
            self.leaving = (requests > 1).then_some((revision, requests - 1));
        }
    }
}

/// What users see of a volume's copies.
#[derive(Clone, Debug)]
pub struct CopiesStatus {
    /// The volume's entry in the record.
    pub entry: VolumeEntry,
    /// The slot of the copy here, and whether it is open.
    pub here: Option<(Slot, bool)>,
    /// Whether this node's copy may be read now.
    pub serving: bool,
    /// The resync progress of the copies that are not in sync, by slot.
    pub syncs: BTreeMap<u8, CopySync>,
    /// The split-brain policy, if an administrator has set one.
    pub policy: Option<PolicyEntry>,
    /// The fork with which a node continues alone, if it is not settled.
    pub fork: Option<ForkShown>,
    /// The results of verifying its copies.
    pub verification: VerificationEntry,
    /// How often its copies are verified; `None`: never.
    pub verify_every: Option<Duration>,
    /// What it is a clone of.
    pub clone_of: Option<ClonedFrom>,
}

/// The snapshot of which a volume is a clone, as users see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClonedFrom {
    /// The identity of the other volume.
    pub id: String,
    /// Its name; its identity if the record does not have it.
    pub volume: String,
    /// The name of the snapshot; the number by which pools know it if the record does not have it.
    pub snapshot: String,
}

impl Reconciler {
    /// Starts to follow the record, which `engine` keeps.
    ///
    /// `forks` are the volumes with which an earlier life has continued alone.
    pub fn start(
        copies: Rc<Copies>,
        store: Store,
        watch: Watch,
        links: Links,
        engine: Engine,
        forks: Vec<ForkRecord>,
    ) -> Rc<Reconciler> {
        let reconciler = Rc::new(Reconciler {
            copies: Rc::clone(&copies),
            store,
            links,
            record: RefCell::default(),
            unreadable: RefCell::default(),
            peers: RefCell::default(),
            cuts: RefCell::default(),
            volumes: RefCell::default(),
            rest: Rest::default(),
            closing: RefCell::default(),
            acting: Semaphore::new(1),
            opening: RefCell::default(),
            queued: RefCell::default(),
            opened: Notify::new(),
            work: Notify::new(),
            stirred: Notify::new(),
            applied: Notify::new(),
            questions: RefCell::default(),
            last_question: Cell::new(0),
            pending_commits: PendingCommits::default(),
            syncs: RefCell::default(),
            told: RefCell::new(emit_events::ReportedState::new(rt::now())),
            out_of_sync_since: RefCell::new(OutOfSyncSince::new(rt::now())),
            dealt: RefCell::default(),
            restores: Restores::default(),
            searched: RefCell::default(),
            engine: RefCell::new(Some(engine)),
            tasks: RefCell::default(),
            stalls: Stalls::default(),
            forks: Forks::new(rt::now(), forks),
            // Never 0.
            start: if makes(Canary::StartUnnumbered) { 0 } else { rt::random() | 1 },
            activations: Cell::new(0),
            stopping: Cell::new(false),
        });
        copies.set_reconciler(Rc::downgrade(&reconciler));
        reconciler.tasks.replace(vec![
            rt::spawn(Rc::clone(&reconciler).follow(watch)),
            rt::spawn(Rc::clone(&reconciler).beat()),
            rt::spawn(Rc::clone(&reconciler).guard()),
        ]);
        reconciler
    }

    /// The cluster's record.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The node's links with other nodes.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// Whether nodes vote in the record: not if it is in a site's etcd.
    pub fn nodes_vote(&self) -> bool {
        !self.with_engine(|engine| matches!(engine, Engine::Etcd(_)))
    }

    /// Asks the record's engine, unless it has ended.
    fn with_engine<T: Default>(&self, ask: impl FnOnce(&Engine) -> T) -> T {
        self.engine.borrow().as_ref().map(ask).unwrap_or_default()
    }

    /// Why etcd cannot be used now, if the record is in etcd.
    pub fn record_trouble(&self) -> Option<EtcdTrouble> {
        self.with_engine(|engine| match engine {
            Engine::Etcd(etcd) => etcd.status().trouble,
            _ => None,
        })
    }

    /// Changes which nodes follow the record, and which of them vote.
    ///
    /// Does nothing if the record is in etcd, which has members of its own.
    ///
    /// # Errors
    /// [`ClusterError::Record`].
    pub async fn change_members(
        &self,
        change: cluster::MemberChange,
        deadline: Duration,
    ) -> Result<(), ClusterError> {
        match self.nodes_vote() {
            true => Ok(self.store.change_members(change, deadline).await?),
            false => Ok(()),
        }
    }

    /// The addresses at which other nodes reach this one.
    pub fn addresses(&self) -> Vec<std::net::SocketAddr> {
        self.links.local_addresses()
    }

    /// Whether the node is about to stop.
    pub fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// This node.
    pub fn me(&self) -> NodeId {
        self.copies.me()
    }

    /// Its cluster.
    pub fn cluster(&self) -> ClusterId {
        self.copies.cluster()
    }

    /// This life of the node.
    pub fn incarnation(&self) -> Incarnation {
        self.copies.incarnation()
    }

    /// A random number of this start of the node.
    pub fn start_number(&self) -> u64 {
        self.start
    }

    /// How often copies here have begun to act in another configuration.
    pub fn activations(&self) -> u64 {
        self.activations.get()
    }

    /// The value at `key` and its revision, as far as this node has followed the record.
    ///
    /// If this version cannot read the value, the stand-in takes its place; it must not be written back.
    pub fn get<T: DeserializeOwned>(&self, key: &str) -> Option<(T, cluster::Revision)> {
        let (record, unreadable) = (self.record.borrow(), self.unreadable.borrow());
        let value = legible(&unreadable, key, record.entries.get(key)?)?;
        Some((parse(key, &value.value)?, value.revision))
    }

    /// The values whose keys begin with `prefix`, by key, each as [`Reconciler::get`] returns it.
    pub fn list<T: DeserializeOwned>(&self, prefix: &str) -> Vec<T> {
        let (record, unreadable) = (self.record.borrow(), self.unreadable.borrow());
        let range = record.entries.range(prefix.to_owned()..);
        range
            .take_while(|(key, _)| key.starts_with(prefix))
            .filter_map(|(key, value)| parse(key, &legible(&unreadable, key, value)?.value))
            .collect()
    }

    /// The keys that begin with `prefix` and whose values this version cannot read.
    pub fn unreadable<T: DeserializeOwned>(&self, prefix: &str) -> Vec<String> {
        let record = self.record.borrow();
        let range = record.entries.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
        let cannot_be_read = |value: &[u8]| serde_json::from_slice::<T>(value).is_err();
        range.filter(|(_, value)| cannot_be_read(&value.value)).map(|(key, _)| key.clone()).collect()
    }

    /// The revision at which the key last changed, as far as this node has followed; `None`: key not found.
    pub fn revision_of(&self, key: &str) -> Option<cluster::Revision> {
        self.record.borrow().entries.get(key).map(|value| value.revision)
    }

    /// Changes the record, and waits until this node acts by it.
    ///
    /// # Errors
    /// [`ClusterError::Record`], [`ClusterError::Conflict`], [`ClusterError::Unreadable`],
    /// [`ClusterError::Moving`].
    pub async fn commit(&self, transaction: Transaction) -> Result<(), ClusterError> {
        self.check_readable(&transaction)?;
        let _pending = self.pending_commits.begin()?;
        match self.store.cas(transaction, RECORD_DEADLINE).await? {
            Outcome::Committed(revision) => {
                let there = || self.acts_by() >= Revision(revision.0);
                self.until(RECORD_DEADLINE, there).await;
                Ok(())
            }
            Outcome::Conflict { key, .. } => Err(ClusterError::Conflict(key)),
        }
    }

    /// The revision up to which this node has read the record; it may not act by it yet.
    fn followed(&self) -> Revision {
        Revision(self.record.borrow().revision.0)
    }

    /// The revision of the record that this node acts by.
    pub fn acts_by(&self) -> Revision {
        self.copies.leases().applied()
    }

    /// Waits until `is_so` holds by the record, as this node acts by it, and by the nodes that it hears;
    /// `false`: it did not in time.
    pub async fn until(&self, deadline: Duration, is_so: impl Fn() -> bool) -> bool {
        rt::timeout(deadline, self.applied.until(is_so)).await.is_ok()
    }

    /// Waits until this node serves a new volume, if it has a copy of it.
    ///
    /// The nodes must grant each other leases first. The wait ends after the time that this takes if all is
    /// well.
    pub async fn until_serves(&self, id: VolumeId) {
        self.until_all_serve(&[id]).await;
    }

    /// As [`Reconciler::until_serves`], for several volumes together.
    pub async fn until_all_serve(&self, ids: &[VolumeId]) {
        let waits = |id: VolumeId| {
            let volume = self.volume(id);
            volume.is_some_and(|volume| volume.entry.copy_on(self.me()).is_some() && !volume.serving)
        };
        let served = async {
            for id in ids {
                while waits(*id) {
                    self.stirred.notified_or(&self.copies.leased).await;
                }
            }
        };
        let _ = rt::timeout(SERVES_WITHIN, served).await;
        self.show_paths().await;
    }

    /// Waits until the key has another revision than `before`: after a conflict, until this node has followed
    /// the change that was faster.
    pub async fn until_changed(&self, deadline: Duration, key: &str, before: Option<cluster::Revision>) {
        self.until(deadline, || self.revision_of(key) != before).await;
    }

    /// Waits until the record has the key, for [`RECORD_DEADLINE`] at most.
    pub async fn until_known(&self, key: &str) {
        self.until(RECORD_DEADLINE, || self.revision_of(key).is_some()).await;
    }

    /// A transaction with a random number of its own.
    pub fn transaction() -> Transaction {
        Transaction::new(u128::from(rt::random()) << 64 | u128::from(rt::random()))
    }

    /// The nodes of the cluster, and whether each was heard just now.
    pub fn nodes(&self) -> Vec<(NodeEntry, bool)> {
        let now = rt::now();
        let alive = |id: NodeId| self.is_heard(now, id);
        self.list::<NodeEntry>(NODES)
            .into_iter()
            .map(|entry| {
                let alive = alive(NodeId(entry.id));
                (entry, alive)
            })
            .collect()
    }

    /// Whether the node was heard just now; this node always counts as heard.
    pub fn hears(&self, node: NodeId) -> bool {
        self.is_heard(rt::now(), node)
    }

    /// The volumes that have a copy here, for a change: the next look will be at all of them.
    fn volumes_mut(&self) -> RefMut<'_, BTreeMap<VolumeId, Kept>> {
        self.stir();
        self.volumes.borrow_mut()
    }

    /// Whether the configuration has the copy here as a member, in this life.
    fn is_member(&self, kept: &Kept, config: &Config) -> bool {
        config.has_member(kept.slot, self.copies.incarnation())
    }

    /// Whether the configuration has the copy here in sync, in this life.
    fn is_in_sync(&self, kept: &Kept, config: &Config) -> bool {
        config.in_sync_incarnation(kept.slot) == Some(self.copies.incarnation())
    }

    /// Whether the node is in maintenance: it gives up its copies in sync so that it can be stopped.
    pub fn is_in_maintenance(&self, node: NodeId) -> bool {
        self.record.borrow().entries.contains_key(&maintenance_key(node))
    }

    /// Since when the node is in maintenance, in seconds since 1970.
    ///
    /// `None`: it is not, or a later version wrote another value.
    pub fn maintenance_since(&self, node: NodeId) -> Option<u64> {
        self.get::<serde_json::Value>(&maintenance_key(node))?.0.as_u64()
    }
}

/// A value in the form in which the record keeps it.
pub fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("our records are plain structures with text keys")
}

fn parse<T: DeserializeOwned>(key: &str, value: &[u8]) -> Option<T> {
    serde_json::from_slice(value)
        .inspect_err(|error| tracing::error!(key, %error, "an entry of the cluster's record cannot be read and is skipped"))
        .ok()
}
