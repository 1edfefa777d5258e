//! Follows the cluster's record, has this node's copies act by it, and proposes what is to become of volumes when nodes are lost and return.
//! Lives on core 0.
//!
//! The record says who is in sync; it is followed in order. A copy acts in a configuration when [`replica::Membership`] says that it may, all slices
//! of it alike; only then is the record's revision *applied*, which is what leases are given and counted by. Heartbeats are requests for leases.

mod agreement;
mod beat;
mod budget;
mod cuts;
mod doubt;
mod engine;
mod error;
mod fork;
mod lasting;
mod leaving;
mod linked;
mod listing;
mod lives;
mod opening;
mod proposals;
mod questions;
mod syncs;
mod telling;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base::{ByteLen, Instant};
use cluster::{Event, Everything, Outcome, Store, Transaction, Watch};
use link::{ClusterId, Frame, Link, Links};
use proto::scsi::AccessState;
use replica::{Activation, Config, Incarnation, Membership, NodeId, Revision, SILENCE_MAX, Slot, Steward};
use rt::sync::{Notify, Semaphore, Sender};
use serde::Serialize;
use serde::de::DeserializeOwned;
use store::VolumeId;

use self::agreement::Agreement;
pub use self::agreement::{Agreed, Told, Version};
use self::budget::Dealt;
use self::cuts::Cuts;
use self::doubt::Doubt;
pub use self::engine::Engine;
pub use self::error::ClusterError;
pub use self::fork::{ForkShown, ForkState};
use self::fork::{Forks, Word};
pub use self::lasting::Lasting;
use self::lasting::Outside;
pub use self::syncs::Counted;
use self::syncs::Syncs;
use super::SliceCopy;
use super::ask::Answer;
use super::core::{Copies, on_every_core};
use super::entry::{
    LINK_ROLES, LinkRoles, NODES, NodeEntry, VOLUMES, VolumeEntry, link_roles_key, maintenance_key, peer,
};
use super::message::{self, Heartbeat, Said};
use super::progress::CopySync;
use super::strategy::{ForkRecord, StrategyEntry, strategy_key};
use crate::control::{Control, show_capacity};
use crate::parts;
use crate::port_numbers::NodeNumber;
use crate::shard::on_all_cores;
use crate::unit::{Paths, Way};

/// How often it is thought over what is to become of volumes.
const STEWARD_EVERY: Duration = Duration::from_millis(50);

/// How long a new volume takes to serve at most, where all is well, and how often it is looked at.
const SERVES_WITHIN: Duration = Duration::from_secs(3);
const SERVES_EVERY: Duration = Duration::from_millis(20);

/// How long a change of the record may take.
pub const RECORD_DEADLINE: Duration = Duration::from_secs(5);

/// See the module.
pub struct Keeper {
    copies: Rc<Copies>,
    store: Store,
    links: Links,
    record: RefCell<Everything>,
    peers: RefCell<BTreeMap<NodeId, PeerState>>,
    cuts: RefCell<Cuts>,
    volumes: RefCell<BTreeMap<VolumeId, Kept>>,
    /// Volumes whose copy here is being closed: another one must not be opened meanwhile.
    closing: RefCell<BTreeSet<VolumeId>>,
    /// One change of what copies act in at a time.
    acting: Semaphore,
    /// Copies are opened one after the other: twice at once, the second opening would undo what the first one has been told since.
    opening: Semaphore,
    /// Rung when there is something to do before the next look.
    work: Notify,
    /// Rung when the record has changed and copies act by it.
    applied: Notify,
    /// Who was asked, and who waits for the answer. No number is used again: a late answer is nobody's.
    questions: RefCell<BTreeMap<u64, (NodeId, Sender<Answered>)>>,
    last_question: Cell<u64>,
    syncs: RefCell<Syncs>,
    told: RefCell<telling::Told>,
    outside: RefCell<Outside>,
    dealt: RefCell<Dealt>,
    engine: Engine,
    /// Volumes with which this node has gone on alone.
    forks: Forks,
    stopping: Cell<bool>,
}

/// What a question came to.
type Answered = Result<Answer, String>;

/// Another node.
#[derive(Default)]
struct PeerState {
    link: Option<Rc<Link>>,
    /// It has said that it leaves, in this life.
    leaving: Option<Incarnation>,
    /// The life that was heard last.
    life: Option<Incarnation>,
    /// The last life whose process is known to be dead.
    dead: Option<Incarnation>,
    /// When it was heard first.
    met: Option<Instant>,
    heard: Option<Instant>,
    /// Whom it reaches, as it said last; `None`: it does not say that.
    reached: Option<BTreeSet<NodeId>>,
    /// With which volumes it has gone on alone, as it has said over the link that is up or was up last.
    word: Option<Word>,
}

/// A volume with a copy here.
struct Kept {
    entry: VolumeEntry,
    /// The record's revision of the entry.
    revision: cluster::Revision,
    slot: Slot,
    /// Which copy it is: [`CopyEntry::made`].
    made: u64,
    membership: Membership,
    steward: Steward,
    /// What the disk holds is not what it held when this copy was in sync: it cannot go on alone.
    blank: bool,
    /// Its slices are open.
    open: bool,
    /// When the last of them was opened.
    opened: Instant,
    /// They were, in this life, and forgot what they knew when they were closed: see [`Keeper::may_open`].
    reopens: bool,
    /// What they held is gone then: it was in memory.
    forgets: bool,
    /// A disk of it failed.
    failed: bool,
    /// The capacity that hosts are told.
    shown: u64,
    /// A change is being committed.
    proposing: bool,
    agreement: Agreement,
    doubt: Doubt,
    /// When it last was in sync and had the leases of all other members.
    led: Option<Instant>,
    /// Hosts are not served: what is here and what the record says are to be settled first.
    held: bool,
    /// Where the record has what somebody has chosen for it: looked up twenty times a second.
    strategy_key: String,
}

/// What is shown of a volume's copies.
#[derive(Clone, Debug)]
pub struct CopiesStatus {
    /// As the record has it.
    pub entry: VolumeEntry,
    /// The slot of the copy here, and whether it is open.
    pub here: Option<(Slot, bool)>,
    /// Whether this node's copy may be read now.
    pub serving: bool,
    /// How far the copies are that are not in sync, by slot.
    pub syncs: BTreeMap<u8, CopySync>,
    /// What is to become of it when nobody has the cluster's record, if somebody has said so.
    pub strategy: Option<StrategyEntry>,
    /// A node has gone on alone with it, and that is not settled.
    pub fork: Option<ForkShown>,
}

impl Keeper {
    /// Begins to follow the record, which `engine` keeps. `forks` are the volumes with which an earlier life has gone on alone.
    pub fn start(
        copies: Rc<Copies>,
        store: Store,
        watch: Watch,
        links: Links,
        engine: Engine,
        forks: Vec<ForkRecord>,
    ) -> Rc<Keeper> {
        let keeper = Rc::new(Keeper {
            copies: Rc::clone(&copies),
            store,
            links,
            record: RefCell::default(),
            peers: RefCell::default(),
            cuts: RefCell::default(),
            volumes: RefCell::default(),
            closing: RefCell::default(),
            acting: Semaphore::new(1),
            opening: Semaphore::new(1),
            work: Notify::new(),
            applied: Notify::new(),
            questions: RefCell::default(),
            last_question: Cell::new(0),
            syncs: RefCell::default(),
            told: RefCell::new(telling::Told::new(rt::now())),
            outside: RefCell::new(Outside::new(rt::now())),
            dealt: RefCell::default(),
            engine,
            forks: Forks::new(rt::now(), forks),
            stopping: Cell::new(false),
        });
        copies.set_keeper(Rc::downgrade(&keeper));
        rt::spawn(Rc::clone(&keeper).follow(watch)).detach();
        rt::spawn(Rc::clone(&keeper).beat()).detach();
        rt::spawn(Rc::clone(&keeper).guard()).detach();
        keeper
    }

    /// The cluster's record.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The node's links with others.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// Whether nodes vote in the record; in a site's etcd they do not.
    pub fn nodes_vote(&self) -> bool {
        !matches!(self.engine, Engine::Etcd(_))
    }

    /// Why etcd, where it has the record, cannot be used now.
    pub fn record_trouble(&self) -> Option<String> {
        match &self.engine {
            Engine::Etcd(etcd) => etcd.status().trouble,
            _ => None,
        }
    }

    /// Changes who follows the record, and who votes. In etcd that is nobody's business but etcd's.
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

    /// Where other nodes reach this one.
    pub fn addresses(&self) -> Vec<std::net::SocketAddr> {
        self.links.local_addresses().to_vec()
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

    /// This life of it.
    pub fn incarnation(&self) -> Incarnation {
        self.copies.incarnation()
    }

    /// The value at `key`, as far as this node has followed the record.
    pub fn get<T: DeserializeOwned>(&self, key: &str) -> Option<(T, cluster::Revision)> {
        let record = self.record.borrow();
        let value = record.entries.get(key)?;
        Some((parse(key, &value.value)?, value.revision))
    }

    /// The values whose keys begin with `prefix`, by key.
    pub fn list<T: DeserializeOwned>(&self, prefix: &str) -> Vec<T> {
        let record = self.record.borrow();
        let range = record.entries.range(prefix.to_owned()..);
        range
            .take_while(|(key, _)| key.starts_with(prefix))
            .filter_map(|(key, value)| parse(key, &value.value))
            .collect()
    }

    /// The revision at which this node last saw the key changed; `None`: there is no such key.
    pub fn revision_of(&self, key: &str) -> Option<cluster::Revision> {
        self.record.borrow().entries.get(key).map(|value| value.revision)
    }

    /// Changes the record, and waits until this node acts by it.
    ///
    /// # Errors
    /// [`ClusterError::Record`], [`ClusterError::Conflict`].
    pub async fn commit(&self, transaction: Transaction) -> Result<(), ClusterError> {
        match self.store.cas(transaction, RECORD_DEADLINE).await? {
            Outcome::Committed(revision) => {
                let there = || self.acts_by() >= Revision(revision.0);
                self.until(RECORD_DEADLINE, there).await;
                Ok(())
            }
            Outcome::Conflict { key, .. } => Err(ClusterError::Conflict(key)),
        }
    }

    /// How far this node has followed the record, be it that it does not act by it yet.
    fn followed(&self) -> Revision {
        Revision(self.record.borrow().revision.0)
    }

    /// How far this node acts by the record.
    pub fn acts_by(&self) -> Revision {
        self.copies.leases().applied()
    }

    /// Waits until something is so by the record, as this node acts by it; `false` if it was not so in time.
    pub async fn until(&self, deadline: Duration, is_so: impl Fn() -> bool) -> bool {
        rt::timeout(deadline, self.applied.until(is_so)).await.is_ok()
    }

    /// Waits until this node serves a new volume, if it has a copy: until the nodes have promised each other so. Not for longer than that takes if all is well.
    pub async fn until_serves(&self, id: VolumeId) {
        let until = rt::now() + SERVES_WITHIN;
        let waits = || {
            let volume = self.volume(id);
            volume.is_some_and(|volume| volume.entry.copy_on(self.me()).is_some() && !volume.serving)
        };
        while waits() && rt::now() < until {
            rt::sleep(SERVES_EVERY).await;
        }
        self.show_paths().await;
    }

    /// Waits until the record has the key; not without end.
    pub async fn until_known(&self, key: &str) {
        self.until(RECORD_DEADLINE, || self.revision_of(key).is_some()).await;
    }

    /// A transaction with a number of its own.
    pub fn transaction() -> Transaction {
        Transaction::new(u128::from(rt::random()) << 64 | u128::from(rt::random()))
    }

    /// The nodes of the cluster, and whether each was heard of just now.
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

    /// Whether the node was heard of just now; this one always is.
    pub fn hears(&self, node: NodeId) -> bool {
        self.is_heard(rt::now(), node)
    }

    /// The ways to some of the volumes that have an open copy here, those behind `after`; and where the next turn of this core goes on, if there may be more.
    pub fn some_paths(&self, after: Option<VolumeId>) -> (Vec<(VolumeId, Paths)>, Option<VolumeId>) {
        let mut some = Vec::new();
        let next = parts::look_at_some(&mut self.volumes.borrow_mut(), after, |id, kept| {
            if kept.open {
                some.push((id, self.paths_to(kept)));
            }
        });
        (some, next)
    }

    /// The ways to one of them.
    pub fn paths_of(&self, id: VolumeId) -> Option<Paths> {
        self.volumes.borrow().get(&id).filter(|kept| kept.open).map(|kept| self.paths_to(kept))
    }

    /// As this node acts. Hosts count on it: of a node through which the volume is said to be unavailable nothing takes effect any more.
    fn paths_to(&self, kept: &Kept) -> Paths {
        // Its disk and its links have more to do: as long as there is another, hosts are better served there.
        let others_serve = kept.membership.active().is_some_and(|config| config.in_sync().len() > 1);
        let way = |serves: bool, node: NodeId| match serves {
            false => AccessState::Unavailable,
            true if others_serve && self.is_source(kept.entry.number, node) => {
                AccessState::ActiveNonOptimized
            }
            true => AccessState::ActiveOptimized,
        };
        let acts = kept.membership.active().is_some_and(|config| self.is_in_sync(kept, config));
        let named = kept.membership.newest().is_some_and(|config| self.is_in_sync(kept, config));
        let others = kept.entry.copies.iter().filter(|copy| copy.slot as usize != kept.slot.index());
        let others = others.filter_map(|copy| {
            let number = NodeNumber::new(copy.node.into())?;
            let slot = copy.slot()?;
            let serves = |config: &Config| config.in_sync().contains(slot);
            // Before this node acts by anything it says what the record says.
            let config = kept.membership.active().or(kept.membership.newest());
            Some((number, Way::new(way(config.is_some_and(serves), NodeId(copy.node)))))
        });
        let serves = acts && named && kept.agreement.known && !kept.held;
        let own = kept.doubt.state().filter(|_| serves).unwrap_or_else(|| way(serves, self.me()));
        Paths { own: Way::new(own), others: others.collect() }
    }

    fn serves(&self, now: Instant, kept: &Kept) -> bool {
        !kept.held
            && kept.membership.active().is_some_and(|config| {
                let others = config.members().without(kept.slot);
                let nodes = others.iter().filter_map(|slot| config.copy(slot)).map(|copy| copy.node);
                self.is_in_sync(kept, config) && self.copies.holds_all(now, nodes)
            })
    }

    /// Whether the configuration has the copy here as a member, in this life.
    fn is_member(&self, kept: &Kept, config: &Config) -> bool {
        config.has_member(kept.slot, self.copies.incarnation())
    }

    /// Whether the configuration has the copy here in sync, in this life.
    fn is_in_sync(&self, kept: &Kept, config: &Config) -> bool {
        config.in_sync_incarnation(kept.slot) == Some(self.copies.incarnation())
    }

    async fn follow(self: Rc<Self>, mut watch: Watch) {
        loop {
            match watch.next().await {
                Ok(Event::Everything(everything)) => {
                    let before = self.record.replace((*everything).clone());
                    let keys: BTreeSet<String> =
                        before.entries.keys().chain(everything.entries.keys()).cloned().collect();
                    // What was there when this node began to follow is no news.
                    if !before.entries.is_empty() {
                        let was = keys.iter().map(|key| (key.clone(), before.entries.get(key).cloned()));
                        self.tell_changes(was.collect());
                    }
                    self.act_by(keys, everything.revision).await;
                }
                Ok(Event::Change(change)) => {
                    let before = self.values_at(change.writes.iter().map(|(key, _)| key));
                    self.record.borrow_mut().change(&change);
                    self.tell_changes(before);
                    let keys = change.writes.iter().map(|(key, _)| key.clone()).collect();
                    self.act_by(keys, change.revision).await;
                }
                Err(error) => {
                    if !self.stopping.get() {
                        tracing::error!(%error, "the cluster's record cannot be followed any more: restart the node");
                    }
                    return;
                }
            }
        }
    }

    /// Has everything act by what the record says at these keys.
    async fn act_by(self: &Rc<Self>, keys: BTreeSet<String>, revision: cluster::Revision) {
        let revision = Revision(revision.0);
        self.copies.set_known(revision);
        if keys.iter().any(|key| key.starts_with(NODES) || key.starts_with(LINK_ROLES)) {
            self.learn_nodes();
        }
        for key in keys.iter().filter(|key| key.starts_with(VOLUMES)) {
            self.learn_volume(key).await;
        }
        self.learn_splits(&keys).await;
        self.keep_paused().await;
        self.open_volumes_soon();
        self.activate().await;
        // Outside it stops at once; and a member may go on in the epoch before: nothing can end without it.
        on_every_core(move || Copies::current().set_applied(revision));
        if let Some(control) = Control::try_current() {
            control.act_by_cluster(&keys).await;
        }
        self.show_paths().await;
        self.applied.notify();
        self.work.notify();
    }

    fn learn_nodes(&self) {
        let entries: Vec<NodeEntry> = self.list(NODES);
        if !entries.iter().any(|entry| NodeId(entry.id) == self.me()) {
            // It has joined, and does not know the record yet: those that it was told of are all it has.
            return;
        }
        let peers =
            entries.iter().map(|entry| peer(entry.id, &entry.addresses, &self.link_roles(NodeId(entry.id))));
        self.links.set_peers(peers.collect());
    }

    /// What a node's addresses are kept for.
    pub fn link_roles(&self, node: NodeId) -> LinkRoles {
        self.get::<LinkRoles>(&link_roles_key(node)).map(|(roles, _)| roles).unwrap_or_default()
    }

    async fn learn_volume(self: &Rc<Self>, key: &str) {
        let Some(id) = key.strip_prefix(VOLUMES).and_then(VolumeId::parse) else { return };
        let found = self.get::<VolumeEntry>(key);
        let here = found.and_then(|(entry, revision)| {
            let (slot, copy) = entry.copy_on(self.me())?;
            let made = copy.made;
            Some((entry, revision, slot, made))
        });
        let Some((entry, revision, slot, made)) = here else { return self.forget(id).await };
        let Some(config) = entry.config(Revision(revision.0)) else {
            tracing::error!(
                key,
                "an entry of the cluster's record cannot be read: the volume stays as it was"
            );
            return;
        };
        if self.volumes.borrow().get(&id).is_some_and(|kept| (kept.slot, kept.made) != (slot, made)) {
            // It was taken off this node and put there again while nobody told this node so.
            self.forget(id).await;
        }
        let mut volumes = self.volumes.borrow_mut();
        let life = self.copies.incarnation();
        let kept = volumes.entry(id).or_insert_with(|| Kept {
            entry: entry.clone(),
            revision,
            slot,
            made,
            membership: Membership::new(slot, life),
            steward: Steward::new(rt::now(), slot, life, SILENCE_MAX),
            blank: false,
            open: false,
            opened: rt::now(),
            reopens: false,
            forgets: false,
            failed: false,
            shown: entry.size,
            proposing: false,
            agreement: Agreement::new(false),
            doubt: Doubt::default(),
            led: None,
            held: false,
            strategy_key: strategy_key(id),
        });
        tracing::info!(
            volume = entry.name,
            epoch = entry.epoch,
            reason = entry.reason,
            "who is in sync has changed"
        );
        for copy in &entry.copies {
            if let Some(slot) = copy.slot()
                && kept.entry.copy_in(slot).is_none_or(|before| before.node != copy.node)
            {
                kept.steward.forget(slot);
            }
        }
        (kept.entry, kept.revision, kept.proposing) = (entry, revision, false);
        if self.forks.allow(id, slot, &config) {
            // What was held until the record says so is not in sync by now.
            kept.held &= self.forks.has(id) || config.in_sync().contains(slot);
            kept.membership.learn(config);
        }
    }

    /// Whether the node is to be stopped: it has no copy in sync then.
    pub fn is_in_maintenance(&self, node: NodeId) -> bool {
        self.record.borrow().entries.contains_key(&maintenance_key(node))
    }

    /// Since when it is, in seconds since 1970; `None`: it is not, or a version began it that did not note the time.
    pub fn maintenance_since(&self, node: NodeId) -> Option<u64> {
        self.get::<serde_json::Value>(&maintenance_key(node))?.0.as_u64()
    }

    /// Has copies act in what they may act in now.
    async fn activate(self: &Rc<Self>) {
        self.acting.acquire(1).await;
        let now = rt::now();
        let mut due: Vec<(u32, ByteLen, Activation)> = Vec::new();
        let mut grown: Vec<(VolumeId, ByteLen)> = Vec::new();
        {
            let leases = self.copies.leases();
            let mut volumes = self.volumes.borrow_mut();
            // Of one that is closed for a while no slice hears of it.
            for (id, kept) in volumes.iter_mut().filter(|(_, kept)| kept.open || kept.reopens) {
                if let Some(activation) = kept.membership.poll(now, &leases) {
                    let size = ByteLen(kept.entry.size);
                    due.push((kept.entry.number, size, activation));
                    if kept.shown != size.0 {
                        kept.shown = size.0;
                        grown.push((*id, size));
                    }
                }
            }
        }
        if !due.is_empty() {
            let due: Arc<[(u32, ByteLen, Activation)]> = due.into();
            on_all_cores(move || {
                let due = Arc::clone(&due);
                async move {
                    let copies = Copies::current();
                    for (volume, size, activation) in due.iter() {
                        for copy in copies.slices_of(*volume) {
                            copy.grow(*size);
                            copy.activate(activation.clone());
                        }
                    }
                }
            })
            .await;
            self.learn_agreements();
        }
        for (id, size) in grown {
            show_capacity(id, size).await;
        }
        self.acting.release(1);
    }

    /// Acts when leases have run out, and proposes.
    async fn guard(self: Rc<Self>) {
        let mut look_at = rt::now();
        while !self.stopping.get() {
            let now = rt::now();
            let due = self.due();
            if due.is_some_and(|due| due <= now) {
                self.activate().await;
                self.open_volumes_soon();
                self.show_paths().await;
            }
            if look_at <= now {
                look_at = now + STEWARD_EVERY;
                self.tell_nodes(now);
                self.tell_record(now);
                self.look_at_leases().await;
                self.propose().await;
                self.look_at_forks();
                if self.look_at_sources(rt::now()) {
                    self.show_paths().await;
                }
            }
            let next = due.filter(|due| *due > now).map_or(look_at, |due| due.min(look_at));
            let _ = rt::timeout(next.since(rt::now()), self.work.notified()).await;
        }
    }

    fn due(&self) -> Option<Instant> {
        let leases = self.copies.leases();
        self.volumes
            .borrow()
            .values()
            .filter(|kept| kept.open || kept.reopens)
            .filter_map(|kept| kept.membership.due(&leases))
            .min()
    }

    /// Tells units by which nodes they are reached and how.
    async fn show_paths(&self) {
        if let Some(control) = Control::try_current() {
            control.show_paths_of_copies().await;
        }
    }

    /// A control link is up.
    pub(super) fn link_up(&self, link: Rc<Link>) {
        let peer = link.name().peer;
        // Before any lease that is given over it.
        self.say_forks(&link);
        {
            let mut peers = self.peers.borrow_mut();
            let state = peers.entry(peer).or_default();
            (state.link, state.word) = (Some(Rc::clone(&link)), None);
        }
        // What was said last may have gone by a network that has fallen silent: the other one counts.
        if !self.stopping.get() {
            self.ask_for_leases(&[link]);
        }
    }

    /// A control link broke; gives it.
    pub(super) fn link_down(&self, node: NodeId) -> Option<Rc<Link>> {
        let link = self.peers.borrow_mut().get_mut(&node).and_then(|peer| peer.link.take());
        // Who waits for its answer learns that none comes.
        self.questions.borrow_mut().retain(|_, (asked, _)| *asked != node);
        self.engine.unreachable(node);
        link
    }

    /// A process that was this life of the other node is dead, for certain: nobody waits for it any more.
    pub(super) fn handle_death(self: &Rc<Self>, of: NodeId, life: Incarnation) {
        tracing::warn!(node = %of, incarnation = life.0, "the process of another node has died");
        self.note_death(of);
        self.note_end_of(of, life);
        self.copies.with_leases(|leases| leases.handle_death(of, life));
        for kept in self.volumes.borrow_mut().values_mut() {
            if let Some((slot, _)) = kept.entry.copy_on(of) {
                kept.steward.handle_death(slot, life);
            }
        }
        self.engine.died(of);
        let keeper = Rc::clone(self);
        rt::spawn(async move { keeper.propose().await }).detach();
        // A configuration without it may be there already, and have waited for its leases.
        self.work.notify();
    }

    /// Sends the record's own message; lost without a link.
    pub fn send_record(&self, to: NodeId, bytes: Vec<u8>) {
        let link = self.peers.borrow().get(&to).and_then(|peer| peer.link.clone());
        if let Some(link) = link {
            link.send(message::frame(message::RECORD, 0, bytes));
        }
    }

    /// A frame of a control link.
    pub(super) fn frame(self: &Rc<Self>, link: &Rc<Link>, frame: Frame) {
        let from = link.name().peer;
        match frame.kind {
            message::HEARTBEAT => match Heartbeat::parse(&frame.head) {
                Some(heartbeat) => {
                    let Said { clock, reached } = message::said_in(&frame);
                    if let Some(clock) = clock {
                        self.copies.hear_clock(clock);
                    }
                    self.handle_heartbeat(link, heartbeat, reached);
                }
                None => link.close("it sent a heartbeat that cannot be read"),
            },
            message::RECORD => self.engine.deliver(from, frame.head),
            message::ASK => {
                let (keeper, link) = (Rc::clone(self), Rc::clone(link));
                rt::spawn(async move { keeper.answer(&link, frame).await }).detach();
            }
            message::ANSWER => self.handle_answer(from, &frame),
            message::SYNCS => self.handle_syncs(rt::now(), from, &frame),
            message::FORKS => self.handle_forks(from, &frame),
            message::LEAVING => {
                let life = link.peer_incarnation();
                self.peers.borrow_mut().entry(from).or_default().leaving = Some(life);
                on_every_core(|| Copies::current().slices().iter().for_each(SliceCopy::settle));
                self.work.notify();
            }
            _ => link.close("it sent a frame of a kind that does not exist"),
        }
    }
}

/// A value as the record keeps it.
pub fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("our records are plain structures with text keys")
}

fn parse<T: DeserializeOwned>(key: &str, value: &[u8]) -> Option<T> {
    serde_json::from_slice(value)
        .inspect_err(|error| tracing::error!(key, %error, "an entry of the cluster's record cannot be read and is passed over"))
        .ok()
}
