//! The ends of ranges, for every command with a range, with both block sizes.

use super::{
    assert_field, assert_good, assert_sense, block, cdb, config, range, sense, start, unit, unit_of,
};
use crate::block::BlockOp;
use crate::scsi::limits::AtomicWrites;
use crate::scsi::{LuConfig, SenseKey, Step};
use base::{BlockCount, BlockSize};

/// How a command encodes its range.
struct Row {
    name: &'static str,
    opcode: u8,
    /// Byte 1: BYTCHK and similar fields.
    flags: u8,
    lba: (usize, usize),
    count: (usize, usize),
    /// The blocks of data for N blocks of the range.
    data: fn(u64) -> u64,
    /// The most blocks, with 512 and with 4,096 bytes.
    max: [u64; 2],
    /// The effect of a count of zero: nothing, all blocks up to the end, or refused.
    zero: Zero,
}

#[derive(PartialEq)]
enum Zero {
    Nothing,
    Rest,
    Refused,
}

const NONE: fn(u64) -> u64 = |_| 0;
const ONE: fn(u64) -> u64 = |_| 1;
const ALL: fn(u64) -> u64 = |count| count;
const TWICE: fn(u64) -> u64 = |count| 2 * count;

const SHORT: ((usize, usize), (usize, usize)) = ((2, 4), (7, 2));
const MIDDLE: ((usize, usize), (usize, usize)) = ((2, 4), (6, 4));
const LONG: ((usize, usize), (usize, usize)) = ((2, 8), (10, 4));

/// 8 MiB.
const TRANSFER: [u64; 2] = [16_384, 2_048];
/// 16 MiB.
const SAME: [u64; 2] = [32_768, 4_096];
const UNBOUNDED: [u64; 2] = [u64::MAX; 2];

#[rustfmt::skip]
fn rows() -> Vec<Row> {
    let row = |name, opcode, flags, (lba, count), data, max, zero| Row { name, opcode, flags, lba, count, data, max, zero };
    vec![
        row("READ(10)", 0x28, 0, SHORT, NONE, TRANSFER, Zero::Nothing),
        row("READ(12)", 0xa8, 0, MIDDLE, NONE, TRANSFER, Zero::Nothing),
        row("READ(16)", 0x88, 0, LONG, NONE, TRANSFER, Zero::Nothing),
        row("WRITE(10)", 0x2a, 0, SHORT, ALL, TRANSFER, Zero::Nothing),
        row("WRITE(12)", 0xaa, 0, MIDDLE, ALL, TRANSFER, Zero::Nothing),
        row("WRITE(16)", 0x8a, 0, LONG, ALL, TRANSFER, Zero::Nothing),
        row("WRITE AND VERIFY(10)", 0x2e, 0x02, SHORT, ALL, TRANSFER, Zero::Nothing),
        row("WRITE AND VERIFY(12)", 0xae, 0, MIDDLE, ALL, TRANSFER, Zero::Nothing),
        row("WRITE AND VERIFY(16)", 0x8e, 0x02, LONG, ALL, TRANSFER, Zero::Nothing),
        row("VERIFY(10)", 0x2f, 0, SHORT, NONE, TRANSFER, Zero::Nothing),
        row("VERIFY(12) BYTCHK 01b", 0xaf, 0x02, MIDDLE, ALL, TRANSFER, Zero::Nothing),
        row("VERIFY(16) BYTCHK 11b", 0x8f, 0x06, LONG, ONE, TRANSFER, Zero::Nothing),
        row("WRITE SAME(10)", 0x41, 0, SHORT, ONE, SAME, Zero::Refused),
        row("WRITE SAME(16)", 0x93, 0, LONG, ONE, SAME, Zero::Refused),
        row("COMPARE AND WRITE", 0x89, 0, ((2, 8), (13, 1)), TWICE, [1; 2], Zero::Nothing),
        row("ORWRITE(16)", 0x8b, 0, LONG, ALL, TRANSFER, Zero::Nothing),
        row("WRITE ATOMIC(16)", 0x9c, 0, ((2, 8), (12, 2)), ALL, [256; 2], Zero::Nothing),
        row("PRE-FETCH(10)", 0x34, 0, SHORT, NONE, UNBOUNDED, Zero::Rest),
        row("PRE-FETCH(16)", 0x90, 0, LONG, NONE, UNBOUNDED, Zero::Rest),
        row("SYNCHRONIZE CACHE(10)", 0x35, 0, SHORT, NONE, UNBOUNDED, Zero::Rest),
        row("SYNCHRONIZE CACHE(16)", 0x91, 0x02, LONG, NONE, UNBOUNDED, Zero::Rest),
    ]
}

impl Row {
    fn cdb(&self, lba: u64, count: u64) -> [u8; 16] {
        let field = |value: u64, len: usize| value.to_be_bytes()[8 - len..].to_vec();
        let (lba, count) = (field(lba, self.lba.1), field(count, self.count.1));
        cdb(self.opcode, &[(1, &[self.flags]), (self.lba.0, &lba), (self.count.0, &count)])
    }
}

/// 2^20 blocks: more than any limit.
fn large(block_size: BlockSize) -> LuConfig {
    let atomic = AtomicWrites { blocks_max: 256, ..AtomicWrites::default() };
    LuConfig { blocks: BlockCount(1 << 20), atomic, ..config(block_size) }
}

const END: u64 = 1 << 20;

fn for_each_row(check: impl Fn(&Row, BlockSize, &mut dyn FnMut(u64, u64) -> Step)) {
    for block_size in [BlockSize::B512, BlockSize::B4096] {
        let mut unit = unit_of(large(block_size));
        for row in rows() {
            let mut run = |lba, count: u64| {
                // A range that exceeds every command's limit is refused for its count first.
                let bytes = (row.data)(count.min(1 << 20)) * u64::from(block_size.bytes());
                let data = vec![0xa5; bytes.min(8 << 20) as usize];
                start(&mut unit, &row.cdb(lba, count), &data)
            };
            println!("{} {block_size:?}", row.name);
            check(&row, block_size, &mut run);
        }
    }
}

#[test]
fn the_last_blocks_are_inside() {
    for_each_row(|row, block_size, run| {
        let max = row.max[usize::from(block_size == BlockSize::B4096)];
        for count in [1, 2, 31].into_iter().filter(|count| *count <= max) {
            let (_, op) = block(run(END - count, count));
            match op {
                BlockOp::Flush => {}
                op => assert_eq!(op.range(), Some(range(END - count, count))),
            }
        }
    });
}

#[test]
fn one_block_more_is_outside() {
    for_each_row(|row, _, run| {
        for (lba, count) in [(END, 1), (END - 1, 2), (END - 30, 31), (0xffff_ffff, 1)] {
            let sense = sense(run(lba, count));
            assert_eq!((sense.key, sense.code), (SenseKey::IllegalRequest, 0x2100));
            assert_eq!(sense.information, Some(lba.max(END)));
        }
        if row.lba.1 == 8 {
            for lba in [1 << 63, u64::MAX, u64::MAX - 1] {
                assert_sense(run(lba, 2), SenseKey::IllegalRequest, 0x2100);
            }
        }
    });
}

#[test]
fn no_blocks() {
    for_each_row(|row, _, run| {
        match row.zero {
            Zero::Nothing => {
                assert_good(run(0, 0));
                assert_good(run(END, 0));
            }
            Zero::Rest => {
                let (_, op) = block(run(END - 5, 0));
                assert!(matches!(op, BlockOp::Flush) || op.range() == Some(range(END - 5, 5)));
            }
            Zero::Refused => assert_field(run(0, 0), row.count.0 as u16, 7),
        }
        assert_sense(run(END + 1, 0), SenseKey::IllegalRequest, 0x2100);
    });
}

#[test]
fn too_many_blocks() {
    for_each_row(|row, block_size, run| {
        let max = row.max[usize::from(block_size == BlockSize::B4096)];
        let field_max = (1_u64 << (8 * row.count.1)) - 1;
        if max < field_max {
            assert_field(run(0, max + 1), row.count.0 as u16, 7);
            // Exactly the limit is accepted.
            block(run(0, max));
        }
    });
}

#[test]
fn protection_information_is_refused() {
    for_each_row(|row, block_size, _| {
        // Byte 1, bits 7 to 5, in commands that have the field.
        if [0x34, 0x90, 0x35, 0x91].contains(&row.opcode) {
            return;
        }
        let mut unit = unit_of(large(block_size));
        for protect in 1..8 {
            let mut cdb = row.cdb(0, 1);
            cdb[1] |= protect << 5;
            assert_field(start(&mut unit, &cdb, &[]), 1, 7);
        }
    });
}

#[test]
fn six_bytes() {
    for block_size in [BlockSize::B512, BlockSize::B4096] {
        let mut unit = unit(block_size);
        // LBA 0x000300 of 0x000400, a count of 0 that means 256.
        let (_, op) = block(start(&mut unit, &[0x08, 0x00, 0x03, 0x00, 0x00, 0x00], &[]));
        assert_eq!(op.range(), Some(range(0x300, 256)));
        let read = [0x08, 0x00, 0x03, 0x01, 0x00, 0x00];
        assert_sense(start(&mut unit, &read, &[]), SenseKey::IllegalRequest, 0x2100);
        // The top three bits of byte 1 used to be a LUN; the LBA has 21 bits.
        let read = [0x08, 0xff, 0xff, 0xff, 0x01, 0x00];
        assert_eq!(sense(start(&mut unit, &read, &[])).information, Some(0x1f_ffff));
        let data = vec![7; 2 * block_size.bytes() as usize];
        let (_, op) = block(start(&mut unit, &[0x0a, 0x00, 0x03, 0xfe, 0x02, 0x00], &data));
        assert_eq!(op.range(), Some(range(0x3fe, 2)));
        let write = [0x0a, 0x00, 0x03, 0xff, 0x02, 0x00];
        assert_sense(start(&mut unit, &write, &data), SenseKey::IllegalRequest, 0x2100);
    }
}
