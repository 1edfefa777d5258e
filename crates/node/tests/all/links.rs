//! An initiator with several connections in one session (RFC 7143 4.2.2, 6.3.4): no initiator that we know
//! has more than one.
//!
//! All connections share the numbering of commands, which may therefore arrive in any order. Each has a task
//! that receives and one that sends. The negotiated values make data take all paths: some of a write's data
//! is immediate, and R2Ts request the rest.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use base::{BlockCount, BlockSize, Chain, Lba, SendBatch};
use initiator::Transfer;
use initiator::command::{Command, Read, TestUnitReady, Write};
use proto::iscsi::keys::Text;
use proto::iscsi::wire::{
    DataIn, DataOut, Framing, InitiatorTag, LoginRequestPdu, LoginResponsePdu, LogoutReason, LogoutRequest,
    LogoutResult, NopIn, NopOut, R2t, ResponsePdu, ScsiCommand, ScsiResponse, Serial, SerialNumbers,
    ServiceResponse, Stage, TargetTag, TaskAttribute, TaskManagementFunction, TaskRequest,
};
use rt::Stream;
use rt::sync::{Notify, Receiver, Sender, oneshot};

use crate::rig::{TARGET, named};

/// Data of a PDU, at most, in both directions: less than the node would accept.
const SEGMENT_MAX: usize = 16 << 10;
const FIRST_BURST: usize = 8 << 10;
const MAX_BURST: usize = 64 << 10;
/// How long a connection attempt may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The connection has ended: there will be no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Over;

/// The response to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u8,
    pub(crate) data: Vec<u8>,
}

/// What all connections share.
pub(crate) struct Nexus {
    portal: SocketAddr,
    initiator: String,
    isid: [u8; 6],
    tsih: Cell<u16>,
    next_cmd_sn: Cell<u32>,
    /// The latest ExpCmdSN of the target: all commands before it have arrived.
    exp_cmd_sn: Cell<u32>,
    next_tag: Cell<u32>,
}

/// One connection.
pub(crate) struct Link {
    nexus: Rc<Nexus>,
    cid: u16,
    stream: Stream,
    exp_stat_sn: Cell<Serial>,
    /// The numbers of its commands.
    sent: RefCell<Vec<u32>>,
    outgoing: RefCell<SendBatch>,
    output: Notify,
    waiting: RefCell<BTreeMap<u32, Waiting>>,
    over: Cell<bool>,
    closed: Notify,
}

/// A request without a response so far.
struct Waiting {
    answered: Sender<Answer>,
    /// The data of a read so far.
    data_in: Vec<u8>,
    data_out: Chain,
}

impl Nexus {
    /// Logs in; the session may have `connections_max` connections.
    pub(crate) async fn log_in(portal: SocketAddr, name: &str, connections_max: u32) -> Rc<Link> {
        let nexus = Nexus::new(portal, name, 0);
        let leading = Nexus::connect(&nexus, 0, Some(connections_max)).await.expect("the login succeeds");
        leading.make_ready().await;
        leading
    }

    /// An initiator that sends this TSIH.
    pub(crate) fn new(portal: SocketAddr, name: &str, tsih: u16) -> Rc<Nexus> {
        Rc::new(Nexus {
            portal,
            initiator: named(name).initiator,
            isid: [0x80, 9, 9, 9, 9, 9],
            tsih: Cell::new(tsih),
            next_cmd_sn: Cell::new(1),
            exp_cmd_sn: Cell::new(1),
            next_tag: Cell::new(1),
        })
    }

    /// The target's number for the session.
    pub(crate) fn tsih(&self) -> u16 {
        self.tsih.get()
    }

    /// Adds a connection, or replaces the one with this number.
    ///
    /// # Errors
    /// The login status (RFC 7143 11.13.5); 0 if the target just closed the connection.
    pub(crate) async fn join(self: &Rc<Nexus>, cid: u16) -> Result<Rc<Link>, u16> {
        Nexus::connect(self, cid, None).await
    }

    async fn connect(nexus: &Rc<Nexus>, cid: u16, leading: Option<u32>) -> Result<Rc<Link>, u16> {
        let stream = Stream::connect(nexus.portal, PATIENCE).await.map_err(|_| 0_u16)?;
        let mut batch = SendBatch::new();
        let (header, text) = nexus.login_request(cid, leading);
        Framing::without_digests(8192).push(&mut batch, &header, &text);
        stream.send(batch).await.map_err(|_| 0_u16)?;
        let mut received = Vec::new();
        let (response, used) = loop {
            if let Ok(Some((pdu, used))) = Framing::without_digests(8192).split(&received) {
                break (LoginResponsePdu::decode(pdu.header).unwrap(), used);
            }
            match stream.receive().await {
                Ok(bytes) if !bytes.is_empty() => received.extend_from_slice(&bytes),
                _ => return Err(0),
            }
        };
        if response.status != 0 {
            return Err(response.status);
        }
        assert_eq!(response.transit, Some(Stage::FullFeaturePhase));
        nexus.tsih.set(response.tsih);
        let link = Rc::new(Link {
            nexus: Rc::clone(nexus),
            cid,
            stream,
            exp_stat_sn: Cell::new(response.numbers.stat_sn.next()),
            sent: RefCell::default(),
            outgoing: RefCell::default(),
            output: Notify::new(),
            waiting: RefCell::default(),
            over: Cell::new(false),
            closed: Notify::new(),
        });
        rt::spawn(Rc::clone(&link).receive(received.split_off(used))).detach();
        rt::spawn(Rc::clone(&link).send()).detach();
        Ok(link)
    }

    /// A login of a single request. The leading login negotiates what concerns the session.
    fn login_request(&self, cid: u16, leading: Option<u32>) -> ([u8; 48], Vec<u8>) {
        let mut text = Text::new();
        text.push("InitiatorName", &self.initiator);
        text.push("TargetName", TARGET);
        text.push("SessionType", "Normal");
        text.push("MaxRecvDataSegmentLength", &SEGMENT_MAX.to_string());
        if let Some(connections_max) = leading {
            text.push("MaxConnections", &connections_max.to_string());
            text.push("InitialR2T", "Yes");
            text.push("ImmediateData", "Yes");
            text.push("MaxBurstLength", &MAX_BURST.to_string());
            text.push("FirstBurstLength", &FIRST_BURST.to_string());
            text.push("MaxOutstandingR2T", "2");
        }
        let text = text.into_bytes();
        let request = LoginRequestPdu {
            transit: Some(Stage::FullFeaturePhase),
            more: false,
            stage: Stage::OperationalNegotiation,
            version_max: 0,
            version_min: 0,
            isid: self.isid,
            tsih: self.tsih.get(),
            initiator_tag: InitiatorTag(0),
            cid,
            cmd_sn: Serial(self.next_cmd_sn.get()),
            exp_stat_sn: Serial(0),
        };
        (request.encode(text.len() as u32), text)
    }

    /// The same initiator with the TSIH of another session.
    pub(crate) fn with_number_of(&self, other: &Nexus) -> Rc<Nexus> {
        Rc::new(Nexus {
            portal: self.portal,
            initiator: self.initiator.clone(),
            isid: self.isid,
            tsih: other.tsih.clone(),
            next_cmd_sn: self.next_cmd_sn.clone(),
            exp_cmd_sn: self.exp_cmd_sn.clone(),
            next_tag: self.next_tag.clone(),
        })
    }

    fn take_tag(&self) -> InitiatorTag {
        InitiatorTag(self.next_tag.replace(self.next_tag.get() + 1))
    }

    fn take_numbers(&self, numbers: SerialNumbers) {
        self.exp_cmd_sn.set(self.exp_cmd_sn.get().max(numbers.exp_cmd_sn.0));
    }
}

impl Link {
    pub(crate) fn nexus(&self) -> &Rc<Nexus> {
        &self.nexus
    }

    pub(crate) fn cid(&self) -> u16 {
        self.cid
    }

    /// Waits until the target has closed it.
    pub(crate) async fn closed(&self) {
        while !self.over.get() {
            self.closed.notified().await;
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.get()
    }

    /// Breaks the connection.
    pub(crate) fn cut(&self) {
        self.stream.shutdown();
        self.end();
    }

    /// Sends TEST UNIT READY until there are no unit attentions.
    pub(crate) async fn make_ready(&self) {
        for _ in 0..5 {
            if self.send_command(&TestUnitReady).await.unwrap().status == 0 {
                return;
            }
        }
        panic!("the unit does not get ready");
    }

    /// WRITE (16); returns its status.
    pub(crate) async fn write(&self, lba: u64, data: Chain) -> Result<u8, Over> {
        let write = Write { lba: Lba(lba), data, size: BlockSize::B4096, durable: false };
        self.send_command(&write).await.map(|answer| answer.status)
    }

    /// READ (16), which must succeed.
    pub(crate) async fn read(&self, lba: u64, blocks: u64) -> Result<Vec<u8>, Over> {
        let read = Read { lba: Lba(lba), count: BlockCount(blocks), size: BlockSize::B4096 };
        let answer = self.send_command(&read).await?;
        assert_eq!(answer.status, 0);
        Ok(answer.data)
    }

    /// Reads a volume with this many blocks, from the last 64 to the first.
    ///
    /// A copy that fails to end goes upward through the volume, so the reads meet it halfway.
    pub(crate) async fn read_all(&self, blocks: u64) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        for lba in (0..blocks.div_ceil(64)).rev().map(|part| part * 64) {
            all.push(self.read(lba, 64.min(blocks - lba)).await.unwrap());
        }
        all
    }

    /// Sends a command.
    pub(crate) async fn send_command(&self, command: &impl Command) -> Result<Answer, Over> {
        let (len_in, data_out) = match command.transfer() {
            Transfer::None => (0, Chain::new()),
            Transfer::In(len) => (len as usize, Chain::new()),
            Transfer::Out(data) => (0, data),
        };
        let immediate = data_out.len().min(FIRST_BURST);
        let (tag, answer) = self.wait_for(len_in, data_out.clone());
        let pdu = ScsiCommand {
            immediate: false,
            is_final: true,
            read: len_in > 0,
            write: !data_out.is_empty(),
            attribute: TaskAttribute::Simple,
            lun: [0; 8],
            initiator_tag: tag,
            expected_length: len_in.max(data_out.len()) as u32,
            cmd_sn: self.take_cmd_sn(),
            exp_stat_sn: self.exp_stat_sn.get(),
            cdb: command.cdb().0,
        };
        self.push(&pdu.encode(immediate as u32), &data_out.slice(0..immediate));
        answer.await.map_err(|_| Over)
    }

    fn take_cmd_sn(&self) -> Serial {
        let cmd_sn = self.nexus.next_cmd_sn.get();
        self.nexus.next_cmd_sn.set(cmd_sn + 1);
        self.sent.borrow_mut().push(cmd_sn);
        Serial(cmd_sn)
    }

    /// Fills the gaps in the numbering after a connection is gone.
    ///
    /// Later commands would wait for commands that were on their way on that connection (RFC 7143 7.2.1). The
    /// target knows which of them have arrived.
    pub(crate) fn fill_gaps_of(&self, gone: &Link) {
        for cmd_sn in gone.sent.take().into_iter().filter(|cmd_sn| *cmd_sn >= self.nexus.exp_cmd_sn.get()) {
            let nop = NopOut {
                immediate: false,
                lun: [0; 8],
                initiator_tag: self.nexus.take_tag(),
                target_tag: TargetTag::RESERVED,
                cmd_sn: Serial(cmd_sn),
                exp_stat_sn: self.exp_stat_sn.get(),
            };
            self.push(&nop.encode(0), &Chain::new());
        }
    }

    /// Logs out a connection, or with `None` the session.
    pub(crate) async fn logout(&self, cid: Option<u16>) -> Result<u8, Over> {
        let (tag, answer) = self.wait_for(0, Chain::new());
        let request = LogoutRequest {
            immediate: true,
            reason: cid.map_or(LogoutReason::CloseSession, |_| LogoutReason::CloseConnection),
            initiator_tag: tag,
            cid: cid.unwrap_or(self.cid),
            cmd_sn: Serial(self.nexus.next_cmd_sn.get()),
            exp_stat_sn: self.exp_stat_sn.get(),
        };
        self.push(&request.encode(), &Chain::new());
        answer.await.map(|answer| answer.status).map_err(|_| Over)
    }

    /// LOGICAL UNIT RESET or a similar function, for all commands that were numbered before it.
    pub(crate) async fn manage(&self, function: TaskManagementFunction) -> Result<u8, Over> {
        let (tag, answer) = self.wait_for(0, Chain::new());
        let request = TaskRequest {
            immediate: true,
            function,
            lun: [0; 8],
            initiator_tag: tag,
            referenced_tag: InitiatorTag::RESERVED,
            cmd_sn: Serial(self.nexus.next_cmd_sn.get()),
            exp_stat_sn: self.exp_stat_sn.get(),
            referenced_cmd_sn: Serial(0),
            exp_data_sn: 0,
        };
        self.push(&request.encode(), &Chain::new());
        answer.await.map(|answer| answer.status).map_err(|_| Over)
    }

    fn wait_for(&self, len_in: usize, data_out: Chain) -> (InitiatorTag, Receiver<Answer>) {
        let tag = self.nexus.take_tag();
        let (answered, answer) = oneshot();
        let waiting = Waiting { answered, data_in: vec![0; len_in], data_out };
        if !self.over.get() {
            self.waiting.borrow_mut().insert(tag.0, waiting);
        }
        (tag, answer)
    }

    fn push(&self, header: &[u8; 48], data: &Chain) {
        let framing = Framing::without_digests(1 << 20);
        framing.push_chain(&mut self.outgoing.borrow_mut(), header, data);
        self.output.notify();
    }

    /// Ends all pending requests without a response.
    fn end(&self) {
        self.over.set(true);
        self.waiting.take();
        self.closed.notify();
        self.output.notify();
    }

    async fn send(self: Rc<Link>) {
        while !self.over.get() {
            let batch = self.outgoing.take();
            if batch.is_empty() {
                self.output.notified().await;
            } else if self.stream.send(batch).await.is_err() {
                return self.end();
            }
        }
    }

    async fn receive(self: Rc<Link>, mut received: Vec<u8>) {
        loop {
            let mut used = 0;
            while let Some((pdu, length)) =
                Framing::without_digests(SEGMENT_MAX as u32).split(&received[used..]).expect("whole PDUs")
            {
                let response = ResponsePdu::decode(pdu.header).expect("a target's PDU");
                self.handle(response, pdu.data);
                used += length;
            }
            received.drain(..used);
            match self.stream.receive().await {
                Ok(bytes) if !bytes.is_empty() => received.extend_from_slice(&bytes),
                _ => return self.end(),
            }
        }
    }

    fn handle(&self, response: ResponsePdu, data: &[u8]) {
        match response {
            ResponsePdu::ScsiResponse(ScsiResponse { response, initiator_tag, numbers, .. }) => {
                self.take_status(numbers);
                let ServiceResponse::Completed { status } = response else { panic!("{response:?}") };
                self.answer(initiator_tag, status);
            }
            ResponsePdu::DataIn(DataIn { status, initiator_tag, numbers, buffer_offset, .. }) => {
                if let Some(waiting) = self.waiting.borrow_mut().get_mut(&initiator_tag.0) {
                    let at = buffer_offset as usize;
                    waiting.data_in[at..at + data.len()].copy_from_slice(data);
                }
                if let Some(status) = status {
                    self.take_status(numbers);
                    self.answer(initiator_tag, status.status);
                }
            }
            ResponsePdu::R2t(r2t) => self.send_data(&r2t),
            ResponsePdu::Task(response) => {
                self.take_status(response.numbers);
                self.answer(response.initiator_tag, response.response);
            }
            ResponsePdu::Logout(response) => {
                self.take_status(response.numbers);
                self.answer(response.initiator_tag, response.result as u8);
            }
            ResponsePdu::NopIn(pong) if pong.target_tag == TargetTag::RESERVED => {
                self.take_status(pong.numbers);
            }
            ResponsePdu::NopIn(ping) => self.answer_ping(&ping),
            // The end of the connection says the same.
            ResponsePdu::Async(message) => self.take_status(message.numbers),
            other => panic!("{other:?}"),
        }
    }

    /// Each connection numbers its responses itself, without a gap.
    fn take_status(&self, numbers: SerialNumbers) {
        assert_eq!(numbers.stat_sn, self.exp_stat_sn.get(), "of connection {}", self.cid);
        self.exp_stat_sn.set(numbers.stat_sn.next());
        self.nexus.take_numbers(numbers);
    }

    fn answer(&self, tag: InitiatorTag, status: u8) {
        let waiting = self.waiting.borrow_mut().remove(&tag.0);
        let Waiting { answered, data_in, .. } = waiting.expect("it was asked on this connection");
        answered.send(Answer { status, data: data_in });
    }

    fn answer_ping(&self, ping: &NopIn) {
        let nop = NopOut {
            immediate: true,
            lun: ping.lun,
            initiator_tag: InitiatorTag::RESERVED,
            target_tag: ping.target_tag,
            cmd_sn: Serial(self.nexus.next_cmd_sn.get()),
            exp_stat_sn: self.exp_stat_sn.get(),
        };
        self.push(&nop.encode(0), &Chain::new());
    }

    fn send_data(&self, r2t: &R2t) {
        let data = match self.waiting.borrow().get(&r2t.initiator_tag.0) {
            Some(waiting) => waiting.data_out.clone(),
            None => return,
        };
        // The values of the leading login apply to every connection.
        assert!(r2t.desired_length as usize <= MAX_BURST, "{r2t:?}");
        let (mut at, end) = (r2t.buffer_offset as usize, (r2t.buffer_offset + r2t.desired_length) as usize);
        for data_sn in 0.. {
            let length = (end - at).min(SEGMENT_MAX);
            let pdu = DataOut {
                is_final: at + length == end,
                lun: r2t.lun,
                initiator_tag: r2t.initiator_tag,
                target_tag: r2t.target_tag,
                exp_stat_sn: self.exp_stat_sn.get(),
                data_sn,
                buffer_offset: at as u32,
            };
            self.push(&pdu.encode(length as u32), &data.slice(at..at + length));
            at += length;
            if at == end {
                return;
            }
        }
    }
}

/// Closed in good order (RFC 7143 11.15.1).
pub(crate) const LOGGED_OUT: u8 = LogoutResult::Closed as u8;
