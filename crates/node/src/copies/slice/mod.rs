//! One copy of one slice at work: it executes what the protocol decides, on the disk and the links.
//!
//! [`Replica`] decides. [`SliceCopy`] reports events to it, and after each one executes its outputs until
//! there are none left.

mod confirming;
mod disk;
mod hosts;
mod locking;
mod lost;
mod merge;
mod past;
mod reads;
mod repair;
mod restoring;
mod room;
mod sending;

use std::cell::{Cell, Ref, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use base::{ByteLen, ByteOffset, Chain, Instant};
use replica::{
    Activation, ApplyKind, Blocks, Command, Config, Envelope, Epoch, Geometry, Incarnation, Leases, Message,
    NodeId, Outcome, Output, Receivers, Replica, Slot, Slots, Standing, VALIDATE_AFTER, wire,
};
use rt::sync::{Notify, Sender};
use store::{BadBlock, SliceError, Stripe};

use self::confirming::Confirming;
use self::disk::{know_lost, read_map};
use self::locking::Locking;
use self::lost::{LooksForLost, lost_units};
use self::reads::Reads;
use self::repair::{Repairs, Rewrites};
use self::room::Shortage;
use super::Address;
use super::budget::Restraint;
use super::core::Copies;
use super::fetch::Fetches;
use super::lock::Locks;
use super::progress::{self, SliceSync};
use super::view::SliceView;
use crate::data::Order;

/// The pause before another attempt at what other nodes or the disk decide: they do not notify this copy.
/// Hosts' commands wait meanwhile, but only after a failure, and for [`super::HOLD_MAX`] at most.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// One copy of one slice; see the module.
///
/// Offsets are bytes of the slice.
pub struct SliceCopy {
    address: Address,
    pub(super) layout: Rc<store::Slice>,
    stripe: Stripe,
    /// The geometry in the current configuration; the layout may be longer already.
    geometry: Cell<Geometry>,
    pub(super) replica: RefCell<Replica>,
    /// The order of writes to the disk: those that overlap take effect in the order in which they were
    /// decided.
    applies: Rc<Order>,
    /// Hosts' writes under way.
    commands: RefCell<BTreeMap<Command, HostWrite>>,
    last_command: Cell<u64>,
    /// The node of the copy in each slot.
    nodes: Cell<[Option<NodeId>; Slot::MAX]>,
    /// See [`Opening::untrusted`].
    untrusted: Cell<bool>,
    /// Reads that are under way.
    reads: Reads,
    /// Reads that wait until the other members confirm them.
    confirming: RefCell<Confirming>,
    /// Notified when something happens that a command may wait for, except leases that come
    /// ([`Copies::leased`]).
    pub(super) happened: Notify,
    /// Whether this copy is ticked: see [`SliceCopy::wake`].
    awake: Cell<bool>,
    /// Acknowledgements of this turn of the core, for each other copy.
    acknowledgements: RefCell<[Option<Envelope>; Slot::MAX]>,
    /// Whether a task is under way that tells members soon which writes are done.
    validates: Cell<bool>,
    /// Whether leases have been missing for so long that initiators are sent to other nodes (R21).
    given_up: Cell<bool>,
    /// Whether this copy neither sends anything to other copies nor takes anything from them: see
    /// [`SliceCopy::detach`].
    detached: Cell<bool>,
    /// Whether this is the volume's only copy, and hosts were served until the slice became a copy. If so,
    /// hosts' writes wait until it acts in its first configuration, instead of failing.
    serves_soon: Cell<bool>,
    /// Whether hosts are not served, even if the protocol allows it.
    frozen: Cell<bool>,
    /// Whether hosts are not served because the volume is being restored.
    restoring: Cell<bool>,
    /// Whether a host has read or written here in the current configuration.
    served: Cell<bool>,
    /// The ranges that commands have locked on all nodes.
    locks: Locking,
    /// Whether writes find room.
    shortage: Shortage,
    /// Requests to other copies for blocks that the disk here does not read.
    pub(super) fetches: Fetches,
    /// Rewrites of bad blocks.
    pub(super) repairs: Repairs,
    /// The disk's blocks that are being rewritten as a whole, for writes of parts of them.
    merging: Rewrites,
    /// When to ask other copies for lost blocks.
    looks_for_lost: LooksForLost,
    /// The lost blocks as last reported; `None`: nothing has been reported yet.
    reported_lost: RefCell<Option<Vec<(ByteOffset, ByteLen)>>>,
}

/// A host's write that is under way.
struct HostWrite {
    blocks: Blocks,
    /// If set, the write was not executed: it changes a part of this block of the disk, which cannot be read,
    /// and no other copy has the rest.
    given_up: Option<BadBlock>,
    answer: Sender<WriteEnd>,
}

/// How a host's write ended; an error is the block at which it failed.
type WriteEnd = Result<Outcome, BadBlock>;

/// What is needed to open a slice's copy.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// Which slice of which volume.
    pub address: Address,
    /// The slot of this copy.
    pub me: Slot,
    /// This life of the node.
    pub incarnation: Incarnation,
    /// The size of a logical block in bytes.
    pub block_bytes: u32,
    /// How the volume maps to slices.
    pub stripe: Stripe,
    /// The volume's capacity.
    pub size: ByteLen,
    /// Whether the disk does not hold what this copy held when it was last known: the copy needs a full
    /// resync.
    pub blank: bool,
    /// Whether the copy is not resynced before [`SliceCopy::trust`], because the pool does not say yet that
    /// it is blank.
    pub untrusted: bool,
}

impl SliceCopy {
    /// Opens the copy that the layout stores, and reads its dirty map.
    ///
    /// `hosts` is the order of hosts' commands on this slice.
    pub async fn open(
        layout: Rc<store::Slice>,
        opening: Opening,
        hosts: Rc<Order>,
    ) -> Result<Rc<SliceCopy>, SliceError> {
        let Opening { address, me, incarnation, block_bytes, stripe, size, blank, untrusted } = opening;
        let len = stripe.slice_len(address.slice, size).min(layout.len());
        let geometry = Geometry::new(len.0 / u64::from(block_bytes), block_bytes);
        // From now on, reads can return what a write of an earlier life has left, so that must survive the
        // next power loss. From the second slice on this costs nothing.
        layout.flush().await?;
        let map = read_map(&layout, &geometry, (address, stripe), blank).await?;
        know_lost(&layout, (address, stripe)).await?;
        if blank {
            layout.hold_nothing().await?;
        }
        let mut replica = Replica::new(me, incarnation, geometry, map);
        // The clock is ahead of all numbers that were given since the last opening.
        let first_number = rt::now().0;
        replica.count_from(first_number);
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
            reads: Reads::default(),
            confirming: RefCell::default(),
            happened: Notify::new(),
            awake: Cell::new(true),
            acknowledgements: RefCell::default(),
            validates: Cell::new(false),
            given_up: Cell::new(false),
            detached: Cell::new(false),
            serves_soon: Cell::new(false),
            frozen: Cell::new(false),
            restoring: Cell::new(false),
            served: Cell::new(false),
            locks: Locking::new(me, hosts, first_number),
            shortage: Shortage::default(),
            fetches: Fetches::new(first_number),
            repairs: Repairs::default(),
            merging: Rewrites::default(),
            looks_for_lost: LooksForLost::default(),
            reported_lost: RefCell::default(),
        }))
    }

    /// Which slice of which volume.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Where a byte of the volume is in this slice; `None`: it is in another slice, or beyond the end.
    pub fn place_of(&self, of_volume: ByteOffset) -> Option<ByteOffset> {
        let (slice, offset) = self.stripe.locate(of_volume);
        (slice == self.address.slice && offset.0 < self.len().0).then_some(offset)
    }

    /// Where a byte of this slice is in the volume.
    fn place_in_volume(&self, of_slice: ByteOffset) -> ByteOffset {
        self.stripe.volume_offset(self.address.slice, of_slice)
    }

    /// Whether a host could read now what this copy's disk holds there (R9).
    pub fn is_readable(&self, offset: ByteOffset, len: ByteLen) -> bool {
        let blocks = self.blocks(offset, len);
        !self.is_stopped() && self.ask(|replica, now, leases| replica.readable(now, leases, blocks)).is_ok()
    }

    /// Notes that hosts were served here until now, and will be again as soon as this copy acts in a
    /// configuration.
    pub fn serves_soon(&self) {
        self.serves_soon.set(true);
    }

    /// The state of the protocol, for inspection.
    pub fn replica(&self) -> Ref<'_, Replica> {
        self.replica.borrow()
    }

    /// What this slice knows of the other copies.
    pub fn view(&self) -> SliceView {
        SliceView::of(&self.replica.borrow(), self.has_no_room())
    }

    /// Whether the copy's disk has failed: the copy takes no part until its pool is reopened or its node
    /// restarted.
    pub fn has_failed(&self) -> bool {
        self.replica.borrow().has_failed()
    }

    /// What this slice knows of copies that are not in sync.
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

    /// What is under way, as text for people who look for a fault.
    pub fn unrest(&self) -> String {
        self.replica.borrow().unrest()
    }

    /// The size of a logical block in bytes.
    pub(super) fn block_bytes(&self) -> u32 {
        self.geometry.get().block_bytes
    }

    /// The length of the slice in bytes.
    pub fn len(&self) -> ByteLen {
        let Geometry { blocks, block_bytes, .. } = self.geometry.get();
        ByteLen(blocks * u64::from(block_bytes))
    }

    /// Extends the slice to this capacity of the volume, that of the configuration that is about to take
    /// effect.
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
        self.tell_locks(|locks| locks.enter(activation.config.clone()));
        self.repairs.forget();
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
                // It is no longer the copy that was frozen.
                self.frozen.set(self.detached.get());
            }
            if replica.standing() == Standing::Outside && !self.untrusted.get() {
                replica.catch_up();
            }
        });
        // These links were up before this copy knew what they lead to.
        for node in new().filter_map(|slot| nodes[slot.index()]) {
            if Copies::current().reaches(node, self.address.slice) {
                self.link_up(node);
            }
        }
    }

    /// Stops sending anything to other copies and taking anything from them, except that they give ranges
    /// back.
    ///
    /// The node continues alone with the volume. Until that is settled, what this copy holds must neither be
    /// mixed with what the others hold, nor be overwritten by it.
    pub fn detach(self: &Rc<Self>) {
        if self.detached.replace(true) {
            return;
        }
        for node in self.nodes.get().into_iter().flatten() {
            self.link_down(node);
        }
    }

    /// Communicates with other copies again, and serves hosts where the protocol allows it.
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

    /// Stops serving hosts until [`SliceCopy::attach`].
    ///
    /// Returns whether a host has read or written here in the current configuration.
    pub fn freeze(&self) -> bool {
        self.frozen.set(true);
        self.happened.notify();
        self.served.get()
    }

    /// Waits until the present orphans can no longer take effect: writes that no host waits for
    /// ([`Replica::last_orphan`]).
    ///
    /// It does not wait for later ones, of which there may always be some.
    pub async fn orphans_ended(&self) {
        let last = self.replica.borrow().last_orphan();
        let Some(last) = last else { return };
        self.happened.until(|| !self.replica.borrow().has_orphans_until(last)).await;
    }

    /// Whether a write that no host waits for can still take effect from here.
    pub fn has_orphans(&self) -> bool {
        self.replica.borrow().last_orphan().is_some()
    }

    /// Whether the disk has a version of every page of this copy's dirty map.
    pub fn map_is_written(&self) -> bool {
        self.replica.borrow().map().is_written()
    }

    /// Another slice of the copy could not be opened: until all are opened again, none is resynced. A source
    /// would take one that has caught up for the whole copy, even when the others have become blank.
    pub fn wait_for_others(&self) {
        self.untrusted.set(true);
    }

    /// The pool now states the copy's state durably: the copy may be resynced.
    pub fn trust(self: &Rc<Self>) {
        self.untrusted.set(false);
        self.tell(Replica::catch_up);
    }

    /// Sets whether initiators are sent to other nodes because leases are missing.
    ///
    /// If so, writes that have begun are answered, too: their outcome is unknown. What their initiators write
    /// again, here or through another node, is ordered after them.
    pub fn set_given_up(self: &Rc<Self>, given_up: bool) {
        self.given_up.set(given_up);
        self.release_reads();
        if given_up {
            self.tell(Replica::answer_unknown);
        }
        self.happened.notify();
    }

    /// This node no longer has a copy of the volume: hosts' writes end with an unknown outcome, and nothing
    /// is served any more.
    pub fn leave(self: &Rc<Self>) {
        self.tell_locks(Locks::leave);
        let config = self.replica.borrow().config().cloned();
        let Some(config) = config else { return };
        let nobody = Config::recorded(config.epoch, config.revision, [None; Slot::MAX]);
        self.activate(Activation { config: nobody, kept: false });
    }

    /// The link to a node came up; it may have been up before.
    pub fn link_up(self: &Rc<Self>, node: NodeId) {
        if self.detached.get() {
            return;
        }
        self.tell_locks(|locks| locks.handle_link_up(node));
        if let Some(slot) = self.slot_of(node) {
            self.forget_acknowledgements(slot);
            self.forget_fetches(slot);
            self.tell(|replica| replica.handle_link_up(slot));
        }
    }

    /// The link to a node broke.
    pub fn link_down(self: &Rc<Self>, node: NodeId) {
        if let Some(slot) = self.slot_of(node) {
            self.forget_acknowledgements(slot);
            self.forget_fetches(slot);
            self.tell(|replica| replica.handle_link_down(slot));
        }
    }

    /// Handles a message from the copy on that node.
    ///
    /// # Errors
    /// The message is malformed: the link must not be used any more.
    pub fn receive(
        self: &Rc<Self>,
        from: NodeId,
        head: &[u8],
        payload: Chain,
    ) -> Result<(), wire::Malformed> {
        let envelope = match wire::parse(head, payload, &self.geometry.get()) {
            Ok(envelope) => envelope,
            // The slice may have another length in the sender's epoch. A sender that gets no answer sends
            // again.
            Err(_) if self.is_of_another_epoch(head) => return Ok(()),
            Err(malformed) => return Err(malformed),
        };
        if let Message::Invalidate { blocks, .. } = &envelope.message {
            let (offset, len) = self.bytes(*blocks);
            self.layout.prefetch(offset, len);
        }
        Copies::current().count(from, |traffic| traffic.count_received(&envelope));
        // A copy that was removed may still have sent something.
        if let Some(slot) = self.slot_of(from) {
            self.tell(|replica| replica.handle_message(slot, envelope));
        }
        Ok(())
    }

    /// Asks whether the writes to the blocks are done: something waits for the blocks to be valid here.
    pub(super) fn ask_validation(self: &Rc<Self>, blocks: Blocks) {
        self.tell(|replica| replica.ask_validation(blocks));
    }

    /// A copy is about to stop, this one or another: clears the bits of blocks that all copies have, and
    /// writes the map.
    pub fn settle(self: &Rc<Self>) {
        self.tell(Replica::settle);
        self.write_idle_pages();
    }

    /// Whether the disk has the dirty map as it is now: no page is still to be written.
    pub fn map_is_clean(&self) -> bool {
        self.replica.borrow().map().is_clean()
    }

    /// The number of regions in which another copy may hold something else.
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

    /// Has this copy ticked from now on, because something happens here.
    ///
    /// Whatever changes the protocol's state or [`SliceCopy::rests`] calls this, so that a volume that nobody
    /// uses costs nothing.
    pub(super) fn wake(&self) {
        if !self.awake.replace(true) {
            Copies::current().wake(self.address);
        }
    }

    /// Whether there is nothing to do here until something happens.
    pub(crate) fn rests(&self) -> bool {
        !self.replica.borrow().needs_tick()
            && !self.has_no_room()
            && !self.layout.has_lost()
            && !self.has_waiting_reads()
    }

    /// Does the periodic work, every [`replica::TICK`] unless this copy rests.
    pub fn tick(self: &Rc<SliceCopy>) {
        let oldest = self.reads.oldest();
        self.tell(|replica| {
            replica.remember_since(oldest);
            replica.handle_tick();
        });
        self.look_for_room();
        self.look_for_lost();
        self.report_lost();
        self.release_reads();
        let page = self.replica.borrow_mut().poll_idle();
        if let Some(page) = page {
            self.write_page(page);
            self.carry_out();
        }
        if self.rests() {
            self.awake.set(false);
            Copies::current().let_rest(self.address);
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

    /// Gives other copies as much of what they miss as it may now.
    ///
    /// Returns whether more could be given.
    pub fn goes_on_syncing(self: &Rc<Self>) -> bool {
        if self.restoring.get() {
            // What is given now may be what the copy was, or clear what is being noted as missing.
            return false;
        }
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

    /// Executes the protocol's outputs until there are none left.
    fn carry_out(self: &Rc<Self>) {
        self.wake();
        loop {
            let next = self.replica.borrow_mut().poll();
            match next {
                None => break,
                Some(Output::Send(slot, envelope)) => self.send(slot, envelope),
                Some(Output::Apply(apply)) => match apply.kind {
                    ApplyKind::Write => self.apply(apply),
                    ApplyKind::WriteAroundLost => self.apply_around_lost(apply),
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

    /// The epoch that this copy acts in.
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        self.replica.borrow().config().map(|config| config.epoch)
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
