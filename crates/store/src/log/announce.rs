//! Building the next root, and applying it when it is durable.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Range};

use base::Crc32c;

use super::Running;
use super::checkpoint::CheckpointError;
use super::counting::Replaced;
use super::leaf::LeafKey;
use super::place::{Place, SLOT_BYTES};
use super::root::{RUNS_MAX, Replay, Root, Run};
use super::segment::Kind;
use super::state::{self, DataSegment, MAP_ENTRY_BYTES, STATE_BYTES};
use crate::canary::{Canary, makes};

/// How many slots of the state are written at a time: 1 MiB.
const PIECE_SLOTS: usize = (1 << 20) / SLOT_BYTES;

/// How many bytes of the state are encoded at a time: 5,000 leaves, *est.* 0.3 ms. Hosts wait meanwhile.
const ENCODE_BYTES: usize = if cfg!(test) { 512 } else { 128 << 10 };

/// The next root, and what applies when it is durable.
pub(super) struct NewRoot {
    /// Length and checksum of the state are those of no state until it has been encoded.
    pub(super) root: Root,
    /// Segments that are no longer needed.
    pub(super) freed: Vec<u32>,
    /// Segments for records, in addition to those that are announced already.
    pub(super) announced: Vec<(u32, u64)>,
}

/// The state that the next root names. It is encoded in steps ([`Running::encode_more`]), because it may have
/// 150 MB.
///
/// What it says is what was so when the root was built, although hosts write in between: only a checkpoint
/// changes the directory, and the bits of segments that are not replayed. It has copies of the bits of those
/// that are.
pub(super) struct Encoding {
    pub(super) bytes: Vec<u8>,
    crc: Crc32c,
    /// The data segments that are to be encoded. Those that are not replayed are without bits.
    data: std::vec::IntoIter<(u32, DataSegment)>,
    /// The generations of map segments; `None` when they have been encoded.
    map: Option<BTreeMap<u32, u64>>,
    /// The leaf that was encoded last.
    last: Option<LeafKey>,
    /// What it will be in the end.
    #[cfg(test)]
    expected: Vec<u8>,
}

impl NewRoot {
    /// Names the state, which has been encoded.
    pub(super) fn name(&mut self, state: &Encoding) {
        #[cfg(test)]
        assert!(state.bytes == state.expected, "the state has changed while it was encoded");
        self.root.state_len = state.bytes.len() as u32;
        self.root.state_crc = state.crc.value();
    }

    /// The places of both copies of the state, each with the numbers of the slots that go there, in pieces
    /// that are written at a time.
    pub(super) fn pieces(&self) -> Vec<(Place, Range<usize>)> {
        self.root.copies.iter().flat_map(|runs| in_pieces(runs)).collect()
    }
}

impl Running {
    /// Takes slots for the first copy of the state.
    fn first_runs(&mut self, slots: usize) -> Result<Vec<Run>, CheckpointError> {
        let mut runs = Vec::new();
        let mut left = slots;
        while left > 0 {
            let open = self.open_map(SLOT_BYTES)?;
            let slots = left.min(self.segments.rest(Some(open)) as usize) as u16;
            runs.push(Run { segment: open.segment, slot: open.next, slots });
            if let Some(map) = &mut self.segments.map {
                map.next += slots;
            }
            left -= usize::from(slots);
        }
        if runs.len() > RUNS_MAX { Err(CheckpointError::Scattered) } else { Ok(runs) }
    }

    /// Takes free segments for the second copy of the state, which has them to itself: on other disks than
    /// the first copy, if the log has some there.
    ///
    /// None if too few are free: then this root's state is there once. That is better than no root.
    pub(super) fn second_runs(&mut self, slots: usize, first: &[Run]) -> Vec<Run> {
        let of_segment = self.segments.slots as usize;
        let count = slots.div_ceil(of_segment);
        if count > self.segments.free.len() || first.len() + count > RUNS_MAX {
            return Vec::new();
        }
        let disk_of = |segment: u32| self.segments.locate(segment).map(|(disk, _)| disk);
        let disks: BTreeSet<Option<u16>> = first.iter().map(|run| disk_of(run.segment)).collect();
        let (apart, beside): (Vec<u32>, Vec<u32>) =
            self.segments.free.iter().rev().copied().partition(|segment| !disks.contains(&disk_of(*segment)));
        let taken: BTreeSet<u32> = apart.into_iter().chain(beside).take(count).collect();
        self.segments.free.retain(|segment| !taken.contains(segment));
        let mut left = slots;
        let mut runs = Vec::new();
        for segment in taken {
            self.segments.begin(segment, rt::random(), Kind::Map);
            self.segments.seal(segment);
            let slots = left.min(of_segment);
            runs.push(Run { segment, slot: 0, slots: slots as u16 });
            left -= slots;
        }
        runs
    }

    /// Whether a segment may hold records that the next root does not cover.
    pub(super) fn is_replayed(&self, segment: u32) -> bool {
        let open = [self.segments.hosts, self.segments.survivors];
        let is_open = open.into_iter().flatten().any(|open| open.segment == segment);
        is_open || self.segments.used.get(&segment).is_some_and(|used| used.newest >= self.frozen_below)
    }

    /// Builds the next root. Nothing of it applies yet, and the state that it names is to be encoded.
    pub(super) fn new_root(
        &mut self,
        handle: &super::LogHandle,
    ) -> Result<(NewRoot, Encoding), CheckpointError> {
        if let Some(zone) = self.zone_to_return() {
            self.segments.retire_zone(zone);
        }
        self.remove_marks(|branch| handle.has_branch(branch));
        let used = self.segments.used.values();
        let data = used.filter(|used| used.kind == Kind::Data).count();
        let map = self.segments.used.len() - data;
        let packed = self.segments.packed as usize;
        let (marks, leaves) = (self.marks.len(), self.leaves.len());
        let rough = state::encoded_len(marks, data, packed, map, leaves, self.segments.slots);
        // Writing the state may open map segments for each copy, each of which is an entry in it.
        let opened = 2 * (rough.div_ceil(STATE_BYTES * self.segments.slots as usize) + 1);
        let slots = (rough + opened * MAP_ENTRY_BYTES).div_ceil(STATE_BYTES);
        let first = self.first_runs(slots)?;
        let second = self.second_runs(slots, &first);
        if second.is_empty() {
            tracing::warn!(
                log = handle.number,
                slots,
                "a log has no space to write the state of its map twice"
            );
        }
        let copies = [first, second];
        let kept: BTreeSet<u32> = copies.iter().flatten().map(|run| run.segment).collect();
        let unneeded = self.segments.used.iter().filter(|(segment, used)| {
            !used.open
                && !used.released
                && used.live == 0
                && !kept.contains(segment)
                && !self.is_replayed(**segment)
        });
        let freed: Vec<u32> = unneeded.map(|(segment, _)| *segment).collect();
        let announced = self.to_announce(&freed);
        let state = self.encoding(&freed.iter().copied().collect(), rough);
        let replayed = self
            .segments
            .used
            .iter()
            .filter(|(segment, used)| used.kind == Kind::Data && self.is_replayed(**segment));
        let mut replay: Vec<Replay> = replayed
            .map(|(segment, used)| Replay {
                segment: *segment,
                from: used.replay_from,
                generation: used.generation,
            })
            .collect();
        let ready = self.segments.ready.iter().chain(&announced);
        replay.extend(ready.map(|(segment, generation)| Replay {
            segment: *segment,
            from: 0,
            generation: *generation,
        }));
        let root = Root {
            identity: handle.identity,
            segment_shift: handle.segment_shift,
            number: self.root + 1,
            sequence: self.frozen_below,
            state_len: 0,
            state_crc: 0,
            copies,
            replay,
        };
        Ok((NewRoot { root, freed, announced }, state))
    }

    /// Segments for records when the announced ones are full.
    pub(super) fn to_announce(&self, freed: &[u32]) -> Vec<(u32, u64)> {
        let usable = |segment: &&u32| {
            let zone = self.segments.zones.get(&self.segments.zone_of(**segment));
            let unread = self.segments.used.get(segment).is_none_or(|used| used.readers == 0);
            unread && zone.is_some_and(|zone| !zone.leaving)
        };
        let freed: Vec<u32> = freed.iter().filter(usable).copied().collect();
        let left = (self.segments.free.len() + freed.len()).saturating_sub(self.map_need() as usize);
        let wanted = self.announced(self.since_freeze).saturating_sub(self.segments.ready.len());
        let candidates = freed.into_iter().rev().chain(self.segments.free.iter().rev().copied());
        // On a disk that is leaving, what is written has to move again. What is freed there would be used
        // over and over while hosts overwrite a log, so its zones would never be given up.
        let (elsewhere, there): (Vec<u32>, Vec<u32>) =
            candidates.partition(|segment| !self.segments.is_on_leaving_disk(*segment));
        let candidates = elsewhere.into_iter().chain(there);
        let generation = || if makes(Canary::GenerationKept) { 0 } else { rt::random() };
        candidates.take(wanted.min(left)).map(|segment| (segment, generation())).collect()
    }

    /// A zone that the log can do without, unless the pool has just not taken one back. First those of a disk
    /// that is leaving the pool, although something lies there.
    pub(super) fn zone_to_return(&self) -> Option<u32> {
        let leaving = self.segments.zones.values().any(|zone| zone.leaving);
        if leaving || !self.may_return_zone() {
            return None;
        }
        let idle = || self.segments.idle_zone().filter(|_| self.can_return_zone());
        self.zone_to_empty().or_else(idle)
    }

    pub(super) fn may_return_zone(&self) -> bool {
        self.return_again_at.is_none_or(|at| rt::now() >= at)
    }

    /// Begins to encode the state, without the segments that are about to be freed, in about this many bytes.
    fn encoding(&self, freed: &BTreeSet<u32>, len: usize) -> Encoding {
        let (mut data, mut map) = (Vec::new(), BTreeMap::new());
        for (segment, used) in &self.segments.used {
            if used.released || freed.contains(segment) {
                continue;
            }
            match used.kind {
                Kind::Map => drop(map.insert(*segment, used.generation)),
                Kind::Data => {
                    let mut bits = Vec::new();
                    if self.is_replayed(*segment) {
                        bits.clone_from(&used.bits);
                        mask(&mut bits, used.bits_before(used.replay_from));
                    }
                    let newest = used.newest.min(self.frozen_below.saturating_sub(1));
                    let (generation, packed) = (used.generation, used.packed);
                    data.push((*segment, DataSegment { generation, newest, packed, bits }));
                }
            }
        }
        let mut bytes = Vec::with_capacity(len);
        // At once, because snapshots may be taken while the rest is encoded.
        state::encode_marks(&self.marks, &mut bytes);
        bytes.extend_from_slice(&(data.len() as u32).to_le_bytes());
        let mut crc = Crc32c::new();
        crc.update(&bytes);
        Encoding {
            #[cfg(test)]
            expected: self.encoded(&data, &map),
            bytes,
            crc,
            data: data.into_iter(),
            map: Some(map),
            last: None,
        }
    }

    /// The same state, encoded in one go.
    #[cfg(test)]
    fn encoded(&self, data: &[(u32, DataSegment)], map: &BTreeMap<u32, u64>) -> Vec<u8> {
        let with_bits = |(segment, data): &(u32, DataSegment)| {
            let bits = if data.bits.is_empty() { &self.segments.used[segment].bits } else { &data.bits };
            (*segment, DataSegment { bits: bits.clone(), ..data.clone() })
        };
        let data = data.iter().map(with_bits).collect();
        let (marks, map) = (self.marks.clone(), map.clone());
        state::State { marks, data, map, leaves: BTreeMap::new() }.encode_with(&self.leaves)
    }

    /// Encodes some more of the state. Returns whether that was the rest.
    pub(super) fn encode_more(&self, state: &mut Encoding) -> bool {
        let from = state.bytes.len();
        let is_all = self.encode_until(from + ENCODE_BYTES, state);
        state.crc.update(&state.bytes[from..]);
        is_all
    }

    /// Encodes the rest of the state, or so much that it has `end` bytes.
    fn encode_until(&self, end: usize, state: &mut Encoding) -> bool {
        while state.bytes.len() < end
            && let Some((segment, data)) = state.data.next()
        {
            let bits = if data.bits.is_empty() { &self.segments.used[&segment].bits } else { &data.bits };
            state::encode_data(segment, &data, bits, &mut state.bytes);
        }
        if state.bytes.len() >= end {
            return false;
        }
        if let Some(map) = state.map.take() {
            state::encode_map(&map, self.leaves.len(), &mut state.bytes);
        }
        let from = state.last.map_or(Bound::Unbounded, Bound::Excluded);
        for (key, place) in self.leaves.range((from, Bound::Unbounded)) {
            if state.bytes.len() >= end {
                return false;
            }
            state::encode_leaf(*key, *place, &mut state.bytes);
            state.last = Some(*key);
        }
        true
    }

    /// Applies a root that is durable.
    pub(super) fn rooted(&mut self, new: NewRoot) {
        let NewRoot { root, freed, announced } = new;
        self.root = root.number;
        self.root_sequence = root.sequence;
        self.runs = root.copies;
        self.state_len = root.state_len as usize;
        self.frozen = None;
        self.frozen_replaced = Replaced::default();
        self.meanwhile = None;
        self.append.rooted(root.sequence);
        freed.into_iter().for_each(|segment| self.segments.release(segment));
        let taken: BTreeSet<u32> = announced.iter().map(|(segment, _)| *segment).collect();
        self.segments.free.retain(|segment| !taken.contains(segment));
        self.segments.ready.extend(announced);
        for used in self.segments.used.values_mut().filter(|used| used.cleaned <= root.sequence) {
            used.cleaned = 0;
        }
        // All of the table's blocks are newer than the freeze.
        self.settled = Some((self.live_quarters().saturating_sub(self.active.quarters()), self.held(None)));
        self.exhausted = false;
    }
}

/// Clears the bits from this one on.
fn mask(bits: &mut [u64], from: usize) {
    for (index, word) in bits.iter_mut().enumerate() {
        let start = index * 64;
        if from <= start {
            *word = 0;
        } else if from < start + 64 {
            *word &= (1 << (from - start)) - 1;
        }
    }
}

/// The pieces of one copy of the state: their places, and the numbers of their slots.
pub(super) fn in_pieces(runs: &[Run]) -> Vec<(Place, Range<usize>)> {
    let mut pieces = Vec::new();
    let mut at = 0;
    for run in runs {
        let slots = usize::from(run.slots);
        for from in (0..slots).step_by(PIECE_SLOTS) {
            let to = slots.min(from + PIECE_SLOTS);
            pieces.push((Place::new(run.segment, run.slot + from as u16), at + from..at + to));
        }
        at += slots;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second run is in two pieces.
    #[test]
    fn each_slot_of_the_state_is_in_one_piece() {
        let run = |segment, slot, slots| Run { segment, slot, slots };
        let pieces = in_pieces(&[run(7, 3, 2), run(9, 0, 300)]);
        let expected = [(Place::new(7, 3), 0..2), (Place::new(9, 0), 2..258), (Place::new(9, 256), 258..302)];
        assert_eq!(pieces, expected);
    }

    #[test]
    fn bits_from_one_on_are_masked() {
        for (from, expected) in
            [(0, [0, 0]), (1, [1, 0]), (64, [u64::MAX, 0]), (65, [u64::MAX, 1]), (128, [u64::MAX; 2])]
        {
            let mut bits = [u64::MAX; 2];
            mask(&mut bits, from);
            assert_eq!(bits, expected);
        }
    }
}
