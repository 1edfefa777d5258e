//! A session and a small initiator, which uses the PDUs of `wire` and enforces no rules itself.

mod commands;
mod management;
mod mistakes;
mod random;
mod several;
mod talk;

use std::time::Duration;

use base::{Chain, Instant, SendBatch};

use super::{
    CloseReason, Command, CommandId, ConnectionId, Event, Negotiated, Session, SessionConfig, TargetRecord,
    TaskCensus, TaskFunction, TaskResponse,
};
use crate::iscsi::wire::{
    DataIn, DataOut, Framing, HEADER_LEN, InitiatorTag, R2t, ResponsePdu, ScsiCommand, Serial, TargetTag,
    TaskAttribute, data_segment_length,
};
use crate::scsi::{Outcome, Sense, SenseKey, Status};

/// Defaults of the tests: bursts of 64 KiB in PDUs of 8 KiB, everything allowed.
fn negotiated() -> Negotiated {
    Negotiated {
        header_digest: false,
        data_digest: false,
        max_transmit: 8192,
        max_receive: 65536,
        max_connections: 4,
        initial_r2t: false,
        immediate_data: true,
        max_burst: 65536,
        first_burst: 16384,
        max_outstanding_r2t: 1,
        time2wait: 2,
        time2retain: 0,
    }
}

fn config() -> SessionConfig {
    SessionConfig {
        tsih: 1,
        commands_max: 8,
        data_bytes_max: 1 << 20,
        nop_interval: Duration::from_secs(5),
        drain_time: Duration::from_secs(10),
    }
}

/// The first CmdSN of all tests.
const FIRST: u32 = 100;

/// The first connection of all tests.
const LEADING: ConnectionId = ConnectionId { cid: 0, generation: 0 };

struct Peer {
    session: Session,
    /// Tests name connections by their index here.
    connections: Vec<ConnectionId>,
    negotiated: Negotiated,
    now: Instant,
}

impl Peer {
    fn with(negotiated: Negotiated, config: SessionConfig) -> Peer {
        Peer::of(Session::new(config, false), negotiated)
    }

    fn of(session: Session, negotiated: Negotiated) -> Peer {
        let mut peer =
            Peer { session, connections: Vec::new(), negotiated: negotiated.clone(), now: Instant(0) };
        peer.join(0, negotiated, 1000);
        assert_eq!(peer.connections, [LEADING]);
        peer
    }

    /// Adds a connection.
    fn join(&mut self, cid: u16, negotiated: Negotiated, stat_sn: u32) {
        let id = self.session.expect_connection(cid).expect("there is a place");
        assert!(self.session.add_connection(id, negotiated, stat_sn, FIRST, self.now));
        self.connections.push(id);
    }

    fn new() -> Peer {
        Peer::with(negotiated(), config())
    }

    fn discovery() -> Peer {
        Peer::of(Session::new(config(), true), negotiated())
    }

    fn framing(&self) -> Framing {
        Framing {
            header_digest: self.negotiated.header_digest,
            data_digest: self.negotiated.data_digest,
            data_max: 1 << 24,
        }
    }

    /// The bytes of a PDU; its header contains the length of the data.
    fn bytes(&self, header: &[u8; HEADER_LEN], data: &[u8]) -> Vec<u8> {
        assert_eq!(data_segment_length(header) as usize, data.len());
        let mut batch = SendBatch::new();
        self.framing().push(&mut batch, header, data);
        batch.to_vec()
    }

    fn send_on(&mut self, connection: usize, header: [u8; HEADER_LEN], data: &[u8]) {
        let bytes = self.bytes(&header, data);
        self.session.handle_bytes(self.connections[connection], &bytes, self.now);
    }

    fn send(&mut self, header: [u8; HEADER_LEN], data: &[u8]) {
        self.send_on(0, header, data);
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.session.poll_event()).collect()
    }

    /// The only event, which is a command.
    fn command(&mut self) -> Command {
        let mut events = self.events();
        assert_eq!(events.len(), 1, "{events:?}");
        match events.pop() {
            Some(Event::Command(command)) => command,
            other => panic!("no command but {other:?}"),
        }
    }

    /// The only event, which is a logout of this connection (`None`: of the session).
    fn logout_event(&mut self, expected: Option<u16>) -> CommandId {
        match self.events()[..] {
            [Event::Logout { id, cid }] if cid == expected => id,
            ref events => panic!("no logout but {events:?}"),
        }
    }

    fn output_bytes(&mut self, connection: usize, bytes_max: usize) -> Vec<u8> {
        let mut batch = SendBatch::new();
        self.session.poll_transmit(self.connections[connection], &mut batch, bytes_max);
        batch.to_vec()
    }

    fn output_of(&mut self, connection: usize) -> Vec<(ResponsePdu, Vec<u8>)> {
        let bytes = self.output_bytes(connection, usize::MAX);
        let mut rest = &bytes[..];
        let mut pdus = Vec::new();
        while !rest.is_empty() {
            let (pdu, used) = self.framing().split(rest).unwrap().expect("whole PDUs only");
            assert!(pdu.data_intact);
            pdus.push((ResponsePdu::decode(pdu.header).unwrap(), pdu.data.to_vec()));
            rest = &rest[used..];
        }
        pdus
    }

    fn output(&mut self) -> Vec<(ResponsePdu, Vec<u8>)> {
        self.output_of(0)
    }

    /// The only PDU of the output.
    fn answer(&mut self) -> (ResponsePdu, Vec<u8>) {
        let mut output = self.output();
        assert_eq!(output.len(), 1, "{output:?}");
        output.pop().unwrap()
    }

    fn r2t(&mut self) -> R2t {
        match self.answer() {
            (ResponsePdu::R2t(r2t), _) => r2t,
            other => panic!("no R2T but {other:?}"),
        }
    }

    fn is_over(&mut self, expected: CloseReason) {
        let events = self.events();
        assert!(
            matches!(&events[..], [Event::Close { id: LEADING, reason }, Event::End] if *reason == expected),
            "{events:?}"
        );
        assert!(!self.session.wants_bytes(LEADING));
        assert_eq!(self.session.deadline(), None);
    }
}

fn command(tag: u32, cmd_sn: u32) -> ScsiCommand {
    ScsiCommand {
        immediate: false,
        is_final: true,
        read: false,
        write: false,
        attribute: TaskAttribute::Simple,
        lun: [0; 8],
        initiator_tag: InitiatorTag(tag),
        expected_length: 0,
        cmd_sn: Serial(cmd_sn),
        exp_stat_sn: Serial(1000),
        cdb: [0; 16],
    }
}

fn read(tag: u32, cmd_sn: u32, length: u32) -> ScsiCommand {
    ScsiCommand { read: true, expected_length: length, ..command(tag, cmd_sn) }
}

fn write(tag: u32, cmd_sn: u32, length: u32) -> ScsiCommand {
    ScsiCommand { write: true, expected_length: length, ..command(tag, cmd_sn) }
}

/// A Data-Out PDU that answers an R2T, or (with the reserved tag) carries unsolicited data.
fn data_out(tag: u32, target_tag: TargetTag, data_sn: u32, offset: u32, is_final: bool) -> DataOut {
    DataOut {
        is_final,
        lun: [0; 8],
        initiator_tag: InitiatorTag(tag),
        target_tag,
        exp_stat_sn: Serial(1000),
        data_sn,
        buffer_offset: offset,
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i / 7 + i) as u8).collect()
}

fn sense_of(data: &[u8]) -> (u8, u16) {
    let sense = crate::iscsi::wire::sense_segment(data);
    assert_eq!(sense[0] & 0x7f, 0x70);
    (sense[2], u16::from_be_bytes([sense[12], sense[13]]))
}

/// The status of a response; the caller checks the residual.
fn status_of(answer: &(ResponsePdu, Vec<u8>)) -> u8 {
    match answer.0 {
        ResponsePdu::ScsiResponse(response) => match response.response {
            crate::iscsi::wire::ServiceResponse::Completed { status } => status,
            other => panic!("{other:?}"),
        },
        ResponsePdu::DataIn(DataIn { status: Some(status), .. }) => status.status,
        ref other => panic!("no status in {other:?}"),
    }
}
