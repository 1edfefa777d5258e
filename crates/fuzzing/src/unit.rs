//! A unit with a volume in memory, driven as a node with one core drives it.

use std::sync::Arc;

use base::{BlockCount, BlockSize, ByteLen, Chain, Lba, LbaRange};
use proto::block::{BlockDone, BlockError, BlockOp, Provisioning, Space};
use proto::scsi::limits::AtomicWrites;
use proto::scsi::{
    AccessState, Cdb, ChangeRequest, Identity, InitiatorPort, ItNexus, LogicalUnit, LuConfig, LuState, Lun,
    NexusId, Outcome, PortGroup, RelativePort, Request, Status, Step, TargetPort, Thresholds,
};

/// Blocks of the volume: few, so that inputs often reach its end.
const BLOCKS: u64 = 4096;
/// Number of initiators.
const NEXUSES: u64 = 3;

/// A unit with a volume.
pub struct Unit {
    unit: LogicalUnit,
    volume: Vec<u8>,
}

impl Unit {
    /// A unit that all initiators have logged in to.
    pub fn new(block_size: BlockSize) -> Unit {
        let port = TargetPort {
            relative: RelativePort(1),
            target: "iqn.2026-11.fuzz:t".into(),
            portal_group: Some(1),
        };
        let config = LuConfig {
            identity: Identity {
                vendor: "URSA".into(),
                product: "VOLUME".into(),
                revision: "0001".into(),
                serial: "0123456789".into(),
                naa: [0x62; 16],
                eui64: [0xe0; 8],
            },
            block_size,
            physical_exponent: if block_size == BlockSize::B512 { 3 } else { 0 },
            blocks: BlockCount(BLOCKS),
            unmap: true,
            solid_state: true,
            read_only: false,
            atomic: AtomicWrites { blocks_max: 16, alignment: 1, granularity: 1 },
            thresholds: Some(Thresholds { available: &[20, 10, 5], margin: 2 }),
            unlisted: AccessState::ActiveOptimized,
            port_groups: vec![PortGroup {
                id: 1,
                state: AccessState::ActiveOptimized,
                preferred: false,
                ports: vec![port],
            }],
        };
        let mut unit = LogicalUnit::new(config, LuState::default());
        for number in 0..NEXUSES {
            let name = ItNexus {
                initiator: InitiatorPort::Iscsi {
                    name: Arc::from(format!("iqn.2026-11.fuzz:i{number}")),
                    isid: [number as u8; 6],
                },
                port: RelativePort(1),
            };
            unit.attach_nexus(NexusId(number), name, false);
        }
        Unit { unit, volume: vec![0; (BLOCKS * u64::from(block_size.bytes())) as usize] }
    }

    /// Executes one command of initiator `nexus`.
    pub fn run(&mut self, nexus: u8, cdb: [u8; 16], data_out: Chain) -> Outcome {
        let nexus = NexusId(u64::from(nexus) % NEXUSES);
        let (came, need) = (data_out.len() as u64, self.data_needed(&cdb));
        let outcome = match self.unit.start(Request { nexus, cdb: Cdb(cdb), data_out }) {
            Step::Done(outcome) => outcome,
            Step::Block(pending, operation) => {
                let result = self.carry_out(operation);
                self.unit.finish(pending, result)
            }
            Step::Change(change) => self.change(&change),
            Step::Copy(pending, segments) => {
                for segment in &segments {
                    let bytes = |range: LbaRange, size: BlockSize| (range.count * size).0;
                    assert_eq!(
                        bytes(segment.source_range, segment.source_block_size),
                        bytes(segment.target_range, segment.target_block_size),
                        "a segment has two sizes"
                    );
                }
                self.unit.finish_copy(pending, Ok(()))
            }
            Step::ReportLuns(report) => report.answer(&[Lun::new(0).expect("zero is a number")]),
        };
        assert!(
            outcome.status != Status::Good || came >= need,
            "GOOD with {came} of {need} bytes: {cdb:02x?}"
        );
        if let Some(sense) = &outcome.sense {
            assert!(!sense.encode().is_empty());
        }
        outcome
    }

    /// How many bytes a CDB requests from the initiator, by SBC-3, SBC-4 and SPC-4.
    fn data_needed(&self, cdb: &[u8; 16]) -> u64 {
        let u16 = |at: usize| u64::from(u16::from_be_bytes([cdb[at], cdb[at + 1]]));
        let u32 = |at: usize| u64::from(u32::from_be_bytes([cdb[at], cdb[at + 1], cdb[at + 2], cdb[at + 3]]));
        let block = u64::from(self.unit.config().block_size.bytes());
        let compared = |blocks: u64| match cdb[1] >> 1 & 3 {
            1 => blocks,
            3 => blocks.min(1),
            _ => 0,
        };
        match cdb[0] {
            0x0a if cdb[4] == 0 => 256 * block,
            0x0a => u64::from(cdb[4]) * block,
            0x15 => u64::from(cdb[4]),
            0x2a | 0x2e => u16(7) * block,
            0x2f => compared(u16(7)) * block,
            0x41 => block,
            0x42 | 0x55 => u16(7),
            0x5f => u32(5),
            0x83 => u32(10),
            0x89 => 2 * u64::from(cdb[13]) * block,
            0x8a | 0x8b | 0x8e => u32(10) * block,
            0x8f => compared(u32(10)) * block,
            0x93 if cdb[1] & 1 == 0 => block,
            0x9c => u16(12) * block,
            0xaa | 0xae => u32(6) * block,
            0xaf => compared(u32(6)) * block,
            _ => 0,
        }
    }

    fn change(&mut self, change: &ChangeRequest) -> Outcome {
        let decision = self.unit.decide(change);
        if let Some(state) = &decision.state {
            let bytes = state.to_durable();
            assert!(
                bytes.len() <= store::LU_STATE_BYTES_MAX,
                "the store has no room for {} bytes",
                bytes.len()
            );
            let again = LuState::from_durable(&bytes).expect("what is written can be read");
            assert_eq!(again.to_durable(), bytes);
        }
        self.unit.install(decision.state, &decision.notices);
        decision.outcome
    }

    fn carry_out(&mut self, operation: BlockOp) -> Result<BlockDone, BlockError> {
        if let Some(range) = operation.range() {
            assert!(range.end() <= Lba(BLOCKS), "{range:?} is beyond the end");
        }
        match operation {
            BlockOp::Read { range, .. } => {
                let bytes = self.bytes(range);
                return Ok(BlockDone::Data(Chain::copy_of(bytes)));
            }
            BlockOp::Write { range, data, .. }
            | BlockOp::WriteAndVerify { range, data, .. }
            | BlockOp::WriteAtomic { range, data, .. } => {
                let target = self.bytes(range);
                assert_eq!(data.len(), target.len(), "data and range differ");
                data.copy_to(target);
            }
            BlockOp::WriteSame { range, pattern, .. } => {
                let pattern = pattern.to_vec();
                let target = self.bytes(range);
                assert!(target.len().is_multiple_of(pattern.len()), "one block");
                target.chunks_mut(pattern.len()).for_each(|block| block.copy_from_slice(&pattern));
            }
            BlockOp::Unmap { ranges, .. } => {
                for range in ranges {
                    assert!(range.end() <= Lba(BLOCKS), "{range:?} is beyond the end");
                    self.bytes(range).fill(0);
                }
            }
            BlockOp::Compare { range, data } => {
                let data = data.to_vec();
                let blocks = self.bytes(range);
                let differs =
                    blocks.iter().zip(data.iter().cycle()).position(|(ours, theirs)| ours != theirs);
                if let Some(at) = differs {
                    return Err(BlockError::Miscompare(at as u64));
                }
            }
            BlockOp::CompareAndWrite { range, compare, write, .. } => {
                let target = self.bytes(range);
                assert_eq!((compare.len(), write.len()), (target.len(), target.len()));
                let compare = compare.to_vec();
                if let Some(at) = compare.iter().zip(target.iter()).position(|(ours, theirs)| ours != theirs)
                {
                    return Err(BlockError::Miscompare(at as u64));
                }
                write.copy_to(target);
            }
            BlockOp::OrWrite { range, data, .. } => {
                let data = data.to_vec();
                let target = self.bytes(range);
                assert_eq!(data.len(), target.len());
                target.iter_mut().zip(data).for_each(|(byte, with)| *byte |= with);
            }
            BlockOp::Prefetch { .. } => return Ok(BlockDone::Cached),
            BlockOp::LbaStatus { start, max } => {
                assert!(start < Lba(BLOCKS) && max > 0);
                return Ok(BlockDone::LbaStatus(vec![(start, Lba(BLOCKS) - start, Provisioning::Mapped)]));
            }
            BlockOp::Space => {
                let bytes = ByteLen(self.volume.len() as u64);
                return Ok(BlockDone::Space(Space { used: bytes, available: bytes, available_percent: 50 }));
            }
            BlockOp::Verify { .. } | BlockOp::Flush | BlockOp::TestReady => {}
        }
        Ok(BlockDone::Done)
    }

    fn bytes(&mut self, range: LbaRange) -> &mut [u8] {
        let size = self.unit.config().block_size;
        let start = (range.start * size).0 as usize;
        &mut self.volume[start..start + (range.count * size).0 as usize]
    }
}
