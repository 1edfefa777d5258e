//! SCSI commands and other tasks, as their owner and the connection see them.

use base::{Buf, Chain};

use crate::iscsi::wire::{InitiatorTag, Residual, Serial, ServiceResponse};
use crate::scsi::Cdb;

/// The data of a command.
#[derive(Clone, Debug, Default)]
pub enum Transfer {
    /// None.
    #[default]
    None,
    /// So many bytes at most are to come.
    In(u32),
    /// These are to go.
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

/// The answer to a command.
#[derive(Debug)]
pub struct CommandResult {
    /// The SCSI status, or the target's failure.
    pub response: ServiceResponse,
    /// Sense data, if any.
    pub sense: Vec<u8>,
    /// What was moved against what was expected.
    pub residual: Residual,
    /// What came, for a command with [`Transfer::In`]: cut to that.
    pub data: Option<Buf>,
}

/// A task that was sent, or waits to be, and was not answered.
pub(super) struct Task {
    /// Its tag: the place in the list of tasks, and how often that was used.
    pub(super) tag: InitiatorTag,
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    Command(Running),
    /// Task management: when it is done, commands are gone.
    Management(Scope),
    /// SendTargets, and what came of its answer.
    Text(Vec<u8>),
    Ping,
    Logout,
}

/// Which commands a task management function ends.
#[derive(Clone, Copy)]
pub(super) enum Scope {
    Task(InitiatorTag),
    /// Those sent before this CmdSN to this unit.
    Unit([u8; 8], Serial),
    /// Those sent before this CmdSN.
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
        /// So many bytes of `buf` have come.
        received: usize,
    },
    /// As `In` with a buffer of `len` bytes, which the driver fills.
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

    /// Whether a command that went well has brought as much as its answer says (RFC 7143 11.4.5).
    pub(super) fn is_whole(&self, residual: Residual) -> bool {
        let Data::In { buf, received } = &self.data else { return true };
        match residual {
            Residual::None | Residual::Overflow(_) => *received == buf.len(),
            Residual::Underflow(missing) => buf.len().checked_sub(missing as usize) == Some(*received),
        }
    }

    /// The data that came.
    pub(super) fn into_data(self) -> Option<Buf> {
        let Data::In { mut buf, received } = self.data else { return None };
        buf.truncate(received);
        Some(buf)
    }
}
