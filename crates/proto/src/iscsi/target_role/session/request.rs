//! Executes requests: SCSI commands from their header to the driver, and the order of all requests.

use base::Chain;

use super::receive::Sink;
use super::task::{Answer, Task, TaskKey, TaskState, Verdict};
use super::transmit::Output;
use super::window::{Arrival, Sequenced};
use super::write_data::{Mistake, Place, WriteData};
use super::{CloseReason, Command, CommandId, ConnectionId, Event, Session};
use crate::iscsi::wire::{
    Ahs, DataOut, HEADER_LEN, HeaderError, InitiatorTag, Opcode, RejectReason, RequestPdu, Residual,
    ScsiCommand, Serial, is_immediate, opcode,
};
use crate::scsi::sense::code;
use crate::scsi::{Cdb, Outcome, Sense, SenseKey, Status};

/// RFC 7143 11.4.7.2: unexpected unsolicited data.
const UNEXPECTED_UNSOLICITED_DATA: u16 = 0x0c0c;
/// RFC 7143 11.4.7.2: incorrect amount of data.
const INCORRECT_AMOUNT_OF_DATA: u16 = 0x0c0d;
/// SPC-4: INVALID FIELD IN COMMAND INFORMATION UNIT, for requests in the transport's header that we do not
/// support.
const INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT: u16 = 0x0e03;
impl Session {
    /// Executes a PDU that has arrived with its data. The data of commands has already been placed.
    #[inline]
    pub(super) fn carry_out_pdu(
        &mut self,
        at: usize,
        header: &[u8; HEADER_LEN],
        pdu: Result<RequestPdu, HeaderError>,
        sink: Sink,
        length: u32,
    ) {
        match (pdu, sink) {
            (Ok(RequestPdu::ScsiCommand(command)), Sink::Task(key, _)) => {
                if let Some(write) = self.tasks.get_mut(key).and_then(|task| task.write.as_mut()) {
                    write.immediate_arrived(length, command.is_final);
                    self.proceed(key);
                }
            }
            (Ok(RequestPdu::DataOut(data_out)), Sink::Task(key, _)) => {
                if let Some(write) = self.tasks.get_mut(key).and_then(|task| task.write.as_mut()) {
                    write.arrived(length, data_out.is_final);
                    self.proceed(key);
                }
            }
            (Ok(RequestPdu::ScsiCommand(_) | RequestPdu::DataOut(_)), _) => {}
            (Ok(RequestPdu::NopOut(nop)), Sink::Collect(data)) => self.handle_nop(at, header, nop, data),
            (Ok(RequestPdu::Text(text)), Sink::Collect(data)) => {
                self.sequence(at, header, text.cmd_sn, Sequenced::Text(text, data));
            }
            (Ok(RequestPdu::Task(_)), _) if self.discovery => self.refuse_in_discovery(at, header),
            (Ok(RequestPdu::Task(task)), _) if task.immediate && self.is_management_full() => {
                self.reject(at, RejectReason::TooManyImmediateCommands, header);
            }
            (Ok(RequestPdu::Task(task)), _) => self.sequence(at, header, task.cmd_sn, Sequenced::Task(task)),
            (Ok(RequestPdu::Logout(logout)), _) => {
                self.sequence(at, header, logout.cmd_sn, Sequenced::Logout(logout));
            }
            (Ok(RequestPdu::Snack(_)), _) => self.reject(at, RejectReason::SnackReject, header),
            (Ok(RequestPdu::Login(_)), _) => self.fail(at, RejectReason::ProtocolError, header),
            (Ok(RequestPdu::NopOut(_) | RequestPdu::Text(_)), _) => {}
            (Err(HeaderError::Opcode(_)), _) => self.reject(at, RejectReason::CommandNotSupported, header),
            (Err(HeaderError::Field(_)), _) if opcode(header) == Opcode::LoginRequest as u8 => {
                self.fail(at, RejectReason::ProtocolError, header);
            }
            (Err(HeaderError::Field(_)), _) => {
                // SCSI Command, Text and Logout have fields that can be wrong. Their CmdSN counts
                // nevertheless.
                self.reject(at, RejectReason::InvalidPduField, header);
                self.sequence(at, header, cmd_sn(header), Sequenced::Void);
            }
        }
    }

    /// Executes a request when its CmdSN is due.
    pub(super) fn sequence(
        &mut self,
        at: usize,
        header: &[u8; HEADER_LEN],
        cmd_sn: Serial,
        request: Sequenced,
    ) {
        let from = self.connections[at].id;
        if is_immediate(header) {
            return self.carry_out(from, request, true);
        }
        match self.window.arrival(cmd_sn) {
            Arrival::Ignored => self.connections[at].counters.ignored += 1,
            Arrival::Due => {
                self.window.advance();
                self.carry_out(from, request, false);
                self.carry_out_early();
            }
            Arrival::Early => {
                if self.window.hold(cmd_sn, from, request).is_err() {
                    self.reject(at, RejectReason::OutOfResources, header);
                    // A void request holds no data, so there is room.
                    let _ = self.window.hold(cmd_sn, from, Sequenced::Void);
                }
            }
        }
    }

    /// Executes early requests that are due now.
    pub(super) fn carry_out_early(&mut self) {
        while let Some((from, request)) = self.window.take_due() {
            self.carry_out(from, request, false);
        }
        self.carry_out_early_management();
    }

    fn carry_out(&mut self, from: ConnectionId, request: Sequenced, immediate: bool) {
        // Commands and task management open the window when they are answered; all other requests open it at
        // once.
        if !immediate && !matches!(request, Sequenced::Command(_) | Sequenced::Task(_)) {
            self.window.release();
        }
        match request {
            Sequenced::Void => {}
            Sequenced::Command(key) => {
                if let Some(task) = self.tasks.get_mut(key) {
                    task.in_order = true;
                    self.proceed(key);
                }
            }
            Sequenced::Nop(nop, data) => self.answer_nop(from, nop, data),
            Sequenced::Task(task) => self.carry_out_task(from, task, immediate),
            Sequenced::Text(text, data) => self.carry_out_text(from, text, data),
            Sequenced::Logout(logout) => self.carry_out_logout(from, logout),
        }
    }

    /// Processes a command's headers; returns where its immediate data goes.
    #[inline]
    pub(super) fn begin_command(
        &mut self,
        at: usize,
        header: &[u8; HEADER_LEN],
        command: &ScsiCommand,
        ahs: &[u8],
        immediate_length: u32,
    ) -> Sink {
        if self.discovery {
            self.refuse_in_discovery(at, header);
            return Sink::Discard;
        }
        let arrival = match command.immediate {
            true => Arrival::Due,
            false => self.window.arrival(command.cmd_sn),
        };
        if arrival == Arrival::Ignored {
            self.connections[at].counters.ignored += 1;
            return Sink::Discard;
        }
        if let Some(reason) = self.unacceptable(command, ahs, immediate_length) {
            self.reject(at, reason, header);
            self.sequence(at, header, command.cmd_sn, Sequenced::Void);
            return Sink::Discard;
        }
        let key = self.new_task(at, command, ahs, immediate_length, arrival == Arrival::Due);
        match arrival {
            Arrival::Early => {
                let from = self.connections[at].id;
                let held = self.window.hold(command.cmd_sn, from, Sequenced::Command(key));
                debug_assert!(held.is_ok(), "a command holds no data in the window");
            }
            _ if command.immediate => self.immediate_tasks += 1,
            _ => self.window.advance(),
        }
        // A command with immediate data proceeds when the data has arrived.
        self.proceed(key);
        if !command.immediate && arrival == Arrival::Due {
            self.carry_out_early();
        }
        match self.tasks.get(key).map(|task| &task.state) {
            Some(TaskState::Collecting) if immediate_length > 0 => Sink::Task(key, 0),
            Some(TaskState::Refusing(_)) => Sink::Task(key, 0),
            _ => Sink::Discard,
        }
    }

    /// Why a command must be rejected before it becomes a task.
    #[inline]
    fn unacceptable(&self, command: &ScsiCommand, ahs: &[u8], immediate_length: u32) -> Option<RejectReason> {
        if command.initiator_tag == InitiatorTag::RESERVED {
            return Some(RejectReason::InvalidPduField);
        }
        if self.tasks.by_tag(command.initiator_tag).is_some() {
            return Some(RejectReason::TaskInProgress);
        }
        if command.immediate && (self.is_management_full() || self.is_too_much(command, immediate_length)) {
            return Some(RejectReason::TooManyImmediateCommands);
        }
        let is_malformed =
            |segment| !matches!(segment, Ok(Ahs::ExtendedCdb(_) | Ahs::BidirectionalReadLength(_)));
        ScsiCommand::ahs(ahs).any(is_malformed).then_some(RejectReason::InvalidPduField)
    }

    /// Whether an immediate command brings data for which there is no room now, since no window bounds it. A
    /// command that is always too large is refused with sense data.
    fn is_too_much(&self, command: &ScsiCommand, immediate_length: u32) -> bool {
        let brings_data = command.write && (immediate_length > 0 || !command.is_final);
        let len = command.expected_length as usize;
        brings_data && len <= self.config.data_bytes_max && !self.has_room(len)
    }

    /// Why a command must be refused with sense data once all announced data has arrived.
    #[inline]
    fn refusal(&self, at: usize, command: &ScsiCommand, ahs: &[u8], immediate_length: u32) -> Option<Sense> {
        let negotiated = &self.connections[at].negotiated;
        let unsolicited_max = negotiated.first_burst.min(command.expected_length);
        let code = if command.read && command.write {
            INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT
        } else if !ahs.is_empty() {
            match ScsiCommand::ahs(ahs).any(|segment| matches!(segment, Ok(Ahs::ExtendedCdb(_)))) {
                true => code::INVALID_COMMAND_OPERATION_CODE,
                false => INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT,
            }
        } else if immediate_length > 0 && (!command.write || !negotiated.immediate_data)
            || command.write && !command.is_final && negotiated.initial_r2t
        {
            return Some(Sense::new(SenseKey::AbortedCommand, UNEXPECTED_UNSOLICITED_DATA));
        } else if immediate_length > unsolicited_max {
            return Some(Sense::new(SenseKey::AbortedCommand, INCORRECT_AMOUNT_OF_DATA));
        } else if command.write && command.expected_length as usize > self.config.data_bytes_max {
            code::INVALID_FIELD_IN_CDB
        } else {
            return None;
        };
        Some(Sense::illegal(code))
    }

    #[inline]
    fn new_task(
        &mut self,
        at: usize,
        command: &ScsiCommand,
        ahs: &[u8],
        immediate_length: u32,
        in_order: bool,
    ) -> TaskKey {
        let state = match self.refusal(at, command, ahs, immediate_length) {
            Some(sense) => TaskState::Refusing(Verdict::Check(sense)),
            None => TaskState::Collecting,
        };
        let connection = &mut self.connections[at];
        connection.counters.commands += 1;
        // A command without the W bit has no data to wait for, except to discard it.
        let moves_out = command.write && command.expected_length > 0 || immediate_length > 0;
        let write = moves_out.then(|| {
            let is_final = command.is_final || !command.write;
            let first_burst = connection.negotiated.first_burst;
            WriteData::new(command.expected_length, immediate_length, is_final, first_burst)
        });
        let is_wanted = write.is_some() && matches!(state, TaskState::Collecting);
        let key = self.tasks.insert(Task {
            generation: 0,
            charged: 0,
            granted: false,
            connection: connection.id,
            tag: command.initiator_tag,
            lun: command.lun,
            cdb: Cdb(command.cdb),
            cmd_sn: command.cmd_sn,
            immediate: command.immediate,
            in_order,
            read: command.read,
            expected: command.expected_length,
            write,
            state,
        });
        if is_wanted {
            self.make_room_for_unsolicited(key);
        }
        key
    }

    /// Processes a Data-Out PDU's header; returns where its data goes.
    #[inline]
    pub(super) fn begin_data_out(
        &mut self,
        at: usize,
        header: &[u8; HEADER_LEN],
        pdu: &DataOut,
        length: u32,
    ) -> Sink {
        let connection = &mut self.connections[at];
        let (from, max_burst) = (connection.id, connection.negotiated.max_burst);
        let Some(key) = self.tasks.by_tag(pdu.initiator_tag) else {
            // Its command was ignored, rejected or aborted after the data had been sent.
            connection.counters.ignored += 1;
            return Sink::Discard;
        };
        let verdict = match self.tasks.get(key) {
            // Allegiance (4.2.5.1).
            Some(task) if task.connection != from => Err(Mistake::Broken(RejectReason::ProtocolError)),
            Some(task) => match (&task.write, &task.state) {
                (Some(write), TaskState::Collecting) => {
                    write.check(pdu, length, max_burst, |number| key.target_tag(number))
                }
                // Data to be discarded: only its end matters.
                (Some(write), TaskState::Refusing(_) | TaskState::Discarding) if write.is_under_way() => {
                    Ok(())
                }
                _ => Err(Mistake::Broken(RejectReason::ProtocolError)),
            },
            None => Err(Mistake::Broken(RejectReason::ProtocolError)),
        };
        match verdict {
            Ok(()) => Sink::Task(key, pdu.buffer_offset),
            Err(Mistake::Gap) => {
                self.give_up_data(key);
                Sink::Task(key, pdu.buffer_offset)
            }
            Err(Mistake::Broken(reason)) => {
                self.fail(at, reason, header);
                Sink::Discard
            }
        }
    }

    /// Advances a command as far as possible. Every command reaches the driver through this function.
    #[inline]
    pub(super) fn proceed(&mut self, key: TaskKey) {
        let Some(task) = self.tasks.get_mut(key).filter(|task| task.in_order) else { return };
        let waits = task.write.as_ref().is_some_and(|write| write.unsolicited_open);
        let is_under_way = task.write.as_ref().is_some_and(WriteData::is_under_way);
        let is_complete = task.write.as_ref().is_none_or(WriteData::is_complete);
        match task.state {
            _ if waits => {}
            TaskState::Refusing(_) | TaskState::Discarding if is_under_way => {}
            TaskState::Refusing(verdict) => {
                task.state = TaskState::Running;
                self.answer(key, verdict.into());
            }
            TaskState::Discarding => {
                self.remove_task(key);
            }
            TaskState::Collecting if is_complete => {
                task.state = TaskState::Running;
                let place = task.write.as_mut().map(|write| std::mem::replace(&mut write.place, Place::None));
                let data_out = match place {
                    Some(Place::Whole(buf)) => Chain::from(buf),
                    _ => Chain::new(),
                };
                self.events.push_back(Event::Command(Command {
                    id: CommandId::from(key),
                    cid: task.connection.cid,
                    lun: task.lun,
                    cdb: task.cdb,
                    data_out,
                }));
            }
            TaskState::Collecting => self.solicit(key),
            TaskState::Running | TaskState::Aborted | TaskState::Answering(_) => {}
        }
    }

    /// Processes the end of a command in the driver.
    #[inline]
    pub(super) fn end_command(&mut self, key: TaskKey, outcome: Outcome) {
        match self.tasks.get(key).map(|task| &task.state) {
            Some(TaskState::Aborted) => self.answer(key, Verdict::TaskAborted.into()),
            Some(_) => self.answer(key, outcome),
            None => self.end_orphan(key),
        }
    }

    /// Answers a running command.
    #[inline]
    fn answer(&mut self, key: TaskKey, outcome: Outcome) {
        let Some(task) = self.tasks.get_mut(key).filter(|task| task.state.is_handed_out()) else { return };
        let mut data = outcome.data_in;
        let read_max = if task.read { task.expected } else { 0 };
        if data.len() > read_max as usize {
            data = data.slice(0..read_max as usize);
        }
        let residual = residual(task, outcome.status, outcome.transfer, data.len());
        task.state = TaskState::Answering(Answer {
            status: outcome.status,
            sense: outcome.sense,
            residual,
            data,
            sent: 0,
            data_sn: 0,
        });
        let (to, queued) = (task.connection, answer_len(&task.state));
        if let Some(connection) = self.connections.iter_mut().find(|connection| connection.id == to) {
            connection.queued_bytes += queued;
            connection.queue.push_back(Output::Answer(key));
        }
        self.release_memory(key);
    }

    /// Forgets a task that has been answered, or that needs no response. Returns whether the driver still has
    /// it.
    #[inline]
    pub(super) fn remove_task(&mut self, key: TaskKey) -> bool {
        if self.tasks.get(key).is_some_and(|task| task.state.is_handed_out()) {
            return self.orphan(key);
        }
        self.release_memory(key);
        let Some(task) = self.tasks.remove(key) else { return false };
        self.give_up_place(task.immediate);
        if let TaskState::Answering(answer) = &task.state
            && let Some(connection) =
                self.connections.iter_mut().find(|connection| connection.id == task.connection)
        {
            connection.queued_bytes -= answer.data.len() - answer.sent as usize;
        }
        false
    }

    /// Allows another request in place of one that has ended.
    #[inline]
    pub(super) fn give_up_place(&mut self, immediate: bool) {
        if immediate {
            self.immediate_tasks -= 1;
        } else {
            self.window.release();
        }
    }

    fn refuse_in_discovery(&mut self, at: usize, header: &[u8; HEADER_LEN]) {
        // 4.3: a discovery session has only text requests and logout. The CmdSN counts, so that these can
        // follow.
        self.reject(at, RejectReason::ProtocolError, header);
        self.sequence(at, header, cmd_sn(header), Sequenced::Void);
    }

    /// Rejects a PDU.
    pub(super) fn reject(&mut self, at: usize, reason: RejectReason, header: &[u8; HEADER_LEN]) {
        let connection = &mut self.connections[at];
        connection.counters.rejects += 1;
        connection.queue(Output::Reject(reason, Box::new(*header)));
    }

    /// Rejects a PDU and ends the session, since what follows cannot be interpreted.
    pub(super) fn fail(&mut self, at: usize, reason: RejectReason, header: &[u8; HEADER_LEN]) {
        self.reject(at, reason, header);
        self.over(CloseReason::ProtocolError);
    }
}

fn cmd_sn(header: &[u8; HEADER_LEN]) -> Serial {
    Serial(u32::from_be_bytes([header[24], header[25], header[26], header[27]]))
}

fn answer_len(state: &TaskState) -> usize {
    match state {
        TaskState::Answering(answer) => answer.data.len(),
        _ => 0,
    }
}

/// The residual: what the initiator expected, compared with what was to be transferred (11.4.5.1). A failed
/// read transferred the data that it returned; a failed write took all of its data.
#[inline]
fn residual(task: &Task, status: Status, transfer: u64, data_len: usize) -> Residual {
    let expected = if task.read || task.write.is_some() { u64::from(task.expected) } else { 0 };
    if transfer > expected {
        return Residual::Overflow(u32::try_from(transfer - expected).unwrap_or(u32::MAX));
    }
    let moved = match status {
        Status::Good | Status::ConditionMet => transfer,
        _ if task.read => data_len as u64,
        _ => expected,
    };
    match expected.saturating_sub(moved) {
        0 => Residual::None,
        // At most `expected`, which has 32 bits.
        missing => Residual::Underflow(missing as u32),
    }
}
