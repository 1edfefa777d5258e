//! Reading: finds where blocks lie, reads them, and checks their checksums.

use std::ops::{Range, RangeInclusive};
use std::rc::Rc;

use base::{Buf, Chain, SharedBuf};
use rt::{DiskError, join_all};

use super::changes::Changes;
use super::leaf::{Era, LEAF_BLOCKS, LEAF_GRAIN, Leaf, LeafKey};
use super::marks::Stretch;
use super::pack::{is_intact, unpack};
use super::place::{Place, QUARTER_BYTES, SLOT_BYTES, Slots, Spot, Stored};
use super::record::reveal;
use super::segment::SLOT_GRAINS;
use super::state::LeafPlace;
use super::{Inner, Running};
use crate::canary::{Canary, makes};
use crate::error::ReadFailure;

/// Bytes of a slice whose places one leaf of the map names: if it cannot be read, neither can they.
pub const MAP_UNIT: u64 = LEAF_BLOCKS * SLOT_BYTES as u64;

/// How many pieces of one read are read concurrently: a range that was written at random is in many pieces.
const PIECES_MAX: usize = 32;

/// Why a block could not be read.
#[derive(Debug)]
pub(super) enum Unread {
    /// The block, and where it lies, or the part of the map that says so ([`ReadFailure::Map`]).
    Block { block: u64, disk: u16, disk_offset: u64, cause: ReadFailure },
    /// A disk is out of service.
    Offline,
    /// The snapshot was deleted.
    Gone,
}

/// Blocks that are consecutive both in a branch and on a disk, or that read as zeros.
struct Piece {
    first: u64,
    count: usize,
    stored: Option<Vec<Stored>>,
}

/// Adjacent slots that were read.
struct Read {
    run: Slots,
    disk: u16,
    /// Where the first one is on the disk.
    offset: u64,
    bytes: Buf,
    /// Those that could not be read, and why.
    bad: Vec<(usize, ReadFailure)>,
}

impl Read {
    /// The number of a slot among these.
    fn number(&self, slot: Place) -> Option<usize> {
        let number = slot.slot.checked_sub(self.run.first.slot)?;
        (slot.segment == self.run.first.segment && number < self.run.count).then_some(number.into())
    }
}

impl Inner {
    /// Reads the blocks of a range, as they are now, or were in the snapshot with which an era began.
    pub(super) async fn read(
        &self,
        branch: u32,
        snapshot: Option<u32>,
        blocks: Range<u64>,
    ) -> Result<Chain, Unread> {
        let mut data = Chain::new();
        let mut at = blocks.start;
        while at < blocks.end {
            // Stay within one leaf, so that only one must be in memory.
            let end = ((at / LEAF_BLOCKS + 1) * LEAF_BLOCKS).min(blocks.end);
            let (spots, _pinned) = match snapshot {
                None => self.resolve(branch, at..end).await?,
                Some(era) => self.resolve_in(branch, Some(era), at..end).await?,
            };
            data.append(self.read_spots(at, &spots).await?);
            at = end;
        }
        Ok(data)
    }

    /// Reads blocks from `first` on that have been resolved.
    pub(super) async fn read_spots(&self, first: u64, spots: &[Spot]) -> Result<Chain, Unread> {
        let is_packed = |spot: &Spot| spot.stored().is_some_and(|stored| stored.place.size().is_packed());
        if spots.iter().any(is_packed) {
            return Ok(self.read_packed(first, spots).await?.into());
        }
        let mut data = Chain::new();
        self.read_pieces(&into_pieces(first, spots)).await?.into_iter().for_each(|part| data.push(part));
        Ok(data)
    }

    async fn read_pieces(&self, pieces: &[Piece]) -> Result<Vec<SharedBuf>, Unread> {
        let mut parts = Vec::new();
        for some in pieces.chunks(PIECES_MAX) {
            match some {
                [piece] => parts.push(self.read_piece(piece).await?),
                several => {
                    for read in join_all(several.iter().map(|piece| self.read_piece(piece))).await {
                        parts.push(read?);
                    }
                }
            }
        }
        Ok(parts)
    }

    /// What the blocks of a range within one leaf read as. Their segments cannot be reused until the pin is
    /// dropped.
    async fn resolve(&self, branch: u32, blocks: Range<u64>) -> Result<(Vec<Spot>, Pinned<'_>), Unread> {
        let (first, count) = (blocks.start, (blocks.end - blocks.start) as usize);
        loop {
            let line = self.state.borrow().marks.now(branch);
            let has_parent = self.state.borrow().marks.parent(branch, line).is_some();
            let key = (Era::new(branch, line), first / LEAF_BLOCKS);
            let covered = {
                let state = self.state.borrow();
                let covers = |changes: &Changes| changes.covers(branch, line, first, count as u64);
                covers(&state.active) || state.frozen.as_ref().is_some_and(covers)
            };
            let before = self.state.borrow().leaves.get(&key).copied();
            let leaf = if covered { Ok(None) } else { self.leaf(key).await };
            let leaf = leaf.map_err(|error| self.lost(&error, first, before))?;
            let found = {
                let mut state = self.state.borrow_mut();
                // The leaf was merged meanwhile. What it said may be older than an entry that the table no
                // longer has.
                let is_stale = !covered && state.leaves.get(&key).copied() != before;
                if is_stale || state.marks.now(branch) != line {
                    continue;
                }
                let mut spots = vec![Spot::Nothing; count];
                if let Some(leaf) = leaf {
                    leaf.read((first % LEAF_BLOCKS) as usize, &mut spots);
                }
                state.overlay(branch, &(line..u32::MAX), first, &mut spots, Spot::Zeros);
                (!has_parent || !spots.contains(&Spot::Nothing)).then(|| {
                    forget(&mut spots, Spot::Zeros);
                    let segments = state.pin_all(&spots);
                    (spots, segments)
                })
            };
            let Some((spots, segments)) = found else { return self.resolve_in(branch, None, blocks).await };
            return Ok((spots, Pinned { inner: self, segments }));
        }
    }

    /// The same for blocks as they were in the snapshot with which an era began; or as they are now, in a
    /// volume that was restored, or is a clone.
    ///
    /// A block that was overwritten since is named by the first leaf that has it, from the snapshot's own on.
    /// All others are where they were at the end of the line, as far as the map and older changes say. What
    /// the line does not have is looked for in the snapshot that it went back to, or that the volume is a
    /// clone of.
    pub(super) async fn resolve_in(
        &self,
        branch: u32,
        snapshot: Option<u32>,
        blocks: Range<u64>,
    ) -> Result<(Vec<Spot>, Pinned<'_>), Unread> {
        let (first, count) = (blocks.start, (blocks.end - blocks.start) as usize);
        let (number, within) = (first / LEAF_BLOCKS, (first % LEAF_BLOCKS) as usize);
        loop {
            let places = self.state.borrow().leaves_in(branch, snapshot, number).ok_or(Unread::Gone)?;
            // What the leaves of each stretch say: those of snapshots, and that of the line.
            let mut read: Vec<(Vec<Spot>, Vec<Spot>)> = Vec::new();
            let mut found = vec![Spot::Nothing; count];
            for (stretch, leaves) in &places {
                if !found.contains(&Spot::Nothing) {
                    break;
                }
                let (mut past, mut now) = (vec![Spot::Nothing; count], vec![Spot::Nothing; count]);
                for (key, place) in leaves {
                    if !past.contains(&Spot::Nothing) {
                        break;
                    }
                    let leaf = self.leaf(*key).await;
                    let leaf = leaf.map_err(|error| self.lost(&error, first, Some(*place)))?;
                    let Some(leaf) = leaf else { break };
                    let mut spots = vec![Spot::Nothing; count];
                    leaf.read(within, &mut spots);
                    if key.0.number == stretch.line {
                        now = spots;
                    } else {
                        fill(&mut past, &spots);
                    }
                }
                let mut here = past.clone();
                fill(&mut here, &now);
                forget(&mut here, Spot::Parent);
                fill(&mut found, &here);
                read.push((past, now));
            }
            let mut state = self.state.borrow_mut();
            // Leaves were merged meanwhile.
            if state.leaves_in(branch, snapshot, number).as_ref() != Some(&places) {
                continue;
            }
            let mut spots = vec![Spot::Nothing; count];
            for ((stretch, _), (mut here, mut now)) in places.iter().zip(read) {
                state.overlay(stretch.branch, &stretch.entries, first, &mut now, Spot::Zeros);
                fill(&mut here, &now);
                forget(&mut here, Spot::Parent);
                fill(&mut spots, &here);
            }
            forget(&mut spots, Spot::Zeros);
            let segments = state.pin_all(&spots);
            return Ok((spots, Pinned { inner: self, segments }));
        }
    }

    /// The first leaf of a branch, from `number` on, some block of which was changed in these eras.
    pub(super) fn next_changed_leaf(&self, branch: u32, eras: &[Range<u32>], number: u64) -> Option<u64> {
        let state = self.state.borrow();
        let in_map = state.changed_eras(branch, eras).into_iter();
        let in_map = in_map.filter_map(|era| state.next_leaf_of_era(era, number..=u64::MAX));
        state.next_leaf_in_tables(branch, eras, number).into_iter().chain(in_map).min()
    }

    /// The first leaf, from `number` on, that may say where blocks of the snapshot lie with which an era
    /// began. If the branch is a clone, that may be one of another branch.
    pub(super) fn next_leaf_of(&self, branch: u32, snapshot: u32, number: u64) -> Option<u64> {
        let state = self.state.borrow();
        let line = state.marks.line(branch, snapshot);
        let next = |stretch: Stretch| {
            let in_map = stretch.eras().filter_map(|era| state.next_leaf_of_era(era, number..=u64::MAX));
            let written = std::slice::from_ref(&stretch.entries);
            let in_tables = state.next_leaf_in_tables(stretch.branch, written, number);
            in_tables.into_iter().chain(in_map).min()
        };
        state.marks.stretches_of(branch, line, Some(snapshot)).into_iter().filter_map(next).min()
    }

    /// Which blocks of a range within one leaf were changed in these eras, the first of which begins with a
    /// snapshot.
    pub(super) async fn changed(
        &self,
        branch: u32,
        eras: &[Range<u32>],
        blocks: Range<u64>,
    ) -> Result<Vec<bool>, Unread> {
        let (first, count) = (blocks.start, (blocks.end - blocks.start) as usize);
        let (number, within) = (first / LEAF_BLOCKS, (first % LEAF_BLOCKS) as usize);
        loop {
            let places = self.state.borrow().changed_leaves(branch, eras, number);
            let mut changed = vec![false; count];
            for (key, place) in &places {
                let leaf = self.leaf(*key).await;
                let leaf = leaf.map_err(|error| self.lost(&error, first, Some(*place)))?;
                let mut found = vec![Spot::Nothing; count];
                leaf.inspect(|leaf| leaf.read(within, &mut found));
                for (changed, found) in changed.iter_mut().zip(found) {
                    *changed |= found != Spot::Nothing;
                }
            }
            let state = self.state.borrow();
            if state.changed_leaves(branch, eras, number) != places {
                continue;
            }
            for table in state.frozen.iter().chain([&state.active]) {
                table.note_changes(branch, eras, first, &mut changed);
            }
            return Ok(changed);
        }
    }

    /// What blocks within one leaf read as, without reading them.
    pub(super) async fn spots(&self, branch: u32, blocks: Range<u64>) -> Result<Vec<Spot>, Unread> {
        Ok(self.resolve(branch, blocks).await?.0)
    }

    /// Keeps a segment from being reused until the result is dropped.
    pub(super) fn pin(&self, segment: u32) -> Pinned<'_> {
        self.state.borrow_mut().segments.pin(segment);
        Pinned { inner: self, segments: vec![segment] }
    }

    /// Reads blocks of which some are compressed. Each slot is read once, and slots that are adjacent on the
    /// disk are read together.
    async fn read_packed(&self, first: u64, spots: &[Spot]) -> Result<SharedBuf, Unread> {
        let reads = self.read_runs(spots).await?;
        let mut data = Buf::zeroed(spots.len() * SLOT_BYTES);
        for ((block, spot), target) in (first..).zip(spots).zip(data.chunks_mut(SLOT_BYTES)) {
            let Some(stored) = spot.stored() else { continue };
            let Stored { place, crc } = stored;
            let Some((read, number)) = with_slot(&reads, place) else {
                return Err(self.unread(block, self.lost_at(stored), ReadFailure::Map));
            };
            let at = (read.disk, read.offset + (number * SLOT_BYTES) as u64);
            if let Some((_, cause)) = read.bad.iter().find(|(bad, _)| *bad == number) {
                return Err(self.unread(block, at, *cause));
            }
            let start = number * SLOT_BYTES + place.first_quarter() as usize * QUARTER_BYTES;
            let bytes = &read.bytes[start..start + place.size().bytes()];
            let is_intact = if place.size().is_packed() {
                self.effort.wait().await;
                self.effort.spend(1);
                unpack(bytes, target, crc)
            } else {
                target.copy_from_slice(bytes);
                reveal(target, crc)
            };
            if !is_intact && !makes(Canary::RotReturned) {
                return Err(self.unread(block, at, ReadFailure::Medium));
            }
        }
        Ok(data.share())
    }

    /// Reads the slots in which blocks lie, in their order.
    async fn read_runs(&self, spots: &[Spot]) -> Result<Vec<Read>, Unread> {
        let mut reads = Vec::new();
        for some in into_runs(spots).chunks(PIECES_MAX) {
            for read in join_all(some.iter().map(|run| self.read_run(*run))).await {
                reads.push(read?);
            }
        }
        Ok(reads)
    }

    /// Reads blocks, each on its own. Returns for each why it cannot be read; `None`: it can.
    ///
    /// The caller has pinned their segments.
    ///
    /// # Errors
    /// [`Unread::Offline`].
    pub(super) async fn failures(&self, blocks: &[Stored]) -> Result<Vec<Option<ReadFailure>>, Unread> {
        let spots: Vec<Spot> = blocks.iter().copied().map(Spot::At).collect();
        let reads = self.read_runs(&spots).await?;
        let mut failures = Vec::new();
        for Stored { place, crc } in blocks {
            let Some((read, number)) = with_slot(&reads, *place) else {
                failures.push(Some(ReadFailure::Map));
                continue;
            };
            if let Some((_, cause)) = read.bad.iter().find(|(bad, _)| *bad == number) {
                failures.push(Some(*cause));
                continue;
            }
            if place.size().is_packed() {
                self.effort.wait().await;
                self.effort.spend(1);
            }
            let start = number * SLOT_BYTES + place.first_quarter() as usize * QUARTER_BYTES;
            let mut stored = read.bytes[start..start + place.size().bytes()].to_vec();
            failures.push((!is_intact(&mut stored, place.size(), *crc)).then_some(ReadFailure::Medium));
        }
        Ok(failures)
    }

    /// Reads slots, as far as the disk can read them.
    async fn read_run(&self, run: Slots) -> Result<Read, Unread> {
        let (slots, len) = (usize::from(run.count), usize::from(run.count) * SLOT_BYTES);
        let all_bad = |cause: ReadFailure| -> Vec<(usize, ReadFailure)> {
            (0..slots).map(|number| (number, cause)).collect()
        };
        let Some((disk, number, offset)) = self.locate(run.first) else {
            let (disk, offset, bytes) = (0, 0, Buf::zeroed(len));
            return Ok(Read { run, disk, offset, bytes, bad: all_bad(ReadFailure::Map) });
        };
        let (bytes, bad) = match disk.read(offset, Buf::uncleared(len)).await {
            Ok(bytes) => (bytes, Vec::new()),
            Err(DiskError::Latched) => return Err(Unread::Offline),
            Err(DiskError::Media(_)) if slots > 1 => {
                let (mut bytes, mut bad) = (Buf::zeroed(len), Vec::new());
                for (index, slot) in bytes.chunks_mut(SLOT_BYTES).enumerate() {
                    let at = offset + (index * SLOT_BYTES) as u64;
                    match disk.read(at, Buf::uncleared(SLOT_BYTES)).await {
                        Ok(read) => slot.copy_from_slice(&read),
                        Err(DiskError::Latched) => return Err(Unread::Offline),
                        Err(error) => bad.push((index, ReadFailure::of(&error))),
                    }
                }
                (bytes, bad)
            }
            Err(error) => (Buf::zeroed(len), all_bad(ReadFailure::of(&error))),
        };
        Ok(Read { run, disk: number, offset, bytes, bad })
    }

    /// The disk, and an offset there, to be named for a block that lies in no segment: the disk of the leaf
    /// with which it was lost.
    fn lost_at(&self, stored: Stored) -> (u16, u64) {
        let is_known = |disk: &u16| self.disks.borrow().get((*disk).into()).is_some();
        (stored.lost_on().filter(is_known).unwrap_or(0), 0)
    }

    fn unread(&self, block: u64, (disk, disk_offset): (u16, u64), cause: ReadFailure) -> Unread {
        let log = self.handle.number;
        tracing::warn!(log, block, disk, disk_offset, ?cause, "a log cannot read a block");
        Unread::Block { block, disk, disk_offset, cause }
    }

    async fn read_piece(&self, piece: &Piece) -> Result<SharedBuf, Unread> {
        let len = piece.count * SLOT_BYTES;
        let Some(stored) = &piece.stored else { return Ok(Buf::zeroed(len).share()) };
        let start = stored[0].place;
        let unread = |number: usize, (disk, disk_offset): (u16, u64), cause| {
            let at = (disk, disk_offset + (number * SLOT_BYTES) as u64);
            self.unread(piece.first + number as u64, at, cause)
        };
        let Some((disk, number, at)) = self.locate(start) else {
            return Err(unread(0, self.lost_at(stored[0]), ReadFailure::Map));
        };
        let mut data = match disk.read(at, Buf::uncleared(len)).await {
            Ok(data) => data,
            Err(DiskError::Media(_)) if piece.count > 1 => {
                // Read block by block, to name the first bad one.
                let mut data = Buf::uncleared(len);
                for (index, block) in data.chunks_mut(SLOT_BYTES).enumerate() {
                    let offset = at + (index * SLOT_BYTES) as u64;
                    match disk.read(offset, Buf::uncleared(SLOT_BYTES)).await {
                        Ok(read) => block.copy_from_slice(&read),
                        Err(error) => return Err(unread(index, (number, at), ReadFailure::of(&error))),
                    }
                }
                data
            }
            Err(DiskError::Latched) => return Err(Unread::Offline),
            Err(error) => return Err(unread(0, (number, at), ReadFailure::of(&error))),
        };
        for (index, (block, stored)) in data.chunks_mut(SLOT_BYTES).zip(stored).enumerate() {
            if !reveal(block, stored.crc) && !makes(Canary::RotReturned) {
                return Err(unread(index, (number, at), ReadFailure::Medium));
            }
        }
        Ok(data.share())
    }

    /// The error for a leaf that cannot be read: nor can `block`, whose place it holds.
    fn lost(&self, error: &DiskError, block: u64, leaf: Option<LeafPlace>) -> Unread {
        if matches!(error, DiskError::Latched) {
            return Unread::Offline;
        }
        let segment = leaf.and_then(|leaf| self.locate(Place::new(leaf.segment, 0)));
        let (disk, disk_offset) = segment.zip(leaf).map_or((0, 0), |((_, disk, start), leaf)| {
            (disk, start + u64::from(leaf.at) * LEAF_GRAIN as u64)
        });
        let cause = if error.is_medium() { ReadFailure::Map } else { ReadFailure::Device };
        Unread::Block { block, disk, disk_offset, cause }
    }

    /// Reads a leaf; `None` if the map has none there.
    ///
    /// # Errors
    /// [`DiskError::Latched`]; all others mean that the leaf cannot be read.
    pub(super) async fn leaf(&self, key: LeafKey) -> Result<Option<Leaf>, DiskError> {
        loop {
            let place = {
                let mut state = self.state.borrow_mut();
                let Some(place) = state.leaves.get(&key).copied() else { return Ok(None) };
                let known = state.cache.get(key).or_else(|| state.mending.get(&key).cloned());
                if let Some(leaf) = known {
                    return Ok(Some(leaf));
                }
                place
            };
            let leaf = self.leaf_on_disk(key, place).await?;
            let mut state = self.state.borrow_mut();
            if state.leaves.get(&key) != Some(&place) {
                continue;
            }
            let leaf = leaf.ok_or_else(damaged)?;
            state.cache.insert(key, leaf.clone());
            return Ok(Some(leaf));
        }
    }

    /// Reads a leaf at this place. `None`: it is damaged, or has moved meanwhile.
    async fn leaf_on_disk(&self, key: LeafKey, place: LeafPlace) -> Result<Option<Leaf>, DiskError> {
        let generation =
            self.state.borrow().segments.used.get(&place.segment).map_or(0, |used| used.generation);
        let _pinned = self.pin(place.segment);
        let first = place.at / SLOT_GRAINS;
        let end = (place.at + u32::from(place.len)).div_ceil(SLOT_GRAINS);
        let from = Place::new(place.segment, first as u16);
        let read = match self.locate(from) {
            Some((disk, _, at)) => disk.read(at, Buf::uncleared((end - first) as usize * SLOT_BYTES)).await,
            None => Err(DiskError::Range { offset: u64::from(place.segment), len: u64::from(place.len) }),
        };
        let read = read?;
        let start = (place.at - first * SLOT_GRAINS) as usize * LEAF_GRAIN;
        let bytes = &read[start..start + usize::from(place.len) * LEAF_GRAIN];
        Ok(Leaf::check(bytes, key, generation))
    }

    /// Reads the leaf of a block from the disk although it is in memory, which is where all other reads find
    /// it. Returns the error if the disk cannot read it, and whether it has been written again.
    ///
    /// # Errors
    /// [`Unread::Offline`].
    pub(super) async fn check_leaf(
        self: &Rc<Inner>,
        branch: u32,
        block: u64,
    ) -> Result<Option<(Unread, bool)>, Unread> {
        let key = (Era::new(branch, self.state.borrow().marks.now(branch)), block / LEAF_BLOCKS);
        // If it is not in memory, the read of a block checks it.
        let is_known = self.state.borrow().cache.peek(key).is_some();
        if is_known { self.check_leaf_of(key, block).await } else { Ok(None) }
    }

    /// Reads a leaf from the disk. If the disk cannot read it, one that is in memory is written again.
    ///
    /// Until then it stays in memory: a checkpoint that found it neither there nor on the disk would lose
    /// what it says.
    pub(super) async fn check_leaf_of(
        self: &Rc<Inner>,
        key: LeafKey,
        block: u64,
    ) -> Result<Option<(Unread, bool)>, Unread> {
        loop {
            let (place, leaf) = {
                let state = self.state.borrow();
                let Some(place) = state.leaves.get(&key).copied() else { return Ok(None) };
                (place, state.cache.peek(key))
            };
            let read = self.leaf_on_disk(key, place).await;
            if self.state.borrow().leaves.get(&key) != Some(&place) {
                continue;
            }
            let error = match read {
                Ok(Some(_)) => return Ok(None),
                Ok(None) => damaged(),
                Err(DiskError::Latched) => return Err(Unread::Offline),
                Err(error) => error,
            };
            let unread = self.lost(&error, block, Some(place));
            let Some(leaf) = leaf else { return Ok(Some((unread, false))) };
            self.state.borrow_mut().mending.insert(key, leaf);
            let is_mended = self.merge_all().await.is_ok();
            return Ok(Some((unread, is_mended)));
        }
    }
}

impl Running {
    /// Applies what the tables say about blocks in these eras. What was zeroed becomes `zeros`.
    fn overlay(&self, branch: u32, eras: &Range<u32>, first: u64, spots: &mut [Spot], zeros: Spot) {
        for table in self.frozen.iter().chain([&self.active]) {
            table.overlay_all(branch, eras, first, spots, zeros);
        }
    }

    /// The places of the leaves of this number that may have blocks of a snapshot: its own, those of later
    /// ones, and that of the line at its end; and so on for the snapshot that the line is read through,
    /// perhaps of another branch. Or those that may have blocks of the branch as it is now. `None`: the
    /// snapshot was deleted.
    fn leaves_in(&self, branch: u32, snapshot: Option<u32>, number: u64) -> Option<Places> {
        let stretches = self.marks.stretches(branch, snapshot)?;
        let places = |stretch: Stretch| {
            let leaves = stretch.eras().filter_map(|era| self.leaf_place((era, number))).collect();
            (stretch, leaves)
        };
        Some(stretches.into_iter().map(places).collect())
    }

    fn leaf_place(&self, key: LeafKey) -> Option<(LeafKey, LeafPlace)> {
        Some((key, *self.leaves.get(&key)?))
    }

    /// The first of these leaves that the map has of an era.
    pub(super) fn next_leaf_of_era(&self, era: Era, leaves: RangeInclusive<u64>) -> Option<u64> {
        let (first, last) = leaves.into_inner();
        self.leaves.range((era, first)..=(era, last)).next().map(|((_, number), _)| *number)
    }

    /// The first leaf of a branch, from `number` on, that the tables' entries of these eras change.
    fn next_leaf_in_tables(&self, branch: u32, eras: &[Range<u32>], number: u64) -> Option<u64> {
        let tables = self.frozen.iter().chain([&self.active]);
        let changed = tables.filter_map(|table| table.next_change(branch, eras, number * LEAF_BLOCKS));
        changed.map(|block| block / LEAF_BLOCKS).min()
    }

    /// The eras, of these, of which the map may have leaves.
    fn changed_eras(&self, branch: u32, eras: &[Range<u32>]) -> Vec<Era> {
        let snapshots = self.marks.of(branch).iter().map(|mark| mark.era);
        let all = snapshots.chain(self.marks.lines(branch));
        let those = all.filter(|era| eras.iter().any(|eras| eras.contains(era)));
        those.map(|era| Era::new(branch, era)).collect()
    }

    /// The leaves of this number that say what was changed in these eras.
    fn changed_leaves(&self, branch: u32, eras: &[Range<u32>], number: u64) -> Vec<(LeafKey, LeafPlace)> {
        let eras = self.changed_eras(branch, eras).into_iter();
        eras.filter_map(|era| self.leaf_place((era, number))).collect()
    }

    /// Keeps the segments in which blocks lie from being reused, and returns them.
    fn pin_all(&mut self, spots: &[Spot]) -> Vec<u32> {
        let stored = spots.iter().filter_map(|spot| spot.stored());
        let mut segments: Vec<u32> = stored.map(|stored| stored.place.segment).collect();
        segments.dedup();
        segments.iter().for_each(|segment| self.segments.pin(*segment));
        segments
    }
}

/// Where blocks are looked for, and the places of the leaves.
type Places = Vec<(Stretch, Vec<(LeafKey, LeafPlace)>)>;

/// Takes what is missing from what comes next.
fn fill(spots: &mut [Spot], next: &[Spot]) {
    for (spot, next) in spots.iter_mut().zip(next).filter(|(spot, _)| **spot == Spot::Nothing) {
        *spot = *next;
    }
}

/// Nothing is known of those that read so: they are looked for in the parent, or are zeros.
fn forget(spots: &mut [Spot], what: Spot) {
    spots.iter_mut().filter(|spot| **spot == what).for_each(|spot| *spot = Spot::Nothing);
}

/// The error for a leaf that the disk read, but that is not the right one.
fn damaged() -> DiskError {
    DiskError::Media(std::io::ErrorKind::InvalidData.into())
}

/// Segments that are being read.
pub(super) struct Pinned<'a> {
    inner: &'a Inner,
    segments: Vec<u32>,
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        let mut freed = false;
        {
            let mut state = self.inner.state.borrow_mut();
            for segment in &self.segments {
                freed |= state.segments.unpin(*segment);
            }
            state.stock_changed |= freed;
        }
        // Writes may wait for these segments, and no other task may be left that would announce them.
        if freed {
            self.inner.handle.bell.ring();
        }
    }
}

/// The slots in which blocks lie, in order.
fn into_runs(spots: &[Spot]) -> Vec<Slots> {
    let stored = spots.iter().filter_map(|spot| spot.stored());
    let mut slots: Vec<Place> = stored
        .filter(|stored| stored.place != Place::LOST)
        .map(|stored| Place::new(stored.place.segment, stored.place.slot))
        .collect();
    slots.sort_unstable();
    slots.dedup();
    let mut runs = Vec::new();
    slots.into_iter().for_each(|slot| Slots::add(&mut runs, slot));
    runs
}

/// The read with the slot of a block, and the slot's number there. Reads are in the order of their slots.
fn with_slot(reads: &[Read], block: Place) -> Option<(&Read, usize)> {
    let slot = Place::new(block.segment, block.slot);
    let behind = reads.partition_point(|read| read.run.first <= slot);
    let read = reads.get(behind.checked_sub(1)?)?;
    Some((read, read.number(slot)?))
}

/// Splits what blocks read as into pieces, each of which is one read.
fn into_pieces(first: u64, spots: &[Spot]) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for (block, spot) in (first..).zip(spots) {
        let continues = |piece: &&mut Piece| match (&piece.stored, spot) {
            (None, Spot::Nothing) => true,
            (Some(stored), Spot::At(next)) => {
                let last = stored[stored.len() - 1].place;
                next.place != Place::LOST && last.segment == next.place.segment && last.next() == next.place
            }
            _ => false,
        };
        match pieces.last_mut().filter(continues) {
            Some(piece) => {
                piece.count += 1;
                if let (Some(stored), Spot::At(next)) = (&mut piece.stored, spot) {
                    stored.push(*next);
                }
            }
            None => {
                let stored = spot.stored().map(|stored| vec![stored]);
                pieces.push(Piece { first: block, count: 1, stored });
            }
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::super::place::Size;
    use super::*;

    /// However blocks are spread over slots, each slot is read once.
    #[test]
    fn slots_are_read_once_and_together() {
        let spot = |place| Spot::At(Stored { place, crc: 0 });
        let half = |quarter| spot(Place::at(1, quarter, Size::Half));
        let quarter = |quarter| spot(Place::at(1, quarter, Size::Quarter));
        let (whole, lost) = (|slot| spot(Place::new(1, slot)), spot(Place::LOST));
        let spots = [half(42), whole(5), Spot::Nothing, half(40), quarter(47), lost, whole(6), quarter(24)];
        assert_eq!(into_runs(&spots), [Place::new(1, 5).run(2), Place::new(1, 10).run(2)]);
        let next = [spot(Place::new(2, 0)), spot(Place::new(1, 16383))];
        assert_eq!(into_runs(&next), [Place::new(1, 16383).run(1), Place::new(2, 0).run(1)]);
    }
}
