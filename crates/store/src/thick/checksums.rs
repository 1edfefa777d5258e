//! The checksums of a thick slice: in pages apart from the slice's own extents, of which some are in memory.
//!
//! A page on a disk is *closed* or *open*. A closed one is right: what the disk durably holds has these
//! checksums, and nothing is written to the units that it covers. Before the first such write it is opened,
//! durably; it is closed when what was written is durable. So whatever a power cut leaves of writes, no page
//! contradicts it. A page that was open when the node stopped says nothing, and nor does a damaged one: what
//! the disk holds is then taken as right. While the slice is open, the checksums in memory are right.
//! `docs/why/checksums.md` has the reasons.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use base::{Buf, Chain, Crc32c, Instant};
use rt::sync::Notify;
use rt::{Durability, to_the_end};

use super::checksum_page::{
    Found, Identity, PAGE_BYTES, PAGE_COVERS, PAGE_UNITS, Sum, Sums, UNIT, decode, encode, zeros,
};
use super::{Place, disks_in, disks_of, located, read_error, write_error};
use crate::canary::{Canary, makes};
use crate::copy::MapPlaces;
use crate::disks::CoreDisks;
use crate::error::SliceError;
use crate::id::VolumeId;
use crate::range_lock::RangeLock;

/// How many pages of a slice may be open. What they cover, 504 MiB, is read when they are used for the first
/// time after a crash.
pub(super) const OPEN_MAX: usize = 128;

/// How many pages of a slice are in memory: 2 MiB.
pub(super) const PAGES_MAX: usize = 512;

/// How many pages all slices of a core and pool have in memory, before each is content with
/// [`PAGES_MIN`]: 16 MiB.
const CORE_PAGES_MAX: usize = 4096;

/// How many pages a slice may always have in memory. Those that operations under way use come on top.
const PAGES_MIN: usize = 8;

/// Pages that were not used for so long leave the memory.
pub(super) const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// How much is read at a time to find out what the disk holds. If it cannot be read, nothing is known of all
/// of it.
const ADOPT_BYTES: u64 = 256 << 10;

/// How many writes whose caller went away are known by their ranges, before they are taken to be anywhere.
const ABANDONED_MAX: usize = 64;

/// Where the checksums of a volume are.
#[derive(Clone, Debug)]
pub(crate) struct ChecksumArea {
    pub(crate) volume: VolumeId,
    pub(crate) places: MapPlaces,
}

/// Where a slice and its checksums lie.
#[derive(Clone)]
pub(super) struct Ground {
    pub(super) disks: CoreDisks,
    pub(super) places: Rc<[Place]>,
    pub(super) area: Rc<ChecksumArea>,
    pub(super) slice: u16,
    pub(super) len: u64,
}

pub(super) struct Checksums {
    ground: RefCell<Ground>,
    /// A change of units holds them from before it looks at their checksums until it has set them.
    lock: RangeLock,
    pages: RefCell<BTreeMap<u64, Rc<Page>>>,
    /// Notified when the state of a page has changed.
    changed: Notify,
    /// Units with changes whose callers went away: they may still happen at any time, so nothing is known of
    /// these units until the pool is reopened.
    abandoned: RefCell<Vec<Range<u64>>>,
    /// How many pages all slices of the core and pool have in memory.
    in_memory: Rc<Cell<usize>>,
}

/// A page in memory.
struct Page {
    sums: RefCell<Sums>,
    state: Cell<State>,
    /// How many changes of its units are under way.
    pins: Cell<usize>,
    used: Cell<Instant>,
    /// When a change of one of its units last began or ended.
    written: Cell<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is being read.
    Loading,
    /// It could not be read.
    Gone,
    /// It must be opened before its units are written: the disk may have it closed, and then says the truth.
    Closed,
    Opening,
    /// It is certainly not closed on the disk.
    Open,
    Closing,
}

impl Page {
    fn new() -> Page {
        let now = rt::now();
        Page {
            sums: RefCell::new(zeros()),
            state: Cell::new(State::Loading),
            pins: Cell::new(0),
            used: Cell::new(now),
            written: Cell::new(now),
        }
    }

    fn is_idle(&self, state: State) -> bool {
        self.state.get() == state && self.pins.get() == 0
    }
}

/// Keeps a page open.
struct Pinned(Rc<Page>);

impl Pinned {
    fn new(page: Rc<Page>) -> Pinned {
        page.pins.set(page.pins.get() + 1);
        Pinned(page)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.0.pins.set(self.0.pins.get() - 1);
    }
}

/// A change of some units. Until it has ended, nothing is known of them.
#[must_use]
pub(super) struct Changing {
    checksums: Rc<Checksums>,
    units: Range<u64>,
    /// Those of the units, unless they stay as they are.
    pages: Vec<Pinned>,
    has_ended: bool,
}

impl Changing {
    /// The units were written, and have these checksums now.
    pub(super) fn end(mut self, sums: &[Sum]) {
        assert_eq!(sums.len() as u64, self.units.end - self.units.start, "a checksum a unit");
        let first = self.units.start;
        self.set(|unit| sums[(unit - first) as usize]);
        self.has_ended = true;
    }

    /// The units are zeros now.
    pub(super) fn end_with_zeros(mut self) {
        self.set(|_| Sum::ZEROS);
        self.has_ended = true;
    }

    /// The change has failed, and will not happen any more: the units may hold anything.
    pub(super) fn fail(mut self) {
        self.has_ended = true;
    }

    fn set(&self, sum: impl Fn(u64) -> Sum) {
        let now = rt::now();
        for (number, Pinned(page)) in pages_of(&self.units).zip(&self.pages) {
            let mut sums = page.sums.borrow_mut();
            for unit in in_page(number, &self.units) {
                let is_known = !self.checksums.is_abandoned(unit);
                sums[(unit % PAGE_UNITS) as usize] = if is_known { sum(unit) } else { Sum::UNKNOWN };
            }
            page.written.set(now);
            page.used.set(now);
        }
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        if !self.has_ended {
            self.checksums.abandon(self.units.clone());
        }
    }
}

pub(super) fn units_of(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / UNIT..bytes.end.div_ceil(UNIT)
}

fn pages_of(units: &Range<u64>) -> Range<u64> {
    units.start / PAGE_UNITS..units.end.div_ceil(PAGE_UNITS)
}

/// Those of the units that a page covers.
fn in_page(page: u64, units: &Range<u64>) -> Range<u64> {
    units.start.max(page * PAGE_UNITS)..units.end.min((page + 1) * PAGE_UNITS)
}

/// Appends the checksums of `data`, which is whole units.
pub(super) fn push_sums(data: &Chain, sums: &mut Vec<Sum>) {
    let (mut crc, mut left) = (Crc32c::new(), UNIT as usize);
    for part in data.parts() {
        let mut rest = &part[..];
        while !rest.is_empty() {
            let (some, behind) = rest.split_at(left.min(rest.len()));
            crc.update(some);
            left -= some.len();
            rest = behind;
            if left == 0 {
                sums.push(Sum::of_crc(crc.value()));
                (crc, left) = (Crc32c::new(), UNIT as usize);
            }
        }
    }
}

impl Checksums {
    pub(super) fn new(ground: Ground) -> Checksums {
        let in_memory = Rc::clone(ground.disks.checksum_pages());
        Checksums {
            ground: RefCell::new(ground),
            lock: RangeLock::default(),
            pages: RefCell::default(),
            changed: Notify::default(),
            abandoned: RefCell::default(),
            in_memory,
        }
    }

    pub(super) fn lie_at(&self, ground: Ground) {
        self.ground.replace(ground);
    }

    pub(super) fn lock(&self) -> &RangeLock {
        &self.lock
    }

    /// What is known of some units.
    pub(super) async fn sums(self: &Rc<Self>, units: Range<u64>) -> Result<Vec<Sum>, SliceError> {
        let mut sums = Vec::with_capacity((units.end - units.start) as usize);
        for number in pages_of(&units) {
            let page = self.page(number).await?;
            let of_page = in_page(number, &units);
            let start = (of_page.start % PAGE_UNITS) as usize;
            let count = (of_page.end - of_page.start) as usize;
            sums.extend_from_slice(&page.sums.borrow()[start..start + count]);
        }
        Ok(sums)
    }

    /// Begins a change of some units: opens their pages. The caller holds the units.
    pub(super) async fn begin(self: &Rc<Self>, units: Range<u64>) -> Result<Changing, SliceError> {
        let mut pages = Vec::new();
        for number in pages_of(&units) {
            pages.push(self.open(number).await?);
        }
        let changing = Changing { checksums: Rc::clone(self), units, pages, has_ended: false };
        changing.set(|_| Sum::UNKNOWN);
        Ok(changing)
    }

    /// Begins a change of units that are zeros to zeros, which gives back their space. Their pages may be
    /// closed: a power cut changes nothing. But if the caller goes away, it may happen after later writes.
    pub(super) fn begin_giving_back(self: &Rc<Self>, units: Range<u64>) -> Changing {
        Changing { checksums: Rc::clone(self), units, pages: Vec::new(), has_ended: false }
    }

    /// Gives back the memory of pages that were not used lately.
    pub(super) fn forget_unused(&self) {
        let now = rt::now();
        let is_unused = |page: &Page| now.since(page.used.get()) >= FORGOTTEN_AFTER;
        let unused = self.numbers_of(|page| page.is_idle(State::Closed) && is_unused(page));
        unused.into_iter().for_each(|number| self.forget(number));
    }

    /// Closes the pages that were not written to for this long.
    pub(super) async fn settle(self: &Rc<Self>, idle: Duration) -> Result<(), SliceError> {
        let now = rt::now();
        let quiet = self.numbers_of(|page| now.since(page.written.get()) >= idle);
        self.close(quiet).await
    }

    /// Waits until the pages that are being read have been read.
    pub(super) async fn loads_ended(&self) {
        let pages = self.pages.borrow().clone();
        for page in pages.into_values() {
            self.changed.until(|| page.state.get() != State::Loading).await;
        }
    }

    /// Whether any page is open.
    pub(super) fn has_open(&self) -> bool {
        self.pages.borrow().values().any(|page| page.state.get() == State::Open)
    }

    /// How many pages are in memory, and how many of them are not closed.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize) {
        let pages = self.pages.borrow();
        (pages.len(), pages.values().filter(|page| page.state.get() != State::Closed).count())
    }

    fn numbers_of(&self, is_one: impl Fn(&Page) -> bool) -> Vec<u64> {
        let pages = self.pages.borrow();
        pages.iter().filter(|(_, page)| is_one(page)).map(|(number, _)| *number).collect()
    }

    fn abandon(&self, units: Range<u64>) {
        let mut abandoned = self.abandoned.borrow_mut();
        abandoned.push(units);
        if abandoned.len() > ABANDONED_MAX {
            *abandoned = Vec::from([Range { start: 0, end: u64::MAX }]);
        }
    }

    fn is_abandoned(&self, unit: u64) -> bool {
        let abandoned = self.abandoned.borrow();
        !abandoned.is_empty() && abandoned.iter().any(|units| units.contains(&unit))
    }

    /// A page, which is read unless it is in memory.
    async fn page(self: &Rc<Self>, number: u64) -> Result<Rc<Page>, SliceError> {
        loop {
            let known = self.pages.borrow().get(&number).cloned();
            let Some(page) = known else {
                self.load(number).await?;
                continue;
            };
            if page.state.get() != State::Loading {
                page.used.set(rt::now());
                return Ok(page);
            }
            // If it cannot be read, the next who needs it tries again.
            self.changed.until(|| page.state.get() != State::Loading).await;
        }
    }

    async fn load(self: &Rc<Self>, number: u64) -> Result<(), SliceError> {
        self.forget_some();
        let page = Rc::new(Page::new());
        self.pages.borrow_mut().insert(number, Rc::clone(&page));
        self.in_memory.set(self.in_memory.get() + 1);
        let checksums = Rc::clone(self);
        to_the_end(async move {
            let read = checksums.read_in(number, &page).await;
            page.state.set(read.unwrap_or(State::Gone));
            if read.is_err() {
                checksums.forget(number);
            }
            checksums.changed.notify();
            read.map(drop)
        })
        .await
    }

    async fn read_in(&self, number: u64, page: &Page) -> Result<State, SliceError> {
        let (identity, disk, disk_offset) = self.place_of(number);
        let read = {
            let disk = Rc::clone(self.ground.borrow().disks.disk(disk));
            disk.read(disk_offset, Buf::uncleared(PAGE_BYTES)).await
        };
        let found = match read {
            Ok(bytes) => decode(identity, &bytes),
            // The blocks that it covers can be read nevertheless.
            Err(error) if error.is_medium() => Found::Damaged,
            Err(error) => return Err(read_error(&error, number * PAGE_COVERS, (disk, disk_offset))),
        };
        let state = match found {
            Found::Closed(sums) => {
                page.sums.replace(sums);
                return Ok(State::Closed);
            }
            Found::Open => {
                tracing::info!(
                    volume = %identity.volume, slice = identity.slice, page = number,
                    "checksums were being changed when the node stopped: they are computed from what the disk holds"
                );
                State::Open
            }
            Found::Damaged => {
                tracing::warn!(
                    volume = %identity.volume, slice = identity.slice, page = number, disk, disk_offset,
                    "checksums are damaged: they are computed from what the disk holds"
                );
                // The next read of the page may find it whole, and closed.
                State::Closed
            }
        };
        let mut sums = self.found(number).await?;
        for (unit, sum) in (number * PAGE_UNITS..).zip(sums.iter_mut()) {
            if self.is_abandoned(unit) {
                *sum = Sum::UNKNOWN;
            }
        }
        page.sums.replace(sums);
        Ok(state)
    }

    /// The checksums of what the disk holds. No change of these units is under way: it would have loaded the
    /// page before.
    async fn found(&self, number: u64) -> Result<Sums, SliceError> {
        let ground = self.ground.borrow().clone();
        let start = number * PAGE_COVERS;
        let end = (start + PAGE_COVERS).min(ground.len.next_multiple_of(UNIT));
        let mut sums = zeros();
        let mut at = start;
        while at < end {
            let (place, disk_offset, len) = located(&ground.places, at, end.min(at + ADOPT_BYTES));
            let disk = ground.disks.disk(place);
            let first = ((at - start) / UNIT) as usize;
            match disk.read(disk_offset, Buf::uncleared(len as usize)).await {
                Ok(data) => {
                    let found = data.chunks_exact(UNIT as usize).map(Sum::of);
                    sums[first..].iter_mut().zip(found).for_each(|(sum, found)| *sum = found);
                }
                // Not unit by unit: a disk may need long for each that it cannot read, and others wait. Who
                // reads them finds out which are bad.
                Err(error) if error.is_medium() => {
                    sums[first..first + (len / UNIT) as usize].fill(Sum::UNKNOWN)
                }
                Err(error) => return Err(read_error(&error, at, (place, disk_offset))),
            }
            at += len;
        }
        Ok(sums)
    }

    /// Opens a page, and keeps it open.
    async fn open(self: &Rc<Self>, number: u64) -> Result<Pinned, SliceError> {
        loop {
            let page = self.page(number).await?;
            match page.state.get() {
                State::Open => return Ok(Pinned::new(page)),
                State::Closed => {}
                State::Loading | State::Gone => continue,
                State::Opening | State::Closing => {
                    let is_changing = || matches!(page.state.get(), State::Opening | State::Closing);
                    self.changed.until(|| !is_changing()).await;
                    continue;
                }
            }
            let others = self.too_many_open();
            if !others.is_empty() {
                self.close(others).await?;
                continue;
            }
            // From here on, so that it is not closed for another page before its units are written.
            let pinned = Pinned::new(Rc::clone(&page));
            page.state.set(State::Opening);
            let checksums = Rc::clone(self);
            // To the end, since a page that was written in part would wait for ever.
            to_the_end(async move {
                let written = match makes(Canary::ChecksumsUnopened) {
                    true => Ok(()),
                    false => checksums.write_out(number, &page, false).await,
                };
                // If it failed, the disk may have either.
                page.state.set(if written.is_ok() { State::Open } else { State::Closed });
                checksums.changed.notify();
                written
            })
            .await?;
            return Ok(pinned);
        }
    }

    /// Closes those of these pages that are open and not in use. What was written to their units is durable
    /// afterwards.
    async fn close(self: &Rc<Self>, numbers: Vec<u64>) -> Result<(), SliceError> {
        let pages = self.pages.borrow().clone();
        let idle = numbers.into_iter().filter_map(|number| {
            let page = pages.get(&number).filter(|page| page.is_idle(State::Open))?;
            page.state.set(State::Closing);
            Some((number, Rc::clone(page)))
        });
        let idle: Vec<(u64, Rc<Page>)> = idle.collect();
        if idle.is_empty() {
            return Ok(());
        }
        let checksums = Rc::clone(self);
        to_the_end(async move {
            let flushed = checksums.flush().await;
            let close = |(number, page): (u64, Rc<Page>)| {
                let checksums = &checksums;
                async move {
                    if flushed.is_err() {
                        page.state.set(State::Open);
                        return flushed;
                    }
                    let written = checksums.write_out(number, &page, true).await;
                    // Also if it failed: the disk may have it, so the page must be opened before a write.
                    page.state.set(State::Closed);
                    written
                }
            };
            let written = rt::join_all(idle.into_iter().map(close)).await;
            checksums.changed.notify();
            written.into_iter().collect()
        })
        .await
    }

    /// The pages that must be closed before another one is opened; none if enough may be open, or all are in
    /// use.
    fn too_many_open(&self) -> Vec<u64> {
        let max = if self.is_scarce() { PAGES_MIN } else { OPEN_MAX };
        let pages = self.pages.borrow();
        let is_closed =
            |page: &Page| matches!(page.state.get(), State::Closed | State::Loading | State::Gone);
        if pages.values().filter(|page| !is_closed(page)).count() < max {
            return Vec::new();
        }
        let idle = pages.iter().filter(|(_, page)| page.is_idle(State::Open));
        let mut idle: Vec<(Instant, u64)> =
            idle.map(|(number, page)| (page.written.get(), *number)).collect();
        idle.sort_unstable();
        // Several, because they share a flush.
        idle.into_iter().take(max / 4).map(|(_, number)| number).collect()
    }

    /// Makes room for another page in memory, as far as there are closed ones. The others are few
    /// ([`OPEN_MAX`]).
    fn forget_some(&self) {
        loop {
            let oldest = {
                let pages = self.pages.borrow();
                let max = if self.is_scarce() { PAGES_MIN } else { PAGES_MAX };
                if pages.len() < max {
                    return;
                }
                let closed = pages.iter().filter(|(_, page)| page.is_idle(State::Closed));
                closed.min_by_key(|(_, page)| page.used.get()).map(|(number, _)| *number)
            };
            let Some(number) = oldest else { return };
            self.forget(number);
        }
    }

    /// Whether the slices of the core and pool have as many pages in memory as they may.
    fn is_scarce(&self) -> bool {
        self.in_memory.get() >= CORE_PAGES_MAX
    }

    fn forget(&self, number: u64) {
        if self.pages.borrow_mut().remove(&number).is_some() {
            self.in_memory.set(self.in_memory.get() - 1);
        }
    }

    /// Which page it is, and the disk and offset where it lies.
    fn place_of(&self, number: u64) -> (Identity, u16, u64) {
        let ground = self.ground.borrow();
        let identity = Identity { volume: ground.area.volume, slice: ground.slice, page: number };
        let (disk, disk_offset) = ground.area.places.place(ground.slice, number);
        (identity, disk, disk_offset)
    }

    /// Writes a page durably.
    async fn write_out(&self, number: u64, page: &Page, is_closed: bool) -> Result<(), SliceError> {
        let (identity, disk, disk_offset) = self.place_of(number);
        let image = Buf::copy_of(&encode(identity, &page.sums.borrow(), is_closed)).share();
        let disk = Rc::clone(self.ground.borrow().disks.disk(disk));
        let written = disk.write(disk_offset, image, Durability::Durable).await;
        written.map_err(|error| write_error(&error, Some(number * PAGE_COVERS)))
    }

    /// Makes durable what was written to the slice.
    async fn flush(&self) -> Result<(), SliceError> {
        if makes(Canary::ChecksumsUnflushed) {
            return Ok(());
        }
        let on_disks = disks_of(&self.ground.borrow().places);
        for place in disks_in(on_disks) {
            // As for a flush of the slice: see there.
            let Some(disk) = self.ground.borrow().disks.get(place.into()).cloned() else { continue };
            disk.flush().await.map_err(|error| write_error(&error, None))?;
        }
        Ok(())
    }
}

impl Drop for Checksums {
    fn drop(&mut self) {
        self.in_memory.set(self.in_memory.get() - self.pages.get_mut().len());
    }
}
