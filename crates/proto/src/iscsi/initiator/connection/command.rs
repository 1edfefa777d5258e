//! SCSI commands and other tasks, as their owner and the connection see them.

use base::{Buf, Chain};

use crate::iscsi::wire::{InitiatorTag, Residual, Serial, ServiceResponse};
use crate::scsi::Cdb;

/// The data of a command.
#[derive(Clone, Debug, Default)]
pub enum Transfer {
    /// No data.
    #[default]
    None,
    /// Read data of at most this many bytes.
    In(u32),
    /// Write data.
    Out(Chain),
}

/// A SCSI command to be sent.
#[derive(Clone, Debug)]
pub struct Command {
    /// The eight LUN bytes.
    pub lun: [u8; 8],
    /// The command.
    pub cdb: Cdb,
    /// Its data.
    pub transfer: Transfer,
}

/// The response to a command.
#[derive(Debug)]
pub struct CommandResult {
    /// The SCSI status, or the target's failure.
    pub response: ServiceResponse,
    /// Sense data, if any.
    pub sense: Vec<u8>,
    /// The difference between the data transferred and the data expected.
    pub residual: Residual,
    /// The data received by a command with [`Transfer::In`], truncated to its length.
    pub data: Option<Buf>,
}

/// A task that has not been answered: it was sent, or waits to be sent.
pub(super) struct Task {
    /// The tag: the slot in the list of tasks, and the task counter.
    pub(super) tag: InitiatorTag,
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    Command(Running),
    /// Task management; its response ends commands.
    Management(Scope),
    /// SendTargets, and the text received so far.
    Text(Vec<u8>),
    Ping,
    Logout,
}

/// Which commands a task management function ends.
#[derive(Clone, Copy)]
pub(super) enum Scope {
    Task(InitiatorTag),
    /// Commands to this unit that were sent before this CmdSN.
    Unit([u8; 8], Serial),
    /// Commands that were sent before this CmdSN.
    Session(Serial),
}

pub(super) struct Running {
    pub(super) lun: [u8; 8],
    pub(super) cdb: Cdb,
    pub(super) cmd_sn: Serial,
    pub(super) data: Data,
}

pub(super) enum Data {
    None,
    In {
        buf: Buf,
        /// Bytes of `buf` that have arrived.
        received: usize,
    },
    /// As `In`, but the driver is filling the buffer of `len` bytes.
    Lent {
        len: usize,
        received: usize,
    },
    Out(Chain),
}

impl Running {
    /// The expected data transfer length.
    pub(super) fn expected(&self) -> u32 {
        let len = match &self.data {
            Data::None => 0,
            Data::In { buf, .. } => buf.len(),
            Data::Lent { len, .. } => *len,
            Data::Out(chain) => chain.len(),
        };
        u32::try_from(len).expect("no command moves 4 GiB")
    }

    /// Whether a successful command has received as much data as its response says (RFC 7143 11.4.5).
    pub(super) fn is_whole(&self, residual: Residual) -> bool {
        let Data::In { buf, received } = &self.data else { return true };
        match residual {
            Residual::None | Residual::Overflow(_) => *received == buf.len(),
            Residual::Underflow(missing) => buf.len().checked_sub(missing as usize) == Some(*received),
        }
    }

    /// The received data.
    pub(super) fn into_data(self) -> Option<Buf> {
        let Data::In { mut buf, received } = self.data else { return None };
        buf.truncate(received);
        Some(buf)
    }
}
