//! Whatever bytes arrive: no panic, and no operation outside the volume or above the limits.

use base::{BlockCount, BlockSize, ByteLen, Chain, Lba};
use proptest::collection::vec;
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};
use proptest::sample::select;

use super::super::OPERATIONS;
use super::{config, start, unit_of};
use crate::block::{BlockDone, BlockError, BlockOp, Provisioning};
use crate::scsi::limits::{AtomicWrites, LBA_STATUS_DESCRIPTORS_MAX, UNMAP_BLOCKS_MAX};
use crate::scsi::{CopyError, CopyFailure, CopyFault, LogicalUnit, LuConfig, Refusal, Step};

/// A supported operation code with its service action, then bytes that are mostly zero, so that many commands
/// are valid.
fn cdbs() -> impl Strategy<Value = [u8; 16]> {
    let operations: Vec<_> = OPERATIONS.iter().map(|row| (row.opcode, row.service_action)).collect();
    let byte = || prop_oneof![40 => Just(0_u8), 8 => 0..8_u8, 1 => any::<u8>()];
    // The last bytes of counts, in CDBs of 6, 10, 12 and 16 bytes.
    let count = (select(vec![4, 8, 9, 13]), 0..16_u8);
    (select(operations), vec(byte(), 15), count).prop_map(|((opcode, action), bytes, (at, count))| {
        let mut cdb = [0; 16];
        cdb[0] = opcode;
        cdb[1..].copy_from_slice(&bytes);
        cdb[at] = count;
        if let Some(action) = action {
            cdb[1] = cdb[1] & 0xe0 | action;
        }
        cdb
    })
}

/// Some bytes, or some whole blocks of 512 or of 4,096 bytes.
fn data() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        1 => vec(any::<u8>(), 0..80),
        3 => (0..9_usize, 0..2_u8).prop_map(|(blocks, byte)| vec![byte; blocks * 512]),
        3 => (0..9_usize, 0..2_u8).prop_map(|(blocks, byte)| vec![byte; blocks * 4096]),
    ]
}

/// Parameter lists of UNMAP and EXTENDED COPY that are nearly valid: correct lengths, with some bytes
/// changed.
fn lists() -> impl Strategy<Value = Vec<u8>> {
    let descriptor = (0..1100_u64, 0..40_u32)
        .prop_map(|(lba, count)| [&lba.to_be_bytes()[..], &count.to_be_bytes(), &[0; 4]].concat());
    let unmap = vec(descriptor, 0..6).prop_map(|descriptors| {
        let length = descriptors.len() as u16 * 16;
        let mut list = [(length + 6).to_be_bytes(), length.to_be_bytes(), [0; 2], [0; 2]].concat();
        list.extend(descriptors.concat());
        list
    });
    let segments = vec((0..3_u8, 0..3_u8, any::<u16>()), 0..4);
    let copy = segments.prop_map(|segments| {
        let segments: Vec<_> = segments
            .into_iter()
            .map(|(source, target, count)| {
                let mut segment = super::copy::segment(target);
                segment[5] = source;
                segment[10..12].copy_from_slice(&count.to_be_bytes());
                segment
            })
            .collect();
        super::copy::list(1, 0, &[super::copy::TARGET; 2], &segments)
    });
    let changes = vec((any::<proptest::sample::Index>(), any::<u8>()), 0..3);
    (prop_oneof![unmap, copy], changes).prop_map(|(mut list, changes)| {
        for (at, byte) in changes {
            let at = at.index(list.len());
            list[at] = byte;
        }
        list
    })
}

/// Sets the length in the CDB to that of a valid parameter list.
fn with_length(mut cdb: [u8; 16], data: &[u8]) -> [u8; 16] {
    let length = data.len() as u32;
    match cdb[0] {
        0x42 => cdb[7..9].copy_from_slice(&(length as u16).to_be_bytes()),
        0x83 => cdb[10..14].copy_from_slice(&length.to_be_bytes()),
        _ => {}
    }
    cdb
}

fn assert_allowed(op: &BlockOp, config: &LuConfig) {
    let block = u64::from(config.block_size.bytes());
    if let Some(range) = op.range() {
        assert!(range.count > BlockCount(0) && range.end().0 <= config.blocks.0, "{op:?}");
        let max = if matches!(op, BlockOp::WriteSame { .. }) { 16 << 20 } else { 8 << 20 };
        assert!(range.count * config.block_size <= ByteLen(max), "{op:?}");
        let bytes = range.count.0 * block;
        let fits = |data: &Chain, need: u64| assert_eq!(data.len() as u64, need, "{op:?}");
        match op {
            BlockOp::Write { data, .. }
            | BlockOp::WriteAndVerify { data, .. }
            | BlockOp::OrWrite { data, .. } => {
                fits(data, bytes);
            }
            BlockOp::WriteAtomic { data, .. } => {
                fits(data, bytes);
                assert!(range.count.0 <= u64::from(config.atomic.blocks_max));
            }
            BlockOp::WriteSame { pattern, .. } => fits(pattern, block),
            BlockOp::Compare { data, .. } => {
                assert!([bytes, block].contains(&(data.len() as u64)), "{op:?}");
            }
            BlockOp::CompareAndWrite { compare, write, .. } => {
                fits(compare, bytes);
                fits(write, bytes);
                assert!(range.count.0 <= 32);
            }
            _ => {}
        }
    }
    match op {
        BlockOp::Unmap { ranges, .. } => {
            assert!(ranges.iter().all(|r| r.count.0 > 0 && r.end().0 <= config.blocks.0), "{op:?}");
            assert!(ranges.iter().map(|r| r.count.0).sum::<u64>() <= u64::from(UNMAP_BLOCKS_MAX));
        }
        BlockOp::LbaStatus { start, max } => {
            assert!(start.0 < config.blocks.0 && (1..=LBA_STATUS_DESCRIPTORS_MAX).contains(max));
        }
        _ => {}
    }
}

/// A possible result of an operation.
fn result_of(op: &BlockOp, config: &LuConfig, luck: u8) -> Result<BlockDone, BlockError> {
    match luck % 8 {
        0 => return Err(BlockError::Miscompare(u64::from(luck) * 77)),
        1 => return Err(BlockError::Unreadable(Lba(9))),
        2 => return Err(BlockError::Full),
        3 => return Err(BlockError::Aborted),
        _ => {}
    }
    Ok(match op {
        BlockOp::Read { range, .. } => {
            BlockDone::Data(Chain::copy_of(&vec![0; (range.count * config.block_size).0 as usize]))
        }
        BlockOp::Prefetch { .. } if luck & 8 != 0 => BlockDone::Cached,
        BlockOp::LbaStatus { start, max } => {
            let extent = |i| (Lba(start.0 + i), BlockCount(1), Provisioning::Deallocated);
            BlockDone::LbaStatus((0..*max as u64).map(extent).collect())
        }
        _ => BlockDone::Done,
    })
}

/// Runs one command from its bytes to its response.
fn run(unit: &mut LogicalUnit, config: &LuConfig, cdb: [u8; 16], data: &[u8], luck: u8) {
    let mut step = start(unit, &cdb, data);
    // If only the data's length was wrong, the response contains the correct one.
    if let Step::Done(outcome) = &step
        && outcome.sense.is_some_and(|sense| sense.code == 0x0e03)
    {
        step = start(unit, &cdb, &vec![luck & 1; outcome.transfer as usize]);
    }
    match step {
        Step::Block(pending, op) => {
            assert_allowed(&op, config);
            unit.finish(pending, result_of(&op, config, luck));
        }
        Step::Copy(pending, segments) => {
            for segment in &segments {
                let source = segment.source_range.count * segment.source_block_size;
                assert_eq!(source, segment.target_range.count * segment.target_block_size);
            }
            let failed = CopyError::Failed(CopyFailure {
                segment: u16::from(luck),
                residual: None,
                fault: CopyFault::Target(Refusal::Conflict),
            });
            unit.finish_copy(pending, if luck & 1 == 0 { Ok(()) } else { Err(failed) });
        }
        Step::Done(outcome) => assert!(outcome.data_in.len() <= 1 << 20),
        Step::Change(_) | Step::ReportLuns(_) => panic!("no command of the medium changes the unit"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn operations_stay_inside(
        size in select(vec![BlockSize::B512, BlockSize::B4096]),
        blocks in select(vec![0_u64, 1, 8, 1024, 1 << 33]),
        commands in vec((cdbs(), data(), any::<bool>(), any::<u8>()), 1..12),
    ) {
        let atomic = AtomicWrites { blocks_max: 4, alignment: 2, granularity: 2 };
        let config = LuConfig { blocks: BlockCount(blocks), atomic, ..config(size) };
        let mut unit = unit_of(config.clone());
        for (cdb, data, right_length, luck) in commands {
            let cdb = if right_length { with_length(cdb, &data) } else { cdb };
            run(&mut unit, &config, cdb, &data, luck);
        }
    }

    #[test]
    fn lists_stay_inside(
        size in select(vec![BlockSize::B512, BlockSize::B4096]),
        commands in vec((select(vec![0x42, 0x83]), lists(), any::<u8>()), 1..6),
    ) {
        let mut unit = unit_of(config(size));
        for (opcode, list, luck) in commands {
            let cdb = with_length(super::cdb(opcode, &[]), &list);
            run(&mut unit, &config(size), cdb, &list, luck);
        }
    }
}
