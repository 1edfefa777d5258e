//! Blocks that no copy in sync can read (R27 in `docs/why/replication.md`).
//!
//! A copy that is resynced gets everything else, and notes these blocks as lost.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::iter;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use base::{Buf, ByteLen, ByteOffset, Chain, Instant};
use replica::{
    Apply, DiskFailed, Geometry, LOST_UNIT, LOST_UNITS_MAX, LostBlocks, LostUnits, Payload, RegionRead, Slot,
    Slots,
};
use store::{BadBlock, ReadFailure, SliceError};

use super::super::fetch::{NOBODY_WAITS, NotFetched};
use super::SliceCopy;
use super::repair::{PHYSICAL_BLOCK, Waiter};
use crate::control::{note_lost_of_copy, set_lost_of_copy};

/// How often a copy asks others for its lost blocks: their disks may read them by now.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// How long a copy asks in one go.
///
/// It then rests [`RESTS`] times as long, up to [`ASK_AGAIN_MAX`], so that a disk that tries for seconds
/// spends at most a tenth of its time on this.
const ASK_MAX: Duration = Duration::from_millis(500);
const RESTS: u32 = 10;
const ASK_AGAIN_MAX: Duration = Duration::from_secs(60);

const _: () = assert!(LOST_UNITS_MAX as usize == store::LOST_UNITS_MAX, "a copy is given what it can note");
const _: () = assert!(LOST_UNIT == store::LOST_UNIT);
const _: () = assert!(Slot::MAX <= 4, "the list has four bits for holders");

/// When a copy asks others for its lost blocks.
pub(super) struct LooksForLost {
    /// When it next asks; `None`: it is asking now.
    at: Cell<Option<Instant>>,
    /// The offset at which it continues.
    next: Cell<u64>,
}

impl Default for LooksForLost {
    fn default() -> LooksForLost {
        LooksForLost { at: Cell::new(Some(Instant(0))), next: Cell::new(0) }
    }
}

impl SliceCopy {
    /// Notes on the disk that blocks are lost, except those that this copy holds.
    pub(super) fn lose(self: &Rc<Self>, apply: &Apply, holders: Slots) {
        let id = apply.id;
        let (offset, len) = self.bytes(apply.blocks);
        let turn = self.applies.queue(offset.0..offset.0 + len.0);
        let copy = Rc::clone(self);
        let work = async move {
            turn.come().await;
            let keeps_held = holders.contains(copy.replica.borrow().me());
            let lose = || copy.layout.lose(offset, len, holders.bits(), keeps_held);
            let Some(noted) = copy.with_room_for(id, lose).await? else { return Ok(()) };
            let Some(added) = noted else {
                tracing::error!(copy = %copy.address, "a copy has more lost blocks than it can record: it stays out of sync");
                return Err(SliceError::Unwritable);
            };
            copy.report_lost();
            for (offset, len) in added {
                note_lost_of_copy(copy.address.volume, copy.place_in_volume(offset), len);
            }
            Ok(())
        };
        self.work(work, move |replica, result| replica.handle_applied(id, result));
    }

    /// Writes a region in which blocks are lost. They are noted already, and stay lost.
    pub(super) fn apply_around_lost(self: &Rc<Self>, Apply { id, blocks, payload, .. }: Apply) {
        let (offset, len) = self.bytes(blocks);
        let turn = self.applies.queue(offset.0..offset.0 + len.0);
        let copy = Rc::clone(self);
        let work = async move {
            turn.come().await;
            let is_noted = {
                let replica = copy.replica.borrow();
                !replica.has_failed() && replica.is_under_way(id) && !replica.is_put_off(id)
            };
            // The note may have failed or found no room, or ended with this write: then zeros would pass for
            // data.
            if !is_noted {
                return Ok(());
            }
            let data = match payload {
                Payload::Data(data) => data,
                Payload::Zeros => Chain::from(Buf::zeroed(len.0 as usize)),
            };
            let write = || copy.layout.write_around_lost(offset, data.clone());
            copy.with_room_for(id, write).await.map(|_| ())
        };
        self.work(work, move |replica, result| replica.handle_applied(id, result));
    }

    /// Forgets which blocks this copy holds that others have lost ([`store::Slice::hold_nothing`]).
    pub async fn hold_nothing(&self) -> Result<(), SliceError> {
        self.layout.hold_nothing().await
    }

    /// Whether some blocks are lost.
    pub fn has_lost(&self) -> bool {
        self.layout.has_lost()
    }

    /// Whether some of these bytes are lost: the disk holds something else there.
    pub fn has_lost_in(&self, offset: ByteOffset, len: ByteLen) -> bool {
        self.layout.has_lost_in(offset, len)
    }

    /// Reads a region for a resync, each of the disk's blocks on its own.
    pub(super) fn read_region_by_block(self: &Rc<Self>, read: RegionRead) {
        let copy = Rc::clone(self);
        let work = async move { Ok(copy.without_lost(&read).await) };
        self.work(work, move |replica, result| {
            replica.handle_region_read_by_block(read, result.and_then(std::convert::identity));
        });
    }

    /// The region's content, and which of its blocks no copy in sync can read.
    ///
    /// # Errors
    /// Another copy in sync cannot be asked now; or no copy can read anything of the region: then disks have
    /// failed, not single blocks.
    async fn without_lost(
        self: &Rc<Self>,
        read: &RegionRead,
    ) -> Result<(Payload, Vec<LostBlocks>), DiskFailed> {
        let (offset, len) = self.bytes(read.blocks);
        let end = offset.0 + len.0;
        let mut found = Found::default();
        let mut at = offset.0;
        while at < end {
            let part = at..self.unit_at(at).end.min(end);
            at = part.end;
            match self.layout.read(ByteOffset(part.start), ByteLen(part.end - part.start)).await {
                Ok(data) => found.take(data),
                Err(SliceError::Unreadable(bad)) if bad.cause != ReadFailure::Device => {
                    self.find_unit(read, part, bad.cause, &mut found).await?;
                }
                Err(_) => return Err(DiskFailed),
            }
            self.replica.borrow_mut().handle_region_read_in_part(read);
            if !self.is_open() {
                return Err(DiskFailed);
            }
        }
        // A single physical block that cannot be read, which may be the whole region, does not mean that the
        // disk failed.
        let bad_bytes: u64 = found.held.iter().map(|(_, len)| len.0).sum();
        let reads_nothing = bad_bytes > PHYSICAL_BLOCK && !found.has_data;
        // A region of a log-structured volume may be mostly zeros, which come without a read of the disk. So
        // read a page of the dirty map to see that the disk works.
        if reads_nothing || !found.lost.is_empty() && self.layout.read_map_page(0).await.is_err() {
            return Err(DiskFailed);
        }
        if !found.held.is_empty() {
            match self.layout.hold(&found.held).await {
                Ok(true) => {}
                // The joiner still learns that this copy holds all of them, because it holds the others.
                Ok(false) => {
                    tracing::warn!(copy = %self.address, "a copy cannot record all blocks that its disk fails to read: if it goes out of sync, they are lost here, too");
                }
                Err(error) => {
                    // The joiner need not wait for that: it learns that no copy holds them.
                    tracing::warn!(copy = %self.address, %error, "a copy cannot record blocks that its disk fails to read");
                    found.lost.iter_mut().for_each(|lost| lost.holders = Slots::NONE);
                }
            }
        }
        Ok((Payload::Data(found.data), found.lost))
    }

    /// Fetches from other copies in sync what this disk cannot read of a unit.
    ///
    /// They may be able to read parts of it; so may this disk, if some blocks of the unit are lost.
    async fn find_unit(
        self: &Rc<Self>,
        read: &RegionRead,
        unit: Range<u64>,
        cause: ReadFailure,
        found: &mut Found,
    ) -> Result<(), DiskFailed> {
        let block = u64::from(self.block_bytes());
        if cause != ReadFailure::Lost && unit.end - unit.start > block {
            match self.fetch(unit.clone(), NOBODY_WAITS).await {
                Ok(data) => {
                    found.take(data);
                    return Ok(());
                }
                Err(NotFetched::Later) => return Err(DiskFailed),
                Err(NotFetched::Nowhere) => {}
            }
        }
        for at in unit.step_by(block as usize) {
            self.replica.borrow_mut().handle_region_read_in_part(read);
            let mut cause = cause;
            if cause == ReadFailure::Lost {
                match self.layout.read(ByteOffset(at), ByteLen(block)).await {
                    Ok(data) => {
                        found.take(data);
                        continue;
                    }
                    Err(SliceError::Unreadable(bad)) if bad.cause != ReadFailure::Device => cause = bad.cause,
                    Err(_) => return Err(DiskFailed),
                }
            }
            match self.fetch(at..at + block, NOBODY_WAITS).await {
                Ok(data) => found.take(data),
                Err(NotFetched::Later) => return Err(DiskFailed),
                Err(NotFetched::Nowhere) => {
                    let place = (ByteOffset(at), ByteLen(block));
                    let holders = match cause {
                        ReadFailure::Lost => Slots::from_bits(self.layout.holders_of_lost(place.0, place.1)),
                        _ => Slots::NONE.with(self.replica.borrow().me()),
                    };
                    found.lose(LostBlocks { blocks: self.blocks(place.0, place.1), holders }, place, cause);
                }
            }
        }
        Ok(())
    }

    /// Reports how much is lost here, if that has changed.
    pub(super) fn report_lost(&self) {
        let lost = self.layout.lost();
        if self.reported_lost.borrow().as_ref() == Some(&lost) {
            return;
        }
        let bytes = ByteLen(lost.iter().map(|(_, len)| len.0).sum());
        let first = lost.iter().map(|(offset, _)| self.place_in_volume(*offset)).min();
        set_lost_of_copy(self.address, first.map(|first| (first, bytes)));
        self.replica.borrow_mut().set_lost(lost_units(&lost));
        self.reported_lost.replace(Some(lost));
    }

    /// From time to time, asks other copies in sync for the blocks that are lost here, and writes what they
    /// can read.
    pub(super) fn look_for_lost(self: &Rc<Self>) {
        let is_due = self.looks_for_lost.at.get().is_some_and(|at| rt::now() >= at);
        if !is_due || !self.layout.has_lost() || !self.replica.borrow().has_others_in_sync() {
            return;
        }
        self.looks_for_lost.at.set(None);
        let copy = Rc::clone(self);
        rt::spawn(async move {
            let began = rt::now();
            copy.ask_for_lost(began + ASK_MAX).await;
            let rest = (rt::now().since(began) * RESTS).clamp(ASK_AGAIN, ASK_AGAIN_MAX);
            copy.looks_for_lost.at.set(Some(rt::now() + rest));
        })
        .detach();
    }

    /// Asks for one unit after the other, from where the last round ended.
    async fn ask_for_lost(self: &Rc<Self>, until: Instant) {
        let from = self.looks_for_lost.next.get();
        let lost = self.layout.lost();
        let units = lost.iter().flat_map(|(offset, len)| {
            let end = offset.0 + len.0;
            iter::successors(Some(offset.0), move |at| Some(self.unit_at(*at).end).filter(|next| *next < end))
        });
        let (before, behind): (Vec<u64>, Vec<u64>) = units.partition(|at| *at < from);
        for at in behind.into_iter().chain(before) {
            // A pool that is being closed waits for what is under way.
            if rt::now() >= until || !self.is_open() || !self.replica.borrow().has_others_in_sync() {
                return;
            }
            if self.layout.has_lost_in(ByteOffset(at), ByteLen(1)) {
                let lost =
                    BadBlock { offset: ByteOffset(at), disk: 0, disk_offset: 0, cause: ReadFailure::Lost };
                self.repair_one(lost, Waiter::Nobody).await;
            }
            self.looks_for_lost.next.set(at + 1);
        }
    }
}

/// What was found of a region, from its first block on.
///
/// Lost blocks are zeros in the data.
#[derive(Default)]
struct Found {
    data: Chain,
    lost: Vec<LostBlocks>,
    /// The lost blocks that this disk cannot read now and that were not noted as lost before. Bytes of the
    /// slice.
    held: Vec<(ByteOffset, ByteLen)>,
    /// Whether any copy has read some of it.
    has_data: bool,
}

impl Found {
    fn take(&mut self, data: Chain) {
        self.data.append(data);
        self.has_data = true;
    }

    fn lose(&mut self, lost: LostBlocks, place: (ByteOffset, ByteLen), cause: ReadFailure) {
        self.data.append(Buf::zeroed(place.1.0 as usize).into());
        if cause != ReadFailure::Lost {
            self.held.push(place);
        }
        match self.lost.last_mut() {
            Some(last) if (last.blocks.end, last.holders) == (lost.blocks.start, lost.holders) => {
                last.blocks.end = lost.blocks.end;
            }
            _ => self.lost.push(lost),
        }
    }
}

/// The number of units with lost blocks in each region.
///
/// Ranges are bytes of the slice.
pub(super) fn lost_units(lost: &[(ByteOffset, ByteLen)]) -> LostUnits {
    let units =
        lost.iter().flat_map(|(offset, len)| offset.0 / LOST_UNIT..(offset.0 + len.0).div_ceil(LOST_UNIT));
    let mut regions = LostUnits::new();
    for unit in units.collect::<BTreeSet<u64>>() {
        *regions.entry(unit * LOST_UNIT / u64::from(Geometry::REGION_BYTES)).or_default() += 1;
    }
    regions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_counted_once_however_many_parts_of_them_are_lost() {
        let region = u64::from(Geometry::REGION_BYTES);
        let lost = [(512, 512), (2048, 512), (8192 - 512, 1024), (3 * region, 8192)];
        let lost = lost.map(|(offset, len)| (ByteOffset(offset), ByteLen(len)));
        assert_eq!(lost_units(&lost), [(0, 3), (3, 2)].into());
        assert_eq!(lost_units(&[]), LostUnits::new());
    }
}
