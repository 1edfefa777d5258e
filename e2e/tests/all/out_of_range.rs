//! Commands for blocks that the volume does not have, and for more blocks than page B0h allows.
//!
//! Each is refused with the right sense and changes nothing, and the session continues.

use e2e::raw::{Raw, Sense, cdb16};
use e2e::{Node, VolumeSpec, pattern};

const BLOCKS: u64 = 128 << 10;
const BLOCK: usize = 512;
/// Blocks at both ends of the volume that must stay untouched.
const GUARD_BLOCKS: u32 = 8;
const GUARD: usize = GUARD_BLOCKS as usize * BLOCK;

const OUT_OF_RANGE: Sense = Sense { key: 5, code: (0x21, 0x00) };
const INVALID_IN_CDB: Sense = Sense { key: 5, code: (0x24, 0x00) };
const INVALID_IN_LIST: Sense = Sense { key: 5, code: (0x26, 0x00) };

/// The data that a command sends or expects.
#[derive(Clone, Copy)]
enum Data {
    None,
    /// Sends nothing, and expects its blocks.
    In,
    /// All its blocks.
    Out,
    /// All its blocks, twice.
    Twice,
    /// One block.
    One,
}

/// Commands with 16-byte CDBs that have an LBA and a number of blocks where READ (16) has them.
const COMMANDS_16: [(&str, u8, Data); 8] = [
    ("READ (16)", 0x88, Data::In),
    ("WRITE (16)", 0x8a, Data::Out),
    ("WRITE AND VERIFY (16)", 0x8e, Data::Out),
    ("VERIFY (16)", 0x8f, Data::None),
    ("ORWRITE (16)", 0x8b, Data::Out),
    ("PRE-FETCH (16)", 0x90, Data::None),
    ("WRITE SAME (16)", 0x93, Data::One),
    ("COMPARE AND WRITE", 0x89, Data::Twice),
];
/// The same with 10-byte CDBs.
const COMMANDS_10: [(&str, u8, Data); 5] = [
    ("READ (10)", 0x28, Data::In),
    ("WRITE (10)", 0x2a, Data::Out),
    ("WRITE AND VERIFY (10)", 0x2e, Data::Out),
    ("VERIFY (10)", 0x2f, Data::None),
    ("WRITE SAME (10)", 0x41, Data::One),
];

#[test]
fn blocks_out_of_range_are_refused_and_the_session_continues() {
    let mut unit = Unit::start("beyond");
    // The block after the last; the last and one more; the last that a number can address, and the last two.
    for (lba, blocks) in [(BLOCKS, 1), (BLOCKS - 1, 2), (u64::MAX, 1), (u64::MAX - 1, 2)] {
        for (name, operation, data) in COMMANDS_16 {
            unit.refuses(name, cdb16(operation, 0, lba, blocks), data, blocks, OUT_OF_RANGE);
        }
        unit.refuses_unmap(&[(lba, blocks)], OUT_OF_RANGE);
        // An existing range first: it must not be unmapped either.
        unit.refuses_unmap(&[(0, GUARD_BLOCKS), (lba, blocks)], OUT_OF_RANGE);
    }
    for (lba, blocks) in [(BLOCKS as u32, 1), (BLOCKS as u32 - 1, 2), (u32::MAX, 1)] {
        for (name, operation, data) in COMMANDS_10 {
            unit.refuses(name, cdb10(operation, lba, blocks), data, u32::from(blocks), OUT_OF_RANGE);
        }
    }
    unit.check();
}

#[test]
fn more_than_block_limits_say_is_refused_and_all_of_that_is_done() {
    let mut unit = Unit::start("limits");
    let limits = Limits::of(&mut unit.raw);
    let transfer = limits.transfer;
    for (name, operation, data) in COMMANDS_16 {
        let max = match operation {
            0x93 => limits.write_same,
            0x89 => limits.compare_and_write,
            // A hint: it is cut.
            0x90 => continue,
            _ => transfer,
        };
        assert!(u64::from(max) < BLOCKS, "{name}: {max} blocks are more than the volume has");
        unit.refuses(name, cdb16(operation, 0, 0, max + 1), data, 1, INVALID_IN_CDB);
    }
    let too_many = vec![(0, 1); limits.unmap_descriptors as usize + 1];
    unit.refuses_unmap(&too_many, INVALID_IN_LIST);
    let times = u64::from(limits.unmap_blocks) / BLOCKS + 1;
    unit.refuses_unmap(&vec![(0, BLOCKS as u32); times as usize], INVALID_IN_LIST);
    unit.check();

    let read = unit.raw.read(0, transfer, transfer as usize * BLOCK).expect("the longest READ");
    assert!(read.starts_with(&unit.head), "the longest READ gives other data");
    let last = BLOCKS - u64::from(limits.write_same);
    unit.raw
        .execute(cdb16(0x93, 0, last, limits.write_same), 0, &[0x5a; BLOCK])
        .expect("the longest WRITE SAME");
    let block = unit.raw.read(BLOCKS - 1, 1, BLOCK).expect("the last block");
    assert!(block.iter().all(|byte| *byte == 0x5a), "the longest WRITE SAME did not reach its end");
}

/// The values of page B0h (SBC-3 6.6.4), in blocks.
struct Limits {
    compare_and_write: u32,
    transfer: u32,
    unmap_blocks: u32,
    unmap_descriptors: u32,
    write_same: u32,
}

impl Limits {
    fn of(raw: &mut Raw) -> Limits {
        const LEN: usize = 64;
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[2], cdb[4]) = (0x12, 1, 0xb0, LEN as u8);
        let page = raw.execute(cdb, LEN, &[]).expect("there is a page of block limits");
        let word = |at: usize| u32::from_be_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]);
        assert_eq!(word(36), 0, "MAXIMUM WRITE SAME LENGTH has eight bytes");
        Limits {
            compare_and_write: u32::from(page[5]),
            transfer: word(8),
            unmap_blocks: word(20),
            unmap_descriptors: word(24),
            write_same: word(40),
        }
    }
}

/// A session with a volume that has known data at both ends.
struct Unit {
    raw: Raw,
    head: Vec<u8>,
    tail: Vec<u8>,
    _node: Node,
}

impl Unit {
    fn start(name: &str) -> Unit {
        let mut node = Node::start();
        let export = node.create(&VolumeSpec::new(name, BLOCKS * BLOCK as u64));
        let mut raw = Raw::login(&export, 0, 1).expect("it may log in");
        raw.wait_until_ready().expect("the unit gets ready");
        let (head, tail) = (pattern::stamped(1, 1, 0, GUARD), pattern::stamped(1, 2, Unit::TAIL, GUARD));
        raw.write(0, GUARD_BLOCKS, &head, false).expect("the first blocks");
        raw.write(Unit::TAIL, GUARD_BLOCKS, &tail, false).expect("the last blocks");
        Unit { raw, head, tail, _node: node }
    }

    /// Where the last blocks begin.
    const TAIL: u64 = BLOCKS - GUARD_BLOCKS as u64;

    /// Sends the command with the data of this many blocks, and expects this sense.
    #[track_caller]
    fn refuses(&mut self, name: &str, cdb: [u8; 16], data: Data, blocks: u32, why: Sense) {
        let bytes = blocks as usize * BLOCK;
        let (expected, data_out) = match data {
            Data::None => (0, 0),
            Data::In => (bytes, 0),
            Data::Out => (0, bytes),
            Data::Twice => (0, 2 * bytes),
            Data::One => (0, BLOCK),
        };
        let said = self.raw.refused(cdb, expected, &vec![0xee; data_out]);
        let said = said.unwrap_or_else(|error| panic!("{name} {cdb:02x?}: {error}"));
        assert_eq!(said, why, "{name} {cdb:02x?}");
        self.raw.execute([0; 16], 0, &[]).unwrap_or_else(|error| panic!("after {name} {cdb:02x?}: {error}"));
    }

    #[track_caller]
    fn refuses_unmap(&mut self, ranges: &[(u64, u32)], why: Sense) {
        let len = ranges.len() as u16 * 16;
        let mut list = [(len + 6).to_be_bytes(), len.to_be_bytes(), [0; 2], [0; 2]].concat();
        for (lba, blocks) in ranges {
            list.extend(lba.to_be_bytes());
            list.extend(blocks.to_be_bytes());
            list.extend([0; 4]);
        }
        let mut cdb = [0; 16];
        cdb[0] = 0x42;
        cdb[7..9].copy_from_slice(&(len + 8).to_be_bytes());
        let said = self.raw.refused(cdb, 0, &list);
        let said = said.unwrap_or_else(|error| panic!("UNMAP of {ranges:?}: {error}"));
        assert_eq!(said, why, "UNMAP of {ranges:?}");
    }

    /// Checks that nothing was changed.
    #[track_caller]
    fn check(&mut self) {
        assert!(self.raw.read(0, GUARD_BLOCKS, GUARD).expect("the first blocks") == self.head);
        assert!(self.raw.read(Unit::TAIL, GUARD_BLOCKS, GUARD).expect("the last blocks") == self.tail);
    }
}

fn cdb10(operation: u8, lba: u32, blocks: u16) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = operation;
    cdb[2..6].copy_from_slice(&lba.to_be_bytes());
    cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
    cdb
}
