//! Entry points for fuzz targets: decoders whose input gets a correct checksum first.

use std::collections::BTreeMap;
use std::rc::Rc;

use base::{BlockSize, ByteLen, crc32c};

use crate::catalog::{Catalog, Compression, DiskEntry, Host, Logs, SpacePolicy, VolumeEntry, VolumeKind};
use crate::copy::{MAP_PAGE_BYTES, PoolMark};
use crate::extent::ExtentRun;
use crate::geometry::Geometry;
use crate::id::{DiskId, HostId, PoolId, VolumeId};
use crate::log::leaf::{self, Era, Leaf, LeafKey, Spots};
use crate::log::marks::{Mark, Marks, Restore, Standing};
use crate::log::pack::{Packer, unpack};
use crate::log::place::{Place, SEGMENT_SLOTS_MIN, SLOT_BYTES, SLOT_QUARTERS, Size, Spot, Stored};
use crate::log::record::{Entry, Head, Stream, What};
use crate::log::root::{Replay, Root, Run};
use crate::log::state::{self, DataSegment, LeafPlace, State};
use crate::lost::Lost;
use crate::stripe::Stripe;
use crate::superblock::{DiskRole, Superblock};
use crate::thick::checksum_page::{self as page, Found, Identity, PAGE_BYTES};

/// The extent size of the pools whose catalogs are decoded.
const EXTENT_BYTES: u64 = 4 << 20;

/// Decodes a superblock with this content.
pub fn superblock(content: &[u8]) {
    let mut bytes = content.to_vec();
    bytes.resize(crate::superblock::CRC_AT, 0);
    bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
    if let Ok(superblock) = Superblock::decode(&bytes) {
        let again = Superblock::decode(&superblock.encode()).expect("what is written can be read");
        assert_eq!(again, superblock);
    }
}

/// Decodes a catalog.
pub fn catalog(bytes: &[u8]) {
    if let Ok(catalog) = Catalog::decode(bytes, EXTENT_BYTES) {
        let encoded = catalog.encode();
        let again = Catalog::decode(&encoded, EXTENT_BYTES).expect("what is written can be read");
        assert_eq!(again.encode(), encoded);
    }
}

/// Inserts the checksum of a slot where heads and roots have it.
fn with_checksum(content: &[u8]) -> Vec<u8> {
    let mut bytes = content.to_vec();
    bytes.resize(SLOT_BYTES, 0);
    bytes[8..12].fill(0);
    let crc = crc32c(&bytes);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Decodes the head of a record with this content.
pub fn log_head(content: &[u8]) {
    if let Some(head) = Head::decode(&with_checksum(content)) {
        assert_eq!(Head::decode(&head.encode()), Some(head), "what is written can be read");
    }
}

/// Decodes the root of a log with this content.
pub fn log_root(content: &[u8]) {
    if let Some(root) = Root::decode(&with_checksum(content)) {
        assert_eq!(Root::decode(&root.encode()), Some(root), "what is written can be read");
    }
}

/// Decodes a leaf with this content, with whichever key, and looks up all of it.
pub fn log_leaf(content: &[u8]) {
    let mut bytes = content.to_vec();
    if bytes.len() < 100 {
        return;
    }
    let crc = crc32c(&bytes[8..]);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    let field = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let short = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    if let Some(leaf) = Leaf::check(&bytes, (Era::new(short(8), short(96)), field(12)), field(24)) {
        let spots = leaf.spots();
        let mut tail = spots[100..].to_vec();
        leaf.read(100, &mut tail);
        assert_eq!(tail, spots[100..]);
    }
}

/// Decodes the state of a log with the smallest segments.
pub fn log_state(bytes: &[u8]) {
    if let Some(state) = State::decode(bytes, SEGMENT_SLOTS_MIN) {
        let again = State::decode(&state.encode_with(&state.leaves), SEGMENT_SLOTS_MIN);
        assert_eq!(again, Some(state), "what is written can be read");
    }
}

/// Decodes a slot of the state of a log with this content, whichever root and part it says it is of.
pub fn log_state_slot(content: &[u8]) {
    let mut bytes = content.to_vec();
    bytes.resize(SLOT_BYTES, 0);
    let crc = crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    let number = u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes"));
    let root = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
    let state = state::from_slot(&bytes, root, number).expect("it is whole");
    let (again, at) = (state::into_slots(state, root, 0..1), number.wrapping_add(1));
    assert_eq!(state::from_slot(&again, root, 0), Some(state), "what is written can be read");
    assert_eq!(state::from_slot(&bytes, root, at), None, "it is another slot");
    assert_eq!(state::from_slot(&bytes, root.wrapping_add(1), number), None, "it is another root's");
}

/// Decompresses a block with this content: its checksum comes first.
pub fn log_packed(content: &[u8]) {
    let stored =
        [&(content.len() as u16).to_le_bytes()[..], &crc32c(content).to_le_bytes(), content].concat();
    let mut block = vec![0; SLOT_BYTES];
    if unpack(&stored, &mut block, 0) {
        assert_eq!(crc32c(&block), 0);
    }
}

/// Compresses a block with this content, which must be read again.
pub fn log_block(content: &[u8]) {
    let mut block = [0; SLOT_BYTES];
    block.iter_mut().zip(content).for_each(|(byte, content)| *byte = *content);
    let mut stored = Vec::new();
    let size = Packer::default().pack(&block, &mut stored);
    assert_eq!(stored.len(), if size == Size::Whole { 0 } else { size.bytes() });
    let mut read = vec![0; SLOT_BYTES];
    assert!(size == Size::Whole || unpack(&stored, &mut read, crc32c(&block)) && read == block);
}

/// Decodes a page of checksums with this content, whichever volume, slice and page it says it is of.
pub fn checksum_page(content: &[u8]) {
    let mut bytes = content.to_vec();
    bytes.resize(PAGE_BYTES, 0);
    bytes[12..16].fill(0);
    let crc = crc32c(&bytes);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    let identity = Identity {
        volume: VolumeId(bytes[16..32].try_into().expect("16 bytes")),
        slice: u16::from_le_bytes([bytes[32], bytes[33]]),
        page: u64::from_le_bytes(bytes[40..48].try_into().expect("eight bytes")),
    };
    match page::decode(identity, &bytes) {
        Found::Closed(sums) => {
            assert_eq!(page::encode(identity, &sums, true)[..], bytes[..], "it is said in one way only");
        }
        Found::Open => {
            let open = page::encode(identity, &page::zeros(), false);
            assert_eq!(page::decode(identity, &open), Found::Open, "what is written can be read");
        }
        Found::Damaged => {}
    }
    let other = Identity { page: identity.page.wrapping_add(1), ..identity };
    assert_eq!(page::decode(other, &bytes), Found::Damaged, "it is another page");
}

/// A seed for [`checksum_page`].
pub fn checksum_page_seed() -> Vec<u8> {
    let identity = Identity { volume: VolumeId([7; 16]), slice: 258, page: 3 };
    page::encode(identity, &page::zeros(), true).to_vec()
}

/// Decodes the list of a slice's lost blocks with this content.
pub fn lost_blocks(content: &[u8]) {
    let mut page = [0; MAP_PAGE_BYTES];
    page.iter_mut().zip(content).for_each(|(byte, content)| *byte = *content);
    page[12..16].fill(0);
    let crc = crc32c(&page[..512]);
    page[12..16].copy_from_slice(&crc.to_le_bytes());
    let (lost, again) = (Lost::default(), Lost::default());
    if lost.load(&page) {
        assert!(again.load(&lost.page()), "what is written can be read");
        assert_eq!((again.page(), again.ranges()), (lost.page(), lost.ranges()));
        let first = lost.ranges().first().map(|(offset, _)| offset.0);
        assert_eq!(lost.first_in(&(0..u64::MAX)), first);
    }
}

/// A seed for [`lost_blocks`].
pub fn lost_blocks_seed() -> Vec<u8> {
    let lost = Lost::default();
    lost.hold(std::iter::once(20_480..20_992));
    lost.add(&(4096..8192), 0b10, true);
    lost.add(&(9216..9728), 0b101, true);
    lost.page()[..512].to_vec()
}

/// Seeds for [`log_head`], [`log_root`], [`log_leaf`], [`log_state`] and [`log_state_slot`], in this order.
pub fn log_seeds() -> [Vec<u8>; 5] {
    let leaf = leaf::encode(LEAF_KEY, LEAF_GENERATION, &leaf_example()).expect("it has blocks");
    let state = state_example();
    let state = state.encode_with(&state.leaves);
    let slot = state::into_slots(&state, root_example().number, 0..1).to_vec();
    [head_example().encode().to_vec(), root_example().encode(), leaf, state, slot].map(|mut seed| {
        let end = seed.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        seed.truncate(end.max(128).min(seed.len()));
        seed
    })
}

/// A seed for [`superblock`].
pub fn superblock_seed() -> Vec<u8> {
    let mut bytes = superblock_example().encode();
    bytes.truncate(crate::superblock::CRC_AT);
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(end);
    bytes
}

/// A seed for [`catalog`].
pub fn catalog_seed() -> Vec<u8> {
    catalog_example(512 << 20, &[4]).encode()
}

/// Sixteen bytes that count up from `first`.
pub(crate) fn id(first: u8) -> [u8; 16] {
    std::array::from_fn(|index| first + index as u8)
}

/// A superblock of disk 1 of 2.
pub(crate) fn superblock_example() -> Superblock {
    Superblock {
        pool: PoolId(id(0x10)),
        disk: DiskId(id(0x20)),
        index: 1,
        count: 2,
        generation: 7,
        geometry: Geometry {
            disk_bytes: 8 << 20,
            extent_bytes: 64 << 10,
            extents: 113,
            slot_bytes: 216 << 10,
        },
        reserved: true,
        role: DiskRole::Data,
    }
}

/// A catalog with one disk of 113 extents, and a volume of two slices, the first of which has these extents.
pub(crate) fn catalog_example(disk_bytes: u64, first_slice: &[u32]) -> Catalog {
    let run = |start: &u32| ExtentRun { disk: 0, start: *start, count: 1 };
    let volume = VolumeEntry {
        name: "db".into(),
        kind: VolumeKind::Thick,
        block_size: BlockSize::B512,
        physical_exponent: 3,
        stripe: Stripe::new(2, ByteLen(64 << 10)),
        capacity: ByteLen(192 << 10),
        created: 1_700_000_000,
        copy: None,
        lu_state: vec![1, 2, 3],
        slices: vec![first_slice.iter().map(run).collect(), vec![run(&5)]],
        map: Vec::new(),
        checksums: None,
        branch: 0,
        origin: None,
        space: SpacePolicy::default(),
        compression: Compression::Off,
        next: None,
    };
    Catalog {
        name: "p".into(),
        host: Host { id: HostId([0xaa; 16]), name: "node-a".into() },
        exported: false,
        disks: vec![DiskEntry { id: DiskId(id(0x20)), bytes: disk_bytes, extents: 113, leaving: false }],
        volumes: BTreeMap::from([(VolumeId(id(0x30)), Rc::new(volume))]),
        mark: PoolMark::default(),
        sealed: 0,
        logs: Logs::default(),
    }
}

/// A block, a moved block, zeros, a block in a half of a slot, a moved block in a quarter, a snapshot that
/// was taken, one that was deleted, and a restore.
pub(crate) fn head_example() -> Head {
    let moved = What::Moved { crc: 0x1122_3344, from: Place::new(0x01_0203, 0x2345) };
    let from = Place::at(0x01_0203, 0x2345 * SLOT_QUARTERS + 2, Size::Quarter);
    let packed = What::Block { crc: 0x5566_7788, size: Size::Half };
    Head {
        stream: Stream::Survivors,
        generation: 0x8877_6655_4433_2211,
        sequence: 258,
        durable_below: 257,
        root: 5,
        place: Place::new(0x0a_0b0c, 13),
        entries: vec![
            Entry {
                branch: 7,
                era: 0,
                block: 0x01_0203_0405,
                what: What::Block { crc: 0xdead_beef, size: Size::Whole },
            },
            Entry { branch: 7, era: 0, block: 9, what: moved },
            Entry { branch: 8, era: 0, block: 16, what: What::Zeros { count: 1000 } },
            Entry { branch: 7, era: 6, block: 10, what: packed },
            Entry { branch: 7, era: 5, block: 11, what: What::Moved { crc: 0x99aa_bbcc, from } },
            Entry { branch: 7, era: 6, block: 0x6543_2100, what: What::Taken { snapshot: 0x0807_0605 } },
            Entry { branch: 8, era: 4, block: 0, what: What::Deleted { snapshot: 9 } },
            Entry { branch: 7, era: 9, block: 6, what: What::Restored { restore: 0x0c0b_0a09 } },
        ],
    }
}

/// One run of each copy of the state, and two segments that are replayed.
pub(crate) fn root_example() -> Root {
    Root {
        identity: id(0x10),
        segment_shift: 16,
        number: 6,
        sequence: 258,
        state_len: 83,
        state_crc: 0x5566_7788,
        copies: [vec![Run { segment: 5, slot: 3, slots: 1 }], vec![Run { segment: 6, slot: 0, slots: 1 }]],
        replay: vec![
            Replay { segment: 9, from: 4, generation: 0x8877_6655_4433_2211 },
            Replay { segment: 10, from: 0, generation: 7 },
        ],
    }
}

/// Three snapshots, a restore, two data segments, one of them with compressed blocks, a map segment, a leaf,
/// and one of a snapshot.
pub(crate) fn state_example() -> State {
    let (generation, bits) = (0x8877_6655_4433_2211, vec![0x8005]);
    let data = DataSegment { generation, newest: 257, packed: false, bits };
    let bits = vec![0xf000_0000_0000_0016];
    let packed = DataSegment { generation: 8, newest: 256, packed: true, bits };
    let mut marks = Marks::starting(11);
    for (branch, era, standing) in
        [(7, 6, Standing::Kept), (7, 9, Standing::Deleted), (8, 10, Standing::Taking)]
    {
        marks.push(branch, Mark { era, id: 0x0807_0600 + u64::from(era), time: 0x6543_2100, standing });
    }
    marks.push_restore(7, Restore { era: 7, id: 0x0c0b_0a09, to: 6 });
    let now = LeafPlace { segment: 5, at: 64, len: 2, blocks: 3, quarters: 10 };
    // One block of it read as zeros.
    let past = LeafPlace { segment: 5, at: 66, len: 2, blocks: 2, quarters: 6 };
    State {
        marks,
        data: [(2, data), (3, packed)].into(),
        map: [(5, 7)].into(),
        leaves: [((Era::first(7), 3), now), (LEAF_KEY, past)].into(),
    }
}

/// The leaf of [`leaf_example`].
pub(crate) const LEAF_KEY: LeafKey = (Era { branch: 7, number: 6 }, 3);

/// The generation of the segment of [`leaf_example`].
pub(crate) const LEAF_GENERATION: u64 = 0x8877_6655_4433_2211;

/// Blocks 1, 2 (in a half of a slot), 3 (which read as zeros), 4 (which read as in the parent) and 511 of
/// leaf 3 of branch 7, as they were when era 6 began.
pub(crate) fn leaf_example() -> Spots {
    let mut spots = [Spot::Nothing; leaf::LEAF_BLOCKS as usize];
    let place = Place::new(0x01_0203, 0x2345);
    let half = Place::at(5, 2 * SLOT_QUARTERS + 2, Size::Half);
    spots[1] = Spot::At(Stored { place, crc: 0xdead_beef });
    spots[2] = Spot::At(Stored { place: half, crc: 0x5566_7788 });
    spots[3] = Spot::Zeros;
    spots[4] = Spot::Parent;
    spots[511] = Spot::At(Stored { place: Place::new(5, 1), crc: 0x1122_3344 });
    spots
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flips bits of valid examples and cuts them off: decoding must not panic.
    #[test]
    fn no_part_of_a_log_makes_a_decoder_panic() {
        let [head, root, leaf, state, slot] = log_seeds();
        shake(&head, log_head);
        shake(&root, log_root);
        shake(&leaf, log_leaf);
        shake(&state, log_state);
        shake(&slot, log_state_slot);
        let text = b"a block that shrinks, that shrinks, that shrinks".repeat(20);
        let mut stored = Vec::new();
        let mut block = [7; SLOT_BYTES];
        block[..text.len()].copy_from_slice(&text);
        Packer::default().pack(&block, &mut stored);
        let len = usize::from(u16::from_le_bytes([stored[0], stored[1]]));
        shake(&stored[6..6 + len], log_packed);
        shake(&text, log_block);
    }

    fn shake(seed: &[u8], decode: fn(&[u8])) {
        let mut rng = base::Rng::new(1);
        decode(seed);
        for _ in 0..20_000 {
            let mut bytes = seed.to_vec();
            for _ in 0..=rng.below(3) {
                let at = rng.below(bytes.len().min(200) as u64) as usize;
                bytes[at] = if rng.one_in(2) { 0xff } else { rng.next() as u8 };
            }
            if rng.one_in(4) {
                bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
            }
            decode(&bytes);
        }
    }

    #[test]
    fn the_seeds_are_whole() {
        let mut bytes = superblock_seed();
        bytes.resize(crate::superblock::CRC_AT, 0);
        bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        assert!(Superblock::decode(&bytes).is_ok());
        let catalog = Catalog::decode(&catalog_seed(), EXTENT_BYTES);
        assert!(catalog.is_ok(), "{catalog:?}");
    }
}
