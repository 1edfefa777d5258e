//! The full feature phase of one connection, which is a session (RFC 7143 sections 4 and 11).
//!
//! It is cheap: a command costs one header in each direction; its data is copied once on the way in and never
//! on the way out. `receiver` cuts the received bytes into PDUs and places read data; [`Connection`] manages
//! the commands.

mod command;
mod receiver;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use base::{Buf, Chain, SendBatch};
use slab::Slab;

use super::LoginOutcome;
use crate::iscsi::Negotiated;
use crate::iscsi::keys::text::{Pair, pairs};
use crate::iscsi::target_role::{InPlace, TargetRecord, TaskFunction};
use crate::iscsi::wire::{
    AsyncEvent, DataIn, DataOut, Framing, InitiatorTag, LogoutReason, LogoutRequest, LogoutResult, NopIn,
    NopOut, R2t, Reject, RejectReason, Residual, ResponsePdu, ScsiCommand, ScsiResponse, Serial,
    SerialNumbers, ServiceResponse, TargetTag, TaskAttribute, TaskManagementFunction, TaskRequest,
    TaskResponsePdu, TextRequest, TextResponse, sense_segment,
};
pub use command::{Command, CommandResult, Transfer};
use command::{Data, Kind, Running, Scope, Task};
use receiver::Receiver;

/// The most tasks at a time: a slot has 16 bits in the tag. Command windows are much smaller.
const TASKS_MAX: usize = 1 << 16;

/// The longest answer to SendTargets, in bytes: 1,000 targets with ten addresses each take some 500 KiB.
const TARGETS_LEN_MAX: usize = 4 << 20;

/// RFC 7143 11.6.1: function rejected.
const FUNCTION_REJECTED: u8 = 255;

/// A task of this connection, by its tag. A tag is reused after 2^15 tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskId(InitiatorTag);

impl TaskId {
    /// A small number that no other task has at the same time: an index for callers that keep a list of their
    /// own.
    pub fn slot(self) -> usize {
        slot_of(self.0)
    }
}

/// The slot in the low half of a tag.
fn slot_of(tag: InitiatorTag) -> usize {
    (tag.0 & 0xffff) as usize
}

/// Why a connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    /// Received headers are damaged.
    #[error("header digest mismatch: the network or the target corrupts data")]
    HeaderDigest,
    /// Received data is damaged.
    #[error("data digest mismatch: the network or the target corrupts data")]
    DataDigest,
    /// The target rejected what we sent.
    #[error("the target rejected a request: {0:?}")]
    Rejected(RejectReason),
    /// The target does not follow the standard.
    #[error("the target violated the protocol: {0}")]
    Protocol(&'static str),
}

/// What the driver must know.
#[derive(Debug)]
pub enum Event {
    /// A command was answered.
    Done(TaskId, CommandResult),
    /// A task management function ended the command; no response will follow.
    Aborted(TaskId),
    /// A task management function was answered (RFC 7143 11.6.1); 0 means success.
    TaskDone(TaskId, u8),
    /// The targets that SendTargets found.
    Targets(TaskId, Vec<TargetRecord>),
    /// A ping was answered.
    Pong(TaskId),
    /// The target has confirmed the logout: close the connection.
    LoggedOut(TaskId, LogoutResult),
    /// The target sent an asynchronous message.
    Async(AsyncEvent),
    /// A unit reported an asynchronous event: its LUN and the sense data.
    Sense([u8; 8], Vec<u8>),
    /// The connection failed: close it. No event follows.
    Failed(ConnectionError),
}

/// One connection in the full feature phase.
///
/// Feed received bytes with `handle_bytes` and commands with `submit`; then take the events and the output
/// until there are none.
pub struct Connection {
    negotiated: Negotiated,
    cid: u16,
    /// The framing of what we send.
    framing: Framing,
    receiver: Receiver,
    tasks: Slab<Task>,
    /// Counts the tasks; it is the high half of tags.
    generation: u32,
    /// Commands that wait for the window to open, oldest first.
    waiting: VecDeque<InitiatorTag>,
    /// The CmdSN of the next command.
    cmd_sn: Serial,
    max_cmd_sn: Serial,
    exp_stat_sn: Serial,
    events: VecDeque<Event>,
    outgoing: SendBatch,
    failed: bool,
}

impl Connection {
    /// A connection that has logged in as `cid`. The driver feeds the login's `leftover` bytes.
    pub fn new(login: &LoginOutcome, cid: u16) -> Connection {
        let negotiated = login.negotiated.clone();
        let framing = |data_max| Framing {
            header_digest: negotiated.header_digest,
            data_digest: negotiated.data_digest,
            data_max,
        };
        Connection {
            cid,
            framing: framing(negotiated.max_transmit),
            receiver: Receiver::new(framing(negotiated.max_receive)),
            tasks: Slab::new(),
            generation: 0,
            waiting: VecDeque::new(),
            cmd_sn: login.cmd_sn,
            max_cmd_sn: login.max_cmd_sn,
            exp_stat_sn: login.exp_stat_sn,
            events: VecDeque::new(),
            outgoing: SendBatch::new(),
            failed: false,
            negotiated,
        }
    }

    /// The parameters that the login negotiated.
    pub fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// The number of tasks that were submitted and not answered.
    pub fn outstanding(&self) -> usize {
        self.tasks.len()
    }

    /// Sends a command, or keeps it until the target's window opens.
    ///
    /// # Panics
    /// If there are more than 65,536 tasks at a time.
    pub fn submit(&mut self, command: Command) -> TaskId {
        let data = match command.transfer {
            Transfer::None => Data::None,
            Transfer::In(len) => Data::In { buf: Buf::uncleared(len as usize), received: 0 },
            Transfer::Out(chain) => Data::Out(chain),
        };
        let running = Running { lun: command.lun, cdb: command.cdb, cmd_sn: self.cmd_sn, data };
        let tag = self.add(Kind::Command(running));
        if self.waiting.is_empty() && self.is_open() {
            self.start(tag);
        } else {
            self.waiting.push_back(tag);
        }
        TaskId(tag)
    }

    /// Asks the target to end commands: one (`task`), or those of a unit or of the whole target.
    pub fn manage(&mut self, function: TaskFunction, lun: [u8; 8], task: Option<TaskId>) -> TaskId {
        let (function, scope) = match function {
            TaskFunction::AbortTask => (
                TaskManagementFunction::AbortTask,
                Scope::Task(task.map_or(InitiatorTag::RESERVED, |task| task.0)),
            ),
            TaskFunction::AbortTaskSet => {
                (TaskManagementFunction::AbortTaskSet, Scope::Unit(lun, self.cmd_sn))
            }
            TaskFunction::ClearTaskSet => {
                (TaskManagementFunction::ClearTaskSet, Scope::Unit(lun, self.cmd_sn))
            }
            TaskFunction::LogicalUnitReset => {
                (TaskManagementFunction::LogicalUnitReset, Scope::Unit(lun, self.cmd_sn))
            }
            TaskFunction::TargetWarmReset => {
                (TaskManagementFunction::TargetWarmReset, Scope::Session(self.cmd_sn))
            }
            TaskFunction::TargetColdReset => {
                (TaskManagementFunction::TargetColdReset, Scope::Session(self.cmd_sn))
            }
        };
        let referenced = match scope {
            Scope::Task(tag) => tag,
            _ => InitiatorTag::RESERVED,
        };
        let referenced_cmd_sn = match self.task(referenced) {
            Some(Task { kind: Kind::Command(running), .. }) => running.cmd_sn,
            _ => self.cmd_sn,
        };
        let tag = self.add(Kind::Management(scope));
        let request = TaskRequest {
            immediate: true,
            function,
            lun,
            initiator_tag: tag,
            referenced_tag: referenced,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            referenced_cmd_sn,
            exp_data_sn: 0,
        };
        self.framing.push(&mut self.outgoing, &request.encode(), &[]);
        TaskId(tag)
    }

    /// Pings the target.
    pub fn ping(&mut self) -> TaskId {
        let tag = self.add(Kind::Ping);
        self.push_nop_out([0; 8], tag, TargetTag::RESERVED, &[]);
        TaskId(tag)
    }

    /// Asks for all targets that this initiator may see (RFC 7143 appendix C).
    pub fn send_targets(&mut self) -> TaskId {
        let tag = self.add(Kind::Text(Vec::new()));
        self.push_text(tag, [0; 8], TargetTag::RESERVED, b"SendTargets=All\0");
        TaskId(tag)
    }

    /// Logs the session out.
    pub fn logout(&mut self) -> TaskId {
        let tag = self.add(Kind::Logout);
        let request = LogoutRequest {
            immediate: true,
            reason: LogoutReason::CloseSession,
            initiator_tag: tag,
            cid: self.cid,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
        };
        self.framing.push(&mut self.outgoing, &request.encode(), &[]);
        TaskId(tag)
    }

    /// Withdraws a command that still waits for the target's window: it is not sent, and no event follows.
    ///
    /// Returns false if the command was sent or answered.
    pub fn withdraw(&mut self, task: TaskId) -> bool {
        let Some(at) = self.waiting.iter().position(|tag| *tag == task.0) else { return false };
        self.waiting.remove(at);
        self.remove(task.0).is_some()
    }

    /// Processes received bytes.
    ///
    /// # Panics
    /// If the driver is receiving in place.
    pub fn handle_bytes(&mut self, mut bytes: &[u8]) {
        assert!(!self.receiver.is_lent(), "bytes were fed while the driver receives in place");
        while !self.failed {
            let result = match self.receiver.next(&mut bytes, &mut self.tasks) {
                Ok(Some(pdu)) => self.handle(pdu),
                Ok(None) => return,
                Err(error) => Err(error),
            };
            if let Err(error) = result {
                self.failed = true;
                self.events.push_back(Event::Failed(error));
            }
        }
    }

    /// Returns the buffer into which the next bytes belong, if they are many.
    ///
    /// The driver fills it from `filled` to its end and returns it with [`Connection::handle_in_place`].
    pub fn take_in_place(&mut self) -> Option<InPlace> {
        if self.failed { None } else { self.receiver.lend(&mut self.tasks) }
    }

    /// Processes data that was received in place.
    pub fn handle_in_place(&mut self, buf: Buf) {
        self.receiver.take_back(buf, &mut self.tasks);
        self.handle_bytes(&[]);
    }

    /// The next event for the driver.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether there is output to send.
    pub fn has_output(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Puts the pending output into `batch`, which must be empty.
    pub fn poll_transmit(&mut self, batch: &mut SendBatch) {
        assert!(batch.is_empty(), "the output is swapped into an empty batch");
        std::mem::swap(batch, &mut self.outgoing);
    }

    fn task(&self, tag: InitiatorTag) -> Option<&Task> {
        self.tasks.get(slot_of(tag)).filter(|task| task.tag == tag)
    }

    fn add(&mut self, kind: Kind) -> InitiatorTag {
        let entry = self.tasks.vacant_entry();
        assert!(entry.key() < TASKS_MAX, "the window is smaller than that");
        // Fifteen bits, so that no tag is the reserved one.
        self.generation = (self.generation + 1) & 0x7fff;
        let tag = InitiatorTag(self.generation << 16 | entry.key() as u32);
        entry.insert(Task { tag, kind });
        tag
    }

    /// Forgets a task that was answered.
    fn remove(&mut self, tag: InitiatorTag) -> Option<Task> {
        self.task(tag)?;
        self.tasks.try_remove(slot_of(tag))
    }

    /// Whether the window has room for a command (RFC 7143 4.2.2.1).
    fn is_open(&self) -> bool {
        !self.cmd_sn.is_after(self.max_cmd_sn)
    }

    /// Sends a command and the unsolicited data allowed with it (RFC 7143 13.10, 13.11, 13.14).
    fn start(&mut self, tag: InitiatorTag) {
        let Some(Task { kind: Kind::Command(running), .. }) = self.tasks.get_mut(slot_of(tag)) else {
            return;
        };
        running.cmd_sn = self.cmd_sn;
        self.cmd_sn = self.cmd_sn.next();
        let none = Chain::new();
        let out = match &running.data {
            Data::Out(chain) => chain,
            _ => &none,
        };
        let first_burst = out.len().min(self.negotiated.first_burst as usize);
        let immediate = if self.negotiated.immediate_data {
            first_burst.min(self.negotiated.max_transmit as usize)
        } else {
            0
        };
        let unsolicited = if self.negotiated.initial_r2t { immediate } else { first_burst };
        let command = ScsiCommand {
            immediate: false,
            is_final: unsolicited == immediate,
            read: matches!(running.data, Data::In { .. }),
            write: matches!(running.data, Data::Out(_)),
            attribute: TaskAttribute::Simple,
            lun: running.lun,
            initiator_tag: tag,
            expected_length: running.expected(),
            cmd_sn: running.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            cdb: running.cdb.0,
        };
        let header = command.encode(immediate as u32);
        if immediate == out.len() {
            self.framing.push_chain(&mut self.outgoing, &header, out);
        } else {
            self.framing.push_chain(&mut self.outgoing, &header, &out.slice(0..immediate));
        }
        if unsolicited > immediate {
            let sequence = Sequence {
                lun: command.lun,
                tag,
                target_tag: TargetTag::RESERVED,
                at: immediate,
                end: unsolicited,
            };
            let chain = out.clone();
            self.send_data(sequence, &chain);
        }
    }

    /// Sends a part of a command's data in PDUs as large as the target accepts.
    fn send_data(&mut self, sequence: Sequence, data: &Chain) {
        let mut at = sequence.at;
        let mut data_sn = 0;
        while at < sequence.end {
            let end = sequence.end.min(at + self.negotiated.max_transmit as usize);
            let header = DataOut {
                is_final: end == sequence.end,
                lun: sequence.lun,
                initiator_tag: sequence.tag,
                target_tag: sequence.target_tag,
                exp_stat_sn: self.exp_stat_sn,
                data_sn,
                buffer_offset: at as u32,
            };
            let header = header.encode((end - at) as u32);
            self.framing.push_chain(&mut self.outgoing, &header, &data.slice(at..end));
            data_sn += 1;
            at = end;
        }
    }

    #[inline]
    fn handle(&mut self, pdu: ResponsePdu) -> Result<(), ConnectionError> {
        match pdu {
            ResponsePdu::ScsiResponse(response) => self.handle_response(&response),
            ResponsePdu::DataIn(data_in) => self.handle_data_in(&data_in),
            ResponsePdu::R2t(r2t) => self.handle_r2t(&r2t),
            ResponsePdu::NopIn(nop) => {
                self.handle_nop(&nop);
                Ok(())
            }
            ResponsePdu::Task(response) => {
                self.handle_task_response(&response);
                Ok(())
            }
            ResponsePdu::Text(response) => self.handle_text(&response),
            ResponsePdu::Logout(response) => {
                self.take_status(response.numbers);
                self.remove(response.initiator_tag);
                self.events.push_back(Event::LoggedOut(TaskId(response.initiator_tag), response.result));
                Ok(())
            }
            ResponsePdu::Async(message) => {
                self.take_status(message.numbers);
                self.events.push_back(match message.event {
                    // RFC 7143 11.9.4: the sense data is preceded by its length, as in a response.
                    AsyncEvent::Scsi => {
                        Event::Sense(message.lun, sense_segment(self.receiver.segment()).to_vec())
                    }
                    event => Event::Async(event),
                });
                Ok(())
            }
            ResponsePdu::Reject(reject) => self.handle_reject(&reject),
            ResponsePdu::Login(_) => Err(ConnectionError::Protocol("a login response after login")),
        }
    }

    /// Processes the sequence numbers of a PDU that has a StatSN of its own.
    fn take_status(&mut self, numbers: SerialNumbers) {
        if !numbers.stat_sn.is_before(self.exp_stat_sn) {
            self.exp_stat_sn = numbers.stat_sn.next();
        }
        self.take_window(numbers);
    }

    /// Processes the window in a PDU. RFC 7143 4.2.2.1: numbers of an old PDU are ignored.
    fn take_window(&mut self, numbers: SerialNumbers) {
        if numbers.max_cmd_sn.next().is_before(numbers.exp_cmd_sn)
            || !numbers.max_cmd_sn.is_after(self.max_cmd_sn)
        {
            return;
        }
        self.max_cmd_sn = numbers.max_cmd_sn;
        while self.is_open() {
            let Some(tag) = self.waiting.pop_front() else { return };
            self.start(tag);
        }
    }

    fn handle_response(&mut self, response: &ScsiResponse) -> Result<(), ConnectionError> {
        self.take_status(response.numbers);
        let sense = sense_segment(self.receiver.segment()).to_vec();
        self.finish(response.initiator_tag, response.response, response.residual, sense)
    }

    fn handle_data_in(&mut self, data_in: &DataIn) -> Result<(), ConnectionError> {
        let Some(status) = data_in.status else {
            self.take_window(data_in.numbers);
            return Ok(());
        };
        self.take_status(data_in.numbers);
        let response = ServiceResponse::Completed { status: status.status };
        self.finish(data_in.initiator_tag, response, status.residual, Vec::new())
    }

    fn finish(
        &mut self,
        tag: InitiatorTag,
        response: ServiceResponse,
        residual: Residual,
        sense: Vec<u8>,
    ) -> Result<(), ConnectionError> {
        // A command that was aborted may still be answered.
        let Some(task) = self.remove(tag) else { return Ok(()) };
        let Kind::Command(running) = task.kind else {
            return Err(ConnectionError::Protocol("a SCSI response for another task"));
        };
        if response == (ServiceResponse::Completed { status: 0 }) && !running.is_whole(residual) {
            return Err(ConnectionError::Protocol("less data than the status says"));
        }
        let result = CommandResult { response, sense, residual, data: running.into_data() };
        self.events.push_back(Event::Done(TaskId(tag), result));
        Ok(())
    }

    fn handle_r2t(&mut self, r2t: &R2t) -> Result<(), ConnectionError> {
        self.take_window(r2t.numbers);
        let Some(task) = self.task(r2t.initiator_tag) else { return Ok(()) };
        let Kind::Command(Running { data: Data::Out(data), .. }) = &task.kind else {
            return Err(ConnectionError::Protocol("an R2T for a task that writes nothing"));
        };
        let data = data.clone();
        let at = r2t.buffer_offset as usize;
        let end = at + r2t.desired_length as usize;
        if end > data.len() || r2t.desired_length > self.negotiated.max_burst {
            return Err(ConnectionError::Protocol(
                "an R2T for more data than the command has, or than a burst allows",
            ));
        }
        let sequence = Sequence { lun: r2t.lun, tag: r2t.initiator_tag, target_tag: r2t.target_tag, at, end };
        self.send_data(sequence, &data);
        Ok(())
    }

    fn handle_nop(&mut self, nop: &NopIn) {
        if nop.target_tag != TargetTag::RESERVED {
            // RFC 7143 11.19: the answer returns the ping's data.
            self.take_window(nop.numbers);
            let data = self.receiver.segment().to_vec();
            return self.push_nop_out(nop.lun, InitiatorTag::RESERVED, nop.target_tag, &data);
        }
        if nop.initiator_tag == InitiatorTag::RESERVED {
            return self.take_window(nop.numbers);
        }
        self.take_status(nop.numbers);
        if self.remove(nop.initiator_tag).is_some() {
            self.events.push_back(Event::Pong(TaskId(nop.initiator_tag)));
        }
    }

    fn push_nop_out(&mut self, lun: [u8; 8], tag: InitiatorTag, target_tag: TargetTag, data: &[u8]) {
        let nop = NopOut {
            immediate: true,
            lun,
            initiator_tag: tag,
            target_tag,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
        };
        let data = &data[..data.len().min(self.negotiated.max_transmit as usize)];
        self.framing.push(&mut self.outgoing, &nop.encode(data.len() as u32), data);
    }

    fn handle_task_response(&mut self, response: &TaskResponsePdu) {
        self.take_status(response.numbers);
        let Some(Task { kind: Kind::Management(scope), .. }) = self.remove(response.initiator_tag) else {
            return;
        };
        // 0: done. 1: the target does not know the task, so it will not answer it either.
        if response.response <= 1 {
            let ended = |task: &Task| match (&task.kind, scope) {
                (Kind::Command(_), Scope::Task(tag)) => task.tag == tag,
                (Kind::Command(running), Scope::Unit(lun, before)) => {
                    running.lun == lun && running.cmd_sn.is_before(before)
                }
                (Kind::Command(running), Scope::Session(before)) => running.cmd_sn.is_before(before),
                _ => false,
            };
            let tags: Vec<_> =
                self.tasks.iter().filter(|(_, task)| ended(task)).map(|(_, task)| task.tag).collect();
            for tag in tags {
                self.remove(tag);
                self.waiting.retain(|waiting| *waiting != tag);
                self.events.push_back(Event::Aborted(TaskId(tag)));
            }
        }
        self.events.push_back(Event::TaskDone(TaskId(response.initiator_tag), response.response));
    }

    /// RFC 7143 11.17.1: most reasons mean that one side violates the standard; after some, the session can
    /// continue.
    fn handle_reject(&mut self, reject: &Reject) -> Result<(), ConnectionError> {
        self.take_status(reject.numbers);
        let segment = self.receiver.segment();
        let tag = segment.get(16..20).and_then(|tag| tag.first_chunk()).copied();
        let tag = InitiatorTag(tag.map_or(InitiatorTag::RESERVED.0, u32::from_be_bytes));
        match (reject.reason, self.task(tag).map(|task| &task.kind)) {
            // 7.8: the target received damaged data, and ends the command with a response of its own.
            (RejectReason::DataDigestError, Some(Kind::Command(_))) => {}
            (RejectReason::TooManyImmediateCommands, Some(Kind::Management(_))) => {
                self.remove(tag);
                self.events.push_back(Event::TaskDone(TaskId(tag), FUNCTION_REJECTED));
            }
            (RejectReason::TooManyImmediateCommands, Some(Kind::Ping)) => {
                self.remove(tag);
                self.events.push_back(Event::Pong(TaskId(tag)));
            }
            _ => return Err(ConnectionError::Rejected(reject.reason)),
        }
        Ok(())
    }

    fn handle_text(&mut self, response: &TextResponse) -> Result<(), ConnectionError> {
        self.take_status(response.numbers);
        let tag = response.initiator_tag;
        let segment = self.receiver.segment();
        let Some(Task { kind: Kind::Text(text), tag: own }) = self.tasks.get_mut(slot_of(tag)) else {
            return Err(ConnectionError::Protocol("a text response for another task"));
        };
        if *own != tag || text.len() + segment.len() > TARGETS_LEN_MAX {
            return Err(ConnectionError::Protocol("a text response that was not asked for, or is too long"));
        }
        text.extend_from_slice(segment);
        if !response.is_final {
            self.push_text(tag, response.lun, response.target_tag, &[]);
            return Ok(());
        }
        let targets = parse_targets(text).ok_or(ConnectionError::Protocol("an invalid list of targets"))?;
        self.remove(tag);
        self.events.push_back(Event::Targets(TaskId(tag), targets));
        Ok(())
    }

    fn push_text(&mut self, tag: InitiatorTag, lun: [u8; 8], target_tag: TargetTag, data: &[u8]) {
        let request = TextRequest {
            immediate: true,
            is_final: true,
            more: false,
            lun,
            initiator_tag: tag,
            target_tag,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
        };
        self.framing.push(&mut self.outgoing, &request.encode(data.len() as u32), data);
    }
}

/// Data of one write that is sent in one sequence.
struct Sequence {
    lun: [u8; 8],
    tag: InitiatorTag,
    target_tag: TargetTag,
    at: usize,
    end: usize,
}

/// RFC 7143 appendix C: each TargetName is followed by its addresses.
fn parse_targets(text: &[u8]) -> Option<Vec<TargetRecord>> {
    let mut targets: Vec<TargetRecord> = Vec::new();
    for pair in pairs(text) {
        let Pair { key, value } = pair.ok()?;
        match (key, value) {
            ("TargetName", name) => {
                targets.push(TargetRecord { name: name.to_owned(), addresses: Vec::new() });
            }
            ("TargetAddress", address) => targets.last_mut()?.addresses.push(address.to_owned()),
            _ => {}
        }
    }
    Some(targets)
}
