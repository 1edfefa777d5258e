//! READ, VERIFY, PRE-FETCH, SYNCHRONIZE CACHE, READ CAPACITY, GET LBA STATUS.

use base::{BlockCount, BlockSize, Chain, Lba};

use super::{assert_field, assert_good, assert_sense, block, cdb, config, done, range, start, unit, unit_of};
use crate::block::{BlockDone, BlockError, BlockOp, Provisioning};
use crate::scsi::{LuConfig, SenseKey, Status, Step};

#[test]
fn a_read_gives_its_data() {
    let mut unit = unit(BlockSize::B512);
    // READ(10) of two blocks at 5 with DPO and FUA; group 3 and FUA_NV (bit 1) are ignored.
    let (pending, op) = block(start(&mut unit, &[0x28, 0x1a, 0, 0, 0, 5, 3, 0, 2, 0], &[]));
    assert!(matches!(op, BlockOp::Read { fua: true, .. }));
    assert_eq!(op.range(), Some(range(5, 2)));
    let outcome = unit.finish(pending, Ok(BlockDone::Data(Chain::copy_of(&[9; 1024]))));
    assert_eq!((outcome.status, outcome.transfer), (Status::Good, 1024));
    assert_eq!(outcome.data_in.to_vec(), [9; 1024]);
}

#[test]
fn the_sense_of_a_failed_read() {
    let mut unit = unit(BlockSize::B4096);
    let mut fail = |error| {
        let (pending, _) = block(start(&mut unit, &[0x28, 0, 0, 0, 0, 5, 0, 0, 2, 0], &[]));
        unit.finish(pending, Err(error))
    };
    for (error, key, code, information) in [
        (BlockError::Unreadable(Lba(6)), SenseKey::MediumError, 0x1100, Some(6)),
        (BlockError::Offline, SenseKey::NotReady, 0x0403, None),
        (BlockError::Aborted, SenseKey::AbortedCommand, 0x0000, None),
        (BlockError::Unknown, SenseKey::AbortedCommand, 0x0006, None),
    ] {
        let outcome = fail(error);
        let sense = outcome.sense.unwrap();
        assert_eq!((sense.key, sense.code, sense.information), (key, code, information));
        assert_eq!((outcome.status, outcome.transfer, outcome.data_in.len()), (Status::CheckCondition, 0, 0));
    }
}

#[test]
fn verify_reads_or_compares() {
    let mut unit = unit(BlockSize::B512);
    let verify = |bytchk: u8| [0x2f, bytchk << 1, 0, 0, 0, 5, 0, 0, 2, 0];
    let (pending, op) = block(start(&mut unit, &verify(0), &[1; 1024]));
    assert!(matches!(op, BlockOp::Verify { .. }));
    // Data that was sent nevertheless is not transferred.
    assert_eq!(unit.finish(pending, Ok(BlockDone::Done)).transfer, 0);

    let (pending, op) = block(start(&mut unit, &verify(1), &[1; 1024]));
    assert!(matches!(&op, BlockOp::Compare { data, .. } if data.len() == 1024));
    let outcome = unit.finish(pending, Err(BlockError::Miscompare(600)));
    let sense = outcome.sense.unwrap();
    assert_eq!((sense.key, sense.code, sense.information), (SenseKey::Miscompare, 0x1d00, Some(600)));
    assert_eq!(outcome.transfer, 1024);

    assert_field(start(&mut unit, &verify(2), &[1; 1024]), 1, 2);

    // 11b: each block is compared with the one block; the offset is relative to the data.
    let (pending, op) = block(start(&mut unit, &verify(3), &[1; 512]));
    assert!(matches!(&op, BlockOp::Compare { data, .. } if data.len() == 512));
    let outcome = unit.finish(pending, Err(BlockError::Miscompare(600)));
    assert_eq!((outcome.sense.unwrap().information, outcome.transfer), (Some(88), 512));
}

#[test]
fn prefetch_says_whether_all_is_in_the_cache() {
    let mut unit = unit_of(LuConfig { blocks: BlockCount(1 << 20), ..config(BlockSize::B512) });
    let prefetch = [0x34, 0x02, 0, 0, 0, 5, 0, 0, 2, 0];
    for (done, status) in [(BlockDone::Done, Status::Good), (BlockDone::Cached, Status::ConditionMet)] {
        let (pending, _) = block(start(&mut unit, &prefetch, &[]));
        assert_eq!(unit.finish(pending, Ok(done)).status, status);
    }
    // 2^20 blocks are cut to 8 MiB, so not all of them are in the cache.
    let (pending, op) = block(start(&mut unit, &[0x34, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]));
    assert_eq!(op.range(), Some(range(0, 16_384)));
    assert_eq!(unit.finish(pending, Ok(BlockDone::Cached)).status, Status::Good);
}

#[test]
fn synchronize_cache_flushes() {
    let mut unit = unit(BlockSize::B512);
    let (pending, op) = block(start(&mut unit, &[0x35, 0x02, 0, 0, 0, 5, 0, 0, 2, 0], &[]));
    assert!(matches!(op, BlockOp::Flush));
    assert_eq!(unit.finish(pending, Ok(BlockDone::Done)).status, Status::Good);
}

/// TEST UNIT READY reports what writes would be answered, and REQUEST SENSE the same as data (SPC-4).
#[test]
fn a_volume_that_takes_no_writes_is_not_ready() {
    let mut unit = unit(BlockSize::B512);
    for (result, expected) in
        [(Ok(BlockDone::Done), [0x00, 0x00, 0x00]), (Err(BlockError::Offline), [0x02, 0x04, 0x03])]
    {
        let (pending, op) = block(start(&mut unit, &[0x00, 0, 0, 0, 0, 0], &[]));
        assert!(matches!(op, BlockOp::TestReady));
        let sense = unit.finish(pending, result.clone()).sense;
        let told = sense.map_or([0; 3], |sense| {
            let [code, qualifier] = sense.code.to_be_bytes();
            [sense.key as u8, code, qualifier]
        });
        assert_eq!(told, expected);
        let (pending, op) = block(start(&mut unit, &[0x03, 0, 0, 0, 18, 0], &[]));
        assert!(matches!(op, BlockOp::TestReady));
        let outcome = unit.finish(pending, result.clone());
        let data = outcome.data_in.to_vec();
        assert_eq!((outcome.status, data.len()), (Status::Good, 18));
        assert_eq!([data[2], data[12], data[13]], expected);
        // In descriptor format, truncated to the allocation length.
        let (pending, _) = block(start(&mut unit, &[0x03, 1, 0, 0, 4, 0], &[]));
        let [key, code, qualifier] = expected;
        assert_eq!(unit.finish(pending, result).data_in.to_vec(), [0x72, key, code, qualifier]);
    }
}

#[test]
fn capacity() {
    // 1,024 blocks of 512 bytes, eight in a physical block (512e), thin.
    let mut unit = unit_of(LuConfig { physical_exponent: 3, ..config(BlockSize::B512) });
    let ten = done(start(&mut unit, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]));
    assert_eq!(ten.data_in.to_vec(), [0, 0, 3, 0xff, 0, 0, 2, 0]);
    let sixteen = cdb(0x9e, &[(1, &[0x10]), (13, &[32])]);
    let outcome = done(start(&mut unit, &sixteen, &[]));
    let mut expected = [0; 32];
    expected[..16].copy_from_slice(&[0, 0, 0, 0, 0, 0, 3, 0xff, 0, 0, 2, 0, 0, 0x03, 0xc0, 0]);
    assert_eq!((outcome.data_in.to_vec(), outcome.transfer), (expected.to_vec(), 32));
    for allocation in 0..16 {
        let outcome = done(start(&mut unit, &cdb(0x9e, &[(1, &[0x10]), (13, &[allocation])]), &[]));
        assert_eq!((outcome.status, outcome.data_in.len()), (Status::Good, usize::from(allocation)));
    }
    assert_field(start(&mut unit, &cdb(0x9e, &[(1, &[0x13]), (13, &[32])]), &[]), 1, 4);
}

#[test]
fn capacity_beyond_32_bits() {
    let mut unit =
        unit_of(LuConfig { blocks: BlockCount(1 << 33), unmap: false, ..config(BlockSize::B4096) });
    let ten = done(start(&mut unit, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]));
    assert_eq!(ten.data_in.to_vec(), [0xff, 0xff, 0xff, 0xff, 0, 0, 0x10, 0]);
    let sixteen = done(start(&mut unit, &cdb(0x9e, &[(1, &[0x10]), (13, &[16])]), &[]));
    let expected = [0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0, 0, 0x10, 0, 0, 0, 0, 0];
    assert_eq!(sixteen.data_in.to_vec(), expected);
}

fn lba_status(lba: u64, allocation: u32) -> [u8; 16] {
    cdb(0x9e, &[(1, &[0x12]), (2, &lba.to_be_bytes()), (10, &allocation.to_be_bytes())])
}

#[test]
fn lba_status_reports_extents() {
    let mut unit = unit(BlockSize::B512);
    let (pending, op) = block(start(&mut unit, &lba_status(5, 8 + 32 + 15), &[]));
    assert!(matches!(op, BlockOp::LbaStatus { start: Lba(5), max: 2 }));
    let extents = vec![
        (Lba(5), BlockCount(3), Provisioning::Mapped),
        (Lba(8), BlockCount(1 << 40), Provisioning::Deallocated),
        (Lba(8 + (1 << 40)), BlockCount(1), Provisioning::Mapped),
    ];
    let outcome = unit.finish(pending, Ok(BlockDone::LbaStatus(extents)));
    #[rustfmt::skip]
    assert_eq!(outcome.data_in.to_vec(), [
        0, 0, 0, 36, 0, 0, 0, 0, // 36 bytes follow
        0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 3, 0, 0, 0, 0, // mapped
        // deallocated, as far as 32 bits reach; the rest is not reported
        0, 0, 0, 0, 0, 0, 0, 8, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0,
    ]);
}

#[test]
fn lba_status_outside_or_without_room() {
    let mut unit = unit(BlockSize::B512);
    for lba in [1024, 1025, 1 << 63, u64::MAX] {
        assert_sense(start(&mut unit, &lba_status(lba, 24), &[]), SenseKey::IllegalRequest, 0x2100);
    }
    assert_good(start(&mut unit, &lba_status(0, 0), &[]));
    // Room for less than a descriptor: the response is truncated.
    let step = start(&mut unit, &lba_status(1023, 10), &[]);
    assert!(matches!(step, Step::Block(_, BlockOp::LbaStatus { max: 1, .. })));
    let (pending, _) = block(step);
    let extents = vec![(Lba(1023), BlockCount(1), Provisioning::Mapped)];
    let outcome = unit.finish(pending, Ok(BlockDone::LbaStatus(extents)));
    assert_eq!(outcome.data_in.to_vec(), [0, 0, 0, 20, 0, 0, 0, 0, 0, 0]);
}
