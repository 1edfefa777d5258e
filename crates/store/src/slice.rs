//! A slice: one core's part of a volume.

use std::sync::Arc;

use base::{BlockSize, ByteLen, ByteOffset, Chain};
use rt::{Durability, Room};

use crate::budget::RamGrant;
use crate::copy::{MAP_PAGE_BYTES, MapPlaces};
use crate::disks::CoreDisks;
use crate::error::{BadBlock, ReadFailure, SliceError};
use crate::extent::ExtentRun;
use crate::log::{LogHandle, LogSlice};
use crate::lost::{self, Lost};
use crate::ram::RamSlice;
use crate::thick::ThickSlice;

/// What is needed to open a slice, on its way from the pool's core to the slice's.
///
/// While a specification or a slice of a volume exists, its volume cannot be deleted.
#[derive(Clone, Debug)]
pub struct SliceSpec {
    pub(crate) index: u16,
    pub(crate) len: ByteLen,
    /// Of its dirty map; none if the volume is not a copy.
    pub(crate) map_pages: u64,
    pub(crate) kind: SpecKind,
    /// Counted by the pool: as long as there is a clone, the volume is in use.
    #[expect(dead_code, reason = "it is held, not read")]
    pub(crate) in_use: Arc<()>,
}

#[derive(Clone, Debug)]
pub(crate) enum SpecKind {
    Thick {
        runs: Vec<ExtentRun>,
        block_size: BlockSize,
        map: MapPlaces,
    },
    Log {
        handle: Arc<LogHandle>,
        /// What the blocks of the volume are numbered by.
        branch: u32,
        map: MapPlaces,
    },
    Ram {
        /// The memory that the volume may take.
        #[expect(dead_code, reason = "they are held, not read")]
        grants: Vec<Arc<RamGrant>>,
    },
}

impl SliceSpec {
    /// The number of the slice in its volume.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// How long the slice is.
    pub fn len(&self) -> ByteLen {
        self.len
    }

    /// Whether the volume is so small that this slice has nothing.
    pub fn is_empty(&self) -> bool {
        self.len.0 == 0
    }

    /// Opens the slice on the current core, on `disks` of this core. A slice is open once at a time. That of
    /// a log-structured volume may have to recover its log first: operations wait for that, and
    /// [`Slice::ready`] tells when it is done.
    ///
    /// # Panics
    /// If it lies in a log that is open on another core.
    pub fn open(self, disks: &CoreDisks) -> Slice {
        Slice::of(match &self.kind {
            SpecKind::Thick { .. } => Layout::Thick(ThickSlice::new(self, disks.clone())),
            SpecKind::Log { .. } => Layout::Log(LogSlice::new(self, disks.clone())),
            SpecKind::Ram { .. } => Layout::Ram(RamSlice::new(self)),
        })
    }
}

/// An open slice. It lives on one core and takes no locks; tasks of the core may use it at the same time.
///
/// Offsets are bytes within the slice, multiples of the volume's block. Two writes to the same block at the
/// same time leave one of the two, in no particular order; a read at the same time sees the one or the other,
/// by block. Each operation is driven to its end: a future that is dropped leaves a write that may still
/// happen.
///
/// That of a copy may have lost blocks ([`Slice::lose`]): they cannot be read until they are written.
pub struct Slice {
    pub(crate) layout: Layout,
    lost: Lost,
}

/// How a slice's blocks lie.
pub(crate) enum Layout {
    /// On the pool's disks, in place.
    Thick(ThickSlice),
    /// On the pool's disks, never in place.
    Log(LogSlice),
    /// In memory.
    Ram(RamSlice),
}

impl Slice {
    /// A slice in memory that belongs to no pool: for a scratch volume, and for tests.
    pub fn in_memory(index: u16, len: ByteLen, grant: RamGrant) -> Slice {
        let kind = SpecKind::Ram { grants: vec![Arc::new(grant)] };
        let spec = SliceSpec { index, len, map_pages: 0, kind, in_use: Arc::default() };
        Slice::of(Layout::Ram(RamSlice::new(spec)))
    }

    fn of(layout: Layout) -> Slice {
        Slice { layout, lost: Lost::default() }
    }

    /// The number of the slice in its volume.
    pub fn index(&self) -> u16 {
        match &self.layout {
            Layout::Thick(slice) => slice.index(),
            Layout::Log(slice) => slice.index(),
            Layout::Ram(slice) => slice.index(),
        }
    }

    /// How long the slice is.
    pub fn len(&self) -> ByteLen {
        match &self.layout {
            Layout::Thick(slice) => slice.len(),
            Layout::Log(slice) => slice.len(),
            Layout::Ram(slice) => slice.len(),
        }
    }

    /// Whether the volume is so small that this slice has nothing.
    pub fn is_empty(&self) -> bool {
        self.len().0 == 0
    }

    /// Whether it is empty after each start, its map as well.
    pub fn is_volatile(&self) -> bool {
        matches!(self.layout, Layout::Ram(_))
    }

    /// How many pages its dirty map has; none if the volume is not a copy. They are apart from the slice's
    /// bytes.
    pub fn map_pages(&self) -> usize {
        let pages = match &self.layout {
            Layout::Thick(slice) => slice.map_pages(),
            Layout::Log(slice) => slice.map_pages(),
            Layout::Ram(slice) => slice.map_pages(),
        };
        // A slice of the largest volume has 2^27.
        pages as usize
    }

    /// Waits until the slice serves: its log has to be recovered first, if it lies in one. Nobody has to:
    /// other operations wait by themselves.
    ///
    /// # Errors
    /// [`SliceError::Offline`]: the log could not be opened; why was logged.
    pub async fn ready(&self) -> Result<(), SliceError> {
        match &self.layout {
            Layout::Log(slice) => slice.ready().await,
            Layout::Thick(_) | Layout::Ram(_) => Ok(()),
        }
    }

    /// Reads a page of the dirty map: zeros if it was never written.
    ///
    /// # Errors
    /// [`SliceError::Unreadable`] with the first byte of the slice whose bit is in the page,
    /// [`SliceError::Offline`].
    ///
    /// # Panics
    /// If the map has no such page.
    pub async fn read_map_page(&self, page: usize) -> Result<[u8; MAP_PAGE_BYTES], SliceError> {
        self.check_page(page);
        match &self.layout {
            Layout::Thick(slice) => slice.read_page(1 + page as u64).await,
            Layout::Log(slice) => slice.read_page(1 + page as u64).await,
            Layout::Ram(slice) => Ok(slice.map_page(page)),
        }
    }

    /// Writes a page of the dirty map, durably where [`Slice::is_volatile`] does not say otherwise. Two
    /// writes of one page follow each other: the caller sees to that. A write that is cut off may leave some
    /// sectors of the page as they were.
    ///
    /// # Errors
    /// As for [`Slice::write`]. What the page holds is then unknown.
    ///
    /// # Panics
    /// If the map has no such page, or `image` is not [`MAP_PAGE_BYTES`] long.
    pub async fn write_map_page(&self, page: usize, image: &[u8]) -> Result<(), SliceError> {
        self.check_page(page);
        assert_eq!(image.len(), MAP_PAGE_BYTES, "a page is written as a whole");
        match &self.layout {
            Layout::Thick(slice) => slice.write_page(1 + page as u64, image).await,
            Layout::Log(slice) => slice.write_page(1 + page as u64, image).await,
            Layout::Ram(slice) => {
                slice.set_map_page(page, image);
                Ok(())
            }
        }
    }

    /// Reads `len` bytes at `offset`.
    ///
    /// # Errors
    /// [`SliceError::Unreadable`] with the first block that cannot be read, or is lost;
    /// [`SliceError::Offline`].
    ///
    /// # Panics
    /// If the range is not inside the slice: whoever maps a volume to slices has checked. So do all the
    /// others.
    pub async fn read(&self, offset: ByteOffset, len: ByteLen) -> Result<Chain, SliceError> {
        self.check(offset, len);
        self.know_lost().await?;
        // Before, since a write may end the loss while the disk is still giving what it held before that.
        self.check_lost(offset, len)?;
        let data = match &self.layout {
            Layout::Thick(slice) => slice.read(offset, len).await?,
            Layout::Log(slice) => slice.read(offset, len).await?,
            Layout::Ram(slice) => slice.memory().read(offset, len),
        };
        // And afterwards: it may have been lost meanwhile.
        self.check_lost(offset, len)?;
        Ok(data)
    }

    /// The range is about to be written. Memory comes to the processor meanwhile; a disk needs no such word.
    pub fn prefetch(&self, offset: ByteOffset, len: ByteLen) {
        if let Layout::Ram(slice) = &self.layout {
            slice.memory().prefetch(offset, len);
        }
    }

    /// Writes `data` at `offset`. The note that the copy holds something there ([`Slice::hold`]) ends before
    /// that, and a loss after it, so that neither is ever said of what may be half written.
    ///
    /// # Errors
    /// All of [`SliceError`] that layouts say. [`SliceError::Unreadable`]: a part of that block was to be
    /// written, and its rest cannot be read; of the range some blocks may be written, and the others hold
    /// what they did. Of all others: what the range holds is unknown.
    pub async fn write(
        &self,
        offset: ByteOffset,
        data: Chain,
        durability: Durability,
    ) -> Result<(), SliceError> {
        let len = ByteLen(data.len() as u64);
        self.check(offset, len);
        self.know_lost().await?;
        self.end_hold(offset, len).await?;
        let finds = self.has_lost_in(offset, len);
        let durability = if finds { Durability::Durable } else { durability };
        match &self.layout {
            Layout::Thick(slice) => slice.write(offset, data, durability).await?,
            Layout::Log(slice) => slice.write(offset, data, durability).await?,
            Layout::Ram(slice) => slice.memory().write(offset, &data),
        }
        if finds { self.end_loss(offset, len).await } else { Ok(()) }
    }

    /// Reads what a write to the range must read first: the rest of the disks' blocks that it changes in
    /// part. Blocks of 4096 bytes that are lost as a whole count as such: the disk that did not read them may
    /// have no smaller ones.
    ///
    /// # Errors
    /// As for [`Slice::read`].
    pub async fn read_edges(&self, offset: ByteOffset, len: ByteLen) -> Result<(), SliceError> {
        self.check(offset, len);
        self.know_lost().await?;
        if let Some(lost) = self.lost.torn_by(&(offset.0..offset.0 + len.0), self.len().0) {
            return Err(lost_error(lost));
        }
        match &self.layout {
            Layout::Thick(slice) => slice.read_edges(offset, len).await,
            Layout::Log(slice) => slice.read_edges(offset, len).await,
            Layout::Ram(_) => Ok(()),
        }
    }

    /// Writes again what cannot be read, with what it held, makes that durable, and reads it back. `data` is
    /// at the place of whole [`Slice::write_unit`]s, or ends with the slice.
    ///
    /// # Errors
    /// [`SliceError::Unwritable`], [`SliceError::Full`]: the range is as bad as it was; other blocks are not
    /// concerned. [`SliceError::Offline`].
    pub async fn rewrite(&self, offset: ByteOffset, data: Chain) -> Result<(), SliceError> {
        let len = ByteLen(data.len() as u64);
        self.check(offset, len);
        self.know_lost().await?;
        self.end_hold(offset, len).await?;
        let finds = self.has_lost_in(offset, len);
        match &self.layout {
            Layout::Thick(slice) => slice.rewrite(offset, data).await?,
            Layout::Log(slice) => slice.rewrite(offset, data).await?,
            Layout::Ram(slice) => slice.memory().write(offset, &data),
        }
        if finds { self.end_loss(offset, len).await } else { Ok(()) }
    }

    /// What its disks write at once at least, in bytes: they read all of it, or nothing.
    pub fn write_unit(&self) -> u64 {
        match &self.layout {
            Layout::Thick(slice) => slice.write_unit(),
            Layout::Log(slice) => slice.write_unit(),
            Layout::Ram(_) => 1,
        }
    }

    /// Has a write to the range find room: where little is left in the file system under a disk, its space is
    /// set aside now. Of a write that is not to begin unless it can be finished; any other one is told
    /// [`SliceError::Full`] by [`Slice::write`].
    ///
    /// # Errors
    /// [`SliceError::Full`]; else as for [`Slice::write`].
    pub async fn reserve(&self, offset: ByteOffset, len: ByteLen) -> Result<(), SliceError> {
        self.check(offset, len);
        match &self.layout {
            Layout::Thick(slice) => slice.reserve(offset, len).await,
            Layout::Log(slice) => slice.reserve(offset, len).await,
            Layout::Ram(_) => Ok(()),
        }
    }

    /// What is left for the slice: of the file system that has least, or of its log, with what the pool lends
    /// for that. `None` where space cannot run out, or nobody knows.
    pub async fn room(&self) -> Option<Room> {
        match &self.layout {
            Layout::Thick(slice) => slice.room(),
            Layout::Log(slice) => slice.room().await,
            Layout::Ram(_) => None,
        }
    }

    /// Makes the range read as zeros and gives its space back where that is possible: UNMAP, and WRITE SAME
    /// of zeros. Durable after the next flush.
    ///
    /// # Errors
    /// As for [`Slice::write`].
    pub async fn zero(&self, offset: ByteOffset, len: ByteLen) -> Result<(), SliceError> {
        self.check(offset, len);
        self.know_lost().await?;
        self.end_hold(offset, len).await?;
        let finds = self.has_lost_in(offset, len);
        match &self.layout {
            Layout::Thick(slice) => slice.zero(offset, len).await?,
            Layout::Log(slice) => slice.zero(offset, len).await?,
            Layout::Ram(slice) => slice.memory().zero(offset, len),
        }
        if finds {
            self.flush().await?;
            self.end_loss(offset, len).await?;
        }
        Ok(())
    }

    /// Makes all writes and zeroings that have completed durable.
    ///
    /// # Errors
    /// [`SliceError::Unwritable`] if the disk failed now, [`SliceError::Offline`] if it had before.
    pub async fn flush(&self) -> Result<(), SliceError> {
        match &self.layout {
            Layout::Thick(slice) => slice.flush().await,
            Layout::Log(slice) => slice.flush().await,
            Layout::Ram(_) => Ok(()),
        }
    }

    /// Whether a disk that it lies on is out of service: what is written there is answered
    /// [`SliceError::Offline`], until the pool is reopened.
    pub fn is_offline(&self) -> bool {
        match &self.layout {
            Layout::Thick(slice) => slice.is_offline(),
            Layout::Log(slice) => slice.is_offline(),
            Layout::Ram(_) => false,
        }
    }

    /// The parts of the range that take space, in order, `max` of them at most; touching parts are one. All
    /// else before the last one reads as zeros; so does what comes after it, if there are fewer than `max`.
    /// Where a block of the range is lost, all from there on counts as taking space: a lost block does not
    /// read as zeros.
    ///
    /// # Errors
    /// [`SliceError::Unreadable`], [`SliceError::Offline`].
    pub async fn allocated(
        &self,
        offset: ByteOffset,
        len: ByteLen,
        max: usize,
    ) -> Result<Vec<(ByteOffset, ByteLen)>, SliceError> {
        self.check(offset, len);
        self.know_lost().await?;
        let end = offset.0 + len.0;
        let lost = self.lost.first_in(&(offset.0..end)).map(|lost| lost.max(offset.0));
        let before = ByteLen(lost.unwrap_or(end) - offset.0);
        let mut found = match &self.layout {
            Layout::Thick(slice) => slice.allocated(offset, before, max).await?,
            Layout::Log(slice) => slice.allocated(offset, before, max).await?,
            Layout::Ram(slice) => slice.memory().allocated(offset, before, max),
        };
        if let Some(lost) = lost.filter(|_| found.len() < max) {
            join(&mut found, lost, end - lost);
        }
        Ok(found)
    }

    /// Notes durably that the range is lost: what the disk holds there is not what the slice holds. It is so
    /// until all of it has been written. `holders`: by slot a bit for each copy that holds it, and whose disk
    /// did not read it. `keeps_held`: this is one of them, so what it noted by [`Slice::hold`] is not lost.
    /// Returns what is lost now and was not before; `None`: the list is full ([`crate::LOST_UNITS_MAX`]), and
    /// nothing has changed.
    ///
    /// # Errors
    /// As for [`Slice::read_map_page`] and [`Slice::write_map_page`].
    ///
    /// # Panics
    /// If the volume is not a copy.
    pub async fn lose(
        &self,
        offset: ByteOffset,
        len: ByteLen,
        holders: u8,
        keeps_held: bool,
    ) -> Result<Option<Vec<(ByteOffset, ByteLen)>>, SliceError> {
        self.check(offset, len);
        assert!(self.map_pages() > 0, "only a copy loses blocks");
        self.know_lost().await?;
        let _change = self.lost.change().await;
        let added = self.lost.add(&(offset.0..offset.0 + len.0), holders, keeps_held);
        if added.is_some() {
            self.write_lost(&self.lost.page()).await?;
        }
        Ok(added)
    }

    /// Notes durably that this copy holds these ranges, which its disk did not read: others are about to note
    /// them as lost. It is so until they are written, or until there is no more room for that.
    ///
    /// # Errors
    /// As for [`Slice::lose`].
    ///
    /// # Panics
    /// If the volume is not a copy.
    pub async fn hold(&self, ranges: &[(ByteOffset, ByteLen)]) -> Result<(), SliceError> {
        assert!(self.map_pages() > 0, "only a copy has others");
        self.know_lost().await?;
        ranges.iter().for_each(|(offset, len)| self.check(*offset, *len));
        if let Layout::Log(slice) = &self.layout {
            // Else a record that the disk does not read might count as not written after a crash: the older
            // block would be there again.
            slice.merge_all().await?;
        }
        let _change = self.lost.change().await;
        if self.lost.hold(ranges.iter().map(|(offset, len)| offset.0..offset.0 + len.0)) {
            self.write_lost(&self.lost.page()).await?;
        }
        Ok(())
    }

    /// Forgets what this copy holds, and who holds what is lost, durably: what it has is of another past than
    /// what others have.
    ///
    /// # Errors
    /// As for [`Slice::lose`].
    pub async fn hold_nothing(&self) -> Result<(), SliceError> {
        if self.map_pages() == 0 {
            return Ok(());
        }
        self.know_lost().await?;
        let _change = self.lost.change().await;
        self.set_lost(self.lost.unheld()).await
    }

    /// By slot a bit for each copy that holds all that is lost of the range ([`Slice::lose`]).
    pub fn holders_of_lost(&self, offset: ByteOffset, len: ByteLen) -> u8 {
        self.lost.holders(&(offset.0..offset.0 + len.0))
    }

    /// What is lost, in order; touching ranges are one. Empty before [`Slice::know_lost`].
    pub fn lost(&self) -> Vec<(ByteOffset, ByteLen)> {
        self.lost.ranges()
    }

    /// Whether something is lost.
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Whether some of the range is lost.
    pub fn has_lost_in(&self, offset: ByteOffset, len: ByteLen) -> bool {
        self.lost.first_in(&(offset.0..offset.0 + len.0)).is_some()
    }

    /// Reads what is lost, unless that is known. Nobody has to: other operations do so by themselves.
    ///
    /// # Errors
    /// [`SliceError::Unreadable`]: the disk does not read the list, or it is damaged.
    /// [`SliceError::Offline`].
    pub async fn know_lost(&self) -> Result<(), SliceError> {
        if self.map_pages() == 0 || self.lost.is_known() {
            return Ok(());
        }
        let (page, (disk, disk_offset)) = match &self.layout {
            Layout::Thick(slice) => (slice.read_page(0).await?, slice.page_place(0)),
            Layout::Log(slice) => (slice.read_page(0).await?, slice.page_place(0)),
            Layout::Ram(_) => ([0; MAP_PAGE_BYTES], (0, 0)),
        };
        if self.lost.load(&page) {
            return Ok(());
        }
        tracing::error!(disk, disk_offset, "the list of lost blocks of a slice is damaged");
        let (offset, cause) = (ByteOffset(0), ReadFailure::Medium);
        Err(SliceError::Unreadable(BadBlock { offset, disk, disk_offset, cause }))
    }

    fn check_lost(&self, offset: ByteOffset, len: ByteLen) -> Result<(), SliceError> {
        let range = offset.0..offset.0 + len.0;
        self.lost.first_in(&range).map_or(Ok(()), |lost| Err(lost_error(lost.max(range.start))))
    }

    /// What was lost in the range has been written, durably.
    async fn end_loss(&self, offset: ByteOffset, len: ByteLen) -> Result<(), SliceError> {
        let _change = self.lost.change().await;
        self.set_lost(self.lost.without(&(offset.0..offset.0 + len.0))).await
    }

    /// The range is about to be written: what the copy holds there will not be what others have lost.
    async fn end_hold(&self, offset: ByteOffset, len: ByteLen) -> Result<(), SliceError> {
        let range = offset.0..offset.0 + len.0;
        if !self.lost.holds_some_of(&range) {
            return Ok(());
        }
        let _change = self.lost.change().await;
        self.set_lost(self.lost.without_held(&range)).await
    }

    /// Writes the list and has it count then. The caller holds [`Lost::change`].
    async fn set_lost(&self, units: lost::Units) -> Result<(), SliceError> {
        let page = lost::encode(&units);
        if page != self.lost.page() {
            self.write_lost(&page).await?;
            self.lost.set(units);
        }
        Ok(())
    }

    async fn write_lost(&self, page: &[u8; MAP_PAGE_BYTES]) -> Result<(), SliceError> {
        match &self.layout {
            Layout::Thick(slice) => slice.write_page(0, page).await,
            Layout::Log(slice) => slice.write_page(0, page).await,
            Layout::Ram(_) => Ok(()),
        }
    }

    /// Takes in what [`Pool::grow_volume`](crate::Pool::grow_volume) added: `spec` is the same slice's new
    /// specification, `disks` are this core's, with those that have been added since. Operations that are
    /// under way are not disturbed.
    ///
    /// # Panics
    /// If `spec` is of another slice, or shorter.
    pub fn grow(&self, spec: SliceSpec, disks: &CoreDisks) {
        assert!(spec.index == self.index() && spec.len >= self.len(), "{spec:?} is not this slice, grown");
        assert!(spec.map_pages as usize >= self.map_pages(), "a copy stays one: {spec:?}");
        match &self.layout {
            Layout::Thick(slice) => slice.grow(spec, disks),
            Layout::Log(slice) => slice.grow(spec, disks),
            Layout::Ram(slice) => slice.grow(spec),
        }
    }

    fn check_page(&self, page: usize) {
        let pages = self.map_pages();
        assert!(page < pages, "page {page} is outside a map of {pages}");
    }

    fn check(&self, offset: ByteOffset, len: ByteLen) {
        let end = offset.0.checked_add(len.0);
        assert!(
            end.is_some_and(|end| end <= self.len().0),
            "{len:?} at {offset:?} is outside a slice of {:?}",
            self.len()
        );
    }
}

/// No disk is to blame for it: that of another copy was.
fn lost_error(offset: u64) -> SliceError {
    let (offset, cause) = (ByteOffset(offset), ReadFailure::Lost);
    SliceError::Unreadable(BadBlock { offset, disk: 0, disk_offset: 0, cause })
}

/// Adds a range behind the others, to the last one if it touches that.
pub(crate) fn join(found: &mut Vec<(ByteOffset, ByteLen)>, start: u64, len: u64) {
    match found.last_mut() {
        Some((last, last_len)) if last.0 + last_len.0 == start => last_len.0 += len,
        _ => found.push((ByteOffset(start), ByteLen(len))),
    }
}
