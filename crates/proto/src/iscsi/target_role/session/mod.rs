//! The full feature phase: all connections of one session (RFC 7143 sections 4, 11), at error recovery level
//! 0.
//!
//! Guarantees: the session delivers each request once, in CmdSN order over all connections, with all of its
//! data. A response leaves on the connection that the request arrived on (allegiance, 4.2.5.1). Nothing that
//! an initiator sends causes a panic, and memory stays within the bounds of [`SessionConfig`]:
//!
//! - Unsolicited data: `commands_max` times FirstBurstLength. Solicited data, and data of immediate commands:
//!   `data_bytes_max`. A write that is larger than `data_bytes_max` is answered ILLEGAL REQUEST, INVALID
//!   FIELD IN CDB, and its data is not requested. Data that the driver has counts until the driver has ended
//!   the command, also if the command was aborted (`orphan`).
//! - Responses: one for each command in the window. Above [`TRANSMIT_BYTES_MAX`] the session reads no more
//!   bytes.
//!
//! A header digest error, a broken sequence of data or the loss of a connection ends the whole session, since
//! level 0 has no smaller recovery (7.1.4, 7.13.1). So does a data digest error of any PDU but Data-Out,
//! because the PDU would have to be sent again (7.8). A Data-Out PDU with a data digest error or a DataSN out
//! of order ends only its command, with ABORTED COMMAND, PROTOCOL SERVICE CRC ERROR, after all data on its
//! way has arrived (7.8, 7.9). Other bad requests are answered with a Reject, and the session continues.
//!
//! Left out, with the reason:
//!
//! - Recovery levels 1 and 2: SNACK is rejected, TASK REASSIGN is answered "not supported".
//! - Bidirectional commands and CDBs over 16 bytes: refused with sense, since no block command that we
//!   support needs them.
//! - The order of ORDERED and HEAD OF QUEUE tasks: the session ignores the attribute, and page 86h reports
//!   that only SIMPLE is supported.
//!
//! The path of a request: `receive` cuts bytes into PDUs and places data; `request` and its neighbors
//! (`task_management`, `text`, `nop`, `logout`) execute them; `window` keeps their order; `task` and
//! `write_data` hold what a command waits for; `abort` ends commands early; `transmit` turns responses into
//! PDUs. `join` and `end` add and remove connections.

mod abort;
mod connection;
mod counters;
mod end;
mod join;
mod logout;
mod nop;
mod orphan;
mod receive;
mod request;
mod solicit;
mod tag_index;
mod task;
mod task_management;
#[cfg(test)]
mod tests;
mod text;
mod transmit;
mod window;
mod write_data;

use std::collections::{BTreeMap, VecDeque};

use base::{Buf, Chain, Instant, SendBatch};
use slab::Slab;

use self::connection::Connection;
use self::logout::Logout;
use self::orphan::Orphan;
use self::task::{TaskKey, TaskTable};
use self::task_management::Management;
use self::window::Window;
use super::LoginStatus;
use crate::iscsi::Negotiated;
use crate::iscsi::wire::{Serial, TaskRequest};
use crate::scsi::{Cdb, Lun, Outcome};

pub use self::counters::{Counters, TaskCensus};

/// Bytes of responses that may wait on a connection before the session stops reading it: a window of 32 reads
/// of 256 KiB.
pub const TRANSMIT_BYTES_MAX: usize = 8 << 20;

/// The most immediate requests (which no window limits) that may be outstanding in a session. An initiator in
/// distress sends about one task management request per logical unit.
const IMMEDIATE_MAX: usize = 64;

/// A target as SendTargets lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRecord {
    /// TargetName.
    pub name: String,
    /// "address:port,portal group tag" of each portal.
    pub addresses: Vec<String>,
}

/// A command that the session has handed out.
///
/// No later command of the session gets the same identifier, so the late completion of an aborted command has
/// no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommandId(pub u64);

/// A connection of a session.
///
/// A later connection with the same CID gets another identifier, so the two cannot be confused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId {
    /// The initiator's number for the connection.
    pub cid: u16,
    /// Counts the connections of the session, in the order of their arrival.
    pub generation: u32,
}

/// A SCSI command with all of its data.
#[derive(Debug)]
pub struct Command {
    /// Identifies the command in [`Session::complete`].
    pub id: CommandId,
    /// The connection that the command arrived on.
    pub cid: u16,
    /// The eight LUN bytes as received.
    pub lun: [u8; 8],
    /// The command.
    pub cdb: Cdb,
    /// All data that the initiator sent: at most the expected length, or less if only the CDB asks for less.
    pub data_out: Chain,
}

/// A task management function (RFC 7143 11.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum TaskFunction {
    AbortTask,
    AbortTaskSet,
    ClearTaskSet,
    LogicalUnitReset,
    TargetWarmReset,
    TargetColdReset,
}

/// The response to a task management function (RFC 7143 11.6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum TaskResponse {
    Complete = 0,
    TaskDoesNotExist = 1,
    LunDoesNotExist = 2,
    NotSupported = 5,
    Rejected = 255,
}

/// Why a connection ended. Logged and counted by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum CloseReason {
    LoggedOut,
    Reset,
    PeerClosed,
    HeaderDigest,
    DataDigest,
    ProtocolError,
    NopTimeout,
    Reinstated,
    Drained,
    /// Tasks that the initiator aborted do not end in time.
    AbortTimeout,
}

/// What the driver must do. The call that answers an event takes its `id`.
#[derive(Debug)]
#[allow(missing_docs)] // Fields are explained where their names do not.
pub enum Event {
    /// Execute the command, and call [`Session::complete`].
    Command(Command),
    /// Execute a task management function. `lun` means nothing for target resets.
    ///
    /// Make sure that the commands in `abort` take no effect later (they were handed out and not answered;
    /// the session forgets them and ignores their completion). Apply the function to the unit, wait for a
    /// limited time while [`Session::awaits_data`] is true, and call [`Session::task_done`]. The response to
    /// a cold reset ends the session; end all other sessions of the target, too (RFC 7143 11.5.1).
    Task { id: CommandId, function: TaskFunction, lun: [u8; 8], abort: Vec<CommandId> },
    /// List the targets that this initiator may see, with [`Session::send_targets`]: one by its name, or
    /// all. In a normal session, `None` is the session's own target.
    SendTargets { id: CommandId, target: Option<String> },
    /// The initiator logs out; `None`: all of its connections.
    ///
    /// Make sure that no command that came on the connection takes effect later (the session forgets them and
    /// ignores their completion), and call [`Session::logout_done`].
    Logout { id: CommandId, cid: Option<u16> },
    /// The connection has ended: send the remaining output, close it, and call
    /// [`Session::remove_connection`]. The session ignores the completion of commands that came on it.
    Close { id: ConnectionId, reason: CloseReason },
    /// The session has ended, and ignores the completion of its commands. No event follows; the connections'
    /// last output can still be polled.
    End,
}

/// Data that should be received directly into its buffer.
///
/// Call `Stream::receive_exact(buf, filled)`, then return the buffer with [`Session::handle_in_place`].
#[derive(Debug)]
pub struct InPlace {
    /// The command's buffer, up to the end of the data that is due next on the connection. Its memory may
    /// extend further; the session restores its length.
    pub buf: Buf,
    /// The number of bytes at the start of `buf` that have already arrived.
    pub filled: usize,
}

/// The parameters of a session that the node chooses.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// The session's number in the target.
    pub tsih: u16,
    /// The command window: the most commands that may be outstanding.
    pub commands_max: u32,
    /// The most bytes of write data that the session may hold, besides the window's unsolicited data. Above
    /// it, R2Ts wait.
    pub data_bytes_max: usize,
    /// If the initiator is silent for this time, the session sends a ping. After the same time without an
    /// answer it drops the connection.
    pub nop_interval: std::time::Duration,
    /// How long an initiator may take to log out after it was asked to. open-iscsi logs out at once; Windows
    /// within a second.
    pub drain_time: std::time::Duration,
}

/// The full feature phase of one session.
///
/// After each `handle_*` call, and after each answer to an event, take the events and each connection's
/// output until there are none.
pub struct Session {
    config: SessionConfig,
    /// Only SendTargets and logout are allowed.
    discovery: bool,
    phase: Phase,
    /// At most one open connection per CID. A closed one stays until the driver has sent its remaining
    /// output.
    connections: Vec<Connection>,
    /// Connections whose login is about to finish, at most one per CID.
    expected: Vec<ConnectionId>,
    /// The number of connections that were ever expected.
    generation: u32,
    /// What the first login negotiated: it holds for the session.
    leading: Option<Negotiated>,
    window: Window,
    tasks: TaskTable,
    /// Commands that the session has forgotten, and that the driver has not ended.
    orphans: BTreeMap<TaskKey, Orphan>,
    /// Task management requests that were handed out.
    management: Slab<Management>,
    /// Immediate task management requests that wait for earlier requests on other connections.
    early_management: Vec<(ConnectionId, TaskRequest)>,
    /// Logouts that were handed out.
    logouts: Slab<Logout>,
    /// The number of immediate commands in `tasks`.
    immediate_tasks: usize,
    /// Bytes of write buffers, each from its allocation until its command is answered, or has ended if that
    /// is later.
    write_bytes: usize,
    /// The number of commands that hold write buffers bounded only by `data_bytes_max` (`granted`), except
    /// aborted commands that are still running.
    write_grants: usize,
    /// Write buffers, in bytes, of aborted commands that are still running and that no place in the window
    /// bounds: they were granted, or the command has given up its place.
    orphan_bytes: usize,
    /// Writes that wait for memory before they can send R2Ts, oldest first. Some may have ended.
    starved: VecDeque<TaskKey>,
    events: VecDeque<Event>,
    /// Counters of connections that were removed.
    retired: Counters,
}

/// The phases of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Requests are served.
    Active,
    /// The initiator was asked to log out. At this time its connections are dropped.
    Draining(Instant),
    /// All connections are closed, and `Event::End` has been emitted.
    Over,
}

impl Session {
    /// A session without connections.
    pub fn new(config: SessionConfig, discovery: bool) -> Session {
        let commands_max = config.commands_max.max(1);
        Session {
            config,
            discovery,
            phase: Phase::Active,
            connections: Vec::new(),
            expected: Vec::new(),
            generation: 0,
            leading: None,
            window: Window::new(Serial(0), commands_max),
            tasks: TaskTable::new(),
            orphans: BTreeMap::new(),
            management: Slab::new(),
            early_management: Vec::new(),
            logouts: Slab::new(),
            immediate_tasks: 0,
            write_bytes: 0,
            write_grants: 0,
            orphan_bytes: 0,
            starved: VecDeque::new(),
            events: VecDeque::new(),
            retired: Counters::default(),
        }
    }

    /// Reserves a place for a connection whose login is about to finish.
    ///
    /// An earlier connection with the same CID ends now: its `Close` has the reason
    /// [`CloseReason::Reinstated`], and the login must wait until none of its commands can take effect any
    /// more. Then call [`Session::add_connection`], or [`Session::remove_connection`] if the login fails.
    ///
    /// # Errors
    /// The session has as many connections as it negotiated, or it has ended.
    pub fn expect_connection(&mut self, cid: u16) -> Result<ConnectionId, LoginStatus> {
        self.expect(cid)
    }

    /// Adds an expected connection that has logged in; its `leftover` bytes are fed separately.
    ///
    /// Returns whether the connection was still expected: the session may have ended, or another connection
    /// with the same CID may have replaced this one.
    pub fn add_connection(
        &mut self,
        id: ConnectionId,
        negotiated: Negotiated,
        stat_sn: u32,
        exp_cmd_sn: u32,
        now: Instant,
    ) -> bool {
        self.add(id, negotiated, stat_sn, exp_cmd_sn, now)
    }

    /// Removes a closed connection on which nothing more will be sent, or an expected one that will not come.
    ///
    /// A session without connections ends.
    pub fn remove_connection(&mut self, id: ConnectionId) {
        self.remove(id);
    }

    /// Processes bytes that arrived.
    pub fn handle_bytes(&mut self, id: ConnectionId, bytes: &[u8], now: Instant) {
        if let Some(at) = self.open_connection(id) {
            self.connections[at].heard(now, bytes.len());
            self.receive(at, bytes);
        }
    }

    /// Returns the buffer to receive into if large data is due next on this connection and no bytes wait.
    ///
    /// Until the buffer has been returned, no bytes may be fed.
    pub fn take_in_place(&mut self, id: ConnectionId) -> Option<InPlace> {
        let at = self.open_connection(id)?;
        self.lend(at)
    }

    /// Takes back the buffer when the data received in place is complete.
    pub fn handle_in_place(&mut self, id: ConnectionId, buf: Buf, now: Instant) {
        if let Some(at) = self.open_connection(id) {
            self.take_back(at, buf, now);
        }
    }

    /// Whether to read from the connection: not while its responses pile up, nor while data is received in
    /// place.
    pub fn wants_bytes(&self, id: ConnectionId) -> bool {
        self.open_connection(id).is_some_and(|at| self.connections[at].wants_bytes())
    }

    /// Reports that the network connection has ended.
    pub fn handle_closed(&mut self, id: ConnectionId, reason: CloseReason) {
        self.connection_lost(id, reason);
    }

    /// Ends the session on the node's initiative (reinstatement, drain, an administrator).
    ///
    /// Sends an async logout request first if the reason allows it.
    pub fn end(&mut self, reason: CloseReason, now: Instant) {
        self.end_from_above(reason, now);
    }

    /// The next thing for the driver to do.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Reports that a command has ended: it can no longer take effect, and the driver no longer holds its
    /// data.
    ///
    /// `outcome` is the response, unless the command was aborted. Call this for aborted commands, too: their
    /// memory counts until then.
    pub fn complete(&mut self, id: CommandId, outcome: Outcome) {
        self.end_command(TaskKey::from(id), outcome);
    }

    /// Whether commands that a task management request has ended still wait for data that R2Ts requested.
    ///
    /// The response to that request must wait for the data (RFC 7143 4.2.3.3 a), but not forever: many
    /// initiators answer no R2T after such a request.
    pub fn awaits_data(&self, id: CommandId) -> bool {
        self.is_data_due(TaskKey::from(id))
    }

    /// Answers a task management request.
    pub fn task_done(&mut self, id: CommandId, response: TaskResponse) {
        self.answer_management(TaskKey::from(id), response);
    }

    /// Answers a logout. `is_clean`: no command of what logged out takes effect later; otherwise that took
    /// too long.
    pub fn logout_done(&mut self, id: CommandId, is_clean: bool) {
        self.finish_logout(TaskKey::from(id), is_clean);
    }

    /// Answers SendTargets.
    pub fn send_targets(&mut self, id: CommandId, targets: &[TargetRecord]) {
        self.answer_send_targets(TaskKey::from(id), targets);
    }

    /// Aborts a command on the node's initiative (PREEMPT AND ABORT, a reset by another session).
    ///
    /// If `answer`, it is answered TASK ABORTED when it has ended.
    pub fn abort(&mut self, id: CommandId, answer: bool) {
        self.abort_from_above(TaskKey::from(id), answer);
    }

    /// Aborts the commands to a unit that the driver does not have yet, since they wait for their data.
    ///
    /// They are answered TASK ABORTED when the data on its way has arrived.
    pub fn abort_waiting(&mut self, lun: Lun) {
        self.abort_waiting_from_above(lun);
    }

    /// Moves output of this connection into `batch`, up to about `bytes_max`.
    pub fn poll_transmit(&mut self, id: ConnectionId, batch: &mut SendBatch, bytes_max: usize) {
        self.transmit(id, batch, bytes_max);
    }

    /// When `handle_timeout` must be called.
    pub fn deadline(&self) -> Option<Instant> {
        self.next_deadline()
    }

    /// Handles the deadlines that have passed at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.handle_deadlines(now);
    }

    /// What the session has done so far, over all its connections.
    pub fn counters(&self) -> Counters {
        self.connections.iter().map(|connection| connection.counters).chain([self.retired]).sum()
    }

    /// How many connections are open.
    pub fn connections_open(&self) -> usize {
        self.connections.iter().filter(|connection| connection.is_open()).count()
    }

    /// The number of commands in each state.
    pub fn census(&self) -> TaskCensus {
        self.tasks.census()
    }

    /// Bytes of responses that have not been handed out for sending.
    pub fn answer_bytes(&self) -> usize {
        self.connections.iter().map(|connection| connection.queued_bytes).sum()
    }

    /// Changes the limit for write data, because the number of sessions has changed. Data already held stays.
    pub fn set_data_bytes_max(&mut self, bytes: usize) {
        self.config.data_bytes_max = bytes;
    }

    /// Bytes of write data that the session holds.
    pub fn write_bytes(&self) -> usize {
        self.write_bytes
    }

    fn connection(&self, id: ConnectionId) -> Option<usize> {
        self.connections.iter().position(|connection| connection.id == id)
    }

    fn open_connection(&self, id: ConnectionId) -> Option<usize> {
        self.connection(id).filter(|at| self.connections[*at].is_open())
    }
}
