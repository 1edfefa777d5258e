//! The target of a resync: gets what this copy missed (R17 to R19).

use std::collections::BTreeSet;

use crate::canary::{Canary, makes};
use crate::media::{ApplyId, ApplyKind};
use crate::message::{Message, RoundId, SyncId};
use crate::{
    Blocks, Config, Digest, Epoch, LostBlocks, LostUnits, Payload, Regions, Slot, Slots, Standing, Timestamp,
};

use super::pending_acks::PendingAck;
use super::{DiskFailed, DiskFault, LOST_UNIT, Output, RegionCompare, Replica};

/// The resync to here, if there is one.
#[derive(Debug, Default)]
pub(super) struct Joiner {
    stage: Stage,
    /// The number of the last resync of this life.
    last: u64,
    /// The copy that gives, once it was asked.
    source: Option<Slot>,
    /// The copy that has given something since this copy has been outside. Its map knows what is left; those
    /// of others still name everything, since no message tells them.
    gave: Option<Slot>,
    /// The epoch in which the present membership began.
    joined: Epoch,
    /// Whether this copy knows what is equal, and so can tell older writes from newer ones.
    clean: bool,
    /// Writes that were begun before this copy joined and arrived before it knew that (R18).
    deferred: Vec<Deferred>,
    /// Regions that were given, and are not on the disk or not compared with it yet.
    outstanding: BTreeSet<u64>,
    /// Comparisons under way, also those of earlier resyncs.
    comparing: u32,
    /// Regions that wait for the writes that were under way in them when they were sent.
    moving: Vec<(u64, Vec<(Blocks, Timestamp)>)>,
    /// Bits taken over from the source that are not on the disk yet.
    inherited: Vec<(Slot, Regions)>,
    /// Whether the source has sent everything.
    ended: bool,
    /// Ticks since the source last said anything in this resync.
    silent_ticks: u32,
    /// Ticks since any source last said anything.
    unheard_ticks: u32,
}

/// After this many silent ticks this copy asks the source again: it may not have acted in this epoch yet, or
/// have been busy.
const SILENT_TICKS_MAX: u32 = 8;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Nothing is missing, or the driver has not asked to fetch it.
    #[default]
    None,
    /// Outside: much is missing.
    Bulk,
    /// Joining.
    Final,
    /// Joining, and nothing is missing.
    Complete,
}

/// The copy that resyncs this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncFrom {
    /// The copy that was asked; `None` if there is no link to any copy in sync, or if this copy does not ask
    /// yet.
    pub source: Option<Slot>,
    /// Whether this copy does not ask yet because its disk still has to write what it was given before.
    pub awaits_disk: bool,
    /// Ticks ([`super::TICK`]) since it last said anything in this resync, however often it was asked again.
    pub silent_ticks: u32,
    /// A disk of this copy failed: it takes nothing.
    pub failed: bool,
}

#[derive(Debug)]
struct Deferred {
    from: Slot,
    round: RoundId,
    ts: Timestamp,
    blocks: Blocks,
    payload: Payload,
}

/// A region as the source holds it.
#[derive(Debug)]
pub(super) struct Region {
    pub region: u64,
    pub payload: Payload,
    pub known: Vec<(Blocks, Timestamp)>,
    pub moving: Vec<(Blocks, Timestamp)>,
    pub lost: Vec<LostBlocks>,
    pub inherit: Slots,
}

/// A region that the source holds and this copy may hold, too.
#[derive(Debug)]
pub(super) struct Probe {
    pub region: u64,
    pub digest: Digest,
    pub inherit: Slots,
}

impl Joiner {
    /// See [`Replica::count_from`].
    pub fn count_from(&mut self, number: u64) {
        self.last = number;
    }

    /// This copy begins to act in a configuration.
    pub fn enter(&mut self, config: &Config, standing: Standing, kept: bool) {
        let stage = match standing {
            Standing::Outside if self.stage == Stage::None => Stage::None,
            Standing::Outside => Stage::Bulk,
            Standing::InSync(_) => Stage::None,
            Standing::Joining(_) if kept && self.stage == Stage::Complete => Stage::Complete,
            Standing::Joining(_) => Stage::Final,
        };
        let joined = if kept { self.joined } else { config.epoch };
        let (last, comparing) = (self.last, self.comparing);
        let unheard_ticks = if self.stage == Stage::None { 0 } else { self.unheard_ticks };
        let gave = if stage == Stage::None { None } else { self.gave };
        *self = Joiner { stage, joined, last, unheard_ticks, gave, comparing, ..Joiner::default() };
    }

    /// Whether a write must wait until this copy knows what is equal.
    pub fn defers(&self, ts: Timestamp) -> bool {
        self.stage == Stage::Final && !self.clean && ts.epoch < self.joined
    }

    pub fn defer(&mut self, from: Slot, round: RoundId, ts: Timestamp, blocks: Blocks, payload: Payload) {
        self.deferred.push(Deferred { from, round, ts, blocks, payload });
    }

    /// Whether this copy may complete another copy's write. A joiner that has a write from before it joined
    /// may not know what superseded it, and the others may have forgotten that.
    pub fn may_replay(&self, ts: Timestamp) -> bool {
        self.stage == Stage::None || ts.epoch >= self.joined || makes(Canary::JoinerReplays)
    }

    /// The source may have lost the request, or its answer may be lost.
    pub fn reopen(&mut self, slot: Slot) {
        if self.source == Some(slot) && matches!(self.stage, Stage::Bulk | Stage::Final) {
            self.source = None;
        }
    }

    /// Whether this copy may forget no write: it must know what it has received.
    pub fn remembers(&self) -> bool {
        self.stage == Stage::Final
    }

    /// Whether the source waits for this copy's disk, and so has nothing to say.
    fn keeps_source_waiting(&self) -> bool {
        self.source.is_some() && self.outstanding.len() > self.moving.len()
    }

    /// Whether a message belongs to the resync under way; if so, its source is alive.
    fn is_from(&mut self, slot: Slot, sync: SyncId) -> bool {
        let is = self.source == Some(slot) && sync == SyncId(self.last);
        if is {
            (self.silent_ticks, self.unheard_ticks) = (0, 0);
        }
        is
    }
}

impl Replica {
    /// The copy that resyncs this one, if this one needs it or is not in sync because its disk failed.
    pub fn syncs_from(&self) -> Option<SyncFrom> {
        let Joiner { stage, source, unheard_ticks, .. } = &self.joiner;
        let has_failed = || self.has_failed() && !matches!(self.standing(), Standing::InSync(_));
        (matches!(stage, Stage::Bulk | Stage::Final) || has_failed()).then(|| SyncFrom {
            source: *source,
            awaits_disk: source.is_none() && self.next_source().is_some() && self.is_behind(),
            silent_ticks: *unheard_ticks,
            failed: self.has_failed(),
        })
    }

    /// From now on a copy outside fetches what it missed.
    pub fn catch_up(&mut self) {
        if self.standing() == Standing::Outside && self.joiner.stage == Stage::None {
            (self.joiner.stage, self.joiner.unheard_ticks) = (Stage::Bulk, 0);
            self.open_sync();
        }
    }

    /// The copy that this one asks next: one in sync to which there is a link, if possible the one that has
    /// given something before.
    fn next_source(&self) -> Option<Slot> {
        let asked = self.config.as_ref()?.in_sync().and(self.linked).without(self.me);
        let before = self.joiner.gave.filter(|slot| asked.contains(*slot));
        before.or_else(|| asked.iter().next())
    }

    /// Whether the disk still has to write or compare what earlier resyncs and memberships have brought.
    fn is_behind(&self) -> bool {
        self.media.is_behind() || self.joiner.comparing > 0
    }

    /// Asks another copy for what is missing, if that is needed and was not done yet.
    ///
    /// This copy asks only when its disk has nothing left to do for earlier resyncs and memberships; whatever
    /// ends last calls this again. Otherwise each link that breaks and each new epoch would add a mebibyte to
    /// a disk that hangs, in memory. And a region could be found equal before an old write to it lands.
    pub(super) fn open_sync(&mut self) {
        if self.joiner.source.is_some() || !matches!(self.joiner.stage, Stage::Bulk | Stage::Final) {
            return;
        }
        let Some(source) = self.next_source() else { return };
        if self.joiner.stage == Stage::Bulk {
            // A copy outside takes nothing but regions, and gets those again that it did not confirm.
            self.media.abandon();
            self.pending_acks.clear();
        }
        if self.is_behind() && !makes(Canary::AskEarly) {
            return;
        }
        self.joiner.last += 1;
        let Joiner { stage, joined, last, deferred, unheard_ticks, gave, comparing, .. } =
            std::mem::take(&mut self.joiner);
        self.joiner = Joiner {
            stage,
            joined,
            last,
            deferred,
            unheard_ticks,
            source: Some(source),
            gave,
            comparing,
            ..Joiner::default()
        };
        // These are writes from before this copy joined that all members hold. The source may have forgotten
        // what superseded them, so they must not count as newer than what it brings. But they are newer than
        // what a member that learned late of their end may send again.
        self.table.doubt_valid_before(Timestamp::first_of(self.joiner.joined));
        let dirty = self.map.dirty(Slots::NONE.with(source)).collect();
        let lost = self.lost.clone();
        self.send(source, Message::SyncOpen { sync: SyncId(last), dirty, lost });
    }

    /// Sets what is lost on this copy's disk now.
    ///
    /// A source gives no more lost blocks than this leaves room for (R27).
    pub fn set_lost(&mut self, lost: LostUnits) {
        self.lost = lost;
    }

    pub(super) fn tick_joiner(&mut self) {
        if self.joiner.keeps_source_waiting() {
            // A disk that hangs would get the same regions again every two seconds, and each piece of data
            // stays in memory until its write ends.
            (self.joiner.silent_ticks, self.joiner.unheard_ticks) = (0, 0);
            return;
        }
        self.joiner.silent_ticks += 1;
        self.joiner.unheard_ticks += 1;
        if self.joiner.silent_ticks >= SILENT_TICKS_MAX
            && let Some(source) = self.joiner.source
        {
            self.joiner.reopen(source);
            self.open_sync();
        }
    }

    pub(super) fn handle_sync_clean(
        &mut self,
        from: Slot,
        sync: SyncId,
        known: Vec<(Blocks, Timestamp)>,
        inherit: Vec<(Slot, Regions)>,
    ) {
        if !self.joiner.is_from(from, sync) || self.joiner.stage != Stage::Final || self.joiner.clean {
            return;
        }
        for (blocks, ts) in known {
            for part in self.table.older_than(blocks, Some(ts)) {
                self.table.take_over(part, ts);
            }
        }
        for (third, regions) in inherit.into_iter().filter(|(third, _)| *third != self.me) {
            regions.iter().for_each(|region| self.map.mark(region..region + 1, Slots::NONE.with(third)));
            self.joiner.inherited.push((third, regions));
        }
        self.joiner.clean = true;
        for write in std::mem::take(&mut self.joiner.deferred) {
            self.handle_invalidate(write.from, write.round, write.ts, write.blocks, write.payload);
        }
    }

    pub(super) fn handle_sync_region(&mut self, from: Slot, sync: SyncId, brought: Region) {
        let stage = self.joiner.stage;
        let wanted = stage == Stage::Bulk || stage == Stage::Final && self.joiner.clean;
        if !self.joiner.is_from(from, sync) || !wanted || brought.region >= self.geometry.regions() {
            return;
        }
        let Region { region, payload, known, moving, lost, inherit } = brought;
        let blocks = self.geometry.blocks_of(region);
        let inherit = inherit.without(self.me);
        self.map.mark(region..region + 1, inherit);
        let still = |part: &Blocks| !moving.iter().any(|(other, _)| other.overlaps(*part));
        // Parts of `moving` begin and end where parts of the cover do.
        let brought = cover(blocks, &known, &moving);
        let mut pieces = Vec::new();
        for (part, ts) in brought.into_iter().filter(|(part, _)| still(part)) {
            let older = match stage {
                Stage::Bulk => vec![part],
                _ if makes(Canary::NoSyncTimestamp) => vec![part],
                _ if makes(Canary::OldWriteFresh) => self.table.older_than(part, None),
                _ => self.table.older_than(part, ts),
            };
            pieces.extend(older.into_iter().map(|piece| (piece, ts)));
        }
        if stage == Stage::Bulk && self.may_write_around(&lost) && !makes(Canary::LostUnnoted) {
            for lost in &lost {
                let kind = ApplyKind::Lose { holders: lost.holders };
                let apply = self.media.submit(lost.blocks, Payload::Zeros, inherit, kind);
                self.media.note_brought(apply);
            }
            for run in pieces.chunk_by(|(one, _), (next, _)| one.end == next.start) {
                let (Some((first, _)), Some((last, _))) = (run.first(), run.last()) else { continue };
                let whole = Blocks::new(first.start, last.end);
                let data = payload.part(blocks, whole, &self.geometry);
                let apply = self.media.submit(whole, data, inherit, ApplyKind::WriteAroundLost);
                self.media.note_brought(apply);
            }
        }
        let pieces = split(&pieces, &lost);
        // Adjacent pieces are written at once: a write of a part of a block that the disk cannot read would
        // fail, and a write of the whole block heals it.
        for run in pieces.chunk_by(|one, next| one.blocks.end == next.blocks.start && one.lost == next.lost) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            let whole = Blocks::new(first.blocks.start, last.blocks.end);
            // A lost block counts as what it held, except that no host sees it: nothing older takes its
            // place, and anything newer ends the loss (R27).
            let (data, kind) = match first.lost {
                Some(_) if makes(Canary::LostUnnoted) => continue,
                Some(holders) => (Payload::Zeros, ApplyKind::Lose { holders }),
                None => (payload.part(blocks, whole, &self.geometry), ApplyKind::Write),
            };
            let apply = self.media.submit(whole, data, inherit, kind);
            self.media.note_brought(apply);
            if stage == Stage::Final {
                for Brought { blocks: piece, ts, .. } in run {
                    if let Some(ts) = ts {
                        self.table.take_over(*piece, *ts);
                    }
                    self.table.applying(*piece, apply);
                }
            }
        }
        self.joiner.outstanding.insert(region);
        self.joiner.moving.push((region, moving));
        self.owe_regions();
    }

    /// Whether a copy outside first notes what is lost in a region, and then writes the region as a whole.
    ///
    /// Its disk may have larger blocks than the source's, and not read one of which a part is lost: then it
    /// can write neither side of that part alone. What it holds where blocks are lost is not needed, except
    /// where this copy is to keep it.
    fn may_write_around(&self, lost: &[LostBlocks]) -> bool {
        let at = |block: u64| block * u64::from(self.geometry.block_bytes);
        let is_torn = |LostBlocks { blocks, .. }: &LostBlocks| {
            !at(blocks.start).is_multiple_of(LOST_UNIT) || !at(blocks.end).is_multiple_of(LOST_UNIT)
        };
        lost.iter().any(is_torn) && !lost.iter().any(|lost| lost.holders.contains(self.me))
    }

    pub(super) fn handle_sync_probe(&mut self, from: Slot, sync: SyncId, probe: Probe) {
        let Probe { region, digest, inherit } = probe;
        let wanted = self.joiner.stage == Stage::Bulk && region < self.geometry.regions();
        if !self.joiner.is_from(from, sync) || !wanted {
            return;
        }
        let blocks = self.geometry.blocks_of(region);
        self.map.mark(region..region + 1, inherit.without(self.me));
        self.joiner.outstanding.insert(region);
        self.joiner.comparing += 1;
        self.outputs.push_back(Output::CompareRegion(RegionCompare { sync, region, blocks, digest }));
    }

    /// The region has been read for a comparison.
    ///
    /// `None` if the disk cannot read it: the source's data is written over it. No data of the region is
    /// waiting to be applied before this call: the source gives a region once at a time.
    pub fn handle_region_compared(
        &mut self,
        compare: RegionCompare,
        result: Result<Option<Payload>, DiskFailed>,
    ) {
        self.joiner.comparing = self.joiner.comparing.saturating_sub(1);
        let Ok(here) = result else {
            self.fail(DiskFault::Write);
            return;
        };
        // A resync may have waited for this.
        self.open_sync();
        let RegionCompare { sync, region, blocks, digest } = compare;
        let Some(source) = self.joiner.source.filter(|_| self.joiner.stage == Stage::Bulk) else { return };
        if sync != SyncId(self.joiner.last) {
            return;
        }
        if here.is_some_and(|here| here.digest(blocks, &self.geometry) == digest) {
            self.handle_region_applied(sync, region);
        } else {
            self.joiner.outstanding.remove(&region);
            self.send(source, Message::SyncWant { sync, region });
        }
    }

    /// Owes the message that a region is complete where all writes that were under way in it have arrived.
    pub(super) fn owe_regions(&mut self) {
        let table = &self.table;
        let has_come = |(part, ts): &(Blocks, Timestamp)| {
            table.older_than(*part, Some(*ts)).is_empty() || makes(Canary::NoMoving)
        };
        let (there, moving) = std::mem::take(&mut self.joiner.moving)
            .into_iter()
            .partition(|(_, moving)| moving.iter().all(has_come));
        self.joiner.moving = moving;
        let there: Vec<(u64, _)> = there;
        for (region, _) in there {
            let sync = SyncId(self.joiner.last);
            let mut writes = self.media.within(self.geometry.blocks_of(region));
            if makes(Canary::PromoteEarly) {
                writes.clear();
            }
            if let Some(ack) = self.pending_acks.add(writes, PendingAck::Region(sync, region)) {
                self.release_ack(ack);
            }
        }
    }

    pub(super) fn handle_region_applied(&mut self, sync: SyncId, region: u64) {
        let Some(source) = self.joiner.source else { return };
        if !self.joiner.is_from(source, sync) {
            return;
        }
        self.joiner.outstanding.remove(&region);
        if self.joiner.stage == Stage::Bulk {
            // The region is equal to the source's as of its read; the source's own bit covers later changes.
            self.map.clear(region, Slots::NONE.with(source));
            self.joiner.gave = Some(source);
        }
        self.send(source, Message::SyncDone { sync, region });
        self.finish_joining();
    }

    /// Whether a write that was handed out need not happen now if the disk has no room for it.
    ///
    /// So it is in bulk: the source gives the region again, after all others, some of which may make room.
    /// Those would never come if this copy waited for room with each region that it was given first. A part
    /// of the region may have been written: this copy is outside, and the bits that name the region stay.
    pub fn may_put_off(&self, id: ApplyId) -> bool {
        self.joiner.stage == Stage::Bulk && self.failed.is_none() && self.media.is_being_brought(id)
    }

    /// The disk has no room for a write that was handed out. Returns whether the write has ended with that
    /// ([`Replica::may_put_off`]).
    pub fn put_off(&mut self, id: ApplyId) -> bool {
        let may = self.may_put_off(id);
        if may {
            self.pending_acks.put_off(id);
            self.handle_applied(id, Ok(()));
        }
        may
    }

    /// Whether a write that was handed out belongs to a region that was put off because of another write.
    pub fn is_put_off(&self, id: ApplyId) -> bool {
        self.pending_acks.is_put_off(id)
    }

    /// All writes to the region have ended, and one of them found no room.
    pub(super) fn handle_region_put_off(&mut self, sync: SyncId, region: u64) {
        let Some(source) = self.joiner.source else { return };
        if self.joiner.is_from(source, sync) {
            self.joiner.outstanding.remove(&region);
            self.send(source, Message::SyncLater { sync, region });
        }
    }

    pub(super) fn handle_sync_wait(&mut self, from: Slot, sync: SyncId) {
        // Only the check matters: the source is alive.
        self.joiner.is_from(from, sync);
    }

    pub(super) fn handle_sync_end(&mut self, from: Slot, sync: SyncId) {
        if self.joiner.is_from(from, sync) {
            self.joiner.ended = true;
            self.finish_joining();
        }
    }

    /// Reports that nothing is missing, once that is so.
    pub(super) fn finish_joining(&mut self) {
        let joiner = &mut self.joiner;
        if joiner.stage != Stage::Final || !joiner.clean || !joiner.ended || !joiner.outstanding.is_empty() {
            return;
        }
        let map = &self.map;
        for (third, regions) in &mut joiner.inherited {
            regions.retain(|region| !map.is_durable(region..region + 1, Slots::NONE.with(*third)));
        }
        joiner.inherited.retain(|(_, regions)| !regions.is_empty());
        if joiner.inherited.is_empty() {
            joiner.stage = Stage::Complete;
            self.say_synced();
        }
    }

    pub(super) fn say_synced(&mut self) {
        if self.joiner.stage == Stage::Complete {
            self.send_to_members(&Message::Synced);
        }
    }

    /// A write that this copy has deferred and would take although `other`, which may be asked what is equal,
    /// has forgotten something newer there.
    #[cfg(test)]
    pub(crate) fn put_off_and_forgotten_by(&self, other: &Replica) -> Option<Timestamp> {
        let is_over = |write: &&Deferred| {
            let mut taken = self.table.older_than(write.blocks, Some(write.ts)).into_iter();
            taken.any(|part| other.table.has_forgotten_newer(part, write.ts))
        };
        self.joiner.deferred.iter().find(is_over).map(|write| write.ts)
    }
}

/// A part of a region, as the joiner takes it.
struct Brought {
    blocks: Blocks,
    ts: Option<Timestamp>,
    /// If it is lost: the copies that hold it.
    lost: Option<Slots>,
}

/// Splits the pieces into lost and other parts. `lost` is in order and apart.
fn split(pieces: &[(Blocks, Option<Timestamp>)], lost: &[LostBlocks]) -> Vec<Brought> {
    let mut parts = Vec::new();
    for (piece, ts) in pieces {
        let mut add = |start: u64, end: u64, lost: Option<Slots>| {
            if start < end {
                parts.push(Brought { blocks: Blocks { start, end }, ts: *ts, lost });
            }
        };
        let mut at = piece.start;
        for LostBlocks { blocks, holders } in lost {
            let Some(gone) = blocks.intersection(*piece) else { continue };
            add(at, gone.start, None);
            add(gone.start, gone.end, Some(*holders));
            at = gone.end;
        }
        add(at, piece.end, None);
    }
    parts
}

/// The blocks in order, each part with the write that is known or under way in it.
fn cover(
    blocks: Blocks,
    known: &[(Blocks, Timestamp)],
    moving: &[(Blocks, Timestamp)],
) -> Vec<(Blocks, Option<Timestamp>)> {
    let mut parts = Vec::new();
    let mut at = blocks.start;
    let mut known: Vec<(Blocks, Timestamp)> = known.iter().chain(moving).copied().collect();
    known.sort_unstable();
    for (part, ts) in &known {
        let Some(part) = part.intersection(blocks).filter(|part| part.start >= at) else { continue };
        if at < part.start {
            parts.push((Blocks::new(at, part.start), None));
        }
        parts.push((part, Some(*ts)));
        at = part.end;
    }
    if at < blocks.end {
        parts.push((Blocks::new(at, blocks.end), None));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Activation, DirtyMap, Geometry, Incarnation, NodeId, Receivers, Revision};

    const GEOMETRY: Geometry = Geometry { blocks: 48, block_bytes: 8, region_blocks: 6 };
    const LIFE: Incarnation = Incarnation(1);
    /// How many of the eight regions copy 0 misses.
    const MISSED: u64 = 6;

    fn slot(number: usize) -> Slot {
        Slot::new(number).unwrap()
    }

    /// Two copies in sync, and the one in slot 0 outside, missing something of which both others know.
    struct Three {
        copies: [Replica; 3],
        links: Vec<[usize; 2]>,
    }

    impl Three {
        fn new() -> Three {
            let nodes = [(NodeId(1), LIFE), (NodeId(2), LIFE), (NodeId(3), LIFE)];
            let config = Config::initial(&nodes, Revision(1)).remove(slot(0)).unwrap();
            let copies = [0, 1, 2].map(|number| {
                let mut map = DirtyMap::new(GEOMETRY.regions());
                map.mark(0..if number == 0 { 0 } else { MISSED }, Slots::NONE.with(slot(0)));
                let mut replica = Replica::new(slot(number), LIFE, GEOMETRY, map);
                replica.activate(Activation { config: config.clone(), kept: false });
                replica
            });
            let mut three = Three { copies, links: Vec::new() };
            three.copies[0].catch_up();
            three.link(1, 2);
            for _ in 0..2 {
                three.copies.iter_mut().for_each(Replica::handle_tick);
                three.go_on();
            }
            three
        }

        fn link(&mut self, one: usize, other: usize) {
            self.links.push([one, other]);
            self.copies[one].handle_link_up(slot(other));
            self.copies[other].handle_link_up(slot(one));
            self.go_on();
        }

        fn cut(&mut self, one: usize, other: usize) {
            self.links.retain(|link| *link != [one, other]);
            self.copies[one].handle_link_down(slot(other));
            self.copies[other].handle_link_down(slot(one));
            self.go_on();
        }

        fn admit(&mut self) {
            let config = self.copies[1].config().unwrap().admit(slot(0), LIFE).unwrap();
            for replica in &mut self.copies {
                replica.activate(Activation { config: config.clone(), kept: replica.me() != slot(0) });
            }
            self.go_on();
        }

        /// Carries out all outputs until there are none.
        fn go_on(&mut self) {
            let mut quiet = false;
            while !std::mem::replace(&mut quiet, true) {
                for from in 0..3 {
                    self.copies[from].begin_regions(u32::MAX, Receivers::All);
                    while let Some(output) = self.copies[from].poll() {
                        quiet = false;
                        self.carry_out(from, output);
                    }
                }
            }
        }

        fn carry_out(&mut self, from: usize, output: Output) {
            let copy = &mut self.copies[from];
            match output {
                Output::Send(to, envelope) => {
                    let to = to.index();
                    if self.links.contains(&[from.min(to), from.max(to)]) {
                        self.copies[to].handle_message(slot(from), envelope);
                    }
                }
                Output::Apply(apply) => copy.handle_applied(apply.id, Ok(())),
                Output::WritePage(write) => copy.handle_page_written(write.page, Ok(())),
                Output::ReadRegion(read) => copy.handle_region_read(read, Ok(Payload::Zeros)),
                Output::CompareRegion(_) | Output::Complete(..) => {
                    unreachable!("zeros are given unasked, and no host writes")
                }
            }
        }

        /// How many regions copies 1 and 2 have brought.
        fn brought(&self) -> [u64; 2] {
            [1, 2].map(|number| self.copies[number].synced_bytes(slot(0)) / GEOMETRY.region_bytes())
        }
    }

    /// Which source is reached first is chance. The other one, which comes first in order, still has bits for
    /// what that source gave.
    #[test]
    fn the_source_of_some_is_asked_for_the_rest() {
        let mut three = Three::new();
        three.link(0, 2);
        assert_eq!(three.brought(), [0, MISSED]);
        three.link(0, 1);
        three.admit();
        assert_eq!(three.brought(), [0, MISSED], "nothing is given twice");
        assert!(three.copies[1].promotable().contains(slot(0)));
    }

    #[test]
    fn another_reachable_source_is_asked_if_the_first_is_unreachable() {
        let mut three = Three::new();
        three.link(0, 2);
        three.link(0, 1);
        three.cut(0, 2);
        assert_eq!(three.brought(), [MISSED, MISSED]);
    }
}
