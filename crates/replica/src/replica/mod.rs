//! One copy of one slice.
//!
//! One task drives a copy: it reports each event with a `handle_*` call or a command, and then calls
//! [`Replica::poll`] until nothing is left to do. It must carry out overlapping [`Output::Apply`]s in the
//! order in which they came.
//!
//! A write that a host gave to this copy is a *round*: this copy sends it to all members, and the round ends
//! when each of them has it on its disk. What a copy owes to others until its disk has done something is a
//! *debt*. Rounds are in `write.rs`, debts in `number.rs`, reads in `read.rs`, the two sides of a resync in
//! `source.rs` and `joiner.rs`.

mod clear;
mod confirm;
mod joiner;
mod pending_acks;
mod read;
mod repair;
mod restore;
mod source;
mod write;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::canary::{Canary, makes};
use crate::dirty_map::{DirtyMap, PageWrite};
use crate::media::{Apply, ApplyId, Media};
use crate::message::{Envelope, LostUnits, Message, RoundId, SyncId};
use crate::table::Table;
use crate::{
    Activation, Blocks, Config, Digest, Epoch, Geometry, Incarnation, Slot, Slots, Standing, Timestamp,
};
use confirm::Probes;
use joiner::Joiner;
use pending_acks::{PendingAck, PendingAcks};
use source::Source;
use write::Round;

pub use confirm::{Confirmation, Confirmed};
pub use joiner::SyncFrom;
pub use read::{ReadMark, Unreadable};
pub use repair::{Around, NotAround};
pub use source::{LOST_UNIT, LOST_UNITS_MAX, Receivers, SyncNext, SyncState};

/// How often [`Replica::handle_tick`] wants to be called, as long as [`Replica::needs_tick`].
pub const TICK: Duration = Duration::from_millis(250);

/// How long the message that a write is on all members may wait for another message to travel with.
///
/// A member that needs it earlier, for a read, asks. This is longer than a tick of the kernel's timer (4 ms):
/// a shorter time would set that timer for each sleep of the core, which costs a virtual machine more than
/// all the rest.
pub const VALIDATE_AFTER: Duration = Duration::from_millis(10);

/// A host's write, by the driver's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Command(pub u64);

/// The outcome of a host's write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The write is on the disks of all members.
    Done,
    /// This copy is no longer a member: the others may have completed the write or not.
    Unknown,
}

/// What the driver is to do.
#[derive(Debug)]
pub enum Output {
    /// Send this to the copy in the slot; without a link to it, drop this.
    Send(Slot, Envelope),
    /// Write to the local disk, durably, then [`Replica::handle_applied`].
    Apply(Apply),
    /// Write a page of the dirty map, durably, then [`Replica::handle_page_written`].
    WritePage(PageWrite),
    /// Read a region from the local disk, then [`Replica::handle_region_read`] or, if the read says so,
    /// [`Replica::handle_region_read_by_block`].
    ReadRegion(RegionRead),
    /// Make durable what an earlier life may have written, read a region from the local disk, then call
    /// [`Replica::handle_region_compared`].
    CompareRegion(RegionCompare),
    /// Answer the host.
    Complete(Command, Outcome),
}

/// A region to be read for a resync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionRead {
    /// The copy that gets it.
    pub to: Slot,
    /// The resync that it is for.
    pub sync: SyncId,
    /// The region.
    pub region: u64,
    /// Its blocks.
    pub blocks: Blocks,
    /// Read each block of the disk on its own, and not the region as a whole: this finds the blocks that no
    /// copy in sync can read (R27). The result goes to [`Replica::handle_region_read_by_block`].
    pub by_block: bool,
    /// The number of the read. A disk may answer a read of an earlier resync when the region is read again,
    /// and resyncs of another life have the same numbers.
    pub number: u64,
}

/// A region that another copy holds and this one may hold, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionCompare {
    /// The resync that it is for.
    pub sync: SyncId,
    /// The region.
    pub region: u64,
    /// Its blocks.
    pub blocks: Blocks,
    /// The digest of what the other copy holds.
    pub digest: Digest,
}

/// Why a host's write is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum Unwritable {
    #[error("this copy of the volume is not in sync")]
    NotInSync,
    #[error("a disk of this copy of the volume failed")]
    Failed,
}

/// One copy of one slice; see the module.
#[derive(Debug)]
pub struct Replica {
    me: Slot,
    incarnation: Incarnation,
    geometry: Geometry,
    /// The configuration in which this copy acts; `None` before the first activation.
    config: Option<Config>,
    /// The greatest counter seen in this epoch.
    clock: u64,
    table: Table,
    map: DirtyMap,
    media: Media,
    rounds: BTreeMap<RoundId, Round>,
    last_round: u64,
    last_read: u64,
    /// Own writes that are on the disks of all members, which have not been notified yet.
    validations: Vec<(Blocks, Timestamp)>,
    /// A member has asked for that while writes were under way: the next message about it must not wait.
    asked_validation: bool,
    pending_acks: PendingAcks,
    /// Reads that wait until other members confirm them.
    probes: Probes,
    /// The floor of each member, as far as it has reported one in this epoch.
    floors: [Option<Timestamp>; Slot::MAX],
    /// Since this epoch, writes set a bit for each present copy that does not get them. An earlier write may
    /// have set none for a copy that was added recently, and this copy may be such a copy.
    noted_since: Epoch,
    /// Whether all members have finished what they began before that.
    older_finished: bool,
    /// Our own floor, as last reported.
    said_floor: Option<Timestamp>,
    /// The epoch in which each other copy last said that it acts.
    epochs: [Epoch; Slot::MAX],
    /// The copies to which there is a link.
    linked: Slots,
    /// The joiners that have said that they have everything.
    synced: Slots,
    /// Resyncs from here, by target.
    sources: [Option<Source>; Slot::MAX],
    /// Regions that could not be read for a resync, and how often in a row.
    unread: BTreeMap<u64, u32>,
    /// What is lost on this copy's disk.
    lost: LostUnits,
    /// Bytes that resyncs from here have brought, by target.
    brought: [u64; Slot::MAX],
    /// Bytes that writes have added to the resync of copies outside.
    dirtied: [u64; Slot::MAX],
    /// The resync to here.
    joiner: Joiner,
    /// Regions that were written to, with the tick of the last write: their bits stay.
    warm: BTreeMap<u64, u32>,
    ticks: u32,
    sweep_from: u64,
    /// [`Table::mark`] of the previous tick: an entry from before that is still invalid has a silent
    /// coordinator.
    last_mark: u64,
    /// The disk failed: this copy acknowledges nothing any more.
    failed: Option<DiskFault>,
    /// The table still has the blocks that were being written to when the disk failed.
    knows_failed: bool,
    /// Joiners of this configuration have taken a write that this copy, the only one in sync, cannot carry
    /// out.
    keeps_joiners_out: bool,
    outputs: VecDeque<Output>,
}

impl Replica {
    /// Numbers what this copy asks for from here on.
    ///
    /// A link may outlive a copy that is closed and opened again: answers to what the former one has asked
    /// must not be taken for answers to this one. So no number may be used twice in a life of the process.
    pub fn count_from(&mut self, number: u64) {
        self.joiner.count_from(number);
    }

    /// The copy in slot `me`, with the dirty map from its disk, before it has any configuration.
    pub fn new(me: Slot, incarnation: Incarnation, geometry: Geometry, map: DirtyMap) -> Replica {
        Replica {
            me,
            incarnation,
            geometry,
            config: None,
            clock: 0,
            table: Table::new(geometry),
            map,
            media: Media::default(),
            rounds: BTreeMap::new(),
            last_round: 0,
            last_read: 0,
            validations: Vec::new(),
            asked_validation: false,
            pending_acks: PendingAcks::default(),
            probes: Probes::default(),
            floors: [None; Slot::MAX],
            noted_since: Epoch(0),
            older_finished: false,
            said_floor: None,
            epochs: [Epoch(0); Slot::MAX],
            linked: Slots::NONE,
            synced: Slots::NONE,
            sources: Default::default(),
            unread: BTreeMap::new(),
            lost: LostUnits::new(),
            brought: [0; Slot::MAX],
            dirtied: [0; Slot::MAX],
            joiner: Joiner::default(),
            warm: BTreeMap::new(),
            ticks: 0,
            sweep_from: 0,
            last_mark: 0,
            failed: None,
            knows_failed: true,
            keeps_joiners_out: false,
            outputs: VecDeque::new(),
        }
    }

    /// Makes the slice longer, before the configuration with the new length is activated.
    ///
    /// A message of an epoch refers to the slice as it is in that epoch.
    ///
    /// # Panics
    /// If the slice would become shorter, or its block size would change.
    pub fn grow(&mut self, geometry: Geometry) {
        let before = self.geometry;
        assert!(
            geometry.blocks >= before.blocks && geometry.block_bytes == before.block_bytes,
            "slices only grow"
        );
        self.geometry = geometry;
        self.table.grow(geometry);
        if !makes(Canary::GrownUnseen) {
            self.map.grow(geometry.regions());
        }
        // Reads of the last region that are under way have its old length.
        self.sources = Default::default();
    }

    /// Acts in this configuration from now on.
    ///
    /// Without `kept` the copy forgets all that it knew of writes, and answers its hosts that their outcome
    /// is unknown.
    pub fn activate(&mut self, activation: Activation) {
        let Activation { config, kept } = activation;
        self.validate();
        let standing = config.standing(self.me, self.incarnation);
        let kept = kept && standing != Standing::Outside;
        self.epochs[self.me.index()] = config.epoch;
        self.clock = 0;
        self.floors = [None; Slot::MAX];
        self.said_floor = None;
        self.synced = Slots::NONE;
        self.sources = Default::default();
        self.keeps_joiners_out = false;
        if !kept {
            self.forget_membership();
        }
        let knew_copies = self.config.as_ref().is_some_and(|before| config.follows_with_same_copies(before));
        if !kept || !knew_copies {
            (self.noted_since, self.older_finished) = (config.epoch, false);
        }
        self.joiner.enter(&config, standing, kept);
        self.config = Some(config);
        self.void_confirmations();
        // A map that could not be read is marked for all slots, even those without a copy; marks for these
        // would stay and be handed on. They are not needed: a copy that is added later is blank, and its own
        // map says so. But a process that has just started may first act in an old configuration, from before
        // a copy was added for which its last life has noted something. So only a member clears them: its
        // configuration is newer than that.
        if standing != Standing::Outside || makes(Canary::ClearOutside) {
            self.map.clear_all(Slots::ALL.minus(self.others()));
            if !makes(Canary::IntentOutlives) {
                self.media.drop_intents_but(self.others());
            }
        }
        self.pending_acks.clear();
        if self.failed.is_some() {
            return;
        }
        self.send_to_members(&Message::Activated);
        if kept {
            self.replay();
        }
        self.open_sync();
        self.say_synced();
    }

    fn forget_membership(&mut self) {
        for round in std::mem::take(&mut self.rounds).into_values() {
            if let Some(command) = round.command {
                self.outputs.push_back(Output::Complete(command, Outcome::Unknown));
            }
        }
        self.knows_failed &= self.failed.is_none();
        if makes(Canary::MarksOutlive) {
            self.table = Table::new(self.geometry);
        } else {
            self.table.clear();
        }
        self.media.abandon();
        self.unread.clear();
        self.last_mark = 0;
    }

    /// The slot of this copy.
    pub fn me(&self) -> Slot {
        self.me
    }

    /// The configuration in which this copy acts.
    pub fn config(&self) -> Option<&Config> {
        self.config.as_ref()
    }

    /// What this copy may do.
    pub fn standing(&self) -> Standing {
        self.config.as_ref().map_or(Standing::Outside, |config| config.standing(self.me, self.incarnation))
    }

    /// Whether the disk failed, so that this copy takes no part any more.
    pub fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Why this copy takes no part any more, if its disk failed.
    pub fn failure(&self) -> Option<DiskFault> {
        self.failed
    }

    /// The dirty map.
    pub fn map(&self) -> &DirtyMap {
        &self.map
    }

    /// The joiners that may be promoted (R13).
    ///
    /// They have all that they missed, as far as this copy knows, and all in-sync copies act in the epoch in
    /// which they join.
    pub fn promotable(&self) -> Slots {
        let Some(config) = &self.config else { return Slots::NONE };
        let confirmed = config.in_sync().iter().all(|slot| self.epochs[slot.index()] == config.epoch);
        if confirmed || makes(Canary::NoConfirm) { self.synced.and(config.joining()) } else { Slots::NONE }
    }

    /// Copies outside that miss so little that they may join (R19).
    pub fn caught_up(&self) -> Slots {
        self.receivers_whose(Source::is_caught_up)
    }

    /// Copies that are resynced from here and still miss too much to join.
    pub fn behind(&self) -> Slots {
        self.receivers_whose(|source| !source.is_caught_up())
    }

    /// Joiners that this copy cannot serve.
    ///
    /// They have waited too long for regions that its disk does not read, or have taken a write that it
    /// cannot carry out for the same reason.
    pub fn starved(&self) -> Slots {
        let starved = self.receivers_whose(Source::is_starved);
        match &self.config {
            Some(config) if self.keeps_joiners_out => starved.or(config.joining()),
            _ => starved,
        }
    }

    fn receivers_whose(&self, is_so: impl Fn(&Source) -> bool) -> Slots {
        Slot::all().filter(|slot| self.sources[slot.index()].as_ref().is_some_and(&is_so)).collect()
    }

    /// Takes a message that came from the copy in `from` over the present link.
    pub fn handle_message(&mut self, from: Slot, envelope: Envelope) {
        let Some(config) = &self.config else { return };
        let current = envelope.epoch == config.epoch
            && config.copy(from).is_some_and(|copy| match copy.standing {
                Standing::InSync(life) | Standing::Joining(life) => life == envelope.incarnation,
                Standing::Outside => true,
            });
        // A copy whose disk failed answers this, too: the answer depends only on its epoch.
        if let (true, Message::ConfirmReads { probe }) = (current, &envelope.message) {
            return self.handle_confirm_reads(from, *probe);
        }
        if self.failed.is_some() {
            return;
        }
        match envelope.message {
            // R6: in any epoch
            Message::Validate { writes } => {
                writes.into_iter().for_each(|(blocks, ts)| self.table.settle(blocks, ts));
            }
            Message::Activated => self.handle_activated(from, envelope.epoch, current),
            _ if !current && !makes(Canary::NoEpoch) => {}
            Message::Invalidate { round, ts, blocks, payload } => {
                self.handle_invalidate(from, round, ts, blocks, payload);
            }
            Message::Acknowledge { rounds } => {
                rounds.into_iter().for_each(|round| self.handle_acknowledge(from, round));
            }
            Message::AskValidation => self.handle_ask_validation(),
            _ if !current => {} // Reached only with that rule left out, which is about writes.
            Message::ConfirmReads { .. } => {} // Answered above.
            Message::ReadsConfirmed { probe } => self.handle_reads_confirmed(from, probe),
            Message::Floor { floor } => self.floors[from.index()] = Some(floor),
            Message::SyncOpen { sync, dirty, lost } => self.handle_sync_open(from, sync, dirty, lost),
            Message::SyncClean { sync, known, inherit } => self.handle_sync_clean(from, sync, known, inherit),
            Message::SyncRegion { sync, region, payload, known, moving, lost, inherit } => {
                let brought = joiner::Region { region, payload, known, moving, lost, inherit };
                self.handle_sync_region(from, sync, brought);
            }
            Message::SyncProbe { sync, region, digest, inherit } => {
                self.handle_sync_probe(from, sync, joiner::Probe { region, digest, inherit });
            }
            Message::SyncWant { sync, region } => self.handle_sync_want(from, sync, region),
            Message::SyncDone { sync, region } => self.handle_sync_done(from, sync, region),
            Message::SyncLater { sync, region } => self.handle_sync_later(from, sync, region),
            Message::SyncWait { sync } => self.handle_sync_wait(from, sync),
            Message::SyncEnd { sync } => self.handle_sync_end(from, sync),
            Message::Synced => self.synced = self.synced.with(from),
        }
    }

    fn handle_activated(&mut self, from: Slot, epoch: Epoch, current: bool) {
        let last = &mut self.epochs[from.index()];
        let is_known = *last == epoch;
        *last = epoch.max(*last);
        if current {
            // The other copy did not take what was sent before it acted in this epoch.
            self.said_floor = None;
            if !is_known || !makes(Canary::LostWithLink) {
                self.send_rounds_again(from);
            }
            self.probe_again(from);
            self.joiner.reopen(from);
            self.open_sync();
            self.say_synced();
        }
    }

    /// A new link to the copy in the slot is up: what was on its way over the last one is lost.
    pub fn handle_link_up(&mut self, to: Slot) {
        self.linked = self.linked.with(to);
        self.sources[to.index()] = None;
        self.send(to, Message::Activated);
        self.said_floor = None;
        if !makes(Canary::LostWithLink) {
            self.send_rounds_again(to);
        }
        self.probe_again(to);
        self.joiner.reopen(to);
        self.open_sync();
        self.say_synced();
    }

    /// The link to the copy in the slot broke.
    pub fn handle_link_down(&mut self, to: Slot) {
        self.linked = self.linked.without(to);
        self.sources[to.index()] = None;
        self.joiner.reopen(to);
        self.open_sync();
    }

    /// The local write has ended.
    ///
    /// After an error this copy acknowledges nothing any more and must be removed. If it is the only member,
    /// its blocks can still be read, except those that were being written to: no other copy has them.
    pub fn handle_applied(&mut self, id: ApplyId, result: Result<(), DiskFailed>) {
        if result.is_err() {
            self.fail(DiskFault::Write);
        }
        if self.failed.is_some() {
            return;
        }
        if let Some(blocks) = self.media.end(id) {
            self.table.applied(blocks, id);
            for ack in self.pending_acks.complete(id) {
                self.release_ack(ack);
            }
        }
        // A resync may have waited for this.
        self.open_sync();
    }

    /// Whether anything waits for the write: it was handed out in this membership, or for this resync, and
    /// has not ended.
    pub fn is_under_way(&self, id: ApplyId) -> bool {
        self.media.is_under_way(id)
    }

    /// The page of the dirty map has been written.
    pub fn handle_page_written(&mut self, page: usize, result: Result<(), DiskFailed>) {
        match result {
            Ok(()) => self.map.handle_written(page),
            Err(DiskFailed) => self.fail(DiskFault::Write),
        }
        self.finish_joining();
    }

    /// The disk failed: this copy takes no part any more.
    pub(super) fn fail(&mut self, fault: DiskFault) {
        if self.failed.is_none() {
            self.failed = Some(fault);
            // What was under way ends without this copy, or, if this is the only copy, not at all.
            self.answer_unknown();
        }
    }

    /// Whether this copy is in sync and there is no other member.
    fn is_alone(&self) -> bool {
        let only = |config: &Config| config.members().without(self.me).is_empty();
        matches!(self.standing(), Standing::InSync(_)) && self.config.as_ref().is_some_and(only)
    }

    /// Whether [`Replica::handle_tick`] may have something to do, now or after more ticks, even if nothing
    /// happens to this copy until then.
    ///
    /// The driver may skip the ticks of a copy that needs none, until something happens to it. Only a copy in
    /// sync, of a volume whose copies are all in sync, comes to rest like that.
    pub fn needs_tick(&self) -> bool {
        let Some(config) = &self.config else { return true };
        let is_whole =
            matches!(self.standing(), Standing::InSync(_)) && config.in_sync() == config.configured();
        let rests = is_whole
            && self.failed.is_none()
            && self.is_at_rest()
            && self.sources.iter().all(Option::is_none)
            // R7: the next tick would take what is invalid by then for left by a lost coordinator.
            && self.last_mark == self.table.mark()
            && self.older_finished
            && self.has_settled_floors(config.members())
            // R8: no bit is left to be cleared, and the disk knows that.
            && self.warm.is_empty()
            && self.map.is_clear_of(self.others())
            && self.map.is_clean();
        !rests
    }

    /// Called every [`TICK`] unless [`Replica::needs_tick`] says that this is not needed.
    pub fn handle_tick(&mut self) {
        self.ticks += 1;
        let Some(config) = &self.config else { return };
        let members = config.members();
        if self.failed.is_some() {
            return;
        }
        self.tick_joiner();
        if !members.contains(self.me) {
            return;
        }
        self.validate();
        self.replay_orphans();
        self.say_floor();
        let asked = if makes(Canary::NoFloor) { Slots::NONE.with(self.me) } else { members };
        let floor = self.floor_of(asked);
        self.older_finished |= floor.is_some_and(|floor| floor.epoch >= self.noted_since);
        // This copy must know all writes that its joiner may have received again (R18). And if it is a
        // joiner, it must know that it has received what was under way meanwhile.
        let remember = self.joiner.remembers()
            || self.sources.iter().flatten().any(Source::is_final) && !makes(Canary::ForgetAsSource);
        if let Some(floor) = floor.filter(|_| !remember) {
            self.table.forget_below(floor);
        }
        self.clear_bits(false);
        for slot in Slot::all() {
            self.retry_source(slot);
        }
    }

    /// Whether this copy has nothing to finish in the blocks.
    ///
    /// That is no write that it began, and none that it would send again if its coordinator were lost (R7).
    pub fn is_settled(&self, blocks: Blocks) -> bool {
        self.last_unsettled(blocks).is_none()
    }

    /// The latest write that this copy has to finish in the blocks: see [`Replica::is_settled`].
    pub fn last_unsettled(&self, blocks: Blocks) -> Option<Timestamp> {
        self.unsettled(blocks).max()
    }

    /// Whether such a write is left up to that place in the order.
    pub fn has_unsettled_until(&self, blocks: Blocks, last: Timestamp) -> bool {
        self.unsettled(blocks).any(|ts| ts <= last)
    }

    fn unsettled(&self, blocks: Blocks) -> impl Iterator<Item = Timestamp> {
        let own = self.rounds.values().filter(move |round| round.blocks.overlaps(blocks));
        let taken = self.table.within(blocks).map(|(_, entry)| entry);
        let taken = taken.filter(move |entry| !entry.is_valid() && self.joiner.may_replay(entry.ts));
        own.map(|round| round.ts).chain(taken.map(|entry| entry.ts))
    }

    /// The next thing to do, if there is one.
    pub fn poll(&mut self) -> Option<Output> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        if let Some(write) = self.map.poll_write(false) {
            return Some(Output::WritePage(write));
        }
        self.media.poll(&self.map, &self.geometry).map(Output::Apply)
    }

    /// The next page of the dirty map with cleared bits: written when there is nothing better to do.
    pub fn poll_idle(&mut self) -> Option<PageWrite> {
        self.map.poll_write(true)
    }

    /// Whether nothing is under way and nothing is remembered: tests use it to see that an idle volume comes
    /// to rest.
    pub fn is_at_rest(&self) -> bool {
        self.rounds.is_empty()
            && self.validations.is_empty()
            && self.table.is_empty()
            && self.pending_acks.is_empty()
            && self.outputs.is_empty()
    }

    /// Describes what keeps the copy from being at rest, for debugging.
    pub fn unrest(&self) -> String {
        let rounds: Vec<_> = self.rounds.values().map(|round| (round.ts, round.waiting)).collect();
        let Replica { pending_acks, table, joiner, sources, epochs, linked, synced, .. } = self;
        let (invalid, valid) = table.count();
        format!(
            "rounds {rounds:?}, {pending_acks:?}, {invalid} blocks' entries invalid, {valid} valid, {joiner:?}, {sources:?}, {epochs:?}, linked {linked:?}, synced {synced:?}"
        )
    }

    /// All other slots with a copy: a write first sets a bit for each of them (R4).
    fn others(&self) -> Slots {
        self.config.as_ref().map_or(Slots::NONE, |config| config.configured().without(self.me))
    }

    fn epoch(&self) -> Epoch {
        self.config.as_ref().map_or(Epoch(0), |config| config.epoch)
    }

    fn send(&mut self, to: Slot, message: Message) {
        let envelope = Envelope { epoch: self.epoch(), incarnation: self.incarnation, message };
        self.outputs.push_back(Output::Send(to, envelope));
    }

    fn send_to_members(&mut self, message: &Message) {
        let Some(config) = &self.config else { return };
        for slot in config.members().without(self.me).iter() {
            self.send(slot, message.clone());
        }
    }

    fn release_ack(&mut self, ack: PendingAck) {
        match ack {
            PendingAck::Own(round) => self.handle_acknowledge(self.me, round),
            PendingAck::Peer(slot, round) => self.send(slot, Message::Acknowledge { rounds: vec![round] }),
            PendingAck::Region(sync, region) => self.handle_region_applied(sync, region),
            PendingAck::RegionLater(sync, region) => self.handle_region_put_off(sync, region),
        }
    }
}

/// The local disk failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskFailed;

/// Why a disk keeps its copy from taking part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskFault {
    /// The disk failed a write.
    Write,
    /// The disk cannot read a block, and rewriting the block did not help (R25).
    Unrepaired,
    /// Reads have failed in too many places, so more are expected to fail.
    Failing,
    /// The disk has not answered for too long.
    Silent,
}
