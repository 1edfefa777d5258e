//! Scrubs: reading what a slice has in use from this node's disks, only to find bad blocks and to repair
//! them.

use std::ops::Range;

use base::{ByteLen, ByteOffset};
use store::{BadBlock, MAP_UNIT, ReadFailure, SliceError};

use super::{Slice, Volume};
use crate::control::{note_bad_block, note_repaired_block};

/// How much of a slice one step looks through for what is in use: a volume of 64 TiB that is empty takes a
/// million steps of some microseconds.
const LOOK_BYTES: u64 = 64 << 20;

/// How much a step reads at most. Hosts' commands on the same disk wait for that: 2 ms on a disk that seeks,
/// or up to 64 reads, half of them at a time, if a log has the blocks in as many places.
const STEP_BYTES: u64 = 256 << 10;

/// What is read and counted as one block: the size that physical blocks of disks may have.
const BLOCK: u64 = 4096;

const _: () = assert!(LOOK_BYTES >= MAP_UNIT && MAP_UNIT.is_multiple_of(BLOCK), "each step gets somewhere");

/// What a step of a scrub has done.
#[derive(Debug)]
pub struct Scrubbed {
    /// Where the next step begins; beyond the end of the slice if this was the last one.
    pub next: u64,
    /// How many bytes were read.
    pub read: u64,
    /// How many of these are in use.
    pub used: u64,
    /// The bad blocks, and whether each of them can be read now. A part of a log's map is one block.
    pub found: Vec<(BadBlock, bool)>,
    /// Whether they have been noted.
    is_noted: bool,
}

impl Volume {
    /// One step of a scrub of a slice: reads what is in use from `offset` on, and repairs what cannot be
    /// read, as a host's read does.
    ///
    /// # Errors
    /// Those of the layout. [`SliceError::Unavailable`]: this node's copy is not in sync.
    pub async fn scrub(&self, slice: u16, offset: u64) -> Result<Scrubbed, SliceError> {
        let step = self.on_owner(slice, move |slice| async move { scrub(&slice, offset).await }).await?;
        for (bad, is_repaired) in step.found.iter().filter(|_| !step.is_noted) {
            note_bad_block(self.id(), self.volume_offset(slice, bad.offset), *bad);
            if *is_repaired {
                note_repaired_block(self.id(), *bad);
            }
        }
        Ok(step)
    }
}

/// One step, with the parts of the map in it that only snapshots need. The last one also checks what a log
/// has twice: by then, all of its map that could be repaired has been.
async fn scrub(slice: &Slice, offset: u64) -> Result<Scrubbed, SliceError> {
    let mut step = read_some(slice, offset).await?;
    let end = slice.len().0;
    if offset < end {
        let (layout, len) = (slice.layout(), step.next.min(end) - offset);
        let mut found = layout.check_snapshots(ByteOffset(offset), ByteLen(len)).await?;
        if step.next >= end {
            found.extend(layout.check_root().await?);
        }
        for (bad, is_mended) in found {
            slice.copy().inspect(|copy| copy.note_found(bad, is_mended));
            step.found.push((bad, is_mended));
        }
    }
    Ok(step)
}

async fn read_some(slice: &Slice, offset: u64) -> Result<Scrubbed, SliceError> {
    let (layout, copy) = (slice.layout(), slice.copy());
    let mut step = Scrubbed { next: u64::MAX, read: 0, used: 0, found: Vec::new(), is_noted: copy.is_some() };
    let end = slice.len().0;
    if offset >= end {
        return Ok(step);
    }
    if copy.is_some_and(|copy| !copy.is_in_sync()) {
        return Err(SliceError::Unavailable);
    }
    // The next step begins with a new part of the map.
    let looked = ((offset + LOOK_BYTES) / MAP_UNIT * MAP_UNIT).min(end);
    let start = match layout.allocated(ByteOffset(offset), ByteLen(looked - offset), 1).await {
        Ok(used) => used.first().map(|(from, _)| (from.0 / BLOCK * BLOCK).max(offset)),
        // It is unknown what is in use here. The read finds that again, and has it repaired.
        Err(SliceError::Unreadable(_)) => Some(offset),
        Err(error) => return Err(error),
    };
    let Some(start) = start else { return Ok(Scrubbed { next: looked, ..step }) };
    let part = part_from(start, end);
    if begins_unit(offset, start)
        && let Some((bad, is_mended)) = layout.check_map(ByteOffset(part.start)).await?
    {
        copy.inspect(|copy| copy.note_found(bad, is_mended));
        step.found.push((bad, is_mended));
    }
    step.read = part.end - part.start;
    step.used = used_in(layout, &part).await;
    let mut at = part.start;
    while at < part.end {
        match layout.read(ByteOffset(at), ByteLen(part.end - at)).await {
            Ok(_) => at = part.end,
            Err(SliceError::Unreadable(bad)) => {
                let is_repaired = slice.repair_found(bad).await;
                step.found.push((bad, is_repaired));
                // If the map is lost, so are nearly all other blocks of that part: it counts once.
                let is_part = bad.cause == ReadFailure::Map && !is_repaired;
                let unit = if is_part { MAP_UNIT } else { BLOCK };
                // If the list of lost blocks cannot be read, each read names the first block.
                at = ((bad.offset.0 / unit + 1) * unit).max(at + BLOCK);
            }
            Err(error) => return Err(error),
        }
    }
    step.next = at;
    Ok(step)
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
}
