//! Commands and their data.

use super::*;
use crate::iscsi::wire::{Ahs, Residual, ScsiResponse};

/// TEST UNIT READY and its response, byte by byte.
#[test]
fn the_smallest_command() {
    let mut peer = Peer::new();
    #[rustfmt::skip]
    peer.session.handle_bytes(LEADING, &[
        0x01, 0x81, 0, 0,   0, 0, 0, 0,             // SCSI command, final, simple
        0, 0, 0, 0, 0, 0, 0, 0,                     // LUN 0
        0x12, 0x34, 0x56, 0x78,   0, 0, 0, 0,       // ITT, expected length
        0, 0, 0, 100,   0, 0, 0x03, 0xe8,           // CmdSN 100, ExpStatSN 1000
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ], Instant(0));
    let command = peer.command();
    assert!(command.data_out.is_empty() && command.cdb.0 == [0; 16]);
    assert!(peer.output().is_empty());
    peer.session.complete(command.id, Outcome::good());
    #[rustfmt::skip]
    assert_eq!(peer.output_bytes(0, usize::MAX), [
        0x21, 0x80, 0, 0,   0, 0, 0, 0,             // SCSI response, completed, GOOD
        0, 0, 0, 0, 0, 0, 0, 0,
        0x12, 0x34, 0x56, 0x78,   0, 0, 0, 0,       // ITT, SNACK tag
        0, 0, 0x03, 0xe8,                           // StatSN 1000
        0, 0, 0, 101,   0, 0, 0, 108,               // ExpCmdSN, MaxCmdSN: the window of 8 is all free again
        0, 0, 0, 0,   0, 0, 0, 0,   0, 0, 0, 0,
    ]);
}

#[test]
fn a_read_ends_with_its_last_data() {
    let mut peer = Peer::new();
    peer.send(read(7, FIRST, 20000).encode(0), &[]);
    let command = peer.command();
    let data = pattern(20000);
    peer.session.complete(command.id, Outcome::data(Chain::copy_of(&data)));
    // The limit cuts between PDUs, and nothing is lost.
    let mut first = peer.output_bytes(0, 1);
    assert_eq!(first.len(), 48 + 8192);
    first.drain(..48);
    let output = peer.output();
    let lengths: Vec<_> = output.iter().map(|(_, data)| data.len()).collect();
    assert_eq!(lengths, [8192, 20000 - 2 * 8192]);
    let all: Vec<u8> = first.into_iter().chain(output.iter().flat_map(|(_, data)| data.clone())).collect();
    assert_eq!(all, data);
    let (ResponsePdu::DataIn(middle), ResponsePdu::DataIn(last)) = (output[0].0, output[1].0) else {
        panic!("{output:?}")
    };
    assert_eq!(
        (middle.data_sn, middle.buffer_offset, middle.is_final, middle.status),
        (1, 8192, false, None)
    );
    assert_eq!((last.data_sn, last.buffer_offset, last.is_final), (2, 16384, true));
    assert_eq!(last.status.unwrap().residual, Residual::None);
    assert_eq!(last.numbers.stat_sn, Serial(1000));
    assert_eq!(last.numbers.max_cmd_sn, Serial(FIRST + 8));
    assert_eq!(peer.session.census(), Default::default());
}

#[test]
fn bursts_of_a_read_are_final() {
    let negotiated = Negotiated { max_burst: 10000, ..negotiated() };
    let mut peer = Peer::with(negotiated, config());
    peer.send(read(7, FIRST, 20000).encode(0), &[]);
    let id = peer.command().id;
    peer.session.complete(id, Outcome::data(Chain::copy_of(&pattern(20000))));
    let shape: Vec<_> = peer
        .output()
        .iter()
        .map(|(pdu, data)| match pdu {
            ResponsePdu::DataIn(pdu) => (data.len(), pdu.is_final, pdu.status.is_some()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(shape, [(8192, false, false), (1808, true, false), (8192, false, false), (1808, true, true)]);
}

#[test]
fn residuals() {
    let residual = |expected, given: usize, transfer| {
        let mut peer = Peer::new();
        peer.send(read(7, FIRST, expected).encode(0), &[]);
        let id = peer.command().id;
        let outcome = Outcome { transfer, ..Outcome::data(Chain::copy_of(&pattern(given))) };
        peer.session.complete(id, outcome);
        match peer.answer() {
            (ResponsePdu::DataIn(pdu), data) => (data.len(), pdu.status.unwrap().residual),
            (ResponsePdu::ScsiResponse(pdu), _) => (0, pdu.residual),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(residual(512, 512, 512), (512, Residual::None));
    assert_eq!(residual(1024, 512, 512), (512, Residual::Underflow(512)));
    assert_eq!(residual(512, 1024, 1024), (512, Residual::Overflow(512)));
    assert_eq!(residual(0, 512, 512), (0, Residual::Overflow(512)));
    assert_eq!(residual(255, 0, 0), (0, Residual::Underflow(255)));

    let mut peer = Peer::new();
    peer.send(write(7, FIRST, 1024).encode(1024), &[1; 1024]);
    let id = peer.command().id;
    peer.session.complete(id, Outcome::good_out(512));
    assert!(matches!(
        peer.answer().0,
        ResponsePdu::ScsiResponse(ScsiResponse { residual: Residual::Underflow(512), .. })
    ));
}

#[test]
fn sense_follows_its_length() {
    let mut peer = Peer::new();
    peer.send(read(7, FIRST, 512).encode(0), &[]);
    let id = peer.command().id;
    let sense = Sense::new(SenseKey::MediumError, 0x1100).with_information(5);
    peer.session.complete(id, Outcome::check(sense));
    let answer = peer.answer();
    assert_eq!(status_of(&answer), 0x02);
    #[rustfmt::skip]
    assert_eq!(answer.1, [
        0, 18,
        0xf0, 0, 0x03, 0, 0, 0, 5, 10, 0, 0, 0, 0, 0x11, 0x00, 0, 0, 0, 0,
    ]);
    assert!(matches!(
        answer.0,
        ResponsePdu::ScsiResponse(ScsiResponse { residual: Residual::Underflow(512), .. })
    ));
}

#[test]
fn immediate_data_makes_a_whole_write() {
    let mut peer = Peer::new();
    let data = pattern(4096);
    peer.send(write(7, FIRST, 4096).encode(4096), &data);
    let command = peer.command();
    assert_eq!(command.data_out.to_vec(), data);
    assert!(command.data_out.parts()[0].is_aligned(4096), "ready for O_DIRECT");
    assert_eq!(peer.session.write_bytes(), 4096);
    peer.session.complete(command.id, Outcome::good_out(4096));
    assert_eq!(status_of(&peer.answer()), 0);
    assert_eq!(peer.session.write_bytes(), 0);
}

/// Immediate data, unsolicited Data-Out up to FirstBurstLength, then two R2Ts.
#[test]
fn a_write_in_all_its_parts() {
    let mut peer = Peer::new();
    let data = pattern(100_000);
    let mut header = write(7, FIRST, 100_000);
    header.is_final = false;
    peer.send(header.encode(4096), &data[..4096]);
    peer.send(data_out(7, TargetTag::RESERVED, 0, 4096, false).encode(8192), &data[4096..12288]);
    assert!(peer.output().is_empty());
    peer.send(data_out(7, TargetTag::RESERVED, 1, 12288, true).encode(4096), &data[12288..16384]);
    let first = peer.r2t();
    assert_eq!((first.r2t_sn, first.buffer_offset, first.desired_length), (0, 16384, 65536));
    assert_eq!(first.numbers.stat_sn, Serial(1000), "the next one, not advanced");
    let at = 16384 + 65536;
    peer.send(data_out(7, first.target_tag, 0, 16384, false).encode(60000), &data[16384..76384]);
    assert!(peer.output().is_empty());
    peer.send(data_out(7, first.target_tag, 1, 76384, true).encode(at as u32 - 76384), &data[76384..at]);
    let second = peer.r2t();
    assert_eq!((second.r2t_sn, second.buffer_offset), (1, at as u32));
    assert_eq!(second.desired_length, 100_000 - at as u32);
    assert!(peer.events().is_empty());
    peer.send(data_out(7, second.target_tag, 0, at as u32, true).encode(second.desired_length), &data[at..]);
    let command = peer.command();
    assert_eq!(command.data_out.parts().len(), 1);
    assert_eq!(command.data_out.to_vec(), data);
    peer.session.complete(command.id, Outcome::good_out(100_000));
    assert_eq!(status_of(&peer.answer()), 0);
    assert_eq!(peer.session.counters().r2ts, 2);
}

#[test]
fn several_r2ts_may_be_outstanding() {
    let negotiated = Negotiated { max_outstanding_r2t: 2, max_burst: 512, initial_r2t: true, ..negotiated() };
    let mut peer = Peer::with(negotiated, config());
    peer.send(write(7, FIRST, 1500).encode(0), &[]);
    let r2ts: Vec<_> = peer
        .output()
        .iter()
        .map(|(pdu, _)| match pdu {
            ResponsePdu::R2t(r2t) => *r2t,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(r2ts.len(), 2);
    assert_eq!((r2ts[1].r2t_sn, r2ts[1].buffer_offset, r2ts[1].desired_length), (1, 512, 512));
    peer.send(data_out(7, r2ts[0].target_tag, 0, 0, true).encode(512), &[1; 512]);
    let third = peer.r2t();
    assert_eq!((third.r2t_sn, third.buffer_offset, third.desired_length), (2, 1024, 476));
    peer.send(data_out(7, r2ts[1].target_tag, 0, 512, true).encode(512), &[2; 512]);
    peer.send(data_out(7, third.target_tag, 0, 1024, true).encode(476), &[3; 476]);
    let data = peer.command().data_out.to_vec();
    assert_eq!((data[0], data[512], data[1024], data.len()), (1, 2, 3, 1500));
}

#[test]
fn large_data_is_received_in_place() {
    for data_digest in [false, true] {
        let mut peer = Peer::with(Negotiated { data_digest, ..negotiated() }, config());
        let data = pattern(50_001);
        peer.send(write(7, FIRST, 50_001).encode(0), &[]);
        let r2t = peer.r2t();
        let bytes = peer.bytes(&data_out(7, r2t.target_tag, 0, 0, true).encode(50_001), &data);
        peer.session.handle_bytes(LEADING, &bytes[..1000], Instant(0));
        let mut place = peer.session.take_in_place(LEADING).unwrap();
        assert_eq!((place.filled, place.buf.len()), (952, 50_001));
        assert!(!peer.session.wants_bytes(LEADING) && peer.session.take_in_place(LEADING).is_none());
        let end = 48 + 50_001;
        place.buf[952..].copy_from_slice(&bytes[1000..end]);
        peer.session.handle_in_place(LEADING, place.buf, Instant(1));
        assert!(peer.session.wants_bytes(LEADING) && peer.events().is_empty(), "the padding is missing");
        peer.session.handle_bytes(LEADING, &bytes[end..], Instant(2));
        assert_eq!(peer.command().data_out.to_vec(), data);
    }
}

#[test]
fn in_place_data_may_be_a_part_of_the_buffer() {
    let mut peer = Peer::with(Negotiated { max_burst: 40_000, ..negotiated() }, config());
    let data = pattern(80_000);
    peer.send(write(7, FIRST, 80_000).encode(0), &[]);
    for offset in [0, 40_000] {
        let r2t = peer.r2t();
        let header = data_out(7, r2t.target_tag, 0, offset, true).encode(40_000);
        let bytes = peer.bytes(&header, &data[offset as usize..][..40_000]);
        peer.session.handle_bytes(LEADING, &bytes[..48], Instant(0));
        let mut place = peer.session.take_in_place(LEADING).unwrap();
        assert_eq!((place.filled, place.buf.len()), (offset as usize, offset as usize + 40_000));
        place.buf[offset as usize..].copy_from_slice(&bytes[48..]);
        peer.session.handle_in_place(LEADING, place.buf, Instant(0));
    }
    assert_eq!(peer.command().data_out.to_vec(), data);
}

#[test]
fn impossible_commands_are_refused_with_sense() {
    let refused = |header: ScsiCommand, data: &[u8]| {
        let mut peer = Peer::new();
        peer.send(header.encode(data.len() as u32), data);
        assert!(peer.events().is_empty());
        let answer = peer.answer();
        assert_eq!(status_of(&answer), 0x02);
        // The session continues.
        peer.send(command(8, FIRST + 1).encode(0), &[]);
        peer.command();
        sense_of(&answer.1)
    };
    // Bidirectional: INVALID FIELD IN COMMAND INFORMATION UNIT.
    assert_eq!(refused(ScsiCommand { read: true, ..write(7, FIRST, 512) }, &[0; 512]), (0x05, 0x0e03));
    // More than the session can ever hold: INVALID FIELD IN CDB.
    assert_eq!(refused(write(7, FIRST, (1 << 20) + 1), &[0; 512]), (0x05, 0x2400));
    // Immediate data with a read; or more immediate data than FirstBurstLength, or than expected.
    assert_eq!(refused(read(7, FIRST, 512), &[0; 512]), (0x0b, 0x0c0c));
    assert_eq!(refused(write(7, FIRST, 32768), &[0; 16385]), (0x0b, 0x0c0d));
    assert_eq!(refused(write(7, FIRST, 512), &[0; 513]), (0x0b, 0x0c0d));
}

#[test]
fn a_long_cdb_is_refused() {
    let mut peer = Peer::new();
    let bytes = command(7, FIRST).encode_with_ahs(0, &[Ahs::ExtendedCdb(&[0; 16])]);
    peer.session.handle_bytes(LEADING, &bytes, Instant(0));
    assert_eq!(sense_of(&peer.answer().1), (0x05, 0x2000));
    let bytes = read(8, FIRST + 1, 8).encode_with_ahs(0, &[Ahs::BidirectionalReadLength(8)]);
    peer.session.handle_bytes(LEADING, &bytes, Instant(0));
    assert_eq!(sense_of(&peer.answer().1), (0x05, 0x0e03));
}

/// The response waits until the initiator has sent all announced data, so that nothing is left on the wire.
#[test]
fn unsolicited_data_of_a_refused_write_is_drained() {
    let mut peer = Peer::with(Negotiated { initial_r2t: true, ..negotiated() }, config());
    peer.send(ScsiCommand { is_final: false, ..write(7, FIRST, 8192) }.encode(0), &[]);
    assert!(peer.output().is_empty());
    peer.send(data_out(7, TargetTag::RESERVED, 0, 0, false).encode(4096), &[0; 4096]);
    assert!(peer.output().is_empty());
    peer.send(data_out(7, TargetTag::RESERVED, 1, 4096, true).encode(4096), &[0; 4096]);
    assert_eq!(sense_of(&peer.answer().1), (0x0b, 0x0c0c));
    assert_eq!(peer.session.write_bytes(), 0);
}

/// R2Ts wait for memory, in order. Unsolicited parts get theirs, and are kept.
#[test]
fn solicited_data_waits_for_memory() {
    let config = SessionConfig { data_bytes_max: 100_000, ..config() };
    let mut peer = Peer::with(negotiated(), config);
    let data = pattern(60_000);
    for (tag, immediate) in [(1, 0), (2, 4096), (3, 0)] {
        peer.send(write(tag, FIRST + tag - 1, 60_000).encode(immediate), &data[..immediate as usize]);
    }
    for tag in 1..=3 {
        let r2t = peer.r2t();
        assert_eq!(r2t.initiator_tag, InitiatorTag(tag), "one at a time");
        assert!(peer.session.write_bytes() <= 60_000 + 4096);
        let offset = r2t.buffer_offset as usize;
        assert_eq!(offset, if tag == 2 { 4096 } else { 0 });
        let header = data_out(tag, r2t.target_tag, 0, offset as u32, true);
        peer.send(header.encode(60_000 - offset as u32), &data[offset..]);
        let command = peer.command();
        assert_eq!(command.data_out.to_vec(), data);
        assert!(peer.output().is_empty(), "memory is held until the answer");
        peer.session.complete(command.id, Outcome::good_out(60_000));
        let mut batch = SendBatch::new();
        peer.session.poll_transmit(LEADING, &mut batch, 1);
    }
    assert_eq!(peer.session.write_bytes(), 0);
}

#[test]
fn the_window_closes_and_opens() {
    let mut peer = Peer::new();
    for i in 0..9 {
        peer.send(command(i, FIRST + i).encode(0), &[]);
    }
    let mut events = peer.events();
    assert_eq!(events.len(), 8, "the ninth is outside the window: dropped in silence");
    assert!(peer.output().is_empty());
    assert_eq!(peer.session.counters().ignored, 1);
    let Event::Command(last) = events.remove(7) else { unreachable!() };
    peer.session.complete(last.id, Outcome::good());
    let (ResponsePdu::ScsiResponse(response), _) = peer.answer() else { unreachable!() };
    assert_eq!((response.numbers.exp_cmd_sn, response.numbers.max_cmd_sn), (Serial(108), Serial(108)));
    peer.send(command(8, FIRST + 8).encode(0), &[]);
    assert_eq!(peer.command().id, peer.session.tasks.by_tag(InitiatorTag(8)).unwrap().into());
    // A duplicate of an old command.
    peer.send(command(99, FIRST).encode(0), &[]);
    assert!(peer.events().is_empty());
}

#[test]
fn an_immediate_command_takes_no_number() {
    let mut peer = Peer::new();
    peer.send(ScsiCommand { immediate: true, ..command(1, FIRST) }.encode(0), &[]);
    let id = peer.command().id;
    peer.send(command(2, FIRST).encode(0), &[]);
    peer.command();
    peer.session.complete(id, Outcome::good());
    let (ResponsePdu::ScsiResponse(response), _) = peer.answer() else { unreachable!() };
    assert_eq!((response.numbers.exp_cmd_sn, response.numbers.max_cmd_sn), (Serial(101), Serial(107)));
}

#[test]
fn digests_are_generated_and_checked() {
    let negotiated = Negotiated { header_digest: true, data_digest: true, ..negotiated() };
    let mut peer = Peer::with(negotiated, config());
    let data = pattern(1001);
    peer.send(write(7, FIRST, 1001).encode(1001), &data);
    let command = peer.command();
    assert_eq!(command.data_out.to_vec(), data);
    peer.session.complete(command.id, Outcome::good_out(1001));
    assert_eq!(status_of(&peer.answer()), 0);
    peer.send(read(8, FIRST + 1, 1001).encode(0), &[]);
    let id = peer.command().id;
    peer.session.complete(id, Outcome::data(Chain::copy_of(&data)));
    assert_eq!(peer.answer().1, data);
}

#[test]
fn a_completion_of_an_aborted_command_hits_nothing() {
    let mut peer = Peer::new();
    peer.send(command(1, FIRST).encode(0), &[]);
    let old = peer.command().id;
    peer.session.abort(old, false);
    peer.send(command(2, FIRST + 1).encode(0), &[]);
    let new = peer.command().id;
    peer.session.complete(old, Outcome::good());
    peer.session.complete(CommandId(u64::MAX), Outcome::good());
    assert!(peer.output().is_empty());
    peer.session.abort(new, true);
    assert!(peer.output().is_empty(), "it runs");
    peer.session.complete(new, Outcome::status(Status::Busy));
    assert_eq!(status_of(&peer.answer()), 0x40);
    peer.session.complete(new, Outcome::good());
    assert!(peer.output().is_empty());
}
