//! A record: the unit of writing to a log. Byte table: `docs/formats/log.md`.
//!
//! A head is self-contained: a scan of a segment sees from the head alone whether it belongs there and what
//! it changes. Data is never mistaken for a head, whatever a guest writes: see [`disguise`].

use std::cmp::Reverse;

use base::{Buf, Chain, SharedBuf, crc32c};

use super::place::{Place, QUARTER_BYTES, SLOT_BYTES, SLOT_QUARTERS, Size};
use crate::canary::{Canary, makes};
use crate::cursor::Cursor;

const MAGIC: &[u8; 8] = b"URSALREC";
const VERSION: u16 = 1;

/// Offset of the checksum.
const CRC_AT: usize = 8;
const CRC_END: usize = CRC_AT + 4;

/// Offset of the entries.
const ENTRIES_AT: usize = 64;
const ENTRY_BYTES: usize = 24;

/// Entries of a head.
pub(crate) const ENTRIES_MAX: usize = 160;

/// Slots of data after a head: every entry may have one. Compressed blocks share slots, and may lie behind
/// the entries in the head's own.
///
/// So a write of 1 MiB takes two records, because a disk takes longer for more and smaller pieces.
pub(crate) const DATA_SLOTS_MAX: usize = ENTRIES_MAX;

const _: () = assert!(ENTRIES_AT + ENTRIES_MAX * ENTRY_BYTES <= SLOT_BYTES, "the entries fit into a slot");
const _: () = assert!(DATA_SLOTS_MAX <= ENTRIES_MAX, "each slot of data has an entry");

const KIND_BLOCK: u8 = 1;
const KIND_MOVED: u8 = 2;
const KIND_ZEROS: u8 = 3;
const KIND_TAKEN: u8 = 4;
const KIND_DELETED: u8 = 5;
const KIND_RESTORED: u8 = 6;

/// These bits of the kind say how much room the data takes: neither is set for a whole slot, the first for a
/// half, both for a quarter.
const PACKED: u8 = 1 << 7;
const QUARTER: u8 = 1 << 6;

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

/// What a record says about a block, a range or a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub branch: u32,
    /// Of a moved block, the era in which it was written.
    pub era: u32,
    /// Of a snapshot, the time at which it was taken; 0 if it is deleted. Of a restore, the era that begins
    /// with its snapshot.
    pub block: u64,
    pub what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The block has this checksum, and its data takes this much room.
    Block { crc: u32, size: Size },
    /// The same for a block that the cleaner has moved; it takes as much room as before.
    Moved { crc: u32, from: Place },
    /// This many blocks read as zeros.
    Zeros { count: u64 },
    /// A snapshot was taken. The era begins with it.
    Taken { snapshot: u64 },
    /// The snapshot with which the era began was deleted.
    Deleted { snapshot: u64 },
    /// The branch was restored. The era begins with it.
    Restored { restore: u64 },
}

impl Entry {
    /// Whether the entry has data.
    pub(crate) fn has_data(&self) -> bool {
        self.size().is_some()
    }

    /// How much room the entry's data takes, if it has any.
    pub(crate) fn size(&self) -> Option<Size> {
        match self.what {
            What::Block { size, .. } => Some(size),
            What::Moved { from, .. } => Some(from.size()),
            _ => None,
        }
    }

    /// The checksum of the block that the entry's data is, if it has any.
    pub(crate) fn crc(&self) -> Option<u32> {
        match self.what {
            What::Block { crc, .. } | What::Moved { crc, .. } => Some(crc),
            _ => None,
        }
    }

    /// Whether it is about a snapshot, or a restore.
    pub(crate) fn is_of_snapshot(&self) -> bool {
        matches!(self.what, What::Taken { .. } | What::Deleted { .. } | What::Restored { .. })
    }

    /// Whether the next entry of a record says the same about the next block: that its data follows, and
    /// takes as much room.
    pub(crate) fn is_followed_by(&self, next: &Entry) -> bool {
        let are_blocks = matches!((self.what, next.what), (What::Block { .. }, What::Block { .. }));
        let is_of_same = self.branch == next.branch && self.era == next.era;
        are_blocks && self.size() == next.size() && is_of_same && self.block + 1 == next.block
    }

    fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..4].copy_from_slice(&self.branch.to_le_bytes());
        bytes[4..10].copy_from_slice(&self.block.to_le_bytes()[..6]);
        bytes[11..15].copy_from_slice(&self.era.to_le_bytes());
        let room = match self.size() {
            None | Some(Size::Whole) => 0,
            Some(Size::Half) => PACKED,
            Some(Size::Quarter) => PACKED | QUARTER,
        };
        match self.what {
            What::Block { crc, .. } => {
                bytes[10] = KIND_BLOCK | room;
                bytes[15..19].copy_from_slice(&crc.to_le_bytes());
            }
            What::Moved { crc, from } => {
                bytes[10] = KIND_MOVED | room;
                bytes[15..19].copy_from_slice(&crc.to_le_bytes());
                bytes[19..].copy_from_slice(&from.to_bytes());
            }
            What::Zeros { count } => {
                bytes[10] = KIND_ZEROS;
                bytes[15..21].copy_from_slice(&count.to_le_bytes()[..6]);
            }
            What::Taken { snapshot } => {
                bytes[10] = KIND_TAKEN;
                bytes[15..23].copy_from_slice(&snapshot.to_le_bytes());
            }
            What::Deleted { snapshot } => {
                bytes[10] = KIND_DELETED;
                bytes[15..23].copy_from_slice(&snapshot.to_le_bytes());
            }
            What::Restored { restore } => {
                bytes[10] = KIND_RESTORED;
                bytes[15..23].copy_from_slice(&restore.to_le_bytes());
            }
        }
        bytes
    }

    fn decode(fields: &mut Cursor<'_>) -> Option<Entry> {
        let branch = fields.u32()?;
        let block = six(fields)?;
        let kind = fields.u8()?;
        let era = fields.u32()?;
        let size = match kind & (PACKED | QUARTER) {
            0 => Size::Whole,
            PACKED => Size::Half,
            QUARTER => return None,
            _ => Size::Quarter,
        };
        let what = match kind & !(PACKED | QUARTER) {
            KIND_BLOCK => {
                let crc = fields.u32()?;
                fields.take(5)?;
                What::Block { crc, size }
            }
            KIND_MOVED => {
                let crc = fields.u32()?;
                let from = Place::from_bytes(fields.take(5)?.try_into().ok()?)?;
                if from.size() != size {
                    return None;
                }
                What::Moved { crc, from }
            }
            KIND_ZEROS if size == Size::Whole => {
                let count = six(fields)?;
                fields.take(3)?;
                What::Zeros { count }
            }
            // The snapshot is older. Otherwise, reads would come back to the same line again and again.
            KIND_RESTORED if !(1..u64::from(era)).contains(&block) => return None,
            // The first era begins with no snapshot.
            KIND_TAKEN | KIND_DELETED | KIND_RESTORED if size == Size::Whole && era > 0 => {
                let id = fields.u64()?;
                fields.take(1)?;
                match kind {
                    KIND_TAKEN => What::Taken { snapshot: id },
                    KIND_DELETED => What::Deleted { snapshot: id },
                    _ => What::Restored { restore: id },
                }
            }
            _ => return None,
        };
        Some(Entry { branch, era, block, what })
    }
}

fn six(fields: &mut Cursor<'_>) -> Option<u64> {
    let mut bytes = [0; 8];
    bytes[..6].copy_from_slice(fields.take(6)?);
    Some(u64::from_le_bytes(bytes))
}

/// Where the data of a record lies: the data of each entry follows that of the one before, at the next place
/// of its size. The first one follows the entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Where the data so far ends, in quarters from the beginning of the head.
    end: u32,
}

impl Layout {
    /// That of a record with this many entries.
    pub(crate) fn new(entries: usize) -> Layout {
        Layout { end: (ENTRIES_AT + entries * ENTRY_BYTES).div_ceil(QUARTER_BYTES) as u32 }
    }

    /// Where data of this size goes.
    fn next(self, size: Size) -> u32 {
        self.end.next_multiple_of(size.quarters())
    }

    /// Takes room for this many blocks of one size. Returns where it begins, in quarters from the beginning
    /// of the head.
    pub(crate) fn take(&mut self, size: Size, count: usize) -> u32 {
        let at = self.next(size);
        self.end = at + count as u32 * size.quarters();
        at
    }

    /// The sizes of which a block fits behind the entries, in the head's own slot: first the one that leaves
    /// no gap.
    fn fitting_behind_head(self) -> impl Iterator<Item = Size> {
        let sizes = if self.end.is_multiple_of(2) {
            [Size::Half, Size::Quarter]
        } else {
            [Size::Quarter, Size::Half]
        };
        sizes.into_iter().filter(move |size| self.next(*size) + size.quarters() <= SLOT_QUARTERS)
    }

    /// The slots of data after the head.
    fn slots(self) -> usize {
        (self.end.div_ceil(SLOT_QUARTERS) as usize).saturating_sub(1)
    }
}

/// How many slots of data a record with these entries has after its head.
pub(crate) fn data_slots(entries: &[Entry]) -> usize {
    let mut layout = Layout::new(entries.len());
    for size in entries.iter().filter_map(Entry::size) {
        layout.take(size, 1);
    }
    layout.slots()
}

/// How many slots this many blocks of one size take in full records, with the heads.
pub(crate) fn slots_of_records(size: Size, blocks: u32) -> u32 {
    let slots = |blocks: u32| {
        let mut layout = Layout::new(blocks as usize);
        layout.take(size, blocks as usize);
        1 + layout.slots() as u32
    };
    let (full, rest) = (blocks / ENTRIES_MAX as u32, blocks % ENTRIES_MAX as u32);
    full * slots(ENTRIES_MAX as u32) + if rest > 0 { slots(rest) } else { 0 }
}

/// Data of a record: blocks of one size, one after the other, as they are stored.
pub(crate) type StoredRun = (Size, SharedBuf);

/// Puts entries, and the data of those that have any, into the order in which the data takes the fewest
/// slots: first what fits behind the entries in the head's own slot, then the rest from large to small.
///
/// The order of the entries of a record means nothing, because no two of them concern the same block.
pub(crate) fn arrange(entries: &mut [Entry], data: &mut Vec<StoredRun>) {
    if !data.iter().any(|(size, _)| size.is_packed()) {
        return;
    }
    entries.sort_by_key(|entry| Reverse(entry.size()));
    data.sort_by_key(|(size, _)| Reverse(*size));
    let mut layout = Layout::new(entries.len());
    // How many entries come first, each with a part of its own.
    let mut first = 0;
    loop {
        let found = layout.fitting_behind_head().find_map(|size| {
            let entry = entries[first..].iter().position(|entry| entry.size() == Some(size))?;
            let part = data[first..].iter().position(|(of, _)| *of == size)?;
            Some((size, first + entry, first + part))
        });
        let Some((size, entry, part)) = found else { return };
        entries[first..=entry].rotate_right(1);
        let (of, bytes) = data.remove(part);
        if bytes.len() > size.bytes() {
            data.insert(part, (of, bytes.slice(size.bytes()..bytes.len())));
        }
        data.insert(first, (of, bytes.slice(0..size.bytes())));
        layout.take(size, 1);
        first += 1;
    }
}

/// The bytes of a record. Blocks that are stored as they are stay where they are in memory.
pub(crate) fn in_a_row(head: &Head, data: impl IntoIterator<Item = StoredRun>) -> Chain {
    let mut slot = head.encode_unsealed();
    let mut layout = Layout::new(head.entries.len());
    let mut rest = Chain::new();
    // Slots of compressed blocks that are not in `rest` yet, and where they begin.
    let mut packed: Vec<u8> = Vec::new();
    let mut start = 0;
    for (size, mut blocks) in data {
        if size == Size::Whole {
            push_slots(&mut rest, &mut packed);
            layout.take(size, blocks.len() / SLOT_BYTES);
            if !makes(Canary::DataAsHead) {
                disguise(&mut blocks);
            }
            rest.push(blocks);
            continue;
        }
        for stored in blocks.chunks(size.bytes()) {
            let at = layout.take(size, 1);
            if at < SLOT_QUARTERS {
                let at = at as usize * QUARTER_BYTES;
                slot[at..at + stored.len()].copy_from_slice(stored);
                continue;
            }
            if packed.is_empty() {
                start = at / SLOT_QUARTERS * SLOT_QUARTERS;
            }
            packed.resize((at - start) as usize * QUARTER_BYTES, 0);
            packed.extend_from_slice(stored);
        }
    }
    push_slots(&mut rest, &mut packed);
    seal(&mut slot);
    let mut bytes = Chain::from(slot);
    bytes.append(rest);
    debug_assert_eq!(bytes.len(), (1 + head.data_slots()) * SLOT_BYTES, "the data is that of the entries");
    bytes
}

/// Adds slots of compressed blocks to a record, the last one filled up with zeros.
fn push_slots(bytes: &mut Chain, packed: &mut Vec<u8>) {
    if !packed.is_empty() {
        packed.resize(packed.len().next_multiple_of(SLOT_BYTES), 0);
        bytes.push(Buf::copy_of(packed).share());
        packed.clear();
    }
}

/// Enters the checksum of a head's slot.
fn seal(slot: &mut Buf) {
    slot[CRC_AT..CRC_END].fill(0);
    let crc = crc32c(slot);
    slot[CRC_AT..CRC_END].copy_from_slice(&crc.to_le_bytes());
}

impl Head {
    /// Number of slots of data after the head.
    pub(crate) fn data_slots(&self) -> usize {
        data_slots(&self.entries)
    }

    /// The entries that have data, and where it lies.
    pub(crate) fn stored(&self) -> impl Iterator<Item = (&Entry, Place)> {
        let mut layout = Layout::new(self.entries.len());
        self.entries.iter().filter_map(move |entry| {
            let size = entry.size()?;
            Some((entry, self.place.behind(layout.take(size, 1), size)))
        })
    }

    /// The head's slot, without data.
    pub(crate) fn encode(&self) -> Buf {
        let mut slot = self.encode_unsealed();
        seal(&mut slot);
        slot
    }

    fn encode_unsealed(&self) -> Buf {
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
        let place = Place::new(fields.u32()?, fields.u16()?);
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
    fn a_restore_goes_back_to_an_earlier_era() {
        let decodes = |block: u64| {
            let entry = Entry { branch: 7, era: 9, block, what: What::Restored { restore: 1 } };
            Entry::decode(&mut Cursor::new(&entry.encode())) == Some(entry)
        };
        assert_eq!([0, 1, 8, 9, 10].map(decodes), [false, true, true, false, false]);
    }

    #[test]
    fn a_block_that_looks_like_a_head_is_stored_as_none() {
        let place = Place::new(1, 2);
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

    /// What lies where, with blocks of all sizes: heads share their slots, and slots have no gaps.
    #[test]
    fn blocks_of_a_record_take_as_few_slots_as_they_can() {
        use Size::{Half, Quarter, Whole};
        let cases: [(&[Size], usize); 9] = [
            (&[], 0),
            (&[Whole], 1),
            (&[Half], 0),
            (&[Quarter], 0),
            (&[Quarter, Half], 0),
            (&[Half, Quarter, Quarter], 1),
            (&[Quarter, Quarter, Quarter], 0),
            (&[Quarter, Whole, Quarter, Whole, Half, Half, Half], 4),
            (&[Half; 100], 50),
        ];
        for (sizes, slots) in cases {
            let entry = |(number, size): (usize, &Size)| {
                let what = What::Block { crc: number as u32, size: *size };
                Entry { branch: 1, era: 0, block: 10 * number as u64, what }
            };
            let mut entries: Vec<Entry> = sizes.iter().enumerate().map(entry).collect();
            let zeros = What::Zeros { count: 7 };
            entries.insert(entries.len() / 2, Entry { branch: 1, era: 0, block: 5, what: zeros });
            let run = |(number, size): (usize, &Size)| {
                (*size, Buf::copy_of(&vec![number as u8 + 1; size.bytes()]).share())
            };
            let mut data: Vec<StoredRun> = sizes.iter().enumerate().map(run).collect();
            arrange(&mut entries, &mut data);
            let (place, stream) = (Place::new(7, 100), Stream::Hosts);
            let (generation, sequence, durable_below, root) = (3, 4, 1, 1);
            let head = Head { stream, generation, sequence, durable_below, root, place, entries };
            let bytes = in_a_row(&head, data).to_vec();
            assert_eq!(bytes.len(), (1 + slots) * SLOT_BYTES, "{sizes:?}");
            assert_eq!(Head::decode(&bytes[..SLOT_BYTES]).as_ref(), Some(&head));
            assert_eq!(head.stored().count(), sizes.len());
            for (entry, place) in head.stored() {
                let at = (place.quarter() - 400) as usize * QUARTER_BYTES;
                let expected = entry.crc().unwrap() as u8 + 1;
                assert!(bytes[at..at + place.size().bytes()].iter().all(|byte| *byte == expected));
            }
        }
    }

    #[test]
    fn full_records_are_counted_with_their_heads() {
        for (blocks, wholes, quarters) in
            [(0, 0, 0), (1, 2, 1), (3, 4, 1), (4, 5, 2), (54, 55, 14), (160, 161, 41), (161, 163, 42)]
        {
            assert_eq!(slots_of_records(Size::Whole, blocks), wholes);
            assert_eq!(slots_of_records(Size::Quarter, blocks), quarters);
        }
        // A mixture takes no more than quarters that are as large together.
        for halves in 0..40 {
            for wholes in 0..(120 - halves) / 3 {
                for rest in 0..=3 {
                    let mut entries = Vec::new();
                    for (size, count) in [(Size::Quarter, rest), (Size::Half, halves), (Size::Whole, wholes)]
                    {
                        let what = What::Block { crc: 0, size };
                        entries.extend((0..count).map(|block| Entry { branch: 1, era: 0, block, what }));
                    }
                    if entries.is_empty() {
                        continue;
                    }
                    // The data is not needed to put the entries in order.
                    let mut data: Vec<StoredRun> = entries
                        .iter()
                        .filter_map(Entry::size)
                        .map(|size| (size, Buf::zeroed(size.bytes()).share()))
                        .collect();
                    arrange(&mut entries, &mut data);
                    let sum = (rest + 2 * halves + 4 * wholes) as u32;
                    let slots = 1 + data_slots(&entries) as u32;
                    assert!(
                        slots <= slots_of_records(Size::Quarter, sum),
                        "{rest} quarters, {halves} halves, {wholes} slots"
                    );
                }
            }
        }
    }

    /// A run is cut where its first block goes behind the head.
    #[test]
    fn a_run_of_compressed_blocks_may_begin_behind_the_head() {
        let entry = |block| Entry {
            branch: 1,
            era: 0,
            block,
            what: What::Block { crc: block as u32, size: Size::Quarter },
        };
        let mut entries: Vec<Entry> = (0..9).map(entry).collect();
        let bytes: Vec<u8> = (0..9).flat_map(|block| [block; QUARTER_BYTES]).collect();
        let mut data = vec![(Size::Quarter, Buf::copy_of(&bytes).share())];
        arrange(&mut entries, &mut data);
        let place = Place::new(7, 0);
        let (stream, generation, sequence, durable_below, root) = (Stream::Survivors, 3, 4, 1, 1);
        let head = Head { stream, generation, sequence, durable_below, root, place, entries };
        let blocks: Vec<(u64, u32)> =
            head.stored().map(|(entry, place)| (entry.block, place.quarter())).collect();
        assert_eq!(blocks, (0..9).zip(1..).collect::<Vec<(u64, u32)>>());
        assert!(head.entries.is_sorted_by_key(|entry| entry.block), "they are one run");
        let found = in_a_row(&head, data).to_vec();
        assert_eq!(found[QUARTER_BYTES..10 * QUARTER_BYTES], bytes);
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
