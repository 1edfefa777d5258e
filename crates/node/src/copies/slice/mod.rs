//! One copy of one slice at work: what the protocol decides is carried out on the disk and the links.
//!
//! [`Replica`] decides; this tells it what has happened and does what it says, after each of these until
//! nothing is left to be done.

mod cache_policy;
mod confirming;
mod disk;
mod hosts;
mod lost;
mod merge;
mod repair;
mod room;
mod sending;

use std::cell::{Cell, Ref, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use base::{ByteLen, ByteOffset, Chain, Instant};
use replica::{
    Activation, ApplyKind, Blocks, Command, Config, Envelope, Geometry, Incarnation, Leases, Message, NodeId,
    Outcome, Output, Receivers, Replica, Slot, Slots, Standing, VALIDATE_AFTER, wire,
};
use rt::sync::{Notify, Sender};
use store::{BadBlock, SliceError, Stripe};

pub use self::cache_policy::CachePolicy;
use self::confirming::Confirming;
use self::disk::{know_lost, read_map};
use self::lost::{LooksForLost, lost_units};
use self::repair::Repairs;
use self::room::Shortage;
use super::Address;
use super::budget::Restraint;
use super::core::Copies;
use super::fetch::Fetches;
use super::lock::Locks;
use super::progress::{self, SliceSync};
use super::view::SliceView;
use crate::volume::Order;

/// How often a command that waits for a lease looks again, where nothing else wakes it.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// See the module. Offsets are bytes of the slice.
pub struct SliceCopy {
    address: Address,
    pub(super) layout: Rc<store::Slice>,
    stripe: Stripe,
    /// As of the configuration that is acted in; the layout may be longer already.
    geometry: Cell<Geometry>,
    pub(super) replica: RefCell<Replica>,
    /// Writes to the disk that overlap take effect in the order in which they were decided.
    applies: Rc<Order>,
    /// Hosts' writes under way.
    commands: RefCell<BTreeMap<Command, HostWrite>>,
    last_command: Cell<u64>,
    /// On which node the copy of each slot is.
    nodes: Cell<[Option<NodeId>; Slot::MAX]>,
    /// See [`Opening::untrusted`].
    untrusted: Cell<bool>,
    /// Reads that wait for a word of the other members.
    confirming: RefCell<Confirming>,
    /// Rung when something has happened that a waiting command may have waited for.
    pub(super) happened: Notify,
    /// To each other copy: acknowledgements of this turn of the core.
    acknowledgements: RefCell<[Option<Envelope>; Slot::MAX]>,
    /// Members are told soon which writes they all have.
    validates: Cell<bool>,
    /// It has had no lease for so long that initiators are sent elsewhere (R21).
    given_up: Cell<bool>,
    /// Nothing is said to other copies and nothing is taken from them: see [`SliceCopy::detach`].
    detached: Cell<bool>,
    /// Nobody else has the volume, and hosts were served until it became a copy: before it acts in its first
    /// configuration, too, their writes wait.
    serves_soon: Cell<bool>,
    /// Hosts are not served, whatever it could do.
    frozen: Cell<bool>,
    /// A host has read or written here since the configuration that is acted in.
    served: Cell<bool>,
    /// As of the configuration that is acted in.
    cache_policy: Cell<CachePolicy>,
    /// What commands have for themselves on all nodes.
    pub(super) locks: Locks,
    /// Whether what is written finds room.
    shortage: Shortage,
    /// What is asked of other copies because the disk here does not read it.
    pub(super) fetches: Fetches,
    /// What is written again.
    pub(super) repairs: Repairs,
    /// Blocks of the disk that are being written as a whole, for writes of parts of them.
    merging: RefCell<BTreeSet<u64>>,
    /// When other copies are asked for blocks that are lost.
    looks_for_lost: LooksForLost,
    /// What was reported last as lost; `None`: nothing yet.
    reported_lost: RefCell<Option<Vec<(ByteOffset, ByteLen)>>>,
}

/// A host's write that is under way.
struct HostWrite {
    blocks: Blocks,
    /// It was not carried out: this block of the disk, of which it changes a part, cannot be read, and nobody
    /// else has it.
    given_up: Option<BadBlock>,
    answer: Sender<WriteEnd>,
}

/// How a host's write has ended; an error is the block for which it was given up.
type WriteEnd = Result<Outcome, BadBlock>;

/// What is needed to open a slice's copy.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// Which slice of which volume.
    pub address: Address,
    /// Which copy this is.
    pub me: Slot,
    /// This life of the node.
    pub incarnation: Incarnation,
    /// Bytes of a logical block.
    pub block_bytes: u32,
    /// How the volume maps to slices.
    pub stripe: Stripe,
    /// The volume's capacity.
    pub size: ByteLen,
    /// What the disk holds is not what this copy held when it was last known: all of it is to be copied.
    pub blank: bool,
    /// It is not brought up to date before [`SliceCopy::trust`]: the disk does not say yet that it is blank.
    pub untrusted: bool,
}

impl SliceCopy {
    /// Opens the copy that the layout keeps: reads its dirty map. `hosts` is the order of what hosts do here.
    ///
    /// # Errors
    /// What the layout says.
    pub async fn open(
        layout: Rc<store::Slice>,
        opening: Opening,
        hosts: Rc<Order>,
    ) -> Result<Rc<SliceCopy>, SliceError> {
        let Opening { address, me, incarnation, block_bytes, stripe, size, blank, untrusted } = opening;
        let len = stripe.slice_len(address.slice, size).min(layout.len());
        let geometry = Geometry::new(len.0 / u64::from(block_bytes), block_bytes);
        // What a write of an earlier life has left can be read from now on, and must not be gone after the
        // next loss of power. Costs nothing from the second slice on.
        layout.flush().await?;
        let map = read_map(&layout, &geometry, (address, stripe), blank).await?;
        know_lost(&layout, (address, stripe)).await?;
        if blank {
            layout.hold_nothing().await?;
        }
        let mut replica = Replica::new(me, incarnation, geometry, map);
        replica.set_lost(lost_units(&layout.lost()));
        Ok(Rc::new(SliceCopy {
            address,
            layout,
            stripe,
            geometry: Cell::new(geometry),
            replica: RefCell::new(replica),
            applies: Rc::default(),
            commands: RefCell::default(),
            last_command: Cell::new(0),
            nodes: Cell::default(),
            untrusted: Cell::new(untrusted),
            confirming: RefCell::default(),
            happened: Notify::new(),
            acknowledgements: RefCell::default(),
            validates: Cell::new(false),
            given_up: Cell::new(false),
            detached: Cell::new(false),
            serves_soon: Cell::new(false),
            frozen: Cell::new(false),
            served: Cell::new(false),
            cache_policy: Cell::new(CachePolicy::WriteThrough),
            locks: Locks::new(hosts),
            shortage: Shortage::default(),
            fetches: Fetches::default(),
            repairs: Repairs::default(),
            merging: RefCell::default(),
            looks_for_lost: LooksForLost::default(),
            reported_lost: RefCell::default(),
        }))
    }

    /// Which slice of which volume.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Where in this slice a byte of the volume is, if it is in it.
    pub fn place_of(&self, of_volume: ByteOffset) -> Option<ByteOffset> {
        let (slice, offset) = self.stripe.locate(of_volume);
        (slice == self.address.slice && offset.0 < self.len().0).then_some(offset)
    }

    /// Where in the volume a byte of this slice is.
    fn place_in_volume(&self, of_slice: ByteOffset) -> ByteOffset {
        self.stripe.volume_offset(self.address.slice, of_slice)
    }

    /// Whether hosts would be given what this copy's disk holds there, now (R9).
    pub fn is_readable(&self, offset: ByteOffset, len: ByteLen) -> bool {
        let blocks = self.blocks(offset, len);
        !self.frozen.get() && self.ask(|replica, now, leases| replica.readable(now, leases, blocks)).is_ok()
    }

    /// Hosts were served here until now, and are to be as soon as it acts in a configuration.
    pub fn serves_soon(&self) {
        self.serves_soon.set(true);
    }

    /// What the protocol knows, to look at.
    pub fn replica(&self) -> Ref<'_, Replica> {
        self.replica.borrow()
    }

    /// What it knows of the other copies.
    pub fn view(&self) -> SliceView {
        SliceView::of(&self.replica.borrow(), self.has_no_room())
    }

    /// Whether its disk has failed it: it takes no part any more until its node is started anew.
    pub fn has_failed(&self) -> bool {
        self.replica.borrow().has_failed()
    }

    /// What it knows of copies that are not in sync.
    pub fn syncs(&self) -> Vec<SliceSync> {
        let copies = Copies::current();
        let may = copies.receivers(self.address.volume);
        let limited_by = |slot, wanted| match may {
            _ if wanted == Receivers::All && copies.is_paused(self.address.volume, slot) => {
                Some(Restraint::Paused)
            }
            Receivers::Joiners if wanted == Receivers::All => Some(Restraint::Turn),
            _ => copies.pace().limited_by(rt::now()),
        };
        progress::of_slice(self.address, &self.replica.borrow(), self.has_no_room(), limited_by)
    }

    /// What is under way, for people who look for a fault.
    pub fn unrest(&self) -> String {
        self.replica.borrow().unrest()
    }

    /// Bytes of a logical block.
    pub(super) fn block_bytes(&self) -> u32 {
        self.geometry.get().block_bytes
    }

    /// How long it is.
    pub fn len(&self) -> ByteLen {
        let Geometry { blocks, block_bytes, .. } = self.geometry.get();
        ByteLen(blocks * u64::from(block_bytes))
    }

    /// The volume has this capacity, as of the configuration that is about to be acted in.
    pub fn grow(&self, size: ByteLen) {
        let before = self.geometry.get();
        let len = self.stripe.slice_len(self.address.slice, size);
        if len > self.layout.len() {
            tracing::error!(copy = %self.address, "a copy is shorter than its volume: this is a bug in Ursa, please report it");
            return;
        }
        let geometry = Geometry::new(len.0 / u64::from(before.block_bytes), before.block_bytes);
        if geometry.blocks > before.blocks {
            self.geometry.set(geometry);
            self.replica.borrow_mut().grow(geometry);
        }
    }

    /// Acts in this configuration from now on.
    pub fn activate(self: &Rc<Self>, activation: Activation) {
        let mut nodes = [None; Slot::MAX];
        for (slot, copy) in activation.config.copies() {
            nodes[slot.index()] = Some(copy.node);
        }
        self.serves_soon.set(false);
        let before = self.nodes.replace(nodes);
        self.locks.enter(activation.config.epoch);
        self.repairs.forget();
        self.set_cache_policy(CachePolicy::of(&activation.config));
        self.served.set(!self.commands.borrow().is_empty());
        let new = || Slot::all().filter(|slot| before[slot.index()] != nodes[slot.index()]);
        for gone in new().filter(|slot| before[slot.index()].is_some()) {
            self.forget_acknowledgements(gone);
            self.forget_fetches(gone);
            self.tell(|replica| replica.handle_link_down(gone));
        }
        self.tell(|replica| {
            let was_member = replica.standing() != Standing::Outside;
            replica.activate(activation);
            if was_member && replica.standing() == Standing::Outside {
                // It is not the one that was held back any more.
                self.frozen.set(self.detached.get());
            }
            if replica.standing() == Standing::Outside && !self.untrusted.get() {
                replica.catch_up();
            }
        });
        // Links that were up before it was known what they lead to.
        for node in new().filter_map(|slot| nodes[slot.index()]) {
            if Copies::current().reaches(node, self.address.slice) {
                self.link_up(node);
            }
        }
    }

    /// From now on it says nothing to other copies and takes nothing from them: it goes on without them, and
    /// what it then holds must neither be mixed with theirs nor be overwritten by it until that is settled.
    pub fn detach(self: &Rc<Self>) {
        if self.detached.replace(true) {
            return;
        }
        for node in self.nodes.get().into_iter().flatten() {
            self.break_off(node);
        }
    }

    /// Other copies are heard of again, and hosts are served where it may.
    pub fn attach(self: &Rc<Self>) {
        self.frozen.set(false);
        if self.detached.replace(false) {
            for node in self.nodes.get().into_iter().flatten() {
                if Copies::current().reaches(node, self.address.slice) {
                    self.link_up(node);
                }
            }
        }
        self.happened.notify();
    }

    /// Serves no host any more until [`SliceCopy::attach`]. Says whether one has read or written here since
    /// the configuration that is acted in.
    pub fn freeze(&self) -> bool {
        self.frozen.set(true);
        self.happened.notify();
        self.served.get()
    }

    fn break_off(self: &Rc<Self>, node: NodeId) {
        if let Some(slot) = self.slot_of(node) {
            self.forget_acknowledgements(slot);
            self.forget_fetches(slot);
            self.tell(|replica| replica.handle_link_down(slot));
        }
    }

    /// Waits until none of the writes can take effect any more that no host waits for now
    /// ([`Replica::last_orphan`]); not for later ones, of which there may always be some.
    pub async fn orphans_ended(&self) {
        let last = self.replica.borrow().last_orphan();
        let Some(last) = last else { return };
        while self.replica.borrow().has_orphans_until(last) {
            let _ = rt::timeout(LOOK_AGAIN, self.happened.notified()).await;
        }
    }

    /// Whether a write can still take effect from here that no host waits for.
    pub fn has_orphans(&self) -> bool {
        self.replica.borrow().last_orphan().is_some()
    }

    /// Whether the disk has all of this copy's dirty map.
    pub fn map_is_written(&self) -> bool {
        self.replica.borrow().map().is_written()
    }

    /// The disk says by now what this copy is worth: it may be brought up to date.
    pub fn trust(self: &Rc<Self>) {
        self.untrusted.set(false);
        self.tell(Replica::catch_up);
    }

    /// Whether initiators are sent elsewhere, since leases are missing. Then writes that have begun are
    /// answered, too: that nobody knows what becomes of them. What their initiators write again, here or
    /// through another node, comes after them.
    pub fn set_given_up(self: &Rc<Self>, given_up: bool) {
        self.given_up.set(given_up);
        self.release_reads();
        if given_up {
            self.tell(Replica::answer_unknown);
        }
        self.happened.notify();
    }

    /// This node has no copy of the volume any more: hosts' writes end with an outcome that nobody knows, and
    /// no more is served.
    pub fn leave(self: &Rc<Self>) {
        self.locks.leave();
        let config = self.replica.borrow().config().cloned();
        let Some(config) = config else { return };
        let nobody = Config::recorded(config.epoch, config.revision, [None; Slot::MAX]);
        self.activate(Activation { config: nobody, kept: false });
    }

    /// The link to a node is up: anew, if it was before.
    pub fn link_up(self: &Rc<Self>, node: NodeId) {
        if self.detached.get() {
            return;
        }
        self.say_locks(node);
        if let Some(slot) = self.slot_of(node) {
            self.forget_acknowledgements(slot);
            self.forget_fetches(slot);
            self.tell(|replica| replica.handle_link_up(slot));
        }
    }

    /// The link to a node broke.
    pub fn link_down(self: &Rc<Self>, node: NodeId) {
        self.break_off(node);
    }

    /// A message of the copy on that node.
    ///
    /// # Errors
    /// It is none: the link is not to be used any more.
    pub fn receive(
        self: &Rc<Self>,
        from: NodeId,
        head: &[u8],
        payload: Chain,
    ) -> Result<(), wire::Malformed> {
        let envelope = match wire::parse(head, payload, &self.geometry.get()) {
            Ok(envelope) => envelope,
            // The sender may act in an epoch in which the slice is longer, or not yet. Whoever does not get
            // an answer sends again.
            Err(_) if self.is_of_another_epoch(head) => return Ok(()),
            Err(malformed) => return Err(malformed),
        };
        if let Message::Invalidate { blocks, .. } = &envelope.message {
            let (offset, len) = self.bytes(*blocks);
            self.layout.prefetch(offset, len);
        }
        Copies::current().count(from, |traffic| traffic.count_received(&envelope));
        // A copy that was taken off its node may still have had something to say.
        if let Some(slot) = self.slot_of(from) {
            self.tell(|replica| replica.handle_message(slot, envelope));
        }
        Ok(())
    }

    /// Somebody waits for the blocks to be valid here.
    pub(super) fn ask_validation(self: &Rc<Self>, blocks: Blocks) {
        self.tell(|replica| replica.ask_validation(blocks));
    }

    /// A copy is about to stop, this one or another: what all have is noted as such.
    pub fn settle(self: &Rc<Self>) {
        self.tell(Replica::settle);
        self.write_idle_pages();
    }

    /// Whether the disk has all that the dirty map says.
    pub fn map_is_clean(&self) -> bool {
        self.replica.borrow().map().is_clean()
    }

    /// In how many regions another copy may hold something else.
    pub fn dirty_regions(&self) -> usize {
        self.replica.borrow().map().dirty(Slots::ALL).count()
    }

    fn write_idle_pages(self: &Rc<Self>) {
        loop {
            let page = self.replica.borrow_mut().poll_idle();
            let Some(page) = page else { return };
            self.write_page(page);
        }
    }

    /// A while has passed: [`replica::TICK`].
    pub fn tick(self: &Rc<SliceCopy>) {
        self.tell(Replica::handle_tick);
        self.look_for_room();
        self.look_for_lost();
        self.report_lost();
        self.release_reads();
        let page = self.replica.borrow_mut().poll_idle();
        if let Some(page) = page {
            self.write_page(page);
            self.carry_out();
        }
    }

    fn ask<T>(&self, question: impl FnOnce(&Replica, Instant, &Leases) -> T) -> T {
        let core = Copies::current();
        question(&self.replica.borrow(), rt::now(), &core.leases())
    }

    fn tell(self: &Rc<Self>, what: impl FnOnce(&mut Replica)) {
        what(&mut self.replica.borrow_mut());
        self.carry_out();
        if self.goes_on_syncing() {
            Copies::current().wait_for_pace();
        }
    }

    /// Gives other copies what they miss, as much as it may now. Says whether there is more that could be
    /// given.
    pub fn goes_on_syncing(self: &Rc<Self>) -> bool {
        let region = u64::from(Geometry::REGION_BYTES);
        let copies = Copies::current();
        let to = copies.receivers(self.address.volume);
        while self.replica.borrow().has_regions_to_begin(to) {
            let regions = copies.pace().available(rt::now()).div_ceil(region);
            let begun =
                self.replica.borrow_mut().begin_regions(u32::try_from(regions).unwrap_or(u32::MAX), to);
            if begun == 0 {
                if regions == 0 {
                    copies.pace().hold_back(rt::now());
                }
                return regions == 0;
            }
            copies.pace().spend(u64::from(begun) * region);
            self.carry_out();
        }
        false
    }

    /// Does what the protocol wants done, until it wants nothing more.
    fn carry_out(self: &Rc<Self>) {
        loop {
            let next = self.replica.borrow_mut().poll();
            match next {
                None => break,
                Some(Output::Send(slot, envelope)) => self.send(slot, envelope),
                Some(Output::Apply(apply)) => match apply.kind {
                    ApplyKind::Write => self.apply(apply),
                    ApplyKind::Repair => self.apply_again(apply),
                    ApplyKind::Lose { holders } => self.lose(&apply, holders),
                },
                Some(Output::WritePage(page)) => self.write_page(page),
                Some(Output::ReadRegion(read)) => self.read_region(read),
                Some(Output::CompareRegion(compare)) => self.compare_region(compare),
                Some(Output::Complete(command, outcome)) => {
                    let waiting = self.commands.borrow_mut().remove(&command);
                    if let Some(HostWrite { given_up, answer, .. }) = waiting {
                        answer.send(given_up.map_or(Ok(outcome), Err));
                    }
                }
            }
        }
        self.happened.notify();
        self.release_reads();
        if self.replica.borrow().has_validations() && !self.validates.replace(true) {
            let copy = Rc::downgrade(self);
            rt::spawn(async move {
                rt::sleep(VALIDATE_AFTER).await;
                if let Some(copy) = copy.upgrade() {
                    copy.validates.set(false);
                    copy.tell(Replica::validate);
                }
            })
            .detach();
        }
    }

    fn is_of_another_epoch(&self, head: &[u8]) -> bool {
        let epoch = head.first_chunk().and_then(|header| Some(wire::Header::parse(header).ok()?.epoch()));
        let active = self.replica.borrow().config().map(|config| config.epoch);
        epoch.is_some() && epoch != active
    }

    pub(super) fn is_detached(&self) -> bool {
        self.detached.get()
    }

    pub(super) fn node_of(&self, slot: Slot) -> Option<NodeId> {
        self.nodes.get()[slot.index()]
    }

    pub(super) fn slot_of(&self, node: NodeId) -> Option<Slot> {
        Slot::all().find(|slot| self.nodes.get()[slot.index()] == Some(node))
    }

    pub(super) fn blocks(&self, offset: ByteOffset, len: ByteLen) -> Blocks {
        let block = u64::from(self.geometry.get().block_bytes);
        Blocks::new(offset.0 / block, (offset.0 + len.0) / block)
    }

    fn bytes(&self, blocks: Blocks) -> (ByteOffset, ByteLen) {
        let block = u64::from(self.geometry.get().block_bytes);
        (ByteOffset(blocks.start * block), ByteLen(blocks.count() * block))
    }
}
