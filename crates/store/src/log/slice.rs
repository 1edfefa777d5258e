//! A slice of a log-structured volume.
//!
//! Blocks of 4 KiB are written as a whole. If a write covers only part of a block, the rest is read first,
//! under the range lock that every write takes. So no two records under way concern the same block, and the
//! order in which they complete does not matter.
//!
//! The pages of a copy's dirty map lie in extents of the volume, like those of a thick one.

use std::cell::{Cell, Ref, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use base::{Buf, ByteLen, ByteOffset, Chain, SharedBuf, crc32c};
use rt::{Durability, Room};

use super::leaf::LEAF_BLOCKS;
use super::pack::Packer;
use super::past::{BadVersion, FoundBad, PastCursor, SnapshotsChecked};
use super::place::{SLOT_BYTES, Size};
use super::queue::Item;
use super::read::{MAP_UNIT, Unread};
use super::{Branch, Log};
use crate::disks::{CoreDisks, PoolDisk};
use crate::error::{BadBlock, ReadFailure, SliceError};
use crate::range_lock::{Locked, RangeLock};
use crate::slice::{SliceSpec, SpecKind, join};

/// Bytes of a block.
const BLOCK: u64 = SLOT_BYTES as u64;

/// Blocks that are handed to the log at a time: 4 MiB.
///
/// So a long write neither needs all of its room at once, nor is copied as a whole.
const STEP_BLOCKS: u64 = 1024;

/// Blocks that are compressed in one go, if the turn of the core still has time for any.
const COMPRESS_BLOCKS: usize = 16;

/// One core's part of a log-structured volume.
pub struct LogSlice {
    log: Rc<Log>,
    branch: u32,
    /// What the pool says about the branch, and the log says to the pool.
    shared: Arc<Branch>,
    packer: RefCell<Packer>,
    /// Replaced when the pool gets more disks.
    disks: RefCell<CoreDisks>,
    spec: RefCell<SliceSpec>,
    lock: RangeLock,
    len: Cell<u64>,
}

impl LogSlice {
    /// Opens the slice, and its log if that is not open.
    ///
    /// # Panics
    /// If the log is open on another core.
    pub(crate) fn new(spec: SliceSpec, disks: CoreDisks) -> LogSlice {
        let SpecKind::Log { handle, branch, .. } = &spec.kind else { panic!("{spec:?} is of a log slice") };
        let log = Log::open(handle, &disks);
        // The log may not have been told yet that this is a clone.
        log.inner.take_origins();
        LogSlice {
            log,
            branch: *branch,
            shared: handle.branch(*branch).unwrap_or_default(),
            packer: RefCell::default(),
            disks: RefCell::new(disks),
            len: Cell::new(spec.len.0),
            spec: RefCell::new(spec),
            lock: RangeLock::default(),
        }
    }

    pub(crate) fn spec(&self) -> Ref<'_, SliceSpec> {
        self.spec.borrow()
    }

    pub(crate) fn disk(&self, place: u16) -> Rc<PoolDisk> {
        Rc::clone(self.disks.borrow().disk(place))
    }

    pub(crate) fn grow(&self, spec: SliceSpec, disks: &CoreDisks) {
        self.log.set_disks(disks);
        self.disks.replace(disks.clone());
        self.len.set(spec.len.0);
        self.spec.replace(spec);
    }

    pub(super) fn log(&self) -> &Rc<Log> {
        &self.log
    }

    pub(super) fn branch(&self) -> u32 {
        self.branch
    }

    /// Waits until the log serves.
    pub(crate) async fn ready(&self) -> Result<(), SliceError> {
        self.log.inner.ready().await?;
        // What it does not have itself would read as zeros.
        if self.is_orphan() { Err(SliceError::Offline) } else { Ok(()) }
    }

    /// Whether the slice is of a clone whose snapshot the log does not have.
    fn is_orphan(&self) -> bool {
        self.log.inner.state.borrow().marks.is_orphan(self.branch)
    }

    pub(crate) async fn read(&self, offset: ByteOffset, len: ByteLen) -> Result<Chain, SliceError> {
        self.read_at(None, offset, len).await
    }

    /// Reads the slice as it is now, or was in the snapshot with which an era began.
    pub(super) async fn read_at(
        &self,
        snapshot: Option<u32>,
        offset: ByteOffset,
        len: ByteLen,
    ) -> Result<Chain, SliceError> {
        self.ready().await?;
        let (start, end) = (offset.0, offset.0 + len.0);
        if start == end {
            return Ok(Chain::new());
        }
        let first = start / BLOCK;
        let data = self.read_blocks(snapshot, first..end.div_ceil(BLOCK), start).await?;
        let from = (start - first * BLOCK) as usize;
        Ok(data.slice(from..from + len.0 as usize))
    }

    /// Reads whole blocks. `from` is the offset that an error names if the first block is bad.
    async fn read_blocks(
        &self,
        snapshot: Option<u32>,
        blocks: Range<u64>,
        from: u64,
    ) -> Result<Chain, SliceError> {
        let read = self.log.inner.read(self.branch, snapshot, blocks).await;
        read.map_err(|unread| unread.error(from))
    }

    pub(crate) async fn write(
        &self,
        offset: ByteOffset,
        data: Chain,
        durability: Durability,
    ) -> Result<(), SliceError> {
        self.ready().await?;
        let range = offset.0..offset.0 + data.len() as u64;
        let _locked = self.lock(&range).await;
        self.write_locked(range, data, durability).await
    }

    async fn write_locked(
        &self,
        range: Range<u64>,
        data: Chain,
        durability: Durability,
    ) -> Result<(), SliceError> {
        let durable = durability == Durability::Durable;
        let mut at = range.start;
        while at < range.end {
            let end = ((at / BLOCK + STEP_BLOCKS) * BLOCK).min(range.end);
            let part = data.slice((at - range.start) as usize..(end - range.start) as usize);
            let whole = self.whole_blocks(at..end, part).await?;
            let items = self.items(at / BLOCK, whole).await;
            self.log.inner.append(self.branch, items, durable).await?;
            at = end;
        }
        Ok(())
    }

    /// What is to be appended for these blocks.
    async fn items(&self, first: u64, data: Chain) -> Vec<Item> {
        let items = into_items(first, data);
        if !self.shared.compresses() {
            return items;
        }
        let effort = &self.log.inner.effort;
        let mut packed = Vec::new();
        for item in items {
            match item {
                Item::Blocks { mut first, data, crcs, .. } => {
                    let parts = data.chunks(COMPRESS_BLOCKS * SLOT_BYTES).zip(crcs.chunks(COMPRESS_BLOCKS));
                    for (index, (blocks, crcs)) in parts.enumerate() {
                        effort.wait().await;
                        let at = index * COMPRESS_BLOCKS * SLOT_BYTES;
                        let run = (first, data.slice(at..at + blocks.len()));
                        effort.spend(pack(&mut self.packer.borrow_mut(), run, crcs, &mut packed));
                        first += crcs.len() as u64;
                    }
                }
                other @ (Item::Zeros { .. } | Item::Snapshot { .. }) => packed.push(other),
            }
        }
        packed
    }

    /// The blocks of a range that is about to be written, with the parts that the write leaves unchanged.
    ///
    /// The caller holds the lock.
    async fn whole_blocks(&self, range: Range<u64>, data: Chain) -> Result<Chain, SliceError> {
        let around = range.start / BLOCK * BLOCK..range.end.next_multiple_of(BLOCK);
        if around == range {
            return Ok(data);
        }
        let [head, tail] = self.edges(&range);
        let mut merged = Buf::zeroed((around.end - around.start) as usize);
        let within = |at: u64| (at - around.start) as usize;
        let mut read = None;
        for block in [head, tail].into_iter().flatten() {
            if read.replace(block) != Some(block) {
                let old = self.read_blocks(None, block..block + 1, range.start).await?;
                let start = within(block * BLOCK);
                old.copy_to(&mut merged[start..start + SLOT_BYTES]);
            }
        }
        data.copy_to(&mut merged[within(range.start)..within(range.end)]);
        Ok(merged.into())
    }

    /// The blocks that a write changes in part: the first, the last, both or none. Beyond the end of the
    /// slice there are zeros.
    fn edges(&self, range: &Range<u64>) -> [Option<u64>; 2] {
        let head = (!range.start.is_multiple_of(BLOCK)).then_some(range.start / BLOCK);
        let has_tail = !range.end.is_multiple_of(BLOCK) && range.end != self.len.get();
        [head, has_tail.then_some(range.end / BLOCK)]
    }

    pub(crate) async fn read_edges(&self, offset: ByteOffset, len: ByteLen) -> Result<(), SliceError> {
        self.ready().await?;
        let range = offset.0..offset.0 + len.0;
        for block in self.edges(&range).into_iter().flatten() {
            self.read_blocks(None, block..block + 1, range.start).await?;
        }
        Ok(())
    }

    pub(crate) async fn zero(&self, offset: ByteOffset, len: ByteLen) -> Result<(), SliceError> {
        self.ready().await?;
        let range = offset.0..offset.0 + len.0;
        let _locked = self.lock(&range).await;
        // A block that extends beyond the slice is zeroed as a whole.
        let end = if range.end == self.len.get() { range.end.next_multiple_of(BLOCK) } else { range.end };
        let (first, behind) = (range.start.div_ceil(BLOCK), end / BLOCK);
        if first < behind {
            let item = Item::Zeros { block: first, count: behind - first };
            self.log.inner.append(self.branch, vec![item], false).await?;
        }
        let edges = if first < behind {
            [range.start..first * BLOCK, (behind * BLOCK).min(range.end)..range.end]
        } else {
            [range.clone(), range.end..range.end]
        };
        for edge in edges.into_iter().filter(|edge| edge.start < edge.end) {
            let zeros = Buf::zeroed((edge.end - edge.start) as usize).into();
            self.write_locked(edge, zeros, Durability::Cached).await?;
        }
        Ok(())
    }

    /// Repairs blocks that could not be read: writes them somewhere else, durably, and reads them back.
    ///
    /// What it replaces stays with the snapshots that have it, and is noted for them.
    pub(crate) async fn rewrite(&self, offset: ByteOffset, data: Chain) -> Result<(), SliceError> {
        let len = ByteLen(data.len() as u64);
        self.ready().await?;
        let inner = &self.log.inner;
        let blocks = offset.0 / BLOCK..(offset.0 + len.0).div_ceil(BLOCK);
        let replaced = inner.kept_by_snapshots(self.branch, blocks).await;
        self.write(offset, data.clone(), Durability::Durable).await?;
        replaced.into_iter().for_each(|block| inner.handle.note_bad(self.branch, block));
        let found = self.read(offset, len).await?;
        if found.to_vec() == data.to_vec() { Ok(()) } else { Err(SliceError::Unwritable) }
    }

    /// The unit that is readable as a whole, or not at all.
    pub(crate) fn write_unit(&self) -> u64 {
        BLOCK
    }

    pub(crate) async fn reserve(&self, offset: ByteOffset, len: ByteLen) -> Result<(), SliceError> {
        self.ready().await?;
        let blocks = (offset.0 + len.0).div_ceil(BLOCK) - offset.0 / BLOCK;
        self.log.inner.reserve(self.branch, blocks).await
    }

    pub(crate) async fn room(&self) -> Option<Room> {
        self.ready().await.ok()?;
        Some(self.log.inner.room(self.branch).await)
    }

    pub(crate) async fn flush(&self) -> Result<(), SliceError> {
        self.ready().await?;
        self.log.inner.flush().await
    }

    /// Merges everything that has been written into the map, so that no recovery needs to find its records.
    pub(crate) async fn merge_all(&self) -> Result<(), SliceError> {
        self.ready().await?;
        self.log.inner.merge_all().await
    }

    pub(crate) fn is_offline(&self) -> bool {
        self.log.inner.is_offline() || self.is_orphan()
    }

    pub(crate) async fn allocated(
        &self,
        offset: ByteOffset,
        len: ByteLen,
        max: usize,
    ) -> Result<Vec<(ByteOffset, ByteLen)>, SliceError> {
        self.ready().await?;
        let mut found = Vec::new();
        let (start, end) = (offset.0, offset.0 + len.0);
        let mut at = start / BLOCK;
        // One more than requested, because the last one may still grow.
        while at * BLOCK < end && found.len() <= max {
            let Some(next) = self.log.inner.next_leaf(self.branch, at / LEAF_BLOCKS) else { break };
            at = at.max(next * LEAF_BLOCKS);
            let behind = ((next + 1) * LEAF_BLOCKS).min(end.div_ceil(BLOCK));
            if at >= behind {
                break;
            }
            let spots = self.log.inner.spots(self.branch, at..behind).await;
            let spots = spots.map_err(|unread| unread.error(start))?;
            for (block, _) in (at..).zip(&spots).filter(|(_, spot)| spot.stored().is_some()) {
                let (from, to) = ((block * BLOCK).max(start), ((block + 1) * BLOCK).min(end));
                join(&mut found, from, to - from);
            }
            at = behind;
        }
        found.truncate(max);
        Ok(found)
    }

    /// Reads the part of the map that says where the block at `offset` lies from the disk, even if it is in
    /// memory.
    pub(crate) async fn check_map(
        &self,
        offset: ByteOffset,
    ) -> Result<Option<(SliceError, bool)>, SliceError> {
        self.ready().await?;
        let checked = self.log.inner.check_leaf(self.branch, offset.0 / BLOCK).await;
        let found = checked.map_err(|unread| unread.error(offset.0))?;
        Ok(found.map(|(unread, is_mended)| (unread.error(offset.0), is_mended)))
    }

    /// Reads what only snapshots have of a range from the disk.
    pub(crate) async fn check_snapshots(
        &self,
        range: Range<u64>,
        from: PastCursor,
    ) -> Result<SnapshotsChecked, SliceError> {
        self.ready().await?;
        let numbers = range.start / MAP_UNIT..range.end.div_ceil(MAP_UNIT);
        let checked = self.log.inner.check_past(self.branch, numbers, from).await;
        checked.map_err(|unread| unread.error(range.start))
    }

    /// Takes what was noted of bad blocks while nobody read them.
    pub(crate) async fn take_noted(&self) -> Result<FoundBad, SliceError> {
        self.ready().await?;
        self.log.inner.take_noted(self.branch).await.map_err(|unread| unread.error(0))
    }

    /// Stores blocks again for the snapshots that have them.
    pub(crate) async fn put_back(&self, blocks: Vec<(BadVersion, Chain)>) -> Result<Vec<bool>, SliceError> {
        self.ready().await?;
        self.log.inner.put_back(self.branch, blocks).await
    }

    /// Reads what the log has twice, its root and its state, from the disks.
    pub(crate) async fn check_root(&self) -> Result<Vec<(SliceError, bool)>, SliceError> {
        self.ready().await?;
        let found = self.log.inner.check_root(self.branch).await?;
        Ok(found.into_iter().map(|(unread, is_mended)| (unread.error(0), is_mended)).collect())
    }

    /// Waits until no write is under way, and holds back others.
    pub(super) async fn lock_all(&self) -> Locked<'_> {
        self.lock.lock(0, u64::MAX).await
    }

    /// Waits until no other write covers blocks of the range.
    async fn lock(&self, range: &Range<u64>) -> Locked<'_> {
        self.lock.lock(range.start / BLOCK * BLOCK, range.end.next_multiple_of(BLOCK)).await
    }
}

impl Unread {
    /// The error of the slice. `from` is the offset that it names if the first block is bad.
    pub(super) fn error(self, from: u64) -> SliceError {
        let Unread::Block { block, disk, disk_offset, cause } = self else { return SliceError::Offline };
        let offset = (block * BLOCK).max(from);
        let within = if cause == ReadFailure::Map { 0 } else { offset % BLOCK };
        let offset = ByteOffset(offset);
        SliceError::Unreadable(BadBlock { offset, disk, disk_offset: disk_offset + within, cause })
    }
}

/// Whether a block is all zeros. Most blocks that are not show it in their first byte.
fn is_zeros(block: &[u8; SLOT_BYTES]) -> bool {
    static ZEROS: [u8; SLOT_BYTES] = [0; SLOT_BYTES];
    block[0] == 0 && *block == ZEROS
}

/// Converts blocks to items of a record: runs of blocks, and ranges of zeros.
fn into_items(first: u64, data: Chain) -> Vec<Item> {
    // If two parts share a block, copy everything. Requests of hosts and of other copies are in one part, and
    // the disk would have to copy what is not aligned in memory anyway.
    let has_whole_blocks = |part: &SharedBuf| part.len().is_multiple_of(SLOT_BYTES);
    let data = if data.parts().iter().all(has_whole_blocks) { data } else { data.contiguous().into() };
    let mut items = Vec::new();
    let mut block = first;
    for part in data.parts() {
        let (blocks, _) = part.as_chunks::<SLOT_BYTES>();
        let mut at = 0;
        for run in blocks.chunk_by(|one, next| is_zeros(one) == is_zeros(next)) {
            let (count, end) = (run.len() as u64, at + run.len() * SLOT_BYTES);
            if !is_zeros(&run[0]) {
                let crcs = run.iter().map(|bytes| crc32c(bytes)).collect();
                items.push(Item::Blocks { first: block, size: Size::Whole, data: part.slice(at..end), crcs });
            } else if let Some(Item::Zeros { count: before, .. }) = items.last_mut() {
                *before += count;
            } else {
                items.push(Item::Zeros { block, count });
            }
            block += count;
            at = end;
        }
    }
    items
}

/// Compresses consecutive blocks with these checksums, and adds them as runs of one size. Returns how many
/// it tried to compress.
fn pack(packer: &mut Packer, (first, data): (u64, SharedBuf), crcs: &[u32], items: &mut Vec<Item>) -> usize {
    let tried = packer.tried();
    let mut stored = Vec::new();
    let (blocks, _) = data.as_chunks::<SLOT_BYTES>();
    let sizes: Vec<Size> = blocks.iter().map(|block| packer.pack(block, &mut stored)).collect();
    let stored: SharedBuf = Buf::copy_of(&stored).share();
    let (mut at, mut stored_at) = (0, 0);
    for run in sizes.chunk_by(|one, next| one == next) {
        let (size, end) = (run[0], at + run.len());
        let data = if size.is_packed() {
            let start = stored_at;
            stored_at += run.len() * size.bytes();
            stored.slice(start..stored_at)
        } else {
            data.slice(at * SLOT_BYTES..end * SLOT_BYTES)
        };
        items.push(Item::Blocks { first: first + at as u64, size, data, crcs: crcs[at..end].to_vec() });
        at = end;
    }
    packer.tried() - tried
}

#[cfg(test)]
mod tests {
    use super::super::pack::unpack;
    use super::*;

    /// Blocks that shrink lie one behind the other; those that do not stay where they are in memory.
    #[test]
    fn runs_of_one_size_are_stored_together() {
        let mut bytes = vec![7; 6 * SLOT_BYTES];
        for block in [1, 2] {
            base::Rng::new(block as u64).fill(&mut bytes[block * SLOT_BYTES..(block + 1) * SLOT_BYTES]);
        }
        base::Rng::new(9).fill(&mut bytes[4 * SLOT_BYTES..4 * SLOT_BYTES + 1500]);
        let crcs: Vec<u32> = bytes.chunks(SLOT_BYTES).map(crc32c).collect();
        let mut items = Vec::new();
        let run = (10, Buf::copy_of(&bytes).share());
        assert_eq!(pack(&mut Packer::default(), run, &crcs, &mut items), 6);
        let expected = [
            (10, Size::Quarter, 0..1),
            (11, Size::Whole, 1..3),
            (13, Size::Quarter, 3..4),
            (14, Size::Half, 4..5),
            (15, Size::Quarter, 5..6),
        ];
        assert_eq!(items.len(), expected.len());
        for (item, (block, of, range)) in items.into_iter().zip(expected) {
            let Item::Blocks { first, size, data, crcs: found } = item else { panic!("no zeros") };
            assert_eq!((first, size, &found[..]), (block, of, &crcs[range.clone()]));
            let written = &bytes[range.start * SLOT_BYTES..range.end * SLOT_BYTES];
            if !size.is_packed() {
                assert_eq!(data[..], *written);
                continue;
            }
            let mut read = vec![0; SLOT_BYTES];
            assert_eq!(data.len(), size.bytes());
            assert!(unpack(&data, &mut read, found[0]));
            assert_eq!(read, written);
        }
    }

    /// First block, number of blocks, and whether they have data, if parts end at `cuts`.
    fn runs(bytes: &[u8], cuts: &[usize]) -> Vec<(u64, u64, bool)> {
        let (mut data, mut from) = (Chain::new(), 0);
        for to in cuts.iter().copied().chain([bytes.len()]) {
            data.push(Buf::copy_of(&bytes[from..to]).share());
            from = to;
        }
        let run = |item: Item| match item {
            Item::Blocks { first, data, crcs, .. } => {
                let at = (first - 10) as usize * SLOT_BYTES;
                assert_eq!(data[..], bytes[at..at + data.len()]);
                assert!(data.chunks(SLOT_BYTES).map(crc32c).eq(crcs.iter().copied()));
                (first, crcs.len() as u64, true)
            }
            Item::Zeros { block, count } => (block, count, false),
            Item::Snapshot { .. } => panic!("a write takes no snapshot"),
        };
        into_items(10, data).into_iter().map(run).collect()
    }

    #[test]
    fn blocks_become_runs() {
        let mut bytes = vec![7; 8 * SLOT_BYTES];
        bytes[..100].fill(0);
        for zeros in [1, 3, 4] {
            bytes[zeros * SLOT_BYTES..][..SLOT_BYTES].fill(0);
        }
        let all: [(u64, u64, bool); 5] =
            [(10, 1, true), (11, 1, false), (12, 1, true), (13, 2, false), (15, 3, true)];
        assert_eq!(runs(&bytes, &[]), all);
        assert_eq!(runs(&bytes, &[4 * SLOT_BYTES]), all, "zeros continue in the next part");
        assert_eq!(runs(&bytes, &[512, 5 * SLOT_BYTES + 512]), all, "parts share a block");
        let [head @ .., _] = all;
        let split = [&head[..], &[(15, 1, true), (16, 2, true)]].concat();
        assert_eq!(runs(&bytes, &[6 * SLOT_BYTES]), split, "data must be in one part");
    }
}
