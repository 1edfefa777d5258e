//! WRITE, WRITE AND VERIFY, WRITE ATOMIC, ORWRITE, COMPARE AND WRITE: data and its length.

use base::BlockSize;

use super::{assert_field, assert_good, assert_sense, block, cdb, config, done, start, unit, unit_of};
use crate::block::{BlockDone, BlockError, BlockOp};
use crate::scsi::limits::AtomicWrites;
use crate::scsi::{LuConfig, SenseKey, Status};

/// One block at 7.
const WRITE_10: [u8; 10] = [0x2a, 0, 0, 0, 0, 7, 0, 0, 1, 0];

#[test]
fn a_write_takes_what_the_cdb_says() {
    let mut unit = unit(BlockSize::B512);
    let (pending, op) = block(start(&mut unit, &WRITE_10, &[3; 512]));
    assert!(matches!(&op, BlockOp::Write { data, fua: false, .. } if data.to_vec() == [3; 512]));
    let outcome = unit.finish(pending, Ok(BlockDone::Done));
    assert_eq!((outcome.status, outcome.transfer), (Status::Good, 512));
    // Data in excess of the CDB's length is not written; the transport reports an underflow.
    let (pending, op) = block(start(&mut unit, &WRITE_10, &[3; 10_000]));
    assert!(matches!(&op, BlockOp::Write { data, .. } if data.len() == 512));
    assert_eq!(unit.finish(pending, Ok(BlockDone::Done)).transfer, 512);
}

#[test]
fn force_unit_access() {
    let mut unit = unit(BlockSize::B512);
    for (opcode, at) in [(0x2a, 8), (0xaa, 9), (0x8a, 13), (0x8b, 13)] {
        for (flags, expected) in [(0x00, false), (0x10, false), (0x08, true), (0x18, true), (0x02, false)] {
            let (_, op) = block(start(&mut unit, &cdb(opcode, &[(1, &[flags]), (at, &[1])]), &[3; 512]));
            match op {
                BlockOp::Write { fua, .. } | BlockOp::OrWrite { fua, .. } => assert_eq!(fua, expected),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn failures_of_a_write() {
    let mut unit = unit(BlockSize::B512);
    for (error, key, code, information) in [
        (BlockError::Unwritable, SenseKey::MediumError, 0x0c00, None),
        (BlockError::Full, SenseKey::DataProtect, 0x2707, None),
    ] {
        let (pending, _) = block(start(&mut unit, &WRITE_10, &[3; 512]));
        let outcome = unit.finish(pending, Err(error));
        let sense = outcome.sense.unwrap();
        assert_eq!((sense.key, sense.code, sense.information), (key, code, information));
        assert_eq!(outcome.transfer, 512);
    }
}

#[test]
fn read_only_refuses_all_that_writes() {
    let atomic = AtomicWrites { blocks_max: 8, ..AtomicWrites::default() };
    let mut unit = unit_of(LuConfig { read_only: true, atomic, ..config(BlockSize::B512) });
    // (operation code, byte of the count): without data, because the initiator may not be asked to send it.
    for (opcode, at) in [
        (0x0a, 4),
        (0x2a, 8),
        (0xaa, 9),
        (0x8a, 13),
        (0x2e, 8),
        (0xae, 9),
        (0x8e, 13),
        (0x41, 8),
        (0x93, 13),
        (0x42, 8),
        (0x89, 13),
        (0x8b, 13),
        (0x9c, 13),
    ] {
        println!("{opcode:02x}");
        assert_sense(start(&mut unit, &cdb(opcode, &[(at, &[1])]), &[]), SenseKey::DataProtect, 0x2700);
    }
    block(start(&mut unit, &cdb(0x28, &[(8, &[1])]), &[]));
}

#[test]
fn write_and_verify() {
    let mut unit = unit(BlockSize::B512);
    for (bytchk, expected) in [(0_u8, false), (1, true)] {
        let cdb = [0x2e, bytchk << 1, 0, 0, 0, 7, 0, 0, 1, 0];
        let (pending, op) = block(start(&mut unit, &cdb, &[3; 512]));
        assert!(matches!(op, BlockOp::WriteAndVerify { compare, .. } if compare == expected));
        let outcome = unit.finish(pending, Err(BlockError::Miscompare(3)));
        assert_eq!(outcome.sense.unwrap().information, Some(3));
    }
    assert_field(start(&mut unit, &[0x2e, 0x04, 0, 0, 0, 7, 0, 0, 1, 0], &[3; 512]), 1, 2);
    assert_field(start(&mut unit, &[0x2e, 0x06, 0, 0, 0, 7, 0, 0, 1, 0], &[3; 512]), 1, 2);
}

#[test]
fn compare_and_write_takes_both_halves() {
    let mut unit = unit(BlockSize::B512);
    let caw = cdb(0x89, &[(1, &[0x08]), (9, &[7]), (13, &[1])]);
    let mut data = vec![1; 512];
    data.extend_from_slice(&[2; 512]);
    let (pending, op) = block(start(&mut unit, &caw, &data));
    let BlockOp::CompareAndWrite { compare, write, fua: true, .. } = op else { panic!("{op:?}") };
    assert_eq!((compare.to_vec(), write.to_vec()), (vec![1; 512], vec![2; 512]));
    let outcome = unit.finish(pending, Err(BlockError::Miscompare(485)));
    let sense = outcome.sense.unwrap();
    assert_eq!((sense.key, sense.code, sense.information), (SenseKey::Miscompare, 0x1d00, Some(485)));
    assert_eq!(outcome.transfer, 1024);
    for wrong in [0, 512, 1023, 1025, 2048] {
        assert_sense(start(&mut unit, &caw, &vec![1; wrong]), SenseKey::IllegalRequest, 0x0e03);
    }
}

/// 256 blocks do not fit into NUMBER OF BLOCKS, byte 13.
#[test]
fn compare_and_write_of_no_blocks_with_data() {
    let mut unit = unit(BlockSize::B512);
    let caw = cdb(0x89, &[(9, &[7])]);
    assert_good(start(&mut unit, &caw, &[]));
    assert_field(start(&mut unit, &caw, &[1; 1024]), 13, 7);
    assert_field(start(&mut unit, &caw, &vec![1; 2 * 256 * 512]), 13, 7);
}

#[test]
fn write_atomic_is_what_the_volume_promises() {
    let mut none = unit(BlockSize::B512);
    let outcome = done(start(&mut none, &cdb(0x9c, &[(13, &[8])]), &[3; 4096]));
    assert_eq!(outcome.sense.unwrap().code, 0x2000);

    let atomic = AtomicWrites { blocks_max: 16, alignment: 4, granularity: 8 };
    let mut unit = unit_of(LuConfig { atomic, ..config(BlockSize::B512) });
    let (_, op) = block(start(&mut unit, &cdb(0x9c, &[(1, &[0x08]), (9, &[4]), (13, &[8])]), &[3; 4096]));
    assert!(matches!(op, BlockOp::WriteAtomic { fua: true, .. }));
    assert_good(start(&mut unit, &cdb(0x9c, &[(9, &[4])]), &[]));
    assert_field(start(&mut unit, &cdb(0x9c, &[(9, &[2]), (13, &[8])]), &[3; 4096]), 2, 7);
    assert_field(start(&mut unit, &cdb(0x9c, &[(9, &[4]), (13, &[4])]), &[3; 2048]), 12, 7);
    assert_field(start(&mut unit, &cdb(0x9c, &[(9, &[4]), (13, &[24])]), &[3; 12288]), 12, 7);
    assert_field(start(&mut unit, &cdb(0x9c, &[(11, &[8]), (13, &[8])]), &[3; 4096]), 10, 7);
}
