//! Every command with data-out, and what happens if the data's length differs from the CDB's.

use base::BlockSize;

use super::{cdb, config, start, unit_of};
use crate::scsi::limits::AtomicWrites;
use crate::scsi::operations::OPERATIONS;
use crate::scsi::{LogicalUnit, LuConfig, SenseKey, Status, Step};

/// A CDB of each command with data-out, and the number of bytes that it requires with blocks of 512 bytes.
fn commands() -> Vec<([u8; 16], usize)> {
    vec![
        (cdb(0x0a, &[(3, &[7]), (4, &[3])]), 1536),     // WRITE (6)
        (cdb(0x0a, &[]), 256 * 512),                    // WRITE (6) of 256 blocks
        (cdb(0x15, &[(1, &[0x10]), (4, &[24])]), 24),   // MODE SELECT (6)
        (cdb(0x2a, &[(5, &[7]), (8, &[3])]), 1536),     // WRITE (10)
        (cdb(0x2e, &[(5, &[7]), (8, &[3])]), 1536),     // WRITE AND VERIFY (10)
        (cdb(0x2e, &[(1, &[0x02]), (8, &[1])]), 512),   // with BYTCHK
        (cdb(0x2f, &[(1, &[0x02]), (8, &[3])]), 1536),  // VERIFY (10), BYTCHK 01b
        (cdb(0x2f, &[(1, &[0x06]), (8, &[3])]), 512),   // VERIFY (10), BYTCHK 11b
        (cdb(0x41, &[(8, &[3])]), 512),                 // WRITE SAME (10)
        (cdb(0x42, &[(8, &[24])]), 24),                 // UNMAP
        (cdb(0x55, &[(1, &[0x10]), (8, &[28])]), 28),   // MODE SELECT (10)
        (cdb(0x5f, &[(8, &[24])]), 24),                 // PERSISTENT RESERVE OUT
        (cdb(0x83, &[(13, &[108])]), 108),              // EXTENDED COPY
        (cdb(0x89, &[(13, &[1])]), 1024),               // COMPARE AND WRITE
        (cdb(0x8a, &[(9, &[7]), (13, &[3])]), 1536),    // WRITE (16)
        (cdb(0x8b, &[(13, &[2])]), 1024),               // ORWRITE (16)
        (cdb(0x8e, &[(1, &[0x02]), (13, &[3])]), 1536), // WRITE AND VERIFY (16)
        (cdb(0x8f, &[(1, &[0x02]), (13, &[3])]), 1536), // VERIFY (16)
        (cdb(0x93, &[(13, &[3])]), 512),                // WRITE SAME (16)
        (cdb(0x9c, &[(13, &[2])]), 1024),               // WRITE ATOMIC (16)
        (cdb(0xaa, &[(5, &[7]), (9, &[3])]), 1536),     // WRITE (12)
        (cdb(0xae, &[(9, &[3])]), 1536),                // WRITE AND VERIFY (12)
        (cdb(0xaf, &[(1, &[0x02]), (9, &[3])]), 1536),  // VERIFY (12)
    ]
}

/// Operation codes of commands without data-out.
const WITHOUT: &[u8] = &[
    0x00, 0x03, 0x08, 0x12, 0x16, 0x17, 0x1a, 0x1b, 0x1d, 0x1e, 0x25, 0x28, 0x34, 0x35, 0x4d, 0x56, 0x57,
    0x5a, 0x5e, 0x84, 0x88, 0x90, 0x91, 0x9e, 0xa0, 0xa3, 0xa8,
];

fn unit() -> LogicalUnit {
    let atomic = AtomicWrites { blocks_max: 8, ..AtomicWrites::default() };
    unit_of(LuConfig { atomic, ..config(BlockSize::B512) })
}

/// INVALID FIELD IN COMMAND INFORMATION UNIT: the number of bytes that the CDB requires.
fn refusal(step: &Step) -> Option<u64> {
    let Step::Done(outcome) = step else { return None };
    let sense = outcome.sense.filter(|_| outcome.status == Status::CheckCondition)?;
    ((sense.key, sense.code) == (SenseKey::IllegalRequest, 0x0e03)).then_some(outcome.transfer)
}

#[test]
fn a_command_with_less_data_than_its_cdb_asks_for_does_nothing() {
    let mut unit = unit();
    for (cdb, need) in commands() {
        for came in [0, 1, 8, 200, 511, 512, need / 2, need - 512.min(need - 1), need - 1] {
            if came < need {
                let step = start(&mut unit, &cdb, &vec![0; came]);
                assert_eq!(refusal(&step), Some(need as u64), "{cdb:02x?} with {came} bytes: {step:?}");
            }
        }
        let all = start(&mut unit, &cdb, &vec![0; need]);
        assert_eq!(refusal(&all), None, "{cdb:02x?} with all of its {need} bytes");
    }
}

#[test]
fn every_command_is_checked() {
    for operation in &OPERATIONS {
        let has_data = commands().iter().any(|(cdb, _)| cdb[0] == operation.opcode);
        let has_none = WITHOUT.contains(&operation.opcode);
        assert!(has_data != has_none, "{}: has it data out?", operation.name);
    }
}
