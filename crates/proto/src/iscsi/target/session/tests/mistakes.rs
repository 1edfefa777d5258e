//! What an initiator must not do, and what it gets for it.

use super::*;
use crate::iscsi::wire::{RejectReason, Snack};

impl Peer {
    fn rejected(&mut self) -> RejectReason {
        match self.answer() {
            (ResponsePdu::Reject(reject), data) => {
                assert_eq!(data.len(), 48, "the bad header comes back");
                reject.reason
            }
            other => panic!("{other:?}"),
        }
    }

    /// The session is as good as new.
    fn goes_on(&mut self, cmd_sn: u32) {
        assert!(self.events().is_empty());
        self.send(command(0xdead, cmd_sn).encode(0), &[]);
        self.command();
    }
}

#[test]
fn small_mistakes_are_rejected() {
    let mut peer = Peer::new();
    // An opcode that nobody knows, with data.
    let mut header = [0; HEADER_LEN];
    header[0] = 0x1c;
    header[7] = 5;
    peer.send(header, b"hello");
    assert_eq!(peer.rejected(), RejectReason::CommandNotSupported);
    // A PDU of targets.
    header[0] = 0x21;
    peer.send(header, b"hello");
    assert_eq!(peer.rejected(), RejectReason::CommandNotSupported);
    // SNACK.
    let snack = Snack {
        kind: 0,
        lun: [0; 8],
        initiator_tag: InitiatorTag(1),
        target_tag: TargetTag::RESERVED,
        exp_stat_sn: Serial(0),
        begin: 0,
        run_length: 0,
    };
    peer.send(snack.encode(), &[]);
    assert_eq!(peer.rejected(), RejectReason::SnackReject);
    // A task attribute that does not exist: the number counts.
    let mut header = command(1, FIRST).encode(0);
    header[1] |= 0x07;
    peer.send(header, &[]);
    assert_eq!(peer.rejected(), RejectReason::InvalidPduField);
    // The reserved tag.
    peer.send(command(u32::MAX, FIRST + 1).encode(0), &[]);
    assert_eq!(peer.rejected(), RejectReason::InvalidPduField);
    // Additional header segments that lie.
    let mut bytes = command(1, FIRST + 2).encode(0).to_vec();
    bytes[4] = 1;
    bytes.extend_from_slice(&[0x12, 0x34, 0x01, 0x00]);
    peer.session.handle_bytes(0, &bytes, Instant(0));
    assert_eq!(peer.rejected(), RejectReason::InvalidPduField);
    assert_eq!(peer.session.counters().rejects, 6);
    peer.goes_on(FIRST + 3);
}

#[test]
fn a_tag_is_used_once() {
    let mut peer = Peer::new();
    peer.send(command(1, FIRST).encode(0), &[]);
    peer.command();
    peer.send(write(1, FIRST + 1, 512).encode(512), &[0; 512]);
    assert_eq!(peer.rejected(), RejectReason::TaskInProgress);
    peer.goes_on(FIRST + 2);
}

#[test]
fn immediate_commands_are_bounded() {
    let mut peer = Peer::new();
    for tag in 0..super::super::IMMEDIATE_MAX as u32 {
        peer.send(ScsiCommand { immediate: true, ..command(tag, FIRST) }.encode(0), &[]);
    }
    assert_eq!(peer.events().len(), super::super::IMMEDIATE_MAX);
    peer.send(ScsiCommand { immediate: true, ..command(0x1000, FIRST) }.encode(0), &[]);
    assert_eq!(peer.rejected(), RejectReason::TooManyImmediateCommands);
    peer.goes_on(FIRST);
}

#[test]
fn data_without_a_command_is_thrown_away() {
    let mut peer = Peer::new();
    peer.send(data_out(77, TargetTag(5), 0, 0, true).encode(40_000), &[0; 40_000]);
    assert!(peer.output().is_empty());
    peer.goes_on(FIRST);
}

#[test]
fn broken_sequences_of_data_end_the_session() {
    let start = |is_final| {
        let mut peer = Peer::new();
        peer.send(ScsiCommand { is_final, ..write(1, FIRST, 100_000) }.encode(0), &[]);
        peer
    };
    type Mistake = fn(TargetTag) -> (DataOut, usize);
    let solicited: [(&str, Mistake); 7] = [
        ("wrong tag", |tag| (data_out(1, TargetTag(tag.0 ^ 1), 0, 0, true), 65536)),
        ("unsolicited instead", |_| (data_out(1, TargetTag::RESERVED, 0, 0, true), 65536)),
        ("wrong DataSN", |tag| (data_out(1, tag, 1, 0, true), 65536)),
        ("wrong offset", |tag| (data_out(1, tag, 0, 512, true), 65024)),
        ("an end too early", |tag| (data_out(1, tag, 0, 0, true), 512)),
        ("no end", |tag| (data_out(1, tag, 0, 0, false), 65536)),
        ("offset beyond all", |tag| (data_out(1, tag, 0, u32::MAX - 3, true), 512)),
    ];
    for (name, mistake) in solicited {
        let mut peer = start(true);
        let tag = peer.r2t().target_tag;
        let (pdu, length) = mistake(tag);
        peer.send(pdu.encode(length as u32), &pattern(length));
        let (ResponsePdu::Reject(_), _) = peer.answer() else { panic!("{name}") };
        peer.is_over(CloseReason::ProtocolError);
        assert_eq!(peer.session.write_bytes(), 0);
    }
    let unsolicited: [(&str, DataOut, usize); 4] = [
        ("a tag that was never given", data_out(1, TargetTag(5), 0, 0, true), 512),
        ("beyond FirstBurstLength", data_out(1, TargetTag::RESERVED, 0, 0, true), 16385),
        ("no end at FirstBurstLength", data_out(1, TargetTag::RESERVED, 0, 0, false), 16384),
        ("wrong DataSN", data_out(1, TargetTag::RESERVED, 7, 0, false), 512),
    ];
    for (name, pdu, length) in unsolicited {
        let mut peer = start(false);
        peer.send(pdu.encode(length as u32), &pattern(length));
        let (ResponsePdu::Reject(_), _) = peer.answer() else { panic!("{name}") };
        peer.is_over(CloseReason::ProtocolError);
    }
}

#[test]
fn data_for_a_command_that_needs_none_ends_the_session() {
    let mut peer = Peer::new();
    peer.send(read(1, FIRST, 512).encode(0), &[]);
    peer.command();
    peer.send(data_out(1, TargetTag::RESERVED, 0, 0, true).encode(512), &[0; 512]);
    assert_eq!(peer.rejected(), RejectReason::ProtocolError);
    assert_eq!(peer.events().len(), 2);
}

#[test]
fn a_pdu_longer_than_declared_ends_the_session() {
    let mut peer = Peer::new();
    let header = write(1, FIRST, 70_000).encode(65537);
    peer.session.handle_bytes(0, &header, Instant(0));
    assert_eq!(peer.rejected(), RejectReason::InvalidPduField);
    peer.is_over(CloseReason::ProtocolError);
}

#[test]
fn a_login_in_the_full_feature_phase_ends_the_session() {
    let mut peer = Peer::new();
    let mut header = [0; HEADER_LEN];
    (header[0], header[1]) = (0x43, 0x87);
    peer.send(header, &[]);
    assert_eq!(peer.rejected(), RejectReason::ProtocolError);
    peer.is_over(CloseReason::ProtocolError);
}

#[test]
fn damaged_digests_end_the_session() {
    let negotiated = Negotiated { header_digest: true, data_digest: true, ..negotiated() };
    let mut peer = Peer::with(negotiated.clone(), config());
    let mut bytes = peer.bytes(&write(1, FIRST, 512).encode(512), &[0; 512]);
    bytes[100] ^= 1;
    peer.session.handle_bytes(0, &bytes, Instant(0));
    assert_eq!(peer.rejected(), RejectReason::DataDigestError);
    peer.is_over(CloseReason::DataDigest);

    let mut peer = Peer::with(negotiated, config());
    let mut bytes = peer.bytes(&write(1, FIRST, 512).encode(512), &[0; 512]);
    bytes[20] ^= 1;
    peer.session.handle_bytes(0, &bytes, Instant(0));
    assert!(peer.output().is_empty());
    peer.is_over(CloseReason::HeaderDigest);
}

#[test]
fn discovery_knows_no_scsi() {
    let mut peer = Peer::discovery();
    peer.send(write(1, FIRST, 512).encode(512), &[0; 512]);
    assert_eq!(peer.rejected(), RejectReason::ProtocolError);
    assert!(peer.events().is_empty());
    assert_eq!(peer.session.census(), Default::default());
}

/// An initiator that asks and never reads: nothing more is read from it.
#[test]
fn answers_do_not_pile_up() {
    let config = SessionConfig { commands_max: 64, ..config() };
    let mut peer = Peer::with(negotiated(), config);
    let chunk = Chain::copy_of(&[0; 1 << 20]);
    for i in 0..8 {
        assert!(peer.session.wants_bytes(0));
        peer.send(read(i, FIRST + i, 1 << 20).encode(0), &[]);
        let id = peer.command().id;
        peer.session.complete(id, Outcome::data(chunk.clone()));
    }
    assert!(!peer.session.wants_bytes(0));
    peer.output_bytes(0, 1 << 20);
    assert!(peer.session.wants_bytes(0));
    peer.output();
    assert_eq!(peer.session.connections[0].queued_bytes, 0);
}
