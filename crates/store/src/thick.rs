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

use std::cell::{Cell, OnceCell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use base::{Buf, ByteLen, ByteOffset, Chain, SharedBuf};
use rt::{DiskError, Durability, Room};

use crate::canary::{Canary, makes};
use crate::copy::{MAP_PAGE_BYTES, MapPlaces};
use crate::disks::{CoreDisks, PoolDisk};
use crate::error::{BadBlock, ReadFailure, SliceError};
use crate::gate::Gate;
use crate::range_lock::{Locked, RangeLock};
use crate::slice::{SliceSpec, SpecKind, join};

/// The granularity of locks: the largest block that a disk has. Extents are multiples of it.
const LOCK_BYTES: u64 = 4096;

/// One core's part of a thick volume.
pub struct ThickSlice {
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
}

impl ThickSlice {
    pub(crate) fn new(spec: SliceSpec, disks: CoreDisks) -> ThickSlice {
        let places = places(&spec);
        // Another core may have had the slice open before, and closed it without a flush.
        places.iter().for_each(|place| disks.disk(place.disk).mark_written());
        let slice = ThickSlice {
            disks: RefCell::new(disks),
            spec: RefCell::new(spec),
            on_disks: Cell::default(),
            places: RefCell::default(),
            lock: OnceCell::new(),
            gate: Gate::default(),
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
        self.on_disks.set(disks_of(&places));
        self.places.replace(places);
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// The number of the slice in its volume.
    pub fn index(&self) -> u16 {
        self.spec.borrow().index
    }

    /// The length of the slice.
    pub fn len(&self) -> ByteLen {
        self.spec.borrow().len
    }

    /// Whether the slice has no bytes because the volume is so small.
    pub fn is_empty(&self) -> bool {
        self.len().0 == 0
    }

    pub(crate) fn grow(&self, spec: SliceSpec, disks: &CoreDisks) {
        let places = places(&spec);
        self.disks.replace(disks.clone());
        self.spec.replace(spec);
        self.lie_at(places);
    }

    pub(crate) async fn read(&self, offset: ByteOffset, len: ByteLen) -> Result<Chain, SliceError> {
        let mut data = Chain::new();
        let mut at = offset.0;
        let end = at + len.0;
        while at < end {
            let part = self.part(at, end);
            at += part.len;
            data.push(part.read().await?);
        }
        Ok(data)
    }

    pub(crate) async fn write(
        &self,
        offset: ByteOffset,
        data: Chain,
        durability: Durability,
    ) -> Result<(), SliceError> {
        let mut at = offset.0;
        let end = at + data.len() as u64;
        let _locked = self.lock(at..end).await;
        while at < end {
            let part = self.part(at, end);
            let from = (at - offset.0) as usize;
            at += part.len;
            part.write(data.slice(from..from + part.len as usize), durability).await?;
        }
        Ok(())
    }

    pub(crate) async fn reserve(&self, offset: ByteOffset, len: ByteLen) -> Result<(), SliceError> {
        let mut at = offset.0;
        let end = at + len.0;
        while at < end {
            let part = self.part(at, end);
            at += part.len;
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
        let mut at = offset.0;
        let end = at + len.0;
        let _locked = self.lock(at..end).await;
        while at < end {
            let part = self.part(at, end);
            at += part.len;
            part.zero().await?;
        }
        Ok(())
    }

    pub(crate) async fn rewrite(&self, offset: ByteOffset, data: Chain) -> Result<(), SliceError> {
        let mut at = offset.0;
        let end = at + data.len() as u64;
        let _locked = self.lock(at..end).await;
        while at < end {
            let part = self.part(at, end);
            let from = (at - offset.0) as usize;
            at += part.len;
            part.rewrite(data.slice(from..from + part.len as usize)).await?;
        }
        Ok(())
    }

    pub(crate) async fn read_edges(&self, offset: ByteOffset, len: ByteLen) -> Result<(), SliceError> {
        let mut at = offset.0;
        let end = at + len.0;
        while at < end {
            let part = self.part(at, end);
            at += part.len;
            part.read_edges().await?;
        }
        Ok(())
    }

    /// The smallest unit that can be written: the largest block of its disks.
    pub(crate) fn write_unit(&self) -> u64 {
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

    pub(crate) fn map_pages(&self) -> u64 {
        self.spec.borrow().map_pages
    }

    /// Reads a page of the slice's map. Page 0 is the list of lost blocks.
    pub(crate) async fn read_page(&self, page: u64) -> Result<[u8; MAP_PAGE_BYTES], SliceError> {
        let (place, disk_offset) = self.page_place(page);
        let disk = self.disk(place);
        let read = disk.read(disk_offset, Buf::uncleared(MAP_PAGE_BYTES)).await;
        let bytes =
            read.map_err(|error| read_error(&error, MapPlaces::covered_from(page), (place, disk_offset)))?;
        Ok(bytes[..].try_into().expect("as long as was asked for"))
    }

    pub(crate) async fn write_page(&self, page: u64, image: &[u8]) -> Result<(), SliceError> {
        let (place, disk_offset) = self.page_place(page);
        let disk = self.disk(place);
        let written = disk.write(disk_offset, Buf::copy_of(image).share(), Durability::Durable).await;
        written.map_err(|error| write_error(&error, Some(MapPlaces::covered_from(page))))
    }

    /// The disk and offset of a page of the slice's map.
    pub(crate) fn page_place(&self, page: u64) -> (u16, u64) {
        let spec = self.spec.borrow();
        let SpecKind::Thick { map, .. } = &spec.kind else { panic!("the specification of a thick slice") };
        map.place(spec.index, page)
    }

    fn disk(&self, place: u16) -> Rc<PoolDisk> {
        Rc::clone(self.disks.borrow().disk(place))
    }

    /// Waits until no blocks of the range are being changed in part. Returns `None` if that cannot happen.
    async fn lock(&self, range: Range<u64>) -> Option<Locked<'_>> {
        match self.lock.get() {
            None => None,
            Some(_) if makes(Canary::PartUnlocked) => None,
            Some(lock) => {
                let start = range.start / LOCK_BYTES * LOCK_BYTES;
                Some(lock.lock(start, range.end.next_multiple_of(LOCK_BYTES)).await)
            }
        }
    }

    /// The first part of `at..end`.
    fn part(&self, at: u64, end: u64) -> Part {
        let places = self.places.borrow();
        let after = places.partition_point(|place| place.start <= at);
        let place = places[after - 1];
        let within = at - place.start;
        assert!(within < place.len, "byte {at} is beyond the slice's extents");
        let len = (place.len - within).min(end - at);
        Part {
            offset: at,
            place: place.disk,
            disk: Rc::clone(self.disks.borrow().disk(place.disk)),
            disk_offset: place.disk_offset + within,
            len,
            is_last: at + len == self.spec.borrow().len.0,
        }
    }
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

    /// The smallest range of whole blocks that contains the part. It stays in the same extent, which consists
    /// of whole blocks.
    fn around(&self) -> Range<u64> {
        let block = self.disk.block();
        self.disk_offset / block * block..self.end().next_multiple_of(block)
    }

    /// The blocks that lie completely in the part; empty if there are none.
    fn inside(&self) -> Range<u64> {
        let block = self.disk.block();
        let start = self.disk_offset.next_multiple_of(block);
        start..(self.end() / block * block).max(start)
    }

    fn is_aligned(&self) -> bool {
        self.around() == (self.disk_offset..self.end())
    }

    /// The offset in the slice of an offset on the disk.
    fn slice_offset(&self, disk_offset: u64) -> u64 {
        self.offset + disk_offset.clamp(self.disk_offset, self.end()) - self.disk_offset
    }

    async fn read(&self) -> Result<SharedBuf, SliceError> {
        let around = self.around();
        let data = self.read_blocks(around.clone()).await?.share();
        let from = (self.disk_offset - around.start) as usize;
        Ok(data.slice(from..from + self.len as usize))
    }

    /// Reads whole blocks. If the disk cannot, reads them one by one to find the bad one.
    async fn read_blocks(&self, range: Range<u64>) -> Result<Buf, SliceError> {
        let len = (range.end - range.start) as usize;
        let error = match self.disk.read(range.start, Buf::uncleared(len)).await {
            Ok(data) => return Ok(data),
            Err(error) => error,
        };
        let block = self.disk.block() as usize;
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
        let around = self.around();
        let data = if self.is_aligned() { data } else { self.merge(around.clone(), &data).await?.into() };
        let written = self.disk.write(around.start, data, durability).await;
        written.map_err(|error| write_error(&error, Some(self.offset)))
    }

    async fn rewrite(&self, data: Chain) -> Result<(), SliceError> {
        let around = self.around();
        let data = if self.is_aligned() {
            data.contiguous()
        } else {
            self.merge(around.clone(), &data).await?.share()
        };
        let written = self.disk.rewrite(around.start, data).await;
        written.map_err(|error| write_error(&error, Some(self.offset)))
    }

    /// The blocks that a write changes only in part, and must read first: at one end or both; equal if both
    /// are one block.
    fn edges(&self) -> [Option<Range<u64>>; 2] {
        let (around, block) = (self.around(), self.disk.block());
        let first = around.start..around.start + block;
        let last = around.end - block..around.end;
        let head = (around.start < self.disk_offset).then_some(first);
        let tail = (self.end() < around.end && !self.is_last).then_some(last);
        [head, tail]
    }

    async fn read_edges(&self) -> Result<(), SliceError> {
        for edge in self.edges().into_iter().flatten() {
            self.read_blocks(edge).await?;
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
                let old = self.read_blocks(edge.clone()).await?;
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
