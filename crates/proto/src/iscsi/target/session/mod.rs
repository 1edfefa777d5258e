//! The full feature phase: all connections of one session (RFC 7143 sections 4, 11), at error recovery
//! level 0.
//!
//! What it guarantees: requests are delivered in CmdSN order over all connections, each once, with all of
//! their data; answers go back on the connection that the request came on (allegiance, 4.2.5.1); nothing that
//! an initiator sends makes it panic, and memory stays below what [`SessionConfig`] bounds:
//!
//! - unsolicited data: `commands_max` times FirstBurstLength; solicited data, and that of immediate commands:
//!   `data_bytes_max`. A write that is larger than `data_bytes_max` alone is answered ILLEGAL REQUEST,
//!   INVALID FIELD IN CDB, without asking for its data. What the driver has counts until it has ended it,
//!   also if it was aborted (`orphan`).
//! - answers: one for each command in the window, and no more bytes are wanted above [`TRANSMIT_BYTES_MAX`].
//!
//! A header digest error, a broken sequence of data or the loss of a connection ends the whole session, as
//! level 0 has no smaller recovery (7.1.4, 7.13.1); so does a data digest error of anything but Data-Out,
//! which would have to be sent again (7.8). A Data-Out PDU with a data digest error or a DataSN out of order
//! ends its command only: ABORTED COMMAND, PROTOCOL SERVICE CRC ERROR, after all data that is on its way
//! (7.8, 7.9). Other bad requests are answered with a Reject and the session goes on.
//!
//! Left out, with the reason: recovery levels 1 and 2 (SNACK is rejected, TASK REASSIGN answered "not
//! supported"); bidirectional commands and CDBs over 16 bytes (refused with sense: no block command that we
//! have needs them); the order of ORDERED and HEAD OF QUEUE tasks: the attribute is not looked at, and page
//! 86h says that SIMPLE is all there is.
//!
//! The way of a request: `receive` cuts bytes into PDUs and places data, `request` and its neighbours
//! (`task_management`, `text`, `nop`, `logout`) act on them, `window` keeps their order, `task` and
//! `write_data` hold what a command is waiting for, `abort` is how it ends otherwise, `transmit` turns
//! answers into PDUs. `join` and `end` are how connections come and go.

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

/// Bytes of answers that may wait on a connection before nothing more is read from it: a window of 32 reads
/// of 256 KiB.
pub const TRANSMIT_BYTES_MAX: usize = 8 << 20;

/// Immediate requests (which no window limits) that may be outstanding in a session: an initiator in distress
/// sends one task management request a logical unit or so.
const IMMEDIATE_MAX: usize = 64;

/// A target as SendTargets shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRecord {
    /// TargetName.
    pub name: String,
    /// "address:port,portal group tag" of each portal.
    pub addresses: Vec<String>,
}

/// A command that the session has handed out. Not used again for any later command of the session, so that
/// the late completion of an aborted command hits nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommandId(pub u64);

/// A connection of a session. Not used again for a later one of the same CID, so that nothing of the one is
/// taken for the other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId {
    /// The initiator's number for it.
    pub cid: u16,
    /// Which connection of the session it is, by age.
    pub generation: u32,
}

/// A SCSI command with all of its data.
#[derive(Debug)]
pub struct Command {
    /// To answer it with.
    pub id: CommandId,
    /// The connection that it came on.
    pub cid: u16,
    /// The eight LUN bytes as they came.
    pub lun: [u8; 8],
    /// The command.
    pub cdb: Cdb,
    /// All data that the initiator sent for it: at most its expected length, less if it said so in the CDB
    /// only.
    pub data_out: Chain,
}

/// RFC 7143 11.5.1.
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

/// RFC 7143 11.6.1.
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
    /// Tasks that the initiator wants aborted do not come to their end.
    AbortTimeout,
}

/// What the driver must see to.
#[derive(Debug)]
pub enum Event {
    /// Carry it out, and call [`Session::complete`].
    Command(Command),
    /// See that the commands in `abort` take no effect later (they were handed out and not answered; the
    /// session forgets them and will ignore their completion), apply the function to the unit, wait for a
    /// while as long as [`Session::awaits_data`], and call [`Session::task_done`]. After the answer to a cold
    /// reset the session is over; see that all others of the target end, too (RFC 7143 11.5.1).
    Task {
        /// To answer it with.
        id: CommandId,
        /// What to do.
        function: TaskFunction,
        /// To which unit; meaningless for target resets.
        lun: [u8; 8],
        /// This session's commands that are affected.
        abort: Vec<CommandId>,
    },
    /// List the targets that this initiator may see (`None`: all; or one by name), with
    /// [`Session::send_targets`].
    SendTargets {
        /// To answer it with.
        id: CommandId,
        /// One target, or all. In a normal session, `None` is the session's own target.
        target: Option<String>,
    },
    /// The initiator takes leave: see that no command that came on the connection takes effect later (they
    /// are forgotten, and their completion will be ignored), and call [`Session::logout_done`].
    Logout {
        /// To answer it with.
        id: CommandId,
        /// The connection; `None`: all.
        cid: Option<u16>,
    },
    /// The connection is over: send what is left, then close it, and call [`Session::remove_connection`]. The
    /// session ignores the completion of commands that came on it.
    Close {
        /// Which.
        id: ConnectionId,
        /// Why.
        reason: CloseReason,
    },
    /// The session is over, and ignores the completion of its commands. No event follows; the connections'
    /// last output can still be polled.
    End,
}

/// Data that should be received straight into its buffer: call `Stream::receive_exact(buf, filled)` and give
/// it back.
#[derive(Debug)]
pub struct InPlace {
    /// The command's buffer up to the end of the data that is due next on the connection. Its memory may go
    /// on; the session restores its length.
    pub buf: Buf,
    /// The bytes that are there already.
    pub filled: usize,
}

/// What the node tells a session at its birth.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// Its number in the target.
    pub tsih: u16,
    /// Commands that may be outstanding at most: the command window.
    pub commands_max: u32,
    /// Bytes of write data that may be held at most, besides unsolicited data of the window; R2Ts wait above
    /// it.
    pub data_bytes_max: usize,
    /// A ping is sent after so long without a word from the initiator, and the connection is dropped after as
    /// long again.
    pub nop_interval: std::time::Duration,
    /// How long an initiator may take to log out after it was asked to. open-iscsi does so at once; Windows
    /// within a second.
    pub drain_time: std::time::Duration,
}

/// The full feature phase of one session. After each `handle_*` call, and after each answer, take the events
/// and each connection's output until there are none.
pub struct Session {
    config: SessionConfig,
    /// Only SendTargets and logout are allowed.
    discovery: bool,
    phase: Phase,
    /// At most one of each CID that is not closed; closed ones stay until the driver has sent what they left.
    connections: Vec<Connection>,
    /// Connections that are at the end of their login, at most one of each CID.
    expected: Vec<ConnectionId>,
    /// How many connections were expected so far.
    generation: u32,
    /// What the first login settled: it holds for the session.
    leading: Option<Negotiated>,
    window: Window,
    tasks: TaskTable,
    /// Commands that are forgotten, and that the driver has not ended.
    orphans: BTreeMap<TaskKey, Orphan>,
    /// Task management requests that were handed out.
    management: Slab<Management>,
    /// Immediate ones that wait for requests before them which other connections bring.
    early_management: Vec<(ConnectionId, TaskRequest)>,
    /// Logouts that were handed out.
    logouts: Slab<Logout>,
    /// Immediate commands among `tasks`.
    immediate_tasks: usize,
    /// Bytes of write buffers, from their allocation to the command's answer, or to its end if it is answered
    /// before.
    write_bytes: usize,
    /// How many commands hold some of them that are bounded by `data_bytes_max` alone (`granted`), but for
    /// those that were aborted and run on.
    write_grants: usize,
    /// Those of commands that were aborted and run on, and that no place in the window bounds: they were
    /// granted, or it is given up.
    orphan_bytes: usize,
    /// Writes that wait for memory before their R2Ts, oldest first; some may be gone.
    starved: VecDeque<TaskKey>,
    events: VecDeque<Event>,
    /// What connections counted that were replaced.
    retired: Counters,
}

/// The life of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Requests are served.
    Active,
    /// The initiator was asked to log out; at this time its connections are dropped.
    Draining(Instant),
    /// All connections are closed and `Event::End` was given out.
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

    /// Keeps a place for a connection that is at the end of its login. A former connection with the same CID
    /// ends now: its `Close` says [`CloseReason::Reinstated`], and the login must wait until none of its
    /// commands takes effect any more. Then call [`Session::add_connection`], or
    /// [`Session::remove_connection`] if the login comes to nothing.
    ///
    /// # Errors
    /// It has as many as it settled for, or it is over.
    pub fn expect_connection(&mut self, cid: u16) -> Result<ConnectionId, LoginStatus> {
        self.expect(cid)
    }

    /// Adds an expected connection that has logged in (its `leftover` bytes are fed separately). Says whether
    /// it was still expected: the session may be over, or another connection of the same CID may have come.
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

    /// Nothing more will be sent on a connection that is closed, or nothing will come of an expected one. A
    /// session without any is over.
    pub fn remove_connection(&mut self, id: ConnectionId) {
        self.remove(id);
    }

    /// Takes in what arrived.
    pub fn handle_bytes(&mut self, id: ConnectionId, bytes: &[u8], now: Instant) {
        if let Some(at) = self.open_connection(id) {
            self.connections[at].heard(now, bytes.len());
            self.receive(at, bytes);
        }
    }

    /// Large data is due next on this connection, and no bytes wait: receive it in place. Until it is given
    /// back, no bytes may be fed.
    pub fn take_in_place(&mut self, id: ConnectionId) -> Option<InPlace> {
        let at = self.open_connection(id)?;
        self.lend(at)
    }

    /// The in-place data is complete.
    pub fn handle_in_place(&mut self, id: ConnectionId, buf: Buf, now: Instant) {
        if let Some(at) = self.open_connection(id) {
            self.take_back(at, buf, now);
        }
    }

    /// Whether to read from the connection at all: not while its answers or its data pile up.
    pub fn wants_bytes(&self, id: ConnectionId) -> bool {
        self.open_connection(id).is_some_and(|at| self.connections[at].wants_bytes())
    }

    /// The connection ended below us.
    pub fn handle_closed(&mut self, id: ConnectionId, reason: CloseReason) {
        self.connection_lost(id, reason);
    }

    /// Ends the session from above (reinstatement, drain, an administrator): sends an async logout request
    /// first where the reason allows it.
    pub fn end(&mut self, reason: CloseReason, now: Instant) {
        self.end_from_above(reason, now);
    }

    /// The next thing for the driver to see to.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// A command has ended: nothing of it takes effect any more, and its data is no longer held. This is its
    /// answer, unless it was aborted. To be called for each command, also for those that are aborted: their
    /// memory counts until then.
    pub fn complete(&mut self, id: CommandId, outcome: Outcome) {
        self.end_command(TaskKey::from(id), outcome);
    }

    /// Whether data is on its way that R2Ts asked for, of commands which a task management request has ended.
    /// Its answer must wait for that (RFC 7143 4.2.3.3 a), but not for ever: many initiators answer no R2T
    /// after such a request.
    pub fn awaits_data(&self, id: CommandId) -> bool {
        self.is_data_due(TaskKey::from(id))
    }

    /// The answer to a task management request.
    pub fn task_done(&mut self, id: CommandId, response: TaskResponse) {
        self.answer_management(TaskKey::from(id), response);
    }

    /// The answer to a logout: nothing of what left takes effect later (`is_clean`), or that took too long.
    pub fn logout_done(&mut self, id: CommandId, is_clean: bool) {
        self.finish_logout(TaskKey::from(id), is_clean);
    }

    /// The answer to SendTargets.
    pub fn send_targets(&mut self, id: CommandId, targets: &[TargetRecord]) {
        self.answer_send_targets(TaskKey::from(id), targets);
    }

    /// Aborts a command from above (PREEMPT AND ABORT, a reset by another session): it is answered TASK
    /// ABORTED if `answer`, when it has ended.
    pub fn abort(&mut self, id: CommandId, answer: bool) {
        self.abort_from_above(TaskKey::from(id), answer);
    }

    /// Aborts what the driver does not have yet of a unit's commands, since they wait for their data: they
    /// are answered TASK ABORTED when what is on its way has come.
    pub fn abort_waiting(&mut self, lun: Lun) {
        self.abort_waiting_from_above(lun);
    }

    /// Moves what this connection is to send into `batch`, up to about `bytes_max`.
    pub fn poll_transmit(&mut self, id: ConnectionId, batch: &mut SendBatch, bytes_max: usize) {
        self.transmit(id, batch, bytes_max);
    }

    /// When `handle_timeout` must be called.
    pub fn deadline(&self) -> Option<Instant> {
        self.next_deadline()
    }

    /// It is `now`.
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

    /// How many commands are in which state.
    pub fn census(&self) -> TaskCensus {
        self.tasks.census()
    }

    /// Bytes of answers that were not given out to be sent.
    pub fn answer_bytes(&self) -> usize {
        self.connections.iter().map(|connection| connection.queued_bytes).sum()
    }

    /// Another limit for write data, since there are more sessions now, or fewer. What is held stays.
    pub fn set_data_bytes_max(&mut self, bytes: usize) {
        self.config.data_bytes_max = bytes;
    }

    /// Bytes of write data that are held.
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
