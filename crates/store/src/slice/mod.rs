//! A slice: one core's part of a volume.

mod conversion;
mod layout;
mod losing;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::{BlockSize, Buf, ByteLen, ByteOffset, Chain};
use rt::{Durability, Room};

use self::conversion::Conversion;
use self::layout::Change;
use self::losing::lost_error;
use crate::budget::RamGrant;
use crate::canary::{Canary, makes};
use crate::copy::{MAP_PAGE_BYTES, MapPlaces};
use crate::disks::CoreDisks;
use crate::error::{BadBlock, SliceError};
use crate::extent::ExtentRun;
use crate::gate::Gate;
use crate::log::{BadVersion, FoundBad, LogHandle, PastCursor, SnapshotsChecked};
use crate::lost::Lost;
use crate::ram::RamSlice;
use crate::range_lock::RangeLock;
use crate::thick::{ChecksumArea, read_error, write_error};

pub(crate) use self::layout::Layout;

/// Everything needed to open a slice; the pool's core sends it to the slice's core.
///
/// While a specification or a slice of a volume exists, the volume cannot be deleted.
#[derive(Clone, Debug)]
pub struct SliceSpec {
    pub(crate) index: u16,
    pub(crate) len: ByteLen,
    /// Pages of the slice's dirty map; 0 if the volume is not a copy.
    pub(crate) map_pages: u64,
    pub(crate) kind: SpecKind,
    /// The layout that the volume is being converted to.
    pub(crate) next: Option<SpecKind>,
    /// How often a move of a part of the volume to another disk had begun or ended.
    pub(crate) moves: u64,
    /// The same now: odd while a part is being moved. The pool counts the clones: while there is one, the
    /// volume is in use.
    pub(crate) in_use: Arc<AtomicU64>,
}

#[derive(Clone, Debug)]
pub(crate) enum SpecKind {
    Thick {
        runs: Vec<ExtentRun>,
        block_size: BlockSize,
        map: MapPlaces,
        /// `None`: it has no checksums.
        checksums: Option<ChecksumArea>,
    },
    Log {
        handle: Arc<LogHandle>,
        /// Identifies the volume in the log.
        branch: u32,
        map: MapPlaces,
    },
    Ram {
        /// The memory reserved for the volume.
        #[expect(dead_code, reason = "they are held, not read")]
        grants: Vec<Arc<RamGrant>>,
    },
}

impl SliceSpec {
    /// The number of the slice in its volume.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// The length of the slice.
    pub fn len(&self) -> ByteLen {
        self.len
    }

    /// Whether the slice has no bytes because the volume is so small.
    pub fn is_empty(&self) -> bool {
        self.len.0 == 0
    }

    /// Opens the slice on the current core.
    ///
    /// `disks` are those of this core. A slice may be open only once at a time. A slice of a log-structured
    /// volume may have to recover its log first: operations wait for that, and [`Slice::ready`] returns when
    /// it is done.
    ///
    /// # Panics
    /// If the slice lies in a log that is open on another core.
    pub fn open(self, disks: &CoreDisks) -> Slice {
        let (moves, now) = (self.moves, self.in_use.load(Ordering::Acquire));
        // While a part moves, a slice that does not hold it would write to the place that is being left.
        let is_outdated = moves != now || now % 2 == 1;
        let next = self.of_next();
        let slice = Slice::of(Layout::open(SliceSpec { next: None, ..self }, disks));
        slice.moves.set(moves);
        if let Some(next) = next {
            slice.convert_to(next, disks);
        }
        if is_outdated {
            // Whoever opens a volume excludes moves; this keeps a mistake there from destroying data.
            tracing::error!(
                slice = slice.index(),
                "a slice was moved while it was being opened: it is offline"
            );
            slice.layout().gate().inspect(|gate| gate.lose());
            slice.pages.lose();
        }
        slice
    }

    /// The specification of the slice in the layout that it is being converted to.
    fn of_next(&self) -> Option<SliceSpec> {
        Some(SliceSpec { kind: self.next.clone()?, next: None, ..self.clone() })
    }
}

/// An open slice. It lives on one core and takes no locks; tasks of the core may use it concurrently.
///
/// Offsets are bytes within the slice, multiples of the volume's block size. Of two concurrent writes to the
/// same block either may win; a concurrent read sees one or the other, block by block. A future that is
/// dropped does not cancel its operation: the write may still happen.
///
/// A slice of a copy may have lost blocks ([`Slice::lose`]): they cannot be read until they are written.
pub struct Slice {
    layout: RefCell<Rc<Layout>>,
    /// The layout that the volume is being converted to.
    conversion: RefCell<Option<Rc<Conversion>>>,
    /// While the slice is being converted, each change holds its range here, and so does the copying. Callers
    /// rely on the order in which they have begun changes of a block, so those that wait here when the
    /// conversion ends still come before all later ones.
    turns: RangeLock,
    /// A clone for each change that is made to one layout only, because it began before a conversion did.
    changing: Rc<()>,
    /// The caller of a change has gone away before it had ended: it may still happen, in one layout or both.
    abandoned: Cell<bool>,
    /// How many operations have not ended in a layout to which the volume was being converted, although those
    /// who began them do not wait any more: its disk hangs.
    late: Rc<Cell<usize>>,
    lost: Lost,
    /// The operations on the pages of the map, by page; the list of lost blocks is page 0.
    pages: Gate,
    /// [`SliceSpec::moves`] of the present specification.
    moves: Cell<u64>,
}

/// A part of a volume that is about to be moved to another disk, as cores learn of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedPart(pub(crate) PartKind);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PartKind {
    /// These bytes of a slice.
    Slice { index: u16, bytes: Range<u64> },
    /// A part of the dirty map. Pages of all slices lie in it.
    Map,
    /// A part of the checksums. Those of all slices lie in it.
    Checksums,
}

impl Slice {
    /// Creates a slice in memory that belongs to no pool: for a scratch volume, and for tests.
    pub fn in_memory(index: u16, len: ByteLen, grant: RamGrant) -> Slice {
        let kind = SpecKind::Ram { grants: vec![Arc::new(grant)] };
        let spec = SliceSpec { index, len, map_pages: 0, kind, next: None, moves: 0, in_use: Arc::default() };
        Slice::of(Layout::Ram(RamSlice::new(spec)))
    }

    fn of(layout: Layout) -> Slice {
        Slice {
            layout: RefCell::new(Rc::new(layout)),
            conversion: RefCell::default(),
            turns: RangeLock::default(),
            changing: Rc::default(),
            abandoned: Cell::new(false),
            late: Rc::default(),
            lost: Lost::default(),
            pages: Gate::default(),
            moves: Cell::new(0),
        }
    }

    /// The layout that counts.
    pub(crate) fn layout(&self) -> Rc<Layout> {
        Rc::clone(&self.layout.borrow())
    }

    /// Holds back all operations on a part of the volume that begin from now on, as far as this slice has
    /// any, and returns when those under way have ended.
    ///
    /// Until [`Slice::let_go`] or [`Slice::lose_part`]. A volume's slices hold one part at a time, and none
    /// while the volume is being converted.
    ///
    /// # Errors
    /// [`SliceError::Offline`]: the caller of an earlier operation has gone away, and it is unknown whether
    /// the disk is done with it. Nothing is held then; reopening the pool helps.
    pub async fn hold_part(&self, part: &MovedPart) -> Result<(), SliceError> {
        if makes(Canary::MoveUnheld) {
            return Ok(());
        }
        match &part.0 {
            PartKind::Slice { index, bytes } if *index == self.index() => {
                self.layout().hold(bytes.clone()).await
            }
            PartKind::Slice { .. } => Ok(()),
            PartKind::Map => self.pages.hold(0..u64::MAX).await,
            // Whatever is read or written may need any page of them.
            PartKind::Checksums => self.layout().hold(0..u64::MAX).await,
        }
    }

    /// Lets the operations that [`Slice::hold_part`] held back continue.
    pub fn let_go(&self) {
        self.layout().gate().inspect(|gate| gate.let_go());
        self.pages.let_go();
    }

    /// Fails the operations that [`Slice::hold_part`] held back, and all later ones on that part, until the
    /// slice is opened again: it is unknown where the part lies. A slice that has nothing of it continues.
    pub fn lose_part(&self) {
        let layout = self.layout();
        for gate in layout.gate().into_iter().chain([&self.pages]) {
            if gate.holds() {
                gate.lose();
            }
        }
    }

    /// The number of the slice in its volume.
    pub fn index(&self) -> u16 {
        self.layout().spec().index
    }

    /// The length of the slice.
    pub fn len(&self) -> ByteLen {
        self.layout().spec().len
    }

    /// Whether the slice has no bytes because the volume is so small.
    pub fn is_empty(&self) -> bool {
        self.len().0 == 0
    }

    /// Whether the slice and its dirty map are empty after each start.
    pub fn is_volatile(&self) -> bool {
        matches!(*self.layout(), Layout::Ram(_))
    }

    /// How many pages the slice's dirty map has; 0 if the volume is not a copy.
    ///
    /// The pages are stored apart from the slice's bytes.
    pub fn map_pages(&self) -> usize {
        // This fits: a slice of the largest volume has 2^27 pages.
        self.layout().spec().map_pages as usize
    }

    /// Waits until the slice can serve: if it lies in a log, the log must be recovered first.
    ///
    /// Calling this is optional, because all other operations wait as well.
    ///
    /// # Errors
    /// [`SliceError::Offline`]: the log could not be opened; the reason was logged.
    pub async fn ready(&self) -> Result<(), SliceError> {
        match &*self.layout() {
            Layout::Log(slice) => slice.ready().await,
            Layout::Thick(_) | Layout::Ram(_) => Ok(()),
        }
    }

    /// Reads a page of the dirty map. A page that was never written reads as zeros.
    ///
    /// # Errors
    /// [`SliceError::Unreadable`] with the first byte of the slice that the page covers,
    /// [`SliceError::Offline`].
    ///
    /// # Panics
    /// If the map has no such page.
    pub async fn read_map_page(&self, page: usize) -> Result<[u8; MAP_PAGE_BYTES], SliceError> {
        self.check_page(page);
        match &*self.layout() {
            Layout::Thick(_) | Layout::Log(_) => self.read_page(1 + page as u64).await,
            Layout::Ram(slice) => Ok(slice.map_page(page)),
        }
    }

    /// Writes a page of the dirty map, durably unless [`Slice::is_volatile`].
    ///
    /// The caller must not write one page twice at the same time. A write that a power cut interrupts may
    /// leave some sectors of the page unchanged.
    ///
    /// # Errors
    /// As for [`Slice::write`]. The content of the page is then unknown.
    ///
    /// # Panics
    /// If the map has no such page, or `image` is not [`MAP_PAGE_BYTES`] long.
    pub async fn write_map_page(&self, page: usize, image: &[u8]) -> Result<(), SliceError> {
        self.check_page(page);
        assert_eq!(image.len(), MAP_PAGE_BYTES, "a page is written as a whole");
        match &*self.layout() {
            Layout::Thick(_) | Layout::Log(_) => self.write_page(1 + page as u64, image).await,
            Layout::Ram(slice) => {
                slice.set_map_page(page, image);
                Ok(())
            }
        }
    }

    /// Reads a page of the map on disks; page 0 is the list of lost blocks.
    async fn read_page(&self, page: u64) -> Result<[u8; MAP_PAGE_BYTES], SliceError> {
        let layout = self.layout();
        if matches!(*layout, Layout::Ram(_)) {
            return Ok([0; MAP_PAGE_BYTES]);
        }
        let _pass = self.pages.read(page..page + 1).await?;
        let (disk, place, disk_offset) = layout.page(page);
        let read = disk.read(disk_offset, Buf::uncleared(MAP_PAGE_BYTES)).await;
        let first = MapPlaces::covered_from(page);
        let bytes = read.map_err(|error| read_error(&error, first, (place, disk_offset)))?;
        Ok(bytes[..].try_into().expect("as long as was asked for"))
    }

    async fn write_page(&self, page: u64, image: &[u8]) -> Result<(), SliceError> {
        let layout = self.layout();
        if matches!(*layout, Layout::Ram(_)) {
            return Ok(());
        }
        let pass = self.pages.change(page..page + 1).await?;
        let (disk, _, disk_offset) = layout.page(page);
        let written = disk.write(disk_offset, Buf::copy_of(image).share(), Durability::Durable).await;
        pass.end();
        written.map_err(|error| write_error(&error, Some(MapPlaces::covered_from(page))))
    }

    /// Reads `len` bytes at `offset`.
    ///
    /// # Errors
    /// [`SliceError::Unreadable`] with the first block that cannot be read, or is lost;
    /// [`SliceError::Offline`].
    ///
    /// # Panics
    /// If the range is not inside the slice: the code that maps a volume to slices has checked it. The same
    /// holds for all other operations.
    pub async fn read(&self, offset: ByteOffset, len: ByteLen) -> Result<Chain, SliceError> {
        self.check(offset, len);
        self.know_lost().await?;
        // Check before the read: a concurrent write may end the loss while the disk still returns the old
        // content.
        self.check_lost(offset, len)?;
        let data = self.layout().read(&bytes(offset, len)).await?;
        // And check after it: the range may have been lost meanwhile.
        self.check_lost(offset, len)?;
        Ok(data)
    }

    /// Announces a write to the range, so that the processor can load the memory meanwhile. Disks ignore it.
    pub fn prefetch(&self, offset: ByteOffset, len: ByteLen) {
        if let Layout::Ram(slice) = &*self.layout() {
            slice.memory().prefetch(offset, len);
        }
    }

    /// Writes `data` at `offset`.
    ///
    /// If the copy is noted as holding something there ([`Slice::hold`]), that note ends before the write; a
    /// loss ends after it. So neither note ever covers a block that may be half written.
    ///
    /// # Errors
    /// All errors of [`SliceError`] that layouts return. [`SliceError::Unreadable`]: the write covers only
    /// part of that block, and the rest of the block cannot be read; some blocks of the range may be written,
    /// the others are unchanged. After any other error the content of the range is unknown.
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
        self.apply(bytes(offset, len), Change::Write(data, durability)).await?;
        if finds { self.end_loss(offset, len).await } else { Ok(()) }
    }

    /// Writes like [`Slice::write`], durably, except that blocks of the range that are lost stay lost:
    /// whatever `data` has there is never read.
    ///
    /// # Errors
    /// As for [`Slice::write`].
    pub async fn write_around_lost(&self, offset: ByteOffset, data: Chain) -> Result<(), SliceError> {
        let len = ByteLen(data.len() as u64);
        self.check(offset, len);
        self.know_lost().await?;
        self.end_hold(offset, len).await?;
        self.apply(bytes(offset, len), Change::Write(data, Durability::Durable)).await
    }

    /// Reads what a write to the range must read first: the rest of disk blocks that it changes in part.
    ///
    /// Units of 4096 bytes that are lost as a whole count as one block, because the disk that could not read
    /// them may have no smaller blocks.
    ///
    /// # Errors
    /// As for [`Slice::read`].
    pub async fn read_edges(&self, offset: ByteOffset, len: ByteLen) -> Result<(), SliceError> {
        self.check(offset, len);
        self.know_lost().await?;
        if let Some(lost) = self.lost.torn_by(&(offset.0..offset.0 + len.0), self.len().0) {
            return Err(lost_error(lost));
        }
        match &*self.layout() {
            Layout::Thick(slice) => {
                let _pass = slice.gate().read(slice.touched(&bytes(offset, len))).await?;
                slice.read_edges(offset, len).await
            }
            Layout::Log(slice) => slice.read_edges(offset, len).await,
            Layout::Ram(_) => Ok(()),
        }
    }

    /// Repairs a range that cannot be read: writes `data`, its content, makes that durable, and reads it
    /// back.
    ///
    /// `data` covers whole [`Slice::write_unit`]s, or ends with the slice.
    ///
    /// # Errors
    /// [`SliceError::Unwritable`], [`SliceError::Full`]: the range is as bad as before; other blocks are not
    /// affected. [`SliceError::Offline`].
    pub async fn rewrite(&self, offset: ByteOffset, data: Chain) -> Result<(), SliceError> {
        let len = ByteLen(data.len() as u64);
        self.check(offset, len);
        self.know_lost().await?;
        self.end_hold(offset, len).await?;
        let finds = self.has_lost_in(offset, len);
        self.apply(bytes(offset, len), Change::Rewrite(data)).await?;
        if finds { self.end_loss(offset, len).await } else { Ok(()) }
    }

    /// The smallest unit in bytes that the slice's disks write; such a unit is either readable as a whole or
    /// not at all.
    pub fn write_unit(&self) -> u64 {
        match &*self.layout() {
            Layout::Thick(slice) => slice.write_unit(),
            Layout::Log(slice) => slice.write_unit(),
            Layout::Ram(_) => 1,
        }
    }

    /// Makes sure that a write to the range finds room.
    ///
    /// If the file system under a disk has little space left, the space for the range is allocated now.
    /// Needed for a write that must not begin unless it can finish; for any other, [`Slice::write`] returns
    /// [`SliceError::Full`].
    ///
    /// # Errors
    /// [`SliceError::Full`]; else as for [`Slice::write`].
    pub async fn reserve(&self, offset: ByteOffset, len: ByteLen) -> Result<(), SliceError> {
        self.check(offset, len);
        if let Some(conversion) = self.conversion().filter(|conversion| conversion.is_equal()) {
            let next = Rc::clone(&conversion.next);
            let reserved = async move { next.reserve(&bytes(offset, len)).await };
            conversion.unless_given_up(reserved, || {}).await?;
        }
        self.layout().reserve(&bytes(offset, len)).await
    }

    /// Makes what the checksums of a thick slice say of parts that were not written to for this long count
    /// after a crash: see `docs/why/checksums.md`. Does nothing if the slice has no checksums.
    ///
    /// # Errors
    /// As for [`Slice::flush`].
    pub async fn settle(&self, idle: Duration) -> Result<(), SliceError> {
        match &*self.layout() {
            Layout::Thick(slice) => slice.settle(idle).await,
            Layout::Log(_) | Layout::Ram(_) => Ok(()),
        }
    }

    /// The space that is left for the slice.
    ///
    /// For a thick slice: in the file system with the least free space. For a slice in a log: in the log,
    /// including what the pool lends it. `None` if space cannot run out, or is unknown.
    pub async fn room(&self) -> Option<Room> {
        match &*self.layout() {
            Layout::Thick(slice) => slice.room(),
            Layout::Log(slice) => slice.room().await,
            Layout::Ram(_) => None,
        }
    }

    /// Makes the range read as zeros, and frees its space where possible. Durable after the next flush.
    ///
    /// This is UNMAP, and WRITE SAME of zeros.
    ///
    /// # Errors
    /// As for [`Slice::write`].
    pub async fn zero(&self, offset: ByteOffset, len: ByteLen) -> Result<(), SliceError> {
        self.check(offset, len);
        self.know_lost().await?;
        self.end_hold(offset, len).await?;
        let finds = self.has_lost_in(offset, len);
        self.apply(bytes(offset, len), Change::Zero).await?;
        if finds {
            self.flush().await?;
            self.end_loss(offset, len).await?;
        }
        Ok(())
    }

    /// Makes all completed writes and zeroings durable.
    ///
    /// # Errors
    /// [`SliceError::Unwritable`] if the disk failed now, [`SliceError::Offline`] if it had failed before.
    pub async fn flush(&self) -> Result<(), SliceError> {
        // In this order: the conversion may end while the first of the two is flushed.
        let conversion = self.conversion().filter(|conversion| conversion.is_equal());
        self.layout().flush().await?;
        let Some(conversion) = conversion else { return Ok(()) };
        let next = Rc::clone(&conversion.next);
        conversion.unless_given_up(async move { next.flush().await }, || {}).await
    }

    /// Whether the slice has a second layout, to which its volume is being converted.
    pub(crate) fn is_converting(&self) -> bool {
        self.conversion().is_some()
    }

    /// Whether a disk that the slice lies on is out of service, or it is unknown where a part of it lies.
    ///
    /// Writes to it then fail with [`SliceError::Offline`] until the pool is reopened.
    pub fn is_offline(&self) -> bool {
        let conversion = self.conversion().filter(|conversion| conversion.is_equal());
        self.pages.is_lost()
            || self.layout().is_offline()
            || conversion.is_some_and(|conversion| conversion.next.is_offline())
    }

    /// The parts of the range that take space, in order and at most `max`; adjacent parts are merged.
    ///
    /// Everything else up to the end of the last part reads as zeros. If there are fewer than `max` parts, so
    /// does everything after it. If the range has a lost block, everything from there on counts as taking
    /// space: a lost block does not read as zeros.
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
        let mut found = self.layout().allocated(&bytes(offset, before), max).await?;
        if let Some(lost) = lost.filter(|_| found.len() < max) {
            join(&mut found, lost, end - lost);
        }
        Ok(found)
    }

    /// Checks on the disk what says where the block at `offset` lies, for a log-structured slice.
    ///
    /// Reads do not notice that the disk cannot read a part of the map that is in memory; the next start
    /// would. Such a part is written again. Returns the error of the disk, and whether that has been done.
    /// If the part is not in memory, a read of the block checks it.
    ///
    /// # Errors
    /// [`SliceError::Offline`].
    pub async fn check_map(&self, offset: ByteOffset) -> Result<Option<(BadBlock, bool)>, SliceError> {
        let found = match &*self.layout() {
            Layout::Log(slice) => slice.check_map(offset).await?,
            Layout::Thick(_) | Layout::Ram(_) => None,
        };
        match found {
            Some((SliceError::Unreadable(bad), is_mended)) => Ok(Some((bad, is_mended))),
            Some((error, _)) => Err(error),
            None => Ok(None),
        }
    }

    /// Checks on the disks what a log has twice, its root and the state of its map, if the slice is the first
    /// one in its log. Afterwards both are written again, and no start needs a record that is there now.
    ///
    /// Returns what is damaged, and whether it has been written again.
    ///
    /// # Errors
    /// [`SliceError::Offline`].
    pub async fn check_root(&self) -> Result<Vec<(BadBlock, bool)>, SliceError> {
        Ok(match &*self.layout() {
            Layout::Log(slice) => unreadable(slice.check_root().await?),
            Layout::Thick(_) | Layout::Ram(_) => Vec::new(),
        })
    }

    /// Reads from the disk what only snapshots have of a range, for a log-structured slice: the parts of the
    /// map, and the blocks. The range begins and ends at multiples of [`MAP_UNIT`](crate::MAP_UNIT), or ends
    /// with the slice.
    ///
    /// It does this in steps of 256 KiB or so, each of which begins where the last one says.
    ///
    /// # Errors
    /// [`SliceError::Offline`].
    pub async fn check_snapshots(
        &self,
        offset: ByteOffset,
        len: ByteLen,
        from: PastCursor,
    ) -> Result<SnapshotsChecked, SliceError> {
        match &*self.layout() {
            Layout::Log(slice) => slice.check_snapshots(bytes(offset, len), from).await,
            Layout::Thick(_) | Layout::Ram(_) => Ok(SnapshotsChecked::default()),
        }
    }

    /// Takes what was noted of bad blocks in a log-structured slice while nobody read them: the cleaner has
    /// found them, or the present was repaired, and snapshots still have what could not be read.
    ///
    /// Returns those that are still needed and cannot be read.
    ///
    /// # Errors
    /// [`SliceError::Offline`].
    pub async fn take_noted(&self) -> Result<FoundBad, SliceError> {
        match &*self.layout() {
            Layout::Log(slice) => slice.take_noted().await,
            Layout::Thick(_) | Layout::Ram(_) => Ok(FoundBad::default()),
        }
    }

    /// Repairs blocks that a disk cannot read, for all snapshots that have them, with the 4,096 bytes that
    /// each holds. What the slice reads as now does not change.
    ///
    /// Returns for each whether it can be read now. It cannot if these are not its bytes, if nobody needs it
    /// any more, or if the log has no room.
    ///
    /// # Errors
    /// [`SliceError::Offline`], [`SliceError::Unwritable`].
    pub async fn put_back(&self, blocks: Vec<(BadVersion, Chain)>) -> Result<Vec<bool>, SliceError> {
        match &*self.layout() {
            Layout::Log(slice) => slice.put_back(blocks).await,
            Layout::Thick(_) | Layout::Ram(_) => Ok(vec![false; blocks.len()]),
        }
    }

    /// Grows the slice after [`Pool::grow_volume`](crate::Pool::grow_volume), or takes the new place of a
    /// part of it that was moved.
    ///
    /// `spec` is the new specification of the same slice; `disks` are this core's disks, including those that
    /// were added since the slice was opened. Operations under way are not disturbed. A specification from
    /// before the last move is ignored: the one of the move says more.
    ///
    /// # Panics
    /// If `spec` is of another slice or layout, or shorter.
    pub fn grow(&self, spec: SliceSpec, disks: &CoreDisks) {
        let stays = makes(Canary::MoveUnfollowed) && spec.moves > self.moves.get();
        if spec.moves < self.moves.get() || stays {
            return;
        }
        self.moves.set(spec.moves);
        assert!(spec.index == self.index() && spec.len >= self.len(), "{spec:?} is not this slice, grown");
        assert!(spec.map_pages as usize >= self.map_pages(), "a copy stays one: {spec:?}");
        assert!(self.layout().is_of(&spec.kind), "{spec:?} is from before the volume was converted");
        if let Some((conversion, next)) = self.conversion().zip(spec.of_next()) {
            conversion.next.grow(next, disks);
        }
        self.layout().grow(SliceSpec { next: None, ..spec }, disks);
    }

    fn check_page(&self, page: usize) {
        let pages = self.map_pages();
        assert!(page < pages, "page {page} is outside a map of {pages}");
    }

    pub(crate) fn check(&self, offset: ByteOffset, len: ByteLen) {
        let end = offset.0.checked_add(len.0);
        assert!(
            end.is_some_and(|end| end <= self.len().0),
            "{len:?} at {offset:?} is outside a slice of {:?}",
            self.len()
        );
    }
}

/// The bad blocks among what a check has found.
fn unreadable(found: Vec<(SliceError, bool)>) -> Vec<(BadBlock, bool)> {
    let bad = found.into_iter().filter_map(|(error, is_mended)| match error {
        SliceError::Unreadable(bad) => Some((bad, is_mended)),
        _ => None,
    });
    bad.collect()
}

fn bytes(offset: ByteOffset, len: ByteLen) -> Range<u64> {
    offset.0..offset.0 + len.0
}

/// Appends a range, merging it with the last one if the two are adjacent.
pub(crate) fn join(found: &mut Vec<(ByteOffset, ByteLen)>, start: u64, len: u64) {
    match found.last_mut() {
        Some((last, last_len)) if last.0 + last_len.0 == start => last_len.0 += len,
        _ => found.push((ByteOffset(start), ByteLen(len))),
    }
}
