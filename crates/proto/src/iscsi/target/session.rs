//! The full feature phase: all connections of one session (RFC 7143 sections 4, 11).

use base::{Buf, Chain, Instant, SendBatch};

use crate::scsi::{Cdb, Outcome};

/// The parameters that login settled (RFC 7143 section 13).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// CRC32C over headers of this connection.
    pub header_digest: bool,
    /// CRC32C over data of this connection.
    pub data_digest: bool,
    /// What the initiator receives at most in one PDU on this connection.
    pub max_transmit: u32,
    /// What we receive at most in one PDU: what we declared.
    pub max_receive: u32,
    /// MaxConnections of the session.
    pub max_connections: u16,
    /// InitialR2T.
    pub initial_r2t: bool,
    /// ImmediateData.
    pub immediate_data: bool,
    /// MaxBurstLength.
    pub max_burst: u32,
    /// FirstBurstLength.
    pub first_burst: u32,
    /// MaxOutstandingR2T.
    pub max_outstanding_r2t: u16,
    /// DefaultTime2Wait, seconds.
    pub time2wait: u16,
    /// DefaultTime2Retain, seconds.
    pub time2retain: u16,
}

/// A target as SendTargets shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRecord {
    /// TargetName.
    pub name: String,
    /// "address:port,portal group tag" of each portal.
    pub addresses: Vec<String>,
}

/// A command that the session has handed out. Unique in the session while the command lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommandId(pub u32);

/// A SCSI command with all of its data.
#[derive(Debug)]
pub struct Command {
    /// To answer it with.
    pub id: CommandId,
    /// The eight LUN bytes as they came.
    pub lun: [u8; 8],
    /// The command.
    pub cdb: Cdb,
    /// All data that the initiator sent for it: at most its expected length, less if it said so in the CDB only.
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
}

/// What the driver must see to.
#[derive(Debug)]
pub enum Event {
    /// Carry it out, and call [`Session::complete`].
    Command(Command),
    /// See that the commands in `abort` take no effect later (they were handed out and not answered; the session
    /// forgets them and will ignore their completion), apply the function to the unit, and call [`Session::task_done`].
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
    /// List the targets that this initiator may see (`None`: all; or one by name), with [`Session::send_targets`].
    SendTargets {
        /// To answer it with.
        id: CommandId,
        /// One target, or all.
        target: Option<String>,
    },
    /// The connection is over: send what is left, then close it.
    Close {
        /// Which.
        cid: u16,
        /// Why.
        reason: CloseReason,
    },
    /// The session is over; commands in `abort` were handed out and not answered. Nothing follows.
    End {
        /// Commands whose answers nobody waits for.
        abort: Vec<CommandId>,
    },
}

/// Data that should be received straight into its buffer: call `Stream::receive_exact(buf, filled)` and give it back.
#[derive(Debug)]
pub struct InPlace {
    /// The whole data segment's place.
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
    /// Bytes of write data that may be held at most; R2Ts wait above it.
    pub data_bytes_max: usize,
    /// A ping is sent after so long without a word from the initiator, and the connection is dropped after as long again.
    pub nop_interval: std::time::Duration,
}

/// The full feature phase of one session. After each `handle_*` call take the events and each connection's output until
/// there are none.
pub struct Session {}

#[allow(unused_variables, missing_docs)]
impl Session {
    pub fn new(config: SessionConfig, discovery: bool) -> Session {
        todo!()
    }
    /// Adds a connection that login has made (its `leftover` bytes are fed separately). A connection with the same
    /// CID is closed first.
    pub fn add_connection(
        &mut self,
        cid: u16,
        negotiated: Negotiated,
        stat_sn: u32,
        exp_cmd_sn: u32,
        now: Instant,
    ) {
        todo!()
    }
    /// Takes in what arrived.
    pub fn handle_bytes(&mut self, cid: u16, bytes: &[u8], now: Instant) {
        todo!()
    }
    /// Large data is due next on this connection, and no bytes wait: receive it in place.
    pub fn take_in_place(&mut self, cid: u16) -> Option<InPlace> {
        todo!()
    }
    /// The in-place data is complete.
    pub fn handle_in_place(&mut self, cid: u16, buf: Buf, now: Instant) {
        todo!()
    }
    /// Whether to read from the connection at all: not while its answers or its data pile up.
    pub fn wants_bytes(&self, cid: u16) -> bool {
        todo!()
    }
    /// The connection ended below us.
    pub fn handle_closed(&mut self, cid: u16, reason: CloseReason) {
        todo!()
    }
    /// Ends the session from above (reinstatement, drain, an administrator): sends an async logout request first where the
    /// reason allows it.
    pub fn end(&mut self, reason: CloseReason, now: Instant) {
        todo!()
    }
    pub fn poll_event(&mut self) -> Option<Event> {
        todo!()
    }
    /// The answer to a command. Ignored if the command was aborted.
    pub fn complete(&mut self, id: CommandId, outcome: Outcome) {
        todo!()
    }
    /// The answer to a task management request.
    pub fn task_done(&mut self, id: CommandId, response: TaskResponse) {
        todo!()
    }
    /// The answer to SendTargets.
    pub fn send_targets(&mut self, id: CommandId, targets: &[TargetRecord]) {
        todo!()
    }
    /// Aborts a command from above (PREEMPT AND ABORT, a reset by another session): it is answered TASK ABORTED if `answer`.
    pub fn abort(&mut self, id: CommandId, answer: bool) {
        todo!()
    }
    /// Moves what this connection is to send into `batch`, up to about `bytes_max`.
    pub fn poll_transmit(&mut self, cid: u16, batch: &mut SendBatch, bytes_max: usize) {
        todo!()
    }
    /// When `handle_timeout` must be called.
    pub fn deadline(&self) -> Option<Instant> {
        todo!()
    }
    pub fn handle_timeout(&mut self, now: Instant) {
        todo!()
    }
}
