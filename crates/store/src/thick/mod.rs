//! A slice on disks, written in place.
//!
//! Each byte of the slice has one place on one disk, given by the slice's extents: there is nothing else to
//! look up, and nothing to write but the data. Extents were zeroed before the slice got them, so unwritten
//! blocks need no map.
//!
//! If the disk's block is larger than the volume's (a 512-byte volume on a disk of 4096), a write of partial
//! blocks reads, changes and writes them back, under a [`RangeLock`] that all writes of such a slice take.
//!
//! The dirty map of a copy lies apart from its slices, and each of its pages has a disk block of its own: it
//! needs no lock.
//!
//! A slice with [checksums] writes whole units of 4096 bytes, as if its disks had such blocks. Every read of
//! a unit is compared with its checksum; a unit that differs is a bad block of the disk.

pub(crate) mod checksum_page;
mod checksums;
#[cfg(test)]
mod tests;

use std::cell::{Cell, OnceCell, Ref, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use base::{Buf, ByteLen, ByteOffset, Chain, SharedBuf};
use rt::{DiskError, Durability, Room};

use crate::canary::{Canary, makes};
use crate::copy::MapPlaces;
use crate::disks::{CoreDisks, PoolDisk};
use crate::error::{BadBlock, ReadFailure, SliceError};
use crate::gate::{Gate, Holding};
use crate::range_lock::{Locked, RangeLock};
use crate::slice::{SliceSpec, SpecKind, join};

pub(crate) use checksum_page::checksum_pages;
use checksum_page::{PAGE_COVERS, Sum, UNIT};
pub(crate) use checksums::ChecksumArea;
use checksums::{Checksums, Ground, push_sums, units_of};

/// The granularity of locks: the largest block that a disk has. Extents are multiples of it.
const LOCK_BYTES: u64 = 4096;

const _: () = assert!(UNIT == LOCK_BYTES, "a lock holds whole units, and a unit lies in one extent");

/// More ranges than a page's units can have on a disk: they are asked for all at once.
const RANGES_MAX: usize = 1 << 14;

/// One core's part of a thick volume.
pub(crate) struct ThickSlice {
    /// Replaced when the slice grows onto a disk that was added.
    disks: RefCell<CoreDisks>,
    /// The specification with which the slice was opened or grown.
    spec: RefCell<SliceSpec>,
    /// Where the slice lies, by offset in the slice. Longer than the slice, because extents are whole.
    places: RefCell<Vec<Place>>,
    /// The disks of `places`, one bit each.
    on_disks: Cell<u64>,
    /// Set if some disk's block is larger than the volume's: from the start, or once the slice grows onto
    /// such a disk. Earlier writes do not touch that disk.
    lock: OnceCell<RangeLock>,
    /// The operations on the slice. Whoever calls them passes it.
    gate: Gate,
    checksums: Option<Rc<Checksums>>,
}

/// How whole units are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Write(Durability),
    /// As [`ThickSlice::rewrite`].
    Rewrite,
}

/// Consecutive bytes of the slice that are also consecutive on a disk.
#[derive(Clone, Copy, Debug)]
struct Place {
    start: u64,
    len: u64,
    disk: u16,
    disk_offset: u64,
}

/// The part of an operation that lies in one place.
struct Part {
    /// The offset in the slice.
    offset: u64,
    /// The index of the disk in the pool.
    place: u16,
    disk: Rc<PoolDisk>,
    disk_offset: u64,
    len: u64,
    /// Whether the slice ends with this part. What follows it in its last block belongs to no slice, and is
    /// zeros.
    is_last: bool,
    checksums: Option<Rc<Checksums>>,
}

impl ThickSlice {
    pub(crate) fn new(spec: SliceSpec, disks: CoreDisks) -> ThickSlice {
        let places = places(&spec);
        // Another core may have had the slice open before, and closed it without a flush.
        places.iter().for_each(|place| disks.disk(place.disk).mark_written());
        let ground = ground(&spec, &disks, &places);
        let slice = ThickSlice {
            disks: RefCell::new(disks),
            spec: RefCell::new(spec),
            on_disks: Cell::default(),
            places: RefCell::default(),
            lock: OnceCell::new(),
            gate: Gate::default(),
            checksums: ground.map(|ground| Rc::new(Checksums::new(ground))),
        };
        slice.lie_at(places);
        slice
    }

    fn lie_at(&self, places: Vec<Place>) {
        let SpecKind::Thick { block_size, .. } = self.spec.borrow().kind else {
            panic!("the specification of a thick slice")
        };
        let disks = self.disks.borrow();
        let disk_block = places.iter().map(|place| disks.disk(place.disk).block()).max().unwrap_or(0);
        assert!(disk_block <= LOCK_BYTES, "a pool takes no disk with larger blocks");
        if disk_block > u64::from(block_size.bytes()) {
            self.lock.get_or_init(RangeLock::default);
        }
        let mut on_disks = disks_of(&places);
        if let Some((checksums, ground)) =
            self.checksums.as_ref().zip(ground(&self.spec.borrow(), &disks, &places))
        {
            // Without its checksums, the slice can be neither read nor written.
            ground.area.places.runs.iter().for_each(|run| on_disks |= 1 << run.disk);
            checksums.lie_at(ground);
        }
        self.on_disks.set(on_disks);
        self.places.replace(places);
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Holds back the operations on a range, as [`Gate::hold`] does, and waits until nothing is read there: a
    /// page of checksums is read to the end even if who wanted it has gone away.
    pub(crate) async fn hold(&self, range: Range<u64>) -> Result<(), SliceError> {
        self.gate.hold(range).await?;
        if let Some(checksums) = &self.checksums {
            let mut holding = Holding { gate: &self.gate, is_held: false };
            checksums.loads_ended().await;
            holding.is_held = true;
        }
        Ok(())
    }

    /// The bytes that an operation on `range` may touch, for the gate: the checksums of a page may have to be
    /// computed from all that it covers.
    pub(crate) fn touched(&self, range: &Range<u64>) -> Range<u64> {
        match &self.checksums {
            Some(_) if range.start < range.end => {
                range.start / PAGE_COVERS * PAGE_COVERS..range.end.next_multiple_of(PAGE_COVERS)
            }
            _ => range.clone(),
        }
    }

    pub(crate) fn spec(&self) -> Ref<'_, SliceSpec> {
        self.spec.borrow()
    }

    pub(crate) fn grow(&self, spec: SliceSpec, disks: &CoreDisks) {
        let places = places(&spec);
        self.disks.replace(disks.clone());
        self.spec.replace(spec);
        self.lie_at(places);
    }

    pub(crate) async fn read(&self, offset: ByteOffset, len: ByteLen) -> Result<Chain, SliceError> {
        let mut data = Chain::new();
        for part in self.parts(offset.0..offset.0 + len.0) {
            data.push(part.read().await?);
        }
        Ok(data)
    }

    /// Closes the pages of checksums that were not written to for this long: what they say counts after a
    /// crash.
    pub(crate) async fn settle(&self, idle: Duration) -> Result<(), SliceError> {
        let Some(checksums) = &self.checksums else { return Ok(()) };
        checksums.forget_unused();
        // It need not be now, and a change that waits holds up the others.
        if !checksums.has_open() || self.gate.holds() {
            return Ok(());
        }
        let pass = self.gate.change(0..u64::MAX).await?;
        let settled = checksums.settle(idle).await;
        pass.end();
        settled
    }

    /// Writes whole units, and their checksums. The caller holds the lock.
    async fn write_units(
        &self,
        checksums: &Rc<Checksums>,
        offset: u64,
        data: Chain,
        how: How,
    ) -> Result<(), SliceError> {
        let end = offset + data.len() as u64;
        let (mut parts, mut sums) = (Vec::new(), Vec::new());
        // First what may fail without a change: the checksums that the units had still hold then.
        for part in self.parts(offset..end) {
            let from = (part.offset - offset) as usize;
            let whole = part.whole(data.slice(from..from + part.len as usize)).await?;
            push_sums(&whole, &mut sums);
            parts.push((part, whole));
        }
        if parts.is_empty() {
            return Ok(());
        }
        let changing = checksums.begin(units_of(&(offset..end))).await?;
        for (part, whole) in parts {
            let start = part.around().start;
            let written = match how {
                How::Write(durability) => part.disk.write(start, whole, durability).await,
                How::Rewrite => part.disk.rewrite(start, whole.contiguous()).await,
            };
            if let Err(error) = written {
                match how {
                    How::Write(_) => changing.fail(),
                    // What they should hold is known, whether they do or not.
                    How::Rewrite => changing.end(&sums),
                }
                return Err(write_error(&error, Some(part.offset)));
            }
        }
        changing.end(&sums);
        Ok(())
    }

    /// Zeroes a range, and its checksums. The caller holds the lock.
    async fn zero_units(&self, checksums: &Rc<Checksums>, range: Range<u64>) -> Result<(), SliceError> {
        let start = range.start.next_multiple_of(UNIT).min(range.end);
        let end = (range.end / UNIT * UNIT).max(start);
        for edge in [range.start..start, end..range.end] {
            let zeros = Buf::zeroed((edge.end - edge.start) as usize);
            self.write_units(checksums, edge.start, zeros.into(), How::Write(Durability::Cached)).await?;
        }
        // A large range is zeroed page by page: each of them is in use only for its part.
        let mut at = start;
        while at < end {
            let some = at..end.min((at / PAGE_COVERS + 1) * PAGE_COVERS);
            at = some.end;
            let known = checksums.sums(units_of(&some)).await?;
            let changing = match known.iter().all(|sum| *sum == Sum::ZEROS) {
                true => checksums.begin_giving_back(units_of(&some)),
                false => checksums.begin(units_of(&some)).await?,
            };
            let zeroed = self.zero_parts(some).await;
            match zeroed {
                Ok(()) => changing.end_with_zeros(),
                Err(_) => changing.fail(),
            }
            zeroed?;
        }
        Ok(())
    }

    /// Zeroes whole units.
    async fn zero_parts(&self, range: Range<u64>) -> Result<(), SliceError> {
        for part in self.parts(range) {
            let zeroed = part.disk.zero(part.disk_offset, part.len).await;
            zeroed.map_err(|error| write_error(&error, Some(part.offset)))?;
        }
        Ok(())
    }

    pub(crate) async fn write(
        &self,
        offset: ByteOffset,
        data: Chain,
        durability: Durability,
    ) -> Result<(), SliceError> {
        let range = offset.0..offset.0 + data.len() as u64;
        let _locked = self.lock(range.clone()).await;
        if let Some(checksums) = &self.checksums {
            return self.write_units(checksums, offset.0, data, How::Write(durability)).await;
        }
        for part in self.parts(range) {
            let from = (part.offset - offset.0) as usize;
            part.write(data.slice(from..from + part.len as usize), durability).await?;
        }
        Ok(())
    }

    pub(crate) async fn reserve(&self, offset: ByteOffset, len: ByteLen) -> Result<(), SliceError> {
        for part in self.parts(offset.0..offset.0 + len.0) {
            if !part.disk.has_ample_room() {
                let around = part.around();
                let allocated = part.disk.allocate(around.start, around.end - around.start).await;
                allocated.map_err(|error| write_error(&error, Some(part.offset)))?;
            }
        }
        Ok(())
    }

    pub(crate) fn room(&self) -> Option<Room> {
        let disks = self.disks.borrow();
        let rooms = disks_in(self.on_disks.get()).filter_map(|disk| disks.disk(disk).room());
        rooms.min_by_key(|room| room.free)
    }

    pub(crate) async fn zero(&self, offset: ByteOffset, len: ByteLen) -> Result<(), SliceError> {
        let range = offset.0..offset.0 + len.0;
        let _locked = self.lock(range.clone()).await;
        if let Some(checksums) = &self.checksums {
            return self.zero_units(checksums, range).await;
        }
        for part in self.parts(range) {
            part.zero().await?;
        }
        Ok(())
    }

    pub(crate) async fn rewrite(&self, offset: ByteOffset, data: Chain) -> Result<(), SliceError> {
        let range = offset.0..offset.0 + data.len() as u64;
        let _locked = self.lock(range.clone()).await;
        if let Some(checksums) = &self.checksums {
            return self.write_units(checksums, offset.0, data, How::Rewrite).await;
        }
        for part in self.parts(range) {
            let from = (part.offset - offset.0) as usize;
            part.rewrite(data.slice(from..from + part.len as usize)).await?;
        }
        Ok(())
    }

    pub(crate) async fn read_edges(&self, offset: ByteOffset, len: ByteLen) -> Result<(), SliceError> {
        for part in self.parts(offset.0..offset.0 + len.0) {
            part.read_edges().await?;
        }
        Ok(())
    }

    /// The smallest unit that can be written: the largest block of its disks, or what has one checksum.
    pub(crate) fn write_unit(&self) -> u64 {
        if self.checksums.is_some() {
            return UNIT;
        }
        let disks = self.disks.borrow();
        disks_in(self.on_disks.get()).map(|disk| disks.disk(disk).block()).max().unwrap_or(1)
    }

    pub(crate) fn is_offline(&self) -> bool {
        let disks = self.disks.borrow();
        disks_in(self.on_disks.get()).any(|disk| disks.disk(disk).failure().is_some())
    }

    pub(crate) async fn flush(&self) -> Result<(), SliceError> {
        // Disks that this core has not written to since their last flush return at once.
        for place in disks_in(self.on_disks.get()) {
            // A disk that left the pool during the flush of another one is not needed: whatever moved from it
            // was made durable.
            let Some(disk) = self.disks.borrow().get(place.into()).cloned() else { continue };
            disk.flush().await.map_err(|error| write_error(&error, None))?;
        }
        Ok(())
    }

    pub(crate) async fn allocated(
        &self,
        offset: ByteOffset,
        len: ByteLen,
        max: usize,
    ) -> Result<Vec<(ByteOffset, ByteLen)>, SliceError> {
        let mut found = Vec::new();
        let mut at = offset.0;
        let end = at + len.0;
        // One more than requested, because the last one may still grow.
        while at < end && found.len() <= max {
            if let Some(checksums) = &self.checksums {
                let some = at..end.min((at / PAGE_COVERS + 1) * PAGE_COVERS);
                at = some.end;
                let used = self.allocated_or_known(checksums, some).await?;
                used.into_iter().for_each(|range| join(&mut found, range.start, range.end - range.start));
                continue;
            }
            let part = self.part(at, end);
            at += part.len;
            // If the part has more ranges than it returns, that is enough, even if its first one continues
            // the last one found.
            for range in part.allocated(max + 1).await? {
                join(&mut found, range.start, range.end - range.start);
            }
        }
        found.truncate(max);
        Ok(found)
    }

    /// What takes space in a range within one page of checksums, in order, with all units that should not be
    /// zeros: the disk may have lost the write that would have taken their space.
    async fn allocated_or_known(
        &self,
        checksums: &Rc<Checksums>,
        range: Range<u64>,
    ) -> Result<Vec<Range<u64>>, SliceError> {
        let sums = checksums.sums(units_of(&range)).await?;
        let unit_at = |(number, sum): (u64, &Sum)| {
            let start = number * UNIT;
            (*sum != Sum::ZEROS).then(|| start.max(range.start)..(start + UNIT).min(range.end))
        };
        let mut used: Vec<Range<u64>> = (range.start / UNIT..).zip(&sums).filter_map(unit_at).collect();
        for part in self.parts(range) {
            used.extend(part.allocated(RANGES_MAX).await?);
        }
        used.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in used {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        Ok(merged)
    }

    pub(crate) fn disk(&self, place: u16) -> Rc<PoolDisk> {
        Rc::clone(self.disks.borrow().disk(place))
    }

    /// Waits until no blocks of the range are being changed in part. Returns `None` if that cannot happen.
    async fn lock(&self, range: Range<u64>) -> Option<Locked<'_>> {
        let lock = match &self.checksums {
            Some(checksums) => Some(checksums.lock()),
            None => self.lock.get(),
        };
        let lock = lock.filter(|_| !makes(Canary::PartUnlocked))?;
        let start = range.start / LOCK_BYTES * LOCK_BYTES;
        Some(lock.lock(start, range.end.next_multiple_of(LOCK_BYTES)).await)
    }

    /// The parts of a range, each as it is when its turn comes.
    fn parts(&self, range: Range<u64>) -> impl Iterator<Item = Part> {
        let mut at = range.start;
        std::iter::from_fn(move || {
            let part = (at < range.end).then(|| self.part(at, range.end))?;
            at += part.len;
            Some(part)
        })
    }

    /// The first part of `at..end`.
    fn part(&self, at: u64, end: u64) -> Part {
        let (place, disk_offset, len) = located(&self.places.borrow(), at, end);
        Part {
            offset: at,
            place,
            disk: self.disk(place),
            disk_offset,
            len,
            is_last: at + len == self.spec.borrow().len.0,
            checksums: self.checksums.clone(),
        }
    }
}

/// The disk and offset of the byte at `at`, and how many of the bytes up to `end` follow there.
fn located(places: &[Place], at: u64, end: u64) -> (u16, u64, u64) {
    let after = places.partition_point(|place| place.start <= at);
    let place = places[after - 1];
    let within = at - place.start;
    assert!(within < place.len, "byte {at} is beyond the slice's extents");
    (place.disk, place.disk_offset + within, (place.len - within).min(end - at))
}

/// Where the slice and its checksums lie; `None` if it has none.
fn ground(spec: &SliceSpec, disks: &CoreDisks, places: &[Place]) -> Option<Ground> {
    let SpecKind::Thick { checksums: Some(area), .. } = &spec.kind else { return None };
    Some(Ground {
        disks: disks.clone(),
        places: places.into(),
        area: Rc::new(area.clone()),
        slice: spec.index,
        len: spec.len.0,
    })
}

/// The places of the slice that `spec` describes.
fn places(spec: &SliceSpec) -> Vec<Place> {
    let SpecKind::Thick { runs, map, .. } = &spec.kind else { panic!("{spec:?} is of a thick slice") };
    let mut start = 0;
    let MapPlaces { extent_bytes, extents_offset, .. } = map;
    let place = |run: &crate::extent::ExtentRun| {
        let len = u64::from(run.count) * extent_bytes;
        let disk_offset = extents_offset[run.disk as usize] + u64::from(run.start) * extent_bytes;
        let place = Place { start, len, disk: run.disk, disk_offset };
        start += len;
        place
    };
    let places: Vec<Place> = runs.iter().map(place).collect();
    assert!(start >= spec.len.0, "{spec:?} has too few extents");
    places
}

/// The disks of `places`, one bit each.
fn disks_of(places: &[Place]) -> u64 {
    places.iter().fold(0, |disks, place| disks | 1 << place.disk)
}

/// The disks of a [`disks_of`] bit set, in order.
fn disks_in(mut bits: u64) -> impl Iterator<Item = u16> {
    std::iter::from_fn(move || {
        let disk = (bits != 0).then(|| bits.trailing_zeros() as u16)?;
        bits &= bits - 1;
        Some(disk)
    })
}

impl Part {
    fn end(&self) -> u64 {
        self.disk_offset + self.len
    }

    /// What is read and written as a whole.
    fn block(&self) -> u64 {
        if self.checksums.is_some() { UNIT } else { self.disk.block() }
    }

    /// The smallest range of whole blocks that contains the part. It stays in the same extent, which consists
    /// of whole blocks.
    fn around(&self) -> Range<u64> {
        let block = self.block();
        self.disk_offset / block * block..self.end().next_multiple_of(block)
    }

    /// The blocks that lie completely in the part; empty if there are none.
    fn inside(&self) -> Range<u64> {
        let block = self.block();
        let start = self.disk_offset.next_multiple_of(block);
        start..(self.end() / block * block).max(start)
    }

    fn is_aligned(&self) -> bool {
        self.around() == (self.disk_offset..self.end())
    }

    fn slice_offset(&self, disk_offset: u64) -> u64 {
        self.offset + disk_offset.clamp(self.disk_offset, self.end()) - self.disk_offset
    }

    async fn read(&self) -> Result<SharedBuf, SliceError> {
        let around = self.around();
        let data = self.read_blocks(around.clone(), false).await?.share();
        let from = (self.disk_offset - around.start) as usize;
        Ok(data.slice(from..from + self.len as usize))
    }

    /// Reads whole blocks, and compares them with their checksums.
    ///
    /// `is_held`: the caller holds the lock, so that no write to them is under way.
    async fn read_blocks(&self, range: Range<u64>, is_held: bool) -> Result<Buf, SliceError> {
        let data = self.read_unchecked(range.clone()).await?;
        let Some(checksums) = &self.checksums else { return Ok(data) };
        let start = self.offset + range.start - self.disk_offset;
        let units = start / UNIT..(start + range.end - range.start) / UNIT;
        // After the read: a write that ended before it has set them.
        let sums = checksums.sums(units.clone()).await?;
        if first_other(&data, &sums, is_held).is_none() {
            return Ok(data);
        }
        let (data, sums) = if is_held {
            (data, sums)
        } else {
            // Perhaps a write was under way. Now none is.
            let _held = checksums.lock().lock(units.start * UNIT, units.end * UNIT).await;
            (self.read_unchecked(range.clone()).await?, checksums.sums(units).await?)
        };
        let Some(other) = first_other(&data, &sums, true) else { return Ok(data) };
        let disk_offset = range.start + other * UNIT;
        let (offset, cause) = (ByteOffset(self.slice_offset(disk_offset)), ReadFailure::Medium);
        tracing::warn!(
            offset = offset.0,
            disk = self.place,
            disk_offset,
            "a block differs from its checksum: the disk holds other data than was written"
        );
        Err(SliceError::Unreadable(BadBlock { offset, disk: self.place, disk_offset, cause }))
    }

    /// Reads whole blocks. If the disk cannot, reads them one by one to find the bad one.
    async fn read_unchecked(&self, range: Range<u64>) -> Result<Buf, SliceError> {
        let len = (range.end - range.start) as usize;
        let error = match self.disk.read(range.start, Buf::uncleared(len)).await {
            Ok(data) => return Ok(data),
            Err(error) => error,
        };
        let block = self.block() as usize;
        if !matches!(error, DiskError::Media(_)) || len == block {
            return Err(self.read_error(&error, range.start));
        }
        let mut data = Buf::zeroed(len);
        for at in (0..len).step_by(block) {
            let disk_offset = range.start + at as u64;
            let read = self.disk.read(disk_offset, Buf::uncleared(block)).await;
            let read = read.map_err(|error| self.read_error(&error, disk_offset))?;
            data[at..at + block].copy_from_slice(&read);
        }
        Ok(data)
    }

    fn read_error(&self, error: &DiskError, disk_offset: u64) -> SliceError {
        read_error(error, self.slice_offset(disk_offset), (self.place, disk_offset))
    }

    async fn write(&self, data: Chain, durability: Durability) -> Result<(), SliceError> {
        let data = self.whole(data).await?;
        let written = self.disk.write(self.around().start, data, durability).await;
        written.map_err(|error| write_error(&error, Some(self.offset)))
    }

    /// `data` with what surrounds it in its blocks. The caller holds the lock.
    async fn whole(&self, data: Chain) -> Result<Chain, SliceError> {
        if self.is_aligned() { Ok(data) } else { Ok(self.merge(self.around(), &data).await?.into()) }
    }

    async fn rewrite(&self, data: Chain) -> Result<(), SliceError> {
        let data = self.whole(data).await?.contiguous();
        let written = self.disk.rewrite(self.around().start, data).await;
        written.map_err(|error| write_error(&error, Some(self.offset)))
    }

    /// The blocks that a write changes only in part, and must read first: at one end or both; equal if both
    /// are one block.
    fn edges(&self) -> [Option<Range<u64>>; 2] {
        let (around, block) = (self.around(), self.block());
        let first = around.start..around.start + block;
        let last = around.end - block..around.end;
        let head = (around.start < self.disk_offset).then_some(first);
        let tail = (self.end() < around.end && !self.is_last).then_some(last);
        [head, tail]
    }

    async fn read_edges(&self) -> Result<(), SliceError> {
        for edge in self.edges().into_iter().flatten() {
            self.read_blocks(edge, false).await?;
        }
        Ok(())
    }

    /// The blocks of `around` with `data` in the middle. The caller holds the lock.
    async fn merge(&self, around: Range<u64>, data: &Chain) -> Result<Buf, SliceError> {
        let mut merged = Buf::uncleared((around.end - around.start) as usize);
        let within = |at: u64| (at - around.start) as usize;
        merged[within(self.end())..].fill(0);
        let mut read = None;
        for edge in self.edges().into_iter().flatten() {
            if read.replace(edge.clone()) != Some(edge.clone()) {
                let old = self.read_blocks(edge.clone(), true).await?;
                merged[within(edge.start)..within(edge.end)].copy_from_slice(&old);
            }
        }
        let from = within(self.disk_offset);
        data.copy_to(&mut merged[from..from + self.len as usize]);
        Ok(merged)
    }

    async fn zero(&self) -> Result<(), SliceError> {
        let inside = self.inside();
        if !inside.is_empty() {
            let zeroed = self.disk.zero(inside.start, inside.end - inside.start).await;
            zeroed.map_err(|error| write_error(&error, Some(self.slice_offset(inside.start))))?;
        }
        // The rest: parts of the first and of the last block.
        let (head, tail) = if inside.is_empty() {
            (self.disk_offset..self.end(), self.end()..self.end())
        } else {
            (self.disk_offset..inside.start, inside.end..self.end())
        };
        for edge in [head, tail] {
            if !edge.is_empty() {
                let part = self.narrowed(edge);
                part.write(Buf::zeroed(part.len as usize).into(), Durability::Cached).await?;
            }
        }
        Ok(())
    }

    /// Cuts the part down to `range` of the disk.
    fn narrowed(&self, range: Range<u64>) -> Part {
        Part {
            offset: self.slice_offset(range.start),
            place: self.place,
            disk: Rc::clone(&self.disk),
            disk_offset: range.start,
            len: range.end - range.start,
            is_last: self.is_last && range.end == self.end(),
            checksums: self.checksums.clone(),
        }
    }

    /// The ranges of the slice that take space: all of them, or at least `max`.
    async fn allocated(&self, max: usize) -> Result<Vec<Range<u64>>, SliceError> {
        let around = self.around();
        // The first and the last may lie outside the part.
        let found = self.disk.allocated(around.start, around.end - around.start, max + 2).await;
        let found = found.map_err(|error| self.read_error(&error, self.disk_offset))?;
        let clip = |(offset, len): (u64, u64)| self.slice_offset(offset)..self.slice_offset(offset + len);
        Ok(found.into_iter().map(clip).filter(|range| !range.is_empty()).collect())
    }
}

/// The first unit of `data` that is not what its checksum says, by number. If nothing is known of a unit, it
/// differs, unless `trusts_unknown`.
fn first_other(data: &[u8], sums: &[Sum], trusts_unknown: bool) -> Option<u64> {
    let differs = |(unit, sum): (&[u8], &Sum)| match *sum {
        Sum::UNKNOWN => !trusts_unknown,
        sum => Sum::of(unit) != sum,
    };
    let other = data.chunks_exact(UNIT as usize).zip(sums).position(differs)?;
    Some(other as u64)
}

/// The error for a failed read of `offset` in the slice, which is `disk_offset` of the disk with index
/// `disk`.
pub(crate) fn read_error(error: &DiskError, offset: u64, (disk, disk_offset): (u16, u64)) -> SliceError {
    tracing::warn!(%error, offset, disk, disk_offset, "a slice cannot read");
    match error {
        DiskError::Latched => SliceError::Offline,
        DiskError::Full | DiskError::ReadOnly | DiskError::Range { .. } | DiskError::Media(_) => {
            let cause = ReadFailure::of(error);
            SliceError::Unreadable(BadBlock { offset: ByteOffset(offset), disk, disk_offset, cause })
        }
    }
}

/// The error for a failed write that began at `offset`; for a flush, `None`. Neither tells which block
/// failed.
pub(crate) fn write_error(error: &DiskError, offset: Option<u64>) -> SliceError {
    tracing::warn!(%error, offset, "a slice cannot write");
    match error {
        DiskError::Latched => SliceError::Offline,
        DiskError::Full => SliceError::Full,
        DiskError::ReadOnly | DiskError::Range { .. } | DiskError::Media(_) => SliceError::Unwritable,
    }
}
