//! What only snapshots have: scrubs of it, and the repair of blocks that a disk cannot read.
//!
//! Hosts never read it, so rot there would show when somebody goes back to the snapshot. Each block that the
//! map names is named by one leaf, so the leaves of snapshots and of former lines name all that only they
//! have, each block once.
//!
//! A repair is a move, as by the cleaner, whose data comes from outside. The checksum in the map proves that
//! this is the block. Whichever leaf names the block when the move is merged names the new place from then
//! on, so all snapshots that have the block are repaired together, and what the branch reads as now stays.

use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use base::{Buf, ByteOffset, Chain, SharedBuf, crc32c};
use rt::DiskError;

use super::append::Survivor;
use super::leaf::{Era, LEAF_BLOCKS, Leaf, LeafKey};
use super::marks::Standing;
use super::pack::Packer;
use super::place::{Place, SLOT_BYTES, Spot, Stored};
use super::read::Unread;
use super::{Inner, Running};
use crate::error::{BadBlock, ReadFailure, SliceError};

/// Bytes of a block.
const BLOCK: u64 = SLOT_BYTES as u64;

/// How many blocks a step of a scrub reads at most: 256 KiB, as for what the slice reads as now.
const STEP_BLOCKS: usize = 64;

/// How many leaves a step reads at most.
const STEP_LEAVES: usize = 16;

/// Where a step of a scrub of what only snapshots have begins. The default is the first step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PastCursor {
    /// The era and the number of a leaf, and a block in it.
    era: u32,
    leaf: u64,
    block: u16,
}

/// What a step of such a scrub has done.
#[derive(Debug, Default)]
pub struct SnapshotsChecked {
    /// Where the next step begins; `None`: this was the last one.
    pub next: Option<PastCursor>,
    /// How many bytes of blocks were read.
    pub read: u64,
    /// The damaged parts of the map, and whether each was in memory and has been written again.
    pub parts: Vec<(BadBlock, bool)>,
    /// The blocks that cannot be read.
    pub blocks: Vec<BadVersion>,
}

/// A block that a disk cannot read, and that only snapshots have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadVersion {
    /// Where it is.
    pub block: BadBlock,
    /// The number of a snapshot that has it, as in [`SnapshotInfo::id`](crate::SnapshotInfo::id).
    pub snapshot: u64,
    /// Where it lies, and that segment's generation.
    stored: Stored,
    generation: u64,
    /// The era of the leaf that names it.
    owner: u32,
}

impl BadVersion {
    /// Whether these 4,096 bytes are the block.
    pub fn is(&self, data: &[u8]) -> bool {
        data.len() == SLOT_BYTES && crc32c(data) == self.stored.crc
    }

    /// The block with these bytes as it is stored in a place of the same size; `None`: they are not its
    /// bytes, or this version compresses it to another size.
    fn as_stored(&self, data: &Chain) -> Option<SharedBuf> {
        let bytes = data.to_vec();
        let block: &[u8; SLOT_BYTES] = bytes.as_slice().try_into().ok()?;
        if !self.is(block) {
            return None;
        }
        let size = self.stored.place.size();
        if !size.is_packed() {
            return Some(Buf::copy_of(block).share());
        }
        let mut packed = Vec::new();
        let is_same = Packer::default().pack(block, &mut packed) == size;
        is_same.then(|| Buf::copy_of(&packed).share())
    }
}

/// The bad blocks of a slice that were noted while nobody read them.
#[derive(Debug, Default)]
pub struct FoundBad {
    /// Those that the slice has now.
    pub now: Vec<BadBlock>,
    /// Those that only snapshots have.
    pub past: Vec<BadVersion>,
}

/// A block that was found bad while nobody read it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted {
    pub block: u64,
    pub stored: Stored,
    /// The generation of its segment.
    pub generation: u64,
}

/// Whether a block lies in this place.
fn is_at(spots: &[Spot], place: Place) -> bool {
    spots.first().and_then(|spot| spot.stored()).is_some_and(|stored| stored.place == place)
}

impl Running {
    /// The eras of a branch's leaves that do not say what it reads as now: snapshots, also deleted ones that
    /// others are read through, and former lines.
    fn past_eras(&self, branch: u32) -> BTreeSet<u32> {
        let former = self.marks.lines(branch).filter(|line| *line != self.marks.now(branch));
        self.marks.of(branch).iter().map(|mark| mark.era).chain(former).collect()
    }

    /// The next leaf of these eras with one of these numbers.
    fn next_past_leaf(
        &self,
        branch: u32,
        eras: &BTreeSet<u32>,
        numbers: &Range<u64>,
        from: PastCursor,
    ) -> Option<LeafKey> {
        eras.range(from.era..).find_map(|number| {
            let first = if *number == from.era { from.leaf.max(numbers.start) } else { numbers.start };
            let era = Era::new(branch, *number);
            let mut leaves = self.leaves.range((era, first)..(era, numbers.end.max(first)));
            leaves.next().map(|(key, _)| *key)
        })
    }

    /// Whether tables name blocks that only snapshots of a branch have: leaves do not name them yet.
    fn has_unmerged_past(&self, branch: u32) -> bool {
        let newest = self.marks.of(branch).last().map_or(0, |mark| mark.era).max(self.marks.now(branch));
        newest > 0 && self.tables().any(|table| table.has_eras(branch, &(0..newest)))
    }

    /// A block that lies in this place, if the segment is in use.
    fn noted(&self, block: u64, stored: Stored) -> Option<Noted> {
        let used = self.segments.used.get(&stored.place.segment)?;
        Some(Noted { block, stored, generation: used.generation })
    }

    /// An era in which a block that a leaf of the past names may have been written, and in which no other
    /// version of the block was. Moves of a block are told apart by that.
    ///
    /// The leaf names the last version before its snapshot, or before the end of its line.
    fn era_of_version(&self, branch: u32, owner: u32) -> u32 {
        let is_line = self.marks.is_line(branch, owner);
        let end = if is_line { self.marks.eras_of_line(branch, owner).end } else { owner };
        end.saturating_sub(1)
    }
}

impl Inner {
    /// One step of a scrub of what only snapshots of a branch have, in leaves with these numbers.
    ///
    /// # Errors
    /// [`Unread::Offline`].
    pub(super) async fn check_past(
        self: &Rc<Inner>,
        branch: u32,
        numbers: Range<u64>,
        from: PastCursor,
    ) -> Result<SnapshotsChecked, Unread> {
        let is_first = numbers.start == 0 && from == PastCursor::default();
        if is_first && self.state.borrow().has_unmerged_past(branch) {
            self.merge_all().await.map_err(|_| Unread::Offline)?;
        }
        let eras = self.state.borrow().past_eras(branch);
        let (mut step, mut at, mut read) = (SnapshotsChecked::default(), from, 0);
        for _ in 0..STEP_LEAVES {
            if read >= STEP_BLOCKS {
                break;
            }
            let next = self.state.borrow().next_past_leaf(branch, &eras, &numbers, at);
            let Some(key) = next else { return Ok(step) };
            if (at.era, at.leaf) != (key.0.number, key.1) {
                at = PastCursor { era: key.0.number, leaf: key.1, block: 0 };
            }
            if at.block == 0 {
                let found = self.check_leaf_of(key, key.1 * LEAF_BLOCKS).await?;
                if let Some((unread, is_mended)) = found
                    && let SliceError::Unreadable(bad) = unread.error(0)
                {
                    step.parts.push((bad, is_mended));
                }
            }
            let blocks = self.blocks_of_past(key, &mut at.block, STEP_BLOCKS - read).await?;
            read += blocks.len();
            step.read += blocks.len() as u64 * BLOCK;
            step.blocks.extend(self.bad_among(key, &blocks).await?);
            if u64::from(at.block) >= LEAF_BLOCKS {
                at = PastCursor { leaf: at.leaf + 1, block: 0, ..at };
            }
        }
        step.next = Some(at);
        Ok(step)
    }

    /// The next blocks that a leaf of the past names, from `at` on, and of these at most `max`: without those
    /// that the branch reads as now, which a scrub reads anyway. Sets `at` behind them.
    async fn blocks_of_past(
        &self,
        key: LeafKey,
        at: &mut u16,
        max: usize,
    ) -> Result<Vec<(u64, Stored)>, Unread> {
        let here = self.spots_now(key).await?;
        // Hosts' reads have more use for the cache.
        let is_known = self.state.borrow().cache.peek(key).is_some();
        let leaf = self.leaf_unless_unreadable(key).await?;
        if !is_known {
            self.state.borrow_mut().cache.remove(key);
        }
        let mut blocks = Vec::new();
        let Some(leaf) = leaf else {
            *at = LEAF_BLOCKS as u16;
            return Ok(blocks);
        };
        let spots = leaf.spots();
        while u64::from(*at) < LEAF_BLOCKS && blocks.len() < max {
            let index = usize::from(*at);
            // Of a lost block nothing is known but that it is lost, which was reported with its leaf.
            let stored = spots[index].stored().filter(|stored| stored.place != Place::LOST);
            if let Some(stored) = stored.filter(|_| here.get(index) != Some(&spots[index])) {
                blocks.push((key.1 * LEAF_BLOCKS + u64::from(*at), stored));
            }
            *at += 1;
        }
        Ok(blocks)
    }

    /// A leaf; `None`: the map has none there, or the disk cannot read it.
    async fn leaf_unless_unreadable(&self, key: LeafKey) -> Result<Option<Leaf>, Unread> {
        match self.leaf(key).await {
            Ok(leaf) => Ok(leaf),
            Err(DiskError::Latched) => Err(Unread::Offline),
            Err(_) => Ok(None),
        }
    }

    /// What the blocks of a leaf's number read as now, if that may be what the leaf names: if the branch is
    /// read through former lines.
    async fn spots_now(&self, (era, number): LeafKey) -> Result<Vec<Spot>, Unread> {
        let has_parent = {
            let state = self.state.borrow();
            state.marks.parent(era.branch, state.marks.now(era.branch)).is_some()
        };
        if !has_parent {
            return Ok(Vec::new());
        }
        let first = number * LEAF_BLOCKS;
        match self.spots(era.branch, first..first + LEAF_BLOCKS).await {
            Ok(spots) => Ok(spots),
            Err(Unread::Offline) => Err(Unread::Offline),
            Err(_) => Ok(Vec::new()),
        }
    }

    /// Reads blocks that a leaf of the past names. Returns those that cannot be read, and that some snapshot
    /// has.
    async fn bad_among(
        &self,
        (era, number): LeafKey,
        blocks: &[(u64, Stored)],
    ) -> Result<Vec<BadVersion>, Unread> {
        let mut bad = Vec::new();
        if blocks.is_empty() {
            return Ok(bad);
        }
        // In the step in which the leaf was found to be the current one, so they are where it says.
        let there: Vec<Noted> = {
            let state = self.state.borrow();
            let there = blocks.iter().filter(|(_, stored)| state.segments.is_set(stored.place));
            there.filter_map(|(block, stored)| state.noted(*block, *stored)).collect()
        };
        let _pinned: Vec<_> = there.iter().map(|noted| self.pin(noted.stored.place.segment)).collect();
        let stored: Vec<Stored> = there.iter().map(|noted| noted.stored).collect();
        let failures = self.failures(&stored).await?;
        for (noted, cause) in there.into_iter().zip(failures) {
            let Some(cause) = cause else { continue };
            tracing::warn!(
                log = self.handle.number,
                block = noted.block,
                leaf = number,
                ?cause,
                "a log cannot read a block of a snapshot"
            );
            bad.extend(self.version_of(era, noted, cause).await?);
        }
        Ok(bad)
    }

    /// A bad block that a leaf of this era names; `None`: no snapshot has it, or it is not there any more.
    async fn version_of(
        &self,
        owner: Era,
        Noted { block, stored, generation }: Noted,
        cause: ReadFailure,
    ) -> Result<Option<BadVersion>, Unread> {
        let Some((disk, disk_offset)) = self.slot_of(stored.place) else { return Ok(None) };
        let snapshot = self.snapshot_with(owner, block, stored.place).await?;
        let is_there = self.state.borrow().is_still_there(stored.place, generation);
        let block = BadBlock { offset: ByteOffset(block * BLOCK), disk, disk_offset, cause };
        let version = |snapshot| BadVersion { block, snapshot, stored, generation, owner: owner.number };
        Ok(snapshot.filter(|_| is_there).map(version))
    }

    /// The disk of a place, and where its slot begins there.
    fn slot_of(&self, place: Place) -> Option<(u16, u64)> {
        self.locate(Place::new(place.segment, place.slot)).map(|(_, disk, at)| (disk, at))
    }

    /// A snapshot that has a block which a leaf of this era names: most likely that of the era, or the one
    /// before it.
    async fn snapshot_with(&self, owner: Era, block: u64, place: Place) -> Result<Option<u64>, Unread> {
        let (earlier, later): (Vec<_>, Vec<_>) = {
            let state = self.state.borrow();
            let kept = state.marks.of(owner.branch).iter().filter(|mark| mark.standing == Standing::Kept);
            kept.map(|mark| (mark.era, mark.id)).partition(|(era, _)| *era <= owner.number)
        };
        for (era, id) in earlier.into_iter().rev().chain(later) {
            match self.resolve_in(owner.branch, Some(era), block..block + 1).await {
                Ok((spots, _)) if is_at(&spots, place) => return Ok(Some(id)),
                Err(Unread::Offline) => return Err(Unread::Offline),
                Ok(_) | Err(_) => {}
            }
            rt::yield_now().await;
        }
        Ok(None)
    }

    /// The blocks of a range that snapshots may keep when they are overwritten. None if the map does not say
    /// where they are.
    pub(super) async fn kept_by_snapshots(&self, branch: u32, blocks: Range<u64>) -> Vec<Noted> {
        let mut kept = Vec::new();
        if self.state.borrow().marks.is_bare(branch) {
            return kept;
        }
        let mut at = blocks.start;
        while at < blocks.end {
            let end = ((at / LEAF_BLOCKS + 1) * LEAF_BLOCKS).min(blocks.end);
            let spots = self.spots(branch, at..end).await.unwrap_or_default();
            let state = self.state.borrow();
            let stored = (at..).zip(spots).filter_map(|(block, spot)| Some((block, spot.stored()?)));
            kept.extend(stored.filter_map(|(block, stored)| state.noted(block, stored)));
            at = end;
        }
        kept
    }

    /// Takes what was noted of a branch's bad blocks, and sorts it.
    ///
    /// # Errors
    /// [`Unread::Offline`].
    pub(super) async fn take_noted(self: &Rc<Inner>, branch: u32) -> Result<FoundBad, Unread> {
        let mut found = FoundBad::default();
        let noted = self.handle.take_bad(branch);
        if noted.is_empty() {
            return Ok(found);
        }
        // Until then, what a repair has replaced is the branch's still, as far as leaves say.
        self.merge_all().await.map_err(|_| Unread::Offline)?;
        for noted in noted {
            let place = noted.stored.place;
            if !self.state.borrow().is_still_there(place, noted.generation) {
                continue;
            }
            let _pinned = self.pin(place.segment);
            let Some(cause) = self.failures(&[noted.stored]).await?.pop().flatten() else { continue };
            let Some(owner) = self.owner(branch, noted.block, place).await? else { continue };
            if owner != self.state.borrow().marks.now(branch) {
                found.past.extend(self.version_of(Era::new(branch, owner), noted, cause).await?);
            } else if let Some((disk, disk_offset)) = self.slot_of(place) {
                let offset = ByteOffset(noted.block * BLOCK);
                found.now.push(BadBlock { offset, disk, disk_offset, cause });
            }
        }
        Ok(found)
    }

    /// The era of the leaf that names a place for a block, if any does.
    async fn owner(&self, branch: u32, block: u64, place: Place) -> Result<Option<u32>, Unread> {
        let eras: Vec<u32> = {
            let state = self.state.borrow();
            std::iter::once(state.marks.now(branch)).chain(state.past_eras(branch)).collect()
        };
        for era in eras {
            let key = (Era::new(branch, era), block / LEAF_BLOCKS);
            let Some(leaf) = self.leaf_unless_unreadable(key).await? else { continue };
            let mut spots = [Spot::Nothing];
            leaf.read((block % LEAF_BLOCKS) as usize, &mut spots);
            if is_at(&spots, place) {
                return Ok(Some(era));
            }
        }
        Ok(None)
    }

    /// Stores blocks again that a disk cannot read, and that only snapshots have. Returns for each whether it
    /// can be read now.
    ///
    /// # Errors
    /// Those of writes.
    pub(super) async fn put_back(
        self: &Rc<Inner>,
        branch: u32,
        blocks: Vec<(BadVersion, Chain)>,
    ) -> Result<Vec<bool>, SliceError> {
        // A leaf names each of them, maybe since a merge that is not durable yet. If a replay entered one in
        // its table again, it would find that no leaf names what the move comes from, and free both places.
        self.merge_all().await?;
        let mut stored = Vec::new();
        for (bad, data) in &blocks {
            stored.push(self.store_again(branch, bad, data).await?);
        }
        self.merge_all().await?;
        let mut repaired = Vec::new();
        for ((bad, _), place) in blocks.iter().zip(stored) {
            let is_moved = !self.state.borrow().is_still_there(bad.stored.place, bad.generation);
            let place = place.filter(|_| is_moved);
            repaired.push(match place {
                None => false,
                Some(place) => {
                    let _pinned = self.pin(place.segment);
                    let read = self.failures(&[Stored { place, ..bad.stored }]).await;
                    read.map_err(|unread| unread.error(0))?.iter().all(Option::is_none)
                }
            });
        }
        Ok(repaired)
    }

    /// Writes a block as the cleaner moves one. Returns where; `None`: these are not its bytes, nobody needs
    /// it any more, or there is no room.
    async fn store_again(
        &self,
        branch: u32,
        bad: &BadVersion,
        data: &Chain,
    ) -> Result<Option<Place>, SliceError> {
        let Some(data) = bad.as_stored(data) else { return Ok(None) };
        self.changed.until(|| self.state.borrow().cleaner_keeps_pace() || !self.goes_on()).await;
        if !self.goes_on() {
            return Err(SliceError::Offline);
        }
        let Stored { place: from, crc } = bad.stored;
        let may_begin = {
            let mut state = self.state.borrow_mut();
            let has_room = state.room_for_survivors() >= 2;
            // In the step that numbers the record, as for the cleaner's moves.
            has_room && state.is_still_there(from, bad.generation)
        };
        if !may_begin {
            return Ok(None);
        }
        let era = self.state.borrow().era_of_version(branch, bad.owner);
        let block = bad.block.offset.0 / BLOCK;
        let survivor = Survivor { branch, era, block, from, generation: bad.generation, crc, data };
        let Some(record) = self.survivors_record(vec![survivor]) else { return Ok(None) };
        let place = record.0.stored().next().map(|(_, place)| place);
        match self.write_survivors(record).await {
            Ok(()) => Ok(place),
            Err(SliceError::Full) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
impl Inner {
    /// All blocks that only snapshots of a branch have, as if a disk could not read any of them.
    pub(super) async fn all_past(&self, branch: u32) -> Vec<BadVersion> {
        let keys: Vec<LeafKey> = {
            let state = self.state.borrow();
            let eras = state.past_eras(branch).into_iter().map(|number| Era::new(branch, number));
            let leaves = eras.flat_map(|era| state.leaves.range((era, 0)..=(era, u64::MAX)));
            leaves.map(|(key, _)| *key).collect()
        };
        let mut all = Vec::new();
        for key in keys {
            for (block, stored) in self.blocks_of_past(key, &mut 0, usize::MAX).await.expect("no fault") {
                let noted = self.state.borrow().noted(block, stored);
                let Some(noted) = noted else { continue };
                let version = self.version_of(key.0, noted, ReadFailure::Medium).await;
                all.extend(version.expect("no fault"));
            }
        }
        all
    }
}
