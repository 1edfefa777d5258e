//! The root of a log: where its state lies, and where the log continues. Byte table: `docs/formats/log.md`.

use base::crc32c;

use super::place::SLOT_BYTES;
use crate::cursor::Cursor;

const MAGIC: &[u8; 8] = b"URSALOGR";
const VERSION: u16 = 1;
const CRC_AT: usize = 8;
const CRC_END: usize = CRC_AT + 4;
const LISTS_AT: usize = 64;
const RUN_BYTES: usize = 8;
const REPLAY_BYTES: usize = 16;

/// Runs of both copies of the state. With the smallest segments they hold 3.7 MiB of it twice; with ordinary
/// ones, more than any log needs. A state that is longer is written once.
pub(crate) const RUNS_MAX: usize = 120;

/// Segments that are replayed: those written since the last root, and those in which the log will continue.
pub(crate) const REPLAY_MAX: usize = 192;

const _: () =
    assert!(LISTS_AT + RUNS_MAX * RUN_BYTES + REPLAY_MAX * REPLAY_BYTES <= SLOT_BYTES, "a slot is enough");

/// Bytes of a log's roots in each mirror: two roots.
pub(crate) const ROOTS_BYTES: u64 = 2 * SLOT_BYTES as u64;

/// Consecutive slots of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub segment: u32,
    pub slot: u16,
    pub slots: u16,
}

/// A segment that may hold records to be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replay {
    pub segment: u32,
    pub from: u16,
    pub generation: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    pub identity: [u8; 16],
    pub segment_shift: u8,
    pub number: u64,
    /// Records with smaller numbers are in the map.
    pub sequence: u64,
    pub state_len: u32,
    pub state_crc: u32,
    /// Where the two copies of the state lie. The second one is empty if there is no room for it.
    pub copies: [Vec<Run>; 2],
    pub replay: Vec<Replay>,
}

impl Root {
    /// The first root of a log, which holds nothing.
    pub(crate) fn first(identity: [u8; 16], segment_shift: u8) -> Root {
        let state = super::state::empty();
        Root {
            identity,
            segment_shift,
            number: 1,
            sequence: 1,
            state_len: 0,
            state_crc: crc32c(&state),
            copies: [Vec::new(), Vec::new()],
            replay: Vec::new(),
        }
    }

    /// The offset of root `number` among the roots of its log, in bytes.
    pub(crate) fn offset(number: u64) -> u64 {
        number % 2 * SLOT_BYTES as u64
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let [first, second] = &self.copies;
        assert!(
            first.len() + second.len() <= RUNS_MAX && self.replay.len() <= REPLAY_MAX,
            "the caller has counted them"
        );
        let mut bytes = Vec::with_capacity(SLOT_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[self.segment_shift, 0]);
        bytes.extend_from_slice(&self.identity);
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&self.sequence.to_le_bytes());
        bytes.extend_from_slice(&self.state_len.to_le_bytes());
        bytes.extend_from_slice(&self.state_crc.to_le_bytes());
        bytes.extend_from_slice(&(first.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&(self.replay.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&(second.len() as u16).to_le_bytes());
        bytes.resize(LISTS_AT, 0);
        for run in first.iter().chain(second) {
            bytes.extend_from_slice(&run.segment.to_le_bytes());
            bytes.extend_from_slice(&run.slot.to_le_bytes());
            bytes.extend_from_slice(&run.slots.to_le_bytes());
        }
        for replay in &self.replay {
            bytes.extend_from_slice(&replay.segment.to_le_bytes());
            bytes.extend_from_slice(&u32::from(replay.from).to_le_bytes());
            bytes.extend_from_slice(&replay.generation.to_le_bytes());
        }
        bytes.resize(SLOT_BYTES, 0);
        let crc = crc32c(&bytes);
        bytes[CRC_AT..CRC_END].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes a slot; `None` if it is not an intact root.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Root> {
        if bytes.len() != SLOT_BYTES || !bytes.starts_with(MAGIC) {
            return None;
        }
        let mut covered = bytes.to_vec();
        covered[CRC_AT..CRC_END].fill(0);
        let mut fields = Cursor::new(&bytes[CRC_AT..]);
        if fields.u32()? != crc32c(&covered) || fields.u16()? != VERSION {
            return None;
        }
        let segment_shift = fields.u8()?;
        fields.u8()?;
        let identity = fields.id()?;
        let (number, sequence) = (fields.u64()?, fields.u64()?);
        let (state_len, state_crc) = (fields.u32()?, fields.u32()?);
        let (first, replay) = (usize::from(fields.u16()?), usize::from(fields.u16()?));
        let second = usize::from(fields.u16()?);
        if first + second > RUNS_MAX || replay > REPLAY_MAX {
            return None;
        }
        let mut fields = Cursor::new(&bytes[LISTS_AT..]);
        let run = |fields: &mut Cursor<'_>| {
            Some(Run { segment: fields.u32()?, slot: fields.u16()?, slots: fields.u16()? })
        };
        let mut runs = |count: usize| (0..count).map(|_| run(&mut fields)).collect::<Option<Vec<Run>>>();
        let copies = [runs(first)?, runs(second)?];
        let replayed = |fields: &mut Cursor<'_>| {
            let (segment, from) = (fields.u32()?, u16::try_from(fields.u32()?).ok()?);
            Some(Replay { segment, from, generation: fields.u64()? })
        };
        let replay = (0..replay).map(|_| replayed(&mut fields)).collect::<Option<Vec<Replay>>>()?;
        Some(Root { identity, segment_shift, number, sequence, state_len, state_crc, copies, replay })
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_flipped_bit_of_a_root_is_noticed() {
        let good = crate::fuzzing::root_example().encode();
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(super::Root::decode(&bytes), None, "bit {bit}");
        }
    }
}
