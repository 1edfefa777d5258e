//! Scrubs: reading what a slice and its snapshots have in use from this node's disks, only to find bad blocks
//! and to repair them.

use std::ops::Range;

use base::{ByteLen, ByteOffset};
use store::{BadBlock, BadVersion, FoundBad, MAP_UNIT, PastCursor, ReadFailure, SliceError};

use super::{Slice, Volume};
use crate::control::{note_bad_block, note_repaired_block};

/// How much of a slice one step looks through for what is in use: a volume of 64 TiB that is empty takes two
/// million steps of some microseconds, half of which look for what only snapshots have.
const LOOK_BYTES: u64 = 64 << 20;

/// How much a step reads at most. Hosts' commands on the same disk wait for that: 2 ms on a disk that seeks,
/// or up to 64 reads, half of them at a time, if a log has the blocks in as many places.
const STEP_BYTES: u64 = 256 << 10;

/// What is read and counted as one block: the size that physical blocks of disks may have.
const BLOCK: u64 = 4096;

const _: () = assert!(LOOK_BYTES >= MAP_UNIT && MAP_UNIT.is_multiple_of(BLOCK), "each step gets somewhere");

/// Where a step of a scrub of a slice begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubAt {
    /// Offset in the slice: everything before it has been read.
    pub offset: u64,
    /// Only snapshots are left to be read of what comes next.
    past: Option<Past>,
}

/// How far a scrub of what only snapshots have is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Past {
    /// What the slice has now has been read up to here.
    end: u64,
    from: PastCursor,
}

impl ScrubAt {
    /// At this offset in the slice.
    pub fn new(offset: u64) -> ScrubAt {
        ScrubAt { offset, past: None }
    }
}

/// What a step of a scrub has done.
#[derive(Debug)]
pub struct Scrubbed {
    /// Where the next step begins; beyond the end of the slice if this was the last one.
    pub next: ScrubAt,
    /// How many bytes were read.
    pub read: u64,
    /// How many of these are in use.
    pub used: u64,
    /// The bad blocks.
    pub found: Vec<ScrubbedBlock>,
    /// Whether they have been noted.
    is_noted: bool,
}

/// A bad block that a scrub has found. A part of a log's map is one block.
#[derive(Clone, Copy, Debug)]
pub struct ScrubbedBlock {
    /// Where it is.
    pub bad: BadBlock,
    /// Whether it can be read now.
    pub is_repaired: bool,
    /// Of a block that the slice does not have now: the number that a snapshot with it has in the pool.
    pub snapshot: Option<u64>,
}

impl Scrubbed {
    fn nothing(slice: &Slice, next: ScrubAt) -> Scrubbed {
        Scrubbed { next, read: 0, used: 0, found: Vec::new(), is_noted: slice.copy().is_some() }
    }

    fn add(&mut self, bad: BadBlock, is_repaired: bool) {
        self.found.push(ScrubbedBlock { bad, is_repaired, snapshot: None });
    }

    /// Repairs blocks that only snapshots have, and adds them.
    async fn add_past(&mut self, slice: &Slice, bad: Vec<BadVersion>) -> Result<(), SliceError> {
        if bad.is_empty() {
            return Ok(());
        }
        let found = slice.repair_past(bad).await?.into_iter().map(|(version, is_repaired)| ScrubbedBlock {
            bad: version.block,
            is_repaired,
            snapshot: Some(version.snapshot),
        });
        self.found.extend(found);
        Ok(())
    }
}

impl Volume {
    /// One step of a scrub of a slice: reads what is in use, and repairs what cannot be read, as a host's
    /// read does.
    ///
    /// # Errors
    /// Those of the layout. [`SliceError::Unavailable`]: this node's copy is not in sync.
    pub async fn scrub(&self, slice: u16, at: ScrubAt) -> Result<Scrubbed, SliceError> {
        let step = self.on_owner(slice, move |slice| async move { scrub(&slice, at).await }).await?;
        self.note_found(slice, &step);
        Ok(step)
    }

    /// Repairs the bad blocks that a slice's log has noted while nobody read them: see
    /// [`store::Slice::take_noted`].
    ///
    /// # Errors
    /// As for [`Volume::scrub`].
    pub async fn repair_noted(&self, slice: u16) -> Result<(), SliceError> {
        let step = self.on_owner(slice, |slice| async move { repair_noted(&slice).await }).await?;
        self.note_found(slice, &step);
        Ok(())
    }

    fn note_found(&self, slice: u16, step: &Scrubbed) {
        for ScrubbedBlock { bad, is_repaired, snapshot } in step.found.iter().filter(|_| !step.is_noted) {
            note_bad_block(self.id(), self.volume_offset(slice, bad.offset), *bad, *snapshot);
            if *is_repaired {
                note_repaired_block(self.id(), *bad);
            }
        }
    }
}

async fn repair_noted(slice: &Slice) -> Result<Scrubbed, SliceError> {
    needs_sync(slice)?;
    let mut step = Scrubbed::nothing(slice, ScrubAt::new(u64::MAX));
    let FoundBad { now, past } = slice.layout().take_noted().await?;
    for bad in now {
        let is_repaired = slice.repair_found(bad).await;
        step.add(bad, is_repaired);
    }
    step.add_past(slice, past).await?;
    Ok(step)
}

/// Nothing may repair a copy that is not in sync.
fn needs_sync(slice: &Slice) -> Result<(), SliceError> {
    let is_behind = slice.copy().is_some_and(|copy| !copy.is_in_sync());
    if is_behind { Err(SliceError::Unavailable) } else { Ok(()) }
}

/// One step. When all that the slice has now has been read of a part of the map, what only snapshots have of
/// it follows. By then, what was repaired there, or overwritten before it was read, is a snapshot's. The last
/// step also checks what a log has twice: by then, all of its map that could be repaired has been.
async fn scrub(slice: &Slice, at: ScrubAt) -> Result<Scrubbed, SliceError> {
    let end = slice.len().0;
    if at.offset >= end {
        return Ok(Scrubbed::nothing(slice, ScrubAt::new(u64::MAX)));
    }
    needs_sync(slice)?;
    let mut step = match at.past {
        None => read_some(slice, at.offset).await?,
        Some(past) => read_past(slice, at.offset, past).await?,
    };
    if step.next.offset >= end {
        for (bad, is_mended) in slice.layout().check_root().await? {
            note_part(slice, &mut step, (bad, is_mended));
        }
    }
    Ok(step)
}

/// Notes a damaged part of a map, which no other copy is needed for.
fn note_part(slice: &Slice, step: &mut Scrubbed, (bad, is_mended): (BadBlock, bool)) {
    slice.copy().inspect(|copy| copy.note_found(bad, is_mended));
    step.add(bad, is_mended);
}

/// The parts of the map, in bytes of a slice with this end, that a scrub which reads from `offset` on has
/// read when it comes to `next`.
fn parts_read(offset: u64, next: u64, end: u64) -> Range<u64> {
    let behind = if next >= end { end } else { next / MAP_UNIT * MAP_UNIT };
    offset / MAP_UNIT * MAP_UNIT..behind
}

/// A step of what only snapshots have in the parts of the map that a scrub has read when it comes to
/// `past.end`.
async fn read_past(slice: &Slice, offset: u64, past: Past) -> Result<Scrubbed, SliceError> {
    let parts = parts_read(offset, past.end, slice.len().0);
    let len = ByteLen(parts.end.saturating_sub(parts.start));
    let checked = slice.layout().check_snapshots(ByteOffset(parts.start), len, past.from).await?;
    let next = match checked.next {
        Some(from) => ScrubAt { offset, past: Some(Past { from, ..past }) },
        None => ScrubAt::new(past.end),
    };
    let mut step = Scrubbed { read: checked.read, used: checked.read, ..Scrubbed::nothing(slice, next) };
    checked.parts.into_iter().for_each(|part| note_part(slice, &mut step, part));
    step.add_past(slice, checked.blocks).await?;
    Ok(step)
}

/// A step of what the slice has now.
async fn read_some(slice: &Slice, offset: u64) -> Result<Scrubbed, SliceError> {
    let (layout, end) = (slice.layout(), slice.len().0);
    let mut step = Scrubbed::nothing(slice, ScrubAt::new(offset));
    // The next step begins with a new part of the map.
    let looked = ((offset + LOOK_BYTES) / MAP_UNIT * MAP_UNIT).min(end);
    let start = match layout.allocated(ByteOffset(offset), ByteLen(looked - offset), 1).await {
        Ok(used) => used.first().map(|(from, _)| (from.0 / BLOCK * BLOCK).max(offset)),
        // It is unknown what is in use here. The read finds that again, and has it repaired.
        Err(SliceError::Unreadable(_)) => Some(offset),
        Err(error) => return Err(error),
    };
    let next = match start {
        Some(start) => read_part(slice, &mut step, offset, start).await?,
        None => looked,
    };
    let has_past = !parts_read(offset, next, end).is_empty();
    let past = Past { end: next, from: PastCursor::default() };
    step.next = if has_past { ScrubAt { offset, past: Some(past) } } else { ScrubAt::new(next) };
    Ok(step)
}

/// Reads what is in use from `start` on, in a step that began at `offset`. Returns where it has ended.
async fn read_part(slice: &Slice, step: &mut Scrubbed, offset: u64, start: u64) -> Result<u64, SliceError> {
    let layout = slice.layout();
    let part = part_from(start, slice.len().0);
    if begins_unit(offset, start)
        && let Some(found) = layout.check_map(ByteOffset(part.start)).await?
    {
        note_part(slice, step, found);
    }
    step.read = part.end - part.start;
    step.used = used_in(layout, &part).await;
    let mut at = part.start;
    while at < part.end {
        match layout.read(ByteOffset(at), ByteLen(part.end - at)).await {
            Ok(_) => at = part.end,
            Err(SliceError::Unreadable(bad)) => {
                let is_repaired = slice.repair_found(bad).await;
                step.add(bad, is_repaired);
                // If the map is lost, so are nearly all other blocks of that part: it counts once.
                let is_part = bad.cause == ReadFailure::Map && !is_repaired;
                let unit = if is_part { MAP_UNIT } else { BLOCK };
                // If the list of lost blocks cannot be read, each read names the first block.
                at = ((bad.offset.0 / unit + 1) * unit).max(at + BLOCK);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(at)
}

/// How many bytes of a part are in use. If the map cannot be read, all of it may be.
async fn used_in(layout: &store::Slice, part: &Range<u64>) -> u64 {
    let whole = part.end - part.start;
    // As many parts as a step may have, one block apart.
    let parts_max = (STEP_BYTES / BLOCK) as usize;
    match layout.allocated(ByteOffset(part.start), ByteLen(whole), parts_max).await {
        Ok(used) => used.iter().map(|(_, len)| len.0).sum(),
        Err(_) => whole,
    }
}

/// What a step reads if `start` is in use: blocks behind it that are not cost little, and the others are read
/// together. It stays within one part of the map, so that the first step in each part checks it.
fn part_from(start: u64, end: u64) -> Range<u64> {
    let unit_end = (start / MAP_UNIT + 1) * MAP_UNIT;
    start..(start + STEP_BYTES).min(unit_end).min(end)
}

/// Whether the step that looks for what is in use from `offset` on, and reads from `start` on, is the first
/// one in a part of the map.
fn begins_unit(offset: u64, start: u64) -> bool {
    offset == 0 || (offset - 1) / MAP_UNIT != start / MAP_UNIT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_the_map_is_checked_once_wherever_what_is_in_use_begins() {
        let end = 5 * MAP_UNIT + 3 * BLOCK;
        for begin in [0, BLOCK, 37 * BLOCK, MAP_UNIT - BLOCK] {
            let (mut at, mut checked) = (0, Vec::new());
            while at < end {
                let part = part_from(at.max(begin), end);
                if begins_unit(at, part.start) {
                    checked.push(part.start / MAP_UNIT);
                }
                at = part.end;
            }
            assert_eq!(checked, (0..6).collect::<Vec<u64>>(), "{begin}");
        }
    }

    /// However long steps are, and wherever the first one begins: each part once, when all of it was read.
    #[test]
    fn snapshots_are_read_once_in_each_part_of_the_map() {
        let end = 5 * MAP_UNIT + 3 * BLOCK;
        for step in [BLOCK, MAP_UNIT / 2 + BLOCK, MAP_UNIT, 3 * MAP_UNIT - BLOCK] {
            for begin in [0, BLOCK, MAP_UNIT] {
                let (mut at, mut behind) = (begin, begin / MAP_UNIT * MAP_UNIT);
                while at < end {
                    let next = at + step;
                    let parts = parts_read(at, next, end);
                    if !parts.is_empty() {
                        assert_eq!(parts.start, behind, "{step} {begin}");
                        assert!(parts.end <= next);
                        behind = parts.end;
                    }
                    at = next;
                }
                assert_eq!(behind, end);
            }
        }
    }
}
