//! What a core has of the node's copies: slices, links to other nodes, and the leases by which it may answer
//! reads.
//!
//! A message between two slices goes over the link of its number: of as many as the node with more cores has
//! cores, that which the slice's number gives. So all that two slices say to each other stays in order, and
//! mostly the link is on the slice's own core.

mod link_handler;

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::rc::{Rc, Weak};
use std::time::Duration;

use base::{Chain, Instant};
use link::{ClusterId, Frame, Link, LinkName, Role};
use replica::wire::Malformed;
use replica::{Incarnation, LeaseGrant, Leases, NodeId, Receivers, Revision, Slot, Slots, Terms};
use rt::CoreId;
use rt::sync::Notify;

pub use self::link_handler::LinkHandler;
use super::budget::{Budget, Turns};
use super::fetch::FetchMessage;
use super::linked::Linked;
use super::lock::LockMessage;
use super::pace::Pace;
use super::{Address, Keeper, SliceCopy, Traffic};
use crate::parts::A_TURN;
use crate::shard::Shard;

/// The kind of a frame between slices: the protocol's own.
pub(super) const SLICE: u8 = 1;
/// About ranges that commands have for themselves.
pub(super) const LOCK: u8 = 7;
/// About blocks that a copy cannot read.
pub(super) const FETCH: u8 = 8;

/// How often syncs are let go on that wait for that.
const SYNC_EVERY: Duration = Duration::from_millis(5);

/// By how many nanoseconds the clocks of two nodes that hear of each other may differ without being set.
const CLOCK_STEP: u64 = 100_000;

/// No clock has run for so long, a hundred years: what is said to be later is a mistake, and the order of
/// writes must have room beyond it.
const CLOCK_MAX: u64 = 100 * 366 * 24 * 3600 * 1_000_000_000;

/// See the module.
pub struct Copies {
    cluster: ClusterId,
    me: NodeId,
    incarnation: Incarnation,
    /// On core 0 also those that this node gives.
    leases: RefCell<Leases>,
    /// [`rt::clock_stops`], as of when the leases were last looked at.
    clock_stops: Cell<u64>,
    /// On core 0: rung when leases are void before their time, and are to be asked for.
    pub(super) leases_void: Notify,
    slices: RefCell<BTreeMap<Address, Rc<SliceCopy>>>,
    /// The replication links that live on this core.
    links: RefCell<BTreeMap<(NodeId, u16), Rc<Link>>>,
    /// On every core: which replication links are up, of how many.
    up: RefCell<BTreeMap<NodeId, Reached>>,
    /// What the slices of this core have sent and received.
    traffic: RefCell<BTreeMap<NodeId, Traffic>>,
    /// How often copies of this core were written to, by hosts or by what they missed.
    writes: Cell<u64>,
    /// By how many nanoseconds the cluster's clock is ahead of this node's.
    ahead: Cell<u64>,
    /// How fast syncs go from this core.
    pace: RefCell<Pace>,
    /// Which volumes may be given what they miss.
    turns: RefCell<Turns>,
    /// Which copies are given nothing in bulk, by the volume's number: somebody has paused that.
    paused: RefCell<BTreeMap<u32, Slots>>,
    /// When links that are down by now had last received anything, by the node that they led to, and their
    /// role.
    heard: RefCell<BTreeMap<(NodeId, Role), Instant>>,
    /// Rung when a sync waits for that.
    syncs_wait: Notify,
    /// Reads wait for a word of the other nodes (R24).
    read_confirm: bool,
    /// Copies with acknowledgements that have not left, or questions of reads.
    owing: RefCell<Vec<Rc<SliceCopy>>>,
    /// Rung when there is one.
    owes: Notify,
    /// On core 0. It lives as long as its tasks do.
    keeper: RefCell<Weak<Keeper>>,
}

/// The links to a node.
#[derive(Debug, Default)]
struct Reached {
    of: u16,
    up: BTreeSet<u16>,
}

impl Reached {
    fn link_of(&self, slice: u16) -> Option<u16> {
        let number = slice % self.of.max(1);
        self.up.contains(&number).then_some(number)
    }

    fn is_whole(&self) -> bool {
        self.up.len() == usize::from(self.of)
    }
}

impl Copies {
    /// A core of node `me` in this life.
    pub fn new(cluster: ClusterId, me: NodeId, incarnation: Incarnation, read_confirm: bool) -> Rc<Copies> {
        Rc::new(Copies {
            cluster,
            me,
            incarnation,
            leases: RefCell::new(Leases::new(rt::now(), incarnation, Terms::default())),
            clock_stops: Cell::new(rt::clock_stops()),
            leases_void: Notify::new(),
            slices: RefCell::default(),
            links: RefCell::default(),
            up: RefCell::default(),
            traffic: RefCell::default(),
            writes: Cell::new(0),
            ahead: Cell::new(0),
            pace: RefCell::new(Pace::new(rt::now())),
            turns: RefCell::default(),
            paused: RefCell::default(),
            heard: RefCell::default(),
            syncs_wait: Notify::new(),
            read_confirm,
            owing: RefCell::default(),
            owes: Notify::new(),
            keeper: RefCell::new(Weak::new()),
        })
    }

    /// Those of the core that runs the caller.
    ///
    /// # Panics
    /// If the node is in no cluster.
    pub fn current() -> Rc<Copies> {
        Shard::current().copies().expect("asked for by a copy, which a node has in a cluster only")
    }

    /// Those of the core that runs the caller, if the node has come as far, and is in a cluster: for who
    /// looks in from outside.
    pub fn try_current() -> Option<Rc<Copies>> {
        Shard::try_current()?.copies()
    }

    /// The node's cluster.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// This node.
    pub fn me(&self) -> NodeId {
        self.me
    }

    /// This life of it.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The cluster's time in nanoseconds: it runs as this node's clock does, and is not behind what another
    /// node has said by more than [`CLOCK_STEP`] (as a hybrid logical clock). So nodes that hear of each
    /// other differ by what a message takes. It orders writes that do not know of each other (G1).
    pub fn clock(&self) -> u64 {
        rt::now().0.saturating_add(self.ahead.get())
    }

    /// Another node's clock says so.
    pub(super) fn hear_clock(&self, clock: u64) {
        let behind = clock.saturating_sub(self.clock());
        if behind > CLOCK_STEP && clock < CLOCK_MAX {
            let ahead = self.ahead.get().saturating_add(behind);
            on_every_core(move || Copies::current().ahead.set(ahead));
        }
    }

    /// Whether reads of volumes with other copies wait for a word of the other nodes (R24).
    pub fn read_confirm(&self) -> bool {
        self.read_confirm
    }

    /// The leases, to read by.
    pub fn leases(&self) -> Ref<'_, Leases> {
        self.look_at_clock();
        self.leases.borrow()
    }

    /// The leases, to change.
    pub(super) fn with_leases<T>(&self, with: impl FnOnce(&mut Leases) -> T) -> T {
        with(&mut self.leases.borrow_mut())
    }

    /// Drops the leases that this node holds if its clock may have stopped since they were last looked at.
    fn look_at_clock(&self) {
        let stops = rt::clock_stops();
        if self.clock_stops.replace(stops) != stops {
            tracing::warn!(core = %rt::core(), "the time of day has run ahead of this machine's clock: leases dropped and requested again");
            self.leases.borrow_mut().handle_clock_stop(rt::now());
            self.leases_void.notify();
        }
    }

    /// The keeper looks after core 0's control links.
    pub(super) fn set_keeper(&self, keeper: Weak<Keeper>) {
        self.keeper.replace(keeper);
    }

    /// The keeper, on core 0.
    pub fn keeper(&self) -> Option<Rc<Keeper>> {
        self.keeper.borrow().upgrade()
    }

    /// Tells copies that time passes, for ever.
    pub async fn tick(self: Rc<Self>) {
        loop {
            rt::sleep(replica::TICK).await;
            self.for_each_slice(A_TURN, SliceCopy::tick).await;
        }
    }

    /// Lets syncs of this core go on at their pace, for ever.
    pub async fn sync(self: Rc<Self>) {
        let mut first = 0;
        loop {
            first += 1;
            if !self.go_on_syncing(first) {
                self.syncs_wait.notified().await;
            }
            rt::sleep(SYNC_EVERY).await;
        }
    }

    /// Sends the acknowledgements of a turn of this core, together, and what its reads ask, for ever.
    pub async fn acknowledge(self: Rc<Self>) {
        loop {
            self.owes.notified().await;
            let owing = self.owing.take();
            owing.iter().for_each(SliceCopy::send_owed);
        }
    }

    /// A copy has acknowledgements, or a question, that are to leave with others of this turn.
    pub(super) fn will_send(&self, copy: Rc<SliceCopy>) {
        self.owing.borrow_mut().push(copy);
        self.owes.notify();
    }

    /// Says whether any has more to give. Another slice is the first each time, so that all get on. No slice
    /// is held when this returns: one that is held cannot be closed, nor its volume deleted.
    fn go_on_syncing(&self, first: usize) -> bool {
        let slices = self.slices();
        let in_turn = (0..slices.len()).map(|index| &slices[(first + index) % slices.len()]);
        in_turn.filter(|copy| copy.goes_on_syncing()).count() > 0
    }

    /// How fast syncs go from this core.
    pub(super) fn pace(&self) -> RefMut<'_, Pace> {
        self.pace.borrow_mut()
    }

    /// Syncs of this core keep to that from now on.
    pub(super) fn keep_to(&self, budget: Option<Budget>, turns: Turns) {
        self.pace().set_budget(budget);
        self.turns.replace(turns);
        // Whose turn it is now may have nothing under way that would wake it.
        self.syncs_wait.notify();
    }

    /// Which copies are paused from now on, by the volume's number.
    pub(super) fn set_paused(&self, paused: BTreeMap<u32, Slots>) {
        self.paused.replace(paused);
        // What goes on now may have nothing under way that would wake it.
        self.syncs_wait.notify();
    }

    /// Whether somebody has paused what this copy is given in bulk.
    pub(super) fn is_paused(&self, volume: u32, slot: Slot) -> bool {
        self.paused.borrow().get(&volume).is_some_and(|slots| slots.contains(slot))
    }

    /// Which copies of the volume may be given what they miss.
    pub(super) fn receivers(&self, volume: u32) -> Receivers {
        if !self.turns.borrow().has(volume) {
            return Receivers::Joiners;
        }
        let paused = self.paused.borrow().get(&volume).copied();
        paused.map_or(Receivers::All, Receivers::AllBut)
    }

    /// A host's write of so many bytes begins, and ends when what this gives is dropped: syncs make room for
    /// them.
    pub(super) fn time_write(self: &Rc<Self>, bytes: u64) -> TimedWrite {
        self.pace().begin_write(bytes);
        TimedWrite { copies: Rc::clone(self), began: rt::now() }
    }

    /// A sync has more to give than it may now.
    pub(super) fn wait_for_pace(&self) {
        self.syncs_wait.notify();
    }

    /// A copy of a slice of this core.
    pub fn add(&self, copy: Rc<SliceCopy>) {
        self.slices.borrow_mut().insert(copy.address(), copy);
    }

    /// The slices of a volume are closed.
    pub fn remove(&self, volume: u32) {
        for copy in self.slices_of(volume) {
            self.slices.borrow_mut().remove(&copy.address());
        }
    }

    /// The slices of this core.
    pub fn slices(&self) -> Vec<Rc<SliceCopy>> {
        self.slices.borrow().values().cloned().collect()
    }

    /// Calls `each` with the slices of this core, in the order of their addresses, so many in each turn of
    /// it. None is held in between: one that is held cannot be closed, nor its volume deleted.
    pub(super) async fn for_each_slice(&self, a_turn: usize, mut each: impl FnMut(&Rc<SliceCopy>)) {
        let mut after: Option<Address> = None;
        loop {
            let part: Vec<Rc<SliceCopy>> = {
                let slices = self.slices.borrow();
                let from = after.map_or(Bound::Unbounded, Bound::Excluded);
                let rest = slices.range::<Address, _>((from, Bound::Unbounded));
                rest.take(a_turn).map(|(_, copy)| Rc::clone(copy)).collect()
            };
            part.iter().for_each(&mut each);
            if part.len() < a_turn {
                return;
            }
            after = part.last().map(|copy| copy.address());
            drop(part);
            rt::next_turn().await;
        }
    }

    /// A slice of this core.
    pub(super) fn slice(&self, address: Address) -> Option<Rc<SliceCopy>> {
        self.slices.borrow().get(&address).cloned()
    }

    /// The slices of a volume that are on this core.
    pub fn slices_of(&self, volume: u32) -> Vec<Rc<SliceCopy>> {
        let all = Address { volume, slice: 0 }..=Address { volume, slice: u16::MAX };
        self.slices.borrow().range(all).map(|(_, copy)| Rc::clone(copy)).collect()
    }

    /// Whether messages to that slice's copy on a node can be sent now.
    pub fn reaches(&self, node: NodeId, slice: u16) -> bool {
        self.up.borrow().get(&node).is_some_and(|reached| reached.link_of(slice).is_some())
    }

    /// When a replication link of this core, or one that is down, last received anything of the node, if only
    /// a sign of life.
    pub(super) fn heard_of(&self, node: NodeId) -> Option<Instant> {
        let links = self.links.borrow();
        let up = links.iter().filter(|((peer, _), _)| *peer == node).map(|(_, link)| link.heard());
        let heard = self.heard.borrow();
        let down = [Role::Control, Role::Replication].into_iter().filter_map(|role| heard.get(&(node, role)));
        up.chain(down.copied()).max()
    }

    /// How the replication links are that this core has with each other node, or had in this life.
    pub fn linked(&self) -> BTreeMap<NodeId, Linked> {
        let now = rt::now();
        let mut all: BTreeMap<NodeId, Linked> = BTreeMap::new();
        for (node, reached) in &*self.up.borrow() {
            all.entry(*node).or_default().of = reached.of.into();
        }
        for ((node, _), link) in &*self.links.borrow() {
            all.entry(*node).or_default().add(now, link);
        }
        for ((node, role), heard) in &*self.heard.borrow() {
            if *role == Role::Replication {
                all.entry(*node).or_default().hear(now.since(*heard));
            }
        }
        all
    }

    /// What slices of this core have sent to other nodes and received.
    pub fn traffic(&self) -> BTreeMap<NodeId, Traffic> {
        self.traffic.borrow().clone()
    }

    /// How often copies of this core were written to.
    pub fn writes(&self) -> u64 {
        self.writes.get()
    }

    /// A copy is written to.
    pub(super) fn count_write(&self) {
        self.writes.set(self.writes.get() + 1);
    }

    /// Counts what is sent to a node or comes from it.
    pub(super) fn count(&self, node: NodeId, count: impl FnOnce(&mut Traffic)) {
        count(self.traffic.borrow_mut().entry(node).or_default());
    }

    /// Sends to the copy of the slice on `node`. Without a link it is lost, as the protocol expects.
    pub fn send(&self, node: NodeId, kind: u8, address: Address, head: Vec<u8>, payload: Chain) {
        let number = self.up.borrow().get(&node).and_then(|reached| reached.link_of(address.slice));
        let Some(number) = number else { return };
        let frame = Frame { channel: address.channel(), kind, head, payload };
        let core = LinkName { peer: node, role: Role::Replication, number }.core(rt::cores() as u16);
        on_core(core, move || Copies::current().send_here(node, number, frame));
    }

    /// Whether every slice can send to its copy on the other node: all replication links with it are up.
    pub(super) fn reaches_wholly(&self, node: NodeId) -> bool {
        self.up.borrow().get(&node).is_some_and(Reached::is_whole)
    }

    fn send_here(&self, node: NodeId, number: u16, frame: Frame) {
        let link = self.links.borrow().get(&(node, number)).cloned();
        if let Some(link) = link {
            link.send(frame);
        }
    }

    /// Told on every core, in the order of the link's own core.
    fn link_up(&self, node: NodeId, number: u16, of: u16) {
        let mut up = self.up.borrow_mut();
        let reached = up.entry(node).or_default();
        if reached.of != of {
            // Restarted with another number of cores: what was up is not any more.
            *reached = Reached { of, up: BTreeSet::new() };
        }
        reached.up.insert(number);
        drop(up);
        for copy in self.slices().iter().filter(|copy| copy.address().slice % of == number) {
            copy.link_up(node);
        }
    }

    fn link_down(&self, node: NodeId, number: u16) {
        let mut up = self.up.borrow_mut();
        let Some(reached) = up.get_mut(&node) else { return };
        if !reached.up.remove(&number) {
            return;
        }
        let of = reached.of;
        drop(up);
        for copy in self.slices().iter().filter(|copy| copy.address().slice % of == number) {
            copy.link_down(node);
        }
    }

    fn receive(&self, from: NodeId, life: Incarnation, address: Address, frame: Frame) {
        // A copy that is not open (yet) has nothing to say, and whoever waits for it asks again.
        let Some(copy) = self.slice(address).filter(|copy| !copy.is_detached()) else { return };
        let read = match frame.kind {
            LOCK => LockMessage::parse(&frame.head)
                .map(|message| copy.receive_lock(from, life, message))
                .ok_or(Malformed::Value),
            FETCH => FetchMessage::parse(&frame.head, frame.payload)
                .map(|message| copy.receive_fetch(from, life, message))
                .ok_or(Malformed::Value),
            _ => copy.receive(from, &frame.head, frame.payload),
        };
        if let Err(malformed) = read {
            tracing::error!(%from, copy = %address, error = %malformed, "a message from a copy on another node cannot be read");
            self.close_links(from);
        }
    }

    fn close_links(&self, node: NodeId) {
        let links: Vec<_> = {
            let links = self.links.borrow();
            links.iter().filter(|((peer, _), _)| *peer == node).map(|(_, link)| Rc::clone(link)).collect()
        };
        links.iter().for_each(|link| link.close("it sent a message that cannot be read"));
    }

    /// A lease was given to this node; told on every core.
    pub(super) fn grant(&self, from: NodeId, grant: LeaseGrant) {
        self.leases.borrow_mut().handle_grant(from, grant);
    }

    /// See [`Leases::set_known`].
    pub(super) fn set_known(&self, revision: Revision) {
        self.leases.borrow_mut().set_known(revision);
    }

    /// Every copy on every core acts by this revision of the record; told on every core.
    pub(super) fn set_applied(&self, revision: Revision) {
        self.leases.borrow_mut().set_applied(revision);
    }

    /// Whether this node holds the leases of all these nodes.
    pub fn holds_all(&self, now: Instant, nodes: impl IntoIterator<Item = NodeId>) -> bool {
        let leases = self.leases();
        nodes.into_iter().all(|node| leases.holds(now, node))
    }
}

/// A host's write that is under way.
pub(super) struct TimedWrite {
    copies: Rc<Copies>,
    began: Instant,
}

impl Drop for TimedWrite {
    fn drop(&mut self) {
        self.copies.pace().end_write(rt::now().since(self.began));
    }
}

/// On this core at once, on another by message; what is sent from one core to another stays in order.
fn on_core(core: CoreId, what: impl FnOnce() + Send + 'static) {
    if core == rt::core() { what() } else { rt::send(core, what) }
}

/// On this core first, then on all others.
pub(super) fn on_every_core(what: impl Fn() + Clone + Send + 'static) {
    what();
    for core in (0..rt::cores() as u16).map(CoreId).filter(|core| *core != rt::core()) {
        rt::send(core, what.clone());
    }
}
