//! One copy of one slice.
//!
//! It is driven by one task: whatever happens is told by a `handle_*` call or a command, and after each of
//! these [`Replica::poll`] is called until it has nothing more to be done. The driver carries out
//! [`Output::Apply`]s that overlap in the order in which they came.
//!
//! A write that a host gave to this copy is a *round*: it is sent to all members and ends when each has it on
//! its disk. What a copy owes to others until its disk has done something is a *debt*. `write.rs` has the
//! rounds, `debt.rs` the debts, `source.rs` and `joiner.rs` the two sides of a sync.

mod confirm;
mod debt;
mod joiner;
mod repair;
mod source;
mod write;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use base::Instant;

use crate::canary::{Canary, makes};
use crate::dirty_map::{DirtyMap, PageWrite};
use crate::lease::Leases;
use crate::media::{Apply, ApplyId, Media};
use crate::message::{Envelope, LostUnits, Message, RoundId, SyncId};
use crate::table::Table;
use crate::{
    Activation, Blocks, Config, Digest, Epoch, Geometry, Incarnation, Slot, Slots, Standing, Timestamp,
};
use confirm::Probes;
use debt::{Debts, Owed};
use joiner::Joiner;
use source::Source;
use write::Round;

pub use confirm::{Confirmation, Confirmed};
pub use joiner::SyncFrom;
pub use repair::{Around, NotAround};
pub use source::{LOST_UNIT, LOST_UNITS_MAX, Receivers, SyncNext, SyncState};

/// How often [`Replica::handle_tick`] wants to be called.
pub const TICK: Duration = Duration::from_millis(250);

/// How long members may wait to be told that a write is everywhere, for something to tell them with; whoever
/// reads what was written asks. Longer than a tick of the kernel's timer (4 ms), whose clock would have to be
/// set for each sleep of the core: that costs a virtual machine more than all the rest.
pub const VALIDATE_AFTER: Duration = Duration::from_millis(10);

/// For how many ticks a region must have been left alone before its bits are cleared: 5 seconds. Shorter, and
/// a file system's journal would write the map all the time; longer, and a crash finds more to copy.
const WARM_TICKS: u32 = 20;

/// Regions that one tick looks at for bits to clear: 4 GiB, so that a TiB takes a minute.
const SWEEP_REGIONS: u64 = 65_536;

/// A host's write, by the driver's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Command(pub u64);

/// What became of a host's write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is on the disks of all members.
    Done,
    /// This copy is no member any more: others may have made the write whole, or not.
    Unknown,
}

/// What is to be done.
#[derive(Debug)]
pub enum Output {
    /// Send this to the copy in the slot; if there is no link, drop it.
    Send(Slot, Envelope),
    /// Write to the local disk, durably, then [`Replica::handle_applied`].
    Apply(Apply),
    /// Write a page of the dirty map, durably, then [`Replica::handle_page_written`].
    WritePage(PageWrite),
    /// Read a region from the local disk, then [`Replica::handle_region_read`] or, if the read says so,
    /// [`Replica::handle_region_read_by_block`].
    ReadRegion(RegionRead),
    /// Read a region from the local disk when all writes to it that were handed out before have ended, make
    /// durable what an earlier life may have left there, then [`Replica::handle_region_compared`].
    CompareRegion(RegionCompare),
    /// Answer the host.
    Complete(Command, Outcome),
}

/// A region to be read for a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionRead {
    /// Who wants it.
    pub to: Slot,
    /// In which sync.
    pub sync: SyncId,
    /// Which.
    pub region: u64,
    /// Its blocks.
    pub blocks: Blocks,
    /// Not as a whole, but each block of the disk by itself: what no copy in sync reads is found so (R27),
    /// and told by [`Replica::handle_region_read_by_block`].
    pub by_block: bool,
    /// Which read: a disk may answer one of an earlier sync when the region is read anew, and the syncs of
    /// another life have the same numbers.
    pub number: u64,
}

/// A region that another copy holds and this one may hold, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionCompare {
    /// In which sync.
    pub sync: SyncId,
    /// Which.
    pub region: u64,
    /// Its blocks.
    pub blocks: Blocks,
    /// What the other holds.
    pub digest: Digest,
}

/// Why a host's write is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unwritable {
    /// The copy does not serve.
    #[error("this copy of the volume is not in sync")]
    NotInSync,
    /// Its disk failed.
    #[error("a disk of this copy of the volume failed")]
    Failed,
}

/// Why blocks may not be read now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The copy does not serve.
    #[error("this copy of the volume is not in sync")]
    NotInSync,
    /// Its disk failed.
    #[error("a disk of this copy of the volume failed")]
    Failed,
    /// A member may have gone on without this copy: ask again soon.
    #[error("no lease of {0}")]
    NoLease(Slot),
    /// A write to the blocks is under way: ask again when something has happened.
    #[error("a write is under way")]
    Unsettled,
}

/// What a read must be compared with when its data has come from the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadMark(u64);

/// See the module.
#[derive(Debug)]
pub struct Replica {
    me: Slot,
    incarnation: Incarnation,
    geometry: Geometry,
    /// What is acted in; `None` before the first activation.
    config: Option<Config>,
    /// The greatest counter seen in this epoch.
    clock: u64,
    table: Table,
    map: DirtyMap,
    media: Media,
    rounds: BTreeMap<RoundId, Round>,
    last_round: u64,
    last_read: u64,
    /// Own writes that all members have on their disks, and have not been told that they do.
    validations: Vec<(Blocks, Timestamp)>,
    /// Somebody has asked for that while writes were under way: the word of these is not to wait.
    asked_validation: bool,
    debts: Debts,
    /// What reads wait for that others must confirm.
    probes: Probes,
    /// What each member will not go below, as far as it has said so in this epoch.
    floors: [Option<Timestamp>; Slot::MAX],
    /// From this epoch on, writes set a bit for each copy that there is now and that does not get them. A
    /// write that was begun earlier may have no bit for a copy that was added lately; this may be such a
    /// copy.
    noted_since: Epoch,
    /// Whether all members have finished what they began before that.
    older_finished: bool,
    /// What was last said of our own.
    said_floor: Option<Timestamp>,
    /// The epoch that each other copy last said it acts in.
    epochs: [Epoch; Slot::MAX],
    /// To whom there is a link.
    linked: Slots,
    /// Members that join and have said that they have everything.
    synced: Slots,
    /// Syncs from here, by who gets them.
    sources: [Option<Source>; Slot::MAX],
    /// Regions that could not be read for a sync, and how often in a row.
    unread: BTreeMap<u64, u32>,
    /// What is lost on this copy's disk.
    lost: LostUnits,
    /// Bytes that syncs from here have brought, by who got them.
    brought: [u64; Slot::MAX],
    /// Bytes that writes have added to what copies outside are to be given.
    dirtied: [u64; Slot::MAX],
    /// The sync to here.
    joiner: Joiner,
    /// Regions written to, by the tick in which they were: their bits stay.
    warm: BTreeMap<u64, u32>,
    ticks: u32,
    sweep_from: u64,
    /// [`Table::mark`] of the tick before: an invalid entry from before it has lost its coordinator's word.
    last_mark: u64,
    /// The disk failed: nothing is acknowledged any more.
    failed: Option<DiskFault>,
    /// The table still says which blocks were being written to when that happened.
    knows_failed: bool,
    /// Joiners of this configuration have taken a write that this copy, the only one in sync, cannot carry
    /// out.
    keeps_joiners_out: bool,
    outputs: VecDeque<Output>,
}

impl Replica {
    /// The copy in slot `me`, with the dirty map that its disk has, before it knows of any configuration.
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
            debts: Debts::default(),
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

    /// The slice has become longer, as of the configuration that is about to be acted in: a message of an
    /// epoch is about the slice as it is in that epoch.
    ///
    /// # Panics
    /// If it has become shorter, or its blocks others.
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
        // What is being read of the last region was shorter.
        self.sources = Default::default();
    }

    /// Acts in this configuration from now on. Without `kept` all that was known of writes is forgotten, and
    /// hosts are told so.
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
        // A map that was not read is marked for everybody, whether there is such a copy or not: what is noted
        // for nobody would stay, and be handed on. A copy that is added later is a new one, whose own map
        // says that it has nothing. But a process that has just started may act in an old configuration
        // first, from before a copy was added for which its last life has noted something. A member's
        // configuration is newer than that.
        if standing != Standing::Outside || makes(Canary::ClearOutside) {
            self.map.clear_all(Slots::ALL.minus(self.others()));
        }
        self.debts.clear();
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

    /// Which copy this is.
    pub fn me(&self) -> Slot {
        self.me
    }

    /// The configuration that is acted in.
    pub fn config(&self) -> Option<&Config> {
        self.config.as_ref()
    }

    /// What this copy may do.
    pub fn standing(&self) -> Standing {
        self.config.as_ref().map_or(Standing::Outside, |config| config.standing(self.me, self.incarnation))
    }

    /// Whether its disk failed: it takes no part any more.
    pub fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Why it takes no part any more, if its disk failed.
    pub fn failure(&self) -> Option<DiskFault> {
        self.failed
    }

    /// The dirty map.
    pub fn map(&self) -> &DirtyMap {
        &self.map
    }

    /// Joiners that have all that they missed, as far as this copy knows, and all in-sync copies act in the
    /// epoch in which they join: they may be promoted (R13).
    pub fn promotable(&self) -> Slots {
        let Some(config) = &self.config else { return Slots::NONE };
        let confirmed = config.in_sync().iter().all(|slot| self.epochs[slot.index()] == config.epoch);
        if confirmed || makes(Canary::NoConfirm) { self.synced.and(config.joining()) } else { Slots::NONE }
    }

    /// Copies outside that miss so little that they may join: the rest is short (R19).
    pub fn caught_up(&self) -> Slots {
        self.receivers_whose(Source::is_caught_up)
    }

    /// Copies that this one brings up to date and that still miss too much to join.
    pub fn behind(&self) -> Slots {
        self.receivers_whose(|source| !source.is_caught_up())
    }

    /// Joiners that wait for too long for regions that this copy's disk does not read, or have taken a write
    /// that it cannot carry out for the same reason.
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

    /// Takes a message from the copy in `from`, over the link that is up.
    pub fn handle_message(&mut self, from: Slot, envelope: Envelope) {
        let Some(config) = &self.config else { return };
        let current = envelope.epoch == config.epoch
            && config.copy(from).is_some_and(|copy| match copy.standing {
                Standing::InSync(life) | Standing::Joining(life) => life == envelope.incarnation,
                Standing::Outside => true,
            });
        // In which epoch it acts says also who has no disk any more.
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
            Message::SyncWait { sync } => self.handle_sync_wait(from, sync),
            Message::SyncEnd { sync } => self.handle_sync_end(from, sync),
            Message::Synced => self.synced = self.synced.with(from),
        }
    }

    fn handle_activated(&mut self, from: Slot, epoch: Epoch, current: bool) {
        let last = &mut self.epochs[from.index()];
        *last = epoch.max(*last);
        if current {
            // What was sent before it acted in this epoch was not taken.
            self.said_floor = None;
            self.send_rounds_again(from);
            self.probe_again(from);
            self.joiner.reopen(from);
            self.open_sync();
            self.say_synced();
        }
    }

    /// The link to the copy in the slot is up, anew: what was on its way before is lost.
    pub fn handle_link_up(&mut self, to: Slot) {
        self.linked = self.linked.with(to);
        self.sources[to.index()] = None;
        self.send(to, Message::Activated);
        self.said_floor = None;
        self.send_rounds_again(to);
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

    /// The local write has ended. An error ends this copy's part: it acknowledges nothing any more, and must
    /// be removed. Of the only member, of which nobody else has what it has, all can still be read that was
    /// not being written to.
    pub fn handle_applied(&mut self, id: ApplyId, result: Result<(), DiskFailed>) {
        if result.is_err() {
            self.fail(DiskFault::Write);
        }
        if self.failed.is_some() {
            return;
        }
        let Some(blocks) = self.media.end(id) else { return };
        self.table.applied(blocks, id);
        for owed in self.debts.pay(id) {
            self.settle_debt(owed);
        }
    }

    /// The page of the dirty map has been written.
    pub fn handle_page_written(&mut self, page: usize, result: Result<(), DiskFailed>) {
        match result {
            Ok(()) => self.map.handle_written(page),
            Err(DiskFailed) => self.fail(DiskFault::Write),
        }
        self.finish_joining();
    }

    /// What a cache held back went to the disk.
    pub fn handle_flushed(&mut self, result: Result<(), DiskFailed>) {
        if result.is_err() {
            self.fail(DiskFault::Write);
        }
    }

    /// The disk failed: this copy takes no part any more.
    pub(super) fn fail(&mut self, fault: DiskFault) {
        if self.failed.is_none() {
            self.failed = Some(fault);
            // What was under way ends without this copy, or not at all where it is the only one.
            self.answer_unknown();
        }
    }

    /// Whether this copy is in sync and there is no other member.
    fn is_alone(&self) -> bool {
        let only = |config: &Config| config.members().without(self.me).is_empty();
        matches!(self.standing(), Standing::InSync(_)) && self.config.as_ref().is_some_and(only)
    }

    /// A while has passed: [`TICK`].
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
        let floors = asked.iter().map(|slot| self.floors[slot.index()]).collect::<Option<Vec<_>>>();
        let floor = floors.and_then(|floors| floors.into_iter().min());
        self.older_finished |= floor.is_some_and(|floor| floor.epoch >= self.noted_since);
        // A joiner that this copy brings up to date must be told of all that it may have been sent again
        // (R18). And the joiner must know that it has got what was under way meanwhile.
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

    /// Whether the blocks may be read from the local disk now (R9). When the data has come,
    /// [`Replica::still_readable`] must agree.
    ///
    /// # Errors
    /// Why not.
    pub fn readable(&self, now: Instant, leases: &Leases, blocks: Blocks) -> Result<ReadMark, Unreadable> {
        if self.failed.is_some() && !(self.is_alone() && self.knows_failed) {
            return Err(Unreadable::Failed);
        }
        self.leased(now, leases)?;
        if !self.table.is_valid(blocks) {
            // What a write that failed has left is to be seen, and may be gone with the next loss of power.
            return Err(if self.failed.is_some() { Unreadable::Failed } else { Unreadable::Unsettled });
        }
        Ok(ReadMark(self.table.mark()))
    }

    /// Whether this copy is in sync and has the lease of every other member.
    ///
    /// # Errors
    /// What it lacks: [`Unreadable::NotInSync`], [`Unreadable::NoLease`].
    pub fn leased(&self, now: Instant, leases: &Leases) -> Result<(), Unreadable> {
        let config = self.config.as_ref().ok_or(Unreadable::NotInSync)?;
        if !matches!(config.standing(self.me, self.incarnation), Standing::InSync(_)) {
            return Err(Unreadable::NotInSync);
        }
        for slot in config.members().without(self.me).iter() {
            let needless =
                makes(Canary::NoLease) || makes(Canary::NoJoinerLease) && config.joining().contains(slot);
            let copy = config.copy(slot).expect("a member is a copy");
            if !needless && !leases.holds(now, copy.node) {
                return Err(Unreadable::NoLease(slot));
            }
        }
        Ok(())
    }

    /// Whether what was read since the mark is what the blocks hold now: the read takes effect here. If not,
    /// it is to be done again.
    pub fn still_readable(&self, mark: ReadMark, now: Instant, leases: &Leases, blocks: Blocks) -> bool {
        self.readable(now, leases, blocks).is_ok() && self.table.unchanged_since(mark.0, blocks)
    }

    /// Whether nothing in the blocks is still to be brought to its end by this copy: no write that it began,
    /// and none that it would send again should its coordinator be lost (R7).
    pub fn is_settled(&self, blocks: Blocks) -> bool {
        !self.rounds.values().any(|round| round.blocks.overlaps(blocks))
            && self
                .table
                .within(blocks)
                .all(|(_, entry)| entry.is_valid() || !self.joiner.may_replay(entry.ts))
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

    /// The next page of the dirty map whose bits were cleared: to be written when there is nothing better to
    /// do.
    pub fn poll_idle(&mut self) -> Option<PageWrite> {
        self.map.poll_write(true)
    }

    /// Whether nothing is under way and nothing is remembered: for tests of whether a quiet volume comes to
    /// rest.
    pub fn is_at_rest(&self) -> bool {
        self.rounds.is_empty()
            && self.validations.is_empty()
            && self.table.is_empty()
            && self.debts.is_empty()
            && self.outputs.is_empty()
    }

    /// What keeps it from being at rest: for people who look for a fault.
    pub fn unrest(&self) -> String {
        let rounds: Vec<_> = self.rounds.values().map(|round| (round.ts, round.waiting)).collect();
        let Replica { debts, table, joiner, sources, epochs, linked, synced, .. } = self;
        let (invalid, valid) = table.count();
        format!(
            "rounds {rounds:?}, {debts:?}, {invalid} blocks' entries invalid, {valid} valid, {joiner:?}, {sources:?}, {epochs:?}, linked {linked:?}, synced {synced:?}"
        )
    }

    /// Everybody else that has a copy: for whom a bit is set before a write (R4).
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

    fn settle_debt(&mut self, owed: Owed) {
        match owed {
            Owed::Own(round) => self.handle_acknowledge(self.me, round),
            Owed::Peer(slot, round) => self.send(slot, Message::Acknowledge { rounds: vec![round] }),
            Owed::Region(sync, region) => self.handle_region_applied(sync, region),
        }
    }

    /// Clears the bits of in-sync copies wherever all is valid (R8), however lately it was written to: one of
    /// them is about to stop, and what it has need not be copied to it when it is back. Asks for word of what
    /// is not valid, too: what comes of that is for the next call.
    pub fn settle(&mut self) {
        self.validate();
        self.ask_validation(Blocks::new(0, self.geometry.blocks));
        self.warm.clear();
        self.sweep_from = 0;
        for _ in 0..=self.geometry.regions() / SWEEP_REGIONS {
            self.clear_bits(makes(Canary::SettleBlind));
        }
    }

    /// Clears the bits of in-sync copies in regions that were left alone (R8): what is valid there, they
    /// have, too.
    fn clear_bits(&mut self, blind: bool) {
        let Some(config) = &self.config else { return };
        let is_in_sync = matches!(self.standing(), Standing::InSync(_));
        if !is_in_sync || !self.older_finished && !makes(Canary::NoFinished) {
            return;
        }
        let others = config.in_sync().without(self.me);
        let oldest = self.ticks.saturating_sub(WARM_TICKS);
        self.warm.retain(|_, tick| *tick >= oldest);
        let end = self.sweep_from + SWEEP_REGIONS;
        let mut regions = Vec::new();
        while let Some(region) = self.map.next_dirty(self.sweep_from, others).filter(|region| *region < end) {
            regions.push(region);
            self.sweep_from = region + 1;
        }
        self.sweep_from = if end >= self.geometry.regions() { 0 } else { end };
        for region in regions {
            let blocks = self.geometry.blocks_of(region);
            // The table does not know of blocks that are written again (R25).
            let quiet = self.table.is_quiet(blocks) && !self.media.touches(blocks);
            if !self.warm.contains_key(&region) && (quiet || blind) {
                self.map.clear(region, others);
            }
        }
    }
}

/// The local disk failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskFailed;

/// Why a copy takes no part any more because of its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskFault {
    /// It failed a write.
    Write,
    /// It does not read a block, and writing the block again did not help (R25).
    Unrepaired,
    /// Reads have failed in too many places: the next ones will, too.
    Failing,
    /// It has not answered for too long.
    Silent,
}
