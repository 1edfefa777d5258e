//! A whole session of mostly valid PDUs, cut anywhere, with a unit that executes them.

use std::collections::VecDeque;
use std::time::Duration;

use arbitrary::Arbitrary;
use base::{BlockSize, Chain, Instant, SendBatch, crc32c};
use proto::iscsi::target_role::{
    CloseReason, Command as Handed, ConnectionId, Event, Negotiated, Session, SessionConfig, TargetRecord,
    TaskResponse,
};
use proto::iscsi::wire::{
    Ahs, DataOut, Framing, InitiatorTag, LogoutReason, LogoutRequest, NopOut, R2t, ResponsePdu, ScsiCommand,
    Serial, Snack, TargetTag, TaskAttribute, TaskManagementFunction, TaskRequest, TextRequest, padding,
};
use proto::scsi::Lun;

use crate::command::Command;
use crate::fields::{many, seldom, short};
use crate::unit::Unit;

/// The negotiated values of a session, and its steps.
#[derive(Debug, Arbitrary)]
pub struct Input<'a> {
    discovery: bool,
    header_digest: bool,
    data_digest: bool,
    initial_r2t: bool,
    immediate_data: bool,
    two_connections: bool,
    in_place: bool,
    #[arbitrary(with = many)]
    steps: Vec<Step<'a>>,
}

#[derive(Debug, Arbitrary)]
struct Step<'a> {
    act: Act<'a>,
    /// Where the bytes are cut in two.
    cut: u16,
    second_connection: bool,
    /// One time in 64, a byte of the PDU is damaged.
    damage: (u8, u16),
    /// Commands get no response for a while.
    hold: bool,
}

#[derive(Debug, Arbitrary)]
enum Act<'a> {
    Command {
        command: Command,
        attribute: u8,
        #[arbitrary(with = seldom)]
        segments: Vec<Segment>,
        read: bool,
        write: bool,
        expected: u32,
        immediate: u16,
        is_final: bool,
        urgent: bool,
        lun: u8,
        sn: i8,
    },
    /// Data for the oldest R2T: as requested, or with another length or offset.
    Solicited {
        len: Option<u16>,
        offset: Option<u16>,
        pieces: u8,
    },
    Unsolicited {
        tag: u8,
        offset: u16,
        len: u16,
        is_final: bool,
        data_sn: u8,
    },
    Ping {
        #[arbitrary(with = short)]
        data: &'a [u8],
        answer: bool,
        urgent: bool,
    },
    Task {
        function: u8,
        tag: u8,
        lun: u8,
        urgent: bool,
    },
    Text {
        #[arbitrary(with = short)]
        text: &'a [u8],
        more: bool,
        target_tag: Option<u8>,
    },
    Logout {
        reason: u8,
        cid: u8,
    },
    Snack,
    Raw(#[arbitrary(with = short)] &'a [u8]),
    /// Time passes.
    Wait(u8),
    /// By the node.
    Abort {
        which: u8,
        answer: bool,
    },
    AbortWaiting {
        lun: u8,
    },
    Lost,
    Drain,
    /// A connection is established again; its login succeeds or fails.
    Join {
        cid: u8,
        succeeds: bool,
    },
}

/// An additional header segment.
#[derive(Debug, Arbitrary)]
enum Segment {
    /// This many bytes of a long CDB.
    ExtendedCdb(u8),
    BidirectionalReadLength(u32),
    Unknown(u8),
}

const ATTRIBUTES: [TaskAttribute; 5] = [
    TaskAttribute::Simple,
    TaskAttribute::Ordered,
    TaskAttribute::HeadOfQueue,
    TaskAttribute::Aca,
    TaskAttribute::Untagged,
];
/// The bytes of a CDB after the first 16, at most.
const EXTENDED_CDB: [u8; 244] = [0x11; 244];

const WINDOW: u32 = 8;
const DATA_MAX: usize = 1 << 20;
const FIRST_BURST: u32 = 16 << 10;
/// Number of targets: so many that the text needs several responses.
const TARGETS: usize = 300;

struct World<'a> {
    input: &'a Input<'a>,
    session: Session,
    unit: Unit,
    now: Instant,
    cmd_sn: u32,
    tag: u32,
    r2ts: VecDeque<R2t>,
    held: Vec<Handed>,
    /// The newest connection of each CID.
    connections: Vec<ConnectionId>,
    over: bool,
}

/// Executes the steps one by one, and ends the session.
pub fn run(input: Input<'_>) {
    let mut world = World::new(&input);
    for step in &input.steps {
        world.act(step);
        world.take_events(step.hold);
        world.take_output();
        // Data of aborted commands that still run, and of immediate ones, either counts in DATA_MAX or has a
        // place in the window.
        let bound = DATA_MAX + (WINDOW * FIRST_BURST) as usize;
        assert!(world.session.write_bytes() <= bound, "{} bytes are held", world.session.write_bytes());
        if world.over {
            break;
        }
    }
    for id in world.connections.clone() {
        world.session.handle_closed(id, CloseReason::PeerClosed);
        world.session.remove_connection(id);
    }
    world.take_events(false);
    // Data of commands that run when the session ends counts until they have ended, too.
    world.end_commands();
    assert_eq!((world.session.write_bytes(), world.session.census()), (0, Default::default()));
}

impl World<'_> {
    fn new<'a>(input: &'a Input<'a>) -> World<'a> {
        let config = SessionConfig {
            tsih: 1,
            commands_max: WINDOW,
            data_bytes_max: DATA_MAX,
            nop_interval: Duration::from_secs(5),
            drain_time: Duration::from_secs(10),
        };
        let mut session = Session::new(config, input.discovery);
        let connections = if input.two_connections { 2 } else { 1 };
        let mut all = Vec::new();
        for cid in 0..connections {
            let id = session.expect_connection(cid).expect("there is a place");
            assert!(session.add_connection(id, negotiated(input), 1000, 100, Instant(0)));
            all.push(id);
        }
        World {
            input,
            session,
            unit: Unit::new(BlockSize::B512),
            now: Instant(0),
            cmd_sn: 100,
            tag: 0,
            r2ts: VecDeque::new(),
            held: Vec::new(),
            connections: all,
            over: false,
        }
    }

    fn act(&mut self, step: &Step) {
        match &step.act {
            Act::Raw(bytes) => self.feed(step, bytes),
            Act::Wait(seconds) => {
                self.now = self.now + Duration::from_secs(u64::from(*seconds));
                self.session.handle_timeout(self.now);
            }
            Act::Abort { which, answer } => {
                if let Some(command) = self.held.get(usize::from(*which)) {
                    self.session.abort(command.id, *answer);
                }
            }
            Act::AbortWaiting { lun } => {
                self.session.abort_waiting(Lun::new(u16::from(lun % 2)).expect("it is small"));
            }
            Act::Lost => self.session.handle_closed(self.connection(step), CloseReason::PeerClosed),
            Act::Join { cid, succeeds } => self.join(u16::from(*cid % 2), *succeeds),
            Act::Drain => self.session.end(CloseReason::Drained, self.now),
            Act::Solicited { len, offset, pieces } => self.answer_r2t(step, *len, *offset, *pieces),
            pdu => {
                let (headers, data) = self.pdu(pdu);
                self.send(step, &headers, &data);
            }
        }
    }

    /// The headers and the data of one PDU.
    fn pdu(&mut self, act: &Act) -> (Vec<u8>, Vec<u8>) {
        let exp_stat_sn = Serial(1000);
        match act {
            Act::Command {
                command,
                attribute,
                segments,
                read,
                write,
                expected,
                immediate,
                is_final,
                urgent,
                lun,
                sn,
            } => {
                let expected_length = expected % (256 << 10);
                let len = u32::from(*immediate).min(expected_length).min(FIRST_BURST);
                let len = if *write { len } else { 0 };
                let pdu = ScsiCommand {
                    immediate: *urgent,
                    is_final: *is_final,
                    read: *read,
                    write: *write,
                    attribute: ATTRIBUTES[usize::from(*attribute) % ATTRIBUTES.len()],
                    lun: [0, lun % 2, 0, 0, 0, 0, 0, 0],
                    initiator_tag: self.next_tag(),
                    expected_length,
                    cmd_sn: self.next_sn(*urgent, *sn),
                    exp_stat_sn,
                    cdb: command.cdb(),
                };
                let segments: Vec<Ahs<'_>> = segments.iter().map(Segment::header).collect();
                (pdu.encode_with_ahs(len, &segments), vec![0x5a; len as usize])
            }
            Act::Unsolicited { tag, offset, len, is_final, data_sn } => {
                let pdu = DataOut {
                    is_final: *is_final,
                    lun: [0; 8],
                    initiator_tag: InitiatorTag(self.tag.wrapping_sub(u32::from(*tag % 4))),
                    target_tag: TargetTag::RESERVED,
                    exp_stat_sn,
                    data_sn: u32::from(*data_sn % 4),
                    buffer_offset: u32::from(*offset),
                };
                (pdu.encode(u32::from(*len)).to_vec(), vec![0x5b; usize::from(*len)])
            }
            Act::Ping { data, answer, urgent } => {
                let pdu = NopOut {
                    immediate: *urgent,
                    lun: [0; 8],
                    initiator_tag: if *answer { self.next_tag() } else { InitiatorTag::RESERVED },
                    target_tag: TargetTag::RESERVED,
                    cmd_sn: self.next_sn(*urgent, 0),
                    exp_stat_sn,
                };
                (pdu.encode(data.len() as u32).to_vec(), data.to_vec())
            }
            Act::Task { function, tag, lun, urgent } => {
                let functions = [
                    TaskManagementFunction::AbortTask,
                    TaskManagementFunction::AbortTaskSet,
                    TaskManagementFunction::ClearAca,
                    TaskManagementFunction::ClearTaskSet,
                    TaskManagementFunction::LogicalUnitReset,
                    TaskManagementFunction::TargetWarmReset,
                    TaskManagementFunction::TargetColdReset,
                    TaskManagementFunction::TaskReassign,
                    TaskManagementFunction::Unknown(*function),
                ];
                let pdu = TaskRequest {
                    immediate: *urgent,
                    function: functions[usize::from(*function) % functions.len()],
                    lun: [0, lun % 2, 0, 0, 0, 0, 0, 0],
                    referenced_tag: InitiatorTag(self.tag.wrapping_sub(u32::from(*tag % 16))),
                    referenced_cmd_sn: Serial(self.cmd_sn.wrapping_sub(u32::from(*tag % 16))),
                    initiator_tag: self.next_tag(),
                    cmd_sn: self.next_sn(*urgent, 0),
                    exp_stat_sn,
                    exp_data_sn: 0,
                };
                (pdu.encode().to_vec(), Vec::new())
            }
            Act::Text { text, more, target_tag } => {
                let pdu = TextRequest {
                    immediate: false,
                    is_final: !more,
                    more: *more,
                    lun: [0; 8],
                    initiator_tag: self.next_tag(),
                    target_tag: target_tag.map_or(TargetTag::RESERVED, |tag| TargetTag(u32::from(tag))),
                    cmd_sn: self.next_sn(false, 0),
                    exp_stat_sn,
                };
                let text = if text.is_empty() { b"SendTargets=All\0" } else { *text };
                (pdu.encode(text.len() as u32).to_vec(), text.to_vec())
            }
            Act::Logout { reason, cid } => {
                let pdu = LogoutRequest {
                    immediate: false,
                    reason: match reason % 3 {
                        0 => LogoutReason::CloseSession,
                        1 => LogoutReason::CloseConnection,
                        _ => LogoutReason::RemoveForRecovery,
                    },
                    initiator_tag: self.next_tag(),
                    cid: u16::from(*cid % 3),
                    cmd_sn: self.next_sn(false, 0),
                    exp_stat_sn,
                };
                (pdu.encode().to_vec(), Vec::new())
            }
            _ => {
                let header = Snack::decode(&[0x90; 48]).expect("any bits are a SNACK").encode();
                (header.to_vec(), Vec::new())
            }
        }
    }

    fn answer_r2t(&mut self, step: &Step, len: Option<u16>, offset: Option<u16>, pieces: u8) {
        let Some(r2t) = self.r2ts.pop_front() else { return };
        let whole = len.map_or(r2t.desired_length, |len| u32::from(len) % (r2t.desired_length + 1));
        let piece = (whole / (u32::from(pieces % 4) + 1)).max(1);
        let (mut sent, mut data_sn) = (0, 0);
        while sent < whole {
            let now = piece.min(whole - sent);
            let pdu = DataOut {
                is_final: sent + now == whole,
                lun: r2t.lun,
                initiator_tag: r2t.initiator_tag,
                target_tag: r2t.target_tag,
                exp_stat_sn: Serial(1000),
                data_sn,
                buffer_offset: offset.map_or(r2t.buffer_offset, u32::from) + sent,
            };
            self.send(step, &pdu.encode(now), &vec![0x5c; now as usize]);
            (sent, data_sn) = (sent + now, data_sn + 1);
        }
    }

    /// Frames the PDU here, because none of our code sends additional header segments.
    fn send(&mut self, step: &Step, headers: &[u8], data: &[u8]) {
        let mut bytes = headers.to_vec();
        if self.input.header_digest {
            bytes.extend(crc32c(headers).to_le_bytes());
        }
        let mut data = data.to_vec();
        data.resize(data.len() + padding(data.len()), 0);
        bytes.extend_from_slice(&data);
        if self.input.data_digest && !data.is_empty() {
            bytes.extend(crc32c(&data).to_le_bytes());
        }
        if step.damage.0 % 64 == 1 {
            let at = usize::from(step.damage.1) % bytes.len();
            bytes[at] ^= 0x40;
        }
        self.feed(step, &bytes);
    }

    /// A node would wait until no command of the former connection runs any more.
    fn join(&mut self, cid: u16, succeeds: bool) {
        let Ok(id) = self.session.expect_connection(cid) else { return };
        if !succeeds {
            return self.session.remove_connection(id);
        }
        assert!(self.session.add_connection(id, negotiated(self.input), 1000, 100, self.now));
        self.connections.retain(|other| other.cid != cid);
        self.connections.push(id);
    }

    /// The connection of a step, or a closed one if there is no other.
    fn connection(&self, step: &Step) -> ConnectionId {
        let cid = u16::from(step.second_connection);
        let found = self.connections.iter().find(|id| id.cid == cid);
        *found.unwrap_or(&self.connections[0])
    }

    /// In two pieces, the second directly into the buffer of the session if it lends one.
    fn feed(&mut self, step: &Step, bytes: &[u8]) {
        let connection = self.connection(step);
        let (head, mut tail) = bytes.split_at(usize::from(step.cut).min(bytes.len()));
        self.session.handle_bytes(connection, head, self.now);
        if self.input.in_place
            && let Some(mut place) = self.session.take_in_place(connection)
        {
            let missing = place.buf.len() - place.filled;
            if missing > tail.len() {
                // The connection breaks in the middle of it.
                self.session.handle_closed(connection, CloseReason::PeerClosed);
                return;
            }
            place.buf[place.filled..].copy_from_slice(&tail[..missing]);
            self.session.handle_in_place(connection, place.buf, self.now);
            tail = &tail[missing..];
        }
        self.session.handle_bytes(connection, tail, self.now);
    }

    fn take_events(&mut self, hold: bool) {
        while let Some(event) = self.session.poll_event() {
            assert!(!self.over, "an event after the end");
            match event {
                Event::Command(command) => self.held.push(command),
                // The commands that it aborts run on for a while, and their memory counts until they have
                // ended.
                Event::Task { id, .. } => self.session.task_done(id, TaskResponse::Complete),
                Event::SendTargets { id, .. } => {
                    let record = |number: usize| TargetRecord {
                        name: format!("iqn.2026-11.fuzz:{number}"),
                        addresses: vec!["127.0.0.1:3260,1".into()],
                    };
                    let records: Vec<TargetRecord> = (0..TARGETS).map(record).collect();
                    self.session.send_targets(id, &records);
                }
                Event::Logout { id, .. } => self.session.logout_done(id, true),
                // Late completions have no effect.
                Event::Close { .. } => {}
                Event::End => self.over = true,
            }
            if !hold {
                self.end_commands();
            }
        }
    }

    fn end_commands(&mut self) {
        for Handed { id, cdb, data_out, .. } in self.held.drain(..) {
            let outcome = self.unit.run(0, cdb.0, Chain::copy_of(&data_out.to_vec()));
            self.session.complete(id, outcome);
        }
    }

    /// Reads what the session sends: only whole PDUs that can be decoded.
    fn take_output(&mut self) {
        let (header_digest, data_digest) = (self.input.header_digest, self.input.data_digest);
        let framing = Framing { header_digest, data_digest, data_max: 8192 };
        for id in self.connections.clone() {
            loop {
                let mut batch = SendBatch::new();
                self.session.poll_transmit(id, &mut batch, 64 << 10);
                if batch.is_empty() {
                    break;
                }
                let bytes = batch.to_vec();
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let (pdu, len) =
                        framing.split(rest).expect("right digests and lengths").expect("whole PDUs");
                    assert!(pdu.data_intact);
                    if let ResponsePdu::R2t(r2t) = ResponsePdu::decode(pdu.header).expect("a target's PDU") {
                        self.r2ts.push_back(r2t);
                    }
                    rest = &rest[len..];
                }
            }
        }
    }

    fn next_tag(&mut self) -> InitiatorTag {
        self.tag += 1;
        InitiatorTag(self.tag)
    }

    /// The next CmdSN, sometimes out of order.
    fn next_sn(&mut self, immediate: bool, skip: i8) -> Serial {
        let sn = self.cmd_sn;
        if !immediate && skip.unsigned_abs() < 120 {
            self.cmd_sn = self.cmd_sn.wrapping_add(1);
            return Serial(sn);
        }
        Serial(sn.wrapping_add_signed(i32::from(skip % 4)))
    }
}

impl Segment {
    fn header(&self) -> Ahs<'_> {
        match self {
            Segment::ExtendedCdb(len) => {
                Ahs::ExtendedCdb(&EXTENDED_CDB[..usize::from(*len).min(EXTENDED_CDB.len())])
            }
            Segment::BidirectionalReadLength(len) => Ahs::BidirectionalReadLength(*len),
            Segment::Unknown(number) => Ahs::Unknown(*number),
        }
    }
}

fn negotiated(input: &Input) -> Negotiated {
    Negotiated {
        header_digest: input.header_digest,
        data_digest: input.data_digest,
        max_transmit: 8192,
        max_receive: 65536,
        max_connections: 2,
        initial_r2t: input.initial_r2t,
        immediate_data: input.immediate_data,
        max_burst: 65536,
        first_burst: FIRST_BURST,
        max_outstanding_r2t: 1,
        time2wait: 2,
        time2retain: 0,
    }
}
