//! A record: the unit of writing to a log. Byte table: `docs/formats/log.md`.
//!
//! A head is self-contained: a scan of a segment sees from the head alone whether it belongs there and what
//! it changes. Data is never mistaken for a head, whatever a guest writes: see [`disguise`].

use base::{Buf, SharedBuf, crc32c};

use super::place::{Place, SLOT_BYTES};
use crate::cursor::Cursor;

const MAGIC: &[u8; 8] = b"URSALREC";
const VERSION: u16 = 1;

/// Offset of the checksum.
const CRC_AT: usize = 8;
const CRC_END: usize = CRC_AT + 4;

/// Offset of the entries.
const ENTRIES_AT: usize = 64;
const ENTRY_BYTES: usize = 24;

/// Entries of a head. It has room for eight more, which is kept for marks.
pub(crate) const ENTRIES_MAX: usize = 160;

/// Slots of data after a head: every entry may have one.
///
/// So a write of 1 MiB takes two records, because a disk takes longer for more and smaller pieces.
pub(crate) const DATA_SLOTS_MAX: usize = ENTRIES_MAX;

const _: () = assert!(ENTRIES_AT + ENTRIES_MAX * ENTRY_BYTES <= SLOT_BYTES, "the entries fit into a slot");
const _: () = assert!(DATA_SLOTS_MAX <= ENTRIES_MAX, "each slot of data has an entry");

const KIND_BLOCK: u8 = 1;
const KIND_MOVED: u8 = 2;
const KIND_ZEROS: u8 = 3;

/// The source of the records in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Writes of hosts.
    Hosts,
    /// Blocks that the cleaner moves.
    Survivors,
}

/// The first slot of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub stream: Stream,
    /// The generation of the segment.
    pub generation: u64,
    pub sequence: u64,
    /// Records with smaller sequence numbers are durable.
    pub durable_below: u64,
    /// The newest durable root.
    pub root: u64,
    /// The place of the head.
    pub place: Place,
    pub entries: Vec<Entry>,
}

/// What a record says about a block, or about a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub branch: u32,
    pub block: u64,
    pub what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The block is in the next slot of data, with this checksum.
    Block { crc: u32 },
    /// The same for a block that the cleaner has moved.
    Moved { crc: u32, from: Place },
    /// This many blocks read as zeros.
    Zeros { count: u64 },
}

impl Entry {
    /// Whether the entry has a slot of data.
    pub(crate) fn has_data(&self) -> bool {
        self.crc().is_some()
    }

    /// The checksum of the block in the entry's slot of data, if it has one.
    pub(crate) fn crc(&self) -> Option<u32> {
        match self.what {
            What::Block { crc } | What::Moved { crc, .. } => Some(crc),
            What::Zeros { .. } => None,
        }
    }

    /// Whether the next entry of a record says the same about the next block: that its data is in the next
    /// slot.
    pub(crate) fn is_followed_by(&self, next: &Entry) -> bool {
        let are_blocks = matches!((self.what, next.what), (What::Block { .. }, What::Block { .. }));
        are_blocks && self.branch == next.branch && self.block + 1 == next.block
    }

    fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..4].copy_from_slice(&self.branch.to_le_bytes());
        bytes[4..10].copy_from_slice(&self.block.to_le_bytes()[..6]);
        match self.what {
            What::Block { crc } => {
                bytes[10] = KIND_BLOCK;
                bytes[15..19].copy_from_slice(&crc.to_le_bytes());
            }
            What::Moved { crc, from } => {
                bytes[10] = KIND_MOVED;
                bytes[15..19].copy_from_slice(&crc.to_le_bytes());
                bytes[19..].copy_from_slice(&from.to_bytes());
            }
            What::Zeros { count } => {
                bytes[10] = KIND_ZEROS;
                bytes[15..21].copy_from_slice(&count.to_le_bytes()[..6]);
            }
        }
        bytes
    }

    fn decode(fields: &mut Cursor<'_>) -> Option<Entry> {
        let branch = fields.u32()?;
        let block = six(fields)?;
        let kind = fields.u8()?;
        // Eras will come with marks.
        if fields.u32()? != 0 {
            return None;
        }
        let what = match kind {
            KIND_BLOCK => {
                let crc = fields.u32()?;
                fields.take(5)?;
                What::Block { crc }
            }
            KIND_MOVED => {
                let crc = fields.u32()?;
                What::Moved { crc, from: Place::from_bytes(fields.take(5)?.try_into().ok()?)? }
            }
            KIND_ZEROS => {
                let count = six(fields)?;
                fields.take(3)?;
                What::Zeros { count }
            }
            _ => return None,
        };
        Some(Entry { branch, block, what })
    }
}

fn six(fields: &mut Cursor<'_>) -> Option<u64> {
    let mut bytes = [0; 8];
    bytes[..6].copy_from_slice(fields.take(6)?);
    Some(u64::from_le_bytes(bytes))
}

impl Head {
    /// Number of slots of data after the head.
    pub(crate) fn data_slots(&self) -> usize {
        self.entries.iter().filter(|entry| entry.has_data()).count()
    }

    pub(crate) fn encode(&self) -> Buf {
        assert!(self.entries.len() <= ENTRIES_MAX, "whoever gathers a record counts");
        let mut bytes = Vec::with_capacity(ENTRIES_AT + self.entries.len() * ENTRY_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.push(match self.stream {
            Stream::Hosts => 1,
            Stream::Survivors => 2,
        });
        bytes.push(0);
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        bytes.extend_from_slice(&self.sequence.to_le_bytes());
        bytes.extend_from_slice(&self.durable_below.to_le_bytes());
        bytes.extend_from_slice(&self.root.to_le_bytes());
        bytes.extend_from_slice(&(self.entries.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&(self.data_slots() as u16).to_le_bytes());
        bytes.extend_from_slice(&self.place.segment.to_le_bytes());
        bytes.extend_from_slice(&self.place.slot.to_le_bytes());
        bytes.resize(ENTRIES_AT, 0);
        self.entries.iter().for_each(|entry| bytes.extend_from_slice(&entry.encode()));
        let mut slot = Buf::zeroed(SLOT_BYTES);
        slot[..bytes.len()].copy_from_slice(&bytes);
        let crc = crc32c(&slot);
        slot[CRC_AT..CRC_END].copy_from_slice(&crc.to_le_bytes());
        slot
    }

    /// Decodes a slot; `None` if it is not an intact head.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Head> {
        if bytes.len() != SLOT_BYTES || !bytes.starts_with(MAGIC) {
            return None;
        }
        let mut covered = bytes.to_vec();
        covered[CRC_AT..CRC_END].fill(0);
        let mut fields = Cursor::new(&bytes[CRC_AT..]);
        if fields.u32()? != crc32c(&covered) || fields.u16()? != VERSION {
            return None;
        }
        let stream = match fields.u8()? {
            1 => Stream::Hosts,
            2 => Stream::Survivors,
            _ => return None,
        };
        fields.u8()?;
        let (generation, sequence) = (fields.u64()?, fields.u64()?);
        let (durable_below, root) = (fields.u64()?, fields.u64()?);
        let (count, data) = (usize::from(fields.u16()?), usize::from(fields.u16()?));
        let place = Place { segment: fields.u32()?, slot: fields.u16()? };
        if count > ENTRIES_MAX || data > DATA_SLOTS_MAX {
            return None;
        }
        let mut fields = Cursor::new(&bytes[ENTRIES_AT..]);
        let entries = (0..count).map(|_| Entry::decode(&mut fields)).collect::<Option<Vec<Entry>>>()?;
        let head = Head { stream, generation, sequence, durable_below, root, place, entries };
        (head.data_slots() == data).then_some(head)
    }
}

/// Changes blocks that begin like a head, so that they do not. All other blocks remain unchanged.
pub(crate) fn disguise(blocks: &mut SharedBuf) {
    if blocks.chunks(SLOT_BYTES).any(|block| block.starts_with(MAGIC)) {
        let changed = blocks.make_mut().chunks_mut(SLOT_BYTES).filter(|block| block.starts_with(MAGIC));
        changed.for_each(invert);
    }
}

fn invert(block: &mut [u8]) {
    block.iter_mut().take(MAGIC.len()).for_each(|byte| *byte = !*byte);
}

/// Whether `block`, as read, has this checksum. Undoes what [`disguise`] changed.
pub(crate) fn reveal(block: &mut [u8], crc: u32) -> bool {
    if crc32c(block) == crc {
        return true;
    }
    if !block.iter().zip(MAGIC).all(|(byte, magic)| *byte == !*magic) {
        return false;
    }
    invert(block);
    crc32c(block) == crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_looks_like_a_head_is_stored_as_none() {
        let place = Place { segment: 1, slot: 2 };
        let (generation, sequence) = (3, 4);
        let head = Head {
            stream: Stream::Hosts,
            generation,
            sequence,
            durable_below: 1,
            root: 1,
            place,
            entries: vec![],
        };
        let written = head.encode();
        assert_eq!(Head::decode(&written), Some(head));
        let crc = crc32c(&written);
        let mut stored = Buf::copy_of(&written).share();
        disguise(&mut stored);
        assert_eq!(Head::decode(&stored), None);
        assert!(reveal(stored.make_mut(), crc));
        assert_eq!(stored[..], written[..]);
    }

    /// Only the blocks that look like heads change, and only in the record.
    #[test]
    fn a_run_is_disguised_block_by_block() {
        let mut run = vec![7; 4 * SLOT_BYTES];
        for block in [1, 3] {
            run[block * SLOT_BYTES..][..8].copy_from_slice(MAGIC);
        }
        // In the middle of a block it is no head.
        run[100..108].copy_from_slice(MAGIC);
        let written = Buf::copy_of(&run).share();
        let mut stored = written.clone();
        disguise(&mut stored);
        assert_eq!(written[..], run);
        for block in [1, 3] {
            invert(&mut run[block * SLOT_BYTES..]);
        }
        assert_eq!(stored[..], run);
    }

    /// A guest may write a block that looks like a disguised one.
    #[test]
    fn a_block_that_looks_disguised_is_read_as_it_was_written() {
        let mut block = Buf::copy_of(&[7; SLOT_BYTES]);
        block[..8].copy_from_slice(&MAGIC.map(|byte| !byte));
        let (written, crc) = (block.to_vec(), crc32c(&block));
        let mut block = block.share();
        disguise(&mut block);
        let block = block.make_mut();
        assert!(reveal(block, crc));
        assert_eq!(block, written);
        block[100] ^= 1;
        assert!(!reveal(block, crc));
    }

    #[test]
    fn every_flipped_bit_of_a_head_is_noticed() {
        let good = crate::fuzzing::head_example().encode();
        for bit in 0..good.len() * 8 {
            let mut bytes = good.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Head::decode(&bytes), None, "bit {bit}");
        }
    }
}
