//! EXTENDED COPY (LID1) and RECEIVE COPY RESULTS.

use std::sync::Arc;

use base::{BlockSize, Chain};

use super::{assert_field, assert_good, assert_sense, cdb, done, range, sense, start, unit};
use crate::block::BlockError;
use crate::scsi::commands::CopySegment;
use crate::scsi::sense::Specific;
use crate::scsi::{
    Cdb, CopyError, CopyFailure, CopyFault, InitiatorPort, ItNexus, LogicalUnit, NexusId, Refusal,
    RelativePort, Request, Sense, SenseKey, Status, Step,
};

/// An identification descriptor (E4h) of a unit with 512-byte blocks.
#[rustfmt::skip]
pub(super) const TARGET: [u8; 32] = [
    0xe4, 0, 0, 0, // type, LU ID TYPE 0, device type 0
    0x01, 0x03, 0, 16, // binary, NAA of the unit, 16 bytes
    0x60, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 0, 0, 0,
    0, 0x00, 0x02, 0x00, // PAD 0, 512 bytes
];

/// A block to block segment (02h): five blocks from 0x100 to 0x200, from the first target to target number
/// `target`.
pub(super) fn segment(target: u8) -> [u8; 28] {
    #[rustfmt::skip]
    let segment = [
        0x02, 0, 0, 0x18, 0, 0, 0, target, 0, 0, 0, 5,
        0, 0, 0, 0, 0, 0, 1, 0,
        0, 0, 0, 0, 0, 0, 2, 0,
    ];
    segment
}

/// A parameter list with LIST IDENTIFIER, byte 1, and correct lengths.
pub(super) fn list(id: u8, usage: u8, targets: &[[u8; 32]], segments: &[[u8; 28]]) -> Vec<u8> {
    let mut list = vec![id, usage << 3];
    list.extend_from_slice(&(targets.len() as u16 * 32).to_be_bytes());
    list.extend_from_slice(&[0; 4]);
    list.extend_from_slice(&(segments.len() as u32 * 28).to_be_bytes());
    list.extend_from_slice(&[0; 4]);
    list.extend(targets.iter().flatten());
    list.extend(segments.iter().flatten());
    list
}

fn copy(unit: &mut LogicalUnit, list: &[u8]) -> Step {
    start(unit, &cdb(0x83, &[(10, &(list.len() as u32).to_be_bytes())]), list)
}

fn failed(fault: CopyFault) -> CopyError {
    CopyError::Failed(CopyFailure { segment: 1, residual: None, fault })
}

fn results(unit: &mut LogicalUnit, action: u8, id: u8) -> Step {
    start(unit, &cdb(0x84, &[(1, &[action]), (2, &[id]), (12, &[2, 0])]), &[])
}

#[test]
fn segments_are_named_by_naa() {
    let mut unit = unit(BlockSize::B512);
    let mut large = TARGET;
    large[9] = 0xee;
    large[30] = 0x10; // 4,096 bytes
    let mut eight = segment(1);
    eight[11] = 8;
    let Step::Copy(pending, segments) = copy(&mut unit, &list(1, 0, &[TARGET, large], &[eight])) else {
        panic!()
    };
    let naa = [0x60, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    let mut other = naa;
    other[1] = 0xee;
    let expected = CopySegment {
        source: naa,
        source_block_size: BlockSize::B512,
        source_range: range(0x100, 8),
        target: other,
        target_block_size: BlockSize::B4096,
        target_range: range(0x200, 1),
    };
    assert_eq!(segments, [expected]);
    let outcome = unit.finish_copy(pending, Ok(()));
    assert_eq!((outcome.status, outcome.transfer), (Status::Good, 16 + 64 + 28));

    // DC: the count is in the destination's blocks.
    eight[1] = 0x02;
    let Step::Copy(_, segments) = copy(&mut unit, &list(1, 0, &[TARGET, large], &[eight])) else { panic!() };
    assert_eq!((segments[0].source_range, segments[0].target_range), (range(0x100, 64), range(0x200, 8)));

    // Five blocks of 512 bytes do not fill blocks of 4,096 bytes.
    let step = copy(&mut unit, &list(1, 0, &[TARGET, large], &[segment(1)]));
    assert_sense(step, SenseKey::CopyAborted, 0x260a);
}

#[test]
fn nothing_to_copy() {
    let mut unit = unit(BlockSize::B512);
    assert_good(copy(&mut unit, &[]));
    assert_good(copy(&mut unit, &list(0, 0, &[], &[])));
    assert_good(copy(&mut unit, &list(0, 0, &[TARGET], &[])));
}

#[test]
fn lengths_and_numbers() {
    let mut unit = unit(BlockSize::B512);
    let whole = list(1, 0, &[TARGET], &[segment(0)]);
    for length in [1, 15, 16, 16 + 31, 16 + 32 + 27] {
        assert_sense(copy(&mut unit, &whole[..length]), SenseKey::IllegalRequest, 0x1a00);
    }
    let too_many_targets = list(1, 0, &[TARGET; 9], &[segment(0)]);
    assert_sense(copy(&mut unit, &too_many_targets), SenseKey::IllegalRequest, 0x2606);
    let too_many_segments = list(1, 0, &[TARGET], &[segment(0); 33]);
    assert_sense(copy(&mut unit, &too_many_segments), SenseKey::IllegalRequest, 0x2608);
    // Exceeding MAXIMUM DESCRIPTOR LIST LENGTH, 8 * 32 + 32 * 28, is reported before both.
    let too_long = list(1, 0, &[TARGET; 9], &[segment(0); 32]);
    assert_sense(copy(&mut unit, &too_long), SenseKey::IllegalRequest, 0x1a00);
    assert!(matches!(copy(&mut unit, &list(1, 0, &[TARGET; 8], &[segment(0); 32])), Step::Copy(..)));
    let mut inline = whole.clone();
    inline[15] = 1;
    assert_sense(copy(&mut unit, &inline), SenseKey::IllegalRequest, 0x260b);
}

#[test]
fn descriptors_that_are_not_supported() {
    let mut unit = unit(BlockSize::B512);
    let mut run = |target: [u8; 32], segment: [u8; 28]| copy(&mut unit, &list(1, 0, &[target], &[segment]));
    let with = |at: usize, byte: u8| {
        let mut target = TARGET;
        target[at] = byte;
        target
    };
    assert_sense(run(with(0, 0xe0), segment(0)), SenseKey::IllegalRequest, 0x2607);
    // LU ID TYPE and NUL are obsolete.
    assert!(matches!(run(with(1, 0xe0), segment(0)), Step::Copy(..)));
    assert_sense(run(with(1, 0x01), segment(0)), SenseKey::CopyAborted, 0x0d03);
    // EUI-64 instead of NAA; the designator of a port; a length of eight bytes.
    for (at, byte) in [(5, 0x02), (5, 0x13), (7, 8)] {
        assert_sense(run(with(at, byte), segment(0)), SenseKey::CopyAborted, 0x0d02);
    }
    let block_length = sense(run(with(30, 0x03), segment(0)));
    let expected = Specific::Field { in_cdb: false, byte: 16 + 29, bit: Some(7) };
    assert_eq!((block_length.code, block_length.specific), (0x2600, expected));

    let with = |at: usize, byte: u8| {
        let mut segment = segment(0);
        segment[at] = byte;
        segment
    };
    assert_sense(run(TARGET, with(0, 0x03)), SenseKey::IllegalRequest, 0x2609);
    assert_sense(run(TARGET, with(3, 0x17)), SenseKey::IllegalRequest, 0x2600);
    // There is no second target.
    assert_sense(run(TARGET, segment(1)), SenseKey::CopyAborted, 0x0804);
    // Beyond the end of any volume.
    let mut beyond = segment(0);
    beyond[12..20].fill(0xff);
    assert_sense(run(TARGET, beyond), SenseKey::CopyAborted, 0x0000);
}

#[test]
fn list_identifiers() {
    let mut unit = unit(BlockSize::B512);
    let mut run = |id, usage| copy(&mut unit, &list(id, usage, &[TARGET], &[segment(0)]));
    assert_sense(run(1, 1), SenseKey::IllegalRequest, 0x2600);
    assert_sense(run(1, 3), SenseKey::IllegalRequest, 0x2600);
    for (id, usage, during, after) in [(1, 0, true, true), (2, 2, true, false), (0, 3, false, false)] {
        let Step::Copy(pending, _) = copy(&mut unit, &list(id, usage, &[TARGET], &[segment(0)])) else {
            panic!()
        };
        let known = |unit: &mut LogicalUnit| done(results(unit, 0, id)).status == Status::Good;
        assert_eq!(known(&mut unit), during, "usage {usage}");
        unit.finish_copy(pending, Ok(()));
        assert_eq!(known(&mut unit), after, "usage {usage}");
    }
}

/// SPC-4, LIST IDENTIFIER: two running copies of one nexus have different identifiers.
#[test]
fn a_list_identifier_in_use() {
    let mut unit = unit(BlockSize::B512);
    let begin = |unit: &mut LogicalUnit, id, usage| {
        let list = list(id, usage, &[TARGET], &[segment(0)]);
        match copy(unit, &list) {
            Step::Copy(pending, _) => Ok(pending),
            step => Err(sense(step)),
        }
    };
    for usage in [0, 2] {
        let running = begin(&mut unit, 1, usage).unwrap();
        for again in [0, 2] {
            let sense = begin(&mut unit, 1, again).unwrap_err();
            assert_eq!((sense.key, sense.code), (SenseKey::IllegalRequest, 0x0016));
        }
        // Any number of copies may run without an identifier.
        for _ in 0..2 {
            begin(&mut unit, 0, 3).unwrap();
        }
        assert_eq!(done(results(&mut unit, 0, 1)).data_in.to_vec()[4], 0x00, "it is the one that runs");
        unit.finish_copy(running, Ok(()));
        let next = begin(&mut unit, 1, usage).unwrap();
        unit.finish_copy(next, Ok(()));
    }
}

/// Otherwise a second copy with its identifier would be accepted.
#[test]
fn a_copy_that_runs_is_not_forgotten_for_results() {
    let mut unit = unit(BlockSize::B512);
    let begin = |unit: &mut LogicalUnit, id| copy(unit, &list(id, 0, &[TARGET], &[segment(0)]));
    assert!(matches!(begin(&mut unit, 200), Step::Copy(..)));
    for id in 0..=64 {
        let Step::Copy(pending, _) = begin(&mut unit, id) else { panic!() };
        unit.finish_copy(pending, Ok(()));
    }
    assert_sense(begin(&mut unit, 200), SenseKey::IllegalRequest, 0x0016);
}

/// Each running copy needs its own record; otherwise its results would be lost, and a second copy with its
/// identifier would be accepted.
#[test]
fn extended_copies_are_limited_by_the_results_that_can_be_kept() {
    let mut unit = unit(BlockSize::B512);
    let begin = |unit: &mut LogicalUnit, id| copy(unit, &list(id, 0, &[TARGET], &[segment(0)]));
    let mut running = Vec::new();
    for id in 0..64 {
        let Step::Copy(pending, _) = begin(&mut unit, id) else { panic!("copy {id} is refused") };
        running.push(pending);
    }
    assert_eq!(done(begin(&mut unit, 64)).status, Status::Busy);
    for id in 0..64 {
        assert_eq!(done(results(&mut unit, 0, id)).data_in.to_vec()[4], 0x00, "copy {id} runs");
    }
    assert_sense(begin(&mut unit, 0), SenseKey::IllegalRequest, 0x0016);
    unit.finish_copy(running.pop().unwrap(), Ok(()));
    assert!(matches!(begin(&mut unit, 64), Step::Copy(..)), "one has ended");
    assert_field(results(&mut unit, 0, 63), 2, 7);
}

#[test]
fn the_status_of_a_copy() {
    let mut unit = unit(BlockSize::B512);
    assert_field(results(&mut unit, 0, 1), 2, 7);
    let list = list(1, 0, &[TARGET], &[segment(0); 2]);
    let Step::Copy(pending, _) = copy(&mut unit, &list) else { panic!() };
    let status = |unit: &mut LogicalUnit| done(results(unit, 0, 1)).data_in.to_vec();
    assert_eq!(status(&mut unit), [0, 0, 0, 8, 0x00, 0, 0, 0, 0, 0, 0, 0]);
    unit.finish_copy(pending, Ok(()));
    // Without errors; two segments; 5,120 bytes.
    assert_eq!(status(&mut unit), [0, 0, 0, 8, 0x01, 0, 2, 0, 0, 0, 0x14, 0x00]);
    assert_eq!(done(results(&mut unit, 4, 1)).data_in.to_vec(), [0; 4]);
    assert_eq!(done(results(&mut unit, 1, 1)).data_in.to_vec(), [0; 4]);

    let Step::Copy(pending, _) = copy(&mut unit, &list) else { panic!() };
    let outcome = unit.finish_copy(pending, Err(failed(CopyFault::Unreachable)));
    let sense = outcome.sense.unwrap();
    assert_eq!((sense.key, sense.code), (SenseKey::CopyAborted, 0x0d02));
    // With errors; one segment; 2,560 bytes.
    assert_eq!(status(&mut unit), [0, 0, 0, 8, 0x02, 0, 1, 0, 0, 0, 0x0a, 0x00]);
    let details = done(results(&mut unit, 4, 1)).data_in.to_vec();
    assert_eq!((&details[..4], &details[56..60]), (&[0, 0, 0, 74][..], &[0x02, 0, 0, 18][..]));
    assert_eq!(details[60..74], [0x70, 0, 0x0a, 0, 0, 0, 0, 10, 0, 0, 0, 1, 0x0d, 0x02]);
    assert_eq!(details.len(), 78);
}

/// The sense data of a copy contains the segment, the number of blocks not written, and the response of the
/// source or the target.
#[test]
fn why_a_copy_stopped() {
    let mut unit = unit(BlockSize::B512);
    let mut stop = |residual, fault| {
        let Step::Copy(pending, _) = copy(&mut unit, &list(1, 0, &[TARGET], &[segment(0); 2])) else {
            panic!()
        };
        let failure = CopyFailure { segment: 1, residual, fault };
        unit.finish_copy(pending, Err(CopyError::Failed(failure))).sense.unwrap().encode().to_vec()
    };
    let swp = Sense::new(SenseKey::DataProtect, 0x2702);
    #[rustfmt::skip]
    assert_eq!(stop(Some(3), CopyFault::Target(swp.into())), [
        0xf0, 0, 0x0a, 0, 0, 0, 3, 29, 0, 18, 0, 1, 0x0d, 0x01, 0, 0, 0, 0,
        0x02, 0x70, 0, 0x07, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x27, 0x02, 0, 0, 0, 0,
    ]);
    assert_eq!(
        stop(None, CopyFault::Source(Refusal::Conflict)),
        [0x70, 0, 0x0a, 0, 0, 0, 0, 11, 18, 0, 0, 1, 0x0d, 0x01, 0, 0, 0, 0, 0x18]
    );
    let unreadable = BlockError::Unreadable(base::Lba(77));
    let bytes = stop(None, CopyFault::Source(unreadable.into()));
    assert_eq!((bytes[21], &bytes[31..33]), (0x03, &[0x11, 0x00][..]));
}

#[test]
fn results_belong_to_a_nexus() {
    let mut unit = unit(BlockSize::B512);
    let Step::Copy(pending, _) = copy(&mut unit, &list(1, 0, &[TARGET], &[segment(0)])) else { panic!() };
    unit.finish_copy(pending, Ok(()));
    let initiator = InitiatorPort::Iscsi { name: Arc::from("iqn.2026-01.com.example:other"), isid: [0; 6] };
    unit.attach_nexus(NexusId(2), ItNexus { initiator, port: RelativePort(1) }, false);
    let mut ask = |nexus| {
        let cdb = Cdb(cdb(0x84, &[(2, &[1]), (12, &[2, 0])]));
        done(unit.start(Request { nexus, cdb, data_out: Chain::new() })).status
    };
    assert_eq!(ask(NexusId(2)), Status::CheckCondition); // POWER ON, RESET OR BUS DEVICE RESET OCCURRED
    assert_eq!(ask(NexusId(2)), Status::CheckCondition); // no such list identifier
    assert_eq!(ask(NexusId(1)), Status::Good);
}

#[test]
fn results_of_more_copies_than_are_kept() {
    let mut unit = unit(BlockSize::B512);
    for id in 0..=64 {
        let Step::Copy(pending, _) = copy(&mut unit, &list(id, 0, &[TARGET], &[segment(0)])) else {
            panic!()
        };
        unit.finish_copy(pending, Ok(()));
    }
    assert_field(results(&mut unit, 0, 0), 2, 7);
    assert_eq!(done(results(&mut unit, 0, 1)).status, Status::Good);
    assert_eq!(done(results(&mut unit, 0, 64)).status, Status::Good);
}

#[test]
fn operating_parameters() {
    let mut unit = unit(BlockSize::B512);
    let data = done(results(&mut unit, 3, 0)).data_in.to_vec();
    #[rustfmt::skip]
    assert_eq!(data, [
        0, 0, 0, 42, 0x01, 0, 0, 0, // 42 bytes follow, SNLID
        0, 8, 0, 32, 0, 0, 0x04, 0x80, // 8 targets, 32 segments, 1,152 bytes of both
        0x10, 0, 0, 0, 0, 0, 0, 0, // 256 MiB a segment, no inline data
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // no held data, no streams
        0, 64, 64, 9, 0, 0, 0, 0, 0, // copies at once, 2^9 bytes
        2, 0x02, 0xe4, // two types
    ]);
    assert_field(results(&mut unit, 5, 0), 1, 4);
}

#[test]
fn the_page_says_what_can_be_copied() {
    let mut unit = unit(BlockSize::B512);
    let data = done(start(&mut unit, &[0x12, 1, 0x8f, 0, 255, 0], &[])).data_in.to_vec();
    #[rustfmt::skip]
    assert_eq!(data, [
        0x00, 0x8f, 0, 100,
        0x00, 0x01, 0, 12, 9, 0x83, 1, 0x00, 0x84, 4, 0x00, 0x01, 0x03, 0x04, 0, 0, // commands
        0x00, 0x04, 0, 28, 0, 0, 0, 0, 0, 8, 0, 32, 0, 0, 0x04, 0x80, // parameter data
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0x00, 0x08, 0, 4, 2, 0x02, 0xe4, 0, // descriptors
        0x00, 0x0c, 0, 4, 0, 0, 0, 0, // no CSCD descriptor IDs
        0x80, 0x01, 0, 32, 0, 0, 0, 64, 0, 0, 0, 64, 0x10, 0, 0, 0, 9, 0, 0, 0, // copies at once, 256 MiB, 2^9 bytes
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ]);
}
