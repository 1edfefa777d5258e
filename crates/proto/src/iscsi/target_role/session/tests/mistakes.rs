//! Mistakes of an initiator, and their consequences.

use super::*;
use crate::iscsi::wire::{RejectReason, Snack, TaskManagementFunction, TaskRequest};

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

    /// The session works as before.
    fn goes_on(&mut self, cmd_sn: u32) {
        assert!(self.events().is_empty());
        self.send(command(0xdead, cmd_sn).encode(0), &[]);
        self.command();
    }
}

#[test]
fn small_mistakes_are_rejected() {
    let mut peer = Peer::new();
    // An unknown opcode, with data.
    let mut header = [0; HEADER_LEN];
    header[0] = 0x1c;
    header[7] = 5;
    peer.send(header, b"hello");
    assert_eq!(peer.rejected(), RejectReason::CommandNotSupported);
    // A PDU that only targets send.
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
    // A task attribute that does not exist: the CmdSN counts.
    let mut header = command(1, FIRST).encode(0);
    header[1] |= 0x07;
    peer.send(header, &[]);
    assert_eq!(peer.rejected(), RejectReason::InvalidPduField);
    // The reserved tag.
    peer.send(command(u32::MAX, FIRST + 1).encode(0), &[]);
    assert_eq!(peer.rejected(), RejectReason::InvalidPduField);
    // Additional header segments with a wrong length.
    let mut bytes = command(1, FIRST + 2).encode(0).to_vec();
    bytes[4] = 1;
    bytes.extend_from_slice(&[0x12, 0x34, 0x01, 0x00]);
    peer.session.handle_bytes(LEADING, &bytes, Instant(0));
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
fn task_management_is_bounded() {
    let mut peer = Peer::new();
    let reset = |tag, cmd_sn| TaskRequest {
        immediate: true,
        function: TaskManagementFunction::TargetWarmReset,
        lun: [0; 8],
        initiator_tag: InitiatorTag(tag),
        referenced_tag: InitiatorTag(u32::MAX),
        cmd_sn: Serial(cmd_sn),
        exp_stat_sn: Serial(0),
        referenced_cmd_sn: Serial(0),
        exp_data_sn: 0,
    };
    // Half of them wait for a command that does not arrive.
    for tag in 0..super::super::IMMEDIATE_MAX as u32 {
        peer.send(reset(tag, FIRST + tag % 2).encode(), &[]);
    }
    assert_eq!(peer.events().len(), super::super::IMMEDIATE_MAX / 2);
    peer.send(reset(0x1000, FIRST).encode(), &[]);
    assert_eq!(peer.rejected(), RejectReason::TooManyImmediateCommands);
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
    let solicited: [(&str, Mistake); 6] = [
        ("wrong tag", |tag| (data_out(1, TargetTag(tag.0 ^ 1), 0, 0, true), 65536)),
        ("unsolicited instead", |_| (data_out(1, TargetTag::RESERVED, 0, 0, true), 65536)),
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
    let unsolicited: [(&str, DataOut, usize); 3] = [
        ("a tag that was never given", data_out(1, TargetTag(5), 0, 0, true), 512),
        ("beyond FirstBurstLength", data_out(1, TargetTag::RESERVED, 0, 0, true), 16385),
        ("no end at FirstBurstLength", data_out(1, TargetTag::RESERVED, 0, 0, false), 16384),
    ];
    for (name, pdu, length) in unsolicited {
        let mut peer = start(false);
        peer.send(pdu.encode(length as u32), &pattern(length));
        let (ResponsePdu::Reject(_), _) = peer.answer() else { panic!("{name}") };
        peer.is_over(CloseReason::ProtocolError);
    }
}

impl Peer {
    /// The only response reports lost data: CHECK CONDITION, ABORTED COMMAND, PROTOCOL SERVICE CRC ERROR.
    fn lost_data(&mut self) {
        let answer = self.answer();
        assert_eq!((status_of(&answer), sense_of(&answer.1)), (0x02, (0x0b, 0x4705)));
        assert_eq!(self.session.write_bytes(), 0);
        assert_eq!(self.session.census(), Default::default());
    }
}

/// 7.9: a wrong DataSN counts as a digest error of the preceding data, and ends only the command.
#[test]
fn a_wrong_data_sn_ends_the_command_after_all_of_its_data() {
    for wrong in [1, 27, u32::MAX] {
        let mut peer = Peer::new();
        peer.send(write(1, FIRST, 1024).encode(0), &[]);
        let tag = peer.r2t().target_tag;
        peer.send(data_out(1, tag, wrong, 0, false).encode(512), &[7; 512]);
        assert!(peer.output().is_empty(), "there is data to come");
        assert_eq!(peer.session.write_bytes(), 0, "which nobody keeps");
        peer.send(data_out(1, tag, 1, 512, true).encode(512), &[7; 512]);
        peer.lost_data();
        peer.goes_on(FIRST + 1);
    }
    // A wrong DataSN in the second PDU, which is also the last.
    let mut peer = Peer::new();
    peer.send(write(1, FIRST, 1024).encode(0), &[]);
    let tag = peer.r2t().target_tag;
    peer.send(data_out(1, tag, 0, 0, false).encode(512), &[7; 512]);
    peer.send(data_out(1, tag, 0, 512, true).encode(512), &[7; 512]);
    peer.lost_data();
    // Further data belongs to no command.
    peer.send(data_out(1, tag, 1, 512, true).encode(512), &[7; 512]);
    assert!(peer.output().is_empty());
    peer.goes_on(FIRST + 1);
}

#[test]
fn a_wrong_data_sn_in_unsolicited_data() {
    let mut peer = Peer::new();
    peer.send(ScsiCommand { is_final: false, ..write(1, FIRST, 100_000) }.encode(0), &[]);
    peer.send(data_out(1, TargetTag::RESERVED, 7, 0, false).encode(512), &[7; 512]);
    peer.send(data_out(1, TargetTag::RESERVED, 8, 512, false).encode(512), &[7; 512]);
    assert!(peer.output().is_empty());
    peer.send(data_out(1, TargetTag::RESERVED, 9, 1024, true).encode(512), &[7; 512]);
    peer.lost_data();
    peer.goes_on(FIRST + 1);
}

/// Several R2Ts are outstanding: the session waits for the data of all of them.
#[test]
fn lost_data_waits_for_all_r2ts() {
    let mut peer = Peer::with(Negotiated { max_outstanding_r2t: 2, ..negotiated() }, config());
    peer.send(write(1, FIRST, 200_000).encode(0), &[]);
    let tags: Vec<TargetTag> = peer
        .output()
        .into_iter()
        .map(|(pdu, _)| match pdu {
            ResponsePdu::R2t(r2t) => r2t.target_tag,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(tags.len(), 2);
    peer.send(data_out(1, tags[0], 5, 0, true).encode(65536), &pattern(65536));
    assert!(peer.output().is_empty(), "neither an answer nor a third R2T");
    peer.send(data_out(1, tags[1], 0, 65536, false).encode(512), &[7; 512]);
    assert!(peer.output().is_empty());
    peer.send(data_out(1, tags[1], 1, 66048, true).encode(65024), &[7; 65024]);
    peer.lost_data();
    peer.goes_on(FIRST + 1);
}

/// The command waits for data that never arrives, until the initiator aborts it.
#[test]
fn a_command_that_lost_data_can_be_aborted() {
    let mut peer = Peer::new();
    peer.send(write(1, FIRST, 1024).encode(0), &[]);
    let tag = peer.r2t().target_tag;
    peer.send(data_out(1, tag, 9, 0, false).encode(512), &[7; 512]);
    let abort = TaskRequest {
        immediate: true,
        function: TaskManagementFunction::AbortTask,
        lun: [0; 8],
        initiator_tag: InitiatorTag(2),
        referenced_tag: InitiatorTag(1),
        cmd_sn: Serial(FIRST + 1),
        exp_stat_sn: Serial(1000),
        referenced_cmd_sn: Serial(FIRST),
        exp_data_sn: 0,
    };
    peer.send(abort.encode(), &[]);
    assert_eq!(peer.session.census(), Default::default());
    peer.events();
    peer.output();
    peer.send(data_out(1, tag, 1, 512, true).encode(512), &[7; 512]);
    assert!(peer.output().is_empty());
    peer.goes_on(FIRST + 1);
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
    peer.session.handle_bytes(LEADING, &header, Instant(0));
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
    peer.session.handle_bytes(LEADING, &bytes, Instant(0));
    assert_eq!(peer.rejected(), RejectReason::DataDigestError);
    peer.is_over(CloseReason::DataDigest);

    // A damaged ping.
    let mut peer = Peer::with(negotiated.clone(), config());
    let mut ping = [0; HEADER_LEN];
    (ping[0], ping[1], ping[7]) = (0x40, 0x80, 4);
    let mut bytes = peer.bytes(&ping, b"ping");
    bytes[53] ^= 1;
    peer.session.handle_bytes(LEADING, &bytes, Instant(0));
    assert_eq!(peer.rejected(), RejectReason::DataDigestError);
    peer.is_over(CloseReason::DataDigest);

    let mut peer = Peer::with(negotiated, config());
    let mut bytes = peer.bytes(&write(1, FIRST, 512).encode(512), &[0; 512]);
    bytes[20] ^= 1;
    peer.session.handle_bytes(LEADING, &bytes, Instant(0));
    assert!(peer.output().is_empty());
    peer.is_over(CloseReason::HeaderDigest);
}

/// 7.8: a Reject is sent at once, and the command ends when all data has arrived.
#[test]
fn a_damaged_data_digest_of_data_out_ends_the_command() {
    let negotiated = Negotiated { header_digest: true, data_digest: true, ..negotiated() };
    for in_place in [false, true] {
        let mut peer = Peer::with(negotiated.clone(), config());
        peer.send(write(1, FIRST, 65536).encode(0), &[]);
        let tag = peer.r2t().target_tag;
        let mut bytes = peer.bytes(&data_out(1, tag, 0, 0, false).encode(32768), &[7; 32768]);
        // Header, header digest, data, data digest.
        assert_eq!(bytes.len(), 48 + 4 + 32768 + 4);
        bytes[100] ^= 1;
        if in_place {
            peer.session.handle_bytes(LEADING, &bytes[..52], Instant(0));
            let mut lent = peer.session.take_in_place(LEADING).expect("32 KiB are worth it");
            lent.buf[lent.filled..].copy_from_slice(&bytes[52..52 + 32768]);
            peer.session.handle_in_place(LEADING, lent.buf, Instant(0));
            peer.session.handle_bytes(LEADING, &bytes[52 + 32768..], Instant(0));
        } else {
            peer.session.handle_bytes(LEADING, &bytes, Instant(0));
        }
        assert_eq!(peer.rejected(), RejectReason::DataDigestError);
        assert!(peer.session.take_in_place(LEADING).is_none());
        peer.send(data_out(1, tag, 1, 32768, true).encode(32768), &[7; 32768]);
        peer.lost_data();
        peer.goes_on(FIRST + 1);
    }
    // Damaged data that no command waits for.
    let mut peer = Peer::with(negotiated, config());
    let mut bytes = peer.bytes(&data_out(1, TargetTag(5), 0, 0, true).encode(512), &[7; 512]);
    bytes[100] ^= 1;
    peer.session.handle_bytes(LEADING, &bytes, Instant(0));
    assert_eq!(peer.rejected(), RejectReason::DataDigestError);
    peer.goes_on(FIRST);
}

#[test]
fn discovery_knows_no_scsi() {
    let mut peer = Peer::discovery();
    peer.send(write(1, FIRST, 512).encode(512), &[0; 512]);
    assert_eq!(peer.rejected(), RejectReason::ProtocolError);
    assert!(peer.events().is_empty());
    assert_eq!(peer.session.census(), Default::default());
}

/// An initiator sends commands and never reads: the session stops reading from it.
#[test]
fn answers_do_not_pile_up() {
    let config = SessionConfig { commands_max: 64, ..config() };
    let mut peer = Peer::with(negotiated(), config);
    let chunk = Chain::copy_of(&[0; 1 << 20]);
    for i in 0..8 {
        assert!(peer.session.wants_bytes(LEADING));
        peer.send(read(i, FIRST + i, 1 << 20).encode(0), &[]);
        let id = peer.command().id;
        peer.session.complete(id, Outcome::data(chunk.clone()));
    }
    assert!(!peer.session.wants_bytes(LEADING));
    peer.output_bytes(0, 1 << 20);
    assert!(peer.session.wants_bytes(LEADING));
    peer.output();
    assert_eq!(peer.session.connections[0].queued_bytes, 0);
}
