//! What one core holds of the node's copies: slices, links to other nodes, and the leases that let it answer
//! reads.
//!
//! A message between the copies of a slice on two nodes travels over one replication link: its number is the
//! slice's number modulo the number of links. There are as many links as the node with more cores has cores.
//! So all messages between two copies of a slice stay in order, and the link is usually on the slice's own
//! core.

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
use super::message::replication::{FETCH, LOCK};
use super::pace::Pace;
use super::{Address, SliceCopy, Traffic};
use crate::member::Reconciler;
use crate::shard::Shard;
use crate::yielding::{ITEMS_PER_TURN, QUICK_ITEMS_PER_TURN};

/// The shortest time that a core waits before its resyncs send again: what their rate allows meanwhile is
/// sent together.
const SYNC_PAUSE: Duration = Duration::from_millis(5);

/// How often a core wakes that has nothing to do. In debug builds it checks then that this is so.
const TAKE_EVERY: Duration = if cfg!(debug_assertions) { replica::TICK } else { Duration::from_secs(1) };

/// How many nanoseconds a node's clock may be behind another node's before it is set forward.
const CLOCK_STEP: u64 = 100_000;

/// The latest clock that is believed: a hundred years.
///
/// No node's clock has run for that long, so a later one is a mistake. The order of writes must have room
/// beyond it.
const CLOCK_MAX: u64 = 100 * 366 * 24 * 3600 * 1_000_000_000;

/// What one core holds of the node's copies; see the module.
pub struct Copies {
    cluster: ClusterId,
    me: NodeId,
    incarnation: Incarnation,
    /// The leases that this node holds; on core 0 also those that it grants.
    leases: RefCell<Leases>,
    /// The value of [`rt::clock_stops`] when the leases were last checked.
    clock_stops: Cell<u64>,
    /// On core 0: notified when leases of any core are void before they expire, and must be requested again.
    pub(crate) leases_void: Notify,
    /// Notified when a lease has come to this core, or another one counts.
    pub(crate) leased: Notify,
    /// Whether this core has asked to be woken for the next lease: see [`Copies::want_lease`].
    wants_lease: Cell<bool>,
    /// On core 0: the cores that have asked for that.
    wanting: RefCell<BTreeSet<CoreId>>,
    slices: RefCell<BTreeMap<Address, Rc<SliceCopy>>>,
    /// Which of them need ticks; the others have come to rest ([`SliceCopy::wake`]).
    awake: RefCell<BTreeSet<Address>>,
    /// Notified when one needs ticks after none did.
    woken: Notify,
    /// The replication links that live on this core.
    links: RefCell<BTreeMap<(NodeId, u16), Rc<Link>>>,
    /// Which replication links are up, and how many there are to be; the same on every core.
    up: RefCell<BTreeMap<NodeId, Reached>>,
    /// What the slices of this core have sent to each node and received from it.
    traffic: RefCell<BTreeMap<NodeId, Traffic>>,
    /// How often copies of this core were written to, by hosts or by resyncs.
    writes: Cell<u64>,
    /// By how many nanoseconds the cluster's clock is ahead of this node's.
    ahead: Cell<u64>,
    /// How fast this core gives data to resyncs.
    pace: RefCell<Pace>,
    /// Which volumes may be resynced in bulk.
    turns: RefCell<Turns>,
    /// What is held back because the record says so.
    held_back: RefCell<HeldBack>,
    /// When a link that is down by now last received anything, by node and role.
    heard: RefCell<BTreeMap<(NodeId, Role), Instant>>,
    /// Notified when a resync has more to give than it may give now.
    syncs_wait: Notify,
    /// Whether reads wait until the other nodes confirm them (R24).
    read_confirm: bool,
    /// Copies that have acknowledgements, or questions of reads, to send at the end of this turn.
    owing: RefCell<Vec<Rc<SliceCopy>>>,
    /// Notified when there is one.
    owes: Notify,
    /// The reconciler, on core 0; it lives as long as its tasks do.
    reconciler: RefCell<Weak<Reconciler>>,
}

/// What cores hold back because the record says so, by the volumes' numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldBack {
    /// The copies that get nothing in bulk: an administrator paused their resyncs.
    pub paused: BTreeMap<u32, Slots>,
    /// The volumes that are being restored: hosts are not served.
    pub restoring: BTreeSet<u32>,
}

/// The replication links to a node: how many there are to be, and which of them are up.
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
    /// What a core of node `me` holds in this life of the node.
    pub fn new(cluster: ClusterId, me: NodeId, incarnation: Incarnation, read_confirm: bool) -> Rc<Copies> {
        Rc::new(Copies {
            cluster,
            me,
            incarnation,
            leases: RefCell::new(Leases::new(rt::now(), incarnation, Terms::default())),
            clock_stops: Cell::new(rt::clock_stops()),
            leases_void: Notify::new(),
            leased: Notify::new(),
            wants_lease: Cell::new(false),
            wanting: RefCell::default(),
            slices: RefCell::default(),
            awake: RefCell::default(),
            woken: Notify::new(),
            links: RefCell::default(),
            up: RefCell::default(),
            traffic: RefCell::default(),
            writes: Cell::new(0),
            ahead: Cell::new(0),
            pace: RefCell::new(Pace::new(rt::now())),
            turns: RefCell::default(),
            held_back: RefCell::default(),
            heard: RefCell::default(),
            syncs_wait: Notify::new(),
            read_confirm,
            owing: RefCell::default(),
            owes: Notify::new(),
            reconciler: RefCell::new(Weak::new()),
        })
    }

    /// The copies of the core that runs the caller.
    ///
    /// # Panics
    /// If the node takes no part in its cluster.
    pub fn current() -> Rc<Copies> {
        Shard::current()
            .copies()
            .expect("asked for by a copy, which a node has in a life in its cluster only")
    }

    /// The copies of the core that runs the caller, for callers from outside.
    ///
    /// `None`: the node has not started its cores yet, or takes no part in its cluster.
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

    /// This life of the node.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The cluster's time in nanoseconds, a hybrid logical clock.
    ///
    /// It runs with this node's clock, and is at most [`CLOCK_STEP`] behind what other nodes have reported.
    /// So the clocks of nodes that hear each other differ by what a message takes. It orders writes that do
    /// not know of each other (G1).
    pub fn clock(&self) -> u64 {
        rt::now().0.saturating_add(self.ahead.get())
    }

    /// Another node has reported its clock: sets this node's forward if it is behind.
    pub(crate) fn hear_clock(&self, clock: u64) {
        let behind = clock.saturating_sub(self.clock());
        if behind > CLOCK_STEP && clock < CLOCK_MAX {
            let ahead = self.ahead.get().saturating_add(behind);
            on_every_core(move || Copies::current().ahead.set(ahead));
        }
    }

    /// Whether reads of volumes with other copies wait until the other nodes confirm them (R24).
    pub fn read_confirm(&self) -> bool {
        self.read_confirm
    }

    /// The leases, to check whether a read is allowed.
    pub fn leases(&self) -> Ref<'_, Leases> {
        self.look_at_clock();
        self.leases.borrow()
    }

    /// Changes the leases.
    pub(crate) fn with_leases<T>(&self, with: impl FnOnce(&mut Leases) -> T) -> T {
        with(&mut self.leases.borrow_mut())
    }

    /// Drops the leases that this node holds if its clock may have stopped since the last check.
    fn look_at_clock(&self) {
        let stops = rt::clock_stops();
        if self.clock_stops.replace(stops) != stops {
            tracing::warn!(core = %rt::core(), "the time of day has run ahead of this machine's clock: leases dropped and requested again");
            let now = rt::now();
            self.leases.borrow_mut().handle_clock_stop(now);
            // Core 0 may have noticed long ago: what it has requested since then does not count here.
            on_core(CoreId(0), move || {
                if let Some(copies) = Copies::try_current() {
                    copies.with_leases(|leases| leases.request_after(now));
                    copies.leases_void.notify();
                }
            });
        }
    }

    /// Sets the reconciler, which handles core 0's control links.
    pub(crate) fn set_reconciler(&self, reconciler: Weak<Reconciler>) {
        self.reconciler.replace(reconciler);
    }

    /// The reconciler, on core 0.
    pub fn reconciler(&self) -> Option<Rc<Reconciler>> {
        self.reconciler.borrow().upgrade()
    }

    /// Runs the periodic work of this core's copies, forever.
    pub async fn tick(self: Rc<Self>) {
        loop {
            self.until_awake().await;
            rt::sleep(replica::TICK).await;
            self.for_each_awake(ITEMS_PER_TURN, SliceCopy::tick).await;
            if cfg!(debug_assertions) {
                self.check_rest();
            }
        }
    }

    /// Waits until a slice needs ticks, and wakes this core now and then meanwhile: other cores may have left
    /// something here ([`Copies::hand_out`]), which must not pile up.
    async fn until_awake(&self) {
        let is_awake = || !self.awake.borrow().is_empty();
        loop {
            let again = rt::now().beat_after(TAKE_EVERY);
            if rt::timeout_at(again, self.woken.until(is_awake)).await.is_ok() {
                return;
            }
            if cfg!(debug_assertions) {
                self.check_rest();
            }
        }
    }

    /// Panics if a slice that is not ticked needs ticks: whatever has changed it should have woken it.
    ///
    /// This makes every test with whole nodes look for that, and costs a search through all slices.
    fn check_rest(&self) {
        let awake = self.awake.borrow();
        for copy in self.slices.borrow().values().filter(|copy| !awake.contains(&copy.address())) {
            assert!(
                copy.rests(),
                "{} needs ticks, and nobody has woken it: {}",
                copy.address(),
                copy.unrest()
            );
        }
    }

    /// The number of slices of this core that need ticks.
    pub fn awake(&self) -> usize {
        self.awake.borrow().len()
    }

    /// From now on the slice needs ticks.
    ///
    /// If none of this core did, the reconciler may have relied on that.
    pub(super) fn wake(&self, slice: Address) {
        let is_first = self.awake.borrow().is_empty();
        self.awake.borrow_mut().insert(slice);
        if is_first {
            self.woken.notify();
            on_core(CoreId(0), || {
                if let Some(reconciler) = Copies::try_current().and_then(|copies| copies.reconciler()) {
                    reconciler.handle_awake();
                }
            });
        }
    }

    /// The slice needs no ticks until it is woken.
    pub(super) fn let_rest(&self, slice: Address) {
        self.awake.borrow_mut().remove(&slice);
    }

    /// Whether a slice knows something that leads to a proposal.
    ///
    /// Only those that need ticks are asked: nothing has happened to the others since the last look at all.
    pub(crate) async fn has_news(&self) -> bool {
        let mut news = false;
        self.for_each_awake(QUICK_ITEMS_PER_TURN, |copy| news |= !copy.view().is_quiet()).await;
        news
    }

    /// Like [`Copies::for_each_slice`], with the slices that need ticks.
    async fn for_each_awake(&self, a_turn: usize, mut each: impl FnMut(&Rc<SliceCopy>)) {
        let mut after: Option<Address> = None;
        loop {
            let from = after.map_or(Bound::Unbounded, Bound::Excluded);
            let part: Vec<Address> = {
                let awake = self.awake.borrow();
                awake.range::<Address, _>((from, Bound::Unbounded)).take(a_turn).copied().collect()
            };
            for address in &part {
                match self.slice(*address) {
                    Some(copy) => each(&copy),
                    // A task of a copy that is closed has woken it.
                    None => self.let_rest(*address),
                }
            }
            if part.len() < a_turn {
                return;
            }
            after = part.last().copied();
            rt::next_turn().await;
        }
    }

    /// Continues the resyncs of this core at their rate, forever.
    pub async fn sync(self: Rc<Self>) {
        let mut first = 0;
        loop {
            first += 1;
            let wait = if self.go_on_syncing(first) {
                self.pace().wait(rt::now())
            } else {
                self.syncs_wait.notified().await;
                Duration::ZERO
            };
            rt::sleep(wait.max(SYNC_PAUSE)).await;
        }
    }

    /// Sends the acknowledgements of each turn of this core, and the questions of its reads, together,
    /// forever.
    pub async fn acknowledge(self: Rc<Self>) {
        loop {
            self.owes.notified().await;
            let owing = self.owing.take();
            owing.iter().for_each(SliceCopy::send_owed);
        }
    }

    /// Notes that a copy has acknowledgements or a question to send at the end of this turn.
    pub(super) fn will_send(&self, copy: Rc<SliceCopy>) {
        self.owing.borrow_mut().push(copy);
        self.owes.notify();
    }

    /// Continues the resyncs of all slices; returns whether one of them has more to give.
    ///
    /// Each call begins with another slice, so that all make progress. No slice is referenced after this
    /// returns: otherwise it could not be closed, nor its volume deleted.
    fn go_on_syncing(&self, first: usize) -> bool {
        let slices = self.slices();
        let in_turn = (0..slices.len()).map(|index| &slices[(first + index) % slices.len()]);
        in_turn.filter(|copy| copy.goes_on_syncing()).count() > 0
    }

    /// How fast this core gives data to resyncs.
    pub(super) fn pace(&self) -> RefMut<'_, Pace> {
        self.pace.borrow_mut()
    }

    /// Sets the budget of this core's resyncs, and whose turn it is.
    pub(crate) fn keep_to(&self, budget: Option<Budget>, turns: Turns) {
        self.pace().set_budget(budget);
        self.turns.replace(turns);
        // A resync whose turn it is now may have nothing under way that would wake it.
        self.syncs_wait.notify();
    }

    /// Sets what is held back.
    pub(crate) fn hold_back(&self, held: HeldBack) {
        let before = self.held_back.replace(held);
        // A resync that may continue now may have nothing under way that would wake it.
        self.syncs_wait.notify();
        let now = &self.held_back.borrow().restoring;
        for volume in before.restoring.symmetric_difference(now) {
            self.slices_of(*volume).iter().for_each(|copy| copy.set_restoring(now.contains(volume)));
        }
    }

    /// Whether an administrator paused the resync of this copy.
    pub(super) fn is_paused(&self, volume: u32, slot: Slot) -> bool {
        self.held_back.borrow().paused.get(&volume).is_some_and(|slots| slots.contains(slot))
    }

    /// Which copies of the volume may be given what they miss.
    pub(super) fn receivers(&self, volume: u32) -> Receivers {
        if !self.turns.borrow().has(volume) {
            return Receivers::Joiners;
        }
        let paused = self.held_back.borrow().paused.get(&volume).copied();
        paused.map_or(Receivers::All, Receivers::AllBut)
    }

    /// Notes that a host's write of `bytes` bytes begins; it ends when the returned value is dropped.
    ///
    /// The pace of resyncs follows what these writes take.
    pub(super) fn time_write(self: &Rc<Self>, bytes: u64) -> TimedWrite {
        self.pace().begin_write(bytes);
        TimedWrite { copies: Rc::clone(self), began: rt::now() }
    }

    /// Wakes the resyncs of this core: one has more to give than it may give now.
    pub(super) fn wait_for_pace(&self) {
        self.syncs_wait.notify();
    }

    /// Adds a copy of a slice to this core.
    pub fn add(&self, copy: Rc<SliceCopy>) {
        copy.set_restoring(self.held_back.borrow().restoring.contains(&copy.address().volume));
        self.wake(copy.address());
        self.slices.borrow_mut().insert(copy.address(), copy);
    }

    /// Removes the slices of a volume, which are being closed.
    pub fn remove(&self, volume: u32) {
        for copy in self.slices_of(volume) {
            self.slices.borrow_mut().remove(&copy.address());
            self.let_rest(copy.address());
        }
    }

    /// The slices of this core.
    pub fn slices(&self) -> Vec<Rc<SliceCopy>> {
        self.slices.borrow().values().cloned().collect()
    }

    /// Calls `each` with the slices of this core, `a_turn` of them in each turn of the core.
    ///
    /// They come in the order of their addresses. No slice is referenced between turns: otherwise it could
    /// not be closed, nor its volume deleted.
    pub(crate) async fn for_each_slice(&self, a_turn: usize, mut each: impl FnMut(&Rc<SliceCopy>)) {
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

    /// The copy of a slice, if it is open on this core.
    pub(crate) fn slice(&self, address: Address) -> Option<Rc<SliceCopy>> {
        self.slices.borrow().get(&address).cloned()
    }

    /// The slices of a volume that are on this core.
    pub fn slices_of(&self, volume: u32) -> Vec<Rc<SliceCopy>> {
        let all = Address { volume, slice: 0 }..=Address { volume, slice: u16::MAX };
        self.slices.borrow().range(all).map(|(_, copy)| Rc::clone(copy)).collect()
    }

    /// Whether messages to the slice's copy on a node can be sent now.
    pub fn reaches(&self, node: NodeId, slice: u16) -> bool {
        self.up.borrow().get(&node).is_some_and(|reached| reached.link_of(slice).is_some())
    }

    /// When this core last received anything from the node, if only a sign of life.
    ///
    /// This covers the core's replication links that are up, and all of its links that are down by now.
    pub(crate) fn heard_of(&self, node: NodeId) -> Option<Instant> {
        let links = self.links.borrow();
        let up = links.iter().filter(|((peer, _), _)| *peer == node).map(|(_, link)| link.heard());
        let heard = self.heard.borrow();
        let down = [Role::Control, Role::Replication].into_iter().filter_map(|role| heard.get(&(node, role)));
        up.chain(down.copied()).max()
    }

    /// The state of this core's replication links with each other node, as [`Linked`].
    ///
    /// Nodes to which it had links earlier in this life of the node are included.
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

    /// What the slices of this core have sent to each other node and received from it.
    pub fn traffic(&self) -> BTreeMap<NodeId, Traffic> {
        self.traffic.borrow().clone()
    }

    /// How often copies of this core were written to.
    pub fn writes(&self) -> u64 {
        self.writes.get()
    }

    /// Counts a write to a copy.
    pub(super) fn count_write(&self) {
        self.writes.set(self.writes.get() + 1);
    }

    /// Counts payload that is sent to a node or received from it.
    pub(super) fn count(&self, node: NodeId, count: impl FnOnce(&mut Traffic)) {
        count(self.traffic.borrow_mut().entry(node).or_default());
    }

    /// Sends a frame to the copy of the slice on `node`.
    ///
    /// Without a link the frame is lost; the protocol expects that.
    pub fn send(&self, node: NodeId, kind: u8, address: Address, head: Vec<u8>, payload: Chain) {
        let number = self.up.borrow().get(&node).and_then(|reached| reached.link_of(address.slice));
        let Some(number) = number else { return };
        let frame = Frame { channel: address.channel(), kind, head, payload };
        let core = LinkName { peer: node, role: Role::Replication, number }.core(rt::cores() as u16);
        on_core(core, move || Copies::current().send_here(node, number, frame));
    }

    /// Whether all replication links with the node are up, so that every slice can send to its copy there.
    pub(crate) fn reaches_wholly(&self, node: NodeId) -> bool {
        self.up.borrow().get(&node).is_some_and(Reached::is_whole)
    }

    fn send_here(&self, node: NodeId, number: u16, frame: Frame) {
        let link = self.links.borrow().get(&(node, number)).cloned();
        if let Some(link) = link {
            link.send(frame);
        }
    }

    /// Called on every core, in the order of events on the link's own core.
    fn link_up(&self, node: NodeId, number: u16, of: u16) {
        let mut up = self.up.borrow_mut();
        let reached = up.entry(node).or_default();
        if reached.of != of {
            // The node was restarted with another number of cores: none of its earlier links is up any more.
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
        // A copy that is not open (yet) does not answer; whichever node waits for an answer asks again.
        let Some(copy) = self.slice(address) else { return };
        let read = match frame.kind {
            // That a range is given back is said only once: a detached copy takes this message, and no other.
            LOCK => LockMessage::parse(&frame.head)
                .map(|message| copy.receive_lock(from, life, message))
                .ok_or(Malformed::Value),
            _ if copy.is_detached() => return,
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

    /// Asks for this core to be woken for the next lease, for which a command waits here.
    ///
    /// Otherwise leases are left for it: to wake all cores for each of them would cost too much.
    pub(super) fn want_lease(&self) {
        let core = rt::core();
        if core == CoreId(0) || self.wants_lease.replace(true) {
            return;
        }
        rt::send(CoreId(0), move || {
            if let Some(copies) = Copies::try_current() {
                copies.wanting.borrow_mut().insert(core);
                // It takes what was left for it until now.
                rt::send(core, || {});
            }
        });
    }

    /// Hands a lease that another node granted to this one to all cores. Called on core 0.
    ///
    /// The others are woken for it only if they have asked for that ([`Copies::want_lease`]). For the rest it
    /// matters only to what runs there, twenty times a second with two other nodes.
    pub(crate) fn hand_out(&self, from: NodeId, grant: LeaseGrant) {
        self.grant(from, grant);
        let wanting = self.wanting.take();
        for core in other_cores() {
            let take = move || Copies::current().grant(from, grant);
            if wanting.contains(&core) { rt::send(core, take) } else { rt::leave(core, take) }
        }
    }

    /// Takes a lease that another node granted to this one.
    fn grant(&self, from: NodeId, grant: LeaseGrant) {
        self.leases.borrow_mut().handle_grant(from, grant);
        self.wants_lease.set(false);
        self.leased.notify();
    }

    /// See [`Leases::set_known`].
    pub(crate) fn set_known(&self, revision: Revision) {
        self.leases.borrow_mut().set_known(revision);
    }

    /// Notes that every copy on every core acts by this revision of the record; called on every core.
    pub(crate) fn set_applied(&self, revision: Revision) {
        self.leases.borrow_mut().set_applied(revision);
        self.leased.notify();
    }

    /// Whether this node holds the leases of all these nodes.
    pub fn holds_all(&self, now: Instant, nodes: impl IntoIterator<Item = NodeId>) -> bool {
        let leases = self.leases();
        nodes.into_iter().all(|node| leases.holds(now, node))
    }
}

/// A host's write that is under way, for measuring how long it takes.
pub(super) struct TimedWrite {
    copies: Rc<Copies>,
    began: Instant,
}

impl Drop for TimedWrite {
    fn drop(&mut self) {
        self.copies.pace().end_write(rt::now().since(self.began));
    }
}

/// Runs `what` on a core: at once on this one, by message on another.
///
/// Messages between two cores stay in order.
fn on_core(core: CoreId, what: impl FnOnce() + Send + 'static) {
    if core == rt::core() { what() } else { rt::send(core, what) }
}

/// Runs `what` on this core first, then on all others.
pub(crate) fn on_every_core(what: impl Fn() + Clone + Send + 'static) {
    what();
    other_cores().for_each(|core| rt::send(core, what.clone()));
}

fn other_cores() -> impl Iterator<Item = CoreId> {
    (0..rt::cores() as u16).map(CoreId).filter(|core| *core != rt::core())
}
