//! A unit with one nexus, and helpers to send commands to it.

mod copy;
mod data_out;
mod random;
mod ranges;
mod reading;
mod unmapping;
mod writing;

use std::sync::Arc;

use base::{BlockCount, BlockSize, Chain, Lba, LbaRange};

use super::pending::Pending;
use crate::block::BlockOp;
use crate::scsi::limits::AtomicWrites;
use crate::scsi::sense::Specific;
use crate::scsi::{
    Cdb, Identity, InitiatorPort, ItNexus, LogicalUnit, LuConfig, LuState, NexusId, Outcome, RelativePort,
    Request, Sense, SenseKey, Status, Step,
};

/// 1,024 blocks, and the capabilities of a thin volume.
fn config(block_size: BlockSize) -> LuConfig {
    LuConfig {
        identity: Identity {
            vendor: "URSA".into(),
            product: "volume".into(),
            revision: "1".into(),
            serial: "0123".into(),
            naa: [0x60; 16],
            eui64: [1; 8],
        },
        block_size,
        physical_exponent: 0,
        blocks: BlockCount(1024),
        unmap: true,
        solid_state: true,
        read_only: false,
        atomic: AtomicWrites::default(),
        thresholds: None,
        port_groups: Vec::new(),
        unlisted: crate::scsi::AccessState::ActiveOptimized,
    }
}

/// A unit whose first unit attention has been reported.
fn unit_of(config: LuConfig) -> LogicalUnit {
    let mut unit = LogicalUnit::new(config, LuState::default());
    let initiator = InitiatorPort::Iscsi { name: Arc::from("iqn.2026-01.com.example:host"), isid: [0; 6] };
    unit.attach_nexus(NexusId(1), ItNexus { initiator, port: RelativePort(1) }, false);
    assert!(matches!(start(&mut unit, &[0; 6], &[]), Step::Done(_)));
    unit
}

fn unit(block_size: BlockSize) -> LogicalUnit {
    unit_of(config(block_size))
}

fn start(unit: &mut LogicalUnit, cdb: &[u8], data_out: &[u8]) -> Step {
    let mut bytes = [0; 16];
    bytes[..cdb.len()].copy_from_slice(cdb);
    unit.start(Request { nexus: NexusId(1), cdb: Cdb(bytes), data_out: Chain::copy_of(data_out) })
}

/// A CDB of zeros, except for the given fields: (first byte, bytes).
fn cdb(opcode: u8, fields: &[(usize, &[u8])]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[0] = opcode;
    for (at, field) in fields {
        bytes[*at..*at + field.len()].copy_from_slice(field);
    }
    bytes
}

fn range(start: u64, count: u64) -> LbaRange {
    LbaRange { start: Lba(start), count: BlockCount(count) }
}

#[track_caller]
fn block(step: Step) -> (Pending, BlockOp) {
    match step {
        Step::Block(pending, op) => (pending, op),
        other => panic!("not an operation: {other:?}"),
    }
}

#[track_caller]
fn done(step: Step) -> Outcome {
    match step {
        Step::Done(outcome) => outcome,
        other => panic!("not an answer: {other:?}"),
    }
}

#[track_caller]
fn sense(step: Step) -> Sense {
    let outcome = done(step);
    assert_eq!(outcome.status, Status::CheckCondition);
    outcome.sense.unwrap()
}

/// GOOD at once, without data.
#[track_caller]
fn assert_good(step: Step) {
    let outcome = done(step);
    assert_eq!((outcome.status, outcome.sense, outcome.data_in.len()), (Status::Good, None, 0));
}

/// ILLEGAL REQUEST, INVALID FIELD IN CDB, with a field pointer to `(byte, bit)`.
#[track_caller]
fn assert_field(step: Step, byte: u16, bit: u8) {
    let sense = sense(step);
    assert_eq!((sense.key, sense.code), (SenseKey::IllegalRequest, 0x2400));
    assert_eq!(sense.specific, Specific::Field { in_cdb: true, byte, bit: Some(bit) });
}

/// A sense key, and an additional sense code with its qualifier.
#[track_caller]
fn assert_sense(step: Step, key: SenseKey, code: u16) {
    let sense = sense(step);
    assert_eq!((sense.key, sense.code), (key, code), "{sense:?}");
}

#[test]
fn every_command_is_in_the_document() {
    let document = include_str!("../../../../../../docs/scsi-conformance.md");
    let listed: Vec<&str> = document.lines().filter(|line| line.starts_with("| ")).collect();
    for operation in &crate::scsi::operations::OPERATIONS {
        let code = format!("{:02X}h", operation.opcode);
        let row = listed.iter().find(|row| row.split('|').nth(1).is_some_and(|cell| cell.contains(&code)));
        assert!(row.is_some(), "{} ({code}) is not in docs/scsi-conformance.md", operation.name);
    }
}

#[test]
fn compare_and_write_takes_one_block() {
    let mut unit = unit(BlockSize::B512);
    let limits = cdb(0x12, &[(1, &[1]), (2, &[0xb0]), (4, &[64])]);
    assert_eq!(done(start(&mut unit, &limits, &[])).data_in.to_vec()[5], 1);
    let compare = |blocks: u8| cdb(0x89, &[(13, &[blocks])]);
    let (_, op) = block(start(&mut unit, &compare(1), &[0; 1024]));
    assert!(matches!(op, BlockOp::CompareAndWrite { .. }));
    assert_sense(start(&mut unit, &compare(2), &[0; 2048]), SenseKey::IllegalRequest, 0x2400);
}
