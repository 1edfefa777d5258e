use base::Chain;
use proptest::prelude::*;

use super::*;
use crate::iscsi::wire::{AsyncMessage, TaskResponsePdu};
use crate::scsi::Cdb;

const LUN: [u8; 8] = [0, 1, 0, 0, 0, 0, 0, 0];

fn outcome(negotiated: Negotiated) -> LoginOutcome {
    LoginOutcome {
        negotiated,
        tsih: 1,
        portal_group: None,
        cmd_sn: Serial(1),
        max_cmd_sn: Serial(2),
        exp_stat_sn: Serial(10),
        leftover: Vec::new(),
    }
}

fn connection() -> Connection {
    Connection::new(
        &outcome(Negotiated { max_transmit: 1024, first_burst: 2048, ..Negotiated::default() }),
        0,
    )
}

fn read(len: u32) -> Command {
    let mut cdb = [0; 16];
    cdb[0] = 0x28;
    Command { lun: LUN, cdb: Cdb(cdb), transfer: Transfer::In(len) }
}

fn write(data: &[u8]) -> Command {
    let mut cdb = [0; 16];
    cdb[0] = 0x2a;
    Command { lun: LUN, cdb: Cdb(cdb), transfer: Transfer::Out(Chain::copy_of(data)) }
}

fn sent(connection: &mut Connection) -> Vec<u8> {
    let mut batch = SendBatch::new();
    connection.poll_transmit(&mut batch);
    batch.to_vec()
}

fn numbers(stat_sn: u32, max_cmd_sn: u32) -> SerialNumbers {
    SerialNumbers { stat_sn: Serial(stat_sn), exp_cmd_sn: Serial(1), max_cmd_sn: Serial(max_cmd_sn) }
}

fn data_in(task: TaskId, offset: u32, data: &[u8], status: Option<Residual>) -> Vec<u8> {
    let header = DataIn {
        is_final: status.is_some(),
        acknowledge: false,
        status: status.map(|residual| crate::iscsi::wire::DataInStatus { status: 0, residual }),
        lun: [0; 8],
        initiator_tag: task.0,
        target_tag: TargetTag::RESERVED,
        numbers: numbers(10, 8),
        data_sn: 0,
        buffer_offset: offset,
    };
    let mut bytes = header.encode(data.len() as u32).to_vec();
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

#[test]
fn a_read() {
    let mut connection = connection();
    let task = connection.submit(read(6));
    let tag = task.0.0.to_be_bytes();
    let mut expected = vec![0x01, 0xc1, 0, 0, 0, 0, 0, 0]; // final, read, simple
    expected.extend(LUN);
    expected.extend(tag);
    expected.extend([0, 0, 0, 6, 0, 0, 0, 1, 0, 0, 0, 10]); // length, CmdSN, ExpStatSN
    expected.extend([0x28, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(sent(&mut connection), expected);
    connection.handle_bytes(&data_in(task, 0, b"abcd", None));
    connection.handle_bytes(&data_in(task, 4, b"ef", Some(Residual::None)));
    let Some(Event::Done(done, result)) = connection.poll_event() else { panic!() };
    assert_eq!(done, task);
    assert_eq!(&**result.data.as_ref().unwrap(), b"abcdef");
    assert_eq!(result.response, ServiceResponse::Completed { status: 0 });
    assert_eq!(connection.outstanding(), 0);
}

#[test]
fn a_write_with_immediate_unsolicited_and_solicited_data() {
    let negotiated =
        Negotiated { max_transmit: 1024, first_burst: 2048, initial_r2t: false, ..Negotiated::default() };
    let mut connection = Connection::new(&outcome(negotiated), 0);
    let data: Vec<u8> = (0..4000).map(|i| i as u8).collect();
    let task = connection.submit(write(&data));
    let bytes = sent(&mut connection);
    assert_eq!(bytes.len(), 48 + 1024 + 48 + 1024);
    assert_eq!(bytes[..2], [0x01, 0x21], "not final: unsolicited data follows; write, simple");
    assert_eq!(bytes[20..24], 4000u32.to_be_bytes());
    assert_eq!(bytes[48..1072], data[..1024]);
    let out = &bytes[1072..];
    assert_eq!(out[..8], [0x05, 0x80, 0, 0, 0, 0, 4, 0]);
    assert_eq!(out[20..24], [0xff; 4], "no target tag");
    assert_eq!(out[40..44], 1024u32.to_be_bytes());
    assert_eq!(out[48..], data[1024..2048]);
    let r2t = R2t {
        lun: LUN,
        initiator_tag: task.0,
        target_tag: TargetTag(77),
        numbers: numbers(10, 4),
        r2t_sn: 0,
        buffer_offset: 2048,
        desired_length: 1952,
    };
    connection.handle_bytes(&r2t.encode());
    let bytes = sent(&mut connection);
    assert_eq!(bytes.len(), 48 + 1024 + 48 + 928);
    assert_eq!(bytes[..2], [0x05, 0x00]);
    assert_eq!(bytes[20..24], [0, 0, 0, 77]);
    assert_eq!(bytes[48..1072], data[2048..3072]);
    assert_eq!(bytes[1072..1074], [0x05, 0x80]);
    assert_eq!(bytes[1072 + 36..1072 + 40], [0, 0, 0, 1], "DataSN");
    assert_eq!(bytes[1120..], data[3072..]);
}

#[test]
fn the_window_is_respected() {
    let mut connection = connection();
    let tasks: Vec<_> = (0..4).map(|_| connection.submit(read(4))).collect();
    assert_eq!(sent(&mut connection).len(), 2 * 48, "CmdSN 1 and 2");
    connection.handle_bytes(&data_in(tasks[0], 0, b"abcd", Some(Residual::None)));
    let bytes = sent(&mut connection);
    assert_eq!(bytes.len(), 2 * 48);
    assert_eq!(bytes[28..32], [0, 0, 0, 11], "ExpStatSN has moved on");
    assert_eq!(bytes[48 + 24..48 + 28], [0, 0, 0, 4], "CmdSN");
}

#[test]
fn sense_and_underflow() {
    let mut connection = connection();
    let task = connection.submit(read(8));
    connection.handle_bytes(&data_in(task, 0, b"abcd", None));
    let response = ScsiResponse {
        response: ServiceResponse::Completed { status: 2 },
        residual: Residual::Underflow(4),
        read_residual: Residual::None,
        initiator_tag: task.0,
        snack_tag: 0,
        numbers: numbers(10, 2),
        exp_data_sn: 1,
    };
    let mut bytes = response.encode(5).to_vec();
    bytes.extend([0, 3, 0x70, 0x00, 0x05, 0, 0, 0]);
    connection.handle_bytes(&bytes);
    let Some(Event::Done(_, result)) = connection.poll_event() else { panic!() };
    assert_eq!(result.sense, [0x70, 0x00, 0x05]);
    assert_eq!(result.residual, Residual::Underflow(4));
    assert_eq!(&*result.data.unwrap(), b"abcd");
}

#[test]
fn targets_that_break_the_protocol() {
    type Wrong = fn(&mut Connection, TaskId) -> Vec<u8>;
    let wrongs: [Wrong; 6] = [
        |_, task| data_in(task, 4, b"abcd", None),      // not in order
        |_, task| data_in(task, 0, b"abcdefghi", None), // more than asked for
        |_, task| data_in(task, 0, b"abcd", Some(Residual::None)), // less than promised
        |_, _| [vec![0x01], vec![0; 47]].concat(),      // not for initiators
        |_, _| [vec![0x3f], vec![0; 47]].concat(),      // a reject without a known reason
        |_, task| {
            let header = TaskResponsePdu { response: 0, initiator_tag: task.0, numbers: numbers(10, 2) };
            let mut bytes = header.encode().to_vec();
            bytes[5] = 0xff; // a data segment above what we declared
            bytes
        },
    ];
    for (i, wrong) in wrongs.into_iter().enumerate() {
        let mut connection = connection();
        let task = connection.submit(read(8));
        let bytes = wrong(&mut connection, task);
        connection.handle_bytes(&bytes);
        assert!(matches!(connection.poll_event(), Some(Event::Failed(ConnectionError::Protocol(_)))), "{i}");
        connection.handle_bytes(&bytes);
        assert!(connection.poll_event().is_none());
    }
    let mut connection = connection();
    let reject = Reject { reason: RejectReason::ProtocolError, numbers: numbers(10, 2), data_sn: 0 };
    connection.handle_bytes(&reject.encode(0));
    assert!(matches!(
        connection.poll_event(),
        Some(Event::Failed(ConnectionError::Rejected(RejectReason::ProtocolError)))
    ));
}

#[test]
fn a_reset_ends_the_commands_before_it() {
    let mut connection = connection();
    let before = connection.submit(read(4));
    let reset = connection.manage(TaskFunction::LogicalUnitReset, LUN, None);
    let after = connection.submit(read(4));
    let response = TaskResponsePdu { response: 0, initiator_tag: reset.0, numbers: numbers(10, 3) };
    connection.handle_bytes(&response.encode());
    assert!(matches!(connection.poll_event(), Some(Event::Aborted(task)) if task == before));
    assert!(matches!(connection.poll_event(), Some(Event::TaskDone(task, 0)) if task == reset));
    // A response that was on its way is ignored.
    connection.handle_bytes(&data_in(before, 0, b"abcd", Some(Residual::None)));
    assert!(connection.poll_event().is_none());
    connection.handle_bytes(&data_in(after, 0, b"abcd", Some(Residual::None)));
    assert!(matches!(connection.poll_event(), Some(Event::Done(task, _)) if task == after));
}

/// Feeds `bytes`: in place where the connection asks for it, elsewhere in pieces of `piece` bytes. Returns
/// how often data was received in place.
fn feed(connection: &mut Connection, mut bytes: &[u8], piece: usize) -> usize {
    let mut in_place = 0;
    while !bytes.is_empty() {
        let len = if let Some(mut place) = connection.take_in_place() {
            let len = place.buf.len() - place.filled;
            place.buf[place.filled..].copy_from_slice(&bytes[..len]);
            assert!(connection.take_in_place().is_none(), "it is given out once");
            connection.handle_in_place(place.buf);
            in_place += 1;
            len
        } else {
            let len = piece.min(bytes.len());
            connection.handle_bytes(&bytes[..len]);
            len
        };
        bytes = &bytes[len..];
    }
    in_place
}

#[test]
fn large_data_is_received_in_place() {
    for digests in [false, true] {
        for piece in [1, 47, 100, 20_000, 1 << 20] {
            let max_receive = 64 << 10;
            let negotiated = Negotiated {
                header_digest: digests,
                data_digest: digests,
                max_receive,
                ..Negotiated::default()
            };
            let framing = Framing { header_digest: digests, data_digest: digests, data_max: max_receive };
            let mut connection = Connection::new(&outcome(negotiated), 0);
            let data: Vec<u8> = (0..100_001).map(|i| (i * 7 / 3) as u8).collect();
            let task = connection.submit(read(data.len() as u32));
            let mut batch = SendBatch::new();
            for (at, status) in [(0, None), (50_000, None), (100_000, Some(Residual::None))] {
                let part = &data[at..data.len().min(at + 50_000)];
                framing.push(&mut batch, data_in(task, at as u32, part, status).first_chunk().unwrap(), part);
            }
            let in_place = feed(&mut connection, &batch.to_vec(), piece);
            assert_eq!(in_place, if piece < 1 << 20 { 2 } else { 0 }, "{piece}");
            let Some(Event::Done(_, result)) = connection.poll_event() else { panic!() };
            assert!(*result.data.unwrap() == data);
        }
    }
}

#[test]
fn damage_is_noticed_in_place() {
    let framing = Framing { header_digest: false, data_digest: true, data_max: 64 << 10 };
    let negotiated = Negotiated { data_digest: true, max_receive: 64 << 10, ..Negotiated::default() };
    let mut connection = Connection::new(&outcome(negotiated), 0);
    let data = [7; 32 << 10];
    let task = connection.submit(read(32 << 10));
    let mut batch = SendBatch::new();
    let header = data_in(task, 0, &data, Some(Residual::None));
    framing.push(&mut batch, header.first_chunk().unwrap(), &data);
    let mut bytes = batch.to_vec();
    bytes[20_000] ^= 1;
    assert_eq!(feed(&mut connection, &bytes, 1000), 1);
    assert!(matches!(connection.poll_event(), Some(Event::Failed(ConnectionError::DataDigest))));
    assert!(connection.take_in_place().is_none());
}

#[test]
fn waiting_commands_can_be_withdrawn() {
    let mut connection = connection();
    let tasks: Vec<_> = (0..4).map(|_| connection.submit(read(4))).collect();
    assert!(!connection.withdraw(tasks[0]), "it was sent");
    assert!(connection.withdraw(tasks[2]) && !connection.withdraw(tasks[2]));
    assert_eq!(connection.outstanding(), 3);
    sent(&mut connection);
    connection.handle_bytes(&data_in(tasks[0], 0, b"abcd", Some(Residual::None)));
    let bytes = sent(&mut connection);
    assert_eq!(bytes.len(), 48);
    assert_eq!(bytes[16..20], tasks[3].0.0.to_be_bytes());
    assert_eq!(bytes[24..28], [0, 0, 0, 3], "no CmdSN is left out");
}

#[test]
fn notices_of_the_target_are_reported() {
    let mut connection = connection();
    let message = |event| AsyncMessage { event, lun: LUN, numbers: numbers(10, 3) };
    let mut bytes = message(AsyncEvent::Scsi).encode(6).to_vec();
    bytes.extend([0, 4, 0x72, 0x06, 0x2a, 0x06, 0, 0]);
    connection.handle_bytes(&bytes);
    assert!(matches!(connection.poll_event(), Some(Event::Sense(LUN, sense)) if sense == [0x72, 6, 0x2a, 6]));
    connection.handle_bytes(&message(AsyncEvent::LogoutRequested { within: 5 }).encode(0));
    let event = connection.poll_event();
    assert!(matches!(event, Some(Event::Async(AsyncEvent::LogoutRequested { within: 5 }))));
}

#[test]
fn rejects_that_the_session_survives() {
    let mut connection = connection();
    let write = connection.submit(write(&[1; 8]));
    let function = connection.manage(TaskFunction::AbortTask, LUN, Some(write));
    let ping = connection.ping();
    let mut reject = |reason, task: TaskId| {
        let mut bytes = Reject { reason, numbers: numbers(10, 3), data_sn: 0 }.encode(48).to_vec();
        bytes.extend([0; 48]);
        bytes[64..68].copy_from_slice(&task.0.0.to_be_bytes());
        connection.handle_bytes(&bytes);
        connection.poll_event()
    };
    assert!(reject(RejectReason::DataDigestError, write).is_none(), "the answer follows");
    let done = reject(RejectReason::TooManyImmediateCommands, function);
    assert!(matches!(done, Some(Event::TaskDone(task, 255)) if task == function));
    let pong = reject(RejectReason::TooManyImmediateCommands, ping);
    assert!(matches!(pong, Some(Event::Pong(task)) if task == ping));
    assert!(matches!(reject(RejectReason::InvalidPduField, write), Some(Event::Failed(_))));
}

#[test]
fn pings_and_targets() {
    let mut connection = connection();
    let ping = NopIn {
        lun: LUN,
        initiator_tag: InitiatorTag::RESERVED,
        target_tag: TargetTag(5),
        numbers: numbers(10, 2),
    };
    connection.handle_bytes(&ping.encode(0));
    let bytes = sent(&mut connection);
    assert_eq!(bytes[..2], [0x40, 0x80]);
    assert_eq!(bytes[8..24], [0, 1, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 5]);
    let task = connection.send_targets();
    assert_eq!(&sent(&mut connection)[48..], b"SendTargets=All\0");
    let mut response = TextResponse {
        is_final: false,
        more: true,
        lun: [0; 8],
        initiator_tag: task.0,
        target_tag: TargetTag(6),
        numbers: numbers(10, 2),
    };
    let mut bytes = response.encode(16).to_vec();
    bytes.extend(b"TargetName=iqn.x");
    connection.handle_bytes(&bytes);
    assert_eq!(sent(&mut connection)[20..24], [0, 0, 0, 6]);
    response = TextResponse { is_final: true, more: false, target_tag: TargetTag::RESERVED, ..response };
    let mut bytes = response.encode(28).to_vec();
    bytes.extend(b"y\0TargetAddress=10.0.0.1,1\0\0");
    connection.handle_bytes(&bytes);
    let Some(Event::Targets(_, targets)) = connection.poll_event() else { panic!() };
    assert_eq!(targets, [TargetRecord { name: "iqn.xy".into(), addresses: vec!["10.0.0.1,1".into()] }]);
}

proptest! {
    #[test]
    fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400), opcode in 0usize..10) {
        let mut connection = connection();
        let task = connection.submit(read(8));
        connection.submit(write(&[1; 5000]));
        connection.send_targets();
        let mut pdu = bytes;
        if let Some(first) = pdu.first_mut() {
            *first = [0x20, 0x21, 0x22, 0x24, 0x25, 0x26, 0x31, 0x32, 0x3f, 0x23][opcode];
        }
        if pdu.len() > 48 {
            pdu[4..8].copy_from_slice(&[0, 0, 0, 40]);
            pdu[16..20].copy_from_slice(&task.0.0.to_be_bytes());
        }
        connection.handle_bytes(&pdu);
        while connection.poll_event().is_some() {}
    }

    #[test]
    fn cuts_do_not_matter(cuts in proptest::collection::vec(1usize..60, 0..12), digests in any::<bool>()) {
        let negotiated = Negotiated { header_digest: digests, data_digest: digests, ..Negotiated::default() };
        let framing = Framing { header_digest: digests, data_digest: digests, data_max: 8192 };
        let mut connection = Connection::new(&outcome(negotiated), 0);
        let task = connection.submit(read(10));
        let mut batch = SendBatch::new();
        for (offset, data, status) in [(0, &b"hello"[..], None), (5, b"world", Some(Residual::None))] {
            let bytes = data_in(task, offset, data, status);
            framing.push(&mut batch, bytes.first_chunk().unwrap(), data);
        }
        let bytes = batch.to_vec();
        let mut rest = &bytes[..];
        for cut in cuts {
            let (piece, behind) = rest.split_at(cut.min(rest.len()));
            connection.handle_bytes(piece);
            rest = behind;
        }
        connection.handle_bytes(rest);
        let Some(Event::Done(_, result)) = connection.poll_event() else { panic!() };
        prop_assert_eq!(&*result.data.unwrap(), b"helloworld");
    }
}

#[test]
fn damage_is_noticed() {
    let framing = Framing { header_digest: true, data_digest: true, data_max: 8192 };
    let negotiated = Negotiated { header_digest: true, data_digest: true, ..Negotiated::default() };
    for (at, expected) in [(20, ConnectionError::HeaderDigest), (53, ConnectionError::DataDigest)] {
        let mut connection = Connection::new(&outcome(negotiated.clone()), 0);
        let task = connection.submit(read(5));
        let mut batch = SendBatch::new();
        framing.push(
            &mut batch,
            data_in(task, 0, b"hello", Some(Residual::None)).first_chunk().unwrap(),
            b"hello",
        );
        let mut bytes = batch.to_vec();
        bytes[at] ^= 1;
        connection.handle_bytes(&bytes);
        assert!(matches!(connection.poll_event(), Some(Event::Failed(error)) if error == expected));
    }
}
