//! UNMAP and WRITE SAME.

use base::{BlockCount, BlockSize};

use super::{
    assert_field, assert_good, assert_sense, block, cdb, config, done, range, sense, start, unit, unit_of,
};
use crate::block::{BlockDone, BlockOp};
use crate::scsi::limits::AtomicWrites;
use crate::scsi::sense::Specific;
use crate::scsi::{LogicalUnit, LuConfig, SenseKey, Step};

fn list(descriptors: &[(u64, u32)]) -> Vec<u8> {
    let length = descriptors.len() as u16 * 16;
    let mut list = [(length + 6).to_be_bytes(), length.to_be_bytes(), [0; 2], [0; 2]].concat();
    for (lba, count) in descriptors {
        list.extend_from_slice(&lba.to_be_bytes());
        list.extend_from_slice(&count.to_be_bytes());
        list.extend_from_slice(&[0; 4]);
    }
    list
}

/// UNMAP with a correct PARAMETER LIST LENGTH.
fn unmap(unit: &mut LogicalUnit, list: &[u8]) -> Step {
    start(unit, &cdb(0x42, &[(7, &(list.len() as u16).to_be_bytes())]), list)
}

#[test]
fn ranges_are_unmapped_in_order() {
    let mut unit = unit(BlockSize::B512);
    #[rustfmt::skip]
    let literal = [
        0, 38, 0, 32, 0, 0, 0, 0, // lengths
        0, 0, 0, 0, 0, 0, 3, 0xf0, 0, 0, 0, 0x10, 0, 0, 0, 0, // 16 blocks at 1008
        0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, // one at 2
    ];
    let (pending, op) = block(unmap(&mut unit, &literal));
    assert!(matches!(op, BlockOp::Unmap { ranges, .. } if ranges == [range(1008, 16), range(2, 1)]));
    assert_eq!(unit.finish(pending, Ok(BlockDone::Done)).transfer, 40);
}

#[test]
fn nothing_to_give_back() {
    let mut unit = unit(BlockSize::B512);
    // No list; no descriptors; descriptors without blocks, one of them at the end.
    assert_good(start(&mut unit, &cdb(0x42, &[]), &[]));
    assert_good(unmap(&mut unit, &list(&[])));
    assert_good(unmap(&mut unit, &list(&[(0, 0), (5, 0), (5, 0), (1024, 0)])));
}

#[test]
fn an_incomplete_descriptor_is_ignored() {
    let mut unit = unit(BlockSize::B512);
    let mut cut = list(&[(1, 1), (2, 1)]);
    cut.truncate(8 + 31);
    let (_, op) = block(unmap(&mut unit, &cut));
    assert!(matches!(op, BlockOp::Unmap { ranges, .. } if ranges == [range(1, 1)]));
    // The length in the header may be less than was sent.
    let mut less = list(&[(1, 1), (2, 1)]);
    less[3] = 31;
    let (_, op) = block(unmap(&mut unit, &less));
    assert!(matches!(op, BlockOp::Unmap { ranges, .. } if ranges == [range(1, 1)]));
}

#[test]
fn wrong_lists() {
    let mut unit = unit(BlockSize::B512);
    for length in 1..8 {
        assert_sense(unmap(&mut unit, &vec![0; length]), SenseKey::IllegalRequest, 0x1a00);
    }
    // Less data than PARAMETER LIST LENGTH.
    assert_sense(start(&mut unit, &cdb(0x42, &[(8, &[24])]), &[0; 23]), SenseKey::IllegalRequest, 0x0e03);
    assert_field(start(&mut unit, &cdb(0x42, &[(1, &[1]), (8, &[24])]), &list(&[(0, 1)])), 1, 0);
    // Nothing is unmapped if any range is outside.
    assert_sense(unmap(&mut unit, &list(&[(0, 1), (1023, 2)])), SenseKey::IllegalRequest, 0x2100);
    assert_sense(unmap(&mut unit, &list(&[(u64::MAX, 2)])), SenseKey::IllegalRequest, 0x2100);
    assert_sense(unmap(&mut unit, &list(&[(1025, 0)])), SenseKey::IllegalRequest, 0x2100);
}

#[test]
fn limits() {
    let mut unit = unit_of(LuConfig { blocks: BlockCount(1 << 21), ..config(BlockSize::B512) });
    block(unmap(&mut unit, &list(&[(0, 1 << 20)])));
    block(unmap(&mut unit, &list(&vec![(0, 1); 256])));
    let many = sense(unmap(&mut unit, &list(&vec![(0, 1); 257])));
    assert_eq!(
        (many.code, many.specific),
        (0x2600, Specific::Field { in_cdb: false, byte: 2, bit: Some(7) })
    );
    let much = sense(unmap(&mut unit, &list(&[(0, 1 << 20), (1 << 20, 1)])));
    assert_eq!(
        (much.code, much.specific),
        (0x2600, Specific::Field { in_cdb: false, byte: 32, bit: Some(7) })
    );
}

#[test]
fn a_volume_that_gives_nothing_back() {
    let mut unit = unit_of(LuConfig { unmap: false, ..config(BlockSize::B512) });
    assert_sense(unmap(&mut unit, &list(&[(0, 1)])), SenseKey::IllegalRequest, 0x2000);
    assert_field(start(&mut unit, &cdb(0x41, &[(1, &[0x08]), (8, &[1])]), &[0; 512]), 1, 3);
    assert_field(start(&mut unit, &cdb(0x93, &[(1, &[0x08]), (13, &[1])]), &[0; 512]), 1, 3);
}

#[test]
fn write_same_writes_or_unmaps() {
    let mut unit = unit(BlockSize::B512);
    let mut run = |opcode, flags: u8, data: &[u8]| {
        let at = if opcode == 0x41 { 8 } else { 13 };
        block(start(&mut unit, &cdb(opcode, &[(1, &[flags]), (at, &[9])]), data)).1
    };
    for opcode in [0x41, 0x93] {
        // Zeros may be unmapped only if the initiator allows it; other data never.
        for (flags, data) in [(0x00, 0), (0x00, 5), (0x08, 5)] {
            let op = run(opcode, flags, &[data; 512]);
            assert!(
                matches!(&op, BlockOp::WriteSame { pattern, .. } if pattern.to_vec() == [data; 512]),
                "{op:?}"
            );
            assert_eq!(op.range(), Some(range(0, 9)));
        }
        let op = run(opcode, 0x08, &[0; 512]);
        assert!(matches!(op, BlockOp::Unmap { ranges, .. } if ranges == [range(0, 9)]));
    }
    // NDOB: zeros, without data.
    let op = run(0x93, 0x01, &[]);
    assert!(matches!(&op, BlockOp::WriteSame { pattern, .. } if pattern.to_vec() == [0; 512]));
    assert!(matches!(run(0x93, 0x09, &[]), BlockOp::Unmap { .. }));
}

#[test]
fn write_same_refuses() {
    let mut unit = unit(BlockSize::B512);
    for (opcode, at) in [(0x41, 8), (0x93, 13)] {
        let mut run = |flags: u8, data: usize| {
            start(&mut unit, &cdb(opcode, &[(1, &[flags]), (at, &[1])]), &vec![0; data])
        };
        // ANCHOR, with UNMAP and without.
        assert_field(run(0x10, 512), 1, 4);
        assert_field(run(0x18, 512), 1, 4);
        for wrong in [0, 256, 1024] {
            assert_sense(run(0x08, wrong), SenseKey::IllegalRequest, 0x0e03);
        }
    }
    // PBDATA and LBDATA of SBC-2.
    assert_field(start(&mut unit, &cdb(0x41, &[(1, &[0x04]), (8, &[1])]), &[0; 512]), 1, 2);
    assert_field(start(&mut unit, &cdb(0x41, &[(1, &[0x02]), (8, &[1])]), &[0; 512]), 1, 1);
}

#[test]
fn unsupported_commands_are_not_reported() {
    // REPORT SUPPORTED OPERATION CODES, one command without service action; SUPPORT is in bits 2 to 0 of
    // byte 1.
    let support = |unit: &mut LogicalUnit, opcode| {
        let cdb = cdb(0xa3, &[(1, &[0x0c, 0x01, opcode]), (9, &[0xff])]);
        done(start(unit, &cdb, &[])).data_in.to_vec()[1] & 7
    };
    let atomic = AtomicWrites { blocks_max: 8, ..AtomicWrites::default() };
    let mut all = unit_of(LuConfig { atomic, ..config(BlockSize::B512) });
    let mut less = unit_of(LuConfig { unmap: false, ..config(BlockSize::B512) });
    for opcode in [0x42, 0x9c] {
        assert_eq!((support(&mut all, opcode), support(&mut less, opcode)), (3, 1));
    }
    let listed = |unit: &mut LogicalUnit| {
        let cdb = cdb(0xa3, &[(1, &[0x0c]), (8, &[0xff, 0xff])]);
        done(start(unit, &cdb, &[])).data_in.len()
    };
    assert_eq!(listed(&mut all) - listed(&mut less), 2 * 8);
}
