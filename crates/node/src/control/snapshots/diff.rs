//! What differs between two snapshots of a volume, or what one has: which node can say it, and one page of
//! it.
//!
//! A copy that has both snapshots compares its own slices ([`store::Slice::differences`]); the ranges of the
//! volume are put together from theirs. All copies that have a snapshot have the same, so it does not matter
//! which one is asked, and the next page may come from another one. The cursor is an offset in the volume:
//! nothing is kept between pages, and snapshots do not change.

use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use base::{ByteLen, ByteOffset};
use store::{ChangedRange, ChangedRanges, DiffLimits, SnapshotError, Stripe};

use super::super::forwarding::{ForwardOutcome, Request, forward_to_one_of};
use super::super::relocation::entry_named;
use super::super::{Control, ControlError, QUERY_DEADLINE, Result};
use super::{complete, nodes_with, part_of};
use crate::copies::{SnapshotEntry, SnapshotObstacle, VolumeEntry, pool_number};
use crate::data::{Slice, VolumeId};
use crate::member::Reconciler;
use crate::shard::Shard;

/// How many ranges a page has at most. With as many slices as a volume can have, what they find takes at most
/// 7 MiB of memory; as JSON, a page takes 250 KiB.
pub const DIFF_RANGES_MAX: usize = 4096;

/// For how long slices compare for one page. Then it has what was found by then.
const PAGE_TIME: Duration = Duration::from_millis(500);
const _: () = assert!(
    2 * PAGE_TIME.as_millis() < QUERY_DEADLINE.as_millis(),
    "a node that was asked by another one has as much time again for the step that it is at, and its answer"
);

/// How long all slices of a copy may take: logs may have to be recovered first, and disks may be slow.
const COMPARED_WITHIN: Duration = Duration::from_secs(30);

/// Two snapshots of a volume, or one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffSpec {
    /// The name or identity of the volume.
    pub volume: String,
    /// The name or number of the snapshot to compare with. `None`: a volume of zeros.
    pub since: Option<String>,
    /// The same of the other one: ranges are those in which it differs.
    pub snapshot: String,
}

/// A page of what differs between two snapshots of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotDiff {
    /// The volume's name.
    pub volume: String,
    /// The name of the snapshot to compare with.
    pub since: Option<String>,
    /// The name of the other one.
    pub snapshot: String,
    /// The volume's capacity in the latter, in bytes. What the former does not have yet counts as zeros.
    pub size: u64,
    /// What differs, in order; offsets are those of the volume.
    pub ranges: Vec<ChangedRange>,
    /// Where the next page begins, in bytes. `None`: this is the last one.
    pub next: Option<u64>,
}

/// Snapshots that can be compared.
struct Comparable {
    id: VolumeId,
    volume: VolumeEntry,
    since: Option<SnapshotEntry>,
    snapshot: SnapshotEntry,
    /// The volume's capacity in `snapshot`.
    size: u64,
    /// The nodes whose copies have them.
    nodes: Vec<u16>,
}

/// What a slice has found: its number, where the comparison would end there, and the result.
type OfSlice = (u16, u64, ChangedRanges);

impl Control {
    /// A page of what differs between two snapshots of a volume, from an offset on, with at most `limit`
    /// ranges. This node's copy must have them. A page may be empty although there is a next one.
    ///
    /// # Errors
    /// The volume or a snapshot is not found; [`ControlError::SnapshotPreparing`],
    /// [`ControlError::NotInSnapshot`], [`ControlError::NoCopyHasBoth`],
    /// [`ControlError::NoCopyHasSnapshot`], [`ControlError::NotCompared`], [`ControlError::Invalid`].
    pub async fn snapshot_diff(&self, spec: &DiffSpec, offset: u64, limit: usize) -> Result<SnapshotDiff> {
        let reconciler = self.reconciler()?;
        let Comparable { id, volume, since, snapshot, size, nodes } = comparable(&reconciler, spec)?;
        if offset > size {
            let reason = "it is behind the end of the volume in the snapshot";
            return Err(ControlError::Invalid { field: "offset", reason });
        }
        let me = reconciler.me().0;
        let not_compared =
            |obstacle| ControlError::NotCompared { volume: volume.name.clone(), node: me, obstacle };
        if !nodes.contains(&me) {
            // It had them, or another node had, when that was decided.
            return Err(not_compared(SnapshotObstacle::Changed));
        }
        let here = Shard::current().volume(id).ok_or_else(|| not_compared(SnapshotObstacle::NotServed))?;
        let (_, info) = self.volume_named(&volume.id)?;
        let number = |entry: &SnapshotEntry| pool_number(reconciler.cluster(), entry.number);
        let numbers = (since.as_ref().map(number), number(&snapshot));
        let limit = limit.clamp(1, DIFF_RANGES_MAX);
        let limits = DiffLimits { ranges: limit, time: rt::now() + PAGE_TIME };
        let compared = parts(info.stripe, offset..size).map(|(slice, bytes)| {
            let here = Rc::clone(&here);
            async move {
                let (start, end) = (ByteOffset(bytes.start), bytes.end);
                let compare = move |slice: Rc<Slice>| async move {
                    let (layout, len) = (slice.layout(), ByteLen(end - start.0));
                    Ok(match layout.len().0 < end {
                        true => Err(SnapshotError::Unknown),
                        false => layout.differences(numbers, start, len, limits).await,
                    })
                };
                let found = here.on_owner(slice, compare).await;
                found.unwrap_or_else(|error| Err(error.into())).map(|found| (slice, end, found))
            }
        });
        let compared = rt::timeout(COMPARED_WITHIN, rt::join_all(compared)).await;
        let compared = compared.map_err(|_| not_compared(SnapshotObstacle::Slow))?;
        let found = compared.into_iter().collect::<Result<Vec<OfSlice>, SnapshotError>>();
        let found = found.map_err(|error| not_compared(error.into()))?;
        let (ranges, until) = page(info.stripe, size, &found, limit);
        Ok(SnapshotDiff {
            volume: volume.name,
            since: since.map(|since| since.name),
            snapshot: snapshot.name,
            size,
            ranges,
            next: (until < size).then_some(until),
        })
    }

    /// Forwards a request about the differences between two snapshots to a node whose copy has them, unless
    /// this node's has, or none does.
    pub async fn forward_diff(&self, spec: &DiffSpec, request: &Request) -> ForwardOutcome {
        let Ok(reconciler) = self.reconciler() else { return ForwardOutcome::Stays };
        // This node says why they cannot be compared.
        let Ok(Comparable { id, volume, nodes, .. }) = comparable(&reconciler, spec) else {
            return ForwardOutcome::Stays;
        };
        if nodes.contains(&reconciler.me().0) && Shard::current().volume(id).is_some() {
            return ForwardOutcome::Stays;
        }
        let copies = volume.copies.into_iter().filter(|copy| nodes.contains(&copy.node)).collect();
        forward_to_one_of(&reconciler, &volume.id, copies, request).await
    }
}

/// The snapshots, and the nodes whose copies have them.
fn comparable(reconciler: &Reconciler, spec: &DiffSpec) -> Result<Comparable> {
    let since = spec.since.as_ref().map(|since| complete(reconciler, since)).transpose()?;
    let snapshot = complete(reconciler, &spec.snapshot)?;
    let (id, volume) = entry_named(reconciler, &spec.volume)?;
    let before = since.as_ref().map(|since| part_of(since, &volume)).transpose()?;
    let after = part_of(&snapshot, &volume)?;
    let has_before =
        |node: &u16| before.as_ref().is_none_or(|before| nodes_with(before, &volume).any(|has| has == *node));
    let nodes: Vec<u16> = nodes_with(after, &volume).filter(has_before).collect();
    if nodes.is_empty() {
        let (volume, snapshot) = (volume.name, snapshot.name);
        return Err(match since {
            Some(since) => ControlError::NoCopyHasBoth { volume, since: since.name, snapshot },
            None => ControlError::NoCopyHasSnapshot { volume, snapshot },
        });
    }
    let size = after.size;
    Ok(Comparable { id, volume, since, snapshot, size, nodes })
}

/// The parts of a range of a volume: slices, and offsets there.
fn parts(stripe: Stripe, bytes: Range<u64>) -> impl Iterator<Item = (u16, Range<u64>)> {
    (0..stripe.slices()).filter_map(move |slice| {
        // As much of the slice belongs to a volume that ends there.
        let at = |offset: u64| stripe.slice_len(slice, ByteLen(offset)).0;
        let part = at(bytes.start)..at(bytes.end);
        (!part.is_empty()).then_some((slice, part))
    })
}

/// At most `limit` ranges of a volume of this capacity, put together from those of its slices; and up to
/// which offset these are all.
fn page(stripe: Stripe, size: u64, found: &[OfSlice], limit: usize) -> (Vec<ChangedRange>, u64) {
    let reached = found.iter().map(|(slice, end, found)| match found.until.0 < *end {
        true => stripe.volume_offset(*slice, found.until).0,
        false => size,
    });
    let reached = reached.min().unwrap_or(size);
    let all = found.iter().flat_map(move |(slice, _, found)| {
        let pieces = found.ranges.iter().flat_map(move |range| in_volume(stripe, *slice, *range));
        pieces.take_while(move |piece| piece.offset.0 < reached)
    });
    let mut all: Vec<ChangedRange> = all.collect();
    all.sort_unstable_by_key(|range| range.offset);
    let mut ranges = Vec::new();
    all.into_iter().for_each(|range| ChangedRange::add(&mut ranges, range));
    let too_many = ranges.len() > limit;
    ranges.truncate(limit);
    let last = ranges.last().filter(|_| too_many).map(|last| last.offset.0 + last.len.0);
    (ranges, last.unwrap_or(reached))
}

/// A range of a slice in the volume, unit by unit.
fn in_volume(stripe: Stripe, slice: u16, range: ChangedRange) -> impl Iterator<Item = ChangedRange> {
    let (unit, mut at, end) = (stripe.unit().0, range.offset.0, range.offset.0 + range.len.0);
    std::iter::from_fn(move || {
        // Nothing of other slices comes in between if there are none.
        let behind = if stripe.slices() == 1 { end } else { end.min((at / unit + 1) * unit) };
        let (offset, len) = (stripe.volume_offset(slice, ByteOffset(at)), ByteLen(behind - at));
        let is_left = at < end;
        at = behind;
        is_left.then_some(ChangedRange { offset, len, ..range })
    })
}

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;

    fn range(offset: u64, len: u64, is_zeroed: bool) -> ChangedRange {
        ChangedRange { offset: ByteOffset(offset), len: ByteLen(len), is_zeroed }
    }

    #[test]
    fn ranges_of_slices_are_put_together_in_the_order_of_the_volume() {
        let stripe = Stripe::new(2, ByteLen(64));
        // The whole second row; a part of the first unit; and one that became zeros.
        let found = [
            (
                0,
                192,
                ChangedRanges {
                    ranges: vec![range(20, 10, false), range(64, 128, false)],
                    until: ByteOffset(192),
                },
            ),
            (
                1,
                160,
                ChangedRanges {
                    ranges: vec![range(64, 64, false), range(128, 32, true)],
                    until: ByteOffset(160),
                },
            ),
        ];
        let expected = vec![range(20, 10, false), range(128, 192, false), range(320, 32, true)];
        assert_eq!(page(stripe, 352, &found, 9), (expected.clone(), 352));
        assert_eq!(page(stripe, 352, &found, 2), (expected[..2].to_vec(), 320));
        assert_eq!(page(stripe, 352, &found, 1), (expected[..1].to_vec(), 30));
    }

    /// What a slice has found behind the place at which another one stopped comes with the next page.
    #[test]
    fn a_page_ends_where_the_first_slice_stopped() {
        let stripe = Stripe::new(2, ByteLen(64));
        let found = [
            (0, 192, ChangedRanges { ranges: vec![range(0, 192, false)], until: ByteOffset(192) }),
            (1, 192, ChangedRanges { ranges: vec![range(64, 20, false)], until: ByteOffset(104) }),
        ];
        let (ranges, until) = page(stripe, 384, &found, 9);
        assert_eq!((ranges, until), (vec![range(0, 64, false), range(128, 84, false)], 232));
        assert_eq!(page(stripe, 384, &[], 9), (Vec::new(), 384));
    }

    /// Pages of any size, of slices that stop anywhere, have every byte of the volume that has changed.
    #[test]
    fn pages_are_complete_wherever_they_end() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let stripe = Stripe::new(1 << rng.below(3), ByteLen(8));
            let size = 1 + rng.below(150);
            // 0: the same; 1: written; 2: zeroed.
            let volume: Vec<u64> = (0..size).map(|_| if rng.one_in(2) { 1 } else { rng.below(3) }).collect();
            let kind = |slice: u16, at: u64| volume[stripe.volume_offset(slice, ByteOffset(at)).0 as usize];
            let (mut from, mut found) = (0, vec![0; size as usize]);
            while from < size {
                let mut of_slices = Vec::new();
                for (slice, bytes) in parts(stripe, from..size) {
                    let until = bytes.end.min(bytes.start + 1 + rng.below(40));
                    let mut ranges = Vec::new();
                    for at in (bytes.start..until).filter(|at| kind(slice, *at) > 0) {
                        ChangedRange::add(&mut ranges, range(at, 1, kind(slice, at) == 2));
                    }
                    let until = ByteOffset(until);
                    of_slices.push((slice, bytes.end, ChangedRanges { ranges, until }));
                }
                let limit = 1 + rng.below(5) as usize;
                let (ranges, until) = page(stripe, size, &of_slices, limit);
                assert!(ranges.len() <= limit && until > from && until <= size, "seed {seed}");
                for range in ranges {
                    let (start, end) = (range.offset.0, range.offset.0 + range.len.0);
                    assert!(from <= start && end <= until, "seed {seed}");
                    found[start as usize..end as usize].fill(if range.is_zeroed { 2 } else { 1 });
                }
                from = until;
            }
            assert_eq!(found, volume, "seed {seed}");
        }
    }
}
