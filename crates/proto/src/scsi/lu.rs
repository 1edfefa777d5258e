//! What one core knows of a logical unit.

use base::{BlockCount, BlockSize, Chain, LbaRange};

use super::{BlockDone, BlockError, BlockOp, Cdb, Outcome};

/// An initiator port's login to a target port: what reservations and unit attentions belong to. Given by the node,
/// never reused while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NexusId(pub u64);

/// Names that never change over a unit's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Eight characters at most, as are those below by SPC-4's field sizes.
    pub vendor: String,
    /// Sixteen characters at most.
    pub product: String,
    /// Four characters at most.
    pub revision: String,
    /// The unit serial number (VPD 80h).
    pub serial: String,
    /// NAA 6 (IEEE registered extended), 16 bytes.
    pub naa: [u8; 16],
    /// EUI-64 based, 8 bytes.
    pub eui64: [u8; 8],
}

/// What a unit is. It changes only by an administrator's act (resize).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LuConfig {
    /// Who it is.
    pub identity: Identity,
    /// The logical block.
    pub block_size: BlockSize,
    /// log2 of logical blocks per physical block: 3 for 512e.
    pub physical_exponent: u8,
    /// The capacity.
    pub blocks: BlockCount,
    /// UNMAP gives space back.
    pub unmap: bool,
    /// No spindle (rotation rate 1).
    pub solid_state: bool,
    /// Writes are refused by configuration.
    pub read_only: bool,
}

/// What all cores agree on, and what survives a restart as far as the standard asks for it.
/// The scsi work fills it: mode pages (WCE, D_SENSE, SWP, …) and persistent reservations (with APTPL).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LuState {}

impl LuState {
    /// The part that must survive a restart, in the format of `docs/formats/lu-state.md`; empty if it is the default.
    pub fn to_durable(&self) -> Vec<u8> {
        todo!()
    }

    /// Reads what [`LuState::to_durable`] wrote; `None` if the bytes are damaged or of an unknown version.
    pub fn from_durable(bytes: &[u8]) -> Option<LuState> {
        let _ = bytes;
        todo!()
    }
}

/// One command as it arrived.
#[derive(Clone, Debug)]
pub struct Request {
    /// Who asks.
    pub nexus: NexusId,
    /// The command.
    pub cdb: Cdb,
    /// The data that came with it.
    pub data_out: Chain,
}

/// What is to be done for a command.
#[derive(Debug)]
pub enum Step {
    /// The answer.
    Done(Outcome),
    /// Carry out the operation, then `finish`.
    Block(Pending, BlockOp),
    /// Have the home core decide the change, then answer with what it gave.
    Change(ChangeRequest),
    /// Copy the segments in order (EXTENDED COPY), then `finish`.
    Copy(Pending, Vec<CopySegment>),
}

/// What `finish` needs of the command.
#[derive(Debug)]
pub struct Pending {}

/// A change that a command asks for: MODE SELECT, PERSISTENT RESERVE OUT, RESERVE/RELEASE. Decoded and checked as far as
/// that is possible without knowing the newest state.
#[derive(Clone, Debug)]
pub struct ChangeRequest {}

/// What the home core decided.
#[derive(Debug)]
pub struct Decision {
    /// The new state, if it changes.
    pub state: Option<LuState>,
    /// It must be durable before the command is answered.
    pub durable: bool,
    /// Commands of these nexuses are aborted before the new state counts (PREEMPT AND ABORT).
    pub abort: Vec<NexusId>,
    /// The answer to give after all that.
    pub outcome: Outcome,
}

/// A part of an EXTENDED COPY: block to block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopySegment {
    /// The NAA designator of the unit to read.
    pub source: [u8; 16],
    /// What to read, in the source's blocks.
    pub source_range: LbaRange,
    /// The NAA designator of the unit to write.
    pub target: [u8; 16],
    /// What to write, in the target's blocks; as many bytes as the source's range.
    pub target_range: LbaRange,
}

/// What one core knows of one logical unit.
pub struct LogicalUnit {}

impl LogicalUnit {
    /// A unit with no nexus yet.
    pub fn new(config: LuConfig, state: LuState) -> LogicalUnit {
        let _ = (config, state);
        todo!()
    }

    /// Takes in one command. Unit attentions and reservations are checked here.
    pub fn start(&mut self, request: Request) -> Step {
        let _ = request;
        todo!()
    }

    /// The answer to a command whose step was carried out.
    pub fn finish(&mut self, pending: Pending, result: Result<BlockDone, BlockError>) -> Outcome {
        let _ = (pending, result);
        todo!()
    }
}
