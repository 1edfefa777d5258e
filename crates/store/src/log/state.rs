//! The state of segments and leaves that a root names. Byte table: `docs/formats/log.md`.

use std::collections::BTreeMap;
use std::ops::Range;

use base::{Buf, crc32c};

use super::leaf::{Era, LeafKey};
use super::marks::{Mark, Marks, Restore, Standing};
use super::place::{SLOT_BYTES, SLOT_QUARTERS};
use super::segment::words;
use crate::cursor::Cursor;

/// Offset of the state's bytes in a slot. Before them, the slot says of which root's state it is which part.
const BYTES_AT: usize = 16;

/// Bytes of the state in a slot.
pub(crate) const STATE_BYTES: usize = SLOT_BYTES - BYTES_AT;

/// Bits per slot of a data segment, without and with compressed blocks.
const WHOLE: u8 = 1;
const PACKED: u8 = 4;

/// Where a leaf lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeafPlace {
    pub segment: u32,
    /// The offset in the segment, in multiples of [`super::leaf::LEAF_GRAIN`].
    pub at: u32,
    /// The length in the same unit.
    pub len: u8,
    /// How many of its blocks have a place.
    pub blocks: u16,
    /// How many quarters of slots these take.
    pub quarters: u16,
}

/// A data segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DataSegment {
    pub generation: u64,
    /// The newest record in it.
    pub newest: u64,
    /// Whether there is a bit for each quarter of a slot, because some blocks are compressed.
    pub packed: bool,
    /// The live slots, or quarters of slots, 64 per word.
    pub bits: Vec<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub marks: Marks,
    pub data: BTreeMap<u32, DataSegment>,
    /// The generations of map segments.
    pub map: BTreeMap<u32, u64>,
    pub leaves: BTreeMap<LeafKey, LeafPlace>,
}

/// Bytes of a state with these numbers of snapshots and restores, data segments (of which `packed` are
/// packed), map segments and leaves, for segments of `slots` slots.
pub(crate) fn encoded_len(
    marks: usize,
    data: usize,
    packed: usize,
    map: usize,
    leaves: usize,
    slots: u32,
) -> usize {
    let bits = words(slots, false) * (data - packed) + words(slots, true) * packed;
    let marks = 8 + marks * MARK_BYTES;
    marks + 4 + data * 21 + bits * 8 + 4 + map * MAP_ENTRY_BYTES + 8 + leaves * LEAF_ENTRY_BYTES
}

/// Bytes of a snapshot or a restore in the state.
const MARK_BYTES: usize = 25;

/// Bytes of a map segment's entry in the state.
pub(crate) const MAP_ENTRY_BYTES: usize = 12;

/// The same of a leaf's.
pub(crate) const LEAF_ENTRY_BYTES: usize = 26;

/// The slots of the state of root `root` that have these numbers. The last ones may have none of it.
pub(crate) fn into_slots(state: &[u8], root: u64, numbers: Range<usize>) -> Buf {
    let mut bytes = Buf::zeroed(numbers.len() * SLOT_BYTES);
    for (number, slot) in numbers.zip(bytes.chunks_mut(SLOT_BYTES)) {
        let start = (number * STATE_BYTES).min(state.len());
        let part = &state[start..(start + STATE_BYTES).min(state.len())];
        slot[4..8].copy_from_slice(&(number as u32).to_le_bytes());
        slot[8..BYTES_AT].copy_from_slice(&root.to_le_bytes());
        slot[BYTES_AT..BYTES_AT + part.len()].copy_from_slice(part);
        let crc = crc32c(&slot[4..]);
        slot[..4].copy_from_slice(&crc.to_le_bytes());
    }
    bytes
}

/// The bytes of the state in a slot; `None` if it is damaged, or is not slot `number` of the state of root
/// `root`.
pub(crate) fn from_slot(slot: &[u8], root: u64, number: u32) -> Option<&[u8]> {
    let mut fields = Cursor::new(slot);
    let whole = slot.len() == SLOT_BYTES && fields.u32()? == crc32c(slot.get(4..)?);
    let is_it = fields.u32()? == number && fields.u64()? == root;
    if whole && is_it { slot.get(BYTES_AT..) } else { None }
}

/// The state of a log that holds nothing. It is never written.
pub(crate) fn empty() -> Vec<u8> {
    Vec::new()
}

impl State {
    /// Encodes the state with these leaves instead of its own, so that a running log need not copy its
    /// directory.
    pub(crate) fn encode_with(&self, leaves: &BTreeMap<LeafKey, LeafPlace>) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_marks(&self.marks, &mut bytes);
        bytes.extend_from_slice(&(self.data.len() as u32).to_le_bytes());
        for (segment, data) in &self.data {
            encode_data(*segment, data, &data.bits, &mut bytes);
        }
        encode_map(&self.map, leaves.len(), &mut bytes);
        for (key, place) in leaves {
            encode_leaf(*key, *place, &mut bytes);
        }
        bytes
    }

    /// Decodes what [`State::encode_with`] wrote, for segments of `slots` slots.
    pub(crate) fn decode(bytes: &[u8], slots: u32) -> Option<State> {
        let mut state = State::default();
        if bytes.is_empty() {
            return Some(state);
        }
        let mut fields = Cursor::new(bytes);
        state.marks = decode_marks(&mut fields)?;
        for _ in 0..fields.u32()? {
            let segment = fields.u32()?;
            let (generation, newest) = (fields.u64()?, fields.u64()?);
            let per_slot = fields.u8()?;
            let packed = match per_slot {
                WHOLE => false,
                PACKED => true,
                _ => return None,
            };
            let bits = (0..words(slots, packed)).map(|_| fields.u64()).collect::<Option<Vec<u64>>>()?;
            let beyond = slots * u32::from(per_slot) % u64::BITS;
            if beyond > 0 && bits.last().is_some_and(|last| last >> beyond != 0) {
                return None;
            }
            if state.data.insert(segment, DataSegment { generation, newest, packed, bits }).is_some() {
                return None;
            }
        }
        for _ in 0..fields.u32()? {
            let segment = fields.u32()?;
            if state.map.insert(segment, fields.u64()?).is_some() || state.data.contains_key(&segment) {
                return None;
            }
        }
        for _ in 0..fields.u64()? {
            let era = Era::new(fields.u32()?, fields.u32()?);
            let mut number = [0; 8];
            number[..NUMBER_BYTES].copy_from_slice(fields.take(NUMBER_BYTES)?);
            let key = (era, u64::from_le_bytes(number));
            let is_past = era.number > 0;
            if is_past && !state.marks.has(era) {
                return None;
            }
            let segment = fields.u32()?;
            let (at, len) = (fields.u32()?, fields.u8()?);
            let (blocks, quarters) = (fields.u16()?, fields.u16()?);
            let end = u64::from(at) + u64::from(len);
            let inside = end <= u64::from(slots) * (SLOT_BYTES / super::leaf::LEAF_GRAIN) as u64;
            let possible = blocks..=blocks.saturating_mul(SLOT_QUARTERS as u16);
            // All blocks of a leaf of a snapshot may have read as zeros, or of a volume that was restored, or
            // of a clone, and which volumes are clones is not known here.
            let sound = inside
                && len > 0
                && u64::from(blocks) <= super::leaf::LEAF_BLOCKS
                && possible.contains(&quarters);
            if !sound || !state.map.contains_key(&segment) {
                return None;
            }
            if state.leaves.insert(key, LeafPlace { segment, at, len, blocks, quarters }).is_some() {
                return None;
            }
        }
        fields.is_at_end().then_some(state)
    }
}

/// Bytes of the number of a leaf: that of its first block has six.
const NUMBER_BYTES: usize = 5;

/// Encodes the snapshots, then the restores.
pub(super) fn encode_marks(marks: &Marks, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&marks.next().to_le_bytes());
    bytes.extend_from_slice(&(marks.len() as u32).to_le_bytes());
    let mut encode = |branch: u32, era: u32, id: u64, time: u64, what: u8| {
        bytes.extend_from_slice(&branch.to_le_bytes());
        bytes.extend_from_slice(&era.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
        bytes.extend_from_slice(&time.to_le_bytes());
        bytes.push(what);
    };
    for (branch, mark) in marks.iter() {
        let standing = match mark.standing {
            Standing::Taking => 1,
            Standing::Kept => 2,
            Standing::Deleted => 3,
        };
        encode(branch, mark.era, mark.id, mark.time, standing);
    }
    for (branch, restore) in marks.restores() {
        encode(branch, restore.era, restore.id, restore.to.into(), RESTORED);
    }
}

/// What stands for a restore, where snapshots have their standing.
const RESTORED: u8 = 4;

fn decode_marks(fields: &mut Cursor<'_>) -> Option<Marks> {
    let mut marks = Marks::starting(fields.u32()?);
    for _ in 0..fields.u32()? {
        let branch = fields.u32()?;
        let (era, id, time) = (fields.u32()?, fields.u64()?, fields.u64()?);
        let mark = |standing| Mark { era, id, time, standing };
        let mark = match fields.u8()? {
            1 => Some(mark(Standing::Taking)),
            2 => Some(mark(Standing::Kept)),
            3 => Some(mark(Standing::Deleted)),
            RESTORED => None,
            _ => return None,
        };
        if era == 0 || era >= marks.next() {
            return None;
        }
        let is_next = match mark {
            Some(mark) => marks.restores().next().is_none() && marks.push(branch, mark),
            None => marks.push_restore(branch, Restore { era, id, to: u32::try_from(time).ok()? }),
        };
        if !is_next {
            return None;
        }
    }
    Some(marks)
}

/// Encodes a data segment with these bits instead of its own. Before the first one is their number.
pub(super) fn encode_data(segment: u32, data: &DataSegment, bits: &[u64], bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&segment.to_le_bytes());
    bytes.extend_from_slice(&data.generation.to_le_bytes());
    bytes.extend_from_slice(&data.newest.to_le_bytes());
    bytes.push(if data.packed { PACKED } else { WHOLE });
    bits.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
}

/// Encodes the map segments, and the number of leaves that follow.
pub(super) fn encode_map(map: &BTreeMap<u32, u64>, leaves: usize, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&(map.len() as u32).to_le_bytes());
    for (segment, generation) in map {
        bytes.extend_from_slice(&segment.to_le_bytes());
        bytes.extend_from_slice(&generation.to_le_bytes());
    }
    bytes.extend_from_slice(&(leaves as u64).to_le_bytes());
}

/// Encodes where a leaf lies.
pub(super) fn encode_leaf((era, number): LeafKey, place: LeafPlace, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&era.branch.to_le_bytes());
    bytes.extend_from_slice(&era.number.to_le_bytes());
    bytes.extend_from_slice(&number.to_le_bytes()[..NUMBER_BYTES]);
    bytes.extend_from_slice(&place.segment.to_le_bytes());
    bytes.extend_from_slice(&place.at.to_le_bytes());
    bytes.push(place.len);
    bytes.extend_from_slice(&place.blocks.to_le_bytes());
    bytes.extend_from_slice(&place.quarters.to_le_bytes());
}
