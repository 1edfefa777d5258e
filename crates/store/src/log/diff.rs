//! What differs between two snapshots of a slice; or what one has, which is what differs from zeros.
//!
//! What it guarantees: a block is named if it reads differently in the two, and only then. (One that cannot
//! be read may be named although it is the same.)
//!
//! The log knows which blocks were changed in between, at least ([`Inner::changed`]). Of these, the map says
//! where both versions lie, and which checksums they have. Most of the time that decides: what lies in the
//! same place is the same, and what has different checksums differs. Only blocks with the same checksum in
//! different places are read: hosts have written there what was there before.
//!
//! It works leaf by leaf, each in a turn of its own, so that the I/O of hosts comes in between.

use std::ops::Range;

use base::{ByteLen, ByteOffset, Instant, crc32c};

use super::leaf::LEAF_BLOCKS;
use super::place::{Place, SLOT_BYTES, Spot};
use super::read::Unread;
use super::snapshots::SnapshotError;
use super::{Inner, LogSlice};
use crate::error::SliceError;
use crate::slice::{Layout, Slice};

const BLOCK: u64 = SLOT_BYTES as u64;

/// How many leaves with changes one call compares at most: those of 2 GiB.
const LEAVES_MAX: usize = if cfg!(test) { 2 } else { 1024 };

/// How many blocks of each snapshot are read at a time: 256 KiB.
const READ_BLOCKS: usize = 64;

/// Bytes of a slice that differ between two snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedRange {
    /// Where they begin.
    pub offset: ByteOffset,
    /// How many there are.
    pub len: ByteLen,
    /// They read as zeros in the second snapshot, and take no space there.
    pub is_zeroed: bool,
}

impl ChangedRange {
    /// Appends a range to a list. If it is the continuation of the last one, it becomes part of that.
    pub fn add(list: &mut Vec<ChangedRange>, range: ChangedRange) {
        match list.last_mut() {
            Some(last) if last.offset + last.len == range.offset && last.is_zeroed == range.is_zeroed => {
                last.len.0 += range.len.0;
            }
            _ => list.push(range),
        }
    }
}

/// Some of what differs between two snapshots of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedRanges {
    /// What differs, in order: whole blocks of 4 KiB, as far as they are in the range that was asked for.
    pub ranges: Vec<ChangedRange>,
    /// Up to here, everything else is the same; what follows was not compared.
    pub until: ByteOffset,
}

/// When a comparison ends early. It compares 2 MiB of the slice that have changes in any case.
#[derive(Clone, Copy, Debug)]
pub struct DiffLimits {
    /// After this many ranges, or up to 512 more.
    pub ranges: usize,
    /// At this time.
    pub time: Instant,
}

impl Slice {
    /// What differs in a range between two snapshots, whichever of them is the older one; with these limits.
    /// It takes time in proportion to what was changed between the two.
    ///
    /// Without a first one: which blocks of the second one are not zeros. It takes time in proportion to what
    /// was ever written.
    ///
    /// # Errors
    /// [`SnapshotError::Unknown`], [`SnapshotError::Slice`].
    ///
    /// # Panics
    /// If the range is not inside the slice.
    pub async fn differences(
        &self,
        ids: (Option<u64>, u64),
        offset: ByteOffset,
        len: ByteLen,
        limits: DiffLimits,
    ) -> Result<ChangedRanges, SnapshotError> {
        self.check(offset, len);
        self.ready().await?;
        let layout = self.layout();
        let Layout::Log(slice) = &*layout else { return Err(SnapshotError::Unknown) };
        let (since, id) = ids;
        let eras_of = || -> Result<(Option<u32>, u32), SnapshotError> {
            Ok((since.map(|since| slice.era_of(since)).transpose()?, slice.era_of(id)?))
        };
        let eras = eras_of()?;
        let found = slice.differences(eras, offset.0..offset.0 + len.0, limits).await;
        // What a deleted one had may be with others.
        eras_of()?;
        Ok(found?)
    }
}

impl LogSlice {
    /// The same for the snapshots with which these eras begin.
    async fn differences(
        &self,
        eras: (Option<u32>, u32),
        range: Range<u64>,
        limits: DiffLimits,
    ) -> Result<ChangedRanges, SliceError> {
        let (inner, branch) = (&self.log().inner, self.branch());
        let (one, other) = eras;
        let between: Option<Vec<Range<u32>>> =
            one.map(|one| inner.state.borrow().marks.between(branch, one.min(other), Some(one.max(other))));
        let end = range.end.div_ceil(BLOCK);
        let (mut at, mut leaves, mut ranges) = (range.start / BLOCK, 0, Vec::new());
        while at < end {
            let next = match &between {
                Some(between) => inner.next_changed_leaf(branch, between, at / LEAF_BLOCKS),
                None => inner.next_leaf_of(branch, other, at / LEAF_BLOCKS),
            };
            at = next.map_or(end, |leaf| at.max(leaf * LEAF_BLOCKS)).min(end);
            let is_over =
                || ranges.len() >= limits.ranges || leaves >= LEAVES_MAX || rt::now() >= limits.time;
            if at == end || leaves > 0 && is_over() {
                break;
            }
            let behind = ((at / LEAF_BLOCKS + 1) * LEAF_BLOCKS).min(end);
            let changed = between.as_deref().unwrap_or_default();
            let found = inner.differences(branch, eras, changed, at..behind).await;
            for (block, is_zeroed) in found.map_err(|unread| unread.error(range.start))? {
                let (from, to) = ((block * BLOCK).max(range.start), ((block + 1) * BLOCK).min(range.end));
                let (offset, len) = (ByteOffset(from), ByteLen(to.saturating_sub(from)));
                ChangedRange::add(&mut ranges, ChangedRange { offset, len, is_zeroed });
            }
            at = behind;
            leaves += 1;
            rt::next_turn().await;
        }
        Ok(ChangedRanges { ranges, until: ByteOffset((at * BLOCK).clamp(range.start, range.end)) })
    }
}

impl Inner {
    /// The blocks of a range within one leaf that differ between the snapshots with which two eras begin, and
    /// whether each reads as zeros in the second one. `between` are the eras in which they were changed.
    async fn differences(
        &self,
        branch: u32,
        (one, other): (Option<u32>, u32),
        between: &[Range<u32>],
        blocks: Range<u64>,
    ) -> Result<Vec<(u64, bool)>, Unread> {
        let changed = match one {
            Some(_) => self.changed(branch, between, blocks.clone()).await?,
            None => vec![true; (blocks.end - blocks.start) as usize],
        };
        let mut places = (0..).zip(&changed).filter(|(_, is_changed)| **is_changed).map(|(at, _)| at);
        let Some(from) = places.next() else { return Ok(Vec::new()) };
        let to = places.last().unwrap_or(from) + 1;
        let (first, behind) = (blocks.start + from as u64, blocks.start + to as u64);
        // What lies in the segments of either stays there until both are dropped.
        let (was, _was_pinned) = match one {
            Some(one) => {
                let (was, pinned) = self.resolve_in(branch, Some(one), first..behind).await?;
                (was, Some(pinned))
            }
            None => (vec![Spot::Nothing; (behind - first) as usize], None),
        };
        let (is, _is_pinned) = self.resolve_in(branch, Some(other), first..behind).await?;
        let spots = was.iter().zip(&is).zip(&changed[from..to]);
        let zeros = crc32c(&[0; SLOT_BYTES]);
        let compared = spots.map(|((was, is), is_changed)| match is_changed {
            true => compare(*was, *is, zeros),
            false => Comparison::Same,
        });
        let mut found: Vec<Comparison> = compared.collect();
        self.decide(first, [&was, &is], &mut found).await?;
        let differ = (first..).zip(found).zip(&is).filter(|((_, found), _)| *found == Comparison::Differs);
        Ok(differ.map(|((block, _), is)| (block, is.stored().is_none())).collect())
    }

    /// Compares what blocks from `first` on read as, where nothing else decides.
    ///
    /// # Errors
    /// [`Unread::Offline`].
    async fn decide(
        &self,
        first: u64,
        [was, is]: [&[Spot]; 2],
        found: &mut [Comparison],
    ) -> Result<(), Unread> {
        let mut at = 0;
        while let Some(next) = found[at..].iter().position(|found| *found == Comparison::Unclear) {
            let from = at + next;
            let some = found[from..].iter().take(READ_BLOCKS);
            let run = from..from + some.take_while(|found| **found == Comparison::Unclear).count();
            let block = first + from as u64;
            let before = self.read_spots(block, &was[run.clone()]).await;
            let after = self.read_spots(block, &is[run.clone()]).await;
            match (before, after) {
                (Ok(before), Ok(after)) => {
                    let (before, after) = (before.contiguous(), after.contiguous());
                    let both = before.chunks(SLOT_BYTES).zip(after.chunks(SLOT_BYTES));
                    for (found, (before, after)) in found[run.clone()].iter_mut().zip(both) {
                        *found = if before == after { Comparison::Same } else { Comparison::Differs };
                    }
                }
                (Err(Unread::Offline), _) | (_, Err(Unread::Offline)) => return Err(Unread::Offline),
                // Whoever reads the second snapshot because of that finds out.
                (Err(_), _) | (_, Err(_)) => found[run.clone()].fill(Comparison::Differs),
            }
            at = run.end;
        }
        Ok(())
    }
}

/// What is known of a block in two snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Same,
    Differs,
    /// It has to be read.
    Unclear,
}

/// What the map says. `zeros` is the checksum of a block of zeros.
fn compare(was: Spot, is: Spot, zeros: u32) -> Comparison {
    let is_lost = |spot: Spot| spot.stored().is_some_and(|stored| stored.place == Place::LOST);
    let crc = |spot: Spot| spot.stored().map_or(zeros, |stored| stored.crc);
    match (was, is) {
        _ if is_lost(was) || is_lost(is) => Comparison::Differs,
        _ if was == is => Comparison::Same,
        _ if crc(was) == crc(is) => Comparison::Unclear,
        _ => Comparison::Differs,
    }
}

#[cfg(test)]
mod tests {
    use super::super::place::Stored;
    use super::*;

    #[test]
    fn places_and_checksums_decide_most_of_the_time() {
        let at = |slot, crc| Spot::At(Stored { place: Place::new(1, slot), crc });
        let (lost, zeros) = (Spot::At(Stored::lost(0)), Spot::Nothing);
        for (was, is, expected) in [
            (at(1, 5), at(1, 5), Comparison::Same),
            (zeros, zeros, Comparison::Same),
            (at(1, 5), at(2, 6), Comparison::Differs),
            (at(1, 5), zeros, Comparison::Differs),
            (zeros, at(1, 5), Comparison::Differs),
            (at(1, 5), at(2, 5), Comparison::Unclear),
            (at(7, 99), zeros, Comparison::Unclear),
            (lost, lost, Comparison::Differs),
            (at(1, 0), lost, Comparison::Differs),
        ] {
            assert_eq!(compare(was, is, 99), expected, "{was:?} and {is:?}");
        }
    }

    #[test]
    fn ranges_are_joined_if_they_are_of_one_kind() {
        let range = |offset, len, is_zeroed| {
            let (offset, len) = (ByteOffset(offset), ByteLen(len));
            ChangedRange { offset, len, is_zeroed }
        };
        let mut list = Vec::new();
        for next in [range(0, 4, false), range(4, 4, false), range(8, 4, true), range(16, 4, true)] {
            ChangedRange::add(&mut list, next);
        }
        assert_eq!(list, [range(0, 8, false), range(8, 4, true), range(16, 4, true)]);
    }
}
